# %% [markdown]
# # Masks
#
# *Which words must not be seen?*
#
# *15 minutes and 2 of exercises. Afterwards you can hide padding and future words, and keep NaN
# out of the gradients.*
#
# > the cat drank milk because it was thirsty
# >
# > the milk was sweet · · · ·
#
# Two sentences share a batch. A batch is a rectangle, so the shorter sentence is filled up with rows
# of zeros, drawn here as dots. This is **padding**. Zeros are nothing, and nothing does no harm. Or
# does it? (The fold loads what the page uses: `one` is the chapter [One head](01_one_head.ipynb), with its words
# and its `attend`; `WIDE` holds the matrices of [Two heads](02_two_heads.ipynb) side by side.)

# %% tags=["fold-input"]
import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention import masks, merge_heads, split_heads
from annotated_attention import scaled_dot_product_attention as of_package
from annotated_book import chapters, display

one = chapters.load("01_one_head")
WIDE = [matrix.double() for matrix in chapters.load("04_reshape_trick").WIDE]
SHORT = ["the", "milk", "was", "sweet"]
labels = [*SHORT, "·", "·", "·", "·"]

# %% [markdown] name="padding"
# ## Four rows of zeros
#
# Let *was* in the short sentence look around, with one head and no mask. How much of
# its attention goes to the four rows of zeros: none, a little, or
# nearly half?
#
# <details><summary>What do you expect?</summary>
#
# Nearly half, for *was*. A row of zeros scores 0 with every query, and the exponential of 0 is 1. A score of 0
# does not say *no*. It says *nothing in common*, and *was* has nothing in common with *milk* either.
# (A word that scores high with itself gives them less: *milk* gives them next to nothing.)
#
# </details>

# %%
sentences = [one.embed(one.WORDS).double(), one.embed(SHORT).double()]
x = nn.utils.rnn.pad_sequence(sentences, batch_first=True)  # (b, m, d)
_, weights = one.attend(x, x, x)                            # (b, n, d), (b, n, m)
display.show(weights[1, [1, 2]], ["milk looks at", "was looks at"], labels, heat=True)

# %% [markdown]
# For *was*, each dot gets as much as *milk*. Nor is that the doing of four hand-made features:

# %% tags=["proof"]
torch.manual_seed(6)
for e in (4, 64, 512):
    drawn = torch.randn(100, 8, e)  # (100, 8, e)
    w_q, w_k = torch.randn(2, e, e) / math.sqrt(e)
    for filler in (torch.zeros(e), torch.randn(e)):
        drawn[:, 4:] = filler
        between = (drawn @ w_q) @ (drawn @ w_k).mT / math.sqrt(e)  # (100, 8, 8)
        lost = between.softmax(-1)[:, :4, 4:].sum(-1).mean()
        assert 1 / 3 < lost < 2 / 3, (e, lost)
print("✓ Random words and matrices, 4 to 512 features: padding takes more than a third.")

# %% [markdown]
# The repair that comes to mind: let the head finish, then set those four weights to zero. The second bar of
# the figure is what that leaves.

# %% tags=["hide-input"]
was = weights[1, 2]                              # (m,)
hidden = torch.tensor([False] * 4 + [True] * 4)  # (m,)
scores = (x[1] @ x[1, 2]) / math.sqrt(4)         # (m,)
bars = {
    "no mask": was,
    "zeroed, after the softmax": was.masked_fill(hidden, 0),
    "out, before the softmax": scores.masked_fill(hidden, -math.inf).softmax(-1),
}
display.shares(bars, labels, name="shares-of-was")

# %% [markdown]
# The dots are gone, and their share went with them: the words keep 0.54, and nobody gets the other
# 0.46. The padding had already stood in the sum by which everything was divided. You could divide a
# second time. It is easier never to let padding into the sum.
#
# This is the one idea of the chapter: **a blocked key takes no part**, so it has to leave *before* the
# softmax. Which score has an exponential of exactly 0? Not 0, as you have seen, and not −5 either:
# only $-\infty$, because $\exp(-\infty) = 0$. That is the third bar.
#
# Picture the scores as a table, a row for each query and a column for each key. A **mask** is like a sheet
# of card laid over the table, with a hole wherever a query may look. What it covers reads $-\infty$. In
# the code, `blocked` is True there.


