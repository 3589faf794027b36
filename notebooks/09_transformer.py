# %% [markdown]
# # The Transformer
#
# *How does a model know which word comes first?*
#
# *16 minutes and 14 of exercises. Afterwards you have written the whole Transformer, and can say how it
# knows the order of words.*
#
# > the cat drank the milk
#
# > the milk drank the cat
#
# Both sentences have the same words, and you know at once who drank whom. Attention does not: it
# compares words with words and takes no account of where they stand. Nor does any other part of an
# [encoder layer](08_transformer_layers.ipynb). So the model has to be told: each word's place is
# written into the word's vector, before the first layer.
#
# In this chapter you do that with clocks: you stamp each word with a time, shown on several clocks
# that run at different speeds. Then you put everything together, from the layers of the last chapter. That is the
# whole Transformer of 2017. Its encoder, on
# the left, reads a sentence. Its decoder, on the right, answers, word by word: it has come as far
# as *the cat was*, and at the end of this page it will say the next word by itself. This chapter adds what stands
# outside the dashed frames.

# %% tags=["fold-input"]
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import annotated_attention
from annotated_attention import PositionalEncoding
from annotated_book import chapters, display

one = chapters.load("01_one_head")
layers = chapters.load("08_transformer_layers")

torch.manual_seed(9)
x = torch.randn(1, 3, 24)
parts = (
    layers.ran(layers.EncoderLayer(24, 4, 48), x),
    layers.ran(layers.DecoderLayer(24, 4, 48), x, x),
)
read, wrote = " ".join(one.WORDS), "the cat was thirsty"
sentences = (read, "start the cat was", wrote)
display.whole_transformer(*parts, sentences, name="whole-transformer")

# %% [markdown]
# ## A bag of words
#
# Take the sentence of the first chapter, and let *cat* and *milk* trade places. Both orders go
# through a layer with random weights. The word *it* has kept its place. What does the layer return
# for this word: the same numbers, slightly different ones, or those of another word?
#
# <details><summary>What do you expect?</summary>
#
# The same numbers. *It* compares its query with the same eight keys and collects the same eight
# values with the same weights. The order of the terms in a sum does not matter.
#
# </details>

# %% tags=["fold-input"]
it, cat = one.WORDS.index("it"), one.WORDS.index("cat")
torch.manual_seed(9)
layer = layers.EncoderLayer(4, 2, 16)
order = torch.tensor([0, 3, 2, 1, 4, 5, 6, 7])  # cat and milk trade places

before = layer(one.EMBEDDINGS[None])[0]        # (n, e)
after = layer(one.EMBEDDINGS[None, order])[0]  # (n, e)
sentences = [" ".join(one.WORDS[i] for i in places) for places in (range(8), order)]
numbers = ["1st", "2nd", "3rd", "4th"]
display.show(torch.stack([before[it], after[it]]), sentences, numbers, corner="“it” in")

# %% tags=["proof"]
torch.testing.assert_close(after, before[order])
print(
    "✓ All other words, too, get the numbers that they got before, wherever they stand now."
)

# %% [markdown]
# This holds for every word, and no weight of the layer belongs to a place. (A decoder has a causal mask, which tells
# earlier words from later ones, and [some models have nothing else](20_positions.ipynb).) Can training help? Eight
# nouns make 56 sentences like the two at the top, *the … drank the …*. Train a layer for 200 steps, on all of them at
# once, to name the drinker: the row of *drank* scores every word. What share does it get right, of the
# very sentences that it has seen 200 times?
#
# <details><summary>What do you expect?</summary>
#
# Half. It can learn that one of the two nouns drank, and no more: both orders of a pair are one and the same bag of
# words, so whatever it answers to one of them, it answers to the other.
#
# </details>


