# %% [markdown]
# # Speed
#
# *Which version is fast, and at which length?*
#
# You have seen one computation written in many ways. They give the same numbers, but they do not
# take the same time or the same memory. In this chapter you read measurements of all of them, see
# from profiles where the time goes, and check the goal of the final class: to take at most
# 1.05<!-- setting --> times as long as PyTorch's own class. It misses the goal in one kind of case,
# which you will see.

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
# - All contenders get the same input and the same parameters. That their outputs and gradients are
#   equal is asserted before the clock starts.
# - They take turns, so that a busy moment of the machine hits all of them.
# - A ratio of two times is taken within each turn, and the median of these ratios is what you read.
# - Each median is kept with its **quartiles**: a quarter of the turns gave less than the lower one, a
#   quarter gave more than the upper one. A ratio whose quartiles lie on both sides of one may be
#   noise, so the tables print it as "even".
#
# Few turns make rough quartiles, and among hundreds of ratios some miss "even" by chance. So read
# nothing into a few percent. This page runs no measurement of its own; `make bench` does that, in
# about 25 minutes, and writes its results to `src/annotated_attention/data/benchmarks.json`. The
# tables show a part of that file; `find` gives you any of its cases. First, where the numbers come
# from. The *load* is how many processes ran, on average, in the minute before a run began. This
# machine has two threads, so a load near 2 means that other work kept both busy until the run
# started. Ratios suffer less from such things than times do. Unless a table says otherwise, the
# memory allocator is left as it is. A section that was measured again later shows its own date.

# %%
from annotated_attention import measure
from annotated_attention.measure import find

RESULTS = measure.load()
RUN = RESULTS["provenance"]
print("{cpu}, {threads} threads, torch {torch}".format(**RUN))
print(RUN["command"])


def origin(section: str) -> None:
    """Print a section's date and commit, the load of the machine, and the turns."""
    run = RUN.get("renewed", {}).get(section, RUN)
    turns = [row["rounds"] for row in find(section)]
    counts = " to ".join(map(str, sorted({min(turns), max(turns)} if turns else ())))
    rounds = f", {counts} turns" if turns else ""
    commit, load = run["commit"][:7], run["load"][0]
    print(f"[{section}: {run['date'][:16]}, commit {commit}, load {load:.2f}{rounds}]")


origin("versions")

# %% [markdown]
# Such a line in brackets stands under every table below. On your machine the times will differ, and
# so will many of the ratios: run `make bench`, then this chapter again.
#
# Three sizes recur: many short sequences, some of middle length, and a single long one.

# %%
SIZES = [tuple(row["size"]) for row in find("versions", mode="forward")]
for b, n, e, h in SIZES:
    print(f"b = {b}, n = {n:4}, e = {e}, h = {h}")

# %% [markdown]
# ## Every version
#
# Here are all versions that this book builds, the designs of [Published
# code](15_published_code.ipynb) that can take the same parameters, and PyTorch's own class. Each
# time is divided by that of the **bare minimum**: matrix products for the projections and PyTorch's
# fused kernel between them, without checks or options. It is a yardstick and no lower limit. The
# number before a name is its chapter. "Weights" means that the attention weights were asked for. The
# first three columns are the forward pass, the last three a forward and a backward pass.


# %%
def shown(ratio: list[float]) -> str:
    """Write a ratio, given as its quartiles, or say that it cannot be told from one."""
    low, middle, up = ratio
    return "even" if low <= 1 <= up else f"{middle:.2f}"


modes = ("forward", "forward + backward")
rows = [row for mode in modes for row in find("versions", mode=mode)]
print(f"{'times the bare minimum':27}{'forward':>16}{'forward + backward':>26}")
print(f"{'':27}" + "".join(f"{row['size'][1]:>8}" for row in rows))
for name in rows[0]["ratios"]["bare minimum"]:
    columns = [shown(row["ratios"]["bare minimum"][name]) for row in rows]
    print(f"{name:27}" + "".join(f"{column:>8}" for column in columns))
origin("versions")

# %% [markdown]
# Here are the same numbers as a figure. Circles are the forward pass, squares a forward and a
# backward pass. A line goes from the lower to the upper quartile.

