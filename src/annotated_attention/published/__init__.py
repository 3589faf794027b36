"""Published designs of multi-head attention, made correct: one module for each.

Seven designs that readers meet when they look for code, in our own words: each keeps its layout,
its mask convention, its order of arguments and its options, and computes what it should. To prove
it, a design has ``load_from(reference)``, or ``as_multihead()`` where not every multi-head
attention can be written in it. All are in ``DESIGNS``, where they can be called alike.

A query whose keys are all blocked gets weights of zero, finite gradients, and with them the bias
of the output projection, as in ``MultiheadAttention``.

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
from annotated_attention.published.packed_projection import PackedBase, PackedProjection
from annotated_attention.published.sequence_first import PrepareHeads, SequenceFirst
from annotated_attention.published.shared_projection import SharedProjection
from annotated_attention.published.shortest import Shortest
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
    "PackedBase",
    "PackedProjection",
    "PrepareHeads",
    "SequenceFirst",
    "SharedProjection",
    "Shortest",
    "WeightedScores",
    "WideProjection",
]
