# %% [markdown]
# # Two heads
#
# *How can a word look at two things at once, and keep them apart?*
#
# *14 minutes and 2 of exercises. Afterwards you can say what one head mixes, and write any
# number of heads as a list.*
#
# > the **warm** cat drank **cold** milk
#
# > the **cold** cat drank **warm** milk
#
# The words are the same, and you know at once what is warm in each sentence. Suppose that an earlier
# head has already added each adjective to its noun. Now *drank* wants to know two things: how warm
# the drinker is, and how warm the drink is. It sends out one head, with one glass. The head visits
# *cat* and *milk*, and each pours in what it has. What comes home in the glass?

# %% tags=["hide-input"]
import torch
from torch import Tensor, nn

from annotated_book import chapters, display

one = chapters.load("01_one_head")

# %% [markdown]
# ## Into one glass
#
# Take *the cat drank milk*, with the adjectives already added. The fourth feature is called *warmth*
# here: 2 is warm, and −2 is cold. `scene(2, -2)` is the first sentence, a warm cat and cold milk.

# %% tags=["fold-input"]
CLAUSE = ["the", "cat", "drank", "milk"]
FEATURES = ["animal", "food", "action", "warmth"]


def scene(warm_cat: float, warm_milk: float) -> Tensor:
    """Give the features of the four words, with this warmth of cat and milk."""
    x = one.embed(CLAUSE)                                    # (4, 4)
    x[:, 3] = torch.tensor([0.0, warm_cat, 0.0, warm_milk])  # (4,)
    return x


display.show(scene(2, -2), CLAUSE, FEATURES, decimals=0)

# %% [markdown]
# Give *drank* a head of width 1, whose matrices are columns that pick a feature: words with *action*
# ask, words are found by *animal* or *food*, and they hand over their *warmth*. Let it read both
# sentences, and a third one in which nothing is warm or cold.

# %%
animal, food, action, warmth = torch.eye(4).split(1, dim=1)  # (4, 1), one picks animal, ...
drank, rows = CLAUSE.index("drank"), []
for x in (scene(2, -2), scene(-2, 2), scene(0, 0)):
    found, weights = one.attend(x @ action, x @ (animal + food), x @ warmth)
    rows.append(torch.cat([weights[drank], found[drank]]))
names = ["warm cat", "warm milk", "neither"]
display.show(torch.stack(rows), names, [*CLAUSE, "collected"], heat=CLAUSE)

# %% [markdown]
# Three times 0.00. *Drank* gives half of its attention to *cat* and half to *milk*, and half of 2 and
# half of −2 cancel. Warm and cold, poured into one glass, are lukewarm: of a warm cat and cold milk
# *drank* has learned that nothing here has a temperature.
#
# Is the glass too small? Let each word pour in all four of its features, so that *cat* and *milk* also
# say who is speaking.

# %%
rows = []
for x in (scene(2, -2), scene(-2, 2)):
    rows.append(one.attend(x @ action, x @ (animal + food), x)[0][drank])
display.show(torch.stack(rows), ["warm cat", "warm milk"], FEATURES)

# %% [markdown]
# Two equal rows. In the last chapter one head did tell two sentences apart; but there *thirsty* holds
# an animal and *sweet* a food. Here both sentences hold the same, and only the owners differ. An
# average keeps the features and forgets their owners.
#
# No larger glass will help. Let $w$ be the row of weights for *drank*, the same in both sentences:
#
# $$w\,(X W_V)\,W_O = (w X)\,W_V W_O$$
#
# On the right the words are averaged first, and the matrices see nothing but the average. What has
# been poured together stays together, whatever $W_V$ and $W_O$ are.
#
# ## Lean towards the cat
#
# But who says that it must be halves? Let the head lean: three quarters from the cat, one quarter from
# the milk. Then the two sentences give 1 and −1. Is that the solution?

# %%
share = torch.tensor([0.75, 0.25])  # of the cat, of the milk
scenes = {"warm cat": (2.0, -2.0), "warm milk": (-2.0, 2.0), "hot milk": (0.0, 4.0)}
numbers = torch.tensor([*scenes.values()])  # (3, 2)
collected = numbers @ share                 # (3, 2) x (2,) -> (3,)
table = torch.cat([numbers, collected[:, None]], 1)
display.show(table, [*scenes], ["cat", "milk", "collected"])

