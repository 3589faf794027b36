"""Answers to the exercises of “Windows”."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def counted(w: int, own: int = 1, sinks: int = 2, each: int | None = None) -> list[int]:
    """Count keys for windows of w, well or badly."""
    each = w - 1 if each is None else each
    seen = [min(i + own, w) for i in (0, 2, 9)]
    return [*seen, seen[-1] + sinks, 3 * each + own]


def hidden(
    join: Callable[[bool, bool], bool] = lambda later, other: later or other,
    later: Callable[[int, int], bool] = lambda i, j: j > i,
    other: Callable[[int, int], bool] = lambda a, b: a != b,
) -> Callable[[Tensor], Tensor]:
    """Write the mask cell by cell, well or badly."""

    def answer(documents: Tensor) -> Tensor:
        rows = list(enumerate(documents.tolist()))
        return torch.tensor([[join(later(i, j), other(a, b)) for j, b in rows] for i, a in rows])

    return answer


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_counts": [
        (counted(4), "✓ "),
        (counted(3, own=0, each=3), "the window counts it"),
        (counted(4, sinks=0), "it sees them besides"),
        ([*counted(4, each=4)[:4], 12], "each layer adds w - 1"),
        ([4, 4, 4, 6, 10], "at the beginning there are fewer"),
        ([1, 3, 4, 6, 20], "look at the three layers again: 20"),
    ],
    "check_hide": [
        (hidden(), "✓ "),
        (hidden(other=lambda a, b: False), "the causal mask alone"),
        (hidden(lambda later, other: later and other), "you have joined with “and”"),
        (hidden(later=lambda i, j: j >= i), "tokens do not see themselves"),
        (hidden(other=lambda a, b: b > a), "a greater number or a smaller one"),
        (hidden(later=lambda i, j: j > i + 1), "key 1 is visible for query 0"),
        (lambda documents: hidden()(documents).float(), "they are torch.float32"),
    ],
}
