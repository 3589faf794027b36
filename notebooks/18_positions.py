# %% [markdown]
# # Positions
#
# *How far is this word from that one?*
#
# > the cat drank milk because it was thirsty
#
# To find out what *it* is, you look four words back, to *cat*. Write *yesterday* in front of the
# sentence, and every word stands somewhere else. You still look four words back. What you use is the
# **distance** between two words, and not the place of either.
#
# [The Transformer](09_transformer.ipynb#clocks) writes each word's place into the word: the hands of
# several clocks are added to its features, before the first layer. In this chapter positions move
# into the attention itself, so that a score depends on how far apart query and key stand. There are
# two ways. One turns queries and keys like hands of a clock, each by its own position. The other
# adds a number to the score, which depends on the distance. At the end you measure what each of
# them does in a text that is longer than any in training.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map("score")

# %% [markdown]
# ## A place that is added
#
# Begin with what added positions do. The cell adds the clocks' code to the words, and computes the
# scores of *it*, once with the sentence at position 0 and then with the sentence further back, as if
# other text stood in front. All words and all distances stay the same. What happens to the score of
# *it* for *cat*: does it stay, does it change in the last digits, or does it become another number?
#
# <details><summary>What do you expect?</summary>
#
# It becomes another number. The dot product of two sums has four terms: word with word, place with
# place, word with place, and place with word. The first two stay, since a dot product of two places
# depends on their distance [alone](09_transformer.ipynb#near-and-far). The other two compare a word
# with a place, and change with the place [[Dai et al., section
# 3.3](../docs/references.md#dai-2019)].
#
# </details>

# %%
import copy
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention import MultiheadAttention, chapters, sinusoidal_code

one = chapters.load("01_one_head")
it, cat = one.WORDS.index("it"), one.WORDS.index("cat")
code = sinusoidal_code(200, 4).float()  # (200, 4)

print("begin   for cat   looks most at")
for begin in (0, 1, 2, 10, 100):
    x = one.EMBEDDINGS + code[begin : begin + 8]  # (8, 4)
    scores = (x @ x.T / math.sqrt(4))[it]         # (8,)
    print(f"{begin:5} {scores[cat]:9.2f}   {one.WORDS[scores.argmax()]}")

# %% [markdown]
# The score runs from 1.15 to 2.73, and where the sentence begins at 1 or 2, *it* looks most at
# itself. Word plus place times word plus place gives four products. The product of the two places
# depends on the distance alone, and a model can use it. But the two products of a word with a place
# go on changing, and the model must learn to ignore them.
#
# ## Two numbers that turn
#
# Take two features of a word and read them as an arrow on paper: one to the right, one up. The dot
# product of two arrows is the product of their lengths times the cosine of the angle between them.
# Now turn both arrows by the same angle. Their lengths and the angle between them stay, and so does
# their dot product.
#
# So let each arrow turn with its position, like the hand of a clock, but counterclockwise: at
# position p it has turned by p radians. Then the angle from a key at position j to a query at
# position p grows by p − j radians. Whatever their positions, the score depends on the distance p −
# j alone. Turned by an angle φ counterclockwise, the arrow (a, b) becomes
#
# $$(a \cos\varphi - b \sin\varphi,\;\; b \cos\varphi + a \sin\varphi)$$
#
# The cell takes the first two features of *it* as the query and those of *cat* as the key. It turns
# each by its position, and prints their dot product at several positions, not yet divided by √d.


# %%
def turn(arrow: Tensor, angle: float) -> Tensor:
    """Turn two numbers, read as an arrow, counterclockwise."""
    a, b = arrow
    cos, sin = math.cos(angle), math.sin(angle)
    return torch.stack([a * cos - b * sin, b * cos + a * sin])  # (2,)


query, key = one.EMBEDDINGS[it, :2], one.EMBEDDINGS[cat, :2]  # (2,), (2,)
print("it:", query.tolist(), " cat:", key.tolist())
print("it at   cat at   distance   score")
for p, j in ((5, 1), (6, 2), (105, 101), (5, 3), (7, 1)):
    score = turn(query, p) @ turn(key, j)                       # ()
    print(f"{p:5} {j:8} {p - j:10} {score:7.2f}")

# %% [markdown]
# At distance 4 the score is 0.31, whether *cat* stands at 1, 2 or 101. At other distances it is
# another number. The figure shows the two arrows. If it has sliders, do two things:
#
# 1. Move *cat*, and leave the distance. Both arrows turn together. The score stays.
# 2. Move the distance. Now only the query turns, and the
#    score moves from point to point along the curve.

