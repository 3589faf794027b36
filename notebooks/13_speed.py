# %% [markdown]
# # Speed
#
# *How fast is the final class on a CPU, and what makes a call slow?*
#
# The final class of this book should be hardly slower than PyTorch's own class. In this chapter you
# see where it meets this goal, what attention weights and masks cost, and how to measure such
# things yourself.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map(
    "project in", "split", "score", "mask", "softmax", "mix", "merge", "project out"
)

# %% [markdown]
# All eight steps take time, so all are lit. The measurements are stored in
# `src/annotated_attention/data/benchmarks.json`. `make bench` takes about 25 minutes to write that
# file, and the numbers on your machine will differ. Three sizes recur: many short sequences, some
# of medium length, and a single long one.

# %%
from annotated_attention import measured
from annotated_attention.measured import find  # gives you the cases of a section

RESULTS = measured.load()
RUN = RESULTS["provenance"]
SIZES = [tuple(row["size"]) for row in find("versions", mode="forward")]
print("{cpu}, {threads} threads, torch {torch}".format(**RUN))
for b, n, e, h in SIZES:
    print(f"b = {b}, n = {n:4}, e = {e}, h = {h}")

# %% [markdown]
# ## How fast the final class is
#
# The final class races against two other contenders. One is PyTorch's class. The other is the
# **bare minimum**: matrix products for the projections and PyTorch's fused kernel between them,
# without checks, options or weights.
#
# Each round of the race times every contender. The time of the final class is then divided by the
# time of each of the others. What counts is the median of these ratios: 0.90 means a tenth less
# time.
#
# Memory costs time, too, so every case was measured twice. The first time, freed memory was kept
# for the next call; the second time, it was returned to the system, and new memory has to be
# prepared first. The table shows the larger of the two medians.
#
# - Each line stands for a length n and a mask. "Floats" and "boolean" are masks of shape (n, m).
# - "Both" means a forward and a backward pass, and "infer." means evaluation without gradients.
# - In the "× PyTorch" columns, a star marks a case where the final class is slower: the ratio was
#   above one in about three out of four rounds, or more.

# %% jupyter={"source_hidden": true}
import itertools

MODES = ("forward", "forward + backward")
MASKS = ("none", "causal", "padding", "floats", "boolean")
KINDS = ((True, "PyTorch"), (False, "PyTorch"), (False, "bare minimum"))


def stamp(run: dict) -> str:
    """Write the date and the commit of a run, and the load of the machine."""
    commit = run["commit"][:7] + "+" * run["commit"].endswith("+")
    return f"{run['date'][:16]}, commit {commit}, load {run['load'][0]:.2f}"


def source(section: str) -> str:
    """Write where a section's numbers come from, and how many rounds were run."""
    run = RUN.get("renewed", {}).get(section, RUN)
    machine = "" if run["cpu"] == RUN["cpu"] else f"another machine ({run['cpu']}), "
    rounds = [row["rounds"] for row in find(section)]
    counts = " to ".join(map(str, sorted({min(rounds), max(rounds)} if rounds else ())))
    return f"[{machine}{stamp(run)}{f', {counts} rounds' if rounds else ''}]"


def origin(section: str) -> None:
    """Print where the numbers of a section come from."""
    print(source(section))


# %% jupyter={"source_hidden": true}
def worse(rows: list[dict], base: str) -> str:
    """Write the larger ratio of the rows; mark it if it is slower than PyTorch's class."""
    row = max(rows, key=lambda row: row["ratios"][base]["final class"][1])
    low, middle, _ = row["ratios"][base]["final class"]
    return f"{middle:.2f}{'*' if base == 'PyTorch' and low > 1 else ''}"


def race(section: str, masks: tuple[str, ...]) -> None:
    """Print the ratios of a section: a line for each length and mask."""
    heads = ("with weights, × PyTorch", "without, × PyTorch", "without, × minimum")
    print(f"{'':14}" + "".join(f"{head:27}" for head in heads))
    print(f"{'':14}" + f"{'forward':9}{'both':9}{'infer.':9}" * 3)
    for (_, n, _, _), mask in itertools.product(SIZES, masks):
        print(f"{n:4} {mask.split(',')[0]:9}", end="")
        rows = [row for row in find(section, mask=mask) if row["size"][1] == n]
        for (weights, base), mode in itertools.product(KINDS, (*MODES, "inference")):
            same = [row for row in rows if (row["weights"], row["mode"]) == (weights, mode)]
            print(f"{worse(same, base):9}", end="")
        print()
    origin(section)


