"""Answers to the exercises of “Multi-head attention”, written apart from the table."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from annotated_attention import MultiheadAttention
from annotated_attention.exercises.multihead_attention import (
    check_alibi,
    check_shapes,
    check_take_over,
)


def measured() -> dict[str, Any]:
    """Run the call of the exercise, and write down its shapes."""
    found: dict[str, Any] = {}

    class Writing(MultiheadAttention):
        def attend(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
            found["the queries of the heads"] = tuple(q.shape)
            found["the mask, merged"] = tuple(options["blocked"].shape)
            return super().attend(q, k, v, **options)

    key = torch.randn(9, 2, 12)
    padding = torch.zeros(2, 9, dtype=torch.bool)
    output, weights = Writing(12, 3)(torch.randn(7, 2, 12), key, key, padding)
    assert weights is not None
    return found | {"the output": output.shape, "the weights": list(weights.shape)}


def but(name: str, shape: Any) -> Callable[[], dict[str, Any]]:
    return lambda: measured() | {name: shape}


QUERIES, MASK, WEIGHTS = "the queries of the heads", "the mask, merged", "the weights"

SHAPES: list[tuple[Callable[[], Any], str]] = [
    (measured, "✓ my_shapes: right"),
    (but(QUERIES, (7, 3, 2, 4)), "the default is (n, b, e)"),
    (but(QUERIES, (2, 7, 3, 4)), "the heads still stand behind the tokens"),
    (but(QUERIES, (2, 3, 9, 4)), "that is the shape of the keys"),
    (but(QUERIES, (2, 3, 7)), "not quite. Its axes are (b, h, n, d)"),
    (but(QUERIES, (2, None, 7, 4)), "not yet, a number is missing"),
    (but(MASK, (2, 9)), "lacks an axis for heads and one for queries"),
    (but(MASK, (2, 3, 7, 9)), "nothing is copied for heads or queries"),
    (but("the output", (2, 7, 12)), "batch_first is False by default"),
    (but("the output", (9, 2, 12)), "there is a row for each query"),
    (but(WEIGHTS, (2, 3, 7, 9)), "the weights, (2, 3, 7, 9): by default you get the mean"),
    (but(WEIGHTS, (2, 9, 7)), "a row belongs to a query"),
    (but(WEIGHTS, 9), "the weights: it is an object of type int; a tuple"),
    (but("mask", (2, 9)), "its keys must be 'the queries of the heads', "),
]


@pytest.mark.parametrize(("answer", "words"), SHAPES, ids=[words for _, words in SHAPES])
def test_verdict_on_shapes(verdict: Any, answer: Callable[[], Any], words: str) -> None:
    assert words in verdict(check_shapes, answer())


def with_score(score: Callable[[Tensor, Tensor], Any]) -> type[MultiheadAttention]:
    class Answer(MultiheadAttention):
        def score(self, q: Tensor, k: Tensor) -> Any:
            return score(q, k)

    return Answer


def product(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-1, -2)


def scaled(q: Tensor, k: Tensor) -> Tensor:
    return product(q, k) / q.size(3) ** 0.5


def steps(q: Tensor, k: Tensor) -> Tensor:
    """Give j - i."""
    return torch.arange(k.shape[2]).sub(torch.arange(q.shape[2]).unsqueeze(1)).double()


def slopes(q: Tensor) -> Tensor:
    h = q.shape[1]
    return torch.logspace(8 / h, 8, h, base=0.5, dtype=torch.float64).view(h, 1, 1)


def linear(q: Tensor) -> Tensor:
    h = q.shape[1]
    return torch.linspace(1 / h, 1, h, dtype=torch.float64).view(h, 1, 1)


def less(penalty: Callable[[Tensor, Tensor], Tensor]) -> type[MultiheadAttention]:
    return with_score(lambda q, k: scaled(q, k) - penalty(q, abs(steps(q, k))))


class InAttend(MultiheadAttention):
    """Right: as a bias, before the softmax."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, *, bias: Any, **options: Any) -> Any:
        bias = -slopes(q) * steps(q, k).abs()
        return super().attend(q, k, v, bias=bias, **options)


