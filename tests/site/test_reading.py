"""Reading a chapter: light or dark, folded or not, side by side, on one measure, on paper."""

import re

import pytest
from playwright.sync_api import expect

from book.run import scripts
from book.site.contents import address

CHAPTERS = [script.stem for script in sorted(scripts.CHAPTERS.glob("[0-9][0-9]_*.py"))]
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 360, "height": 760}


@pytest.fixture
def visit(browser, served):
    """Open a page of the site in a window of its own."""
    contexts, problems = [], []

    def visit(path, viewport=DESKTOP, **options):
        contexts.append(browser.new_context(viewport=viewport, **options))
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(f"{served[0]}/{path}")
        return page

    yield visit
    for context in contexts:
        context.close()
    assert problems == []


SCHEME = "document.body.dataset.mdColorScheme"


@pytest.mark.parametrize(("system", "first"), [("light", "default"), ("dark", "slate")])
def test_scheme_is_the_systems_until_one_is_chosen(visit, system, first):
    page = visit(address("05_batches"), color_scheme=system)
    other = {"default": "slate", "slate": "default"}[first]
    toggle = page.locator("label[for^=__palette]:visible")
    assert page.evaluate(SCHEME) == first
    expect(toggle).to_have_attribute("title", "Dark page" if first == "default" else "Light page")
    toggle.click()
    assert page.evaluate(SCHEME) == other
    page.locator(".md-footer__link--next").click()
    page.wait_for_url("**/masks/")
    assert page.evaluate(SCHEME) == other, "remembered"
    toggle.click()
    page.reload()
    assert page.evaluate(SCHEME) == first


def test_a_link_opens_what_is_folded(visit):
    page = visit(address("06_masks"))
    fold = page.locator("details.aa-fold").last
    fold.evaluate("fold => { fold.lastElementChild.id = 'inside'; }")
    assert fold.get_attribute("open") is None
    # Chromium opens a fold by itself where it follows a link; elsewhere the theme does.
    page.evaluate("history.replaceState(null, '', '#inside')")
    page.evaluate("dispatchEvent(new HashChangeEvent('hashchange'))")
    expect(fold).to_have_attribute("open", "")
    expect(page.locator("#inside")).to_be_in_viewport()


def button(page):
    return page.get_by_role("button", name="Side by side")


# Of every row with both: how far its code begins under its notes, and right of their end.
ROWS = """() => [...document.querySelectorAll(".aa-pair:has(> .aa-say + .aa-show)")].map((row) => {
  const [say, show] = [...row.children].map((side) => side.getBoundingClientRect());
  return [Math.round(show.top - say.top), Math.round(show.left - say.right)];
})"""
SIDEWAYS = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


def rows(page):
    """Give for each note how far below its text, and how far right of it, the code begins."""
    found = page.evaluate(ROWS)
    assert len(found) > 20
    return found


def test_button_by_mouse_and_keyboard_and_remembered(visit):
    page = visit(address("05_batches"))
    assert all(down > 0 for down, _ in rows(page)), "off until it is asked for"
    expect(button(page)).to_have_attribute("aria-pressed", "false")
    button(page).click()
    expect(button(page)).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".md-sidebar:visible")).to_have_count(0)
    page.locator(".md-footer__link--next").click()
    page.wait_for_url("**/masks/")
    expect(button(page)).to_have_attribute("aria-pressed", "true")
    found = rows(page)
    assert all(down == 0 and right > 0 for down, right in found), found
    button(page).press("Enter")
    expect(button(page)).to_have_attribute("aria-pressed", "false")
    page.reload()
    expect(button(page)).to_have_attribute("aria-pressed", "false")
    assert all(down > 0 for down, _ in rows(page))
    assert page.context.cookies() == []


def test_remembered_before_anything_is_drawn(visit):
    page = visit(address("05_batches"))
    button(page).click()
    page.route("**/*.js", lambda route: route.abort() if "early" not in route.request.url else None)
    page.route("**/reading-early.js", lambda route: route.continue_())
    page.reload()
    assert all(down == 0 for down, _ in rows(page)), "the later scripts are not needed"


def test_absent_on_narrow_screens_and_other_pages(visit):
    page = visit(address("05_batches"))
    button(page).click()
    page.set_viewport_size(PHONE)
    expect(button(page)).to_be_hidden()
    assert all(down > 0 for down, _ in rows(page))
    page.set_viewport_size(DESKTOP)
    expect(button(page)).to_be_visible()
    page.goto(page.url.replace(address("05_batches"), "notation/"))
    expect(page.locator(".md-sidebar--primary")).to_be_visible()
    expect(button(page)).to_have_count(0)


def test_absent_without_scripts(visit):
    page = visit(address("05_batches"), java_script_enabled=False)
    expect(button(page)).to_be_hidden()


