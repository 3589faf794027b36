"""The glossary: each term once, used, and explained where it stands: mouse, keyboard, touch."""

import re

import pytest
from bs4 import BeautifulSoup
from playwright.sync_api import expect

from book.run import scripts
from book.site import glossary
from book.site.build import SITE
from book.site.contents import address


def test_every_entry_has_words_of_its_own_and_a_meaning():
    entries = glossary.read()
    headings = re.findall(r"^\S.* \{ #", glossary.PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(entries) == len(headings) > 40
    words = [word for entry in entries for word in entry.words]
    assert len(words) == len(set(words))
    assert len({entry.anchor for entry in entries}) == len(entries)
    for entry in entries:
        assert 30 < len(entry.text) < 200, entry.anchor
        assert entry.text.endswith((".", ")"))
        assert "[" not in entry.text


def test_the_page_is_sorted_and_each_entry_leads_to_its_chapter():
    page = BeautifulSoup((SITE / "glossary" / "index.html").read_text("utf-8"), "html.parser")
    terms = [term.text.lower() for term in page.select("article dt")]
    assert terms == sorted(terms)
    for meaning in page.select("article dd"):
        link = meaning.select("a")[-1]
        number = int(link.text.removeprefix("Chapter "))
        (script,) = scripts.CHAPTERS.glob(f"{number:02}_*.py")
        assert f"../{address(script.stem)}#" in link["href"]
    assert not page.select(".aa-term")


def test_every_entry_is_used_in_the_book():
    prose = " ".join(
        cell.source
        for script in scripts.CHAPTERS.glob("*.py")
        for cell in scripts.notebook(script).cells
        if cell.cell_type == "markdown"
    ) + (scripts.ROOT / "docs" / "notation.md").read_text(encoding="utf-8")
    for entry in glossary.read():
        assert any(word in prose.lower() for word in entry.words), entry.anchor


def test_search_and_contents_know_nothing_of_it():
    index = (SITE / "search" / "search_index.json").read_text(encoding="utf-8")
    for entry in glossary.read()[:10]:
        assert index.count(entry.text) <= 1  # in the glossary itself


@pytest.fixture
def visit(browser, served):
    contexts = []

    def visit(**options):
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.goto(f"{served[0]}/notation/")
        return page, page.locator(".aa-term").first, page.get_by_role("tooltip")

    yield visit
    for context in contexts:
        context.close()


def test_mouse_and_keyboard(visit):
    page, term, tip = visit(viewport={"width": 1280, "height": 800})
    meaning = term.get_attribute("data-means")
    expect(tip).to_have_count(0)
    term.hover()
    expect(tip).to_have_text(meaning)
    tip.hover()
    expect(tip).to_be_visible()
    page.mouse.move(1, 1)
    expect(tip).to_have_count(0)
    term.focus()
    expect(tip).to_have_text(meaning)
    expect(term).to_have_accessible_description(meaning)
    page.keyboard.press("Escape")
    expect(tip).to_have_count(0)
    expect(term).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url("**/glossary/#*")


def test_touch_on_a_phone(visit):
    page, _, tip = visit(viewport={"width": 360, "height": 640}, has_touch=True, is_mobile=True)
    for term in page.locator(".aa-term").all():
        term.tap()
        expect(tip).to_have_text(term.get_attribute("data-means"))
        box = tip.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
        assert page.url.endswith("/notation/")
        page.locator("h1").tap()
        expect(tip).to_have_count(0)
    page.locator(".aa-term").first.tap()
    page.locator(".aa-term").first.tap()
    page.wait_for_url("**/glossary/#*")


def test_without_scripts_it_is_a_link(visit):
    page, term, _ = visit(java_script_enabled=False)
    term.click()
    page.wait_for_url("**/glossary/#*")
