# %% [markdown]
# # Multi-head attention
#
# *Put together, does it run, and would you notice if it did not?*
#
# *11 minutes and 10 of exercises. Afterwards you can write the whole class, and show that it is right.*
#
# > the cat drank milk because **it** was thirsty
#
# Two classes are asked the question of the first page: what does *it* mean? One of them has lost a part
# of one line.

# %% tags=["fold-input"]
import math

import torch
from torch import Tensor, nn

from annotated_attention import MultiheadAttention, masks
from annotated_book import chapters, display, exercises
from annotated_book.display.live_figures.wheels import wheels
from annotated_book.display.tales import Told
from annotated_book.display.verdicts import told_apart

# What other chapters define.
one = chapters.load("01_one_head")  # the words and their features, `attend`, `embed`
two = chapters.load("02_two_heads")  # the animal head and the food head
it = one.WORDS.index("it")

# %% tags=["hide-input"]
answers = {}
for name, factor in {"class A": 1, "class B": math.sqrt(2)}.items():
    asks = one.EMBEDDINGS * factor
    heads = [
        one.attend(asks @ w_q, one.EMBEDDINGS @ w_k, one.EMBEDDINGS @ w_v)[0]
        for w_q, w_k, w_v in two.HEADS
    ]
    answers[name] = (torch.cat(heads, 1) @ two.W_O)[it, :2]  # (2,)
display.show(answers, columns=one.FEATURES[:2])

# %% [markdown]
# The cat is thirsty, so animal is right. Which of the two would you hand in?
#
# <details><summary>What do you expect?</summary>
#
# B says it more clearly: more animal, less food.
#
# </details>
#
# B, the better-looking one, has lost its root: it does not divide its scores by √d. So this chapter does two things: it puts the
# class together, and it takes it apart again, to find out what makes such a loss show.
#
# ## The whole class
#
# Six chapters lie on the bench like the wheels of a watch: four matrices, two heads, a cut, a trick, a batch, a
# mask. Together they are 18 lines. In the margin stand the chapters in which you made them: `4 5` means that 4 made this
# line, and 5 gave it an axis for the batch.

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


# %% tags=["hide-input"]
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
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (b, h, n, d)

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
# Two things are new. Each matrix is an `nn.Linear`, which keeps it transposed and adds a bias. And the class adds the
# heads' axis to the mask: it takes `(b, n, m)`, and `blocked[:, None]` is `(b, 1, n, m)`. So padding, `(b, m)`, goes in as
# `padding[:, None]`, with one new axis less than in the last chapter, and the staircase, `(n, m)`, as `future[None]`. Without a mask, `zeros_like` makes one that blocks
# nothing.
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
# chapter. Follow the numbers of *it* from left to right, and press a step to see all of them. (Two rows of padding follow
# the cat sentence, so that there is something to mask. They see nothing, and need the second fill.)

# %% tags=["hide-input"]
display.whole_map()

# %% tags=["proof"]
for i, sentence in enumerate(x):
    torch.testing.assert_close(output[i], two.two_heads(sentence)[0])
print("✓ The same as the two heads, one after the other, one sentence after the other.")

# %% [markdown]
# ## Take a wheel out
#
# Take a wheel out of a watch, and it stops: you know at once. Is this class as kind? Below are ten of its lines, with
# six parts underlined. (The two transposes go together: with only one of them gone, every call stops.) Press a part to
# take it out, press several. Four calls compare what is left with the whole class:

# %% tags=["fold-input"]
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


# %% tags=["fold-input"]
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
special = {
    "no mask": "the call that you have just made",
    "padding": "the cat sentence and a shorter one",
    "other sizes": "values other than the keys, a mask that differs from query to query",
    "one empty": "the same, and in one sample nobody sees anything",
}
sized = {}
for name, (whole, (asks, offers, *_)) in trials.items():
    across = whole.num_heads, whole.w_q.in_features // whole.num_heads
    sized[name] = [*asks.shape[:2], offers.size(1), *across, special[name]]
display.show(sized, columns=[*"bnmhd", ""], corner="call", decimals="<")

