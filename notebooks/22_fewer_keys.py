# %% [markdown]
# # Fewer keys
#
# *Why do the heads of today's models share their keys and values?*
#
# *25 minutes and 8 of exercises. Afterwards you can say what a cache costs, let heads share keys,
# and keep a short summary instead of keys.*
#
# You know this chapter's three ways to share as MQA, GQA and MLA. Remember the library of the [first
# chapter](01_one_head.ipynb): a head asks a question, compares
# it with a catalogue of keys, and goes home with notes from the values. A layer with 96 heads sends
# 96 readers, each with their own catalogue and their own shelf of books. A model that writes keeps
# all of this for every word so far, in a cache like the one you built in [The
# cache](21_cache.ipynb).
#
# Readers with different questions can use the same catalogue. In this chapter you let them share in
# three ways, all found in today's models: one catalogue for all (multi-query attention, MQA), one for
# each group of readers (grouped-query attention, GQA), or a short summary from which every reader
# makes a catalogue (latent attention, MLA). You see what each way saves, what it gives up,
# and which mistake hands readers the wrong catalogue. Below, only *project in* and *split* make
# fewer keys and values; *score* and *mix* share them.

# %% tags=["hide-input"]
import copy
import json
from importlib import resources

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from annotated_attention import MultiheadAttention, counting
from annotated_attention.counting import cache_bytes, short
from annotated_book import chapters, display, measured

display.chapter_map("project in", "split", "score", "mix")

# %% [markdown] name="the-bill"
# ## The bill
#
# For every token, the cache holds a key and a value for each head of each layer. That makes `2 *
# layers * heads * width` numbers per token, where `width` is the width of one head. In half
# precision, each number takes two bytes.
#
# GPT-3 has 96 layers, each with 96 heads of width 128 [[Brown et al., table
# 2.1](../docs/references.md#brown-2020)]. It reads texts of up to 2,048 tokens. How much memory
# does the cache for a text of that length take: about 10 megabytes, one gigabyte, or ten?
#
# <details><summary>What do you expect?</summary>
#
# Ten gigabytes. A token takes 2 · 96 · 96 · 128 numbers, which is more than two million, and twice
# as many bytes. Two thousand tokens take two thousand times as much.
#
# </details>
#
# The cell computes the size of the cache for published models: for one token and, for comparison,
# for a text of 8,192 tokens, which is more than some of these models can read. The column *heads*
# gives the number of query heads in a layer, then the number of key and value heads. The function
# `cache_bytes` takes the number of tokens and how many numbers a token's keys have in all, and counts
# two bytes for each. The first Mistral 7B looks at the last 4,096 tokens only, so its cache need not hold more.

# %% tags=["fold-input"]
MODELS = {  # layers, heads of queries, heads of keys, width of a head
    "GPT-3 175B": (96, 96, 96, 128),
    "LLaMA 7B": (32, 32, 32, 128),
    "Llama 3 8B": (32, 32, 8, 128),
    "Mistral 7B v0.1": (32, 32, 8, 128),
    "Llama 2 70B": (80, 64, 8, 128),
    "PaLM 540B": (118, 48, 1, 256),
    "Qwen3 32B": (64, 64, 8, 128),
}
WINDOWS = {"Mistral 7B v0.1": 4096}
rows = {}
for name, (layers, h, g, d) in MODELS.items():
    held = (1, min(8192, WINDOWS.get(name, 8192)))  # tokens
    sizes = [cache_bytes(length, g * d, layers=layers) for length in held]
    rows[name] = [f"{h}, {g}", *(short(size, "B") for size in sizes)]
print("GPT-3, 2,048 tokens:", short(cache_bytes(2048, 96 * 128, layers=96), "B"))
display.show(rows, columns=["heads", "a token", "8,192 tokens"], corner="model")

# %% [markdown]
# In GPT-3, a single text of full length takes 9.66 GB, on top of the model itself. A server that
# answers ten people at once needs ten such caches. There is a second cost: for each new token, the
# whole cache has to be read from memory, and on a fast processor this takes longer than the
# arithmetic [[Shazeer](../docs/references.md#shazeer-2019)].
#
# LLaMA 7B and Llama 3 8B have the same number of layers and of query heads, and their heads are
# equally wide. Llama 3 8B needs a quarter of the memory, because it has a quarter as many key
# heads. PaLM is the largest model on the list, yet it keeps less per token than Llama 3 8B. In the
# last five models, query heads share keys and values.
#
# <details><summary>Where the sizes come from</summary>
#
# LLaMA: [Touvron et al., table 2](../docs/references.md#touvron-2023); Llama 3: [Llama Team, table
# 3](../docs/references.md#llama-2024); Mistral: [Jiang et al., table
# 1](../docs/references.md#jiang-2023); Llama 2: [Touvron et al., section
# 2.2](../docs/references.md#touvron-2023-b); PaLM: [Chowdhery et al., section
# 2](../docs/references.md#chowdhery-2022); Qwen3: [Yang et al. 2025, table
# 1](../docs/references.md#yang-2025).
#
# </details>

