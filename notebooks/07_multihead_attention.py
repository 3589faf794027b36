# %% [markdown]
# # Multi-head attention
#
# *Put together, does it run, and would you notice if it did not?*
#
# *9 minutes and 12 of exercises. Afterwards you can write the whole class, and show that it is right.*
#
# Six chapters lie on the bench like the wheels of a watch: four matrices, two heads, a cut, a trick, a batch, a
# mask. Do they fit? Here they are put together, in 18 lines. In the margin stand the chapters in which you made
# them: `4 5` means that 4 made this line, and 5 gave it an axis for the batch.

# %% tags=["fold-input"]
import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention import MultiheadAttention, masks
from annotated_book import chapters, display, exercises
from annotated_book.display.live_figures.wheels import wheels
from annotated_book.display.verdicts import told_apart

one = chapters.load("01_one_head")  # the words, their features, and gradients
two = chapters.load("02_two_heads")  # the animal head and the food head
it = one.WORDS.index("it")

# %% tags=["hide-input"]
MADE_IN = {
    "if embed_dim % num_heads": "3",
    "raise ValueError": "3",
    "self.num_heads =": "3",
    "layers =": "1 2",
    "self.w_q,": "1 2",
    "def split": "4",
    "return x.unflatten": "4 5",
    "def merge": "4",
    "return x.transpose": "4 5",
    "q, k, v =": "3",
    "scores =": "1",
    "blocked =": "6",
    "weights =": "1 6",
    "return self.w_o": "2 4",
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
# Two things are new. Each matrix is an `nn.Linear`, which keeps it transposed and adds a bias. And the class itself gives
# the mask, `(b, n, m)`, its axis for the heads, `blocked[:, None]`. So padding, `(b, m)`, goes in as `padding[:, None]`,
# and the staircase, `(n, m)`, as `future[None]`.
#
# ## One call
#
# Wind it up. Load the animal head and the food head of [Two heads](02_two_heads.ipynb), side by side, and ask the
# question of the first page, of both its sentences at once: what does *it* mean?

# %%
attention = PlainAttention(embed_dim=4, num_heads=2)
layers = (attention.w_q, attention.w_k, attention.w_v, attention.w_o)
wide = [torch.cat(heads, 1) for heads in zip(*two.HEADS)]  # W_Q, W_K and W_V
for layer, matrix in zip(layers, [*wide, two.W_O]):
    layer.weight.data, layer.bias.data = matrix.T.contiguous(), torch.zeros(4)

x = torch.stack([one.EMBEDDINGS, one.SWEET_EMBEDDINGS])  # (b, n, e)
output, weights = attention(x, x, x)                     # (b, n, e), (b, h, n, m)
display.show(output[:, it], ["it, thirsty", "it, sweet"], one.FEATURES)

# %% [markdown]
# It runs, and in one call it answers. With *thirsty*, *it* receives 0.97 under animal and 0.19 under food: the cat
# is meant. With *sweet*, the other way round: the milk. On the way there, each line has done what you did in its
# chapter. Press the steps of this map, and follow the numbers of *it* to the answer. (Two rows of padding follow the
# cat sentence.)

# %% tags=["hide-input"]
display.whole_map()

# %% tags=["proof"]
for i, sentence in enumerate(x):
    torch.testing.assert_close(output[i], two.two_heads(sentence)[0])
print("✓ The same as the two heads, one after the other, one sentence after the other.")

# %% [markdown]
# ## Take a wheel out
#
# Take a wheel out of a watch, and it stops: you know at once. Is this class as kind? Here are ten of its lines. Press
# an underlined part to take it out; press several. Four calls compare what is left with the whole class:
#
# - *no mask*: the call that you have just made;
# - *padding*: the cat sentence and a shorter one;
# - *other sizes*: a larger class, sizes that all differ, a mask that differs from query to query;
# - *one empty*: the same, with one sample in which nobody sees anything.
#
# Take out the six, one after the other. How often does the first call stop? (The two transposes go together, since the
# second undoes the first: either without the other stops every call.)
#
# <details><summary>What do you expect?</summary>
#
# Never. Each part makes a tensor out of a tensor, and the next line takes the one as gladly as the other.
#
# </details>

# %% tags=["hide-input"]
SOURCE = display.source(PlainAttention).text
WHEELS = {
    "both transposes": ".transpose(1, 2)",
    "the root": " / math.sqrt(q.size(-1))",
    "the first fill": ".masked_fill(blocked, -math.inf)",
    "the softmax": ".softmax(-1)",
    "the second fill": ".masked_fill(blocked, 0)",
    "the mask's axis": "[:, None]",
}


def build(text, attention):
    """Build the class as a text has it, with the matrices of ``attention``."""
    names = {"nn": nn, "math": math, "torch": torch}
    exec(text, names)
    matrix, h = attention.w_q.weight, attention.num_heads
    module = names["PlainAttention"](matrix.size(-1), h).to(matrix)
    module.load_state_dict(attention.state_dict())
    return module


def without(places):
    """Give the text without some parts: bit j says whether part j is out."""
    text = SOURCE
    for j, part in enumerate(WHEELS.values()):
        text = text.replace(part, "") if places >> j & 1 else text
    return text


# %% tags=["hide-input"]
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


shorter = one.embed(["the", "milk", "was", "sweet"])                             # (4, 4)
padded = nn.utils.rnn.pad_sequence([one.EMBEDDINGS, shorter], batch_first=True)  # (2, 8, 4)
padding = torch.arange(8) >= torch.tensor([[8], [4]])                            # (b, m)

larger = PlainAttention(24, 4)
query, blocked = torch.randn(3, 5, 24), torch.rand(3, 5, 7) < 0.4  # (3, 5, 24), (3, 5, 7)
key, value = torch.randn(2, 3, 7, 24)                              # (3, 7, 24)
blocked[..., 0] = False  # every query sees the first key,
emptied = blocked | torch.tensor([False, False, True])[:, None, None]  # or none: (3, 5, 7)

# %% tags=["hide-input"]
trials = {
    "no mask": (attention, (x, x, x)),
    "padding": (attention, (padded, padded, padded, padding[:, None])),
    "other sizes": (larger, (query, key, value, blocked)),
    "one empty": (larger, (query, key, value, emptied)),
}
sets = [without(places) for places in range(2 ** len(WHEELS))]
heard = {name: [verdict(text, *trial) for text in sets] for name, trial in trials.items()}
lines = [line.split("  #")[0] for line in SOURCE.splitlines() if line.strip()]
start = next(i for i, line in enumerate(lines) if "def split" in line)
listing = [line.removeprefix("    ") for line in lines[start:]]
wheels(listing, WHEELS, heard, [], name="wheels")

# %% tags=["hide-input"]
first, second = SOURCE.find(".transpose(1, 2)"), SOURCE.rfind(".transpose(1, 2)")
for place in (first, second):  # either without the other
    single = SOURCE[:place] + SOURCE[place + len(".transpose(1, 2)") :]
    assert {verdict(single, *trial) for trial in trials.values()} == {"stops"}

# %% [markdown]
# <!-- deeper: all parts and calls in one table -->
# ### Going deeper: all parts and calls in one table
#
# Red is where the output is right although a part is missing. One column has no red: the last.

# %% tags=["hide-input"]
told = {name: [row[2**j] for row in heard.values()] for j, name in enumerate(WHEELS)}
told_apart(told, [*heard], missed="unnoticed", corner="without")

# %% [markdown]
# <!-- /deeper -->
#
# Without a mask, nobody misses half of the parts. With padding, the missing transposes stop the call, because its
# mask no longer fits the scores. The second fill matters in a [fully masked
# row](06_masks.ipynb#cell-id=fully-masked-rows) alone, and only the last call has one. And *differs* need not look
# worse: without the root, *it* answers more clearly in these two sentences, and on them you would keep the change.
# Among many random keys of a wide head, one then [takes nearly
# everything](01_one_head.ipynb#cell-id=deeper-why-divide-by-the-root).
#
# The mask's axis is meaner. Axes are aligned from the right, so without `[:, None]` the samples of `(b, n, m)`
# stand where the heads of `(b, h, n, m)` are. Number the masks of two sentences 1 and 2. Which does each head get?

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
# Head 1 takes the mask of sentence 1 in both sentences, head 2 that of sentence 2, and nothing complains: there
# are as many sentences as heads. With 3 samples and 4 heads it stops.


# %% tags=["proof"]
def draw_trial(b: int, n: int, m: int, h: int, d: int) -> tuple:
    """Draw a class, and a call on it that has one empty sample."""
    blocked = torch.rand(b, n, m) < 0.5  # (b, n, m)
    blocked[0] = True
    keys = torch.randn(2, b, m, h * d)  # (2, b, m, h * d)
    return PlainAttention(h * d, h), (torch.randn(b, n, h * d), *keys, blocked)


rootless = build(without(2), attention)(x, x, x)[0][:, it]  # (2, 4)
yes, no = torch.tensor([[0, 1], [1, 0]])                    # of thirsty and sweet, (2,)
of_whole = output[:, it]
for row, says in enumerate(rootless):
    assert says[yes[row]] > of_whole[row, yes[row]]
    assert says[no[row]] < of_whole[row, no[row]]
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
# So here is a call that notices when any of the six is missing, alone or together with others: **several samples,
# sizes that all differ and none of which is 1, values other than the keys, a mask that differs from query to query,
# and one sample empty.** (PyTorch's class itself gives NaN for that sample with its defaults. Compare with
# `need_weights=False`, in training.)
#
# Six parts are not every mistake. Can you break a line so that this call does *not* notice?
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
theirs = nn.MultiheadAttention(24, 4, batch_first=True)
given = {"attn_mask": emptied.repeat_interleave(4, 0)}
assert theirs(query, key, value, **given)[0][2].isnan().all()
assert theirs(query, key, value, need_weights=False, **given)[0].isfinite().all()
print("✓ The call notices two of the five; padding alone, with keys for values, none.")

# %% [markdown] name="write-it-yourself"
# ## Write it yourself
#
# *Medium, 10 minutes.* Without looking back, write `split`, `merge` and `forward`, one step a line. By heart it goes
# **three in, four across, two out**. In from `(b, n, e)` to the heads, `(b, h, n, d)`: ask, offer, bring. Across on
# the table of scores, `(b, h, n, m)`: compare, cover, share, cover. Out to `(b, n, e)`: collect, write.
#
# The check holds output, weights and gradients beside those of a right class, by the call that you have just read
# and by one without a mask.


# %% tags=["exercise"]
class MyAttention(nn.Module):
    """Multi-head attention; where `blocked` is True, a query does not see a key."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.w_q = nn.Linear(embed_dim, embed_dim)
        self.w_k = nn.Linear(embed_dim, embed_dim)
        self.w_v = nn.Linear(embed_dim, embed_dim)
        self.w_o = nn.Linear(embed_dim, embed_dim)

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
# Without a mask, leave out both fills. With one, give it an axis for the heads.
#
# </details>


# %% tags=["solution"]
class MyAttention(nn.Module):
    """Multi-head attention; where `blocked` is True, a query does not see a key."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.w_q = nn.Linear(embed_dim, embed_dim)
        self.w_k = nn.Linear(embed_dim, embed_dim)
        self.w_v = nn.Linear(embed_dim, embed_dim)
        self.w_o = nn.Linear(embed_dim, embed_dim)

    def split(self, x):
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (b, h, ..., d)

    def merge(self, x):
        return x.transpose(1, 2).flatten(2)  # (b, n, h * d)

    def forward(self, query, key, value, blocked=None):
        q = self.split(self.w_q(query))            # ask: (b, h, n, d)
        k = self.split(self.w_k(key))              # offer: (b, h, m, d)
        v = self.split(self.w_v(value))            # bring: (b, h, m, d)
        scores = q @ k.mT / math.sqrt(q.size(-1))  # compare: (b, h, n, m)
        if blocked is not None:
            scores = scores.masked_fill(blocked[:, None], -math.inf)  # cover
        weights = scores.softmax(-1)  # share: (b, h, n, m)
        if blocked is not None:
            weights = weights.masked_fill(blocked[:, None], 0)  # cover
        merged = self.merge(weights @ v)  # collect: (b, n, h * d)
        return self.w_o(merged), weights  # write: (b, n, e), (b, h, n, m)


exercises.multihead_attention.check_attention.folded(MyAttention)

# %% [markdown]
# To check a class in a file of your own, take two functions along from [the short
# path](short_path.ipynb#cell-id=compared-with-pytorch): `lend` gives PyTorch's class the numbers of yours, and `compare`
# holds the two side by side. They need nothing but PyTorch. [From memory](19_from_memory.ipynb) asks you to write the
# class again, against the clock.

# %% tags=["proof"]
compare = chapters.load("short_path").compare
for kind in (MyAttention, PlainAttention):
    compare(kind)
assert display.source(chapters.load("short_path").PlainAttention).text == SOURCE
refused = 0
for part in WHEELS.values():
    without_it = {"nn": nn, "math": math, "torch": torch}
    exec(SOURCE.replace(part, ""), without_it)
    try:
        compare(without_it["PlainAttention"])
    except (AssertionError, RuntimeError):
        refused += 1
assert refused == len(WHEELS)
print(
    "✓ `compare` passes both classes, and none from which one of the six parts is missing."
)

# %% [markdown]
# This is the end of Part I. It began with a pencil and a question: what does *it* mean? Now 18 lines answer in one
# call. You can say what each of them is for, and show that the watch keeps time with PyTorch's.
#
# One thing no comparison shows. Inside PyTorch's own layer, a `forward` that you changed in a subclass of its class
# may [never run](#cell-id=in-pytorchs-place), so count its calls.

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
# Follow the class: split, then the mask with an axis for the heads and one for the queries. The
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
# ### A score of your own
#
# *Medium, 15 minutes.* In the package's class the score is a method, `score(q, k)`, from `(b, h, n, d)` and `(b, h, m,
# d)` to `(b, h, n, m)`. Let near words count more: take $s \cdot |i - j|$ off the score of query i and key j, as
# ALiBi does [[Press et al.](../docs/references.md#press-2022)]. Each head has a slope $s$ of its own, which is not
# learned: with h heads, a power of two, $2^{-8/h}$ for the first, $2^{-16/h}$ for the second, and $2^{-8}$ for the last.
#
# With a pencil first: two keys fit a query equally well, one stands beside it, the other four places further. In a
# head whose slope is 1/4, how much weight has the far key for each 1.00 of the near one? Then
# override `score`.


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
# *Medium, 10 minutes.* Write a function that takes any `nn.MultiheadAttention` and returns a module of the package's
# class with the same parameters and settings, which no checkpoint holds.
# The function below copies the parameters of a module that has default settings. What else does the new module
# have to know?


# %% tags=["exercise"]
def take_over(theirs: nn.MultiheadAttention) -> MultiheadAttention:
    """Make the package's module from PyTorch's."""
    ours = MultiheadAttention(theirs.embed_dim, theirs.num_heads)  # and what else?
    ours.load_state_dict(theirs.state_dict())
    return ours


# %%
exercises.multihead_attention.check_take_over(take_over)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Look at the arguments of `__init__`, and for each setting ask: would loading fail if this setting
# were wrong? If not, the setting is a dangerous one. PyTorch's module keeps most settings under their own names: `theirs.batch_first`, for example. It
# keeps no setting named `bias`: check whether `in_proj_bias` is None. Do the same with `bias_k`.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Two things are easily missed: the dtype, which the module does not keep (look at a parameter), and
# whether the module is training, `theirs.training`.
#
# </details>


# %% tags=["solution"]
def take_over(theirs: nn.MultiheadAttention) -> MultiheadAttention:
    """Make the package's module from PyTorch's."""
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
# ## If you swap the class
#
# This part is for you if your class is to take the place of PyTorch's, or the other way round. First the layer that would
# hold it, then a list of what to look at.

# %% [markdown] name="in-pytorchs-place"
# <!-- deeper: inside PyTorch's own layer -->
# ### Going deeper: inside PyTorch's own layer
#
# A watch needs a case, and PyTorch has one, `nn.TransformerEncoderLayer`: attention by its own class,
# `nn.MultiheadAttention`, followed by steps that the [next chapter](08_transformer_layers.ipynb) explains. Suppose
# you have a better `forward`. You write a subclass of PyTorch's class that overrides it, and put it into a stack of
# two such layers. How often does it run in one call: in training, and in evaluation, with gradients and without?
#
# <details><summary>What do you expect?</summary>
#
# In training, twice. In evaluation without gradients, never: the layer finds all that its shortcut asks for, multiplies
# by the matrices that your class inherited, and hands out PyTorch's result.
#
# </details>


# %% tags=["fold-input"]
def noting(kind, ran):
    """Make a subclass that notes each call of its forward in a list."""

    class Noting(kind):
        def forward(self, *given, **options):
            ran.append(kind)
            return super().forward(*given, **options)

    return Noting


def count_runs(attention, ran, texts, both):
    """Count how often its forward runs in a stack of two layers, in three modes."""
    layer, counts = nn.TransformerEncoderLayer(24, 4, 30, dropout=0, batch_first=True), []
    layer.double().self_attn = attention
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    for training, graded in ((True, True), (False, True), (False, False)):
        ran.clear()
        with torch.set_grad_enabled(graded):
            encoder.train(training)(texts, *both)
        counts.append(len(ran))
    return counts


# %% tags=["fold-input"]
future = torch.ones(5, 5, dtype=torch.bool).triu(1)                     # (n, m)
padding = torch.arange(5) >= torch.tensor([[5], [3], [0]])              # (b, m)
texts = torch.randn(3, 5, 24, dtype=torch.float64, requires_grad=True)  # (b, n, e)
pairs = {"no mask": (), "future": (future,), "padding": (None, padding)}
pairs["both"] = future, padding

ran: list[type] = []
inherited = noting(nn.MultiheadAttention, ran)(24, 4, batch_first=True).double()
runs = {"your subclass of PyTorch's": count_runs(inherited, ran, texts, pairs["both"])}
modes = "training", "evaluation", "and no gradients"
display.show(dict(zip(modes, zip(*runs.values()))), columns=[*runs], corner="runs, of 2")

# %% [markdown] name="what-pytorchs-layer-asks-for"
# None of two, in the last row, which is where a model is put to use. There a layer with `batch_first=True`, an even
# number of heads and otherwise default settings takes a shortcut, its **fast path**, and skips your `forward`.
# Whatever you changed in it, the answers are PyTorch's, in the right shape. The hands move, and your wheels stand
# still.
#
# So do not inherit: put in the class that you wrote. (If you skipped the exercise, run its solution.) `fit`, folded here,
# gives it the numbers of PyTorch's class, makes one mask of the two that the layer passes, and refuses what your class
# cannot do, such as dropout. Two more lines keep you off the fast path, which is for classes that keep the numbers of
# $W_Q$, $W_K$ and $W_V$ packed into one tensor. The first line says so of the biases, which a layer asks for when it is
# called; the second of the matrices, which a stack of layers asks about when it is built. Yours are not packed:


# %% tags=["fold-input"]
def read_masks(
    query, key, key_padding_mask=None, attn_mask=None, need_weights=False, is_causal=False
):
    """Make one mask of those that the layer gives; True is blocked."""
    added = query.new_zeros(len(query), query.size(1), key.size(1))  # (b, n, m)
    if key_padding_mask is not None:
        added += key_padding_mask[:, None]
    if attn_mask is not None:
        added += attn_mask  # an error where it has an axis for the heads
    blocked = added == -math.inf  # (b, n, m)
    if added[~blocked].any() or need_weights or (is_causal and attn_mask is None):
        raise ValueError(
            "masks hold 0 or -inf alone, is_causal has one, weights are by head"
        )
    return blocked


def copy_numbers(theirs, ours):
    """Put the numbers of PyTorch's class into a class like this chapter's."""
    usual = theirs.batch_first and theirs.in_proj_weight is not None
    appends = theirs.add_zero_attn or theirs.bias_k is not None
    if not usual or theirs.in_proj_bias is None or theirs.dropout or appends:
        raise ValueError(
            "no dropout, appended keys or other widths; biases, the batch first"
        )
    weights, biases = theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3)
    for linear, weight, bias in zip((ours.w_q, ours.w_k, ours.w_v), weights, biases):
        linear.weight.data, linear.bias.data = weight.detach(), bias.detach()
    ours.w_o = theirs.out_proj
    return ours


