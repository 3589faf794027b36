# %% [markdown]
# # Speed
#
# *Why is my attention slow on a CPU, and what do I change?*
#
# *8 minutes and 2 of exercises. Afterwards you can find what slows a call, change the line that
# does it, and measure whether it helped.*
#
# Here is `nn.MultiheadAttention` at 2,048 tokens, in evaluation, under `torch.no_grad()` and with a causal mask. Make the
# call as fast as it can be, and watch which part shrinks. (Dashed: before your last press.)

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
RACES = ("one race", "fast path", "kernels", "twice as wide", "one query", "served")
RUN = measured.origin("one race")
assert {measured.origin(race)["cpu"] for race in RACES} == {RUN["cpu"]}
MACHINE = "{cpu}, torch {torch}, {date:.10}".format(**RUN)
THREADS = f"{RUN['threads']} thread" + "s" * (RUN["threads"] > 1)

# %% tags=["hide-input"]
(race,) = find("one race")
took, per = race["milliseconds"], race["ratios"]
spent = {
    way: {part: took[way][MIDDLE] * share for part, share in shares.items()}
    for way, shares in race["parts"].items()
}
FUSED = "_scaled_dot_product_flash_attention_for_cpu"
KINDS = {
    "none": display.Given("", ""),
    "causal": display.Given("attn_mask=future", "is_causal=True"),
    "booleans": display.Given("attn_mask=hide", "attn_mask=~hide"),
    "floats": display.Given("attn_mask=floats", "attn_mask=floats"),
    "every head": display.Given("attn_mask=hide_by_head", "attn_mask=~hide_by_head"),
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
caption = (
    "b = 1, width e = 512, h = 8. The function has the class's projections around it. "
    "Booleans and floats are scattered over (n, m), or drawn for every head. "
    "Products: of queries with keys, of weights with values; in the fused kernel, they "
    "and the softmax are one. Medians, and a grey line "
    f"from quartile to quartile, of one race of {race['rounds']} rounds; "
    "parts: their shares of the quickest of five profiled calls. "
    f"{THREADS} of {MACHINE}. On your Linux machine: make bench, in this book's repository."
)
display.call_race(
    KINDS, by_mask(took), by_mask(spent), start="causal", name="which-call", caption=caption
)

# %% [markdown]
# So there are two ways out of a slow call ([a GPU](#cell-id=and-on-a-gpu) has rules of its own). You can keep PyTorch's class, or take its
# projections and call PyTorch's function yourself:


# %%
def with_the_function(attention: nn.MultiheadAttention, x, **mask):
    """Attend by the function, with the projections of PyTorch's class."""
    wide = F.linear(x, attention.in_proj_weight, attention.in_proj_bias)  # (b, n, 3 * e)
    cut = wide.unflatten(-1, (3, attention.num_heads, -1)).permute(
        2, 0, 3, 1, 4
    )                                                            # (3, b, h, n, d)
    heads = F.scaled_dot_product_attention(*cut, **mask)         # (b, h, n, d)
    return attention.out_proj(heads.transpose(1, 2).flatten(2))  # (b, n, e)


# %% [markdown]
# ```python
# output, weights = attention(x, x, x, attn_mask=future)  # before: 522 ms
#
# torch.backends.mha.set_fastpath_enabled(False)  # for the whole program; then 138 ms
# output, _ = attention(x, x, x, attn_mask=future, is_causal=True, need_weights=False)
#
# output = with_the_function(attention, x, is_causal=True)  # 130 ms
# ```
#
# (If every token may see every other, leave out `attn_mask` and `is_causal`.)
#
# Switching off looks like a slip: who gives up a fast path to save time? But press `need_weights=False` alone, and every
# part is still there. PyTorch's shortcut for such calls, the **fast path**, computes the weights all the same. Off it,
# the class calls the function, which makes none.

# %% tags=["proof"]
x, theirs = torch.randn(2, 16, 48), nn.MultiheadAttention(48, 8, batch_first=True).eval()
with torch.no_grad():
    outputs = [theirs(x, x, x)[0], theirs(x, x, x, need_weights=False)[0]]
    torch.backends.mha.set_fastpath_enabled(False)
    outputs.append(theirs(x, x, x, need_weights=False)[0])
    torch.backends.mha.set_fastpath_enabled(True)
    outputs.append(with_the_function(theirs, x))
    future = torch.ones(16, 16).triu(1).bool()
    masked = theirs(x, x, x, attn_mask=future)[0]
    for given in ({"is_causal": True}, {"attn_mask": ~future}):
        torch.testing.assert_close(with_the_function(theirs, x, **given), masked)
    assert not torch.allclose(with_the_function(theirs, x, attn_mask=future), masked)
assert all(x["rounds"] >= 17 for section in RACES for x in find(section))
for output in outputs[1:]:
    torch.testing.assert_close(output, outputs[0])
assert per["none: class"]["none: class, fast path off"][2] < 0.8
low, _, high = per["none: class"]["none: class, weights"]
assert low < 1 < high
print("✓ As it comes, without weights, off the fast path, by the function: one output.")

# %% [markdown] name="the-price-of-the-weights"
# ## Why do weights cost so much?
#
# The weights are n · m numbers for each head, for n queries and m keys. Step by step, a call writes
# as many scores and as many weights to memory. PyTorch's **fused kernel** writes neither:

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
# It takes a block of keys at a time, keeps a running sum, and forgets each block in the
# processor. This is FlashAttention [[Dao et al.](../docs/references.md#dao-2022)]; you build one in
# [Tiles](23_tiles.ipynb). It saves memory even more than time: without its weights, and without dropout,
# [the book's class](07_multihead_attention.ipynb) trains on 2,048 tokens in a tenth of the memory, and on 4,096 in a twentieth.
#
# On a CPU, travel is not all. In the first figure, choose the mask *none*, release the buttons, and press *fast path off* alone: the
# softmax of the same scores takes four times as long. Why?
#
# <details name="softmax"><summary>Python is slow.</summary>
#
# Not that slow. What Python does for a call takes no longer at 2,048 tokens than at 32.
#
# </details>
# <details name="softmax"><summary>It writes them into new memory.</summary>
#
# Right. On the fast path, the softmax overwrites the scores. Off it, each call asks for 134 MB<!-- setting --> more, and the
# system clears every page of it when it is first touched. (PyTorch keeps a GPU's memory between calls; there, travel is what counts.)
#
# </details>
# <details name="softmax"><summary>It is taken for each head.</summary>
#
# So it is either way: the weights of all eight heads are made.
#
# </details>

# %% tags=["proof"]
slow, quick = (
    spent[f"none: class, weights{x}"]["softmax"] for x in (", fast path off", "")
)
assert 3.5 < slow / quick < 4.5
x = torch.randn(2, 16, 48)
for fast, inputs in ((True, 4), (False, 3)):  # the fourth is where to write
    torch.backends.mha.set_fastpath_enabled(fast)
    with torch.no_grad(), torch.profiler.profile(record_shapes=True) as ran:
        theirs(x, x, x)
    torch.backends.mha.set_fastpath_enabled(True)
    shapes = [op.input_shapes for op in ran.events() if op.name == "aten::_softmax"]
    assert [len(given) for given in shapes] == [inputs]
    assert not fast or shapes[0][0] == shapes[0][3]
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

# %% [markdown] name="the-price-of-a-mask"
# ## What does a mask cost?
#
# Off the fast path, one mask for all heads costs little: press *need_weights=False* and *fast path off*, and change the mask from *none* to *booleans*. Release *fast
# path off*, and the same mask nearly doubles the call. Which part does it cost?
#
# <details name="masked"><summary>The mask: it has to be laid over every head.</summary>
#
# That is a small part, as the figure shows.
#
# </details>
# <details name="masked"><summary>The softmax.</summary>
#
# Right. Under a mask the fast path takes [another
# softmax](https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/SoftMax.cpp), which goes through a row number
# by number. The usual one takes eight or sixteen at once. So this one takes ten times as long.
#
# </details>
# <details name="masked"><summary>The products.</summary>
#
# No. Step by step, all of them are computed, with a mask and without.
#
# </details>
#
# A causal mask forbids nearly half of the scores, but only its **flag** lets the kernel skip them. The function takes the flag
# alone. PyTorch's class wants the mask, too: with `is_causal=True` beside it, a call off the fast path takes two thirds of the time.
#
# > **Pitfall.** With the flag alone, `nn.MultiheadAttention` raises an error, or, on the fast path, ignores it: every token sees
# > the future. Pass the mask, and the flag beside it only if it is [the square causal
# > one](16_masks_in_the_wild.ipynb#cell-id=need-weights-decides).
#
# > **Pitfall.** In the class's booleans, True hides; in the function's, True shows. So pass `~hide`. Without the ~ no error
# > comes, and every token sees just what it should not.
#
# The kernel takes no booleans: PyTorch makes floats of them, in each call anew. Choose *every head* and call the function:
# *the mask* takes a quarter of the time. So **make the floats yourself, once**, and of two masks one:
#
# ```python
# hide = attn_mask | key_padding_mask[:, None, None]                   # (b, 1, n, m)
# floats = torch.zeros(hide.shape).masked_fill(hide, -torch.inf)       # (b, 1, n, m)
# output = with_the_function(attention, x, attn_mask=floats)           # (b, n, e)
# ```
#
# A bias for every head, such as ALiBi's, is floats already. It goes to the
# kernel as it is, on four axes: `bias[None]` if yours is (h, n, m).


# %% tags=["hide-input"]
def module(h: int = 8, batch_first: bool = True, **options) -> nn.MultiheadAttention:
    """Make PyTorch's class, ready for evaluation."""
    return nn.MultiheadAttention(48, h, batch_first=batch_first, **options).eval()


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


# %% tags=["proof"]
from unittest import mock

function, padded = F.scaled_dot_product_attention, torch.ones(2, 16).triu(15).bool()
both = {"attn_mask": torch.ones(16, 16).triu(1).bool(), "key_padding_mask": padded}
for given, made in (both, 2 * 8 * 16 * 16), ({"attn_mask": both["attn_mask"]}, 16 * 16):
    with mock.patch.object(F, "scaled_dot_product_attention", wraps=function) as asked_for:
        theirs.train()(x, x, x, need_weights=False, **given)
    taken = asked_for.call_args.args[3]
    assert taken.untyped_storage().nbytes() == 4 * made
theirs.eval()
assert (
    theirs.merge_masks(*both.values(), x)[0].untyped_storage().nbytes() == 2 * 8 * 16 * 16
)
hide = both["attn_mask"] | padded[:, None, None]                # (b, 1, n, m)
merged = torch.zeros(hide.shape).masked_fill(hide, -torch.inf)  # (b, 1, n, m)
with torch.no_grad():
    torch.testing.assert_close(
        with_the_function(theirs, x, attn_mask=merged), theirs(x, x, x, **both)[0]
    )
print("✓ Of two masks, the class makes one for every head.")

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
masked, plain = (spent[f"{mask}: class"] for mask in ("booleans", "none"))
assert 9 < masked["softmax"] / plain["softmax"] < 11
assert masked["mask"] < masked["softmax"] / 5
assert 1.6 < per["none: class"]["booleans: class"][0] < 2
off_path = {mask: spent[f"{mask}: class, fast path off"] for mask in ("none", "booleans")}
assert sum(off_path["booleans"].values()) < 1.15 * sum(off_path["none"].values())
assert (
    abs(
        per["causal: class, fast path off"]["causal: class, fast path off, flag"][1] - 2 / 3
    )
    < 0.05
)
assert abs(race["parts"]["every head: function"]["mask"] - 1 / 4) < 0.03
assert race["parts"]["every head, floats: function"]["mask"] == 0
dear = [per["none: function"][f"every head{x}: function"] for x in ("", ", floats")]
assert dear[0][0] > dear[1][2]
print("✓ The mask's cost on the fast path is its softmax, and off it next to nothing.")

# %% [markdown] name="the-fast-path"
# ## When does the fast path run?
#
# A call is on it in evaluation, without gradients, if `batch_first=True`, the number of heads is even, there are biases, queries,
# keys and values are one tensor, and no mask is of floats. The fast path is one operation in C++. It skips PyTorch's
# Python, but on a CPU it skips the fused kernel, too. Up to how many tokens is it faster, on our machine and without weights?
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
# The switch is for the whole program, `nn.TransformerEncoder`
# included, whose layer on the fast path [misreads finite masks of floats](16_masks_in_the_wild.ipynb#cell-id=booleans-or-floats).

# %% tags=["proof"]
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

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="which-limit"
# ## Where else does the time go?
#
# In two cases, the waste is not in the scores:
#
# - **While a model writes**, each call has one query. `nn.MultiheadAttention` keeps no keys and values, so it projects the whole
#   text anew. A [cache](21_cache.ipynb) keeps them.
# - **A server's batch**, say 16 texts of 128 to 256 tokens<!-- setting -->, padded: with the function, projections take seven tenths of the time.
#   What helps is less padding and, where the processor multiplies in it, bfloat16 (`lscpu` lists `avx512_bf16` or `amx_bf16`). Told of
#   padding, an `nn.TransformerEncoder` leaves it out, but only on the fast path: measure before you switch it off.

# %% tags=["hide-input"]
(one,), (batch,) = find("one query"), find("served")
projecting = batch["parts"]["function"]["projections"]
ways = {
    "class, fast path off": "the batch, fast path off",
    "function": "the batch, by the function",
    "function, by length": "… and texts of like length together",
    "function, bfloat16": "… padded, and in 16 bits",
}
how = ["set_fastpath_enabled(False)", "with_the_function(…)", "sort, then batch"]
how += ["model.bfloat16(), x.bfloat16()"]
writing = 1 / one["ratios"]["fused"]["class"][MIDDLE]
helped = {"writing: one query, keys kept": [f"{writing:.2f}", "a cache"]} | {
    name: [f"{batch['ratios']['class'][way][MIDDLE]:.2f}", line]
    for (way, name), line in zip(ways.items(), how)
}
title = f"Time; each by the class is 1. With the function, {projecting:.0%} is projections"
display.show(helped, columns=["time", "how"], decimals="<", corner="a change", title=title)

# %% tags=["proof"]
assert one["ratios"]["fused"]["step by step"][MIDDLE] < 1.5
assert one["ratios"]["fused"]["class"][0] > 5
assert abs(projecting - 0.7) < 0.05
times = [batch["ratios"]["class"][way] for way in ways]
assert all(a[0] > b[2] for a, b in itertools.pairwise(times))
encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(48, 8, batch_first=True), 1)
for fast in (True, False):
    given = {"grad": False, "src_key_padding_mask": hidden[[0, 8]]}
    ran = operations(
        lambda x, *_, **kwargs: encoder.eval()(x, **kwargs), x, fast=fast, **given
    )
    assert ("_nested_tensor_from_mask" in ran) == fast
