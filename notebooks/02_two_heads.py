# %% [markdown]
# # Two heads
#
# *How can a word look at two things at once, and keep them apart?*
#
# *10 minutes and 4 of exercises. Afterwards you can say what one head mixes, and write any
# number of heads as a list.*
#
# > the **warm** cat drank **cold** milk
#
# > the **cold** cat drank **warm** milk
#
# The words are the same, and you know at once what is warm in each sentence. Suppose that an earlier
# head has already added each adjective to its noun. Now *drank* wants to know how warm the drinker is, and how warm
# the drink. It sends out one head, with one glass. The head visits *cat* and *milk*, and each pours in what it has.
# What comes home in the glass?

# %% tags=["fold-input"]
import json
from importlib import resources

import torch
from torch import Tensor, nn

from annotated_book import chapters, display

one = chapters.load("01_one_head")

# %% [markdown]
# ## Into one glass
#
# Take *the cat drank milk*, with the adjectives already added. The fourth feature is *warmth* here: 2 is warm, −2 is
# cold. `scene(2, -2)` is the first sentence, a warm cat and cold milk.

# %% tags=["fold-input"]
CLAUSE = ["the", "cat", "drank", "milk"]
FEATURES = ["animal", "food", "action", "warmth"]


def scene(warm_cat: float, warm_milk: float) -> Tensor:
    """Give the features of the four words, with this warmth of cat and milk."""
    x = one.embed(CLAUSE)                                    # (4, 4)
    x[:, 3] = torch.tensor([0.0, warm_cat, 0.0, warm_milk])  # (4,)
    return x


GRID = torch.cartesian_prod(*[torch.arange(-2.0, 3)] * 2)       # (25, 2), for later
ALL_25 = torch.stack([scene(*both) for both in GRID.tolist()])  # (25, 4, 4)
display.show(scene(2, -2), CLAUSE, FEATURES, decimals=0)

# %% [markdown]
# Give *drank* a head of width 1, so that each of its matrices is a single column, which picks features:
#
# | asks, $W_Q$ | found by, $W_K$ | gives, $W_V$ |
# |---|---|---|
# | *action* | *animal* + *food* | *warmth* |
#
# Let it read both sentences, and a third in which nothing is warm or cold. What the head brings home stands in the last
# column.

# %%
picks = torch.eye(4)  # the columns 1 0 0 0, 0 1 0 0, and so on
animal, food, action, warmth = picks.split(1, dim=1)  # (4, 1), one column each
drank, rows = CLAUSE.index("drank"), []
for x in (scene(2, -2), scene(-2, 2), scene(0, 0)):
    found, weights = one.attend(x @ action, x @ (animal + food), x @ warmth)
    rows.append(torch.cat([weights[drank], found[drank]]))
names = ["warm cat", "warm milk", "neither"]
display.show(torch.stack(rows), names, [*CLAUSE, "mixed"], heat=CLAUSE)

# %% [markdown]
# Three times 0.00. *Drank* looks at *cat* and at *milk* alike, 0.50 each, so 2 and −2 cancel. Warm and
# cold, poured into one glass, are lukewarm: *drank* has learned that nothing here has a temperature.
#
# ## Lean towards the cat
#
# But who says that it must be halves? Let the head lean: three quarters from the cat, one quarter from
# the milk. And take a larger glass: let each word pour in all four of its features. Do three scenes bring home three
# different rows?

# %%
lean = torch.tensor([0.0, 0.75, 0.0, 0.25])  # the weights of drank, one per word
scenes = {"warm cat": (2.0, -2.0), "warm milk": (-2.0, 2.0), "hot milk": (0.0, 4.0)}
rows = [lean @ scene(cat, milk) for cat, milk in scenes.values()]  # (4,)
display.show(torch.stack(rows), [*scenes], FEATURES)

# %% [markdown]
# The first two do: 1.00 and −1.00. But the third, a cat that is neither warm nor cold, beside hot milk, brings home the
# same row as the first. Three of a row's four numbers are the same in every scene, so one number is left for two unknowns.
#
# In the figure every point is a scene. Drag the point: it keeps to its line, both warmths change, and the number that
# comes home does not. Change the share, and *hot milk* falls off the line; but other scenes lie on it now. Then call in
# a second head, with the shares exchanged, and try to drag once more.

# %% tags=["hide-input"]
confused = {name: scenes[name] for name in ("warm cat", "hot milk")}
display.lukewarm(confused, 0.75, ["cat", "milk"], name="lukewarm")

