# %% [markdown]
# # One head
#
# *What does the word “it” mean?*
#
# > the cat drank milk because **it** was thirsty
#
# > the cat drank milk because **it** was sweet
#
# You know at once who was thirsty and what was sweet, although only the last word differs. A model
# starts with the same numbers for *it* in both sentences, because the word is the same. To tell the
# two apart, the word has to collect something from the other words of its sentence. **Attention**
# is the computation that lets every word do this. One copy of it, with its own numbers, is a
# **head**.
#
# In this chapter you compute a head with a pencil, then as three lines of PyTorch, and at the end
# as a module with four learned matrices.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map("project in", "score", "softmax", "mix", "project out")

# %% [markdown]
# The strip shows the whole computation that this book builds, drawn with two heads. The steps of
# this chapter, which has one head, are highlighted. In each small map, a row is a word, and a
# stronger colour means a larger number. Ignore the letters for now: n, m, d and e are explained in
# this chapter, and h in the next. The [first page](../docs/index.md) shows a larger version of the
# picture, with a line for each step.
#
# ## A sentence in numbers
#
# A model computes with numbers, so each word becomes a row of them, its **embedding**. Ours has
# four features: how much of an animal, a food, an action or a quality the word is. The numbers are
# made by hand and small enough to work with in pencil.

# %%
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FEATURES = ["animal", "food", "action", "quality"]
HAND_MADE = {  # one digit per feature
    "the": "0000", "cat": "3000", "drank": "0020", "milk": "0300", "because": "0000",
    "it": "1101", "was": "0010", "thirsty": "2002", "sweet": "0202",
}
WORDS = ["the", "cat", "drank", "milk", "because", "it", "was", "thirsty"]
SWEET = [*WORDS[:-1], "sweet"]


def embed(words: list[str]) -> Tensor:
    """Give the features of each word, one row per word."""
    return torch.tensor([[float(digit) for digit in HAND_MADE[word]] for word in words])


EMBEDDINGS, SWEET_EMBEDDINGS = embed(WORDS), embed(SWEET)  # (8, 4)

# %% [markdown]
# A small helper, `show`, prints such rows as a table. *Cat* is an animal, *milk* a food. *Thirsty*
# is a quality that animals have. The word *it* stands for something without saying what: a bit of
# an animal, a bit of a food, and something that has a quality.


# %% jupyter={"source_hidden": true}
def show(rows: list[str], columns: list[str], numbers: Tensor, digits: int = 2) -> None:
    """Print a table of ``numbers``, with a name for each row and each column."""
    left, widths = max(map(len, rows)), [max(len(name), 4) + 2 for name in columns]
    print(" " * left + "".join(f"{name:>{width}}" for name, width in zip(columns, widths)))
    for name, row in zip(rows, numbers.tolist()):
        cells = (f"{number:{width}.{digits}f}" for number, width in zip(row, widths))
        print(f"{name:>{left}}" + "".join(cells))


show([*WORDS, "sweet"], FEATURES, embed([*WORDS, "sweet"]), digits=0)

# %% [markdown]
# ## The same word in two sentences
#
# Before you take attention apart, see what it achieves. PyTorch has it built in as one call: all
# words go in, and out come the numbers that each word has collected. The words go in three times,
# because every word plays three roles, which the next section explains.

# %%
it = WORDS.index("it")
x = EMBEDDINGS                                       # (8, 4)
collected = F.scaled_dot_product_attention(x, x, x)  # (8, 4)
before = x[it]                                       # (4,)
show(["it, before", "it collects"], FEATURES, torch.stack([before, collected[it]]))

# %% [markdown]
# The word *it* went in as equal parts animal and food, and collects 1.32 of animal against 0.72 of
# food. Now replace *thirsty* with *sweet*, a quality that foods have, and leave everything else
# unchanged. What does *it* collect now: the same numbers, less of everything, or more food than
# animal?
#
# <details><summary>What do you expect?</summary>
#
# More food than animal: the two numbers trade places. The first seven words are the same, so
# whatever changes comes from the last word. *Thirsty* brings animal along, and *sweet* brings food.
#
# </details>

# %%
x = SWEET_EMBEDDINGS                               # (8, 4)
swapped = F.scaled_dot_product_attention(x, x, x)  # (8, 4)
both = torch.stack([collected[it], swapped[it]])   # (2, 4)
show(["thirsty", "sweet"], FEATURES, both)

# %% [markdown]
# The last word decides: after *thirsty*, *it* collects mostly animal, and after *sweet*, mostly
# food.
#
# > **What this example does not show.** The link between thirst and animals was written into the
# > numbers by hand. A trained model has to find hundreds of such features by itself, and few of
# > them have a name. Nor does the order of the words matter yet; a later chapter adds it.
#
# ## A soft look-up
#
# How does *it* know which words to collect from? Think of a library. You come with a question. Each
# book on the shelf has a title on its spine and pages inside. A catalogue would find the one book
# with exactly the title that you asked for, or nothing at all, like a Python `dict`.
#
# A **soft look-up** never comes back empty. You compare your question with every spine, and the
# better a title fits, the more of that book you read. You go home with one page of notes, mostly
# from the books that fit well and a little from all the others. The three parts have names:
#
# | role | what it is | in the library | for the word *it* |
# |---|---|---|---|
# | **query** | what is asked for | your question | which words tell me what I stand for? |
# | **key** | what something is found by | the title on a spine | what *cat*, *milk*, … can be found by |
# | **value** | what is handed over | the pages | what *cat*, *milk*, … have to say when found |

