"""What a chapter or a docstring cites is among the references, under its name."""

import re

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
MARK = re.compile(r"\[([^\[\]]*)\]\([^()]*?references\.md#([\w-]+)\)")
BY_NAME = re.compile(r"\b([A-ZŁ][a-zé]+)(?: et al\.| and [A-ZŁ][a-zé]+)? \((\d{4})\)")


THERE = {anchor: heading for heading, anchor in ENTRY.findall(REFERENCES.read_text("utf-8"))}


@pytest.mark.parametrize("path", CITING, ids=lambda path: path.name)
def test_each_citation_leads_to_its_entry(path) -> None:
    """It names no other author or year."""
    # A mark may be broken between lines.
    text = re.sub(r"\s*\n(?:# ?)?", " ", path.read_text(encoding="utf-8"))
    for said, anchor in MARK.findall(text):
        assert anchor in THERE, said
        if year := re.search(r" (\d{4})$", THERE[anchor]):
            assert said.split()[0] == THERE[anchor].split()[0], f"{said}: {THERE[anchor]}"
            assert set(re.findall(r"\b\d{4}\b", said)) <= {year[1]}, f"{said}: {THERE[anchor]}"


def test_docstrings_cite_what_is_there() -> None:
    cited = {
        f"{name.lower()}-{year}": path.name
        for path in SOURCES
        for name, year in BY_NAME.findall(path.read_text(encoding="utf-8"))
    }
    assert {anchor: file for anchor, file in cited.items() if anchor not in THERE} == {}
