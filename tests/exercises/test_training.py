"""The checks of “Training” accept what is right and name what is wrong."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from annotated_attention.exercises.training import check_greedy, check_look_back, check_shares


def test_shares_right(verdict: Any, printed: Any) -> None:
    stub, solution = printed("10_training", "check_shares")
    assert "not yet, 2 of the 2 numbers are missing" in stub
    assert solution.startswith("✓ my_shares: right")
    assert verdict(check_shares, (0.6, torch.tensor(0.36))).startswith("✓ ")


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ([0.95, 0.95], "for 10 letters: that is the share of right letters"),
        ([0.5, 0.0], "for 10 letters: shares of mistakes do not add up"),
        ([0.95**10, 0.0], "for 20 letters: shares of mistakes do not add up"),
        ([1 - 0.95**10, 1 - 0.95**20], "targets with a mistake"),
        ([0.05**10, 0.05**20], "every letter is wrong"),
        ([59.87, 35.85], "in percent"),
        ([59.9, 35.8], "in percent"),
        ([9.5, 19.0], "how many letters are right on average"),
        ([0.95**9, 0.95**19], "one factor short"),
        ([0.95**11, 0.95**21], "one factor too many"),
        ([0.95**10, 0.95**10], "for 20 letters it is another number"),
        ([0.6], "a list of 2 numbers is asked for"),
        (["0.6", 0.36], "one finite number"),
    ],
)
def test_shares_wrong(verdict: Any, broken: object, reason: str) -> None:
    said = verdict(check_shares, broken)
    assert said.startswith("✗ ")
    assert reason in said


def greedy(
    model: Any, src: Tensor, max_new: int, *, stop: bool = False, pad: bool = True,
    whole: bool = True, newest: bool = True, start: int = 1,
) -> Tensor:  # fmt: skip
    """Decode, written unlike the solution; with switches that break it."""
    rows = [[start] for _ in src]
    for _ in range(max_new):
        given = torch.tensor(rows if whole else [row[-1:] for row in rows])
        scores = model(src, given)
        best = (scores[:, -1] if newest else scores[:, 0]).max(-1).indices.tolist()
        for row, token in zip(rows, best, strict=True):
            row.append(0 if pad and 2 in row else token)
        if stop and all(2 in row for row in rows):
            break
    return torch.tensor(rows)


def test_greedy_right(verdict: Any, printed: Any) -> None:
    stub, solution = printed("10_training", "check_greedy")
    assert stub.startswith("✗ greedy: ")
    assert solution.startswith("✓ greedy: right")
    assert verdict(check_greedy, greedy).startswith("✓ ")


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (lambda *x: greedy(*x, pad=False), "goes on after the end token"),
        (lambda *x: greedy(*x, stop=True), "it stops when every sequence has ended"),
        (lambda *x: (y := greedy(*x)).masked_fill(y == 2, 0), "the end token itself is missing"),
        (lambda *x: greedy(*x)[:, 1:], "the start token is missing"),
        (lambda *x: greedy(*x, newest=False), "the first row of the scores"),
        (lambda *x: greedy(*x, whole=False), "only the token that was written last"),
        (lambda *x: greedy(*x, start=0), "begins with padding"),
        (lambda m, s, n: greedy(m, s, n + 1), "one token too many"),
        (lambda m, s, n: greedy(m, s, n - 1), "one token too few"),
        (lambda m, s, n: m(s, s).argmax(-1), "it returns a tensor of shape (6, 5)|numbers are not"),
        (lambda m, s, n: m.greedy(s, 1, 2, n), "model's own greedy"),
        (lambda m, s, n: greedy(m, s, n).float(), "torch.float32 comes out"),
        (lambda m, s, n: greedy(m, s.fill_(3), n), "changes its argument src"),
    ],
)
def test_greedy_wrong(verdict: Any, broken: Callable[..., Tensor], reason: str) -> None:
    said = verdict(check_greedy, broken)
    assert said.startswith("✗ ")
    assert any(part in said for part in reason.split("|")), said


def look_back(
    q: Tensor, k: Tensor, v: Tensor, *, offset: int = 0, order: str = "bnhd", axis: int = -1
) -> Tensor:
    """Attend row by row to what is there, written unlike the solution; switches break it."""
    scores = torch.einsum("bhnd,bhmd->bhnm", q, k) / math.sqrt(q.shape[-1])
    later = torch.full(scores.shape[-2:], -math.inf, dtype=q.dtype).triu(1 + offset)
    heads = torch.softmax(scores + later, axis) @ v
    return torch.einsum(f"bhnd->{order}", heads).reshape(len(q), q.shape[2], -1)


def test_look_back_right(verdict: Any, printed: Any) -> None:
    stub, solution = printed("10_training", "check_look_back")
    assert "there are rows that see a later token" in stub
    assert solution.startswith("✓ look_back: right")
    assert verdict(check_look_back, look_back).startswith("✓ ")


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (lambda *x: look_back(*x, offset=1), "there are rows that see a later token"),
        (lambda *x: look_back(*x, offset=9), "nothing is hidden now"),
        (lambda *x: look_back(*x, offset=-1), "no longer sees itself"),
        (lambda *x: look_back(*x, order="bhnd"), "merged by a straight reshape"),
        (lambda *x: look_back(*x, offset=1, order="bhnd"), "And the heads are merged"),
        (lambda *x: look_back(*x, axis=-2), "runs over the queries"),
        (lambda q, k, v: look_back(2 * q, k, v), "are not. Most of all at"),
        (lambda q, k, v: look_back(q * q.size(-1) ** 0.5, k, v), "root of d is gone"),
        (lambda q, k, v: look_back(q, k, v).detach(), "no gradient reaches q"),
        (lambda q, k, v: look_back(q.flip(-2), k.flip(-2), v.flip(-2)).flip(1), "wrong way round"),
    ],
)
def test_look_back_wrong(verdict: Any, broken: Callable[..., Tensor], reason: str) -> None:
    said = verdict(check_look_back, broken)
    assert said.startswith("✗ ")
    assert reason in said