# %% jupyter={"source_hidden": true}
display.soft_look_up(
    "my cat hardly drinks",
    {"Keeping cats": "on cats", "Milk and cheese": "on milk", "Old railways": "on trains"},
    torch.tensor([0.7, 0.25, 0.05]),
    name="library",
    caption="Each book gives as much as its title fits. The shares are invented.",
)

# %% [markdown]
# The comparison breaks down in one place: a library keeps readers and books apart. In a sentence,
# every word plays all three roles. The word *it* asks all eight words, itself included, and is in
# turn one of the eight that the others ask. For now the query, the key and the value of a word are
# the same four numbers, so each word asks for words that share its features.
#
# ## Scores: how well does a key fit?
#
# Follow the word *it* by hand. First compare its query with each key: multiply the two feature by
# feature, and add up the products. This sum is the **score**, also called the dot product. The
# score is large when both have large numbers in the same places. For *it* and *thirsty* the sum is
# $1 \cdot 2 + 1 \cdot 0 + 0 \cdot 0 + 1 \cdot 2 = 4$.

# %%
query = EMBEDDINGS[it]           # (d,)
keys = values = EMBEDDINGS       # (m, d)
scores = keys @ query            # (m, d) x (d,) -> (m,)

show(WORDS, ["score"], scores[:, None], digits=0)

# %% [markdown]
# A comment such as `(m, d)` gives the shape of what its line makes: m keys, each of width d. The
# shapes before an arrow are those that go into a product.
#
# *Thirsty* fits best: its *animal* and its *quality* add 2 each. *Cat* and *milk* fit equally well.
#
# ### Warm-up: two scores
#
# *Easy, 2 minutes.* Now *thirsty* asks. Work out with a pencil its score with the key of *cat* and
# its score with the key of *it*. Write both numbers into the first cell and run that cell. The
# second cell says whether you are right and, if not, why. Hints follow, and the solution comes
# last.

# %% tags=["exercise"]
my_scores = [
    None,  # "thirsty" with "cat"
    None,  # "thirsty" with "it"
]

# %%
from annotated_attention import exercises

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

# %% tags=["solution"] jupyter={"source_hidden": true}
my_scores = [
    2 * 3 + 0 * 0 + 0 * 0 + 2 * 0,  # "thirsty" with "cat"
    2 * 1 + 0 * 1 + 0 * 0 + 2 * 1,  # "thirsty" with "it"
]

exercises.one_head.check_scores(my_scores)

# %% [markdown]
# ## Weights: shares of one whole
#
# Next, the scores have to become shares: positive numbers that add up to one, like the time that
# you give to each book. First divide each score by $\sqrt d$, here $\sqrt 4 = 2$. A score is a sum
# of d products, so scores grow with the width d, and the division makes up for that. How much they
# grow is [measured below](#going-deeper-why-divide-by-d). Then take the exponential of each, and
# divide it by the sum of all exponentials. This second part is the **softmax**, and the shares are
# the **attention weights**. For word $j$, with a sum over all words $i$:
#
# $$\mathrm{weight}_j = \frac{\exp(\mathrm{score}_j / \sqrt d)}{\sum_i \exp(\mathrm{score}_i / \sqrt d)}$$

# %%
powers = (scores / math.sqrt(4)).exp()  # (m,)
weights = powers / powers.sum()         # (m,)

print(f"thirsty: {powers[7]:.2f} / {powers.sum():.2f} = {weights[7]:.2f}\n")
show(WORDS, ["score", "exp", "weight"], torch.stack([scores, powers, weights], dim=1))

# %% [markdown]
# *Thirsty* gets 0.30 of the attention of *it*; *cat*, *milk* and *it* get 0.18 each. The other four
# words share no feature with *it* but still get 0.04 each, since $\exp(0) = 1$. All eight compete
# for one whole: where one word gets more, the others get less.
#
# Look at *cat* and *milk*: both get 0.18, and they still would if the last word were *sweet*. So the
# weights do not choose between the two. The next section shows what *thirsty* contributes.
#
# Why exponentials? You could divide the scores by their sum directly. Try both on three scores, one
# of them negative.

# %%
example = torch.tensor([3.0, 1.0, -2.0])
shares = torch.stack([example / example.sum(), example.softmax(-1)])  # (2, 3)
show(["divided by the sum", "softmax"], ["3", "1", "-2"], shares)

