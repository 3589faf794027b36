# %% [markdown]
# # Masks
#
# *Which words must not be seen?*
#
# A batch is a rectangle, and sentences are not equally long: the short ones are filled up with
# **padding**. And a model that writes word by word must not look at words that are not written yet.
# A **mask** hides keys from queries. It is one line of code, and most ways to get it wrong raise no
# error: this chapter runs them, and shows what catches each.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map("mask")

# %% [markdown]
# ## What padding does
#
# A second sentence joins the one you know, half as long: *the cat was thirsty*. PyTorch's
# `pad_sequence` fills it up with zeros.

# %%
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention import chapters, masks

one = chapters.load("01_one_head")

SHORT = [0, 1, 6, 7]  # the, cat, was, thirsty
sentences = [one.EMBEDDINGS.double(), one.EMBEDDINGS[SHORT].double()]
x = nn.utils.rnn.pad_sequence(sentences, batch_first=True)  # (b, m, d)
labels = [one.WORDS[i] for i in SHORT] + ["·"] * 4
print(tuple(x.shape), "and the second sentence is:", *labels)

# %%
_, weights = one.attend(x, x, x)  # (b, n, d), (b, n, m)
print("was looks at:")
for word, weight in zip(labels, weights[1, 2]):
    print(f"{word:>9} {weight:.2f}")
print(f"padding gets {weights[1, 2, 4:].sum():.2f}")

# %% [markdown]
# Zeros are not nothing. Their score is 0, its exponential is 1, and so each of them takes a share.
# For a weight of 0 a score has to be $-\infty$: $\exp(-\infty) = 0$. Put it there **before** the
# softmax, and the other words share the whole.


