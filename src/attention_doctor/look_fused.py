"""Attention in PyTorch's fused kernel: one call, taken apart by its arguments."""

import math
from typing import Any

import torch
from torch import Tensor

from attention_doctor.look_paths import factors
from attention_doctor.look_products import Product
from attention_doctor.look_seen import Seen, around
from attention_doctor.look_softmaxes import LOW
from attention_doctor.look_trace import Step

NAME = "scaled_dot_product_attention"
_TENSORS = ("query", "key", "value", "attn_mask")


def fused(step: Step, steps: list[Step]) -> Seen:
    """Take apart what goes into the kernel, and find what is around it."""
    positions = [*_TENSORS[: len(step.arguments)], *(x for x in step.options if x in _TENSORS)]
    taken = [name for name in positions if isinstance(_option(step, name), Tensor)]
    made = {name: x for name, x in zip(taken, step.given, strict=False) if x is not None}
    q, k, v = (
        made[name].value if name in made else _option(step, name).detach() for name in _TENSORS[:3]
    )
    given = step.option("scale", 6)
    own = 1 / math.sqrt(q.size(-1)) if given is None else float(given)
    sides = Product(step, made.get("query", step), made.get("key", step), ((-1, -1),), factor=own)
    scale, scaled, normalised = factors(sides, [step])
    scores = _scores(step, q, k, own)
    low, attn_mask = scores <= LOW, _option(step, "attn_mask")
    numbers = isinstance(attn_mask, Tensor) and attn_mask.dtype != torch.bool
    added = numbers and not (attn_mask <= LOW).any()
    roles = dict.fromkeys(("product", "softmax", "mix", "mask", "dropout"), step)
    roles |= {"scale": scaled or step} | ({"weak mask": step} if added else {})
    roles |= around(sides, step, steps)
    return Seen(
        query=q, key=k, value=v, scores=scores, weights=scores.softmax(-1), mixed=None, mask=low,
        scale=scale, width=q.size(-1), axis=-1, summed=(-1,), keys=-1, dtype=q.dtype,
        dropout=float(step.option("dropout_p", 4, 0.0)), normalised=normalised,
        products=(), operand=_option(step, "query"), rows=(-2, -2), steps=roles,
    )  # fmt: skip


def _scores(step: Step, q: Tensor, k: Tensor, scale: float) -> Tensor:
    """Compute the scores as the kernel does, masks included."""
    if q.dim() > 2 and 1 < k.size(-3) < q.size(-3):  # groups of heads
        k = k.repeat_interleave(q.size(-3) // k.size(-3), -3)
    scores, attn_mask = scale * (q @ k.mT), _option(step, "attn_mask")
    if isinstance(attn_mask, Tensor):
        boolean = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -math.inf) if boolean else scores + attn_mask
    if step.option("is_causal", 5, False):
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, -math.inf)
    return scores


def _option(step: Step, name: str) -> Any:
    return step.option(name, _TENSORS.index(name))
