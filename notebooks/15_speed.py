# %% [markdown]
# # Speed
#
# *Why is my attention slow, what do I change, and how do I know?*
#
# *6 minutes and 2 of exercises. Afterwards you can find what slows a call, change the line that
# does it, and measure whether it helped.*
#
# Two lines decide. The first is for heads that you have cut yourself, the second for PyTorch's class:
#
# ```python
# heads = F.scaled_dot_product_attention(q, k, v)     # returns no weights
# output, _ = attention(x, x, x, need_weights=False)  # returns None for them
# ```
#
# But to return no weights is not to make none. On a CPU, `nn.MultiheadAttention` with eight heads evaluates 2,048 tokens in 109 ms. You have no use for the
# attention weights that come back, so you write `need_weights=False`. Now it takes 100. For such calls PyTorch has a shortcut of its
# own, the **fast path**. How long will the call take once you switch the shortcut off?
#
# <details name="shortcut"><summary>More than 100 ms. It is a shortcut.</summary>
#
# On short sequences, yes. On this one the call takes 56 without it.
#
# </details>
# <details name="shortcut"><summary>Less than 100 ms.</summary>
#
# Right: 56. The fast path computes the weights that you declined.
#
# </details>

# %% tags=["hide-input"]
import os

os.environ["KINETO_LOG_LEVEL"] = "99"  # or the profiler writes a line at each start

import itertools
import math
import statistics
import warnings

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import benchmark

from annotated_attention import MultiheadAttention
from annotated_book import display, measured
from annotated_book.measured import find  # gives you the cases of a section

warnings.filterwarnings("ignore", message=".*nested tensors is in prototype stage")
MIDDLE = 1  # of the lower quartile, the median and the upper quartile
LONG = {"size": [1, 2048, 512, 8], "mode": "inference"}
CALLS = {"memory": "returned", "weights": False} | LONG
KINDS = {
    "none": "no mask",
    "causal": "causal mask",
    "boolean": "booleans, (n, m)",
    "floats": "floats, (n, m)",
    "boolean, every head": "for every head",
}

# %% tags=["hide-input"]
(asked,) = find("final class", **CALLS | {"weights": True, "mask": "none"})
(turns,) = find("fast path", **LONG)
found = {}
for mask in KINDS:
    (row,) = find("final class", mask=mask, **CALLS) + find(mask, mask=mask, **CALLS)
    found[mask] = [row["milliseconds"][made] for made in ("PyTorch", "bare minimum")]

# %% [markdown]
# Now give the class a mask, in evaluation, still without weights and with the fast path on. Beside each call in orange stands the
# same work in blue: the class's projections, and the function between them. One pair is nearly equal. Why?

# %% tags=["hide-input"]
drawing, (ax,) = display.panels(350, 290)
said = []
for y, (mask, pair) in enumerate(found.items()):
    for shift, time, hue in zip((0, 0.38), pair, ("h", "n")):
        ax.barh(y + shift, time[MIDDLE], 0.34, color=display.COLOURS[hue])
        label = f"\u2002{time[MIDDLE]:.0f} ms"
        ax.text(time[MIDDLE], y + shift, label, va="center", fontsize=12)
    class_, function = (time[MIDDLE] for time in pair)
    said.append(f"{KINDS[mask]}: class {class_:.0f}, function {function:.0f}")
ax.set(xlim=(0, 340), ylim=(4.7, -0.3), xticks=[])
ax.set_yticks([y + 0.19 for y in range(5)], KINDS.values())
ax.spines["bottom"].set_visible(False)
ax.tick_params(labelsize=12, length=0)
alt = f"Milliseconds under each mask. {'. '.join(said)}."
caption = (
    "Orange: the class, with need_weights=False. Blue: the function. Both took turns. "
    "The last pair: a boolean mask of its own for every head."
)
display.finish(drawing, name="class-and-function", alt=alt, caption=caption)

