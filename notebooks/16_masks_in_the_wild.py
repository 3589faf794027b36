# %% [markdown]
# # Masks in the wild
#
# *Here is somebody else's mask: what will the function make of it?*
#
# *14 minutes and 14 of exercises. Afterwards you can look at anybody's mask and say what a
# function will make of it.*
#
# Four words have been padded to eight. Somebody hands you the mask, True for padding, and you pass it to PyTorch: once to its
# class, `nn.MultiheadAttention`, as `key_padding_mask`, and once to its function, `F.scaled_dot_product_attention`, as `attn_mask`.
# (Here the class projects nothing.) What does the word *was* look at?

# %% tags=["hide-input"]
import inspect
import itertools
import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention import MultiheadAttention, masks, split_heads
from annotated_attention import scaled_dot_product_attention as attend
from annotated_book import chapters, display
from annotated_book.published import DESIGNS

one = chapters.load("01_one_head")
six = chapters.load("06_masks")

# %% tags=["hide-input"]
sentences = [one.embed(one.WORDS).double(), one.embed(six.SHORT).double()]
x = nn.utils.rnn.pad_sequence(sentences, batch_first=True)  # (b, m, d)
blocked = masks.block_padding(torch.tensor([8, 4]), 8)      # (b, m)
labels, as_they_are = [*six.SHORT, *["pad"] * 4], torch.eye(x.size(-1)).double()
plain_class = nn.MultiheadAttention(x.size(-1), 1, batch_first=True, dtype=x.dtype)
plain_class.in_proj_weight.data = as_they_are.repeat(3, 1)  # x is query, key and value
values = torch.eye(8).double().expand(2, 8, 8)  # the output is the weights
function = F.scaled_dot_product_attention
_, by_class = plain_class(x, x, x, blocked)             # (b, n, d), (b, n, m)
by_function = function(x, x, values, blocked[:, None])  # (b, n, m)
handed = {"the class": by_class.detach(), "the function": by_function}
looks = {name: weights[1, 2].tolist() for name, weights in handed.items()}
display.show(looks, columns=labels, corner="was looks at", heat=True)

# %% tags=["proof"]
turned = function(x, x, values, ~blocked[:, None])  # (b, n, m)
torch.testing.assert_close(turned, handed["the class"])
print("✓ No error, and the function given ~blocked looks where the class does.")

# %% [markdown]
# A doorkeeper gets a list of names. Is it the guest list, or the list of those who must stay out?
# The paper looks the same, and a boolean mask is such a list. **PyTorch's class turns away whoever is on
# it, and PyTorch's function lets in nobody else.**
#
# [Masks](06_masks.ipynb) built the masks of this book. This chapter is for the day you meet somebody
# else's. Here is what the class and the function make of a mask, for n queries and m keys; each row has its section below. The
# class returns the attention weights unless the call says `need_weights=False`.
#
# | question | the class | the function |
# |---|---|---|
# | [What does True mean?](#cell-id=which-way-round-is-true) | blocked | **allowed** |
# | [Which shapes?](#cell-id=the-shape-to-pass) | `key_padding_mask`: `(b, m)`; `attn_mask`: `(n, m)` or `(b * h, n, m)` | two axes or more that broadcast to the scores, such as `(b, h, n, m)` |
# | [What do floats do?](#cell-id=booleans-or-floats) | they are added; inside `nn.TransformerEncoderLayer`, evaluated without gradients, every number but 0 may *block* | they are added |
# | [Which dtypes?](#cell-id=which-dtypes) | booleans, or the dtype of the query; with `need_weights=False` as the function | booleans, the dtype of the query, or float32 |
# | [What does a fully masked row get?](#cell-id=what-a-fully-masked-row-gets) | NaN; with `need_weights=False` zeros, or NaN on the fast path (boolean masks only) | zeros on the CPU; no GPU is measured here |
# | [Which corner does `is_causal` take?](#cell-id=which-corner) | none: alone it raises an error, or is ignored on the fast path; beside another mask than the square causal one it drops yours, unless the call asks for weights, has a padding mask too, or takes the fast path | the top left, so alone it is right where n = m |
#
# Nearly every answer comes from running the function in question, on a CPU, with PyTorch 2.13<!-- setting -->.

# %% [markdown] name="which-way-round-is-true"
# ## Which way round is True?
#
# You need not look inside a function to find out. `true_means` passes a mask that is True for key 2 alone. It
# then puts another vector in the place of key 2, or of key 1, and checks which of the two query 0 notices. These
# lines need nothing but `import torch`, so you can take them to other code. Call `.eval()` on a module first, since
# dropout moves every output.


# %%
def moves(call, x: torch.Tensor, key: int) -> bool:
    """Say whether another vector at the place of a key moves the output of query 0."""
    other = x.clone()
    other[:, key] = torch.randn(x.size(-1))
    return not torch.equal(call(x)[0, 0], call(other)[0, 0])


def true_means(call) -> str:
    """Ask a function of x, (1, 4, 8), and of a mask, (4, 4), which returns x's shape."""
    x, chosen = torch.randn(1, 4, 8), torch.zeros(4, 4, dtype=torch.bool)
    chosen[:, 2] = True
    marked, unmarked = (moves(lambda x: call(x, chosen), x, key) for key in (2, 1))
    assert marked != unmarked, (
        "it notices both keys or neither: is dropout off, by .eval()?"
    )
    return "allowed" if marked else "blocked"


# %%
torch.manual_seed(6)
theirs = nn.MultiheadAttention(8, 2, batch_first=True)
by_them = {
    "the class": lambda x, given: theirs(x, x, x, attn_mask=given)[0],
    "the function": lambda x, given: F.scaled_dot_product_attention(x, x, x, given),
}
for name, call in by_them.items():
    print(name, "-> True means", true_means(call))

# %% tags=["proof"]
ours = MultiheadAttention(8, 2, batch_first=True)
encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
decoder = nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
for attend_with in (ours, theirs):
    call = partial(lambda used, x, given: used(x, x, x, attn_mask=given)[0], attend_with)
    assert true_means(call) == "blocked"
    call = partial(lambda used, x, given: used(x, x, x, given[:1])[0], attend_with)
    assert true_means(call) == "blocked"
assert true_means(lambda x, given: attend(x, x, x, blocked=given)[0]) == "blocked"
assert true_means(encoder) == true_means(lambda x, y: encoder(x, None, y[:1])) == "blocked"
assert true_means(lambda x, given: decoder(x, x[:, :1] * 0, given)) == "blocked"
assert true_means(lambda x, given: function(x, x, x, given)) == "allowed"
assert sorted(x.true_means for x in DESIGNS.values()) == ["allowed"] * 4 + ["blocked"] * 3
print(
    "✓ True blocks in PyTorch's class and layers, in both masks; it allows in the function."
)

