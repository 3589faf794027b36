"""Every built page in a real browser: in both schemes, on a desktop and on a phone.

A page is loaded once on each device, under one scheme, and then switched to the other: the desktop
begins in the light, the phone in the dark. What depends on neither is looked at once.
"""

import itertools
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from book.site.build import SITE

PAGES = sorted(
    path.relative_to(SITE).as_posix().removesuffix("index.html") for path in SITE.rglob("*.html")
)
DEVICES = {"desktop": (1280, "light"), "phone": (360, "dark")}

# Tells what moves on the page although nobody touched it.
WATCH = """
window.shifts = [];
new PerformanceObserver((list) => {
  for (const { value, sources } of list.getEntries())
    window.shifts.push([value, ...sources.map(({ node }) => node?.outerHTML?.slice(0, 80))]);
}).observe({ type: "layout-shift", buffered: true });
"""

# Comes by everything on the page, as a reader does.
SCROLL = """
async () => {
  // Once in a great while a frame never comes; without it the run would wait for ever.
  const frame = () => new Promise((go) => (requestAnimationFrame(go), setTimeout(go, 2000)));
  for (let top = 0; top < document.body.scrollHeight; top += innerHeight) {
    scrollTo(0, top);
    await frame(), await frame();
  }
  scrollTo(0, 0);
}
"""

