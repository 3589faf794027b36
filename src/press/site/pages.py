"""Mends the content of a page: headings, code, folds, call-outs, what stands above a chapter.

A chapter's title is made in ``chapter_list``, and that of the browser's tab in ``docs/overrides``.
"""

import itertools
import re
from collections.abc import Callable, Mapping
from html import escape, unescape
from typing import Any, cast

from bs4 import BeautifulSoup, Comment, Tag
from bs4.element import AttributeValueList
from markdown.extensions.toc import nest_toc_tokens, slugify

from annotated_book.display._html import highlighted
from annotated_book.display.colours import colour_shapes
from press.site.chapter_list import ABOUT, Chapter

# Set aside while a page is parsed: the parser would write SVG's mixed-case names in lower case, and
# take as long for the thousand elements of highlighted code as for all the rest.
ASIDE = re.compile(r"<svg.*?</svg>|<pre.*?</pre>", re.DOTALL)
SOURCE = '<pre class="aa-source">'
PLACE = re.compile(r'<aa-aside n="(\d+)"></aa-aside>')
# As marks of a fold say; what one answers before one opens it, and what a first reader may skip.
DEEPER = re.compile(r" (?:(?P<opens>answer|deeper: (?P<title>.+))|/(?:answer|deeper)) ")
CODE = re.compile(r"`([^`]+)`")  # as in Markdown: a proof's line is printed by its cell
GOING_DEEPER, ANSWER, PROVED = "Going deeper", "Answer aloud, then open", "✓"
KINDS = {  # of folds
    "What do you expect?": ["aa-expect"],
    GOING_DEEPER: ["aa-deeper"],
    ANSWER: ["aa-deeper"],
}
# The letters of the notation whose colour a word of the prose wears where it is stressed.
WEAR = {
    **dict.fromkeys(("query", "queries"), "n"),
    **dict.fromkeys(("key", "keys", "value", "values", "keys and values"), "m"),
    **dict.fromkeys(("head", "heads", "head 1", "head 2", "number of heads"), "h"),
    **dict.fromkeys(("batch", "batch size"), "b"),
    **dict.fromkeys(("head width", "width of a head"), "d"),
}
SHOW_CODE = "Show the code"
SHOWN = {".aa-shown": " that makes this table", "figure": " that draws this"}  # by selector
# Shown where there is room for it, in reach on the whole page; assets/reading.js answers it.
SIDE_BY_SIDE = """<div class="aa-ways" data-search-exclude>
<button type="button" class="aa-menu-button" aria-expanded="false">Menu</button>
<button type="button" class="aa-beside-button" aria-pressed="false"
 title="Notes on the left, code on the right">Notes beside code</button>
</div>"""
# Its room is reserved; it shows where progress.js can remember it.
FINISH = """<p class="aa-finish" data-search-exclude>
<label><input type="checkbox" autocomplete="off">I have finished this chapter</label>
<small>remembered by this browser alone</small>
</p>"""


def parse(content: str) -> tuple[BeautifulSoup, list[str]]:
    """Parse a page's content, and set aside its pictures and its code, highlighted."""
    aside = [_highlight(part) for part in ASIDE.findall(content)]
    numbers = itertools.count()
    left = ASIDE.sub(lambda _: f'<aa-aside n="{next(numbers)}"></aa-aside>', content)
    soup = BeautifulSoup(left, "html.parser")
    for style in soup.find_all("style"):
        style.decompose()
    return soup, aside


def write(soup: BeautifulSoup, aside: list[str]) -> str:
    """Write what ``parse`` gave, with what was set aside and is still asked for."""
    return colour_shapes(PLACE.sub(lambda found: aside[int(found[1])], str(soup)))


def _highlight(part: str) -> str:
    if not part.startswith(SOURCE):
        # In prose the notebook engine leaves out the element that the theme dresses.
        in_prose = part.startswith("<pre><span></span>") and "<code>" not in part
        return f"<pre><code>{part[5:-6]}</code></pre>" if in_prose else part
    source = unescape(part.removeprefix(SOURCE).removesuffix("</pre>"))
    return highlighted(source)


