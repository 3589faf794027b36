"""Grouped-query attention: several heads of queries share one head of keys and values."""

from typing import Any

import torch
from torch import Tensor, nn

from annotated_attention.attention import compute_attention
from annotated_attention.checks import check_settings, check_sizes
from annotated_attention.multihead import MultiheadAttention


def repeat_heads(x: Tensor, num_heads: int) -> Tensor:
    """Give every head of queries its own copy of the keys or values that its group shares.

    Args:
        x: (..., g, m, d), one slice per head of keys or values.
        num_heads: h, the number of heads of queries; g must divide it.

    Returns:
        (..., h, m, d): each head h / g times in a row, so that head i is head i // (h / g) of
        ``x``. Repeating all heads one after the other, as ``Tensor.repeat`` does, gives the same
        shape and the wrong groups.

    Examples:
        Two heads of keys for four heads of queries:

        >>> import torch
        >>> from annotated_attention.modern import repeat_heads
        >>> x = torch.tensor([[[10, 11]], [[20, 21]]])
        >>> repeat_heads(x, num_heads=4).tolist()
        [[[10, 11]], [[10, 11]], [[20, 21]], [[20, 21]]]

    Source: Ainslie et al. (2023), section 2.2.
    """
    if not x.size(-3) or num_heads % x.size(-3):
        raise ValueError(
            f"num_heads ({num_heads}) must be divisible by the heads of x ({x.size(-3)})"
        )
    return x.repeat_interleave(num_heads // x.size(-3), -3)  # (..., num_heads, m, d)


class GroupedQueryAttention(MultiheadAttention):
    """Let every group of h / g heads of queries share one head of keys and values.

    Head i of the queries attends to head i // (h / g) of the keys and values, of which there are
    g, ``num_kv_heads``. One head for all is multi-query attention; as many as there are heads of
    queries is the final class itself, with the same parameters. Everything else is as there: the
    masks, the results, the names in a ``state_dict``. ``W_K`` and ``W_V`` have g * d rows, and so
    many numbers each a cache keeps for a token.

    ``attend`` is given keys and values of g heads, so whoever caches them in an override keeps no
    copy. ``score`` is given h heads of each.

    Examples:
        >>> import torch
        >>> from annotated_attention.modern import GroupedQueryAttention
        >>> attention = GroupedQueryAttention(24, 4, num_kv_heads=2, batch_first=True)
        >>> attention.in_proj_weight.shape
        torch.Size([48, 24])
        >>> x = torch.randn(2, 5, 24)
        >>> output, weights = attention(x, x, x, average_attn_weights=False, is_causal=True)
        >>> output.shape, weights.shape
        (torch.Size([2, 5, 24]), torch.Size([2, 4, 5, 5]))

    Source: Ainslie et al. (2023), section 2.2; Shazeer (2019), section 3, for a single head.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        num_kv_heads: int,
        *,
        dropout: float = 0.0,
        bias: bool = True,
        batch_first: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Create the parameters; the arguments are those of ``MultiheadAttention`` but for one.

        Args:
            num_kv_heads: g, the number of heads of keys and values; must divide ``num_heads``.
        """
        options: Any = {"batch_first": batch_first, "device": device, "dtype": dtype}
        super().__init__(embed_dim, num_heads, dropout, bias, **options)
        check_settings({"num_heads": num_heads, "num_kv_heads": num_kv_heads})
        self.num_kv_heads = num_kv_heads
        # The final class has drawn e rows for W_K, and as many for W_V; g * d of each are needed.
        rows = embed_dim + 2 * num_kv_heads * self.head_dim
        for name in ("in_proj_weight", "in_proj_bias"):
            if (drawn := getattr(self, name)) is not None:
                setattr(self, name, nn.Parameter(drawn.detach()[:rows].clone()))

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, *, need_weights: bool, **masks: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Attend within each head, to the keys and values of its group.

        Args:
            q: (b, h, n, d), the projected queries of each head.
            k: (b, g, m, d), the projected keys of each group.
            v: (b, g, m, d), the projected values of each group.
            need_weights: as in ``MultiheadAttention.attend``; so are the masks and the results.
        """
        if self.num_kv_heads < self.num_heads:
            # Where nobody asks for the weights, PyTorch's kernel finds the keys of each group
            # itself, and nothing is repeated in memory. It always computes the usual scores.
            usual = "score" not in self.__dict__ and type(self).score is MultiheadAttention.score
            if usual and not need_weights:
                masks["dropout_p"] = self.dropout if self.training else 0.0
                return compute_attention(q, k, v, need_weights=False, enable_gqa=True, **masks)
            # Otherwise every head gets a copy of the keys and values that its group shares.
            k, v = (repeat_heads(x, self.num_heads) for x in (k, v))  # (b, h, m, d)
        return super().attend(q, k, v, need_weights=need_weights, **masks)


def group_heads(module: MultiheadAttention, num_kv_heads: int) -> GroupedQueryAttention:
    """Make grouped heads of keys and values from single ones, by averaging those of a group.

    The new module computes something else, though its matrices are the nearest ones. It needs some
    training before it is as good as the old one, and much less than a new model.

    Args:
        module: of one of the two classes itself, with no width of its own for keys or values, and
            no appended keys.
        num_kv_heads: g, how many heads of keys and values to keep; must divide those of ``module``.

    Returns:
        A new module with the settings, dtype and device of ``module``, and the same queries and
        output. The rows of W_K and W_V, and their biases, are the means over each group.

    Examples:
        >>> import torch
        >>> from annotated_attention import MultiheadAttention
        >>> from annotated_attention.modern import group_heads
        >>> single = MultiheadAttention(24, 4, bias=False)
        >>> grouped = group_heads(single, num_kv_heads=2)
        >>> first, second = single.in_proj_weight[24:48].split(6)[:2]
        >>> torch.testing.assert_close(grouped.in_proj_weight[24:30], (first + second) / 2)

    Source: Ainslie et al. (2023), section 2.1.
    """
    if type(module) not in (MultiheadAttention, GroupedQueryAttention):  # a subclass may do more
        raise TypeError(
            f"module must be a MultiheadAttention or GroupedQueryAttention itself, "
            f"got {type(module).__name__}"
        )
    if module.in_proj_weight is None or module.bias_k is not None or module.add_zero_attn:
        raise ValueError("module must have no kdim or vdim of its own, and append no keys")
    check_sizes({"num_kv_heads": num_kv_heads})
    if module.num_kv_heads % num_kv_heads:
        raise ValueError(
            f"the heads of module's keys ({module.num_kv_heads}) must be divisible by "
            f"num_kv_heads ({num_kv_heads})"
        )
    e, weight, state = module.embed_dim, module.in_proj_weight, module.state_dict()
    grouped = GroupedQueryAttention(
        e,
        module.num_heads,
        num_kv_heads,
        dropout=module.dropout,
        bias="in_proj_bias" in state,
        batch_first=module.batch_first,
        device=weight.device,
        dtype=weight.dtype,
    )
    heads = (-1, module.num_kv_heads // num_kv_heads, module.head_dim)
    for name in state.keys() & {"in_proj_weight", "in_proj_bias"}:  # W_Q stands above W_K and W_V
        rows = state[name]
        averaged = rows[e:].unflatten(0, heads).mean(1).flatten(0, 1)
        state[name] = torch.cat([rows[:e], averaged])
    grouped.load_state_dict(state)
    return grouped.train(module.training)
