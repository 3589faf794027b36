# %% [markdown]
# # Speed
#
# *Why is my attention slow on a CPU, and what do I change?*
#
# *8 minutes and 2 of exercises. Afterwards you can find what slows a call, change the line that
# does it, and measure whether it helped.*
#
# Here is `nn.MultiheadAttention` at 2,048 tokens, in evaluation, with a causal mask. Make the call as fast as it can be. (The last button wakes when you have pressed the others.)

# %% tags=["hide-input"]
import os

os.environ["KINETO_LOG_LEVEL"] = "99"  # or the profiler writes a line at each start

import itertools
import math
import statistics
import warnings

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import benchmark

from annotated_attention import MultiheadAttention
from annotated_book import display, measured
from annotated_book.measured import find  # gives you the cases of a section

warnings.filterwarnings("ignore", message=".*nested tensors is in prototype stage")
MIDDLE = 1  # of the lower quartile, the median and the upper quartile
RACES = ("one race", "fast path", "kernels", "twice as wide", "one query")
RUN = measured.origin("one race")
assert {measured.origin(race)["cpu"] for race in RACES} == {RUN["cpu"]}
MACHINE = "{cpu}, torch {torch}, {date:.10}".format(**RUN)
THREADS = f"{RUN['threads']} thread" + "s" * (RUN["threads"] > 1)


# %% tags=["hide-input"]
(race,) = find("one race")
took, per = race["milliseconds"], race["ratios"]
shares = {way: dict(parts) for way, parts in race["profile"].items()}
FUSED = "_scaled_dot_product_flash_attention_for_cpu"
KINDS = {
    "none": display.Given("", ""),
    "causal": display.Given("attn_mask=future", "is_causal=True"),
    "booleans": display.Given("attn_mask=hide", "attn_mask=~hide"),
    "floats": display.Given("attn_mask=floats", "attn_mask=floats"),
    "every head": display.Given("attn_mask=hide_by_head", "attn_mask=see_by_head"),
    "every head, floats": display.Given("attn_mask=floats", "attn_mask=floats"),
}


def by_mask(ways: dict) -> dict:
    """Sort what is known of each way to call by its mask."""
    return {
        mask: {
            way[len(mask) + 2 :]: x for way, x in ways.items() if way.startswith(f"{mask}:")
        }
        for mask in KINDS
    }


# %% tags=["hide-input"]
fused = {
    mask: [way for way, parts in ways.items() if FUSED in parts]
    for mask, ways in by_mask(shares).items()
}
caption = (
    "b = 1, width e = 512, h = 8. The function has the class's projections around it. "
    "Booleans and floats are scattered over (n, m), or drawn for every head. "
    "Orange: step by step. Blue: the fused kernel. Medians, and grey lines from quartile "
    f"to quartile, of one race of {race['rounds']} rounds; {THREADS} of {MACHINE}."
)
display.call_race(
    KINDS, by_mask(took), fused, start="causal", name="which-call", caption=caption
)

# %% [markdown]
# With a long sequence, these lines are the answer ([a GPU](#cell-id=and-on-a-gpu) has rules of its own). The first is for heads that you have cut yourself, the others for PyTorch's class:
#
# ```python
# heads = F.scaled_dot_product_attention(q, k, v)     # (b, h, n, d), no dropout
#
# torch.backends.mha.set_fastpath_enabled(False)      # for the whole program
# output, _ = attention(x, x, x, need_weights=False)  # returns None for the weights
# ```
#
# The second line looks like a slip: who switches off a fast path to save time?
#
# To return no weights is not to make none. `nn.MultiheadAttention`, without a mask, takes 300 ms. Decline its weights, and it still takes
# 295, too close to call: PyTorch's shortcut for such calls, the **fast path**, computes them all the same. Off the fast path, the class calls the function,
# which makes none: 192.

