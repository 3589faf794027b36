# %% [markdown]
# # Multi-head attention
#
# *Put together, does it run, and would you notice if it did not?*
#
# *14 minutes and 12 of exercises. Afterwards you can write its 18 lines, and put them inside PyTorch's own
# layer.*
#
# Six chapters lie on the bench like the wheels of a watch: four matrices, two heads, a cut, a batch, a
# mask. Do they fit? This is all of it put together: `PlainAttention`, 18 lines. In the margin stand
# the chapters in which you made each.

# %% tags=["hide-input"]
import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention import MultiheadAttention, masks
from annotated_book import chapters, display, exercises

one = chapters.load("01_one_head")
two = chapters.load("02_two_heads")
it = one.WORDS.index("it")
MADE_IN = {
    "if embed_dim % num_heads": "3",
    "raise ValueError": "3",
    "self.num_heads =": "3",
    "layers =": "1",
    "self.w_q, self.w_k": "1 2",
    "def split": "4",
    "return x.unflatten": "4 5",
    "def merge": "4",
    "return x.transpose": "4 5",
    "q, k, v = map": "1 3",
    "scores =": "1",
    "blocked =": "6",
    "weights =": "1 6",
    "return self.w_o": "1 2",
}


# %% tags=["fold-input"]
class PlainAttention(nn.Module):
    """Multi-head attention; where `blocked` is True, a query does not see a key."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(f"{num_heads} heads do not divide {embed_dim}")
        self.num_heads = num_heads
        layers = (nn.Linear(embed_dim, embed_dim) for _ in range(4))
        self.w_q, self.w_k, self.w_v, self.w_o = layers

    def split(self, x):
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (b, h, ..., d)

    def merge(self, x):
        return x.transpose(1, 2).flatten(2)  # (b, h, n, d) -> (b, n, h * d)

    def forward(self, query, key, value, blocked=None):
        q, k, v = map(self.split, (self.w_q(query), self.w_k(key), self.w_v(value)))
        scores = q @ k.mT / math.sqrt(q.size(-1))  # (b, h, n, m)
        blocked = torch.zeros_like(scores).bool() if blocked is None else blocked[:, None]
        weights = scores.masked_fill(blocked, -math.inf).softmax(-1).masked_fill(blocked, 0)
        return self.w_o(self.merge(weights @ v)), weights  # (b, n, e), (b, h, n, m)


display.margin(PlainAttention, MADE_IN)

# %% [markdown] name="all-of-it-in-18-lines"
# One thing is new: each matrix is an `nn.Linear`, which keeps it transposed and adds a bias. The three inputs
# may differ, because the words that ask may come from another text. The mask, `blocked`, is `(b, n, m)`, True
# where a query must not look; where it is the same for all sentences or all queries, that axis is 1. In
# [Masks](06_masks.ipynb#cell-id=merging-the-two) padding had neither axis, so it got two, `padding[:, None,
# None, :]`. `blocked` has its queries already, and `[:, None]` adds only the heads.
#
# Here is the same `forward` with one step a line, each under the name that it had.


# %%
class StepByStep(PlainAttention):
    """The class of this chapter, one step a line."""

    def forward(self, query, key, value, blocked=None):
        q = self.split(self.w_q(query))            # (b, h, n, d)
        k = self.split(self.w_k(key))              # (b, h, m, d)
        v = self.split(self.w_v(value))            # (b, h, m, d)
        scores = q @ k.mT / math.sqrt(q.size(-1))  # (b, h, n, m)
        blocked = torch.zeros_like(scores).bool() if blocked is None else blocked[:, None]
        scores = scores.masked_fill(blocked, -math.inf)  # (b, h, n, m)
        weights = scores.softmax(-1)                     # (b, h, n, m)
        weights = weights.masked_fill(blocked, 0)        # (b, h, n, m)
        side_by_side = self.merge(weights @ v)           # (b, n, h * d)
        return self.w_o(side_by_side), weights           # (b, n, e), (b, h, n, m)


# %% tags=["proof"]
short, long = PlainAttention(24, 4), StepByStep(24, 4)
long.load_state_dict(short.state_dict())
asking, asked = torch.randn(2, 3, 24), torch.randn(2, 5, 24)    # (2, 3, 24), (2, 5, 24)
padded = masks.block_padding(torch.tensor([5, 2]), 5)[:, None]  # (2, 1, 5)
for given in (None, padded):
    pair = [module(asking, asked, asked, given) for module in (short, long)]
    torch.testing.assert_close(*pair)
    one_way, other = (
        one.gradients(made[0], [*module.parameters()])
        for made, module in zip(pair, (short, long))
    )
    torch.testing.assert_close(one_way, other)
of_short_path = chapters.load("short_path").PlainAttention
assert display.source(PlainAttention).text == display.source(of_short_path).text
print("✓ Step by step: the same output, weights and gradients, with a mask and without.")

# %% [markdown]
# ## Run it
#
# Load the animal head and the food head of [Two heads](02_two_heads.ipynb), side by side, and give the
# class both sentences of the first page in one batch.

# %%
attention = PlainAttention(embed_dim=4, num_heads=2)
layers = (attention.w_q, attention.w_k, attention.w_v, attention.w_o)
side_by_side = [torch.cat(heads, 1) for heads in zip(*two.HEADS)]  # W_Q, W_K and W_V
for layer, matrix in zip(layers, [*side_by_side, two.W_O]):
    layer.weight.data, layer.bias.data = matrix.T.contiguous(), torch.zeros(4)

x = torch.stack([one.EMBEDDINGS, one.SWEET_EMBEDDINGS])  # (b, n, e)
output, weights = attention(x, x, x)                     # (b, n, e), (b, h, n, m)
display.show(output[:, it], ["it, thirsty", "it, sweet"], one.FEATURES)

# %% [markdown]
# That is the question of the first page, and its answer. With *thirsty*, *it* receives a yes under animal
# and a no under food, with *sweet* the other way round. Here is the same class as a map; press its steps.

# %% tags=["hide-input"]
display.whole_map()

# %% tags=["proof"]
for i, sentence in enumerate(x):
    torch.testing.assert_close(output[i], two.two_heads(sentence)[0])
print("✓ The same as the two heads, one after the other, one sentence after the other.")

# %% [markdown]
# ## Take a wheel out
#
# Take a wheel out of a watch, and it stops: you know at once. Are these 18 lines as kind? Delete one of these
# six parts at a time, and see what still runs.

# %%
WHEELS = {
    "both transposes": ".transpose(1, 2)",
    "the root": " / math.sqrt(q.size(-1))",
    "the first fill": ".masked_fill(blocked, -math.inf)",
    "the softmax": ".softmax(-1)",
    "the second fill": ".masked_fill(blocked, 0)",
    "the mask's axis": "[:, None]",
}


# %% tags=["fold-input"]
SOURCE = display.source(PlainAttention).text


def build(text, attention):
    """Build the class as a text has it, with the matrices of ``attention``."""
    names = {"nn": nn, "math": math, "torch": torch}
    exec(text, names)
    matrix, h = attention.w_q.weight, attention.num_heads
    module = names["PlainAttention"](matrix.size(-1), h).to(matrix)
    module.load_state_dict(attention.state_dict())
    return module


def verdict(text, whole, inputs):
    """Say how the output of what a text builds differs from that of the whole class."""
    try:
        output, _ = build(text, whole)(*inputs)
    except RuntimeError:
        return "stops"
    if output.isnan().any():
        return "NaN"
    same = torch.allclose(output, whole(*inputs)[0])
    return "unnoticed" if same else "differs"


# %% [markdown]
# Begin with the call that you have just made: both sentences, no mask. What is left gets the same matrices, and
# its output is held beside that of the whole class. How many of the six calls stop?
#
# <details><summary>What do you expect?</summary>
#
# None. Each part makes a tensor out of a tensor, and without a mask the next line takes the one as gladly as
# the other.
#
# </details>
#
# Three more calls ask for more: the cat sentence and a shorter one, with a mask for the padding; a larger
# class with sizes that all differ, and a mask that differs from query to query; and the same with one
# empty sample.

# %% tags=["fold-input"]
shorter = one.embed(["the", "milk", "was", "sweet"])                             # (4, 4)
padded = nn.utils.rnn.pad_sequence([one.EMBEDDINGS, shorter], batch_first=True)  # (2, 8, 4)
padding = torch.arange(8) >= torch.tensor([[8], [4]])                            # (b, m)

larger = PlainAttention(24, 4)
query, blocked = torch.randn(3, 5, 24), torch.rand(3, 5, 7) < 0.4  # (3, 5, 24), (3, 5, 7)
key, value = torch.randn(2, 3, 7, 24)                              # (3, 7, 24)
blocked[..., 0] = False  # every query sees the first key,
emptied = blocked | torch.tensor([False, False, True])[:, None, None]  # or none: (3, 5, 7)

# %% tags=["fold-input"]
trials = {
    "no mask": (attention, (x, x, x)),
    "padding": (attention, (padded, padded, padded, padding[:, None])),
    "other sizes": (larger, (query, key, value, blocked)),
    "one empty": (larger, (query, key, value, emptied)),
}
told = {
    name: [verdict(SOURCE.replace(part, ""), *trial) for trial in trials.values()]
    for name, part in WHEELS.items()
}
display.show(told, columns=[*trials], corner="without")

# %% [markdown]
# Read the first column from top to bottom. Nothing stops. Three parts change the numbers, and the other three
# not even those: without a mask nobody needs them.
#
# Now read to the right. The padding's mask stops the missing transposes, because it no longer fits the scores,
# and shows that the first fill is gone. The mask's axis is meaner. Axes are aligned from the right, so without
# `[:, None]` the samples of `(b, n, m)` stand where the heads of `(b, h, n, m)` are. Number the masks of two
# sentences, 1 and 2. Which one does each of two heads get?

# %% tags=["fold-input"]
numbers = torch.tensor([1, 2])[:, None, None]  # (b, 1, 1)
placed = {"with [:, None]": numbers[:, None], "without": numbers}
lines, heads = ["sentence 1", "sentence 2"], ["head 1", "head 2"]
display.beside(
    *(
        display.show(masks_of.expand(2, 2, 1, 1)[..., 0, 0], lines, heads, title=name)
        for name, masks_of in placed.items()
    )
)

# %% [markdown]
# Head 1 takes the mask of sentence 1 in both sentences, head 2 that of sentence 2, and nobody complains: there
# are as many sentences as heads. With 3 samples and 4 heads it stops. And the second fill is missed only in a
# [fully masked row](06_masks.ipynb#cell-id=fully-masked-rows), as in an empty sample.
#
# Now take out several at once. Half of the six are missing here, and to the first call all is right:

# %% tags=["hide-input"]
from annotated_book.display.live_figures.wheels import wheels


def without(places: int) -> str:
    """Give the text without some parts: bit j says whether part j is out."""
    text = SOURCE
    for j, part in enumerate(WHEELS.values()):
        text = text.replace(part, "") if places >> j & 1 else text
    return text


sets = [without(places) for places in range(2 ** len(WHEELS))]
heard = {name: [verdict(text, *trial) for text in sets] for name, trial in trials.items()}
lines = [line.split("  #")[0] for line in SOURCE.splitlines() if line.strip()]
start = next(i for i, line in enumerate(lines) if "def split" in line)
quiet = [name for name, row in told.items() if row[0] == "unnoticed"]
listing = [line.removeprefix("    ") for line in lines[start:]]
wheels(listing, WHEELS, heard, quiet, name="wheels")


# %% tags=["proof"]
def draw_trial(b: int, n: int, m: int, h: int, d: int) -> tuple:
    """Draw a class, and a call on it that has one empty sample."""
    blocked = torch.rand(b, n, m) < 0.5  # (b, n, m)
    blocked[0] = True
    keys = torch.randn(2, b, m, h * d)  # (2, b, m, h * d)
    return PlainAttention(h * d, h), (torch.randn(b, n, h * d), *keys, blocked)


assert "stops" not in heard["no mask"]
assert {name: row[1:].count("unnoticed") for name, row in heard.items()} == {
    "no mask": 7,
    "padding": 1,
    "other sizes": 1,
    "one empty": 0,
}
drawn = []
for seed, sizes in enumerate(((4, 3, 5, 2, 6), (2, 6, 3, 5, 4), (5, 2, 7, 3, 8))):
    torch.manual_seed(seed)
    drawn.append(draw_trial(*sizes))
    assert "unnoticed" not in [verdict(text, *drawn[-1]) for text in sets[1:]]
print(
    f"✓ Of {len(sets) - 1} ways to take some out, no mask stops none; one empty shows each."
)

# %% [markdown]
# So there is a call that misses none of the six, alone or together: **several samples, sizes that all differ
# and none of which is 1, values other than the keys, a mask that differs from query to query, and one sample
# empty.**
#
# That is six parts, and not every mistake. Can you break a line so that this call does *not* notice?
#
# <details><summary>What do you expect?</summary>
#
# You can, in at least three ways. Take out the `raise`, or `.bool()`, which only a call without a mask reaches.
# Or fill with $-10^9$ in the place of $-\infty$: beside other scores that is rounded to a weight of 0, and
# where a row is fully masked, the second fill covers the mistake.
#
# But exchange `self.w_v(value)` for `self.w_v(key)`, or cut the mask to its first query, `blocked[:, None,
# :1]`. The call notices both, and a call whose values are its keys, with padding alone, notices neither.
#
# </details>

# %% tags=["proof"]
broken = {
    "            raise ValueError": "            str",
    ".bool()": "",
    "-math.inf": "-1e9",
    "self.w_v(value)": "self.w_v(key)",
    "blocked[:, None]": "blocked[:, None, :1]",
}
texts = [SOURCE.replace(*change) for change in broken.items()]
assert SOURCE not in texts
of_padding = (
    larger,
    (query, key, key, masks.block_padding(torch.tensor([7, 4, 6]), 7)[:, None]),
)
for trial, noticed in (*((trial, 2) for trial in drawn), (of_padding, 0)):
    assert [verdict(text, *trial) for text in texts] == ["unnoticed"] * (5 - noticed) + [
        "differs"
    ] * noticed
assert verdict(texts[1], *trials["no mask"]) == "stops"
for sizes, missed in (((4, 3, 5, 2, 1), True), ((1, 3, 5, 2, 6), True)):
    narrow = draw_trial(*sizes)
    assert ("unnoticed" in [verdict(text, *narrow) for text in sets[1:]]) == missed
print("✓ The call notices two of the five; padding alone, with keys for values, none.")

# %% [markdown]
# One verdict deserves a second look. *Differs* sounds like *is worse*. Here is what *it* says without the root:

# %%
rootless = build(SOURCE.replace(WHEELS["the root"], ""), attention)
says = torch.cat([module(x, x, x)[0][:, it] for module in (attention, rootless)])  # (4, e)
names = [f"{word}, {root}" for root in ("root", "no root") for word in ("thirsty", "sweet")]
display.show(says, names, one.FEATURES)

# %% [markdown]
# It looks *better*: 0.99 against 0.08 is a clearer answer than 0.97 against 0.19. Had
# you only the cat sentence, you would keep the change. But these heads are two numbers wide. In a wide one, as
# [One head](01_one_head.ipynb#cell-id=deeper-why-divide-by-the-root) measured, a single key takes nearly
# everything, and hardly any gradient comes back to correct it.
#
# So a verdict is worth as much as what you compare with.

# %% [markdown] name="write-it-yourself"
# ## Write it yourself
#
# *Medium, 10 minutes.* Now without looking back: write the two cuts and `forward`. The check holds your output,
# weights and gradients beside those of a right class. It makes the call that you have just read, with one
# query that sees nothing in the place of the empty sample, and another call without a mask.


# %% tags=["exercise"]
class MyAttention(nn.Module):
    """Multi-head attention; where `blocked` is True, a query does not see a key."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        layers = (nn.Linear(embed_dim, embed_dim) for _ in range(4))
        self.w_q, self.w_k, self.w_v, self.w_o = layers

    def split(self, x): ...  # (b, n, e) -> (b, h, n, d)

    def merge(self, x): ...  # (b, h, n, d) -> (b, n, e)

    def forward(self, query, key, value, blocked=None): ...  # (b, n, e), (b, h, n, m)


