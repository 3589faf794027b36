# %% [markdown]
# # Linear attention
#
# *What if a model kept one page of notes, and no keys at all?*
#
# *11 minutes and 5 of exercises. Afterwards you can write linear attention and the gated delta rule, and say what a
# state forgets.*
#
# You read a long novel, and may keep one page of notes. A [cache](21_cache.ipynb) keeps the novel instead: a key and a
# value for every token, and each new word looks at all of them. The page is as large after a million words as after a
# hundred, and so is the work for the next one. But what do you do when the story contradicts your notes?
#
# Below are three such pages, kept by three rules. Each says that the cat is in the garden. Now the story says that it is in
# the hall. Where does the first page, which *only adds*, say that the cat is?
#
# <details name="where"><summary>In the hall.</summary>
#
# That would be replacing. This page only adds.
#
# </details>
# <details name="where"><summary>In the garden and in the hall.</summary>
#
# Right, with 1 for each. The page has no way to take back what it says.
#
# </details>
# <details name="where"><summary>Half in the garden, half in the hall.</summary>
#
# A softmax would say so, since its weights sum to 1. This page divides by nothing: both stand there, with 1 each.
#
# </details>
#
# Try it. Then tell the pages of the kitten, and ask for the cat again. On a page, a row stands for a feature of the keys, and
# a column for a place. The key of *cat* is (1, 0, 0), that of *milk* (0, 0, 1), and that of *kitten* (0.6<!-- setting -->,
# 0.8<!-- setting -->, 0), much like the cat's. The second page corrects what it says. The third does so, too, but first it
# fades: a **gate** of ½ halves all numbers before each fact, and of 0 clears the page, at a new chapter.

# %% tags=["hide-input"]
import math

import torch
import torch.nn.functional as F
from torch import Tensor

from annotated_book import chapters, display

one = chapters.load("01_one_head")
KEYS = {"cat": (1.0, 0.0, 0.0), "kitten": (0.6, 0.8, 0.0), "milk": (0.0, 0.0, 1.0)}
PLACES = ["garden", "kitchen", "hall"]
FACTS = [("cat", "garden"), ("milk", "kitchen"), ("cat", "hall"), ("kitten", "kitchen")]
WAYS = {"Only adds": (1, False), "Delta rule": (1, True), "Delta rule, gate ½": (0.5, True)}
display.erases(KEYS, PLACES, FACTS, WAYS, name="delta-rule", asked="cat")

# %% [markdown]
# The second page corrects itself: the cat is in the hall. But once it is told that the kitten is in the kitchen, it has the
# cat there, too, with 0.60, and only 0.64 of it in the hall. Now drag β, the share that is corrected, down to 0.3: a part
# of the garden is back, and yet the hall leads by more. Why? Qwen3-Next and Kimi Linear (2025) keep such a page, the
# *state*, in about three of four layers: one matrix for each head.

# %% [markdown] name="linear-attention"
# ## Multiply keys and values first
#
# Where does such a page come from? Attention multiplies queries by keys, and then the weights by the values. Only the softmax
# between the two products keeps us from starting with the second. So replace $e^{q \cdot k}$ by a product
# $\phi(q) \cdot \phi(k)$, where φ makes all features positive. Then keys and values can be multiplied before any query
# comes. This is **linear attention** [[Katharopoulos et al.](../docs/references.md#katharopoulos-2020)]; its φ(x) is
# elu(x) + 1. Compare what stands between the two products:

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
# S is a (d, d_v) matrix, the **state**, and it is the page: no larger after a million tokens. The work shrinks as well.
# Both products with the scores take $2 n^2 d$ multiplications, those with the state $2 n d^2$: less by n / d, here by
# 1,024<!-- setting -->. Under a causal mask, each query needs the page as it was at its own time. So a token first adds its
# product $\phi(k)^\top v$ to S, and then asks; no key is kept. Divided by the sum of the weights, the output is a mean again:
#
# $$\mathrm{output} = \frac{\phi(q)\, S}{\phi(q) \cdot z} \qquad S = \sum_j \phi(k_j)^\top v_j
# \qquad z = \sum_j \phi(k_j)$$

