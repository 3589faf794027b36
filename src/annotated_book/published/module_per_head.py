"""One module per head: a list of h small attentions whose outputs are concatenated."""

import math

import torch
from torch import Tensor, nn

from annotated_attention.attention import masked_softmax
from annotated_attention.multihead import MultiheadAttention
from annotated_book.published.design import Design


class Head(nn.Module):
    """One head: three projections from e to d, and attention over (b, n, d) with ``bmm``."""

    def __init__(self, embed_dim: int, head_dim: int) -> None:
        """Create the projections."""
        super().__init__()
        self.to_query = nn.Linear(embed_dim, head_dim)
        self.to_key = nn.Linear(embed_dim, head_dim)
        self.to_value = nn.Linear(embed_dim, head_dim)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, blocked: Tensor | None) -> Tensor:
        """Attend with this head, (b, n, d)."""
        q, k, v = self.to_query(query), self.to_key(key), self.to_value(value)
        scores = torch.bmm(q, k.mT) / math.sqrt(q.size(-1))  # (b, n, m)
        weights = masked_softmax(scores, blocked)            # (b, n, m)
        return torch.bmm(weights, v)                         # (b, n, d)


class ModulePerHead(Design):
    """Multi-head attention as a list of heads: batch-first, with a mask in which 0 means blocked.

    This is the most direct reading of the formula. It makes h times as many calls as one wide
    matrix needs. The list has to be an ``nn.ModuleList``: a plain one hides the heads from the
    optimizer and from ``state_dict``.

    Examples:
        >>> import torch
        >>> from annotated_book.published import ModulePerHead
        >>> query, memory = torch.randn(2, 3, 24), torch.randn(2, 5, 24)
        >>> ModulePerHead(embed_dim=24, num_heads=4)(query, memory, memory).shape
        torch.Size([2, 3, 24])
    """

    layout = "(b, n, e)"
    mask_axes = "(b, n, m)"
    true_means = "allowed"

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        """Create the heads."""
        super().__init__(embed_dim, num_heads)
        self.heads = nn.ModuleList(Head(embed_dim, self.head_dim) for _ in range(num_heads))
        self.output = nn.Linear(embed_dim, embed_dim)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Attend with every head, one after the other; the mask is (b, n, m)."""
        self.check(query, key, value)
        b, n, m = *query.shape[:2], key.size(1)
        blocked = self.read_mask("mask", mask, b, n, m)
        heads = [head(query, key, value, blocked) for head in self.heads]  # (b, n, d)
        return self.output(torch.cat(heads, -1))                           # (b, n, e)

    def as_multihead(self) -> MultiheadAttention:
        """Build the multi-head attention that this module equals."""
        names = ("to_query", "to_key", "to_value")
        parts = [getattr(head, name) for name in names for head in self.heads]
        return self.multihead([x.weight for x in parts], [x.bias for x in parts])

    def call(self, query: Tensor, key: Tensor, value: Tensor, blocked: Tensor | None) -> Tensor:
        """Call it as any design."""
        return self(query, key, value, None if blocked is None else ~blocked)
