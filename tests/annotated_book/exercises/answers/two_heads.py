"""Answers to the exercises of “Two heads”."""

from typing import Any

import torch
from torch import Tensor

Heads = list[list[Tensor]]


def added_up(x: Tensor, heads: Heads, w_o: Tensor) -> Tensor:
    total = torch.zeros(len(x), w_o.size(1), dtype=w_o.dtype)
    for (w_q, w_k, w_v), rows in zip(heads, w_o.chunk(len(heads)), strict=True):
        weights = ((x @ w_q) @ (x @ w_k).T / w_q.size(1) ** 0.5).softmax(1)
        total += weights @ x @ w_v @ rows
    return total


def chained(x: Tensor, heads: Heads, w_o: Tensor) -> Tensor:
    for head, rows in zip(heads, w_o.chunk(len(heads)), strict=True):
        x = added_up(x, [head], rows)
    return x


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_scene": [
        (torch.tensor([3.0, -1.0]), "✓ my_scene: right"),
        ((-1, 3), "you have exchanged the two"),
        ((2, 2), "lies on the line of the first head, but not on that of the other"),
        ((-3, 1), "lies on the line of the second head, but not"),
        ((1, 1), "bring home 1 and 1, and they are to bring home 2 and 0"),
    ],
    "check_run_heads": [
        (added_up, "✓ run_heads: right"),
        (lambda x, heads, w_o: None, "not yet"),
        (
            lambda x, heads, w_o: added_up(x, heads[:1], w_o[: len(w_o) // len(heads)]),
            "only the first",
        ),
        (lambda x, heads, w_o: added_up(x, heads[::-1], w_o), "the heads are in reversed order"),
        (lambda x, heads, w_o: added_up(x, heads, w_o) / len(heads), "you take the average"),
        (
            lambda x, heads, w_o: added_up(x, [heads[0]] * len(heads), w_o),
            "the same three matrices",
        ),
        (chained, "the shape is right, but"),
    ],
}