# %%
def attend(query, key, value, blocked):
    """Mix the rows of ``value``; no query sees a key where ``blocked`` is True."""
    scores = (query / math.sqrt(query.size(-1))) @ key.mT  # (..., n, m)
    scores = scores.masked_fill(blocked, -math.inf)        # (..., n, m)
    weights = scores.softmax(-1)                           # (..., n, m)
    return weights @ value, weights                        # (..., n, d), (..., n, m)


# %% [markdown]
# The first, the **padding mask**, follows from the lengths. Place j, counted from 0, is padding if j is at
# least the length of its sentence.

# %%
lengths = torch.tensor([8, 4])
padding = torch.arange(8) >= lengths[:, None]      # (b, m)
_, weights = attend(x, x, x, padding[:, None, :])  # (b, n, d), (b, n, m)
display.show(weights[1, [2]], ["was looks at"], labels, heat=True)

# %% [markdown]
# The axis of size 1 in `[:, None, :]` is stretched over all queries: padding is padding, whoever
# looks. And the short sentence no longer notices its dots.

# %% tags=["proof"]
y = x.clone().requires_grad_()                             # (b, m, d)
of_words = attend(y, y, y, padding[:, None, :])[0][1, :4]  # (4, d)
alone, _ = one.attend(y[1, :4], y[1, :4], y[1, :4])        # (4, d), (4, 4)
torch.testing.assert_close(of_words, alone)
torch.testing.assert_close(one.gradients(of_words, [y]), one.gradients(alone, [y]))
assert padding.equal(masks.block_padding(lengths, 8))
print("✓ In the batch the short sentence gets what it gets alone: outputs and gradients.")

# %% [markdown] name="the-causal-mask"
# ## A mask like a staircase
#
# Padding is blocked for everybody. The second mask depends on who is looking.
#
# Think of a model that writes. So far it has *the cat drank milk because it*, and is about to choose
# the next word. There is no *thirsty* yet. So no query may see a key that comes after it [[Vaswani et
# al., section 3.2.3](../docs/references.md#vaswani-2017)]. This is the **causal mask**: one key is left
# in the first row, two in the second, and so on down a staircase. `triu(1)` keeps what lies above the
# diagonal.

# %%
words = one.embed(one.WORDS).double()                  # (n, d)
future = torch.ones(8, 8, dtype=torch.bool).triu(1)    # (n, m)
written, causal = attend(words, words, words, future)  # (n, d), (n, m)
display.staircase(causal, one.WORDS, name="staircase")

# %% [markdown]
# Now read the row of *it*. Since the first page of this book, the last word has told *it* what is
# meant. Under this mask that cannot happen.

# %% tags=["hide-input"]
seen, _ = one.attend(words, words, words)  # (n, d), (n, m)
it = one.WORDS.index("it")
names = ["it, no mask", "it, staircase"]
display.show(torch.stack([seen[it], written[it]]), names, one.FEATURES)

# %% [markdown]
# Under the staircase *it* gives *cat*, *milk* and itself 0.27 each, and collects as much animal as
# food, 1.09 and 1.09. This word does not know what it means.
#
# So was the opening example wrong? It was an example of *reading*. A model that has the whole text
# before it, an **encoder**, needs no staircase, and there *it* may look ahead. A model that *writes*
# cannot settle the matter in the row of *it*, whatever its matrices are. The first row that sees both
# *it* and the word that decides is the row of *thirsty*.
#
# Exchange the last word, *sweet* for *thirsty*. Which rows of the output move: without the mask, and
# with it?
#
# <details><summary>What do you expect?</summary>
#
# Without a mask every word looks at the last one, so all eight rows move. Under the staircase only one
# row sees the last column: the last. The other seven cannot know that anything happened.
#
# </details>