# %% [markdown] name="two-questions-one-catalogue"
# ## Two questions, one catalogue
#
# Why can heads share keys at all? Because it is the *query* that decides what a head looks for.
# Take this book's example sentence, and use its words unchanged as both keys and values. Two heads
# ask: one looks for animals, the other for qualities. Each row of `questions` is one head's query,
# made by hand.

# %%
one = chapters.load("01_one_head")
words = one.EMBEDDINGS                                      # (8, 4)
questions = torch.tensor([[3.0, 0, 0, 0], [0, 0, 0, 3.0]])  # (2, 4)
collected, weights = one.attend(questions, words, words)    # (2, 4), (2, 8)
display.show(weights, ["animal?", "quality?"], one.WORDS, heat=True)

# %% [markdown]
# The same keys answer both questions: the first head gives 0.75 to *cat*, the second gives 0.66 to
# *thirsty*. So let all heads share one key head and one value head. This is **multi-query
# attention** [[Shazeer](../docs/references.md#shazeer-2019)]: many query heads, but only one head
# of keys and values. A key head together with its value head is called a **KV head**.
#
# What does sharing give up? Each KV head sees the tokens through its own matrices $W_K$ and $W_V$,
# and each matrix extracts d features. With h KV heads, the heads together can compare h · d
# features of a token, and bring home as many in their values. With one KV head, all heads compare
# the same d features, and bring home the same d. The toy example does not show this loss, because
# its keys hold all features.

# %% [markdown] name="groups"
# ## Groups
#
# There is a middle way. In **grouped-query attention** (GQA), g KV heads serve h query heads, and each
# serves a **group** of h / g neighbours [[Ainslie et
# al.](../docs/references.md#ainslie-2023)]. With g = h, every group is a single head, and this is
# multi-head attention as before. With g = 1, it is multi-query attention.
#
# In the package, grouped-query attention is a subclass of [the final
# class](07_multihead_attention.ipynb). Its $W_K$ and $W_V$, stored transposed as in `nn.Linear`,
# have g · d rows instead of h · d. Then `repeat_heads` repeats each KV head for its group, and the
# heads attend as before.

# %%
from annotated_attention.modern import GroupedQueryAttention, repeat_heads

display.annotated(repeat_heads)

# %% [markdown]
# One line does the work: `repeat_interleave` repeats each KV head h / g times *in a row*, so that
# neighbours share. Now make modules with six heads of width 4 and count their parameters.

# %%
WIDTH, HEADS = 24, 6


def made(kind: type[nn.Module], *heads: int, **options) -> nn.Module:
    """Make a module from a fixed seed."""
    torch.manual_seed(5)
    return kind(WIDTH, HEADS, *heads, batch_first=True, dtype=torch.float64, **options)


rows = {}
for g in (6, 3, 2, 1):
    module = made(GroupedQueryAttention, g)
    found = sum(p.numel() for p in module.parameters())
    assert found == counting.attention_parameters(WIDTH, shared=g * 4)
    w_k = module.in_proj_weight[WIDTH:].split(g * 4)[0]  # (..., 24)
    rank = torch.linalg.matrix_rank(w_k)
    rows[g] = [found, tuple(w_k.shape), rank]
display.show(rows, columns=["parameters", "W_K", "features"], corner="KV heads")

# %% [markdown]
# With six KV heads, the module has as many parameters as the final class, $4e^2 + 4e$. With one KV
# head, $W_K$ and $W_V$ have four rows each, and 1,400 of the 2,400 parameters are left. The last
# column is the rank of $W_K$, the number of independent features of a token that reach the keys.

# %% [markdown]
# The figure shows four heads of width 6 without sharing, and three ways to share. A line leads from
# a query head to the keys and values that it reads. This section is about the first three; the last
# way, **latent attention**, comes [below](#cell-id=a-summary-instead-of-a-catalogue).


