# %% [markdown]
# # The Transformer
#
# *How does a model know which word comes first?*
#
# *17 minutes and 14 of exercises. Afterwards you have written the whole Transformer, and can say how it
# knows the order of words.*
#
# > the cat drank milk
#
# > the milk drank cat
#
# Both sentences have the same words, and you know at once who drank whom. Attention does not: it
# compares words with words and takes no account of where they stand. Nor does any other part of an
# [encoder layer](08_transformer_layers.ipynb). So the model has to be told: each word's place is
# written into the word's vector, before the first layer.
#
# You do that with clocks, whose hands you stamp on each word. Then you put together, from the layers of the last chapter,
# the whole Transformer of 2017. Its encoder, green, reads a sentence. Its decoder, blue, answers, word by word: it has
# come as far as *the cat was*, and at the end of this page it will say the next word by itself. New are the parts
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
# for this word?
#
# <details name="it"><summary>The same numbers.</summary>
#
# Right. *It* compares its query with the same eight keys and collects the same eight
# values with the same weights. The order of the terms in a sum does not matter.
#
# </details>
# <details name="it"><summary>Slightly different ones.</summary>
#
# Some part of the layer would have to notice the trade. None does.
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
# No weight of the layer belongs to a place. (A decoder has a causal mask, which tells
# earlier words from later ones, and [some models have nothing else](20_positions.ipynb).) Can training help? Eight
# nouns make 56 sentences of four words, *the … drank …*. Train a layer for 200 steps, on all of them at
# once, to name the drinker. (The row of *drank*, `[:, 2]`, scores every word.) What share does it get right, of the
# very sentences that it has seen 200 times?
#
# <details name="half"><summary>All of them.</summary>
#
# To know a sentence from its reverse by heart, it would have to see a difference.
#
# </details>
# <details name="half"><summary>Half.</summary>
#
# Right. It can learn that one of the two nouns drank, and no more: both orders of a pair are one and the same bag of
# words, so whatever it answers to one of them, it answers to the other.
#
# </details>
# <details name="half"><summary>One in eight.</summary>
#
# That is guessing among all nouns. It does see which two are there.
#
# </details>


# %%
def who_drank(places: Tensor | float = 0) -> tuple[float, nn.Module, nn.Module]:
    """Train a layer to name the drinker, and give the share that it gets right."""
    torch.manual_seed(9)
    table, layer = nn.Embedding(10, 24), layers.EncoderLayer(24, 4, 48)
    optimizer = torch.optim.Adam([*table.parameters(), *layer.parameters()], lr=0.003)
    for _ in range(200):
        drank = layer(table(STORIES) + places)[:, 2]  # (56, 24)
        scores = drank @ table.weight.T               # (56, 24) x (24, 10) -> (56, 10)
        optimizer.zero_grad()
        F.cross_entropy(scores, STORIES[:, 1]).backward()
        optimizer.step()
    return (scores.argmax(-1) == STORIES[:, 1]).float().mean().item(), table, layer


NOUN_IDS = range(2, 10)
STORIES = torch.tensor([[0, i, 1, j] for i in NOUN_IDS for j in NOUN_IDS if i != j])
print(f"{who_drank()[0]:.2f} of the drinkers")

# %% [markdown]
# Whoever drank, it can only toss a coin.

# %% [markdown] name="clocks"
# ## Clocks
#
# How do you write a place as numbers? The number of the place itself would grow far larger than a word's
# features. Digits stay small: the last one changes with every step, and the one before it ten times more
# slowly. But digits jump from 9 to 0.
#
# Clock hands are like digits that do not jump. Give each word the hands of several clocks.
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
# This is the **sinusoidal** positional encoding:

# %%
from annotated_attention import sinusoidal_code

display.annotated(sinusoidal_code)

# %% [markdown]
# With e = 8 there are four clocks, and each turns ten times more slowly than the one before. Hands start at the top
# and turn clockwise. Under each clock stand the sine, how far the tip lies to the right, and the cosine, how far up.
# Try two things:
#
# 1. Move the position. The first clock tells neighbours apart and soon repeats itself. The last
#    clock hardly moves, and tells the beginning of a text from its far end.
# 2. Set a distance, and move the position again. A second, dashed hand shows the position at that
#    distance. Both hands turn, and the dot product of the two positions stays as it is.

# %% tags=["fold-input"]
code = sinusoidal_code(100, 8)  # (100, 8)
display.clocks(code, name="clocks", shown=(0, 1, 10, 50))

