# %% [markdown]
# # Positions
#
# *How far is this word from that one?*
#
# *25 minutes and 8 of exercises. Afterwards you can rotate queries and keys (RoPE), stretch it
# with YaRN, bias scores by distance, and say what each does on long texts.*
#
# > the cat drank milk because it was thirsty
#
# To find out what *it* is, you look four words back, to *cat*. Write *yesterday* in front of the
# sentence, and every word has a different place. You still look four words back. What you use is
# the **distance** between two words, not the place of either.
#
# Nearly all models of today take it from **RoPE**, rotary positions. Queries and keys turn like the
# hands of a clock, each by its own position, just before they are compared. **ALiBi** and T5's buckets
# add to the score a number that depends on the distance. In this chapter you build all of them, and
# test them on texts longer than any in training. It ends with [twelve models of
# today](#cell-id=models-of-today) in one table.
#
# *Here for one name?* [RoPE](#cell-id=two-numbers-that-turn) · [its two layouts](#cell-id=two-layouts-one-permutation) ·
# [ALiBi, T5's buckets](#cell-id=a-number-added-to-the-score) · [NoPE](#cell-id=without-positions) ·
# [YaRN, NTK, position interpolation, llama3](#cell-id=turning-more-slowly) ·
# [RoPE or ALiBi?](#cell-id=a-far-key)

# %% tags=["hide-input"]
import copy
import itertools
import json
import math
import statistics
from importlib import resources

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention import MultiheadAttention, sinusoidal_code, split_heads
from annotated_book import chapters, display

# %% [markdown]
# ## Absolute positions: a place that is added
#
# [The Transformer](09_transformer.ipynb#cell-id=clocks) writes each word's place into the word: before the
# first layer, the hands of several clocks are added to its features. The cell does so, and computes the score of *it* for every word. The
# sentence begins at position 0, then at later positions, as if other text came first. All words and
# all distances stay the same. Does the score of *it* for *cat* stay the same, change only in the
# last digits, or become a different number?
#
# <details><summary>What do you expect?</summary>
#
# It becomes a different number. The score compares not only places with places, but also words
# with places. That part changes when the sentence moves, although no distance does.
#
# </details>

# %%
one = chapters.load("01_one_head")
it, cat = one.WORDS.index("it"), one.WORDS.index("cat")
code = sinusoidal_code(200, 4).float()  # (200, 4)

rows = {}
for begin in (0, 1, 2, 10, 100):
    x = one.EMBEDDINGS + code[begin : begin + 8]  # (8, 4)
    scores = (x @ x.T / math.sqrt(4))[it]         # (8,)
    rows[begin] = [scores[cat], one.WORDS[scores.argmax()]]
display.show(rows, columns=["score for cat", "looks most at"], corner="begins at")

# %% [markdown]
# The score ranges from 1.15 to 2.73, and when the sentence begins at 1 or 2, *it* looks most at
# itself. The reason is the dot product: (word + place) · (word + place) gives four products. Word
# with word stays the same. The two products of a word with a place change when the sentence moves
# [[Dai et al., section 3.3](../docs/references.md#dai-2019)]. Place with place depends here on the
# distance [alone](09_transformer.ipynb#cell-id=near-and-far), but with $W_Q$ and $W_K$ in between that
# product, too, would change. If the model wants the distance alone, it has to learn to ignore these.

# %% [markdown] name="two-numbers-that-turn"
# ## RoPE: two numbers that turn
#
# Take two features of a word and read them as an arrow on paper: one says how far it goes to the
# right, the other how far up. The dot product of two arrows is the product of their lengths times
# the cosine of the angle between them. Now turn both arrows by the same angle. Their lengths and
# the angle between them stay the same, and so does their dot product.
#
# So let each arrow turn with its position, like the hand of a clock, but counterclockwise: at
# position p it has turned by p radians. Then the angle from a key at position j to a query at
# position p grows by p − j radians, and the score depends on this distance alone. Turned
# counterclockwise by an angle φ, the arrow (a, b) becomes
#
# $$(a \cos\varphi - b \sin\varphi,\;\; b \cos\varphi + a \sin\varphi)$$
#
# Each word has the four features of [chapter 1](01_one_head.ipynb), made by hand: *animal*, *food*,
# *action* and *quality*. The cell takes the first two of *it* as the query and those of *cat* as the
# key. Each is turned by its position. The last column shows their dot product, not yet divided by √d.


# %%
def turn(arrow: Tensor, angle: float) -> Tensor:
    """Turn two numbers, read as an arrow, counterclockwise."""
    a, b = arrow
    cos, sin = math.cos(angle), math.sin(angle)
    return torch.stack([a * cos - b * sin, b * cos + a * sin])  # (2,)


query, key = one.EMBEDDINGS[it, :2], one.EMBEDDINGS[cat, :2]  # (2,), (2,)
rows = {}
for p, j in ((5, 1), (6, 2), (105, 101), (4, 2), (7, 1)):
    score = turn(query, p) @ turn(key, j)  # ()
    rows[p] = [j, p - j, score]
display.show(rows, columns=["cat at", "distance", "score"], corner="it at")

# %% [markdown]
# At distance 4 the score is 0.31, whether *cat* stands at 1, 2 or 101. The figure shows the two
# arrows. If you see sliders, try two things:
#
# 1. Move *cat* and keep the distance. Both arrows turn together, and the score stays the same.
# 2. Change the distance. Now only the query turns, and the score moves along the curve.

# %% tags=["fold-input"]
SHOWN = [(5, 1), (9, 5), (7, 1)]
display.rotation(query, key, name="turning", words=("it", "cat"), shown=SHOWN)

# %% [markdown]
# ### Warm-up: quarter turns
#
# *Easy, 2 minutes.* Let a pair make a quarter turn counterclockwise per position. A quarter
# turn has cosine 0 and sine 1. Before turning, the query's pair is (2, 1) and the key's (3, 1).
# Write down the query at position 1 and the query at position 2. Then give the dot product of a
# query at position 2 and a key at position 1.

# %% tags=["exercise"]
my_turned = [
    None,  # the query at position 1, its first number
    None,  # the query at position 1, its second number
    None,  # the query at position 2, its first number
    None,  # the query at position 2, its second number
    None,  # the dot product of the query at position 2 and the key at position 1
]

# %%
from annotated_book import exercises

exercises.positions.check_turned(my_turned)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Put cosine 0 and sine 1 into the formula: (a, b) becomes (−b, a).
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The distance is 1, so the score is the same as for the query turned once and the key not turned at
# all.
#
# </details>

# %% tags=["solution"]
my_turned = [-1, 2, -2, -1, -1 * 3 + 2 * 1]

exercises.positions.check_turned.folded(my_turned)

# %% [markdown] name="all-pairs"
# ## RoPE for a whole head: all pairs
#
# A single hand repeats itself after a full turn, which takes a little over six words. So it can
# hardly tell a key one word back from a key seven words back. But a head of width d has d / 2 pairs
# of features, and each pair turns more slowly than the one before. The score of the head is the sum
# of its pairs' scores, and in that sum the slow pairs tell the two keys apart.
#
# Pair i, counted from 0, turns by $\text{base}^{-2i/d}$ radians per position. In the paper, the
# **base** is 10000. Pair 0 then turns by 1 radian, and the last pair hardly at all: by
# 0.01<!-- setting --> in a head of width 4. Positions that turn queries and keys are called
# **rotary positions** (RoPE for short: rotary position embedding) [[Su et al., section
# 3.2.2](../docs/references.md#su-2021)].
#
# The function `rotate` does for all pairs what `turn` did for one. Its argument `layout` says which
# features form a pair: `"interleaved"` pairs neighbours, and the next section shows the other
# layout.

