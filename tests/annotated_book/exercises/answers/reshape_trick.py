"""Answers to the exercises of “The reshape trick”."""

from typing import Any

import torch
from torch import Tensor

from annotated_attention import split_heads

X = torch.arange(3 * 4).view(3, 4)


def by_einsum(x: Tensor, num_heads: int) -> Tensor:
    return torch.einsum("nhd->hnd", x.unflatten(1, (num_heads, -1)))


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_place": [
        ((split_heads(X, 2) == X[2, 1]).nonzero()[0], "✓ my_place: right"),
        ((1, 2, 0), "you deal the features out to the heads in turn"),
        ((0, 2, 0), "the word is right. Which head does the feature belong to"),
    ],
    "check_repaired": [
        (by_einsum, "✓ repaired: right"),
        (lambda x, h: x.reshape(h, len(x), -1), "heads[0, 1] holds features of word 0. Row 1"),
        (lambda x, h: x.view(len(x), -1, h).permute(2, 0, 1), "to the first head, so cut them"),
        (lambda x, h: by_einsum(x, h).flip(0), "every row keeps its word, but the first d"),
        (
            lambda x, h: by_einsum(x, h) if h == 4 else x.view(h, len(x), -1),
            "not with h = 3, n = 5, d = 2: it mixes words",
        ),
    ],
}
