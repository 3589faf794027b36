"""The checks of “Multi-head attention” accept what is right and name what is wrong."""

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

CHAPTER = "07_multihead_attention"


def test_shapes_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_shapes")
    assert before.startswith("✗ my_shapes: not yet, the queries of the heads: it is None")
    assert after.startswith("✓ my_shapes: right: tokens come and go as (n, b, e)")


def measured() -> dict[str, tuple[int, ...]]:
    """Run the call of the exercise, and write down its shapes."""
    found: dict[str, tuple[int, ...]] = {}

    class Writing(MultiheadAttention):
        def attend(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
            found["the queries of the heads"] = tuple(q.shape)
            found["the mask, merged"] = tuple(options["blocked"].shape)
            return super().attend(q, k, v, **options)

    key = torch.randn(9, 2, 12)
    padding = torch.zeros(2, 9, dtype=torch.bool)
    output, weights = Writing(12, 3)(torch.randn(7, 2, 12), key, key, padding)
    assert weights is not None
    shapes = {"the output": tuple(output.shape), "the weights": tuple(weights.shape)}
    return found | shapes


def test_shapes_are_those_of_a_run(verdict: Any) -> None:
    right = measured()
    assert verdict(check_shapes, right).startswith("✓ my_shapes")
    lists = {name: list(shape) for name, shape in right.items()}
    assert verdict(check_shapes, lists).startswith("✓ my_shapes")
    assert verdict(check_shapes, right | {"the output": torch.Size((7, 2, 12))}).startswith("✓")


@pytest.mark.parametrize(
    ("name", "shape", "reason"),
    [
        ("the queries of the heads", (7, 3, 2, 4), "the default is (n, b, e)"),
        ("the queries of the heads", (2, 7, 3, 4), "the heads still stand behind the tokens"),
        ("the queries of the heads", (2, 3, 7, 12), "each head has its share of the 12 features"),
        ("the queries of the heads", (2, 3, 9, 4), "that is the shape of the keys"),
        ("the queries of the heads", (2, 3, 7), "Its axes are (b, h, n, d)"),
        ("the queries of the heads", (2, 3, 7, 4.0), "a tuple is made of whole numbers"),
        ("the queries of the heads", (2, None, 7, 4), "not yet, a number is missing"),
        ("the mask, merged", (2, 9), "lacks an axis for heads and one for queries"),
        ("the mask, merged", (2, 3, 7, 9), "nothing is copied for heads or queries"),
        ("the mask, merged", (2, 9, 1, 1), "the keys are the last axis of the scores"),
        ("the output", (2, 7, 12), "batch_first is False by default"),
        ("the output", (9, 2, 12), "there is a row for each query"),
        ("the weights", (2, 3, 7, 9), "by default you get the mean over the heads"),
        ("the weights", (7, 2, 9), "the weights have the batch first"),
        ("the weights", (2, 9, 7), "a row belongs to a query"),
        ("the weights", 9, "an object of type int; a tuple is asked for"),
    ],
)
def test_shapes_name_the_mistake(verdict: Any, name: str, shape: Any, reason: str) -> None:
    said = verdict(check_shapes, measured() | {name: shape})
    assert said.startswith("✗ my_shapes: ")
    assert reason in said


@pytest.mark.parametrize("answer", [None, 3, {}, {"the output": (7, 2, 12)}])
def test_shapes_ask_for_all_four(verdict: Any, answer: object) -> None:
    assert "give a dictionary with the keys" in verdict(check_shapes, answer)


def test_alibi_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_alibi")
    assert before == "✗ AlibiAttention: not yet: these are the weights of the ordinary score. "
    assert after.startswith("✓ AlibiAttention: right, with and without weights")


def with_score(score: Callable[[Tensor, Tensor], Tensor]) -> type[MultiheadAttention]:
    class Answer(MultiheadAttention):
        def score(self, q: Tensor, k: Tensor) -> Tensor:
            return score(q, k)

    return Answer


def product(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-1, -2)


def steps(q: Tensor, k: Tensor) -> Tensor:
    """Give j - i."""
    return torch.arange(k.shape[2]).sub(torch.arange(q.shape[2]).unsqueeze(1)).double()


def slopes(q: Tensor) -> Tensor:
    h = q.shape[1]
    return torch.logspace(8 / h, 8, h, base=0.5, dtype=torch.float64).view(h, 1, 1)


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


@pytest.mark.parametrize(
    "answer",
    [
        with_score(lambda q, k: product(q, k) / q.size(3) ** 0.5 - slopes(q) * steps(q, k).abs()),
        InAttend,
        Buffered,
    ],
)
def test_alibi_accepts_other_ways(verdict: Any, answer: object) -> None:
    assert verdict(check_alibi, answer).startswith("✓ AlibiAttention")


class AfterTheSoftmax(MultiheadAttention):
    def attend(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
        _, weights = super().attend(q, k, v, **{**options, "need_weights": True})
        weights = weights - slopes(q) * steps(q, k).abs()
        return weights @ v, weights


class OnlyShown(MultiheadAttention):
    """The weights that are returned are not those that mix."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, *, bias: Any, **options: Any) -> Any:
        output, _ = super().attend(q, k, v, bias=bias, **options)
        _, weights = super().attend(
            q, k, v, bias=-slopes(q) * steps(q, k).abs(), **{**options, "need_weights": True}
        )
        return output, weights


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


def scaled(q: Tensor, k: Tensor) -> Tensor:
    return product(q, k) / q.size(3) ** 0.5


def linear(q: Tensor) -> Tensor:
    h = q.shape[1]
    return torch.linspace(1 / h, 1, h, dtype=torch.float64).view(h, 1, 1)


WRONG: list[tuple[object, str]] = [
    (with_score(lambda q, k: scaled(q, k) + slopes(q) * abs(steps(q, k))), "the sign is wrong"),
    (with_score(lambda q, k: scaled(q, k) + slopes(q) * steps(q, k)), "the distance has a sign"),
    (with_score(lambda q, k: scaled(q, k) - slopes(q) * steps(q, k)), "the distance has a sign"),
    (
        with_score(lambda q, k: scaled(q, k) + slopes(q) * steps(q, k).clamp(max=0)),
        "only keys before the query lose",
    ),
    (with_score(lambda q, k: scaled(q, k) - abs(steps(q, k))), "every head has the same slope"),
    (with_score(lambda q, k: scaled(q, k) - abs(steps(q, k)) / 4), "every head has the same slope"),
    (
        with_score(lambda q, k: scaled(q, k) - slopes(q).flipud() * abs(steps(q, k))),
        "the slopes are in the reverse order",
    ),
    (
        with_score(lambda q, k: scaled(q, k) - 2 ** (8 / q.size(1)) * slopes(q) * abs(steps(q, k))),
        "the heads are counted from 0",
    ),
    (
        with_score(lambda q, k: scaled(q, k) - slopes(q) ** (q.size(1) / 8) * abs(steps(q, k))),
        "the slopes are 2^-1, 2^-2 and so on, which is right for 8 heads only",
    ),
    (
        with_score(lambda q, k: scaled(q, k) - linear(q) * abs(steps(q, k))),
        "the slopes grow along a line",
    ),
    (
        with_score(lambda q, k: scaled(q, k) - abs(steps(q, k)) / slopes(q)),
        "the exponent is positive",
    ),
    (
        with_score(lambda q, k: (product(q, k) - slopes(q) * abs(steps(q, k))) / q.size(3) ** 0.5),
        "the penalty is divided by √d, too",
    ),
    (
        with_score(lambda q, k: product(q, k) - slopes(q) * abs(steps(q, k))),
        "the product is not scaled",
    ),
    (AfterTheSoftmax, "added to the weights, after the softmax"),
    (OnlyShown, "the weights are right, but other ones have mixed the values"),
    (OnlyWithWeights, "the weights are right, but other ones have mixed the values"),
    (ForgetsTheFuture, "the shape is right, but"),
    (Learned, "ALiBi's slopes are fixed, but slopes would be learned"),
    (
        with_score(lambda q, k: scaled(q, k).detach() - slopes(q) * abs(steps(q, k))),
        "the output is right, but",
    ),
    (
        with_score(lambda q, k: scaled(q, k) - slopes(q) * abs(steps(q, k)) ** 2),
        "the shape is right, but",
    ),
    (with_score(lambda q, k: steps(q, k)[:2, :2]), "your module raises ValueError"),
    (with_score(lambda q, k: None), "your module raises"),
    (nn.MultiheadAttention, "give a class that inherits from MultiheadAttention"),
    (MultiheadAttention(24, 4), "give a class that inherits from MultiheadAttention"),
]


@pytest.mark.parametrize(("answer", "reason"), WRONG, ids=[reason for _, reason in WRONG])
def test_alibi_names_the_mistake(verdict: Any, answer: object, reason: str) -> None:
    said = verdict(check_alibi, answer)
    assert said.startswith("✗ AlibiAttention: ")
    assert reason in said


def test_take_over_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_take_over")
    assert before.startswith("✗ take_over: with the default settings, training is True and must")
    assert after.startswith("✓ take_over: right, for 9 kinds of modules")


def settings(theirs: nn.MultiheadAttention) -> dict[str, Any]:
    names = ["embed_dim", "num_heads", "dropout", "add_zero_attn", "kdim", "vdim", "batch_first"]
    found = {name: getattr(theirs, name) for name in names}
    state = theirs.state_dict()
    dtype = state["out_proj.weight"].dtype
    return found | {
        "bias": "in_proj_bias" in state,
        "add_bias_kv": "bias_k" in state,
        "dtype": dtype,
    }


def taking(
    *left_out: str, load: bool = True, strict: bool = True, follow: bool = True, **changed: Any
) -> Callable[[nn.MultiheadAttention], MultiheadAttention]:
    """Take over a module, but for some things."""

    def answer(theirs: nn.MultiheadAttention) -> MultiheadAttention:
        kept = {k: v for k, v in settings(theirs).items() if k not in left_out}
        ours = MultiheadAttention(**{**kept, **changed})
        if load:
            ours.load_state_dict(theirs.state_dict(), strict=strict)
        return ours.train(theirs.training if follow else True)

    return answer


def copied(theirs: nn.MultiheadAttention) -> MultiheadAttention:
    """Right: parameter by parameter."""
    ours = MultiheadAttention(**settings(theirs))
    with torch.no_grad():
        for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            mine.copy_(other)
    ours.training = theirs.training
    return ours


def spoiling(theirs: nn.MultiheadAttention) -> MultiheadAttention:
    ours = taking()(theirs)
    theirs.eval()
    return ours


@pytest.mark.parametrize("answer", [taking(), copied])
def test_take_over_accepts_other_ways(verdict: Any, answer: Callable[..., Any]) -> None:
    assert verdict(check_take_over, answer).startswith("✓ take_over")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (taking("batch_first"), "with batch_first=True, batch_first is False and must be True"),
        (taking("add_zero_attn"), "with add_zero_attn=True, add_zero_attn is False and must be"),
        (taking("dropout"), "with dropout=0.5, dropout is 0.0 and must be 0.5"),
        (taking("bias"), "with a module that has bias=False, raises RuntimeError"),
        (taking("add_bias_kv"), "with a module that has add_bias_kv=True, raises RuntimeError"),
        (taking("kdim"), "with a module that has kdim=7, vdim=9, raises RuntimeError"),
        (taking("dtype"), "is torch.float64 in PyTorch's and torch.float32 in yours"),
        (taking(load=False), "with the default settings, in_proj_weight has other numbers"),
        (taking(follow=False), "training is True and must be False"),
        (taking(num_heads=2), "num_heads is 2 and must be 4: every shape fits"),
        (
            taking("bias", strict=False),
            "only one of the two modules has in_proj_bias, out_proj.bias",
        ),
        (lambda theirs: theirs, "it returns PyTorch's own module"),
        (lambda theirs: theirs.state_dict(), "an object of type OrderedDict"),
        (lambda theirs: None, "not yet, it returns None"),
        (spoiling, "it changes PyTorch's module"),
    ],
)
def test_take_over_names_the_mistake(verdict: Any, answer: Callable[..., Any], reason: str) -> None:
    said = verdict(check_take_over, answer)
    assert said.startswith("✗ take_over: ")
    assert reason in said