# %%
def who_drank(stories: Tensor, places: Tensor | float = 0) -> float:
    """Train a layer to name the drinker, and give the share that it gets right."""
    torch.manual_seed(9)
    table, layer = nn.Embedding(10, 24), layers.EncoderLayer(24, 4, 48)
    optimizer = torch.optim.Adam([*table.parameters(), *layer.parameters()], lr=0.003)
    for _ in range(200):
        drank = layer(table(stories) + places)[:, 2]  # (56, 24)
        scores = drank @ table.weight.T               # (56, 24) x (24, 10) -> (56, 10)
        optimizer.zero_grad()
        F.cross_entropy(scores, stories[:, 1]).backward()
        optimizer.step()
    return (scores.argmax(-1) == stories[:, 1]).float().mean().item()


stories = torch.tensor(
    [[0, i, 1, 0, j] for i in range(2, 10) for j in range(2, 10) if i != j]
)
print(f"{who_drank(stories):.2f} of the drinkers")

# %% [markdown]
# Half: whoever drank, it can only toss a coin.

# %% [markdown] name="clocks"
# ## Clocks
#
# How do you write a place as numbers? The number of the place alone, 0, 1, 2 and so on, grows
# without bound, so a late word would carry a number far larger than its features. Digits stay
# small: the last digit changes with every step, and the digit before it changes ten times more
# slowly. But digits jump from 9 to 0.
#
# Clock hands are like digits that do not jump. The second hand tells neighbouring moments apart,
# and the hour hand tells which part of the day it is. Give each word the hands of several clocks.
# The first clock turns by 1 radian per word, about a sixth of a full turn, and each further clock
# turns more slowly. You write a hand as two numbers, the sine and the cosine of its angle, which
# both stay between −1 and 1. With width e there are e / 2 clocks. [Vaswani et
# al.](../docs/references.md#vaswani-2017) (section 3.5) chose these speeds, with p for the position
# and i = 0, 1, … for the clock:
#
# $$\mathrm{PE}_{p,\,2i} = \sin\frac{p}{10000^{2i/e}}$$
#
# $$\mathrm{PE}_{p,\,2i+1} = \cos\frac{p}{10000^{2i/e}}$$
#
# With e = 512, the slowest clock takes about 60000 words for one turn. This is the **sinusoidal** positional encoding (`...` in the comments is e / 2):

# %%
from annotated_attention import sinusoidal_code

display.annotated(sinusoidal_code)

# %% [markdown]
# With e = 8 there are four clocks, and each turns ten times more slowly than the one before:

# %% tags=["fold-input"]
code = sinusoidal_code(100, 8)  # (100, 8)
hands = [f"{part} {clock}" for clock in (1, 2, 3, 4) for part in ("sin", "cos")]
some = [0, 1, 2, 10, 50]
display.show(code[some], some, hands, corner="position")

# %% [markdown]
# As hands, which start at the top and turn clockwise, the sine is how far the tip lies to the right, and the cosine how far up.
# Try two things:
#
# 1. Move the position. The first clock tells neighbours apart and soon repeats itself. The last
#    clock hardly moves, and tells the beginning of a text from its far end.
# 2. Set a distance, and move the position again. A second, dashed hand shows the position at that
#    distance. Both hands turn, but the angle between them stays the same. Watch the dot product of
#    the two positions.

# %% tags=["fold-input"]
display.clocks(code, name="clocks", shown=(0, 1, 10, 50))

# %% [markdown]
# Now stamp the words. The layer that could not tell who drank gets its clocks, and nothing else:

# %%
places = sinusoidal_code(5, 24).float()  # (5, 24)
print(f"{who_drank(stories, places):.2f} of the drinkers")

# %% [markdown]
# All of them. The cat and the milk have changed places, and the layer has noticed.
#
# ### Warm-up: four hands
#
# *Easy, 2 minutes.* By which angles, in radians, have the four clocks of e = 8 turned at position
# 20? No sine is needed: divide 20 by $10000^{2i/8} = 10^i$ for i = 0, 1, 2, 3.

# %% tags=["exercise"]
my_angles = [None, None, None, None]  # i = 0, i = 1, i = 2, i = 3

# %%
from annotated_book import exercises

exercises.transformer.check_angles(my_angles)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The first clock turns by 1 radian per position, so at position 20 it has turned by 20.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Each further clock turns ten times more slowly.
#
# </details>

# %% tags=["solution"]
my_angles = [20 / 10**i for i in range(4)]

