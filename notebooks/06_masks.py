# %% [markdown]
# # Masks
#
# *Which words must not be seen?*
#
# *13 minutes and 4 of exercises. Afterwards you can hide padding and future words, and keep NaN
# out of the gradients.*
#
# A small model that has learned to tell stories goes on with *the cat drank*. Put one row of zeros in front of the text,
# as if it were a word, and it tells another story. Orange is what changes. What will the cat drink if that row holds the
# numbers of *tea*? Guess, then press.

# %% tags=["hide-input"]
import math
import warnings
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from annotated_attention import masks, merge_heads, split_heads
from annotated_attention import scaled_dot_product_attention as of_package
from annotated_book import chapters, display
from annotated_book.display.live_figures.aloud import go_on

torch.set_num_threads(1)  # for these small sums, more only wait for each other
one = chapters.load("01_one_head")  # its words, and its attend, which knows no mask
WIDE = [matrix.double() for matrix in chapters.load("04_reshape_trick").WIDE]
SHORT = ["the", "milk", "was", "sweet"]
TELLER = chapters.load("10_a_little_world")
TEXT, PLACES = "the cat drank", (0, 1, 2, 4, 8, 16)
ANSWERS = {"thirsty": "the cat", "sweet": "the drink"}  # whom "it" means in a story


# %% tags=["hide-input"]
class Inside(nn.Module):
    """Let a function of this page attend in a trained layer."""

    def __init__(self, theirs, how):
        super().__init__()
        self.theirs, self.how, self.blocked = theirs, how, None

    def forward(self, x, *_, **__):
        packed = F.linear(x, self.theirs.in_proj_weight, self.theirs.in_proj_bias)
        q, k, v = (split_heads(part, 2) for part in packed.chunk(3, -1))  # (b, h, n, d)
        mixed = self.how(q, k, v, blocked=self.blocked)[0]                # (b, h, n, d)
        return self.theirs.out_proj(merge_heads(mixed)), None


def storyteller(how):
    """Load the model, and let `how` attend in both of its layers."""
    model = TELLER.shipped().eval()
    for layer in model.layers.layers:
        layer.self_attn = Inside(layer.self_attn, how)
    return model


# %% tags=["hide-input"]
@torch.no_grad()
def logits(model, ids, held, places, masked):
    """Score what may come next, behind some places; each word keeps its own position."""
    root = math.sqrt(model.embed.embedding_dim)
    x = model.positions(model.embed(ids) * root)         # (1, n, e)
    tea = model.embed.weight[TELLER.WORDS.index("tea")]  # (e,)
    row = tea * root if held == "tea" else tea * 0       # (e,)
    x = torch.cat([row.expand(1, places, -1), x], 1)     # (1, places + n, e)
    blocked = masks.block_future(x.size(1))              # (places + n, places + n)
    blocked = blocked | (masked & (torch.arange(x.size(1)) < places))
    for layer in model.layers.layers:
        layer.self_attn.blocked = blocked
    return model.project(model.layers(x))  # (1, places + n, v)


def tell(model, held, masked):
    """Say what comes after the text, behind each number of places."""
    told = [TELLER.EDGE, *TEXT.split()]
    behind = [partial(logits, model, held=held, places=n, masked=masked) for n in PLACES]
    ways = (go_on(way, told, TELLER.WORDS, longest=TELLER.LONGEST) for way in behind)
    return [" ".join(words) for words in ways]


# %% tags=["hide-input"]
plain = storyteller(of_package)
led = {
    held: [tell(plain, held, masked) for masked in (False, True)]
    for held in ("zeros", "tea")
}
display.dots_in_front(
    led, PLACES, TEXT, switch="padding mask", answers=ANSWERS, name="led-astray"
)

# %% [markdown]
# One row of zeros, and the thirsty cat becomes a sweet juice. Behind *tea*, the cat drinks
# tea. There is no error. Now switch the **padding mask** on: zeros and *tea* change nothing any more, behind one place
# or sixteen.
#
# Who would put a place there? A model reads many texts together, in a batch. A batch is a rectangle, so the shorter texts
# are filled up. This is **padding**. Here the filler is a row of zeros; BERT's is a token `[PAD]`,
# which has numbers of its own, as *tea* has. Zeros hold nothing, and still they changed the story. How can nothing do that?

