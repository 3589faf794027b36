# %% [markdown]
# # Positions
#
# *How far is this word from that one?*
#
# *22 minutes and 8 of exercises. Afterwards you can rotate queries and keys (RoPE), stretch it
# with YaRN, bias scores by distance, and say what each does on long texts.*
#
# > the cat drank milk because it was thirsty
#
# To find out what *it* is, you look four words back, to *cat*. Write *yesterday* in front of the
# sentence, and every word has a different place. You still look four words back. What you use is
# the **distance** between two words, not the place of either. How does a model come by it? Here are five ways:
#
# - **added**: a code of its place is added to each word, as in [The Transformer](09_transformer.ipynb#cell-id=clocks).
# - **rotary** (RoPE): queries and keys turn like the hands of a clock, each by its own position.
# - **ALiBi**: each step of distance takes a fixed amount off the score.
# - **buckets** (T5): a learned number is added to the score, one for each range of distances.
# - **none** (NoPE): there is only the causal mask.
#
# Let them compete. A sequence of letters repeats itself after 4 to 16 letters, and a model has to write
# the next letter. It is trained on 32 letters and tested on 512. The models have two layers of attention with
# four heads, and nothing else; only their positions differ. Which loses least by place 512, and which most? And which one
# would you build into a large model?
#
# <details><summary>What do you expect?</summary>
#
# ALiBi and the buckets lose least: ALiBi's steep heads give a far key a large penalty, and with
# buckets all far distances share one number. Rotary positions lose most. By this figure, one would build in ALiBi.
#
# </details>
#
# Each kind was trained from five seeds for 1000 steps. *32* is the trained length, *64* the places from 32 to 63, and so on.

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

# %% tags=["hide-input"]
SHORT, LONG = 32, 512  # letters in training, and in the test
KEPT = resources.files("annotated_book").joinpath("data/positions.json")
RUNS = json.loads(KEPT.read_text())["runs"]
NAMES = ("none", "added", "rotary", "ALiBi", "buckets")
STRETCHES = ("32", "64", "128", "256", "512")


def middle(kind: str, tested: str = "as trained") -> Tensor:
    """Give the median accuracy of five seeds in each stretch."""
    rows = [run[tested] for run in RUNS if run["kind"] == kind]
    return torch.tensor([statistics.median(row[end] for row in rows) for end in STRETCHES])


# %% tags=["fold-input"]
drawing, (ax,) = display.panels(345, 300)
LOOKS = (("b", ":"), ("d", "-."), ("n", "-"), ("h", "--"), ("m", "-"))
said = []
for kind, (letter, style) in zip(NAMES, LOOKS):
    runs = [run["as trained"].values() for run in RUNS if run["kind"] == kind]
    low, high = torch.tensor([[*row] for row in runs]).aminmax(dim=0)
    look, line = {"color": display.COLOURS[letter]}, middle(kind)
    ax.fill_between(range(5), low, high, alpha=0.15, linewidth=0, **look)
    ax.plot(line, linestyle=style, marker="o", markersize=5, **look)
    y = line[-1] + {"ALiBi": 0.02, "buckets": -0.03}.get(kind, 0)
    ax.text(4.2, y, f"{kind} {line[-1]:.2f}", va="center", fontsize=12, **look)
    said.append(f"{kind} {line[0]:.2f} to {line[-1]:.2f}")
ax.set(xlabel="places up to", ylabel="accuracy", ylim=(0, 1.08), xlim=(-0.2, 6.4))
ax.set_xticks(range(5), STRETCHES)
caption = "Lines: the median of five seeds; bands: the lowest and the highest."
alt = f"Accuracy from the first stretch to the last: {'; '.join(said)}."
display.finish(drawing, name="train-short", alt=alt, caption=caption)

# %% [markdown]
# In the last stretch, ALiBi still gets 0.99 of the letters right and the buckets 0.95. The added codes
# have fallen to 0.84, and rotary positions to 0.34, less than without any positions. (That added codes
# beat rotary ones is a result of this small task. In language models the opposite was found [[Press et
# al., section 2.2](../docs/references.md#press-2022)].)
#
# Now look at what people build. Of [twelve models of today](#cell-id=models-of-today), eleven have the one that came last,
# and none has the one that came first. Why does the loser win? You build it, find out what went wrong,
# mend it without training, and then set the winner a task that is hard for it.
#
# *Here for one name?* [RoPE](#cell-id=two-numbers-that-turn) · [its two layouts](#cell-id=two-layouts-one-permutation) ·
# [ALiBi, T5's buckets](#cell-id=a-number-added-to-the-score) · [NoPE](#cell-id=without-positions) ·
# [YaRN, NTK, position interpolation, llama3](#cell-id=turning-more-slowly) ·
# [RoPE or ALiBi?](#cell-id=a-far-key)

