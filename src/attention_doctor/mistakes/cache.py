"""Mistakes that only show when keys and values are kept."""

import torch
from torch import Tensor

from annotated_attention.masks import block_future
from annotated_attention.modern.cache import Cache
from annotated_attention.modern.cached_attention import CachedAttention
from attention_doctor.mistakes._registry import mistake
from attention_doctor.mistakes._steps import RotatedAnew


@mistake(
    wrong="blocked = torch.ones(n, m, dtype=torch.bool).triu(1)",
    right="blocked = torch.arange(m) > positions[:, None]",
    of=CachedAttention,
)
class CausalAtTheWrongCorner(CachedAttention):
    """The causal mask begins in the upper left corner, as if the first query stood at position 0.

    So does `is_causal=True` of PyTorch's function. As long as nothing is kept there are as many
    keys as queries, and both corners give the same mask. Afterwards a single query sees key 0 and
    nothing else, and no shape tells.
    """

    def block(self, positions: Tensor, m: int) -> Tensor:
        return block_future(len(positions), m, positions.device)


@mistake(
    wrong="positions = torch.arange(n)",
    right="positions = cache.length + torch.arange(n)",
    of=CachedAttention,
)
class PositionsRestart(CachedAttention):
    """The positions of a chunk start at 0 again, although tokens are kept.

    The first chunk is right. Later, every new token takes itself for the first one, so its
    distances to all others are wrong. The text stays fluent for a while, since words are still
    words, and gets worse the longer it is.
    """

    def rotate_and_append(
        self, q: Tensor, k: Tensor, v: Tensor, positions: Tensor, cache: Cache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        return super().rotate_and_append(
            q, k, v, torch.arange(len(positions), device=q.device), cache
        )


@mistake(
    wrong="blocked = None if n == 1 else torch.arange(m) > positions[:, None]",
    right="blocked = torch.arange(m) > positions[:, None]",
    of=CachedAttention,
)
class CacheZerosAttended(CachedAttention):
    """A single query gets no mask, although the cache returns places that are not written yet.

    With a cache that grows this is right: nothing stands behind the newest token. A cache of fixed
    size returns zeros there. A zero is a key like any other: its score is 0, and its weight is that
    of an average key. The emptier the cache, the more weight is lost.
    """

    def block(self, positions: Tensor, m: int) -> Tensor:
        return super().block(positions, m) & (len(positions) > 1)


@mistake(
    wrong="k, v = cache.append(k, v); k = rotary(k, positions[0] + torch.arange(m))",
    right="k = rotary(k, positions); k, v = cache.append(k, v)",
    of=CachedAttention,
)
class KeysCachedUnrotated(CachedAttention):
    """Keys are kept before they are rotated, and then all turn as if they were the new ones.

    The rotation counts on from the first new token, so the oldest key gets the position of the
    newest word. With an empty cache, the order of the two lines makes no difference, and a test
    that runs the model once is green.
    """

    def rotate_and_append(
        self, q: Tensor, k: Tensor, v: Tensor, positions: Tensor, cache: Cache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Keep the keys as they are, then turn whatever comes back, from the first position on."""
        if cache is not None:
            k, v = cache.append(k, v)  # (b, h, m, d)
        if self.rotary is not None:
            on = positions[0] + torch.arange(k.size(-2), device=k.device)  # (m,)
            q = self.rotary(q, positions)                                  # (b, h, n, d)
            k = self.rotary(k, on)                                         # (b, h, m, d)
        return q, k, v


@mistake(
    wrong="k = rotary(k, positions); k, v = cache.append(k, v)",
    right="k, v = cache.append(k, v); k = rotary(k, torch.arange(m))",
    of=RotatedAnew,
)
class CachedKeysNotRescaled(RotatedAnew):
    """Keys are rotated before they are kept, while frequencies change with the length of the text.

    With dynamic scaling, every new token slows the rotation down. The keys in the cache keep the
    angles of a shorter text, so a new query and an old key no longer meet at their distance. Up to
    the trained length nothing shows. Beyond it, the text gets worse, as is expected of long texts.
    """

    rotate_and_append = CachedAttention.rotate_and_append
