"""Take apart PyTorch's functions that compute a whole attention, so that their steps are seen."""

import functools
import math
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def opened(function: Any) -> Callable[..., Any] | None:
    """Give a function that computes the same in steps; None if a function is no such kernel."""
    if function is F.scaled_dot_product_attention:
        return _in_steps
    return _opened() if function is F.multi_head_attention_forward else None


def _in_steps(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Compute what the fused kernel computes."""
    if enable_gqa:
        h = query.size(-3)
        key, value = (x.repeat_interleave(h // x.size(-3), -3) for x in (key, value))
    scores = query @ key.mT * (1 / math.sqrt(query.size(-1)) if scale is None else scale)
    if is_causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(future, -math.inf)
    if attn_mask is not None:
        boolean = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -math.inf) if boolean else scores + attn_mask
    weights = torch._safe_softmax(scores, -1)
    return F.dropout(weights, dropout_p) @ value


@functools.cache
def _opened() -> Any:
    """Copy the function behind ``nn.MultiheadAttention`` so that its own steps are handed over.

    It hands itself over as a whole, unless a check says that nobody is interested.
    """
    closed = F.multi_head_attention_forward
    space = {**vars(F), "has_torch_function": lambda tensors: False}
    made = types.FunctionType(
        closed.__code__, space, closed.__name__, closed.__defaults__, closed.__closure__
    )
    made.__kwdefaults__ = closed.__kwdefaults__
    return made