# %%
other = one.embed(one.SWEET).double()  # (n, d)
moves = {}
for name, mask in (("no mask", torch.zeros(8, 8).bool()), ("staircase", future)):
    before, _ = attend(words, words, words, mask)  # (n, d), (n, m)
    after, _ = attend(other, other, other, mask)   # (n, d), (n, m)
    moves[name] = (after - before).norm(dim=-1)
display.show(torch.stack([*moves.values()]), [*moves], one.SWEET, corner="moved by")

# %% [markdown]
# Seven zeros, and they are exact. This is also how you test such a mask in any model: change the last word,
# and no row before it may move.
#
# Why train a model that may see less? The row of *drank* has seen *the cat drank* and nothing else, so it is what
# you would get if the text ended there. One pass over eight words is eight lessons in what comes next, and in none
# of them can the model copy the answer.

# %% tags=["proof"]
for length in range(1, 9):
    start = words[:length]                                               # (length, d)
    prefix = attend(start, start, start, masks.block_future(length))[0]  # (length, d)
    torch.testing.assert_close(prefix, written[:length])
assert future.equal(masks.block_future(8))
assert moves["no mask"].all()
assert moves["staircase"].nonzero().flatten().tolist() == [7]
print("✓ Cut the sentence after any word: the rows before the cut are the same.")

# %% [markdown] name="two-mistakes"
# > **Pitfall.** The staircase is off by one step, and nothing complains. With `triu(2)` each word sees
# > the next one, which is the answer: the training loss falls beautifully, and the model cannot write.
# > With `triu(0)` a word does not see itself, and the first row sees nothing at all.

# %% tags=["proof"]
for offset, empty in ((0, 1), (1, 0), (2, 0)):
    shifted = torch.ones(8, 8, dtype=torch.bool).triu(offset)  # (n, m)
    _, weights = attend(words, words, words, shifted)          # (n, d), (n, m)
    seen_by = [word for word, weight in zip(one.WORDS, weights[2]) if weight]
    assert seen_by == one.WORDS[: 2 + offset]
    assert weights.isnan().all(-1).sum() == empty
print("✓ “drank” sees two, three and four words under triu(0), triu(1) and triu(2).")

# %% [markdown] name="merging-the-two"
# ## Two masks
#
# A batch of texts to be continued needs both masks: a key is blocked if either blocks it. **Broadcasting**
# aligns axes from the right and stretches those of size 1. With an axis for the heads the scores are
# `(b, h, n, m)`, so the staircase `(n, m)` fits as it is, and the padding gets a 1 for the heads and a 1 for
# the queries. Run two heads, with `WIDE`. Where does *sweet* look, the last word of the short sentence?

# %%
blocked = padding[:, None, None, :] | future     # (b, 1, 1, m) | (n, m) -> (b, 1, n, m)
q, k, v = (split_heads(x @ w, 2) for w in WIDE)  # (b, h, n, d)
_, weights = attend(q, k, v, blocked)            # (b, h, n, d), (b, h, n, m)
print(tuple(blocked.shape), "stretched to", tuple(weights.shape))
unseen = blocked[1, :, 3].expand(2, 8)
display.show(weights[1, :, 3], ["head 1", "head 2"], labels, heat=True, blocked=unseen)

# %% [markdown]
# One mask serves both heads, and no dot gets anything. Why 0.85? Head 1 asks for animals and, half as hard,
# for qualities. It may see one quality, *sweet* itself: a score of 4, against 0, 0 and 0. Head 2 asks for foods,
# and for it *milk* and *sweet*, a food with a quality, are level at 12.

# %% tags=["proof"]
of_sweet = q[1, :, 3, None] @ k[1, :, :4].mT  # (2, 1, 4)
assert of_sweet.flatten(1).tolist() == [[0, 0, 0, 4], [0, 12, 0, 12]]
print("✓ The scores of “sweet”, before the root: 0, 0, 0, 4 and 0, 12, 0, 12.")

