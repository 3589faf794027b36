"""Exercises of "From memory": words in order, against the clock, and somebody else's answer."""

import time
from typing import Any

import torch
from torch import Tensor

from annotated_attention.multihead import MultiheadAttention
from annotated_book.exercises import _doctor
from annotated_book.exercises._exercise import Exercise, Refused

_MINUTES = 15
_started: float | None = None


def start_clock() -> None:
    """Start the clock; the verdict on ``MyAttention`` says how long it took."""
    global _started
    _started = time.monotonic()
    print(f"In a notebook, the clock now runs. {_MINUTES} minutes is a good time.")


def _taken() -> str:
    """Say how long it took, if the clock was started."""
    if _started is None:
        return ""
    minutes = int((time.monotonic() - _started) // 60)
    passed = "less than a minute" if not minutes else f"{minutes} minute{'s' * (minutes > 1)}"
    return f" Written in {passed}."


_WORDS = ["mask", "merge", "mix", "project", "project", "scale", "score", "softmax", "split"]
_NEEDS = {  # what comes before each word, and why
    "split": ("project", "there is nothing projected to split"),
    "score": ("split", "scores compare the heads' queries and keys: split first"),
    "scale": ("score", "there are no scores to scale"),
    "mask": ("score", "there are no scores to mask"),
    "softmax": ("score", "the softmax needs scores"),
    "mix": ("softmax", "to mix, you need weights, and they come out of the softmax"),
    "merge": ("mix", "nothing is mixed that could be merged"),
}


def _say(answer: Any) -> Tensor:
    """Tell whether words that have what they need come in an order that gives the right numbers."""
    words = list(answer) if isinstance(answer, list | tuple) else []
    if sorted(map(str, words)) != _WORDS:
        raise Refused(f"give each of these words once, in order: {', '.join(_WORDS)}.")
    if words == _WORDS:
        raise Refused("not yet, it is still the alphabet.")
    for i, word in enumerate(words):
        needed, missing = _NEEDS.get(word, ("", ""))
        if needed and needed not in words[:i]:
            raise Refused(f"“{word}” comes too early: {missing}.")
        if word in words[:i] and "merge" not in words[:i]:
            raise Refused("the second “project” comes too early: merge the heads first.")
    softmax = words.index("softmax")
    return torch.tensor(words.index("scale") < softmax and words.index("mask") < softmax)


check_order = Exercise(
    name="order",
    right=["project", "split", "score", "scale", "mask", "softmax", "mix", "merge", "project"],
    praise="right: run in this order, the words give masked multi-head attention.",
    wrong={
        "it runs, and the numbers are wrong: scale and mask work on the scores, before the softmax "
        "makes weights of them.": [
            "project",
            "split",
            "score",
            "scale",
            "softmax",
            "mask",
            "mix",
            "merge",
            "project",
        ],
    },
    run=_say,
)


class _Attention(MultiheadAttention):
    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__(embed_dim, num_heads, batch_first=True)

    def forward(  # type: ignore[override]
        self, query: Tensor, key: Tensor, value: Tensor, blocked: Tensor | None = None
    ) -> Tensor:
        blocked = None if blocked is None else blocked.repeat_interleave(self.num_heads, 0)
        return super().forward(query, key, value, attn_mask=blocked)[0]


def _attended(answer: Any) -> Any:
    """Let a module of the reader's class attend, and give zeros in the shape of its output."""
    x = torch.randn(2, 5, _doctor.WIDTH)
    output = _doctor.made(answer)(x[:, :3], x, x)
    output = output[0] if isinstance(output, tuple) and output else output
    return torch.zeros(output.shape) if isinstance(output, Tensor) else output


def _examined(answer: Any) -> str:
    """Say that the class is right, or refuse it."""
    _require_initialised(answer)
    report = _doctor.require_healthy(_doctor.made(answer))
    _require_refusal(answer)
    also = "".join(f" By convention: {finding.symptom}." for finding in report.findings)
    return f"right, the doctor finds nothing wrong.{also}"


def _require_initialised(answer: Any) -> None:
    """Refuse parameters that hold whatever was in memory; here, that is NaN."""
    before = torch.get_deterministic_debug_mode()
    # `use_deterministic_algorithms` does the same, and first imports PyTorch's compiler.
    torch.set_deterministic_debug_mode("warn")
    try:
        module = _doctor.made(answer)
    finally:
        torch.set_deterministic_debug_mode(before)
    for name, parameter in module.named_parameters():
        if parameter.isnan().any():
            raise Refused(
                f"{name} is never given numbers: torch.empty holds whatever was in memory. "
                "nn.init.xavier_uniform_ fills a matrix in place."
            )


def _require_refusal(answer: Any) -> None:
    """Refuse a class that takes a width which its heads do not divide."""
    try:
        answer(10, 4)
    except (ValueError, AssertionError):
        return
    except Exception as error:
        said = f"stops with {type(error).__name__}"
    else:
        said = "is accepted"
    raise Refused(
        f"it computes the right thing. But MyAttention(10, 4) {said}: 4 heads do not divide 10. "
        "Raise a ValueError of its own in the constructor."
    )


check_attention = Exercise(
    name="MyAttention",
    right=_Attention,
    praise=lambda answer: _examined(answer) + _taken(),
    wrong={},
    run=_attended,
    shape="(b, n, e)",
)

check_mended = Exercise(
    name="Mended",
    right=_Attention,
    praise=_examined,
    wrong={},
    run=_attended,
    shape="(b, n, e)",
)
