"""Finding one's way: what pages say of themselves, parts, what is finished, and lost readers."""

from functools import cache
from urllib.parse import urljoin

import pytest
from bs4 import BeautifulSoup
from mkdocs.utils.yaml import yaml_load
from playwright.sync_api import expect

from book.run import scripts
from book.site import contents
from book.site.build import SITE

with (scripts.ROOT / "mkdocs.yml").open(encoding="utf-8") as config:
    PARTS = yaml_load(config)["extra"]["parts"]
CHAPTERS = contents.read(PARTS)
NUMBERED = {name: chapter for name, chapter in CHAPTERS.items() if chapter.number}
PAGES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))
each_page = pytest.mark.parametrize("page", PAGES)
each_chapter = pytest.mark.parametrize("chapter", CHAPTERS.values(), ids=CHAPTERS)
ROOT = "http://book/"


def parse(page, since="<html", until="</html>"):
    """Parse a part of a page: the whole of many is what takes time."""
    text = (SITE / page).read_text(encoding="utf-8")
    return BeautifulSoup(text[text.index(since) : text.index(until)], "html.parser")


@cache
def head(page):
    return parse(page, until="</head>")


@cache
def opening(page):
    """Give what stands above the first section, or all of a page that is no chapter."""
    until = "<h2" if page.startswith(("chapters/", "short-path/")) else "</article"
    return parse(page, '<div class="md-content"', until)


def meta(page, name):
    found = head(page).select(f'meta[name="{name}"], meta[property="{name}"]')
    return found[0]["content"] if len(found) == 1 else None


def link(href, page):
    """Give where a link leads, from the root of the site."""
    return urljoin(ROOT + page.removesuffix("index.html"), href).removeprefix(ROOT)


@each_page
def test_names_and_describes_itself_as_no_other_page_does(page):
    said, title = meta(page, "description"), meta(page, "og:title")
    assert 40 <= len(said) <= 160, f"{len(said)}: {said}"
    assert [other for other in PAGES if meta(other, "description") == said] == [page]
    if page == "404.html":
        assert (meta(page, "robots"), title) == ("noindex", None)
        return
    assert meta(page, "og:description") == said
    assert title in head(page).title.text
    assert meta(page, "og:type") == ("website" if page == "index.html" else "article")
    assert meta(page, "twitter:card") in {"summary", "summary_large_image"}
    assert [other for other in PAGES if meta(other, "og:title") == title] == [page]


def test_only_a_site_that_knows_its_address_names_one():
    known = {page for page in PAGES if head(page).select('link[rel="canonical"]')}
    assert known in (set(), set(PAGES) - {"404.html"})
    for page in PAGES:
        assert bool(meta(page, "og:image")) == bool(meta(page, "og:url")) == (page in known)
    if not known:
        assert not [page for page in PAGES if "http://" in str(head(page))]


def test_the_navigation_has_every_chapter_under_its_part_and_nothing_else():
    page = "chapters/masks/index.html"
    sidebar = parse(page, since='<div class="md-sidebar', until="</article")
    book = sidebar.select_one(".md-sidebar--primary .md-nav__list > .md-nav__item--active")
    start, short_path = book.select(".md-nav__link[href]")[:2]
    assert [link(a["href"], page) for a in (start, short_path)] == ["", "short-path/"]
    sections = book.select(".md-nav__item--section .md-nav__item--section")
    assert [part.label.text.strip() for part in sections] == [part["title"] for part in PARTS[1:]]
    found = [
        (part.label.text.strip(), " ".join(a.text.split()), link(a["href"], page))
        for part in sections
        for a in part.select("a:not(.md-nav--secondary a)")
    ]
    assert found == [
        (chapter.part, chapter.label, contents.address(name)) for name, chapter in NUMBERED.items()
    ]


@each_chapter
def test_a_chapter_says_what_it_takes_and_gives(chapter):
    page = f"{contents.address(chapter.name)}index.html"
    above = opening(page)
    intro = above.select_one("h1 + .aa-intro")
    text = " ".join(intro.text.split())
    assert text.startswith(f"{chapter.minutes} · builds on ")
    needs = {a.text: link(a["href"], page) for a in intro.select("a:not([download])")}
    assert needs == {CHAPTERS[name].label: contents.address(name) for name in chapter.builds_on}
    assert f"Afterwards {chapter.after[0].lower()}{chapter.after[1:]}" in text
    question = above.select_one(".aa-intro ~ * em").text
    assert meta(page, "description") == f"{question} {chapter.after}"
    assert question.endswith("?")
    assert (SITE / page).read_text(encoding="utf-8").count('class="aa-finish"') == bool(
        chapter.number
    )


def test_nothing_on_the_lost_page_depends_on_where_the_reader_is():
    page, names = parse("404.html"), ("href", "src", "action")
    addresses = [tag[name] for name in names for tag in page.select(f"[{name}]")]
    assert len(addresses) > 30
    assert not [a for a in addresses if not a.startswith(("/", "#", "https://"))]


def nav(page, chapter):
    return page.locator(".md-sidebar--primary").get_by_role("link", name=chapter)


def test_what_is_finished_is_remembered_and_forgotten(visit):
    page = visit()
    expect(page.get_by_text("Forget my progress")).to_be_hidden()
    page.goto("/chapters/batches/")
    box = page.get_by_role("checkbox", name="I have finished this chapter")
    expect(box).not_to_be_checked()
    places = "items => items.map(item => [item.offsetTop, item.offsetWidth, item.offsetHeight])"
    before = page.locator(".md-sidebar--primary li").evaluate_all(places)
    box.click()
    expect(nav(page, "5 · Batches finished")).to_be_visible()
    assert page.locator(".md-sidebar--primary li").evaluate_all(places) == before

    page.goto("/chapters/speed/")
    expect(nav(page, "5 · Batches finished")).to_be_visible()
    box.focus()
    page.keyboard.press("Space")
    expect(box).to_be_checked()
    page.reload()
    expect(box).to_be_checked()

    page.goto("/")
    way = page.locator(".aa-chapters")
    expect(way.get_by_role("link", name="finished")).to_have_count(2)
    expect(way.get_by_role("link", name="Speed finished")).to_be_visible()
    expect(page.locator(".aa-so-far").get_by_role("status")).to_have_text(
        f"You have finished 2 of {len(NUMBERED)}."
    )

    other = page.context.new_page()  # another tab sees at once what this one forgets
    other.goto("/chapters/batches/")
    expect(nav(other, "5 · Batches finished")).to_be_visible()
    page.get_by_role("button", name="Forget my progress").press("Enter")
    expect(page.get_by_text("Forget my progress")).to_be_hidden()
    expect(way.get_by_role("link", name="finished")).to_have_count(0)
    expect(way.get_by_role("link", name="One head")).to_be_focused()
    expect(nav(other, "5 · Batches finished")).to_have_count(0)
    assert page.evaluate("localStorage.getItem('annotated-attention.finished')") is None
