"""Live figures in a real browser: complete without scripts, usable by mouse and by keyboard.

A built page is given two figures, one in view and one far below, whatever the chapters draw.
"""

import re
from urllib.parse import urlsplit

import pytest
from bs4 import BeautifulSoup
from playwright.sync_api import expect

from annotated_attention import display
from annotated_attention.display import _live
from book.site.build import SITE

STEPS, LAST = [0, 20, 50], "step 50 · loss 0.1"
DATA = {
    "steps": STEPS,
    "maps": [[[50, 50, 0], [50, 0, 50]], [[20, 80, 0], [10, 10, 80]], [[0, 100, 0], [3, 1, 96]]],
    "queries": ["<a", "b'\""],
    "keys": ["x", "y", "z"],
    "readings": {"loss": ["2.3", "0.9", "0.1"]},
}


def made(name):
    drawing, _ = display.panels(300, 200)
    static = display.finish(drawing, name=name, alt="Still.", caption="The caption.")
    return display.live(static, "attention_over_training", DATA)


def figure(name):
    return made(name).html


def with_figures(page):
    """Give a built page the two figures."""
    text = (SITE / page / "index.html").read_text(encoding="utf-8")
    far = '<div style="height: 4000px"></div>'
    return re.sub(r"(<article[^>]*>)", rf"\1{figure('near')}{far}{figure('far')}", text, count=1)


@pytest.fixture
def address(served):
    address, extra = served
    extra["/notation/"] = with_figures("notation")
    yield address
    del extra["/notation/"]