# %% [markdown]
# <details><summary>What do you expect?</summary>
#
# The class's fast path does not take masks of floats. So this call alone kept off it, and ran the function.
#
# </details>

# %% tags=["proof"]
x, theirs = torch.randn(2, 16, 48), nn.MultiheadAttention(48, 8, batch_first=True).eval()
with torch.no_grad():
    outputs = [theirs(x, x, x)[0], theirs(x, x, x, need_weights=False)[0]]
    torch.backends.mha.set_fastpath_enabled(False)
    outputs.append(theirs(x, x, x, need_weights=False)[0])
    torch.backends.mha.set_fastpath_enabled(True)
    packed = F.linear(x, theirs.in_proj_weight, theirs.in_proj_bias).unflatten(
        -1, (3, 8, 6)
    )
    heads = F.scaled_dot_product_attention(*packed.permute(2, 0, 3, 1, 4))
    outputs.append(theirs.out_proj(heads.transpose(1, 2).flatten(2)))
for output in outputs[1:]:
    torch.testing.assert_close(output, outputs[0])
assert turns["milliseconds"]["fast path off"][2] < turns["milliseconds"]["fast path"][0]
for mask, (by_class, by_function) in found.items():
    assert by_function[2] < by_class[0]
    assert by_class[MIDDLE] / by_function[MIDDLE] > 1.65 or mask == "floats"
assert found["floats"][0][MIDDLE] / found["floats"][1][MIDDLE] < 1.1
print(
    "✓ The four ways without a mask give the same output; all pairs but one are far apart."
)

# %% [markdown]
# Ask a cashier what you have to pay, and you get one number. Ask for a receipt, and the sum stays the same, but every
# line has to be printed. Attention's receipt is its weights: n · m numbers for each head, for n queries and m keys. Most
# slow calls print a receipt that nobody asked for:
#
# | it is printed because your call … | decline it by |
# |---|---|
# | … [asks for weights](#cell-id=the-price-of-the-weights), as is the default | `need_weights=False` |
# | … takes PyTorch's [fast path](#cell-id=the-fast-path), on a long sequence or with a mask | switching it off |
# | … brings a [mask for every head](#cell-id=the-price-of-a-mask) | one mask for all: `(n, m)` or `(b, m)` |
# | … brings heads that the fused kernel [refuses](#cell-id=which-kernel-runs) | four axes, the last in one piece |
# | … trains with dropout on the weights, 0.1 in `nn.TransformerEncoderLayer` by default | `layer.self_attn.dropout = 0.0` |
#
# **On a GPU** some of this is the other way round: [see there](#cell-id=and-on-a-gpu) first. All times above are medians of at least
# seven rounds on the machine below, for b = 1, n = 2,048, width e = 512 and h = 8, in evaluation and without gradients. `make bench`, in this book's repository, measures
# yours (on Linux).

# %% tags=["hide-input"]
RUN = measured.load()["provenance"]
MACHINE = "{cpu}, {threads} threads, load {load[0]:.0f}, torch {torch}, {date:.10}"
print(MACHINE.format(**RUN))
on, off = (turns["milliseconds"][name][MIDDLE] for name in ("fast path", "fast path off"))
with_, without = asked["milliseconds"]["PyTorch"][MIDDLE], found["none"][0][MIDDLE]
print(f"with weights {with_:.0f} ms, without {without:.0f} ms")
print(f"without, taking turns: fast path on {on:.0f} ms, off {off:.0f} ms")

# %% [markdown] name="the-price-of-the-weights"
# ## Why does the receipt cost so much?
#
# This travels with the weights, and without them:

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
# Step by step, every score goes down to memory and comes up again; so does every weight. PyTorch's
# **fused kernel** takes a block of keys at a time, keeps a running sum, and forgets each block in the
# processor. This is FlashAttention [[Dao et al.](../docs/references.md#dao-2022)]; you build one in
# [Tiles](23_tiles.ipynb). It saves memory even more than time: without its weights, and without dropout,
# [the book's class](07_multihead_attention.ipynb) trains in a tenth of the memory, and in less the longer your sequences are.

