# %% [markdown]
# # Published code
#
# *What does the code that people copy really compute?*
#
# *20 minutes and 2 of exercises. Afterwards you can read somebody's published design and see what
# it really computes.*
#
# A recipe is copied onto a card, and the card is copied again. On the third card the salt is
# missing. It still reads like a recipe, until somebody cooks from it. Code for multi-head attention
# is passed on in the same way.
#
# Here you cook from seven of these cards. Of most, you see the lines that matter, shortened and
# renamed, with their defects left in. Three of the seven do not run today, and all have defects
# that raise no error; a table [at the end](#cell-id=what-they-teach) lists both kinds. One test then
# compares all repaired designs with the final class of [Multi-head
# attention](07_multihead_attention.ipynb).

# %% tags=["hide-input"]
from annotated_book import display

display.chapter_map(
    "project in", "split", "score", "mask", "softmax", "mix", "merge", "project out"
)

# %% [markdown]
# ## Seven designs
#
# | design | the idea | published in |
# |---|---|---|
# | [Module per head](#cell-id=module-per-head) | a list of h small attentions | a blog post [[post](../docs/references.md#post-in-two-versions)] |
# | [Wide projection](#cell-id=wide-projection) | one matrix holds all heads | its second version |
# | [Shared projection](#cell-id=shared-projection) | one small matrix for all heads | an introduction with `einsum` [[Persson](../docs/references.md#persson)] |
# | [Sequence first](#cell-id=sequence-first) | a method for the scores | an annotated page [[labml](../docs/references.md#annotated-page)] |
# | [Weighted scores](#cell-id=weighted-scores) | factors on the scores | a collection of paper code [[collection](../docs/references.md#paper-code-collection)] |
# | [No projection](#cell-id=no-projection) | slices of the embedding itself | the same collection |
# | [Packed projection](#cell-id=packed-projection) | PyTorch's source, step by step | a long article [[article](../docs/references.md#article-through-the-source)] |
#
# [The references](../docs/references.md) say which version of each we read. The post and the article
# are known only from copies without an address, which is how such code travels. Some defects have
# been reported or repaired since.
#
# `annotated_book.published` holds the repaired versions. They keep the layout, the order of
# arguments and the mask of the published classes.

# %%
import math
from functools import partial

import torch
from torch import Tensor, nn

from annotated_attention import MultiheadAttention
from annotated_book import published
from annotated_book.published import DESIGNS


def attempt(call) -> None:
    """Call, and print the first line of the error that must come."""
    try:
        call()
    except Exception as error:
        said = str(error).splitlines() or ["(no message)"]
        print(f"{type(error).__name__}: {said[0][:70]}")
    else:
        raise AssertionError("it runs")


# %% [markdown] name="module-per-head"
# ## Module per head
#
# The post writes out the paper's formula word for word [[Vaswani et al.
# 2017](../docs/references.md#vaswani-2017), section 3.2.2]. A head is a module with three small
# projections, the heads are a list, and one more projection follows. As printed, the constructor
# stops, because it asks for `torch.ModuleList` instead of `nn.ModuleList`. Each head also gets its
# two widths, e and d, in the wrong order. With both mended, only a fully masked row goes wrong: its
# output is NaN.

# %% [markdown] name="wide-projection"
# ## Wide projection
#
# In its second version, one wide matrix makes the queries of all heads, and two more make keys and
# values. The results are cut into heads afterwards: this is [the reshape
# trick](04_reshape_trick.ipynb), for self-attention only. The file begins with `import
# torch.nn.Functional`, but the module's name has a lowercase f. It multiplies with `torch.bmm`,
# which takes three axes, and the tensors now have four. And its `forward` uses `d_model`, a name
# that only the constructor knows.
#
# Mend these, write the products as `@`, and the code runs. Two defects are left, and an error
# does not always tell you. A fully masked row is NaN, as before. And the post still passes masks of shape
# `(b, n, n)`, one matrix for each sample, to a class whose scores are `(b, h, n, n)` now.
# Broadcasting aligns axes from the right, so the samples of the mask meet the *heads* of the scores.
# A single sample comes out right, and most other sizes crash. But try two samples and two heads.
# Sample 0 should see four keys, and sample 1 two.

