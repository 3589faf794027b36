# %% [markdown]
# # Tiles
#
# *Why does the fused kernel need no (n, m) matrix?*
#
# *20 minutes and 8 of exercises. Afterwards you can compute a softmax in pieces, merge the results of
# two devices, and say what limits a kernel.*
#
# You know this as **FlashAttention**: the output of attention, without its matrix of scores. For a text of 8,192
# tokens, that matrix has more than 67 million numbers in each head. The kernel computes a **tile** of it, say 64
# queries by 64 keys, uses it, and forgets it before the next [[Dao et al.](../docs/references.md#dao-2022)].
#
# But a softmax wants the whole row. Here is the book's example sentence, *the cat drank milk because it was thirsty*,
# in tiles of two words by two; each word's embedding serves as query, key and value. So far, *it* has met *the* and
# *cat* alone. A softmax over these two scores gives *cat* a weight of 0.82. Among all eight words, *cat* gets 0.18.
# And when *thirsty* comes, the two scores are gone.
#
# Can later tiles undo the first one's softmax without seeing its scores again? How many numbers does that take for
# each query: one for each key, one for each tile, or a fixed number?
#
# <details><summary>What do you expect?</summary>
#
# They can, and a fixed number is enough, however long the text is: the mix of the values, one sum, and the unit in which both are
# written. Of a softmax, nothing is lost but what it has divided by.
#
# </details>
#
# Move on, tile by tile. The last column is what *it* collects of the feature *animal*: 2.45 after its first tile. After
# its fourth it is 1.32, what the softmax over all eight words gives in [One
# head](01_one_head.ipynb#cell-id=weights-shares-of-one-whole).

# %% tags=["hide-input"]
import math

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from annotated_attention.counting import attention_traffic, score_flops, short
from annotated_book import chapters, display, measured

# %% tags=["fold-input"]
one = chapters.load("01_one_head")
keys = values = one.EMBEDDINGS  # (m, d)
scores = keys @ keys.mT / 2     # (n, m)
display.tiles_visited(
    scores, values[:, 0], one.WORDS, name="tiles-visited", tile=2, step=12
)

# %% [markdown]
# ## What a softmax divides by
#
# A school wants the mean mark of its pupils, and each class hands in its own mean. Is the mean of these means
# the right one? Only if the classes are equally large. So let each class hand in a second number: how many pupils it has.
#
# A tile is such a class. The cell gives each of the four a softmax of its own, for the query *it*. The **total** is what this softmax
# divides by, the sum of the tile's exponentials, and *share* is the total divided by all totals.

# %%
it, rows = one.WORDS.index("it"), {}
powers = scores[it].exp()  # (m,)
for start in range(0, 8, 2):
    tile = powers[start : start + 2]  # (2,)
    inside, share = tile[1] / tile.sum(), tile.sum() / powers.sum()
    name = ", ".join(one.WORDS[start : start + 2])
    rows[name] = [inside, tile.sum(), share, inside * share]
rows["all eight"] = ["", powers.sum(), 1.0, ""]
columns = ["weight of its second word", "total", "share", "weight × share"]
display.show(rows, columns=columns, corner="tile")

# %% [markdown]
# Four tiles, and four winners: *cat*, *milk* and *it* with 0.82 each, *thirsty* with 0.88. They cannot all be right, and none
# of them is wrong: each is right within its tile. What is missing is the size of the class. The first tile's total is 5.48
# of 24.83, a share of 0.22, and 0.82 × 0.22 is the right weight, 0.18. That undoes the softmax. (The figure has smaller totals: it
# writes them in a [unit](#cell-id=change-the-unit), which changes no share.) What
# holds for a weight holds for a mean of values with these weights, so the outputs are merged in the same way:
#
# $$\mathrm{output} = \sum_p \frac{\ell_p}{\sum_r \ell_r}\ \mathrm{output}_p
# \qquad\text{with}\qquad \ell_p = \sum_{j \text{ in } p} e^{s_j}$$
#
# Here $s_j$ is the score of key j, already divided by $\sqrt d$, and $\ell_p$ is the total of part p.
#
# On paper this is all. On a machine the totals are too large, and sooner than one would think. What is the largest score
# whose exponential a float can hold?