# %% jupyter={"source_hidden": true}
SHOWN = [(5, 1), (9, 5), (7, 1)]
display.rotation(query, key, name="turning", words=("it", "cat"), shown=SHOWN)

# %% [markdown]
# ### Warm-up: quarter turns
#
# *Easy, 2 minutes.* Let a pair turn by a quarter turn per position, counterclockwise. A quarter
# turn has cosine 0 and sine 1. The query's pair is (2, 1) and the key's (3, 1), before turning.
# Write down the query at position 1, the query at position 2, and the dot product of a query at
# position 2 and a key at position 1.

# %% tags=["exercise"]
my_turned = [
    None, None,  # the query at position 1
    None, None,  # the query at position 2
    None,  # the dot product of the query at position 2 and the key at position 1
]

# %%
from annotated_attention import exercises

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
# The distance is 1. So the score is that of the query turned once and the key not turned at all.
#
# </details>

# %% tags=["solution"] jupyter={"source_hidden": true}
my_turned = [-1, 2, -2, -1, -1 * 3 + 2 * 1]

exercises.positions.check_turned(my_turned)

# %% [markdown]
# ## All pairs
#
# A single hand repeats itself after a full turn, which takes a little over six words. So it can
# hardly tell a key one word back from a key seven words back. The remedy is the same as for the
# clocks: a head of width d has d / 2 pairs of features, and each pair turns more slowly than the
# one before. Pair i, counted from 0, turns by $\text{base}^{-2i/d}$ radians per position. The first
# pair turns by 1 radian, the last hardly at all: by 0.01<!-- setting --> in a head of width 4, with
# 10000 for the **base**, as in the paper. Positions that turn queries and keys are called **rotary
# positions** (RoPE for short: rotary position embedding) [[Su et al., section
# 3.2.2](../docs/references.md#su-2021)].
#
# Two pieces of the package do this. The function `rotate` turns each pair by an angle of its own.
# The module `RotaryEmbedding` computes the angles from the positions, and calls `rotate`. In the
# shapes, r counts the pairs, one rotation each. `layout` says which features form a pair, and comes
# in the next section; what `scaling` and `dynamic` mean comes [at the end](#turning-more-slowly).

# %%
from annotated_attention.modern import RotaryEmbedding, rotary

display.annotated(rotary.rotate, RotaryEmbedding.forward, RotaryEmbedding.angles)

# %% [markdown]
# A word of our sentence has four features, so two pairs of neighbours (`interleaved`): *animal* with
# *food*, which turn by 1 per word, and *action* with *quality*, which turn by 0.01<!-- setting -->.
# The cell lets every word be query and key, and prints the scores of *it*: without turning, turned
# with the sentence at 0, and turned with the sentence at 100. The assertion checks that all scores
# stay the same, wherever the sentence begins.

# %%
TURNING = RotaryEmbedding(4, layout="interleaved")


def turned_scores(begin: int) -> Tensor:
    """Score all words for all words, with the sentence at position ``begin``."""
    x = TURNING(one.EMBEDDINGS, begin + torch.arange(8))  # (8, 4)
    return x @ x.T / math.sqrt(4)                         # (8, 8)


plain = one.EMBEDDINGS @ one.EMBEDDINGS.T / math.sqrt(4)  # (8, 8)
for begin in range(1, 300):
    torch.testing.assert_close(turned_scores(begin), turned_scores(0), atol=1e-4, rtol=0)
rows = torch.stack([plain[it], turned_scores(0)[it], turned_scores(100)[it]])  # (3, 8)
one.show(one.WORDS, ["plain", "at 0", "at 100"], rows.mT)

# %% [markdown]
# The last two columns are equal: the score depends on the distance, not on the place. The
# columns also show what turning costs. *Cat* and *it* share the feature *animal*, which lies in the
# fast pair. Over four words that pair has turned by 4 radians, and of the score 1.50 only 0.15 is
# left (the 0.31 from above, divided by √4). *Thirsty* and *it* also share *quality*, in the slow
# pair, and that part is kept. These features were made by hand, without any thought of turning. A
# trained model has $W_Q$ and $W_K$ in front of the rotation, and can put into slow pairs what
# should count at any distance.
#
# ### In the class
#
# In the class, the rotation goes between the projections and the scores. `attend` sits just there,
# and is one of the two methods made to be
# [overridden](07_multihead_attention.ipynb#the-steps-that-forward-calls), so the subclass is short.
# Only queries and keys turn. Values do not: they are what is collected, and the distance has done
# its work in the score.

