"""The first page: what to do first is in sight, and each step of the map can be pointed at."""

import io
import os

from bs4 import BeautifulSoup
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from playwright.sync_api import expect

from annotated_book import display
from press.run import scripts
from press.site.build import SITE

PICTURE = scripts.ROOT / "docs" / "assets" / "start-page.png"
LINES = dict(line.split(": ", 1) for line in display.whole_map().text.splitlines())


def said(page):
    """Give the lines that are seen below the map."""
    lines = page.locator(".aa-large li > p").all()
    return [line.text_content() for line in lines if line.is_visible()]


def test_what_to_do_first_is_in_sight(visit):
    page = visit(viewport={"width": 390, "height": 844})
    for name in ("35 minutes", "The book", "Mine is broken", "An interview", "package"):
        link = page.locator("article").get_by_role("link", name=name, exact=True)
        expect(link).to_be_in_viewport(ratio=1)


def test_each_step_says_its_line_by_keyboard_without_scripts(visit):
    page = visit(java_script_enabled=False)
    page.locator("#the-whole-computation a").focus()
    page.keyboard.press("Tab")
    for step, line in LINES.items():
        chosen = page.get_by_role("radio", name=step, exact=True)
        expect(chosen).to_be_focused()
        expect(chosen).to_be_checked()
        expect(chosen).to_have_accessible_description(line)
        assert said(page) == [line]
        page.keyboard.press("ArrowRight")
    expect(page.get_by_role("radio", name="project in", exact=True)).to_be_focused()
    page.emulate_media(media="print")
    assert said(page) == list(LINES.values()), "on paper every line"


def test_each_step_says_its_line_when_it_is_pointed_at(visit):
    page = visit()
    for step, line in LINES.items():
        page.locator(".aa-large label").filter(has_text=step).hover()
        assert said(page) == [line]
    page.mouse.move(0, 0)
    assert said(page) == [LINES["project in"]]


def test_the_picture_of_the_readme_shows_this_page(visit):
    """It holds the text that it shows; with ``PICTURE`` set, another is taken."""
    first = BeautifulSoup((SITE / "index.html").read_bytes(), "html.parser").select_one(".aa-first")
    shows = " ".join(first.text.split())
    if os.environ.get("PICTURE"):
        page = visit(viewport={"width": 1280, "height": 760}, device_scale_factor=1.5)
        page.wait_for_load_state("networkidle")
        said = PngInfo()
        said.add_itxt("shows", shows)
        shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        few = shot.quantize(64, dither=Image.Dither.NONE)  # colours: a quarter of the bytes
        few.save(PICTURE, optimize=True, pnginfo=said)
    assert Image.open(PICTURE).text["shows"] == shows, "`make picture` takes another"
    assert PICTURE.stat().st_size <= 150_000