STANDARD = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
# Measuring contrast takes axe most of its time, and nearly all of it goes into thousands of words
# of code in the same few colours. What is written in the same colour and size on the same layers of
# background is of one kind, and each kind is measured once on a page.
KINDS = """
window.kinds = () => {
  const under = new WeakMap();
  const layers = (element) => {
    if (!element) return "";
    if (!under.has(element)) {
      const { backgroundColor, backgroundImage, opacity, filter } = getComputedStyle(element);
      const own = [backgroundColor, backgroundImage, opacity, filter].join();
      under.set(element, layers(element.parentElement) + (own === PLAIN ? "" : `/${own}`));
    }
    return under.get(element);
  };
  const PLAIN = "rgba(0, 0, 0, 0),none,1,none", seen = new Set();
  for (const element of document.body.querySelectorAll("*")) {
    delete element.dataset.kind;
    const written = [...element.childNodes].some((part) => part.nodeType === 3 && part.data.trim());
    if (!written && !element.matches("input, textarea")) continue;
    if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    const { color, fontSize, fontWeight } = getComputedStyle(element);
    const kind = [element.matches("input"), color, fontSize, fontWeight, layers(element)].join();
    if (!seen.has(kind)) element.dataset.kind = seen.add(kind).size;
  }
};
axe.configure({ rules: [{ id: "color-contrast", selector: "[data-kind]" }] });
"""
AXE = Axe(f"{AXE_SCRIPT};{KINDS}")
SWITCH = """
() => {
  const { dataset } = document.body;
  dataset.mdColorScheme = dataset.mdColorScheme === "slate" ? "default" : "slate";
}
"""
STILL = "*, ::before, ::after { transition: none !important; animation: none !important }"
# Material puts every copy button into a landmark without a name. It is made by Material's script.
FROM_MATERIAL = [("landmark-unique", ".md-code__nav")]

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
  const found = new Set();
  for (const text of document.querySelectorAll("article svg text")) {
    if (!text.textContent.trim() || !text.checkVisibility({ opacityProperty: true })) continue;
    const ratio = getContrast(behind(text), ink(text));
    if (ratio < 4.5) found.add(`${ratio.toFixed(2)} ${text.textContent.trim()}`);
  }
  return [...found];
}
"""

# A figure may hold two drawings, for a wide page and for a narrow one: one of them is drawn.
UNDRAWN = """
() => {
  const drawn = (part) => {
    const { width, height } = part.getBoundingClientRect();
    return width > 0 && height > 0;
  };
  const unfolded = (part) => !part.closest("details:not([open])");
  const figures = [...document.querySelectorAll("article figure")].filter(unfolded)
    .filter((figure) => ![...figure.querySelectorAll("svg, img, table, .aa-stage")].some(drawn));
  const pictures = [...document.querySelectorAll("article :is(svg, img)")].filter(unfolded)
    .filter((picture) => !picture.closest(".katex, [aria-hidden=true]"))
    .filter((picture) => !(picture.ariaLabel ?? picture.alt)?.trim());
  return [...figures, ...pictures].map((part) => part.outerHTML.slice(0, 200));
}
"""


@dataclass
class Seen:
    """What was seen of one page on one device."""

    hosts: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    overflow: int = 0
    undrawn: list[str] = field(default_factory=list)
    shifts: list = field(default_factory=list)
    objections: list[str] = field(default_factory=list)
    faint: list[str] = field(default_factory=list)


def objections(page, rules):
    """Let axe judge the page as it is now; give what it objects to, a line each."""
    page.evaluate("kinds()")
    found = page.evaluate(
        "(options) => axe.run(options).then(({ violations }) => violations)",
        {"runOnly": rules, "resultTypes": ["violations"]},
    )
    return [
        f"{rule['id']}: {node['html'][:200]}: {[check['message'] for check in node['any']]}"
        for rule in found
        for node in rule["nodes"]
        if not any(rule["id"] == known and at in node["target"][0] for known, at in FROM_MATERIAL)
    ]


def look(page, address):
    """Load a page, come by everything on it, and let it be judged under both schemes."""
    seen = Seen()
    listeners = {
        "request": lambda request: seen.hosts.add(urlsplit(request.url).netloc),
        "pageerror": lambda error: seen.problems.append(str(error)),
        "console": lambda m: seen.problems.append(m.text) if m.type == "error" else None,
    }
    for event, listener in listeners.items():
        page.on(event, listener)
    page.goto(address)
    page.evaluate(SCROLL)
    expect(page.locator(".aa-live:not([data-live-on])")).to_have_count(0)
    seen.shifts = page.evaluate("shifts")
    seen.overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    seen.undrawn = page.evaluate(UNDRAWN)
    # Colours that are still on their way from one scheme to the other would be judged half-way.
    page.add_style_tag(content=STILL)
    page.evaluate(AXE.axe_script)
    seen.objections = objections(page, STANDARD)
    seen.faint = page.evaluate(FAINT)
    page.evaluate(SWITCH)
    seen.objections += objections(page, ["color-contrast"])
    seen.faint += page.evaluate(FAINT)
    for event, listener in listeners.items():
        page.remove_listener(event, listener)
    return seen


@pytest.fixture(scope="module")
def windows(browser):
    """Give the window of each device; one for all pages, because to open it takes a second."""
    windows = {}
    for device, (width, scheme) in DEVICES.items():
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
        )
        context.add_init_script(WATCH)
        windows[device] = context.new_page()
    yield windows
    for window in windows.values():
        window.context.close()


@pytest.fixture(
    scope="module",
    params=itertools.product(DEVICES, PAGES),
    ids=lambda look: f"{look[1].rstrip('/') or 'landing'}-{look[0]}",
)
def seen(request, windows, served):
    """Give what is to be seen of one page on one device."""
    device, page = request.param
    return look(windows[device], f"{served[0]}/{page}")


def test_asks_no_other_host(seen, served):
    assert seen.hosts == {urlsplit(served[0]).netloc}


def test_no_script_fails(seen):
    assert seen.problems == []


def test_nothing_is_wider_than_the_page(seen):
    assert seen.overflow == 0


def test_figures_are_drawn(seen):
    assert seen.undrawn == []


def test_nothing_moves_by_itself(seen):
    assert seen.shifts == []


def test_axe_finds_nothing(seen):
    assert seen.objections == []


def test_text_in_figures_can_be_read(seen):
    assert seen.faint == []