# %% tags=["fold-input"]
def fit(theirs, kind):
    """Make a class that answers the layer's call, with the numbers of PyTorch's."""

    class Fitted(kind):
        batch_first = True

        def forward(self, query, key, value, **given):
            return super().forward(query, key, value, read_masks(query, key, **given))

    return copy_numbers(theirs, Fitted(theirs.embed_dim, theirs.num_heads))


def ask(layer, texts, pairs):
    """Give the output under each pair of masks, and its gradient."""
    outputs = {name: layer(texts, *pair) for name, pair in pairs.items()}
    return {name: (y, *one.gradients(y, [texts])) for name, y in outputs.items()}


def equal(found, right):
    """Say for each pair of masks whether the output is the same, and the gradient."""
    return {name: [*map(torch.allclose, found[name], right[name])] for name in right}


# %%
theirs = nn.MultiheadAttention(24, 4, batch_first=True).double()
mine = fit(theirs, noting(MyAttention, ran))
mine.in_proj_bias = None
mine._qkv_same_embed_dim = False

# %% tags=["hide-input"]
of_package = noting(MultiheadAttention, ran)(24, 4, batch_first=True).double()
made = {"yours": mine, "a subclass of the package's": of_package}
run = {name: count_runs(each, ran, texts, pairs["both"]) for name, each in made.items()}
display.show(dict(zip(modes, zip(*run.values()))), columns=[*run], corner="runs, of 2")

