"""Answers to the exercises of “Windows”."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def hidden(
    later: Callable[[int, int], bool] = lambda i, j: j > i,
    other: Callable[[int, int], bool] = lambda a, b: a != b,
) -> Callable[[Tensor], Tensor]:
    """Write the mask cell by cell, well or badly."""

    def answer(documents: Tensor) -> Tensor:
        rows = list(enumerate(documents.tolist()))
        return torch.tensor([[later(i, j) or other(a, b) for j, b in rows] for i, a in rows])

    return answer


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_counts": [
        ([1, 3, 4, 4, 10], "it sees them besides"),
        ([1, 3, 4, 6, 20], "look at the three layers again: 20"),
    ],
    "check_block": [
        (hidden(), "✓ "),
        (hidden(other=lambda a, b: False), "the causal mask alone"),
        (hidden(other=lambda a, b: b > a), "a greater number or a smaller one"),
        (hidden(later=lambda i, j: j > i + 1), "key 1 is visible for query 0"),
        (lambda documents: hidden()(documents).float(), "they are torch.float32"),
    ],
}