# %% tags=["proof"]
q, k, v = (torch.randn(12, 6, dtype=torch.float64) for _ in range(3))  # (12, 6)
q, k = F.elu(q) + 1, F.elu(k) + 1                                      # (12, 6), (12, 6)
scores = (q @ k.mT).tril()                                             # (12, 12)
expected = scores / scores.sum(-1, keepdim=True) @ v                   # (12, 6)
state, total = torch.zeros(6, 6, dtype=torch.float64), 0
for query, key, value, row in zip(q, k, v, expected):
    state, total = state + key[:, None] * value, total + key
    torch.testing.assert_close(query @ state / (query @ total), row)
print("✓ Token by token, the state gives what all scores at once give.")

# %% [markdown] name="the-delta-rule"
# ## Erase, then write: the gated delta rule
#
# Leave out φ and the division, and you have the first page: every token adds $k^\top v$. The **delta rule** of the second
# page first erases what the state says for the new key, and then writes the new value there. A factor β says how much of
# both is done [[Schlag et al.](../docs/references.md#schlag-2021)]. On the third page, a gate α between 0 and 1 first
# lets the whole state fade [[Yang, Kautz and Hatamizadeh](../docs/references.md#yang-2025-b)]. (A sum with a gate is known,
# too: in RetNet, the gate of a head is fixed [[Sun et al.](../docs/references.md#sun-2023)]; in Mamba-2, each token chooses
# it [[Dao and Gu](../docs/references.md#dao-2024)].) Keys have length 1, and $q\,S$ is the output:
#
# $$\bar S = \alpha \odot S \qquad S \leftarrow \bar S \underbrace{-\ \beta\,k^\top (k\,\bar S)}_{\text{erase}}
# \underbrace{+\ \beta\,k^\top v}_{\text{write}}$$
#
# Now the kitten can be explained. The product of its key and the cat's is 0.6, so before anything is told of the
# kitten, the page has 0.6 of it in the hall. Erasing these 0.6 under the kitten's key takes 0.6 of them from the cat:
# 1 − 0.6 · 0.6 = 0.64 is left in the hall. Then 1 is written to the kitchen, and 0.6 of that is the cat's, too. With a β
# of 0.3<!-- setting -->, all answers are weaker, but the kitten takes less from the cat, and the hall leads by more. The milk's
# key is at a right angle to both, so no cat and no kitten changes it. Only the gate lets it fade.
#
# Erasing and writing together add β times the key times the difference v − k S̄. That is **one step of gradient descent, of
# size β, on the error $\tfrac12 \lVert k\,\bar S - v \rVert^2$**. The state is a small linear model, trained while it
# reads.
#
# Each *token* has its own α and β: α can be near 1 as long as all shall stay, and near 0 for the token that clears the page. In
# Qwen3-Next, α is one number for each head [[Qwen Team](../docs/references.md#qwen-2025)]. In Kimi Linear, it has one number
# for each row of S, so that each feature of the keys fades at its own pace [[Kimi
# Team](../docs/references.md#kimi-2025)]. In both models, queries, keys and values first mix with those of the three tokens before
# (a *short convolution*). Queries and keys are brought to length 1, and the output is normed, and gated in its turn. The
# book's tests compare this rule with theirs in `transformers`:


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
says = gated_delta_rule(cat, told, said, torch.ones(4, 1), torch.full((4,), 0.3))[-1]
assert says[0] > 0.15  # the garden is back
assert says[2] - says[1] > 0.08 > 0.64 - 0.6  # the hall leads by more
key, value = told[-1], said[-1]
guess = torch.randn(3, 3, requires_grad=True)
(slope,) = torch.autograd.grad((key @ guess - value).square().sum() / 2, guess)
stepped = guess + 0.3 * key[:, None] * (value - key @ guess)
torch.testing.assert_close(guess - 0.3 * slope, stepped)
print("✓ The cat of the figure; at right angles, the last value; a step down the error.")