print("✓ Each line of the batch is faster than the one before it, at both quartiles.")

# %% [markdown]
# <!-- deeper: Compute-bound or memory-bound? -->
# ### Going deeper: Compute-bound or memory-bound?
#
# Make the heads twice as wide: that is twice the arithmetic, and as many scores. A call that then takes twice as long is
# **compute-bound**. One that takes hardly longer is **memory-bound**, by travel or by new memory: fewer FLOPs would not help it.
# Fused, attention is nearly compute-bound.

# %% tags=["hide-input"]
(wide,) = find("twice as wide")
slower = [wide["ratios"][x][f"{x}, 2 d"] for x in ("fused", "step by step")]
assert slower[0][0] > 1.5 > slower[1][2]
doubled = {x: [wide["ratios"][x][f"{x}, 2 d"][MIDDLE]] for x in ("fused", "step by step")}
title = "Heads twice as wide: times the time, n = 2,048"
display.show(doubled, columns=["time"], decimals=".2f", corner="attention", title=title)

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="which-kernel-runs"
# ## When does the fused kernel refuse?
#
# Where the fused kernel refuses a call, PyTorch goes step by step without a word. Allow that kernel alone, and it has to say why:

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
usual = "(b, n, h, d).transpose(1, 2)"
layouts = {
    usual: q,
    "(b · h, n, d)": q.flatten(0, 1),
    "(b, n, d, h).permute(0, 3, 1, 2)": strided,
}
answers = {name: refusal(x, x, x) for name, x in layouts.items()}
answers["learnt bias"] = refusal(q, q, q, attn_mask=learnt)
answers["dropout_p=0.1"] = refusal(q, q, q, dropout_p=0.1)

