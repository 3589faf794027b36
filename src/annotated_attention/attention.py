"""Scaled dot-product attention: a readable path that returns weights, and a fused path."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor


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
        is_causal: also hide key j from query i when j > i (aligned top left).
        dropout_p: probability of zeroing a weight, from 0 to 1. Applied whenever it is above 0:
            pass 0 in evaluation.
        scale: factor on the scores; None means 1 / sqrt(d).
        need_weights: True computes step by step and returns the weights, an (n, m) matrix for
            every leading index. False takes PyTorch's fused kernel, which never holds that matrix.

    Returns:
        The output, (..., n, d_v), and the weights after dropout, (..., n, m), or None. A query
        whose keys are all blocked has weights and output zero, and finite gradients, on both paths.

    Raises:
        ValueError: shapes that do not fit, or ``dropout_p`` outside [0, 1].
        TypeError: ``blocked`` is not boolean, or ``bias`` has another dtype than ``query``.

    Source: Vaswani et al. (2017), section 3.2.1, equation 1.
    """
    _check(query, key, value, blocked, bias, dropout_p)
    scale = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    if need_weights:
        blocked = _with_future(blocked, query, key) if is_causal else blocked
        return _readable(query, key, value, blocked, bias, dropout_p, scale)
    return _fused(query, key, value, blocked, bias, is_causal, dropout_p, scale), None


def _readable(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    blocked: Tensor | None,
    bias: Tensor | None,
    dropout_p: float,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Compute attention the way the formula reads; the arguments are already checked."""
    scores = (query * scale) @ key.mT  # (..., n, d) x (..., d, m) -> (..., n, m)
    if bias is not None:
        scores = scores + bias  # (..., n, m)
        hidden = bias == -math.inf
        blocked = hidden if blocked is None else hidden | blocked
    if blocked is None:
        weights = scores.softmax(-1)  # (..., n, m)
    else:
        # A row of -inf would make the softmax, and every gradient behind it, NaN. Such a row is
        # made harmless before the softmax and zero after it.
        nothing_left = blocked.all(-1, keepdim=True)
        scores = scores.masked_fill(blocked, -math.inf)            # (..., n, m)
        weights = scores.masked_fill(nothing_left, 0).softmax(-1)  # (..., n, m)
        weights = weights.masked_fill(nothing_left, 0)             # (..., n, m)
    weights = F.dropout(weights, dropout_p)                        # (..., n, m)
    return weights @ value, weights                                # (..., n, d_v), (..., n, m)


def _fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    blocked: Tensor | None,
    bias: Tensor | None,
    is_causal: bool,
    dropout_p: float,
    scale: float,
) -> Tensor:
    """Compute the same through PyTorch's kernel, whose boolean mask means the opposite of ours."""
    if is_causal and not (blocked is None and bias is None):
        # Not every kernel takes its causal flag together with a mask.
        blocked, is_causal = _with_future(blocked, query, key), False
    attn_mask = None if blocked is None else ~blocked
    if bias is not None:
        attn_mask = bias if blocked is None else bias.masked_fill(blocked, -math.inf)
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale
    )  # (..., n, d_v)


def _with_future(blocked: Tensor | None, query: Tensor, key: Tensor) -> Tensor:
    """Block the keys behind each query's own position as well."""
    n, m = query.size(-2), key.size(-2)
    future = torch.ones(n, m, dtype=torch.bool, device=query.device).triu(1)  # (n, m)
    return future if blocked is None else future | blocked


def _check(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    blocked: Tensor | None,
    bias: Tensor | None,
    dropout_p: float,
) -> None:
    """Refuse shapes, dtypes and settings that do not fit; values are never looked at."""
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.dim() < 2:
            raise ValueError(f"{name} must have at least two axes, got shape {tuple(x.shape)}")
    if key.size(-1) != query.size(-1):
        raise ValueError(
            f"key's width ({key.size(-1)}) must equal query's width ({query.size(-1)})"
        )
    if value.size(-2) != key.size(-2):
        raise ValueError(
            f"value's length ({value.size(-2)}) must equal key's length ({key.size(-2)})"
        )
    if not 0 <= dropout_p <= 1:
        raise ValueError(f"dropout_p ({dropout_p}) must be between 0 and 1")
    if blocked is not None and blocked.dtype != torch.bool:
        raise TypeError(f"blocked must be boolean, got {blocked.dtype}; floats go in bias")
    if bias is not None and bias.dtype != query.dtype:
        raise TypeError(f"bias ({bias.dtype}) must have query's dtype ({query.dtype})")
    try:
        batch = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    except RuntimeError:
        raise ValueError(
            f"the leading axes of query {tuple(query.shape)}, key {tuple(key.shape)} and value "
            f"{tuple(value.shape)} must broadcast"
        ) from None
    fits = (*batch, query.size(-2), key.size(-2))
    for name, mask in (("blocked", blocked), ("bias", bias)):
        if mask is not None and not _broadcasts(mask.shape, fits):
            raise ValueError(f"{name} {tuple(mask.shape)} must broadcast to (..., n, m) = {fits}")


def _broadcasts(shape: torch.Size, target: tuple[int, ...]) -> bool:
    """Tell whether a tensor of ``shape`` can be expanded to ``target``."""
    ends = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(have in (1, want) for have, want in ends)