# %% [markdown]
# Two of two, in every row, and output and gradient are those of PyTorch's class, as the next fold shows. You can spare
# yourself `fit` and the two lines: start from the package's class, `from annotated_attention import
# MultiheadAttention`. It has PyTorch's names and layouts and takes PyTorch's checkpoint ([line by
# line](../docs/package/line-by-line.md)), and what you override in a subclass of it runs in every row, too.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# <!-- deeper: is it the same, and what without the two lines? -->
# ### Going deeper: is it the same, and what without the two lines?
#
# Ask a layer and a stack of PyTorch's, with `texts` of three samples, under the four pairs of masks above: none, the future,
# the padding, both. Then put your class into the layer.

# %%
layer = nn.TransformerEncoderLayer(24, 4, 30, dropout=0, batch_first=True).double()
stack = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)  # two copies, for later
before, before_in_stack = ask(layer, texts, pairs), ask(stack, texts, pairs)
layer.self_attn = fit(layer.self_attn, MyAttention)

# %% tags=["proof"]
assert all(itertools.chain(*equal(ask(layer, texts, pairs), before).values()))
print("✓ In training, the same: output and gradient, under four pairs of masks.")

# %% [markdown]
# Your lines run inside PyTorch. The two above are still missing. Switch the layer to evaluation:

# %% tags=["hide-input"]
try:
    layer.eval()(texts)
except AttributeError as error:
    print(error)

# %% [markdown]
# It stops before your class is called, since it looks for `in_proj_bias`. None means *no biases*, and then there is no fast
# path.

# %%
layer.self_attn.in_proj_bias = None
layer.self_attn._qkv_same_embed_dim = False
encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

# %% tags=["proof"]
assert [*runs.values(), *run.values()] == [[2, 2, 0], [2, 2, 2], [2, 2, 2]]
odd = noting(nn.MultiheadAttention, ran)(24, 3, batch_first=True).double()
assert count_runs(odd, ran, texts, pairs["both"]) == [2, 2, 2]  # no fast path
assert all(itertools.chain(*equal(ask(encoder, texts, pairs), before_in_stack).values()))
assert all(itertools.chain(*equal(ask(layer, texts, pairs), before).values()))
with torch.no_grad():
    for name, pair in pairs.items():
        torch.testing.assert_close(layer(texts, *pair), before[name][0])
print("✓ In evaluation, the same again: in the layer and in the stack, with every mask.")

# %% tags=["hide-input"]
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

# %% tags=["proof"]
number = (future * 1.0).masked_fill(future, -math.inf).double()  # (5, 5)
for unread in (
    {"key_padding_mask": padding[1:2]},  # Booleans: the layer makes numbers of them
    {"attn_mask": future * -1e9},
    {"is_causal": True},
    {"need_weights": True},
    {"average_attn_weights": True},
    {"attn_mask": number.repeat(4, 1, 1)},
):
    alone = texts[:1]  # (1, 5, 24), one sample and four heads
    try:
        refused = not layer.self_attn(alone, alone, alone, **unread)
    except (ValueError, RuntimeError, TypeError):
        refused = True
    assert refused, unread
