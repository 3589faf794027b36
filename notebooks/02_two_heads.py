# %% [markdown]
# # Two heads
#
# *How can a word look at two things at once, and keep them apart?*
#
# *11 minutes and 6 of exercises. Afterwards you can say what one head mixes, and write any
# number of heads as a list.*
#
# > the **warm** cat drank **cold** milk
#
# > the **cold** cat drank **warm** milk
#
# The words are the same, and you know at once what is warm in each sentence. Suppose that an earlier
# head has already added each adjective to its noun. Four words are left, and *drank* wants to know how warm the drinker is, and how warm
# the drink. It sends out one head, with one glass. The head visits *cat* and *milk*, and each pours in half a glass. What
# comes home? Say it, then press *pour*.

# %% tags=["fold-input"]
import json
import math
from importlib import resources

import torch
from torch import Tensor, nn

from annotated_book import chapters, display

one = chapters.load("01_one_head")
CLAUSE = ["the", "cat", "drank", "milk"]
FEATURES = ["animal", "food", "action", "warmth"]


def scene(warm_cat: float, warm_milk: float) -> Tensor:
    """Give the features of the four words, with this warmth of cat and milk."""
    x = one.embed(CLAUSE)                                    # (4, 4)
    x[:, 3] = torch.tensor([0.0, warm_cat, 0.0, warm_milk])  # (4,)
    return x


GRID = torch.cartesian_prod(*[torch.arange(-2.0, 3)] * 2)       # (25, 2), for later
ALL_25 = torch.stack([scene(*both) for both in GRID.tolist()])  # (25, 4, 4)

# %% tags=["hide-input"]
picks = torch.eye(4)  # the columns 1 0 0 0, 0 1 0 0, and so on
animal, food, action, warmth = picks.split(1, dim=1)  # (4, 1), one column each
x, drank = scene(2, -2), CLAUSE.index("drank")
queries, keys = x @ action, x @ (animal + food)  # (4, 1)
_, weights = one.attend(queries, keys, x @ warmth)
told = {"the warm cat drank cold milk": (2, -2), "the cold cat drank warm milk": (-2, 2)}
poured = {title: (has, weights[drank, None, 1::2]) for title, has in told.items()}
display.glasses(poured, ["cat", "milk"], name="one-glass")

# %% [markdown]
# ## Into one glass
#
# Lukewarm, both times: nothing that *drank* brings home says which of the two was warm. Here are the numbers of the first
# sentence, with the adjectives already added: `scene(2, -2)`. The fourth feature is *warmth* here; 2 is warm, −2 is cold.

# %% tags=["hide-input"]
display.show(scene(2, -2), CLAUSE, FEATURES, decimals=0)

# %% [markdown]
# The head of *drank* has width 1. So query, key and value are one number each, and each matrix is one column, which picks
# features:
#
# | a word's query, $W_Q$ | its key, $W_K$ | its value, $W_V$ |
# |---|---|---|
# | its *action* | its *animal* + its *food* | its *warmth* |
#
# *Drank* has the query 2, *cat* and *milk* both have the key 3. So both score 6, and both get the weight 0.50; the other two
# words score 0, and get next to nothing. No key holds any warmth, so the weights are the same in both sentences.

# %% tags=["proof"]
assert (keys @ queries[drank]).tolist() == [0, 6, 0, 6]
for cat, milk in told.values():
    x = scene(cat, milk)
    mixed, weights = one.attend(x @ action, x @ (animal + food), x @ warmth)
    torch.testing.assert_close(
        weights[drank, 1::2], torch.tensor([0.5, 0.5]), atol=3e-3, rtol=0
    )
    torch.testing.assert_close(mixed[drank], torch.zeros(1))
print("✓ Cat and milk score 6, the other words 0; both glasses hold 0.")

# %% [markdown]
# ## Lean towards the cat
#
# But who says that it must be halves? In the figure you set the share of the cat by hand, and the milk gets the rest. Each
# glass stands for a scene: the warmer the cat, the farther to the right; the warmer the milk, the higher up. In the glass
# is what *drank* brings home.
#
# Your task: **lean the head until it can tell the two sentences apart.** Then press *confuse the head*.

