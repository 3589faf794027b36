"""Exercises of "From memory": a class from an empty file, and somebody else's answer."""

from typing import Any

import torch
from torch import Tensor

from annotated_attention.multihead import MultiheadAttention
from annotated_book.exercises import _doctor
from annotated_book.exercises._exercise import Exercise, Refused


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
    praise=_examined,
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