# %%
def attend(
    query: Tensor, key: Tensor, value: Tensor, blocked: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Mix the rows of ``value``; no query sees a key where ``blocked`` is True."""
    scores = (query / math.sqrt(query.size(-1))) @ key.mT            # (..., n, m)
    if blocked is not None:
        scores = scores.masked_fill(blocked, -math.inf)              # (..., n, m)
    weights = scores.softmax(-1)                                     # (..., n, m)
    return weights @ value, weights                                  # (..., d), (..., n, m)


torch.testing.assert_close(attend(x, x, x), one.attend(x, x, x))
print("without a mask, it is what it was")

# %% [markdown]
# The mask comes from the lengths. Counted from 0, key j is padding unless j is below the length of
# its sentence.
# The package has the same line as `block_padding`.

# %%
lengths = torch.tensor([8, 4])
blocked = torch.arange(8) >= lengths[:, None]      # (b, m)
assert blocked.equal(masks.block_padding(lengths, 8))
print(blocked.int())

_, weights = attend(x, x, x, blocked[:, None, :])  # (b, n, d), (b, n, m)
print("was looks at:", [round(weight, 2) for weight in weights[1, 2].tolist()])
assert not weights[1, :, 4:].any()

# %% [markdown]
# `[:, None, :]` makes `(b, m)` into `(b, 1, m)`: the 1 is stretched to all queries, since padding is
# padding for each of them. Is it now as if there were no padding? Attend in the short sentence alone
# and compare, the outputs and the gradients.

# %%
x.requires_grad_()
padded = attend(x, x, x, blocked[:, None, :])[0][1, :4]  # (4, d)
alone, _ = one.attend(x[1, :4], x[1, :4], x[1, :4])      # (4, d), (4, 4)
torch.testing.assert_close(padded, alone)
torch.testing.assert_close(one.gradients(padded, [x]), one.gradients(alone, [x]))
print("padded and masked = alone, and so are the gradients")

# %% [markdown]
# ## Is True “attend” or “ignore”?
#
# In our `blocked`, True means *ignore*. Half of the world has it the other way round:
# `nn.MultiheadAttention` ignores where its masks are True; `F.scaled_dot_product_attention`, in the
# same library, attends there [[PyTorch](../docs/references.md#pytorch)]. Give the second one what is
# made for the first:

# %%
for name, mask in (("blocked", blocked), ("~blocked", ~blocked)):
    output = F.scaled_dot_product_attention(x, x, x, mask[:, None, :])  # (b, n, d)
    (reaction,) = one.gradients(output[1, :4], [x])                     # (b, m, d)
    moved = reaction[1].norm(dim=-1) > 0                                # (m,)
    print(f"{name:>8}: the words react to:", *(labels[j] for j in moved.nonzero()))
    assert moved.tolist() == (blocked if name == "blocked" else ~blocked)[1].tolist()
    assert output.isfinite().all()

# %% [markdown]
# > **Pitfall.** The inverted mask. No error, no NaN, and every shape is right. The words see the
# > padding and nothing else.
#
# What catches it is the question that the cell asks: *what does the output react to?* It needs no
# look inside, so ask it of everyone. Give each a mask that is True for key 2 only, and see whether
# query 0 still reacts to that key. PyTorch's encoder layer, which holds an attention and is the
# matter of [chapter 8](08_transformer_layers.ipynb), is asked, too.


# %%
def true_means(call) -> str:
    """Find out what True does to key 2, for every query.

    Args:
        call: a function of x, (1, 4, 8), and of a mask, (4, 4), that returns x's shape.
    """
    x = torch.randn(1, 4, 8, requires_grad=True)
    chosen = torch.zeros(4, 4, dtype=torch.bool)
    chosen[:, 2] = True
    (reaction,) = one.gradients(call(x, chosen)[0, 0], [x])  # (1, 4, 8)
    _, other, marked, _ = reaction[0].norm(dim=-1).tolist()
    assert (marked == 0) != (other == 0)
    return "blocked" if marked == 0 else "allowed"


# %%
from annotated_attention import MultiheadAttention, scaled_dot_product_attention

torch.manual_seed(6)
ours = MultiheadAttention(8, 2, batch_first=True)
theirs = nn.MultiheadAttention(8, 2, batch_first=True)
layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
step, their_step = scaled_dot_product_attention, F.scaled_dot_product_attention
rows = {
    "this package's function, blocked": lambda x, mask: step(x, x, x, blocked=mask)[0],
    "its class, attn_mask": lambda x, mask: ours(x, x, x, attn_mask=mask)[0],
    "its class, key_padding_mask": lambda x, mask: ours(x, x, x, mask[:1])[0],
    "nn.MultiheadAttention, attn_mask": lambda x, mask: theirs(x, x, x, attn_mask=mask)[0],
    "nn.MultiheadAttention, key_padding_mask": lambda x, mask: theirs(x, x, x, mask[:1])[0],
    "nn.TransformerEncoderLayer, src_mask": lambda x, mask: layer(x, src_mask=mask),
    "F.scaled_dot_product_attention, attn_mask": lambda x, mask: their_step(x, x, x, mask),
}
for name, call in rows.items():
    print(f"{name:>41}: True means {true_means(call)}")

# %% [markdown]
# And the code that others publish? [Chapter 15](15_published_code.ipynb) reads seven designs. The
# folded cell only says how to call each; they all get the same mask, with the axes that they document.

# %% jupyter={"source_hidden": true}
from functools import partial

from annotated_attention.published import DESIGNS


def first(call, x: Tensor) -> Tensor:
    """Call sequence-first code with batch-first x."""
    return call(x.transpose(0, 1)).transpose(0, 1)


calls = {
    "module per head": lambda f, x, mask: f(x, x, x, mask[None]),
    "wide projection": lambda f, x, mask: f(x, mask[None, None]),
    "shared projection": lambda f, x, mask: f(x, x, x, mask[None, None]),
    "sequence first": lambda f, x, mask: first(
        lambda t: f(query=t, key=t, value=t, mask=mask[:, :, None]), x),
    "weighted scores": lambda f, x, mask: f(x, x, x, attention_mask=mask[None, None]),
    "no projection": lambda f, x, mask: f(x, x, x, attention_mask=mask[None, None]),
    "packed projection": lambda f, x, mask: first(lambda t: f(t, t, t, None, mask)[0], x),
}

# %%
for name, design in DESIGNS.items():
    means = true_means(partial(calls[name], design.build(8, 2)))
    assert means == design.true_means
    print(f"{name:>17}, mask {design.mask:13} True means {means}")

# %% [markdown]
# Both conventions are in everyday use, and a wrong guess raises nothing. So name a mask for what True
# means, `blocked` or `allowed`, and never only `mask`. Turn what comes from outside once, at the
# door: `as_blocked` does. A tokenizer, which cuts text into words or pieces, writes 1 for a word:

# %%
from tokenizers import Tokenizer, models, pre_tokenizers

vocabulary = {word: number for number, word in enumerate(["·", *one.WORDS])}
tokenizer = Tokenizer(models.WordLevel(vocabulary))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.enable_padding(pad_token="·")
encoded = tokenizer.encode_batch([" ".join(one.WORDS), "the cat was thirsty"])
attention_mask = torch.tensor([sentence.attention_mask for sentence in encoded])  # (b, m)
print(attention_mask)
assert masks.as_blocked(attention_mask, true_means="allowed").equal(blocked)

# %% [markdown]
# ## Hiding the future
#
# The other mask is about pairs. A model that writes sees the words up to the present one: query i
# must not see a key j > i [[Vaswani et al., section
# 3.2.3](../docs/references.md#vaswani-2017)]. That is a matrix `(n, m)`, the same for all samples, and
# is called the **causal** mask.

# %%
future = torch.ones(8, 8, dtype=torch.bool).triu(1)     # (n, m)
assert future.equal(masks.block_future(8))
words = one.EMBEDDINGS.double()                         # (n, d)
written, weights = attend(words, words, words, future)  # (n, d), (n, m)
assert not weights[future].any()
display.attention_map(weights, one.WORDS, one.WORDS, name="causal-map")

# %% [markdown]
# The upper triangle is zero. *The* sees only itself; *it* still finds *cat*, but *cat* does not see
# *milk*. What the mask promises can be tested from outside, too: cut the sentence anywhere, and the
# words before the cut keep their rows.

# %%
for length in range(1, 9):
    start = words[:length]                                               # (length, d)
    prefix = attend(start, start, start, masks.block_future(length))[0]  # (length, d)
    torch.testing.assert_close(prefix, written[:length])
print("every beginning of the sentence gives what it gives inside the sentence")

# %% [markdown]
# Any other matrix does as well. This one keeps two texts apart that share a row, as if each were
# alone:

# %%
apart = masks.block_others([5, 3])              # (n, m)
packed, _ = attend(words, words, words, apart)  # (n, d), (n, m)
second = words[5:]
torch.testing.assert_close(packed[5:], attend(second, second, second)[0])
print(apart.int())

# %% [markdown]
# ## Merging the two
#
# A key is blocked if it is padding *or* in the future. Give both masks the axes of the scores,
# `(b, h, n, m)`, with a 1 where a mask does not care, and `|` does the rest: **broadcasting**
# stretches each 1.

# %%
padding = masks.block_padding(torch.tensor([5, 3]), 5)  # (b, m)
future = masks.block_future(5)                          # (n, m)
strip = padding[:, None, None, :]                       # (b, 1, 1, m)
merged = strip | future                                 # (b, 1, n, m)
print(tuple(strip.shape), "|", tuple(future.shape), "->", tuple(merged.shape))

# %% [markdown]
# See it cell by cell, on a sentence of five words and one of three. Each strip is laid under every
# row, the triangle over every sample. The axis of the heads stays 1: nothing is copied for them.

# %%
numbers_of = dict(zip(one.WORDS, one.EMBEDDINGS.double())) | {"·": torch.zeros(4).double()}
texts = [text.split() for text in ("the cat drank the milk", "it was thirsty · ·")]
five = torch.stack([torch.stack([numbers_of[word] for word in text]) for text in texts])
scores = five @ five.mT / math.sqrt(4)  # (b, n, m)
display.mask_merger(texts, texts, scores, padding, future)

# %% [markdown]
# Try it where the figure is live. Click *cat*: as padding, its column is blocked in all rows of its
# sample, and the other weights grow to share the whole. Set `attn_mask` to None: the merged mask is
# `(b, 1, 1, m)` now, one row for all queries. Click or drag in its cells to draw your own. Then go
# back to causal and click the first word of a sentence. It could see only itself; now it has
# *nothing left*, and softmax gives NaN. [Further down](#why-does-one-bad-row-poison-everything) is
# about such rows.
#
# ## With heads folded in
#
# Much code uses the folded form of [the last chapter](05_batches.ipynb), where samples and heads
# share one axis. There the 1 cannot stay: `(b, m)` → `(b, 1, 1, m)` →
# `(b, h, 1, m)` → `(b * h, 1, m)`, a copy per head. Both ways, at sizes that differ:

# %%
q = torch.randn(2, 4, 3, 6, dtype=torch.float64, requires_grad=True)  # (b, h, n, d)
k = torch.randn(2, 4, 5, 6, dtype=torch.float64, requires_grad=True)  # (b, h, m, d)
v = torch.randn(2, 4, 5, 6, dtype=torch.float64, requires_grad=True)  # (b, h, m, d)
pairs = masks.block_future(3, 5)                                      # (n, m)

broadcast = padding[:, None, None, :] | pairs  # (b, 1, n, m)
small, _ = attend(q, k, v, broadcast)          # (b, h, n, d), (b, h, n, m)

each_head = padding[:, None, None, :].expand(2, 4, 1, 5)  # (b, h, 1, m)
repeated = each_head.reshape(8, 1, 5) | pairs             # (b * h, n, m)
folded, _ = attend(*(part.flatten(0, 1) for part in (q, k, v)), repeated)
large = folded.unflatten(0, (2, 4))  # (b, h, n, d)
torch.testing.assert_close(small, large)
torch.testing.assert_close(one.gradients(small, [q, k, v]), one.gradients(large, [q, k, v]))
print("equal, and so are the gradients")
print(f"the mask holds {broadcast.numel()} numbers, repeated {repeated.numel()}")

# %% [markdown]
# ## repeat or repeat_interleave?
#
# `nn.MultiheadAttention` also takes a mask of its own for each sample and head, `(b * h, n, m)`. If
# you have one per sample, `(b, n, m)`, each must be written h times, and chapter 5 found in which
# order the slices stand: all heads of the first sample come first. Here sample numbers go through
# both functions:

# %%
slices = torch.arange(8)   # (b * h,)
samples = torch.arange(2)  # (b,)
print("the slices belong to", (slices // 4).tolist())
print("repeat_interleave   ", samples.repeat_interleave(4).tolist())
print("repeat              ", samples.repeat(4).tolist())

# %% [markdown]
# Both have the right length. `repeat` gives heads of sample 1 the mask of sample 2. Nothing
# complains, and with one sample, or with equal masks, nothing even differs:

# %%
torchs = nn.MultiheadAttention(24, 4, batch_first=True, dtype=torch.float64)
tokens = torch.randn(2, 5, 24, dtype=torch.float64, requires_grad=True)  # (b, m, e)
expected = torchs(tokens, tokens, tokens, key_padding_mask=padding)[0]   # (b, m, e)
per_sample = padding[:, None, :].expand(2, 5, 5)                         # (b, m, m)
choices = {"repeat_interleave": per_sample.repeat_interleave(4, 0)}
choices["repeat"] = per_sample.repeat(4, 1, 1)
for name, per_head in choices.items():
    output = torchs(tokens, tokens, tokens, attn_mask=per_head)[0]       # (b, m, e)
    (reaction,) = one.gradients(output[1, :3], [tokens])                 # (b, m, e)
    equal, leaks = torch.allclose(output, expected), bool(reaction[1, 3:].any())
    print(f"{name:>17}: equals key_padding_mask: {equal}, reacts to padding: {leaks}")
    assert equal == (name == "repeat_interleave") == (not leaks)

# %% [markdown]
# ## Booleans and floats
#
# A mask may also be **additive**: floating-point numbers that are added to the scores. 0 changes
# nothing, $-\infty$ blocks, and what lies between is a preference, such as a point off for each step
# of distance. `merge_masks` merges each kind with its own: one `blocked` and one `bias` come out.

# %%
place = torch.arange(8)
distance = -(place[:, None] - place).abs().double()             # (n, m)
hides, bias = masks.merge_masks(blocked[:, None, :], distance)  # (b, 1, m), (n, m)
added = distance.masked_fill(blocked[:, None, :], -math.inf)    # (b, n, m)

apart, _ = scaled_dot_product_attention(x, x, x, blocked=hides, bias=bias)
theirs = F.scaled_dot_product_attention(x, x, x, added)         # (b, n, d)
torch.testing.assert_close(apart, theirs)
torch.testing.assert_close(one.gradients(apart, [x]), one.gradients(theirs, [x]))
print("blocked and bias = one additive mask, and so are the gradients")

# %% [markdown]
# To make the second kind from the first takes one line, and two of the three that come to mind are
# wrong. The row of *was* again:

# %%
scores = (x @ x.mT / 2).detach()[1, 2]         # (m,)
conversions = {
    "blocked.double()": blocked.double(),
    "blocked * -math.inf": blocked * -math.inf,
    "masked_fill": torch.zeros(2, 8).masked_fill(blocked, -math.inf),
}
for name, added in conversions.items():
    weights = (scores + added[1]).softmax(-1)  # (m,)
    print(f"{name:>19}: padding gets {weights[4:].sum():.2f}")
    assert weights[4:].any() == (name != "masked_fill")
    assert weights.isnan().all() == (name == "blocked * -math.inf")

# %% [markdown]
# The first *adds one* to what it should hide. In the second, $0 \cdot -\infty$ is NaN, not a number.
#
# > **Pitfall.** In evaluation and without gradients, PyTorch's encoder layer takes a fast path, which
# > reads an additive mask as a boolean one.

# %%
layer = layer.double().eval()
tokens = torch.randn(2, 8, 8, dtype=torch.float64)      # (2, 8, 8)
slow = layer(tokens, src_mask=distance)                 # (2, 8, 8)
with torch.no_grad():
    fast = layer(tokens, src_mask=distance)             # (2, 8, 8)
    as_boolean = layer(tokens, src_mask=distance != 0)  # (2, 8, 8)
print(f"fast and slow differ by up to {(fast - slow).abs().max():.2f}")
assert fast.equal(as_boolean)
assert not torch.allclose(fast, slow)

# %% [markdown]
# `distance` is 0 on the diagonal alone. All the rest became True, blocked: on the fast path each word
# saw nothing but itself.
#
# ## Should padded queries be masked, too?
#
# The padding at the end of sentence 2 also *asks*: it has rows of its own in the output. Should a
# mask forbid that? Follow the gradient. If the loss counts only words, nothing reaches those rows:

# %%
output, weights = attend(x, x, x, blocked[:, None, :])  # (b, n, d), (b, n, m)
words_only = output[~blocked]                           # (12, d)
reaction = torch.autograd.grad(words_only.square().sum(), output, retain_graph=True)[0]
print("gradient at the rows of sentence 2:", reaction[1].norm(dim=-1).bool().tolist())
print("and the padded rows hold", [round(number, 2) for number in output[1, 7].tolist()])
assert reaction.any(-1).equal(~blocked)

# %% [markdown]
# So no: as keys they are hidden, so no word sees them; as queries they compute something that
# nobody reads. Leave them out of the loss (`output[~blocked]`), and they do not count. Blocking them
# as queries gains nothing, and costs what the next section is about: a row with nothing left.

# %%
both = blocked[:, None, :] | blocked[:, :, None]  # (b, n, m)
hidden, _ = attend(x, x, x, both)                 # (b, n, d), (b, n, m)
torch.testing.assert_close(hidden[~blocked], words_only)
assert hidden[blocked].isnan().all()
print("words: the same. padded rows:", hidden[1, 7].tolist())

# %% [markdown]
# ## Why does one bad row poison everything?
#
# If all keys of a query are blocked, all scores are $-\infty$, and the softmax divides 0 by 0. It
# happens to padded queries, to an empty sentence, to a first word that may not see itself. Does it
# stay in its row?

# %%
(gradient,) = one.gradients(hidden[~blocked], [x])  # (b, m, d)
print("the loss reads words only; NaN in the gradient of each word?")
for sentence, numbers in enumerate(gradient.isnan().any(-1).tolist(), 1):
    print(f"  sentence {sentence}:", numbers)
assert gradient.isnan().all(-1).tolist() == [[False] * 8, [True] * 8]

# %% [markdown]
# Forward it does. Backward it does not: the loss never reads a bad row, so the gradient there is 0,
# but it is multiplied with the row's weights, $0 \cdot \mathrm{NaN}$ is NaN again, and it lands on
# every value of the sentence. One step further stands $W_V$, which all sentences share. A loss that
# reads nothing but the *first* sentence:

# %%
w_v = torch.eye(4, dtype=torch.float64, requires_grad=True)
hidden, _ = attend(x, x, x @ w_v, both)        # (b, n, d), (b, n, m)
(gradient,) = one.gradients(hidden[0], [w_v])  # (4, 4)
print(f"NaN in the output: {hidden[0].isnan().any()}, in the gradient of W_V: ", end="")
print(f"{gradient.isnan().sum()} of {gradient.numel()}")
assert gradient.isnan().all()

# %% [markdown]
# One bad row, and after one step of training the matrix is NaN for everyone. A repair that comes to
# mind is `nan_to_num`, for the output or for the weights. Try both, with a mask that is filled in and
# with one that is added, and list the matrices whose gradient is NaN:


# %%
def poisoned(x: Tensor, blocked: Tensor, way: str, repair: str) -> str:
    """Say which matrices get NaN from a loss that reads the good rows alone."""
    w_q, w_k, w_v = (torch.eye(4, dtype=x.dtype, requires_grad=True) for _ in range(3))
    scores = (x @ w_q) @ (x @ w_k).mT / 2                                  # (b, n, m)
    if way == "filled":
        scores = scores.masked_fill(blocked, -math.inf)                    # (b, n, m)
    else:
        scores = scores + torch.zeros(()).masked_fill(blocked, -math.inf)  # (b, n, m)
    weights = scores.softmax(-1)                                           # (b, n, m)
    weights = weights.nan_to_num(0) if repair == "weights" else weights    # (b, n, m)
    output = weights @ (x @ w_v)                                           # (b, n, d)
    output = output.nan_to_num(0) if repair == "output" else output        # (b, n, d)
    gradients = one.gradients(output[~blocked.all(-1)], [w_q, w_k, w_v])
    bad = (matrix.isnan().any() for matrix in gradients)
    return " ".join(name for name, nan in zip(("W_Q", "W_K", "W_V"), bad) if nan) or "none"


# %%
found = {}
for way in ("filled", "added"):
    for repair in ("nothing", "output", "weights"):
        found[way, repair] = poisoned(x.detach(), both, way, repair)
        print(f"mask {way:>6}, repaired: {repair:>7}   NaN in: {found[way, repair]}")
assert [key for key, bad in found.items() if bad == "none"] == [("filled", "weights")]

# %% [markdown]
# Repairing the output never helps. Repairing the weights helps in one case, by luck: `masked_fill`
# overwrote the blocked scores, so it hands no gradient back to them. An added mask does hand it back.
#
# > **Why.** The softmax's derivative is made from its own output. If that is NaN, so is whatever
# > goes back through it. So the repair belongs **before** the softmax: give such a row harmless
# > scores, and set its weights to zero afterwards.


# %%
def attend_safely(
    query: Tensor, key: Tensor, value: Tensor, blocked: Tensor
) -> tuple[Tensor, Tensor]:
    """Mix the rows of ``value``; a query with nothing left gets zeros."""
    nothing_left = blocked.all(-1, keepdim=True)                     # (..., 1)
    scores = (query / math.sqrt(query.size(-1))) @ key.mT            # (..., n, m)
    scores = scores.masked_fill(blocked & ~nothing_left, -math.inf)  # (..., n, m)
    weights = scores.softmax(-1) * ~nothing_left                     # (..., n, m)
    return weights @ value, weights                                  # (..., d), (..., n, m)


display.diff(attend, attend_safely)


# %%
safe, _ = attend_safely(x, x, x, both)                            # (b, n, d), (b, n, m)
plain = attend(x, x, x, blocked[:, None, :])[0][~blocked]         # (12, d)
torch.testing.assert_close(safe[~blocked], plain)
expected = one.gradients(plain, [x])
torch.testing.assert_close(one.gradients(safe[~blocked], [x]), expected)

fused = F.scaled_dot_product_attention(x, x, x, attn_mask=~both)  # (b, n, d)
safe, _ = attend_safely(x, x, x, both)                            # (b, n, d), (b, n, m)
torch.testing.assert_close(safe, fused)
torch.testing.assert_close(one.gradients(safe, [x]), one.gradients(fused, [x]))
print("words: as before, with their gradients. padded rows:", safe[1, 7].tolist())

# %% [markdown]
# There are three choices for such a row, and the figure of the mask merger shows each. **NaN** is
# loud, and takes the model with it. **Uniform**, which the next section explains, attends to exactly
# what was forbidden. **Zero** says: nothing to see, nothing to add. We chose zero, with finite
# gradients. PyTorch's own answer depends on how you ask.
# The last row is evaluation without gradients and without weights:


# %%
def bad_row(module, need_weights: bool, training: bool = True) -> str:
    """Say what becomes of a query with nothing left, and of the others' gradient."""
    module.train(training)
    x = torch.randn(2, 5, 24, dtype=torch.float64, requires_grad=training)
    nothing_for_1 = torch.arange(5)[:, None].expand(5, 5) == 1
    with torch.set_grad_enabled(training):
        output, _ = module(x, x, x, attn_mask=nothing_for_1, need_weights=need_weights)
    row = "NaN" if output[0, 1].isnan().any() else "zero"
    if not training:
        return row
    (gradient,) = one.gradients(output[:, 0], [x])
    return f"{row}, gradient of row 0 {'NaN' if gradient.isnan().any() else 'finite'}"


# %%
ours = MultiheadAttention(24, 4, batch_first=True, dtype=torch.float64)
for name, module in (("nn.MultiheadAttention", torchs), ("ours", ours)):
    for need_weights in (True, False):
        how = f"need_weights={need_weights}"
        said = bad_row(module, need_weights)
        print(f"{name:>21}, {how:>18}: {said}")
        assert ("NaN" in said) == (module is torchs and need_weights)
    evaluated = bad_row(module, False, training=False)
    assert evaluated == ("NaN" if module is torchs else "zero")
    print(f"{name:>21}, {'the same, .eval()':>18}: {evaluated}")

# %% [markdown]
# ## A large negative number instead
#
# Much code fills with a finite number: -1e9, -1e20 or -1e28. Its exponential is 0, too, and no NaN
# appears. And a row with nothing left? All its scores are equal then. Large models compute in half
# precision, 16 bits a number: **bfloat16** has the range of float32 and fewer digits, **float16** more
# digits and a small range. Does the number fit?

# %%
sees_two, sees_none = torch.tensor([[False, False, True], [True, True, True]])
FILLS = {"-1e4": -1e4, "-1e9": -1e9, "-1e20": -1e20, "-1e28": -1e28, "-inf": -math.inf}


def fill_with(number: float, blocked: Tensor, dtype: torch.dtype) -> str:
    """Say what weights three equal scores get."""
    try:
        filled = torch.zeros(3, dtype=dtype).masked_fill(blocked, number)  # (3,)
    except RuntimeError as error:
        return str(error)[-8:]
    return " ".join(f"{weight:.2f}"[-3:] for weight in filled.softmax(-1).tolist())


for name, keys in (("one of three keys is blocked", sees_two), ("all are", sees_none)):
    print(f"{name}\n{'':8}" + "".join(f"{fill:>13}" for fill in FILLS))
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        results = [fill_with(number, keys, dtype) for number in FILLS.values()]
        print(f"{str(dtype)[6:]:>8}" + "".join(f"{result:>13}" for result in results))
        assert results.count("overflow") == (3 if dtype is torch.float16 else 0)
        shares = ".50 .50 .00" if keys is sees_two else ".33 .33 .33"
        assert set(results[:-1]) - {"overflow"} == {shares}

# %% [markdown]
# With one key blocked, every fill that fits does the same here. With all of them blocked, a finite
# fill attends evenly to what was forbidden, and nothing betrays it. The lowest number of a dtype,
# `torch.finfo(dtype).min`, always fits; but two such masks added up are $-\infty$ after all.

# %%
lowest = torch.finfo(torch.float16).min
twice = torch.full((3,), lowest, dtype=torch.float16) + lowest  # (3,)
print(lowest, "twice:", twice.tolist(), "softmax:", twice.softmax(-1).tolist())
half = torch.randn(1, 3, 4, dtype=torch.float16)                # (1, 3, 4)
nothing, _ = scaled_dot_product_attention(half, half, half, blocked=sees_none)
print("ours, nothing left, float16:", nothing[0, 0].tolist())
assert twice.isneginf().all()
assert not nothing.any()

# %% [markdown]
# We fill with $-\infty$, which every dtype has, and treat rows with nothing left on their own.

# %% [markdown]
# ## The same as PyTorch
#
# Everything at once, with sizes that differ: padding, a mask for the pairs, a query with nothing
# left. The function of this chapter, the package's class and PyTorch's, each made to compute with
# the same matrices; PyTorch's without weights, since with them it gives NaN.

# %%
attn_mask = torch.zeros(3, 5, dtype=torch.bool)                         # (n, m)
attn_mask[0, :2] = attn_mask[2, :3] = True  # in sample 2, query 2 has nothing left
both = padding[:, None, None, :] | attn_mask                            # (b, 1, n, m)
query = torch.randn(2, 3, 24, dtype=torch.float64, requires_grad=True)  # (b, n, e)
key = torch.randn(2, 5, 24, dtype=torch.float64, requires_grad=True)    # (b, m, e)
modules = []
for kind in (MultiheadAttention, nn.MultiheadAttention):
    module = kind(24, 4, bias=False, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        module.in_proj_weight.copy_(torch.eye(24).repeat(3, 1))
        module.out_proj.weight.copy_(torch.eye(24))
    modules.append(module)

# %%
from annotated_attention import merge_heads, split_heads

q, k = split_heads(query, 4), split_heads(key, 4)       # (b, h, n, d), (b, h, m, d)
by_hand = merge_heads(attend_safely(q, k, k, both)[0])  # (b, n, e)
expected = one.gradients(by_hand, [query, key])
for module in modules:
    output, _ = module(query, key, key, padding, False, attn_mask)
    torch.testing.assert_close(output, by_hand)
    torch.testing.assert_close(one.gradients(output, [query, key]), expected)
    print(f"{type(module).__module__:>30}: equal, and so are the gradients")

# %% [markdown]
# ## Four more mistakes
#
# > **Pitfall.** Blocked is not absent. The weight of a blocked key is 0, but $0 \cdot \mathrm{NaN}$
# > is NaN. Whatever is in the padding must be finite.

# %%
broken = x.detach().clone()
broken[1, 7] = math.nan  # the last place of padding
output, weights = attend_safely(broken, broken, broken, blocked[:, None, :])
print("its weight:", weights[1, 0, 7].item(), " the output:", output[1, 0].tolist())
cleaned = broken.masked_fill(blocked[:, :, None], 0)
repaired = attend_safely(cleaned, cleaned, cleaned, blocked[:, None, :])[0]  # (b, n, d)
print("zeroed before:", repaired[1, 0].tolist())
assert output[1].isnan().all()
assert repaired.isfinite().all()

# %% [markdown]
# > **Pitfall.** Masking after the softmax. The blocked weights are zero, as they should be; but they
# > had been counted in the sum. The rest no longer adds up to one, and reacts to what was hidden.

# %%
_, weights = one.attend(x, x, x)                     # (b, n, d), (b, n, m)
late = weights.masked_fill(blocked[:, None, :], 0)   # (b, n, m)
(reaction,) = one.gradients((late @ x)[1, :4], [x])  # (b, m, d)
print("the row of was adds up to", round(late[1, 2].sum().item(), 2))
print("the words react to:", *(labels[j] for j in reaction[1].norm(dim=-1).nonzero()))
assert reaction[1, 4:].any()

# %% [markdown]
# > **Pitfall.** A causal mask that is one off. `triu(0)` blocks a word for itself, `triu(2)` lets it
# > see the next one.

# %%
for offset in (0, 1, 2):
    blocked = torch.ones(8, 8, dtype=torch.bool).triu(offset)  # (8, 8)
    drank = attend_safely(words, words, x[0], blocked)[0][2]   # (d,)
    (reaction,) = one.gradients(drank, [x])                    # (b, m, d)
    seen = [word for word, row in zip(one.WORDS, reaction[0]) if row.any()]
    empty = int(blocked.all(-1).sum())
    print(f"triu({offset}): rows with nothing left: {empty}. drank sees:", *seen)
    assert empty == (offset == 0)
    assert seen == one.WORDS[: 2 + offset]

# %% [markdown]
# > **Pitfall.** The wrong corner. With fewer queries than keys, where does the diagonal begin?
#
# A model that writes keeps the keys of earlier words, and asks only for the newest. Its one query
# stands at the *last* place, but a mask aligned top left takes it for the first. So does the flag
# `is_causal=True`, by which both libraries make the causal mask themselves:

# %%
last = words[-1:]                                                             # (1, d)
top_left = masks.block_future(1, 8)                                           # (1, 8)
bottom_right = masks.block_future(8, 8)[-1:]                                  # (1, 8)
by_flag = F.scaled_dot_product_attention(last, words, words, is_causal=True)  # (1, d)
for name, corner in (("top left", top_left), ("bottom right", bottom_right)):
    output, _ = attend(last, words, words, corner)  # (1, d), (1, 8)
    print(f"{name:>12}: blocks {int(corner.sum())} of 8, ", end="")
    equal = torch.allclose(output[0], written[-1])
    print("equals the whole sentence's last row:", equal)
    assert equal == (name == "bottom right")
ours, _ = scaled_dot_product_attention(last, words, words, is_causal=True)  # (1, d), (1, 8)
torch.testing.assert_close((by_flag, ours), (attend(last, words, words, top_left)[0],) * 2)

# %% [markdown]
# The flag equals top left, in PyTorch as in this package: the last line of the cell asserts it. With
# more keys than queries, cut the rows that you need from the square mask. What catches a wrong corner
# is the comparison with the whole sentence.

# %% [markdown]
# ## Exercises
#
# ### Merge by hand
#
# *Easy, 5 minutes.* Two sentences are looked at by three queries each. Both are padded to five keys:
# the first has five words, the second two. Each query may look at three neighbouring keys only; this
# is the mask for the pairs, with `x` for blocked and `.` for may be seen:
#
#     ...xx
#     x...x
#     xx...
#
# Write down the merged mask, a row of five characters for each query.

# %% tags=["exercise"]
merged_by_hand = [
    ["?????", "?????", "?????"],  # sentence 1
    ["?????", "?????", "?????"],  # sentence 2
]

# %%
from annotated_attention import exercises

exercises.masks.check_merged(merged_by_hand)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Begin with what does not depend on the query: in which columns does each sentence have padding?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Lay the mask for the pairs over both. A cell is blocked if one of the two says so. May a row end up
# without any dot?
#
# </details>

# %% tags=["solution"] jupyter={"source_hidden": true}
merged_by_hand = [
    ["...xx", "x...x", "xx..."],  # sentence 1
    ["..xxx", "x.xxx", "xxxxx"],  # sentence 2
]

exercises.masks.check_merged(merged_by_hand)

# %% [markdown]
# ### Who attends to padding?
#
# *Medium, 15 minutes.* `exercises.masks.four_models()` gives four models, by name, that you cannot
# see into. Call one as `model(x, blocked)`, with any x `(b, m, 12)` and a boolean `blocked` `(b, m)`,
# True for padding; it returns `(b, m, 12)`. One of them attends to padding. Write a probe that names
# it. The check then gives your probe new models, and some of them are wrong in other ways.


# %% tags=["exercise"]
def find_leaks(models: dict) -> list[str]:
    """Name the models whose words react to padding."""
    return []  # your probe here


# %%
exercises.masks.check_find_leaks(find_leaks)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Call a model twice, with the same words and the same mask, and other numbers in the padding. What
# should stay the same?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Not everything stays: a padded row is a query, too, made from its own token. Compare
# `output[~blocked]`.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# A mask may land on the wrong sample. That only shows if there are several, of different lengths.
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
def find_leaks(models: dict) -> list[str]:
    """Name the models whose words react to padding."""
    blocked = masks.block_padding(torch.tensor([3, 6]), 7)          # (2, 7)
    x, other = torch.randn(2, 2, 7, 12)                             # (2, 7, 12)
    changed = torch.where(blocked[:, :, None], other, x)            # (2, 7, 12)
    names = []
    for name, model in models.items():
        before, after = model(x, blocked), model(changed, blocked)  # (2, 7, 12)
        if not torch.allclose(before[~blocked], after[~blocked]):
            names.append(name)
    return names


exercises.masks.check_find_leaks(find_leaks)

# %% [markdown]
# ## What you have now
#
# One boolean, named for what True means; padding `(b, 1, 1, m)` and pairs `(n, m)`, merged by
# broadcasting into the scores before the softmax; and rows with nothing left made harmless before it,
# too. From outside, one question tests all of this: what does the output react to? With projections,
# heads, batches and masks, every part is there. [The next
# chapter](07_multihead_attention.ipynb) puts them into one class.
