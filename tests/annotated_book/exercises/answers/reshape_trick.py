"""Answers to the exercises of “The reshape trick”."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from annotated_attention import merge_heads, split_heads

X = torch.arange(5 * 6).view(5, 6)


def attention(split: Callable[..., Tensor], merge: Callable[[Tensor], Tensor]) -> Any:
    def answer(x: Tensor, h: int) -> Tensor:
        heads = split(x, h)
        return merge(F.scaled_dot_product_attention(heads, heads, heads))

    return answer


def by_view(x: Tensor, h: int) -> Tensor:
    n, e = x.shape
    return x.view(n, h, e // h).permute(1, 0, 2)


def straight(x: Tensor, h: int) -> Tensor:
    return x.view(h, len(x), -1)


def straight_back(mixed: Tensor) -> Tensor:
    return mixed.reshape(mixed.size(1), -1)


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
    "check_mended": [
        (attention(split_heads, merge_heads), "✓ mended: right"),
        (attention(by_view, merge_heads), "✓ mended: right"),
        (attention(straight, straight_back), "both steps still lack their transpose"),
        (attention(split_heads, straight_back), "the split is right. The merge takes"),
        (attention(straight, merge_heads), "the merge is right. The split fills"),
        (
            attention(lambda x, h: x.unflatten(-1, (h, -1)), lambda mixed: mixed.flatten(1)),
            "hears no other",
        ),
        (lambda x, h: F.scaled_dot_product_attention(x, x, x), "one head as wide as"),
        (
            attention(lambda x, h: x.unflatten(-1, (-1, h)).permute(2, 0, 1), merge_heads),
            "dealt out to the heads in turn",
        ),
    ],
}
