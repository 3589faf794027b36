"""Answers to the exercises of “The reshape trick”."""

from typing import Any

import torch
from torch import Tensor

from annotated_attention import split_heads

X = torch.arange(5 * 6).view(5, 6)


def by_einsum(x: Tensor, h: int) -> Tensor:
    return torch.einsum("bnhd->bhnd", x.unflatten(-1, (h, -1)))


def in_two_shapes(x: Tensor, h: int) -> Tensor:
    b, n, e = x.shape
    return x.view(b, n, h, e // h).reshape(b, h, n, e // h)


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_place": [
        ((split_heads(X, 3) == X[3, 3]).nonzero()[0], "✓ my_place: right"),
        ((X.view(3, 5, 2) == X[3, 3]).nonzero()[0], "where a straight reshape puts it"),
        ((X.view(5, 3, 2) == X[3, 3]).nonzero()[0], "you give (word, head, feature)"),
        ((0, 3, 1), "you deal the features out to the heads in turn"),
        ((1, 1, 3), "you give (head, feature, word)"),
        ((2, 4, 2), "you count everything from 1"),
        ((1, 3, 0), "the word is right. Which head does the feature belong to"),
        ((1, 2, 1), "the number in the middle is the word"),
    ],
    "check_repaired": [
        (by_einsum, "✓ repaired: right"),
        (split_heads, "✓ repaired: right"),
        (in_two_shapes, "a reshape keeps the reading order: head 1 is filled"),
        (lambda x, h: x.unflatten(-1, (h, -1)), "still in the middle: (b, n, h, d)"),
        (lambda x, h: by_einsum(x, h).permute(2, 0, 1, 3), "sentences with the words"),
        (lambda x, h: by_einsum(x, h).permute(0, 2, 3, 1), "heads with the features"),
        (lambda x, h: by_einsum(x, h).transpose(0, 1), "in front of the batch: (h, b, n, d)"),
        (lambda x, h: by_einsum(x, h).mT, "changed places, too: (b, h, d, n)"),
        (lambda x, h: x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2), "dealt out to the heads"),
        (lambda x, h: by_einsum(x, h).flip(1), "the heads are in reversed order"),
        (lambda x, h: by_einsum(x, h).flip(3), "every number stays with its word, but head 1"),
        (lambda x, h: by_einsum(x.roll(1, 1), h), "word 0 holds a number of word 2 of sentence 0"),
        (
            lambda x, h: by_einsum(x, h) if h == 4 else in_two_shapes(x, h),
            "not with b = 3, n = 5, h = 2, d = 4: it has the right shape",
        ),
    ],
}