# %% tags=["proof"]
peaks = {row["name"]: row for row in measured.load()["memory"]}
two, four = zip(
    *(peaks[name]["bytes"][:2] for name in ("final class, weights", "final class"))
)
assert two[1] / two[0] < 0.1
assert four[0] / two[0] > 3.7
assert four[1] / two[1] < 2.1
print("✓ Twice the tokens: with weights nearly four times the memory, without them twice.")

# %% [markdown] name="the-fast-path"
# ## When does the fast path run?
#
# The fast path is one operation in C++. It skips PyTorch's Python, but on a CPU it skips the fused kernel, too, and goes
# step by step. So it pays on short sequences. How long does a call without weights take on it, if the same call off it takes 1?

# %% tags=["hide-input"]
lasts = {}
for row in sorted(find("fast path"), key=lambda row: row["size"][1]):
    b, n, _, _ = row["size"]
    ratio = row["ratios"]["fast path off"]["fast path"]
    lasts[f"n = {n:,}, b = {b}"] = ratio
drawing, (ax,) = display.panels(350, 150)
for y, ratio in enumerate(lasts.values()):
    ax.barh(y, ratio[MIDDLE], 0.6, color=display.COLOURS["h"])
    ax.text(
        max(ratio[MIDDLE], 1), y, f"\u2002{ratio[MIDDLE]:.2f}", va="center", fontsize=12
    )
ax.axvline(1, color="#808080", lw=1.5, ls="--")
ax.set(xlim=(0, 2.3), ylim=(2.5, -0.5), xticks=[1])
ax.set_xticklabels(["1, off the fast path"])
ax.set_yticks(range(3), lasts)
ax.tick_params(labelsize=12, length=0)
alt = "; ".join(f"{size}: {ratio[MIDDLE]:.2f}" for size, ratio in lasts.items())
display.finish(
    drawing,
    name="fast-path",
    caption="Width e = 256 in the first row, 512 in the others.",
    alt=f"Time on the fast path by time off it. {alt}.",
)

# %% tags=["proof"]
short, middle, long = lasts.values()
assert short[2] < 1 < middle[0]
assert middle[2] < long[0]
print("✓ Without weights, the fast path is faster at 128 tokens, slower at 512 and 2,048.")

# %% [markdown]
# Are you on it? It takes calls in evaluation, without gradients, if `batch_first=True`, the number of heads is even, there
# are biases, and queries, keys and values are one tensor. A mask of floats keeps a call off. To switch it off, write
# `torch.backends.mha.set_fastpath_enabled(False)`. That is for the whole program, short calls and `nn.TransformerEncoder` included
# (whose layer also [misreads masks of floats](16_masks_in_the_wild.ipynb#cell-id=booleans-or-floats) on it).

# %% [markdown] name="deeper-why-not"
# <!-- deeper: let PyTorch say why a call is not on the fast path -->
# ### Going deeper: let PyTorch say why a call is not on the fast path
#
# PyTorch notes the reason, and tells nobody. But a nested tensor cannot take the other path, so it gets the reason as an
# error. Send one:


# %%
def why_not(attention: nn.MultiheadAttention) -> str:
    """Let PyTorch say why a module keeps off the fast path; empty if it is on it."""
    one = torch.randn(3, attention.embed_dim).to(attention.out_proj.weight)
    x = torch.nested.nested_tensor([one])
    try:
        attention(x, x, x)
    except AssertionError as refused:
        return str(refused).partition("because ")[2] or "no reason given"
    return ""


# %% tags=["hide-input"]
def module(h: int = 8, batch_first: bool = True, **options) -> nn.MultiheadAttention:
    """Make PyTorch's class, ready for evaluation."""
    return nn.MultiheadAttention(48, h, batch_first=batch_first, **options).eval()


