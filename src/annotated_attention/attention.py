"""Scaled dot-product attention: a readable path that returns weights, and a fused path."""

import math
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from annotated_attention.masks import block_future, merge_masks


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
    score: Callable[[Tensor, Tensor], Tensor] | None = None,
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
        score: computes the scores, (..., n, m), from ``query`` and ``key``, in place of
            ``scaled_scores``. The fused kernel knows no other scores than its own, so this
            goes step by step whatever ``need_weights`` says.

    Returns:
        The output, (..., n, d_v), and the weights after dropout, (..., n, m), or None. A query
        whose keys are all blocked has weights and output zero, and finite gradients, on both paths.

    Raises:
        ValueError: shapes that do not fit, or ``dropout_p`` outside [0, 1].
        TypeError: ``blocked`` is not boolean, or ``bias`` has another dtype than ``query``.

    Source: Vaswani et al. (2017), section 3.2.1, equation 1.
    """
    _check(query, key, value, dropout_p)
    _check_masks(query, key, value, blocked, bias)
    if need_weights or score is not None:
        # The products need each in one piece. Left to them, key.mT is copied number by number, and
        # of views that one sample allows, the backward pass keeps what lies between them, too.
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
        scores = (score or partial(scaled_scores, scale=scale))(query, key)
        _check_scores(scores, query, key)
        added = _added(query, key, blocked, bias, is_causal)
        masked = blocked is not None or bias is not None
        output, weights = _readable(scores, value, added, dropout_p, masked, score is None)
        return output, weights if need_weights else None
    return _fused(query, key, value, blocked, bias, is_causal, dropout_p, scale), None


def scaled_scores(query: Tensor, key: Tensor, scale: float | None = None) -> Tensor:
    """Score each key against each query: query keyᵀ · scale.

    Args:
        query: (..., n, d), one row per query.
        key: (..., m, d), one row per key.
        scale: None means 1 / sqrt(d).

    Returns:
        (..., n, m). The scale goes into the query, which is smaller than the scores.
    """
    scale = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    return (query * scale) @ key.mT  # (..., n, d) x (..., d, m) -> (..., n, m)


def _readable(
    scores: Tensor, value: Tensor, added: Tensor | None, dropout_p: float, masked: bool, ours: bool
) -> tuple[Tensor, Tensor]:
    """Compute attention from its scores, the way the formula reads."""
    if added is None:
        # In place where no gradients are taken; scores from outside are not ours to write over.
        weights = _softmax_in_place(scores) if ours else scores.softmax(-1)  # (..., n, m)
    elif not masked:  # only the future is hidden, and that leaves key 0 to every query
        weights = (scores + added).softmax(-1)  # (..., n, m)
    else:
        # A row of -inf would make the softmax, and every gradient behind it, NaN. Such a row is
        # found in the mask, made harmless before the softmax, and zero after it.
        nothing_left = (added == -math.inf).all(-1, keepdim=True)  # (..., 1)
        scores = scores + added.masked_fill(nothing_left, 0)       # (..., n, m)
        weights = scores.softmax(-1) * ~nothing_left               # (..., n, m)
    weights = F.dropout(weights, dropout_p)                        # (..., n, m)
    return weights @ value, weights                                # (..., n, d_v), (..., n, m)


def _softmax_in_place(scores: Tensor) -> Tensor:
    """Return scores.softmax(-1), written over the scores where nothing can need them again.

    That takes half the memory, and the time in which a system hands out the other half.
    """
    if not (torch.is_grad_enabled() or torch.compiler.is_compiling()):
        try:
            # Autocast has the softmax return another dtype.
            if not torch.is_autocast_enabled(scores.device.type):
                return torch.softmax(scores, -1, out=scores)
        except RuntimeError:  # vmap and forward-mode derivatives take no ``out``
            pass
    return scores.softmax(-1)


def _fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    blocked: Tensor | None,
    bias: Tensor | None,
    is_causal: bool,
    dropout_p: float,
    scale: float | None,
) -> Tensor:
    """Compute the same through PyTorch's kernel."""
    added = None
    if not (blocked is None and bias is None):
        # Not every kernel takes its causal flag together with a mask.
        added, is_causal = _added(query, key, blocked, bias, is_causal), False
    missing = max(0, 4 - max(query.dim(), key.dim(), value.dim()))
    if missing:  # the fused kernel takes four axes, with fewer PyTorch goes step by step
        query, key, value = (x[(None,) * missing] for x in (query, key, value))
    output = F.scaled_dot_product_attention(
        query, key, value, added, dropout_p, is_causal, scale=scale
    )
    return output[(0,) * missing] if missing else output  # (..., n, d_v)


def _added(
    query: Tensor, key: Tensor, blocked: Tensor | None, bias: Tensor | None, is_causal: bool
) -> Tensor | None:
    """Return what all masks together add to the scores, in the smallest shape that holds it."""
    if is_causal:
        future = block_future(query.size(-2), key.size(-2), query.device)  # (n, m)
        blocked, bias = merge_masks(future, blocked, bias)
    if blocked is None:
        return bias
    if bias is None:
        bias = torch.zeros(blocked.shape, dtype=query.dtype, device=query.device)
    return bias.masked_fill(blocked, -math.inf)


def _check(query: Tensor, key: Tensor, value: Tensor, dropout_p: float) -> None:
    """Refuse shapes and settings that do not fit; values are never looked at."""
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


def _check_masks(
    query: Tensor, key: Tensor, value: Tensor, blocked: Tensor | None, bias: Tensor | None
) -> None:
    """Refuse masks that do not fit, and leading axes that do not fit each other."""
    if blocked is not None and blocked.dtype != torch.bool:
        raise TypeError(f"blocked must be boolean, got {blocked.dtype}; floats go in bias")
    if bias is not None and bias.dtype != query.dtype:
        raise TypeError(f"bias ({bias.dtype}) must have query's dtype ({query.dtype})")
    batch = _broadcast(query, key, value)
    fits = (*batch, query.size(-2), key.size(-2))
    for name, mask in (("blocked", blocked), ("bias", bias)):
        if mask is not None and not _broadcasts(mask.shape, fits):
            raise ValueError(f"{name} {tuple(mask.shape)} must broadcast to (..., n, m) = {fits}")


def _broadcast(query: Tensor, key: Tensor, value: Tensor) -> tuple[int, ...]:
    """Return what the leading axes broadcast to."""
    batch = query.shape[:-2]
    if batch == key.shape[:-2] == value.shape[:-2]:  # the other way is slow
        return batch
    try:
        return torch.broadcast_shapes(batch, key.shape[:-2], value.shape[:-2])
    except RuntimeError:
        raise ValueError(
            f"the leading axes of query {tuple(query.shape)}, key {tuple(key.shape)} and value "
            f"{tuple(value.shape)} must broadcast"
        ) from None


def _check_scores(scores: Tensor, query: Tensor, key: Tensor) -> None:
    """Refuse what a ``score`` from outside has made of query and key."""
    n, m = query.size(-2), key.size(-2)
    if scores.dim() < 2 or scores.shape[-2:] != (n, m):
        raise ValueError(
            f"score must return (..., n, m) = (..., {n}, {m}), got {tuple(scores.shape)}"
        )


def _broadcasts(shape: torch.Size, target: tuple[int, ...]) -> bool:
    """Tell whether a tensor of ``shape`` can be expanded to ``target``."""
    ends = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(have in (1, want) for have, want in ends)
