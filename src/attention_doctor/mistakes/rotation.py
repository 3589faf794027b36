"""Rotary positions that turn the wrong features, or one side alone."""

from typing import Any

import torch
from torch import Tensor

from annotated_attention.modern.rotary import LAYOUTS, RotaryAttention
from annotated_attention.multihead import MultiheadAttention
from attention_doctor.mistakes._registry import mistake


@mistake(
    wrong='rotary = RotaryEmbedding(d, layout="interleaved")  # with weights trained for "half"',
    right='rotary = RotaryEmbedding(d, layout="half")',
    of=RotaryAttention,
)
class RotationLayoutMixed(RotaryAttention):
    """Features are turned in the pairs of one layout, with weights trained for the other.

    Every pair of features then turns by an angle that was meant for others. All shapes fit, the
    scores still depend on the distance alone, and training from scratch works. Only with loaded
    weights are the scores wrong, least at short distances, and only a reference shows it. With one
    pair per head the layouts are the same.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        """Create the right version, then take the other layout."""
        super().__init__(*args, **options)
        (self.rotary.layout,) = set(LAYOUTS) - {self.rotary.layout}


@mistake(
    wrong="q = rotary(q, positions)",
    right="q, k = rotary(q, positions), rotary(k, positions)",
    of=RotaryAttention,
)
class RotatesOneSide(RotaryAttention):
    """The queries are turned with their positions, and the keys are not.

    The scores then depend on where the query stands and not on how far away the key is. All shapes
    fit, token 0 is right, and a model still learns from a position that it gets in the wrong way.
    It does not keep what it learned when a text begins a few tokens later.
    """

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, **options: Any
    ) -> tuple[Tensor, Tensor | None]:
        q = self.rotary(q, torch.arange(q.size(-2), device=q.device))
        return MultiheadAttention.attend(self, q, k, v, **options)
