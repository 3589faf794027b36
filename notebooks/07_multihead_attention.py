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
from dataclasses import replace

import torch
from torch import Tensor, nn

from annotated_attention import MultiheadAttention, masks
from annotated_book import chapters, display, exercises
from annotated_book.display import computation
from annotated_book.display.live_figures.wheels import wheels
from annotated_book.display.tales import Told, stories
from annotated_book.display.verdicts import told_apart

torch.set_num_threads(1)  # the models are small, and more threads gain nothing

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
# <details name="hand-in"><summary>A.</summary>
#
# A is the whole one. Could you tell that from the table? Both say *animal*, and A says it less clearly.
#
# </details>
# <details name="hand-in"><summary>B: it says <i>animal</i> more clearly.</summary>
#
# It does, and it is B that has lost something.
#
# </details>
# <details name="hand-in"><summary>Either: both are right.</summary>
#
# Both are right about *this*. Now hear them both.
#
# </details>
#
# A small trained model, the **storyteller**, writes stories word by word. Here it writes one with class A as its
# attention, and then, with the same random draws, with class B:


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


# %% tags=["fold-input"]
class Inside(nn.Module):
    """A class of this page in the place of a trained attention, with its numbers."""

    batch_first, in_proj_bias = True, None  # PyTorch's layers ask for these

    def __init__(self, kind, theirs):
        super().__init__()
        self.own = kind(theirs.embed_dim, theirs.num_heads)
        weights, biases = theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3)
        layers = (self.own.w_q, self.own.w_k, self.own.w_v)
        for layer, weight, bias in zip(layers, weights, biases):
            layer.weight.data, layer.bias.data = weight.detach(), bias.detach()
        self.own.w_o = theirs.out_proj

    def forward(self, query, key, value, key_padding_mask=None, attn_mask=None, **given):
        shape = 1, query.size(1), key.size(1)  # one for all samples
        blocked = torch.full(shape, bool(given["is_causal"])).triu(1)  # (1, n, m)
        if key_padding_mask is not None:
            blocked = blocked | (key_padding_mask[:, None] == -math.inf)  # (b, n, m)
        if attn_mask is not None:
            blocked = blocked | (attn_mask == -math.inf)
        return self.own(query, key, value, blocked)


# %% tags=["fold-input"]
def attending(kind):
    """Load the storyteller, and let it attend with another class."""
    model = chapters.load("10_a_little_world").shipped()  # trained
    for layer in model.layers.layers:
        layer.self_attn = Inside(kind, layer.self_attn)
    return model


def compiled(text):
    """Give the class that a text defines."""
    names = {"nn": nn, "math": math, "torch": torch}
    exec(text, names)
    return names["PlainAttention"]


@torch.no_grad()
def next_words(model, texts):
    """Give the likeliest word after each text."""
    world = chapters.load("10_a_little_world")  # what that chapter defines
    logits = model(world.as_ids([f"/ {text}".split() for text in texts]))  # (b, n, v)
    return [world.WORDS[i] for i in logits[:, -1].argmax(-1)]


def hear(model):
    """Let a model write 200 stories; give their words, and the third without its edges."""
    written = chapters.load("10_a_little_world").write(model, 200)
    return written, " ".join(written[2]).strip("/ ").split()


# %% tags=["hide-input"]
SOURCE = display.source(PlainAttention).text
texts_of = {"class A": SOURCE, "class B": SOURCE.replace(" / math.sqrt(q.size(-1))", "")}
heard_of = {name: Told([], hear(attending(compiled(x)))[1]) for name, x in texts_of.items()}
stories(heard_of, [], name="a-and-b")

# %% [markdown]
# B answered more clearly, and now it loses the thread in the middle of a sentence. What has it lost? To find out, this
# chapter puts the class together, and then takes it apart again.
#
# ## The whole class
#
# Six chapters lie on the bench like the wheels of a watch: four matrices, two heads, a cut, a trick, a batch, a
# mask. Together they are 18 lines. In the margin stands the chapter in which you made each line; a second number is
# a chapter that added to it.

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

