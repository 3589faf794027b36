# %% [markdown]
# # Speed
#
# *Which version is fast, and at which length?*
#
# You have seen one computation written in many ways. They give the same numbers, but they do not
# take the same time or the same memory. In this chapter you read measurements of all of them, and
# profiles that show where the time goes. At the end you check the goal of the final class: to take
# hardly more time than PyTorch's own class. It misses the goal in one kind of case, which you will
# see.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map(
    "project in", "split", "score", "mask", "softmax", "mix", "merge", "project out"
)

# %% [markdown]
# ## How to measure
#
# A time tells as much about the machine as about the code. So treat a measurement like a race over
# many laps, with all runners on one track:
#
# - All contenders get the same input and the same parameters. Before the clock starts, we assert
#   that their outputs and gradients are equal.
# - They take turns, so that a busy moment of the machine hits all of them.
# - Within each turn, one contender's time is divided by another's. The median of these ratios is
#   what you read.
# - Each median is kept with its **quartiles**: a quarter of the turns gave less than the lower one,
#   a quarter gave more than the upper one. A ratio whose quartiles lie on both sides of one may be
#   noise, so the tables print it as "even".
#
# With few turns the quartiles are rough: among hundreds of ratios, some will look different from
# one by chance. So ignore a few percent.
#
# This page runs no measurement of its own. `make bench` does that, in about 25 minutes, and writes
# its results to `src/annotated_attention/data/benchmarks.json`. The tables show a part of that
# file. Under them a line in brackets says where the numbers come from:
#
# - when they were measured, and with which commit;
# - the **load**: how many processes ran, on average, in the minute before. This machine has two
#   threads, so a load near 2 means that other work had kept both of them busy;
# - how many turns the contenders took.

# %%
from annotated_attention import measure
from annotated_attention.measure import find  # gives you the cases of a section

RESULTS = measure.load()
RUN = RESULTS["provenance"]
print("{cpu}, {threads} threads, torch {torch}".format(**RUN))


def origin(section: str) -> None:
    """Print a section's date and commit, the load of the machine, and the turns."""
    run = RUN.get("renewed", {}).get(section, RUN)
    turns = [row["rounds"] for row in find(section)]
    counts = " to ".join(map(str, sorted({min(turns), max(turns)} if turns else ())))
    rounds = f", {counts} turns" if turns else ""
    commit, load = run["commit"][:7], run["load"][0]
    print(f"[{run['date'][:16]}, commit {commit}, load {load:.2f}{rounds}]")


def shown(ratio: list[float]) -> str:
    """Write a ratio, given as its quartiles, or say that it cannot be told from one."""
    low, middle, up = ratio
    return "even" if low <= 1 <= up else f"{middle:.2f}"


# %% [markdown]
# On your machine the times will differ, and so will many of the ratios: run `make bench`, then this
# chapter again.
#
# Three sizes recur: many short sequences, some of middle length, and a single long one.

# %%
MODES = ("forward", "forward + backward")
SIZES = [tuple(row["size"]) for row in find("versions", mode="forward")]
for b, n, e, h in SIZES:
    print(f"b = {b}, n = {n:4}, e = {e}, h = {h}")

# %% [markdown]
# ## Every version
#
# Here is every version that this book builds, beside PyTorch's own class. The number before a name
# is its chapter. The five rows named "published" are other people's designs, which [Published
# code](15_published_code.ipynb) reads; here they are only company. "Weights" means that the
# attention weights were asked for. Only "PyTorch" and "07 final class", both without weights, use
# the fused kernel; all other rows store the weights.
#
# Each time is divided by that of the **bare minimum**: matrix products for the projections and
# PyTorch's fused kernel between them, without checks or options. It is a yardstick, not a lower
# bound. A line goes from the lower to the upper quartile. Where the lines are long, read no more
# than the groups.

