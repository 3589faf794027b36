# %% [markdown]
# # Speed
#
# *Why is my attention slow, what do I change, and how do I know?*
#
# *7 minutes and 2 of exercises. Afterwards you can find what slows a call, change the line that
# does it, and measure whether it helped.*
#
# For self-attention in evaluation, `nn.MultiheadAttention` takes a shortcut through C++, its **fast path**. One
# line switches it off, and the output stays the same up to rounding. Give it a sequence of 2,048 tokens, and write
# `need_weights=False`. How much longer does the call take without the shortcut?

# %% tags=["hide-input"]
import warnings

import torch
import torch.nn.functional as F

from annotated_book import display, measured
from annotated_book.measured import find  # gives you the cases of a section

RESULTS = measured.load()
RUN = RESULTS["provenance"]
MIDDLE = 1  # of the lower quartile, the median and the upper quartile
table = {}
for row in find("fast path"):
    times = (row["milliseconds"][name][MIDDLE] for name in ("fast path", "fast path off"))
    ratio = row["ratios"]["fast path off"]["fast path"][MIDDLE]
    table["n = {1:,}, b = {0}".format(*row["size"])] = [*times, f"×{ratio:.2f}"]
columns = ["fast path, ms", "switched off, ms", "times as long"]
display.show(table, columns=columns, decimals=1)

# %% [markdown]
# It takes 56 ms, where the fast path takes 98. On short sequences the shortcut is one. On the long sequence
# it takes three quarters *more* time.
#
# Ask a cashier what you have to pay, and you get one number. Ask for a receipt, and the sum stays the same,
# but every line has to be printed. Attention's receipt is its weights, n · m numbers for each head, and the
# fast path prints it even when you decline. So with long sequences, write
# `torch.backends.mha.set_fastpath_enabled(False)`. Most of this chapter is about
# receipts that nobody asked for.
#
# Where no label says otherwise, all times are of calls in **evaluation**, without gradients, on a CPU. Each is the
# median of several **rounds**, in which all that is compared takes turns; the **quartiles** enclose their middle half.
# `make bench` measures yours. What changes on a GPU stands [below](#cell-id=and-on-a-gpu).

