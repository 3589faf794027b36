# %% [markdown]
# # Two heads
#
# *How can a word look at two things at once, and keep them apart?*
#
# *13 minutes and 2 of exercises. Afterwards you can say what one head cannot report, and write
# any number of heads as a list.*
#
# > the **warm** cat drank **cold** milk
#
# > the **cold** cat drank **warm** milk
#
# Both sentences are made of the same words, yet you know at once what is warm in each of them.
# Suppose that an earlier head has already added each adjective to its noun. Now *drank* wants to
# learn two things: how warm the drinker is, and how warm the drink is. One head can look at both
# *cat* and *milk*, but it brings home a single blend of the two.

# %% tags=["hide-input"]
from annotated_book import display

display.chapter_map("project in", "score", "softmax", "mix", "merge", "project out")

# %% [markdown]
# ## One head brings home one average
#
# Remember the library from [One head](01_one_head.ipynb): you read a little in many books and go
# home with one page of notes. If two books tell you how warm something is, the page holds a single
# blended number.
#
# To see this in numbers, take the four words *the cat drank milk*; the adjectives have already been
# added to their nouns. The fourth feature is called *warmth* here: 2 is warm, and -2 is cold.

# %%
import torch
from torch import Tensor, nn

from annotated_book import chapters

one = chapters.load("01_one_head")
CLAUSE = ["the", "cat", "drank", "milk"]
FEATURES = ["animal", "food", "action", "warmth"]


def scene(warm_cat: float, warm_milk: float) -> Tensor:
    """Give the features of the four words, with this warmth of cat and milk."""
    x = one.embed(CLAUSE)                                    # (4, 4)
    x[:, 3] = torch.tensor([0.0, warm_cat, 0.0, warm_milk])  # (4,)
    return x


first, second = scene(2, -2), scene(-2, 2)  # (4, 4)
one.show(CLAUSE, FEATURES, first, digits=0)

# %% [markdown]
# In this first scene a warm cat drinks cold milk. In the second scene the two warmths trade places.
# (`chapters.load` gives you the names that another chapter defines, without its demonstrations.)
#
# Now give *drank* a head of width 1, in which each matrix picks features: words that have *action*
# ask, words are found by *animal* or *food*, and they hand over their *warmth*. Its weights are the
# same in both scenes, since no key contains the warmth.

# %%
animal, food, action, warmth = torch.eye(4).split(1, dim=1)  # (4, 1)
cat, drank, milk = (CLAUSE.index(word) for word in ("cat", "drank", "milk"))

for name, x in (("first", first), ("second", second)):
    collected, weights = one.attend(x @ action, x @ (animal + food), x @ warmth)
    print(f"{name} scene: drank collects {collected[drank].item():.2f}")
one.show(["drank looks at"], CLAUSE, weights[[drank]])

# %% [markdown]
# *Drank* gives half of its attention to *cat* and half to *milk*, apart from a little that the
# table rounds to 0.00. It collects 0.00 both times, because half of 2 and half of -2 cancel. For
# *drank* the two scenes are now the same: on average everything is lukewarm.
#
# Perhaps the words hand over too little? Let each hand over all four features, so that *cat* and
# *milk* also say which of them speaks. Can *drank* tell the two scenes apart now?
#
# <details><summary>What do you expect?</summary>
#
# No. What comes home is an average of the rows of *cat* and *milk*. In both scenes this average
# holds as much animal as food, and the two warmths cancel.
#
# </details>

# %%
rows = []
for x in (first, second):
    collected, _ = one.attend(x @ action, x @ (animal + food), x)  # (4, 4), (4, 4)
    rows.append(collected[drank])
torch.testing.assert_close(rows[0], rows[1])
one.show(["first", "second"], FEATURES, torch.stack(rows))