# %% tags=["fold-input"]
def draw_way(ax, name: str, g: int) -> None:
    """Draw how four heads of width 6 share what is kept of a token."""
    grey, blue, green = (display.COLOURS[letter] for letter in "bnm")
    look, latent = {"ha": "center", "va": "center", "fontsize": 13}, name == "latent"
    box = {"fc": "none", "ec": green}
    for i in range(4):
        ring = {"boxstyle": "circle", "fc": "none", "ec": blue}
        ax.text(i + 0.5, 3, f"q{i}", color=blue, bbox=ring, **look)
        if latent:  # each head makes keys and values of its own
            ax.text(i + 0.5, 1.9, f"kv{i}", color=green, bbox=box | {"ls": ":"}, **look)
            ax.plot([i + 0.5] * 2, [2.55, 2.3], color=grey, lw=1.2)
        ends = [i + 0.5, (i * g // 4 + 0.5) * 4 / g]
        ax.plot(ends, [1.5 if latent else 2.55, 0.9], color=grey, lw=1.2)
    for j in range(g):
        said = "latent" if latent else f"kv{j}"
        ax.text((j + 0.5) * 4 / g, 0.5, said, color=green, bbox=box, **look)
    ax.set_title(name, fontsize=14)


# %% tags=["fold-input"]
ways = {"multi-head": 4, "grouped-query": 2, "multi-query": 1, "latent": 1}
kept = {name: 8 + 2 if name == "latent" else 2 * g * 6 for name, g in ways.items()}
drawing, axes = display.panels(430, 430, columns=2, rows=2)
for ax, (name, g) in zip(axes, ways.items()):
    draw_way(ax, name, g)
    ax.text(2, -0.4, f"{kept[name]} numbers a token", ha="center", fontsize=14)
    ax.set(xlim=(-0.1, 4.1), ylim=(-0.7, 3.5), aspect="equal")
    ax.axis("off")
display.finish(
    drawing,
    name="who-shares",
    alt=(
        "Four heads of queries above, what is kept of a token below. "
        + "; ".join(
            f"{name}: {4 // g} to each, {kept[name]} numbers" for name, g in ways.items()
        )
        + ". From the latent, keys and values of each head are made when needed."
    ),
)

# %% [markdown]
# Without sharing, four heads of width 6 keep 48 numbers for each token, a key and a value in each
# head. The latent has 8 numbers, and 2 more are kept beside it for positions (8 and 2 are arbitrary
# choices).

# %% [markdown]
# <!-- deeper: The same as PyTorch -->
# ### Going deeper: The same as PyTorch
#
# PyTorch's function supports groups, too, through the argument `enable_gqa=True`. Outputs and
# gradients must be equal for any number of KV heads, with the weights and without. With six KV
# heads, the parameters and the result must also equal those of the final class.

# %% tags=["proof"]
OPEN = {"blocked": None, "bias": None, "is_causal": False}  # nothing is masked
q = torch.randn(2, 6, 3, 4, dtype=torch.float64, requires_grad=True)  # (2, 6, 3, 4)
for g in (6, 3, 2, 1):
    module = made(GroupedQueryAttention, g)
    k = torch.randn(2, g, 5, 4, dtype=torch.float64, requires_grad=True)  # (2, ..., 5, 4)
    v = torch.randn_like(k, requires_grad=True)                           # (2, ..., 5, 4)
    expected = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)   # (2, 6, 3, 4)
    gradients = one.gradients(expected, [q, k, v])
    for need_weights in (True, False):
        heads = module.attend(q, k, v, **OPEN, need_weights=need_weights)[0]
        torch.testing.assert_close(heads, expected)
        torch.testing.assert_close(one.gradients(heads, [q, k, v]), gradients)
print("✓ With 6, 3, 2 and 1 KV heads: what PyTorch gives, gradients too.")

# %% tags=["proof"]
single, final = made(GroupedQueryAttention, 6), made(MultiheadAttention)
torch.testing.assert_close(dict(single.state_dict()), dict(final.state_dict()))
y = torch.randn(2, 5, WIDTH, dtype=torch.float64)  # (b, m, e)
torch.testing.assert_close(single(y, y, y), final(y, y, y))
print("✓ With as many KV heads as heads it is the final class.")

# %% [markdown]
# The constructor lets the final class draw its parameters, and keeps the first g · d rows of $W_K$
# and $W_V$. In `attend`, the last two lines repeat the heads and attend. The lines before them are
# a shortcut for calls that do not ask for the weights: `enable_gqa` tells PyTorch's kernel that
# queries share keys. It finds each query's keys by itself, without copies, where it has one that
# does (see [What a cache keeps](#cell-id=what-a-cache-keeps)).

# %%
display.annotated(GroupedQueryAttention.__init__, GroupedQueryAttention.attend)

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="which-heads-share"
# ## Which heads share
#
# Two PyTorch functions can turn 2 KV heads into 6. Their names differ in one word, and their
# results have the same shape. The cell numbers the KV heads and prints which one each of the six
# query heads gets.

# %%
numbered = torch.arange(2).view(1, 2, 1, 1)  # (1, 2, 1, 1)
rows = {"repeat_interleave": numbered.repeat_interleave(3, dim=1).flatten()}
rows["repeat"] = numbered.repeat(1, 3, 1, 1).flatten()
display.show(rows, columns=[f"head {i}" for i in range(6)])

# %% [markdown]
# > **Pitfall.** `repeat` lays out the whole row of KV heads again and again, like tiles. Heads 1
# > and 4, counted from 0, get a different KV head than with `repeat_interleave`. A model that is
# > *trained* with tiles works, because its queries learn which KV head they get. But with
# > parameters that were trained the other way, two of the six heads read the wrong catalogue. This
# > happens even to experts: ONNX, a standard for exchanging models, first defined its attention
# > operator with tiles [[ONNX](../docs/references.md#onnx-gqa)].
#
# The package has a class that makes this mistake. Give it the parameters of the right class:

# %%
from attention_doctor.mistakes import MISTAKES

tiled = MISTAKES["groups-tiled"].version
right, wrong = made(GroupedQueryAttention, 2), made(tiled, 2)
wrong.load_state_dict(right.state_dict())
x = torch.randn(2, 3, WIDTH, dtype=torch.float64)  # (b, n, e)
y = torch.randn(2, 5, WIDTH, dtype=torch.float64)  # (b, m, e)
off = (wrong(x, y, y)[0] - right(x, y, y)[0]).abs().max()
print(f"same parameters, same shapes, off by up to {off:.2f}")
display.diff(MISTAKES["groups-tiled"].wrong, MISTAKES["groups-tiled"].right)

# %% [markdown] name="what-a-cache-keeps"
# ## What a cache keeps
#
# The heads are repeated only within `attend`, so a cache keeps them before that. The class of the
# last chapter, `CachedAttention`, is therefore a grouped-query attention itself, with as many KV
# heads as query heads unless you pass `num_kv_heads`. Here it reads two samples of seven tokens in
# chunks, and the result must be the same as for all tokens at once.

# %%
from annotated_attention.modern import CachedAttention, KVCache, RotaryEmbedding

tokens = torch.randn(2, 7, WIDTH, dtype=torch.float64)  # (2, 7, e)
held = {}
for g in (6, 3, 2, 1):
    module = made(CachedAttention, num_kv_heads=g, rotary=RotaryEmbedding(4))
    cache, (whole, _) = KVCache(), module(tokens)
    chunks = [module(part, cache)[0] for part in tokens.split([4, 2, 1], dim=1)]
    torch.testing.assert_close(torch.cat(chunks, 1), whole)
    assert cache.numel() == counting.cache_numbers(7, g * 4, b=2)
    held[f"g = {g}"] = [cache.numel()]
display.show(held, columns=["numbers kept"])

# %% [markdown]
# Does sharing also save arithmetic? In the projections it does. But each head of queries still
# compares its own query with every key and mixes every value, so the FLOPs of scores and mix stay
# as they are. What shrinks is the cache, and the time to read it, as long as the shared keys are not
# copied for the call. So where nobody asks for the weights, `CachedAttention` hands them over as they
# are, with `enable_gqa=True`, and PyTorch's fused kernel finds each query's keys by itself.

# %% [markdown]
# <!-- deeper: What is counted, and what is measured -->
# ### Going deeper: What is counted, and what is measured
#
# PyTorch counts the FLOPs for one new token after 1,000 others, at e = 512 with 8 query heads. The
# two formulas in the assertions come from [Counting](14_counting.ipynb).

# %%
rows = {}
for g in (8, 4, 2, 1):
    module = CachedAttention(512, 8, num_kv_heads=g, batch_first=True, device="meta")
    cache = KVCache()
    cache.append(*(torch.empty(1, g, 1000, 64, device="meta") for _ in range(2)))
    with FlopCounterMode(display=False) as counter:
        module(torch.empty(1, 1, 512, device="meta"), cache, need_weights=True)
    flops = counter.get_flop_counts()["Global"]
    projections, scores = flops[torch.ops.aten.addmm], flops[torch.ops.aten.bmm]
    rows[g] = [projections, scores, cache.numel()]
display.show(rows, columns=["projections", "scores, mix", "kept"], corner="KV heads")

# %% tags=["proof"]
for g, (projections, scores, _) in rows.items():
    assert projections == counting.projection_flops(1, 1, 512, shared=g * 64)
    assert scores == counting.score_flops(1, 1001, 512)
print("✓ The formulas say the same.")

# %% [markdown]
# The times below are milliseconds for one layer with e = 512 and eight query heads: keys for *every
# head*, *groups* of four query heads, *one head* of keys, and
# [latents](#cell-id=a-summary-instead-of-a-catalogue) as wide as four heads, plain and absorbed. The first
# column is a call with four texts of 512 tokens. The others use a cache that grows.

# %%
speed = chapters.load("15_speed")
(whole,) = measured.find("fewer keys", mode="forward")
rows = measured.find("cache of fewer keys", memory="kept")
kinds = ("every head", "groups", "one head", "latents", "latents, absorbed")
table = {x: [row["milliseconds"][x][1] for row in (whole, *rows)] for x in kinds}
columns = [f"{row['size'][1]} behind {row.get('kept', 0):,}" for row in (whole, *rows)]
speed.origin("cache of fewer keys")
display.show(table, columns=columns, decimals=[0] + [2] * 4, corner="milliseconds; tokens")

# %% tags=["fold-input"]
(long,) = measured.find("cache of fewer keys", memory="kept", kept=4095)
spent = long["milliseconds"]
for kind in ("groups", "one head"):
    assert spent[kind][2] < spent["every head"][0]
assert spent["latents, absorbed"][2] < spent["latents"][0]
assert whole["milliseconds"]["latents"][2] < whole["milliseconds"]["latents, absorbed"][0]
fused = [kind for kind in kinds if "flash" in str(long["profile"][kind])]
assert fused == ["every head", "groups", "one head"]

# %% [markdown]
# Behind 4,095 tokens, groups take less time than keys for every head, because there are fewer keys
# to copy and to read. Behind short texts these three differ little, and in no order. Of the two
# forms of latents, the absorbed one is faster for one token, the plain one for whole texts. Neither
# is as fast as keys for every head here. Behind a cache, the plain form makes all keys again, and
# the absorbed one compares wider vectors. Both also miss PyTorch's fused kernel, which on this
# processor needs keys and values of one width. What latents save here is memory.
#
# <!-- /deeper -->

# %% [markdown]
# ## Fewer keys for a trained model
#
# Training a large model from scratch is expensive. Can a model that is already trained be made to
# share? Ainslie et al. take averages: the new $W_K$ of a group is the mean of the old ones, row by
# row, and likewise for $W_V$. Then they go on training, for one twentieth of the original number of
# steps. In the package, `group_heads` averages the heads of one module. Here six heads of four rows
# become two groups of three heads:

# %%
from annotated_attention.modern import group_heads

final = MultiheadAttention(24, 6, batch_first=True)
w_k = final.in_proj_weight[24:48]              # (24, 24)
groups = w_k.unflatten(0, (2, 3, 4))           # (2, 3, 4, 24)
averaged = groups.mean(1).flatten(0, 1)        # (8, 24)
packed = group_heads(final, 2).in_proj_weight  # (40, 24)
print(tuple(w_k.shape), "->", tuple(averaged.shape))

# %% tags=["proof"]
assert packed[24:32].equal(averaged)
print("✓ `group_heads` averages in the same way.")

# %% [markdown]
# $W_K$ now has two heads of four rows instead of six.
#
# Try this on a model you know: the copier of [Training](12_training.ipynb), whose two layers of
# attention continue a text that repeats itself. Here the copier has four heads in each layer. They
# are averaged into two, or into one, without a single step of training. Does the accuracy stay where
# it is, fall a little, or is most of it gone?
#
# <details><summary>What do you expect?</summary>
#
# Most of it is gone. The heads of a layer need not resemble each other, and even two that do the
# same job may use different features for it. The mean of their keys resembles neither, and the
# queries, which have not changed, still ask for the old ones.
#
# </details>
#
# The command `make seeds` trained the copier from five seeds for 300 steps, shared the keys, and
# trained on for up to 75 steps. Besides **averaged** heads, it tried three other ways to start:
# **first** keeps the first head of each group and drops the others, **new** draws $W_K$ and $W_V$
# anew, and **from scratch** trains a model with shared keys from the beginning. The cell prints the
# lowest and the highest accuracy of the five runs.

# %% tags=["fold-input"]
data = resources.files("annotated_book").joinpath("data/groups.json")
runs = json.loads(data.read_text())["runs"]
table = {}
for g in (2, 1):
    for origin in ("averaged", "first", "new", "from scratch"):
        rows = [x for x in runs if (x["KV heads"], x["origin"]) == (g, origin)]
        steps = [step for step in ("0", "15", "75", "300") if step in rows[0]]
        columns = [[row[step] for row in rows] for step in steps]
        spans = [f"{min(values):.2f}–{max(values):.2f}" for values in columns]
        found = dict(zip(steps, spans))
        table[f"g = {g}, {origin}"] = [found.get(step) for step in ("0", "15", "75", "300")]
display.show(table, columns=[0, 15, 75, 300], corner="after steps")

# %% [markdown]
# Averaging alone costs most of the accuracy: with four KV heads, a copier gets nearly every letter right
# (the fold below has the number). After fifteen steps, one twentieth of the first training, two KV heads are close to
# that, and a single one comes close after 75. New
# keys and values start at 0.04, which is what guessing one of 26 letters gives, and stay far
# behind: the old ones are worth a lot, even averaged. Keeping the first heads depends more on luck.
# Models that shared from the beginning get nearly everything right, too, so on this small task four
# catalogues were more than was needed. On a large model, Ainslie et al. found the mean best, then
# the first head, then new heads.

# %% [markdown]
# <!-- deeper: One run, step by step -->
# ### Going deeper: One run, step by step

# %%
training = chapters.load("12_training")
CHECKED = (0, 5, 15, 30, 75)  # steps


def share_keys(model: nn.Module, g: int) -> nn.Module:
    """Copy a model, with ``g`` averaged KV heads in each layer."""
    model = copy.deepcopy(model)
    for i, attention in enumerate(model.layers):
        model.layers[i] = group_heads(attention, g)
    return model


# %% tags=["fold-input"]
def retrain(model: nn.Module, seed: int = 0, checked: tuple = CHECKED) -> dict[int, float]:
    """Train a copier on; give its accuracy at some steps."""
    source, accuracy = torch.Generator().manual_seed(1000 + seed), {}
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, max(checked))
    for step in range(max(checked) + 1):
        if step in checked:
            accuracy[step] = training.copied(model)
        loss, _ = training.judge_copies(model, *training.repeated(64, source))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return accuracy


