"""What all designs have in common: how they are described, called, checked and compared."""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from annotated_attention.checks import check_sequences, check_settings, check_tensors
from annotated_attention.masks import as_blocked
from annotated_attention.multihead import MultiheadAttention


class Design(nn.Module):
    """A published design, which can be built and called like any other.

    Attributes:
        layout: axes of the query that the design takes.
        mask_axes: axes of the mask that the design takes.
        true_means: meaning of True, or 1, in that mask: ``"blocked"`` or ``"allowed"``.
        kind: ``"cross"``, or ``"self"`` if query, key and value have to be one tensor.

    Examples:
        >>> import torch
        >>> from annotated_book.published import DESIGNS
        >>> design = DESIGNS["sequence first"]
        >>> design.layout, design.mask_axes, design.true_means
        ('(n, b, e)', '(n, m, b)', 'allowed')
        >>> module, reference = design.pair(24, 4)
        >>> query, memory = torch.randn(2, 3, 24), torch.randn(2, 5, 24)
        >>> output = design.call(module, query, memory, memory, None)
        >>> torch.testing.assert_close(output, reference(query, memory, memory)[0])
    """

    layout: ClassVar[str]
    mask_axes: ClassVar[str]
    true_means: ClassVar[str]
    kind: ClassVar[str] = "cross"
    to_query: Any  # modules; not all designs have them
    to_key: Any
    to_value: Any
    output: nn.Linear

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        """Keep the settings, or refuse those that do not fit."""
        super().__init__()
        self.head_dim = width_of_head(embed_dim, num_heads)
        self.embed_dim, self.num_heads = embed_dim, num_heads

    @classmethod
    def build(cls, embed_dim: int, num_heads: int) -> Self:
        """Create a module, whatever the order of the design's own settings."""
        return cls(embed_dim=embed_dim, num_heads=num_heads)

    @classmethod
    def pair(cls, embed_dim: int, num_heads: int) -> tuple[Self, MultiheadAttention]:
        """Make a module of the design, and the batch-first multi-head attention that it equals."""
        module = cls.build(embed_dim, num_heads)
        for name, parameter in module.named_parameters():
            if name.endswith("bias"):
                nn.init.normal_(parameter)  # at zero, a bias that is left out would go unnoticed
        return module, module.as_multihead()

    def call(self, query: Tensor, key: Tensor, value: Tensor, blocked: Tensor | None) -> Tensor:
        """Call the module in its own layout, order and convention.

        Args:
            query: (b, n, e), one row per query.
            key: (b, m, e), one row per key.
            value: (b, m, e), one row per key.
            blocked: boolean, (b, n, m), True = blocked, or None.

        Returns:
            (b, n, e).
        """
        raise NotImplementedError

    def as_multihead(self) -> MultiheadAttention:
        """Build the batch-first multi-head attention that this module equals."""
        parts = (self.to_query, self.to_key, self.to_value)
        return self.multihead([x.weight for x in parts], [x.bias for x in parts])

    def multihead(self, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> MultiheadAttention:
        """Build the batch-first multi-head attention with copies of these parameters.

        Args:
            weights: of the projections of query, key and value, one below the other.
            biases: theirs; without any they are zero.
        """
        full = MultiheadAttention(self.embed_dim, self.num_heads, batch_first=True)
        full.to(self.output.weight)
        state = {f"out_proj.{name}": x for name, x in self.output.state_dict().items()}
        state["in_proj_weight"] = torch.cat([*weights])
        packed = torch.cat([*biases]) if biases else full.state_dict()["in_proj_bias"]
        full.load_state_dict(state | {"in_proj_bias": packed})
        return full

    def check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        """Refuse what is not three batches that fit the module and each other."""
        given = {"query": query, "key": key, "value": value}
        for name, x in given.items():
            if isinstance(x, Tensor) and x.dim() != 3:
                raise ValueError(f"{name} must have three axes, got shape {tuple(x.shape)}")
        batch_first = self.layout.startswith("(b")
        check_sequences(given, [self.embed_dim] * 3, batch_first, next(self.parameters()))

    def read_mask(self, name: str, mask: Tensor | None, *sizes: int) -> Tensor | None:
        """Turn the design's mask into one that is True where a query must not see a key.

        Its name is for messages; of the sizes of its axes, its own may be 1. Integers are taken
        where True means "allowed".
        """
        if mask is None:
            return None
        check_tensors(**{name: mask})
        if self.true_means == "blocked" and mask.dtype != torch.bool:
            raise TypeError(f"{name} must be boolean, True = blocked, got {mask.dtype}")
        self.check_shape(name, mask, sizes)
        return as_blocked(mask, true_means=self.true_means)

    def check_shape(self, name: str, x: Tensor, sizes: Sequence[int]) -> None:
        """Refuse another shape than the mask's, or another number of axes.

        Broadcasting would take the b of a mask (b, n, m) for the h of the scores.
        """
        fits = (have in (1, want) for have, want in zip(x.shape, sizes, strict=False))
        if x.dim() != len(sizes) or not all(fits):
            wanted = f"{self.mask_axes} = {tuple(sizes)}; any of these may be 1"
            raise ValueError(f"{name} {tuple(x.shape)} must have shape {wanted}")


def width_of_head(embed_dim: int, num_heads: int) -> int:
    """Give d, or refuse settings from which no module can be built."""
    check_settings({"embed_dim": embed_dim, "num_heads": num_heads})
    return embed_dim // num_heads
