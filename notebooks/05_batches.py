# %% [markdown]
# # Batches
#
# *Where does the batch go?*
#
# *10 minutes and 2 of exercises. Afterwards you can attend to a whole batch without a loop, and turn
# either axis order into yours.*
#
# > the cat drank milk because **it** was thirsty
# >
# > the cat drank milk because **it** was sweet
#
# In practice a model processes many sentences together, because hardware is fastest on many numbers
# at once. A tensor then needs one more axis, the batch, which the strip below leaves out. In this
# chapter you treat sentences as you treated heads, all at once. Some libraries put the batch first,
# others second: you bring both **layouts** to one form, and see a mistake that self-attention never
# reports.
#
# Think of a batch as a house with one sentence in each room. Words talk to the other words in their
# room, never through a wall.

# %% tags=["hide-input"]
from annotated_book import display

display.chapter_map("split", "score", "softmax", "mix", "merge")

# %% [markdown]
# ## Four axes
#
# Put the two sentences into one tensor. An item of a batch is called a **sample**; here a sample is
# a sentence.

# %%
import torch
from torch import Tensor, nn

from annotated_attention import merge_heads, split_heads
from annotated_book import chapters

one = chapters.load("01_one_head")

b, n, h, d = 2, 8, 2, 2
x = torch.stack([one.EMBEDDINGS, one.SWEET_EMBEDDINGS])  # (b, n, h * d)
print(tuple(x.shape))

# %% [markdown]
# A loop could attend to one sentence after the other. But for attention, batch and heads are the
# same kind of axis: each sentence and each head is a problem of its own, computed without the others.
# So give samples and heads an axis each, `(b, h, n, d)`. The package's `split_heads` counts its axes
# from the end, `x.unflatten(-1, (h, -1)).transpose(-3, -2)`, so any axes may stand in front. (The
# `transpose(0, 1)` of the last chapter would now swap the wrong axes.) `attend` runs over all axes in
# front, too, so no loop is needed.


# %%
def four_axes(q: Tensor, k: Tensor, v: Tensor, h: int) -> Tensor:
    """Attend with batch and heads on axes of their own; batch-first."""
    q, k = split_heads(q, h), split_heads(k, h)     # (b, h, n, d), (b, h, m, d)
    heads, _ = one.attend(q, k, split_heads(v, h))  # (b, h, n, d), (b, h, n, m)
    return merge_heads(heads)                       # (b, n, h * d)


fast = four_axes(x, x, x, h)  # (b, n, h * d)
it = one.WORDS.index("it")
one.show(["it, thirsty", "it, sweet"], one.FEATURES, fast[:, it])
torch.testing.assert_close(fast[0, it, [0, 1]], fast[1, it, [1, 0]])  # animal and food swap

# %% [markdown]
# To keep the numbers readable, there are no projections, so these are not the heads of *Two heads*:
# the first has *animal* and *food*, the second *action* and *quality*. (Projections work on the last
# axis alone, so a batch changes nothing for them.) In the first sentence *it* collects more *animal*
# than *food* (1.29 against 1.01). In the second the two numbers trade places, because *thirsty* fits
# the animal and *sweet* fits the food.
#
# The split is still a view, but with more than one sample the product `@` copies q, k and v first.
# PyTorch's **fused kernel**, one routine from queries, keys and values to the output that never
# stores the weights, copies nothing ([Going deeper](#cell-id=what-is-copied) counts, and says
# why).
#
# Published code often *folds* the two axes into one, `split_heads(x, h).flatten(0, 1)`, which is
# `(b * h, n, d)`. [The reshape trick](04_reshape_trick.ipynb) taught you to fear such a step. This
# one may copy the numbers but does not mix them: in `(b, h, n, d)` the axes b and h stand side by
# side, so `flatten` only renumbers the slices. Slice 0 is sentence 0, head 0; slice 1 is sentence
# 0, head 1; and so on. [Masks in the wild](14_masks_in_the_wild.ipynb#cell-id=heads-folded-into-the-batch)
# shows what the fold does to a mask.
#
# ## One sentence after the other
#
# Does each sentence get what it would get alone? Compare with the plain, slow way, a loop.


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
    return torch.stack(outputs)  # (b, n, h * d)


slow = one_by_one(x, x, x, h)  # (b, n, h * d)
torch.testing.assert_close(fast, slow)
print("four axes: the same as one sentence after the other")

# %% [markdown]
# Yes: the rooms are separate.

# %% [markdown] name="equal-to-the-loop-gradients-too"
# ## Equal to the loop, gradients too
#
# The batch above has as many queries as keys, and as many heads as samples, so a swapped axis could
# hide in it. Repeat the check with sizes that all differ: 2 samples, 3 queries, 5 keys, 4 heads of
# width 6. `one.gradients(outputs, inputs)` adds up the outputs, each number times a fixed random
# factor, and returns the gradient of each input.