exercises.transformer.check_angles.folded(my_angles)

# %% [markdown] name="near-and-far"
# ## Near and far
#
# Why does this work? Attention compares by dot products. Leave its matrices aside for a moment, and ask what the
# dot product of two positions says. Each clock adds one product of sines and one product of cosines. Together they are the cosine of the angle
# between the two hands:
#
# $$\sin\alpha \sin\beta + \cos\alpha \cos\beta = \cos(\alpha - \beta)$$
#
# That angle is the clock's speed times the distance. So the dot product depends on how far apart
# two positions are, and on nothing else: here for three of 64 positions, with 64 clocks.

# %% tags=["hide-input"]
code = sinusoidal_code(64, 128)  # (64, 128)
alike = code @ code.T            # (64, 128) x (128, 64) -> (64, 64)

# %% tags=["proof"]
for distance in range(64):
    diagonal = alike.diagonal(distance)
    torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))
print("✓ Each dot product depends on the distance alone, for all 64 positions.")

# %% tags=["fold-input"]
drawing, (ax,) = display.panels(340, 210)
for position, letter, style in ((0, "n", "-"), (20, "h", "--"), (45, "m", ":")):
    ink = display.COLOURS[letter]
    ax.plot(alike[position], style, color=ink)
    align = "center" if position else "left"
    ax.text(position or 1, 65, f"position {position}", ha=align, color=ink, fontsize=12)
ax.set(xlabel="other position", ylabel="dot product", xlim=(0, 63), ylim=(28, 70))
display.finish(
    drawing,
    name="near-and-far",
    alt=(
        "Dot products of positions 0, 20 and 45 with all "
        "others: the same curve three times, "
        f"moved: {alike[0, 0]:.0f} at the position itself, "
        f"{alike[0, 1]:.1f} one step beside."
    ),
)

# %% [markdown]
# The three curves are the same curve, shifted. Neighbours are most similar; the similarity falls
# quickly at first, then slowly and in small waves.
#
# ## A shift is a rotation
#
# Why sines and cosines, and not some other curves? The authors guess that with these curves, a
# model easily learns to attend to a word *at a certain distance*. Their reason: for each distance,
# one fixed matrix moves every position by that distance. Is there one that moves every position three words ahead?
# Ask least squares, which knows neither sines nor clocks, and give it 400 positions. (Positions are rows, so the matrix
# stands on their right.) Of its 8 × 8 numbers, how many are not zero?
#
# <details><summary>What do you expect?</summary>
#
# Sixteen. Each clock turns by itself, and to turn a hand takes four numbers: two cosines and two sines of the angle. Four
# clocks make four such blocks, and no clock has to know another.
#
# </details>

# %%
positions = sinusoidal_code(400, 8)                                 # (400, 8)
shift = torch.linalg.lstsq(positions[:-3], positions[3:]).solution  # (8, 8)
rows = [[x if abs(x) > 1e-6 else "·" for x in row] for row in shift.tolist()]
display.show(rows, hands, hands, decimals=3)

# %% tags=["proof"]
torch.testing.assert_close(positions[:-3] @ shift, positions[3:])
turns = []
for i in range(4):
    angle = torch.tensor(3 / 10000 ** (2 * i / 8))
    cosine, sine = angle.cos(), angle.sin()
    turns.append(torch.stack([cosine, -sine, sine, cosine]).view(2, 2).double())
torch.testing.assert_close(shift, torch.block_diag(*turns), atol=1e-6, rtol=0)
assert sum(x != "·" for row in rows for x in row) == 16
print("✓ The matrix moves all 397 positions: it turns each clock by three words.")

# %% [markdown]
# One matrix moves every position, and it is made of rotations. So a model that wants to look three words back can have
# this matrix in its weights. And turning two vectors by the same angles does
# not change their dot product. That is why the three curves are one.

# %% [markdown]
# ## Adding the position
#
# Row p of the table of clocks is added to the word at position p. Does that not spoil the word? In a word of 4
# numbers it does. Models have hundreds, and in a short text the clocks fill few of those directions: clocks of nearly the same
# speed show nearly the same time, so one says little that its neighbour does not. The longer the text, the further
# they part. For 100 words, most directions are left to the words; for 4000, little more than half. The embeddings are
# learned, and can use those.

