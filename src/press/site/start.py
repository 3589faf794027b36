"""Fills in what the first page is built with: figures, the class, the chapters, its address."""

import re
from collections.abc import Mapping
from html import escape

from annotated_attention import __version__
from annotated_book import chapters as book
from annotated_book import display
from press.site import chapter_list

PLACE = re.compile(r"<!-- (cat|class|chapters|repository|version|address) -->")


def fill(
    page: str, chapters: Mapping[str, chapter_list.Chapter], repository: str, site: str
) -> str:
    """Put each piece into its place.

    Args:
        page: HTML, with comments that name the pieces.
        chapters: those of the book.
        repository: its address, or empty.
        site: the site's own, or empty.
    """
    pieces = {
        "cat": lambda: display.first_look(name="cat").html,
        "class": lambda: display.source(book.load(chapter_list.SHORT_PATH).PlainAttention).html,
        "chapters": lambda: chapter_list.as_list(chapters),
        "repository": lambda: _link(repository, "the repository"),
        "version": lambda: __version__,
        "address": lambda: _link(site or repository, site or repository),
    }
    return PLACE.sub(lambda found: pieces[found[1]](), page)


def _link(address: str, text: str) -> str:
    return f'<a href="{escape(address)}">{escape(text)}</a>' if address else escape(text)