# %% [markdown]
# One number cannot hold two unknowns. One head knows on which line a scene lies, but not where on the
# line. The second head has another line, and two lines cross in one point. (At a share of 0.5<!-- setting -->
# they lie on each other: two heads that look alike are one.)
#
# Could other values help the one head? It brings home $w$ times the values, where $w$ is the row of weights for
# *drank*. Move the brackets:
#
# $$w\,(X W_V) = (w X)\,W_V$$
#
# On the left, each word is first turned into what it gives, and then these are poured together. On the right, the words
# themselves are poured together first, and $W_V$ is given the mix. Both sides are equal, so look at the right. There
# *warm cat* and *hot milk* are one and the same mix, as the table shows; in its last column,
#
# $$\tfrac34 \cdot 2 + \tfrac14 \cdot (-2) = 1 = \tfrac34 \cdot 0 + \tfrac14 \cdot 4.$$
#
# Choose any $W_V$ you like: it only ever sees that mix. So does everything after it, as long as $w$ is the same in
# all scenes. (Where the weights move with the warmth, one head can come close on a
# [detour](#cell-id=a-head-that-cheats).)

# %% tags=["proof"]
for _ in range(100):
    w_v = torch.randn(4, 4)  # (e, d)
    warm, hot = (lean @ (scene(*scenes[name]) @ w_v) for name in ("warm cat", "hot milk"))
    torch.testing.assert_close(warm, hot)
print("✓ With a hundred random W_V, warm cat and hot milk still bring home the same.")

# %% [markdown]
# ## Two glasses
#
# Take two heads. One looks at the animal, the other at the food:
#
# | | asks, $W_Q$ | found by, $W_K$ | gives, $W_V$ | under, $W_O$ |
# |---|---|---|---|---|
# | head 1 | *action* | *animal* | *warmth* | *animal* |
# | head 2 | *action* | *food* | *warmth* | *food* |
#
# What *drank* collects from the two is put side by side, which is called **concatenation**. $W_O$ is
# one matrix for both: its first row belongs to head 1, its second to head 2.

# %% tags=["fold-input"]
w_o = torch.cat([animal, food], 1).mT  # (2, 4)
merged = []
for x in (scene(2, -2), scene(-2, 2)):
    mixed = [one.attend(x @ action, x @ key, x @ warmth)[0] for key in (animal, food)]
    side = torch.cat(mixed, 1)[drank]  # (h * d,)
    merged.append(side)

# %% tags=["hide-input"]
captions = "the warm cat drank cold milk", "the cold cat drank warm milk"
display.beside(
    *(
        display.side_by_side(each, w_o, FEATURES, name=f"side-by-side-{i}", caption=caption)
        for i, (each, caption) in enumerate(zip(merged, captions), 1)
    )
)

# %% [markdown]
# *Drank* receives the cat's warmth under *animal* and the milk's under *food*; what the heads add is summed. (A little
# attention goes to the other words, hence 1.98.)
#
# That is what a second head is for: two answers about one feature, from two words. Each head has three matrices of its
# own. In self-attention, for h heads and the words $X$
# [[Vaswani et al., section 3.2.2](../docs/references.md#vaswani-2017)]:
#
# $$\mathrm{MultiHead}(X) = \mathrm{Concat}(H_1, \ldots, H_h)\, W_O$$
#
# $$H_i = \mathrm{Attention}(X W_Q^i,\; X W_K^i,\; X W_V^i)$$

# %% [markdown] name="two-questions-at-once"
# ## Two heads for the word *it*
#
# The head of the last chapter asks whether something is said about an animal. Its *no* leaves open whether anything is
# said about a food. So give *it* a second head: the first, with animal and food exchanged.
#
# | | asks, $W_Q$ | found by, $W_K$ | gives, $W_V$ | under, $W_O$ |
# |---|---|---|---|---|
# | head 1 | *quality*, with 2 and 1 | *animal* and *quality* | *quality* | *animal* |
# | head 2 | *quality*, with 2 and 1 | *food* and *quality* | *quality* | *food* |

# %% tags=["fold-input"]
SWAP = [1, 0, 2, 3]  # animal and food change places
HEADS = [(one.W_Q, one.W_K, one.W_V), (one.W_Q, one.W_K[SWAP], one.W_V)]
W_O = torch.cat([one.W_O, one.W_O[:, SWAP]])  # (h * d, e), under animal, under food