# %% [markdown]
# A call can *stop* with an error; its output can *differ*, or hold *NaN*; or the part is *unnoticed*: it is gone, and the
# output is right. Take out the six, one after the other. How often does the first call stop?
#
# <details><summary>What do you expect?</summary>
#
# Not once. Whichever part is gone, the next line still gets a tensor that it can compute with.
#
# </details>

# %% tags=["hide-input"]
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
# Without a mask, half of the parts go unnoticed: those that work on it. With padding, the missing transposes stop the
# call, because its mask no longer fits the scores. The second fill matters in a [fully masked
# row](06_masks.ipynb#cell-id=fully-masked-rows) alone, and only the last call has one.
#
# And *differs* need not look worse: the class without the root is B, from the beginning. But the more numbers a head has,
# the larger are its scores, and with random numbers one key then [takes nearly
# everything](01_one_head.ipynb#cell-id=deeper-why-divide-by-the-root).
#
# The mask's axis is meaner. Axes are aligned from the right, so without `[:, None]` the samples of `(b, n, m)`
# stand where the heads of `(b, h, n, m)` are. With two sentences and two heads that fits: head 1 takes the mask of sentence
# 1 in both sentences, head 2 that of sentence 2, and nothing complains. With 3 samples and 4 heads it stops.


# %% tags=["proof"]
def draw_trial(b: int, n: int, m: int, h: int, d: int) -> tuple:
    """Draw a class, and a call on it that has one empty sample."""
    blocked = torch.rand(b, n, m) < 0.5  # (b, n, m)
    blocked[0] = True
    keys = torch.randn(2, b, m, h * d)  # (2, b, m, h * d)
    return PlainAttention(h * d, h), (torch.randn(b, n, h * d), *keys, blocked)


for name, text in {"class A": SOURCE, "class B": without(2)}.items():
    of_class = build(text, attention)(x, x, x)[0]  # (b, n, e)
    torch.testing.assert_close(of_class[0, it, :2], answers[name])
numbers = torch.tensor([1, 2])[:, None, None]  # of the sentences' masks, (b, 1, 1)
assert numbers.expand(2, 2, 1, 1).flatten().tolist() == [1, 2, 1, 2]  # by sentence and head
assert numbers[:, None].expand(2, 2, 1, 1).flatten().tolist() == [1, 1, 2, 2]
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
    f"✓ Six parts can go in 2⁶ − 1 = {len(sets) - 1} ways. The call without a mask"
    " stops at none; that with an empty sample shows each."
)

# %% [markdown]
# So here is a call that notices when any of the six is missing, alone or together with others: **several samples,
# sizes that all differ and none of which is 1, values other than the keys, a mask that differs from query to query,
# and one sample empty.** (Equal sizes fit in each other's place; an axis of 1 fits anywhere, and the root of 1 is 1.)
#
# Six parts are not every mistake. Can you break a line so that this call does *not* notice?
#
# <details><summary>What do you expect?</summary>
#
# You can, in at least three ways:
#
# - Take out the `raise`: this call's heads divide the width.
# - Take out `.bool()`: only a call without a mask comes past it.
# - Fill with $-10^9$ in the place of $-\infty$: its exponential is rounded to 0. Only a fully masked row becomes uniform,
#   and there the second fill covers the mistake.
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
given = {"attn_mask": emptied[..., :5].repeat_interleave(4, 0), "need_weights": False}
assert theirs(query, query, query, **given)[0].isfinite().all()
with torch.no_grad():
    assert theirs.eval()(query, query, query, **given)[0][2].isnan().all()
print("✓ The three in the list pass this call, the other two only one with padding alone.")

# %% [markdown] name="write-it-yourself"
# ## Write it yourself
#
# Does the watch come together on an empty bench?
#
# *Medium, 10 minutes.* Without looking back, write `split`, `merge` and `forward`: project, split, score, divide by the
# root, fill, softmax, fill, mix, merge, project.
#
# The check holds output, weights and gradients beside those of a right class, by the call that you have just read
# and by one without a mask.