# %%
exercises.multihead_attention.check_attention(MyAttention)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Project, split, score, divide by the root, fill, softmax, fill, mix, merge, project.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Without a mask, nothing is blocked: make a `blocked` of zeros, as booleans, in the shape of the scores. With
# one, give it an axis for the heads.
#
# </details>

# %% tags=["solution"]
MyAttention = PlainAttention

exercises.multihead_attention.check_attention.folded(MyAttention)

# %% [markdown]
# [From memory](19_from_memory.ipynb) asks for all of it again, against the clock. Now compare yours with
# PyTorch's. (If you skipped it, run the solution: then the 18 lines stand in for yours.)

# %% [markdown] name="in-pytorchs-place"
# ## Inside PyTorch's own layer
#
# PyTorch has a class of its own, `nn.MultiheadAttention`, and a layer around it, `nn.TransformerEncoderLayer`:
# attention, followed by steps that the [next chapter](08_transformer_layers.ipynb) explains. Take theirs
# out, put yours in, and see whether the layer still says the same.

# %% [markdown] name="what-pytorchs-layer-asks-for"
# The layer has other names, and passes up to two masks: padding, `(b, m)`, and pairs, `(n, m)`, both as numbers
# to be added, $-\infty$ where True was. `fit` makes a subclass of yours that takes these, and gives it the
# matrices of PyTorch's class, which keeps $W_Q$, $W_K$ and $W_V$ one below the other in `in_proj_weight`. What
# it cannot do, dropout or appended keys, it refuses; [the package's class](../docs/package/in-place.md) can.


