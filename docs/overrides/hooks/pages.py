"""Mends the content of each page: headings, contents, links, code, call-outs.

The notebook plugin leaves MkDocs without a chapter's headings, links and anchors. Here they are
handed over, so that MkDocs' own strict checks see a chapter as they see any page.
"""

import logging
import posixpath
import re
from html import unescape
from typing import Any
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup, Tag
from markdown.extensions.toc import slugify
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.structure.toc import get_toc
from mkdocs.utils import get_relative_url

from annotated_attention.display._html import code_block, highlight_lines
from annotated_attention.display.shapes import colour_shapes
from book import glossary, takeaway

log = logging.getLogger("mkdocs.pages")
# Set aside while a page is parsed: the parser would write SVG's mixed-case names in lower case, and
# take as long for the thousand elements of highlighted code as for all the rest.
ASIDE = re.compile(r"<svg.*?</svg>|<pre.*?</pre>", re.DOTALL)
SOURCE = '<pre class="aa-source">'
PLACE = "<aa-aside></aa-aside>"
VIEW_BOX = re.compile(r'^<svg[^>]*viewbox="0 0 ([\d.]+) ([\d.]+)"', re.IGNORECASE)
# Pages without links to the glossary: what leads elsewhere, and lists to look something up in.
PLAIN = {"index", "glossary", "api", "references", "contributing", "cheat_sheet"}
# Shown where there is room for it; assets/reading.js answers it.
SIDE_BY_SIDE = (
    '<button type="button" class="aa-beside-button" aria-pressed="false" data-search-exclude'
    ' title="Notes on the left, code on the right">Side by side</button>'
)
END = "__config"  # the theme's last element
# Its room is reserved; it shows where progress.js can remember it.
FINISH = """<p class="aa-finish" data-search-exclude>
<label><input type="checkbox" autocomplete="off">I have finished this chapter</label>
<small>remembered by this browser alone</small>
</p>"""


@event_priority(-100)  # last: everything that makes content has run
def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Mend one page."""
    aside = [_finish(part) for part in ASIDE.findall(content)]
    soup = BeautifulSoup(ASIDE.sub(PLACE, content), "html.parser")
    for style in soup.find_all("style"):
        style.decompose()
    if page.file.src_uri.endswith(".ipynb"):
        _mend_chapter(soup, page, config, files)
    for fold in soup.find_all("details"):
        fold["class"] = "aa-fold"
    for quote in soup.find_all("blockquote"):
        _dress_callout(quote)
    if page.file.name != "cheat_sheet":  # which sheet.py lays out
        _wrap_tables(soup)
    if page.file.name not in PLAIN:
        glossary.mark(soup, get_relative_url("glossary/", page.url))
    first, *rest = str(soup).split(PLACE)
    return colour_shapes(first + "".join(map("".join, zip(aside, rest, strict=True))))


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Name the theme's search dialog, and see to it that nothing runs or is drawn too early."""
    sections = [section.id for title in page.toc for section in title.children]
    long = len(sections) > 1 and page.file.name != "cheat_sheet"  # whose cards share one grid
    return _draw_from(sections[1] if long else END, _mend_theme(output))


def on_post_template(output: str, template_name: str, config: MkDocsConfig) -> str:
    """Do the same where the theme makes a page of its own: 404.html."""
    return _draw_from(END, _mend_theme(output))


def _mend_theme(output: str) -> str:
    named = output.replace(' role="dialog"', ' role="dialog" aria-label="Search"')
    # All scripts but those that the first look of a page depends on wait until it has been drawn.
    start = r'<script src="\1assets/start.js" data-theme="\1\2">'
    return re.sub(r'<script src="(\S*?)(assets/javascripts/bundle\.\w+\.min\.js)">', start, named)


def _draw_from(anchor: str, output: str) -> str:
    """Let the browser begin to draw when it has read up to ``anchor``.

    The first it draws is else what it happens to have read: half a map, or half a formula, which
    moves when the other half comes. A browser that does not know this draws as it always did.
    """
    wait = f'<link rel="expect" blocking="render" href="#{anchor}">'
    return output.replace("</head>", f"{wait}</head>", 1)