# %% [markdown]
# PyTorch's class takes two arguments, and in both, True blocks. PyTorch's function takes one mask, in which
# True is *allowed*. Give the two heads to both, and to the function once more without the `~`.

# %%
theirs = nn.MultiheadAttention(4, 2, bias=False, batch_first=True, dtype=torch.float64)
theirs.in_proj_weight.data = torch.cat([matrix.T for matrix in WIDE])
theirs.out_proj.weight.data = torch.eye(4, dtype=torch.float64)
both = {"key_padding_mask": padding, "attn_mask": future}
found = {"class, both masks": theirs(x, x, x, **both, need_weights=False)[0]}
for name, mask in (("function, ~blocked", ~blocked), ("function, blocked", blocked)):
    heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # (b, h, n, d)
    found[name] = merge_heads(heads)                                 # (b, n, h * d)
ours = merge_heads(attend(q, k, v, blocked)[0])                      # (b, n, h * d)
off = {name: [(each - ours).abs().max().item()] for name, each in found.items()}
display.show(off, columns=["off by up to"])

# %% [markdown]
# Without the `~` nothing complains: every word looks at exactly what it must not see.
#
# Here are two shorter texts under both masks. Press the column heading *cat*, and watch the other weights
# grow in each row that sees *cat*.

# %% tags=["hide-input"]
texts = [text.split() for text in ("the cat drank the milk", "it was sweet · ·")]
rows = [one.embed([word for word in text if word != "·"]).double() for text in texts]
five = nn.utils.rnn.pad_sequence(rows, batch_first=True)  # (2, 5, 4)
scores = five @ five.mT / math.sqrt(4)                    # (2, 5, 5)
display.mask_merger(texts, scores, masks.block_padding(torch.tensor([5, 3]), 5))

# %% [markdown] name="fully-masked-rows"
# ## A fully masked row
#
# The first row of a staircase sees one key. Block that one, too (in the figure, start again, and press the first
# *the*), and nothing is left: a **fully masked row**. All its scores are $-\infty$, all
# exponentials are 0, and so is their sum. Each weight is 0 divided by 0, which is NaN, *not a number*.
#
# Who makes such a mask on purpose? Somebody tidy. The dots are not only looked at. They also *ask*, so
# each has a row in the output. Nobody reads these rows, and a tidy mind blocks them, too.
#
# Now training begins. Three matrices are shared by all sentences, and the loss reads *only the first
# one*, which has no padding. What is the gradient of $W_V$: finite, NaN in a few entries, or NaN in all
# of them?

# %%
tidy = padding[:, None, :] | padding[:, :, None]  # (b, 1, m) | (b, n, 1) -> (b, n, m)
W_Q, W_K, W_V = (torch.eye(4, dtype=torch.float64, requires_grad=True) for _ in range(3))
output, _ = attend(x @ W_Q, x @ W_K, x @ W_V, tidy)  # (b, n, d), (b, n, m)
loss = output[0].square().mean()  # the first sentence alone
loss.backward()
print(f"loss: {loss.item():.2f}")
display.show(W_V.grad, one.FEATURES, one.FEATURES, title="gradient of W_V")

# %% [markdown]
# All of them. The loss looks healthy, and one step of the optimiser later $W_V$ is NaN, for every
# sentence that this model will ever read. How did it get there, from rows that the loss never touched?
#
# Walk back the way the gradient goes. Nobody has read the row of a dot, so the gradient there is 0. On its way
# to the values it is multiplied by the weights of the row, which are NaN. To a computer, $0 \cdot
# \mathrm{NaN}$ is not 0. It is NaN. And $W_V$ made the values of *both* sentences, so it adds up what comes
# back from each: something finite, plus NaN.

# %% tags=["hide-input"]
display.way_of_the_nan(x, tidy, name="way-of-the-nan")

# %% [markdown]
# PyTorch's own class surely knows better? Give it the same mask, once for each of two heads, since the class
# takes no other mask for each sample. Call it as it comes, and without asking for the weights. Its $W_Q$, $W_K$
# and $W_V$ are the 48 numbers of `in_proj_weight`.

