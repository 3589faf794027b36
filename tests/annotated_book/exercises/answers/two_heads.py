"""Answers to the exercises of “Two heads”."""

from typing import Any

import torch
from torch import Tensor

Heads = list[Tensor]


def in_a_loop(mixed: Heads, w_o: Tensor) -> Tensor:
    d = mixed[0].size(1)
    total = torch.zeros(len(mixed[0]), w_o.size(1), dtype=w_o.dtype)
    for i, head in enumerate(mixed):
        total += head @ w_o[i * d : (i + 1) * d]
    return total


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_scene": [
        (torch.tensor([3.0, -1.0]), "✓ my_scene: right"),
        ((-1, 3), "you have exchanged the two"),
        ((2, 2), "lies on the line of the first head, but not on that of the other"),
        ((-3, 1), "lies on the line of the second head, but not"),
        ((1, 1), "bring home 1 and 1, and they are to bring home 2 and 0"),
    ],
    "check_add_up": [
        (in_a_loop, "✓ add_up: right"),
        (lambda mixed, w_o: torch.hstack(mixed) @ w_o, "you concatenate (torch.hstack)"),
        (lambda mixed, w_o: in_a_loop(mixed[:2], w_o), "only the first heads count"),
        (lambda mixed, w_o: in_a_loop([*mixed[:2], mixed[-1]], w_o), "but not with h = 4, n = 6"),
    ],
}