# %% tags=["proof"]
alone, default = {"torch": torch}, nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
exec(inspect.getsource(moves) + inspect.getsource(true_means), alone)
said = ""
try:
    alone["true_means"](default)  # in training, with dropout
except AssertionError as error:
    said = str(error)
assert ".eval()" in said
assert alone["true_means"](default.eval()) == "blocked"
print("✓ The lines run with nothing but torch, and tell a layer whose dropout is on.")

# %% [markdown]
# So PyTorch contradicts itself [[PyTorch](../docs/references.md#pytorch)], and other people's code is no more of one mind: of the seven older
# designs in [Published code](18_published_code.ipynb), three block and four allow.
#
# To be safe, name a mask after what True means, `blocked` or `allowed`. Convert a mask from outside
# once, at the point where it comes in.
#
# A tokenizer, for example, returns an `attention_mask`, integers with 1 for each word and 0 for padding: its
# 1 means *allowed*. The models of Hugging Face's library *transformers* take it as it is. For your own
# attention, `masks.as_blocked(attention_mask, true_means="allowed")` converts it, and makes you state what 1
# means.

# %% tags=["proof"]
from tokenizers import Tokenizer, models, pre_tokenizers

vocabulary = {word: number for number, word in enumerate(["pad", *one.WORDS, "sweet"])}
tokenizer = Tokenizer(models.WordLevel(vocabulary))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.enable_padding(pad_token="pad")
encoded = tokenizer.encode_batch([" ".join(one.WORDS), " ".join(six.SHORT)])
attention_mask = torch.tensor([sentence.attention_mask for sentence in encoded])  # (b, m)
assert masks.as_blocked(attention_mask, true_means="allowed").equal(blocked)
print("✓ For the two sentences, this turns a tokenizer's mask into `blocked`.")

# %% [markdown] name="the-shape-to-pass"
# ## The shape to pass
#
# Which of eight shapes do they take, where all sizes differ: b = 2, h = 4, n = 3, m = 5? A dot is an error.

# %% tags=["hide-input"]
SHAPES = {
    "(m,)": (5,),
    "(n, m)": (3, 5),
    "(b, m)": (2, 5),
    "(b, n, m)": (2, 3, 5),
    "(b * h, n, m)": (8, 3, 5),
    "(b, 1, 1, m)": (2, 1, 1, 5),
    "(b, 1, n, m)": (2, 1, 3, 5),
    "(b, h, n, m)": (2, 4, 3, 5),
}
three, five = torch.randn(2, 3, 24), torch.randn(2, 5, 24)  # (b, n, e), (b, m, e)
q, k = torch.randn(2, 4, 3, 6), torch.randn(2, 4, 5, 6)
module = nn.MultiheadAttention(24, 4, batch_first=True)
takers = {
    "function": lambda given: F.scaled_dot_product_attention(q, k, k, given),
    "attn_mask": lambda given: module(three, five, five, attn_mask=given),
    "padding": lambda given: module(three, five, five, key_padding_mask=given),
}


def fits(call, given: Tensor) -> bool:
    """Say whether a call takes a mask."""
    try:
        call(given)
    except (AssertionError, IndexError, RuntimeError):
        return False
    return True


# %% tags=["hide-input"]
given = {shape: torch.zeros(sizes).bool() for shape, sizes in SHAPES.items()}
taken = {name: [x for x in given if fits(call, given[x])] for name, call in takers.items()}
broadcast = ["(n, m)", "(b, 1, 1, m)", "(b, 1, n, m)", "(b, h, n, m)"]
both = ["(n, m)", "(b * h, n, m)"]
assert taken == {"function": broadcast, "attn_mask": both, "padding": ["(b, m)"]}
takes = {shape: [shape in fit for fit in taken.values()] for shape in SHAPES}
columns = ["the function", "the class, attn_mask", "key_padding_mask"]
display.show(takes, columns=columns, corner="shape of a mask")

# %% [markdown]
# What if two sizes are equal?
#
# Let b = h = 2, and pass one mask per sample, `(b, n, m)`, where the function wants `(b, 1, n, m)`.
# Sample 1 has two places of padding, and sample 0 has none. Is there an error, the right result, or
# something else?
#
# <details><summary>What do you expect?</summary>
#
# Something else. Broadcasting aligns axes from the right, so the axis of the samples lines up with
# the axis of the heads. In *both* samples, head 0 gets the mask of sample 0, and head 1 gets the
# mask of sample 1. Since b = h, every shape fits.
#
# </details>
#
# Arrows say which mask each head gets. The thick ones carry the mask of the other sample:

# %% tags=["hide-input"]
from matplotlib.patches import Rectangle

drawing, axes = display.panels(560, 170, columns=2)
colours, got = [display.COLOURS["n"], display.COLOURS["m"]], []
aligned = {
    "(b, n, m): no error": torch.arange(2).expand(2, 2),
    "(b, 1, n, m)": torch.arange(2)[:, None].expand(2, 2),
}
for ax, (name, source) in zip(axes, aligned.items()):
    for sample, top in enumerate((0.5, 2.5)):
        look = {"color": colours[sample], "alpha": 0.3, "lw": 0}
        ax.add_patch(Rectangle((0, top), 2.6, 0.8, **look))
        ax.text(1.3, top + 0.42, f"mask of sample {sample}", ha="center", va="center")
        for head in (0, 1):
            row, given = 2 * sample + head, int(source[sample, head])
            ax.add_patch(Rectangle((4.6, row), 3, 0.8, **look))
            ax.text(
                6.1, row + 0.42, f"sample {sample}, head {head}", ha="center", va="center"
            )
            wrong = given != sample
            arrow = {"arrowstyle": "->", "color": "black" if wrong else "#808080"}
            arrow["lw"] = 1.8 if wrong else 1.2
            ax.annotate("", (4.55, row + 0.4), (2.65, 2 * given + 0.9), arrowprops=arrow)
            got.append(f"in {name}, head {head} of sample {sample} gets mask {given}")
    ax.set(xlim=(-0.1, 7.7), ylim=(3.9, -0.1), title=name)
    ax.axis("off")
display.finish(drawing, name="broadcast-trap", alt=f"{'; '.join(got)}.")