said = {"model.eval(), and nothing else": [why_not(module())]}
with torch.no_grad():
    said |= {
        "… and torch.no_grad()": [why_not(module()) or "(nothing: it is on the fast path)"],
        "model.train()": [why_not(module().train())],
        "batch_first=False, the default": [why_not(module(batch_first=False))],
        "num_heads=3": [why_not(module(h=3))],
        "bias=False": [why_not(module(bias=False))],
    }
cuts = ("self.", ""), (" and at least one of query or the input/output projection", ": …")
for words in said.values():
    for long, short in cuts:
        words[0] = words[0].replace(long, short)
    words[0] = words[0].partition(" weights or")[0]
display.show(said, columns=["PyTorch says"], decimals="<", corner="a module")

# %% tags=["proof"]
FAST, FUSED = "_native_multi_head_attention", "_scaled_dot_product_flash_attention_for_cpu"
x, hidden = torch.randn(2, 16, 48), torch.ones(16, 16).triu(1).bool()
floats = torch.zeros(16, 16).masked_fill(hidden, -torch.inf)


def operations(
    attention, x, key=None, fast: bool = True, grad: bool = False, **options
) -> set[str]:
    """Name what a call runs, on the fast path where it can be, or off it."""
    key = x if key is None else key
    torch.backends.mha.set_fastpath_enabled(fast)
    with torch.set_grad_enabled(grad), torch.profiler.profile() as ran:
        attention(x, key, key, **options)
    torch.backends.mha.set_fastpath_enabled(True)
    return {op.name.removeprefix("aten::") for op in ran.events()}


off = {"fast": False, "need_weights": False}
for given in ({}, {"attn_mask": hidden}, {"key_padding_mask": hidden[[0, 8]]}):
    ran = operations(module(), x, need_weights=False, **given)
    assert {"_softmax", "_masked_softmax"} & ran > set()
    assert FAST in ran - {FUSED} == ran
    learning = operations(module().train(), x, grad=True, need_weights=False, **given)
    assert FUSED in learning - {FAST} == learning
for other in (module(bias=False), module(h=3), module(batch_first=False), module().train()):
    assert FAST not in operations(other, x, need_weights=False)
assert FAST not in operations(module(), x, attn_mask=floats, need_weights=False)
assert FAST not in operations(module(), x, x.clone(), need_weights=False)
assert FUSED not in operations(
    module(dropout=0.1).train(), x, grad=True, need_weights=False
)
assert nn.TransformerEncoderLayer(48, 8).self_attn.dropout == 0.1
assert FUSED in operations(module(), x, **off)
assert FUSED not in operations(module(), x, fast=False) > {"bmm", "_softmax"}
print("✓ Off the fast path, the fused kernel runs if the call asks for no weights.")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="the-price-of-a-mask"
# ## What does a mask cost?
#
# Look at the chart again. Under a boolean mask the class takes 201 ms, and under the same mask as floats 66. Should you convert your masks
# to floats? No: it is not the booleans that are slow, but the path. Between the projections, the function takes 65 for the booleans. Switch the
# path off, and keep them.
#
# The causal mask is the cheapest, 43 ms: told by the flag, the function skips blocks of keys in the future. The dearest is
# a boolean mask for every head, 111. It has as many numbers as the weights: a receipt again.
#
# > **Pitfall.** Where n = m, `is_causal=True` alone is right in `F.scaled_dot_product_attention` and in this book's class. With it alone,
# > `nn.MultiheadAttention` raises an error, or, on the fast path, ignores it: every token sees the future. Pass the mask,
# > and the flag beside it only if it is [the square causal one](16_masks_in_the_wild.ipynb#cell-id=need-weights-decides):
# > `attention(x, x, x, attn_mask=blocked, is_causal=True, need_weights=False)`.


