# %% [markdown]
# # Published code
#
# *What does the code that people copy really compute?*
#
# *14 minutes and 2 of exercises. Afterwards you can read somebody's published design and see what
# it really computes.*
#
# A recipe is copied onto a card, and the card is copied again. On the third card the salt is
# missing. It still reads like a recipe, until somebody cooks from it. Code for multi-head attention
# is passed on in the same way.
#
# Here are six cards that people copy. Three are right where they stand, and go wrong when they are
# carried elsewhere: nothing stops, and no shape gives it away. The other three are wrong where they stand. Then a
# tool reads a card for you: your own, if you like. (The arrows in the listings are ours.)

# %% tags=["hide-input"]
import copy
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_book import display, published
from annotated_book.published import DESIGNS
from attention_doctor import adapt, examine


def attempt(call) -> None:
    """Call, and print the first line of the error that must come."""
    try:
        call()
    except Exception as error:
        said = str(error).splitlines() or ["(no message)"]
        print(f"{type(error).__name__}: {said[0][:70]}")
    else:
        raise AssertionError("it runs")


# %% [markdown] name="nanogpt"
# ## nanoGPT, and a cache
#
# One packed layer makes queries, keys and values. They are split into heads, and PyTorch's fused
# kernel does the rest. Two of its lines, the second broken to fit
# [[nanoGPT](../docs/references.md#nanogpt), MIT licence]:
#
# ```python
# q, k, v  = self.c_attn(x).split(self.n_embd, dim=2)
# ...
# y = torch.nn.functional.scaled_dot_product_attention(
#     q, k, v, attn_mask=None, dropout_p=self.dropout if self.training else 0,
#     is_causal=True)  # <- the mask is this flag
# ```
#
# nanoGPT trains on whole texts, and there all of this is right. But it computes the whole text again for
# every new token, so the first thing that people add is a cache. Now five tokens are known, and only
# the last one asks. The line with the flag stays as it is. How many of the five keys does that token
# see: all five, only itself, or only the first?
#
# <details><summary>What do you expect?</summary>
#
# Only the first. The flag draws its staircase from the top left corner of a square. With one query,
# there is only its first row left, in which one key is visible: the oldest.
#
# </details>
#
# Try the flag, and a flag that looks at how many queries there are. The values are an identity matrix,
# so the output is the weights themselves.

# %%
torch.manual_seed(0)
q, k, v = torch.randn(5, 6), torch.randn(5, 6), torch.eye(5)  # (5, 6), (5, 6), (5, 5)
attend, last = F.scaled_dot_product_attention, q[-1:]
whole = attend(q, k, v, is_causal=True)                   # (5, 5)
flagged = attend(last, k, v, is_causal=True)              # (1, 5)
mended = attend(last, k, v, is_causal=last.size(-2) > 1)  # (1, 5)

# %% tags=["hide-input"]
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle

drawing, axes = display.panels(520, 215, columns=2)
titles = ("five queries, one text", "one query, five keys cached")
for ax, title, table in zip(axes, titles, (whole, torch.cat([flagged, mended]))):
    for i, row in enumerate(table.tolist()):
        y = i if len(table) == 5 else 4 * i  # beside the row of the staircase that it is
        edge = {0: display.COLOURS["h"], 4: display.COLOURS["n"]}.get(y)
        for x, weight in enumerate(row):
            hue = to_rgba(display.COLOURS["n" if weight else "b"], 0.7 * weight or 0.4)
            ax.add_patch(Rectangle((x, y), 1, 1, facecolor=hue, edgecolor="grey"))
            written = f"{weight:.2f}" if weight else ""
            ax.text(x + 0.5, y + 0.5, written, ha="center", va="center", fontsize=12)
        if edge:
            ax.add_patch(Rectangle((0, y), 5, 1, fill=False, edgecolor=edge, lw=3))
    ax.set(xlim=(-0.1, 5.1), ylim=(5.1, -0.1), yticks=[])
    ax.set_title(title, fontsize=13)
    ax.set_xticks([0.5, 1.5, 2.5, 3.5, 4.5], [f"key {x}" for x in "12345"], fontsize=12)
    ax.tick_params(length=0)
    for side in ax.spines.values():
        side.set_visible(False)