# %% jupyter={"source_hidden": true}
names = list(rows[0]["ratios"]["bare minimum"])[::-1]
drawing, axes = display.panels(860, 28 * len(names) + 90, columns=3)
for ax, size in zip(axes, SIZES):
    ax.sharex(axes[-1]) if ax is not axes[-1] else None
    for mode, letter, marker, shift in ((modes[0], *"no", 0.14), (modes[1], *"hs", -0.14)):
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

# %% [markdown]
# At n = 2048 two groups appear. What goes through the fused kernel stays near one. What stores the
# weights takes much longer, because there are n² of them for each head. At n = 128 there are no two
# groups: several versions that store the weights are as fast as PyTorch's class, which does not. At
# n = 512 they begin to part.
#
# With weights, the forward pass of the final class is in the middle of the field at n = 128, and
# slower than most versions of chapters 2 to 5 at the other two sizes. It also does more: it checks
# its inputs, looks after masks, and returns the mean of the weights over the heads. How much of the
# difference that explains, this table does not say.
#
# ## Where the time goes
#
# Guessing at causes is easy and often wrong. A **profile** runs a version and adds up what each of
# PyTorch's operations took; we keep the quickest of five runs, the one that was disturbed least. In
# the lines below `addmm`, `mm` and `bmm` are matrix products, `_softmax` is the softmax, and
# `copy_` moves numbers from one place to another. Each line gives percentages of its own version's
# time.


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
parts = {name: dict(found) for name, found in longest["profile"].items()}
assert "_softmax" not in parts["07 final class"]
assert parts["04 reshape trick"]["_softmax"] > 0.2
assert "div" in parts["05 by name"]
assert parts["published sequence first"]["copy_"] > 0.1

# %% [markdown]
# The bare minimum consists of the projections, `mm`, and the fused kernel, and so does the final
# class. The kernel hides the products of the heads. In the reshape trick they appear as `bmm`,
# beside a softmax that reads and writes all the weights. The einsum form of
# [Batches](05_batches.ipynb) divides the scores, h · n² numbers, by √d, where other versions divide
# the queries. That is the `div` in its line. The published design "sequence first" copies: in its
# einsum the tokens come first and the samples and heads last, and every product needs the opposite
# order.
#
# ### A list of heads, or all heads at once?
#
# [Two heads](02_two_heads.ipynb) computes one head after another; [The reshape
# trick](04_reshape_trick.ipynb) computes all heads in one product. You might expect the second
# always to win. The two differ in more than the loop: the list works on the scores of a single head
# at a time, a matrix that is h times smaller, and a smaller matrix may get its memory more cheaply.
#
# When a tensor is freed, its memory goes back to an **allocator**, here that of the C library. The
# allocator may keep the memory for the next tensor, or return it to the system, which then has to
# hand it out anew, in **pages** of 4 KiB, each filled with zeros first. Which of the two happens
# depends on sizes and on what the process did before [[mallopt](../docs/references.md#mallopt)]. To
# separate the cause "memory" from the cause "arithmetic", `make bench` measures the two versions in
# two processes. In one the allocator is told to keep everything, in the other to return every large
# block. In the table, "both" is a forward and a backward pass. The last two columns count the pages
# that one call took, all heads at once and with the list.
#
# Does the list of heads need less time, and if so, in which of the two processes?
#
# <details><summary>What do you expect?</summary>
#
# Not with memory kept: both versions multiply the same numbers, and the list does so in more and
# smaller pieces. With memory returned, new pages cost time as well, so the answer depends on which
# version takes more of them.
#
# </details>

# %%
print(f"{'':42}{'all at once':>12}{'list':>11}{'ratio':>8}{'pages':>16}")
for row in find("one by one"):
    way = "forward" if row["mode"] == "forward" else "both"
    times, pages = row["milliseconds"], row["pages"]
    print(f"n = {row['size'][1]:4}, {way:8} memory {row['memory']:18}", end="")
    for name in ("all heads at once", "a list of heads"):
        print(f"{times[name][1]:8.1f} ms", end="")
    ratio = shown(row["ratios"]["all heads at once"]["a list of heads"])
    print(f"{ratio:>8}{pages['all heads at once']:9}{pages['a list of heads']:7}")
origin("one by one")

