"""Exercises of "Testing attention": a number to mend, and a probe to write."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from annotated_attention.multihead import MultiheadAttention
from annotated_book.exercises import _doctor
from annotated_book.exercises._exercise import Exercise, NotYet, Refused, require_function
from attention_doctor.mistakes.reshapes import BatchMixedIntoSequence, HeadsOfOtherSamples

Attend = Callable[[Tensor], Tensor]


class _Attention(MultiheadAttention):
    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__(embed_dim, num_heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, x, x, is_causal=True)[0]


def _is_made(answer: Any) -> Tensor:
    return torch.tensor(isinstance(_doctor.made(answer), nn.Module))


def _require_scaled(answer: Any) -> None:
    for width in (_doctor.WIDTH, 2 * _doctor.WIDTH):
        report = _doctor.require_healthy(_doctor.made(answer, width), width, "causal")
        if "= 1/√" not in report.inside:
            raise Refused("the doctor sees no factor 1/√d. Keep what `Near` computes.")


check_scaled = Exercise(
    name="Scaled",
    right=_Attention,
    praise="the doctor is content, at two widths.",
    wrong={},
    run=_is_made,
    also=_require_scaled,
)


def _attend(version: type[MultiheadAttention]) -> Attend:
    torch.default_generator.manual_seed(15)
    module = version(_doctor.WIDTH, _doctor.HEADS, batch_first=True).eval()
    return lambda x: module(x, x, x)[0]


def _one_sees_another(right: Attend, sample: int, other: int) -> Attend:
    """Give an attention in which one sample sees another, and no others do."""

    def attend(x: Tensor) -> Tensor:
        output = right(x).clone()
        if len(x) > 1:
            output[sample] += 0.1 * x[other]
        return output

    return attend


@functools.cache
def _attentions() -> dict[str, Attend]:
    """Make attentions whose samples do not touch each other, and some whose samples do."""
    right = _attend(MultiheadAttention)
    return {
        "the right version": right,
        "one that rounds otherwise each time": lambda x: right(x) + 1e-7 * torch.rand_like(x),
        "tensors reshaped in the wrong layout": _attend(BatchMixedIntoSequence),
        "heads that are given to other samples": _attend(HeadsOfOtherSamples),
        "one in which only the last sample sees another": _one_sees_another(right, -1, 0),
        "one in which only the first sample sees another": _one_sees_another(right, 0, -1),
    }


def _samples_touch(attend: Attend) -> bool:
    x = torch.randn(3, 5, _doctor.WIDTH)
    alone = torch.cat([attend(x[i : i + 1]) for i in range(len(x))])
    return not torch.allclose(attend(x), alone, atol=1e-4)


def _said(probe: Callable[[Attend], Any]) -> Tensor:
    """Let the probe judge all of them."""
    require_function(probe)
    return torch.tensor([_yes_or_no(probe(attend)) for attend in _attentions().values()])


def _yes_or_no(value: object) -> bool:
    if value is None or value is ...:
        raise NotYet(f"it returns {value if value is None else '...'}")
    if isinstance(value, Tensor) and value.numel() == 1 and value.dtype == torch.bool:
        return bool(value)
    if not isinstance(value, bool):
        kind = type(value).__name__
        raise Refused(f"it returns an object of type {kind}; True or False is asked for.")
    return value


def _which(answer: object, found: Tensor, right: Tensor) -> str:
    i = int((found != right).nonzero()[0])
    verb = "touch" if right[i] else "do not touch"
    name = [*_attentions()][i]
    return f"given {name}, it says {bool(found[i])}, but there the samples {verb} each other."


check_samples_touch = Exercise(
    name="samples_touch",
    right=_samples_touch,
    praise="right about all of them: what is in one sample changes nothing in another.",
    wrong={},
    run=_said,
    why=_which,
)