# %%
from annotated_attention.modern import RotaryAttention

display.annotated(RotaryAttention.attend)

# %% [markdown]
# Try it on outputs. Put three words of padding in front of the sentence, and mask them. With rotary
# positions every word must come out as before, up to rounding, although it stands three places
# further back. The second line does the same with added positions, in the same module without its
# rotation; there the words change.

# %%
torch.manual_seed(18)
attention = RotaryAttention(4, 2, batch_first=True)
without = MultiheadAttention(4, 2, batch_first=True)
without.load_state_dict(attention.state_dict())        # a rotation has no parameters

words = one.EMBEDDINGS[None]          # (1, 8, 4)
moved = F.pad(words, (0, 0, 3, 0))    # (1, 11, 4)
padding = torch.arange(11)[None] < 3  # (1, 11)
for name, module, added in (("rotary", attention, 0), ("added", without, 1)):
    x, y = words + added * code[:8], moved + added * code[:11]  # (1, 8, 4), (1, 11, 4)
    before = module(x, x, x)[0]                                 # (1, 8, 4)
    after = module(y, y, y, padding)[0][:, 3:]                  # (1, 8, 4)
    print(f"{name:>6}: words come out changed by up to {(after - before).abs().max():.7f}")

# %% [markdown]
# <!-- deeper: Why one rotation undoes the other -->
# ### Going deeper: Why one rotation undoes the other
#
# Write $R_p$ for the matrix that turns every pair by its angle at position p. It has a block of
# cosines and sines for each pair, and zeros elsewhere. A rotation is undone by turning back, so
# $R_p^\top = R_{-p}$, and two rotations in a row add their angles, so $R_{-p} R_j = R_{j-p}$. The
# score of a turned query for a turned key is therefore
#
# $$(R_p\,q)^\top (R_j\,k) = q^\top R_p^\top R_j\, k = q^\top R_{j-p}\, k = (R_{p-j}\,q)^\top k$$
#
# in which only the distance is left (equation 16 of the paper). A complex number
# is such a pair, too: $a + b\mathrm{i}$ times $\cos\varphi + \mathrm{i}\sin\varphi$ is the arrow
# turned by φ. The cell turns with matrices and with complex numbers, and compares with `rotate`:
# numbers and gradients.

# %%
x = torch.randn(2, 3, 5, 6, dtype=torch.float64, requires_grad=True)  # (b, h, n, d)
places = torch.tensor([0, 1, 4, 9, 400])
pairs = RotaryEmbedding(6, layout="interleaved")
found = pairs(x, places)  # (b, h, n, d)

angle = places[:, None] * 10000.0 ** (-torch.arange(0, 6, 2).double() / 6)   # (n, r)
phase = torch.polar(torch.ones_like(angle), angle)                           # (n, r)
complex_ones = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())  # (b, h, n, r)
product = torch.view_as_real(complex_ones * phase).flatten(-2)               # (b, h, n, d)

cos, sin = angle.cos(), angle.sin()                                    # (n, r), (n, r)
blocks = torch.stack([cos, -sin, sin, cos], -1).unflatten(-1, (2, 2))  # (n, r, 2, 2)
matrices = torch.stack([torch.block_diag(*row) for row in blocks])     # (n, d, d)
by_matrix = (matrices @ x[..., None])[..., 0]                          # (b, h, n, d)

# %%
expected = one.gradients(found, [x])
for other in (product, by_matrix):
    torch.testing.assert_close(other, found)
    torch.testing.assert_close(one.gradients(other, [x]), expected)
print("matrices, complex numbers, rotate: equal, and so are the gradients")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Two layouts, one permutation
#
# Which two features form a pair? The paper pairs neighbours, and so do GPT-J and the code that Meta
# published with Llama. Others pair feature i with feature i + d / 2, because two halves of a tensor
# are easier to cut than every second number. GPT-NeoX does so, and `transformers` does so for Llama,
# too. Here are both for a head of width 6, with features counted from 0:
#
# | layout | pair 0 | pair 1 | pair 2 |
# |---|---|---|---|
# | `"interleaved"` | 0 and 1 | 2 and 3 | 4 and 5 |
# | `"half"` | 0 and 3 | 1 and 4 | 2 and 5 |
#
# Neither is better. The rows of $W_Q$ and $W_K$ make the features, so reordering these rows within
# each head gives the same pairs in the other layout. But weights belong to the layout that they
# were trained in. Load weights of one layout into a class with the other: is that an error, is
# every score wrong, or does it depend on the distance?
#
# <details><summary>What do you expect?</summary>
#
# It depends on the distance. No error is raised, since a rotation has no parameters and all shapes
# fit. A query and a key at the same position are turned alike in either layout, so at distance 0 the
# score is right. With the distance the two layouts turn ever more differently.
#
# </details>

