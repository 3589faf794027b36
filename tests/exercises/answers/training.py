"""The checks of “Training” accept what is right and name what is wrong."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from annotated_attention.exercises.training import check_greedy, check_look_back, check_shares


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


def look_back(q: Tensor, k: Tensor, v: Tensor, *, offset: int = 0, order: str = "bnhd") -> Tensor:
    """Attend row by row to what is there, written unlike the solution; switches break it."""
    scores = torch.einsum("bhnd,bhmd->bhnm", q, k) / math.sqrt(q.shape[-1])
    later = torch.full(scores.shape[-2:], -math.inf, dtype=q.dtype).triu(1 + offset)
    heads = torch.softmax(scores + later, -1) @ v
    return torch.einsum(f"bhnd->{order}", heads).reshape(len(q), q.shape[2], -1)


# Answers, each with words of the verdict.
ANSWERS: list[tuple[Any, Any, str]] = [
    (check_shares, (0.6, torch.tensor(0.36)), "✓ "),
    (check_shares, [0.95, 0.95], "that is the share of right letters"),
    (check_shares, [0.5, 0.0], "shares of mistakes do not add up"),
    (check_shares, [1 - 0.95**10, 1 - 0.95**20], "targets with a mistake"),
    (check_shares, [0.05**10, 0.05**20], "every letter is wrong"),
    (check_shares, [59.9, 35.8], "in percent"),
    (check_shares, [9.5, 19.0], "how many letters are right on average"),
    (check_shares, [0.95**9, 0.95**19], "one factor short"),
    (check_shares, [0.95**10, 0.95**10], "for 20 letters it is another number"),
    (check_greedy, greedy, "✓ "),
    (check_greedy, lambda *x: greedy(*x, pad=False), "goes on after the end token"),
    (check_greedy, lambda *x: greedy(*x, stop=True), "it stops when every sequence has ended"),
    (check_greedy, lambda *x: (y := greedy(*x)).masked_fill(y == 2, 0), "end token itself is miss"),
    (check_greedy, lambda *x: greedy(*x)[:, 1:], "the start token is missing"),
    (check_greedy, lambda *x: greedy(*x, newest=False), "the first row of the scores"),
    (check_greedy, lambda *x: greedy(*x, whole=False), "only the token that was written last"),
    (check_greedy, lambda *x: greedy(*x, start=0), "begins with padding"),
    (check_greedy, lambda m, s, n: greedy(m, s, n + 1), "one token too many"),
    (check_greedy, lambda m, s, n: greedy(m, s, n - 1), "one token too few"),
    (check_greedy, lambda m, s, n: m.greedy(s, 1, 2, n), "model's own greedy"),
    (check_greedy, lambda m, s, n: greedy(m, s, n).float(), "they are torch.float32"),
    (check_look_back, look_back, "✓ "),
    (check_look_back, lambda *x: look_back(*x, offset=1), "there are rows that see a later token"),
    (check_look_back, lambda *x: look_back(*x, offset=9), "nothing is hidden now"),
    (check_look_back, lambda *x: look_back(*x, offset=-1), "row i no longer sees itself"),
    (check_look_back, lambda *x: look_back(*x, order="bhnd"), "merged by a straight reshape"),
    (check_look_back, lambda *x: look_back(*(y.flip(-2) for y in x)).flip(1), "wrong way round"),
    (check_look_back, lambda q, k, v: look_back(q, k, v).detach(), "no gradient reaches q"),
]


@pytest.mark.parametrize(("check", "answer", "words"), ANSWERS)
def test_verdict(verdict: Any, check: Any, answer: Any, words: str) -> None:
    assert words in verdict(check, answer)
