"""Answers to the exercises of “Multi-head attention”."""

from typing import Any

import torch
from torch import Tensor, nn

from annotated_attention import MultiheadAttention


class InAttend(MultiheadAttention):
    """Right: as a bias, before the softmax."""

    sign = -1

    def attend(self, q: Tensor, k: Tensor, v: Tensor, *, bias: Any, **options: Any) -> Any:
        n, m, h = q.size(2), k.size(2), q.size(1)
        steps = (torch.arange(m) - torch.arange(n)[:, None]).abs().double()  # (n, m)
        slopes = torch.logspace(8 / h, 8, h, base=0.5, dtype=torch.float64)
        bias = self.sign * slopes[:, None, None] * steps
        return super().attend(q, k, v, bias=bias, **options)


class Rewarded(InAttend):
    sign = 1


class Detached(InAttend):
    def score(self, q: Tensor, k: Tensor) -> Any:
        return super().score(q, k).detach()


class OnlyWithWeights(InAttend):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
        step = super().attend if options["need_weights"] else super(InAttend, self).attend
        return step(q, k, v, **options)


class ForgetsTheFuture(InAttend):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
        return super().attend(q, k, v, **{**options, "is_causal": False})


class Learned(MultiheadAttention):
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.slopes = nn.Parameter(torch.rand(self.num_heads, 1, 1))


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_alibi": [
        (InAttend, "✓ AlibiAttention: right"),
        (Rewarded, "the sign is wrong"),
        (OnlyWithWeights, "need_weights = False: not yet: that is the ordinary score"),
        (ForgetsTheFuture, "is_causal = True, need_weights = True: the shape is right, but"),
        (Learned, "ALiBi's slopes are fixed, but slopes would be learned"),
        (Detached, "the gradient of in_proj_weight is not"),
        (nn.MultiheadAttention, "give the class itself, a subclass of MultiheadAttention"),
    ],
}
