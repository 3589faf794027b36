"""Formulas: TeX becomes HTML and MathML while the site is built, by the vendored KaTeX.

Pages carry no math script, and a formula that KaTeX does not understand is an error.
"""

import functools
import html
import json
import re
from collections.abc import Callable

import quickjs

from annotated_book.display._html import stylesheet
from press.run import scripts

KATEX = scripts.ROOT / "docs" / "assets" / "katex" / "katex.min.js"
FORMULA = re.compile(
    r'([(\[]?)<(span|div) class="arithmatex( aa-display)?">(.*?)</\2>([.,;:?!)\]]*)', re.DOTALL
)
_LETTER = re.compile(r"--aa-([a-z]): (#[0-9a-f]{6})")  # the colour of a dimension


def mark(tex: str, *, display: bool) -> str:
    """Mark TeX in a chapter as the Markdown pages mark theirs, so that dollars stay prices."""
    kind = " aa-display" if display else ""
    return f'<span class="arithmatex{kind}">{html.escape(tex, quote=False)}</span>'


def typeset(page: str, complain: Callable[[str], None]) -> str:
    """Typeset every marked formula of a page; ``complain`` is told of those that are no TeX."""

    def replace(found: re.Match[str]) -> str:
        before, tag, kind, tex, after = found.groups()
        display = tag == "div" or bool(kind)
        try:
            formula = _to_html(html.unescape(tex).strip(), display)
        except quickjs.JSException as error:
            complain(f"{str(error).splitlines()[0]}\n    {tex.strip()}")
            return found[0]
        whole = before + formula + after
        if display or not before + after:
            return whole
        return f'<span class="aa-whole">{whole}</span>'  # no line ends between the two

    return FORMULA.sub(replace, page)


@functools.cache
def _to_html(tex: str, display: bool) -> str:
    """Give the HTML of one formula; raises ``quickjs.JSException`` on bad TeX."""
    options = json.dumps({"displayMode": display, "throwOnError": True, "strict": "error"})
    call = f"katex.renderToString({json.dumps(tex)}, {options})"
    made = str(_javascript().eval(f"{call}.normalize()"))  # as one flat string, not as a rope
    for letter, colour in _LETTER.findall(stylesheet()):  # so that it changes on a dark page
        made = made.replace(f"color:{colour}", f"color:var(--aa-{letter}, {colour})")
    return made


@functools.cache
def _javascript() -> quickjs.Context:
    context = quickjs.Context()
    context.eval(KATEX.read_text(encoding="utf-8"))
    return context