# %% tags=["hide-input"]
ratios = find("kernels")[0]["ratios"]["(b, h, n, d)"]
refused = ["(b * h, n, d)", "cut as (b, n, d, h)", "learnt bias", "dropout"]
times = [1.0, *(ratios[name][MIDDLE] for name in refused)]
mended = ["cut so, then contiguous", "learnt bias, detached"]
then = [None, 1.0, *(ratios[name][MIDDLE] for name in mended), 1.0]
write = [
    "",
    "q.unflatten(0, (b, h))",
    "q.contiguous()",
    "bias.detach(), not to train",
    "dropout_p=0.0",
]
for name, time, instead, after in zip(list(answers), times, write, then):
    short = answers[name].partition(" Got ")[0].partition(", but got")[0]
    told = [f"{time:.1f}", instead, after and f"{after:.1f}"]
    answers[name] = [*told, short.replace("  ", " ") or "(nothing)"]
title = (
    "time: the first row is 1; n = 2,048; dropout timed with p = 10⁻¹², to compare outputs"
)
columns = ["time", "write instead", "then", "PyTorch says"]
display.show(answers, columns=columns, decimals="<", corner="a call", title=title)

# %% [markdown]
# A copy costs little, and a refusal much. A learnt bias is refused even under `torch.no_grad()`: what counts is
# its own `requires_grad`. (In training it needs its gradient, and stays slow.) `nn.TransformerEncoderLayer` drops a tenth of the
# weights by default, so on a CPU it is not fused in training: set `self_attn.dropout = 0.0` if you can. A model of `transformers` asks for the kernel unless it is `"eager"`, as it
# must be where you [want weights](../docs/messages.md#output-attentions).

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
print("✓ It refuses all but the first, and takes the flag, floats, and floats of booleans.")

