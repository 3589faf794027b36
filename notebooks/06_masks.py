# %% [markdown]
# # Masks
#
# *Which words must not be seen?*
#
# *14 minutes and 2 of exercises. Afterwards you can hide padding and future words, and keep NaN
# out of the gradients.*
#
# > the cat drank milk because it was thirsty
# >
# > the milk was sweet · · · ·
#
# Two sentences share a batch. A batch is a rectangle, so the shorter sentence is filled up with rows
# of zeros, drawn here as dots. This is **padding**. Zeros are nothing, and nothing does no harm. Or
# does it?

# %% tags=["fold-input"]
import math
import warnings

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from annotated_attention import masks, merge_heads, split_heads
from annotated_attention import scaled_dot_product_attention as of_package
from annotated_book import chapters, display

one = chapters.load("01_one_head")  # its words, and its attend, which knows no mask
WIDE = [matrix.double() for matrix in chapters.load("04_reshape_trick").WIDE]
SHORT = ["the", "milk", "was", "sweet"]
labels = [*SHORT, "·", "·", "·", "·"]

# %% [markdown] name="padding"
# ## Nothing takes its share
#
# Let *was* in the short sentence look around, with one head and no mask. How much of its attention goes to the
# four dots: none, a little, or nearly half?
#
# <details><summary>What do you expect?</summary>
#
# Nearly half. A row of zeros scores 0 with every query, and the exponential of 0 is 1. A score of 0
# does not say *no*. It says *nothing in common*, and *was* has nothing in common with *milk* either.
# (*Milk* scores high with itself, and gives the dots next to nothing.)
#
# </details>

# %%
sentences = [one.embed(one.WORDS).double(), one.embed(SHORT).double()]
x = pad_sequence(sentences, batch_first=True)  # (b, m, d)
_, weights = one.attend(x, x, x)               # (b, n, d), (b, n, m)
display.show(weights[1, [1, 2]], ["milk looks at", "was looks at"], labels, heat=True)

# %% [markdown]
# For *was*, each dot gets as much as *milk*. Four features, made by hand, are not to blame:

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
print(
    "✓ Random words and matrices, 4 to 512 features: on average more than a third is lost."
)

# %% [markdown]
# The repair that comes to mind is to set those four weights to zero. That leaves the second bar.

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
# 0.46. (The table rounded each dot up.) The padding had already stood in the sum by which everything was
# divided. You could divide a second time. It is easier never to let padding into the sum.
#
# This is the one idea of the chapter: **a blocked key takes no part**, so it has to leave *before* the
# softmax. Which score has an exponential of 0? On paper only $-\infty$, and that makes the third
# bar.
#
# A **mask** is a sheet of card, laid over the table of scores, with a hole wherever a query may look. What
# it covers reads $-\infty$. In the code, `blocked` is True where there is card.


# %%
def attend(query, key, value, blocked):
    """Mix the rows of ``value``; no query sees a key where ``blocked`` is True."""
    scores = (query / math.sqrt(query.size(-1))) @ key.mT  # (..., n, m)
    scores = scores.masked_fill(blocked, -math.inf)        # (..., n, m)
    weights = scores.softmax(-1)                           # (..., n, m)
    return weights @ value, weights                        # (..., n, d), (..., n, m)


# %% [markdown]
# The first card, the **padding mask**, follows from the lengths: place j, counted from 0, is padding if j is at
# least the length of its sentence.

# %%
lengths = torch.tensor([8, 4])
padding = torch.arange(8) >= lengths[:, None]      # (b, m)
_, weights = attend(x, x, x, padding[:, None, :])  # (b, n, d), (b, n, m)
display.show(weights[1, [2]], ["was looks at"], labels, heat=True)

