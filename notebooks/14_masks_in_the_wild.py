# %% [markdown]
# # Masks in the wild
#
# *Here is somebody else's mask: what will the function make of it?*
#
# A doorkeeper gets a list of names. Is it the guest list, or the list of those who must stay out?
# The paper looks the same, and a doorkeeper who guesses wrong turns away every guest without
# noticing. A mask is such a list. Tokenizers, libraries and published code each write theirs in
# their own way, and a function that reads it the other way round raises no error.
#
# [Masks](06_masks.ipynb) built the masks of this book. This chapter is for the day on which you
# meet somebody else's: what True means, which shape fits, booleans or numbers, which number can
# block a key, and where the causal mask begins when queries and keys differ in number. Nearly every
# answer comes from running the function in question, in the version of PyTorch that the first cell
# prints.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map("mask")

# %% [markdown]
# ## Which way round is True?
#
# The batch is the one you know: the whole sentence, and *the milk was sweet* with four places of
# padding. `blocked` is True for padding.

# %%
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention import chapters, masks
from annotated_attention import scaled_dot_product_attention as attend

one = chapters.load("01_one_head")
six = chapters.load("06_masks")

rows = [one.embed(one.WORDS).double(), one.embed(six.SHORT).double()]
x = nn.utils.rnn.pad_sequence(rows, batch_first=True).requires_grad_()  # (b, m, d)
blocked = masks.block_padding(torch.tensor([8, 4]), 8)                  # (b, m)
labels = [*six.SHORT, "·", "·", "·", "·"]
print("PyTorch", torch.__version__.split("+")[0])

# %% [markdown]
# PyTorch's function `F.scaled_dot_product_attention` takes a boolean mask. Give it `blocked`, not
# inverted, with an axis for the queries. What do the words of the short sentence look at: at words
# only, at everything, or at padding only? Or is there an error?
#
# <details><summary>What do you expect?</summary>
#
# At padding only, and without an error. This function reads True as *allowed*, so it lets the
# queries see exactly what `blocked` was made to hide. Every shape is right and every number is
# finite.
#
# </details>

# %%
for name, given in (("blocked", blocked), ("~blocked", ~blocked)):
    output = F.scaled_dot_product_attention(x, x, x, given[:, None, :])  # (b, n, d)
    (reaction,) = one.gradients(output[1, :4], [x])                      # (b, m, d)
    seen = reaction[1].norm(dim=-1) > 0                                  # (m,)
    print(f"{name:>8}: they react to", *(labels[j] for j in seen.nonzero()))
    assert seen.equal(blocked[1] if name == "blocked" else ~blocked[1])
    assert output.isfinite().all()

# %% [markdown]
# > **Pitfall.** The inverted mask raises no error and gives no NaN. The words attend to padding
# > and to nothing else.
#
# The question behind the cell is: *what does the output react to?* `one.gradients`, the gradient of
# a random mixture of outputs, answers it for any function without looking inside. Give the function
# a mask that is True for key 2 only, and see whether query 0 reacts to key 2 or to key 1, which is
# not marked.


