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
# does it?

# %% tags=["fold-input"]
import math
import warnings

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from annotated_attention import masks, merge_heads, split_heads
from annotated_attention import scaled_dot_product_attention as of_package
from annotated_book import chapters, display

one = chapters.load("01_one_head")  # its words, and its attend, which knows no mask
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
print("✓ Random words and matrices, 4 to 512 features: padding takes more than a third.")

# %% [markdown]
# The repair that comes to mind: take the weights as the softmax gives them, and set those four to zero. The
# second bar of the figure is what that leaves.

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
# softmax. Which score has an exponential of 0, whatever the other scores are? On paper only $-\infty$, and
# that makes the third bar.
#
# A **mask** is like a sheet of card laid over the table of scores, with a hole wherever a query may look. What
# it covers reads $-\infty$. In the code, `blocked` is True there.


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
# A model that writes has *the cat drank milk because it*, and is about to choose the next word. There is no
# *thirsty* yet. So no query may see a key that comes after it [[Vaswani et al., section
# 3.2.3](../docs/references.md#vaswani-2017)]. This is the **causal mask**: one key is left in the first row, two
# in the second, and so on down a staircase. `triu(1)` keeps what lies above the diagonal.

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
# Without a mask every word looks at the last one, so all eight rows move. Under the staircase only the last
# row sees the last column.
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
# Seven zeros, and they are exact. This is also how you test such a mask in any model. Change every word in
# turn, for one word alone may miss a hole: no row before the changed word may move, and its own row must.
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
print("✓ Cut the sentence after any word, or change one: the rows before it are the same.")

# %% [markdown] name="two-mistakes"
# > **Pitfall.** The staircase is off by one step. With `triu(2)` each word sees the next one, which is the
# > answer. Nothing complains: the training loss falls beautifully, and the model cannot write. With
# > `triu(0)` a word does not see itself. The first one sees nothing at all. With a plain softmax the loss is NaN at
# > once; where such a row gets zeros, nothing complains either.

# %% tags=["proof"]
for offset, empty in ((0, 1), (1, 0), (2, 0)):
    shifted = torch.ones(8, 8, dtype=torch.bool).triu(offset)  # (n, m)
    _, weights = attend(words, words, words, shifted)          # (n, d), (n, m)
    seen_by = [word for word, weight in zip(one.WORDS, weights[2]) if weight]
    assert seen_by == one.WORDS[: 2 + offset]
    assert weights.isnan().all(-1).sum() == empty
    assert (weights @ words).square().mean().isnan() == bool(empty)
print("✓ “drank” sees two, three and four words under triu(0), triu(1) and triu(2).")

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
# But a model writes *behind the last word*, and that stands in another place in each row. Put the dots in
# front, and every text ends at the right edge. This is **left padding**:
#
# > the cat drank milk because it was thirsty
# >
# > · · · · the milk was sweet
#
# The staircase stays. How much of its attention does each of the four words give to dots now?
#
# <details><summary>What do you expect?</summary>
#
# Now the dots are the *past* of every word, and the staircase hides none of them. The first word fares worst:
# it may look at four dots and itself.
#
# </details>

# %%
left = pad_sequence(sentences, batch_first=True, padding_side="left")  # (2, 8, 4)
front = torch.arange(8) < 8 - lengths[:, None]                         # (b, m)
weights = attend(left, left, left, future)[1]                          # (b, n, m)
lost = weights[1, 4:, :4].sum(-1)                                      # (4,)
display.show(lost[None], ["goes to dots"], SHORT, heat=True)

# %% [markdown]
# Four fifths of *the*, and more than half of *was*. In front, the padding needs its mask again, and a key
# is blocked if either mask blocks it. **Broadcasting** aligns axes from the right and stretches those of size 1.
# With an axis for the heads the scores are `(b, h, n, m)`. The staircase `(n, m)` fits as it is, and the padding
# gets a 1 for the heads and a 1 for the queries. Run two heads, and ask where *sweet* looks:

# %%
blocked = front[:, None, None, :] | future          # (b, 1, 1, m) | (n, m) -> (b, 1, n, m)
q, k, v = (split_heads(left @ w, 2) for w in WIDE)  # (b, h, n, d)
_, weights = attend(q, k, v, blocked)               # (b, h, n, d), (b, h, n, m)
print(tuple(blocked.shape), "stretched to", tuple(weights.shape))
unseen = blocked[1, :, 7].expand(2, 8)
dots_first = [*labels[4:], *SHORT]
display.show(weights[1, :, 7], ["head 1", "head 2"], dots_first, heat=True, blocked=unseen)

# %% [markdown]
# No dot gets anything. PyTorch's class takes the masks as two arguments, and in both, True blocks. PyTorch's
# function takes one mask, in which True is *allowed*. Here both get our two heads and masks, and the function
# once more without the `~`:

# %% tags=["fold-input"]
theirs = nn.MultiheadAttention(4, 2, bias=False, batch_first=True, dtype=torch.float64)
theirs.in_proj_weight.data = torch.cat([matrix.T for matrix in WIDE])
theirs.out_proj.weight.data = torch.eye(4, dtype=torch.float64)
both = {"key_padding_mask": front, "attn_mask": future, "need_weights": False}
found = {"class, both masks": theirs(left, left, left, **both)[0]}
for name, mask in (("function, ~blocked", ~blocked), ("function, blocked", blocked)):
    heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # (b, h, n, d)
    found[name] = merge_heads(heads)                                 # (b, n, h * d)
ours = merge_heads(attend(q, k, v, blocked)[0])                      # (b, n, h * d)
off = {name: [(each - ours)[~front].abs().max().item()] for name, each in found.items()}
display.show(off, columns=["off by up to"])

# %% [markdown]
# Without the `~` nothing complains: every word looks at exactly what it must not see, and where that is
# nothing, gets zeros.
#
# Here are two shorter texts under both masks. Press the column heading *cat*, and watch the other weights
# grow. And two rows hold no number.

# %% tags=["hide-input"]
texts = [text.split() for text in ("the cat drank the milk", "· · it was sweet")]
rows = [one.embed([word for word in text if word != "·"]).double() for text in texts]
five = pad_sequence(rows, batch_first=True, padding_side="left")  # (2, 5, 4)
scores = five @ five.mT / math.sqrt(4)                            # (2, 5, 5)
display.mask_merger(texts, scores, torch.arange(5) < torch.tensor([[0], [2]]))

# %% [markdown] name="fully-masked-rows"
# ## A fully masked row
#
# The dots are not only looked at. They also *ask*, so each has a row in the output. The first dot sees no word,
# because all words come later, and no dot, because dots are padding. Nothing is left: a **fully masked row**.
# All its scores are $-\infty$, all exponentials are 0, and so is their sum. Each weight is 0 divided by 0,
# which is NaN, *not a number*. (An empty text makes such rows, too. So does a tidy programmer who blocks padded
# *queries*.)
#
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
# All of them. The loss is healthy, as it would be over all words of both sentences, and one step of the
# optimiser later $W_V$ is NaN. How did it get there, from rows that the loss never touched?
#
# Walk back the way the gradient goes. Nobody has read the row of a dot, so the gradient there is 0. On its way
# to the values it is multiplied by the weights of the row, which are NaN. To a computer, $0 \cdot
# \mathrm{NaN}$ is not 0. It is NaN. And $W_V$ made the values of *both* sentences, so it adds up what comes
# back from each: something finite, plus NaN.

# %% tags=["hide-input"]
display.way_of_the_nan(left, blocked, name="way-of-the-nan")

# %% [markdown]
# PyTorch's own class surely knows better? Give it the same two masks. Call it as it comes, and without asking
# for the weights. Its three matrices are the 48 numbers of `in_proj_weight`.

# %% tags=["fold-input"]
for asked in (True, False):
    theirs = nn.MultiheadAttention(4, 2, batch_first=True, dtype=torch.float64)
    both = {"key_padding_mask": front, "attn_mask": future, "need_weights": asked}
    output = theirs(left, left, left, **both)[0]  # (b, n, d)
    output[0].square().mean().backward()
    nan = theirs.in_proj_weight.grad.isnan().sum().item()
    print(f"need_weights={asked}: NaN in {nan} of 48")

