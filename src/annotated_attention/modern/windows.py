"""What a token need not look at: keys outside a window, and those of other documents.

``block_by_position`` has a window, and ``block_other_documents`` keeps documents apart;
``WindowCache`` forgets what no later query will see, and ``WindowAttention`` attends with it.
``with_sink`` lets a head give weight to nothing.
"""

from typing import Any

import torch
from torch import Tensor

from annotated_attention.checks import check_integers
from annotated_attention.modern.cache import (
    Cache,
    KVCache,
    block_by_position,
    check_length,
    check_window,
)
from annotated_attention.modern.cached_attention import CachedAttention


def block_other_documents(documents: Tensor) -> Tensor:
    """Block every key that belongs to another document than the query.

    Args:
        documents: (b, n), integers: the number of each token's document. Which numbers they are
            does not matter, nor does a document have to stand in one piece.

    Returns:
        blocked, (b, 1, n, n), symmetric: join it with a causal mask by ``|``.

    Examples:
        Two tokens, and a document of three:

        >>> import torch
        >>> from annotated_attention.modern import block_other_documents
        >>> block_other_documents(torch.tensor([[0, 0, 1, 1, 1]]))[0, 0].int()
        tensor([[0, 0, 1, 1, 1],
                [0, 0, 1, 1, 1],
                [1, 1, 0, 0, 0],
                [1, 1, 0, 0, 0],
                [1, 1, 0, 0, 0]], dtype=torch.int32)
    """
    check_integers(documents=documents)
    if documents.dim() != 2:
        raise ValueError(f"documents {tuple(documents.shape)} must have two axes, (b, n)")
    other = documents[:, :, None] != documents[:, None]  # (b, n, n)
    return other[:, None]                                # (b, 1, n, n)


def with_sink(output: Tensor, lse: Tensor, sink: Tensor) -> Tensor:
    """Give a share of each query's weight to a sink: a key with a learned score, without a value.

    The sink adds its exponential to the sum of the softmax, and nothing to the mix. So it is enough
    to shrink an output that was computed without it, by any kernel that returns the log-sum-exp.

    Args:
        output: (..., h, n, d_v), computed without the sink.
        lse: (..., h, n), the log-sum-exp of each query's scores, as ``tiled_attention`` gives it.
        sink: (h,), the score of each head's sink, in the unit of the scaled scores.

    Returns:
        The output with the sink, (..., h, n, d_v): fully masked rows, whose only key is the sink,
        are zero.

    Examples:
        With a sink whose score is 0, a query whose only key has the score 0 collects one half:

        >>> import torch
        >>> from annotated_attention.modern import tiled_attention, with_sink
        >>> q, k, v = torch.zeros(1, 1, 2), torch.zeros(1, 1, 2), torch.ones(1, 1, 3)
        >>> with_sink(*tiled_attention(q, k, v), sink=torch.zeros(1))
        tensor([[[0.5000, 0.5000, 0.5000]]])

    Source: OpenAI (2025), the model card of gpt-oss.
    """
    if output.shape[:-1] != lse.shape or lse.dim() < 2 or sink.shape != lse.shape[-2:-1]:
        raise ValueError(
            f"output {tuple(output.shape)}, lse {tuple(lse.shape)} and sink {tuple(sink.shape)} "
            "must be (..., h, n, d_v), (..., h, n) and (h,)"
        )
    kept = torch.sigmoid(lse - sink[:, None])  # (..., h, n)
    return output * kept[..., None].to(output.dtype)


