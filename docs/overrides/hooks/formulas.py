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
from nbconvert.filters.markdown_mistune import IPythonRenderer

log = logging.getLogger("mkdocs.formulas")
KATEX = Path(__file__).parents[2] / "assets" / "katex" / "katex.min.js"
FORMULA = re.compile(r'<(span|div) class="arithmatex( aa-display)?">(.*?)</\1>', re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Let notebooks mark formulas the way Markdown pages do, so that dollars stay prices."""
    renderer: Any = IPythonRenderer
    renderer.inline_math = lambda self, body: _mark(body, "")
    renderer.block_math = lambda self, body: _mark(body, " aa-display")
    return config


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Typeset every marked formula."""

    def typeset(found: re.Match[str]) -> str:
        display = found[1] == "div" or bool(found[2])
        try:
            return katex(html.unescape(found[3]).strip(), display)
        except quickjs.JSException as error:
            cause = str(error).splitlines()[0]
            log.warning(f"{page.file.src_uri}: {cause}\n    {found[3].strip()}")
            return found[0]

    return FORMULA.sub(typeset, output)


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
