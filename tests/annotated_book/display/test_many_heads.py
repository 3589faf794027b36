"""Every head at once: each cell of the map is where its weight is, and links to its head's row."""

import torch
from bs4 import BeautifulSoup

from annotated_book import display

WEIGHTS = torch.zeros(2, 3, 4, 5)
WEIGHTS[1, 2, 3, 0] = 1.0
WEIGHTS[1, 2, 0, 4] = 0.45
WEIGHTS[1, 2, 1, 1:3] = 0.2
WEIGHTS[1, 2, 2, 2] = 0.09  # too little to be seen


def parse(shown):
    return BeautifulSoup(shown.html, "html.parser")


def test_the_map_draws_each_head_where_its_weights_are_and_leads_to_its_row():
    page = parse(display.heads_map(WEIGHTS, name="all-heads", alt="<All> heads.", caption="c"))
    assert page.table["aria-label"] == "<All> heads."
    links = [[a["href"] for a in row.find_all("a")] for row in page.tbody.find_all("tr")]
    assert links == [[f"#head-{i}-{j}" for j in (1, 2, 3)] for i in (1, 2)]
    last = page.find_all("a")[-1]
    assert last["aria-label"] == "layer 2, head 3"
    assert last.svg["viewbox"] == "0 -.5 5 4"
    drawn = {(float(path["opacity"]), path["d"]) for path in last.find_all("path")}
    assert drawn == {(0.25, "M1 1h1M2 1h1"), (0.55, "M4 0h1"), (0.95, "M0 3h1")}
    assert not page.select("tr:first-child a path")
    numbers = torch.arange(6.0).view(2, 3)
    table = parse(display.heads_table({"a<b": numbers, "c": numbers / 10}))
    assert [th.text for th in table.thead.find_all("th")] == ["layer, head", "a<b", "c"]
    rows = {f"#{row['id']}": row.text.split() for row in table.tbody.find_all("tr")}
    assert list(rows) == [link for row in links for link in row]
    assert rows["#head-2-3"] == ["2,", "35.000.50"]