# %% [markdown]
# Now stamp the words. The layer that could not tell who drank gets its clocks, and nothing else:

# %%
clocks = sinusoidal_code(4, 24).float()  # (4, 24)
right, table, layer = who_drank(clocks)
print(f"{right:.2f} of the drinkers")

# %% [markdown]
# All of them: the layer has noticed who changed places.
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
# ## Before or after
#
# Why does this work? Attention compares by dot products. So let *drank* ask which clocks are most like its own:

# %% tags=["fold-input"]
words = ["the", "cat", "drank", "milk"]
alike = code[2] @ code[:4].T  # (8,) x (8, 4) -> (4,)
display.show([alike], ["drank"], words)

# %% [markdown]
# *Cat* and *milk* come out even. Each clock adds one product of sines and one of cosines, together the
# cosine of the angle between the two hands:
#
# $$\sin\alpha \sin\beta + \cos\alpha \cos\beta = \cos(\alpha - \beta)$$
#
# That angle is the clock's speed times the distance, and its cosine does not care in which direction.

# %% tags=["proof"]
every_pair = code @ code.T  # (100, 8) x (8, 100) -> (100, 100)
for distance in range(100):
    ahead, behind = every_pair.diagonal(distance), every_pair.diagonal(-distance)
    torch.testing.assert_close(ahead, ahead[:1].expand_as(ahead))
    torch.testing.assert_close(behind, ahead)
print("✓ Each dot product depends on the distance alone, for all 100 positions.")

# %% [markdown]
# The dot product says how far away a word stands, and never on which side. And yet the layer has just named all drinkers. How
# does it know *before* from *after*?
#
# <details name="sides"><summary>From the words: cats drink.</summary>
#
# Among its sentences, milk drinks as often as the cat.
#
# </details>
# <details name="sides"><summary>It has learned all sentences by heart.</summary>
#
# Before the clocks came it could not, and the clocks alone leave a tie.
#
# </details>
# <details name="sides"><summary>Its matrices change the clocks first.</summary>
#
# Right. Every query goes through $W_Q$ and every key through $W_K$. Only the clocks as they are come out even. (And the word
# *drank* can ask for a place, whatever its own clock shows.)
#
# </details>

# %% [markdown]
# ## A shift is a rotation
#
# Between two clocks stands $W_Q W_K^\top$, which each head
# learns. What could it be? Say it moved every clock back by one word: then *drank* would ask as if it stood where *cat* stands.
# Is there one matrix that does this at every position? Ask least squares, which knows neither sines nor clocks, and
# give it 400 positions. (Positions are rows, so the matrix stands on their right.) Of its 8 × 8 numbers, how many are
# not zero?
#
# <details name="sixteen"><summary>All 64.</summary>
#
# Then the new time of one clock would depend on the others. But each clock turns by itself.
#
# </details>
# <details name="sixteen"><summary>16.</summary>
#
# Right. To turn a hand takes four numbers, two cosines and two sines of the angle. Four clocks make four such blocks.
#
# </details>
# <details name="sixteen"><summary>8.</summary>
#
# With one number each, a sine could only be stretched. To turn, it needs its cosine, too.
#
# </details>

# %%
positions = sinusoidal_code(400, 8)                                # (400, 8)
back = torch.linalg.lstsq(positions[1:], positions[:-1]).solution  # (8, 8)
hands = [f"{part} {clock}" for clock in (1, 2, 3, 4) for part in ("sin", "cos")]
rows = [[x if abs(x) > 1e-6 else "·" for x in row] for row in back.tolist()]
display.show(rows, hands, hands, decimals=3)

# %% tags=["proof"]
torch.testing.assert_close(positions[1:] @ back, positions[:-1])
turns = []
for i in range(4):
    angle = torch.tensor(1 / 10000 ** (2 * i / 8), dtype=torch.float64)
    cosine, sine = angle.cos(), angle.sin()
    turns.append(torch.stack([cosine, sine, -sine, cosine]).view(2, 2))
torch.testing.assert_close(back, torch.block_diag(*turns), atol=1e-6, rtol=0)
assert sum(x != "·" for row in rows for x in row) == 16
print("✓ The matrix moves all 399 positions: it turns each clock back by one word.")

# %% [markdown]
# One matrix for all places, and it is made of rotations. Let *drank* ask through it:

# %% tags=["fold-input"]
turned = code[2] @ back @ code[:4].T  # (8,) x (8, 8) x (8, 4) -> (4,)
display.show([alike, turned], ["as it is", "turned back"], words, corner="drank asks")

# %% [markdown]
# The tie is gone, and the cat wins. For this the authors chose sines and cosines: so a model, they guess, easily
# learns to look *at a certain distance*. (A head of width d can turn d/2 clocks in this way.) Has ours? In its sentences, *drank* stands third. Now start all
# clocks five places later: the words stand as far from each other as before. How many of the drinkers does the layer name?
#
# <details name="later"><summary>All: no distance has changed.</summary>
#
# So it would be if it had learned a distance.
#
# </details>
# <details name="later"><summary>Far fewer.</summary>
#
# Right. And with other starts it even names the other word: look at 3 and 4.
#
# </details>


# %% tags=["fold-input"]
@torch.no_grad()
def named_from(table: nn.Module, layer: nn.Module, start: int) -> list[float]:
    """Give the shares of drinkers and drinks that are named with clocks from a place."""
    places = sinusoidal_code(start + 4, 24)[start:].float()  # (4, 24)
    drank = layer(table(STORIES) + places)[:, 2]             # (56, 24)
    said = (drank @ table.weight.T).argmax(-1)               # (56,)
    return [(said == STORIES[:, i]).float().mean().item() for i in (1, 3)]


starts = [named_from(table, layer, start) for start in range(9)]
assert starts[0][0] > 0.95
assert starts[3][0] < 0.6
assert starts[3][0] < starts[6][0]  # after half a turn, and after a whole one
shown = dict(zip(("drinker", "drink"), zip(*starts)))
display.show(shown, columns=[*map(str, range(9))], corner="named, clocks start at")

# %% [markdown]
# Three or four places later, the layer names the *drink*: by then the fastest hand has gone half round. After six or seven, a whole
# turn, most drinkers are back. So it goes by where the fast hands point, and not by a distance. The rotation was there to be
# learned, but what a layer learns of it depends on what its texts ask for. So train with texts that begin
# at all the places that you will use, or let [distance alone enter the scores](20_positions.ipynb).

# %% [markdown]
# ## Adding the position
#
# A word's clocks are added to its features. Does that not spoil the word? Less than it seems:
# models have hundreds of features, and in a short text a clock shows nearly what its neighbour shows. Together they leave
# most directions to the words, and the embeddings are learned, so they can use those.
#
# A model can also learn a vector for each position. In the paper this worked about equally well, but it
# learns nothing for a position that no training text had.

# %% [markdown]
# <!-- deeper: How much room the clocks take -->
# ### Going deeper: How much room the clocks take
#
# The longer the text, the further neighbouring clocks part. For 100 words, most directions are left to the words; for 4000,
# little more than half.

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
# <!-- /deeper -->

# %% [markdown]
# <!-- deeper: What a score sees of the distance -->
# ### Going deeper: What a score sees of the distance
#
# A *score* compares sums, a word $w$ plus a clock $c$, and
# not directly: the query's sum passes through $W_Q$ and the key's, $w' + c'$, through $W_K$. That makes four terms:
#
# $$\begin{gathered} \textcolor{#0067a5}{w}\,W_Q W_K^\top \textcolor{#0067a5}{w'}^\top
# + \textcolor{#0067a5}{w}\,W_Q W_K^\top \textcolor{#b34700}{c'}^\top \\
# {} + \textcolor{#b34700}{c}\,W_Q W_K^\top \textcolor{#0067a5}{w'}^\top
# + \textcolor{#b34700}{c}\,W_Q W_K^\top \textcolor{#b34700}{c'}^\top \end{gathered}$$
#
# Only the first knows nothing of places. In the second and third, a word meets a clock, and both terms change when the
# sentence moves. And in the last the two clocks do not meet as they are: the matrices come between. Draw two at random,
# and look at this term for all pairs of places three apart:

# %%
torch.manual_seed(9)
W_Q, W_K = torch.randn(2, 128, 128).double() / 128**0.5
code = sinusoidal_code(64, 128)         # (64, 128)
queries, keys = code @ W_Q, code @ W_K  # (64, 128), (64, 128)
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
# The paper uses one table at both ends of the model: at the input it turns ids into vectors,
# and at the output, transposed, it turns the last vectors into a score for each word.
#
# A score adds up e products of a number from the table and one from the last norm, which has
# size one. Some are positive and some negative, so the sum is only about $\sqrt e$ times as large as one of
# them, [as in *One head*](01_one_head.ipynb#cell-id=deeper-why-divide-by-the-root). For scores of size one, the table
# needs numbers of size $1 / \sqrt e$. At the input so small a word would drown in its position, so
# there it is multiplied by $\sqrt e$. The paper gives no reason; this one fits.


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
# Now everything is there. Besides its words, the vocabulary has three tokens: padding, written `·`, *start* and *end*. Their
# ids are 0, 1 and 2. Every answer begins with *start*, so that there is a row that scores its first word. And
# *the cat was thirsty*, filled up with padding, is

# %% tags=["fold-input"]
MORE = ["dog", "tea", "bird", "soup", "mouse", "juice"]
WORDS = ["·", "start", "end", *one.WORDS, "sweet", *MORE]
PAD, START, END = 0, 1, 2


def ids(text: str) -> list[int]:
    """Give the ids of words."""
    return [WORDS.index(word) for word in text.split()]


print(ids("the cat was thirsty · · · ·"))

# %% [markdown]
# These are the parts, not yet connected:


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
# `(x, memory, padding)`, and both give the next `x`; `padding` is True where `src` is padding. (What is written needs no such mask: its padding stands on the right, where the causal mask inside the layer hides it. In training it also has to stay out of the loss, by `ignore_index`; here all answers are equally long.)


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
# That is the model of the paper, but for its size, its dropout, and the biases that its attention has here. (In the package it is
# `Seq2SeqTransformer`, which later chapters use.) Run a small one. It reads our
# sentence and a shorter one, filled up with padding, and each answer has come as far as *the cat*:

# %% tags=["fold-input"]
torch.manual_seed(9)
model = Transformer(vocab=len(WORDS), e=24, h=4, depth=2, wide=48)
short = "the cat was thirsty · · · ·"
src = torch.tensor([ids(read), ids(short)])     # (b, m)
tgt = torch.tensor([ids("start the cat")] * 2)  # (b, n)
memory = model.encode(src)
scores = model(src, tgt)
print("memory", tuple(memory.shape))
print("scores", tuple(scores.shape))

# %% [markdown]
# At each place that is written, every token of the vocabulary gets a score, its **logit**.

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
# <details name="untrained"><summary>Nothing: its likeliest word is the end.</summary>
#
# *End* has a row in the table like any other, and no advantage.
#
# </details>
# <details name="untrained"><summary>Words at random.</summary>
#
# The weights are random, but the same table stands at both ends, and that decides.
#
# </details>
# <details name="untrained"><summary>The same word, again and again.</summary>
#
# Right. The table that scores a vector is the one that the vector came from, so to the
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
# In training the right answer goes in as a whole, and in one call each place scores the word that follows: what is to
# come out is what goes in, shifted by one. This is **teacher forcing**.

# %% tags=["fold-input"]
answer = [WORDS[i] for i in wanted[0]]
display.show([answer[:-1], answer[1:]], ["goes in", "is to come out"], range(1, 6))

# %% [markdown]
# The word to come out at place 2 goes in at place 3, and the causal mask hides place 3 from place 2.


