"""Heads that are split or merged wrongly: every number is there, in another place."""

from typing import Any

from torch import Tensor

from annotated_attention.heads import merge_heads, split_heads
from annotated_attention.multihead import MultiheadAttention


def merge_without_transpose(x: Tensor) -> Tensor:
    """Give (..., n, h * d) by reading the numbers of (..., h, n, d) in the order they lie in.

    Row i of the result then holds h neighbouring tokens of one head, not token i of every head.
    Shape and numbers are those of the right version, only not in their places, and a model trains
    with it. Under a causal mask it shows each token some of its future.

    Args:
        x: (..., h, n, d), one slice per head.
    """
    *batch, h, n, d = x.shape
    return x.reshape(*batch, n, h * d)  # (..., n, h * d)


def split_without_transpose(x: Tensor, num_heads: int) -> Tensor:
    """Give (..., h, n, d) by reading the numbers of (..., n, h * d) in the order they lie in.

    Head i then holds all features of a run of tokens, not some features of all tokens: the first
    head sees only the beginning of the sequence, the last only its end. A straight reshape back is
    its exact inverse, so that splitting and merging looks right. What a token receives depends on
    how long its sequence is and on where in it the token stands.

    Args:
        x: (..., n, h * d), one row per token.
        num_heads: how many.
    """
    *batch, n, width = x.shape
    return x.reshape(*batch, num_heads, n, width // num_heads)  # (..., h, n, d)


class MergeWithoutTranspose(MultiheadAttention):
    """The heads are merged by a straight reshape, without moving them behind the tokens first.

    An output row holds h neighbouring tokens of one head instead of one token of every head, so a
    token gets what others asked for, and under a causal mask some of its future. Every shape stays,
    and the loss falls, further than it should: nothing is wrong until the model has to generate.
    """

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
        """Attend rightly, and hand on what the right merge turns into the wrong one's result."""
        heads, weights = super().attend(q, k, v, **options)
        return split_heads(merge_without_transpose(heads), self.num_heads), weights


class SplitWithoutTranspose(MultiheadAttention):
    """The features are split into heads by a straight reshape; the tokens lose their rows.

    A head holds all features of a run of tokens instead of some features of all tokens. Queries,
    keys and values are cut alike, so that scores, weights and their sums look as they should, and
    the merge, which is right, cannot put the tokens back.
    """

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
        """Undo the right split, and split wrongly."""
        q, k, v = (split_without_transpose(merge_heads(x), self.num_heads) for x in (q, k, v))
        return super().attend(q, k, v, **options)
