# %% [markdown]
# # Speed
#
# *Why is my attention slow, what do I change, and how do I know?*
#
# *9 minutes and 2 of exercises. Afterwards you can find what slows a call, change the line that
# does it, and measure whether it helped.*
#
# Evaluate `nn.MultiheadAttention` on 2,048 tokens, built with `batch_first=True` and without gradients, and it takes
# a shortcut through C++, its **fast path**. With `need_weights=False`, the call takes 98 ms. Switch the shortcut off, and it takes 56.
#
# Ask a cashier what you have to pay, and you get one number. Ask for a receipt, and the sum stays the same,
# but every line has to be printed. Attention's receipt is its weights, n · m numbers for each head, and the
# fast path prints it even when you decline. Most of this chapter is about receipts that nobody asked for. Here is
# where to look:
#
# | what is slow | how do I see it? | what do I change? | before ÷ after |
# |---|---|---|---|
# | [weights](#cell-id=the-price-of-the-weights) that nobody reads | the call does not say `need_weights=False` | say so | ×1.67 |
# | [the fast path](#cell-id=the-fast-path), long sequences | `takes_fast_path(attention, x, x, x)` | besides, `torch.backends.mha.set_fastpath_enabled(False)` | ×1.77 |
# | [a kernel](#cell-id=which-kernel-runs) that goes step by step | `refusal(q, k, v)` says why | the layout | ×3.7, ×5.3 |
# | [a mask](#cell-id=the-price-of-a-mask) for every head | `attn_mask.dim()` is 3 | a mask that the heads share | 92 ÷ 60 ms |
# | [float32](#cell-id=four-times-the-tokens), on a processor with AMX | `lscpu`, search for `amx` | `model.to(torch.bfloat16)` | ×3.0, ×3.9 |
#
# Above one, the change pays. There are b texts of n tokens, h heads of width
# d, and m keys (here always n); the model's width is e = h · d.
#
# Unless a label says otherwise, calls are in **evaluation**, without gradients, on a CPU (a GPU comes
# [below](#cell-id=and-on-a-gpu)). A time is the median of several **rounds**; the **quartiles** enclose their middle half.
# `make bench` measures yours.

# %% tags=["hide-input"]
import os

os.environ["KINETO_LOG_LEVEL"] = "99"  # or the profiler writes a line at each start

import warnings

import torch
import torch.nn.functional as F
from torch import nn

from annotated_attention import MultiheadAttention
from annotated_book import display, measured
from annotated_book.measured import find  # gives you the cases of a section

RESULTS = measured.load()
RUN = RESULTS["provenance"]
MIDDLE = 1  # of the lower quartile, the median and the upper quartile
print(
    "{cpu}, {threads} threads, load {load[0]:.0f}, torch {torch}, {date:.10}".format(**RUN)
)

# %% [markdown] name="the-price-of-the-weights"
# ## Should I ask for the weights?
#
# Here is what has to travel between processor and memory if the weights are written, and if they are not:

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
# Step by step, every score goes down to memory and comes up again, and so does every weight. PyTorch's
# **fused kernel** takes a block of keys at a time, keeps a running sum, and forgets each block in the
# processor: this is FlashAttention [[Dao et al.](../docs/references.md#dao-2022)], and you build one in
# [Tiles](23_tiles.ipynb). How much
# does the receipt cost? This is [the book's class](07_multihead_attention.ipynb), without weights and with them:

# %% tags=["hide-input"]
table = {}
plain = {"mask": "none", "mode": "inference", "memory": "kept"}
pairs = zip(*(find("final class", weights=weights, **plain) for weights in (False, True)))
for row, other in pairs:
    b, n, e, h = row["size"]
    without, with_them = (x["milliseconds"]["final class"][MIDDLE] for x in (row, other))
    fill = f"{4 * b * h * n * n / 2**20:.0f} MiB"
    ratio = f"×{with_them / without:.2f}"
    table[f"n = {n:,}, b = {b}, e = {e}"] = [fill, with_them, without, ratio]
columns = ["weights fill", "with, ms", "without, ms", "with ÷ without"]
display.show(table, columns=columns, decimals=1, corner="8 heads")