# %% tags=["exercise"]
class MyAttention(nn.Module):
    """Multi-head attention; where `blocked` is True, a query does not see a key."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(f"{num_heads} heads do not divide {embed_dim}")
        self.num_heads = num_heads
        layers = (nn.Linear(embed_dim, embed_dim) for _ in range(4))
        self.w_q, self.w_k, self.w_v, self.w_o = layers

    def split(self, x): ...  # (b, n, e) -> (b, h, n, d)

    def merge(self, x): ...  # (b, h, n, d) -> (b, n, e)

    def forward(self, query, key, value, blocked=None): ...  # (b, n, e), (b, h, n, m)


# %%
exercises.multihead_attention.check_attention(MyAttention)

# %% [markdown]
# <details><summary>Hint</summary>
#
# Without a mask, make one that blocks nothing, or leave out both fills. With one, give it an axis for the heads.
#
# </details>


# %% tags=["solution"]
class MyAttention(nn.Module):
    """Multi-head attention; where `blocked` is True, a query does not see a key."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(f"{num_heads} heads do not divide {embed_dim}")
        self.num_heads = num_heads
        layers = (nn.Linear(embed_dim, embed_dim) for _ in range(4))
        self.w_q, self.w_k, self.w_v, self.w_o = layers

    def split(self, x):
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (b, h, n, d)

    def merge(self, x):
        return x.transpose(1, 2).flatten(2)  # (b, n, h * d)

    def forward(self, query, key, value, blocked=None):
        q = self.split(self.w_q(query))            # (b, h, n, d)
        k = self.split(self.w_k(key))              # (b, h, m, d)
        v = self.split(self.w_v(value))            # (b, h, m, d)
        scores = q @ k.mT / math.sqrt(q.size(-1))  # score: (b, h, n, m)
        blocked = torch.zeros_like(scores).bool() if blocked is None else blocked[:, None]
        weights = scores.masked_fill(blocked, -math.inf).softmax(-1).masked_fill(blocked, 0)
        merged = self.merge(weights @ v)  # mix and merge: (b, n, h * d)
        return self.w_o(merged), weights  # project out: (b, n, e), (b, h, n, m)


exercises.multihead_attention.check_attention.folded(MyAttention)

# %% [markdown]
# <!-- deeper: check a class in a file of your own -->
# ### Going deeper: check a class in a file of your own
#
# `lend` gives PyTorch's class the numbers of yours, and `compare` holds the two side by side. They are those of [the short
# path](short_path.ipynb#cell-id=compared-with-pytorch), and need nothing but `import torch` and `from torch import nn`.
# For the empty sample PyTorch's class gives NaN, unless you call it with `need_weights=False`; and in evaluation without
# gradients its fast path for self-attention gives NaN even then.

# %% tags=["hide-input"]
short = chapters.load("short_path")
display.source(short.lend)

# %% tags=["hide-input"]
display.source(short.compare)

# %% [markdown]
# <!-- /deeper -->

# %% tags=["hide-input"]
for kind in (MyAttention, PlainAttention):
    short.compare(kind)
assert display.source(short.PlainAttention).text == SOURCE
refused = 0
for part in WHEELS.values():
    without_it = {"nn": nn, "math": math, "torch": torch}
    exec(SOURCE.replace(part, ""), without_it)
    try:
        short.compare(without_it["PlainAttention"])
    except (AssertionError, RuntimeError):
        refused += 1
assert refused == len(WHEELS)

# %% [markdown] name="in-the-storyteller"
# ## The cat, or the milk
#
# With a class of yours that passes, Part I could end. But the two heads that answered so far were made by hand, to
# give this answer. Would your class do for a model that nobody made by hand?
#
# The book brings one, a **storyteller**: two layers of two heads, which have learned to tell stories word by word. Take
# the attention out of both its layers, put yours in with the same numbers, and ask what comes next.


# %% tags=["fold-input"]
class Inside(nn.Module):
    """A class of this page in the place of a trained attention, with its numbers."""

    def __init__(self, kind, theirs):
        super().__init__()
        self.own = kind(theirs.embed_dim, theirs.num_heads)
        weights, biases = theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3)
        layers = (self.own.w_q, self.own.w_k, self.own.w_v)
        for layer, weight, bias in zip(layers, weights, biases):
            layer.weight.data, layer.bias.data = weight.detach(), bias.detach()
        self.own.w_o = theirs.out_proj

    def forward(self, query, key, value, **given):
        future = torch.ones(query.size(1), key.size(1)).triu(1).bool()  # (n, m)
        return self.own(query, key, value, future[None])


