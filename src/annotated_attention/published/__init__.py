"""Published designs of multi-head attention, corrected, each in a module of its own.

Seven designs that readers meet when they look for code, rewritten in our own words. Each keeps its
layout, mask convention, order of arguments and options, and computes the right result. To prove it,
a design has ``load_from(reference)``, or ``as_multihead()`` if it cannot express every multi-head
attention. All of them are in ``DESIGNS``, through which they can be called in the same way.

A fully masked row has weights of zero and finite gradients, so its output is the bias of the output
projection, as in ``MultiheadAttention``.

Examples:
    >>> import torch
    >>> from annotated_attention.published import DESIGNS
    >>> x = torch.randn(2, 3, 24)
    >>> for name, design in DESIGNS.items():
    ...     output = design.call(design.build(24, 4), x, x, x, None)
    ...     assert output.shape == x.shape
    ...     print(f"{name:17}  {design.layout:9}  True means {design.true_means}")
    module per head    (b, n, e)  True means allowed
    wide projection    (b, n, e)  True means allowed
    shared projection  (b, n, e)  True means allowed
    sequence first     (n, b, e)  True means allowed
    weighted scores    (b, n, e)  True means blocked
    no projection      (b, n, e)  True means blocked
    packed projection  (n, b, e)  True means blocked
"""

from annotated_attention.published import (
    module_per_head,
    no_projection,
    packed_projection,
    sequence_first,
    shared_projection,
    weighted_scores,
    wide_projection,
)
from annotated_attention.published.design import Design
from annotated_attention.published.module_per_head import ModulePerHead
from annotated_attention.published.no_projection import NoProjection
from annotated_attention.published.packed_projection import PackedProjection
from annotated_attention.published.sequence_first import SequenceFirst
from annotated_attention.published.shared_projection import SharedProjection
from annotated_attention.published.weighted_scores import WeightedScores
from annotated_attention.published.wide_projection import WideProjection

DESIGNS: dict[str, Design] = {
    "module per head": module_per_head.DESIGN,
    "wide projection": wide_projection.DESIGN,
    "shared projection": shared_projection.DESIGN,
    "sequence first": sequence_first.DESIGN,
    "weighted scores": weighted_scores.DESIGN,
    "no projection": no_projection.DESIGN,
    "packed projection": packed_projection.DESIGN,
}

__all__ = [
    "DESIGNS",
    "Design",
    "ModulePerHead",
    "NoProjection",
    "PackedProjection",
    "SequenceFirst",
    "SharedProjection",
    "WeightedScores",
    "WideProjection",
]