# %% [markdown] name="two-numbers-that-turn"
# ## RoPE: two hands
#
# Take two features of a word and read them as an arrow on paper: one says how far it goes to the
# right, the other how far up. The dot product of two arrows is the product of their lengths times
# the cosine of the angle between them. And let a position be the hand of a clock that runs counterclockwise: at
# position p it stands at p radians. Then a word can take in its position in two ways: *add* the hand to its arrow, or
# *turn* the arrow by the hand's angle φ, with the **rotation matrix**:
#
# $$\begin{pmatrix} \cos\varphi & -\sin\varphi \\ \sin\varphi & \cos\varphi \end{pmatrix}
# \begin{pmatrix} a \\ b \end{pmatrix} =
# \begin{pmatrix} a \cos\varphi - b \sin\varphi \\ b \cos\varphi + a \sin\varphi \end{pmatrix}$$
#
# Each word has the four features of [chapter 1](01_one_head.ipynb), made by hand, *animal* and *food*
# first. These two of *it*, (1, 1), are the query, and those of *cat*, (3, 0), the key. The table has their dot product, not
# yet divided by √d. The first three rows have the same distance. Which column has the same score?


# %%
def turn(arrow: Tensor, angle: float) -> Tensor:
    """Turn two numbers, read as an arrow, counterclockwise."""
    a, b = arrow
    cos, sin = math.cos(angle), math.sin(angle)
    return torch.stack([a * cos - b * sin, b * cos + a * sin])  # (2,)


# %%
one = chapters.load("01_one_head")
it, cat = one.WORDS.index("it"), one.WORDS.index("cat")
query, key = one.EMBEDDINGS[it, :2], one.EMBEDDINGS[cat, :2]  # (2,), (2,)
rows, hand = {}, torch.tensor([1.0, 0.0])  # at position 0
for p, j in ((5, 1), (6, 2), (105, 101), (4, 2), (7, 1)):
    added = (query + turn(hand, p)) @ (key + turn(hand, j))  # ()
    rows[p] = [j, p - j, added, turn(query, p) @ turn(key, j)]
display.show(rows, columns=["cat at", "distance", "added", "turned"], corner="it at")

# %% [markdown]
# Turned, the score is 0.31 three times. Both arrows turn, so the angle between them grows by p − j radians: by the
# distance, and by nothing else. Added, there are three scores. (Word + hand) · (word + hand) gives four products, and the
# two of a word with a hand change when the sentence moves [[Dai et al., section
# 3.3](../docs/references.md#dai-2019)]. A model that wants the distance alone has to learn to ignore them.
#
# But nearer is not more: at distance 2 the score is −3.98, and at 6 it is 3.72. Move *cat* and keep the distance: both
# hands turn together, and the score stays. Then change the distance: only the query's hand turns.

# %% tags=["fold-input"]
SHOWN = [(5, 1), (9, 5), (7, 1)]
display.rotation(query, key, name="turning", words=("it", "cat"), shown=SHOWN)

# %% [markdown]
# ### Warm-up: quarter turns
#
# *Easy, 2 minutes.* Let a pair make a quarter turn counterclockwise per position (cosine 0, sine 1).
# Before turning, the query's pair is (2, 1) and the key's (3, 1). Write down the query at positions 1
# and 2, and the dot product of a query at position 2 and a key at position 1.

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
# At distance 6 the hand has nearly come round. So a single one can hardly tell a key
# one word back from a key seven words back. But a head of width d has d / 2 pairs of features, and
# each is a slower hand than the one before. The score is the sum over the pairs, and there the slow
# hands tell the two keys apart.
#
# Pair i, counted from 0, turns by $\text{base}^{-2i/d}$ radians per position. In the paper, the
# **base** is 10000. Pair 0 then turns by 1 radian, and the last pair hardly at all: by
# 0.01<!-- setting --> in a head of width 4. This is **RoPE**, rotary position embedding [[Su et al.,
# section 3.2.2](../docs/references.md#su-2021)].
#
# The function `rotate` does for all pairs what `turn` did for one. With the layout `"interleaved"`,
# neighbours form a pair; [below](#cell-id=two-layouts-one-permutation) is the other.

# %%
from annotated_attention.modern import RotaryEmbedding, rotary

display.annotated(rotary.rotate)

# %% [markdown]
# Each angle is a position times the speed of a pair: a row for each of n positions, a column for each
# of r = d / 2 pairs. `RotaryEmbedding` makes this table, in float32 even for a model in bfloat16, and
# calls `rotate`. Now our sentence. *Animal* and *food* turn by 1 per word, *action* and *quality* by
# 0.01<!-- setting -->. The table shows the scores of *it*: without turning, turned with the sentence at
# 0, and turned with the sentence at 100.