# %% tags=["proof"]
for row in find("versions"):  # in training, and here both take turns
    took = row["ratios"]["bare minimum"]
    assert took["07 final class, weights"][0] > took["07 final class"][2]
print(
    "✓ In training, where both take turns in the same rounds, the weights cost time, too."
)

# %% [markdown]
# A fifth more on short sequences, and two thirds more on the long one. In training it is memory that hurts: at
# n = 2,048 and b = 1 the peak is 401 MiB instead of 39, and at twice the tokens four times as much. So write
# `need_weights=False`: both this class and PyTorch's return the weights unless you do.

# %% [markdown]
# <!-- deeper: the memory that the weights take -->
# ### Going deeper: the memory that the weights take
#
# First in *training*: the peak of a forward and a backward pass for b = 1, e = 512 and h = 8.

# %% tags=["hide-input"]
lengths, table = [2048, 4096], {}
for row in RESULTS["memory"]:
    if "class" not in row["name"]:
        continue  # of a language model
    peaks = dict(zip(row["lengths"], row["bytes"]))
    table[row["name"]] = [peaks[n] / 2**20 for n in lengths]
table["3 · h · n² numbers"] = [3 * 4 * 8 * n**2 / 2**20 for n in lengths]
display.show(table, columns=lengths, decimals=0, corner="MiB at n =")

# %% tags=["proof"]
for name, (short, long) in table.items():
    assert long / short > 3.7 if "weights" in name or "·" in name else long / short < 2.1
assert [round(table[name][0]) for name in ("final class, weights", "final class")] == [
    401,
    39,
]
print("✓ Twice the tokens: with weights nearly four times the memory, without them twice.")

# %% [markdown]
# Nearly all that the weights take is the last line: the weights, their gradients, and the gradients
# of the scores.
#
# New memory takes time, too. The system hands it out in **pages** of 4 KiB and first fills each with zeros. In
# the table above the process keeps freed memory for its next call. If it returns it to the system, every call
# needs new pages. Here are both, in evaluation again: blue is the time with memory kept, and orange comes on
# top when it is returned.

# %% tags=["hide-input"]
LONG = [1, 2048, 512, 8]
cases = [("weights", "none"), ("is_causal", "causal"), ("no weights", "none")]
times = {}
for name, mask in cases:
    chosen = {"mask": mask, "weights": name == "weights", "mode": "inference", "size": LONG}
    rows = find("final class", **chosen)
    times[name] = [row["milliseconds"]["final class"][MIDDLE] for row in rows]
drawing, (ax,) = display.panels(300, 210)
alt = "Milliseconds of a call in evaluation at n = 2,048, with memory kept and returned."
for y, (name, (kept, returned)) in enumerate(times.items()):
    ax.barh(y, kept, 0.6, color=display.COLOURS["n"], label="kept")
    ax.barh(y, returned - kept, 0.6, kept, color=display.COLOURS["h"], label="returned")
    ax.text(returned, y, f"\u2002{kept:.1f}, {returned:.1f}", va="center", fontsize=12)
    alt += f" {name.capitalize()}: {kept:.1f}, {returned:.1f}, {returned - kept:.0f} more."
ax.set(xlim=(0, 200), xticks=range(0, 121, 40), yticks=range(3), yticklabels=times)
ax.spines["bottom"].set_bounds(0, 120)
ax.set_xlabel("milliseconds at n = 2,048", x=0.3)
ax.tick_params(labelsize=12)
handles, labels = (part[:2] for part in ax.get_legend_handles_labels())
ax.legend(handles, labels, loc="center right", fontsize=12, title="memory", frameon=False)
display.finish(drawing, name="price-of-weights", alt=alt)

# %% [markdown]
# Which one do you get? The C library of most Linux systems, glibc, returns every block of 32 MiB or more
# [[mallopt](../docs/references.md#mallopt)], and the weights of a long sequence are such a block: some of the 98 ms of
# the fast path are pages. To keep freed memory, set two variables before Python starts. The second must be larger than your peak memory,
# and the price is that the process never shrinks:
#
# ```bash
# MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=1099511627776 python train.py
# ```

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="the-fast-path"
# ## Am I on the fast path?
#
# PyTorch's class can print the receipt even with `need_weights=False`. Here is self-attention in evaluation with
# that setting, on the fast path and off it. (Here the process returns freed memory to the system, as it does unless
# told otherwise; in the tables of whole calls above and below it keeps it, which is quicker.)