settings = {"dropout": 0.1, "add_bias_kv": True, "add_zero_attn": True, "kdim": 7}
for name, value in {**settings, "batch_first": False, "bias": False}.items():
    asked = {"batch_first": True, name: value}
    try:
        refused = not fit(nn.MultiheadAttention(24, 4, **asked), PlainAttention)
    except ValueError:
        refused = True
    assert refused, asked
print("✓ A call with other keys and values agrees, too; what yours cannot do, it refuses.")

# %% tags=["proof"]
from torch.func import functional_call

layer = nn.TransformerEncoderLayer(24, 4, 30, dropout=0, batch_first=True).double()
expected, checkpoint = layer(texts), layer.state_dict()
for batch_first in (True, False):  # a checkpoint loads into both
    layer.self_attn = MultiheadAttention(
        24, 4, batch_first=batch_first, dtype=torch.float64
    )
    layer.load_state_dict(checkpoint)
    assert layer(texts).shape == expected.shape
    assert torch.allclose(layer(texts), expected) == batch_first
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
print(f"✓ The package's class and this one agree, in {len(inputs)} gradients, too.")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="before-you-swap"
# ## What bites silently
#
# > **Before you swap.** Three things need not raise an error when one class takes the place of another. *Yours* is the
# > class of this chapter.
# >
# > - *Words as `(b, n, e)`*: write `batch_first=True`. The default is `(n, b, e)`: the checkpoint loads, the shapes are
# >   right, and words [talk through the walls](05_batches.ipynb#cell-id=what-equal-sizes-hide).
# > - *A mask in which True is allowed*: write `~mask`. True is *blocked* in PyTorch's class, the package's and yours;
# >   `F.scaled_dot_product_attention` has it the other way round.
# > - *A causal mask, `future`, `(n, m)`*: write `attn_mask=future`, and for yours `future[None]`. Yours takes the rows of a
# >   bare `future` for heads: where n = h, all queries of head i get row i, and nothing complains. Other n > 1 stop.
# >   (`is_causal=True` does not replace the mask: to PyTorch's class it is a hint.)