# %%
TURNING = RotaryEmbedding(4, layout="interleaved")


def turned_scores(begin: int) -> Tensor:
    """Score all words for all words, with the sentence at position ``begin``."""
    x = TURNING(one.EMBEDDINGS, begin + torch.arange(8))  # (8, 4)
    return x @ x.T / math.sqrt(4)                         # (8, 8)


plain = one.EMBEDDINGS @ one.EMBEDDINGS.T / math.sqrt(4)                       # (8, 8)
rows = torch.stack([plain[it], turned_scores(0)[it], turned_scores(100)[it]])  # (3, 8)
display.show(rows, ["plain", "at 0", "at 100"], one.WORDS, corner="score of “it”")

# %% tags=["proof"]
positions = torch.arange(8)                                        # (8,)
angle = positions[:, None] / 10000 ** (torch.arange(0, 4, 2) / 4)  # (8, 2)
cos, sin = angle.cos(), angle.sin()                                # (8, 2), (8, 2)
x = rotary.rotate(one.EMBEDDINGS, cos, sin, layout="interleaved")  # (8, 4)
torch.testing.assert_close(x, TURNING(one.EMBEDDINGS, positions))
print("✓ `RotaryEmbedding` is `rotate` with cosines and sines of position times speed.")

# %% tags=["proof"]
for begin in range(1, 300):
    torch.testing.assert_close(turned_scores(begin), turned_scores(0), atol=1e-4, rtol=0)
print("✓ The scores are the same wherever the sentence begins, tried at 300 places.")

# %% [markdown]
# The last two rows are equal. And they show what turning costs. *Cat* and *it* share the feature
# *animal*, in the fast pair. Over four words that pair turns by 4 radians, and of the score 1.50 only 0.15
# is left. *Thirsty* keeps 1.49 of 2.00, as half of that came from the slow pair. In a trained model, $W_Q$ and $W_K$ can
# use the slow pairs for whatever should count at any distance. Values do not turn: the distance only decides how much of
# each is taken.
#
# As one matrix, the whole rotation to position p is called $R_p$: a block for each pair, and zeros elsewhere. It is
# undone by turning back, so $R_p^\top = R_{-p}$, and two in a row add their angles. That is why
# only the distance is left (equation 16 of the paper):
#
# $$(R_p\,q)^\top (R_j\,k) = q^\top R_p^\top R_j\, k = q^\top R_{j-p}\, k = (R_{p-j}\,q)^\top k$$
#
# (Llama's own code multiplies complex numbers, $a + b\mathrm{i}$ by $\cos\varphi + \mathrm{i}\sin\varphi$, which
# is the same.)

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

# %% [markdown]
# ## Why RoPE lost: a slow hand
#
# A rotation makes the score depend on the distance alone. So what is wrong with a long distance? Look into
# one of the models that lost. Head 1 of the first layer looks one letter back, to learn what came before. The figure has its
# score for a letter at each distance (of the mean query and the mean key over all letters), and two of its eight pairs: the
# fastest, and the slow one that counts most. The key's hand is turned up, and the query's stands as far ahead as the
# distance has brought it. Move the distance out of the grey, beyond the 32 letters of training, up to 120. Which hand
# does the harm?


# %% tags=["fold-input"]
FACTOR = LONG / SHORT  # 16
TRAINED = {"original_max_position_embeddings": SHORT}
RAMP = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}  # from 4 turns to one
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

# %% tags=["fold-input"]
from annotated_attention.modern import frequencies, rotary_frequencies

TRAINED_TURNS = [run for run in RUNS if run["kind"] == "rotary"]
ASKS, OFFERS = (torch.tensor(TRAINED_TURNS[0][x])[0] for x in ("queries", "keys"))  # (16,)
turning = {"as trained": rotary_frequencies(16)}
for way in ("linear", "yarn"):
    turning[way] = rotary_frequencies(16, scaling=SCALINGS[way], max_length=SHORT)
ways = {way: (speeds, factor**2) for way, (speeds, factor) in turning.items()}
seen = {"shown": {"fast hand": 0, "slow hand": 2}, "trained": SHORT}
display.hands(ASKS, OFFERS, ways, name="two-hands", farthest=130, at=120, **seen)

# %% [markdown]
# The slow one. The fast hand comes round every six letters, so training has shown it everywhere. The slow hand made half
# a turn in training, round the far side, and never came back to the key's hand. At distance 120 it is back (so is a slower one, not drawn), and the
# fast hand happens to be there, too: the score is 6.26, more than the 5.76 of the previous letter. Training
# never saw the slow hand there, so nothing kept it from adding.