# %% [markdown]
# The largest differences are between the two halves: with memory returned, the same code takes
# about twice as long. So a good part of the distance between the two groups at n = 2048 may be the
# price of new pages, and not of arithmetic.
#
# The list of heads needs more time in every case. It takes more pages, not fewer, and these counts
# do not tell why. It is slower with memory kept, too, so the smaller pieces themselves cost time.
# In the table of all versions it was about as fast at n = 512, and seemed faster at n = 2048. There
# many versions share one process and its allocator, so trust the separate processes, and not the
# order of two neighbouring lines up there. One product for all heads is also shorter to write, and
# has no parameters per head.
#
# ### How good is the bare minimum?
#
# Divide its FLOPs, counted in [Counting](12_counting.ipynb), by its time; that gives FLOPS. Then
# compare with the product of one large square matrix with itself, which was timed when the same run
# began.

# %%
from annotated_attention import counting

peak = RUN.get("renewed", {}).get("versions", RUN)["peak_flops"]
print(f"a large product: {peak / 1e9:.0f} GFLOPS")
for row in find("versions", mode="forward"):
    b, n, e, _ = row["size"]
    seconds = row["milliseconds"]["bare minimum"][1] / 1000
    speed = counting.attention_flops(n, n, e, b=b) / seconds
    print(f"bare minimum, n = {n:4}: {speed / 1e9:.0f} GFLOPS, {speed / peak:.0%} of that")
origin("versions")

# %% [markdown]
# The rest is the price of everything but large products. The softmax and copies take time and count
# no FLOPs, and smaller products may run more slowly. These numbers do not tell the three apart.
#
# ## The price of the weights
#
# The fused kernel never stores the weights. It takes a block of keys at a time and keeps a running
# sum [[Dao et al.](../docs/references.md#dao-2022)]. Asking for the weights, `need_weights=True`,
# is the default here as in PyTorch. It goes without the kernel, and that costs time and above all
# memory. Here is a single sequence, b = 1, at five lengths.
#
# At n = 2048, how long does a forward pass of the final class take with weights, compared with one
# without: about the same time, half as long again, or more than twice as long? And at n = 256?
#
# <details><summary>What do you expect?</summary>
#
# There are n² weights for each head, but only n rows to project. So the price is larger where the
# sequence is long: at n = 256 the weights cost little. At n = 2048 the call takes more than twice
# as long. It writes the scores, reads them for the softmax, writes the weights and reads them for
# the mix.
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
assert find("lengths", size=[1, 2048, 512, 8])[0]["ratios"]["final class"][
    "final class, weights"][0] > 2

# %% [markdown]
# The price jumps between n = 512 and n = 1024, and then stays about the same, since both sides grow
# with n². At n = 1024 the weights of the 8 heads reach 32 MiB, the size from which the allocator
# returns every block. The table cannot tell whether this is the cause, but the table of the lists
# shows that returned memory alone can double a time.
#
# The figure draws both against n. The memory is the peak of a forward and a
# backward pass.

# %% jupyter={"source_hidden": true}
kept = {row["name"]: row for row in RESULTS["memory"]}
styles = {"final class, weights": ("h", "s-"), "final class": ("n", "o-")}
drawing, (left, right) = display.panels(760, 330, columns=2)
for name, (letter, style) in styles.items():
    times = [(row["size"][1], row["milliseconds"][name][1]) for row in find("lengths")]
    pairs = zip(kept[name]["lengths"], kept[name]["bytes"])
    sizes = [(n, size / 2**20) for n, size in pairs if size and n != 8192]
    for ax, points in ((left, times), (right, sizes)):
        ax.plot(*zip(*points), style, color=display.COLOURS[letter], label=name)
for ax, title in ((left, "milliseconds, forward"), (right, "MiB, forward + backward")):
    ax.set(xscale="log", yscale="log", xlabel="n", title=title)
    ax.set_xticks([256, 1024, 4096, 16384], ["256", "1024", "4096", "16384"])
    ax.minorticks_off()
    ax.legend(frameon=False)
at_4096 = ", ".join(f"{name} {kept[name]['bytes'][3] / 2**20:.0f}" for name in styles)
alt = f"Time and memory against n, both scales logarithmic. MiB at n = 4096: {at_4096}."
display.finish(drawing, name="the-wall", alt=alt)