# %% [markdown]
# <!-- deeper: the flag is_causal -->
# ### Going deeper: the flag is_causal
#
# A flag of PyTorch's class, `is_causal=True`, promises to hide the future. Change the last word, and see whether PyTorch's class lets the
# first one notice. Alone the flag stops the call or hides nothing, for it wants masks beside it. In the last two rows it
# gets one, then two, which block nothing themselves:


# %% tags=["fold-input"]
def sees_the_future(module, **asked):
    """Say whether the first word's output reacts to the last word."""
    y = torch.randn(2, 4, 24)  # (b, n, e)
    other = torch.cat([y[:, :3], torch.randn(2, 1, 24)], 1)
    try:
        first, second = (module(z, z, z, **asked)[0][:, 0] for z in (y, other))
    except RuntimeError:
        return "error"
    return "no" if torch.allclose(first, second) else "yes"


def in_all(fast, need_weights, **asked):
    """Say it for PyTorch's class, in all modes that take the fast path, or that do not."""
    slow = (True, True), (False, True), (True, False)  # training, with gradients
    said = set()
    for training, graded in [(False, False)] if fast else slow:
        of_torch = nn.MultiheadAttention(24, 4, batch_first=True).train(training)
        with torch.set_grad_enabled(graded):
            said.add(sees_the_future(of_torch, need_weights=need_weights, **asked))
    (answer,) = said
    return answer