# %% tags=["proof"]
needed = {}
for length in (100, 1000, 4000):
    table = sinusoidal_code(length, 512)
    spread = torch.linalg.svdvals(table - table.mean(0)).square().cumsum(0)
    needed[length] = int((spread < 0.99 * spread[-1]).sum()) + 1
assert needed[100] < 50
assert needed[4000] < 256
counts = ", ".join(f"{found} for {length} words" for length, found in needed.items())
print(f"✓ Of 512 directions, these hold 99 % of what tells positions apart: {counts}.")

# %% [markdown]
# A model can also learn a vector for each position; the paper found that this works about equally well. But it
# learns nothing for a position that no training text had.

# %% [markdown]
# <!-- deeper: What a score sees of the distance -->
# ### Going deeper: What a score sees of the distance
#
# A *score* compares sums, a word $w$ plus a clock $c$, and
# not directly: the query's sum passes through $W_q$ and the key's, $w' + c'$, through $W_k$. That makes four terms:
#
# $$\begin{gathered} \textcolor{#0067a5}{w}\,W_q W_k^\top \textcolor{#0067a5}{w'}^\top
# + \textcolor{#0067a5}{w}\,W_q W_k^\top \textcolor{#b34700}{c'}^\top \\
# {} + \textcolor{#b34700}{c}\,W_q W_k^\top \textcolor{#0067a5}{w'}^\top
# + \textcolor{#b34700}{c}\,W_q W_k^\top \textcolor{#b34700}{c'}^\top \end{gathered}$$
#
# Only the first knows nothing of places. In the second and third, a word meets a clock, and both terms change when the
# sentence moves. And in the last the two clocks do not meet as they are: the matrices come between. Draw two at random,
# and look at this term for all pairs of places three apart:

# %%
torch.manual_seed(9)
W_q, W_k = torch.randn(2, 128, 128).double() / 128**0.5
queries, keys = code @ W_q, code @ W_k  # (64, 128), (64, 128)
term = (queries @ keys.T).diagonal(3)   # (61,)
print(f"from {term.min():.1f} to {term.max():.1f}")

# %% [markdown]
# The same distance, and very different scores: nothing forces a model to see the distance alone.
# The chapter [Positions](20_positions.ipynb) begins there, and turns queries and keys instead.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# <!-- deeper: Positions along the wrong axis -->
# ### Going deeper: Positions along the wrong axis
#
# The package's `PositionalEncoding` keeps the numbers of all positions as a **buffer**: a table that moves to
# the GPU with the model and that no optimiser touches. One mistake raises no error: an encoding for sequence-first
# data, `(n, b, e)`, takes batch-first data, too. Send three copies of the sentence through an encoding for each
# layout. The numbers that are added should differ from word to word, and be the same in all three sentences:

# %%
batch = one.EMBEDDINGS.expand(3, 8, 4)  # (3, 8, 4)
rows = {}
for batch_first in (True, False):
    encoding = PositionalEncoding(4, 0.0, max_len=8, batch_first=batch_first)
    added = encoding(batch) - batch  # (3, 8, 4)
    spans = [(added.amax(axis) - added.amin(axis)).max() for axis in (1, 0)]
    rows[f"{batch_first=}"] = spans
display.show(
    rows,
    columns=["between words", "between sentences"],
    corner="what is added differs by up to",
)

# %% [markdown]
# > **Pitfall.** The positions run along the wrong axis. The shape is right, but the words have no
# > order, and each sentence is marked by its place in the batch.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Embeddings, and why times √e
#
# Each word has a row in a learned table, its **embedding**, and the row number is its **token id**.
# The paper uses the same table at both ends of the model: at the input it turns ids into vectors,
# and at the output, transposed, it turns the last vectors into a score for each word. The output
# wants small numbers in the table, of size $1 / \sqrt e$. At the output a word's score adds up e products, of its row in the table and of a
# vector whose numbers the last norm has brought to size 1: e products of size $1 / \sqrt e$, some positive and some negative, add
# up to a score of about size 1. At
# the input so small a word would drown in the position that is added to it, so the word is
# multiplied by $\sqrt e$. The paper gives no reason; this one fits.


