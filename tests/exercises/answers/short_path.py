"""Answers to the exercises of “The short path”."""

import math
from typing import Any

import torch
from torch import nn

PENCIL: list[tuple[Any, str]] = [
    ([4, 0.3, 0.72, 1.32], "✓ my_numbers: right"),
    (torch.tensor([4, 0.298, 0.72, 1.31]), "✓ my_numbers: right"),
    ([4, 0.3, 1.32, 0.72], "the sentence with thirsty"),
    ([2, 0.3, 0.72, 1.32], "the score adds up products"),
    ([4, 7.39, 0.72, 1.32], "divided by the sum of all eight"),
    ([4, 0.3, 0.0, 0.6], "sums over all eight words"),
    ([4, 0.3, None, None], "not yet, 2 of the 4 numbers are missing"),
    ([4, 0.3, 0.72], "a list of 4 numbers is asked for"),
    ([5, 0.3, 0.72, 1.32], "✗ my_numbers: the shape is right, but 1 of its 4 numbers are not"),
]
MASK: list[tuple[Any, str]] = [
    ([[True, True, True], [True, False, True], [True, False, False]], "✓ my_mask: right"),
    (torch.tensor([[1, 1, 1], [1, 0, 1], [1, 0, 0]]), "✓ my_mask: right"),
    ([[0, 0, 0], [0, 1, 0], [0, 1, 1]], "it is inverted"),
    ([[0, 1, 1], [0, 0, 1], [0, 0, 0]], "the causal mask alone"),
    ([[1, 0, 0]] * 3, "the padding mask alone"),
    ([[1, 1, 1], [1, 1, 1], [1, 0, 1]], "a word sees itself"),
    ([[1, 1, 1], [1, 0, 0], [1, 1, 0]], "a row belongs to the word that asks"),
    ([[0, 1, 1], [1, 0, 1], [1, 0, 0]], "the padding may not see itself either"),
    ([[1, 1, 1], [0, 0, 1], [0, 0, 0]], "padding is hidden as a key"),
    ([[None] * 3] * 3, "not yet, 9 of the 9 numbers are missing"),
    ([1, 1, 1], "three rows of three numbers are asked for"),
    ("111", "three rows of three numbers are asked for"),
    ([[1, 1, 1], [1, 1, 1], [1, 1, 1]], "✗ my_mask: the shape is right, but 3 of its 9"),
]


class Mine(nn.Module):
    """A right class in other words: views, einsum, and a mask that is looked at twice."""

    shortcut = scale = fill = dim = source = ""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads, self.d = num_heads, embed_dim // num_heads
        for name in ("w_q", "w_k", "w_v", "w_o"):
            setattr(self, name, nn.Linear(embed_dim, embed_dim))

    def forward(self, query, key, value, blocked=None):
        b, n, e = query.shape
        inputs = {"q": query, "k": key, "v": key if self.source else value}
        q, k, v = (getattr(self, f"w_{x}")(inputs[x]) for x in "qkv")
        if self.shortcut == "split":
            q, k, v = (x.view(b, self.num_heads, x.size(1), self.d) for x in (q, k, v))
        else:
            q, k, v = (x.view(b, -1, self.num_heads, self.d).permute(0, 2, 1, 3) for x in (q, k, v))
        scores = torch.einsum("bhnd,bhmd->bhnm", q, k)
        scores = (
            scores / {"": self.d**0.5, "e": e**0.5, "none": 1.0, "m": k.size(2) ** 0.5}[self.scale]
        )
        if blocked is not None and self.fill != "no mask":
            hidden = ~blocked[:, None] if self.fill == "inverted" else blocked[:, None]
            lowest = -1e9 if self.fill == "finite" else -math.inf
            scores = scores.masked_fill(hidden, lowest)
        weights = scores.softmax(-2 if self.dim else -1)
        if blocked is not None and not self.fill:
            weights = weights.masked_fill(blocked[:, None], 0)
        mixed = weights @ v
        merged = mixed.reshape(b, n, e) if self.shortcut == "merge" else mixed.permute(0, 2, 1, 3)
        return self.w_o(merged.reshape(b, n, e)), weights


def mine(**settings):
    return type("Mine", (Mine,), settings)


def returning(what):
    """Make a class that returns something else."""
    return type(
        "Mine", (Mine,), {"forward": lambda self, q, k, v, blocked=None: what(self, q, k, v)}
    )


CLASSES: list[tuple[Any, str]] = [
    (Mine, "✓ MyAttention: right"),
    (mine(shortcut="split"), "split mixes words"),
    (mine(shortcut="merge"), "merge mixes words"),
    (mine(scale="none"), "not divided by √d"),
    (mine(scale="e"), "the scores are divided by √e"),
    (mine(scale="m"), "the weights are not right: look at what comes before them"),
    (mine(fill="once"), "a fully masked row is NaN"),
    (mine(fill="finite"), "the weights are not right"),
    (mine(fill="no mask"), "the mask is not used"),
    (mine(dim="queries"), "the softmax runs over the queries"),
    (mine(source="key"), "the values are projected from key"),
    (returning(lambda self, q, k, v: Mine.forward(self, q, k, v)[0]), "returns two tensors"),
    (returning(lambda self, q, k, v: None), "not yet, forward returns None"),
    (returning(lambda self, q, k, v: (q, q)), "the weights are (2, 3, 24); what fits is (b, h, n"),
    (Mine(24, 4), "give the class itself"),
    (nn.Linear, "its four layers are w_q, w_k, w_v and w_o"),
    (None, "not yet"),
]

ANSWERS = {"check_sweet": PENCIL, "check_mask": MASK, "check_attention": CLASSES}