def mend_headings(soup: BeautifulSoup, complain: Callable[[str], None]) -> list[Any]:
    """Give every heading an anchor; return the table of contents as Python-Markdown has it.

    The heading that a cell begins with has the cell's name for its anchor, if it has one.
    """
    named: dict[int, str] = {}
    for mark in soup.select("a.aa-name"):
        begins = mark.find_next_sibling()
        if isinstance(begins, Tag) and begins.name == "details":
            begins = begins.find(re.compile("^h[1-6]$"))
        if isinstance(begins, Tag) and _level(begins):
            named[id(begins)] = str(mark["id"])
            mark.decompose()
    taken = set(named.values()) | {
        str(tag["id"]) for tag in soup.find_all(id=True) if not _level(tag)
    }
    contents: list[Any] = []
    for heading in soup.find_all(re.compile("^h[1-6]$")):
        for link in heading.select("a.anchor-link"):
            link.decompose()
        if heading.select(".arithmatex"):
            complain(f"a formula in the heading {heading.text!r}")
        title = heading.text.strip()
        anchor = named.get(id(heading)) or _free(slugify(title, "-"), taken)
        taken.add(anchor)
        heading["id"] = anchor
        link = soup.new_tag("a", href=f"#{anchor}", title="Permanent link")
        link["class"] = "headerlink"
        link.string = "¶"
        heading.append(link)
        name = title.removeprefix(f"{GOING_DEEPER}: ")
        contents.append({"level": _level(heading), "id": anchor, "name": name})
    return list(nest_toc_tokens(contents))


def _free(slug: str, taken: set[str]) -> str:
    anchor, count = slug, 1
    while anchor in taken:
        count += 1
        anchor = f"{slug}-{count}"
    return anchor


def _level(tag: Tag) -> int:
    return int(tag.name[1]) if re.fullmatch("h[1-6]", tag.name) else 0


def fold(soup: BeautifulSoup, complain: Callable[[str], None]) -> None:
    """Fold what stands between the marks of ``DEEPER``, and say of every fold what it holds."""
    outer: Tag | None = None
    for part in list(soup.contents):
        marker = DEEPER.fullmatch(part) if isinstance(part, Comment) else None
        if marker is None:
            if outer is not None:
                outer.append(part.extract())
        elif (marker["opens"] is None) == (outer is None):
            complain(f"<!--{part}--> " + ("ends no fold" if outer is None else "is in a fold"))
        elif outer is None:
            outer, summary = Tag(name="details"), Tag(name="summary")
            title = marker["title"]
            summary.append(f"{GOING_DEEPER}: {title}" if title else ANSWER)
            outer.append(summary)
            part.replace_with(outer)
        else:
            part.extract()
            outer = None
    if outer is not None:
        complain(f"nothing ends the fold {outer.contents[0].text!r}")
    for summary in soup.select("details > summary:first-child"):
        title, details = summary.text.strip(), cast(Tag, summary.parent)
        kinds = ["aa-proof"] if title.startswith(PROVED) else KINDS.get(title.partition(":")[0], [])
        if details.get("name"):  # one answer of several, of which one is open at a time
            kinds = ["aa-choice"]
        details["class"] = AttributeValueList(["aa-fold", *kinds])
        if kinds == ["aa-proof"]:
            line = CODE.sub(r"<code>\1</code>", escape(title, quote=False))
            summary.clear()
            summary.append(BeautifulSoup(line, "html.parser"))
        heading = details.find(re.compile("^h[2-6]$"))
        if heading is not None and heading.text.removesuffix("¶") == title:  # said for Jupyter
            for link in heading.select(".headerlink"):
                link.decompose()
            summary.clear()
            summary.append(heading.extract())


def colour_words(soup: BeautifulSoup) -> None:
    """Let words that are stressed in the prose wear the colour of what they name.

    ``*queries*`` is blue on the page, as queries are in figures and shapes; in Jupyter it is a
    stressed word like others.
    """
    for word in soup.select(":is(p, li, td, figcaption) :is(em, strong)"):
        if letter := WEAR.get(word.text.lower().rstrip(".,:;")):
            word["class"] = f"dim-{letter}"