# %% [markdown] name="padding"
# ## Nothing takes its share
#
# > the cat drank milk because it was thirsty
# >
# > the milk was sweet · · · ·
#
# Two sentences in one batch; each dot is a row of zeros. Let *was* in the short one look around, with one head and no mask. How much of its
# attention goes to the four dots?
#
# <details name="dots"><summary>None: a row of zeros is nothing.</summary>
#
# Its score is 0, too. But the exponential of 0 is 1, so its weight is not.
#
# </details>
# <details name="dots"><summary>A little.</summary>
#
# A score of 0 does not say *no*. It says *nothing in common*, and *was* has nothing in common with *milk* either. So a dot
# gets what *milk* gets.
#
# </details>
# <details name="dots"><summary>Nearly half.</summary>
#
# Right. A dot scores 0 with every query, and there are four of them.
#
# </details>

# %%
sentences = [one.embed(one.WORDS).double(), one.embed(SHORT).double()]
x = pad_sequence(sentences, batch_first=True)  # (b, m, e)
_, weights = one.attend(x, x, x)               # (b, n, e), (b, n, m)

# %% tags=["hide-input"]
was = weights[1, 2]                              # (m,)
hidden = torch.tensor([False] * 4 + [True] * 4)  # (m,)
scores = (x[1] @ x[1, 2]) / math.sqrt(4)         # (m,)
bars = {
    "no mask": was,
    "zeroed, after the softmax": was.masked_fill(hidden, 0),
    "out, before the softmax": scores.masked_fill(hidden, -math.inf).softmax(-1),
}
display.shares(bars, [*SHORT, *"····"], name="shares-of-was")

# %% [markdown]
# The first bar is what *was* does now. The four dots get 0.46 together, and each as much as *milk*, which has nothing in
# common with *was*: both score 0, and exp(0) is 1.
#
# The repair that comes to mind sets those four weights to zero, after the softmax. That is the second bar. The dots' share
# went with them: the words keep 0.54, and nobody gets the rest. The padding had
# already stood in the sum by which everything was divided. You could divide a second time. It is easier never to let padding into the sum.
#
# This is the one idea of the chapter: **a blocked key takes no part**, so it has to leave *before* the softmax. Which
# score has an exponential of 0? On paper, only $-\infty$, and that makes the third bar.
#
# A **mask** says which query must not see which key. In the code it is called `blocked`, and where it is True, the score
# becomes $-\infty$. The first one, the padding mask, follows from the lengths:


# %%
def attend(query, key, value, blocked):
    """Mix the rows of ``value``; no query sees a key where ``blocked`` is True."""
    scores = query @ key.mT / math.sqrt(query.size(-1))  # (..., n, m)
    scores = scores.masked_fill(blocked, -math.inf)      # (..., n, m)
    weights = scores.softmax(-1)                         # (..., n, m)
    return weights @ value, weights                      # (..., n, d), (..., n, m)


lengths = torch.tensor([8, 4])
padding = torch.arange(8) >= lengths[:, None]      # (b, m)
_, weights = attend(x, x, x, padding[:, None, :])  # (b, n, e), (b, n, m)

# %% [markdown]
# `[:, None, :]` gives every query the same mask: padding is padding, whoever looks. The short sentence no longer notices
# its dots, as long as they hold finite numbers. A dot's weight is 0, but 0 times NaN (*not a number*) is NaN, and so is
# $0 \cdot \infty$. So fill padding with finite numbers (`torch.empty` may hold
# NaN).

# %% tags=["proof"]
y = x.clone().requires_grad_()                             # (b, m, e)
of_words = attend(y, y, y, padding[:, None, :])[0][1, :4]  # (4, d)
alone, _ = one.attend(y[1, :4], y[1, :4], y[1, :4])        # (4, d), (4, 4)
torch.testing.assert_close(of_words, alone)
torch.testing.assert_close(one.gradients(of_words, [y]), one.gradients(alone, [y]))
for filler in torch.randn(3, 4).double():
    z = x.masked_scatter(padding[..., None], filler.expand(4, 4))  # (b, m, e)
    filled = attend(z, z, z, padding[:, None, :])[0][1, :4]        # (4, d)
    torch.testing.assert_close(filled, of_words)
for filler in (math.nan, math.inf):
    z = x.masked_fill(padding[..., None], filler)  # (b, m, e)
    assert attend(z, z, z, padding[:, None, :])[0][1, :4].isnan().all()