# %% [markdown]
# For these two, yes. But look at the third: a cat that is neither, beside hot milk, brings home the same
# 1.00 as the warm cat with its cold milk. In the figure every point is a scene. Drag a point along its
# line: both warmths change, and the number does not. Change the share, and the line only turns. Then
# call in the second head.

# %% tags=["hide-input"]
confused = {name: scenes[name] for name in ("warm cat", "hot milk")}
display.lukewarm(confused, 0.75, ["cat", "milk"], name="lukewarm")

# %% [markdown]
# One number cannot hold two unknowns. One head knows on which line a scene lies, but not where on the
# line. A second head that leans otherwise has another line, and two lines cross in one point. (Give
# both the share 0.5, and the lines lie on each other: two heads that look alike are one.)
#
# ## A head that cheats
#
# All this holds as long as the weights are the same for all scenes. They need not be. Let the *keys*
# hold a quarter of the warmth. Then a warm word is easier to find, and how much comes from whom
# depends on the scene. This head hands over all four features:

# %%
rows = []
for cat, milk in scenes.values():
    x = scene(cat, milk)                       # (4, 4)
    key = x @ (animal + food + 0.25 * warmth)  # (4, 1)
    rows.append(one.attend(x @ action, key, x)[0][drank])
display.show(torch.stack(rows), [*scenes], FEATURES)

# %% [markdown]
# Three scenes, three different rows. So it is false that one head cannot do it: from each row both
# warmths can be computed. But it takes a logarithm, because the warmth has gone through the
# exponential of the softmax, and what follows a head is a matrix, which only multiplies and adds. Can
# training find a cheat that a matrix can read? You will see, as soon as there is something to train.

# %% tags=["proof"]
for cat, milk in torch.cartesian_prod(*[torch.arange(-2.0, 3)] * 2).tolist():
    x = scene(cat, milk).double()  # (4, 4)
    weigh = [z.double() for z in (action, animal + food + 0.25 * warmth)]
    row = one.attend(x @ weigh[0], x @ weigh[1], x)[0][drank]
    w_cat, w_milk = row[:2] / 3  # each word hands over 3 of its own kind
    warmer = 2 * (w_cat / w_milk).log()  # scores differ by half of the difference
    of_cat = (row[3] + w_milk * warmer) / (w_cat + w_milk)
    expected = torch.tensor([cat, milk]).double()
    torch.testing.assert_close(torch.stack([of_cat, of_cat - warmer]), expected)
print("✓ In 25 scenes both warmths can be computed from the row, by a logarithm.")

# %% [markdown]
# ## Two glasses
#
# Two heads need no cheat. One looks at the animal, the other at the food:
#
# | head | who asks | found by | handed over | written under |
# |---|---|---|---|---|
# | head 1 | *action* | *animal* | *warmth* | *animal* |
# | head 2 | *action* | *food* | *warmth* | *food* |
#
# The first three columns are each head's $W_Q$, $W_K$ and $W_V$. What *drank* collects from the two
# is put side by side, which is called **concatenation**. The last column is one more matrix for
# both, $W_O$: its first row belongs to head 1, its second to head 2.

# %%
w_o = torch.cat([animal, food], 1).mT  # (2, 4)
rows = []
for x in (scene(2, -2), scene(-2, 2)):
    mixed = [one.attend(x @ action, x @ key, x @ warmth)[0] for key in (animal, food)]
    rows.append((torch.cat(mixed, 1) @ w_o)[drank])
display.show(torch.stack(rows), ["warm cat", "warm milk"], FEATURES)

# %% [markdown]
# *Drank* receives the cat's warmth under *animal* and the milk's under *food*. (A little attention
# goes to the other words, hence 1.98.) For h heads and the words $X$ [[Vaswani et al.,
# section 3.2.2](../docs/references.md#vaswani-2017)], where each head has three matrices of its own:
#
# $$\mathrm{MultiHead}(X) = \mathrm{Concat}(H_1, \ldots, H_h)\, W_O$$
#
# $$H_i = \mathrm{Attention}(X W_Q^i,\; X W_K^i,\; X W_V^i)$$

# %% [markdown] name="two-questions-at-once"
# ## Two questions at once
#
# Back to *it*; the fourth feature is *quality* again. Head 1 is the head of the last chapter: is
# something said about an animal? Its *no* leaves open whether something is said about a food, or
# nothing at all. So head 2 asks the same about food: it is head 1 with animal and food exchanged.

