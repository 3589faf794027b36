"""Exercises of "The cache": the mask of a chunk, by hand and as a function, and a whole step."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from annotated_attention.attention import scaled_dot_product_attention
from annotated_attention.exercises._verdict import (
    Refused,
    at_sizes,
    call,
    check,
    compare,
    random,
    require_function,
    require_tensor,
)
from annotated_attention.masks import block_future
from annotated_attention.modern.cache import Cache, KVCache, StaticCache, block_later
from annotated_attention.modern.rotary import RotaryEmbedding

_KEPT, _CHUNK, _ROOM = ("the", "cat", "drank"), ("milk", "because"), 7
_CORNER = (
    "the mask begins in the upper left corner, as if the first query stood at position 0. It "
    "stands behind everything that is kept (causal-at-the-wrong-corner)."
)
_ZEROS = (
    "a query sees places of the cache that are not written yet. There are zeros, and a zero takes "
    "weight as any key does (cache-zeros-attended)."
)


@check("chunk_by_hand")
def check_chunk(answer: object) -> str:
    """Judge the mask of a chunk, written by hand, and print the verdict.

    Args:
        answer: for each of the two words of the chunk a text of seven characters, one for each
            place in the cache: "x" where the key is blocked, "." where it may be seen.
    """
    found = _read(answer)
    right = _mask(len(_KEPT), len(_CHUNK), _ROOM)
    for reason, wrong in _wrong_masks(len(_KEPT), len(_CHUNK), _ROOM):
        if found.equal(wrong) and not found.equal(right):
            raise Refused(reason)
    if not found.equal(right):
        row, place = (found != right).nonzero()[0].tolist()
        said = "is blocked" if found[row, place] else "may be seen"
        what = f"“{(*_KEPT, *_CHUNK)[place]}”" if place < 5 else "an empty place"
        raise Refused(
            f"{int((found != right).sum())} of the 14 cells are wrong. The first is in the row of "
            f"“{_CHUNK[row]}”: you say that {what} {said}."
        )
    return (
        "right: “milk” stands at position 3 and sees places 0 to 3, “because” sees one more. "
        "Nobody sees the places that are not written yet."
    )


def _read(answer: object) -> Tensor:
    """Turn the reader's two texts into blocked, (2, 7)."""
    if answer is None or answer is ...:
        raise Refused(f"not yet, it is {answer if answer is None else '...'}.")
    if not isinstance(answer, dict) or set(answer) != set(_CHUNK):
        raise Refused(f"a dictionary is asked for, with a text for each of {', '.join(_CHUNK)}.")
    rows = [answer[word] for word in _CHUNK]
    if not all(isinstance(row, str) and len(row) == _ROOM for row in rows):
        raise Refused(f"each word must have a text of {_ROOM} characters, one for each place.")
    strange = sorted(set("".join(rows)) - set("x."))
    if "?" in strange:
        raise Refused('not yet, some cells are still "?".')
    if strange:
        raise Refused(f'"{strange[0]}" is not read. Write x for blocked and . for may be seen.')
    return torch.tensor([[cell == "x" for cell in row] for row in rows])


def _mask(length: int, n: int, m: int) -> Tensor:
    """Give the right mask, (n, m), of n queries behind ``length`` kept tokens."""
    return block_later(length + torch.arange(n), m)


def _wrong_masks(length: int, n: int, m: int) -> list[tuple[str, Tensor]]:
    """List reasons with the mask that each leads to."""
    right, unwritten = _mask(length, n, m), torch.arange(m) >= length + n
    return [
        (_CORNER, block_future(n, m)),
        (_CORNER, block_future(n, m) | unwritten),
        (_ZEROS, right & ~unwritten),
        ("the diagonal ends in the lower right corner of all places, but behind the last token "
         "they are not written yet (cache-zeros-attended).", _mask(m - n, n, m)),
        ("it is inverted: True, or x, means blocked here.", ~right),
        ("every query is hidden from itself: block j > p, not j ≥ p.", _mask(length - 1, n, m)),
        ("every query sees one key too many: block j > p, not j > p + 1.", _mask(length + 1, n, m)),
        ("nothing of the chunk itself is hidden: its first query sees its last key.",
         unwritten.expand(n, m)),
        ("that hides the chunk from itself: only what is kept may be seen.",
         (torch.arange(m) >= length).expand(n, m)),
        ("nothing is hidden.", torch.zeros(n, m, dtype=torch.bool)),
    ]  # fmt: skip


@check("later")
def check_later(answer: Callable[..., Any]) -> str:
    """Judge ``later(length, n, m)``, and print the verdict.

    Args:
        answer: the reader's function of how many tokens are kept, how many queries come and how
            many keys the cache returns, that gives blocked, (n, m).
    """
    require_function(answer)
    sizes = [(3, 2, 7), (0, 4, 4), (5, 1, 6), (7, 1, 11), (4, 3, 7), (0, 1, 9)]
    for length, n, m in sizes:
        with at_sizes((length, n, m) == sizes[0], length=length, n=n, m=m):
            found = require_tensor("it returns", call("it", answer, length, n, m))
            if found.dtype != torch.bool:
                raise Refused(f"it returns a tensor of {found.dtype}; a boolean one is asked for.")
            if found.shape == (n, length + n) != (n, m):
                raise Refused(
                    f"it returns {tuple(found.shape)}, a column for every token so far. The cache "
                    f"returns {m} places, of which {m - length - n} are not written yet: they "
                    "need columns, too, and must be hidden (cache-zeros-attended)."
                )
            wrong = [(why, x.double()) for why, x in _wrong_masks(length, n, m)]
            compare(found.double(), _mask(length, n, m).double(), "(n, m)", wrong)
    return "right: key j is blocked for the query at position p = length + i where j > p."


