"""The checks of “Multi-head attention” accept what is right and name what is wrong."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from annotated_attention import MultiheadAttention
from annotated_attention.exercises.multihead_attention import check_alibi, check_take_over

CHAPTER = "07_multihead_attention"


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
