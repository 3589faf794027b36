"""Figures of what is exchanged between two runs, and of what the answers then are."""

import re

import torch

from annotated_book import display

WORDS = (["it", "sweet", "the"], ["it", "thirsty", "the"])
DIFFER = torch.tensor([[False, True, False], [False, True, True]])


def texts(figure):
    return re.findall(r"<text[^>]*>([^<]+)</text>", figure.html)


def test_two_runs_say_where_they_differ_and_how_the_answer_flips():
    figure = display.two_runs(
        WORDS, ("milk", "cat", "milk"), DIFFER, name="runs", caption="Grey: the same."
    )
    assert "before layer 1 their rows differ at: thirsty" in figure.text.replace("B", "b")
    assert "before layer 2 at: thirsty, the." in figure.text
    assert "flips from cat to milk" in figure.text
    assert texts(figure).count("milk") == 2
    assert "Grey: the same." in figure.html


def test_a_map_of_flips_has_each_number_and_fills_a_cell_by_it():
    figure = display.flips(
        {"one": {"a": [0.0, 1.0], "b": [0.25, 0.5]}, "two": {"a": [1.0, 1.0]}},
        ["x", "y"],
        name="flips",
    )
    assert (
        figure.text
        == "Figure: one, a: x 0.00, y 1.00; one, b: x 0.25, y 0.50; two, a: x 1.00, y 1.00."
    )
    assert [x for x in texts(figure) if "." in x] == [
        "0.00",
        "1.00",
        "0.25",
        "0.50",
        "1.00",
        "1.00",
    ]
    single = display.flips({"": {"a": [0.5]}}, ["a long name"], name="flip")
    assert single.text == "Figure: a: a long name 0.50."


def test_bars_of_answers_write_what_is_wide_enough():
    figure = display.kinds_of_answers({"all": {"none": [0.75, 0.02, 0.23]}}, name="answers")
    assert "all, none: the one meant 0.75, the other 0.02, a third word 0.23." in figure.text
    assert {"0.75", "0.23"} <= {*texts(figure)}
    assert "0.02" not in texts(figure)