# %%
class Words(nn.Module):
    """The table at both ends: from ids to vectors, and from vectors to scores."""

    def __init__(self, vocab: int, e: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(vocab, e) / math.sqrt(e))

    def forward(self, ids: Tensor) -> Tensor:
        n, e = ids.size(1), self.table.size(1)
        clocks = sinusoidal_code(n, e).to(self.table)   # (n, e)
        return self.table[ids] * math.sqrt(e) + clocks  # (b, n, e)

    def scores(self, x: Tensor) -> Tensor:
        return x @ self.table.T  # (b, n, e) x (e, v) -> (b, n, v)


# %% [markdown]
# <!-- deeper: Both ends of the table, measured -->
# ### Going deeper: Both ends of the table, measured
#
# Draw tables of a thousand words with different standard deviations, and look at both ends of each.
# For the output of the last layer, take random vectors that have passed through a layer norm.
# *Score std* and *largest share* show how large the scores are, and what share the softmax gives
# the likeliest word before any training. *Times √e* and *position* show how large a word is after
# the multiplication, beside the position that is added to it.

# %% tags=["fold-input"]
rows = {}
for e in (32, 512):
    torch.manual_seed(0)
    out = nn.LayerNorm(e)(torch.randn(64, e))  # (64, e)
    position = sinusoidal_code(64, e).square().mean().sqrt()
    for name, deviation in (("1", 1.0), ("1/√e", 1 / math.sqrt(e))):
        table = deviation * torch.randn(1000, e)  # (1000, e)
        scores = out @ table.T                    # (64, e) x (e, 1000) -> (64, 1000)
        share = scores.softmax(-1).amax(-1).mean()
        sizes = [table.std(), scores.std(), share, table.std() * math.sqrt(e), position]
        rows[f"{e}, {name}"] = sizes
columns = ["table std", "score std", "largest share", "times √e", "position"]
display.show(rows, columns=columns, corner="e, drawn with")

# %% [markdown]
# With a deviation of 1 and e = 512, one word of a thousand takes nearly all of the probability: the
# softmax is [saturated](01_one_head.ipynb#cell-id=deeper-why-divide-by-the-root). With $1 / \sqrt e$, the
# scores have size 1, but a word of size 0.04 would drown in a position of size 0.71.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="the-whole-model"
# ## The whole model
#
# Now everything is there. Besides its words, the vocabulary has three tokens: padding, *start* and *end*. Every answer begins
# with *start*, so that there is a row that scores its first word. And these are the parts, not yet connected:

# %% tags=["hide-input"]
MORE = ["dog", "tea", "bird", "soup", "mouse", "juice"]
WORDS = ["·", "start", "end", *one.WORDS, "sweet", *MORE]  # id 0 is padding
PAD, START, END = 0, 1, 2


# %%
class Parts(nn.Module):
    """What a Transformer is made of."""

    def __init__(self, vocab: int, e: int, h: int, depth: int, wide: int) -> None:
        super().__init__()
        self.words = Words(vocab, e)
        self.encoder = nn.ModuleList(layers.EncoderLayer(e, h, wide) for _ in range(depth))
        self.decoder = nn.ModuleList(layers.DecoderLayer(e, h, wide) for _ in range(depth))


# %% tags=["hide-input"]
display.whole_transformer(
    *parts, (read, "start the cat was", wrote), name="the-parts-in-place"
)

# %% [markdown]
# ### You write the Transformer
#
# *Medium, 6 minutes.* Connect them, from this picture. `encode` is its green half, `decode` its blue half up to the
# scores, and what passes from one to the other is the memory. An encoder layer takes `(x, padding)`, a decoder layer
# `(x, memory, padding)`, and both give the next `x`; `padding` is True where `src` is padding. (What is written needs no
# such mask: its padding stands on the right, where the causal mask inside the layer hides it.)


