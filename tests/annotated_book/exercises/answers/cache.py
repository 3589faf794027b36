"""Answers to the exercises of “The cache”."""

from typing import Any

import torch
from torch import Tensor


def step(q: Tensor, k: Tensor, v: Tensor, cache: Any, rotary: Any, sees_all: int = 0) -> Tensor:
    """Take a step; steps of up to so many tokens see all places of the cache."""
    at = int(cache.length) + torch.arange(q.size(-2))
    k, v = cache.append(rotary(k, at), v)
    blocked = (torch.arange(k.size(-2)) > at[:, None]) & (len(at) > sees_all)
    scores = rotary(q, at) @ k.mT / q.size(-1) ** 0.5
    return scores.masked_fill(blocked, -torch.inf).softmax(-1) @ v


def forgets(q: Any, k: Any, v: Any, cache: Any, rotary: Any) -> Tensor:
    return step(q, k, v, type(cache)(), rotary)


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_chunk": [
        ({"milk": "...xxxx", "because": "....xxx"}, "every query is hidden from itself"),
        (
            {"milk": "x...xxx", "because": ".....xx"},
            "1 of the 14 cells are wrong. The first is in "
            "the row of “milk”: you say that “the” is blocked",
        ),
    ],
    "check_step": [
        (step, "✓ "),
        (lambda *given: step(*given, 1), "room = 13: a query sees places of the cache that are"),
        (forgets, "the cache has kept 0: call cache.append(k, v) once in each step"),
    ],
}
