# %% [markdown]
# # Windows, sparse and linear attention
#
# *What may a token safely not look at?*
#
# *22 minutes and 2 of exercises. Afterwards you can count what a window sees, keep an attention sink,
# and say what DeepSeek's indexer and the gated delta rule compute.*
#
# Straight to: [windows](#cell-id=three-keys-each) · [attention sink](#cell-id=the-key-that-must-stay) · [DeepSeek's
# indexer](#cell-id=sparse-attention) · [gated delta rule](#cell-id=the-delta-rule) · [six models in
# numbers](#cell-id=model-by-model)
#
# People stand in a long queue, and each of them hears only the two in front. Something happens at
# the front. Nobody farther back can hear that, yet after a few rounds of passing it on,
# the news has travelled a long way. So it is for a token in a stack of layers with **sliding-window attention**: what it
# does not see itself, it may get from a neighbour who has seen it.
#
# So far, each word could look at all earlier words. Models of today look at less in three ways. A *window* chooses keys by their place. **Sparse
# attention** chooses them by their content, as DeepSeek's indexer does. **Linear attention** keeps a state, a matrix
# S, instead of keys; Qwen3-Next and Kimi Linear write it by the gated delta rule.

# %% tags=["hide-input"]
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention.modern import block_by_position
from annotated_book import chapters, display
from attention_doctor.mistakes import MISTAKES

# %% tags=["fold-input"]
KEEPS = display.COLOURS["m"]


def draw_cells(ax, y: int, count: int, full: list, pale: bool = False, wide: int = 1):
    """Draw a row of cells; runs of full ones are given as (first, how many)."""
    ax.barh(y, wide * count, 0.7, color=KEEPS, alpha=0.25 * pale, lw=0)
    for first, many in full:
        ax.barh(y, wide * many, 0.7, wide * first, color=KEEPS, alpha=0.9, lw=0)
    edges = [x for i in range(count + 1) for x in (wide * i, wide * i, math.nan)]
    up = [y - 0.35, y + 0.35, math.nan] * (count + 1)
    ax.plot(edges, up, color="grey", lw=0.6)
    ax.barh(y, wide * count, 0.7, fill=False, edgecolor="grey", lw=0.6)


# %% tags=["fold-input"]
length = 18
ways = {
    "window of 5": [(13, 5)],
    "and a sink": [(0, 1), (13, 5)],
    "5 chosen": [(2, 2), (8, 1), (13, 1), (17, 1)],
    "a state": [],
}
drawing, (ax,) = display.panels(345, 170)
for y, (name, full) in enumerate(ways.items()):
    draw_cells(ax, y, length, full, pale=name == "5 chosen")
ax.barh(3, 2.2, 0.7, length + 0.4, color=display.COLOURS["h"], alpha=0.8)
ax.text(length + 1.5, 3, "S", va="center", ha="center", fontsize=12)
ax.set(xticks=[], xlim=(-0.2, length + 2.8), ylim=(3.5, -0.5))
ax.set_yticks(range(4), ways)
reads = [sum(many for _, many in full) for full in ways.values()]
told = [f"{name} reads {read} keys" for name, read in zip(ways, reads)]
caption = "Full: attended to. Faint: scored, and kept. Empty: gone. S: a matrix."
display.finish(drawing, name="four-ways", alt="; ".join(told), caption=caption)

# %% [markdown] name="model-by-model"
# ## Six models, and what they keep
#
# Why bother? If every layer of Gemma 3 27B kept every token, the cache of one text of 131,072 tokens would take 66.6 GB,
# more
# than the model's own 27 billion parameters, both in 16 bits. That is the grey line. Which of six models keeps the least: one with windows, one with sparse attention, or one with states? And which keeps *more* than it
# would without?

# %% tags=["fold-input"]
FULL = 131_072  # tokens
STATE = 32 * 128 * 128 * 4  # bytes of the 32 heads of a layer, in float32


