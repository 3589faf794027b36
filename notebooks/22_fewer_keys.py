# %% [markdown]
# # Fewer keys
#
# *Why do the heads of today's models share their keys and values?*
#
# *19 minutes and 8 of exercises. Afterwards you can say what a cache costs, and let heads share keys:
# MQA, GQA, latents (MLA).*
#
# For a text of 2,048 tokens, GPT-3 keeps 9.66 GB of keys and values in a [cache](21_cache.ipynb): each
# of 96 heads in a layer has its own. DeepSeek-V3 has nearly four times as many parameters and 128 heads
# in a layer. For the same text it keeps 144 MB.
#
# There are three ways to keep less. All heads use the same keys and values (multi-query attention, **MQA**); or a
# group of heads does (grouped-query attention, **GQA**); or one short vector is kept, the **latent**, from which every
# head makes its own (multi-head latent attention, **MLA**). (Did you come for MLA alone? It starts
# [here](#cell-id=a-summary-instead-of-a-catalogue).)
#
# Give each way the same bytes. Which loses least? Then give each of eight GPUs its part of the heads: which of them
# still reads least? Two guesses, and the winner of the first is not that of the [second](#cell-id=on-eight-gpus).

# %% tags=["hide-input"]
import copy
import json
from importlib import resources

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from annotated_attention import MultiheadAttention, counting
from annotated_attention.counting import cache_bytes, short
from annotated_attention.modern import GroupedQueryAttention, group_heads
from annotated_book import chapters, display, measured

# %% [markdown] name="same-bytes"
# ## The same bytes: which way loses least?
#
# A small model has learned to copy: given *drinkmugd*, it goes on with *rinkmug*. In each of two layers it has four heads of width 16<!-- setting -->, so it keeps 128 numbers of a token. Now it has to get by with
# 64, or with 32, and nothing is trained afterwards. Heads can share: with 64 there is room for two KV heads (a **KV
# head**: keys together with their values), each for a pair of heads. Their matrices are the *average* of the pair's, or
# those of its *first* head. With 32, one serves all four. Or a latent is kept. Its matrices come from the old ones by
# a singular value decomposition, as near to them as one vector of c numbers can come (in squares). `down` makes the
# latent of a token, and `up` the keys and values of all heads from it:

# %% tags=["fold-input"]
ALPHABET, LENGTH = "abcdefghijklmnopqrstuvwxyz", 32


class Copier(nn.Module):
    """Two attention layers of four heads with residual connections, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(26, 64), nn.Embedding(LENGTH, 64)
        options = {"bias": False, "batch_first": True}
        self.layers = nn.ModuleList(MultiheadAttention(64, 4, **options) for _ in range(2))
        self.scores = nn.Linear(64, 26, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Score each letter as the one that follows, at each place.

        Args:
            ids: (b, n), numbers of letters.
        """
        x = self.letters(ids) + self.places.weight[: ids.size(1)]  # (b, n, e)
        for attention in self.layers:
            x = x + attention(x, x, x, need_weights=False, is_causal=True)[0]
        return self.scores(x)  # (b, n, 26)