# %% jupyter={"source_hidden": true}
names = list(find("versions")[0]["ratios"]["bare minimum"])[::-1]
drawing, axes = display.panels(860, 28 * len(names) + 90, columns=3)
for ax, size in zip(axes, SIZES):
    ax.sharex(axes[-1]) if ax is not axes[-1] else None
    for mode, letter, marker, shift in ((MODES[0], *"no", 0.14), (MODES[1], *"hs", -0.14)):
        row = find("versions", mode=mode, size=list(size))[0]["ratios"]["bare minimum"]
        low, middle, up = zip(*(row[name] for name in names))
        y, colour = [i + shift for i in range(len(names))], display.COLOURS[letter]
        ax.hlines(y, low, up, color=colour, linewidth=1.5)
        ax.plot(middle, y, marker, color=colour, markersize=5, label=mode)
    ax.axvline(1, color=display.COLOURS["b"], linewidth=0.8)
    ax.set(title=f"n = {size[1]}", xlabel="× bare minimum", yticks=range(len(names)))
    ax.set_yticklabels(names if ax is axes[0] else [])
axes[1].legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2, frameon=False)
last = find("versions", mode="forward")[-1]["ratios"]["bare minimum"].items()
alt = "Time over the bare minimum, at three lengths. Forward at the longest: "
alt += ", ".join(f"{name} {ratio[1]:.2f}" for name, ratio in last)
display.finish(drawing, name="every-version", alt=alt)

# %% jupyter={"source_hidden": true}
origin("versions")

# %% [markdown]
# At n = 2048 two groups appear. What goes through the fused kernel stays near one. What stores the
# weights takes much longer, because there are n² of them for each head. At n = 128 there are no two
# groups: several versions that store the weights are as fast as PyTorch's class, which does not. At
# n = 512 they begin to part.
#
# With weights, the forward pass of the final class is among the faster ones at n = 128. At the other
# two sizes it is slower than most versions of chapters 2 to 5. It also does more: it checks its
# inputs, and returns the mean of the weights over the heads.

# %% [markdown]
# <!-- deeper: The numbers of the figure -->
# ### Going deeper: The numbers of the figure

# %%
rows = [row for mode in MODES for row in find("versions", mode=mode)]
print(f"{'times the bare minimum':27}{'forward':>16}{'forward + backward':>26}")
print(f"{'':27}" + "".join(f"{row['size'][1]:>8}" for row in rows))
for name in rows[0]["ratios"]["bare minimum"]:
    columns = [shown(row["ratios"]["bare minimum"][name]) for row in rows]
    print(f"{name:27}" + "".join(f"{column:>8}" for column in columns))
origin("versions")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Where the time goes
#
# Guessing at causes is easy and often wrong. A **profile** runs a version and adds up what each of
# PyTorch's operations took; we keep the quickest of five runs, the one that was disturbed least. In
# the lines below `mm` and `bmm` are matrix products, `_softmax` is the softmax, and `copy_` moves
# numbers from one place to another. The versions have no biases here; with them, the projections
# would be called `addmm`. Each line gives percentages of its own version's time.


# %%
def spent(row: dict, name: str, count: int = 4) -> None:
    """Print what a contender spent its time on."""
    kernel = "_scaled_dot_product_flash_attention_for_cpu"
    parts = [
        f"{operation.replace(kernel, 'fused kernel')} {share:.0%}"
        for operation, share in row["profile"][name][:count] if share > 0.005
    ]
    print(f"{name:26}", ", ".join(parts))


longest = find("versions", mode="forward")[-1]
print("forward at n =", longest["size"][1])
for name in ("bare minimum", "07 final class", "04 reshape trick", "05 by name",
             "published sequence first"):
    spent(longest, name)
origin("versions")

# %% jupyter={"source_hidden": true}
parts = {name: dict(found) for name, found in longest["profile"].items()}
fused = {name for name, found in parts.items() if "_softmax" not in found}
assert fused == {"bare minimum", "PyTorch", "07 final class"}
assert parts["04 reshape trick"]["_softmax"] > 0.2
assert "div" in parts["05 by name"]
assert parts["published sequence first"]["copy_"] > 0.1