# %% tags=["fold-input"]
def fit(theirs, kind):
    """Put the numbers of PyTorch's class into a class like the 18 lines."""

    class Fitted(kind):
        batch_first = True
        # The layer reads None as attention without biases, which its fast path does not do.
        # That path would multiply by PyTorch's own matrices, and never call this forward.
        in_proj_bias = None

        def forward(
            self, query, key, value, key_padding_mask=None, attn_mask=None, **flags
        ):
            added = query.new_zeros(len(query), query.size(1), key.size(1))  # (b, n, m)
            if key_padding_mask is not None:
                added = added + key_padding_mask[:, None, :]
            if attn_mask is not None:
                added = added + attn_mask
            blocked = added == -math.inf  # (b, n, m)
            if added[~blocked].any() or (flags.get("is_causal") and attn_mask is None):
                raise ValueError("a causal mask is given, and a mask holds 0 or -inf alone")
            return super().forward(query, key, value, blocked)

    appends = theirs.add_zero_attn or theirs.bias_k is not None
    if theirs.dropout or appends or not theirs.batch_first:
        raise ValueError("no dropout, no appended key, and the batch first")
    ours = Fitted(theirs.embed_dim, theirs.num_heads)
    weights, biases = theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3)
    for linear, weight, bias in zip((ours.w_q, ours.w_k, ours.w_v), weights, biases):
        linear.weight.data, linear.bias.data = weight.detach(), bias.detach()
    ours.w_o = theirs.out_proj
    return ours