copier, curve = training.learn_to_copy(layers=2, heads=4)
print(f"accuracy with 4 KV heads: {curve[training.COPY_STEPS]:.3f}")
rows = {f"g = {g}": [*retrain(share_keys(copier, g)).values()] for g in (2, 1)}
display.show(rows, columns=CHECKED, decimals=3, corner="after steps")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="a-summary-instead-of-a-catalogue"
# ## A summary instead of a catalogue
#
# The heads of a group must share their keys, even where separate keys would serve them better.
# **Latent attention** gives every head keys and values of its own, but does not keep them
# [[DeepSeek-AI 2024, section 2.1](../docs/references.md#deepseek-2024)]. For each token, it keeps
# one short vector of width c, the **latent**, which is made by a narrow matrix: $\ell =
# x\,W_{\text{down}}$, followed by a norm. From the latent, two matrices make the keys and values of
# all heads. In the library, the readers keep a one-page summary of each book, and each reader makes
# a catalogue from the summaries when needed.
#
# A latent takes little room, but it seems that the keys and values of *all* tokens must be made
# again for each new token. There is a way around this. Take one head, and call its matrix from
# latents to keys $U$. The score of a query $q$ with the key $\ell U$ is
#
# $$q\,(\ell U)^\top = (q\,U^\top)\,\ell^\top.$$
#
# So instead of making every key, change the one query: multiply it by $U^\top$, and compare it with
# the latents themselves.

