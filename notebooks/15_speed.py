# %% [markdown]
# # Speed
#
# *How fast is the final class on a CPU, and what makes a call slow?*
#
# *8 minutes and 2 of exercises. Afterwards you can say how fast the final class is, what slows a
# call down, and how to measure that.*
#
# Ask a cashier what you have to pay, and you get one number. Ask for a receipt as well, and the sum
# stays the same, but every line has to be printed, and new paper fetched.
#
# So it is with attention weights. Without them, PyTorch's **fused kernel** takes a block of keys at a
# time, keeps a running sum, and never writes the `(n, m)` weights to memory [[Dao et
# al.](../docs/references.md#dao-2022)]; you build one in [Tiles](23_tiles.ipynb). If you ask for the
# weights, that kernel cannot be used: all of them have to be written, into memory that the system often has to hand out first. This decides
# the speed more than anything else in this chapter.
#
# So ask for weights only when you want to look at them. Without them, the final class is not slower
# than PyTorch's own class in any case of the race below.

# %% tags=["hide-input"]
from annotated_book import display

display.chapter_map(
    "project in", "split", "score", "mask", "softmax", "mix", "merge", "project out"
)

# %% [markdown] name="the-price-of-the-weights"
# ## The price of the weights
#
# All times come from one machine with two threads on a CPU. Yours will differ, and `make bench`
# measures them there. On a GPU, a fused kernel saves the memory of the weights, too, but these times
# do not carry over. Three sizes recur: many short sequences, some of medium length, and a single
# long one.

# %% tags=["fold-input"]
from annotated_book import display, measured
from annotated_book.measured import find  # gives you the cases of a section

RESULTS = measured.load()
RUN = RESULTS["provenance"]
SIZES = [tuple(row["size"]) for row in find("versions", mode="forward")]
MIDDLE = 1  # of the lower quartile, the median and the upper quartile
print("{cpu}, {threads} threads, torch {torch}".format(**RUN))
for b, n, e, h in SIZES:
    print(f"b = {b}, n = {n:4}, e = {e}, h = {h}")

# %% [markdown]
# Here is one call of the final class in evaluation, without weights and with them. Look at the last
# column. The first says how much memory the weights fill.

# %% tags=["fold-input"]
table = {}
for size in SIZES:
    b, n, _, h = size
    same = {"size": list(size), "mask": "none", "mode": "inference", "memory": "returned"}
    rows = [find("final class", weights=weights, **same)[0] for weights in (False, True)]
    without, given = (row["milliseconds"]["final class"][MIDDLE] for row in rows)
    fill = f"{4 * b * h * n * n / 2**20:.0f} MiB"
    table[f"n = {n}"] = [fill, without, given, f"×{given / without:.1f}"]
columns = ["weights", "without, ms", "with, ms", ""]
display.show(table, columns=columns, decimals=1)

# %% [markdown]
# The matrix products are the same in both columns, yet with weights the call takes 1.6 to 2.1 times
# as long. For your own code this means: write `need_weights=False`, since this class and PyTorch's
# both return the weights by default.
#
# What takes so long? New memory has its price: the system hands it out in **pages** of 4 KiB (the
# paper for the receipt) and first fills each page with zeros. For this table, all freed memory went
# back to the system, so every call needed new pages. The same calls were measured again with freed memory kept
# for the next call, which then needs none. The difference is the price of new pages.
#
# The figure shows both at n = 2048: blue is the time with memory kept, and orange comes on top when
# it is returned. Compare the lowest bar, the only one with weights, with the top one. Do new pages
# make up more or less than half of the difference?
#
# <details><summary>What do you expect?</summary>
#
# More. Scores and weights fill more memory than all other tensors together. The products of the heads are
# computed either way, inside the kernel or outside it.
#
# </details>

# %% tags=["fold-input"]
found = {"mode": "inference", "size": list(SIZES[2])}
cases = [("weights", "none"), ("is_causal", "causal"), ("no weights", "none")]
times, spread = {}, 0.0
for name, mask in cases:
    rows = find("final class", mask=mask, weights=name == "weights", **found)
    quartiles = [row["milliseconds"]["final class"] for row in rows]
    times[name] = [each[MIDDLE] for each in quartiles]  # with memory kept, and returned
    spread = max(spread, *(up - low for low, _, up in quartiles))
