"""A report says everything as text."""

from pathlib import Path

import pytest

from attention_doctor import Finding, Report, Where

WRONG = Finding(
    "no-scale", "wrong", "the scores are <too> large", "by 40%", "a cause " * 30, "Write `a < b`."
)
CONVENTION = Finding("nan-row", "convention", "a row is NaN")


def test_ok_means_nothing_wrong():
    assert Report("a").ok
    assert Report("a", (CONVENTION,)).ok
    assert not Report("a", (CONVENTION, WRONG)).ok
    assert Report("a", (WRONG, CONVENTION)).codes == ("no-scale", "nan-row")


def test_what_could_not_be_asked_is_neither_right_nor_wrong():
    report = Report("a", (Finding("fails", "unasked", "it raises"),))
    assert not report.ok
    assert not report.asked
    assert report.verdict == "✗ a: it could not be asked"
    assert Report("a", (WRONG,)).asked


def test_verdict_counts():
    results = {"answers": "fine", "blocked": "wrong"}
    report = Report("Mine", (WRONG, CONVENTION), ("dropout: none",), results)
    assert report.verdict == "✗ Mine: 1 wrong, 1 by convention, 2 tests, 1 not examined"
    assert Report("Mine", (), (), results).verdict == "✓ Mine: nothing wrong, 2 tests"
    left = ("future, window: it hides none, see: there", "dropout: none")
    assert Report("Mine", (), left, results).verdict.endswith("2 tests, 3 not examined")


def test_text_holds_everything_in_narrow_lines():
    text = str(Report("Mine", (WRONG, CONVENTION), ("dropout: none",), {}, "with the right one"))
    assert text == repr(
        Report("Mine", (WRONG, CONVENTION), ("dropout: none",), {}, "with the right one")
    )
    assert text.split("\n")[2:5] == [
        "wrong: no-scale",
        "  symptom  the scores are <too> large",
        "  evidence by 40%",
    ]
    assert "\n  agrees   with the right one\n" in text
    assert text.endswith("\n\nnot examined\n  - dropout: none")
    assert max(map(len, text.split("\n"))) <= 92


LOCATED = Finding(
    "no-scale", "wrong", "too large", where=Where("/a/mine.py", 12, "s = q @ k.mT  # <here>"),
    explains=("future-leaks", "padding-matters"),
)  # fmt: skip


def test_a_finding_shows_its_line_and_what_follows_from_it():
    report = Report("Mine", (LOCATED, CONVENTION), inside="scores times 1 (mine.py:12)")
    assert str(report).split("\n")[2:10] == [
        "wrong: no-scale",
        "  where    mine.py, line 12: `s = q @ k.mT  # <here>`",
        "  symptom  too large",
        "  explains future-leaks, padding-matters",
        "",
        "convention: nan-row",
        "  symptom  a row is NaN",
        "",
    ]
    assert "\n  inside   scores times 1 (mine.py:12)" in str(report)


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        (str(Path.cwd() / "a" / "mine.py"), "a/mine.py"),
        ("/elsewhere/mine.py", "mine.py"),
        ("<string>", "<string>"),
        ("/tmp/ipykernel_17/3401.py", "in a cell"),
        ("<ipython-input-3-1f>", "in a cell"),
    ],
)
def test_a_place_is_short(file, shown):
    assert str(Where(file, 3, "x = 1")) == f"{shown}, line 3: `x = 1`"
    assert str(Where(file, 3)) == f"{shown}, line 3"


def test_what_was_asked_stands_in_one_line():
    results = {"answers": "fine", **{f"test {i}": "wrong" for i in range(8)}}
    report = Report("Mine", (WRONG,), (), results)
    assert "asked    9 tests, all fine but test 0 (wrong), " in str(report)
    assert "asked    2 tests, all fine" in str(Report("Mine", (), (), {"a": "fine", "b": "fine"}))
