"""Scores that are scaled, normalised or dropped wrongly."""

import math

import torch.nn.functional as F
from torch import Tensor

from annotated_attention.attention import scaled_scores
from annotated_attention.mistakes._registry import mistake
from annotated_attention.mistakes._steps import StepByStep
from annotated_attention.multihead import MultiheadAttention


@mistake(wrong="scores = q @ k.mT", right="scores = q @ k.mT / math.sqrt(d)")
class NoScale(MultiheadAttention):
    """The scores are not divided by the square root of d.

    They grow with the width of a head, the softmax puts nearly all weight on one key, and little
    gradient gets through. The result is a valid attention, only a sharper one, and a small head
    hardly shows it: with d = 4 the scores are doubled.
    """

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        """Score without the scale."""
        return scaled_scores(q, k, scale=1.0)


@mistake(wrong="scores = q @ k.mT / math.sqrt(e)", right="scores = q @ k.mT / math.sqrt(d)")
class ScaleByModelWidth(MultiheadAttention):
    """The scores are divided by the square root of e, the model's width, instead of d, a head's.

    They are too small by the square root of h, and the weights too even. The result is a valid
    attention, only a flatter one, and the projections can learn to make up for it. With one head
    there is no difference.
    """

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        """Score with the scale of one wide head."""
        return scaled_scores(q, k, scale=1 / math.sqrt(self.embed_dim))


@mistake(
    wrong="scores = (q / math.sqrt(d)) @ (k / math.sqrt(d)).mT",
    right="scores = (q / math.sqrt(d)) @ k.mT",
)
class ScaleTwice(MultiheadAttention):
    """The scores are divided by the square root of d twice, say by hand and by the fused kernel.

    They are too small, and the weights too even: at a large d close to a plain mean of the values.
    The result is a valid attention, and nothing else shows it.
    """

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        """Score with the scale applied twice."""
        return scaled_scores(q, k, scale=1 / q.size(-1))


@mistake(
    wrong="scores = q @ k / math.sqrt(k.size(-1))  # k is transposed already",
    right="scores = q @ k / math.sqrt(q.size(-1))",
)
class ScaleByLength(MultiheadAttention):
    """The scores are divided by the square root of m, the number of keys, instead of d.

    The last axis of a transposed key is its length. The longer the sequence, the more even the
    weights: with m = d it is right, and at one length the projections make up for it. At another
    length, or while text is being written, everything shifts a little.
    """

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        """Score with the length's scale."""
        return scaled_scores(q, k, scale=1 / math.sqrt(k.size(-2)))


@mistake(wrong="weights = scores.softmax(-2)", right="weights = scores.softmax(-1)")
class SoftmaxOverQueries(StepByStep):
    """The softmax runs over the queries instead of the keys.

    The weights of each key sum to 1, those of a query to anything: queries compete for a key. With
    as many queries as keys they sum to 1 on average, the numbers look like weights, and
    the loss falls. Under a causal mask the future leaks in through the sums.
    """

    softmax_axis = -2


@mistake(wrong="weights = scores.softmax(1)", right="weights = scores.softmax(-1)")
class SoftmaxOverHeads(StepByStep):
    """The softmax runs over the heads instead of the keys.

    It is what `softmax(1)` means for (b, h, n, m), and was right for (b, n, m). The heads share
    each key between them, and the weights of a query sum to m / h on average. The output is too
    large for long sequences, which a normalisation behind it hides.
    """

    softmax_axis = 1


@mistake(
    wrong="weights = dropout(scores).softmax(-1)",
    right="weights = dropout(scores.softmax(-1))",
)
class DropoutBeforeSoftmax(StepByStep):
    """Dropout is applied to the scores, before the softmax, and not to the weights.

    A score of 0 is not a weight of 0: the key that was to be dropped gets the weight of an average
    one, and the other scores are scaled up, which sharpens the softmax. In evaluation there is no
    difference at all, and in training everything is random anyway.
    """

    def weigh(self, scores: Tensor, blocked: Tensor | None) -> Tensor:
        """Drop scores, then weigh."""
        return super().weigh(F.dropout(scores, self.dropout, self.training), blocked)

    def drop(self, weights: Tensor) -> Tensor:
        """Drop nothing more."""
        return weights


@mistake(
    wrong="weights = F.dropout(weights, p)",
    right="weights = F.dropout(weights, p, self.training)",
)
class DropoutInEvaluation(StepByStep):
    """Dropout goes on in evaluation: nobody told the function which mode the module is in.

    `F.dropout` drops unless it is told not to, and so does a dropout probability that is handed to
    the fused kernel. Training is right. Afterwards every answer is a little worse than it could be,
    and another one each time.
    """

    def drop(self, weights: Tensor) -> Tensor:
        """Drop weights, whatever the mode."""
        return F.dropout(weights, self.dropout)