axes[1].text(2.5, 1.6, "flagged: the row it gets", ha="center", fontsize=12)
axes[1].text(2.5, 3.7, "mended: the row it should get", ha="center", fontsize=12)
alt = "A causal staircase. One query with the flag gets its first row: only key 1. "
display.finish(
    drawing, name="first-row", alt=alt + "It should get the last: all five keys."
)

# %% tags=["proof"]
torch.testing.assert_close(mended[0], whole[-1])
assert flagged[0].tolist() == [1, 0, 0, 0, 0]
assert attend(q, k, v, is_causal=q.size(-2) > 1).equal(whole)
print("✓ With the mended flag a new token sees what it sees in the whole text.")

# %% [markdown]
# Through attention, each new word now sees the first word of the text and nothing else. Its own vector
# still passes by on the residual path, so the model goes on writing, and nothing stops. The mended line
# works as long as the prompt comes in one piece:
#
# ```python
#     is_causal=q.size(-2) > 1)  # one query needs no mask: every key is its past
# ```
#
# [Masks in the wild](16_masks_in_the_wild.ipynb#cell-id=which-corner) has the mask for pieces.

# %% [markdown] name="hugging-face"
# ## A Hugging Face attention, and the tokenizer's mask
#
# In *transformers*, many models have a function `eager_attention_forward`; Llama's is typical
# [[transformers](../docs/references.md#transformers-eager)]. It takes heads that are split already, so it is easily
# copied into a model of one's own. Without its dropout and shared keys, this is what it does:


# %%
def eager(q: Tensor, k: Tensor, v: Tensor, attention_mask: Tensor | None) -> Tensor:
    scores = q @ k.mT / math.sqrt(q.size(-1))  # (b, h, n, m)
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = scores.softmax(-1, dtype=torch.float32).to(q.dtype)
    return (weights @ v).transpose(1, 2)  # (b, n, h, d)


# %% [markdown]
# A tokenizer's output has an `attention_mask`, too: 1 for each word, 0 for padding. It has the same
# name, and with `[:, None, None]` it fits. Take four words and four places of padding, and a query
# that scores 0 with all eight. How much of its attention does the padding keep: nothing, half, or
# about a quarter?
#
# <details><summary>What do you expect?</summary>
#
# About a quarter. The mask is *added*. A 1 makes every word $\exp(1)$ times as strong as padding, and
# nothing is hidden. In the library, the model turns the tokenizer's mask into 0 and the most negative
# number of the dtype before any layer sees it. That line is in another file.
#
# </details>

# %% tags=["fold-input"]
words, lowest = torch.tensor([1, 1, 1, 1, 0, 0, 0, 0]), torch.finfo(torch.float32).min
masks = {
    "none": None,
    "the tokenizer's": words,
    "the same, boolean": words.bool(),
    "what the model makes": (1 - words) * lowest,
}
q, k, v = torch.zeros(1, 1, 1, 6), torch.randn(1, 1, 8, 6), torch.eye(8)[None, None]
rows = {
    name: eager(q, k, v, mask).view(2, 4).sum(1).tolist() for name, mask in masks.items()
}
display.show(rows, columns=["words", "padding"], corner="attention_mask", heat=["padding"])

# %% tags=["proof"]
kept = {name: round(padding, 6) for name, (_, padding) in rows.items()}
share = round(1 / (1 + math.e), 6)
assert [*kept.values()] == [0.5, share, share, 0]
print("✓ Ones and zeros leave the padding its share: 1 part in 1 + exp(1).")

# %% [markdown]
# The padding keeps 0.27. (The library's fused path takes a boolean mask instead, under the same name.)
# **The repair** is to convert a mask once, where it comes in, and to name it after what it does: `bias`
# if it is added, `allowed` if True means seen.