# %% [markdown] name="did-it-help"
# ## How do I know that it helped?
#
# Assert that both versions give the same output. Warm up. Fix the number of threads: `torch.utils.benchmark.Timer`
# uses one unless you pass `num_threads`. A GPU returns before its work is done: call `torch.cuda.synchronize()` before you
# read the clock.
#
# Then let the versions *take turns*, so that both meet the same busy minutes, and divide one time by the other in each
# round. The **quartiles** of these ratios enclose their middle half: with both on one side of 1, one version is faster. Take 17 rounds or more. With five
# rounds, two *equal* versions have both quartiles on one side in three races of eight; with 17, in fewer than one of twenty.


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
# <!-- deeper: What changes on a GPU? -->
# ### Going deeper: What changes on a GPU?
#
# No GPU was measured here; this stands in PyTorch's code, for calls without weights.
#
# - Without a mask, the class's fast path has a fused kernel: leave it on. With any mask it goes step by step: switch it off.
# - FlashAttention wants 16 bits, and no mask but the causal flag. Float32 and masks go to the memory-efficient kernel, which is fused as well.
# - On an H100 or a B200, PyTorch 2.11 and later asks cuDNN's kernel first, which wants 16 bits and takes masks ([why](https://github.com/huggingface/transformers/pull/48163); it can give [NaN](../docs/symptoms.md#nan-in-the-output-the-loss-or-the-gradients)).
#
# Sources: [FlashAttention's code](../docs/references.md#flash-attention-code), and [that of the fast
# path](https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/transformers/cuda/attention.cu). Under `torch.autocast("cuda")` no call is on the fast path.
#
# <!-- /deeper -->

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
