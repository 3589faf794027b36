"""Answers to the exercises of “The short path”."""

import math
from typing import Any

import torch
from torch import nn

PENCIL: list[tuple[Any, str]] = [
    (torch.tensor([4, 0.298, 0.72, 1.31]), "✓ my_numbers: right"),
    ([4, 0.3, 0.0, 0.6], "sums over all eight words"),
    ([5, 0.3, 0.72, 1.32], "✗ my_numbers: the shape is right, but 1 of its 4 numbers are not"),
]
MASK: list[tuple[Any, str]] = [
    (torch.tensor([[1, 1, 1], [1, 0, 1], [1, 0, 0]]), "✓ my_mask: right"),
    ([[0, 0, 0], [0, 1, 0], [0, 1, 1]], "it is inverted"),
    ([1, 1, 1], "three rows of three numbers are asked for"),
]


class Mine(nn.Module):
    """A right class in other words: views, einsum, and a mask that is looked at twice."""

    axis, zeroed, low, heads_axis = 3, True, -math.inf, True

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads, self.d = num_heads, embed_dim // num_heads
        for name in ("w_q", "w_k", "w_v", "w_o"):
            setattr(self, name, nn.Linear(embed_dim, embed_dim))

    def forward(self, query, key, value, blocked=None):
        b, n, e = query.shape
        q, k, v = self.w_q(query), self.w_k(key), self.w_v(value)
        q, k, v = (x.view(b, -1, self.num_heads, self.d).permute(0, 2, 1, 3) for x in (q, k, v))
        scores = torch.einsum("bhnd,bhmd->bhnm", q, k) / k.size(self.axis) ** 0.5
        if blocked is not None and self.heads_axis:
            blocked = blocked[:, None]
        if blocked is not None:
            scores = scores.masked_fill(blocked, self.low)
        weights = scores.softmax(-1)
        if blocked is not None and self.zeroed:
            weights = weights.masked_fill(blocked, 0)
        mixed = (weights @ v).permute(0, 2, 1, 3)
        return self.w_o(mixed.reshape(b, n, e)), weights


def mine(**settings):
    return type("Mine", (Mine,), settings)


def returning(what):
    """Make a class that returns something else."""
    return type(
        "Mine", (Mine,), {"forward": lambda self, q, k, v, blocked=None: what(self, q, k, v)}
    )


CLASSES: list[tuple[Any, str]] = [
    (Mine, "✓ MyAttention: right"),
    (mine(low=-1e9), "fails in 16 bits"),
    (mine(heads_axis=False), "an axis of heads, too: blocked[:, None]. So your code raises"),
    (mine(axis=2), "the weights are not right: look at what comes before them"),
    (mine(zeroed=False), "a fully masked row is NaN"),
    (returning(lambda self, q, k, v: Mine.forward(self, q, k, v)[0]), "returns two tensors"),
    (returning(lambda self, q, k, v: None), "not yet, forward returns None"),
    (nn.Linear, "its four layers are w_q, w_k, w_v and w_o"),
]

ANSWERS = {"check_sweet": PENCIL, "check_mask": MASK, "check_attention": CLASSES}