# %%
shown_at = [n for n in kept["final class"]["lengths"] if n != 8192]
print(f"{'MiB at n =':24}" + "".join(f"{n:8}" for n in shown_at))
for name, row in kept.items():
    sizes = dict(zip(row["lengths"], row["bytes"]))
    texts = ("-" if sizes[n] is None else f"{sizes[n] / 2**20:.0f}" for n in shown_at)
    print(f"{name:24}" + "".join(f"{text:>8}" for text in texts))
origin("memory")

# %% [markdown]
# From column to column n doubles, except for the last: n = 8192 is left out for you to predict in
# the exercises. A dash stands where the call would have taken more than half of the memory that was
# free. How fast does the memory grow, and how exact is such a number?

# %%
print(f"{'':26}{'growth':>6} {'three times at 1024':>25}")
for name, row in kept.items():
    sizes = dict(zip(row["lengths"], row["bytes"]))
    growth = sizes[4096] / sizes[2048]
    low, high = min(row["again"]), max(row["again"])
    print(f"{name:26}{growth:5.1f}x {low / 2**20:13.1f} to {high / 2**20:.1f} MiB")
    linear = "weights" not in name and "dropout" not in name
    assert growth < 2.6 if linear else growth > 3.2
    assert not linear or sizes[16384] < 4.5 * sizes[4096]

# %% [markdown]
# Each number is one measurement in a new process, and the operating system counts the peak in whole
# pages, together with what libraries take on the way. The three measurements at n = 1024 show how
# far such peaks differ by chance, so read nothing into differences of that size.
#
# Without weights the memory grows roughly with n, also under a causal or a padding mask. With
# weights it grows about four times from n = 2048 to n = 4096. Dropout costs even more than the
# weights. The line "final class, dropout" asked for no weights, but on a CPU dropout leaves the
# kernel, so the weights are stored, and so is what dropout did to them.
#
# These peaks are larger than the counts of
# [Counting](12_counting.ipynb#what-the-backward-pass-needs). At n = 4096 the weights of 8 heads are
# 512 MiB. The backward pass also makes the gradients of the weights and of the scores, which are as
# large.
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

# %% [markdown]
# A mask for every head is as large as the scores and costs the most in every column. The other
# masks, of the shape (b, m) or (n, m), are much smaller.

# %%
for row in rows:
    ratios = {name: ratio[1] for name, ratio in row["ratios"]["no mask"].items()}
    assert max(ratios, key=ratios.get) == "attn_mask, every head"

# %% [markdown]
# `is_causal` alone lets the kernel skip the blocks of keys that lie in the future. Does that save
# time? Both are measured in the process that keeps its memory.

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
# [Counting](12_counting.ipynb) says that the number of heads changes no FLOP. Does it change the
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
# There are h · n · m weights. So more heads take more exponentials, also inside the kernel, and
# where the weights are stored, more numbers are written and read. Products of narrow heads may be
# slower, too. The table shows the sum of such effects, and a count of FLOPs in products sees none
# of them.
#
# ## The fast path that is not always fast
#
# In evaluation without gradients, `torch.nn.MultiheadAttention` takes a C++ routine of its own,
# which PyTorch calls the fast path. It computes all the weights, even when nobody asked for them.
#
# At which of the three lengths is the fast path faster than the same module with the fast path
# switched off? The numbers are multiples of the time without it. Profiles of both at the longest
# follow, in which `_native_multi_head_attention` is the C++ routine itself.
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
# > **Pitfall.** A name is not a measurement. At the short length the fast path saves time; at the
# > long one it pays for the weights. In a model that reads long texts, switch it off, or use a class
# > that goes through the fused kernel.
#
# ## What the final class promises
#
# The goal is that no case takes more than 1.05<!-- setting --> times as long as PyTorch's own
# class. One case is allowed 1.07<!-- setting -->: a boolean (n, m) mask with weights at n = 2048.
# The class turns such a mask into numbers and searches it for fully masked rows, and PyTorch's
# class does not search. The limits are exact so that a test can use them; a few percent over or
# under mean little. Every case was measured twice, in a process whose allocator keeps memory
# and in one whose allocator returns it. The table shows the worse of the two, so its numbers are not
# those of the tables above. A star marks a case
# that is slower than PyTorch's beyond the spread: the lower quartile of the ratio is above one. An
# exclamation mark follows where the goal is missed. The last three columns compare with the bare
# minimum, which has no weights to return.