class WindowCache(KVCache):
    """Keeps the last keys and values, and the first ones if asked: what a window will see again.

    A query sees its own key and those of the ``window - 1`` tokens before it, so between two calls
    no more than these are kept, whatever the length of the text. ``append`` gives what was kept
    and, behind it, what is new: in a chunk of n tokens, up to ``sinks + window - 1 + n`` keys. It
    is for ``WindowAttention``, which knows where these keys stand. They keep their graph.

    Examples:
        >>> import torch
        >>> from annotated_attention.modern import WindowCache
        >>> cache = WindowCache(window=4, sinks=1)
        >>> for n in (5, 3, 1):
        ...     k, v = cache.append(torch.randn(2, 4, n, 6), torch.randn(2, 4, n, 6))
        >>> cache.length, k.shape
        (9, torch.Size([2, 4, 5, 6]))
        >>> cache.positions
        tensor([0, 6, 7, 8])

    Source: Jiang et al. (2023), section 2; first keys: Xiao et al. (2023), section 3.2.
    """

    def __init__(self, window: int, sinks: int = 0) -> None:
        """Start with nothing.

        Args:
            window: w, how many keys a query sees at most, itself included.
            sinks: how many of the first tokens are kept for good.
        """
        super().__init__()
        check_window(window, sinks)
        self.window, self.sinks, self._come = window, sinks, 0

    @property
    def length(self) -> int:
        """How many tokens have come, kept or dropped: the position of the next one."""
        return self._come

    @property
    def dropped(self) -> int:
        """How many tokens were dropped: those that followed the first ``sinks``."""
        return self._come - (0 if self.keys is None else self.keys.size(-2))

    @property
    def positions(self) -> Tensor:
        """The positions of the keys that are kept: of the first ones, then of the last."""
        kept = torch.arange(self._come - self.dropped)
        return torch.where(kept < self.sinks, kept, kept + self.dropped)

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Give what is kept, and (b, h, n, d) and (b, h, n, d_v) behind it; drop the oldest."""
        keys, values = super().append(k, v)  # (b, h, m, d), (b, h, m, d_v)
        self._come += k.size(-2)
        self.keys, self.values = self._last(keys), self._last(values)
        return keys, values

    def _last(self, x: Tensor) -> Tensor:
        """Copy what is to be kept of (b, h, m, d), so that the memory of the rest is free."""
        m = x.size(-2)
        if m < self.sinks + self.window:
            return x
        return torch.cat([x[..., : self.sinks, :], x[..., m - self.window + 1 :, :]], -2)

    def crop(self, length: int) -> None:
        """Forget all tokens but the first ``length``, if what the next one will see is still there.

        Once anything was dropped, all lengths between ``sinks`` and the present one are refused.
        """
        check_length(length)
        if self.dropped and self.sinks < length < self.length:
            raise ValueError(
                f"length ({length}) must be at most {self.sinks} or at least {self.length}: "
                f"{self.dropped} tokens were dropped, and its window needs them"
            )
        super().crop(length)
        self._come = min(self._come, length)


class WindowAttention(CachedAttention):
    """``CachedAttention`` in which a query sees the last ``window`` keys, and the first ``sinks``.

    It may be given any cache; with a ``WindowCache`` of the same window, the result is the same,
    and what no query will see is forgotten.

    Examples:
        >>> import torch
        >>> from annotated_attention.modern import WindowAttention, WindowCache
        >>> attention = WindowAttention(24, 4, window=3, sinks=1, batch_first=True)
        >>> cache, x = WindowCache(window=3, sinks=1), torch.randn(2, 7, 24)
        >>> chunks = [attention(part, cache)[0] for part in x.split([4, 2, 1], dim=1)]
        >>> torch.testing.assert_close(torch.cat(chunks, dim=1), attention(x)[0])

    Source: Beltagy et al. (2020), section 3.1; Jiang et al. (2023), section 2.
    """

    def __init__(
        self, embed_dim: int, num_heads: int, window: int, *, sinks: int = 0, **options: Any
    ) -> None:
        """Create the parameters of ``CachedAttention``, for a window as in ``WindowCache``."""
        super().__init__(embed_dim, num_heads, **options)
        check_window(window, sinks)
        self.window, self.sinks = window, sinks

    def rotate_and_append(
        self, q: Tensor, k: Tensor, v: Tensor, positions: Tensor, cache: Cache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Refuse a cache that drops other keys than those outside the window."""
        ours = (self.window, self.sinks)
        if isinstance(cache, WindowCache) and (cache.window, cache.sinks) != ours:
            raise ValueError(
                f"cache (window {cache.window}, sinks {cache.sinks}) must have window "
                f"{self.window} and sinks {self.sinks}"
            )
        return super().rotate_and_append(q, k, v, positions, cache)

    def block(self, positions: Tensor, m: int) -> Tensor:
        """Hide the future and what lies outside the window."""
        return block_by_position(positions, m, self.window, sinks=self.sinks)