# %% tags=["fold-input"]
def by_pair(query: Tensor, key: Tensor, scaling: dict | None = None) -> Tensor:
    """Score a key at 512 distances; give what each of the eight pairs adds."""
    turn = RotaryEmbedding(16, scaling=scaling, max_length=SHORT)
    asks = turn(query.expand(LONG, -1), torch.arange(LONG))   # (512, 16)
    offers = turn(key[None], torch.tensor([0]))               # (1, 16)
    return (asks * offers / 4).unflatten(-1, (2, 8)).sum(-2)  # (512, 8)


# %% tags=["proof"]
for run in TRAINED_TURNS:
    for query, key in zip(torch.tensor(run["queries"]), torch.tensor(run["keys"])):
        score = by_pair(query, key).sum(-1)  # (512,)
        assert score[SHORT:].max() > score[:SHORT].max()
print("✓ In all 20 heads of the five first layers, the best of 512 keys lies beyond 31.")

# %% [markdown]
# <!-- deeper: the model, its training and its test -->
# ### Going deeper: the model, its training and its test
#
# Loss and accuracy count a letter once the first repeat has begun: before that, nobody can know it. The
# buckets have a `max_distance` of 32.

# %%
from annotated_attention.modern import AlibiBias, BiasedAttention, BucketedBias

LONG_STEPS = 1000
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


@torch.no_grad()
def averages(model: LongCopier) -> Tensor:
    """Average each head's query and key in the first layer over the 26 letters."""
    rows = model.letters.weight @ model.layers[0].in_proj_weight.mT  # (26, 192)
    return rows.mean(0).unflatten(0, (3, 4, 16))[:2]                 # (2, h, d)


short = learn_short("added", seed=0, steps=20)
print(f"before place 32, after 20 steps: {copied_until(short, b=5)['32']:.2f}")
assert averages(short).isfinite().all()

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="turning-more-slowly"
# ## YaRN, NTK, position interpolation: turning more slowly
#
# If unseen angles do the harm, turn more slowly. The obvious repair divides every speed by the same factor, here 16
# (**position interpolation** [[Chen et al.](../docs/references.md#chen-2023)], `linear`): then 512 letters use only angles that 32
# have used. What does it do to the head that looked one letter back? Guess, and press *linear* in the figure.
#
# <details><summary>What do you expect?</summary>
#
# It looks 12 letters back, with a score of 5.91, and 5.13 for the previous letter. The fast hand told neighbours
# apart. Now it hardly moves from one letter to the next.
#
# </details>
#
# **YaRN** first asks which hands need it. One that makes a full turn within the trained length has met all angles; only
# a slower one meets new ones. It slows those wholly, and those of up to 32 turns in part; where that ramp begins was
# found by trial [[Peng et al.](../docs/references.md#peng-2023)]. Press *yarn*: the fast hand keeps its
# speed, the slow one stays in the grey, and the previous letter wins again.
#
# Does it help? Here are the models that lost, without a single further step of training, with rotations for texts 16
# times as long.

# %% tags=["fold-input"]
TESTED = ("as trained", "linear", "dynamic", "llama3", "yarn", "yarn, same scores")
table = {way: middle("rotary", way)[[0, -1]].tolist() for way in TESTED}
display.show(table, columns=["up to 32", "up to 512"])

# %% [markdown]
# YaRN lifts the far places from 0.34 to 0.97, with hardly any loss at the trained length. The obvious repair fails even
# on short texts, with 0.36. (YaRN also makes scores larger. Without that, in the last row, it is 0.92: slowing the slow
# hands does nearly all of it. That `llama3` costs more on short texts here says nothing against it in a large model; see
# the fold.)

# %% tags=["proof"]
trained_first = 0
for run in TRAINED_TURNS:
    for query, key in zip(torch.tensor(run["queries"]), torch.tensor(run["keys"])):
        trained_first += int(by_pair(query, key, YARN).sum(-1).argmax() < SHORT)
assert trained_first == 13
print(
    "✓ With YaRN, 13 of the 20 heads score highest at a trained distance, 7 still beyond."
)

# %% [markdown]
# So the slow hands are not the whole cause: 7 of 20 heads still prefer a distance that training never saw, and yet nearly all
# letters are right. A second layer reads all heads.
#
# You meet YaRN as a block in a `config.json`. Older files call it `rope_scaling`, newer ones `rope_parameters`,
# with the base inside, as `rope_theta`. This is DeepSeek-V3's, which rotates 64 features of each head:

# %%
DEEPSEEK_V3 = {
    "type": "yarn",  # newer: rope_type
    "original_max_position_embeddings": 4096,  # trained length, in which turns are counted
    "beta_fast": 32,  # pairs that turn more often than this keep their speed
    "beta_slow": 1,  # pairs that turn less often get the whole factor
    "factor": 40,  # so many times as slow, for texts so many times as long
    "mscale": 1.0,  # this and the next: how much larger scores become
    "mscale_all_dim": 1.0,
}
speeds, by_rotation = rotary_frequencies(64, scaling=DEEPSEEK_V3)

