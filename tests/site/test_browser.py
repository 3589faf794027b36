"""Every built page in a real browser: in both schemes, on a desktop and on a phone.

A page is loaded under one scheme, asked everything, and switched to the other: the desktop begins
in the light, the phone in the dark. A phone loads a page of each kind and those with a live figure;
of the others the window is made as narrow. There every page is asked whether something is too wide
or loses its end. What is the same on every page of a kind is asked of one.
"""

import json
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from book.run import scripts
from book.site.build import SITE
from book.site.contents import address

CHAPTERS = {address(x.stem): x for x in sorted(scripts.CHAPTERS.glob("[0-9][0-9]_*.py"))}
PAGES = sorted(
    path.relative_to(SITE).as_posix().removesuffix("index.html") for path in SITE.rglob("*.html")
)


def built(at):
    return SITE.joinpath(at, "" if at.endswith(".html") else "index.html").read_text("utf-8")


DEVICES = {
    "desktop": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "phone": {
        "viewport": {"width": 360, "height": 740},
        "color_scheme": "dark",
        "has_touch": True,
        "is_mobile": True,
    },
}
# A page of each kind: these are asked everything twice.
TWICE = [
    "",
    "package/attention/",
    "cheat-sheet/",
    "glossary/",
    address("04_reshape_trick"),
]
ON_A_PHONE = [*TWICE, *(at for at in PAGES if 'class="aa-live"' in built(at))]
LOADS = [
    (at, device) for at in PAGES for device in DEVICES if device != "phone" or at in ON_A_PHONE
]

# Tells what moves on the page although nobody touched it. On a busy machine a table or a font
# arrives late and moves what follows by a pixel, about 0.001 of the window: less than two is none.
WATCH = """
window.shifts = [];
new PerformanceObserver((list) => {
  for (const { value, startTime, sources } of list.getEntries()) {
    const what = sources.map(({ node }) => node?.outerHTML?.slice(0, 80));
    if (value >= 0.002) window.shifts.push([startTime, value, ...what]);
  }
}).observe({ type: "layout-shift", buffered: true });
"""

# Once in a great while a frame never comes; without a limit the run would wait for ever.
FRAME = (
    "const frame = () => new Promise((go) => (requestAnimationFrame(go), setTimeout(go, 2000)));"
)
# Comes by everything on the page, as a reader does.
SCROLL = f"""
async () => {{
  {FRAME}
  for (let top = 0; top < document.body.scrollHeight; top += innerHeight) {{
    scrollTo(0, top);
    await frame();
  }}
  scrollTo(0, 0);
}}
"""
# Starts the live figures that are not folded: from the top of the page to the last, so that each
# comes into view before it has started. Gives what moved meanwhile.
START = f"""
async () => {{
  {FRAME}
  scrollTo(0, 0);
  await frame();
  await frame();
  const now = performance.now();
  const figures = [...document.querySelectorAll(".aa-live > figure")]
    .filter((figure) => !figure.closest("details:not([open])"));
  for (const figure of [...figures.slice(-1), ...figures]) {{
    figure.scrollIntoView({{ block: "start" }});
    for (let i = 0; i < 1000 && !figure.querySelector(".aa-stage"); i++) await frame();
    await frame();
  }}
  await new Promise((go) => setTimeout(go));
  return shifts.filter(([since]) => since > now);
}}
"""

