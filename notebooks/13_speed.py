# %% [markdown]
# # Speed
#
# *Which version is fast, and at which length?*
#
# You have seen one computation written in many ways. They give the same numbers; they do not take
# the same time, nor the same memory. In this chapter you read measurements of all of them, find out
# from profiles where the time goes, and learn to say "even" when two numbers differ by noise.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map(
    "project in", "split", "score", "mask", "softmax", "mix", "merge", "project out"
)

# %% [markdown]
# ## How to measure
#
# A time says more about the machine than about the code. Four habits help. All contenders get the
# same input and the same parameters, and equality of outputs and gradients is asserted *before* the
# clock starts. They take turns, so that a busy moment hits all of them. A ratio is taken within each
# turn. And what is kept is the median ratio with its **quartiles**: a quarter of the turns gave less
# than the lower one, a quarter more than the upper.
#
# This page times nothing. `make bench` does, and keeps what it finds; you read it here. One section can
# be measured anew without the others, so the tables below come from several runs on one machine. For
# each section the cell prints when its run began, at which commit, and how many processes were already
# running, the *load*. The last column says how many turns its cases took.

# %%
from annotated_attention import measure
from annotated_attention.measure import find

RESULTS = measure.load()
WHOLE = RESULTS["provenance"]
SECTIONS = [*dict.fromkeys(row["section"] for row in RESULTS["times"]), "memory"]
RUNS = {section: WHOLE.get("renewed", {}).get(section, WHOLE) for section in SECTIONS}
print("{cpu}, {threads} threads, torch {torch}".format(**WHOLE))
print(f"{'section':13} {'began':17} {'commit':8} load  turns")
for section, run in RUNS.items():
    assert all(run[key] == WHOLE[key] for key in ("cpu", "threads", "torch"))
    turns = [row["rounds"] for row in find(section)]
    took = f"{min(turns)} to {max(turns)}" if turns else "one each"
    began, commit, load = run["date"][:16], run["commit"][:7], run["load"][0]
    print(f"{section:13} {began}  {commit}  {load:.2f}  {took}")

# %% [markdown]
# On your machine the times differ and many of the ratios, too: run `make bench`, then this chapter
# again. Three sizes recur: many short sequences, some of middle length, one long one.


# %%
SIZES = [tuple(row["size"]) for row in find("versions", mode="forward")]
for b, n, e, h in SIZES:
    print(f"b = {b}, n = {n:4}, e = {e}, h = {h}")

# %% [markdown]
# ## Every version
#
# All versions that this book builds, the designs of [Published code](15_published_code.ipynb) that can
# take the same parameters, and PyTorch's own class. Each is divided by the **bare minimum**: two matrix
# products for the projections and PyTorch's fused kernel between them, without checks or options. The
# number before a name is its chapter; "weights" means that the weights were asked for.
#
# A ratio whose quartiles lie on both sides of one reads "even": it may be noise. In the figure below
# the table a line goes from quartile to quartile.


# %%
def shown(ratio: list[float]) -> str:
    """Write a ratio, given as its quartiles, or say that it cannot be told from one."""
    low, middle, up = ratio
    return "even" if low <= 1 <= up else f"{middle:.2f}"


def table(rows: list[dict], base: str, head: str) -> None:
    """Print ratios, a line for each contender and a column for each case."""
    print(f"{'':28}{head}")
    for name in rows[0]["ratios"][base]:
        columns = [shown(row["ratios"][base][name]) for row in rows]
        print(f"{name:28}" + "".join(f"{column:>9}" for column in columns))


lengths = "".join(f"{f'n = {size[1]}':>9}" for size in SIZES)
print("forward, times the bare minimum")
table(find("versions", mode="forward"), "bare minimum", lengths)

# %% jupyter={"source_hidden": true}
ways = {"forward": ("n", "o", 0.14), "forward + backward": ("h", "s", -0.14)}
names = list(find("versions")[0]["ratios"]["bare minimum"])[::-1]
drawing, axes = display.panels(860, 28 * len(names) + 90, columns=3)
for ax, size in zip(axes, SIZES):
    for mode, (letter, marker, shift) in ways.items():
        row = find("versions", mode=mode, size=list(size))[0]["ratios"]["bare minimum"]
        low, middle, up = zip(*(row[name] for name in names))
        y, colour = [i + shift for i in range(len(names))], display.COLOURS[letter]
        ax.hlines(y, low, up, color=colour, linewidth=1.5)
        ax.plot(middle, y, marker, color=colour, markersize=5, label=mode)
    ax.axvline(1, color=display.COLOURS["b"], linewidth=0.8)
    ax.set(title=f"n = {size[1]}", xlabel="× bare minimum")
    ax.set_yticks(range(len(names)), names if ax is axes[0] else [])
