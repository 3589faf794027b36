"""Exercises of "Positions": arrows turned by hand, and a missing permutation."""

import torch
from torch import Tensor

from annotated_attention.modern import half_to_interleaved, interleaved_to_half
from annotated_book.exercises._exercise import Exercise, normal
from annotated_book.exercises._values import furthest, numbers

_ARROWS = ("the query at position 1", "the query at position 2", "the score")

check_turned = Exercise(
    name="my_turned",
    right=[-1, 2, -2, -1, -1],
    praise="right: a quarter turn makes (a, b) into (−b, a). At 2 and 1 the query is one quarter "
    "turn ahead of the key, so the score is that of the query turned once and the key not at all.",
    wrong={
        "you turn the other way, clockwise. A quarter turn counterclockwise takes the arrow "
        "(1, 0), which points right, to (0, 1), which points up.": [1, -2, -2, -1, 1],
        "the arrow at position 2 has turned twice, not once: by half a turn.": [-1, 2, -1, 2, -1],
        "the score is that of the arrows before turning. The query is at 2 and the key at 1, so "
        "the query has turned further.": [-1, 2, -2, -1, 7],
        "in the score only the query has turned, twice (rotates-one-side). The key stands at "
        "position 1, and has turned, too.": [-1, 2, -2, -1, -7],
        "in the score the key has turned further than the query. The query stands at 2, the key "
        "at 1.": [-1, 2, -2, -1, 1],
    },
    run=numbers(5),
    why=lambda answer, found, right: f"{_ARROWS[furthest(found, right) // 2]} is not right yet.",
    close=0.005,
)


def _columns(weight: Tensor) -> Tensor:
    """Reorder the columns as the rows should be."""
    half = -(-weight.size(1) // 2)
    return weight[:, sorted(range(weight.size(1)), key=lambda i: (i % half, i))]


check_permutation = Exercise(
    name="to_neighbours",
    right=half_to_interleaved,
    praise="right: within each head a row of the first half, then its partner of the second. W_K "
    "needs the same; W_V and W_O stay, since values do not turn.",
    wrong={
        "the rows come back as they were, so pairs are still half a head apart "
        "(rotation-layout-mixed).": lambda weight, h: weight,
        "that is the way back, from pairs side by side to pairs half a head apart. In a head of "
        "width 6, row 3 must come second.": interleaved_to_half,
        "you have reordered across the heads: the first half of all rows with the second. Each "
        "head has its own pairs, so stay within its d rows.": lambda weight, h: half_to_interleaved(
            weight, 1
        ),
        "the columns are reordered. They belong to the features that come in; the pairs are among "
        "those that come out, the rows.": lambda weight, h: _columns(weight),
    },
    sizes=[{"h": 4, "d": 6, "e": 10}, {"h": 1, "d": 10, "e": 7}, {"h": 3, "d": 2, "e": 5}],
    draw=lambda h, d, e: {**normal(weight=(h * d, e)), "num_heads": h},
    run=lambda answer, weight, h: torch.no_grad()(answer)(weight, h),
    shape="(h * d, e)",
)