# %% [markdown]
# The bare minimum consists of the fused kernel and the projections, `mm`, and so does the final
# class. The kernel hides the products of the heads. In the reshape trick they appear as `bmm`,
# beside a softmax that reads and writes all the weights. The einsum form of
# [Batches](05_batches.ipynb), "by name", divides the scores by √d, h · n² numbers. That is the
# `div` in its line; other versions divide the queries, which are fewer numbers. The published design
# "sequence first" copies: in its einsum the tokens come first and the samples and heads last, and
# every product needs the opposite order.
#
# ## A list of heads, or all heads at once?
#
# The class of [Two heads](02_two_heads.ipynb) computes one head after another, in a list. The class
# of [The reshape trick](04_reshape_trick.ipynb) computes all heads in one product, which you might
# expect to be always faster. But the list works on the scores of a single head at a time. That
# matrix is h times smaller, and a smaller matrix may get its memory more cheaply.
#
# When a tensor is freed, its memory goes back to an **allocator**, here that of glibc, the C library
# of most Linux systems. The allocator may keep the memory for the next tensor, or return it to the
# system [[mallopt](../docs/references.md#mallopt)]. The system then has to hand it out anew, in
# **pages** of 4 KiB, each filled with zeros first.
#
# To separate memory from arithmetic, `make bench` measures both versions twice, each time in a
# process of its own. In one process the allocator keeps everything; in the other it returns every
# large block. Does the list of heads need less time, and if so, in which of the two processes?
#
# <details><summary>What do you expect?</summary>
#
# Not with memory kept: both versions multiply the same numbers, and the list does so in more and
# smaller pieces. With memory returned, new pages cost time as well, so the answer depends on which
# version takes more of them.
#
# </details>
#
# In the table, "both" is a forward and a backward pass. The ratio is the median of the turns'
# ratios, not the ratio of the two medians. The last two columns count the new pages of one call.

# %%
print(f"{'':42}{'all at once':>11}{'list':>11}{'ratio':>8}{'pages: all / list':>21}")
for row in find("one by one"):
    way = "forward" if row["mode"] == "forward" else "both"
    times, pages = row["milliseconds"], row["pages"]
    print(f"n = {row['size'][1]:4}, {way:8} memory {row['memory']:18}", end="")
    for name in ("all heads at once", "a list of heads"):
        print(f"{times[name][1]:8.1f} ms", end="")
    ratio = shown(row["ratios"]["all heads at once"]["a list of heads"])
    print(f"{ratio:>8}{pages['all heads at once']:12}{pages['a list of heads']:8}")
origin("one by one")

# %% [markdown]
# The list of heads needs more time in every case. It does with memory kept, too, so the smaller
# pieces themselves cost time. In the figure of all versions the list seemed faster at n = 2048.
# There many versions share one process and its allocator, so trust the separate processes more than
# the order of two neighbours in that figure.
#
# The largest differences are between the two halves of the table: with memory returned, the same
# code takes about twice as long. So a good part of the distance between the two groups at n = 2048
# may be the price of new pages, and not of arithmetic.
#
# > **Pitfall.** By default, glibc returns every block of 32 MiB or more to the system, and large
# > batches need many such blocks. To make it keep them, set `MALLOC_MMAP_MAX_=0` and a
# > `MALLOC_TRIM_THRESHOLD_` larger than your peak before Python starts. Other programs then cannot
# > use that memory.
#
# Where a table names no such choice, the allocator was left at this default.
#
# ## The price of the weights
#
# The fused kernel never stores the weights. It takes a block of keys at a time and keeps a running
# sum [[Dao et al.](../docs/references.md#dao-2022)]. Asking for the weights, `need_weights=True`,
# is the default here as in PyTorch. With it the kernel cannot be used, which costs time and, above
# all, memory. Here is a single sequence at five lengths, with e = 512 and h = 8.
#
# In the figure of all versions, weights made a forward pass more than twice as long at n = 2048. At
# n = 4096, is this ratio about the same, twice as large, or four times as large?
#
# <details><summary>What do you expect?</summary>
#
# About the same. The kernel stores no weights, but it computes all n² scores of each head, too. So
# for long sequences both sides grow with n². For short ones the weights cost little, because there
# the projections take most of the time, and they are the same on both sides.
#
# </details>

# %%
for row in find("lengths"):
    times = row["milliseconds"]
    without, weights = times["final class"][1], times["final class, weights"][1]
    print(f"n = {row['size'][1]:4}: {without:7.1f} ms without weights,", end=" ")
    ratio = row["ratios"]["final class"]["final class, weights"]
    print(f"{weights:7.1f} ms with them, ratio {shown(ratio)}")