# %% [markdown] name="the-annotated-transformer"
# ## *The Annotated Transformer*, and four equal matrices
#
# The page with the paper between its lines makes its four projections with two
# [[Rush 2018](../docs/references.md#rush-2018)] [[Huang et al.
# 2022](../docs/references.md#huang-2022), MIT licence]:
#
# ```python
# return nn.ModuleList([copy.deepcopy(module) for _ in range(N)])  # in clones(module, N)
# self.linears = clones(nn.Linear(d_model, d_model), 4)            # <- one matrix, four times
# ```
#
# A deep copy has the same numbers, so $W_Q$ and $W_K$ are one matrix when training begins. Every token
# then makes the same vector as query and as key, and of all keys of that length, none scores higher with a query
# than the query itself. Among 49 random tokens an even share is 0.02. How much does a token keep for itself: about an
# even share, ten times that, or nearly everything?
#
# <details><summary>What do you expect?</summary>
#
# About ten times. Its own key fits best, but `nn.Linear` draws small numbers, so that one score is not
# large enough to silence all the others.
#
# </details>


# %% tags=["fold-input"]
def clones(module: nn.Module, count: int) -> nn.ModuleList:
    return nn.ModuleList(copy.deepcopy(module) for _ in range(count))


def own_weight(to_query: nn.Module, to_key: nn.Module, x: Tensor) -> Tensor:
    """Give the mean weight with which a token sees itself, with 8 heads of width 64."""
    q, k = (to(x).unflatten(-1, (8, 64)).transpose(0, 1) for to in (to_query, to_key))
    return (q @ k.mT / 8).softmax(-1).diagonal(dim1=-2, dim2=-1).mean()


# %%
linears, x = clones(nn.Linear(512, 512), 4), torch.randn(49, 512)
copied = own_weight(*linears[:2], x)
for parameter in linears.parameters():
    if parameter.dim() > 1:
        nn.init.xavier_uniform_(parameter)
redrawn = own_weight(*linears[:2], x)
rows = {"the class alone": [copied], "after make_model": [redrawn], "even": [1 / 49]}
display.show(rows, columns=["weight on itself"], corner="started by")

# %% tags=["proof"]
fresh = clones(nn.Linear(512, 512), 4)
assert all(fresh[0].weight.equal(linear.weight) for linear in fresh)
assert copied > 8 / 49 > 4 / 49 > redrawn
assert linears[0].bias.equal(linears[1].bias)
own_weight(*fresh[:2], x).backward()
assert not fresh[0].weight.grad.allclose(fresh[1].weight.grad)
print("✓ All four start equal: a token keeps over eight even shares, redrawn under four.")

# %% [markdown]
# It keeps 0.23, eleven times an even share: the layer starts out looking at itself. That is measured at the start
# only; the gradients of the two matrices differ, so training can pull them apart. The page's own function
# `make_model` draws every matrix anew before training (the biases stay equal), and whoever copies the class alone
# leaves that behind. The mended line calls `nn.Linear` four times:
#
# ```python
# self.linears = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))
# ```

# %% [markdown] name="plain-list"
# ## A list of heads, and nothing to train
#
# From here on, the cards are wrong where they stand. An old post writes out the paper's formula word for word: a
# head is a module with projections of its own, and the heads stand in a list
# [[post](../docs/references.md#post-in-two-versions)]. As printed it stops, because it asks for
# `torch.ModuleList`, which does not exist. A plain Python list runs. Each of four heads has a weight and a bias. How
# many parameters does an optimizer find: eight, two or none?
#
# <details><summary>What do you expect?</summary>
#
# None. A module registers what is assigned to it if it is a module or a parameter. A list is neither, whatever
# is in it.
#
# </details>


# %%
class Listed(nn.Module):
    def __init__(self, kind: type) -> None:
        super().__init__()
        self.heads = kind(nn.Linear(24, 6) for _ in range(4))


counts = {
    kind.__name__: [len([*Listed(kind).parameters()])] for kind in (list, nn.ModuleList)
}
display.show(counts, columns=["parameters"], corner="heads in a")

# %% tags=["proof"]
assert [*counts.values()] == [[0], [8]]
unseen = Listed(list).double()
assert unseen.heads[0].weight.dtype == torch.float32
assert not unseen.state_dict()
print("✓ Neither the state_dict nor a change of dtype reaches heads in a plain list.")

