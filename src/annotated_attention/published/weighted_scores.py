"""Attention with separate widths for keys and values, and factors on the scores."""


from torch import Tensor, nn

from annotated_attention.checks import check_dropout, check_settings, check_sizes
from annotated_attention.multihead import MultiheadAttention
from annotated_attention.published._parts import (
    attend_weighted,
    check_batches,
    copy_projection,
    projections,
)
from annotated_attention.published.design import Design


class WeightedScores(nn.Module):
    """Multi-head attention with any d_k and d_v, and a mask in which True means blocked.

    Head i computes ``softmax(A * (Q W_Q_i)(K W_K_i)^T / sqrt(d_k)) (V W_V_i)``. A factor of 0 in A
    makes the score 0, which does not block the key. Together the heads are h * d_v wide, and the
    output projection brings that width back to e. With h * d_k = h * d_v = e and without A, this is
    ordinary multi-head attention.

    The weights start with Xavier initialisation. The published version starts with tiny weights,
    with which every key gets nearly the same attention weight.

    Examples:
        >>> import torch
        >>> from annotated_attention.published import WeightedScores
        >>> queries, memory = torch.randn(2, 3, 24), torch.randn(2, 5, 24)
        >>> module = WeightedScores(embed_dim=24, key_dim=6, value_dim=7, num_heads=4)
        >>> module(queries, memory, memory, attention_weights=torch.rand(2, 4, 3, 5)).shape
        torch.Size([2, 3, 24])

    Source: the chapter "Published code", and Vaswani et al. (2017), section 3.2.2, which has d_k
    and d_v, too.
    """

    def __init__(
        self, embed_dim: int, key_dim: int, value_dim: int, num_heads: int, dropout: float = 0.1
    ) -> None:
        """Create the projections.

        Args:
            embed_dim: e, the width of all inputs and of the output.
            key_dim: d_k, the width of a query and a key in one head.
            value_dim: d_v, the width of a value in one head.
            num_heads: h, the number of heads.
            dropout: probability of zeroing a weight in training.

        Raises:
            TypeError: a setting of the wrong type.
            ValueError: a size below 1, or ``dropout`` outside [0, 1].
        """
        super().__init__()
        sizes = {"embed_dim": embed_dim, "key_dim": key_dim, "value_dim": value_dim}
        check_sizes({**sizes, "num_heads": num_heads})  # any number of heads fits any width
        check_dropout(dropout)
        self.embed_dim, self.num_heads, self.dropout = embed_dim, num_heads, dropout
        self.key_dim, self.value_dim = key_dim, value_dim
        self.to_query = nn.Linear(embed_dim, num_heads * key_dim)
        self.to_key = nn.Linear(embed_dim, num_heads * key_dim)
        self.to_value = nn.Linear(embed_dim, num_heads * value_dim)
        self.output = nn.Linear(num_heads * value_dim, embed_dim)
        for linear in (self.to_query, self.to_key, self.to_value, self.output):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

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
        q = self.to_query(queries).unflatten(-1, heads).permute(0, 2, 1, 3)  # (b, h, n, d)
        k = self.to_key(keys).unflatten(-1, heads).permute(0, 2, 3, 1)       # (b, h, d, m)
        v = self.to_value(values).unflatten(-1, heads).permute(0, 2, 1, 3)   # (b, h, m, d_v)
        dropout_p = self.dropout if self.training else 0.0
        mixed = attend_weighted(q, k, v, attention_weights, attention_mask, dropout_p)
        return self.output(mixed)  # (b, n, e)

    def load_from(self, reference: MultiheadAttention) -> None:
        """Copy the weights of ``reference``, so that both modules give the same results.

        Args:
            reference: a module with the same ``embed_dim`` and ``num_heads``.

        Raises:
            TypeError: ``reference`` is not a multi-head attention.
            ValueError: the settings of ``reference`` do not fit, or h * d_k or h * d_v is not e.
        """
        h, e = self.num_heads, self.embed_dim
        for name, width in (("key_dim", self.key_dim), ("value_dim", self.value_dim)):
            if h * width != e:
                raise ValueError(
                    f"num_heads * {name} ({h * width}) must be embed_dim ({e}): with other widths "
                    "this is another function than ordinary multi-head attention"
                )
        own = (self.to_query, self.to_key, self.to_value, self.output)
        for linear, projection in zip(own, projections(reference, e, h), strict=True):
            copy_projection(linear, projection)


def _build(embed_dim: int, num_heads: int) -> WeightedScores:
    check_settings({"embed_dim": embed_dim, "num_heads": num_heads}, 0.0, None)
    d = embed_dim // num_heads
    return WeightedScores(embed_dim, d, d, num_heads, dropout=0.0)


def _call(
    module: WeightedScores, query: Tensor, key: Tensor, value: Tensor, blocked: Tensor | None
) -> Tensor:
    for_heads = None if blocked is None else blocked[:, None]
    return module(query, key, value, attention_mask=for_heads)


DESIGN = Design(
    module=WeightedScores,
    build=_build,
    call=_call,
    layout="(b, n, e)",
    mask="(b, h, n, m)",
    true_means="blocked",
)
