"""Heads at work: choose a head and a word, and see what the word attends to."""

from collections.abc import Sequence

from torch import Tensor

from annotated_book.display._html import Output
from annotated_book.display._live import live


def heads_at_work(
    static: Output,
    weights: Tensor,
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    start: tuple[int, int, int],
) -> Output:
    """Let the reader choose a head and a query, and see the weights as lines and as a map.

    Args:
        static: a figure of the weights that are shown first.
        weights: (l, h, n, m).
        queries: n words.
        keys: m words.
        start: layer, head and query to begin with, counted from 0.
    """
    data = {
        "maps": (100 * weights).round().int().tolist(),
        "heads": [f"head {i + 1}" for i in range(weights.size(1))],
        "queries": list(queries),
        "keys": list(keys),
        "start": list(start),
    }
    drawn = 20 + 5 * max(map(len, keys)) + 26 * max(len(queries), len(keys))
    return live(static, "heads_at_work", data, room=(drawn + 82, 2 * drawn + 140))
