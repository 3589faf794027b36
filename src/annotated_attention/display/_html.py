"""The parts of every output: text, HTML, and the stylesheet for the HTML."""

import functools
import re
from dataclasses import dataclass
from importlib import resources
from typing import ClassVar

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from annotated_attention.display.colours import colour_shapes

# Names, punctuation and space look as code does without them, and are most of a page's elements.
_PLAIN = re.compile(r'<span class="(?:n|p|w)">([^<]*)</span>')


@dataclass(frozen=True, repr=False)
class Output:
    """An output of a notebook cell: HTML where it can be rendered, plain text everywhere else."""

    text: str
    html: str
    stylesheets: ClassVar[tuple[str, ...]] = ("display.css",)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": self.text, "text/html": with_style(self.html, *self.stylesheets)}

    def __repr__(self) -> str:
        return self.text


def with_style(html: str, *stylesheets: str) -> str:
    """Put stylesheets before ``html``, display.css if none is named: a notebook cannot link them.

    The element's class, ``aa-style``, is how the site, which links the file, finds it and drops it.
    """
    css = "\n".join(map(stylesheet, stylesheets or ("display.css",)))
    return f'<style class="aa-style">{css}</style>{html}'


@functools.cache
def stylesheet(name: str) -> str:
    """Read one of this room's stylesheets."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def highlight_lines(code: str) -> list[str]:
    """Highlight Python line by line: as many lines as ``code`` has, no element open across two."""
    html = highlight(code, PythonLexer(stripnl=False), HtmlFormatter(nowrap=True))
    html = _PLAIN.sub(r"\1", html)
    return colour_shapes(html.removesuffix("\n")).split("\n")


def code_block(content: str, kind: str = "") -> str:
    """Wrap highlighted code in the elements that Material and display.css dress."""
    classes = f"highlight aa-code {kind}".strip()
    return f'<div class="{classes}"><pre><code>{content}</code></pre></div>'
