"""Contenders that write: some more tokens behind those that are there, with a cache and without."""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from annotated_attention.modern import CachedAttention, KVCache, StaticCache
from annotated_attention.modern.cache import Cache, block_later
from annotated_attention.multihead import MultiheadAttention
from book.measure.contenders import Contenders, assert_same
from book.measure.timing import Contender, Size


def more_tokens(size: Size, kept: int) -> Contenders:
    """Make one attention with each cache, and without; n tokens follow ``kept`` others.

    Each contender computes the output of the n tokens. Without a cache, the final class needs all
    tokens for that. With one, the others are kept, and the n tokens are forgotten before each call.
    """
    b, n, e, h = size
    torch.manual_seed(1)
    module = CachedAttention(e, h, batch_first=True).eval().requires_grad_(False)
    before = torch.randn(b, kept, e)
    room, d = kept + n, e // h
    caches: dict[str, Cache] = {"grows": KVCache(), "fixed size": StaticCache(b, h, room, d)}
    final = MultiheadAttention(e, h, batch_first=True).eval()
    final.load_state_dict(module.state_dict())
    causal: Any = {"need_weights": False, "is_causal": True}

    def without(x: Tensor) -> Tensor:
        every = torch.cat([before, x], 1)
        return final(every, every, every, **causal)[0][:, kept:]

    made: Contenders = {"without": without}
    for name, cache in caches.items():
        module(before, cache)
        made[name] = continued(module, cache, kept)
    made["bare minimum"] = _bare(module, before, n)
    x = torch.randn(b, n, e)
    assert_same(made, x, "without", gradients=False)
    return made


def continued(module: Any, cache: Cache, kept: int, **options: Any) -> Contender:
    """Call a module with a cache that has kept ``kept`` tokens."""

    def call(x: Tensor) -> Tensor:
        if isinstance(cache, KVCache):  # to crop it would take time; a copy has the same tensors
            return module(x, copy.copy(cache), **options)[0]
        cache.crop(kept)
        return module(x, cache, **options)[0]

    return call


def _bare(module: Any, before: Tensor, n: int) -> Contender:
    """Make the shortest equivalent: keys and values have their place, and the fused kernel runs."""
    h, kept = module.num_heads, before.size(1)

    def split(x: Tensor) -> tuple[Tensor, ...]:
        packed = F.linear(x, module.in_proj_weight, module.in_proj_bias)
        return tuple(t.unflatten(-1, (h, -1)).transpose(1, 2) for t in packed.chunk(3, -1))

    _, keys, values = (F.pad(x, (0, 0, 0, n)) for x in split(before))
    positions = kept + torch.arange(n, device=before.device)
    allowed = None if n == 1 else ~block_later(positions, kept + n)

    def attend(x: Tensor) -> Tensor:
        q, keys[:, :, kept:], values[:, :, kept:] = split(x)
        heads = F.scaled_dot_product_attention(q, keys, values, allowed)
        return module.out_proj(heads.transpose(1, 2).flatten(2))

    return attend