display.margin(PlainAttention, MADE_IN)

# %% [markdown] name="all-of-it-in-18-lines"
# Two things are new. Each matrix is an `nn.Linear`, which keeps it transposed and adds a bias. And the class adds the
# heads' axis to the mask: it takes `(b, n, m)`, so padding, `(b, m)`, goes in as `padding[:, None]`, and the staircase,
# `(n, m)`, as `future[None]`.
#
# ## One call
#
# Load the animal head and the food head of [Two heads](02_two_heads.ipynb), side by side, and ask what *it* means, in
# both sentences of the first page at once.

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
# One call, two answers. With *thirsty*, *it* receives 0.97 under animal and 0.19 under food: the cat is meant. With
# *sweet*, the other way round: the milk. Follow the numbers of *it* through the lines from left to right; press a step
# to see all of them.
#
# Behind the sentence the map has two dots of padding. Nobody sees a dot, since their columns are blocked. Their rows are
# blocked as well, so a dot sees nothing: NaN under *softmax*, and 0 after the second fill, under *mask again*.

# %% tags=["hide-input"]
display.whole_map()

# %% tags=["proof"]
for i, sentence in enumerate(x):
    torch.testing.assert_close(output[i], two.two_heads(sentence)[0])
dotted = nn.functional.pad(x[:1], (0, 0, 0, 2))  # (1, 10, 4)
dots = torch.arange(10)[None] >= 8               # (1, 10)
drawn = computation.computation()
for rows, sums in ((dots[:, :, None], 0.0), (torch.tensor(False), 1.0)):
    shares = attention(dotted, dotted, dotted, dots[:, None] | rows)[1]  # (1, 2, 10, 10)
    torch.testing.assert_close(shares[:, :, 8:].sum(-1), torch.full((1, 2, 2), sums))
    assert not shares[..., 8:].any()
    if not sums:
        torch.testing.assert_close(shares[0], drawn["mask again"]["weights"])
assert drawn["softmax"]["weights"][:, 8:].isnan().all()
print("✓ The same as the two heads, one after the other; and the map is under that mask.")

# %% [markdown] name="write-it-yourself"
# ## Write it yourself
#
# *Medium, 10 minutes.* Without looking back, write `split`, `merge` and `forward`: project, split, score, divide by the
# root, fill, softmax, fill, mix, merge, project.
#
# The check holds output, weights and gradients beside those of a right class, with a mask and without.


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

# %% [markdown] name="beside-pytorchs-class"
# ### Beside PyTorch's class
#
# Does your class compute what `nn.MultiheadAttention` does? That class keeps three of the four matrices in one,
# `in_proj_weight`. Give it your numbers:

# %%
mine, theirs = MyAttention(24, 4), nn.MultiheadAttention(24, 4, batch_first=True)
packed = (mine.w_q, mine.w_k, mine.w_v)
theirs.in_proj_weight.data = torch.cat([layer.weight for layer in packed])  # (3 * e, e)
theirs.in_proj_bias.data = torch.cat([layer.bias for layer in packed])
theirs.out_proj = mine.w_o

# %% [markdown]
# Now call both with the same words. Only the mask is written differently. Each row below was run as it stands there:

# %% tags=["hide-input"]
MASKS = {  # what is blocked, and how to say so: to yours, to PyTorch's
    "nothing": ("None", "attn_mask=None"),
    "padding, (b, m)": ("padding[:, None]", "key_padding_mask=padding"),
    "pairs of all samples, (n, m)": ("pairs[None]", "attn_mask=pairs"),
    "both": ("padding[:, None] | pairs", "key_padding_mask=padding, attn_mask=pairs"),
    "pairs of each sample, (b, n, m)": ("each", "attn_mask=each.repeat_interleave(h, 0)"),
}
query, blocked = torch.randn(3, 5, 24), torch.rand(3, 5, 7) < 0.4  # (b, n, e), (b, n, m)
key, value = torch.randn(2, 3, 7, 24)                              # (b, m, e)
blocked[..., 0] = False  # every query sees a key
of_keys = torch.arange(7) >= torch.tensor([[7], [4], [6]])  # (b, m)
given = {"padding": of_keys, "pairs": blocked[1], "each": blocked, "h": 4}


