"""Answers to the exercises of “Positions”."""

import math
from typing import Any

import torch


def row(h: int) -> list[float]:
    return [2 ** (-8 * i / h) for i in range(1, h + 1)]


def mixed(h: int, start: int = 0, step: int = 2) -> list[float]:
    power = 2 ** math.floor(math.log2(h))
    return row(power) + row(2 * power)[start::step][: h - power]


def order(weight: torch.Tensor, h: int) -> list[int]:
    """List, head by head, the even rows and then the odd ones."""
    d = len(weight) // h
    return [i * d + j for i in range(h) for j in (*range(0, d, 2), *range(1, d, 2))]


def inverse(weight: torch.Tensor, h: int) -> torch.Tensor:
    other = torch.empty_like(weight)
    other[order(weight, h)] = weight
    return other


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_turned": [
        ([-1, 2, -2, -1, -7], "in the score only the query has turned"),
        ([-1, 2, -2, -1, 1], "in the score the key has turned further than the query"),
        ([-1, 2, -2, -1, -0.7071], "the score is the plain dot product here"),
        ([-1, 1, -2, -1, -1], "the query at position 1 is not right yet"),
    ],
    "check_slopes": [
        (lambda h: torch.tensor(mixed(h)), "✓ "),
        (row, "that is 2^(−8i / h) for every h"),
        (lambda h: [1.0, *row(h)[:-1]], "i begins at 1"),
        (lambda h: [-8 * i / h for i in range(1, h + 1)], "these are exponents of 2"),
        (lambda h: sorted(mixed(h), reverse=True), "the slopes are right, but sorted"),
        (lambda h: row(2 ** math.ceil(math.log2(h)))[:h], "the first of the next larger"),
        (lambda h: mixed(h, 1), "beginning with the first"),
        (lambda h: mixed(h, 0, 1), "take every second one: its neighbours"),
    ],
    "check_permutation": [
        (lambda w, h: w[order(w, h)], "✓ "),
        (lambda w, h: w, "the rows come back as they were"),
        (inverse, "that is the way back"),
        (lambda w, h: w[order(w, 1)], "you have reordered across the heads"),
        (lambda w, h: torch.cat([torch.cat([x[1::2], x[::2]]) for x in w.chunk(h)]),
         "the odd rows come first"),
        (lambda w, h: w[:, order(w.mT, 1)], "the columns are reordered"),
        (lambda w, h: w[order(w, h)] if h == 4 else w, "not with h = 1, d = 10, e = 7: the"),
    ],
}  # fmt: skip