# %% tags=["hide-input"]
table = {}
for row in find("fast path"):
    texts, tokens, width, _ = row["size"]
    times = (row["milliseconds"][name][MIDDLE] for name in ("fast path", "fast path off"))
    ratio = row["ratios"]["fast path off"]["fast path"][MIDDLE]
    table[f"n = {tokens:,}, b = {texts}, e = {width}"] = [*times, f"×{ratio:.2f}"]
columns = ["fast path, ms", "off, ms", "fast path ÷ off"]
display.show(table, columns=columns, decimals=1, corner="need_weights=False, 8 heads")

# %% [markdown]
# At n = 128 the shortcut does save time; from n = 512 on it costs. Which calls take it? Ask the profiler for the one
# operation that gives it away. You can run this on your own module:


# %%
def takes_fast_path(attention, *inputs, **options) -> bool:
    """Say whether a call takes PyTorch's fast path."""
    with torch.profiler.profile() as ran:
        attention(*inputs, **options)
    return "aten::_native_multi_head_attention" in {op.name for op in ran.events()}


# %% tags=["hide-input"]
def module(h: int = 8, batch_first: bool = True, **options) -> nn.Module:
    """Make PyTorch's class, ready for evaluation."""
    return nn.MultiheadAttention(48, h, batch_first=batch_first, **options).eval()


x = torch.randn(2, 16, 48)
future = torch.ones(16, 16).triu(1).bool()
floats, padding = torch.zeros(16, 16).masked_fill(future, -torch.inf), future[[0, 8]]
calls = {
    "evaluation, no gradients, batch_first=True": (module(), x, {}),
    "… a boolean attn_mask": (module(), x, {"attn_mask": future}),
    "… a boolean key_padding_mask": (module(), x, {"key_padding_mask": padding}),
    "batch_first=False, the default": (module(batch_first=False), x, {}),
    "a mask of floats": (module(), x, {"attn_mask": floats}),
    "keys that are not the queries": (module(), x.clone(), {}),
    "an odd number of heads": (module(h=3), x, {}),
    "bias=False": (module(bias=False), x, {}),
    "training": (module().train(), x, {}),
}
table = {}
with torch.no_grad():
    for name, (attention, other, options) in calls.items():
        table[name] = [takes_fast_path(attention, x, other, other, **options)]
table["evaluation, and gradients are recorded"] = [takes_fast_path(module(), x, x, x)]
display.show(table, columns=["fast path"], corner="self-attention in")

# %% [markdown]
# The first row names the conditions, and each row from the fourth on breaks one: `eval()` without
# `torch.no_grad()` is not enough. If `takes_fast_path` says yes and your sequences are long,
# write `torch.backends.mha.set_fastpath_enabled(False)` together with `need_weights=False`. **Not alone**: with the
# default weights, the receipt is printed off the fast path as well, step by step.

# %% tags=["proof"]
assert [yes for (yes,) in table.values()] == 3 * [True] + 7 * [False]


def operations(x, **options) -> set[str]:
    """Name what a call runs off the fast path."""
    torch.backends.mha.set_fastpath_enabled(False)
    with torch.no_grad(), torch.profiler.profile() as ran:
        module()(x, x, x, **options)
    torch.backends.mha.set_fastpath_enabled(True)
    return {op.name.removeprefix("aten::") for op in ran.events()}


FUSED = "_scaled_dot_product_flash_attention_for_cpu"
assert FUSED in operations(x, need_weights=False)
assert FUSED not in operations(x) > {"bmm", "_softmax"}
print(
    "✓ Off the fast path, the fused kernel runs without weights; with weights, it does not."
)

