"""Turn a docstring or a comment into prose: paragraphs, lists of arguments, tables, examples."""

import re
import textwrap
from html import escape

from annotated_attention.display._html import code_block, highlight_lines
from annotated_attention.display.colours import as_code, colour_shapes

_SECTION = re.compile(r"(?m)^(\w+):\n(?=[ \n])")
_ENTRY = re.compile(r"(?m)^(\*{0,2}\w+): ")
_CODE = re.compile(r"``(.+?)``|`([^`]+)`", re.DOTALL)
_WITH_ENTRIES = {"Args", "Attributes", "Raises"}


def render(note: str) -> str:
    """Write a note as HTML; the sections of a docstring are folded.

    Args:
        note: a docstring in Google's style, or a comment without its signs.
    """
    opening, *sections = _SECTION.split(note)
    html, titles, folded = _prose(opening), list[str](), ""
    for title, rest in zip(sections[::2], sections[1::2], strict=True):
        # A section ends at the first line that is not indented, and a fold after its last section.
        body, _, after = re.sub(r"(?m)^(?=\S)", "\0", rest, count=1).partition("\0")
        titles.append(title)
        folded += _section(title, textwrap.dedent(body))
        if after.strip() or rest is sections[-1]:
            html += f"<details><summary>{', '.join(titles)}</summary>{folded}</details>"
            html, titles, folded = html + _prose(after), [], ""
    return colour_shapes(html)


def _section(title: str, body: str) -> str:
    if title == "Examples":
        return f"<p><b>{title}:</b></p>{_prose(body)}"
    if title not in _WITH_ENTRIES:
        return _prose(f"{title}: {body}").replace(f"{title}:", f"<b>{title}:</b>", 1)
    _, *entries = _ENTRY.split(body)
    pairs = zip(entries[::2], entries[1::2], strict=True)
    items = (f"<dt><code>{name}</code></dt><dd>{_inline(text)}</dd>" for name, text in pairs)
    return f"<p><b>{title}:</b></p><dl>{''.join(items)}</dl>"


def _prose(text: str) -> str:
    """Write paragraphs, tables, and code."""
    return "".join(map(_paragraph, re.split(r"\n\s*\n", textwrap.dedent(text).strip("\n"))))


def _paragraph(text: str) -> str:
    lines = text.split("\n")
    if not text.strip():
        return ""
    if text.startswith("|"):
        head, _, *rows = (line.strip("| ").split("|") for line in lines)
        body = "".join(map(_row, rows))
        return f"<table><thead>{_row(head, 'th')}</thead><tbody>{body}</tbody></table>"
    if text.startswith(">>>"):
        # What an example prints is no code: it becomes a comment.
        code = [x[4:] if x.startswith((">>>", "...")) else f"# {x}" for x in lines]
        return code_block("\n".join(highlight_lines("\n".join(code))))
    if text.startswith(" "):
        return code_block("\n".join(highlight_lines(textwrap.dedent(text))))
    return f"<p>{_inline(text)}</p>"


def _row(cells: list[str], kind: str = "td") -> str:
    return f"<tr>{''.join(f'<{kind}>{_inline(cell)}</{kind}>' for cell in cells)}</tr>"


def _inline(text: str) -> str:
    """Write one run of words; shapes are code, too."""
    words = " ".join(text.split())
    parts = _CODE.split(words)
    html = ""
    for i in range(0, len(parts), 3):
        html += as_code(escape(parts[i], quote=False))
        for code in filter(None, parts[i + 1 : i + 3]):
            html += f"<code>{escape(code, quote=False)}</code>"
    return html