assert padding.equal(masks.block_padding(lengths, 8))
print("✓ Whatever finite numbers fill it up, the short sentence gets what it gets alone.")

# %% [markdown] name="the-causal-mask"
# ## A mask like a staircase
#
# Padding is blocked for everybody. The second mask depends on who is looking.
#
# A model that learns to write gets whole sentences, and shall say after each word which one is next. The row of *drank*
# could look at *milk* then, and copy it: *milk* is the answer. When it writes, there is no next word to look at. So no query may see a key that comes after it [[Vaswani et al., section
# 3.2.3](../docs/references.md#vaswani-2017)]. This is the **causal mask**: the first query sees one key, the second
# two, and so on down a staircase. `triu(1)` keeps what lies above the diagonal.

# %%
words = one.embed(one.WORDS).double()                  # (n, e)
future = torch.ones(8, 8, dtype=torch.bool).triu(1)    # (n, m)
written, causal = attend(words, words, words, future)  # (n, e), (n, m)

# %% tags=["hide-input"]
display.staircase(causal, one.WORDS, name="staircase")

# %% [markdown]
# Read the row of *it*. Since the first page of this book, the last word has told the word *it* what is meant. Under this mask
# that cannot happen.

# %% tags=["hide-input"]
seen, _ = one.attend(words, words, words)  # (n, e), (n, m)
it = one.WORDS.index("it")
names = ["it, no mask", "it, staircase"]
display.show(torch.stack([seen[it], written[it]]), names, one.FEATURES)

# %% [markdown]
# Without a mask, 1.32 and 0.72, as on the first page. Under the staircase *it* gives *cat* and *milk* the same, and
# collects as much animal as food, 1.09 and 1.09. This word does not know what it means. (The storyteller at the top has this staircase, too: it settles the matter later, as it writes.)
#
# So was the first page wrong? It was an example of *reading*. A model that has the whole text before it, an **encoder**,
# needs no staircase, and there *it* may look ahead. Under this mask the row of *it* cannot settle the matter, whatever
# the matrices are. The first row that sees both *it* and the word that decides is the row of *thirsty*.
#
# Now take two such layers, one behind the other, and replace *drank*, the third word. In which of the eight rows does the output move?
#
# <details name="rows"><summary>In the third.</summary>
#
# All rows after it see *drank*, too.
#
# </details>
# <details name="rows"><summary>In the third and all after it.</summary>
#
# Right. The two rows before it do not move at all, not even by a rounding error.
#
# </details>
# <details name="rows"><summary>In all: the second layer hears from the first who has heard of it.</summary>
#
# The first two rows hear nobody who stands after them, in either layer.
#
# </details>
#
# This is how you test any causal model for a leak, with dropout off (`model.eval()`): change each word in turn, and no
# row before it may move.
#
# Why train a model that may see less? The row of *drank* is what you would get if the text ended there. So one pass over
# eight words is seven lessons in what comes next, and in none of them can the model copy the answer.

# %% tags=["proof"]
for length in range(1, 9):
    start = words[:length]                                               # (length, d)
    prefix = attend(start, start, start, masks.block_future(length))[0]  # (length, d)
    torch.testing.assert_close(prefix, written[:length])
assert future.equal(masks.block_future(8))
other = one.embed(one.SWEET).double()  # (n, e)
for covered, rows in ((future & False, [*range(8)]), (future, [7])):
    before, after = (attend(each, each, each, covered)[0] for each in (words, other))
    assert (after != before).any(-1).nonzero().flatten().tolist() == rows
for place in range(8):
    changed = words.clone()  # (n, e)
    changed[place] += 1
    moved = (attend(changed, changed, changed, future)[0] != written).any(-1)
    assert moved.nonzero().flatten().tolist() == [*range(place, 8)]
    twice = (attend(*[attend(z, z, z, future)[0]] * 3, future)[0] for z in (changed, words))
    moved = torch.ne(*twice).any(-1)
    assert moved.nonzero().flatten().tolist() == [*range(place, 8)]
for offset, empty in ((0, 1), (1, 0), (2, 0)):
    shifted = torch.ones(8, 8, dtype=torch.bool).triu(offset)  # (n, m)
    _, weights = attend(words, words, words, shifted)          # (n, e), (n, m)
    seen_by = [word for word, weight in zip(one.WORDS, weights[2]) if weight]
    assert seen_by == one.WORDS[: 2 + offset]
    assert weights.isnan().all(-1).sum() == empty