# %%
torch.manual_seed(9)
q, latents, U = torch.randn(3, 4), torch.randn(3, 8), torch.randn(8, 4)
keys = latents @ U                  # (3, 4)
plain = q @ keys.mT                 # (3, 3)
absorbed = (q @ U.mT) @ latents.mT  # (3, 3)
display.show(absorbed, range(3), range(3), corner="scores")

# %% tags=["proof"]
torch.testing.assert_close(absorbed, plain)
print(
    f"✓ Keys of {keys.size(-1)} numbers, or latents of {latents.size(-1)}: the same scores."
)

# %% [markdown]
# Values work the same way: mix the latents first, and apply the matrix to the mix. This is called
# **absorbing** the matrices. In memory, the latents now serve as both keys and values, like the
# single KV head of multi-query attention. But each head still has keys of its own, because its query
# now contains its own $U$.
#
# ### Why positions stand apart
#
# In [Positions](20_positions.ipynb), queries and keys are rotated by their positions. Rotate the
# keys made from the latents, and compute the correct scores. Then absorb $U$. The query is still
# rotated, but no key is left to rotate. How far off are the scores?

# %%
rotary, places = RotaryEmbedding(4), torch.arange(3)
scores = rotary(q, places) @ rotary(keys, places).mT  # (3, 3)
by_latents = rotary(q, places) @ U.mT @ latents.mT    # (3, 3)
print(f"off by up to {(scores - by_latents).abs().max():.1f}")
print(f"the scores: up to {scores.abs().max():.1f} in size")