# %%
def teach(model: nn.Module, asked: Tensor, wanted: Tensor, ask: Tensor) -> list[Tensor]:
    """Train a model, and note what it answers on the way."""
    optimizer, said = torch.optim.Adam(model.parameters(), lr=0.003), []
    for step in range(STEPS[-1] + 1):
        if step in STEPS:
            said.append(greedy(model, ask, max_new=5))
        scores = model(asked, wanted[:, :-1])  # (108, 5, v)
        loss = F.cross_entropy(scores.flatten(0, 1), wanted[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return said


STEPS = [0, 20, 40, 60, 120]
ask = torch.tensor([story(*x)[0] for x in every])  # (128, 8)
said = teach(model, asked, wanted, ask)
for x in kept:
    answer = said[-1][every.index(x)].tolist()
    print(*(WORDS[i] for i in story(*x)[0]), "→", *(WORDS[i] for i in answer[1:]))

# %% tags=["proof"]
for x in kept:
    assert said[-1][every.index(x)].tolist() == story(*x)[1]
    assert said[0][every.index(x)].tolist() != story(*x)[1]
ours = [said[step][every.index(kept[0])].tolist() for step in (1, 2)]
assert ours[0][1:4] == ids("the the the")
assert ours[1][2:4] == ids("soup was")
with torch.no_grad():
    memory = model.encode(asked[:1])
    at_once = model.decode(wanted[:1], memory)  # (1, 6, v)
    calls = [model.decode(wanted[:1, : i + 1], memory)[:, -1] for i in range(6)]
torch.testing.assert_close(at_once, torch.stack(calls, 1))
print("✓ All four are right; and words scored at once are scored as one after the other.")

# %% [markdown]
# It has finished the sentence of the picture, and where the two nouns have changed places, it says that the milk was thirsty.
#
# Go back in its training: after 20 steps it stammers, and after 40 it says that the soup was thirsty, though nobody has
# mentioned soup. *Without* is the same model, trained again with no clocks. How many of the four sentences
# will it get right? Guess, then press.
#
# <details name="deaf"><summary>None: it writes only nonsense.</summary>
#
# Its sentences are whole: of what it writes, the causal mask tells earlier words from later ones.
#
# </details>
# <details name="deaf"><summary>Two: it gives both orders the same answer.</summary>
#
# Right. What it reads is a bag of words again, and of two nouns it settles on one, in whatever order they come.
#
# </details>
# <details name="deaf"><summary>All four: the causal mask tells it the order.</summary>
#
# The mask is in the decoder. The encoder, which reads, has none.
#
# </details>


# %% tags=["fold-input"]
class NoClocks(Words):
    """The table at both ends, and no time on a word."""

    def forward(self, ids: Tensor) -> Tensor:
        return self.table[ids] * math.sqrt(self.table.size(1))


def without(kind: type[nn.Module], seed: int) -> nn.Module:
    """Make a Transformer whose words carry no clocks."""
    torch.manual_seed(seed)
    model = kind(vocab=len(WORDS), e=24, h=4, depth=2, wide=48)
    model.words = NoClocks(len(WORDS), 24)
    return model


def words_of(row: list[int]) -> str:
    """Give an answer's words, without start and from end on."""
    told = [WORDS[i] for i in row[1:]]
    return " ".join(told[: told.index("end")] if "end" in told else told)


# %% tags=["fold-input"]
told, found = [said, teach(without(Transformer, 9), asked, wanted, ask)], {}
for x in every:
    a, b, was = x
    both = [every.index(x), every.index((b, a, was))]
    where = (NOUNS.index(a), NOUNS.index(b), int(was == "sweet"))
    wished = [words_of(story(*every[i])[1]) for i in both]
    for which, answers in enumerate(told):
        for step, rows in enumerate(answers):
            wrote = [words_of(rows[i].tolist()) for i in both]
            found[which, step, *where] = [wished[0], wrote[0], wished[1], wrote[1]]
display.strips(
    [
        display.Choice("clocks", ["with clocks", "without"], 0),
        display.Choice("steps", [str(step) for step in STEPS], 4),
        display.Choice("first noun", NOUNS, 0, "list"),
        display.Choice("second noun", NOUNS, 1, "list"),
        display.Choice("last word", ["thirsty", "sweet"], 0, "list"),
    ],
    [[0], ["after", 1, "steps"], ["the", 2, "drank", 3, "because it was", 4]],
    [
        *(display.Strip("right"), display.Strip("it writes", 0)),
        *(display.Strip("nouns swapped: right"), display.Strip("it writes then", 2)),
    ],
    found,
    split=" ",
    room=(290, 480),
    name="who-was-thirsty",
)

# %% tags=["proof"]
finals = [told[1][-1]]
for seed in (1, 2):
    finals.append(teach(without(Transformer, seed), asked, wanted, ask)[-1])
for final in finals:
    right = [row == story(*x)[1] for x, row in zip(every, final.tolist())]
    counts = [sum(right[every.index(x)] for x in part) for part in (taught, kept)]
    assert counts == [54, 2]
print("✓ Without clocks, from three starts: 54 of 108 sentences, and 2 of the 4 kept away.")


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
# You have written the Transformer, from token ids to scores, and it answers. Without clocks it can only toss a coin for who drank; with them, it knows.
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
# > The dot product of two clocks depends on their distance alone. $W_Q$ and $W_K$, which come between, can turn them, and so
# > tell before from after.
#
# This model knows one kind of sentence. [The next chapter](10_a_little_world.ipynb) makes a smaller one from
# the same parts, and teaches it to tell stories.
