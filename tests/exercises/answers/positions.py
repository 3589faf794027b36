"""The checks of “Positions” accept what is right and name what is wrong."""

import math
from typing import Any

import pytest
import torch

from annotated_attention.exercises.positions import check_permutation, check_slopes, check_turned


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


# Answers, each with words of the verdict.
ANSWERS: list[tuple[Any, Any, str]] = [
    (check_turned, [1, -2, -2, -1, 1], "you turn the other way, clockwise"),
    (check_turned, [-1, 2, -1, 2, -1], "the arrow at position 2 has turned twice"),
    (check_turned, [-1, 2, -2, -1, 7], "the score is that of the arrows before turning"),
    (check_turned, [-1, 2, -2, -1, -7], "in the score only the query has turned"),
    (check_turned, [-1, 2, -2, -1, 1], "in the score the key has turned further than the query"),
    (check_turned, [-1, 2, -2, -1, -0.7071], "the score is the plain dot product here"),
    (check_turned, [-1, 1, -2, -1, -1], "the query at position 1 is not right yet"),
    (check_slopes, lambda h: torch.tensor(mixed(h)), "✓ "),
    (check_slopes, row, "that is 2^(−8i / h) for every h"),
    (check_slopes, lambda h: [1.0, *row(h)[:-1]], "i begins at 1"),
    (check_slopes, lambda h: [-8 * i / h for i in range(1, h + 1)], "these are exponents of 2"),
    (check_slopes, lambda h: sorted(mixed(h), reverse=True), "the slopes are right, but sorted"),
    (check_slopes, lambda h: row(2 ** math.ceil(math.log2(h)))[:h], "the first of the next larger"),
    (check_slopes, lambda h: mixed(h, 1), "beginning with the first"),
    (check_slopes, lambda h: mixed(h, 0, 1), "take every second one: its neighbours"),
    (check_permutation, lambda w, h: w[order(w, h)], "✓ "),
    (check_permutation, lambda w, h: w, "the rows come back as they were"),
    (check_permutation, inverse, "that is the way back"),
    (check_permutation, lambda w, h: w[order(w, 1)], "you have reordered across the heads"),
    (check_permutation, lambda w, h: torch.cat([torch.cat([x[1::2], x[::2]]) for x in w.chunk(h)]),
     "the odd rows come first"),
    (check_permutation, lambda w, h: w[:, order(w.mT, 1)], "the columns are reordered"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "answer", "words"), ANSWERS)
def test_verdict(verdict: Any, check: Any, answer: Any, words: str) -> None:
    assert words in verdict(check, answer)
