# %% [markdown]
# # Speed
#
# *What makes attention slow on a CPU?*
#
# *7 minutes and 2 of exercises. Afterwards you can say what slows a call down, and how to measure
# that.*
#
# Ask a cashier what you have to pay, and you get one number. Ask for a receipt as well, and the sum
# stays the same, but every line has to be printed, and new paper fetched. So ask for no receipt that
# you will not read: `need_weights=False`.
#
# Attention's receipt is its weights. Without them, PyTorch's **fused kernel** takes a block of keys at a
# time, keeps a running sum, and never writes the `(n, m)` weights to memory: this is FlashAttention
# [[Dao et al.](../docs/references.md#dao-2022)], and you build one in [Tiles](23_tiles.ipynb). If you
# ask for the weights, that kernel cannot be used. All of them have to be written, and this decides the
# speed more than anything else in this chapter.
#
# All times come from one machine with two threads on a CPU. Each is the median of several **rounds**, in
# which all that is compared takes turns; the **quartiles** enclose the middle half of the rounds. Yours
# will differ, and `make bench` measures them there. What carries over to a GPU stands
# [below](#cell-id=and-on-a-gpu).

# %% tags=["hide-input"]
from annotated_book import display, measured
from annotated_book.measured import find  # gives you the cases of a section

RESULTS = measured.load()
RUN = RESULTS["provenance"]
SIZES = [tuple(row["size"]) for row in find("versions", mode="forward")]
MIDDLE = 1  # of the lower quartile, the median and the upper quartile
print("{cpu}, {threads} threads, torch {torch}".format(**RUN))
print("measured {date:.10}, commit {commit:.7}".format(**RUN))

# %% [markdown] name="the-price-of-the-weights"
# ## Should I ask for the weights?
#
# Here is one call of the final class, at three sizes: many short sequences, some of medium length, and a
# single long one, with 8 heads (and e = 512, but 256 for the short ones). The matrix products are the same with weights and without. How many times as long does
# the call take with them, in evaluation? That depends on what happens to memory that is freed: whether the
# process keeps it for the next call, or returns it to the system.

# %% tags=["hide-input"]
table = {}
for size in SIZES:
    b, n, _, h = size
    same = {"size": list(size), "mask": "none", "mode": "inference"}
    times = {
        (row["memory"], row["weights"]): row["milliseconds"]["final class"][MIDDLE]
        for row in find("final class", **same)
    }
    longer = [times[memory, True] / times[memory, False] for memory in ("kept", "returned")]
    fill = f"{4 * b * h * n * n / 2**20:.0f} MiB"
    name = f"n = {n:,}, b = {b}"
    table[name] = [fill, *(f"×{ratio:.2f}" for ratio in longer)]
columns = ["weights fill", "memory kept", "memory returned"]
display.show(table, columns=columns, corner="with weights")

# %% [markdown]
# With weights the call takes 1.2 to 1.7 times as long where memory is kept, and 1.6 to 1.9 times where it
# is returned. This class and PyTorch's both return the weights unless you write `need_weights=False`. Here
# is what the fused kernel spares you:

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
# Step by step, every score goes down to memory and comes up again, and so does every weight. Fused, a block
# of scores is made, used and forgotten in the processor.
#
# New memory has its price as well. The system hands it out in **pages** of 4 KiB (the paper for the
# receipt) and first fills each page with zeros. Where freed memory is returned, every call needs new ones.
# The figure shows both at n = 2048, in evaluation again: blue is the time with memory kept, and orange comes on top when
# it is returned. Compare the lowest bar, the only one with weights, with the top one. Do new pages
# make up more or less than half of the difference?
#
# <details><summary>What do you expect?</summary>
#
# Less, but not much less. The products of the heads are computed either way, inside the kernel or outside
# it. What is left is memory: new pages, and numbers that travel there and back.
#
# </details>

# %% tags=["hide-input"]
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

# %% tags=["hide-input"]
drawing, (ax,) = display.panels(300, 210)
alt = "Milliseconds of a call in evaluation at n = 2048, with memory kept and returned."
for y, (name, (kept, returned)) in enumerate(times.items()):
    ax.barh(y, kept, 0.6, color=display.COLOURS["n"], label="kept")
    ax.barh(y, returned - kept, 0.6, kept, color=display.COLOURS["h"], label="returned")
    ax.text(returned, y, f"\u2002{kept:.1f}, {returned:.1f}", va="center", fontsize=12)
    alt += f" {name.capitalize()}: {kept:.1f}, {returned:.1f}, {returned - kept:.0f} more."
