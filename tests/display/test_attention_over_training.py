"""Attention over training: what the figure writes and says of a map."""

from typing import Any

import pytest

MODULE = "attention_over_training.js"


def test_every_weight_as_a_cell_writes_it(script: Any) -> None:
    written = {hundredths: script("write", hundredths) for hundredths in range(101)}
    assert {written.pop(hundredths) for hundredths in range(10)} == {""}
    assert written.pop(100) == "1"
    assert written == {n: f"{n / 100:.2f}".removeprefix("0") for n in written}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ([100, 0, 0], "q looks at x (1.00)."),
        ([9, 29, 62], "q looks at z (0.62)."),
        ([33, 34, 34], "q looks at y (0.34)."),  # the first of equals, as torch's argmax
        ([7, 7, 7], "q looks at x (0.07)."),
    ],
)
def test_what_is_said_of_a_row(script: Any, row: list[int], said: str) -> None:
    assert script("sayRows", [row], ["q"], ["x", "y", "z"]) == said
    twice = script("sayRows", [row, row], ["q", "r"], ["x", "y", "z"])
    assert twice == f"{said[:-1]}; {said.replace('q', 'r', 1)}"
