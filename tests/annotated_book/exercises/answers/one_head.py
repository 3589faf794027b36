"""Answers to the exercises of “One head”."""

import math
from typing import Any

import torch
from torch import Tensor


def of_verbs(drank: float, was: float, other: float) -> list[float]:
    """List eight numbers in the order of the sentence."""
    return [other, drank, other, drank, other, other, was, other]


def powers(query: Tensor, key: Tensor) -> Tensor:
    # A float32 root in float64 numbers: less exact, and no mistake.
    return (query @ key.T / torch.sqrt(torch.tensor(query.size(1)))).exp()


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_scores": [
        ([6.0, torch.tensor(4)], "✓ my_scores"),
        ([6, 3], '3 is not the score with "it"'),
        ([6, None], "not yet, 1 of the 2 numbers is missing"),
        ([6], "a list of 2 numbers is asked for, and there are 1 of them"),
        ([6, math.nan], "each of the 2 is to be one finite number"),
    ],
    "check_weights": [
        (of_verbs(0.33, 0.12, 0.04), "✓ my_weights"),
        (of_verbs(0.9, 0.3, 0.1), "your weights add up to 2.60"),
        (of_verbs(0.24, 0.3, 0.044), 'they add up to 1.00, but the weight of "was" is not 0.30'),
        (of_verbs(0.22, 0.14, 0.08), 'by √4 = 2. Or your query is "was"; here "vanished" asks.'),
        (
            [0.06, 0.06, 0.06, 0.46, 0.06, 0.06, 0.17, 0.06],
            '"drank" has the numbers of "vanished"',
        ),
    ],
    "check_attend": [
        (lambda q, k, v: powers(q, k) / powers(q, k).sum(1, True) @ v, "✓ my_attend"),
        (lambda q, k, v: torch.softmax(q @ k.T, dim=1) @ v, "✗ my_attend: you do not scale"),
        (
            lambda q, k, v: torch.softmax(q @ k.T / 6**0.5, dim=1) @ v,
            "not with n = 8, m = 2, d = 9, d_v = 5: the shape",
        ),
    ],
}