# %% [markdown]
# The two rows are the same. One line of algebra says why no $W_V$ and $W_O$ can help, however wide
# they are. Let $w$ be the row of weights for *drank*:
#
# $$w\,(X W_V)\,W_O = (w X)\,W_V W_O$$
#
# On the right, the words themselves are averaged first, and the matrices see nothing but this
# average. As long as the weights are the same for all scenes, only one number per feature comes
# home, and you cannot read two warmths from one number. A head that gives three quarters to the cat
# separates these two scenes, but [confuses two
# others](#cell-id=a-head-that-leans-towards-the-cat): from the warmths (2, -2) and (0, 4) it
# collects 1 both times. If the keys held the warmth, the weights would change with it, and one head
# could find the warm word; but it still brings home one number per feature, and not both warmths.

# %% [markdown] name="a-head-that-leans-towards-the-cat"
# <!-- deeper: A head that leans towards the cat -->
# ### Going deeper: A head that leans towards the cat
#
# Equal weights are a special case. Let *food* count for 0.9<!-- setting --> of *animal* in the
# keys, so that the head leans towards the cat. It now tells the first scene from the second. But it
# collects $w_c\,x_c + w_m\,x_m$, where $w_c$ and $w_m$ are the weights of *cat* and *milk*, and
# $x_c$ and $x_m$ their warmths. Lower the cat's by $w_m t$ and raise the milk's by $w_c t$, and the
# sum is as before.

# %%
lean, t = animal + 0.9 * food, 8.0
_, weights = one.attend(first @ action, first @ lean, first @ warmth)  # (4, 1), (4, 4)
w_cat, w_milk = weights[drank, [cat, milk]]
third = scene(2 - w_milk * t, -2 + w_cat * t)  # (4, 4)

rows = []
for x in (first, second, third):
    collected, _ = one.attend(x @ action, x @ lean, x @ warmth)  # (4, 1), (4, 4)
    rows.append(torch.cat([x[[cat, milk], 3], collected[drank]]))
torch.testing.assert_close(rows[0][2], rows[2][2])
one.show(["first", "second", "third"], ["cat", "milk", "collected"], torch.stack(rows))

# %% [markdown]
# Every point in the figure is a scene, and a line goes through all scenes for which a head collects
# the same number. One head knows which line a scene is on, but not where on that line. Two heads
# that look at the two words in different proportions have lines that cross in a single scene.

# %% tags=["fold-input"]
points, x = torch.stack(rows)[[0, 2], :2], first  # (2, 2), (4, 4)
maps = [one.attend(x @ action, x @ found, x)[1] for found in (lean, animal, food)]
drawing, axes = display.panels(480, 270, columns=2)
for ax, looks in zip((axes[0], axes[1], axes[1]), maps):
    along = torch.stack([-looks[drank, milk], looks[drank, cat]])  # (2,)
    ax.axline(points[0].tolist(), (points[0] + along).tolist(), color=display.COLOURS["h"])
axes[1].text(1.6, 5.5, "head 1", color=display.COLOURS["h"], ha="right")
axes[1].text(-6.7, -1.6, "head 2", color=display.COLOURS["h"])
for ax, shown, title in zip(axes, (points, points[:1]), ("one head", "two heads")):
    ax.scatter(*shown.mT.tolist(), color="black", linewidth=0, zorder=3)
    for place, name in zip(shown.tolist(), ("first", "third")):
        ax.annotate(name, place, (7, 5), textcoords="offset points", fontsize=11)
    ax.set(xlim=(-7, 7), ylim=(-7, 7), aspect="equal", title=title, xticks=range(-6, 7, 2))
    ax.set(xlabel="how warm the cat is", ylabel="how warm the milk is")