# %% tags=["proof"]
ours = MultiheadAttention(48, 8, batch_first=True).eval()
ours.load_state_dict(theirs.state_dict())
causal = {"is_causal": True, "need_weights": False}
with torch.no_grad():
    unmasked = theirs(x, x, x, need_weights=False)[0]
    masked = theirs(x, x, x, attn_mask=hidden, **causal)[0]
    torch.testing.assert_close(ours(x, x, x, **causal)[0], masked)
    torch.testing.assert_close(theirs(x, x, x, **causal)[0], unmasked)
    assert not torch.allclose(masked, unmasked)
    torch.backends.mha.set_fastpath_enabled(False)
    torch.testing.assert_close(theirs(x, x, x, attn_mask=hidden, **causal)[0], masked)
    refused = ""
    try:
        theirs(x, x, x, **causal)
    except RuntimeError as error:
        refused = str(error)
    assert refused.startswith("Need attn_mask if specifying the is_causal hint")
    torch.backends.mha.set_fastpath_enabled(True)
assert FUSED in operations(module(), x, attn_mask=hidden, fast=False, **causal)
print(
    "✓ On the fast path, the flag alone gives the output without a mask; off it, an error."
)

# %% [markdown] name="which-kernel-runs"
# ## When does the fused kernel refuse?
#
# Perhaps you call `F.scaled_dot_product_attention` yourself. It never returns weights. But where the fused kernel refuses
# a call, PyTorch goes step by step without a word. Allow that kernel alone, and it has to say why.

# %% tags=["fold-input"]
from torch.nn.attention import SDPBackend, sdpa_kernel

HEADING = "Flash attention kernel not used because:\n"