# %% [markdown]
# Now the swap, by the recipe. A layer asks its words about themselves, so two of its points cannot be had
# here: there are as many keys as queries, and values are made from what keys are made from. The rest can:
# three samples, the last one empty, sizes that differ, four pairs of masks, and gradients.

# %%
future = torch.ones(5, 5, dtype=torch.bool).triu(1)                     # (n, m)
padding = torch.arange(5) >= torch.tensor([[5], [3], [0]])              # (b, m)
texts = torch.randn(3, 5, 24, dtype=torch.float64, requires_grad=True)  # (b, n, e)
pairs = {"none": (), "future": (future,), "padding": (None, padding)}
pairs["both"] = future, padding


def ask(layer, texts, pairs):
    """Give the output under each pair of masks, and its gradient."""
    outputs = [layer(texts, *pair) for pair in pairs.values()]
    return [(output, *one.gradients(output, [texts])) for output in outputs]


# %%
layer = nn.TransformerEncoderLayer(24, 4, 30, dropout=0, batch_first=True).double()
before = ask(layer, texts, pairs)
layer.self_attn = fit(layer.self_attn, MyAttention)
after = ask(layer, texts, pairs)
equal = {name: [*map(torch.allclose, a, b)] for name, a, b in zip(pairs, after, before)}
display.show(equal, columns=["output", "gradient"], corner="equal under")

# %% [markdown]
# Your lines are running inside PyTorch. The two points that a layer rules out, the class can be asked for
# by itself:

# %% tags=["proof"]
theirs = nn.MultiheadAttention(24, 4, batch_first=True, dtype=torch.float64)
ours, linears = fit(theirs, PlainAttention), ("w_q", "w_k", "w_v")
asking = torch.randn(3, 5, 24, dtype=torch.float64, requires_grad=True)        # (3, 5, 24)
keys, values = torch.randn(2, 3, 7, 24, dtype=torch.float64).requires_grad_()  # (3, 7, 24)
blocked = torch.rand(5, 7) < 0.4, masks.block_padding(torch.tensor([7, 4, 0]), 7)
added, ends = (torch.zeros(x.shape).double().masked_fill(x, -math.inf) for x in blocked)
given = {"attn_mask": added, "key_padding_mask": ends, "need_weights": False}
mine, other = (
    each(asking, keys, values, **given)[0] for each in (ours, theirs)
)  # (3, 5, 24)
torch.testing.assert_close(mine, other)
inputs = [asking, keys, values, theirs.out_proj.weight]
packed = [theirs.in_proj_weight, theirs.in_proj_bias]
*of_theirs, of_weight, of_bias = one.gradients(other, inputs + packed)
rows = [getattr(getattr(ours, w), kind) for kind in ("weight", "bias") for w in linears]
*of_ours, q, k, v, q_bias, k_bias, v_bias = one.gradients(mine, inputs + rows)
torch.testing.assert_close(of_ours, of_theirs)
torch.testing.assert_close(torch.cat([q, k, v]), of_weight)
torch.testing.assert_close(torch.cat([q_bias, k_bias, v_bias]), of_bias)
print("✓ Other keys, other values, one sample empty: output and all gradients agree.")

