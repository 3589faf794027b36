"""Turn a docstring or a comment into HTML: sections are split here, mistune writes the rest."""

import re
import textwrap
from collections.abc import Container

import mistune
from mistune.plugins.def_list import def_list
from mistune.plugins.table import table

from annotated_attention.display._html import code_block, highlight_lines
from annotated_attention.display.colours import SHAPE_IN_PROSE, colour_shapes

# A title at the margin, and the indented lines below it.
_SECTION = re.compile(r"^(\w+):\n((?: .*\n|\n)+)", re.MULTILINE)
_SECTIONS = re.compile(r"((?:^\w+:\n(?: .*\n|\n)+)+)", re.MULTILINE)
_ENTRY = re.compile(r"^(\*{0,2}\w+): ", re.MULTILINE)
_EXAMPLE = re.compile(r"^>>> .*\n(?:.+\n)*", re.MULTILINE)
_WITH_ENTRIES = {"Args", "Attributes", "Raises"}


class _Renderer(mistune.HTMLRenderer):
    def block_code(self, code: str, info: str | None = None) -> str:
        """Highlight it."""
        return code_block("\n".join(highlight_lines(code.rstrip())))


def _python(md: mistune.Markdown) -> None:
    """Let mistune take shapes for code, and ``*args`` and ``__init__`` as they are."""

    def shape(_: mistune.InlineParser, found: re.Match[str], state: mistune.InlineState) -> int:
        state.append_token({"type": "codespan", "raw": " ".join(found[0].split())})
        return found.end()

    md.inline.register("shape", SHAPE_IN_PROSE, shape, before="codespan")
    md.inline.rules.remove("emphasis")


_write = mistune.Markdown(_Renderer(), plugins=[def_list, table, _python])


def render(note: str, left_out: Container[str] | None = ()) -> str:
    """Write a note as HTML; sections of a docstring that follow each other are folded as one.

    Args:
        note: a docstring in Google's style, or a comment without its signs.
        left_out: titles of sections that are not shown; None shows none at all.
    """
    html = ""
    for part in _SECTIONS.split(note + "\n"):
        found = _SECTION.findall(part)
        sections = [x for x in found if left_out is not None and x[0] not in left_out]
        titles = ", ".join(title for title, _ in sections)
        folded = "".join(_section(*section) for section in sections)
        if folded:
            html += f"<details><summary>{titles}</summary>{folded}</details>"
        elif not found:
            html += _prose(part)
    return colour_shapes(html)


def _section(title: str, body: str) -> str:
    body = textwrap.dedent(body)
    if title in _WITH_ENTRIES:
        body = _ENTRY.sub(r"\n`\1`\n: ", body)
    return f"<p><b>{title}:</b></p>{_prose(body)}"


def _prose(text: str) -> str:
    return str(_write(_EXAMPLE.sub(_as_block, text)))


def _as_block(example: re.Match[str]) -> str:
    """What an example prints is no code: it becomes a comment."""
    lines = example[0].splitlines()
    code = (x[4:] if x.startswith((">>>", "...")) else f"# {x}" for x in lines)
    return "\n".join(["```", *code, "```\n"])
