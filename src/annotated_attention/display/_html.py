"""What every output of this room is made of: text, HTML, and the stylesheet that dresses both."""

import functools
from dataclasses import dataclass
from importlib import resources

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from annotated_attention.display.shapes import colour_shapes


@dataclass(frozen=True, repr=False)
class Output:
    """Something a notebook shows: HTML where it can be rendered, plain text everywhere."""

    text: str
    html: str

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": self.text, "text/html": with_style(self.html)}

    def __repr__(self) -> str:
        return self.text


def with_style(html: str) -> str:
    """Put the stylesheet before ``html``: a notebook has no page that could link it.

    The element's class, ``aa-style``, is how the site, which links the file, finds it and drops it.
    """
    return f'<style class="aa-style">{_stylesheet()}</style>{html}'


@functools.cache
def _stylesheet() -> str:
    return resources.files(__package__).joinpath("display.css").read_text(encoding="utf-8")


def highlight_lines(code: str) -> list[str]:
    """Highlight Python line by line: as many lines as ``code`` has, no element open across two."""
    html = highlight(code, PythonLexer(stripnl=False), HtmlFormatter(nowrap=True))
    return colour_shapes(html.removesuffix("\n")).split("\n")


def code_block(content: str, kind: str = "") -> str:
    """Wrap highlighted code in the elements that Material and display.css dress."""
    classes = f"highlight aa-code {kind}".strip()
    return f'<div class="{classes}"><pre><code>{content}</code></pre></div>'
