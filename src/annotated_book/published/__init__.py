"""Published designs of multi-head attention, corrected, each in a module of its own.

Seven designs that readers meet when they look for code, rewritten in our own words. Each keeps its
layout, its mask and the order of its arguments, and computes the right result. To prove it, a
design has ``as_multihead()``, which builds the multi-head attention that it equals. All of them are
in ``DESIGNS``, through which they can be called in the same way.

In all of them, ``embed_dim`` is e, the width of the inputs and of the output, and ``num_heads`` is
h; a head is d = e / h wide, so e must be divisible by h. A fully masked row has weights of zero and
finite gradients, so its output is the bias of the output projection, as in ``MultiheadAttention``.
What does not fit is refused with a TypeError or a ValueError that names it. Where True means
"allowed", a mask may hold integers. Each of its sizes may be 1, but in the packed projection.

Source: the chapter "Published code", and Vaswani et al. (2017), section 3.2.2.

Examples:
    >>> import torch
    >>> from annotated_book.published import DESIGNS
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

from annotated_book.published.design import Design as Design
from annotated_book.published.module_per_head import ModulePerHead as ModulePerHead
from annotated_book.published.no_projection import NoProjection as NoProjection
from annotated_book.published.packed_projection import PackedProjection as PackedProjection
from annotated_book.published.sequence_first import SequenceFirst as SequenceFirst
from annotated_book.published.shared_projection import SharedProjection as SharedProjection
from annotated_book.published.weighted_scores import WeightedScores as WeightedScores
from annotated_book.published.wide_projection import WideProjection as WideProjection

DESIGNS: dict[str, type[Design]] = {
    "module per head": ModulePerHead,
    "wide projection": WideProjection,
    "shared projection": SharedProjection,
    "sequence first": SequenceFirst,
    "weighted scores": WeightedScores,
    "no projection": NoProjection,
    "packed projection": PackedProjection,
}