print("✓ Cut the sentence after any word, or change one: the rows before it are the same.")

# %% [markdown] name="two-mistakes"
# > **Pitfall.** The staircase is off by one step. With `triu(2)` each word but the last sees the next one, which is
# > the answer. Nothing complains, the training loss falls beautifully, and [the model cannot
# > write](10_a_little_world.ipynb#cell-id=below-the-floor). With `triu(0)` no word sees
# > itself, and the first row sees nothing at all. Keep that row in mind.

# %% [markdown] name="merging-the-two"
# ## Two masks
#
# Do two texts in one batch need both masks? With the dots behind, no: the staircase hides them from every word.
#
# But a model that writes reads its next word from the last place of every text, `output[:, -1]`. With the dots behind, the
# short text would go on after a dot. So they stand in front, as at the top of this page: **left padding**,
# `padding_side="left"` in PyTorch and in Hugging Face's tokenizers. (Positions are then counted from the first word.)
#
# Now the dots are the *past* of every word, and the staircase hides none of them. So a key is blocked if either mask
# blocks it.

# %%
left = pad_sequence(sentences, batch_first=True, padding_side="left")  # (b, m, e)
padding = torch.arange(8) < 8 - lengths[:, None]                       # (b, m)

blocked = padding[:, None, :] | future  # (b, 1, m) | (n, m) -> (b, n, m)

# %% [markdown]
# **Broadcasting** repeats the padding mask for every query, and the staircase for every sentence. With heads the scores are
# `(b, h, n, m)`, and padding needs one axis more: `padding[:, None, None, :]`.
#
# Here are two shorter sentences under both masks. Press a word above its column, and it becomes padding; press *staircase*,
# and that mask is gone. When does a row turn to NaN?
#
# Then press *forget the ~* in the figure. PyTorch's class, `nn.MultiheadAttention`, takes `blocked` as it is. But in PyTorch's function,
# `F.scaled_dot_product_attention`, a mask's True means *allowed*, so it wants `~blocked`. What does it do with
# `blocked`?

# %% tags=["hide-input"]
texts = [text.split() for text in ("the cat drank the milk", "· · it was sweet")]
rows = [one.embed([word for word in text if word != "·"]).double() for text in texts]
five = pad_sequence(rows, batch_first=True, padding_side="left")  # (2, 5, 4)
scores = five @ five.mT / math.sqrt(4)                            # (2, 5, 5)
display.mask_merger(texts, scores, torch.arange(5) < torch.tensor([[0], [2]]))

# %% tags=["proof"]
behind = torch.arange(8) >= lengths[:, None]                       # (b, m)
stairs = attend(x, x, x, future)[0][~behind]                       # (12, 4)
merged = attend(x, x, x, behind[:, None, :] | future)[0][~behind]  # (12, 4)
assert torch.equal(stairs, merged)
q, k, v = (split_heads(left @ w, 2) for w in WIDE)  # (b, h, n, d)
by_head = padding[:, None, None, :] | future        # (b, 1, n, m)
theirs = nn.MultiheadAttention(4, 2, batch_first=True, dtype=torch.float64)
theirs.in_proj_weight.data = torch.cat([matrix.T for matrix in WIDE])
theirs.out_proj.weight.data = torch.eye(4, dtype=torch.float64)
ours = merge_heads(attend(q, k, v, by_head)[0])[~padding]  # (12, 4)
both = {"key_padding_mask": padding, "attn_mask": future, "need_weights": False}
of_class = theirs(left, left, left, **both)[0][~padding]  # (12, 4)
torch.testing.assert_close(of_class, ours)
sdpa = F.scaled_dot_product_attention
allowed = merge_heads(sdpa(q, k, v, attn_mask=~by_head))[~padding]  # (12, 4)
torch.testing.assert_close(allowed, ours)
turned = merge_heads(sdpa(q, k, v, attn_mask=by_head))[~padding]  # (12, 4)
assert turned.isfinite().all()
assert not (turned - ours).abs().amax(-1).lt(0.1).any()
assert by_head[:, 0].equal(blocked)
hides = (torch.arange(5) < torch.tensor([[0], [2]]))[:, None] | masks.block_future(5)
upside_down = sdpa(five, five, torch.eye(5).double().expand(2, 5, 5), attn_mask=hides)
expected = scores.masked_fill(~hides, -math.inf).softmax(-1).masked_fill(~hides, 0)
torch.testing.assert_close(upside_down, expected)
assert not attend(left, left, left, blocked)[1][1, 4:, :4].any()
print("✓ No dot gets anything; PyTorch's class, and its function with `~blocked`, agree.")