# %% tags=["proof"]
x, theirs = torch.randn(2, 16, 48), nn.MultiheadAttention(48, 8, batch_first=True).eval()
with torch.no_grad():
    outputs = [theirs(x, x, x)[0], theirs(x, x, x, need_weights=False)[0]]
    torch.backends.mha.set_fastpath_enabled(False)
    outputs.append(theirs(x, x, x, need_weights=False)[0])
    torch.backends.mha.set_fastpath_enabled(True)
    packed = F.linear(x, theirs.in_proj_weight, theirs.in_proj_bias).unflatten(
        -1, (3, 8, 6)
    )
    heads = F.scaled_dot_product_attention(*packed.permute(2, 0, 3, 1, 4))
    outputs.append(theirs.out_proj(heads.transpose(1, 2).flatten(2)))
assert all(x["rounds"] >= 17 for section in RACES for x in find(section))
for output in outputs[1:]:
    torch.testing.assert_close(output, outputs[0])
assert per["none: class"]["none: class, fast path off"][2] < 0.8
low, _, high = per["none: class"]["none: class, weights"]
assert low < 1 < high
print("✓ As it comes, without weights, off the fast path, by the function: one output.")

# %% [markdown]
# The weights are n · m numbers for each head, for n queries and m keys. PyTorch's **fused kernel** never writes them into
# memory. A slow call mostly writes them, or a mask as large:
#
# | it is slow because … | write instead |
# |---|---|
# | you [ask for weights](#cell-id=the-price-of-the-weights), as is the default of `nn.MultiheadAttention` | `need_weights=False`, as `nn.TransformerEncoderLayer` does for you; in evaluation the next line, too |
# | without weights, the class takes its [fast path](#cell-id=the-fast-path), on a long sequence or with a boolean mask | switch it off |
# | [booleans for every head](#cell-id=the-price-of-a-mask) become floats in each call | the floats, made once; or a mask for all heads |
# | the class gets `attn_mask` and `key_padding_mask`, and makes of both a mask for every head | the function, with one `(b, 1, n, m)` |
# | the fused kernel [refuses](#cell-id=which-kernel-runs) your heads | four axes, the last contiguous |
# | it refuses a learnt bias, even under `no_grad()` | in evaluation, `bias.detach()` |
# | on a CPU, training has dropout on the weights, 0.1 in PyTorch's layers by default | `self_attn.dropout = 0.0` |
# | a model of `transformers` is `"eager"`, as it must be where you [want weights](../docs/messages.md#output-attentions) | `"sdpa"`, the default of `attn_implementation` |

# %% tags=["proof"]
from unittest import mock

function, padded = F.scaled_dot_product_attention, torch.ones(2, 16).triu(15).bool()
both = {"attn_mask": torch.ones(16, 16).triu(1).bool(), "key_padding_mask": padded}
for given, made in (both, 2 * 8 * 16 * 16), ({"attn_mask": both["attn_mask"]}, 16 * 16):
    with mock.patch.object(F, "scaled_dot_product_attention", wraps=function) as asked_for:
        theirs.train()(x, x, x, need_weights=False, **given)
    floats = asked_for.call_args.args[3]
    assert floats.untyped_storage().nbytes() == 4 * made
theirs.eval()
assert (
    theirs.merge_masks(*both.values(), x)[0].untyped_storage().nbytes() == 2 * 8 * 16 * 16
)
print("✓ Of two masks, the class makes one for every head.")

# %% [markdown] name="the-price-of-the-weights"
# ## Why do weights cost so much?
#
# This travels with the weights, and without them:

# %% tags=["hide-input"]
drawing, axes = display.panels(620, 250, columns=2)
apart = ["Q, K ↑", "scores ↓", "scores ↑", "weights ↓", "weights, V ↑", "output ↓"]
trips = {"step by step": apart, "fused": ["Q, K, V ↑", "output ↓"]}
ink, alt = display.COLOURS, "What travels between processor and memory. "
for ax, (name, travels) in zip(axes, trips.items()):
    ax.set(xlim=(-0.6, 5.6), ylim=(-0.5, 3.5), title=name)
    ax.axis("off")
    for y, place in ((3, "processor"), (0, "memory")):
        ax.axhspan(y - 0.35, y + 0.35, color=ink["b"], alpha=0.18, lw=0)
        ax.text(2.5, y, place, ha="center", va="center", fontsize=13)
    for x, what in zip([1.2, 4.2] if name == "fused" else range(6), travels):
        large = what.startswith(("scores", "weights"))
        start, end = (0.4, 2.6) if "↑" in what else (2.6, 0.4)
        hue, width = (ink["h"], 4) if large else (ink["n"], 1)
        arrow = {"arrowstyle": "-|>", "color": hue, "lw": width, "mutation_scale": 14}
        ax.annotate("", (x, end), (x, start), arrowprops=arrow)
        ax.text(x - 0.15, 1.5, what[:-2], rotation=90, ha="right", va="center", fontsize=12)
    alt += f"{name.capitalize()}: {', '.join(travels)}. "