# %%
powers = torch.tensor([101.0, 100.0]).exp()  # (2,)
print(powers.tolist(), "->", (powers / powers.sum()).tolist())
dtypes = (torch.float16, torch.bfloat16, torch.float32)
rows = {str(dtype): [math.log(torch.finfo(dtype).max)] for dtype in dtypes}
display.show(rows, columns=["scores up to"], decimals=1)

# %% [markdown] name="two-halves-merged"
# ## One rule: merge
#
# In float16 a score of 12 is too much; in float32 a score of 100 is infinite, and infinity divided by infinity is NaN. So
# keep the logarithm of the total, the **log-sum-exp**, which stays near the largest score. Then the
# shares are a *softmax over the parts*, and PyTorch's softmax does not overflow: it first subtracts the largest.
#
# $$\mathrm{output} = \sum_p \frac{e^{\mathrm{lse}_p}}{\sum_r e^{\mathrm{lse}_r}}\ \mathrm{output}_p$$
#
# The package has the rule as `merge_parts`. Apart from fully masked rows, it is a softmax and a sum:

# %%
from annotated_attention.modern import merge_parts, tiled_attention

display.annotated(merge_parts)

# %% tags=["proof"]
for size in (2, 4):
    parts = [tiled_attention(keys, part, part) for part in keys.split(size)]
    outputs, lses = (torch.stack(part) for part in zip(*parts))  # (..., n, d), (..., n)
    output, lse = merge_parts(outputs, lses)                     # (n, d), (n,)
    torch.testing.assert_close(output, one.attend(keys, keys, values)[0])
    torch.testing.assert_close(lse, scores.logsumexp(1))
print("✓ Two halves or four quarters: merged, they give the output of all keys at once.")

# %% tags=["proof"]
output, lse = tiled_attention(keys, keys[:2], keys[:2])  # (n, d), (n,)
for part in keys[2:].split(2):
    more = tiled_attention(keys, part, part)
    both = zip((output, lse), more)
    output, lse = merge_parts(*(torch.stack(pair) for pair in both))
torch.testing.assert_close(output, one.attend(keys, keys, values)[0])
print("✓ So they do when each is merged into what came before, and forgotten.")

# %% [markdown]
# Three methods that you know by name are this rule, and differ in who holds the parts:
#
# | method | the parts | merged |
# |---|---|---|
# | **FlashAttention** | tiles, on one processor | one after another, as they come |
# | **Split-KV** (flash-decoding) | a long [cache](21_cache.ipynb) cut up, on many processors | at the end |
# | **Ring attention** (context parallelism) | keys and values of many devices, which go round | as they arrive |
#
# In decode one query walks along all its keys. An A100 has 108 processors, and with few heads and few texts most
# of them have nothing to do: hence split-KV. A ring is for texts too long for one device. Each device keeps its part of
# the queries, and while it computes with one part of the keys, the next is on its way [[Liu et al.
# 2023](../docs/references.md#liu-2023)].

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
# On paper, neither the number of parts nor their order changes anything. In floats it changes the last bits: a server
# that cuts the keys into more parts when it has fewer texts may answer the same text a little differently.

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

# %% [markdown] name="change-the-unit"
# ## Online softmax: merge as you go
#
# FlashAttention merges each tile into what it has. To divide once only, at the end, it keeps
# both sums undivided: the total $\ell$, and the **mix** $O$, the values times their exponentials. Against overflow
# it writes both in a *unit*, the largest score c so far: $e^{s-c}$ is never above 1, and no weight changes, because $e^{s-c} = e^s / e^c$.
#
# Now a tile comes with a larger score, c′. Every exponential that was written down as $e^{s - c}$ should have been
# $e^{s - c'}$. The two differ by the same factor for all keys, $e^{c - c'}$, the **correction**. So multiply both
# sums by it, and go on [[Milakov and Gimelshein](../docs/references.md#milakov-2018)]:
#
# $$\ell' = e^{c - c'}\,\ell + \sum_j e^{s_j - c'} \qquad O' = e^{c - c'}\,O + \sum_j e^{s_j - c'} v_j$$
#
# The sums run over the new keys, and $v_j$ is the value of key j. In the figure above, the last tile of *it* brings the
# score 2 where the largest was 1.5, and the correction is 0.61. A tile without a larger score needs no special
# case: its correction is $e^0 = 1$. (The papers write the unit as m, which in this book is the number of keys.)
#
# This is the **online softmax**, for all queries at once. At first the largest score is minus infinity, so the
# correction is 0. If a mask hides all keys seen so far, it still is, and $-\infty - (-\infty)$ would be NaN; the unit is 0 instead.


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

