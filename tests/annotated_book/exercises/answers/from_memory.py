"""Answers to the exercises of “From memory”."""

from typing import Any

import torch
from torch import Tensor, nn

from attention_doctor.mistakes.reshapes import MergeWithoutTranspose


class Right(nn.Module):
    """Another way to write it, with a seam for a mistake."""

    version: Any = nn.MultiheadAttention

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.inner = self.version(embed_dim, num_heads, batch_first=True)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, blocked: Tensor | None = None
    ) -> Any:
        mask = None if blocked is None else blocked.repeat_interleave(self.inner.num_heads, 0)
        return self.inner(query, key, value, attn_mask=mask)[0]


class WithWeights(Right):
    def forward(self, *given: Any, **options: Any) -> Any:
        output = super().forward(*given, **options)
        return output, output.new_zeros(1)


class StraightMerge(Right):
    version = MergeWithoutTranspose


class Unset(Right):
    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__(embed_dim, num_heads)
        self.inner.out_proj.weight = nn.Parameter(torch.empty(embed_dim, embed_dim))


class AnyWidth(Right):
    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__(embed_dim - embed_dim % num_heads, num_heads)


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_attention": [
        (Right, "✓ "),
        (WithWeights, "✓ "),
        (Unset, "inner.out_proj.weight is never given numbers"),
    ],
    "check_mended": [
        (StraightMerge, "merge-without-transpose"),
        (AnyWidth, "MyAttention(10, 4) is accepted: 4 heads do not divide 10"),
        (Right(24, 4), "give the class itself"),
    ],
}
