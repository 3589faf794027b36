"""Answers to the exercise of “Batches”."""

from typing import Any

import torch
from torch import Tensor


def cut(x: Tensor, h: int) -> Tensor:
    return x.unflatten(2, (h, -1)).transpose(1, 2)


Y = torch.arange(5 * 3 * 24).view(5, 3, 24)

ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_index": [
        (cut(Y.transpose(0, 1), 4).eq(Y[4, 2, 11]).nonzero()[0], "✓ my_index: right"),
        (Y.view(3, 4, 5, 6).eq(Y[4, 2, 11]).nonzero()[0], "where a straight reshape puts it"),
        ((4, 0, 0, 0), "the first number is the sentence, the second of y's three"),
        ((2, 1, 4, 11), "all but the last are right"),
    ],
}