# %%
class Watched(RotaryAttention):
    """Keeps the scores of its last call."""

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        self.seen = super().score(q, k)  # (b, h, n, m)
        return self.seen


torch.manual_seed(18)
b, n, h, d = 2, 128, 4, 32
e = h * d
checkpoint = Watched(e, h, batch_first=True, layout="interleaved")
loaded = Watched(e, h, batch_first=True, layout="half")
print(loaded.load_state_dict(checkpoint.state_dict()))

# %% [markdown]
# Everything has loaded. Now call both with the same tokens, and compare the scores of keys at some
# distances. As a yardstick, the last line compares the scores of each key with those of its
# neighbour.

# %%
x = torch.randn(b, n, e)  # (b, n, e)
for module in (checkpoint, loaded):
    module(x, x, x)
off = (loaded.seen - checkpoint.seen).abs()  # (b, h, n, n)
for distance in (0, 1, 2, 4, 16, 64):
    average = off.diagonal(-distance, -2, -1).mean()
    print(f"distance {distance:2}: off by {average:.2f} on average")
another = checkpoint.seen.roll(1, -1)  # (b, h, n, n)
apart = (another - checkpoint.seen).abs().mean()
print(f"the scores of two keys: {apart:.2f} apart on average")

# %% [markdown]
# At distance 0 every score is right. Far away it is off by nearly as much as the scores of two
# keys differ, so it says little about the words any more. Nothing fails, and nothing points
# to the rotation: a model would still write, only badly.
#
# `interleaved_to_half` reorders the rows: in each head first the even ones, then the odd ones. The
# packed matrix of the final class holds $W_Q$, $W_K$ and $W_V$ stacked on top of one another, so cut
# it, reorder the first two, and put it together again. The biases of these two projections go the
# same way.

# %%
from annotated_attention.modern import interleaved_to_half

display.annotated(interleaved_to_half)

# %%
with torch.no_grad():
    for name in ("in_proj_weight", "in_proj_bias"):
        w_q, w_k, w_v = getattr(checkpoint, name).chunk(3)
        rows = [interleaved_to_half(w_q, h), interleaved_to_half(w_k, h), w_v]
        getattr(loaded, name).copy_(torch.cat(rows))

x = torch.randn(b, n, e, requires_grad=True)       # (b, n, e)
found = loaded(x, x, x, is_causal=True)[0]         # (b, n, e)
expected = checkpoint(x, x, x, is_causal=True)[0]  # (b, n, e)
torch.testing.assert_close(found, expected)
mine, theirs = (one.gradients(y, [x])[0] for y in (found, expected))
torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)
print("reordered: equal outputs, equal gradients")

# %% [markdown]
# > **Pitfall.** Weights of one layout in a class with the other. All names and shapes fit. Find out
# > which layout a checkpoint was trained in, and compare one output with the code that it comes
# > from.
#
# ### Two checks, and what each of them sees
#
# A second mistake is just as quiet: turning the queries and forgetting the keys. Which checks find
# these two? The first check needs no reference. It moves the sentence by padding, as above, and the
# outputs of the words must stay. The second compares with the right outputs. Both mistakes are in
# `MISTAKES`, the list of [Testing attention](16_testing_attention.ipynb).

# %%
from annotated_attention.mistakes import MISTAKES

CODES = ("rotates-one-side", "rotation-layout-mixed")
x = torch.randn(b, 8, e)  # (b, 8, e)
for name in ("right", *CODES):
    version = MISTAKES[name].version if name in MISTAKES else RotaryAttention
    module = version(e, h, batch_first=True)
    module.load_state_dict(loaded.state_dict())
    output = module(x, x, x)[0]  # (b, 8, e)
    moved, padding = F.pad(x, (0, 0, 3, 0)), (torch.arange(11) < 3).expand(b, 11)
    after = module(moved, moved, moved, padding)[0][:, 3:]  # (b, 8, e)
    by_move = (after - output).abs().max()
    by_mistake = (output - loaded(x, x, x)[0]).abs().max()
    print(f"{name}: {by_move:.5f} after the move,")
    print(f"    {by_mistake:.5f} from the right output")