# %% tags=["hide-input"]
def agree(yours, pytorchs, classes, inputs, given):
    """Call both classes with the mask as a row of the table writes it; compare outputs."""
    mine, theirs = classes
    options = eval(f"dict({pytorchs})", dict(given))
    with torch.no_grad():
        found = mine(*inputs, eval(yours, dict(given)))[0], theirs(*inputs, **options)[0]
    return torch.allclose(*found, atol=1e-6)


inputs = (query, key, value)
ran = {
    name: (*both, agree(*both, (mine, theirs), inputs, given))
    for name, both in MASKS.items()
}
ways = ("to yours", "to PyTorch's", "same output")
display.show(ran, columns=ways, corner="blocked", decimals="<")

# %% [markdown]
# You have written what PyTorch's class computes. By default three more things differ: PyTorch's has the batch second,
# gives the mean of the heads' weights, and answers a fully masked row with NaN; yours has the batch first, gives each
# head's weights, and collects zeros. In the wrapper `Inside`, your class also runs in PyTorch's layer,
# `nn.TransformerEncoderLayer`.
#
# %% tags=["proof"]
assert all(row[-1] for row in ran.values())
_, by_head = mine(query, key, value, of_keys[:, None])
_, mean = theirs(query, key, value, key_padding_mask=of_keys)
torch.testing.assert_close(by_head.mean(1), mean)
assert not nn.MultiheadAttention(24, 4).batch_first
emptied = blocked | torch.tensor([False, False, True])[:, None, None]  # (b, n, m)
assert by_head.shape == (3, 4, 5, 7)
empty = emptied.repeat_interleave(4, 0)  # (b * h, n, m)
assert theirs(query, key, value, attn_mask=empty)[0][2].isnan().all()
torch.testing.assert_close(
    mine(query, key, value, emptied)[0][2], mine.w_o.bias.expand(5, 24)
)
short = chapters.load("short_path")
for kind in (MyAttention, PlainAttention):
    short.compare(kind)
print("✓ Each row is the same, and so is what differs; gradients are PyTorch's, too.")

# %% tags=["proof"]
staircase = torch.ones(7, 7).triu(1).bool()  # (7, 7)
for kind in (MyAttention, PlainAttention):
    layer = nn.TransformerEncoderLayer(24, 4, 30, dropout=0, batch_first=True)
    for masked in ((None, None), (staircase, None), (None, of_keys), (staircase, of_keys)):
        theirs_inside, layer.self_attn = layer.self_attn, Inside(kind, layer.self_attn)
        of_yours = layer(key, *masked)
        with torch.no_grad():
            torch.testing.assert_close(layer.eval()(key, *masked), of_yours)
        layer.self_attn = theirs_inside
        torch.testing.assert_close(of_yours, layer.train()(key, *masked))
print("✓ Inside PyTorch's layer: no mask, either or both; training and evaluation.")

# %% [markdown] name="in-the-storyteller"
# ## The cat, or the milk
#
# The heads in *One call* were made by hand, to give that answer. Nobody made those of the storyteller: two layers of two
# heads, which have learned from stories. Put your class into both layers, with the numbers of their attention, and ask
# what comes next:

# %%
TWINS = [
    f"the cat drank milk because it was {word} . so the" for word in ("thirsty", "sweet")
]
for text, word in zip(TWINS, next_words(attending(MyAttention), TWINS)):
    print(text, word.upper())

