"""The checks of “Positions” accept what is right and name what is wrong."""

import math
from typing import Any

import pytest
import torch

from annotated_attention.exercises.positions import (
    check_permutation,
    check_slopes,
    check_turned,
)

CHAPTER = "18_positions"


def test_turned_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_turned")
    assert before == "✗ my_turned: not yet, 5 of the 5 numbers are missing. "
    assert after.startswith("✓ my_turned: right: a quarter turn makes (a, b) into (−b, a).")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ([1, -2, -2, -1, 1], "you turn the other way, clockwise"),
        ([-1, 2, -1, 2, -1], "the arrow at position 2 has turned twice"),
        ([-1, 2, -2, -1, 7], "the score is that of the arrows before turning"),
        ([-1, 2, -2, -1, 1], "in the score only the query has turned"),
        ([-1, 1, -2, -1, -1], "the query at position 1 is not right yet"),
        ([-1, 2, 2, 1, -1], "the query at position 2 is not right yet"),
        ([-1, 2, -2, -1, 3], "the score is not right yet"),
        ([2, 1, 2, 1], "a list of 5 numbers is asked for, and there are 4"),
    ],
)
def test_turned_names_the_mistake(verdict: Any, answer: object, reason: str) -> None:
    said = verdict(check_turned, answer)
    assert said.startswith("✗ my_turned: ")
    assert reason in said


def test_slopes_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_slopes")
    assert before.startswith("✗ my_slopes: not yet")
    assert after.startswith("✓ my_slopes: right for 1, 4, 6, 8, 12 and 40 heads")


def row(h: int) -> list[float]:
    return [2 ** (-8 * i / h) for i in range(1, h + 1)]


def mixed(h: int, start: int = 0, step: int = 2) -> list[float]:
    power = 2 ** math.floor(math.log2(h))
    return row(power) + row(2 * power)[start::step][: h - power]


def larger(h: int) -> list[float]:
    return row(2 ** math.ceil(math.log2(h)))[:h]


WRONG_SLOPES = [
    (row, "that is 2^(−8i / h) for every h"),
    (lambda h: [1.0, *row(h)[:-1]], "i begins at 1"),
    (lambda h: [-8 * i / h for i in range(1, h + 1)], "these are exponents of 2"),
    (lambda h: sorted(mixed(h), reverse=True), "the slopes are right, but sorted"),
    (larger, "these are the first of the next larger power's row"),
    (lambda h: mixed(h, 1), "beginning with the first"),
    (lambda h: mixed(h, 0, 1), "take every second one: its neighbours"),
    (lambda h: [-x for x in mixed(h)], "the slopes themselves are positive"),
    (lambda h: mixed(h)[:-1], "a list of 8 numbers is asked for, and there are 7"),
    (lambda h: torch.ones(h, 1), "what fits is (h,), here (8,)"),
]


@pytest.mark.parametrize(("function", "reason"), WRONG_SLOPES, ids=[x for _, x in WRONG_SLOPES])
def test_slopes_names_the_mistake(verdict: Any, function: Any, reason: str) -> None:
    said = verdict(check_slopes, function)
    assert said.startswith("✗ my_slopes: ")
    assert reason in said


def test_slopes_accepts_tensors(verdict: Any) -> None:
    assert verdict(check_slopes, lambda h: torch.tensor(mixed(h))).startswith("✓")


def test_permutation_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_permutation")
    assert before.startswith("✗ to_half: not yet")
    assert after.startswith("✓ to_half: right: within each head first the even rows")


def order(weight: torch.Tensor, h: int) -> list[int]:
    """List, head by head, the even rows and then the odd ones."""
    d = len(weight) // h
    return [i * d + j for i in range(h) for j in (*range(0, d, 2), *range(1, d, 2))]


def inverse(weight: torch.Tensor, h: int) -> torch.Tensor:
    other = torch.empty_like(weight)
    other[order(weight, h)] = weight
    return other


def in_place(weight: torch.Tensor, h: int) -> torch.Tensor:
    weight.copy_(weight[order(weight, h)])
    return weight


WRONG_ORDERS = [
    (lambda w, h: w, "the rows come back as they were"),
    (inverse, "that is the way back"),
    (lambda w, h: w[order(w, 1)], "you have reordered across the heads"),
    (
        lambda w, h: w.unflatten(0, (h, -1)).flip(1)[:, order(w[: len(w) // h], 1)].flatten(0, 1),
        "numbers are not",
    ),
    (
        lambda w, h: torch.cat([torch.cat([x[1::2], x[::2]]) for x in w.chunk(h)]),
        "the odd rows come first",
    ),
    (lambda w, h: w[:, order(w.mT, 1)], "the columns are reordered"),
    (in_place, "it changes its argument weight in place"),
    (lambda w, h: w.view(h, -1, 2, w.size(1)), "what fits is (h * d, e), here (24, 10)"),
]


@pytest.mark.parametrize(("function", "reason"), WRONG_ORDERS, ids=[x for _, x in WRONG_ORDERS])
def test_permutation_names_the_mistake(verdict: Any, function: Any, reason: str) -> None:
    said = verdict(check_permutation, function)
    assert said.startswith("✗ to_half: ")
    assert reason in said


def test_permutation_accepts_an_index(verdict: Any) -> None:
    assert verdict(check_permutation, lambda w, h: w[order(w, h)]).startswith("✓")