# %% [markdown]
# Moving the sentence finds the rotation of one side. It cannot find the mixed layouts. The wrong
# layout is a valid rotation too: its scores depend on the distance alone. But these weights were
# trained with another rotation, and only a comparison with right outputs shows that. Here is the
# forgotten rotation of the keys, with its remedy:

# %%
mistake = MISTAKES["rotates-one-side"]
display.diff(mistake.wrong, mistake.right)

# %% [markdown]
# ## A number added to the score
#
# The second way leaves queries and keys alone. It adds a **bias by distance** to the score: a
# number for each head that says how much this distance counts. Two kinds are in use.
#
# **Buckets.** Let the model learn the numbers [[Raffel et al., section
# 2.1](../docs/references.md#raffel-2020)]. One number per distance would be too many, and the far
# ones would rarely be trained. So distances are sorted into buckets, and all distances of a bucket
# share a number. Short distances have a bucket each. Longer ones share buckets that grow wider and
# wider. The last bucket begins somewhat before `max_distance`, and takes every distance from there
# on. In this code, as in its source, a distance is the key's position minus the query's, so keys
# that came earlier have negative ones.

# %%
from annotated_attention.modern import BucketedBias, biases

display.annotated(biases.relative_buckets, BucketedBias.forward)

# %% [markdown]
# In the code, `of_side` is the number of buckets for one side, and `alone` how many of them hold a
# single distance: half of them. `share` says how far a distance has come on a logarithmic scale,
# from `alone` (0) to `max_distance` (1). Multiplied by the number of buckets left over, and rounded
# down, it gives the bucket, counted from `alone`. `table`, `(num_buckets, h)`, holds the learned
# numbers.
#
# The cell sorts keys up to 40 places back into eight buckets, for a causal model.

# %%
back = torch.arange(41)
bucket = biases.relative_buckets(
    -back[None], num_buckets=8, max_distance=20, bidirectional=False
)[0]
for number in range(8):
    inside = back[bucket == number]
    upto = f" to {inside.max()}" if len(inside) > 1 else ""
    print(f"bucket {number}: distance {inside.min()}{upto}")

# %% [markdown]
# **ALiBi**, attention with linear biases, learns nothing: every step of distance takes the same
# amount off the score [[Press et al., section 3](../docs/references.md#press-2022)]. That amount is
# the head's **slope**. Steep heads look at their neighbours, flat heads far back. For eight heads
# the slopes are 1/2, 1/4, 1/8, and so on, down to 1/256. The figure shows those of four heads.

# %%
from annotated_attention.modern import AlibiBias

display.annotated(biases.alibi_slopes, AlibiBias.forward)

# %% jupyter={"source_hidden": true}
drawing, (ax,) = display.panels(360, 220)
slopes = [f"1/{1 / slope:.0f}" for slope in biases.alibi_slopes(4)]
penalties = AlibiBias(4)(torch.tensor([40]), 40 - back)[:, 0]
for head, style in enumerate(("-", "--", "-.", ":")):
    label = f"head {head + 1}: {slopes[head]}"
    ax.plot(back, penalties[head], style, color=display.COLOURS["h"], label=label)
ax.set(xlabel="distance", ylabel="added to the score", ylim=(-8, 0.5))
ax.legend(frameon=False, loc="lower left")
display.finish(drawing, name="by-distance", alt=(
    "What ALiBi adds to the score with four heads: straight lines that fall from 0 with "
    f"the slopes {', '.join(slopes)}."
))

# %% [markdown]
# In the class, a bias by distance is added to a mask of numbers that the caller may give, and the
# fused kernel still does the rest.

# %%
from annotated_attention.modern import BiasedAttention

display.annotated(BiasedAttention.attend)

# %% [markdown]
# What does it do to our sentence? Add the bias of two heads, with slopes 1/16 and 1/256, to the
# plain scores, and print what *it* looks at.

# %%
places = torch.arange(8)
scores = plain + AlibiBias(2)(places, places)               # (2, 8, 8)
rows = torch.cat([plain[None], scores]).softmax(-1)[:, it]  # (3, 8)
one.show(one.WORDS, ["plain", "slope 1/16", "1/256"], rows.mT)
steep = plain[it] - (places - it).abs()  # (8,)
print("with slope 1, it looks most at:", one.WORDS[steep.argmax()])

# %% [markdown]
# With the slope 1/16, the word *it* itself gains, and the first words lose the most. The flat head
# hardly notices distances this short. With the slope 1 a head would look mostly at *it* itself.
#
# > **Pitfall.** Slopes for a number of heads that is no power of two. The formula $2^{-8i/h}$ gives
# > some, but checkpoints use others: first the slopes of the next smaller power of two, and then the
# > first, third, fifth and so on of the next larger power.