more = [a - b for a, b in zip(times["weights"], times["no weights"])]
caption = (
    f"The weights take {more[0]:.1f} ms more with memory kept, {more[1]:.1f} ms with "
    f"memory returned; {more[1] - more[0]:.1f} ms of these are new pages. "
    f"Half of the rounds of each bar lie within {spread:.1f} ms."
)

# %% tags=["fold-input"]
drawing, (ax,) = display.panels(300, 210)
alt = "Milliseconds of a call in evaluation at n = 2048, with memory kept and returned."
for y, (name, (kept, returned)) in enumerate(times.items()):
    ax.barh(y, kept, 0.6, color=display.COLOURS["n"], label="kept")
    ax.barh(y, returned - kept, 0.6, kept, color=display.COLOURS["h"], label="returned")
    ax.text(returned, y, f"\u2002{kept:.1f}, {returned:.1f}", va="center", fontsize=12)
    alt += f" {name.capitalize()}: {kept:.1f}, {returned:.1f}, {returned - kept:.0f} more."
ax.set(xlabel="milliseconds at n = 2048", xlim=(0, 215), yticks=range(3), yticklabels=times)
ax.tick_params(labelsize=12)
handles, labels = (part[:2] for part in ax.get_legend_handles_labels())
ax.legend(handles, labels, loc="upper right", fontsize=12, title="memory", frameon=False)
display.finish(drawing, name="price-of-weights", alt=alt, caption=caption)

# %% [markdown]
# More: of the 64 ms that the weights take, 36 are for new pages. The rest is for writing the weights
# and reading them again, in several steps instead of one kernel.
#
# Is memory kept or returned on your machine? By default, glibc, the C library of most Linux
# systems, returns every block of 32 MiB or more and may keep smaller ones
# [[mallopt](../docs/references.md#mallopt)]. So by default, weights of 32 MiB or more, as in the last
# two rows of the table, cost you new pages in every call. To keep freed memory, set two variables before Python starts; the
# second must be larger than your peak memory:
#
# ```bash
# MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=1099511627776 python train.py
# ```
#
# How much memory is it, all in all? The table shows the peak of a forward and a backward pass for b =
# 1, e = 512 and h = 8, measured once in a new process.

# %%
lengths, table = [2048, 4096], {}
for row in RESULTS["memory"]:
    peaks = dict(zip(row["lengths"], row["bytes"]))
    table[row["name"]] = [peaks[n] / 2**20 for n in lengths]
table["3 · h · n² numbers"] = [3 * 4 * SIZES[2][3] * n**2 / 2**20 for n in lengths]
display.show(table, columns=lengths, decimals=0, corner="MiB at n =")

# %% tags=["proof"]
for name, (short, long) in table.items():
    assert long / short > 3.7 if "weights" in name or "·" in name else long / short < 2.1
print("✓ Twice the tokens: with weights nearly four times the memory, without them twice.")

# %% [markdown]
# Without weights, twice the length takes at most about twice the memory, even under a causal mask.
# (Differences of a few MiB are chance.) With weights it takes nearly four times the memory, and nearly all of it is the last
# line of the table: the weights, their gradients and the gradients of the scores. Here the comparison
# with a receipt ends: twice the tokens make four times the lines.

# %% [markdown] name="the-price-of-a-mask"
# ## The price of a mask
#
# How long does a call with a mask take, as a multiple of the same call without one? Here are the
# slowest cases at n = 512, without weights. "Every head" is a boolean mask of shape (b · h, n, m),
# as large as the scores; all others are much smaller.

# %% tags=["fold-input"]
most = {}
for kind, every in (("every head", True), ("all other masks", False)):
    longest = max(
        ratio[MIDDLE]
        for row in find("masks", weights=False)
        for name, ratio in row["ratios"]["no mask"].items()
        if name.endswith("every head") == every
    )
    most[kind] = [longest]
display.show(most, columns=["at most, times as long"])

# %% [markdown]
# The reason is mostly memory again. The class writes a boolean mask for every head out as floats, as
# many as there are scores, and the kernel reads all of them. The other masks cost little.
#
# One mask can even save time: with `is_causal`, the kernel skips blocks of keys that lie in the
# future, as the figure above shows at n = 2048.