# %% [markdown]
# <!-- deeper: In chunks, as kernels do it -->
# ### Going deeper: In chunks, as kernels do it
#
# One token after the other is a recurrent network, and slow to train. So take a chunk at once. Without
# gates, the first of its tokens writes $u_1 = \beta_1 (v_1 - k_1 S)$ under its key. The second finds that
# in the state, and writes $u_2 = \beta_2 (v_2 - k_2 S - (k_2 \cdot k_1)\, u_1)$. Each u needs those before it: a triangular system of equations, which is solved at once [[Yang et
# al. 2024](../docs/references.md#yang-2024-b)]. Gates are taken into queries and keys. (That divides by them, so
# here no gate may be 0, and long chunks become inexact. Kernels compute with differences of their logarithms.)


# %%
def in_chunks(
    q: Tensor, k: Tensor, v: Tensor, alpha: Tensor, beta: Tensor, size: int
) -> Tensor:
    """Compute what ``gated_delta_rule`` does, ``size`` tokens at a time; no gate is 0."""
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
# ## What a page forgets
#
# Write 64 random pairs of a key and a value, 16 wide and of length 1, into a state of 16 · 16 numbers. Then ask with each
# key: is the output nearest to its own value? A plain sum, a sum with a gate of 0.95, and the delta rule with β = 0.3 all find
# less than a third. With 16 features, only 16 keys can stand at right angles, and whoever writes under one key changes
# what others say. But look at *which* pairs they find:


# %% tags=["fold-input"]
def by_state(
    keys: Tensor, values: Tensor, gate: float, share: float, turn: int = 0
) -> Tensor:
    """Write all pairs into a state, one after the other; some clear it at the turn."""
    state = torch.zeros(len(keys), keys.size(-1), values.size(-1))
    for place, (k, v) in enumerate(zip(keys.split(1, 1), values.split(1, 1))):
        state = (gate or float(place != turn)) * state
        state = state + (share * k.mT @ (v - k @ state) if share else k.mT @ v)
    return state


def found(pairs: int, since: int = 0) -> dict[str, Tensor]:
    """Write pairs; give how often the value of each is found, from a place on."""
    torch.manual_seed(3)
    keys, values = F.normalize(torch.randn(2, 400, pairs, 16), dim=-1)
    ask, last = keys[:, since:], torch.arange(since, pairs)
    said = {
        name: ask @ by_state(keys, values, *rule, since) for name, rule in RULES.items()
    }
    said["softmax"] = (256 * ask @ keys.mT).softmax(-1) @ values
    right = {name: (x @ values.mT).argmax(-1) == last for name, x in said.items()}
    return {name: hits.float().mean(0) for name, hits in right.items()}


# %% tags=["fold-input"]
RULES = {  # gate, β; a gate of 0 closes once; 0 for β stands for a sum
    "plain sum": (1, 0),
    "sum, α = 0.95": (0.95, 0),
    "delta, β = 1": (1, 1),
    "delta, β = 0.3": (1, 0.3),
    "delta, β = 0.3, α = 0.98": (0.98, 0.3),
    "sum, cleared": (0, 0),
    "delta, β = 0.3, cleared": (0, 0.3),
}
drawing, (ax,) = display.panels(420, 250)
by_age = found(64)
shown = {"plain sum": "b-", "sum, α = 0.95": "h--", "delta, β = 0.3": "m-"}
shares = {name: float(by_age[name].mean()) for name in (*shown, "softmax")}
assert max(map(shares.get, shown)) < 0.33 < 0.99 < shares["softmax"]
for name, (letter, *line) in shown.items():
    look = {"color": display.COLOURS[letter], "lw": 1.8}
    look["label"] = f"{name}: {shares[name]:.2f} of all 64"
    ax.plot(by_age[name].flip(0)[:48], "".join(line), **look)
