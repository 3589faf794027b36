"""Answers to the exercises of “Multi-head attention”."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from annotated_attention import MultiheadAttention

SHAPES = {
    "the queries of the heads": (2, 3, 7, 4),
    "the mask, merged": [2, 1, 1, 9],
    "the output": torch.Size((7, 2, 12)),
    "the weights": (2, 7, 9),
}


def with_score(score: Callable[[Tensor, Tensor], Any]) -> type[MultiheadAttention]:
    class Answer(MultiheadAttention):
        def score(self, q: Tensor, k: Tensor) -> Any:
            return score(q, k)

    return Answer


def scaled(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-1, -2) / q.size(3) ** 0.5


def steps(q: Tensor, k: Tensor) -> Tensor:
    """Give j - i."""
    return torch.arange(k.shape[2]).sub(torch.arange(q.shape[2]).unsqueeze(1)).double()


def slopes(q: Tensor) -> Tensor:
    h = q.shape[1]
    return torch.logspace(8 / h, 8, h, base=0.5, dtype=torch.float64).view(h, 1, 1)


def less(penalty: Callable[[Tensor, Tensor], Tensor]) -> type[MultiheadAttention]:
    return with_score(lambda q, k: scaled(q, k) - penalty(q, abs(steps(q, k))))


class InAttend(MultiheadAttention):
    """Right: as a bias, before the softmax."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, *, bias: Any, **options: Any) -> Any:
        bias = -slopes(q) * steps(q, k).abs()
        return super().attend(q, k, v, bias=bias, **options)


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


def taking(
    *left_out: str, load: bool = True, strict: bool = True, **changed: Any
) -> Callable[[nn.MultiheadAttention], MultiheadAttention]:
    """Take over a module, but for some things."""

    def answer(theirs: nn.MultiheadAttention) -> MultiheadAttention:
        names = ("embed_dim", "num_heads", "dropout", "add_zero_attn", "kdim", "vdim")
        state = theirs.state_dict()
        settings = {name: getattr(theirs, name) for name in (*names, "batch_first")}
        settings |= {"bias": "in_proj_bias" in state, "add_bias_kv": "bias_k" in state}
        settings |= {"dtype": state["out_proj.weight"].dtype, **changed}
        ours = MultiheadAttention(**{k: v for k, v in settings.items() if k not in left_out})
        if load:
            ours.load_state_dict(state, strict=strict)
        return ours if "training" in left_out else ours.train(theirs.training)

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
        (less(lambda q, far: -slopes(q) * far), "the sign is wrong"),
        (OnlyWithWeights, "need_weights = False: not yet: that is the ordinary score"),
        (ForgetsTheFuture, "is_causal = True, need_weights = True: the shape is right, but"),
        (Learned, "ALiBi's slopes are fixed, but slopes would be learned"),
        (with_score(lambda q, k: scaled(q, k).detach() - slopes(q) * abs(steps(q, k))),
         "the gradient of in_proj_weight is not"),
        (nn.MultiheadAttention, "give the class itself, a subclass of MultiheadAttention"),
    ],
    "check_take_over": [
        (taking(), "✓ take_over: right, for 9 kinds of modules"),
        (taking("batch_first"), "not with batch_first = True: batch_first is lost"),
        (taking("training"), "✗ take_over: training is always True"),
        (lambda theirs: taking()(theirs).eval(), "not with training = True: training is 0"),
        (taking("kdim"), "not with kdim = 7, vdim = 9: your code raises RuntimeError"),
        (taking(load=False), "the parameters have other numbers: load the state_dict"),
        (lambda theirs: theirs, "it returns PyTorch's own module"),
    ],
}  # fmt: skip