# %% jupyter={"source_hidden": true}
race("final class", MASKS)
if again := RUN.get("measured again"):
    assert "the first nine cases of the final class" in again["what"]
    print("[nine cases at n = 128, without weights, had been disturbed by another process;")
    print(f" they were measured again {stamp(again)}]")

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
cases, unweighted = find("final class"), find("final class", weights=False)
assert max(row["ratios"]["PyTorch"]["final class"][1] for row in unweighted) < 1
order = [row["memory"] for row in cases if row["mode"] == "forward"]
assert order == sorted(order)  # kept, then returned, as the figure below unpacks them

# %% [markdown]
# The brackets give the date, the commit, the load and the number of rounds of a run. A plus after
# the commit means that files had changed since. The load says how busy the machine was just before
# the run.
#
# Without weights, no ratio to PyTorch's class is above one in this table, and the final class takes
# at most 1.06 times as long as the bare minimum. With weights it takes at most 1.04 times as long
# as PyTorch's class in the "forward" and "both" columns. (A mask of its own for every head, in [a
# fold](#going-deeper-a-mask-for-every-head-against-pytorchs-class), costs more: up to 1.01 without
# weights, and 1.09 with them.)
#
# The largest differences are in the "infer." columns. There PyTorch's class calls a C++ routine of
# its own, its **fast path**, unless the mask holds floats. The fast path is quicker than the final
# class only with weights and without a mask. A mask slows the fast path down.

# %% [markdown]
# <!-- deeper: The cases that miss the goal -->
# ### Going deeper: The cases that miss the goal
#
# The goal is that the final class takes at most 1.05<!-- setting --> times as long as PyTorch's
# class. For a boolean mask with weights at n = 2048, the limit is 1.07<!-- setting --> times,
# because only the final class searches such a mask for fully masked rows.

# %%
races = {"the table": cases, "a mask for every head": find("boolean, every head")}
for name, rows in races.items():
    missed = [row for row in rows if measured.misses_goal(row)]
    print(f"{name}: {len(missed)} of {len(rows)} cases miss the goal")
    for row in missed:
        print("   ", measured.describe(row))
        assert row["weights"]
        assert rows is not cases or (row["mode"], row["mask"]) == ("inference", "none")

# %% [markdown]
# The second race, under a mask of its own for every head, is in [another
# fold](#going-deeper-a-mask-for-every-head-against-pytorchs-class). A case near the limit may land
# on the other side of it in the next run.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## What costs time and memory
#
# A **profile** of a call adds up the time that each of PyTorch's operations took. Here are the
# largest shares of a forward pass at n = 512, each from the quickest of five runs. `mm` and `addmm`
# are the matrix products of the projections, `bmm` those of the heads, and `copy_` copies numbers.
# Only the line "final class, weights" asks for weights, and only the last line was measured in
# evaluation.


# %% jupyter={"source_hidden": true}
def spent(row: dict, name: str, title: str = "") -> None:
    """Print what a contender spent its time on."""
    kernel = "_scaled_dot_product_flash_attention_for_cpu"
    parts = [
        f"{operation.replace(kernel, 'fused kernel')} {share:.0%}"
        for operation, share in row["profile"][name][:4] if share > 0.005
    ]
    print(f"{title or name:26}", ", ".join(parts))


(middle,) = find("versions", mode="forward", size=list(SIZES[1]))
(inference,) = find("fast path", size=list(SIZES[1]))
for name in ("bare minimum", "07 final class", "PyTorch", "07 final class, weights"):
    spent(middle, name, name.removeprefix("07 "))
spent(inference, "fast path", "PyTorch, fast path")
print(source("versions").rpartition(", ")[0] + "]")

# %% jupyter={"source_hidden": true}
parts = {name: dict(found) for name, found in middle["profile"].items()}
fused = {name for name, found in parts.items() if "_softmax" not in found}
assert fused == {"bare minimum", "PyTorch", "07 final class"}
assert parts["PyTorch"]["copy_"] > 0.03
assert "copy_" not in parts["07 final class"]
assert "_softmax" in dict(inference["profile"]["fast path"])
for size, memory, weights in itertools.product(SIZES, ("kept", "returned"), (True, False)):
    same = {"size": list(size), "memory": memory, "weights": weights, "mode": "inference"}
    low, middle, up = find("final class", mask="none", **same)[0]["milliseconds"]["PyTorch"]
    for mask in ("causal", "padding", "boolean"):
        (row,) = find("final class", mask=mask, **same)
        assert row["milliseconds"]["PyTorch"][0] > up

