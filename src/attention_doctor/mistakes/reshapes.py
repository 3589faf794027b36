"""Heads and samples that are split or merged wrongly: the right numbers in the wrong places."""

from typing import Any

from torch import Tensor

from annotated_attention.heads import merge_heads, split_heads
from annotated_attention.multihead import MultiheadAttention
from attention_doctor.mistakes._registry import mistake


def merge_without_transpose(x: Tensor) -> Tensor:
    """Reshape (..., h, n, d) to (..., n, h * d) directly, without the transpose.

    Examples:
        The tens say which of two heads a number is from, the ones which of three tokens:

        >>> import torch
        >>> from annotated_attention import merge_heads
        >>> from attention_doctor.mistakes.reshapes import merge_without_transpose
        >>> x = torch.tensor([[[10], [11], [12]], [[20], [21], [22]]])
        >>> merge_heads(x).tolist()
        [[10, 20], [11, 21], [12, 22]]
        >>> merge_without_transpose(x).tolist()
        [[10, 11], [12, 20], [21, 22]]
    """
    *batch, h, n, d = x.shape
    return x.reshape(*batch, n, h * d)  # (..., n, h * d)


def split_without_transpose(x: Tensor, num_heads: int) -> Tensor:
    """Reshape (..., n, h * d) to (..., h, n, d) directly, without the transpose.

    A straight reshape back is the exact inverse, so splitting and merging looks right.

    Examples:
        >>> import torch
        >>> from annotated_attention import split_heads
        >>> from attention_doctor.mistakes.reshapes import split_without_transpose
        >>> x = torch.tensor([[10, 20], [11, 21], [12, 22]])
        >>> split_heads(x, 2).squeeze(-1).tolist()
        [[10, 11, 12], [20, 21, 22]]
        >>> split_without_transpose(x, 2).squeeze(-1).tolist()
        [[10, 20, 11], [21, 12, 22]]
    """
    *batch, n, width = x.shape
    return x.reshape(*batch, num_heads, n, width // num_heads)  # (..., h, n, d)


@mistake(
    wrong="heads.reshape(b, n, h * d)",
    right="heads.transpose(1, 2).reshape(b, n, h * d)",
)
class MergeWithoutTranspose(MultiheadAttention):
    """The heads are merged by a straight reshape, without moving them behind the tokens first.

    An output row holds h neighbouring tokens of one head instead of one token of every head. Tokens
    therefore get results of other tokens, and under a causal mask some of their future. Every shape
    is right, and the loss falls further than it should: only generating text shows the mistake.
    """

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
        """Attend, and arrange the heads so that the right merge gives the wrong merge's result."""
        heads, weights = super().attend(q, k, v, **options)
        return split_heads(merge_without_transpose(heads), self.num_heads), weights


@mistake(
    wrong="q.reshape(b, h, n, d)",
    right="q.reshape(b, n, h, d).transpose(1, 2)  # and k and v with m",
)
class SplitWithoutTranspose(MultiheadAttention):
    """The features are split into heads by a straight reshape, without the transpose after it.

    A head holds all features of a run of tokens instead of some features of all tokens. Queries,
    keys and values are cut alike, so scores, weights and their sums look as they should. The merge
    is right, but it cannot put the tokens back in their places.
    """

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
        """Undo the right split, split by a straight reshape, and attend."""
        q, k, v = (split_without_transpose(merge_heads(x), self.num_heads) for x in (q, k, v))
        return super().attend(q, k, v, **options)


@mistake(
    wrong="q.reshape(b, h, n, d)",
    right="q.reshape(b, n, h, d).transpose(1, 2)  # and back: heads.transpose(1, 2).reshape(...)",
)
class SplitAndMergeWithoutTranspose(SplitWithoutTranspose):
    """The heads are split and merged by straight reshapes; the two undo each other.

    Splitting and merging gives the input back, so the usual check passes. In between, head i sees
    nothing but the i-th part of the sequence, with all its features, so tokens attend within their
    part. A causal mask leaks nothing then, and results change with the length of the sequence.
    """

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
        heads, weights = super().attend(q, k, v, **options)
        return split_heads(merge_without_transpose(heads), self.num_heads), weights


@mistake(
    wrong="x.view(n, b, h, d)  # of (b, n, h * d)",
    right="x.view(b, n, h, d)",
)
class BatchMixedIntoSequence(MultiheadAttention):
    """Batch-first tensors are reshaped as if they were sequence-first; samples mix with tokens.

    The reshape reads neighbouring tokens of one sample as one token of all samples. It needs only
    the right number of elements, and the way back undoes it, so the output has the right shape.
    With one sample, as in most quick tests, nothing can be mixed, and the result is right.
    """

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
        """Read queries, keys and values in the wrong layout; write the result back in it."""
        heads, weights = super().attend(*map(_mix_batch, (q, k, v)), **options)
        return _mix_batch(heads, back=True), weights


def _mix_batch(x: Tensor, back: bool = False) -> Tensor:
    b, h, n, d = x.shape
    if back:
        x = x.permute(2, 0, 1, 3).reshape(b, n, h, d)                 # (b, n, h, d)
        return x.transpose(1, 2)                                      # (b, h, n, d)
    return x.transpose(1, 2).reshape(n, b, h, d).permute(1, 2, 0, 3)  # (b, h, n, d)


@mistake(
    wrong="heads.view(h, b, n, d)  # of (b * h, n, d)",
    right="heads.view(b, h, n, d)",
)
class HeadsOfOtherSamples(MultiheadAttention):
    """Batch and heads are folded into one axis as (b, h) and unfolded as (h, b).

    Samples get heads that were computed for other samples. Every head is right in itself but in the
    wrong place, so the prediction for a sample depends on its neighbours in the batch. With one
    sample the result is right, and in training the neighbours change all the time.
    """

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
        heads, weights = super().attend(q, k, v, **options)
        b, h = heads.shape[:2]
        return heads.flatten(0, 1).unflatten(0, (h, b)).transpose(0, 1), weights


@mistake(
    wrong="q.view(b, n, h, d)  # and k and v, and no transpose",
    right="q.view(b, n, h, d).transpose(1, 2)  # and k and v with m",
)
class HeadsAttendedOver(MultiheadAttention):
    """The heads of each token attend to each other, because the heads stay behind the tokens.

    In (b, n, h, d) the last axes are heads and features, so scores are (b, n, h, h): no token ever
    sees another. The weights sum to 1 and every shape is right. A mask of (n, n) mostly fails, but
    `is_causal=True` of the fused kernel does not: it hides later heads.
    """

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
        heads, weights = super().attend(*(x.transpose(1, 2) for x in (q, k, v)), **options)
        return heads.transpose(1, 2), weights
