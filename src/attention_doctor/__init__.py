"""Examine any implementation of attention, and report what is wrong with it.

It tests what every correct attention must do, whatever its parameters are, and watches which
operations are computed. Where it finds the parameters, it also copies them into a correct attention
and into each of the wrong ones in ``annotated_attention.mistakes``: the one that gives the same
outputs names the mistake.
"""

from typing import TYPE_CHECKING

from annotated_attention._lazy import import_lazily

if TYPE_CHECKING:
    from attention_doctor import adapters
    from attention_doctor.adapters import adapt
    from attention_doctor.examination import examine
    from attention_doctor.models import examine_model
    from attention_doctor.places import Where
    from attention_doctor.report import Finding, ModelReport, Report
    from attention_doctor.testing import assert_attention

__all__ = [
    "Finding",
    "ModelReport",
    "Report",
    "Where",
    "adapt",
    "adapters",
    "assert_attention",
    "examine",
    "examine_model",
]

import_lazily(__name__)