caption = (
    "Thick arrows carry n × m numbers for each head, thin ones a few rows for each token."
)
display.finish(drawing, name="traffic", alt=alt, caption=caption)

# %% [markdown]
# The fused kernel takes a block of keys at a time, keeps a running sum, and forgets each block in the
# processor. This is FlashAttention [[Dao et al.](../docs/references.md#dao-2022)]; you build one in
# [Tiles](23_tiles.ipynb). It saves memory even more than time: without its weights, and without dropout,
# [the book's class](07_multihead_attention.ipynb) trains on 2,048 tokens in a tenth of the memory, and on 4,096 in a twentieth.
#
# On a CPU, travel is not even the larger part. Each call asks for new memory, here 134 MB<!-- setting --> for the weights, and the system
# clears each page of it when it is first touched. One softmax of this size takes 111<!-- quoted --> ms into new memory, and
# 34<!-- quoted --> into memory that is kept, `torch.softmax(scores, -1, out=kept)`. PyTorch keeps a GPU's memory between calls, so there the travel is what counts.
#
# Which limit is yours? Make the heads twice as wide: that is twice the arithmetic, and as many thick arrows. A call that
# takes twice as long is **compute-bound**. One that takes hardly longer is bound by something else, mostly by memory (**memory-bound**): its travel or, as here, its clearing. Fewer FLOPs would not help it.

# %% tags=["hide-input"]
(wide,) = find("twice as wide")
(one,) = find("one query")
doubled = {x: [wide["ratios"][x][f"{x}, 2 d"][MIDDLE]] for x in ("fused", "step by step")}
title = "Heads twice as wide: times the time, n = 2,048"
display.show(doubled, columns=["time"], decimals=".2f", corner="attention", title=title)

# %% [markdown]
# Fused, attention is nearly compute-bound. Step by step, it is not.
#
# While a model writes, each call has **one query**. Its weights are one row for each head, and cost little.
# `nn.MultiheadAttention` is dear all the same: it keeps no keys and values, so it projects the whole text anew. A
# [cache](21_cache.ipynb) keeps them:

# %% tags=["hide-input"]
ways = {
    "keys kept, the function": "fused",
    "keys kept, weights step by step": "step by step",
    "the class, all tokens anew": "class",
}
decode = {name: [one["milliseconds"][way][MIDDLE]] for name, way in ways.items()}
title = "One query behind 2,047 tokens"
display.show(decode, columns=["ms"], decimals=".1f", corner="a call", title=title)

# %% tags=["proof"]
slower = [wide["ratios"][x][f"{x}, 2 d"] for x in ("fused", "step by step")]
assert slower[0][0] > 1.5 > slower[1][2]
assert one["ratios"]["fused"]["step by step"][MIDDLE] < 1.5
assert one["ratios"]["fused"]["class"][0] > 5
peaks = {row["name"]: row for row in measured.load()["memory"]}
two, four = zip(
    *(peaks[name]["bytes"][:2] for name in ("final class, weights", "final class"))
)
assert all(row["lengths"] == [2048, 4096] for row in peaks.values())
assert 0.095 < two[1] / two[0] < 0.1
assert 0.045 < four[1] / four[0] < 0.05
assert four[0] / two[0] > 3.7
assert four[1] / two[1] < 2.1
print("✓ Twice the tokens: with weights nearly four times the memory, without them twice.")