# %% [markdown] name="which-kernel-runs"
# ## Which kernel runs?
#
# Suppose that you call `F.scaled_dot_product_attention` yourself. It never returns weights. But the fused kernel
# has its conditions, and where one fails, PyTorch goes step by step without a word. Allow that kernel alone, and it
# has to say why:

# %%
from torch.nn.attention import SDPBackend, sdpa_kernel


def refusal(q, k, v, **options) -> str:
    """Say why the fused kernel refuses a call; empty if it takes it."""
    with warnings.catch_warnings(record=True) as reasons:
        warnings.simplefilter("always")
        try:
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                F.scaled_dot_product_attention(q, k, v, **options)
        except RuntimeError:  # no available kernel
            return str(reasons[-1].message).partition(" (Trigg")[0]
    return ""


q = torch.randn(1, 16, 8, 64).transpose(1, 2)  # heads, cut as is usual
print(refusal(q, q, q) or "fused")
print(refusal(q[0], q[0], q[0]))

# %% [markdown]
# The usual `.transpose(1, 2)` of (b, n, h, d) is fine. Here is one call in four layouts, with n = 2,048 and e = 512.
# Two of them print a receipt.

# %% tags=["hide-input"]
strided = torch.randn(1, 16, 64, 8).permute(0, 3, 1, 2)
layouts = {
    "(b, h, n, d)": q,
    "(b * h, n, d)": q.flatten(0, 1),
    "cut as (b, n, d, h)": strided,
    "cut so, then contiguous": strided.contiguous(),
}
told = ["(b, n, h, d).transpose(1, 2)", "(b · h, n, d)", "cut as (b, n, d, h)"]
(row,) = find("kernels")
slower = row["ratios"]["(b, h, n, d)"] | {"(b, h, n, d)": [1.0] * 3}
table = {}
for (name, x), words in zip(layouts.items(), [*told, "… then .contiguous()"]):
    ran = FUSED in dict(row["profile"][name])
    assert (not refusal(x, x, x)) == ran
    low, middle, up = slower[name]
    spread = f"{low:.1f} to {up:.1f}" if low < up else ""
    table[words] = ["fused" if ran else "step by step", f"×{middle:.1f}", spread]
again = RUN["renewed"]["kernels"]
stamp = "{cpu}, {threads} threads, load {load[0]:.0f}, {date:.10}".format(**again)
columns = ["runs", "÷ first row", "quartiles"]
display.show(table, columns=columns, corner="layout of q, k and v", title=stamp)

# %% [markdown]
# - **Three axes** are refused, whatever they hold. Write `q.unflatten(0, (b, h))`, or `q[None]` for one sequence.
# - **Cut as (b, n, d, h)** and then permuted, the d numbers of a head lie h places apart in memory.
#   The kernel wants them side by side. Write `.contiguous()`: the copy costs less than it saves.
#
# On a CPU, three more things cost you the kernel: values of another width than
# the keys, a mask that needs a gradient, and a `dropout_p` above zero (the function drops in evaluation, too).

# %% tags=["proof"]
added = torch.zeros(16, 16)
seen = torch.ones(1, 16).bool()  # (b, m), True keeps
for given in ({}, {"attn_mask": added}, {"is_causal": True}):
    assert not refusal(q, q, q, **given)
assert not refusal(q, q, q, attn_mask=seen[:, None, None, :])
for given in ({"dropout_p": 0.1}, {"attn_mask": added.clone().requires_grad_()}):
    assert refusal(q, q, q, **given)
assert refusal(q, q, q[..., :32])
assert refusal(*[q[0]] * 3)
assert not refusal(*[q[:1]] * 3)
for name in ("(b * h, n, d)", "cut as (b, n, d, h)"):
    assert {"_softmax", "isneginf"} <= dict(row["profile"][name]).keys()
print("✓ These three are refused, too, and a mask without a gradient is not.")

# %% [markdown] name="the-price-of-a-mask"
# ## What does a mask cost?
#
# Here is the book's class at n = 2,048 again, without weights. One mask makes the call *faster*.

