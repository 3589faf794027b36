"""Masks behind doors: what is filled, what is framed, and which words are marked."""

import pytest
from bs4 import BeautifulSoup

from annotated_book.display import Fate, Handed, doors, let_in

WORDS, ALLOWED = ("a", "<cat>", "pad"), (True, True, False)


def handed(*fates: Fate, mend: dict[str, str] | None = None) -> Handed:
    return Handed("Group", fates, WORDS, ALLOWED, {"the class": "x=<y>"}, mend or {}, asks=1)


@pytest.mark.parametrize(
    ("verdict", "kind"),
    [
        ("right", "aa-fine"),
        ("zeros", "aa-fine"),
        ("", "aa-fine"),
        ("error", "aa-loud"),
        ("leaks", "aa-silent"),
        ("hides", "aa-silent"),
        ("NaN", "aa-silent"),
    ],
)
def test_a_fate_is_filled_if_it_is_wrong_without_a_word(verdict, kind):
    seen = (True, True, False)
    shown = doors({"mask": handed(Fate(verdict, seen))}, ["door"], name="try")
    (cell,) = BeautifulSoup(shown.html, "html.parser").select(".aa-fate")
    assert cell["class"] == ["aa-fate", kind]


def test_a_row_opens_to_whom_each_door_lets_in():
    fates = Fate("leaks", (True, False, True), fast=True), Fate("error", note="<no>"), Fate("")
    shown = doors(
        {"mask": handed(*fates, mend={"the class": "x=~y"})}, ["one", "two", "three"], name="try"
    )
    page = BeautifulSoup(shown.html, "html.parser")
    (row,) = page.select("details")
    assert row.summary["aria-label"] == "mask. one: leaks, fast path; two: error; three: –."
    assert [cell.text for cell in row.select(".aa-fate")] == ["» leaks", "error", "–"]
    assert [door.text for door in row.select("dt")] == ["one", "two"]  # none was asked at three
    first, second = row.select("dd")
    assert [mark.text for mark in first.select("mark")] == ["<cat>", "pad"]
    assert [word.text for word in first.select("s")] == ["<cat>"]
    assert second.text == "<no>"
    assert "What <cat> looks at" in [p.text for p in row.select("p")]  # asks=1
    assert [code.text for code in row.select("code")] == ["x=<y>", "x=~y"]
    assert "leaks, fast path" in shown.text


def test_a_mask_that_is_right_everywhere_has_no_mend():
    shown = doors({"mask": handed(Fate("right", ALLOWED))}, ["door"], name="try")
    assert "aa-mend" not in shown.html.replace("aa-mend {", "")
    assert "<mark>" not in shown.html


def test_calls_say_whom_they_let_in():
    shown = let_in({"one": Fate("leaks", (False, True, True))}, handed(), name="try")
    assert "What <cat> looks at. one: <cat>, pad (blocked)." in shown.text
    assert "<s>a</s>" in shown.html
