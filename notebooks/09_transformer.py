# %% [markdown]
# # The Transformer
#
# *How does a model know which word comes first?*
#
# *22 minutes and 8 of exercises. Afterwards you can put embeddings, positions and both stacks
# together.*
#
# > the cat drank the milk
#
# > the milk drank the cat
#
# Both sentences have the same words, and you know at once who drank whom. Attention does not: it
# compares words with words and takes no account of where they stand. Nor does any other part of an
# [encoder layer](08_transformer_layers.ipynb). In a decoder, the causal mask tells earlier words
# from later ones, and a stack of such layers can learn from that how far back a word stands ([some models
# have nothing else](20_positions.ipynb)). Here the model is told: each word's place is written into the
# word's vector, before the first layer.
#
# In this chapter you do that with clocks: you stamp each word with a time, shown on several clocks
# that run at different speeds. Then everything comes together. You put embeddings and positions
# before the two stacks of layers, and a logit for each possible next word after them. That is the
# whole Transformer of 2017. The chapter ends with a question that its positions leave open.

# %% tags=["hide-input"]
import math

import torch
from torch import Tensor, nn

from annotated_attention import TransformerEncoderLayer
from annotated_book import chapters, display

display.chapter_map(
    "project in", "split", "score", "mask", "softmax", "mix", "merge", "project out"
)

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
one = chapters.load("01_one_head")
it, cat = one.WORDS.index("it"), one.WORDS.index("cat")
torch.manual_seed(9)
layer = TransformerEncoderLayer(4, 2, 16, dropout=0.0, batch_first=True)
traded = torch.tensor([0, 3, 2, 1, 4, 5, 6, 7])  # cat and milk

before = layer(one.EMBEDDINGS)         # (n, e)
after = layer(one.EMBEDDINGS[traded])  # (n, e)
sentences = [" ".join(one.WORDS[i] for i in order) for order in (range(8), traded)]
numbers = ["1st", "2nd", "3rd", "4th"]
display.show(torch.stack([before[it], after[it]]), sentences, numbers, corner="“it” in")

# %% tags=["proof"]
torch.testing.assert_close(after, before[traded])
print(
    "✓ All other words, too, get the numbers that they got before, wherever they stand now."
)

# %% [markdown]
# The line with the tick, which opens to its code, says more: it is so for every word.
# This layer cannot know who drank what. Training does not help either, because no weight of the
# layer belongs to a place.

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
# In the shapes at the ends of the lines, `...` stands for the e / 2 clocks:

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
# Attention scores are dot products. So what does the dot product of two positions say? Each clock
# adds one product of sines and one product of cosines. Together they are the cosine of the angle
# between the two hands:
#
# $$\sin\alpha \sin\beta + \cos\alpha \cos\beta = \cos(\alpha - \beta)$$
#
# That angle is the clock's speed times the distance. So the dot product depends on how far apart
# two positions are, and on nothing else. The cell asserts this for 64 positions and 64 clocks.

# %%
code = sinusoidal_code(64, 128)  # (64, 128)
alike = code @ code.T            # (64, 128) x (128, 64) -> (64, 64)
distances = [0, 1, 2, 4, 8, 16, 32]
display.show(alike[:1, distances], ["dot product"], distances, corner="distance")

# %% tags=["proof"]
for distance in range(64):
    diagonal = alike.diagonal(distance)  # (...,)
    torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))
print("✓ Each dot product depends on the distance alone, for all 64 positions.")

# %% tags=["fold-input"]
drawing, (ax,) = display.panels(560, 190)
for position, letter, style in ((0, "n", "-"), (20, "h", "--"), (45, "m", ":")):
    label = f"position {position}"
    ax.plot(alike[position], style, color=display.COLOURS[letter], label=label)
ax.set(xlabel="other position", ylabel="dot product", xlim=(0, 63))
ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
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
# three words ahead, by least squares over 400 positions, without using the formula.

# %%
positions = sinusoidal_code(400, 8)  # (400, 8)
k = 3
shift = torch.linalg.lstsq(positions[:-k], positions[k:]).solution  # (8, 8)
rows = [[x if abs(x) > 1e-6 else "·" for x in row] for row in shift.tolist()]
display.show(rows, hands, hands, decimals=3)