# %% [markdown] name="fully-masked-rows"
# ## A row that sees nothing
#
# The dots are not only looked at. They also *ask*, so each has a row in the output. A dot sees no word, because all
# words come later, and no dot, because dots are padding. This is a **fully masked row**; here it takes both masks
# to make one. All its scores are $-\infty$, all exponentials are 0, and so is their sum. Each weight is 0 divided by 0: NaN.
#
# Nobody reads the row of a dot; the loss leaves it out. So is it harmless? Train on our batch of eight places. Three
# matrices are shared by both sentences. Let the loss read the first alone, so that no dot is anywhere near it. What is the gradient of
# $W_V$?
#
# <details name="gradient"><summary>Finite: the loss never touches a dot.</summary>
#
# The loss does not. But the way back to $W_V$ leads through every row, with a gradient of 0 where nothing was read.
#
# </details>
# <details name="gradient"><summary>NaN in a few entries.</summary>
#
# Each entry adds up over all rows of both sentences. If NaN comes in at one row, no entry escapes.
#
# </details>
# <details name="gradient"><summary>NaN in all of them.</summary>
#
# Right, and the loss will not tell you.
#
# </details>

# %%
W_Q, W_K, W_V = (torch.eye(4, dtype=torch.float64, requires_grad=True) for _ in range(3))
output, _ = attend(left @ W_Q, left @ W_K, left @ W_V, blocked)  # (b, n, e), (b, n, m)
loss = output[0].square().mean()  # the first sentence alone
loss.backward()
lost, of = W_V.grad.isnan().sum(), W_V.grad.numel()
print(f"loss {loss.item():.2f}, NaN in W_V.grad: {lost} of {of}")

# %% [markdown]
# The loss looks healthy, and one step of the optimiser later $W_V$ is NaN. How did it get there, from
# rows that the loss never touched? Follow the gradient back from the loss. Guess each box, then press it.

# %% tags=["hide-input"]
display.way_of_the_nan(left, blocked, name="way-of-the-nan")

# %% [markdown]
# On the way back, a value gets from each row the row's weight times the row's gradient. From the dot's row it gets $\mathrm{NaN} \cdot 0$: its weights are NaN, and its
# gradient is 0, since nobody has read it. To a computer that is not 0, but NaN.

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


for read, healthy in ((0, True), (~padding, False)):  # sentence 1 alone, or all words
    y, loss, bad = train(attend, 1, left, blocked, read)
    assert y[~padding].isfinite().all()
    assert loss.isfinite()
    assert bad == ["W_V"]
    y, loss, bad = train(attend, 2, left, blocked, read)
    assert y[0].isfinite().all()
    assert y[1].isnan().all()
    assert loss.isfinite() == healthy
    assert bad == [*NAMES] * 2
print("✓ Random matrices: one layer leaves numbers in every word, two lose sentence 2.")

# %% [markdown]
# ## The same mask, twice
#
# How do you mend it? Replace the NaN by 0 where you see it, in the output, with `nan_to_num(0)`. Then the output is clean,
# and the gradient of $W_V$ is as bad as before: the way back still leads through the
# weights. So mend the weights. `weights.nan_to_num(0)` would do it, but it hides every other NaN as well. After the softmax, lay
# the same mask on once more, and this time what it blocks becomes 0.


# %% tags=["hide-input"]
def attend_safely(query, key, value, blocked):
    """Mix the rows of ``value``; a fully masked row gets zeros."""
    scores = query @ key.mT / math.sqrt(query.size(-1))  # (..., n, m)
    scores = scores.masked_fill(blocked, -math.inf)      # (..., n, m)
    weights = scores.softmax(-1)                         # (..., n, m)
    weights = weights.masked_fill(blocked, 0)            # (..., n, m)
    return weights @ value, weights                      # (..., n, d), (..., n, m)


display.diff(attend, attend_safely)

