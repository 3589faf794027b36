# %% [markdown]
# # Speed
#
# *Why is my attention slow on a CPU, what do I change, and how do I know?*
#
# *7 minutes and 2 of exercises. Afterwards you can find what slows a call, change the line that
# does it, and measure whether it helped.*
#
# With a long sequence, these lines are the answer ([a GPU](#cell-id=and-on-a-gpu) has rules of its own). The first is for heads that you have cut yourself, the others for PyTorch's class:
#
# ```python
# heads = F.scaled_dot_product_attention(q, k, v)     # (b, h, n, d), no dropout
#
# torch.backends.mha.set_fastpath_enabled(False)      # for the whole program
# output, _ = attention(x, x, x, need_weights=False)  # returns None for the weights
# ```
#
# The second line looks like a slip: who switches off a fast path to save time? Each change, on 2,048 tokens:

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
def bars(ax, rows: list[tuple[float, str, float, str]], unit: str) -> str:
    """Draw a bar for each place, label, number and colour; return them in words."""
    for y, _, value, hue in rows:
        ax.barh(y, value, 0.34 if y % 1 else 0.36, color=display.COLOURS[hue])
        ax.text(value, y, f"\u2002{value:.0f}{unit}", va="center", fontsize=12)
    ax.set(xticks=[], ylim=(rows[-1][0] + 0.3, -0.3))
    ax.spines["bottom"].set_visible(False)
    ax.tick_params(labelsize=12, length=0)
    return "; ".join(f"{label}: {value:.0f}{unit}" for _, label, value, _ in rows)


# %% tags=["hide-input"]
RUN = measured.load()["provenance"]
MACHINE = "{cpu}, {threads} threads, torch {torch}, {date:.10}".format(**RUN)
(asked,) = find("final class", **CALLS | {"weights": True, "mask": "none"})
(turns,) = find("fast path", **LONG)
found = {}
for mask in KINDS:
    (row,) = find("final class", mask=mask, **CALLS) + find(mask, mask=mask, **CALLS)
    found[mask] = [row["milliseconds"][made] for made in ("PyTorch", "bare minimum")]
steps = {
    "as it comes": (asked["milliseconds"]["PyTorch"], "h"),
    "need_weights=False": (found["none"][0], "h"),
    "fast path off, too": (turns["milliseconds"]["fast path off"], "n"),
    "the function": (found["none"][1], "n"),
}
drawing, (ax,) = display.panels(350, 160)
rows = [(0.5 * y, x, time[MIDDLE], hue) for y, (x, (time, hue)) in enumerate(steps.items())]
alt = "Milliseconds. " + bars(ax, rows, " ms")
ax.set(xlim=(0, 160))
ax.set_yticks([y for y, *_ in rows], steps)
caption = (
    "b = 1, width e = 512, h = 8. The function has the class's projections around it. "
    "Orange: on the fast path. Blue: off it, the first in a race of its own. "
    f"Medians of seven rounds; {MACHINE}."
)
display.finish(drawing, name="which-call", alt=alt, caption=caption)

# %% [markdown]
# To return no weights is not to make none. `nn.MultiheadAttention`, in evaluation, takes 109 ms. Decline its weights, and it still takes
# 100: PyTorch's shortcut for such calls, the **fast path**, computes them all the same. Off the fast path, the class calls the function,
# which makes none: 56.

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
print("✓ As it comes, without weights, off the fast path, by the function: one output.")

# %% [markdown]
# The weights are n · m numbers for each head, for n queries and m keys. PyTorch's **fused kernel** never writes them into
# memory. A slow call mostly writes them, or a mask as large:
#
# | it is slow because … | write instead |
# |---|---|
# | you [ask for weights](#cell-id=the-price-of-the-weights), as is the default of `nn.MultiheadAttention` | `need_weights=False`, as `nn.TransformerEncoderLayer` does for you |
# | the class takes its [fast path](#cell-id=the-fast-path), on a long sequence or with a boolean mask | switch it off |
# | [booleans for every head](#cell-id=the-price-of-a-mask) become floats in each call | the floats, made once; or a mask for all heads |
# | the class gets `attn_mask` and `key_padding_mask`, and makes of both a mask for every head | the function, with one `(b, 1, n, m)` |
# | the fused kernel [refuses](#cell-id=which-kernel-runs) your heads | four axes, the last contiguous |
# | it refuses a learnt bias, even under `no_grad()` | in evaluation, `bias.detach()` |
# | on a CPU, training has dropout on the weights, 0.1 in PyTorch's layers by default | `self_attn.dropout = 0.0` |
# | a model of `transformers` is `"eager"`, as it must be where you [want weights](../docs/messages.md#output-attentions) | `"sdpa"`, the default of `attn_implementation` |