# %% [markdown]
# The axis of size 1 in `[:, None, :]` is stretched over all queries: padding is padding, whoever looks. The short
# sentence no longer notices its dots.

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
# A model that writes has *the cat drank milk because it*, and is about to choose the next word. There is no
# *thirsty* yet. So no query may see a key that comes after it [[Vaswani et al., section
# 3.2.3](../docs/references.md#vaswani-2017)]. This card is the **causal mask**: one hole in the first row, two in
# the second, and so on down a staircase. `triu(1)` keeps what lies above the diagonal.

# %%
words = one.embed(one.WORDS).double()                  # (n, d)
future = torch.ones(8, 8, dtype=torch.bool).triu(1)    # (n, m)
written, causal = attend(words, words, words, future)  # (n, d), (n, m)
display.staircase(causal, one.WORDS, name="staircase")

# %% [markdown]
# Read the row of *it*. Since the first page of this book, the last word has told *it* what is meant. Under this mask
# that cannot happen.

# %% tags=["hide-input"]
seen, _ = one.attend(words, words, words)  # (n, d), (n, m)
it = one.WORDS.index("it")
names = ["it, no mask", "it, staircase"]
display.show(torch.stack([seen[it], written[it]]), names, one.FEATURES)

# %% [markdown]
# Without a mask, 1.32 and 0.72: the numbers of the first page, which had no matrices either. Under the staircase *it*
# gives *cat*, *milk* and itself 0.27 each, and collects as much animal as food, 1.09 and 1.09. This word does not know
# what it means.
#
# So was the opening example wrong? It was an example of *reading*. A model that has the whole text
# before it, an **encoder**, needs no staircase, and there *it* may look ahead. Under this mask the row of *it*
# cannot settle the matter, whatever the matrices are. The first row that sees both *it* and the word that
# decides is the row of *thirsty*.
#
# Exchange the last word, *sweet* for *thirsty*. Which rows of the output move: without the mask, and
# with it?
#
# <details><summary>What do you expect?</summary>
#
# Without a mask every word looks at the last one, so all eight rows move. Under the staircase only one row has
# a hole in the last column: the last.
#
# </details>

# %% tags=["fold-input"]
other = one.embed(one.SWEET).double()  # (n, d)
moves = {}
for name, covered in (("no mask", torch.zeros(8, 8).bool()), ("staircase", future)):
    before, _ = attend(words, words, words, covered)  # (n, d), (n, m)
    after, _ = attend(other, other, other, covered)   # (n, d), (n, m)
    moves[name] = (after - before).norm(dim=-1)
display.show(torch.stack([*moves.values()]), [*moves], one.SWEET, corner="moved by")

# %% [markdown]
# Seven zeros, and they are exact. This is how you test any causal model, in evaluation, for a leak: change one word
# after the other, for a single change may miss a leak. No row before the changed word may move.
#
# Why train a model that may see less? The row of *drank* has seen *the cat drank* and nothing else, so it is what
# you would get if the text ended there. One pass over eight words is seven lessons in what comes next, and in
# none of them can the model copy the answer.

# %% tags=["proof"]
for length in range(1, 9):
    start = words[:length]                                               # (length, d)
    prefix = attend(start, start, start, masks.block_future(length))[0]  # (length, d)
    torch.testing.assert_close(prefix, written[:length])
assert future.equal(masks.block_future(8))
assert moves["no mask"].all()
assert moves["staircase"].nonzero().flatten().tolist() == [7]
for place in range(8):
    changed = words.clone()  # (n, d)
    changed[place] += 1
    moved = (attend(changed, changed, changed, future)[0] != written).any(-1)
    assert moved.nonzero().flatten().tolist() == [*range(place, 8)]
for offset, empty in ((0, 1), (1, 0), (2, 0)):
    shifted = torch.ones(8, 8, dtype=torch.bool).triu(offset)  # (n, m)
    _, weights = attend(words, words, words, shifted)          # (n, d), (n, m)
    seen_by = [word for word, weight in zip(one.WORDS, weights[2]) if weight]
    assert seen_by == one.WORDS[: 2 + offset]
    assert weights.isnan().all(-1).sum() == empty