# %%
per_head = tidy.repeat_interleave(2, 0)  # (b * h, n, m)
for asked in (True, False):
    theirs = nn.MultiheadAttention(4, 2, batch_first=True, dtype=torch.float64)
    output = theirs(x, x, x, attn_mask=per_head, need_weights=asked)[0]  # (b, n, d)
    output[0].square().mean().backward()
    nan = theirs.in_proj_weight.grad.isnan().sum().item()
    print(f"need_weights={asked}: NaN in {nan} of 48")

# %% [markdown]
# 48 of 48, and that is the default. Whoever asks to *see* the weights loses all three matrices. Who does not
# ask loses nothing: PyTorch then calls `F.scaled_dot_product_attention`, which gives such a row zeros. (In ours
# $W_Q$ and $W_K$ come out clean, as long as no second layer stands on top: *Going deeper*.) One row that nobody
# reads has cost the whole model.


# %% tags=["proof"]
def spoiled_by(attend, layers, x, blocked, kept):
    """Count the NaN in each gradient; ``kept`` is 1 if a layer adds to its input."""
    e = x.size(-1)
    matrices = [torch.randn(e, e).double().requires_grad_() for _ in range(3 * layers)]
    y = x
    for i in range(layers):
        q, k, v = (y @ matrix for matrix in matrices[3 * i : 3 * i + 3])  # (b, n, e)
        y = kept * y + attend(q, k, v, blocked)[0]                        # (b, n, e)
    gradients = torch.autograd.grad(y[0].square().mean(), matrices)
    return [gradient.isnan().sum().item() for gradient in gradients]


drawn = torch.randn(2, 8, 16, dtype=torch.float64)  # (2, 8, 16)
for kept in (0, 1):
    assert spoiled_by(attend, 1, drawn, tidy, kept) == [0, 0, 256]
    assert spoiled_by(attend, 2, drawn, tidy, kept) == [256] * 6
below = x.clone().requires_grad_()  # (b, n, d)
(of_below,) = torch.autograd.grad(attend(below, below, below, tidy)[0][0].sum(), below)
assert of_below.isnan().flatten(1).any(1).tolist() == [False, True]
print("✓ Two layers of ours, one on top of the other: all six matrices fall.")

# %% [markdown]
# How do you mend it? First idea: replace the NaN where you see it, in the output.

# %%
output, _ = attend(x @ W_Q, x @ W_K, x @ W_V, tidy)  # (b, n, d), (b, n, m)
bandaged = output.nan_to_num(0)                      # (b, n, d)
(gradient,) = torch.autograd.grad(bandaged[0].square().mean(), W_V)
print("NaN in the output:", bandaged.isnan().sum().item(), "of 64")
print("NaN in the gradient of W_V:", gradient.isnan().sum().item(), "of 16")

# %% [markdown]
# The output is clean, and the gradient is as bad as before: it still walks through the weights. So mend the
# weights. After the softmax, use the same mask once more, and this time what it blocks becomes 0.


# %% tags=["hide-input"]
def attend_safely(query, key, value, blocked):
    """Mix the rows of ``value``; a fully masked row gets zeros."""
    scores = (query / math.sqrt(query.size(-1))) @ key.mT  # (..., n, m)
    scores = scores.masked_fill(blocked, -math.inf)        # (..., n, m)
    weights = scores.softmax(-1)                           # (..., n, m)
    weights = weights.masked_fill(blocked, 0)              # (..., n, m)
    return weights @ value, weights                        # (..., n, d), (..., n, m)


display.diff(attend, attend_safely)