# %% tags=["proof"]
torch.testing.assert_close(positions[:-k] @ shift, positions[k:])
print("✓ One matrix leads from every position to the one three words on.")

# %% [markdown]
# One matrix moves all 397 positions by three, up to rounding. It has a block of four numbers for each clock, and zeros elsewhere. Each block is a rotation. Read its
# angle off, and compare it with the angle that the clock's hand covers in three words:

# %% tags=["fold-input"]
rows = {}
for i in range(4):
    block = shift[2 * i : 2 * i + 2, 2 * i : 2 * i + 2]  # (2, 2)
    angle = torch.atan2(block[1, 0], block[0, 0])
    cosine, sine = angle.cos(), angle.sin()
    turned = torch.stack([cosine, -sine, sine, cosine]).view(2, 2)
    torch.testing.assert_close(block, turned)
    hand = math.remainder(k / 10000 ** (2 * i / 8), 2 * math.pi)  # between -pi and pi
    rows[f"clock {i + 1}"] = [angle, hand]
    assert abs(angle - hand) < 1e-6
display.show(rows, columns=["turns by", f"its hand moves in {k} words"], decimals=4)

# %% [markdown]
# A shift turns all hands, and turning two vectors by the same angles does not change their dot
# product. The last section found the same result.
#
# ## Adding the position
#
# `PositionalEncoding` keeps the numbers of all positions as a table, and adds row p of the table to
# the word at position p. The table is a **buffer**: it moves to the GPU with the model, and no
# optimiser touches it. The table is not saved with the weights (`persistent=False`): the formula can
# always make it again.
#
# Does adding not spoil the word? In a word of 4 numbers it does. Models have hundreds, and the clocks fill few
# of those directions: clocks of nearly the same speed show nearly the same time, so one says little that its
# neighbour does not. The longer the text, the further they part. Most directions are left to the words, and the
# embeddings, which are learned, can use those.

# %% tags=["proof"]
needed = {}
for length in (100, 1000):
    table = sinusoidal_code(length, 512)
    spread = torch.linalg.svdvals(table - table.mean(0)).square().cumsum(0)
    needed[length] = int((spread < 0.99 * spread[-1]).sum()) + 1
assert needed[100] < 50
assert needed[1000] < 200
counts = " and ".join(f"{found} for {length}" for length, found in needed.items())
print(f"✓ Of 512 directions, few hold 99 % of what tells positions apart: {counts}.")

# %% [markdown]
# Now *cat* and *milk* trade places again:

# %%
from annotated_attention import PositionalEncoding

encoding = PositionalEncoding(4, dropout=0.0, max_len=8, batch_first=True)
before = layer(encoding(one.EMBEDDINGS))           # (n, e)
after = layer(encoding(one.EMBEDDINGS[traded]))    # (n, e)
changes = (after[traded] - before).abs().amax(-1)  # (n,)
print(f"'it' changes by up to {changes[it]:.2f}, 'cat' by up to {changes[cat]:.2f}")
print("parameters:", list(encoding.parameters()), "saved:", list(encoding.state_dict()))
try:
    encoding(torch.zeros(1, 9, 4))
except ValueError as error:
    print("ValueError:", error)

# %% [markdown]
# *Cat* has a different vector now, because its place has changed. The row of *it* reacts to this
# change, if only a little in this untrained layer. A ninth word has no row in the table, so it
# raises an error.