@check("step")
def check_step(answer: Callable[..., Any]) -> str:
    """Judge ``step(q, k, v, cache, rotary)``, and print the verdict.

    Args:
        answer: the reader's function of the queries, keys and values of the new tokens, (b, h, n,
            d) each and not turned yet, of a cache and of a rotation; it gives the outputs of the
            heads, (b, h, n, d).
    """
    require_function(answer)
    b, h, n, d = 2, 4, 9, 6
    with torch.no_grad():
        q, k, v = random(19, *[(b, h, n, d)] * 3)
        right, rotary = _written(_step, q, k, v, [n], KVCache()), RotaryEmbedding(d)
        asked = call("it", answer, q, k, v, KVCache(), rotary)
        plain = scaled_dot_product_attention(q, k, v, is_causal=True)[0]
        every = _step(q, k, v, KVCache(), rotary, blind=True)
        first = [
            ("the positions are missing: turn queries and keys with rotary.", plain),
            ("the future is not hidden: block key j for a query at position p where j > p.", every),
        ]
        compare(asked, right, "(b, h, n, d)", first)
        for sizes, cache, what in (
            ([4, 3, 2], KVCache(), "in chunks of 4, 3 and 2 tokens"),
            ([1] * n, KVCache(), "token by token"),
            ([4, 1, 1, 1, 1, 1], _fixed(b, h, n + 4, d), "token by token in a StaticCache"),
        ):
            _judge(answer, q, k, v, sizes, cache, right, what)
    return (
        "right: all at once, in chunks, token by token, in a cache that grows and in one of fixed "
        "size, the outputs are the same."
    )


def _judge(
    answer: Callable[..., Any], q: Tensor, k: Tensor, v: Tensor,
    sizes: list[int], cache: Any, right: Tensor, what: str,
) -> None:  # fmt: skip
    """Refuse a step that is right all at once and wrong in chunks, with the mistake's name."""
    found = _written(answer, q, k, v, sizes, cache)
    if isinstance(cache, KVCache) and cache.length != q.size(-2):
        raise Refused(
            f"after {q.size(-2)} tokens, {what}, the cache has kept {cache.length}: call "
            "cache.append(k, v) once in each step."
        )
    wrong = []
    for reason, mistake in _MISTAKES.items():
        empty = KVCache() if isinstance(cache, KVCache) else _fixed(*cache.keys.shape)
        made = _written(partial(_step, **mistake), q, k, v, sizes, empty)
        wrong.append((f"it is right all at once, but not {what}: {reason}", made))
    try:
        compare(found, right, "(b, h, n, d)", wrong)
    except Refused as reason:
        if any(str(reason) == known for known, _ in wrong):
            raise
        raise Refused(f"it is right all at once, but not {what}: {reason}") from None


def _written(
    step: Callable[..., Any], q: Tensor, k: Tensor, v: Tensor, sizes: list[int], cache: Cache
) -> Tensor:
    """Run a step for each chunk, and put the outputs one behind the other."""
    rotary = RotaryEmbedding(q.size(-1))
    chunks = zip(*(x.split(sizes, -2) for x in (q, k, v)), strict=True)
    made = [require_tensor("it returns", call("it", step, *x, cache, rotary)) for x in chunks]
    for x, n in zip(made, sizes, strict=True):
        if x.dim() < 2 or x.size(-2) != n:
            raise Refused(
                f"for {n} new tokens it returns {tuple(x.shape)}; one row for each of them is "
                "asked for."
            )
    return torch.cat(made, -2)


def _fixed(b: int, h: int, m: int, d: int) -> StaticCache:
    """Make an empty cache of fixed size."""
    return StaticCache(b, h, m, d, dtype=torch.float64)


def _step(
    q: Tensor, k: Tensor, v: Tensor, cache: Cache, rotary: RotaryEmbedding,
    corner: bool = False, restart: bool = False, zeros: bool = False, late: bool = False,
    blind: bool = False,
) -> Tensor:  # fmt: skip
    """Take the step, rightly or with a mistake."""
    new = torch.arange(q.size(-2))
    positions = cache.length + new
    turn = new if restart else positions
    if late:
        k, v = cache.append(k, v)
        q, k = rotary(q, turn), rotary(k, turn[0] + torch.arange(k.size(-2)))
    else:
        q, k = rotary(q, turn), rotary(k, turn)
        k, v = cache.append(k, v)
    blocked = block_later(new if corner else positions, k.size(-2))
    seen = blind or (zeros and len(new) == 1)
    return scaled_dot_product_attention(q, k, v, blocked=None if seen else blocked)[0]


_MISTAKES: dict[str, dict[str, Any]] = {
    _CORNER: {"corner": True},
    "the positions start at 0 again, although tokens are kept: count from cache.length, and read "
    "it before you append (positions-restart).": {"restart": True},
    "the keys are kept before they are turned, and then all of them turn as if they were new "
    "(keys-cached-unrotated).": {"late": True},
    _ZEROS: {"zeros": True},
    "the positions start at 0 again, and the mask begins in the upper left corner "
    "(positions-restart, causal-at-the-wrong-corner).": {"corner": True, "restart": True},
}