# %% [markdown]
# Your class speaks. In the stories that the model has learned from, no cat drinks milk: both sentences are new to it.
#
# ## Take a wheel out
#
# Take a wheel out of a watch, and it stops. Is this class as kind? Six of its parts are underlined below; the two
# transposes go together. Four calls compare what is left with the whole class: your first one, of *two sentences*; one
# *with padding*; one with *sizes that differ*, values other than the keys, and a mask of its own for each query; and the
# same with *one sample empty*, in which nobody sees anything. *Unnoticed* means: the part is gone, and the output is right.
#
# Which of the six stops the first call?
#
# <details name="stops"><summary>The softmax.</summary>
#
# Scores are numbers as well, and the product with the values takes them as they are. It runs.
#
# </details>
# <details name="stops"><summary>The two transposes.</summary>
#
# Without them each word's heads look at one another, and no word sees another word. All shapes fit, and it runs.
#
# </details>
# <details name="stops"><summary>None.</summary>
#
# Right. Whichever part is gone, the next line still gets a tensor that it can compute with.
#
# </details>
#
# Press a part to take it out, press several. Behind each line stands how many of the four calls notice when its part is
# gone. Below, the storyteller tells the story of the opening with what is left, red where it differs. It also answers 192
# questions such as your two, and writes 200 stories; *possible* are those that could happen in its little world. One part
# has a 1: which call is it?

# %% tags=["fold-input"]
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
    matrix = attention.w_q.weight
    module = compiled(text)(matrix.size(-1), attention.num_heads).to(matrix)
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
trials = {
    "two sentences": (attention, (x, x, x)),
    "with padding": (attention, (padded, padded, padded, padding[:, None])),
    "sizes that differ": (larger, (query, key, value, blocked)),
    "one sample empty": (larger, (query, key, value, emptied)),
}
sets = [without(places) for places in range(2 ** len(WHEELS))]
heard = {name: [verdict(text, *trial) for text in sets] for name, trial in trials.items()}


# %% tags=["fold-input"]
@torch.no_grad()
def answer(text, meant):
    """Give the storyteller's logits for questions, with the class that a text builds."""
    world = chapters.load("10_a_little_world")
    try:
        return attending(compiled(text))(
            world.as_ids([f"/ {each}".split() for each in meant])
        )
    except RuntimeError:
        return "stops"


def tell(text, logits, meant):
    """Count right answers and possible stories, and give one of these."""
    world, model = chapters.load("10_a_little_world"), attending(compiled(text))
    if isinstance(logits, str) or logits.isnan().any():
        return Told(["stops" if isinstance(logits, str) else "NaN"], [])
    words = [world.WORDS[i] for i in logits[:, -1].argmax(-1)]
    right = sum(map(str.__eq__, words, meant.values()))
    told, tale = hear(model)
    facts = [f"{right} of {len(words)}", f"{world.possible(told):.0%}"]
    return Told(facts, tale)


# %% tags=["hide-input"]
meant = chapters.load("03_split_and_stack").questions(chapters.load("10_a_little_world"))
known, tales = {}, []
for text in sets:
    logits = answer(text, meant)  # the same logits for all questions: the same model
    mark = logits if isinstance(logits, str) else logits.numpy().tobytes()
    if mark not in known:
        known[mark] = tell(text, logits, meant)
    tales.append(known[mark])
said = "The storyteller: {} questions right, {} of 200 stories possible".format
shown = [
    replace(x, facts=[said(*x.facts) if x.words else f"The storyteller: {x.facts[0]}"])
    for x in tales
]
lines = [line.split("  #")[0] for line in SOURCE.splitlines() if line.strip()]
start = next(i for i, line in enumerate(lines) if "def split" in line)
found_by = {
    name: sum(x[2**j] != "unnoticed" for x in heard.values())
    for j, name in enumerate(WHEELS)
}
listing = []
for line in lines[start:]:
    cuts = sorted((line.find(part), name) for name, part in WHEELS.items() if part in line)
    label = ",\u00a0".join(str(found_by[name]) for _, name in cuts)
    listing.append(line.removeprefix("    ") + (f"  #\u00a0{label}" if label else ""))
wheels(listing, WHEELS, heard, [], tales=shown, name="wheels")