ax.set(xlabel="pairs written since", ylabel="share found", ylim=(0, 1.05))
ax.set_yticks([0, 0.5, 1])
ax.legend(loc="upper right", fontsize=12, frameon=False)
last_8 = {name: float(by_age[name][-8:].mean()) for name in shown}
alt = "; ".join(f"{name}: {shares[name]:.2f} of all 64" for name in shares)
alt += "".join(f"; {name}: {x:.2f} of the last 8" for name, x in last_8.items())
display.finish(drawing, name="recall-by-age", alt=f"How much is found. {alt}.")

# %% [markdown]
# The sum blurs all ages alike, and the gate (dashed) lets old pairs fade. The delta rule loses old ones, too, though
# nothing fades: each correction takes away from pairs with similar keys, as the kitten did from the cat.
#
# All this is on a page 16 wide, and heads are mostly 128 wide. Eight times the width, eight times the pairs: is as little found there?
#
# <details name="wider"><summary>About as little: as many pairs for each feature.</summary>
#
# As many for each feature, but the page has 64 times the numbers.
#
# </details>
# <details name="wider"><summary>Far more.</summary>
#
# Right, by a sum nearly all: the wider they are, the nearer random keys are to right angles, and a page eight times as wide has 64 times the numbers. But it can be filled, too.
#
# </details>

# %% tags=["fold-input"]
torch.manual_seed(3)
wide, rules = {}, {"plain sum": (1, 0), "delta, β = 0.3": (1, 0.3), "delta, β = 1": (1, 1)}
for width, pairs, draws in ((16, 64, 400), (128, 512, 8), (128, 4096, 2)):
    keys, values = F.normalize(torch.randn(2, draws, pairs, width), dim=-1)
    wide[f"{width} wide, {pairs:,} pairs"] = [
        (
            (keys @ by_state(keys, values, *rule) @ values.mT).argmax(-1)
            == torch.arange(pairs)
        )
        .float()
        .mean()
        .item()
        for rule in rules.values()
    ]
small, eight, full = wide.values()
assert small[0] < 0.35 < 0.9 < eight[0]
assert eight[0] > eight[1] > eight[2]
assert full[0] < 0.35
display.show(wide, columns=[*rules])

# %% [markdown]
# So what is found depends on how full the page is, and so does which rule finds most. Every page is full at some length, and a text can be longer.
#
# What are the delta rule and a gate good for, then? Let the story change. In one story, 12 facts are told, and then six of
# them again, with new values; all 12 are asked for. In another, 64 facts are followed by 12 on a new subject, and only
# these 12 are asked for. Which page knows most in the *first* story?
#
# <details name="rewritten"><summary>A sum with a gate of 0.95: what is new has faded least.</summary>
#
# It is a good page for a new subject. But the six old facts that still hold fade as well.
#
# </details>
# <details name="rewritten"><summary>The delta rule with β = 1: it overwrites.</summary>
#
# It does. But it takes as much from all similar keys, and so it finds fewer of the facts that still hold than a plain sum.
#
# </details>
# <details name="rewritten"><summary>The delta rule with β = 0.3: it erases only 0.3 of the old value.</summary>
#
# Right. The new value need not be alone, only louder, and small corrections spare the rest.
#
# </details>

# %% tags=["fold-input"]
torch.manual_seed(3)
keys, values = F.normalize(torch.randn(2, 400, 18, 16), dim=-1)  # (400, 18, 16)
keys[:, 12:] = keys[:, :6]
now = torch.cat([torch.arange(12, 18), torch.arange(6, 12)])
subject, rows = found(76, since=64), {}
for name, rule in RULES.items():
    nearest = (keys[:, :12] @ by_state(keys, values, *rule, 12) @ values.mT).argmax(-1)
    halves = (nearest == now).float().mean(0).split(6)
    rows[name] = [*(float(half.mean()) for half in halves), float(subject[name].mean())]