# %%
def two_heads(x: Tensor) -> tuple[Tensor, Tensor]:
    """Run one head after the other, and put what they collect side by side."""
    heads = [one.attend(x @ w_q, x @ w_k, x @ w_v) for w_q, w_k, w_v in HEADS]
    merged = torch.cat([mixed for mixed, _ in heads], -1)     # (n, h * d)
    weights = torch.stack([weights for _, weights in heads])  # (h, n, n)
    return merged @ W_O, weights                              # (n, e), (h, n, n)


# %% [markdown]
# With *thirsty* as the last word, head 1 looks mostly at two words, and head 2 mostly at one. Which head looks at two
# words when the last word is *sweet*?

# %% tags=["hide-input"]
it = one.WORDS.index("it")
weights, others = (two_heads(x)[1] for x in (one.EMBEDDINGS, one.SWEET_EMBEDDINGS))
display.looks([(one.WORDS, weights), (one.SWEET, others)], it, name="two-heads-at-work")

# %% [markdown]
# They trade roles. With *thirsty*, the thickest line, 0.80, is that of head 2 to *milk*. Is that where *it* receives
# most? (The last chapter's line between *no* and *yes* is 3/8.)

# %%
sentences = one.EMBEDDINGS, one.SWEET_EMBEDDINGS
rows = torch.stack([two_heads(x)[0][it] for x in sentences])  # (2, 4)
display.show(rows, ["it, thirsty", "it, sweet"], one.FEATURES)

# %% [markdown]
# No, least: 0.19 under food, a clear *no*, because *milk* has no quality to hand over. The animal head, which looks at
# two words by halves, brings home 0.97, a *yes*. With *sweet* it is the other way round: two questions, two glasses, and neither answer waters down
# the other. (Each head's weights add up to one on their own.)

# %% [markdown]
# ## A list of heads
#
# What do eight heads cost, eight times as much as one? Each is a small module that takes the words and returns
# what it has collected. All heads share one $W_O$, so no head holds it.


# %%
def draw_matrix(rows: int, columns: int) -> nn.Parameter:
    """Draw a matrix that is to be learned."""
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(rows, columns)))