STANDARD = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
CONTRAST = ["color-contrast"]
NARROW = {"width": 375, "height": 740}  # 360 beside a scrollbar
# Whether a link differs from the text around it is the style sheets' doing, and takes axe a second
# on a long page, so one page of each kind is asked.
BY_STYLE = ["link-in-text-block"]
# Measuring contrast takes axe most of its time, and nearly all of it goes into thousands of words
# of code in the same few colours. What is written in the same colour on the same layers of
# background is of one kind (large letters are kinds of their own, since less contrast is enough for
# them), and each kind is measured once, on the first page that has it.
KINDS = """
window.kinds = (known) => {
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
  const PLAIN = "rgba(0, 0, 0, 0),none,1,none", seen = new Set(known);
  for (const element of document.querySelectorAll("[data-kind]")) delete element.dataset.kind;
  for (const element of document.body.querySelectorAll("*")) {
    const written = [...element.childNodes].some((part) => part.nodeType === 3 && part.data.trim());
    if (!written && !element.matches("input, textarea")) continue;
    const { color, fontSize, fontWeight } = getComputedStyle(element);
    const size = parseFloat(fontSize) < 18 ? "small" : [fontSize, fontWeight];
    const kind = [element.matches("input"), color, size, layers(element)].join();
    if (seen.has(kind)) continue;
    if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
    element.dataset.kind = seen.add(kind).size;
  }
  return [...seen];
};
axe.configure({ rules: [{ id: "color-contrast", selector: "[data-kind]" }] });
"""
# What else axe goes by, of every element that is seen, outside formulas: what it is, how it is
# named, whether what it refers to is there, where it stands if that matters, whether it must be
# scrolled, and for a heading the one before. Where none of it is new, axe has nothing to add.
MAKINGS = """(known) => {
  const seen = new Set(known), found = (id) => Boolean(document.getElementById(id));
  const told = ({ name, value }) => {
    if (/^aria-(labelledby|describedby|controls|owns|activedescendant)$|^for$/.test(name))
      return `${name} ${value.split(" ").map(found)}`;
    if (/^(role|type|scope|tabindex|lang|aria-(?!label|value).*)$/.test(name))
      return `${name} ${value}`;
    if (/^(aria-.*|alt|title|href|name|on.*|autocomplete|summary)$/.test(name))
      return `${name} ${Boolean(value.trim())}`;
    return /spacing/.test(value) ? `${name} spaced` : "";
  };
  const named = "a, button, summary, label, legend, caption, option, th, h1, h2, h3, h4, h5, h6";
  const placed = "li, dt, dd, tr, :is(ul, ol, dl, table, body, [role]:not(svg)) > *";
  let last = "";
  for (const element of document.body.querySelectorAll(":not(.katex *)")) {
    if (!element.checkVisibility({ visibilityProperty: true })) continue;
    const { localName, parentElement: parent, scrollWidth, clientWidth } = element;
    const of = [localName, ...[...element.attributes].map(told).filter(Boolean).sort()];
    if (element.matches(named)) of.push(`named ${Boolean(element.textContent.trim())}`);
    if (element.labels) of.push(`labelled ${element.labels.length}`);
    if (element.matches(placed)) of.push(`in ${parent.localName} ${parent.getAttribute("role")}`);
    if (/^h[1-6]$/.test(localName)) of.push(`after ${last}`), (last = localName);
    if (clientWidth && scrollWidth > clientWidth && getComputedStyle(element).overflowX === "auto")
      of.push("scrolls");
    seen.add(of.join());
  }
  return [...seen];
}"""
AXE = Axe(f"{AXE_SCRIPT};{KINDS}")
MEASURED: list[str] = []  # kinds
JUDGED: list[str] = []  # makings
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
# How far the end of the page moves when the theme's script wraps the tables, once it has arrived.
UNWRAPPED = """() => {
  const height = () => document.querySelector("article").getBoundingClientRect().height;
  const wrapped = height();
  const tables = [...document.querySelectorAll(".md-typeset__scrollwrap table")]
    .map((table) => [table, table.parentElement, table.closest(".md-typeset__scrollwrap")]);
  for (const [table, , wrap] of tables) wrap.replaceWith(table);
  const moved = Math.round(wrapped - height());
  for (const [table, inner, wrap] of tables) (table.replaceWith(wrap), inner.append(table));
  return moved;
}"""
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
UNFOLD = """() => {
  scrollTo(0, 0);
  for (const fold of document.querySelectorAll("details")) fold.open = true;
}"""
BESIDE = "() => (document.documentElement.classList.add('aa-beside'), scrollTo(0, 0))"
# Rows of notes and code, side by side, in which the one is not right of the other.
ASKEW = """() => [...document.querySelectorAll(".aa-pair:has(> .aa-say + .aa-show)")]
  .filter((row) => {
    const [say, show] = [...row.children].map((side) => side.getBoundingClientRect());
    return Math.round(show.top - say.top) !== 0 || Math.round(show.left - say.right) <= 0;
  })
  .map((row) => row.innerText.slice(0, 60))"""