# %% [markdown]
# The error reaches two thirds of the largest score. Rotating the query and the key, each by its
# own position, is the same as one rotation $R_t$ by the distance $t$ between them. This rotation
# stands between $q$ and $U^\top$: with queries and latents as rows, the score is
# $q\,R_t\,U^\top \ell^\top$. The matrix to absorb would be $R_t\,U^\top$, a different one for each
# distance. And keeping the rotated keys themselves would cost the very memory that latents save.
#
# So DeepSeek leaves the keys made from latents unrotated, and adds a second, short key of width r.
# *All heads* share it. Only the short key is rotated, and it is kept in its rotated form. Each head
# also makes a second, short query. The short query is appended to the long query, and the short key
# to the long key. The dot product is then the sum of two scores: one from the latents, without
# positions, and one that also knows the distance. The scale becomes $1 / \sqrt{d + r}$, in the
# absorbed form too, although its queries are c + r wide. (DeepSeek's
# models stretch their positions with YaRN, and multiply this scale by a further constant. To load
# them, pass the product as `scale`.)
#
# > **Pitfall.** Two mistakes show only in the absorbed form. One absorbs $U$ although the keys made
# > from the latents are rotated, as in the cell above. The other leaves out the short query and key.
# > A text of a single token hides both: the softmax over a single key gives the same weight for any
# > score. Compare the two forms on more.
#
# ### In the class
#
# `queries` makes both queries of each head: `q` and, rotated, `q_rotated`. (`q_down` passes the
# tokens on, unless queries are compressed, too.) `compress` makes what is kept: `kv_down` gives c +
# r numbers for each token, the latent and the short key, which is rotated to `k_rotated` (in pairs
# of neighbours, the layout of DeepSeek's weights). The cache expects an axis for heads, so both get
# one of length 1. `attend_plainly` makes the keys; `attend_absorbed` brings the query to the
# latents. `k_up` stores $U^\top$ of all heads, as `nn.Linear` does, and a value is d_v numbers
# wide, here as wide as a key.

