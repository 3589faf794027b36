"""The built pages, as files: what a reader's browser gets."""

import gc
import gzip
import json
import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from bs4 import BeautifulSoup

from book.run import scripts
from book.site import contents, glossary
from book.site.build import SITE

assert SITE.exists(), "there is no site/: `make site` builds it"
PAGES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))
CHAPTERS = sorted(scripts.CHAPTERS.glob("[0-9][0-9]_*.py"))
CHAPTER_PAGES = [f"{contents.address(script.stem)}index.html" for script in CHAPTERS]
each_page = pytest.mark.parametrize("page", PAGES)
each_chapter = pytest.mark.parametrize("page", CHAPTER_PAGES)
each_with_terms = pytest.mark.parametrize("page", [*CHAPTER_PAGES, "notation/index.html"])
ROOT = "http://book/"  # stands for wherever the site is served


@cache
def soup(page):
    """Parse a page, of which every test looks at all: nothing of it need be collected."""
    gc.disable()  # or it would be gone through while more of it is made, again and again
    parsed = BeautifulSoup((SITE / page).read_text(encoding="utf-8"), "html.parser")
    gc.freeze()
    gc.enable()
    return parsed


@cache
def anchors(page):
    return {tag["id"] for tag in soup(page).find_all(id=True)}


def content(page):
    return soup(page).select_one("article")


def address(page):
    return ROOT + page.removesuffix("index.html")


def file_behind(url):
    path = unquote(urlsplit(url).path).lstrip("/")
    found = SITE / path
    return found / "index.html" if found.is_dir() else found


def test_every_chapter_has_its_page():
    assert set(CHAPTER_PAGES) <= set(PAGES)
    for page in CHAPTER_PAGES:
        assert content(page).select(".aa-cell"), f"{page} shows no cells"


@each_page
def test_asks_no_other_host(page):
    own = soup(page).select_one('link[rel="canonical"]')
    site = own["href"] if own else ""
    fetching = ["script", "img", "iframe", "source", "image", "use", "link"]
    fetched = [
        tag[name]
        for tag in soup(page).find_all(fetching)
        for name in ("src", "href")
        if tag.has_attr(name)
    ]
    assert fetched
    for url in fetched:
        assert urlsplit(url).netloc in {"", urlsplit(site).netloc}, f"{page} fetches {url}"
    for url in re.findall(r"url\(([^)]+)\)", (SITE / page).read_text(encoding="utf-8")):
        assert not urlsplit(url.strip("\"'")).netloc


def test_stylesheets_ask_no_other_host():
    asked = re.compile(r"(?:url\(|@import )[\"']?([^\"')]+)")
    found = [(x.name, url) for x in SITE.rglob("*.css") for url in asked.findall(x.read_text())]
    assert found
    for name, url in found:
        assert urlsplit(url).scheme in {"", "data"}, f"{name} fetches {url}"
        assert not urlsplit(url).netloc, f"{name} fetches {url}"


@each_page
def test_no_script_or_style_in_the_content(page):
    article = content(page)
    assert article is not None or page == "404.html"
    if article is not None:
        assert not article.select("script, style, link, [onclick], [onload]")


@each_page
def test_ids_are_unique(page):
    ids = [tag["id"] for tag in soup(page).select("[id]")]
    assert len(ids) == len(set(ids)), {i for i in ids if ids.count(i) > 1}


@each_page
def test_links_and_anchors_lead_somewhere(page):
    base = ROOT if page == "404.html" else address(page)
    links = [tag["href"] for tag in soup(page).select("a[href]")]
    assert links
    for link in links:
        url = urljoin(base, link)
        if not url.startswith(ROOT):
            assert urlsplit(url).scheme == "https", link
            continue
        target = file_behind(url)
        assert target.is_file(), f"{page} links to {link}"
        anchor = unquote(urlsplit(url).fragment)
        if anchor and target.suffix == ".html":
            names = anchors(target.relative_to(SITE).as_posix())
            assert anchor in names or anchor == "__skip", f"{page} links to {link}"


@each_page
def test_assets_exist(page):
    base = ROOT if page == "404.html" else address(page)
    for tag in soup(page).select("script[src], img[src], link[rel=stylesheet], link[rel=icon]"):
        url = tag.get("src") or tag["href"]
        assert file_behind(urljoin(base, url)).is_file(), f"{page} needs {url}"


@each_page
def test_figures_have_a_text_alternative(page):
    for picture in soup(page).select("article img"):
        assert picture.get("alt", "").strip()
    for svg in soup(page).select("article svg"):
        if not svg.find_parent(attrs={"aria-hidden": "true"}):  # as KaTeX' roots are
            assert svg["role"] == "img"
            assert svg["aria-label"].strip()


def test_there_are_figures_to_check():
    for script, page in zip(CHAPTERS, CHAPTER_PAGES, strict=True):
        drawn = "<figure" in (scripts.EXECUTED / f"{script.stem}.ipynb").read_text(encoding="utf-8")
        assert bool(content(page).select("figure svg")) == drawn, page
    assert content("index.html").select("figure svg")


@each_page
def test_formulas_are_typeset(page):
    article = content(page)
    if article is None:
        return
    assert not article.select(".arithmatex, .katex-error")
    for text in article.find_all(string=re.compile(r"(?<!\\)\$")):
        assert text.find_parent(["pre", "code", "svg"]) or text.find_parent(class_="katex"), text