# %% [markdown]
# <!-- deeper: All masks -->
# ### Going deeper: All masks
#
# The same ratios mask by mask, at the middle size. Where a ratio cannot be told apart from one, the
# table says "even".


# %%
def shown(ratio: list[float]) -> str:
    """Write a ratio, given as its quartiles, or say that it cannot be told from one."""
    low, middle, up = ratio
    return "even" if low <= 1 <= up else f"{middle:.2f}"


def spent(row: dict, name: str, title: str = "") -> None:
    """Print what a contender spent its time on."""
    kernel = "_scaled_dot_product_flash_attention_for_cpu"
    parts = [
        f"{operation.replace(kernel, 'fused kernel')} {share:.0%}"
        for operation, share in row["profile"][name][:4]
        if share > 0.005
    ]
    print(f"{title or name:26}", ", ".join(parts))


# %%
rows = [row for weights in (False, True) for row in find("masks", weights=weights)]
for name in ("no mask", "attn_mask, every head"):
    spent(rows[0], name, f"profile, {name.split(', ')[-1]}")
names = rows[0]["ratios"]["no mask"]
table = {name: [shown(row["ratios"]["no mask"][name]) for row in rows] for name in names}
columns = ["forward", "both", "forward, with weights", "both, with weights"]
display.show(table, columns=columns)

# %% tags=["fold-input"]
alike = {"mode": "inference", "weights": False, "memory": "kept", "size": list(SIZES[2])}
before, after = (find("final class", mask=mask, **alike)[0] for mask in ("none", "causal"))
assert after["milliseconds"]["final class"][2] < before["milliseconds"]["final class"][0]

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## How to measure
#
# A measured time says as much about the machine as about the code. So hold a race of many laps, with
# all runners on the same track:
#
# - Give all contenders the same input and the same parameters. Before the clock starts, assert that
#   their outputs and gradients are equal.
# - Run them in rounds, so that a busy minute on the machine affects all of them.
# - Divide the times within each round, and report the median of these ratios: 0.90<!-- invented -->
#   means a tenth less time.
# - Report the **quartiles**, too: a quarter of the rounds lie below the lower quartile, and a
#   quarter above the upper. If one quartile is below 1 and the other above, call it "even".
# - Say what happens to freed memory, or measure both ways, as above.
#
# Among hundreds of ratios, some differ from one by chance. So ignore differences of a few percent.

# %% [markdown]
# ## How fast the final class is
#
# The final class races against PyTorch's: at three sizes, under four kinds of mask and none, with
# weights and without, with memory kept and returned. (A mask for every head raced apart.) Each line
# gives the *worst* median of its cases: below 1, the final class is not slower in any of them. The last
# line compares it with the **bare minimum**: matrix products for the projections and the fused
# kernel between them, without checks or options.

# %% tags=["fold-input"]
MODES = ("forward", "forward + backward", "inference")
MASKS = ("none", "causal", "padding", "floats", "boolean")


def worst(base: str, weights: bool, modes=MODES, masks=MASKS) -> float:
    """Give the largest median of the final class's time, as a multiple of another's."""
    rows = [
        row
        for row in find("final class", weights=weights)
        if row["mode"] in modes and row["mask"] in masks
    ]
    return max(row["ratios"][base]["final class"][MIDDLE] for row in rows)


CASES = {
    "PyTorch's time: without weights": worst("PyTorch", False),
    "PyTorch's time: with weights, in training": worst("PyTorch", True, MODES[:2]),
    "PyTorch's time: with weights, in evaluation": worst("PyTorch", True, MODES[2:]),
    "the minimum:    without weights": worst("bare minimum", False),
}
assert worst("PyTorch", False) < 1
table = {case: [ratio] for case, ratio in CASES.items()}
display.show(table, columns=["at most"], corner="the final class, × …")

# %% [markdown]
# Look at the first line: without weights, the final class is never slower in this race, so putting
# it in PyTorch's place costs you no time here. With weights, it takes a few percent longer at most in
# training. In evaluation, where PyTorch's class takes another routine, the final class takes up to
# 1.16 times as long without a mask, and less than PyTorch's with one.
#
# PyTorch's other routine is in C++ and for self-attention without gradients: its **fast path**; [Masks in the
# wild](16_masks_in_the_wild.ipynb#cell-id=what-a-fully-masked-row-gets) lists what it needs. This routine
# writes all weights even when nobody asks for them. You can guess what that does to a long sequence.
# It was on in the race, and here is what it does to PyTorch's own time without weights, where freed
# memory is returned as glibc does by default:

# %% tags=["fold-input"]
table = {}
for row in find("fast path"):
    low, ratio, up = row["ratios"]["fast path off"]["fast path"]
    table[f"n = {row['size'][1]}"] = [ratio, low, up]
display.show(table, columns=["times as long", "lower quartile", "upper quartile"])

# %% [markdown]
# > **Pitfall.** The fast path is not always fast: it saves time at n = 128 and loses it at n =
# > 2048. For long sequences, switch it off with `torch.backends.mha.set_fastpath_enabled(False)`.

# %% [markdown]
# <!-- deeper: Every case, and the slowest -->
# ### Going deeper: Every case, and the slowest
#
# Each line stands for a length n and a mask, and each entry is the larger of the medians with
# memory kept and returned. In the "× PyTorch" columns, a star marks a case where the final class is
# slower: the ratio was above one in about three out of four rounds, or more. Why a mask costs
# PyTorch's fast path so much was not measured. "Every head" is a
# boolean mask of shape (b · h, n, m), which few models need. It raced on another machine: the
# largest medians are 1.01 without weights, where no case is marked, and 1.09 with them.


# %% tags=["fold-input"]
import itertools


def worse(rows: list[dict], base: str) -> str:
    """Write the larger ratio of the rows; mark it if it is slower than PyTorch's class."""
    row = max(rows, key=lambda row: row["ratios"][base]["final class"][1])
    low, middle, _ = row["ratios"][base]["final class"]
    return f"{middle:.2f}{'*' if base == 'PyTorch' and low > 1 else ''}"


KINDS = ((True, "PyTorch"), (False, "PyTorch"), (False, "bare minimum"))


def race(section: str, masks: tuple[str, ...]) -> dict[str, list[str]]:
    """Give the ratios of a section: a row for each length and mask."""
    table = {}
    for (_, n, _, _), mask in itertools.product(SIZES, masks):
        rows = [row for row in find(section, mask=mask) if row["size"][1] == n]
        table[f"{n}, {mask}"] = [
            worse(
                [row for row in rows if (row["weights"], row["mode"]) == (weights, mode)],
                base,
            )
            for (weights, base), mode in itertools.product(KINDS, MODES)
        ]
    return table


# %%
table = race("final class", MASKS) | race("boolean, every head", ("boolean, every head",))
parts = ("with weights, × PyTorch: ", "without, × PyTorch: ", "without, × minimum: ")
modes = ("forward", "both", "inference")
columns = [part * (i == 0) + mode for part in parts for i, mode in enumerate(modes)]
display.show(table, columns=columns)

# %% [markdown]
# The goal is that the final class takes at most 1.05<!-- setting --> times as long as PyTorch's
# class. For a boolean mask (n, m) with weights at n = 2048, the limit is 1.07<!-- setting --> times,
# because only the final class searches such a mask for fully masked rows.

# %%
for name in ("final class", "boolean, every head"):
    rows = find(name)
    missed = [row for row in rows if measured.misses_goal(row)]
    print(f"{name}: {len(missed)} of {len(rows)} cases miss the goal")
    for row in missed:
        print("   ", measured.describe(row))
        assert row["weights"]

# %% [markdown]
# A case near the limit may land on the other side of it in the next run.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# <!-- deeper: Profiles -->
# ### Going deeper: Profiles
#
# A **profile** of a call adds up the time that each of PyTorch's operations took. Here are the
# largest shares of a forward pass at n = 512, each from the quickest of five runs. `mm` and `addmm`
# are the matrix products of the projections, `bmm` those of the heads, and `copy_` copies numbers.
# Only the line "final class, weights" asks for weights, and only the last line was measured in
# evaluation.


# %%
(middle,) = find("versions", mode="forward", size=list(SIZES[1]))
(inference,) = find("fast path", size=list(SIZES[1]))
for name in ("bare minimum", "07 final class", "PyTorch", "07 final class, weights"):
    spent(middle, name, name.removeprefix("07 "))
spent(inference, "fast path", "PyTorch, fast path")

