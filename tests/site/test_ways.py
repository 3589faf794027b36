"""Finding one's way: what pages say of themselves, parts, what is finished, and lost readers."""

import re
import shutil
from functools import cache
from urllib.parse import urljoin, urlsplit

import pytest
from bs4 import BeautifulSoup
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.utils.yaml import yaml_load
from PIL import Image
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
PICTURE = scripts.ROOT / "docs" / "assets" / "start-page.png"


def parse(page, site=SITE, since="<html", until="</html>"):
    """Parse a part of a page: the whole of many is what takes time."""
    text = (site / page).read_text(encoding="utf-8")
    return BeautifulSoup(text[text.index(since) : text.index(until)], "html.parser")


@cache
def head(page, site=SITE):
    return parse(page, site, until="</head>")


@cache
def opening(page, site=SITE):
    """Give what stands above the first section, or all of a page that is no chapter."""
    until = "<h2" if page.startswith(("chapters/", "short-path/")) else "</article"
    return parse(page, site, '<div class="md-content"', until)


def meta(page, name, site=SITE):
    found = head(page, site).select(f'meta[name="{name}"], meta[property="{name}"]')
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
        assert not (SITE / "robots.txt").exists()
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


def test_the_first_page_lists_parts_and_chapters():
    lists = opening("index.html").select("ol.aa-chapters")
    assert [part.find_previous_sibling().text for part in lists] == [p["title"] for p in PARTS[1:]]
    entries = opening("index.html").select("ol.aa-chapters > li")
    for (name, chapter), entry in zip(NUMBERED.items(), entries, strict=True):
        assert (entry.b.text, entry.a.text) == (str(chapter.number), chapter.title)
        assert entry.a["href"] == contents.address(name)
        assert entry.p.text == chapter.after
        builds_on = (CHAPTERS[other] for other in chapter.builds_on)
        needs = " and ".join(str(other.number or other.title) for other in builds_on)
        facts = f"{chapter.minutes}" + (f" · builds on\u00a0{needs}" if needs else "")
        assert entry.small.text == facts
    assert "<!--" not in str(opening("index.html")), "every piece has been put into its place"


def test_nothing_on_the_lost_page_depends_on_where_the_reader_is():
    page, names = parse("404.html"), ("href", "src", "action")
    addresses = [tag[name] for name in names for tag in page.select(f"[{name}]")]
    assert len(addresses) > 30
    assert not [a for a in addresses if not a.startswith(("/", "#", "https://"))]


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Give a function that builds a page and one chapter for an address of their own."""
    name = "05_batches"
    chapter = {"file": name, "prerequisites": []}

    @cache
    def publish(address):
        root = tmp_path_factory.mktemp("published")
        (root / "docs").mkdir()
        (root / "docs" / "index.md").write_text("# Start\n\n<!-- chapters -->\n")
        (root / "chapters").mkdir()
        shutil.copy2(scripts.CHAPTERS / f"{name}.py", root / "chapters")
        config = load_config(
            str(scripts.ROOT / "mkdocs.yml"),
            docs_dir=str(root / "docs"),
            site_dir=str(root / "site"),
            site_url=address,
            nav=[{"Book": [{"Start": "index.md"}, "chapters"]}],
            plugins=["search", {"mkdocs-jupyter": {"include": ["build/notebooks/*.ipynb"]}}],
        )
        config.extra["repository"] = "https://code.example/book"
        config.extra["parts"] = [{"title": "I", "chapters": [chapter]}]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scripts, "CHAPTERS", root / "chapters")
            config.plugins.on_startup(command="build", dirty=False)
            build(config)
        return root / "site"

    return publish


@pytest.mark.parametrize("address", ["https://book.example/", "https://example.org/a/book/"])
def test_a_site_that_knows_its_address_names_it_everywhere(published, address):
    site = published(address)
    pages = {"index.html": "", "chapters/batches/index.html": "chapters/batches/"}
    for page, path in pages.items():
        (canonical,) = head(page, site).select('link[rel="canonical"]')
        assert canonical["href"] == meta(page, "og:url", site) == address + path
        assert meta(page, "og:image", site) == f"{address}assets/{PICTURE.name}"
        assert meta(page, "twitter:card", site) == "summary_large_image"
    shown = ("width", "height")
    with Image.open(PICTURE) as picture:
        assert [meta("index.html", f"og:image:{x}", site) for x in shown] == [
            *map(str, picture.size)
        ]
    listed = re.findall("<loc>(.*?)</loc>", (site / "sitemap.xml").read_text())
    assert sorted(listed) == sorted(address + path for path in pages.values())
    base = urlsplit(address).path
    assert opening("404.html", site).select_one("article p a")["href"] == base
    if base == "/":
        assert (site / "robots.txt").read_text() == f"Sitemap: {address}sitemap.xml\n"
    else:
        assert not (site / "robots.txt").exists()


def test_a_chapter_links_to_its_source_in_the_repository(published):
    site = published("https://book.example/")
    intro = opening("chapters/batches/index.html", site).select_one(".aa-run")
    (source,) = intro.select("a:not([download])")
    assert source["href"] == "https://code.example/book/blob/HEAD/notebooks/05_batches.py"


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
