"""Answers to the exercises of “Trained weights”."""

from typing import Any

import torch
from torch import Tensor


def by_loops(weights: Tensor, distance: int) -> tuple[int, int]:
    layers, h, n, _ = weights.shape
    score = {
        (i, j): sum(float(weights[i, j, q, q - distance]) for q in range(distance, n))
        for i in range(layers)
        for j in range(h)
    }
    return max(score, key=lambda pair: score[pair])


def largest(score: Tensor) -> tuple[int, int]:
    at = int(score.flatten().argmax())
    return at // score.shape[1], at % score.shape[1]


def wrapping(weights: Tensor, distance: int) -> tuple[int, int]:
    rows = range(weights.size(-1))
    return largest(torch.stack([weights[..., i, i - distance] for i in rows]).mean(0))


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_parts": [
        (torch.tensor([0.2, 0.6, 0.2]), "✓ "),
        ((0.8, 0.15, 0.05), "these are the weights"),
        ((0.2, 0.2, 0.2), "that is not the weight of cat times its norm"),
    ],
    "check_my_head": [
        (by_loops, "✓ "),
        (lambda w, k: largest(w.diagonal(k, 2, 3).mean(2)), "that head looks ahead"),
        (wrapping, "i - distance is negative and wraps round"),
        (lambda w, k: divmod(int(w.diagonal(-k).mean(-1).argmax()), w.size(1)),
         "unless you name the last two, -2 and -1"),
        (lambda w, k: by_loops(w, 1), "not with layers = 2, h = 5, n = 8, distance = 3"),
        (lambda w, k: [i + 1 for i in by_loops(w, k)], "count layers and heads from 0"),
        (lambda w, k: int(w.diagonal(-k, 2, 3).mean(2).argmax()), "a layer and a head"),
    ],
}  # fmt: skip
