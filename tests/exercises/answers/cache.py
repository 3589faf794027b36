"""Answers to the exercises of “The cache”."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def rows(milk: str, because: str) -> dict[str, str]:
    return {"milk": milk, "because": because}


def step(
    turn: Callable[[int, Tensor], Tensor] = lambda start, new: start + new,
    block: Callable[[Tensor, int], Tensor | None] = lambda at, m: torch.arange(m) > at[:, None],
) -> Callable[..., Tensor]:
    """Write a step: which positions turn, and what is blocked."""

    def answer(q: Tensor, k: Tensor, v: Tensor, cache: Any, rotary: Any) -> Tensor:
        start, new = int(cache.length), torch.arange(q.size(-2))
        k, v = cache.append(rotary(k, turn(start, new)), v)
        scores = rotary(q, turn(start, new)) @ k.mT / q.size(-1) ** 0.5
        blocked = block(start + new, k.size(-2))
        return scores.masked_fill(torch.tensor(False) if blocked is None else blocked,
                                  -torch.inf).softmax(-1) @ v  # fmt: skip

    return answer


def corner(at: Tensor, m: int) -> Tensor:
    return torch.ones(len(at), m).triu(1).bool()


def forgets(q: Any, k: Any, v: Any, cache: Any, rotary: Any) -> Tensor:
    at = torch.arange(q.size(-2))
    scores = rotary(q, at) @ rotary(k, at).mT / q.size(-1) ** 0.5
    return scores.masked_fill(at > at[:, None], -torch.inf).softmax(-1) @ v


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_chunk": [
        (rows(".xxxxxx", "..xxxxx"), "begins in the upper left corner"),
        (rows("...xxxx", "....xxx"), "every query is hidden from itself"),
        (rows(".....xx", "......x"), "every query sees one key too many"),
        (rows("x...xxx", ".....xx"), "1 of the 14 cells are wrong. The first is in the "
         "row of “milk”: you say that “the” is blocked"),
    ],
    "check_step": [
        (step(), "✓ "),
        (step(block=corner), "begins in the upper left corner"),
        (step(turn=lambda start, new: new), "the positions start at 0 again, although"),
        (step(block=lambda at, m: torch.arange(m) > at[:, None] if len(at) > 1 else None),
         "room = 13: a query sees places of the cache that are"),
        (forgets, "the cache has kept 0: call cache.append(k, v) once in each step"),
    ],
}  # fmt: skip
