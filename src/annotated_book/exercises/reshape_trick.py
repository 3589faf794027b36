"""Exercises of "The reshape trick": one number, and a wrong merge."""

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


def _where_from(answer: object, found: Tensor, right: Tensor, mixed: Tensor) -> str | None:
    """Say whose number stands in the wrong row, if all numbers are those of mixed."""
    same = found[..., None] == mixed.flatten()
    if found.shape != right.shape or not same.any(-1).all():
        return None
    word = same.int().argmax(-1) // mixed.size(2) % mixed.size(1)  # (n, h * d)
    strange = (word != torch.arange(len(found))[:, None]).nonzero()
    if not len(strange):
        return "every row keeps its word, but head 1 comes first, with its features in order."
    row, column = strange[0].tolist()
    return (
        f"it mixes words: row {row} holds what was found for word {word[row, column]}, counted "
        "from 0. A reshape fills the rows in the order of the axes, the first one slowest."
    )


check_repaired = Exercise(
    name="repaired",
    right=lambda mixed: torch.cat(list(mixed), -1),
    praise=(
        "right, and so are the gradients: the same as concatenating. First the words come in "
        "front, then the heads go side by side."
    ),
    wrong={
        "the words come in front, but the heads are not side by side yet: (n, h, d).": (
            lambda mixed: mixed.transpose(0, 1)
        ),
        "that transpose exchanges the words with the features. The heads and the words have to "
        "change places.": lambda mixed: mixed.mT.reshape(mixed.size(1), -1),
        "without a transpose, a reshape keeps the reading order, all of head 1 first, and each row "
        "mixes words.": lambda mixed: mixed.reshape(mixed.size(1), -1),
        "the heads are interleaved: each row begins with feature 0 of every head. All features of "
        "head 1 come first.": lambda mixed: mixed.permute(1, 2, 0).flatten(1),
        "the heads are in reversed order.": lambda mixed: torch.cat(list(mixed)[::-1], -1),
    },
    sizes=[{"h": 4, "n": 3, "d": 6}, {"h": 3, "n": 5, "d": 2}],
    draw=lambda h, n, d: normal(mixed=(h, n, d)),
    shape="(n, h * d)",
    why=_where_from,
)
