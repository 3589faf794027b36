# %% [markdown]
# # Published code
#
# *What does the code that people copy really compute?*
#
# A recipe is copied onto a card, and the card is copied again. On the third card the salt is
# missing. It still reads like a recipe, and nobody notices until somebody cooks from it. Code for
# multi-head attention is passed on in the same way, from blog post to repository to blog post.
#
# Here you cook from seven of these cards. For each design you run the published code, shortened and
# renamed, with most of its defects left in. Then you see the lines that matter and their repair. At
# the end, one test compares all repaired designs with the final class of [Multi-head
# attention](07_multihead_attention.ipynb).
#
# Two of the seven do not run as printed, and a third needs a function that another package no
# longer has. Once all seven run, four return something other than what they promise.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map(
    "project in", "split", "score", "mask", "softmax", "mix", "merge", "project out"
)

# %% [markdown]
# ## Seven designs
#
# | design | the idea | published in |
# |---|---|---|
# | [Module per head](#module-per-head) | a list of h small attentions | a blog post [[post](../docs/references.md#post-in-two-versions)] |
# | [Wide projection](#wide-projection) | one matrix holds all heads | its second version |
# | [Shared projection](#shared-projection) | one small matrix for all heads | an introduction with `einsum` [[Persson](../docs/references.md#persson)] |
# | [Sequence first](#sequence-first) | a method for the scores | an annotated page [[labml](../docs/references.md#annotated-page)] |
# | [Weighted scores](#weighted-scores) | factors on the scores | a collection of paper code [[collection](../docs/references.md#paper-code-collection)] |
# | [No projection](#no-projection) | slices of the embedding itself | the same collection |
# | [Packed projection](#packed-projection) | PyTorch's source, step by step | a long article [[article](../docs/references.md#article-through-the-source)] |
#
# [The references](../docs/references.md) say which version of each we read; the post and the
# article are known only from copies that give no address. Some of the defects have been reported
# to their authors, or repaired in the meantime.
#
# The package `annotated_attention.published` has a repaired version of each design. Each version
# keeps its source's layout, order of arguments, and meaning of True in a mask. All but the wide
# projection also keep the shape of the mask. The table lists all seven.

# %% jupyter={"source_hidden": true}
import contextlib
import importlib
import math
import textwrap
from functools import partial

import torch
import torch.nn.functional as F
from IPython.display import Markdown
from torch import Tensor, nn

from annotated_attention import MultiheadAttention, chapters, published
from annotated_attention.published import DESIGNS

one = chapters.load("01_one_head")

lines = ["| design | inputs | mask | True means |", "|---|---|---|---|"]
for name, design in DESIGNS.items():
    lines.append(f"| {name} | `{design.layout}` | `{design.mask}` | {design.true_means} |")
Markdown("\n".join(lines))

# %% [markdown]
# Only the two designs from the same collection agree in every column.
#
# ## How to read a section
#
# Every section has four parts: the idea, the published code, what happens when it runs, and the
# repair, with the few lines that matter before and after it. Each defect gets a severity, listed here
# from most to least serious:
#
# - Code that **computes something else** returns results that differ from what its formula, its text
#   or its options promise. You may never notice.
# - Code that **crashes** stops with an error on valid inputs, or too late to say what is wrong with
#   invalid ones.
# - Code that **wastes** costs time, memory or parameters for nothing.
# - **Style** means that the code is right, but something in it misleads the reader.
#
# Two helpers, folded below, collect the defects for [the table at the end](#the-table). A block under
# `crashes` must stop with the given error. `note` checks a defect and prints it. If a defect ever went
# away, this page would no longer build.

# %% jupyter={"source_hidden": true}
SEVERITIES = ("computes something else", "crashes", "wastes", "style", "convention")
WRONG, CRASH, WASTE, STYLE, CONVENTION = SEVERITIES
FOUND: list[tuple[str, str, str]] = []  # severity, what, design


def note(design: str, severity: str, what: str, seen: object, sure: bool) -> None:
    """Print what was seen, make sure of it, and keep it for the table."""
    assert sure, f"{design}: {what}? {seen}"
    FOUND.append((severity, what, design))
    print(f"{severity}: {what}\n    {textwrap.shorten(str(seen), 84, placeholder=' …')}")


@contextlib.contextmanager
def crashes(design: str, what: str, error: type[Exception]):
    """Expect this error from the block, and note the error's words."""
    try:
        yield
    except error as reason:
        said = f"{type(reason).__name__}: {str(reason) or '(no message)'}"
        note(design, CRASH, what, said, sure=True)
    else:
        raise AssertionError(f"{design}: {what}? It runs.")


# %% jupyter={"source_hidden": true}
def count(module: nn.Module) -> int:
    """Count a module's parameters."""
    return sum(parameter.numel() for parameter in module.parameters())


# %% [markdown]
# ## Module per head
#
# **The idea.** Write out the paper's formula word for word [[Vaswani et al.
# 2017](../docs/references.md#vaswani-2017), section 3.2.2]. A head is a module with three small
# projections, the heads are a list, and one more projection follows.
#
# **The lines.** `look_up` attends in one head; in its mask, 0 means blocked. `Head` takes the narrow
# width first: `Head(head_dim, embed_dim)`. Look at how the list calls it.