print("✓ Cut the sentence after any word, or change one: the rows before it are the same.")

# %% [markdown] name="two-mistakes"
# > **Pitfall.** The staircase is off by one step. With `triu(2)` each word but the last sees the next one, which is
# > the answer. Nothing complains, the training loss falls beautifully, and the model cannot write: [A little
# > world](10_a_little_world.ipynb#cell-id=below-the-floor) trains five models that way. With `triu(0)` no word sees
# > itself, and the first row has no hole at all. Keep that row in mind.

# %% [markdown] name="merging-the-two"
# ## Two masks
#
# Two texts are to be continued in one batch. Do they need both masks? As they stand, no. The dots come last,
# and the staircase hides what comes later: no word sees a dot.

# %% tags=["proof"]
stairs, _ = attend(x, x, x, future)                        # (2, 8, 4), (b, n, m)
merged, _ = attend(x, x, x, padding[:, None, :] | future)  # (2, 8, 4), (b, n, m)
assert torch.equal(stairs[~padding], merged[~padding])
print("✓ Padding behind: the staircase is enough, and the padding mask changes no word.")

# %% [markdown]
# But a model writes *after the last word*, and here one sentence ends at place 8, the other at place 4. Put the
# dots in front, and both end at the right edge. This is **left padding**:
#
# > the cat drank milk because it was thirsty
# >
# > · · · · the milk was sweet
#
# Now the dots are the *past* of every word, and the staircase hides none of them. What each of the four words
# gives to dots:

# %% tags=["fold-input"]
left = pad_sequence(sentences, batch_first=True, padding_side="left")  # (2, 8, 4)
front = torch.arange(8) < 8 - lengths[:, None]                         # (b, m)
weights = attend(left, left, left, future)[1]                          # (b, n, m)
lost = weights[1, 4:, :4].sum(-1)                                      # (4,)
display.show(lost[None], ["goes to dots"], SHORT, heat=True)

# %% [markdown]
# Four fifths of *the*, and more than half of *was*. So lay one card on the other: a key is blocked if either mask
# blocks it. **Broadcasting** aligns axes from the right and stretches those of size 1. With an axis for the heads
# the scores are `(b, h, n, m)`: the staircase `(n, m)` fits as it is, and the padding gets a 1 for the heads and a
# 1 for the queries. Run two heads. Where does *sweet* look?

# %%
blocked = front[:, None, None, :] | future          # (b, 1, 1, m) | (n, m) -> (b, 1, n, m)
q, k, v = (split_heads(left @ w, 2) for w in WIDE)  # (b, h, n, d)
_, weights = attend(q, k, v, blocked)               # (b, h, n, d), (b, h, n, m)
print(tuple(blocked.shape), "stretched to", tuple(weights.shape))
unseen = blocked[1, :, 7].expand(2, 8)
dots_first = [*labels[4:], *SHORT]
display.show(weights[1, :, 7], ["head 1", "head 2"], dots_first, heat=True, blocked=unseen)

# %% [markdown]
# No dot gets anything. In head 1 *sweet* looks at little but itself, in head 2 half at *milk*. PyTorch's class takes the two masks apart, as `key_padding_mask` and `attn_mask`, and in both,
# True blocks. Its function, `F.scaled_dot_product_attention`, takes one, in which True is *allowed*: hand it
# `~blocked`. Forget the `~`, and nothing complains: every word looks at exactly what it must not see, and where that
# is nothing, gets zeros.