# %% [markdown]
# So the heads stay as they were drawn, and a checkpoint forgets them, while the projection after them trains. **The
# repair** is `nn.ModuleList`.

# %% [markdown] name="a-factor-of-zero"
# ## Weighted scores, and a factor of zero
#
# A collection of papers in code lets the caller multiply the scores by factors, in one line before the softmax
# [[collection](../docs/references.md#paper-code-collection)]:
#
# ```python
# scores = scores * attention_weights  # <- (b, h, n, m)
# ```
#
# The name invites you to pass a factor of 0 for a key that should not be seen. Take a query of 1, and two keys of -3
# and 1, which are the scores as well. Without factors, key 0 has a weight of 0.02. With a factor of 0, does its weight
# fall to 0, stay, or grow?
#
# <details><summary>What do you expect?</summary>
#
# It grows. The factor multiplies the *score*, not the weight, and a score of 0 is larger than one of -3.
#
# </details>


# %% tags=["fold-input"]
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


# %% tags=["fold-input"]
query, values = (
    torch.ones(1, 1, 1, 1),
    torch.eye(2)[None, None],
)  # the output is the weights
keys = torch.tensor([-3.0, 1.0])[None, None, None]  # (1, 1, 1, 2)
rows = {
    "no factors": multiplied(query, keys, values, None, None),
    "factors 0 and 1": multiplied(query, keys, values, None, torch.tensor([0.0, 1.0])),
}
rows = {name: row.flatten().tolist() for name, row in rows.items()}
display.show(rows, columns=["key 0", "key 1"])

# %% [markdown]
# The factor that should hide the key raises its weight from 0.02 to 0.27. **The repair** is a docstring that says
# so: what should not be seen belongs into the mask.

# %% [markdown] name="shared-projection"
# ## Shared projection, and the formula above it
#
# The last card computes something else than it says [[Persson](../docs/references.md#persson)]. Its introduction
# prints the formula of multi-head attention, and the code below computes another function. It cuts the
# embedding into h slices first, and then projects every slice with the *same* small matrix: there are
# three, one each for queries, keys and values. Here are its scores, in our words.


# %%
def slice_scores(q: Tensor, k: Tensor, mask: Tensor | None, embed_size: int) -> Tensor:
    scores = torch.einsum("bnhd,bmhd->bhnm", q, k)  # (b, h, n, m)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e20)
    return scores / math.sqrt(embed_size)  # (b, h, n, m)


# %% tags=["fold-input"]
class SelfAttention(nn.Module):
    """The design as published: values come first, and 0 in the mask means blocked."""

    def __init__(self, embed_size: int, heads: int) -> None:
        super().__init__()
        self.embed_size, self.heads, d = embed_size, heads, embed_size // heads
        self.values, self.keys, self.queries = (nn.Linear(d, d, bias=False) for _ in "vkq")
        self.fc_out = nn.Linear(embed_size, embed_size)

    def forward(self, values, keys, query, mask=None):
        values, keys, query = (
            x.unflatten(-1, (self.heads, -1)) for x in (values, keys, query)
        )
        q, k, v = self.queries(query), self.keys(keys), self.values(values)
        weights = slice_scores(q, k, mask, self.embed_size).softmax(-1)  # (b, h, n, m)
        return self.fc_out(torch.einsum("bhnm,bmhd->bnhd", weights, v).flatten(2))


# %% [markdown]
# What does the sharing cost? To see it, write the design as one wide `nn.Linear`. A linear map shows its matrix when it
# is given the identity: so cut the identity matrix into three slices and project them. What comes out, transposed, is
# the weight of that wide layer. How many of its 36 numbers can training choose: 36, 12 or 4?
#
# <details><summary>What do you expect?</summary>
#
# Four. One small matrix of 2 × 2 stands three times along the diagonal. Everywhere else is zero, so no
# head sees another head's slice before the output projection.
#
# </details>