def test_no_line_ends_between_a_formula_and_its_comma_or_bracket():
    found = [x for page in CHAPTER_PAGES for x in content(page).select(".aa-whole:has(> .katex)")]
    assert len(found) > 10
    for whole in found:
        assert whole.text[0] == "(" or whole.text[-1] in ",.;:?!)", whole.text


def test_markdown_has_become_html():
    left = re.compile(r"^\s*\||\*\*\S|\]\(|^#+ |^```", re.M)
    for page in PAGES:
        for text in (content(page) or soup(page)).select("p, li, td, summary"):
            own = "".join(s for s in text.strings if s.parent is text)
            assert not left.search(own), f"{page}: {own[:80]}"


def test_there_are_formulas_to_check():
    assert content(CHAPTER_PAGES[0]).select(".katex-display math")
    assert content("notation/index.html").select(".katex math")


@each_chapter
def test_contents_match_headings(page):
    headings = [
        (heading["id"], heading.text.removesuffix("¶").strip())
        for heading in content(page).select("h2, h3")
    ]
    listed = [
        (link["href"].removeprefix("#"), link.text.strip())
        for link in soup(page).select(".md-sidebar--secondary a.md-nav__link[href^='#']")
    ]
    assert headings
    assert sorted(listed) == sorted(headings)


@pytest.mark.parametrize("script", [*scripts.CHAPTERS.glob("*.py")], ids=lambda script: script.stem)
def test_offers_script_and_notebook(script):
    page = f"{contents.address(script.stem)}index.html"
    links = content(page).select("a[download]")
    assert [link["download"] for link in links] == [f"{script.stem}.ipynb", script.name]
    notebook, text = (file_behind(urljoin(address(page), link["href"])) for link in links)
    assert text.read_bytes() == script.read_bytes()
    first, *rest = json.loads(notebook.read_bytes())["cells"]
    assert "pip install -e '.[book,trained]'" in "".join(first["source"]), "it says what it needs"
    assert rest == json.loads(scripts.pair_text(script))["cells"]
    assert "pip install -e" not in content(page).text, "who reads the page needs nothing"


@each_with_terms
def test_terms_are_links_in_prose_once_a_page(page):
    links = soup(page).select("a.aa-term")
    assert links
    meanings = {entry.anchor: entry.text for entry in glossary.read()}
    anchors = [link["href"].partition("glossary/#")[2] for link in links]
    assert len(anchors) == len(set(anchors))
    for link, anchor in zip(links, anchors, strict=True):
        assert link["data-means"] == meanings[anchor]
        above = {parent.name for parent in link.parents}
        assert above & {"p", "li", "dd", "td"}
        assert not above & {"a", "pre", "figure", "summary", "h1", "h2", "h3", "strong", "code"}
        assert not link.find_parent(class_="aa-out")
        before = link.previous_sibling
        assert not (isinstance(before, str) and before.endswith("arrow ")), "not keys to look at"


@each_with_terms
def test_weight_of_terms(page):
    added = "".join(map(str, soup(page).select("a.aa-term")))
    script = (SITE / "assets" / "glossary.js").read_bytes()
    assert len(gzip.compress(added.encode())) + len(gzip.compress(script)) <= 4_000


@each_page
def test_shape_comments_are_coloured(page):
    for comment in soup(page).select(".highlight .c1"):
        if re.search(r"\((?:[bnmhd], )+[bnmhd]\)", comment.text):
            assert comment.select(".dim"), comment.text


def test_there_are_coloured_shapes():
    letters = {tag["class"][1] for tag in content("notation/index.html").select("pre .dim")}
    assert letters == {"dim-b", "dim-n", "dim-m", "dim-h", "dim-d"}


def test_search_has_the_chapters_once_and_clean():
    index = json.loads((SITE / "search" / "search_index.json").read_text())
    entries = {entry["location"]: entry for entry in index["docs"]}
    assert len(entries) == len(index["docs"])
    for script, page in zip(CHAPTERS, CHAPTER_PAGES, strict=True):
        location = page.removesuffix("index.html")
        text = " ".join(e["text"] for k, e in entries.items() if k.startswith(location))
        first = next(cell for cell in scripts.code_cells(script)[1:] if "import" in cell.source)
        assert text.count(first.source.splitlines()[-1].strip().replace("&", "&amp;")) <= 1
        assert "¶" not in text + " ".join(e["title"] for e in entries.values())
        assert "katex" not in text
        assert "<svg" not in text


@each_page
def test_page_weight(page):
    size = len(gzip.compress((SITE / page).read_bytes()))
    assert size <= 60_000, f"{page}: {size} bytes gzipped"


def test_nothing_of_the_workshop_is_published():
    names = {path.relative_to(SITE).as_posix() for path in SITE.rglob("*") if path.is_file()}
    stray = {n for n in names if n.endswith((".j2", "conf.json", "katex.min.js")) or "hooks" in n}
    assert not stray
    assert {name for name in names if name.endswith((".py", ".ipynb"))} == {
        f"downloads/{Path(contents.address(script.stem)).name}{suffix}"
        for script in scripts.CHAPTERS.glob("*.py")
        for suffix in (".py", ".ipynb")
    }
