"""Answers to the exercises of “The Transformer”."""

import math
from typing import Any

import torch
from torch import Tensor

TURNS = torch.tensor([20.0, 2.0, 0.2, 0.02])


def block(k: int, i: int, e: int, *, sign: int = 1, speed: float = 2.0) -> Tensor:
    """Say where the two hands at a quarter of a turn go."""
    angle = torch.tensor(sign * k * 10000 ** (-speed * i / e), dtype=torch.float64)
    quarters = angle + torch.pi / 2 * torch.tensor([1, 0], dtype=torch.float64)
    return torch.stack([quarters.sin(), quarters.cos()], 1)


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_angles": [
        (TURNS, "✓ "),
        ([0, 0, 0, 0], "that is position 0"),
        (TURNS / 20, "per position"),
        (TURNS.sin(), "these are sines"),
        ([20] * 4, "all clocks turn equally fast"),
        (torch.rad2deg(TURNS), "these are degrees"),
        (TURNS % (2 * math.pi), "you left out full turns"),
        ([20, 2, 2, 0.02], "clock 3 has not turned by that. Divide 20 by 100"),
    ],
    "check_shift_block": [
        (block, "✓ "),
        (lambda k, i, e: block(k, i, e).T, "it moves by -k: the block is transposed"),
        (lambda k, i, e: block(abs(k), i, e), "not with k = -2, i = 1, e = 6: it moves by -k"),
        (lambda k, i, e: block(k, i, e, speed=0), "all clocks turn equally fast"),
        (lambda k, i, e: block(k, i, e, speed=1), "half as fast"),
        (lambda k, i, e: block(k, i, e, speed=-2), "the clocks get faster"),
    ],
}  # fmt: skip
