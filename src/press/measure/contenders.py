"""Contenders with the same parameters, each with another that must compute the same result."""

import copy
import math
import tempfile
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention.heads import merge_heads, split_heads
from annotated_attention.masks import (
    attention_to_heads,
    block_future,
    block_padding,
    merge_masks,
    padding_to_heads,
)
from annotated_attention.modern import CachedAttention, KVCache, LatentAttention, StaticCache
from annotated_attention.modern.cache import Cache, block_by_position
from annotated_attention.multihead import MultiheadAttention
from annotated_attention.pretrained import load_language_model
from annotated_book import chapters
from press.measure.timing import Contender, Contenders, Size

LAYERS, VOCABULARY = 4, 4096  # of a language model
READ = 2**28  # numbers, 1 GiB: caches of processors reach half of that
SQUARE = 4096  # rows and columns of matrices that keep every core multiplying
DROPPED = 1e-12  # so few that outputs are equal; drawn all the same
SHARING = 4  # heads that share one head of keys and values


def like(expected: str, made: dict[str, Contender]) -> Contenders:
    """Compare all contenders with one of them."""
    return {name: (contender, made[expected]) for name, contender in made.items()}


def calls(module: Any, times: int = 3, **options: Any) -> Contender:
    """Call a module on x as queries, keys and values, or once if it takes x alone."""
    return lambda x: module(*[x] * times, **options)[0]


def pair(size: Size, mode: str, bias: bool = True) -> tuple[Any, Any]:
    """Make our class and PyTorch's with the same parameters."""
    _, _, e, h = size
    torch.manual_seed(1)
    theirs = nn.MultiheadAttention(e, h, bias=bias, batch_first=True)
    ours = MultiheadAttention(e, h, bias=bias, batch_first=True)
    ours.load_state_dict(theirs.state_dict())
    return ours.train(mode != "inference"), theirs.train(mode != "inference")


def split(module: Any, x: Tensor) -> tuple[Tensor, ...]:
    """Make queries, keys and values of each head with one product."""
    h = module.num_heads
    g = getattr(module, "num_kv_heads", h)
    packed = F.linear(x, module.in_proj_weight, module.in_proj_bias).unflatten(-1, (h + 2 * g, -1))
    return tuple(part.transpose(1, 2) for part in packed.split((h, g, g), -2))


def bare(module: Any, **options: Any) -> Contender:
    """Make the shortest equivalent without weights: two products and the fused kernel."""

    def attend(x: Tensor) -> Tensor:
        q, k, v = split(module, x)
        heads = F.scaled_dot_product_attention(q, k, v, **options)
        return module.out_proj(heads.transpose(1, 2).flatten(2))

    return attend