# %% [markdown]
# Shares of 1.50 and -1.00 make no sense, and if the scores added up to zero, you would have to
# divide by zero. An exponential is always positive. Only differences count: a key whose number,
# after the division, is one higher than another's gets $e \approx 2.7$ times its weight, wherever
# the two numbers lie. In the formula, no share is exactly zero, even where a table shows 0.00, so
# training can still raise it.
#
# ## The mix: collect the values
#
# The last step collects from each word in proportion to its weight. Multiply each word's value by
# its weight, and add up the results. This is a weighted sum.

# %%
mixed = weights @ values  # (m,) x (m, d) -> (d,)

torch.testing.assert_close(mixed, collected[it])
show(["it collects"], FEATURES, mixed[None])

# %% [markdown]
# PyTorch's function gave the same numbers at the start, as the cell asserts. The figure puts the
# three steps side by side, and its last line adds up each column.

# %% jupyter={"source_hidden": true}
display.one_query(query, keys, values, WORDS, FEATURES, who="it", name="it-collects")

# %% [markdown]
# Read the column *animal* as a sum: a weight of 0.18 times the 3 of *cat*, 0.18 times the 1 of
# *it*, and 0.30 times the 2 of *thirsty* make 1.32. In the column *food*, *milk* gives as much
# as *cat* gives under *animal*, but *thirsty* gives nothing, so the sum stays at 0.72.
#
# ### With a pencil: what does “drank” look at?
#
# *Easy, 5 minutes.* Compute the eight weights of the query *drank* on paper, from its scores to its
# shares. You need $\exp(0) = 1$, $\exp(1) \approx 2.7$ and $\exp(2) \approx 7.4$. Two decimal
# places are enough.

# %% tags=["exercise"]
my_weights = [
    None, None, None, None,  # the, cat, drank, milk
    None, None, None, None,  # because, it, was, thirsty
]

# %%
exercises.one_head.check_weights(my_weights)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# *Drank* is `(0, 0, 2, 0)`. Only two words have any *action*: *drank* and *was*, with scores of 4
# and 2.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Divide by 2 before the exponential. A word with a score of zero still counts: its exponential is
# one, and there are six such words.
#
# </details>

# %% tags=["solution"] jupyter={"source_hidden": true}
total = 7.4 + 2.7 + 6 * 1
my_weights = [1 / total] * 8
my_weights[WORDS.index("drank")] = 7.4 / total
my_weights[WORDS.index("was")] = 2.7 / total

exercises.one_head.check_weights(my_weights)

# %% [markdown]
# ## Collected, then added
#
# The collected numbers do not replace the word that asked. In a Transformer, the model that this
# book leads up to, they are **added** to that word, and all later steps compute with the sum. This
# is called a residual connection, and a later chapter builds it. How well does *it* fit *cat* and
# *milk*, before the addition and after? The dot product measures that, as it did for the scores.

# %%
cat_and_milk = embed(["cat", "milk"])  # (2, 4)
fits = torch.stack([
    cat_and_milk @ before,
    cat_and_milk @ (before + collected[it]),
    cat_and_milk @ (before + swapped[it]),
])  # (3, 2)
show(["it, before", "with thirsty", "with sweet"], ["cat", "milk"], fits, digits=1)

# %% [markdown]
# Before the addition, *it* fits *cat* and *milk* equally well. Afterwards both numbers are larger,
# because the features of *it* are larger. *Cat* now leads in the first sentence, and *milk* in the
# second. One word has decided what another means.
#
# ## All words at once
#
# Every word asks, and they all ask in the same way. Stack the queries as rows of a matrix $Q$, the
# keys as rows of $K$ and the values as rows of $V$. One matrix product then scores every query
# against every key, and the whole of attention takes three lines [[Vaswani et al., equation
# 1](../docs/references.md#vaswani-2017)]:
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\!\left(\frac{QK^\top}{\sqrt d}\right) V$$
#
# Below, n counts the queries and m the keys; `d_v` is the width of the values, here 4 as well.
# `key.mT` is the transpose of the matrix of keys, and `softmax(-1)` runs over the last axis, the
# keys. The code divides the queries by $\sqrt d$ where the formula divides the scores, which
# gives the same result.