class Buffered(MultiheadAttention):
    """Right: slopes as a buffer."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.register_buffer("slopes", 0.5 ** (8 / self.num_heads * torch.arange(1, 99)))

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        fixed = self.slopes[: self.num_heads, None, None]
        return super().score(q, k) - fixed * steps(q, k).abs()


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


ALIBI: list[tuple[Any, str]] = [
    (less(lambda q, far: slopes(q) * far), "✓ AlibiAttention: right"),
    (InAttend, "✓ AlibiAttention: right"),
    (Buffered, "✓ AlibiAttention: right"),
    (MultiheadAttention, "not yet: that is the ordinary score"),
    (less(lambda q, far: -slopes(q) * far), "the sign is wrong"),
    (with_score(lambda q, k: scaled(q, k) + slopes(q) * steps(q, k)), "the distance has a sign"),
    (with_score(lambda q, k: scaled(q, k) - slopes(q) * steps(q, k)), "the distance has a sign"),
    (with_score(lambda q, k: scaled(q, k) + slopes(q) * steps(q, k).clamp(max=0)),
     "only keys before the query lose"),
    (less(lambda q, far: far / 4), "every head has the same slope"),
    (less(lambda q, far: slopes(q).flipud() * far), "the slopes are in the reverse order"),
    (less(lambda q, far: 2 ** (8 / q.size(1)) * slopes(q) * far), "the heads are counted from 0"),
    (less(lambda q, far: slopes(q) ** (q.size(1) / 8) * far), "which is right for 8 heads only"),
    (less(lambda q, far: linear(q) * far), "the slopes grow along a line"),
    (less(lambda q, far: far / slopes(q)), "the exponent is positive"),
    (less(lambda q, far: slopes(q) * far / q.size(3) ** 0.5), "the penalty is divided by √d, too"),
    (with_score(lambda q, k: product(q, k) - slopes(q) * abs(steps(q, k))), "is not scaled"),
    (OnlyWithWeights, "need_weights = False: not yet: that is the ordinary score"),
    (ForgetsTheFuture, "is_causal = True, need_weights = True: the shape is right, but"),
    (Learned, "ALiBi's slopes are fixed, but slopes would be learned"),
    (less(lambda q, far: slopes(q) * far**2), "the shape is right, but"),
    (with_score(lambda q, k: scaled(q, k).detach() - slopes(q) * abs(steps(q, k))), "the gradient"),
    (with_score(lambda q, k: steps(q, k)[:2, :2]), "your code raises ValueError"),
    (nn.MultiheadAttention, "give the class itself, a subclass of MultiheadAttention"),
]  # fmt: skip


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


TAKE_OVER: list[tuple[Any, str]] = [
    (taking(), "✓ take_over: right, for 9 kinds of modules"),
    (taking("batch_first"), "not with batch_first = True: batch_first is lost"),
    (taking("add_zero_attn"), "not with add_zero_attn = True: add_zero_attn is lost"),
    (taking("dropout"), "not with dropout = 0.5: dropout is lost"),
    (taking("dtype"), "not with dtype = torch.float64: the dtype is lost"),
    (taking("training"), "✗ take_over: training is always True"),
    (lambda theirs: taking()(theirs).eval(), "not with training = True: training is 0 and must be"),
    (taking("batch_first", "training"), "✗ take_over: training is always True"),
    (taking("bias"), "not with bias = False: your code raises RuntimeError"),
    (taking("add_bias_kv"), "not with add_bias_kv = True: your code raises RuntimeError"),
    (taking("kdim"), "not with kdim = 7, vdim = 9: your code raises RuntimeError"),
    (taking(load=False), "the parameters have other numbers: load the state_dict"),
    (taking(num_heads=2), "num_heads is 2 and must be 4"),
    (taking("bias", strict=False), "only one of the two modules has in_proj_bias, out_proj.bias"),
    (lambda theirs: theirs, "it returns PyTorch's own module"),
    (lambda theirs: theirs.state_dict(), "an object of type OrderedDict"),
    (lambda theirs: None, "not yet, it returns None"),
]

ANSWERS = [(check_alibi, *pair) for pair in ALIBI] + [
    (check_take_over, *pair) for pair in TAKE_OVER
]


@pytest.mark.parametrize(("check", "answer", "words"), ANSWERS, ids=[x for *_, x in ANSWERS])
def test_verdict(verdict: Any, check: Any, answer: Any, words: str) -> None:
    assert words in verdict(check, answer)