# %%
q = torch.randn(2, 2, 5, 6)    # (b, h, n, d)
allowed = torch.ones(2, 5, 5)  # (b, n, n)
allowed[0, :, 4:] = allowed[1, :, 2:] = 0
scores = q @ q.mT / math.sqrt(6)  # (b, h, n, n)
weights = scores.masked_fill(allowed == 0, -math.inf).softmax(-1)
seen = (weights[:, :, 0] > 0).sum(-1)  # (b, h)
display.show(
    seen.tolist(), ["sample 0", "sample 1"], ["head 0", "head 1"], corner="keys seen by"
)

# %% tags=["proof"]
assert seen.tolist() == [[4, 2], [4, 2]]
print("✓ Each head has the mask of one sample, and uses it for both.")

# %% [markdown]
# Every row sums to 1, but head i of every sample gets the mask of sample i, a leak as in [Masks in
# the wild](16_masks_in_the_wild.ipynb#cell-id=the-shape-to-pass).
#
# **The repair.** The class takes masks of `(b, h, n, n)`, or with axes of size 1, and refuses those
# of `(b, n, n)`: their caller writes `mask[:, None]`.

# %% [markdown] name="shared-projection"
# ## Shared projection
#
# **The idea.** Cut the embedding into h slices first, and then project every slice with the *same*
# small matrix. `einsum` names each axis, so no transpose is needed
# [[Persson](../docs/references.md#persson)]. Values come first among the arguments, and 0 in the
# mask means blocked.


# %%
def slice_scores(q: Tensor, k: Tensor, mask: Tensor | None, embed_size: int) -> Tensor:
    """Compute the scores as published.

    Args:
        q: (b, n, h, d), projected slices.
        k: (b, m, h, d), projected slices.
    """
    scores = torch.einsum("bnhd,bmhd->bhnm", q, k)  # (b, h, n, m)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e20)
    return scores / math.sqrt(embed_size)  # (b, h, n, m)


# %% [markdown]
# **What happens.** Persson's introduction prints the formula of multi-head attention above it, and
# the code computes a different function. No head sees another head's slice before the output
# projection. Cut the identity matrix into slices and project them, and you get the projection as one
# wide matrix.

# %%
torch.manual_seed(0)
small = nn.Linear(2, 2, bias=False)  # for all three heads
print(small(torch.eye(6).unflatten(-1, (3, 2))).flatten(1).detach().numpy().round(2))
shared, full = (
    sum(p.numel() for p in kind(256, 8).parameters())
    for kind in (published.SharedProjection, MultiheadAttention)
)
print(f"parameters at e = 256 and h = 8: {shared:,} of {full:,}, {shared / full:.0%}")

# %% [markdown]
# The same block stands along the diagonal, with zeros everywhere else. Multi-head attention has no
# such zeros.
#
# There is a second slip. The formula divides the scores by $\sqrt{d_k}$, where $d_k$ is the width
# of one head. The code divides by $\sqrt e$, where e is the width of the model. Let e be 256, and h
# be 8. Are the scores too small by a factor of 8, by a factor of about 2.83, or not at all, because
# the weights are learned anyway?
#
# <details><summary>What do you expect?</summary>
#
# By about 2.83, which is $\sqrt{e / d} = \sqrt h$. The softmax over scores that are too small is too
# flat, so every query starts out looking at everything. Training can undo this by making queries and
# keys larger, but then it has to learn what the right constant would have given for free.
#
# </details>

# %%
q, k = torch.randn(1, 500, 1, 32), torch.randn(1, 500, 1, 32)  # (1, 500, 1, 32)
by_e = slice_scores(q, k, None, 256).std()
by_d = slice_scores(q, k, None, 32).std()
print(f"standard deviation of the scores: {by_e:.2f} by √e, {by_d:.2f} by √d")
print(f"too small by {by_d / by_e:.2f}")

# %% [markdown]
# A third slip shows only in a fully masked row. Blocked scores are filled with -1e20, a finite
# number, instead of $-\infty$. What happens to such a row in three dtypes?

# %%
nobody = torch.zeros(1, 1, 1, 500)
for dtype in (torch.float32, torch.bfloat16):
    weights = slice_scores(q.to(dtype), k.to(dtype), nobody, 32).softmax(-1)
    print(f"{dtype}: all weights are {weights.unique().item():.3f}")