axes[1].legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2, frameon=False)
last = find("versions", mode="forward")[-1]["ratios"]["bare minimum"]
said = ", ".join(f"{name} {ratio[1]:.2f}" for name, ratio in last.items())
alt = f"Time over the bare minimum, at three lengths. Forward at the longest: {said}."
display.finish(drawing, name="every-version", alt=alt)

# %%
print("forward + backward, times the bare minimum")
table(find("versions", mode="forward + backward"), "bare minimum", lengths)

# %% [markdown]
# Two groups appear. Whatever goes through the fused kernel stays near one. Whatever stores the
# weights pays for it, more with every token, since there are n² of them for each head. Look closer
# at two rows: at n = 512 the loop over samples of [Batches](05_batches.ipynb), "one by one", is no
# slower than its "four axes", which have no loop; and one published design is the slowest everywhere. A third surprise
# stands at n = 2048: the list of heads of [Two heads](02_two_heads.ipynb) takes less time there than the reshape trick.
#
# ## Where the time goes
#
# A guess is cheap; a **profile** is better. It runs a version and adds up what each operation of
# PyTorch took; of five runs the quickest is kept, the least disturbed. `addmm`, `mm` and `bmm` are
# matrix products, `_softmax` is the softmax, `copy_` moves numbers. The fused kernel has a long
# name, which this function shortens.


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
for name in ("bare minimum", "07 final class", "04 reshape trick", "05 by name"):
    spent(longest, name)
spent(longest, "02 a list of heads")
times = longest["milliseconds"]
listed, reshaped = times["02 a list of heads"], times["04 reshape trick"]
print(f"a list of heads {listed[1]:.0f} ms, the reshape trick {reshaped[1]:.0f} ms")
assert listed[2] < reshaped[0]

# %% [markdown]
# The bare minimum is two products and the kernel, and so is the final class. The reshape trick
# spends its time on the same products, and on a softmax that reads and writes all the weights. The
# einsum form divides the scores by √d, h · n² numbers, where others divide the queries: that is its
# `div`. The list of heads puts the weights that it returns into one tensor: that is its `cat`. It is
# quicker all the same: its products and its softmax, one head at a time, take less. So the reshape
# trick is no gain in speed at every length.
#
# Now the two rows, at n = 512, beside the four axes:

# %%
middle = find("versions", mode="forward")[1]
for name in ("05 four axes", "05 one by one", "published sequence first"):
    print(f"{middle['milliseconds'][name][1]:6.1f} ms", end=" ")
    spent(middle, name)
assert dict(middle["profile"]["published sequence first"])["copy_"] > 0.2

times, profiles = middle["milliseconds"], middle["profile"]
four, loop = (
    {part: share * times[name][1] for part, share in profiles[name]}
    for name in ("05 four axes", "05 one by one")
)
for part in ("mm", "bmm", "_softmax", "copy_"):
    print(f"{part:8} four axes {four[part]:4.1f} ms, one by one {loop[part]:4.1f} ms")
assert loop["copy_"] < four["copy_"] / 2
assert four["mm"] - loop["mm"] > four["copy_"] - loop["copy_"]
assert times["05 one by one"][0] <= times["05 four axes"][2]

# %% [markdown]
# The published design copies: its einsum has the tokens in front and heads and samples behind, and
# every product needs them the other way round. The last lines compare the two versions of [Batches](05_batches.ipynb).
# They multiply the shares of one quick call with the median time of many, so they are estimates. A
# product over samples and heads needs each matrix in one piece, so the four axes copy; the heads of a
# single sample can be read where they lie, and the loop copies less. That explains the smaller part of
# the difference. The larger part lies in `mm`, the projections, which both versions compute with the
# same lines, and the profile does not say why they took longer in one of them.
#
# How good is the bare minimum itself? Divide its FLOPs, counted in [Counting](12_counting.ipynb), by
# its time, and compare with a large product that was timed in the same run, a square matrix times
# itself.

# %%
from annotated_attention import counting

