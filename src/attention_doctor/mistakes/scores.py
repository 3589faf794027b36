"""Scores that are scaled, normalised or dropped wrongly."""

import math

import torch.nn.functional as F
from torch import Tensor

from annotated_attention.attention import scaled_scores
from annotated_attention.multihead import MultiheadAttention
from attention_doctor.mistakes._registry import mistake
from attention_doctor.mistakes._steps import StepByStep


@mistake(wrong="scores = q @ k.mT", right="scores = q @ k.mT / math.sqrt(d)")
class NoScale(MultiheadAttention):
    """The scores are not divided by the square root of d.

    Without the division, scores grow with the width of a head, the softmax puts nearly all weight
    on one key, and little gradient gets through. The result is a valid attention, only a sharper
    one. A narrow head hardly shows the mistake: with d = 4 the scores are doubled.
    """

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return scaled_scores(q, k, scale=1.0)


@mistake(wrong="scores = q @ k.mT / math.sqrt(e)", right="scores = q @ k.mT / math.sqrt(d)")
class ScaleByModelWidth(MultiheadAttention):
    """The scores are divided by the square root of e, the model's width, instead of d, a head's.

    The scores are too small by the square root of h, so the weights are too even. The result is a
    valid attention, only a flatter one, and the projections can learn to make up for it. With one
    head there is no difference.
    """

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return scaled_scores(q, k, scale=1 / math.sqrt(self.embed_dim))


@mistake(
    wrong="scores = (q / math.sqrt(d)) @ (k / math.sqrt(d)).mT",
    right="scores = (q / math.sqrt(d)) @ k.mT",
)
class ScaleTwice(MultiheadAttention):
    """The scores are divided by the square root of d twice, say by hand and by the fused kernel.

    The scores are too small, so the weights are too even: with a large d, the output is close to a
    plain mean of the values. The result is a valid attention, and nothing else shows the mistake.
    """

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return scaled_scores(q, k, scale=1 / q.size(-1))


@mistake(wrong="scores = q @ k.mT * math.sqrt(d)", right="scores = q @ k.mT / math.sqrt(d)")
class ScaleInverted(MultiheadAttention):
    """The scores are multiplied by the square root of d instead of being divided by it.

    They are too large by the factor d, so the softmax puts all weight on one key, and next to no
    gradient reaches queries and keys. The result is a valid attention that hardly learns where to
    look. A fused kernel that takes the scale as a factor, not as a divisor, invites the mistake.
    """

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return scaled_scores(q, k, scale=math.sqrt(q.size(-1)))


@mistake(
    wrong="scores = q @ k / math.sqrt(k.size(-1))  # k is transposed already",
    right="scores = q @ k / math.sqrt(q.size(-1))",
)
class ScaleByLength(MultiheadAttention):
    """The scores are divided by the square root of m, the number of keys, instead of d.

    The last axis of a transposed key is its length. The longer the sequence, the more even are the
    weights. With m = d the result is right, and at one length the projections can make up for the
    difference. At another length, or while text is being written, all weights shift a little.
    """

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return scaled_scores(q, k, scale=1 / math.sqrt(k.size(-2)))


@mistake(wrong="scores = q @ k.reshape(b, h, d, m)", right="scores = q @ k.mT")
class KeysReshaped(MultiheadAttention):
    """The keys are reshaped to (d, m) instead of being transposed, so each column mixes tokens.

    A reshape keeps the order of the numbers in memory: a column then holds features of several
    tokens. The shape is right, weights sum to 1 and the loss falls. A causal mask hides columns,
    and these hold parts of later keys, so the future leaks in. With d = m not even a print shows
    it.
    """

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        *batch, m, d = k.shape
        return scaled_scores(q, k.reshape(*batch, d, m).mT)


@mistake(
    wrong="weights = F.softmax(scores.softmax(-1), dim=-1)",
    right="weights = scores.softmax(-1)",
)
class SoftmaxTwice(StepByStep):
    """A softmax is applied to the weights, which are a softmax already.

    Weights lie between 0 and 1, and as scores these are nearly equal: no key can get more than e
    times the weight of another, so the result is close to a plain mean. What a mask hides has a
    weight of 0, and after the second softmax a weight again.
    """

    def weigh(self, scores: Tensor, blocked: Tensor | None) -> Tensor:
        return super().weigh(scores, blocked).softmax(-1)


@mistake(wrong="weights = scores.softmax(-2)", right="weights = scores.softmax(-1)")
class SoftmaxOverQueries(StepByStep):
    """The softmax runs over the queries instead of the keys.

    The weights of each key sum to 1 and those of a query to anything, so queries compete for a key.
    With as many queries as keys, a query's weights still sum to 1 on average, and the loss falls.
    Under a causal mask, the sums include later queries, so the future leaks in.
    """

    softmax_axis = -2


@mistake(wrong="weights = scores.softmax(1)", right="weights = scores.softmax(-1)")
class SoftmaxOverHeads(StepByStep):
    """The softmax runs over the heads instead of the keys.

    For scores of (b, h, n, m), `softmax(1)` means the heads; for (n, m) it meant the keys. The
    heads then share each key between them, and the weights of a query sum to m / h on average. The
    output is too large for long sequences, which a normalisation behind the attention hides.
    """

    softmax_axis = 1


@mistake(wrong="heads = weights.mean(1, keepdim=True) @ v", right="heads = weights @ v")
class WeightsAveragedOverHeads(StepByStep):
    """The weights are averaged over the heads before they are mixed with the values.

    PyTorch returns the mean of all heads' weights, to look at. Even as a picture it is rough: what
    a head adds depends on its values and its rows of W_O, too. As the weights of the mixing it
    makes all heads look at the same places, so h heads know little more than one. The weights still
    sum to 1, masks hold, and nothing fails.
    """

    def weigh(self, scores: Tensor, blocked: Tensor | None) -> Tensor:
        weights = super().weigh(scores, blocked)                 # (b, h, n, m)
        return weights.mean(1, keepdim=True).expand_as(weights)  # (b, h, n, m)


@mistake(
    wrong="weights = dropout(scores).softmax(-1)",
    right="weights = dropout(scores.softmax(-1))",
)
class DropoutBeforeSoftmax(StepByStep):
    """Dropout is applied to the scores, before the softmax, and not to the weights.

    A score of 0 is not a weight of 0: a key that should be dropped gets the weight of an average
    key. The other scores are scaled up, which sharpens the softmax. In evaluation there is no
    difference at all, and in training every result is random anyway.
    """

    def weigh(self, scores: Tensor, blocked: Tensor | None) -> Tensor:
        return super().weigh(F.dropout(scores, self.dropout, self.training), blocked)

    def drop(self, weights: Tensor) -> Tensor:
        return weights


@mistake(
    wrong="weights = F.dropout(weights, p)",
    right="weights = F.dropout(weights, p, self.training)",
)
class DropoutInEvaluation(StepByStep):
    """Dropout stays active in evaluation, because the function is not told the module's mode.

    `F.dropout` drops unless it is told not to, and the fused kernel drops whenever it is given a
    dropout probability. Training is right. In evaluation every result is a little worse than it
    could be, and a different one at each call.
    """

    def drop(self, weights: Tensor) -> Tensor:
        return F.dropout(weights, self.dropout)