attempt(lambda: slice_scores(q.half(), k.half(), nobody, 32))

# %% [markdown]
# All scores of the row are equal, so its output is the mean of exactly what should be hidden, and it
# looks healthy. In float16 every masked call stops, whatever the mask, because -1e20 is out of
# range. [Masks in the wild](16_masks_in_the_wild.ipynb#cell-id=fills-in-half-precision) has more on fills.
#
# **The repair.** Sharing a projection is a legitimate design, so the sharing stays. The divisor
# becomes $\sqrt d$. Two helpers appear in most repairs: `read_mask` refuses masks that do not fit
# and inverts the others where needed, so that True means blocked, and `masked_softmax` gives zeros
# to fully masked rows.

# %% tags=["hide-input"]
display.excerpts(
    published=(slice_scores, "masked_fill", "return"),
    repaired=(
        published.SharedProjection.forward,
        "scores = scores",
        "read_mask",
        "masked_softmax",
    ),
)

# %% [markdown] name="sequence-first"
# ## Sequence first
#
# **The idea.** The token axis comes first, `(n, b, e)`, and all inputs are passed by keyword. A
# method of its own computes the scores, `get_scores`, which a subclass may override, as relative
# attention does [[labml](../docs/references.md#annotated-page)]. The page puts notes beside code,
# like *The Annotated Transformer* [[Rush 2018](../docs/references.md#rush-2018)] [[Huang et al.
# 2022](../docs/references.md#huang-2022)].
#
# The mask is `(n, m, b)`, 1 means allowed, and the first axis may have size 1. The scores are
# `(n, m, b, h)`, so the softmax runs over axis 1, the keys. The fill is finite again. The listing is
# shortened: it computes the scores in `forward`.


