"""Causal self-attention that takes some tokens at a time and keeps their keys and values."""

from typing import Any

import torch
from torch import Tensor

from annotated_attention.checks import check_masks, check_sequences
from annotated_attention.heads import merge_heads, split_heads
from annotated_attention.masks import merge_masks, padding_to_heads
from annotated_attention.modern.cache import Cache, block_by_position
from annotated_attention.modern.grouped import GroupedQueryAttention
from annotated_attention.modern.rotary import Rotary


def next_positions(cache: Cache | None, n: int, device: torch.device) -> Tensor:
    """Give the positions of n new tokens, which stand behind those that are kept, if any.

    These are (n,); or (b, n), where the cache holds sequences of different lengths.
    """
    start = 0 if cache is None else cache.length
    if isinstance(start, Tensor) and start.dim():
        start = start[:, None]                     # (b, 1)
    return start + torch.arange(n, device=device)  # (..., n)


class CachedAttention(GroupedQueryAttention):
    """Causal self-attention, all at once or in chunks of any size, with the same result.

    The parameters are those of the final class, and so is the result without a cache, with
    ``is_causal=True``. With a cache, the tokens of a call follow those that the cache has kept.
    With ``num_kv_heads``, heads share keys and values, and the cache keeps those of g heads alone.

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
        *,
        num_kv_heads: int | None = None,
        rotary: Rotary | None = None,
        **options: Any,
    ) -> None:
        """Create the parameters of ``GroupedQueryAttention``, which takes all other options.

        Args:
            embed_dim: e, the width of the tokens.
            num_heads: h, the number of heads.
            num_kv_heads: g, the heads of keys and values; None means h.
            rotary: turns queries and keys, (b, h, n, d), by their positions, (n,) or (b, n), such
                as a ``RotaryEmbedding``; None leaves positions out. A kept key stays as it is, so
                that ``"dynamic"`` scaling does not fit a cache beyond the trained length.
        """
        g = num_heads if num_kv_heads is None else num_kv_heads
        super().__init__(embed_dim, num_heads, g, **options)
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
        """
        check_sequences({"x": x}, [self.embed_dim], self.batch_first, self.out_proj.weight)
        # Queries, keys and values of the new tokens alone.
        q, k, v = self._project(x, x, x)
        q = split_heads(self._batch_first(q), self.num_heads)     # (b, h, n, d)
        k = split_heads(self._batch_first(k), self.num_kv_heads)  # (b, g, n, d)
        v = split_heads(self._batch_first(v), self.num_kv_heads)  # (b, g, n, d)
        # The first of them stands behind all tokens that are kept.
        positions = next_positions(cache, q.size(-2), q.device)  # (..., n)
        # From here on keys and values are those of all tokens, kept and new.
        q, k, v = self.rotate_and_append(q, k, v, positions, cache)  # (b, ..., d)
        hidden = self._block_if_needed(positions, k.size(-2), cache)
        keys = k[:, 0] if x.dim() == 3 else k[0, 0]
        check_masks(None, key_padding_mask, keys, keys, self.num_heads, batch_first=True)
        blocked, bias = merge_masks(hidden, padding_to_heads(key_padding_mask), dtype=q.dtype)
        heads, weights = self.attend(
            q, k, v, blocked=blocked, bias=bias, is_causal=False, need_weights=need_weights
        )
        output = self.out_proj(self._as_given(merge_heads(heads), x))  # (..., e)
        return output, weights if weights is None or x.dim() == 3 else weights.squeeze(0)

    def rotate_and_append(
        self, q: Tensor, k: Tensor, v: Tensor, positions: Tensor, cache: Cache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Turn queries and keys by their positions, and keep keys and values.

        Args:
            q: (b, h, n, d), the queries of the new tokens.
            k: (b, g, n, d), their keys.
            v: (b, g, n, d), their values.
            positions: (n,) or (b, n), their positions.
            cache: where keys and values are kept, or None.

        Returns:
            The queries, (b, h, n, d), and the keys and values of all tokens so far, (b, g, m, d).
        """
        if self.rotary is not None:  # a key turns once, by its own position, before it is kept
            q, k = self.rotary(q, positions), self.rotary(k, positions)  # (b, ..., n, d)
        if cache is not None:
            k, v = cache.append(k, v)  # (b, g, m, d)
        return q, k, v

    def _block_if_needed(self, positions: Tensor, m: int, cache: Cache | None) -> Tensor | None:
        """Call ``block``, but where one query stands behind all keys and so may see them all.

        On a GPU, of the kernels that read shared heads without copies only cuDNN's takes a mask.
        """
        kept = m if cache is None else cache.length  # a tensor where it would have to be waited for
        usual = "block" not in self.__dict__ and type(self).block is CachedAttention.block
        if usual and isinstance(kept, int) and kept > m:
            raise ValueError(
                f"cache gave {m} keys of {kept} tokens, and this attention takes key j to be at "
                "position j: a WindowCache is for WindowAttention"
            )
        newest = positions.size(-1) == 1 and isinstance(kept, int) and kept == m
        return None if usual and newest else self.block(positions, m)

    def block(self, positions: Tensor, m: int) -> Tensor:
        """Say which keys a query may not see. Override to hide more, or to give a float mask.

        Args:
            positions: (n,) or (b, n), the positions of the queries.
            m: the number of keys; key j is at position j.

        Returns:
            blocked, (n, m) or (b, 1, n, m): True for the future, and for whatever is not written
            yet.
        """
        return block_by_position(positions, m)  # (..., n, m)
