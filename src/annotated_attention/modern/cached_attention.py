"""Causal self-attention that takes some tokens at a time and keeps their keys and values."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from annotated_attention.checks import check_masks, check_nothing_appended, check_sequences
from annotated_attention.heads import merge_heads, split_heads
from annotated_attention.masks import merge_masks, padding_to_heads
from annotated_attention.modern.cache import Cache, block_later
from annotated_attention.modern.rotary import check_rotary
from annotated_attention.multihead import MultiheadAttention


def next_position(cache: Cache | None) -> int | Tensor:
    """Give the position of the next token: 0 without a cache.

    Raises:
        TypeError: ``cache`` is something else.

    Examples:
        >>> import torch
        >>> from annotated_attention.modern import KVCache
        >>> from annotated_attention.modern.cached_attention import next_position
        >>> cache = KVCache()
        >>> k, v = cache.append(torch.randn(2, 4, 3, 6), torch.randn(2, 4, 3, 6))
        >>> next_position(None), next_position(cache)
        (0, 3)
    """
    if cache is None:
        return 0
    if not hasattr(cache, "length"):
        raise TypeError(f"cache must be a Cache, such as KVCache, got {type(cache).__name__}")
    return cache.length


class CachedAttention(MultiheadAttention):
    """Causal self-attention, all at once or in chunks of any size, with the same result.

    The parameters are those of the final class, and so is the result without a cache, with
    ``is_causal=True``. With a cache, the tokens of a call follow those that the cache has kept.

    Examples:
        Five tokens at once, and the same in chunks of 3, 1 and 1:

        >>> import torch
        >>> from annotated_attention.modern import CachedAttention, KVCache
        >>> attention, cache = CachedAttention(24, 4, batch_first=True), KVCache()
        >>> x = torch.randn(2, 5, 24)
        >>> chunks = [attention(part, cache)[0] for part in x.split([3, 1, 1], dim=1)]
        >>> torch.testing.assert_close(torch.cat(chunks, dim=1), attention(x)[0])
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        batch_first: bool = False,
        rotary: Callable[[Tensor, Tensor], Tensor] | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        """Create the parameters of the final class.

        Args:
            embed_dim: e, the width of the tokens.
            num_heads: h; must divide ``embed_dim``.
            dropout: probability of zeroing a weight in training.
            bias: give all four projections a bias.
            batch_first: input and output are (b, n, e) instead of (n, b, e).
            rotary: turns queries and keys, (b, h, n, d), by their positions, (n,), such as a
                ``RotaryEmbedding``; None leaves positions out. A kept key stays as it is, so that
                ``"dynamic"`` scaling does not fit a cache beyond the trained length.
            device: Device of the parameters.
            dtype: Dtype of the parameters.
            **options: of a further parent: ``num_kv_heads`` in a subclass of this class and of
                ``GroupedQueryAttention``.

        Raises:
            TypeError: as the final class; also a ``rotary`` that cannot be called.
            ValueError: as the final class; also keys that would be appended, and a ``kdim`` or
                ``vdim`` of its own.
        """
        super().__init__(
            embed_dim, num_heads, dropout=dropout, bias=bias,
            batch_first=batch_first, device=device, dtype=dtype, **options,
        )  # fmt: skip
        check_nothing_appended(self.bias_k is not None, self.add_zero_attn)
        for name, width in (("kdim", self.kdim), ("vdim", self.vdim)):
            if width != embed_dim:
                raise ValueError(
                    f"{name} ({width}) must be embed_dim ({embed_dim}): keys and values are made "
                    f"from the tokens"
                )
        check_rotary(rotary)
        self.rotary = rotary

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        cache: Cache | None = None,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from each token to itself and to those before it, also those in the cache.

        Args:
            x: the new tokens: (n, b, e); with ``batch_first`` (b, n, e); without a batch (n, e).
            cache: keeps the keys and values of these tokens behind those of earlier calls; None
                keeps nothing.
            key_padding_mask: which keys no query may see, (b, m), with a column for each key that
                the cache returns. Boolean, True = blocked; or floating point, added to the scores.
            need_weights: also return the weights.

        Returns:
            The output, in the layout of ``x``, and the weights of each head, (b, h, n, m), without
            b if there is no batch; or None.

        Raises:
            TypeError: as the final class; also a ``cache`` that is none.
            ValueError: as the final class; also what the cache refuses.
        """
        check_sequences({"x": x}, [self.embed_dim], self.batch_first, self.out_proj.weight)
        # Queries, keys and values of the new tokens alone.
        q, k, v = self._project(x, x, x)
        q = split_heads(self._batch_first(q), self.num_heads)          # (b, h, n, d)
        k = split_heads(self._batch_first(k), self.num_kv_heads)       # (b, g, n, d)
        v = split_heads(self._batch_first(v), self.num_kv_heads)       # (b, g, n, d)
        # The first of them stands behind all tokens that are kept.
        start = next_position(cache)
        positions = start + torch.arange(q.size(-2), device=q.device)  # (n,)
        # From here on keys and values are those of all tokens, kept and new.
        q, k, v = self.keep(q, k, v, positions, cache)                 # (b, ..., d)
        hidden = self.hide(positions, k.size(-2))                      # (..., n, m)
        self._check_padding(key_padding_mask, k, x)
        blocked, bias = merge_masks(hidden, padding_to_heads(key_padding_mask), dtype=q.dtype)
        heads, weights = self.attend(
            q, k, v, blocked=blocked, bias=bias, is_causal=False, need_weights=need_weights
        )
        output = self.out_proj(self._as_given(merge_heads(heads), x))  # (..., e)
        return output, weights if weights is None or x.dim() == 3 else weights.squeeze(0)

    def keep(
        self, q: Tensor, k: Tensor, v: Tensor, positions: Tensor, cache: Cache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Turn queries and keys by their positions, and keep keys and values.

        Args:
            q: (b, h, n, d), the queries of the new tokens.
            k: (b, g, n, d), their keys, of as many heads as ``num_kv_heads`` says.
            v: (b, g, n, d), their values.
            positions: (n,), their positions.
            cache: where keys and values are kept, or None.

        Returns:
            The queries, (b, h, n, d), and the keys and values of all tokens so far, (b, g, m, d).

        Examples:
            Two tokens, then three more, whose queries meet the keys of all five:

            >>> import torch
            >>> from annotated_attention.modern import CachedAttention, KVCache
            >>> attention, cache = CachedAttention(24, 4), KVCache()
            >>> for positions in torch.arange(5).split([2, 3]):
            ...     q, k, v = torch.randn(3, 2, 4, len(positions), 6)
            ...     q, k, v = attention.keep(q, k, v, positions, cache)
            >>> q.shape, k.shape
            (torch.Size([2, 4, 3, 6]), torch.Size([2, 4, 5, 6]))
        """
        if self.rotary is not None:  # a key turns once, by its own position, before it is kept
            q, k = self.rotary(q, positions), self.rotary(k, positions)  # (b, ..., n, d)
        if cache is not None:
            k, v = cache.append(k, v)                                    # (b, g, m, d)
        return q, k, v

    def hide(self, positions: Tensor, m: int) -> Tensor:
        """Say which keys a query may not see. Override to hide more, or to give a float mask.

        Args:
            positions: (n,), the positions of the queries.
            m: the number of keys; key j is at position j.

        Returns:
            blocked, (n, m): True for the future, and for whatever a cache of fixed size has not
            written yet.

        Examples:
            A window: a token sees itself and the two tokens before it.

            >>> import torch
            >>> from annotated_attention.modern import CachedAttention
            >>> class Windowed(CachedAttention):
            ...     def hide(self, positions, m):
            ...         distance = positions[:, None] - torch.arange(m, device=positions.device)
            ...         return super().hide(positions, m) | (distance > 2)
            >>> Windowed(24, 4).hide(torch.tensor([3, 4]), m=5)
            tensor([[ True, False, False, False,  True],
                    [ True,  True, False, False, False]])
        """
        return block_later(positions, m)  # (n, m)

    def _check_padding(self, key_padding_mask: Tensor | None, k: Tensor, x: Tensor) -> None:
        """Refuse a padding mask without a column for each key, kept or new."""
        keys = k[:, 0] if x.dim() == 3 else k[0, 0]
        check_masks(None, key_padding_mask, keys, keys, self.num_heads, batch_first=True)
