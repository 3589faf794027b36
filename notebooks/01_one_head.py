# %% [markdown]
# # One head
#
# *Which of these words matters to me?*
#
# > the cat drank milk because **it** was thirsty
#
# Who was thirsty? To answer, the word *it* has to look at the other words and take something
# from them. Attention is that look, and one such look is called a **head**. You compute it on
# paper, then as three lines of PyTorch, then as a module with four matrices. PyTorch's own
# attention gives the same numbers and the same gradients.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map("project in", "score", "softmax", "mix", "project out")

# %% [markdown]
# The strip is the map of the whole book, with the steps of this chapter lit; splitting and merging
# is for several heads, masking for words that must not be seen. The [notation
# page](../docs/notation.md) explains the letters; here h is still 1. All pictures come from
# `annotated_attention.display`.
#
# ## A sentence in numbers
#
# A model sees numbers, so each word gets four: how much it is a *thing*, *alive*, a *deed*, a
# *state*. These are made by hand, small enough to follow with a pencil. A trained model learns
# hundreds, and nobody can name them.

# %%
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FEATURES = ["animal", "food", "action", "quality"]
HAND_MADE = {  # one digit per feature
    "the": "0000", "cat": "3000", "drank": "0020", "milk": "0300", "because": "0000",
    "it": "1101", "was": "0010", "thirsty": "2002", "sweet": "0202",
}  # fmt: skip
WORDS = ["the", "cat", "drank", "milk", "because", "it", "was", "thirsty"]
SWEET = [*WORDS[:-1], "sweet"]


def embed(words: list[str]) -> Tensor:
    """Give the features of each word, one row per word."""
    return torch.tensor([[float(digit) for digit in HAND_MADE[word]] for word in words])


EMBEDDINGS, SWEET_EMBEDDINGS = embed(WORDS), embed(SWEET)  # (8, 4)


def show(rows: list[str], columns: list[str], numbers: Tensor, digits: int = 2) -> None:
    """Print a table of ``numbers``, with a name for each row and each column."""
    left, widths = max(map(len, rows)), [max(len(name), 4) + 2 for name in columns]
    print(" " * left + "".join(f"{name:>{width}}" for name, width in zip(columns, widths)))
    for name, row in zip(rows, numbers.tolist()):
        cells = (f"{number:{width}.{digits}f}" for number, width in zip(row, widths))
        print(f"{name:>{left}}" + "".join(cells))


show(WORDS, FEATURES, EMBEDDINGS, digits=0)

# %% [markdown]
# *Cat* is a thing and alive. *It* is a little of both: a pronoun stands for something, and does
# not say what.
#
# ## Scores: how well does it fit?
#
# Multiply two words feature by feature and add up. The sum is large when both are large in the
# same places. Do *it* with *cat*: $1 \cdot 2 + 1 \cdot 2 + 0 + 0 = 4$. The word that looks is the
# **query**; the words it looks at are the **keys**.

# %%
query = EMBEDDINGS[WORDS.index("it")]  # (d,)
scores = EMBEDDINGS @ query  # (m, d) x (d,) -> (m,)

show(WORDS, ["weight"], scores[:, None])

# %% [markdown]
# *Cat* fits best; *milk*, and *it* itself, half as well. Now turn fit into shares of one whole.
# First divide each score by $\sqrt d$, here $\sqrt 4 = 2$; the section after next measures why.
# Then the **softmax**: take the exponential of each, and divide by their sum.
#
# $$\mathrm{weight}_j = \frac{\exp(\mathrm{score}_j / \sqrt d)}{\sum_k \exp(\mathrm{score}_k / \sqrt d)}$$
#
# For *cat* that is $\exp(4 / 2)$, divided by the sum of all eight:

# %%
powers = (scores / math.sqrt(4)).exp()  # (m,)
weights = powers / powers.sum()         # (m,)

print(f"cat: {powers[1]:.2f} / {powers.sum():.2f} = {weights[1]:.2f}")
show(WORDS, ["weight"], weights[:, None])

