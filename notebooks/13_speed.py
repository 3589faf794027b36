# %% [markdown]
# # Speed
#
# *How fast is the final class, and what makes a call slow?*
#
# The final class of this book should take hardly more time than PyTorch's own class. In this chapter
# you see where it reaches this goal, what attention weights and masks cost, and how to measure such
# things yourself.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map(
    "project in", "split", "score", "mask", "softmax", "mix", "merge", "project out"
)

# %% [markdown]
# All eight steps take time, so all are lit.
#
# The tables show a part of `src/annotated_attention/data/benchmarks.json`. `make bench` writes that
# file in about 25 minutes; on your machine its numbers will differ. Three sizes recur: many short
# sequences, some of middle length, and a single long one.

# %%
from annotated_attention import measure
from annotated_attention.measure import find  # gives you the cases of a section

RESULTS = measure.load()
RUN = RESULTS["provenance"]
MODES = ("forward", "forward + backward")
SIZES = [tuple(row["size"]) for row in find("versions", mode="forward")]
print("{cpu}, {threads} threads, torch {torch}".format(**RUN))
for b, n, e, h in SIZES:
    print(f"b = {b}, n = {n:4}, e = {e}, h = {h}")

# %% [markdown]
# ## How fast the final class is
#
# The final class runs beside PyTorch's class and beside the **bare minimum**: matrix products for
# the projections and PyTorch's fused kernel between them, without checks or options.
#
# They run in rounds. In each round all of them are timed, and the time of the final class is
# divided by that of PyTorch's class or of the bare minimum. The median of these ratios is kept, so
# 0.90 means a tenth less time. Every case was measured in two processes, one that keeps freed
# memory and one that returns it to the system. The table shows the larger of the two medians.
#
# - "Both" is a forward and a backward pass, and "infer." is evaluation without gradients. "Floats"
#   and "boolean" are masks of the shape (n, m).
# - Each ratio has its median and its quartiles: a quarter of the rounds lies below the lower one. A star
#   marks a case whose lower quartile is above one.
# - An exclamation mark marks a missed goal. The goal is at most 1.05<!-- setting --> times PyTorch's
#   time, and 1.07<!-- setting --> times for a boolean mask with weights at n = 2048, which only this
#   class searches for fully masked rows.
#
# Brackets name the date, the commit, the load and the rounds. A load near 2 means that other work
# kept both threads of the machine busy just before the run, so trust the ratios, which were taken
# within a round, more than the milliseconds. Where another process had run beside a few cases, these
# were measured again later, and a second bracket names that run.


# %%
def source(section: str) -> str:
    """Write a section's date and commit, the load of the machine, and the rounds."""
    run = RUN.get("renewed", {}).get(section, RUN)
    rounds = [row["rounds"] for row in find(section)]
    counts = " to ".join(map(str, sorted({min(rounds), max(rounds)} if rounds else ())))
    ending = f", {counts} rounds" if rounds else ""
    commit, load = run["commit"][:7], run["load"][0]
    return f"[{run['date'][:16]}, commit {commit}, load {load:.2f}{ending}]"


def origin(section: str) -> None:
    """Print where the numbers of a section come from."""
    print(source(section))


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
if again := RUN.get("measured again"):
    print(f"[{again['what'].partition(' and ')[2]}:")
    print(f" measured again {again['date'][:16]}, load {again['load'][0]:.2f}]")

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

# %% [markdown]
# Without weights, the final class is never slower than PyTorch's, and it takes at most 1.06 times as
# long as the bare minimum. With weights and gradients, the larger median is at most 1.04 times
# PyTorch's.
#
# The largest differences stand under "infer.". There PyTorch's class takes a C++ routine of its own,
# its **fast path**, unless the mask holds floats. Only with weights and without a mask is the fast
# path quicker than the final class. Here are all cases that miss the goal:

# %%
missed = [row for row in cases if measure.misses_goal(row)]
print(f"{len(missed)} of {len(cases)} cases miss the goal")
for row in missed:
    print(measure.describe(row))
    assert (row["mode"], row["mask"], row["weights"]) == ("inference", "none", True)

# %% [markdown]
# A case near the limit may fall on the other side in the next run.
#
# ## What costs time and memory
#
# A **profile** runs a call and adds up what each of PyTorch's operations took. Here is the quickest
# of five runs at n = 512, forward, with the largest shares of its time. `mm` and `addmm` are the
# matrix products of the projections, `bmm` those of the heads, and `copy_` copies numbers. Only the
# line "weights" asks for weights. The last lines divide the time of PyTorch's class in evaluation,
# with its fast path, by its time without.


# %%
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
for row in find("fast path"):
    ratio = row["ratios"]["fast path off"]["fast path"][1]
    print(f"n = {row['size'][1]:4}: {ratio:.2f} times as long with the fast path")
origin("fast path")

