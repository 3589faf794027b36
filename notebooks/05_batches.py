# %% [markdown]
# # Batches
#
# *Where does the batch go?*
#
# > the cat drank milk because **it** was thirsty
# >
# > the cat drank milk because **it** was sweet
#
# In practice a model processes many sentences together, because hardware is fastest on many numbers
# at once. A tensor then needs one more axis, the batch, which the strip below leaves out. Published
# code puts this axis first, puts it second, or folds it into the heads. In this chapter you write
# attention for each of these **layouts**, check that all give the same numbers, and see a mistake
# that self-attention never reports.
#
# Think of a batch as a house with one sentence in each room. Words talk to the other words in their
# room, never through a wall. Every layout is another way to number the same rooms.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map("split", "score", "softmax", "mix", "merge")

# %% [markdown]
# ## Batch first or second
#
# Put the two sentences into one tensor. They differ only in their last word. An item of a batch is called
# a **sample**; here a sample is a sentence.

# %%
import torch
from torch import Tensor, nn

from annotated_attention import chapters, merge_heads, split_heads

one = chapters.load("01_one_head")

b, n, h, d = 2, 8, 2, 2
x = torch.stack([one.EMBEDDINGS, one.SWEET_EMBEDDINGS])  # (b, n, h * d)
sequence_first = x.transpose(0, 1)                       # (n, b, h * d)
print("batch-first", tuple(x.shape))
print("sequence-first", tuple(sequence_first.shape))

# %% [markdown]
# **Batch-first** is `(b, n, e)`, a list of sentences; here e = h · d. **Sequence-first** is
# `(n, b, e)`, named after n, the axis that runs along the sequence. It holds the first word of
# every sentence, then the second word of every sentence, and so on. This layout suits recurrent
# networks, an older kind of model that reads word by word. `torch.nn.MultiheadAttention` still
# expects sequence-first data, unless it is told `batch_first=True`. One `transpose(0, 1)` leads
# from either layout to the other.
#
# `x.reshape(8, 2, 4)` gives the same shape. Is the result sequence-first, too?
#
# <details><summary>What do you expect?</summary>
#
# No. A reshape keeps the order of the numbers in memory, and that order is one whole sentence after
# the other. So each pair holds two neighbours from *one* sentence instead of one word from *each*
# sentence.
#
# </details>
#
# The cell numbers the 16 words of the batch, arranges the numbers in both ways, and prints the words
# that they stand for.