def repeated(b: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw texts of letters that repeat themselves, and tell after how many."""
    period = torch.randint(4, 17, (b, 1), generator=source)    # (b, 1)
    shuffled = torch.rand(b, 26, generator=source).argsort(1)  # (b, 26)
    place = torch.arange(LENGTH) % period
    return shuffled.gather(1, place), period  # (b, 32), (b, 1)


# %% tags=["fold-input"]
COPY_STEPS = 300


def judge_copies(model: nn.Module, ids: Tensor, period: Tensor) -> tuple[Tensor, float]:
    """Measure loss and accuracy after letters that have been seen before."""
    scores, asked = model(ids)[:, :-1], ids[:, 1:]    # (b, 31, 26), (b, 31)
    seen_before = torch.arange(LENGTH - 1) >= period  # (b, 31)
    loss = F.cross_entropy(scores[seen_before], asked[seen_before])
    right = (scores.argmax(-1) == asked)[seen_before]
    return loss, right.float().mean().item()


@torch.no_grad()
def copied(model: nn.Module) -> float:
    """Measure the accuracy on 500 fresh texts."""
    return judge_copies(model, *repeated(500, torch.Generator().manual_seed(4321)))[1]


def learn_to_copy(seed: int = 0) -> nn.Module:
    """Train a copier; its learning rate rises for 50 steps, then falls to zero."""
    torch.manual_seed(seed)
    source, model = torch.Generator().manual_seed(seed), Copier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003, betas=(0.9, 0.98))
    for step in range(COPY_STEPS):
        rate = 0.003 * min((step + 1) / 50, 1) * (1 - step / COPY_STEPS)
        optimizer.param_groups[0]["lr"] = rate
        loss, _ = judge_copies(model, *repeated(64, source))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


copier = learn_to_copy()


# %%
def squeeze(model: nn.Module, c: int) -> nn.Module:
    """Make the keys and values of all heads from one vector of c numbers."""
    model = copy.deepcopy(model)
    for attention in model.layers:
        w = attention.in_proj_weight.detach()[64:]          # (128, 64)
        U, S, V = torch.linalg.svd(w, full_matrices=False)  # (128, 64), (64,), (64, 64)
        up, down = U[:, :c] * S[:c], V[:c]                  # (128, ...), (..., 64)
        w.copy_(up @ down)
    return model


# %% tags=["fold-input"]
def pool(model: nn.Module, g: int, first: bool = False) -> nn.Module:
    """Let four heads share g KV heads: the average of each group's, or its first."""
    model = copy.deepcopy(model)
    for attention in model.layers:
        heads = attention.in_proj_weight.detach()[64:].view(2, g, 4 // g, 16, 64)
        shared = heads[:, :, :1] if first else heads.mean(2, keepdim=True)
        heads.copy_(shared.clone().expand_as(heads))
    return model


@torch.no_grad()
def copies(model: nn.Module, word: str, steps: int = 15) -> str:
    """Let a copier go on after a word and its first letter."""
    ids = torch.tensor([[ALPHABET.index(x) for x in word + word[0]]])
    for _ in range(steps):
        ids = torch.cat([ids, model(ids)[:, -1:].argmax(-1)], 1)
    return "".join(ALPHABET[i] for i in ids[0].tolist())[-steps:]


# %% [markdown]
# Guess: with 32 numbers, how many letters of 100 does each way still get right?

# %% tags=["fold-input"]
ways = {
    "128 numbers: each head its own": copier,
    "64: two KV heads, averaged": pool(copier, 2),
    "64: two KV heads, the first": pool(copier, 2, True),
    "64: a latent": squeeze(copier, 64),
    "32: one KV head, averaged": pool(copier, 1),
    "32: one KV head, the first": pool(copier, 1, True),
    "32: a latent": squeeze(copier, 32),
    "16: a latent": squeeze(copier, 16),
}
drawing, (ax,) = display.panels(330, 400)
right, told = (15 * "rinkmugd")[:15], []
for y, (name, model) in enumerate(ways.items()):
    share, text = copied(model), copies(model, "drinkmug")
    ink = display.COLOURS["m" if "latent" in name else "h" if y else "b"]
    ax.barh(-y, share, 0.3, color=ink, alpha=0.8)
    ax.text(0, 0.25 - y, name, fontsize=12, fontweight="bold")
    ax.text(1.03, -y, f"{share:.2f}", va="center", fontsize=12)
    for i, letter in enumerate(text):
        bad = {"color": display.COLOURS["h"]} if letter != right[i] else {}
        ax.text(1.42 + 0.068 * i, -y, letter, ha="center", va="center", fontsize=12, **bad)
    told.append(f"{name}: {share:.2f} right, and it writes {text}")
ax.set(xlim=(0, 2.42), ylim=(0.6 - len(ways), 0.6))
ax.axis("off")
caption = (
    "Bars: letters copied right, in 500 texts, after the true ones. Beside them, what each "
    "writes by itself after <em>drinkmugd</em>; orange: a wrong letter."
)
display.finish(drawing, name="who-loses-least", alt=". ".join(told) + ".", caption=caption)

# %% [markdown]
# The same 32 numbers: 0.10 averaged, 0.16 with the first head's, 0.99 with a latent. And at 64 the latent loses
# nothing at all: all keys and values of a token are made from its vector, which has 64 numbers here, half as many as
# they have together.
#
# **A KV head is a latent, too**, from which each head "makes" its keys by copying. A latent of the same width can do
# that, and it may also give each head a mixture of its own: it never has to do worse. (It is not faultless: after
# *catdrinksc*, the one of 32 writes *atatat*.)

# %% tags=["proof"]
ids, _ = repeated(50, torch.Generator().manual_seed(1))
sharing, again = copy.deepcopy(copier), squeeze(pool(copier, 1), 32)
sharing.layers = nn.ModuleList(group_heads(attention, 1) for attention in copier.layers)
close = {"rtol": 1e-3, "atol": 1e-3}
torch.testing.assert_close(sharing(ids), pool(copier, 1)(ids), **close)
torch.testing.assert_close(sharing(ids), again(ids), **close)
torch.testing.assert_close(squeeze(copier, 64)(ids), copier(ids), **close)
assert copies(squeeze(copier, 32), "catdrinks").startswith("atatat")
print("✓ A latent gives what a KV head of as many numbers gives; one of 64, what all give.")

# %% [markdown]
# Then why does not every model keep latents? Three reasons, and each has its section below: all keys would have to be
# [made again](#cell-id=a-summary-instead-of-a-catalogue) for each new token; rotary positions
# [stand in the way](#cell-id=rotations-are-not-absorbed) (the copier adds its positions to the letters); and
# [eight GPUs](#cell-id=on-eight-gpus) share heads, but not a latent.
#
# And a model that shares from its first step on? Such copiers get 0.98 and more, with a single KV head
# ([fold](#cell-id=fewer-keys-for-a-trained-model)). For language models, two papers have numbers [[Ainslie et al., table
# 1](../docs/references.md#ainslie-2023); [DeepSeek-AI 2024, tables 8 and 9](../docs/references.md#deepseek-2024)].
# Compare within a row: each is one kind of model, built in two or three ways. (MoE: a mixture of experts.)

# %% tags=["fold-input"]
QUOTED = {  # MHA, GQA with 8 KV heads, MQA, MLA
    "T5-XXL, 7 tasks": (47.2, 47.1, 46.6, ""),
    "7B, MMLU": (45.2, 41.2, 37.9, ""),
    "16B MoE, MMLU": (48.7, "", "", 50.0),
    "250B MoE, MMLU": (57.5, "", "", 59.0),
}
columns = ["MHA", "GQA-8", "MQA", "MLA"]
display.show(QUOTED, columns=columns, decimals=1, corner="model, score")

# %% [markdown]
# GQA costs 0.1<!-- quoted --> points in the first row, and 4.0<!-- quoted --> in the second: the first model had averaged heads, was trained on
# for one twentieth of its steps, and was tuned for each task, mostly summaries; those of the second were trained from
# scratch and asked for knowledge. MLA, with 14 %<!-- quoted --> and 4 %<!-- quoted --> of the numbers, scores *higher* than MHA. Its own
# inventors measured that, and in one of the eight comparisons that they print, it is behind: 50.9<!-- quoted --> against 51.6<!-- quoted -->.

# %% [markdown] name="the-bill"
# ## The bill
#
# For every token, the cache holds a key and a value for each KV head of each layer: `2 * layers * heads * width`
# numbers, where `width` is that of one head. In half precision, each takes two bytes. The heads that attend are *query
# heads*. The last column is a text of 2,048 tokens, the longest that GPT-3 can read. (Models with
# [windows](24_windows.ipynb), which forget old tokens, are not in it.)

# %% tags=["fold-input"]
MODELS = {  # layers, query heads, KV heads, the widths of keys and values
    "GPT-3 175B, 2020": (96, 96, 96, (96 * 128, 96 * 128)),
    "PaLM 540B, 2022": (118, 48, 1, (256, 256)),
    "LLaMA 7B, 2023": (32, 32, 32, (32 * 128, 32 * 128)),
    "Llama 3 8B, 2024": (32, 32, 8, (8 * 128, 8 * 128)),
    "Llama 3 405B, 2024": (126, 128, 8, (8 * 128, 8 * 128)),
    "DeepSeek-V3 671B, 2024": (61, 128, "a latent", (512, 64)),
    "Mistral Small 4 119B, 2026": (36, 32, "a latent", (256, 64)),
}
rows = {}
for name, (layers, h, g, widths) in MODELS.items():
    way = "MLA" if g == "a latent" else {h: "MHA", 1: "MQA"}.get(g, "GQA")
    sizes = [short(cache_bytes(m, *widths, layers=layers), "B") for m in (1, 2048)]
    rows[name] = [way, h, g, *sizes]
columns = ["way", "query heads", "KV heads", "a token", "2,048 tokens"]
display.show(rows, columns=columns, corner="model, year")

# %% [markdown]
# LLaMA 7B and Llama 3 8B differ in nothing here but their KV heads: a quarter as many, a quarter of the memory.
#
# <details><summary>Where the sizes come from</summary>
#
# GPT-3: [Brown et al., table 2.1](../docs/references.md#brown-2020); PaLM: [Chowdhery et al., section
# 2](../docs/references.md#chowdhery-2022); LLaMA: [Touvron et al., table
# 2](../docs/references.md#touvron-2023); Llama 3: [Llama Team, table 3](../docs/references.md#llama-2024);
# DeepSeek-V3: [DeepSeek-AI 2024, section 4.2](../docs/references.md#deepseek-2024-b); Mistral Small 4: its
# configuration in `transformers`.
#
# </details>

# %% [markdown] name="two-questions-one-catalogue"
# ## Two questions, one catalogue: multi-query attention (MQA)
#
# Why can heads share at all? If tokens are books, and keys a catalogue in which a head looks up where to read, it is
# the *query* that decides what the head looks for. Here are the words of this book's example sentence,
# unchanged, as keys and as values, and two queries made by hand: one looks for animals, the other for qualities.

# %%
one = chapters.load("01_one_head")
words = one.EMBEDDINGS                                      # (8, 4)
questions = torch.tensor([[3.0, 0, 0, 0], [0, 0, 0, 3.0]])  # (2, 4)
collected, weights = one.attend(questions, words, words)    # (2, 4), (2, 8)
display.show(weights, ["animal?", "quality?"], one.WORDS, heat=True)

# %% [markdown]
# The same keys answer both: the first head gives 0.75 to *cat*, the second 0.66 to *thirsty*. In **multi-query
# attention**, all heads therefore share one KV head [[Shazeer](../docs/references.md#shazeer-2019)]. What they give
# up does not show here, where keys hold all features: a KV head extracts d features of a token, and h of them
# together h · d.

# %% [markdown] name="groups"
# ## Groups: grouped-query attention (GQA)
#
# There is a middle way. In **grouped-query attention** (GQA), g KV heads serve h query heads, and each
# serves a **group** of h / g neighbours [[Ainslie et
# al.](../docs/references.md#ainslie-2023)]. With g = h, every group is a single head, and this is
# multi-head attention as before. With g = 1, it is multi-query attention.
#
# In the package, `GroupedQueryAttention` is a subclass of [chapter 7's multi-head
# attention](07_multihead_attention.ipynb). Its $W_K$ and $W_V$, stored transposed as in `nn.Linear`,
# have g · d rows instead of h · d. Then `repeat_heads` repeats each KV head for its group, and the heads attend as
# before.

# %% [markdown] name="which-heads-share"
# Two PyTorch functions could do that: their names differ in one word, and their results
# have the same shape. Which of 2 KV heads does each of six query heads get?

# %%
numbered = torch.arange(2).view(1, 2, 1, 1)  # (1, 2, 1, 1)
rows = {"repeat_interleave": numbered.repeat_interleave(3, dim=1).flatten()}
rows["repeat"] = numbered.repeat(1, 3, 1, 1).flatten()
display.show(rows, columns=[f"head {i}" for i in range(6)])

# %% [markdown]
# > **Pitfall.** `repeat` lays out the row of KV heads again and again, like tiles. A model that is *trained*
# > with tiles works, because its queries learn which KV head they get. But with parameters that were trained
# > the other way, two of the six heads read the wrong catalogue. This happens even to experts: ONNX, a standard
# > for exchanging models, first defined its attention operator with tiles [[ONNX](../docs/references.md#onnx-gqa)].

# %% tags=["hide-input"]
WIDTH, HEADS = 24, 6


def made(kind: type[nn.Module], *heads: int, **options) -> nn.Module:
    """Make a module from a fixed seed."""
    torch.manual_seed(5)
    return kind(WIDTH, HEADS, *heads, batch_first=True, dtype=torch.float64, **options)


# %% [markdown]
# The figure shows four heads of width 6 without sharing, and the three ways to share. A line leads from
# a query head to the keys and values that it reads. In the last way, **latent attention**, each head makes
# keys and values of its own from one vector. Its count follows DeepSeek's proportions, which the drawing does not
# show: a latent as wide as four heads, and half a head more for positions. Which of the four keeps the fewest numbers?


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
kept = {name: 4 * 6 + 3 if name == "latent" else 2 * g * 6 for name, g in ways.items()}
drawing, axes = display.panels(430, 480, columns=2, rows=2)
for ax, (name, g) in zip(axes, ways.items()):
    draw_way(ax, name, g)
    ax.text(2, -0.4, f"{kept[name]} numbers a token", ha="center", fontsize=14)
    as_many = f"as many as {kept[name] / 12:g} KV head{'s' * (kept[name] > 12)}"
    ax.text(2, -1.1, as_many, ha="center", fontsize=13)
    ax.set(xlim=(-0.1, 4.1), ylim=(-1.4, 3.5), aspect="equal")
    ax.axis("off")
display.finish(
    drawing,
    name="who-shares",
    alt=(
        "Four heads of queries above, what is kept of a token below. "
        + "; ".join(
            f"{name}: {4 // g} to each, {kept[name]} numbers, {kept[name] / 12:g} KV heads"
            for name, g in ways.items()
        )
        + ". From the latent, keys and values of each head are made when needed."
    ),
)

# %% [markdown]
# Not the latent, at these widths. It takes 27 numbers, as many as 2.25 KV heads, and MQA gets by with 12. With
# four heads it even keeps more than two groups do. Its strength is that it stays as it is when the heads
# become many: 128 of them still share a latent worth 2.25 KV heads [[DeepSeek-AI 2024, section
# 2.1.4](../docs/references.md#deepseek-2024)].

# %% [markdown]
# <!-- deeper: The same as PyTorch -->
# ### Going deeper: The same as PyTorch
#
# PyTorch's function supports groups, too, through the argument `enable_gqa=True`. Outputs and
# gradients must be equal for any number of KV heads, with the weights and without. With six KV
# heads, the parameters and the result must also equal those of `MultiheadAttention`, chapter 7's class.

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
print("✓ With as many KV heads as query heads it is `MultiheadAttention`.")

# %% [markdown]
# The constructor lets `MultiheadAttention` draw its parameters, and keeps the first g · d rows of $W_K$
# and $W_V$. In `attend`, the last two lines repeat the heads and attend. The lines before them are
# a shortcut for calls that do not ask for the weights: `enable_gqa` tells PyTorch's kernel that
# queries share keys. It finds each query's keys by itself, without copies, where it has one that
# does (see [What a cache keeps](#cell-id=what-a-cache-keeps)).

# %%
display.annotated(GroupedQueryAttention.__init__, GroupedQueryAttention.attend)

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="what-a-cache-keeps"
# ## What a cache keeps
#
# The heads are repeated only within `attend`, so a cache keeps them before that. The class of the
# last chapter, `CachedAttention`, is therefore a grouped-query attention itself, with as many KV
# heads as query heads unless you pass `num_kv_heads`.

# %% tags=["proof"]
from annotated_attention.modern import CachedAttention, KVCache, RotaryEmbedding

tokens = torch.randn(2, 7, WIDTH, dtype=torch.float64)  # (2, 7, e)
for g in (6, 3, 2, 1):
    module = made(CachedAttention, num_kv_heads=g, rotary=RotaryEmbedding(4))
    cache, (whole, _) = KVCache(), module(tokens)
    chunks = [module(part, cache)[0] for part in tokens.split([4, 2, 1], dim=1)]
    torch.testing.assert_close(torch.cat(chunks, 1), whole)
    assert cache.numel() == counting.cache_numbers(7, g * 4, b=2)
print("✓ Read in chunks: what all tokens at once give, and only g heads are kept.")

# %% [markdown]
# Does sharing also save arithmetic? In the projections it does. But each query head still
# compares its own query with every key and mixes every value, so the FLOPs of scores and mix stay
# as they are. What shrinks is the cache, and the time to read it: in a group of eight, each number that is read
# serves eight queries. That holds as long as the shared keys are not copied for the call. So where
# nobody asks for the weights, `CachedAttention` hands them over as they are, with `enable_gqa=True`, and
# PyTorch's fused kernel finds each query's keys by itself.

# %% [markdown]
# <!-- deeper: What is counted, and what is measured -->
# ### Going deeper: What is counted, and what is measured
#
# PyTorch counts the FLOPs for one new token after 1,000 others, at e = 512 with 8 query heads. The
# two formulas in the assertions come from [Counting](14_counting.ipynb).

# %% tags=["proof"]
for g in (8, 4, 2, 1):
    module = CachedAttention(512, 8, num_kv_heads=g, batch_first=True, device="meta")
    cache = KVCache()
    cache.append(*(torch.empty(1, g, 1000, 64, device="meta") for _ in range(2)))
    with FlopCounterMode(display=False) as counter:
        module(torch.empty(1, 1, 512, device="meta"), cache, need_weights=True)
    counted = counter.get_flop_counts()["Global"]
    projected, compared = counted[torch.ops.aten.addmm], counted[torch.ops.aten.bmm]
    assert projected == counting.projection_flops(1, 1, 512, shared=g * 64)
    assert compared == counting.score_flops(1, 1001, 512)
print("✓ With fewer KV heads: fewer FLOPs in the projections, the same in scores and mix.")

# %% [markdown]
# The times below are milliseconds for one layer with e = 512 and eight query heads: keys for *every
# head*, *groups* of four query heads, *one head* of keys, and
# [latents](#cell-id=a-summary-instead-of-a-catalogue) as wide as four heads, plain and absorbed. The first
# column is a call with four texts of 512 tokens. The others use a cache that grows.

# %%
(whole,) = measured.find("fewer keys", mode="forward")
rows = measured.find("cache of fewer keys", memory="kept")
kinds = ("every head", "groups", "one head", "latents", "latents, absorbed")
table = {x: [row["milliseconds"][x][1] for row in (whole, *rows)] for x in kinds}
columns = [f"{row['size'][1]} behind {row.get('kept', 0):,}" for row in (whole, *rows)]
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
# to copy and to read. Behind shorter texts the order is the same. Of the two
# forms of latents, the absorbed one is faster for one token, the plain one for whole texts. Neither
# is as fast as keys for every head here. Behind a cache, the plain form makes all keys again, and
# the absorbed one compares wider vectors. Both also miss PyTorch's fused kernel, which on this
# processor needs keys and values of one width. What latents save here is memory.
#
# <!-- /deeper -->

# %% [markdown] name="fewer-keys-for-a-trained-model"
# <!-- deeper: Fewer keys for a trained model -->
# ### Going deeper: Fewer keys for a trained model
#
# Can a model that is already trained be made to share? Ainslie et al. take averages: the new $W_K$ of a group is
# the mean of the old ones, row by row, and likewise for $W_V$. Then they go on training, for one twentieth of
# the original number of steps. In the package, `group_heads` averages the heads of one module. Here six
# heads of four rows become two groups of three heads:

# %%
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
# Averaging alone breaks a model, as above: its queries still ask for the old keys. The command `make seeds` shared the
# keys of the copier, trained from five seeds for 300 steps, and trained on:
# fifteen steps are one twentieth. Besides **averaged** heads, it tried three other ways: **first** keeps the
# first head of each group and drops the others, **new** draws $W_K$ and $W_V$ anew, and **from scratch** trains
# a model with shared keys from the beginning. The table has the lowest and highest accuracy of five runs.

# %% tags=["hide-input"]
FILE = resources.files("annotated_book").joinpath("data/groups.json")
RUNS = json.loads(FILE.read_text())["runs"]


def accuracies(g: int, origin: str, steps: tuple[str, ...]) -> list[str]:
    """Give the lowest and the highest accuracy after some steps, where it was measured."""
    found = [x for x in RUNS if (x["KV heads"], x["origin"]) == (g, origin)]
    spans = [[row[step] for row in found if step in row] for step in steps]
    return [f"{min(x):.2f}–{max(x):.2f}" if x else "" for x in spans]


# %% tags=["fold-input"]
table = {}
for g in (2, 1):
    for origin in ("averaged", "first", "new", "from scratch"):
        steps = ("0", "15", "75", "300")
        table[f"g = {g}, {origin}"] = accuracies(g, origin, steps)
display.show(table, columns=[0, 15, 75, 300], corner="after steps")

# %% [markdown]
# A single KV head comes close after 75 steps. New keys and values start at 0.04, which is what guessing
# one of 26 letters gives, and stay far behind: the old ones are worth a lot, even averaged. Keeping the
# first heads depends more on luck. Models that shared from the beginning get nearly everything right, so on
# this small task four catalogues were more than was needed. On a large model, Ainslie et al. found the
# mean best, then the first head, then new heads.
#
# The code that shares and trains on:

# %%
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
            accuracy[step] = copied(model)
        loss, _ = judge_copies(model, *repeated(64, source))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return accuracy


# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="a-summary-instead-of-a-catalogue"
# ## A summary instead of a catalogue: latent attention (MLA)
#
# The heads of a group must share their keys, even where separate keys would serve them better.
# **Multi-head latent attention** (MLA) gives every head keys and values of its own, but does not keep them
# [[DeepSeek-AI 2024, section 2.1](../docs/references.md#deepseek-2024)]. For each token, it keeps
# one short vector of width c, the **latent**, which is made by a narrow matrix: $\ell =
# x\,W_{\text{down}}$, followed by a norm. From the latent, two matrices make the keys and values of
# all heads: the readers keep a one-page summary of each book, and each makes a catalogue from the
# summaries when needed.
#
# A latent takes little room, but it seems that the keys and values of *all* tokens must be made
# again for each new token. There is a way around this. Take one head, and call its matrix from
# latents to keys $U$ (the paper's $W^{UK}$). The score of a query $q$ with the key $\ell U$ is
#
# $$q\,(\ell U)^\top = (q\,U^\top)\,\ell^\top.$$
#
# So instead of making every key, change the one query: multiply it by $U^\top$, and compare it with
# the latents themselves. In the figure, with DeepSeek's widths, $U$ moves from the keys' side to the query's.
# Below, $U_V$ does the same for the values. The second score, of 64 numbers, is explained further down.

# %% tags=["hide-input"]
display.two_forms(512, 64, 128, name="absorbed")

# %%
torch.manual_seed(9)
q, latents, U = torch.randn(3, 4), torch.randn(3, 8), torch.randn(8, 4)
keys = latents @ U                  # (3, 4)
plain = q @ keys.mT                 # (3, 3)
absorbed = (q @ U.mT) @ latents.mT  # (3, 3)

# %% tags=["proof"]
torch.testing.assert_close(absorbed, plain)
print(
    f"✓ Keys of {keys.size(-1)} numbers, or latents of {latents.size(-1)}: the same scores."
)

# %% [markdown]
# Values work the same way: mix the latents first, and apply the values' matrix, $U_V$ or $W^{UV}$, to the mix, once. This is
# called **absorbing** the matrices. The paper says that $U$ is absorbed into $W_Q$, but programs keep both as they
# are: for each head, one product of the two would be as wide as the latent, and larger than both together. In
# memory, the latents now serve as both keys and values, like the single KV head of multi-query attention. But each
# head still has keys of its own, because its query now contains its own $U$.

# %% [markdown] name="rotations-are-not-absorbed"
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
# %% [markdown]
# <!-- deeper: In the class -->
# ### Going deeper: In the class
#
# `compress` makes what is kept: `kv_down` gives c + r numbers for each token, and the short key among
# them is rotated. `attend_absorbed` brings the queries to the latents. In it, `k_up` holds $U^\top$ of all
# heads, and the latents are both keys and values. In code and papers, these parts have names:
#
# | here | there | in DeepSeek-V3 |
# |---|---|---|
# | width c of the latent | `kv_lora_rank` | 512 |
# | width r of the short key, `k_pe` | `qk_rope_head_dim` | 64 |
# | width of the latent from which its queries are made | `q_lora_rank` | 1,536<!-- quoted --> |
# | plain; absorbed | MHA mode; MQA mode | |

# %%
from annotated_attention.modern import LatentAttention

display.annotated(LatentAttention.compress, LatentAttention.attend_absorbed)

# %% [markdown]
# `queries` makes both queries of each head: `q` and, rotated, `q_rotated`. Where queries are compressed,
# too, `q_down` does that; else it passes the tokens on. Rotations are in pairs of neighbours, the layout of
# DeepSeek's weights. A cache expects an axis for heads, so latent and short key get one of length 1. A
# value is d_v numbers wide, here as wide as a key.

# %%
display.annotated(LatentAttention.queries, LatentAttention.attend_plainly)

# %% [markdown]
# <!-- /deeper -->

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

# %% [markdown] name="on-eight-gpus"
# ## One GPU or eight
#
# DeepSeek-V3 has 128 heads in a layer, with latents of 512 numbers and rotated keys of 64. With keys and
# values for each head, a key would be 192 wide and a value 128. Put the 128 heads of Llama 3 405B beside it,
# with its 8 KV heads of width 128. While it writes, a model waits for its memory, so count bytes. To write one
# token, one layer reads all that it keeps. How many bytes is that for each cached token?
#
# With **tensor parallelism**, eight GPUs share the 128 heads, 16 to each. What does *each of them* read?
#
# <details><summary>What do you expect?</summary>
#
# KV heads are shared out with the heads that read them, so it is an eighth. But every head reads the whole latent:
# shared out by heads, it is kept and read by each GPU in full. On sixteen GPUs that happens to the 8 KV heads,
# too: one head is the least that a GPU can have, and each is there twice.
#
# </details>

# %% tags=["fold-input"]
WAYS = {  # query heads, widths of a key and a value, KV heads, numbers kept
    "each head its own": (128, 192 + 128, 128, 128 * (192 + 128)),
    "GQA, 8 KV heads": (128, 128 + 128, 8, 8 * (128 + 128)),
    "MLA, absorbed": (128, 576 + 512, 1, 576),
    "MLA, 2 query tokens": (2 * 128, 576 + 512, 1, 576),
}
rows = {}
for way, (h, wide, g, kept) in WAYS.items():
    rows[way] = [2 * kept // min(gpus, g) for gpus in (1, 8, 16)]
    rows[way].append(2 * h * wide / (2 * kept))
_, grouped, latent_row, _ = rows.values()
ratios = [x / y for x, y in zip(grouped, latent_row)][:3]
told = [f"{x:.1f} × less" if x > 1 else f"{1 / x:.2f} × more" for x in ratios]
rows["MLA, beside GQA"] = [*told, ""]
columns = ["one GPU", "each of 8", "each of 16", "FLOPs a byte, one GPU"]
title = "Bytes that one layer reads for each cached token"
display.show(rows, columns=columns, decimals=0, corner="way", title=title)

# %% [markdown]
# On one GPU, MLA reads 3.6 times less than GQA. On each of eight it reads 2.25 times *more*. And it takes room
# eight times: the eight copies of a latent are 9,216 bytes, and the 8 KV heads, kept once, 4,096.
#
# Bytes are half of the bill. The absorbed queries are compared with 576 numbers and mix 512, instead
# of 192 and 128: more than three times the arithmetic. The figure has both. A line is what a GPU can compute in
# the time of a byte, on paper [[Dao 2023](../docs/references.md#dao-2023); [Shah et al.
# 2024](../docs/references.md#shah-2024)]: under it, a GPU waits for memory, over it for arithmetic. The
# numbers say how long an H100 takes for each cached token in one layer, in nanoseconds.

# %% tags=["fold-input"]
GPUS = {"A100": (2.0, 312), "H100": (3.35, 989)}  # TB and TFLOPs a second, half precision
drawing, (ax,) = display.panels(342, 380)
looks, told = zip("nmh", ((10, -3), (10, -3), (-3, 11))), []
for (way, (h, wide, _, kept)), (letter, place) in zip(WAYS.items(), looks):
    one_gpu = (2 * kept, 2 * h * wide)
    color, of_eight = display.COLOURS[letter], (rows[way][1], one_gpu[1] // 8)
    style = {"arrowstyle": "->", "color": color, "shrinkA": 6, "shrinkB": 6}
    ax.annotate("", of_eight, one_gpu, arrowprops=style)
    near = {"textcoords": "offset points", "ha": "left" if place[0] > 0 else "right"}
    for (size, work), fill in ((one_gpu, "none"), (of_eight, color)):
        ax.plot(size, work, "o", mec=color, mfc=fill, ms=9, mew=1.6)
        took = {
            gpu: max(size / reads, work / does) / 1e3 for gpu, (reads, does) in GPUS.items()
        }
        h100, a100 = (
            f"{took[gpu]:.{1 if took[gpu] > 2 else 2}f} ns" for gpu in ("H100", "A100")
        )
        ax.annotate(h100, (size, work), place, color=color, fontsize=12, **near)
        told.append(f"{way}: {size:,} bytes, {work:,} FLOPs, {h100} (A100: {a100})")
    ax.plot([], [], "o", color=color, label=way)


# %% tags=["fold-input"]
for name, (reads, does) in GPUS.items():
    ax.plot([100, 1e6], [100 * does / reads, 1e6 * does / reads], color="grey", lw=1)
    side, off = ("left", 0.6) if name == "A100" else ("right", 1.15)
    ax.text(9e3, 9e3 * does / reads * off, name, ha=side, fontsize=12)
for fill, label in (("none", "one GPU"), ("grey", "each of eight")):
    ax.plot([], [], "o", mec="grey", mfc=fill, mew=1.6, label=label)
ax.set(xscale="log", yscale="log", xlim=(200, 4e5), ylim=(3e2, 4e6))
ax.set(
    xlabel="bytes per cached token, one layer", ylabel="FLOPs per cached token, one layer"
)
ax.set_xticks([1e3, 1e4, 1e5], ["1,000", "10,000", "100,000"])
ax.set_yticks([1e4, 1e5, 1e6], ["10,000", "100,000", "1,000,000"], rotation=90, va="center")
ax.minorticks_off()
ax.legend(loc="lower right", fontsize=12, frameon=False)
alt = "For each kept token, on one GPU and then on each of eight. " + "; ".join(told)
display.finish(drawing, name="one-or-eight", alt=f"{alt}.")

# %% [markdown]
# Sharing out heads moves the first two ways down and to the left: an eighth of the bytes, and of the
# FLOPs. MLA moves straight down. On one H100 it takes 0.34 ns where GQA takes 1.22. On each of eight GQA takes
# 0.15, and MLA still 0.34. **Seven more H100s make this part of decode eight times as fast for GQA, and not at
# all for MLA**, as long as a step has one query token. With its 242 FLOPs a
# byte, MLA's ring stands just under the H100's line. With two query tokens in a step, as [speculative
# decoding](21_cache.ipynb#cell-id=going-back-and-branching) or multi-token prediction brings them, it is 484: over the
# line, and there more GPUs help. So they do on an A100: 0.89 ns become 0.58.
#
# So MLA is served in another way. Give each GPU texts of its own, with all heads, and every latent is kept and
# read once: the 3.6 is back. In December 2024 DeepSeek still shared out the heads among four GPUs
# [[DeepSeek-AI 2024 (V3), section 3.4](../docs/references.md#deepseek-2024-b)]. In April 2025 the note on its
# kernel says that decode uses no tensor parallelism, so that each GPU has all 128 heads
# [[FlashMLA](../docs/references.md#flash-mla)]. In SGLang the switch is `--enable-dp-attention`, for
# **data-parallel attention**; in vLLM `--data-parallel-size`. Or split one text by its tokens, whose results are
# [merged](23_tiles.ipynb#cell-id=two-halves-merged): vLLM's `-dcp` [[Switches](../docs/references.md#mla-switches)].

# %% [markdown] name="one-wide-head"
# ### One wide head: DeepSeek-V4
#
# DeepSeek-V4 has no latents: all its query heads read a single KV head, as in MQA, whose 512 numbers are key *and*
# value. The last 64 are rotated by $R_j$, for the place of their token, and so they are mixed; the output's last 64
# are rotated back by that of the query, $R_i^\top \sum_j w_j R_j v_j$, so that only
# distances count. Most layers keep one such vector for 4 tokens, or for 128 ([All at
# once](24_windows.ipynb#cell-id=all-at-once)), and one head cannot be shared out among GPUs, either.

# %% [markdown]
# <!-- deeper: Plain or absorbed: ask the chunk -->
# ### Going deeper: Plain or absorbed: ask the chunk
#
# For one new token, the plain form makes the keys and values of all kept tokens again; absorbed is far cheaper.
# When a whole prompt is read, each key serves thousands of queries, and it pays to make it once, and compare 192
# numbers instead of 576. Between the two lies **chunked prefill**: a prompt comes in pieces, and
# the plain form makes all older keys again for each of them. From what size of a chunk does it still need fewer
# FLOPs? Must chunks be larger when more is kept?

# %%
SIZES = {"h": 128, "c": 512, "r": 64, "d": 128, "queries": 1536}


def flops(n: int, m: int, absorb: bool) -> int:
    """Count the FLOPs of one layer for a chunk of n tokens, the last of m."""
    return counting.latent_flops(n, m, 7168, **SIZES, absorb=absorb)


rows = {}
for m in (4096, 32_768, 131_072):
    size = next(n for n in range(1, m) if flops(n, m, False) <= flops(n, m, True))
    rows[f"{m:,}"] = [*(short(flops(1, m, x), "FLOP") for x in (False, True)), size]
columns = ["one token, plain", "absorbed", "plain wins from"]
display.show(rows, columns=columns, decimals=0, corner="tokens in all")

# %% [markdown]
# No: about 170 tokens, whatever is kept. To make a head's key and value from a latent takes 512 · 256
# multiplications. Every query of the chunk that uses them saves 1,088 − 320 = 768. Both are paid for each
# kept token, so their number cancels: 512 · 256 / 768 is 171. Chunks of servers have some thousand tokens, so they
# take the plain form, and decode the absorbed one. (These are FLOPs alone; the plain form also writes
# the keys that it makes, and reads them again.)
#
# <!-- /deeper -->

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
# `config.get("head_dim") or other` gives `other` where there is no such entry, or an empty one.
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
    width = config.get("head_dim") or config["hidden_size"] // heads
    return 2 * 2 * config["num_hidden_layers"] * shared * width


exercises.fewer_keys.check_token_bytes.folded(token_bytes)

# %% [markdown]
# ## What you have now
#
# > **In short.** Query head i attends with the keys and values of KV head $\lfloor i\,g /
# > h \rfloor$: $g = h$ is multi-head, $g = 1$ multi-query, anything in between grouped-query
# > attention. Latent attention keeps $\ell = \mathrm{norm}(x\,W_{\text{down}})$ and makes the keys
# > and values of each head from it, or absorbs: $q\,(\ell U)^\top = (q\,U^\top)\,\ell^\top$. With as many numbers, a
# > latent can do what KV heads do, but for rotations.
# >
# > Queries `(b, h, n, d)`, keys and values `(b, g, m, d)`, latents `(b, 1, m, c)`. A token keeps
# > 2 · g · d numbers in each layer, or c + r.
# >
# > ```python
# > k, v = (x.repeat_interleave(h // g, dim=1) for x in (k, v))  # not x.repeat
# > output = F.scaled_dot_product_attention(q, k, v)  # or k, v as they are, with enable_gqa=True
# > ```
# >
# > Sharing saves memory and the time to read it, but no arithmetic in the scores: for a query token and each
# > byte of a cache in half precision there is one FLOP without sharing, h / g with groups, and about 2 h with
# > absorbed latents. Where GPUs share out the heads, KV heads go with them, and a latent is copied to each.
# > Averaged heads need some training before they work. Positions are kept apart from latents, because a
# > rotation cannot be absorbed.
#
# [The next chapter](23_tiles.ipynb) opens the fused kernel: it computes attention tile by tile, and
# never holds the whole `(n, m)` matrix.
