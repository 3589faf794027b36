"""Scaled dot-product attention: a plain path, which is the formula, and a fused path."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from annotated_attention.checks import check_attention, expands
from annotated_attention.masks import block_future, masks_as_bias, merge_masks
from annotated_attention.quick import quick_weights

Score = Callable[[Tensor, Tensor], Tensor]


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    blocked: Tensor | None = None,
    bias: Tensor | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    scale: float | None = None,
    need_weights: bool = True,
    score: Score | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Mix the values, each query with its own weights: softmax(query keyᵀ · scale) value.

    Args:
        query: (..., n, d), one row per query.
        key: (..., m, d), one row per key.
        value: (..., m, d_v), one row per key; its width may differ.
        blocked: boolean, broadcastable to (..., n, m); True means "this query must not see this
            key", the opposite of ``torch.nn.functional.scaled_dot_product_attention``'s mask.
        bias: floating point of ``query``'s dtype, broadcastable to (..., n, m), added to the
            scaled scores; ``-inf`` blocks.
        is_causal: also hide key j from query i when j > i, both counted from the first.
        dropout_p: probability of zeroing a weight, from 0 to 1. Applied whenever it is above 0:
            pass 0 in evaluation.
        scale: factor on the scores; None means 1 / sqrt(d).
        need_weights: True also returns the weights, an (n, m) matrix for every leading index.
            False takes PyTorch's fused kernel, which for tensors of four axes need not hold it.
        score: computes the scores, (..., n, m), from ``query`` and ``key``, in place of
            ``scaled_scores``. The fused kernel knows no other scores than its own, so this
            goes step by step whatever ``need_weights`` says.

    Returns:
        The output, (..., n, d_v), and the weights after dropout, (..., n, m), or None. A query
        whose keys are all blocked has weights and output zero, and finite gradients, on both paths.

    Raises:
        ValueError: shapes that do not fit, or ``dropout_p`` outside [0, 1].
        TypeError: ``blocked`` is not boolean, or ``bias`` has another dtype than ``query``.

    Examples:
        >>> import torch
        >>> from annotated_attention import block_padding, scaled_dot_product_attention
        >>> query, key = torch.randn(2, 3, 6), torch.randn(2, 5, 6)
        >>> value = torch.randn(2, 5, 7)
        >>> blocked = block_padding(torch.tensor([5, 3]), m=5)[:, None]
        >>> output, weights = scaled_dot_product_attention(query, key, value, blocked=blocked)
        >>> output.shape, weights.shape
        (torch.Size([2, 3, 7]), torch.Size([2, 3, 5]))

    Source: Vaswani et al. (2017), section 3.2.1, equation 1.
    """
    check_attention(query, key, value, blocked, bias, dropout_p)
    return compute_attention(
        query,
        key,
        value,
        blocked=blocked,
        bias=bias,
        is_causal=is_causal,
        dropout_p=dropout_p,
        scale=scale,
        need_weights=need_weights,
        score=score,
    )


def compute_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    need_weights: bool,
    blocked: Tensor | None = None,
    bias: Tensor | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    score: Score | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,  # on the fused path: several heads of queries share one of keys
) -> tuple[Tensor, Tensor | None]:
    """Do what ``scaled_dot_product_attention`` does, with arguments that were checked."""
    n, m = query.size(-2), key.size(-2)
    fused = not need_weights and score is None
    # The causal mask is one more mask, and merges with those of the caller. Alone it stays a flag
    # for the kernel, which then needs no mask in memory.
    if is_causal and not (fused and blocked is None and bias is None):
        future = block_future(n, m, query.device)  # (n, m)
        blocked, bias = merge_masks(future, blocked, bias)
        is_causal = False
    if fused:
        added = masks_as_bias(blocked, bias, query.dtype)
        output = F.scaled_dot_product_attention(
            query, key, value, added, dropout_p, bool(is_causal), scale=scale, enable_gqa=enable_gqa
        )
        return output, None
    # A view would keep alive the whole tensor that it was cut from, until the backward pass.
    query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
    weights = None
    if score is None:
        weights = quick_weights(lambda: scaled_scores(query, key, scale), blocked, bias)
    if weights is None:
        # An ordinary call does not come here: without weights the fused kernel has computed the
        # output, with weights ``quick_weights`` has done lines one and two. These lines run for a
        # ``score`` of the caller's, a bias of 16 bits and no keys at all, under ``torch.compile``,
        # export and tracing, and under vmap and forward-mode derivatives.
        #
        # Line one: the scores, by the caller's function if there is one.
        scores = scaled_scores(query, key, scale) if score is None else score(query, key)
        if scores.shape[-2:] != (n, m):
            raise ValueError(
                f"score must return (..., n, m) = (..., {n}, {m}), got {tuple(scores.shape)}"
            )
        # Line two: the softmax with masks.
        weights = masked_softmax(scores, blocked, bias)  # (..., n, m)
    # Line three: the mix.
    output, weights = mix(weights, value, dropout_p)  # (..., n, d_v), (..., n, m)
    return output, weights if need_weights else None