ax.set(xlim=(0, 200), xticks=range(0, 121, 40), yticks=range(3), yticklabels=times)
ax.spines["bottom"].set_bounds(0, 120)
ax.set_xlabel("milliseconds at n = 2048", x=0.3)
ax.tick_params(labelsize=12)
handles, labels = (part[:2] for part in ax.get_legend_handles_labels())
ax.legend(handles, labels, loc="center right", fontsize=12, title="memory", frameon=False)
display.finish(drawing, name="price-of-weights", alt=alt, caption=caption)

# %% [markdown]
# Less: of the 55 ms that the weights take, 23 are for new pages. The rest is the traffic of the picture.
#
# Which of the two do you get if you change nothing? With weights like these, returned memory. For glibc, the
# C library of most Linux systems, returns every block of 32 MiB or more
# [[mallopt](../docs/references.md#mallopt)]. Weights as in the last two rows of the table are such blocks,
# and nothing else in the call is. The default was measured in the forward pass of training alone, so compare
# these two times with each other, not with the figure's:

# %% tags=["hide-input"]
(row,) = find("versions", mode="forward", size=list(SIZES[2]))  # with the default's memory
names = ("07 final class", "07 final class, weights")
without, with_them = (row["milliseconds"][name][MIDDLE] for name in names)
table = {"n = 2,048, by default": [without, with_them, f"×{with_them / without:.2f}"]}
columns = ["without weights, ms", "with, ms", "times as long"]
display.show(table, columns=columns, decimals=1)

# %% [markdown]
# To keep freed memory, set two variables before Python starts. The second must be larger than your peak
# memory, and the price is that the process never shrinks:
#
# ```bash
# MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=1099511627776 python train.py
# ```

# %% [markdown] name="twice-the-tokens"
# ## How much memory do twice the tokens take?
#
# Twice as much, or four times? The table shows the peak of a forward and a backward pass for b = 1,
# e = 512 and h = 8, measured once in a new process that gives freed memory back.

# %% tags=["hide-input"]
lengths, table = [2048, 4096], {}
for row in RESULTS["memory"]:
    if "class" not in row["name"]:
        continue  # of a language model
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
# With weights it takes nearly four times the memory, and nearly all of it is the last line of the table:
# the weights, their gradients and the gradients of the scores.
# Here the comparison with a receipt ends: twice the tokens make four times the lines.

# %% [markdown] name="the-price-of-a-mask"
# ## What does a mask cost?
#
# How long does a call with a mask take, as a multiple of the same call without one? Here are the
# slowest cases at n = 512, without weights, and one at n = 2,048. "Every head" is a boolean mask of shape
# (b · h, n, m), as large as the scores; all others are much smaller.

# %% tags=["hide-input"]
most = {}
for kind, every in (("every head", True), ("slowest of the others", False)):
    longest = max(
        ratio[MIDDLE]
        for row in find("masks", weights=False)
        for name, ratio in row["ratios"]["no mask"].items()
        if name.endswith("every head") == every
    )
    most[f"{kind}, n = 512"] = [longest]
alike = {"mode": "inference", "weights": False, "memory": "kept", "size": list(SIZES[2])}
before, after = (find("final class", mask=mask, **alike)[0] for mask in ("none", "causal"))
skipped = (row["milliseconds"]["final class"] for row in (before, after))
before, after = skipped
most["is_causal, n = 2,048"] = [after[MIDDLE] / before[MIDDLE]]
display.show(most, columns=["times as long"])

# %% [markdown]
# The reason is memory again: a mask for every head is written out as floats, as many as there are
# scores, and the kernel reads all of them. The other masks cost a tenth at most. And one saves time on a
# long sequence: with `is_causal`, the kernel skips blocks of keys that lie in the future.

# %% [markdown]
# <!-- deeper: All masks -->
# ### Going deeper: All masks
#
# The same ratios mask by mask, at the middle size. Where the quartiles lie on either side of one,
# the table says "even", by convention.


# %%
def shown(ratio: list[float]) -> str:
    """Write a ratio, given as its quartiles, or say that these lie around one."""
    low, middle, up = ratio
    return "even" if low <= 1 <= up else f"{middle:.2f}"


# %%
rows = find("masks", weights=False)
names = rows[0]["ratios"]["no mask"]
table = {name: [shown(row["ratios"]["no mask"][name]) for row in rows] for name in names}
display.show(table, columns=["forward", "forward and backward"])

# %% [markdown]
# <!-- /deeper -->