# %% tags=["hide-input"]
first, second = SOURCE.find(".transpose(1, 2)"), SOURCE.rfind(".transpose(1, 2)")
for place in (first, second):  # either without the other
    single = SOURCE[:place] + SOURCE[place + len(".transpose(1, 2)") :]
    assert {verdict(single, *trial) for trial in trials.values()} == {"stops"}

# %% [markdown]
# <!-- deeper: all parts and calls in one table -->
# ### Going deeper: all parts and calls in one table
#
# Red is where nothing is noticed although a part is missing. Even with the whole class some stories are not possible:
# sometimes the draw hits an unlikely word.

# %% tags=["hide-input"]
rows = {name: 2**j for j, name in enumerate(WHEELS)} | {"both fills": 4 + 16}
told = {
    name: [*(each[out] for each in heard.values()), *[*tales[out].facts, ""][:2]]
    for name, out in ({"nothing": 0} | rows).items()
}
told["nothing"][: len(heard)] = ["right"] * len(heard)
told_apart(told, [*heard, "questions", "stories"], missed="unnoticed", corner="without")

# %% [markdown]
# <!-- /deeper -->
#
# Take out the root. **This is B.** All 192 answers are still right, and half of the stories are spoilt. The storyteller
# has learned with the root. Its heads are 24 wide, so without the root each score is √24 times as large, and where a word
# shared its attention among several, one key now gets most of it. Without a right class beside it, two numbers could
# not show you that, nor could 192 questions. A story did.
#
# Take out the first fill. Now *the mouse chased the mouse*. Blocked keys get their share of the softmax, and the second
# fill throws that share away, so most rows no longer add up to one. Take out the second fill as well, and the mask is
# lost: 185 answers are right, and half of the stories are possible. Why does that hurt, where the last word has nothing
# after it to hide? The words before it have. Each now sees what came later, which it never did in training, and the last
# word reads from them.
#
# The 1 is the second fill. Only a [fully masked row](06_masks.ipynb#cell-id=fully-masked-rows) needs it, and only *one
# sample empty* has one.
#
# The mask's axis is meaner. Axes are aligned from the right, so without `[:, None]` the samples of `(b, n, m)` stand where
# the heads of `(b, h, n, m)` are. With two sentences and two heads that fits: head 1 takes the mask of sentence 1 in both
# sentences, head 2 that of sentence 2, and nothing stops. With 3 samples and 4 heads it does. (The storyteller
# comes to no harm: its one mask is for all samples.)


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
assert "stops" not in heard["two sentences"]
assert {name: row[1:].count("unnoticed") for name, row in heard.items()} == {
    "two sentences": 7,
    "with padding": 1,
    "sizes that differ": 1,
    "one sample empty": 0,
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

# %% tags=["proof"]
for out, right, possible in ((0, 192, (90, 100)), (2, 192, (40, 56)), (20, 185, (40, 60))):
    said, share = tales[out].facts
    assert abs(int(said.split()[0]) - right) <= 3
    assert possible[0] < int(share.rstrip("%")) < possible[1]
assert tales[0] == tales[16] == tales[32]
assert [x.words for x in heard_of.values()] == [tales[0].words, tales[2].words]
assert tales[2].words != tales[0].words
astray = "the mouse chased the mouse because it was brave . so the mouse caught the horse"
for out in (4, 20):
    assert astray in " ".join(tales[out].words)
assert 0.75 < int(tales[4].facts[1].rstrip("%")) / 100 < 0.86
_, thrown_away = build(without(4), larger)(key, key, key, staircase[None])
sums = thrown_away.sum(-1)  # (3, 4, 7)
torch.testing.assert_close(sums[..., -1], torch.ones(3, 4))
assert (sums[..., :-1] < 1).all()
print("✓ The stories are as told; without the first fill only the last row adds up to one.")

# %% tags=["proof"]
world = chapters.load("10_a_little_world")
for who, new in (("cat", True), ("dog", False)):
    tale = f"/ the {who} drank milk because it was thirsty . so the {who} felt better . /"
    assert world.possible([tale.split()]) != new
ids, largest = world.TESTED[:100, :-1], []
with torch.no_grad():
    before = world.shipped()(ids)
    for kind in (MyAttention, PlainAttention, compiled(without(2))):
        model, seen = attending(kind), []
        for layer in model.layers.layers:
            layer.self_attn.own.register_forward_hook(
                lambda *given, seen=seen: seen.append(given[-1][1])
            )
        after = model(ids)
        largest.append(torch.stack(seen).amax(-1).mean().item())
        if len(largest) < 3:
            torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-4)