# %% tags=["proof"]
from unittest import mock

function, padded = F.scaled_dot_product_attention, torch.ones(2, 16).triu(15).bool()
both = {"attn_mask": torch.ones(16, 16).triu(1).bool(), "key_padding_mask": padded}
for given, made in (both, 2 * 8 * 16 * 16), ({"attn_mask": both["attn_mask"]}, 16 * 16):
    with mock.patch.object(F, "scaled_dot_product_attention", wraps=function) as asked_for:
        theirs.train()(x, x, x, need_weights=False, **given)
    floats = asked_for.call_args.args[3]
    assert floats.untyped_storage().nbytes() == 4 * made
theirs.eval()
assert (
    theirs.merge_masks(*both.values(), x)[0].untyped_storage().nbytes() == 2 * 8 * 16 * 16
)
print("✓ Of two masks, the class makes one for every head.")

# %% [markdown] name="the-price-of-the-weights"
# ## Why do weights cost so much?
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
# Step by step, every score goes down to memory and comes up again; so does every weight. The
# fused kernel takes a block of keys at a time, keeps a running sum, and forgets each block in the
# processor. This is FlashAttention [[Dao et al.](../docs/references.md#dao-2022)]; you build one in
# [Tiles](23_tiles.ipynb). It saves memory even more than time: without its weights, and without dropout,
# [the book's class](07_multihead_attention.ipynb) trains on 2,048 tokens in a tenth of the memory, and on 4,096 in a twentieth.

# %% tags=["proof"]
peaks = {row["name"]: row for row in measured.load()["memory"]}
two, four = zip(
    *(peaks[name]["bytes"][:2] for name in ("final class, weights", "final class"))
)
assert all(row["lengths"] == [2048, 4096] for row in peaks.values())
assert 0.095 < two[1] / two[0] < 0.1
assert 0.045 < four[1] / four[0] < 0.05
assert four[0] / two[0] > 3.7
assert four[1] / two[1] < 2.1
print("✓ Twice the tokens: with weights nearly four times the memory, without them twice.")

# %% [markdown] name="the-fast-path"
# ## When does the fast path run?
#
# The fast path is one operation in C++. It skips PyTorch's Python, but on a CPU it skips the fused kernel, too, and goes
# step by step. How long does a call without weights take on it, if the same call off it takes 1?

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
# are biases, and queries, keys and values are one tensor. A mask of floats keeps a call off it. The switch is
# for the whole program: it reaches short calls, and `nn.TransformerEncoder`, whose layer on the fast path [misreads masks of floats](16_masks_in_the_wild.ipynb#cell-id=booleans-or-floats).

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
# A causal mask forbids nearly half of the scores. Give it to the class, in evaluation, without weights and on the fast path. How long does the call
# take, after 100 ms without a mask?
#
# <details name="causal"><summary>About 60 ms. There is less to do.</summary>
#
# For the function, yes: told by the flag, it skips blocks of keys in the future. The fast path computes every score first.
#
# </details>
# <details name="causal"><summary>About 100 ms. All is computed, and half of it thrown away.</summary>
#
# So it is computed. But what throws it away is not the softmax that the class takes without a mask.
#
# </details>
# <details name="causal"><summary>Nearly 200 ms.</summary>
#
# Right. The fast path computes every score first, and takes another softmax for a mask.
#
# </details>

