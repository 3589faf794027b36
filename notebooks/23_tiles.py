# %% [markdown]
# # Tiles
#
# *Why does the fused kernel need no (n, m) matrix?*
#
# *23 minutes and 8 of exercises. Afterwards you can compute a softmax in pieces, merge the results of
# two devices, and say what limits a kernel.*
#
# You know this as **FlashAttention**: the output of attention, without its matrix of scores. It begins
# with a mean. A school wants the mean mark of its pupils, and the classes hand in their marks one after the
# other. Nobody has to keep all the marks. A slip of paper with two lines is enough: the sum of the marks
# so far, and how many there were. At the end, one division gives the mean.
#
# The output of attention is a mean, too, of values with weights. Computed step by step, it keeps
# every mark: for a text of 8,192 tokens, more than 67 million scores in each head. PyTorch's fused
# kernel gives the same output with a slip of three lines, two sums and the unit in which they are
# written [[Dao et al.](../docs/references.md#dao-2022)]. [Speed](15_speed.ipynb) measures it. Here you
# build it, in plain PyTorch: scores, mask, softmax and mix become one loop. A **roofline**
# says when that is faster, for whole texts and for one new token. At the end two slips are merged, and that is all
# that **split-KV** and **ring attention** need.

# %% tags=["hide-input"]
import math

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from annotated_attention.counting import attention_traffic, score_flops, short
from annotated_book import chapters, display, measured

# %% [markdown] name="three-memories"
# ## Three memories
#
# Why would anyone avoid a matrix? Not for its arithmetic, but for its way to memory. Three memories
# of a GPU matter here, and the larger one is, the slower it is.

# %% tags=["fold-input"]
MEMORIES = {  # name, size, TB a second; an A100 with 80 GB
    "HBM, the large memory": ("80 GB", 2.0),
    "L2, a cache for all": ("40 MB", 5120 * 1.41e9 / 1e12),  # bytes a clock, clock
    "SRAM of 108 processors": ("192 kB each", 19.0),
}
drawing, (ax,) = display.panels(345, 300)
for y, (name, (size, speed)) in enumerate(MEMORIES.items()):
    wide, color = (10, 7.6, 5.6)[y], display.COLOURS["hbm"[y]]
    left = 5 - wide / 2
    ax.barh(3 * y, wide, 1.7, left, color=color, alpha=0.18, lw=0)
    ax.barh(3 * y, wide, 1.7, left, fill=False, edgecolor=color, lw=1.2)
    ax.text(5, 3 * y - 0.32, name, ha="center", va="center", fontsize=12)
    ax.text(5, 3 * y + 0.4, size, ha="center", va="center", fontsize=12)
    ax.bar(5, 1.1, speed / 10, 3 * y + 0.95, color=color, alpha=0.8, lw=0)
    ax.text(6.2, 3 * y + 1.52, f"{speed:.0f} TB/s", va="center", fontsize=12)
ax.text(5, 9, "arithmetic: 312 TFLOPs/s", ha="center", va="center", fontsize=12)
ax.set(xlim=(-0.1, 10.1), ylim=(9.6, -1))
ax.axis("off")
told = [
    f"{name}: {size}, {speed:.0f} TB a second" for name, (size, speed) in MEMORIES.items()
]
caption = "An A100 with 80 GB. The strips are as wide as the memory is fast."
display.finish(drawing, name="three-memories", alt="; ".join(told), caption=caption)

# %% [markdown]
# The numbers are from [[Dao 2023](../docs/references.md#dao-2023)], where the 19 are an estimate for all processors
# together; those of L2 are from [[NVIDIA](../docs/references.md#nvidia-2020)], as 5,120 bytes a clock at the highest
# clock. The 312 count the multiplications and additions of dense matrices in half precision. Other GPUs have other
# numbers and the same three steps.
#
# Step by step, attention is three programs: scores, softmax, mix. Each reads what it needs from the large memory,
# and writes what it makes back. So scores are written and read, then weights are written and read. In tiles, neither
# leaves the small memory. One head of width d moves so many numbers:
#
# $$\underbrace{2\,(n + m)\,d}_{\text{queries, keys, values, output}} + \underbrace{4\,n\,m}_{\text{scores, weights}}$$
#
# $$\text{in tiles, at best: } \quad 2\,(n + m)\,d + n$$
#
# (The last n is one number a query for the way back.) Guess the ratio for 8,192 tokens and a width of 64.

# %%
# numbers moved, 2 bytes each; tile=None: step by step, tile=n: keys are read once
steps, best = (2 * attention_traffic(8192, 8192, 64, 1, tile=x) for x in (None, 8192))
times = steps / best
print(f"step by step {short(steps, 'B')}, in tiles {short(best, 'B')}: × {times:.0f}")
row = 4 * 8192  # the scores of one query, in float32
print(f"scores of one query: {short(row, 'B')}, of 64 queries: {short(64 * row, 'B')}")

# %% [markdown]
# More than a hundred times as many bytes, and nearly all of them are numbers that nobody asked for. On an A100, [Dao et
# al., figure 2](../docs/references.md#dao-2022) measured the attention of a GPT-2, forward and backward: step by step
# 40.3<!-- quoted --> GB in 41.7<!-- quoted --> ms, with FlashAttention 4.4<!-- quoted --> GB in 7.3<!-- quoted --> ms.
#
# Then why not keep the scores of whole rows in the small memory? The second line says so. The rows of 64 queries take
# 2.10 MB in float32, and there are 192 kB. Only a piece of a row fits, and a softmax wants the whole row, for its
# largest score and its sum. That is the difficulty, and the slip of paper removes it.

# %% [markdown]
# ## Two sums
#
# The book's example sentence is *the cat drank milk because it was thirsty*. Each word has an embedding of width 4,
# which serves as query, key and value, without any projection. The word *it* asks. Its weight for a key
# is the exponential of the score, divided by the sum of all exponentials. So the output is a
# quotient of two sums:
#
# $$\mathrm{output} = \frac{\sum_j e^{s_j} v_j}{\sum_j e^{s_j}}$$
#
# Here $s_j$ is the score of key j, already divided by $\sqrt d$, and $v_j$ is its value. Call the upper sum the
# **mix**, $O$, and the lower one the **total**, $\ell$. Both can be added up piece by piece: four keys, then the
# other four.