# %% [markdown]
# 48 of 48, and that is the default. (Without weights the class calls `F.scaled_dot_product_attention` in training,
# which gives such a row zeros.) Why all three matrices, where ours lost $W_V$ alone? The NaN also goes back through the
# softmax, to the scores. The class *adds* its mask, and an addition passes on whatever comes. `masked_fill`
# *overwrites* a score, which then has no say in the result, so its gradient is written as 0.

# %% tags=["hide-input"]
display.where_the_nan_stops(left, blocked, name="where-the-nan-stops")

# %% [markdown]
# That is one layer. In a second, the words meet the dots' NaN as *values*, and a weight of 0 saves nobody. The loss
# over them is NaN at once, and so are all gradients.
#
# > **Was it this?** Three lines say whether there is such a row, whose gradient is NaN, and which step made it:
# >
# > ```python
# > blocked.all(-1).any()
# > [name for name, p in model.named_parameters() if p.grad is not None and p.grad.isnan().any()]
# > with torch.autograd.detect_anomaly(): model(x).sum().backward()
# > ```
# >
# > The second comes after `backward()`. In one layer of our `attend` the third stops with `BmmBackward0 returned
# > nan values in its 1th output`: counted from 0, these are the values. It names where the first NaN is met on the
# > way back, which in a deep model is the last layer. One layer: a healthy loss, a dead gradient. Two: the loss is
# > NaN. More causes:
# > [Symptoms](../docs/symptoms.md#nan-in-the-output-the-loss-or-the-gradients).


# %% tags=["proof"]
def train(attend, layers, x, blocked, read):
    """Give the loss of layers with random matrices, and whether each gradient holds NaN."""
    matrices = [torch.randn(4, 4).double().requires_grad_() for _ in range(3 * layers)]
    y = x
    for i in range(layers):
        q, k, v = (y @ matrix for matrix in matrices[3 * i : 3 * i + 3])  # (b, n, d)
        y = attend(q, k, v, blocked)[0]                                   # (b, n, d)
    loss = y[read].square().mean()
    gradients = torch.autograd.grad(loss, matrices)
    return loss.isnan().item(), [gradient.isnan().any().item() for gradient in gradients]


for read in (0, ~front):  # the first sentence alone, or all words
    assert train(attend, 1, left, blocked, read) == (False, [False, False, True])
assert train(attend, 2, left, blocked, 0) == (False, [True] * 6)
assert train(attend, 2, left, blocked, ~front) == (True, [True] * 6)
y = left.clone().requires_grad_()  # (b, n, d)
try:
    with warnings.catch_warnings(action="ignore"), torch.autograd.detect_anomaly():
        attend(y, y, y, blocked)[0][0].sum().backward()
    message = ""
except RuntimeError as error:
    message = str(error)
assert "BmmBackward0' returned nan values in its 1th output" in message
print("✓ One layer: the loss is finite. Two: it is NaN if it reads the padded sentence.")

# %% [markdown]
# How do you mend it? First idea: replace the NaN where you see it, in the output.

# %%
output, _ = attend(left @ W_Q, left @ W_K, left @ W_V, blocked)  # (b, n, d), (b, n, m)
bandaged = output.nan_to_num(0)                                  # (b, n, d)
(gradient,) = torch.autograd.grad(bandaged[0].square().mean(), W_V)
print("NaN in the output:", bandaged.isnan().sum().item(), "of 64")
print("NaN in the gradient of W_V:", gradient.isnan().sum().item(), "of 16")

# %% [markdown]
# The output is clean, and the gradient is as bad as before: it still walks through the weights. So mend the
# weights. After the softmax, use the same mask once more, and this time what it blocks becomes 0. (The softmax
# still sends back NaN, but only into scores that the first fill overwrote, and the gradient of what was overwritten
# is 0.)


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
# And if your code adds its mask, as the package does? Then the second fill does not help $W_Q$ and $W_K$.
# **Lift** the mask from a fully masked row before the softmax, so that no NaN arises at all, and fill the weights
# afterwards. These matrices get a NaN under each cure:


