"""Answers to the exercises of “Batches”."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def cut(x: Tensor, h: int) -> Tensor:
    return x.unflatten(2, (h, -1)).transpose(1, 2)


def merge(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


def attend_folded(outer: str, inner: str) -> Callable[..., Tensor]:
    """Fold samples and heads in one order, and unfold them in another."""

    def answer(query: Tensor, key: Tensor, value: Tensor, h: int) -> Tensor:
        b, n, e = query.shape
        parts = [cut(x, h) for x in (query, key, value)]
        if outer == "h":
            parts = [x.transpose(0, 1) for x in parts]
        mixed = F.scaled_dot_product_attention(*(x.flatten(0, 1) for x in parts))
        if inner == "h":
            return merge(mixed.view(h, b, n, e // h).transpose(0, 1))
        return merge(mixed.view(b, h, n, e // h))

    return answer


right = attend_folded("b", "b")


def value_as_long_as_query(query: Tensor, key: Tensor, value: Tensor, h: int) -> Tensor:
    v = value.reshape(len(value), query.size(1), h, -1).transpose(1, 2)
    return merge(F.scaled_dot_product_attention(cut(query, h), cut(key, h), v))


def merged_straight(query: Tensor, key: Tensor, value: Tensor, h: int) -> Tensor:
    mixed = F.scaled_dot_product_attention(*(cut(x, h) for x in (query, key, value)))
    return mixed.reshape(query.shape)


Y = torch.arange(5 * 3 * 24).view(5, 3, 24)
FOUR_AXES = cut(Y.transpose(0, 1), 4)
CROSS = "it is right at first, but not with b = 2, n = 3, m = 5, h = 4, d = 6: "
FEWER = "it is right at first, but not with b = 3, n = 6, m = 2, h = 5, d = 4: "

ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_index": [
        (FOUR_AXES.eq(Y[4, 2, 11]).nonzero()[0], "✓ my_index: right"),
        (Y.view(3, 4, 5, 6).eq(Y[4, 2, 11]).nonzero()[0], "where a straight reshape puts it"),
        ((4, 0, 0, 0), "the first number is the sentence, the second of y's three"),
        ((2, 1, 4, 11), "all but the last are right"),
    ],
    "check_attend_heads": [
        (attend_folded("h", "h"), "✓ attend_heads: right"),
        (value_as_long_as_query, f"{CROSS}the query has n tokens, key and value have m"),
        (lambda q, k, v, h: right(q, k, v, h).repeat(1, 2, 1)[:, : k.size(1)],
         f"{CROSS}it returns one row per key, (b, m, e)"),
        (attend_folded("h", "b"), "the folded axis is cut in the wrong order"),
        (merged_straight, "the heads are merged by a straight reshape"),
        (lambda q, k, v, h: right(q, k, v, 4), f"{FEWER}the shape is right, but 360 of its 360"),
    ],
}  # fmt: skip