# %% [markdown] name="the-fast-path"
# ## When does the fast path run?
#
# The fast path is one operation in C++. It skips PyTorch's Python, but on a CPU it skips the fused kernel, too, and goes
# step by step. Up to how many tokens is it faster, on our machine and without weights?
#
# <details name="short"><summary>About 1,000</summary>
#
# It is slower from 256 tokens on: what it writes grows with n², and the Python that it skips does not grow.
#
# </details>
# <details name="short"><summary>About 100</summary>
#
# Nearly: up to 128 tokens the two are even, and the quartiles lie on both sides of 1.
#
# </details>
# <details name="short"><summary>At no length</summary>
#
# Right, here. Up to 128 tokens the two are even; then it is slower. Your machine may decide otherwise: race them.
#
# </details>

# %% tags=["hide-input"]
curve = {row["size"][1]: row["ratios"] for row in find("fast path")}
ends = {"boolean mask": ("on, mask", "off, mask", "h"), "no mask": ("on", "off", "n")}
drawing, (ax,) = display.panels(350, 230)
alt, start = "Time on the fast path by time off it. ", {}
for name, (way, base, hue) in ends.items():
    lows, middles, highs = zip(*(ratios[base][way] for ratios in curve.values()))
    ink = display.COLOURS[hue]
    ax.fill_between(list(curve), lows, highs, color=ink, alpha=0.2, lw=0)
    ax.plot(list(curve), middles, color=ink, marker="o", ms=4)
    ax.text(2200, middles[-1], name, fontsize=12, va="center")
    lost = max((n for n, low in zip(curve, lows) if low <= 1), default=0)
    start[name] = min(n for n in curve if n > lost)
    said = "; ".join(f"n = {n:,}: {x:.2f}" for n, x in zip(curve, middles))
    alt += f"{name.capitalize()}: {said}. "
ax.axhline(1, color="#808080", lw=1.5, ls="--")
ax.set_xscale("log", base=2)
ax.set_xticks(list(curve)[::2], [f"{n:,}" for n in curve][::2])
ax.minorticks_off()
ax.set(xlim=(28, 6000), xlabel="tokens n", ylabel="on ÷ off", ylim=(0, None))
ax.plot(start["no mask"], 1, marker="|", ms=24, color=display.COLOURS["n"], mew=2, zorder=3)
caption = (
    "Time on the fast path ÷ time off it; b = 1, e = 512, h = 8, no weights. Shaded: from "
    f"quartile to quartile. Without a mask, it is slower from n = {start['no mask']:,} on."
)
display.finish(drawing, name="fast-path", caption=caption, alt=alt)

# %% tags=["proof"]
for n, ratios in curve.items():
    low, _, high = ratios["off"]["on"]
    assert low < 1 < high if n <= 128 else low > 1
    assert n < 64 or ratios["off, mask"]["on, mask"][0] > 1
print("✓ Without a mask, even up to 128 tokens, then slower; with one, slower from 64 on.")

# %% [markdown]
# Are you on it? It takes calls in evaluation, without gradients, if `batch_first=True`, the number of heads is even, there
# are biases, and queries, keys and values are one tensor. A mask of floats keeps a call off it. The switch is
# for the whole program, `nn.TransformerEncoder` included, whose layer on the fast path [misreads finite masks of floats](16_masks_in_the_wild.ipynb#cell-id=booleans-or-floats).
# One thing you lose: given `src_key_padding_mask`, that encoder on its fast path leaves the padding out, and off it computes the padding, too. With a
# batch that is mostly padding, measure both.

# %% [markdown] name="deeper-why-not"
# <!-- deeper: let PyTorch say why a call is not on the fast path -->
# ### Going deeper: let PyTorch say why a call is not on the fast path
#
# PyTorch notes the reason, and tells nobody. But a nested tensor cannot take the other path, so it gets the reason as an
# error. Send one:


# %%
def why_not(attention: nn.MultiheadAttention) -> str:
    """Let PyTorch say why a module keeps off the fast path; empty if it is on it."""
    one = torch.randn(3, attention.embed_dim).to(attention.out_proj.weight)
    x = torch.nested.nested_tensor([one])
    try:
        attention(x, x, x)
    except AssertionError as refused:
        return str(refused).partition("because ")[2] or "no reason given"
    return ""


