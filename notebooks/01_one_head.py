# %% [markdown]
# # One head
#
# *What does the word “it” mean?*
#
# *16 minutes and 12 of exercises. Afterwards you can compute attention on paper, and say what
# each of its four matrices is for.*
#
# > the cat drank milk because **it** was thirsty
#
# > the cat drank milk because **it** was sweet
#
# You know at once who was thirsty and what was sweet. To a model, *it* is the same
# numbers in both sentences. So *it* has to collect something from the other words. **Attention**
# lets every word do this; a **head** is the part of a model that does it once. Surely *thirsty* makes *it* look at the
# cat, and *sweet* at the milk? In two minutes you can press and see.

# %% [markdown] name="a-sentence-in-numbers"
# ## A sentence in numbers
#
# A model computes with numbers, so each word becomes a row of them, its **embedding**. Ours has
# four features, made by hand: how much of an animal, a food, an action or a quality the word is.

# %% tags=["fold-input"]
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_book import display

FEATURES = ["animal", "food", "action", "quality"]
WORDS = ["the", "cat", "drank", "milk", "because", "it", "was", "thirsty"]
DIGITS = ["0000", "3000", "0020", "0300", "0000", "1101", "0010", "2002"]
HAND_MADE = dict(zip(WORDS, DIGITS)) | {"sweet": "0202", "and": "0000", "vanished": "0020"}
HAND_MADE |= {"cats": "3000", "kittens": "3000", "cream": "0300", "butter": "0300"}
SWEET = [*WORDS[:-1], "sweet"]


def embed(words: list[str]) -> Tensor:
    """Give the features of each word, one row per word."""
    return torch.tensor([[float(digit) for digit in HAND_MADE[word]] for word in words])


EMBEDDINGS, SWEET_EMBEDDINGS = embed(WORDS), embed(SWEET)  # (8, 4)
display.show(embed([*WORDS, "sweet"]), [*WORDS, "sweet"], FEATURES, decimals=0)

# %% [markdown]
# *Thirsty* is a quality that animals have, *sweet* one that foods have. *It* stands for something without saying
# what: a bit of an animal, a bit of a food, and a bit of a quality, as something is said about it. In a model, training
# sets these numbers, hundreds or thousands for a word, and no column has a name.
#
# Below, *it* looks at all eight words. The lines show how much, in shares of one whole. *It* collects that share of each
# word's numbers, and the bars add them up. With *thirsty* they come to 1.32 of animal against 0.72 of food: the cat.
# Before you press *sweet*: what will move?
#
# <details name="moves"><summary>The lines: now <em>it</em> looks at the milk.</summary>
#
# So one would build it. But *it* asks with the same numbers in both sentences. Press *sweet*, and watch the lines.
#
# </details>
# <details name="moves"><summary>The bars.</summary>
#
# They do, and nothing else does. Press *sweet*.
#
# </details>

# %% tags=["hide-input"]
it = WORDS.index("it")
x, y = EMBEDDINGS, SWEET_EMBEDDINGS                # (8, 4), (8, 4)
looks = (x @ x[it] / math.sqrt(4)).softmax(-1)     # (8,)
of_sweet = (y @ y[it] / math.sqrt(4)).softmax(-1)  # (8,)
torch.testing.assert_close(of_sweet, looks)
both = {
    ("thirsty",): (WORDS, looks, x[:, :2]),
    ("sweet",): (SWEET, of_sweet, y[:, :2]),
}
lesson = (
    "Only the bars have moved. “it” looks the same way in both sentences: the look "
    "decides nothing. What decides is what the last word hands over."
)
display.collects(
    {"it was": ["thirsty", "sweet"]},
    *(both, FEATURES[:2], it),
    name="last-word",
    notes={("sweet",): lesson},
)

# %% [markdown]
# So *thirsty* does not turn *it* to the cat. In trained models, the lines do move. You will make them move, too, when you
# know where a share comes from: in [Ask twice](#cell-id=ask-twice).

