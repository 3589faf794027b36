"""One small projection that all heads share, with named axes throughout."""

import math

import torch
from torch import Tensor, nn

from annotated_attention.attention import masked_softmax
from annotated_attention.multihead import MultiheadAttention
from annotated_book.published.design import Design


class SharedProjection(Design):
    """Attention on slices: all heads share one d x d matrix each for queries, keys and values.

    The input is cut into h slices of width d *before* it is projected, so a head sees only its own
    slice of the embedding. This is less than multi-head attention: each projection has d * d
    parameters instead of e * e. The module equals a multi-head attention with block-diagonal
    projections that repeat one block h times, which ``as_multihead`` builds.

    Scores are divided by the square root of d, because a score is a sum of d products. The
    published version divides by the square root of e.

    Examples:
        >>> import torch
        >>> from annotated_book.published import SharedProjection
        >>> query, memory = torch.randn(2, 3, 24), torch.randn(2, 5, 24)
        >>> SharedProjection(24, 4)(memory, memory, query).shape
        torch.Size([2, 3, 24])
    """

    layout = "(b, n, e)"
    mask_axes = "(b, h, n, m)"
    true_means = "allowed"

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        """Create the projections."""
        super().__init__(embed_dim, num_heads)
        d = self.head_dim
        self.to_value = nn.Linear(d, d, bias=False)
        self.to_key = nn.Linear(d, d, bias=False)
        self.to_query = nn.Linear(d, d, bias=False)
        self.output = nn.Linear(embed_dim, embed_dim)

    def forward(
        self, values: Tensor, keys: Tensor, query: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Attend within each slice: values come first; the mask is (b, h, n, m)."""
        self.check(query, keys, values)
        h, (b, n, e), m = self.num_heads, query.shape, keys.size(1)
        v = self.to_value(values.reshape(b, m, h, e // h))  # (b, m, h, d)
        k = self.to_key(keys.reshape(b, m, h, e // h))      # (b, m, h, d)
        q = self.to_query(query.reshape(b, n, h, e // h))   # (b, n, h, d)
        scores = torch.einsum("bnhd,bmhd->bhnm", q, k)      # (b, h, n, m)
        scores = scores / math.sqrt(q.size(-1))             # (b, h, n, m)
        blocked = self.read_mask("mask", mask, b, h, n, m)
        weights = masked_softmax(scores, blocked)            # (b, h, n, m)
        mixed = torch.einsum("bhnm,bmhd->bnhd", weights, v)  # (b, n, h, d)
        return self.output(mixed.flatten(2))                 # (b, n, e)

    def as_multihead(self) -> MultiheadAttention:
        """Build the multi-head attention that this module equals; its blocks are copies."""
        shared = (self.to_query.weight, self.to_key.weight, self.to_value.weight)
        weights = [torch.block_diag(*[block] * self.num_heads) for block in shared]
        return self.multihead(weights, ())

    def call(self, query: Tensor, key: Tensor, value: Tensor, blocked: Tensor | None) -> Tensor:
        """Call it as any design."""
        return self(value, key, query, None if blocked is None else ~blocked[:, None])
