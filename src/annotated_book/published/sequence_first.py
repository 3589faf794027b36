"""Sequence-first attention with a method for the scores that subclasses can override."""

import math

import torch
from torch import Tensor, nn

from annotated_attention.attention import masked_softmax
from annotated_book.published.design import Design


class SequenceFirst(Design):
    """Multi-head attention on (n, b, e), called by keyword, with a mask in which 1 means allowed.

    Override ``get_scores`` for other scores, such as those of relative attention.

    Examples:
        >>> import torch
        >>> from annotated_book.published import SequenceFirst
        >>> module = SequenceFirst(4, 24)
        >>> query, memory = torch.randn(3, 2, 24), torch.randn(5, 2, 24)
        >>> module(query=query, key=memory, value=memory).shape
        torch.Size([3, 2, 24])
    """

    layout = "(n, b, e)"
    mask_axes = "(n, m, b)"
    true_means = "allowed"

    def __init__(self, num_heads: int, embed_dim: int) -> None:
        """Create the projections."""
        super().__init__(embed_dim, num_heads)
        self.to_query = nn.Linear(embed_dim, embed_dim)
        self.to_key = nn.Linear(embed_dim, embed_dim)
        self.to_value = nn.Linear(embed_dim, embed_dim)
        self.output = nn.Linear(embed_dim, embed_dim)

    def get_scores(self, query: Tensor, key: Tensor) -> Tensor:
        """Score each key against each query, without scaling; override this for other scores.

        Args:
            query: (n, b, h, d), the projected queries.
            key: (m, b, h, d), the projected keys.

        Returns:
            (n, m, b, h).
        """
        return torch.einsum("nbhd,mbhd->nmbh", query, key)  # (n, m, b, h)

    def forward(
        self, *, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Attend with all heads at once; the mask is (n, m, b)."""
        self.check(query, key, value)
        projected = self.to_query(query), self.to_key(key), self.to_value(value)
        q, k, v = (x.unflatten(-1, (self.num_heads, -1)) for x in projected)
        scores = self.get_scores(q, k) / math.sqrt(self.head_dim)  # (n, m, b, h)
        n, m, b, _ = scores.shape
        blocked = self.read_mask("mask", mask, n, m, b)
        if blocked is not None:
            blocked = blocked[..., None].transpose(1, -1)
        weights = masked_softmax(scores.transpose(1, -1), blocked)  # (n, h, b, m)
        weights = weights.transpose(1, -1)                          # (n, m, b, h)
        mixed = torch.einsum("nmbh,mbhd->nbhd", weights, v)         # (n, b, h, d)
        return self.output(mixed.flatten(2))                        # (n, b, e)

    def call(self, query: Tensor, key: Tensor, value: Tensor, blocked: Tensor | None) -> Tensor:
        """Call it as any design."""
        q, k, v = (x.transpose(0, 1) for x in (query, key, value))
        allowed = None if blocked is None else ~blocked.permute(1, 2, 0)
        return self(query=q, key=k, value=v, mask=allowed).transpose(0, 1)