# %% [markdown]
# One more line, and a row that sees nothing collects nothing, and spoils nobody's gradient. PyTorch 2.13<!-- setting -->'s
# function gives such a row zeros, too. Its class, by default, gives NaN, in the gradients as well ([a cure](#cell-id=your-cure)).
#
# And your code? `blocked.all(-1).any()` tells whether it has such rows. Much code fills with a large negative number instead,
# and needs no second fill. Or does it? Press each, and watch the row of a dot:

# %% tags=["hide-input"]
FILLS = {
    "−∞": (-math.inf, False),
    "−∞, then 0": (-math.inf, True),
    "−1e9": (-1e9, False),
}
display.way_by_fill(left, blocked, FILLS, name="way-by-fill")

# %% [markdown]
# With −1e9 no NaN arises (`transformers` adds `finfo.min`), but the row of a dot is an average of all that it must not see. And where $-\infty$ is *added*,
# the second fill [is not enough](#cell-id=where-a-mask-is-added): take the mask off such a row.

# %% tags=["proof"]
rows = []
for fill, is_added in (
    (-math.inf, False),
    (-math.inf, True),
    (-1e9, False),
    (torch.finfo(torch.float64).min, True),
):
    for second in (False, True):
        scores = (left @ W_Q) @ (left @ W_K).mT / math.sqrt(4)                # (b, n, m)
        added = scores + torch.zeros_like(scores).masked_fill(blocked, fill)  # (b, n, m)
        filled = added if is_added else scores.masked_fill(blocked, fill)     # (b, n, m)
        weights = filled.softmax(-1)                                          # (b, n, m)
        if second:
            weights = weights.masked_fill(blocked, 0)  # (b, n, m)
        y = weights @ (left @ W_V)                     # (b, n, e)
        found = torch.autograd.grad(y[~padding].square().mean(), [W_Q, W_K, W_V])
        bad = [of for of, each in zip(NAMES, found) if each.isnan().any()]
        row = "NaN" if y[1, 0].isnan().any() else "an average" if y[1, 0].any() else "zeros"
        rows.append([row, ", ".join(bad) or "–"])
assert rows == [
    *(["NaN", "W_V"], ["zeros", "–"]),
    *(["NaN", "W_Q, W_K, W_V"], ["zeros", "W_Q, W_K"]),
    *(["an average", "–"], ["zeros", "–"]) * 2,
]
print("✓ With −∞ filled in, W_V holds NaN; with −∞ added, all three matrices do.")

# %% tags=["proof"]
y = left.clone().requires_grad_()          # (b, n, d)
safe = attend_safely(y, y, y, blocked)[0]  # (b, n, d)
of_words = one.gradients(safe[~padding], [y])
for start, text in ((0, y[0]), (4, y[1, 4:])):
    alone = attend(text, text, text, masks.block_future(8 - start))[0]
    torch.testing.assert_close(safe[int(start > 0), start:], alone)
for other in (of_package(y, y, y, blocked=blocked)[0], sdpa(y, y, y, attn_mask=~blocked)):
    torch.testing.assert_close(other, safe)
    torch.testing.assert_close(one.gradients(other[~padding], [y]), of_words)
assert one.gradients(attend_safely(y, y, y, blocked)[0], [y])[0].isfinite().all()
for depth in (1, 2):
    assert not train(attend_safely, depth, left, blocked, ~padding)[2]
output, weights = attend(left, left, left @ W_V, blocked)  # (b, n, e), (b, n, m)
for y, lost in ((output.nan_to_num(0), 16), (weights.nan_to_num(0) @ (left @ W_V), 0)):
    assert y.isfinite().all()
    (gradient,) = torch.autograd.grad(y[0].square().mean(), W_V, retain_graph=True)
    assert gradient.isnan().sum() == lost
scores = (left @ left.mT).masked_fill(blocked, -1e9)  # (b, n, m)
torch.testing.assert_close((scores.softmax(-1) @ left)[1, 0], left[1].mean(0))
print("✓ After the second fill, package and this PyTorch's function agree, gradients too.")

# %% [markdown] name="what-the-dots-say"
# ## What the dots say
#
# Back to the model at the top, a [storyteller](10_a_little_world.ipynb) of two layers. There the button laid its
# mask on twice, and a staircase was on all along. Give it both masks, but only the one fill of `attend`. What will it say behind one row of zeros? Guess, then drag; then
# switch the second fill on.

