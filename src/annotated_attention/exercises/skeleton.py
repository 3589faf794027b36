"""Multi-head attention, to be written from memory. Copy this file, fill it in, and examine it:

    cp src/annotated_attention/exercises/skeleton.py mine.py
    python -m annotated_attention.doctor mine.py:MyAttention --embed-dim 24 --num-heads 4

The chapter “From memory” has the same exercise, with hints that open one at a time.
"""

from torch import Tensor, nn


class MyAttention(nn.Module):
    """Multi-head attention, batch-first."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        """Create the matrices, with initial values."""
        super().__init__()

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, blocked: Tensor | None = None
    ) -> Tensor:
        """Attend, with True in ``blocked`` for what a query must not see.

        Args:
            query: (b, n, e), batch-first.
            key: (b, m, e), batch-first.
            value: (b, m, e), batch-first.
            blocked: (b, n, m), boolean, or None.
        """
        raise NotImplementedError