# %% [markdown]
# The weights are positive and sum to one. Now *it* takes from each word as much as its weight
# says: a weighted sum of the words' numbers, which in this role are called **values**.

# %%
mixed = weights @ EMBEDDINGS  # (m,) x (m, d) -> (d,)

print("it, before:", "  ".join(f"{number:.2f}" for number in query))
print("it, after: ", "  ".join(f"{number:.2f}" for number in mixed))

# %% [markdown]
# *It* went in vague and comes out more of a thing, and alive: cat more than any other word, and a
# little of everything. That is all attention does. The rest of the book does it often, and at once.
#
# ## All words at once
#
# Stack the queries as rows of $Q$, the keys as rows of $K$, the values as rows of $V$. Then every
# pair of words is scored by one matrix product [[Vaswani et al., equation
# 1](../docs/references.md#vaswani-2017)]:
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\!\left(\frac{QK^\top}{\sqrt d}\right) V$$
#
# A comment such as `(n, m)` is the shape of what its line makes: n queries, m keys, width d. The
# build of this page checks each of them.


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


output, weights = attend(EMBEDDINGS, EMBEDDINGS, EMBEDDINGS)  # (n, d), (n, m)
torch.testing.assert_close(output[WORDS.index("it")], mixed)
display.attention_lines(weights, WORDS, WORDS.index("it"), name="it-looks")

# %% [markdown]
# Below are the words that look, above the words they look at; a thicker line is a larger weight.
# The orange lines are the row that you computed by hand, and the cell asserts that they are. Here
# are all the rows.

# %% jupyter={"source_hidden": true}
display.attention_map(weights, WORDS, WORDS, name="first-map")

# %% [markdown]
# Read it row by row: each row sums to one. *The* is all zeros, fits everything equally badly, and
# spreads its attention evenly. Many words find themselves; you change that below. First the
# promise from above.
#
# ## Why divide by √d
#
# A score adds up $d$ products. If the entries of query and key are independent, with mean 0 and
# variance 1, each product has variance 1 and the sum has variance $d$: its standard deviation
# grows as $\sqrt d$. Measure it, for 32 random queries over 16 random keys.


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
# Four times the width, twice the deviation. What does that do to the softmax? Its derivative says
# how weight $w_i$ reacts to score $s_j$: $\partial w_i / \partial s_j = w_i (\delta_{ij} - w_j)$,
# where $\delta_{ij}$ is 1 for $i = j$ and else 0. In training, the gradient of the weights is
# multiplied by this matrix on its way to the scores. Its **size**, the root of the sum of its squared
# entries, says how much gets through. Measure it for the median query.


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


print("         not divided              divided by √d")
print("   d    std   deriv.   max     std   deriv.   max")
for width in WIDTHS:
    plain, divided = measure(products(width)), measure(products(width) / math.sqrt(width))
    print(f"{width:4}", ("{:6.2f}{:9.3f}{:6.2f}  " * 2).format(*plain, *divided))

# %% [markdown]
# Undivided, one key takes nearly all the weight as $d$ grows, and for most queries the weights no
# longer react to the scores: no gradient comes back, and the head cannot learn to look elsewhere.
# The softmax is **saturated**. Divided by $\sqrt d$, all three numbers hardly move.
#
# Why the root? The figure holds the same products; dashed is what comes of not dividing. Where
# scripts run, you choose width and divisor:
#
# 1. Divide by *1* and move the width: the scores spread, one key wins, the derivative vanishes.
# 2. Divide by *√d* and move it again: nothing much happens. That is the point.
# 3. Divide by *d*: the derivative is fine, but every key gets nearly the same.

# %% jupyter={"source_hidden": true}
by_width = {width: products(width) for width in WIDTHS}
display.saturation(by_width, measure, name="why-root-d", width=64, query=10)

# %% [markdown]
# Divided by too little, the head cannot learn to choose otherwise; by too much, it hardly chooses.
# The root keeps the deviation near one at every width.
#
# ## Ask for something else than what you are
#
# So far a word finds words like itself. *Thirsty* finds *thirsty*. It should ask *who is alive
# here?* A matrix between the word and its query can do that: this $W_Q$ turns *state* into a
# wish for *alive*.