both = {name: sum(row[:2]) / 2 for name, row in rows.items()}
gentle = {name for name in rows if "β = 0.3" in name and "cleared" not in name}
assert (
    min(both[name] for name in gentle)
    > 0.88
    > max(both[name] for name in rows if name not in gentle)
)
for name, (_, _, last) in rows.items():
    assert (last > 0.87) == ("cleared" in name)
assert rows["delta, β = 1"][1] < 0.7 < 0.8 < rows["plain sum"][1]
assert rows["sum, α = 0.95"][0] < rows["delta, β = 0.3"][0] - 0.01
display.show(rows, columns=["rewritten", "kept", "new subject"])

# %% [markdown]
# Without a gate, the delta rule with β = 0.3 finds nine in ten of both halves. With β = 1 it finds a little more of what is
# rewritten, but only 0.65 of what is kept.
#
# On a new subject, the old facts should go. The last two pages have a gate of 0 for its first token and of 1 for all others, and
# they find most. A mere sum, cleared once, does so with 0.91: here the gate does the work, not the delta rule. (It is set
# by hand; a model has to learn when.) But close it before the six facts are told again, and next to nothing is left of the
# others. **A moderate β corrects what changes and spares the rest; a closed gate clears the whole state.**

# %% [markdown] name="hybrids"
# ## Hybrids, and what six models keep
#
# A page that is full gives wrong answers. A softmax over all keys (with scores × 256, so that it is nearly a choice) finds every pair, since it has kept every one. So Qwen3-Next and Kimi Linear are **hybrids**: three layers with a state are mostly followed
# by one with softmax attention.
#
# What does that save? Here are six models after one text of 131,072 tokens: two with [windows](24_windows.ipynb), two
# with [sparse attention](24_windows.ipynb#cell-id=sparse-attention), and two with states. A bar is what stays in the
# cache, in gigabytes. Its dark part is what the next token reads; a bar of one shade is read whole. An outline is what
# the same layers would keep, if each of them kept all tokens (Gemma's ends far to the right). Which model keeps least?
#
# <details name="least"><summary>One with states: most of its layers keep no key.</summary>
#
# Nearly. What decides is what the other layers keep.
#
# </details>
# <details name="least"><summary>One with windows: half of its layers or more keep at most the last 1,023 keys.</summary>
#
# No: its other layers keep all tokens.
#
# </details>
# <details name="least"><summary>One with sparse attention.</summary>
#
# Right, but only the one that also compresses the text. The other keeps an entry for every token, in all of its layers.
#
# </details>

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


# %% tags=["fold-input"]
drawing, (ax,) = display.panels(420, 310)
MIX = ["18 of 36 layers full", "10 of 62 full", "all 61 sparse", "21 of 43 sparse"]
mixed = dict(zip(kept_at(FULL), [*MIX, "12 of 48 full", "7 of 27 full"]))
kept, read = (
    {name: sum(map(math.prod, parts)) / 1e9 for name, parts in at(FULL).items()}
    for at in (kept_at, read_at)
)
ink, alt = dict(zip(kept, "nnhhdd")), []
for y, name in enumerate(sorted(kept, key=lambda name: round(kept[name], 1))):
    look, parts = {"color": display.COLOURS[ink[name]], "lw": 0}, kept_at(FULL)[name]
    says = f"{name}, {mixed[name]}: {kept[name]:.1f}"
    says += f", {read[name]:.1f} read" * (kept[name] > 1.1 * read[name])
    if ink[name] != "h":
        whole = sum(part[0] for part in parts) * FULL * parts[-1][2] / 1e9
        ax.barh(y + 0.2, min(whole, 14), 0.36, fill=False, ec=look["color"], lw=0.8)
        says += f" of {whole:.1f}"
    ax.barh(y + 0.2, kept[name], 0.36, alpha=0.3, **look)
    ax.barh(y + 0.2, read[name], 0.36, alpha=0.85, **look)
    ax.text(0.1, y - 0.18, says, va="center", fontsize=12)
    alt.append(says)
