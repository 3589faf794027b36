"""Groups of heads that share the wrong keys and values."""

from typing import Any

from torch import Tensor

from annotated_attention.modern.grouped import GroupedQueryAttention
from attention_doctor.mistakes._registry import mistake


@mistake(
    wrong="k, v = (x.repeat(1, h // g, 1, 1) for x in (k, v))",
    right="k, v = (x.repeat_interleave(h // g, dim=1) for x in (k, v))",
    of=GroupedQueryAttention,
)
class GroupsTiled(GroupedQueryAttention):
    """All heads of the keys are repeated one after the other, not each head several times in a row.

    With `repeat`, neighbouring heads of queries get different keys; with `repeat_interleave` they
    share them. Both give h heads of the right shape, and a model trained either way is a valid one.
    With weights trained the other way, heads read other keys. One head of keys shows nothing.
    """

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, **options: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Repeat all heads one after the other, then attend: every head has its own keys."""
        k, v = (x.repeat(1, self.num_heads // x.size(1), 1, 1) for x in (k, v))  # (b, h, m, d)
        return super().attend(q, k, v, **options)