# %%
one = chapters.load("01_one_head")
it = one.WORDS.index("it")
keys = values = one.EMBEDDINGS  # (m, d)
scores = keys @ keys[it] / 2    # (m,)
total, mix, rows = torch.zeros(1), torch.zeros(4), []
for piece in (slice(0, 4), slice(4, 8)):
    powers = scores[piece].exp()        # (4,)
    total = total + powers.sum()        # (1,)
    mix = mix + powers @ values[piece]  # (4,)
    rows.append(torch.cat([total, mix]))
rows.append(torch.cat([total / total, mix / total]))
names = ["the … milk", "all eight", "divided"]
display.show(torch.stack(rows), names, ["total", *one.FEATURES])

# %% [markdown]
# The total of all eight keys is 24.83, as in [One
# head](01_one_head.ipynb#cell-id=weights-shares-of-one-whole), and the last line is what *it* collected
# there: above all 1.32 of animal, then 0.78 of quality and 0.72 of food. At no time were there more
# than four exponentials, and the eight weights were never written down. (The eight scores were still
# computed at once; the section on [tiles](#cell-id=tiles) cuts them, too.)
#
# ## When the exponential is too large
#
# So far, two sums are enough. But exponentials grow fast, and a float can hold only so much. The
# cell prints the largest score whose exponential each dtype can hold, and then the softmax of two
# scores beyond the limit of float32, computed as above.

# %%
for dtype in (torch.float16, torch.bfloat16, torch.float32):
    print(f"{dtype!s:15} scores up to {math.log(torch.finfo(dtype).max):.1f}")
powers = torch.tensor([101.0, 100.0]).exp()  # (2,)
print(powers.tolist(), "->", (powers / powers.sum()).tolist())

# %% [markdown]
# In float32 a score of 100 gives infinity, and infinity divided by infinity is NaN. In float16 a
# score of 12 is enough. PyTorch's `softmax` does not fail here. It first subtracts the largest
# score from all of them, so that no exponential is above 1. This changes no weight, because
# $e^{s-c} = e^s / e^c$: both sums are divided by the same number. You can think of c as the *unit*
# in which both sums are written: the third line of the slip. (The papers write $\ell$ and $O$ as here, and the unit as
# m, which in this book is the number of keys.)
#
# With keys in pieces, this leads to a difficulty: the largest score is not known before the last
# piece has been seen. What can you do without keeping the scores?
#
# <details><summary>What do you expect?</summary>
#
# You could go through all keys twice, first for the largest score, then for the sums. This works,
# and scores every key twice. Or you write both sums in the unit of the largest score *so far*, and
# convert them whenever a larger one comes. That takes one pass.
#
# </details>

# %% [markdown] name="change-the-unit"
# ## Change the unit
#
# Write both sums in the unit of the largest score *so far*, and convert them whenever a larger one
# comes [[Milakov and Gimelshein](../docs/references.md#milakov-2018)]. Suppose that the unit is c,
# and that the next piece has a larger score, c′. An exponential that was written down as $e^{s -
# c}$ should have been $e^{s - c'}$. The two differ by a factor that is the same for all keys:
# $e^{c - c'}$, the **correction**. So multiply both sums by it, and go on:
#
# $$\ell' = e^{c - c'}\,\ell + \sum_j e^{s_j - c'} \qquad O' = e^{c - c'}\,O + \sum_j e^{s_j - c'} v_j$$
#
# The sums run over the keys of the new piece. Try it on the row of *it*, where the largest of the first four scores is 1.5, and the largest of all is 2.

# %%
first, second = scores[:4], scores[4:]  # (4,)
largest, larger = first.max(), scores.max()
total = (first - largest).exp().sum()
correction = (largest - larger).exp()
print(f"after four keys, in the unit of {largest}: total {total:.2f}")
print(f"correction: {correction:.2f}")
added = (second - larger).exp().sum()
corrected = correction * total + added
print(f"in the unit of {larger}: {correction * total:.2f} + {added:.2f} = {corrected:.2f}")
print(f"weight of thirsty: {(scores[7] - larger).exp() / corrected:.2f}")

# %% tags=["proof"]
torch.testing.assert_close(corrected, (scores - larger).exp().sum())
print("✓ The corrected total is the total of all eight at once.")

# %% [markdown]
# The first total, 2.45, becomes 1.48 in the new unit; the second piece adds 1.88. The result, 3.36,
# is the same as if the largest score had been known from the start. *Thirsty* has the largest
# score, so its exponential is 1, and its weight is 1 / 3.36, or 0.30, as in [One head](01_one_head.ipynb).
#
# That is the whole idea, the **online softmax**. Here is the function that computes it, for all
# queries at once. At the first piece, where nothing has been seen yet, the largest
# score so far is minus infinity, so the correction is $e^{-\infty} = 0$, and it is multiplied with
# sums that are 0 as well. And a mask may hide all keys seen so far, so that the largest score is still minus
# infinity. Then $-\infty - (-\infty)$ would be NaN, and the unit is 0 instead.


# %%
def in_pieces(scores: Tensor, values: Tensor, size: int) -> Tensor:
    """Mix the values by the softmax of the scores, ``size`` keys at a time.

    Args:
        scores: (n, m), as large as they like.
        values: (m, d_v), one row per key.
    """
    largest = torch.full_like(scores[:, :1], -math.inf)  # (n, 1)
    total = torch.zeros_like(largest)                    # (n, 1)
    mix = values.new_zeros(len(scores), values.size(1))  # (n, d_v)
    for piece, some in zip(scores.split(size, 1), values.split(size)):
        larger = torch.maximum(largest, piece.amax(1, keepdim=True))  # (n, 1)
        unit = larger.masked_fill(larger == -math.inf, 0)             # (n, 1)
        correction = (largest - unit).exp()                           # (n, 1)
        powers = (piece - unit).exp()                                 # (n, ...)
        total = correction * total + powers.sum(1, keepdim=True)      # (n, 1)
        mix = correction * mix + powers @ some                        # (n, d_v)
        largest = larger                                              # (n, 1)
    return mix / total.masked_fill(total == 0, 1)                     # (n, d_v)


scores = keys @ keys.mT / 2  # (n, n)

# %% tags=["proof"]
for size in (1, 3, 4, 8):
    for shift in (0, 100):
        output = in_pieces(scores + shift, values, size)  # (n, d)
        torch.testing.assert_close(output, one.attend(keys, keys, values)[0])
    hidden = torch.ones_like(scores).bool().tril(3)  # the first pieces, or whole rows
    output = in_pieces(scores.masked_fill(hidden, -math.inf), values, size)
    x = keys[None]
    expected = F.scaled_dot_product_attention(x, x, x, ~hidden)[0]
    torch.testing.assert_close(output, expected)