origin("lengths")

# %% jupyter={"source_hidden": true}
ratios = {
    row["size"][1]: row["ratios"]["final class"]["final class, weights"][1]
    for row in find("lengths")
}
assert ratios[512] < 1.5
assert ratios[2048] > 2
assert abs(ratios[4096] - ratios[2048]) < 0.3

# %% [markdown]
# From n = 1024 on, the ratio stays about the same. Between n = 512 and n = 1024 it jumps, and the
# allocator may be why: at n = 1024 the weights of the 8 heads reach 32 MiB, from where glibc returns
# every block. In the figure of all versions there were four samples of n = 512, whose weights reach
# 32 MiB, too. There the final class with weights took 1.55 times as long as the bare minimum, not
# 1.12. That fits, but it is no proof.
#
# Now the memory: the peak during a forward and a backward pass, in MiB. Each number is one
# measurement in a new process. At n = 1024 there are three measurements, and where they differ you
# see the smallest and the largest. So read nothing into differences of that size. A dash stands
# where the call would have taken more than half of the memory that was free. The length n = 8192 is
# left out, for you to predict in the exercises.


# %%
def mebibytes_at(n: int, row: dict) -> str:
    """Write a peak in MiB, or the smallest and the largest of three."""
    sizes = dict(zip(row["lengths"], row["bytes"]))
    found = sorted(row["again"]) if n == 1024 else [sizes[n]]
    if None in found:
        return "-"
    return " to ".join(dict.fromkeys(f"{x / 2**20:.0f}" for x in (found[0], found[-1])))


lengths = (512, 1024, 2048, 4096, 16384)
print(f"{'MiB at n =':20}" + "".join(f"{n:>12}" for n in lengths))
for row in RESULTS["memory"]:
    print(f"{row['name']:20}" + "".join(f"{mebibytes_at(n, row):>12}" for n in lengths))
origin("memory")

# %% jupyter={"source_hidden": true}
for row in RESULTS["memory"]:
    sizes = dict(zip(row["lengths"], row["bytes"]))
    growth = sizes[4096] / sizes[2048]
    linear = "weights" not in row["name"] and "dropout" not in row["name"]
    assert growth < 2.1 if linear else growth > 3.7
    assert not linear or sizes[16384] < 4.1 * sizes[4096]

# %% [markdown]
# Without weights the memory grows at most in proportion to n, mostly more slowly, because a part of
# each peak does not depend on n. A causal or a padding mask does not change that.
#
# With weights, twice the length takes nearly four times the memory. At n = 4096 the weights of
# 8 heads are 512 MiB, and in the backward pass the gradients of the weights and of the scores are as
# large. Together they are 1,536 of the 1,591 MiB. That is more than [what the forward pass
# keeps](12_counting.ipynb#what-the-backward-pass-needs), which has no gradients.
#
# Dropout costs even more. The line "final class, dropout" asked for no weights, but on a CPU the
# kernel is not used with dropout, so the weights are stored, once before dropout and once after.
#
# ## The price of a mask
#
# Here is the final class under every kind of mask, at the middle size, divided by the same call
# without a mask.

# %%
rows = [row for weights in (False, True) for row in find("masks", weights=weights)]
print("times the call without a mask")
print(f"{'':24}{'without weights':>20}{'with weights':>20}")
print(f"{'':24}" + f"{'forward':>12}{'both':>8}" * 2)
for name in rows[0]["ratios"]["no mask"]:
    columns = [shown(row["ratios"]["no mask"][name]) for row in rows]
    print(f"{name:24}{columns[0]:>12}{columns[1]:>8}{columns[2]:>12}{columns[3]:>8}")
origin("masks")

# %% jupyter={"source_hidden": true}
for row in rows:
    ratios = {name: ratio[1] for name, ratio in row["ratios"]["no mask"].items()}
    assert max(ratios, key=ratios.get) == "attn_mask, every head"