# %%
def look_up(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Attend in one head; 0 in the mask means blocked.

    Args:
        query: (b, n, d), projected.
        key: (b, m, d), projected.
        value: (b, m, d), projected.
    """
    scores = torch.bmm(query, key.mT) / math.sqrt(query.size(-1))  # (b, n, m)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -math.inf)
    return torch.bmm(scores.softmax(-1), value)                    # (b, n, d)


class Head(nn.Module):
    def __init__(self, head_dim: int, embed_dim: int) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(embed_dim, head_dim) for _ in range(3))

    def forward(self, query, key, value, mask):
        return look_up(self.q(query), self.k(key), self.v(value), mask)


# %%
class ListOfHeads(nn.Module):
    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        e, d = embed_dim, embed_dim // num_heads
        self.heads = torch.ModuleList([Head(e, d) for _ in range(num_heads)])
        self.output = nn.Linear(e, e)

    def forward(self, query, key, value, mask):
        heads = [head(query, key, value, mask) for head in self.heads]
        return self.output(torch.cat(heads, -1))


# %% [markdown]
# **What happens.** The constructor fails at once, because there is no `torch.ModuleList`. The list
# also passes the wide width first, `Head(e, d)`, and the first call of such a head fails.

# %%
torch.manual_seed(0)
x = torch.randn(2, 5, 24)  # (2, 5, 24)
with crashes("module per head", "torch.ModuleList", AttributeError):
    ListOfHeads(24, 4)
with crashes("module per head", "widths swapped", RuntimeError):
    Head(24, 6)(x, x, x, None)

# %% [markdown]
# **The repair.** The list becomes an `nn.ModuleList`, a head's constructor takes the
# widths in the order in which the list passes them, and the mask may be left out. Two helpers
# appear in most of the repairs below: `read_mask` refuses masks that do not fit and converts the
# others, so that True means blocked, and `masked_softmax` gives zeros to fully masked rows.

# %% tags=["hide-input"]
display.excerpts(
    published=(ListOfHeads.__init__, "ModuleList", ListOfHeads.forward, "heads = [",
               look_up, "softmax"),
    repaired=(published.ModulePerHead.__init__, "ModuleList",
              published.ModulePerHead.forward, "heads = [",
              published.module_per_head.Head.forward, "masked_softmax"))

# %% [markdown]
# <!-- deeper: More on the module per head -->
# ### Going deeper: More on the module per head
#
# `Mended` has both mistakes mended. A plain Python list in the place of `nn.ModuleList` also runs, but
# then no parameter of a head is trained, saved or moved to another device:


# %%
class Mended(ListOfHeads):
    collect = nn.ModuleList

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        nn.Module.__init__(self)
        e, d = embed_dim, embed_dim // num_heads
        self.heads = self.collect(Head(d, e) for _ in range(num_heads))
        self.output = nn.Linear(e, e)


class PlainList(Mended):
    collect = list


whole, plain = Mended(24, 4), PlainList(24, 4)
assert plain(x, x, x, None).shape == x.shape
assert count(plain) == count(plain.output)
print(f"{count(whole):,} parameters; with a list {count(plain):,}:", [*plain.state_dict()])

# %% [markdown]
# The post writes Q for the input in one formula, and for $X W_Q$ in the other. If you insert one into
# the other, you project twice. Its last formula leaves out $W_O$, which its code applies.

# %%
once = whole(x, x, x, None)                                           # (2, 5, 24)
twice = whole(nn.Linear(24, 24, bias=False)(x), x, x, None)           # (2, 5, 24)
heads = torch.cat([head(x, x, x, None) for head in whole.heads], -1)  # (2, 5, 24)
readings = {"Q for the input and for X W_Q": twice, "formula without W_O": heads}
for what, other in readings.items():
    off = (other - once).abs().max()
    note("module per head", STYLE, what, f"taken literally, off by {off:.2f}", off > 0.01)

# %% [markdown]
# The post also assumes that inputs are as wide as the model. A single head does not need that, and
# the final class takes other widths as `kdim` and `vdim`:

# %%
narrow = torch.randn(2, 5, 20)  # (2, 5, 20)
final = MultiheadAttention(24, 4, kdim=20, vdim=20, batch_first=True)
print("one head:", tuple(Head(6, 20)(narrow, narrow, narrow, None).shape))
print("final class:", tuple(final(x, narrow, narrow)[0].shape))

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Wide projection
#
# **The idea.** One wide matrix makes the queries of all heads, and the result is cut into heads
# afterwards. Keys and values each have such a matrix, too. This is [the reshape
# trick](04_reshape_trick.ipynb), for self-attention only: there is a single input.
#
# **The lines.** Together, `weights` and `forward` are the published method, but for the name
# `d_model`, which comes below. It still multiplies with `torch.bmm`, although the tensors now have
# four axes.


# %%
class OneInput(nn.Module):
    # An attribute of ours, which you replace below.
    product = staticmethod(torch.bmm)

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.heads = (num_heads, d_model // num_heads)
        self.q, self.k, self.v, self.out = (nn.Linear(d_model, d_model) for _ in range(4))

    def split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], *self.heads).transpose(1, 2)

    def weights(self, x: Tensor, mask: Tensor | None) -> Tensor:
        q, k = self.split(self.q(x)), self.split(self.k(x))
        scores = self.product(q, k.mT) / math.sqrt(q.size(-1))
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -math.inf)
        return scores.softmax(-1)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        mixed = self.product(self.weights(x, mask), self.split(self.v(x)))
        return self.out(mixed.transpose(1, 2).contiguous().view(x.shape))


# %% [markdown]
# **What happens.** The file begins with `import torch.nn.Functional`, but the module's name has a
# lowercase f. `torch.bmm` takes three axes, not four. And the post's `forward` uses `d_model`, a name
# that only the constructor knows; `FreeName` below does the same.


# %%
class WithMatmul(OneInput):
    product = staticmethod(torch.matmul)


with crashes("wide projection", "import torch.nn.Functional", ModuleNotFoundError):
    importlib.import_module("torch.nn.Functional")
with crashes("wide projection", "bmm on four axes", RuntimeError):
    OneInput(24, 4)(x)
with crashes("wide projection", "d_model, unknown in forward", NameError):

    class FreeName(WithMatmul):
        def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
            mixed = self.product(self.weights(x, mask), self.split(self.v(x)))
            return self.out(mixed.transpose(1, 2).reshape(*x.shape[:2], d_model))

    FreeName(24, 4)(x)

# %% [markdown]
# The next defect can be silent. The post still passes a mask of shape `(b, n, n)`, one matrix for
# each sample. But now the scores are `(b, h, n, n)`. Broadcasting aligns axes from the right, so
# the mask's axis of samples meets the scores' axis of *heads*. With two samples and four heads,
# that is an error. With two samples and two heads, the shapes fit.
#
# The batch in the cell holds the whole sentence, and *the milk was sweet* with four places of
# padding. The figure below shows how much weight each key gets in each head, averaged over all
# eight queries.

# %%
six = chapters.load("06_masks")

rows = [one.EMBEDDINGS, one.embed(six.SHORT)]
pair = nn.utils.rnn.pad_sequence(rows, batch_first=True)        # (2, 8, 4)
real = torch.arange(8) < torch.tensor([[8], [4]])               # (2, 8)
allowed = real[:, None].expand(2, 8, 8)                         # (2, 8, 8)
with crashes("wide projection", "a (b, n, n) mask, b ≠ h", RuntimeError):
    WithMatmul(4, 4)(pair, allowed)
torch.manual_seed(1)
wide = WithMatmul(4, 2)
as_published = wide.weights(pair, allowed).mean(2)              # (2, 2, 8)
repaired = wide.weights(pair, allowed[:, None]).mean(2)         # (2, 2, 8)
leak = as_published[1, :, 4:].sum(-1)
note("wide projection", WRONG, "a (b, n, n) mask is read as one mask per head, b = h",
     f"short sentence, on padding: head 1 {leak[0]:.2f}, head 2 {leak[1]:.2f}",
     leak[0] > 0.3 and leak[1] == 0)

# %% jupyter={"source_hidden": true}
from matplotlib.patches import Rectangle

drawing, (ax,) = display.panels(350, 350)
LABELS = ["whole, head 1", "whole, head 2", "short, head 1", "short, head 2"]
for top, shares in ((0, as_published), (5, repaired)):
    for i, row in enumerate(shares.detach().flatten(0, 1).tolist()):
        for j, share in enumerate(row):
            word = bool(real[i // 2, j])
            leaks, missing = share > 0 and not word, share == 0 and word
            colour, alpha = ("h", 0.6) if leaks else ("n", 0.9 * share)
            square = partial(Rectangle, (j, top + i), 0.92, 0.9)
            ax.add_patch(square(color=display.COLOURS[colour], alpha=alpha, lw=0))
            ax.add_patch(square(fill=False, ec="#808080", lw=0.6))
            text = "✗" if missing else f"{share:.2f}"[1:] if share else "–"
            ax.text(j + 0.46, top + i + 0.48, text, ha="center", va="center", fontsize=11)
ax.set(xlim=(0, 8), ylim=(9, -0.7))
ax.text(0, -0.25, "mask (b, n, n), as published", fontsize=11)
ax.text(0, 4.7, "mask (b, 1, n, n), repaired", fontsize=11)
places = [i + 0.45 for i in (0, 1, 2, 3, 5, 6, 7, 8)]

# %% jupyter={"source_hidden": true}
ax.set_yticks(places, LABELS * 2, fontsize=11)
below = [*six.SHORT, "", "", "", ""]
columns = [f"{a} / {b}" if b not in ("", a) else a for a, b in zip(one.WORDS, below)]
ax.set_xticks([j + 0.5 for j in range(8)], columns, fontsize=11, rotation=45, ha="left")
ax.tick_params(length=0, labeltop=True, labelbottom=False)
ax.spines[:].set_visible(False)
assert not as_published[0, 1, 4:].any()
assert as_published[1, 0, 4:].all()
assert not repaired[1, :, 4:].any()
display.finish(
    drawing, name="masked-heads",
    alt="Weights per key, for two sentences with two heads each. As published, head 2 of "
        "the whole sentence misses the last four words, and head 1 of the short one looks "
        "at padding. Repaired, both heads of a sentence have its own mask.",
    caption="One column per key, with its word in the whole / in the short sentence. "
            "Orange: padding that gets weight. ✗: a word hidden by mistake. –: padding, "
            "rightly hidden.")

# %% [markdown]
# In *both* sentences, head 1 got the first sentence's mask, and head 2 got the second's. So head 1
# of the short sentence spends 0.49 of its weight on padding (the figure rounds each key's share).
# Head 2 of the whole sentence misses *because it was thirsty*. Every shape is right, and every row
# sums to 1.
#
# **The repair.** The products use `@`. The mask must have four axes, so the post's mask is
# refused.

# %% tags=["hide-input"]
display.excerpts(
    published=(OneInput, "torch.bmm", "scores = self", "masked_fill"),
    repaired=(published.WideProjection.forward, "scores =", "read_mask", "masked_softmax"))

# %% [markdown]
# <!-- deeper: More on the wide projection -->
# ### Going deeper: More on the wide projection
#
# The repaired `forward`:

# %%
display.source(published.WideProjection.forward, docstrings=False)

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Shared projection
#
# **The idea.** Cut the embedding into h slices first, and then project every slice with the *same*
# small matrix. `einsum` names each axis, so no transpose is needed
# [[Persson](../docs/references.md#persson)].
#
# **The lines.** Values come first among the arguments. Here the scores have a function of their
# own, `slice_scores`, so that you can look at them.


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
    return scores / math.sqrt(embed_size)           # (b, h, n, m)


class SlicesFirst(nn.Module):
    def __init__(self, embed_size: int, heads: int) -> None:
        super().__init__()
        self.heads, d = heads, embed_size // heads
        small = [nn.Linear(d, d, bias=False) for _ in range(3)]
        self.values, self.keys, self.queries = small
        self.out = nn.Linear(embed_size, embed_size)

    def forward(self, values, keys, query, mask):
        v, k, q = (x.unflatten(-1, (self.heads, -1)) for x in (values, keys, query))
        scores = slice_scores(self.queries(q), self.keys(k), mask, query.size(-1))
        mixed = torch.einsum("bhnm,bmhd->bnhd", scores.softmax(-1), self.values(v))
        return self.out(mixed.flatten(2))


# %% [markdown]
# **What happens.** The code runs. But Persson's introduction prints the formula of multi-head
# attention above it, and the code computes a different function. No head sees another head's slice
# before the output projection.
#
# To see this, cut the identity matrix into slices and project them. The result is the projection
# as one wide matrix: the same block along the diagonal, and zeros everywhere else.
# Multi-head attention has no such zeros. The last line of the output compares the parameters.

# %%
small = SlicesFirst(6, 3)
as_one = small.queries(torch.eye(6).unflatten(-1, (3, -1))).flatten(1)  # (6, 6)
print(as_one.detach().numpy().round(2))
shared, full = count(SlicesFirst(256, 8)), count(MultiheadAttention(256, 8))
note("shared projection", WRONG, "not the formula printed above the code",
     f"{shared:,} of {full:,} parameters, {shared / full:.0%}, at e = 256 and h = 8",
     shared < full / 3)

# %% [markdown]
# There is a second slip. The formula divides the scores by $\sqrt{d_k}$, where $d_k$ is the width
# of one head. The code divides by $\sqrt e$, where e is the width of the model. Let e be 256, and h
# be 8. Are the scores too small by a factor of 8, by a factor of about 2.83, or not at all, because
# the weights are learned anyway?
#
# <details><summary>What do you expect?</summary>
#
# By about 2.83, which is $\sqrt{e / d} = \sqrt h$. A score adds up d products, so $\sqrt d$ brings
# its standard deviation back to 1. The softmax over scores that are too small is too flat, so every
# query starts out looking at everything. Training can undo this by making queries and keys larger,
# but then it has to learn what the right constant would have given for free.
#
# </details>
#
# The cell draws queries and keys of variance 1 for one head of width 32, and computes their scores
# both ways.

# %%
torch.manual_seed(0)
q, k = torch.randn(1, 500, 1, 32), torch.randn(1, 500, 1, 32)  # (1, 500, 1, 32)
by_e = slice_scores(q, k, None, 256).std()
by_d = (torch.einsum("bnhd,bmhd->bhnm", q, k) / math.sqrt(32)).std()
print(f"standard deviation of the scores: {by_e:.2f} as published, {by_d:.2f} with √d")
factor = (by_d / by_e).item()
note("shared projection", WRONG, "√e for √d", f"too small by {factor:.2f} = √h",
     math.isclose(factor, 8**0.5, rel_tol=1e-3))

# %% [markdown]
# A third slip shows only in a fully masked row. Blocked scores are filled with -1e20, a finite
# number, instead of $-\infty$. All scores of such a row are then equal, so its output is the mean
# of exactly what should be hidden. That output looks healthy. In float16 the code stops instead,
# because -1e20 is out of range; bfloat16 holds the number, so there the code runs as in float32.
#
# **The repair.** Sharing a projection is a legitimate design, so the sharing stays. The divisor
# becomes $\sqrt d$, and fully masked rows get zeros.

# %% tags=["hide-input"]
display.excerpts(
    published=(SlicesFirst.__init__, "small =", slice_scores, "masked_fill", "return"),
    repaired=(published.SharedProjection.__init__, "self.to_query",
              published.SharedProjection.forward, "scores = scores", "masked_softmax"))

# %% [markdown]
# <!-- deeper: More on shared projections -->
# ### Going deeper: More on shared projections
#
# The repaired `forward`:

# %%
display.source(published.SharedProjection.forward, docstrings=False)

# %% [markdown]
# The class is called `SelfAttention`, but its example takes 20 queries and 50 keys from two
# tensors. Self-attention has only one input tensor, so this is cross-attention:

# %%
module = SlicesFirst(256, 8)
queries, keys = torch.randn(10, 20, 256), torch.randn(10, 50, 256)
output = module(keys, keys, queries, None)  # (10, 20, 256)
note("shared projection", STYLE, "cross-attention called self-attention",
     f"{queries.size(1)} queries look at {keys.size(1)} keys: {tuple(output.shape)}",
     output.shape == queries.shape != keys.shape)

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Sequence first
#
# **The idea.** The token axis comes first, `(n, b, e)`, and all inputs are passed by keyword. The
# scores have a method of their own, which a subclass may override
# [[labml](../docs/references.md#annotated-page)]. No class on the page itself does so; the fold below
# has one that does. The page also inspired the form of our book: notes beside the code.
#
# **The lines.** The mask is `(n, m, b)`, 1 means allowed, and the first axis may have size 1. The
# scores are `(n, m, b, h)`, so the softmax runs over axis 1, the keys. The fill, -1e9, is finite,
# which repeats the third slip of the last section. A line that hands the weights to a tracker is
# left out here.


# %%
class ByKeyword(nn.Module):
    def __init__(self, heads: int, d_model: int, dropout_prob=0.1, bias: bool = True):
        super().__init__()
        self.heads, self.d_k, self.attn = heads, d_model // heads, None
        width = heads * self.d_k
        self.query, self.key = (nn.Linear(d_model, width, bias) for _ in range(2))
        self.value, self.output = nn.Linear(d_model, width), nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout_prob)

    def get_scores(self, query: Tensor, key: Tensor) -> Tensor:
        return torch.einsum("nbhd,mbhd->nmbh", query, key)


# %%
class TokensFirst(ByKeyword):
    def forward(self, *, query, key, value, mask=None):
        pairs = ((self.query, query), (self.key, key), (self.value, value))
        q, k, v = (to(x).unflatten(-1, (self.heads, self.d_k)) for to, x in pairs)
        scores = self.get_scores(q, k) / math.sqrt(self.d_k)  # (n, m, b, h)
        if mask is not None:
            assert mask.shape[0] in (1, mask.shape[1]), f"refused: {tuple(mask.shape)}"
            scores = scores.masked_fill(mask[..., None] == 0, -1e9)
        weights = self.dropout(scores.softmax(1))             # (n, m, b, h)
        self.attn = weights.detach()
        return self.output(torch.einsum("nmbh,mbhd->nbhd", weights, v).flatten(2))


# %% [markdown]
# **What happens.** The tracker belongs to a package that records training runs. In version
# 0.5.3<!-- quoted -->, that package no longer has `tracker.debug`, which `forward` calls, so every
# call fails with an AttributeError. In the table at the end, this is the only defect that is not run
# here, since it would need the package.
#
# A valid mask can also cause a crash. The check compares the size of the mask's first axis with the
# size of its *second*. So a mask with a row for each query is refused whenever n ≠ m. A decoder
# that attends to an encoder's output may need such a mask. The authors repaired this check a month
# later.

# %%
FOUND.append((CRASH, "tracker.debug has gone from its package (not run)", "sequence first"))
annotated = TokensFirst(4, 24, dropout_prob=0.0)
three, five = torch.randn(3, 2, 24), torch.randn(5, 2, 24)  # (3, 2, 24), (5, 2, 24)
for sizes in ((5, 5, 2), (1, 5, 2)):
    annotated(query=five, key=five, value=five, mask=torch.ones(sizes))
    print(sizes, "accepted")
with crashes("sequence first", "refuses masks with n ≠ m", AssertionError):
    annotated(query=three, key=five, value=five, mask=torch.ones(3, 5, 2))

# %% [markdown]
# **The repair.** The mask's sizes are compared with the numbers of queries and keys,
# and fully masked rows get zeros. `masked_softmax` works on the last axis, so the keys are moved
# there.

# %% tags=["hide-input"]
display.excerpts(
    published=(TokensFirst.forward, "scores = self.get_scores", "assert", "masked_fill"),
    repaired=(published.SequenceFirst.forward, "scores = self.get_scores", "read_mask",
              "blocked[..., None]", "masked_softmax"))

# %% [markdown]
# <!-- deeper: More on sequence first -->
# ### Going deeper: More on sequence first
#
# In the collection that the page belongs to, relative attention overrides the method for the scores.
# The subclass below does so, too: it subtracts one point for each step between query and key. (ALiBi
# [[Press et al. 2022](../docs/references.md#press-2022)] does this with a separate rate for each
# head; see [Positions](18_positions.ipynb).) `forward` divides by √d afterwards, so the method
# multiplies the points by √d.


# %%
class Near(published.SequenceFirst):
    def get_scores(self, query: Tensor, key: Tensor) -> Tensor:
        steps = torch.arange(len(query))[:, None] - torch.arange(len(key))
        scores = super().get_scores(query, key)
        return scores - math.sqrt(self.head_dim) * steps.abs()[..., None, None]


words = one.EMBEDDINGS[:, None]  # (8, 1, 4)
it = one.WORDS.index("it")
looks = {}
for kind in (published.SequenceFirst, Near):
    torch.manual_seed(0)
    module = kind(2, 4, dropout=0.0)
    module(query=words, key=words, value=words)
    looks[kind.__name__] = module.last_weights[it, :, 0].mean(-1)  # (8,)
print("attention of “it”, mean over both heads")
one.show(list(looks), one.WORDS, torch.stack([*looks.values()]))
around = {name: share[it - 1 : it + 2].sum() for name, share in looks.items()}
assert around["Near"] > 0.7 > around["SequenceFirst"]

# %% [markdown]
# The weights in the first row are spread over all words. In the second row, most of the weight goes
# to the word *it* itself and its two neighbours. The repaired `forward`:

# %%
display.source(published.SequenceFirst.forward, docstrings=False)

# %% [markdown]
# The page names its own inspiration: *The Annotated Transformer*, which put the paper's text beside
# working code [[Rush 2018](../docs/references.md#rush-2018)] [[Huang et al.
# 2022](../docs/references.md#huang-2022)]. Attention itself is older than the Transformer
# [[Bahdanau et al. 2015](../docs/references.md#bahdanau-2015)].
#
# The weights of the last call stay on the module. Between calls they take up more memory than the
# output itself. Our version need not keep them: if you want the weights, pass a function as
# `on_weights`.

# %%
train, rows = TokensFirst(8, 64, dropout_prob=0.5), torch.randn(256, 4, 64)
output = train(query=rows, key=rows, value=rows)
note("sequence first", WASTE, "weights kept between calls",
     f"{train.attn.nbytes:,} bytes; the output has {output.nbytes:,}",
     train.attn.nbytes > output.nbytes)
seen: list[Tensor] = []
ours = published.SequenceFirst(8, 64, keep_weights=False, on_weights=seen.append)
ours(query=rows, key=rows, value=rows)
print("ours:", ours.last_weights, "kept; shown:", tuple(seen[0].shape))

# %% [markdown]
# `bias=False` still leaves two biases, in the value and output projections, so an input of zeros
# does not give zeros. A comment also gives the wrong shape: one token of each sample, `(b, e)`, leaves
# the projections as `(b, h, d)`, not as `(b, e)`.

# %%
without = TokensFirst(4, 24, dropout_prob=0.0, bias=False)
biases = [name for name, _ in without.named_parameters() if name.endswith("bias")]
zeros = torch.zeros(3, 2, 24)
output = without(query=zeros, key=zeros, value=zeros)
note("sequence first", WRONG, "bias=False leaves biases", ", ".join(biases),
     output.any().item())
split = published.PrepareHeads(24, 4, 6, bias=True)(zeros[0])  # (2, 4, 6)
note("sequence first", STYLE, "a comment with the wrong shape",
     f"(b, e) for {tuple(split.shape)}", split.shape == (2, 4, 6))

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Weighted scores
#
# **The idea.** Queries and keys may have any width $d_k$ in each head, and values any $d_v$. Factors
# from outside multiply the scores before the softmax
# [[collection](../docs/references.md#paper-code-collection)]. The formula calls the factors of head i
# $A_i$, and ⊙ multiplies element by element:
#
# $$\mathrm{head}_i = \mathrm{softmax}\!\left(A_i \odot \frac{Q W^Q_i (K W^K_i)^\top}{\sqrt{d_k}}\right) V
# W^V_i$$
#
# **The lines.** True means *blocked* here. The code calls the factors `attention_weights`. The keys
# arrive already transposed, as `(b, h, d, m)`, so the function `multiplied` below needs only
# `q @ k`. The next design uses this function, too. The constructor draws the entries of all matrices
# with a standard deviation of 0.001<!-- setting -->; the code for that is folded.


# %% jupyter={"source_hidden": true}
def initialise(module: nn.Module) -> None:
    """Give a module its initial parameters, as published."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out")
        elif isinstance(part, nn.BatchNorm2d):
            nn.init.ones_(part.weight)
        elif isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, std=0.001)
            nn.init.zeros_(part.bias)