# %% [markdown]
# The final class spends its time on the same two parts as the bare minimum. PyTorch's class also
# copies queries, keys and values. With weights, the products of the heads and the softmax take the
# place of the fused kernel.
#
# The last line has `bmm` and `_softmax`, too: the fast path computes all weights even when nobody
# asks for them. To see the cost, divide its time by the time with the fast path switched off.
# (Freed memory was left to the system's default here, so these ratios cannot be compared with those
# of the first table.)

# %%
for row in find("fast path"):
    ratio = row["ratios"]["fast path off"]["fast path"][1]
    print(f"n = {row['size'][1]:4}: {ratio:.2f} times as long with the fast path")
origin("fast path")

# %% [markdown]
# > **Pitfall.** The fast path is not always fast: it saves time at n = 128 and loses it at n = 2048.
# > For long sequences, switch it off with `torch.backends.mha.set_fastpath_enabled(False)`.
#
# ### The price of the weights
#
# The fused kernel never stores the weights. It takes a block of keys at a time and keeps a running
# sum [[Dao et al.](../docs/references.md#dao-2022)]. With `need_weights=True`, the default here as
# in PyTorch, the kernel cannot be used, and h · n² weights are stored for each sequence.
#
# New memory costs time: the system hands it out in **pages** of 4 KiB and first fills each page
# with zeros. A repeated call needs new pages only where freed memory is returned. The price of new
# pages is therefore the time with memory returned, minus the time with memory kept.
#
# Each bar below is a forward pass of the final class at n = 2048; only the lowest asks for
# weights. The blue part is the time with memory kept. The orange part is the extra time with memory
# returned. Both times are printed beside the bar. With memory returned, the weights make the call
# take far longer: compare the lowest bar with the top one. Does the price of new pages make up more
# or less than half of the difference?
#
# <details><summary>What do you expect?</summary>
#
# More. Scores and weights take 128 MiB each, far more than all other tensors. The products of the
# heads are computed either way, inside the kernel or outside it.
#
# </details>

# %% jupyter={"source_hidden": true}
names = ("weights", "is_causal", "no weights")
drawing, (ax,) = display.panels(340, 210)
alt = "Milliseconds of a forward pass at n = 2048, with memory kept and returned."
found, widths = {"mode": "forward", "size": list(SIZES[2])}, []
for y, (name, mask) in enumerate(zip(names, ("none", "causal", "none"))):
    rows = find("final class", mask=mask, weights=name == "weights", **found)
    kept, returned = (row["milliseconds"]["final class"][1] for row in rows)
    widths += [up - low for low, _, up in (r["milliseconds"]["final class"] for r in rows)]
    ax.barh(y, kept, 0.6, color=display.COLOURS["n"], label="kept")
    ax.barh(y, returned - kept, 0.6, kept, color=display.COLOURS["h"], label="returned")
    ax.text(returned, y, f"\u2002{kept:.1f}, {returned:.1f}", va="center", fontsize=12)
    alt += f" {name.capitalize()}: {kept:.1f}, {returned:.1f}, {returned - kept:.0f} more."
ax.set(xlabel="milliseconds at n = 2048", xlim=(0, 260), yticks=range(3), yticklabels=names)
ax.tick_params(labelsize=12)
handles, labels = (part[:2] for part in ax.get_legend_handles_labels())
ax.legend(handles, labels, loc="upper right", fontsize=12, title="memory", frameon=False)
caption = f"{source('final class')}, half of the rounds within {max(widths):.1f} ms"
display.finish(drawing, name="price-of-weights", alt=alt, caption=caption)

# %% [markdown]
# With memory kept, the weights raise the time by 35 ms, from 53.3 to 88.0 ms. With
# memory returned, they raise it by 96 ms, from 64.6 to 161.0 ms. New pages cost 73 ms with weights,
# from 88.0 to 161.0, and 11 ms without them, from 53.3 to 64.6. So 62 of the 96 ms are the price of
# new pages. Chance cannot explain either increase: in each case half of the rounds lie within 2.3
# ms of each other.
#
# Now for the memory itself. The table shows the peak of a forward and a backward pass for b = 1,
# e = 512 and h = 8, measured once in a new process.

# %%
print("MiB at n =             2048    4096")
for row in RESULTS["memory"]:
    name, peaks = row["name"], dict(zip(row["lengths"], row["bytes"]))
    if name.startswith("final class") and "dropout" not in name:
        print(f"{name:20}{peaks[2048] / 2**20:7.0f} {peaks[4096] / 2**20:7.0f}")
