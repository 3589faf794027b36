"""Answers to the exercises of “The reshape trick”."""

from typing import Any

import torch

from annotated_attention import split_heads

X = torch.arange(5 * 6).view(5, 6)


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
    "check_findings": [
        ([2, 4, 3, 1], "✓ my_findings: right"),
        ([2, 3, 4, 1], "Both missing is the one that the shuffle sees"),
        ([3, 4, 2, 1], "So it passes the change"),
        ([4, 2, 3, 1], "So it passes the change"),
        ([3, 2, 4, 1], "So it passes the change"),
        ([4, 3, 2, 1], "So it passes the change"),
        ([1, 4, 3, 2], "look again at A and D"),
        ([2, 2, 3, 1], "each of 1, 2, 3 and 4 fits one model"),
    ],
}
