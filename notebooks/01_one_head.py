# %% [markdown]
# # One head
#
# *What does the word “it” mean?*
#
# *19 minutes and 12 of exercises. Afterwards you can compute attention on paper, and say what
# each of its four matrices is for.*
#
# > the cat drank milk because **it** was thirsty
#
# > the cat drank milk because **it** was sweet
#
# You know at once who was thirsty and what was sweet, although only the last word differs. A model
# starts with the same numbers for *it* in both sentences, because the word is the same. To tell the
# two apart, the word has to collect something from the other words. **Attention** is the
# computation that lets every word do this. One copy of it, with its own numbers, is a **head**.
#
# Exchange the last word, and watch what *it* collects.

# %% tags=["hide-input"]
from annotated_book import display

display.first_look(name="first-look")

# %% tags=["hide-input"]
display.chapter_map("project in", "score", "softmax", "mix", "project out")

# %% [markdown]
# The strip shows the whole computation of this book, with this chapter's steps highlighted. Do not
# read it yet: by the end of [Masks](06_masks.ipynb) you know every box.

# %% [markdown] name="a-sentence-in-numbers"
# ## A sentence in numbers
#
# A model computes with numbers, so each word becomes a row of them, its **embedding**. Ours has
# four features, made by hand: how much of an animal, a food, an action or a quality the word is.

# %%
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FEATURES = ["animal", "food", "action", "quality"]
HAND_MADE = {  # one digit per feature
    "the": "0000",
    "cat": "3000",
    "drank": "0020",
    "milk": "0300",
    "because": "0000",
    "it": "1101",
    "was": "0010",
    "thirsty": "2002",
    "sweet": "0202",
}
WORDS = ["the", "cat", "drank", "milk", "because", "it", "was", "thirsty"]
SWEET = [*WORDS[:-1], "sweet"]


def embed(words: list[str]) -> Tensor:
    """Give the features of each word, one row per word."""
    return torch.tensor([[float(digit) for digit in HAND_MADE[word]] for word in words])


EMBEDDINGS, SWEET_EMBEDDINGS = embed(WORDS), embed(SWEET)  # (8, 4)

# %% [markdown]
# *Cat* is an animal, *milk* a food. *Thirsty* is a quality that animals have. The word *it* stands
# for something without saying what: a bit of an animal, a bit of a food, and something that has a
# quality.


# %% tags=["fold-input"]
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
# First, look at what attention does. PyTorch has it built in as one call: all words go in, and out
# come the numbers that each word has collected. They go in three times, because every word plays
# three roles. Run it on both sentences. In the second, the last word is *sweet*, a quality that
# foods have; the other seven are the same.

# %%
it = WORDS.index("it")
x = EMBEDDINGS                                       # (8, 4)
collected = F.scaled_dot_product_attention(x, x, x)  # (8, 4)
x = SWEET_EMBEDDINGS                                 # (8, 4)
swapped = F.scaled_dot_product_attention(x, x, x)    # (8, 4)

rows = torch.stack([x[it], collected[it], swapped[it]])  # (3, 4)
show(["it, before", "with thirsty", "with sweet"], FEATURES, rows)

# %% [markdown]
# The word *it* goes in as equal parts animal and food. In the first sentence it collects 1.32 of
# animal against 0.72 of food; in the second, the two numbers trade places. So the last word
# decides: *thirsty* brings animal along, and *sweet* brings food.
#
# > **What this example does not show.** The link between thirst and animals was written into the
# > numbers by hand. A trained model has to find hundreds of such features by itself, and few of
# > them have a name.

# %% [markdown] name="a-soft-look-up"
# ## A soft look-up
#
# How does *it* know which words to collect from? Think of a library. You come with a question. Each
# book has a title on its spine and pages inside. A catalogue would find the one book with exactly
# the title that you asked for, or nothing at all, like a Python `dict`.
#
# A **soft look-up** never comes back empty. You compare your question with every spine, and the
# better a title fits, the more of that book you read. You go home with one page of notes, mostly
# from the books that fit well and a little from all the others. The three parts have names:
#
# | role | what it is | in the library |
# |---|---|---|
# | **query** | what is asked for | your question |
# | **key** | what something is found by | the title on a spine |
# | **value** | what is handed over | the pages |

