"""Heads on trial: each row has a map, a verdict, and two shares with their intervals."""

import re

import torch

from annotated_book import display

FOUND = {
    "the word before": display.Trial(
        "layer 1, head 3",
        torch.eye(4),
        (0.94, 0.83, 0.98),
        (0.02, 0.0, 0.11),
        "45 of 48 hits, 1 of the control",
        True,
    ),
    "the word after": display.Trial(
        "layer 2, head 9",
        torch.full((4, 4), 0.25),
        (0.5, 0.36, 0.64),
        (0.5, 0.36, 0.64),
        "24 of 48 hits, 24 of the control",
        False,
    ),
}


def test_heads_on_trial_are_told_with_their_counts_and_verdicts():
    figure = display.trials(FOUND, name="trials", caption="Blue: hits.")
    assert figure.text == (
        "Figure: the word before (layer 1, head 3): 45 of 48 hits, 1 of the control; it passes. "
        "the word after (layer 2, head 9): 24 of 48 hits, 24 of the control; it does not pass."
    )
    seen = re.findall(r"<text[^>]*>([^<]+)</text>", figure.html)
    assert [x for x in seen if x in "✓✗"] == ["✓", "✗"]
    assert {"the word before", "layer 2, head 9", "0.5"} <= {*seen}
    assert "Blue: hits." in figure.html
    narrowest = re.findall(r"min-width: (\d+)px", figure.html)
    assert max(map(int, narrowest)) <= 358  # the text's width on a screen of 390 pixels


def test_a_row_is_bold_where_the_pronouns_part_and_each_stands_on_its_side():
    rows = [
        ("driver", "nurse", [("he", 0), ("she", 1)]),
        ("farmer", "assistant", [("he", 0), ("she", 0)]),
        ("cook", "attendant", [("he", -1), ("she", 1)]),
    ]
    figure = display.torn(rows, name="torn")
    assert figure.text == (
        "Figure: driver: he; nurse: she. farmer: he, she; assistant: none. "
        "cook: none; attendant: she; neither: he."
    )
    texts = re.findall(r"<text([^>]*)>([^<]+)</text>", figure.html)
    bold = [word for look, word in texts if re.search(r"font-weight|700|bold", look)]
    assert [word for word in bold if "he" not in word] == ["driver", "nurse"]