# %%
def attend(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Mix the rows of ``value``, for each query with its own weights.

    Args:
        query: (n, d), one row per query.
        key: (m, d), one row per key.
        value: (m, d_v), one row per key.
    """
    scores = (query / math.sqrt(query.size(-1))) @ key.mT  # (n, d) x (d, m) -> (n, m)
    weights = scores.softmax(-1)                           # (n, m)
    return weights @ value, weights                        # (n, d_v), (n, m)


output, weights = attend(EMBEDDINGS, EMBEDDINGS, EMBEDDINGS)  # (8, 4), (8, 8)
torch.testing.assert_close(output[it], mixed)

# %% jupyter={"source_hidden": true}
display.attention_lines(weights, WORDS, it, name="it-looks")

# %% [markdown]
# In this figure, the words at the bottom look at the words at the top; a thicker line means a
# larger weight. The orange lines are the weights of *it* that you followed by hand. Here are
# the weights of all words as a map:

# %% jupyter={"source_hidden": true}
display.attention_map(weights, WORDS, WORDS, name="first-map")

# %% [markdown]
# Read it row by row: the weights of each query add up to one. *The* has four zeros, so it fits
# every key equally badly. Each key gets a weight of $1/8 = 0.125$, which the map rounds to 0.12.
# *Cat*, *drank*, *milk* and *thirsty* look most at themselves, because no other word resembles them
# as much. *Was* looks most at *drank*: both are actions, and *drank* has the larger number, which
# gives a larger score.
#
# ## Ask for something other than what you are
#
# Looking at yourself is of little use. *Thirsty* gives itself 0.63 of its attention, although a
# useful question would be *which animal is thirsty here?* A matrix between the word and its query
# changes the question. This matrix is called $W_Q$. It has a row for each feature that a word can
# have, and a column for each feature that it can ask for. Ours has one nonzero entry, in the row of
# *quality* and the column of *animal*: a word that has *quality* asks for *animal*. The entry is 2
# to make the scores larger and the preference clear.

# %%
w_q = torch.zeros(4, 4)
w_q[3, 0] = 2.0  # quality asks for animal

asked = EMBEDDINGS @ w_q                             # (8, 4) x (4, 4) -> (8, 4)
_, with_w_q = attend(asked, EMBEDDINGS, EMBEDDINGS)  # (8, 4), (8, 8)
thirsty = WORDS.index("thirsty")
rows = torch.stack([weights[thirsty], with_w_q[thirsty], with_w_q[it]])  # (3, 8)
show(WORDS, ["thirsty", "thirsty, with W_Q", "it, with W_Q"], rows.mT)

# %% [markdown]
# The query of *thirsty* was `(2, 0, 0, 2)` and is now `(4, 0, 0, 0)`: it asks for an animal and
# nothing else. *Thirsty* gives 0.86 of its attention to *cat*.
#
# The word *it* has a quality of 1, so its query changes, too. The new query is `(2, 0, 0, 0)`, and
# *cat* gets 0.57: with this matrix, *it* asks for an animal, whatever the last word is.
#
# ## Four learned matrices
#
# A head has four such matrices. Nobody writes them by hand: training finds their entries. In their
# shapes, e is the width of the embeddings, and d is the width of queries, keys and values inside the
# head. So far e and d were both 4.
#
# | matrix | shape | decides |
# |---|---|---|
# | $W_Q$ | `(e, d)` | what a word asks for |
# | $W_K$ | `(e, d)` | what a word can be found by |
# | $W_V$ | `(e, d)` | what a word hands over when it is found |
# | $W_O$ | `(d, e)` | under which features the asking word writes what it collects |
#
# To see each of them at work, take a head of width 1, in which each matrix picks a single feature.
# At the start, *quality* asks, words are found by *animal*, they hand over how much of an *animal*
# they are, and this is written under *animal*. Then change one matrix at a time.
#
# Which of the four can change the weights: all of them, only $W_Q$, or $W_Q$ and $W_K$?
#
# <details><summary>What do you expect?</summary>
#
# $W_Q$ and $W_K$. The weights come from the scores, and the scores from queries and keys. $W_V$ and
# $W_O$ act after the weights are known: they change what is collected and where it is written.
#
# </details>

# %%
def pick(feature: str) -> Tensor:
    """Make a matrix of one column, which picks one feature of each word."""
    column = torch.zeros(4, 1)  # (4, 1)
    column[FEATURES.index(feature)] = 1.0
    return column               # (4, 1)


heads = {  # what asks, what is found, what is handed over, where it is written
    "start": ("quality", "animal", "animal", "animal"),
    "new W_Q": ("food", "animal", "animal", "animal"),
    "new W_K": ("quality", "food", "animal", "animal"),
    "new W_V": ("quality", "animal", "quality", "animal"),
    "new W_O": ("quality", "animal", "animal", "quality"),
}

# %% [markdown]
# $W_O$ goes the other way, from the width 1 of the head back to the four features. It is therefore
# a row, and `.mT` turns the column into one.

# %%
looks, receives = [], []
for asks, found, given, written in heads.values():
    q, k = EMBEDDINGS @ pick(asks), EMBEDDINGS @ pick(found)   # (8, 1)
    carried, weights = attend(q, k, EMBEDDINGS @ pick(given))  # (8, 1), (8, 8)
    w_o = pick(written).mT                                     # (1, 4)
    looks.append(weights[thirsty])
    receives.append((carried @ w_o)[thirsty])

print("the weights of thirsty:")
show(WORDS, list(heads), torch.stack(looks, dim=1))
print("\nwhat thirsty receives:")
show(list(heads), FEATURES, torch.stack(receives))

# %% [markdown]
# The weights of *start* equal the column *thirsty, with W_Q* in the previous section. There the
# entry of $W_Q$ was 2, so the scores were twice as large, and they were divided by $\sqrt 4 = 2$.
# Here the entry is 1, d is 1, and dividing by $\sqrt 1$ changes nothing. Each of the other heads
# differs from *start* in the one matrix that it is named after:
#
# - New $W_Q$: now *food* asks. *Thirsty* has none, so its query is zero and it spreads its attention
#   evenly. It receives one eighth of all the animal in the sentence, $(3 + 1 + 2) / 8$, which is
#   0.75.
# - New $W_K$: words are found by *food*. *Thirsty* gives 0.97 to *milk*, which has no animal to hand
#   over.
# - New $W_V$: the weights are those of *start*, but *quality* is handed over. *Cat* has none, so
#   only 0.25 arrives, mostly from *thirsty* itself.
# - New $W_O$: the same 2.82 as in *start*, written under *quality*.
#
# With the rows of $X$ as the words, $Q = XW_Q$, $K = XW_K$ and $V = XW_V$. All three come from the
# same words, which is called **self-attention**. The queries may also come from different words: in
# translation, the words of the new sentence ask the words of the original. This is
# **cross-attention**.
# Nothing in `attend` has to change for it, because n and m never had to be equal.
#
# ## The head as a module
#
# Put the four matrices into an `nn.Module`, so that an optimiser can find and train them. As in
# PyTorch's own modules, the arguments of `forward` are called query, key and value even though they
# hold words: first the words that ask, then, twice, the words that are asked. The matrices inside
# turn these words into queries, keys and values.


# %%
class OneHead(nn.Module):
    """Attention with one head of width ``head_dim``."""

    def __init__(self, embed_dim: int, head_dim: int) -> None:
        super().__init__()
        self.w_q = nn.Parameter(torch.empty(embed_dim, head_dim))  # (e, d)
        self.w_k = nn.Parameter(torch.empty(embed_dim, head_dim))  # (e, d)
        self.w_v = nn.Parameter(torch.empty(embed_dim, head_dim))  # (e, d)
        self.w_o = nn.Parameter(torch.empty(head_dim, embed_dim))  # (d, e)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from each query to every key.

        Args:
            query: (n, e), the words that ask.
            key: (m, e), the words that are asked.
            value: (m, e), the same words, for what they hand over.
        """
        q = query @ self.w_q              # (n, e) x (e, d) -> (n, d)
        k = key @ self.w_k                # (m, e) x (e, d) -> (m, d)
        v = value @ self.w_v              # (m, e) x (e, d) -> (m, d)
        mixed, weights = attend(q, k, v)  # (n, d), (n, m)
        return mixed @ self.w_o, weights  # (n, d) x (d, e) -> (n, e), (n, m)


# %% [markdown]
# `torch.empty` reserves memory without writing into it, so the matrices still need numbers to start
# from. The usual choice is random numbers of a size that Xavier Glorot proposed [[Glorot and
# Bengio](../docs/references.md#glorot-2010)].


# %%
def xavier(module: nn.Module) -> nn.Module:
    """Initialise every matrix of ``module``, and return it."""
    for matrix in module.parameters():
        nn.init.xavier_uniform_(matrix)
    return module


head = xavier(OneHead(embed_dim=4, head_dim=3))
for name, asking in (("self", EMBEDDINGS), ("cross", embed(["sweet", "cat"]))):
    output, weights = head(asking, EMBEDDINGS, EMBEDDINGS)
    print(f"{name}: output {tuple(output.shape)}, weights {tuple(weights.shape)}")

# %% [markdown]
# In the line *cross*, the two words *sweet* and *cat* ask the words of our sentence. The output has
# one row per query and is as wide as the embeddings, so it can be added to the words that asked.
# Before training, its numbers mean nothing.
#
# ## The mistake people make here
#
# > **Pitfall.** The softmax over the wrong axis: `softmax(-2)` instead of `softmax(-1)`. Both give
# > an `(n, m)` matrix of positive numbers. But in a softmax over the queries, the keys no longer
# > compete for a query; the queries compete for a key.
#
# No exception warns you. Which check would catch the mistake: the shape of the weights, their
# largest entry, or the sum of each row?
#
# <details><summary>What do you expect?</summary>
#
# The sum of each row. The shape is the same, and both matrices hold numbers between zero and one.
# But only a softmax over the keys gives each query weights that add up to one.
#
# </details>

# %%
scores = EMBEDDINGS @ EMBEDDINGS.mT / math.sqrt(4)     # (8, 4) x (4, 8) -> (8, 8)
right, wrong = scores.softmax(-1), scores.softmax(-2)  # (8, 8)
show(WORDS, ["right", "wrong"], torch.stack([right.sum(-1), wrong.sum(-1)], dim=1))

# %% [markdown]
# With the wrong axis, the weights of *the* add up to 0.48 and those of *cat* to 1.58. Adding up
# each row catches the mistake.
#
# ## Going deeper
#
# Four questions that you may skip on a first reading.

# %% [markdown]
# <!-- deeper: Why divide by √d? -->
# ### Going deeper: Why divide by √d?
#
# A score adds up $d$ products. If the entries of query and key are independent, with mean 0 and
# variance 1, each product has variance 1 and the sum has variance $d$. Its standard deviation, the
# typical size of a score, is therefore $\sqrt d$. Measure it for 32 random queries and 16 random
# keys.


# %%
def products(d: int) -> Tensor:
    """Multiply 32 random queries by 16 random keys of width ``d``."""
    source = torch.Generator().manual_seed(d)
    n, m = 32, 16
    query = torch.randn(n, d, generator=source)  # (n, d)
    key = torch.randn(m, d, generator=source)    # (m, d)
    return query @ key.mT                        # (n, d) x (d, m) -> (n, m)


WIDTHS = (4, 8, 16, 32, 64, 128, 256)
for width in WIDTHS:
    print(f"d = {width:3}: the scores deviate by {products(width).std():5.2f}")

# %% [markdown]
# Four times the width gives about twice the deviation. What does that do to the softmax? Its
# derivative says how weight $w_i$ reacts to score $s_j$:
# $\partial w_i / \partial s_j = w_i (\delta_{ij} - w_j)$, where $\delta_{ij}$ is 1 for $i = j$ and
# 0 otherwise. In training, the gradient of the weights is multiplied by this matrix on its way to
# the scores, so a small matrix lets little of the gradient through. The table shows three numbers.
# `std` is the standard deviation of the scores. `deriv.` is the size of the matrix (the root of the
# sum of its squared entries) for the median query. `max` is the largest weight, averaged over the
# queries.


# %%
def measure(scores: Tensor) -> tuple[float, float, float]:
    """Measure the deviation of scores, the size of the derivative, the largest weight.

    Args:
        scores: (n, m), a row per query.
    """
    weights = scores.softmax(-1)                       # (n, m)
    outer = weights[:, :, None] * weights[:, None, :]  # (n, m, m)
    jacobian = weights.diag_embed() - outer            # (n, m, m)
    size = jacobian.flatten(1).norm(dim=1).median()
    return scores.std().item(), size.item(), weights.amax(-1).mean().item()


print("        not divided        divided by √d")
print("  d    std deriv.  max    std deriv.  max")
for width in WIDTHS:
    plain, divided = measure(products(width)), measure(products(width) / math.sqrt(width))
    print(f"{width:3}" + ("{:7.2f}{:7.3f}{:5.2f}" * 2).format(*plain, *divided))

# %% [markdown]
# Without the division, one key takes nearly all the weight as $d$ grows. Up to $d = 16$ the
# derivative holds up, and then it vanishes: for most queries the weights hardly react to the
# scores, almost no gradient comes back, and the head cannot learn to look elsewhere. The softmax is
# **saturated**. With the division by $\sqrt d$, all three numbers hardly change with the width.
#
# The figure uses the same scores; the dashed line shows them without the division. Where the figure
# has sliders, use them to choose the width and the divisor:
#
# 1. Divide by *1* and increase the width: the scores spread, one key wins, the derivative vanishes.
# 2. Divide by *√d* and increase the width again: hardly anything changes, as it should be.
# 3. Divide by *d*: the derivative stays, but every key gets nearly the same weight.

# %% jupyter={"source_hidden": true}
by_width = {width: products(width) for width in WIDTHS}
display.saturation(by_width, measure, name="why-root-d", width=64, query=10)

# %% [markdown]
# Divide by too little and the head is stuck on one key; divide by too much and it treats all keys
# alike. The root keeps the deviation near one at every width.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# <!-- deeper: What do the matrices hold at the start? -->
# ### Going deeper: What do the matrices hold at the start?
#
# `torch.empty` leaves in memory whatever was there before. PyTorch can make that visible: in its
# deterministic mode it fills such memory with NaN, "not a number".

# %%
torch.use_deterministic_algorithms(True)
print(OneHead(embed_dim=4, head_dim=3).w_q[0].tolist())
torch.use_deterministic_algorithms(False)

# %% [markdown]
# A matrix of random numbers should neither blow up nor shrink what passes through it, forward or
# backward. Entries of variance $2 / (\text{rows} + \text{columns})$ achieve this for square
# matrices and are a compromise for others; `xavier` draws such entries. Compare them with normally
# distributed numbers of two fixed standard deviations, at e = d = 512.

# %%
x = torch.randn(64, 512)  # (64, 512)
choices = {"1": 1.0, "0.001": 0.001, "Xavier": None}
print("deviation   of a query   largest weight")
for name, deviation in choices.items():
    big = xavier(OneHead(512, 512))
    if deviation is not None:
        for matrix in big.parameters():
            nn.init.normal_(matrix, std=deviation)
    _, weights = big(x, x, x)  # (64, 512), (64, 64)
    print(f"{name:>9} {(x @ big.w_q).std():12.3f} {weights.amax(-1).mean():16.3f}")

# %% [markdown]
# With entries that are too large, one of 64 keys takes nearly everything before training has begun.
# With entries that are too small, every key gets the same weight. With Xavier's choice a query is
# about as large as the word that it was made from.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# <!-- deeper: Why did attention replace recurrence? -->
# ### Going deeper: Why did attention replace recurrence?
#
# Before attention, networks read a sentence word by word, with a memory that each word updates.
# What the last word knows about the first has passed through every step in between. How strongly
# does the last output react to the first input? [Bengio et al.](../docs/references.md#bengio-1994)
# asked this about recurrent networks in 1994. The function below measures the reaction by the
# gradient, averaged over twenty random inputs. The recurrent network here is small and untrained,
# and attention has no matrices.


# %%
def reach(model, length: int) -> float:
    """Measure how the last output of ``model`` reacts to its first input, on average."""
    sizes = []
    for seed in range(20):
        source = torch.Generator().manual_seed(seed)
        x = torch.randn(length, 4, generator=source, dtype=torch.float64)  # (length, 4)
        last = model(x.requires_grad_())[-1]                               # (4,)
        sizes.append(torch.autograd.grad(last.sum(), x)[0][0].norm())
    return torch.stack(sizes).mean().item()


# %%
torch.manual_seed(1)
rnn = nn.RNN(4, 4, dtype=torch.float64)
print("distance   recurrent   attention")
for length in (2, 10, 50, 250):
    through_rnn = reach(lambda x: rnn(x)[0], length)
    through_attention = reach(lambda x: attend(x, x, x)[0], length)
    print(f"{length - 1:8} {through_rnn:11.0e} {through_attention:11.0e}")

# %% [markdown]
# Each step of this network passes on only a fraction of the signal, and the fractions multiply.
# Training may change how large each fraction is, but they still multiply. Attention takes a single
# step at any distance. Its reaction falls as well, but only because more words share the weights.
#
# In attention, no row waits for another, so all rows can be computed at once. The next cell asserts
# two things: a word gets the same output whether it asks alone or with the others, and shuffling
# the words shuffles the outputs but changes none of them.

# %%
alone, _ = attend(embed(["it"]), EMBEDDINGS, EMBEDDINGS)           # (1, 4), (1, 8)
in_company, _ = attend(EMBEDDINGS, EMBEDDINGS, EMBEDDINGS)         # (8, 4), (8, 8)
torch.testing.assert_close(alone[0], in_company[it])

order = torch.tensor([5, 3, 0, 7, 1, 6, 2, 4])
shuffled = EMBEDDINGS[order]                                       # (8, 4)
moved, _ = attend(shuffled, shuffled, shuffled)                    # (8, 4), (8, 8)
torch.testing.assert_close(moved, in_company[order])
print("alone or shuffled: the same row")

# %% [markdown]
# The second result is also a warning: attention does not know the order of the words. *The milk
# drank the cat* gives every word the same output as *the cat drank the milk*.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# <!-- deeper: Is it the same as PyTorch's attention? -->
# ### Going deeper: Is it the same as PyTorch's attention?
#
# It is easy to get three lines of code almost right, so compare them with two implementations from
# outside this book. Equal outputs are not enough, since training runs on gradients: outputs and
# gradients must both agree. All sizes differ here, so that a swapped axis cannot hide.


# %%
def gradients(outputs: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    """Differentiate a fixed random mixture of ``outputs``: each of them counts."""
    source = torch.Generator().manual_seed(2)
    mixture = torch.randn(outputs.shape, generator=source, dtype=outputs.dtype)
    return torch.autograd.grad((outputs * mixture).sum(), inputs)


n, m, d = 3, 5, 6
q = torch.randn(n, d, dtype=torch.float64, requires_grad=True)  # (n, d)
k = torch.randn(m, d, dtype=torch.float64, requires_grad=True)  # (m, d)
v = torch.randn(m, 7, dtype=torch.float64, requires_grad=True)  # (m, 7)

ours, theirs = attend(q, k, v)[0], F.scaled_dot_product_attention(q, k, v)  # (n, 7)
torch.testing.assert_close(ours, theirs)
torch.testing.assert_close(gradients(ours, [q, k, v]), gradients(theirs, [q, k, v]))
print(f"outputs agree up to {(ours - theirs).abs().max():.0e}, gradients, too")

# %% [markdown]
# `torch.nn.MultiheadAttention` with one head is our module with its matrices stored differently.
# PyTorch's linear layers compute $xW^\top$, so each matrix is stored transposed. The transposes of
# $W_Q$, $W_K$ and $W_V$ lie on top of each other in one tall matrix, `in_proj_weight`. Give both
# modules the same numbers, and compare outputs and weights.

# %%
head = xavier(OneHead(embed_dim=d, head_dim=d).double())
torchs = nn.MultiheadAttention(embed_dim=d, num_heads=1, bias=False, dtype=torch.float64)
with torch.no_grad():
    stacked = torch.cat([head.w_q.mT, head.w_k.mT, head.w_v.mT])  # (18, 6)
    torchs.in_proj_weight.copy_(stacked)
    torchs.out_proj.weight.copy_(head.w_o.mT)

x = torch.randn(m, d, dtype=torch.float64, requires_grad=True)  # (m, d)
(out, weights), (their_out, their_weights) = head(q, x, x), torchs(q, x, x)
torch.testing.assert_close((out, weights), (their_out, their_weights))

# %% [markdown]
# Now compare the gradients of the inputs and of all four matrices. PyTorch's gradients have to be
# taken apart and transposed back first.

# %%
mine = gradients(out, [q, x, head.w_q, head.w_k, head.w_v, head.w_o])
stored = [torchs.in_proj_weight, torchs.out_proj.weight]
of_q, of_x, of_stacked, of_out = gradients(their_out, [q, x, *stored])
of_w_q, of_w_k, of_w_v = of_stacked.chunk(3)  # (6, 6)
theirs = (of_q, of_x, of_w_q.mT, of_w_k.mT, of_w_v.mT, of_out.mT)
torch.testing.assert_close(mine, theirs)
for name, gradient in zip(("query", "key and value", "w_q", "w_k", "w_v", "w_o"), mine):
    print(f"gradient of {name:>13}: {tuple(gradient.shape)}, equal")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Exercises
#
# ### Attention from memory
#
# *Easy, 5 minutes.* Without looking at the page above, write attention as a function: `query` is
# `(n, d)`, `key` is `(m, d)`, `value` is `(m, d_v)`. Return the output alone, `(n, d_v)`.


# %% tags=["exercise"]
def my_attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Mix the rows of ``value``, for each query with its own weights."""
    return None  # your lines here


# %%
exercises.one_head.check_attend(my_attend)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Three steps: score each query against each key, turn each query's scores into shares, mix the
# values by them.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The scores are `(n, m)`. A score adds up d products. By the root of which argument's width do you
# divide?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `key.mT` is `(d, m)`. The keys are the last axis of the scores, and they compete for a query, so
# the softmax runs over axis -1.
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
def my_attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Mix the rows of ``value``, for each query with its own weights.

    Args:
        query: (n, d), one row per query.
        key: (m, d), one row per key.
        value: (m, d_v), one row per key.
    """
    scores = query @ key.mT / math.sqrt(query.size(-1))  # (n, d) x (d, m) -> (n, m)
    return scores.softmax(-1) @ value                    # (n, m) x (m, d_v) -> (n, d_v)


exercises.one_head.check_attend(my_attend)

# %% [markdown]
# ### Two words, two questions
#
# *Medium, 10 minutes.* With the $W_Q$ above, *it* and *thirsty* ask the same question: which
# animal? Now let *it* ask for the quality more than for the animal, while *thirsty* goes on as
# before. Change the matrix so that *it* gives more than half of its attention to *thirsty*, and
# *thirsty* still gives more than half of its own to *cat*. A row is a feature that a word has, and
# a column is a feature that it asks for. Both are counted from 0 in the order animal, food, action,
# quality.

# %% tags=["exercise"]
my_w_q = torch.zeros(4, 4)
my_w_q[3, 0] = 2.0  # quality asks for animal, as above
# your lines here

# %%
exercises.one_head.check_w_q(my_w_q)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The word *it* is `(1, 1, 0, 1)`, *thirsty* is `(2, 0, 0, 2)`. *Cat* has more *animal* than
# *thirsty*, but no *quality*. Which of these two features does *it* have to ask for?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# One of the features of *it* has to do the asking. *Thirsty* has *animal* and *quality* as well, so
# if either of these did the asking, *thirsty* would ask for the same and find itself.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# One more number is enough. Its row is the feature that *it* has and *thirsty* lacks, and its column
# is the feature to ask for.
#
# </details>

# %% tags=["solution"] jupyter={"source_hidden": true}
my_w_q = torch.zeros(4, 4)
my_w_q[3, 0] = 2.0  # quality asks for animal
my_w_q[1, 3] = 3.0  # food asks for quality; thirsty is no food, so it goes on as before

exercises.one_head.check_w_q(my_w_q)

# %% [markdown]
# ## What you have now
#
# You can compute attention on paper and as three lines of code, and you know what each of the four
# matrices changes.
#
# > **In short.** Attention is a soft look-up. Each query is compared with every key and collects
# > from every value: the better a key fits, the more the query collects from its value.
# >
# > $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\!\left(\frac{QK^\top}{\sqrt d}\right) V$$
# >
# > Query `(n, d)`, key `(m, d)`, value `(m, d_v)`; weights `(n, m)`; output `(n, d_v)`.
# >
# > ```python
# > scores = query @ key.mT
# > weights = (scores / d**0.5).softmax(-1)
# > output = weights @ value
# > ```
# >
# > Each query's weights are positive and add up to one. $W_Q$ and $W_K$ decide who finds whom;
# > $W_V$ and $W_O$ decide what is handed over and where it is written. A Transformer adds the
# > output to the word that asked.
#
# One question remains open. A head has one set of weights per query: where *it* looks at *cat* to
# learn who is meant, and at *thirsty* to learn what is said of the cat, the two share one whole.
# [The next chapter](02_two_heads.ipynb) gives each word a second head.