# %%
from annotated_attention.modern import LatentAttention

display.annotated(
    LatentAttention.queries,
    LatentAttention.compress,
    LatentAttention.attend_plainly,
    LatentAttention.attend_absorbed,
)

# %% [markdown]
# Both forms must give the same outputs and the same gradients for every parameter. With a cache
# that is filled in chunks, the outputs must be the same, too. (`tests/annotated_attention/modern/test_latent.py` also
# compares the class with DeepSeek's attention in `transformers`.)

# %% tags=["proof"]
torch.manual_seed(8)
sizes = {"latent_dim": 8, "rotary_dim": 2}  # c and r
latent = LatentAttention(24, 6, **sizes, batch_first=True, dtype=torch.float64)
tokens = torch.randn(2, 7, 24, dtype=torch.float64, requires_grad=True)  # (2, 7, 24)
inputs = [tokens, *latent.parameters()]
plain, absorbed = (latent(tokens, absorb=absorb)[0] for absorb in (False, True))
torch.testing.assert_close(absorbed, plain)
expected = one.gradients(plain, inputs)
torch.testing.assert_close(one.gradients(absorbed, inputs), expected)

cache = KVCache()
chunks = [latent(part, cache, absorb=True)[0] for part in tokens.split([4, 2, 1], dim=1)]
torch.testing.assert_close(torch.cat(chunks, 1), plain)
assert cache.numel() == 2 * 7 * (8 + 2)
print(f"✓ Plain or absorbed, at once or in chunks: equal, with {len(inputs)} gradients.")

# %% [markdown]
# That is 10 numbers a token: 8 for the latent and 2 for the key that carries the position. Without
# sharing, six heads of width 4 would keep 48.
#
# ### What it saves
#
# DeepSeek-V3 has 671 billion parameters and, in each of 61 layers, 128 heads, with latents of 512
# numbers and rotated keys of 64 [[DeepSeek-AI 2024, section
# 4.2](../docs/references.md#deepseek-2024-b)]. How many bytes does a token take, compared with keys
# and values for every head, or with eight KV heads of width 128?

# %%
ways = {
    "latent": cache_bytes(1, 512, 64, layers=61),  # the latent, and the key that is rotated
    "each head": cache_bytes(1, 128 * (128 + 64), 128 * 128, layers=61),  # keys, values
    "8 heads": cache_bytes(1, 8 * 128, layers=61),
}
rows = {name: [short(size, "B")] for name, size in ways.items()}
display.show(rows, columns=["a token"])

# %% [markdown]
# A token takes 70.3 kB: about half as much as a token of Llama 3 8B, and one seventieth of what keys
# and values for every head would take. This saving has a price: the 128 keys of a token, 16,384
# numbers in all, are made from the same 512, so they cannot all differ freely.
#
# Which form is cheaper to compute? The cell computes the FLOPs of the attention in one layer of
# DeepSeek-V3. Its tokens are 7,168 wide, and its queries are compressed, too, to 1,536 numbers.
# The first row is for one new token after 4,095 that are kept, the second for 4,096 tokens at once.
# The last column is the plain form with a cache of *every head's* keys and values.