# %% jupyter={"source_hidden": true}
parts = {name: dict(found) for name, found in middle["profile"].items()}
fused = {name for name, found in parts.items() if "_softmax" not in found}
assert fused == {"bare minimum", "PyTorch", "07 final class"}
assert parts["PyTorch"]["copy_"] > 0.03
assert "copy_" not in parts["07 final class"]
assert "_softmax" in dict(inference["profile"]["fast path"])

# %% [markdown]
# The final class spends its time on the same two parts as the bare minimum. PyTorch's class also
# copies queries, keys and values. With weights, the products of the heads and the softmax take the
# place of the fused kernel. They do so in the fast path, too: it computes all weights even when
# nobody asks for them.
#
# > **Pitfall.** The fast path is not always fast: it saves time at n = 128 and loses it at n = 2048.
# > For long texts, switch it off with `torch.backends.mha.set_fastpath_enabled(False)`.
#
# ### The price of the weights
#
# The fused kernel never stores the weights. It takes a block of keys at a time and keeps a running
# sum [[Dao et al.](../docs/references.md#dao-2022)]. With `need_weights=True`, the default here as
# in PyTorch, the kernel cannot be used, and h · n² weights are stored for each sequence.
#
# New memory costs time: the system hands it out in **pages** of 4 KiB, each filled with zeros
# first. The two processes separate this price from the rest: only where freed memory is returned
# does a call take new pages.
#
# Each bar below is a forward pass of the final class at n = 2048; only the lowest asks for weights.
# The blue part is the time with memory kept, the orange part is added with memory returned, and both
# times stand beside the bar. Compare the lowest bar with the uppermost, with memory returned. Is
# more or less than half of the difference the price of pages?
#
# <details><summary>What do you expect?</summary>
#
# More. Scores and weights take 128 MiB each, far more than all other tensors. The products of the
# heads are computed in any case, inside the kernel or outside.
#
# </details>

# %% jupyter={"source_hidden": true}
names = ("weights", "is_causal", "no weights")
drawing, (ax,) = display.panels(340, 210)
alt = "Milliseconds of a forward pass at n = 2048, with memory kept and returned."
found = {"mode": "forward", "size": list(SIZES[2])}
for y, (name, mask) in enumerate(zip(names, ("none", "causal", "none"))):
    rows = find("final class", mask=mask, weights=name == "weights", **found)
    assert [row["memory"] for row in rows] == ["kept", "returned"]
    kept, returned = (row["milliseconds"]["final class"][1] for row in rows)
    ax.barh(y, kept, 0.6, color=display.COLOURS["n"], label="kept")
    ax.barh(y, returned - kept, 0.6, kept, color=display.COLOURS["h"], label="returned")
    ax.text(returned, y, f"\u2002{kept:.1f}, {returned:.1f}", va="center", fontsize=12)
    alt += f" {name.capitalize()}: {kept:.1f} and {returned:.1f}."
ax.set(xlabel="milliseconds at n = 2048", xlim=(0, 260), yticks=range(3), yticklabels=names)
ax.tick_params(labelsize=12)
handles, labels = (part[:2] for part in ax.get_legend_handles_labels())
ax.legend(handles, labels, loc="upper right", fontsize=12, title="memory", frameon=False)
display.finish(drawing, name="price-of-weights", alt=alt, caption=source("final class"))

# %% [markdown]
# The weights raise the time from 53.3 to 88.0 ms with memory kept, and from 64.6 to 161.0 ms with
# memory returned. The first rise is 35 ms, the second 96 ms. So more than half of the second is the
# price of pages.
#
# Now the memory itself: the peak during a forward and a backward pass, in MiB, for b = 1, e = 512
# and h = 8, measured once in a new process. At n = 1024 it was measured three times; where the
# three differ, you see the smallest and the largest. A dash stands where the run would have needed
# more than half of the free memory. The length n = 8192 is left for you to predict in the
# exercises.


# %%
def mebibytes_at(n: int, row: dict) -> str:
    """Write a peak in MiB, or the smallest and the largest of three."""
    sizes = dict(zip(row["lengths"], row["bytes"]))
    found = sorted(row["again"]) if n == 1024 else [sizes[n]]
    if None in found:
        return "-"
    return " to ".join(dict.fromkeys(f"{x / 2**20:.0f}" for x in (found[0], found[-1])))


CALLED = ["final class", *(f"final class, {x}" for x in ("causal", "padding", "weights"))]
ours = [row for row in RESULTS["memory"] if row["name"] in CALLED]
lengths = (1024, 2048, 4096, 16384)
print(f"{'MiB at n =':20}" + "".join(f"{n:>12}" for n in lengths))
for row in ours:
    print(f"{row['name']:20}" + "".join(f"{mebibytes_at(n, row):>12}" for n in lengths))
origin("memory")