# %% tags=["proof"]
case = nn.TransformerEncoderLayer(24, 4, 30, dropout=0, batch_first=True).double()
some = masks.block_padding(torch.tensor([5, 3, 4]), 5)
tried = (), (future,), (None, some), (future, some)
expected = [case(texts, *pair) for pair in tried]
case.self_attn = fit(case.self_attn, PlainAttention)
with torch.no_grad():
    torch.testing.assert_close([case.eval()(texts, *pair) for pair in tried], expected)
refused = 0
for unread in (
    {"key_padding_mask": some},
    {"attn_mask": future * -1e9},
    {"is_causal": True},
):
    try:
        case.self_attn(texts, texts, texts, **unread)
    except ValueError:
        refused += 1  # Booleans, too: the layer makes numbers of them first
for setting in (
    {"dropout": 0.1},
    {"add_bias_kv": True},
    {"add_zero_attn": True},
    {"batch_first": False},
):
    try:
        fit(nn.MultiheadAttention(24, 4, **{"batch_first": True} | setting), PlainAttention)
    except ValueError:
        refused += 1
assert refused == 7
print("✓ In evaluation, too; what the lines cannot do, they refuse.")

# %% [markdown]
# The package's `MultiheadAttention` is these 18 lines with PyTorch's own names, layouts and options ([line
# by line](../docs/package/line-by-line.md)), so it needs no `fit`: one line puts it in, and the next loads
# a checkpoint. I have made one mistake in this cell. Does it show?

# %%
torch.manual_seed(4)
layer = nn.TransformerEncoderLayer(24, 4, 30, dropout=0, batch_first=True).double()
before, checkpoint = layer(texts), layer.state_dict()

layer.self_attn = MultiheadAttention(24, 4, dtype=torch.float64)
print(layer.load_state_dict(checkpoint))
after = layer(texts)  # (b, n, e)
print(tuple(after.shape), "off by up to", round((after - before).abs().max().item(), 2))

# %% [markdown]
# *All keys matched successfully*, the shape is right, and the output is off by up to 0.73. I have left out
# `batch_first=True`, so the class takes the five words for five sentences, and the three sentences for three
# words: [they talk through the walls](05_batches.ipynb#cell-id=what-equal-sizes-hide). A `state_dict` holds
# parameters but no settings, so everything loads.

# %% tags=["proof"]
from torch.func import functional_call

layer.self_attn = MultiheadAttention(24, 4, batch_first=True, dtype=torch.float64)
layer.load_state_dict(checkpoint)
torch.testing.assert_close(layer(texts), before)
small = PlainAttention(24, 4).double()
projections = [small.w_q, small.w_k, small.w_v]
packed = {
    "in_proj_weight": torch.cat([linear.weight for linear in projections]),
    "in_proj_bias": torch.cat([linear.bias for linear in projections]),
    "out_proj.weight": small.w_o.weight,
    "out_proj.bias": small.w_o.bias,
}
query = torch.randn(2, 3, 24, dtype=torch.float64, requires_grad=True)          # (2, 3, 24)
key, value = torch.randn(2, 2, 5, 24, dtype=torch.float64, requires_grad=True)  # (2, 5, 24)
final = MultiheadAttention(24, 4, batch_first=True, dtype=torch.float64)
by_head = {"average_attn_weights": False}
ends = masks.block_padding(torch.tensor([5, 3]), 5)  # (2, 5)
of_final = functional_call(final, packed, (query, key, value, ends), by_head)
of_small = small(query, key, value, ends[:, None])
torch.testing.assert_close(of_final, of_small)
inputs = [query, key, value, *small.parameters()]
gradients = one.gradients(of_final[0], inputs), one.gradients(of_small[0], inputs)
torch.testing.assert_close(*gradients)
print(f"✓ The package's class and the 18 lines agree, in {len(inputs)} gradients, too.")

# %% [markdown] name="before-you-swap"
# ## Before you swap
#
# For the day on which you put one of the classes in the place of another. Look up what you have; each row was
# run when this page was built.
#
# | you have | you write | because |
# |---|---|---|
# | a checkpoint of PyTorch's class | `load_state_dict` for the package's class; `in_proj_weight.chunk(3)` for the 18 lines | $W_Q$, $W_K$ and $W_V$ are packed into one `(3e, e)`; heads, `batch_first` and dropout are not in it |
# | words as `(b, n, e)` | `batch_first=True` | the default is `(n, b, e)`, and nothing complains |
# | padding, `(b, m)` | `key_padding_mask=padding`; in the 18 lines `padding[:, None]` | True is blocked in PyTorch's class, the package's and the 18 lines |
# | a mask in which True is *allowed* | `~mask` | so it is for `F.scaled_dot_product_attention` |
# | a causal mask, `future`, `(n, m)` | package: `is_causal=True`; PyTorch: `is_causal=True, attn_mask=future`; 18 lines: `future[None]` | PyTorch's flag alone is an error in training, and **no mask at all** on its fast path; in the 18 lines head i reads row i of a bare `future`: a silent leak with n = h, an error unless n is 1 or h |
# | a mask for each sample, `(b, n, m)` | `attn_mask=mask.repeat_interleave(h, 0)`; in the 18 lines `mask` | mask i · h + j is for sample i, head j |
# | samples that may be empty | the package's class or the 18 lines, which give zeros before $W_O$; PyTorch's with `need_weights=False`, off its fast path | otherwise NaN. The fast path is self-attention with `batch_first` and an even number of heads, in evaluation, without gradients |
# | no use for the weights | `need_weights=False` | otherwise an `(n, m)` matrix of each head is kept (dropout in training on a CPU keeps it anyway) |
# | a wish to see them | `.eval()` and `average_attn_weights=False` | they come *after* dropout, and as a mean over the heads |
# | a `forward` of your own, inside PyTorch's layer | a subclass of the package's class | the fast path skips `forward` of PyTorch's class, also one that you overrode |