# %% tags=["proof"]
y = x.clone().requires_grad_()                             # (b, n, d)
plain = attend(y, y, y, padding[:, None, :])[0][~padding]  # (12, d)
safe = attend_safely(y, y, y, tidy)[0]                     # (b, n, d)
torch.testing.assert_close(safe[~padding], plain)
assert not any([*spoiled_by(attend_safely, 2, drawn, tidy, 1), safe[padding].any()])
of_words, of_plain = one.gradients(safe[~padding], [y]), one.gradients(plain, [y])
torch.testing.assert_close(of_words, of_plain)
assert of_plain[0].any(-1).equal(~padding)  # unread rows need no mask
ours, _ = of_package(y, y, y, blocked=tidy)
torch.testing.assert_close(ours, safe)
torch.testing.assert_close(one.gradients(ours[~padding], [y]), of_words)
print("✓ Zeros for the dots, no NaN in any gradient, and the words as they were.")

# %% tags=["proof"]
q = torch.randn(2, 4, 3, 6, dtype=torch.float64, requires_grad=True)  # (2, 4, 3, 6)
k = torch.randn(2, 4, 5, 6, dtype=torch.float64, requires_grad=True)  # (2, 4, 5, 6)
v = torch.randn(2, 4, 5, 6, dtype=torch.float64, requires_grad=True)  # (2, 4, 5, 6)
pairs = torch.zeros(3, 5, dtype=torch.bool)                           # (3, 5)
pairs[0, :2] = pairs[2, :3] = True
small = (
    masks.block_padding(torch.tensor([5, 3]), 5)[:, None, None, :] | pairs
)                                                                  # (2, 1, 3, 5)
mixed = attend_safely(q, k, v, small)[0]                           # (2, 4, 3, 6)
fused = F.scaled_dot_product_attention(q, k, v, attn_mask=~small)  # (2, 4, 3, 6)
torch.testing.assert_close(mixed, fused)
torch.testing.assert_close(one.gradients(mixed, [q, k, v]), one.gradients(fused, [q, k, v]))
assert small.all(-1).sum() == 1
print("✓ With heads, and a query that sees nothing, PyTorch's function does the same.")

# %% [markdown]
# And the tidy mind? It has gained nothing: rows that no loss reads send back a gradient of 0 and need no mask.
# But an empty sentence makes fully masked rows, and so does padding in *front* of a text under a staircase. For
# those days there is the second fill. Zeros are this book's choice, and not everybody's. In PyTorch 2.13, on a
# CPU:
#
# | a fully masked row gets | from whom |
# |---|---|
# | zeros | this book, `F.scaled_dot_product_attention` (NaN before [safe softmax](https://github.com/pytorch/pytorch/pull/131060) in 2024), and PyTorch's class without weights |
# | NaN | a softmax alone, and PyTorch's class with weights; without them on its [fast path](07_multihead_attention.ipynb#cell-id=before-you-swap) |
# | **uniform** weights | who fills with a large negative number, say $-10^9$: all scores of the row are equal, and it attends evenly to everything that it must not see (float16 raises an error, bfloat16 takes it quietly) |
#
# The menu of the figure above shows all three. [Masks in the wild](16_masks_in_the_wild.ipynb) finds out
# which library does what.

# %% tags=["proof"]
empty = torch.tensor([[False] * 8, [True] * 8])  # (b, m)
class_of_torch = nn.MultiheadAttention(4, 2, batch_first=True, dtype=torch.float64)
for need_weights, training, graded in itertools.product((True, False), repeat=3):
    with torch.set_grad_enabled(graded):
        row, _ = class_of_torch.train(training)(x, x, x, empty, need_weights=need_weights)
    nan = need_weights or not (training or graded)
    rest = row[1] - class_of_torch.out_proj.bias  # (n, d)
    assert rest.isnan().all() if nan else not rest.any()
uniform = torch.zeros(3, 5).masked_fill(torch.ones(3, 5).bool(), -1e9).softmax(-1)  # (3, 5)
assert uniform.eq(0.2).all()
quiet = torch.zeros(1, 5).bfloat16().masked_fill(torch.ones(5).bool(), -1e9)  # (1, 5)
assert quiet.softmax(-1).eq(quiet.softmax(-1)[0, 0]).all()
try:
    torch.zeros(2, dtype=torch.float16).masked_fill(torch.ones(2).bool(), -1e9)
    message = ""
