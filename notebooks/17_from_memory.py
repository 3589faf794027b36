# %% [markdown]
# # From memory
#
# *Can you write it in a quarter of an hour, and show that it is right?*
#
# In an interview, somebody hands you an empty file and asks for multi-head attention. A pianist who
# plays from memory has learned the tune, not the dots on the page. Here the tune is eight words:
# *project, split, score, scale, softmax, mix, merge, project*. The code follows from these words.
#
# This chapter gives you a short correct version and the seven questions that usually follow, each answered
# by a cell. Then you get the empty file, and the doctor of [Testing
# attention](15_testing_attention.ipynb) examines what you write.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map(
    "project in", "split", "score", "mask", "softmax", "mix", "merge", "project out"
)

# %% [markdown]
# (The strip shows the steps of the final class. *Scale* is part of its *score*, and *mask* is the first
# question below.)
#
# ## A short correct version
#
# You do not need the whole final class in a quarter of an hour. Four initialised matrices, one
# check and the formula are enough. This version is batch-first, has neither masks nor biases, and
# returns the weights along with the output.

# %%
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention import MultiheadAttention, block_future, chapters, published

torch.manual_seed(0)
one = chapters.load("01_one_head")  # for its `gradients`


# %%
class Attention(nn.Module):
    """Multi-head attention, a short version."""

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
# (In `(b, h, ..., d)`, the dots are n for q, and m for k and v.) Remember one sentence: *project,
# split, score, scale, softmax, mix, merge, project.* Each word stands for a call or two, and each
# has its typical mistake. The last column names the part of the final class, from [Multi-head
# attention](07_multihead_attention.ipynb), that does the same step.
#
# | word | call | typical mistake | in the final class |
# |---|---|---|---|
# | project | `x @ w` | key or value projected from the query | `F.linear` |
# | split | `unflatten`, `transpose` | reshaped straight to `(b, h, n, d)`, which mixes tokens | `split_heads` |
# | score, scale | `q @ k.mT / math.sqrt(d)` | divided by $\sqrt e$, or not at all | `scaled_scores` |
# | softmax | `softmax(-1)` | softmax over the queries | `masked_softmax` |
# | mix | `weights @ v` | keys mixed instead of values | `mix` |
# | merge | `transpose`, `flatten` | flattened without the transpose | `merge_heads` |
# | project | `@ self.w_o` | declared and forgotten | `out_proj` |
#
# Is the short version right? Compare it with the final class and with `published.Shortest`. This is
# the shortest class of the long article in [Published
# code](16_published_code.ipynb#packed-projection), with its mistake repaired. All three get the
# same matrices. They go from the final class to `Shortest`, where `load_from` transposes them, and
# from there to the short version. `Shortest` is sequence-first, `(n, b, e)`.

# %%
b, n, m, h, d = 2, 3, 5, 4, 6
e = h * d
query = torch.randn(b, n, e, dtype=torch.float64, requires_grad=True)  # (b, n, e)
key = torch.randn(b, m, e, dtype=torch.float64, requires_grad=True)    # (b, m, e)
value = torch.randn(b, m, e, dtype=torch.float64, requires_grad=True)  # (b, m, e)
inputs = (query, key, value)

reference = MultiheadAttention(e, h, bias=False, batch_first=True, dtype=torch.float64)
shortest = published.Shortest(e, h).double()
shortest.load_from(reference)
mine = Attention(e, h).double()
mine.load_state_dict(shortest.state_dict())
print("copied:", ", ".join(mine.state_dict()))

# %%
first = (x.transpose(0, 1) for x in inputs)
sequence_first, their_weights = shortest(*first)  # (n, b, e), (b, h, n, m)
theirs = {"the shortest published": (sequence_first.transpose(0, 1), their_weights),
          "the final class": reference(*inputs, average_attn_weights=False)}

output, weights = mine(*inputs)  # (b, n, e), (b, h, n, m)
gradients = one.gradients(output, inputs)
for name, (expected, their_weights) in theirs.items():
    torch.testing.assert_close((output, weights), (expected, their_weights))
    torch.testing.assert_close(gradients, one.gradients(expected, inputs))
    print(f"{name}: outputs, weights and gradients agree")

# %% [markdown]
# ## Can it take a mask?
#
# Yes, with one more argument and two more lines. Say aloud what True means, before you are asked:
# here True means *blocked*. The mask is `(b, n, m)` and the same for every head, so it gets an axis
# of size 1 where the scores have their heads.