# %% tags=["hide-input"]
scenes = {"warm cat": (2.0, -2.0), "warm milk": (-2.0, 2.0), "hot milk": (0.0, 4.0)}
display.lukewarm(scenes, 0.75, ["cat", "milk"], name="lukewarm")

# %% [markdown]
# Any share but one half does it. But then comes a third scene, from which the same number comes home as from *warm cat*.
# Whatever share you choose, there is such a scene: drag it by its ring, and its number stays. At a share of
# 0.75<!-- setting --> it can be *hot milk*: the milk at 4, the cat neither warm nor cold.
#
# One number cannot hold two unknowns. It says on which line a scene lies, but not where on the line. Now call in *a second
# head*, with the shares exchanged. It has another line, and the two lines cross in one point.
#
# Would a larger glass help the one head? At a share of 0.75, let each word pour in all four of its features:

# %% tags=["hide-input"]
lean = torch.tensor([0.0, 0.75, 0.0, 0.25])  # the weights of drank, one per word
mixes = torch.stack([lean @ scene(2, -2), lean @ scene(0, 4)])  # (2, 4)
display.show(mixes, ["warm cat", "hot milk"], FEATURES)

# %% [markdown]
# The same row, number by number. And any other $W_V$? Write $w$ for the weights of *drank* and $X$ for the words. The head
# brings home $w$ times the values, and the brackets can be moved:
#
# $$w\,(X W_V) = (w X)\,W_V$$
#
# So whatever $W_V$ you choose, it only ever sees the mix $wX$. That is the row of the table, the same for both scenes. This
# holds as long as $w$ is the same in both, and it is, since no key holds any warmth.
#
# %% tags=["proof"]
for _ in range(100):
    w_v = torch.randn(4, 4)  # (e, d)
    warm, hot = (lean @ (scene(*scenes[name]) @ w_v) for name in ("warm cat", "hot milk"))
    torch.testing.assert_close(warm, hot)
apart = torch.tensor([[0.0, 0.0], [3.0, 0.0], [0.0, 0.0], [0.0, -1.0]])  # (m, 2)
halves = torch.tensor([0.0, 0.5, 0.0, 0.5])                              # (m,)
assert (2 * halves @ apart).tolist() == [3, -1]  # the warmth of the cat, and of the milk
print("✓ With a hundred random W_V, warm cat and hot milk still bring home the same.")

# %% [markdown]
# But what if a cat's warmth stood in one column, and a milk's in another?
#
# <details name="own-columns"><summary>The two would still be mixed.</summary>
#
# Only numbers of the same column are added up. With a column for each, one head brings home both.
#
# </details>
# <details name="own-columns"><summary>Then one head is enough.</summary>
#
# Right: only numbers of the same column are added up.
#
# </details>
#
# Thousands of words can be warm, though, and a row has no column for the warmth of each.

# %% [markdown]
# ## Two glasses
#
# Take two heads. One looks at the animal, the other at the food:
#
# | | query, $W_Q$ | key, $W_K$ | value, $W_V$ | written under, $W_O$ |
# |---|---|---|---|---|
# | head 1 | *action* | *animal* | *warmth* | *animal* |
# | head 2 | *action* | *food* | *warmth* | *food* |
#
# The two glasses are put side by side, which is called **concatenation**. One matrix $W_O$ follows, with a row for each head:
# it writes the number of head 1 under *animal*, and that of head 2 under *food*, two columns that are free in the row of
# *drank*. What the heads write is added up.

# %% tags=["hide-input"]
w_o = torch.cat([animal, food], 1).mT  # (2, 4)
for title, has in told.items():
    x = scene(*has)
    heads = [one.attend(x @ action, x @ key, x @ warmth)[1] for key in (animal, food)]
    poured[title] = has, torch.stack(heads)[:, drank, 1::2]
