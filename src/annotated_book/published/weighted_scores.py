"""Attention with separate widths for keys and values, and factors on the scores."""

import math
from typing import Self

from torch import Tensor, nn

from annotated_attention.attention import masked_softmax
from annotated_attention.checks import check_sizes, check_tensors
from annotated_book.published.design import Design, width_of_head


class WeightedScores(Design):
    """Multi-head attention with any d_k and d_v, and a mask in which True means blocked.

    Head i computes ``softmax(A * (Q W_Q_i)(K W_K_i)^T / sqrt(d_k)) (V W_V_i)``. A factor of 0 in A
    makes the score 0, which does not block the key. Together the heads are h * d_v wide, and the
    output projection brings that width back to e. With h * d_k = h * d_v = e and without A, this is
    ordinary multi-head attention.

    The weights start with Xavier initialisation. The published version starts with tiny weights,
    with which every key gets nearly the same attention weight.

    Examples:
        >>> import torch
        >>> from annotated_book.published import WeightedScores
        >>> queries, memory = torch.randn(2, 3, 24), torch.randn(2, 5, 24)
        >>> module = WeightedScores(embed_dim=24, key_dim=6, value_dim=7, num_heads=4)
        >>> module(queries, memory, memory, attention_weights=torch.rand(2, 4, 3, 5)).shape
        torch.Size([2, 3, 24])
    """

    layout = "(b, n, e)"
    mask_axes = "(b, h, n, m)"
    true_means = "blocked"

    def __init__(self, embed_dim: int, key_dim: int, value_dim: int, num_heads: int) -> None:
        """Create the projections; ``key_dim`` is d_k, ``value_dim`` is d_v."""
        nn.Module.__init__(self)  # any number of heads fits any width
        sizes = {"embed_dim": embed_dim, "key_dim": key_dim, "value_dim": value_dim}
        check_sizes({**sizes, "num_heads": num_heads})
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.to_query = nn.Linear(embed_dim, num_heads * key_dim)
        self.to_key = nn.Linear(embed_dim, num_heads * key_dim)
        self.to_value = nn.Linear(embed_dim, num_heads * value_dim)
        self.output = nn.Linear(num_heads * value_dim, embed_dim)
        for linear in (self.to_query, self.to_key, self.to_value, self.output):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    @classmethod
    def build(cls, embed_dim: int, num_heads: int) -> Self:
        """Create a module with the usual widths, d_k = d_v = e / h."""
        d = width_of_head(embed_dim, num_heads)
        return cls(embed_dim, d, d, num_heads)

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        attention_mask: Tensor | None = None,
        attention_weights: Tensor | None = None,
    ) -> Tensor:
        """Attend with all heads at once.

        Args:
            queries: (b, n, e).
            keys: (b, m, e).
            values: (b, m, e).
            attention_mask: boolean, (b, h, n, m) or with sizes of 1.
            attention_weights: floating point, as large; multiplies the scaled scores.
        """
        self.check(queries, keys, values)
        heads = (self.num_heads, -1)
        q = self.to_query(queries).unflatten(-1, heads).permute(0, 2, 1, 3)  # (b, h, n, d)
        k = self.to_key(keys).unflatten(-1, heads).permute(0, 2, 3, 1)       # (b, h, d, m)
        v = self.to_value(values).unflatten(-1, heads).permute(0, 2, 1, 3)   # (b, h, m, d_v)
        scores = q @ k / math.sqrt(q.size(-1))                               # (b, h, n, m)
        if attention_weights is not None:
            check_tensors(attention_weights=attention_weights)
            if not attention_weights.is_floating_point():
                raise TypeError(f"attention_weights must be floats, got {attention_weights.dtype}")
            self.check_shape("attention_weights", attention_weights, scores.shape)
            scores = scores * attention_weights  # (b, h, n, m)
        blocked = self.read_mask("attention_mask", attention_mask, *scores.shape)
        weights = masked_softmax(scores, blocked)  # (b, h, n, m)
        mixed = (weights @ v).permute(0, 2, 1, 3)  # (b, n, h, d_v)
        return self.output(mixed.flatten(2))       # (b, n, e)

    def call(self, query: Tensor, key: Tensor, value: Tensor, blocked: Tensor | None) -> Tensor:
        """Call it as any design."""
        each_head = None if blocked is None else blocked[:, None]
        return self(query, key, value, attention_mask=each_head)