# %% tags=["proof"]
theirs = nn.MultiheadAttention(4, 2, batch_first=True, dtype=torch.float64)
theirs.in_proj_weight.data = torch.cat([matrix.T for matrix in WIDE])
theirs.out_proj.weight.data = torch.eye(4, dtype=torch.float64)
ours = merge_heads(attend(q, k, v, blocked)[0])[~front]  # (12, 4)
both = {"key_padding_mask": front, "attn_mask": future, "need_weights": False}
of_class = theirs(left, left, left, **both)[0][~front]  # (12, 4)
torch.testing.assert_close(of_class, ours)
sdpa = F.scaled_dot_product_attention
allowed = merge_heads(sdpa(q, k, v, attn_mask=~blocked))[~front]  # (12, 4)
torch.testing.assert_close(allowed, ours)
turned = merge_heads(sdpa(q, k, v, attn_mask=blocked))[~front]  # (12, 4)
assert turned.isfinite().all()
assert not (turned - ours).abs().amax(-1).lt(0.1).any()
print("✓ PyTorch's class and its function, with `~blocked`, give our words the same.")

# %% [markdown] name="fully-masked-rows"
# ## A row without a hole
#
# The dots are not only looked at. They also *ask*, so each has a row in the output. A dot sees no word, because all
# words come later, and no dot, because dots are padding: card from end to end. This is a **fully masked row**. All
# its scores are $-\infty$, all exponentials are 0, and so is their sum. Each weight is 0 divided by 0: NaN, *not a
# number*. (An empty text makes such rows, too. So does a tidy programmer who blocks padded *queries*.)
#
# Two shorter texts under both masks have two such rows. Make a third: press the first *the* above the columns of
# sentence 1. It is covered, and the first row has no hole left.

# %% tags=["hide-input"]
texts = [text.split() for text in ("the cat drank the milk", "· · it was sweet")]
rows = [one.embed([word for word in text if word != "·"]).double() for text in texts]
five = pad_sequence(rows, batch_first=True, padding_side="left")  # (2, 5, 4)
scores = five @ five.mT / math.sqrt(4)                            # (2, 5, 5)
display.mask_merger(texts, scores, torch.arange(5) < torch.tensor([[0], [2]]))

# %% [markdown]
# Nobody reads the row of a dot. So is it harmless? Now training begins. Three matrices are shared by all
# sentences, and the loss reads the first sentence alone, which has no padding. What is the gradient of $W_V$:
# finite, NaN in a few entries, or NaN in all of them?

# %%
blocked = front[:, None, :] | future  # (b, 1, m) | (n, m) -> (b, n, m)
W_Q, W_K, W_V = (torch.eye(4, dtype=torch.float64, requires_grad=True) for _ in range(3))
output, _ = attend(left @ W_Q, left @ W_K, left @ W_V, blocked)  # (b, n, d), (b, n, m)
loss = output[0].square().mean()  # the first sentence alone
loss.backward()
print(f"loss: {loss.item():.2f}")
display.show(W_V.grad, one.FEATURES, one.FEATURES, title="gradient of W_V")

# %% [markdown]
# All of them. The loss looks healthy, and one step of the optimiser later $W_V$ is NaN. How did it get there, from
# rows that the loss never touched?
#
# Walk back with the gradient, in the first panel. Nobody has read the row of a dot, so the gradient there is 0. On its
# way to the values it is multiplied by the weights of the row, which are NaN, and to a computer $0 \cdot
# \mathrm{NaN}$ is not 0. It is NaN. $W_V$ made the values of *both* sentences, so it adds up something finite, plus
# NaN. ($W_Q$ and $W_K$ get away, for what comes back to a covered score ends at the fill.)
#
# With a second layer on top, the NaN does not wait for the gradient. The row of a dot is now a
# *value*. Each word gives it a weight of 0, and $0 \cdot \mathrm{NaN}$ is NaN: every word of the
# sentence is lost.

# %% tags=["hide-input"]
display.way_of_the_nan(left, blocked, name="way-of-the-nan")

# %% tags=["proof"]
NAMES = "W_Q", "W_K", "W_V"


