"""Figures: the same bytes each time, ids of their own, colours and text that follow the page."""

import re
import xml.etree.ElementTree as ElementTree
from importlib import resources

import pytest
import torch

from annotated_attention import display

WORDS = ["a", "bee", "sees"]


def weights(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(1)).softmax(-1)


def a_map(name="map"):
    return display.attention_map(weights(3, 2), WORDS, ["x", "y"], name=name)


def some_lines(name="lines"):
    return display.attention_lines(weights(3, 3), WORDS, 1, name=name)


def curves(name="curves"):
    drawing, (left, right) = display.panels(400, 200, columns=2)
    left.plot([0, 1, 2], [0, 1, 4], color=display.COLOURS["h"])
    right.hist([1, 2, 2, 3], color=display.COLOURS["d"])
    return display.finish(drawing, name=name, alt="Two panels.", caption="A <em>caption</em>")


def a_shelf(name="shelf"):
    shelf = {"Bees": "on bees", "Knees": "on knees"}
    return display.soft_look_up("bees?", shelf, torch.tensor([0.75, 0.25]), name=name)


def one_query(name="query", features=("wax", "honey")):
    query, keys = torch.tensor([1.0, 0.0]), torch.tensor([[0.0, 1], [2, 0], [2, 4]])
    return display.one_query(query, keys, keys, WORDS, features, who="a", name=name)


FIGURES = pytest.mark.parametrize("draw", [a_map, some_lines, curves, a_shelf, one_query])


@FIGURES
def test_same_bytes_each_time(draw):
    assert draw().html == draw().html


@FIGURES
def test_is_well_formed_and_has_a_text_alternative(draw):
    html = draw().html
    figure = ElementTree.fromstring(html)
    svg = figure.find("{http://www.w3.org/2000/svg}svg")
    assert svg.get("role") == "img"
    assert svg.get("aria-label") == draw().text.removeprefix("Figure: ")


@FIGURES
def test_ids_are_of_their_own(draw):
    one, other = (set(re.findall(r'\bid="([^"]+)"', draw(name).html)) for name in ("one", "other"))
    assert len(one) > 3
    assert not one & other
    html = draw().html
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    for reference in re.findall(r'(?:href="#|url\(#)([^")]+)', html):
        assert reference in ids


@FIGURES
def test_follows_the_page(draw):
    html = draw().html
    assert "<style" not in html
    assert "<metadata" not in html
    assert 'fill="currentColor"' in html
    for colour in re.findall(r"#[0-9a-f]{6}", html):
        assert colour in {*display.COLOURS.values(), "#808080"}, f"{colour} stays on a dark page"
    for letter, colour in display.COLOURS.items():
        assert html.count(colour) == html.count(f"var(--aa-{letter}, {colour})")
    assert "var(--aa-" in html
    assert "DejaVu" not in html


def test_colours_are_those_of_the_stylesheet():
    css = resources.files("annotated_attention.display").joinpath("display.css").read_text()
    light = css.split("}")[0]
    assert dict(re.findall(r"--aa-([bnmhd]): (#\w+)", light)) == display.COLOURS


def test_map_writes_every_weight_under_its_words():
    values = weights(3, 2)
    html = a_map().html
    texts = re.findall(r"<text[^>]*>([^<]+)</text>", html)
    assert [text for text in texts if text.startswith(".")] == [
        f"{value:.2f}"[1:] for value in values.flatten().tolist()
    ]
    assert {*WORDS, "x", "y", "queries (n)", "keys (m)"} <= set(texts)
    for query, row in zip(WORDS, values, strict=True):
        key = ["x", "y"][row.argmax()]
        assert f"{query} looks at {key} ({row.max():.2f})" in a_map().text


def test_map_per_head():
    html = display.attention_map(weights(2, 3, 4), WORDS, list("wxyz"), name="heads").html
    assert "head 1" in html
    assert "head 2" in html


def test_lines_label_the_lit_word():
    values = weights(3, 3)
    figure = some_lines()
    for word, value in zip(WORDS, values[1].tolist(), strict=True):
        assert f"{word} {value:.2f}" in figure.text
        assert f">{value:.2f}</text>" in figure.html


def test_a_query_is_followed_from_its_scores_to_what_it_collects():
    query, keys = torch.tensor([1.0, 0.0]), torch.tensor([[0.0, 1], [2, 0], [2, 4]])
    powers = (keys @ query / 2**0.5).exp()
    weights = powers / powers.sum()
    shown = re.findall(r"<text[^>]*>([^<]+)</text>", one_query().html)
    numbers = [*powers, powers.sum(), *weights, *(weights @ keys)]
    assert {f"{number:.2f}" for number in numbers} <= set(shown)
    assert "“a” asks with (1, 0)" in shown
    assert f"Its weights: a {weights[0]:.2f}, bee {weights[1]:.2f}" in one_query().text
    assert one_query().text.endswith(f"honey {(weights @ keys)[1]:.2f}.")


def test_books_give_their_shares():
    assert "“Bees” gives 0.75 of its pages on bees; “Knees” gives 0.25" in a_shelf().text
    assert {"0.75", "0.25"} <= set(re.findall(r"<text[^>]*>([^<]+)</text>", a_shelf().html))


def test_text_is_escaped():
    figure = display.attention_map(weights(1, 1), ['<"&'], ["k"], name="escaped")
    svg = ElementTree.fromstring(figure.html).find("{http://www.w3.org/2000/svg}svg")
    assert '<"& looks at k' in svg.get("aria-label")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: display.attention_map(weights(3, 2), WORDS, WORDS, name="x"), "3 x 2.*3 keys"),
        (lambda: display.attention_lines(weights(3, 2), WORDS, 0, name="x"), r"3 x 3.*\(3, 2\)"),
        (lambda: display.attention_lines(weights(3, 3), WORDS, 3, name="x"), r"query \(3\)"),
        (lambda: one_query(features=["wax"]), r"\(3, 2\).*3 words and 1 features"),
        (lambda: display.soft_look_up("?", {"a": "b"}, weights(2), name="x"), r"\(1,\).*\(2,\)"),
        (lambda: a_map("Not Good"), "name .*'Not Good'"),
        (lambda: display.finish(display.panels(9, 9)[0], name="x", alt=" "), "alt must say"),
    ],
)
def test_what_does_not_fit_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