# %%
sentences = (one.WORDS, one.SWEET)
number = torch.arange(16).view(2, 8)  # (2, 8)
for name, arranged in (("transpose", number.T), ("reshape", number.reshape(8, 2))):
    pairs = [[sentences[i // 8][i % 8] for i in row] for row in arranged.tolist()]
    print(f"{name:>9}:", "  ".join("/".join(pair) for pair in pairs))

# %% [markdown]
# The transpose puts the two last words, *thirsty* and *sweet*, side by side. The reshape puts
# *thirsty* beside *was*.
#
# ## One sentence after the other
#
# Start with the plain, slow way: a loop over the sentences. Every faster function below must give
# the same result. To keep the numbers readable, the heads work on the features as they are, without
# projections. The first head has *animal* and *food*, and the second has *action* and *quality*.
# Projections work on the last axis alone, so a batch changes nothing for them.


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
        parts = (split_heads(each[i], h) for each in (q, k, v))
        heads, _ = one.attend(*parts)  # (h, n, d), (h, n, m)
        outputs.append(merge_heads(heads))
    return torch.stack(outputs)        # (b, n, h * d)


slow = one_by_one(x, x, x, h)  # (b, n, h * d)
it = one.WORDS.index("it")
one.show(["it, thirsty", "it, sweet"], one.FEATURES, slow[:, it])
torch.testing.assert_close(slow[0, it, [0, 1]], slow[1, it, [1, 0]])  # animal and food swap

# %% [markdown]
# In the first sentence *it* collects more *animal* than *food* (1.29 against 1.01). In the second
# sentence the two numbers trade places, because *thirsty* fits the animal and *sweet* fits the
# food. The rooms are separate: each sentence gets the output that it would get alone.
#
# ## Four axes
#
# For attention, a sentence and a head are alike: each is a problem of its own, computed without the
# others. So give sentences and heads an axis each, `(b, h, n, d)`. The package's `split_heads`
# counts its axes from the end, `x.unflatten(-1, (h, -1)).transpose(-3, -2)`, so any axes may stand
# in front. The `transpose(0, 1)` of the last chapter would now swap the wrong axes. `attend` runs
# over all axes in front, too, so the loop disappears.


# %%
def four_axes(q: Tensor, k: Tensor, v: Tensor, h: int) -> Tensor:
    """Attend with batch and heads on axes of their own; batch-first."""
    q, k = split_heads(q, h), split_heads(k, h)     # (b, h, n, d), (b, h, m, d)
    heads, _ = one.attend(q, k, split_heads(v, h))  # (b, h, n, d), (b, h, n, m)
    return merge_heads(heads)                       # (b, n, h * d)


# %% [markdown]
# ## Folded
#
# If sentences and heads are alike, one axis can hold both, `(b * h, n, d)`. Much published code
# does this, since `torch.bmm`, PyTorch's matrix product for a batch, takes exactly three axes.
#
# Two steps fold sequence-first data. First, a reshape from `(n, b, h * d)` to `(n, b * h, d)` cuts
# the last axis into h and d, and joins b with h. That is safe here, because b and h are neighbours
# and keep their order. Second, a transpose moves the joined axis to the front. The way back undoes
# both steps, in reverse order.


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
    parts = (fold(each, h) for each in (q, k, v))
    heads, _ = one.attend(*parts)                   # (b * h, n, d), (b * h, n, m)
    return heads.transpose(0, 1).reshape(n, b, -1)  # (n, b, h * d)


# %%
back = folded(sequence_first, sequence_first, sequence_first, h)  # (n, b, h * d)
print("folded", tuple(fold(sequence_first, h).shape), "and back", tuple(back.shape))
assert fold(sequence_first, h).equal(split_heads(x, h).flatten(0, 1))

# %% [markdown]
# One line folds batch-first data, `split_heads(x, h).flatten(0, 1)`; the `assert` above has checked
# that this line gives the same tensor.
#
# Call each entry of the folded axis a slice: one head of one sample, `(n, d)`. In which order do
# the slices come? Counted from 0, slice r = i · h + j is head j of sample i. So all heads of the
# first sample come first, then all heads of the second. For the figure, `fold` gets a tensor whose
# entries record where they came from. This tensor has four heads, so that the two axes differ in
# length.

# %% jupyter={"source_hidden": true}
from matplotlib.patches import Rectangle


def draw_slice(ax, left: float, top: float, i: int, j: int) -> None:
    alpha, colours = (0.04, 0.12)[i], display.COLOURS
    ax.add_patch(Rectangle((left, top), 0.95, 0.9, color=colours["b"], alpha=alpha, lw=0))
    ax.text(left + 0.26, top + 0.45, f"i={i}", ha="center", va="center", fontsize=9)
    place = {"ha": "center", "va": "center", "fontsize": 9}
    ax.text(left + 0.7, top + 0.45, f"j={j}", color=colours["h"], **place)


samples = torch.arange(2)[None, :, None]                   # (1, 2, 1)
origin = (samples * 10 + torch.arange(4)).expand(1, 2, 4)  # (1, 2, 4)
order = [divmod(number, 10) for number in fold(origin, 4).flatten().tolist()]

# %% jupyter={"source_hidden": true}
drawing, (ax,) = display.panels(440, 240)
for r, (i, j) in enumerate(order):
    draw_slice(ax, 2 + j, i, i, j)
    draw_slice(ax, r, 3.1, i, j)
    ax.text(r + 0.47, 4.45, str(r) if r else "r = 0", ha="center")
ax.text(4, -0.2, "samples × heads", ha="center")
ax.text(4, 2.9, "folded: slice r", ha="center")
ax.set(xlim=(0, 8), ylim=(4.6, -0.7))
ax.axis("off")
listed = ", ".join(f"{i},{j}" for i, j in order)
alt = f"Above, samples i and heads j. Below, the folded axis, in this order: {listed}."
display.finish(drawing, name="the-fold", alt=alt)

# %% [markdown]
# ## By name
#
# `einsum` names each axis by a letter. Its first argument lists the axes of each input, separated
# by a comma, then an arrow, then the axes of the result. A letter that does not appear after the
# arrow is summed over: d in the scores, m in the mixture. You move no axis yourself, because the
# letters say which axes meet.


# %%
def by_name(q: Tensor, k: Tensor, v: Tensor, h: int) -> Tensor:
    """Attend with named axes; batch-first."""
    q, k, v = (each.unflatten(-1, (h, -1)) for each in (q, k, v))
    scores = torch.einsum("bnhd,bmhd->bhnm", q, k) / q.size(-1) ** 0.5  # (b, h, n, m)
    heads = torch.einsum("bhnm,bmhd->bnhd", scores.softmax(-1), v)      # (b, n, h, d)
    return heads.flatten(-2)                                            # (b, n, h * d)


# %% [markdown]
# ## The same number in every layout
#
# Follow one number through the layouts: the *quality* of *sweet*. For each layout the cell prints the
# shape, its axes, and the index at which the number stands.

# %%
layouts = {
    "batch-first": (x, "b, n, e", (1, 7, 3)),
    "sequence-first": (sequence_first, "n, b, e", (7, 1, 3)),
    "four axes": (split_heads(x, h), "b, h, n, d", (1, 1, 7, 1)),
    "folded": (fold(sequence_first, h), "b·h, n, d", (3, 7, 1)),
}
for name, (layout, axes, index) in layouts.items():
    print(f"{name:>14}: {f'({axes})':12} {tuple(layout.shape)!s:12}", end=" ")
    print(f"index {index!s:12} holds {layout[index]:.0f}")
    assert layout[index] == x[1, 7, 3]

# %% [markdown]
# The second sentence is index 1 of b, *sweet* is index 7 of n, and *quality* is feature 3, which is
# feature 1 of head 1. In the folded layout, sentence 1 and head 1 become slice 1 · 2 + 1 = 3.
#
# ## All equal
#
# Each function has to give the same output as the loop. A wrapper lets `folded` take batch-first
# data, too.


# %%
def folded_batch_first(q: Tensor, k: Tensor, v: Tensor, h: int) -> Tensor:
    """Attend with batch and heads folded into one axis; batch-first."""
    first = (each.transpose(0, 1) for each in (q, k, v))
    return folded(*first, h).transpose(0, 1)  # (b, n, h * d)


FUNCTIONS = {"four axes": four_axes, "folded": folded_batch_first, "by name": by_name}
for name, function in FUNCTIONS.items():
    torch.testing.assert_close(function(x, x, x, h), slow)
    print(f"{name:>10}: the same as one sentence after the other")

# %% [markdown]
# <!-- deeper: gradients, cross-attention, and PyTorch -->
# ### Going deeper: gradients, cross-attention, and PyTorch
#
# The check above has as many queries as keys, and as many heads as samples. This check takes sizes
# that all differ: 2 samples, 3 queries, 5 keys, 4 heads of width 6. It compares outputs and the
# gradients of queries, keys and values.

# %%
torch.manual_seed(5)
q = torch.randn(2, 3, 24, dtype=torch.float64, requires_grad=True)  # (2, 3, 24)
k = torch.randn(2, 5, 24, dtype=torch.float64, requires_grad=True)  # (2, 5, 24)
v = torch.randn(2, 5, 24, dtype=torch.float64, requires_grad=True)  # (2, 5, 24)

loop = one_by_one(q, k, v, 4)  # (2, 3, 24)
expected = one.gradients(loop, [q, k, v])
for name, function in FUNCTIONS.items():
    output = function(q, k, v, 4)  # (2, 3, 24)
    torch.testing.assert_close(output, loop)
    torch.testing.assert_close(one.gradients(output, [q, k, v]), expected)
    print(f"{name:>10}: equal, and so are the gradients")

# %% [markdown]
# PyTorch's class has to agree in both layouts. Identity matrices stand in for its projections.

# %%
for batch_first in (True, False):
    torchs = nn.MultiheadAttention(24, 4, bias=False, batch_first=batch_first).double()
    with torch.no_grad():
        torchs.in_proj_weight.copy_(torch.eye(24).repeat(3, 1))
        torchs.out_proj.weight.copy_(torch.eye(24))
    given = [each if batch_first else each.transpose(0, 1) for each in (q, k, v)]
    theirs, _ = torchs(*given)
    theirs = theirs if batch_first else theirs.transpose(0, 1)  # (2, 3, 24)
    torch.testing.assert_close(theirs, loop)
    torch.testing.assert_close(one.gradients(theirs, [q, k, v]), expected)
    print(f"PyTorch, batch_first={batch_first}: equal, and so are the gradients")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## What equal sizes hide
#
# Now look at a mistake. Someone hands sequence-first data, (8, 2, 4), to code that expects
# batch-first data. The code takes the 8 words for 8 samples, and the 2 sentences for 2 words. What
# happens: an error, a wrong shape, or wrong numbers?
#
# <details><summary>What do you expect?</summary>
#
# Wrong numbers in the right shape. Self-attention works for any number of samples and words, so
# nothing can fail. But each room now holds the words at one place of every sentence. A word meets
# itself and the words at the same place in the other sentences, but no other word of its own
# sentence.
#
# </details>
#
# The cell measures how strongly the row of *it* reacts to each place of either sentence. The
# measure is the absolute gradient, added up over the four features.

# %%
given = sequence_first.clone().requires_grad_()               # (n, b, h * d)
wrong = four_axes(given, given, given, h)                     # (n, b, h * d)
gradient = torch.autograd.grad(wrong[it, 0].sum(), given)[0]  # (n, b, h * d)
print("shape", tuple(wrong.shape), "is right")
print("In the sentence with “thirsty”, the row of “it” reacts to:")
one.show(["… thirsty", "… sweet"], [*one.WORDS[:-1], "last"], gradient.abs().sum(-1).T)
assert gradient.any(-1).nonzero().tolist() == [[it, 0], [it, 1]]

# %% [markdown]
# > **Pitfall.** Someone hands sequence-first data to batch-first code. The row of *it* reacts to
# > *it* in both sentences, and to nothing else: *thirsty* no longer has any influence, but the
# > other sentence does. The shape is right and there is no error, so nothing reveals the mistake.
#
# The two words at this place are equal, so each gets half the attention, and moving attention from
# one to the other would change nothing. So each feature's gradient is the weight, one half, and the
# four gradients add up to 2.00.
#
# Cross-attention, whose keys come from another sequence, may stop with an error, but do not count
# on it. Here are three attempts, again with sequence-first queries, `(n, b, 24)`, and keys,
# `(m, b, 24)`, in batch-first code.

# %%
for samples, queries, keys in ((2, 4, 4), (2, 1, 5), (2, 3, 5)):
    query = torch.randn(queries, samples, 24)  # (..., 24)
    key = torch.randn(keys, samples, 24)       # (..., 24)
    print(f"b = {samples}, n = {queries}, m = {keys}", end=" ")
    try:
        print("runs, and gives", tuple(by_name(query, key, key, 4).shape))
    except RuntimeError as error:
        print("stops:", str(error).split(" which")[0])

# %% [markdown]
# The first attempt has as many queries as keys and runs, as self-attention does. In the second, the
# single query stands where the code expects the batch. Broadcasting stretches this axis from size 1
# to 5, to match the keys. So the second attempt runs as well, but gives the wrong shape: (1, 2, 24)
# would be right. Only the third stops with an error. The code reads b = 3 from the queries and
# b = 5 from the keys, which the message calls operand 1.
#
# So a test of self-attention is not enough. Nor was our test under *All equal* enough, because
# there b = h = d = 2 and n = m = 8. The *Going deeper* below that test repeats it with 2 samples, 3
# queries, 5 keys and 4 heads of width 6. These sizes are all different, and none of them is 1.

# %% [markdown]
# <!-- deeper: what each form copies -->
# ### Going deeper: what each form copies
#
# Functions with equal outputs may copy more or fewer numbers on the way, wherever the order in
# memory does not suit the next step. PyTorch calls such a copy `clone`. Count the numbers that each
# function copies.


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
inputs = [each.detach() for each in (q, k, v)]
first = [each.transpose(0, 1).contiguous() for each in inputs]
print("numbers in q, k and v:", sum(each.numel() for each in inputs))
print("numbers in the output:", loop.numel())
ways = {
    "four axes, batch-first": (four_axes, inputs),
    "by name, batch-first": (by_name, inputs),
    "folded, sequence-first": (folded, first),
    "folded, batch-first": (folded_batch_first, inputs),
}
for name, (function, given) in ways.items():
    with Copies() as copies:
        function(*given, 4)
    print(f"{name:>24}: {copies.numbers:4} copied")
    assert copies.numbers == (144 if given is first else 624 + 144)

# %% [markdown]
# The three batch-first functions copy 768 numbers, which is 624 + 144. Internally, `@` and `einsum`
# fold samples and heads, too. In batch-first memory the words lie between the samples and the
# heads, so from two samples on this fold copies queries, keys and values once. The rest is the
# output, which the merge copies. In sequence-first memory the fold is a view, and only the merge
# copies.
#
# PyTorch also has a **fused kernel**, one routine that goes from queries, keys and values to the
# output and never stores the weights. The kernel steps through tensors of `(b, h, n, d)` by their
# strides. It writes the output token by token, so that even the merge is a view. The package's
# function calls this kernel when the caller does not need the weights.


# %%
from annotated_attention import scaled_dot_product_attention


def fused(q: Tensor, k: Tensor, v: Tensor, h: int) -> Tensor:
    """Attend with four axes through the fused kernel; batch-first."""
    parts = (split_heads(each, h) for each in (q, k, v))
    heads = scaled_dot_product_attention(*parts, need_weights=False)[0]  # (b, h, n, d)
    return merge_heads(heads)                                            # (b, n, h * d)


output = fused(q, k, v, 4)  # (2, 3, 24)
torch.testing.assert_close(output, loop)
torch.testing.assert_close(one.gradients(output, [q, k, v]), expected)
with Copies() as copies:
    fused(*inputs, 4)
print(f"four axes, fused: equal, and {copies.numbers} copied")
assert copies.numbers == 0

# %% [markdown]
# This is why the final class of the book, in [Multi-head attention](07_multihead_attention.ipynb), works
# with four axes.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Exercises
#
# ### Which slice?
#
# *Easy, 2 minutes.* Three sentences with four heads each are folded into one axis of 12 slices, as in
# this chapter. Samples, heads and slices are counted from 0. Which slice holds head 1 of sample 2?

# %% tags=["exercise"]
my_slice = None  # your number here

# %%
from annotated_attention import exercises

exercises.batches.check_slice(my_slice)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# All heads of sample 0 come first. How many slices stand before the first slice of sample 2?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Head j of sample i is slice r = i · h + j.
#
# </details>

# %% tags=["solution"] jupyter={"source_hidden": true}
my_slice = 2 * 4 + 1

exercises.batches.check_slice(my_slice)

# %% [markdown]
# ### The fold in words
#
# *Easy, 5 minutes.* The library einops takes an axis operation as a sentence, called a pattern. For
# example, `"n b e -> b n e"` exchanges two axes. In a pattern, `(h d)` is one axis made of two,
# where h counts the outer steps and d counts the inner ones. Write the fold of this chapter, from
# sequence-first with all heads side by side to one batch of heads. Use the letters n, b, h and d,
# and type the arrow as `->`. The check reads the sentence itself, so einops need not be installed.

# %% tags=["exercise"]
pattern = ""  # your sentence here

# %%
exercises.batches.check_pattern(pattern)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Left of the arrow stand the three axes of the input. The last axis is made of heads and their
# features.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# In Q, the d features of a head are neighbours. So d is the inner axis of the two.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Right of the arrow, too, stand three axes: slices, tokens, features. Slice 1 is the second head of
# the first sample.
#
# </details>

# %% tags=["solution"] jupyter={"source_hidden": true}
pattern = "n b (h d) -> (b h) n d"

exercises.batches.check_pattern(pattern)

# %% [markdown]
# ### What self-attention does not tell
#
# *Medium, 15 minutes.* This function is batch-first and has no projections: query is `(b, n, e)`,
# key and value are `(b, m, e)`. The function passes every test of self-attention, and it is still
# wrong. The check shows where the function fails. Repair the function, so that it returns
# `(b, n, e)` for any n and m.


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
# In self-attention n = m. Call the function with 3 queries and 5 keys, and print the shapes of `q`,
# `k` and `v`.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A reshape with -1 fits almost anything. Which number is wrong for the key, and which size does -1
# become as a result?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# The width of a head is e / h for query, key and value. Pass this width to the reshape, and let
# each tensor keep its own number of tokens. The output has a row for each query.
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
# > **In short.** For each sample i and each head j, separately:
# >
# > $$\text{mixed}_{i,j} = \mathrm{softmax}\bigl(Q_{i,j} K_{i,j}^\top / \sqrt d\bigr)\, V_{i,j}$$
# >
# > - batch-first: `(b, n, h * d)`
# > - sequence-first: `x.transpose(0, 1)`, `(n, b, h * d)`
# > - four axes: `split_heads(x, h)`, `(b, h, n, d)`
# > - folded: `split_heads(x, h).flatten(0, 1)`, `(b * h, n, d)`; slice r is sample `r // h`, head `r % h`
# >
# > To attention, samples and heads are alike: each is a problem of its own. All layouts give equal
# > outputs and gradients; if you may choose, take four axes, batch-first. Given data in the wrong
# > layout, self-attention keeps the shape and mixes sentences. So test cross-attention, with sizes
# > that all differ and are not 1.
#
# Attention must not see some words, such as those that are not written yet. [Masks](06_masks.ipynb)
# hide them.