# %%
small = nn.Linear(2, 2, bias=False)  # for all three heads
wide = small(torch.eye(6).unflatten(-1, (3, 2))).flatten(1).mT  # (6, 6)
display.show(wide.detach(), range(6), range(6), heat=True)

# %% tags=["proof"]
assert wide.equal(torch.block_diag(*[small.weight] * 3))
x = torch.randn(5, 6)  # (5, 6)
slices = small(x.unflatten(-1, (3, 2))).flatten(1)
torch.testing.assert_close(F.linear(x, wide), slices)
print("✓ A linear layer with this weight gives what the small one gives, slice by slice.")

# %% [markdown]
# And there is a second slip. The formula divides the scores by $\sqrt{d_k}$, where $d_k$ is the width of
# one head; the code divides by $\sqrt e$. So its scores are too small by $\sqrt{e / d} = \sqrt h$. At the start that
# hardly shows, because the right divisor starts out flat as well, and training can make up for it with larger
# matrices.
#
# **The repair** divides by $\sqrt d$. Sharing a projection is a legitimate design, so the sharing stays: the final
# class equals it if its matrices are block-diagonal, as above.

# %% [markdown]
# <!-- deeper: The two divisors at the start, and the lines of the repair -->
# ### Going deeper: The two divisors at the start, and the lines of the repair
#
# Compare the divisors at the class's own start, with 500 tokens and 8 heads of width 32. A query's largest weight
# is given in even shares:

# %%
torch.manual_seed(0)
fresh, x, rows = SelfAttention(256, 8), torch.randn(1, 500, 8, 32), {}
q, k = fresh.queries(x), fresh.keys(x)  # (1, 500, 8, 32), (1, 500, 8, 32)
for name, width in (("√e, as published", 256), ("√d, as in the formula", 32)):
    scores = slice_scores(q, k, None, width)     # (1, 8, 500, 500)
    largest = scores.softmax(-1).amax(-1) * 500  # (1, 8, 500)
    rows[name] = [scores.std(), largest.median()]
columns = ["scores deviate by", "largest weight, even shares (median)"]
display.show(rows, columns=columns, corner="divided by", decimals=1)

# %% tags=["proof"]
flat, right = (largest for _, largest in rows.values())
assert 1.2 < flat < 2
assert 2 < right < 3
print("✓ Both start flat: with the right divisor under three even shares, else under two.")

# %% [markdown]
# Two helpers appear in most repairs of this chapter: `read_mask` refuses masks that do not fit, and turns
# them so that True means blocked; `masked_softmax` gives zeros to fully masked rows.

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

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="paste-your-class"
# ## Your own class
#
# You need not read a class line by line to find such a slip. Give it to the
# [doctor](17_testing_attention.ipynb#cell-id=the-doctor), with a line that says how it is called. To use it
# outside this book, install it as [its page](../docs/package/doctor.md) says, and write `from attention_doctor import
# adapt, examine`. This class takes values first, and a mask `(b, 1, n, m)` in which True means *allowed*:

# %%
patient = SelfAttention(24, 4)  # paste your class here
call = adapt(lambda q, k, v, m: patient(v, k, q, m), mask="b1nm allowed", module=patient)
report = examine(call, embed_dim=24, num_heads=4)
for finding in report.findings:
    print(f"{finding.severity}: {finding.code}\n  in {finding.where.text}")
    print(f"  {finding.remedy}\n")

# %% tags=["proof"]
assert report.codes == ("scale-by-model-width", "finite-fill-in-half")
assert not report.ok
print(
    "✓ It names the divisor and the fill, and not the sharing: only a formula forbids that."
)

# %% [markdown]
# It found the divisor, and the fill, which float16 cannot hold. (With -∞ alone a fully masked row becomes NaN; fill
# twice, -∞ before the softmax and 0 after it. After "in" stands the class's own line; the
# remedies show such lines as they are usually written.) It did not object to the sharing: that is
# another function, but a valid attention. Only you know which function you meant, so compare with a class
# that you trust, or count the parameters.

# %% [markdown] name="what-they-teach"
# ## Going deeper: seven older designs
#
# The last three cards belong to seven designs that turn up when one looks for an explanation with code.