SLEEPING = ".aa-live:not([data-live-on], details:not([open]) *)"
# Which of the figure's controls has the focus: null outside of it.
FOCUSED = """
() => {
  const stage = document.activeElement.closest(".aa-stage");
  const all = stage?.querySelectorAll("input, select, textarea, button, [tabindex='0']") ?? [];
  const reachable = (control) =>
    control.checkVisibility({ visibilityProperty: true }) && control.tabIndex >= 0;
  const controls = [...all].filter((control) => reachable(control) && !control.disabled);
  return stage && [controls.indexOf(document.activeElement), controls.length];
}
"""
# Leaves what holds the live figures, or all: the rest need not be laid out at each width again.
ALONE = """(alone) => {
  document.documentElement.style.overflowY = alone ? "scroll" : "";
  for (const part of document.querySelectorAll("article > :not(.aa-live, :has(.aa-live))"))
    part.style.display = alone ? "none" : "";
}"""
# Moves every control to its ends, on a phone also all sliders together to their largest, and gives
# how high the figure's stage and its picture would be, and how far it reaches beyond its frame.
HEIGHTS = """(figure) => {
  const [stage, picture] = figure.children;
  const free = () => { stage.style.minHeight = 0; return stage.getBoundingClientRect().height; };
  const heights = [free()];
  const set = (control, key, value) => {
    control[key] = value;
    control.dispatchEvent(new Event('input', { bubbles: true }));
    control.dispatchEvent(new Event('change', { bubbles: true }));
    heights.push(free());
  };
  for (const control of stage.querySelectorAll('input[type=range]'))
    for (const end of [control.max, control.min]) set(control, 'value', end);
  for (const control of stage.querySelectorAll('select'))
    for (const { value } of control.options) set(control, 'value', value);
  const sliders = [...stage.querySelectorAll('input[type=range]')];
  const before = sliders.map(({ value }) => value);
  if (innerWidth <= 500) for (const slider of sliders) set(slider, 'value', slider.max);
  sliders.forEach((slider, i) => set(slider, 'value', before[i]));
  stage.style.minHeight = '';
  const room = parseFloat(getComputedStyle(stage).minHeight);
  picture.style.setProperty('display', 'block', 'important');
  const still = picture.getBoundingClientRect().height;
  picture.style.display = '';
  return [room, Math.ceil(Math.max(still, ...heights)), figure.scrollWidth - figure.clientWidth];
}"""
# The height of each control; that of a box to tick with its label, which can be pressed as well.
CONTROLS = """(figure) => [...figure.querySelectorAll('.aa-stage :is(input, select, button)')]
  .map((control) => control.closest('label:not(.aa-slider)') ?? control)
  .map((control) => control.getBoundingClientRect().height)"""
SLIDERS = "(figure) => [...figure.querySelectorAll('input[type=range]')].map((s) => s.clientHeight)"
WITH_BUTTON = ".aa-cell :not(.no-copy) > pre:has(> code)"
# What a copy button gives is the text of its code. One button of each chapter is pressed, the last;
# of the others the text is read.
TEXTS = f"""() => [...document.querySelectorAll("{WITH_BUTTON} > code")].map((code) => [
  code.closest(".aa-out") ? null : code.closest(".aa-cell").dataset.cell, code.innerText.trim(),
])"""
PRESS = f"""
async () => {{
  const wait = (time) => new Promise((go) => setTimeout(go, time));
  const press = async () => {{
    const code = [...document.querySelectorAll("{WITH_BUTTON}")].at(-1);
    code.scrollIntoView();  // a button comes when its code is seen
    await navigator.clipboard.writeText(" ");
    for (let text = ""; ; await wait(50)) {{
      code.querySelector("[data-clipboard-target]")?.click();
      text = (await navigator.clipboard.readText()).trim();
      if (text) return text;
    }}
  }};
  return Promise.race([press(), wait(60_000)]);
}}
"""