# %% [markdown]
# Of its 32 pairs, how many turn forty times more slowly: all, half, or fewer?

# %% tags=["fold-input"]
usual, _ = rotary_frequencies(64)
OLD = {"original_max_position_embeddings": 4096, "factor": 40.0}
OTHERS = {"linear": {"factor": 40.0}, "dynamic": {"factor": 1.0}, "llama3": OLD | RAMP}
slower = {"yarn": usual / speeds}
for way, more in OTHERS.items():
    longer = {"scaling": {"rope_type": way, **more}, "max_length": 4096, "length": 163_840}
    slower[way] = usual / rotary_frequencies(64, **longer)[0]
kept, whole = ((abs(slower["yarn"] - x) < 0.01 * x).sum().item() for x in (1, 40))

# %% tags=["fold-input"]
drawing, (ax,) = display.panels(560, 310)
places = {"yarn": (13, 2), "linear": (0, 44), "dynamic": (1.2, 2.6), "llama3": (19.5, 1.15)}
for (way, line), letter, style in zip(slower.items(), "nbdh", ("-", ":", "-.", "--")):
    look = {"color": display.COLOURS[letter]}
    ax.plot(line, style, linewidth=3 if way == "yarn" else 1.5, **look)
    ax.text(*places[way], way, fontsize=14, **look)
for x, said in ((10.5, "32 turns: beta_fast"), (22.5, "1 turn: beta_slow")):
    ax.axvline(x, color="#808080", linewidth=1)
    ax.text(x + 0.2, 0.72, said, fontsize=13)
ax.set(xlabel="pair", ylabel="times more slowly", yscale="log", ylim=(0.66, 60))
ax.set_yticks([1, 2, 5, 10, 20, 40], ["1", "2", "5", "10", "20", "40"])
ax.minorticks_off()
caption = (
    f"YaRN: {kept} pairs keep their speed, {whole} turn 40 times more slowly, and "
    f"{32 - kept - whole} are on the ramp. Thin: other ways with this factor."
)
display.finish(drawing, name="slower-pairs", alt=caption, caption=caption)

# %% [markdown]
# Only 9 of 32. The thin lines are YaRN's relatives. **Dynamic NTK** (`dynamic`) raises the base as the text grows, so that the slow pairs slow down most: in a text s times as long
# to base · g^(d / (d − 2)). Here g is s with a `factor` f of 1, as above, and with another f · s − (f − 1), far more. Llama 3.1's `llama3` has a shorter ramp, from 4 turns to one, and
# no larger scores [[Llama 3.1](../docs/references.md#llama-3-1)]. (`longrope`, not shown, has a factor for each pair,
# found by a search [[Ding et al.](../docs/references.md#ding-2024)].)

# %% [markdown]
# <!-- deeper: mscale, YaRN's larger scores -->
# ### Going deeper: mscale, YaRN's larger scores
#
# In a longer text more keys share the weight, so YaRN also sharpens the softmax: rotated queries and keys are each
# multiplied by 0.1 ln s + 1, where s is the `factor`, and so scores by its square [[Peng et al., section
# 3.4](../docs/references.md#peng-2023)]. The two settings with *mscale* say who does it, the rotation or the model:

# %% tags=["fold-input"]
by_model = 0.1 * DEEPSEEK_V3["mscale_all_dim"] * math.log(DEEPSEEK_V3["factor"]) + 1
print(f"scores by the rotation: {by_rotation**2:.2f} times as large")
print(f"by the model's softmax scale: {by_model**2:.2f} times")

# %% [markdown]
# Without an `mscale` the rotation itself brings the larger scores. With both settings it multiplies queries and keys only by
# (0.1 · mscale · ln s + 1) / (0.1 · mscale_all_dim · ln s + 1), which is 1 where the two are equal, and the model's own
# code has to multiply the softmax scale, here by 1.87. Nothing fails if you forget it. Pass it yourself, as the argument
# `scale` of [latent attention](22_fewer_keys.ipynb): 1.87 divided by the root of a query's whole width.
#
# <!-- /deeper -->