# %% tags=["fold-input"]
display.soft_look_up(
    "my cat hardly drinks",
    {"Keeping cats": "on cats", "Milk and cheese": "on milk", "Old railways": "on trains"},
    torch.tensor([0.7, 0.25, 0.05]),
    name="library",
    caption="Each book gives as much as its title fits. The shares are invented.",
)

# %% [markdown]
# Here the library stops helping: it keeps readers and books apart, and in a sentence every word
# plays all three roles. *It* asks all eight words, itself included, and the others ask it. For now
# the query, the key and the value of a word are the same four numbers, so each word asks for words
# that share its features.

# %% [markdown] name="scores-how-well-does-a-key-fit"
# ## Scores: how well does a key fit?
#
# Follow the word *it* by hand. First compare its query with each key: multiply the two feature by
# feature, and add up the products. This sum is the **score**, also called the dot product. It is
# large when both have large numbers in the same places. For *it* and *thirsty* the sum is
# $1 \cdot 2 + 1 \cdot 0 + 0 \cdot 0 + 1 \cdot 2 = 4$.
#
# In the code, a comment such as `(m, d)` gives the shape of what its line makes: m keys, each of
# width d. The shapes before an arrow are those that go into a product.

# %%
query = EMBEDDINGS[it]      # (d,)
keys = values = EMBEDDINGS  # (m, d)
scores = keys @ query       # (m, d) x (d,) -> (m,)

show(WORDS, ["score"], scores[:, None], digits=0)

# %% [markdown]
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
# Next, the scores have to become shares: positive numbers that add up to one, like the time that
# you give to each book. First divide each score by $\sqrt d$, here $\sqrt 4 = 2$. A score is a sum
# of d products, so scores grow with the width d, and the division makes up for that; [a fold below
# shows why it takes the root](#cell-id=why-divide-by-the-root). Then take the exponential of each,
# and divide it by the sum of all exponentials. This second part is the **softmax**, and the shares
# are the **attention weights**.

# %%
powers = (scores / math.sqrt(4)).exp()  # (m,)
weights = powers / powers.sum()         # (m,)

print(f"thirsty: {powers[7]:.2f} / {powers.sum():.2f} = {weights[7]:.2f}\n")
show(WORDS, ["score", "exp(s/2)", "weight"], torch.stack([scores, powers, weights], dim=1))

# %% [markdown]
# *Thirsty* gets 0.30 of the attention of *it*; *cat*, *milk* and *it* get 0.18 each. The other four
# words share no feature with *it* but still get 0.04 each, since $\exp(0) = 1$. All eight compete
# for one whole: where one word gets more, the others get less.
#
# Why exponentials? Scores can be negative, and an exponential never is. And only differences count:
# a key whose divided score is one higher gets $e \approx 2.7$ times the weight, wherever the two
# lie.
#
# *Cat* and *milk* both get 0.18, and they still would if the last word were *sweet*. So the weights
# do not choose between the two. What decides is what *thirsty* hands over.
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
# PyTorch gave the same. The table puts the three steps side by side. Its last line adds up each
# column, the features' numbers times their weights.

# %% tags=["fold-input"]
display.one_query(query, keys, values, WORDS, FEATURES, who="it", name="it-collects")

