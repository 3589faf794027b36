"""Exercises of "Tiles": a piece by pencil, a step of the running softmax, and two halves merged."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from annotated_book.exercises._exercise import Exercise, NotYet, Refused
from annotated_book.exercises._values import furthest, numbers

_NAMES = ("correction", "total", "mix", "output")


def _pencil(correction: float, of_total: float, of_mix: float, each: float = 1) -> list[float]:
    """Give the four numbers, with what total and mix are multiplied by, and a key's exponential."""
    total, mix = 2 * of_total + 2 * each, 6 * of_mix + 2 * each
    return [correction, total, mix, mix / total]


_RIGHT = math.exp(-1)

check_numbers = Exercise(
    name="my_numbers",
    right=_pencil(_RIGHT, _RIGHT, _RIGHT),
    praise="right: total and mix shrink to 0.37 of what they were, and each of the two keys adds "
    "1. The mean of 3 falls to 1.54, because the new keys have the value 1 and larger scores.",
    wrong={
        "the correction is the wrong way round: e to the old unit minus the new one. A larger unit "
        "makes the numbers smaller.": _pencil(math.e, math.e, math.e),
        "the total is not corrected.": _pencil(_RIGHT, 1, _RIGHT),
        "the mix is not corrected. Both sums change their unit.": _pencil(_RIGHT, _RIGHT, 1),
        "neither sum is corrected.": _pencil(_RIGHT, 1, 1),
        "the exponentials of the new keys are in the unit 0. In the unit 4 each of them is "
        "exp(4 - 4).": _pencil(_RIGHT, _RIGHT, _RIGHT, math.exp(4)),
        "the exponentials of the new keys are in the old unit. Take the largest score of both "
        "pieces off.": _pencil(_RIGHT, _RIGHT, _RIGHT, math.e),
    },
    run=numbers(4),
    why=lambda answer, found, right: (
        f"look at the {_NAMES[furthest(found, right)]} again: "
        f"{found[furthest(found, right)]:.2f} is not right."
    ),
    close=0.006,
)

Running = tuple[Tensor, Tensor, Tensor]


def _add_piece(
    largest: Tensor,
    total: Tensor,
    mix: Tensor,
    scores: Tensor,
    values: Tensor,
    turn: Callable[[Tensor], Tensor] = torch.exp,
    of_total: bool = True,
    of_mix: bool = True,
    unit: str = "so far",
) -> Running:
    """Go on with one piece, rightly or with a mistake."""
    larger = scores.amax(-1, keepdim=True)
    if unit == "so far":
        larger = torch.maximum(largest, larger)
    elif unit == "first":
        larger = torch.where(largest == -math.inf, larger, largest)
    elif unit == "of all rows":
        larger = torch.maximum(largest, larger).amax(0, keepdim=True).expand_as(largest)
    correction, powers = turn(largest - larger), (scores - larger).exp()
    total = (correction if of_total else 1) * total + powers.sum(-1, keepdim=True)
    return larger, total, (correction if of_mix else 1) * mix + powers @ values


def _all_pieces(step: Callable[..., Any], scores: Tensor, values: Tensor, size: int) -> Tensor:
    """Take a step for each piece; give the output, and the log-sum-exp in a last column."""
    n, width = len(scores), values.size(-1)
    running = (
        scores.new_full((n, 1), -math.inf),
        scores.new_zeros(n, 1),
        scores.new_zeros(n, width),
    )
    for piece, some in zip(scores.split(size, 1), values.split(size), strict=True):
        running = step(*running, piece, some)
        if running is None or running is ...:
            raise NotYet(f"it returns {'...' if running is ... else None}")
        if not isinstance(running, tuple | list) or len(running) != 3:
            raise Refused("three tensors are asked for: the largest score, the total and the mix.")
        for x, name, fits in zip(running, ("largest", "total", "mix"), (1, 1, width), strict=True):
            if not isinstance(x, Tensor):
                raise Refused(f"the {name} it returns is an object of type {type(x).__name__}.")
            if x.shape != (n, fits):
                raise Refused(
                    f"the {name} it returns has the shape {tuple(x.shape)}; what fits is "
                    f"{(n, fits)}. keepdim=True keeps the axis of the keys."
                )
    largest, total, mix = running
    return torch.cat([mix / total, largest + total.log()], -1)