display.glasses(poured, ["cat", "milk"], name="two-glasses", writes=(w_o, FEATURES))

# %% [markdown]
# *Drank* receives the cat's warmth under *animal* and the milk's under *food*. Several heads, each with a question of its own, and
# their answers side by side: that is **multi-head attention**
# [[Vaswani et al., section 3.2.2](../docs/references.md#vaswani-2017)]. Each head has a $W_Q$, $W_K$ and $W_V$ of its own,
# and all share $W_O$.

# %% [markdown]
# ## A list of heads
#
# A model has many heads, not two, and each is narrower: with eight, an eighth as wide as the model. How many numbers do these eight have, against one head as wide as the model?
#
# <details name="cost"><summary>Eight times as many.</summary>
#
# They would, if each were as wide as the one.
#
# </details>
# <details name="cost"><summary>Exactly as many.</summary>
#
# Right, since the width of the model is shared out among them. So each head is narrow, which is the price.
#
# </details>
#
# Each head is a small module, which returns what it has collected. All share one $W_O$, so no head holds it.


# %%
def draw_matrix(rows: int, columns: int) -> nn.Parameter:
    """Draw what is to be learned: at random, about as large out as in."""
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
# Put h of them into a list; `forward` runs them one after the other. If a word has e features, each head works at the
# width $d = e / h$, so the results side by side are e wide again.


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
# Whatever h is, the heads have $3e^2$ numbers together, and $W_O$ has $e^2$. But one of eight compares words by 4 numbers and
# brings home 4, where the single head has 32 of each.

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
print("✓ The list is single heads, added up.")

# %% [markdown]
# > **Pitfall.** `self.heads = heads`, a plain Python list in place of `nn.ModuleList`. Every output is the same. But a
# > module does not look into such a list: its heads are not trained, not saved, and stay behind when the module moves to
# > another dtype or device.

# %% tags=["proof"]
right, plain = Heads(embed_dim=8, num_heads=4), Heads(embed_dim=8, num_heads=4)
plain.load_state_dict(right.state_dict())
heads, x = list(plain.heads), torch.randn(3, 8)
del plain.heads
plain.heads = heads  # the same heads, in a Python list
torch.testing.assert_close(plain(x, x, x), right(x, x, x))
assert [name for name, _ in plain.named_parameters()] == [*plain.state_dict()] == ["w_o"]
assert len([*right.parameters()]) == len(right.state_dict()) == 3 * 4 + 1
print("✓ From a Python list come the same outputs, but only W_O is trained and saved.")

# %% [markdown]
# ## Which would you rather train?
#
# Now let training find the matrices. In 25 scenes, *drank* is to receive the cat's warmth under *animal* and the milk's
# under *food*. One head of width 4 runs against two of width 2; either model has 64 numbers. The keys are made from words
# without their warmth, so the weights are the same in all scenes, as above. Where will the 25 answers of the one head
# end? Choose, then press *train*.
#
# <details name="answers"><summary>Near their scenes, all a little off.</summary>
#
# For that it would have to know both warmths, at least roughly. One mix comes home, so some answers will be far off.
#
# </details>
# <details name="answers"><summary>All in the middle, at 0.</summary>
#
# That is where someone who knows nothing would put them. One mix is better than nothing.
#
# </details>
# <details name="answers"><summary>On a line.</summary>
#
# One mix, one line. Watch how long *two heads* take to leave theirs.
#
# </details>

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
LOOKS = (1, *range(10, 121, 10), 140, 160, 180, 200, 250, 300)
STARTS = 0, 6, 1
starts = [
    {
        name: train(i, "blind", seed, LOOKS)
        for i, name in enumerate(("one head", "two heads"), 1)
    }
    for seed in STARTS
]
display.unfolds(
    starts, GRID, 5, ["the cat's warmth", "the milk's"], name="answers-of-drank"
)