peak = RUNS["versions"]["peak_flops"]
print(f"a large product: {peak / 1e9:.0f} GFLOP/s")
for row in find("versions", mode="forward"):
    b, n, e, _ = row["size"]
    seconds = row["milliseconds"]["bare minimum"][1] / 1000
    speed = counting.attention_flops(n, n, e, b=b) / seconds
    print(f"bare minimum, n = {n:4}: {speed / 1e9:.0f} GFLOP/s, {speed / peak:.0%} of that")

# %% [markdown]
# Two published designs stood in no table: they cannot take these parameters, since they compute less
# than multi-head attention. Each was timed against the one attention that it equals:

# %%
for row in find("own function"):
    ((name, ratio),) = row["ratios"]["as multi-head attention"].items()
    print(f"n = {row['size'][1]}, {shown(ratio)} times the time:", end=" ")
    spent(row, name, count=3)

# %% [markdown]
# They pay for a softmax that stores its weights, and save most of the projections.
#
# ## The price of the weights
#
# The kernel never stores the weights: it takes a block of keys at a time and keeps a running sum
# [[Dao et al.](../docs/references.md#dao-2022)]. Asking for weights, `need_weights=True`, which is
# the default here as in PyTorch, goes without the kernel. That costs time, and above all memory. The
# figure draws both against n, for one sequence; the memory is the peak of forward and backward.

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
at_4096 = ", ".join(f"{name} {kept[name]['bytes'][4] / 2**20:.0f}" for name in styles)
alt = f"Time and memory against n, both scales logarithmic. MiB at n = 4096: {at_4096}."
display.finish(drawing, name="the-wall", alt=alt)

# %%
columns = [i for i, n in enumerate(kept["final class"]["lengths"]) if n != 8192]
lengths = kept["final class"]["lengths"]
print(f"{'MiB at n =':24}" + "".join(f"{lengths[i]:8}" for i in columns))
for name, row in kept.items():
    sizes = (row["bytes"][i] for i in columns)
    texts = ("-" if size is None else f"{size / 2**20:.0f}" for size in sizes)
    print(f"{name:24}" + "".join(f"{text:>8}" for text in texts))

# %% [markdown]
# From column to column n doubles, but for the last, where n = 8192 is left out for you to predict in the
# exercises. A dash is where it would have taken more than half of the memory that was free. How fast
# does the memory grow?

# %%
for name, row in kept.items():
    before, after, _, last = row["bytes"][3:]
    print(f"{name:24} n from 2048 to 4096: {after / before:.1f} times the memory", end="")
    print(f", from 4096 to 16384: {last / after:.1f} times" if last else "")
    linear = "weights" not in name and "dropout" not in name
    assert last / after < 4 if linear else after / before > 3.5

# %% [markdown]
# Without weights the memory is linear in n, also under a causal or a padding mask: four times the length
# takes less than four times the memory. With weights it grows nearly four times whenever n doubles:
# that is the wall. Dropout costs what the weights cost, since on a CPU it leaves the kernel: the line
# "final class, dropout" asked for no weights.

# %% [markdown]
# ## The price of a mask
#
# The final class under every kind of mask, at the middle size, times the same call without one.
# "Both" is forward and backward.

# %%
for weights in (False, True):
    print("with weights" if weights else "without weights")
    rows = [row for mode in ("forward", "forward + backward")
            for row in find("masks", weights=weights, mode=mode)]
    table(rows, "no mask", "  forward     both")

# %% [markdown]
# Without weights most masks cost little: the kernel adds them to one block at a time. With weights a
# mask is one more pass over the scores. In both tables a mask for every head costs most: it is as large
# as the scores, and fully masked rows are sought in it.
#
# `is_causal` alone lets the kernel skip the blocks of keys that lie in the future. Blocks are long, so
# at the middle size there is next to nothing to skip. At the longest there is:

# %%
alike = {"mode": "forward", "weights": False}
pairs = zip(*(find("final class", mask=mask, **alike) for mask in ("none", "causal")))
for without, causal in list(pairs)[1:]:
    before, after = (row["milliseconds"]["final class"] for row in (without, causal))
    n = causal["size"][1]
    print(f"n = {n:4}: {before[1]:.1f} ms, with is_causal {after[1]:.1f} ms")
assert after[2] < before[0]

# %% [markdown]
# ## The number of heads
#
# [Counting](12_counting.ipynb) says that the number of heads changes no FLOP. Does it change the time? The same width,
# cut into more and more heads, times the class with eight:

# %%
counts = (1, 2, 4, 8, 16, 32, 64)
print(f"{'h =':15}" + "".join(f"{h:6}" for h in counts))
for weights in (False, True):
    row = find("heads", mode="forward", weights=weights)[0]
    ratios = {h: shown(ratio) for h, ratio in row["ratios"]["8"].items()} | {"8": "1"}
    title = "with weights" if weights else "without weights"
    print(f"{title:15}" + "".join(f"{ratios[str(h)]:>6}" for h in counts))

# %%
for weights in (False, True):
    row = find("heads", mode="forward", weights=weights)[0]
    for h in ("8", "64"):
        print(f"{row['milliseconds'][h][1]:6.1f} ms, h =", end=" ")
        spent(row, h, count=3)

# %% [markdown]
# The projections cost the same; in their share you see how the rest grows. There are h · n · m
# weights: the softmax has that many exponentials to take, in the kernel, too, and where they are
# stored, that much to write and read. A count of FLOPs sees none of this.
#
# ## The fast path that is not always fast
#
# In evaluation `torch.nn.MultiheadAttention` has a C++ routine of its own, called the fast path. It
# computes the weights, all of them, even when nobody asked. Here it is beside the same module with
# the fast path switched off:

# %%
for row in find("fast path"):
    ratios = row["ratios"]["fast path off"]
    fast, ours = shown(ratios["fast path"]), shown(ratios["final class"])
    print(f"n = {row['size'][1]:4}: fast path {fast}, final class {ours}")
spent(row, "fast path off")
spent(row, "fast path")
short, *_, long = (row["ratios"]["fast path off"]["fast path"] for row in find("fast path"))
assert short[2] < 1 < long[0]

# %% [markdown]
# > **Pitfall.** A name is not a measurement. At the short length the fast path saves a little; at the
# > long one it pays for the weights. In a model that reads long texts, switch it off, or use a class
# > that goes through the kernel.
#
# ## Threads
#
# PyTorch spreads a product over the cores, so a second core at best halves the time. Here is one call
# of the final class, forward, at the middle size:

# %%
for row in find("threads"):
    low, middle, up = row["milliseconds"]["final class"]
    print(f"{row['threads']} thread(s): {middle:.1f} ms (quartiles {low:.1f} and {up:.1f})")

# %% [markdown]
# ## On a GPU
#
# `make bench` also looks for a GPU, and then adds every table in bfloat16, each kernel by itself,
# compiled modules, what each reaches of a large product's FLOP/s, and the kernel that really ran,
# read off the profile.

# %%
gpu = measure.load("cuda")
if gpu is None:
    print("No GPU has been measured yet: run `make bench` on a machine that has one.")
else:
    print(gpu["provenance"]["gpu"], "in bfloat16")
    most = gpu["provenance"]["peak_flops"]
    for row in (row for row in gpu["times"] if row["section"] == "kernels"):
        b, n, e, _ = row["size"]
        flops = counting.attention_flops(n, n, e, b=b)
        if row["mode"] == "forward + backward":
            flops += counting.backward_flops(flops)
        print(f"\nn = {n}, {row['mode']}")
        for name, (_, middle, _) in row["milliseconds"].items():
            speed, kernel = flops / middle * 1000, row["kernel"][name] or "none"
            reached = f"{speed / 1e12:.0f} TFLOP/s, {speed / most:.0%}"
            print(f"{name:22}{middle:8.2f} ms {reached:>18}  {kernel}")

# %% [markdown]
# ## What the final class promises
#
# It was built with two goals: near the bare minimum, and no slower than PyTorch's own. First the case
# for which they are met. Each line is one size, forward, without weights; 0.90<!-- invented --> means
# nine tenths of the other's time.

# %%
print(f"{'':22}{'PyTorch':>10}{'bare minimum':>14}")
for mask in ("none", "causal"):
    for row in find("final class", mask=mask, weights=False, mode="forward"):
        ratios = row["ratios"]
        assert ratios["PyTorch"]["final class"][0] <= 1
        theirs = shown(ratios["PyTorch"]["final class"])
        least = shown(ratios["bare minimum"]["final class"])
        title = f"n = {row['size'][1]}, mask {mask}"
        print(f"{title:22}{theirs:>10}{least:>14}")

# %% [markdown]
# Now every case that was measured: forward, training and inference, with weights and without. In which
# is the final class slower than PyTorch's, with its lower quartile above one?

