"""Answers to the exercise of “Masks”."""

from typing import Any

import torch

from annotated_attention import masks


def counted(hidden: torch.Tensor) -> tuple[tuple[int, ...], ...]:
    """Count the keys that each query of two sentences sees, and the rows that see “drank”."""
    allowed = ~(hidden[:, None] | masks.block_future(4))
    first, second = allowed.sum(-1).tolist()
    return tuple(first), tuple(second), (int(allowed[0, :, 2].sum()),)


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_seen": [
        (counted(torch.arange(4) < torch.tensor([[0], [2]])), "✓ keys_seen: right"),
        (counted(torch.arange(4) >= torch.tensor([[4], [2]])), "you have the dots behind"),
        (counted(torch.zeros(2, 4).bool()), "that is the staircase alone"),
        ([1, 2, 3, 4, 0, 0, 1, 2, 2], "✓ keys_seen: right"),
        (((1, 2, 3, 4), (0, 0, 1, 2), (3,)), "Which queries see “drank”?"),
        (((1, 2, 2, 4), (0, 0, 1, 2), (2,)), "the number of drank is the first that is wrong"),
        (((1, 2, 3), (0, 0, 1, 2), (2,)), "three rows are asked for"),
        (((1, 2, 3, 4), (0, 0, 1, 2), (None,)), "not yet, a number is missing"),
    ],
}
