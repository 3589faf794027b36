"""Lays out the cheat sheet: each of its sections a card, in a grid that prints on one side of A4.

It is executed like a chapter, and is none: it has no number, no exercises and no place in the map.
"""

from bs4 import BeautifulSoup
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

from book import takeaway

ABOUT = (
    "Multi-head attention on one side of A4: formula, shapes, the shortest correct code, masks, "
    "what it costs, and five mistakes with their checks."
)


@event_priority(-110)  # after pages.py
def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make cards of the sheet's sections."""
    if not page.file.src_uri.endswith("/cheat_sheet.ipynb"):
        return content
    page.meta["hide"] = ["toc"]  # one look shows what there is
    page.meta["description"] = ABOUT
    soup = BeautifulSoup(content, "html.parser")
    cards = soup.new_tag("div", attrs={"class": "aa-cards"})
    headings = soup.find_all("h2")
    offer = f'<p class="aa-run">Prints on one side of A4 · {takeaway.links(page, config.extra)}</p>'
    headings[0].insert_before(BeautifulSoup(offer, "html.parser"), cards)
    for heading in headings:
        card = soup.new_tag("section", attrs={"class": f"aa-card aa-{heading['id']}"})
        for part in [heading, *heading.find_next_siblings()]:
            if part.name == "h2" and part is not heading:
                break
            card.append(part.extract())
        cards.append(card)
        for table in card.find_all("table"):
            table["class"] = "aa-facts"
            label = {"aria-label": heading.text.removesuffix("¶")}
            scroll = {"class": "aa-scroll", "tabindex": "0", "role": "region"}
            table.wrap(soup.new_tag("div", attrs=scroll | label))
    return str(soup)