# %% [markdown]
# A mask for every head is as large as the scores and costs the most in every column. The other
# masks, of the shape (b, m) or (n, m), are much smaller and cost a few percent at most.
#
# `is_causal` alone lets the kernel skip the blocks of keys that lie in the future. Does that save
# time? Here are both, measured where memory is kept:

# %%
alike = {"mode": "forward", "weights": False, "memory": "kept"}
pairs = zip(*(find("final class", mask=mask, **alike) for mask in ("none", "causal")))
for without, causal in pairs:
    before, after = (row["milliseconds"]["final class"] for row in (without, causal))
    n = causal["size"][1]
    print(f"n = {n:4}: {before[1]:5.1f} ms, with is_causal {after[1]:5.1f} ms")
assert after[1] < before[1]
origin("final class")

# %% [markdown]
# It does where the sequence is long and there is much to skip; at the shorter sizes it saves
# nothing.
#
# ## The number of heads
#
# In [Counting](12_counting.ipynb), the number of heads did not change the FLOPs. Does it change the
# time? Take the forward pass at the middle size, four sequences of 512 tokens. The width stays 512,
# cut into more and more heads. Each number is the time over that with eight heads.

# %%
counts = (1, 2, 4, 8, 16, 32, 64)
print(f"{'h =':17}" + "".join(f"{h:6}" for h in counts))
for weights in (False, True):
    (row,) = find("heads", weights=weights)
    ratios = {h: shown(ratio) for h, ratio in row["ratios"]["8"].items()} | {"8": "1"}
    title = "with weights" if weights else "without weights"
    print(f"{title:17}" + "".join(f"{ratios[str(h)]:>6}" for h in counts))
    assert row["ratios"]["8"]["64"][0] > 1.2
origin("heads")

# %% [markdown]
# More heads take longer, because each has n · m weights of its own. They are more exponentials to
# compute, also inside the kernel, and where the weights are stored, more numbers to write and read.
# The FLOPs count none of that. Products of narrow heads may be slower, too.
#
# ## The fast path that is not always fast
#
# In evaluation without gradients, `torch.nn.MultiheadAttention` takes a C++ routine of its own,
# which PyTorch calls the fast path. It computes all the weights, even when nobody asked for them.
#
# At which of the three lengths is the fast path faster than the same module with the fast path
# switched off? The numbers are multiples of the time without it, for the fast path and, beside it,
# for the final class. Profiles with and without it at the longest follow, in which
# `_native_multi_head_attention` is the C++ routine itself.
#
# <details><summary>What do you expect?</summary>
#
# The routine saves many small steps, which matters where the whole call is short. The stored weights
# cost more with every token. So expect a gain at n = 128 and a loss at n = 2048.
#
# </details>

# %%
for row in find("fast path"):
    ratios = row["ratios"]["fast path off"]
    fast, ours = shown(ratios["fast path"]), shown(ratios["final class"])
    print(f"n = {row['size'][1]:4}: fast path {fast}, final class {ours}")
print("profiles at n =", row["size"][1])
spent(row, "fast path off")
spent(row, "fast path")
origin("fast path")
short, *_, long = (row["ratios"]["fast path off"]["fast path"] for row in find("fast path"))
assert short[1] < 1 < long[0]

# %% [markdown]
# > **Pitfall.** The fast path is not always faster. At n = 128 it saves time; at n = 2048 storing
# > the weights costs more than it saves. In a model that reads long texts, switch it off, or use a
# > class that goes through the fused kernel.
#
# ## What the final class promises
#
# The goal is that no case takes more than 1.05<!-- setting --> times as long as PyTorch's own
# class. One case is allowed 1.07<!-- setting -->: a boolean (n, m) mask with weights at n = 2048,
# because there the class searches the mask for fully masked rows, and PyTorch's class does not.
#
# Every case was measured twice, in a process whose allocator keeps memory and in one whose allocator
# returns it. The table shows the worse of the two, so its numbers are not those of the tables above.
#
# - A star marks a case that is slower than PyTorch's beyond the spread: the lower quartile of the
#   ratio is above one. An exclamation mark follows where the goal is missed.
# - The last three columns compare with the bare minimum, which has no weights to return.
# - "Floats" and "boolean" are masks of the shape (n, m), "both" is forward and backward, and
#   "infer." is evaluation without gradients.


