"""Answers to the exercises of “Speed”."""

from typing import Any

import torch

OURS, THEIRS = torch.tensor([9.0, 21, 24, 8, 33]), torch.tensor([10.0, 20, 20, 10, 30])
QUARTERS = torch.tensor([0.25, 0.5, 0.75])

ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_quartiles": [
        ((OURS / THEIRS).quantile(QUARTERS), "✓ quartiles: right. The quartiles lie on either "),
        ((THEIRS / OURS).quantile(QUARTERS), "you divided theirs by ours"),
        ([0.9, 1.05, 1.2], "the upper quartile is not right. The ratio of the first round is"),
    ],
}