# %% jupyter={"source_hidden": true}
class WithMask(Attention):
    """The short version with a mask."""

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

# %% [markdown]
# Compare this version with the final class once more. The mask is causal (query i sees keys 0 to i)
# and blocks some further keys. Then block every key for one query.

# %%
masked = WithMask(e, h).double()
masked.load_state_dict(mine.state_dict())
blocked = block_future(n, m).expand(b, -1, -1) | (torch.rand(b, n, m) < 0.3)  # (b, n, m)
blocked[..., 0] = False                      # no row fully masked yet
for_heads = blocked.repeat_interleave(h, 0)  # (b * h, n, m)
output, _ = masked(*inputs, blocked)
expected, _ = reference(*inputs, attn_mask=for_heads)
torch.testing.assert_close(output, expected)
torch.testing.assert_close(one.gradients(output, inputs), one.gradients(expected, inputs))

blocked[0, 1] = True
empty = masked(*inputs, blocked)[0][0, 1, :3].tolist()
print("agrees with the final class; a fully masked query:", empty)

# %% [markdown]
# > **Pitfall.** A fully masked row is NaN here. Say so before you are asked. The final class gives
# > zeros for such a row: the chapter [Masks](06_masks.ipynb#fully-masked-rows) shows how, in one
# > line before the softmax and one after.
#
# ## What does it cost?
#
# With n = m the four projections take $8bne^2$ operations, two for each multiply-add, and scores
# and mixing take $4bn^2e$. So the projections grow in proportion to the length, while scores and
# mixing grow with its square. At short lengths the projections cost more, and both parts cost the
# same at n = 2e. [Counting](12_counting.ipynb) derives the formulas.
#
# Now go from 4 heads to 16, at the same width. Are there more operations, fewer, or as many as before?
#
# <details><summary>What do you expect?</summary>
#
# As many as before. More heads cut the same matrices into more and thinner pieces: h products of
# width e / h cost as much as one product of width e. What does grow is the number of stored
# weights, `(b, h, n, m)`.
#
# </details>

# %%
from torch.utils.flop_counter import FlopCounterMode

b, e = 1, 64
print("     n   h  projections  scores + mixing  counted")
for n, h in ((32, 4), (128, 4), (128, 16), (512, 4)):
    small, x = Attention(e, h), torch.randn(b, n, e)
    with FlopCounterMode(display=False) as counter:
        small(x, x, x)
    projections, scores = 8 * b * n * e**2, 4 * b * n**2 * e
    assert counter.get_total_flops() == projections + scores
    print(f"{n:6} {h:3} {projections:12,} {scores:16,}  the same")
    assert sum(p.numel() for p in small.parameters()) == 4 * e**2
print("parameters:", 4 * e**2, "each time")

# %% [markdown]
# The last column compares the sum with PyTorch's own count, which covers matrix products only. The rows
# for n = 128 differ in h and in nothing else.
#
# ## Why √d?
#
# A score adds up d products. If the entries are independent, with mean 0 and variance 1, the
# variance of the score is d. The softmax of numbers that far apart gives nearly all the weight to
# one key. Then hardly any gradient comes back, as [One
# head](01_one_head.ipynb#going-deeper-why-divide-by-d) measures. Divide the scores by $\sqrt d$,
# and their variance is one again. Compare three divisors, with d = 256 and a thousand keys.

# %%
q, k = torch.randn(2, 1000, 256)
for name, divisor in (("nothing", 1), ("√d", 16), ("d", 256)):
    scores = q @ k.mT / divisor
    largest = scores.softmax(-1).amax(-1).median()
    print(f"by {name:8} deviation {scores.std():5.2f}, "
          f"median of the largest weights {largest:.3f}")
print(f"an even share: {1 / 1000}")

# %% [markdown]
# Without the division, one key takes nearly all the weight. Division by d goes too far: the largest
# weight is hardly more than an even share, so the head hardly tells keys apart.
#
# ## What is a KV cache?
#
# A decoder writes one word at a time and never changes the earlier ones. With a causal mask, an
# earlier word cannot see a later one. So in each layer, the output of the earlier word does not
# change when the decoder adds a word. That output is the next layer's input, so the word's keys and
# values there stay the same, too. The decoder keeps keys and values in a cache. Each step computes
# one query, one key and one value, and attends to all cached keys.


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
    if cache:
        k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
    cache[:] = k, v
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
print("numbers in the cache:", sum(x.numel() for x in cache), "which is 2bne")
assert sum(x.numel() for x in cache) == 2 * b * n * e

