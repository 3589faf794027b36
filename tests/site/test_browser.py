"""Every built page in a real browser, wide and narrow; axe judges a page of each kind.

A page is loaded once, on a desktop, and its window then made as narrow as a phone.
"""

import pytest
from axe_playwright_python.base import AXE_SCRIPT

from book.site.build import SITE
from book.site.contents import address

PAGES = sorted(
    path.relative_to(SITE).as_posix().removesuffix("index.html") for path in SITE.rglob("*.html")
)
KINDS = ["", "package/attention/", "cheat-sheet/", "glossary/", address("04_reshape_trick")]

WIDER = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
UNFOLD = "() => document.querySelectorAll('details').forEach((fold) => { fold.open = true; })"
# Figures without a drawing, and pictures without a text alternative. A figure may hold two
# drawings, for a wide page and for a narrow one: one of them is drawn.
UNDRAWN = """
() => {
  const drawn = (part) => {
    const { width, height } = part.getBoundingClientRect();
    return width > 0 && height > 0;
  };
  const figures = [...document.querySelectorAll("article figure")]
    .filter((figure) => ![...figure.querySelectorAll("svg, img, table, .aa-stage")].some(drawn));
  return figures.map((part) => part.outerHTML.slice(0, 200));
}
"""
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
def test_nothing_is_cut_off_or_fails_on(visit, at):
    page = visit(at)
    found = {"wider than the window": page.evaluate(WIDER)}
    page.evaluate(UNFOLD)
    found |= {"undrawn": page.evaluate(UNDRAWN)}
    if at.startswith("chapters/"):
        found["code cut off"] = page.evaluate(CUT)
    page.set_viewport_size({"width": 360, "height": 740})
    found |= {"wider than a phone": page.evaluate(WIDER), "loses its end": page.evaluate(LOST)}
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
# Axe takes the colour of text, and what is drawn is written in its fill, and on what was drawn
# before it: on the page, with each area between seen through as far as it can be.
FAINT = """
() => {
  const { Color, flattenColors, getContrast } = axe.commons.color;
  const colour = (text, opacity = 1) => {
    const made = new Color();
    made.parseString(text);
    made.alpha *= opacity;
    return made;
  };
  const ink = (drawn) => {
    const { fill, fillOpacity, opacity } = getComputedStyle(drawn);
    return colour(fill, fillOpacity * opacity);
  };
  const covers = (shape, x, y) => {
    const { left, right, top, bottom } = shape.getBoundingClientRect();
    if (x < left || x > right || y < top || y > bottom) return false;
    const here = new DOMPoint(x, y).matrixTransform(shape.getScreenCTM().inverse());
    return getComputedStyle(shape).fill !== "none" && shape.isPointInFill(here);
  };
  const behind = (text) => {
    let page = text;
    while (getComputedStyle(page).backgroundColor === "rgba(0, 0, 0, 0)") page = page.parentElement;
    const { x, y, width, height } = text.getBoundingClientRect();
    return [...text.ownerSVGElement.querySelectorAll(":is(path, rect, circle):not(defs *)")]
      .filter((shape) => shape.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING)
      .filter((shape) => covers(shape, x + width / 2, y + height / 2))
      .reduce(
        (ground, shape) => flattenColors(ink(shape), ground),
        colour(getComputedStyle(page).backgroundColor),
      );
  };
  return [...document.querySelectorAll("article svg text")]
    .filter((text) => text.textContent.trim() && text.checkVisibility({ opacityProperty: true }))
    .map((text) => [getContrast(behind(text), ink(text)), text.textContent])
    .filter(([ratio]) => ratio < 4.5);
}
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("at", KINDS, ids=lambda at: at.rstrip("/") or "landing")
def test_accessible(visit, at, scheme):
    page = visit(at, color_scheme=scheme)
    page.add_style_tag(content=STILL)
    page.evaluate(AXE_SCRIPT)
    page.evaluate(FIRST_OF_KIND)
    everything = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
    rules = everything if scheme == "light" else ["color-contrast"]
    objections = [
        (rule, target, *rest)
        for rule, target, *rest in page.evaluate(RUN, rules)
        if not any(rule == known and at in target for known, at in FROM_MATERIAL)
    ]
    assert objections == []
    assert page.evaluate(FAINT) == []