# %%
measured = find("final class")
slower = [row for row in measured if row["ratios"]["PyTorch"]["final class"][0] > 1]
for row in slower:
    weights = "with weights" if row["weights"] else "without weights"
    title = f"n = {row['size'][1]:4}, {row['mode']}, {weights}, mask {row['mask']}"
    print(f"{title:58} {row['ratios']['PyTorch']['final class'][1]:.2f}")
print(f"slower in {len(slower)} of {len(measured)} cases")
kinds = {(row["weights"], row["mask"]) for row in slower}
assert kinds == {(False, "none"), (True, "none"), (True, "causal"), (True, "padding")}
assert all(row["weights"] or row["mode"] == "inference" for row in slower)

# %% [markdown]
# The second goal is not met everywhere. With weights, a causal or a padding mask makes the final class
# slower than PyTorch's in several of these cases. In inference on short sequences without a mask,
# PyTorch's fast path is ahead, with weights and without.
#
# Quartiles tell how much the turns of one run differ. They cannot tell what all of its turns share,
# and the next run may not.
#
# ### Memory kept, memory returned
#
# When a tensor is gone, its memory goes to an **allocator**, here the C library's. It can keep the
# memory for the next tensor. Or it returns it to the system, which hands it out anew when it is asked
# for: in pages of a few KiB, each filled with zeros first. Which of the two happens depends on sizes,
# and on what the process did before [[mallopt](../docs/references.md#mallopt)].
#
# So take the choice away. `make bench` also measures in new processes, where the allocator is told to
# keep everything, or to return at once all that is large. No mask, and "both" is forward and backward:

# %%
print(f"{'':27}{'PyTorch':>21}{'final class':>23}{'ratio':>9}")
for row in find("allocator"):
    times, pages = row["milliseconds"], row["pages"]
    way = "forward" if row["mode"] == "forward" else "both"
    title = f"n = {row['size'][1]:4}, {way}, {row['memory']}"
    print(f"{title:27}", end="")
    for name in ("PyTorch", "final class"):
        print(f"{times[name][1]:8.1f} ms{pages[name]:6} pages", end="")
    print(f"{shown(row['ratios']['PyTorch']['final class']):>9}")

# %% [markdown]
# Memory that comes anew costs both classes time. It costs PyTorch's more, since that copies queries,
# keys and values and takes about twice the pages. Now compare across the lines: is PyTorch's class
# with its memory kept slower than the final class with its memory returned?

# %%
pairs = list(zip(*(find("allocator", memory=memory) for memory in ("kept", "returned"))))
for before, after in pairs:
    pages = after["pages"]
    ratios = [x["ratios"]["PyTorch"]["final class"][1] for x in (before, after)]
    assert before["pages"]["PyTorch"] < pages["final class"] / 10
    assert 1.5 < pages["PyTorch"] / pages["final class"] < 2.5
    assert ratios[0] > ratios[1]
slower = [
    before["milliseconds"]["PyTorch"][1] > after["milliseconds"]["final class"][1]
    for before, after in pairs
]
print(f"slower in {sum(slower)} of {len(slower)} pairs")
assert not any(slower)

# %% [markdown]
# It is not. Where a tensor's memory comes from can weigh more than the code that fills it, and a ratio
# between two classes holds for the case in which it was measured.
#
# > **Pitfall.** glibc, the C library of most Linux systems, by default returns every block of more
# > than 32 MiB, and a large batch has many. With `MALLOC_MMAP_MAX_=0` and a `MALLOC_TRIM_THRESHOLD_`
# > above all that you need, set before Python starts, it keeps them. What it keeps, no other program
# > gets.

# %% [markdown]
# ## Exercises
#
# ### Predict, then look
#
# *Easy, 5 minutes.* Which of two is faster, "left" or "right"? Forward, and all of them at n = 2048
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
at_4096 = {row["name"]: row["bytes"][4] / 2**20 for row in RESULTS["memory"]}
mebibytes = (2 * at_4096["final class"], 4 * at_4096["final class, weights"])

exercises.speed.check_mebibytes(mebibytes)

# %% [markdown]
# ## What you have now
#
# You know what time and memory go to: products, a softmax, and n² weights where they are stored. The
# fused kernel stores none, and the final class goes through it whenever you do not ask for weights.
# You know how to compare: equal work, in turns, ratios with their spread. In these tables the
# published designs were only numbers. Before the book reads them, [the next
# chapter](14_masks_in_the_wild.ipynb) sorts out how each of them reads a mask.
