"""A report says the same in a terminal and in a notebook."""

from bs4 import BeautifulSoup

from annotated_attention.doctor import Finding, Report

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
    assert text.endswith("not examined\n  - dropout: none")
    assert max(map(len, text.split("\n"))) <= 92


def test_html_holds_everything_escaped():
    report = Report("Mine", (WRONG, CONVENTION), ("dropout: none",), {}, "with the right one")
    page = BeautifulSoup(report._repr_html_(), "html.parser")
    assert page.strong.text == report.verdict
    assert [term["class"] for term in page.find_all("dt")] == [["aa-wrong"], ["aa-convention"]]
    assert page.dd.text == "symptom: the scores are <too> large"
    assert page.find_all("dd")[3].code.text == "a < b"
    assert [item.text for item in page.find_all("li")] == ["dropout: none"]
    assert "with the right one" in page.text
    assert not page.find_all(["style", "script"])