assert largest[0] < 0.6 < 0.8 < largest[2]
print(
    "✓ With your class the storyteller is what it was; without the root one key gets most."
)

# %% [markdown]
# So here is a call that notices when any of the six is missing, alone or together with others: **several samples,
# sizes that all differ and none of which is 1, values other than the keys, a mask that differs from query to query,
# and one sample empty.** Equal sizes fit in each other's place, and 1 fits anywhere.
#
# Which of these mistakes does even this call *not* notice?
#
# <details name="slips"><summary>Filling with −10⁹ in the place of −∞.</summary>
#
# This one. The exponential of −10⁹ is rounded to 0, as that of −∞ is. Only a fully masked row becomes uniform, and there
# the second fill covers the mistake.
#
# </details>
# <details name="slips"><summary><code>self.w_v(key)</code> in the place of <code>self.w_v(value)</code>.</summary>
#
# Noticed, because the values are not the keys. A call whose values are its keys cannot see it, and most calls are such.
#
# </details>
# <details name="slips"><summary>Only the first query's mask, <code>blocked[:, None, :1]</code>.</summary>
#
# Noticed, because each query has a mask of its own. With padding alone all queries have the same, and nothing shows.
#
# </details>

# %% tags=["proof"]
broken = {
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
    assert [verdict(text, *trial) for text in texts] == ["unnoticed"] * (3 - noticed) + [
        "differs"
    ] * noticed
for sizes, missed in (((4, 3, 5, 2, 1), True), ((1, 3, 5, 2, 6), True)):
    narrow = draw_trial(*sizes)
    assert ("unnoticed" in [verdict(text, *narrow) for text in sets[1:]]) == missed
print("✓ This call notices two of the three; a call with padding alone notices none.")

# %% [markdown]
# Part I began with a pencil and a question. You have made every line of the class that now answers *cat* and *milk*, and
# you know what the answer looks like when one line is wrong: mostly like an answer.

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
# > Hold your class beside another one: several samples, one of them empty; sizes that all differ, none of them 1; three
# > different inputs; a mask for each query; gradients, too. And let the model write.
#
# Nobody ever told the storyteller what *it* means. Who taught it? That is the next part. It begins with a layer around the
# class: attention only collects, and in [the next chapter](08_transformer_layers.ipynb) each word works on what it has
# collected, so that the next layer can ask a better question.

# %% [markdown] name="dropout"
# <!-- deeper: Before you swap -->
# ### Going deeper: Before you swap
#
# Is your class to take the place of PyTorch's, or the other way round? [Before you
# swap](../docs/package/before-you-swap.md) lists what raises no error then. To check a class in a file of your own, the line
# is `from annotated_book import exercises`, with this book installed; or take `lend` and `compare` of [the short
# path](short_path.ipynb#cell-id=compared-with-pytorch).
#
# To look at weights, call `.eval()`, and ask PyTorch's class for `average_attn_weights=False`, or you get their mean
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
# One more, beyond the 10 minutes of the opening. The book's package, `annotated_attention`, has this class under PyTorch's
# name, and there the score is a method:

# %% tags=["hide-input"]
display.source(MultiheadAttention.score, docstrings=False)

# %% [markdown] name="a-score-of-your-own"
# ### A score of your own
#
# *Medium, 15 minutes.* Let near words count more: take $s \cdot |i - j|$ off the score of query i and key j, as
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
