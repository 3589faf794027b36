"""Helpers that several designs share: checks, attention, and copying the weights of a reference."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention.attention import masked_softmax
from annotated_attention.checks import check_inputs
from annotated_attention.masks import as_blocked
from annotated_attention.multihead import MultiheadAttention

Projection = tuple[Tensor, Tensor | None]  # a weight and its bias, as a linear layer has them


def check_batches(
    query: Tensor, key: Tensor, value: Tensor, embed_dim: int, parameter: Tensor,
    batch_first: bool = True,
) -> None:
    """Check that the inputs are three batches of width ``embed_dim`` that fit each other.

    Raises:
        TypeError: not a dense tensor, or not of the parameters' dtype.
        ValueError: axes, widths, lengths, batch sizes or devices that do not fit.
    """
    for name, x in (("query", query), ("key", key), ("value", value)):
        if isinstance(x, Tensor) and x.dim() != 3:
            raise ValueError(f"{name} must have three axes, got shape {tuple(x.shape)}")
    check_inputs(query, key, value, [embed_dim] * 3, batch_first, parameter)


def read_mask(
    name: str, mask: Tensor | None, true_means: str, letters: str, *sizes: int
) -> Tensor | None:
    """Turn a design's mask into one that is True where a query must not see a key.

    The number of axes has to be right: broadcasting would take the b of a (b, n, m) mask for the
    h of the scores. A size may be 1.

    Args:
        name: the design's name for the mask.
        mask: boolean, or integers if True means "allowed". None stays None.
        true_means: ``"blocked"`` or ``"allowed"``.
        letters: the axes, for the message.
        *sizes: the size of each axis.

    Raises:
        TypeError: not a tensor, or of another dtype.
        ValueError: another shape.
    """
    if mask is None:
        return None
    if not isinstance(mask, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(mask).__name__}")
    if mask.is_floating_point() or (true_means == "blocked" and mask.dtype != torch.bool):
        integers = " or hold integers" * (true_means == "allowed")
        raise TypeError(f"{name} must be boolean{integers}, True = {true_means}, got {mask.dtype}")
    fits = len(mask.shape) == len(sizes) and all(
        have in (1, want) for have, want in zip(mask.shape, sizes, strict=True)
    )
    if not fits:
        raise ValueError(
            f"{name} {tuple(mask.shape)} must have shape {letters} = {sizes}; any of these may be 1"
        )
    return as_blocked(mask, true_means=true_means)


def attend_weighted(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attention_weights: Tensor | None,
    attention_mask: Tensor | None,
    dropout_p: float,
) -> Tensor:
    """Attend with scaled scores that are multiplied by the caller's factors.

    Args:
        q: (b, h, n, d), the queries of each head.
        k: (b, h, d, m), the keys of each head, laid out so that no transpose is needed.
        v: (b, h, m, d_v), the values of each head.
        attention_weights: floating point, (b, h, n, m) or with sizes of 1, or None.
        attention_mask: boolean, (b, h, n, m) or with sizes of 1, or None; True = blocked.
        dropout_p: probability of zeroing a weight.

    Returns:
        (b, n, h * d_v).
    """
    scores = q @ k / math.sqrt(q.size(-1))  # (b, h, n, m)
    b, h, n, m = scores.shape
    if attention_weights is not None:
        check_factors(attention_weights, b, h, n, m)
        scores = scores * attention_weights  # (b, h, n, m)
    letters = "(b, h, n, m)"
    blocked = read_mask("attention_mask", attention_mask, "blocked", letters, b, h, n, m)
    weights = masked_softmax(scores, blocked)            # (b, h, n, m)
    weights = F.dropout(weights, dropout_p)              # (b, h, n, m)
    return (weights @ v).permute(0, 2, 1, 3).flatten(2)  # (b, n, h * d_v)


def check_factors(factors: Tensor, *sizes: int) -> None:
    """Check that the scores can be multiplied with ``factors``.

    Raises:
        TypeError: ``factors`` is no tensor of floating-point numbers.
        ValueError: another shape.
    """
    if not isinstance(factors, Tensor) or not factors.is_floating_point():
        kind = factors.dtype if isinstance(factors, Tensor) else type(factors).__name__
        raise TypeError(f"attention_weights must be a floating-point tensor, got {kind}")
    wanted = zip(factors.shape, sizes, strict=False)
    if factors.dim() != len(sizes) or any(have not in (1, want) for have, want in wanted):
        raise ValueError(
            f"attention_weights {tuple(factors.shape)} must have shape (b, h, n, m) = {sizes}; "
            "any of these may be 1"
        )


def projections(
    reference: MultiheadAttention | nn.MultiheadAttention,
    embed_dim: int,
    num_heads: int,
    bias: bool = True,
) -> tuple[Projection, Projection, Projection, Projection]:
    """Return the projections of ``reference`` for query, key, value and output.

    Args:
        reference: the module that holds the weights.
        embed_dim: the width that ``reference`` must have.
        num_heads: the number of heads that ``reference`` must have.
        bias: whether the design has a place for biases.

    Raises:
        TypeError: ``reference`` is not a multi-head attention.
        ValueError: the settings of ``reference`` do not fit.
    """
    if not isinstance(reference, MultiheadAttention | nn.MultiheadAttention):
        kind = type(reference).__name__
        raise TypeError(f"reference must be a MultiheadAttention, got an object of type {kind}")
    for name, want in (("embed_dim", embed_dim), ("num_heads", num_heads)):
        if getattr(reference, name) != want:
            raise ValueError(f"reference's {name} ({getattr(reference, name)}) must be {want}")
    if reference.in_proj_weight is None:
        raise ValueError(
            f"reference must have kdim = vdim = embed_dim ({embed_dim}), "
            f"got {reference.kdim} and {reference.vdim}"
        )
    if reference.bias_k is not None or reference.add_zero_attn:
        raise ValueError("reference must have neither add_bias_kv nor add_zero_attn")
    if reference.in_proj_bias is None:
        biases: tuple[Tensor | None, ...] = (None, None, None)
    elif not bias:
        raise ValueError("reference must have bias=False: there is no place for its biases here")
    else:
        biases = reference.in_proj_bias.detach().chunk(3)
    weights = reference.in_proj_weight.detach().chunk(3)
    q, k, v = zip(weights, biases, strict=True)
    return q, k, v, (reference.out_proj.weight.detach(), reference.out_proj.bias)


def copy_projection(linear: nn.Linear, projection: Projection) -> None:
    """Copy a projection into a linear layer; a missing bias becomes zeros."""
    weight, bias = projection
    with torch.no_grad():
        linear.weight.copy_(weight)
        if linear.bias is not None:
            linear.bias.copy_(torch.zeros_like(linear.bias) if bias is None else bias)