def refusal(q, k, v, **options) -> str:
    """Say why FlashAttention refuses a call; empty if it takes it."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                F.scaled_dot_product_attention(q, k, v, **options)
        except RuntimeError as error:  # the reason is a warning, or it is the error
            lines = [str(line.message).partition(" (Trigg")[0] for line in told]
            reason = "\n".join(lines).partition(HEADING)[2].partition("\n")[0]
            return reason or str(error)
    return ""


# %% tags=["hide-input"]
q = torch.randn(1, 16, 8, 64).transpose(1, 2)  # heads, cut as is usual
strided = torch.randn(1, 16, 64, 8).permute(0, 3, 1, 2)
layouts = {
    "(b, h, n, d)": q,
    "(b * h, n, d)": q.flatten(0, 1),
    "cut as (b, n, d, h)": strided,
    "cut so, then contiguous": strided.contiguous(),
}
usual = "(b, n, h, d).transpose(1, 2)"
named = [usual, "(b · h, n, d)", "cut as (b, n, d, h)", "… then .contiguous()"]
answers = {name: [refusal(x, x, x)] for name, x in zip(named, layouts.values())}
learned = torch.zeros(16, 16, requires_grad=True)
answers |= {
    "dropout_p=0.1": [refusal(q, q, q, dropout_p=0.1)],
    "values of another width": [refusal(q, q, q[..., :32])],
    "a mask that needs a gradient": [refusal(q, q, q, attn_mask=learned)],
}
for words in answers.values():
    short = words[0].partition(" Got ")[0].partition(", but got")[0]
    words[0] = short.replace("  ", " ") or "(nothing)"
display.show(answers, columns=["PyTorch says"], decimals="<", corner="a call")

# %% [markdown]
# The usual heads, in the first row, are taken. Three axes are refused, whatever they hold: write `q.unflatten(0, (b, h))`,
# or `q[None]` for one sequence. Cut as (b, n, d, h), the d numbers of a head lie h places apart, and the kernel wants them
# side by side: write `.contiguous()`. A mask that needs a gradient is refused without a reason.


# %% tags=["proof"]
added = torch.zeros(16, 16)
seen = torch.ones(1, 16).bool()  # (b, m), True keeps
for given in ({}, {"attn_mask": added}, {"is_causal": True}):
    assert not refusal(q, q, q, **given)
assert not refusal(q, q, q, attn_mask=seen[:, None, None, :])
for given in ({"dropout_p": 0.1}, {"attn_mask": added.clone().requires_grad_()}):
    assert refusal(q, q, q, **given)
assert refusal(q, q, q[..., :32])
assert refusal(*[q[0]] * 3)
assert not refusal(*[q[:1]] * 3)
for x in layouts.values():
    with torch.no_grad(), torch.profiler.profile() as ran:
        F.scaled_dot_product_attention(x, x, x)
    fused = "aten::" + FUSED in {op.name for op in ran.events()}
    assert fused == (not refusal(x, x, x))
assert "dtype" in refusal(q, q, q, attn_mask=added.long())
assert benchmark.Timer("pass").timeit(1).task_spec.num_threads == 1  # of a later section
print("✓ It refuses these five, and takes a mask without a gradient.")

# %% [markdown] name="and-on-a-gpu"
# ## What changes on a GPU?
#
# No GPU was measured here. This stands in PyTorch's code, read mask by mask, for calls without weights:
#
# | mask | FlashAttention | the memory-efficient kernel | the class's fast path |
# |---|---|---|---|
# | none | takes it | takes it | has a fused kernel: leave it on |
# | the causal flag alone | takes it | takes it | ignores it |
# | any `attn_mask` | refuses it | takes it | goes step by step: switch it off |
#
# FlashAttention wants 16 bits as well, and float32 gets the other kernel ([its code](../docs/references.md#flash-attention-code); [the fast
# path's](https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/transformers/cuda/attention.cu)). So a refusal need not mean
# step by step.

# %% [markdown]
# ## How do I know that it helped?
#
# First assert that both versions give the same output. Warm up. Fix the number of threads: `torch.utils.benchmark.Timer`
# uses one unless you pass `num_threads`. A GPU returns before its work is done: call `torch.cuda.synchronize()` before you
# read the clock.
#
# Then let the versions *take turns*, so that both meet the same busy minutes, and divide one time by the other in each
# round. The **quartiles** of these ratios enclose their middle half. If one quartile is below 1 and the other above, say
# "even".
#
# Suppose that five rounds put both quartiles on the same side of 1. Is one version slower? Two *equal* versions do that in
# three races of eight. With 17 rounds they do it in fewer than one of twenty, so take 17 or more. (Many times on this page
# are of seven: trust their large differences.)


# %% tags=["proof"]
def by_chance(n: int) -> float:
    """Give the chance that of n = 4 k + 1 ratios at most k lie on one side of 1."""
    return 2 * sum(math.comb(n, k) for k in range(n // 4 + 1)) / 2**n


outcomes = list(itertools.product((0.9, 1.1), repeat=5))
decided = [
    len({x < 1 for x in statistics.quantiles(five, n=4, method="inclusive")}) == 1
    for five in outcomes
]
assert sum(decided) / len(decided) == by_chance(5) == 3 / 8
assert by_chance(17) < 1 / 20 < by_chance(13)
print("✓ All outcomes of five rounds, counted one by one, give three of eight.")

# %% [markdown]
# ## Exercises
#
# ### Even, or not?
#
# *Easy, 2 minutes.* Here are the milliseconds of two versions in five rounds; the second,
# the third and the fifth met a busy machine. Divide our time by theirs in each round. With five rounds, the lower
# quartile is the second smallest ratio, the median the third, and the upper quartile the fourth.
# Write down the three. Do they say that our version is slower? Decide before you run the check, which tells you.
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
# > **In short.** Attention is slow where all $b \cdot h \cdot n \cdot m$ weights are written to memory and read again. The
# > table at the top says what does that, and how to decline it. For long sequences on a CPU, one of the two:
# >
# > ```python
# > heads = F.scaled_dot_product_attention(q, k, v)
# >
# > torch.backends.mha.set_fastpath_enabled(False)  # whole program
# > output, _ = attention(x, x, x, need_weights=False)
# > ```
# >
# > Pay, and leave without a receipt.
#
# [The next chapter](16_masks_in_the_wild.ipynb) is about masks in the wild: the same True means
# *hide* in one library and *show* in another.