# %% [markdown]
# <!-- deeper: Positions along the wrong axis -->
# ### Going deeper: Positions along the wrong axis
#
# One mistake raises no error: an encoding for sequence-first data, `(n, b, e)`, takes batch-first
# data, too. Send three copies of the sentence through an encoding for each layout. The numbers that
# are added should differ from word to word, and be the same in all three sentences:

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
# A model can also learn a vector for each position, as `LearnedPositionalEncoding` does. The paper
# found that this works about equally well. But a learned vector is of use only if some training
# text had a word at that position. The clocks have numbers for every position, but a model that was
# trained on shorter texts need not [know what to do with them](20_positions.ipynb).
#
# ## Embeddings, and why times √e
#
# Each word has a row in a learned table, its **embedding**, and the row number is its **token id**.
# The paper uses the same table at both ends of the model: at the input it turns ids into vectors,
# and at the output, transposed, it turns the last vectors into a score for each word. The output
# wants small numbers in the table, of size $1 / \sqrt e$: each of its scores adds up e products. At
# the input so small a word would drown in the position that is added to it, so the word is
# multiplied by $\sqrt e$. The paper gives no reason; this one fits.

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
# The whole model has two embeddings, positions, the two stacks of [the last
# chapter](08_transformer_layers.ipynb), and a projection to the scores. The listing leaves out the
# constructor: `scale` is √e, `positions` a `PositionalEncoding`, `transformer` holds the two stacks,
# and `project` is a linear layer with one row per word of the vocabulary. `_look_up` picks the rows of a table and checks the ids;
# `_padding(ids)` says which ids are padding. In the shape of the scores, the dots stand for the
# size of the vocabulary.

# %%
from annotated_attention import Seq2SeqTransformer

steps = ("forward", "encode", "decode", "_embed")
display.annotated(*(getattr(Seq2SeqTransformer, step) for step in steps))

# %% [markdown]
# The model makes its own masks: it reads from the ids which tokens are padding, and its decoder
# uses a causal mask. Its three tables, two embeddings and the projection, are separate; the
# embeddings are drawn with $1 / \sqrt e$ all the same. Its layers are post-LN, and each stack ends in
# a norm, as in PyTorch. With `share_embeddings=True` and `final_norm=False` it is the model of the
# paper.
#
# Besides the words, the vocabulary has three tokens: padding, *start* and *end*. Every answer
# begins with *start*, so that there is a row that scores its first word. For data, take our
# sentence and a second, shorter one. For each sentence, the answer written so far is *start*,
# *the*, *cat*:

# %%
WORDS = ["·", "start", "end", *one.WORDS]  # id 0 is padding
PAD, START, END = 0, 1, 2
src = torch.tensor([[3, 4, 5, 6, 7, 8, 9, 10], [3, 4, 9, 10, 0, 0, 0, 0]])  # (b, m)
tgt = torch.tensor([[START, 3, 4], [START, 3, 4]])                          # (b, n)

torch.manual_seed(9)
SIZES = (11, 11, 24, 4, 2, 2, 48)  # two vocabularies, e, h, layers (twice), feed-forward
model = Seq2SeqTransformer(*SIZES, dropout=0.0, pad=PAD, max_len=20)
scores = model(src, tgt)  # (b, n, 11)
print(*(WORDS[i] for i in src[1]), "-> scores", tuple(scores.shape))

# %% [markdown]
# At each of the three places, the model gives each of the eleven tokens a score. What happens between the ids and
# the scores? Hooks note the shape of each part's output, and the figure draws these shapes.

# %% tags=["fold-input"]
import itertools

from matplotlib.colors import to_rgba

PARTS = {
    "embed_src": "read, embedded",
    "encoder.layers.0": "read, after layer 1",
    "encoder": "memory",
    "embed_tgt": "written, embedded",
    "decoder.layers.0.self_attn": "self-attention",
    "decoder.layers.0.multihead_attn": "cross-attention",
    "decoder.layers.0.linear1": "widened",
    "decoder.layers.0": "after layer 1",
    "decoder.layers.1": "after layer 2",
    "project": "scores",
}
ADDED = ["read, + positions", "written, + positions"]
SEEN: dict[str, tuple[int, ...]] = {}


def note(*boxes: str):
    """Make a hook that notes the shape of what a part returns; each call has its box."""
    calls = iter(boxes)

    def hook(module, args, output):
        tensor = output[0] if isinstance(output, tuple) else output
        SEEN[next(calls)] = tuple(tensor.shape)

    return hook