# %%
SIZES = {"h": 128, "c": 512, "r": 64, "d": 128, "queries": 1536}
rows = {}
for m, n in ((4096, 1), (4096, 4096)):
    forms = [counting.latent_flops(n, m, 7168, **SIZES, absorb=x) for x in (False, True)]
    # The plain form, without making the keys and values of the kept tokens again.
    forms.append(forms[0] - 2 * counting.product_flops(128 * (m - n), 128, 512))
    rows[f"{m:,}, {n:,}"] = [short(flops, "FLOP") for flops in forms]
display.show(rows, columns=["plain", "absorbed", "every head"], corner="tokens, new")

# %% [markdown]
# For one new token, the plain form makes the keys and values of all 4,096 again. Next to a cache of
# every head's keys and values, the absorbed form computes twice as much, but reads 71 times less of
# each token: 576 numbers instead of 128 · (192 + 128). On a fast processor, reading is what takes
# the time. When many tokens are read at once, each key serves thousands of queries, so it pays to make the keys once.
# Each pair of tokens then costs a comparison of d + r = 192 numbers instead of c + r = 576.

# %% [markdown]
# ## Exercises
#
# ### Whose keys?
#
# *Easy, 2 minutes.* Six query heads share three KV heads. A model was trained with
# `repeat_interleave`, and its weights are loaded into a class that uses `repeat`. For each query
# head, from the first to the last, write 1 if it now reads the wrong KV head, and 0 if it still
# reads the right one.

# %% tags=["exercise"]
reads_wrong = [None, None, None, None, None, None]  # 1st, 2nd, 3rd, 4th, 5th, 6th

# %%
from annotated_book import exercises

exercises.fewer_keys.check_groups(reads_wrong)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# How many query heads does a KV head serve? With `repeat_interleave`, neighbours share.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Write both rows of KV heads under each other, as in [Which heads share](#cell-id=which-heads-share).
#
# </details>

# %% tags=["solution"]
trained, loaded = [0, 0, 1, 1, 2, 2], [0, 1, 2, 0, 1, 2]
reads_wrong = [int(i != j) for i, j in zip(trained, loaded)]

exercises.fewer_keys.check_groups.folded(reads_wrong)

# %% [markdown]
# ### The bytes of a token
#
# *Easy, 6 minutes.* A checkpoint comes with a file `config.json`. Four of its entries, and a fifth
# that is often there, say how much a cache keeps:
#
#     {"num_hidden_layers": 80, "hidden_size": 8192, "num_attention_heads": 64,
#      "num_key_value_heads": 8, "head_dim": 128}
#
# Older files lack `num_key_value_heads`, because each head had its own keys. Many lack `head_dim`,
# which is then `hidden_size` divided by the number of query heads. Write a function that gives the
# number of bytes that one token takes in half precision.


# %% tags=["exercise"]
def token_bytes(config: dict[str, int]) -> int:
    """Count the bytes that a cache keeps of one token, in half precision."""
    ...


# %%
exercises.fewer_keys.check_token_bytes(token_bytes)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `config.get("head_dim", other)` gives `other` where there is no such entry.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Count the factors: key and value, layers, KV heads, the width of one, and the bytes of a number.
#
# </details>


# %% tags=["solution"]
def token_bytes(config: dict[str, int]) -> int:
    """Count the bytes that a cache keeps of one token, in half precision."""
    heads = config["num_attention_heads"]
    shared = config.get("num_key_value_heads", heads)
    width = config.get("head_dim", config["hidden_size"] // heads)
    return 2 * 2 * config["num_hidden_layers"] * shared * width


exercises.fewer_keys.check_token_bytes.folded(token_bytes)

# %% [markdown]
# ## What you have now
#
# > **In short.** Query head i attends with the keys and values of KV head $\lfloor i\,g /
# > h \rfloor$: $g = h$ is multi-head, $g = 1$ multi-query, anything in between grouped-query
# > attention. Latent attention keeps $\ell = \mathrm{norm}(x\,W_{\text{down}})$ and makes the keys
# > and values of each head from it, or absorbs: $q\,(\ell U)^\top = (q\,U^\top)\,\ell^\top$.
# >
# > Queries `(b, h, n, d)`, keys and values `(b, g, m, d)`, latents `(b, 1, m, c)`. A token keeps
# > 2 · g · d numbers in each layer, or c + r.
# >
# > ```python
# > k, v = (x.repeat_interleave(h // g, dim=1) for x in (k, v))  # not x.repeat
# > output = F.scaled_dot_product_attention(q, k, v)  # or k, v as they are, with enable_gqa=True
# > ```
# >
# > Sharing saves memory and the time to read it, but no arithmetic in the scores. Averaged heads
# > need some training before they work. Positions are kept apart from latents, because a rotation
# > cannot be absorbed.
#
# [The next chapter](23_tiles.ipynb) opens the fused kernel: it computes attention tile by tile, and
# never holds the whole `(n, m)` matrix.
