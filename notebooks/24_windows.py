# %% [markdown]
# # Windows and sparse attention
#
# *What may a token safely not look at?*
#
# *14 minutes and 2 of exercises. Afterwards you can count what a window sees, keep an attention sink,
# and say what DeepSeek's indexer computes.*
#
# Straight to: [windows](#cell-id=three-keys-each) · [attention sink](#cell-id=the-key-that-must-stay) · [DeepSeek's
# indexer](#cell-id=sparse-attention)
#
# If every layer of Gemma 3 27B kept every token, the cache of one text of 131,072 tokens would take more memory than the
# model's own 27 billion parameters. But it keeps only a sixth of that cache:

# %% tags=["hide-input"]
import json
import math
from importlib import resources

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention.modern import block_by_position
from annotated_book import chapters, display
from attention_doctor.mistakes import MISTAKES

# %% tags=["fold-input"]
long, each = 131_072, 8192  # tokens; bytes of keys and values in a layer
sizes = {
    "27 billion parameters": 27e9 * 2,
    "cache, if all 62 layers keep all tokens": 62 * long * each,
    "cache, with a window of 1,024 in 52 of them": (52 * 1023 + 10 * long) * each,
}
rows = {name: [size / 1e9] for name, size in sizes.items()}
display.show(rows, columns=["GB"], decimals=1)

# %% [markdown] name="three-keys-each"
# In 52 of the 62 layers each token sees only its neighbours. What does it miss? Think of people in a long queue, each of
# whom hears only the two in front. Something happens at the front. Nobody farther back can hear that, yet after a few
# rounds of passing it on, the news has travelled a long way.
#
# Models of today look at less than the whole text in two ways. A *window* chooses keys by their place. **Sparse
# attention** chooses them by their content, as DeepSeek's indexer does. (The next chapter keeps no keys at all.)
#
# ## Three keys each
#
# In a **sliding window** of w keys, each query sees its own key and the w − 1 before it [[Beltagy
# et al.](../docs/references.md#beltagy-2020)]. A causal mask hides the later keys; the window hides those that are w
# places earlier or more. Here is the mask for w = 3, with a row for each word that asks; what it does not see is hatched.
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
# From the third word on, everybody sees three keys, however long the text becomes. So prefill computes about n · w scores,
# where a causal mask leaves n² / 2. For 131,072 tokens and a window of 1,024, in [tiles](23_tiles.ipynb#cell-id=tiles) of
# 128, less than a fiftieth of the work is left:

