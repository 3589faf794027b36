"""Answers to the exercises of “Masks in the wild”."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def parts(given: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Give the keys that are words, and for each of the newest queries the keys up to it."""
    place = torch.arange(given.size(1))
    return (given == 1)[:, None, None, :], place <= place[-n:, None]


def right(given: Tensor, n: int) -> Tensor:
    words, past = parts(given, n)
    return words & past


def for_each_head(given: Tensor, n: int) -> Tensor:
    return right(given, n).expand(-1, {6: 4}.get(given.size(1), 2), -1, -1)


def hidden(
    later: Callable[[int, int], bool] = lambda i, j: j > i,
    other: Callable[[int, int], bool] = lambda a, b: a != b,
) -> Callable[[Tensor], Tensor]:
    """Write the mask of packed documents cell by cell, well or badly."""

    def answer(documents: Tensor) -> Tensor:
        rows = list(enumerate(documents.tolist()))
        return torch.tensor([[later(i, j) or other(a, b) for j, b in rows] for i, a in rows])

    return answer


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_make_ready": [
        (for_each_head, "✓ "),
        (lambda given, n: parts(given, n)[0], "but the queries still look ahead"),
        (lambda given, n: given.bool(), "of shape (2, 6); what fits is (b, h, n"),
        (lambda given, n: right(given, n).float(), "and 1 hides nothing"),
        (
            lambda given, n: parts(given, n)[0] & parts(given, n)[1].flip(-1),
            "in sample 0, the query at place 3 finds the key at place 0",
        ),
        (lambda given, n: right(given, 3), "not with h = 2, m = 5, n = 5, first = 4"),
    ],
    "check_block": [
        (hidden(), "✓ "),
        (hidden(other=lambda a, b: False), "the causal mask alone"),
        (hidden(other=lambda a, b: b > a), "a greater number or a smaller one"),
        (hidden(later=lambda i, j: j > i + 1), "key 1 is visible for query 0"),
        (lambda documents: hidden()(documents).float(), "they are torch.float32"),
    ],
}
