"""Answers to the exercises of “Tiles”."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def pencil(correction: float, factor_of_total: float, factor_of_mix: float) -> list[float]:
    """Work the four numbers out, well or badly."""
    total, mix = 2 * factor_of_total + 2, 6 * factor_of_mix + 2
    return [correction, total, mix, mix / total]


def step(
    unit: str = "running", total_by: Any = None, mix_by: Any = None, sign: int = 1
) -> Callable[..., tuple[Tensor, ...]]:
    """Write the body of the loop, well or badly."""

    def answer(
        largest: Tensor, total: Tensor, mix: Tensor, scores: Tensor, values: Tensor
    ) -> tuple[Tensor, ...]:
        new = scores.max(-1, keepdim=True).values
        if unit == "running":
            new = torch.cat([largest, scores], -1).max(-1, keepdim=True).values
        if unit == "first" and largest.isfinite().all():
            new = largest
        if unit == "all":
            new = torch.cat([largest, scores], -1).max().expand_as(largest)
        change = torch.exp(sign * (largest - new)) if largest.isfinite().all() else 0.0 * total
        powers = torch.exp(scores - new)
        return (
            new,
            total * (change if total_by is None else total_by) + powers.sum(-1, keepdim=True),
            mix * (change if mix_by is None else mix_by) + powers @ values,
        )

    return answer


def merged(a: Tensor, lse_a: Tensor, b: Tensor, lse_b: Tensor) -> Tensor:
    """Merge by a sigmoid, which is a softmax of two."""
    share = torch.sigmoid(lse_a - lse_b)[:, None]
    return b + share * (a - b)


def by_totals(a: Tensor, lse_a: Tensor, b: Tensor, lse_b: Tensor) -> Tensor:
    """Merge by the totals, which overflow."""
    t_a, t_b = lse_a.exp()[:, None], lse_b.exp()[:, None]
    return (t_a * a + t_b * b) / (t_a + t_b)


RIGHT = 1 / math.e

ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_numbers": [
        (pencil(RIGHT, RIGHT, RIGHT), "✓ "),
        ([0.37, 2.74, 4.21, 1.54], "✓ "),
        (pencil(math.e, math.e, math.e), "the wrong way round"),
        (pencil(RIGHT, 1, RIGHT), "the total is not corrected"),
        ([RIGHT, 2 * RIGHT + 2 * math.exp(4), 6 * RIGHT + 2 * math.exp(4),
          (6 * RIGHT + 2 * math.exp(4)) / (2 * RIGHT + 2 * math.exp(4))], "in the unit 0"),
        ([RIGHT, 2 * RIGHT + 2, 6 * RIGHT + 2, 3], "look at the output again: 3.00"),
    ],
    "check_add_piece": [
        (step(), "✓ "),
        (step(mix_by=1), "the mix is not"),
        (step(total_by=1, mix_by=1), "neither total nor mix"),
        (step(sign=-1), "the wrong way round"),
        (step(unit="first"), "the unit of the first piece is kept"),
        (step(unit="all"), "all queries get one unit"),
        (lambda *running: running[0], "three tensors are asked for"),
    ],
    "check_merge_halves": [
        (merged, "✓ "),
        (lambda a, lse_a, b, lse_b: (a + b) / 2, "the mean of the two outputs"),
        (lambda a, lse_a, b, lse_b:
            (lse_a[:, None] * a + lse_b[:, None] * b) / (lse_a + lse_b)[:, None],
         "you weight by the log-sum-exps"),
        (lambda a, lse_a, b, lse_b: merged(b, lse_a, a, lse_b), "the two shares are exchanged"),
        (by_totals, "exp of a large log-sum-exp is infinite"),
    ],
}  # fmt: skip
