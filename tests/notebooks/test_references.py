"""What a text names, a chapter by its number or a paper by its year, is the one that it means."""

import re

import pytest

from press.run import scripts

REFERENCES = scripts.ROOT / "docs" / "references.md"
SOURCES = {
    path: path.read_text("utf-8")
    for ending in ("py", "js", "css")
    for path in sorted((scripts.ROOT / "src").rglob(f"*.{ending}"))
}
PAGES = sorted(
    path
    for pattern in ("notebooks/*.py", "docs/**/*.md", "README.md")
    for path in scripts.ROOT.glob(pattern)
)
each_page = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
NUMBER = r"[Cc]hapters?\s+#?\s*(\d+)"
LINK = r"\[([^\[\]]*)\]\((?:[^\s()]*/)?(\d\d)_\w+\.ipynb[^()]*\)"
INTO = re.compile(r"(\]\((?:(?:[^()\s]*/)?(\w+)\.ipynb)?#([^()\s]+)\))")
ENTRY = re.compile(r"^([^#\n][^{\n]*?) \{ #([\w-]+) \}\n:   ", re.MULTILINE)
MARK = re.compile(r"\[([^\[\]]*)\]\([^()]*?references\.md#([\w-]+)\)")
BY_NAME = re.compile(r"\b([A-ZŁ][a-zé]+)(?: et al\.| and [A-ZŁ][a-zé]+)? \((\d{4})\)")
THERE = {anchor: heading for heading, anchor in ENTRY.findall(REFERENCES.read_text("utf-8"))}


def test_sources_name_chapters_by_their_titles_and_papers_that_are_there():
    """Chapters change places, and in a source nobody sees it."""
    numbered = {
        path.name: found[0] for path in SOURCES if (found := re.search(NUMBER, SOURCES[path]))
    }
    assert numbered == {}, "give the title"
    cited = {
        f"{name.lower()}-{year}": path.name
        for path, text in SOURCES.items()
        for name, year in BY_NAME.findall(text)
    }
    assert {anchor: file for anchor, file in cited.items() if anchor not in THERE} == {}


def test_links_into_a_chapter_lead_to_a_cell_by_its_name():
    """A heading may become a better one. What an output draws has anchors of its own."""
    named = {
        script.stem: {cell.id for cell in scripts.notebook(script).cells if "name" in cell.metadata}
        for script in scripts.CHAPTERS.glob("*.py")
    }
    lost = []
    for path in PAGES:
        for link, chapter, place in INTO.findall(path.read_text(encoding="utf-8")):
            known = named.get(chapter or path.stem)
            if known is None or re.match("(head|fig)-", place):
                continue
            kind, _, name = place.partition("=")
            if kind != "cell-id" or name not in known:
                lost.append((path.name, link))
    assert lost == [], 'give the cell that is meant a name: # %% [markdown] name="..."'


@each_page
def test_number_beside_a_link_is_that_chapters(path):
    """In the text of the link, and before it."""
    text = path.read_text(encoding="utf-8")
    for before, inside, name in re.findall(rf"(?:{NUMBER}\W{{0,4}})?{LINK}", text):
        numbers = re.findall(NUMBER, inside) + [before] * bool(before)
        assert all(int(number) == int(name) for number in numbers), inside


@each_page
def test_each_citation_leads_to_its_entry(path):
    """It names no other author or year."""
    # A mark may be broken between lines.
    text = re.sub(r"\s*\n(?:# ?)?", " ", path.read_text(encoding="utf-8"))
    for said, anchor in MARK.findall(text):
        assert anchor in THERE, said
        if year := re.search(r" (\d{4})$", THERE[anchor]):
            assert said.split()[0] == THERE[anchor].split()[0], f"{said}: {THERE[anchor]}"
            assert set(re.findall(r"\b\d{4}\b", said)) <= {year[1]}, f"{said}: {THERE[anchor]}"