# %% [markdown] name="a-soft-look-up"
# ## A soft look-up
#
# In the first figure, *it* looks most at the last word, 0.30. Why? Think of a library. Each book has a title on its
# spine and pages inside. A catalogue, like a Python `dict`, finds the one book with exactly the title that you ask for,
# or nothing at all.
#
# A **soft look-up** always finds something. You compare your question, the **query**, with the title
# on every spine, its **key**. The better a key fits, the more you read of that book's pages, its
# **value**. You go home with one page of notes, with more from the books that fit better.

# %% tags=["hide-input"]
display.soft_look_up(
    "my cat hardly drinks",
    {"Keeping cats": "on cats", "Milk and cheese": "on milk", "Old railways": "on trains"},
    torch.tensor([0.7, 0.25, 0.05]),
    name="library",
    caption="Each book gives as much as its title fits. The shares are invented.",
)

# %% [markdown]
# In one point the library is unlike a sentence: a word is both reader and book. *It* asks all eight words, itself
# included, and all of them ask *it*. (Every word sees every word here, until
# [Masks](06_masks.ipynb) hides some.) For now a word's query, key and value are the same four numbers.

# %% [markdown] name="scores-how-well-does-a-key-fit"
# ## Scores: how well does a key fit?
#
# Follow *it* by hand. Multiply its query with each title, feature by feature, and add up the products. This sum, the
# dot product, is the **score**. For *it* and *thirsty* that makes
# $1 \cdot 2 + 1 \cdot 0 + 0 \cdot 0 + 1 \cdot 2 = 4$. Which key will fit the query of *it* best: its own? Behind `#`
# stands the shape of what a line makes; m counts the keys, and d is their width.

# %%
x = embed(WORDS)       # (m, d), the rows of the table
query = x[5]           # (d,), the row of "it", counted from 0
keys = values = x      # (m, d)
scores = keys @ query  # (m, d) x (d,) -> (m,)

# %% tags=["hide-input"]
display.show(scores[None], ["score"], WORDS, decimals=0)

# %% [markdown]
# *Thirsty* scores 4, and *it* itself only 3, no more than *cat*, which shares only one feature with *it*, but has 3
# there. So a score also counts how long a key is: a title in larger letters is easier to find.
#
# *Sweet* scores 4, too, as *it* asks for animal and food alike. That is why no line moved.
#
# ### Warm-up: two scores
#
# *Easy, 2 minutes.* Now *thirsty* asks. Work out with a pencil its scores with the keys of *cat* and of *it*. The check
# says whether you are right.

# %% tags=["exercise"]
my_scores = [
    None,  # "thirsty" with "cat"
    None,  # "thirsty" with "it"
]

# %%
from annotated_book import exercises

exercises.one_head.check_scores(my_scores)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# *Thirsty* is `(2, 0, 0, 2)`, *cat* is `(3, 0, 0, 0)`, and *it* is `(1, 1, 0, 1)`.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# With *cat*: two times three, plus three products that are zero.
#
# </details>

# %% tags=["solution"]
my_scores = [
    2 * 3 + 0 * 0 + 0 * 0 + 2 * 0,  # "thirsty" with "cat"
    2 * 1 + 0 * 1 + 0 * 0 + 2 * 1,  # "thirsty" with "it"
]

exercises.one_head.check_scores.folded(my_scores)

# %% [markdown] name="weights-shares-of-one-whole"
# ## Weights: shares of one whole
#
# You have one evening to read, so the scores have to become shares of it: positive numbers that add up to one.
# Divide each score by the sum of all? A score can be negative, and nothing can be divided by the sum of 3 and −3.
#
# An exponential is always positive. So take the exponential of each score first, and divide by the sum
# of these: this is the **softmax**, and the shares are the **attention weights**. Before that, each
# score is divided by $\sqrt d$, here $\sqrt 4 = 2$, for [a reason that comes
# below](#cell-id=deeper-why-divide-by-the-root). Then collect from each word in proportion to its weight: multiply its
# value by the weight, and add up. Four of the eight words share no feature with *it* and score 0. What will they get?

# %%
powers = (scores / math.sqrt(4)).exp()  # (m,)
weights = powers / powers.sum()         # (m,)
mixed = weights @ values                # (m,) x (m, d) -> (d,)

# %% tags=["hide-input"]
display.one_query(query, keys, values, WORDS, FEATURES, who="it", name="it-collects")

