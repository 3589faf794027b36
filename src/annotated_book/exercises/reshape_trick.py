"""Exercises of "The reshape trick": one number, and models whose mistake is to be told."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from annotated_book.exercises._exercise import Either, Exercise
from annotated_book.exercises._values import whole_numbers

Model = Callable[[Tensor], Tensor]


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


def _model(split: Callable[[Tensor], Tensor], merge: Callable[[Tensor], Tensor]) -> Model:
    """Build an attention with three heads around a way to split and to merge."""
    *inward, outward = torch.randn(4, 12, 12, generator=torch.Generator().manual_seed(4))

    def attend(x: Tensor) -> Tensor:
        query, key, value = (split(x @ w) for w in inward)
        return merge(F.scaled_dot_product_attention(query, key, value)) @ outward

    return attend


def _split(x: Tensor) -> Tensor:
    return x.unflatten(-1, (3, -1)).transpose(0, 1)


def _merge(mixed: Tensor) -> Tensor:
    return mixed.transpose(0, 1).flatten(1)


def _reshaped(x: Tensor) -> Tensor:
    return x.reshape(3, len(x), -1)


def _reshaped_back(mixed: Tensor) -> Tensor:
    return mixed.reshape(mixed.size(1), -1)


MODELS: dict[str, Model] = {
    "A": _model(_split, _reshaped_back),
    "B": _model(lambda x: x.unflatten(-1, (3, -1)), lambda mixed: mixed.flatten(1)),
    "C": _model(_reshaped, _reshaped_back),
    "D": _model(_split, _merge),
}


def _which_model(answer: object, found: Tensor, right: Tensor) -> str:
    if sorted(found.tolist()) != [1, 2, 3, 4]:
        return "each of 1, 2, 3 and 4 fits one model."
    names = [name for name, yours, due in zip("ABCD", found, right, strict=True) if yours != due]
    return f"look again at {' and '.join(names)}. What does each mistake do to each test?"


check_findings = Exercise(
    name="my_findings",
    right=(2, 4, 3, 1),
    praise=(
        "right. A single missing transpose still lets the news through, but to other rows. With "
        "both missing, some words never hear each other. Heads in the middle keep each word to "
        "itself, wherever it stands, so the shuffle sees nothing."
    ),
    wrong={
        "B passes the shuffle and fails the change, C fails both. Both missing is the one that the "
        "shuffle sees, too.": (2, 3, 4, 1),
        "a single missing transpose still lets the last word reach the first row, by way of "
        "others. So it passes the change.": Either(
            [(3, 4, 2, 1), (4, 2, 3, 1), (3, 2, 4, 1), (4, 3, 2, 1)]
        ),
    },
    run=whole_numbers(4, "a number for each of the four models"),
    why=_which_model,
)