print(
    "✓ 1, 3, 4 or 8 keys at a time: equal, with 100 added to every score and with a mask."
)

# %% [markdown]
# Any size of piece gives the output of `attend`, even with scores whose exponentials overflow. A
# piece without a larger score needs no special case: its correction is $e^0 = 1$. A fully masked row
# gets the output 0, as in PyTorch's function.
#
# The unit need not be the largest score. Any other near enough to it gives the same output, as long as no
# exponential overflows. And kernels keep both sums in float32, also where the inputs have half precision.

# %% [markdown] name="tiles"
# ## Tiles
#
# `in_pieces` was given scores that stood there already. To never hold all of them, compute each
# piece when it is needed, from a few queries and a few keys: a **tile** of scores. A tile of
# queries walks along the keys with its running numbers, is divided at the end, and is written down.
# Then the next tile of queries starts. With 64 queries and 64 keys, there are 4,096 scores at a
# time, however long the text is.
#
# Under a causal mask, some tiles lie entirely in the future. They are not computed at all.
#
# These are the tiles of the example sentence, two words wide, and the running numbers of the two
# queries that ask; the mix is that of the feature *animal*. Move on tile by tile, and
# watch when a correction is not 1. Then switch the causal mask on: tiles above the diagonal are never visited, and the
# mean of *it* changes, since two words are hidden.

# %% tags=["fold-input"]
display.tiles_visited(scores, values[:, 0], one.WORDS, name="tiles-visited", tile=2, step=9)

# %% [markdown]
# In the third row of tiles, *it* has the mean 1.32 again, after the last correction of 0.61. A
# correction of 0.00 belongs to the first tile of each row, where nothing has been collected yet.
#
# How much of the work does a causal mask save: a half, more, or less?
#
# <details><summary>What do you expect?</summary>
#
# Less than a half: the tiles on the diagonal are computed in full, although half of their scores
# are hidden. The smaller the tiles, the closer it comes to a half.
#
# </details>
#
# The figure draws what `tiles`, the package's list of tiles, gives for texts of 512 and of 4,096 tokens in
# tiles of 64. Filled tiles are visited; the dark ones are half hidden. (For other masks,
# PyTorch's FlexAttention takes a rule, and skips the tiles in which it shows nothing.)

# %% tags=["fold-input"]
from annotated_attention.modern.tiles import tiles

