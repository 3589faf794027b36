"""Examine any implementation of attention, and report what is wrong with it.

First it tests properties that every correct attention has, whatever its weights. Then, if it finds
the weights, it puts them into a right attention and into every entry of
``annotated_attention.mistakes``: the one whose outputs agree names the mistake.

From Python, a module that is called as ``torch.nn.MultiheadAttention`` is goes through
``torch_like``. From a shell nothing of this is needed.

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
    from annotated_attention.doctor import abilities, adapters, layouts
    from annotated_attention.doctor.examination import examine
    from annotated_attention.doctor.model import ModelReport, examine_model
    from annotated_attention.doctor.places import Where
    from annotated_attention.doctor.report import Finding, Report
    from annotated_attention.doctor.testing import assert_attention

__all__ = [
    "Finding",
    "ModelReport",
    "Report",
    "Where",
    "abilities",
    "adapters",
    "assert_attention",
    "examine",
    "examine_model",
    "layouts",
]

import_lazily(__name__)
