"""Answers to the exercises of “Positions”."""

from typing import Any

import torch


def order(weight: torch.Tensor, h: int) -> list[int]:
    """List, head by head, each row of the first half with its partner."""
    d = len(weight) // h
    return [i * d + j + k for i in range(h) for j in range(d // 2) for k in (0, d // 2)]


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_turned": [
        ([-1, 2, -2, -1, 1], "in the score the key has turned further than the query"),
        ([-1, 1, -2, -1, -1], "the query at position 1 is not right yet"),
    ],
    "check_permutation": [
        (lambda w, h: w[order(w, h)], "✓ "),
        (lambda w, h: w[order(w, 1)], "you have reordered across the heads"),
        (lambda w, h: w[order(w, h)] if h == 4 else w, "not with h = 1, d = 10, e = 7: the"),
    ],
}