# %% tags=["proof"]
missed = []
for nets in starts:
    one_end, two_end = (net[LOOKS[-1]] for net in nets.values())
    halved = (one_end - GRID).square().mean() / GRID.square().mean()
    torch.testing.assert_close(halved, torch.tensor(0.5), atol=1e-3, rtol=0)
    assert torch.linalg.svdvals(one_end - one_end.mean(0))[1] < 1e-3
    torch.testing.assert_close(two_end, GRID, atol=0.02, rtol=0)
    missed.append((one_end - GRID).square().mean(0).sqrt().tolist())
widths = []  # of the two heads' grids at step 50, as shares of their lengths
for nets in starts:
    for number, looks in nets.items():
        for step, answers in looks.items():
            long, wide = torch.linalg.svdvals(answers - answers.mean(0))
            assert number == "two heads" or wide < long / 1000
            if (number, step) == ("two heads", 50):
                widths.append((wide / long).item())
assert widths[0] < 1 / 20
assert min(widths[1:]) > 1 / 3
(cat, milk), (other_cat, other_milk), both = missed
assert max(cat, other_milk) < 0.25
assert min(milk, other_cat) > 1.35
assert min(both) > 0.8
for angle in torch.rand(20) * math.pi:  # of a line, on which each answer is the nearest
    line = torch.stack([angle.cos(), angle.sin()])  # (2,)
    off = (GRID @ line)[:, None] * line - GRID      # (25, 2)
    torch.testing.assert_close(off.square().mean(), GRID.square().mean() / 2)
print("✓ From all three starts one head stays on a line, as far off, and two arrive.")

# %% [markdown]
# At step 50 of this start you can hardly tell the two apart: both grids are nearly a line. The grid of one head never leaves
# it, and stays 1.00 off (root mean square over both numbers), however long it trains. The grid of two unfolds onto the
# crosses.
#
# Now train *from another start*. How long two heads stay on their line is up to the start. And the one head of the first start got the cat
# nearly right and gave up the milk; that of the next gives up the cat, and that of the third gets neither. Each is 1.00 off, as no line through the middle is nearer than another.
#
# And if the keys do hold the warmth? Then the proof by brackets does not hold, and one head can cheat: the shares themselves tell how
# much warmer one word is than the other. It learns that slowly, but of 20 such heads 17 come below 0.10. The fold shows how.

# %% [markdown] name="a-head-that-cheats"
# <!-- deeper: A head that cheats -->
# ### Going deeper: A head that cheats
#
# The weights of a real head come from the words, so $w$ may differ from scene to scene. Let
# the keys hold a quarter of the warmth. A warm word is then easier to find. This head hands over all four features:

# %%
rows = []
for cat, milk in scenes.values():
    x = scene(cat, milk)                       # (4, 4)
    key = x @ (animal + food + 0.25 * warmth)  # (4, 1)
    rows.append(one.attend(x @ action, key, x)[0][drank])
display.show(torch.stack(rows), [*scenes], FEATURES)

# %% [markdown]
# Three scenes, three different rows. A logarithm gets both warmths back from such a row. What follows a head is only a
# matrix, which can come close: a small piece of a curve is nearly straight.

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
# Does training find this detour? Here the keys see the warmth:

# %% tags=["hide-input"]
DATA = resources.files("annotated_book").joinpath("data/two_heads.json")


def runs(heads: int, keys: str) -> Tensor:
    """Give how far off 20 runs are at the end."""
    every = json.loads(DATA.read_text())["runs"]
    of_kind = [run for run in every if (run["heads"], run["keys"]) == (heads, keys)]
    return torch.tensor([run["off by"][-1] for run in of_kind])  # (20,)


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
# <!-- /deeper -->

# %% [markdown] name="two-questions-at-once"
# ## A pair for the word *it*
#
# The next chapters take a pair of heads apart, small enough to follow each number. Let head 1 ask: *is something said about an
# animal?* It [looks for animals](01_one_head.ipynb#cell-id=our-head), and hands over their quality, one number, so the second column of $W_V$
# is empty. Head 2 asks the same about a food: in its $W_K$, *animal* and *food* change rows. Each writes its answer under its own
# feature, and the longer bar wins. (`one` is the code of the last chapter.)