# %% [markdown] name="tiles"
# ## Tiles
#
# `in_pieces` was given scores that stood there already. To never hold all of them, compute each tile of scores when it is
# needed. A tile of queries walks along the keys with its running numbers, is divided at the end, and is written
# down; then the next tile of queries starts. With 64 queries and 64 keys, 4,096 scores are there at a time, however
# long the text is.
#
# Under a causal mask some tiles lie entirely in the future, and are never computed (switch the mask on, in the figure
# above). How much of the work does that save: a half, more, or less?
#
# <details><summary>What do you expect?</summary>
#
# Less than a half: the tiles on the diagonal are computed in full, although nearly half of their scores
# are hidden. The smaller the tiles, the closer it comes to a half.
#
# </details>
#
# Texts of 512 and of 4,096 tokens, in tiles of 64. Filled tiles are visited; the dark ones are partly hidden.

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
# With eight tiles along each side, 0.56 of the work is left; with 64, 0.51. This is why `is_causal` saved time in
# [Speed](15_speed.ipynb#cell-id=the-price-of-a-mask), and why a boolean mask with the same entries does not: a kernel
# would have to read it first. On CUDA, PyTorch's FlashAttention takes no such mask at all, and another kernel does the
# work. (For other masks, PyTorch's FlexAttention takes a rule, and skips the tiles in which it shows nothing.)
#
# `tiled_attention` of the package is this loop, with the lines of `in_pieces` inside. Read it, test against it, and
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

# %% tags=["hide-input"]
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
# and *both* sums have to be converted. In the first mistake one of them is forgotten: the total is corrected,
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
# of the whole row are known, and both fit into the log-sum-exp, $\mathrm{lse} = c + \log \ell$. A weight is
# $e^{s - \mathrm{lse}}$, in one step. So queries, keys, values and log-sum-exp are kept, and the output, from which the softmax's gradient gets one sum per
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
# So tiles do more arithmetic. Yet [Dao et al., figure 2](../docs/references.md#dao-2022) measured the attention of a
# GPT-2 on an A100, forward and backward: 41.7<!-- quoted --> ms step by step, 7.3<!-- quoted --> ms with
# FlashAttention. What is saved is the way to memory. A GPU has three that matter here, and the larger one is, the slower it is.

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
# clock. The 312 count the multiplications and additions of dense matrices in half precision.
#
# Step by step, attention is three programs: scores, softmax, mix. Scores are written to the large memory and read
# again, then weights are written and read. In tiles, neither leaves the small memory. One head of width d moves so
# many numbers:
#
# $$\underbrace{2\,(n + m)\,d}_{\text{queries, keys, values, output}} + \underbrace{4\,n\,m}_{\text{scores, weights}}$$
#
# $$\text{in tiles, at best: } \quad 2\,(n + m)\,d + n$$
#
# (The last n is one log-sum-exp a query, for the way back.) Guess the ratio for 8,192 tokens and a width of 64. And why not
# keep whole rows of scores in the small memory, instead of tiles?

# %%
# numbers moved, 2 bytes each; tile=None: step by step, tile=n: keys are read once
steps, best = (2 * attention_traffic(8192, 8192, 64, 1, tile=x) for x in (None, 8192))
times = steps / best
print(f"step by step {short(steps, 'B')}, in tiles {short(best, 'B')}: × {times:.0f}")
row = 4 * 8192  # the scores of one query, in float32
print(f"scores of one query: {short(row, 'B')}, of 64 queries: {short(64 * row, 'B')}")

