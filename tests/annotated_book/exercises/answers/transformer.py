"""Answers to the exercises of “The Transformer”."""

from typing import Any

import torch
from torch import Tensor

TURNS = torch.tensor([20.0, 2.0, 0.2, 0.02])


def block(k: int, i: int, e: int) -> Tensor:
    """Say where the two hands at a quarter of a turn go."""
    angle = torch.tensor(k * 10000 ** (-2 * i / e), dtype=torch.float64)
    quarters = angle + torch.pi / 2 * torch.tensor([1, 0], dtype=torch.float64)
    return torch.stack([quarters.sin(), quarters.cos()], 1)


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_angles": [
        (TURNS, "✓ "),
        (TURNS.sin(), "these are sines"),
        ([20, 2, 2, 0.02], "clock 3 has not turned by that. Divide 20 by 100"),
    ],
    "check_shift_block": [
        (block, "✓ "),
        (lambda k, i, e: block(abs(k), i, e), "not with k = -2, i = 1, e = 6: it moves by -k"),
        (lambda k, i, e: block(k, 0, e), "all clocks turn equally fast"),
    ],
}