# %%
SWAP = [1, 0, 2, 3]  # animal and food change places
W_V = torch.tensor([[0.0, 0], [0, 0], [0, 0], [1, 0]])  # (e, d), hands over quality
HEADS = [(one.W_Q, one.W_K, W_V), (one.W_Q, one.W_K[SWAP], W_V)]
W_O = torch.tensor([[1.0, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]])  # (4, 4)


def two_heads(x: Tensor) -> tuple[Tensor, Tensor]:
    """Run one head after the other, and put what they collect side by side."""
    heads = [one.attend(x @ w_q, x @ w_k, x @ w_v) for w_q, w_k, w_v in HEADS]
    merged = torch.cat([mixed for mixed, _ in heads], -1)     # (n, h * d)
    weights = torch.stack([weights for _, weights in heads])  # (h, n, n)
    return merged @ W_O, weights                              # (n, e), (h, n, n)


# %% [markdown]
# Your head of the last chapter gets all six sentences below right, by believing the last word. How many will the pair get? Press your number. Then you see, over the words, where head 1
# looks from *it*, and under them, where head 2 does.


# %% tags=["hide-input"]
def scores_of_it(x: Tensor, number: float) -> Tensor:
    """Score all words for "it", with this number at the rival's noun in W_K."""
    w_k = one.W_K.clone()
    w_k[1, 0] = number  # in head 1, how well a food is found
    keys = torch.stack([x @ w_k, x @ w_k[SWAP]])  # (h, m, d)
    query = (x @ one.W_Q)[one.WORDS.index("it")]  # (d,)
    return keys @ query / w_k.size(1) ** 0.5      # (h, m)


six, place = {}, one.WORDS.index("it")
starts = ["the cat drank milk", "cats and kittens drank", "milk and cream vanished"]
for start, words in zip(starts, (one.WORDS, one.CATS, one.MILK)):
    for answer, last in enumerate(("thirsty", "sweet")):
        x = one.embed(said := [*words[:-1], last])  # (8, 4)
        scores = [scores_of_it(x, number) for number in (0, 1)]
        six[f"{start} … {last}"] = said, answer, *scores, (x @ W_V)[:, 0]
keys = [w_k for _, w_k, _ in HEADS]
display.duel(six, ("animal", "food"), -1, keys, one.FEATURES, name="rematch")

# %% [markdown]
# <details><summary>What went wrong?</summary>
#
# In *cats … thirsty* there is no food to find, but for the bit in *it*. So head 2 looks at *it* and *thirsty*, and brings home
# their quality: 0.90 of *food*, against 0.67 of *animal*. In *milk … sweet* head 1 goes astray in the same way.
#
# </details>
#
# An animal is no food, and the heads do not know it: that is the coloured 0 in each $W_K$. A number below 0 there lets a head turn
# away from what it does not look for. **Can you get all six by moving one slider alone?**
#
# <details><summary>What a number does</summary>
#
# No: below 0, the number of a head saves the sentence which this head had spoiled, and that makes five. With both at 1 the
# heads look for the same, and every sentence is a draw: two heads that look alike are one. With both below 0, at −0.5<!-- setting --> already, it is six. In
# *cats … thirsty*, *it* and *thirsty* are animals, too; so head 2 turns away from them, most from *thirsty*, to words that have no quality, and 0.40 of
# *food* is left.
#
# </details>
#
# More heads are not better by themselves: each has to look in the right place. In a model, training moves all these numbers
# at once.

# %% tags=["proof"]
right = {}
for numbers in torch.cartesian_prod(torch.arange(-4, 5) / 2, torch.arange(-4, 5) / 2):
    found = []
    for words, answer, *_, gives in six.values():
        both = [scores_of_it(one.embed(words), z.item())[i] for i, z in enumerate(numbers)]
        animal_says, food_says = (torch.stack(both).softmax(-1) @ gives).tolist()
        found.append((animal_says - food_says) * (1 - 2 * answer) > 1e-6)
    right[tuple(numbers.tolist())] = sum(found)