# %% [markdown]
# More than a hundred times as many bytes, and nearly all of them are numbers that nobody asked for. Whole rows do not fit:
# those of 64 queries take 2.10 MB, and there are 192 kB.
#
# Which of the two limits a program is drawn as its **roofline** [[Williams et al.](../docs/references.md#williams-2009)].
# The more FLOPs it does for each byte, its **intensity**, the farther right it stands. Under the slope memory is the limit, under the
# flat part arithmetic. The figure has the A100, dotted an H100 (SXM) [[Shah et
# al.](../docs/references.md#shah-2024)], and attention alone, on paper: 8,192 tokens at once (**prefill**), step by step and in tiles of 128, and one new
# token (**decode**) with three ways to share keys from [the last
# chapter](22_fewer_keys.ipynb#cell-id=a-summary-instead-of-a-catalogue).


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
E, H = 16 * 64, 16  # a layer of 16 heads of width 64
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
# While HBM brings one byte, an A100 can do 312 / 2 = 156 FLOPs: there is its edge. Step by step there are only d / 2, here
# 32, so most of the time the processors wait for memory. In prefill, the bar of the tiles begins a little left of
# the edge, where each tile of queries would fetch all keys again, and ends far to the right. L2 has to bring only a fifth of
# those bytes (see the fold), and then FlashAttention is limited by arithmetic. In decode no tile helps: there is one query, and
# the intensity is how often a number of the cache is used once it has been read. That is 1 with keys for each
# head, the size of the group with GQA (a kernel packs its queries into one tile), and 242 with MLA: right of the edge of an A100, left of an H100's.
#
# A server decodes for many texts at once, and each *weight* that is read serves all of them. But each
# text has a cache of its own. Unless texts begin alike, and what they share is read once, the round points stay where
# they are, however many texts there are.
#
# | FlashAttention | what is new |
# |---|---|
# | 1, [Dao et al. 2022](../docs/references.md#dao-2022) | tiles, two sums and a unit; keys in the outer loop; scores again on the way back |
# | 2, [Dao 2023](../docs/references.md#dao-2023) | queries in the outer loop, as here; divided once, at the end; the warps of a block share its queries |
# | 3, [Shah et al. 2024](../docs/references.md#shah-2024) | for the H100: some warps load while others multiply, exponentials beside products; FP8 |
# | 4, [FlashAttention's code](../docs/references.md#flash-attention-code) | for the newest GPUs: some exponentials as polynomials; a new unit only for a score well above the old one |

# %% [markdown]
# <!-- deeper: The bytes of tiles, at worst and at best -->
# ### Going deeper: The bytes of tiles, at worst and at best
#
# The ratio above took for granted that keys and values are fetched from HBM once. At worst, each tile of queries fetches
# them all again, and $2md$ becomes $2md \cdot \lceil n / \mathrm{tile} \rceil$. In practice, L2 stands between: tiles
# of queries that run at the same time read the same keys, and find them there. The cell has 16 heads of width 64, with
# two bytes for each number, and tiles of 128; the first line says that such a tile, with its sums in float32, fits. (Of
# the 192 kB, a block can have 163<!-- quoted --> as shared memory; kernels keep the sums in 256<!-- quoted --> kB of
# registers beside it.)

# %%
# score_flops counts the FLOPs of scores and mix
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
# With n = m large, 4n²d FLOPs over 8n² bytes is d / 2 step by step; in tiles, at worst, it is the tile's size, and
# at best n / 2. At 8,192 tokens there are 126, at worst. To reach 156, a fifth of the bytes (1 − 126 / 156) must come from L2 instead
# of HBM, and nearly all of the reading is repeated: the wait is over. On newer GPUs the limit includes the
# **exponentials**, which no FLOP here counts: an H100 takes 3.9<!-- quoted --> T a second, beside 989<!-- quoted -->
# TFLOPs of matrices. With a width of 128, the exponentials need about half the time of the products [[Shah et
# al.](../docs/references.md#shah-2024)].
#
# <!-- /deeper -->

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
# > their log-sum-exps: as they come (FlashAttention), at the end (split-KV), or round a ring of devices.
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
# > To undo a softmax, keep what it divided by. Convert both sums when the unit changes. The backward pass computes the
# > scores again from what is kept, so memory grows with $n$; on a GPU, the traffic that this saves counts for more
# > than the arithmetic that it adds. A program with fewer FLOPs for each byte than the machine can do waits for memory.
#
# [The next chapter](24_windows.ipynb) leaves most of the tiles out: it asks what a token may safely
# not look at.