def next_words(model, texts):
    """Give the likeliest word after each text."""
    world = chapters.load("10_a_little_world")  # what that chapter defines
    logits = model(world.as_ids([f"/ {text}".split() for text in texts]))  # (b, n, v)
    return [world.WORDS[i] for i in logits[:, -1].argmax(-1)]


# %%
def attending(kind):
    """Load the storyteller, and let it attend with another class."""
    model = chapters.load("10_a_little_world").shipped()  # trained
    for layer in model.layers.layers:
        layer.self_attn = Inside(kind, layer.self_attn)
    return model


TWINS = [
    f"the cat drank milk because it was {word} . so the" for word in ("thirsty", "sweet")
]
for text, word in zip(TWINS, next_words(attending(MyAttention), TWINS)):
    print(text, word.upper())

# %% [markdown]
# It speaks. In the stories that it has learned from, no cat drinks milk; the two sentences are new to it.
#
# Now break one line of the class, and leave the model's numbers alone: no root, a [wrong
# merge](04_reshape_trick.ipynb#cell-id=two-mistakes-that-keep-every-shape), a mask that is lost on the way. Ask 192 such
# questions, and let it tell 200 stories. Which of the three gets the question of the first page wrong?
#
# <details><summary>What do you expect?</summary>
#
# Only the wrong merge: the cat, both times. The other two answer both sentences rightly, and give themselves away when
# they write.
#
# </details>

# %% tags=["hide-input"]
SLIPS = {
    "the whole class": ("", ""),
    "no root": ("q @ k.mT / math.sqrt(q.size(-1))", "q @ k.mT"),
    "wrong merge": ("x.transpose(1, 2).flatten(2)", "x.reshape(len(x), x.size(2), -1)"),
    "mask lost": (
        "torch.zeros_like(scores).bool() if blocked is None else blocked[:, None]",
        "torch.zeros_like(scores).bool()",
    ),
}


def slipped(name):
    """Give the class with one slip."""
    names = {"nn": nn, "math": math, "torch": torch}
    before, after = SLIPS[name]
    exec(SOURCE.replace(before, after) if before else SOURCE, names)
    return names["PlainAttention"]


# %% tags=["hide-input"]
def examine(name):
    """Ask a storyteller with one slip, and let it write."""
    world, model = chapters.load("10_a_little_world"), attending(slipped(name))
    meant = chapters.load("03_split_and_stack").questions(world)
    right = sum(map(str.__eq__, next_words(model, meant), meant.values()))
    told = world.write(model, 200)
    facts = [*next_words(model, TWINS), right, world.possible(told)]
    (tale,) = world.write(model, 1)
    before, after = SLIPS[name]
    written = [*facts[:2], f"{right} of {len(meant)}", f"{facts[3]:.0%} of {len(told)}"]
    return facts, Told(written, " ".join(tale).strip("/ ").split(), before, after)


examined = {name: examine(name) for name in SLIPS}
columns = ["thirsty", "sweet", "questions right", "stories possible"]
told = {name: shown for name, (_, shown) in examined.items()}
display.stories(told, columns, name="three-slips")

# %% [markdown]
# All four wrote with the same luck: the same draw decides each word. Red words differ from the first story. *Possible* is a
# story that could happen in the little world; sometimes the draw hits an unlikely word, so even the whole class tells some
# that could not.
#
# Without the root the questions tell you nothing: all 192 are right, and half of the stories are spoilt. With the wrong
# merge, 94 of 192 is what a coin would get. The lost mask still gets 185, and its story is the quietest: fluent, each word
# in its place, and the wrong animal runs.
#
# Why does a lost mask hurt at all, where the last word has nothing after it to hide? Because the words before it have.
# Each now sees what came later, which it never did in training, and the last word reads from them.

# %% tags=["proof"]
world, found = chapters.load("10_a_little_world"), {}
for name, (facts, _) in examined.items():
    found[name] = [*facts[2:], facts[:2] == ["cat", "milk"]]