# %% [markdown]
# Read the column *animal* as a sum: a weight of 0.18 times the 3 of *cat*, 0.18 times the 1 of
# *it*, and 0.30 times the 2 of *thirsty* make 1.32. In the column *food*, *milk* gives as much
# as *cat* gives under *animal*, but *thirsty* gives nothing, so the sum stays at 0.72. In a
# Transformer, the model that this book leads up to, the collected numbers do not replace the word
# that asked: [they are added to it](08_transformer_layers.ipynb).
#
# ## All words at once
#
# Every word asks in the same way. Stack the queries as rows of a matrix $Q$, the keys as rows of
# $K$ and the values as rows of $V$. One matrix product scores every query against every key, and
# the whole of attention takes three lines [[Vaswani et al., equation
# 1](../docs/references.md#vaswani-2017)]:
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\!\left(\frac{QK^\top}{\sqrt d}\right) V$$
#
# Below, n counts the queries and m the keys; `d_v` is the width of the values, here 4 as well.
# `key.mT` is the transpose of the matrix of keys, and `softmax(-1)` runs over the last axis, the
# keys. The code divides the queries by $\sqrt d$ instead of the scores, with the same result.


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
show(WORDS[4:], WORDS, weights[4:])

# %% [markdown]
# Each row belongs to a word that asks; these are the last four. The row of *it* is the one that you
# followed by hand. *Because* has four zeros, so every key fits equally badly and gets one eighth.
# *Thirsty* looks most at itself, because its own score, 8, is the highest; *cat* has 6.
#
# ## Ask for something other than what you are
#
# A word learns little from itself. *Thirsty* had better ask *which animal is thirsty here?* A
# matrix between the word and its query, called $W_Q$, changes the question. It has a row for each
# feature that a word can have, and a column for each feature that it can ask for. Ours has one
# entry that is not zero: a word that has *quality* asks for *animal*.

# %%
w_q = torch.zeros(4, 4)
w_q[3, 0] = 2.0  # quality asks for animal

output, with_w_q = attend(EMBEDDINGS @ w_q, EMBEDDINGS, EMBEDDINGS)  # (8, 4), (8, 8)
thirsty = WORDS.index("thirsty")
rows = torch.stack([weights[thirsty], with_w_q[thirsty], with_w_q[it]])  # (3, 8)
show(WORDS, ["thirsty", "thirsty, with W_Q", "it, with W_Q"], rows.mT)

x = SWEET_EMBEDDINGS                                    # (8, 4)
both = torch.stack([output, attend(x @ w_q, x, x)[0]])  # (2, 8, 4)
print()
show(["it, thirsty", "it, sweet"], FEATURES, both[:, it])

# %% [markdown]
# The query of *thirsty* was `(2, 0, 0, 2)` and is now `(4, 0, 0, 0)`: it asks for an animal and
# nothing else, and gives 0.86 of its attention to *cat*. The word *it* has a quality of 1, so its
# query becomes `(2, 0, 0, 0)`, and *cat* gets 0.57. But *it* asks for an animal in the sentence
# with *sweet*, too. Most of its attention goes to *cat* in both sentences, so *animal*, which should
# tell them apart, hardly changes: 2.21 and 2.19. A question alone is not enough: other matrices
# decide what a word is found by, and what it hands over.

# %% [markdown] name="four-learned-matrices"
# ## Four learned matrices
#
# A head has four such matrices. Nobody writes them by hand: training finds their entries. Their
# shapes: e is the width of the embeddings, d that of queries, keys and, from here on, values. So
# far, both were 4.
#
# | matrix | shape | decides |
# |---|---|---|
# | $W_Q$ | `(e, d)` | what a word asks for |
# | $W_K$ | `(e, d)` | what a word can be found by |
# | $W_V$ | `(e, d)` | what a word hands over when it is found |
# | $W_O$ | `(d, e)` | under which features the word that asked receives it |
#
# Take a head of width 2, set by hand, which asks: *is something said about an animal?* You meet it
# again in the next two chapters.

