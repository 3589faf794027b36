"""Sequence-first attention with a method for the scores that subclasses can override."""

import math

import torch
import torch.nn.functional as F
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


class SequenceFirst(nn.Module):
    """Multi-head attention on (n, b, e), called by keyword, with a mask in which 1 means allowed.

    Override ``get_scores`` for other scores, such as those of relative attention.

    Examples:
        >>> import torch
        >>> from annotated_attention.published import SequenceFirst
        >>> module = SequenceFirst(4, 24)
        >>> query, memory = torch.randn(3, 2, 24), torch.randn(5, 2, 24)
        >>> module(query=query, key=memory, value=memory).shape
        torch.Size([3, 2, 24])

    Source: the chapter "Published code", and Vaswani et al. (2017), section 3.2.2.
    """

    def __init__(
        self,
        num_heads: int,
        embed_dim: int,
        dropout: float = 0.1,
        bias: bool = True,
    ) -> None:
        """Create the projections.

        Args:
            num_heads: h; must divide ``embed_dim``. Each head is d = e / h wide.
            embed_dim: e, the width of all inputs and of the output.
            dropout: probability of zeroing a weight in training.
            bias: whether the query and key projections have one; value and output always do.

        Raises:
            TypeError: a setting of the wrong type.
            ValueError: a size below 1, ``embed_dim`` not divisible by ``num_heads``, or
                ``dropout`` outside [0, 1].
        """
        super().__init__()
        check_settings({"embed_dim": embed_dim, "num_heads": num_heads}, dropout, None)
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.dropout, self.bias = dropout, bias
        self.query = nn.Linear(embed_dim, embed_dim, bias)
        self.key = nn.Linear(embed_dim, embed_dim, bias)
        self.value = nn.Linear(embed_dim, embed_dim)
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
        """Attend with all heads at once.

        Args:
            query: (n, b, e), one row per query.
            key: (m, b, e), one row per key.
            value: (m, b, e), one row per key.
            mask: boolean or integers, (n, m, b), where n and b may be 1; 0 means "must not see". A
                query whose keys are all blocked gets zeros from every head.

        Returns:
            (n, b, e).

        Raises:
            TypeError: a dtype that does not fit.
            ValueError: shapes that do not fit.
        """
        check_batches(query, key, value, self.embed_dim, self.output.weight, batch_first=False)
        projected = self.query(query), self.key(key), self.value(value)
        q, k, v = (x.unflatten(-1, (self.num_heads, -1)) for x in projected)
        scores = self.get_scores(q, k) / math.sqrt(self.head_dim)  # (n, m, b, h)
        n, m, b, _ = scores.shape
        blocked = read_mask("mask", mask, "allowed", "(n, m, b)", n, m, b)
        if blocked is not None:
            blocked = blocked[..., None].transpose(1, -1)
        weights = masked_softmax(scores.transpose(1, -1), blocked)  # (n, h, b, m)
        weights = weights.transpose(1, -1)                          # (n, m, b, h)
        weights = F.dropout(weights, self.dropout, self.training)  # (n, m, b, h)
        mixed = torch.einsum("nmbh,mbhd->nbhd", weights, v)        # (n, b, h, d)
        return self.output(mixed.flatten(2))                       # (n, b, e)

    def load_from(self, reference: MultiheadAttention) -> None:
        """Copy the weights of ``reference``, so that both modules give the same results.

        Args:
            reference: a module with the same ``embed_dim`` and ``num_heads``.

        Raises:
            TypeError: ``reference`` is not a multi-head attention.
            ValueError: the settings of ``reference`` do not fit, or it has biases and this module's
                query and key projections have none.
        """
        own = (self.query, self.key, self.value, self.output)
        theirs = projections(reference, self.embed_dim, self.num_heads, self.bias)
        for linear, projection in zip(own, theirs, strict=True):
            copy_projection(linear, projection)


def _build(embed_dim: int, num_heads: int) -> SequenceFirst:
    return SequenceFirst(num_heads, embed_dim, dropout=0.0)


def _call(
    module: SequenceFirst, query: Tensor, key: Tensor, value: Tensor, blocked: Tensor | None
) -> Tensor:
    q, k, v = (x.transpose(0, 1) for x in (query, key, value))
    allowed = None if blocked is None else ~blocked.permute(1, 2, 0)
    return module(query=q, key=k, value=v, mask=allowed).transpose(0, 1)


DESIGN = Design(
    module=SequenceFirst,
    build=_build,
    call=_call,
    layout="(n, b, e)",
    mask="(n, m, b)",
    true_means="allowed",
)
