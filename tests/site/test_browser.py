"""Every built page in a real browser as narrow as a phone; axe judges a page of each kind, wide."""

import pytest
from axe_playwright_python.base import AXE_SCRIPT

from press.site.build import SITE
from press.site.contents import address

PAGES = sorted(
    path.relative_to(SITE).as_posix().removesuffix("index.html") for path in SITE.rglob("*.html")
)
KINDS = ["", "package/masks/", "cheat-sheet/", "glossary/", address("04_reshape_trick")]

WIDER = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
UNFOLD = "document.querySelectorAll('details').forEach((fold) => { fold.open = true; })"
# Figures without a drawing, and pictures without a text alternative. A figure may hold two
# drawings, for a wide page and for a narrow one: one of them is drawn.
UNDRAWN = """() => [...document.querySelectorAll("article figure")]
  .filter((figure) => ![...figure.querySelectorAll("svg, img, table, .aa-stage")]
    .some((part) => part.getBoundingClientRect().height > 0))
  .map((part) => part.outerHTML.slice(0, 200))"""
# Code, its own or printed by a cell, that is cut off and would have to be scrolled.
CUT = """() => [...document.querySelectorAll("article :is(pre, pre > code)")]
  .filter((code) => code.checkVisibility() && code.scrollWidth > code.clientWidth)
  .filter((code) => !code.closest(".aa-note"))
  .map((code) => code.innerText.slice(0, 60))"""
# What is longer than its place and cannot be scrolled.
LOST = """() => [...document.querySelectorAll("article *")]
  .filter((part) => part.clientWidth > 1 && part.scrollWidth > part.clientWidth + 1)
  .filter((part) => ["hidden", "clip"].includes(getComputedStyle(part).overflowX))
  .filter((part) => !part.closest(".katex, [aria-hidden=true]"))
  .map((part) => part.outerHTML.slice(0, 120))"""


@pytest.mark.parametrize("at", PAGES, ids=lambda at: at.rstrip("/") or "landing")
def test_nothing_is_lost_on_a_phone_or_fails(windows, at):
    window, problems = windows(viewport={"width": 360, "height": 740}, reduced_motion="reduce")
    page = window.pages[0] if window.pages else window.new_page()
    problems.clear()
    page.goto(f"/{at}")
    page.evaluate(UNFOLD)
    looks = {"wider than a phone": WIDER, "loses its end": LOST, "undrawn": UNDRAWN}
    found = {what: page.evaluate(look) for what, look in looks.items()} | {"fails": problems}
    assert not any(found.values()), found


STILL = "*, ::before, ::after { transition: none !important; animation: none !important }"
# Material puts every copy button into a landmark without a name. It is made by Material's script.
FROM_MATERIAL = [("landmark-unique", ".md-code__nav")]
# Measuring contrast takes axe most of its time: of the same element in the same elements, in the
# same colour, the first is measured.
FIRST_OF_KIND = """() => {
  const seen = new Set();
  const named = (part) => part && `${part.localName}.${part.getAttribute("class")}`;
  for (const part of document.querySelectorAll("body *")) {
    const outer = part.parentElement;
    const kind = [part, outer, outer.parentElement, outer.closest("figure, blockquote, section")];
    const name = [...kind.map(named), getComputedStyle(part).color].join();
    if (seen.has(name)) part.dataset.again = "";
    seen.add(name);
  }
  axe.configure({ rules: [{ id: "color-contrast", selector: ":not([data-again])" }] });
}"""
RUN = """(rules) => axe.run(
  { exclude: [".katex"] }, { runOnly: rules, resultTypes: ["violations"] })
  .then(({ violations }) => violations.flatMap(({ id, nodes }) => nodes.map((node) => [id,
    String(node.target), node.html.slice(0, 200), ...node.any.map(({ message }) => message)])))"""


@pytest.mark.parametrize("at", KINDS, ids=lambda at: at.rstrip("/") or "landing")
def test_accessible_and_all_code_in_sight(visit, at):
    page = visit(at)
    page.add_style_tag(content=STILL)
    assert not page.evaluate(WIDER)
    assert page.evaluate(CUT) == []
    page.evaluate(AXE_SCRIPT)
    page.evaluate(FIRST_OF_KIND)
    everything = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
    for scheme, rules in (("default", everything), ("slate", ["color-contrast"])):
        if page.evaluate("document.body.dataset.mdColorScheme") != scheme:
            page.locator("label[for^=__palette]:visible").click()
        assert page.evaluate("document.body.dataset.mdColorScheme") == scheme
        objections = [
            (rule, target, *rest)
            for rule, target, *rest in page.evaluate(RUN, rules)
            if not any(rule == known and at in target for known, at in FROM_MATERIAL)
        ]
        assert objections == [], scheme