# %%
SWAP = [1, 0, 2, 3]  # animal and food change places
HEADS = [(one.W_Q, one.W_K, one.W_V), (one.W_Q, one.W_K[SWAP], one.W_V[SWAP])]
W_O = torch.cat([one.W_O, one.W_O[:, SWAP]])  # (h * d, e), under animal, under food


def two_heads(x: Tensor) -> tuple[Tensor, Tensor]:
    """Run one head after the other, and put what they collect side by side."""
    heads = [one.attend(x @ w_q, x @ w_k, x @ w_v) for w_q, w_k, w_v in HEADS]
    merged = torch.cat([mixed for mixed, _ in heads], -1)     # (n, h * d)
    weights = torch.stack([weights for _, weights in heads])  # (h, n, n)
    return merged @ W_O, weights                              # (n, e), (h, n, n)


# %% tags=["hide-input"]
found_by = torch.cat([one.W_K, one.W_K[SWAP]], 1)  # (e, h * d), head 1, head 2
parts = ["head 1: whom", "what", "head 2: whom", "what"]
display.show(found_by, one.FEATURES, parts, title="W_K of the two heads", decimals=0)

# %% [markdown]
# With *thirsty* as the last word, head 1 divides its attention between two words, and head 2 looks
# at one. Now replace *thirsty* with *sweet*. Which head looks at two words then?

# %% tags=["hide-input"]
it = one.WORDS.index("it")
weights, others = (two_heads(x)[1] for x in (one.EMBEDDINGS, one.SWEET_EMBEDDINGS))
display.looks([(one.WORDS, weights), (one.SWEET, others)], it, name="two-heads-at-work")

# %% [markdown]
# They trade roles. In the first sentence head 1 finds *cat* and *thirsty*, and head 2 finds only *milk*,
# 0.80, which has no quality to hand over. In the second it is the other way round. Here is what *it*
# receives, the third time without the last word, so that nothing is said yet.

# %%
sentences = one.EMBEDDINGS, one.SWEET_EMBEDDINGS, one.EMBEDDINGS[:-1]
rows = torch.stack([two_heads(x)[0][it] for x in sentences])  # (3, 4)
display.show(rows, ["it, thirsty", "it, sweet", "it, no last word"], one.FEATURES)

# %% [markdown]
# Read the column *animal* alone: head 1 says *no* to *sweet* with 0.19, and to nothing at all with 0.10
# (the quality of *it* itself). Who has only this column can hardly tell the two apart. Under *food* the
# same two sentences are 0.97 and 0.10. Each head's weights add up to one on their own, so the heads do
# not compete, and a Transformer adds both answers to *it*.
#
# ## A list of heads
#
# What do eight heads cost, eight times as much as one? Give a head a class of its own: `OneHead`
# without $W_O$, of which each head owns d rows. Its matrices start from random numbers, as Xavier Glorot
# proposed [[Glorot and Bengio](../docs/references.md#glorot-2010)].


