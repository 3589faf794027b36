"""Contenders that write: some more tokens behind those that are there, with a cache and without."""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from annotated_attention.measure.contenders import Contenders, Factory, assert_same
from annotated_attention.measure.timing import Contender, Size
from annotated_attention.modern.cache import Cache, KVCache, StaticCache, block_later
from annotated_attention.modern.cached_attention import CachedAttention
from annotated_attention.modern.paged import PagedCache
from annotated_attention.multihead import MultiheadAttention

PAGE = 16  # tokens


def more_tokens(size: Size, factory: Factory, kept: int) -> Contenders:
    """Make one attention with each cache, and without; n tokens follow ``kept`` others.

    Each contender computes the output of the n tokens. Without a cache, the final class needs all
    tokens for that. With one, the others are kept, and the n tokens are forgotten before each
    call.
    """
    b, n, e, h = size
    torch.manual_seed(1)
    module = CachedAttention(e, h, batch_first=True, **factory).eval().requires_grad_(False)
    before = torch.randn(b, kept, e, **factory)
    room, d = kept + n, e // h
    pages = b * -(-room // PAGE)
    caches: dict[str, Cache] = {
        "grows": KVCache(),
        "fixed size": StaticCache(b, h, room, d, **factory),
        "pages": PagedCache(pages, PAGE, h, d, **factory),
    }
    final = MultiheadAttention(e, h, batch_first=True, **factory).eval()
    final.load_state_dict(module.state_dict())
    causal: Any = {"need_weights": False, "is_causal": True}

    def without(x: Tensor) -> Tensor:
        every = torch.cat([before, x], 1)
        return final(every, every, every, **causal)[0][:, kept:]

    made: Contenders = {"without": without}
    for name, cache in caches.items():
        module(before, cache)
        made[name] = _continued(module, cache, kept)
    made["bare minimum"] = _bare(module, before, n)
    x = torch.randn(b, n, e, **factory)
    assert_same(made, x, "without", gradients=False)
    return made


def _continued(module: CachedAttention, cache: Cache, kept: int) -> Contender:
    """Call a module with a cache that has kept ``kept`` tokens."""

    def call(x: Tensor) -> Tensor:
        if isinstance(cache, KVCache):  # to crop it would copy what it keeps
            return module(x, copy.copy(cache))[0]
        cache.crop(kept)
        return module(x, cache)[0]

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