# %% [markdown]
# Not nothing: 0.04 each, since the exponential of 0 is 1. Follow the column *animal* down: 0.18 times 3 of *cat*, 0.18 times
# 1 of *it* and 0.30 times 2 of *thirsty* make the 1.32 of the first figure.

# %% [markdown]
# ## All words at once
#
# Stack the queries as rows of a matrix $Q$, the keys as rows of $K$, the values as rows of $V$, and attention is
# one formula [[Vaswani et al., equation 1](../docs/references.md#vaswani-2017)]:
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\!\left(\frac{QK^\top}{\sqrt d}\right) V$$
#
# Below, n counts the queries. `key.mT` is $K^\top$, and `softmax(-1)` runs over the last axis, the keys. All three
# arguments are `x`, as every word asks, is asked, and gives. The table is an **attention map**: a row for each word that
# asks. *Because* has four zeros, so that word asks for nothing. What will it get?


# %%
def attend(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Mix the rows of ``value``, for each query with its own weights."""
    scores = query @ key.mT / math.sqrt(query.size(-1))  # (n, d) x (d, m) -> (n, m)
    weights = scores.softmax(-1)                         # (n, m)
    return weights @ value, weights                      # (n, d), (n, m)


output, weights = attend(x, x, x)  # (8, 4), (8, 8)

# %% tags=["hide-input"]
display.show(weights, WORDS, WORDS, heat=True, corner="asks")


# %% [markdown]
# One eighth of everything, printed as 0.12: all keys fit equally badly, and the shares add up to one all the same. Who
# comes without a question goes home with the average of the library.


# %% tags=["proof"]
def gradients(outputs: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    """Differentiate a fixed random mixture of ``outputs``: each of them counts."""
    source = torch.Generator().manual_seed(2)
    mixture = torch.randn(outputs.shape, generator=source, dtype=outputs.dtype)
    return torch.autograd.grad((outputs * mixture).sum(), inputs)


# All sizes differ, so that a swapped axis cannot hide.
q = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)              # (3, 6)
k = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)              # (5, 6)
v = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)              # (5, 7)
ours, theirs = attend(q, k, v)[0], F.scaled_dot_product_attention(q, k, v)  # (3, 7)
torch.testing.assert_close(ours, theirs)
torch.testing.assert_close(gradients(ours, [q, k, v]), gradients(theirs, [q, k, v]))
torch.testing.assert_close(output, F.scaled_dot_product_attention(x, x, x))
print(
    "✓ PyTorch has this built in: F.scaled_dot_product_attention(x, x, x) gives the same."
)

# %% [markdown]
# ## An alarming glass of milk
#
# > the cat **drank** the milk
#
# > the milk **drank** the cat
#
# Where does `attend` use the order of the words? What does *drank* collect in each of these?

# %% tags=["hide-input"]
tame = embed(["the", "cat", "drank", "the", "milk"])  # (5, 4)
wild = embed(["the", "milk", "drank", "the", "cat"])  # (5, 4)
of_tame, _ = attend(tame, tame, tame)                 # (5, 4), (5, 5)
of_wild, _ = attend(wild, wild, wild)                 # (5, 4), (5, 5)
rows = torch.stack([of_tame[2], of_wild[2]])
torch.testing.assert_close(rows[0], rows[1])
order = torch.tensor([5, 3, 0, 7, 1, 6, 2, 4])
moved, _ = attend(x[order], x[order], x[order])  # (8, 4), (8, 8)
torch.testing.assert_close(moved, output[order])
torch.testing.assert_close(output[it], mixed)
display.show(rows, ["cat … milk", "milk … cat"], FEATURES)

# %% [markdown]
# The same. Attention is blind to order: shuffle the words, and the outputs are shuffled along. Order has to come from
# outside: [The Transformer](09_transformer.ipynb) adds each word's place to its row, and
# [Positions](20_positions.ipynb) lets it into the scores.

# %% [markdown] name="ask-for-something-else"
# ## Ask for something other than what you are
#
# > cats and kittens drank because **it** was sweet
#
# > milk and cream vanished because **it** was thirsty
#
# They drank *something* sweet; *somebody* thirsty made milk vanish. What does *it* collect now?

# %% tags=["hide-input"]
CATS = ["cats", "and", "kittens", "drank", "because", "it", "was", "sweet"]
MILK = ["milk", "and", "cream", "vanished", "because", "it", "was", "thirsty"]
named = {"cats … sweet": embed(CATS), "milk … thirsty": embed(MILK)}
display.show(
    torch.stack([attend(z, z, z)[0][it, :2] for z in named.values()]),
    [*named],
    FEATURES[:2],
)

# %% [markdown]
# Wrong, both times: 1.26 of animal where something is sweet, 1.26 of food where somebody is thirsty. Two nouns outvote one
# last word. The first two sentences went well only because the cat and the milk were a draw.

# %% [markdown] name="four-learned-matrices"
# So put a matrix between a word and each of its three parts. $W_Q$ makes its query, what the word **asks for**; $W_K$ its
# key, what it is **found by**; $W_V$ its value, what it **hands over**. The product takes each row of the matrix as many
# times as the word has of that row's feature: for *it*, row *animal* plus row *food* plus row *quality*.
#
# Below you set a head by hand. $W_V$ is ready: as on the first screen, words hand over their animal and their food, and
# the longer bar answers. As *it* asks for nothing yet, it looks at all words alike, and food wins. But somebody
# thirsty is meant. **Make the animal win, with two presses.** (A press on a cell makes it 1, then 2, then 0 again. A column of the query
# meets only the same column of the key.)

# %% tags=["hide-input"]
ready, solved = torch.zeros(2, 3, 4, 2)
ready[2, 0, 0] = ready[2, 1, 1] = 1
solved[:2, 3, 1], solved[2] = torch.tensor([2, 1]), ready[2]
settings = {"the start": tuple(ready), "three presses": tuple(solved)}
BUTTER = ["milk", "cream", "butter", *MILK[3:]]
told = {"milk … thirsty": (MILK, 0), "cats … sweet": (CATS, 1)}
told |= {"cat … sweet": (SWEET, 1), "butter … thirsty": (BUTTER, 0)}
four = {name: (said, embed(said), side) for name, (said, side) in told.items()}
display.by_hand(
    *(settings, four, FEATURES, ["animal", "quality"], FEATURES[:2], it),
    name="by-hand",
    won="All four!",
)

# %% [markdown] name="thirsty-or-sweet"
# In $W_Q$ or $W_K$, one press alone moves nothing: a question finds nobody while all keys are empty. If you let *it* ask for animals,
# the first answer is right, as *thirsty* is 2 of an animal itself. But in the next sentence *it* finds the cats. **Three
# presses get all four. Which?**
#
# <details><summary>Whom to ask</summary>
#
# Not the nouns, but the last word, which says something. Let *it* ask for a quality, and words be found by theirs: row *quality*,
# column *quality*, of $W_Q$ and of $W_K$. That makes three. But three foods outvote the last word in *milk cream butter vanished because
# it was thirsty*, so ask louder: make one of the two a 2.
#
# </details>


# %% tags=["proof"]
def right(heads: Tensor, sentences: dict) -> list[int]:
    """Count the answers that each of these heads, (b, 3, e, d), gets right."""
    found = []
    for words, rows, side in sentences.values():
        brings = torch.vmap(lambda head, rows=rows: attend(*(rows @ head))[0])(heads)
        both = brings[:, words.index("it")]  # (b, d)
        found.append(both[:, side] - both[:, 1 - side])
    return (torch.stack(found) > 1e-5).sum(0).tolist()


def presses(start: Tensor, times: int) -> Tensor:
    """Press so many of the 24 cells, in every way, and give the heads."""
    cells = torch.combinations(torch.arange(24), times, with_replacement=True)
    return (start + F.one_hot(cells, 24).sum(1).view(-1, 3, 4, 2)) % 3


animals, quality = ready.clone(), ready.clone()  # (3, 4, 2), (3, 4, 2)
animals[0, 3, 0] = animals[1, 0, 0] = quality[0, 3, 1] = quality[1, 3, 1] = 1
assert right(torch.stack([ready, animals, quality, solved]), four) == [1, 1, 3, 4]
one, two, three = (right(presses(ready, times), four) for times in (1, 2, 3))
assert one[:16] == [1] * 16  # the cells of W_Q and W_K
assert 4 not in one + two
assert (three.count(4), len(three)) == (18, 2600)
print("✓ One or two presses never get all four; of 2,600 ways to press three times, 18 do.")

# %% [markdown]
# So *it* asks for one thing, and brings home another. Two numbers come home, d = 2, and a word has four, e = 4. A
# fourth matrix, $W_O$, says under which features they are **written**, before a model adds them to the row of the word
# that asked. Here is your head, in code: the first number goes under *animal*, the second under *food*.

# %%
w_q = torch.tensor([[0.0, 0], [0, 0], [0, 0], [0, 2]])  # (e, d), asks for quality
w_k = torch.tensor([[0.0, 0], [0, 0], [0, 0], [0, 1]])  # (e, d), found by quality
w_v = torch.tensor([[1.0, 0], [0, 1], [0, 0], [0, 0]])  # (e, d), hands over animal, food
w_o = torch.tensor([[1.0, 0, 0, 0], [0, 1, 0, 0]])      # (d, e), written under animal, food

mixed, _ = attend(x @ w_q, x @ w_k, x @ w_v)  # (8, 2), (8, 8)
written = mixed @ w_o                         # (8, 2) x (2, 4) -> (8, 4)

# %% tags=["hide-input"]
of_sweet = attend(y @ w_q, y @ w_k, y @ w_v)[0] @ w_o  # (8, 4)
torch.testing.assert_close(torch.stack([w_q, w_k, w_v]), solved)
assert written[it, 0] > 2 * written[it, 1]
assert of_sweet[it, 1] > 2 * of_sweet[it, 0]
rows = torch.stack([written[it], of_sweet[it]])
display.show(rows, ["thirsty", "sweet"], FEATURES, corner="“it” gets")

# %% [markdown] name="ask-twice"
# ## Ask twice
#
# With *thirsty*, 1.51 is added to the *animal* of *it*, and with *sweet*, to its *food*. So your head answers the question of the first
# page. But it believes the last word, whoever else is about. On the first screen you would have had *it* look at the noun: with
# *thirsty* more at the cat, with *sweet* more at the milk. Can any matrices do that?
#
# <details name="in-one-round"><summary>Yes, with the right numbers.</summary>
#
# Divide the weight of *cat* by that of *milk*. The last word is not in it: a score is made of two words alone, here *it* and
# a noun, which bring the same rows into both sentences. So whatever the matrices are, this ratio is the same in both.
#
# </details>
# <details name="in-one-round"><summary>No.</summary>
#
# Right. A score is made of two words alone, here *it* and a noun, and these bring the same rows into both sentences. The last
# word can only take weight from both, in proportion.
#
# </details>
#
# So the last word has to get into the row of *it* first. Let every word *add* what it has collected to its row, and all ask
# again. Try it with the attention of the first screen, which has no matrices, and press *twice*:

# %%
first = x + attend(x, x, x)[0]          # (8, 4)
_, twice = attend(first, first, first)  # (8, 4), (8, 8)

# %% tags=["hide-input"]
# Layer 4, head 2, in hundredths: a test holds them against the model.
TRAINED = {"thirsty": [2, 47, 2, 30, 0, 2, 0, 7], "sweet": [1, 2, 7, 68, 0, 1, 1, 7]}
ASKS = ["once", "twice", "in a trained model"]
nouns = torch.eye(8)[:, [1, 3]]  # (8, 2)
rounds, told = {}, {}
for last, z in (("thirsty", x), ("sweet", y)):
    after = z + attend(z, z, z)[0]                             # (8, 4)
    ways = attend(z, z, z)[1], attend(after, after, after)[1]  # (8, 8), (8, 8)
    each = [way[it] for way in ways] + [torch.tensor(TRAINED[last]) / 100]
    rounds |= {(last, w): ([*WORDS[:-1], last], row, nouns) for w, row in zip(ASKS, each)}
    animal, food = after[it, :2].tolist()
    told[last, "twice"] = (
        f"After one round, its row has {animal:.2f} of animal and {food:.2f} of food. "
        f"“{last}” itself gets most, {each[1][-1]:.2f}."
    )
    told[last, ASKS[2]] = "Two marks at the ends of the text get the rest."
torch.testing.assert_close(rounds["sweet", "twice"][1] @ nouns.flip(1), twice[it] @ nouns)
assert twice[it, 1] > 5 * twice[it, 3]
display.collects(
    {"it was": [*TRAINED], "it asks": ASKS},
    *(rounds, ["the cat", "the milk"], it),
    name="ask-twice",
    notes=told,
    looks=True,
)

# %% [markdown]
# Of the two, *it* now prefers the cat with *thirsty*, and the milk with *sweet* (the last word itself gets most), because the first round has
# written the last word into its row. The third button shows a head that nobody set by hand, one of the 72 of
# `all-MiniLM-L6-v2`, a model that finds texts of similar meaning, picked because it does this in this sentence. Before that, three rounds, each
# with many heads, have written into its rows.
# [Trained weights](13_trained_weights.ipynb) puts all 72 on trial.

# %% [markdown] name="our-head"
# ## How far along the arrow
#
# A head can also ask for two things at once. Here *it* asks for animals, twice as loud as for qualities:

# %%
W_Q = torch.tensor([[0.0, 0], [0, 0], [0, 0], [2, 1]])  # (e, d), asks for animal, quality
W_K = torch.tensor([[1.0, 0], [0, 0], [0, 0], [0, 1]])  # (e, d), found by animal, quality

# %% [markdown]
# Two numbers are a place on paper. Below are the keys of *the cat drank milk because it was thirsty*. The
# arrow is the query of *it*, and you can drag its tip. Can you turn it so that *it* looks more at itself than at any
# other word?

# %% tags=["hide-input"]
keys, query = EMBEDDINGS @ W_K, (EMBEDDINGS @ W_Q)[it]         # (m, d), (d,)
arrows = torch.cartesian_prod(*[torch.arange(-15.0, 36)] * 2)  # (51 * 51, 2), in tenths
by_word = arrows @ keys.mT                                     # (51 * 51, 8)
assert (by_word[:, [it]] <= by_word[:, torch.arange(8) != it]).any(-1).all()
display.needle(query, keys, WORDS, ("animal", "quality"), who="it", name="needle")

# %% [markdown]
# A score is how far along the arrow a key stands, times the length of the arrow. Divided by $\sqrt 2$, as d is 2 here, it
# goes into the softmax. And *it* never comes first: *thirsty* stands in the same direction, twice as far, and so has twice
# its score. Where that is negative, the words at (0, 0) score more.

# %% [markdown] name="deeper-why-divide-by-the-root"
# ## Why divide by √d?
#
# A score adds up d products. Let the numbers of queries and keys be random, with mean 0 and variance 1 (the average of
# their squares). Then a score is a walk, and each product a step. Here are ten. 1,024 steps are 16 times as
# many as 64. Do they lead 16 times as far from 0?

# %% tags=["hide-input"]
torch.manual_seed(0)
walks = (torch.randn(4000, 1024) * torch.randn(4000, 1024)).cumsum(-1)
drawing, (ax,) = display.panels(350, 230)
places = [0, *range(32, 1025, 32)]
for walk in walks[:10]:
    heights = [0, *walk[31::32].tolist()]
    ax.plot(places, heights, color=display.COLOURS["n"], linewidth=1.2, alpha=0.6)
roots = [math.sqrt(place) for place in places]
for way in (1, -1):
    edge = [way * root for root in roots]
    ax.plot(places, edge, color=display.COLOURS["d"], linestyle="--")
ax.text(840, 48, "√d", color=display.COLOURS["d"], fontsize=12)
told = []
for d in (64, 256, 1024):
    size = walks[:, d - 1].square().mean().sqrt().item()
    ax.plot([d, d], [0, size], color="black", linewidth=1.2)
    ax.plot([d], [size], "o", color="black", markersize=5)
    told.append(f"{size:.0f} at d = {d:,}")
ax.set(xlim=(0, 1090), ylim=(-70, 70), yticks=[-64, -32, 0, 32, 64], ylabel="score")
sizes = [f"{each.split()[-1]}\nsize {each.split()[0]}" for each in told]
ax.set_xticks([64, 256, 1024], sizes)
ax.set_xlabel("products added, d")
caption = "The dots: typical size (root mean square) of 4,000 such scores."
alt = f"Ten scores as their products are added. Typical size: {', '.join(told)}."
display.finish(drawing, name="walks", alt=alt, caption=caption)

# %% [markdown]
# Only four times, 32 against 8: most steps cancel. What adds up is the *variances* of independent terms. Each product has
# variance 1, so the score has variance d, and its typical size is $\sqrt d$. Divide by that, and the scores have size 1 at
# every width.
#
# And the weights? Widen the head, for 32 random queries and 16 random keys: first with the scores as they are, then
# divided by √d.


# %% tags=["hide-input"]
def draw(d: int) -> tuple[Tensor, Tensor]:
    """Draw 32 queries and 16 keys of width ``d``."""
    source = torch.Generator().manual_seed(d)
    return torch.randn(32, d, generator=source), torch.randn(16, d, generator=source)


def products(d: int) -> Tensor:
    """Multiply 32 random queries by 16 random keys of width ``d``."""
    query, key = draw(d)
    return query @ key.mT  # (n, d) x (d, m) -> (n, m)


by_width = {width: products(width) for width in (4, 16, 64, 256)}
others = torch.randn(500, 32, 4) @ torch.randn(500, 16, 4).mT   # (500, 32, 16)
narrow = (others / math.sqrt(4)).softmax(-1).amax(-1).mean(-1)  # (500,)
largest = (by_width[256] / math.sqrt(256)).softmax(-1).amax(-1).mean()
assert (narrow > largest).float().mean() > 0.2
display.divided(by_width, name="wider-and-wider", width=64, query=10)

# %% [markdown]
# Undivided, one key takes more and more: at 256, on average 0.91 of all the weight. The softmax is **saturated**: change
# a score a little, and the shares stay as they are, so training hardly learns from such a query. Divided by the root, the
# largest weight stays near a quarter, at width 4 as at 256.

# %% [markdown] name="the-derivative-of-the-softmax"
# <!-- deeper: The derivative of the softmax -->
# ### Going deeper: The derivative of the softmax
#
# Weight $w_i$ reacts to score $s_j$ by $\partial w_i / \partial s_j = w_i (\delta_{ij} - w_j)$,
# where $\delta_{ij}$ is 1 for $i = j$ and 0 otherwise. What a loss sends back to the scores passes through
# this matrix. If one weight is nearly 1 and the others nearly 0, every entry of it is nearly 0, and next to nothing
# passes.

# %% tags=["proof"]
row = torch.randn(5, dtype=torch.float64)                                 # (m,)
w = row.softmax(-1)                                                       # (m,)
found = torch.autograd.functional.jacobian(lambda s: s.softmax(-1), row)  # (m, m)
torch.testing.assert_close(found, w.diag() - w[:, None] * w)
print("✓ The formula is what autograd finds.")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## A head that can be trained
#
# In a module, an optimiser can train the four matrices. They begin at random, divided by the root of how many products are added up, as
# the scores were. So what comes out is about as large as what goes in. As in PyTorch's module, `query`, `key` and `value` are the rows *before* the
# matrices. Where all three are the same rows, this is **self-attention**.


# %%
class OneHead(nn.Module):
    """Attention with one head of width ``head_dim``."""

    def __init__(self, embed_dim: int, head_dim: int) -> None:
        super().__init__()
        e, d = embed_dim, head_dim
        self.w_q = nn.Parameter(torch.randn(e, d) / e**0.5)  # (e, d)
        self.w_k = nn.Parameter(torch.randn(e, d) / e**0.5)  # (e, d)
        self.w_v = nn.Parameter(torch.randn(e, d) / e**0.5)  # (e, d)
        self.w_o = nn.Parameter(torch.randn(d, e) / d**0.5)  # (d, e)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from each query to every key."""
        q, k = query @ self.w_q, key @ self.w_k          # (n, d), (m, d)
        mixed, weights = attend(q, k, value @ self.w_v)  # (n, d), (n, m)
        return mixed @ self.w_o, weights                 # (n, e), (n, m)


# %% [markdown] name="the-mistake-people-make-here"
# ## The mistake people make here
#
# > **Pitfall.** `softmax(-2)` instead of `softmax(-1)`, the wrong axis. Then the keys no longer compete for a query; the
# > queries compete for a key.
#
# No exception warns you. Look at the sums of the rows.

# %% tags=["hide-input"]
ours = OneHead(embed_dim=4, head_dim=2)
ours.load_state_dict({"w_q": w_q, "w_k": w_k, "w_v": w_v, "w_o": w_o})
torch.testing.assert_close(ours(x, x, x)[0], written)
scores = EMBEDDINGS @ EMBEDDINGS.mT / math.sqrt(4)     # (8, 4) x (4, 8) -> (8, 8)
right, wrong = scores.softmax(-1), scores.softmax(-2)  # (8, 8)
display.show(torch.stack([right.sum(-1), wrong.sum(-1)]), ["right", "wrong"], WORDS)

# %% [markdown]
# With the wrong axis, *the* gets 0.48 of an evening to read, and *cat* 1.58.
#
# ## Exercises
#
# ### With a pencil: what does “vanished” look at?
#
# *Easy, 5 minutes.* **Cats drank and vanished because it was sweet.** Compute the eight weights of the query *vanished* on
# paper, from its scores to its shares. *Vanished* has the numbers of *drank*, *cats* those of *cat*, and *and* only zeros;
# the others stand in [the first table](#cell-id=a-sentence-in-numbers). You need $\exp(0) = 1$, $\exp(1) \approx 2.7$
# and $\exp(2) \approx 7.4$. Two decimal places are enough.

# %% tags=["exercise"]
my_weights = [
    None,  # cats
    None,  # drank
    None,  # and
    None,  # vanished
    None,  # because
    None,  # it
    None,  # was
    None,  # sweet
]

# %%
exercises.one_head.check_weights(my_weights)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# *Vanished* is `(0, 0, 2, 0)`. Only three words have any *action*: *drank*, *vanished* and *was*.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Divide by 2 before the exponential. A word with a score of zero still counts: its exponential is
# one, and there are five such words.
#
# </details>

# %% tags=["solution"]
total = 2 * 7.4 + 2.7 + 5 * 1
drank, was, other = 7.4 / total, 2.7 / total, 1 / total
my_weights = [other, drank, other, drank, other, other, was, other]

exercises.one_head.check_weights.folded(my_weights)

# %% [markdown]
# ### Attention from memory
#
# *Easy, 5 minutes.* Without looking at the page above, write attention as a function: `query` is
# `(n, d)`, `key` is `(m, d)`, and `value` has a row for each key, of any width. Return the output alone.


# %% tags=["exercise"]
def my_attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Mix the rows of ``value``, for each query with its own weights."""
    return None  # your lines here


# %%
exercises.one_head.check_attend(my_attend)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The scores are `(n, m)`. A score adds up d products, so divide by the root of d, the width of
# query and key.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `key.mT` is `(d, m)`. The keys are the last axis of the scores, and they compete for a query, so
# the softmax runs over axis -1.
#
# </details>


# %% tags=["solution"]
def my_attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Mix the rows of ``value``, for each query with its own weights."""
    scores = query @ key.mT / math.sqrt(query.size(-1))  # (n, d) x (d, m) -> (n, m)
    return scores.softmax(-1) @ value                    # (n, m) x (m, d) -> (n, d)


exercises.one_head.check_attend.folded(my_attend)

# %% [markdown]
# ## What you have now
#
# > **In short.** Attention is a soft look-up. Each query is compared with every key: the better a
# > key fits, the more the query collects from its value.
# >
# > Query `(n, d)`, key and value `(m, d)`; weights `(n, m)`; output `(n, d)`. A value may have a width of its own.
# >
# > Each query's weights are positive and add up to one. $W_Q$ and $W_K$ decide who finds whom;
# > $W_V$ and $W_O$ decide what is handed over and where it is written.
#
# And the question of the first screen? By itself, *thirsty* does not make *it* look at the cat. Once *thirsty* has been
# added to *it*, the next look prefers the cat to the milk.
#
# A soft look-up comes back with one page of notes, however many books it has read. What if you had two questions? [The
# next chapter](02_two_heads.ipynb) shows two scenes that one head confuses.
