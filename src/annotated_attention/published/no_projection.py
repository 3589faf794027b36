"""Heads without projections: each head attends with a slice of the embedding itself."""

import torch
from torch import Tensor, nn

from annotated_attention.checks import check_settings
from annotated_attention.multihead import MultiheadAttention
from annotated_attention.published._parts import attend_weighted, check_batches
from annotated_attention.published.design import Design


class NoProjection(nn.Module):
    """Attention between slices of the embedding, with a mask in which True means blocked.

    Head i sees features i * d to (i + 1) * d of query, key and value, without any projection. Only
    the output projection is learned. The module equals multi-head attention with identity matrices
    for W_Q, W_K and W_V, which ``as_multihead`` builds.

    Examples:
        >>> import torch
        >>> from annotated_attention.published import NoProjection
        >>> queries, memory = torch.randn(2, 3, 24), torch.randn(2, 5, 24)
        >>> NoProjection(embed_dim=24, num_heads=4)(queries, memory, memory).shape
        torch.Size([2, 3, 24])

    Source: the chapter "Published code".
    """

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.1) -> None:
        """Create the output projection.

        Args:
            embed_dim: e, the width of all inputs and of the output.
            num_heads: h; must divide ``embed_dim``. Each slice is d = e / h wide.
            dropout: probability of zeroing a weight in training.

        Raises:
            TypeError: a setting of the wrong type.
            ValueError: a size below 1, ``embed_dim`` not divisible by ``num_heads``, or
                ``dropout`` outside [0, 1].
        """
        super().__init__()
        check_settings({"embed_dim": embed_dim, "num_heads": num_heads}, dropout, None)
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.output = nn.Linear(embed_dim, embed_dim)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)

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
            queries: (b, n, e), one row per query.
            keys: (b, m, e), one row per key.
            values: (b, m, e), one row per key.
            attention_mask: boolean, (b, h, n, m) or with sizes of 1, or None; True means "must not
                see". A query whose keys are all blocked gets zeros from every head.
            attention_weights: floating point, (b, h, n, m) or with sizes of 1, or None; multiplies
                the scaled scores.

        Returns:
            (b, n, e).

        Raises:
            TypeError: a dtype that does not fit.
            ValueError: shapes that do not fit.
        """
        check_batches(queries, keys, values, self.embed_dim, self.output.weight)
        heads = (self.num_heads, -1)
        q = queries.unflatten(-1, heads).permute(0, 2, 1, 3)  # (b, h, n, d)
        k = keys.unflatten(-1, heads).permute(0, 2, 3, 1)     # (b, h, d, m)
        v = values.unflatten(-1, heads).permute(0, 2, 1, 3)   # (b, h, m, d)
        dropout_p = self.dropout if self.training else 0.0
        mixed = attend_weighted(q, k, v, attention_weights, attention_mask, dropout_p)
        return self.output(mixed)  # (b, n, e)

    def as_multihead(self) -> MultiheadAttention:
        """Build the multi-head attention that this module equals.

        Returns:
            A batch-first module with identity projections, of the same dtype and device.
        """
        like = self.output.weight
        full = MultiheadAttention(
            self.embed_dim, self.num_heads, batch_first=True, device=like.device, dtype=like.dtype
        )
        with torch.no_grad():
            for part in full.get_parameter("in_proj_weight").chunk(3):
                nn.init.eye_(part)
            full.out_proj.load_state_dict(self.output.state_dict())
        return full


def _build(embed_dim: int, num_heads: int) -> NoProjection:
    return NoProjection(embed_dim, num_heads, dropout=0.0)


def _call(
    module: NoProjection, query: Tensor, key: Tensor, value: Tensor, blocked: Tensor | None
) -> Tensor:
    each_head = None if blocked is None else blocked[:, None]
    return module(query, key, value, attention_mask=each_head)


DESIGN = Design(
    module=NoProjection,
    build=_build,
    call=_call,
    layout="(b, n, e)",
    mask="(b, h, n, m)",
    true_means="blocked",
)