# %% [markdown]
# <!-- deeper: All seven, in a table -->
# ### Going deeper: All seven, in a table
#
# Each name opens its lines, with its defects left in and run, and how it is mended. [The references](../docs/references.md)
# say which version was read; the post and the article are known only from copies without an address, so
# nobody can say whether they were mended.
#
# | design | where it goes wrong | mended since | what it teaches |
# |---|---|---|---|
# | [Module per head](#cell-id=module-per-head) [[post](../docs/references.md#post-in-two-versions)]: h small attentions in a list | stops at once: `torch.ModuleList` does not exist | not known | a plain list hides its parameters |
# | [Wide projection](#cell-id=wide-projection), the same post: one matrix for all heads | stops at `torch.bmm`; once that is mended, and if b = h, head i gets sample i's mask | not known | give every mask an axis of size 1 for the heads |
# | [Shared projection](#cell-id=shared-projection) [[Persson](../docs/references.md#persson)]: one small matrix for all heads | computes another function than its formula; divides by $\sqrt e$ | the projections, in later copies; not the divisor | compare with a class that you trust |
# | [Sequence first](#cell-id=sequence-first) [[labml](../docs/references.md#annotated-page)]: a method for the scores | stopped at valid masks if n ≠ m; has biases in spite of `bias=False` | February 2021: the mask and the fill; not the biases | try sizes that all differ |
# | [Weighted scores](#cell-id=weighted-scores) [[collection](../docs/references.md#paper-code-collection)]: factors on the scores | a factor of 0 does not block; starts with matrices far too small | not by December 2024 | look at the first weights |
# | [No projection](#cell-id=no-projection), the same collection: slices of the embedding | the same factors and the same start; heads cannot choose their features | not by December 2024 | count the parameters |
# | [Packed projection](#cell-id=packed-projection) [[article](../docs/references.md#article-through-the-source)]: PyTorch's source, step by step | stops if either mask is left out; returns weights `(b * h, n, m)` | not known | read the shape of what comes back |
#
# All seven mishandle the fully masked row. Two of them give it the mean of exactly what should be hidden,
# because their fills are finite: -1e20 (shared projection) and -1e28 (packed projection). Sequence first
# was a third, with -1e9, until it was mended; it now gives NaN, as the other four do. And no finite fill
# of this size fits into float16, so in that dtype those two stop at any mask.
#
# `annotated_book.published` holds [the repaired
# classes](../docs/package/published.md). They keep the layout, the order of arguments and the mask of
# the published ones, and give zeros for a fully masked row.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="module-per-head"
# <!-- deeper: Module per head -->
# ### Going deeper: Module per head
#
# The post writes out the paper's formula word for word [[Vaswani et al.
# 2017](../docs/references.md#vaswani-2017), section 3.2.2]: a head is a module with three small
# projections, the heads are a list, and one more projection follows. As printed, the constructor
# stops, because it asks for `torch.ModuleList` instead of `nn.ModuleList`. Each head also gets its
# two widths, e and d, in the wrong order. A [plain list](#cell-id=plain-list) is no way out.

# %%
attempt(lambda: torch.ModuleList())

# %% [markdown]
# **The repair.** An `nn.ModuleList`, the widths in order, and zeros for a fully masked row.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="wide-projection"
# <!-- deeper: Wide projection, and masks of other samples -->
# ### Going deeper: Wide projection, and masks of other samples
#
# In its second version, one wide matrix makes the queries of all heads, and two more make keys and
# values: [the reshape trick](04_reshape_trick.ipynb), for self-attention only. The file begins with
# `import torch.nn.Functional`, but the module's name has a lowercase f. It multiplies with
# `torch.bmm`, which takes three axes, and the tensors now have four. And its `forward` uses
# `d_model`, a name that only the constructor knows.
#
# Mend these, and the code runs. But the post still passes masks of shape `(b, n, n)`, one matrix for
# each sample, to a class whose scores are `(b, h, n, n)` now. Broadcasting aligns axes from the
# right, so the samples of the mask meet the *heads* of the scores. Most sizes crash. With two
# samples and two heads, sample 0 should see four keys, and sample 1 two:

