"""Figures of what is answered, and on which way."""

import re

from annotated_book import display

WORDS = ["it", "sweet", "the"]


def texts(figure):
    return re.findall(r"<text[^>]*>([^<]+)</text>", figure.html)


def test_bars_of_answers_write_what_is_wide_enough():
    figure = display.kinds_of_answers({"all": {"none": [0.75, 0.02, 0.23]}}, name="answers")
    assert "all, none: the one meant 0.75, the other 0.02, a third word 0.23." in figure.text
    assert {"0.75", "0.23"} <= {*texts(figure)}
    assert "0.02" not in texts(figure)


def test_bars_in_groups_tell_their_group_and_share_one_legend():
    figure = display.kinds_of_answers(
        {"one": {"a": [1.0, 0.0, 0.0]}, "two": {"a": [0.5, 0.5, 0.0]}}, name="groups"
    )
    assert "one, a: the one meant 1.00" in figure.text.replace("One", "one")
    assert "two, a: the one meant 0.50, the other 0.50" in figure.text
    assert texts(figure).count("a third word") == 1


def test_the_way_of_an_answer_names_each_hop_in_the_picture_and_in_words():
    hops = [(0, 1, "1.1 reads", "m"), (1, 0, "2.2 points", "d")]
    figure = display.way_of_an_answer(WORDS, hops, "milk", name="way")
    assert "layer 1, from sweet: 1.1 reads; layer 2, from it: 2.2 points" in figure.text
    assert {"it", "sweet", "the", "milk", "1.1 reads", "2.2 points"} <= {*texts(figure)}
