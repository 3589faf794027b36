"""Figures: the same bytes each time, ids of their own, colours and text that follow the page."""

import json
import re
import xml.etree.ElementTree as ElementTree

import pytest
import torch
from bs4 import BeautifulSoup

from annotated_book import display

WORDS = ["a", "bee", "sees"]


def weights(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(1)).softmax(-1)


BLOCKED = torch.tensor([[False, True], [False, False], [True, True]])


def a_masked_map(name="masked"):
    return display.masked_map(weights(3, 2), BLOCKED, WORDS, ["<x", "y"], name=name)


def two_merged_masks(name="merged"):
    padding = torch.tensor([[False] * 3, [True, False, False]])
    return display.merged_masks(padding, torch.ones(3, 3).bool().triu(1), name=name)


def some_lines(name="lines"):
    return display.attention_lines(weights(3, 3), WORDS, 1, name=name)


def curves(name="curves"):
    drawing, (left, right) = display.panels(400, 200, columns=2)
    left.plot([0, 1, 2], [0, 1, 4], color=display.COLOURS["h"])
    right.hist([1, 2, 2, 3], color=display.COLOURS["d"])
    right.plot([1, 3], [1, 2], color="black")
    return display.finish(drawing, name=name, alt="Two panels.", caption="A <em>caption</em>")


def a_shelf(name="shelf"):
    shelf = {"Bees": "on bees", "Knees": "on knees"}
    return display.soft_look_up("bees?", shelf, torch.tensor([0.75, 0.25]), name=name, caption="")


def one_query(name="query"):
    query, keys = torch.tensor([1.0, 0.0]), torch.tensor([[0.0, 1], [2, 0], [2, 4]])
    return display.one_query(query, keys, keys, WORDS, ["wax", "honey"], who="a", name=name)


PLACES = {"query": (0.0, 0.0), "key": (1.0, 0.0), "scores": (0.5, 1.0)}
SHAPES = {"query": (3, 6), "key": (5, 6), "scores": (5, 3), "not drawn": (9,)}
LETTERS = {3: "n", 5: "m", 6: "d"}


def what_flows(name="flow"):
    arrows = [("query", "scores", "score"), ("key", "scores", "")]
    return display.flow(PLACES, arrows, SHAPES, LETTERS, name=name)


def the_whole_way(name="way"):
    return display.whole_way(name=name)


def all_sheets(name="sheets"):
    x, w = torch.eye(3, 4), torch.arange(16.0).view(4, 4)
    wide = {"Q": w, "K": w + 20, "V": w + 40}
    return display.all_sheets(x, wide, ["a", "because", "c"], [*"uvwx"], name=name)


def three_ways(name="ways", words=("a", "because", "c")):
    draw = torch.Generator().manual_seed(1)
    keys, values = torch.randint(0, 3, (2, len(words), 4), generator=draw).float()
    sheets = {"c": [torch.tensor([[2.0, 1, 0, 1]]).expand(len(words), 4), keys, values]}
    answers = {"animal": "bee", "food": "wax"}
    return display.ways_to_cut(sheets, torch.eye(4)[[0, 2, 1, 3]], words, 1, answers, name=name)


def texts(figure):
    return re.findall(r"<text[^>]*>([^<]+)</text>", figure.html)


@pytest.mark.parametrize(
    "draw",
    [
        a_masked_map,
        two_merged_masks,
        some_lines,
        curves,
        a_shelf,
        what_flows,
        the_whole_way,
        all_sheets,
        three_ways,
    ],
)
def test_every_figure_is_always_the_same_and_follows_the_page(draw):
    html = draw().html
    one, again, other = (draw(name).html for name in ("one", "one", "other"))
    assert one == again
    figure = ElementTree.fromstring(html)
    figure = figure[0] if figure.get("data-live") else figure
    shown = figure[0]  # a drawing, or panels of drawings
    assert shown.get("role") == "img"
    assert shown.get("aria-label") == draw().text.removeprefix("Figure: ")
    assert not {*re.findall(r'\bid="([^"]+)"', one)} & {*re.findall(r'\bid="([^"]+)"', other)}
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids)) > 0
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', html)) <= set(ids)
    assert not re.search("<style|<metadata|DejaVu", html)
    assert 'fill="currentColor"' in html
    for colour in re.findall(r"#[0-9a-f]{6}", html):
        assert colour in {*display.COLOURS.values(), "#808080"}, f"{colour} stays on a dark page"
    for letter, colour in display.COLOURS.items():
        assert html.count(colour) == html.count(f"var(--aa-{letter}, {colour})")


def test_panels_are_drawings_of_their_own_that_lose_nothing():
    panels = BeautifulSoup(curves().html, "html.parser").select(".aa-panels > svg")
    (left, top, wide, high), (other, same, width, height) = (
        map(float, panel["viewbox"].split()) for panel in panels
    )
    assert (top, high) == (same, height), "those of a row are as high"
    assert left < wide < other + width <= 402, "each is where it was drawn"
    assert [len(panel.select("[id*=axes_]")) for panel in panels] == [1, 1]


def test_lines_of_one_word_alone_are_those_that_are_lit():
    alone = display.attention_lines(weights(3, 3)[1], WORDS, 1, name="alone")
    assert alone.text == some_lines().text
    assert alone.html.count("<path") == some_lines().html.count("<path") - 6


