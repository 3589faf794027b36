"""Right versions in separate steps, so that a wrong version overrides only its mistake."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention.attention import masked_softmax
from annotated_attention.heads import merge_heads, split_heads
from annotated_attention.masks import block_future, merge_masks
from annotated_attention.modern.cache import Cache
from annotated_attention.modern.cached_attention import CachedAttention
from annotated_attention.modern.rotary import RotaryEmbedding
from annotated_attention.modern.windows import block_other_documents
from annotated_attention.multihead import MultiheadAttention


class StepByStep(MultiheadAttention):
    """The right version, with a method for each step: score, mask and softmax, dropout, mix.

    Examples:
        >>> import torch
        >>> from annotated_attention import MultiheadAttention
        >>> from attention_doctor.mistakes import StepByStep
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
        scores = self.score(q, k)                           # (b, h, n, m)
        scores = scores if bias is None else scores + bias  # (b, h, n, m)
        weights = self.drop(self.weigh(scores, blocked))    # (b, h, n, m)
        return weights @ v, weights                         # (b, h, n, d), (b, h, n, m)

    def weigh(self, scores: Tensor, blocked: Tensor | None) -> Tensor:
        """Turn scores into weights that sum to 1 over the keys; fully masked rows are 0."""
        if blocked is not None:
            blocked = blocked.expand_as(scores).transpose(self.softmax_axis, -1)
        weights = masked_softmax(scores.transpose(self.softmax_axis, -1), blocked)
        return weights.transpose(self.softmax_axis, -1)  # (b, h, n, m)

    def drop(self, weights: Tensor) -> Tensor:
        """Apply dropout to the weights in training."""
        return F.dropout(weights, self.dropout, self.training)  # (b, h, n, m)


class RotatedAnew(CachedAttention):
    """``CachedAttention`` that keeps keys unrotated, and rotates all of them in each step.

    The frequencies are those of the length so far, also where they change with the length. In
    one layer, a chunk then equals a call on the text up to its end. Outputs of earlier chunks keep
    the frequencies of their time, so together the chunks differ from a call on the whole text.
    """

    def rotate_and_append(
        self, q: Tensor, k: Tensor, v: Tensor, positions: Tensor, cache: Cache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Keep the keys as they are, then turn each by its own position."""
        if cache is not None:
            k, v = cache.append(k, v)  # (b, h, m, d)
        if self.rotary is not None:
            # Places that are not written yet are hidden, and must not make the length greater.
            on = torch.arange(k.size(-2), device=k.device).minimum(positions[-1])  # (m,)
            q = self.rotary(q, positions)                                          # (b, h, n, d)
            k = self.rotary(k, on)                                                 # (b, h, m, d)
        return q, k, v


class PackedAttention(MultiheadAttention):
    """Causal self-attention for rows in which several documents stand one after the other."""

    def forward(  # type: ignore[override]
        self, x: Tensor, documents: Tensor
    ) -> tuple[Tensor, None]:
        """Attend within each document, with positions that are counted within it.

        Args:
            x: (b, n, e), with ``batch_first``.
            documents: (b, n), integers, the number of each token's document.
        """
        q, k, v = (split_heads(y, self.num_heads) for y in self._project(x, x, x))
        places = torch.arange(x.size(1), device=x.device)           # (n,)
        begins = documents.diff(prepend=documents[:, :1] - 1) != 0  # (b, n)
        positions = places - (places * begins).cummax(1).values     # (b, n)
        rotary = RotaryEmbedding(self.head_dim)
        heads, _ = self.attend(
            rotary(q, positions),
            rotary(k, positions),
            v,
            blocked=self.block(documents),
            bias=None,
            is_causal=False,
            need_weights=False,
        )
        output = self.out_proj(merge_heads(heads))  # (b, n, e)
        return output, None

    def block(self, documents: Tensor) -> Tensor:
        """Hide what comes later, and what belongs to another document."""
        later = block_future(documents.size(1), documents.size(1), documents.device)
        return later | block_other_documents(documents)


class SinkAttention(StepByStep):
    """``StepByStep`` with a sink in each head: a key that has a learned score, and no value."""

    def __init__(self, embed_dim: int, num_heads: int, *given: Any, **options: Any) -> None:
        """Draw the scores of the sinks, (h,), beside the parameters of the final class."""
        super().__init__(embed_dim, num_heads, *given, **options)
        self.sinks = nn.Parameter(torch.randn(num_heads).to(self.in_proj_weight))

    def weigh(self, scores: Tensor, blocked: Tensor | None) -> Tensor:
        """Compute the weights with the sink as one more key, and leave its weight out."""
        column = self.sinks[:, None, None].expand(*scores.shape[:-1], 1)  # (b, h, n, 1)
        if blocked is not None:
            scores = scores.masked_fill(blocked, -math.inf)
        return torch.cat([scores, column], -1).softmax(-1)[..., :-1]