# %%
def worse(rows: list[dict], base: str) -> str:
    """Write the larger ratio of the rows; mark it if it is slower or misses the goal."""
    row = max(rows, key=lambda row: row["ratios"][base]["final class"][1])
    low, middle, _ = row["ratios"][base]["final class"]
    marks = ("*" if low > 1 else "") + ("!" if measure.misses_goal(row) else "")
    return f"{middle:.2f}{marks if base == 'PyTorch' else ''}"


# %% [markdown]
# "Floats" and "boolean" are masks of the shape (n, m), "both" is forward and backward, and "infer."
# is evaluation without gradients.

# %%
import itertools

MODES = ("forward", "forward + backward", "inference")
KINDS = ((True, "PyTorch"), (False, "PyTorch"), (False, "bare minimum"))
heads = ("with weights, × PyTorch", "without, × PyTorch", "without, × minimum")
print(f"{'':16}" + "".join(f"{head:24}" for head in heads))
print(f"{'':16}" + f"{'forward':8}{'both':8}{'infer.':8}" * 3)
for _, n, _, _ in SIZES:
    for mask in dict.fromkeys(row["mask"] for row in find("final class")):
        rows = [row for row in find("final class", mask=mask) if row["size"][1] == n]
        print(f"{n:4} {mask:10}", end=" ")
        for (weights, base), mode in itertools.product(KINDS, MODES):
            same = [row for row in rows if (row["weights"], row["mode"]) == (weights, mode)]
            print(f"{worse(same, base):8}", end="")
        print()
origin("final class")

# %% [markdown]
# The lowest numbers stand under "infer.". Without weights the reason is known: PyTorch's class
# takes its fast path, which computes all the weights and makes no use of `is_causal`, while the
# final class goes through the fused kernel. With weights both compute all of them. Why PyTorch's
# class is slower there under most masks, and faster without one, this table does not say. Now count
# the cases, both measurements of each, and name those that miss the goal:

# %%
cases = find("final class")
slower = [row for row in cases if row["ratios"]["PyTorch"]["final class"][0] > 1]
missed = [row for row in cases if measure.misses_goal(row)]
print(f"{len(cases)} cases, {len(slower)} slower, {len(missed)} of them miss the goal")
for row in missed:
    print(measure.describe(row))

# %% [markdown]
# All that miss are inference with weights and without a mask, where PyTorch's class takes its fast
# path. Everywhere else the goal is met, and without weights no case misses the goal. The
# docstring of the class has to name the exceptions, and a test compares it with this list.
# Quartiles show how much the turns of one run differ, but not what they all have in common, so a
# case near the limit may fall on the other side in another run.
#
# Where does the class save time without weights? PyTorch's class copies queries, keys and values
# even where the fused kernel would take views of them, and so it takes more memory. That shows in
# the pages which the system hands out where memory is returned:

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
# With weights, there is no kernel that would take views. So the class copies, too, and makes
# queries, keys and values contiguous first; that saves memory, as
# [Counting](12_counting.ipynb#what-the-backward-pass-needs) has shown. Then it adds the mask to the
# scores in place. It looks for fully masked rows in the mask, not in the scores, because the mask is
# smaller. Here is what the copies alone take ("contiguous first"), and what copies and mask together
# take ("final class"), beside the formula written down step by step as in [Multi-head
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
# Most differences are small or even. What pays is the mask: under a padding mask at n = 2048, the
# forward pass of the final class takes about two thirds of the formula's time. The copies alone
# gain next to nothing, and in one case they cost time.

# %% [markdown]
# > **Pitfall.** glibc, the C library of most Linux systems, by default returns every block of 32 MiB
# > and more, and a large batch has many. With `MALLOC_MMAP_MAX_=0` and a `MALLOC_TRIM_THRESHOLD_`
# > above all that you need, set before Python starts, it keeps them. The memory it keeps is not
# > available to other programs.

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
# The tables of this chapter hold three of the answers. For the fourth: how many weights do 64 heads
# have?
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