# %% tags=["exercise"]
class Transformer(Parts):
    """Read the ids of one sentence, and score the next word at each place of another."""

    def encode(self, src: Tensor) -> Tensor:
        """Turn the ids that are read into the memory."""
        ...  # your code here

    def decode(self, tgt: Tensor, memory: Tensor, padding: Tensor | None = None) -> Tensor:
        """Turn the ids that are written so far into scores of the next ones."""
        ...  # your code here

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Do one after the other."""
        ...  # your code here


# %%
exercises.transformer.check_transformer(Transformer)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Both begin with `self.words`, and go through their layers in a loop: `for layer in self.encoder`.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `decode` ends with `self.words.scores(x)`. The mask is `src == PAD`, and `forward` has to hand it on.
#
# </details>


# %% tags=["solution"]
class Transformer(Parts):
    """Read the ids of one sentence, and score the next word at each place of another."""

    def encode(self, src: Tensor) -> Tensor:
        x = self.words(src)
        for layer in self.encoder:
            x = layer(x, src == PAD)
        return x

    def decode(self, tgt: Tensor, memory: Tensor, padding: Tensor | None = None) -> Tensor:
        x = self.words(tgt)
        for layer in self.decoder:
            x = layer(x, memory, padding)
        return self.words.scores(x)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        return self.decode(tgt, self.encode(src), src == PAD)


exercises.transformer.check_transformer.folded(Transformer)

# %% [markdown]
# That is the model of the paper, whose sizes were e = 512, h = 8, six layers on each side and 2048 inside the
# feed-forward network. Dropout is left out, and attention has biases here, as in PyTorch's class. (The package has it as
# `Seq2SeqTransformer`, with dropout and more settings, and later chapters use that.) Run a small one. It reads our
# sentence and a second, shorter one, and the answer written so far is *start*, *the*, *cat*:

# %%
torch.manual_seed(9)
model = Transformer(vocab=len(WORDS), e=24, h=4, depth=2, wide=48)
src = torch.tensor([[3, 4, 5, 6, 7, 8, 9, 10], [3, 4, 9, 10, 0, 0, 0, 0]])  # (b, m)
tgt = torch.tensor([[START, 3, 4], [START, 3, 4]])                          # (b, n)
memory = model.encode(src)
scores = model(src, tgt)
print("memory", tuple(memory.shape))
print("scores", tuple(scores.shape))

# %% [markdown]
# At each place that is written, every token of the vocabulary gets a score, its **logit**. Behind the cross-attention no
# shape contains the length of what was read.

# %% [markdown]
# <!-- deeper: The same as the package's and PyTorch's -->
# ### Going deeper: The same as the package's and PyTorch's
#
# `annotated_attention.Transformer` and `torch.nn.Transformer` are the two stacks without the ends. Give them your
# weights, put them between your `Words`, and leave out the final norms that both add. Scores and gradients must
# agree.

# %% tags=["proof"]
own = Transformer(len(WORDS), 24, 4, 2, 48).double()
future = nn.Transformer.generate_square_subsequent_mask(3, dtype=torch.float64)
blocked = src == PAD  # (b, m)
masks = {"src_key_padding_mask": blocked, "memory_key_padding_mask": blocked}


def sides(model: nn.Module) -> list[nn.Parameter]:
    """List the parameters of both stacks, in the order of their names."""
    named = [*model.encoder.named_parameters(), *model.decoder.named_parameters()]
    return [parameter for _, parameter in sorted(named, key=lambda pair: pair[0])]


for kind in (annotated_attention.Transformer, nn.Transformer):
    other = kind(24, 4, 2, 2, 48, dropout=0.0, batch_first=True, dtype=torch.float64)
    for mine, theirs in ((own.encoder, other.encoder), (own.decoder, other.decoder)):
        theirs.layers.load_state_dict(mine.state_dict())
        theirs.norm = None
    passed = other(own.words(src), own.words(tgt), tgt_mask=future, **masks)
    found, expected = own(src, tgt), own.words.scores(passed)
    torch.testing.assert_close(found, expected)
    mine = one.gradients(found, [own.words.table, *sides(own)])
    wanted = one.gradients(expected, [own.words.table, *sides(other)])
    torch.testing.assert_close(mine, wanted)
print(f"✓ The same scores, and the same gradients of {len(mine)} parameters.")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Who was thirsty?
#
# To write, begin with *start*, take the likeliest next word, append it, and ask again. This is called
# **greedy decoding**. What will this model answer, before any training?
#
# <details><summary>What do you expect?</summary>
#
# It stammers. The table that scores a vector is the one that the vector came from, so to the
# untrained model each word is nearly always its own likeliest successor.
#
# </details>


# %%
@torch.no_grad()
def greedy(model: nn.Module, src: Tensor, max_new: int) -> Tensor:
    """Append the likeliest word, again and again."""
    memory = model.encode(src)  # (b, m, e)
    written = torch.full((len(src), 1), START)
    for _ in range(max_new):
        scores = model.decode(written, memory, src == PAD)[:, -1]  # (b, v)
        written = torch.cat([written, scores.argmax(-1)[:, None]], 1)
    return written


print(*(WORDS[i] for i in greedy(model, src[:1], max_new=5)[0]))

# %% [markdown]
# Now teach it to answer. Eight nouns make sentences like ours, *the … drank … because it was* *thirsty* or *sweet*, and
# the answer says who was: if *thirsty*, the drinker, if *sweet*, the drink. It never reads *cat* and *milk*
# together: those four sentences, our own among them, are kept for later.


# %% tags=["fold-input"]
def ids(text: str) -> list[int]:
    """Give the ids of words."""
    return [WORDS.index(word) for word in text.split()]


def story(one_noun: str, other: str, was: str) -> tuple[list[int], list[int]]:
    """Give the ids of a sentence and of its answer."""
    who = one_noun if was == "thirsty" else other
    asked = ids(f"the {one_noun} drank {other} because it was {was}")
    return asked, ids(f"start the {who} was {was} end")


NOUNS = ["cat", "milk", *MORE]
every = [(i, j, was) for i in NOUNS for j in NOUNS for was in ("thirsty", "sweet")]
taught = [x for x in every if x[0] != x[1] and {*x[:2]} != {"cat", "milk"}]
kept = [x for x in every if {*x[:2]} == {"cat", "milk"}]
asked, wanted = (torch.tensor(x) for x in zip(*(story(*x) for x in taught)))
print(len(taught), "sentences to learn,", len(kept), "kept away")

# %% [markdown]
# In training one call is enough for a whole answer: it goes in at once, and the causal mask
# keeps each row from seeing the word that it has to predict.

# %%
steps = [0, 20, 40, 60, 100, 200]
optimizer, said = torch.optim.Adam(model.parameters(), lr=0.003), {}
all_asked = torch.tensor([story(*x)[0] for x in every])  # (128, 8)
for step in range(201):
    if step in steps:
        said[step] = greedy(model, all_asked, max_new=5)  # (128, 6)
    scores = model(asked, wanted[:, :-1])                 # (108, 5, v)
    loss = F.cross_entropy(scores.flatten(0, 1), wanted[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

for x in kept:
    answer = said[200][every.index(x)].tolist()
    print(*(WORDS[i] for i in story(*x)[0]), "→", *(WORDS[i] for i in answer[1:]))

# %% tags=["proof"]
for x in kept:
    assert said[200][every.index(x)].tolist() == story(*x)[1]
    assert said[0][every.index(x)].tolist() != story(*x)[1]
with torch.no_grad():
    memory = model.encode(asked[:1])
    at_once = model.decode(wanted[:1], memory)  # (1, 6, v)
    calls = [model.decode(wanted[:1, : i + 1], memory)[:, -1] for i in range(6)]
torch.testing.assert_close(at_once, torch.stack(calls, 1))
print("✓ All four are right; and words scored at once are scored as one after the other.")

# %% [markdown]
# It has finished the sentence of the picture: *the cat was thirsty*. And where the two nouns have changed places, in a sentence made of the
# same words, it says that the milk was. The model that saw a bag of words could not.
#
# Choose a sentence, and go back in its training. It learns what an answer looks like first, and who was thirsty last.


# %% tags=["fold-input"]
def words_of(row: list[int]) -> str:
    """Give an answer's words, without start and from end on."""
    told = [WORDS[i] for i in row[1:]]
    return " ".join(told[: told.index("end")] if "end" in told else told)


