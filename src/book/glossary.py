"""Links terms to the glossary: the first use of each on a page, where prose uses it.

The glossary is ``docs/glossary.md``. Each of its entries has an id, may list in ``data-words`` the
words that it is found by, and ends with a link to the chapter that shows it. What stands before
that link is what a page shows of it.
"""

import functools
import re
from dataclasses import dataclass

from bs4 import BeautifulSoup, NavigableString, Tag

from book import scripts

PAGE = scripts.ROOT / "docs" / "glossary.md"
ENTRY = re.compile(
    r'^(?P<term>\S.*?) \{ #(?P<id>[\w-]+)(?: data-words="(?P<words>.*?)")? \}\n'
    r":   (?P<text>.*?) *\n? *\[Chapter (?P<chapter>\d+)\]",
    re.MULTILINE | re.DOTALL,
)
PROSE = {"p", "li", "dd", "td"}
NOT_PROSE = {"a", "button", "code", "figure", "pre", "summary", "svg", "h1", "h2", "h3", "h4"}
NOT_TEXT = {"aa-out", "aa-run", "aa-intro", "aa-finish", "arithmatex"}
DEFINES = {"strong", "b"}


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
        words = (entry["words"] or entry["term"]).replace("`", "").lower().split(", ")
        text = " ".join(entry["text"].replace("`", "").split())
        found.append(Entry(entry["id"], tuple(words), text))
    return found


def mark(soup: BeautifulSoup, glossary: str) -> None:
    """Make the first use of each term a link that carries its meaning.

    A term that a page sets in bold is explained there, and is not linked.

    Args:
        soup: the content of a page.
        glossary: the relative address of the glossary.
    """
    entries, pattern = _words()
    seen: set[str] = set()
    for text in soup.find_all(string=pattern) if entries else []:
        if not isinstance(text, NavigableString) or not _is_prose(text):
            continue
        defines = any(parent.name in DEFINES for parent in text.parents)
        parts: list[NavigableString | Tag] = []
        end = 0
        for word in pattern.finditer(text):
            entry = entries[word[0].lower()]
            if entry.anchor in seen:
                continue
            seen.add(entry.anchor)
            if not defines:
                link = soup.new_tag("a", href=f"{glossary}#{entry.anchor}")
                link["class"], link["data-means"] = "aa-term", entry.text
                link.string = word[0]
                parts += [NavigableString(text[end : word.start()]), link]
                end = word.end()
        if parts:
            text.replace_with(*parts, NavigableString(text[end:]))


@functools.cache
def _words() -> tuple[dict[str, Entry], re.Pattern[str]]:
    entries = {word: entry for entry in read() for word in entry.words}
    longest_first = sorted(map(re.escape, entries), key=len, reverse=True)
    return entries, re.compile(rf"(?<![\w-])(?:{'|'.join(longest_first)})(?![\w-])", re.IGNORECASE)


def _is_prose(text: NavigableString) -> bool:
    above = [parent for parent in text.parents if isinstance(parent, Tag)]
    classes = {name for parent in above for name in parent.get_attribute_list("class")}
    names = {parent.name for parent in above}
    return bool(names & PROSE) and not names & NOT_PROSE and not classes & NOT_TEXT