# %% tags=["hide-input"]
theirs = nn.MultiheadAttention(24, 4, batch_first=True, dtype=torch.float64)
y = torch.randn(2, 4, 24, dtype=torch.float64)  # (2, 4, 24), as many words as heads
ahead = masks.block_future(4)                   # (4, 4)
leak = [small(y, y, y, each)[1][..., ahead].any() for each in (ahead[None], ahead)]
assert leak == [False, True]
final.load_state_dict(theirs.state_dict())
alone = final(y, y, y, is_causal=True)[0]  # (2, 4, 24)
torch.testing.assert_close(alone, theirs(y, y, y, attn_mask=ahead)[0])
bare = F.scaled_dot_product_attention(y, y, y, attn_mask=~ahead)  # (2, 4, 24)
torch.testing.assert_close(bare, F.scaled_dot_product_attention(y, y, y, is_causal=True))
gone = torch.ones(2, 4, dtype=torch.bool)  # (2, 4)
assert not final(y, y, y, gone)[1].any()
for need, first, training, graded in itertools.product((True, False), repeat=4):
    fresh = nn.MultiheadAttention(24, 4, batch_first=first).double().train(training)
    with torch.set_grad_enabled(graded):
        empty = fresh(y, y, y, gone if first else gone.mT, need_weights=need)
    fast = first and not training and not graded
    assert (
        empty[0].isnan().all()
        if need or fast
        else not (empty[0] - fresh.out_proj.bias).any()
    )

# %% tags=["hide-input"]
beside = {"attn_mask": ahead, "is_causal": True, "need_weights": False}
torch.testing.assert_close(theirs(y, y, y, **beside)[0], alone)
of_samples = torch.stack([ahead, torch.eye(4).bool()])  # (2, 4, 4)
each = of_samples.repeat_interleave(4, 0)               # (8, 4, 4)
by_sample = functional_call(final, packed, (y, y, y), by_head | {"attn_mask": each})
torch.testing.assert_close(by_sample, small(y, y, y, of_samples))
assert by_sample[1].shape == (2, 4, 4, 4)
for n in range(1, 7):  # queries, under a bare mask
    try:
        stopped = not small(torch.ones(2, n, 24).double(), y, y, torch.zeros(n, 4).bool())
    except RuntimeError:
        stopped = True
    assert stopped == (n not in (1, 4)), n
try:
    theirs(y, y, y, need_weights=False, is_causal=True)
    refused = ""
except RuntimeError as error:
    refused = str(error)
assert "Need attn_mask" in refused
with torch.no_grad():  # on the fast path nothing is refused, and nothing is hidden
    unasked, bare = (
        theirs.eval()(y, y, y, need_weights=False, is_causal=flag)[0]  # (2, 4, 24)
        for flag in (True, False)
    )
torch.testing.assert_close(unasked, bare)

# %% tags=["proof"]
ran = []


def counting(kind: type[nn.Module], ran: list[type]) -> nn.Module:
    """Make a module of a subclass whose forward is noted."""

    class Counting(kind):
        def forward(self, *inputs, **options):
            ran.append(kind)
            return super().forward(*inputs, **options)

    return Counting(24, 4, batch_first=True, dtype=torch.float64).eval()


encoder = nn.TransformerEncoderLayer(24, 4, 30, batch_first=True).double().eval()
for kind in (nn.MultiheadAttention, MultiheadAttention):
    encoder.self_attn = counting(kind, ran)
    with torch.no_grad():
        encoder(y)
assert ran == [MultiheadAttention]
for kind in (nn.MultiheadAttention, MultiheadAttention):
    dropping = kind(24, 4, dropout=0.5, batch_first=True, dtype=torch.float64)
    sums = dropping(y, y, y)[1].sum(-1)  # (2, 4)
    assert not sums.allclose(torch.ones_like(sums))
    again = dropping.eval()(y, y, y)[1].sum(-1)  # (2, 4)
    assert again.allclose(torch.ones_like(again))
print("✓ Masks, the empty sentence, dropout, a forward of one's own: as the table says.")

# %% [markdown]
# <!-- deeper: What the weights cost -->
# ### Going deeper: What the weights cost
#
# Returning the weights is the default, and it has a price: the `(n, m)` matrices of all heads are kept
# until the gradient has been computed. In the cell, PyTorch calls `count` for every tensor that it keeps
# for the backward pass; each piece of memory is counted once, in bytes.


