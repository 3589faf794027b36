"""Every head at once: each cell of the map is where its weight is, and links to its head's row."""

import pytest
import torch
from bs4 import BeautifulSoup

from annotated_attention import display

WEIGHTS = torch.zeros(2, 3, 4, 5)
WEIGHTS[1, 2, 3, 0] = 0.9
WEIGHTS[1, 2, 0, 4] = 0.45
WEIGHTS[1, 2, 1, 1:3] = 0.2
WEIGHTS[1, 2, 2, 2] = 0.09  # too little to be seen


def test_the_map_draws_each_head_where_its_weights_are():
    shown = display.heads_map(WEIGHTS, name="all-heads", alt="<All> heads.", caption="Why.")
    page = BeautifulSoup(shown.html, "html.parser")
    assert shown.text == "Figure: <All> heads."
    assert page.table["aria-label"] == "<All> heads."
    assert page.figure["id"] == "fig-all-heads"
    assert page.figcaption.text == "Why."
    rows = page.tbody.find_all("tr")
    assert [row.th.text for row in rows] == ["1", "2"]
    assert [th.text for th in page.thead.find_all("th")] == ["1", "2", "3"]
    links = [[a["href"] for a in row.find_all("a")] for row in rows]
    assert links == [[f"#head-{i}-{j}" for j in (1, 2, 3)] for i in (1, 2)]
    last = rows[1].find_all("a")[2]
    assert last["aria-label"] == "layer 2, head 3"
    assert last.svg["viewbox"] == "0 -.5 5 4"
    drawn = {(float(path["opacity"]), path["d"]) for path in last.find_all("path")}
    assert drawn == {(0.25, "M1 1h1M2 1h1"), (0.55, "M4 0h1"), (0.95, "M0 3h1")}
    assert not page.select("tr:first-child a path")


def test_the_table_has_a_row_for_each_head_that_the_map_links_to():
    numbers = torch.arange(6.0).view(2, 3)
    shown = display.heads_table({"a<b": numbers, "c": numbers / 10}, digits=1)
    page = BeautifulSoup(shown.html, "html.parser")
    assert [th.text for th in page.thead.find_all("th")] == ["layer, head", "a<b", "c"]
    linked = BeautifulSoup(display.heads_map(WEIGHTS, name="x", alt="x").html, "html.parser")
    rows = {f"#{row['id']}": row for row in page.tbody.find_all("tr")}
    assert list(rows) == [a["href"] for a in linked.find_all("a")]
    row = rows["#head-2-3"]
    assert row.th.text == "2, 3"
    assert [td.text for td in row.find_all("td")] == ["5.0", "0.5"]


def test_what_does_not_fit_is_named():
    with pytest.raises(ValueError, match=r"weights must be \(l, h, n, m\), got \(3, 4, 5\)"):
        display.heads_map(WEIGHTS[0], name="x", alt="x")
    with pytest.raises(
        ValueError, match=r"columns must all be \(l, h\), got \[\(2, 3\), \(3, 2\)\]"
    ):
        display.heads_table({"a": torch.ones(2, 3), "b": torch.ones(3, 2)})
    with pytest.raises(ValueError, match=r"got \[\(2, 3, 1\)\]"):
        display.heads_table({"a": torch.ones(2, 3, 1)})