assert found["the whole class"][0] == 192
for who, new in (("cat", True), ("dog", False)):
    tale = f"/ the {who} drank milk because it was thirsty . so the {who} felt better . /"
    assert world.possible([tale.split()]) != new
assert found["the whole class"][1] > 0.9
assert found["no root"][0] >= 190
assert 0.4 < found["no root"][1] < 0.56
assert examined["wrong merge"][0][:2] == ["cat", "cat"]
assert found["wrong merge"][1] < 0.1
assert found["mask lost"][0] > 170
assert 0.3 < found["mask lost"][1] < 0.65
assert [row[2] for row in found.values()] == [True, True, False, True]
with torch.no_grad():
    ids = world.TESTED[:100, :-1]
    before = world.shipped()(ids)  # (b, n, v)
    for kind in (MyAttention, PlainAttention):
        torch.testing.assert_close(attending(kind)(ids), before, rtol=1e-4, atol=1e-4)
print("✓ With your class the storyteller is what it was, up to rounding, on 100 stories.")

# %% [markdown]
# Part I began with a pencil and a question. You have made every line of the class that now answers *cat* and *milk*, and
# you know what the answer looks like when one of them is wrong: mostly like an answer.
#
# But the numbers that answered were not made by hand, and nobody ever told the storyteller what *it* means. Who taught
# it? That is the next part.

# %% [markdown]
# ## What you have now
#
# > **In short.** $\mathrm{MultiHead}(Q, K, V) = \mathrm{Concat}(\mathrm{head}_1, \ldots,
# > \mathrm{head}_h)\, W_O$, where $\mathrm{head}_i$ is
# > $\mathrm{Attention}(Q W_Q^i, K W_K^i, V W_V^i)$. Here Q, K and V are what goes into the class, before its matrices.
# >
# > Project and split, from `(b, n, e)` to `(b, h, n, d)`; score, divide by the root, fill, softmax, fill, `(b, h, n, m)`;
# > mix, merge, project, back to `(b, n, e)`.
# >
# > Hold your class beside another one: several samples, one of them empty, sizes that all differ and none of which
# > is 1, three different inputs, a mask that differs from query to query; gradients, too. And let the model write.
#
# Attention collects, and that is all. The word *it* now holds two numbers that say what is meant, and
# nobody has used them yet. [The next chapter](08_transformer_layers.ipynb) builds the case: a layer in
# which each word works on what it has collected, so that the next layer can ask a better question.

# %% [markdown] name="dropout"
# <!-- deeper: Before you swap -->
# ### Going deeper: Before you swap
#
# Is your class to take the place of PyTorch's, or the other way round? [Before you
# swap](../docs/package/before-you-swap.md) lists what raises no error then. And
# to look at weights, call `.eval()`, and ask PyTorch's class for `average_attn_weights=False`, or you get their mean
# over the heads. In training, its **dropout** sets each to zero with probability p and divides the others by 1 − p, so
# that a row adds up to one only on average.

# %% tags=["proof"]
y = torch.randn(2, 4, 24, dtype=torch.float64)  # (2, 4, 24)
for kind in (nn.MultiheadAttention, MultiheadAttention):
    dropping = kind(24, 4, dropout=0.5, batch_first=True, dtype=torch.float64)
    sums = dropping(y, y, y)[1].sum(-1)  # (2, 4)
    assert not sums.allclose(torch.ones_like(sums))
    again = dropping.eval()(y, y, y)[1].sum(-1)  # (2, 4)
    assert again.allclose(torch.ones_like(again))
print("✓ With dropout, some rows add up to another sum in training; in evaluation, none.")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## More exercises
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
#
# <details><summary>The pencil's answer</summary>
#
# $e^{-1} \approx 0.37$: four places further, at 1/4 a place, takes 1 off the score, and the softmax takes the exponential.
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

# %% tags=["hide-input"]
alike = torch.ones(1, 4, 6, 6)                                  # (1, 4, 6, 6)
shares = AlibiAttention(24, 4).score(alike, alike).softmax(-1)  # (1, 4, 6, 6)
torch.testing.assert_close(
    shares[0, 0, 0, 5] / shares[0, 0, 0, 1], torch.tensor(-1.0).exp()
)

# %% [markdown] name="what-a-state-dict-does-not-know"
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