# %% tags=["hide-input"]
chosen = {
    "mode": "inference",
    "memory": "kept",
    "weights": False,
    "size": [1, 2048, 512, 8],
}
kinds = {
    "is_causal": "causal",
    "no mask": "none",
    "key_padding_mask, (b, m)": "padding",
    "floats, (n, m)": "floats",
    "boolean, (n, m)": "boolean",
    "boolean, (b · h, n, m)": "boolean, every head",
}
found = {}
for name, mask in kinds.items():
    rows = find("final class", mask=mask, **chosen) + find(mask, **chosen)
    found[name] = rows[0]["milliseconds"]["final class"]
drawing, (ax,) = display.panels(560, 220)
for y, (name, (_, middle, _)) in enumerate(found.items()):
    hue = display.COLOURS["h" if "h, n" in name else "b" if name == "no mask" else "n"]
    ax.barh(y, middle, 0.62, color=hue)
    ax.text(middle, y, f"\u2002{middle:.0f} ms", va="center", fontsize=12)
ax.set(xlim=(0, 110), ylim=(5.6, -0.6), xticks=[], yticks=range(6), yticklabels=found)
ax.spines["bottom"].set_visible(False)
ax.tick_params(labelsize=12, length=0)
told = ", ".join(f"{name} {middle:.1f}" for name, (_, middle, _) in found.items())
alt = f"Milliseconds of a call in evaluation, 2,048 tokens, under one mask each: {told}."
display.finish(drawing, name="price-of-a-mask", alt=alt)

# %% tags=["proof"]
assert found["is_causal"][2] < found["no mask"][0]
assert found["no mask"][2] < found["key_padding_mask, (b, m)"][0]
shared, each = found["boolean, (n, m)"], found["boolean, (b · h, n, m)"]
assert shared[2] < each[0]
assert [round(each[MIDDLE]), round(shared[MIDDLE])] == [92, 60]
print("✓ The causal call is the quickest: the quartiles do not touch.")

# %% [markdown]
# With `is_causal=True` the kernel skips blocks of keys that lie in the future. A mask tensor it has to read. A boolean one is first written out as floats; for every head, those are as many
# numbers as the weights: a receipt again, and 92 ms instead of 60. So use the flag where it
# says all, else a mask of shape (n, m), or `key_padding_mask`, (b, m). The function itself has no such argument;
# give it `attn_mask=seen[:, None, None, :]`, where True keeps a key.
#
# > **Pitfall.** `nn.MultiheadAttention` wants the mask *and* the flag:
# > `attention(x, x, x, attn_mask=blocked, is_causal=True, need_weights=False)`. With the flag alone it raises an error, except on
# > the fast path. There it says nothing, and every token sees the future. This book's class takes the flag alone.

# %% tags=["proof"]
theirs, x = module(), torch.randn(2, 16, 48)
ours = MultiheadAttention(48, 8, batch_first=True).eval()
ours.load_state_dict(theirs.state_dict())
causal = {"is_causal": True, "need_weights": False}
with torch.no_grad():
    unmasked = theirs(x, x, x, need_weights=False)[0]
    masked = theirs(x, x, x, attn_mask=future, **causal)[0]
    torch.testing.assert_close(ours(x, x, x, **causal)[0], masked)
    torch.testing.assert_close(theirs(x, x, x, **causal)[0], unmasked)
    assert not torch.allclose(masked, unmasked)
    torch.backends.mha.set_fastpath_enabled(False)
    torch.testing.assert_close(theirs(x, x, x, attn_mask=future, **causal)[0], masked)
    said = ""
    try:
        theirs(x, x, x, **causal)
    except RuntimeError as error:
        said = str(error)
    assert said.startswith("Need attn_mask if specifying the is_causal hint")
    torch.backends.mha.set_fastpath_enabled(True)
print(
    "✓ On the fast path, the flag alone gives the output without a mask; off it, an error."
)

# %% [markdown] name="four-times-the-tokens"
# ## How much longer do four times the tokens take?
#
# Scores grow with n², so should it be sixteen times? Here a small language model of four layers (e = 576) reads a
# prompt, in float32 and in bfloat16:

# %% tags=["hide-input"]
read = {
    (row["precision"], row["size"][1]): row["milliseconds"]["language model"][MIDDLE]
    for row in find("prefill")
    if row["size"][1] > 128
}
table = {}
for precision in ("float32", "bfloat16"):
    few, many = read[precision, 512], read[precision, 2048]
    table[precision] = [few, many, f"×{many / few:.1f}"]