def test_sheets_stand_under_their_matrices():
    said = "W_K: u 20 21 22 23, v 24 25 26 27, w 28 29 30 31, x 32 33 34 35; K: a 20 21 22 23, "
    assert said in all_sheets().text
    seen = texts(all_sheets())
    assert [seen.count(number) for number in ("15", "31", "50")] == [1, 2, 2], "x has no row in X"


def test_keys_are_cut_in_three_ways():
    sheets = json.loads(ElementTree.fromstring(three_ways().html).get("data-state"))["sheets"]["c"]
    q, k, v = torch.tensor(sheets)  # (n, 4)
    whole = (k @ q[1] / 2).softmax(0)
    apart = torch.einsum("nhd,hd->hn", k.view(3, 2, 2), q[1].view(2, 2))
    heads = (apart / 2**0.5).softmax(1)
    own = (q[1].view(2, 2) @ k[1].view(2, 2).mT / 2**0.5).softmax(1)
    uncut = (whole @ v)[[0, 2]].tolist()
    first = [(heads[i] @ v[:, 2 * i]).item() for i in range(2)]
    second = (own @ v[1].view(2, 2))[:, 0].tolist()
    said = three_ways().text
    for (animal, food), weights in ((uncut, whole[None]), (first, heads), (second, own)):
        rows = "; ".join(" ".join(f"{x:.2f}" for x in row) for row in weights.tolist())
        assert f"weights {rows}, gets animal {animal:.2f} and food {food:.2f}" in said


def test_sentences_of_eight_words_fit_a_phone():
    words = ["the", "cat", "drank", "milk", "because", "it", "was", "thirsty"]
    lines = display.attention_lines(weights(8, 8), words, 5, name="narrow")
    made = (all_sheets(), three_ways(words=words))
    for figure in (lines, *made):
        narrowest = map(float, re.findall(r"min-width: (\d+)px", figure.html))
        assert max(narrowest) <= 358  # the text's width on a screen of 390 pixels


def test_a_masked_map_hatches_what_is_blocked():
    html, ((seen, _), (x, y), _) = a_masked_map().html, weights(3, 2).tolist()
    assert [text for text in texts(a_masked_map()) if "." in text] == [
        f"{weight:.2f}" for weight in (seen, x, y)
    ]
    assert html.count("fill: url(#") == BLOCKED.sum()
    assert "bee sees <x" in a_masked_map().text
    assert "sees sees nothing" in a_masked_map().text


def test_merged_masks_are_told_by_what_is_left_to_see():
    figure = two_merged_masks()
    assert "in sentence 1 the queries see 1, 2, 3 keys" in figure.text
    assert "in sentence 2 the queries see 0, 1, 2 keys" in figure.text
    assert {"(b, 1, m)", "(n, m)", "(b, n, m)"} <= {*texts(figure)}


def test_other_figures_write_their_numbers():
    for word, value in zip(WORDS, weights(3, 3)[1].tolist(), strict=True):
        assert f"{word} {value:.2f}" in some_lines().text
        assert f"{value:.2f}" in texts(some_lines())
    table = BeautifulSoup(one_query().html, "html.parser").table
    assert [[tag.text for tag in row.select("th, td")] for row in table.select("tbody tr")] == [
        ["a", "0", "1.00", "0.11", "0", "1"],  # exp(0)
        ["bee", "2", "4.11", "0.45", "2", "0"],  # exp(2 / √2)
        ["sees", "2", "4.11", "0.45", "2", "4"],
        ["sum", "", "9.23", "1.00", "1.78", "1.89"],
    ]
    shades = [tag["style"].removeprefix("--weight: ") for tag in table.select("td > span")]
    assert shades == ["0.00", "0.06", "0.50", "0.00", "0.50", "1.00"]
    assert "Its weights: a 0.11, bee 0.45, sees 0.45. It collects: wax 1.78, h" in one_query().text
    assert "“Bees” gives 0.75 of its pages on bees; “Knees” gives 0.25" in a_shelf().text
    assert {"0.75", "0.25"} <= set(texts(a_shelf()))


def test_what_flows_where():
    shown = {"query", "(n, d)", "key", "(m, d)", "scores", "(m, n)", "score"}
    assert set(texts(what_flows())) == shown
    assert "query (n, d); key (m, d); scores (m, n). " in what_flows().text
    assert "query to scores: score; key to scores." in what_flows().text
    # Blue has a row for each query, green for each key, grey both or none.
    for box, colour in (("query", "n"), ("key", "m"), ("scores", "")):
        html = display.flow({box: (0.0, 0.0)}, [], SHAPES, LETTERS, name="one").html
        assert [side for side in "nm" if f"--aa-{side}" in html] == list(colour)


def test_what_does_not_fit_is_named():
    with pytest.raises(ValueError, match=r"name .*'Not Good'"):
        curves("Not Good")
    with pytest.raises(ValueError, match="alt must say"):
        display.finish(display.panels(9, 9)[0], name="x", alt=" ")


def test_weights_stand_under_the_words_of_the_room_alone():
    words, rooms = [["it", "was"], ["it", "is"]], torch.tensor([[0, 0], [1, 1]])
    for heads in (1, 2):
        drawn = display.rooms(words, rooms, (1, 1), weights(heads, 2, 2), name="house")
        found = BeautifulSoup(drawn.html, "html.parser").select(".aa-rooms")
        assert len(found) == heads
        for head in found:
            assert [cell.find(string=True) for cell in head.select(".aa-lit")] == words[1]
            assert len(head.select("i b")) == 2