# %% tags=["hide-input"]
def module(h: int = 8, batch_first: bool = True, **options) -> nn.MultiheadAttention:
    """Make PyTorch's class, ready for evaluation."""
    return nn.MultiheadAttention(48, h, batch_first=batch_first, **options).eval()


said = {"model.eval(), and nothing else": [why_not(module())]}
with torch.no_grad():
    said |= {
        "… and torch.no_grad()": [why_not(module()) or "(nothing: it is on the fast path)"],
        "model.train()": [why_not(module().train())],
        "batch_first=False, the default": [why_not(module(batch_first=False))],
        "num_heads=3": [why_not(module(h=3))],
        "bias=False": [why_not(module(bias=False))],
    }
cuts = ("self.", ""), (" and at least one of query or the input/output projection", ": …")
for words in said.values():
    for long, short in cuts:
        words[0] = words[0].replace(long, short)
    words[0] = words[0].partition(" weights or")[0]
display.show(said, columns=["PyTorch says"], decimals="<", corner="a module")

# %% tags=["proof"]
FAST = "_native_multi_head_attention"
x, hidden = torch.randn(2, 16, 48), torch.ones(16, 16).triu(1).bool()
floats = torch.zeros(16, 16).masked_fill(hidden, -torch.inf)


def operations(
    attention, x, key=None, fast: bool = True, grad: bool = False, **options
) -> set[str]:
    """Name what a call runs, on the fast path where it can be, or off it."""
    key = x if key is None else key
    torch.backends.mha.set_fastpath_enabled(fast)
    with torch.set_grad_enabled(grad), torch.profiler.profile() as ran:
        attention(x, key, key, **options)
    torch.backends.mha.set_fastpath_enabled(True)
    return {op.name.removeprefix("aten::") for op in ran.events()}


off = {"fast": False, "need_weights": False}
for given in ({}, {"attn_mask": hidden}, {"key_padding_mask": hidden[[0, 8]]}):
    ran = operations(module(), x, need_weights=False, **given)
    assert {"_softmax", "_masked_softmax"} & ran > set()
    assert FAST in ran - {FUSED} == ran
    learning = operations(module().train(), x, grad=True, need_weights=False, **given)
    assert FUSED in learning - {FAST} == learning
for other in (module(bias=False), module(h=3), module(batch_first=False), module().train()):
    assert FAST not in operations(other, x, need_weights=False)
assert FAST not in operations(module(), x, attn_mask=floats, need_weights=False)
assert FAST not in operations(module(), x, x.clone(), need_weights=False)
assert FUSED not in operations(
    module(dropout=0.1).train(), x, grad=True, need_weights=False
)
assert nn.TransformerEncoderLayer(48, 8).self_attn.dropout == 0.1
assert FUSED in operations(module(), x, **off)
assert FUSED not in operations(module(), x, fast=False) > {"bmm", "_softmax"}
print("✓ Off the fast path, the fused kernel runs if the call asks for no weights.")

# %% tags=["proof"]
encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(48, 8, batch_first=True), 1)
for fast in (True, False):
    given = {"grad": False, "src_key_padding_mask": hidden[[0, 8]]}
    ran = operations(
        lambda x, *_, **kwargs: encoder.eval()(x, **kwargs), x, fast=fast, **given
    )
    assert ("_nested_tensor_from_mask" in ran) == fast
