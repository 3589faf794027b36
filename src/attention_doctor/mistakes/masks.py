"""Masks that are read, placed or applied wrongly."""

import math
from typing import Any

import torch
from torch import Tensor

from annotated_attention.masks import merge_masks
from annotated_attention.multihead import MultiheadAttention
from attention_doctor.mistakes._registry import mistake
from attention_doctor.mistakes._steps import StepByStep


@mistake(
    wrong="scores.masked_fill(~blocked, -math.inf)",
    right="scores.masked_fill(blocked, -math.inf)",
)
class MaskInverted(StepByStep):
    """True is taken for "allowed" where it means "blocked".

    Libraries disagree about the meaning of True, even within PyTorch, and both kinds of mask are
    booleans of the same shape. Each query sees exactly the keys that should be hidden: padding, or
    its own future. The future contains the next token, so the training loss is excellent.
    """

    def weigh(self, scores: Tensor, blocked: Tensor | None) -> Tensor:
        return super().weigh(scores, None if blocked is None else ~blocked)


@mistake(
    wrong="weights = scores.softmax(-1)",
    right="weights = scores.masked_fill(blocked, -math.inf).softmax(-1)",
)
class MaskIgnored(StepByStep):
    """The mask argument is never used, or the result of `masked_fill` is thrown away.

    A sample without padding has nothing to hide, so its output is right. In a batch, the output of
    a short sequence depends on how far it was padded. Without its causal mask, a language model
    sees the token that it should predict, and copies it.
    """

    def weigh(self, scores: Tensor, blocked: Tensor | None) -> Tensor:
        return super().weigh(scores, None)


@mistake(
    wrong="weights = scores.softmax(-1).masked_fill(blocked, 0)",
    right="weights = scores.masked_fill(blocked, -math.inf).softmax(-1)",
)
class MaskAfterSoftmax(StepByStep):
    """The weights of blocked keys are set to zero after the softmax.

    Blocked values no longer reach the output, and the weights are zero in the right places. But the
    blocked keys took part in the sum of the softmax. The remaining weights sum to less than 1, and
    the missing part depends on the blocked keys, so information about them leaks.
    """

    def weigh(self, scores: Tensor, blocked: Tensor | None) -> Tensor:
        weights = super().weigh(scores, None)  # (b, h, n, m)
        return weights if blocked is None else weights.masked_fill(blocked, 0)


@mistake(
    wrong="weights = (scores * allowed).softmax(-1)",
    right="weights = scores.masked_fill(~allowed, -math.inf).softmax(-1)",
)
class MaskMultiplied(StepByStep):
    """The scores of blocked keys are multiplied by zero instead of being set to minus infinity.

    A score of 0 is not a weight of 0. Its exponential is 1, which is about that of an average key,
    and more than that of any other key where all the other scores are negative. Blocked values are
    still mixed in. The mask does change the output, so it seems to work.
    """

    def weigh(self, scores: Tensor, blocked: Tensor | None) -> Tensor:
        return super().weigh(scores if blocked is None else scores * ~blocked, None)


class _PaddingElsewhere(MultiheadAttention):
    """Places the padding mask on other axes than those of the keys."""

    def _place(self, padding: Tensor) -> Tensor:
        """Give a padding mask, (b, m), axes that broadcast to (b, h, n, m)."""
        raise NotImplementedError

    def _prepare_masks(self, attn_mask: Any, key_padding_mask: Any, *others: Any) -> Any:
        blocked, bias, is_causal = super()._prepare_masks(attn_mask, None, *others)
        if key_padding_mask is None:
            return blocked, bias, is_causal
        return *merge_masks(blocked, bias, self._place(key_padding_mask)), is_causal


@mistake(
    wrong="blocked = key_padding_mask[:, None, :, None]",
    right="blocked = key_padding_mask[:, None, None, :]",
)
class PaddingMaskOnQueries(_PaddingElsewhere):
    """The padding mask stands on the axis of the queries instead of the axis of the keys.

    Its shape is (b, 1, n, 1) instead of (b, 1, 1, m). In self-attention n = m, so both broadcast.
    The padding tokens become fully masked rows, which looks plausible because nobody needs their
    output, and every real token still attends to the padding.
    """

    def _place(self, padding: Tensor) -> Tensor:
        return padding[:, None, :, None]


@mistake(
    wrong="blocked = key_padding_mask  # (b, m) against (b, h, n, m)",
    right="blocked = key_padding_mask[:, None, None, :]",
)
class MaskOnTheWrongAxis(_PaddingElsewhere):
    """The padding mask, (b, m), is broadcast as if it were (n, m): samples are taken for queries.

    Broadcasting aligns axes from the right, whatever they mean, so the padding of sample i is
    hidden from query i of every sample. PyTorch raises an error unless b = n or b = 1. With b = n
    the result is wrong; with b = 1 it happens to be right, and a test with one sample passes.
    """

    def _place(self, padding: Tensor) -> Tensor:
        return padding


