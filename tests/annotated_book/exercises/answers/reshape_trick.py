"""Answers to the exercises of “The reshape trick”."""

from typing import Any

import torch
from torch import Tensor

from annotated_attention import split_heads

X = torch.arange(3 * 4).view(3, 4)


def by_einsum(mixed: Tensor) -> Tensor:
    return torch.einsum("hnd->nhd", mixed).flatten(1)


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_place": [
        ((split_heads(X, 2) == X[2, 1]).nonzero()[0], "✓ my_place: right"),
        ((1, 2, 0), "you deal the features out to the heads in turn"),
        ((0, 2, 0), "the word is right. Which head does the feature belong to"),
    ],
    "check_repaired": [
        (by_einsum, "✓ repaired: right"),
        (lambda mixed: mixed.mT.flatten().view(mixed.size(1), -1), "words with the features"),
        (lambda mixed: mixed.flatten().view(mixed.size(1), -1), "without a transpose, a reshape"),
        (lambda mixed: mixed.transpose(0, 1), "not side by side yet: (n, h, d)"),
        (lambda mixed: mixed.permute(1, 2, 0).flatten(1), "the heads are interleaved"),
        (lambda mixed: by_einsum(mixed.flip(0)), "the heads are in reversed order"),
        (lambda mixed: by_einsum(mixed.flip(2)), "every row keeps its word, but head 1 comes"),
        (lambda mixed: by_einsum(mixed.roll(1, 1)), "it mixes words: row 0 holds what was found"),
        (
            lambda mixed: by_einsum(mixed) if len(mixed) == 4 else mixed.reshape(5, -1),
            "not with h = 3, n = 5, d = 2: without a transpose",
        ),
    ],
}
