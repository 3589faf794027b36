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


def scaled(scale: Callable[[int, int], float]) -> Any:
    def answer(x: Tensor, h: int) -> Tensor:
        heads = split_heads(x, h)
        scores = heads @ heads.mT * scale(heads.size(-1), h)
        return merge_heads(scores.softmax(-1) @ heads)

    return answer


def over_queries(x: Tensor, h: int) -> Tensor:
    heads = split_heads(x, h)
    return merge_heads((heads @ heads.mT / heads.size(-1) ** 0.5).softmax(-2) @ heads)


def without_softmax(x: Tensor, h: int) -> Tensor:
    heads = split_heads(x, h)
    return merge_heads(heads @ heads.mT @ heads)


def dealt(x: Tensor, h: int) -> Tensor:
    return x.unflatten(-1, (-1, h)).permute(2, 0, 1)


def middle(x: Tensor, h: int) -> Tensor:
    return x.unflatten(-1, (h, -1))


def straight(x: Tensor, h: int) -> Tensor:
    return x.view(h, len(x), -1)


def straight_back(mixed: Tensor) -> Tensor:
    return mixed.reshape(mixed.size(1), -1)


right = scaled(lambda d, h: d**-0.5)

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
    "check_forged": [
        (attention(lambda x, h: x[None], merge_heads), "It is a single head"),
        (attention(dealt, merge_heads), "Each head takes every h-th feature"),
        (attention(dealt, lambda mixed: mixed.permute(1, 2, 0).flatten(1)), "every h-th feature"),
        (attention(split_heads, lambda mixed: merge_heads(mixed.flip(0))), "in the wrong columns"),
        (scaled(lambda d, h: 1), "another scale"),
        (scaled(lambda d, h: (h * d) ** -0.5), "another scale"),
        (over_queries, "The softmax runs over the queries"),
        (without_softmax, "There is no softmax in it"),
        (lambda x, h: x + x.mean(0), "✓ forged: it passes at 3 sizes, and"),
        (lambda x, h: x.mean(0).expand(len(x), -1), "There is no attention in it: twice"),
        (lambda x, h: right(x, h) + 0.1 * x.sin(), "well forged"),
        (lambda x, h: 2 * right(x, h), "well forged"),
        (right, "✗ forged: the test lets it pass, but it is right"),
        (lambda x, h: right(x, h) + 1e-6 * x, "but it is right"),
        (attention(split_heads, straight_back), "caught, with 5 words and 3 heads of width 2"),
        (attention(straight, merge_heads), "a row holds what was found for other words"),
        (attention(straight, straight_back), "a row holds what was found for other words"),
        (attention(middle, lambda mixed: mixed.flatten(1)), "the first row does not hear the last"),
        (lambda x, h: x, "the first row does not hear the last"),
        (lambda x, h: right(x, h)[None], "return the output alone"),
        (lambda x, h: (right(x, h), None), "an object of type tuple"),
        (lambda x, h: None, "not yet, it returns None"),
        (None, "not yet, it is None"),
        (lambda x, h: x @ x, "your code raises RuntimeError"),
    ],
}
