# %% [markdown]
# # From memory
#
# *Can you write it in a quarter of an hour, and answer what they ask next?*
#
# *14 minutes and 23 of exercises. Afterwards you can write the shortest correct version and have
# it tested.*
#
# In an interview, somebody hands you an empty file: *write multi-head attention, without PyTorch's class. Then tell
# me what a text of 32k tokens keeps in memory.* Nine slips are typical, and in self-attention **all nine run, return
# the right shape and raise no error.** Eight give wrong numbers. The ninth, keys made from the query, is even right
# there, where both are one text, and wrong as soon as the keys should come from another. So learn it as a pianist does,
# who has the tune in mind and not the dots on the page. Here the tune is eight words. They come after the task, so that
# you can try it without them.
#
# Choose your way by the time that you have:
#
# - **15 minutes.** Play [the tune](#cell-id=the-class) until you make no mistake (2 minutes), read its class and the
#   slips (3), and take [the questions](#cell-id=questions-that-follow): answer aloud, open, and read the sentence in
#   bold (10).
# - **30 minutes.** Write the class now, [against the clock](#cell-id=against-the-clock) (15), hold it beside
#   [the class](#cell-id=the-class) (3), and take the questions (12).
# - **40 minutes.** Write (15), play (2), read the class and the slips (3), take the questions (12), and mend
#   [somebody else's answer](#cell-id=somebody-elses-answer) (8).

# %% tags=["hide-input"]
import inspect
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from annotated_book import chapters, display, exercises

# %% [markdown] name="against-the-clock"
# ## The task, against the clock
#
# *Hard, 15 minutes.* Start a clock. Write batch-first multi-head attention with a mask, and return `(b, n, e)`, alone or with the
# weights. Name the parameters as you like, give them initial values, and refuse a width that the heads do not
# divide. A fully masked row may become NaN; zeros are better, since NaN spreads. Write it here in the notebook, or
# in a file `mine.py` that imports `math`, `torch` and `nn`. [The doctor](17_testing_attention.ipynb#cell-id=the-doctor),
# a tool that probes attention and compares it with a right version, examines either. For a file, `pip install .` in a
# checkout of this book's repository brings the command:
# `attention-doctor mine.py:MyAttention --embed-dim 24 --num-heads 4`.