def _finish(part: str) -> str:
    """Highlight a cell's source, and say how large code and figures are before they are drawn.

    What is far from the screen is not drawn, by book.css, and only keeps its room.
    """
    if size := VIEW_BOX.search(part):  # a figure
        ratio = f'style="aspect-ratio: {size[1]} / {size[2]}; min-width'
        return part.replace('style="min-width', ratio, 1)
    if part.startswith(SOURCE):
        source = unescape(part.removeprefix(SOURCE).removesuffix("</pre>"))
        part = code_block("\n".join(highlight_lines(source)))
        part = part.replace("<pre>", "<pre data-search-exclude>", 1)  # an excerpt is prose
    lines = part.count("\n") + 1
    return re.sub("(<pre[^>]*)><code>", rf'\1 style="--aa-lines: {lines}"><code>', part, count=1)


def _mend_chapter(soup: BeautifulSoup, page: Page, config: MkDocsConfig, files: Files) -> None:
    for unknown in soup.select(".aa-unknown-output"):
        log.warning(f"{page.file.src_uri}: an output that the site cannot show: {unknown.text}")
    _mend_headings(soup, page)
    _mend_links(soup, page, files)
    if not page.file.src_uri.endswith("/cheat_sheet.ipynb"):  # which sheet.py lays out
        _introduce(soup, page, config, files)
        _pair_notes_with_code(soup)
    page.present_anchor_ids = {str(tag["id"]) for tag in soup.find_all(id=True)}


def _mend_headings(soup: BeautifulSoup, page: Page) -> None:
    taken = {str(tag["id"]) for tag in soup.find_all(id=True) if not _level(tag)}
    contents: list[Any] = []
    for heading in soup.find_all(re.compile("^h[1-6]$")):
        for link in heading.select("a.anchor-link"):
            link.decompose()
        if heading.select(".arithmatex"):
            log.warning(f"{page.file.src_uri}: a formula in the heading {heading.text!r}")
        title = heading.text.strip()
        slug = anchor = slugify(title, "-")
        count = 1
        while anchor in taken:
            count += 1
            anchor = f"{slug}-{count}"
        taken.add(anchor)
        heading["id"] = anchor
        link = soup.new_tag("a", href=f"#{anchor}", title="Permanent link")
        link["class"] = "headerlink"
        link.string = "¶"
        heading.append(link)
        level = _level(heading)
        entry = {"level": level, "id": anchor, "name": title, "children": []}
        if level == 1:
            contents.append(entry)
        elif level == 2 and contents:
            contents[0]["children"].append(entry)
        elif level == 3 and contents and contents[0]["children"]:
            contents[0]["children"][-1]["children"].append(entry)
    page.toc = get_toc(contents)


def _level(tag: Tag) -> int:
    return int(tag.name[1]) if re.fullmatch("h[1-6]", tag.name) else 0


def _mend_links(soup: BeautifulSoup, page: Page, files: Files) -> None:
    anchors: dict[File, dict[str, str]] = {}
    for link in soup.find_all("a", href=True):
        href = str(link["href"])
        parts = urlsplit(href)
        if parts.scheme or parts.netloc:
            continue
        target = page.file
        if parts.path:
            # As in the repository: chapters beside this one, other pages under ../docs.
            path = posixpath.normpath(posixpath.join("notebooks", unquote(parts.path)))
            found = files.get_file_from_path(path.removeprefix("docs/"))
            if found is None:
                log.warning(f"{page.file.src_uri}: the link {href!r} leads nowhere")
                continue
            target = found
            relative = get_relative_url(target.url, page.url)
            link["href"] = relative + (f"#{parts.fragment}" if parts.fragment else "")
            _say_where_to(link, target)
        if parts.fragment:
            anchors.setdefault(target, {})[unquote(parts.fragment)] = href
    page.links_to_anchors = anchors  # MkDocs checks them once every page is known


