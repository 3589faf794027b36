"""Biases by distance with other numbers than those of checkpoints."""

from typing import Any

import torch
from torch import Tensor

from annotated_attention.mistakes._registry import mistake
from annotated_attention.modern.biases import AlibiBias, BiasedAttention


@mistake(
    wrong="slopes = 2.0 ** (-8 * torch.arange(1, h + 1) / h)",
    right="slopes = alibi_slopes(h)",
    of=BiasedAttention,
)
class AlibiSlopesByFormula(BiasedAttention):
    """The slopes of ALiBi follow the formula where the number of heads is no power of two.

    The paper gives one formula for any number of heads. The authors' code has other slopes where
    that number is no power of two, and checkpoints follow the code. All shapes fit, and training
    from scratch works. With loaded weights, heads look nearer or farther than they were trained
    to. With 8 or 16 heads nothing shows.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        """Create the right version with ALiBi, then take the slopes of the formula."""
        super().__init__(*args, **options)
        self.position_bias = _ByFormula(self.num_heads)


class _ByFormula(AlibiBias):
    """ALiBi with the slopes 2^(-8i / h), whatever h is."""

    def forward(self, positions: Tensor, key_positions: Tensor) -> Tensor:
        distance = (key_positions - positions[:, None]).abs()  # (n, m)
        head = torch.arange(1, self.num_heads + 1, device=distance.device)
        slopes = 2.0 ** (-8 * head / self.num_heads)  # (h,)
        return slopes[:, None, None] * -distance  # (h, n, m)