# %% tags=["proof"]
assert after[2] < before[0]
print("✓ At n = 2,048 is_causal saves time: the quartiles do not touch.")

# %% [markdown] name="is-the-fast-path-fast"
# ## Is PyTorch's fast path fast?
#
# For self-attention in evaluation, `nn.MultiheadAttention` has another routine, in C++: its **fast
# path**; [Masks in the wild](16_masks_in_the_wild.ipynb#cell-id=what-a-fully-masked-row-gets) lists what
# it needs. How does its time compare with that of the same class with the routine switched off, at 128
# tokens and at 2,048?
#
# <details><summary>What do you expect?</summary>
#
# It saves time on the short sequences, and takes three quarters more on the long one. The routine writes all
# weights, even when nobody asks for them.
#
# </details>

# %% tags=["hide-input"]
table = {}
for row in find("fast path"):
    low, ratio, up = row["ratios"]["fast path off"]["fast path"]
    table[f"n = {row['size'][1]}"] = [ratio, low, up]
display.show(table, columns=["times as long", "lower quartile", "upper quartile"])

# %% [markdown]
# (All three with the default's memory.) For long sequences, switch it off with
# `torch.backends.mha.set_fastpath_enabled(False)`. Without weights, the final class goes through the
# fused kernel everywhere, and so you lose next to nothing when you put it in PyTorch's place. That was
# measured in 90 cases: three sizes and five masks, each in evaluation, in the forward pass of training and in
# forward and backward pass together, with memory kept and with memory returned. In evaluation PyTorch's
# class took its fast path wherever it could. In how many of them does the final class take longer?

# %% tags=["proof"]
cases = find("final class", weights=False)
ratios = {
    base: [row["ratios"][base]["final class"][MIDDLE] for row in cases]
    for base in ("PyTorch", "bare minimum")
}
assert len(cases) == 90
longer = sum(ratio > 1 for ratio in ratios["PyTorch"])
assert max(ratios["PyTorch"]) < 1.1
assert max(ratios["bare minimum"]) < 1.2
total = len(cases)
print(f"✓ Without weights, {longer} of {total} cases take longer than in PyTorch's class.")

# %% [markdown] name="and-on-a-gpu"
# ## And on a GPU?
#
# Whatever is a count carries over: with weights, all $b \cdot h \cdot n \cdot m$ are still written, and the
# work still grows with $n^2$. So do both ways to save it: `need_weights=False` still chooses a fused kernel,
# and `is_causal` still lets the kernel skip what lies in the future.
#
# The ratios do not carry over, nor do the pages: there PyTorch keeps freed memory for itself
# [[CUDA semantics](https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management)].

# %% [markdown]
# ## How to measure
#
# A measured time says as much about the machine as about the code. So hold a race of many laps, with
# all runners on the same track:
#
# - Give all contenders the same input and the same parameters. Before the clock starts, assert that
#   their outputs and gradients are equal.
# - Warm up: the first calls load kernels and fetch memory. On a GPU, call `torch.cuda.synchronize()`
#   before you read the clock, because a call returns before its work is done.
# - Set the number of threads, and say it. `torch.utils.benchmark.Timer` warms up and synchronizes for you,
#   but it runs on one thread unless you pass `num_threads`.
# - Run the contenders in rounds, so that a busy minute on the machine affects all of them. Divide the
#   times within each round, and report the median of these ratios: 0.90<!-- invented --> means a tenth
#   less time.
# - Report the quartiles, too. If one is below 1 and the other above, call it "even".
# - Say what happens to freed memory, or measure both ways, as above.
#
# Among hundreds of ratios, some differ from one by chance. So ignore differences of a few percent.

# %% tags=["proof"]
from torch.utils.benchmark import Timer

assert Timer("pass").timeit(1).task_spec.num_threads == 1
print("✓ A Timer that is told nothing runs on one thread.")

# %% [markdown]
# <!-- deeper: A list of heads, or all heads at once? -->
# ### Going deeper: A list of heads, or all heads at once?
#
# The class of [Two heads](02_two_heads.ipynb) computes one head after another, in a list. The class
# of [The reshape trick](04_reshape_trick.ipynb) computes all heads in one product. The table
# compares the two at two of the sizes above, with freed memory kept and returned. Both return their
# weights.

# %% tags=["fold-input"]
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
# > **In short.** The fused kernel never writes the weights to memory. If you ask for them, all
# > $b \cdot h \cdot n \cdot m$ are written and read again, and that is what makes a call slow; where freed
# > memory goes back to the system, new pages come on top. Without weights, memory grows no faster than $n$.
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