def train(attend, layers, x, blocked, read):
    """Give the output of random layers, the loss, and whose gradient holds NaN."""
    matrices = [torch.randn(4, 4).double().requires_grad_() for _ in range(3 * layers)]
    y = x
    for i in range(layers):
        q, k, v = (y @ matrix for matrix in matrices[3 * i : 3 * i + 3])  # (b, n, d)
        y = attend(q, k, v, blocked)[0]                                   # (b, n, d)
    loss = y[read].square().mean()
    bad = [each.isnan().any() for each in torch.autograd.grad(loss, matrices)]
    return y, loss, [name for name, nan in zip(NAMES * layers, bad) if nan]


for read, healthy in ((0, True), (~front, False)):  # sentence 1 alone, or all words
    y, loss, bad = train(attend, 1, left, blocked, read)
    assert y[~front].isfinite().all()
    assert loss.isfinite()
    assert bad == ["W_V"]
    y, loss, bad = train(attend, 2, left, blocked, read)
    assert y[0].isfinite().all()
    assert y[1].isnan().all()
    assert loss.isfinite() == healthy
    assert bad == [*NAMES] * 2
print("✓ Random matrices: one layer leaves numbers in every word, two lose sentence 2.")

# %% [markdown]
# ## The same card, twice
#
# How do you mend it? Replace the NaN by `nan_to_num(0)`. In the output, where you see it, or in the weights, where it
# arose?

# %% tags=["fold-input"]
output, weights = attend(
    left @ W_Q, left @ W_K, left @ W_V, blocked
)                                              # (b, n, d), (b, n, m)
mended = weights.nan_to_num(0) @ (left @ W_V)  # (b, n, d)
counts = {}
for place, y in (("in the output", output.nan_to_num(0)), ("in the weights", mended)):
    (gradient,) = torch.autograd.grad(y[0].square().mean(), W_V, retain_graph=True)
    found = [f"{each.isnan().sum()} of {each.numel()}" for each in (y, gradient)]
    counts[place] = found
display.show(
    counts, columns=["NaN in the output", "in the gradient of W_V"], corner="replaced"
)

# %% [markdown]
# Both outputs are clean, and the first gradient is as bad as before, 16 of 16: the way back still leads through the
# weights. So mend the weights. And do not replace whatever is NaN, which would hide the next mistake as well. Say which:
# after the softmax, lay the same card on once more, and this time what it covers becomes 0.


# %% tags=["hide-input"]
def attend_safely(query, key, value, blocked):
    """Mix the rows of ``value``; a fully masked row gets zeros."""
    scores = (query / math.sqrt(query.size(-1))) @ key.mT  # (..., n, m)
    scores = scores.masked_fill(blocked, -math.inf)        # (..., n, m)
    weights = scores.softmax(-1)                           # (..., n, m)
    weights = weights.masked_fill(blocked, 0)              # (..., n, m)
    return weights @ value, weights                        # (..., n, d), (..., n, m)


display.diff(attend, attend_safely)

# %% [markdown]
# One more line, and a row without a hole collects nothing, and spoils nobody's gradient.

# %% tags=["proof"]
y = left.clone().requires_grad_()          # (b, n, d)
safe = attend_safely(y, y, y, blocked)[0]  # (b, n, d)
of_words = one.gradients(safe[~front], [y])
for start, text in ((0, y[0]), (4, y[1, 4:])):
    alone = attend(text, text, text, masks.block_future(8 - start))[0]
    torch.testing.assert_close(safe[int(start > 0), start:], alone)
for other in (of_package(y, y, y, blocked=blocked)[0], sdpa(y, y, y, attn_mask=~blocked)):
    torch.testing.assert_close(other, safe)
    torch.testing.assert_close(one.gradients(other[~front], [y]), of_words)
assert one.gradients(attend_safely(y, y, y, blocked)[0], [y])[0].isfinite().all()
for depth in (1, 2):
    assert not train(attend_safely, depth, left, blocked, ~front)[2]
