"""Source and its notes: every line of code once, every word of the notes, nothing twice."""

import re
import textwrap
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from bs4 import BeautifulSoup, Tag

from annotated_attention import (
    MultiheadAttention,
    attention,
    chapters,
    display,
    heads,
    masks,
    scaled_dot_product_attention,
)
from annotated_attention.display import annotated
from annotated_attention.display._notes import render
from annotated_attention.display.annotation import Block, _write, shapes, split
from annotated_attention.display.code import located_source

SHOWN = [
    MultiheadAttention, MultiheadAttention.forward, scaled_dot_product_attention, heads.split_heads,
    attention, masks, chapters, Path, textwrap,
]  # fmt: skip


def page(*objects: object, methods: bool = True) -> Tag:
    return BeautifulSoup(annotated(*objects, methods=methods, examples=True).html, "html.parser")


def numbered(soup: Tag) -> dict[int, str]:
    """Read the code column: the lines under their numbers."""
    lines = [(int(str(tag["data-line"])), tag.text) for tag in soup.select(".aa-line")]
    assert len(dict(lines)) == len(lines), "a line stands twice"
    return dict(lines)


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


@pytest.mark.parametrize("obj", SHOWN, ids=lambda obj: obj.__name__)
def test_nothing_is_lost_and_nothing_stands_twice(obj: Any) -> None:
    """The code column and the notes, put back together, are the source."""
    text, first = located_source(obj)
    source = dict(enumerate(text.split("\n"), first))
    soup = page(obj)
    code = numbered(soup)
    assert all(source[number] == line for number, line in code.items())
    for extra in soup.select(".aa-shapes, summary"):
        extra.decompose()
    left_out = [line for number, line in source.items() if number not in code]
    assert words("\n".join(left_out)) == words(
        " ".join(re.sub("¶", "", note.get_text(" ")) for note in soup.select(".aa-note"))
    )
    assert "\n".join(code.values()).count('"""') % 2 == 0
    assert list(code) == sorted(code)


def test_line_numbers_are_those_of_the_file() -> None:
    file = Path(masks.__file__).with_name("multihead.py").read_text().split("\n")
    code = numbered(page(MultiheadAttention))
    assert len(code) > 100
    assert all(file[number - 1] == line for number, line in code.items())
    place = page(MultiheadAttention).select_one(".aa-place")
    assert place is not None
    assert place.text == f"annotated_attention/multihead.py, lines {min(code)} to {max(code)}"


def test_docstrings_are_not_in_the_code_column() -> None:
    code = "\n".join(numbered(page(MultiheadAttention)).values())
    assert '"""' not in code
    assert not re.search(r"^\s*#", code, re.MULTILINE)
    assert "# (b, h, n, d)" in code  # what stands behind code stays there


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


def test_blocks_begin_where_they_should() -> None:
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


def test_every_block_has_an_anchor_of_its_own() -> None:
    soup = page(MultiheadAttention, scaled_dot_product_attention, MultiheadAttention.__init__)
    blocks = soup.select(".aa-block")
    ids = [str(block["id"]) for block in blocks]
    assert {"code-MultiheadAttention", "code-MultiheadAttention-forward"} <= set(ids)
    assert {"code-MultiheadAttention-forward-2", "code-scaled_dot_product_attention"} <= set(ids)
    for block in blocks:
        link = block.select_one("a.aa-link")
        assert link is not None
        assert link["href"] == f"#{block['id']}"
        named = str(link["aria-label"]).replace(".", "-")
        assert named.endswith(str(block["id"]).removeprefix("code-"))
    assert len(set(page(MultiheadAttention).select(".aa-block"))) == len(
        {block["id"] for block in page(MultiheadAttention).select(".aa-block")}
    )


def test_names_of_functions_in_functions_are_plain() -> None:
    def inner() -> int:
        """Say one."""
        return 1

    block = page(inner).select_one(".aa-block")
    assert block is not None
    assert block["id"] == "code-test_names_of_functions_in_functions_are_plain-inner"


def test_examples_are_shown_on_request() -> None:
    """Without them the section is gone, and what stands beside it stays."""
    found = {
        wanted: BeautifulSoup(annotated(heads.merge_heads, examples=wanted).html, "html.parser")
        for wanted in (False, True)
    }
    titles = {wanted: [tag.text for tag in x.select("summary")] for wanted, x in found.items()}
    assert titles == {
        False: ["Args, Returns, Raises"],
        True: ["Args, Returns, Raises, Examples"],
    }
    assert ["tensor([[" in x.text for x in found.values()] == [False, True]
    assert all("Source: Vaswani" in x.text for x in found.values())
    assert "Examples" not in render("Examples:\n    >>> f(1)\n    2\n", {"Examples"})


def test_sections_can_be_left_out() -> None:
    html = annotated(heads.merge_heads, sections=False).html
    assert "<details" not in html
    assert "the inverse of" in html
    assert "Source: Vaswani" in html


