"""Exercises of "The reshape trick": one number, and an attention to mend."""

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from annotated_attention import merge_heads, split_heads
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


def _attend(split: Callable[..., Tensor], merge: Callable[[Tensor], Tensor]) -> Any:
    """Build an attention around a way to split and to merge."""

    def attend(x: Tensor, h: int) -> Tensor:
        heads = split(x, h)
        return merge(F.scaled_dot_product_attention(heads, heads, heads))

    return attend


def _reshaped(x: Tensor, h: int) -> Tensor:
    return x.reshape(h, len(x), -1)


def _reshaped_back(mixed: Tensor) -> Tensor:
    return mixed.reshape(mixed.size(1), -1)


check_mended = Exercise(
    name="mended",
    right=_attend(split_heads, merge_heads),
    praise=(
        "right, and so are the gradients. Split: cut each row, then heads in front. Merge: words "
        "in front, then side by side."
    ),
    wrong={
        "both steps still lack their transpose. Together they pass the round trip, for a reshape "
        "keeps the reading order.": _attend(_reshaped, _reshaped_back),
        "the split is right. The merge takes all of head 1 before head 2: bring the words in front "
        "first.": _attend(split_heads, _reshaped_back),
        "the merge is right. The split fills head 1 with the whole rows of the first words: cut "
        "each row first.": _attend(_reshaped, merge_heads),
        "the heads stay in the middle, so each word attends among its own heads and hears no "
        "other.": _attend(lambda x, h: x.unflatten(-1, (h, -1)), lambda mixed: mixed.flatten(1)),
        "that is one head as wide as the whole row.": lambda x, h: F.scaled_dot_product_attention(
            x, x, x
        ),
        "the features are dealt out to the heads in turn. A head has neighbours: the first d "
        "features belong to the first head.": _attend(
            lambda x, h: x.unflatten(-1, (-1, h)).permute(2, 0, 1), merge_heads
        ),
    },
    sizes=[{"n": 5, "h": 3, "d": 2}, {"n": 7, "h": 2, "d": 4}],
    draw=lambda n, h, d: normal(x=(n, h * d)) | {"h": h},
    shape="(n, h * d)",
)
