"""Scaled dot-product attention: a readable path that returns weights, and a fused path."""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.jit import is_tracing  # type: ignore[attr-defined]

from annotated_attention.masks import block_future, masks_as_bias, merge_masks


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
        is_causal: also hide key j from query i when j > i, both counted from the first.
        dropout_p: probability of zeroing a weight, from 0 to 1. Applied whenever it is above 0:
            pass 0 in evaluation.
        scale: factor on the scores; None means 1 / sqrt(d).
        need_weights: True also returns the weights, an (n, m) matrix for every leading index.
            False takes PyTorch's fused kernel, which need not hold it.
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
    # Refuse shapes, dtypes and settings that do not fit.
    _check(query, key, value, dropout_p)
    _check_masks(query, key, value, blocked, bias)
    # Where nobody asks for the weights, PyTorch's fused kernel computes the same output.
    if not need_weights and score is None:
        return _fused(query, key, value, blocked, bias, is_causal, dropout_p, scale), None
    # The causal mask is one more mask, and merges with those of the caller.
    if is_causal:
        future = block_future(query.size(-2), key.size(-2), query.device)  # (n, m)
        blocked, bias = merge_masks(future, blocked, bias)
    # The quick form of lines one and two returns the same weights, or None where it cannot be used.
    query, key, value = _contiguous_for_speed(query, key, value)
    recorded = torch.compiler.is_compiling() or is_tracing()
    quick = score is None and not recorded
    weights = _weights_for_speed(query, key, scale, blocked, bias) if quick else None
    if weights is None:
        # Line one: the scores, by the caller's function if there is one.
        scores = scaled_scores(query, key, scale) if score is None else score(query, key)
        _check_scores(scores, query, key)
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
    added = masks_as_bias(blocked, bias, scores.dtype)
    if added is None:
        return scores.softmax(-1)                              # (..., n, m)
    fully_masked = (added == -math.inf).all(-1, keepdim=True)  # (..., 1)
    scores = scores + added.masked_fill(fully_masked, 0)       # (..., n, m)
    return scores.softmax(-1) * ~fully_masked                  # (..., n, m)


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


def _contiguous_for_speed(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Lay queries, keys and values out in one piece each, before anything is multiplied.

    Otherwise the matrix product copies ``key.mT`` slowly, and the backward pass keeps the whole
    tensor that a view was cut from. What it is worth is measured: the cases "for speed" in
    ``data/benchmarks.json``.
    """
    return tuple(x.contiguous() for x in tensors)


def _weights_for_speed(
    query: Tensor, key: Tensor, scale: float | None, blocked: Tensor | None, bias: Tensor | None
) -> Tensor | None:
    """Compute ``masked_softmax(scaled_scores(...))`` with fewer passes over (..., n, m) numbers.

    The mask is added to the scores in place. Fully masked rows are found in the mask, which is
    often smaller than the scores. Such a row is allowed key 0 alone, so that its softmax is 1 there
    and 0 elsewhere; afterwards that one weight is set to zero. What this is worth is measured: the
    cases "for speed" in ``data/benchmarks.json``.

    Without gradients the weights overwrite the scores. A call that PyTorch records, to compile or
    trace it, may run with gradients later, so it does not use this function.

    Returns:
        The weights, (..., n, m); or None where a tool refuses one of the steps, as vmap and
        forward-mode derivatives do, or where there is no key 0.
    """
    if key.size(-2) == 0:
        return None
    added = masks_as_bias(blocked, bias, query.dtype)
    fully_masked = None
    try:
        scores = scaled_scores(query, key, scale)
        if added is not None:
            fully_masked = added.detach().amax(-1, keepdim=True) == -math.inf  # (..., 1)
            added = added if bias is None else added.clone()  # the caller's floats stay
            added[..., :1].masked_fill_(fully_masked, 0)                       # (..., 1)
            scores += added                                                    # (..., n, m)
        if not torch.is_grad_enabled():
            return _softmax_in_place(scores, fully_masked)
        return scores.softmax(-1) if fully_masked is None else _Softmax.apply(scores, fully_masked)
    except RuntimeError:  # what is really wrong comes up again on the readable path
        return None


def _softmax_in_place(scores: Tensor, fully_masked: Tensor | None) -> Tensor:
    """Write the weights over the scores; zero where a fully masked row sees key 0."""
    # Under autocast, where PyTorch computes partly in a shorter number format, the softmax returns
    # another dtype.
    other = torch.is_autocast_enabled(scores.device.type)
    weights = scores.softmax(-1) if other else torch.softmax(scores, -1, out=scores)
    if fully_masked is not None:
        weights[..., :1].masked_fill_(fully_masked, 0)
    return weights


class _Softmax(torch.autograd.Function):
    """A softmax that sets weights to zero before it keeps them for the backward pass.

    PyTorch's softmax keeps its result unchanged, so the changed weights would be a second matrix.
    Where a weight is zero, the gradient of its score is zero, too, so one matrix serves for both.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, fully_masked: Tensor) -> Tensor:
        """Compute the weights; zero where a fully masked row sees key 0."""
        weights = scores.softmax(-1)                    # (..., n, m)
        weights[..., :1].masked_fill_(fully_masked, 0)  # (..., n, 1)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of the scores; it can be differentiated again."""
        (weights,) = ctx.saved_tensors
        backward = torch.ops.aten._softmax_backward_data
        return backward(gradient, weights, -1, weights.dtype), None


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
    """Compute the same output through PyTorch's kernel, which need not hold the weights."""
    if is_causal and not (blocked is None and bias is None):
        # Not every kernel takes its causal flag together with a mask.
        future = block_future(query.size(-2), key.size(-2), query.device)  # (n, m)
        blocked, bias = merge_masks(future, blocked, bias)
        is_causal = False
    added = masks_as_bias(blocked, bias, query.dtype)
    missing = max(0, 4 - max(query.dim(), key.dim(), value.dim()))
    if missing:  # the fused kernel takes four axes, with fewer PyTorch goes step by step
        query, key, value = (x[(None,) * missing] for x in (query, key, value))
    output = F.scaled_dot_product_attention(
        query, key, value, added, dropout_p, is_causal, scale=scale
    )
    return output[(0,) * missing] if missing else output  # (..., n, d_v)


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
