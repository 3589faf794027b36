"""Exercises of "From memory": attention against the clock, and somebody else's answer."""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from annotated_attention.doctor import Report, examine
from annotated_attention.exercises._verdict import (
    Refused,
    call,
    check,
    random,
    require_function,
    require_shape,
    require_tensor,
)
from annotated_attention.mistakes import MISTAKES

_MINUTES = 15
_E, _H = 24, 4
_SHAPES = ((2, 3, _E), (2, 5, _E), (2, 5, _E))  # of query, key and value
_started: float | None = None


def start_clock() -> None:
    """Start the clock; the verdict on ``MyAttention`` says how long it took."""
    global _started
    _started = time.monotonic()
    print(f"The clock is running. {_MINUTES} minutes are a good time.")


def _taken() -> str:
    """Say how long it took, if the clock was started."""
    if _started is None:
        return ""
    minutes = int((time.monotonic() - _started) // 60)
    passed = "less than a minute" if not minutes else f"{minutes} minute{'s' * (minutes > 1)}"
    return f" Written in {passed}."


@check("MyAttention")
def check_attention(answer: Callable[..., Any]) -> str:
    """Let the doctor examine ``MyAttention``, and print the verdict.

    Args:
        answer: the reader's class, made from ``embed_dim`` and ``num_heads``. Its ``forward`` takes
            query (b, n, e), key and value (b, m, e) and blocked, (b, n, m) with True = blocked, or
            None, and returns (b, n, e), alone or with the weights.
    """
    return _judge(answer) + _taken()


@check("Mended")
def check_mended(answer: Callable[..., Any]) -> str:
    """Let the doctor examine the mended class, and print the verdict.

    Args:
        answer: as for ``check_attention``.
    """
    return _judge(answer)


def _judge(answer: Callable[..., Any]) -> str:
    """Judge a class: what it is, what it returns, where it starts, and what the doctor says."""
    require_function(answer)
    if not (isinstance(answer, type) and issubclass(answer, nn.Module)):
        raise Refused("give the class itself, a subclass of nn.Module; its objects are made here.")
    module = call("its constructor", answer, _E, _H)
    output = call("your code", module, *(x.float() for x in random(0, *_SHAPES)))
    output = output[0] if isinstance(output, tuple) and output else output
    require_shape("it returns", require_tensor("it returns", output), "(b, n, e)", _SHAPES[0])
    _require_initialised(answer)
    report = examine(module, embed_dim=_E, num_heads=_H)
    if not report.ok:
        raise Refused(_worst(report))
    _require_refusal(answer)
    conventions = [finding for finding in report.findings if finding.severity == "convention"]
    also = "".join(f" By convention: {finding.symptom}." for finding in conventions)
    return f"right, the doctor finds nothing wrong.{also}"


def _worst(report: Report) -> str:
    """Say what is wrong, and how many more things are."""
    wrong = [finding for finding in report.findings if finding.severity != "convention"]
    wrong.sort(key=lambda finding: finding.code not in MISTAKES)  # what has a name goes first
    first, more = wrong[0], len(wrong) - 1
    parts = [f"The doctor finds {first.code}: {first.symptom}", first.evidence, first.remedy]
    if more:
        parts.append(f"And {more} more: {', '.join(finding.code for finding in wrong[1:])}")
    return " ".join(f"{part[0].upper()}{part[1:].rstrip('.')}." for part in parts if part)


def _require_initialised(answer: Callable[..., nn.Module]) -> None:
    """Refuse parameters that hold whatever was in memory; here, that is NaN."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        module = call("its constructor", answer, _E, _H)
    finally:
        torch.use_deterministic_algorithms(before)
    for name, parameter in module.named_parameters():
        if parameter.isnan().any():
            raise Refused(
                f"{name} is never given numbers: torch.empty holds whatever was in memory. "
                "nn.init.xavier_uniform_ fills a matrix in place."
            )


def _require_refusal(answer: Callable[..., nn.Module]) -> None:
    """Refuse a class that takes a width which its heads do not divide."""
    try:
        answer(10, 4)
    except (ValueError, AssertionError):
        return
    except Exception as error:
        said = type(error).__name__
        raise Refused(
            f"it computes the right thing. But MyAttention(10, 4) stops with {said}: 4 heads do "
            "not divide 10, and a ValueError of its own says so."
        ) from None
    raise Refused(
        "it computes the right thing. But embed_dim = 10 and num_heads = 4 are accepted: 4 does "
        "not divide 10. Raise a ValueError in the constructor."
    )
