"""The built pages, as files: what a reader's browser gets."""

import gc
import gzip
import json
import re
import zipfile
from collections import Counter
from functools import cache
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from bs4 import BeautifulSoup
from mkdocs.utils.yaml import yaml_load

from press.run import scripts
from press.site import chapter_list, glossary, llms, takeaway
from press.site.build import SITE

assert SITE.exists(), "there is no site/: `make site` builds it"
PAGES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))
SCRIPTS = {f"{chapter_list.address(x.stem)}index.html": x for x in scripts.CHAPTERS.glob("*.py")}
each_page = pytest.mark.parametrize("page", PAGES)
with (scripts.ROOT / "mkdocs.yml").open(encoding="utf-8") as config:
    PARTS = yaml_load(config)["extra"]["parts"]
CHAPTERS = chapter_list.read(PARTS)
NUMBERED = {name: chapter for name, chapter in CHAPTERS.items() if chapter.number}
each_chapter = pytest.mark.parametrize("chapter", CHAPTERS.values(), ids=CHAPTERS)
each_script = pytest.mark.parametrize("page", SCRIPTS)
ROOT = "http://book/"  # stands for wherever the site is served


CODE, SPANS = re.compile(r"<pre.*?</pre>", re.DOTALL), re.compile(r"</?span[^>]*>")


@cache
def soup(page):
    """Parse a page, of which every test looks at all, without the colours of its code."""
    text = (SITE / page).read_text(encoding="utf-8")
    gc.disable()  # or it would be gone through while more of it is made, again and again
    parsed = BeautifulSoup(CODE.sub(lambda code: SPANS.sub("", code[0]), text), "html.parser")
    gc.freeze()
    gc.enable()
    return parsed


def content(page):
    return soup(page).select_one("article") or soup(page)


def address(page):
    return ROOT + page.removesuffix("index.html").removesuffix("404.html")


@cache
def anchors(page):
    return {tag["id"] for tag in soup(page).find_all(id=True)} | {"__skip"}


def file_behind(url):
    found = SITE / unquote(urlsplit(url).path).lstrip("/")
    return found / "index.html" if found.is_dir() else found


@each_page
def test_links_and_anchors_lead_somewhere(page):
    for tag in soup(page).select("a[href], link[href]"):
        url = urljoin(address(page), tag["href"])
        if not url.startswith(ROOT):
            assert urlsplit(url).scheme == "https", tag
            continue
        target = file_behind(url)
        assert target.is_file(), f"{page}: {tag}"
        anchor = unquote(urlsplit(url).fragment)
        if anchor and target.suffix == ".html":
            assert anchor in anchors(target.relative_to(SITE).as_posix()), f"{page}: {tag}"


MARKDOWN = re.compile(r"^\s*\||\*\*\S|\]\(|^#+ |^```", re.M)
DOLLAR, RAW = re.compile(r"(?<!\\)\$"), "pre, code, svg, .katex"


@each_page
def test_nothing_is_left_raw_or_stands_twice(page):
    inside, ids = content(page), Counter(tag["id"] for tag in soup(page).select("[id]"))
    own = (
        "".join(s for s in part.strings if s.parent is part)
        for part in inside.select("p, li, td, summary")
    )
    found = {
        "scripts": page != "404.html" and inside.select("script, style, link, [onclick]"),
        "ids": [name for name, count in ids.items() if count > 1],
        "no formulas": inside.select(".arithmatex, .katex-error"),
        "dollars": [x for x in inside.find_all(string=DOLLAR) if not x.parent.css.closest(RAW)],
        "Markdown": [text for text in own if MARKDOWN.search(text)],
    }
    assert {what: there for what, there in found.items() if there} == {}


@each_page
def test_weight_of_the_page_and_of_our_scripts(page):
    text = (SITE / page).read_text(encoding="utf-8")
    assert len(gzip.compress(text.encode())) <= 60_000
    used = {f"assets/live/{name}.js" for name in re.findall(r'data-live="(\w+)"', text)}
    for path in [*used]:  # and what it imports
        shared = re.findall(r'from "\./(host/\w+\.js)"', (SITE / path).read_text())
        used |= {f"assets/live/{name}" for name in shared}
    used |= set(re.findall(r'<script[^>]* src="[./]*/?(assets/(?!javascripts/)[^"?]+)', text))
    assert sum((SITE / path).stat().st_size for path in used) <= 60_000, used


@each_script
def test_code_and_links_to_sections_are_the_scripts(page):
    asked = {x["data-cell"] for x in content(page).select("form.aa-answer, form [data-cell]")}
    cells = [x for x in scripts.executed(SCRIPTS[page].stem).cells if x.cell_type == "code"]
    in_fields = [
        x.source for x in cells if x.id in asked
    ]  # these stand for an answer and its check
    assert len(in_fields) == 2 * len(content(page).select("form.aa-answer"))
    wanted = [
        c.source
        for c in scripts.code_cells(SCRIPTS[page])
        if "hide-input" not in c.tags and c.source not in in_fields
    ]
    shown = content(page).select(".aa-cell > .highlight code, .aa-cell > details > .highlight code")
    assert [code.text.strip() for code in shown] == [source.strip() for source in wanted]
    linked = re.findall(r"\]\(\d\d_\w+\.ipynb#([\w-]+)\)", SCRIPTS[page].read_text("utf-8"))
    assert {*linked} <= {a["href"].partition("#")[2] for a in content(page).select("a[href]")}


