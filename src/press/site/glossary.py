"""Links terms to the glossary: the first use of each on a page, where prose uses it.

The glossary is ``docs/glossary.md``. Each of its entries has an id, may list in ``data-words`` the
words that it is found by, and ends with a link to the chapter that shows it. What stands before
that link is what a page shows of it.
"""

import functools
import re
from dataclasses import dataclass

from bs4 import BeautifulSoup, Tag
from bs4.element import NavigableString

from press.run import scripts

PAGE = scripts.ROOT / "docs" / "glossary.md"
ENTRY = re.compile(
    r'^(?P<term>\S[^\n]*?) \{ #(?P<id>[\w-]+)(?: data-words="(?P<words>.*?)")? \}\n'
    r":   (?P<text>.*?) *\n? *\[Chapter (?P<chapter>\d+)\]",
    re.MULTILINE | re.DOTALL,
)
PROSE = ("p", "li", "dd", "td")
NOT_PROSE = {"a", "button", "figure", "pre", "summary", "svg", "h1", "h2", "h3", "strong", "b"}
NOT_TEXT = {"aa-out", "aa-run", "aa-after", "aa-finish", "arithmatex"}


@dataclass(frozen=True)
class Entry:
    """One term: its anchor, the words that it is found by, and what it means, in plain text."""

    anchor: str
    words: tuple[str, ...]
    text: str


def read() -> list[Entry]:
    """List the entries of the glossary, in its order."""
    found = []
    for entry in ENTRY.finditer(PAGE.read_text(encoding="utf-8")):
        term, words = entry["term"], entry["words"]
        found_by = [term] if not words else [*words.split(", "), *([term] * term.startswith("`"))]
        text = " ".join(entry["text"].replace("`", "").split())
        found.append(Entry(entry["id"], tuple(word.lower() for word in found_by), text))
    return found


def mark(soup: BeautifulSoup, glossary: str) -> None:
    """Make the first use of each term a link that carries its meaning.

    A paragraph that sets a term in bold explains it, and links only others.

    Args:
        soup: the content of a page.
        glossary: the relative address of the glossary.
    """
    entries, pattern = _words()
    seen: set[str] = set()

    def new_link(entry: Entry) -> Tag:
        seen.add(entry.anchor)
        attributes = {"class": "aa-term", "data-means": entry.text}
        return soup.new_tag("a", href=f"{glossary}#{entry.anchor}", attrs=attributes)

    for text in soup.find_all(string=True) if entries else []:
        paragraph = _paragraph(text)
        if paragraph is None or text.parent is None:
            continue
        bold = " ".join(tag.text for tag in paragraph.find_all(["strong", "b"]))
        known = seen | {entries[word.lower()].anchor for word in pattern.findall(bold)}
        if text.parent.name == "code":
            entry = entries.get(f"`{text}`".lower()) or entries.get(text if "_" in text else "")
            if entry and entry.anchor not in known:
                text.parent.wrap(new_link(entry))
            continue
        parts: list[NavigableString | Tag] = []
        end = 0
        for word in pattern.finditer(text):
            entry = entries[word[0].lower()]
            if entry.anchor not in known | seen:
                link = new_link(entry)
                link.string = word[0]
                parts += [NavigableString(text[end : word.start()]), link]
                end = word.end()
        if parts:
            text.replace_with(*parts, NavigableString(text[end:]))


@functools.cache
def _words() -> tuple[dict[str, Entry], re.Pattern[str]]:
    """Give the entry of each word, and what finds those that are not code."""
    entries = {word: entry for entry in read() for word in entry.words}
    plain = sorted((re.escape(word) for word in entries if word[0] != "`"), key=len, reverse=True)
    return entries, re.compile(
        rf"(?<![\w-])(?<!arrow )(?:{'|'.join(plain)})(?![\w-])", re.IGNORECASE
    )


def _paragraph(text: NavigableString) -> Tag | None:
    """Give the paragraph that a text belongs to, or None where it is not prose."""
    above = [parent for parent in text.parents if isinstance(parent, Tag)]
    classes = {name for parent in above for name in parent.get_attribute_list("class")}
    if classes & NOT_TEXT or NOT_PROSE & {parent.name for parent in above}:
        return None
    return next((parent for parent in above if parent.name in PROSE), None)