# %%
def worse(rows: list[dict], base: str) -> str:
    """Write the larger ratio of the rows; mark it if it is slower or misses the goal."""
    row = max(rows, key=lambda row: row["ratios"][base]["final class"][1])
    low, middle, _ = row["ratios"][base]["final class"]
    marks = ("*" if low > 1 else "") + ("!" if measure.misses_goal(row) else "")
    return f"{middle:.2f}{marks if base == 'PyTorch' else ''}"


# %%
import itertools

KINDS = ((True, "PyTorch"), (False, "PyTorch"), (False, "bare minimum"))
heads = ("with weights, × PyTorch", "without, × PyTorch", "without, × minimum")
print(f"{'':16}" + "".join(f"{head:24}" for head in heads))
print(f"{'':16}" + f"{'forward':8}{'both':8}{'infer.':8}" * 3)
for _, n, _, _ in SIZES:
    for mask in dict.fromkeys(row["mask"] for row in find("final class")):
        rows = [row for row in find("final class", mask=mask) if row["size"][1] == n]
        print(f"{n:4} {mask:10}", end=" ")
        for (weights, base), mode in itertools.product(KINDS, (*MODES, "inference")):
            same = [row for row in rows if (row["weights"], row["mode"]) == (weights, mode)]
            print(f"{worse(same, base):8}", end="")
        print()
origin("final class")

# %% jupyter={"source_hidden": true}
from unittest import mock

import torch
from torch import nn


def takes_fast_path(mask: torch.Tensor | None) -> bool:
    """Say whether PyTorch's class calls its C++ routine in evaluation."""
    module, x = nn.MultiheadAttention(6, 2, batch_first=True).eval(), torch.randn(3, 5, 6)
    with torch.no_grad(), mock.patch("torch._native_multi_head_attention") as routine:
        routine.return_value = (x, None)
        module(x, x, x, attn_mask=mask)
    return routine.called


blocked = torch.ones(5, 5, dtype=torch.bool).triu(1)  # (5, 5)
floats = torch.zeros(5, 5)                            # (5, 5)
assert [takes_fast_path(mask) for mask in (None, blocked, floats)] == [True, True, False]

# %% [markdown]
# The lowest numbers stand under "infer.", where PyTorch's class takes its fast path. Without
# weights, that path still computes all of them and makes no use of `is_causal`, while the final
# class goes through the fused kernel. At n = 128 without a mask the fast path is quick, so there is
# little to gain. A mask of floats keeps PyTorch's class off the fast path, so those rows are
# close to the forward pass. With weights, both classes compute all of them. There the fast path is
# slower than the final class under a mask, and faster without one.
#
# Now count the cases, both measurements of each, and name those that miss the goal:

# %%
cases = find("final class")
slower = [row for row in cases if row["ratios"]["PyTorch"]["final class"][0] > 1]
missed = [row for row in cases if measure.misses_goal(row)]
print(f"{len(cases)} cases, {len(slower)} slower, {len(missed)} of them miss the goal")
for row in missed:
    print(measure.describe(row))

# %% [markdown]
# All that miss are inference with weights and without a mask, where PyTorch's class takes its fast
# path. The docstring of the class has to name these cases, and a test compares it with this list.
# Quartiles show how much the turns of one run differ. They do not show what shifts a whole run, so a
# case near the limit may fall on the other side next time.

# %% [markdown]
# <!-- deeper: What the class does for speed -->
# ### Going deeper: What the class does for speed
#
# Without weights, PyTorch's class copies queries, keys and values, even where the fused kernel would
# take views of them. The final class passes views. So PyTorch's class takes more new pages where
# memory is returned:

# %%
alike = {"mode": "forward", "weights": False, "memory": "returned"}
NAMES = ("PyTorch", "final class", "bare minimum")
print(f"{'pages and ms':14}" + "".join(f"{name:>18}" for name in NAMES))
for row in find("final class", mask="none", **alike):
    pages, times = row["pages"], row["milliseconds"]
    columns = (f"{pages[name]:9} {times[name][1]:8.1f}" for name in NAMES)
    print(f"n = {row['size'][1]:4}      ", *columns, sep="")
    assert 1.3 < pages["PyTorch"] / pages["final class"] < 2.6
