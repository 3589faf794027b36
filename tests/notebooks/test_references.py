"""What a chapter or a docstring cites is among the references, under its name."""

import re
from collections.abc import Iterator

import pytest

from book.run import scripts

REFERENCES = scripts.ROOT / "docs" / "references.md"
CITING = sorted(
    path
    for pattern in ("notebooks/*.py", "docs/*.md", "README.md")
    for path in scripts.ROOT.glob(pattern)
    if path != REFERENCES
)
SOURCES = sorted((scripts.ROOT / "src").rglob("*.py"))
ENTRY = re.compile(r"^([^#\n][^{\n]*?) \{ #([\w-]+) \}\n:   ", re.MULTILINE)
MARK = re.compile(r"\[(?P<said>[^\[\]]*)\]\([^()]*?references\.md#(?P<anchor>[\w-]+)\)")
BY_NAME = re.compile(r"\b([A-ZŁ][a-zé]+)(?: et al\.| and [A-ZŁ][a-zé]+)? \((\d{4})\)")


def entries(text: str) -> dict[str, str]:
    """Give each entry's heading by its anchor."""
    return {anchor: heading for heading, anchor in ENTRY.findall(text)}


def marks(text: str) -> Iterator[tuple[str, str]]:
    """Yield what each citation says, and the anchor that it leads to."""
    text = re.sub(r"\s*\n(?:# ?)?", " ", text)  # a mark may be broken between lines
    for found in MARK.finditer(text):
        yield found["said"], found["anchor"]


def wrong_marks(text: str, there: dict[str, str]) -> list[str]:
    """Name the citations without an entry, and those that name another author or year."""
    wrong = []
    for said, anchor in marks(text):
        heading = there.get(anchor)
        if heading is None:
            wrong.append(f"{said}: no entry #{anchor}")
        elif year := re.search(r" (\d{4})$", heading):
            other = re.search(r"\b\d{4}\b", said)
            if said.split()[0] != heading.split()[0] or (other and other[0] != year[1]):
                wrong.append(f"{said}: the entry is {heading}")
    return wrong


THERE = entries(REFERENCES.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", CITING, ids=lambda path: path.name)
def test_each_citation_leads_to_its_entry(path) -> None:
    assert wrong_marks(path.read_text(encoding="utf-8"), THERE) == []


def test_docstrings_cite_what_is_there() -> None:
    cited = {
        f"{name.lower()}-{year}": path.name
        for path in SOURCES
        for name, year in BY_NAME.findall(path.read_text(encoding="utf-8"))
    }
    assert {anchor: file for anchor, file in cited.items() if anchor not in THERE} == {}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("[[Vaswani et al., section 3](../docs/references.md#vaswani-2017)]", 0),
        ("[[Vaswani\n# et al. 2017](../docs/references.md#vaswani-2017)]", 0),
        ("[[Vaswani et al. 2018](../docs/references.md#vaswani-2017)]", 1),
        ("[[Bahdanau et al.](../docs/references.md#vaswani-2017)]", 1),
        ("[[Vaswani et al.](../docs/references.md#vaswani-2071)]", 1),
        ("[the page](../docs/references.md#annotated-page)", 0),
    ],
)
def test_wrong_citations_are_seen(text: str, count: int) -> None:
    assert len(wrong_marks(text, THERE)) == count
