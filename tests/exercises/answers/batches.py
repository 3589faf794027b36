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


def straight(query: Tensor, key: Tensor, value: Tensor, h: int) -> Tensor:
    parts = (x.reshape(len(x), h, -1, x.size(2) // h) for x in (query, key, value))
    return merge(F.scaled_dot_product_attention(*parts))


def merged_straight(query: Tensor, key: Tensor, value: Tensor, h: int) -> Tensor:
    mixed = F.scaled_dot_product_attention(*(cut(x, h) for x in (query, key, value)))
    return mixed.reshape(query.shape)


def not_moved(query: Tensor, key: Tensor, value: Tensor, h: int) -> Tensor:
    parts = (x.unflatten(2, (h, -1)) for x in (query, key, value))
    return F.scaled_dot_product_attention(*parts).flatten(2)


CROSS = "it is right at first, but not with b = 2, n = 3, m = 5, h = 4, d = 6: "
FEWER = "it is right at first, but not with b = 3, n = 6, m = 2, h = 5, d = 4: "

ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_slice": [
        (torch.tensor(9), "✓ my_slice: right"),
        (5, "you count head by head. All heads of sample 0 come first"),
        (8, "that is where sample 2 begins, with its head 0"),
        (11, "slice 11 is head 3 of sample 2: all heads of a sample come together"),
        (12, "there are 12 slices, 0 to 11"),
        (9.0, "it is of type float; one whole number is asked for"),
    ],
    "check_pattern": [
        ("  (n) b(h d)->( b h ) (n) d\n", "✓ pattern: right"),
        ("n b (h d) -> (h b) n d", "✗ pattern: (h b) puts the heads outside: first head 0 of"),
        ("n b (d h) -> (h b) n d", "so h is the outer and d the inner one: (h d). And (h b) puts"),
        ("b n (h d) -> (b h) n d", "sequence and batch are swapped on the left"),
        ("n b (h d) -> n (b h) d", "that is the first of two steps"),
        ("n b (h d) -> b h n d", "that is the layout with four axes"),
        ("n b h d -> (b h) n d", "the last one made of h and d in parentheses"),
        ("n b (h d) -> (b h) n", "right of the arrow stand three axes, too"),
        ("n b (hd) -> (b h) n d", '"hd" is not read. Write the letters n, b, h and d with spaces'),
        (["n b (h d)", "(b h) n d"], "an object of type list; text in quotes is asked for"),
        ("", "not yet, it is empty"),
    ],
    "check_attend_heads": [
        (attend_folded("h", "h"), "✓ attend_heads: right"),
        (value_as_long_as_query, f"{CROSS}the query has n tokens, key and value have m"),
        (lambda q, k, v, h: right(q, k, v, h).view(k.shape), f"{CROSS}the query has n tokens, key"),
        (lambda q, k, v, h: right(q, k[:, : q.size(1)], v[:, : q.size(1)], h),
         f"{CROSS}only the first n keys are used"),
        (lambda q, k, v, h: right(q, k, v, h).repeat(1, 2, 1)[:, : k.size(1)],
         f"{CROSS}it returns one row per key, (b, m, e)"),
        (attend_folded("h", "b"), "folded with heads first, (h b), and unfolded with samples"),
        (merged_straight, "the heads are merged by a straight reshape"),
        (straight, "the heads are split by a straight reshape"),
        (not_moved, "the heads stay behind the tokens, (b, n, h, d), so the heads of a token"),
        (lambda q, k, v, h: right(k, q, v, h), "query and key are in each other's place"),
        (lambda q, k, v, h: right(q, k, k, h), "you mix the keys"),
        (lambda q, k, v, h: right(q, v, k, h), "key and value are in each other's place"),
        (lambda q, k, v, h: right(q, k, v, 4), f"{FEWER}the shape is right, but 360 of its 360"),
    ],
}  # fmt: skip
