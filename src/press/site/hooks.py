"""What MkDocs calls while it builds the site: the only module that knows MkDocs and its plugins.

Executed chapters become pages, and every page is mended. Here stands when; how, in the modules
beside this one: headings, anchors and links in ``pages``, words of the glossary in ``glossary``.
"""

import functools
import json
import logging
import posixpath
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup, Tag
from jinja2 import Environment
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Link, Navigation
from mkdocs.structure.pages import Page
from mkdocs.structure.toc import get_toc
from mkdocs.utils import get_relative_url
from mkdocs_jupyter.config import settings
from nbconvert.filters.markdown_mistune import IPythonRenderer

from annotated_book.display._html import stylesheet
from annotated_book.display._live import fetched, modules
from press.run import scripts
from press.site import (
    answers,
    chapter_list,
    glossary,
    katex,
    lines,
    llms,
    pages,
    search,
    sheet,
    signs,
    start,
    takeaway,
)
from press.site.chapter_list import Chapter

log = logging.getLogger("mkdocs.book")
# Pages without links to the glossary: what leads elsewhere, and lists to look something up in.
PLAIN = {"index", "symptoms", "messages", "questions", "reasons", "loaded-model"}
PLAIN |= {"codes", "glossary", "references", "contributing", sheet.NAME}
NAMED = "cell-id="  # as JupyterLab leads to a cell; its page leads to the same name
REFERENCES = re.compile(r'<link rel="stylesheet" href="[^"]*/_mkdocstrings\.css">\s*')
BOOST = 1.3  # a chapter is found before pages of reference


class Notebook(File):
    """An executed notebook, which MkDocs is to take for a page."""

    def is_documentation_page(self) -> bool:
        """Say that it is one."""
        return True


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Use our own notebook template, and put the chapters into the navigation."""
    settings.templates_dir = str(Path(__file__).parent / "nbconvert")
    renderer: Any = IPythonRenderer
    renderer.inline_math = lambda self, tex: katex.mark(tex, display=False)
    renderer.block_math = lambda self, tex: katex.mark(tex, display=True)
    config.extra["chapters"] = chapter_list.read(config.extra["parts"])
    parts: dict[str, list[dict[str, str]]] = {}
    for chapter in config.extra["chapters"].values():
        page = {chapter.label: f"notebooks/{chapter.name}.ipynb"}
        parts.setdefault(chapter.part, []).append(page)
    assert config.nav is not None
    book = next(pages for entry in config.nav for pages in entry.values() if "chapters" in pages)
    at = book.index("chapters")
    alone = parts.pop("", [])  # what is in no part
    book[at : at + 1] = [*alone, *({part: pages} for part, pages in parts.items())]
    config.extra["repository"] = config.extra["repository"] or ""  # set and empty reads as None
    return config


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """List two pages under a second tab, too: a page belongs to one, and is linked from others."""
    for section in nav.items:
        if section.title == "Look up" and section.children:
            links = [Link(name, f"{name.lower()}/") for name in ("Symptoms", "Messages")]
            section.children[1:1] = links
    return nav


def _complain(page: Page, what: str) -> None:
    log.warning(f"{page.file.src_uri}: {what}")  # which fails a strict build


@event_priority(-100)  # after the notebook plugin, which would give pages other addresses
def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what was executed as pages, and what else a page loads or offers."""

    def add(path: str, content: str | bytes) -> None:
        files.append(File.generated(config, path, content=content))

    for script in sorted(scripts.CHAPTERS.glob("*.py")):
        page = Notebook(
            f"notebooks/{script.stem}.ipynb",
            src_dir=str(scripts.EXECUTED.parent),
            dest_dir=config.site_dir,
            use_directory_urls=config.use_directory_urls,
            dest_uri=f"{chapter_list.address(script.stem)}index.html",
        )
        files.append(page)
        for path, text in takeaway.files(script, config.extra["repository"]).items():
            add(path, text)
    add(takeaway.ARCHIVE, takeaway.archive())
    add("assets/styles.css", _styles())
    for path, content in (modules() | fetched()).items():
        add(f"assets/live/{path}", content)
    return files


