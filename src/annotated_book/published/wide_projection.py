"""One wide projection for all heads, for self-attention only."""

import math

from torch import Tensor, nn

from annotated_attention.attention import masked_softmax
from annotated_book.published.design import Design


class WideProjection(Design):
    """Multi-head self-attention: one input, batch-first, with a mask in which 0 means blocked.

    Three projections from e to e hold all heads; ``view`` and ``transpose`` split them. The product
    is ``@``, because ``torch.bmm`` takes three axes and these tensors have four.

    Examples:
        >>> import torch
        >>> from annotated_book.published import WideProjection
        >>> WideProjection(24, 4)(torch.randn(2, 5, 24)).shape
        torch.Size([2, 5, 24])
    """

    layout = "(b, n, e)"
    mask_axes = "(b, h, n, n)"
    true_means = "allowed"
    kind = "self"

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        """Create the projections."""
        super().__init__(embed_dim, num_heads)
        self.to_query = nn.Linear(embed_dim, embed_dim)
        self.to_key = nn.Linear(embed_dim, embed_dim)
        self.to_value = nn.Linear(embed_dim, embed_dim)
        self.output = nn.Linear(embed_dim, embed_dim)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Let every token attend to all of its sequence; the mask is (b, h, n, n)."""
        self.check(x, x, x)
        (b, n, e), h, d = x.shape, self.num_heads, self.head_dim
        q = self.to_query(x).view(b, n, h, d).transpose(1, 2)  # (b, h, n, d)
        k = self.to_key(x).view(b, n, h, d).transpose(1, 2)    # (b, h, n, d)
        v = self.to_value(x).view(b, n, h, d).transpose(1, 2)  # (b, h, n, d)
        scores = q @ k.mT / math.sqrt(d)                       # (b, h, n, n)
        blocked = self.read_mask("mask", mask, b, h, n, n)
        weights = masked_softmax(scores, blocked)             # (b, h, n, n)
        mixed = (weights @ v).transpose(1, 2)                 # (b, n, h, d)
        return self.output(mixed.contiguous().view(b, n, e))  # (b, n, e)

    def call(self, query: Tensor, key: Tensor, value: Tensor, blocked: Tensor | None) -> Tensor:
        """Call it as any design."""
        if not query is key is value:
            raise ValueError("query, key and value must be one tensor: this is self-attention")
        return self(query, None if blocked is None else ~blocked[:, None])
