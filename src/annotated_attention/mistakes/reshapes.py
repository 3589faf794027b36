"""Heads and samples that are taken apart or put together wrongly: all numbers, in other places."""

from typing import Any

from torch import Tensor

from annotated_attention.heads import merge_heads, split_heads
from annotated_attention.mistakes._registry import mistake
from annotated_attention.multihead import MultiheadAttention


def merge_without_transpose(x: Tensor) -> Tensor:
    """Give (..., n, h * d) by reading the numbers of (..., h, n, d) in the order they lie in.

    Row i of the result then holds h neighbouring tokens of one head, not token i of every head.
    Shape and numbers are those of the right version, only not in their places, and a model trains
    with it. Under a causal mask it shows each token some of its future.

    Args:
        x: (..., h, n, d), one slice per head.

    Examples:
        The tens say which of two heads a number is from, the ones which of three tokens:

        >>> import torch
        >>> from annotated_attention import merge_heads
        >>> from annotated_attention.mistakes.reshapes import merge_without_transpose
        >>> x = torch.tensor([[[10], [11], [12]], [[20], [21], [22]]])
        >>> merge_heads(x).tolist()
        [[10, 20], [11, 21], [12, 22]]
        >>> merge_without_transpose(x).tolist()
        [[10, 11], [12, 20], [21, 22]]
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

    Examples:
        >>> import torch
        >>> from annotated_attention import split_heads
        >>> from annotated_attention.mistakes.reshapes import split_without_transpose
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

    An output row holds h neighbouring tokens of one head instead of one token of every head, so a
    token gets what others asked for, and under a causal mask some of its future. Every shape stays,
    and the loss falls, further than it should: nothing is wrong until the model has to generate.
    """

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
        """Attend rightly, and hand on what the right merge turns into the wrong one's result."""
        heads, weights = super().attend(q, k, v, **options)
        return split_heads(merge_without_transpose(heads), self.num_heads), weights


@mistake(
    wrong="q.reshape(b, h, n, d)",
    right="q.reshape(b, n, h, d).transpose(1, 2)  # and k and v with m",
)
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


@mistake(
    wrong="q.reshape(b, h, n, d)",
    right="q.reshape(b, n, h, d).transpose(1, 2)  # and back: heads.transpose(1, 2).reshape(...)",
)
class SplitAndMergeWithoutTranspose(SplitWithoutTranspose):
    """The heads are split and merged by straight reshapes; the two undo each other.

    Splitting and merging gives the input back, so the usual check passes. In between, head i sees
    nothing but the i-th part of the sequence, with all its features: attention within parts. A
    causal mask leaks nothing then, and what a token gets changes with the length of its sequence.
    """

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
        """Split wrongly, attend, and merge wrongly."""
        heads, weights = super().attend(q, k, v, **options)
        return split_heads(merge_without_transpose(heads), self.num_heads), weights


@mistake(
    wrong="x.view(n, b, h, d)  # of (b, n, h * d)",
    right="x.view(b, n, h, d)",
)
class BatchMixedIntoSequence(MultiheadAttention):
    """Batch-first tensors are reshaped as if they were sequence-first; samples mix with tokens.

    The reshape takes neighbouring tokens of one sample for one token of all samples. It asks for
    nothing but the right number of numbers, and the way back undoes it, so that the output has the
    right shape. With one sample, as in most quick tests, there is nothing to mix, and it is right.
    """

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
        """Read each in the wrong layout, and write the result back in it."""
        heads, weights = super().attend(*map(_mix_batch, (q, k, v)), **options)
        return _mix_batch(heads, back=True), weights


def _mix_batch(x: Tensor, back: bool = False) -> Tensor:
    b, h, n, d = x.shape
    if back:
        x = x.permute(2, 0, 1, 3).reshape(b, n, h, d)  # (b, n, h, d)
        return x.transpose(1, 2)  # (b, h, n, d)
    return x.transpose(1, 2).reshape(n, b, h, d).permute(1, 2, 0, 3)  # (b, h, n, d)


@mistake(
    wrong="heads.view(h, b, n, d)  # of (b * h, n, d)",
    right="heads.view(b, h, n, d)",
)
class HeadsOfOtherSamples(MultiheadAttention):
    """Batch and heads are folded into one axis as (b, h) and unfolded as (h, b).

    Each sample gets heads that were computed for other samples. Every head is right in itself, only
    not where it belongs, so that each sample's prediction rests on its neighbours in the batch.
    With one sample it is right, and in training the neighbours change all the time.
    """

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
        """Attend rightly, then unfold in the wrong order."""
        heads, weights = super().attend(q, k, v, **options)
        b, h = heads.shape[:2]
        return heads.flatten(0, 1).unflatten(0, (h, b)).transpose(0, 1), weights
