"""Formulas: TeX becomes HTML and MathML while the site is built, by the vendored KaTeX.

Pages carry no math script, and a formula that KaTeX does not understand fails the strict build.
"""

import functools
import html
import json
import logging
import re
from pathlib import Path
from typing import Any

import quickjs
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url
from nbconvert.filters.markdown_mistune import IPythonRenderer

log = logging.getLogger("mkdocs.formulas")
KATEX = Path(__file__).parents[2] / "assets" / "katex" / "katex.min.js"
FORMULA = re.compile(
    r'([(\[]?)<(span|div) class="arithmatex( aa-display)?">(.*?)</\2>([.,;:?!)\]]*)', re.DOTALL
)
# What in a typeset formula needs which of KaTeX' fonts, other than the main one.
FONTS = {
    "mathnormal": "Math-Italic",
    "size1": "Size1-Regular",
    "small-op": "Size1-Regular",
    "size2": "Size2-Regular",
    "large-op": "Size2-Regular",
    "size3": "Size3-Regular",
    "size4": "Size4-Regular",
}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Let notebooks mark formulas the way Markdown pages do, so that dollars stay prices."""
    renderer: Any = IPythonRenderer
    renderer.inline_math = lambda self, body: _mark(body, "")
    renderer.block_math = lambda self, body: _mark(body, " aa-display")
    return config


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Typeset every marked formula."""

    def typeset(found: re.Match[str]) -> str:
        before, tag, mark, tex, after = found.groups()
        display = tag == "div" or bool(mark)
        try:
            formula = katex(html.unescape(tex).strip(), display)
        except quickjs.JSException as error:
            cause = str(error).splitlines()[0]
            log.warning(f"{page.file.src_uri}: {cause}\n    {tex.strip()}")
            return found[0]
        whole = before + formula + after
        if display or not before + after:
            return whole
        return f'<span class="aa-whole">{whole}</span>'  # no line ends between the two

    return _ask_for_fonts(FORMULA.sub(typeset, output), page)


def _ask_for_fonts(output: str, page: Page) -> str:
    """Ask for a page's fonts of formulas at once.

    They are optional: a font that comes too late for the first picture is not used before the next
    page, so that no page waits for one and no line moves when it comes.
    """
    if 'class="katex"' not in output:
        return output
    classes = {
        name for found in re.findall(r'<span class="([^"]*)"', output) for name in found.split()
    }
    fonts = ["Main-Regular", *sorted({FONTS[name] for name in classes & FONTS.keys()})]
    links = "".join(
        f'<link rel="preload" as="font" type="font/woff2" crossorigin href="{address}">'
        for font in fonts
        for address in [get_relative_url(f"assets/katex/fonts/KaTeX_{font}.woff2", page.url)]
    )
    return output.replace('<link rel="stylesheet"', f'{links}<link rel="stylesheet"', 1)


def _mark(tex: str, extra: str) -> str:
    return f'<span class="arithmatex{extra}">{html.escape(tex, quote=False)}</span>'


@functools.cache
def katex(tex: str, display: bool) -> str:
    """Give the HTML of one formula; raises ``quickjs.JSException`` on bad TeX."""
    options = json.dumps({"displayMode": display, "throwOnError": True, "strict": "error"})
    call = f"katex.renderToString({json.dumps(tex)}, {options})"
    return str(_javascript().eval(f"{call}.normalize()"))  # as one flat string, not as a rope


@functools.cache
def _javascript() -> quickjs.Context:
    context = quickjs.Context()
    context.eval(KATEX.read_text(encoding="utf-8"))
    return context