def test_notes_are_prose() -> None:
    soup = BeautifulSoup(
        render(
            "Do it, (b, n, d) and ``x < y``.\n\nArgs:\n    *x: (n, m), one.\n    last_one: two\n"
            "        lines.\n\nReturns:\n    Nothing: (see there).\n\n| a | ``b`` |\n|---|---|\n"
            "| 1 | 2 & 3 |\n\nExamples:\n    Run it:\n\n    >>> f(1)\n    2\n\nSource: a book."
        ),
        "html.parser",
    )
    assert [tag.text for tag in soup.select("p > code")] == ["(b, n, d)", "x < y"]
    assert len(soup.select("code .dim-n")) == 2
    assert [tag.text for tag in soup.select("dt")] == ["*x", "last_one"]
    assert [" ".join(tag.text.split()) for tag in soup.select("dd")] == [
        "(n, m), one.",
        "two lines.",
    ]
    titles = ["Args:", "Returns:", "Examples:"]
    assert [tag.text for tag in soup.select("b:not(.dim)")] == titles
    assert [tag.text for tag in soup.select("summary")] == ["Args, Returns", "Examples"]
    assert "Nothing: (see there)." in soup.text
    assert [tag.text.strip() for tag in soup.select("th, td")] == ["a", "b", "1", "2 & 3"]
    assert [tag.text for tag in soup.select("details pre")] == ["f(1)\n# 2"]
    assert soup.text.rstrip().endswith("Source: a book.")


def test_code_in_notes_is_code() -> None:
    soup = BeautifulSoup(
        render(
            "Write ``<b>``:\n\n    x = 1\n\nExamples:\n    >>> for i in y:\n    ...     f(i)\n\n"
            "Attributes:\n    width: in pixels."
        ),
        "html.parser",
    )
    assert [tag.text for tag in soup.select("p > code")] == ["<b>"]
    assert [tag.text for tag in soup.select("pre")] == ["x = 1", "for i in y:\n    f(i)"]
    assert [tag.text for tag in soup.select("dt")] == ["width"]


def test_lists_are_lists_and_signs_of_python_stay() -> None:
    soup = BeautifulSoup(
        render("Of ``*args`` or *args* and __init__:\n\n- a shape, (b,\n  n, d)\n- (see, there)"),
        "html.parser",
    )
    assert soup.select("p")[0].text == "Of *args or *args* and __init__:"
    assert [" ".join(tag.text.split()) for tag in soup.select("li")] == [
        "a shape, (b, n, d)",
        "(see, there)",
    ]
    assert [tag.text for tag in soup.select("li code")] == ["(b, n, d)"]
    assert len(soup.select("li .dim-n")) == 1


def test_where_it_stands_is_said() -> None:
    def of_a_notebook() -> int:
        return 1

    soup = page(masks, display, of_a_notebook)
    groups = [str(tag["aria-label"]) for tag in soup.select('.aa-annotated[role="group"]')]
    assert groups[:2] == [f"annotated_attention.{x}, annotated" for x in ("masks", "display")]
    places = [tag.text.partition(", lines 1 to ")[0] for tag in soup.select(".aa-place")]
    assert places[:2] == ["annotated_attention/masks.py", "annotated_attention/display/__init__.py"]
    of_a_notebook.__module__ = "not a file"
    assert ">this notebook, lines " in annotated(of_a_notebook).html


def test_notes_alone_leave_no_empty_code_and_code_has_no_copy_button() -> None:
    assert "<pre" not in _write(Block("end", ["The end."]), [], [], None)
    code = page(attention).select(".aa-block > .aa-code")
    assert code
    assert all("no-copy" in tag["class"] for tag in code)


def test_shapes_stand_first() -> None:
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
    found = [tag.text for note in notes for tag in note.select(".aa-shapes")]
    assert found == ["(b, h, n, d), (b, ..., m, d)", "(b, ..., d)", "(..., e)"]
    assert all(note.select(":scope > .aa-shapes + p") for note in notes)


def test_methods_can_be_left_out() -> None:
    """What stands outside keeps its lines, and with the methods it is the whole class."""
    outside = numbered(page(MultiheadAttention, methods=False))
    methods = [x for x in vars(MultiheadAttention).values() if callable(x)]
    inside = numbered(page(*methods))
    whole = numbered(page(MultiheadAttention))
    assert sorted([*outside, *inside]) == list(whole)
    assert all(whole[number] == line for number, line in outside.items())
    assert "_qkv_same_embed_dim = False" in "\n".join(outside.values())
    assert not re.search(r"\bdef ", annotated(MultiheadAttention, methods=False).text)


def test_what_has_no_source_is_refused() -> None:
    with pytest.raises(TypeError, match="obj must be a class, a function or a module"):
        annotated(3)
    with pytest.raises((OSError, TypeError)):
        annotated(int)


def test_the_text_alternative_is_the_source() -> None:
    text = annotated(heads.split_heads, heads.merge_heads).text
    assert text.startswith("def split_heads(")
    assert "\n\n\ndef merge_heads(" in text


def test_the_stylesheet_comes_with_this_output_alone() -> None:
    folder = resources.files("annotated_attention.display")
    css = folder.joinpath("annotated.css").read_text()
    assert len(css) < 3000
    assert not re.search(r"@import|url\(|</", css)
    html = annotated(heads.split_heads)._repr_mimebundle_()["text/html"]
    assert css in html
    assert folder.joinpath("display.css").read_text() in html


def test_a_module_of_this_notebook() -> None:
    module = ModuleType("__main__")
    with pytest.raises((OSError, TypeError)):
        annotated(module)