print("✓ Told of padding, the encoder packs its words on the fast path, and not off it.")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="the-price-of-a-mask"
# ## What does a mask cost?
#
# A causal mask forbids nearly half of the scores. Told by its flag, the function skips blocks of keys in the future: 141 ms,
# against 187 without a mask. The class on its fast path computes every score first, and takes another softmax for a mask, a slow one: 591
# ms, against 295. With the class, keep your booleans, and switch the path off: 224. Scattered over (n, m), they take the class 568 on it, and off it
# 218.
#
# For the function, the dearest are booleans for every head. The kernel takes no booleans. PyTorch makes floats of them, in each call anew, and here they are as many
# as the weights: 324, against 207 with the floats themselves. So, for the function, **make the floats yourself, once**. As floats, a mask for every head, such as ALiBi's, goes to the fused kernel as it
# is. It needs four axes: `bias[None]` if yours is (h, n, m).
#
# > **Pitfall.** Where n = m, `is_causal=True` alone is right in `F.scaled_dot_product_attention` and in this book's class. With it alone,
# > `nn.MultiheadAttention` raises an error, or, on the fast path, ignores it: every token sees the future. Pass the mask,
# > and the flag beside it only if it is [the square causal one](16_masks_in_the_wild.ipynb#cell-id=need-weights-decides):
# > `attention(x, x, x, attn_mask=blocked, is_causal=True, need_weights=False)`.


# %% tags=["proof"]
ours = MultiheadAttention(48, 8, batch_first=True).eval()
ours.load_state_dict(theirs.state_dict())
torch.set_autocast_enabled("cuda", True)  # a switch, which no call here obeys but the class
assert FAST not in operations(module(), x, need_weights=False)
torch.set_autocast_enabled("cuda", False)
causal = {"is_causal": True, "need_weights": False}
with torch.no_grad():
    unmasked = theirs(x, x, x, need_weights=False)[0]
    masked = theirs(x, x, x, attn_mask=hidden, **causal)[0]
    torch.testing.assert_close(ours(x, x, x, **causal)[0], masked)
    torch.testing.assert_close(theirs(x, x, x, **causal)[0], unmasked)
    assert not torch.allclose(masked, unmasked)
    torch.backends.mha.set_fastpath_enabled(False)
    torch.testing.assert_close(theirs(x, x, x, attn_mask=hidden, **causal)[0], masked)
    refused = ""
    try:
        theirs(x, x, x, **causal)
    except RuntimeError as error:
        refused = str(error)
    assert refused.startswith("Need attn_mask if specifying the is_causal hint")
    torch.backends.mha.set_fastpath_enabled(True)
assert FUSED in operations(module(), x, attn_mask=hidden, fast=False, **causal)
assert FAST in operations(module(), x)  # with weights
print(
    "✓ On the fast path, the flag alone gives the output without a mask; off it, an error."
)

# %% tags=["proof"]
assert abs(shares["causal: class"]["_masked_softmax"] - 2 / 5) < 0.05
assert shares["none: class"]["_softmax"] < 0.1
assert 1.6 < per["none: class"]["causal: class"][0] < 2
assert per["none: function"]["causal: function"][2] < 1
assert per["none: class"]["booleans: class, fast path off"][2] < 1
assert shares["every head: function"]["where"] > 0.2
assert "where" not in shares["every head, floats: function"]
dear = [per["none: function"][f"every head{x}: function"] for x in ("", ", floats")]
assert dear[0][0] > dear[1][2]
assert dear[0][0] > per["none: function"]["booleans: function"][2]
assert dear[1][0] < per["none: function"]["floats: function"][MIDDLE] < dear[1][2]
print("✓ Each comparison comes out the same at both quartiles.")

# %% [markdown] name="which-kernel-runs"
# ## When does the fused kernel refuse?
#
# You call `F.scaled_dot_product_attention` yourself, and it is slow. Where the fused kernel refuses
# a call, PyTorch goes step by step without a word. Allow that kernel alone, and it has to say why:

# %% tags=["fold-input"]
from torch.nn.attention import SDPBackend, sdpa_kernel

HEADING = "Flash attention kernel not used because:\n"


