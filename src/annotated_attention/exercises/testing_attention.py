"""Exercises of "Testing attention": a number to mend, a class to repair, and a probe to write."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from annotated_attention.doctor import Finding, adapters, examine
from annotated_attention.exercises._verdict import (
    Refused,
    call,
    check,
    require_function,
    wrong_in,
)
from annotated_attention.mistakes import (
    BatchMixedIntoSequence,
    HeadsOfOtherSamples,
    MergeWithoutTranspose,
    SoftmaxOverHeads,
    SplitWithoutTranspose,
)
from annotated_attention.multihead import MultiheadAttention

_E, _H = 24, 4

Attend = Callable[[Tensor], Tensor]


@check("Scaled")
def check_scaled(answer: Callable[..., Any]) -> str:
    """Judge ``Scaled(embed_dim, num_heads)``, a causal self-attention, and print the verdict.

    Args:
        answer: the reader's class, whose modules take x (b, n, e) and return as much.
    """
    for embed_dim in (_E, 2 * _E):
        report = examine(_made(answer, embed_dim), embed_dim=embed_dim, num_heads=_H, kind="causal")
        if report.findings:
            raise Refused(_said([*report.findings]))
        if "= 1/√" not in report.inside:
            raise Refused("the doctor sees no factor 1/√d. Keep what `Near` computes.")
    return "the doctor is content, at two widths."


@check("Repaired")
def check_repaired(answer: Callable[..., Any]) -> str:
    """Judge ``Repaired(embed_dim, num_heads)``, a causal self-attention, and print the verdict.

    Args:
        answer: the reader's class, whose modules take x (b, n, e) and return as much.
    """
    report = examine(_made(answer, _E), embed_dim=_E, num_heads=_H, kind="causal")
    if wrong := wrong_in(report):
        raise Refused(_said(wrong))
    if report.version != "right":
        raise Refused(
            "nothing is wrong with it, but it is not what it should be: with its parameters the "
            "right version gives other outputs. Keep the four layers as they are, and "
            "repair the rest."
        )
    return "the doctor is content, and a right version with its parameters computes the same."


def _made(answer: Callable[..., Any], embed_dim: int) -> nn.Module:
    """Make a module of the reader's class."""
    if isinstance(answer, nn.Module):
        raise Refused("give the class itself, not a module of it.")
    require_function(answer)
    torch.manual_seed(15)
    module = call("making one", answer, embed_dim, _H)
    if not isinstance(module, nn.Module):
        raise Refused(f"it makes an object of type {type(module).__name__}; a module is asked for.")
    return module


def _said(wrong: list[Finding]) -> str:
    """Say what the doctor finds, the first of it in full."""
    first = wrong[0]
    text = f"the doctor finds {len(wrong)} thing{'s' * (len(wrong) > 1)}. {first.code}: "
    text += f"{first.symptom} ({first.evidence})."
    if first.where is not None:
        text += f" Where: {first.where}."
    if first.test == "reference":
        text += f" {first.remedy}"
    if len(wrong) > 1:
        text += f" Then: {', '.join(finding.code for finding in wrong[1:])}."
    return text


@check("samples_touch")
def check_samples_touch(answer: Callable[[Attend], Any]) -> str:
    """Judge ``samples_touch(attend)``, and print the verdict.

    Args:
        answer: the reader's function of an attention, itself a function of x (b, n, e). It is to
            say whether the samples of a batch have to do with each other.
    """
    require_function(answer)
    for name, attend, touch in _patients():
        said = _said_yes(call("your probe", answer, attend))
        if said != touch:
            verb = "touch" if touch else "do not touch"
            raise Refused(f"given {name}, it says {said}, but there the samples {verb} each other.")
    return "right about all of them: what is in one sample changes nothing in another."


def _said_yes(value: object) -> bool:
    """Refuse what is neither True nor False."""
    if value is None or value is ...:
        raise Refused(f"not yet, it returns {value if value is None else '...'}.")
    if isinstance(value, Tensor) and value.numel() == 1 and value.dtype == torch.bool:
        return bool(value)
    if not isinstance(value, bool):
        kind = type(value).__name__
        raise Refused(f"it returns an object of type {kind}; True or False is asked for.")
    return value


def _patients() -> list[tuple[str, Attend, bool]]:
    """Give attentions, each with a name and whether its samples touch each other."""

    def made(version: type[MultiheadAttention]) -> Attend:
        torch.manual_seed(15)
        module = version(_E, _H, batch_first=True).eval()
        attend = adapters.torch_like(module, "self")

        def ask(x: Tensor) -> Tensor:
            return attend(x, None)[0]

        return ask

    right = made(MultiheadAttention)
    return [
        ("the right version", right, False),
        (
            "one that rounds otherwise each time",
            lambda x: right(x) + 1e-7 * torch.rand_like(x),
            False,
        ),
        ("tensors reshaped in the wrong layout", made(BatchMixedIntoSequence), True),
        ("heads that are given to other samples", made(HeadsOfOtherSamples), True),
        ("heads merged by a straight reshape", made(MergeWithoutTranspose), False),
        ("features split by a straight reshape", made(SplitWithoutTranspose), False),
        ("a softmax over the heads", made(SoftmaxOverHeads), False),
        ("one in which only the last sample sees another", _last_sees_first(right), True),
        ("one in which only the first sample sees another", _first_sees_last(right), True),
    ]


def _last_sees_first(right: Attend) -> Attend:
    def ask(x: Tensor) -> Tensor:
        output = right(x)
        return torch.cat([output[:-1], output[-1:] + 0.1 * x[:1].mean() * (len(x) > 1)])

    return ask


def _first_sees_last(right: Attend) -> Attend:
    def ask(x: Tensor) -> Tensor:
        output = right(x)
        return torch.cat([output[:1] + 0.1 * x[-1:].mean() * (len(x) > 1), output[1:]])

    return ask