# %%
from annotated_attention.modern import RotaryEmbedding, rotary

display.annotated(rotary.rotate)

# %% [markdown]
# `rotate` needs the cosine and sine of each angle. Each angle is a position times the speed of a
# pair, so there is a row for each of n positions and a column for each of r = d / 2 pairs. The same
# table serves every sample and every head. `RotaryEmbedding` makes it, in float32 even for a model
# in bfloat16, and calls `rotate`:

# %%
TURNING = RotaryEmbedding(4, layout="interleaved")

positions = torch.arange(8)                                        # (8,)
angle = positions[:, None] / 10000 ** (torch.arange(0, 4, 2) / 4)  # (8, 2)
cos, sin = angle.cos(), angle.sin()                                # (8, 2), (8, 2)
x = rotary.rotate(one.EMBEDDINGS, cos, sin, layout="interleaved")  # (8, 4)
print("angles at position 4:", *(f"{x:.2f}" for x in angle[4]))

# %% tags=["proof"]
torch.testing.assert_close(x, TURNING(one.EMBEDDINGS, positions))
print("✓ `RotaryEmbedding` turns the words in the same way.")

# %% [markdown]
# Try it on our sentence. Of a word's neighbouring features, *animal* and *food* turn by 1 per word,
# *action* and *quality* by 0.01<!-- setting -->. The table shows the scores of *it*: without
# turning, turned with the sentence at 0, and turned with the sentence at 100.

# %%


def turned_scores(begin: int) -> Tensor:
    """Score all words for all words, with the sentence at position ``begin``."""
    x = TURNING(one.EMBEDDINGS, begin + torch.arange(8))  # (8, 4)
    return x @ x.T / math.sqrt(4)                         # (8, 8)


plain = one.EMBEDDINGS @ one.EMBEDDINGS.T / math.sqrt(4)                       # (8, 8)
rows = torch.stack([plain[it], turned_scores(0)[it], turned_scores(100)[it]])  # (3, 8)
display.show(rows, ["plain", "at 0", "at 100"], one.WORDS, corner="score of “it”")

# %% tags=["proof"]
for begin in range(1, 300):
    torch.testing.assert_close(turned_scores(begin), turned_scores(0), atol=1e-4, rtol=0)
print("✓ The scores are the same wherever the sentence begins, tried at 300 places.")

# %% [markdown]
# The last two rows are equal: the score depends on the distance, not on the place. To write this
# as a formula, let $R_p$ turn every pair by its angle at position p. Then
#
# $$(R_p\,q)^\top (R_j\,k) = (R_{p-j}\,q)^\top k$$
#
# Turning query and key by their positions is the same as turning the query alone, by the distance.
#
# The rows also show what turning costs. *Cat* and *it* share the feature *animal*, in the fast
# pair. Over four words that pair turns by 4 radians, and of the score 1.50 only 0.15 is left (the
# 0.31 from above, divided by √4). In a trained model, $W_Q$ and $W_K$ can use the slow pairs for
# whatever should count at any distance.

# %% [markdown]
# <!-- deeper: Why one rotation undoes the other -->
# ### Going deeper: Why one rotation undoes the other
#
# As a matrix, $R_p$ has a block of cosines and sines for each pair, and zeros elsewhere. A rotation
# is undone by turning back, so $R_p^\top = R_{-p}$. Two rotations in a row add their angles, so
# $R_{-p} R_j = R_{j-p}$. The score of a turned query for a turned key is therefore
#
# $$(R_p\,q)^\top (R_j\,k) = q^\top R_p^\top R_j\, k = q^\top R_{j-p}\, k = (R_{p-j}\,q)^\top k$$
#
# where only the distance is left (equation 16 of the paper). A complex number is such a pair, too:
# $a + b\mathrm{i}$ times $\cos\varphi + \mathrm{i}\sin\varphi$ is the arrow turned by φ. The cell
# turns the pairs as complex numbers, and compares results and gradients with those of `rotate`.

# %% tags=["proof"]
x = torch.randn(2, 3, 5, 6, dtype=torch.float64, requires_grad=True)  # (b, h, n, d)
places = torch.tensor([0, 1, 4, 9, 400])
turned = RotaryEmbedding(6, layout="interleaved")(x, places)  # (b, h, n, d)

angle = places[:, None] * 10000.0 ** (-torch.arange(0, 6, 2).double() / 6)   # (n, r)
phase = torch.polar(torch.ones_like(angle), angle)                           # (n, r)
complex_ones = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())  # (b, h, n, r)
product = torch.view_as_real(complex_ones * phase).flatten(-2)               # (b, h, n, d)
torch.testing.assert_close(product, turned)
torch.testing.assert_close(one.gradients(product, [x]), one.gradients(turned, [x]))
print("✓ Complex numbers and `rotate` give the same, gradients too.")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# Only queries and keys turn. Values stay as they are: the distance only decides how much of each is
# taken.

# %% [markdown]
# <!-- deeper: In the class -->
# ### Going deeper: In the class
#
# In the class, the rotation goes between the projections and the scores. The method `attend` sits
# at exactly this point, and it is meant to be
# [overridden](07_multihead_attention.ipynb#cell-id=a-score-of-your-own). All positions count from 0
# here. In the next chapter, those of new tokens count on from what came before.

# %%
from annotated_attention.modern import RotaryAttention

display.annotated(RotaryAttention.attend)

# %% [markdown]
# Some models turn only the first w features of each head (**partial rotation**):
# `q = torch.cat([rotary(q[..., :w], positions), q[..., w:]], -1)`, and the same for the keys, with
# a `RotaryEmbedding` of width w.
#
# To check the outputs, put three words of padding in front of the sentence, and mask them. Every
# word now stands three places later, and must come out as before, up to rounding.

# %% tags=["proof"]
torch.manual_seed(18)
attention = RotaryAttention(4, 2, batch_first=True)
words = one.EMBEDDINGS[None]          # (1, 8, 4)
moved = F.pad(words, (0, 0, 3, 0))    # (1, 11, 4)
padding = torch.arange(11)[None] < 3  # (1, 11)

before = attention(words, words, words)[0]                 # (1, 8, 4)
after = attention(moved, moved, moved, padding)[0][:, 3:]  # (1, 8, 4)
torch.testing.assert_close(after, before)
print("✓ With three rows of padding in front, the words come out as before.")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# > **Pitfall.** Turning the queries and forgetting the keys. No error is raised, but the score then
# > depends on the query's place. Moving the sentence finds this mistake.

# %% [markdown] name="two-layouts-one-permutation"
# ## RoPE's two layouts, interleaved and half
#
# Which two features form a pair? The paper pairs neighbours, and so does the code that Meta
# published with Llama. For the same model, `transformers` pairs feature i with feature i + d / 2.
# Here are both layouts for a head of width 6, with features counted from 0:
#
# | layout | pair 0 | pair 1 | pair 2 |
# |---|---|---|---|
# | `"interleaved"` | 0 and 1 | 2 and 3 | 4 and 5 |
# | `"half"` | 0 and 3 | 1 and 4 | 2 and 5 |
#
# Neither is better, but weights belong to the layout that they were trained in. Suppose you load
# weights of one layout into a class with the other. Does that raise an error, is every score wrong,
# or does the damage depend on the distance?
#
# <details><summary>What do you expect?</summary>
#
# It depends on the distance. No error is raised, since a rotation has no parameters and all shapes
# fit. A query and a key at the same position are turned alike in either layout, so at distance 0 the
# score is right. As the distance grows, the two layouts turn more and more differently.
#
# </details>
#
# Try it with random weights. One module with the layout `"interleaved"` plays the part of the
# checkpoint. Its weights are loaded into a second one, with the layout `"half"`.