# %% tags=["fold-input"]
parts = {name: dict(found) for name, found in middle["profile"].items()}
fused = {name for name, found in parts.items() if "_softmax" not in found}
assert fused == {"bare minimum", "PyTorch", "07 final class"}
assert parts["PyTorch"]["copy_"] > 0.03
assert "copy_" not in parts["07 final class"]
assert "_softmax" in dict(inference["profile"]["fast path"])

# %% [markdown]
# The final class spends its time on the same two parts as the bare minimum. PyTorch's class also
# copies queries, keys and values. With weights, the products of the heads and the softmax take the
# place of the fused kernel. The last line has `bmm` and `_softmax`, too: the fast path computes the
# weights.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# <!-- deeper: A list of heads, or all heads at once? -->
# ### Going deeper: A list of heads, or all heads at once?
#
# The class of [Two heads](02_two_heads.ipynb) computes one head after another, in a list. The class
# of [The reshape trick](04_reshape_trick.ipynb) computes all heads in one product. The table
# compares the two at two of the sizes above, with freed memory kept and returned. Both return their
# weights.

# %%
table = {}
for row in find("one by one"):
    way = "forward" if row["mode"] == "forward" else "both"
    names = ("all heads at once", "a list of heads")
    spent_on = [row["milliseconds"][name][MIDDLE] for name in names]
    ratio = shown(row["ratios"]["all heads at once"]["a list of heads"])
    new = [row["pages"][name] for name in names]
    table[f"n = {row['size'][1]}, {way}, memory {row['memory']}"] = [*spent_on, ratio, *new]
columns = ["all at once, ms", "list, ms", "ratio", "pages: all", "list"]
display.show(table, columns=columns, decimals=1)

# %% [markdown]
# The list takes more time in every row. Where memory is returned, it also takes more pages.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# <!-- deeper: Where the numbers come from -->
# ### Going deeper: Where the numbers come from
#
# Each line gives the date, the commit, the load and the number of rounds of a run. A plus after the
# commit means that files had changed since. The load says how busy the machine was just before the
# run. Nine cases of the first race, at n = 128 and without weights, had been disturbed by another
# process and were measured again. The fast path, the profiles and the masks were measured with
# glibc's default.
#
# With weights, the class has become leaner since the race. In training it now makes one matrix of
# weights, where it made two, and it no longer copies a boolean mask for every head. So its times with
# weights, in training (1.04 above) and under such a mask, are probably lower today. The two tables
# and the figure under *The price of the weights* are not affected.


# %%
def stamp(run: dict) -> str:
    """Write the date and the commit of a run, and the load of the machine."""
    commit = run["commit"][:7] + "+" * run["commit"].endswith("+")
    return f"{run['date'][:16]}, commit {commit}, load {run['load'][0]:.2f}"


def origin(section: str) -> None:
    """Print where a section's numbers come from, and how many rounds were run."""
    run = RUN.get("renewed", {}).get(section, RUN)
    machine = "" if run["cpu"] == RUN["cpu"] else f"another machine ({run['cpu']}), "
    rounds = [row["rounds"] for row in find(section)]
    counts = " to ".join(map(str, sorted({min(rounds), max(rounds)} if rounds else ())))
    print(f"[{machine}{stamp(run)}{f', {counts} rounds' if rounds else ''}]")


# %%
for section in ("final class", "boolean, every head", "fast path", "memory", "masks"):
    print(f"{section}:", end=" ")
    origin(section)
print("measured again:", stamp(RUN["measured again"]))
assert "the first nine cases of the final class" in RUN["measured again"]["what"]

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
# Write down the three, and decide: is our version slower?
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
# > **In short.** The fused kernel never writes the weights to memory. If you ask for them, all
# > $b \cdot h \cdot n \cdot m$ are written, into new pages where freed memory is returned to the
# > system, and that is what makes a call slow. Without them, memory grows no faster than $n$, and
# > the final class is never slower than PyTorch's in this race, and close to the bare minimum. With them it takes at most a few percent
# > longer than PyTorch's, except in evaluation without a mask.
# >
# > ```python
# > output, _ = attention(x, x, x, need_weights=False)  # through the fused kernel
# > ```
# >
# > To compare two versions, first assert that they give the same results. Then take ratios within
# > rounds, and say "even" when the quartiles lie on either side of one.
#
# [The next chapter](16_masks_in_the_wild.ipynb) is about masks in the wild: the same True means
# *hide* in one library and *show* in another.
