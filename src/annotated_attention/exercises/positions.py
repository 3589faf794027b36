"""Exercises of "Positions": arrows turned by hand, slopes of any number, a missing permutation."""

from typing import Any

import torch
from torch import Tensor

from annotated_attention.exercises._exercise import Exercise, normal
from annotated_attention.exercises._values import furthest, numbers
from annotated_attention.modern import alibi_slopes, half_to_interleaved, interleaved_to_half

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
        "the score is the plain dot product here, not divided by √2.": [-1, 2, -2, -1, -0.7071],
    },
    run=numbers(5),
    why=lambda answer, found, right: f"{_ARROWS[furthest(found, right) // 2]} is not right yet.",
    close=0.005,
)


def _slopes(answer: Any, h: int) -> Any:
    found = answer(h)
    if isinstance(found, list | tuple):
        return numbers(h)(found)
    return found.double() if isinstance(found, Tensor) else found


def _row(h: int) -> Tensor:
    return 2 ** (-8 * torch.arange(1, h + 1, dtype=torch.float64) / h)


def _smaller(h: int) -> int:
    """Give the largest power of two up to h."""
    return 1 << (h.bit_length() - 1)


def _mixed(h: int, begin: int = 0, step: int = 2) -> Tensor:
    """Take the row of the smaller power, then what is missing from that of the next larger one."""
    power = _smaller(h)
    return torch.cat([_row(power), _row(2 * power)[begin::step][: h - power]])


def _larger(h: int) -> Tensor:
    power = _smaller(h)
    return _row(power if power == h else 2 * power)[:h]


check_slopes = Exercise(
    name="my_slopes",
    right=alibi_slopes,
    praise="right for 1, 4, 6, 8, 12 and 40 heads: a power of two has its own row, and what is "
    "missing comes from between, out of the row of the next larger power.",
    wrong={
        "that is 2^(−8i / h) for every h. Checkpoints have it so only where h is a power of two; "
        "others take the row of the next smaller power first.": _row,
        "i begins at 1: with i = 0 the first slope would be 1, and the last not 2^−8.":
            lambda h: 2 ** (8 / h) * _row(h),
        "these are exponents of 2; the slopes are the powers.": lambda h: _row(h).log2(),
        "the slopes are right, but sorted. Each belongs to a head, so their order matters: first "
        "the row of the smaller power, then what comes from between.":
            lambda h: _mixed(h).sort(descending=True).values,
        "these are the first of the next larger power's row. Take the whole row of the smaller "
        "power, and only then from the larger one.": _larger,
        "from the larger power's row take every second one, beginning with the first: the others "
        "are in the smaller power's row already.": lambda h: _mixed(h, begin=1),
        "from the larger power's row take every second one: its neighbours are in the smaller "
        "power's row already.": lambda h: _mixed(h, step=1),
        "a bias takes something off the score, but the slopes themselves are positive.":
            lambda h: -_mixed(h),
    },
    sizes=[{"h": 8}, {"h": 4}, {"h": 6}, {"h": 12}, {"h": 1}, {"h": 40}],
    run=_slopes,
    shape="(h,)",
)  # fmt: skip


def _odd_first(weight: Tensor, h: int) -> Tensor:
    by_head = weight.unflatten(0, (h, -1))
    return torch.cat([by_head[:, 1::2], by_head[:, 0::2]], 1).flatten(0, 1)


check_permutation = Exercise(
    name="to_half",
    right=interleaved_to_half,
    praise="right: within each head first the even rows, then the odd ones. W_K needs the same; "
    "W_V and W_O stay, since values do not turn.",
    wrong={
        "the rows come back as they were, so pairs are still side by side "
        "(rotation-layout-mixed).": lambda weight, h: weight,
        "that is the way back, from pairs half a head apart to pairs side by side. Row 1 must go "
        "to the middle of its head.": half_to_interleaved,
        "you have reordered across the heads: all even rows, then all odd ones. Each head has its "
        "own pairs, so stay within its d rows.": lambda weight, h: interleaved_to_half(weight, 1),
        "the odd rows come first: the first feature of a pair is the even one.": _odd_first,
        "the columns are reordered. They belong to the features that come in; the pairs are among "
        "those that come out, the rows.":
            lambda weight, h: torch.cat([weight[:, 0::2], weight[:, 1::2]], 1),
    },
    sizes=[{"h": 4, "d": 6, "e": 10}, {"h": 1, "d": 10, "e": 7}, {"h": 3, "d": 2, "e": 5}],
    draw=lambda h, d, e: {**normal(weight=(h * d, e)), "num_heads": h},
    run=lambda answer, weight, h: torch.no_grad()(answer)(weight, h),
    shape="(h * d, e)",
)  # fmt: skip