# %%
W_Q = torch.tensor([[0.0, 0], [0, 0], [0, 0], [2, 1]])  # (e, d), a quality asks: 2, 1
W_K = torch.tensor([[1.0, 0], [0, 0], [0, 0], [0, 1]])  # (e, d), found by animal, quality
W_V = torch.tensor([[0.0, 1], [0, 0], [0, 0], [1, 0]])  # (e, d), gives quality, then animal
W_O = torch.tensor([[1.0, 0, 0, 0], [0, 0, 0, 0]])      # (d, e), the first: to animal

q, k, v = EMBEDDINGS @ W_Q, EMBEDDINGS @ W_K, EMBEDDINGS @ W_V  # (n, d)
_, weights = attend(q, k, v)                                    # (n, d), (n, n)
scores = k @ q[it]                                              # (n, d) x (d,) -> (n,)
columns = [*k.unbind(1), scores, scores / math.sqrt(2), weights[it]]
show(WORDS, ["animal", "qual.", "score", "score/√2", "weight"], torch.stack(columns, 1))

# %% [markdown]
# The first two columns are the keys. $W_Q$ turns the quality of *it* into the query `(2, 1)`: an
# animal counts twice as much as a quality. $W_K$ gives *cat* the key `(3, 0)` and *thirsty* the key
# `(2, 2)`, so both score 6. *Sweet* would have `(0, 2)`, a quality without an animal, and score
# $2 \cdot 0 + 1 \cdot 2 = 2$. The head is 2 wide, so its scores are divided by $\sqrt 2$. *Cat* and
# *thirsty* get 0.46 each: one says *who* is meant, the other *what is said* about it. $W_V$ lets
# each hand over its quality, and then its animal, which meets the zero row of $W_O$ and is dropped
# (a spare number, tried out below).
# $W_O$ writes the quality into the column *animal*: a large number there means yes, and a model that
# adds it to *it* makes *it* more of an animal. What does *it* receive in our two sentences?

# %%
received = []
for x in (EMBEDDINGS, SWEET_EMBEDDINGS):
    collected, _ = attend(x @ W_Q, x @ W_K, x @ W_V)  # (n, d), (n, n)
    received.append((collected @ W_O)[it])
show(["it, thirsty", "it, sweet"], FEATURES, torch.stack(received))

# %% [markdown]
# After *thirsty*, *it* receives 0.97 under *animal*: yes, something is said about an animal. After
# *sweet* it receives only 0.19, since most of the attention goes to *cat*, which has no quality. So
# this head tells the sentences apart again; the same question about food comes in the next chapter.
#
# Which of the four matrices can change the weights: all of them, only $W_Q$, or $W_Q$ and $W_K$?
#
# <details><summary>What do you expect?</summary>
#
# $W_Q$ and $W_K$. The weights come from the scores, and the scores from queries and keys. $W_V$ and
# $W_O$ act after the weights are known: they change what is collected and where it is written.
#
# </details>
#
# Change one matrix at a time: first let words be found by *food* in place of *animal*; then, with
# the old $W_K$, exchange the two numbers of each value.

# %%
by_food = torch.tensor([[0.0, 0], [1, 0], [0, 0], [0, 1]])       # (e, d)
animal_first = torch.tensor([[1.0, 0], [0, 0], [0, 0], [0, 1]])  # (e, d)
looks, received = [], []
for w_k, w_v in ((W_K, W_V), (by_food, W_V), (W_K, animal_first)):
    q, k, v = EMBEDDINGS @ W_Q, EMBEDDINGS @ w_k, EMBEDDINGS @ w_v  # (n, d)
    collected, weights = attend(q, k, v)                            # (n, d), (n, n)
    looks.append(weights[it])
    received.append((collected @ W_O)[it])

names = ["as above", "new W_K", "new W_V"]
show(WORDS, names, torch.stack(looks, 1))
print()
show(names, FEATURES, torch.stack(received))

