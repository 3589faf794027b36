"""Exercises of "The reshape trick": one number, the rows of a wrong merge, a wrong split."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from annotated_attention.exercises._exercise import Exercise, normal
from annotated_attention.exercises._values import whole, whole_numbers


def _which_index(answer: object, found: Tensor, right: Tensor) -> str:
    if found[1] != right[1]:
        return (
            "the number in the middle is the token, and a right split keeps every number with its "
            "token."
        )
    return (
        "the token is right. Which head does the feature belong to, and where does it stand there?"
    )


check_place = Exercise(
    name="my_place",
    right=(0, 2, 1),
    praise=(
        "right. Token 2 stays token 2, and its feature 1 is the last of the 2 features of the "
        "first head."
    ),
    wrong={
        "you give (token, head, feature). That is its place in (n, h, d), before the heads move in "
        "front.": (2, 0, 1),
        "you give (head, feature, token); the axes of the heads are (h, n, d).": (0, 1, 2),
        "that is where a straight reshape puts it. There, what follows in memory fills up the "
        "first head, whatever token it belongs to; a right split keeps the token.": (1, 1, 1),
        "you deal the features out to the heads in turn (head = feature % h). A head has "
        "neighbours: the first d features belong to the first head.": (1, 2, 0),
        "you count the heads from 1. Indices count from 0.": (1, 2, 1),
        "you count everything from 1. Indices count from 0.": (1, 3, 2),
    },
    run=whole_numbers(3, "an index of three"),
    why=_which_index,
)


def _pieces(
    token: Callable[[int, int, int, int, int], int],
) -> Callable[[int, tuple[int, int, int]], list[int]]:
    """Answer with what ``token`` says of row, piece, h, n and d."""
    return lambda row, shape: [token(row, piece, *shape) for piece in range(shape[0])]


def _rows(answer: Callable[..., Any], shape: tuple[int, int, int]) -> Tensor:
    """Ask for the tokens of every row."""
    h, n, _ = shape
    asked = f"a list of h, here {h},"
    return torch.tensor([whole("it returns", answer(row, shape), h, asked) for row in range(n)])


def _which_row(answer: object, found: Tensor, right: Tensor, shape: object) -> str:
    """Say which row is wrong first."""
    if found.sort().values.equal(right.sort().values):
        return "these are the right tokens, in another order than from left to right."
    row = int((found != right).any(-1).nonzero()[0])
    return (
        f"row {row} is made of tokens {right[row].tolist()}, counted from 0; you say "
        f"{found[row].tolist()}."
    )


check_mixed_tokens = Exercise(
    name="mixed_tokens",
    right=_pieces(lambda row, piece, h, n, d: (row * h + piece) % n),
    praise=(
        "right for every row. The pieces are dealt out head by head, so a row gets h neighbouring "
        "tokens of one head, in place of one token of every head."
    ),
    wrong={
        "that is the right merge: each row has one token alone. Without the transpose, the first "
        "row takes the first h pieces of the first head.": (
            _pieces(lambda row, piece, h, n, d: row)
        ),
        "you count the tokens from 1. They count from 0.": (
            _pieces(lambda row, piece, h, n, d: (row * h + piece) % n + 1)
        ),
        "you count the pieces through all heads. A head has only n of them; then the next head "
        "begins, again with token 0.": _pieces(lambda row, piece, h, n, d: row * h + piece),
        "these are the heads of the pieces, not their tokens: // n counts whole heads, and % n is "
        "the token within one.": _pieces(lambda row, piece, h, n, d: (row * h + piece) // n),
        "you count numbers in place of pieces. A row has h * d numbers, but only h pieces.": (
            _pieces(lambda row, piece, h, n, d: (row * h + piece) * d % n)
        ),
        "a row takes h pieces, one of d numbers each; you begin the next row after d pieces.": (
            _pieces(lambda row, piece, h, n, d: (row * d + piece) % n)
        ),
        "you begin each row one piece after the row before. A row takes h pieces, so the next one "
        "begins h pieces later.": _pieces(lambda row, piece, h, n, d: (row + piece) % n),
    },
    run=_rows,
    # First the rows that stay within a head, as in the chapter; then some that reach into the next.
    sizes=[{"h": 2, "n": 8, "d": 3}, {"h": 4, "n": 6, "d": 5}, {"h": 5, "n": 3, "d": 2}],
    draw=lambda h, n, d: {"shape": (h, n, d)},
    why=_which_row,
)


def _where_from(answer: object, found: Tensor, right: Tensor, x: Tensor, h: int) -> str | None:
    """Say which token stands in the wrong place, if all numbers are those of x."""
    same = found[..., None] == x.flatten()
    if found.shape != right.shape or not same.any(-1).all():
        return None
    token = same.int().argmax(-1) // x.size(1)  # (h, n, d)
    strange = (token != torch.arange(len(x))[:, None]).nonzero()
    if not len(strange):
        return "every row keeps its token, but the first d features belong to the first head."
    head, row, _ = place = tuple(strange[0].tolist())
    return (
        f"it mixes tokens: heads[{head}, {row}] holds features of token {token[place]}. Row {row} "
        f"of every head belongs to token {row}, all counted from 0."
    )


check_repaired = Exercise(
    name="repaired",
    right=lambda x, h: torch.stack(x.chunk(h, -1)),
    praise=(
        "right, and so are the gradients: the same as split and stack. First cut the features, "
        "then move the heads in front."
    ),
    wrong={
        "the features are cut correctly, but the tokens still come first: (n, h, d). Move the "
        "heads in front.": lambda x, h: x.view(len(x), h, -1),
        "each head is right but transposed: (h, d, n).": lambda x, h: torch.stack(x.mT.chunk(h)),
        "the heads are interleaved: each takes every h-th feature. The first d features belong to "
        "the first head, so cut them into (h, d), not into (d, h).": (
            lambda x, h: x.view(len(x), -1, h).permute(2, 0, 1)
        ),
    },
    sizes=[{"h": 4, "n": 3, "d": 6}, {"h": 3, "n": 5, "d": 2}],
    draw=lambda h, n, d: {**normal(x=(n, h * d)), "num_heads": h},
    shape="(h, n, d)",
    why=_where_from,
)
