"""Contenders of today's attention: with shared keys, and with latents."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from annotated_attention.modern import CachedAttention, KVCache, LatentAttention
from book.measure.caching import continued
from book.measure.contenders import Contenders, assert_same
from book.measure.timing import Contender, Size

SHARING = 4  # heads that share one head of keys and values


def fewer_keys(size: Size) -> Contenders:
    """Make causal attention with keys for every head, with groups, and with latents.

    Each computes something of its own, so each is compared with another way to the same result:
    the fused kernel on its own products, and for latents the absorbed form.
    """
    b, n, e, _ = size
    modules = _modules(size)
    x = torch.randn(b, n, e, requires_grad=True)
    made: Contenders = {}
    for name, module in modules.items():
        made[name] = _output(module)
        if isinstance(module, LatentAttention):
            made["latents, absorbed"] = same = _output(module, absorb=True)
        else:
            same = _through_the_kernel(module)
        assert_same({name: made[name], "reference": same}, x, "reference")
    return made


def kept_in_fewer_keys(size: Size, kept: int) -> Contenders:
    """Make the same with a cache: n tokens follow ``kept`` others."""
    b, n, e, _ = size
    before, x = torch.randn(b, kept, e), torch.randn(b, n, e)
    made: Contenders = {}
    for name, module in _modules(size).items():
        forms = (False, True) if isinstance(module, LatentAttention) else (None,)
        for absorb in forms:
            options = {} if absorb is None else {"absorb": absorb}
            cache = KVCache()
            with torch.no_grad():
                module.eval()(before, cache)
            written = f"{name}, absorbed" if absorb else name
            made[written] = continued(module, cache, kept, **options)

            def whole(x: Tensor, module: Any = module) -> Tensor:
                return module(torch.cat([before, x], 1))[0][:, kept:]

            pair = {written: made[written], "without": whole}
            assert_same(pair, x, "without", gradients=False)
    return made


def _modules(size: Size) -> dict[str, Any]:
    """Make the modules: a latent is as wide as four heads, and its key that turns as half a one."""
    _, _, e, h = size
    torch.manual_seed(1)
    d = e // h
    shared = max(h // SHARING, 1)
    return {
        "every head": CachedAttention(e, h, batch_first=True),
        "groups": CachedAttention(e, h, num_kv_heads=shared, batch_first=True),
        "one head": CachedAttention(e, h, num_kv_heads=1, batch_first=True),
        "latents": LatentAttention(e, h, latent_dim=4 * d, rotary_dim=d // 2, batch_first=True),
    }


def _output(module: Any, **options: Any) -> Contender:
    """Call a module on x alone."""
    return lambda x: module(x, **options)[0]


def _through_the_kernel(module: Any) -> Contender:
    """Make the shortest equivalent of grouped or single heads."""

    def attend(x: Tensor) -> Tensor:
        q, k, v = module._project(x, x, x)
        q = q.unflatten(-1, (module.num_heads, -1)).transpose(1, 2)
        k, v = (t.unflatten(-1, (module.num_kv_heads, -1)).transpose(1, 2) for t in (k, v))
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return module.out_proj(heads.transpose(1, 2).flatten(2))

    return attend
