"""The cheat sheet: six cards, whole on a phone, and one legible side of A4 on paper."""

import re
from itertools import pairwise

import pytest
from playwright.sync_api import expect

PARTS = {
    "The formula": ".katex-display",
    "What it costs": "tbody tr",
    "The shape of every step": "pre .dim-n",
    "The shortest correct code": "pre .nc",
    "What True means in a mask": "tbody tr",
    "Five mistakes that keep every shape": ".aa-diff",
}
A4 = (210, 297)
LEGIBLE = 7.5 * 96 / 72  # points, in CSS pixels
SMALLEST = """() => Math.min(...[...document.querySelectorAll("article *")]
  .filter((tag) => !tag.closest(".katex") && tag.checkVisibility()
    && [...tag.childNodes].some((part) => part.nodeType == 3 && part.data.trim()))
  .map((tag) => parseFloat(getComputedStyle(tag).fontSize)))"""
CLIPPED = """() => [...document.querySelectorAll(".aa-card, .aa-card *")]
  .filter((tag) => tag.clientWidth && tag.scrollWidth > tag.clientWidth + 1
    && !tag.closest(".katex")).map((tag) => tag.outerHTML.slice(0, 80))"""


@pytest.fixture(scope="module")
def sheet(browser, served):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{served[0]}/cheat-sheet/")
    return page


def test_holds_the_six_parts(sheet):
    cards = sheet.locator(".aa-cards > .aa-card")
    assert [title.removesuffix("¶") for title in cards.locator("h2").all_inner_texts()] == [*PARTS]
    for index, (part, what) in enumerate(PARTS.items()):
        assert cards.nth(index).locator(what).first.is_visible(), part
    assert cards.last.locator(".aa-diff").count() == 5
    assert cards.last.get_by_text("catch it: ").count() == 5


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_paper_is_one_side_of_a4(sheet, scheme):
    sheet.emulate_media(color_scheme=scheme)
    printed = sheet.pdf(prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1
    (box,) = re.findall(rb"/MediaBox\s*\[0 0 ([\d.]+) ([\d.]+)\]", printed)
    assert [round(float(side) / 72 * 25.4) for side in box] == [*A4]


def test_paper_is_legible_and_nothing_is_cut_off(sheet):
    sheet.emulate_media(media="print", color_scheme="dark")
    sheet.set_viewport_size({"width": round((A4[0] - 12) / 25.4 * 96), "height": 1000})
    assert sheet.evaluate(SMALLEST) >= LEGIBLE - 0.01
    assert sheet.evaluate(CLIPPED) == []
    query = sheet.locator(".aa-card pre .dim-n").first
    assert query.evaluate("letter => getComputedStyle(letter).color") == "rgb(0, 103, 165)"
    for unwanted in (".aa-run", ".md-header", ".md-sidebar"):
        expect(sheet.locator(unwanted).first).to_be_hidden()


def test_on_a_phone_cards_stand_below_each_other(sheet):
    sheet.emulate_media(media="screen")
    sheet.set_viewport_size({"width": 360, "height": 800})
    boxes = [card.bounding_box() for card in sheet.locator(".aa-card").all()]
    assert len(boxes) > 1
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= 360 for box in boxes)
    assert all(above["y"] + above["height"] <= below["y"] for above, below in pairwise(boxes))
    assert sheet.evaluate("document.documentElement.scrollWidth") == 360