# %% tags=["hide-input"]
again = RUN["renewed"]["kernels"]
print(
    "{cpu}, {threads} threads, load {load[0]:.0f}, torch {torch}, {date:.10}".format(**RUN)
)
print(
    "the layouts: {cpu}, {threads} threads, load {load[0]:.0f}, {date:.10}".format(**again)
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
# [Tiles](23_tiles.ipynb). It does the same products, and its receipt is never written. How much
# does the receipt cost? This is [the book's class](07_multihead_attention.ipynb) with 8 heads, without weights
# and with them:

# %% tags=["hide-input"]
table = {}
plain = {"mask": "none", "mode": "inference", "memory": "kept"}
pairs = zip(*(find("final class", weights=weights, **plain) for weights in (False, True)))
for row, other in pairs:
    b, n, _, h = row["size"]
    without, with_them = (x["milliseconds"]["final class"][MIDDLE] for x in (row, other))
    fill = f"{4 * b * h * n * n / 2**20:.0f} MiB"
    table[f"n = {n:,}, b = {b}"] = [fill, without, with_them, f"×{with_them / without:.2f}"]
columns = ["weights fill", "without, ms", "with, ms", "times as long"]
display.show(table, columns=columns, decimals=1)

# %% [markdown]
# A fifth more on short sequences, two thirds more on the long one, and in training four times the memory for
# twice the tokens. So write `need_weights=False`: both this class and PyTorch's return the weights unless
# you do.

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

# %% [markdown] name="which-kernel-runs"
# ## Which kernel runs?
#
# Suppose that you call `F.scaled_dot_product_attention` yourself. It never returns weights. But the fused kernel
# has its conditions, and where one fails, PyTorch goes step by step without a word. To find out, allow that
# kernel alone, and see whether PyTorch raises an error.

# %% tags=["hide-input"]
warnings.simplefilter("ignore")  # each refusal comes with its reason, as a warning

# %%
from torch.nn.attention import SDPBackend, sdpa_kernel


def is_fused(q, k, v, **options) -> bool:
    """Say whether the fused kernel takes a call."""
    try:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            F.scaled_dot_product_attention(q, k, v, **options)
    except RuntimeError:  # no available kernel
        return False
    return True


# %% [markdown]
# Here is one call in four layouts, with h = 8 heads and n = 2,048. Two of them print a receipt.

# %% tags=["hide-input"]
q = torch.randn(1, 8, 16, 64)
strided = torch.randn(1, 16, 64, 8).permute(0, 3, 1, 2)
layouts = {
    "(b, h, n, d)": q,
    "(b * h, n, d)": q.flatten(0, 1),
    "cut as (b, n, d, h)": strided,
    "cut so, then contiguous": strided.contiguous(),
}
(row,) = find("kernels")
slower = row["ratios"]["(b, h, n, d)"] | {"(b, h, n, d)": [1.0] * 3}
table = {}
for name, x in layouts.items():
    ran = "_scaled_dot_product_flash_attention_for_cpu" in dict(row["profile"][name])
    assert is_fused(x, x, x) == ran
    told = name.replace(" * ", " · ").replace(
        "cut so, then contiguous", "… then .contiguous()"
    )
    low, middle, up = slower[name]
    spread = f"{low:.1f} to {up:.1f}" if low < up else ""
    table[told] = ["fused" if ran else "step by step", f"×{middle:.1f}", spread]
columns = ["runs", "times as long", "quartiles"]
display.show(table, columns=columns, corner="layout of q, k and v")

# %% [markdown]
# - **Three axes** are refused, whatever they hold. Write `q.unflatten(0, (b, h))`, or `q[None]` for one sequence.
# - **Cut as (b, n, d, h)** and then permuted, the d numbers of a head lie h places apart in memory.
#   The kernel wants them side by side. Write `.contiguous()`: the copy costs less than it saves.
#
# These factors are larger than that of the weights above: only the attention is timed here, and PyTorch's own
# steps also search for fully masked rows. On a CPU, three more things cost you the kernel: values of another width than
# the keys, a mask that needs a gradient, and in training `dropout_p` above zero.

# %% tags=["proof"]
mask = torch.zeros(16, 16)
assert all(
    is_fused(q, q, q, **given) for given in ({}, {"attn_mask": mask}, {"is_causal": True})
)
for given in ({"dropout_p": 0.1}, {"attn_mask": mask.clone().requires_grad_()}):
    assert not is_fused(q, q, q, **given)
assert not is_fused(q, q, q[..., :32])
alone = q[0]
assert is_fused(*[alone[None]] * 3) > is_fused(*[alone] * 3)
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
    "padding, (b, m)": "padding",
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
assert found["no mask"][2] < found["padding, (b, m)"][0]
assert found["boolean, (b · h, n, m)"][0] > 1.8 * found["no mask"][2]
print("✓ The causal call is the quickest: the quartiles do not touch.")

# %% [markdown]
# With `is_causal=True` the kernel skips blocks of keys that lie in the future. A mask that you hand over as a tensor
# it has to read, and it skips nothing. A boolean one is first written out as floats; for every head, those are as many
# numbers as the weights: a receipt again. So use the flag where it says all, else a mask of shape (n, m), or (b, m)
# for padding, which all heads share.

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
rest = [read["bfloat16", n] / read["float32", n] for n in (512, 2048)]
table["bfloat16 of float32"] = [f"×{part:.2f}" for part in rest] + [""]
display.show(table, columns=["n = 512, ms", "n = 2,048, ms", "longer"], decimals=1)

# %% [markdown]
# About five times, not sixteen. Only the scores and the mixing grow with n²; the projections and the
# feed-forward network grow with n, and at these lengths [they are the larger part](14_counting.ipynb). And one
# line, `model.to(torch.bfloat16)`, leaves a third to a quarter of the time. The price is coarser rounding, so compare the
# outputs; and a processor without instructions for bfloat16 may gain nothing.

# %% [markdown] name="a-class-of-your-own"
# ## Does a class of my own cost time?
#
# Each dot is one of 90 cases: three lengths, five masks, and freed memory kept or returned, each in three modes. It
# divides the time of this book's class by that of `nn.MultiheadAttention`; neither returns weights.

# %% tags=["hide-input"]
modes = {
    "inference": "evaluation",
    "forward": "training, forward",
    "forward + backward": "training, both passes",
}
drawing, (ax,) = display.panels(560, 190)
ratios, alt = [], "Time of this class divided by that of PyTorch's, a dot for each case. "
for y, (mode, name) in enumerate(modes.items()):
    rows = find("final class", weights=False, mode=mode)
    dots = [row["ratios"]["PyTorch"]["final class"][MIDDLE] for row in rows]
    off = torch.linspace(-0.28, 0.28, len(dots)).roll(7)
    ax.plot(dots, y + off, "o", color=ink["n"], markersize=6, alpha=0.55, markeredgewidth=0)
    alt += f"{name.capitalize()}: {min(dots):.2f} to {max(dots):.2f}. "
    ratios += dots
ax.axvline(1, color=ink["h"], linewidth=1.5)
ax.set(xlim=(0.2, 1.15), ylim=(2.5, -0.5), yticks=range(3), yticklabels=modes.values())
ax.set_xticks([0.25, 0.5, 0.75, 1], ["a quarter", "half", "three quarters", "as long"])
ax.tick_params(labelsize=12)
display.finish(drawing, name="ninety-cases", alt=alt)

# %% tags=["proof"]
cases = find("final class", weights=False)
bare = [row["ratios"]["bare minimum"]["final class"][MIDDLE] for row in cases]
assert len(ratios) == len(cases) == 90
assert max(ratios) < 1.1
assert max(bare) < 1.2
longer = sum(ratio > 1 for ratio in ratios)
print(f"✓ In {longer} of {len(ratios)} cases this class takes longer than PyTorch's.")

# %% [markdown]
# Next to nothing. The dots far to the left, in evaluation, are the fast path once more.

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
# A measured time says as much about the machine as about the code. One case in this book's file shows it: here
# is the class at n = 512 under two masks, beside a bare minimum: its matrix products and the fused kernel, nothing else.

# %% tags=["hide-input"]
table = {}
for mask in ("floats", "boolean"):
    chosen = {"mode": "inference", "memory": "kept", "weights": False, "mask": mask}
    (row,) = find("final class", size=[4, 512, 512, 8], **chosen)
    took = [row["milliseconds"][name][MIDDLE] for name in ("final class", "bare minimum")]
    low, middle, up = row["ratios"]["bare minimum"]["final class"]
    table[mask] = [*took, f"{middle:.2f}", f"{low:.2f} to {up:.2f}"]
columns = ["class, ms", "bare minimum, ms", "ratio within rounds", "its quartiles"]
display.show(table, columns=columns, decimals=1, corner="mask")

# %% [markdown]
# Did the boolean mask triple the time, and is the class quicker than the bare minimum? Neither: the machine was
# busy. Both met that in the same rounds, so their ratio is still near one, and its quartiles say how
# little it is worth. So:
#
# - First assert that both versions give the same output, and the same gradients if you train.
# - Warm up, and fix the number of threads. `torch.utils.benchmark.Timer` uses one thread unless you pass `num_threads`.
# - On a GPU, call `torch.cuda.synchronize()` before you read the clock: a call returns before its work is done.
# - Let the versions take turns, divide within each round, and report the median ratio with its quartiles. If one is
#   below 1 and the other above, say "even".

# %% tags=["proof"]
from torch.utils.benchmark import Timer

assert Timer("pass").timeit(1).task_spec.num_threads == 1
assert low < 1 < middle < 1.05 < up
assert took[0] < took[1]
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
# > The cure: `attention(x, x, x, need_weights=False)`, with `is_causal=True` where no token may see the future.
# >
# > Then go down in precision, then in length. Assert that results are equal, let versions take turns, and say
# > "even" when the quartiles lie on either side of one. Pay, and leave without a receipt.
#
# [The next chapter](16_masks_in_the_wild.ipynb) is about masks in the wild: the same True means
# *hide* in one library and *show* in another.
