"""The checks of “The cache” accept what is right and name what is wrong."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from annotated_attention.exercises.cache import check_chunk, check_later, check_step

CHAPTER = "19_cache"


def rows(milk: str, because: str) -> dict[str, str]:
    return {"milk": milk, "because": because}


def test_chunk_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_chunk")
    assert before == '✗ chunk_by_hand: not yet, some cells are still "?". '
    assert after.startswith("✓ chunk_by_hand: right: “milk” stands at position 3")


WRONG_CHUNKS: list[tuple[object, str]] = [
    (rows(".xxxxxx", "..xxxxx"), "begins in the upper left corner"),
    (rows("....x..", "......."), "places of the cache that are not written yet"),
    (rows("......x", "......."), "in the lower right corner of all places"),
    (rows("xxxx...", "xxxxx.."), "it is inverted"),
    (rows("...xxxx", "....xxx"), "every query is hidden from itself"),
    (rows(".....xx", "......x"), "every query sees one key too many"),
    (rows(".....xx", ".....xx"), "nothing of the chunk itself is hidden"),
    (rows("...xxxx", "...xxxx"), "hides the chunk from itself"),
    (rows(".......", "......."), "nothing is hidden"),
    (rows("x...xxx", ".....xx"), "1 of the 14 cells are wrong. The first is in the row of “milk”: "
     "you say that “the” is blocked"),
    (rows("....xx.", ".....xx"), "you say that an empty place may be seen"),
    (rows("....xxx", ".....x"), "a text of 7 characters"),
    (rows("....111", ".....xx"), '"1" is not read'),
    ({"milk": "....xxx"}, "a text for each of milk, because"),
    (None, "not yet, it is None"),
    (["....xxx", ".....xx"], "a dictionary is asked for"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "reason"), WRONG_CHUNKS)
def test_chunk_names_the_mistake(verdict: Any, answer: object, reason: str) -> None:
    said = verdict(check_chunk, answer)
    assert said.startswith("✗ chunk_by_hand: ")
    assert reason in said


def test_later_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_later")
    assert before.startswith("✗ later: not yet, it returns None")
    assert after.startswith("✓ later: right: key j is blocked for the query at position p")


def cut(length: int, n: int, m: int) -> Tensor:
    return torch.ones(m, m, dtype=torch.bool).triu(1)[length : length + n]


def by_loops(length: int, n: int, m: int) -> Tensor:
    return torch.tensor([[j > length + i for j in range(m)] for i in range(n)])


@pytest.mark.parametrize(
    "answer", [cut, by_loops, lambda p, n, m: torch.ones(n, m).triu(p + 1).bool()]
)
def test_later_accepts_other_ways(verdict: Any, answer: Callable[..., Any]) -> None:
    assert verdict(check_later, answer).startswith("✓ later")


def ones(n: int, m: int) -> Tensor:
    return torch.ones(n, m, dtype=torch.bool)


WRONG_LATER: list[tuple[Callable[..., Any], str]] = [
    (lambda p, n, m: ones(n, m).triu(1), "begins in the upper left corner"),
    (lambda p, n, m: ones(n, m).triu(p), "every query is hidden from itself"),
    (lambda p, n, m: ones(n, m).triu(p + 2), "every query sees one key too many"),
    (lambda p, n, m: ~ones(n, m).triu(p + 1), "it is inverted"),
    (lambda p, n, m: ones(n, p + n).triu(p + 1), "it returns (2, 5), a column for every token so"),
    (lambda p, n, m: ones(n, m).triu(p + 1) & (torch.arange(m) < p + n), "not written yet"),
    (lambda p, n, m: ones(n, m).triu(m - n + 1), "in the lower right corner of all places"),
    (lambda p, n, m: ones(n, m).triu(p + 1).int(), "a boolean one is asked for"),
    (lambda p, n, m: ones(n, m).triu(4), "it is right at first, but not with length = 0, n = 4"),
    (lambda p, n, m: ones(m, n).tril(-p - 1), "what fits is (n, m), here (2, 7)"),
    (lambda p, n, m: None, "not yet, it returns None"),
    (lambda p, n: None, "TypeError"),
]


@pytest.mark.parametrize(("answer", "reason"), WRONG_LATER, ids=[r for _, r in WRONG_LATER])
def test_later_names_the_mistake(verdict: Any, answer: Any, reason: str) -> None:
    said = verdict(check_later, answer)
    assert said.startswith("✗ later: ")
    assert reason in said


def test_step_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_step")
    assert before.startswith("✗ step: not yet, it returns None")
    assert after.startswith("✓ step: right: all at once, in chunks, token by token")


def attend(q: Tensor, k: Tensor, v: Tensor, blocked: Tensor | None) -> Tensor:
    """The formula, apart from the package."""
    scores = q @ k.mT / q.size(-1) ** 0.5
    if blocked is not None:
        scores = scores.masked_fill(blocked, -torch.inf)
    return scores.softmax(-1) @ v


def plain(q: Any, k: Any, v: Any, cache: Any, rotary: Any) -> Tensor:
    n, start = q.size(-2), int(cache.length)
    at = torch.arange(start, start + n)
    k, v = cache.append(rotary(k, at), v)
    return attend(rotary(q, at), k, v, torch.ones(n, k.size(-2)).triu(start + 1).bool())


def turned_late_but_rightly(q: Any, k: Any, v: Any, cache: Any, rotary: Any) -> Tensor:
    """Keys kept as they are, and turned anew in each step by their own positions: slow, right."""
    start = int(cache.length)
    at = torch.arange(start, start + q.size(-2))
    k, v = cache.append(k, v)
    every = torch.arange(k.size(-2))
    return attend(rotary(q, at), rotary(k, every), v, every > at[:, None])


@pytest.mark.parametrize("answer", [plain, turned_late_but_rightly])
def test_step_accepts_other_ways(verdict: Any, answer: Callable[..., Any]) -> None:
    assert verdict(check_step, answer).startswith("✓ step")


def wrong_corner(q: Any, k: Any, v: Any, cache: Any, rotary: Any) -> Tensor:
    at = cache.length + torch.arange(q.size(-2))
    k, v = cache.append(rotary(k, at), v)
    return torch.nn.functional.scaled_dot_product_attention(rotary(q, at), k, v, is_causal=True)


def restarts(q: Any, k: Any, v: Any, cache: Any, rotary: Any) -> Tensor:
    at, start = torch.arange(q.size(-2)), int(cache.length)
    k, v = cache.append(rotary(k, at), v)
    return attend(rotary(q, at), k, v, torch.arange(k.size(-2)) > start + at[:, None])


def sees_zeros(q: Any, k: Any, v: Any, cache: Any, rotary: Any) -> Tensor:
    if q.size(-2) > 1:
        return plain(q, k, v, cache, rotary)
    at = cache.length + torch.zeros(1)
    k, v = cache.append(rotary(k, at), v)
    return attend(rotary(q, at), k, v, None)


def keeps_unrotated(q: Any, k: Any, v: Any, cache: Any, rotary: Any) -> Tensor:
    start, n = int(cache.length), q.size(-2)
    k, v = cache.append(k, v)
    k = rotary(k, start + torch.arange(k.size(-2)))
    at = start + torch.arange(n)
    return attend(rotary(q, at), k, v, torch.arange(k.size(-2)) > at[:, None])


def forgets(q: Any, k: Any, v: Any, cache: Any, rotary: Any) -> Tensor:
    at = torch.arange(q.size(-2))
    return attend(rotary(q, at), rotary(k, at), v, at > at[:, None])


def without_positions(q: Any, k: Any, v: Any, cache: Any, rotary: Any) -> Tensor:
    return plain(q, k, v, cache, lambda x, at: x)


def sees_the_future(q: Any, k: Any, v: Any, cache: Any, rotary: Any) -> Tensor:
    at = cache.length + torch.arange(q.size(-2))
    k, v = cache.append(rotary(k, at), v)
    return attend(rotary(q, at), k, v, None)


WRONG_STEPS: list[tuple[Callable[..., Any], str]] = [
    (wrong_corner, "not in chunks of 4, 3 and 2 tokens: the mask begins in the upper left corner"),
    (restarts, "not in chunks of 4, 3 and 2 tokens: the positions start at 0 again"),
    (sees_zeros, "not token by token in a StaticCache: a query sees places of the cache that are"),
    (keeps_unrotated, "not in chunks of 4, 3 and 2 tokens: the keys are kept before they are"),
    (forgets, "the cache has kept 0: call cache.append(k, v) once in each step"),
    (without_positions, "the positions are missing: turn queries and keys"),
    (sees_the_future, "the future is not hidden"),
    (lambda q, k, v, cache, rotary: q[..., :1], "what fits is (b, h, n, d), here (2, 4, 9, 6)"),
    (lambda q, k, v, cache, rotary: None, "not yet, it returns None"),
    (lambda q, k, v: q, "TypeError"),
]


@pytest.mark.parametrize(("answer", "reason"), WRONG_STEPS, ids=[r for _, r in WRONG_STEPS])
def test_step_names_the_mistake(verdict: Any, answer: Any, reason: str) -> None:
    said = verdict(check_step, answer)
    assert said.startswith("✗ step: ")
    assert reason in said
