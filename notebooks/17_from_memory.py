# %% [markdown]
# # From memory
#
# *Can you write it in a quarter of an hour, and prove that it is right?*
#
# Somebody hands you an empty file and asks for multi-head attention. Nobody needs the whole final
# class there. This chapter has the shortest version that is correct, seven questions that are asked
# next, each answered by a cell, and then the empty file. The doctor of
# [Testing attention](16_testing_attention.ipynb) examines what you write.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map(
    "project in", "split", "score", "mask", "softmax", "mix", "merge", "project out"
)

# %% [markdown]
# ## The shortest correct version
#
# Four matrices with initial values, one check, and the formula, line by line. It is batch-first, has
# neither masks nor biases, and returns the weights, too.

# %%
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention import MultiheadAttention, block_future, chapters, published

torch.manual_seed(0)
one = chapters.load("01_one_head")


# %%
class Attention(nn.Module):
    """Multi-head attention, the shortest version."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(f"{num_heads} heads do not divide {embed_dim}")
        self.num_heads = num_heads
        for name in ("w_q", "w_k", "w_v", "w_o"):
            matrix = nn.init.xavier_uniform_(torch.empty(embed_dim, embed_dim))
            self.register_parameter(name, nn.Parameter(matrix))

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from each query to every key.

        Args:
            query: (b, n, e), batch-first.
            key: (b, m, e), batch-first.
            value: (b, m, e), batch-first.
        """
        pairs = ((query, self.w_q), (key, self.w_k), (value, self.w_v))
        split = ((x @ w).unflatten(-1, (self.num_heads, -1)) for x, w in pairs)
        q, k, v = (x.transpose(1, 2) for x in split)      # (b, h, ..., d)
        scores = q @ k.mT / math.sqrt(q.size(-1))         # (b, h, n, m)
        weights = scores.softmax(-1)                      # (b, h, n, m)
        mixed = (weights @ v).transpose(1, 2).flatten(2)  # (b, n, e)
        return mixed @ self.w_o, weights                  # (b, n, e), (b, h, n, m)


# %% [markdown]
# What to remember is not the code. It is one sentence: *project, split, score, scale, softmax, mix,
# merge, project.* Each word is a call or two, and each has one thing that goes wrong.
#
# | word | call | what goes wrong |
# |---|---|---|
# | project | `x @ w` | key and value need their own x |
# | split | `unflatten`, `transpose` | straight to `(b, h, n, d)`, which mixes tokens |
# | score, scale | `q @ k.mT / math.sqrt(d)` | $\sqrt e$, or none |
# | softmax | `softmax(-1)` | over the queries |
# | mix | `weights @ v` | the keys again |
# | merge | `transpose`, `flatten` | without the transpose |
# | project | `@ self.w_o` | declared and forgotten |
#
# Is it right? Give the same weights to the shortest version of [Published
# code](15_published_code.ipynb), which is sequence-first, and to the final class, and compare outputs,
# weights and gradients.

# %%
b, n, m, h, d = 2, 3, 5, 4, 6
e = h * d
query = torch.randn(b, n, e, dtype=torch.float64, requires_grad=True)  # (b, n, e)
key = torch.randn(b, m, e, dtype=torch.float64, requires_grad=True)    # (b, m, e)

reference = MultiheadAttention(e, h, bias=False, batch_first=True, dtype=torch.float64)
shortest = published.Shortest(e, h).double()
shortest.load_from(reference)
mine = Attention(e, h).double()
mine.load_state_dict(shortest.state_dict())
print("the same matrices in all three:", ", ".join(mine.state_dict()))

# %%
first = (query.transpose(0, 1), key.transpose(0, 1), key.transpose(0, 1))
sequence_first, their_weights = shortest(*first)  # (n, b, e), (b, h, n, m)
theirs = {"the shortest published": (sequence_first.transpose(0, 1), their_weights),
          "the final class": reference(query, key, key, average_attn_weights=False)}

