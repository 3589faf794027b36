"""Answers to the exercises of “Tiles”."""

from typing import Any

import torch
from torch import Tensor


def add(
    largest: Tensor,
    total: Tensor,
    mix: Tensor,
    scores: Tensor,
    values: Tensor,
    alike: bool = False,
    corrected: bool = True,
) -> tuple[Tensor, ...]:
    """Add a piece, all in one unit or each query in its own, with a correction or without."""
    new = torch.cat([largest, scores], -1).amax([0, 1] if alike else 1, keepdim=True)
    new = new.expand_as(largest)
    powers = torch.exp(scores - new)
    change = torch.exp(largest - new) if corrected or largest.isinf().all() else 1
    return new, total * change + powers.sum(1, keepdim=True), mix * change + powers @ values


def merged(a: Tensor, lse_a: Tensor, b: Tensor, lse_b: Tensor) -> Tensor:
    """Merge by a sigmoid, which is a softmax of two."""
    share = torch.sigmoid(lse_a - lse_b)[:, None]
    return b + share * (a - b)


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_numbers": [
        ([0.37, 2.74, 4.21, 1.54], "✓ "),
        ([0.37, 4, 4.21, 1.05], "the total is not corrected"),
        ([0.37, 2.74, 4.21, 3], "look at the output again: 3.00"),
    ],
    "check_add_piece": [
        (add, "✓ "),
        (lambda *given: add(*given, corrected=False), "neither total nor mix"),
        (lambda *given: add(*given, alike=True), "all queries get one unit"),
        (lambda *running: running[0], "three tensors are asked for"),
    ],
    "check_merge_halves": [
        (merged, "✓ "),
        (lambda a, lse_a, b, lse_b: merged(b, lse_a, a, lse_b), "the two shares are exchanged"),
        (lambda *halves: merged(*halves) + 1, "of its 15 numbers are not. Most of all at"),
    ],
}
