"""Masks that are read, placed or applied wrongly."""

import math
from typing import Any

import torch
from torch import Tensor

from annotated_attention.masks import block_future, merge_masks
from annotated_attention.mistakes._registry import mistake
from annotated_attention.mistakes._steps import StepByStep
from annotated_attention.multihead import MultiheadAttention


@mistake(
    wrong="scores.masked_fill(~blocked, -math.inf)",
    right="scores.masked_fill(blocked, -math.inf)",
)
class MaskInverted(StepByStep):
    """True is taken for "allowed" where it means "blocked".

    Libraries disagree about it, even within PyTorch, and both meanings are booleans of the same
    shape. Each query sees exactly what it must not see: padding, or its own future, from which the
    next token is easily told. The loss is excellent.
    """

    def weigh(self, scores: Tensor, blocked: Tensor | None) -> Tensor:
        """Weigh what is blocked."""
        return super().weigh(scores, None if blocked is None else ~blocked)


@mistake(
    wrong="weights = scores.softmax(-1)",
    right="weights = scores.masked_fill(blocked, -math.inf).softmax(-1)",
)
class MaskIgnored(StepByStep):
    """The mask is an argument that nobody reads, or the result of `masked_fill` is thrown away.

    Without padding there is nothing to hide, and one sample alone is right. In a batch, the output
    of a short sequence depends on how far it was padded; with a causal mask the model copies the
    answer.
    """

    def weigh(self, scores: Tensor, blocked: Tensor | None) -> Tensor:
        """Weigh as if nothing were blocked."""
        return super().weigh(scores, None)


@mistake(
    wrong="weights = scores.softmax(-1).masked_fill(blocked, 0)",
    right="weights = scores.masked_fill(blocked, -math.inf).softmax(-1)",
)
class MaskAfterSoftmax(StepByStep):
    """The weights of blocked keys are set to zero after the softmax.

    The blocked values are gone, and a look at the weights shows zeros in the right places. But the
    blocked keys had their part in the sum: what is left no longer sums to 1, and how small it is
    tells what was hidden.
    """

    def weigh(self, scores: Tensor, blocked: Tensor | None) -> Tensor:
        """Weigh everything, then take some away."""
        weights = super().weigh(scores, None)  # (b, h, n, m)
        return weights if blocked is None else weights.masked_fill(blocked, 0)


@mistake(
    wrong="weights = (scores * allowed).softmax(-1)",
    right="weights = scores.masked_fill(~allowed, -math.inf).softmax(-1)",
)
class MaskMultiplied(StepByStep):
    """The scores of blocked keys are multiplied by zero instead of being set to minus infinity.

    A score of 0 is not a weight of 0: its exponential is 1, about that of an average key, and of
    a good one where all the other scores are negative. Blocked values go on being mixed in. The
    mask does change the output, which looks like success.
    """

    def weigh(self, scores: Tensor, blocked: Tensor | None) -> Tensor:
        """Weigh with the scores of blocked keys at 0."""
        return super().weigh(scores if blocked is None else scores * ~blocked, None)


class _PaddingElsewhere(MultiheadAttention):
    """Gives the padding mask other axes."""

    def _place(self, padding: Tensor) -> Tensor:
        """Give a padding mask axes that broadcast to (b, h, n, m).

        Args:
            padding: (b, m), boolean or floating point.
        """
        raise NotImplementedError

    def _merge(
        self,
        attn_mask: Tensor | None,
        key_padding_mask: Tensor | None,
        q: Tensor,
        k: Tensor,
        is_causal: bool,
    ) -> Any:
        blocked, bias, is_causal = super()._merge(attn_mask, None, q, k, is_causal)
        if key_padding_mask is None:
            return blocked, bias, is_causal
        return *merge_masks(blocked, bias, self._place(key_padding_mask)), is_causal


@mistake(
    wrong="blocked = key_padding_mask[:, None, :, None]",
    right="blocked = key_padding_mask[:, None, None, :]",
)
class PaddingMaskOnQueries(_PaddingElsewhere):
    """The padding mask blocks what padding asks for, and not what asks padding.

    It stands on the axis of the queries, (b, 1, n, 1), instead of the keys, (b, 1, 1, m). In
    self-attention both are as long. The rows of padding come out empty, as somebody who looks at
    them expects, and every real token goes on seeing the padding.
    """

    def _place(self, padding: Tensor) -> Tensor:
        return padding[:, None, :, None]


@mistake(
    wrong="blocked = key_padding_mask  # (b, m) against (b, h, n, m)",
    right="blocked = key_padding_mask[:, None, None, :]",
)
class MaskOnTheWrongAxis(_PaddingElsewhere):
    """The padding mask, (b, m), is broadcast as if it were (n, m): samples are taken for queries.

    Broadcasting starts from the right and asks nobody. The padding of sample i is hidden from query
    i, of all samples. It fails with an error unless there are as many samples as queries, or just
    one; in a test with b = n, or b = 1, it does not.
    """

    def _place(self, padding: Tensor) -> Tensor:
        return padding


