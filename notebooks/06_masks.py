# %% [markdown]
# # Masks
#
# *Which words must not be seen?*
#
# *17 minutes and 2 of exercises. Afterwards you can hide padding and future words, and keep NaN
# out of the gradients.*
#
# A batch is a rectangle, but sentences differ in length, so the short ones are filled up with
# **padding**. A model that writes word by word must also not look at words that have not been
# written yet. Both cases call for the same thing: hide some keys from some queries.
#
# Think of the scores as a table with a row for each query and a column for each key. A **mask** is a
# sheet of card laid over that table, with holes where a query may look. If there are two reasons to
# hide something, lay two sheets on top of each other: whatever either one covers is hidden. In the
# map, eight words are followed by two places of padding.

# %% tags=["hide-input"]
from annotated_book import display

display.chapter_map("mask")

# %% [markdown] name="padding"
# ## Padding
#
# A shorter sentence, *the milk was sweet*, joins the familiar one in the batch. PyTorch's
# `pad_sequence` pads it with rows of zeros, shown here as `·`. The batch tracks gradients, so that
# you can find out later what an output reacts to. One head of width d is enough here. The words are
# queries as well as keys, so n = m.

# %%
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention import masks, scaled_dot_product_attention
from annotated_book import chapters, display

one = chapters.load("01_one_head")

SHORT = ["the", "milk", "was", "sweet"]
sentences = [one.embed(one.WORDS).double(), one.embed(SHORT).double()]
x = nn.utils.rnn.pad_sequence(sentences, batch_first=True).requires_grad_()  # (b, m, d)
labels = [*SHORT, "·", "·", "·", "·"]
print(tuple(x.shape))
print("sample 1:", *labels)

# %% [markdown]
# The word *was* in the short sentence attends to all eight positions. What share of its attention
# do the four zero vectors get together: none, since they are zero; a small remainder; or nearly
# half?
#
# <details><summary>What do you expect?</summary>
#
# Nearly half. A zero vector scores 0 with every query, and the exponential of 0 is 1. Any word that
# has nothing in common with *was* gets just as much.
#
# </details>

# %%
_, weights = one.attend(x, x, x)  # (b, n, d), (b, n, m)
print("“was” looks at:")
for word, weight in zip(labels, weights[1, 2]):
    print(f"{word:>9} {weight:.2f}")
print(f"padding gets {weights[1, 2, 4:].sum():.2f}")

# %% [markdown]
# (Each 0.12 is rounded up.)
#
# The surest way to a weight of 0 is a score of $-\infty$, because $\exp(-\infty) = 0$. So replace
# the scores of blocked keys with $-\infty$ **before** the softmax; the other keys then share all
# the attention. In this book a mask's name says what True means: `blocked` is True where a query
# must not see a key.