def scaled_scores(query: Tensor, key: Tensor, scale: float | None = None) -> Tensor:
    """Score each key against each query: query keyᵀ · scale.

    Args:
        query: (..., n, d), one row per query.
        key: (..., m, d), one row per key.
        scale: factor on the scores; None means 1 / sqrt(d).

    Returns:
        The scores, (..., n, m). The query is scaled instead of them, because it is smaller.

    Examples:
        >>> import torch
        >>> from annotated_attention.attention import scaled_scores
        >>> query = torch.tensor([[1.0, 0, 2, 0], [0, 3, 0, 0], [0, 0, 0, 4]])
        >>> scaled_scores(query, torch.eye(4))
        tensor([[0.5000, 0.0000, 1.0000, 0.0000],
                [0.0000, 1.5000, 0.0000, 0.0000],
                [0.0000, 0.0000, 0.0000, 2.0000]])
    """
    scale = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    return (query * scale) @ key.mT  # (..., n, d) x (..., d, m) -> (..., n, m)


def masked_softmax(
    scores: Tensor, blocked: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    """Turn the scores into weights that sum to 1 over the keys a query may see.

    A fully masked row is a query whose keys are all blocked. The softmax of a row of ``-inf`` is
    NaN, and so is every gradient behind it. So the masks of such a row are lifted before the
    softmax, which keeps the numbers finite, and its weights are set to zero afterwards.

    Args:
        scores: (..., n, m), one row per query.
        blocked: boolean, broadcastable to (..., n, m); True means "must not see".
        bias: floating point, broadcastable to (..., n, m), added to the scores; ``-inf`` blocks.

    Returns:
        The weights, (..., n, m); zero, with gradients of zero, in fully masked rows.

    Examples:
        Two keys that may be seen share the weight; in the second row none may be:

        >>> import torch
        >>> from annotated_attention.attention import masked_softmax
        >>> blocked = torch.tensor([[False, True, False], [True, True, True]])
        >>> masked_softmax(torch.zeros(2, 3), blocked)
        tensor([[0.5000, 0.0000, 0.5000],
                [0.0000, 0.0000, 0.0000]])
    """
    dtype = scores.dtype
    added = masks_as_bias(blocked, bias, dtype)
    if added is None:
        return scores.softmax(-1)  # (..., n, m)
    if not expands(added.shape, scores.shape):  # as an override may hand them over
        raise ValueError(f"masks {tuple(added.shape)} must broadcast to {tuple(scores.shape)}")
    fully_masked = (added == -math.inf).all(-1, keepdim=True)  # (..., 1)
    # In 16 bits a score is lost beside a large number, so the sum has 32, as in the fused kernel.
    added = added.to(torch.promote_types(dtype, torch.float32))
    scores = scores + added.masked_fill(fully_masked, 0)   # (..., n, m)
    return (scores.softmax(-1) * ~fully_masked).to(dtype)  # (..., n, m)


def mix(weights: Tensor, value: Tensor, dropout_p: float = 0.0) -> tuple[Tensor, Tensor]:
    """Add up the values, each query with its own weights.

    Args:
        weights: (..., n, m), one row per query.
        value: (..., m, d_v), one row per key.
        dropout_p: probability of zeroing a weight; the others are divided by ``1 - dropout_p``.

    Returns:
        The output, (..., n, d_v), and the weights after dropout, (..., n, m).

    Examples:
        >>> import torch
        >>> from annotated_attention.attention import mix
        >>> weights = torch.tensor([[0.25, 0.75]])
        >>> value = torch.tensor([[0.0, 8.0, 4.0], [4.0, 0.0, 4.0]])
        >>> output, _ = mix(weights, value)
        >>> output
        tensor([[3., 2., 4.]])
    """
    weights = F.dropout(weights, dropout_p)  # (..., n, m)
    return weights @ value, weights          # (..., n, d_v), (..., n, m)