gain = [read["float32", n] / read["bfloat16", n] for n in (512, 2048)]
table["float32 ÷ bfloat16"] = [f"×{part:.1f}" for part in gain] + [""]
display.show(table, columns=["n = 512, ms", "n = 2,048, ms", "longer"], decimals=1)

# %% [markdown]
# About five times, not sixteen. Only the scores and the mixing grow with n²; the projections and the
# feed-forward network grow with n, and at these lengths [they are the larger part](14_counting.ipynb). And one
# line, `model.to(torch.bfloat16)`, makes the call three to four times as fast. Two conditions: the rounding is
# coarser, so compare the outputs; and the processor needs units for it. A factor like this takes Intel's AMX
# (`lscpu | grep amx`). The file names a Xeon, not its units; with `avx512_bf16` alone, expect far less, or nothing.

# %% [markdown] name="a-class-of-your-own"
# ## Does a class of my own cost time?
#
# Here is a forward pass at n = 2,048 without weights, by PyTorch's class and by this book's. Read PyTorch's column
# first: which of its calls is the slowest?

# %% tags=["hide-input"]
table, LONG = {}, [1, 2048, 512, 8]
chosen = {"weights": False, "memory": "kept", "size": LONG}
for mask, words in (("none", "no mask"), ("causal", "causal")):
    for mode, name in (("forward", "training mode"), ("inference", "evaluation")):
        (row,) = find("final class", mode=mode, mask=mask, **chosen)
        times = [row["milliseconds"][x][MIDDLE] for x in ("PyTorch", "final class")]
        ratio = 1 / row["ratios"]["PyTorch"]["final class"][MIDDLE]
        table[f"{words}, {name}"] = [*times, f"×{ratio:.2f}"]
columns = ["PyTorch's, ms", "this book's, ms", "PyTorch's ÷ this book's"]
display.show(table, columns=columns, decimals=1)

# %% tags=["proof"]
cases = find("final class", weights=False)
ratios = [row["ratios"]["PyTorch"]["final class"][MIDDLE] for row in cases]
bare = [row["ratios"]["bare minimum"]["final class"][MIDDLE] for row in cases]
assert len(ratios) == len(cases) == 90
assert max(ratios) < 1.1
assert max(bare) < 1.2
longer = sum(ratio > 1 for ratio in ratios)
print(f"✓ In {longer} of {len(ratios)} cases this class takes longer than PyTorch's.")

# %% [markdown]
# The causal call in evaluation: 130 ms, where training mode, which also prepares for the gradients, takes 40. That
# is the fast path with a boolean mask. Off it, the two classes are nearly even, so the few lines of a class of your
# own cost next to nothing.

# %% [markdown] name="and-on-a-gpu"
# ## And on a GPU?
#
# Counts carry over; ratios do not. These numbers are quoted, not measured here, and those of Dao are for an A100:
#
# | what you change | on a GPU | who says so |
# |---|---|---|
# | no weights | from 41.7<!-- quoted --> to 7.3<!-- quoted --> ms, forward and backward, n = 1,024 | [Dao et al.](../docs/references.md#dao-2022), figure 2 |
# | `is_causal` | 1.7<!-- quoted --> to 1.8<!-- quoted --> times as fast on long sequences | [Dao](../docs/references.md#dao-2023), 3.1 |
# | half precision | FlashAttention takes nothing else; float32 gets `EFFICIENT_ATTENTION`, fused as well | [its code](../docs/references.md#flash-attention-code) |
# | freed memory | PyTorch keeps it for itself | [CUDA semantics](https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management) |

# %% [markdown]
# ## How do I know that it helped?
#
# A measured time says as much about the machine as about the code. Here is this book's class at n = 512 under two masks,
# once in two runs of their own, once taking turns in one:

# %% tags=["hide-input"]
chosen = {"mode": "inference", "memory": "kept", "weights": False}
apart = []
for mask in ("floats", "boolean"):
    (row,) = find("final class", size=[4, 512, 512, 8], mask=mask, **chosen)
    apart.append(row["milliseconds"]["final class"][MIDDLE])
