"""Tables: what stands in their cells, on a page and in a terminal."""

import pytest
import torch
from bs4 import BeautifulSoup

from annotated_book import display
from annotated_book.display.verdicts import caught


def cells(output):
    """Give the texts of a table's rows, and the elements of its cells."""
    rows = BeautifulSoup(output.html, "html.parser").select("tr")
    found = [row.find_all(["th", "td"]) for row in rows]
    return [[cell.text for cell in row] for row in found], found


@pytest.mark.parametrize(
    ("value", "decimals", "wanted"),
    [
        (0.126, 2, "0.13"),
        (-0.001, 2, "0.00"),
        (-0.26, 1, "-0.3"),
        (-0.0001, ".1%", "0.0%"),
        (0.5, ".0%", "50%"),
        (torch.tensor(2.5), 0, "2"),
        (16640, 2, "16,640"),
        (True, 2, "yes"),
        (False, 2, "·"),
        ("0.3 to 1.4", 2, "0.3 to 1.4"),
        ((2, 3), 2, "(2, 3)"),
        (None, 2, ""),
        (float("nan"), 2, "nan"),
    ],
)
def test_how_a_value_is_written(value, decimals, wanted):
    shown = display.show([[value]], ["row"], ["column"], decimals=decimals)
    assert shown.text.split("\n")[1].removeprefix("row").strip() == wanted
    assert cells(shown)[0][1] == ["row", wanted.replace("-", "−")]


def test_words_stand_as_they_are_and_columns_have_forms_of_their_own():
    rows = {"<a> & b": [0.25, 0.25, -3]}
    shown = display.show(
        rows, columns=["post-LN", "of all", "n"], decimals=(2, ".0%", 0), corner="part", title="t"
    )
    assert shown.text == "t\npart     post-LN  of all   n\n<a> & b     0.25     25%  -3"
    assert cells(shown)[0] == [["part", "post-LN", "of all", "n"], ["<a> & b", "0.25", "25%", "−3"]]
    assert "<figcaption>t</figcaption>" in shown.html


def test_weights_have_heat_behind_them_and_card_hides_its_number():
    weights = torch.tensor([[1.0, 0.0], [0.75, 0.25]])
    future = torch.tensor([[False, True], [False, False]])
    texts, (_, first, second) = cells(display.show(weights, "ab", "ab", heat=True, blocked=future))
    assert texts[1:] == [["a", "1.00", "blocked"], ["b", "0.75", "0.25"]]
    assert second[1].span["style"] == "--weight: 0.75"
    assert first[2].select(".aa-held")
    _, (_, first) = cells(display.show([[8.0, 4.0, 0.5]], ["a"], ["x", "y", "z"], heat=["y", "z"]))
    assert [cell.span and cell.span["style"] for cell in first[1:]] == [
        None,
        "--weight: 1.00",
        "--weight: 0.50",
    ]


def test_a_mask_is_card_with_holes():
    mask = torch.tensor([[False, True]])
    shown = display.show(mask, ["a"], ["a", "b"])
    assert shown.text == "   a   b\na     ▒▒"
    assert cells(shown)[0][1] == ["a", "", "blocked"]


@pytest.mark.parametrize(
    ("rows", "columns"), [(["a"], ["x", "y"]), (["a", "b"], ["x"]), (["a", "b"], ["x", "y", "z"])]
)
def test_a_word_too_few_or_too_many_is_refused(rows, columns):
    with pytest.raises(ValueError, match="do not fit 2 rows of"):
        display.show(torch.zeros(2, 2), rows, columns)


def test_texts_are_written_from_the_left():
    words = {"a": ("long text", "–"), "b": ("short", "x")}
    shown = display.show(words, columns=["one", "other"], decimals="<")
    assert shown.text == "   one        other\na  long text  –\nb  short      x"
    assert "aa-words" in shown.html
    assert "aa-words" not in display.show(words, columns=["one", "other"]).html


def test_a_grid_marks_what_a_test_does_not_see():
    passed = {"right": [True, True], "turned": [True, False]}
    texts, (_, first, second) = cells(caught(passed, ["sum", "mean"]))
    assert texts == [
        ["", "sum", "mean"],
        ["right", "passes", "passes"],
        ["turned", "missed", "caught"],
    ]
    assert [cell.span["class"] for cell in first[1:]] == [["aa-noticed"]] * 2
    assert [cell.span["class"] for cell in second[1:]] == [["aa-unnoticed"], ["aa-noticed"]]
