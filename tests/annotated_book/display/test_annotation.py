"""Source and its notes: every line of code once, every word of the notes, nothing twice."""

import re

import pytest
from bs4 import BeautifulSoup

from annotated_attention import MultiheadAttention, TransformerDecoderLayer, masks
from annotated_book.display import annotated
from annotated_book.display.annotation import render, split
from annotated_book.display.code import located_source


def page(*functions):
    return BeautifulSoup(annotated(*functions).html, "html.parser")


def words(text):
    return re.findall(r"\w+", text)


LISTED = re.compile(r"^( +)(Args|Returns|Raises|Examples):\n(\1 .*\n|\n)+", re.MULTILINE)


@pytest.mark.parametrize(
    "function",
    [MultiheadAttention.forward, TransformerDecoderLayer.forward, MultiheadAttention, masks],
)
def test_nothing_is_lost_and_nothing_stands_twice(function):
    """The code and the notes, put back together, are the source but for what docstrings list."""
    text, first = located_source(function)
    source = dict(enumerate(text.split("\n"), first))
    soup = page(function)
    lines = [(int(tag["data-line"]), tag.text) for tag in soup.select(".aa-line")]
    assert lines == [(number, source[number]) for number, _ in lines]
    assert lines == sorted(dict(lines).items())
    left_out = [line for number, line in source.items() if number not in dict(lines)]
    notes = " ".join(note.get_text(" ") for note in soup.select(".aa-note"))
    assert words(LISTED.sub("", "\n".join(left_out))) == words(notes)
    module = getattr(function, "__module__", masks.__name__)
    file = module.rpartition(".")[2] + ".py"
    place = f"annotated_attention/{file}, lines {first} to {first + len(source) - 1}"
    assert soup.select_one(".aa-place").text == place


SAMPLE = '''\
@decorator
def f(
    x,
    y,
):
    """First words.

    More.
    """

    # why x
    # is one
    x = 1

    def g():
        """What g does."""
        a = 1

    b = 2
    # why c
    c = 3
    return c'''


def test_blocks_begin_where_they_should():
    rows = SAMPLE.split("\n")
    found = [(notes, [rows[i].strip() for i in lines][:1]) for notes, lines in split(SAMPLE)]
    assert found == [
        (["First words.\n\nMore."], ["@decorator"]),
        (["why x\nis one"], ["x = 1"]),
        (["What g does."], ["def g():"]),
        ([], ["b = 2"]),
        (["why c"], ["c = 3"]),
    ]


NOTE = """\
Do it, (b, n, d) and ``x < y``, of *args* and __init__.

Args:
    *x: (n, m), one.
    last_one: two
        lines.

Returns:
    Nothing: (see there).

- a shape, (b,
  n, d)

Examples:
    Run it:

Source: a book."""


def test_notes_are_prose():
    soup = BeautifulSoup(render(NOTE), "html.parser")
    assert [tag.text for tag in soup.select("p > code")][:2] == ["(b, n, d)", "x < y"]
    assert "of *args* and __init__." in soup.text
    assert not {"one", "lines", "Nothing", "Run"} & {*words(soup.text)}
    assert [tag.text for tag in soup.select("li code")] == ["(b, n, d)"]
    assert len(soup.select("code .dim-n")) == 2
    assert soup.text.rstrip().endswith("Source: a book.")