# %%
class Head(nn.Module):
    """One of several heads: it projects in, attends, and stops before W_O."""

    def __init__(self, embed_dim: int, head_dim: int) -> None:
        super().__init__()
        matrices = [nn.Parameter(torch.empty(embed_dim, head_dim)) for _ in range(3)]
        self.w_q, self.w_k, self.w_v = map(nn.init.xavier_uniform_, matrices)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from each query to every key."""
        q, k = query @ self.w_q, key @ self.w_k    # (n, d), (m, d)
        return one.attend(q, k, value @ self.w_v)  # (n, d), (n, m)


# %% [markdown]
# Put h of them into a list; `forward` runs them one after the other. Each works at the width
# $d = e / h$, so that the results side by side are as wide as the model again.


# %%
class Heads(nn.Module):
    """Several heads, one after the other."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(f"num_heads ({num_heads}) must divide embed_dim ({embed_dim})")
        heads = [Head(embed_dim, embed_dim // num_heads) for _ in range(num_heads)]
        self.heads = nn.ModuleList(heads)
        self.w_o = nn.Parameter(nn.init.xavier_uniform_(torch.empty(embed_dim, embed_dim)))

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from each query to every key."""
        heads = [head(query, key, value) for head in self.heads]
        merged = torch.cat([mixed for mixed, _ in heads], -1)     # (n, h * d)
        weights = torch.stack([weights for _, weights in heads])  # (h, n, m)
        return merged @ self.w_o, weights                         # (n, e), (h, n, m)


# %% tags=["fold-input"]
counts = {}
for h in (1, 2, 8):
    sizes = [matrix.numel() for matrix in Heads(embed_dim=32, num_heads=h).parameters()]
    counts[f"h = {h}"] = len(sizes), sum(sizes)
display.show(counts, columns=["matrices", "numbers"])

# %% [markdown]
# No: eight heads have exactly as many numbers as one. More heads means narrower heads: $3e^2$
# numbers for all of them, whatever h is, and $e^2$ for $W_O$. What grows is the number of matrices,
# $3h + 1$, and of products that run one after the other, $5h + 1$: per head three to project in,
# one for the scores and one to mix, then $W_O$. Each costs time to start.

# %% tags=["proof"]
pair, x = Heads(embed_dim=4, num_heads=2), one.EMBEDDINGS
pair.w_o.data = W_O
for head, matrices in zip(pair.heads, HEADS):
    for parameter, matrix in zip(head.parameters(), matrices):
        parameter.data = matrix
torch.testing.assert_close(pair(x, x, x), two_heads(x))
print("✓ With the matrices of the pair, the list returns what two_heads returned.")

# %% tags=["proof"]
queries = torch.randn(3, 8, dtype=torch.float64, requires_grad=True)  # (3, 8)
words = torch.randn(5, 8, dtype=torch.float64, requires_grad=True)    # (5, 8)
listed = Heads(embed_dim=8, num_heads=4).double()
w_o, *into = listed.parameters()  # the module's own matrix comes before its heads'
ours, our_weights = listed(queries, words, words)  # (3, 8), (4, 3, 5)
mine = one.gradients(ours, [queries, words, w_o, *into])
parts = [one.OneHead(embed_dim=8, head_dim=2).double() for _ in range(4)]
for head, part, rows in zip(listed.heads, parts, w_o.chunk(4)):
    for target, matrix in zip(part.parameters(), (*head.parameters(), rows)):
        target.data = matrix.detach().clone()
outs, maps = zip(*(part(queries, words, words) for part in parts))
torch.testing.assert_close((ours, our_weights), (sum(outs), torch.stack(maps)))
learned = [matrix for part in parts for matrix in part.parameters()]
of_queries, of_words, *found = one.gradients(sum(outs), [queries, words, *learned])
of_heads = [matrix for i, matrix in enumerate(found) if i % 4 != 3]
torch.testing.assert_close(mine, (of_queries, of_words, torch.cat(found[3::4]), *of_heads))
print("✓ Several heads are single heads, added up: output, weights, gradients.")

# %% [markdown]
# ## Which would you rather train?
#
# So far the scenes had matrices set by hand. Now training shall find them, from 25 scenes, both warmths
# from −2 to 2: *drank* is to receive the cat's under *animal* and the milk's under *food*. One head of
# width 4 runs against two of width 2, the same 64 numbers. Each runs once with keys that do not see the
# warmth, so that the weights are the same in all scenes, and once with keys that do.
#
# Always answering 0 would be off by 1.41 (root mean square). How far does each get in 300 steps?

# %% tags=["fold-input"]
GRID = torch.cartesian_prod(*[torch.arange(-2.0, 3)] * 2)       # (25, 2)
ALL_25 = torch.stack([scene(*both) for both in GRID.tolist()])  # (25, 4, 4)


def off_by(num_heads: int, keys: Tensor) -> Tensor:
    """Train three modules at once, and say how far off the two warmths remain with each."""
    modules = []
    for seed in range(3):
        torch.manual_seed(seed)
        modules.append(Heads(4, num_heads))
    learned, _ = torch.func.stack_module_state(modules)  # each matrix three times

    def told(matrices: dict[str, Tensor], x: Tensor, key: Tensor) -> Tensor:
        output = torch.func.functional_call(modules[0], matrices, (x, key, x))[0]  # (4, 4)
        return output[CLAUSE.index("drank"), :2]

    everywhere = torch.vmap(torch.vmap(told, (None, 0, 0)), (0, None, None))
    optimizer = torch.optim.Adam(learned.values(), lr=0.02)
    for _ in range(300):
        loss = (everywhere(learned, ALL_25, keys) - GRID).square().mean((1, 2))  # (3,)
        optimizer.zero_grad()
        loss.sum().backward()
        optimizer.step()
    return loss.sqrt().detach()


table = {"always 0": [GRID.square().mean().sqrt()] * 3}
blind = ALL_25 * torch.tensor([1.0, 1, 1, 0])  # (25, 4, 4)
for h, name in ((1, "one head"), (2, "two heads")):
    for keys, see in ((blind, "keys without warmth"), (ALL_25, "keys with warmth")):
        table[f"{name}, {see}"] = [*off_by(h, keys)]
display.show(table, columns=["seed 0", "seed 1", "seed 2"], title="Off by")

# %% [markdown]
# With keys that see no warmth, one head ends at 1.00, whatever the seed, and more steps do not help:
# however it leans, it keeps one of two unknowns, so exactly half of the variance is lost. The next row
# is the cheat. Nobody has told this head of it, but below 1.00 it can only come with weights that
# depend on the scene. It hints well, and better the longer it trains. Two heads need no hints: their
# keys see no warmth at all, and they read both warmths to the second decimal.
#
# ## The mistake people make here
#
# Why `nn.ModuleList`, when a Python list holds the same heads? Exchange it for one, and count what an
# optimiser would train and what a checkpoint would hold.

# %%
right, plain = (Heads(embed_dim=8, num_heads=4) for _ in range(2))
heads = [*plain.heads]
del plain.heads
plain.heads = heads  # the same heads, in a Python list
counts = {}
for name, model in (("nn.ModuleList", right), ("a Python list", plain)):
    trained = sum(matrix.numel() for matrix in model.parameters())
    counts[name] = trained, len(model.state_dict())
display.show(counts, columns=["numbers trained", "matrices saved"])

# %% [markdown]
# > **Pitfall.** `self.heads = heads`, a plain Python list. Every output has the right shape, and 64 of
# > 256 numbers are trained: a module does not look into such a list. Its heads are neither trained
# > nor saved, and they stay behind when the module moves to another dtype or device.
#
# ## Exercises
#
# ### Add up the heads
#
# *Easy, 2 minutes.* Concatenating the heads and multiplying by $W_O$ can be done head by head.
# `mixed` is a list of h tensors `(n, d)`, one per head; `w_o` is `(h * d, e)`. The first line cuts
# `w_o` into a block of d rows for each head. Compute `torch.cat(mixed, dim=-1) @ w_o`, `(n, e)`,
# without concatenating.


# %% tags=["exercise"]
def add_up(mixed: list[Tensor], w_o: Tensor) -> Tensor:
    """Add up what each head contributes to the output."""
    blocks = w_o.split(mixed[0].size(-1))  # (d, e)
    return blocks  # change this line


# %%
from annotated_book import exercises

exercises.two_heads.check_add_up(add_up)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Row i of $W_O$ meets feature i of the concatenation. Which rows do the features of the first head
# meet?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# $[A\;B]\begin{bmatrix}C\\D\end{bmatrix} = AC + BD$. Each head has d rows of its own.
#
# </details>


# %% tags=["solution"]
def add_up(mixed: list[Tensor], w_o: Tensor) -> Tensor:
    """Add up what each head contributes to the output.

    Args:
        mixed: (n, d) for each of the h heads.
        w_o: (h * d, e), a block of d rows per head.
    """
    blocks = w_o.split(mixed[0].size(-1))                         # (d, e)
    return sum(own @ block for own, block in zip(mixed, blocks))  # (n, e)


exercises.two_heads.check_add_up.folded(add_up)

# %% [markdown]
# ## What you have now
#
# > **In short.** A head has one row of weights per query, so it brings home one average: two answers
# > in one glass. Several heads attend independently of each other, each with narrow matrices of its
# > own; their results are concatenated, and $W_O$ writes them where they can be read.
# >
# > $$\mathrm{MultiHead}(X) = \mathrm{Concat}(H_1, \ldots, H_h)\, W_O$$
# >
# > $$H_i = \mathrm{Attention}(X W_Q^i,\; X W_K^i,\; X W_V^i)$$
# >
# > Each of the h heads has $W_Q^i$, $W_K^i$, $W_V^i$ of `(e, d)` with `d = e / h`; $W_O$ is
# > `(h * d, e)`; weights `(h, n, m)`; output `(n, e)`.
# >
# > ```python
# > mixed = [head(x, x, x)[0] for head in heads]
# > output = torch.cat(mixed, -1) @ w_o
# > ```
# >
# > The number of parameters, $4e^2$, does not depend on h. The heads belong in an `nn.ModuleList`.
#
# So in parameters a second glass costs no water, only the washing up. (Each head has weights of its own,
# `(n, m)`, and those do cost memory and time.) A list of h heads takes $3h + 1$ matrices
# and $5h + 1$ products. [The next chapter](03_split_and_stack.ipynb) gets the same numbers with
# four matrices and six products.