@mistake(
    wrong="attn_mask = blocked.repeat(h, 1, 1)",
    right="attn_mask = blocked.repeat_interleave(h, dim=0)",
)
class MaskInTheWrongOrder(MultiheadAttention):
    """A mask of (b * h, n, m) is read heads first, and it lies samples first.

    Sample and head are folded into one axis, and the shape does not tell in which order. Samples
    get the masks of other samples. Nothing is noticed with one sample, or where all have the same
    mask.
    """

    def _merge(
        self,
        attn_mask: Tensor | None,
        key_padding_mask: Tensor | None,
        q: Tensor,
        k: Tensor,
        is_causal: bool,
    ) -> Any:
        if attn_mask is not None and attn_mask.dim() == 3:
            h = self.num_heads
            attn_mask = attn_mask.unflatten(0, (h, -1)).transpose(0, 1).flatten(0, 1)
        return super()._merge(attn_mask, key_padding_mask, q, k, is_causal)


@mistake(
    wrong="scores.masked_fill(blocked.mT, -math.inf)",
    right="scores.masked_fill(blocked, -math.inf)",
)
class MaskTransposed(StepByStep):
    """The mask lies with its keys down and its queries across.

    Whom a query may see and who may see a key are mixed up. A symmetric mask, such as that of
    packed sequences, is its own transpose; a causal one becomes its opposite. It takes as many
    queries as keys to run at all.
    """

    def weigh(self, scores: Tensor, blocked: Tensor | None) -> Tensor:
        """Weigh with the mask turned over."""
        return super().weigh(scores, None if blocked is None else blocked.mT)


class _OtherDiagonal(StepByStep):
    """Blocks from another diagonal on."""

    diagonal = 1

    def attend(self, q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool, **options: Any) -> Any:
        """Attend with a causal mask of our own."""
        if is_causal:
            future = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool, device=q.device)
            options["blocked"], _ = merge_masks(options["blocked"], future.triu(self.diagonal))
        return super().attend(q, k, v, is_causal=False, **options)


@mistake(
    wrong="blocked = torch.ones(n, n).triu(diagonal=2).bool()",
    right="blocked = torch.ones(n, n).triu(diagonal=1).bool()",
)
class CausalOffByOne(_OtherDiagonal):
    """The causal mask begins one diagonal too late: each token sees the one after it.

    In a language model the next token is the answer. Loss and accuracy in training are perfect, and
    text that the model generates is not, for there the next token does not exist yet.
    """

    diagonal = 2


@mistake(
    wrong="blocked = torch.ones(n, n).triu(diagonal=0).bool()",
    right="blocked = torch.ones(n, n).triu(diagonal=1).bool()",
)
class CausalHidesItself(_OtherDiagonal):
    """The causal mask begins one diagonal too early: a token does not see itself.

    The first token sees nothing at all. Depending on how the mask is applied, its row is NaN, zero
    or a mean of everything, the future included. The others lose only one of many keys, which a
    residual connection makes up for.
    """

    diagonal = 0


@mistake(
    wrong="self.attention(x, x, x, is_causal=True)  # in an encoder, too",
    right="self.attention(x, x, x)",
)
class CausalUnasked(MultiheadAttention):
    """The future is hidden where nobody asked for it.

    A class that was written for a decoder hides the future always, and an encoder uses it. Nothing
    leaks, every weight is right among the keys that are left, and the model learns; only that each
    word is understood from what stands before it, and the first word from itself.
    """

    def attend(self, q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool, **options: Any) -> Any:
        """Attend to what came before, whatever ``is_causal`` says."""
        future = block_future(q.size(-2), k.size(-2), q.device)
        options["blocked"], _ = merge_masks(options["blocked"], future)
        return super().attend(q, k, v, is_causal=False, **options)


@mistake(
    wrong="scores.masked_fill(blocked, -1e9)",
    right="scores.masked_fill(blocked, -math.inf)  # or torch.finfo(scores.dtype).min",
)
class FiniteFillInHalf(StepByStep):
    """Blocked scores are filled with a number that half precision does not hold.

    In float32 it does what it should, but for a fully masked row: there all scores are the
    same, and the weights are a mean over what is blocked. In float16, which ends at 65504, it stops
    with an error, on the day when somebody moves the model to a faster machine.
    """

    def weigh(self, scores: Tensor, blocked: Tensor | None) -> Tensor:
        """Weigh with a large negative number in place of minus infinity."""
        return super().weigh(scores if blocked is None else scores.masked_fill(blocked, -1e9), None)


@mistake(
    wrong="scores.masked_fill(blocked, -math.inf).softmax(-1)",
    right="scores.masked_fill(blocked & ~fully_masked, -math.inf).softmax(-1) * ~fully_masked",
)
class NanRow(StepByStep):
    """A fully masked row becomes NaN.

    The softmax of nothing but minus infinity is 0 / 0. It takes a sequence of padding alone, or a
    window that leaves nothing, and then the NaN goes through the whole model, and with the
    gradients into every parameter. Until that batch comes, all is well.
    """

    def weigh(self, scores: Tensor, blocked: Tensor | None) -> Tensor:
        """Weigh without a fix for fully masked rows."""
        scores = scores if blocked is None else scores.masked_fill(blocked, -math.inf)
        return super().weigh(scores, None)