# %%
w_q = torch.zeros(4, 4)
w_q[3, 1] = 3.0  # state asks for alive

thirsty = WORDS.index("thirsty")
for name, query in (("itself", EMBEDDINGS), ("with W_Q", EMBEDDINGS @ w_q)):
    _, weights = attend(query, EMBEDDINGS, EMBEDDINGS)  # (n, d), (n, m)
    best = weights[thirsty].argmax()
    print(f"thirsty, {name}: looks at {WORDS[best]} ({weights[thirsty, best]:.2f})")

# %% [markdown]
# A head has four such matrices, all of them learned. e is the width of the words, d the width that
# the head works at:
#
# | matrix | shape | decides |
# |---|---|---|
# | $W_Q$ | `(e, d)` | what a word asks for |
# | $W_K$ | `(e, d)` | what a word can be found by |
# | $W_V$ | `(e, d)` | what a word hands over when it is found |
# | $W_O$ | `(d, e)` | where in the asking word that is written |
#
# Watch all four in a head of width 1. A *state* asks; words are found by how *alive* they are, and
# hand over how much of a *thing* they are, which is written under *thing*.

# %%
feature = torch.eye(4)                                   # (4, 4)
asks, found_by = 3 * feature[:, 3:4], feature[:, 1:2]    # (4, 1)
hands_over, written = feature[:, 0:1], feature[0:1]      # (4, 1), (1, 4)

for name, by in (("alive", found_by), ("thing", feature[:, 0:1])):
    caught, weights = attend(EMBEDDINGS @ asks, EMBEDDINGS @ by, EMBEDDINGS @ hands_over)
    show(WORDS, ["weight"], weights[thirsty][:, None])
    received = [round(number, 1) for number in (caught @ written)[thirsty].tolist()]
    print(f"found by {name}, thirsty receives {received}\n")