display.finish(
    drawing,
    name="kept-apart",
    alt=(
        "Scenes as points, the warmth of the cat to the "
        "right, that of the milk up. Left: the "
        "first and third scene lie on one line, and the one "
        "head gives both the same number. "
        "Right: the lines of head 1 and head 2 cross at (2, -2) and nowhere else."
    ),
)

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Two heads bring home two averages
#
# Take two heads. One looks at the animal, the other at the food:
#
# | head | who asks | found by | handed over | written under |
# |---|---|---|---|---|
# | head 1 | *action* | *animal* | *warmth* | *animal* |
# | head 2 | *action* | *food* | *warmth* | *food* |
#
# *Who asks*, *found by* and *handed over* are each head's $W_Q$, $W_K$ and $W_V$. Run both heads on
# both scenes, and put what *drank* collects side by side.

# %%
rows = []
for x in (first, second):
    mixed1, _ = one.attend(x @ action, x @ animal, x @ warmth)  # (4, 1), (4, 4)
    mixed2, _ = one.attend(x @ action, x @ food, x @ warmth)    # (4, 1), (4, 4)
    rows.append(torch.cat([mixed1, mixed2], dim=1)[drank])
both = torch.stack(rows)  # (2, 2)
one.show(["first", "second"], ["head 1", "head 2"], both)

# %% [markdown]
# Head 1 reports the cat and head 2 the milk. A little attention goes to other words, hence 1.98
# instead of 2. The two scenes can no longer be confused.
#
# ### Side by side, then one more matrix
#
# Putting the results of the heads side by side is called **concatenation**; in the strip at the
# top, it is the step *merge*. One more matrix, $W_O$, decides under which features the numbers are
# written, as in the last column of the table. Its first row belongs to head 1, its second to head
# 2.

# %%
w_o = torch.cat([animal, food], 1).mT  # (2, 4)
one.show(["head 1", "head 2"], FEATURES, w_o, digits=0)
print()
one.show(["first", "second"], FEATURES, both @ w_o)

# %% [markdown]
# *Drank* receives the cat's warmth under *animal* and the milk's under *food*, so both numbers can
# still be read when a Transformer adds them to the word. For h heads and the words $X$ [[Vaswani et
# al., section 3.2.2](../docs/references.md#vaswani-2017)]:
#
# $$\mathrm{MultiHead}(X) = \mathrm{Concat}(H_1, \ldots, H_h)\, W_O$$
#
# $$H_i = \mathrm{Attention}(X W_Q^i,\; X W_K^i,\; X W_V^i)$$
#
# The index $i$ says that each head has three matrices of its own.

# %% [markdown] name="two-questions-at-once"
# ## Two questions at once
#
# Back to *it*; the fourth feature is *quality* again. Is something said about an animal? Is
# something said about a food? Two questions, so two heads. Head 1 is the head of the last chapter:
# it answers yes after *thirsty* and no after *sweet*. But its *no* leaves open whether something is
# said about a food, or nothing at all. So head 2 asks the same about food: swap animal and food
# wherever the head reads a word's features, in $W_K$ and $W_V$, and where it writes, in $W_O$. $W_Q$
# stays: it reads only the quality, and $W_K$ says what its 2 is compared with. As before, each head
# has two rows of $W_O$: one writes its quality, and the other is zero. The second number that a head
# collects is not used here; it only makes the two heads as wide as the words.

# %%
SWAP = [1, 0, 2, 3]  # animal and food change places
HEADS = [(one.W_Q, one.W_K, one.W_V), (one.W_Q, one.W_K[SWAP], one.W_V[SWAP])]
W_O = torch.cat([one.W_O, one.W_O[:, SWAP]])  # (h * d, e), under animal, under food


def two_heads(x: Tensor) -> tuple[Tensor, Tensor]:
    """Run one head after the other, and put what they collect side by side."""
    heads = [one.attend(x @ w_q, x @ w_k, x @ w_v) for w_q, w_k, w_v in HEADS]
    mixed, weights = zip(*heads)
    return torch.cat(mixed, -1) @ W_O, torch.stack(weights)  # (n, e), (h, n, n)