# %%
heads = 6
simple = 2 ** (-8 * torch.arange(1, heads + 1) / heads)  # (6,)
right = biases.alibi_slopes(heads)                       # (6,)
names = [f"head {i + 1}" for i in range(heads)]
one.show(names, ["formula", "checkpoints"], torch.stack([simple, right], 1))
print(f"off by up to {(simple - right).abs().max():.2f}")

# %% [markdown]
# With the formula's slopes, the fifth head would look far back, although it was trained to look at
# its neighbours.
#
# ## Longer than in training
#
# A model is trained on texts up to some length. What happens in a longer one? Take the task of
# [Training](10_training.ipynb): a sequence of letters repeats itself after 4 to 16 letters, and the
# model has to write the next letter. It is trained on sequences of 32 letters and tested on
# sequences of 512. The model has two layers of attention with four heads, but no feed-forward part
# and no norms. Only its positions differ: added clocks, rotary, ALiBi, buckets, or none.

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


# %%
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


# %%
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

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# `make seeds` has trained each kind from five seeds for 1000 steps; its results come with the
# package. The table has the median accuracy in five stretches of the long sequences: the places
# before 32, the trained length, then those before 64, and so on. Only places after the first repeat
# has begun count, since nobody can know a letter before. Which kind loses least by place 512, and
# which loses most: added, rotary, ALiBi or buckets?
#
# <details><summary>What do you expect?</summary>
#
# ALiBi and the buckets lose least. A far key is something that they know: ALiBi's steep heads give
# it a large penalty, and all far distances share a bucket that was trained. Rotary positions lose
# most here. At distances that never occurred in training the score takes values that nothing has
# trained, and some far key may happen to score high.
#
# </details>

# %%
import json
import statistics
from importlib import resources

KEPT = resources.files("annotated_attention").joinpath("data/positions.json")
RUNS = json.loads(KEPT.read_text())["runs"]


def middle(kind: str, tested: str = "as trained") -> Tensor:
    """Give the median accuracy of five seeds in each stretch."""
    rows = [run[tested] for run in RUNS if run["kind"] == kind]
    return torch.tensor([statistics.median(row[str(end)] for row in rows) for end in ENDS])


table = torch.stack([middle(kind) for kind in KINDS])  # (5, 5)
one.show(list(KINDS), [str(end) for end in ENDS], table)

# %% jupyter={"source_hidden": true}
drawing, (ax,) = display.panels(360, 260)
LOOKS = (("b", ":"), ("d", "-."), ("n", "-"), ("h", "--"), ("m", (0, (6, 1))))
for kind, (letter, style) in zip(KINDS, LOOKS):
    runs = [run["as trained"].values() for run in RUNS if run["kind"] == kind]
    low, high = torch.tensor([[*row] for row in runs]).aminmax(dim=0)
    look = {"color": display.COLOURS[letter]}
    ax.fill_between(range(5), low, high, alpha=0.15, linewidth=0, **look)
    ax.plot(middle(kind), linestyle=style, marker="o", markersize=4, label=kind, **look)
ax.set(xlabel="places up to", ylabel="accuracy", ylim=(0, 1.05))
ax.set_xticks(range(5), [str(end) for end in ENDS])
ax.legend(frameon=False, loc="lower left")
said = "; ".join(f"{kind} {row[0]:.2f} to {row[-1]:.2f}" for kind, row in zip(KINDS, table))
caption = "Lines: the median of five seeds; bands: the lowest and the highest."
alt = f"Accuracy from the first stretch to the last: {said}."
display.finish(drawing, name="train-short", alt=alt, caption=caption)