def kept_at(n: int) -> dict[str, tuple]:
    """Give what is kept after n tokens: how many layers, entries in each, bytes of each."""
    near, v4 = min(n, 127), (21, n // 4, 1024 + 256)
    return {
        "gpt-oss-120b": ((18, near, 2048), (18, n, 2048)),
        "Gemma 3 27B": ((52, min(n, 1023), 8192), (10, n, 8192)),
        "DeepSeek-V3.2": ((61, n, 1152 + 256),),
        "DeepSeek-V4-Flash": ((43, near, 1024), v4, (20, n // 128, 1024)),
        "Qwen3-Next 80B": ((36, 1, STATE), (12, n, 2048)),
        "Kimi Linear 48B": ((20, 1, STATE), (7, n, 1152)),
    }


def read_at(n: int) -> dict[str, tuple]:
    """Give what the next token reads of that: an indexer's keys, and what it chooses."""
    window, (_, by_4, _), by_128 = kept_at(n)["DeepSeek-V4-Flash"]
    chosen = (21, by_4, 256), (21, min(by_4, 512), 1024)
    return kept_at(n) | {
        "DeepSeek-V3.2": ((61, n, 256), (61, min(n, 2048), 1152)),
        "DeepSeek-V4-Flash": (window, *chosen, by_128),
    }


LAYERS = kept_at(FULL)

# %% tags=["fold-input"]
drawing, axes = display.panels(640, 300, columns=2)
marks = dict(zip(LAYERS, ["n-", "n-", "h--", "h--", "d:", "d:"]))
whole, alt = 62 * 8192 * FULL / 1e9, []  # Gemma 3 27B, if all its layers kept all tokens
for ax, (title, at) in zip(axes, {"kept": kept_at, "read by a token": read_at}.items()):
    ax.plot([0, FULL], [0, whole], color="grey", lw=1.2)
    many = [1024, 8192, FULL]
    lines = {x: [sum(map(math.prod, at(n)[x])) / 1e9 for n in many] for x in LAYERS}
    place = -1.0
    for name in sorted(lines, key=lambda name: lines[name][-1]):
        end, (letter, *look) = lines[name][-1], marks[name]
        color, place = display.COLOURS[letter], max(end, place + 0.8)
        ax.plot(many, lines[name], "".join(look), color=color)
        says = f"{name.rpartition(' ')[0] or name} {end:.1f}"
        ax.text(1.04 * FULL, place, says, va="center", color=color, fontsize=12)
        alt.append(f"{title}, {name}: {end:.1f} GB")
    ax.set(title=title, xlim=(0, 2.12 * FULL), ylim=(0, 12.5), yticks=[0, 5, 10])
    ax.set_xticks([0, FULL], ["0", f"{FULL:,} tokens"])
    ax.spines.bottom.set_bounds(0, FULL)
without = f"Gemma 3 without\nwindows: {whole:.1f}"
axes[0].text(0.24 * FULL, 12.3, without, va="top", fontsize=12)
served, bare = (61 * FULL * size / 1e9 for size in (656 + 132, 1152))
caption = (
    "Gigabytes over tokens. Solid: windows. Dashed: sparse. Dotted: states. A number takes "
    f"two bytes, in a state four. As served, in eight bits, V3.2 keeps {served:.1f}, its "
    f"indexer's keys included. In 16 bits, without an indexer, it would keep {bare:.1f}."
)
display.finish(drawing, name="six-models", alt="; ".join(alt), caption=caption)

# %% [markdown]
# The least is DeepSeek-V4-Flash's, without any state: less than that of Kimi Linear, three quarters of whose layers keep
# no keys at all. And DeepSeek-V3.2 keeps 11.3 GB where its latents alone would take 9.2: an indexer saves *reading*, and
# needs a key of its own for each token. Of all that, a token reads 2.2.
#
# No line stays flat. Where layers of two kinds are mixed, but for V4, nearly all that is kept belongs to the layers that keep every token; V4 keeps
# the text only in a blurred form. (Sizes: [Gemma Team](../docs/references.md#gemma-2025),
# [Kimi Team](../docs/references.md#kimi-2025) and [DeepSeek-V4](../docs/references.md#deepseek-v4); the others
# are compared with `transformers`. What is read: an indexer's keys, and what it chooses.)

# %% [markdown] name="three-keys-each"
# ## Three keys each
#
# In a **sliding window** of w keys, each query sees its own key and the w − 1 before it [[Beltagy
# et al.](../docs/references.md#beltagy-2020)]. A causal mask hides the later keys. The
# window hides those that are w places earlier or more. Here is the mask for a window of 3, a row for each word that asks; the
# keys that it does not see are hatched.
# %%
one = chapters.load("01_one_head")
w, places = 3, torch.arange(8)
i, j = places[:, None], places    # (n, 1), (n,)
blocked = (j > i) | (j <= i - w)  # (n, n)
display.show(blocked, one.WORDS, one.WORDS)

# %% tags=["proof"]
assert blocked.equal(block_by_position(places, 8, window=w))
print("✓ `block_by_position` makes the same mask.")

# %% [markdown]
# From the third word on, everybody sees three keys, however long the text becomes. So prefill computes about
# n · w scores, where a causal mask leaves n² / 2. Count it in [tiles](23_tiles.ipynb#cell-id=tiles) of 128, for 131,072
# tokens and a window of 1,024:

# %% tags=["fold-input"]
tile_rows = torch.arange(131_072 // 128)
first_tiles = (128 * tile_rows - 1023).clamp(min=0) // 128  # of the earliest visible key
with_window, causal = (tile_rows - first_tiles + 1).sum(), (tile_rows + 1).sum()
print(f"{with_window:,} of {causal:,} tiles: {with_window / causal:.3f}")

# %% [markdown]
# Less than a fiftieth of the causal mask's work is left.
#
# Does a window of 3 hold three keys, or three and the query's own? Both readings exist, and a real library mixed them up.
# It handed its window of w to a kernel that takes the number of keys *before* the query, and everybody saw w + 1 keys [[transformers](../docs/references.md#windows-off-by-one)]: 2,049 for a window of
# 2,048. To run a window fast, hand PyTorch's `flex_attention` the rule: it
# [skips the tiles](23_tiles.ipynb) outside.
#
# ## What a stack of windows sees
#
# Now pass the news on. Stack two layers with a window of 3. How many tokens can the last output
# depend on: 3, 5 or 6?
#
# <details><summary>What do you expect?</summary>
#
# Five. The last token sees itself and two more. In the layer below, the farthest of these three has
# seen two more. Each layer adds w − 1 tokens, since the query's own key takes one place of its window.
#
# </details>
#
# Measure it. If an output depends on a token, its *gradient* with respect to that token is not zero. The figure
# shows the size of this gradient for each of 30 tokens, relative to the last one's: four new layers with residual
# connections, the median of 20 draws. How much will the farthest token within reach count: half of the last one, a
# tenth, a thousandth?

# %% tags=["fold-input"]
from annotated_attention.modern import CachedAttention, WindowAttention

WIDTH, HEADS = 24, 4


def made(kind: type[nn.Module], *given, seed: int = 5, **options) -> nn.Module:
    """Make an attention from a fixed seed."""
    torch.manual_seed(seed)
    return kind(WIDTH, HEADS, *given, batch_first=True, dtype=torch.float64, **options)


def influence(windows: list[int | None], n: int = 30, draws: int = 20) -> Tensor:
    """Give how much each token counts, relative to the last; None is a global layer."""
    found = []
    for draw in range(draws):
        layers = [
            made(WindowAttention, window=w, seed=10 * draw + i)
            if w
            else made(CachedAttention, seed=10 * draw + i)
            for i, w in enumerate(windows)
        ]
        x = torch.randn(1, n, WIDTH, dtype=torch.float64, requires_grad=True)
        y = x
        for layer in layers:
            y = y + layer(y)[0]
        (gradient,) = torch.autograd.grad(y[0, -1].sum(), x)
        found.append(gradient[0].norm(dim=-1) / gradient[0, -1].norm())
    return torch.stack(found).median(0).values  # (n,)


# %% tags=["fold-input"]
stacks = {f"{count} window{'s' * (count > 1)}": [3] * count for count in (1, 2, 3, 4)}
stacks |= {"global first": [None, 3, 3, 3], "global last": [3, 3, 3, None]}
seen = {name: influence(windows) for name, windows in stacks.items()}
far = influence(stacks["global last"], n=300)[0]
drawing, (ax,) = display.panels(420, 210)
drawn = {"4 windows": ("n", "-"), "global first": ("h", "--"), "global last": ("d", ":")}
for name, (letter, look) in drawn.items():
    counts = seen[name][seen[name] > 0]
    before = range(1 - len(counts), 1)
    ax.plot(before, counts, look, color=display.COLOURS[letter], label=name)
ax.set(yscale="log", ylim=(2e-4, 1.5), xlabel="tokens before the last")
ax.set_yticks([0.001, 0.01, 0.1, 1], ["1/1000", "1/100", "1/10", "1"])
ax.set_yticks([], minor=True)
ax.legend(loc="upper left", fontsize=12)
first = {name: f"{x[x > 0][0]:.4f}" for name, x in seen.items()}
caption = (
    f"How much a token counts. The farthest: {first['4 windows']} through four windows, "
    f"{first['global first']} and {first['global last']} with a global layer; of 300 "
    f"tokens, with the global layer last, {far:.4f}."
)
alt = "; ".join(f"{name}: {share}" for name, share in first.items())
alt = f"How much the farthest token counts, relative to the last. {alt}."
display.finish(drawing, name="influence", alt=alt, caption=caption)

# %% [markdown]
# In general, L layers see $(w - 1)\,L + 1$ tokens. But through four windows the farthest counts 0.0005 of
# the last: in reach, and nearly out of hearing. (Only one of the 3⁴ paths leads there, in fresh layers without norm or
# MLP; the last token comes through on the residual connections.) On the other lines, one of the four layers is
# **global**, with a causal mask alone, and the output depends on all tokens. Of 30 the first counts 0.0202 or 0.0267, of
# 300 only 0.0029: an untrained layer gives each of n keys about 1/n. A global layer buys reach, and only training gives
# a far token weight. Next is what the last output *can* depend on. If you see sliders, put the global layer at 1 and then
# at 4: the whole text is lit both times, but at 1 few tokens carry it up.

# %% tags=["fold-input"]
display.reach([[3] * 4, [3, 3, None, 3]], name="reach", tokens=14, live_tokens=16)

# %% tags=["proof"]
from annotated_book.display.live_figures.reach import cone

for name, windows in stacks.items():
    lit = torch.arange(30) >= cone(30, windows)[0]
    assert lit.equal(seen[name] > 0)
print("✓ In each of the six stacks, the lit tokens are those with a gradient.")

# %% [markdown]
# The first Mistral 7B (v0.1) has a window of 4,096 and 32 layers, so $4{,}095 \cdot 32 + 1 =
# 131{,}041$ tokens *can* count [[Jiang et al., section 2](../docs/references.md#jiang-2023)].
#
# Here the image of the queue ends: each person can keep only one vector of what was heard, and a
# detail that nobody found worth passing on is lost. So many models put a global layer between the windows: Gemma 3 has one after every five windows of 1,024 [[Gemma
# Team](../docs/references.md#gemma-2025)], or of 512 in its two smallest models.
#
# ## A cache that forgets
#
# A query sees w − 1 keys before its own, so a [cache](21_cache.ipynb) need not keep more. A
# **rolling cache** drops the oldest key for each one that comes. In the package it is `WindowCache`. Its outputs must be those of a cache that keeps everything, with the window as a mask.

# %%
from annotated_attention.modern import KVCache, RotaryEmbedding, WindowCache

attention = made(WindowAttention, window=3, rotary=RotaryEmbedding(6))
tokens = torch.randn(2, 8, WIDTH, dtype=torch.float64)  # (2, 8, 24)
for chunks in ([8], [4, 3, 1], [1] * 8):
    rolling, full = WindowCache(window=3), KVCache()
    for part in tokens.split(chunks, dim=1):
        torch.testing.assert_close(attention(part, rolling), attention(part, full))
        if chunks == [4, 3, 1]:
            print(f"{rolling.length} have come, kept: {rolling.positions.tolist()}")

# %% [markdown]
# Two tokens are kept, whatever has come. The chunk of three sees the two and its own three; only afterwards are the oldest
# dropped. The price: a
# `WindowCache` that has dropped something cannot go back by a few tokens, as [speculative
# decoding](21_cache.ipynb#cell-id=going-back-and-branching) asks.

# %% [markdown] name="the-key-that-must-stay"
# ## The key that must stay: the attention sink
#
# A rolling cache drops the first tokens of a text first. A model that was trained with all keys
# in sight then predicts badly, from the moment when they are gone, although these tokens say next to
# nothing [[Xiao et al., section 3.1](../docs/references.md#xiao-2023)]. Why?
#
# A soft look-up never comes back empty. The weights of a query sum to 1, even if no key is what the
# head looks for. So heads learn to put what they do not need onto some key, and take the one that
# every query sees: the first. It is called an **attention sink**. Here are invented scores of such a head for the last word, *thirsty*:
# nothing fits, and *the* has a score of 4. What happens if *the* is outside the window?

# %% tags=["fold-input"]
OF_THIRSTY = torch.tensor([4.0, 0.5, 0.0, 0.5, 0.0, 1.0, 0.0, 0.0])  # (m,)


def weigh(window: int, sinks: int = 0) -> Tensor:
    """Give the weights of the last query."""
    blocked = block_by_position(torch.tensor([7]), 8, window, sinks=sinks)[0]
    return OF_THIRSTY.masked_fill(blocked, -torch.inf).softmax(-1)


rows = {"all keys": weigh(8), "window of 3": weigh(3), "and the first": weigh(3, sinks=1)}
table = {name: [*row, row[1:].sum()] for name, row in rows.items()}
display.show(table, columns=[*one.WORDS, "all but the first"], heat=one.WORDS)

# %% [markdown]
# With all keys, the words after the first get 0.16 together. The first gets the rest, and in trained
# models its value is close to zero ([Trained weights](13_trained_weights.ipynb#cell-id=a-weight-is-half-of-the-story)
# measures such heads), so the head hands over next to nothing. In the window they get 1.00: the head shouts what it used to whisper. With the first key kept, their sum is 0.08.
#
# So keep it. [The next chapter](25_a_model_of_today.ipynb#cell-id=what-breaks-what) does so in a chat
# model, where one key repairs most of the damage. The models of Xiao et al. had spread their sink over
# several first tokens: with four of them they predict about as well as before. Their method,
# **StreamingLLM**, numbers tokens by their place in the cache, not in the text, so that no distance
# grows beyond those of training, as long as the cache is no longer than its texts [[Xiao et al., section 3.2](../docs/references.md#xiao-2023)].
# In the package (`sinks`), all tokens keep their true positions.
#
# Why, then, does a **sliding window with re-computation** need no sink [[Xiao et al., figure
# 1](../docs/references.md#xiao-2023)]? For each token it reads the last w anew, at w² scores, so the first of them is
# first again: it sees only itself, and is the sink. The kept keys are others from the second layer on, made with
# tokens that are gone.

# %% tags=["proof"]
layers = [made(WindowAttention, window=3, seed=seed) for seed in (1, 2)]
for count in (1, 2):
    kept, anew = tokens, tokens[:, -3:]  # (2, 8, 24), (2, 3, 24)
    for layer in layers[:count]:
        kept, anew = kept + layer(kept)[0], anew + layer(anew)[0]
    assert torch.allclose(kept[:, -1], anew[:, -1]) == (count == 1)
print("✓ One layer gives the last token the same, and two do not.")

# %% [markdown] name="a-key-for-nothing"
# ### A key for nothing
#
# A model that is trained with windows can have its sink from the start. gpt-oss gives each head one
# more key [[OpenAI](../docs/references.md#openai-2025)]. Its score s is a learned number, the same
# for every query, and it has *no value*: it adds $e^s$ to the sum of the softmax, and nothing to
# the mix:
#
# $$\mathrm{output} = \frac{\sum_j e^{s_j} v_j}{e^s + \sum_j e^{s_j}}$$
#
# The output without the sink is divided by $\sum_j e^{s_j}$ alone, so the sink multiplies it by
# $\sum_j e^{s_j} / (e^s + \sum_j e^{s_j})$. With $\ell$, the log-sum-exp of the scores,
# $e^\ell = \sum_j e^{s_j}$, this is $1 / (1 + e^{s - \ell}) = \sigma(\ell - s)$, where σ is the
# sigmoid. So any kernel that returns $\ell$ can have sinks. Compute it both ways.

# %%
from annotated_attention.modern import tiled_attention, with_sink

torch.manual_seed(1)
q, k, v = (torch.randn(2, 4, 5, 6, dtype=torch.float64) for _ in range(3))  # (2, 4, 5, 6)
sink = torch.tensor([-9.0, 0.0, 1.0, 3.0], dtype=torch.float64)             # (4,)
column = sink[:, None, None].expand(2, 4, 5, 1)                             # (2, 4, 5, 1)
weights = torch.cat([q @ k.mT / 6**0.5, column], -1).softmax(-1)[..., :-1]  # (2, 4, 5, 5)
torch.testing.assert_close(with_sink(*tiled_attention(q, k, v), sink), weights @ v)
for s, sums in zip(sink, weights.sum(-1).transpose(0, 1)):
    print(f"sink {s:.0f}: keys get {sums.min():.2f} to {sums.max():.2f} of the weight")

# %% [markdown]
# Equal. A sink at −9 is no sink, and at 3 most of the weight goes to nothing. But many kernels return
# $\ell$ as a mere number, through which no gradient flows. Which gradients become wrong then: the sink's?

# %% tags=["fold-input"]
inputs = [x.requires_grad_() for x in (q, k, v, sink)]
parts = [q @ k.mT / 6**0.5, sink[:, None, None].expand(2, 4, 5, 1)]
exact = one.gradients(torch.cat(parts, -1).softmax(-1)[..., :-1] @ v, inputs)
output, lse = tiled_attention(q, k, v)
wrong = one.gradients(with_sink(output, lse.detach(), sink), inputs)
off = [(a - b).norm() / b.norm() for a, b in zip(wrong, exact)]
names = ["queries", "keys", "values", "sink"]
print("off by:", ", ".join(f"{name} {x:.2f}" for name, x in zip(names, off)))
output, lse = tiled_attention(q, k, v)
torch.testing.assert_close(one.gradients(with_sink(output, lse, sink), inputs), exact)

# %% [markdown]
# Not the sink's: s stands beside $\ell$ only, whose *value* is right. Queries and keys, which made $\ell$, learn
# from a gradient that is off by 0.20 and 0.18 of its size. Nothing fails.
#
# **Gated attention** lets a head give nothing in another way: it multiplies each feature that the
# heads collected by $\sigma(x\,W)$, a gate made from the token that asks [[Qiu et
# al.](../docs/references.md#qiu-2025)]. Qwen3-Next has it in its layers with softmax attention.

# %% [markdown] name="sparse-attention"
# ## Chosen by content: DeepSeek's sparse attention
#
# A window chooses keys by their place. The **sparse attention** of DeepSeek-V3.2 chooses them by their
# content: an **indexer** gives every key a cheap score, and the query attends to the 2,048 keys with
# the best ones [[DeepSeek-AI 2025, section 2.1](../docs/references.md#deepseek-2025)]. The indexer is
# a small attention without values. Its 64 heads of width 128 share one key a token; the token that asks has a query $q_j$ and a factor $w_j$ for each:
#
# $$\mathrm{score}(q, k) = \sum_j w_j\,\mathrm{ReLU}(q_j \cdot k)$$
#
# The $q_j$ are made from the [latent](22_fewer_keys.ipynb#cell-id=a-summary-instead-of-a-catalogue), the short vector, of
# the attention's own queries, k from the token. Place has a say, too: 64
# of the 128 numbers of each are rotated. All 128 heads of the attention share the one choice.


# %%
def choose_keys(q: Tensor, k: Tensor, w: Tensor, blocked: Tensor, count: int) -> Tensor:
    """Give each query the places of the ``count`` keys that the indexer scores best.

    Where fewer are visible, blocked ones fill up: the attention masks these.

    Args:
        q: (h, n, d), the queries of the indexer's heads.
        k: (n, d), one key a token, for all heads.
        w: (h, n, 1), a factor for each head, made from the token that asks.
        blocked: (n, n), True = blocked.
    """
    scores = (w * F.relu(q @ k.mT)).sum(0)                  # (n, n)
    scores = scores.masked_fill(blocked, -torch.inf)        # (n, n)
    return scores.topk(min(count, len(k)), dim=-1).indices  # (n, ...)


# %% tags=["proof"]
torch.manual_seed(2)
h, n, d = 4, 40, 16
q, k, w = torch.randn(h, n, d), torch.randn(n, d), torch.randn(h, n, 1, requires_grad=True)
blocked = torch.ones(n, n, dtype=torch.bool).triu(1)                     # (n, n)
main_q, main_k, v = (torch.randn(n, d).requires_grad_() for _ in "qkv")  # (n, d)
for count in (5, n):
    chosen = choose_keys(q, k, w, blocked, count)
    seen_keys = torch.zeros(n, n, dtype=torch.bool).scatter(1, chosen, True) & ~blocked
    output = F.scaled_dot_product_attention(main_q, main_k, v, attn_mask=seen_keys)
    for row in range(n):  # slowly, one query and one key at a time
        cheap = [
            sum(w[head, row, 0] * (q[head, row] @ key).relu() for head in range(h))
            for key in k[: row + 1]
        ]
        best = sorted(range(row + 1), key=lambda place: -cheap[place])[:count]
        assert seen_keys[row].nonzero()[:, 0].tolist() == sorted(best)
        shares = (main_k[best] @ main_q[row] / d**0.5).softmax(0)
        torch.testing.assert_close(output[row], shares @ v[best])
    assert torch.autograd.grad(output.sum(), w, allow_unused=True)[0] is None
expected = F.scaled_dot_product_attention(main_q, main_k, v, is_causal=True)
torch.testing.assert_close(output, expected)
print("✓ A slow loop chooses and collects the same; a choice has no gradient.")

# %% [markdown]
# It is the choice of DeepSeek's indexer in `transformers`, as a test holds. (NSA and MoBA, of 2025, choose whole blocks of
# keys, by a summary of each [[Yuan et al.](../docs/references.md#yuan-2025); [Lu et
# al.](../docs/references.md#lu-2025)].)
#
# Now a token is written, and 131,072 stand before it. Which takes more multiplications: the cheap scores
# of all these keys, or attention to the 2,048 that were chosen?
#
# <details><summary>What do you expect?</summary>
#
# The cheap scores, nearly four times as many. For one key, the indexer multiplies 64 · 128 times. The
# attention is latent, in its absorbed form: 128 heads
# multiply 576 times for the score and 512 times for the mix, 17 times as often. But the indexer reads
# 64 times as many keys.
#
# </details>

# %% tags=["fold-input"]
of_indexer, of_attention = 64 * 128, 128 * (576 + 512)  # multiplications for each key
assert (of_attention / of_indexer, 128 * (192 + 128) / of_indexer) == (17, 5)
indexed, latent = 128 + 4, 512 + 16 + 2 * 64  # bytes of each key as served, mostly 8 bits
full, few = 131_072, 2048
panels = {
    "million multiplications": [x / 1e6 for x in (of_attention, of_indexer)],
    "megabytes read, in 8 bits": [x / 1e6 for x in (latent, indexed)],
}
drawing, axes = display.panels(640, 150, columns=2)
for ax, (title, (each, cheap)) in zip(axes, panels.items()):
    bars = {"all keys": each * full, "indexer": cheap * full, "the chosen": each * few}
    for y, x in enumerate(bars.values()):
        ax.barh(y, x, 0.6, color=display.COLOURS["nhm"[y]], alpha=0.8, lw=0)
        ax.text(x + each * full / 50, y, f"{x:,.0f}" if x > 99 else f"{x:.1f}", va="center")
    left = (bars["indexer"] + bars["the chosen"]) / bars["all keys"]
    ax.set(xticks=[], xlim=(0, each * full * 1.3), ylim=(2.5, -0.5))
    ax.set_yticks(range(3), bars)
    ax.set_title(f"{title}: {left:.2f} left", fontsize=12)
alt = f"One token in one layer. {'; '.join(ax.get_title() for ax in axes)}."
caption = "One token in one layer, after 131,072 others."
display.finish(drawing, name="indexer", alt=alt, caption=caption)

# %% [markdown]
# Of these multiplications 0.07 are left, and most of them are the indexer's. Of the bytes,
# which decide the time [where memory is the limit](21_cache.ipynb#cell-id=bytes-over-bandwidth), 0.22 are left,
# if both caches are kept in 8 bits, as servers do: 132 bytes for a key of the indexer, 656
# for a latent [[Eight bits](../docs/references.md#eight-bits)]. In texts of up to 2,048 tokens, the indexer is only a
# cost. And it is **still quadratic in prefill**: every query scores all earlier keys. A dense prefill spreads the latents out
# to keys of 192 and values of 128, and its attention is cheaper: for each key, the indexer's score costs a fifth of it there, and not a seventeenth.
#
# All keys stay: beside the 576 numbers of a latent, the cache holds the indexer's 128. But a key that one query leaves out is there for the next, while a window has lost
# it for good. And since a choice has no gradient, the indexer is trained to imitate the weights of the
# attention, summed over its heads: first alone, with all keys in sight, then together with the model
# [[DeepSeek-AI 2025, section 2.1.1](../docs/references.md#deepseek-2025)].

# %% [markdown] name="all-at-once"
# ### All at once: DeepSeek-V4
#
# In each layer of DeepSeek-V4 (2026), a query sees a window of 128 tokens one by one, and each head has a sink
# [[DeepSeek-V4](../docs/references.md#deepseek-v4)]. All layers but V4-Flash's first two also see the text
# **compressed**, one layer by 4 and the next by 128: one entry, a weighted mean, for so many tokens. Of the entries by
# 4, an indexer chooses 512 (1,024<!-- quoted --> in V4-Pro); those by 128 are all seen.

# %% tags=["fold-input"]
kinds = {"by 4": (4, [(1, 1), (4, 1), (9, 2), (13, 1)]), "by 128": (16, [(0, 4)])}
left_of_one = {"V3.2": 512 + 64 + 128, "by 4": (512 + 128) // 4, "by 128": 512 // 128}
drawing, axes = display.panels(640, 150, columns=2)
for ax, (kind, (size, full)) in zip(axes, kinds.items()):
    draw_cells(ax, 0, 64, [(56, 8)])
    draw_cells(ax, 1, 64 // size, full, pale=True, wide=size)
    ax.barh(0, 4, 0.7, -6, color=display.COLOURS["h"], alpha=0.8)
    ax.text(-4, 0, "s", va="center", ha="center", fontsize=12)
    ax.set(xticks=[], xlim=(-7, 64.5), ylim=(1.5, -0.5))
    ax.set_yticks(range(2), ["tokens", kind])
    left = left_of_one[kind]
    ax.set_title(f"{kind}: an earlier token leaves {left} numbers", fontsize=12)
caption = (
    "Two kinds of layers. Full: attended to. Faint: only scored. Empty: gone. "
    "s: the sink. Drawn small: 8 tokens stand for the window of 128, and 16 for the 128 of "
    f"an entry. In V3.2, a token leaves {left_of_one['V3.2']} numbers in each layer."
)
alt = (
    "A window with a sink; beside it entries by 4, five of 16 chosen, or all four by 128. "
)
alt += "; ".join(ax.get_title() for ax in axes)
display.finish(drawing, name="compressed", alt=alt, caption=caption)

# %% [markdown]
# An entry is one vector of 512 numbers, [key and value in one](22_fewer_keys.ipynb#cell-id=one-wide-head). By 4, the
# indexer's key of 128 comes with it: (512 + 128) / 4 = 160 numbers a token; by 128 it is 512 / 128 = 4. (An entry by 4
# mixes eight tokens, its own four and the four before them, and so overlaps with its neighbour.)

# %% [markdown] name="linear-attention"
# ## A state instead of keys: linear attention
#
# Two matrix products make attention, and only the softmax between them forbids to begin with the second. Replace
# $e^{q \cdot k}$ by a product $\phi(q) \cdot \phi(k)$, with a function φ that makes all features positive. Then keys and
# values can be multiplied before any query comes. This is **linear attention** [[Katharopoulos et
# al.](../docs/references.md#katharopoulos-2020)], whose φ(x) is elu(x) + 1. How many numbers stand between the two products?

# %% tags=["fold-input"]
n, d = 131_072, 128
orders = {  # a matrix: left, width, height, name, color
    f"(Q Kᵀ) V: {n * n:,} scores": [(0, 8, 8, "Q Kᵀ", "h"), (9, 1.4, 8, "V", "m")],
    f"Q (Kᵀ V): {d * d:,} numbers": [(2, 1.4, 8, "Q", "n"), (4.4, 1.4, 1.4, "S", "h")],
}
drawing, axes = display.panels(600, 210, columns=2)
for ax, (title, matrices) in zip(axes, orders.items()):
    for left, wide, high, name, letter in matrices:
        ax.barh(high / 2, wide, high, left, color=display.COLOURS[letter], alpha=0.5, lw=0)
        ax.text(left + wide / 2, high / 2, name, ha="center", va="center", fontsize=12)
    ax.set(xlim=(-0.5, 11), ylim=(8.3, -0.3), aspect="equal")
    ax.axis("off")
    ax.set_title(title, fontsize=12)
caption = (
    f"Q and K after φ, for {n:,} tokens and a width of {d}; not to scale, no mask. The "
    f"state S = KᵀV is as large as the keys and values of {d * d // (2 * d)} tokens."
)
display.finish(drawing, name="two-orders", alt="; ".join(orders), caption=caption)

# %% [markdown]
# S is a (d, d_v) matrix, the **state**: here as large as the keys and values of 64 tokens, and no larger after a million.
# Under a causal mask each query needs the S of its own time. So a token first adds its product to S, and then asks; no
# key is kept. Divided by the sum of its weights, the mix is a mean again:
#
# $$\mathrm{output} = \frac{\phi(q)\, S}{\phi(q) \cdot z} \qquad S = \sum_j \phi(k_j)^\top v_j
# \qquad z = \sum_j \phi(k_j)$$
#
# In bfloat16, write φ as x + 1 above zero and $e^x$ below. There elu(x) + 1 is exactly 0 from about −6 down, and a
# query whose features are all 0 divides zero by zero.

# %% tags=["proof"]
q, k, v = (torch.randn(12, 6, dtype=torch.float64) for _ in range(3))  # (12, 6)
q, k = F.elu(q) + 1, F.elu(k) + 1                                      # (12, 6), (12, 6)
scores = (q @ k.mT).tril()                                             # (12, 12)
expected = scores / scores.sum(-1, keepdim=True) @ v                   # (12, 6)
state, total = torch.zeros(6, 6, dtype=torch.float64), 0
for query, key, value, row in zip(q, k, v, expected):
    state, total = state + key[:, None] * value, total + key
    torch.testing.assert_close(query @ state / (query @ total), row)
low = torch.tensor(-6.25).bfloat16()
assert F.elu(low) + 1 == 0 < low.exp()
print("✓ Token by token, the state gives what all scores at once give.")

# %% [markdown] name="the-delta-rule"
# ### The gated delta rule
#
# A state that only adds cannot correct itself. Here are three states, each with a key for the cat, the kitten and the
# milk. All have been told that the cat is in the garden. Tell them that it is in the hall: where is it now? Then tell them
# of the kitten, whose key is much like the cat's (their product is 0.6<!-- setting -->), and ask for the cat again.

# %% tags=["hide-input"]
KEYS = {"cat": (1.0, 0.0, 0.0), "kitten": (0.6, 0.8, 0.0), "milk": (0.0, 0.0, 1.0)}
PLACES = ["garden", "kitchen", "hall"]
FACTS = [("cat", "garden"), ("milk", "kitchen"), ("cat", "hall"), ("kitten", "kitchen")]
WAYS = {"Only adds": (1, False), "Delta rule": (1, True), "Delta rule, gate ½": (0.5, True)}
display.erases(KEYS, PLACES, FACTS, WAYS, name="delta-rule", asked="cat")

# %% [markdown]
# The first state says *garden* and *hall*. The **delta rule** first erases what the state says for the new key, and then
# writes the new value there, or does a share β of both [[Schlag et al.](../docs/references.md#schlag-2021)]. A **gate** α
# between 0 and 1, as in Mamba-2, lets the old state fade before that [[Yang, Kautz and
# Hatamizadeh](../docs/references.md#yang-2025-b)]. With keys of length 1, and with $q\,S$ as the output:
#
# $$\bar S = \alpha \odot S \qquad S \leftarrow \bar S \underbrace{-\ \beta\,k^\top (k\,\bar S)}_{\text{erase}}
# \underbrace{+\ \beta\,k^\top v}_{\text{write}}$$
#
# But a key is erased as far as others are like it: told that the kitten is in the kitchen, the delta rule has the cat
# there too, with 0.60, and only 0.64 of it in the hall. The milk's key is at a right angle to both, and stays at
# 1 under the delta rule: only the gate lets it fade, by half with each token.
#
# Erasing and writing are one step, the key times the difference v − k S̄. In other words: **the delta rule is one step of gradient descent, of size β, on the error $\tfrac12 \lVert k\,S - v
# \rVert^2$**. The state is a small linear model, trained while it reads.
#
# The *token* decides on α and β: a gate can stay open, and close for one token. In Qwen3-Next, α is one number for each head [[Qwen
# Team](../docs/references.md#qwen-2025)]. In Kimi Linear it has d numbers, one for each row of S, so that
# each feature of the keys fades at a pace of its own [[Kimi Team](../docs/references.md#kimi-2025)].
#
# There is no φ here and no denominator: a state that is corrected does not grow with each token. The layers of
# both models bring queries and keys to length 1, and norm the output. Beside the state they keep the last
# few inputs of a short convolution.


# %%
def gated_delta_rule(
    q: Tensor, k: Tensor, v: Tensor, alpha: Tensor, beta: Tensor
) -> Tensor:
    """Attend causally within one head, with a state in place of a cache.

    Args:
        q: (n, d), the queries.
        k: (n, d), the keys, of length 1.
        v: (n, x), the values.
        alpha: (n, d), or (n, 1) for a gate that is the same for all features.
        beta: (n,), the share of the difference that is written.
    """
    state, outputs = v.new_zeros(k.size(1), v.size(1)), []
    for query, key, value, keep, share in zip(q, k, v, alpha, beta):
        state = keep[:, None] * state  # fade
        state = state + share * key[:, None] * (value - key @ state)  # correct
        outputs.append(query @ state)
    return torch.stack(outputs)


# %% tags=["proof"]
right_angles = torch.linalg.qr(torch.randn(6, 3, dtype=torch.float64))[0].mT  # (3, 6)
k = right_angles.repeat(4, 1)                                                 # (12, 6)
v = torch.randn(12, 4, dtype=torch.float64)                                   # (12, 4)
ones = torch.ones(12, 1, dtype=torch.float64)                                 # (12, 1)
output = gated_delta_rule(k, k, v, ones, ones[:, 0])
torch.testing.assert_close(output, v)  # just written
v[9:] = 0  # then asked again: nothing new
ones[9:] = 0
after = gated_delta_rule(k, k, v, torch.ones(12, 1), ones[:, 0])
torch.testing.assert_close(after[9:], v[6:9])
assert not torch.allclose((k @ k.mT).tril() @ v, output)
told = torch.tensor([KEYS[who] for who, _ in FACTS])              # (4, 3)
said = torch.eye(3)[[PLACES.index(where) for _, where in FACTS]]  # (4, 3)
cat = told[:1].expand(4, 3)
says = gated_delta_rule(cat, told, said, torch.ones(4, 1), torch.ones(4))[-1]
torch.testing.assert_close(says, torch.tensor([0, 0.6, 0.64]))
key, value = told[-1], said[-1]
guess = torch.randn(3, 3, requires_grad=True)
(slope,) = torch.autograd.grad((key @ guess - value).square().sum() / 2, guess)
stepped = guess + 0.3 * key[:, None] * (value - key @ guess)
torch.testing.assert_close(guess - 0.3 * slope, stepped)
print("✓ The cat of the figure; at right angles, the last value; a step down the error.")

# %% [markdown]
# The book's tests compare it with the layers of both models in `transformers`.

# %% [markdown]
# <!-- deeper: In chunks, as kernels do it -->
# ### Going deeper: In chunks, as kernels do it
#
# One token after the other is a recurrent network, and slow to train. So take a chunk at once. Without
# gates, the first of its tokens writes $u_1 = \beta_1 (v_1 - k_1 S)$ under its key. The second finds that
# in the state, and writes $u_2 = \beta_2 (v_2 - k_2 S - (k_2 \cdot k_1)\, u_1)$. Each u needs those before it: a triangular system of equations, which is solved at once [[Yang et
# al. 2024](../docs/references.md#yang-2024-b)]. Gates are taken into queries and keys. (Kernels compute
# with their logarithms, since the division becomes inexact in long chunks.)


# %%
def in_chunks(
    q: Tensor, k: Tensor, v: Tensor, alpha: Tensor, beta: Tensor, size: int
) -> Tensor:
    """Compute what ``gated_delta_rule`` does, ``size`` tokens at a time."""
    state, outputs = v.new_zeros(k.size(1), v.size(1)), []
    chunks = zip(*(x.split(size) for x in (q, k, v, alpha, beta[:, None])))
    for query, key, value, keep, share in chunks:
        kept = keep.cumprod(0)  # since the chunk began
        asks, reads, writes = query * kept, key * kept, key / kept
        overlap = (share * reads @ writes.mT).tril(-1)
        new = torch.linalg.solve_triangular(
            overlap, share * (value - reads @ state), upper=False, unitriangular=True
        )
        outputs.append(asks @ state + (asks @ writes.mT).tril() @ new)
        state = kept[-1][:, None] * (state + writes.mT @ new)
    return torch.cat(outputs)


# %% tags=["proof"]
q, k, v, alpha = (torch.rand(12, 6, dtype=torch.float64) for _ in range(4))  # (12, 6)
inputs = [q, F.normalize(k), v, 0.5 + alpha / 2, torch.rand(12, dtype=torch.float64)]
inputs = [x.requires_grad_() for x in inputs]
for size in (1, 5, 12):
    found, expected = in_chunks(*inputs, size), gated_delta_rule(*inputs)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        one.gradients(found, inputs), one.gradients(expected, inputs)
    )
print("✓ In chunks of 1, 5 or 12: the same as token by token, gradients too.")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="what-a-state-forgets"
# ### What a state forgets
#
# Write 64 random pairs of a key and a value, 16 wide, into a state of 16 · 16 numbers. Then ask with each key: is the
# output nearest to its own value? Three rules write: a plain sum, a gate of 0.98<!-- setting --> for every token, and the
# delta rule with β = 0.3. Which finds most of the 64?

# %% tags=["fold-input"]
BETAS = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1]
RULES = {  # gate, β; 0 stands for a sum, which corrects nothing
    "plain sum": (1, 0),
    "gate, α = 0.98": (0.98, 0),
    **{f"β = {share:g}": (1, share) for share in BETAS},
    "β = 0.3, α = 0.98": (0.98, 0.3),
    "β = 0.3, cleared once": ({64: 0}, 0.3),  # for the token after 64 others; else 1
}


def by_state(keys: Tensor, values: Tensor, gate: float | dict, share: float) -> Tensor:
    """Write all pairs into a state, one after the other."""
    state = torch.zeros(len(keys), 16, 16)
    for place, (k, v) in enumerate(zip(keys.split(1, 1), values.split(1, 1))):
        state = (gate.get(place, 1) if isinstance(gate, dict) else gate) * state
        state = state + (share * k.mT @ (v - k @ state) if share else k.mT @ v)
    return state


def found(pairs: int, since: int = 0) -> dict[str, Tensor]:
    """Write pairs; give how often the value of each is found, from a place on."""
    torch.manual_seed(3)
    keys, values = F.normalize(torch.randn(2, 400, pairs, 16), dim=-1)
    ask, last = keys[:, since:], torch.arange(since, pairs)
    outputs = {name: ask @ by_state(keys, values, *rule) for name, rule in RULES.items()}
    outputs["least squares"] = ask @ torch.linalg.pinv(keys) @ values
    outputs["softmax"] = (256 * ask @ keys.mT).softmax(-1) @ values
    right = {name: (x @ values.mT).argmax(-1) == last for name, x in outputs.items()}
    return {name: hits.float().mean(0) for name, hits in right.items()}


# %% tags=["fold-input"]
drawing, (left, right) = display.panels(640, 280, columns=2)
by_age = found(64)
shown = {"plain sum": ("b", "-"), "gate, α = 0.98": ("h", "--"), "β = 0.3": ("m", "-")}
shares = {name: float(line.mean()) for name, line in by_age.items()}
for name, (letter, line) in shown.items():
    look = {"color": display.COLOURS[letter], "lw": 1.8, "label": name}
    left.plot(by_age[name].flip(0)[:48], line, **look)
left.set(xlabel="pairs written since", ylabel="share found", ylim=(0, 1.05))
left.set_yticks([0, 0.5, 1])
left.legend(loc="upper right", fontsize=12, frameon=False)
by_share = [shares[f"β = {share:g}"] for share in BETAS]
right.plot(BETAS, by_share, "o-", color=display.COLOURS["m"], label="delta rule")
for name, (letter, line) in {"least squares": ("n", ":"), "plain sum": ("b", "-")}.items():
    look = {"color": display.COLOURS[letter], "lw": 1.8, "label": name}
    right.axhline(shares[name], ls=line, **look)
right.set(xlabel="β", ylim=(0, 0.6), xlim=(0, 1.03))
right.set_yticks([0, 0.2, 0.4])
right.legend(loc="upper right", fontsize=12, frameon=False)
left.set_title("by age", fontsize=12)
right.set_title("of all 64", fontsize=12)
last_8 = {name: float(by_age[name][-8:].mean()) for name in shown}
alt = "; ".join(f"{name}: {shares[name]:.2f} of all" for name in shares)
alt += "".join(f"; {name}: {x:.2f} of the last 8" for name, x in last_8.items())
display.finish(drawing, name="recall-by-age", alt=f"How much is found. {alt}.")

# %% [markdown]
# No rule beats the others: it depends on β. Of all 64, the plain sum finds 0.27, the gate 0.27 as well, and the delta
# rule 0.31 with β = 0.3, but 0.19 with β = 1. Even the state with the least squared error over all pairs finds only 0.35.
# What differs is *which*. The sum blurs all ages alike, and the gate lets old pairs fade. The delta rule loses old ones,
# too, though nothing fades: a correction takes out part of what pairs with similar keys have left, as the kitten did to
# the cat.
#
# Where does a gate pay, then? Let the subject change: after 64 pairs that nobody asks for any more come 12, and only these
# are asked for.

# %% tags=["fold-input"]
new = found(76, since=64)
compared = ["β = 0.3", "β = 0.3, α = 0.98", "β = 0.3, cleared once"]
display.show({name: [new[name].mean()] for name in compared}, columns=["found"])

# %% [markdown]
# A gate of 0.98 lifts 0.70 to 0.82. But of the 64 pairs before, the same gate leaves only 0.27 where there were 0.31: it
# cannot spare what is still needed. So the models leave α to the token. In the last row, it is 0 for one token, the first
# of the new subject, and 1 for all others (set by hand here; a model has to learn when). That finds 0.92. **The delta rule
# overwrites the key that is written; a gate that the token closes clears the state.**

# %% [markdown] name="hybrids"
# ### Hybrids
#
# None of these states finds all 64; a softmax over all keys does (with scores × 256, so that it is nearly a choice). Of
# keys with 16 features at most 16 are independent, and for more a
# state cannot, in general, give back every value exactly. So Qwen3-Next and Kimi Linear are **hybrids**: three layers
# with a state for each one with softmax attention, as models with windows keep some global ones.
#
# vLLM takes all kinds from one pool of pages of equal size: a global layer holds pages for all tokens, a layer with a
# window frees the earlier ones, and a state takes one page. A beginning that two texts share is used again as far as *every* kind of layer still has it [[Hybrid
# caches](../docs/references.md#hybrid-caches)].

# %% [markdown]
# ## The mistake people make here
#
# Neither bug changes a shape: a window that is one key too wide, and a sink whose number is added to all scores.

# %%
wide, useless = MISTAKES["window-off-by-one"], MISTAKES["sink-added-to-scores"]
display.diff(wide.wrong, wide.right)

# %%
display.diff(useless.wrong, useless.right)

# %% [markdown]
# Count the keys with a weight above zero. And look at what the weights sum to, and at the gradient of the sinks.

# %%
x = torch.randn(1, 8, WIDTH, dtype=torch.float64)
for says, version in {"right": wide.of, "wrong": wide.version}.items():
    _, weights = made(version, window=3)(x, need_weights=True)
    print(f"{says}, keys:", *(weights[0, 0] > 0).sum(-1).tolist())
for says, version in {"right": useless.of, "wrong": useless.version}.items():
    module = made(version)
    output, weights = module(x, x, x)
    output.square().sum().backward()
    moved = module.sinks.grad.abs().max() > 1e-12
    print(f"{says}, sink: weights sum to {weights.sum(-1).min():.2f}, a gradient: {moved}")

# %% [markdown]
# > **Pitfall.** A softmax does not change when the same number is added to all its scores. So a
# > sink that is added does nothing, for any value, and no gradient ever moves it. A window off by
# > one shows only in texts that are longer than w.

# %% [markdown]
# ## Exercises
#
# ### Count the visible keys
#
# *Easy, 2 minutes.* A window has w = 4, and tokens are counted from 0. Write down how many keys
# token 0 sees; how many token 2 sees; how many token 9 sees; how many token 9 sees if the first 2
# tokens are kept as sinks; and how many tokens the last output of three such layers can depend on,
# in a long text without sinks.

# %% tags=["exercise"]
my_counts = [
    None,  # token 0
    None,  # token 2
    None,  # token 9
    None,  # token 9, with 2 sinks
    None,  # three layers
]

# %%
from annotated_book import exercises

exercises.windows.check_counts(my_counts)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The window counts the query's own key. At the beginning of a text there are fewer keys than it could hold.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Each layer adds w − 1 tokens. One token is there before the first layer.
#
# </details>

# %% tags=["solution"]
my_counts = [1, 3, 4, 4 + 2, (4 - 1) * 3 + 1]

exercises.windows.check_counts.folded(my_counts)

# %% [markdown]
# ## What you have now
#
# > **In short.** Key j is hidden from query i if $j > i$, or if $j \le i - w$ and j is no sink. L
# > layers see $(w - 1)\,L + 1$ tokens. A learned sink s multiplies the output by $\sigma(\ell - s)$, where
# > $\ell$ is the log-sum-exp of the scores. A rolling cache keeps `(b, g, w - 1, d)`, and the first
# > keys, if asked.
# >
# > ```python
# > blocked = (j > i) | ((j <= i - w) & (j >= sinks))  # (n, m): the window counts the query
# > output = output * torch.sigmoid(lse - sink[:, None])[..., None]  # a key without a value
# > ```
# >
# > What a token does not see itself, it can get through other layers, blurred. Weights must go somewhere, so
# > keep the first tokens or give the head a key for nothing. DeepSeek's indexer chooses 2,048 keys by $\sum_j w_j\,\mathrm{ReLU}(q_j \cdot k)$. The gated delta
# > rule keeps a state, `(d, d_v)`, in place of keys: $S \leftarrow \bar S + \beta\,k^\top (v - k\,\bar
# > S)$ with $\bar S = \alpha \odot S$. The gate clears, all at once or by age; the delta rule overwrites a key.
#
# With rotations, shared keys, a cache and windows, you have the parts of a model of today. [The next
# chapter](25_a_model_of_today.ipynb) puts them together, loads a published chat model, and asks it.