@mistake(
    wrong="attn_mask = blocked.repeat(h, 1, 1)",
    right="attn_mask = blocked.repeat_interleave(h, dim=0)",
)
class MaskInTheWrongOrder(MultiheadAttention):
    """A mask of (b * h, n, m) is read with heads first, although it is laid out samples first.

    Sample and head are folded into one axis, and the shape does not show in which order. Samples
    therefore get the masks of other samples. A test with one sample does not show the mistake, nor
    does one where all samples have the same mask for every head.
    """

    def _prepare_masks(self, attn_mask: Any, *others: Any) -> Any:
        if attn_mask is not None and attn_mask.dim() == 3:
            h = self.num_heads
            attn_mask = attn_mask.unflatten(0, (h, -1)).transpose(0, 1).flatten(0, 1)
        return super()._prepare_masks(attn_mask, *others)


@mistake(
    wrong="scores.masked_fill(blocked.mT, -math.inf)",
    right="scores.masked_fill(blocked, -math.inf)",
)
class MaskTransposed(StepByStep):
    """The mask is transposed: its rows stand for keys and its columns for queries.

    Instead of hiding key j from query i, the mask hides key i from query j. A symmetric mask, such
    as that of packed sequences, is its own transpose and still works. A causal mask hides the past
    instead of the future. The code runs only with as many queries as keys.
    """

    def weigh(self, scores: Tensor, blocked: Tensor | None) -> Tensor:
        return super().weigh(scores, None if blocked is None else blocked.mT)


class _OtherDiagonal(StepByStep):
    """Blocks from ``diagonal`` on; a causal mask blocks from 1 on."""

    diagonal = 1

    def attend(self, q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool, **options: Any) -> Any:
        """Attend with a causal mask that begins at ``diagonal``."""
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

    In a language model the next token is the answer. Loss and accuracy in training are perfect, but
    the text that the model generates is not, because there the next token does not exist yet.
    """

    diagonal = 2


@mistake(
    wrong="blocked = torch.ones(n, n).triu(diagonal=0).bool()",
    right="blocked = torch.ones(n, n).triu(diagonal=1).bool()",
)
class CausalHidesItself(_OtherDiagonal):
    """The causal mask begins one diagonal too early: a token does not see itself.

    The first token sees nothing at all. Depending on how the mask is applied, its row is NaN, zero
    or a mean over all tokens, the future included. Every other token loses only one of its keys,
    and a residual connection makes up for that.
    """

    diagonal = 0


@mistake(
    wrong="self.attention(x, x, x, is_causal=True)  # in an encoder, too",
    right="self.attention(x, x, x)",
)
class CausalUnasked(MultiheadAttention):
    """The future is hidden although the caller did not ask for a causal mask.

    A class that was written for a decoder always hides the future, and now an encoder uses it.
    Nothing leaks, the weights over the remaining keys are right, and the model learns. But each
    word is understood from itself and the words before it alone, the first word from itself.
    """

    def attend(self, q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool, **options: Any) -> Any:
        return super().attend(q, k, v, is_causal=True, **options)


@mistake(
    wrong="scores.masked_fill(blocked, -1e9)",
    right="scores.masked_fill(blocked, -math.inf)  # or torch.finfo(scores.dtype).min",
)
class FiniteFillInHalf(StepByStep):
    """Blocked scores are filled with a number that float16 cannot hold.

    In float32 the fill works, except in a fully masked row: there all scores are the same, and the
    weights give a mean over blocked values. The largest number of float16 is 65504, so filling with
    -1e9 raises an error on the day when somebody moves the model to float16.
    """

    def weigh(self, scores: Tensor, blocked: Tensor | None) -> Tensor:
        return super().weigh(scores if blocked is None else scores.masked_fill(blocked, -1e9), None)


@mistake(
    wrong="scores.masked_fill(blocked, -math.inf).softmax(-1)",
    right="scores.masked_fill(blocked & ~fully_masked, -math.inf).softmax(-1) * ~fully_masked",
)
class NanRow(StepByStep):
    """A fully masked row becomes NaN.

    The softmax of nothing but minus infinity is 0 / 0. This takes a sequence of padding alone, or a
    window without any allowed key. The NaN then spreads through the whole model, and through the
    gradients into every parameter. Until such a batch comes, every result is right.
    """

    def weigh(self, scores: Tensor, blocked: Tensor | None) -> Tensor:
        scores = scores if blocked is None else scores.masked_fill(blocked, -math.inf)
        return super().weigh(scores, None)
