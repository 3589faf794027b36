"""Answers to the exercises of “A little world”."""

import math
from typing import Any

import torch
from torch import Tensor


def top(logits: Tensor, k: int) -> Tensor:
    """Divide again, unlike the solution, after cutting at a rank."""
    shares = torch.softmax(logits, -1)
    ranks = logits.argsort(-1, descending=True).argsort(-1)
    kept = torch.where(ranks < k, shares, torch.zeros_like(shares))
    return kept / kept.sum(-1, keepdim=True)


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_floor": [
        ((2.08, 0.52), "✓ "),
        ([math.log(8), math.log(4)], "the word costs another number"),
        ([3, 3 / 4], "that is in bits"),
    ],
    "check_top": [
        (top, "✓ "),
        (lambda logits, k: top(logits, k + 1), "one word too many"),
        (lambda logits, k: top(logits, k) * 2, "6 of its 14 numbers are not"),
    ],
}