found = {}
for i, now in enumerate(said.values()):
    for x, row in zip(every, now.tolist()):
        at = (i, NOUNS.index(x[0]), NOUNS.index(x[1]), int(x[2] == "sweet"))
        found[at] = [words_of(story(*x)[1]), words_of(row)]
display.strips(
    [
        display.Choice("steps", [str(step) for step in steps], 5),
        display.Choice("first noun", NOUNS, 0, "list"),
        display.Choice("second noun", NOUNS, 1, "list"),
        display.Choice("last word", ["thirsty", "sweet"], 0, "list"),
    ],
    [["after", 0, "steps"], ["the", 1, "drank", 2, "because it was", 3]],
    [display.Strip("right"), display.Strip("the model writes", 0)],
    found,
    split=" ",
    room=(215, 340),
    name="who-was-thirsty",
)

# %% [markdown]
# ## Exercises
#
# ### Until the end
#
# *Medium, 6 minutes.* `greedy` goes on behind *end*. Write one that knows when to stop: after its first *end*, a
# sentence gets only padding, and as soon as all sentences have ended, no further word is asked for. It returns
# `(b, n)`, with *start* in front and at most `max_new` words behind it.


# %% tags=["exercise"]
def greedy_until_end(model: nn.Module, src: Tensor, max_new: int) -> Tensor:
    """Append the likeliest word, until each sentence has its end."""
    ...  # your code here