assert [each == "0 of 64" for each, _ in counts.values()] == [True, True]
assert [each for _, each in counts.values()] == ["16 of 16", "0 of 16"]
print(
    "✓ After the second fill, package and PyTorch's function agree: outputs and gradients."
)

# %% [markdown] name="your-cure"
# ## Your code, your cure
#
# Does your batch have such rows? `blocked.all(-1).any()` tells. The cure depends on what your code does with its mask:
#
# | your code | your cure |
# |---|---|
# | fills its scores with $-\infty$ | the second fill |
# | adds a mask of $-\infty$ and 0 | **lift** the card from such a row, by zeros in its row of the mask, then add; and the second fill |
# | calls `nn.MultiheadAttention` | merge its two masks, lift, and hand over the result alone, once for each head |
#
# The third one, in code. In all of these masks True is blocked:
#
# ```python
# blocked = key_padding_mask[:, None] | attn_mask     # (b, n, m)
# blocked = blocked & ~blocked.all(-1, keepdim=True)  # lifted where a row was fully masked
# mha(x, x, x, attn_mask=blocked.repeat_interleave(num_heads, 0))
# ```
#
# No NaN is left, and no word changes. The lifted row itself holds numbers now, and they mean nothing. But it was you who
# lifted it, so you know which row to keep out of the loss. Without the lift, the class gives NaN by default. Filling with a
# large negative number, as much code does, gives no NaN: it hides that there is such a row.

# %% tags=["proof"]
both = {"key_padding_mask": front, "attn_mask": future}
open_rows = blocked & ~blocked.all(-1, keepdim=True)  # (b, n, m)
by_head = open_rows.repeat_interleave(2, 0)           # (2 * b, n, m)
for training, need in ((True, True), (True, False), (False, True), (False, False)):
    theirs = nn.MultiheadAttention(4, 2, batch_first=True).double().train(training)
    with torch.set_grad_enabled(training):
        given = {"attn_mask": by_head, "need_weights": need}
        y = theirs(left, left, left, **given)[0]  # (b, n, d)
        later = theirs(y, y, y, **given)[0]       # (b, n, d)
    assert y.isfinite().all()
    assert later.isfinite().all()
    as_before = theirs(left, left, left, need_weights=False, **both)[0]  # (b, n, d)
    torch.testing.assert_close(y[~front], as_before[~front])
    if training:
        found = torch.autograd.grad(later[~front].square().mean(), theirs.parameters())
        assert all(each.isfinite().all() for each in found)
print("✓ Lifted first: no NaN in four modes, in two layers, and the words are the same.")

# %% [markdown]
# <!-- deeper: PyTorch's modes, and a large negative number -->
# ### Going deeper: PyTorch's modes, and a large negative number
#
# Where the card is not lifted, PyTorch's class gives NaN by default, in the row and in the gradients of all four matrices.
# With `need_weights=False` such a row gets zeros before $W_O$, in training. Then you switch to `eval()` and
# `torch.no_grad()`, and the NaN can be back: [Masks in the
# wild](16_masks_in_the_wild.ipynb#cell-id=what-a-fully-masked-row-gets) says when, and who else does what.
#
# With `-1e9` in the place of $-\infty$, such a row looks evenly at all that it must not see. These numbers are made up, too,
# only nobody was told. And in float16 the fill stops with `value cannot be converted to type c10::Half without overflow`.

# %% tags=["proof"]
for training, graded, need, nan in (
    (True, True, True, True),
    (True, True, False, False),
    (False, True, False, False),
    (False, False, False, True),
):
    theirs = nn.MultiheadAttention(4, 2, batch_first=True).double().train(training)
    with torch.set_grad_enabled(graded):
        y = theirs(left, left, left, need_weights=need, **both)[0]  # (b, n, d)
    assert y[1, 0].isnan().all() if nan else not y[1, 0].any()
    if graded:
        parts = theirs.in_proj_weight, theirs.out_proj.weight
        packed, out = torch.autograd.grad(y[~front].square().mean(), parts)
        assert {bool(x.isnan().any()) for x in (*packed.chunk(3), out)} == {nan}