# %% tags=["fold-input"]
parts = {name.removeprefix("transformer."): part for name, part in model.named_modules()}
hooks = [parts[name].register_forward_hook(note(box)) for name, box in PARTS.items()]
hooks.append(model.positions.register_forward_hook(note(*ADDED)))
model(src, tgt)
for hook in hooks:
    hook.remove()
SEEN.update({"ids read": tuple(src.shape), "ids written": tuple(tgt.shape)})

LEFT = ["ids read", "read, embedded", ADDED[0], "read, after layer 1", "memory"]
RIGHT = [
    "ids written",
    "written, embedded",
    ADDED[1],
    "self-attention",
    "cross-attention",
    "widened",
    "after layer 1",
    "after layer 2",
    "scores",
]
places = {box: (0, row) for row, box in enumerate(LEFT)}
places |= {box: (1, row) for row, box in enumerate(RIGHT, 1)}
steps = [(*pair, "") for line in (LEFT, RIGHT) for pair in itertools.pairwise(line)]
steps += [("memory", "cross-attention", "keys and values")]
letters = {2: "b", 8: "m", 3: "n", 24: "e", 48: "2e", 11: "v"}
caption = "Residual connections, norms and the second encoder layer are left out."
display.flow(places, steps, SEEN, letters, name="shapes-through", caption=caption)

# %% [markdown]
# On the left is the encoder, and on the right is the decoder with its first layer opened; v is the
# size of the vocabulary. The memory is the output of the whole encoder, its final norm included.
# The width is e all the way from the embedding to the last layer. Only the feed-forward network
# widens the vectors for a moment, here to twice e, and only the last projection gives them another
# width. The columns meet in the cross-attention, and after it no shape contains m.
#

# %% [markdown]
# <!-- deeper: The same as PyTorch's -->
# ### Going deeper: The same as PyTorch's
#
# Put `torch.nn.Transformer` between our embeddings and our projection, with the same weights. Both
# end each stack in a norm. Outputs and gradients must agree.

# %% tags=["proof"]
sizes = (24, 4, 2, 2, 48, 0.0)  # e, h, layers (twice), feed-forward, dropout
twin = Seq2SeqTransformer(11, 11, *sizes, dtype=torch.float64)
theirs = nn.Transformer(*sizes, batch_first=True, dtype=torch.float64)
theirs.load_state_dict(twin.transformer.state_dict())

b, m, n, e = 2, 8, 3, 24
embedded = (twin.embed_src.weight[src], twin.embed_tgt.weight[tgt])
x, y = (twin.positions(part * math.sqrt(e)) for part in embedded)
added = theirs.generate_square_subsequent_mask(n, dtype=torch.float64)
expected = theirs(x, y, tgt_mask=added) @ twin.project.weight.T  # (b, n, 11)
found = twin(src, tgt)                                           # (b, n, 11)
torch.testing.assert_close(found, expected)
ends = [twin.embed_src.weight, twin.embed_tgt.weight, twin.project.weight]
mine = one.gradients(found, [*ends, *twin.transformer.parameters()])
torch.testing.assert_close(mine, one.gradients(expected, [*ends, *theirs.parameters()]))
print(f"✓ PyTorch's class: the same scores, the same gradients of {len(mine)} parameters.")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## The decoder does not see the future
#
# Row i scores the word after word i, so it must not depend on any later word. Check that by
# differentiating: how strongly does row i react to the vector of word j? Measure this once with the
# model, and once with its causal mask forgotten. Five words make ten pairs of a row and a later
# word.


# %%
def reactions(model: nn.Module, src: Tensor, tgt: Tensor, is_causal: bool) -> Tensor:
    """Measure how each row of scores reacts to each word that is written."""
    memory = model.encode(src)                                        # (1, m, e)
    y = model.positions(model.embed_tgt.weight[tgt] * math.sqrt(24))  # (1, n, e)

    def decode(y: Tensor) -> Tensor:
        rows = model.transformer.decoder(y, memory, tgt_is_causal=is_causal)
        return model.project(rows)

    found = torch.autograd.functional.jacobian(decode, y)  # (1, n, 11, 1, n, e)
    return found.square().sum((0, 2, 3, 5)).sqrt()         # (n, n)