# %%
def multiplied(q, k, v, attention_mask, attention_weights) -> Tensor:
    """Attend with factors on the scores, as published.

    Args:
        q: (b, h, n, d), projected.
        k: (b, h, d, m), projected, its last two axes exchanged.
        v: (b, h, m, d_v), projected.
    """
    scores = q @ k / math.sqrt(q.size(-1))              # (b, h, n, m)
    if attention_weights is not None:
        scores = scores * attention_weights             # (b, h, n, m)
    if attention_mask is not None:
        scores = scores.masked_fill(attention_mask, -math.inf)
    mixed = scores.softmax(-1) @ v                      # (b, h, n, d_v)
    return mixed.permute(0, 2, 1, 3).flatten(2)         # (b, n, h * d_v)


class ScaledDotProductAttention(nn.Module):
    def __init__(self, d_model: int, d_k: int, d_v: int, h: int) -> None:
        super().__init__()
        self.fc_q, self.fc_k = nn.Linear(d_model, h * d_k), nn.Linear(d_model, h * d_k)
        self.fc_v, self.fc_o = nn.Linear(d_model, h * d_v), nn.Linear(h * d_v, d_model)
        self.h = h
        initialise(self)

    def forward(self, queries, keys, values, attention_mask=None, attention_weights=None):
        pairs = ((self.fc_q, queries), (self.fc_k, keys), (self.fc_v, values))
        q, k, v = (to(x).unflatten(-1, (self.h, -1)).transpose(1, 2) for to, x in pairs)
        return self.fc_o(multiplied(q, k.mT, v, attention_mask, attention_weights))


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
# In the cell, the width d is 1 and the query is 1, so the scores equal the two keys. The values are
# the identity matrix, so the output equals the weights.

