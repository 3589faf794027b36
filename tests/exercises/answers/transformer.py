"""Answers to the exercises of “The Transformer”."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from annotated_attention import sinusoidal_code

TURNS = torch.tensor([20.0, 2.0, 0.2, 0.02])


def by_pytorch(e: int, wide: int, layers: int, words: int) -> int:
    """Let PyTorch count its own class, less the final norms that the paper does not have."""
    with torch.device("meta"):
        model = nn.Transformer(e, 2, layers, layers, wide, batch_first=True)
    return sum(p.numel() for p in model.parameters()) - 4 * e + words * e


def off(amount: Callable[[int, int, int, int], int]) -> Callable[..., Any]:
    return lambda *sizes: by_pytorch(*sizes) + amount(*sizes)


def entries(k: int, e: int, *, sign: int = 1, speed: float = 2.0) -> Tensor:
    """Write the entries one by one."""
    matrix = torch.zeros(e, e, dtype=torch.float64)
    for i in range(0, e, 2):
        angle = sign * k * 10000 ** (-speed * (i // 2) / e)
        matrix[i, i] = matrix[i + 1, i + 1] = math.cos(angle)
        matrix[i, i + 1], matrix[i + 1, i] = -math.sin(angle), math.sin(angle)
    return matrix


def halves(k: int, e: int) -> Tensor:
    angle = k / 10000 ** (torch.arange(0, e, 2, dtype=torch.float64) / e)
    sine, cosine = angle.sin().diag(), angle.cos().diag()
    return torch.cat([torch.cat([cosine, -sine], 1), torch.cat([sine, cosine], 1)])


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_angles": [
        (TURNS, "✓ "),
        ([0, 0, 0, 0], "that is position 0"),
        (TURNS / 20, "per position"),
        ([20, 200, 2000, 20000], "the clocks get slower"),
        (TURNS.sin(), "these are sines"),
        (TURNS.cos(), "these are cosines"),
        ([20] * 4, "all clocks turn equally fast"),
        (torch.rad2deg(TURNS), "these are degrees"),
        (TURNS % (2 * math.pi), "you left out full turns"),
        ([20, 2, 2, 0.02], "clock 3 has not turned by that. Divide 20 by 100"),
    ],
    "check_count_parameters": [
        (by_pytorch, "✓ "),
        (off(lambda e, w, n, v: -v * e), "the table of embeddings is missing"),
        (off(lambda e, w, n, v: v * e), "it counts once, not twice"),
        (off(lambda e, w, n, v: 2 * v * e), "counts once, not three times"),
        (off(lambda e, w, n, v: -10 * n * e), "the norms are missing"),
        (off(lambda e, w, n, v: -n * (14 * e + 2 * w)), "the biases are miss"),
        (off(lambda e, w, n, v: 5000 * e), "positions are computed, not le"),
        (off(lambda e, w, n, v: 4 * e), "there are no final norms"),
        (off(lambda e, w, n, v: -2 * n * e), "a decoder layer has three norms"),
        (off(lambda e, w, n, v: -3 * n * e * (e + 1)), "fourth matrix, W_O"),
        (off(lambda e, w, n, v: -2 * n * e * w), "has two matrices"),
        (off(lambda e, w, n, v: 7),
         "words = 37000 it returns 63,082,503; right is 63,082,496."),
        (lambda *sizes: 63_082_496, "not with e = 24, wide = 50, layers = 3, words = 101: "),
    ],
    "check_shift_matrix": [
        (entries, "✓ "),
        (lambda k, e: entries(k, e).T, "it moves by -k: the blocks are transposed"),
        (lambda k, e: entries(abs(k), e), "not with k = -2, e = 6: it moves by -k"),
        (halves, "that is for all sines first, then all cosines"),
        (lambda k, e: entries(k, e, speed=0), "all clocks turn equally fast"),
        (lambda k, e: entries(k, e, speed=-2), "the clocks get faster"),
        (lambda k, e: sinusoidal_code(e, e), "that is a table of positions"),
        (lambda k, e: entries(3, 8), "not with k = 1, e = 2: it returns a tensor"),
        (lambda k, e: entries(k, e).float(), "they are torch.float32"),
    ],
}  # fmt: skip
