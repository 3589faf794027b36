"""Answers to the exercises of “The reshape trick”, written apart from the table."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from annotated_attention import split_heads
from annotated_attention.exercises.reshape_trick import (
    check_mixed_tokens,
    check_place,
    check_repaired,
)
from annotated_attention.mistakes.reshapes import merge_without_transpose

X = torch.arange(3 * 4).view(3, 4)

PLACE: list[tuple[Any, str]] = [
    ((split_heads(X, 2) == X[2, 1]).nonzero()[0], "✓ my_place: right"),
    ((X.reshape(2, 3, 2) == X[2, 1]).nonzero()[0], "that is where a straight reshape puts it"),
    ((2, 0, 1), "you give (token, head, feature)"),
    ((0, 1, 2), "you give (head, feature, token)"),
    ((1, 2, 0), "you deal the features out to the heads in turn"),
    ((1, 2, 1), "you count the heads from 1"),
    ((1, 3, 2), "you count everything from 1"),
    ((0, 0, 1), "the number in the middle is the token"),
    ((0, 2, 0), "the token is right. Which head does the feature belong to"),
    ((0, 2), "it is 2 numbers; an index of three is asked for"),
    ((0, 2, 0.5), "it is (int, int, float); an index of three is made of whole numbers"),
    ("0, 2, 1", "an object of type str; an index of three is asked for"),
]


def looked_up(row: int, shape: tuple[int, int, int]) -> Any:
    h, n, d = shape
    owners = torch.arange(n)[:, None].expand(h, n, d)
    return merge_without_transpose(owners)[row, ::d]


def pieces(of: Callable[[int, int, int, int, int], float]) -> Callable[..., list[float]]:
    """Answer with what ``of`` says of row, piece, h, n and d."""
    return lambda row, shape: [of(row, piece, *shape) for piece in range(shape[0])]


TOKENS: list[tuple[Any, str]] = [
    (looked_up, "✓ mixed_tokens: right"),
    (lambda row, shape: looked_up(row, shape).tolist(), "✓ mixed_tokens: right"),
    (pieces(lambda r, p, h, n, d: r), "that is the right merge: each row has one token alone"),
    (lambda r, s: looked_up(r, s) + 1, "you count the tokens from 1"),
    (pieces(lambda r, p, h, n, d: r * h + p), "A head has only n of them; then the next head"),
    (pieces(lambda r, p, h, n, d: (r * h + p) // n), "these are the heads of the pieces, not"),
    (pieces(lambda r, p, h, n, d: (r * h + p) * d % n), "you count numbers in place of pieces"),
    (pieces(lambda r, p, h, n, d: (r * d + p) % n), "you begin the next row after d pieces"),
    (pieces(lambda r, p, h, n, d: (r + p) % n), "you begin each row one piece after the row"),
    (lambda r, s: looked_up(r, s).flip(0), "the right tokens, in another order than from left"),
    (pieces(lambda r, p, h, n, d: (r * 2 + p) % n),
     "not with h = 4, n = 6, d = 5: row 1 is made of tokens [4, 5, 0, 1], counted from 0; you say"),
    (pieces(lambda r, p, h, n, d: (r * h + p) / n), "it returns (float, float); a list of h, here"),
    (lambda r, s: list(range(s[0] * s[2])), "it returns 6 numbers; a list of h, here 2, is asked"),
    (lambda r, s: ..., "not yet, it returns ..."),
]  # fmt: skip


def by_einsum(x: Tensor, num_heads: int) -> Tensor:
    return torch.einsum("nhd->hnd", x.unflatten(1, (num_heads, -1)))


def in_place(x: Tensor, num_heads: int) -> Tensor:
    heads = torch.stack(x.chunk(num_heads, 1))
    x.zero_()
    return heads


REPAIRED: list[tuple[Any, str]] = [
    (by_einsum, "✓ repaired: right"),
    (split_heads, "✓ repaired: right"),
    (lambda x, h: x.reshape(h, len(x), -1), "heads[0, 1] holds features of token 0. Row 1"),
    (lambda x, h: x.view(h, -1, len(x)).mT.flip(0), "heads[0, 0] holds features of token 2"),
    (lambda x, h: x.view(len(x), -1, h).permute(2, 0, 1), "belong to the first head, so cut them"),
    (lambda x, h: x.view(len(x), h, -1), "cut correctly, but the tokens still come first"),
    (lambda x, h: x.T.reshape(h, -1, len(x)), "each head is right but transposed: (h, d, n)"),
    (lambda x, h: by_einsum(x, h).flip(0), "every row keeps its token, but the first d features"),
    (lambda x, h: by_einsum(x, h) * 2, "the shape is right, but 72 of its 72 numbers are not"),
    (lambda x, h: x.view(len(x), -1, h), "shape (3, 6, 4); what fits is (h, n, d), here (4, 3, 6)"),
    (
        lambda x, h: by_einsum(x, 4) if h == 4 else x.reshape(h, len(x), -1),
        "not with h = 3, n = 5, d = 2: it mixes tokens",
    ),
    (lambda x, h: x.chunk(h, 1), "it returns a tuple of 4 things"),
    (in_place, "changes its argument x in place"),
    (lambda x, h: by_einsum(2 * x - x.detach(), h), "the gradient of x is not"),
]

ANSWERS = [
    (check, answer, words)
    for check, pairs in (
        (check_place, PLACE), (check_mixed_tokens, TOKENS), (check_repaired, REPAIRED),
    )
    for answer, words in pairs
]  # fmt: skip


@pytest.mark.parametrize(("check", "answer", "words"), ANSWERS, ids=[x for *_, x in ANSWERS])
def test_verdict(verdict: Any, check: Any, answer: Any, words: str) -> None:
    assert words in verdict(check, answer)