# %%
def count_kept(
    n: int, need_weights: bool, dropout: float = 0, kind: type = MultiheadAttention
) -> int:
    """Count the bytes that a call on n tokens keeps for its gradient."""
    sizes: dict[int, int] = {}

    def count(x: Tensor) -> Tensor:
        sizes[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    module = kind(64, 8, dropout)
    x = torch.randn(n, 1, 64)
    with torch.autograd.graph.saved_tensors_hooks(count, lambda x: x):
        module(x, x, x, need_weights=need_weights)
    return sum(sizes.values())


# %%
calls = {"with weights": (True,), "without": (False,), "without, dropout": (False, 0.1)}
kept = {n: [count_kept(n, *call) for call in calls.values()] for n in (256, 512, 1024)}
theirs = [count_kept(256, *call, kind=nn.MultiheadAttention) for call in calls.values()]
for full, bare, dropping in (*kept.values(), theirs):
    assert dropping > full > bare
display.show(kept, columns=[*calls], corner="tokens", title="bytes kept")

# %% [markdown]
# From 512 to 1024 tokens the first column grows almost fourfold, and the second almost doubles. The third is
# the exception, in PyTorch's class as well: with dropout in training a CPU has no fused kernel, and the steps
# keep even more than the weights do. Weights take time, too; [Speed](15_speed.ipynb) measures how much. So pass
# `need_weights=False` unless
# you want to look at them.

# %% [markdown] name="dropout"
# And call `.eval()` before you look: in training, **dropout** sets each weight
# to zero with probability p and divides the others by 1 − p, and what comes back are the weights that
# mixed the values, after dropout. A row of them adds up to one only on average.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="deeper-a-place-to-attend-when-nothing-matters"
# <!-- deeper: A place to attend when nothing matters -->
# ### Going deeper: A place to attend when nothing matters
#
# Weights add up to one, so a query must take something from some key, whether or not any key has
# what the query wants. `add_zero_attn` appends a key and a value of zeros to every sequence, and
# `add_bias_kv` appends a learned pair. Both give the query somewhere to look when there is nothing
# to see.
#
# Here is a task that needs an appended key. Each sequence has five tokens, each with a number, and
# in half of the sequences one token is marked. The answer is the number of the marked token, or
# zero if none is marked.


# %%
def draw_task() -> tuple[Tensor, Tensor]:
    """Draw sequences and answers; feature 0 is the mark, feature 1 the number."""
    x = torch.zeros(256, 5, 8)  # (256, 5, 8)
    x[..., 1] = torch.randn(256, 5)
    x[::2, :, 0] = torch.eye(5)[torch.randint(5, (128,))]
    return x, (x[..., 0] * x[..., 1]).sum(1)  # (256, 5, 8), (256,)


# %%
def learn(steps: int = 300, **options) -> tuple[Tensor, ...]:
    """Train one head; return what it answers at last, what is right, and its weights."""
    torch.manual_seed(0)
    module = MultiheadAttention(8, 1, batch_first=True, **options)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.02)
    for _ in range(steps):
        x, right = draw_task()
        output, weights = module(torch.ones(256, 1, 8), x, x)  # (256, 1, 8), (256, 1, ...)
        answers = output[:, 0, 0]                              # (256,)
        optimizer.zero_grad()
        (answers - right).square().mean().backward()
        optimizer.step()
    return answers.detach(), right, weights.detach()


# %%
found, rows = {}, []
for options in ({}, {"add_zero_attn": True}, {"add_bias_kv": True}):
    answers, right, weights = learn(**options)
    size = answers[::2] @ right[::2] / right[::2].square().sum()
    wrong = answers[1::2].square().mean().sqrt()
    loss = (answers - right).square().mean()
    found[next(iter(options), "nothing")] = [size.item(), wrong.item(), loss.item()]
    rows.append([*weights[1::2].mean((0, 1)).tolist(), None][:6])
display.show(
    found, columns=["marked, of its size", "unmarked, for 0", "loss"], corner="appended"
)

# %% tags=["hide-input"]
places = [*map(str, range(1, 6)), "appended"]
display.show(rows, [*found], places, title="mean weights of unmarked sequences")

# %% [markdown]
# Without an appended key, each token of an unmarked sequence gets a fifth of the weight on average.
# The output is close to the mean of five numbers that should not count. To keep this mean small,
# the head also shrinks the marked answers, to 0.83 of their size, since one $W_V$ serves both.
#
# The best compromise can be computed. The mean of five independent numbers has a fifth of their
# variance. So the best factor $c$ minimises $(1 - c)^2 + c^2 / 5$, which gives $5/6$.
#
# With an appended key, the last weight takes nearly everything in an unmarked sequence. Marked
# answers keep their size, and the loss all but vanishes.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Exercises
#
# ### Four shapes
#
# *Easy, 2 minutes.* Someone calls the package's class with 12 features and 3 heads, and leaves all
# other settings at their defaults. So the layout is `(n, b, e)`, and the weights come back as their mean
# over the heads:
#
#     attention = MultiheadAttention(12, 3)
#     output, weights = attention(query, key, key, padding)
#
# The query is `(7, 2, 12)`, the key `(9, 2, 12)`, and the padding mask `(2, 9)`. Write down four
# shapes. That of the mask has an axis for each axis of the scores, and is as small as it can be.

# %% tags=["exercise"]
my_shapes = {
    "the queries of the heads": None,
    "the mask, on the axes of the scores": None,
    "the output": None,
    "the weights": None,
}

# %%
exercises.multihead_attention.check_shapes(my_shapes)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The default layout is `(n, b, e)`. Which of the three numbers is the batch?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Follow the 18 lines: split, then the mask with an axis for the heads and one for the queries. The
# weights of all heads would be `(b, h, n, m)`.
#
# </details>

# %% tags=["solution"]
my_shapes = {
    "the queries of the heads": (2, 3, 7, 4),
    "the mask, on the axes of the scores": (2, 1, 1, 9),
    "the output": (7, 2, 12),
    "the weights": (2, 7, 9),
}

exercises.multihead_attention.check_shapes.folded(my_shapes)

# %% [markdown]
# ## More exercises