# %% [markdown]
# ### In practice: a higher base, and more training
#
# Most large models are trained on short texts first, which cost less. Then comes a **higher base**, with which
# all pairs but the first turn more slowly, and training goes on with long texts: with Qwen3 from
# 4,096<!-- quoted --> to 32,768<!-- quoted --> tokens, and from a base of 10000 to 1,000,000<!-- quoted -->.
# YaRN and *dual chunk attention* bring four times as many in use [[Yang et al. 2025, section
# 3.2](../docs/references.md#yang-2025)]. Gemma 3 has **two bases**, these two, the lower one in layers with a
# window, which see near keys only. At the end of its pretraining, the larger models got `linear` with factor 8,
# and with training it works [[Gemma Team](../docs/references.md#gemma-2025)].
#
# In a server, YaRN slows the pairs in short texts, too, and may harm them. So Qwen's documentation advises to
# switch it on only for long texts, with no larger factor than they need
# [[Qwen3](../docs/references.md#qwen3-long)].

# %% [markdown] name="without-positions"
# **NoPE** is no positional encoding at all. A causal mask shows each word one more key than the word
# before, which tells how far along it stands [[Kazemnejad et
# al.](../docs/references.md#kazemnejad-2023)]. Some models of today leave out the rotation in a few
# layers only: SmolLM3 in every fourth. And for images **M-RoPE** shares the pairs out among time, height and
# width (`mrope_section` in a configuration) [[Wang et al.](../docs/references.md#wang-2024)].

# %% [markdown]
# <!-- deeper: Llama 3.1, settings, and the code of all four ways -->
# ### Going deeper: Llama 3.1, settings, and the code of all four ways
#
# Here are the settings for the small models above. They were trained on 32 letters, and 512 letters are
# 16 times as many. The heads are 16 wide, so the table has a row for each of eight pairs. Its first
# column says how many turns the pair makes in 32 letters. The other columns say how many times more
# slowly it turns.

# %%
plain, _ = rotary_frequencies(16)
turns = [plain * SHORT / (2 * math.pi)]  # within the trained length
shown = [*SCALINGS][:-1]
for scaling in map(SCALINGS.get, shown):
    other, longer = rotary_frequencies(16, scaling=scaling, max_length=SHORT, length=LONG)
    turns.append(plain / other)
    if longer != 1:
        print(f"scores with {scaling['rope_type']}: {longer**2:.1f} times as large")
display.show(torch.stack(turns, 1), range(8), ["turns", *shown], corner="pair")

# %% [markdown]
# Here `llama3` slows pair 1 by a factor of almost four, and YaRN by less than two. With a ramp that ends at
# two turns, `llama3` loses less. All stretches:

# %% tags=["fold-input"]
PARTS = ("as trained", *SCALINGS)
table = torch.stack([middle("rotary", way) for way in PARTS])  # (7, 5)
display.show(table, PARTS, STRETCHES, corner="places up to")

# %% [markdown]
# (`dynamic` has its speeds for a length of 512 in every column.) In a large model it is YaRN that slows more
# pairs. Llama 3.1 has a trained length of 8,192 and a factor of 8, and yet claims 131,072<!-- quoted --> tokens,
# sixteen times as many:

# %% tags=["proof"]
LARGE = {"factor": 8.0, "original_max_position_embeddings": 8192}
full, _ = rotary_frequencies(128, base=500_000)
by_llama3, by_yarn = (
    full / rotary_frequencies(128, base=500_000, scaling=scaling | LARGE)[0]
    for scaling in ({"rope_type": "llama3", **RAMP}, {"rope_type": "yarn"})
)
assert not (by_llama3 > by_yarn * 1.0001).any()
more = (by_yarn > by_llama3 * 1.0001).sum()
assert more == 16
told = f"YaRN slows {more} of 64 pairs more than `llama3`, and none less"
print(f"✓ With the settings of Llama, {told}.")

# %% [markdown]
# Pass a checkpoint's dictionary to `RotaryEmbedding` as the argument `scaling`, and a base that stands outside
# it as `base`. The angles equal those of `transformers` in all four ways
# (`tests/annotated_attention/modern/test_frequencies.py`).

# %% [markdown]
# The models were tested with this function:


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
# > no longer fit [[Positions that went wrong](../docs/references.md#positions-gone-wrong)].

# %% [markdown] name="a-number-added-to-the-score"
# ## ALiBi and T5: why not the winner?
#
# The winner leaves queries and keys alone. It adds a **bias by distance** to the score: a
# number for each head that says how much this distance counts.
#
# In **ALiBi**, attention with linear biases, every step of distance takes the same amount off the
# score [[Press et al., section 3](../docs/references.md#press-2022)]. That amount is the head's
# **slope**, and nothing is learned. Steep heads look at nearby words, and flat heads look far back.
# With h heads, head i has the slope $2^{-8i/h}$, counted from 1: with eight heads 1/2, 1/4, 1/8, and so
# on, down to 1/256.