# %%
query = torch.ones(1, 1, 1, 1)
keys = torch.tensor([-3.0, 1.0])[None, None, None]               # (1, 1, 1, 2)
values = torch.eye(2)[None, None]                                # (1, 1, 2, 2)
factors = torch.tensor([0.0, 1.0])
plain = multiplied(query, keys, values, None, None)[0, 0]        # (2,)
zeroed = multiplied(query, keys, values, None, factors)[0, 0]    # (2,)
print("weights:", [round(weight, 2) for weight in plain.tolist()])
note("weighted scores", STYLE, "attention_weights, a name that invites a 0 as a mask",
     f"{plain[0]:.3f} becomes {zeroed[0]:.2f}", zeroed[0] > plain[0])

# %% [markdown]
# The published initial parameters have a standard deviation of 0.001, whatever the width of the
# model. The cell sends an input of variance 1 through the projections for queries and keys, once
# with Xavier's initial parameters, which fit the width of the matrix, and once with the published
# ones.

# %%
torch.manual_seed(0)
x = torch.randn(1, 49, 512)
tiny = ScaledDotProductAttention(512, 64, 64, 8)
xavier = published.WeightedScores(512, 64, 64, 8)  # the repaired class
pairs = {"Xavier": (xavier.to_query, xavier.to_key), "0.001": (tiny.fc_q, tiny.fc_k)}
for name, maps in pairs.items():
    q, k = (to(x)[0, :, :64] for to in maps)  # (49, 64)
    weights = (q @ k.mT / 8).softmax(-1)      # (49, 49)
    largest = f"largest attention weight {weights.max():.3f}"
    print(f"{name:6} standard deviation {q.std():.3f}, {largest}")
