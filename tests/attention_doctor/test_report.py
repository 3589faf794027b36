"""A report counts what it found."""

from pathlib import Path

import pytest

from attention_doctor import Finding, Report, Where
from attention_doctor.codes import explain
from attention_doctor.command import main
from attention_doctor.rules.catalogue import BY_CODE

WRONG = Finding(
    "no-scale", "wrong", "the scores are <too> large", "by 40%", "a cause " * 30, "Write `a < b`."
)
CONVENTION = Finding("nan-row", "convention", "a row is NaN")


def test_ok_means_nothing_wrong():
    assert Report("a", (CONVENTION,)).ok
    assert not Report("a", (CONVENTION, WRONG)).ok
    assert Report("a", (WRONG, CONVENTION)).codes == ("no-scale", "nan-row")


def test_what_could_not_be_asked_is_neither_right_nor_wrong():
    report = Report("a", (Finding("fails", "unasked", "it raises"),))
    assert not report.ok
    assert not report.asked
    assert report.verdict == "✗ a: it could not be asked"


def test_verdict_counts():
    results = {"answers": "fine", "blocked": "wrong"}
    report = Report("Mine", (WRONG, CONVENTION), ("dropout: none",), results)
    assert report.verdict == "✗ Mine: 1 wrong, 1 by convention, 2 tests, 1 not examined"
    assert Report("Mine", (), (), results).verdict == "✓ Mine: nothing wrong, 2 tests"
    assert "asked    2 tests, all fine but blocked (wrong)" in str(Report("Mine", (), (), results))
    assert "asked    1 tests, all fine\n" in f"{Report('Mine', (), (), {'answers': 'fine'})}\n"
    left = ("future, window: it hides none, see: there", "dropout: none")
    assert Report("Mine", (), left, results).verdict.endswith("2 tests, 3 not examined")


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


def test_every_code_is_explained_with_its_neighbours():
    for code, rule in BY_CODE.items():
        text = explain(code)
        assert text.startswith(f"{code} (")
        assert rule.cause[1:20] in " ".join(text.split())
        assert {*rule.neighbours, *rule.excuses, *rule.instead_of} <= {*BY_CODE}


def test_a_code_is_explained_on_the_command_line(capsys):
    assert main(["--explain", "merge-without-transpose"]) == 0
    said = capsys.readouterr().out
    assert "\n- heads.reshape(b, n, h * d)\n+ heads.transpose(1, 2)" in said
    with pytest.raises(SystemExit):
        main(["--explain", "no-such-code"])
