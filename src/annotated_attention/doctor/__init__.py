"""Examine an attention that nobody has seen before, and say what is wrong with it.

Stage one asks questions whose answers are known for every right attention, whatever its weights.
Stage two takes the weights, where it can find them, and compares with the right version and with
every entry of ``annotated_attention.mistakes``, to name what is wrong.

Examples:
    >>> from annotated_attention import MultiheadAttention
    >>> from annotated_attention.doctor import adapters, examine
    >>> module = MultiheadAttention(24, 4, batch_first=True)
    >>> examine(adapters.torch_like(module), embed_dim=24, num_heads=4).ok
    True
"""

from typing import TYPE_CHECKING

from annotated_attention._lazy import import_lazily

if TYPE_CHECKING:
    from annotated_attention.doctor import adapters
    from annotated_attention.doctor.examination import examine
    from annotated_attention.doctor.report import Finding, Report

__all__ = ["Finding", "Report", "adapters", "examine"]

import_lazily(__name__)
