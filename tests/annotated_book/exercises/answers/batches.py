"""Answers to the exercises of “Batches”."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def cut(x: Tensor, h: int) -> Tensor:
    return x.unflatten(2, (h, -1)).transpose(1, 2)


def heads_first(query: Tensor, key: Tensor, value: Tensor, h: int, kept: bool = True) -> Tensor:
    """Fold heads and samples in that order, and unfold them in it, or in the other one."""
    b, n, _ = query.shape
    parts = (cut(x, h).transpose(0, 1).flatten(0, 1) for x in (query, key, value))
    mixed = F.scaled_dot_product_attention(*parts)
    mixed = mixed.view(h, b, n, -1).transpose(0, 1) if kept else mixed.view(b, h, n, -1)
    return mixed.transpose(1, 2).flatten(2)


Y = torch.arange(5 * 3 * 24).view(5, 3, 24)

ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_index": [
        (cut(Y.transpose(0, 1), 4).eq(Y[4, 2, 11]).nonzero()[0], "✓ my_index: right"),
        (Y.view(3, 4, 5, 6).eq(Y[4, 2, 11]).nonzero()[0], "where a straight reshape puts it"),
        ((4, 0, 0, 0), "the first number is the sentence, the second of y's three"),
        ((2, 1, 4, 11), "all but the last are right"),
    ],
    "check_attend_heads": [
        (heads_first, "✓ attend_heads: right"),
        (lambda *given: heads_first(*given, False), "the folded axis is cut in the wrong order"),
        (
            lambda q, k, v, h: heads_first(q, k, v, h).repeat(1, 2, 1)[:, : k.size(1)],
            "it is right at first, but not with b = 2, n = 3, m = 5, "
            "h = 4, d = 6: it returns one row "
            "per key, (b, m, e)",
        ),
        (
            lambda q, k, v, h: heads_first(q, k, v, 4),
            "not with b = 3, n = 6, m = 2, h = 5, d = 4: the shape is right, but 360 of its 360",
        ),
    ],
}