# %%
def true_means(call) -> str:
    """Mark key 2 for every query, and see whether query 0 still reacts to it.

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


# %% [markdown]
# Now ask what True means to this package and to PyTorch. PyTorch's encoder layer ([Transformer
# layers](08_transformer_layers.ipynb)) contains attention and takes its masks under other names. A
# padding mask has one row for all queries, so two of the calls pass only the first row of the mask,
# `given[:1]`. Look for the one line that differs.

# %%
from annotated_attention import MultiheadAttention

torch.manual_seed(6)
ours = MultiheadAttention(8, 2, batch_first=True)
theirs = nn.MultiheadAttention(8, 2, batch_first=True)
layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
their_attend = F.scaled_dot_product_attention
calls = {
    "our function, blocked": lambda x, given: attend(x, x, x, blocked=given)[0],
    "our class, attn_mask": lambda x, given: ours(x, x, x, attn_mask=given)[0],
    "our class, key_padding_mask": lambda x, given: ours(
        x, x, x, key_padding_mask=given[:1])[0],
    "nn.Multihead…, attn_mask": lambda x, given: theirs(x, x, x, attn_mask=given)[0],
    "nn.Multihead…, key_padding_mask": lambda x, given: theirs(
        x, x, x, key_padding_mask=given[:1])[0],
    "nn.Transformer…Layer, src_mask": lambda x, given: layer(x, src_mask=given),
    "F.scaled_dot…, attn_mask": lambda x, given: their_attend(x, x, x, given),
}

# %%
for name, call in calls.items():
    print(f"{name:31} {true_means(call)}")
    assert (true_means(call) == "allowed") == name.startswith("F.")

# %% [markdown]
# PyTorch contradicts itself: its class blocks where a mask is True, and its function allows
# [[PyTorch](../docs/references.md#pytorch)].
#
# What about the code that others publish? The next chapter, [Published
# code](15_published_code.ipynb), reads seven designs. The package holds a repaired version of each,
# which keeps its source's meaning of True. Their names do not matter yet. The middle column of the
# output is the shape of the mask, and the last is what True means.

# %% jupyter={"source_hidden": true}
from functools import partial

from annotated_attention.published import DESIGNS


def first(call, x: Tensor) -> Tensor:
    """Call sequence-first code with batch-first x."""
    return call(x.transpose(0, 1)).transpose(0, 1)


published = {
    "module per head": lambda f, x, given: f(x, x, x, given[None]),
    "wide projection": lambda f, x, given: f(x, given[None, None]),
    "shared projection": lambda f, x, given: f(x, x, x, given[None, None]),
    "sequence first": lambda f, x, given: first(
        lambda t: f(query=t, key=t, value=t, mask=given[:, :, None]), x),
    "weighted scores": lambda f, x, given: f(x, x, x, attention_mask=given[None, None]),
    "no projection": lambda f, x, given: f(x, x, x, attention_mask=given[None, None]),
    "packed projection": lambda f, x, given: first(lambda t: f(t, t, t, None, given)[0], x),
}

# %%
for name, design in DESIGNS.items():
    means = true_means(partial(published[name], design.build(8, 2)))
    assert means == design.true_means
    print(f"{name:18} {design.mask:13} {means}")

# %% [markdown]
# In four of the seven True means allowed, in three it means blocked, and the shapes differ as well.
# So name a mask after what True means, `blocked` or `allowed`, and convert a mask from outside
# once, where it comes in. `masks.as_blocked` does the conversion, and makes you state what True
# means.
#
# Take the mask of a tokenizer, a program that cuts a text into words or pieces. It writes 1 for each
# of them and 0 for padding, so its 1 means *allowed*:

# %%
from tokenizers import Tokenizer, models, pre_tokenizers

vocabulary = {word: number for number, word in enumerate(["·", *one.WORDS, "sweet"])}
tokenizer = Tokenizer(models.WordLevel(vocabulary))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.enable_padding(pad_token="·")
encoded = tokenizer.encode_batch([" ".join(one.WORDS), " ".join(six.SHORT)])
attention_mask = torch.tensor([sentence.attention_mask for sentence in encoded])  # (b, m)
print(attention_mask)
assert masks.as_blocked(attention_mask, true_means="allowed").equal(blocked)

# %% [markdown]
# ## The shape to pass
#
# The second question is which axes a function expects. Offer masks of seven shapes to
# `F.scaled_dot_product_attention` and to the two masks of `nn.MultiheadAttention`, with sizes that
# all differ: b = 2, h = 4, n = 3, m = 5. A dot means that the mask is refused.

# %%
SHAPES = {
    "(n, m)": (3, 5), "(b, m)": (2, 5), "(b, n, m)": (2, 3, 5),
    "(b * h, n, m)": (8, 3, 5), "(b, 1, 1, m)": (2, 1, 1, 5),
    "(b, 1, n, m)": (2, 1, 3, 5), "(b, h, n, m)": (2, 4, 3, 5),
}
wide, tall = torch.randn(2, 3, 24), torch.randn(2, 5, 24)
q, k = torch.randn(2, 4, 3, 6), torch.randn(2, 4, 5, 6)
module = nn.MultiheadAttention(24, 4, batch_first=True)
takers = {
    "function": lambda given: F.scaled_dot_product_attention(q, k, k, given),
    "attn_mask": lambda given: module(wide, tall, tall, attn_mask=given),
    "padding": lambda given: module(wide, tall, tall, key_padding_mask=given),
}


# %%
def fits(call, sizes: tuple[int, ...]) -> str:
    """Try a call with a mask of these sizes."""
    try:
        call(torch.zeros(sizes, dtype=torch.bool))
    except (AssertionError, RuntimeError):
        return "·"
    return "yes"


print(f"{'':13}", *(f"{name:>9}" for name in takers))
taken = {}
for name, call in takers.items():
    taken[name] = [fits(call, sizes) for sizes in SHAPES.values()]
for i, shape in enumerate(SHAPES):
    print(f"{shape:13}", *(f"{column[i]:>9}" for column in taken.values()))
assert [column.count("yes") for column in taken.values()] == [4, 2, 1]

# %% [markdown]
# The two masks of `nn.MultiheadAttention` are strict: `attn_mask` is `(n, m)` or `(b * h, n, m)`,
# and `key_padding_mask` is `(b, m)`. The function takes whatever broadcasts to the scores, which are
# `(b, h, n, m)` here. (At the start x had no axis for the heads, so its scores were `(b, n, m)`.)
# Every size is different, so a wrong shape is refused. What if two sizes are equal?
#
# Let b = h = 2, and pass one mask per sample, `(b, n, m)`, where the function wants `(b, 1, n, m)`.
# Sample 1 has two places of padding, and sample 0 has none. Is there an error, the right result, or
# something else?
#
# <details><summary>What do you expect?</summary>
#
# Something else. Broadcasting aligns axes from the right, so the axis of the samples meets the axis
# of the heads. Head 0 gets the mask of sample 0 and head 1 that of sample 1, in *both* samples.
# Since b = h, every shape fits.
#
# </details>
#
# The cell asks sample 1 whether its heads react to its padding, which would be a leak.

# %%
padding = masks.block_padding(torch.tensor([5, 3]), 5)  # (b, m)
allowed = ~padding[:, None, :].expand(2, 3, 5)          # (b, n, m)
queries = torch.randn(2, 2, 3, 6)                       # (b, h, n, d)
keys = torch.randn(2, 2, 5, 6, requires_grad=True)      # (b, h, m, d)
for name, given in (("(b, n, m)", allowed), ("(b, 1, n, m)", allowed[:, None])):
    output = F.scaled_dot_product_attention(queries, keys, keys, given)  # (b, h, n, d)
    (reaction,) = one.gradients(output[1], [keys])                       # (b, h, m, d)
    leaks = reaction[1, :, 3:].flatten(1).any(1).tolist()
    print(f"{name:12} sample 1, head 0 leaks: {leaks[0]!s:5} head 1: {leaks[1]}")
    assert leaks == [name == "(b, n, m)", False]

# %% [markdown]
# So write the axis of the heads even where it is 1, and test with sizes that all differ.
#
# ## Heads folded into the batch
#
# Much code uses the folded form of [Batches](05_batches.ipynb), where samples and heads share one
# axis. There the heads have no axis of their own to broadcast along, so each needs its own copy:
# `(b, m)` → `(b, 1, 1, m)` → `(b, h, 1, m)` → `(b * h, 1, m)`. The cell compares this with the
# broadcast mask, at sizes that differ:

# %%
q_k_v = [torch.randn(2, 4, length, 6).double().requires_grad_() for length in (3, 5, 5)]
pairs = masks.block_future(3, 5)                           # (n, m), any mask would do
broadcast = padding[:, None, None, :] | pairs              # (b, 1, n, m)
small, _ = attend(*q_k_v, blocked=broadcast)               # (b, h, n, d), (b, h, n, m)

each_head = padding[:, None, None, :].expand(2, 4, 1, 5)   # (b, h, 1, m)
repeated = each_head.reshape(8, 1, 5) | pairs              # (b * h, n, m)
folded, _ = attend(*(part.flatten(0, 1) for part in q_k_v), blocked=repeated)
large = folded.unflatten(0, (2, 4))                        # (b, h, n, d)
torch.testing.assert_close(small, large)
torch.testing.assert_close(one.gradients(small, q_k_v), one.gradients(large, q_k_v))
print("equal, and so are the gradients")
print(f"the mask holds {broadcast.numel()} booleans, folded {repeated.numel()}")

# %% [markdown]
# `nn.MultiheadAttention` folds, too: its `attn_mask` may be `(b * h, n, m)`, an `(n, m)` mask for
# each sample and head. If you have one mask per sample, copy it h times. The folded axis has b * h
# slices, and those of sample 0 come first. Two functions of PyTorch repeat, in two orders:

# %%
slices = torch.arange(8)   # (b * h,)
samples = torch.arange(2)  # (b,)
print("sample of a slice", (slices // 4).tolist())
print("repeat_interleave", samples.repeat_interleave(4).tolist())
print("repeat           ", samples.repeat(4).tolist())

# %% [markdown]
# > **Pitfall.** `repeat` has the right length and the wrong order: here half of sample 0's heads
# > get the mask of sample 1, and vice versa. With a single sample the two functions agree, so a
# > test with one sample cannot tell them apart.
#
# PyTorch's own `key_padding_mask` is the reference here: the padding, repeated for each head, must
# do the same as the padding itself.

# %%
reference = nn.MultiheadAttention(24, 4, batch_first=True, dtype=torch.float64)
tokens = torch.randn(2, 5, 24, dtype=torch.float64, requires_grad=True)    # (b, m, e)
expected = reference(tokens, tokens, tokens, key_padding_mask=padding)[0]  # (b, m, e)
per_sample = padding[:, None, :].expand(2, 5, 5)                           # (b, m, m)
choices = {"repeat_interleave": per_sample.repeat_interleave(4, 0)}
choices["repeat"] = per_sample.repeat(4, 1, 1)
for name, per_head in choices.items():
    output = reference(tokens, tokens, tokens, attn_mask=per_head)[0]      # (b, m, e)
    (reaction,) = one.gradients(output[1, :3], [tokens])                   # (b, m, e)
    equal, leaks = torch.allclose(output, expected), bool(reaction[1, 3:].any())
    print(f"{name:17} right: {equal!s:5} leaks: {leaks}")
    assert equal == (name == "repeat_interleave") == (not leaks)

# %% [markdown]
# ## Booleans or floats
#
# A mask may also be **additive**: floating-point numbers that are added to the scores. 0 changes
# nothing, $-\infty$ blocks, and a number between the two is a preference, such as one point off for
# each step of distance. Here the picture of the doorkeeper breaks down: an additive mask can also
# charge an entrance fee.
#
# `masks.merge_masks` takes masks of both kinds. It merges the booleans into one `blocked`, adds the
# floats up to one `bias`, and returns the two. Together they must do what a single additive mask
# does in PyTorch's function. Here padding, the causal mask and the distance are merged.

# %%
place = torch.arange(8)
distance = -(place[:, None] - place).abs().double()             # (n, m)
three = (blocked[:, None, :], masks.block_future(8), distance)
hides, bias = masks.merge_masks(*three)                         # (b, n, m), (n, m)
added = distance.masked_fill(three[0] | three[1], -math.inf)    # (b, n, m)

apart, _ = attend(x, x, x, blocked=hides, bias=bias)
together = F.scaled_dot_product_attention(x, x, x, added)       # (b, n, d)
torch.testing.assert_close(apart, together)
torch.testing.assert_close(one.gradients(apart, [x]), one.gradients(together, [x]))
print("equal, and so are the gradients")

# %% [markdown]
# One line turns a boolean mask into an additive one. Three such lines come to mind, and two of them
# are wrong. Watch the weights that the word *was* of the short sentence gives to padding, first
# without a mask:

# %%
scores = (x @ x.mT / 2).detach()[1, 2]         # (m,)
conversions = {
    "no mask": torch.zeros(2, 8),
    "blocked.double()": blocked.double(),
    "blocked * -math.inf": blocked * -math.inf,
    "masked_fill": torch.zeros(2, 8).masked_fill(blocked, -math.inf),
}
for name, additive in conversions.items():
    weights = (scores + additive[1]).softmax(-1)  # (m,)
    print(f"{name:>19}: padding gets {weights[4:].sum():.2f}")
    assert weights[4:].any() == (name != "masked_fill")
    assert weights.isnan().all() == (name == "blocked * -math.inf")

# %% [markdown]
# `blocked.double()` *adds one* to the scores that it should hide, so padding gets more than without
# any mask. The product fails at every key that is not blocked, because $0 \cdot -\infty$ is NaN,
# and one NaN score makes all the weights of its row NaN, those of padding included.

# %% [markdown]
# <!-- deeper: A fast path that reads floats as booleans -->
#
# ### Going deeper: A fast path that reads floats as booleans
#
# In evaluation and without gradients, PyTorch's encoder layer takes a faster route in C++. In the
# version that runs here, this route reads an additive mask as a boolean one.

# %%
evaluated = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).double().eval()
sentence = torch.randn(2, 8, 8, dtype=torch.float64)           # (2, 8, 8)
slow = evaluated(sentence, src_mask=distance)                  # (2, 8, 8)
with torch.no_grad():
    fast = evaluated(sentence, src_mask=distance)              # (2, 8, 8)
    as_boolean = evaluated(sentence, src_mask=distance != 0)   # (2, 8, 8)
print(f"the fast route differs by up to {(fast - slow).abs().max():.2f}")
assert fast.equal(as_boolean)
assert not torch.allclose(fast, slow)

# %% [markdown]
# `distance` is 0 on the diagonal only. All other numbers became True, so on the fast path each word
# saw nothing but itself.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Fills in half precision
#
# Much code blocks with a finite number such as -1e9. In float32 its exponential is 0, too, and it
# makes no row NaN. But large models compute in half precision, with 16 bits a number:
# **bfloat16** has the range of float32 with fewer digits, and **float16** has more digits than
# bfloat16, but a much smaller range.
#
# Take a query whose three scores are 3, 1 and -2. In the first table one key is blocked, by writing
# the fill over its score. In the other two all keys are blocked, once by writing and once by adding.
# Look for two things: a fill that does not fit into its dtype, and what a fully masked row gets from
# a finite fill.

# %%
blocks_one, blocks_all = torch.tensor([[False, False, True], [True, True, True]])
FILLS = {"-1e4": -1e4, "-1e9": -1e9, "-inf": -math.inf}


def fill_with(fill: float, blocked: Tensor, dtype: torch.dtype, added: bool) -> str:
    """Say what weights the scores 3, 1 and -2 get."""
    scores = torch.tensor([3.0, 1.0, -2.0], dtype=dtype)            # (m,)
    try:
        bias = torch.zeros_like(scores).masked_fill(blocked, fill)  # (m,)
    except RuntimeError as error:
        return "overflow" if "overflow" in str(error) else "error"
    scores = scores + bias if added else scores.masked_fill(blocked, fill)
    weights = scores.softmax(-1)
    return "NaN" if weights.isnan().any() else " ".join(f"{w:.2f}"[1:] for w in weights)


# %%
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
found = {}
for name, hidden, added in (
    ("one key blocked, fill replaces", blocks_one, False),
    ("all keys blocked, fill replaces", blocks_all, False),
    ("all keys blocked, fill is added", blocks_all, True),
):
    print(f"{name}\n{'':8}" + "".join(f"{fill:>13}" for fill in FILLS))
    for dtype in DTYPES:
        row = [fill_with(fill, hidden, dtype, added) for fill in FILLS.values()]
        print(f"{str(dtype)[6:]:>8}" + "".join(f"{each:>13}" for each in row))
        found[name, dtype] = row
kept = [key for key, row in found.items() if row[0] == ".88 .12 .01"]
assert kept == [("all keys blocked, fill is added", torch.float32)]

# %% [markdown]
# With one blocked key, every fill that fits does the same. -1e9 does not fit into float16: here it
# raises an error, while a mask that is made in float32 and cast to float16 becomes $-\infty$.
#
# With all keys blocked, a finite fill gives weights to keys that the query must not see, and no
# number looks suspicious. A fill that replaces the scores makes them equal, so each key gets a
# third. A fill that is added shifts all three scores alike. Then -1e4 in float32 changes nothing:
# the weights are those without any mask, 0.88, 0.12 and 0.01. With -1e9, or with -1e4 in half
# precision, the sum keeps too few digits to tell the scores apart, and the weights are uniform
# after all.
#
# The lowest number of a dtype, `torch.finfo(dtype).min`, always fits. But masks may be added up. In
# a sample of nothing but padding, a mask of the padded keys covers every column, and a mask of the
# padded queries covers every row. Then every sum is $-\infty$, and the NaN is back:

# %%
lowest = torch.finfo(torch.float16).min
twice = torch.full((3,), lowest, dtype=torch.float16) + lowest  # (3,)
print(lowest, "twice:", twice.tolist())
print("softmax:", twice.softmax(-1).tolist())
half = torch.randn(1, 3, 4, dtype=torch.float16)                # (1, 3, 4)
nothing, _ = attend(half, half, half, blocked=blocks_all)
print("ours, fully masked:", nothing[0, 0].tolist())
assert twice.isneginf().all()
assert torch.tensor(-1e9).half().isneginf()
assert not nothing.any()

# %% [markdown]
# This book fills with $-\infty$, which exists in every dtype above, and treats fully masked rows
# separately.
#
# ## What a fully masked row gets
#
# A fully masked row can get NaN, zeros or uniform weights: [Masks](06_masks.ipynb#fully-masked-rows)
# named these three fates. The table of fills has just added a fourth, the weights as if there were
# no mask. PyTorch's class gives NaN or zeros, depending on the route that a call takes:
#
# 1. If you ask for the weights (`need_weights=True`, the default), the class computes the *softmax*
#    itself.
# 2. If you do not, it calls PyTorch's *function*.
# 3. In evaluation mode with gradients off, self-attention can take a *fast path* in C++ instead, with
#    weights or without. Here it does.
#
# In the cell, query 1 is fully masked, and a line for each route says what becomes of its row. The
# word after the comma says whether the gradient of output row 0 with respect to the input is
# finite. It should be, since row 0 is not masked.


# %%
def bad_row(module, need_weights: bool, training: bool = True) -> str:
    """Say what becomes of a fully masked row, and of the gradient of output row 0."""
    module.train(training)
    x = torch.randn(2, 5, 24, dtype=torch.float64, requires_grad=training)
    nothing_for_1 = torch.arange(5)[:, None].expand(5, 5) == 1
    with torch.set_grad_enabled(training):
        output, _ = module(x, x, x, attn_mask=nothing_for_1, need_weights=need_weights)
    row = "NaN" if output[0, 1].isnan().any() else "zeros"
    assert row == "NaN" or output[0, 1].equal(module.out_proj.bias)
    if not training:
        return row
    (gradient,) = one.gradients(output[:, 0], [x])
    return f"{row}, gradient {'NaN' if gradient.isnan().any() else 'finite'}"


# %%
ROUTES = {
    "weights: softmax": (True,),
    "no weights: function": (False,),
    "weights: fast path": (True, False),
    "no weights: fast path": (False, False),
}
print("nn.MultiheadAttention")
for (route, flags), bad in zip(ROUTES.items(), (True, False, True, True)):
    said = bad_row(reference, *flags)
    print(f"  {route:21} {said}")
    assert ("NaN" in said) == bad
torch.backends.mha.set_fastpath_enabled(False)
print("  … switched off       ", bad_row(reference, False, False))
torch.backends.mha.set_fastpath_enabled(True)
own = MultiheadAttention(24, 4, batch_first=True, dtype=torch.float64)
assert not any("NaN" in bad_row(own, *flags) for flags in ROUTES.values())
print("this package's class: zeros on each call, gradients finite")

# %% [markdown]
# With weights, the masked row spoils the gradient of a row that has nothing to do with it. The
# gradient that enters output row 1 is 0. On the way back that 0 is multiplied by row 1's NaN
# weights, and the NaN spreads to the gradients of the keys and values, which all rows share.
#
# Without weights the NaN comes from the fast path: switched off, the same call gives zeros. These
# zeros are the mix of that row; the output projection then adds its bias, which is still 0 here.
#
# PyTorch's function gives zeros in each dtype, on the CPU that ran this page:

# %%
for dtype in (torch.float64, *DTYPES):
    t = tokens.to(dtype)
    zeros = F.scaled_dot_product_attention(t, t, t, torch.zeros(5, 5).bool())
    print(f"{str(dtype)[6:]:8} {'NaN' if zeros.isnan().any() else 'zeros'}")
    assert not zeros.any()

# %% [markdown]
# > **Pitfall.** A row can also become NaN without being fully masked. The weight of a blocked key is
# > 0, but $0 \cdot \mathrm{NaN}$ is NaN. Whatever stands in the padding must be finite.

# %%
clean = x.detach()
broken = clean.clone()
broken[1, 7] = math.nan  # the last place of padding
leaking, weights = attend(clean, clean, broken, blocked=blocked[:, None, :])
print("the weight of that key:", weights[1, 0, 7].item())
print("the first word's output:", leaking[1, 0].tolist())
zeroed = broken.masked_fill(blocked[:, :, None], 0)
finite, _ = attend(clean, clean, zeroed, blocked=blocked[:, None, :])
print("padding set to zero:", [round(number, 2) for number in finite[1, 0].tolist()])
assert leaking[1].isnan().all()
assert weights[1, 0, 7] == 0
assert finite.isfinite().all()

# %% [markdown]
# ## Corners when n ≠ m
#
# The last question comes up as soon as a model writes. It keeps the keys and values of the earlier
# words and computes a query only for the newest: one query, eight keys. That query is in the *last*
# place. PyTorch's flag `is_causal=True` makes the causal mask for you. How many of the eight keys
# does the query then see: eight, one, or none?
#
# <details><summary>What do you expect?</summary>
#
# One. With the flag, the diagonal starts at the top left, so query 0 counts as the first word, and
# may look at key 0 only. The newest word of a text would see nothing but the first.
#
# </details>
#
# The figure shows both masks for the newest three words: on the left the diagonal begins at the top
# left, on the right it ends at the bottom right. Blocked keys are filled. Only on the right does
# each word see itself and all the words before it.

# %% jupyter={"source_hidden": true}
from matplotlib.patches import Rectangle

CORNERS = {"top left": masks.block_future(3, 8), "bottom right": masks.block_future(8)[-3:]}
drawing, axes = display.panels(620, 180, columns=2)
of_keys, of_queries = display.COLOURS["m"], display.COLOURS["n"]
seen = []
for ax, (name, mask) in zip(axes, CORNERS.items()):
    for i, j in torch.cartesian_prod(torch.arange(3), torch.arange(8)).tolist():
        alpha = 0.55 if mask[i, j] else 0.06
        ax.add_patch(Rectangle((j, i), 0.94, 0.94, color=of_keys, alpha=alpha, lw=0))
    ax.set(xlim=(0, 8), ylim=(3, 0), title=name)
    ax.set_xticks([j + 0.5 for j in range(8)], one.WORDS, rotation=60, color=of_keys)
    ax.set_yticks([0.5, 1.5, 2.5], one.WORDS[-3:], color=of_queries)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    seen.append(f"{name}: {', '.join(map(str, (~mask).sum(1).tolist()))}")
alt = f"How many keys the words it, was and thirsty may see. {'; '.join(seen)}."
display.finish(drawing, name="corners", alt=alt)

# %% [markdown]
# `torch.nn.attention.bias` has both corners by name: `causal_upper_left` and `causal_lower_right`.
# Compare each with the last row of the whole sentence, masked as usual. Do the same with the flag
# `is_causal` of PyTorch's function and of ours.

# %%
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

words = one.embed(one.WORDS).double().requires_grad_()                 # (m, d)
whole = attend(words, words, words, blocked=masks.block_future(8))[0]  # (n, d)
last = words[-1:].detach()                                             # (1, d)
calls = {
    "is_causal=True": lambda q, k: their_attend(q, k, k, is_causal=True),
    "is_causal=True, ours": lambda q, k: attend(q, k, k, is_causal=True)[0],
    "causal_upper_left": lambda q, k: their_attend(q, k, k, causal_upper_left(1, 8)),
    "causal_lower_right": lambda q, k: their_attend(q, k, k, causal_lower_right(1, 8)),
}
for name, call in calls.items():
    output = call(last, words)                                     # (1, d)
    seen = one.gradients(output, [words])[0].norm(dim=-1) > 0      # (m,)
    equal = torch.allclose(output[0], whole[-1])
    print(f"{name:20} sees {int(seen.sum())} of 8, right: {equal}")
    assert (int(seen.sum()), equal) == ((8, True) if "lower" in name else (1, False))

# %% [markdown]
# Our function takes PyTorch's corner on purpose, so that one can replace the other. For the newest
# words, pass a mask to either.
#
# PyTorch's class also takes `is_causal`, as a hint that goes with `attn_mask`. Give it the right
# mask for the newest three words, and set the flag as well. Count the keys that each of the three
# queries sees: 6, 7 and 8 would be right.

# %%
torch.manual_seed(6)
small_class = nn.MultiheadAttention(4, 2, batch_first=True, dtype=torch.float64)
newest = words[-3:].detach()
right = {"attn_mask": masks.block_future(8)[-3:], "is_causal": True}
nothing_padded = torch.zeros(8, dtype=torch.bool)
ways = {
    "with weights": {},
    "no weights": {"need_weights": False},
    "no weights, padding mask": {"need_weights": False, "key_padding_mask": nothing_padded},
}

# %%
for name, arguments in ways.items():
    counts = []
    for i in range(3):
        output, _ = small_class(newest, words, words, **right, **arguments)
        (reaction,) = one.gradients(output[i], [words])  # (m, d)
        counts.append(int(reaction.any(-1).sum()))
    print(f"{name:24} {counts}")
    assert counts == ([1, 2, 3] if name == "no weights" else [6, 7, 8])

# %% [markdown]
# > **Pitfall.** In PyTorch's class `is_causal=True` promises that your mask *is* the square causal
# > one, so the class may leave the mask out. Without weights it drops the mask and begins at the
# > top left. With weights, or with a padding mask besides (even one that hides nothing), it follows
# > your mask. So `need_weights`, which has nothing to do with masks, decides whether the same line
# > is right or wrong. Pass the mask alone, and leave `is_causal` out.

# %% [markdown]
# For the newest n of m words, take the last n rows of the square mask, or count the diagonal from
# the other corner: `triu(m - n + 1)`. To catch a wrong corner, compare with the whole sentence, and
# do it for every n:

# %%
agrees = []
for n in range(1, 9):
    future = torch.ones(n, 8, dtype=torch.bool).triu(8 - n + 1)
    assert future.equal(masks.block_future(8)[8 - n :])
    newest, _ = attend(words[-n:], words, words, blocked=future)
    torch.testing.assert_close(newest, whole[-n:])
    corner = masks.block_future(n, 8)
    top_left, _ = attend(words[-n:], words, words, blocked=corner)
    agrees.append(torch.allclose(top_left, whole[-n:]))
print("triu is right for n = 1 to 8, the top left for n =", agrees.index(True) + 1)
assert agrees == [False] * 7 + [True]

# %% [markdown]
# The two corners are the same only where n = m. A test that asks for all words at once therefore
# sees no difference.
#
# ## Exercises
#
# ### As it is, or turned?
#
# *Easy, 2 minutes.* A tokenizer gives you `mask`, `(b, m)`, booleans with True for a word. For each
# function say whether it gets `"mask"` or `"~mask"`, so that padding is hidden.

# %% tags=["exercise"]
turned = {
    "nn.MultiheadAttention, key_padding_mask": "?",
    "F.scaled_dot_product_attention, attn_mask": "?",
    "nn.TransformerEncoderLayer, src_key_padding_mask": "?",
    "this package's function, blocked": "?",
}

# %%
from annotated_attention import exercises

exercises.masks_in_the_wild.check_turned(turned)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# In `mask`, True means *allowed*. Look up in the first table of this chapter what True means to each
# function. The encoder layer reads both of its masks in the same way.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Of the four functions only one reads True as *allowed*.
#
# </details>

# %% tags=["solution"] jupyter={"source_hidden": true}
turned = {
    "nn.MultiheadAttention, key_padding_mask": "~mask",
    "F.scaled_dot_product_attention, attn_mask": "mask",
    "nn.TransformerEncoderLayer, src_key_padding_mask": "~mask",
    "this package's function, blocked": "~mask",
}

exercises.masks_in_the_wild.check_turned(turned)

# %% [markdown]
# ### Ready for the function
#
# *Medium, 10 minutes.* A model writes two texts at once. Its tokenizer pads on the left, so that
# the newest words stand at the end, and gives `attention_mask`, `(b, m)`, integers with 1 for a
# word. The model asks for the newest n words. Write the mask that `F.scaled_dot_product_attention`
# needs for queries `(b, h, n, d)` and keys `(b, h, m, d)`: boolean, padding hidden, no look ahead,
# and the same for every head.


# %% tags=["exercise"]
def make_ready(attention_mask: Tensor, n: int) -> Tensor:
    """Make the mask for the newest ``n`` words."""
    return attention_mask  # your code here


# %%
exercises.masks_in_the_wild.check_make_ready(make_ready)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Four of this chapter's questions matter here: which way round, which shape, which dtype, which
# corner?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Padding is `(b, 1, 1, m)` and the causal part is `(n, m)`. A key is allowed if it is a word *and*
# not ahead. Which operator is that for booleans?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Query i of the newest n stands at place m - n + i. `tril` takes a diagonal, as `triu` does.
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
def make_ready(attention_mask: Tensor, n: int) -> Tensor:
    """Make the mask for the newest ``n`` words.

    Args:
        attention_mask: (b, m), integers, 1 for a word.
        n: how many words ask.
    """
    m = attention_mask.size(1)
    past = torch.ones(n, m, dtype=torch.bool).tril(m - n)  # (n, m)
    return attention_mask.bool()[:, None, None, :] & past  # (b, 1, n, m)


exercises.masks_in_the_wild.check_make_ready(make_ready)

# %% [markdown]
# ## What you have now
#
# Five questions to ask of every mask that comes from elsewhere, with the answers of PyTorch's class,
# `nn.MultiheadAttention`, and of its function, `F.scaled_dot_product_attention`:
#
# | question | the class | the function |
# |---|---|---|
# | What does True mean? | blocked | allowed |
# | Which shapes? | `key_padding_mask`: `(b, m)`; `attn_mask`: `(n, m)` or `(b * h, n, m)` | all that broadcast to the scores, such as `(b, h, n, m)` |
# | What do floats do? | they are added | they are added |
# | What does a fully masked row get? | with weights NaN; without them zeros, or NaN on the fast path | zeros |
# | Which corner does `is_causal` take? | your mask's; the top left if you ask for no weights and pass no padding mask | the top left |
#
# > **In short.** An additive mask is $M$ in $\mathrm{softmax}(QK^\top / \sqrt d + M)\,V$; a boolean
# > one stands for 0 and $-\infty$.
# >
# > The code turns a tokenizer's mask, `(b, m)`, into an additive one, `(b, 1, 1, m)`, which
# > broadcasts to the scores. Its last line copies the mask of each sample, `(b, n, m)`, for the
# > folded form, `(b * h, n, m)`:
# >
# > ```python
# > blocked = masks.as_blocked(given, true_means="allowed")
# > added = torch.zeros(b, 1, 1, m).masked_fill(
# >     blocked[:, None, None, :], -math.inf)
# > per_head = per_sample.repeat_interleave(h, 0)
# > ```
# >
# > Convert a mask once, where it comes in, and name it after what True means. For the newest n of m
# > words the diagonal ends at the bottom right. When in doubt, ask the function itself: hide one
# > key, and see what the output reacts to.
#
# A mask is one of several places in which published code differs. [The next
# chapter](15_published_code.ipynb) reads seven designs whole.
