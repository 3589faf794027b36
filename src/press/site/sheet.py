"""Lays out the cheat sheet: each of its sections a card, in a grid that prints on one side of A4.

It is executed like a chapter, and is none: it has no number and no exercises.
"""

from bs4 import BeautifulSoup

NAME = "cheat_sheet"
ABOUT = (
    "Multi-head attention on one side of A4: formula, shapes, the shortest correct code, masks, "
    "what it costs, and five mistakes with their checks."
)


def lay_out(soup: BeautifulSoup, links: str) -> None:
    """Make cards of the sheet's sections.

    Args:
        soup: the content of its page.
        links: to what readers take along of it.
    """
    cards = soup.new_tag("div", attrs={"class": "aa-cards"})
    headings = soup.find_all("h2")
    offer = f'<p class="aa-run">Prints on one side of A4 · {links}</p>'
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
