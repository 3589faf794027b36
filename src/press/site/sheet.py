"""Lays out the cheat sheet: each of its sections a card, in two grids, a side of A4 each.

It is executed like a chapter, and is none: it has no number and no exercises.
"""

from bs4 import BeautifulSoup

NAME = "cheat_sheet"
ABOUT = (
    "Multi-head attention on one side of A4, attention today on another: formulas, shapes, code, "
    "masks, what it costs, and ten mistakes with their checks."
)


def lay_out(soup: BeautifulSoup, links: str) -> None:
    """Make cards of the sheet's sections; a rule stands between the two sides.

    Args:
        soup: the content of its page.
        links: to what readers take along of it.
    """
    sides = [soup.new_tag("div", attrs={"class": "aa-cards"}) for _ in range(2)]
    headings, rule = soup.find_all("h2"), soup.find("hr")
    assert rule is not None
    second = rule.find_all_next("h2")
    offer = f'<p class="aa-run">Prints on two sides of A4 · {links}</p>'
    headings[0].insert_before(BeautifulSoup(offer, "html.parser"), *sides)
    for heading in headings:
        card = soup.new_tag("section", attrs={"class": f"aa-card aa-{heading['id']}"})
        for part in [heading, *heading.find_next_siblings()]:
            if part.name in ("h2", "hr") and part is not heading:
                break
            card.append(part.extract())
        sides[heading in second].append(card)
        for table in card.find_all("table"):
            table["class"] = "aa-facts"
            label = {"aria-label": heading.text.removesuffix("¶")}
            scroll = {"class": "aa-scroll", "tabindex": "0", "role": "region"}
            table.wrap(soup.new_tag("div", attrs=scroll | label))
    rule.extract()