# %% tags=["hide-input"]
drawing, (ax,) = display.panels(350, 290)
rows = [
    (y + shift, KINDS[mask] + who, time[MIDDLE], hue)
    for y, (mask, pair) in enumerate(found.items())
    for shift, who, time, hue in zip((0, 0.38), (", class", ", function"), pair, "hn")
]
alt = "Milliseconds under each mask. " + bars(ax, rows, " ms")
ax.set(xlim=(0, 340))
ax.set_yticks([y + 0.19 for y in range(5)], KINDS.values())
caption = (
    "Orange: the class, without weights, fast path on. Blue: the function, with the same "
    "projections. “Causal”: the class gets booleans, the function its flag alone. "
    "“For every head”: booleans, each head with a mask of its own, at both."
)
display.finish(drawing, name="class-and-function", alt=alt, caption=caption)

# %% [markdown]
# It takes 183. Only the floats are a close pair: the fast path takes no floats, so that call ran the function. Keep your booleans, and switch the path off:
# the function takes 65 for them.
#
# The dearest are booleans for every head. The kernel takes no booleans. PyTorch makes floats of them, in each call anew, and here they are as many
# as the weights. So **make the floats yourself, once**. As floats, a mask for every head, such as ALiBi's, goes to the fused kernel as it
# is. It needs four axes: `bias[None]` if yours is (h, n, m).
#
# > **Pitfall.** Where n = m, `is_causal=True` alone is right in `F.scaled_dot_product_attention` and in this book's class. With it alone,
# > `nn.MultiheadAttention` raises an error, or, on the fast path, ignores it: every token sees the future. Pass the mask,
# > and the flag beside it only if it is [the square causal one](16_masks_in_the_wild.ipynb#cell-id=need-weights-decides):
# > `attention(x, x, x, attn_mask=blocked, is_causal=True, need_weights=False)`.


# %% tags=["proof"]
ours = MultiheadAttention(48, 8, batch_first=True).eval()
ours.load_state_dict(theirs.state_dict())
torch.set_autocast_enabled("cuda", True)  # a switch, which no call here obeys but the class
assert FAST not in operations(module(), x, need_weights=False)
torch.set_autocast_enabled("cuda", False)
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
assert FAST in operations(module(), x)  # with weights
for mask, (by_class, by_function) in found.items():
    assert by_class[MIDDLE] / by_function[MIDDLE] > 1.65 or mask == "floats"
assert found["floats"][0][MIDDLE] / found["floats"][1][MIDDLE] < 1.1
print(
    "✓ On the fast path, the flag alone gives the output without a mask; off it, an error."
)

# %% [markdown] name="which-kernel-runs"
# ## When does the fused kernel refuse?
#
# Perhaps you call `F.scaled_dot_product_attention` yourself. It never returns weights. But where the fused kernel refuses
# a call, PyTorch goes step by step without a word. Allow that kernel alone, and it has to say why:

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
learnt = torch.zeros(1, 8, 16, 16, requires_grad=True)
layouts = {
    "(b, h, n, d)": q,
    "(b * h, n, d)": q.flatten(0, 1),
    "cut as (b, n, d, h)": strided,
    "cut so, then contiguous": strided.contiguous(),
}
usual = "(b, n, h, d).transpose(1, 2)"
named = [usual, "(b · h, n, d)", "cut as (b, n, d, h)", "… then .contiguous()"]
(race,) = find("kernels")
ratios = race["ratios"]["(b, h, n, d)"]
spent = [ratios[layout][MIDDLE] if layout in ratios else 1 for layout in layouts]
answers = {
    name: [refusal(x, x, x), f"{ratio:.1f}"]
    for name, x, ratio in zip(named, layouts.values(), spent)
}
answers |= {
    "dropout_p=0.1": [refusal(q, q, q, dropout_p=0.1), ""],
    "values of another width": [refusal(q, q, q[..., :32]), ""],
    "a learnt bias": [refusal(q, q, q, attn_mask=learnt), ""],
}
for words in answers.values():
    short = words[0].partition(" Got ")[0].partition(", but got")[0]
    words[0] = short.replace("  ", " ") or "(nothing)"
title = f"time: the first row is 1; n = 2,048, {RUN['renewed']['kernels']['cpu']}"
columns = ["PyTorch says", "time"]
display.show(answers, columns=columns, decimals="<", corner="a call", title=title)

