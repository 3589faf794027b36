"""The parts of every output: text, HTML, and the stylesheet for the HTML."""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from annotated_book.display.colours import colour_shapes

# Names, punctuation and space look as code does without them, and are most of a page's elements.
_PLAIN = re.compile(r'<span class="(?:n|p|w)">([^<]*)</span>')


@dataclass(frozen=True, repr=False)
class Output:
    """An output of a notebook cell: HTML where it can be rendered, plain text everywhere else.

    In a notebook, which cannot link them, it carries its styles, and a live figure its script. The
    classes ``aa-style`` and ``aa-script`` are how the site, which links both, drops them.
    """

    text: str
    html: str
    script: str = ""

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        html = f'<style class="aa-style">{stylesheet()}</style>{self.html}'
        if self.script:
            html += f'<script type="module" class="aa-script">{self.script}</script>'
        return {"text/plain": self.text, "text/html": html}

    def __repr__(self) -> str:
        return self.text


@functools.cache
def stylesheet() -> str:
    """Give every style of this room, those that others build on first."""
    sheets = [file for file in resources.files(__package__).iterdir() if file.name.endswith(".css")]
    sheets.sort(key=lambda file: (file.name != "display.css", file.name))
    return "\n".join(file.read_text(encoding="utf-8") for file in sheets)


def highlighted(code: str, kind: str = "") -> str:
    """Give the HTML of Python source."""
    return code_block("\n".join(highlight_lines(code)), kind)


def highlight_lines(code: str) -> list[str]:
    """Highlight Python line by line: as many lines as ``code`` has, no element open across two."""
    html = highlight(code, PythonLexer(stripnl=False), HtmlFormatter(nowrap=True))
    html = _PLAIN.sub(r"\1", html)
    return colour_shapes(html.removesuffix("\n")).split("\n")


def code_block(content: str, kind: str) -> str:
    """Wrap highlighted code in the elements that Material and display.css dress."""
    classes = f"highlight aa-code {kind}".strip()
    return f'<div class="{classes}"><pre><code>{content}</code></pre></div>'


def table(
    rows: Sequence[Sequence[str]], kind: str = "", ids: Sequence[str] = (), label: str = ""
) -> str:
    """Write rows of HTML as a table; the first row and the first column are headings.

    Args:
        rows: cells; the first of all may be empty.
        kind: the table's class.
        ids: one per row after the first, to which links can point.
        label: the table's name.
    """
    corner, *names = rows[0]
    top = f'<th scope="col">{corner}</th>' if corner else "<td></td>"
    top += "".join(f'<th scope="col">{name}</th>' for name in names)
    body = ""
    for i, (head, *cells) in enumerate(rows[1:]):
        own = f' id="{ids[i]}"' if ids else ""
        inside = "".join(f"<td>{cell}</td>" for cell in cells)
        body += f'<tr{own}><th scope="row">{head}</th>{inside}</tr>'
    opening = f' class="{kind}"' * bool(kind) + f' aria-label="{label}"' * bool(label)
    return f"<table{opening}><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def scrolled(content: str, label: str) -> str:
    """Let wide content scroll by itself, by keys as well; ``label`` says what it is."""
    return f'<div class="aa-scroll" tabindex="0" role="region" aria-label="{label}">{content}</div>'


def figure(name: str, content: str, text: str, caption: str = "") -> Output:
    """Put content into a figure of its own anchor, ``#fig-<name>``; ``text`` says what it shows."""
    under = f"<figcaption>{caption}</figcaption>" if caption else ""
    html = f'<figure class="aa-figure" id="fig-{name}">{content}{under}</figure>'
    return Output(f"Figure: {text}", html)


def told(still: str, text: str) -> str:
    """Put a sentence under a still that a live figure replaces, so that both go together."""
    return f"<div>{still}<p>{text}</p></div>"
