"""Exercises of "The Transformer": four hands, and the block of a shift."""

import math
from functools import partial

import torch
from torch import Tensor

from annotated_book.exercises._exercise import Exercise
from annotated_book.exercises._values import furthest, numbers

check_angles = Exercise(
    name="angles",
    right=[20, 2, 0.2, 0.02],
    praise="right: the first clock has gone round three times, the last has hardly moved.",
    wrong={
        "that is position 0, where no clock has turned.": [0, 0, 0, 0],
        "that is how far each clock turns per position; here it has turned 20 times that.": [
            1,
            0.1,
            0.01,
            0.001,
        ],
        "the clocks get slower, not faster: divide by 10, do not multiply.": [20, 200, 2000, 20000],
        "these are sines; the angles themselves are asked for.": [0.9129, 0.9093, 0.1987, 0.02],
        "all clocks turn equally fast; each is to turn ten "
        "times more slowly than the one before.": [
            20,
            20,
            20,
            20,
        ],
        "these are degrees; radians are asked for, and no factor is needed.": [
            1145.9,
            114.59,
            11.459,
            1.1459,
        ],
        "you left out full turns; how far each clock has turned in all is asked for.": [
            1.1504,
            2,
            0.2,
            0.02,
        ],
    },
    run=numbers(4),
    why=lambda answer, found, right: (
        f"clock {(i := furthest(found, right)) + 1} has not turned by that. Divide 20 by {10**i}."
    ),
    close=0.005,
)


def _shift(k: int, i: int, e: int, exponent: int = 2) -> Tensor:
    """Rotate the hand of one clock."""
    a = k / 10000 ** (exponent * i / e)
    block = [[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]]
    return torch.tensor(block, dtype=torch.float64)


check_shift_block = Exercise(
    name="shift_block",
    right=_shift,
    praise="right: a hand times this block is the hand k positions further on, for any k.",
    wrong={
        "it moves by -k: the block is transposed. A position is a row, and stands on the left of "
        "the matrix.": lambda k, i, e: _shift(-k, i, e),
        "all clocks turn equally fast; clock i goes 10000^(2i/e) times slower.": partial(
            _shift, exponent=0
        ),
        "the clocks slow down half as fast as they should: the exponent is 2i/e.": partial(
            _shift, exponent=1
        ),
        "the clocks get faster: divide by 10000^(2i/e), do not multiply.": partial(
            _shift, exponent=-2
        ),
    },
    sizes=[{"k": 3, "i": 2, "e": 8}, {"k": 1, "i": 0, "e": 2}, {"k": -2, "i": 1, "e": 6}],
    shape="(2, 2)",
)