note("weighted scores", WASTE, "initial parameters too small",
     f"an even share is {1 / 49:.3f}", weights.max() < 1.02 / 49)

# %% [markdown]
# With the small matrices, queries come out close to zero, and all keys get nearly the same weight.
# Training first has to undo this start.
#
# The name of the class misleads, too. In the paper, scaled dot-product attention is the part *inside*
# a head, without parameters.
#
# **The repair.** The initial parameters are Xavier's, the mask is checked, and fully masked rows get
# zeros. The factors stay factors; the docstring says that 0 does not block.

# %% tags=["hide-input"]
display.excerpts(
    published=(initialise, "std=", multiplied, "scores * ", "softmax"),
    repaired=(published.WeightedScores.__init__, "xavier",
              published._parts.attend_weighted, "scores * ", "masked_softmax"))

# %% [markdown]
# <!-- deeper: More on weighted scores -->
# ### Going deeper: More on weighted scores
#
# The class called `ScaledDotProductAttention` has heads and projections:

# %%
inside = tuple(tuple(module.weight.shape) for module in (tiny.fc_q, tiny.fc_o))
note("weighted scores", STYLE, "multi-head attention called ScaledDotProductAttention",
     f"{tiny.h} heads, projections {inside}", tiny.h > 1)

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## No projection
#
# **The idea.** The same collection has a version without the three projections: the embedding
# itself is cut into heads, and only the output is projected.
#
# **The lines.** Compared with the previous design, three projections are gone, and
# `multiplied` gets the slices as they are.


# %%
class Simplified(nn.Module):
    def __init__(self, d_model: int, h: int) -> None:
        super().__init__()
        self.h, self.d_k = h, d_model // h
        self.fc_o = nn.Linear(h * self.d_k, d_model)
        initialise(self)

    def forward(self, queries, keys, values, attention_mask=None, attention_weights=None):
        rows = (queries, keys, values)
        q, k, v = (x.view(*x.shape[:2], self.h, self.d_k).transpose(1, 2) for x in rows)
        return self.fc_o(multiplied(q, k.mT, v, attention_mask, attention_weights))


# %% [markdown]
# **What happens.** Head i always compares slice i of the features; training this
# module cannot change that. The output starts close to zero, because the only projection has the
# same small initial parameters as in the last section. The fold below runs it and measures how
# close.
#
# **The repair.** It is the same as for weighted scores: Xavier's initial parameters. The slices
# stay. The repaired lines give the same slices, but lay the keys out as (b, h, d, m).

# %% tags=["hide-input"]
display.excerpts(
    published=(initialise, "std=", Simplified.forward, "rows =", "q, k, v ="),
    repaired=(published.NoProjection.__init__, "xavier",
              published.NoProjection.forward, "q = ", "k = ", "v = "))

# %% [markdown]
# <!-- deeper: More on no projection -->
# ### Going deeper: More on no projection
#
# The cell shows how close to zero the output starts. Also, the code that sets the initial parameters
# of both designs has branches for modules that neither design contains.

# %%
torch.manual_seed(0)
bare, x = Simplified(512, 8), torch.randn(1, 49, 512)
spread = bare(x, x, x).std()
note("no projection", WASTE, "initial parameters too small",
     f"standard deviation: inputs {x.std():.2f}, outputs {spread:.3f}", spread < 0.03)
for name, built in {"weighted scores": tiny, "no projection": bare}.items():
    kinds = {type(part) for part in built.modules()}
    note(name, STYLE, "branches for Conv2d and BatchNorm2d",
         f"contains {', '.join(sorted(kind.__name__ for kind in kinds))}",
         not kinds & {nn.Conv2d, nn.BatchNorm2d})

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Packed projection
#
# **The idea.** A long article takes PyTorch's own source apart and puts it back together
# [[article](../docs/references.md#article-through-the-source)]. Its class has one packed matrix for
# queries, keys and values, and the folded layout of [Batches](05_batches.ipynb): samples and heads
# on one axis.
#
# **The lines.** The padding mask, `(b, m)`, is copied for each head, which gives `(b * h, 1, m)`.
# The attention mask is `(n, m)` or `(b * h, n, m)`. The merged mask has the shape `(b * h, n, m)`.
# Where it blocks, the code adds -1e28 to the scores, again a finite number. Next to it, float32
# rounds the scores away, so the effect is that of a fill.


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