def refusal(q, k, v, **options) -> str:
    """Say why FlashAttention refuses a call; empty if it takes it."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                F.scaled_dot_product_attention(q, k, v, **options)
        except RuntimeError as error:  # the reason is a warning, or it is the error
            lines = [str(line.message).partition(" (Trigg")[0] for line in told]
            reason = "\n".join(lines).partition(HEADING)[2].partition("\n")[0]
            return reason or str(error)
    return ""


# %% tags=["hide-input"]
q = torch.randn(1, 16, 8, 64).transpose(1, 2)  # heads, cut as is usual
strided = torch.randn(1, 16, 64, 8).permute(0, 3, 1, 2)
learnt = torch.zeros(1, 8, 16, 16, requires_grad=True)
layouts = {
    "(b, h, n, d)": q,
    "(b * h, n, d)": q.flatten(0, 1),
    "cut as (b, n, d, h)": strided,
    "cut so, then contiguous": strided.contiguous(),
}
usual = "(b, n, h, d).transpose(1, 2)"
named = [usual, "(b · h, n, d)", "cut as (b, n, d, h)", "… then .contiguous()"]
ratios = find("kernels")[0]["ratios"]["(b, h, n, d)"]
spent = {layout: f"{times[MIDDLE]:.1f}" for layout, times in ratios.items()}
answers = {
    name: [refusal(x, x, x), spent.get(layout, "1.0")]
    for name, (layout, x) in zip(named, layouts.items())
}
biases = {"learnt bias": learnt, "learnt bias, detached": learnt.detach()}
for name, bias in biases.items():
    answers[name] = [refusal(q, q, q, attn_mask=bias), spent[name]]
answers |= {
    "dropout_p=0.1": [refusal(q, q, q, dropout_p=0.1), ""],
    "values of another width": [refusal(q, q, q[..., :32]), ""],
}
for words in answers.values():
    short = words[0].partition(" Got ")[0].partition(", but got")[0]
    words[0] = short.replace("  ", " ") or "(nothing)"
title = "time: the first row is 1; n = 2,048"
columns = ["PyTorch says", "time"]
display.show(answers, columns=columns, decimals="<", corner="a call", title=title)

# %% [markdown]
# A copy costs little, and a refusal much. Cut as (b, n, d, h), the d numbers of a
# head lie h places apart, and the kernel wants them side by side: write `.contiguous()`. Three axes are refused, whatever they hold: write
# `q.unflatten(0, (b, h))`, or `q[None]` for one sequence. A learnt bias is refused without a reason, and
# `torch.no_grad()` is no help: what counts is the bias's own `requires_grad`. Fewer heads of keys than of queries are taken, with
# `enable_gqa=True` ([Fewer keys](22_fewer_keys.ipynb)).

# %% tags=["proof"]
added = torch.zeros(16, 16)
assert (
    min(ratios[x][0] for x in ("(b * h, n, d)", "cut as (b, n, d, h)", "learnt bias")) > 1.5
)
assert max(ratios[x][1] for x in ("cut so, then contiguous", "learnt bias, detached")) < 1.4
seen = torch.ones(1, 16).bool()  # (b, m), True keeps
for given in ({}, {"attn_mask": added}, {"is_causal": True}):
    assert not refusal(q, q, q, **given)
assert not refusal(q, q, q, attn_mask=seen[:, None, None, :])
assert refusal(q, q, q, dropout_p=0.1)
assert refusal(q, q, q[..., :32])
with torch.no_grad():
    assert refusal(q, q, q, attn_mask=learnt)
    assert not refusal(q, q, q, attn_mask=learnt.detach())
    assert "4d" in refusal(q, q, q, attn_mask=learnt.detach()[0])
assert not refusal(q, q[:, :2], q[:, :2], enable_gqa=True)
for mask, converts in ((learnt.detach(), False), (learnt.detach() == 0, True)):
    with torch.no_grad(), torch.profiler.profile() as ran:
        F.scaled_dot_product_attention(q, q, q, mask)
    made = {op.name for op in ran.events()}
    assert "aten::" + FUSED in made
    assert ("aten::where" in made) == converts
assert not refusal(*[q[:1]] * 3)
for x in layouts.values():
    with torch.no_grad(), torch.profiler.profile() as ran:
        F.scaled_dot_product_attention(x, x, x)
    fused = "aten::" + FUSED in {op.name for op in ran.events()}
    assert fused == (not refusal(x, x, x))
assert "dtype" in refusal(q, q, q, attn_mask=added.long())
print("✓ It refuses these five, and takes the flag, floats, and floats made of booleans.")

# %% [markdown]
# ## How do I know that it helped?
#
# First assert that both versions give the same output. Warm up. Fix the number of threads: `torch.utils.benchmark.Timer`
# uses one unless you pass `num_threads`. A GPU returns before its work is done: call `torch.cuda.synchronize()` before you
# read the clock.
#
# Then let the versions *take turns*, so that both meet the same busy minutes, and divide one time by the other in each
# round. The **quartiles** of these ratios enclose their middle half: with both on one side of 1, one version is faster. Take 17 rounds or more. Of five,
# two *equal* versions put both on one side in three races of eight; of 17, in fewer than one of twenty. (`make bench`, in this book's repository, runs this page's races on your Linux machine.)


# %% tags=["proof"]
def by_chance(n: int) -> float:
    """Give the chance that of n = 4 k + 1 ratios at most k lie on one side of 1."""
    return 2 * sum(math.comb(n, k) for k in range(n // 4 + 1)) / 2**n


outcomes = list(itertools.product((0.9, 1.1), repeat=5))
decided = [
    len({x < 1 for x in statistics.quantiles(five, n=4, method="inclusive")}) == 1
    for five in outcomes
]
assert sum(decided) / len(decided) == by_chance(5) == 3 / 8
assert benchmark.Timer("pass").timeit(1).task_spec.num_threads == 1
assert by_chance(17) < 1 / 20 < by_chance(13)
print("✓ All outcomes of five rounds, counted one by one, give three of eight.")

# %% [markdown] name="and-on-a-gpu"
# ## What changes on a GPU?
#
# No GPU was measured here. This stands in PyTorch's code, read mask by mask, for calls without weights:
#
# | mask | FlashAttention | the memory-efficient kernel | the class's fast path |
# |---|---|---|---|
# | none | takes it | takes it | has a fused kernel: leave it on |
# | the causal flag alone | takes it | takes it | ignores it |
# | any `attn_mask` or `key_padding_mask` | refuses it | takes it | goes step by step: switch it off |
#
# FlashAttention wants 16 bits as well, and float32 gets the other kernel. So a refusal need not mean step by step. Under `torch.autocast("cuda")` no call is on the fast path. On an H100 or a B200,
# PyTorch 2.11 and later asks cuDNN's fused kernel first, which wants 16 bits and takes masks ([why](https://github.com/huggingface/transformers/pull/48163); it can give [NaN](../docs/symptoms.md#nan-in-the-output-the-loss-or-the-gradients)). Sources:
# [FlashAttention's code](../docs/references.md#flash-attention-code), and [that of the fast
# path](https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/transformers/cuda/attention.cu).

# %% [markdown]
# ## Exercises
#
# ### Even, or not?
#
# *Easy, 2 minutes.* Here are the milliseconds of two versions in five rounds; the second,
# the third and the fifth met a busy machine. Divide our time by theirs in each round. With five rounds, the lower
# quartile is the second smallest ratio, the median the third, and the upper quartile the fourth.
# Write down the three. Do they say that our version is slower? Decide before you run the check, which tells you.
#
# | round | 1 | 2 | 3 | 4 | 5 |
# |---|---|---|---|---|---|
# | ours | 9 | 21 | 24 | 8 | 33 |
# | theirs | 10 | 20 | 20 | 10 | 30 |

# %% tags=["exercise"]
my_quartiles = [None, None, None]  # lower quartile, median, upper quartile

# %%
from annotated_book import exercises

exercises.speed.check_quartiles(my_quartiles)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The ratio of the first round is nine tenths. Put the five ratios in order, the smallest first.
#
# </details>

# %% tags=["solution"]
rounds = zip((9, 21, 24, 8, 33), (10, 20, 20, 10, 30))
my_quartiles = sorted(ours / theirs for ours, theirs in rounds)[1:4]

exercises.speed.check_quartiles.folded(my_quartiles)

# %% [markdown]
# ## What you have now
#
# > **In short.** Attention is slow where all $b \cdot h \cdot n \cdot m$ weights are written to memory and read again. Call the
# > function, or the class with `need_weights=False`, and on a CPU with its fast path off.
#
# [The next chapter](16_masks_in_the_wild.ipynb) is about masks in the wild: the same True means
# *hide* in one library and *show* in another.
