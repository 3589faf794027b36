"""Answers to the exercises of “The reshape trick”."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from annotated_attention import split_heads
from annotated_attention.mistakes.reshapes import merge_without_transpose

X = torch.arange(3 * 4).view(3, 4)


def looked_up(row: int, shape: tuple[int, int, int]) -> Any:
    h, n, d = shape
    owners = torch.arange(n)[:, None].expand(h, n, d)
    return merge_without_transpose(owners)[row, ::d]


def pieces(of: Callable[[int, int, int, int, int], float]) -> Callable[..., list[float]]:
    """Answer with what ``of`` says of row, piece, h, n and d."""
    return lambda row, shape: [of(row, piece, *shape) for piece in range(shape[0])]


def by_einsum(x: Tensor, num_heads: int) -> Tensor:
    return torch.einsum("nhd->hnd", x.unflatten(1, (num_heads, -1)))


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_place": [
        ((split_heads(X, 2) == X[2, 1]).nonzero()[0], "✓ my_place: right"),
        ((X.reshape(2, 3, 2) == X[2, 1]).nonzero()[0], "that is where a straight reshape puts it"),
        ((2, 0, 1), "you give (token, head, feature)"),
        ((1, 2, 0), "you deal the features out to the heads in turn"),
        ((0, 0, 1), "the number in the middle is the token"),
        ((0, 2, 0), "the token is right. Which head does the feature belong to"),
        ("0, 2, 1", "an object of type str; an index of three is asked for"),
    ],
    "check_mixed_tokens": [
        (looked_up, "✓ mixed_tokens: right"),
        (pieces(lambda r, p, h, n, d: r), "that is the right merge: each row has one token alone"),
        (lambda r, s: looked_up(r, s) + 1, "you count the tokens from 1"),
        (pieces(lambda r, p, h, n, d: r * h + p), "A head has only n of them; then the next head"),
        (pieces(lambda r, p, h, n, d: (r * h + p) * d % n), "you count numbers in place of pieces"),
        (pieces(lambda r, p, h, n, d: (r + p) % n), "you begin each row one piece after the row"),
        (lambda r, s: looked_up(r, s).flip(0), "the right tokens, in another order than from left"),
        (pieces(lambda r, p, h, n, d: (r * 2 + p) % n),
         "not with h = 4, n = 6, d = 5: row 1 is made of tokens [4, 5, 0, 1], counted from 0; you"),
        (pieces(lambda r, p, h, n, d: (r * h + p) / n), "it returns (float, float); a list of h"),
        (lambda r, s: list(range(s[0] * s[2])), "it returns 6 numbers; a list of h, here 2, is"),
    ],
    "check_repaired": [
        (by_einsum, "✓ repaired: right"),
        (lambda x, h: x.reshape(h, len(x), -1), "heads[0, 1] holds features of token 0. Row 1"),
        (lambda x, h: x.view(len(x), -1, h).permute(2, 0, 1), "to the first head, so cut them"),
        (lambda x, h: x.view(len(x), h, -1), "cut correctly, but the tokens still come first"),
        (lambda x, h: x.T.reshape(h, -1, len(x)), "each head is right but transposed: (h, d, n)"),
        (lambda x, h: by_einsum(x, h).flip(0), "every row keeps its token, but the first d"),
        (lambda x, h: by_einsum(x, h) * 2, "the shape is right, but 72 of its 72 numbers are not"),
        (lambda x, h: by_einsum(x, h) if h == 4 else x.view(h, len(x), -1),
         "not with h = 3, n = 5, d = 2: it mixes tokens"),
        (lambda x, h: x.chunk(h, 1), "it returns a tuple of 4 things"),
    ],
}  # fmt: skip