# %%
q = torch.randn(2, 2, 5, 6)
attempt(lambda: torch.bmm(q, q.mT))
allowed = torch.ones(2, 5, 5)
allowed[0, :, 4:] = allowed[1, :, 2:] = 0
scores = q @ q.mT / math.sqrt(6)
weights = scores.masked_fill(allowed == 0, -math.inf).softmax(-1)
seen = (weights[:, :, 0] > 0).sum(-1)
assert seen.tolist() == [[4, 2], [4, 2]]
display.show(seen, ["sample 0", "sample 1"], ["head 0", "head 1"], corner="keys seen by")

# %% [markdown]
# Every row sums to 1, but head i of every sample gets the mask of sample i, a leak as in [Masks in
# the wild](16_masks_in_the_wild.ipynb#cell-id=the-shape-to-pass).
#
# **The repair.** The class takes masks of `(b, h, n, n)`, or with axes of size 1, and refuses those
# of `(b, n, n)`: their caller writes `mask[:, None]`.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="sequence-first"
# <!-- deeper: Sequence first, and a check of the wrong axis -->
# ### Going deeper: Sequence first, and a check of the wrong axis
#
# The token axis comes first, `(n, b, e)`, and all inputs are passed by keyword. A method of its own
# computes the scores, which a subclass may override, as relative attention does
# [[labml](../docs/references.md#annotated-page)]. The mask is `(n, m, b)`, 1 means allowed, and the
# first axis may have size 1. The listing computes the scores in `forward`.


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
# As published, `forward` also hands the weights to a tracker, whose package no longer has the
# function, so every call fails. And the check compares the size of the mask's first axis with the
# size of its *second*, so a mask with a row for each query is refused whenever n ≠ m and n > 1. The
# authors have since repaired this check, and changed the fill. The option `bias=False` does not do
# what it says.

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

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="weighted-scores"
# <!-- deeper: Weighted scores -->
# ### Going deeper: Weighted scores
#
# Queries and keys may have any width $d_k$ in each head, and values any $d_v$. Factors $A_i$ from
# outside multiply the scores of head i before the softmax
# [[collection](../docs/references.md#paper-code-collection)]; ⊙ multiplies element by element:
#
# $$\mathrm{head}_i = \mathrm{softmax}\!\left(A_i \odot \frac{Q W^Q_i (K W^K_i)^\top}{\sqrt{d_k}}\right) V
# W^V_i$$
#
# True means *blocked* here. The [factor of 0](#cell-id=a-factor-of-zero) you have seen; here is a fully masked row.

# %%
blocked_row = multiplied(query, keys, values, torch.ones(1, 2, dtype=torch.bool), None)
display.show(blocked_row.flatten()[None], ["fully masked"], ["key 0", "key 1"])

# %% [markdown]
# The start is a second defect. The entries of the matrices are drawn with a standard deviation of
# 0.001<!-- setting -->, whatever the width of the model. Send 49 tokens of variance 1 through the
# projections, once with Xavier's initial parameters and once with these. Look at the queries and
# keys of one head, 64 wide.

# %%
torch.manual_seed(0)
x, rows = torch.randn(49, 512), {}
for name in ("Xavier", "0.001"):
    both = torch.empty(2, 512, 512)
    for matrix in both:
        nn.init.xavier_uniform_(matrix) if name == "Xavier" else matrix.normal_(std=0.001)
    q, k = ((x @ matrix.mT)[:, :64] for matrix in both)  # (49, 64)
    weights = (q @ k.mT / 8).softmax(-1)                 # (49, 49)
    rows[name] = [q.std(), weights.max(), 1 / 49]
columns = ["queries deviate by", "largest weight", "an even share"]
display.show(rows, columns=columns, decimals=3, corner="initialised by")

