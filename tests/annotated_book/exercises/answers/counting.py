"""Answers to the exercises of “Counting”."""

from typing import Any


def listed(b: int, n: int, m: int, e: int, f: int) -> int:
    """Add up four projections twice, scores and mixing twice, and the network."""
    products = [
        *4 * [(b * n, e, e)],
        (b * n, e, n),
        (b * n, n, e),
        *2 * [(b * n, e, e)],
        *2 * [(b * m, e, e)],
        (b * n, e, m),
        (b * n, m, e),
        (b * n, e, f),
        (b * n, f, e),
    ]
    return sum(rows * columns * 2 * inner for rows, inner, columns in products)


def by_trying(left: int, b: int, e: int, layers: int, width: int) -> int:
    tokens = 0
    while left >= 0:
        left -= layers * b * width * (e + e)
        tokens += 1
    return tokens - 1


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_decoder_layer": [
        (listed, "✓ "),
        (lambda b, n, m, e, f: listed(b, n, n, e, f), "if it were self-attention"),
        (lambda *sizes: listed(*sizes) + 1, "f = 7 it returns 73,153; right is 73,152."),
        (lambda b, n, m, e, f: listed(b, n, 5, e, f), "not with b = 3"),
    ],
    "check_longest": [
        (by_trying, "✓ "),
        (lambda left, b, *sizes: by_trying(left, 1, *sizes), "each of the b sequences"),
        (lambda *sizes: 0, "width = 4 it returns 0; right is 868."),
    ],
}