def _styles() -> str:
    """Join what dresses formulas, outputs and the book: no page is drawn before all of it."""
    assets = scripts.ROOT / "docs" / "assets"
    formulas = (assets / "katex" / "katex.min.css").read_text(encoding="utf-8")
    book = (assets / "book.css").read_text(encoding="utf-8")
    return "\n".join([formulas.replace("url(fonts/", "url(katex/fonts/"), stylesheet(), book])


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Say what a chapter is about; let pages link to chapters as they lie in the repository."""
    if chapter := config.extra["chapters"].get(page.file.name):
        page.meta["description"] = f"{chapter.question} {chapter.after}"
        page.meta["search"] = {"boost": BOOST}
        page.meta["tags"] = list(chapter.sought)  # no page shows them: the search reads them
        if chapter.number:
            page.meta["status"] = "chapter"  # room for a tick in the navigation
    elif page.file.name == sheet.NAME:
        page.meta["description"] = sheet.ABOUT
        page.meta["hide"] = ["toc"]  # one look shows what there is
    elif page.file.name == "symptoms":
        markdown = signs.write(markdown, functools.partial(_complain, page))
    elif page.file.name == "codes":
        markdown = signs.reference(markdown)
    markdown = markdown.replace(f".ipynb#{NAMED}", ".ipynb#")
    # In the repository the pages lie one folder deeper than the notebooks' pages are here.
    return re.sub(r"\]\(\.\./((?:\.\./)*notebooks/)", r"](\1", markdown)


@event_priority(-100)  # last: everything that makes content has run
def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Mend one page."""
    if page.file.src_uri == "index.md":
        chapters, repository = config.extra["chapters"], config.extra["repository"]
        content = start.fill(content, chapters, repository, config.site_url or "")
    soup, aside = pages.parse(lines.fill(content))
    complain = functools.partial(_complain, page)
    if isinstance(page.file, Notebook):
        for unknown in soup.select(".aa-unknown-output"):
            complain(f"an output that the site cannot show: {unknown.text}")
        page.toc = get_toc(pages.mend_headings(soup, complain))
        _mend_links(soup, page, files)
    pages.fold(soup, complain)
    pages.dress_callouts(soup)
    pages.colour_words(soup)
    if isinstance(page.file, Notebook):
        _add_what_a_chapter_needs(soup, page, config)
        page.present_anchor_ids = {str(tag["id"]) for tag in soup.find_all(id=True)}
    if page.file.name not in PLAIN and not page.file.src_uri.startswith("package/"):
        glossary.mark(soup, get_relative_url("glossary/", page.url))
    return pages.write(soup, aside)


def _add_what_a_chapter_needs(soup: BeautifulSoup, page: Page, config: MkDocsConfig) -> None:
    name, root = page.file.name, "../" * page.url.count("/")
    offer = takeaway.links(name, root, config.extra["repository"])
    if name == sheet.NAME:
        sheet.lay_out(soup, offer)
        return
    cells = scripts.executed(name).cells
    sources = {cell.id: cell.source for cell in cells}
    answers.ask(soup, sources)
    pages.name_folded_code(soup, sources)
    pages.put_figures_first(soup)
    chapters: dict[str, Chapter] = config.extra["chapters"]
    links = {
        other: f'<a href="{root}{chapter_list.address(other)}">{chapters[other].label}</a>'
        for other in chapters[name].builds_on
    }
    pages.introduce(soup, chapters[name], links, offer)
    pages.pair_notes_with_code(soup)


def _mend_links(soup: BeautifulSoup, page: Page, files: Files) -> None:
    """Lead links between notebooks to their pages, and let MkDocs check the anchors."""
    anchors: dict[File, dict[str, str]] = {}
    for link in soup.find_all("a", href=True):
        href = str(link["href"])
        parts = urlsplit(href)
        if parts.scheme or parts.netloc:
            continue
        target, anchor = page.file, unquote(parts.fragment).removeprefix(NAMED)
        if parts.path:
            # As in the repository: chapters beside this one, other pages under ../docs.
            path = posixpath.normpath(posixpath.join("notebooks", unquote(parts.path)))
            found = files.get_file_from_path(path.removeprefix("docs/"))
            if found is None:
                _complain(page, f"the link {href!r} leads nowhere")
                continue
            target = found
            relative = get_relative_url(target.url, page.url)
            link["href"] = relative + (f"#{anchor}" if anchor else "")
            _say_where_to(link, target)
        elif anchor:
            link["href"] = f"#{anchor}"
        if anchor:
            anchors.setdefault(target, {})[anchor] = href
    page.links_to_anchors = anchors  # MkDocs checks them once every page is known


def _say_where_to(link: Tag, target: File) -> None:
    """Name the chapter behind a link, for paper; its number only where the text does not say it."""
    number, dot, title = str(target.page.title if target.page else "").partition(" · ")
    if dot and title.lower() not in link.text.lower():
        link["data-to"] = title if number in link.text.split() else f"chapter {number}, {title}"


def on_env(env: Environment, config: MkDocsConfig, files: Files) -> Environment:
    """List the pages for language models, now that each knows what it is about."""
    listed, page = [], files.src_uris["index.md"].page
    while page:
        *_, section = ["", *(str(x.title) for x in page.ancestors)]
        address = (config.site_url or "") + (page.url or "./")
        listed.append((section, str(page.title), address, page.meta.get("description", "")))
        page = page.next_page
    text = llms.write(config.site_name, config.site_description or "", listed)
    files.append(File.generated(config, llms.PATH, content=text))
    return env


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Typeset the formulas of a page; without references, it needs no styles of references."""
    if not page.file.src_uri.startswith("package/"):
        output = REFERENCES.sub("", output)
    return katex.typeset(output, functools.partial(_complain, page))


def on_post_build(config: MkDocsConfig) -> None:
    """Let the search find more than prose: its plugin has written what it finds."""
    index = Path(config.site_dir) / "search" / "search_index.json"
    found = search.widen(json.loads(index.read_text(encoding="utf-8")))
    index.write_text(json.dumps(found, separators=(",", ":")), encoding="utf-8")
