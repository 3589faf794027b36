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
    right=(1, 3, 1),
    praise=(
        "right. Word 3 stays word 3, and its feature 3 is the last of the 2 features of the "
        "second head."
    ),
    wrong={
        "you give (word, head, feature). That is its place in (n, h, d), before the heads move in "
        "front.": (3, 1, 1),
        "you give (head, feature, word); the axes of the heads are (h, n, d).": (1, 1, 3),
        "that is where a straight reshape puts it. There, what follows in memory fills up one head "
        "after the other, whatever word it belongs to; a right split keeps the word.": (2, 0, 1),
        "you deal the features out to the heads in turn (head = feature % h). A head has "
        "neighbours: the first d features belong to the first head.": (0, 3, 1),
        "you count everything from 1. Indices count from 0.": (2, 4, 2),
    },
    run=whole_numbers(3, "an index of three"),
    why=_which_index,
)


def _where_from(answer: object, found: Tensor, right: Tensor, x: Tensor, h: int) -> str | None:
    """Say whose number stands in the wrong row, if all numbers are those of x."""
    same = found[..., None] == x.flatten()
    if found.shape != right.shape or not same.any(-1).all():
        return None
    row = same.int().argmax(-1) // x.size(2)  # (b, h, n, d), in all sentences counted through
    due = torch.arange(len(x) * x.size(1)).view(len(x), 1, -1, 1)
    strange = (row != due).nonzero()
    if not len(strange):
        return (
            "every number stays with its word, but head 1 comes first, with its features in order."
        )
    sentence, head, word, _ = at = strange[0].tolist()
    of, source = divmod(int(row[tuple(at)]), x.size(1))
    return (
        f"it mixes words: sentence {sentence}, head {head}, word {word} holds a number of word "
        f"{source} of sentence {of}, all counted from 0."
    )


def _cut(x: Tensor, h: int) -> Tensor:
    return x.unflatten(-1, (h, -1))


check_repaired = Exercise(
    name="repaired",
    right=lambda x, h: torch.stack(x.chunk(h, -1), 1),
    praise=(
        "right, and so are the gradients: the same as cutting strips and stacking them. First each "
        "row is cut, then words and heads change places."
    ),
    wrong={
        "it has the right shape, but a reshape keeps the reading order: head 1 is filled with the "
        "whole rows of the first words. Words and heads have to change places.": (
            lambda x, h: x.reshape(len(x), h, x.size(1), -1)
        ),
        "each row is cut rightly, but the heads are still in the middle: (b, n, h, d).": _cut,
        "that transpose exchanges the sentences with the words: (n, b, h, d). Count the axes from "
        "0: the batch is axis 0.": lambda x, h: _cut(x, h).transpose(0, 1),
        "that transpose exchanges the heads with the features: (b, n, d, h).": (
            lambda x, h: _cut(x, h).mT
        ),
        "the heads come in front of the batch: (h, b, n, d).": lambda x, h: torch.stack(
            x.chunk(h, -1)
        ),
        "words and features have changed places, too: (b, h, d, n).": (
            lambda x, h: _cut(x, h).permute(0, 2, 3, 1)
        ),
        "the features are dealt out to the heads in turn. A head has neighbours: the first d "
        "features belong to the first head.": (
            lambda x, h: x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2)
        ),
        "the heads are in reversed order.": lambda x, h: torch.stack(x.chunk(h, -1)[::-1], 1),
    },
    sizes=[{"b": 2, "n": 3, "h": 4, "d": 6}, {"b": 3, "n": 5, "h": 2, "d": 4}],
    draw=lambda b, n, h, d: normal(x=(b, n, h * d)) | {"h": h},
    shape="(b, h, n, d)",
    why=_where_from,
)
