# %% [markdown]
# # Batches
#
# *Where does the batch go?*
#
# *9 minutes and 2 of exercises. Afterwards you can attend to a whole batch without a loop, and turn
# either axis order into yours.*
#
# > the cat drank milk because **it** was thirsty
# >
# > the cat drank milk because **it** was sweet
#
# Hardware is fastest on many numbers at once, so a model reads many sentences together. Think of a batch
# as a house with one sentence in each room. Words talk to the other words in their room, never through a
# wall. How much do you have to change to build the walls?

# %% tags=["hide-input"]
import torch
from torch import Tensor, nn

from annotated_attention import merge_heads, split_heads
from annotated_book import chapters, display

one = chapters.load("01_one_head")
it = one.WORDS.index("it")

# %% [markdown]
# ## Walls for nothing
#
# Put the two sentences into one tensor. An item of a batch is called a **sample**; here a sample is a
# sentence.

# %%
b, n, h, d = 2, 8, 2, 2
x = torch.stack([one.EMBEDDINGS, one.SWEET_EMBEDDINGS])  # (b, n, h * d)
print(tuple(x.shape))

# %% [markdown]
# A loop could attend to one sentence after the other. But you have seen such walls before: the heads do
# not hear one another either. To attention, batch and heads are the same kind of axis. So give each an
# axis of its own, `(b, h, n, d)`. The package's `split_heads` counts its axes from the end,
# `x.unflatten(-1, (h, -1)).transpose(-3, -2)`, so any axes may stand in front. (The `transpose(0, 1)` of
# the last chapter would now swap the wrong axes.) `attend` runs over all axes in front, too.


# %%
def four_axes(q: Tensor, k: Tensor, v: Tensor, h: int) -> Tensor:
    """Attend with batch and heads on axes of their own; batch-first."""
    q, k = split_heads(q, h), split_heads(k, h)     # (b, h, n, d), (b, h, m, d)
    heads, _ = one.attend(q, k, split_heads(v, h))  # (b, h, n, d), (b, h, n, m)
    return merge_heads(heads)                       # (b, n, h * d)


fast = four_axes(x, x, x, h)  # (b, n, h * d)
display.show(fast[:, it], ["it, thirsty", "it, sweet"], one.FEATURES)

# %% [markdown]
# Not one line of `attend` has changed, and there are four rooms: two sentences, two heads in each. With
# *thirsty*, *it* collects more *animal* than *food*, 1.29 against 1.01; with *sweet* the two trade places.
# (To keep the numbers readable there are no projections, so these are not the heads of *Two heads*.
# Projections work on the last axis alone; a batch changes nothing for them.)


# %% tags=["hide-input"]
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
    return torch.stack(outputs)  # (b, n, h * d)


# %% tags=["proof"] name="equal-to-the-loop-gradients-too"
torch.testing.assert_close(fast, one_by_one(x, x, x, h))
torch.manual_seed(5)
q = torch.randn(2, 3, 24, dtype=torch.float64, requires_grad=True)  # (2, 3, 24)
k = torch.randn(2, 5, 24, dtype=torch.float64, requires_grad=True)  # (2, 5, 24)
v = torch.randn(2, 5, 24, dtype=torch.float64, requires_grad=True)  # (2, 5, 24)
loop, output = one_by_one(q, k, v, 4), four_axes(q, k, v, 4)        # (2, 3, 24), (2, 3, 24)
expected = one.gradients(loop, [q, k, v])
torch.testing.assert_close(output, loop)
torch.testing.assert_close(one.gradients(output, [q, k, v]), expected)
print("✓ Each sentence gets what it gets alone: outputs and gradients.")

# %% [markdown]
# Published code often *folds* the two axes into one, `split_heads(x, h).flatten(0, 1)`, which is
# `(b * h, n, d)`. [The reshape trick](04_reshape_trick.ipynb) taught you to fear such a step. This one
# does not mix anything: b and h stand side by side, so `flatten` only renumbers the rooms.
# [Masks in the wild](16_masks_in_the_wild.ipynb#cell-id=heads-folded-into-the-batch) shows what the fold
# does to a mask.
#
# ## The batch comes second
#
# Not everybody puts the batch first. `torch.nn.MultiheadAttention` expects **sequence-first** data, `(n, b,
# e)`, unless it is told `batch_first=True`. Why would anyone? Recurrent networks read one word after the
# other, and in this layout `x[t]` is word t of every sentence, side by side in memory. PyTorch's recurrent
# layers came first, and attention kept their habit.
#
# You have batch-first data, (2, 8, 4), and need (8, 2, 4). `x.reshape(8, 2, 4)` has exactly that shape. Of
# the 16 words, how many stand where they should?
#
# <details><summary>What do you expect?</summary>
#
# Two. A reshape keeps the order in which the numbers are read, and `x` is read one whole sentence after
# the other. So each row holds two neighbours from *one* sentence instead of one word from *each*. Only the
# very first and the very last word end up right.
#
# </details>

