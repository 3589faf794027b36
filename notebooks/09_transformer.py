# %% [markdown]
# # The Transformer
#
# *How does a model know which word comes first?*
#
# *18 minutes and 8 of exercises. Afterwards you have written the whole Transformer, and can say how it
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
# that run at different speeds. Then you put everything together, from the layers of the last chapter,
# in fewer than thirty lines of your own. That is the whole Transformer of 2017. Its encoder, on
# the left, reads a sentence. Its decoder, on the right, writes a shorter one, word by word: it has come as far
# as *the cat was*, and *thirsty* is next. This chapter adds what stands outside the dashed frames.

# %% tags=["fold-input"]
import math

import torch
import torch.nn.functional as F
from matplotlib.colors import to_rgba
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

# %%
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
# once, to name the drinker: the row of *drank* scores every word. The argument `places` will come in later; here it is
# 0. What share does the layer get right, of the very sentences that it has seen 200 times?


# %%
def who_drank(stories: Tensor, places: Tensor | float) -> float:
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
print(f"{who_drank(stories, places=0):.2f} of the drinkers")

# %% [markdown]
# Half of them. It has learned that one of the two nouns drank, and that is as far as it gets: both orders of a pair are
# one and the same bag of words, so whatever it answers to one of them, it answers to the other.

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
# With e = 512, the slowest clock takes about 60000 words for one turn. This is the **sinusoidal** positional encoding. Here is its code.
# In the shapes of these lines, and of no others in this chapter, `...` stands for the e / 2 clocks:

# %%
from annotated_attention import sinusoidal_code

display.annotated(sinusoidal_code)

# %% [markdown]
# With e = 8 there are four clocks, and each turns ten times more slowly than the one before:

# %%
code = sinusoidal_code(100, 8)  # (100, 8)
hands = [f"{part} {clock}" for clock in (1, 2, 3, 4) for part in ("sin", "cos")]
some = [0, 1, 2, 10, 50]
display.show(code[some], some, hands, corner="position")

# %% [markdown]
# The figure draws these numbers as hands. A hand starts at the top and turns
# clockwise. The sine is how far its tip lies to the right, and the cosine is how far the tip lies
# up. If the figure has sliders, try two things:
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
# two positions are, and on nothing else. The line with the tick asserts this, for 64 positions and 64 clocks.

# %%
code = sinusoidal_code(64, 128)  # (64, 128)
alike = code @ code.T            # (64, 128) x (128, 64) -> (64, 64)
distances = [0, 1, 2, 4, 8, 16, 32]
display.show(alike[:1, distances], ["dot product"], distances, corner="distance")

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
# one fixed matrix moves every position by that distance. Find the matrix that moves a position
# three words ahead, by least squares over 400 positions, without using the formula. (Positions are rows, so it
# stands on their right.)

# %% tags=["proof"]
positions = sinusoidal_code(400, 8)                                 # (400, 8)
shift = torch.linalg.lstsq(positions[:-3], positions[3:]).solution  # (8, 8)
torch.testing.assert_close(positions[:-3] @ shift, positions[3:])
turns = []
for i in range(4):
    angle = torch.tensor(3 / 10000 ** (2 * i / 8))
    cosine, sine = angle.cos(), angle.sin()
    turns.append(torch.stack([cosine, -sine, sine, cosine]).view(2, 2).double())
torch.testing.assert_close(shift, torch.block_diag(*turns), atol=1e-6, rtol=0)
print("✓ The matrix moves all 397 positions: it turns each clock by three words.")

# %% [markdown]
# One matrix moves every position, up to rounding, and it is made of rotations: for each clock a block of four numbers
# that turns its hand by the angle of three words, and zeros elsewhere. And turning two vectors by the same angles does
# not change their dot product. That is why the three curves are one.

# %% [markdown]
# <!-- deeper: The matrix -->
# ### Going deeper: The matrix
#
# As least squares found it, from the positions alone. A dot is a zero:

# %%
rows = [[x if abs(x) > 1e-6 else "·" for x in row] for row in shift.tolist()]
display.show(rows, hands, hands, decimals=3)

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Adding the position
#
# Row p of the table of clocks is added to the word at position p. Does that not spoil the word? In a word of 4
# numbers it does. Models have hundreds, and the clocks fill few of those directions: clocks of nearly the same
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
# Does an attention *score*, too, depend on the distance alone? It compares sums, a word $w$ plus a clock $c$, and
# not directly: the query's sum passes through $W_q$ and the key's, $w' + c'$, through $W_k$. That makes four terms:
#
# $$\begin{gathered} \textcolor{#0067a5}{w}\,W_q W_k^\top \textcolor{#0067a5}{w'}^\top
# + \textcolor{#0067a5}{w}\,W_q W_k^\top \textcolor{#b34700}{c'}^\top \\
# {} + \textcolor{#b34700}{c}\,W_q W_k^\top \textcolor{#0067a5}{w'}^\top
# + \textcolor{#b34700}{c}\,W_q W_k^\top \textcolor{#b34700}{c'}^\top \end{gathered}$$
#
# Only the first knows nothing of places. In the second and third, a word meets a clock, and both change when the
# sentence moves. And in the last the two clocks do not meet as they are: the matrices come between. Draw two at random,
# and look at this term for all pairs of places three apart:

# %%
W_q, W_k = torch.randn(2, 128, 128).double() / 128**0.5
queries, keys = code @ W_q, code @ W_k  # (64, 128), (64, 128)
term = (queries @ keys.T).diagonal(3)   # (61,)
print(f"from {term.min():.1f} to {term.max():.1f}")

# %% [markdown]
# The same distance, and very different scores. So the clocks make it easy to look three words back, but nothing forces a model to
# see the distance alone. The chapter [Positions](20_positions.ipynb) begins there, and turns queries and keys instead.
#
# A model can also learn a vector for each position, and the paper found that this works about equally well. But a
# learned vector is of use only if some training text had a word at that position. The clocks have numbers for
# every position, though a model that was trained on shorter texts need not know what to do with them.

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
# wants small numbers in the table, of size $1 / \sqrt e$: each of its scores adds up e products. At
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
# Besides its words, the vocabulary has three tokens: padding, *start* and *end*. Every answer begins
# with *start*, so that there is a row that scores its first word.

# %%
WORDS = ["·", "start", "end", *one.WORDS]  # id 0 is padding
PAD, START, END = 0, 1, 2

# %% [markdown]
# Now everything is there. Read the class beside the picture at the top: `encode` is
# its green half, `decode` its blue half, and what passes from one to the other is the memory. (The
# padding mask of what is read is needed in both. What is written needs none: its padding stands on the right,
# where the causal mask hides it.)


# %%
class Transformer(nn.Module):
    """Read the ids of one sentence, and score the next word at each place of another."""

    def __init__(self, vocab: int, e: int, h: int, depth: int, wide: int) -> None:
        super().__init__()
        self.words = Words(vocab, e)
        self.encoder = nn.ModuleList(layers.EncoderLayer(e, h, wide) for _ in range(depth))
        self.decoder = nn.ModuleList(layers.DecoderLayer(e, h, wide) for _ in range(depth))

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


# %% [markdown]
# This is the model of the paper, whose sizes were e = 512, h = 8, six layers on each side and 2048 inside the
# feed-forward network. Dropout is left out, and attention has biases here, as in PyTorch's class. (The package has it as `Seq2SeqTransformer`, with dropout and
# more settings, and later chapters use that.) Run a small one. It reads our sentence and a second, shorter one, and
# the answer written so far is *start*, *the*, *cat*:

# %%
torch.manual_seed(9)
model = Transformer(vocab=11, e=24, h=4, depth=2, wide=48)
src = torch.tensor([[3, 4, 5, 6, 7, 8, 9, 10], [3, 4, 9, 10, 0, 0, 0, 0]])  # (b, m)
tgt = torch.tensor([[START, 3, 4], [START, 3, 4]])                          # (b, n)
memory = model.encode(src)
scores = model(src, tgt)
print("memory", tuple(memory.shape))
print("scores", tuple(scores.shape))