@each_script
def test_offers_script_and_notebook_and_all_they_need(page):
    script = SCRIPTS[page]
    links = content(page).select("a[download]")
    names = [f"{script.stem}.ipynb", script.name, f"{takeaway.FOLDER}.zip"]
    assert [link["download"] for link in links] == names
    notebook, text, archive = (file_behind(urljoin(address(page), link["href"])) for link in links)
    assert text.read_bytes() == script.read_bytes()
    _, *rest = json.loads(notebook.read_bytes())["cells"]
    assert rest == json.loads(scripts.pair_text(script))["cells"]
    with zipfile.ZipFile(archive) as packed:
        assert packed.read(f"{takeaway.FOLDER}/notebooks/{script.name}") == script.read_bytes()


@each_page
def test_terms_are_links_in_prose_once_a_page(page):
    links = soup(page).select("a.aa-term")
    meanings = {entry.anchor: entry.text for entry in glossary.read()}
    terms = [link["href"].partition("glossary/#")[2] for link in links]
    assert len(terms) == len(set(terms))
    for link, anchor in zip(links, terms, strict=True):
        assert link["data-means"] == meanings[anchor]
        above = {parent.name for parent in link.parents}
        assert above & {"p", "li", "dd", "td"}
        assert not above & {"a", "pre", "figure", "summary", "h1", "h2", "h3", "strong", "code"}


def test_words_wear_the_colours_of_what_they_name():
    worn = {
        letter: content("chapters/one-head/index.html").select(f"p :is(em, strong).dim-{letter}")
        for letter in "nmh"
    }
    assert all(worn.values()), worn


def test_search_has_each_section_once_and_clean():
    docs = json.loads((SITE / "search" / "search_index.json").read_text())["docs"]
    assert len({entry["location"] for entry in docs}) == len(docs)
    text = " ".join(entry["title"] + entry["text"] for entry in docs)
    assert not [unwanted for unwanted in ("¶", "katex", "<svg") if unwanted in text]


def test_language_models_find_every_page_once_with_what_it_is_about():
    listed = re.findall(r"^- \[(.+)\]\((.+)\): (.+)$", (SITE / llms.PATH).read_text(), re.MULTILINE)
    pages = {
        urljoin(ROOT, where).removeprefix(ROOT) + "index.html": about for _, where, about in listed
    }
    assert len(pages) == len(listed)
    assert pages == {page: meta(page, "description") for page in PAGES if page != "404.html"}


def test_nothing_of_the_workshop_is_published():
    names = {path.relative_to(SITE).as_posix() for path in SITE.rglob("*") if path.is_file()}
    stray = re.compile(r"\.j2$|conf\.json$|katex\.min\.js$|hooks|^(?!downloads/).*\.(py|ipynb)$")
    assert not [name for name in names if stray.search(name)]


@cache
def meta(page, name):
    found = soup(page).head.select(f'meta[name="{name}"], meta[property="{name}"]')
    return found[0]["content"] if len(found) == 1 else None


def link(a, page):
    """Give where a link leads, from the root of the site."""
    return urljoin(address(page), a["href"]).removeprefix(ROOT)


@each_page
def test_describes_itself_as_no_other_page_does(page):
    said = meta(page, "description")
    assert 40 <= len(said) <= 160, f"{len(said)}: {said}"
    assert [other for other in PAGES if meta(other, "description") == said] == [page]
    assert page == "404.html" or meta(page, "og:description") == said
    assert (meta(page, "robots") == "noindex") == (page == "404.html")


def test_the_navigation_has_every_chapter_under_its_part_and_nothing_else():
    page = "chapters/masks/index.html"
    book = soup(page).select_one(".md-sidebar--primary .md-nav__list > .md-nav__item--active")
    start, short_path = book.select(".md-nav__link[href]")[:2]
    assert [link(a, page) for a in (start, short_path)] == ["", "short-path/"]
    sections = book.select(".md-nav__item--section .md-nav__item--section")
    assert [part.label.text.strip() for part in sections] == [part["title"] for part in PARTS[1:]]
    found = [
        (part.label.text.strip(), " ".join(a.text.split()), link(a, page))
        for part in sections
        for a in part.select("a:not(.md-nav--secondary a)")
    ]
    assert found == [
        (chapter.part, chapter.label, chapter_list.address(name))
        for name, chapter in NUMBERED.items()
    ]


@each_chapter
def test_a_chapter_says_what_it_takes_and_gives(chapter):
    page = f"{chapter_list.address(chapter.name)}index.html"
    above = content(page)
    intro = above.select_one("h1 + .aa-intro")
    text = " ".join(intro.text.split())
    assert text.startswith(f"{chapter.minutes} · builds on ")
    needs = {a.text: link(a, page) for a in intro.select("a:not([download])")}
    assert needs == {CHAPTERS[name].label: chapter_list.address(name) for name in chapter.builds_on}
    assert f"Afterwards {chapter.after[0].lower()}{chapter.after[1:]}" in text
    question = above.select_one(".aa-intro ~ * em").text
    assert meta(page, "description") == f"{question} {chapter.after}"
    assert question.endswith("?")
    assert (SITE / page).read_text(encoding="utf-8").count('class="aa-finish"') == bool(
        chapter.number
    )


def test_nothing_on_the_lost_page_depends_on_where_the_reader_is():
    names = ("href", "src", "action")
    addresses = [tag[name] for name in names for tag in soup("404.html").select(f"[{name}]")]
    assert addresses
    assert not [a for a in addresses if not a.startswith(("/", "#", "https://"))]