# %% [markdown]
# A step needs no mask, because words that are not written yet are not in the cache. The price is
# memory: the cache grows with every token, in every layer.
#
# ## Where does dropout go?
#
# Dropout goes on the weights, after the softmax, and only during training [[Srivastava et al.
# 2014](../docs/references.md#srivastava-2014)]. It scales up the weights that it keeps. Take the
# weights 0.1, 0.2, 0.3 and 0.4, and drop each with probability one half. What does a row sum to
# afterwards: always 1, one half, or something else each time?
#
# <details><summary>What do you expect?</summary>
#
# Something else each time, from 0, where dropout takes every weight, to 2, where it takes none.
# Dropout doubles the weights that it keeps, so that each weight is right on average, and so is the
# sum. PyTorch's class returns its weights after dropout, so in training they do not sum to 1.
#
# </details>

# %%
weights = torch.tensor([0.1, 0.2, 0.3, 0.4]).repeat(20_000, 1)  # (20000, 4)
dropped = F.dropout(weights, 0.5)                               # (20000, 4)
print("on average:", [round(w, 2) for w in dropped.mean(0).tolist()])
print("sums of some rows:", [round(total, 1) for total in dropped[:6].sum(-1).tolist()])
print("in evaluation:", F.dropout(weights, 0.5, training=False).equal(weights))

# %% [markdown]
# ## How are the matrices initialised?
#
# The initial values are chosen so that numbers neither grow nor shrink on their way through a
# matrix. The usual choice, called Xavier after Xavier Glorot, is the variance
# $2 / (\text{rows} + \text{columns})$ [[Glorot and Bengio
# 2010](../docs/references.md#glorot-2010)]. For a square matrix this is $1 / e$. PyTorch packs
# three square matrices into one of `(3 * e, e)`, and its entries get half of that variance.
# `torch.empty` holds whatever was in memory, so the class above passes it to `xavier_uniform_`.

# %%
e = 512
x = torch.randn(200, e)
matrices = {"Xavier, square": nn.init.xavier_uniform_(torch.empty(e, e)),
            "Xavier, packed": nn.init.xavier_uniform_(torch.empty(3 * e, e)),
            "nn.Linear": nn.Linear(e, e).weight}
print("standard deviations")
for name, matrix in matrices.items():
    queries = x @ matrix[:e].mT
    print(f"{name:14}  entries {matrix.std():.3f}, queries {queries.std():.2f}")

# %% [markdown]
# Xavier for each square matrix keeps the deviation of the inputs, 1.00, so that is the answer to
# give. The final class starts with the smaller numbers of the packed matrix, like PyTorch's class,
# which it replaces. The default of `nn.Linear` is smaller still. All three choices can be trained;
# say which one you use.
#
# ## What are grouped heads?
#
# The cache grows with the number of key and value heads. **Grouped-query attention** (GQA) lets
# several query heads share one key head and one value head: there are g such pairs instead of h
# [[Ainslie et al. 2023](../docs/references.md#ainslie-2023)]. With g = h this is ordinary
# attention, and with g = 1 it is called **multi-query attention** [[Shazeer
# 2019](../docs/references.md#shazeer-2019)].

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
# Neighbouring query heads share a pair, so the code repeats the pairs with `repeat_interleave`.
# `repeat` gives the same shape in another order: for 1 < g < h some heads get the wrong pair, as
# happens with the masks in [Masks in the
# wild](14_masks_in_the_wild.ipynb#heads-folded-into-the-batch).
#
# ## What the doctor says
#
# After a quarter of an hour you no longer see your own mistakes. So call the doctor, who has never seen
# this class:

# %%
from attention_doctor import adapters, examine

torch.manual_seed(0)
print(examine(WithMask(24, 4), embed_dim=24, num_heads=4))

# %% [markdown]
# The doctor finds nothing wrong. It has found the matrices by their names, and a right version with
# the same numbers gives the same output in all 9 situations. Two of them have no mask. Six have a
# mask that differs between samples, between queries or between both, and one blocks the future.
#
# The doctor calls the NaN of a fully masked row a convention, since PyTorch's class gives NaN, too,
# when it returns weights. The remedy has two halves, one before the softmax and one after. There
# `fully_masked` is `blocked.all(-1, keepdim=True)`, and `blocked` already has the shape
# `(b, 1, n, m)`.
#
# The tests under *not examined* do not apply here. This class has no dropout, for example, and
# *future* is for modules that hide the future by themselves. (*Cross* is the default kind.)
#
# The package has most of the table's mistakes ready, each in a copy of the final class. Does the doctor
# name them?

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
# The doctor names every one. (In place of the table's “keys mixed instead of values”,
# the package has a related mistake, in which keys and values are swapped.) The doctor calls a missing
# scale wrong here, and in the exercise below. In a class of your own design it would only remark
# on it.
#
# Now it is your turn.
#
# ## Exercises
#
# ### The words in order
#
# *Easy, 2 minutes.* Here are the eight words, and *mask*, in alphabetical order. Put them in an
# order that computes masked attention. The check runs the words in your order.