# %% [markdown]
# Does a head see its padding? If it does, its output has a gradient there:


# %% tags=["fold-input"]
def gradients(outputs: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    """Differentiate a random mixture of the outputs, so that they do not cancel."""
    mixture = torch.randn_like(outputs)
    return torch.autograd.grad((outputs * mixture).sum(), inputs)


# %% tags=["proof"]
padding = masks.block_padding(torch.tensor([5, 3]), 5)  # (b, m)
allowed = ~padding[:, None, :].expand(2, 3, 5)          # (b, n, m)
queries = torch.randn(2, 2, 3, 6)
keys = torch.randn(2, 2, 5, 6, requires_grad=True)
for given, leaks in ((allowed, [True, False]), (allowed[:, None], [False, False])):
    output = F.scaled_dot_product_attention(queries, keys, keys, given)
    (reaction,) = gradients(output[1], [keys])
    assert reaction[1, :, 3:].flatten(1).any(1).tolist() == leaks
print("✓ With (b, n, m) head 0 of sample 1 sees its padding, with (b, 1, n, m) none does.")

# %% [markdown]
# In the same way a padding mask, `(b, m)`, passes for `(n, m)` wherever b = n, in the function and
# as `attn_mask`. Give the function every axis, even where its size is 1, and test with sizes that
# all differ.

# %% [markdown] name="heads-folded-into-the-batch"
# ### Heads folded into the batch
#
# PyTorch's class gives samples and heads a single axis of b * h **slices**, because `torch.bmm`, the matrix
# product for a batch, takes exactly three axes. All slices of sample 0 come first. So its `attn_mask` of a mask
# for each sample, `(b, n, m)`, is h copies, `(b * h, n, m)`. Two PyTorch functions make copies. Whose mask does each of the eight
# slices get?

# %%
samples = torch.arange(2)
print(samples.repeat(4).tolist(), "repeat")
print(samples.repeat_interleave(4).tolist(), "repeat_interleave")

# %% tags=["proof"]
reference = nn.MultiheadAttention(24, 4, batch_first=True, dtype=torch.float64)
tokens = torch.randn(2, 5, 24, dtype=torch.float64, requires_grad=True)    # (b, m, e)
expected = reference(tokens, tokens, tokens, key_padding_mask=padding)[0]  # (b, m, e)
per_sample = padding[:, None, :].expand(2, 5, 5)
for per_head, leaks in (
    (per_sample.repeat(4, 1, 1), True),
    (per_sample.repeat_interleave(4, 0), False),
):
    output = reference(tokens, tokens, tokens, attn_mask=per_head)[0]  # (b, m, e)
    (reaction,) = gradients(output[1, :3], [tokens])                   # (b, m, e)
    assert torch.allclose(output, expected) != leaks
    assert bool(reaction[1, 3:].any()) == leaks
one_sample = padding[1:, None, :].expand(1, 5, 5)
assert one_sample.repeat(4, 1, 1).equal(one_sample.repeat_interleave(4, 0))
print(
    "✓ With repeat, words of sample 1 see its padding; with repeat_interleave, none does."
)

# %% [markdown]
# `repeat` gives half of each sample's heads the mask of the other. With a single sample, the two agree, so no test of one finds it.

# %% [markdown]
# <!-- deeper: One number in five layouts -->
#
# ### Going deeper: One number in five layouts
#
# Follow one number through the layouts. The last column shows the shape of a padding mask that fits. From
# batch-first data, `split_heads(x, h).flatten(0, 1)` makes the slices; from sequence-first data one reshape,
# `(n, b, h * d)` to `(n, b * h, d)`, and one transpose.

# %% tags=["fold-input"]
numbers = torch.arange(2 * 3 * 24).view(2, 3, 24)             # (b, n, h * d)
sequence_first = numbers.transpose(0, 1)                      # (n, b, h * d)
heads = split_heads(numbers, 4)                               # (b, h, n, d)
slices = sequence_first.reshape(3, 2 * 4, 6).transpose(0, 1)  # (b * h, n, d)
assert slices.equal(heads.flatten(0, 1))
rows = {}
for name, axes, layout, index, mask in (
    ("batch-first", "b, n, e", numbers, (1, 0, 20), "(b, m)"),
    ("sequence-first", "n, b, e", sequence_first, (0, 1, 20), "(b, m)"),
    ("four axes", "b, h, n, d", heads, (1, 3, 0, 2), "(b, 1, 1, m)"),
    ("einsum", "b, n, h, d", heads.transpose(1, 2), (1, 0, 3, 2), "(b, 1, 1, m)"),
    ("folded", "b * h, n, d", slices, (7, 0, 2), "(b * h, 1, m)"),
):
    rows[name] = [f"({axes})", tuple(layout.shape), index, layout[index], mask]
    assert layout[index] == numbers[1, 0, 20]
display.show(rows, columns=["axes", "shape", "index", "holds", "mask"])

# %% [markdown]
# PyTorch's class takes the first two layouts, and wants its `key_padding_mask` as `(b, m)` for both:
# the padding mask stays as it is, even if the data is sequence-first. `einsum` names each axis by a
# letter, so the heads may stand anywhere. Its scores are `(b, h, n, m)`, as with four axes. Folded, head
# 3 of sample 1 is slice 1 · 4 + 3 = 7.

# %% tags=["proof"]
other = nn.MultiheadAttention(24, 4, dtype=torch.float64)  # the same, but sequence-first
other.load_state_dict(reference.state_dict())
by_place = tokens.transpose(0, 1)                                           # (m, b, e)
swapped = other(by_place, by_place, by_place, key_padding_mask=padding)[0]  # (m, b, e)
torch.testing.assert_close(swapped.transpose(0, 1), expected)
print("✓ With key_padding_mask, both layouts give the same output.")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="booleans-or-floats"
# ## Booleans or floats
#
# A mask may also be **additive**: floating-point numbers that are added to the scores. A 0 changes
# nothing, $-\infty$ blocks a key, and a number in between expresses a preference, such as one point
# off for each step of distance. Here the picture of the doorkeeper breaks down: an additive mask
# can also let a guest in and charge for it.
#
# One line turns a boolean mask into an additive one. Three such lines come to mind, and two of them
# are wrong. Take the two sentences of the first table, `x`, and watch how much weight *was* gives to padding, first
# without a mask:

# %%
scores = x @ x.mT / math.sqrt(x.size(-1))  # (b, n, m)
of_was = scores[1, 2]                      # (m,)
conversions = {
    "no mask": torch.zeros(2, 8),
    "blocked.double()": blocked.double(),
    "blocked * -math.inf": blocked * -math.inf,
    "masked_fill": torch.zeros(2, 8).masked_fill(blocked, -math.inf),
}
gets = {
    name: [(of_was + given[1]).softmax(-1)[4:].sum()] for name, given in conversions.items()
}
display.show(gets, columns=["padding gets"])

# %% [markdown]
# `blocked.double()` *adds one* to the scores that it should hide, so padding gets more weight than
# without any mask. The product fails at every key that is not blocked, because $0 \cdot -\infty$ is
# NaN, and one NaN score makes its whole row NaN.

# %% tags=["proof"]
penalty = -torch.arange(5.0).expand(3, 5)                       # (3, 5)
expected = (q @ k.mT / math.sqrt(6) + penalty).softmax(-1) @ k  # (2, 4, 3, 6)
torch.testing.assert_close(F.scaled_dot_product_attention(q, k, k, penalty), expected)

single = nn.MultiheadAttention(24, 1, batch_first=True)
_, plain = single(three, five, five)                     # (2, 3, 24), (2, 3, 5)
_, given = single(three, five, five, attn_mask=penalty)  # (2, 3, 24), (2, 3, 5)
shrunk = plain * penalty.exp()                           # (2, 3, 5)
torch.testing.assert_close(given, shrunk / shrunk.sum(-1, keepdim=True))
print("✓ The function and the class both add such a penalty to the scores.")

# %% [markdown]
# PyTorch's encoder layer reads a float mask in two ways. One mask takes off a point for each step of distance,
# which hides nothing; the other is a window, which blocks what is more than three steps away. How many of eight
# keys does the last word, *thirsty*, notice while the layer trains, and how many when the same layer is evaluated
# without gradients?
#
# <details><summary>What do you expect?</summary>
#
# With the window four, both times. With the penalty eight in training, and one when the layer is evaluated: itself.
#
# </details>


# %% tags=["hide-input"]
def noticed(call, x: Tensor) -> list[bool]:
    """Say which of the keys the last query notices."""
    return [moves(lambda given: call(given)[:, -1:], x, key) for key in range(x.size(1))]


def cells(ax, blocked, height: float):
    """Draw a mask: a filled cell is a key that is blocked."""
    for i, row in enumerate(blocked):
        for j, hidden in enumerate(row):
            look = {"lw": 1, "edgecolor": "#808080", "facecolor": "none"}
            look |= {"facecolor": display.COLOURS["b"]} if hidden else {}
            ax.add_patch(Rectangle((j + 0.03, i + 0.06), 0.92, height, **look))
    ax.set(ylim=(len(blocked), 0))
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def strips(seen: dict[str, list[bool]], name: str):
    """Draw a strip for each call, of the keys that *thirsty* sees."""
    drawing, (ax,) = display.panels(640, 44 + 30 * len(seen))
    cells(ax, [[not sees for sees in row] for row in seen.values()], 0.82)
    for i, row in enumerate(seen.values()):
        ax.text(8.2, i + 0.47, f"{sum(row)}", va="center", fontsize=12)
    ax.set(xlim=(0, 8.6))
    ax.set_xticks([j + 0.5 for j in range(8)], one.WORDS, color=display.COLOURS["m"])
    ax.set_yticks([i + 0.47 for i in range(len(seen))], [*seen])
    ax.xaxis.tick_top()
    said = "; ".join(f"{call}: {sum(row)}" for call, row in seen.items())
    alt = f"How many of eight keys thirsty sees. {said}."
    caption = "Filled: blocked. At the right, how many keys <em>thirsty</em> sees."
    return display.finish(drawing, name=name, alt=alt, caption=caption)


# %% tags=["hide-input"]
place = torch.arange(8.0)
steps = (place[:, None] - place).abs()                        # (n, m)
window = torch.zeros(8, 8).masked_fill(steps > 3, -math.inf)  # (n, m)
seen, other = {}, torch.randn(1, 8, 8)
for name, given in (("−1 for each step", -steps), ("window: 0 and −∞", window)):
    for training in (True, False):
        encoder.train(training)
        with torch.set_grad_enabled(training):
            call = partial(encoder, src_mask=given)
            seen[f"{name}, {'training' if training else 'evaluated'}"] = noticed(
                call, other
            )
            assert training or call(other).equal(encoder(other, given != 0))
encoder.train()
assert [sum(row) for row in seen.values()] == [8, 1, 4, 4]
strips(seen, "float-masks")

# %% [markdown]
# Evaluated, the layer takes a *fast path* of its own in C++, which in the
# version that runs here reads the mask as a boolean one: every number but 0 blocks its key. So under the penalty each
# word sees only itself.

# %% [markdown] name="which-dtypes"
# <!-- deeper: Which dtypes -->
#
# ### Going deeper: Which dtypes
#
# Each row is the dtype of a mask, each column a function and the dtype of its query; a dot is an error.


# %% tags=["fold-input"]
def in_class(x: Tensor, **options):
    """Make a call of PyTorch's class."""
    module = nn.MultiheadAttention(24, 4, batch_first=True, dtype=x.dtype)
    return lambda given: module(x, x, x, attn_mask=given, **options)


by_query = {}
for query in (torch.float32, torch.bfloat16):
    halved = k.to(query)
    by_query[f"function, {str(query)[6:]}"] = partial(
        F.scaled_dot_product_attention, halved, halved, halved
    )
    by_query[f"class, {str(query)[6:]}"] = in_class(five.to(query))
rows = {}
for dtype in (torch.bool, torch.int64, torch.float32, torch.bfloat16):
    given = torch.ones(5, 5, dtype=dtype)
    rows[str(dtype)[6:]] = [fits(call, given) for call in by_query.values()]
for dtype, other in ((torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16)):
    without = in_class(five.to(dtype), need_weights=False)
    assert fits(without, torch.ones(5, 5, dtype=other)) == (dtype == torch.bfloat16)
display.show(rows, columns=[*by_query], corner="mask")

# %% [markdown]
# Neither takes integers, so a tokenizer's mask becomes `mask.bool()[:, None, None]` for the function, and
# `~mask.bool()` for the class's `key_padding_mask`. A float32 mask passes beside a bfloat16 query in the function,
# and in the class if it asks for no weights; the other way round, never.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="fills-in-half-precision"
# <!-- deeper: Fills in half precision -->
#
# ### Going deeper: Fills in half precision
#
# Much code blocks keys with a finite number such as -1e9, called the **fill**. In float32 its
# exponential is 0, too, and a fully masked row does not become NaN, because the softmax first
# subtracts the largest score of a row. But large models compute with 16 bits per number. **bfloat16** has
# the range of float32 but fewer digits. **float16** has more digits than bfloat16, but a much smaller range.
#
# Take a query whose three scores are 3, 1 and -2, and all of whose keys are blocked. `masked_fill` puts the
# fill in the place of the scores; other code adds the product `mask * fill` to them. What weights does the
# row get?


# %% tags=["fold-input"]
def fill_with(fill: float, blocked: Tensor, dtype: torch.dtype, added: bool) -> str:
    """Say what weights the scores 3, 1 and -2 get."""
    scores = torch.tensor([3.0, 1.0, -2.0], dtype=dtype)  # (3,)
    hidden = blocked.to(dtype)                            # (3,)
    try:
        filled = scores + hidden * fill if added else scores.masked_fill(blocked, fill)
    except RuntimeError as error:
        return "overflow" if "overflow" in str(error) else "error"
    weights = filled.softmax(-1)  # (3,)
    if weights.isnan().any():
        return "NaN"
    if not weights[blocked].any():
        return "hidden"
    if weights.allclose(scores.softmax(-1)):
        return "as unmasked"
    assert weights.allclose(torch.tensor(1 / 3, dtype=dtype), atol=1e-2)
    return "a third each"


# %% tags=["fold-input"]
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
FILLS = {"-1e4": -1e4, "-1e9": -1e9, "-inf": -math.inf}
every, tables = torch.ones(3, dtype=torch.bool), []
for way, added in (("the fill replaces the scores", False), ("mask * fill is added", True)):
    rows = {
        str(dtype)[6:]: [fill_with(fill, every, dtype, added) for fill in FILLS.values()]
        for dtype in DTYPES
    }
    tables.append(display.show(rows, columns=[*FILLS], title=way))
display.beside(*tables)

# %% tags=["proof"]
last = torch.tensor([False, False, True])  # (3,)
for dtype, (name, fill) in itertools.product(DTYPES, FILLS.items()):
    fit = "overflow" if (dtype, name) == (torch.float16, "-1e9") else "hidden"
    assert fill_with(fill, last, dtype, added=False) == fit
assert torch.tensor(1e9).nextafter(torch.tensor(math.inf)) - 1e9 == 64
print("✓ With one key blocked, each fill that fits its dtype hides the key.")

# %% [markdown]
# A finite fill gives weight to keys that the query must not see, and no number looks suspicious. One that
# replaces the scores makes them equal, so each key gets a third. One that is added shifts all three by the same
# amount: -1e4 in float32 leaves the weights as they are without any mask. (At -1e9, neighbouring float32 numbers lie
# 64 apart, so 3, 1 and -2 are rounded away, and each key gets a third.) -1e9 does not fit into float16: `masked_fill` raises an error, with one
# blocked key as with all, while the product quietly becomes $-\infty$.
#
# This book fills with $-\infty$, which every dtype above has, and handles fully masked rows
# apart: they get zeros.

# %% [markdown]
# The lowest number of a dtype, `torch.finfo(dtype).min`, always fits. But where it is added, the
# sum may not: in float16, a score of -16 is enough. And some code adds two such masks, one for
# padded keys and one for padded queries, and twice the lowest number is $-\infty$ in any dtype.
# Sample 0 here has one place of padding, and sample 1 is all padding:

# %%
low = torch.tensor([-30.0, -25.0, -20.0]).half() + torch.finfo(torch.half).min
print(f"low scores: {low.tolist()} -> {low.softmax(-1).tolist()}")
padded = torch.tensor([[False, False, True], [True, True, True]])  # (2, 3)
lowest = torch.zeros(2, 3).half().masked_fill(padded, torch.finfo(torch.half).min)
added = lowest[:, None, :] + lowest[:, :, None]  # (2, 3, 3)
for sample in (0, 1):
    row = added[sample, 2]  # (3,)
    print(f"sample {sample}, last query: {row.tolist()} -> {row.softmax(-1).tolist()}")

# %% [markdown]
# Low scores and one mask are enough for NaN. In sample 0 the padded query still has finite scores.
# In sample 1 whole rows are $-\infty$, and become NaN, too.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="what-a-fully-masked-row-gets"
# ## What a fully masked row gets
#
# [Masks](06_masks.ipynb#cell-id=fully-masked-rows) named three fates of a fully masked row: NaN, zeros or
# uniform weights, which a finite [fill](#cell-id=fills-in-half-precision) such as -1e9 gives. In PyTorch it depends on the route that a call takes. Follow three calls of the class and one
# of the function, in which query 1 is fully masked, to what becomes of its row, and to the gradient of row 0, which
# is *not* masked:


# %% tags=["fold-input"]
def bad_row(module, need_weights: bool, training: bool) -> tuple[str, str]:
    """Say what becomes of a fully masked row, and of the gradient of output row 0."""
    module.train(training)
    x = torch.randn(2, 5, 24, dtype=torch.float64, requires_grad=training)
    nothing_for_1 = torch.arange(5)[:, None].expand(5, 5) == 1
    with torch.set_grad_enabled(training):
        output, _ = module(x, x, x, attn_mask=nothing_for_1, need_weights=need_weights)
    row = "NaN" if output[0, 1].isnan().any() else "zeros"
    assert row == "NaN" or not output[0, 1].any()  # the output's bias is 0 here
    if not training:
        return row, ""
    (gradient,) = gradients(output[:, 0], [x])
    return row, "NaN" if gradient.isnan().any() else "finite"


# %% tags=["fold-input"]
ROUTES = {
    "weights": {"need_weights": True, "training": True},
    "no weights": {"need_weights": False, "training": True},
    "fast": {"need_weights": True, "training": False},
    "fast, no weights": {"need_weights": False, "training": False},
}
sizes = {"embed_dim": 24, "num_heads": 4, "batch_first": True, "dtype": torch.float64}
pytorchs, own = nn.MultiheadAttention(**sizes), MultiheadAttention(**sizes)
rows = {route: bad_row(pytorchs, **flags) for route, flags in ROUTES.items()}
assert rows["fast"] == rows["fast, no weights"]
display.mask_routes(
    fast=rows["fast"], weights=rows["weights"], function=rows["no weights"], name="routes"
)

# %% tags=["proof"]
from torch.utils._python_dispatch import TorchDispatchMode


class Recorder(TorchDispatchMode):
    """Write down which operations run."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[str] = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.ran.append(str(operation))
        return operation(*args, **(kwargs or {}))


for training, asked, ends_in in (
    (True, True, "aten._softmax"),
    (True, False, "aten._scaled_dot_product_flash_attention_for_cpu"),
    (False, True, "aten._native_multi_head_attention"),
    (False, False, "aten._native_multi_head_attention"),
):
    recorder, hidden = Recorder(), torch.zeros(2, 5, dtype=torch.bool)
    pytorchs.train(training)
    inside = torch.randn(2, 5, 24, dtype=torch.float64)
    with torch.set_grad_enabled(training), recorder:
        pytorchs(*[inside] * 3, hidden, asked)
    assert sum(ends_in in operation for operation in recorder.ran) == 1
empty = torch.zeros(5, 5, dtype=torch.bool)
assert not F.scaled_dot_product_attention(k, k, k, empty).any()
print("✓ The operations that run are those of the picture, and the function gives zeros.")

# %% tags=["proof"]
torch.set_autocast_enabled(True)  # the switch of CUDA's autocast, which the class asks
assert bad_row(pytorchs, need_weights=False, training=False)[0] == "zeros"
torch.set_autocast_enabled(False)
torch.backends.mha.set_fastpath_enabled(False)
assert bad_row(pytorchs, need_weights=False, training=False)[0] == "zeros"
torch.backends.mha.set_fastpath_enabled(True)
assert ["NaN" in rows[route] for route in ROUTES] == [True, False, True, True]
assert not any("NaN" in bad_row(own, **flags) for flags in ROUTES.values())
for other in ({"bias": False}, {"num_heads": 3}, {"add_zero_attn": True}):
    module = nn.MultiheadAttention(**(sizes | other))
    assert bad_row(module, need_weights=False, training=False)[0] == "zeros"
print("✓ This package's class gives zeros, and finite gradients, in all of these calls.")

# %% [markdown]
# If you ask for the weights, the masked row spoils the gradient of a row that has nothing to do with
# it, as in [Masks](06_masks.ipynb#cell-id=fully-masked-rows). If you do not, only the fast path gives NaN. It takes self-attention
# in evaluation, without gradients, with `batch_first=True`, an even number of heads and boolean masks or none, and
# [PyTorch says](15_speed.ipynb#cell-id=the-fast-path) what else it wants.
#
# If fully masked rows can occur, mend the mask first, or switch the path off for the whole program, with
# `torch.backends.mha.set_fastpath_enabled(False)`: the same call then gives zeros, if it asks for no weights. (A
# trained model adds the bias of its output projection, which is 0 here. The function gave NaN, too, before [safe
# softmax](https://github.com/pytorch/pytorch/pull/131060) in 2024, and on Apple's MPS it still did in
# [156707](https://github.com/pytorch/pytorch/issues/156707).) So measure on your device.
#
# > **Pitfall.** A row can also become NaN without being fully masked. The weight of a blocked key is
# > 0, but $0 \cdot \mathrm{NaN}$ is NaN. Every number in the padding must be finite.

# %% [markdown]
# <!-- deeper: A NaN in the padding -->
#
# ### Going deeper: A NaN in the padding
#
# Put NaN into the last place of the padding, and see what becomes of the first word. Then set the
# padding to zero.

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

# %% tags=["proof"]
assert leaking[1].isnan().all()
assert weights[1, 0, 7] == 0
assert finite.isfinite().all()
print("✓ A weight of exactly zero does not keep a NaN out; zeros in the values do.")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="which-corner"
# ## Corners when n ≠ m
#
# A model writes. Eight words are known, and the newest three ask. Each may see itself and all the words
# before it: 6, 7 and 8 keys. So the diagonal has to *end* at the bottom right. A causal mask for n = 3 and
# m = 8 that begins at the top left gives them 1, 2 and 3. Filled cells are blocked:

# %% tags=["hide-input"]
CORNERS = {"top left": masks.block_future(3, 8), "bottom right": masks.block_future(8)[-3:]}
drawing, axes = display.panels(620, 180, columns=2)
seen = []
for ax, (name, mask) in zip(axes, CORNERS.items()):
    cells(ax, mask.tolist(), 0.88)
    ax.set(xlim=(0, 8), title=name)
    ax.set_xticks(
        [j + 0.5 for j in range(8)], one.WORDS, rotation=60, color=display.COLOURS["m"]
    )
    ax.set_yticks([0.5, 1.5, 2.5], one.WORDS[-3:], color=display.COLOURS["n"])
    seen.append(f"{name}: {', '.join(map(str, (~mask).sum(1).tolist()))}")
alt = f"How many keys the words it, was and thirsty may see. {'; '.join(seen)}."
display.finish(drawing, name="corners", alt=alt)

# %% [markdown] name="need-weights-decides"
# You give PyTorch's class the right mask as `attn_mask`, and `is_causal=True` with it, because causal it is.
# `need_weights` says whether the weights come back, and has nothing to do with masks. *Thirsty*, the newest, should
# see eight keys. Does it, when you ask for the weights and when you do not?
#
# <details><summary>What do you expect?</summary>
#
# Only if you ask. Without weights, this call takes the flag for a promise that the mask is the square causal
# one, and drops yours. The square begins at the top left: the newest word sees three keys of eight, the oldest.
#
# </details>

# %% tags=["hide-input"]
torch.manual_seed(6)
small_class = nn.MultiheadAttention(4, 2, batch_first=True, dtype=torch.float64)
words = one.embed(one.WORDS).double().requires_grad_()             # (8, 4)
asking, keys_of = words[-3:][None].detach(), words[None].detach()  # (1, 3, 4), (1, 8, 4)
newest_three = masks.block_future(8)[-3:]                          # (3, 8)
near = masks.block_future(8) | torch.ones(8, 8).bool().tril(-4)    # (8, 8)
none_padded = torch.zeros(1, 8, dtype=torch.bool)                  # (1, 8)


def flagged(module, query, mask, x, need_weights=False, padding=None) -> Tensor:
    """Let some words ask, or all of them for None, with their mask and the flag."""
    query = x if query is None else query
    return module(query, x, x, padding, need_weights, mask, is_causal=True)[0]


newest = partial(flagged, small_class, asking, newest_three)
windowed = partial(flagged, small_class, None, near)


# %% tags=["hide-input"]
seen = {
    "n = 3, with weights": noticed(partial(newest, need_weights=True), keys_of),
    "n = 3, no weights": noticed(newest, keys_of),
    "n = 3, no weights, padding mask": noticed(
        partial(newest, padding=none_padded), keys_of
    ),
}
assert [sum(row) for row in seen.values()] == [8, 3, 8]
strips(seen, "flag-and-mask")

# %% [markdown]
# The padding mask of the third strip hides nothing, and yet it brings your mask back.
#
# Now all eight words ask, still without weights, and your mask is a window of four words, with the flag beside it.
# You train the model, and then you evaluate it. How many keys does *thirsty* see?
#
# <details><summary>What do you expect?</summary>
#
# Eight in training, where the flag replaces the window by the square, and four when evaluated: that call takes the
# [fast path](#cell-id=what-a-fully-masked-row-gets), which keeps the window. You train one model and run another.
#
# </details>

# %% tags=["hide-input"]
seen = {"training": noticed(windowed, keys_of)}
small_class.eval()
with torch.no_grad():
    seen["evaluated"] = noticed(windowed, keys_of)
assert [sum(row) for row in seen.values()] == [8, 4]
strips(seen, "train-one-run-another")

# %% [markdown]
# **In the function**, `is_causal=True` alone is the right way where n = m. **In the class**, the
# flag goes only beside the square causal mask, where it [saves time](15_speed.ipynb#cell-id=the-price-of-a-mask): alone it raises an
# error, or, on the fast path, is ignored, and every word sees the future.

# %% tags=["proof"]
square = masks.block_future(8)                                 # (n, m)
window = square | torch.ones(8, 8, dtype=torch.bool).tril(-3)  # (n, m)
changes = {"batch_first": False}, {"num_heads": 3}, {"bias": False}
fast = {"embed_dim": 12, "num_heads": 2, "batch_first": True, "dtype": torch.float64}
for other, training, grad in itertools.product(
    ({}, *changes), (True, False), (True, False)
):
    module = nn.MultiheadAttention(**(fast | other)).train(training)
    sentence = torch.randn(1, 8, 12).double().transpose(0, int(not module.batch_first))
    with torch.set_grad_enabled(grad):
        flagged, follows, drops = (
            module(*[sentence] * 3, None, False, given, is_causal=flag)[0]
            for given, flag in ((window, True), (window, False), (square, False))
        )
        said, kept = "", not (other or training or grad)
        try:
            alone = module(*[sentence] * 3, need_weights=False, is_causal=True)[0]
            torch.testing.assert_close(alone, module(*[sentence] * 3)[0])
        except RuntimeError as error:
            said = str(error)
    assert said.startswith("Need attn_mask") != kept
    torch.testing.assert_close(flagged, follows if kept else drops)
    assert not follows.allclose(drops)
print("✓ Without weights the flag drops a window; on the fast path it is ignored.")

# %% [markdown]
# How do you make the right mask yourself? Query i of the newest n words is at place m - n + i in the
# text, and the first key that it must not see is the next one, m - n + i + 1. So the blocked keys are
# `torch.ones(n, m, dtype=torch.bool).triu(m - n + 1)`: the last n rows of the square mask. The class
# takes this mask as it is. The function takes the allowed keys, `.tril(m - n)`. The two corners agree only where n = m,
# so a test that queries all words at once sees no difference.

# %% [markdown]
# <!-- deeper: Any number of newest words, and a mask with the flag -->
#
# ### Going deeper: Any number of newest words, and a mask with the flag
#
# The function has the flag, too, and `torch.nn.attention.bias` names both corners. On its own, the newest word
# should get what it gets in the whole sentence, the last row of `whole`:

# %% tags=["fold-input"]
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

whole = attend(words, words, words, blocked=masks.block_future(8))[0]  # (n, d)
last = words[-1:].detach()                                             # (1, d)
function = F.scaled_dot_product_attention
calls = {
    "is_causal=True": lambda q, k: function(q, k, k, is_causal=True),
    "is_causal=True, ours": lambda q, k: attend(q, k, k, is_causal=True)[0],
    "causal_upper_left": lambda q, k: function(q, k, k, causal_upper_left(1, 8)),
    "causal_lower_right": lambda q, k: function(q, k, k, causal_lower_right(1, 8)),
}
rows = {}
for name, call in calls.items():
    output = call(last, words)                             # (1, d)
    seen = gradients(output, [words])[0].norm(dim=-1) > 0  # (m,)
    rows[name] = [seen.sum(), torch.allclose(output[0], whole[-1])]
display.show(rows, columns=["sees, of 8", "right"])

# %% [markdown]
# Our function uses PyTorch's corner on purpose. To catch a wrong corner, compare the output with that of the
# whole sentence, for every n:

# %% tags=["proof"]
for n in range(1, 9):
    future = torch.ones(n, 8, dtype=torch.bool).triu(8 - n + 1)
    newest, _ = attend(words[-n:], words, words, blocked=future)
    torch.testing.assert_close(newest, whole[-n:])
    assert future.equal(masks.block_future(8)[8 - n :])
    assert future.equal(masks.block_future(n, 8)) == (n == 8)
print("✓ triu is right for n = 1 to 8; the top left gives the same mask for n = 8 alone.")

# %% [markdown]
# What does PyTorch's function make of a mask *and* the flag? That depends on the kernel that the call gets. In
# the version that runs here, the CPU's fused kernel combines them. What it does not take is refused: three axes,
# dropout, values of another width than the keys.

# %%
some = torch.ones(5, 5, dtype=torch.bool)
some[:, 1] = False
four = torch.randn(2, 4, 5, 6)
combined = F.scaled_dot_product_attention(four, four, four, some, is_causal=True)
expected = F.scaled_dot_product_attention(four, four, four, some.tril())
torch.testing.assert_close(combined, expected)
print("four axes: combined")
for name, q_k_v, dropout in (
    ("three axes", [four[0]] * 3, 0.0),
    ("dropout", [four] * 3, 0.1),
    ("wider values", [four, four, torch.randn(2, 4, 5, 7)], 0.0),
):
    try:
        F.scaled_dot_product_attention(*q_k_v, some, dropout, is_causal=True)
    except RuntimeError as error:
        print(f"{name}:", error)

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="several-documents-in-one-row"
# ## Several documents in one row
#
# In training, short documents are often **packed**: one after the other in the same row, until it is full. A query
# must then not look at the keys of another document. Many programs let the
# [positions](20_positions.ipynb) start at 0 again with each document. Does that keep them apart?
#
# <details><summary>What do you expect?</summary>
#
# No. A position changes the score: a rotary one turns the query and the key. Only a mask takes the key out
# of the softmax.
#
# </details>
#
# A row holds a document of five tokens and one of four, under a causal mask and with rotary positions. Change
# the first document, and measure how far the outputs of the second move.

# %%
from annotated_attention.modern import RotaryEmbedding

anew = torch.cat([torch.arange(5), torch.arange(4)])  # (9,)
documents = torch.tensor([0] * 5 + [1] * 4)           # (9,)
later = masks.block_future(9)                         # (9, 9)
others = documents[:, None] != documents              # (9, 9)


def packed(x: Tensor, positions: Tensor, blocked: Tensor) -> Tensor:
    """Attend within a row, with rotary positions."""
    turned = RotaryEmbedding(6)(x, positions)
    return F.scaled_dot_product_attention(turned, turned, x, ~blocked)


# %% tags=["fold-input"]
row = torch.randn(1, 1, 9, 6, dtype=torch.float64)  # (1, 1, 9, 6)
other = row.clone()
other[:, :, :5] = torch.randn(5, 6)
runs = {
    "one text": (torch.arange(9), later),
    "positions anew": (anew, later),
    "and a mask": (anew, later | others),
}
moved = {
    name: (packed(other, *given) - packed(row, *given))[0, 0, 5:].norm(dim=-1)
    for name, given in runs.items()
}
display.show(moved, columns=[5, 6, 7, 8], corner="token of the second document")

# %% tags=["proof"]
together = packed(row, *runs["and a mask"])
alone = [
    packed(x, torch.arange(n), masks.block_future(n))
    for x, n in zip(row.split([5, 4], dim=2), (5, 4))
]
torch.testing.assert_close(together, torch.cat(alone, 2))
print("✓ With the mask, each document comes out as it does alone.")

# %% [markdown]
# With positions anew, the second document moves about as much as in one long text; with the mask, not at all.
# Published training code had this leak [[nanoVLM](../docs/references.md#documents-leak)]. Such a mask is called
# **block-diagonal**. (FlashAttention's `flash_attn_varlen_func` takes `cu_seqlens` instead, the places where the
# documents begin.)

# %% [markdown]
# ## Exercises
#
# ### As it is, or turned?
#
# *Easy, 2 minutes.* A tokenizer gives you `mask`, `(b, m)`, booleans with True for a word. For each
# function, say whether it needs `"mask"` or `"~mask"` to hide padding.

# %% tags=["exercise"]
turned = {
    "nn.MultiheadAttention, key_padding_mask": "?",
    "F.scaled_dot_product_attention, attn_mask": "?",
    "nn.TransformerEncoderLayer, src_key_padding_mask": "?",
}

# %%
from annotated_book import exercises

exercises.masks_in_the_wild.check_turned(turned)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# In `mask`, True means *allowed*. The table of six questions says what True means to the class and to the
# function. The encoder layer reads both of its masks in the same way.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Only one of the three reads True as *allowed*.
#
# </details>

# %% tags=["solution"]
turned = {
    "nn.MultiheadAttention, key_padding_mask": "~mask",
    "F.scaled_dot_product_attention, attn_mask": "mask",
    "nn.TransformerEncoderLayer, src_key_padding_mask": "~mask",
}

exercises.masks_in_the_wild.check_turned.folded(turned)

# %% [markdown]
# ### Ready for the function
#
# *Medium, 6 minutes.* A model writes two texts at once. Its tokenizer pads on the left, so that the
# newest words are at the end, and returns `attention_mask`, `(b, m)`, integers with 1 for a word.
# The model computes queries for the newest n words. Write the mask that
# `F.scaled_dot_product_attention` needs for queries `(b, h, n, d)` and keys `(b, h, m, d)`: boolean,
# padding hidden, no looking ahead, and the same for every head. A query that is padding itself keeps a
# fully masked row. The causal part stands at the end of *Corners when n ≠ m*.


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
# Query i of the newest n is at place m - n + i. `tril` takes a diagonal, as `triu` does.
#
# </details>


# %% tags=["solution"]
def make_ready(attention_mask: Tensor, n: int) -> Tensor:
    """Make the mask for the newest ``n`` words.

    Args:
        attention_mask: (b, m), integers, 1 for a word.
        n: how many words ask.
    """
    m, device = attention_mask.size(1), attention_mask.device
    past = torch.ones(n, m, dtype=torch.bool, device=device).tril(m - n)  # (n, m)
    return attention_mask.bool()[:, None, None, :] & past                 # (b, 1, n, m)


exercises.masks_in_the_wild.check_make_ready.folded(make_ready)

# %% [markdown] name="stop-the-leak"
# ### Stop the leak
#
# *Medium, 6 minutes.* Several documents stand in one row. Tokens with the same number belong to the
# same document. Write the mask for a causal model, True = blocked, without a function of the
# package.


# %% tags=["exercise"]
def block(documents: Tensor) -> Tensor:
    """Hide what comes later, and what belongs to another document.

    Args:
        documents: (n,), integers, the number of each token's document.

    Returns:
        blocked: (n, n), boolean, a row for each query.
    """
    ...


# %%
exercises.masks_in_the_wild.check_block(block)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Compare a column of numbers, `documents[:, None]`, with a row of them.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A key is hidden if one *or* the other condition holds: the key stands later, or the numbers differ.
#
# </details>


# %% tags=["solution"]
def block(documents: Tensor) -> Tensor:
    """Hide what comes later, and what belongs to another document."""
    places = torch.arange(len(documents))
    return (places > places[:, None]) | (documents != documents[:, None])


exercises.masks_in_the_wild.check_block.folded(block)

# %% [markdown]
# ## What you have now
#
# You have six questions to ask about every mask that comes from elsewhere, and the table at the
# top has PyTorch's answers.
#
# > **In short.** The code turns a tokenizer's mask, `(b, m)`, into an additive one, `(b, 1, 1, m)`, which
# > broadcasts to the scores. Its last line copies the mask of each sample, `(b, n, m)`, for the
# > folded form, `(b * h, n, m)`:
# >
# > ```python
# > blocked = ~mask.bool()  # or masks.as_blocked(mask, true_means="allowed")
# > added = torch.zeros(b, 1, 1, m).masked_fill(
# >     blocked[:, None, None, :], -math.inf)
# > per_head = per_sample.repeat_interleave(h, 0)
# > ```
# >
# > Convert a mask once, where it comes in, and name it after what True means. For the newest n of m
# > words the diagonal ends at the bottom right. When in doubt, test the function itself: hide one
# > key, and see what the output reacts to.
#
# Masks are one of several things that go wrong without an error. [The next
# chapter](17_testing_attention.ipynb) tests attention that you cannot see into.