# %% tags=["fold-input"]
tile_rows = torch.arange(131_072 // 128)
first_tiles = (128 * tile_rows - 1023).clamp(min=0) // 128  # of the earliest visible key
with_window, causal = (tile_rows - first_tiles + 1).sum(), (tile_rows + 1).sum()
print(f"{with_window:,} of {causal:,} tiles: {with_window / causal:.1%}")

# %% [markdown]
# Make a block mask from the rule, and PyTorch's compiled `flex_attention` [skips the tiles](23_tiles.ipynb) outside.
#
# Does a window of 3 hold three keys, or three and the query's own? Both readings exist, and a real library mixed them up.
# Its kernel took the number of keys *before* the query, and it handed over w. So everybody saw w + 1 keys, 2,049 for a
# window of 2,048 [[transformers](../docs/references.md#windows-off-by-one)]. No shape changes, and it shows only in texts
# that are longer than w: count the keys with a weight above zero.
#
# ## What a stack of windows sees
#
# Now pass the news on. Stack two layers with a window of 3. How many tokens can the last output depend on?
#
# <details name="reach"><summary>Three.</summary>
#
# So many the last token sees itself. But what it sees there has looked around, too, one layer below.
#
# </details>
# <details name="reach"><summary>Five.</summary>
#
# Right. The farthest of the three has seen two more, one layer below. Each layer adds w − 1 tokens, since the query's own
# key takes one place of its window.
#
# </details>
# <details name="reach"><summary>Six.</summary>
#
# That would be three more. But the farthest of the three counts itself among its own three.
#
# </details>
#
# So L layers see $(w - 1)\,L + 1$ tokens. The first Mistral 7B (v0.1) has a window of 4,096 and 32 layers, so
# $4{,}095 \cdot 32 + 1 = 131{,}041$ tokens *can* count [[Jiang et al., section
# 2](../docs/references.md#jiang-2023)]. How much does the farthest count? Measure it: the *gradient* of the last output
# with respect to a token says how much the output depends on it. Here are four new layers, not trained, with residual
# connections and windows of 3; the gradient is relative to the last token's.

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
drawing, (ax,) = display.panels(343, 200)
drawn = {"4 windows": ("n", "-"), "global first": ("h", "--"), "global last": ("d", ":")}
for name, (letter, look) in drawn.items():
    counts = seen[name][seen[name] > 0]
    before = range(1 - len(counts), 1)
    ax.plot(before, counts, look, color=display.COLOURS[letter], label=name)
ax.set(yscale="log", ylim=(2e-4, 1.5), xlabel="tokens before the last")
ax.set_yticks([0.001, 0.01, 0.1, 1], ["1/1000", "1/100", "1/10", "1"])
ax.set_yticks([], minor=True)
ax.legend(loc="upper left", fontsize=12, frameon=False)
first = {name: f"{100 * x[x > 0][0]:.1g}%" for name, x in seen.items()}
caption = (
    "How much a token counts, as a median of 20 draws. The farthest: "
    f"{first['4 windows']} through four windows, "
    f"{first['global first']} and {first['global last']} with a global layer."
)
alt = "; ".join(f"{name}: {share}" for name, share in first.items())
alt = f"How much the farthest token counts, relative to the last. {alt}."
display.finish(drawing, name="influence", alt=alt, caption=caption)

# %% [markdown]
# Through four windows the farthest counts 0.05% of the last: it is in reach, and nearly out of hearing. On the other two
# lines one of the four layers is **global**, with a causal mask alone. Then the very first of 30<!-- setting --> tokens counts 2 or 3%.
# (These layers are not trained and look at all alike: of 300 tokens, the first counts a tenth of that. Only training
# gives one far token more than its share.) Many models interleave local layers, with a window, and global ones: Gemma 3 has one after every five
# windows of 1,024 [[Gemma Team](../docs/references.md#gemma-2025)], or of 512 in its two smallest models.
#
# Which way does the news take? Put the global layer at 1 and then at 4. The whole text is lit both times, but at 1 few
# tokens carry it up:

# %% tags=["fold-input"]
display.reach([[3] * 4, [3, 3, None, 3]], name="reach", tokens=14, live_tokens=16)

# %% tags=["proof"]
from annotated_book.display.live_figures.reach import cone

for name, windows in stacks.items():
    lit = torch.arange(30) >= cone(30, windows)[0]
    assert lit.equal(seen[name] > 0)
of_many = influence(stacks["global first"], n=300, draws=5)[0]  # of 300 tokens, the first
assert of_many < 0.2 * seen["global first"][0]
print("✓ In each of the six stacks, the lit tokens are those with a gradient.")

# %% [markdown]
# ## A cache that forgets
#
# A query sees w − 1 keys before its own, so a [cache](21_cache.ipynb) need not keep more. A **rolling cache** drops the
# oldest key for each one that comes. The package has it as `WindowCache`. Its outputs are those of a cache that keeps
# everything, under the window as a mask:

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
# Two tokens are kept, whatever has come. The price: to go back by a few tokens, as [speculative
# decoding](21_cache.ipynb#cell-id=going-back-and-branching) asks, it would have to keep a few more.

# %% [markdown] name="the-key-that-must-stay"
# ## The key that must stay: the attention sink
#
# Let the cache of a trained model forget. SmolLM2, the chat model of [A model of today](26_a_model_of_today.ipynb), was
# trained with all keys in sight. Now each of its layers keeps the last 128 keys alone. So token 129 is the first that does
# not see token 1, and in the texts that it reads here, token 1 is a mere asterisk. The **perplexity**, the exponential of
# the loss, says from how many equally likely tokens the model seems to choose. What does it do from token 129 on?
#
# <details name="forget"><summary>Next to nothing: one asterisk is missing.</summary>
#
# So little does it tell about the text. But the model has another use for it.
#
# </details>
# <details name="forget"><summary>It rises slowly, as more and more is forgotten.</summary>
#
# That happens, too, and it is the smaller part: the dashed line below rises to less than half as much again.
#
# </details>
# <details name="forget"><summary>It doubles at once.</summary>
#
# Right, and it stays there. Keep this one key beside the window, and most of the damage is repaired.
#
# </details>

# %% [markdown]
# The texts are the beginnings of 16 chapters of this book, 512 tokens of each. Each line has another cache: it keeps the
# last 128 keys, or these and the very first, or all. Where a line is at 2, the perplexity is twice as large as with all
# keys. (The losses are recorded; `make seeds ONLY=sinks TRAINED=1` measures them again.)

# %% tags=["fold-input"]
SINKS = resources.files("annotated_book").joinpath("data/sinks.json")
runs, lines = json.loads(SINKS.read_text())["runs"], {}
whole = [run for run in runs if run["window"] is None]
for run in runs:
    lines.setdefault((run["window"], run["sinks"]), []).append(run["loss"])
mean = {kept: torch.tensor(losses).mean(0) for kept, losses in lines.items()}
drawn = {(128, 0): ("h", "-"), (128, 1): ("m", "--"), (None, 0): ("n", ":")}
names = ["the last 128", "the last 128, and the first", "all keys"]
later = [f"{mean[kept][8:].mean().exp():.0f}" for kept in [*drawn, (128, 4)]]
drawing, (ax,) = display.panels(345, 230)
for (kept, (letter, look)), name in zip(drawn.items(), names):
    times = (mean[kept] - mean[None, 0]).exp()
    ax.plot(range(8, 512, 16), times, look, color=display.COLOURS[letter], label=name)
ax.set(ylim=(0, None), xlim=(0, 512), xticks=range(0, 513, 128), xlabel="token")
ax.set_title("perplexity, times that with all keys", fontsize=12, loc="left")
ax.legend(loc="lower right", fontsize=12, frameon=False)
names = ["the last 128", "these and the first", "all keys", "with the first four"]
said = "; ".join(f"{name}: {x}" for x, name in zip(later, names))
caption = f"Perplexity of tokens 129 to 512 of 16 texts. {said.capitalize()}."
display.finish(drawing, name="forgets", alt=f"Jumps at 129. {caption}", caption=caption)

# %% [markdown]
# A window of neighbours makes the perplexity 108 instead of 48. Keep one more key, the first, and it is 55.
#
# Why is one key worth so much? Attention never comes back empty: the weights of a query sum to 1, even if no key is
# what the head looks for. So heads learn to put what they do not need onto some key, and take the one that every query
# sees, the first. It is called an **attention sink**. How much does it get, and how much does it give? With all keys kept,
# measure the weight that tokens 129 to 512 put on it. And compare the length of its value with the mean of the other 511.
# Both are averages over heads, layers and texts:

# %% tags=["fold-input"]
weight, value = (
    sum(run[f"{what} of the first"] for run in whole) / 16 for what in ("weight", "value")
)
print(f"weight on the first key: {weight:.0%}")
print(f"length of its value: {value:.2f} of the others'")

# %% [markdown]
# One key gets 24% of the weight, where an equal share would be less than a hundredth. And its value is about a third as
# long as the others'. So a head that finds nothing looks there, and hands over little. When the first key is gone, the
# softmax gives its weight to the others, with their longer values, and the head hands over what it used to leave out.
#
# So keep it. Here one key is enough: with the first four, the perplexity is 55 as well. Of four other models, Falcon, MPT
# and Pythia needed one, too, and Llama-2 7B needed four [[Xiao et al., table 2](../docs/references.md#xiao-2023)].
# **StreamingLLM**, the method of the same paper, also numbers tokens by their place in the cache instead of the text, so that no distance grows beyond those of training [[Xiao et
# al., section 3.2](../docs/references.md#xiao-2023)].

# %% [markdown]
# <details><summary>Why does a sliding window with re-computation need no sink?</summary>
#
# For each token it reads the last w anew, at w² scores, so the first of them stands first again [[Xiao et al., figure
# 1](../docs/references.md#xiao-2023)]. It sees only itself, and so it can be the sink. In a rolling cache no kept key stands
# first: from the second layer on, each was made while its token still saw words that are gone.
#
# </details>

# %% tags=["proof"]
layers = [made(WindowAttention, window=3, seed=seed) for seed in (1, 2)]
for count in (1, 2):
    kept, anew = tokens, tokens[:, -3:]  # (2, 8, 24), (2, 3, 24)
    for layer in layers[:count]:
        kept, anew = kept + layer(kept)[0], anew + layer(anew)[0]
    assert torch.allclose(kept[:, -1], anew[:, -1]) == (count == 1)
print(
    "✓ Computed anew, the last token gets the same through one layer, and not through two."
)

# %% [markdown] name="a-key-for-nothing"
# ### A key for nothing
#
# A model that is trained with windows can have its sink from the start. gpt-oss gives each head one more key
# [[OpenAI](../docs/references.md#openai-2025)]. Its score s is a learned number, the same for every query, and it has *no
# value*: it adds $e^s$ to the sum of the softmax, and nothing to the mix:
#
# $$\mathrm{output} = \frac{\sum_j e^{s_j} v_j}{e^s + \sum_j e^{s_j}}$$
#
# A kernel that knows no sinks divides by $\sum_j e^{s_j}$ alone. If it returns the logarithm of that sum, $\ell$, you can
# give it sinks afterwards. Multiply its output by
#
# $$\frac{e^\ell}{e^s + e^\ell} = \sigma(\ell - s)$$
#
# where σ is the sigmoid. Compute it both ways, for four heads with sinks of their own:

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
# Equal. A sink at −9 is no sink, and at 3 most of the weight goes to nothing.
#
# **Gated attention** lets a head give nothing in another way: it multiplies each feature that the
# heads collected by $\sigma(x\,W)$, a gate made from the token that asks [[Qiu et
# al.](../docs/references.md#qiu-2025)]. Qwen3-Next has it in its layers with softmax attention.

# %% [markdown]
# <!-- deeper: A kernel whose ℓ has no gradient -->
# ### Going deeper: A kernel whose ℓ has no gradient
#
# Many kernels return $\ell$ as a mere number, through which no gradient flows. Then the outputs are right, and so is the
# sink's gradient, which needs the *value* of $\ell$ alone. But queries and keys have made $\ell$, and their gradients are
# off, here by a fifth of their size. Nothing fails.

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
# <!-- /deeper -->

# %% [markdown] name="sparse-attention"
# ## Chosen by content: DeepSeek's sparse attention
#
# A window chooses keys by their place. The **sparse attention** (DSA) of DeepSeek-V3.2 chooses them by their
# content: an **indexer** gives every key a cheap score, and the query attends to the 2,048 keys with
# the best ones [[DeepSeek-AI 2025, section 2.1](../docs/references.md#deepseek-2025)]. The indexer is
# a small attention without values. Its 64 heads of width 128 share one key a token; the token that asks has a query $q_j$ and a factor $w_j$ for each head j:
#
# $$\mathrm{score}(q, k) = \sum_j w_j\,\mathrm{ReLU}(q_j \cdot k)$$
#
# The $q_j$ are made from the [latent](22_fewer_keys.ipynb#cell-id=a-summary-instead-of-a-catalogue), the short vector, of
# the attention's own queries, k from the token; 64 of the 128 numbers of each are rotated, so place has a say. All 128
# heads of the attention share the one choice.


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


# %% [markdown]
# That is the choice of DeepSeek's indexer in `transformers`, as a test holds. Does it find the keys that the attention
# would weigh most? Here are 24 random tokens and an indexer that imitates: its queries and keys are the attention's own
# with noise. Below stand the weights of the last query if it attends to *all* keys; the chosen ones are strong.


# %% tags=["fold-input"]
def imitated(seed: int, h: int = 8, n: int = 24, d: int = 16) -> list[Tensor]:
    """Draw queries, keys and values, and an indexer that imitates them."""
    torch.manual_seed(seed)
    main_q, main_k, v = (scale * torch.randn(n, d) for scale in (2, 1, 1))  # (n, d)
    q = main_q + 2 * torch.randn(h, n, d)                                   # (h, n, d)
    k = main_k + torch.randn(n, d) / 2                                      # (n, d)
    return [main_q, main_k, v, q, k, torch.rand(h, n, 1)]


future = torch.ones(24, 24, dtype=torch.bool).triu(1)  # (n, n)
found = []
for seed in (*range(200), 34):
    main_q, main_k, v, *indexer = imitated(seed)
    (last,) = choose_keys(*indexer, future, 5)[-1:]     # (5,)
    dense = (main_k @ main_q[-1] / 16**0.5).softmax(0)  # (n,)
    found.append((dense[last].sum(), dense.topk(5).values.sum()))
held, best = torch.tensor(found[:-1]).mean(0).tolist()

# %% tags=["fold-input"]
q, k, w = indexer
for learned in (main_q, main_k, w):
    learned.requires_grad_()
n, h = len(k), len(q)
cheap = (w * F.relu(q @ k.mT)).sum(0)[-1].tolist()
rows = {"the indexer's scores": cheap, "weights, if all keys are seen": dense.tolist()}
drawing, axes = display.panels(345, 180, rows=2)
for ax, (name, heights) in zip(axes, rows.items()):
    for place, height in enumerate(heights):
        shade = 0.9 if place in last else 0.25
        ax.bar(place, height, 0.8, color=display.COLOURS["m"], alpha=shade, lw=0)
    ax.axhline(0, color="grey", lw=0.6)
    ax.set(xticks=[], yticks=[], xlim=(-0.7, n - 0.3))
    ax.set_title(name, fontsize=12, loc="left")
said = f"The five hold {dense[last].sum():.0%} of the weight; the best five would hold "
said += f"{dense.topk(5).values.sum():.0%}. Over 200 draws: {held:.0%} and {best:.0%}."
alt = f"Scores and weights of {n} keys, five of them chosen. {said}"
display.finish(drawing, name="chosen", alt=alt, caption=f"A bar for each key. {said}")

# %% [markdown]
# It finds most of the weight, not all: in 200 draws the five hold 67% of it on average, and the best five would hold
# 79%. The attention then weighs the five alone, so that they get all of it.

# %% tags=["proof"]
for count in (5, n):
    chosen = choose_keys(q, k, w, future, count)
    seen_keys = torch.zeros(n, n, dtype=torch.bool).scatter(1, chosen, True) & ~future
    output = F.scaled_dot_product_attention(main_q, main_k, v, attn_mask=seen_keys)
    for row in range(n):  # slowly, one query and one key at a time
        cheap = [
            sum(w[head, row, 0] * (q[head, row] @ key).relu() for head in range(h))
            for key in k[: row + 1]
        ]
        best = sorted(range(row + 1), key=lambda place: -cheap[place])[:count]
        assert seen_keys[row].nonzero()[:, 0].tolist() == sorted(best)
        shares = (main_k[best] @ main_q[row] / 16**0.5).softmax(0)
        torch.testing.assert_close(output[row], shares @ v[best])
    assert torch.autograd.grad(output.sum(), w, allow_unused=True)[0] is None
expected = F.scaled_dot_product_attention(main_q, main_k, v, is_causal=True)
torch.testing.assert_close(output, expected)
print("✓ A slow loop chooses and collects the same; a choice has no gradient.")

# %% [markdown]
# (NSA and MoBA, of 2025, choose whole blocks of keys, by a summary of each [[Yuan et
# al.](../docs/references.md#yuan-2025); [Lu et al.](../docs/references.md#lu-2025)].)
#
# Now a token is written, and 131,072 stand before it. Which takes more multiplications: the cheap scores of all these
# keys, or attention to the 2,048 that were chosen?
#
# <details name="indexer"><summary>The attention: for each key it multiplies 17 times as often.</summary>
#
# The attention does: its 128 heads multiply 576 times for the score and 512 times for the mix, since it is latent
# attention, in its absorbed form. The indexer multiplies 64 · 128 times. But the indexer reads 64 times as many keys.
#
# </details>
# <details name="indexer"><summary>The cheap scores: they are those of 64 times as many keys.</summary>
#
# Right, nearly four times as many. For one key, the attention multiplies 17 times as often as the indexer. So up to
# 17 times 2,048 tokens the attention would be the larger part.
#
# </details>

# %% tags=["fold-input"]
of_indexer, of_attention = 64 * 128, 128 * (576 + 512)  # multiplications for each key
assert of_attention / of_indexer == 17
indexed, latent = 128 + 4, 512 + 16 + 2 * 64  # bytes of each key as served, mostly 8 bits
full, few = 131_072, 2048
slow = [
    max(2 * sums * n / 989e12, held * n / 3.35e12)  # seconds: FLOPs, or bytes
    for sums, held, n in (
        (of_attention, latent, full),
        (of_indexer, indexed, full),
        (of_attention, latent, few),
    )
]
assert 2 * of_indexer / indexed < 989 / 3.35 < 2 * of_attention / latent

# %% tags=["fold-input"]
panels = {
    "million multiplications": [x / 1e6 for x in (of_attention, of_indexer)],
    "megabytes read": [x / 1e6 for x in (latent, indexed)],
}
drawing, axes = display.panels(640, 150, columns=2)
for ax, (title, (each, cheap)) in zip(axes, panels.items()):
    bars = {"to all keys": each * full, "indexer": cheap * full, "to 2,048": each * few}
    for y, x in enumerate(bars.values()):
        ax.barh(y, x, 0.6, color=display.COLOURS["nhm"[y]], alpha=0.8, lw=0)
        label = f"{x:,.0f}" if x > 99 else f"{x:.1f}"
        ax.text(x + each * full / 50, y, label, va="center", fontsize=12)
    left = (bars["indexer"] + bars["to 2,048"]) / bars["to all keys"]
    ax.set(xticks=[], xlim=(0, each * full * 1.3), ylim=(2.5, -0.5))
    ax.set_yticks(range(3), bars)
    ax.set_title(f"{title}: {left:.0%} of all keys'", fontsize=12)
alt = f"One token in one layer. {'; '.join(ax.get_title() for ax in axes)}."
caption = (
    "One token in one layer, after 131,072 others: attention to all keys; or the indexer's "
    "scores and attention to the 2,048 chosen, which together take the percentage."
)
caption += f" Time on paper: {sum(slow[1:]) / slow[0]:.0%}."
display.finish(drawing, name="indexer", alt=alt, caption=caption)

# %% [markdown]
# Attention to all 131,072 keys would take 18,254 million multiplications. Indexer and attention to the chosen take 7% of
# them, most for the indexer. The bytes that they read are still 22%. On an H100, as in [The cache](21_cache.ipynb#cell-id=bytes-over-bandwidth), arithmetic is the limit of the attention, and memory that of the
# indexer. On paper that makes 16% of the time. (Servers keep both caches in 8 bits, with 132 bytes for a key of the
# indexer and 656 for a latent [[Eight bits](../docs/references.md#eight-bits)].) In texts of up to 2,048 tokens the
# indexer is only a cost. And prefill is **still quadratic**, since every query scores all earlier keys.
#
# The cache becomes no smaller: beside the 576 numbers of a latent it holds the indexer's 128. In return, a key that one
# query leaves out is there for the next, while a window has lost it for good.
#
# A choice has no gradient. So the indexer is trained to imitate the weights of the attention, summed over its heads: first
# alone, with all keys in sight, then together with the model [[DeepSeek-AI 2025, section
# 2.1.1](../docs/references.md#deepseek-2025)].

# %% [markdown] name="all-at-once"
# ### All at once: DeepSeek-V4
#
# DeepSeek-V4 (2026) has a window of 128 tokens in each layer, and each head has a sink
# [[DeepSeek-V4](../docs/references.md#deepseek-v4)]. Beside the window, all layers but V4-Flash's first two see the text
# **compressed**: an entry, a weighted mean, stands for 4 tokens in one layer, and for 128 in the next, nearly always in turn. Of the
# entries by 4, an indexer chooses 512 (1,024<!-- quoted --> in V4-Pro); those by 128 are all seen.

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
    "Two kinds of layers. Full: attended to. Faint: only scored. Empty: kept no more, but "
    "in the entries below. s: the sink. Not to scale. In V3.2, a token leaves "
    f"{left_of_one['V3.2']} numbers in each layer; here, in turn, "
    f"{(left_of_one['by 4'] + left_of_one['by 128']) / 2:.0f} on average."
)
alt = (
    "A window with a sink; beside it entries by 4, five of 16 chosen, or all four by 128. "
)
alt += "; ".join(ax.get_title() for ax in axes)
display.finish(drawing, name="compressed", alt=alt, caption=caption)