# %%
class TokensFirst(nn.Module):
    def __init__(self, heads: int, d_model: int, bias: bool = True) -> None:
        super().__init__()
        self.cut = (heads, d_model // heads)
        self.query, self.key = (nn.Linear(d_model, d_model, bias) for _ in range(2))
        self.value, self.output = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def forward(self, *, query, key, value, mask=None):
        pairs = ((self.query, query), (self.key, key), (self.value, value))
        q, k, v = (to(x).unflatten(-1, self.cut) for to, x in pairs)
        scores = torch.einsum("nbhd,mbhd->nmbh", q, k) / math.sqrt(self.cut[1])
        if mask is not None:
            assert mask.shape[0] in (1, mask.shape[1]), f"refused: {tuple(mask.shape)}"
            scores = scores.masked_fill(mask[..., None] == 0, -1e9)
        mixed = torch.einsum("nmbh,mbhd->nbhd", scores.softmax(1), v)
        return self.output(mixed.flatten(2))  # (n, b, e)


# %% [markdown]
# **What happens.** As published, `forward` also hands the weights to a tracker, whose package no
# longer has the function, so every call fails.
#
# A valid mask can crash it, too. The check compares the size of the mask's first axis with the size
# of its *second*, so a mask with a row for each query is refused whenever n ≠ m and n > 1. The
# authors have since repaired this check, and changed the fill. And the option `bias=False` does not
# do what it says.

# %%
annotated = TokensFirst(4, 24, bias=False)
three, five = torch.randn(3, 2, 24), torch.randn(5, 2, 24)  # (3, 2, 24), (5, 2, 24)
for sizes in ((5, 5, 2), (1, 5, 2)):
    annotated(query=five, key=five, value=five, mask=torch.ones(sizes))
    print(sizes, "accepted")
attempt(lambda: annotated(query=three, key=five, value=five, mask=torch.ones(3, 5, 2)))
names = [name for name, _ in annotated.named_parameters() if name.endswith("bias")]
print("with bias=False:", ", ".join(names))

# %% [markdown]
# **The repair.** The mask's sizes are compared with the numbers of queries and keys, a fully masked
# row gets zeros, and the option `bias` is gone.

# %% [markdown] name="weighted-scores"
# ## Weighted scores
#
# **The idea.** Queries and keys may have any width $d_k$ in each head, and values any $d_v$.
# Factors from outside multiply the scores before the softmax
# [[collection](../docs/references.md#paper-code-collection)]. The formula calls the factors of head
# i $A_i$, and ⊙ multiplies element by element:
#
# $$\mathrm{head}_i = \mathrm{softmax}\!\left(A_i \odot \frac{Q W^Q_i (K W^K_i)^\top}{\sqrt{d_k}}\right) V
# W^V_i$$
#
# True means *blocked* here.


# %%
def multiplied(q, k, v, attention_mask, attention_weights) -> Tensor:
    """Attend with factors on the scores, as published.

    Args:
        q: (b, h, n, d), projected.
        k: (b, h, d, m), projected, its last two axes exchanged.
        v: (b, h, m, d_v), projected.
    """
    scores = q @ k / math.sqrt(q.size(-1))  # (b, h, n, m)
    if attention_weights is not None:
        scores = scores * attention_weights  # (b, h, n, m)
    if attention_mask is not None:
        scores = scores.masked_fill(attention_mask, -math.inf)
    return scores.softmax(-1) @ v  # (b, h, n, d_v)


# %% [markdown]
# **What happens.** The name `attention_weights` invites users to pass a factor of 0 for a key that
# should not be seen. Take a query whose scores are -3 and 1, and whose weights are 0.02 and 0.98.
# With a factor of 0, what weight does the first key get: none, 0.02 as before, or more?
#
# <details><summary>What do you expect?</summary>
#
# More: 0.27. The factor multiplies the *score*, and a score of 0 is larger than one of -3. To block a
# key, its score must become $-\infty$, and a factor that makes a positive score $-\infty$ makes a
# negative one $+\infty$.
#
# </details>
#
# With d = 1 and a query of 1, the scores equal the two keys. The values are the identity matrix, so
# the output equals the weights.

# %%
query, values = torch.ones(1, 1, 1, 1), torch.eye(2)[None, None]
keys = torch.tensor([-3.0, 1.0])[None, None, None]  # (1, 1, 1, 2)
for factors in (None, torch.tensor([0.0, 1.0])):
    weights = multiplied(query, keys, values, None, factors)
    print("factors", factors, "weights", [round(x, 2) for x in weights.flatten().tolist()])
nothing = multiplied(query, keys, values, torch.ones(1, 2, dtype=torch.bool), None)
print("fully masked:", nothing.flatten().tolist())

# %% [markdown]
# With $-\infty$ and no second fill, a fully masked row is NaN, and not a plausible mean.
#
# The start is a third defect. The entries of the matrices are drawn with a standard deviation of
# 0.001<!-- setting -->, whatever the width of the model. Send 49 tokens of variance 1 through the
# projections, once with Xavier's initial parameters and once with these. Look at the queries and
# keys of one head, 64 wide.

# %%
torch.manual_seed(0)
x = torch.randn(49, 512)
small = partial(nn.init.normal_, std=0.001)
rows = {}
for name, start in (("Xavier", nn.init.xavier_uniform_), ("0.001", small)):
    q, k = ((x @ start(torch.empty(512, 512)).mT)[:, :64] for _ in range(2))  # (49, 64)
    weights = (q @ k.mT / 8).softmax(-1)                                      # (49, 49)
    rows[name] = [q.std(), weights.max(), 1 / 49]
columns = ["queries deviate by", "largest weight", "an even share"]
display.show(rows, columns=columns, decimals=3, corner="initialised by")

# %% [markdown]
# With the small matrices, all keys get nearly the same weight, and training first has to undo this.
#
# **The repair.** The docstring now says that a factor of 0 does not block. A fully masked row gets
# zeros, and the initial parameters are Xavier's.

# %% [markdown] name="no-projection"
# ## No projection
#
# **The idea.** The same collection has a version with no projection at all: the embedding itself is
# cut into heads, `queries.unflatten(-1, (h, -1))`, and only the output is projected. Head i always
# compares slice i of the features, and training this layer cannot change that.
#
# **What happens.** It, too, can multiply its scores by factors, and returns NaN for a fully masked
# row. Only the output has a matrix here, so the small start shrinks the output and not the weights.
#
# **The repair** is the same.

# %% [markdown] name="packed-projection"
# ## Packed projection
#
# **The idea.** A long article takes PyTorch's own source apart and puts it back together
# [[article](../docs/references.md#article-through-the-source)]. One packed matrix projects queries,
# keys and values, and that works; the trouble is in the masks. Samples and heads are folded into one
# axis of length b · h, as in [Masks in the
# wild](16_masks_in_the_wild.ipynb#cell-id=heads-folded-into-the-batch).
#
# Both masks are merged, with True for blocked, and -1e28 is added to the scores that they block,
# again a finite number. In float32, -1e28 plus a score of 3 is still -1e28. Float16 stops here, too.


# %%
def added_masks(key_padding_mask: Tensor, attn_mask: Tensor, h: int, dtype) -> Tensor:
    """Merge both masks as published; True means blocked.

    Args:
        key_padding_mask: (b, m), boolean.
        attn_mask: (n, m) or (b * h, n, m), boolean.
    """
    assert key_padding_mask is not None
    padding = key_padding_mask[:, None, None].expand(-1, h, -1, -1).flatten(0, 1)
    blocked = padding | attn_mask
    return torch.zeros(blocked.shape, dtype=dtype).masked_fill(blocked, -1e28)


def folded(q: Tensor, k: Tensor, v: Tensor, added: Tensor) -> tuple[Tensor, Tensor]:
    """Attend as published, in slices (r, n, d) with r = b * h."""
    weights = (q @ k.mT / math.sqrt(q.size(-1)) + added).softmax(-1)  # (r, n, m)
    return weights @ v, weights


# %% [markdown]
# **What happens.** Neither mask may be left out. An `assert` demands the padding mask, and the
# attention mask is merged without a check for None. With `bias=False`, the constructor crashes,
# since it still sets the output's bias to zero. And the weights are documented as `(b, h, n, m)`,
# but they come out folded.

# %%
b, n, h, d = 2, 3, 4, 6
no_padding = torch.zeros(b, n, dtype=torch.bool)    # (b, n)
none_blocked = torch.zeros(n, n, dtype=torch.bool)  # (n, n)
attempt(lambda: added_masks(None, none_blocked, h, torch.float32))
attempt(lambda: added_masks(no_padding, None, h, torch.float32))
q = torch.randn(b * h, n, d)  # (b * h, n, d)
_, weights = folded(q, q, q, added_masks(no_padding, none_blocked, h, q.dtype))
print("the weights:", tuple(weights.shape))

# %% [markdown]
# The article's shortest version takes its parameters from `torch.empty` and never sets them.
#
# **The repair.** Either mask may be None, a fully masked row gets zeros, and the weights are
# unfolded. `masked_softmax` takes the additive mask as its argument `bias`. The lines stand in longer
# methods: `scores` are the scaled products, `query` is an input, and `b` the number of samples.

# %% tags=["hide-input"]
display.excerpts(
    published=(added_masks, "assert", "return", folded, "weights ="),
    repaired=(
        published.PackedProjection.additive_mask,
        "return torch",
        published.PackedProjection.forward,
        "masked_softmax",
        "unflatten",
    ),
)

# %% [markdown]
# ## One test for all seven
#
# The last test is *parity*, as in [Testing
# attention](17_testing_attention.ipynb#cell-id=parity-the-same-parameters-the-same-result): the same
# parameters, the same result. For seven layouts and masks it needs two methods. `design.pair(e, h)`
# makes a module of the design, and one of the final class with the same parameters: for *No
# projection* with identity matrices, for *Shared projection* with the block-diagonal one.
# `design.call` takes batch-first tensors, and a mask in which True means blocked, and calls the
# module in the design's own way.


# %% tags=["proof"]
def compare(name: str, b=2, n=3, m=5, h=4, d=6) -> None:
    """Compare a repaired design with the final class: outputs and gradients."""
    design = DESIGNS[name]
    module, reference = (x.double() for x in design.pair(h * d, h))
    double = {"dtype": torch.float64, "requires_grad": True}
    query, key, value = (torch.randn(b, k, h * d, **double) for k in (n, m, m))
    inputs = [query] * 3 if design.kind == "self" else [query, key, value]
    blocked = torch.rand(b, n, inputs[1].size(1)) < 0.4
    blocked[..., 0], blocked[1, 2] = False, True
    output = design.call(module, *inputs, blocked)  # (b, n, h * d)
    expected, _ = reference(*inputs, attn_mask=blocked.repeat_interleave(h, 0))
    torch.testing.assert_close(output, expected)
    sums = (x.square().sum() for x in (output, expected))
    mine, theirs = (torch.autograd.grad(x, inputs) for x in sums)
    torch.testing.assert_close(mine, theirs)


torch.manual_seed(0)
for name in DESIGNS:
    compare(name)
print("✓ All seven, repaired, give what the final class gives: outputs and gradients.")

# %%
rows = {name: [x.layout, x.mask_axes, x.true_means] for name, x in DESIGNS.items()}
display.show(rows, columns=["layout", "mask", "True means"])

# %% [markdown]
# All seven agree (without factors, and with $d_k = d_v = e / h$), in spite of two layouts, four
# shapes of masks (in self-attention, m is n), and two meanings of True.

# %% [markdown] name="what-they-teach"
# ## What they teach
#
# | design | stops | goes on, and is wrong |
# |---|---|---|
# | Module per head | `torch.ModuleList`, widths exchanged | NaN in a fully masked row |
# | Wide projection | `Functional`, `bmm`, `d_model`, most masks | NaN in a fully masked row and, with b = h, masks of other samples |
# | Shared projection | a mask in float16 | another function than its formula (kept), $\sqrt e$, a mean over hidden keys |
# | Sequence first | the tracker, masks with n ≠ m and n > 1, or in float16 | biases in spite of `bias=False`, the same mean |
# | Weighted scores | | a factor of 0 does not block, NaN in a fully masked row, a start that is far too small |
# | No projection | | the same three |
# | Packed projection | a mask left out, `bias=False`, float16 | folded weights, the same mean, parameters left uninitialised |
#
# Say what True means in the name of a mask, `blocked` or `allowed`. Decide what a fully masked row
# returns, and test in float16. Check the initial parameters, too.
#
# ## Exercises
#
# ### The small projection, made wide
#
# *Easy, 2 minutes.* In the comparison, a shared projection becomes one wide matrix: write the
# function that makes it. `block`, `(d, d)`, is the weight of the small `nn.Linear`. Make the weight
# of one wide `nn.Linear`, `(h · d, h · d)`, that does the same to all heads at once.
# `torch.block_diag` takes any number of matrices. Gradients must reach the block.


# %% tags=["exercise"]
def widen(block: Tensor, num_heads: int) -> Tensor:
    """Make one wide weight of a block that all heads share."""
    return None  # your lines here


# %%
from annotated_book import exercises

exercises.published_code.check_widen(widen)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Look at the matrix printed in [Shared projection](#cell-id=shared-projection). What is outside the blocks?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Every head has the same block, and a list may hold it several times.
#
# </details>


# %% tags=["solution"]
def widen(block: Tensor, num_heads: int) -> Tensor:
    """Make one wide weight of a block that all heads share.

    Args:
        block: (d, d), as in a linear layer.
        num_heads: how many share it.
    """
    return torch.block_diag(*[block] * num_heads)  # (num_heads * d, num_heads * d)


exercises.published_code.check_widen.folded(widen)

# %% [markdown]
# ## What you have now
#
# You have run the lines that matter of most designs. Repaired, all seven agree with the final class.
#
# > **In short.** Repaired, all seven compute a version of $\mathrm{softmax}(Q_i K_i^\top / \sqrt d)\, V_i$
# > for each of h heads, and apply one projection at the end.
# >
# > Layouts `(b, n, e)` and `(n, b, e)`; masks `(b, n, m)`, `(n, m, b)`, `(b, h, n, m)` and
# > `(b * h, n, m)`; True means allowed in four designs and blocked in three.
# >
# > ```python
# > design = published.DESIGNS["sequence first"]
# > # the same parameters for both; batch-first, True = blocked
# > module, final_class = design.pair(embed_dim, num_heads)
# > output = design.call(module, query, key, value, blocked)
# > ```
# >
# > Look for defects that keep every shape: a
# > wrong divisor, a mask on the wrong axis, a mean over hidden keys. To bring them out, use sizes
# > that all differ, a fully masked row, and a comparison with a class that you trust.
#
# One chapter is left for the class: [write it from memory](19_from_memory.ipynb).