def _scores(
    n: int, m: int, width: int, size: int, later: float = 0, apart: float = 0
) -> dict[str, Any]:
    """Draw values, and scores: the last keys are ``later`` higher, the last query ``apart``."""
    scores = torch.randn(n, m, dtype=torch.float64)
    scores[:, -1] += later
    scores[-1] += apart
    return {"scores": scores, "values": torch.randn(m, width, dtype=torch.float64), "size": size}


_SIZES = {"n": 5, "m": 12, "width": 3, "size": 4}

check_add_piece = Exercise(
    name="add_piece",
    right=_add_piece,
    praise="right: for pieces of any size, for scores that would overflow, and for the gradients.",
    wrong={
        "the total is converted to the new unit, the mix is not.": partial(
            _add_piece, of_mix=False
        ),
        "the mix is converted to the new unit, the total is not.": partial(
            _add_piece, of_total=False
        ),
        "neither total nor mix is converted to the new unit.": partial(
            _add_piece, of_total=False, of_mix=False
        ),
        "the correction is the wrong way round: e to the old unit minus the new one.": partial(
            _add_piece, turn=lambda x: torch.where(x == -math.inf, 0, (-x).exp())
        ),
        "you multiply by the difference of the units; the correction is its exponential.": partial(
            _add_piece, turn=lambda x: torch.where(x == -math.inf, 0, x)
        ),
        "the unit of the first piece is kept. As soon as a later score is far above it, its "
        "exponential is infinite.": partial(_add_piece, unit="first"),
        "the unit is the largest score of this piece, even where an earlier one was larger. Far "
        "below an earlier piece, the correction is infinite.": partial(
            _add_piece, unit="of the piece"
        ),
        "all queries get one unit, the largest score of any. Each query has its own: far below the "
        "others, all exponentials of a query are 0.": partial(_add_piece, unit="of all rows"),
    },
    sizes=[
        _SIZES,
        {**_SIZES, "size": 5},
        {**_SIZES, "later": 1000},
        {**_SIZES, "later": -1000, "size": 1},
        {**_SIZES, "apart": 1000},
    ],
    draw=_scores,
    run=_all_pieces,
    shape="(n, d_v + 1)",
)


def _merge(
    out_a: Tensor,
    lse_a: Tensor,
    out_b: Tensor,
    lse_b: Tensor,
    shares: Callable[[Tensor], Tensor] = lambda lses: lses.softmax(0),
) -> Tensor:
    """Merge two halves, with these shares."""
    share_a, share_b = shares(torch.stack([lse_a, lse_b]))[..., None]
    return share_a * out_a + share_b * out_b


def _halves(n: int, width: int, high: float = 0) -> dict[str, Tensor]:
    """Draw the results of two halves; ``high`` is added to both log-sum-exps."""
    a, b = torch.randn(2, n, width, dtype=torch.float64)
    lse_a, lse_b = torch.randn(2, n, dtype=torch.float64) + high
    return {"out_a": a, "lse_a": lse_a, "out_b": b, "lse_b": lse_b}


check_merge_halves = Exercise(
    name="merge_halves",
    right=_merge,
    praise="right, with large log-sum-exps, too, and so are the gradients.",
    wrong={
        "this is the mean of the two outputs. A half counts by its total.": partial(
            _merge, shares=lambda lses: torch.full_like(lses, 0.5)
        ),
        "this is the sum of the two outputs. Their shares must sum to 1.": partial(
            _merge, shares=torch.ones_like
        ),
        "you weight by the log-sum-exps. The totals are their exponentials.": partial(
            _merge, shares=lambda lses: lses / lses.sum(0)
        ),
        "you multiply by the totals, and do not divide by their sum.": partial(
            _merge, shares=torch.exp
        ),
        "the two shares are exchanged.": partial(_merge, shares=lambda lses: (-lses).softmax(0)),
        "the softmax runs over the queries. The two shares of each query must sum to 1.": partial(
            _merge, shares=lambda lses: lses.softmax(1)
        ),
        "exp of a large log-sum-exp is infinite. Take the larger of the two off first, or leave it "
        "to a softmax.": partial(_merge, shares=lambda lses: lses.exp() / lses.exp().sum(0)),
    },
    sizes=[{"n": 5, "width": 3}, {"n": 4, "width": 2, "high": 1000}],
    draw=_halves,
    shape="(n, d_v)",
)