# %% [markdown]
# An entry is one vector of 512 numbers, [key and value in one](22_fewer_keys.ipynb#cell-id=one-wide-head). By 4, the
# indexer's key of 128 comes with it: (512 + 128) / 4 = 160 numbers a token; by 128 it is 512 / 128 = 4. Taken in turn, that is 82 on
# average, where V3.2 keeps 704. (An entry by 4
# mixes eight tokens, its own four and the four before them, and so overlaps with its neighbour.)

# %% [markdown]
# ## The mistake people make here
#
# Somebody ports gpt-oss, and adds the learned sink to the head's scores: `(scores + sinks[:, None, None]).softmax(-1)`.
# Nothing fails. What does such a sink do?
#
# <details name="added"><summary>It damps the output, as the key for nothing does.</summary>
#
# For that it would have to stand in the sum once more. Here it raises every term, above and below the line.
#
# </details>
# <details name="added"><summary>Nothing at all.</summary>
#
# Right. A softmax does not change when the same number is added to all its scores. So the weights still sum to 1, and no
# gradient ever moves the sink. That is how to find the mistake.
#
# </details>

# %% tags=["proof"]
wide, useless = MISTAKES["window-off-by-one"], MISTAKES["sink-added-to-scores"]
x = torch.randn(1, 8, WIDTH, dtype=torch.float64)
for version, most in ((wide.of, 3), (wide.version, 4)):
    _, weights = made(version, window=3)(x, need_weights=True)
    assert (weights[0, 0] > 0).sum(-1).max() == most
for version, works in ((useless.of, True), (useless.version, False)):
    module = made(version)
    output, weights = module(x, x, x)
    output.square().sum().backward()
    assert bool(module.sinks.grad.abs().max() > 1e-12) == works
    sums = weights.sum(-1)
    assert torch.allclose(sums, torch.ones_like(sums)) != works
print("✓ Added to the scores, a sink has no gradient, and the weights still sum to 1.")

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
# > What a token does not see itself, it can get through other layers, blurred. Weights must go somewhere, so keep the first
# > tokens or give the head a key for nothing. DeepSeek's indexer chooses 2,048 keys by
# > $\sum_j w_j\,\mathrm{ReLU}(q_j \cdot k)$.
#
# Each of these still keeps keys. [The next chapter](25_linear_attention.ipynb) keeps none, but a single page of notes.