origin("memory")

# %% jupyter={"source_hidden": true}
for row in RESULTS["memory"]:
    if row["name"].startswith("final class") and "dropout" not in row["name"]:
        peaks = dict(zip(row["lengths"], row["bytes"]))
        growth = peaks[4096] / peaks[2048]
        linear = "weights" not in row["name"]
        assert growth < 2.1 if linear else growth > 3.7
        assert not linear or peaks[16384] < 4.1 * peaks[4096]
print("checked up to n = 16384: without weights, memory grows no faster than n")
for size in SIZES:
    price = {}
    for memory in ("kept", "returned"):
        same = {"size": list(size), "mode": "forward", "memory": memory, "mask": "none"}
        times = {
            row["weights"]: row["milliseconds"]["final class"][1]
            for row in find("final class", **same)
        }
        price[memory] = times[True] - times[False]
    assert price["returned"] > 2 * price["kept"] > 0

# %% [markdown]
# Without weights, twice the length takes at most about twice the memory, even under a causal or a
# padding mask. With weights it takes nearly four times the memory. At n = 4096 the weights, their
# gradients and the gradients of the scores take 512 MiB each, together 1,536 of the 1,591 MiB.
#
# ### The price of a mask
#
# The table below divides the time of the final class under a mask by its time without one, at the
# middle size. Where the ratio cannot be told apart from one, the table says "even". "Every head" is
# a boolean mask of shape (b · h, n, m). Which mask costs most?
#
# <details><summary>What do you expect?</summary>
#
# The mask for every head. It is as large as the scores, and all the others are much smaller.
#
# </details>


# %% jupyter={"source_hidden": true}
def shown(ratio: list[float]) -> str:
    """Write a ratio, given as its quartiles, or say that it cannot be told from one."""
    low, middle, up = ratio
    return "even" if low <= 1 <= up else f"{middle:.2f}"


rows = [row for weights in (False, True) for row in find("masks", weights=weights)]
print(f"{'':24}{'without weights':>20}{'with weights':>20}")
print(f"{'':24}" + f"{'forward':>12}{'both':>8}" * 2)
for name in rows[0]["ratios"]["no mask"]:
    columns = [shown(row["ratios"]["no mask"][name]) for row in rows]
    print(f"{name:24}{columns[0]:>12}{columns[1]:>8}{columns[2]:>12}{columns[3]:>8}")
spent(rows[0], "attn_mask, every head", "profile of every head")
origin("masks")

# %% jupyter={"source_hidden": true}
for row in rows:
    ratios = {name: ratio[1] for name, ratio in row["ratios"]["no mask"].items()}
    assert max(ratios, key=ratios.get) == "attn_mask, every head"
    assert all(ratio < 1.1 for name, ratio in ratios.items() if "every" not in name)
alike = {"mode": "forward", "weights": False, "memory": "kept", "size": list(SIZES[2])}
before, after = (find("final class", mask=mask, **alike)[0] for mask in ("none", "causal"))
assert after["milliseconds"]["final class"][2] < before["milliseconds"]["final class"][0]

# %% [markdown]
# The mask for every head makes the forward pass without weights 1.54 times as long. Its profile
# shows a part of the cause: `masked_fill_` and `fill_` write the booleans out as floats for the
# fused kernel. The other masks cost at most 7 percent.
#
# Only `is_causal` can save time: with it, the kernel skips blocks of keys that lie in the future.
# The figure above shows this at n = 2048.

# %% [markdown]
# <!-- deeper: A mask for every head, against PyTorch's class -->
# ### Going deeper: A mask for every head, against PyTorch's class
#
# The table at the top of this chapter leaves out the mask of shape (b · h, n, m), which few models
# need. Here is the same race under a boolean mask of this shape.

# %%
race("boolean, every head", ("boolean, every head",))
rows = find("boolean, every head", mode="inference")
assert max(row["ratios"]["PyTorch"]["final class"][1] for row in rows) < 1

# %% [markdown]
# Without weights, the final class takes at most 1.01 times as long as PyTorch's class. With weights,
# it takes up to 1.09 times as long, at n = 2048. In inference it is faster in every row.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## How to measure
#
# A measured time says as much about the machine as about the code. So hold a race of many laps,
# with all runners on the same track:
#
# - Give all contenders the same input and the same parameters. Before the clock starts, assert that
#   their outputs and gradients are equal.
# - Run them in rounds, so that a busy minute on the machine affects all of them.
# - Divide the times within each round, and report the median of these ratios.
# - Report the **quartiles**, too: a quarter of the rounds lie below the lower quartile, and a
#   quarter above the upper. Where the two lie on either side of one, call the ratio "even".
# - Say what happens to freed memory. For a call with weights at n = 2048, this makes the difference
#   between 88.0 and 161.0 ms.
#
# Among hundreds of ratios, some differ from one by chance, and a star does not exclude that. So
# ignore differences of a few percent.

