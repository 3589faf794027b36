"""The figure of the way of an answer."""

import re

from annotated_book import display

WORDS = ["it", "sweet", "the"]


def texts(figure):
    return re.findall(r"<text[^>]*>([^<]+)</text>", figure.html)


def test_the_way_of_an_answer_names_each_hop_in_the_picture_and_in_words():
    hops = [(0, 1, "1.1 reads", "m"), (1, 0, "2.2 points", "d")]
    figure = display.way_of_an_answer(WORDS, hops, "milk", name="way")
    assert "layer 1, from sweet: 1.1 reads; layer 2, from it: 2.2 points" in figure.text
    assert {"it", "sweet", "the", "milk", "1.1 reads", "2.2 points"} <= {*texts(figure)}
