"""Exercises of "The reshape trick": one number, and a wrong split."""

import torch
from torch import Tensor

from annotated_book.exercises._exercise import Exercise, normal
from annotated_book.exercises._values import whole_numbers


def _which_index(answer: object, found: Tensor, right: Tensor) -> str:
    if found[1] != right[1]:
        return (
            "the number in the middle is the word, and a right split keeps every number with its "
            "word."
        )
    return (
        "the word is right. Which head does the feature belong to, and where does it stand there?"
    )


check_place = Exercise(
    name="my_place",
    right=(0, 2, 1),
    praise=(
        "right. Word 2 stays word 2, and its feature 1 is the last of the 2 features of the "
        "first head."
    ),
    wrong={
        "you give (word, head, feature). That is its place in (n, h, d), before the heads move in "
        "front.": (2, 0, 1),
        "you give (head, feature, word); the axes of the heads are (h, n, d).": (0, 1, 2),
        "that is where a straight reshape puts it. There, what follows in memory fills up the "
        "first head, whatever word it belongs to; a right split keeps the word.": (1, 1, 1),
        "you deal the features out to the heads in turn (head = feature % h). A head has "
        "neighbours: the first d features belong to the first head.": (1, 2, 0),
        "you count everything from 1. Indices count from 0.": (1, 3, 2),
    },
    run=whole_numbers(3, "an index of three"),
    why=_which_index,
)


def _where_from(answer: object, found: Tensor, right: Tensor, x: Tensor, h: int) -> str | None:
    """Say which word stands in the wrong place, if all numbers are those of x."""
    same = found[..., None] == x.flatten()
    if found.shape != right.shape or not same.any(-1).all():
        return None
    word = same.int().argmax(-1) // x.size(1)  # (h, n, d)
    strange = (word != torch.arange(len(x))[:, None]).nonzero()
    if not len(strange):
        return "every row keeps its word, but the first d features belong to the first head."
    head, row, _ = place = tuple(strange[0].tolist())
    return (
        f"it mixes words: heads[{head}, {row}] holds features of word {word[place]}. Row {row} "
        f"of every head belongs to word {row}, all counted from 0."
    )


check_repaired = Exercise(
    name="repaired",
    right=lambda x, h: torch.stack(x.chunk(h, -1)),
    praise=(
        "right, and so are the gradients: the same as split and stack. First cut the features, "
        "then move the heads in front."
    ),
    wrong={
        "the features are cut correctly, but the words still come first: (n, h, d). Move the "
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