# %% [markdown]
# A copy costs little, and a refusal much. Cut as (b, n, d, h), the d numbers of a
# head lie h places apart, and the kernel wants them side by side: write `.contiguous()`, though it copies them all. Three axes are refused, whatever they hold: write
# `q.unflatten(0, (b, h))`, or `q[None]` for one sequence. A learnt bias is refused without a reason, and
# `torch.no_grad()` is no help: what counts is the bias's own `requires_grad`. In evaluation, `bias.detach()` is taken.


# %% tags=["proof"]
added = torch.zeros(16, 16)
seen = torch.ones(1, 16).bool()  # (b, m), True keeps
for given in ({}, {"attn_mask": added}, {"is_causal": True}):
    assert not refusal(q, q, q, **given)
assert not refusal(q, q, q, attn_mask=seen[:, None, None, :])
assert refusal(q, q, q, dropout_p=0.1)
assert refusal(q, q, q[..., :32])
assert refusal(*[q[0]] * 3)
with torch.no_grad():
    assert refusal(q, q, q, attn_mask=learnt)
    assert not refusal(q, q, q, attn_mask=learnt.detach())
    assert "4d" in refusal(q, q, q, attn_mask=learnt.detach()[0])
assert not refusal(q, q[:, :2], q[:, :2], enable_gqa=True)
for mask, converts in ((learnt.detach(), False), (learnt.detach() == 0, True)):
    with torch.no_grad(), torch.profiler.profile() as ran:
        F.scaled_dot_product_attention(q, q, q, mask)
    made = {op.name for op in ran.events()}
    assert "aten::" + FUSED in made
    assert ("aten::where" in made) == converts
assert not refusal(*[q[:1]] * 3)
for x in layouts.values():
    with torch.no_grad(), torch.profiler.profile() as ran:
        F.scaled_dot_product_attention(x, x, x)
    fused = "aten::" + FUSED in {op.name for op in ran.events()}
    assert fused == (not refusal(x, x, x))
assert "dtype" in refusal(q, q, q, attn_mask=added.long())
assert benchmark.Timer("pass").timeit(1).task_spec.num_threads == 1  # of a later section
print("✓ It refuses these five, and takes the flag, floats, and floats made of booleans.")

# %% [markdown] name="and-on-a-gpu"
# ## What changes on a GPU?
#
# No GPU was measured here. This stands in PyTorch's code, read mask by mask, for calls without weights:
#
# | mask | FlashAttention | the memory-efficient kernel | the class's fast path |
# |---|---|---|---|
# | none | takes it | takes it | has a fused kernel: leave it on |
# | the causal flag alone | takes it | takes it | ignores it |
# | any `attn_mask` or `key_padding_mask` | refuses it | takes it | goes step by step: switch it off |
#
# FlashAttention wants 16 bits as well, and float32 gets the other kernel. So a refusal need not mean step by step. Under `torch.autocast("cuda")` no call is on the fast path. On an H100 or a B200,
# PyTorch 2.11 and later asks cuDNN's fused kernel first, which wants 16 bits and takes masks ([why](https://github.com/huggingface/transformers/pull/48163); it can give [NaN](../docs/symptoms.md#nan-in-the-output-the-loss-or-the-gradients)). Sources:
# [FlashAttention's code](../docs/references.md#flash-attention-code), and [that of the fast
# path](https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/transformers/cuda/attention.cu).

# %% [markdown]
# ## How do I know that it helped?
#
# `make bench`, in this book's repository, runs this page's races on your machine (on Linux). For code of your own, first assert that both versions give the same output. Warm up. Fix the number of threads: `torch.utils.benchmark.Timer`
# uses one unless you pass `num_threads`. A GPU returns before its work is done: call `torch.cuda.synchronize()` before you
# read the clock.
#
# Then let the versions *take turns*, so that both meet the same busy minutes, and divide one time by the other in each
# round. The **quartiles** of these ratios enclose their middle half: with both on one side of 1, one version is faster. Take 17 rounds or more. Of five,
# two *equal* versions put both on one side in three races of eight; of 17, in fewer than one of twenty.


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
# > **In short.** Attention is slow where all $b \cdot h \cdot n \cdot m$ weights are written to memory and read again. Call the
# > function, or the class with `need_weights=False`, and on a CPU with its fast path off.
#
# [The next chapter](16_masks_in_the_wild.ipynb) is about masks in the wild: the same True means
# *hide* in one library and *show* in another.
