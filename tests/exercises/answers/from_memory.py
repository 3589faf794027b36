"""Answers to the exercises of “From memory”."""

import math
from typing import Any

import torch
from torch import Tensor, nn

ORDER = ["project", "split", "score", "scale", "mask", "softmax", "mix", "merge", "project"]


def exchanged(first: str, second: str) -> list[str]:
    """Exchange two words of the right order."""
    other = {first: second, second: first}
    return [other.get(word, word) for word in ORDER]


class Right(nn.Module):
    """Another way to write it."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        assert embed_dim % num_heads == 0
        self.num_heads = num_heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.proj = nn.Linear(embed_dim, embed_dim)

    def merge(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2).flatten(2)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, blocked: Tensor | None = None
    ) -> Any:
        weights, biases = self.qkv.weight.chunk(3), self.qkv.bias.chunk(3)
        inputs = zip((query, key, value), weights, biases, strict=True)
        q, k, v = (
            nn.functional.linear(*x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for x in inputs
        )
        scores = q @ k.mT / math.sqrt(q.size(-1))
        if blocked is not None:
            scores = scores.masked_fill(blocked.unsqueeze(1), -math.inf)
        return self.proj(self.merge(scores.softmax(-1) @ v))


class WithWeights(Right):
    def forward(self, *given: Any, **options: Any) -> Any:
        output = super().forward(*given, **options)
        return output, output.new_zeros(1)


class StraightMerge(Right):
    def merge(self, x: Tensor) -> Tensor:
        b, h, n, d = x.shape
        return x.reshape(b, n, h * d)


class Unset(Right):
    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__(embed_dim, num_heads)
        self.proj.weight = nn.Parameter(torch.empty(embed_dim, embed_dim))


class AnyWidth(Right):
    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__(embed_dim - embed_dim % num_heads, num_heads)


class LateError(Right):
    def __init__(self, embed_dim: int, num_heads: int) -> None:
        if embed_dim % num_heads:
            raise RuntimeError("shapes")
        super().__init__(embed_dim, num_heads)


class Swapped(Right):
    def forward(self, query: Any, key: Any, value: Any, blocked: Any = None) -> Any:
        return super().forward(key, query, query)


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_order": [
        (exchanged("scale", "mask"), "✓ "),
        (exchanged("mask", "softmax"), "the numbers are wrong"),
        (exchanged("split", "score"), "“score” comes too early: scores compare"),
        (exchanged("mix", "merge"), "“merge” comes too early: nothing is mixed"),
        (["split", "project", *ORDER[2:]], "“split” comes too early: there"),
        (["project", *ORDER[:-1]], "the second “project” comes too early"),
    ],
    "check_attention": [
        (Right, "✓ "),
        (WithWeights, "✓ "),
        (Unset, "proj.weight is never given numbers"),
        (LateError, "stops with RuntimeError: 4 heads do not divide 10"),
        (Swapped, "shape (2, 5, 24); what fits is (b, n, e), here (2, 3, 24)"),
    ],
    "check_mended": [
        (StraightMerge, "merge-without-transpose"),
        (AnyWidth, "MyAttention(10, 4) is accepted: 4 heads do not divide 10"),
        (Right(24, 4), "give the class itself"),
    ],
}  # fmt: skip
