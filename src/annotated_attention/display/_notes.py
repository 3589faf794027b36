"""Turn a docstring or a comment into HTML: sections are split here, mistune writes the rest."""

import re
import textwrap

import mistune
from mistune.plugins.def_list import def_list

from annotated_attention.display.colours import SHAPE_IN_PROSE, colour_shapes

# A title at the margin, and the indented lines below it.
_SECTION = re.compile(r"^(\w+):\n((?: .*\n|\n)+)", re.MULTILINE)
_SECTIONS = re.compile(r"((?:^\w+:\n(?: .*\n|\n)+)+)", re.MULTILINE)
_ENTRY = re.compile(r"^(\*{0,2}\w+): ", re.MULTILINE)
_WITH_ENTRIES = {"Args", "Attributes", "Raises"}


def _python(md: mistune.Markdown) -> None:
    """Let mistune take shapes for code, and ``*args`` and ``__init__`` as they are."""

    def shape(_: mistune.InlineParser, found: re.Match[str], state: mistune.InlineState) -> int:
        state.append_token({"type": "codespan", "raw": " ".join(found[0].split())})
        return found.end()

    md.inline.register("shape", SHAPE_IN_PROSE, shape, before="codespan")
    md.inline.rules.remove("emphasis")


_write = mistune.create_markdown(plugins=[def_list, _python])


def render(note: str, sections: bool = True) -> str:
    """Write a note as HTML; sections of a docstring that follow each other are folded as one.

    Args:
        note: a docstring in Google's style, or a comment without its signs.
        sections: False leaves out what the docstring lists; its examples are left out anyway.
    """
    html = ""
    for part in _SECTIONS.split(note + "\n"):
        found = _SECTION.findall(part)
        shown = [x for x in found if sections and x[0] != "Examples"]
        if shown:
            titles = ", ".join(title for title, _ in shown)
            folded = "".join(_section(*section) for section in shown)
            html += f"<details><summary>{titles}</summary>{folded}</details>"
        elif not found:
            html += str(_write(part))
    return colour_shapes(html)


def _section(title: str, body: str) -> str:
    body = textwrap.dedent(body)
    if title in _WITH_ENTRIES:
        body = _ENTRY.sub(r"\n`\1`\n: ", body)
    return f"<p><b>{title}:</b></p>{_write(body)}"