# %% [markdown]
# The new $W_K$ turns *it* from *cat* to *milk*: the query is still `(2, 1)`, but its 2 is now compared
# with food. *Milk* has no quality, so little comes back, and $W_O$ still writes it under *animal*.
# The new $W_V$ leaves the weights as they are: the same words are found, and hand over how much of an
# animal they are.
#
# With the rows of $X$ as the words, $Q = XW_Q$, $K = XW_K$ and $V = XW_V$. All three come from the
# same words, which is called **self-attention**. The queries may also come from different words: in
# translation, the words of the new sentence ask the words of the original. This is
# **cross-attention**. Nothing in `attend` has to change for it, because n and m never had to be
# equal.
#
# ## The head as a module
#
# Put the four matrices into an `nn.Module`, so that an optimiser can train them. As in PyTorch's
# own modules, the arguments of `forward` are called query, key and value even though they hold
# words.


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
# Fill the module with the matrices above, and *it* receives the same numbers as before.

# %%
head = OneHead(embed_dim=4, head_dim=2)
with torch.no_grad():
    for parameter, matrix in zip(head.parameters(), (W_Q, W_K, W_V, W_O)):
        parameter.copy_(matrix)

output, _ = head(EMBEDDINGS, EMBEDDINGS, EMBEDDINGS)  # (8, 4), (8, 8)
torch.testing.assert_close(output[it], received[0])
show(["it receives"], FEATURES, output[[it]])

# %% [markdown] name="the-mistake-people-make-here"
# ## The mistake people make here
#
# > **Pitfall.** The softmax over the wrong axis: `softmax(-2)` instead of `softmax(-1)`. Both give
# > an `(n, m)` matrix of positive numbers. But in a softmax over the queries, the keys no longer
# > compete for a query; the queries compete for a key.
#
# No exception warns you. To catch it, add up each row.

# %%
scores = EMBEDDINGS @ EMBEDDINGS.mT / math.sqrt(4)     # (8, 4) x (4, 8) -> (8, 8)
right, wrong = scores.softmax(-1), scores.softmax(-2)  # (8, 8)
show(WORDS, ["right", "wrong"], torch.stack([right.sum(-1), wrong.sum(-1)], dim=1))

# %% [markdown]
# With the wrong axis, the weights of *the* add up to 0.48 and those of *cat* to 1.58.
#
# ## Going deeper
#
# Three questions that you may skip on a first reading.

# %% [markdown] name="why-divide-by-the-root"
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


# %% [markdown]
# What do larger scores do to the softmax? Its derivative says how weight $w_i$ reacts to score
# $s_j$: $\partial w_i / \partial s_j = w_i (\delta_{ij} - w_j)$, where $\delta_{ij}$ is 1 for $i =
# j$ and 0 otherwise. In training, the gradient passes through this matrix on its way to the scores.
# In the table, `std` is the standard deviation of the scores. `deriv.` is the size of this matrix
# for the median query: the root of the sum of its squared entries. `max` is the largest weight,
# averaged over the queries.


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


WIDTHS = (4, 8, 16, 32, 64, 128, 256)
print("        not divided        divided by √d")
print("  d    std deriv.  max    std deriv.  max")
for width in WIDTHS:
    plain, divided = measure(products(width)), measure(products(width) / math.sqrt(width))
    print(f"{width:3}" + ("{:7.2f}{:7.3f}{:5.2f}" * 2).format(*plain, *divided))

# %% [markdown]
# Four times the width gives about twice the deviation. Without the division, one key takes nearly
# all the weight as $d$ grows. Up to $d = 16$ the derivative holds up, and then it vanishes: almost
# no gradient comes back, and the head cannot learn to look elsewhere. The softmax is **saturated**.
# With the division by $\sqrt d$, all three numbers hardly change with the width.
#
# The figure uses the same scores; the dashed line shows them without the division. Where the figure
# has sliders, use them to choose the width and the divisor:
#
# 1. Divide by *1* and increase the width: the scores spread, one key wins, the derivative vanishes.
# 2. Divide by *√d* and increase the width again: hardly anything changes, as it should be.
# 3. Divide by *d*: the derivative stays, but every key gets nearly the same weight.

