"""Latent attention: one narrow vector per token is kept, and every head makes its keys from it."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from annotated_attention.attention import scaled_dot_product_attention
from annotated_attention.checks import check_dropout, check_masks, check_sequences, check_sizes
from annotated_attention.heads import merge_heads, split_heads
from annotated_attention.masks import merge_masks, padding_to_heads
from annotated_attention.modern.cache import Cache, block_by_position
from annotated_attention.modern.cached_attention import next_positions
from annotated_attention.modern.rotary import Rotary, RotaryEmbedding


class LatentAttention(nn.Module):
    """Causal self-attention whose keys and values are made from one narrow vector per token.

    ``kv_down`` compresses a token to its **latent**, c numbers, and to a key of r numbers that
    turns with the position and that all heads share. These c + r numbers are all that a cache
    keeps. ``k_up`` and ``v_up`` make each head's keys and values from the latent. A head's score is
    the product of d features from the latent plus the product of r features that turn.

    There are two ways to compute it, with equal results. The plain form makes keys and values for
    all heads. The absorbed form multiplies ``k_up`` into the queries and ``v_up`` into the output
    instead, so that the latents themselves serve as keys and as values: multi-query attention
    with keys of c + r numbers. The plain form takes fewer FLOPs where there are many queries, as
    in training; the absorbed form does where one query meets many keys.

    Examples:
        Five tokens at once, and the same in chunks of 3 and 2, with 8 + 2 numbers kept for each:

        >>> import torch
        >>> from annotated_attention.modern import KVCache, LatentAttention
        >>> attention = LatentAttention(24, 4, latent_dim=8, rotary_dim=2, batch_first=True)
        >>> x, cache = torch.randn(2, 5, 24), KVCache()
        >>> chunks = [attention(part, cache, absorb=True)[0] for part in x.split([3, 2], dim=1)]
        >>> torch.testing.assert_close(torch.cat(chunks, dim=1), attention(x)[0])
        >>> cache.numel() // (2 * 5)
        10

    Source: DeepSeek-AI (2024), section 2.1.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        latent_dim: int,
        rotary_dim: int,
        *,
        head_dim: int | None = None,
        value_dim: int | None = None,
        query_latent_dim: int | None = None,
        dropout: float = 0.0,
        batch_first: bool = False,
        rotary: Rotary | None = None,
        scale: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """Create the parameters; no projection has a bias.

        Args:
            embed_dim: e, the width of the tokens.
            num_heads: h; must divide ``embed_dim`` where ``head_dim`` is None.
            latent_dim: c, the width of the latent.
            rotary_dim: r, the width of the shared key that turns; even.
            head_dim: d, how many of a head's features come from the latent; None means e / h.
            value_dim: the width of a head's values; None means d.
            query_latent_dim: compress queries, too, to so many numbers; None compresses them not.
            dropout: as in ``MultiheadAttention``; so are ``batch_first``, ``device`` and ``dtype``.
            rotary: turns queries and keys by their positions; None means a ``RotaryEmbedding`` of
                r features in the layout ``"interleaved"``, as DeepSeek's checkpoints have it.
            scale: factor on the scores; None means 1 / sqrt(d + r).
        """
        super().__init__()
        e, h, c, r = embed_dim, num_heads, latent_dim, rotary_dim
        sizes = {"embed_dim": e, "num_heads": h, "latent_dim": c, "rotary_dim": r}
        widths = {
            "head_dim": head_dim,
            "value_dim": value_dim,
            "query_latent_dim": query_latent_dim,
        }
        check_sizes(sizes | {name: width for name, width in widths.items() if width is not None})
        check_dropout(dropout)
        if head_dim is None and e % h:
            raise ValueError(
                f"embed_dim ({e}) must be divisible by num_heads ({h}), or head_dim must be given"
            )
        if rotary is None and r % 2:
            raise ValueError(f"rotary_dim ({r}) must be even: each pair has two features")
        d = e // h if head_dim is None else head_dim
        d_v = d if value_dim is None else value_dim
        self.embed_dim, self.num_heads, self.latent_dim, self.rotary_dim = e, h, c, r
        self.head_dim, self.value_dim = d, d_v
        self.dropout, self.batch_first = dropout, batch_first
        self.scale = 1 / math.sqrt(d + r) if scale is None else scale
        self.rotary = RotaryEmbedding(r, layout="interleaved") if rotary is None else rotary

        def linear(inputs: int, outputs: int) -> nn.Linear:
            return nn.Linear(inputs, outputs, bias=False, device=device, dtype=dtype)

        def norm(width: int) -> nn.RMSNorm:
            return _Norm(width, eps=1e-6, device=device, dtype=dtype)

        wide = query_latent_dim
        self.q_down = nn.Identity() if wide is None else nn.Sequential(linear(e, wide), norm(wide))
        self.q_up = linear(e if wide is None else wide, h * (d + r))
        self.kv_down, self.kv_norm = linear(e, c + r), norm(c)
        self.k_up, self.v_up = linear(c, h * d), linear(c, h * d_v)
        self.out_proj = linear(h * d_v, e)

    def forward(
        self,
        x: Tensor,
        cache: Cache | None = None,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = False,
        absorb: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend from each token to itself and to those before it, also those in the cache.

        Args:
            x: the new tokens: (n, b, e); with ``batch_first`` (b, n, e).
            cache: keeps the latents and turned keys of these tokens; None keeps nothing.
            key_padding_mask: as in ``CachedAttention``; so is ``need_weights``.
            absorb: compute the absorbed form instead of the plain one.

        Returns:
            The output, in the layout of ``x``, and the weights of each head, (b, h, n, m), or None.
        """
        check_sequences({"x": x}, [self.embed_dim], self.batch_first, self.out_proj.weight)
        if x.dim() != 3:
            raise ValueError(f"x {tuple(x.shape)} must have three axes, one of them the batch")
        tokens = x if self.batch_first else x.transpose(0, 1)  # (b, n, e)
        # The new tokens stand behind those that are kept.
        positions = next_positions(cache, tokens.size(1), x.device)  # (..., n)
        q, q_rotated = self.queries(tokens, positions)
        latent, k_rotated = self.compress(tokens, positions)
        if cache is not None:
            latent, k_rotated = cache.append(latent, k_rotated)
        later = block_by_position(positions, latent.size(-2))  # (..., n, m)
        keys = latent[:, 0]                                    # (b, m, c)
        check_masks(None, key_padding_mask, keys, keys, self.num_heads, batch_first=True)
        blocked, bias = merge_masks(later, padding_to_heads(key_padding_mask), dtype=q.dtype)
        masks = {"blocked": blocked, "bias": bias, "need_weights": need_weights}
        form = self.attend_absorbed if absorb else self.attend_plainly
        heads, weights = form(q, q_rotated, latent, k_rotated, **masks)
        output = self.out_proj(merge_heads(heads))  # (b, n, e)
        return output if self.batch_first else output.transpose(0, 1), weights

    def queries(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Make the queries of each head in two parts: one for the latents, and one that turns.

        Args:
            x: (b, n, e), the tokens.
            positions: (n,) or (b, n), where they stand.

        Returns:
            Both parts, (b, h, n, d) and (b, h, n, r).
        """
        both = split_heads(self.q_up(self.q_down(x)), self.num_heads)
        q, turning = both.split([self.head_dim, self.rotary_dim], -1)
        return q, self.rotary(turning, positions)

    def compress(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Make what is kept of each token: its latent, and the turned key that all heads share.

        Args:
            x: (b, n, e), the tokens.
            positions: (n,) or (b, n), where they stand.

        Returns:
            The latents, (b, 1, n, c), and the keys, (b, 1, n, r), as a cache takes them.
        """
        both = self.kv_down(x)[:, None]
        latent, turning = both.split([self.latent_dim, self.rotary_dim], -1)
        return self.kv_norm(latent), self.rotary(turning, positions)

    def attend_plainly(
        self, q: Tensor, q_rotated: Tensor, latent: Tensor, k_rotated: Tensor, **masks: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Make keys and values for all heads from the latents, and attend.

        Args:
            q: (b, h, n, d), from ``queries``.
            q_rotated: (b, h, n, r), from ``queries``.
            latent: (b, 1, m, c), from ``compress`` or a cache.
            k_rotated: (b, 1, m, r), from ``compress`` or a cache.
            **masks: ``blocked``, ``bias`` and ``need_weights`` of ``scaled_dot_product_attention``.

        Returns:
            The heads' outputs, (b, h, n, d_v), and the weights, (b, h, n, m), or None.
        """
        k = split_heads(self.k_up(latent[:, 0]), self.num_heads)  # (b, h, m, d)
        v = split_heads(self.v_up(latent[:, 0]), self.num_heads)  # (b, h, m, d_v)
        shared = k_rotated.expand(-1, self.num_heads, -1, -1)     # (b, h, m, r)
        q, k = torch.cat([q, q_rotated], -1), torch.cat([k, shared], -1)
        return self._attend(q, k, v, **masks)

    def attend_absorbed(
        self, q: Tensor, q_rotated: Tensor, latent: Tensor, k_rotated: Tensor, **masks: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Bring the queries to the latents instead, and attend to the latents themselves.

        The arguments and results are those of ``attend_plainly``.
        """
        k_up = self.k_up.weight.unflatten(0, (self.num_heads, -1))  # (h, d, c)
        v_up = self.v_up.weight.unflatten(0, (self.num_heads, -1))  # (h, d_v, c)
        q = torch.cat([q @ k_up.to(q.dtype), q_rotated], -1)        # (b, h, n, c + r)
        k = torch.cat([latent, k_rotated], -1)                      # (b, 1, m, c + r)
        mixed, weights = self._attend(q, k, latent, **masks)
        heads = mixed @ v_up.mT.to(mixed.dtype)  # (b, h, n, d_v)
        return heads, weights

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, **masks: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Attend with this module's scale and dropout."""
        dropout_p = self.dropout if self.training else 0.0
        return scaled_dot_product_attention(q, k, v, scale=self.scale, dropout_p=dropout_p, **masks)


class _Norm(nn.RMSNorm):
    """PyTorch's norm, which under autocast warns about a weight of another dtype."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.to(self.weight.dtype)).to(x.dtype)
