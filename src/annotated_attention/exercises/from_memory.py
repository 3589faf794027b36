"""Exercises of "From memory": words in order, against the clock, and somebody else's answer."""

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from annotated_attention.doctor import Finding, examine
from annotated_attention.exercises._verdict import (
    Refused,
    call,
    check,
    random,
    require_function,
    require_shape,
    require_tensor,
    wrong_in,
)
from annotated_attention.heads import merge_heads, split_heads
from annotated_attention.masks import block_future
from annotated_attention.mistakes import MISTAKES

_MINUTES = 15
_E, _H = 24, 4
_SHAPES = ((2, 3, _E), (2, 5, _E), (2, 5, _E))  # of query, key and value
_started: float | None = None


def start_clock() -> None:
    """Start the clock; the verdict on ``MyAttention`` says how long it took."""
    global _started
    _started = time.monotonic()
    print(f"The clock is running. {_MINUTES} minutes is a good time.")


def _taken() -> str:
    """Say how long it took, if the clock was started."""
    if _started is None:
        return ""
    minutes = int((time.monotonic() - _started) // 60)
    passed = "less than a minute" if not minutes else f"{minutes} minute{'s' * (minutes > 1)}"
    return f" Written in {passed}."


_WORDS = ("mask", "merge", "mix", "project", "project", "scale", "score", "softmax", "split")
_NEEDS = {  # what each word works on, and how to say that it is missing
    "split": ("projected", "there is nothing projected to split"),
    "score": ("heads", "scores compare the heads' queries and keys: split first"),
    "scale": ("scores", "there are no scores to scale"),
    "mask": ("scores", "there are no scores to mask"),
    "softmax": ("scores", "the softmax needs scores"),
    "mix": ("weights", "to mix, you need weights, and they come out of the softmax"),
    "merge": ("mixed", "nothing is mixed that could be merged"),
}


@check("order")
def check_order(answer: object) -> str:
    """Run the words in the order given, and print the verdict.

    Args:
        answer: the nine words of ``_WORDS``, in an order of the reader's.
    """
    if not isinstance(answer, list | tuple) or sorted(map(str, answer)) != list(_WORDS):
        raise Refused(f"give each of these words once, in order: {', '.join(_WORDS)}.")
    if list(answer) == list(_WORDS):
        raise Refused("not yet, it is still the alphabet.")
    right = "project split score scale mask softmax mix merge project"
    output, wanted = _say(list(answer)), _say(right.split())
    if not torch.allclose(output, wanted):
        raise Refused(
            "it runs, and the numbers are wrong: scale and mask work on the scores, before the "
            "softmax makes weights of them."
        )
    return "right: run in this order, the words give masked multi-head attention."


def _say(order: list[str]) -> Tensor:
    """Compute attention, a word at a time.

    Raises:
        Refused: a word has nothing to work on.
    """
    x, *matrices = random(0, (2, 5, _E), *[(_E, _E)] * 4)
    state: dict[str, Any] = {}
    for word in order:
        needed, missing = _NEEDS.get(word, (None, ""))
        if needed is not None and needed not in state:
            raise Refused(f"“{word}” comes too early: {missing}.")
        if word == "project" and not state:
            state["projected"] = [x @ w for w in matrices[:3]]
        elif word == "project":
            if "merged" not in state:
                raise Refused("the second “project” comes too early: merge the heads first.")
            state["output"] = state["merged"] @ matrices[3]
        elif word == "split":
            state["heads"] = [split_heads(part, _H) for part in state["projected"]]
        else:
            _work(word, state)
    return state["output"] if "output" in state else state["merged"]


def _work(word: str, state: dict[str, Any]) -> None:
    """Do what a word between split and the output projection says."""
    if word == "score":
        state["scores"] = state["heads"][0] @ state["heads"][1].mT
    elif word == "scale":
        state["scores"] = state["scores"] / math.sqrt(_E // _H)
    elif word == "mask":
        state["scores"] = state["scores"].masked_fill(block_future(5), -math.inf)
    elif word == "softmax":
        state["weights"] = state["scores"].softmax(-1)
    elif word == "mix":
        state["mixed"] = state["weights"] @ state["heads"][2]
    else:
        state["merged"] = merge_heads(state["mixed"])


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
    if wrong := wrong_in(report):
        raise Refused(_worst(wrong))
    _require_refusal(answer)
    conventions = [finding for finding in report.findings if finding.severity == "convention"]
    also = "".join(f" By convention: {finding.symptom}." for finding in conventions)
    return f"right, the doctor finds nothing wrong.{also}"


def _worst(wrong: list[Finding]) -> str:
    """Say what is wrong, and how many more things are."""
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