# %%
class Watched(RotaryAttention):
    """Keeps the scores of its last call."""

    def score(self, q: Tensor, k: Tensor) -> Tensor:  # q and k have been turned by attend
        self.seen = super().score(q, k)  # (b, h, n, m)
        return self.seen


torch.manual_seed(18)
b, n, h, d = 2, 128, 4, 32
e = h * d
sides = RotaryEmbedding(d, layout="interleaved")
checkpoint = Watched(e, h, batch_first=True, rotary=sides)
loaded = Watched(e, h, batch_first=True, rotary=RotaryEmbedding(d, layout="half"))
print(loaded.load_state_dict(checkpoint.state_dict()))

# %% [markdown]
# All weights have loaded. Compare the scores of keys at several distances. As a yardstick, the last
# column says how far apart the scores of two neighbouring keys are.

# %%
x = torch.randn(b, n, e)  # (b, n, e)
for module in (checkpoint, loaded):
    module(x, x, x)
off = (loaded.seen - checkpoint.seen).abs()  # (b, h, n, n)
another = checkpoint.seen.roll(1, -1)        # (b, h, n, n)
apart = (another - checkpoint.seen).abs().mean()
distances = [0, 1, 2, 4, 16, 64]
averages = [off.diagonal(-distance, -2, -1).mean() for distance in distances]
columns = [*distances, "two keys, for comparison"]
display.show([[*averages, apart]], ["off on average by"], columns, corner="distance")

# %% [markdown]
# At distance 0 every score is right. Far away, a score is off by nearly as much as the scores of
# two keys differ, so it no longer says much about the words.
#
# The remedy is a permutation. `nn.Linear` stores $W_Q$ and $W_K$ so that each row produces one
# feature. Reordering the rows within each head therefore gives the same pairs in the other layout.
# `interleaved_to_half` puts the even rows of each head first and then the odd ones: six rows come
# in the order 0, 2, 4, 1, 3, 5. The packed matrix of the final class holds $W_Q$, $W_K$ and $W_V$
# stacked on top of one another, so cut it into three and reorder the first two. Treat the biases
# the same way.

# %%
from annotated_attention.modern import interleaved_to_half

assert interleaved_to_half(torch.arange(6), 1).tolist() == [0, 2, 4, 1, 3, 5]
with torch.no_grad():
    for name in ("in_proj_weight", "in_proj_bias"):
        w_q, w_k, w_v = getattr(checkpoint, name).chunk(3)
        rows = [interleaved_to_half(w_q, h), interleaved_to_half(w_k, h), w_v]
        getattr(loaded, name).copy_(torch.cat(rows))


# %% tags=["proof"]
x = torch.randn(b, n, e, requires_grad=True)       # (b, n, e)
reordered = loaded(x, x, x, is_causal=True)[0]     # (b, n, e)
expected = checkpoint(x, x, x, is_causal=True)[0]  # (b, n, e)
torch.testing.assert_close(reordered, expected)
mine, theirs = (one.gradients(y, [x])[0] for y in (reordered, expected))
torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)
print(
    "✓ With its rows reordered, the checkpoint gives what it gave: outputs and gradients."
)

# %% [markdown]
# > **Pitfall.** Weights of one layout in a class with the other. All names and shapes fit. In one
# > report, the first word or two came out right, because at small distances the two layouts differ
# > little, and the rest was nonsense [[Positions that went
# > wrong](../docs/references.md#positions-gone-wrong)]. Find out which layout a checkpoint was trained
# > in, and compare one output with the original code's. The test with the moved sentence passes here,
# > because either layout is a valid rotation.
#
# With the same weights, `"half"` gives the outputs and gradients of Llama in `transformers`, and
# `"interleaved"` those of GPT-J (`tests/annotated_attention/modern/test_rotary.py`).

# %% [markdown] name="a-number-added-to-the-score"
# ## ALiBi and T5: a number added to the score
#
# The second way leaves queries and keys alone. It adds a **bias by distance** to the score: a
# number for each head that says how much this distance counts.
#
# ### ALiBi: nothing is learned
#
# In **ALiBi**, attention with linear biases, every step of distance takes the same amount off the
# score [[Press et al., section 3](../docs/references.md#press-2022)]. That amount is the head's
# **slope**. Steep heads look at nearby words, and flat heads look far back. With h heads, head i
# has the slope $2^{-8i/h}$, counted from 1. For eight heads the slopes are 1/2, 1/4, 1/8, and so
# on, down to 1/256.

# %%
from annotated_attention.modern import AlibiBias, alibi_slopes

display.annotated(AlibiBias.forward)

# %% tags=["fold-input"]
drawing, (ax,) = display.panels(520, 220)
back = torch.arange(41)
slopes = [f"1/{1 / slope:.0f}" for slope in alibi_slopes(4)]
penalties = AlibiBias(4)(torch.tensor([40]), 40 - back)[:, 0]
for head, style in enumerate(("-", "--", "-.", ":")):
    label = f"head {head + 1}: {slopes[head]}"
    ax.plot(back, penalties[head], style, color=display.COLOURS["h"], label=label)
ax.set(xlabel="distance", ylabel="added to the score", ylim=(-8, 0.5))
ax.legend(frameon=False, loc="lower left")
display.finish(
    drawing,
    name="by-distance",
    alt=(
        "What ALiBi adds to the score with four heads: "
        "straight lines that fall from 0 with "
        f"the slopes {', '.join(slopes)}."
    ),
)

# %% [markdown]
# > **Pitfall.** The number of heads may not be a power of two. The formula gives slopes for it,
# > too, but checkpoints use different ones, and libraries have mixed the two up [[Positions that
# > went wrong](../docs/references.md#positions-gone-wrong)].

# %% [markdown]
# <!-- deeper: The slopes of six heads -->
# ### Going deeper: The slopes of six heads
#
# Checkpoints begin with the slopes of the next smaller power of two, here four. Then come the
# first, third, fifth slope and so on of the next larger power.

# %%
display.annotated(alibi_slopes)

# %%
simple, right = 2 ** (-8 * torch.arange(1, 7) / 6), alibi_slopes(6)  # (6,), (6,)
names = [f"head {i}" for i in range(1, 7)]
slopes = torch.stack([simple, right])  # (2, 6)
display.show(slopes, ["formula", "checkpoints"], names, decimals=3)

# %% [markdown]
# With the formula's slopes, the fifth head would look far back, although it was trained to look at
# nearby words.
#
# <!-- /deeper -->

# %% [markdown]
# T5 learns the numbers instead. Those of far keys would rarely be trained, so distances are sorted
# into **buckets**, and all distances in a bucket share a number [[Raffel et al., section
# 2.1](../docs/references.md#raffel-2020)].

# %% [markdown]
# <!-- deeper: Where the buckets begin, and both biases in the class -->
# ### Going deeper: Where the buckets begin, and both biases in the class
#
# Half of the buckets hold one short distance each. The others grow wider and wider, and the last one
# takes every distance beyond. `BucketedBias` has them. The cell sorts keys up to 40 places back into eight buckets, for a causal model. The last bucket
# would end at distance 20, which is `max_distance`, but it takes every longer distance, too.

# %%
from annotated_attention.modern import BucketedBias, biases

bucket = biases.relative_buckets(
    -torch.arange(41)[None], num_buckets=8, max_distance=20, bidirectional=False
)[0]
inside = [(bucket == number).nonzero().flatten() for number in range(8)]
spans = [f"{x.min()} to {x.max()}" for x in inside]
display.show([spans], ["distance"], range(8), corner="bucket")