# %% tags=["hide-input"]
ahead, free = masks.block_future(4), torch.zeros(4, 4).bool()  # (n, m)
flag = {"is_causal": True}
calls = {
    "attn_mask=future": {"attn_mask": ahead},
    "is_causal=True": flag,
    "… and attn_mask": flag | {"attn_mask": free},
    "… and both masks": flag
    | {"attn_mask": free, "key_padding_mask": torch.zeros(2, 4).bool()},
}
ways = {"default": (False, True), "need_weights=False": (False, False)}
ways["fast path"] = True, False
noticed = {
    call: [in_all(*way, **asked) for way in ways.values()] for call, asked in calls.items()
}
title = f"PyTorch {torch.__version__.split('+')[0]}"
display.show(
    noticed, columns=[*ways], corner="leaks the future?", decimals="<", title=title
)

# %% tags=["proof"]
assert [*noticed.values()] == [
    ["no", "no", "no"],
    ["error", "error", "yes"],
    ["yes", "no", "yes"],
    ["yes", "yes", "yes"],
]
for call, asked in calls.items():  # on the fast path, with weights and without
    assert in_all(True, True, **asked) == noticed[call][-1]
print("✓ Each cell in training and in evaluation, and the last with weights and without.")

# %% [markdown]
# Only the mask itself never leaks. The flag is a hint about the mask that you give, not a mask. So write
# `attn_mask=future`.