# %% [markdown]
# Before place 32 all but the model without positions are nearly perfect. In the last stretch,
# places 256 to 511, ALiBi still gets 0.99 of the letters right and the buckets 0.95; added clocks
# have fallen to 0.84, and rotary positions to 0.33, which is less than without any positions. The
# right key stands at a distance that was trained, but hundreds of others stand at distances that
# were not, and probably some of them score high. Why the added clocks hold up better here, this
# table does not tell. So a good result at the trained length does not promise one in a longer text.
#
# This toy task does not tell the whole story. The answer never stands more than 16 letters back, so
# looking near is enough, and nothing is lost where far keys fade out. In a task that needs a far
# key, a penalty on distance gets in the way. The model without any positions learns part of the
# task, too: under a causal mask the first word sees one key, the second sees two, and from that a
# model can learn where it is [[Kazemnejad et al.](../docs/references.md#kazemnejad-2023)].
#
# ## Turning more slowly
#
# If unseen angles are what harms rotary positions, turn more slowly, so that a long text uses only
# angles that a short one has used. A pair that goes round within 32 letters has met angles all the
# way. Only a slower pair meets new ones in a longer text. Four ways of slowing down are common; a
# checkpoint names its own in `config.json`, under `rope_scaling` or `rope_parameters`. Pass the same
# dictionary to `RotaryEmbedding` as its argument `scaling`, and the number that is called
# `rope_theta` there as its argument `base`.
#
# - `linear` divides every speed by a factor [[Chen et al.](../docs/references.md#chen-2023)].
# - `dynamic` raises the base as the text grows, which slows the slow pairs most [[Peng et al.,
#   section 3.3](../docs/references.md#peng-2023)].
# - `yarn` keeps the speed of every pair that turns at least 32 times within the trained length. (32 is YaRN's own setting; that our texts are 32 long is chance.) It divides the speed of every pair that turns less than once by the factor. In between, a ramp leads from one to the other. All scores are enlarged, too, which sharpens the softmax [[Peng et
#   al., section 3.4](../docs/references.md#peng-2023)].
# - `llama3` has a ramp of another form, here from 4 turns to one, and leaves the scores as they are,
#   as in [Llama 3.1](../docs/references.md#llama-3-1).
#
# For the models above, these are the settings. Their heads are 16 wide, they were trained on 32
# letters, and 512 letters are 16 times as many. (`dynamic` finds the 16 itself, from the length of
# the text; a factor in its settings would come on top, so it is 1.)

# %%
from annotated_attention.modern import rotary_frequencies

