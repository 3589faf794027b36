"""The description of a published design, so that all designs can be called in the same way."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from annotated_attention.multihead import MultiheadAttention

Call = Callable[[Any, Tensor, Tensor, Tensor, Tensor | None], Tensor]


@dataclass(frozen=True)
class Design:
    """A published design, with what is needed to build it and to call it like any other.

    Attributes:
        module: class of the design.
        build: creates a module from ``embed_dim`` and ``num_heads``.
        call: takes a module, ``query`` (b, n, e), ``key`` and ``value`` (b, m, e), and ``blocked``,
            boolean (b, n, m) with True = blocked, or None; passes them on in the design's own
            layout, order and convention, and returns (b, n, e).
        layout: axes of the query that the design takes.
        mask: axes of the mask that the design takes.
        true_means: meaning of True, or 1, in that mask: ``"blocked"`` or ``"allowed"``.
        kind: ``"cross"``, or ``"self"`` if query, key and value have to be one tensor.

    Examples:
        >>> import torch
        >>> from annotated_attention.published import DESIGNS, Design
        >>> design = DESIGNS["sequence first"]
        >>> isinstance(design, Design), design.layout, design.arguments
        (True, '(n, b, e)', ('query', 'key', 'value', 'mask'))
        >>> module, reference = design.pair(24, 4)
        >>> query, memory = torch.randn(2, 3, 24), torch.randn(2, 5, 24)
        >>> output = design.call(module.eval(), query, memory, memory, None)
        >>> torch.testing.assert_close(output, reference(query, memory, memory)[0])
    """

    module: type[nn.Module]
    build: Callable[[int, int], nn.Module]
    call: Call
    layout: str
    mask: str
    true_means: str
    kind: str = "cross"

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the arguments of ``forward``, in order."""
        return tuple(inspect.signature(self.module.forward).parameters)[1:]

    def pair(self, embed_dim: int, num_heads: int) -> tuple[nn.Module, MultiheadAttention]:
        """Make a module of the design, and the batch-first multi-head attention that it equals.

        The module loads the weights of the reference where it can. A design that cannot express
        every multi-head attention builds the one that it equals instead.

        Examples:
            >>> from annotated_attention.published import DESIGNS
            >>> [type(module).__name__ for module in DESIGNS["sequence first"].pair(24, 4)]
            ['SequenceFirst', 'MultiheadAttention']
        """
        module: Any = self.build(embed_dim, num_heads)
        if not hasattr(module, "load_from"):
            return module, module.as_multihead()
        reference = MultiheadAttention(embed_dim, num_heads, batch_first=True)
        for bias in (reference.in_proj_bias, reference.out_proj.bias):
            if bias is not None:
                nn.init.normal_(bias)  # at zero, a bias that is left out would go unnoticed
        module.load_from(reference)
        return module, reference
