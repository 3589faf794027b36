"""The same attention in less time: what is here is here for speed, and for no other reason."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.jit import is_tracing  # type: ignore[attr-defined]

from annotated_attention.attention import Score, compute_attention, mix, scaled_scores
from annotated_attention.masks import block_future, masks_as_bias, merge_masks


def quick_attention(
    q: Tensor, k: Tensor, v: Tensor, *,
    blocked: Tensor | None, bias: Tensor | None, is_causal: bool,
    dropout_p: float, need_weights: bool, score: Score | None,
) -> tuple[Tensor, Tensor | None]:
    """Return what ``compute_attention`` returns, as quickly as it can be had.

    The fused kernel is the quickest, and serves whoever needs no weights. Weights take fewer passes
    over (..., n, m) numbers here than on the plain path. The plain path remains for scores that
    somebody else computes, for calls without a key, and for calls that PyTorch records, to compile
    or trace them, as these may run with gradients later.
    """
    recorded = torch.compiler.is_compiling() or is_tracing()
    weights = None
    if need_weights and score is None and not recorded and k.size(-2):
        future = block_future(q.size(-2), k.size(-2), q.device) if is_causal else None
        added = masks_as_bias(*merge_masks(future, blocked, bias), q.dtype)
        weights = _weights(q, k, added)
    if weights is not None:
        return mix(weights, v, dropout_p)
    return compute_attention(
        q, k, v, blocked=blocked, bias=bias, is_causal=is_causal, dropout_p=dropout_p,
        need_weights=need_weights, score=score,
    )


def _weights(q: Tensor, k: Tensor, added: Tensor | None) -> Tensor | None:
    """Compute scores, masks and softmax in one piece of memory, (..., n, m).

    Fully masked rows are found in the mask, which is often smaller than the scores.

    Returns:
        The weights; or None where a tool refuses one of the steps, as vmap and forward-mode
        derivatives do. What is really wrong comes up again on the plain path.
    """
    try:
        scores = scaled_scores(q, k)  # (..., n, m)
        if added is None:
            return _Softmax.apply(scores, None)
        fully_masked = added.detach().amax(-1, keepdim=True) == -math.inf  # (..., 1)
        scores += added                                                    # (..., n, m)
        return _Softmax.apply(scores, fully_masked)
    except RuntimeError:
        return None


class _Softmax(torch.autograd.Function):
    """A softmax that writes the weights over the scores, and zeros into fully masked rows.

    Such a row is left key 0 alone, so that its softmax is 1 there and 0 elsewhere; afterwards that
    one weight is set to zero. Where a weight is zero, so is the gradient of its score. PyTorch's
    softmax keeps its result for the backward pass, so weights that were zeroed after it would be
    a second matrix.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, fully_masked: Tensor | None) -> Tensor:
        """Compute the weights."""
        # Under autocast, where PyTorch computes partly in a shorter number format, they have
        # another dtype.
        autocasts = torch.is_autocast_enabled(scores.device.type)
        if fully_masked is not None:
            scores[..., :1].masked_fill_(fully_masked, 0)   # (..., n, 1)
        weights = scores.softmax(-1) if autocasts else torch.softmax(scores, -1, out=scores)
        if fully_masked is not None:
            weights[..., :1].masked_fill_(fully_masked, 0)  # (..., n, 1)
        if weights is scores:
            ctx.mark_dirty(scores)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Return the gradient of the scores; it can be differentiated again."""
        (weights,) = ctx.saved_tensors
        backward = torch.ops.aten._softmax_backward_data
        return backward(gradient, weights, -1, weights.dtype), None