# %% [markdown]
# <!-- deeper: ALiBi in code, and the slopes of six heads -->
# ### Going deeper: ALiBi in code, and the slopes of six heads
#
# The number of heads may not be a power of two. Then checkpoints use slopes that the formula does not give, and
# libraries have mixed the two up [[Positions that went wrong](../docs/references.md#positions-gone-wrong)].
# For six heads, checkpoints begin with the slopes of the next smaller power of two, here four. Then come
# the first, third, fifth slope and so on of the next larger power.

# %%
from annotated_attention.modern import alibi_slopes

display.annotated(AlibiBias.forward, alibi_slopes)

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
from annotated_attention.modern import biases

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
display.annotated(BiasedAttention.attend)

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="a-far-key"
# ### RoPE or ALiBi: when the far key is the right one
#
# Left as trained, ALiBi did best on long texts, and none of the [models of today](#cell-id=models-of-today)
# uses it. Why? In that task the answer is never more than 16 letters back. Take one in which it is
# the farther of two: eight people get a seat, later each gets another one, and then you are asked for
# the *first* seat of each, or for the *last*. ALiBi's steepest head of four takes this much off Ann's two keys:

# %% tags=["fold-input"]
drawing, (ax,) = display.panels(500, 200)
ax.set(xlim=(-0.7, 24.2), ylim=(-1.7, 5.6))
ax.axis("off")
for begin, letter, said in (
    (0, "m", "first seats"),
    (8, "h", "last seats"),
    (16, "n", "asked"),
):
    ink = display.COLOURS[letter]
    ax.bar(range(begin, begin + 8), 0.8, 0.86, color=ink, alpha=0.25)
    ax.text(begin + 3.5, -1.7, said, ha="center", color=ink, fontsize=14)
marks = {3: "Ann: 5", 11: "Ann: 12", 18: "Ann?"}
for place, said in marks.items():
    ax.bar(place, 0.8, 0.86, color="#808080")
    ax.text(place, -0.65, said, ha="center", fontsize=14, fontweight="bold")
told = []
for place, height in ((3, 4.2), (11, 2.2)):
    steps = torch.linspace(0, math.pi, 40)
    middle_x, half = (place + 18) / 2, (18 - place) / 2
    ax.plot(middle_x + half * steps.cos(), 0.9 + height * steps.sin(), color="#808080")
    taken = AlibiBias(4)(torch.tensor([18]), torch.tensor([place]))[0].item()
    said = f"{18 - place} back: {taken:.2f}".replace("-", "−")
    ax.text(middle_x - 2.2, 1.0 + height, said, ha="center", va="bottom", fontsize=14)
    told.append(said)
alt = (
    f"Place 18 asks for Ann, seated at places 3 and 11. ALiBi's head 1: {'; '.join(told)}."
)
display.finish(drawing, name="two-seats", alt=alt)

# %% [markdown]
# Seats are random, so on average every ALiBi head gives the nearer key more weight, whatever $W_Q$ and $W_K$ have
# learned (in one layer, without other positions). What share of the *first* seats does a model of one layer with
# four such heads find: almost none, half of them, or more?
#
# <details><summary>What do you expect?</summary>
#
# More than half. A flat head looks at both seats almost alike. And a model has several heads: what one
# of them brings too much of, another one can take away.
#
# </details>
#
# Five seeds trained each kind for 200 steps, some for longer: the median accuracy, the lowest and the highest.

# %% tags=["fold-input"]
FAR_KEPT = resources.files("annotated_book").joinpath("data/far_key.json")
LOOKS_AT, LONGER = (json.loads(FAR_KEPT.read_text())[name] for name in ("runs", "longer"))
table = {kind: [] for kind in NAMES}
WANTED = (("last", 200), ("first", 200), ("first", 400), ("first", 1000))
for kind, wanted in itertools.product(NAMES, WANTED):
    rows = [row for row in LOOKS_AT + LONGER if row["kind"] == kind]
    rows = [row for row in rows if (row["asked"], row["steps"]) == wanted]
    low, *_, high = found = sorted(row["accuracy"] for row in rows) or [0, 0]
    said = f"{statistics.median(found):.2f} ({low:.2f} to {high:.2f})"
    table[kind].append(said if rows else "")
columns = ["last seat", "first seat", "first, 400 steps", "first, 1,000 steps"]
display.show(table, columns=columns, corner="positions")

# %% [markdown]
# Without positions both seats look alike, and a choice between two is right half of the time. All others find
# the last seat. The first seat ALiBi can learn, too, but more slowly: it finds 0.67, then 0.79 and 0.93, with a
# wide spread, where RoPE finds nearly all in 400 steps. It has to subtract: one head looks at both seats, another at the last one and *lowers* it (the fold shows one). A rotary head can look
# at the first seat alone. So ALiBi has decided that near is better, and training has to work around it; RoPE and buckets
# leave it to training. Then why not buckets? A bias has to get into the fused kernel, which adds it
# score by score. A rotation is finished before that kernel begins. So much
# speaks for the loser: a few slower hands mend its fault, and it leaves near and far to training.

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
# Here are twelve models of 2024 to 2026, and what they have made of attention. Most of the first column
# you know by now; the others are ahead of you. Does any of these models still have multi-head attention
# as you built it?

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