# %%
torch.manual_seed(5)
q = torch.randn(2, 3, 24, dtype=torch.float64, requires_grad=True)  # (2, 3, 24)
k = torch.randn(2, 5, 24, dtype=torch.float64, requires_grad=True)  # (2, 5, 24)
v = torch.randn(2, 5, 24, dtype=torch.float64, requires_grad=True)  # (2, 5, 24)
loop = one_by_one(q, k, v, 4)                                       # (2, 3, 24)
output = four_axes(q, k, v, 4)                                      # (2, 3, 24)
expected = one.gradients(loop, [q, k, v])
torch.testing.assert_close(output, loop)
torch.testing.assert_close(one.gradients(output, [q, k, v]), expected)
print("four axes: equal to the loop, and so are the gradients")

# %% [markdown]
# ## Batch first or second
#
# So far x was **batch-first**, `(b, n, e)`, a list of sentences; here e = h · d. **Sequence-first**
# is `(n, b, e)`: the first word of every sentence, then the second word of every sentence, and so
# on. `torch.nn.MultiheadAttention` expects it, unless it is told `batch_first=True`. One
# `transpose(0, 1)` leads from either layout to the other.
#
# `x.reshape(8, 2, 4)` gives the same shape. Is the result sequence-first, too?
#
# <details><summary>What do you expect?</summary>
#
# No. A reshape keeps the order in which the numbers are read, and `x` is read one whole sentence
# after the other. So each pair holds two neighbours from *one* sentence instead of one word from
# *each* sentence.
#
# </details>
#
# Number the 16 words of the batch, and arrange the numbers in both ways.

# %%
sequence_first = x.transpose(0, 1)  # (n, b, h * d), made from x here
print("batch-first", tuple(x.shape), "-> sequence-first", tuple(sequence_first.shape))

sentences = (one.WORDS, one.SWEET)
number = torch.arange(16).view(2, 8)  # (2, 8)
for name, arranged in (("transpose", number.T), ("reshape", number.reshape(8, 2))):
    pairs = [[sentences[i // 8][i % 8] for i in row] for row in arranged.tolist()]
    print(f"{name:>9}:", "  ".join("/".join(pair) for pair in pairs))

# %% [markdown]
# The transpose puts the two last words, *thirsty* and *sweet*, side by side. The reshape puts
# *thirsty* beside *was*.

# %% [markdown]
# <!-- deeper: the same as PyTorch, in both layouts -->
# ### Going deeper: the same as PyTorch, in both layouts
#
# PyTorch's class has to agree, too. Identity matrices stand in for its projections.

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

# %% [markdown] name="what-equal-sizes-hide"
# ## What equal sizes hide
#
# Someone hands sequence-first data, (8, 2, 4), to code that expects batch-first data. The code takes
# the 8 words for 8 samples, and the 2 sentences for 2 words. What happens: an error, a wrong shape,
# or wrong numbers?
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
# Take the gradient of the row of *it* in the first sentence, the thirsty one, and list the words
# that the row reacts to.

# %%
given = sequence_first.clone().requires_grad_()               # (n, b, h * d)
wrong = four_axes(given, given, given, h)                     # (n, b, h * d)
gradient = torch.autograd.grad(wrong[it, 0].sum(), given)[0]  # (n, b, h * d)
print("shape", tuple(wrong.shape), "is right, and “it” reacts to:")
for place, sentence in gradient.any(-1).nonzero().tolist():
    print(f"    “{one.WORDS[place]}” in the sentence with “{sentences[sentence][-1]}”")
assert gradient.any(-1).nonzero().tolist() == [[it, 0], [it, 1]]

# %% [markdown]
# > **Pitfall.** The row of *it* reacts to *it* in both sentences, and no longer to *thirsty*.
# > Neither a shape nor an error reveals the mistake. The second test of the last chapter does:
# > change one word, and see whether *it* reacts.
#
# Now make the same mistake in cross-attention. Transpose q, k and v of the check above to
# sequence-first, `(3, 2, 24)` and `(5, 2, 24)`, and hand them over as if they were batch-first. Then
# do it with a single query.

# %%
swapped = [split_heads(each.transpose(0, 1), 4) for each in (q, k, v)]
try:
    one.attend(*swapped)
except RuntimeError as error:
    print(error)

swapped[0] = swapped[0][:1]                    # (1, 4, 2, 6)
merged = merge_heads(one.attend(*swapped)[0])  # (5, 2, 24)
print(f"one query: {tuple(merged.shape)}, and (1, 2, 24) would be right")
assert merged.shape == (5, 2, 24)

# %% [markdown]
# The code reads b = 3 from the queries and b = 5 from the keys, and stops. A single query raises no
# error, because an axis of size 1 is stretched to any other: five rows come back for one query, and
# only this shape shows the mistake. So test with cross-attention, and with sizes that all differ and
# are not 1.

# %% [markdown] name="what-is-copied"
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
counted = []
for function, samples in ((four_axes, 2), (four_axes, 1), (fused, 2)):
    inputs = [each.detach()[:samples] for each in (q, k, v)]
    with Copies() as copies:
        output = function(*inputs, 4)  # (..., 24)
    counted.append(copies.numbers)
    size = sum(each.numel() for each in inputs)
    print(f"{function.__name__:>9}, b = {samples}: {copies.numbers:3} copied, of", end=" ")
    print(f"{size} in q, k and v and {output.numel()} in the output")
assert counted == [624 + 144, 72, 0]

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
# A word should not look at padding, or at words that come after it. [Masks](06_masks.ipynb) hide
# both.
