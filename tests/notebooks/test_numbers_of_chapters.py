"""Chapters change places: what names one by its number must say so where the number can be seen."""

import re

import pytest

from book.run import scripts

SOURCES = sorted(
    path for ending in ("py", "js", "css") for path in (scripts.ROOT / "src").rglob(f"*.{ending}")
)
PAGES = sorted(
    path
    for pattern in ("notebooks/*.py", "docs/**/*.md", "README.md")
    for path in scripts.ROOT.glob(pattern)
)
NUMBER = r"[Cc]hapters?\s+#?\s*(\d+)"
LINK = r"\[([^\[\]]*)\]\((?:[^\s()]*/)?(\d\d)_\w+\.ipynb[^()]*\)"


def wrong_numbers(text):
    """Yield each link to a chapter with a number in its text, or before it, that is another's."""
    for before, inside, name in re.findall(rf"(?:{NUMBER}\W{{0,4}})?{LINK}", text):
        found = re.findall(NUMBER, inside) + [before] * bool(before)
        yield from (f"chapter {x}: {inside}" for x in found if int(x) != int(name))


def test_sources_name_chapters_by_their_titles():
    for path in SOURCES:
        found = re.search(NUMBER, path.read_text(encoding="utf-8"))
        assert not found, f"{path.relative_to(scripts.ROOT)}: give the title, not {found[0]!r}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_number_beside_a_link_is_that_chapters(path):
    assert list(wrong_numbers(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("see [chapter 6](06_masks.ipynb#x)", 0),
        ("see [chapter 7](06_masks.ipynb#x) and [Chapter 5](../notebooks/05_batches.ipynb)", 1),
        ("see chapter 14, [Published code](16_published_code.ipynb), 16 times", 1),
    ],
)
def test_a_stale_number_is_seen(text, count):
    assert len(list(wrong_numbers(text))) == count