# %%
n = 5
answer = torch.tensor([[START, 3, 4, 9, 10]])                 # (1, n)
causal = reactions(model, src[:1], answer, is_causal=True)    # (n, n)
leaking = reactions(model, src[:1], answer, is_causal=False)  # (n, n)
cases = [[found.triu(1).count_nonzero().item()] for found in (causal, leaking)]
display.show(
    cases, ["the model", "causal mask forgotten"], ["reacts to later words, of 10"]
)

# %% tags=["proof"]
assert causal.triu(1).eq(0).all()
assert leaking.gt(0).all()
print("✓ With the causal mask not one of these reactions is other than zero.")

# %% tags=["fold-input"]
drawing, columns = display.panels(620, 250, columns=2)
names = [WORDS[i] for i in answer[0]]
titles = ("the model", "causal mask forgotten")
for ax, found, title in zip(columns, (causal, leaking), titles):
    shares = (0.6 * found / found.max()).tolist()
    ax.pcolormesh([[to_rgba(display.COLOURS["n"], x) for x in row] for row in shares])
    for i, j in itertools.product(range(5), repeat=2):
        said = f"{found[i, j]:.2f}"
        ax.text(j + 0.5, i + 0.5, said, ha="center", va="center", fontsize=12)
    ax.set_xticks([j + 0.5 for j in range(5)], names)
    ax.set_yticks([i + 0.5 for i in range(5)], names)
    ax.tick_params(length=0)
    ax.set(title=title, xlabel="react to", ylabel="scores after", ylim=(5, 0))
display.finish(
    drawing,
    name="no-leak",
    alt=(
        "How the scores after each word react to each word. "
        "In the model everything above the "
        f"diagonal is {causal.triu(1).max():.2f}; without the causal mask it reaches "
        f"{leaking.triu(1).max():.2f}."
    ),
)

# %% [markdown]
# On the left, all ten numbers above the diagonal are exactly zero. In training the whole answer
# goes in at once. So the model on the right would do very well: the word that it has to predict is
# part of its input. But that model would fail as soon as it writes by itself, because the next word
# is not there yet.
#
# ## Writing
#
# To write, begin with *start*, take the likeliest next word, append it, and ask again until *end*
# comes. This is called **greedy decoding**:

# %%
display.annotated(Seq2SeqTransformer.greedy)

# %% [markdown]
# Let the untrained model write five words:

# %%
written = model.eval().greedy(src, START, END, max_new=5)  # (b, 6)
for row in written:
    print(*(WORDS[i] for i in row))

# %% [markdown]
# The words are nonsense, since the model is not trained. Each further word costs a call. Do five
# calls, each with one word more, give the same scores as a single call over all five words? They
# should, since no row sees a later word. The same word five times would be a poor test, so compare
# the scores for `answer`, which has five different words.

# %% tags=["proof"]
memory = model.encode(src[:1])          # (1, m, e)
at_once = model.decode(answer, memory)  # (1, n, 11)
calls = [model.decode(answer[:, : i + 1], memory)[:, -1] for i in range(n)]
one_by_one = torch.stack(calls, 1)  # (1, n, 11)
torch.testing.assert_close(at_once, one_by_one)
print("✓ The scores of all words at once are those of one word after the other.")

# %% [markdown]
# The scores of one call agree with those of five calls. This makes training fast: one call scores all places at once, and each place
# sees exactly what it would see while writing.
#
# ## Does an attention score depend on the distance?
#
# Now return to the positions, and to the scores inside attention, query times key. *It* refers to
# *cat*, four words back. If the same words stood later in a longer text, nothing between them would
# change, and you would want the same score. The dot product of two *positions* depends on the
# distance alone. But the score compares sums, word w plus position p, and a product of two sums has
# four terms ([Dai et al.](../docs/references.md#dai-2019) write them out in section 3.3):
#
# $$(w_i + p_i) \cdot (w_j + p_j) = w_i \cdot w_j + w_i \cdot p_j + p_i \cdot w_j + p_i \cdot p_j$$
#
# Move *it* and *cat* along together, always four words apart, and look at the four terms. Queries
# and keys are word plus position, without matrices and without the factor √e. Which terms stay the
# same: all, the first and the last, or only the first?
#
# <details><summary>What do you expect?</summary>
#
# The first and the last. The first term has no position in it. The last term is the dot product of
# two positions at a fixed distance. The two terms in the middle multiply the features of one word
# by the clock hands of the other word, and hands turn when both words move.
#
# </details>