# %% tags=["proof"]
with_rope = [name for name, (positions, *_) in MODELS.items() if "RoPE" in positions]
assert (len(with_rope), len(MODELS)) == (11, 12)
assert "ALiBi" not in str(MODELS)
print("✓ Eleven of the twelve have RoPE, and none has ALiBi.")

# %% [markdown]
# None does. OLMo 2 comes nearest: each head has keys of its own, and each query sees all keys before
# it. But its queries and keys are rotated and normed. Where to read about each column:
#
# - *Positions*: this chapter. RoPE on 1/3 turns a third of a head's features; NoPE in 1/4 means that
#   every fourth layer knows no positions.
# - *Keys and values*, shared by a group of heads (GQA), by all (MQA), or latent (MLA): [chapter
#   22](22_fewer_keys.ipynb).
# - *Keys seen*: [chapter 24](24_windows.ipynb). In *5 to 1*, five such layers come before each one
#   that sees all keys; of DeepSeek-V4, see [all at once](24_windows.ipynb#cell-id=all-at-once).
# - *Besides*: sinks and gated attention in [chapter 24](24_windows.ipynb#cell-id=the-key-that-must-stay),
#   QK-norm in [chapter 26](26_a_model_of_today.ipynb#cell-id=one-class).
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

# %% [markdown] name="two-layouts-one-permutation"
# ## RoPE's two layouts, interleaved and half
#
# Which two features form a pair? The paper pairs neighbours, and so does the code that Meta
# published with Llama. For the same model, `transformers` pairs feature i with feature i + d / 2. In a
# head of width 6:
#
# | layout | pair 0 | pair 1 | pair 2 |
# |---|---|---|---|
# | `"interleaved"` | 0 and 1 | 2 and 3 | 4 and 5 |
# | `"half"` | 0 and 3 | 1 and 4 | 2 and 5 |
#
# Neither is better, but weights belong to the layout that they were trained in. Load them into a class
# with the other: an error, every score wrong, or damage that depends on the distance?
#
# <details><summary>What do you expect?</summary>
#
# It depends on the distance. No error is raised, since a rotation has no parameters and all shapes
# fit. A query and a key at the same position are turned alike in either layout, so at distance 0 the
# score is right. As the distance grows, the two layouts turn more and more differently.
#
# </details>
#
# One module with random weights plays the part of the checkpoint, with the layout `"interleaved"`. Its
# weights are loaded into one with the layout `"half"`:


# %% tags=["fold-input"]
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
# All weights have loaded. How far are the scores off? The last column is a yardstick: how far apart the
# scores of two neighbouring keys are.

# %% tags=["fold-input"]
x = torch.randn(b, n, e)  # (b, n, e)
for module in (checkpoint, loaded):
    module(x, x, x)
off = (loaded.seen - checkpoint.seen).abs()  # (b, h, n, n)
another = checkpoint.seen.roll(1, -1)        # (b, h, n, n)
apart = (another - checkpoint.seen).abs().mean()
distances = [0, 1, 2, 4, 16, 64]
means = [off.diagonal(-distance, -2, -1).mean() for distance in distances]
columns = [*distances, "two keys, for comparison"]
display.show([[*means, apart]], ["off on average by"], columns, corner="distance")

# %% [markdown]
# At distance 0 every score is right. Far away, a score is off by nearly as much as the scores of
# two keys differ, so it no longer says much about the words.
#
# The remedy is a permutation. Each row of $W_Q$ and $W_K$ produces one feature, so reorder the rows
# within each head: the even ones first, then the odd ones. The final class stacks $W_Q$, $W_K$ and $W_V$
# in one matrix, so cut it into three and reorder the first two, and the biases likewise.

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
# > **Pitfall.** Weights of one layout in a class with the other. In one report, the first word or two
# > came out right, and the rest was nonsense
# > [[Positions that went wrong](../docs/references.md#positions-gone-wrong)]. The test with the moved
# > sentence passes here, because either layout is a valid rotation: compare one output with the original
# > code's.
#
# With the same weights, `"half"` gives the outputs and gradients of Llama in `transformers`, and
# `"interleaved"` those of GPT-J (`tests/annotated_attention/modern/test_rotary.py`).

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
# > the trained length. With rotary positions a slow hand then stands where training never saw it, until
# > the slow pairs are slowed down; in these small models YaRN did that best.
#
# A model that writes text computes the same keys again for each new word. The [next
# chapter](21_cache.ipynb) keeps them.