# %% jupyter={"source_hidden": true}
for row in ours:
    sizes = dict(zip(row["lengths"], row["bytes"]))
    growth = sizes[4096] / sizes[2048]
    linear = "weights" not in row["name"]
    assert growth < 2.1 if linear else growth > 3.7
    assert not linear or sizes[16384] < 4.1 * sizes[4096]
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
# From n = 2048 on, the memory without weights grows no faster than n, also under a causal or a
# padding mask. With weights, twice the length takes nearly four times the memory. At n = 4096 the
# weights are 512 MiB, and in the backward pass the gradients of the weights and of the scores are
# as large. Together they are 1,536 of the 1,591 MiB.
#
# ### The price of a mask
#
# The table below divides the time of the final class under a mask by its time without one, at the
# middle size. Where the ratio cannot be told from one, it says "even". "Every head" is a boolean
# mask of the shape (b · h, n, m). Which mask costs most?
#
# <details><summary>What do you expect?</summary>
#
# The mask for every head. It is as large as the scores, and all the others are much smaller.
#
# </details>


# %%
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
# The mask for every head makes the forward pass without weights 1.54 times as long. In its profile,
# `masked_fill_` and `fill_` write the booleans out as floats, which the kernel adds to the scores.
# Together these are less than half of the rise; the kernel must also read the mask. The other masks
# cost at most 7 percent.
#
# `is_causal` alone can even save time, because the kernel skips blocks of keys that lie in the
# future. In the figure above it does so at n = 2048, with 39.5 instead of 53.3 ms.

# %% [markdown]
# ## How to measure
#
# A time says as much about the machine as about the code. So hold a race of many laps, with all
# runners on the same track:
#
# - Give all contenders the same input and the same parameters. Before the clock starts, assert that
#   their outputs and gradients are equal.
# - Let them run in rounds, so that a busy minute of the machine hits all of them.
# - Divide the times within each round, and report the median of these ratios.
# - Report the **quartiles**, too: a quarter of the rounds gave less than the lower one, a quarter more
#   than the upper one. Where they lie on both sides of one, call the ratio "even".
# - Say what happens to freed memory. At n = 2048 that alone decides between 88.0 and 161.0 ms.
#
# Among hundreds of ratios some look different from one by chance. So ignore a few percent, even
# where a star stands.
#
# Freed memory goes back to an **allocator**, here that of glibc, the C library of most Linux
# systems. By default it returns every block of 32 MiB or more to the system, and may keep smaller
# ones [[mallopt](../docs/references.md#mallopt)]. Tables that name no process were measured like
# this.
#
# > **Pitfall.** At the default, every large block is paid for in new pages. To keep freed memory,
# > set two variables before Python starts; the second must be larger than your peak.
# >
# > ```bash
# > MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=1099511627776 python train.py
# > ```

# %% [markdown]
# <!-- deeper: All versions of the book -->
# ### Going deeper: All versions of the book
#
# The number before a name is its chapter; the "published" designs are those of [Published
# code](15_published_code.ipynb). Each number is a multiple of the bare minimum's time. Only the rows
# "PyTorch" and "07 final class" use the fused kernel; all others store the weights.

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
# them. At n = 2048 the forward pass of each takes at least twice as long as the bare minimum.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# <!-- deeper: A list of heads, or all heads at once? -->
# ### Going deeper: A list of heads, or all heads at once?
#
# The class of [Two heads](02_two_heads.ipynb) computes one head after another, in a list. The class
# of [The reshape trick](04_reshape_trick.ipynb) computes all heads in one product. Here are both, in
# the two processes from above.

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
# The list needs more time in every row, and where memory is returned, also more pages.
#
# In the table of all versions, however, the list wins at n = 2048. With the backward pass it takes
# 1.56 times the bare minimum's time, and the reshape trick 1.83 times. There the allocator was left
# at its default, which neither process has. The scores of all eight heads are one block of 128 MiB,
# which the default returns. Those of a single head are 16 MiB, which it may keep. So cheaper memory
# may be why the list wins there, but no measurement here separates that from other causes.

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
# 2. left: einsum ("05 by name"), which divides the scores by √d; right: "05 four axes", which divides
#    the queries
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
# The folded table of all versions holds the second answer. For the fourth: how many weights do 64
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
# > **In short.** Without weights, the final class is never slower than PyTorch's and close to the
# > bare minimum. With weights it takes at most a few percent longer, except in inference without a
# > mask. The memory of the weights grows with $b \cdot h \cdot n \cdot m$; without them memory grows
# > no faster than $n$. Where freed memory is returned, its new pages are most of what weights cost.
# >
# > ```python
# > output, _ = attention(x, x, x, need_weights=False)  # through the fused kernel
# > ```
# >
# > To compare two versions, first assert that they compute the same. Let them run in rounds, take
# > ratios within a round, and say "even" when the quartiles lie on both sides of one. A ratio holds
# > for the sizes, the machine and the allocator it was measured with.
#
# Before the book reads the published designs, [the next chapter](14_masks_in_the_wild.ipynb) sorts
# out how each of them reads a mask.