# Characters to a line, counted in every paragraph of prose that has three lines or more.
MEASURE = """() => {
  const counts = [];
  for (const p of document.querySelectorAll(".aa-say > p:not(:has(.katex, code))")) {
    const range = document.createRange(), lines = new Map();
    const walker = document.createTreeWalker(p, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) for (let i = 0; i < walker.currentNode.length; i++) {
      range.setStart(walker.currentNode, i);
      range.setEnd(walker.currentNode, i + 1);
      const line = Math.round(range.getBoundingClientRect().bottom / 8);
      lines.set(line, (lines.get(line) ?? 0) + 1);
    }
    if (lines.size > 2) counts.push(...[...lines.values()].slice(0, -1));
  }
  return counts.sort((a, b) => a - b);
}"""
# Code, its own or printed by a cell, that is cut off and would have to be scrolled.
CUT = """() => [...document.querySelectorAll("article :is(pre, pre > code)")]
  .filter((code) => code.checkVisibility() && code.scrollWidth > code.clientWidth)
  .filter((code) => !code.closest(".aa-note"))
  .map((code) => code.innerText.slice(0, 60))"""


def test_lines_are_of_a_length_that_reads_well(visit, served):
    page = visit(address(CHAPTERS[0]))
    counts = page.evaluate(MEASURE)
    for name in CHAPTERS[1:3]:
        page.goto(f"{served[0]}/{address(name)}")
        counts += page.evaluate(MEASURE)
    assert len(counts) > 100
    assert 65 <= sorted(counts)[len(counts) // 2] <= 75, "the measure that most lines have"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_paper(visit, scheme):
    page = visit(address("06_masks"), color_scheme=scheme)
    button(page).click()
    page.emulate_media(media="print")
    for kept in ("h1", ".aa-say > .aa-fold > p", ".aa-tag-solution pre"):
        expect(page.locator(kept).first).to_be_visible()
    assert all(down > 0 for down, _ in rows(page)), "one below the other"
    gone = "header, footer, .md-sidebar, button, .headerlink, .aa-run, .aa-out + .aa-fold"
    assert page.locator(gone).count() > 10
    expect(page.locator(gone).locator("visible=true")).to_have_count(0)
    ink, sheet = page.evaluate(
        "() => [getComputedStyle(document.querySelector('.aa-say p')).color,"
        " getComputedStyle(document.body).backgroundColor]"
    )
    assert ink.startswith("rgba(0, 0, 0"), ink
    assert sheet == "rgb(255, 255, 255)"
    letter = page.locator(".aa-say .dim-n").first
    expect(letter).to_have_css("color", "rgb(0, 103, 165)")
    keyword = page.locator("article .k").first
    expect(keyword).to_have_css("color", "rgb(63, 110, 198)")  # as on a light page
    link = page.locator("article a", has_text="The next chapter").first
    assert link.get_attribute("data-to") == "chapter 7, Multi-head attention"
    assert "(" in link.evaluate("a => getComputedStyle(a, '::after').content")
    page.set_viewport_size({"width": 673, "height": 1000})
    assert page.evaluate(CUT) == []
    assert page.evaluate(SIDEWAYS) <= 0
    (size,) = set(
        re.findall(rb"/MediaBox\s*\[0 0 ([\d.]+) ([\d.]+)\]", page.pdf(prefer_css_page_size=True))
    )
    assert [round(float(side) / 72 * 25.4) for side in size] == [210, 297], "A4"


def test_paper_says_where_links_to_elsewhere_lead(visit):
    page = visit("references/")
    page.emulate_media(media="print")
    said = page.locator("article a[href^=http]").evaluate_all(
        "links => links.map((a) => [a.href, getComputedStyle(a, '::after').content])"
    )
    assert len(said) > 10
    assert all("attr(href)" in text or href in text for href, text in said), said


# How far things on the page have moved by themselves, since it was opened.
SHIFT = """() => new Promise((done) => {
  let sum = 0;
  const seen = new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) sum += entry.value;
  });
  seen.observe({ type: "layout-shift", buffered: true });
  setTimeout(() => done(sum), 200);
})"""


def test_a_title_in_the_navigation_takes_one_line(visit):
    page = visit(address("05_batches"))
    titles = page.locator(".md-sidebar--primary .md-nav__list a").all()
    heights = [title.bounding_box()["height"] for title in titles if title.is_visible()]
    assert len(heights) > len(CHAPTERS)
    assert max(heights) == min(heights)


@pytest.mark.parametrize("path", ["", "package/doctor/", "chapters/training/", "cheat-sheet/"])
def test_nothing_moves_where_scrollbars_take_room(with_scrollbars, served, path):
    page = with_scrollbars.new_page(viewport={"width": 1350, "height": 940})
    page.goto(f"{served[0]}/{path}")
    height = re.compile("height")  # given by the theme's script
    expect(page.locator(".md-sidebar__scrollwrap").first).to_have_attribute("style", height)
    assert page.evaluate(SHIFT) < 0.002  # two pixels
    page.close()