# %% [markdown]
# *Thirsty* finds *cat* and learns that whoever is thirsty is a thing. The second time only $W_K$
# differs, and *milk* fits as well as *cat*.
#
# With $X$ the words, one per row, $Q = XW_Q$, $K = XW_K$ and $V = XW_V$; when all three come from
# one $X$ this is **self-attention**. Queries may also come from other words: then it is
# **cross-attention**, n queries over m keys. One module does both.


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
            query: (n, e), the words that look.
            key: (m, e), the words looked at.
            value: (m, e), the same words, for what they hand over.
        """
        q = query @ self.w_q              # (n, e) x (e, d) -> (n, d)
        k = key @ self.w_k                # (m, e) x (e, d) -> (m, d)
        v = value @ self.w_v              # (m, e) x (e, d) -> (m, d)
        mixed, weights = attend(q, k, v)  # (n, d), (n, m)
        return mixed @ self.w_o, weights  # (n, d) x (d, e) -> (n, e), (n, m)


# %%
head = OneHead(embed_dim=4, head_dim=3)
print({name: tuple(matrix.shape) for name, matrix in head.named_parameters()})

for name, asking in (("self", EMBEDDINGS), ("cross", EMBEDDINGS[:2])):
    output, weights = head(asking, EMBEDDINGS, EMBEDDINGS)
    print(f"{name}-attention:", tuple(output.shape), "from weights", tuple(weights.shape))

# %% [markdown]
# > **Why not √e?** Where d is smaller than e, dividing by $\sqrt e$ is a tempting slip: it is the
# > width that one sees. But a score still adds up $d$ products.

# %%
for name, divisor in (("√32", math.sqrt(32)), ("√256", math.sqrt(256))):
    deviation, derivative, largest = measure(products(32) / divisor)
    print(f"d = 32, divided by {name}: deviation {deviation:.2f}, largest {largest:.2f}")
print(f"an even share of 16 keys: {1 / 16:.2f}")

# %% [markdown]
# Divided by the root of 256, the scores are too small, and the weights too even.
#
# ## What is in the matrices at the start?
#
# `torch.empty` reserves memory and writes nothing into it: you get what the last user left
# there. PyTorch can make that visible: in its deterministic mode it fills such memory with NaN.

# %%
torch.use_deterministic_algorithms(True)
print(OneHead(embed_dim=4, head_dim=3)(EMBEDDINGS, EMBEDDINGS, EMBEDDINGS)[0][thirsty])
torch.use_deterministic_algorithms(False)

# %% [markdown]
# So choose the numbers. A product with a random matrix should neither blow up nor shrink what
# goes through, forward as well as backward. Entries of variance $2 / (\text{rows} +
# \text{columns})$ do that for square matrices and are a compromise for others; they are named
# after Xavier Glorot [[Glorot and Bengio](../docs/references.md#glorot-2010)].


# %%
def xavier(module: nn.Module) -> nn.Module:
    """Initialise every matrix of ``module``, and return it."""
    for matrix in module.parameters():
        nn.init.xavier_uniform_(matrix)
    return module


head = xavier(OneHead(embed_dim=4, head_dim=3))
print(head(EMBEDDINGS, EMBEDDINGS, EMBEDDINGS)[0][thirsty])

# %% [markdown]
# Numbers again. Compare with two tempting choices, normal with a fixed deviation, at e = d = 512:

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
# Too large, and one of 64 keys takes everything before training has begun; too small, and every
# key gets the same. With Xavier's choice a query is as large as the word it was made from.
#
# ## The same as PyTorch
#
# Three lines of code are easily almost right, so compare them with two implementations that we
# did not write. Equal outputs are not enough: training runs on gradients, so these must agree,
# too. Here every size differs, so that a swapped axis cannot hide.


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
print(f"outputs agree up to {(ours - theirs).abs().max():.0e}; the gradients agree, too")

# %% [markdown]
# `torch.nn.MultiheadAttention` with one head is our module, with the matrices stored
# differently: $W_Q$, $W_K$ and $W_V$ stacked into one, and each transposed, since PyTorch's linear
# layers compute $xW^\top$. Give both the same numbers.

# %%
head = xavier(OneHead(embed_dim=d, head_dim=d).double())
torchs = nn.MultiheadAttention(embed_dim=d, num_heads=1, bias=False, dtype=torch.float64)
with torch.no_grad():
    torchs.in_proj_weight.copy_(torch.cat([head.w_q, head.w_k, head.w_v], dim=1).mT)
    torchs.out_proj.weight.copy_(head.w_o.mT)

x = torch.randn(m, d, dtype=torch.float64, requires_grad=True)  # (m, d)
(out, weights), (their_out, their_weights) = head(q, x, x), torchs(q, x, x)
torch.testing.assert_close((out, weights), (their_out, their_weights))

# %% [markdown]
# Outputs and weights agree. Now the gradients: of the inputs, and of all four matrices.

# %%
mine = gradients(out, [q, x, *head.parameters()])
packed = [torchs.in_proj_weight, torchs.out_proj.weight]
of_q, of_x, of_in_proj, of_out_proj = gradients(their_out, [q, x, *packed])
theirs = (of_q, of_x, *(part.mT for part in of_in_proj.chunk(3)), of_out_proj.mT)
torch.testing.assert_close(mine, theirs)
for name, gradient in zip(("query", "key and value", "w_q", "w_k", "w_v", "w_o"), mine):
    print(f"gradient of {name:>13}: {tuple(gradient.shape)}, equal")

# %% [markdown]
# ## Why attention replaced recurrence
#
# Before attention, sentences were read by recurrent networks: word by word, with a memory that
# each word updates. What the last word knows of the first went through every step in between.
# How strongly does the last output react to the first input? [[Bengio et
# al.](../docs/references.md#bengio-1994)] asked this of recurrent networks in 1994.


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
# Each step of this network passes on only a part of the signal, and the parts multiply. Attention
# has one step at any distance; its reaction falls only because more words share the weights. And no
# row waits for another: a query alone gets what it gets in company, so all can be computed at once.

# %%
in_company, _ = attend(EMBEDDINGS, EMBEDDINGS, EMBEDDINGS)  # (8, 4), (8, 8)
alone, _ = attend(EMBEDDINGS[5:6], EMBEDDINGS, EMBEDDINGS)  # (1, 4), (1, 8)
torch.testing.assert_close(alone[0], in_company[5])

shuffle = torch.tensor([5, 3, 0, 7, 1, 6, 2, 4])
shuffled = EMBEDDINGS[shuffle]                       # (8, 4)
moved, _ = attend(shuffled, shuffled, shuffled)      # (8, 4), (8, 8)
torch.testing.assert_close(moved, in_company[shuffle])
print("alone or in company, near or far: the same row")

# %% [markdown]
# The second half of that cell is a warning, too: shuffle the words and each keeps its result.
# Attention does not know the order of words; a later chapter gives it one.
#
# ## The mistake people make here
#
# > **Pitfall.** The softmax over the wrong axis. Both give an `(n, m)` matrix. But over the
# > queries, the keys no longer compete for a query: the queries compete for a key, and one word
# > has less than half of its attention to give, another almost twice.

# %%
scores = EMBEDDINGS @ EMBEDDINGS.mT / 2                # (8, 8)
right, wrong = scores.softmax(-1), scores.softmax(-2)  # (8, 8)
print("each query's weights add up to, right and wrong:")
show(WORDS, ["weight"], right.sum(-1)[:, None])
show(WORDS, ["weight"], wrong.sum(-1)[:, None])

# %% [markdown]
# Adding up the rows catches it.

# %% [markdown]
# ## Exercises
#
# Write your lines into the first cell, run it, then the next: it says whether you are right, and
# if not, why. Hints are folded below it. The solution comes last.
#
# ### Attention from memory
#
# *Easy, 5 minutes.* Close the page above and write attention: `query` is `(n, d)`, `key` is
# `(m, d)`, `value` is `(m, d_v)`. Return the output alone, `(n, d_v)`.


# %% tags=["exercise"]
def my_attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Mix the rows of ``value``, for each query with its own weights."""
    return None  # your lines here


