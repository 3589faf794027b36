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
    late: bool = False,
) -> Callable[..., Tensor]:
    """Write a step: which positions turn, what is blocked, and whether keys turn behind the cache.

    Late turning is slow, and right.
    """

    def answer(q: Tensor, k: Tensor, v: Tensor, cache: Any, rotary: Any) -> Tensor:
        start, new = int(cache.length), torch.arange(q.size(-2))
        k, v = cache.append(k if late else rotary(k, turn(start, new)), v)
        k = rotary(k, torch.arange(k.size(-2))) if late else k
        scores = rotary(q, turn(start, new)) @ k.mT / q.size(-1) ** 0.5
        blocked = block(start + new, k.size(-2))
        return scores.masked_fill(torch.tensor(False) if blocked is None else blocked,
                                  -torch.inf).softmax(-1) @ v  # fmt: skip

    return answer


def corner(at: Tensor, m: int) -> Tensor:
    return torch.ones(len(at), m).triu(1).bool()


def keeps_unrotated(q: Any, k: Any, v: Any, cache: Any, rotary: Any) -> Tensor:
    start = int(cache.length)
    k, v = cache.append(k, v)
    k, at = rotary(k, start + torch.arange(k.size(-2))), start + torch.arange(q.size(-2))
    scores = rotary(q, at) @ k.mT / q.size(-1) ** 0.5
    blocked = torch.arange(k.size(-2)) > at[:, None]
    return scores.masked_fill(blocked, -torch.inf).softmax(-1) @ v


def forgets(q: Any, k: Any, v: Any, cache: Any, rotary: Any) -> Tensor:
    at = torch.arange(q.size(-2))
    scores = rotary(q, at) @ rotary(k, at).mT / q.size(-1) ** 0.5
    return scores.masked_fill(at > at[:, None], -torch.inf).softmax(-1) @ v


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_chunk": [
        (rows(".xxxxxx", "..xxxxx"), "begins in the upper left corner"),
        (rows("xxxx...", "xxxxx.."), "it is inverted"),
        (rows("......x", "......."), "in the lower right corner of all places"),
        (rows("...xxxx", "....xxx"), "every query is hidden from itself"),
        (rows(".....xx", "......x"), "every query sees one key too many"),
        (rows("x...xxx", ".....xx"), "1 of the 14 cells are wrong. The first is in the "
         "row of “milk”: you say that “the” is blocked"),
    ],
    "check_step": [
        (step(), "✓ "),
        (step(late=True), "✓ "),
        (step(block=corner), "begins in the upper left corner"),
        (step(turn=lambda start, new: new), "the positions start at 0 again, although"),
        (step(block=lambda at, m: torch.arange(m) > at[:, None] if len(at) > 1 else None),
         "room = 13: a query sees places of the cache that are"),
        (keeps_unrotated, "the keys are kept before they are turned"),
        (forgets, "the cache has kept 0: call cache.append(k, v) once in each step"),
        (lambda q, k, v, cache, rotary: step()(q, k, v, cache, lambda x, at: x),
         "the positions are missing: turn queries and keys"),
        (step(block=lambda at, m: None), "the future is not hidden"),
    ],
}  # fmt: skip
