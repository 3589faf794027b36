"""Every built page in a real browser as narrow as a phone; axe judges a page of each kind, wide."""

import pytest
from axe_playwright_python.base import AXE_SCRIPT

from press.site.build import SITE
from press.site.chapter_list import address

PAGES = sorted(
    path.relative_to(SITE).as_posix().removesuffix("index.html") for path in SITE.rglob("*.html")
)
KINDS = ["", "package/masks/", "cheat-sheet/", "glossary/", address("04_reshape_trick")]

PHONE = {"width": 360, "height": 740}
WIDER = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
UNFOLD = "document.querySelectorAll('details').forEach((fold) => { fold.open = true; })"
# Figures without a drawing, and pictures without a text alternative. A figure may hold two
# drawings, for a wide page and for a narrow one: one of them is drawn.
UNDRAWN = """() => [...document.querySelectorAll("article figure")]
  .filter((figure) => ![...figure.querySelectorAll(
    "svg, img, table, pre, .aa-stage, .aa-doors, .aa-exchange, .aa-strips, .aa-rooms")]
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

# What is wider than its place, and neither a shade nor a mark says so.
UNSAID = """() => [...document.querySelectorAll("article :is(pre, code, figure, div, section)")]
  .filter((part) => part.checkVisibility() && part.clientWidth > 1)
  .filter((part) => part.scrollWidth > part.clientWidth + 1)
  .filter((part) => ["auto", "scroll"].includes(getComputedStyle(part).overflowX))
  .filter((part) => !getComputedStyle(part).backgroundAttachment.includes("local"))
  .map((part) => part.outerHTML.slice(0, 120))"""
# Text under what stands over the page, such as a button, and text of a drawing under other text.
UNDER = """async () => {
  for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
  const apart = (a, b) => a.right < b.left + 3 || b.right < a.left + 3
    || a.bottom < b.top + 3 || b.bottom < a.top + 3;
  const box = (part) => part.getBoundingClientRect();
  const seen = (part) =>
    part.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  const over = [...document.querySelectorAll("main :is(button, nav, a, label, .aa-ways)")]
    .filter((part) => ["absolute", "fixed", "sticky"].includes(getComputedStyle(part).position))
    .filter((part) => seen(part) && box(part).width > 0)
    .filter((part) => !part.closest("[data-md-component=sidebar]"));
  const found = [];
  if (over.length) {
    const texts = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const { currentNode: text } = texts, holder = text.parentElement;
      if (!text.data.trim() || !seen(holder)) continue;
      const range = document.createRange();
      range.selectNodeContents(text);
      const rects = [...range.getClientRects()];
      found.push(...over
        .filter((part) => !part.contains(holder) && !holder.contains(part))
        .filter((part) => rects.some((rect) => !apart(rect, box(part))))
        .map((part) => [part.className, text.data.trim().slice(0, 60)]));
    }
  }
  for (const drawing of document.querySelectorAll("article svg")) {
    if (!seen(drawing)) continue;
    const words = [...drawing.querySelectorAll("text")]
      .filter((word) => word.textContent.trim() && seen(word))
      .filter((word) => !/rotate\\((?!0|-?360)/.test(word.getAttribute("transform") ?? ""))
      .map((word) => [word.textContent, box(word)]);
    words.forEach(([word, a], i) => found.push(...words.slice(i + 1)
      .filter(([, b]) => !apart(a, b)).map(([other]) => [word, other])));
  }
  return found.slice(0, 8);
}"""
# So high that what is made where it is seen, such as the buttons that copy code, is made.
SIZES = [(390, 9000), (1280, 9000), (1440, 9000)]


@pytest.mark.parametrize("at", PAGES, ids=lambda at: at.rstrip("/") or "landing")
def test_nothing_is_lost_at_any_width_or_fails(windows, at):
    window, problems = windows(viewport=PHONE, reduced_motion="reduce")
    page = window.pages[0] if window.pages else window.new_page()
    problems.clear()
    page.goto(f"/{at}")
    page.evaluate(UNFOLD)
    looks = {"wider than a phone": WIDER, "loses its end": LOST, "undrawn": UNDRAWN}
    found = {what: page.evaluate(look) for what, look in looks.items()} | {"fails": problems}
    for width, height in SIZES:
        page.set_viewport_size({"width": width, "height": height})
        found |= {f"cut off at {width}": page.evaluate(UNSAID)}
        found |= {f"under something at {width}": page.evaluate(UNDER)}
    page.set_viewport_size(PHONE)
    assert {what: at for what, at in found.items() if at} == {}


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