# %% [markdown]
# At each of the three places that are written, the model gives each of the eleven tokens a score, its **logit**; the
# softmax of the picture makes probabilities of them, which changes nothing in their order. The vectors are e
# wide all the way; only the feed-forward networks widen them for a moment. And behind the cross-attention no shape
# contains the length of what was read.

# %% [markdown]
# <!-- deeper: The same as the package's and PyTorch's -->
# ### Going deeper: The same as the package's and PyTorch's
#
# `annotated_attention.Transformer` and `torch.nn.Transformer` are the two stacks without the ends. Give them your
# weights, put them between your `Words`, and leave out the final norms that both add. Scores and gradients must
# agree.

# %% tags=["proof"]
own = Transformer(11, 24, 4, 2, 48).double()
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
# `Seq2SeqTransformer` checks what it is given. It has a table for each end unless you pass
# `share_embeddings=True`, and it ends each stack in a norm unless you pass `final_norm=False`. These are its lines
# for yours:

# %%
from annotated_attention import Seq2SeqTransformer

steps = ("forward", "encode", "decode", "_embed", "greedy")
display.annotated(*(getattr(Seq2SeqTransformer, step) for step in steps))

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Writing
#
# A row of the scores belongs to a word that is written (the first to *start*) and scores the word after it. Here are
# the three rows of our first sentence (blue is above zero, orange below):

# %% tags=["fold-input"]
drawing, (ax,) = display.panels(340, 150)
sizes = (scores[0] / scores[0].abs().max()).tolist()
inks = [[display.COLOURS["h" if a < 0 else "n"] for a in row] for row in sizes]
cells = [[to_rgba(ink, 0.9 * abs(a)) for ink, a in zip(*pair)] for pair in zip(inks, sizes)]
ax.pcolormesh(cells)
ax.set_yticks([0.5, 1.5, 2.5], [WORDS[i] for i in tgt[0]])
ax.set_xticks([i + 0.5 for i in range(11)], WORDS, rotation=60)
ax.tick_params(length=0, labelsize=12)
ax.set(ylim=(3, 0))
said = ", ".join(
    f"after {WORDS[i]} {WORDS[j]}" for i, j in zip(tgt[0], scores[0].argmax(1))
)
display.finish(
    drawing,
    name="scores-of-three",
    alt=f"The scores of eleven tokens in three rows, as coloured cells. Highest: {said}.",
)

# %% [markdown]
# In each row the strongest cell is the word's own: the table that scores a vector is the one that the vector came from, so to the
# untrained model each word is its own likeliest successor.
#
# To write, begin with *start*, take the likeliest next word, append it, and ask again. This is called
# **greedy decoding**. What will this model write?


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


for row in greedy(model, src, max_new=5):
    print(*(WORDS[i] for i in row))

# %% [markdown]
# Each further word costs a call. In training one call is enough: the whole answer goes in at once, and the causal mask
# keeps each row from seeing a later word, so each place gets what it would get while writing. Is it so? Compare, for an
# answer of five different words.

# %% tags=["proof"]
n = 5
answer = torch.tensor([[START, 3, 4, 9, 10]])  # (1, n)
memory = model.encode(src[:1])                 # (1, 8, 24)
at_once = model.decode(answer, memory)         # (1, n, 11)
calls = [model.decode(answer[:, : i + 1], memory)[:, -1] for i in range(n)]
one_by_one = torch.stack(calls, 1)  # (1, n, 11)
torch.testing.assert_close(at_once, one_by_one)
assert torch.equal(at_once.argmax(-1), answer)
print("✓ The scores of all words at once are those of one word after the other.")

# %% [markdown]
# A model that forgets the mask would find the word that it has to predict in its own input. [Training](12_training.ipynb)
# shows what becomes of a model that sees its answer.

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
# biases of its attention.
# You have checked that an encoder layer knows no order without positions, and that with positions a
# shift is a rotation. You have also checked that no row of the decoder sees a later word.
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
# The model only repeats itself so far. [The next chapter](10_a_little_world.ipynb) makes a smaller one from
# the same parts, and teaches it to tell stories.