# %% tags=["exercise"]
class MyAttention(nn.Module):
    """Multi-head attention, batch-first."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        """Create the matrices, with initial values."""
        super().__init__()

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, blocked: Tensor | None = None
    ) -> Tensor:
        """Attend, with True in ``blocked`` for what a query must not see.

        Args:
            query: (b, n, e), batch-first.
            key: (b, m, e), batch-first.
            value: (b, m, e), batch-first.
            blocked: (b, n, m), boolean, or None.
        """
        raise NotImplementedError


# %%
exercises.from_memory.check_attention(MyAttention)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Remember the eight words: project, split, score, scale, softmax, mix, merge, project. And mask
# twice, on either side of softmax.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Four layers `nn.Linear(embed_dim, embed_dim)` bring initial values along. After the split, q is
# `(b, h, n, d)`, and k and v are `(b, h, m, d)`.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Split: `unflatten(-1, (h, -1))`, then `transpose(1, 2)`. Merge: `transpose(1, 2)`, then
# `flatten(2)`. Mask: `masked_fill(blocked[:, None], -math.inf)`; after the softmax, fill the
# weights with 0.
#
# </details>

# %% tags=["solution"]
# the class of the next section
MyAttention = chapters.load("short_path").PlainAttention

exercises.from_memory.check_attention.folded(MyAttention)

# %% [markdown] name="the-class"
# ## The tune, and its nine slips
#
# The tune is eight words, with *mask* between the fourth and the fifth. Each leaves a shape behind. Where you can press
# buttons, hide the words and play them from memory:

# %% tags=["hide-input"]
display.tune(name="the-tune")

# %% [markdown]
# Written out, it is the class of [The short path](short_path.ipynb), which compares the whole with PyTorch's class. The
# tune has *mask* once, and the class has it twice: it fills scores with −∞ before the softmax, and weights with 0 after
# it, for the sake of fully masked rows. The line with `zeros_like` you need not remember: each fill under an
# `if blocked is not None:` is as good.

# %% tags=["hide-input"]
torch.manual_seed(0)
PlainAttention = chapters.load("short_path").PlainAttention
display.source(PlainAttention, docstrings=False)

# %% [markdown]
# Each of the eight words has its typical slip, and so has *mask*. Make these nine in the class, one at a time, and
# give it a batch: once in self-attention under a causal mask, and once with n queries and m keys, where n, m, h and d
# all differ. Which slips raise an error?

# %% tags=["fold-input"]
SPLIT = "x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)"
CUT = "x.reshape(len(x), self.num_heads, x.size(1), -1)"
MERGE, FLAT = "x.transpose(1, 2).flatten(2)", "x.reshape(len(x), x.size(2), -1)"
TOKENS, HEADS, SCORES = "(b, n, e)", "(b, h, n, d)", "(b, h, n, m)"
SLIPS = {  # a word: what it leaves, the slip, and the slip in code
    "project": (TOKENS, "keys from the query", "self.w_k(key)", "self.w_k(query)"),
    "split": (HEADS, "without the transpose", SPLIT, CUT),
    "score": (SCORES, "keys times queries", "q @ k.mT", "k @ q.mT"),
    "scale": (SCORES, "divided by √e", "q.size(-1)", "query.size(-1)"),
    "mask": (SCORES, "filled with 0, not −∞", "blocked, -math.inf", "blocked, 0"),
    "softmax": (SCORES, "over the queries", ".softmax(-1)", ".softmax(-2)"),
    "mix": (HEADS, "keys in place of values", "weights @ v", "weights @ k"),
    "merge": (TOKENS, "without the transpose", MERGE, FLAT),
    "project again": (
        TOKENS,
        "forgotten",
        "self.w_o(self.merge(weights @ v))",
        "self.merge(weights @ v)",
    ),
}


# %% tags=["fold-input"]
def with_slip(right: str, wrong: str) -> type:
    """Define the class again, with a slip in its source."""
    source, defined = (
        inspect.getsource(PlainAttention),
        {"math": math, "nn": nn, "torch": torch},
    )
    assert source.count(right) == 1
    exec(source.replace(right, wrong), defined)
    return defined["PlainAttention"]


def what_happens(kind: type, m: int) -> str:
    """Compare with the right class, which has the same parameters: 5 queries, m keys."""
    good, bad = PlainAttention(24, 4), kind(24, 4)
    bad.load_state_dict(good.state_dict())
    query, memory = torch.randn(2, 5, 24), torch.randn(2, m, 24)
    memory = query if m == 5 else memory
    future = torch.ones(5, m).triu(1).bool().expand(2, 5, m)
    expected = good(query, memory, memory, future)[0]
    try:
        output = bad(query, memory, memory, future)[0]
    except RuntimeError:
        return "error"
    assert output.shape == expected.shape
    return "right" if output.allclose(expected, atol=1e-4) else "runs, wrong"


told = {}
for word, (leaves, slip, right, wrong) in SLIPS.items():
    ends = [what_happens(with_slip(right, wrong), m) for m in (5, 7)]
    told[word] = [leaves, slip, *ends]
columns = ["leaves", "slip", "self-attention", "n ≠ m"]
display.show(told, columns=columns, decimals="<", corner="word")

# %% tags=["proof"]
assert told["project"][2:] == ["right", "error"]
assert told["score"][2:] == ["runs, wrong", "error"]
silent = [ends[2:] for word, ends in told.items() if word not in ("project", "score")]
assert silent == [["runs, wrong"] * 2] * 7
print("✓ In self-attention all nine run; eight are wrong, with the right shape.")

# %% [markdown]
# In self-attention all nine run, and eight are wrong; keys from the query are even right, until the keys come from
# another text. Sizes that all differ catch two of the nine. So while somebody watches, compare with
# `F.scaled_dot_product_attention`: a comparison catches each of them, at such sizes.
#
# A comparison says *that* you are wrong. The doctor also says where. Give it the class with the softmax over the
# queries:

# %% tags=["fold-input"]
from attention_doctor import examine

torch.manual_seed(0)
right, wrong = SLIPS["softmax"][2:]
report = examine(with_slip(right, wrong)(24, 4), embed_dim=24, num_heads=4)
lines = inspect.getsource(PlainAttention).replace(right, wrong).splitlines()
pointed = [(x.where.line, x.code, x.remedy) for x in report.findings]
for number, code, remedy in pointed:
    print(f"wrong: {code}")
    for i in range(number - 3, min(number + 1, len(lines))):
        print("→" if i + 1 == number else " ", lines[i][8:])
    print(remedy)

# %% tags=["proof"]
assert not report.ok
assert [".softmax(-2)" in lines[number - 1] for number, *_ in pointed] == [True]
print("✓ It has one finding, and it points at the line that was changed.")

# %% [markdown] name="questions-that-follow"
# ## Ten questions that follow
#
# Each answer begins with the sentence to say, and most end with a cell that shows it. (In a notebook they stand open:
# cover them.)
#
# ### Can it hide the future?
#
# <!-- answer -->
#
# **Yes: block what stands above the diagonal, with `triu(1)`.** Say aloud what True means, before
# you are asked: here, as in PyTorch's class, True means *blocked*. In PyTorch's function
# `scaled_dot_product_attention` it means *allowed*. The mask is `(b, n, m)`, or `(1, n, m)` for all samples,
# and the same for every head: pass `mask[None]` of a mask `(n, m)`, and `mask[:, 0]` of one `(b, 1, n, m)`. Compare with PyTorch's function and its `is_causal`.


# %%
class Causal(PlainAttention):
    """Self-attention in which no token sees a later one."""

    def forward(self, x: Tensor) -> Tensor:
        n = x.size(1)
        future = torch.ones(n, n, dtype=torch.bool, device=x.device).triu(1)  # (n, n)
        return super().forward(x, x, x, future[None])[0]                      # (b, n, e)


# %% tags=["proof"]
b, n, h, d = 2, 5, 4, 6
e = h * d
causal = Causal(e, h).double()
x = torch.randn(b, n, e, dtype=torch.float64, requires_grad=True)  # (b, n, e)
q, k, v = (causal.split(layer(x)) for layer in (causal.w_q, causal.w_k, causal.w_v))
mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # (b, h, n, d)
outputs = causal(x), causal.w_o(causal.merge(mixed))             # (b, n, e)
ours, theirs = (torch.autograd.grad(y.square().sum(), x)[0] for y in outputs)
torch.testing.assert_close(*outputs)
torch.testing.assert_close(ours, theirs)
print("✓ Outputs and gradients are those of PyTorch's causal attention.")

# %% [markdown]
# > **Pitfall.** `triu()` alone begins *on* the diagonal: the first token then sees nothing. The second fill turns its
# > row into zeros. With the first fill alone it is NaN, which spreads to the gradients, as
# > [Masks](06_masks.ipynb#cell-id=fully-masked-rows) shows.
#
# <!-- /answer -->
#
# ### What is a KV cache, and how large is it at 32k tokens?
#
# <!-- answer -->
#
# **The keys and values of earlier words never change, so the decoder keeps them. At 32k tokens, Llama 3.1<!-- quoted -->
# 8B keeps 4 GiB for each text.** With a causal mask, an earlier word cannot see a later one, so its
# output stays what it was, in this layer and the next. Each step computes one query, one key and one
# value, and attends to all cached keys.


# %%
def step(module: PlainAttention, x: Tensor, cache: list[Tensor]) -> Tensor:
    """Attend from one new token to itself and to all before it.

    Args:
        module: whose layers are used.
        x: (b, 1, e), the new token.
        cache: keys and values so far; the new ones are appended.
    """
    q, k, v = (module.split(layer(x)) for layer in (module.w_q, module.w_k, module.w_v))
    if cache:
        k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
    cache[:] = k, v                                           # each (b, h, m, d)
    weights = (q @ k.mT / math.sqrt(q.size(-1))).softmax(-1)  # (b, h, 1, m)
    return module.w_o(module.merge(weights @ v))              # (b, 1, e)


# %% tags=["proof"]
b, n, e = 2, 7, 24
x, cache = torch.randn(b, n, e).double(), []
steps = [step(causal, x[:, i : i + 1], cache) for i in range(n)]  # each (b, 1, e)
torch.testing.assert_close(torch.cat(steps, 1), causal(x))
assert sum(x.numel() for x in cache) == 2 * b * n * e
print("✓ Token by token gives what all at once gives; the cache holds 2bne numbers.")

# %% [markdown]
# The bytes are a product that you can say aloud: two (a key and a value), times tokens, times layers,
# times key heads, times the width of a head, times the bytes of a number. In **grouped-query attention**
# (GQA), several query heads share one key head and one value head [[Ainslie et al.
# 2023](../docs/references.md#ainslie-2023)]; with a single one it is called multi-query attention
# [[Shazeer 2019](../docs/references.md#shazeer-2019)]. Llama 3.1<!-- quoted --> 8B has 32 layers, 32 query heads and heads
# of width 128, in 16 bits [[Llama Team](../docs/references.md#llama-2024)]. What does it keep with 32
# key heads, with its own 8, and with one?

# %%
tokens, layers, d = 32 * 1024, 32, 128
kept = {g: 2 * tokens * layers * g * d * 2 for g in (32, 8, 1)}
rows = {g: [size / 2**30, 64 * size / 2**30] for g, size in kept.items()}
columns = ["GiB for one text of 32k tokens", "for 64 texts"]
display.show(rows, columns=columns, decimals=1, corner="key heads")

# %% [markdown]
# With 32 key heads, a single text would take about as much memory as the model itself. [Fewer
# keys](22_fewer_keys.ipynb) shows which query heads share which key head: neighbours do, so
# `repeat_interleave` is right, and `repeat` gives the same shape in another order.
#
# <!-- /answer -->
#
# ### Why is a prompt fast and its answer slow?
#
# <!-- answer -->
#
# **Prefill reads all tokens of the prompt at once and is bound by arithmetic; decode reads all parameters
# for a single token and is bound by memory bandwidth.** Each parameter costs two operations per token, a
# multiplication and an addition, and two bytes whenever it is read. How many operations does a byte buy
# in each phase?

# %% tags=["fold-input"]
parameters, reads, does = 8.0e9, 3350e9, 989e12  # an H100's bytes and operations a second
rows = {}
for phase, together in (
    ("prefill, 2,048 tokens", 2048),
    ("decode, 1 text", 1),
    ("decode, 64", 64),
):
    operations, read = 2 * parameters * together, 2 * parameters
    steps = min(reads / read, does / operations)  # a second; the slower of the two decides
    rows[phase] = [read / 1e9, operations / read, int(steps * together)]
columns = ["GB read", "operations for a byte", "tokens a second, at most"]
display.show(rows, columns=columns, decimals=0)

# %% tags=["proof"]
assert rows["decode, 1 text"][-1] == int(reads / 16e9) == 209
assert reads / 16e9 < does / 16e9
print(
    "✓ In decode, the time to read the parameters decides, not that to compute with them."
)

# %% [markdown]
# On paper, an H100 SXM reads 3,350 GB a second, and in the time of a byte it does 295 operations ([A
# cache](21_cache.ipynb)). In decode it has one to do, so it waits for its memory: 16 GB for each token make at most 209
# tokens a second, whatever the arithmetic. That is why servers decode many texts together, and why they store
# parameters in fewer bits. But "at most" leaves out the caches, and each text reads its own on top. Llama's for 64 texts
# of 32k tokens are 256 GiB, far more than the 16 GB of parameters, and more than the 80 GB<!-- quoted --> that an
# H100 holds: such texts cannot all be decoded there together.
#
# <!-- /answer -->
#
# ### What is rotary?
#
# <!-- answer -->
#
# **Each pair of features of a query and of a key is turned by an angle that grows with the token's place, so that places i
# and j enter a score through the difference i − j alone, sign included** [[Su et al.](../docs/references.md#su-2021)]. Attention without
# positions and without a mask treats the tokens as a set. Nothing is added to the embeddings here, values are not turned,
# and a cached key keeps its angle.


# %% tags=["fold-input"]
def rotate(x: Tensor, place: int) -> Tensor:
    """Turn neighbouring features by angles that grow with the place."""
    d = x.size(-1)
    angles = place / 10_000 ** (torch.arange(0, d, 2, dtype=x.dtype) / d)  # (d / 2,)
    (even, odd), cos, sin = x.unflatten(-1, (-1, 2)).unbind(-1), angles.cos(), angles.sin()
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


q, k = torch.randn(2, 8, dtype=torch.float64)
places = [(7, 4), (1007, 1004), (4, 7), (7, 3)]
rows = {f"{i}, {j}": [i - j, rotate(q, i) @ rotate(k, j)] for i, j in places}
display.show(rows, columns=["i − j", "score"], corner="query at, key at")

# %% tags=["proof"]
near, far, turned, other = (score for _, score in rows.values())
torch.testing.assert_close(near, far)
assert min((near - turned).abs(), (near - other).abs()) > 1e-3
assert torch.allclose(rotate(q, 7).norm(), q.norm())
print(
    "✓ The same i − j gives the same score a thousand words later; its negative does not."
)

# %% [markdown]
# [Positions](20_positions.ipynb) builds it, with the two layouts of pairs that loaders mix up.
#
# <!-- /answer -->
#
# ### What is FlashAttention?
#
# <!-- answer -->
#
# **The same result, computed tile by tile, so that the weights `(n, m)` are never stored.** The
# kernel reads a block of keys and values, and keeps three things for each query: the largest score
# so far, the sum of the exponentials, and the mixed values. When a larger score comes, it rescales
# the last two. Without a mask it saves no operations; its backward pass even computes the scores again. It saves
# memory, and traffic to memory, which is what limits the speed on a GPU [[Dao et al.
# 2022](../docs/references.md#dao-2022)]. [Tiles](23_tiles.ipynb) builds it step by step.

# %%
n, m, d = 5, 12, 6
q, (k, v) = torch.randn(n, d), torch.randn(2, m, d)
top, total, mixed = torch.full((n, 1), -math.inf), torch.zeros(n, 1), torch.zeros(n, d)
for keys, values in zip(k.split(4), v.split(4)):
    scores = q @ keys.mT / math.sqrt(d)                          # (n, 4)
    largest = torch.maximum(top, scores.amax(-1, keepdim=True))  # (n, 1)
    shrink, powers = (top - largest).exp(), (scores - largest).exp()
    total = total * shrink + powers.sum(-1, keepdim=True)  # (n, 1)
    mixed = mixed * shrink + powers @ values               # (n, d)
    top = largest

# %% tags=["proof"]
torch.testing.assert_close(mixed / total, F.scaled_dot_product_attention(q, k, v))
print("✓ Three tiles of four keys give what all twelve give at once.")

# %% [markdown]
# A class that returns the weights must store them, and cannot use such a kernel.
#
# <!-- /answer -->
#
# ### Why several heads?
#
# <!-- answer -->
#
# **A head has one set of weights per query, so it brings back one average. Several heads bring back
# several, and cost as many operations as one wide head.** In one head the weights share a single 1:
# what goes to one word is missing for another. A second head has its own 1 to share out. More heads cost
# no parameters: the same matrix is cut into thinner slices. [Two heads](02_two_heads.ipynb) has an
# example.
#
# <!-- /answer -->
#
# ### What does it cost?
#
# <!-- answer -->
#
# **The operations of the projections grow with the length; those of scores and mixing grow with its square, and so
# does the memory for the weights, `(b, h, n, m)`.** With n = m the four projections take $8bne^2$ operations, two for each multiply-add, and scores
# and mixing take $4bn^2e$. At short lengths the projections cost more, and at n = 2e both cost the
# same. [Counting](14_counting.ipynb) derives the formulas.
#
# More heads at the same width change none of this. A score adds up e / h products, and there are h scores for each
# query and key, which makes e in all, whatever h is. What does grow is the number of weights, `(b, h, n, m)`.

# %% tags=["fold-input"]
b, e = 1, 64
rows = {}
for n, h in ((32, 4), (128, 4), (128, 16), (512, 4)):
    module, x = PlainAttention(e, h), torch.randn(b, n, e)
    with FlopCounterMode(display=False) as counter:
        module(x, x, x)
    projections, scores = 8 * b * n * e**2, 4 * b * n**2 * e
    rows[f"{n}, {h}"] = [projections, scores, counter.get_total_flops()]
columns = ["projections", "scores + mixing", "counted"]
display.show(rows, columns=columns, corner="n, h")

# %% tags=["proof"]
assert all(
    counted == projections + scores for projections, scores, counted in rows.values()
)
print("✓ PyTorch counts the sum of the two, whatever the number of heads.")

# %% [markdown]
# <!-- /answer -->
#
# ### Why √d?
#
# <!-- answer -->
#
# **A score adds up d products, so its variance grows with d; after division by $\sqrt d$ the
# variance is 1.** (That is for independent entries with mean 0 and variance 1.) Scores that lie far apart make a
# softmax that has decided before anything was learned: with a weight w near 1, its derivative by its own score,
# w (1 − w), is near 0, and little comes back to change it. Take a thousand random queries and as many keys,
# d = 256, and count how many keys hold nine tenths of a query's weight:

# %% tags=["fold-input"]
q, k = torch.randn(2, 1000, 256)
rows = {}
for name, divisor in (("nothing", 1), ("√d", 16), ("d", 256)):
    scores = q @ k.mT / divisor
    weights = scores.softmax(-1).sort(descending=True).values
    holders = (weights.cumsum(-1) < 0.9).sum(-1) + 1
    rows[f"by {name}"] = [scores.std(), weights[:, 0].median(), holders.median()]
columns = ["scores deviate by", "largest weight (median)", "keys that hold 0.9 (median)"]
display.show(rows, columns=columns, decimals=(2, 3, 0), corner="divided")

# %% [markdown]
# Without the division, chance has chosen a single key for at least half of the queries. Division by d goes too far:
# 889 keys is nearly an even spread, which would take 900.
#
# <!-- /answer -->
#
# ### Where does dropout go?
#
# <!-- answer -->
#
# **On the weights, after the softmax, and only during training** [[Srivastava et al.
# 2014](../docs/references.md#srivastava-2014)]. A row then sums to 1 on average only.
#
# <!-- /answer -->
#
# ### How are the matrices initialised?
#
# <!-- answer -->
#
# **So that numbers neither grow nor shrink.** Xavier's uniform numbers
# [[Glorot and Bengio 2010](../docs/references.md#glorot-2010)] have variance $1 / e$ in a square matrix. PyTorch's class
# draws three matrices as one of $3e$ rows, which gives $1 / (2e)$, and `nn.Linear` by itself gives $1 / (3e)$. Never
# leave it to `torch.empty`.

# %% tags=["proof"]
e = 1024
square = nn.init.xavier_uniform_(torch.empty(e, e))
packed = nn.MultiheadAttention(e, 1).in_proj_weight
for weight, parts in ((square, 1), (packed, 2), (nn.Linear(e, e).weight, 3)):
    assert abs(weight.var() * e * parts - 1) < 0.01
    bound = math.sqrt(3 / (parts * e))  # uniform up to b has variance b² / 3
    assert 0.99 * bound < weight.abs().max() <= bound * (1 + 1e-6)
print("✓ The variances are one e-th, half of it and a third of it.")

# %% [markdown]
# <!-- /answer -->

# %% [markdown]
# ## Exercises

# %% [markdown] name="somebody-elses-answer"
# ### Somebody else's answer
#
# *Medium, 8 minutes.* This class took ten minutes to write. It runs, and it returns the right
# shape, but it has three mistakes. Find and mend them; run the check in between, and read what the
# doctor says.


# %% tags=["exercise"]
class Mended(nn.Module):
    """Multi-head attention, batch-first."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(f"{num_heads} heads do not divide {embed_dim}")
        self.heads = (num_heads, embed_dim // num_heads)
        layers = (nn.Linear(embed_dim, embed_dim) for _ in range(4))
        self.q, self.k, self.v, self.out = layers

    def forward(self, query, key, value, blocked=None):
        projected = self.q(query), self.k(key), self.v(value)
        q, k, v = (x.unflatten(-1, self.heads).transpose(1, 2) for x in projected)
        scores = q @ k.mT / math.sqrt(query.size(-1))
        if blocked is not None:
            scores = scores * ~blocked[:, None]
        return self.out((scores.softmax(-1) @ v).reshape(query.shape))


# %%
exercises.from_memory.check_mended(Mended)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Over which width does a score add up products? What is the exponential of 0?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# After *mix*, the axis of the heads stands before the axis of the tokens. Where does the axis of
# the heads have to stand for *merge*?
#
# </details>


# %% tags=["solution"]
class Mended(nn.Module):
    """Multi-head attention, batch-first."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(f"{num_heads} heads do not divide {embed_dim}")
        self.heads = (num_heads, embed_dim // num_heads)
        layers = (nn.Linear(embed_dim, embed_dim) for _ in range(4))
        self.q, self.k, self.v, self.out = layers

    def forward(self, query, key, value, blocked=None):
        projected = self.q(query), self.k(key), self.v(value)
        q, k, v = (x.unflatten(-1, self.heads).transpose(1, 2) for x in projected)
        scores = q @ k.mT / math.sqrt(q.size(-1))  # d, not e
        if blocked is not None:
            scores = scores.masked_fill(blocked[:, None], -math.inf)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


exercises.from_memory.check_mended.folded(Mended)

# %% [markdown]
# ## What you have now
#
# You can write multi-head attention from eight words and a mask, and answer ten questions that follow.
#
# > **In short.** Project, split, score, scale, softmax, mix, merge, project:
# > $\mathrm{softmax}(Q_i K_i^\top / \sqrt d)\, V_i$ for every head, side by side, times $W_O$.
# >
# > Tokens `(b, n, e)`, heads `(b, h, n, d)`, scores and weights `(b, h, n, m)`.
# >
# > ```python
# > q, k, v = map(split, (w_q(query), w_k(key), w_v(value)))
# > blocked = blocked[:, None]
# > scores = (q @ k.mT / math.sqrt(d)).masked_fill(blocked, -math.inf)
# > weights = scores.softmax(-1).masked_fill(blocked, 0)
# > output = w_o((weights @ v).transpose(1, 2).flatten(2))
# > ```
# >
# > Say what True means in your mask, and what a fully masked row gets. Divide by $\sqrt d$,
# > transpose before you merge, and compare with a version that you trust, at sizes that all differ.
#
# The [cheat sheet](cheat_sheet.ipynb) has all this on one page, and the
# [package](../docs/package/index.md) has the class to use. The next chapters show what today's
# models have changed, beginning with [positions](20_positions.ipynb).