@pytest.fixture
def visit(browser, address):
    """Open the page with figures; afterwards, check that nothing failed or left the site."""
    contexts, problems, hosts = [], [], set()

    def visit(scripts_fail=False, **options):
        context = browser.new_context(viewport={"width": 1280, "height": 800}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
        if not scripts_fail:
            page.on("pageerror", lambda error: problems.append(str(error)))
            page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
        else:
            page.route(
                "**/attention_over_training.js",
                lambda route: route.fulfill(
                    content_type="text/javascript", body="export default { render() { throw 1 } }"
                ),
            )
        page.goto(f"{address}/notation/")
        return page

    yield visit
    for context in contexts:
        context.close()
    assert problems == []
    assert hosts == {urlsplit(address).netloc}


def near(page):
    return page.locator(".aa-live").first


def assert_alive_once(page):
    expect(near(page).locator(".aa-stage")).to_have_count(1)
    expect(near(page).get_by_role("status")).to_have_text(LAST)
    expect(page.locator("#fig-near > svg")).to_be_hidden()
    expect(page.locator("#fig-near > figcaption")).to_be_visible()


def test_complete_without_scripts(visit):
    page = visit(java_script_enabled=False)
    for name in ("near", "far"):
        expect(page.locator(f"#fig-{name} > svg")).to_be_visible()
    expect(page.locator(".aa-stage")).to_have_count(0)


def test_stands_still_when_its_module_fails(visit):
    page = visit(scripts_fail=True)
    page.wait_for_event("console", lambda m: "did not start" in m.text)
    expect(page.locator("#fig-near > svg")).to_be_visible()
    expect(page.locator(".aa-stage")).to_have_count(0)


def test_comes_to_life_when_it_comes_into_view(visit):
    page = visit()
    assert_alive_once(page)
    assert page.locator(".aa-stage").count() == 1
    page.locator("#fig-far").scroll_into_view_if_needed()
    expect(page.locator(".aa-stage")).to_have_count(2)


def test_answers_to_mouse_and_keyboard(visit):
    page = visit()
    figure, status = near(page), near(page).get_by_role("status")
    slider = figure.get_by_role("slider", name="training step")
    picture = figure.get_by_role("img", name="Attention at step")
    box = slider.bounding_box()
    slider.click(position={"x": 3, "y": box["height"] / 2})
    expect(status).to_have_text("step 0 · loss 2.3")
    slider.press("ArrowRight")
    expect(status).to_have_text("step 20 · loss 0.9")
    expect(slider).to_have_attribute("aria-valuetext", "20")
    expect(picture).to_have_attribute(
        "aria-label",
        "Attention at step 20. <a looks at y (0.80); b'\" looks at z (0.80).",
    )
    shown = [text for text in picture.locator("text").all_text_contents() if text.startswith(".")]
    assert shown == [".20", ".80", ".10", ".10", ".80"]
    slider.press("Home")
    figure.get_by_role("button", name="Play").click()
    expect(figure.get_by_role("button", name="Pause")).to_be_visible()
    expect(status).to_have_text(LAST)
    expect(figure.get_by_role("button", name="Play")).to_be_visible()
    slider.press("Tab")
    page.keyboard.press("Enter")
    expect(status).to_have_text("step 0 · loss 2.3")
    page.keyboard.press("Enter")
    expect(figure.get_by_role("button", name="Play")).to_be_focused()


def test_less_movement_and_paper(visit):
    page = visit(reduced_motion="reduce")
    assert_alive_once(page)
    expect(near(page).get_by_role("button")).to_have_count(0)
    cell = near(page).locator(".aa-weight").first
    assert cell.evaluate("cell => getComputedStyle(cell).transitionDuration") == "0s"
    page.emulate_media(media="print")
    expect(near(page).locator(".aa-stage")).to_be_hidden()
    expect(page.locator("#fig-near > svg")).to_be_visible()


# What JupyterLab does with an output: scripts in it would not run, so it makes each anew.
SHOW = """(html) => {
  const output = document.body.appendChild(document.createElement('div'));
  output.innerHTML = html;
  for (const old of output.querySelectorAll('script')) {
    const script = document.createElement('script');
    for (const { name, value } of old.attributes) script.setAttribute(name, value);
    script.textContent = old.textContent;
    old.replaceWith(script);
  }
}"""


@pytest.fixture
def notebook(browser):
    """Give a page that shows outputs; afterwards, check that nothing failed or was fetched."""
    page, problems = browser.new_page(), []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    page.on("request", lambda r: r.url.startswith("data:") or problems.append(r.url))
    yield page
    page.close()
    assert problems == []


def test_alive_in_a_notebook_without_its_kernel(notebook):
    for name in ("near", "far"):
        notebook.evaluate(SHOW, made(name)._repr_mimebundle_()["text/html"])
    for name in ("near", "far"):
        frame = notebook.locator(".aa-live").filter(has=notebook.locator(f"#fig-{name}"))
        expect(frame.locator(".aa-stage")).to_have_count(1)
        expect(frame.locator("figure > svg")).to_be_hidden()
        slider, status = frame.get_by_role("slider"), frame.get_by_role("status")
        expect(status).to_have_text(LAST)
        slider.press("Home")
        expect(status).to_have_text("step 0 · loss 2.3")
        expect(slider).to_have_attribute("data-lm-suppress-shortcuts", "")


@pytest.mark.parametrize("module", _live.modules())
def test_every_module_starts_in_a_notebook(notebook, module):
    pages = (page.read_text(encoding="utf-8") for page in SITE.glob("chapters/*/index.html"))
    text = next(text for text in pages if f'data-live="{module}"' in text)
    at = text.rindex("<", 0, text.index(f'data-live="{module}"'))
    figure = text[at : text.index("</figure>", at)]  # the whole page would take a second to parse
    frame = BeautifulSoup(figure, "html.parser").select_one(f".aa-live[data-live={module}]")
    script = f'<script type="module">{_live.bundle(module)}</script>'
    notebook.evaluate(SHOW, f"{frame}{script}")
    expect(notebook.locator(".aa-stage")).to_have_count(1)
    expect(notebook.locator(".aa-live[data-live-on]")).to_have_count(1)


CHAPTERS = sorted(
    page.parent.relative_to(SITE).as_posix()
    for page in SITE.glob("chapters/*/index.html")
    if 'class="aa-live"' in page.read_text(encoding="utf-8")
)


def test_there_are_live_figures():
    assert len(CHAPTERS) >= 3


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_weight_of_the_scripts(chapter):
    text = (SITE / chapter / "index.html").read_text(encoding="utf-8")
    used = {f"assets/live/{name}.js" for name in re.findall(r'data-live="(\w+)"', text)}
    for path in [*used]:  # and what it imports
        shared = re.findall(r'from "\./(host/\w+\.js)"', (SITE / path).read_text())
        used |= {f"assets/live/{name}" for name in shared}
    used |= set(re.findall(r'<script[^>]* src="(?:\.\./)*(assets/(?!javascripts/)[^"?]+)', text))
    assert {"assets/reading.js", "assets/live/host/site.js"} <= used
    sizes = {path: (SITE / path).stat().st_size for path in sorted(used)}
    assert sum(sizes.values()) <= 60_000, sizes