def copies(page, script):
    """Say which cells of a chapter would be copied as something else than their code."""
    copied = page.evaluate(TEXTS)
    for cell, text in copied:
        if cell is None:  # what a cell shows of the package's source
            compile(text, "copied", "exec")
    shown = {
        cell["id"]: "".join(cell["source"]).strip()
        for cell in json.loads(scripts.pair_text(script))["cells"]
        if cell["cell_type"] == "code" and "hide-input" not in cell["metadata"].get("tags", [])
    }
    found = {cell: text for cell, text in copied if cell}
    other = [x for x in {*found, *shown} if found.get(x) != shown.get(x)]
    return other if page.evaluate(PRESS) == copied[-1][1] else ["the button", *other]


def objections(page, rules, without=()):
    """Let axe judge the page as it is now; give what it objects to, a line each.

    Contrast is measured where there is a kind that is new, the rest judged where a making is.
    """
    if rules != CONTRAST:
        makings = page.evaluate(MAKINGS, JUDGED)
        rules = rules if makings != JUDGED else CONTRAST
        JUDGED[:] = makings
    kinds = page.evaluate("kinds", MEASURED)
    if kinds == MEASURED:
        without = [*without, *CONTRAST]
    if set(rules) <= set(without):
        return []
    MEASURED[:] = kinds
    options = {
        "runOnly": rules,
        "resultTypes": ["violations"],
        "rules": {rule: {"enabled": False} for rule in without},
    }
    found = page.evaluate("options => axe.run(options).then((found) => found.violations)", options)
    return [
        f"{rule['id']}: {node['html'][:200]}: {[check['message'] for check in node['any']]}"
        for rule in found
        for node in rule["nodes"]
        if not any(rule["id"] == known and at in node["target"][0] for known, at in FROM_MATERIAL)
    ]


def judge(page, at):
    """Let what is written and drawn be judged, under both schemes."""
    # Colours that are still on their way from one scheme to the other would be judged half-way.
    page.add_style_tag(content=STILL)
    page.evaluate(AXE.axe_script)
    found = {"faint": page.evaluate(FAINT)}
    found["axe objects"] = objections(page, STANDARD, () if at in TWICE else BY_STYLE)
    page.evaluate(SWITCH)
    found["axe objects"] += objections(page, CONTRAST)
    found["faint"] += page.evaluate(FAINT)
    return found


def answers(page, frame):
    """Say whether a live figure does not let the focus through, or does not answer to keys."""
    first = frame.locator(".aa-stage :is(input, select, button)").first
    status = frame.get_by_role("status").first
    said = status.text_content()
    first.focus()
    reached, count = [], 0
    while (at := page.evaluate(FOCUSED)) and len(reached) <= at[1]:
        reached, count = [*reached, at[0]], at[1]
        page.keyboard.press("Tab")
    if reached != list(range(count)):
        return f"of {count} controls Tab reached {reached}"
    # A button that is pressed already has nothing to change.
    active = ":is(input, select, button):not([aria-pressed=true])"
    acting = frame.locator(f".aa-stage {active}").first
    for key in ("ArrowRight", "ArrowLeft", "Space"):
        acting.press(key)
        if status.text_content() != said:
            return None
    return f"says {said} whatever is pressed"