# %% tags=["fold-input"]
def spoiled(x: Tensor, blocked: Tensor, added: bool, cure: str) -> str:
    """Name the matrices whose gradient is NaN; the loss reads no fully masked row."""
    matrices = [torch.eye(4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    q, k, v = (x @ matrix for matrix in matrices)  # (b, n, d)
    fully = blocked.all(-1)                        # (b, n)
    hidden = blocked & ~fully[..., None] if "lift" in cure else blocked
    scores = q @ k.mT / math.sqrt(4)  # (b, n, m)
    if added:
        scores = scores + torch.zeros(blocked.shape).masked_fill(hidden, -math.inf)
    else:
        scores = scores.masked_fill(hidden, -math.inf)  # (b, n, m)
    weights = scores.softmax(-1)                        # (b, n, m)
    if "fill" in cure:
        weights = weights.masked_fill(blocked, 0)  # (b, n, m)
    mixed = weights @ v                            # (b, n, d)
    output = mixed.nan_to_num(0) if cure == "mend the output" else mixed
    bad = [each.isnan().any() for each in one.gradients(output[~fully], matrices)]
    return " ".join(name for name, nan in zip(("W_Q", "W_K", "W_V"), bad) if nan) or "none"


cures = ("nothing", "mend the output", "fill again", "lift and fill")
found = {cure: [spoiled(left, blocked, x, cure) for x in (False, True)] for cure in cures}
display.show(found, columns=["masked_fill", "added"], corner="cure")

# %% tags=["proof"]
every = "W_Q W_K W_V"
assert [*found.values()][:2] == [["W_V", every], ["W_V", every]]
assert [*found.values()][2:] == [["none", "W_Q W_K"], ["none", "none"]]
y = left.clone().requires_grad_()          # (b, n, d)
safe = attend_safely(y, y, y, blocked)[0]  # (b, n, d)
plain = attend(y, y, y, blocked)[0]        # (b, n, d)
torch.testing.assert_close(safe[~front], plain[~front])
assert not safe[front].any()
assert train(attend_safely, 2, left, blocked, ~front) == (False, [False] * 6)
of_words = one.gradients(safe[~front], [y])
for start, text in ((0, y[0]), (4, y[1, 4:])):
    alone = attend(text, text, text, masks.block_future(8 - start))[0]
    torch.testing.assert_close(safe[int(start > 0), start:], alone)
ours, _ = of_package(y, y, y, blocked=blocked)
torch.testing.assert_close(ours, safe)
torch.testing.assert_close(one.gradients(ours[~front], [y]), of_words)
fused = F.scaled_dot_product_attention(y, y, y, attn_mask=~blocked)  # (b, n, d)
torch.testing.assert_close(fused, safe)
torch.testing.assert_close(one.gradients(fused[~front], [y]), of_words)
print("✓ Zeros for the dots, no NaN in one layer or two, and PyTorch's function agrees.")

# %% [markdown]
# Do not block padded *queries*: rows that no loss reads need no mask. For the rows that are fully masked all the
# same, zeros are this book's choice, and not everybody's:
#
# | a fully masked row gets | from whom |
# |---|---|
# | zeros | this book, `F.scaled_dot_product_attention`, and PyTorch's class when it trains without weights |
# | NaN | a softmax alone; PyTorch's class with weights, and on its fast path, in evaluation, without them |
# | **uniform** weights | who fills with a large negative number, say $-10^9$, so that all scores are equal: the row attends evenly to what it must not see |
#
# The menu of the figure above shows all three, and [Masks in the
# wild](16_masks_in_the_wild.ipynb#cell-id=what-a-fully-masked-row-gets) finds out who does what.

# %% tags=["proof"]
assert attend(left, left, left, blocked)[1][1, 0].isnan().all()
uniform = torch.zeros(3, 5).masked_fill(torch.ones(3, 5).bool(), -1e9).softmax(-1)  # (3, 5)
assert uniform.eq(0.2).all()
for need_weights in (True, False):
    both = {"key_padding_mask": front, "attn_mask": future, "need_weights": need_weights}
    dots = theirs(left, left, left, **both)[0][front] - theirs.out_proj.bias  # (4, d)
    assert dots.isnan().all() if need_weights else not dots.any()
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
# > Block before the softmax, never only after it. The second fill keeps one fully masked row from
# > spoiling everyone's gradient. That is true of `masked_fill`: if your code adds its mask, lift it from such
# > a row first. To test a mask, change each word in turn, and see what moves.
#
# With this mask the last part is on the bench: projections, heads, batches, masks. In [the next
# chapter](07_multihead_attention.ipynb) you put them together.
