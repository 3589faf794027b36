"""Heads without projections: each head attends with a slice of the embedding itself."""

from typing import Self

import torch
from torch import nn

from annotated_attention.multihead import MultiheadAttention
from annotated_book.published.design import width_of_head
from annotated_book.published.weighted_scores import WeightedScores


class NoProjection(WeightedScores):
    """Attention between slices of the embedding; it is called as ``WeightedScores`` is.

    Head i sees features i * d to (i + 1) * d of query, key and value, without any projection. Only
    the output projection is learned. The module equals multi-head attention with identity matrices
    for W_Q, W_K and W_V, which ``as_multihead`` builds.

    Examples:
        >>> import torch
        >>> from annotated_book.published import NoProjection
        >>> queries, memory = torch.randn(2, 3, 24), torch.randn(2, 5, 24)
        >>> NoProjection(embed_dim=24, num_heads=4)(queries, memory, memory).shape
        torch.Size([2, 3, 24])
    """

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        """Create the output projection."""
        d = width_of_head(embed_dim, num_heads)
        super().__init__(embed_dim, d, d, num_heads)
        self.to_query = self.to_key = self.to_value = nn.Identity()

    @classmethod
    def build(cls, embed_dim: int, num_heads: int) -> Self:
        """Create a module."""
        return cls(embed_dim, num_heads)

    def as_multihead(self) -> MultiheadAttention:
        """Build the multi-head attention that this module equals, with identity projections."""
        identity = torch.eye(self.embed_dim).to(self.output.weight)
        return self.multihead([identity] * 3, ())
