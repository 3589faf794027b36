"""Answers to the exercises of “The Transformer”."""

from typing import Any

import torch
from torch import Tensor

TURNS = torch.tensor([20.0, 2.0, 0.2, 0.02])


def by_sentence(model: Any, src: Tensor, max_new: int) -> Tensor:
    """Write all words first, and cut each sentence behind its end."""
    memory, written = model.encode(src), torch.full((len(src), 1), 1)
    for _ in range(max_new):
        following = model.decode(written, memory, src == 0)[:, -1].argmax(-1)
        written = torch.cat([written, following[:, None]], 1)
    behind = (written == 2).cumsum(1) - (written == 2).int() > 0
    last = int((~behind).sum(1).max())
    return written.masked_fill(behind, 0)[:, :last]


def short(model: Any, src: Tensor, max_new: int) -> Tensor:
    """Write a word less than was asked for."""
    return by_sentence(model, src, max_new - 1)


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_angles": [
        (TURNS, "✓ "),
        (TURNS.sin(), "these are sines"),
        ([20, 2, 2, 0.02], "clock 3 has not turned by that. Divide 20 by 100"),
    ],
    "check_greedy_until_end": [
        (by_sentence, "✓ "),
        (lambda model, src, max_new: by_sentence(model, src, max_new)[:1], "(b, n)"),
        (short, "not with max_new = 4"),
    ],
}