# %% tags=["exercise"]
order = ["mask", "merge", "mix", "project", "project", "scale", "score", "softmax", "split"]

# %%
from annotated_attention import exercises

exercises.from_memory.check_order(order)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which words need heads? These words stand between *split* and *merge*.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Scores come before weights, and weights come out of the softmax. A mask works on scores.
#
# </details>

# %% tags=["solution"] jupyter={"source_hidden": true}
order = ["project", "split", "score", "scale", "mask", "softmax", "mix", "merge", "project"]

exercises.from_memory.check_order(order)

# %% [markdown]
# ### A notebook or a file
#
# You can write the next exercise in the notebook of this chapter, or in a file `mine.py`. Your file
# needs this chapter's imports. Then call the doctor from a terminal:
#
# ```bash
# attention-doctor mine.py:MyAttention --embed-dim 24 --num-heads 4
# ```
#
# To show what the doctor says, this cell writes the short version into a file and runs the same
# command. Without a mask, only two of the nine situations are left:

# %%
import tempfile
from pathlib import Path

from attention_doctor.command import main

imports = "import math\nimport torch\nfrom torch import Tensor, nn\n\n\n"
with tempfile.TemporaryDirectory() as folder:
    mine = Path(folder, "mine.py")
    mine.write_text(imports + display.source(Attention).text)
    main([f"{mine}:Attention", "--embed-dim", "24", "--num-heads", "4"])

# %% [markdown]
# Start the clock when you are ready.

# %%
exercises.from_memory.start_clock()

# %% [markdown]
# ### Against the clock
#
# *Hard, 15 minutes.* Do not look back. Write batch-first multi-head attention with a mask. The
# doctor expects `(b, n, e)` back, alone or with the weights. Name the parameters as you like, give
# them initial values, and refuse a width that the heads do not divide.


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
# Remember the eight words: project, split, score, scale, softmax, mix, merge, project. The mask
# stands between scale and softmax, and once more after the softmax.
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
# Split: `unflatten(-1, (h, -1))`, then `transpose(1, 2)`. Merge: `transpose(1, 2)`, then `flatten(2)`.
# Mask: `masked_fill(blocked[:, None], -math.inf)`; after the softmax, fill the weights with 0.
#
# </details>

# %% tags=["solution"] jupyter={"source_hidden": true}
MyAttention = chapters.load("short_path").PlainAttention

exercises.from_memory.check_attention(MyAttention)
display.source(MyAttention)

# %% [markdown]
# ### Somebody else's answer
#
# *Medium, 10 minutes.* This class took ten minutes to write. It runs, and it returns the right
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
# You can write multi-head attention from eight words, answer the seven questions that follow, and
# let the doctor test what you wrote.
#
# > **In short.** Project, split, score, scale, softmax, mix, merge, project:
# > $\mathrm{softmax}(Q_i K_i^\top / \sqrt d)\, V_i$ for every head, side by side, times $W_O$.
# >
# > Tokens `(b, n, e)`, heads `(b, h, n, d)`, scores and weights `(b, h, n, m)`.
# >
# > ```python
# > pairs = ((query, w_q), (key, w_k), (value, w_v))
# > split = ((x @ w).unflatten(-1, (h, -1)) for x, w in pairs)
# > q, k, v = (x.transpose(1, 2) for x in split)
# > weights = (q @ k.mT / math.sqrt(d)).softmax(-1)
# > output = (weights @ v).transpose(1, 2).flatten(2) @ w_o
# > ```
# >
# > Say what True means in your mask, and what a fully masked row gets. Divide by $\sqrt d$, transpose
# > before you merge, and test with sizes that all differ.
#
# The [cheat sheet](cheat_sheet.ipynb) has all this on one page, and the
# [package](../docs/package/index.md) has the class to use. The next chapters show what today's
# models have changed, beginning with [positions](18_positions.ipynb).