def figures_at(page, device):
    """Give a line for each live figure that cannot be used, or has too little room, or too much."""
    frames, wrong = page.locator(".aa-live").all(), []
    figures = {frame.locator("figure").get_attribute("id"): frame for frame in frames}
    size = page.viewport_size
    for name, frame in figures.items():
        if device == "desktop" and (reason := answers(page, frame)):
            wrong.append(f"{name} {reason}")
        if min(frame.evaluate(CONTROLS)) < 24:
            wrong.append(f"{name} has controls too small for a mouse")
        if device == "phone" and min(frame.evaluate(SLIDERS), default=44) < 44:
            wrong.append(f"{name} has sliders too small for a finger")
    page.evaluate(ALONE, True)
    for width in (1280, 800, 600, 390) if device == "desktop" else (800, 360):
        page.set_viewport_size({"width": width, "height": 800})
        for name, frame in figures.items():
            kept, needed, beyond = frame.locator("figure").evaluate(HEIGHTS)
            wasted = width in (1280, 390) and kept > 1.5 * needed
            if needed > kept + 1 or wasted:
                wrong.append(f"{name} at {width} needs {needed} px, has {kept}")
            if width == 1280 and beyond > 0:
                wrong.append(f"{name} at {width} is {beyond} px too wide")
    page.set_viewport_size(size)
    page.evaluate(ALONE, False)
    return wrong


def look(page, at, device, host):
    """Load a page, and give what is wrong with it, by what was asked."""
    problems, hosts = [], set()
    listeners = {
        "request": lambda request: hosts.add(urlsplit(request.url).netloc),
        "pageerror": lambda error: problems.append(str(error)),
        "console": lambda m: problems.append(m.text) if m.type == "error" else None,
    }
    for event, listener in listeners.items():
        page.on(event, listener)
    page.goto(f"{host}/{at}")
    live = page.locator(".aa-live").count() > 0
    whole = device == "desktop" or at in TWICE
    found = {"moves by itself": page.evaluate(START)}
    if at in TWICE:
        page.evaluate(SCROLL)
    if whole:
        found["undrawn"] = page.evaluate(UNDRAWN)
    found["wider than the page"] = page.evaluate(WIDER)
    if whole:
        found |= judge(page, at)
        found["moves by itself"] = page.evaluate("shifts")
    page.evaluate(UNFOLD)
    if live:
        found["moves by itself, unfolded"] = page.evaluate(START)
        expect(page.locator(SLEEPING)).to_have_count(0)
        found["a live figure"] = figures_at(page, device)
    if device == "desktop" and at in CHAPTERS:
        found["cut off"] = page.evaluate(CUT)
        found["copied otherwise"] = copies(page, CHAPTERS[at])
        page.evaluate(BESIDE)
        found["not side by side"] = page.evaluate(ASKEW)
        found["wider than the page, side by side"] = page.evaluate(WIDER)
    found["moved by wrapping tables"] = page.evaluate(UNWRAPPED)
    size = page.viewport_size
    if at not in ON_A_PHONE:
        found["has a live figure, and is on no phone"] = live
        page.set_viewport_size(NARROW)
        found["moved by wrapping tables, narrow"] = page.evaluate(UNWRAPPED)
    if page.viewport_size != DEVICES["desktop"]["viewport"]:
        found["loses its end"] = page.evaluate(LOST)
        found["wider than the page, unfolded"] = page.evaluate(WIDER)
    page.goto("about:blank")  # what is left need not be laid out once more
    page.set_viewport_size(size)
    for event, listener in listeners.items():
        page.remove_listener(event, listener)
    found |= {"a script fails": problems, "other hosts": hosts - {urlsplit(host).netloc}}
    return {asked: answer for asked, answer in found.items() if answer}


@pytest.fixture(scope="module")
def windows(browser, with_scrollbars):
    """Give the window of each device; one for all pages, because to open it takes a second."""
    windows = {}
    for device, options in DEVICES.items():
        opener = with_scrollbars if device == "desktop" else browser
        context = opener.new_context(permissions=["clipboard-read", "clipboard-write"], **options)
        context.add_init_script(WATCH)
        windows[device] = context.new_page()
    yield windows
    for window in windows.values():
        window.context.close()


def test_the_pages_that_are_asked_everything_twice_are_there():
    assert set(TWICE) <= set(PAGES)
    assert set(CHAPTERS) <= set(PAGES)
    assert len(set(ON_A_PHONE)) > len(TWICE)


@pytest.mark.parametrize(("at", "device"), LOADS, ids=lambda part: part.rstrip("/") or "landing")
def test_nothing_is_wrong_with(windows, served, device, at):
    assert look(windows[device], at, device, served[0]) == {}
