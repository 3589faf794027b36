"""Exercises of "The cache": the mask of a chunk by hand, and a whole step."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from annotated_attention.attention import scaled_dot_product_attention
from annotated_attention.modern.cache import Cache, KVCache, StaticCache, block_by_position
from annotated_attention.modern.rotary import RotaryEmbedding
from annotated_book.exercises._exercise import Exercise, Refused, normal
from annotated_book.exercises._values import cells

_CORNER = (
    "the mask begins in the upper left corner, as if the first query stood at position 0. It "
    "stands behind everything that is kept (causal-at-the-wrong-corner)."
)
_ZEROS = (
    "a query sees places of the cache that are not written yet. There are zeros, and a zero takes "
    "weight as any key does (cache-zeros-attended)."
)


def _which_cell(answer: object, found: Tensor, right: Tensor) -> str:
    row, _, place = (found != right).nonzero()[0].tolist()
    said = "is blocked" if found[row, 0, place] else "may be seen"
    words = ("the", "cat", "drank", "milk", "because")
    what = f"“{words[place]}”" if place < len(words) else "an empty place"
    return (
        f"{int((found != right).sum())} of the 14 cells are wrong. The first is in the row of "
        f"“{words[3 + row]}”: you say that {what} {said}."
    )


check_chunk = Exercise(
    name="chunk_by_hand",
    right={"milk": "....xxx", "because": ".....xx"},
    praise="right: “milk” stands at position 3 and sees places 0 to 3, “because” sees one more. "
    "Nobody sees the places that are not written yet.",
    wrong={
        _CORNER: {"milk": ".xxxxxx", "because": "..xxxxx"},
        _ZEROS: {"milk": "....x..", "because": "......."},
        "the diagonal ends in the lower right corner of all places, but behind the last token they "
        "are not written yet (cache-zeros-attended).": {"milk": "......x", "because": "......."},
        "it is inverted: True, or x, means blocked here.": {
            "milk": "xxxx...",
            "because": "xxxxx..",
        },
        "every query is hidden from itself: block j > p, not j ≥ p.": {
            "milk": "...xxxx",
            "because": "....xxx",
        },
        "every query sees one key too many: block j > p, not j > p + 1.": {
            "milk": ".....xx",
            "because": "......x",
        },
        "nothing is hidden.": {"milk": ".......", "because": "......."},
    },
    run=cells(["milk", "because"], 1, 7),
    why=_which_cell,
)


def _written(
    step: Callable[..., Any], q: Tensor, k: Tensor, v: Tensor, cache: Cache, each: int
) -> Any:
    """Run a step for each chunk, and put the outputs one behind the other."""
    rotary, outputs = RotaryEmbedding(q.size(-1)), []
    for chunk in zip(*(x.split(each, -2) for x in (q, k, v)), strict=True):
        n = chunk[0].size(-2)
        with torch.no_grad():
            output = step(*chunk, cache, rotary)
        if not isinstance(output, Tensor):
            return output
        if output.dim() < 2 or output.size(-2) != n:
            raise Refused(
                f"for {n} new tokens it returns {tuple(output.shape)}; one row for each of them is "
                "asked for."
            )
        outputs.append(output)
    if int(cache.length) != q.size(-2):
        raise Refused(
            f"after {q.size(-2)} tokens the cache has kept {int(cache.length)}: call "
            "cache.append(k, v) once in each step."
        )
    return torch.cat(outputs, -2)


def _draw(b: int, h: int, n: int, d: int, each: int, room: int) -> dict[str, Any]:
    """Draw n tokens that come in chunks of ``each``, and a cache, of fixed size if it has room."""
    cache = StaticCache(b, h, room, d, dtype=torch.float64) if room else KVCache()
    return {**normal(q=(b, h, n, d), k=(b, h, n, d), v=(b, h, n, d)), "cache": cache, "each": each}


def _step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cache: Cache,
    rotary: RotaryEmbedding,
    corner: bool = False,
    restart: bool = False,
    zeros: bool = False,
    blind: bool = False,
) -> Tensor:
    """Take the step, rightly or with a mistake."""
    new = torch.arange(q.size(-2))
    positions = cache.length + new
    turn = new if restart else positions
    q, k = rotary(q, turn), rotary(k, turn)
    k, v = cache.append(k, v)
    blocked = block_by_position(new if corner else positions, k.size(-2))
    seen = blind or (zeros and len(new) == 1)
    return scaled_dot_product_attention(q, k, v, blocked=None if seen else blocked)[0]


_SIZES = {"b": 2, "h": 4, "n": 9, "d": 6}

check_step = Exercise(
    name="step",
    right=_step,
    praise="right: all at once, in chunks, token by token, in a cache that grows and in one of "
    "fixed size, the outputs are the same.",
    wrong={
        "the future is not hidden: block key j for a query at position p where j > p.": partial(
            _step, blind=True
        ),
        _CORNER: partial(_step, corner=True),
        "the positions start at 0 again, although tokens are kept: count from cache.length, and "
        "read it before you append (positions-restart).": partial(_step, restart=True),
        _ZEROS: partial(_step, zeros=True),
        "the positions start at 0 again, and the mask begins in the upper left corner "
        "(positions-restart, causal-at-the-wrong-corner).": partial(
            _step, corner=True, restart=True
        ),
    },
    sizes=[
        {**_SIZES, "each": 9, "room": 0},
        {**_SIZES, "each": 4, "room": 0},
        {**_SIZES, "each": 1, "room": 0},
        {**_SIZES, "each": 1, "room": 13},
    ],
    draw=_draw,
    run=_written,
    shape="(b, h, n, d)",
)