def name_folded_code(soup: BeautifulSoup, sources: Mapping[str, str]) -> None:
    """Say of folded code what it is: what it defines, or what the cell shows.

    Args:
        soup: the content of a chapter's page.
        sources: the code of each cell, by its id.
    """
    for summary in soup.select(".aa-cell > details > summary"):
        cell = cast(Tag, cast(Tag, summary.parent).parent)
        if summary.text != SHOW_CODE:
            continue
        defined = re.findall(r"^(?:def|class) (\w+)", sources[str(cell["data-cell"])], re.MULTILINE)
        shown = next((what for what in SHOWN if cell.select_one(f".aa-out {what}")), "")
        if defined:
            names = " and ".join(f"<code>{name}</code>" for name in defined[:2])
            names += ", …" * (len(defined) > 2)
            summary.append(BeautifulSoup(f" of {names}", "html.parser"))
        elif shown:
            imports = re.search(r"^(?:import|from) ", sources[str(cell["data-cell"])], re.MULTILINE)
            what = "the imports and the code" if imports else "the code"
            summary.string = f"Show {what}{SHOWN[shown]}"


def put_figures_first(soup: BeautifulSoup) -> None:
    """Put folded code that shows nothing behind what the next cell shows."""
    folded = ":is(.aa-tag-fold-input, .aa-tag-hide-input)"
    for cell in soup.select(f"{folded}:not(:has(> .aa-out))"):
        after = cell.find_next_sibling()
        if after is None or not after.css.match(folded):
            continue
        shown = after.select_one(":scope > .aa-out")
        after.insert(after.index(shown) + 1 if shown else 0, cell.extract())


def dress_callouts(soup: BeautifulSoup) -> None:
    """Mark the block quotes that begin with bold words."""
    for quote in soup.find_all("blockquote"):
        first = next((part for part in quote.stripped_strings), "")
        strong = quote.find("strong")
        if strong is not None and strong.text.strip() == first and first[-1:] in {".", "?"}:
            quote["class"] = f"aa-callout aa-{slugify(first, '-')}"


def introduce(soup: BeautifulSoup, chapter: Chapter, links: Mapping[str, str], offer: str) -> None:
    """Say below the title how long it takes, what it builds on, what it gives and where it lies.

    Args:
        soup: the content of the chapter's page.
        chapter: what is known of it.
        links: to the chapters that it builds on, by name.
        offer: the links to what readers take along.
    """
    needs = [links[name] for name in chapter.builds_on] or ["matrix products and a little PyTorch"]
    lines = f"""<div class="aa-intro" data-search-exclude>
<p class="aa-run">{chapter.minutes} · builds on {" and ".join(needs)} ·
{offer}</p>
<p class="aa-after"><b>Afterwards</b> {chapter.after[0].lower()}{chapter.after[1:]}</p>
</div>"""
    for emphasis in soup.select("p > em:only-child"):
        if ABOUT.fullmatch(f"*{emphasis.text}*"):  # said for Jupyter
            cast(Tag, emphasis.parent).decompose()
            break
    if soup.h1:
        soup.h1.insert_after(BeautifulSoup(lines, "html.parser"))
    intro = soup.select_one(".aa-intro")
    if intro:
        intro.insert_after(BeautifulSoup(SIDE_BY_SIDE, "html.parser"))
    if chapter.number:
        soup.append(BeautifulSoup(FINISH, "html.parser"))


def pair_notes_with_code(content: Tag) -> None:
    """Put each note and the cells that it introduces into one row, in the order they stand in.

    The stylesheet leaves rows alone until the reader asks for notes and code side by side.
    Headings stand between rows, and so does what needs the whole width of the page. A fold with
    cells of its own has rows of its own.
    """
    row: Tag | None = None
    for part in [part for part in content.contents if isinstance(part, Tag)]:
        classes = part.get_attribute_list("class")
        if "aa-deeper" in classes and part.select_one(".aa-cell"):
            pair_notes_with_code(part)
            row = None
            continue
        apart = {"aa-intro", "aa-finish", "aa-ways"}.intersection(classes) or part.name == "summary"
        if _level(part) or apart or part.select_one(".aa-map, .aa-annotated"):
            row = None
            continue
        cell = "aa-cell" in classes
        if row is None or (not cell and row.select_one(".aa-show")):
            row = Tag(name="div", attrs={"class": "aa-pair"})
            part.insert_before(row)
        side = "aa-show" if cell else "aa-say"
        place = row.find(class_=side, recursive=False)
        if not isinstance(place, Tag):
            place = Tag(name="div", attrs={"class": side})
            row.append(place)
        place.extend([part.extract(), "\n"])
        if "aa-expect" in classes:
            row = None  # the answer does not stand beside its question
