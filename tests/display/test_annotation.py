"""Source and its notes: every line of code once, every word of the notes, nothing twice."""

import re
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from annotated_attention import MultiheadAttention, attention, display, heads, masks
from annotated_attention.display import annotated
from annotated_attention.display._notes import render
from annotated_attention.display.annotation import shapes, split
from annotated_attention.display.code import located_source


def page(*objects, **options):
    return BeautifulSoup(annotated(*objects, **{"examples": True} | options).html, "html.parser")


def numbered(soup):
    """Read the code column: the lines under their numbers."""
    lines = [(int(tag["data-line"]), tag.text) for tag in soup.select(".aa-line")]
    assert len(dict(lines)) == len(lines), "a line stands twice"
    return dict(lines)


def words(text):
    return re.findall(r"\w+", text)


@pytest.mark.parametrize(
    "obj", [MultiheadAttention, MultiheadAttention.forward, heads.split_heads, attention, Path]
)
def test_nothing_is_lost_and_nothing_stands_twice(obj):
    """The code column and the notes, put back together, are the source."""
    text, first = located_source(obj)
    source = dict(enumerate(text.split("\n"), first))
    soup = page(obj)
    code = numbered(soup)
    assert list(code) == sorted(code)
    assert all(source[number] == line for number, line in code.items())
    for extra in soup.select(".aa-shapes, summary"):
        extra.decompose()
    left_out = [line for number, line in source.items() if number not in code]
    notes = " ".join(re.sub("¶", "", note.get_text(" ")) for note in soup.select(".aa-note"))
    assert words("\n".join(left_out)) == words(notes)
    ids = [block["id"] for block in soup.select(".aa-block")]
    assert len(set(ids)) == len(ids)
    assert [link["href"] for link in soup.select("a.aa-link")] == [f"#{id}" for id in ids]


def test_line_numbers_are_those_of_the_file():
    soup = page(MultiheadAttention)
    file = Path(masks.__file__).with_name("multihead.py").read_text().split("\n")
    code = numbered(soup)
    assert all(file[number - 1] == line for number, line in code.items())
    place = soup.select_one(".aa-place").text
    assert place == f"annotated_attention/multihead.py, lines {min(code)} to {max(code)}"
    assert soup.select_one("#code-MultiheadAttention-forward")
    assert page(display).select_one(".aa-place").text.startswith("annotated_attention/display/__i")


SAMPLE = '''\
# about A
@property
class A(
    # inside brackets
    list,

    metaclass=type,
):
    """First words.

    More.
    """

    # why x
    # is one
    x = 1
    y = """
    # no comment

    at all"""

    def f(self):
        """What f does."""
        a = 1

        b = 2
        # why c
        c = 3
    z = 4


def g(): "on one line"
'''


def test_blocks_begin_where_they_should():
    rows = SAMPLE.rstrip("\n").split("\n")
    found = [
        (block.name, block.notes, [rows[i].strip() for i in block.lines][:1])
        for block in split(SAMPLE.rstrip("\n"), "", "module")
    ]
    assert found == [
        ("A", ["about A", "First words.\n\nMore."], ["@property"]),
        ("A-2", ["why x\nis one"], ["x = 1"]),
        ("A.f", ["What f does."], ["def f(self):"]),
        ("A.f-2", [], ["b = 2"]),
        ("A.f-3", ["why c"], ["c = 3"]),
        ("A-3", [], ["z = 4"]),
        ("g", [], ['def g(): "on one line"']),
    ]


def test_sections_and_examples_can_be_left_out():
    titles = [
        [tag.text for tag in page(heads.merge_heads, **options).select("summary")]
        for options in ({}, {"examples": False}, {"sections": False})
    ]
    assert titles == [["Args, Returns, Raises, Examples"], ["Args, Returns, Raises"], []]


NOTE = """\
Do it, (b, n, d) and ``x < y``, of *args* and __init__.

    x = 1

Args:
    *x: (n, m), one.
    last_one: two
        lines.

Returns:
    Nothing: (see there).

| a | ``b`` |
|---|---|
| 1 | 2 & 3 |

- a shape, (b,
  n, d)

Examples:
    Run it:

    >>> f(1)
    2

Source: a book."""


def test_notes_are_prose():
    soup = BeautifulSoup(render(NOTE), "html.parser")
    assert [tag.text for tag in soup.select("p > code")][:2] == ["(b, n, d)", "x < y"]
    assert "of *args* and __init__." in soup.text
    assert [tag.text for tag in soup.select("dt")] == ["*x", "last_one"]
    entries = [" ".join(tag.text.split()) for tag in soup.select("dd")]
    assert entries == ["(n, m), one.", "two lines."]
    assert [tag.text for tag in soup.select("summary")] == ["Args, Returns", "Examples"]
    assert "Nothing: (see there)." in soup.text
    assert [tag.text.strip() for tag in soup.select("th, td")] == ["a", "b", "1", "2 & 3"]
    assert [tag.text for tag in soup.select("li code")] == ["(b, n, d)"]
    assert [tag.text for tag in soup.select("pre")] == ["x = 1", "f(1)\n# 2"]
    assert len(soup.select("code .dim-n")) == 3
    assert soup.text.rstrip().endswith("Source: a book.")


def test_shapes_stand_first():
    """They are those of the comments behind the lines, which the build checks."""
    rows = [
        "q = f(x)  # (b, n, e) -> (b, h, n, d)",
        "k = q.mT  # (b, h, d, n)",
        "v = k  # no shape",
    ]
    assert shapes(rows) == ["(b, h, n, d)", "(b, h, d, n)"]
    assert shapes(["def f(x):", *rows]) == ["(b, h, d, n)"]
    assert shapes(["x = f(1, 2)", "z = 1  # (b, n)", "z = 1  # (b, n)"]) == ["(b, n)"]
    notes = page(MultiheadAttention.forward).select(".aa-note:has(.aa-shapes)")
    assert notes
    assert all(note.select(":scope > .aa-shapes + p") for note in notes)


def test_outside_of_a_page_it_is_the_source():
    shown = annotated(heads.split_heads, heads.merge_heads)
    assert shown.text.startswith("def split_heads(")
    assert "\n\n\ndef merge_heads(" in shown.text
    assert ".aa-note" in shown._repr_mimebundle_()["text/html"].partition("</style>")[0]
    with pytest.raises(TypeError, match="obj must be a class, a function or a module"):
        annotated(3)