def masks(size: Size, blocked: Tensor, in_each_head: Tensor) -> dict[str, dict[str, Any]]:
    """Make the arguments of the final class for each kind of mask.

    Sentences in the padded batch are from half as long to nearly as long as the longest.

    Args:
        size: b, n, e and h.
        blocked: (n, n), True hides.
        in_each_head: (b * h, n, n), True hides.
    """
    b, n, _, _ = size
    padding = {"key_padding_mask": block_padding(torch.arange(b) % 4 * n // 8 + n // 2, n)}
    return {
        "none": {},
        "causal": {"is_causal": True},
        "padding": padding,
        "boolean": {"attn_mask": blocked},
        "floats": {"attn_mask": torch.zeros(n, n).masked_fill(blocked, -torch.inf)},
        "boolean, every head": {"attn_mask": in_each_head},
    }


def for_pytorch(given: dict[str, Any], n: int) -> dict[str, Any]:
    """Add what PyTorch's class needs besides: the mask that ``is_causal`` is a hint to."""
    return {"attn_mask": block_future(n)} | given if "is_causal" in given else given


def scattered(n: int, step: int = 37) -> Tensor:
    """Block about a third of all keys here and there, but never key 0: (n, n)."""
    i = torch.arange(n)
    blocked = (i[:, None] * step + i * 101) % 127 < 42  # (n, n)
    return blocked & (i > 0)                            # (n, n)


def final_class(size: Size, mode: str, mask: str, need_weights: bool) -> Contenders:
    """Make the final class, PyTorch's, and the bare minimum, under one mask."""
    ours, theirs = pair(size, mode)
    b, n, _, h = size
    heads = torch.stack([scattered(n, 37 + i) for i in range(b * h)])
    given = masks(size, scattered(n), heads)[mask]
    made = {
        "PyTorch": calls(theirs, need_weights=need_weights, **for_pytorch(given, n)),
        "final class": calls(ours, need_weights=need_weights, **given),
    }
    if not need_weights:
        padding = padding_to_heads(given.get("key_padding_mask"))
        blocked, bias = merge_masks(padding, attention_to_heads(given.get("attn_mask"), h))
        seen = bias if blocked is None else ~blocked
        made["bare minimum"] = bare(theirs, attn_mask=seen, is_causal=mask == "causal")
    return like("PyTorch", made)


def one_race(size: Size, mode: str) -> Contenders:
    """Make PyTorch's class, in each way to call it, and its function, under each mask.

    The function has the class's projections around it, and gets its masks ready-made.
    """
    _, theirs = pair(size, mode)
    b, n, _, h = size
    blocked = scattered(n)
    heads = torch.stack([scattered(n, 37 + i) for i in range(b * h)])  # (b * h, n, n)
    seen = ~heads.view(b, h, n, n)
    of_head, of_all = (_as_floats(~hidden) for hidden in (heads, blocked))
    given: dict[str, tuple[Tensor | None, dict[str, Any]]] = {  # to the class, the function
        "none": (None, {}),
        "causal": (block_future(n), {"is_causal": True}),
        "booleans": (blocked, {"attn_mask": ~blocked}),
        "floats": (of_all, {"attn_mask": of_all}),
        "every head": (heads, {"attn_mask": seen}),
        "every head, floats": (of_head, {"attn_mask": of_head.view(b, h, n, n)}),
    }
    made: Contenders = {}
    for kind, (mask, options) in given.items():
        function = bare(theirs, **options)
        for weights, name in ((True, "class, weights"), (False, "class")):
            call = calls(theirs, attn_mask=mask, need_weights=weights)
            made[f"{kind}: {name}"] = (call, function)
            made[f"{kind}: {name}, fast path off"] = (without_fast_path(call), function)
        made[f"{kind}: function"] = (function, call)
    both = calls(theirs, attn_mask=block_future(n), is_causal=True, need_weights=False)
    made["causal: class, fast path off, flag"] = (without_fast_path(both), made["causal: class"][0])
    return made


def served(size: Size) -> Contenders:
    """Attend in a padded batch of texts from half as long to as long as the longest.

    Rows of padding are made zero, as one way does not compute them.
    """
    _, theirs = pair(size, "inference")
    b, n, _, _ = size
    half = n // 2
    lengths = half + torch.arange(b) * 7 % b * (n - half) // max(b - 1, 1)
    padding = block_padding(lengths, n)  # (b, n)

    def emptied(attend: Contender) -> Contender:
        return lambda x: attend(x).masked_fill(padding[..., None], 0)

    def function(module: Any, x: Tensor, padding: Tensor) -> Tensor:
        return bare(module, attn_mask=~padding[:, None, None])(x)

    def by_length(x: Tensor) -> Tensor:
        output = torch.zeros_like(x)
        for rows in lengths.argsort().split(-(-b // 4)):
            longest = int(lengths[rows].max())
            output[rows, :longest] = function(theirs, x[rows, :longest], padding[rows, :longest])
        return output

    rounded = copy.deepcopy(theirs).bfloat16()
    call = calls(theirs, key_padding_mask=padding, need_weights=False)
    made = {
        "class": call,
        "class, fast path off": without_fast_path(call),
        "function": lambda x: function(theirs, x, padding),
        "function, by length": by_length,
        "function, bfloat16": lambda x: function(rounded, x.bfloat16(), padding),
    }
    return like("class", {name: emptied(way) for name, way in made.items()})


def _as_floats(seen: Tensor) -> Tensor:
    """Make the floats that are added to the scores, of a mask in which True keeps."""
    return torch.zeros(seen.shape).masked_fill(~seen, -torch.inf)


def without_fast_path(call: Contender) -> Contender:
    """Make a call with PyTorch's "fast path" switched off."""

    def slow(x: Tensor) -> Tensor:
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            return call(x)
        finally:
            torch.backends.mha.set_fastpath_enabled(True)

    return slow


def fast_path(size: Size, mode: str) -> Contenders:
    """Make PyTorch's evaluation on its "fast path" and off it, with a boolean mask and without."""
    _, theirs = pair(size, mode)
    made: Contenders = {}
    for end, mask in (("", None), (", mask", block_future(size[1]))):
        fast = calls(theirs, need_weights=False, attn_mask=mask)
        slow = without_fast_path(fast)
        made |= {f"off{end}": (slow, fast), f"on{end}": (fast, slow)}
    return made


def step_by_step(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend with all scores and weights in memory."""
    scores = (q / math.sqrt(q.size(-1))) @ k.mT  # (b, h, n, d) x (b, h, d, m) -> (b, h, n, m)
    return scores.softmax(-1) @ v                # (b, h, n, m) x (b, h, m, d) -> (b, h, n, d)


ATTEND: dict[str, Callable[..., Tensor]] = {
    "fused": F.scaled_dot_product_attention,
    "step by step": step_by_step,
}


def on_given(attend: Callable[..., Tensor], heads: Tensor, x: Tensor) -> Tensor:
    """Attend with heads that do not depend on x."""
    return attend(*heads)


def twice_as_wide(size: Size) -> Contenders:
    """Attend with heads of width d and 2 d: twice the multiplications, and as many scores."""
    b, n, e, h = size
    made: dict[str, dict[str, Contender]] = {}
    for end, d in (("", e // h), (", 2 d", 2 * e // h)):
        heads = torch.randn(3, b, h, n, d)
        made[end] = {name: partial(on_given, attend, heads) for name, attend in ATTEND.items()}
    fused, steps = ATTEND
    same = {fused: steps, steps: fused}
    return {
        name + end: (way, ways[same[name]])
        for end, ways in made.items()
        for name, way in ways.items()
    }


def one_query(size: Size, kept: int) -> Contenders:
    """Let one token follow others: with their keys and values kept, or by PyTorch's class."""
    _, theirs = pair(size, "inference")
    before = torch.randn(size[0], kept, size[2])

    def cached(attend: Callable[..., Tensor]) -> Contender:
        with torch.no_grad():
            _, keys, values = (F.pad(x, (0, 0, 0, 1)) for x in split(theirs, before))

        def call(x: Tensor) -> Tensor:
            q, keys[:, :, kept:], values[:, :, kept:] = split(theirs, x)
            return theirs.out_proj(attend(q, keys, values).transpose(1, 2).flatten(2))

        return call

    def anew(x: Tensor) -> Tensor:
        known = torch.cat([before, x], 1)
        return theirs(x, known, known, need_weights=False)[0]

    return like("class", {name: cached(way) for name, way in ATTEND.items()} | {"class": anew})


def kernels(size: Size) -> Contenders:
    """Make PyTorch's function on the same numbers, in layouts that get one kernel or another.

    Heads that lie apart, (b, n, d, h), are other heads than those that lie together, so each layout
    is compared with its own, made contiguous.
    """
    h = size[3]

    def together(x: Tensor) -> Tensor:
        return x.unflatten(-1, (h, -1)).transpose(1, 2)

    def apart(x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2)

    def attend(q: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, q, q)

    def merged(heads: Tensor) -> Tensor:
        return heads.transpose(1, 2).flatten(2)

    ways: dict[str, Contender] = {
        "(b, h, n, d)": lambda x: merged(attend(together(x))),
        "(b * h, n, d)": lambda x: merged(attend(together(x).flatten(0, 1)).view_as(together(x))),
        "cut as (b, n, d, h)": lambda x: merged(attend(apart(x))),
        "cut so, then contiguous": lambda x: merged(attend(apart(x).contiguous())),
    }
    b, n, _, _ = size
    learnt = torch.randn(b, h, n, n, requires_grad=True)

    def biased(bias: Tensor) -> Contender:
        def call(x: Tensor) -> Tensor:
            q = together(x)
            return merged(F.scaled_dot_product_attention(q, q, q, bias))

        return call

    def dropping(x: Tensor) -> Tensor:
        q = together(x)
        return merged(F.scaled_dot_product_attention(q, q, q, dropout_p=DROPPED))

    ways |= {"learnt bias": biased(learnt), "learnt bias, detached": biased(learnt.detach())}
    names = list(ways)
    same = dict(zip(names[::2] + names[1::2], names[1::2] + names[::2], strict=True))
    ways["dropout"], same["dropout"] = dropping, names[0]
    return {name: (way, ways[same[name]]) for name, way in ways.items()}


class AllAtOnce(nn.Module):
    """Attend as “One head” does, in all heads at once, split and merged without a loop."""

    def __init__(self, num_heads: int, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor) -> None:
        """Take the four matrices, (e, e) each."""
        super().__init__()
        self.num_heads = num_heads
        self.w_q, self.w_k, self.w_v, self.w_o = map(nn.Parameter, (w_q, w_k, w_v, w_o))
        self.attend = chapters.load("01_one_head").attend

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Give the output and the weights."""
        wide = query @ self.w_q, key @ self.w_k, value @ self.w_v
        mixed, weights = self.attend(*(split_heads(x, self.num_heads) for x in wide))
        return merge_heads(mixed) @ self.w_o, weights


def one_by_one(size: Size, mode: str) -> Contenders:
    """Make the chapters' list of heads, and all heads at once; both return their weights."""
    ours, _ = pair(size, mode, bias=False)
    _, _, e, h = size
    listed = chapters.load("02_two_heads").Heads(e, h)
    *inward, outward = (x.T for x in (*ours.in_proj_weight.chunk(3), ours.out_proj.weight))
    at_once = AllAtOnce(h, *(x.detach().contiguous() for x in (*inward, outward)))
    with torch.no_grad():
        for name, matrix in zip(("w_q", "w_k", "w_v"), inward, strict=True):
            for head, part in zip(listed.heads, matrix.chunk(h, dim=1), strict=True):
                getattr(head, name).copy_(part)
        listed.w_o.copy_(outward)
    made = {"all heads at once": calls(at_once), "a list of heads": calls(listed)}
    return like("all heads at once", made)


def fewer_keys(size: Size) -> Contenders:
    """Make causal attention with keys for every head, with groups, and with latents.

    Each computes something of its own, so each is compared with another way to the same result:
    the fused kernel on its own products, and for latents the other form.
    """
    made: Contenders = {}
    for name, (module, options) in _sharing(size).items():
        if options:
            same = calls(module, 1, absorb=not options["absorb"])
        else:
            same = bare(module, is_causal=True, enable_gqa=True)
        made[name] = calls(module, 1, **options), same
    return made


def kept_in_fewer_keys(size: Size, kept: int) -> Contenders:
    """Make the same with a cache: n tokens follow ``kept`` others."""
    before = torch.randn(size[0], kept, size[2])
    return {
        name: (continued(module, before, KVCache(), **options), behind(before, calls(module, 1)))
        for name, (module, options) in _sharing(size).items()
    }


def _sharing(size: Size) -> dict[str, tuple[Any, dict[str, bool]]]:
    """Make modules, and how to call them; a latent is as wide as four heads and half a one more."""
    _, _, e, h = size
    torch.manual_seed(1)
    d = e // h
    heads = {"every head": h, "groups": max(h // SHARING, 1), "one head": 1}
    made: dict[str, tuple[Any, dict[str, bool]]] = {
        name: (CachedAttention(e, h, num_kv_heads=g, batch_first=True), {})
        for name, g in heads.items()
    }
    latents = LatentAttention(e, h, latent_dim=4 * d, rotary_dim=d // 2, batch_first=True)
    forms = {
        "latents": (latents, {"absorb": False}),
        "latents, absorbed": (latents, {"absorb": True}),
    }
    return made | forms


def more_tokens(size: Size, kept: int) -> Contenders:
    """Make one attention with each cache, and without; n tokens follow ``kept`` others.

    Each computes the output of the n tokens. Without a cache, the final class needs all tokens for
    that. With one, the others are kept, and the n tokens are forgotten before each call.
    """
    b, n, e, h = size
    torch.manual_seed(1)
    module = CachedAttention(e, h, batch_first=True)
    final = MultiheadAttention(e, h, batch_first=True)
    final.load_state_dict(module.state_dict())
    before = torch.randn(b, kept, e)
    made = {
        "without": behind(before, calls(final.eval(), need_weights=False, is_causal=True)),
        "grows": continued(module, before, KVCache()),
        "fixed size": continued(module, before, StaticCache(b, h, kept + n, e // h)),
        "bare minimum": _bare_with_cache(module, before, n),
    }
    return like("without", made)


def behind(before: Tensor, call: Contender) -> Contender:
    """Compute the outputs of tokens that follow others from all of them."""
    return lambda x: call(torch.cat([before, x], 1))[:, before.size(1) :]


@torch.no_grad()
def continued(module: Any, before: Tensor, cache: Cache, **options: Any) -> Contender:
    """Call a module with a cache that has kept what came before."""
    module.eval()(before, cache)

    def call(x: Tensor) -> Tensor:
        if isinstance(cache, KVCache):  # to crop it would take time; a copy has the same tensors
            return module(x, copy.copy(cache), **options)[0]
        cache.crop(before.size(1))
        return module(x, cache, **options)[0]

    return call


@torch.no_grad()
def _bare_with_cache(module: Any, before: Tensor, n: int) -> Contender:
    """Make the shortest equivalent: keys and values have their place, and the fused kernel runs."""
    kept = before.size(1)
    _, keys, values = (F.pad(x, (0, 0, 0, n)) for x in split(module, before))
    allowed = None if n == 1 else ~block_by_position(kept + torch.arange(n), kept + n)

    def attend(x: Tensor) -> Tensor:
        q, keys[:, :, kept:], values[:, :, kept:] = split(module, x)
        heads = F.scaled_dot_product_attention(q, keys, values, allowed)
        return module.out_proj(heads.transpose(1, 2).flatten(2))

    return attend


def decoders(size: Size, kept: int, dtype: str) -> Contenders:
    """Make a language model and transformers' with its weights: n tokens follow ``kept`` others.

    Each computes the scores of one token, the next. What is new is forgotten before each call.
    """
    import transformers  # takes seconds

    transformers.utils.logging.disable_progress_bar()
    _, n, e, h = size
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=e,
        intermediate_size=8 * e // 3,
        num_hidden_layers=LAYERS,
        num_attention_heads=h,
        num_key_value_heads=h // 3 or 1,
    )
    theirs = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        ours = load_language_model(folder, dtype=getattr(torch, dtype))
    theirs = theirs.to(getattr(torch, dtype)).eval()
    before, new = torch.randint(VOCABULARY, (1, kept + n)).split([kept, n], 1)
    caches = [KVCache() for _ in ours.layers]
    cache = transformers.DynamicCache(config=config)
    if kept:
        with torch.no_grad():
            ours(before, caches)
            theirs(before, past_key_values=cache)

    def score(x: Tensor) -> Tensor:
        states = ours.states(new, [copy.copy(cache) for cache in caches])
        return ours.logits(states[:, -1:])

    def score_theirs(x: Tensor) -> Tensor:
        again = copy.copy(cache)
        again.layers = [copy.copy(layer) for layer in cache.layers]
        return theirs(new, past_key_values=again, logits_to_keep=1).logits

    return like("transformers", {"language model": score, "transformers": score_theirs})


def reading(dtype: str) -> Contenders:
    """Read many numbers and do next to nothing with them: a matrix times one vector."""
    matrix = torch.ones(READ // 1024, 1024, dtype=getattr(torch, dtype))
    vector = torch.ones(1024, dtype=matrix.dtype)
    return like("read", {"read": lambda x: matrix @ vector})


def multiplying() -> Contenders:
    """Read few numbers and do much with each: the product of two large matrices."""
    left, right = torch.ones(2, SQUARE, SQUARE)
    return like("multiply", {"multiply": lambda x: left @ right})
