"""Heads at work: choose a head and a word, and see what the word attends to."""

from collections.abc import Sequence

from torch import Tensor

from annotated_attention.display._html import Output
from annotated_attention.display._live import Live, live


def heads_at_work(
    static: Output,
    weights: Tensor,
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    start: tuple[int, int, int],
    heads: Sequence[str] = (),
) -> Live:
    """Let the reader choose a head and a query, and see the weights as lines and as a map.

    Args:
        static: a figure of the weights that are shown first.
        weights: (h, n, m), or (l, h, n, m) of several layers.
        queries: n words.
        keys: m words.
        start: layer, head and query to begin with, counted from 0.
        heads: h names; by default "head 1", "head 2" and so on.

    Raises:
        ValueError: the words or names do not fit the weights, or ``start`` is not in them.

    Examples:
        >>> import torch
        >>> from annotated_attention import display
        >>> weights = torch.tensor([[[0.75, 0.25]], [[0.5, 0.5]]])
        >>> still = display.attention_map(weights[0], ["it"], ["cat", "milk"], name="still")
        >>> words, start = (["it"], ["cat", "milk"]), (0, 1, 0)
        >>> figure = display.heads_at_work(still, weights, *words, start=start)
        >>> figure.data["maps"]
        [[[[75, 25]], [[50, 50]]]]
    """
    if weights.dim() not in (3, 4):
        raise ValueError(f"weights must be (h, n, m) or (l, h, n, m), got {tuple(weights.shape)}")
    maps = weights.detach()[None] if weights.dim() == 3 else weights.detach()
    names = list(heads) or [f"head {i + 1}" for i in range(maps.size(1))]
    given = (len(names), len(queries), len(keys))
    if maps.shape[1:] != given:
        raise ValueError(f"weights {tuple(weights.shape)} do not fit h, n, m = {given}")
    if not all(0 <= i < size for i, size in zip(start, maps.shape, strict=False)):
        raise ValueError(f"start {start} is not in weights {tuple(maps.shape)}")
    data = {
        "maps": (100 * maps).round().int().tolist(),
        "heads": names,
        "queries": list(queries),
        "keys": list(keys),
        "start": list(start),
    }
    drawn = 20 + 5 * max(map(len, keys)) + 26 * max(given[1:])
    return live(static, "heads_at_work", data, room=(drawn + 82, 2 * drawn + 140))