it = one.WORDS.index("it")
thirsty, weights = two_heads(one.EMBEDDINGS)  # (8, 4), (2, 8, 8)
print("weights", tuple(weights.shape), "output", tuple(thirsty.shape))


# %% tags=["fold-input"]
def draw_heads(weights: Tensor, words: list[str], name: str):
    """Draw what the word *it* looks at with two heads."""
    drawing, (ax,) = display.panels(480, 200)
    at, told = words.index("it"), []
    for i, (row, style) in enumerate(zip(weights[:, at].tolist(), ("solid", "dashed"))):
        look = {"color": display.COLOURS["h"] if i == 0 else "black"}
        ax.text(-0.6, 1.4 - 0.16 * i, f"head {i + 1}", ha="right", fontsize=10, **look)
        for j, weight in enumerate(row):
            ax.plot([at, j], [0.08, 0.98], lw=0.3 + 7 * weight, linestyle=style, **look)
            ax.text(j, 1.4 - 0.16 * i, f"{weight:.2f}", ha="center", fontsize=10, **look)
        told.append(", ".join(f"{w} {x:.2f}" for w, x in zip(words, row)))
    for j, word in enumerate(words):
        ax.text(j, 1.06, word, ha="center", fontsize=12, color=display.COLOURS["m"])
    ax.text(at, -0.08, "it", ha="center", fontsize=12, color=display.COLOURS["n"])
    ax.set(xlim=(-1.5, 7.6), ylim=(-0.2, 1.55))
    ax.axis("off")
    alt = f"What “it” looks at. Head 1: {'; head 2: '.join(told)}."
    return display.finish(drawing, name=name, alt=alt)


# %% [markdown]
# The figure shows where each head looks from *it*. Head 1 is drawn in orange, head 2 in dashes.

# %% tags=["fold-input"]
draw_heads(weights, one.WORDS, "two-heads-at-work")

# %% [markdown]
# Head 1 looks at two words, *cat* and *thirsty*, and gives 0.46 to each. It may blend the two,
# since one answer is enough. Head 2 asks the same about food. It finds *milk*, and no word that
# says something about food, so *milk* gets 0.80.
#
# Now replace *thirsty* with *sweet*. Which head looks at two words then: still the first, or the
# second?
#
# <details><summary>What do you expect?</summary>
#
# The second. *Sweet* is a quality that foods have, so it fits what head 2 asks for and not what
# head 1 asks for.
#
# </details>
#
# A third run leaves the last word out, so that nothing is said yet.

# %%
sweet, weights = two_heads(one.SWEET_EMBEDDINGS)          # (8, 4), (2, 8, 8)
unsaid, _ = two_heads(one.EMBEDDINGS[:-1])                # (7, 4), (2, 7, 7)
rows = torch.stack([thirsty[it], sweet[it], unsaid[it]])  # (3, 4)
one.show(["it, thirsty", "it, sweet", "it, no last word"], one.FEATURES, rows)
draw_heads(weights, one.SWEET, "two-heads-sweet")

# %% [markdown]
# The two heads have traded roles. Head 1 alone says *no* twice, with 0.19 and 0.10 (the quality of
# *it* itself); head 2 adds that after *sweet*, something is said about a food. Both answers arrive
# without being mixed: each head's weights add up to one on their own, so the heads do not compete,
# and $W_O$ writes the answers under different features. A Transformer adds them to *it*, which was
# as much animal as food. It is then more of an animal after *thirsty*, and more of a food after
# *sweet*. A single head that looks for animal and food alike collects one sum of quality, [the same in
# both sentences](short_path.ipynb#cell-id=two-heads-in-a-loop).
#
# ## A list of heads
#
# With eight heads, nobody wants to write out $3 \cdot 8 + 1 = 25$ matrices by hand. Give a head a
# class of its own: `OneHead` without $W_O$, which all heads share. Its matrices start from random
# numbers of a size that Xavier Glorot proposed [[Glorot and
# Bengio](../docs/references.md#glorot-2010)].