class Head(nn.Module):
    """One of several heads: it projects in, attends, and stops before W_O."""

    def __init__(self, embed_dim: int, head_dim: int) -> None:
        super().__init__()
        self.w_q = draw_matrix(embed_dim, head_dim)
        self.w_k = draw_matrix(embed_dim, head_dim)
        self.w_v = draw_matrix(embed_dim, head_dim)

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
        self.w_o = draw_matrix(embed_dim, embed_dim)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from each query to every key."""
        heads = [head(query, key, value) for head in self.heads]
        merged = torch.cat([mixed for mixed, _ in heads], -1)     # (n, h * d)
        weights = torch.stack([weights for _, weights in heads])  # (h, n, m)
        return merged @ self.w_o, weights                         # (n, e), (h, n, m)


# %% tags=["fold-input"]
counts = {}
for h in (1, 2, 8):
    model = Heads(embed_dim=32, num_heads=h)
    sizes = [matrix.numel() for matrix in model.parameters()]
    counts[f"h = {h}"] = model.heads[0].w_q.size(1), len(sizes), sum(sizes)
display.show(counts, columns=["width of a head", "matrices", "numbers"])

# %% [markdown]
# Eight heads have exactly as many numbers as one: $3e^2$ for all of them, whatever h is, and $e^2$ for $W_O$. They
# pay with their width. One of eight compares words by 4 numbers and brings home 4, where the single head has 32 of
# each. What grows is the number of matrices, $3h + 1$, and with it the products that run one after the other.

# %% tags=["proof"]
pair, x = Heads(embed_dim=4, num_heads=2), one.EMBEDDINGS
pair.w_o.data = W_O
for head, matrices in zip(pair.heads, HEADS):
    for parameter, matrix in zip(head.parameters(), matrices):
        parameter.data = matrix
torch.testing.assert_close(pair(x, x, x), two_heads(x))
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
print("✓ The list returns what two_heads returned, and is single heads, added up.")

# %% [markdown]
# Why `nn.ModuleList`, when a Python list holds the same heads? Exchange it for one, and count what an
# optimiser would train and a checkpoint would hold:

# %% tags=["fold-input"]
right, plain = Heads(embed_dim=8, num_heads=4), Heads(embed_dim=8, num_heads=4)
heads = list(plain.heads)
del plain.heads
plain.heads = heads  # the same heads, in a Python list
counts = {}
for name, model in (("nn.ModuleList", right), ("a Python list", plain)):
    trained = sum(matrix.numel() for matrix in model.parameters())
    counts[name] = trained, len(model.state_dict())
display.show(counts, columns=["numbers trained", "matrices saved"])

# %% [markdown]
# > **Pitfall.** `self.heads = heads`, a plain Python list. Every output has the right shape, and 64 of 256 numbers are
# > trained: a module does not look into such a list. Its heads are not saved either, and stay behind when the module
# > moves to another dtype or device.

# %% [markdown]
# ## Which would you rather train?
#
# Now let training find the matrices. In 25 scenes, *drank* is to receive the cat's warmth under *animal* and the milk's
# under *food*. One head of width 4 runs against two of width 2, with 64 numbers each. The keys are blind to warmth, so
# the weights are the same in all scenes. Where will the 25 answers of one head lie?

# %% tags=["fold-input"]
BLIND = ALL_25 * torch.tensor([1.0, 1, 1, 0])  # the keys hold no warmth
KEYS = {"blind": BLIND, "seeing": ALL_25}  # the fold below has those that see
STEPS = 300, 1500


def train(num_heads: int, keys: str, seed: int, steps: tuple[int, ...]) -> dict:
    """Train on the 25 scenes; after steps, give what drank answers."""
    torch.manual_seed(seed)
    model, found, place = Heads(4, num_heads), {}, CLAUSE.index("drank")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    read = torch.vmap(lambda x, key: model(x, key, x))
    for step in range(1, max(steps) + 1):
        output, _ = read(ALL_25, KEYS[keys])
        answers = output[:, place, :2]
        if step in steps:
            found[step] = answers.detach()
        optimizer.zero_grad()
        (answers - GRID).square().mean().backward()
        optimizer.step()
    return found


def learn(num_heads: int, keys: str, seed: int) -> list[float]:
    """Train; after STEPS, say how far off it is."""
    found = train(num_heads, keys, seed, STEPS)
    return [(answers - GRID).square().mean().sqrt().item() for answers in found.values()]


# %% tags=["hide-input"]
DATA = resources.files("annotated_book").joinpath("data/two_heads.json")


def runs(heads: int, keys: str) -> Tensor:
    """Give how far off 20 runs are at the end."""
    every = json.loads(DATA.read_text())["runs"]
    of_kind = [run for run in every if (run["heads"], run["keys"]) == (heads, keys)]
    return torch.tensor([run["off by"][-1] for run in of_kind])  # (20,)


drawing, axes = display.panels(600, 300, columns=2)
told = []
for ax, heads, kind, letter in zip(axes, (1, 2), ("one head", "two heads"), "hd"):
    (answers,) = train(heads, "blind", 0, (150,)).values()
    for ends in zip(GRID.tolist(), answers.tolist()):
        ax.plot(*zip(*ends), color="#808080", linewidth=0.6)
    ax.plot(*GRID.mT, "+", color="#808080", markersize=9)
    ax.plot(*answers.mT, "o", color=display.COLOURS[letter], markersize=7, alpha=0.7)
    ax.set_title(kind, fontsize=13)
    ax.set(xlabel="the cat's warmth", ylabel="the milk's", aspect="equal")
    ax.set(xlim=(-2.4, 2.4), ylim=(-2.4, 2.4), xticks=[-2, 0, 2], yticks=[-2, 0, 2])
    told.append(f"{runs(heads, 'blind').quantile(0.5):.2f} for {kind}")
caption = (
    "Crosses are the 25 scenes, dots the answers after 150 steps, and a grey line joins "
)
always = GRID.square().mean().sqrt()  # how far off is who always answers 0
caption += (
    f"the two. The error (root mean square) is {always:.2f} for who always answers 0. In "
)
caption += f"20 longer runs it is, by the median, {' and '.join(told)}."
alt = "Answers to 25 scenes. Those of one head lie on a line, those of two on their scenes."
display.finish(drawing, name="answers-of-drank", alt=alt, caption=caption)

# %% [markdown]
# The answers of one head lie on a line: it knows one mix of the two warmths, and has to guess the rest. It stays off by
# 1.00 in all of its 20 runs, and two heads come to 0.00.

# %% [markdown] name="a-head-that-cheats"
# <!-- deeper: A head that cheats -->
# ### Going deeper: A head that cheats
#
# Let the keys hold a quarter of the warmth. A warm word is then easier to find, so the weights depend on the scene.
# This head hands over all four features:

# %%
rows = []
for cat, milk in scenes.values():
    x = scene(cat, milk)                       # (4, 4)
    key = x @ (animal + food + 0.25 * warmth)  # (4, 1)
    rows.append(one.attend(x @ action, key, x)[0][drank])
display.show(torch.stack(rows), [*scenes], FEATURES)

# %% [markdown]
# Three scenes, three different rows. But the warmths went through the exponential of the softmax, and only a logarithm
# gets them back exactly. What follows a head is a matrix, which can come close: a small piece of a curve is nearly
# straight.

# %% tags=["proof"]
for cat, milk in GRID.tolist():
    x = scene(cat, milk).double()  # (4, 4)
    weigh = [z.double() for z in (action, animal + food + 0.25 * warmth)]
    row = one.attend(x @ weigh[0], x @ weigh[1], x)[0][drank]
    w_cat, w_milk = row[:2] / 3  # each word hands over 3 of its own kind
    warmer = 2 * (w_cat / w_milk).log()  # scores differ by half of the difference
    of_cat = (row[3] + w_milk * warmer) / (w_cat + w_milk)
    expected = torch.tensor([cat, milk]).double()
    torch.testing.assert_close(torch.stack([of_cat, of_cat - warmer]), expected)
print("✓ In 25 scenes both warmths can be computed from the row, by a logarithm.")

# %% tags=["proof"]
x, off, largest = ALL_25.double(), [], []
for hint in (0.25, 0.1, 0.05, 0.02):  # of warmth in the keys
    keys = x @ (animal + food + hint * warmth).double()   # (25, 4, 1)
    shares = (x @ action.double() @ keys.mT).softmax(-1)  # (25, 4, 4)
    collected = (shares @ x)[:, drank][:, [0, 1, 3]]      # (25, 3), without the action
    matrix = torch.linalg.lstsq(collected, GRID.double(), driver="gelsd").solution
    off.append((collected @ matrix - GRID).square().mean().item())
    largest.append(matrix.abs().max().item())
assert off == sorted(off, reverse=True)
assert largest == sorted(largest)
print("✓ The less warmth in the keys, the closer the best matrix comes, by larger entries.")

# %% [markdown]
# Does training find this detour? Here the keys see the warmth (`make seeds`, in the book's repository, has trained all
# these runs):

# %% tags=["hide-input"]
drawing, (ax,) = display.panels(288, 150)
told, kinds = [], ("one head", "two heads")
for i, (kind, letter) in enumerate(zip(kinds, "hd")):
    off = runs(i + 1, "seeing")
    look = {"color": display.COLOURS[letter], "markersize": 5, "alpha": 0.7}
    ax.plot(off, i + torch.linspace(-0.25, 0.25, len(off)), "o", **look)
    ax.text(1.1, i, f"{off.quantile(0.5):.2f}", va="center", fontsize=11)
    apart = [f"{x:.2f}" for x in off.sort().values if x >= 0.1]
    told.append(f"{kind}: {off.quantile(0.5):.2f}, not below 0.10: {apart}")
ax.set_yticks((0, 1), kinds)
ax.set(xlim=(-0.05, 1.3), ylim=(1.5, -0.5), xlabel="off by", xticks=[0, 0.5, 1])
alt = f"How far off 20 runs each are after 1,500 steps; medians: {'; '.join(told)}."
caption = f"Each dot is a run, after {max(STEPS):,} steps; at the right the median."
display.finish(drawing, name="seeing-runs", alt=alt, caption=caption)

# %% [markdown]
# Of 20 single heads, 17 come below 0.10. Two heads do a little worse than with blind keys: where the weights move with
# the scene, what a head collects is no plain sum of the warmths.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Exercises
#
# ### Which scene was it?
#
# *Easy, 2 minutes.* Take a pencil. One head takes three quarters from the cat and one quarter from the milk, and brings
# home 2. Another takes one quarter from the cat and three quarters from the milk, and brings home 0. How warm are the
# two?

# %% tags=["exercise"]
my_scene = (None, None)  # cat, milk

# %%
from annotated_book import exercises

exercises.two_heads.check_scene(my_scene)

# %% [markdown]
# <details><summary>Hint</summary>
#
# The second head brings home 0, so the cat is as far on one side of 0 as three times the milk on the other.
#
# </details>

# %% tags=["solution"]
my_scene = (3, -1)

exercises.two_heads.check_scene.folded(my_scene)

# %% [markdown]
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
# > The number of parameters, $4e^2$, does not depend on h. The heads belong in an `nn.ModuleList`.
#
# A second glass costs no parameters, but memory and time for its weights, `(n, m)` per head, and a list of h heads runs
# one after the other. [The next chapter](03_split_and_stack.ipynb) runs them all at once, and gets the same numbers.