# %% tags=["hide-input"]
theirs = nn.MultiheadAttention(24, 4, batch_first=True, dtype=torch.float64)
y = torch.randn(2, 4, 24, dtype=torch.float64)  # (2, 4, 24), as many words as heads
leak = [small(y, y, y, each)[1][..., ahead].any() for each in (ahead[None], ahead)]
assert leak == [False, True]
final.load_state_dict(theirs.state_dict())
alone = final(y, y, y, is_causal=True)[0]  # (2, 4, 24)
for each in (theirs, final):
    torch.testing.assert_close(alone, each(y, y, y, attn_mask=ahead)[0])
flagged = {"attn_mask": free, "is_causal": True}
torch.testing.assert_close(theirs(y, y, y, **flagged, need_weights=False)[0], alone)
torch.testing.assert_close(theirs(y, y, y, **flagged)[0], theirs(y, y, y)[0])
bare = F.scaled_dot_product_attention(y, y, y, attn_mask=~ahead)  # (2, 4, 24)
torch.testing.assert_close(bare, F.scaled_dot_product_attention(y, y, y, is_causal=True))

# %% tags=["hide-input"]
for n in range(1, 7):  # queries, under a bare mask
    try:
        stopped = not small(torch.ones(2, n, 24).double(), y, y, torch.zeros(n, 4).bool())
    except RuntimeError:
        stopped = True
    assert stopped == (n not in (1, 4)), n

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="dropout"
# To look at the weights, call `.eval()`, and ask for `average_attn_weights=False`, or you get their mean over the heads.
# In training, **dropout** sets each to zero with probability p and divides the others by 1 − p, so that a row adds up to
# one only on average.

# %% tags=["proof"]
for kind in (nn.MultiheadAttention, MultiheadAttention):
    dropping = kind(24, 4, dropout=0.5, batch_first=True, dtype=torch.float64)
    sums = dropping(y, y, y)[1].sum(-1)  # (2, 4)
    assert not sums.allclose(torch.ones_like(sums))
    again = dropping.eval()(y, y, y)[1].sum(-1)  # (2, 4)
    assert again.allclose(torch.ones_like(again))
print("✓ With dropout, some rows add up to another sum in training; in evaluation, none.")

# %% [markdown]
# ## What you have now
#
# > **In short.** $\mathrm{MultiHead}(Q, K, V) = \mathrm{Concat}(\mathrm{head}_1, \ldots,
# > \mathrm{head}_h)\, W_O$, where $\mathrm{head}_i$ is
# > $\mathrm{Attention}(Q W_Q^i, K W_K^i, V W_V^i)$. Here Q, K and V are what goes into the class, before its matrices.
# >
# > Hold your class beside another one: several samples, one of them empty, sizes that all differ and none of which
# > is 1, three different inputs, a mask that differs from query to query; gradients, too. A `state_dict` knows no
# > settings: compare `batch_first` and `dropout` by eye. And count that your `forward` runs.
#
# Attention collects, and that is all. The word *it* now holds two numbers that say what is meant, and
# nobody has used them yet. [The next chapter](08_transformer_layers.ipynb) builds the case: a layer in
# which each word works on what it has collected, so that the next layer can ask a better question.
