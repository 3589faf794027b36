"""The page of symptoms as it was built: each code, with links that lead to its chapter."""

from bs4 import BeautifulSoup

from annotated_attention.doctor.codes import CODES
from book.site.build import SITE

PAGE = BeautifulSoup((SITE / "symptoms" / "index.html").read_text(encoding="utf-8"), "html.parser")


def test_each_code_is_on_the_page():
    assert {cell.text for cell in PAGE.select("article td code")} >= {*CODES}


def test_each_row_leads_to_a_section_of_a_chapter():
    rows = PAGE.select("article tbody tr")
    assert len(rows) > len(CODES)
    for row in rows:
        _, code, chapter = row.find_all("td")
        assert code.text in CODES
        place, _, anchor = chapter.a["href"].partition("#")
        found = (SITE / "symptoms" / place / "index.html").resolve()
        assert found.is_file(), place
        assert not anchor or f'id="{anchor}"' in found.read_text(encoding="utf-8")


def test_it_is_in_the_navigation_of_every_page():
    home = BeautifulSoup((SITE / "index.html").read_text(encoding="utf-8"), "html.parser")
    assert [link.text.strip() for link in home.select('nav a[href="symptoms/"]')] == ["Symptoms"]
