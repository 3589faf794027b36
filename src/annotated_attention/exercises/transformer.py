"""Exercises of "The Transformer": four hands, the parameters of the base model, and the shift."""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from annotated_attention.exercises._exercise import Exercise
from annotated_attention.exercises._values import furthest, number, numbers
from annotated_attention.positions import sinusoidal_code

check_angles = Exercise(
    name="angles",
    right=[20, 2, 0.2, 0.02],
    praise="right: the first clock has gone round three times, the last has hardly moved.",
    wrong={
        "that is position 0, where no clock has turned.": [0, 0, 0, 0],
        "that is how far each clock turns per position; here it has turned 20 times that.":
            [1, 0.1, 0.01, 0.001],
        "the clocks get slower, not faster: divide by 10, do not multiply.":
            [20, 200, 2000, 20000],
        "these are sines; the angles themselves are asked for.": [0.9129, 0.9093, 0.1987, 0.02],
        "these are cosines; the angles themselves are asked for.":
            [0.4081, -0.4161, 0.9801, 0.9998],
        "all clocks turn equally fast; each is to turn ten times more slowly than the one before.":
            [20, 20, 20, 20],
        "these are degrees; radians are asked for, and no factor is needed.":
            [1145.9, 114.59, 11.459, 1.1459],
        "you left out full turns; how far each clock has turned in all is asked for.":
            [1.1504, 2, 0.2, 0.02],
    },
    run=numbers(4),
    why=lambda answer, found, right: (
        f"clock {(i := furthest(found, right)) + 1} has not turned by that. Divide 20 by {10**i}."
    ),
    close=0.005,
)  # fmt: skip


Count = Callable[[int, int, int, int], float]  # of e, wide, layers and words


def _count(e: int, wide: int, layers: int, words: int) -> int:
    attention, thinking = 4 * e * e + 4 * e, 2 * e * wide + wide + e
    return layers * (3 * attention + 2 * thinking + 5 * 2 * e) + words * e


def _off(difference: Count) -> Count:
    """Give the count that differs by so much from the right one."""
    return lambda e, wide, layers, words: (
        _count(e, wide, layers, words) + difference(e, wide, layers, words)
    )


check_count_parameters = Exercise(
    name="count_parameters",
    right=_count,
    praise="right: 63,082,496 for the base model, as the class has. The paper says 65 million, and "
    "not how it counts.",
    wrong={
        "the layers are right, and the table of embeddings is missing.":
            _off(lambda e, wide, layers, words: -words * e),
        "the table is shared: it counts once, not three times.":
            _off(lambda e, wide, layers, words: 2 * words * e),
        "the table is shared with the projection: it counts once, not twice.":
            _off(lambda e, wide, layers, words: words * e),
        "the biases are missing.":
            _off(lambda e, wide, layers, words: -layers * (14 * e + 2 * wide)),
        "the norms are missing: each has a scale and a shift.":
            _off(lambda e, wide, layers, words: -layers * 10 * e),
        "biases and norms are missing.":
            _off(lambda e, wide, layers, words: -layers * (24 * e + 2 * wide)),
        "a decoder layer has three norms, one for each sublayer.":
            _off(lambda e, wide, layers, words: -layers * 2 * e),
        "a decoder layer has two attention modules, each with its norm.":
            _off(lambda e, wide, layers, words: -layers * (4 * e * e + 6 * e)),
        "that is the encoder: add as many decoder layers.":
            lambda e, wide, layers, words:
                layers * (4 * e * e + 2 * e * wide + wide + 9 * e) + words * e,
        "there are no final norms in the paper.": _off(lambda e, wide, layers, words: 4 * e),
        "the attention has a fourth matrix, W_O.":
            _off(lambda e, wide, layers, words: -layers * 3 * (e * e + e)),
        "the feed-forward network has two matrices.":
            _off(lambda e, wide, layers, words: -layers * 2 * e * wide),
        "positions are computed, not learned: they count nothing.":
            _off(lambda e, wide, layers, words: 5000 * e),
    },
    # The base model of 2017, then sizes that hide nothing.
    sizes=[
        {"e": 512, "wide": 2048, "layers": 6, "words": 37000},
        {"e": 24, "wide": 50, "layers": 3, "words": 101},
        {"e": 10, "wide": 7, "layers": 1, "words": 13},
    ],
    run=lambda answer, *sizes: number(answer(*sizes)),
    close=0,
)  # fmt: skip


def _shift(k: int, e: int, exponent: int = 2) -> Tensor:
    """Put one rotation for each clock along the diagonal."""
    angles = [k / 10000 ** (exponent * i / e) for i in range(e // 2)]
    blocks = [[[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]] for a in angles]
    return torch.block_diag(*torch.tensor(blocks, dtype=torch.float64))


def _sines_first(k: int, e: int) -> Tensor:
    order = [*range(0, e, 2), *range(1, e, 2)]
    return _shift(k, e)[order][:, order]


check_shift_matrix = Exercise(
    name="shift_matrix",
    right=_shift,
    praise="right: a position times this matrix is the position k further on, for any k.",
    wrong={
        "it moves by -k: the blocks are transposed. A position is a row, and stands on the left of "
        "the matrix.": lambda k, e: _shift(-k, e),
        "that is for all sines first, then all cosines. Here each sine has its cosine beside it.":
            _sines_first,
        "all clocks turn equally fast; clock i goes 10000^(2i/e) times slower.":
            partial(_shift, exponent=0),
        "the clocks slow down half as fast as they should: the exponent is 2i/e.":
            partial(_shift, exponent=1),
        "the clocks get faster: divide by 10000^(2i/e), do not multiply.":
            partial(_shift, exponent=-2),
        "that is a table of positions; the matrix that moves them is asked for.":
            lambda k, e: sinusoidal_code(e, e),
    },
    sizes=[{"k": 3, "e": 8}, {"k": 1, "e": 2}, {"k": -2, "e": 6}, {"k": 0, "e": 4}],
    shape="(e, e)",
)  # fmt: skip