# %% [markdown]
# `BucketedBias` looks up the bucket's number in `table`, `(num_buckets, h)`. In `relative_buckets`,
# `of_side` is the number of buckets for one side, and `alone` is how many of them hold a single
# distance. `share` is 0 at distance `alone` and 1 at `max_distance`, and grows with the logarithm
# between them.

# %%
display.annotated(biases.relative_buckets, BucketedBias.forward)

# %% [markdown]
# Either kind of bias goes into `BiasedAttention`. The bias by distance is added to the [additive
# mask](16_masks_in_the_wild.ipynb#cell-id=booleans-or-floats) that the caller may have passed, and the
# final class's `attend` does the rest. Outputs and gradients equal those of Bloom and T5 in
# `transformers`. (T5 does not divide by √d; the test divides its $W_Q$ instead:
# `tests/annotated_attention/modern/test_biases.py`.)

# %%
from annotated_attention.modern import BiasedAttention

display.annotated(BiasedAttention.attend)

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Length extrapolation: longer than in training
#
# What happens in a text that is longer than any in training? Take a task like that of
# [Training](12_training.ipynb): a sequence of letters repeats itself after 4 to 16 letters, and the
# model has to write the next letter. It is trained on 32 letters and tested on 512. The model has
# two layers of attention with four heads, but no feed-forward part and no norms. Only its positions
# differ: added clocks, rotary, ALiBi, buckets, or none.

# %% [markdown]
# <!-- deeper: the model, its training and its test -->
# ### Going deeper: the model, its training and its test
#
# The loss counts only letters that follow a letter seen before. The buckets have a
# `max_distance` of 32.

# %%
SHORT, LONG, LONG_STEPS = 32, 512, 1000
OPTIONS = {"embed_dim": 64, "num_heads": 4, "bias": False, "batch_first": True}
KINDS = {
    "none": lambda: MultiheadAttention(**OPTIONS),
    "added": lambda: MultiheadAttention(**OPTIONS),
    "rotary": lambda: RotaryAttention(**OPTIONS),
    "ALiBi": lambda: BiasedAttention(position_bias=AlibiBias(4), **OPTIONS),
    "buckets": lambda: BiasedAttention(
        position_bias=BucketedBias(4, max_distance=32, bidirectional=False), **OPTIONS
    ),
}


# %%
class LongCopier(nn.Module):
    """Two layers of attention with residual connections, for any length."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.letters, self.added = nn.Embedding(26, 64), kind == "added"
        self.layers = nn.ModuleList(KINDS[kind]() for _ in range(2))
        self.scores = nn.Linear(64, 26, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Score each letter as the one that follows, at each place.

        Args:
            ids: (b, n), numbers of letters.
        """
        x = self.letters(ids)  # (b, n, 64)
        if self.added:
            x = x + sinusoidal_code(ids.size(1), 64).to(x)  # (b, n, 64)
        for attention in self.layers:
            x = x + attention(x, x, x, need_weights=False, is_causal=True)[0]
        return self.scores(x)  # (b, n, 26)