# %% tags=["hide-input"]
once, twice = (tell(storyteller(how), "zeros", True) for how in (attend, attend_safely))
filled = {"switch": "second fill", "answers": ANSWERS, "start": 0}
display.dots_in_front(
    {"zeros": (once, twice)}, PLACES, TEXT, **filled, name="what-the-dots-say"
)

# %% [markdown]
# With one fill the model says dots. In the first layer the row of a dot becomes NaN. In the second, every word gives the
# dot's value a weight of 0, and 0 times NaN makes every row NaN. The
# `argmax` of nothing but NaN is place 0, and word 0 is the dot. With two fills, as in
# `attend_safely`, it tells what it tells alone, behind one dot or sixteen: *it* is the thirsty cat again.

# %% tags=["proof"]
alone, sweet = "juice because it was thirsty .", "juice because it was sweet ."
assert all(map(str.startswith, led["zeros"][0], (alone, sweet, sweet, sweet, sweet, sweet)))
assert all(each.startswith("tea because") for each in led["tea"][0][1:])
assert {*led["zeros"][1], *led["tea"][1], *twice} == {once[0]} == {led["zeros"][0][0]}
assert {*" ".join(once[1:]).split()} == {"·"}
ids = TELLER.as_ids([[TELLER.EDGE, *TEXT.split()]])
expected = TELLER.shipped().eval()(ids)[0, -1].detach()
whole, broken = storyteller(attend_safely), storyteller(attend)
for held in ("zeros", "tea"):
    for places in (0, 1, 16):
        found = logits(whole, ids, held, places, True)[0, -1]
        torch.testing.assert_close(found, expected)
assert logits(broken, ids, "zeros", 1, True)[0, -1].isnan().all()
assert torch.full((9,), math.nan).argmax() == 0
assert TELLER.WORDS[0] == "·"
print("✓ Behind zeros or tea, both masks and two fills leave the model as it is alone.")

# %% [markdown] name="your-cure"
# <!-- deeper: your code, your cure -->
# ### Going deeper: your code, your cure
#
# If your code fills its scores with $-\infty$, fill the
# weights as well. If it calls `nn.MultiheadAttention`, merge its two masks, and **lift** the mask from such a row. In all of
# these masks True is blocked; from a tokenizer's mask, take `attention_mask == 0`:
#
# ```python
# blocked = key_padding_mask[:, None] | attn_mask  # (b, n, m)
# empty = blocked.all(-1, keepdim=True)            # (b, n, 1): keep these rows out of the loss
# mha(x, x, x, attn_mask=(blocked & ~empty).repeat_interleave(num_heads, 0))
# ```
#
# No NaN is left, and no word changes. The lifted rows hold numbers now that mean nothing; `empty` says which rows.

# %% tags=["proof"]
both = {"key_padding_mask": padding, "attn_mask": future}
empty = blocked.all(-1, keepdim=True)                 # (b, n, 1)
by_head = (blocked & ~empty).repeat_interleave(2, 0)  # (2 * b, n, m)
assert empty[..., 0].equal(padding)
for training, need in ((True, True), (True, False), (False, True), (False, False)):
    theirs = nn.MultiheadAttention(4, 2, batch_first=True).double().train(training)
    with torch.set_grad_enabled(training):
        given = {"attn_mask": by_head, "need_weights": need}
        y = theirs(left, left, left, **given)[0]  # (b, n, e)
        later = theirs(y, y, y, **given)[0]       # (b, n, e)
    assert y.isfinite().all()
    assert later.isfinite().all()
    as_before = theirs(left, left, left, need_weights=False, **both)[0]  # (b, n, e)
    torch.testing.assert_close(y[~padding], as_before[~padding])
    if training:
        found = torch.autograd.grad(later[~padding].square().mean(), theirs.parameters())
        assert all(each.isfinite().all() for each in found)
print("✓ Lifted first: no NaN in four modes, in two layers, and the words are the same.")

# %% [markdown]
# Not lifted, PyTorch's class gives NaN by default, in the row and in the gradients of all four matrices. With
# `need_weights=False` such a row gets zeros before $W_O$, in training. Then you switch to `eval()` and
# `torch.no_grad()`, and the NaN can be back: [Masks in the
# wild](16_masks_in_the_wild.ipynb#cell-id=what-a-fully-masked-row-gets) says when, and who else does what.
#
# In float16 a fill of `-1e9` stops: `value cannot be converted to type c10::Half without overflow`.

