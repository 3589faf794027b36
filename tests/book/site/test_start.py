"""What the first page is built with: the map, the chapters, where the book lies."""

import re

from bs4 import BeautifulSoup

import annotated_attention
from annotated_attention import display
from book.run import scripts
from book.site import start

PAGE = (scripts.ROOT / "docs" / "index.md").read_text(encoding="utf-8")


def test_every_piece_has_its_place_on_the_page():
    pieces = re.findall(r"<!-- (.*?) -->", PAGE)
    assert sorted(pieces) == ["address", "cat", "chapters", "map", "repository", "version"]
    assert "<!--" not in start.fill(PAGE, {}, "", "")


def test_the_map_and_the_version():
    page = start.fill("<!-- map -->, <!-- version -->", {}, "", "")
    assert page == f"{display.whole_map().html}, {annotated_attention.__version__}"


def links(repository, site):
    page = start.fill("<!-- repository --> <!-- address -->", {}, repository, site)
    soup = BeautifulSoup(page, "html.parser")
    return [(a.text, a["href"]) for a in soup.select("a")], soup.text.strip()


def test_addresses_that_are_known_are_links():
    repository, site = "https://code.example/book?a=1&b=2", "https://book.example/"
    found, _ = links(repository, site)
    assert found == [("the repository", repository), (site, site)]
    found, _ = links(repository, "")
    assert found == [("the repository", repository), (repository, repository)]


def test_addresses_that_are_not_known_are_no_links():
    assert links("", "") == ([], "the repository")


def test_the_year_to_cite_is_the_licences():
    year = re.search(r"\(c\) (\d+) (.*)", (scripts.ROOT / "LICENSE").read_text(encoding="utf-8"))
    assert f"{year[2]} ({year[1]})." in PAGE