def folded(q: Tensor, k: Tensor, v: Tensor, added: Tensor, dropout: float):
    """Attend as published.

    Args:
        q: (r, n, d), r = b * h slices.
        k: (r, m, d), projected.
        v: (r, m, d), projected.
    """
    scores = q @ k.mT / math.sqrt(q.size(-1)) + added  # (r, n, m)
    weights = scores.softmax(-1)                       # (r, n, m)
    weights = F.dropout(weights, dropout)
    return weights @ v, weights


# %%
class Packed(nn.Module):
    def __init__(self, embed_dim: int, num_heads: int, dropout=0.0, bias: bool = True):
        super().__init__()
        self.h, self.p = num_heads, dropout
        self.in_proj = nn.Linear(embed_dim, 3 * embed_dim, bias)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias)
        nn.init.xavier_uniform_(self.in_proj.weight)
        nn.init.zeros_(self.out_proj.bias)

    def fold(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.h, -1)).flatten(1, 2).transpose(0, 1)

    def forward(self, x, key_padding_mask, attn_mask, need_weights: bool = True):
        added = added_masks(key_padding_mask, attn_mask, self.h, x.dtype)
        q, k, v = (self.fold(part) for part in self.in_proj(x).chunk(3, -1))
        mixed, weights = folded(q, k, v, added, self.p if self.training else 0.0)
        output = self.out_proj(mixed.transpose(0, 1).reshape(x.shape))
        return output, weights if need_weights else None


# %% [markdown]
# **What happens.** Neither mask may be left out. An `assert` demands the padding mask, and the
# attention mask is merged without a check for None. `bias=False` crashes, too: the constructor sets
# the output's bias to zero even when there is none. Finally, one result is not what the text says:
# the weights are documented as `(b, h, n, m)`, but they come out folded.

# %%
torch.manual_seed(0)
x = torch.randn(3, 2, 24)                           # (3, 2, 24)
no_padding = torch.zeros(2, 3, dtype=torch.bool)    # (2, 3)
none_blocked = torch.zeros(3, 3, dtype=torch.bool)  # (3, 3)
packed = Packed(24, 4)
with crashes("packed projection", "needs a padding mask", AssertionError):
    packed(x, None, none_blocked)
with crashes("packed projection", "needs an attention mask", TypeError):
    packed(x, no_padding, None)
with crashes("packed projection", "bias=False", AttributeError):
    Packed(24, 4, bias=False)
_, weights = packed(x, no_padding, none_blocked)
note("packed projection", WRONG, "weights folded, (b * h, n, m)", tuple(weights.shape),
     weights.shape == (2 * 4, 3, 3))

# %% [markdown]
# The article also has a shortest version, which takes its parameters from `torch.empty` and never
# sets them: they are whatever was in that memory before. The fold below runs it.
#
# **The repair.** Either mask may be None, a fully masked row gets zeros, and the weights are
# unfolded. `bias` is the additive mask here. The bias of a projection is reset only where there is
# one.

# %% tags=["hide-input"]
display.excerpts(
    published=(added_masks, "assert", "return", folded, "weights = scores"),
    repaired=(published.PackedBase.merge_masks, "return torch",
              published.PackedProjection.attention, "masked_softmax",
              published.PackedBase.forward, "unflatten"))

# %% [markdown]
# <!-- deeper: More on the packed projection -->
# ### Going deeper: More on the packed projection
#
# The class above is for a single input. For three different inputs, the article cuts the packed
# matrix into three parts, as PyTorch does. The repaired methods:

# %%
display.source(published.PackedProjection.merge_masks, docstrings=False)

# %%
display.source(published.PackedBase.forward, docstrings=False)

# %% [markdown]
# With `need_weights=False`, the published class does not return the weights, but it computes and
# stores them all the same. The cell finds the largest tensor that PyTorch keeps for the backward
# pass.


# %%
def largest_kept(call) -> int:
    """Find the largest tensor that a call keeps for the backward pass, in numbers."""
    sizes: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda kept: sizes.append(kept.numel()) or kept, lambda kept: kept
    ):
        call()
    return max(sizes)


long, masks = torch.randn(256, 2, 24), [torch.zeros(rows, 256).bool() for rows in (2, 256)]
kept = largest_kept(lambda: packed(long, *masks, need_weights=False))
note("packed projection", WASTE, "need_weights=False still computes them",
     f"{kept:,} numbers = b · h · n²: all weights", kept == 8 * 256**2)

# %% [markdown]
# The article's first class, a single head, declares $W_O$ but never applies it, so $W_O$ gets no
# gradient. The article's shortest version (mended in `published.Shortest`) chose no initial
# numbers at all: `torch.empty` holds whatever was in that memory before. PyTorch's deterministic
# mode fills it with NaN, so that you can see the defect.


# %%
class NeverApplied(one.OneHead):
    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return one.attend(query @ self.w_q, key @ self.w_k, value @ self.w_v)[0]


class NotInitialised(published.Shortest):
    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__(embed_dim, num_heads)
        for name in ("w_q", "w_k", "w_v", "w_o"):
            setattr(self, name, nn.Parameter(torch.empty(embed_dim, embed_dim)))


# %%
head, rows = one.xavier(NeverApplied(4, 4)), one.EMBEDDINGS
head(rows, rows, rows).sum().backward()
note("packed projection", WASTE, "W_O without a gradient (one head)",
     f"{count(head):,} parameters, w_o.grad is {head.w_o.grad}", head.w_o.grad is None)
torch.use_deterministic_algorithms(True)
output, _ = NotInitialised(24, 4)(x, x, x)
torch.use_deterministic_algorithms(False)
note("packed projection", WRONG, "no initial parameters (the article's shortest version)",
     output[0, 0, :3].tolist(), bool(output.isnan().all()))
output, _ = published.Shortest(24, 4)(x, x, x)
print("ours:", [round(number, 2) for number in output[0, 0, :3].tolist()])

# %% [markdown]
# The article's positions crash at an odd width, and take batch-first data for sequence-first, as
# [Transformer](09_transformer.ipynb) shows. Other parts of the article are right: its counts, which
# [Counting](12_counting.ipynb) derives, and its final norm for pre-LN stacks only, which [Transformer
# layers](08_transformer_layers.ipynb#the-final-norm) explains. It excuses the reshape with the random
# start of $W_Q$, but no excuse is needed: [The reshape trick](04_reshape_trick.ipynb) moves no number.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# <!-- deeper: Defects that several designs share -->
# ### Going deeper: Defects that several designs share
#
# In two designs the mask has no default. Four accept a width that h does not divide, and stop only
# in `forward`. Three stop in float16, where the number that they fill with is out of range; in
# bfloat16 they run.


# %%
def all_crash(what: str, error: type[Exception], runs: dict) -> None:
    """Note the same defect in several designs."""
    for name, run in runs.items():
        print(name, end=", ")
        with crashes(name, what, error):
            run()