# %% tags=["fold-input"]
def terms(moved: int) -> Tensor:
    """Split the score of *it* and *cat*, both moved by some words, into its four terms."""
    i, j = (one.WORDS.index(word) for word in ("it", "cat"))
    words = one.EMBEDDINGS.double()                              # (8, 4)
    positions = sinusoidal_code(8 + moved, 4)                    # (..., 4)
    query_parts = torch.stack([words[i], positions[i + moved]])  # (2, 4)
    key_parts = torch.stack([words[j], positions[j + moved]])    # (2, 4)
    return (query_parts @ key_parts.T).flatten()                 # (4,)


MOVED = (0, 1, 2, 10, 40)
rows = torch.stack([terms(moved) for moved in MOVED])   # (5, 4)
rows = torch.cat([rows, rows.sum(1, keepdim=True)], 1)  # (5, 5)
NAMES = ["w·w", "w·p", "p·w", "p·p"]  # word or position of the query, of the key
labels = [f"moved by {moved}" for moved in MOVED]
display.show(rows, labels, [*NAMES, "score"])

# %% [markdown]
# The columns *w·w* and *p·p* stay the same. The other two columns drift, and the score drifts with them. In these
# words of four numbers, the same pair at the same distance scores nearly twice as high at one place of the text as
# at another; in wider words the drift is a smaller part of the score.
#
# A model multiplies by $W_Q$ and $W_K$ first. Training can find matrices that keep the drift small,
# and models with such positions do work. But the formula does not guarantee it.
#
# A shift is a rotation, and turning two vectors by the same angle leaves their dot product
# unchanged. So what would you have to turn, so that the *whole* score depends on the distance
# alone? The chapter [Positions](20_positions.ipynb) answers this.

# %% [markdown]
# ## Exercises
#
# ### A shift by formula
#
# *Medium, 6 minutes.* Above, least squares found the matrix that moves every position by k. Write
# down the block of clock i without any search, in float64. A position is a row, so the product
# `positions[p, 2 * i : 2 * i + 2] @ shift_block(k, i, e)` must give columns 2i and 2i + 1 of
# `positions[p + k]`, for every p, and for negative k, too.


# %% tags=["exercise"]
def shift_block(k: int, i: int, e: int) -> Tensor:
    """Return the rotation that moves the hand of clock i by k positions."""
    ...  # your code here


# %%
exercises.transformer.check_shift_block(shift_block)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Clock i turns by $a = k / 10000^{2i/e}$.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# $\sin(\alpha + a) = \sin\alpha \cos a + \cos\alpha \sin a$, with the hand at angle α, is the first column of the block.
#
# </details>


# %% tags=["solution"]
def shift_block(k: int, i: int, e: int) -> Tensor:
    """Return the rotation that moves the hand of clock i by k positions."""
    a = k / 10000 ** (2 * i / e)
    rows = [[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]]
    return torch.tensor(rows, dtype=torch.float64)


exercises.transformer.check_shift_block.folded(shift_block)

# %% [markdown]
# ## What you have now
#
# You have the Transformer of the paper (with `share_embeddings` and `final_norm` set as there),
# from token ids to scores. You have checked that an encoder layer knows no order without positions,
# and that with positions a shift is a rotation. You have also checked that no row of the decoder
# sees a later word.
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
# > memory = encoder(positions(embed(src) * e**0.5))
# > scores = project(decoder(positions(embed(tgt) * e**0.5), memory))  # under a causal mask
# > ```
# >
# > The dot product of two positions depends on their distance alone. The score of two *words* at
# > two positions does not, because words and positions are added before they are multiplied.
#
# The model writes nonsense so far. [The next chapter](10_a_little_world.ipynb) makes a smaller one from
# the same parts, and teaches it to tell stories.