ax.set(ylim=(5.6, -0.5), xlim=(0, 13.5), xticks=[], yticks=[])
bare = 61 * FULL * 1152 / 1e9
caption = (
    f"Gigabytes after {FULL:,} tokens. Blue: windows. Purple: states. Orange: sparse. A "
    "number takes two bytes, in a state four (its short convolution is not counted). "
    "Sizes: the published configurations. "
    f"DeepSeek-V3.2 would keep {bare:.1f} without an indexer."
)
display.finish(drawing, name="six-models", alt="; ".join(alt), caption=caption)

# %% [markdown]
# DeepSeek-V4-Flash keeps least, without any state: 0.9, less than the 1.1 of Kimi Linear. In 41 of its 43 layers<!-- setting -->,
# it keeps the earlier text compressed, and 21 of these also choose what they read. Wherever else layers of two kinds are
# mixed, nearly all that is kept belongs to those that keep every token: in Qwen3-Next, to 12 layers of 48, so that it keeps
# 3.3 where 48 of them would keep 12.9. In DeepSeek-V3.2, the indexer saves *reading*, and needs a key of its own for each
# token.
#
# A state has one price more. It cannot be [cropped](21_cache.ipynb#cell-id=going-back-and-branching) like a cache: the
# earlier page does not stand in it. To go back, as after refused guesses, keep a copy.
#
# <details><summary>How does a server store such caches side by side?</summary>
#
# vLLM takes all kinds from one pool of pages of equal size: a global layer holds pages for all tokens, a layer with a
# window frees the earlier ones, and a state takes one page. A beginning that two texts share is used again as far as
# *every* kind of layer still has it [[Hybrid caches](../docs/references.md#hybrid-caches)].
#
# </details>

# %% [markdown]
# ## Exercises
#
# ### Write one token
#
# *Medium, 5 minutes.* Write what one token does to the page: let the state fade, then correct it. `state` is (d, x),
# `key` is (d,) of length 1, `value` is (x,), `keep` is (d,), the gate of each feature of the keys, and `share` is β, a
# number. Return the new state, and leave the old one as it is.


# %% tags=["exercise"]
def write(state, key, value, keep, share):
    """Give the state after one token, (d, x)."""


# %%
from annotated_book import exercises

exercises.linear_attention.check_write(write)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The gate is one number for each *row* of the state.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# What does the faded state say for this key? The difference to the value is written, under the key.
#
# </details>


# %% tags=["solution"]
def write(state, key, value, keep, share):
    """Give the state after one token, (d, x)."""
    faded = keep[:, None] * state  # (d, x)
    return faded + share * key[:, None] * (value - key @ faded)


exercises.linear_attention.check_write.folded(write)

# %% [markdown]
# ## What you have now
#
# > **In short.** Without a softmax between them, keys and values can be multiplied first: a state (d, d_v) in place of
# > a cache. The gated delta rule fades it, and corrects it by one step of gradient descent for each token:
# >
# > ```python
# > state = keep[:, None] * state  # (d, d_v): fade, all at once or by feature
# > state = state + share * key[:, None] * (value - key @ state)  # erase, then write
# > output = query @ state  # (d_v,)
# > ```
# >
# > The gate clears the page. The delta rule corrects what is said for a key, and with it for similar ones. Such a page does
# > not give back every pair, so hybrids keep a softmax over all tokens in about every fourth layer.
#
# You now have the parts of a model of today. [The next chapter](26_a_model_of_today.ipynb) puts most of them together, loads
# a published chat model, and asks it.
