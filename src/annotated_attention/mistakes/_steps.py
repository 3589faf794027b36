"""The right version in separate steps, so that a wrong version overrides only its mistake."""

import torch.nn.functional as F
from torch import Tensor

from annotated_attention.attention import masked_softmax
from annotated_attention.masks import block_future, merge_masks
from annotated_attention.multihead import MultiheadAttention


class StepByStep(MultiheadAttention):
    """The right version, with a method for each step: score, mask and softmax, dropout, mix.

    Examples:
        >>> import torch
        >>> from annotated_attention import MultiheadAttention
        >>> from annotated_attention.mistakes import StepByStep
        >>> right, steps = MultiheadAttention(24, 4), StepByStep(24, 4)
        >>> steps.load_state_dict(right.state_dict())
        <All keys matched successfully>
        >>> x = torch.randn(5, 2, 24)
        >>> torch.testing.assert_close(steps(x, x, x), right(x, x, x))
    """

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
        """Attend within each head, calling one method for each step."""
        future = block_future(q.size(-2), k.size(-2), q.device) if is_causal else None
        blocked, _ = merge_masks(blocked, future)
        scores = self.score(q, k)  # (b, h, n, m)
        scores = scores if bias is None else scores + bias  # (b, h, n, m)
        weights = self.drop(self.weigh(scores, blocked))  # (b, h, n, m)
        return weights @ v, weights  # (b, h, n, d), (b, h, n, m)

    def weigh(self, scores: Tensor, blocked: Tensor | None) -> Tensor:
        """Turn scores into weights that sum to 1 over the keys; fully masked rows are 0."""
        if blocked is not None:
            blocked = blocked.expand_as(scores).transpose(self.softmax_axis, -1)
        weights = masked_softmax(scores.transpose(self.softmax_axis, -1), blocked)
        return weights.transpose(self.softmax_axis, -1)  # (b, h, n, m)

    def drop(self, weights: Tensor) -> Tensor:
        """Apply dropout to the weights in training."""
        return F.dropout(weights, self.dropout, self.training)  # (b, h, n, m)
