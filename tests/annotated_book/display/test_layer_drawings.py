"""Layers are drawn from the parts that ran in them."""

import re

from annotated_book import display

POST = ["self-attention", "norm", "cross-attention", "norm", "feed-forward", "norm"]
PRE = ["norm", "self-attention", "norm", "feed-forward"]


def texts(html: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]+)</text>", html)


def test_parts_are_drawn_in_the_order_in_which_they_ran():
    for parts in (POST, PRE):
        figure = display.layers({"title": parts}, name="one")
        assert [text for text in texts(figure.html) if text in parts] == parts
        assert ("memory" in texts(figure.html)) == (parts is POST)
    assert "norm, self-attention, add, norm, feed-forward, add." in figure.text


def test_the_whole_model_has_both_sides_and_three_sentences():
    sentences = ["the cat drank milk", "start the cat", "the cat drank"]
    figure = display.whole_transformer([*POST[:2], *POST[4:]], POST, sentences, name="whole")
    drawn = texts(figure.html)
    assert [text for text in drawn if text in sentences] == sentences
    assert drawn.count("padding mask") == 2
    for text in sentences:
        assert f"“{text}”" in figure.text
