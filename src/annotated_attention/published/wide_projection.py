"""One wide projection for all heads, for self-attention only."""

import math

from torch import Tensor, nn

from annotated_attention.attention import masked_softmax
from annotated_attention.checks import check_settings
from annotated_attention.multihead import MultiheadAttention
from annotated_attention.published._parts import (
    check_batches,
    copy_projection,
    projections,
    read_mask,
)
from annotated_attention.published.design import Design


class WideProjection(nn.Module):
    """Multi-head self-attention: one input, batch-first, with a mask in which 0 means blocked.

    Three projections from e to e hold all heads; ``view`` and ``transpose`` split them. The product
    is ``@``, because ``torch.bmm`` takes three axes and these tensors have four.

    Examples:
        >>> import torch
        >>> from annotated_attention.published import WideProjection
        >>> WideProjection(24, 4)(torch.randn(2, 5, 24)).shape
        torch.Size([2, 5, 24])

    Source: the chapter "Published code", and Vaswani et al. (2017), section 3.2.2.
    """

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        """Create the projections.

        Args:
            embed_dim: e, the width of input and output.
            num_heads: h; must divide ``embed_dim``. Each head is d = e / h wide.

        Raises:
            TypeError: a size is not an integer.
            ValueError: a size is below 1, or ``embed_dim`` is not divisible by ``num_heads``.
        """
        super().__init__()
        check_settings({"embed_dim": embed_dim, "num_heads": num_heads}, 0.0, None)
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.to_query = nn.Linear(embed_dim, embed_dim)
        self.to_key = nn.Linear(embed_dim, embed_dim)
        self.to_value = nn.Linear(embed_dim, embed_dim)
        self.output = nn.Linear(embed_dim, embed_dim)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Let every token attend to all tokens of its sequence.

        Args:
            x: (b, n, e), one row per token.
            mask: boolean or integers, (b, h, n, n) or with sizes of 1; 0 means "must not see". A
                token whose keys are all blocked gets zeros from every head.

        Returns:
            (b, n, e).

        Raises:
            TypeError: a dtype that does not fit.
            ValueError: shapes that do not fit.
        """
        check_batches(x, x, x, self.embed_dim, self.output.weight)
        b, n, e = x.shape
        h, d = self.num_heads, e // self.num_heads
        q = self.to_query(x).view(b, n, h, d).transpose(1, 2)  # (b, h, n, d)
        k = self.to_key(x).view(b, n, h, d).transpose(1, 2)    # (b, h, n, d)
        v = self.to_value(x).view(b, n, h, d).transpose(1, 2)  # (b, h, n, d)
        scores = q @ k.mT / math.sqrt(d)                       # (b, h, n, n)
        blocked = read_mask("mask", mask, "allowed", "(b, h, n, n)", b, h, n, n)
        weights = masked_softmax(scores, blocked)              # (b, h, n, n)
        mixed = (weights @ v).transpose(1, 2)                  # (b, n, h, d)
        return self.output(mixed.contiguous().view(b, n, e))   # (b, n, e)

    def load_from(self, reference: MultiheadAttention) -> None:
        """Copy the weights of ``reference``, so that both modules give the same results.

        Args:
            reference: a module with the same ``embed_dim`` and ``num_heads``.

        Raises:
            TypeError: ``reference`` is not a multi-head attention.
            ValueError: the settings of ``reference`` do not fit.
        """
        own = (self.to_query, self.to_key, self.to_value, self.output)
        theirs = projections(reference, self.embed_dim, self.num_heads)
        for linear, projection in zip(own, theirs, strict=True):
            copy_projection(linear, projection)


def _call(
    module: WideProjection, query: Tensor, key: Tensor, value: Tensor, blocked: Tensor | None
) -> Tensor:
    if not query is key is value:
        raise ValueError("query, key and value must be one tensor: this is self-attention alone")
    return module(query, None if blocked is None else ~blocked[:, None])


DESIGN = Design(
    module=WideProjection,
    build=WideProjection,
    call=_call,
    layout="(b, n, e)",
    mask="(b, h, n, n)",
    true_means="allowed",
    kind="self",
)
