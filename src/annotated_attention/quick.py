"""The same weights in less time: what is here is here for speed, and for no other reason."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.jit import is_tracing  # type: ignore[attr-defined]

from annotated_attention.masks import masks_as_bias


def quick_weights(
    line_one: Callable[[], Tensor], blocked: Tensor | None, bias: Tensor | None
) -> Tensor | None:
    """Compute ``masked_softmax(line_one(), blocked, bias)`` in one piece of memory, (..., n, m).

    Fully masked rows are found in the mask, which is often smaller than the scores.

    Args:
        line_one: computes the scores, (..., n, m), which the weights are written over.
        blocked: as in ``masked_softmax``.
        bias: as in ``masked_softmax``.

    Returns:
        The weights; or None for calls that PyTorch records, to compile or trace them, as these may
        run with gradients later; for a bias of 16 bits, where a score would be lost beside a large
        number; where there is no key; and where a tool refuses one of the steps in place, as vmap
        and forward-mode derivatives do.
    """
    if torch.compiler.is_compiling() or is_tracing():
        return None
    if bias is not None and bias.dtype.itemsize < 4:
        return None
    scores, fully_masked = line_one(), None
    added = masks_as_bias(blocked, bias, scores.dtype)
    if not scores.size(-1):
        return None
    try:  # only what writes in place, which makes nothing large
        if added is not None:
            fully_masked = added.detach().amax(-1, keepdim=True) == -math.inf  # (..., 1)
            scores += added
        return _Softmax.apply(scores, fully_masked)
    except torch.OutOfMemoryError:  # a RuntimeError, too, and the plain path needs more memory
        raise
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
        device = scores.device.type
        autocasts = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
        if fully_masked is not None:
            scores[..., :1].masked_fill_(fully_masked, 0)  # (..., n, 1)
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
