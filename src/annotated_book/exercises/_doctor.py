"""What the doctor says of a class that a reader wrote, for the exercises about the doctor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from annotated_book.exercises._exercise import Refused, require_function

if TYPE_CHECKING:
    from attention_doctor import Report

WIDTH, HEADS = 24, 4


def made(answer: Any, embed_dim: int = WIDTH) -> nn.Module:
    """Make a module of the reader's class, with the same numbers each time."""
    require_function(answer)
    if isinstance(answer, nn.Module):
        raise Refused("give the class itself, not a module of it.")
    torch.default_generator.manual_seed(15)
    module = answer(embed_dim, HEADS)
    if not isinstance(module, nn.Module):
        raise Refused(f"it makes an object of type {type(module).__name__}; a module is asked for.")
    return module


def require_healthy(module: nn.Module, embed_dim: int = WIDTH, kind: str = "cross") -> Report:
    """Refuse a module in which the doctor finds something wrong; give the report.

    Another scale, by convention elsewhere, is not what is asked for here.
    """
    from attention_doctor import examine

    report = examine(module, embed_dim=embed_dim, num_heads=HEADS, kind=kind)
    scales = ("no-scale", "scale-by-convention")
    wrong = [x for x in report.findings if x.severity != "convention" or x.code in scales]
    if wrong:
        first, more = wrong[0], [finding.code for finding in wrong[1:]]
        parts = [
            f"the doctor finds {len(wrong)} thing{'s' * bool(more)}. {first.code}: {first.symptom}",
            first.evidence,
            f"Where: {first.where}" if first.where is not None else "",
            first.remedy,
            f"Then: {', '.join(more)}" if more else "",
        ]
        said = [parts[0], *(f"{part[0].upper()}{part[1:]}" for part in parts[1:] if part)]
        raise Refused(" ".join(f"{part.rstrip('.')}." for part in said))
    return report