# %%
class Head(nn.Module):
    """One of several heads: it projects in, attends, and stops before W_O."""

    def __init__(self, embed_dim: int, head_dim: int) -> None:
        super().__init__()
        self.w_q = nn.Parameter(torch.empty(embed_dim, head_dim))  # (e, d)
        self.w_k = nn.Parameter(torch.empty(embed_dim, head_dim))  # (e, d)
        self.w_v = nn.Parameter(torch.empty(embed_dim, head_dim))  # (e, d)
        for matrix in self.parameters():
            nn.init.xavier_uniform_(matrix)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from each query to every key."""
        q = query @ self.w_q        # (n, e) x (e, d) -> (n, d)
        k = key @ self.w_k          # (m, e) x (e, d) -> (m, d)
        v = value @ self.w_v        # (m, e) x (e, d) -> (m, d)
        return one.attend(q, k, v)  # (n, d), (n, m)


# %% [markdown]
# Put h of them into a list; `forward` runs them one after the other. Each works at the width
# $d = e / h$, so that the results side by side are as wide as the model again.


# %%
class Heads(nn.Module):
    """Several heads, one after the other."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(
                f"embed_dim ({embed_dim}) must be divisible by num_heads ({num_heads})"
            )
        heads = [Head(embed_dim, embed_dim // num_heads) for _ in range(num_heads)]
        self.heads = nn.ModuleList(heads)
        self.w_o = nn.Parameter(torch.empty(embed_dim, embed_dim))  # (e, e)
        nn.init.xavier_uniform_(self.w_o)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from each query to every key."""
        mixed, weights = zip(*(head(query, key, value) for head in self.heads))
        merged = torch.cat(mixed, dim=-1)               # (n, h * d)
        return merged @ self.w_o, torch.stack(weights)  # (n, e), (h, n, m)


# %% [markdown]
# Give the module the matrices of our two heads, and it returns what `two_heads` returned. Then
# count what more heads cost in a model of width 32.

# %%
pair, x = Heads(embed_dim=4, num_heads=2), one.EMBEDDINGS
pair.w_o.data = W_O
for head, (w_q, w_k, w_v) in zip(pair.heads, HEADS):
    head.w_q.data, head.w_k.data, head.w_v.data = w_q, w_k, w_v
torch.testing.assert_close(pair(x, x, x), two_heads(x))

for h in (1, 2, 8):
    sizes = [matrix.numel() for matrix in Heads(embed_dim=32, num_heads=h).parameters()]
    print(f"h = {h}: {len(sizes):2} matrices, {sum(sizes)} numbers")

# %% [markdown]
# More heads means narrower heads, so the number of parameters stays the same: $3e^2$ for the heads,
# whatever h is, and $e^2$ for $W_O$. What grows is the number of separate products, and each costs
# time to start. There are $3h + 1$ matrices, and $5h + 1$ matrix products run one after the other:
# per head three to project in, one for the scores and one to mix, then $W_O$.
#
# ## The mistake people make here
#
# > **Pitfall.** `self.heads = heads`, a plain Python list. The output is the same, but a module
# > does not look into such a list: these heads are neither trained nor saved, and they stay behind
# > when the module moves to another dtype or device. `nn.ModuleList` is a list that a module does
# > look into.

# %% [markdown]
# <!-- deeper: The list that nobody looks into -->
# ### Going deeper: The list that nobody looks into


# %%
class HeadsInAList(Heads):
    """The same heads, in a Python list."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__(embed_dim, num_heads)
        heads = list(self.heads)
        del self.heads
        self.heads = heads


asking, asked = torch.randn(3, 8), torch.randn(5, 8)
for kind in (HeadsInAList, Heads):
    model = kind(embed_dim=8, num_heads=4)
    output, weights = model(asking, asked, asked)  # (3, 8), (4, 3, 5)
    trained = sum(p.numel() for p in model.parameters())
    print(f"{kind.__name__}: output {tuple(output.shape)}, weights {tuple(weights.shape)}")
    print(f"  trained: {trained} of 256 numbers; saved: {len(model.state_dict())} matrices")
    print(f"  after .double(), a head is {model.double().heads[0].w_q.dtype}")

# %% [markdown]
# With the plain list, an optimiser trains $W_O$ alone, 64 of 256 numbers. Every shape is right.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# <!-- deeper: The same as single heads, and as PyTorch's class -->
# ### Going deeper: The same as single heads, and as PyTorch's class
#
# Several heads should amount to using `OneHead` several times: give each the matrices of one head
# and that head's d rows of $W_O$, and add up the outputs. Outputs and gradients must agree. All
# sizes differ: n = 3, m = 5, e = 8, h = 4, d = 2.

# %%
n, m, e, h = 3, 5, 8, 4
queries = torch.randn(n, e, dtype=torch.float64, requires_grad=True)  # (n, e)
words = torch.randn(m, e, dtype=torch.float64, requires_grad=True)    # (m, e)
listed = Heads(embed_dim=e, num_heads=h).double()
w_o, *into = listed.parameters()  # the module's own matrix comes before its heads'
ours, our_weights = listed(queries, words, words)  # (n, e), (h, n, m)
mine = one.gradients(ours, [queries, words, w_o, *into])

parts = [one.OneHead(embed_dim=e, head_dim=2).double() for _ in range(h)]
for head, part, rows in zip(listed.heads, parts, w_o.chunk(h)):
    for target, matrix in zip(part.parameters(), (*head.parameters(), rows)):
        target.data = matrix.detach().clone()
outs, maps = zip(*(part(queries, words, words) for part in parts))
torch.testing.assert_close((ours, our_weights), (sum(outs), torch.stack(maps)))

# %%
learned = [matrix for part in parts for matrix in part.parameters()]
of_queries, of_words, *found = one.gradients(sum(outs), [queries, words, *learned])
of_w_o = torch.cat(found[3::4])  # (e, e)
of_heads = [matrix for i, matrix in enumerate(found) if i % 4 != 3]
torch.testing.assert_close(mine, (of_queries, of_words, of_w_o, *of_heads))
print(f"single heads, added up: outputs and {len(mine)} gradients agree")

# %% [markdown]
# `torch.nn.MultiheadAttention` packs all matrices but $W_O$ into one, transposed: first those for
# the queries, head by head, then those for the keys, then those for the values.

# %%
torchs = nn.MultiheadAttention(e, num_heads=h, bias=False, dtype=torch.float64)
in_order = [matrix for i in range(3) for matrix in into[i::3]]
torchs.in_proj_weight.data = torch.cat(in_order, dim=1).mT.detach()
torchs.out_proj.weight.data = w_o.mT.detach()
theirs = torchs(queries, words, words, average_attn_weights=False)  # (n, e), (h, n, m)
torch.testing.assert_close((ours, our_weights), theirs)

packed = [torchs.in_proj_weight, torchs.out_proj.weight]
of_queries, of_words, of_in, of_out = one.gradients(theirs[0], [queries, words, *packed])
blocks = of_in.mT.split(2, dim=1)  # (e, d)
of_heads = [blocks[i * h + head] for head in range(h) for i in range(3)]
torch.testing.assert_close(mine, (of_queries, of_words, of_out.mT, *of_heads))
print(f"PyTorch: outputs and {len(mine)} gradients agree")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
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
# You know what a second head is for, and can show it with a pair of scenes.
#
# > **In short.** A head has one row of weights per query, so it brings home one average. Several
# > heads attend independently of each other, each with narrow matrices of its own; their results
# > are concatenated and mixed by $W_O$.
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
# A list of h heads takes $3h + 1$ matrices and $5h + 1$ products. [The next
# chapter](03_split_and_stack.ipynb) gets the same numbers with four matrices and six products.