output, weights = mine(query, key, key)  # (b, n, e), (b, h, n, m)
gradients = one.gradients(output, [query, key])
for name, (expected, their_weights) in theirs.items():
    torch.testing.assert_close((output, weights), (expected, their_weights))
    torch.testing.assert_close(gradients, one.gradients(expected, [query, key]))
    print(f"{name}: outputs, weights and gradients agree")

# %% [markdown]
# ## Can it take a mask?
#
# One argument and two lines. Say aloud what True means, since that is what the question is about: here,
# "must not see". The mask is the same for every head, so it gets an axis for them.


# %%
class WithMask(Attention):
    """The shortest version with a mask."""

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, blocked: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Attend from each query to every key that is not blocked.

        Args:
            query: (b, n, e), batch-first.
            key: (b, m, e), batch-first.
            value: (b, m, e), batch-first.
        """
        pairs = ((query, self.w_q), (key, self.w_k), (value, self.w_v))
        split = ((x @ w).unflatten(-1, (self.num_heads, -1)) for x, w in pairs)
        q, k, v = (x.transpose(1, 2) for x in split)      # (b, h, ..., d)
        scores = q @ k.mT / math.sqrt(q.size(-1))         # (b, h, n, m)
        if blocked is not None:
            scores = scores.masked_fill(blocked[:, None], -math.inf)
        weights = scores.softmax(-1)                      # (b, h, n, m)
        mixed = (weights @ v).transpose(1, 2).flatten(2)  # (b, n, e)
        return mixed @ self.w_o, weights                  # (b, n, e), (b, h, n, m)


# %%
display.diff(Attention.forward, WithMask.forward)

# %%
masked = WithMask(e, h).double()
masked.load_state_dict(mine.state_dict())
blocked = block_future(n, m).expand(b, -1, -1) | (torch.rand(b, n, m) < 0.3)  # (b, n, m)
blocked[..., 0] = False
output, _ = masked(query, key, key, blocked)
expected, _ = reference(query, key, key, attn_mask=blocked.repeat_interleave(h, 0))
torch.testing.assert_close(output, expected)

blocked[0, 1] = True
empty = masked(query, key, key, blocked)[0][0, 1, :3].tolist()
print("agrees with the final class; a fully masked query:", empty)

# %% [markdown]
# > **Pitfall.** The follow-up to the follow-up: a fully masked query is NaN here. The final class
# > gives zeros; [Masks](06_masks.ipynb) shows how.
#
# ## What does it cost?
#
# With n = m: the four projections take $8bne^2$ operations, scores and mixing $4bn^2e$. So it is
# quadratic in the length, and at short lengths the projections cost more. They break even at n = 2e,
# whatever h is.

# %%
from torch.utils.flop_counter import FlopCounterMode

b, e = 1, 64
print("     n   h  projections      scores  counted")
for n, h in ((32, 4), (128, 4), (128, 16), (512, 4)):
    small, x = Attention(e, h), torch.randn(b, n, e)
    with FlopCounterMode(display=False) as counter:
        small(x, x, x)
    projections, scores = 8 * b * n * e**2, 4 * b * n**2 * e
    assert counter.get_total_flops() == projections + scores
    print(f"{n:6} {h:3} {projections:12,} {scores:11,}  the same")
    assert sum(p.numel() for p in small.parameters()) == 4 * e**2
print("parameters:", 4 * e**2, "each time")

# %% [markdown]
# The last column is what PyTorch counts, and the cell asserts it. It counts matrix products alone, and
# for those more heads cost nothing: they cut the same matrices into more pieces. The weights are
# another matter: `(b, h, n, m)` of them are kept, and grow with h.
#
# ## Why √d?
#
# A score adds up d products. With entries of variance 1 its variance is d, and a softmax over such
# numbers gives nearly everything to one key; then hardly any gradient comes back, as [One
# head](01_one_head.ipynb) measures. Divide by $\sqrt d$, and the variance is 1.

# %%
q, k = torch.randn(2, 1000, 256)
for name, divisor in (("nothing", 1), ("√d", 16), ("d", 256)):
    scores = q @ k.mT / divisor
    largest = scores.softmax(-1).amax(-1).median()
    print(f"by {name:8} deviation {scores.std():5.2f}, largest weight {largest:.3f}")
print(f"an even share: {1 / 1000}")

# %% [markdown]
# ## What is a KV cache?
#
# A decoder writes one word at a time, and the words before it stay. With a causal mask their keys and
# values never change, so they are kept, and each step computes one query alone.


# %%
def step(module: Attention, x: Tensor, cache: list[Tensor]) -> Tensor:
    """Attend from one new token to itself and to all before it.

    Args:
        module: whose matrices are used.
        x: (b, 1, e), the new token.
        cache: keys and values so far; the new ones are appended.
    """
    heads = (module.num_heads, -1)
    q, k, v = ((x @ w).unflatten(-1, heads).transpose(1, 2)
               for w in (module.w_q, module.w_k, module.w_v))
    cache[:] = [torch.cat(pair, 2) for pair in zip(cache, (k, v))] if cache else [k, v]
    k, v = cache
    weights = (q @ k.mT / math.sqrt(q.size(-1))).softmax(-1)      # (b, h, 1, m)
    return (weights @ v).transpose(1, 2).flatten(2) @ module.w_o  # (b, 1, e)


# %%
b, n, e, h = 2, 7, 24, 4
module, x = WithMask(e, h).double(), torch.randn(b, n, e).double()
cache: list[Tensor] = []
steps = [step(module, x[:, i : i + 1], cache) for i in range(n)]  # (b, 1, e)
whole, _ = module(x, x, x, block_future(n).expand(b, -1, -1))     # (b, n, e), (b, h, n, n)
torch.testing.assert_close(torch.cat(steps, 1), whole)
print("token by token equals all at once")
print("numbers in the cache:", sum(x.numel() for x in cache), "= 2bne =", 2 * b * n * e)

# %% [markdown]
# No mask is needed in a step: what is not there yet cannot be seen. The price is memory that grows
# with every token, in every layer.
#
# ## Where does dropout go?
#
# On the weights, after the softmax, and in training alone. What is kept is scaled up, so that each
# weight is right on average; a row no longer sums to 1.

# %%
weights = torch.tensor([0.1, 0.2, 0.3, 0.4]).repeat(20_000, 1)  # (20000, 4)
dropped = F.dropout(weights, 0.5)                               # (20000, 4)
print("on average:", [round(w, 2) for w in dropped.mean(0).tolist()])
print("sums of some rows:", [round(total, 1) for total in dropped[:6].sum(-1).tolist()])
print("in evaluation:", F.dropout(weights, 0.5, training=False).equal(weights))

# %% [markdown]
# ## How are the matrices initialised?
#
# So that what goes through neither grows nor shrinks. Xavier's variance is $2 / (\text{rows} +
# \text{columns})$, $1 / e$ for a square. PyTorch packs three squares into one (3e, e) matrix, and
# gets half of that. And `torch.empty` is no initialisation: [One head](01_one_head.ipynb) shows what
# is in it.

# %%
e = 512
square, packed = torch.empty(e, e), torch.empty(3 * e, e)
x = torch.randn(200, e)
for name, matrix in (("square", square), ("packed", packed)):
    nn.init.xavier_uniform_(matrix)
    of_a_query = (x @ matrix[:e].mT).std()
    print(f"{name}: deviation {matrix.std():.3f}, of a query {of_a_query:.2f}")

# %% [markdown]
# ## What are grouped heads?
#
# The cache grows with the number of key and value heads. So let several query heads share one pair of
# key and value: g pairs instead of h. With g = h it is ordinary attention, with g = 1 *multi-query* attention.

# %%
b, h, n, m, d = 2, 6, 3, 5, 4
q = torch.randn(b, h, n, d)
for g in (6, 2, 1):
    k, v = torch.randn(2, b, g, m, d)
    wide_k, wide_v = (x.repeat_interleave(h // g, 1) for x in (k, v))  # (b, h, m, d)
    output = (q @ wide_k.mT / math.sqrt(d)).softmax(-1) @ wide_v       # (b, h, n, d)
    expected = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    torch.testing.assert_close(output, expected)
    print(f"g = {g}: equal to PyTorch's; the cache holds {k.numel() + v.numel()} numbers")

# %% [markdown]
# Neighbours share, so `repeat_interleave` and not `repeat`: the same pitfall as with masks.
#
# ## What the doctor says
#
# You need not trust anybody's eyes, least of all your own after a quarter of an hour. The doctor has
# never seen this class:

# %%
from annotated_attention.doctor import adapters, examine

torch.manual_seed(0)
print(examine(WithMask(24, 4), embed_dim=24, num_heads=4))

# %% [markdown]
# Nothing is wrong. It has found the matrices by their names, and gets the same from the right version
# with the same numbers. The fully masked row it calls a convention: published code does it
# either way. Say so before you are asked. Now slips from the table above, one at a time:

# %%
from annotated_attention.mistakes import MISTAKES

SLIPS = ("split-without-transpose", "scale-by-model-width", "no-scale",
         "softmax-over-queries", "keys-and-values-swapped", "merge-without-transpose",
         "output-projection-missing")
for slip in SLIPS:
    module = MISTAKES[slip].version(24, 4)
    report = examine(adapters.torch_like(module), embed_dim=24, num_heads=4)
    assert report.findings[0].code == slip
    print(f"{slip:26} found: {report.findings[0].code}")

# %% [markdown]
# Each is named. Your turn.
#
# ## Exercises
#
# You may do the first one here, or in a file of your own. There is a skeleton for that, and it says
# how:

# %%
from annotated_attention import exercises
from annotated_attention.exercises import skeleton

print(skeleton.__doc__)

# %% [markdown]
# The second of these commands, run on the skeleton as it is:

# %%
from annotated_attention.doctor.command import main

sizes = ["--embed-dim", "24", "--num-heads", "4"]
exit_code = main([f"{skeleton.__file__}:MyAttention", *sizes])
print("\nexit code:", exit_code)

# %% [markdown]
# Whether here or there, run the next cell when you are ready.

# %%
exercises.from_memory.start_clock()

# %% [markdown]
# ### Against the clock
#
# *Hard, 15 minutes.* Close the page above. Write multi-head attention, batch-first, with a mask: the
# doctor wants `(b, n, e)` back, alone or with the weights. Name the parameters as you like, give them
# initial values, and refuse a width that the heads do not divide.


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
# Eight words: project, split, score, scale, softmax, mix, merge, project. The mask stands between
# scale and softmax.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `nn.Linear(embed_dim, embed_dim)`, four of them, brings initial values along. After the split, q is
# `(b, h, n, d)`, and k and v are `(b, h, m, d)`.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Split: `unflatten(-1, (h, -1))`, then `transpose(1, 2)`. Merge: `transpose(1, 2)`, then `flatten(2)`.
# Mask: `masked_fill(blocked[:, None], -math.inf)`.
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
class MyAttention(nn.Module):
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
        scores = q @ k.mT / math.sqrt(q.size(-1))  # (b, h, n, m)
        if blocked is not None:
            scores = scores.masked_fill(blocked[:, None], -math.inf)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


exercises.from_memory.check_attention(MyAttention)

# %% [markdown]
# ### Somebody else's answer
#
# *Medium, 10 minutes.* This was written in ten minutes, runs, and returns the right shape. It has three
# mistakes. Find and mend them; run the check in between, and read what the doctor says.


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
# Which width does a score add up? What is the exponential of 0?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The heads stand before the tokens when they are mixed. Where do they have to stand when they are
# merged?
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
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


exercises.from_memory.check_mended(Mended)

# %% [markdown]
# ## What you have now
#
# One sentence of eight words, a few lines that say it, and something that examines them. That is the
# end of the book. Everything in it ran to make its pages. Take the package; or take the habit.
