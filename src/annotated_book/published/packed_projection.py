"""Packed projections, as PyTorch stores them, with heads folded into the batch axis."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention.attention import masked_softmax
from annotated_attention.checks import check_masks
from annotated_attention.masks import attention_to_heads, merge_masks, padding_to_heads
from annotated_attention.multihead import MultiheadAttention
from annotated_book.published.design import Design


class PackedProjection(Design):
    """Multi-head attention on (n, b, e), with one packed matrix, and True in a mask for blocked.

    Batch and heads are folded into one axis for the attention, and unfolded after it.

    Examples:
        >>> import torch
        >>> from annotated_book.published import PackedProjection
        >>> query, memory = torch.randn(3, 2, 24), torch.randn(5, 2, 24)
        >>> output, weights = PackedProjection(24, 4)(query, memory, memory)
        >>> output.shape, weights.shape
        (torch.Size([3, 2, 24]), torch.Size([2, 4, 3, 5]))
    """

    layout = "(n, b, e)"
    mask_axes = "(b * h, n, m)"
    true_means = "blocked"

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        """Create the projections, with initial values."""
        super().__init__(embed_dim, num_heads)
        self.in_proj_weight = nn.Parameter(torch.empty(3 * embed_dim, embed_dim))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * embed_dim))
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        nn.init.xavier_uniform_(self.in_proj_weight)
        nn.init.zeros_(self.out_proj.bias)

    def additive_mask(
        self,
        key_padding_mask: Tensor | None,
        attn_mask: Tensor | None,
        query: Tensor,
        key: Tensor,
    ) -> Tensor | None:
        """Merge both masks into one that is added to the scores, (b * h, n, m), if there is any."""
        if key_padding_mask is None and attn_mask is None:
            return None
        h, (n, b), m = self.num_heads, query.shape[:2], key.size(0)
        check_masks(attn_mask, key_padding_mask, query, key, h, batch_first=False)
        for name, mask in (("key_padding_mask", key_padding_mask), ("attn_mask", attn_mask)):
            if mask is not None and mask.dtype != torch.bool:
                raise TypeError(f"{name} must be boolean, True = blocked, got {mask.dtype}")
        masks = attention_to_heads(attn_mask, h), padding_to_heads(key_padding_mask)
        blocked: Any = merge_masks(*masks)[0]
        blocked = blocked.expand(b, h, n, m).flatten(0, 1)  # (b * h, n, m)
        return torch.zeros_like(blocked, dtype=query.dtype).masked_fill(blocked, -math.inf)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Project, fold batch and heads, attend, unfold, and project the output.

        Args:
            query: (n, b, e).
            key: (m, b, e).
            value: (m, b, e).
            key_padding_mask: boolean, (b, m).
            attn_mask: boolean, (n, m) or (b * h, n, m).

        Returns:
            The output, (n, b, e), and the weights of every head, (b, h, n, m).
        """
        self.check(query, key, value)
        n, b, e = query.shape
        added = self.additive_mask(key_padding_mask, attn_mask, query, key)
        q, k, v = self._project(query, key, value)
        scores = q @ k.mT / math.sqrt(q.size(-1))               # (b * h, n, m)
        weights = masked_softmax(scores, bias=added)            # (b * h, n, m)
        mixed = (weights @ v).transpose(0, 1).reshape(n, b, e)  # (n, b, e)
        weights = weights.unflatten(0, (b, -1))                 # (b, h, n, m)
        return self.out_proj(mixed), weights                    # (n, b, e), (b, h, n, m)

    def _project(self, *inputs: Tensor) -> list[Tensor]:
        """Project each input with its third of the packed weight, and fold batch and heads."""
        parts = (self.in_proj_weight.chunk(3), self.in_proj_bias.chunk(3))
        folded = []
        for x, weight, bias in zip(inputs, *parts, strict=True):
            wide = F.linear(x, weight, bias)                  # (..., b, e)
            heads = wide.unflatten(-1, (self.num_heads, -1))  # (..., b, h, d)
            folded.append(heads.flatten(1, 2).transpose(0, 1))
        return folded

    def as_multihead(self) -> MultiheadAttention:
        """Build the batch-first multi-head attention that this module equals."""
        full = MultiheadAttention(self.embed_dim, self.num_heads, batch_first=True)
        full.to(self.in_proj_weight).load_state_dict(self.state_dict())
        return full

    def call(self, query: Tensor, key: Tensor, value: Tensor, blocked: Tensor | None) -> Tensor:
        """Call it as any design."""
        q, k, v = (x.transpose(0, 1) for x in (query, key, value))
        per_head = None if blocked is None else blocked.repeat_interleave(self.num_heads, 0)
        return self(q, k, v, attn_mask=per_head)[0].transpose(0, 1)
