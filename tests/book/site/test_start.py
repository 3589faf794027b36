"""What the first page says of where the book lies."""

import re

from bs4 import BeautifulSoup

from book.run import scripts
from book.site import start

PAGE = (scripts.ROOT / "docs" / "index.md").read_text(encoding="utf-8")
README = (scripts.ROOT / "README.md").read_text(encoding="utf-8")
DOOR = re.compile(r"^- \[\*\*(.+)\*\*\]\(.+\)\n((?:  .+\n)+)", re.MULTILINE)


def links(repository, site):
    page = start.fill("<!-- repository --> <!-- address -->", {}, repository, site)
    soup = BeautifulSoup(page, "html.parser")
    return [(a.text, a["href"]) for a in soup.select("a")], soup.text.strip()


def test_addresses_are_links_where_they_are_known():
    repository, site = "https://code.example/book?a=1&b=2", "https://book.example/"
    (to_code, to_site), _ = links(repository, site)
    assert (to_code, to_site) == (("the repository", repository), (site, site))
    (_, instead), _ = links(repository, "")
    assert instead == (repository, repository)
    assert links("", "") == ([], "the repository")


def test_the_year_to_cite_is_the_licences():
    year = re.search(r"\(c\) (\d+) (.*)", (scripts.ROOT / "LICENSE").read_text(encoding="utf-8"))
    assert f"{year[2]} ({year[1]})." in PAGE


def test_the_readme_has_the_same_doors_and_commands_and_asks_for_the_same():
    doors = DOOR.findall(PAGE)
    assert len(doors) == 4
    opened = re.findall(r"^- \*\*\[(.+)\]\(.+\)\.\*\* ((?:.+\n)+?)(?=- |\n)", README, re.MULTILINE)
    for (name, text), (other, same) in zip(doors, opened, strict=True):
        assert (name, text.split()) == (other, same.split())
    for said in (r"Python [\d.]+ or later, git and make", r"^make (\w+) +# "):
        assert re.findall(said, PAGE, re.MULTILINE) == re.findall(said, README, re.MULTILINE)
