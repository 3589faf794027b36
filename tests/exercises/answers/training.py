"""Answers to the exercises of “Training”."""

import math
from typing import Any

import torch
from torch import Tensor


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


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_shares": [
        ((0.6, torch.tensor(0.36)), "✓ "),
        ([0.5, 0.0], "shares of mistakes do not add up"),
        ([1 - 0.95**10, 1 - 0.95**20], "targets with a mistake"),
        ([0.05**10, 0.05**20], "every letter is wrong"),
        ([59.9, 35.8], "in percent"),
        ([0.95**9, 0.95**19], "one factor short"),
        ([0.95**10, 0.95**10], "for 20 letters it is another number"),
    ],
    "check_greedy": [
        (greedy, "✓ "),
        (lambda *x: greedy(*x, pad=False), "goes on after the end token"),
        (lambda *x: greedy(*x, stop=True), "it stops when every sequence has ended"),
        (lambda *x: (y := greedy(*x)).masked_fill(y == 2, 0), "end token itself is miss"),
        (lambda *x: greedy(*x)[:, 1:], "the start token is missing"),
        (lambda *x: greedy(*x, newest=False), "the first row of the scores"),
        (lambda *x: greedy(*x, whole=False), "only the token that was written last"),
        (lambda *x: greedy(*x, start=0), "begins with padding"),
        (lambda m, s, n: greedy(m, s, n + 1), "one token too many"),
        (lambda m, s, n: greedy(m, s, n - 1), "one token too few"),
        (lambda m, s, n: m.greedy(s, 1, 2, n), "model's own greedy"),
        (lambda m, s, n: greedy(m, s, n).float(), "they are torch.float32"),
    ],
    "check_look_back": [
        (look_back, "✓ "),
        (lambda *x: look_back(*x, offset=1), "there are rows that see a later token"),
        (lambda *x: look_back(*x, offset=9), "nothing is hidden now"),
        (lambda *x: look_back(*x, offset=-1), "row i no longer sees itself"),
        (lambda *x: look_back(*x, order="bhnd"), "merged by a straight reshape"),
        (lambda *x: look_back(*(y.flip(-2) for y in x)).flip(1), "wrong way round"),
        (lambda q, k, v: look_back(q, k, v).detach(), "no gradient reaches q"),
        (lambda q, k, v: look_back(q, k, v) if len(q) == 2 else v, "not with b = 3, h = 2, n = 4"),
    ],
}  # fmt: skip