def _say_where_to(link: Tag, target: File) -> None:
    """Name the chapter behind a link, for paper; its number only where the text does not say it."""
    number, dot, title = str(target.page.title if target.page else "").partition(" · ")
    if dot and title.lower() not in link.text.lower():
        link["data-to"] = title if number in link.text.split() else f"chapter {number}, {title}"


def _introduce(soup: BeautifulSoup, page: Page, config: MkDocsConfig, files: Files) -> None:
    """Say below the title how long it takes, what it builds on, what it gives and where it lies."""
    name = posixpath.basename(page.file.src_uri).removesuffix(".ipynb")
    title = soup.find("h1")
    if title is None:
        log.warning(f"{page.file.src_uri}: a chapter needs a heading of level 1")
        return
    chapters = {c["file"]: c | {"number": n} for n, c in enumerate(config.extra["chapters"], 1)}
    chapter = chapters[name]
    needs = [
        _link_to_chapter(chapters[needed], page, files) for needed in chapter["prerequisites"]
    ] or ["matrix products and a little PyTorch"]
    after = chapter["after"]
    lines = f"""<div class="aa-intro" data-search-exclude>
<p class="aa-run">{chapter["minutes"]} minutes · builds on {" and ".join(needs)} ·
{takeaway.links(page, config.extra)}{SIDE_BY_SIDE}</p>
<p class="aa-after"><b>Afterwards</b> {after[0].lower()}{after[1:]}</p>
</div>"""
    title.insert_after(BeautifulSoup(lines, "html.parser"))
    soup.append(BeautifulSoup(FINISH, "html.parser"))


def _link_to_chapter(chapter: dict[str, Any], page: Page, files: Files) -> str:
    label = f"{chapter['number']} · {chapter['title']}"
    file = files.get_file_from_path(f"notebooks/{chapter['file']}.ipynb")
    return (
        label if file is None else f'<a href="{get_relative_url(file.url, page.url)}">{label}</a>'
    )


def _pair_notes_with_code(soup: BeautifulSoup) -> None:
    """Put each note and the cells that it introduces into one row, in the order they stand in.

    The stylesheet leaves rows alone until the reader asks for notes and code side by side.
    Headings stand between rows, and so does what needs the whole width of the page.
    """
    row: Tag | None = None
    for part in [part for part in soup.contents if isinstance(part, Tag)]:
        classes = part.get_attribute_list("class")
        apart = {"aa-intro", "aa-finish"}.intersection(classes)
        if _level(part) or apart or part.select_one(".aa-map, .aa-annotated"):
            row = None
            continue
        cell = "aa-cell" in classes
        if row is None or (not cell and row.select_one(".aa-show")):
            row = soup.new_tag("div", attrs={"class": "aa-pair"})
            part.insert_before(row)
        side = "aa-show" if cell else "aa-say"
        place = row.find(class_=side, recursive=False)
        if not isinstance(place, Tag):
            place = soup.new_tag("div", attrs={"class": side})
            row.append(place)
        place.extend([part.extract(), "\n"])


def _wrap_tables(soup: BeautifulSoup) -> None:
    """Give each plain table the place to scroll in that the theme's script would give it.

    The script comes late, and its wrapping moves everything below. It still wraps, and the
    stylesheet takes what it adds out of the layout.
    """
    for table in soup.find_all("table", class_=False):
        table.wrap(soup.new_tag("div", attrs={"class": "md-typeset__scrollwrap"}))
        table.wrap(soup.new_tag("div", attrs={"class": "md-typeset__table"}))


def _dress_callout(quote: Tag) -> None:
    first = next((part for part in quote.stripped_strings), "")
    strong = quote.find("strong")
    if strong is not None and strong.text.strip() == first and first[-1:] in {".", "?"}:
        quote["class"] = f"aa-callout aa-{slugify(first, '-')}"