# %% tags=["fold-input"]
def repeating(b: int, n: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw ``b`` sequences of n letters, and after how many each repeats itself."""
    period = torch.randint(4, 17, (b, 1), generator=source)      # (b, 1)
    shuffled = torch.rand(b, 26, generator=source).argsort(1)    # (b, 26)
    return shuffled.gather(1, torch.arange(n) % period), period  # (b, n), (b, 1)


def learn_short(kind: str, seed: int, steps: int = LONG_STEPS) -> LongCopier:
    """Train a copier on sequences of 32 letters."""
    torch.manual_seed(seed)
    source, model = torch.Generator().manual_seed(seed), LongCopier(kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003, betas=(0.9, 0.98))
    for step in range(steps):
        rate = min((step + 1) / 50, 1) * (1 - step / steps)  # warm-up, then down to zero
        optimizer.param_groups[0]["lr"] = 0.003 * rate
        ids, period = repeating(64, SHORT, source)
        scores, asked = model(ids)[:, :-1], ids[:, 1:]
        known = torch.arange(SHORT - 1) >= period
        optimizer.zero_grad()
        F.cross_entropy(scores[known], asked[known]).backward()
        optimizer.step()
    return model


# %% tags=["fold-input"]
ENDS = (32, 64, 128, 256, 512)


@torch.no_grad()
def copied_until(model: LongCopier, b: int = 100) -> dict[str, float]:
    """Measure the accuracy before place 32, from there to 64, and so on."""
    ids, period = repeating(b, LONG, torch.Generator().manual_seed(4321))
    right = model(ids)[:, :-1].argmax(-1) == ids[:, 1:]
    place = torch.arange(1, LONG)
    found, begin = {}, 0
    for end in ENDS:
        asked = (place > period) & (place >= begin) & (place < end)
        found[str(end)] = right[asked].float().mean().item()
        begin = end
    return found


short = learn_short("added", seed=0, steps=20)
print(f"before place 32, after 20 steps: {copied_until(short, b=5)['32']:.2f}")

# %% tags=["fold-input"]
KEPT = resources.files("annotated_book").joinpath("data/positions.json")
RUNS = json.loads(KEPT.read_text())["runs"]
NAMES = ("none", "added", "rotary", "ALiBi", "buckets")
STRETCHES = ("32", "64", "128", "256", "512")


def middle(kind: str, tested: str = "as trained") -> Tensor:
    """Give the median accuracy of five seeds in each stretch."""
    rows = [run[tested] for run in RUNS if run["kind"] == kind]
    return torch.tensor([statistics.median(row[end] for row in rows) for end in STRETCHES])


table = torch.stack([middle(kind) for kind in NAMES])  # (5, 5)

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# Each kind was trained from five seeds for 1000 steps (the results come with the
# package; `make seeds` in the repository makes them anew).
#
# Read the figure from left to right. Each mark is a stretch of the long sequence, named by its end: *32*
# has the places before 32, the trained length, *64* those from 32 to 63, *128* those from 64 to 127, and
# so on. A place counts only after the first repeat has begun: before that, nobody can know the next
# letter. Which loses least by place 512, and which most: added, rotary, ALiBi or buckets?
#
# <details><summary>What do you expect?</summary>
#
# ALiBi and the buckets lose least. ALiBi's steep heads give a far key a large penalty, and with
# buckets all far distances share one number, which favours none of them over another. Rotary
# positions lose most here. At distances that never occurred in training, the score
# follows angles that training never had a chance to correct.
#
# </details>

# %% tags=["fold-input"]
drawing, (ax,) = display.panels(600, 300)
LOOKS = (("b", ":"), ("d", "-."), ("n", "-"), ("h", "--"), ("m", (0, (6, 1))))
for kind, (letter, style) in zip(NAMES, LOOKS):
    runs = [run["as trained"].values() for run in RUNS if run["kind"] == kind]
    low, high = torch.tensor([[*row] for row in runs]).aminmax(dim=0)
    look = {"color": display.COLOURS[letter]}
    ax.fill_between(range(5), low, high, alpha=0.15, linewidth=0, **look)
    ax.plot(middle(kind), linestyle=style, marker="o", markersize=4, label=kind, **look)
ax.set(xlabel="places up to", ylabel="accuracy", ylim=(0, 1.05))
ax.set_xticks(range(5), STRETCHES)
ax.legend(frameon=False, loc="lower left")
said = "; ".join(f"{kind} {row[0]:.2f} to {row[-1]:.2f}" for kind, row in zip(NAMES, table))
caption = "Lines: the median of five seeds; bands: the lowest and the highest."
alt = f"Accuracy from the first stretch to the last: {said}."
display.finish(drawing, name="train-short", alt=alt, caption=caption)

# %% [markdown]
# Before place 32, all models except the one without positions are nearly perfect. In the last
# stretch, ALiBi still gets 0.99 of the letters right and the buckets 0.95. The added clocks have
# fallen to 0.84, and rotary positions to 0.33, less than without any positions. The moved sentence above
# did not promise more: rotary positions make a score independent of the place, and promise nothing for
# distances that were never seen. That added clocks do better than rotary positions is a result of this small task. In
# language models the opposite was found: past the trained length, sinusoidal clocks fail sooner
# [[Press et al., section 2.2](../docs/references.md#press-2022)].
#
# What goes wrong with rotary positions? The last place where the answer stood is always at a trained
# distance. But hundreds of farther keys are not, and their scores can come out high. Take one of them,
# made by hand: a key whose slow pair points away from the query's. The cell moves it away from the
# query, and prints its score with rotary positions and with ALiBi's slope of 1/16.

# %%
asks, far = torch.tensor([0, 0, 2.0, 0]), torch.tensor([0, 0, -2.0, 0])
rows = {}
for distance in (1, 16, 30, 100, 314, 500):
    turned = TURNING(asks[None], torch.tensor([distance]))[0]  # (4,)
    by_rotary = turned @ far / math.sqrt(4)                    # ()
    by_alibi = asks @ far / math.sqrt(4) - distance / 16       # ()
    rows[distance] = [by_rotary, by_alibi]
display.show(rows, columns=["rotary", "ALiBi"], corner="distance")

# %% [markdown]
# Within the trained distances, up to 30, the slow pair hardly turns, and the score stays near −2.
# At distance 314, after half a turn, it scores 2.00. Among hundreds of far keys, some are likely to
# be like it. ALiBi only ever lowers the score of a far key.

# %% [markdown] name="without-positions"
# ### NoPE: no positions at all
#
# Even the model without positions (no positional encoding) learns something: a causal mask
# shows each word one more key than the word before, which tells how far along it stands [[Kazemnejad et
# al.](../docs/references.md#kazemnejad-2023)]. Some models of today leave out the rotation in a few
# layers only: SmolLM3 in every fourth.

# %% [markdown] name="turning-more-slowly"
# ## YaRN, NTK, position interpolation: turning more slowly
#
# If unseen angles are what harms a trained model with rotary positions, turn more slowly. Then a
# long text uses only angles that a short one has used. But which pairs? One that makes a full turn within
# the trained length has met angles all the way round. Only a slower pair meets new angles in a longer
# text. Three ways are common:
#
# - **Position interpolation** (`linear`) divides every speed by a factor [[Chen et
#   al.](../docs/references.md#chen-2023)].
# - **Dynamic NTK** (`dynamic`) raises the base as the text grows, so the slow pairs slow down most
#   [[Peng et al., section 3.3](../docs/references.md#peng-2023)].
# - **YaRN** (`yarn`) divides the speed of the pairs that turn less than once within the trained length.
#   The fastest keep theirs, and a ramp leads from the slow pairs to the fast ones. All scores become
#   larger, too, which sharpens the softmax: for s times the length, rotated queries and keys are each
#   multiplied by 0.1 ln s + 1 [[Peng et al., section 3.4](../docs/references.md#peng-2023)]. (DeepSeek-V4
#   leaves that out.) Llama 3.1's `llama3` is alike, with a shorter ramp and no larger scores.
#
# The figure shows how many times more slowly each of the 64 pairs of a head turns, in a model of the size
# of Llama 3.1 that goes from 8,192 tokens to eight times as many. Look at the left: which ways leave the
# fast pairs alone?

# %% tags=["fold-input"]
from annotated_attention.modern import frequencies, rotary_frequencies

LARGE = {"factor": 8.0, "original_max_position_embeddings": 8192}
RAMP = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}  # from 4 turns to one
WAYS = {"linear": {}, "dynamic": {}, "yarn": LARGE, "llama3": LARGE | RAMP}
drawing, (ax,) = display.panels(600, 280)
usual, _ = rotary_frequencies(128, base=500_000)
for (way, more), look in zip(WAYS.items(), (":", "-.", "-", "--")):
    scaling = {"rope_type": way, "factor": 1.0 if way == "dynamic" else 8.0, **more}
    longer = {"max_length": 8192, "length": 65_536}
    speeds, _ = rotary_frequencies(128, base=500_000, scaling=scaling, **longer)
    letter = dict(zip(WAYS, "bdnh"))[way]
    ax.plot(usual / speeds, look, color=display.COLOURS[letter], label=way)
once = (usual * 8192 / (2 * math.pi) >= 1).sum().item()
ax.axvline(once - 0.5, color="#808080", linewidth=1)
ax.text(once, 1.1, "turn less than once in 8,192", fontsize=11)
ax.set(xlabel="pair", ylabel="times more slowly", ylim=(0.8, 8.3))
ax.legend(frameon=False, loc="upper left", bbox_to_anchor=(0, 0.95))
alt = (
    "How many times more slowly each of 64 pairs turns. linear: 8 for all. dynamic: from 1 "
    "for the first pair to 8 for the last one. yarn and llama3: 1 for the fast pairs, "
    "8 for the slow ones, and a ramp between."
)
display.finish(drawing, name="slower-pairs", alt=alt)

# %% [markdown]
# All but `linear` leave the fastest pair as it is. What does this do to the trained rotary models above, without a single further step of
# training? Here they are tested again, with rotations for texts 16 times as long. Compare the first and
# the last column.

# %% tags=["fold-input"]
TESTED = ("as trained", "linear", "dynamic", "yarn")
table = torch.stack([middle("rotary", way) for way in TESTED])  # (4, 5)
display.show(table, ("plain", *TESTED[1:]), STRETCHES, corner="places up to")

# %% [markdown]
# The obvious repair, `linear`, fails even on short texts: it also slows the fast pairs, which tell
# neighbours apart, and these models were never trained for that. With some training afterwards it works,
# and Gemma 3 ships it. YaRN lifts the last stretch from 0.33 to 0.97, with hardly any loss at the
# trained length. (It was proposed with such training, too; `dynamic`, which reaches 0.66, is meant for
# models without.)
#
# Another way is a **higher base** from the start of training: all pairs but the first turn more
# slowly, and the slowest so little that even in a long text their part of the score hardly changes.
# Llama 3 has 500,000 in place of 10000 [[Llama Team, table 3](../docs/references.md#llama-2024)]. Gemma 3
# has **two bases**: 10,000 in layers with a window, which see near keys only, and 1,000,000 in those that
# see all keys. There its larger models also turn eight times more slowly, by `linear` [[Gemma
# Team](../docs/references.md#gemma-2025)].

# %% [markdown]
# <!-- deeper: Llama 3.1, settings, and the code of all four ways -->
# ### Going deeper: Llama 3.1, settings, and the code of all four ways
#
# **`llama3`** divides the speed of the same slow pairs as YaRN, and has a ramp of its own: it ends at pairs
# that turn four times, YaRN's at those that turn 32 times ([Llama
# 3.1](../docs/references.md#llama-3-1)). These are the settings for the models above. They were trained on 32 letters, and 512 letters are
# 16 times as many. The heads are 16 wide, so the table has a row for each of eight pairs. Its first
# column says how many turns the pair makes in 32 letters. The other columns say how many times more
# slowly it turns.

# %% tags=["fold-input"]
FACTOR = LONG / SHORT  # 16
TRAINED = {"original_max_position_embeddings": SHORT}
LLAMA3 = {"rope_type": "llama3", "factor": FACTOR, **TRAINED, **RAMP}
YARN = {"rope_type": "yarn", "factor": FACTOR, **TRAINED}
SCALINGS = {
    "linear": {"rope_type": "linear", "factor": FACTOR},
    "dynamic": {"rope_type": "dynamic", "factor": 1.0},  # finds the 16 from the length
    "llama3": LLAMA3,
    "yarn": YARN,
    "llama3, to 2 turns": LLAMA3 | {"high_freq_factor": 2.0},
    "yarn, same scores": YARN | {"attention_factor": 1.0},
}

# %%
speeds, _ = rotary_frequencies(16)
slower = [speeds * SHORT / (2 * math.pi)]  # turns within the trained length
shown = [*SCALINGS][:-1]
for scaling in map(SCALINGS.get, shown):
    other, longer = rotary_frequencies(16, scaling=scaling, max_length=SHORT, length=LONG)
    slower.append(speeds / other)
    if longer != 1:
        print(f"scores with {scaling['rope_type']}: {longer**2:.1f} times as large")
display.show(torch.stack(slower, 1), range(8), ["turns", *shown], corner="pair")

# %% tags=["proof"]
by_llama3, by_yarn = (
    usual / rotary_frequencies(128, base=500_000, scaling=scaling | LARGE)[0]
    for scaling in ({"rope_type": "llama3", **RAMP}, {"rope_type": "yarn"})
)
assert not (by_llama3 > by_yarn * 1.0001).any()
more = (by_yarn > by_llama3 * 1.0001).sum()
assert more == 16
told = f"YaRN slows {more} of 64 pairs more than `llama3`, and none less"
print(f"✓ With a large model's settings, {told}.")

# %% [markdown]
# Here `llama3` slows pair 1 by a factor of almost four, and YaRN by less than two. That is a likely reason
# why `llama3` loses more on short texts; with a ramp that ends at two turns it loses less. YaRN without
# its larger scores is the last row:

# %% tags=["fold-input"]
PARTS = ("yarn", "llama3", "llama3, to 2 turns", "yarn, same scores")
table = torch.stack([middle("rotary", way) for way in PARTS])  # (4, 5)
display.show(table, PARTS, STRETCHES, corner="places up to")

# %% [markdown]
# With the settings of Llama 3.1, in the figure above, it is YaRN that slows more pairs, and `llama3` none
# more than YaRN. So this small task says nothing against `llama3` in a large model.
#
# A checkpoint has the settings in its `config.json`, under `rope_parameters` or, in older files,
# `rope_scaling`. Pass that dictionary to `RotaryEmbedding` as the argument `scaling`. Older files
# keep the base, `rope_theta`, outside the dictionary: pass that as `base`. The angles equal those of
# `transformers` in all four ways (`tests/annotated_attention/modern/test_frequencies.py`).
#
# With YaRN that dictionary may hold only half of it. Here is DeepSeek-V3's, with a `mscale` and a
# `mscale_all_dim`:

# %%
DEEPSEEK = {"factor": 40, "original_max_position_embeddings": 4096}
DEEPSEEK |= {"rope_type": "yarn", "mscale": 1.0, "mscale_all_dim": 1.0}
_, longer = rotary_frequencies(64, scaling=DEEPSEEK)
print(f"scores by the rotation: {longer**2:.2f} times as large")
print(f"by the model's softmax scale: {(0.1 * math.log(40) + 1) ** 2:.2f} times")

# %% [markdown]
# > **Pitfall.** *YaRN's larger scores get lost.* Where both settings are equal, the rotation's
# > factor is 1, and the model's own code multiplies the softmax scale instead, here by 1.87. Nothing
# > fails if you forget it. Pass it yourself, as the argument `scale` of
# > [latent attention](22_fewer_keys.ipynb): 1.87 / √(d + r).

# %% [markdown]
# The models were tested with the function below. `dynamic` uses the speeds for 512
# letters in every column, since all come from one pass.


# %%
def scaled(model: LongCopier, scaling: dict) -> LongCopier:
    """Copy a model with rotary positions, and scale its rotation."""
    other = copy.deepcopy(model)
    for attention in other.layers:
        attention.rotary = RotaryEmbedding(16, scaling=scaling, max_length=SHORT)
    return other


# %% [markdown]
# All four ways are in one function and its helpers. In `_yarn`, `pair_that_turns` solves the speed
# formula for the number of the pair. The ramp runs over these numbers, from the pair that turns 32
# times to the pair that turns once. Here no pair turns 32 times, so it begins at pair 0.

# %%
display.annotated(rotary_frequencies, frequencies._llama3)

# %%
display.annotated(frequencies._yarn, frequencies._yarn_factor)

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# > **Pitfall.** With `dynamic`, the speeds depend on the length of the text. A model that writes
# > with [a cache](21_cache.ipynb) keeps keys that were turned while the text was shorter, and they
# > no longer fit. This happened in published code [[Positions that went
# > wrong](../docs/references.md#positions-gone-wrong)]; the next chapter comes back to it.

# %% [markdown] name="a-far-key"
# ## RoPE or ALiBi: when the far key is the right one
#
# Left as trained, ALiBi did best on long texts, and none of the [models of today](#cell-id=models-of-today)
# uses it. But in that task the answer is never more than 16 letters back. Take one in which it is
# the farther of two. Eight people get a seat, later each gets another one, and then you are asked for
# the *first* seat of each, or for the *last*. Here is one of them, and what ALiBi's steepest head of four
# takes off for both keys:

# %% tags=["fold-input"]
drawing, (ax,) = display.panels(620, 170)
ax.set(xlim=(-0.7, 24.2), ylim=(-1.7, 5.6))
ax.axis("off")
for begin, letter, said in (
    (0, "m", "first seats"),
    (8, "h", "last seats"),
    (16, "n", "asked"),
):
    ink = display.COLOURS[letter]
    ax.bar(range(begin, begin + 8), 0.8, 0.86, color=ink, alpha=0.25)
    ax.text(begin + 3.5, -1.6, said, ha="center", color=ink)
marks = {3: "Ann: 5", 11: "Ann: 12", 18: "Ann?"}
for place, said in marks.items():
    ax.bar(place, 0.8, 0.86, color="#808080")
    ax.text(place, -0.65, said, ha="center", fontsize=11, fontweight="bold")
told = []
for place, height in ((3, 4.2), (11, 2.2)):
    steps = torch.linspace(0, math.pi, 40)
    middle_x, half = (place + 18) / 2, (18 - place) / 2
    ax.plot(middle_x + half * steps.cos(), 0.9 + height * steps.sin(), color="#808080")
    taken = AlibiBias(4)(torch.tensor([18]), torch.tensor([place]))[0].item()
    said = f"{18 - place} back: {taken:.2f}".replace("-", "−")
    ax.text(middle_x, 1.0 + height, said, ha="center", va="bottom", fontsize=11)
    told.append(said)
alt = (
    f"Place 18 asks for Ann, seated at places 3 and 11. ALiBi's head 1: {'; '.join(told)}."
)
display.finish(drawing, name="two-seats", alt=alt)

# %% [markdown]
# A head that looks for Ann finds two keys, which differ only in their seats. Seats are random, so they
# favour neither key on average. So with ALiBi the last seat, which is nearer, gets more weight on average,
# in every head, whatever $W_Q$ and $W_K$ have learned. A rotation has no such rule: its score may grow
# with the distance.
#
# So what share of the first seats does a model find that has one layer and ALiBi: almost none, or half
# of them, or more?
#
# <details><summary>What do you expect?</summary>
#
# Half or more. A flat head looks at both seats almost alike. And a model has several heads: what one
# of them brings too much of, another one can take away.
#
# </details>
#
# Again, five seeds trained each kind, here with 200 steps and one layer of four heads.
# The table gives the median accuracy, the lowest and the highest.

# %% tags=["fold-input"]
FAR_KEPT = resources.files("annotated_book").joinpath("data/far_key.json")
LOOKS_AT = json.loads(FAR_KEPT.read_text())["runs"]
table = {kind: [] for kind in NAMES}
for kind, asked_for in itertools.product(NAMES, ("last", "first")):
    rows = [row for row in LOOKS_AT if (row["kind"], row["asked"]) == (kind, asked_for)]
    low, *_, high = found = sorted(row["accuracy"] for row in rows)
    table[kind].append(f"{statistics.median(found):.2f} ({low:.2f} to {high:.2f})")
display.show(table, columns=["last seat", "first seat"], corner="positions")

# %% [markdown]
# Without positions both seats look alike, and a choice between two is right half of the time. Asked for
# the last seat, all others find it. Asked for the first, ALiBi drops to 0.67, with two of five seeds
# above 0.95; with rotary positions, one seed of five is not yet there. Twice as much training helps:

# %% tags=["fold-input"]
for kind in ("ALiBi", "rotary"):
    rows = json.loads(FAR_KEPT.read_text())["longer"]
    low, *_, high = found = sorted(row["accuracy"] for row in rows if row["kind"] == kind)
    said = f"{statistics.median(found):.2f} ({low:.2f} to {high:.2f})"
    print(f"first seat after 400 steps, {kind}: {said}")

# %% [markdown]
# How does an ALiBi model find a seat that none of its heads prefers? It subtracts: one head looks at both
# seats, another at the last one and *lowers* it (the fold shows one). A rotary head can look at the first
# seat alone. So ALiBi has decided that near is better, and training has to work around it; RoPE and
# buckets leave it to training.
#
# Speed need not decide. As of 2026, FlashAttention 2 takes ALiBi's slopes, but no other bias
# [[`alibi_slopes`](../docs/references.md#flash-attention-code)]; FlexAttention and FlashAttention 4 compute
# any of them from a rule inside the [kernel](23_tiles.ipynb), the buckets' too.

# %% tags=["proof"]
import warnings

from torch.nn.attention.flex_attention import flex_attention

warnings.filterwarnings("ignore", "flex_attention called without")  # slow: not compiled
q, k, v = torch.randn(3, 1, 4, 40, 8)  # four heads, 40 places
places = torch.arange(40)
apart, options = places - places[:, None], {"max_distance": 32, "bidirectional": False}
bucket = biases.relative_buckets(apart, **options)
learned = BucketedBias(4, **options).requires_grad_(False)
nn.init.normal_(learned.table)
bias = learned(places, places).masked_fill(places[:, None] < places, -torch.inf)
stored = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
by_rule = flex_attention(
    q,
    k,
    v,
    lambda score, b, head, p, j: torch.where(
        p < j, -torch.inf, score + learned.table[bucket[p, j], head]
    ),
)
torch.testing.assert_close(by_rule, stored)
print("✓ FlexAttention, with a rule that looks up buckets: as with a stored mask.")

# %% [markdown]
# <!-- deeper: the task, the model, and what its heads do -->
# ### Going deeper: the task, the model, and what its heads do
#
# Tokens 0 to 7 say where each of eight people sits, tokens 8 to 15 where each of them sits later,
# and tokens 16 to 23 ask for each of them once. A token is the sum of a person and a seat; seat 16
# is none.
#
# In the table are the heads that count in two models of the same seed, asked for the first seat: their
# weight on both keys, and how much they raise the logit of both seats. ALiBi's head 3 looks at both and
# raises both, its head 1 looks at the last one and lowers it by 9.19. The rotary head looks at the first
# seat, with a weight of 0.99.

# %% tags=["fold-input"]
table = {}
for row in LOOKS_AT:
    if (row["seed"], row["asked"]) == (2, "first") and row["kind"] in ("ALiBi", "rotary"):
        columns = [
            f"{what}, {seat}" for what in ("weight", "logit") for seat in ("first", "last")
        ]
        for head, numbers in enumerate(zip(*(row[name] for name in columns)), 1):
            if max(map(abs, numbers)) > 5:
                table[f"{row['kind']}, head {head}"] = numbers
display.show(table, columns=columns)

# %%
SEAT_STEPS, PEOPLE, NO_SEAT = 200, 8, 16


def seated(b: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw who is named in 24 places, and the seats of the first 16, each once."""

    def shuffled(many: int) -> Tensor:
        return torch.rand(b, many, generator=source).argsort(1)  # (b, ...)

    people = torch.cat([shuffled(PEOPLE) for _ in range(3)], 1)  # (b, 24)
    return people, F.pad(shuffled(2 * PEOPLE), (0, PEOPLE), value=NO_SEAT)


def asked(people: Tensor, part: int) -> Tensor:
    """Give the places, 0 to 7 or 8 to 15, at which those who are asked for got a seat."""
    there = people[:, None, PEOPLE * part : PEOPLE * (part + 1)]  # (b, 1, 8)
    return (people[:, 2 * PEOPLE :, None] == there).int().argmax(
        -1
    ) + PEOPLE * part  # (b, 8)


# %%
class OneLook(nn.Module):
    """One layer of attention; for each token it scores the 16 seats."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.people, self.seats = nn.Embedding(PEOPLE, 64), nn.Embedding(17, 64)
        self.attention, self.added = KINDS[kind](), kind == "added"
        self.scores = nn.Linear(64, 16, bias=False)

    def embed(self, people: Tensor, seats: Tensor) -> Tensor:
        x = self.people(people) + self.seats(seats)  # (b, 24, 64)
        return x + sinusoidal_code(24, 64).to(x) if self.added else x

    def forward(self, people: Tensor, seats: Tensor) -> Tensor:
        x = self.embed(people, seats)  # (b, 24, 64)
        return self.scores(self.attention(x, x, x, need_weights=False, is_causal=True)[0])


# %% tags=["fold-input"]
def learn_seats(kind: str, part: int, seed: int, steps: int = SEAT_STEPS) -> OneLook:
    """Train a model to give the first seat (part 0) or the last one (part 1)."""
    torch.manual_seed(seed)
    source, model = torch.Generator().manual_seed(seed), OneLook(kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.9, 0.98))
    for step in range(steps):
        rate = min((step + 1) / 30, 1) * (1 - step / steps)  # warm-up, then down to zero
        optimizer.param_groups[0]["lr"] = 0.01 * rate
        people, seats = seated(32, source)
        right = seats.gather(1, asked(people, part))
        optimizer.zero_grad()
        F.cross_entropy(model(people, seats)[:, 16:].mT, right).backward()
        optimizer.step()
    return model


# %% tags=["fold-input"]
@torch.no_grad()
def looks(model: OneLook, part: int, b: int = 500) -> dict[str, float | list[float]]:
    """Measure accuracy, and of each head its weights and its part of the logits."""
    people, seats = seated(b, torch.Generator().manual_seed(4321))
    places = [asked(people, i) for i in (0, 1)]
    choice = model(people, seats)[:, 16:].argmax(-1)
    found = {"accuracy": (choice == seats.gather(1, places[part])).float().mean().item()}
    x, attention = model.embed(people, seats), model.attention
    options = {"is_causal": True, "need_weights": True, "average_attn_weights": False}
    weights = attention(x, x, x, **options)[1][:, :, 16:]           # (b, h, 8, 24)
    values = split_heads(x @ attention.in_proj_weight[128:].mT, 4)  # (b, h, 24, d)
    outward = (model.scores.weight @ attention.out_proj.weight).mT.unflatten(0, (4, 16))
    logits = weights @ values @ outward  # (b, h, 8, 16)
    logits = logits - logits.mean(-1, keepdim=True)
    for name, at in zip(("first", "last"), places):
        index = at[:, None, :, None].expand(-1, 4, -1, 1)                     # (b, h, 8, 1)
        on_seat = seats.gather(1, at)[:, None, :, None].expand(-1, 4, -1, 1)  # (b, h, 8, 1)
        found[f"weight, {name}"] = weights.gather(-1, index).mean((0, 2, 3)).tolist()
        found[f"logit, {name}"] = logits.gather(-1, on_seat).mean((0, 2, 3)).tolist()
    return found


# %%
brief = looks(learn_seats("rotary", part=0, seed=0, steps=20), part=0, b=20)
print(f"after 20 steps: {brief['accuracy']:.2f}")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="models-of-today"
# ## Models of today, in one table
#
# This chapter opens a part on what has become of attention since the first Transformer. Here are
# twelve models of 2024 to 2026. Most of the first column you know by now; the others are ahead of you.
# Does any of these models still have multi-head attention as you built it?

# %% tags=["fold-input"]
MODELS = {  # positions, keys and values, the keys that a query sees, and what comes besides
    "Llama 3.1, 2024": ("RoPE, llama3", "GQA", "all", "–"),
    "OLMo 2, 2024": ("RoPE", "MHA", "all", "QK-norm"),
    "DeepSeek-V3, 2024": ("RoPE on 1/3, YaRN", "MLA", "all", "–"),
    "Gemma 3, 2025": ("RoPE, two bases, linear", "GQA", "windows, 5 to 1", "QK-norm"),
    "Qwen3, 2025": ("RoPE", "GQA", "all", "QK-norm"),
    "SmolLM3, 2025": ("RoPE, NoPE in 1/4", "GQA", "all", "–"),
    "gpt-oss, 2025": ("RoPE, YaRN", "GQA", "windows, 1 to 1", "sinks"),
    "Qwen3-Next, 2025": ("RoPE on 1/4", "GQA", "linear, 3 to 1", "QK-norm, gated"),
    "Kimi Linear, 2025": ("NoPE", "MLA", "linear, 3 to 1", "–"),
    "DeepSeek-V3.2, 2025": ("RoPE on 1/3, YaRN", "MLA", "sparse, 2,048", "–"),
    "Qwen3.5, 2026": ("RoPE on 1/4", "GQA", "linear, 3 to 1", "QK-norm, gated"),
    "DeepSeek-V4, 2026": (
        "RoPE on 1/8, two bases, YaRN",
        "MQA",
        "windows, compressed 4 or 128 ×",
        "QK-norm, sinks",
    ),
}
HEADINGS = ["positions", "keys and values", "keys seen", "besides"]
display.show(MODELS, columns=HEADINGS, corner="model, year", decimals="<")

# %% [markdown]
# None does. OLMo 2 comes nearest: each head has keys of its own, and each query sees all keys before
# it. But its queries and keys are rotated and normed. Where to read about each column:
#
# - *Positions*: this chapter. RoPE on 1/3 turns a third of a head's features; NoPE in 1/4 means that
#   every fourth layer knows no positions; *linear*, *llama3* and [YaRN](#cell-id=turning-more-slowly)
#   stretch RoPE for longer texts.
# - *Keys and values*: multi-head attention (MHA) has them for each head; how grouped (GQA) and latent
#   attention (MLA) share them, and one KV head (MQA), is in [chapter 22](22_fewer_keys.ipynb).
# - *Keys seen*: [chapter 24](24_windows.ipynb). In *5 to 1*, five such layers come before each one
#   that sees all keys. *2,048* is how many keys a query chooses; what DeepSeek-V4 does is
#   [all at once](24_windows.ipynb#cell-id=all-at-once).
# - *Besides*: sinks and gated attention in [chapter 24](24_windows.ipynb#cell-id=the-key-that-must-stay),
#   QK-norm in [chapter 25](25_a_model_of_today.ipynb#cell-id=one-class).
#
# Two chapters have no column, because what they explain changes no result, up to rounding: the [KV
# cache](21_cache.ipynb), and FlashAttention in [Tiles](23_tiles.ipynb).
#
# <details><summary>Where the rows come from</summary>
#
# Each row is compared with the model's configuration and code in `transformers`
# (`tests/annotated_book/test_models_of_today.py`). Seven cells are not what the configuration is by
# default: `linear` in Gemma 3, which its models of 4 to 27 billion parameters have in the layers that see
# all keys ([Gemma Team](../docs/references.md#gemma-2025)); YaRN in DeepSeek-V3 ([DeepSeek-AI 2024, section 4.3](../docs/references.md#deepseek-2024-b)) and
# in V3.2, which continues it; YaRN in DeepSeek-V4, which its layers with compressed keys have, 16-fold
# ([DeepSeek-V4](../docs/references.md#deepseek-v4)); Llama 3.1 ([Llama Team, table 3](../docs/references.md#llama-2024), [Llama 3.1's
# code](../docs/references.md#llama-3-1)), and the groups of Qwen3 ([Yang et al. 2025, table
# 1](../docs/references.md#yang-2025)). OLMo 2's row is that of the model
# with 7 billion parameters.
#
# </details>

# %% [markdown]
# ## Exercises
#
# ### Find the missing permutation
#
# *Medium, 6 minutes.* Now the other way: a checkpoint pairs the halves of a head, and your class pairs
# neighbours. Write `to_neighbours(weight, num_heads)`, which takes $W_Q$ or $W_K$ as `nn.Linear`
# keeps it: one row for each of the h · d features. It returns the rows in the order that your class
# needs. Use no function of the package.


# %% tags=["exercise"]
def to_neighbours(weight: Tensor, num_heads: int) -> Tensor:
    """Reorder the rows, from pairs half a head apart to pairs side by side."""
    return None  # your lines here


# %%
exercises.positions.check_permutation(to_neighbours)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Write down the order for one head of width 6: which row has to come first, and which one, its partner,
# second?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Give each head an axis of its own, so that nothing crosses from one head to another, and each half, too:
# the rows become `(h, 2, d / 2, ...)`. Which two axes have to change places?
#
# </details>


# %% tags=["solution"]
def to_neighbours(weight: Tensor, num_heads: int) -> Tensor:
    """Reorder the rows, from pairs half a head apart to pairs side by side."""
    halves = weight.unflatten(0, (num_heads, 2, -1))
    return halves.transpose(1, 2).flatten(0, 2)


exercises.positions.check_permutation.folded(to_neighbours)

# %% [markdown]
# ## What you have now
#
# > **In short.** A score should know how far the key (at j) is from the query (at p).
# > Rotary positions turn both: $(R_p\,q)^\top (R_j\,k) / \sqrt d = (R_{p-j}\,q)^\top k / \sqrt d$.
# > Here $R_p$ turns every pair by its angle at position p. A bias by distance is added:
# > $q^\top k / \sqrt d + \text{bias}_{\text{head}}(p - j)$.
# >
# > Angles `(n, d / 2)`, turned `(b, h, n, d)`, biases `(h, n, m)`.
# >
# > ```python
# > angle = positions[:, None] / base ** (torch.arange(0, d, 2) / d)
# > a, b = x.chunk(2, -1)  # the layout "half"
# > cos, sin = angle.cos(), angle.sin()
# > x = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
# > ```
# >
# > Turn queries and keys, not values, in the layout of the weights. ALiBi and buckets hold up past
# > the trained length; rotary positions need their slow pairs slowed down, and in these small
# > models YaRN did that best.
#
# A model that writes text computes the same keys again for each new word. The [next
# chapter](21_cache.ipynb) keeps them.