# %% tags=["proof"]
for training, graded, need, nan in (
    (True, True, True, True),
    (True, True, False, False),
    (False, True, False, False),
    (False, False, False, True),
):
    theirs = nn.MultiheadAttention(4, 2, batch_first=True).double().train(training)
    with torch.set_grad_enabled(graded):
        y = theirs(left, left, left, need_weights=need, **both)[0]  # (b, n, e)
    assert y[1, 0].isnan().all() if nan else not y[1, 0].any()
    if graded:
        parts = theirs.in_proj_weight, theirs.out_proj.weight
        packed, out = torch.autograd.grad(y[~padding].square().mean(), parts)
        assert {bool(x.isnan().any()) for x in (*packed.chunk(3), out)} == {nan}
scores = (left @ left.mT).masked_fill(blocked, -1e9)  # (b, n, m)
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
# stops, for no gradient goes back to a number that was overwritten. So with `attend` only $W_V$ was lost. Where a mask of $-\infty$ and 0 was *added*, it goes on:

# %% tags=["hide-input"]
display.where_the_nan_stops(left, blocked, name="where-the-nan-stops")

# %% [markdown]
# (So `torch.autograd.detect_anomaly`, which looks at every step, stops in `attend_safely` with `SoftmaxBackward0 returned
# nan values`, although no parameter's gradient is NaN.)
#
# Lift the mask first, so that such a row sees everything, and leave the row out of the loss. Then no NaN arises:

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
    loss = (filled @ (left @ W_V))[~padding].square().mean()
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
# ### Who sees whom
#
# *Easy, 2 minutes.* Two texts, `the cat drank milk` and `· · it was`, share a batch, under both masks. How many keys does
# each query see? Then change the numbers of *drank*. How many rows of the output move, in one layer?

# %% tags=["exercise"]
keys_seen = (
    (None, None, None, None),  # the, cat, drank, milk
    (None, None, None, None),  # first ·, second ·, it, was
    (None,),  # rows that move
)

# %%
from annotated_book import exercises

exercises.masks.check_seen(keys_seen)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Draw two squares, four by four. Cross out what comes later than the query, and in the second square the columns of the dots.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A row moves if its query sees *drank*.
#
# </details>

# %% tags=["solution"]
keys_seen = (1, 2, 3, 4), (0, 0, 1, 2), (2,)

exercises.masks.check_seen.folded(keys_seen)

# %% [markdown]
# ### A leak
#
# *Choose, 2 minutes.* A colleague's batch is padded on the left. This code runs, but it leaks:
#
# ```python
# blocked = padding[:, None, :, None] | future
# scores = scores.masked_fill(blocked, -math.inf)
# weights = scores.softmax(-1)
# weights = weights.masked_fill(blocked, 0)
# return weights @ value
# ```
#
# Which line lets a word see what it must not?
#
# <details name="leak"><summary>Line 1, which makes <code>blocked</code>.</summary>
#
# Right. The strip lies along the queries, so every word still sees the dots before it. Keys are the last axis:
# `padding[:, None, None, :]`.
#
# </details>
# <details name="leak"><summary>Line 2, the fill.</summary>
#
# This line does as it is told, and hides what `blocked` covers. What does `blocked` cover?
#
# </details>
# <details name="leak"><summary>Line 5, the product.</summary>
#
# A value comes in by its weight alone. Which weight should be 0 and is not?
#
# </details>

# %% tags=["proof"]
scores = left[:, None] @ left[:, None].mT / math.sqrt(4)  # (b, 1, n, m)
turned = padding[:, None, :, None] | future               # (b, 1, n, m)
for covered, leaks in ((turned, True), (padding[:, None, None, :] | future, False)):
    weights = scores.masked_fill(covered, -math.inf).softmax(-1)  # (b, 1, n, m)
    to_dots = weights.masked_fill(covered, 0)[1, 0, 4:, :4]       # (4, 4)
    assert to_dots.all() if leaks else not to_dots.any()
print("✓ Run on this page's batch, the leak is where the answer puts it.")

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
# > Block before the softmax, never only after it. The second fill keeps one row that sees nothing from
# > spoiling everyone's gradient; it needs `masked_fill` before it, for an added $-\infty$ sends NaN back all the same.
#
# With the masks the last part is on the bench: projections, heads, batches, masks. In [the next
# chapter](07_multihead_attention.ipynb) you put them together.