(turns,) = find("masks", mode="forward", weights=False)
names = ("attn_mask, floats", "attn_mask, boolean")
together = [turns["milliseconds"][name][MIDDLE] for name in names]
table = {
    "runs of their own, evaluation": [*apart, f"×{apart[1] / apart[0]:.2f}"],
    "taking turns, training mode": [*together, f"×{together[1] / together[0]:.2f}"],
}
columns = ["floats, ms", "boolean, ms", "boolean ÷ floats"]
display.show(table, columns=columns, decimals=1)

# %% [markdown]
# Does a boolean mask triple the time? Two runs of their own cannot tell a slow mask from a busy machine. Where the
# masks take turns, here in training mode, both meet the same minutes, and the factor is gone. So:
#
# - First assert that both versions give the same output, and the same gradients if you train.
# - Warm up, and fix the number of threads. `torch.utils.benchmark.Timer` uses one thread unless you pass `num_threads`.
# - On a GPU, call `torch.cuda.synchronize()` before you read the clock: a call returns before its work is done.
# - Let the versions take turns, divide within each round, and report the median ratio with its quartiles. If one is
#   below 1 and the other above, say "even".

# %% tags=["proof"]
from torch.utils.benchmark import Timer

assert Timer("pass").timeit(1).task_spec.num_threads == 1
low, _, up = row["ratios"]["bare minimum"]["final class"]
assert low < 1 < up  # the bare minimum, in the same rounds, took as long
assert together[1] < 1.1 * together[0] < 0.4 * apart[1]
print("✓ A Timer that is told nothing runs on one thread.")

# %% [markdown]
# <!-- deeper: A list of heads, or all heads at once? -->
# ### Going deeper: A list of heads, or all heads at once?
#
# The class of [Two heads](02_two_heads.ipynb) computes one head after another, in a list. The class
# of [The reshape trick](04_reshape_trick.ipynb) computes all heads in one product. Here both return their
# weights; *forward* and *both* passes are in training.


# %% tags=["hide-input"]
def shown(ratio: list[float]) -> str:
    """Write a ratio, given as its quartiles, or say that these lie around one."""
    low, middle, up = ratio
    return "even" if low <= 1 <= up else f"{middle:.2f}"


# %% tags=["fold-input"]
table = {}
for row in find("one by one"):
    way = "forward" if row["mode"] == "forward" else "both"
    names = ("all heads at once", "a list of heads")
    spent_on = [row["milliseconds"][name][MIDDLE] for name in names]
    ratio = shown(row["ratios"]["all heads at once"]["a list of heads"])
    table[f"n = {row['size'][1]}, {way}, memory {row['memory']}"] = [*spent_on, ratio]
columns = ["all at once, ms", "list, ms", "ratio"]
display.show(table, columns=columns, decimals=1)

# %% [markdown]
# The list takes more time in every row, and nowhere near eight times as much.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Exercises
#
# ### Even, or not?
#
# *Easy, 2 minutes.* Here are the milliseconds of two versions in five rounds; the second,
# the third and the fifth met a busy machine. Divide our time by theirs in each round. With five rounds, the lower
# quartile is the second smallest ratio, the median the third, and the upper quartile the fourth.
# Write down the three. Is our version slower? Decide before you run the check, which tells you.
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
# > **In short.** Attention is slow where all $b \cdot h \cdot n \cdot m$ weights are written to memory and read again: a
# > receipt. It is printed if you ask for weights, on PyTorch's fast path, in a layout that the fused
# > kernel refuses, and, as a mask, if you write one for every head.
# > The cure: `attention(x, x, x, need_weights=False)`; for a causal call add `is_causal=True`, and with PyTorch's
# > class `attn_mask=blocked` as well. Off the fast path, if your sequences are long.
# >
# > Let versions take turns, and divide within each round. Pay, and leave without a receipt.
#
# [The next chapter](16_masks_in_the_wild.ipynb) is about masks in the wild: the same True means
# *hide* in one library and *show* in another.