# %%
def attend(
    query: Tensor, key: Tensor, value: Tensor, blocked: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Mix the rows of ``value``; no query sees a key where ``blocked`` is True."""
    scores = (query / math.sqrt(query.size(-1))) @ key.mT  # (..., n, m)
    if blocked is not None:
        scores = scores.masked_fill(blocked, -math.inf)  # (..., n, m)
    weights = scores.softmax(-1)                         # (..., n, m)
    return weights @ value, weights                      # (..., n, d), (..., n, m)


torch.testing.assert_close(attend(x, x, x), one.attend(x, x, x))
print("without a mask: as before")

# %% [markdown]
# The **padding mask** follows from the lengths of the sentences. Key j, counted from 0, is padding if
# j is at least the length of its sentence. In the package, `block_padding` makes this comparison.

# %%
lengths = torch.tensor([8, 4])
blocked = torch.arange(8) >= lengths[:, None]  # (b, m)
assert blocked.equal(masks.block_padding(lengths, 8))
print(blocked.int())

_, weights = attend(x, x, x, blocked[:, None, :])  # (b, n, d), (b, n, m)
print("“was”:", *(f"{weight:.2f}" for weight in weights[1, 2]))
assert not weights[1, :, 4:].any()

# %% [markdown]
# `[:, None, :]` turns `(b, m)` into `(b, 1, m)`. The axis of size 1 is stretched over all queries,
# because padding is padding, no matter which query looks. The four words of the short sentence now
# share all the attention of *was*.
#
# Is the result the same as without padding? Attend within the short sentence alone, and compare the
# outputs and the gradients with those of the padded batch. `one.gradients(outputs, inputs)` of
# [Batches](05_batches.ipynb#cell-id=equal-to-the-loop-gradients-too) adds up the outputs, each number times a
# fixed random factor, and returns the gradient of each input.

# %%
words_only = attend(x, x, x, blocked[:, None, :])[0][1, :4]  # (4, d)
alone, _ = one.attend(x[1, :4], x[1, :4], x[1, :4])          # (4, d), (4, 4)
torch.testing.assert_close(words_only, alone)
torch.testing.assert_close(one.gradients(words_only, [x]), one.gradients(alone, [x]))
print("equal, and so are the gradients")

# %% [markdown] name="the-causal-mask"
# ## The causal mask
#
# Padding is hidden from everybody; the second mask depends on who is looking. A model that writes
# text sees the words up to and including the current one, so query i must not see a key j > i
# [[Vaswani et al., section 3.2.3](../docs/references.md#vaswani-2017)]. The **causal mask** is a
# matrix `(n, m)`, the same for every sample: True above the diagonal, which is the part that
# `triu(1)` keeps.

# %%
future = torch.ones(8, 8, dtype=torch.bool).triu(1)  # (n, m)
assert future.equal(masks.block_future(8))
words = one.embed(one.WORDS).double()                  # (n, d)
written, causal = attend(words, words, words, future)  # (n, d), (n, m)
assert not causal[future].any()
display.attention_map(causal, one.WORDS, one.WORDS, name="causal-map")

# %% [markdown]
# All weights above the diagonal are zero. In the row of *it*, the largest weight, the one on
# *thirsty*, is gone: the word that decides has not been written yet. What is left favours neither
# *cat* nor *milk*.
#
# Swap that last word: *thirsty* becomes *sweet*. Which outputs change without a mask, and which
# with the causal mask: those of every word, only that of *it*, or only that of the last word?
#
# <details><summary>What do you expect?</summary>
#
# Without a mask every word looks at the last one, so every output changes. With the causal mask only
# the last word's own row may look there, so all other rows stay as they are. In a causal model, only
# that row can settle what *it* means.
#
# </details>
#
# The cell makes this swap. Then it tests the mask by looking only at the outputs: wherever you cut
# the sentence, the rows before the cut must stay the same.

# %%
swapped = one.embed(one.SWEET).double()  # (n, d)
for name, hidden in (("no mask", None), ("causal mask", future)):
    before, after = (attend(row, row, row, hidden)[0] for row in (words, swapped))  # (n, d)
    moved = (before - after).norm(dim=-1) > 0                                       # (n,)
    print(f"{name}, changed:\n   ", *(one.SWEET[i] for i in moved.nonzero()))
    assert int(moved.sum()) == (8 if hidden is None else 1)
for length in range(1, 9):
    start = words[:length]                                               # (length, d)
    prefix = attend(start, start, start, masks.block_future(length))[0]  # (length, d)
    torch.testing.assert_close(prefix, written[:length])
print("cut anywhere: the rows before are kept")

# %% [markdown] name="merging-the-two"
# ## Merging the two
#
# A key is blocked if it is padding *or* lies in the future. The operator `|` merges the two masks, once
# their axes fit those of the scores, `(b, h, n, m)`. **Broadcasting** aligns axes from the right and
# stretches every axis of size 1. So the causal mask, `(n, m)`, fits as it is, and the padding mask gets
# a 1 for the heads and a 1 for the queries.

# %%
padding = masks.block_padding(torch.tensor([5, 3]), 5)  # (b, m)
of_five = masks.block_future(5)                         # (n, m)
for_keys = padding[:, None, None, :]                    # (b, 1, 1, m)
merged = for_keys | of_five                             # (b, 1, n, m)
print(tuple(for_keys.shape), "|", tuple(of_five.shape), "->", tuple(merged.shape))

# %% [markdown]
# The figure lays the two sheets of card on top of each other, with a sentence of five words in sample
# 0 and one of three in sample 1. The padding mask repeats down the rows; the causal mask repeats
# across the samples. All heads share one mask, so its axis for heads keeps size 1. PyTorch calls the
# padding mask `key_padding_mask`, and a mask of pairs, such as the causal one, `attn_mask`. If every
# key is blocked for a query, the query's row is called a **fully masked row**.

# %%
texts = [text.split() for text in ("the cat drank the milk", "it was sweet · ·")]
rows = [one.embed([word for word in text if word != "·"]).double() for text in texts]
five = nn.utils.rnn.pad_sequence(rows, batch_first=True)  # (b, m, d)
scores = five @ five.mT / math.sqrt(4)                    # (b, n, m)
display.mask_merger(texts, scores, padding)

# %% [markdown]
# In the live figure, press the column heading *cat*: the word becomes padding, and its column is
# blocked in every row of sample 0. In the rows that could see *cat*, the other weights grow until
# they add up to one again. Then press the first word of a sentence. Its own row could see only that
# word, so the row is now fully masked and its weights are NaN.

# %% [markdown] name="fully-masked-rows"
# ## Fully masked rows
#
# A sheet of card may cover a whole row, but a softmax needs at least one key. In a fully masked row all
# scores are $-\infty$, so all exponentials are 0, and so is their sum: each weight is 0 divided by 0.
# Such rows come from an empty sentence, from padding whose own rows are masked, too, or from a causal
# mask that by mistake hides each word from itself: the first word then sees nothing.
#
# Take the second case. The padding after *the milk was sweet* also *asks*, so it has rows of its own
# in the output. Should these be masked as well? First leave the padded rows unmasked. Take a loss
# that reads only the rows of the words, and see which positions it reacts to. Words are queries as well
# as keys, so `output[~blocked]` picks their rows. Then mask the padded rows, too.

# %%
output, _ = attend(x, x, x, blocked[:, None, :])  # (b, n, d), (b, n, m)
(reached,) = one.gradients(output[~blocked], [x])
print("the loss reacts to:", *(labels[j] for j in reached[1].any(-1).nonzero()))
assert reached.any(-1).equal(~blocked)

both = blocked[:, None, :] | blocked[:, :, None]  # (b, n, m), keys and queries
masked, _ = attend(x, x, x, both)                 # (b, n, d), (b, n, m)
torch.testing.assert_close(masked[~blocked], output[~blocked])
print("last row, if masked:", masked[1, 7].tolist())
assert masked[blocked].isnan().all()

# %% [markdown]
# You need not mask padded rows: leave them out of the loss, and they contribute no gradient. Masking
# them turns them into NaN and leaves the outputs of the words as they were.
#
# Are these NaNs harmless, since nobody reads them? Compute the values with a matrix $W_V$ that all
# samples share, and let the loss read *only the first sentence*, which has no padding. What about the
# gradient of $W_V$: finite, NaN in a few entries, or NaN in all of them?
#
# <details><summary>What do you expect?</summary>
#
# NaN in all of them. The loss sends a gradient of 0 into the fully masked rows. On its way back,
# that 0 is multiplied by the row's weights, and $0 \cdot \mathrm{NaN}$ is NaN. The NaN reaches
# every value of the second sentence, and from there the matrix that both sentences share.
#
# </details>

# %%
w_v = torch.eye(4, dtype=torch.float64, requires_grad=True)
poisoned, _ = attend(x, x, x @ w_v, both)        # (b, n, d), (b, n, m)
(gradient,) = one.gradients(poisoned[0], [w_v])  # (4, 4)
print("NaN in the output of the first sentence:", bool(poisoned[0].isnan().any()))
print(f"NaN in the gradient of W_V: {gradient.isnan().sum()} of {gradient.numel()} entries")
assert poisoned[0].isfinite().all()
assert gradient.isnan().all()

# %% [markdown]
# A single training step therefore turns the shared matrix into NaN for everyone.
#
# The cure is a second fill. The first one writes $-\infty$ over the scores before the softmax, and
# the second writes 0 over the weights after it. Now the values are multiplied by 0 instead of NaN.
#
# So each fill stops one NaN on its way back. The second one keeps it from $W_V$, as you saw. Another
# would go through the softmax to $W_Q$ and $W_K$, because in a fully masked row the softmax multiplies
# by weights that are NaN. The first fill stops that one: the gradient of a score that it replaced is
# *written* as 0, not multiplied by 0.


# %%
def attend_safely(
    query: Tensor, key: Tensor, value: Tensor, blocked: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Mix the rows of ``value``; a fully masked row gets zeros."""
    scores = (query / math.sqrt(query.size(-1))) @ key.mT  # (..., n, m)
    if blocked is not None:
        scores = scores.masked_fill(blocked, -math.inf)  # (..., n, m)
    weights = scores.softmax(-1)                         # (..., n, m)
    if blocked is not None:
        weights = weights.masked_fill(blocked, 0)  # (..., n, m)
    return weights @ value, weights                # (..., n, d), (..., n, m)


display.diff(attend, attend_safely)

# %% [markdown]
# The outputs and gradients of the words must be the same as before, and the package's own function must
# agree.

# %%
plain = attend(x, x, x, blocked[:, None, :])[0][~blocked]  # (12, d)
safe = attend_safely(x, x, x, both)[0]                     # (b, n, d)
torch.testing.assert_close(safe[~blocked], plain)
of_words = one.gradients(safe[~blocked], [x])
torch.testing.assert_close(of_words, one.gradients(plain, [x]))

ours, _ = scaled_dot_product_attention(x, x, x, blocked=both)  # (b, n, d), (b, n, m)
torch.testing.assert_close(ours, safe)
torch.testing.assert_close(one.gradients(ours[~blocked], [x]), of_words)
print("words: as before, with their gradients")
print("last row:", ours[1, 7].tolist())

# %% [markdown]
# There are three things one can do with a fully masked row; you can try them in the last menu of the
# figure under [Merging the two](#cell-id=merging-the-two). Leave **NaN**: it is easy to notice once it has
# spread, but by then it has spoiled the whole model. Write **zeros**, as this book does: the row
# collected nothing, so its output is nothing. Or let the row attend evenly, with **uniform** weights.
# That happens when a large negative number replaces the scores, instead of $-\infty$: all scores in
# the row are then equal, although all of its keys are forbidden. [Masks in the
# wild](14_masks_in_the_wild.ipynb) finds out which of the three PyTorch and published code choose.

# %% [markdown] name="other-cures"
# <!-- deeper: Which other cures fail, and why the package lifts -->
#
# ### Going deeper: Which other cures fail, and why the package lifts
#
# `nan_to_num(0)` on the output is a tempting cure. It fails, and there is a second trap: a mask can
# also be *added* to the scores, as a matrix $M$ of $-\infty$ and 0. `torch.nn.MultiheadAttention` does
# so, and so does the package, because its masks may also hold other numbers. An addition passes every
# gradient on, so nothing stops the NaN on its way to $W_Q$ and $W_K$. Therefore the package **lifts**
# the mask of a fully masked row: it leaves the row unmasked before the softmax, so that no NaN arises at
# all, and fills its weights with 0 afterwards. The cell lists the matrices whose gradient is NaN; the
# loss reads no fully masked row.


# %%
def spoiled(x: Tensor, blocked: Tensor, added: bool, cure: str) -> str:
    """Name the matrices whose gradient is NaN; the loss reads no fully masked row."""
    matrices = [torch.eye(4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    q, k, v = (x @ matrix for matrix in matrices)  # (b, n, d)
    fully = blocked.all(-1)                        # (b, n)
    hidden = blocked & ~fully[..., None] if "lift" in cure else blocked
    scores = q @ k.mT / math.sqrt(4)                                 # (b, n, m)
    bias = torch.zeros(hidden.shape).masked_fill(hidden, -math.inf)  # (b, n, m)
    scores = scores + bias if added else scores.masked_fill(hidden, -math.inf)
    weights = scores.softmax(-1)  # (b, n, m)
    if "fill" in cure:
        weights = weights.masked_fill(blocked, 0)  # (b, n, m)
    output = weights @ v                           # (b, n, d)
    if cure == "mend output":
        output = output.nan_to_num(0)  # (b, n, d)
    bad = [each.isnan().any() for each in one.gradients(output[~fully], matrices)]
    return " ".join(name for name, nan in zip(("W_Q", "W_K", "W_V"), bad) if nan) or "none"


# %%
print("cure           added          masked_fill")
found = []
for cure in ("nothing", "mend output", "fill again", "lift and fill"):
    found.append([spoiled(x.detach(), both, added, cure) for added in (True, False)])
    print(f"{cure:13}  {found[-1][0]:13}  {found[-1][1]}")
nan = "W_Q W_K W_V"
assert found == [[nan, "W_V"], [nan, "W_V"], ["W_Q W_K", "none"], ["none", "none"]]

# %% [markdown]
# Mending the output does not help: on its way back to the values, the gradient is still multiplied by
# NaN weights.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# <!-- deeper: The same as PyTorch, with heads -->
#
# ### Going deeper: The same as PyTorch, with heads
#
# So far n and m have been equal, and there has been only one head. In this cell all sizes differ:
# b = 2, h = 4, n = 3, m = 5 and d = 6. The cell also uses a mask of pairs that leaves one query of
# sample 1 fully masked. PyTorch's function must give the same outputs and gradients. In that
# function True means *may look*, hence the `~`.

# %%
q = torch.randn(2, 4, 3, 6, dtype=torch.float64, requires_grad=True)  # (2, 4, 3, 6)
k = torch.randn(2, 4, 5, 6, dtype=torch.float64, requires_grad=True)  # (2, 4, 5, 6)
v = torch.randn(2, 4, 5, 6, dtype=torch.float64, requires_grad=True)  # (2, 4, 5, 6)
pairs = torch.zeros(3, 5, dtype=torch.bool)                           # (3, 5)
pairs[0, :2] = pairs[2, :3] = True
small = padding[:, None, None, :] | pairs                          # (2, 1, 3, 5)
mixed = attend_safely(q, k, v, small)[0]                           # (2, 4, 3, 6)
fused = F.scaled_dot_product_attention(q, k, v, attn_mask=~small)  # (2, 4, 3, 6)
torch.testing.assert_close(mixed, fused)
torch.testing.assert_close(one.gradients(mixed, [q, k, v]), one.gradients(fused, [q, k, v]))
print("equal, and so are the gradients")
print("fully masked rows:", int(small.all(-1).sum()))

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="two-mistakes"
# ## Two mistakes
#
# Neither of these raises an error or changes a shape. One question finds both: *what does the output
# react to?*
#
# > **Pitfall.** Masking after the softmax. The blocked weights are zero, as they should be, but they
# > have already been counted in the sum. The other weights no longer add up to one.

# %%
late = one.attend(x, x, x)[1].masked_fill(blocked[:, None, :], 0)  # (b, n, m)
(reaction,) = one.gradients((late @ x)[1, :4], [x])                # (b, m, d)
print(f"the row of “was” adds up to {late[1, 2].sum():.2f}")
print("the words react to:", *(labels[j] for j in reaction[1].norm(dim=-1).nonzero()))
assert reaction[1, 4:].any()

# %% [markdown]
# The words still react to all four padded positions.
#
# > **Pitfall.** A causal mask that is off by one. `triu(0)` hides every word from itself, which leaves
# > the first word fully masked. `triu(2)` lets each word see the next one.
#
# Here the values are `x[0]`, the same numbers as `words`. Only the values track gradients, so what
# reacts was *seen*, not used for asking.

# %%
for offset in (0, 1, 2):
    shifted = torch.ones(8, 8, dtype=torch.bool).triu(offset)  # (8, 8)
    drank = attend_safely(words, words, x[0], shifted)[0][2]   # (d,)
    (reaction,) = one.gradients(drank, [x])                    # (b, m, d)
    seen = [word for word, row in zip(one.WORDS, reaction[0]) if row.any()]
    empty = int(shifted.all(-1).sum())
    print(f"triu({offset}), fully masked: {empty}\n    “drank” sees:", *seen)
    assert (empty, seen) == (int(offset == 0), one.WORDS[: 2 + offset])

# %% [markdown]
# With `triu(2)` *drank* sees *milk*. A model that writes learns to predict the next word in each row, so
# in the row of *drank* the answer is *milk*. In training the model could copy that answer, but when
# it writes, there is nothing to copy.
#
# ## Exercises
#
# ### Merge by hand
#
# *Easy, 2 minutes.* Two samples, `the cat drank milk` and `it was _ _`, get the same mask of pairs.
# Each word may look at itself and at the word before it: `x` is blocked, `.` may be seen, and `_` is
# padding.
#
#     .xxx
#     ..xx
#     x..x
#     xx..
#
# Write down the mask that you get by merging this one with the padding: one row of four characters
# for each query.

# %% tags=["exercise"]
merged_by_hand = {
    "the cat drank milk": ["????", "????", "????", "????"],
    "it was _ _": ["????", "????", "????", "????"],
}

# %%
from annotated_book import exercises

exercises.masks.check_merged(merged_by_hand)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Begin with what does not depend on the query: in which columns does each sample have padding?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Lay the mask of pairs over both samples. A cell is blocked if one of the two masks blocks it. A row
# may end up without any dot.
#
# </details>

# %% tags=["solution"]
merged_by_hand = {
    "the cat drank milk": [".xxx", "..xx", "x..x", "xx.."],
    "it was _ _": [".xxx", "..xx", "x.xx", "xxxx"],
}

exercises.masks.check_merged.folded(merged_by_hand)

# %% [markdown]
# ## What you have now
#
# > **In short.** On paper a mask is added: $\mathrm{softmax}(QK^\top / \sqrt d + M)\,V$, where $M$ is
# > $-\infty$ for blocked keys and 0 for all others. In code, replace the scores.
# >
# > Padding `(b, m)` becomes `(b, 1, 1, m)`, the causal mask is `(n, m)`, and both merge into
# > `(b, 1, n, m)`:
# >
# > ```python
# > blocked = padding[:, None, None, :] | future
# > scores = scores.masked_fill(blocked, -math.inf)
# > weights = scores.softmax(-1).masked_fill(blocked, 0)
# > ```
# >
# > Block before the softmax, never only after it. The second fill is for fully masked rows; without
# > it, NaN would reach the gradients of matrices that all samples share. To test a mask, ask what the
# > output reacts to.
#
# You now have all the parts: projections, heads, batches and masks. [The next
# chapter](07_multihead_attention.ipynb) puts them into one class. Other libraries read True the
# other way round, or add numbers instead; [Masks in the wild](14_masks_in_the_wild.ipynb) sorts
# that out when you need it.
