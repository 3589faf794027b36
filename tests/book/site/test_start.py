"""What the first page says of where the book lies."""

import re

from bs4 import BeautifulSoup

from book.run import scripts
from book.site import start

PAGE = (scripts.ROOT / "docs" / "index.md").read_text(encoding="utf-8")


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