assert right[0, 0] == 4
assert all(count <= 5 for (i, j), count in right.items() if i == 0 or j == 0)
assert all(right[i / 2, 0] == right[0, i / 2] == 5 for i in range(-4, 0))
assert all(right[i / 2, j / 2] == 6 for i in range(-4, 0) for j in range(-4, 0))
for words, _, scores, _, gives in six.values():
    received, _ = two_heads(one.embed(words))
    torch.testing.assert_close(received[place, :2], scores.softmax(-1) @ gives)
of_last = torch.zeros(3, 4, 2)  # the head of the last chapter, which looks at qualities
of_last[:2, 3, 1], of_last[2, :2] = torch.tensor([2.0, 1]), torch.eye(2)
for words, answer, *_ in six.values():
    brought, _ = one.attend(*(one.embed(words) @ matrix for matrix in of_last))
    assert brought[place].argmax() == answer
cats = one.embed(six["cats and kittens drank … thirsty"][0])
before, after = (scores_of_it(cats, z)[1].softmax(-1) for z in (0, -1))
assert after.argmax() == place  # head 2 turns away, and most from the last word
assert after[-1] < 0.25 * before[-1] < 0.25 * before[place] < 0.5 * after[place]
print("✓ At 0 the bars are what two_heads writes; the sliders do what the fold says.")

# %% tags=["proof"]
pair, x = Heads(embed_dim=4, num_heads=2), one.EMBEDDINGS
pair.w_o.data = W_O
for head, matrices in zip(pair.heads, HEADS):
    for parameter, matrix in zip(head.parameters(), matrices):
        parameter.data = matrix
torch.testing.assert_close(pair(x, x, x), two_heads(x))
print("✓ The list of heads returns what two_heads returns.")


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
# ### Any number of heads
#
# *Easy, 4 minutes.* `x` is `(n, e)`, the words. `heads` is a list of any length, with $W_Q$, $W_K$ and $W_V$ of each head,
# `(e, d)`. `w_o` is `(h * d, e)`. Give what the heads write together, `(n, e)`. `one.attend(query, key, value)` returns
# what is collected, and the weights.


# %% tags=["exercise"]
def run_heads(x: Tensor, heads: list[list[Tensor]], w_o: Tensor) -> Tensor:
    """Run all heads, and give what they write together."""
    return None  # your lines here


# %%
exercises.two_heads.check_run_heads(run_heads)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# One head collects `one.attend(x @ w_q, x @ w_k, x @ w_v)[0]`, `(n, d)`. Keep them in a list.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `torch.cat(…, dim=-1)` puts them side by side, `(n, h * d)`, in the order of the heads.
#
# </details>


# %% tags=["solution"]
def run_heads(x: Tensor, heads: list[list[Tensor]], w_o: Tensor) -> Tensor:
    """Run all heads, and give what they write together.

    Args:
        x: (n, e), the words.
        heads: of each head, the matrices w_q, w_k and w_v.
        w_o: (h * d, e), a block of d rows per head.
    """
    mixed = []
    for w_q, w_k, w_v in heads:
        collected, _ = one.attend(x @ w_q, x @ w_k, x @ w_v)  # (n, d), (n, n)
        mixed.append(collected)
    return torch.cat(mixed, -1) @ w_o  # (n, h * d) x (h * d, e) -> (n, e)


exercises.two_heads.check_run_heads.folded(run_heads)

# %% [markdown]
# ## What you have now
#
# > **In short.** A head has one row of weights per query, so it brings home one average: what two words
# > hold in the same column comes home mixed. Nothing after the head can take the mix apart, unless the weights hold what it needs. Several heads attend independently of each other, each with narrow matrices of its
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
# Eight narrow heads have no more parameters than one wide head. But each has weights of its own, `(n, m)` numbers, and a
# list runs its heads one after the other. [The next chapter](03_split_and_stack.ipynb) runs them all at once, and gets the same numbers.
