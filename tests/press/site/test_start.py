"""What the first page says of where the book lies."""

import html
import re

from press.run import scripts
from press.site import start

PAGE = (scripts.ROOT / "docs" / "index.md").read_text(encoding="utf-8")
README = (scripts.ROOT / "README.md").read_text(encoding="utf-8")
DOOR = re.compile(r"^- \[\*\*(.+)\*\*\]\(.+\)\n((?:  .+\n)+)", re.MULTILINE)


def test_addresses_are_links_where_they_are_known():
    code, site = "https://code.example/book?a=1&b=2", "https://book.example/"
    linked = '<a href="{0}">{1}</a>'.format
    to_code, written = linked(html.escape(code), "the repository"), html.escape(code)
    for repository, address, said in (
        (code, site, f"{to_code} {linked(site, site)}"),
        (code, "", f"{to_code} {linked(written, written)}"),
        ("", "", "the repository "),
    ):
        page = "<!-- repository --> <!-- address -->"
        assert start.fill(page, {}, repository, address) == said


def test_the_year_to_cite_is_the_licences():
    year = re.search(r"\(c\) (\d+) (.*)", (scripts.ROOT / "LICENSE").read_text(encoding="utf-8"))
    assert f"{year[2]} ({year[1]})." in PAGE


def test_the_readme_has_the_same_doors_and_commands_and_asks_for_the_same():
    doors = DOOR.findall(PAGE)
    assert len(doors) == 3
    opened = re.findall(r"^- \*\*\[(.+)\]\(.+\)\.\*\* ((?:.+\n)+?)(?=- |\n)", README, re.MULTILINE)
    for (name, text), (other, same) in zip(doors, opened, strict=True):
        assert (name, text.split()) == (other, same.split())
    minutes = re.search(r"In (\d+) minutes from a pencil", doors[0][1])[1]
    short = (scripts.ROOT / "notebooks" / "short_path.py").read_text(encoding="utf-8")
    assert f"with a pencil, take {minutes}." in short
    for said in (r"Python [\d.]+ or later, git and make", r"^make (\w+) +# "):
        assert re.findall(said, PAGE, re.MULTILINE) == re.findall(said, README, re.MULTILINE)
