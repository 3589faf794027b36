# %% [markdown]
# # Batches
#
# *Where does the batch go?*
#
# So far one sequence at a time. Real data come b at a time, and code in the wild puts the new axis
# in three places: first, second, or folded into the heads. You write each form once, prove that all
# are equal, see what each copies, and learn why your test sizes should all differ.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map("split", "score", "mix", "merge")

# %% [markdown]
# ## Two conventions
#
# **Batch-first** is `(b, n, e)`: a list of sentences. **Sequence-first** is `(n, b, e)`: first the
# first word of every sentence, then the second of each. Recurrent networks like the latter, since
# they step through n; `torch.nn.MultiheadAttention` still expects it, unless it is told
# `batch_first=True`. One `transpose(0, 1)` leads from either to the other.

# %%
import torch
from torch import Tensor, nn

from annotated_attention import chapters, merge_heads, split_heads

one = chapters.load("01_one_head")

# %%
torch.manual_seed(5)
b, n, m, h, d = 2, 3, 5, 4, 6
q = torch.randn(b, n, h * d, dtype=torch.float64, requires_grad=True)  # (b, n, h * d)
k = torch.randn(b, m, h * d, dtype=torch.float64, requires_grad=True)  # (b, m, h * d)
v = torch.randn(b, m, h * d, dtype=torch.float64, requires_grad=True)  # (b, m, h * d)
print("batch-first", tuple(q.shape), "- sequence-first", tuple(q.transpose(0, 1).shape))

# %% [markdown]
# These stand for queries, keys and values that are already projected; the projections multiply the
# last axis and do not care what is in front of it. n and m differ: it is cross-attention, and
# self-attention is the case n = m.
#
# First the slow, plain way that all others have to match: one sequence after the other.


# %%
def one_by_one(q: Tensor, k: Tensor, v: Tensor, h: int) -> Tensor:
    """Attend within each sequence of a batch, in a loop.

    Args:
        q: (b, n, h * d), batch-first.
        k: (b, m, h * d), batch-first.
        v: (b, m, h * d), batch-first.
        h: the number of heads.
    """
    outputs = []
    for i in range(len(q)):
        parts = (split_heads(x[i], h) for x in (q, k, v))
        heads, _ = one.attend(*parts)  # (h, n, d), (h, n, m)
        outputs.append(merge_heads(heads))
    return torch.stack(outputs)        # (b, n, h * d)


print(tuple(one_by_one(q, k, v, h).shape))

# %% [markdown]
# ## Four axes
#
# Attention treats a sample and a head alike: as one more independent problem. So give each an axis,
# `(b, h, n, d)`. `split_heads` does it as it is, since it only looks at the last two axes, and
# `attend` runs over all axes in front.


# %%
def four_axes(q: Tensor, k: Tensor, v: Tensor, h: int) -> Tensor:
    """Attend with batch and heads on axes of their own; batch-first."""
    q, k = split_heads(q, h), split_heads(k, h)     # (b, h, n, d), (b, h, m, d)
    heads, _ = one.attend(q, k, split_heads(v, h))  # (b, h, n, d), (b, h, n, m)
    return merge_heads(heads)                       # (b, n, h * d)


# %%
display.diff(one_by_one, four_axes)

# %% [markdown]
# The loop is gone. The proof that nothing else is comes below, for all forms together.
#
# ## Folded
#
# If samples and heads are alike, one axis can hold both. In sequence-first memory this is one view:
# `(n, b, h * d)` → `(n, b * h, d)`, since in memory the heads of a sample lie side by side; then the
# new axis goes to the front, `(b * h, n, d)`.


