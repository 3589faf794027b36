"""One module per head: a list of h small attentions whose outputs are concatenated."""

import math

import torch
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


class Head(nn.Module):
    """One head: three projections from e to d, and attention over (b, n, d) with ``bmm``."""

    def __init__(self, embed_dim: int, head_dim: int) -> None:
        """Create the projections.

        Args:
            embed_dim: e, the width of the input.
            head_dim: d, the width of the output.
        """
        super().__init__()
        self.to_query = nn.Linear(embed_dim, head_dim)
        self.to_key = nn.Linear(embed_dim, head_dim)
        self.to_value = nn.Linear(embed_dim, head_dim)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, blocked: Tensor | None) -> Tensor:
        """Attend with this head.

        Args:
            query: (b, n, e), one row per query.
            key: (b, m, e), one row per key.
            value: (b, m, e), one row per key.
            blocked: boolean, (b, n, m) or with sizes of 1, or None.

        Returns:
            (b, n, d).
        """
        q, k, v = self.to_query(query), self.to_key(key), self.to_value(value)
        scores = torch.bmm(q, k.mT) / math.sqrt(q.size(-1))  # (b, n, m)
        weights = masked_softmax(scores, blocked)            # (b, n, m)
        return torch.bmm(weights, v)                         # (b, n, d)


class ModulePerHead(nn.Module):
    """Multi-head attention as a list of heads: batch-first, with a mask in which 0 means blocked.

    This is the most direct reading of the formula. It makes h times as many calls as one wide
    matrix needs. The list has to be an ``nn.ModuleList``: a plain one hides the heads from the
    optimizer and from ``state_dict``.

    Examples:
        >>> import torch
        >>> from annotated_attention.published import ModulePerHead
        >>> query, memory = torch.randn(2, 3, 24), torch.randn(2, 5, 24)
        >>> ModulePerHead(embed_dim=24, num_heads=4)(query, memory, memory).shape
        torch.Size([2, 3, 24])

    Source: the chapter "Published code", and Vaswani et al. (2017), section 3.2.2.
    """

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        """Create the heads.

        Args:
            embed_dim: e, the width of all inputs and of the output.
            num_heads: h; must divide ``embed_dim``. Each head is d = e / h wide.

        Raises:
            TypeError: a size is not an integer.
            ValueError: a size is below 1, or ``embed_dim`` is not divisible by ``num_heads``.
        """
        super().__init__()
        check_settings({"embed_dim": embed_dim, "num_heads": num_heads}, 0.0, None)
        self.embed_dim, self.num_heads = embed_dim, num_heads
        head_dim = embed_dim // num_heads
        self.heads = nn.ModuleList(Head(embed_dim, head_dim) for _ in range(num_heads))
        self.output = nn.Linear(embed_dim, embed_dim)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Attend with every head, one after the other.

        Args:
            query: (b, n, e), one row per query.
            key: (b, m, e), one row per key.
            value: (b, m, e), one row per key.
            mask: boolean or integers, (b, n, m) or with sizes of 1; 0 means "must not see". A
                query whose keys are all blocked gets zeros from every head.

        Returns:
            (b, n, e).

        Raises:
            TypeError: a dtype that does not fit.
            ValueError: shapes that do not fit.
        """
        check_batches(query, key, value, self.embed_dim, self.output.weight)
        b, n, m = *query.shape[:2], key.size(1)
        blocked = read_mask("mask", mask, "allowed", "(b, n, m)", b, n, m)
        heads = [head(query, key, value, blocked) for head in self.heads]  # (b, n, d)
        return self.output(torch.cat(heads, -1))                           # (b, n, e)

    def load_from(self, reference: MultiheadAttention) -> None:
        """Copy the weights of ``reference``, so that both modules give the same results.

        Args:
            reference: a module with the same ``embed_dim`` and ``num_heads``.

        Raises:
            TypeError: ``reference`` is not a multi-head attention.
            ValueError: the settings of ``reference`` do not fit.
        """
        *inner, outer = projections(reference, self.embed_dim, self.num_heads)
        for name, (weight, bias) in zip(("to_query", "to_key", "to_value"), inner, strict=True):
            weights = weight.chunk(self.num_heads)  # a run of d rows for each head
            biases = [None] * self.num_heads if bias is None else bias.chunk(self.num_heads)
            for head, own, own_bias in zip(self.heads, weights, biases, strict=True):
                copy_projection(getattr(head, name), (own, own_bias))
        copy_projection(self.output, outer)


def _call(
    module: ModulePerHead, query: Tensor, key: Tensor, value: Tensor, blocked: Tensor | None
) -> Tensor:
    return module(query, key, value, None if blocked is None else ~blocked)


DESIGN = Design(
    module=ModulePerHead,
    build=ModulePerHead,
    call=_call,
    layout="(b, n, e)",
    mask="(b, n, m)",
    true_means="allowed",
)