drawing, axes = display.panels(460, 270, columns=2)
for ax, along in zip(axes, (8, 64)):
    count, look = 0, {"color": display.COLOURS["n"], "lw": 0, "align": "edge"}
    for rows, visited in tiles(64 * along, 64 * along, True, 64):
        ax.barh(rows.start, visited[-1].start, 64, alpha=0.25, **look)
        ax.barh(rows.start, 64, 64, visited[-1].start, alpha=0.6, **look)
        count += len(visited)
    if along == 8:
        ax.grid(lw=0.7)
    ax.set_xticks(range(0, 64 * along, 64 * along // 8), [])
    ax.set_yticks(range(0, 64 * along, 64 * along // 8), [])
    ax.set(xlim=(0, 64 * along), ylim=(64 * along, 0), aspect="equal")
    ax.set(xlabel="keys", ylabel="queries" if along == 8 else "")
    title = f"{count:,} of {along**2:,}\n= {count / along**2:.2f}"
    ax.set_title(title, fontsize=12)
alt = "Under a causal mask, the tiles below the diagonal are visited, and those on it: "
alt += "; ".join(ax.get_title().replace("\n", " ") for ax in axes) + "."
display.finish(drawing, name="tiles-skipped", alt=alt)

# %% [markdown]
# With eight tiles along each side, 0.56 of the work is left; with 64, 0.51.
# This is why `is_causal` saved time in [Speed](15_speed.ipynb#cell-id=the-price-of-a-mask), and why a
# boolean mask with the same entries does not: a kernel would have to read it first. On CUDA, PyTorch's FlashAttention
# takes no such mask at all, and another kernel does the work.
#
# The loop has stayed, and its four versions changed what surrounds it:
#
# | FlashAttention | what is new |
# |---|---|
# | 1, [Dao et al. 2022](../docs/references.md#dao-2022) | tiles, two sums and a unit; keys in the outer loop; scores again on the way back |
# | 2, [Dao 2023](../docs/references.md#dao-2023) | queries in the outer loop, as here; divided once, at the end; the warps of a block share its queries |
# | 3, [Shah et al. 2024](../docs/references.md#shah-2024) | for the H100: some warps load while others multiply, exponentials beside products; FP8 |
# | 4, [FlashAttention's code](../docs/references.md#flash-attention-code) | for the newest GPUs: some exponentials as polynomials; a new unit only for a score well above the old one |
#
# `tiled_attention` of the package is this loop, with your lines from `in_pieces` inside. Read it, test against it, and
# let the kernel do the work: in Python, each line starts an operation of its own, and writes its result into memory.

# %% [markdown]
# <!-- deeper: The loop in the package -->
# ### Going deeper: The loop in the package
#
# `_scores` multiplies a tile of queries, already scaled, with a tile of keys, and applies the
# masks. `finite` is the unit. What `ctx` saves is for [the way back](#cell-id=the-way-back).

# %%
from annotated_attention.modern.tiles import _Tiled

display.annotated(_Tiled.forward)

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# Is it the same as PyTorch's function, with tiles that are not full, and masks that hide a whole row or add numbers?

# %% tags=["hide-input"]
from annotated_attention.modern import tiled_attention

torch.manual_seed(3)
sizes = {"q": (2, 3, 7, 4), "k": (2, 3, 5, 4), "v": (2, 3, 5, 6)}
q, k, v = (torch.randn(x, dtype=torch.float64, requires_grad=True) for x in sizes.values())
blocked = torch.rand(7, 5) < 0.4  # (n, m)
blocked[0] = True
bias = torch.randn(3, 7, 5, dtype=torch.float64)  # (h, n, m)
cases = {
    "no mask": ({}, {}),
    "causal": ({"is_causal": True}, {"is_causal": True}),
    "a fully masked row": ({"blocked": blocked}, {"attn_mask": ~blocked}),
    "a bias": ({"bias": bias}, {"attn_mask": bias}),
}

# %% tags=["proof"]
for ours, theirs in cases.values():
    expected = F.scaled_dot_product_attention(q, k, v, **theirs)  # (2, 3, 7, 6)
    gradients = one.gradients(expected, [q, k, v])
    for tile in (1, 2, 3, 4, 64):
        output, lse = tiled_attention(q, k, v, **ours, tile=tile)  # (2, 3, 7, 6), (2, 3, 7)
        torch.testing.assert_close(output, expected)
        torch.testing.assert_close(one.gradients(output, [q, k, v]), gradients)
print(f"✓ {', '.join(cases).capitalize()}: equal for every tile, gradients too.")

# %% [markdown]
# ## The mistake people make here
#
# Such a test, with random numbers, finds one of these two mistakes each time, and the other never. A larger score comes,
# and *both* sums on the slip have to be converted. In the first mistake one of them is forgotten: the total is corrected,
# the mix is not. The second seems harmless: the unit of the first piece is kept for all pieces. In exact arithmetic, it
# would even be right. Which is which?


# %% tags=["fold-input"]
def wrong(scores: Tensor, values: Tensor, size: int, mistake: str) -> Tensor:
    """Go through the keys in pieces, with a mistake."""
    largest = scores[:, :size].amax(1, keepdim=True)     # (n, 1)
    total = torch.zeros_like(largest)                    # (n, 1)
    mix = values.new_zeros(len(scores), values.size(1))  # (n, d_v)
    for piece, some in zip(scores.split(size, 1), values.split(size)):
        larger = torch.maximum(largest, piece.amax(1, keepdim=True))  # (n, 1)
        if mistake == "the first unit kept":
            larger = largest
        correction = (largest - larger).exp()                     # (n, 1)
        powers = (piece - larger).exp()                           # (n, ...)
        total = correction * total + powers.sum(1, keepdim=True)  # (n, 1)
        factor = 1 if mistake == "the mix not corrected" else correction
        mix = factor * mix + powers @ some  # (n, d_v)
        largest = larger                    # (n, 1)
    return mix / total                      # (n, d_v)


# %% [markdown]
# Four tests look for the two mistakes, with random scores. *As they are* compares the output with
# the right one. *Largest first* does the same, but each query's largest score stands in the first
# piece. For *ones*, all values are 1, so any mean of them is 1. For *100 later*, the last key gets
# a score of 100 more. Look for the tests that a mistake passes.

# %%
torch.manual_seed(4)
random, v = torch.randn(6, 12), torch.randn(12, 5)  # (6, 12), (12, 5)
sorted_scores, late = random.sort(1, descending=True).values, random.clone()
late[:, -1] += 100
tests = {
    "as they are": (random, v),
    "largest first": (sorted_scores, v),
    "ones": (random, torch.ones(12, 1)),
    "100 later": (late, v),
}

# %%
passes = {
    "the mix not corrected": ["largest first"],
    "the first unit kept": ["as they are", "largest first", "ones"],
}
rows = {mistake: [] for mistake in passes}
for mistake, passed in passes.items():
    for test, (s, x) in tests.items():
        off = (wrong(s, x, 4, mistake) - s.softmax(1) @ x).abs().max()
        assert (off < 0.01) == (test in passed)
        rows[mistake].append(off)
display.show(rows, columns=[*tests], corner="off by up to")

# %% [markdown]
# A mix without its correction fails three tests; it passes the one in which no correction is
# needed. The kept unit passes three, and gives NaN in the last.

# %% tags=["proof"]
caught = dict.fromkeys(passes, 0)
for _ in range(200):
    s, x = torch.randn(6, 12), torch.randn(12, 5)  # (6, 12), (12, 5)
    for mistake in caught:
        off = (wrong(s, x, 4, mistake) - s.softmax(1) @ x).abs().max()
        caught[mistake] += int(off > 0.01)
assert [*caught.values()] == [200, 0]
print("✓ Of 200 random comparisons, all catch the first mistake, and none the second.")

# %% [markdown]
# > **Pitfall.** A forgotten correction shows only where a later piece has a larger score. If the
# > first token gets the largest one, or all keys fit into one tile, the output is right. The kept unit is
# > right until one score is about 88 above the first piece (or many are nearly so: their sum overflows, too). Test with several tiles, with the
# > largest score in the last one, and with values that are all ones.

# %% [markdown] name="the-way-back"
# ## The way back
#
# Training needs gradients, and the gradient of the values is made from the weights:
# $\mathrm{weights}^\top$ times the gradient of the output. Step by step, autograd keeps the weights
# of the forward pass for this. The loop has not kept them. How does it get them back?
#
# It computes the scores of each tile a second time. This time no running numbers are needed, because total and unit
# of the whole row are known. Both fit into one number, the **log-sum-exp** of the scores,
#
# $$\mathrm{lse} = \log \sum_j e^{s_j} = c + \log \ell$$
#
# It stays near the largest score, so it cannot overflow, and a weight is $e^{s - \mathrm{lse}}$, in one step. So
# queries, keys, values and log-sum-exp are kept, and the output, from which the softmax's gradient gets one sum per
# row (derived in the fold below). That is all. The table counts the numbers that autograd really keeps, for one head
# of width 64.


# %% tags=["fold-input"]
def kept(run, n: int) -> int:
    """Count the numbers that a head of width 64 keeps for the backward pass."""
    inputs = [torch.randn(n, 64, requires_grad=True) for _ in range(3)]
    storages = {}

    def save(x: Tensor) -> Tensor:
        storages[x.untyped_storage().data_ptr()] = x, x.untyped_storage().nbytes() // 4
        return x

    with torch.autograd.graph.saved_tensors_hooks(save, lambda x: x):
        run(*inputs)
    return sum(numbers for _, numbers in storages.values())


def fused(*inputs: Tensor) -> Tensor:
    """Call PyTorch's function as models do, with axes for samples and heads."""
    return F.scaled_dot_product_attention(*(x[None, None] for x in inputs))


# %%
runs = {"step by step": one.attend, "in tiles": tiled_attention, "fused kernel": fused}
rows = {name: [kept(run, n) for n in (512, 1024, 2048)] for name, run in runs.items()}
display.show(rows, columns=["512", "1,024", "2,048"], corner="n")

# %% tags=["proof"]
growth = {name: numbers[2] / numbers[1] for name, numbers in rows.items()}
assert growth["step by step"] > 3
assert growth["in tiles"] == growth["fused kernel"] == 2
print("✓ Twice the tokens: twice the numbers in tiles, more than three times step by step.")

# %% [markdown]
# With twice the tokens, the loop and the fused kernel keep twice as many numbers: $4nd + n$. Step
# by step, $n^2$ of them are weights.
#
# What does this cost? One more matrix product: forward there are two, the scores and the mix; backward four, and the
# scores again make five. Seven instead of six is a sixth more arithmetic.

# %% tags=["proof"]
flops = []
for run in (one.attend, tiled_attention):
    inputs = [torch.randn(512, 64, requires_grad=True) for _ in range(3)]
    with FlopCounterMode(display=False) as counter:
        run(*inputs)[0].sum().backward()
    flops.append(counter.get_total_flops())
assert 6 * flops[1] == 7 * flops[0]
print("✓ PyTorch's counter of FLOPs: seven products in tiles, six step by step.")

# %% [markdown]
# <!-- deeper: The gradients, derived -->
# ### Going deeper: The gradients, derived
#
# Let P be the weights of one tile, V its values, and $\partial O$ the gradient of the output that
# arrives. With $O = PV$, the gradient of the values is $P^\top \partial O$, and that of the weights
# is $\partial P = \partial O\,V^\top$. Back through the softmax, the gradient of a score is its
# weight, times how far its $\partial P$ lies above the row's mean, where the weights themselves are
# the shares:
#
# $$\partial S_{ij} = P_{ij}\,\Big(\partial P_{ij} - \sum_k P_{ik}\,\partial P_{ik}\Big)$$
#
# The sum runs over *all* keys, not only those of the tile. It looks as if one more pass were
# needed. But $\sum_k P_{ik}\,(\partial O_i \cdot V_k) = \partial O_i \cdot \sum_k P_{ik} V_k =
# \partial O_i \cdot O_i$: the output that was kept knows this sum already [[Dao et al., appendix
# B.2](../docs/references.md#dao-2022)]. The code calls it `shift`. The log-sum-exp, which is an
# output, too, has the derivative $P_{ij}$, so its own gradient joins the bracket.

# %%
display.annotated(_Tiled.backward)

# %% tags=["proof"]
s = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)  # (n, m)
x = torch.randn(5, 4, dtype=torch.float64)                      # (m, d_v)
p = s.softmax(-1)                                               # (n, m)
output = p @ x                                                  # (n, d_v)
d_output = torch.randn_like(output)                             # (n, d_v)
shift = (d_output * output).sum(-1, keepdim=True)               # (n, 1)
by_hand = p * (d_output @ x.mT - shift)                         # (n, m)
(expected,) = torch.autograd.grad(output, s, d_output)
torch.testing.assert_close(by_hand, expected)
print("✓ The gradient of the scores, made in this way, is that of autograd.")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="roofline"
# ## Roofline: memory or arithmetic?
#
# So the loop does more arithmetic, and moves fewer bytes. (A kernel that runs the whole loop at once does. In Python,
# each line still writes its result.) Which of the two decides?
#
# First, count the bytes once more, less kindly. The ratio above took for granted that keys and values are fetched from
# HBM once. At worst, each tile of queries fetches them all again, and $2md$ becomes
# $2md \cdot \lceil n / \mathrm{tile} \rceil$. In practice, L2 stands between: tiles of queries that run at the same
# time read the same keys, and find them there. The cell has a layer of 16 heads of width 64, with two bytes for each
# number, and tiles of 128; the first line says that such a tile, with its sums in float32, fits. (Of the
# 192 kB, a block can have 163<!-- quoted --> as shared memory; kernels keep the sums in 256<!-- quoted --> kB of
# registers beside it.) The **intensity** is how many FLOPs of scores and mix there are for each byte.

# %%
E, H = 16 * 64, 16  # score_flops counts the FLOPs of scores and mix
tile = 4 * 128 * (128 + 64) + 2 * 3 * 128 * 64  # scores and mix; queries, keys, values
print("a tile of one head takes", short(tile, "B"))
rows = {}
for along in (512, 2048, 8192, 32768):
    sizes = [2 * attention_traffic(along, along, E, H, tile=x) for x in (None, 128, along)]
    intensity = [score_flops(along, along, E) / size for size in sizes]
    rows[f"{along:,}"] = [*(short(size, "B") for size in sizes[:2]), *intensity]
columns = ["bytes, step by step", "in tiles, at worst"]
columns += ["FLOPs a byte, step by step", "tiles, at worst", "tiles, at best"]
display.show(rows, columns=columns, decimals=",.0f", corner="n")

# %% [markdown]
# One line explains the intensities: with n = m large, 4n²d FLOPs over 8n² bytes is d / 2 step by step, here
# 32; in tiles, at worst, it is the tile's size, 128, and at best n / 2.
#
# And the machine? While HBM brings one byte, an A100 can do 312 / 2 = 156 FLOPs. Step by step
# there are only 32, so most of the time the processors wait for memory. In tiles, at
# worst and at 8,192 tokens, there are 126. To reach 156, a fifth of the bytes (1 − 126 / 156) must come from L2 instead
# of HBM, and nearly all of the reading is repeated: the wait is over. For whole texts, FlashAttention is limited by
# arithmetic. On newer GPUs that includes the **exponentials**, which no FLOP here counts: an H100 takes
# 3.9<!-- quoted --> T a second, beside 989<!-- quoted --> TFLOPs of matrices. With a width of 128, the
# exponentials need about half the time of the products [[Shah et al.](../docs/references.md#shah-2024)].
#
# Such a sum can be drawn for any machine: its **roofline** [[Williams et
# al.](../docs/references.md#williams-2009)]. The more FLOPs a program does for each byte, the farther
# right it stands. Under the slope, memory is the limit; under the flat part, arithmetic is. The figure has the A100,
# an H100 (SXM) [[Shah et al.](../docs/references.md#shah-2024)] dotted, and attention alone, on paper: 8,192
# tokens at once (**prefill**), step by step and in tiles, and one new token (**decode**) with three ways to share
# keys from [the last chapter](22_fewer_keys.ipynb#cell-id=a-summary-instead-of-a-catalogue).


# %% tags=["fold-input"]
def draw_roof(
    ax, bandwidth: float, peak: float, ends: tuple, low: float, unit: str
) -> None:
    """Draw what memory and arithmetic allow."""
    first, last = ends
    along = [first, peak / bandwidth, last]
    heights = [min(x * bandwidth, peak) for x in along]
    ax.plot(along, heights, color=display.COLOURS["b"], lw=1.2, zorder=1.5)
    ax.set(xscale="log", yscale="log", xlim=ends, ylim=(low, 3 * peak))
    ax.set(xlabel="FLOPs for each byte", ylabel=f"{unit}FLOPs a second")
    for axis, (start, end) in ((ax.xaxis, ends), (ax.yaxis, (low, 3 * peak))):
        ticks = [x for x in (1, 10, 100, 1000) if start < x < end]
        axis.set_ticks(ticks, [f"{x:,}" for x in ticks])
    ax.minorticks_off()


# %% tags=["fold-input"]
sharing = chapters.load("22_fewer_keys")
reads, does = sharing.GPUS["A100"]
places = {}
named = {"each head": "each head its own", "GQA": "GQA, 8 KV heads", "MLA": "MLA, absorbed"}
for name, way in named.items():
    h, wide, _, kept = sharing.WAYS[way]
    places[name] = h * wide / kept
traffic = [2 * attention_traffic(8192, 8192, E, H, tile=x) for x in (None, 128, 8192)]
step, worst, best = (score_flops(8192, 8192, E) / size for size in traffic)
edge, tiled = does / reads, f"in tiles {worst:.0f} to {best:,.0f}"
pale_reads, pale_does = sharing.GPUS["H100"]
pale_edge = pale_does / pale_reads
places["step by step"] = step
assert [f"{x:.0f}" for x in places.values()] == ["1", "16", "242", "32"]

# %% tags=["fold-input"]
drawing, (ax,) = display.panels(345, 290)
draw_roof(ax, reads, does, (0.5, 9000), 1, "T")
pale = [0.5, pale_edge, 9000]
heights = [0.5 * pale_reads, pale_does, pale_does]
ax.plot(pale, heights, ":", color=display.COLOURS["b"], lw=1.2)
ax.text(9000, 1.12 * pale_does, f"H100, edge at {pale_edge:.0f}", ha="right", fontsize=12)
ax.set_ylim(1, 2500)
wide_bar = {"color": display.COLOURS["h"], "lw": 7, "alpha": 0.45}
ax.plot([worst, edge, best], [worst * reads, does, does], **wide_bar)
under = {"xytext": (0, -19), "textcoords": "offset points", "ha": "center", "fontsize": 12}
ax.annotate(tiled, (800, does), **under)
looks = {"each head": (9, -9), "GQA": (9, -9), "MLA": (7, 9), "step by step": (9, -9)}
for name, x in places.items():
    letter, marker = "hs" if name == "step by step" else "no"
    y, (right, up) = min(x * reads, does), looks[name]
    ax.plot(x, y, marker, color=display.COLOURS[letter], markersize=7)
    side = {"ha": "right" if right < 0 else "left" if right else "center"}
    at = {"xytext": (right, up), "textcoords": "offset points", "fontsize": 12, **side}
    ax.annotate(f"{name} {x:.0f}", (x, y), **at)
for letter, marker, name in (("n", "o", "decode"), ("h", "s", "prefill")):
    ax.plot([], [], marker, color=display.COLOURS[letter], label=name)
ax.legend(loc="lower right", frameon=False, fontsize=12)
said = ", ".join(f"{name} {x:.0f}" for name, x in places.items())
alt = f"A roofline of an A100, whose edge is at {edge:.0f} FLOPs a byte. {said}; {tiled}. "
alt += f"Above it that of an H100, whose edge is at {pale_edge:.0f}."
display.finish(drawing, name="roofline", alt=alt)

# %% [markdown]
# The edge of the A100 is at 156. In prefill, the bar of the tiles begins a little left of it, where each tile of
# queries would fetch everything again, and ends far to the right. In decode no tile helps: there is one query, and
# the intensity is how often a number of the cache is used once it has been read. That is 1 with keys for each
# head, the size of the group with GQA (a kernel packs its queries into one tile), and 242 with MLA: right of the edge of an A100, left of an H100's.

# %% [markdown]
# <!-- deeper: A whole language model, measured -->
# ### Going deeper: A whole language model, measured
#
# The same picture of a processor: the one of [The cache](21_cache.ipynb#cell-id=bytes-over-bandwidth), in
# float32, with a whole language model that reads a prompt or writes one more token. Both read the same weights. How
# many times as many FLOPs a second does a prompt of 128 tokens get?

# %% tags=["fold-input"]
cache = chapters.load("21_cache")
(reading,) = measured.find("bandwidth", precision="float32")
bandwidth = 4 * 2**28 / reading["milliseconds"]["read"][1] / 1e6  # GB a second
(product,) = measured.find("peak")
peak = 2 * 4096**3 / product["milliseconds"]["multiply"][1] / 1e6  # of large matrices
kinds = {
    "decoding": "one more token, behind 16, 400 or 2,000",
    "prefill": "a prompt of 128, 512 or 2,048 tokens",
}
found = {kind: [] for kind in kinds.values()}
for section, kind in kinds.items():
    for row in measured.find(section, precision="float32"):
        flops, numbers = cache.work(row["size"][1], row["kept"])
        took = row["milliseconds"]["language model"][1]
        roof = min(peak, bandwidth * flops / numbers / 4)
        assert flops / took / 1e6 < roof
        found[kind].append((flops / numbers / 4, flops / took / 1e6))
(_, single), (_, prompt) = (places[0] for places in found.values())
few, *_, most = measured.find("decoding", precision="float32")
more = [a - b for a, b in zip(cache.work(1, most["kept"]), cache.work(1, few["kept"]))]
took = most["milliseconds"]["language model"][1] - few["milliseconds"]["language model"][1]
found["its attention alone"] = [(more[0] / more[1] / 4, more[0] / took / 1e6)]

# %% tags=["fold-input"]
drawing, (ax,) = display.panels(345, 300)
draw_roof(ax, bandwidth, peak, (0.2, 2000), 0.3, "G")
looks = zip((("n", "o"), ("h", "s"), ("m", "^")), found.items())
for (letter, marker), (kind, places) in looks:
    style = {"color": display.COLOURS[letter], "markersize": 7, "label": kind}
    ax.plot([x for x, _ in places], [y for _, y in places], marker, **style)
ax.legend(loc="lower right", frameon=False, fontsize=12)
told = "; ".join(
    f"{name}: "
    + ", ".join(f"{x:.1f} FLOPs a byte, {y:.0f} GFLOPs a second" for x, y in places)
    for name, places in found.items()
)
alt = f"A roofline that rises to {peak:.0f} GFLOPs a second. {told}."
display.finish(drawing, name="roofline-measured", alt=alt)

# %%
ratio = prompt / single
print(f"one more token {single:.1f}, prompt {prompt:.0f} GFLOPs a second: × {ratio:.0f}")

# %% [markdown]
# For one token, each weight is read for one multiplication and one addition, half a FLOP a byte in
# float32. No processor, however fast, gets more out of that than its memory allows. The 128 tokens of
# the prompt share what is read, and stand under the flat part. (Counted are weights, keys and values, each
# once, and not the states between layers.) The triangle is attention alone: what 2,000 kept tokens take
# longer than 16. A number of the cache has four bytes, and three query heads use it for two FLOPs each: 6 / 4 is
# 1.5 FLOPs a byte. The triangle stands far below the slope because this cache, when it grows, copies all that it
# keeps.
#
# <!-- /deeper -->

# %% [markdown]
# A server decodes for many texts at once, a **batch**, and each *weight* that is read serves all of them. But each
# text has a cache of its own. Unless texts begin alike, and what they share is read once, the round points stay where
# they are, however many texts there are. So a batch gives more tokens a second, though no text gets its next token
# sooner. Fewer keys and fewer bits make decode itself faster; prefill gains from less arithmetic, and from tiles,
# which keep the scores out of the bytes.

# %% [markdown] name="two-halves-merged"
# ## Two halves, merged: split-KV, ring attention
#
# In decode, one query walks along all the keys of its cache, tile after tile. An A100 has 108 processors, and with few
# heads and few texts most of them have nothing to do. So let two processors share the keys of one query, half each.
# Each returns the output for its half. What else has to come with it, so that the two outputs can be merged?
#
# <details><summary>What do you expect?</summary>
#
# The total of each half, with its unit. The mean of a school is not the mean of the classes' means,
# as long as the classes differ in size: each class counts as much as it has pupils.
#
# </details>
#
# Total and unit are one number, the log-sum-exp, and `tiled_attention` returns it beside the output. The share of a
# part p in the whole is its total divided by all totals. Written with logarithms, this is a *softmax* over the parts:
#
# $$\mathrm{output} = \sum_p \frac{e^{\mathrm{lse}_p}}{\sum_r e^{\mathrm{lse}_r}}\ \mathrm{output}_p$$

# %%
from annotated_attention.modern import merge_parts

parts = [tiled_attention(keys, half, half) for half in keys.split(4)]
outputs, lses = (torch.stack(part) for part in zip(*parts))  # (2, n, d), (2, n)
output, lse = merge_parts(outputs, lses)                     # (n, d), (n,)
logs = torch.stack([*lses, lse])[:, it]                      # (3,)
table = torch.stack([logs.exp(), logs, (logs - lse[it]).exp()], 1)
display.show(table, ["the … milk", "because …", "merged"], ["total", "log", "share"])

# %% tags=["proof"]
torch.testing.assert_close(output, one.attend(keys, keys, values)[0])
torch.testing.assert_close(lse, (keys @ keys.mT / 2).logsumexp(1))
print("✓ Merged, the parts give the output of all keys at once.")

# %% [markdown]
# The totals are those of the first table: 10.96 of 24.83 is a share of 0.44. The loop's own step is this rule, too,
# with two parts: all that came so far, and the new piece. But there each piece waits for the one before, and with
# `merge_parts` none waits for another. Two methods rest on that:
#
# - **Split-KV** (flash-decoding): a single new query meets a long [cache](21_cache.ipynb). Many
#   processors take a part of the keys each, and the results are merged.
# - **Ring attention** (context parallelism): a text is too long for one device. Each keeps its part
#   of the queries, and the parts of keys and values go round from device to device, until each has
#   met them all [[Liu et al. 2023](../docs/references.md#liu-2023)]. While a device computes with one part, the
#   next is on its way, so with long parts the transfer costs no time.

# %% tags=["proof"]
devices = [(part, part, part) for part in keys.split(2)]  # queries, keys and values of each
merged = []
for place, (asking, _, _) in enumerate(devices):
    ring = devices[place:] + devices[:place]  # its own part, then what comes round
    parts = [tiled_attention(asking, *held[1:]) for held in ring]
    merged.append(merge_parts(*(torch.stack(part) for part in zip(*parts)))[0])
torch.testing.assert_close(torch.cat(merged), one.attend(keys, keys, values)[0])
print("✓ Ring attention: four devices, here one after another, give what one device gives.")

# %% [markdown]
# On paper, the number of parts and their order change nothing. In floats they change how sums are rounded, and
# with it the last bits: a server that cuts the keys into more parts when it has fewer texts may answer
# the same text a little differently.

# %% [markdown]
# <!-- deeper: Ring attention, balanced -->
# ### Going deeper: Ring attention, balanced
#
# In each round all devices wait for the slowest. Is a causal mask good news here, since half of the work falls away?
# The figure has a row for each device, with its queries, and a column for each round. The number is the part of the
# keys that it holds: from round to round, each part goes one device down. The bar is the work, the visible scores.

# %% tags=["fold-input"]
place = torch.arange(64)
early, late = place.view(8, 8).split(4)  # (4, 8), (4, 8)
orders = {
    "in order": place.view(4, 16),
    "striped": place.view(16, 4).T,
    "zigzag": torch.cat([early, late.flip(0)], 1),
}
works, rows = {}, {}
for name, held in orders.items():  # the tokens of each device
    seen = held[:, None, :, None] >= held[:, None]      # (4, 4, 16, 16)
    works[name] = work = seen.sum((2, 3)) / seen.sum()  # (4, 4), of a device with each part
    rounds = [max(work[i, i - r] for i in range(4)) for r in range(4)]
    rows[name] = [*work.sum(1), 4 * sum(rounds)]

# %% tags=["fold-input"]
drawing, axes = display.panels(500, 280, columns=2)
for ax, name in zip(axes, ("in order", "zigzag")):
    for device, turn in torch.cartesian_prod(torch.arange(4), torch.arange(4)).tolist():
        held = (device - turn) % 4
        high = 0.9 * works[name][device, held] / works["in order"].max()
        look = {"color": display.COLOURS["n"], "lw": 0}
        ax.bar(turn + 0.14, -high, 0.56, device + 0.45, **look)
        look = {"ha": "center", "fontsize": 12, "color": display.COLOURS["m"]}
        ax.text(turn - 0.32, device + 0.45, held + 1, **look)
    ax.set(xlim=(-0.5, 3.5), ylim=(3.5, -0.5), aspect="equal")
    ax.set(xlabel="round", ylabel="device" if name == "in order" else "")
    ax.set_xticks(range(4), range(1, 5))
    ax.set_yticks(range(4), range(1, 5))
    ax.tick_params(length=0)
    ax.set_title(f"{name}\ntime {rows[name][-1]:.2f}", fontsize=12)
alt = "Four devices in four rounds, and their work. In order, device 1 works in the first "
alt += "round only, and device 4 in all; in zigzag, all work alike. "
alt += "; ".join(ax.get_title().replace("\n", ": ") for ax in axes) + "."
display.finish(drawing, name="ring", alt=alt)

# %% tags=["fold-input"]
display.show(rows, columns=[*range(1, 5), "time"], corner="share of device")

# %% [markdown]
# Not in order. The first device has finished after one round, the last has 0.43 of the work, and everything takes
# 1.74 times as long as work that is spread evenly. So tokens are dealt out like cards (**striped** [[Brandon et al.
# 2023](../docs/references.md#brandon-2023)]), or each device takes an early and a late piece (**zigzag**), as in the
# training of Llama 3, where no ring turns: each device first gathers the keys and values of all [[Llama Team,
# section 3.3.2](../docs/references.md#llama-2024)].
#
# <!-- /deeper -->

# %% [markdown]
# ## Exercises
#
# ### One more piece
#
# *Easy, 2 minutes.* A head of one feature has seen its first piece. The largest score is 3, the
# total is 2 and the mix is 6, both in the unit of 3. Now a piece with two keys comes. Both have the
# score 4, and both values are 1. Write down the correction, the new total, the new mix and the
# output. A formula such as `math.exp(-1)` will do.

# %% tags=["exercise"]
my_numbers = [
    None,  # the correction
    None,  # the total
    None,  # the mix
    None,  # the output
]

# %%
from annotated_book import exercises

exercises.tiles.check_numbers(my_numbers)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The correction is $e^{c - c'}$, with the old unit 3 and the new unit 4.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# In the new unit, each of the two keys adds $e^{4 - 4} = 1$ to the total, and 1 times its value to
# the mix.
#
# </details>

# %% tags=["solution"]
change = math.exp(3 - 4)
my_numbers = [change, 2 * change + 2, 6 * change + 2, (6 * change + 2) / (2 * change + 2)]

exercises.tiles.check_numbers.folded(my_numbers)

# %% [markdown]
# ### Write the correction
#
# *Medium, 6 minutes.* Write the body of the loop. Given the running numbers of n queries, and the
# scores and values of the next piece, none of them masked, return the new running numbers: the largest
# score, the total and the mix. At the first piece, `largest` is minus infinity and the sums are zero.


# %% tags=["exercise"]
def add_piece(
    largest: Tensor, total: Tensor, mix: Tensor, scores: Tensor, values: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Go on with one piece of keys.

    Args:
        largest: (n, 1), the largest score so far.
        total: (n, 1), the sum of the exponentials so far, in the unit of ``largest``.
        mix: (n, d_v), the sum of the values so far, each times its exponential.
        scores: (n, size), those of the piece.
        values: (size, d_v), those of the piece.
    """
    ...


# %%
exercises.tiles.check_add_piece(add_piece)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# First the new unit: `torch.maximum(largest, scores.amax(-1, keepdim=True))`.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Total and mix are converted by the same factor, before anything is added.
#
# </details>


# %% tags=["solution"]
def add_piece(
    largest: Tensor, total: Tensor, mix: Tensor, scores: Tensor, values: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Go on with one piece of keys."""
    larger = torch.maximum(largest, scores.amax(-1, keepdim=True))
    correction, powers = (largest - larger).exp(), (scores - larger).exp()
    total = correction * total + powers.sum(-1, keepdim=True)
    return larger, total, correction * mix + powers @ values


exercises.tiles.check_add_piece.folded(add_piece)

# %% [markdown]
# ## More exercises
#
# ### Merge two halves
#
# *Medium, 6 minutes.* Two halves of the keys gave two outputs and two log-sum-exps. Write the
# output for all keys, without a function of the package. The log-sum-exps may be large, so take no
# exponential of them as they are.


# %% tags=["exercise"]
def merge_halves(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> Tensor:
    """Merge the outputs of two halves.

    Args:
        out_a: (n, d_v), the output for the first half.
        lse_a: (n,), its log-sum-exps.
        out_b: (n, d_v), the output for the second half.
        lse_b: (n,), its log-sum-exps.
    """
    ...


# %%
exercises.tiles.check_merge_halves(merge_halves)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The share of a half is its total, divided by both totals. What is that, written with logarithms?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `torch.stack([lse_a, lse_b]).softmax(0)` gives both shares, and subtracts the larger first.
#
# </details>


# %% tags=["solution"]
def merge_halves(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> Tensor:
    """Merge the outputs of two halves."""
    share_a, share_b = torch.stack([lse_a, lse_b]).softmax(0)[..., None]
    return share_a * out_a + share_b * out_b


exercises.tiles.check_merge_halves.folded(merge_halves)

# %% [markdown]
# ## What you have now
#
# > **In short.** With $c' = \max(c, \max_j s_j)$ for each piece of keys:
# > $\ell' = e^{c - c'}\,\ell + \sum_j e^{s_j - c'}$ and $O' = e^{c - c'}\,O + \sum_j e^{s_j - c'} v_j$.
# > At the end, the output is $O / \ell$ and the log-sum-exp $c + \log \ell$. Parts are merged by a softmax of
# > their log-sum-exps.
# >
# > The unit $c$ and the total $\ell$ are `(n, 1)`, the mix $O$ is `(n, d_v)`, and a tile of scores is
# > `(tile, tile)`: no `(n, m)` anywhere.
# >
# > ```python
# > larger = torch.maximum(largest, scores.amax(-1, keepdim=True))
# > unit = larger.masked_fill(larger == -math.inf, 0)  # no visible key so far
# > correction, powers = (largest - unit).exp(), (scores - unit).exp()
# > total = correction * total + powers.sum(-1, keepdim=True)
# > mix = correction * mix + powers @ values  # the same correction
# > largest = larger
# > ```
# >
# > A mean needs two sums, not its summands. Convert both when the unit changes. The backward pass computes the
# > scores again from what is kept, so memory grows with $n$; on a GPU, the traffic that this saves counts for more
# > than the arithmetic that it adds. A program with fewer FLOPs for each byte than the machine can do waits for memory.
#
# [The next chapter](24_windows.ipynb) leaves most of the tiles out: it asks what a token may safely
# not look at.
