"""Grouped-query attention: several heads of queries share one head of keys and values."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention.checks import check_sizes
from annotated_attention.masks import block_future, masks_as_bias, merge_masks
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

    Raises:
        ValueError: ``x`` has fewer than three axes, or its heads do not divide ``num_heads``.

    Examples:
        Two heads of keys for four heads of queries:

        >>> import torch
        >>> from annotated_attention.modern import repeat_heads
        >>> x = torch.tensor([[[10, 11]], [[20, 21]]])
        >>> repeat_heads(x, num_heads=4).tolist()
        [[[10, 11]], [[10, 11]], [[20, 21]], [[20, 21]]]

    Source: Ainslie et al. (2023), section 2.2.
    """
    if x.dim() < 3:
        raise ValueError(f"x must have shape (..., g, m, d), got {tuple(x.shape)}")
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
    arguments, the masks, the results, the names in a ``state_dict``. ``W_K`` and ``W_V`` have
    g * d rows, and so many numbers each a cache keeps for a token.

    ``attend`` is given keys and values of g heads, so whoever caches them in an override, as
    ``attend`` allows, keeps no copy. ``score`` is given h heads of each.

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

    def __init__(self, embed_dim: int, num_heads: int, num_kv_heads: int, **options: Any) -> None:
        """Create the parameters.

        Args:
            embed_dim: e, the width of the queries and of the output.
            num_heads: h, the number of heads of queries; must divide ``embed_dim``.
            num_kv_heads: g, the number of heads of keys and values; must divide ``num_heads``.
            **options: as in ``MultiheadAttention``: ``dropout``, ``bias``, ``batch_first``, ...

        Raises:
            TypeError: a setting of the wrong type.
            ValueError: a size below 1 or one that does not divide as it must.
        """
        super().__init__(embed_dim, num_heads, **options)
        check_sizes({"num_kv_heads": num_kv_heads})
        if num_heads % num_kv_heads:
            raise ValueError(
                f"num_heads ({num_heads}) must be divisible by num_kv_heads ({num_kv_heads})"
            )
        self.num_kv_heads, kv = num_kv_heads, num_kv_heads * self.head_dim
        # The final class has drawn h heads of each kind. The first rows of W_K and W_V stay.
        rows = dict.fromkeys(("in_proj_weight", "in_proj_bias"), embed_dim + 2 * kv)
        rows |= dict.fromkeys(("k_proj_weight", "v_proj_weight"), kv)
        for name, count in rows.items():
            if (drawn := getattr(self, name)) is not None:
                setattr(self, name, nn.Parameter(drawn.detach()[:count].clone()))
        for name in ("bias_k", "bias_v"):
            if (drawn := getattr(self, name)) is not None:
                setattr(self, name, nn.Parameter(drawn.detach()[..., :kv].clone()))

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, *, need_weights: bool, **masks: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Attend within each head, to the keys and values of its group.

        Args:
            q: (b, h, n, d), the projected queries of each head.
            k: (b, g, m, d), the projected keys of each group; the appended ones come last.
            v: (b, g, m, d), the projected values of each group; the appended ones come last.
            need_weights: whether the weights are asked for.
            **masks: ``blocked``, ``bias`` and ``is_causal``, as in ``MultiheadAttention.attend``.

        Returns:
            The heads' outputs, (b, h, n, d), and the weights after dropout, (b, h, n, m), or None.
        """
        # Where nobody asks for the weights, PyTorch's kernel finds the keys of each group itself.
        # It knows no other scores than its own.
        usual = "score" not in self.__dict__ and type(self).score is MultiheadAttention.score
        if usual and not need_weights:
            dropout_p = self.dropout if self.training else 0.0
            return _fused_for_speed(q, k, v, dropout_p, **masks), None
        # Otherwise every head gets a copy of the keys and values that its group shares.
        k, v = (repeat_heads(x, self.num_heads) for x in (k, v))  # (b, h, m, d)
        return super().attend(q, k, v, need_weights=need_weights, **masks)

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """Make queries, e wide, and keys and values, g * d wide, in the layout that was given."""
        # W_Q has e rows. W_K and W_V have d rows for each head of keys and values.
        kv = self.num_kv_heads * self.head_dim
        widths = (self.embed_dim, kv, kv)
        matrices: Any = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        if self.in_proj_weight is not None:
            matrices = self.in_proj_weight.split(widths)
        biases: Any = (None, None, None)
        if self.in_proj_bias is not None:
            biases = self.in_proj_bias.to(query.dtype).split(widths)
        return tuple(map(F.linear, (query, key, value), matrices, biases))


def group_heads(module: MultiheadAttention, num_kv_heads: int) -> GroupedQueryAttention:
    """Make grouped heads of keys and values from single ones, by averaging those of a group.

    The new module computes something else, though its matrices are the nearest ones. It needs some
    training before it is as good as the old one, and much less than a new model.

    Args:
        module: with a head of keys and values for each head of queries, or for each smaller group.
        num_kv_heads: g, how many heads of keys and values to keep; must divide those of ``module``.

    Returns:
        A new module with the settings, dtype and device of ``module``, and the same queries and
        output. The rows of W_K and W_V, and their biases, are the means over each group.

    Raises:
        TypeError: ``module`` is of another class, or a size is not an integer.
        ValueError: ``num_kv_heads`` does not divide the heads of ``module``.

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
    check_sizes({"num_kv_heads": num_kv_heads})
    if module.num_kv_heads % num_kv_heads:
        raise ValueError(
            f"the heads of module's keys ({module.num_kv_heads}) must be divisible by "
            f"num_kv_heads ({num_kv_heads})"
        )
    weight, (bias, k) = module.out_proj.weight, (module.in_proj_bias, module.bias_k)
    grouped = GroupedQueryAttention(
        module.embed_dim, module.num_heads, num_kv_heads, dropout=module.dropout,
        bias=bias is not None, add_bias_kv=k is not None, add_zero_attn=module.add_zero_attn,
        kdim=module.kdim, vdim=module.vdim, batch_first=module.batch_first,
        device=weight.device, dtype=weight.dtype,
    )  # fmt: skip
    size = (module.num_kv_heads // num_kv_heads, module.head_dim)
    state = {
        name: _average(name, x, module.embed_dim, size) for name, x in module.state_dict().items()
    }
    grouped.load_state_dict(state)
    return grouped.train(module.training)


def _average(name: str, x: Tensor, e: int, size: tuple[int, int]) -> Tensor:
    """Average the rows of a parameter over groups of ``size``: so many heads of so many rows."""
    if name in ("in_proj_weight", "in_proj_bias"):  # W_Q stands above W_K and W_V
        return torch.cat([x[:e], _average("", x[e:], e, size)])
    if name.startswith(("out_proj", "q_proj")):
        return x
    rows = x.flatten() if name in ("bias_k", "bias_v") else x
    means = rows.unflatten(0, (-1, *size)).mean(1).flatten(0, 1)
    return means.view(1, 1, -1) if name in ("bias_k", "bias_v") else means


def _fused_for_speed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float,
    *,
    blocked: Tensor | None,
    bias: Tensor | None,
    is_causal: bool,
) -> Tensor:
    """Let PyTorch's kernel find the keys of each group, so that nothing is repeated in memory."""
    if is_causal and not (blocked is None and bias is None):
        # Not every kernel takes its causal flag together with a mask.
        future = block_future(q.size(-2), k.size(-2), q.device)  # (n, m)
        (blocked, bias), is_causal = merge_masks(future, blocked, bias), False
    added = masks_as_bias(blocked, bias, q.dtype)
    return F.scaled_dot_product_attention(
        q, k, v, added, dropout_p, is_causal, enable_gqa=True
    )  # (b, h, n, d)
