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


def test_sources_name_chapters_by_their_titles():
    for path in SOURCES:
        found = re.search(NUMBER, path.read_text(encoding="utf-8"))
        assert not found, f"{path.relative_to(scripts.ROOT)}: give the title, not {found[0]!r}"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_number_beside_a_link_is_that_chapters(path):
    """In the text of the link, and before it."""
    text = path.read_text(encoding="utf-8")
    for before, inside, name in re.findall(rf"(?:{NUMBER}\W{{0,4}})?{LINK}", text):
        numbers = re.findall(NUMBER, inside) + [before] * bool(before)
        assert all(int(number) == int(name) for number in numbers), inside
