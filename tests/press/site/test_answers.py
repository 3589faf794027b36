"""Fields of exercises: what the browser says of an answer is what the notebook says."""

import json
import math
import re

import pytest
import quickjs
from bs4 import BeautifulSoup

from annotated_book import exercises
from annotated_book.exercises._exercise import Either, Refused
from press.run import scripts
from press.site import answers

SCRIPT = (scripts.ROOT / "docs" / "assets" / "answers.js").read_text(encoding="utf-8")
ASKED = {  # every exercise that asks for numbers, with the fields of its stub
    call["name"]: (getattr(getattr(exercises, call["chapter"]), call["name"]), rows)
    for path in scripts.CHAPTERS.glob("*.py")
    for stub, check in re.findall(
        r'# %% tags=\["exercise"\]\n(.*?)\n\n# %%\n(.*?)\n\n# %%', path.read_text(), re.DOTALL
    )
    if (call := answers.CHECK.search(check))
    if sum(map(len, rows := answers.fields(stub)))
}
NUMBERS = {name: case for name, case in ASKED.items() if answers.export(case[0])}


def in_the_browser(function, *arguments):
    context = quickjs.Context()
    context.eval(SCRIPT[: SCRIPT.index("for (const form")])
    given = ", ".join(map(json.dumps, arguments))
    return json.loads(context.eval(f"JSON.stringify({function}({given}))"))


@pytest.mark.parametrize("name", NUMBERS)
def test_each_row_gets_the_sentence_that_the_notebook_gives(name):
    exercise, rows = NUMBERS[name]
    labels = [label for row in rows for label in row]
    table = answers.export(exercise)
    assert len(labels) == len(table["right"])
    assert "check_sweet" in NUMBERS, "the exercises are found"
    assert in_the_browser("verdict", table["right"], labels, table) == f"✓ {table['praise']}"
    for sentence, row in exercise.wrong.items():
        for answer in row if isinstance(row, Either) else [row]:
            numbers = answers._flat(answer)
            if numbers is None or len(numbers) != len(labels):
                continue
            with pytest.raises(Refused) as said:
                exercise._judge(answer)
            heard = in_the_browser("verdict", numbers, labels, table)
            assert heard == "✗ " + re.sub(r"\*(\w+)\*", r"\1", str(said.value)), answer
            assert sentence in str(said.value)


def test_an_answer_that_no_row_holds_is_told_which_numbers_are_off():
    table = {"right": [4, 0.3], "close": 0.02, "praise": "right.", "wrong": []}
    for numbers, said in (
        ([4, 0.5], "✗ not right yet: share."),
        ([4.05, 0.3], "✓ right."),
        ([None, 0.3], "not yet, 1 of 2 is no number."),
    ):
        assert in_the_browser("verdict", numbers, ["score", "share"], table) == said


def test_numbers_are_read_as_people_write_them():
    for text, number in (("4", 4), (" −0,5 ", -0.5), ("1/8", 0.125), ("2*3", 6)):
        assert in_the_browser("read", text) == number
    for text in ("", "1/", "x", "1/0", "2*", "1 2", "log(8", "log()", "e8)", "log(-1)"):
        assert in_the_browser("((x) => read(x) === null)", text)


def test_formulas_are_read_as_people_write_them():
    eight = math.log(8)
    for text, number in (
        ("log(8)", eight),
        ("ln 8", eight),
        ("math.log(2) + math.log(4)", eight),
        ("(Log 2 + log 4) / 4", eight / 4),
        ("np.log(2*4)/4", eight / 4),
        ("-log(1/8)", eight),
        ("1 - 2 - 3", -4),
        ("1/2/4", 0.125),
        ("-2**2 + 2^3^0", -2),
        ("sqrt(4) * exp(0) - e**0", 1),
        ("1e-3", 0.001),
    ):
        assert in_the_browser("read", text) == pytest.approx(number), text


def test_a_field_is_called_what_its_comment_says():
    stub = "my = [\n None,  # the score\n None, None,  # cat, milk\n None, None,  # a pair\n]"
    assert answers.fields(stub) == [["the score"], ["cat", "milk"], ["a pair, 1", "a pair, 2"]]
    assert answers.fields("my = (None, None)") == [["1", "2"]]


@pytest.mark.parametrize("name", NUMBERS)
def test_each_field_has_a_name_of_its_own_that_its_author_wrote(name):
    labels = [label for row in NUMBERS[name][1] for label in row]
    assert len({*labels}) == len(labels)
    numbered = [label for label in labels if re.search(r"(^|, )\d*$", label)]
    assert not numbered, f"no comment beside the None says what {numbered} are"


def test_fields_stand_for_the_cells_of_an_answer_and_its_check_and_a_function_has_none():
    page = '<p class="aa-tag-exercise" data-cell="a"></p><p class="aa-cell" data-cell="b"></p>'
    for call, forms in (("check_sweet(my_numbers)", 1), ("check_attention(MyAttention)", 0)):
        soup = BeautifulSoup(page, "html.parser")
        answers.ask(
            soup, {"a": "my = (None, None, None, None)", "b": f"exercises.short_path.{call}"}
        )
        assert len(soup.select("form[data-cell=a] [data-cell=b]")) == forms
        assert len(soup.select("noscript:has(+ form) > pre")) == forms, "without scripts, the stub"
        assert len(soup.select("p[data-cell]")) == 2 * (not forms)