origin("final class")

# %% [markdown]
# With weights there is no such kernel. Then the class first copies queries, keys and values, too,
# which saves memory, as [Counting](12_counting.ipynb#what-the-backward-pass-needs) has shown. And it
# treats masks in a quicker way: it adds the mask to the scores in place, and looks for fully masked
# rows in the mask, which is smaller than the scores. Here are the copies alone ("contiguous first"),
# and copies and masks together ("final class"), beside the formula step by step as in [Multi-head
# attention](07_multihead_attention.ipynb#two-ways-through).

# %%
print(f"{'times the formula':38}contiguous first   final class")
for row in find("for speed"):
    way = "forward" if row["mode"] == "forward" else "both"
    ratios = row["ratios"]["as the formula"]
    title = f"n = {row['size'][1]:4}, {way}, mask {row['mask']}"
    print(f"{title:38}", end="")
    print(f"{shown(ratios['contiguous first']):>16}{shown(ratios['final class']):>14}")
origin("for speed")

# %% [markdown]
# The copies alone gain next to nothing, and in one case they cost time. The quicker way with masks
# pays: under a padding mask at n = 2048, the forward pass of the final class takes about two thirds
# of the formula's time.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Exercises
#
# ### Predict, then look
#
# *Easy, 2 minutes.* Which of two is faster, "left" or "right"? Forward, and all of them at n = 2048
# but the last, which is at the middle size. Decide before you run the check.
#
# 1. left: the final class without weights; right: the reshape trick
# 2. left: einsum, "by name", for batches; right: their four axes
# 3. left: PyTorch in evaluation with its fast path; right: without it
# 4. left: 8 heads, weights asked for; right: 64 heads of the same total width

# %% tags=["exercise"]
predictions = ["", "", "", ""]  # "left" or "right" for each

# %%
from annotated_attention import exercises

exercises.speed.check_predictions(predictions)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Ask of each side: does it store h · n² weights?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The figure and the tables of this chapter hold the answers. For the fourth: how many weights do 64
# heads have?
#
# </details>

# %% tags=["solution"] jupyter={"source_hidden": true}
predictions = ["left", "right", "right", "left"]

exercises.speed.check_predictions(predictions)

# %% [markdown]
# ### The column that is missing
#
# *Medium, 10 minutes.* How much memory does the final class take at n = 8192, forward and backward,
# without weights and with them? Work it out from the table, in MiB. A quarter off is close enough.

# %% tags=["exercise"]
mebibytes = (None, None)  # without weights, with weights

# %%
exercises.speed.check_mebibytes(mebibytes)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# How does each line grow from n = 2048 to n = 4096? It goes on like that.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Without weights the column of n = 16384 helps, too: it is somewhat less than twice what you look
# for.
#
# </details>

# %% tags=["solution"] jupyter={"source_hidden": true}
at_4096 = {row["name"]: row["bytes"][3] / 2**20 for row in RESULTS["memory"]}
mebibytes = (2 * at_4096["final class"], 4 * at_4096["final class, weights"])

exercises.speed.check_mebibytes(mebibytes)

# %% [markdown]
# ## What you have now
#
# You know where time and memory go, and you have seen which of the obvious explanations a
# measurement confirms. In these tables the published designs were only numbers.
#
# > **In short.** Time goes to products, which FLOPs count, and to what they do not count: a softmax
# > over $b \cdot h \cdot n \cdot m$ weights, copies, and new pages of memory. Memory is linear in n
# > without weights and quadratic with them.
# >
# > ```python
# > output, _ = attention(x, x, x, need_weights=False)  # through the fused kernel
# > ```
# >
# > Ask for weights only to look at them. To compare two versions, first assert that they compute
# > the same, let them take turns, take ratios within a turn, and say "even" when the quartiles lie
# > on both sides of one. A ratio holds for the sizes, the machine and the allocator it was measured
# > with.
#
# Before the book reads the published designs, [the next chapter](14_masks_in_the_wild.ipynb) sorts
# out how each of them reads a mask.