# %%
def fold(x: Tensor, h: int) -> Tensor:
    """Make one batch of all heads of all samples.

    Args:
        x: (n, b, h * d), sequence-first.
        h: the number of heads.
    """
    n, b, width = x.shape
    side_by_side = x.reshape(n, b * h, width // h)  # (n, b * h, d)
    return side_by_side.transpose(0, 1)             # (b * h, n, d)


def folded(q: Tensor, k: Tensor, v: Tensor, h: int) -> Tensor:
    """Attend with batch and heads folded into one axis; sequence-first."""
    n, b, _ = q.shape
    parts = (fold(x, h) for x in (q, k, v))
    heads, _ = one.attend(*parts)                   # (b * h, n, d), (b * h, n, m)
    return heads.transpose(0, 1).reshape(n, b, -1)  # (n, b, h * d)


# %%
first = [x.transpose(0, 1) for x in (q, k, v)]
print("sequence-first", tuple(first[0].shape), "->", tuple(fold(first[0], h).shape))
print("and back      ", tuple(folded(*first, h).shape))

# %% [markdown]
# In which order? Counted from 0, slice $r = i \cdot h + j$ is sample i, head j: all heads of the first
# sample come first. A mask for each slice has to follow the same order; [Masks in the
# wild](14_masks_in_the_wild.ipynb#heads-folded-into-the-batch) comes back to that. Here the
# function has folded a tensor whose cells say where they come from:

# %% jupyter={"source_hidden": true}
from matplotlib.patches import Rectangle

samples = torch.arange(2)[None, :, None]                   # (1, 2, 1)
origin = (samples * 10 + torch.arange(4)).expand(1, 2, 4)  # (1, 2, 4)
order = fold(origin, 4).flatten().tolist()
drawing, axes = display.panels(520, 150, columns=2)
for r, (i, j) in enumerate(divmod(number, 10) for number in order):
    for ax, x, y in ((axes[0], j, i), (axes[1], r, 0.5)):
        colour = display.COLOURS["bh"[i]]
        ax.add_patch(Rectangle((x, y), 0.94, 0.9, color=colour, alpha=0.3))
        ax.text(x + 0.47, y + 0.45, f"{i},{j}", ha="center", va="center")
    axes[1].text(r + 0.47, 1.8, str(r) if r else "r = 0", ha="center")
for ax, width, title in zip(axes, (4, 8), ("samples × heads", "folded: slice r is i, j")):
    ax.set(xlim=(0, width), ylim=(2, 0), title=title)
    ax.axis("off")
folded_order = ", ".join(f"{i},{j}" for i, j in (divmod(number, 10) for number in order))
alt = f"Left, samples i and heads j. Right, the folded axis, in this order: {folded_order}."
display.finish(drawing, name="the-fold", alt=alt)

# %% [markdown]
# ## By name
#
# `einsum` is told what each axis is, and no axis has to move. It reads like the formula.


# %%
def by_name(q: Tensor, k: Tensor, v: Tensor, h: int) -> Tensor:
    """Attend with named axes; batch-first."""
    q, k, v = (x.unflatten(-1, (h, -1)) for x in (q, k, v))
    scores = torch.einsum("bnhd,bmhd->bhnm", q, k) / q.size(-1) ** 0.5  # (b, h, n, m)
    heads = torch.einsum("bhnm,bmhd->bnhd", scores.softmax(-1), v)      # (b, n, h, d)
    return heads.flatten(-2)                                            # (b, n, h * d)


# %% [markdown]
# ## All equal
#
# Every form, the outputs and the gradients of queries, keys and values, against the loop. And the
# loop against `torch.nn.MultiheadAttention` in both of its conventions, with identity matrices in
# place of the projections, which are not this chapter's concern.


# %%
def folded_batch_first(q: Tensor, k: Tensor, v: Tensor, h: int) -> Tensor:
    """Attend folded, from and to batch-first."""
    first = (x.transpose(0, 1) for x in (q, k, v))
    return folded(*first, h).transpose(0, 1)  # (b, n, h * d)


FORMS = {"four axes": four_axes, "folded": folded_batch_first, "by name": by_name}
slow = one_by_one(q, k, v, h)  # (b, n, h * d)
expected = one.gradients(slow, [q, k, v])
for name, form in FORMS.items():
    output = form(q, k, v, h)  # (b, n, h * d)
    torch.testing.assert_close(output, slow)
    torch.testing.assert_close(one.gradients(output, [q, k, v]), expected)
    print(f"{name:>10}: equal, and so are the gradients")

# %%
for batch_first in (True, False):
    torchs = nn.MultiheadAttention(h * d, h, bias=False, batch_first=batch_first).double()
    with torch.no_grad():
        torchs.in_proj_weight.copy_(torch.eye(h * d).repeat(3, 1))
        torchs.out_proj.weight.copy_(torch.eye(h * d))
    given = [x if batch_first else x.transpose(0, 1) for x in (q, k, v)]
    theirs, _ = torchs(*given)
    theirs = theirs if batch_first else theirs.transpose(0, 1)  # (b, n, h * d)
    torch.testing.assert_close(theirs, slow)
    torch.testing.assert_close(one.gradients(theirs, [q, k, v]), expected)
    print(f"PyTorch, batch_first={batch_first}: equal, and so are the gradients")

# %% [markdown]
# ## What equal sizes hide
#
# > **Pitfall.** Sequence-first data in batch-first code. In self-attention nothing fails, whatever
# > the sizes: the output has the right shape. But the words of a sentence never meet, and every word
# > attends to the words at its place in the *other* sentences.

# %%
x = torch.randn(n, b, h * d, dtype=torch.float64, requires_grad=True)  # (n, b, h * d)
wrong = four_axes(x, x, x, h)                                          # (n, b, h * d)
reaction = torch.autograd.grad(wrong[0, 0].sum(), x)[0].abs().sum(-1)  # (n, b)
print("shape", tuple(wrong.shape), "as it should be; word 1 of sentence 1 reacts to")
for sentence, row in enumerate(reaction.T.tolist(), 1):
    print(f"  the words of sentence {sentence}:", [round(number, 2) for number in row])

# %% [markdown]
# Sentence 1 reacts to sentence 2, and word 1 to no other word. Cross-attention shows the same mistake
# at once, if n and m differ and neither is 1, which would be stretched to fit:

# %%
for samples, queries, keys in ((4, 4, 4), (2, 1, 5), (2, 3, 5)):
    query = torch.randn(queries, samples, 24)  # (..., 24)
    key = torch.randn(keys, samples, 24)       # (..., 24)
    print(f"b = {samples}, n = {queries}, m = {keys}", end=" ")
    try:
        print("runs, and gives", tuple(by_name(query, key, key, h).shape))
    except RuntimeError as error:
        print("stops:", str(error).split(" which")[0])

# %% [markdown]
# The second runs and gives the wrong shape. That is why the sizes in our comparisons all differ, and
# why a test of self-attention alone is not enough.
#
# ## What each copies
#
# Count the numbers that are copied because memory does not fit, with a counter like that of chapter
# 2. PyTorch calls such a copy `clone`.


# %%
from torch.utils._python_dispatch import TorchDispatchMode


class Copies(TorchDispatchMode):
    """Counts the numbers that are copied inside its ``with`` block."""

    numbers = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        if operation is torch.ops.aten.clone.default:
            self.numbers += args[0].numel()
        return operation(*args, **(kwargs or {}))


# %%
inputs = [x.detach() for x in (q, k, v)]
sequence_first = [x.transpose(0, 1).contiguous() for x in inputs]
print("numbers in q, k and v together:", sum(x.numel() for x in inputs))
ways = {
    "four axes, batch-first": (four_axes, inputs),
    "by name, batch-first": (by_name, inputs),
    "folded, sequence-first": (folded, sequence_first),
    "folded, batch-first": (folded_batch_first, inputs),
}
for name, (form, given) in ways.items():
    with Copies() as copies:
        form(*given, h)
    print(f"{name:>24}: {copies.numbers:4} copied")

# %% [markdown]
# Sequence-first, the fold gives `@` something that it can walk by strides: only the merge at the end
# copies. Batch-first, samples and heads are not neighbours in memory, and in all three ways queries,
# keys and values are copied once.
#
# ## Which form the final class uses
#
# PyTorch has a **fused kernel**: one routine from queries, keys and values to the output, which never
# stores the weights. It takes `(b, h, n, d)` and walks it by strides, so the copies go away.


# %%
from annotated_attention import MultiheadAttention, scaled_dot_product_attention


def fused(q: Tensor, k: Tensor, v: Tensor, h: int) -> Tensor:
    """Attend with four axes through the fused kernel; batch-first."""
    parts = (split_heads(x, h) for x in (q, k, v))
    heads = scaled_dot_product_attention(*parts, need_weights=False)[0]  # (b, h, n, d)
    return merge_heads(heads)                                            # (b, n, h * d)


output = fused(q, k, v, h)  # (b, n, h * d)
torch.testing.assert_close(output, slow)
torch.testing.assert_close(one.gradients(output, [q, k, v]), expected)
with Copies() as copies:
    fused(*inputs, h)
print(f"four axes, fused: equal, and {copies.numbers} copied")


# %% [markdown]
# So the package's own `MultiheadAttention` works on `(b, h, n, d)` in both conventions. Its attention
# step can be overridden; this one only tells what it is given. Weights are asked for by default, and
# cost the copies, since the fused kernel has none to give:


# %%
class Telling(MultiheadAttention):
    """Says what its attention step is given."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **options):
        print(f"batch_first={self.batch_first}, inside:", tuple(q.shape), tuple(k.shape))
        return super().attend(q, k, v, **options)


for batch_first in (True, False):
    module = Telling(h * d, h, bias=False, batch_first=batch_first, dtype=torch.float64)
    with torch.no_grad():
        module.in_proj_weight.copy_(torch.eye(h * d).repeat(3, 1))
        module.out_proj.weight.copy_(torch.eye(h * d))
    given = inputs if batch_first else sequence_first
    for need_weights in (True, False):
        with Copies() as copies:
            ours, _ = module(*given, need_weights=need_weights)
        print(f"    need_weights={need_weights}: {copies.numbers} copied")
        ours = ours if batch_first else ours.transpose(0, 1)  # (b, n, h * d)
        torch.testing.assert_close(ours, slow)

# %% [markdown]
# ## Exercises
#
# ### The fold in words
#
# *Easy, 5 minutes.* The library einops takes an axis operation as a sentence: `"n b e -> b n e"`
# exchanges two axes, and `(h d)` is one axis made of two, where h counts the outer steps and d the
# inner ones. Write the fold of this chapter, from sequence-first with all heads side by side to one
# batch of heads. Use the letters n, b, h and d. The check reads the sentence itself, so einops need
# not be installed.

# %% tags=["exercise"]
pattern = ""  # your sentence here

# %%
from annotated_attention import exercises

exercises.batches.check_pattern(pattern)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Left of the arrow stands what comes in: three axes, and the last is made of heads and their
# features.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# In Q, the d features of a head are neighbours. So d is the inner one of the two.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Right of the arrow stand three axes, too: slices, tokens, features. Slice 1 is the second head of
# the first sample.
#
# </details>

# %% tags=["solution"] jupyter={"source_hidden": true}
pattern = "n b (h d) -> (b h) n d"

exercises.batches.check_pattern(pattern)

# %% [markdown]
# ### What self-attention does not tell
#
# *Medium, 15 minutes.* This function is batch-first and has no projections: query is `(b, n, e)`, key
# and value are `(b, m, e)`. It passes every test of self-attention, and it is still wrong. Find out
# what such tests cannot see, then repair it, so that it returns `(b, n, e)` for any n and m.


# %% tags=["exercise"]
def attend_heads(query: Tensor, key: Tensor, value: Tensor, num_heads: int) -> Tensor:
    """Attend with several heads, without projections."""
    b, n, e = query.shape
    q, k, v = (x.reshape(b, n, num_heads, -1).transpose(1, 2) for x in (query, key, value))
    mixed, _ = one.attend(q, k, v)
    return mixed.transpose(1, 2).reshape(b, n, e)  # repair this, or a line above


# %%
exercises.batches.check_attend_heads(attend_heads)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# In self-attention n = m. Call it with 3 queries and 5 keys, and print the shapes of `q`, `k` and
# `v`.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A reshape with -1 fits almost anything. Which number is wrong for the key, and what does -1 turn
# into because of it?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# The width of a head is e / h, for all three. Say that, and leave the number of tokens to each
# tensor. The output has a row for each query.
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
def attend_heads(query: Tensor, key: Tensor, value: Tensor, num_heads: int) -> Tensor:
    """Attend with several heads, without projections.

    Args:
        query: (b, n, e), batch-first.
        key: (b, m, e), batch-first.
        value: (b, m, e), batch-first.
        num_heads: how many.
    """
    b, n, e = query.shape
    d = e // num_heads
    q = query.reshape(b, -1, num_heads, d).transpose(1, 2)  # (b, h, n, d)
    k = key.reshape(b, -1, num_heads, d).transpose(1, 2)    # (b, h, m, d)
    v = value.reshape(b, -1, num_heads, d).transpose(1, 2)  # (b, h, m, d)
    mixed, _ = one.attend(q, k, v)                          # (b, h, n, d), (b, h, n, m)
    return mixed.transpose(1, 2).reshape(b, n, e)           # (b, n, e)


exercises.batches.check_attend_heads(attend_heads)

# %% [markdown]
# ## What you have now
#
# To attention, a sample and a head are the same thing: one more problem to solve on the side. They
# may share an axis, `(b * h, n, d)`, or have one each, `(b, h, n, d)`; the numbers are equal, and so
# are the gradients. Tests need sizes that all differ, and n ≠ m. Some words are still looked at that
# should not be: padding, and the future. [The next
# chapter](06_masks.ipynb) hides them.
