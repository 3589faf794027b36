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


def a_sheet(name="sheet"):
    x, w = torch.eye(3, 4), torch.arange(16.0).view(4, 4)
    return display.sheet_and_stack(x, w, ["a", "because", "c"], name=name)


def some_sums(name="sums"):
    query, keys = torch.tensor([2.0, 1, 3, 1]), torch.tensor([[3.0, 0, 0, 1], [2, 2, 1, 2]])
    return display.two_sums(query, keys, ["because", "c"], name=name)


def some_values(name="values"):
    x, w = torch.eye(3, 4), torch.arange(16.0).view(4, 4)
    ways = {"uncut": torch.tensor([1.5, 2, 3, 4]), "cut": torch.tensor([0.25, 0, 0, 5])}
    return display.handed_over(x, w, ["a", "because", "c"], [*"uvwx"], ways, name=name)


def two_stacks(name="stacks", words=WORDS):
    listens = weights(2, len(words)), weights(2, 2)
    return display.stacks(words, 1, *listens, ("heads first", "words first"), name=name)


def the_wrong_merge(name="merge"):
    return display.wrong_merge(name=name)


def two_glasses(name="glasses"):
    collected, w_o = torch.tensor([1.5, -2.0]), torch.tensor([[1.0, 0, 0], [0, 2, 0]])
    return display.side_by_side(collected, w_o, ["x", "y", "z"], name=name, caption="")


def strips(name="strips"):
    collected, w_o = torch.arange(12.0).view(2, 3, 2), torch.eye(4)[[0, 2, 1, 3]]
    merged = torch.cat([*collected], -1)
    features = ["u", "v", "w", "x"]
    return display.back_together(collected, merged, merged @ w_o, WORDS, 1, features, name=name)


def two_looks(name="looks"):
    return display.looks([(WORDS, weights(2, 3, 3))] * 2, 1, name=name)


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
        a_sheet,
        some_sums,
        two_stacks,
        the_wrong_merge,
        two_glasses,
        strips,
        two_looks,
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


def test_what_heads_add_is_summed():
    assert "x 1.50, y −4.00, z 0.00 is the sum" in two_glasses().text
    assert texts(two_glasses()).count("−4.00") == 2, "what head 2 adds, and the sum"


def test_one_row_of_the_strips_is_written_out():
    seen = [text for text in texts(strips()) if "." in text]
    apart = ["2.00", "3.00", "8.00", "9.00"]
    assert seen == [*apart, *apart, "2.00", "8.00", "3.00", "9.00"]
    assert "times W_O: 2.00 8.00 3.00 9.00, under u, v, w, x" in strips().text


def test_a_row_goes_through_a_matrix():
    row, matrix = torch.tensor([1.0, 0, 3]), torch.zeros(3, 3)
    matrix[2, 1] = 2
    figure = display.through_matrix(row, matrix, "a", ["x", "y", "z"], "y", name="one")
    assert "1 0 3, times the matrix is its query, 0 6 0." in figure.text
    assert texts(figure).count("y") == 1 + 2, "beside the matrix, over it and over the query"


def test_each_matrix_of_a_head_names_what_it_joins():
    ask, find, give = torch.zeros(3, 3, 2).unbind()  # (e, 2) each
    write = torch.zeros(2, 3)
    ask[1, 0], find[2, 1], give[2, 0], write[0, 1] = 5, 6, 7, 8
    figure = display.four_matrices((ask, find, give, write), ["x", "y", "z"], [0, 2], 2, name="f")
    said = "y asks for x, 5. W_K: z found by z, 6. W_V: z hands over z, 7. W_O: z written as y, 8."
    assert said in figure.text
    assert [text for text in texts(figure) if text in "5678"] == ["5", "6", "7", "8"]


def test_lines_of_one_word_alone_are_those_that_are_lit():
    alone = display.attention_lines(weights(3, 3)[1], WORDS, 1, name="alone")
    assert alone.text == some_lines().text
    assert alone.html.count("<path") == some_lines().html.count("<path") - 6


def test_a_sheet_is_cut_between_the_heads():
    assert "a 0 1 2 3; because 4 5 6 7; c 8 9 10 11" in a_sheet().text
    seen = texts(a_sheet())
    assert [seen.count(number) for number in ("10", "11")] == [2 + 1, 2 + 1], "W, K, the stack"
    assert {"n = 3", "d = 2", "h = 2"} < {*seen}


def test_a_score_that_is_cut_is_two_sums():
    said = "uncut 7, cut 6 and 1, divided 3.50, and 4.24 and 0.71; c 2 2 1 2: uncut 11"
    assert f"because 3 0 0 1: {said}" in some_sums().text
    parts = ["2·2", "1·2", "3·1", "1·2", "11", "6", "5"]
    seen = texts(some_sums())
    assert seen[seen.index("2·2") :][:7] == parts
    divided = [x for a, b in ((6, 1), (6, 5)) for x in ((a + b) / 2, a / 2**0.5, b / 2**0.5)]
    numbers = [f"{x:.2f}" for x in divided]
    assert [text for text in seen if "." in text] == numbers


def test_alive_a_score_has_all_words_and_the_picture_some():
    query, keys, words = torch.ones(4), torch.eye(4), ["a", "bee", "c", "dee"]
    figure = display.two_sums(query, keys, words, name="sums", shown=["bee", "dee"])
    frame = ElementTree.fromstring(figure.html)
    data = json.loads(frame.get("data-state"))
    assert (data["words"], data["heads"], data["chosen"]) == (words, [1, 2, 4], 1)
    assert data["keys"] == keys.tolist()
    assert {"bee", "dee"} < {*texts(figure)}
    assert "c" not in texts(figure)


def test_what_heads_hand_over_stands_in_their_columns():
    said = "“it” collects, uncut: 1.50 2.00 3.00 4.00; “it” collects, cut: 0.25 0.00 0.00 5.00."
    assert f"a 0 1 2 3; because 4 5 6 7; c 8 9 10 11; {said}" in some_values().text
    seen = texts(some_values())
    assert {*"uvwx", "head 1", "head 2", "1.50", "0.25"} < {*seen}


def test_frames_say_to_whom_a_word_listens():
    assert (
        "heads first: all words of a head stand in one frame; “bee” gives head 1"
        in two_stacks().text
    )
    home, across = weights(2, 2)[0].tolist()
    assert f"{across:.2f} across, {home:.2f} at home" in texts(two_stacks())


def test_sentences_of_eight_words_fit_a_phone():
    words = ["the", "cat", "drank", "milk", "because", "it", "was", "thirsty"]
    lines = display.attention_lines(weights(8, 8), words, 5, name="narrow")
    looks = display.looks([(words, weights(2, 8, 8))], 5, name="two")
    made = (two_glasses(), a_sheet(), some_sums(), strips())
    for figure in (lines, looks, two_stacks(words=words), *made):
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