scores = (left @ left.mT).masked_fill(blocked, -1e9)  # (b, n, m)
torch.testing.assert_close((scores.softmax(-1) @ left)[1, 0], left[1].mean(0))
try:
    message = str(scores.half().masked_fill(blocked, -1e9))
except RuntimeError as error:
    message = str(error)
assert message == "value cannot be converted to type c10::Half without overflow"
print("✓ PyTorch's class and the large negative number give such a row what is said here.")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="where-a-mask-is-added"
# <!-- deeper: where a mask is added -->
# ### Going deeper: where a mask is added
#
# Why is the second fill not enough where a mask is added? On the way back, the softmax multiplies by the weights it had
# computed, before the second fill: it still sends back NaN. Where the first fill has overwritten the scores, the NaN
# stops. Where a mask of $-\infty$ and 0 was *added*, it goes on:

# %% tags=["hide-input"]
display.where_the_nan_stops(left, blocked, name="where-the-nan-stops")

# %% [markdown]
# (So `torch.autograd.detect_anomaly`, which looks at every step, stops in `attend_safely` with `SoftmaxBackward0 returned
# nan values`, although no parameter's gradient is NaN.) Lifted first, no NaN arises:

# %%
scores = (left @ W_Q) @ (left @ W_K).mT / math.sqrt(4)            # (b, n, m)
added = torch.zeros_like(scores).masked_fill(blocked, -math.inf)  # (b, n, m)
lifted = added.masked_fill(blocked.all(-1, keepdim=True), 0)      # (b, n, m)
weights = (scores + lifted).softmax(-1).masked_fill(blocked, 0)   # (b, n, m)

# %% tags=["proof"]
torch.testing.assert_close(weights @ left, attend_safely(left, left, left, blocked)[0])
for mask, bad in ((added, [*NAMES[:2]]), (lifted, [])):
    scores = (left @ W_Q) @ (left @ W_K).mT / math.sqrt(4)        # (b, n, m)
    filled = (scores + mask).softmax(-1).masked_fill(blocked, 0)  # (b, n, m)
    loss = (filled @ (left @ W_V))[~front].square().mean()
    nan = [each.isnan().any() for each in torch.autograd.grad(loss, [W_Q, W_K, W_V])]
    assert [name for name, found in zip(NAMES, nan) if found] == bad
try:
    with warnings.catch_warnings(action="ignore"), torch.autograd.detect_anomaly():
        attend_safely(left @ W_Q, left, left, blocked)[0].sum().backward()
    message = ""
except RuntimeError as error:
    message = str(error)
assert "SoftmaxBackward0' returned nan values" in message
print("✓ Added and filled again, W_Q and W_K hold NaN; lifted first, none does.")

# %% [markdown]
# <!-- /deeper -->
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
# Lay the mask of pairs over both samples. A cell is blocked if one of the two masks blocks it. Every cell
# of a row may end up as `x`.
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
# > $-\infty$ where it blocks and 0 elsewhere. In code, merge the two masks, and use the result twice:
# >
# > ```python
# > blocked = padding[:, None, None, :] | future     # (b, 1, 1, m) | (n, m) -> (b, 1, n, m)
# > scores = scores.masked_fill(blocked, -math.inf)  # what is blocked takes no part
# > weights = scores.softmax(-1).masked_fill(blocked, 0)  # a fully masked row takes nothing
# > ```
# >
# > Block before the softmax, never only after it. The second fill keeps one row without a hole from spoiling
# > everyone's gradient. If your code adds its mask, lift it from such a row first.
#
# With this card the last part is on the bench: projections, heads, batches, masks. In [the next
# chapter](07_multihead_attention.ipynb) you put them together.