FACTOR = LONG / SHORT  # 16
TRAINED = {"original_max_position_embeddings": SHORT}
SCALINGS = {
    "linear": {"rope_type": "linear", "factor": FACTOR},
    "dynamic": {"rope_type": "dynamic", "factor": 1.0},
    "yarn": {"rope_type": "yarn", "factor": FACTOR, **TRAINED},
    "llama3": {
        "rope_type": "llama3", "factor": FACTOR, **TRAINED,
        "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    },
}
print(json.dumps(SCALINGS["llama3"], indent=1))

# %% [markdown]
# This is how it would look in a `config.json`. The next table has a row for each of the eight pairs.
# Its first column says how many turns the pair makes in 32 letters, the others how many times more
# slowly it turns with each kind of scaling.

# %%
speeds, _ = rotary_frequencies(16)
slower = [speeds * SHORT / (2 * math.pi)]              # turns within the trained length
for scaling in SCALINGS.values():
    other, factor = rotary_frequencies(16, scaling=scaling, max_length=SHORT, length=LONG)
    slower.append(speeds / other)
    if factor != 1:
        print(f"scores with {scaling['rope_type']}: {factor**2:.1f} times as large")
one.show([str(i) for i in range(8)], ["turns", *SCALINGS], torch.stack(slower, 1))

# %% [markdown]
# `linear` slows the fast pairs as much as the slow ones, so two neighbours are hardly told apart
# any more. The others leave the first pair alone and slow the last one 16 times; they differ in
# what is between. For YaRN no pair here turns 32 times, so the ramp begins at the
# fastest one: pair 0 keeps its speed, pair 1 gets one in between, and the rest are divided.
#
# What does scaling do to the trained rotary models, without a single step of training? `make seeds`
# has exchanged their rotation with the function below, and the table shows its stored results. All
# columns come from one pass over 512 letters, so `dynamic` uses the speeds for 512 everywhere.


# %%
def scaled(model: LongCopier, scaling: dict) -> LongCopier:
    """Copy a model with rotary positions, and scale its rotation."""
    other = copy.deepcopy(model)
    for attention in other.layers:
        attention.rotary = RotaryEmbedding(16, scaling=scaling, max_length=SHORT)
    return other


tests = ["as trained", *SCALINGS]
table = torch.stack([middle("rotary", tested) for tested in tests])  # (5, 5)
one.show(["plain", *SCALINGS], [str(end) for end in ENDS], table)

# %% [markdown]
# YaRN lifts the last stretch from 0.33 to 0.97, without training and with hardly any loss at the
# trained length. `dynamic` reaches 0.66, and `llama3` 0.80. The latter loses even before
# place 32: it makes pair 1 almost four times slower, although that pair, with 1.61 turns in 32
# letters, had met angles all the way round.
# `linear` breaks even the short texts, since the model has learned what a fast pair says about
# neighbours. It was proposed together with further training, which these models did not get.
#
# A real configuration, that of Llama 3.1, reads like this; its `rope_theta` is 500,000. The cell
# counts what becomes of the pairs of a head of width 128.

# %%
LLAMA = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
ratio = rotary_frequencies(128, base=500000.0)[0]
ratio = ratio / rotary_frequencies(128, base=500000.0, scaling=LLAMA)[0]
kept, divided = (ratio == 1).sum(), (ratio == 8).sum()
print(f"{kept} pairs as they were, {divided} divided by 8, {64 - kept - divided} between")

# %% [markdown]
# <!-- deeper: The formulas of the scaled rotations -->
# ### Going deeper: The formulas of the scaled rotations
#
# All of them are in one function and its helpers. In `_yarn`, `pair_that_turns` solves the formula
# of the speeds for the number of the pair.

# %%
from annotated_attention.modern import frequencies

display.annotated(rotary_frequencies, frequencies._llama3)

# %%
display.annotated(frequencies._yarn, frequencies._yarn_factor)

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# > **Pitfall.** With `dynamic`, the speeds depend on the length of the text. A model that writes
# > with [a cache](19_cache.ipynb) keeps keys that were turned while the text was shorter, and they
# > no longer fit.
#
# ## Exercises
#
# ### Find the missing permutation
#
# *Medium, 10 minutes.* A checkpoint was trained with pairs side by side, and your class pairs the
# halves of a head. Write `to_half(weight, num_heads)`: it takes $W_Q$ or $W_K$ as `nn.Linear` keeps
# it, one row for each of the h · d features of the queries, and returns the rows in the order that
# your class needs. Use no function of the package.


# %% tags=["exercise"]
def to_half(weight: Tensor, num_heads: int) -> Tensor:
    """Reorder the rows, from pairs side by side to pairs half a head apart."""
    return None  # your lines here


# %%
exercises.positions.check_permutation(to_half)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Write down the order for one head of width 6: which row has to come first, and which one has to be
# its partner, three rows below?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Give each head an axis of its own, so that nothing crosses from one head to another: the rows
# become `(h, d / 2, 2, ...)`. Which two axes have to change places?
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
def to_half(weight: Tensor, num_heads: int) -> Tensor:
    """Reorder the rows, from pairs side by side to pairs half a head apart."""
    pairs = weight.unflatten(0, (num_heads, -1, 2))
    return pairs.transpose(1, 2).flatten(0, 2)


exercises.positions.check_permutation(to_half)

# %% [markdown]
# ### Slopes for any number of heads
#
# *Medium, 10 minutes.* Write `my_slopes(num_heads)`, a list of as many numbers. For h = 1, 2, 4, 8
# … heads, slope i is $2^{-8i/h}$ with i = 1 … h. For any other h, first come the slopes of the next
# smaller power of two. Then come the first, third, fifth, … slope of the next larger power, as many
# as are missing.


# %% tags=["exercise"]
def my_slopes(num_heads: int) -> list[float]:
    """Say how much each head takes off the score per step of distance."""
    return None  # your lines here


# %%
exercises.positions.check_slopes(my_slopes)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Write a helper for powers of two. `2 ** int(math.log2(num_heads))` is the next smaller power, or
# `num_heads` itself.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `row[::2]` takes every second one of a list, beginning with the first.
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
def my_slopes(num_heads: int) -> list[float]:
    """Say how much each head takes off the score per step of distance."""
    power = 2 ** int(math.log2(num_heads))
    smaller, larger = (
        [2 ** (-8 * i / h) for i in range(1, h + 1)] for h in (power, 2 * power)
    )
    return smaller + larger[::2][: num_heads - power]


exercises.positions.check_slopes(my_slopes)

# %% [markdown]
# ## What you have now
#
# > **In short.** Positions go into the score of a query at position p for a key at position j.
# > Rotary ones turn both: $(R_p\,q)^\top (R_j\,k) = (R_{p-j}\,q)^\top k$, where $R_p$ turns every
# > pair by its angle at position p. A bias by distance is added: $q^\top k / \sqrt d +
# > \text{bias}_{\text{head}}(p - j)$.
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
# > Turn queries and keys, not values, in the layout of the weights. ALiBi and buckets carry on past
# > the trained length; rotary positions need their slow pairs slowed down, and here YaRN did that
# > best.
#
# A model that writes computes the same keys again for each new word. The [next
# chapter](19_cache.ipynb) keeps them.