# %%
from annotated_attention import exercises

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
# The scores are `(n, m)`. A score adds up d products: which argument's width do you divide by the
# root of?
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
# ### What state are you in?
#
# *Medium, 10 minutes.* With the $W_Q$ above, *thirsty* asks who is alive and finds *cat*, and *it*
# asks for nothing. Add to the matrix, so that *it* gives more than half of its attention to
# *thirsty*, and *thirsty* still gives more than half of its own to *cat*. A row is a feature that
# the word has, a column one that it asks for; both go thing, alive, deed, state.

# %% tags=["exercise"]
my_w_q = torch.zeros(4, 4)
my_w_q[3, 1] = 3.0  # state asks for alive, as above
# your lines here

# %%
exercises.one_head.check_w_q(my_w_q)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# *It* is `(1, 1, 0, 0)`, *thirsty* is `(0, 1, 0, 2)`. What has *thirsty* most of? *It* has to ask
# for that.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# *It* is a thing and alive, and either could ask. *Thirsty* is alive, too: then it would ask for
# the same.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# One more number is enough: in the row of *thing* and the column of *state*.
#
# </details>

# %% tags=["solution"] jupyter={"source_hidden": true}
my_w_q = torch.zeros(4, 4)  # (4, 4)
my_w_q[3, 1] = 3.0  # state asks for alive
my_w_q[0, 3] = 3.0  # a thing asks for state; thirsty is no thing, so it goes on as before

exercises.one_head.check_w_q(my_w_q)

# %% [markdown]
# ## What you have now
#
# Attention scores each query against each key, divides by $\sqrt d$, turns scores into shares and
# mixes the values by them. It reaches any distance in one step. Three matrices decide what is
# asked, what it is found by and what is handed over; a fourth decides where that is written.
#
# But one head has one set of weights. *It* cannot look at *cat* to learn who and at *thirsty* to
# learn what about it, without blending the two. [The next chapter](02_two_heads.ipynb) gives it a
# second head.