# %%
exercises.transformer.check_greedy_until_end(greedy_until_end)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Keep a boolean for each sentence, `ended`, `(b,)`. At first all are False.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `following.masked_fill(ended, PAD)` replaces the words of the sentences that have ended.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# After appending, `ended = ended | (following == END)`, and `if ended.all(): break`.
#
# </details>


# %% tags=["solution"]
@torch.no_grad()
def greedy_until_end(model: nn.Module, src: Tensor, max_new: int) -> Tensor:
    """Append the likeliest word, until each sentence has its end."""
    memory = model.encode(src)
    written = torch.full((len(src), 1), START)
    ended = torch.zeros(len(src), dtype=torch.bool)
    for _ in range(max_new):
        scores = model.decode(written, memory, src == PAD)[:, -1]
        following = scores.argmax(-1).masked_fill(ended, PAD)
        written = torch.cat([written, following[:, None]], 1)
        ended = ended | (following == END)
        if ended.all():
            break
    return written


exercises.transformer.check_greedy_until_end.folded(greedy_until_end)

# %% [markdown]
# ## What you have now
#
# You have written the Transformer of the paper, from token ids to scores, but for its size, its dropout and the
# biases of its attention, and it answers. Without positions it could not have told who drank; with them, a
# shift is a rotation.
#
# > **In short.** Without a mask, attention does not know the order of words, so each word carries
# > its position:
# >
# > $$x_p = \sqrt e \cdot \mathrm{embedding}(\mathrm{id}_p) + \mathrm{PE}_p$$
# >
# > $$\mathrm{PE}_p \cdot \mathrm{PE}_q = \sum_i \cos\frac{p - q}{10000^{2i/e}}$$
# >
# > Ids `(b, m)` and `(b, n)` go in, scores `(b, n, v)` come out; in between, every layer returns
# > `(b, m, e)` or `(b, n, e)`.
# >
# > ```python
# > x = table[ids] * e**0.5 + clocks
# > memory = encoder(x_of_src)
# > y = decoder(x_of_tgt, memory)
# > scores = y @ table.T
# > ```
# >
# > The dot product of two positions depends on their distance alone. The score of two *words* at
# > two positions does not: words are added to the positions, and $W_q$ and $W_k$ come between.
#
# This model knows one kind of sentence. [The next chapter](10_a_little_world.ipynb) makes a smaller one from
# the same parts, and teaches it to tell stories.
