"""Answers to the exercises of “Multi-head attention”."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from annotated_attention import MultiheadAttention

SHAPES = {
    "the queries of the heads": (2, 3, 7, 4),
    "the mask, on the axes of the scores": [2, 1, 1, 9],
    "the output": torch.Size((7, 2, 12)),
    "the weights": (2, 7, 9),
}


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


def taking(*left_out: str) -> Callable[[nn.MultiheadAttention], MultiheadAttention]:
    """Take over a module, but for some things."""

    def answer(theirs: nn.MultiheadAttention) -> MultiheadAttention:
        names = ("embed_dim", "num_heads", "dropout", "add_zero_attn", "kdim", "vdim")
        state = theirs.state_dict()
        settings = {name: getattr(theirs, name) for name in (*names, "batch_first")}
        settings |= {"bias": "in_proj_bias" in state, "add_bias_kv": "bias_k" in state}
        settings["dtype"] = state["out_proj.weight"].dtype
        ours = MultiheadAttention(**{k: v for k, v in settings.items() if k not in left_out})
        if "state" not in left_out:
            ours.load_state_dict(state)
        return ours.train(theirs.training)

    return answer


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_shapes": [
        (SHAPES, "✓ my_shapes: right"),
        (SHAPES | {"the queries of the heads": (7, 3, 2, 4)}, "the default is (n, b, e)"),
        (SHAPES | {"the queries of the heads": (2, 3, 7)}, "not quite. Its axes are (b, h, n, d)"),
        (SHAPES | {"the weights": (2, 3, 7, 9)}, "the weights, (2, 3, 7, 9): by default you get"),
        (SHAPES | {"the weights": 9}, "the weights: it is an object of type int; a tuple"),
    ],
    "check_alibi": [
        (InAttend, "✓ AlibiAttention: right"),
        (Rewarded, "the sign is wrong"),
        (OnlyWithWeights, "need_weights = False: not yet: that is the ordinary score"),
        (ForgetsTheFuture, "is_causal = True, need_weights = True: the shape is right, but"),
        (Learned, "ALiBi's slopes are fixed, but slopes would be learned"),
        (Detached, "the gradient of in_proj_weight is not"),
        (nn.MultiheadAttention, "give the class itself, a subclass of MultiheadAttention"),
    ],
    "check_take_over": [
        (taking(), "✓ take_over: right, for 9 kinds of modules"),
        (taking("batch_first"), "not with batch_first = True: batch_first is lost"),
        (lambda theirs: taking()(theirs).eval(), "not with training = True: training is 0"),
        (taking("kdim"), "not with kdim = 7, vdim = 9: your code raises RuntimeError"),
        (taking("state"), "the parameters have other numbers: load the state_dict"),
        (lambda theirs: theirs, "it returns PyTorch's own module"),
    ],
}