except RuntimeError as error:
    message = str(error)
assert "overflow" in message
print("✓ Zeros, NaN, uniform: each as the table says.")

# %% [markdown]
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

# %% [markdown] name="deeper-other-cures"
# <!-- deeper: Which other cures fail, and why the package lifts -->
# ### Going deeper: Which other cures fail, and why the package lifts
#
# Why are $W_Q$ and $W_K$ clean in a single layer? On the way back the softmax, too, multiplies by its weights, so
# the blocked scores do get NaN. But a score that `masked_fill` has overwritten has no say in the result, so its
# gradient is *written* as 0, and nothing is multiplied. That helps as long as queries and keys are finite
# themselves, which in a second layer they are not.
#
# A mask can also be *added* to the scores, as a matrix $M$ of $-\infty$ and 0. PyTorch's class does so,
# and so does the package, because its masks may hold other numbers, too. An addition passes every
# gradient on, so nothing stops the NaN on its way to $W_Q$ and $W_K$. Therefore the package **lifts**
# the mask from a fully masked row before the softmax, so that no NaN arises at all, and fills the
# weights with 0 afterwards. The cell lists the matrices whose gradient is NaN; the loss reads no fully
# masked row.


# %%
def lay(scores: Tensor, blocked: Tensor, added: bool) -> Tensor:
    """Mask the scores: by numbers that are added, or by overwriting them."""
    if not added:
        return scores.masked_fill(blocked, -math.inf)                           # (b, n, m)
    return scores + torch.zeros(blocked.shape).masked_fill(blocked, -math.inf)  # (b, n, m)


# %%
def spoiled(x: Tensor, blocked: Tensor, added: bool, cure: str) -> str:
    """Name the matrices whose gradient is NaN; the loss reads no fully masked row."""
    matrices = [torch.eye(4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    q, k, v = (x @ matrix for matrix in matrices)  # (b, n, d)
    fully = blocked.all(-1)                        # (b, n)
    hidden = blocked & ~fully[..., None] if "lift" in cure else blocked
    weights = lay(q @ k.mT / math.sqrt(4), hidden, added).softmax(-1)  # (b, n, m)
    if "fill" in cure:
        weights = weights.masked_fill(blocked, 0)  # (b, n, m)
    mixed = weights @ v                            # (b, n, d)
    output = mixed.nan_to_num(0) if cure == "mend output" else mixed
    bad = [each.isnan().any() for each in one.gradients(output[~fully], matrices)]
    return " ".join(name for name, nan in zip(("W_Q", "W_K", "W_V"), bad) if nan) or "none"


# %%
cures = ("nothing", "mend output", "fill again", "lift and fill")
found = {cure: [spoiled(x, tidy, added, cure) for added in (True, False)] for cure in cures}
nan = "W_Q W_K W_V"
assert [*found.values()] == [
    [nan, "W_V"],
    [nan, "W_V"],
    ["W_Q W_K", "none"],
    ["none", "none"],
]
display.show(found, columns=["added", "masked_fill"], corner="cure")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## What you have now
#
# > **In short.** On paper a mask is added: $\mathrm{softmax}(QK^\top / \sqrt d + M)\,V$, where $M$ is
# > $-\infty$ where it blocks and 0 elsewhere. In code, merge the two masks, and use the result twice:
# >
# > ```python
# > blocked = padding[:, None, None, :] | future     # (b, 1, 1, m) | (n, m) -> (b, 1, n, m)
# > scores = scores.masked_fill(blocked, -math.inf)  # what is blocked takes no part
# > weights = scores.softmax(-1).masked_fill(blocked, 0)  # a fully masked row takes nothing
# > ```
# >
# > Block before the softmax, never only after it. The second fill keeps one fully masked row from
# > spoiling everyone's gradient. To test a mask, change a word and see what moves.
#
# With this mask the last part is on the bench: projections, heads, batches, masks. In [the next
# chapter](07_multihead_attention.ipynb) you put them together.
