"""Answers to the exercises of “Counting”."""

import math
from collections.abc import Callable
from typing import Any


def products(b: int, n: int, m: int, e: int, f: int) -> list[tuple[int, int, int]]:
    """List the products of a layer: four projections twice, scores and mixing, the network."""
    return [
        *4 * [(b * n, e, e)], (b * n, e, n), (b * n, n, e),
        *2 * [(b * n, e, e)], *2 * [(b * m, e, e)], (b * n, e, m), (b * n, m, e),
        (b * n, e, f), (b * n, f, e),
    ]  # fmt: skip


def listed(*sizes: int) -> int:
    return sum(rows * columns * 2 * inner for rows, inner, columns in products(*sizes))


def without(first: int, last: int) -> Callable[..., int]:
    """Leave some of the products out."""
    return lambda *sizes: (
        listed(*sizes) - sum(2 * math.prod(size) for size in products(*sizes)[first:last])
    )


def by_trying(left: int, b: int, e: int, layers: int, width: int) -> int:
    tokens = 0
    while left >= 0:
        left -= layers * b * width * (e + e)
        tokens += 1
    return tokens - 1


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_decoder_layer": [
        (listed, "✓ "),
        (without(6, 12), "cross-attention is missing"),
        (without(4, 5), "masked scores count, too"),
        (lambda b, n, m, e, f: listed(b, n, n, e, f), "if it were self-attention"),
        (lambda *sizes: listed(*sizes) + 1, "f = 7 it returns 73,153; right is 73,152."),
        (lambda b, n, m, e, f: listed(b, n, 5, e, f), "not with b = 3"),
    ],
    "check_longest": [
        (by_trying, "✓ "),
        (lambda left, b, e, layers, width: left // (b * e * layers * width), "a key and a value"),
        (lambda left, b, *sizes: by_trying(left, 1, *sizes), "each of the b sequences"),
        (lambda left, b, e, layers, width: left // (2 * b * e * layers), "their width"),
        (lambda left, b, e, layers, width: left / b / e / layers / width / 2, "part of"),
        (lambda *sizes: 0, "width = 4 it returns 0; right is 868."),
    ],
}  # fmt: skip