# %%
sentences = (one.WORDS, one.SWEET)
number = torch.arange(16).view(2, 8)                   # (2, 8), the words of both sentences
transposed, reshaped = number.T, number.reshape(8, 2)  # (8, 2), (8, 2)
print("in their place:", int((transposed == reshaped).sum()), "of", number.numel())

# %% tags=["hide-input"]
named = {
    name: ["/".join(sentences[i // 8][i % 8] for i in row) for row in places.tolist()]
    for name, places in (("transpose", transposed), ("reshape", reshaped))
}
display.show(named, columns=[*map(str, range(8))], corner="word")

# %% [markdown]
# The transpose puts the two last words, *thirsty* and *sweet*, side by side. The reshape puts *thirsty*
# beside *was*. `x.transpose(0, 1)` leads from either layout to the other.

# %% tags=["proof"]
for batch_first in (True, False):
    torchs = nn.MultiheadAttention(24, 4, bias=False, batch_first=batch_first).double()
    with torch.no_grad():  # identity matrices in the place of its projections
        torchs.in_proj_weight.copy_(torch.eye(24).repeat(3, 1))
        torchs.out_proj.weight.copy_(torch.eye(24))
    given = [each if batch_first else each.transpose(0, 1) for each in (q, k, v)]
    theirs, _ = torchs(*given)
    theirs = theirs if batch_first else theirs.transpose(0, 1)  # (2, 3, 24)
    torch.testing.assert_close(theirs, loop)
    torch.testing.assert_close(one.gradients(theirs, [q, k, v]), expected)
print("✓ PyTorch's class agrees in both layouts: outputs and gradients.")

# %% [markdown] name="what-equal-sizes-hide"
# ## A house with the wrong walls
#
# Someone hands sequence-first data, (8, 2, 4), to code that expects batch-first data. The code takes the 8
# words for 8 samples, and the 2 sentences for 2 words. What happens: an error, a wrong shape, or wrong
# numbers? And what does *it* collect?
#
# <details><summary>What do you expect?</summary>
#
# Wrong numbers in the right shape. Self-attention works for any number of samples and words, so nothing
# can fail. But each room now holds the words at one place of every sentence. The word *it* meets nobody
# but *it* of the other sentence, who is its twin. Two equal keys get half each, so *it* collects what it
# is.
#
# </details>

# %%
given = x.transpose(0, 1).clone().requires_grad_()  # (n, b, h * d)
wrong = four_axes(given, given, given, h)           # (n, b, h * d)
print(tuple(wrong.shape))
display.show(wrong[it], ["it, thirsty", "it, sweet"], one.FEATURES)

# %% [markdown]
# The shape is right, and both rows are 1, 1, 0, 1: the four numbers that *it* went in with. It has heard
# nobody but its twin, and of two equal words any mixture is the word. Ask with a gradient which words its row reacts to, and the walls show.

# %% tags=["hide-input"]
right_given = x.clone().requires_grad_()                            # (b, n, h * d)
right = four_axes(right_given, right_given, right_given, h)[0, it]  # (h * d,)
(inside,) = torch.autograd.grad(right.sum(), right_given)           # (b, n, h * d)
(across,) = torch.autograd.grad(wrong[it, 0].sum(), given)          # (n, b, h * d)
reactions = [inside.any(-1), across.any(-1).T]
titles = [
    "batch first: it hears its own sentence",
    "batch second, unnoticed: it hears its twin",
]
assert reactions[0].nonzero()[:, 0].tolist() == [0] * 8
assert reactions[1].nonzero().tolist() == [[0, it], [1, it]]
display.rooms(sentences, reactions, titles, (0, it), name="rooms")

# %% [markdown]
# Neither a shape nor an error reveals the mistake. Changing one word does: *it* no longer reacts to
# *thirsty*. Will cross-attention complain at least? Put the batch second, so that q is `(3, 2, 24)` and k and v
# are `(5, 2, 24)`, and split the heads as if it came first. Then do it with a single query.

# %%
second = [each.transpose(0, 1) for each in (q, k, v)]  # batch second
swapped = [split_heads(each, 4) for each in second]
try:
    one.attend(*swapped)
except RuntimeError as error:
    print(error)
swapped[0] = swapped[0][:1]                    # (1, 4, 2, 6)
merged = merge_heads(one.attend(*swapped)[0])  # (5, 2, 24)
print("one query:", tuple(merged.shape))

# %% [markdown]
# The code takes the 3 queries and the 5 keys for samples, and stops. A single query raises no error,
# because an axis of size 1 is stretched to any other: five rows come back for one query, where (1, 2, 24)
# would be right.
#
# > **Pitfall.** The more your sizes agree, the less a test can see. Test with cross-attention, and with
# > sizes that all differ and are not 1.

# %% [markdown] name="deeper-what-is-copied"
# <!-- deeper: what is copied -->
# ### Going deeper: what is copied
#
# The split itself is a view, but the next step copies wherever the order in memory does not suit it.
# PyTorch calls such a copy `clone`. Count the numbers that `four_axes` copies, and those that it
# copies with the fused kernel in place of `attend`.


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
from annotated_attention import scaled_dot_product_attention


def fused(q: Tensor, k: Tensor, v: Tensor, h: int) -> Tensor:
    """Attend with four axes through the fused kernel; batch-first."""
    parts = (split_heads(each, h) for each in (q, k, v))
    heads = scaled_dot_product_attention(*parts, need_weights=False)[0]  # (b, h, n, d)
    return merge_heads(heads)                                            # (b, n, h * d)


torch.testing.assert_close(fused(q, k, v, 4), loop)
counted = {}
for function, samples in ((four_axes, 2), (four_axes, 1), (fused, 2)):
    inputs = [each.detach()[:samples] for each in (q, k, v)]
    with Copies() as copies:
        output = function(*inputs, 4)  # (..., 24)
    size = sum(each.numel() for each in inputs)
    counted[f"{function.__name__}, b = {samples}"] = [copies.numbers, size, output.numel()]
assert [row[0] for row in counted.values()] == [624 + 144, 72, 0]
display.show(counted, columns=["copied", "in q, k and v", "in the output"])

# %% [markdown]
# With two samples, the product copies all of q, k and v, and the merge copies the output: `@` joins
# samples and heads into one axis, and no single stride leads through both. With one sample only the
# merge copies. The fused kernel steps through `(b, h, n, d)` by its strides and
# writes the output token by token, so nothing is copied. It is used only where nobody asks for the
# weights.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Exercises
#
# ### Follow a number
#
# *Easy, 2 minutes.* A recurrent network hands you `y`, sequence-first, with 5 words in each of 3
# sentences and 24 features: (5, 3, 24). You bring `y` into four axes, `(b, h, n, d)`, with 4 heads
# of width 6. Where does the number `y[4, 2, 11]` stand now? Write its index: four whole numbers,
# all counted from 0.

# %% tags=["exercise"]
my_index = (None, None, None, None)  # your four numbers here

# %%
from annotated_book import exercises

exercises.batches.check_index(my_index)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which number of `[4, 2, 11]` is the sentence, and which is the word?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The first head has the features 0 to 5. Which head has feature 11, and where in that head?
#
# </details>

# %% tags=["solution"]
my_index = (2, 1, 4, 5)

exercises.batches.check_index.folded(my_index)

# %% [markdown]
# ## More exercises
#
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
# `k` and `v`. (The 8 in the error is b · h = 2 · 4: the matrix product folds the two axes.)
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


# %% tags=["solution"]
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


exercises.batches.check_attend_heads.folded(attend_heads)

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
# > - folded: `split_heads(x, h).flatten(0, 1)`, `(b * h, n, d)`
# >
# > To attention, samples and heads are alike: each is a problem of its own. Take batch-first
# > outside and four axes inside; a sequence-first tensor is transposed once, where it comes in.
# > Given data in the wrong layout, self-attention keeps the shape and mixes sentences. So test
# > cross-attention, with sizes that all differ and are not 1.
#
# The walls stand. But inside a room not every word should hear every other: not padding, and not words
# that come later. [Masks](06_masks.ipynb) hide both.