# %% tags=["fold-input"]
by_width = {width: products(width) for width in WIDTHS}
display.saturation(by_width, measure, name="why-root-d", width=64, query=10)

# %% [markdown]
# Divide by too little and the head is stuck on one key; divide by too much and it treats all keys
# alike. The root keeps the deviation near one at every width.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# <!-- deeper: Does the order of the words matter? -->
# ### Going deeper: Does the order of the words matter?
#
# No row waits for another, so all rows can be computed at once. That is one reason why attention
# replaced networks that read a sentence word by word. Check two things: a word gets the same
# output whether it asks alone or with the others, and shuffling the words shuffles the outputs but
# changes none of them.

# %%
alone, _ = attend(embed(["it"]), EMBEDDINGS, EMBEDDINGS)    # (1, 4), (1, 8)
in_company, _ = attend(EMBEDDINGS, EMBEDDINGS, EMBEDDINGS)  # (8, 4), (8, 8)
torch.testing.assert_close(alone[0], in_company[it])

order = torch.tensor([5, 3, 0, 7, 1, 6, 2, 4])
shuffled = EMBEDDINGS[order]                     # (8, 4)
moved, _ = attend(shuffled, shuffled, shuffled)  # (8, 4), (8, 8)
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
print("outputs and gradients agree, up to rounding")

# %% [markdown]
# `torch.nn.MultiheadAttention` with one head is our module with its matrices stored differently.
# PyTorch's linear layers compute $xW^\top$, so each matrix is stored transposed. The transposes of
# $W_Q$, $W_K$ and $W_V$ lie on top of each other in one tall matrix, `in_proj_weight`. Draw random
# numbers, of a size that Xavier Glorot proposed [[Glorot and
# Bengio](../docs/references.md#glorot-2010)], give them to both modules, and compare outputs and
# weights.


# %%
def xavier(module: nn.Module) -> nn.Module:
    """Initialise every matrix of ``module`` at random, and return it."""
    for matrix in module.parameters():
        nn.init.xavier_uniform_(matrix)
    return module


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
# ### With a pencil: what does “drank” look at?
#
# *Easy, 5 minutes.* Compute the eight weights of the query *drank* on paper, from its scores to its
# shares. Take the words' [own four numbers](#cell-id=a-sentence-in-numbers) as queries and keys, without any
# matrix. You need
# $\exp(0) = 1$, $\exp(1) \approx 2.7$ and $\exp(2) \approx 7.4$. Two decimal places are enough.

# %% tags=["exercise"]
my_weights = [
    None,
    None,
    None,
    None,  # the, cat, drank, milk
    None,
    None,
    None,
    None,  # because, it, was, thirsty
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

# %% tags=["solution"]
total = 7.4 + 2.7 + 6 * 1
my_weights = [1 / total] * 8
my_weights[WORDS.index("drank")] = 7.4 / total
my_weights[WORDS.index("was")] = 2.7 / total

exercises.one_head.check_weights.folded(my_weights)

# %% [markdown]
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
    """Mix the rows of ``value``, for each query with its own weights.

    Args:
        query: (n, d), one row per query.
        key: (m, d), one row per key.
        value: (m, d_v), one row per key.
    """
    scores = query @ key.mT / math.sqrt(query.size(-1))  # (n, d) x (d, m) -> (n, m)
    return scores.softmax(-1) @ value                    # (n, m) x (m, d_v) -> (n, d_v)


exercises.one_head.check_attend.folded(my_attend)

# %% [markdown]
# ## What you have now
#
# > **In short.** Attention is a soft look-up. Each query is compared with every key: the better a
# > key fits, the more the query collects from its value.
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
# > $W_V$ and $W_O$ decide what is handed over and where it is written.
#
# A head has one set of weights per query, and brings home one sum. What does such a sum not tell?
# [The next chapter](02_two_heads.ipynb) shows two scenes that one head confuses, and adds a second
# head.