# %% [markdown]
# <!-- deeper: Keeping freed memory -->
# ### Going deeper: Keeping freed memory
#
# Freed memory goes back to an **allocator**, here that of glibc, the C library of most Linux
# systems. By default it returns every block of 32 MiB or more to the system, and may keep smaller
# ones [[mallopt](../docs/references.md#mallopt)]. The profiles and the table of masks were measured
# with this default.
#
# > **Pitfall.** By default, you pay for every large block with new pages. To keep freed memory, set
# > two variables before Python starts; the second must be larger than your peak memory.
# >
# > ```bash
# > MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=1099511627776 python train.py
# > ```

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# <!-- deeper: All versions of the book -->
# ### Going deeper: All versions of the book
#
# The number before a name is its chapter; the "published" designs are those of [Published
# code](16_published_code.ipynb). Each time is given as a multiple of the bare minimum's time. Only
# the rows "PyTorch" and "07 final class" use the fused kernel; all others store the weights.

# %%
rows = [row for mode in MODES for row in find("versions", mode=mode)]
print(f"{'n =':27}{'forward':>16}{'forward + backward':>26}")
print(f"{'':27}" + "".join(f"{row['size'][1]:>8}" for row in rows))
for name in rows[0]["ratios"]["bare minimum"]:
    columns = [shown(row["ratios"]["bare minimum"][name]) for row in rows]
    print(f"{name:27}" + "".join(f"{column:>8}" for column in columns))
origin("versions")

# %% [markdown]
# At n = 128 several versions that store the weights are about as fast as PyTorch's class without
# them. At n = 2048 the forward pass of each of these versions takes at least twice as long as the
# bare minimum.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# <!-- deeper: A list of heads, or all heads at once? -->
# ### Going deeper: A list of heads, or all heads at once?
#
# The class of [Two heads](02_two_heads.ipynb) computes one head after another, in a list. The class
# of [The reshape trick](04_reshape_trick.ipynb) computes all heads in one product. The table
# compares the two, with freed memory kept and with freed memory returned.

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
# The list takes more time in every row. Where memory is returned, it also takes more pages.
#
# In the table of all versions, however, the list wins at n = 2048. With the backward pass it takes
# 1.56 times the bare minimum's time, and the reshape trick 1.83 times. For that table the allocator
# was left at its default. The scores of all eight heads form one block of 128 MiB, which the
# allocator then returns. The scores of a single head take 16 MiB, which it may keep. Cheaper memory
# may therefore be why the list wins there, but no measurement here separates that from other
# causes.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Exercises
#
# ### The column that is missing
#
# *Easy, 2 minutes.* How much memory does the final class take at n = 8192, forward and backward,
# without weights and with them? Work it out from the table, in MiB. A quarter off is close enough.

# %% tags=["exercise"]
mebibytes = (None, None)  # without weights, with weights

# %%
from annotated_attention import exercises

exercises.speed.check_mebibytes(mebibytes)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# By what factor does each line grow from n = 2048 to n = 4096? The next factor is about the same.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A sequence of twice the length has twice as many tokens, but four times as many weights.
#
# </details>

# %% tags=["solution"] jupyter={"source_hidden": true}
mebibytes = (2 * 90, 4 * 1591)

exercises.speed.check_mebibytes(mebibytes)

# %% [markdown]
# ## What you have now
#
# > **In short.** In the first table, the final class without weights is never slower than PyTorch's
# > class, and it is close to the bare minimum. With weights it takes at most a few percent longer
# > than PyTorch's class, except in inference without a mask. The memory for the weights grows with
# > $b \cdot h \cdot n \cdot m$; without them, memory grows no faster than $n$. Where freed memory
# > is returned to the system, new pages account for most of what the weights cost.
# >
# > ```python
# > output, _ = attention(x, x, x, need_weights=False)  # through the fused kernel
# > ```
# >
# > To compare two versions, first assert that they give the same results. Then take ratios within
# > rounds, and say "even" when the quartiles lie on either side of one.
#
# Before the book turns to the published designs, [the next chapter](14_masks_in_the_wild.ipynb)
# sorts out how each of them reads a mask.