# %%
slices, x, ten = SlicesFirst(24, 4), torch.randn(2, 3, 24), torch.randn(2, 3, 10)
all_crash("no default for the mask", TypeError, {
    "module per head": lambda: whole(x, x, x),
    "shared projection": lambda: slices(x, x, x)})
all_crash("no check that h divides e", RuntimeError, {
    "module per head": lambda: Mended(10, 4)(ten, ten, ten, None),
    "wide projection": lambda: WithMatmul(10, 4)(ten),
    "sequence first": lambda: TokensFirst(4, 10)(query=ten, key=ten, value=ten),
    "no projection": lambda: Simplified(10, 4)(ten, ten, ten)})

# %%
nobody, no_key = torch.zeros(2, 3, 3), torch.zeros(3, 3, dtype=torch.bool)
for dtype in (torch.bfloat16, torch.float16):
    t = torch.randn(3, 3, 24).to(dtype)
    modules = SlicesFirst(24, 4), TokensFirst(4, 24), Packed(24, 4)
    slices, tokens, whole_matrix = (module.to(dtype) for module in modules)
    runs = {
        "shared projection": partial(slices, t, t, t, nobody[:1, :1]),
        "sequence first": partial(tokens, query=t, key=t, value=t, mask=nobody[:1]),
        "packed projection": partial(whole_matrix, t, no_key, no_key)}
    if dtype == torch.bfloat16:
        outputs = [run() for run in runs.values()]
        assert all(x.isfinite().all() for x in (*outputs[:2], outputs[2][0]))
all_crash("not in float16", RuntimeError, runs)

# %% [markdown]
# A fully masked row is NaN in the four designs that fill with $-\infty$. This is listed separately,
# as a convention, because PyTorch's own class also gives NaN whenever it returns weights. In the
# three designs that fill with a finite number, the row is the mean of what is hidden.

# %%
lost = {
    "module per head": whole(x, x, x, nobody),
    "wide projection": WithMatmul(24, 4)(x, nobody[:1, None]),
    "weighted scores": ScaledDotProductAttention(24, 6, 6, 4)(
        x, x, x, nobody[:1, None] == 0),
    "no projection": Simplified(24, 4)(x, x, x, nobody[:1, None] == 0),
}
for name, output in lost.items():
    print(name, end=", ")
    note(name, CONVENTION, "fully masked row: NaN", output[0, 0, :3].tolist(),
         bool(output.isnan().all()))

# %%
cut_apart = x.unflatten(-1, (4, 6))                                # (2, 3, 4, 6)
hidden = slice_scores(cut_apart, cut_apart, nobody[:1, None], 24)  # (2, 4, 3, 3)
annotated(query=x, key=x, value=x, mask=nobody[:2, :2])
means = {
    "shared projection": hidden.softmax(-1)[0, 0, 0],
    "sequence first": annotated.attn[0, :, 0, 0],
    "packed projection": packed(x.transpose(0, 1), no_padding, ~none_blocked)[1][0, 0],
}
for name, weights in means.items():
    print(name, end=", ")
    note(name, WRONG, "fully masked row: the mean of what is hidden",
         [round(weight, 2) for weight in weights.tolist()],
         bool((weights == 1 / len(weights)).all()))

# %% [markdown]
# Two designs keep or return the weights after dropout. This is a convention, too, because PyTorch's
# own class does the same. In our two versions, each row still sums to 1.

# %%
x, two = torch.randn(3, 2, 24), (no_padding, none_blocked)
theirs = nn.MultiheadAttention(24, 4, 0.5)(x, x, x, average_attn_weights=False)[1]
dropped = {"sequence first": train.attn.transpose(1, -1),
           "packed projection": Packed(24, 4, dropout=0.5)(x, *two)[1]}
for name, weights in dropped.items():
    print(name, end=", ")
    largest, of_pytorch = weights.sum(-1).max(), theirs.sum(-1).max()
    note(name, CONVENTION, "weights after dropout", f"a row sums to {largest:.2f}",
         min(largest, of_pytorch) > 1.1)

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## One test for all seven
#
# Each repaired design is compared with the final class. Two methods make this possible:
#
# - `design.pair(e, h)` makes a module of the design, and one of the final class with the same
#   parameters.
# - `design.call(module, query, key, value, blocked)` takes batch-first tensors, and a mask in which
#   True means blocked. It calls the module with the design's own layout, argument order and mask.
#
# Five designs can load the parameters of the final class. For the other two, a method `as_multihead`
# builds the equivalent final class. For shared projections, its matrices are block-diagonal, as you
# saw above. For no projection, $W_Q$, $W_K$ and $W_V$ are identity matrices.
#
# `compare`, folded below, hands both modules the same random tensors, and a mask in which one row is
# fully masked. Outputs and gradients must agree.

# %% jupyter={"source_hidden": true}
LOADING = [name for name in DESIGNS if hasattr(DESIGNS[name].module, "load_from")]


def compare(name: str) -> None:
    """Compare a repaired design with the final class: outputs and gradients."""
    b, n, m, h, d = 2, 3, 5, 4, 6
    torch.manual_seed(0)
    design = DESIGNS[name]
    module, reference = (x.double() for x in design.pair(h * d, h))
    double = {"dtype": torch.float64, "requires_grad": True}
    query, key = torch.randn(b, n, h * d, **double), torch.randn(b, m, h * d, **double)
    given = (query,) * 3 if design.kind == "self" else (query, key, key)
    blocked = torch.rand(b, n, given[1].size(1)) < 0.4
    blocked[..., 0], blocked[1, 2] = False, True
    output = design.call(module, *given, blocked)  # (b, n, h * d)
    expected, _ = reference(*given, attn_mask=blocked.repeat_interleave(h, 0))
    torch.testing.assert_close(output, expected)
    mine, theirs = (one.gradients(x, {*given}) for x in (output, expected))
    torch.testing.assert_close(mine, theirs)
    how = "with its parameters loaded" if name in LOADING else "built by as_multihead"
    print(f"{name}: outputs and gradients agree with the final class, {how}")


# %%
for name in DESIGNS:
    compare(name)

# %% [markdown]
# ## All seven on one sentence
#
# Put the sentence from [One head](01_one_head.ipynb) through all repaired designs, with the words
# after *it* hidden. The five designs that can load parameters get the same ones. How strongly does
# the output for *it* react to each word?
#
# The folded function `reaction` measures the size of the derivative, as a share of the total. The
# parameters are random, so the shares mean nothing by themselves: compare the rows.


# %% jupyter={"source_hidden": true}
def reaction(design, module: nn.Module, x: Tensor, blocked: Tensor, row: int) -> Tensor:
    """Measure how output ``row`` reacts to each word, as shares that sum to 1.

    Args:
        x: (1, n, e), one sentence.
        blocked: (1, n, n), True = blocked.
        row: which word's output.
    """

    def attend(x: Tensor) -> Tensor:
        return design.call(module, x, x, x, blocked)[0, row]

    jacobian = torch.autograd.functional.jacobian(attend, x)  # (e, 1, n, e)
    sizes = jacobian[:, 0].norm(dim=(0, 2))                   # (n,)
    return sizes / sizes.sum()


# %% jupyter={"source_hidden": true}
words = one.EMBEDDINGS[None]                            # (1, 8, 4)
future = torch.ones(1, 8, 8, dtype=torch.bool).triu(1)  # (1, 8, 8)
torch.manual_seed(0)
reference = MultiheadAttention(4, 2, batch_first=True)
modules = {name: design.build(4, 2) for name, design in DESIGNS.items()}
for name in LOADING:
    modules[name].load_from(reference)