# %% [markdown]
# With the small matrices, all keys get nearly the same weight, and training first has to undo this.
#
# **The repair.** The docstring now says that a factor of 0 does not block. A fully masked row gets
# zeros, and the initial parameters are Xavier's.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="no-projection"
# <!-- deeper: No projection -->
# ### Going deeper: No projection
#
# The same collection has a version with no projection at all: the embedding itself is cut into heads,
# `queries.unflatten(-1, (h, -1))`, and only the output is projected. Head i always compares slice i
# of the features, and training cannot change that. It has the same factors and the same NaN, and the
# small start shrinks its output:

# %%
module = published.NoProjection(512, 8)
nn.init.normal_(module.output.weight, std=0.001)
deviates, parameters = (
    module(*[x[None]] * 3).std(),
    sum(p.numel() for p in module.parameters()),
)
display.show(
    [[deviates, parameters]], ["no projection"], ["output deviates by", "parameters"]
)

# %% [markdown]
# **The repair** is that of the weighted scores.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="packed-projection"
# <!-- deeper: Packed projection, and its masks -->
# ### Going deeper: Packed projection, and its masks
#
# A long article takes PyTorch's own source apart and puts it back together
# [[article](../docs/references.md#article-through-the-source)]. One packed matrix projects queries,
# keys and values, and that works; the trouble is in the masks. Samples and heads are folded into one
# axis of length b · h, as in [Masks in the
# wild](16_masks_in_the_wild.ipynb#cell-id=heads-folded-into-the-batch). Both masks are merged, with
# True for blocked, and -1e28 is added to the scores that they block.


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
# Neither mask may be left out. An `assert` demands the padding mask, and the attention mask is merged
# without a check for None. With `bias=False`, the constructor crashes, since it still sets the output's
# bias to zero. And the weights are documented as `(b, h, n, m)`, but they come out folded. The article's
# shortest version takes its parameters from `torch.empty` and never sets them.

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
# <!-- /deeper -->

# %% [markdown]
# One test holds for all seven, *parity*, as in [Testing
# attention](17_testing_attention.ipynb#cell-id=parity-the-same-parameters-the-same-result): each repaired
# design, and a final class that gets its parameters (without factors, and with $d_k = d_v = e / h$), must give the
# same outputs and gradients.


# %% tags=["proof"]
def compare(name: str, b=2, n=3, m=5, h=4, d=6) -> None:
    """Compare a repaired design with the final class: outputs and gradients."""
    design = DESIGNS[name]
    module, reference = (x.double() for x in design.pair(h * d, h))  # one set of parameters
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
designs = DESIGNS.values()
assert {x.layout for x in designs} == {"(b, n, e)", "(n, b, e)"}
assert sum(x.true_means == "allowed" for x in designs) == 4
print("✓ All seven, repaired, give what the final class gives: outputs and gradients.")

# %% [markdown]
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
# Look at the weight printed in [Shared projection](#cell-id=shared-projection). What is outside the blocks?
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
# You have read six cards. Three are right at home, and go wrong where somebody adds a cache, passes
# another mask, or leaves a function behind. Three were wrong when they were printed; they and the other older ones
# agree with the final class once they are repaired. The salt is back on the card.
#
# > **In short.** Repaired, all seven older designs compute a version of $\mathrm{softmax}(Q_i K_i^\top / \sqrt d)\, V_i$
# > for each of h heads, and apply one projection at the end.
# >
# > Layouts `(b, n, e)` and `(n, b, e)`; masks `(b, n, m)`, `(n, m, b)`, `(b, h, n, m)` and
# > `(b * h, n, m)`; True means allowed in four designs and blocked in three.
# >
# > ```python
# > from attention_doctor import adapt, examine
# >
# > # in your class's own order of arguments, and with its own mask
# > call = adapt(lambda q, k, v, m: yours(v, k, q, m), mask="b1nm allowed", module=yours)
# > examine(call, embed_dim=24, num_heads=4)
# > ```
# >
# > Look for defects that keep every shape: a causal flag beside a cache, zeros and ones that are added
# > as a mask, matrices that start as copies of one, a wrong divisor, a mask on the wrong axis, a mean over hidden keys. To bring them out, use sizes
# > that all differ, a fully masked row, and a comparison with a class that you trust.
#
# One chapter is left for the class: [write it from memory](19_from_memory.ipynb).
