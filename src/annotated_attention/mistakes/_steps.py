"""The right version taken apart, so that a wrong one has to override no more than its mistake."""

import math

import torch.nn.functional as F
from torch import Tensor

from annotated_attention.masks import block_future, merge_masks
from annotated_attention.multihead import MultiheadAttention


class StepByStep(MultiheadAttention):
    """The right version: score, mask and softmax, dropout, mix."""

    softmax_axis = -1

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        blocked: Tensor | None,
        bias: Tensor | None,
        is_causal: bool,
        need_weights: bool,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend within each head, a method for each step."""
        future = block_future(q.size(-2), k.size(-2), q.device) if is_causal else None
        blocked, _ = merge_masks(blocked, future)
        scores = self.score(q, k)  # (b, h, n, m)
        scores = scores if bias is None else scores + bias  # (b, h, n, m)
        weights = self.drop(self.weigh(scores, blocked))  # (b, h, n, m)
        return weights @ v, weights  # (b, h, n, d), (b, h, n, m)

    def weigh(self, scores: Tensor, blocked: Tensor | None) -> Tensor:
        """Turn scores into weights that sum to 1 over the keys; rows with nothing left are 0."""
        if blocked is None:
            return scores.softmax(self.softmax_axis)
        blocked = blocked.expand_as(scores)  # (b, h, n, m)
        nothing_left = blocked.all(self.softmax_axis, keepdim=True)
        scores = scores.masked_fill(blocked & ~nothing_left, -math.inf)  # (b, h, n, m)
        return scores.softmax(self.softmax_axis) * ~nothing_left  # (b, h, n, m)

    def drop(self, weights: Tensor) -> Tensor:
        """Drop weights in training."""
        return F.dropout(weights, self.dropout, self.training)  # (b, h, n, m)