# %% [markdown] name="a-score-of-your-own"
# ### ALiBi
#
# In the package's class the scores are a method, `score(q, k)`: from `(b, h, n, d)` and `(b, h, m, d)` to
# `(b, h, n, m)`. So you can put in a part that nobody gave you.
#
# *Medium, 15 minutes.* Attention does not know the positions of the words. ALiBi makes up for this
# by taking a little off each score for each step of distance [[Press et
# al.](../docs/references.md#press-2022)]. Query i and key j get their scaled score **minus** $s
# \cdot |i - j|$, and each head has its own slope $s$. With h heads, where h is a power of two,
# the first has the slope $2^{-8/h}$, the second $2^{-16/h}$, and so on; the last has $2^{-8}$. The
# slopes are not learned. Override `score`.


# %% tags=["exercise"]
class AlibiAttention(MultiheadAttention):
    """Attends less to what is further away, each head by a slope of its own."""

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return super().score(q, k)  # change this


# %%
exercises.multihead_attention.check_alibi(AlibiAttention)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The distances form a matrix of shape `(n, m)`: `torch.arange(n)[:, None] - torch.arange(m)`,
# without the sign. Here n and m are the lengths of q and k, on axis -2. Pass `device=q.device` to
# each `arange`, or the class works only on the CPU.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The scores are `(b, h, n, m)`. Slopes of shape `(h, 1, 1)` broadcast, one to each head. For h = 4
# they are 1/4, 1/16, 1/64, 1/256.
#
# </details>


# %% tags=["solution"]
class AlibiAttention(MultiheadAttention):
    """Attends less to what is further away, each head by a slope of its own."""

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        h, n, m = self.num_heads, q.size(-2), k.size(-2)
        heads = torch.arange(1, h + 1, dtype=q.dtype, device=q.device)      # (h,)
        slopes = 2.0 ** (-8 / h * heads)                                    # (h,)
        i = torch.arange(n, device=q.device)[:, None]                       # (n, 1)
        j = torch.arange(m, device=q.device)                                # (m,)
        return super().score(q, k) - slopes[:, None, None] * (i - j).abs()  # (b, h, n, m)


exercises.multihead_attention.check_alibi.folded(AlibiAttention)

# %% [markdown]
# ### What a state_dict does not know
#
# *Medium, 10 minutes.* Write a function that takes any `nn.MultiheadAttention` and returns a module
# of our class with the same parameters and the same settings. The function below copies the
# parameters of a module that has default settings. What else does the new module have to know?


# %% tags=["exercise"]
def take_over(theirs: nn.MultiheadAttention) -> MultiheadAttention:
    """Make our module from PyTorch's."""
    ours = MultiheadAttention(theirs.embed_dim, theirs.num_heads)  # and what else?
    ours.load_state_dict(theirs.state_dict())
    return ours


# %%
exercises.multihead_attention.check_take_over(take_over)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Look at the arguments of `__init__`, and for each setting ask: would loading fail if this setting
# were wrong? If not, the setting is a dangerous one.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# PyTorch's module keeps most settings under their own names: `theirs.batch_first`, for example. It
# keeps no setting named `bias`: check whether `in_proj_bias` is None. Do the same with `bias_k`.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Two things are easily missed: the dtype, which the module does not keep (look at a parameter), and
# whether the module is training, `theirs.training`.
#
# </details>


# %% tags=["solution"]
def take_over(theirs: nn.MultiheadAttention) -> MultiheadAttention:
    """Make our module from PyTorch's."""
    weight = theirs.out_proj.weight
    ours = MultiheadAttention(
        theirs.embed_dim,
        theirs.num_heads,
        dropout=theirs.dropout,
        bias=theirs.in_proj_bias is not None,
        add_bias_kv=theirs.bias_k is not None,
        add_zero_attn=theirs.add_zero_attn,
        kdim=theirs.kdim,
        vdim=theirs.vdim,
        batch_first=theirs.batch_first,
        device=weight.device,
        dtype=weight.dtype,
    )
    ours.load_state_dict(theirs.state_dict())
    return ours.train(theirs.training)


exercises.multihead_attention.check_take_over.folded(take_over)

# %% [markdown]
# ## What you have now
#
# > **In short.** $\mathrm{MultiHead}(Q, K, V) = \mathrm{Concat}(\mathrm{head}_1, \ldots,
# > \mathrm{head}_h)\, W_O$, where $\mathrm{head}_i$ is
# > $\mathrm{Attention}(Q W_Q^i, K W_K^i, V W_V^i)$.
# >
# > In shapes: `(b, n, h * d)` is split into `(b, h, n, d)`, scored and masked as `(b, h, n, m)`, and
# > merged into `(b, n, h * d)`. In PyTorch's place, from the package:
# >
# > ```python
# > attention = MultiheadAttention(embed_dim, num_heads, batch_first=True)
# > output, _ = attention(x, x, x, padding, need_weights=False, is_causal=True)
# > ```
# >
# > PyTorch's own class takes the same call, and may ignore the flag: give it `attn_mask=future`, too.
# >
# > Hold your class beside another one: several samples, sizes that all differ and none of which is 1, values
# > other than the keys, a mask that differs from query to query, and one sample empty; gradients, too. (The
# > empty one gets zeros before $W_O$ here, and from PyTorch's class NaN with weights or on its fast path.) A
# > `state_dict` knows no settings: compare `batch_first` and `dropout` by eye.
#
# This is the end of Part I. The watch goes: you can compute a head with a pencil, say what each of the 18 lines
# is for, and show that your class keeps time with PyTorch's.
#
# Attention collects, and that is all. The word *it* now holds two numbers that say what is meant, and
# nobody has used them yet. [The next chapter](08_transformer_layers.ipynb) builds the case: a layer in
# which each word works on what it has collected, so that the next layer can ask a better question.