it = one.WORDS.index("it")
rows = [reaction(DESIGNS[name], modules[name], words, future, it) for name in DESIGNS]
reactions = torch.stack(rows)  # (7, 8)

same = [name for name, row in zip(DESIGNS, rows) if torch.allclose(row, rows[0])]
assert same == LOADING
print("equal rows:", ", ".join(same))
print("largest share of a hidden word:", reactions[:, 6:].abs().max().item())
assert not reactions[:, 6:].any()

# %% jupyter={"source_hidden": true}
from matplotlib.colors import to_rgba

drawing, (ax,) = display.panels(640, 280)
for i, row in enumerate(reactions.tolist()):
    for j, share in enumerate(row):
        fill = to_rgba(display.COLOURS["n"], 0.8 * share)
        ax.add_patch(Rectangle((j, i), 1, 1, facecolor=fill, edgecolor="#808080"))
        shown = f"{share:.2f}"[1:] if share else "–"
        ax.text(j + 0.5, i + 0.5, shown, ha="center", va="center")
ax.set(xlim=(0, 8), ylim=(7, 0))
ax.set_xticks([j + 0.5 for j in range(8)], one.WORDS, color=display.COLOURS["m"])
ax.set_yticks([i + 0.5 for i in range(7)], DESIGNS)
ax.tick_params(length=0, labeltop=True, labelbottom=False)
ax.spines[:].set_visible(False)
alt = "How the output for it reacts to each word, as shares, a row per design. " + " ".join(
    f"{name}: {', '.join(f'{word} {share:.2f}' for word, share in zip(one.WORDS, row))}."
    for name, row in list(zip(DESIGNS, reactions.tolist()))[:6] if name not in same[1:])
display.finish(drawing, name="all-seven", alt=f"{alt} {', '.join(same[1:])}: as the first.",
               caption="How the output for “it” reacts to each word, as shares. –: hidden.")

# %% [markdown]
# The five designs with the same parameters have equal rows, in spite of their different layouts and
# masks. The other two compute functions of their own. No design lets the hidden words through.
#
# ## The table
#
# With these defects, the code computes something else, and no error tells you so. The rows on
# biases, initial parameters and fully masked rows were measured in folds.

# %% tags=["hide-input"]
import re


def table(*severities: str) -> Markdown:
    """List what was found, a row for each kind of defect."""
    lines = ["| what happens | defect | designs |", "|---|---|---|"]
    for severity in severities:
        found = [(what, name) for how, what, name in FOUND if how == severity]
        for row, what in enumerate(dict.fromkeys(what for what, _ in found)):
            designs = dict.fromkeys(name for other, name in found if other == what)
            linked = (f"[{name}](#{name.replace(' ', '-')})" for name in designs)
            first = f"**{severity}**" if not row else ""
            literal = re.sub(r"([_*])", r"\\\1", what)  # not bold
            lines.append(f"| {first} | {literal} | {', '.join(linked)} |")
    return Markdown("\n".join(lines))


assert {name for _, _, name in FOUND} == DESIGNS.keys()
assert len({name for how, _, name in FOUND if how == WRONG}) == 4
table(WRONG)

# %% [markdown]
# <!-- deeper: The rest of the table -->
# ### Going deeper: The rest of the table
#
# Crashes, waste, style, and conventions:

# %% tags=["hide-input"]
table(CRASH, WASTE, STYLE, CONVENTION)

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## What they teach
#
# - **Run it.** Three of the seven stop at once.
# - **Choose sizes that all differ.** Equal sizes hide a mask check that refuses n ≠ m, or a mask that
#   lands on the axis of the heads.
# - **Say what True means** in the name of a mask: `blocked` or `allowed`.
# - **Give a fully masked row a meaning,** and test in float16, where a large finite fill stops the
#   code.
# - **Compare with the formula.** Shared projections and $\sqrt e$ keep every shape.
# - **Check how training starts.** Initial parameters may be far too small, or missing.
#
# ## Exercises
#
# ### The small projection, made wide
#
# *Easy, 2 minutes.* Write what `as_multihead` needs for a shared projection. `block`, `(d, d)`, is
# the weight of its small `nn.Linear`. Make the weight of one wide `nn.Linear`, `(h · d, h · d)`,
# that does the same to all heads at once. `torch.block_diag` takes any number of matrices. Gradients
# must reach the block.


# %% tags=["exercise"]
def widen(block: Tensor, num_heads: int) -> Tensor:
    """Make one wide weight of a block that all heads share."""
    return None  # your lines here


# %%
from annotated_attention import exercises

exercises.published_code.check_widen(widen)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Look at the matrix printed in [Shared projection](#shared-projection). What is outside the blocks?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Every head has the same block, and a list may hold it several times.
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
def widen(block: Tensor, num_heads: int) -> Tensor:
    """Make one wide weight of a block that all heads share.

    Args:
        block: (d, d), as in a linear layer.
        num_heads: how many share it.
    """
    return torch.block_diag(*[block] * num_heads)  # (num_heads * d, num_heads * d)


exercises.published_code.check_widen(widen)

# %% [markdown]
# ### Call it your way
#
# *Medium, 10 minutes.* `module` is a `SequenceFirst`: keywords only, `(n, b, e)`, and a mask of
# `(n, m, b)` in which True means allowed. Your tensors are batch-first, and `blocked` is
# `(b, n, m)` with True for blocked, or None. Call it, and return `(b, n, e)`.


# %% tags=["exercise"]
def call_it(module, query: Tensor, key: Tensor, value: Tensor, blocked) -> Tensor:
    """Call a sequence-first module with batch-first tensors."""
    return None  # your lines here


# %%
exercises.published_code.check_call_it(call_it)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# You have to convert five things: three inputs, the mask, and the output. The mask needs two
# changes.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `~` swaps True and False, and fails on None. `permute` takes the old axes in their new order.
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
def call_it(module, query: Tensor, key: Tensor, value: Tensor, blocked) -> Tensor:
    """Call a sequence-first module with batch-first tensors.

    Args:
        query: (b, n, e), batch-first.
        key: (b, m, e), batch-first.
        value: (b, m, e), batch-first.
    """
    q, k, v = (x.transpose(0, 1) for x in (query, key, value))
    allowed = None if blocked is None else ~blocked.permute(1, 2, 0)
    return module(query=q, key=k, value=v, mask=allowed).transpose(0, 1)  # (b, n, e)


exercises.published_code.check_call_it(call_it)

# %% [markdown]
# ## What you have now
#
# You have run seven published designs with their defects, and the repaired ones agree with the final
# class.
#
# > **In short.** All seven compute a version of $\mathrm{softmax}(Q_i K_i^\top / \sqrt d)\, V_i$
# > for each of h heads, and apply one projection at the end.
# >
# > Layouts `(b, n, e)` and `(n, b, e)`; masks `(b, n, m)`, `(n, m, b)`, `(b, h, n, m)` and
# > `(b * h, n, m)`; True means allowed in four designs and blocked in three.
# >
# > ```python
# > design = published.DESIGNS["sequence first"]
# > module, final_class = design.pair(embed_dim, num_heads)  # with the same parameters
# > output = design.call(module, query, key, value, blocked)  # batch-first, True = blocked
# > ```
# >
# > A crash at least tells you that something is wrong. Look for defects that keep every shape: a
# > wrong divisor, a mask on the wrong axis, a mean over hidden keys. To bring them out, use sizes
# > that all differ, a fully masked row, and a comparison with a class that you trust.
#
# One chapter is left for the class: [write it from memory](17_from_memory.ipynb).
