# %% [markdown]
# # Two heads
#
# *How can a word look at two things at once?*
#
# > the **warm** cat drank **cold** milk
#
# > the **cold** cat drank **warm** milk
#
# Both sentences are made of the same words, yet you know at once what is warm in each of them.
# Suppose that an earlier head has already added each adjective to its noun. Now *drank* wants to
# learn two things: how warm the drinker is, and how warm the drink is. One head can look at both
# *cat* and *milk*, but it brings home a single blend of the two.
#
# In this chapter you find out what one head cannot report, and what a second head adds. You then
# write two heads by hand and as a module, write any number of heads as a list, and measure what
# such a list costs.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map("project in", "score", "softmax", "mix", "merge", "project out")

# %% [markdown]
# ## One head brings home one average
#
# Remember the library from [One head](01_one_head.ipynb): you read a little in many books and go
# home with one page of notes. If two books tell you about the same thing, such as how warm
# something is, the page holds a single blended number.
#
# To see this in numbers, take the four words *the cat drank milk*; the adjectives have already been
# added to their nouns. In these scenes the feature *quality* says how warm something is: 2 is warm,
# and -2 is cold. `chapters.load` imports what another chapter defines, without running its
# demonstrations.

# %%
import torch
from torch import Tensor, nn

from annotated_attention import chapters

one = chapters.load("01_one_head")
CLAUSE = ["the", "cat", "drank", "milk"]


def scene(warm_cat: float, warm_milk: float) -> Tensor:
    """Give the features of the four words, with these qualities of cat and milk."""
    x = one.embed(CLAUSE)                                    # (4, 4)
    x[:, 3] = torch.tensor([0.0, warm_cat, 0.0, warm_milk])  # (4,)
    return x


first, second = scene(2, -2), scene(-2, 2)  # (4, 4)
one.show(CLAUSE, one.FEATURES, first, digits=0)

# %% [markdown]
# In this first scene a warm cat drinks cold milk. In the second scene the two qualities trade
# places.
#
# Now give *drank* a head. As in the last chapter, the head has width 1, and each matrix picks
# features: words that have *action* ask, words are found by *animal* or *food*, and what they hand
# over is their *quality*. Look at the weights of *drank* first.

# %%
cat, drank, milk = (CLAUSE.index(word) for word in ("cat", "drank", "milk"))
animal, food, action, quality = [one.pick(feature) for feature in one.FEATURES]  # (4, 1)
w_q, w_k, w_v = action, animal + food, quality                                   # (4, 1)

_, weights = one.attend(first @ w_q, first @ w_k, first @ w_v)  # (4, 1), (4, 4)
one.show(["drank looks at"], CLAUSE, weights[[drank]])

# %% [markdown]
# *Drank* gives half of its attention to *cat* and half to *milk*, apart from a little that the
# table rounds to 0.00. What does it collect in the two scenes?

# %%
for name, x in (("first", first), ("second", second)):
    collected, _ = one.attend(x @ w_q, x @ w_k, x @ w_v)  # (4, 1), (4, 4)
    print(f"{name} scene: drank collects {collected[drank].item():.2f}")

# %% [markdown]
# It collects 0.00 both times, because half of 2 and half of -2 cancel. For *drank* the two scenes
# are now the same: on average everything is lukewarm.
#
# Equal weights are a special case, so let the head lean towards the cat. Choose how well *food* is
# found compared with *animal*: 1 means equally well, and a smaller number makes the head lean
# towards the cat. The text below uses 0.9<!-- setting -->.

# %%
food_factor = 0.9
w_lean = animal + food_factor * food                               # (4, 1)

_, weights = one.attend(first @ w_q, first @ w_lean, first @ w_v)  # (4, 1), (4, 4)
w_cat, w_milk = weights[drank, [cat, milk]]
one.show(["drank looks at"], CLAUSE, weights[[drank]])

for name, x in (("first", first), ("second", second)):
    collected, _ = one.attend(x @ w_q, x @ w_lean, x @ w_v)        # (4, 1), (4, 4)
    print(f"{name} scene: drank collects {collected[drank].item():.2f}")

# %% [markdown]
# With unequal weights the two scenes give different numbers, 0.58 and -0.58. Can this head tell
# *every* pair of scenes apart: yes, no, or does it depend on `food_factor`?
#
# <details><summary>What do you expect?</summary>
#
# No, and no choice of `food_factor` helps. The head collects $w_c\,x_c + w_m\,x_m$, where $w_c$ and
# $w_m$ are the weights of *cat* and *milk*, and $x_c$ and $x_m$ are their qualities. Take any $t$.
# Lower the cat's quality by $w_m t$ and raise the milk's quality by $w_c t$. The sum changes by
# $-w_c w_m t + w_m w_c t = 0$, so the new scene gives the same number as the old one.
#
# </details>
#
# The cell reads your head's weights and builds a third scene that fools the head. It lowers the
# cat's quality by `w_milk * t` and raises the milk's quality by `w_cat * t`, so that the two
# changes cancel in what *drank* collects. Any `t` other than 0 will do; ours is 8. Change
# `food_factor` above and run both cells again: the third scene adapts.

# %%
t = 8.0
third = scene(2 - w_milk * t, -2 + w_cat * t)             # (4, 4)

rows = []
for x in (first, third):
    collected, _ = one.attend(x @ w_q, x @ w_lean, x @ w_v)  # (4, 1), (4, 4)
    rows.append(torch.stack([x[cat, 3], x[milk, 3], collected[drank, 0]]))
torch.testing.assert_close(rows[0][2], rows[1][2])
columns = ["cat", "milk", "drank collects"]
one.show(["first", "third"], columns, torch.stack(rows))

# %% [markdown]
# Whether a warm cat drinks cold milk or a cool cat drinks hot milk, *drank* collects 0.58. One
# number cannot hold two unknowns, whatever the weights, as long as they are the same for all
# scenes.

# %% [markdown]
# ### Neither sharper nor wider
#
# Two remedies come to mind. The first is to make the weights sharper, that is, more unequal, so that
# less is blended. Multiply $W_Q$ by five, once for the head that treats *cat* and *milk* alike, and
# once for the head that leans towards the cat.

# %%
names, rows = [], []
for factor in (1.0, 0.9):
    for times in (1, 5):
        asks, found = times * w_q, animal + factor * food                  # (4, 1)
        _, sharper = one.attend(first @ asks, first @ found, first @ w_v)  # (4, 1), (4, 4)
        names.append(f"food_factor {factor}, {times} times W_Q")
        rows.append(sharper[drank, [cat, milk]])
one.show(names, ["cat", "milk"], torch.stack(rows))

# %% [markdown]
# A tie stays a tie at any sharpness: 0.50 and 0.50. A small lead becomes a large one, 0.95 against
# 0.05, and then the head reports little but the cat.
#
# The second remedy is a wider head, which hands over more than one number per word. One line of
# algebra shows what such a head can do. Let $w$ be the row of weights for *drank*. Then
#
# $$w\,(X W_V)\,W_O = (w X)\,W_V W_O$$
#
# On the right, the words themselves are averaged first. $W_V$ sees this average and nothing else.
# The first and third scenes have the same weighted average $wX$, so no $W_V$ and $W_O$ of any width
# can tell the two scenes apart. Try random matrices of three widths.

# %%
torch.manual_seed(0)
names, rows = [], []
for width in (1, 4, 64):
    any_v = torch.randn(4, width)
    any_o = torch.randn(width, 4) / width**0.5  # the division keeps the results small
    for name, x in (("first", first), ("third", third)):
        mixed, _ = one.attend(x @ w_q, x @ w_lean, x @ any_v)
        names.append(f"width {width}, {name}")
        rows.append(mixed[drank] @ any_o)
    torch.testing.assert_close(rows[-2], rows[-1], rtol=1e-4, atol=1e-4)
one.show(names, one.FEATURES, torch.stack(rows))

# %% [markdown]
# The two rows of each pair are the same. Width is not what one head lacks: it has a single row of
# weights for *drank*, and therefore a single average.
#
# > **What this example does not show.** The proof needs weights that are the same in both scenes, as
# > they are here, and both answers in one feature. A head that also finds words by *quality* has
# > other weights in each scene, and these can reveal which scene it is. If two features hold the
# > warmth of animals and of foods, one average keeps both. Even then *cat* and *milk* share one
# > whole: what one of them gets, the other lacks. Two heads have a whole each.

# %% [markdown]
# <!-- deeper: A single head that keeps the scenes apart -->
# ### Going deeper: A single head that keeps the scenes apart
#
# How far does this argument go? Let the keys contain the quality, so that the weights depend on
# it, and hand over *animal*, *food* and *quality*. A cat has 3 of *animal* and milk 3 of *food*, so
# the first two collected numbers are three times the weights. The logarithm of their ratio is the
# difference of the two scores. With the keys below, the score of *cat* is
# $2\,(3 + 0.5\,x_c) = 6 + x_c$ and that of *milk* is $6 + x_m$, so the difference is $x_c - x_m$.
# The third collected number is the blend
# $w_c\,x_c + w_m\,x_m = w_c\,(x_c - x_m) + (w_c + w_m)\,x_m$, and only $x_m$ is still unknown in it.

# %%
w_k_all = animal + food + 0.5 * quality              # (4, 1)
w_v_all = torch.cat([animal, food, quality], dim=1)  # (4, 3)

rows = []
for x in (first, second, third):
    mixed, _ = one.attend(x @ w_q, x @ w_k_all, x @ w_v_all)  # (4, 3), (4, 4)
    from_cat, from_milk, blend = mixed[drank]
    apart = (from_cat / from_milk).log()  # quality of the cat minus that of the milk
    warm_milk = (blend - from_cat / 3 * apart) / ((from_cat + from_milk) / 3)
    rows.append(torch.stack([from_cat / 3, from_milk / 3, warm_milk + apart, warm_milk]))
one.show(["first", "second", "third"], ["w_c", "w_m", "cat", "milk"], torch.stack(rows))

# %% [markdown]
# The columns show the two weights and the two recovered qualities, which are right in every scene.
# The head has lost nothing, because the weights themselves carry a message. The price is that the
# weights are no longer free to say where to look: in the first scene the head looks almost only at
# the cat, in the second almost only at the milk. Reading its output also takes a logarithm and a
# division; with two heads, a matrix is enough.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Two heads bring home two averages
#
# Take two heads. One looks at the animal, the other at the food:
#
# | head | who asks | found by | handed over | written under |
# |---|---|---|---|---|
# | head 1 | *action* | *animal* | *quality* | *animal* |
# | head 2 | *action* | *food* | *quality* | *food* |
#
# The column *who asks* gives each head's $W_Q$, *found by* its $W_K$ and *handed over* its $W_V$,
# all of width 1. You will need the last column later. Run both heads on all three scenes, and put
# what *drank* collects side by side.

# %%
w_q1, w_k1, w_v1 = action, animal, quality  # (4, 1)
w_q2, w_k2, w_v2 = action, food, quality    # (4, 1)

scenes = {"first": first, "second": second, "third": third}
rows = []
for x in scenes.values():
    mixed1, weights1 = one.attend(x @ w_q1, x @ w_k1, x @ w_v1)  # (4, 1), (4, 4)
    mixed2, weights2 = one.attend(x @ w_q2, x @ w_k2, x @ w_v2)  # (4, 1), (4, 4)
    both = torch.cat([mixed1, mixed2], dim=-1)                   # (4, 2)
    rows.append(torch.cat([x[[cat, milk], 3], both[drank]]))
table = torch.stack(rows)                                        # (3, 4)
one.show(list(scenes), ["cat", "milk", "head 1", "head 2"], table)

# %% [markdown]
# Compare the last two columns with the first two. Head 1 reports the cat and head 2 the milk. A
# little attention goes to other words, hence 1.98 instead of 2. No two rows are alike.
#
# The weights on *cat* and *milk*, one row per head, show where each head looks. They are the same in
# every scene, because neither head finds words by their quality; the code uses those of the last
# scene.

# %%
looks = torch.stack([weights1[drank], weights2[drank]])[:, [cat, milk]]  # (2, 2)
one.show(["head 1", "head 2"], ["cat", "milk"], looks)

# %% [markdown]
# The figure shows why no two scenes can be confused now. Every point is a scene. Each line goes
# through the first scene and contains all the scenes in which its head collects the same number.
# The number tells you which line a scene is on, but not where on that line. If two heads look at
# different words, their lines cross at a single scene.

# %% jupyter={"source_hidden": true}
points = table[[0, 2], :2]  # (2, 2)
drawing, axes = display.panels(480, 270, columns=2)
for ax, row in zip((axes[0], axes[1], axes[1]), (torch.stack([w_cat, w_milk]), *looks)):
    along = torch.stack([-row[1], row[0]])  # (2,)
    ax.axline(points[0].tolist(), (points[0] + along).tolist(), color=display.COLOURS["h"])
axes[1].text(1.6, 5.5, "head 1", color=display.COLOURS["h"], ha="right")
axes[1].text(-6.7, -1.6, "head 2", color=display.COLOURS["h"])
for ax, shown, title in zip(axes, (points, points[:1]), ("one head", "two heads")):
    ax.scatter(*shown.mT.tolist(), color="black", linewidth=0, zorder=3)
    for place, name in zip(shown.tolist(), ("first", "third")):
        ax.annotate(name, place, (7, 5), textcoords="offset points", fontsize=11)
    ax.set(xlim=(-7, 7), ylim=(-7, 7), aspect="equal", title=title, xticks=range(-6, 7, 2))
    ax.set(xlabel="how warm the cat is", ylabel="how warm the milk is")
cats = " and ".join(f"({a:.2f}, {b:.2f})" for a, b in points.tolist())
display.finish(drawing, name="kept-apart", alt=(
    "Scenes as points, the warmth of the cat to the right and that of the milk up. "
    f"Left: {cats} lie on one line, and the one head gives both the same number. "
    "Right: the lines of head 1 and head 2 cross at (2, -2) and nowhere else."))

# %% [markdown]
# Two lines are two equations with two unknowns. Since the weights of both heads are known, you can
# solve these equations and recover each scene exactly.

# %%
solved = torch.linalg.solve(looks, table[:, 2:].mT).mT  # (3, 2)
torch.testing.assert_close(solved, table[:, :2])
one.show(list(scenes), ["cat", "milk"], solved)

# %% [markdown]
# This works whenever the two heads look at *cat* and *milk* in different proportions. Two heads with
# the same weights give the same line twice, and tell you no more than one head does.
#
# ### Side by side, then one more matrix
#
# You have put the results of the two heads side by side. This is called **concatenation**, and in
# the strip at the top of the chapter it is the step *merge*. The two numbers are not features of
# the model yet. One more matrix, $W_O$, projects them out: it decides which features they are
# written under, as in the last column of the table of heads. $W_O$ has one row per number: the
# first row belongs to head 1, the second to head 2.

# %%
w_o = torch.cat([animal, food], dim=1).mT  # (2, 4)
output = both @ w_o                        # (4, 2) x (2, 4) -> (4, 4)
one.show(["head 1", "head 2"], one.FEATURES, w_o, digits=0)
print()
one.show(["drank"], one.FEATURES, output[[drank]])

# %% [markdown]
# In the third scene *drank* receives the cat's warmth under *animal* and the milk's warmth under
# *food*. *Drank* itself has zeros there, so in this hand-made model the two places are free. For $h$
# heads and the words $X$, the formula is [[Vaswani et al., section
# 3.2.2](../docs/references.md#vaswani-2017)]:
#
# $$\mathrm{MultiHead}(X) = \mathrm{Concat}(H_1, \ldots, H_h)\, W_O$$
#
# $$H_i = \mathrm{Attention}(X W_Q^i,\; X W_K^i,\; X W_V^i)$$
#
# The index $i$ says that each head has three matrices of its own, so two heads have
# $3 \cdot 2 + 1 = 7$ matrices. The paper writes $Q$, $K$ and $V$ in place of the three $X$, because
# the words that ask may differ from the words that are asked.
#
# ## Two questions at once
#
# In the last chapter, *it* should have looked at *cat* to learn who is meant, and at *thirsty* to
# learn what is said about the cat. In one head the two words share one whole. Take the whole
# sentence again, in which *quality* stands for thirsty or sweet, and compare one head of width 4
# with two of width 2. The first of these compares words by *animal* and *food*, the second by
# *action* and *quality*. To keep the example readable, each head uses one matrix for all three
# roles. The input is what the last chapter's head leaves behind: each word plus what it has
# collected. After that head, *it* no longer fits *cat* and *milk* equally.

# %%
who = torch.cat([animal, food], dim=1)      # (4, 2)
said = torch.cat([action, quality], dim=1)  # (4, 2)


def after_one_head(words: list[str]) -> Tensor:
    """Give each word plus what it collects with the head of the last chapter."""
    x = one.embed(words)               # (8, 4)
    return x + one.attend(x, x, x)[0]  # (8, 4)


# %%
it = one.WORDS.index("it")
x = after_one_head(one.WORDS)                               # (8, 4)
_, alone = one.attend(x, x, x)                              # (8, 4), (8, 8)
share = dict(zip(one.WORDS, alone[it].tolist()))
print(f"one head: cat {share['cat']:.2f}, thirsty {share['thirsty']:.2f}")
_, weights_who = one.attend(x @ who, x @ who, x @ who)      # (8, 2), (8, 8)
_, weights_said = one.attend(x @ said, x @ said, x @ said)  # (8, 2), (8, 8)
for number, weights in enumerate((weights_who, weights_said), 1):
    best = weights[it].argmax()
    print(f"head {number}: it looks at {one.WORDS[best]} ({weights[it, best]:.2f})")

# %% [markdown]
# With one head, the 0.60 for *thirsty* leaves *cat* only 0.26. With two, the first head answers *who*
# and gives *cat* 0.82; the second answers *what is said*. The figure shows the first head's weights
# for *it*. If the figure has sliders, use them to choose the other head and other words.

# %% jupyter={"source_hidden": true}
still = display.attention_lines(weights_who, one.WORDS, it, name="two-heads-at-work")
weights = torch.stack([weights_who, weights_said])  # (2, 8, 8)
display.heads_at_work(still, weights, one.WORDS, one.WORDS, start=(0, 0, it))

# %% [markdown]
# Besides quality, *thirsty* carries animal, and *sweet* carries food. Now replace *thirsty* with
# *sweet*. Which head looks at a different word than before: the first, the second, or both?
#
# <details><summary>What do you expect?</summary>
#
# Both. For the second head, the word that says something about *it* is now *sweet*. The first head
# changes because its input has: in this sentence *it* has collected more food than animal from
# *sweet*, so *milk* fits better than *cat*.
#
# </details>

# %%
x = after_one_head(one.SWEET)                                          # (8, 4)
for number, features in enumerate((who, said), 1):
    _, weights = one.attend(x @ features, x @ features, x @ features)  # (8, 2), (8, 8)
    best = weights[it].argmax()
    print(f"head {number}: it looks at {one.SWEET[best]} ({weights[it, best]:.2f})")

# %% [markdown]
# What *it* has collected from *sweet* turns the first head from *cat* to *milk*. A Transformer is
# built in the same way, from **layers**: each one works on what the layer before it leaves behind,
# and within a layer the heads divide the work.
#
# ## The module
#
# Now put the seven matrices into an `nn.Module`. Each head works at half the width of the model,
# $d = e / 2$, so that the two results side by side are as wide as the model again.


# %%
class TwoHeads(nn.Module):
    """Attention with two heads, written out."""

    def __init__(self, embed_dim: int) -> None:
        super().__init__()
        e, d = embed_dim, embed_dim // 2
        self.w_q1 = nn.Parameter(torch.empty(e, d))  # (e, d)
        self.w_k1 = nn.Parameter(torch.empty(e, d))  # (e, d)
        self.w_v1 = nn.Parameter(torch.empty(e, d))  # (e, d)
        self.w_q2 = nn.Parameter(torch.empty(e, d))  # (e, d)
        self.w_k2 = nn.Parameter(torch.empty(e, d))  # (e, d)
        self.w_v2 = nn.Parameter(torch.empty(e, d))  # (e, d)
        self.w_o = nn.Parameter(torch.empty(e, e))   # (e, e)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from each query to every key.

        Args:
            query: (n, e), the words that ask.
            key: (m, e), the words that are asked.
            value: (m, e), the same words, for what they hand over.
        """
        mixed1, weights1 = one.attend(query @ self.w_q1, key @ self.w_k1, value @ self.w_v1)
        mixed2, weights2 = one.attend(query @ self.w_q2, key @ self.w_k2, value @ self.w_v2)
        mixed = torch.cat([mixed1, mixed2], dim=-1)                 # (n, 2 * d)
        return mixed @ self.w_o, torch.stack([weights1, weights2])  # (n, e), (2, n, m)


# %% [markdown]
# Give the module the matrices of the two heads above, and it returns the same weights. $W_O$ is the
# identity here, because the four collected numbers are already in the order of the features.

# %%
two = TwoHeads(embed_dim=4)
with torch.no_grad():
    for matrix, numbers in zip(two.parameters(), [who] * 3 + [said] * 3 + [torch.eye(4)]):
        matrix.copy_(numbers)

output, weights = two(x, x, x)  # (8, 4), (2, 8, 8)
one.show(one.SWEET, ["head 1", "head 2"], weights[:, it].mT)
print()
one.show(["it collects"], one.FEATURES, output[[it]])

# %% [markdown]
# *It* collects food from *milk* through the first head, and quality from *sweet* through the
# second. Neither answer takes its share from the other. The collected 4.92 is more than the 3 of
# food that *milk* had at first, because the words have already been through one head, where *milk*
# collected food.
#
# ## A list of heads
#
# With eight heads, nobody wants to write out 25 matrices by hand. Give a head a class of its own:
# `OneHead` without $W_O$, which all the heads share. The class initialises its own matrices.


# %%
class Head(nn.Module):
    """One of several heads: projects in and attends; it neither merges nor projects out."""

    def __init__(self, embed_dim: int, head_dim: int) -> None:
        super().__init__()
        self.w_q = nn.Parameter(torch.empty(embed_dim, head_dim))  # (e, d)
        self.w_k = nn.Parameter(torch.empty(embed_dim, head_dim))  # (e, d)
        self.w_v = nn.Parameter(torch.empty(embed_dim, head_dim))  # (e, d)
        one.xavier(self)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from each query to every key."""
        q = query @ self.w_q        # (n, e) x (e, d) -> (n, d)
        k = key @ self.w_k          # (m, e) x (e, d) -> (m, d)
        v = value @ self.w_v        # (m, e) x (e, d) -> (m, d)
        return one.attend(q, k, v)  # (n, d), (n, m)


# %% [markdown]
# Now put several of these heads into a list; `forward` runs them one after the other. This first
# version contains a mistake.


# %%
class HeadsInAList(nn.Module):
    """Several heads, one after the other."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(
                f"embed_dim ({embed_dim}) must be divisible by num_heads ({num_heads})"
            )
        heads = [Head(embed_dim, embed_dim // num_heads) for _ in range(num_heads)]
        self.heads = heads
        self.w_o = nn.Parameter(torch.empty(embed_dim, embed_dim))  # (e, e)
        nn.init.xavier_uniform_(self.w_o)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from each query to every key."""
        mixed, weights = zip(*(head(query, key, value) for head in self.heads))
        merged = torch.cat(mixed, dim=-1)               # (n, h * d)
        return merged @ self.w_o, torch.stack(weights)  # (n, e), (h, n, m)


# %%
asking, asked = torch.randn(3, 8), torch.randn(5, 8)
trap = HeadsInAList(embed_dim=8, num_heads=4)
output, weights = trap(asking, asked, asked)  # (3, 8), (4, 3, 5)
print(f"output {tuple(output.shape)}, weights {tuple(weights.shape)}")

# %% [markdown]
# It runs, and every shape is right. Each head has three matrices of `(8, 2)`, 48 numbers, and $W_O$
# is `(8, 8)`. With four heads that makes $4 \cdot 3 + 1 = 13$ matrices and $4 \cdot 48 + 64 = 256$
# numbers. How many of these numbers would an optimiser train: 256, 192, or 64?
#
# <details><summary>What do you expect?</summary>
#
# 64, which is $W_O$ alone. A module looks for parameters in its attributes: tensors that are an
# `nn.Parameter`, and other modules. A Python list is neither, and the module does not look inside
# it.
#
# </details>

# %%
print("parameters():    ", sum(p.numel() for p in trap.parameters()), "of", 4 * 48 + 64)
print("state_dict():    ", list(trap.state_dict()))
trap.double()
print("after .double(): ", trap.w_o.dtype)
print("  in a head:     ", trap.heads[0].w_q.dtype)

# %% [markdown]
# `state_dict` is what gets saved, and the heads are missing there, too. Train such a module for one
# step, and see which matrices move.

# %%
trap = HeadsInAList(embed_dim=8, num_heads=4)
optimizer = torch.optim.SGD(trap.parameters(), lr=1.0)
before = trap.w_o.clone(), trap.heads[0].w_q.clone()

output, _ = trap(asking, asked, asked)  # (3, 8), (4, 3, 5)
output.square().sum().backward()
optimizer.step()
print("w_o moved:          ", not torch.equal(trap.w_o, before[0]))
print("a head's w_q moved: ", not torch.equal(trap.heads[0].w_q, before[1]))

# %% [markdown]
# > **Pitfall.** Heads in a plain Python list are neither trained nor saved, and nothing in the
# > output gives this away. They also stay behind when the module moves to another dtype or device.
# > `nn.ModuleList` is a list that a module does look into.

# %% jupyter={"source_hidden": true}
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


display.diff(HeadsInAList.__init__, Heads.__init__)

# %% [markdown]
# `Heads` differs from `HeadsInAList` in this one line. Ask the same questions again.

# %%
heads = Heads(embed_dim=8, num_heads=4)
print("parameters():    ", sum(p.numel() for p in heads.parameters()), "of", 4 * 48 + 64)
print("state_dict():    ", len(heads.state_dict()), "matrices")
heads.double()
print("after .double(): ", heads.w_o.dtype)
print("  in a head:     ", heads.heads[0].w_q.dtype)

# %% [markdown]
# ## What more heads cost
#
# What do eight heads cost instead of one, at the same model width? PyTorch can report every
# operation that it runs; `Products` listens and counts the matrix products of a call. The table
# also lists the floating-point operations in these products (FLOPs). The column *entries* counts
# the attention weights in all attention maps together.

# %% jupyter={"source_hidden": true}
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode


class Products(TorchDispatchMode):
    """Counts the matrix products that run inside its ``with`` block."""

    calls = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.calls += operation in (torch.ops.aten.mm.default, torch.ops.aten.bmm.default)
        return operation(*args, **(kwargs or {}))


# %%
long = torch.randn(64, 32)  # (64, 32)
print(" h params entries matrices products   FLOPs")
for count in (1, 2, 4, 8, 16):
    model = Heads(embed_dim=32, num_heads=count)
    sizes = [matrix.numel() for matrix in model.parameters()]
    with Products() as products, FlopCounterMode(display=False) as flops:
        _, weights = model(long, long, long)  # (64, 32), (..., 64, 64)
    counted = (weights.numel(), len(sizes), products.calls, flops.get_total_flops())
    print("{:2} {:6} {:7} {:8} {:8} {:7}".format(count, sum(sizes), *counted))

# %% [markdown]
# The number of parameters does not depend on the number of heads. More heads means narrower heads:
# h heads of width $e / h$ have $3 \cdot h \cdot e \cdot \frac{e}{h} = 3e^2$ numbers, and $W_O$ has
# $e^2$ more, so $4e^2$ whatever h is. The FLOPs stay the same, too.
#
# Two things grow. There are h maps of attention weights instead of one, and the work is cut into
# more pieces. Each head has three matrices and five products: three projections, the scores and the
# mix. With $W_O$ that makes $3h + 1$ matrices and $5h + 1$ products, which run one after the other.
# [Speed](13_speed.ipynb) measures what that means in time.
#
# ## Going deeper
#
# You may skip these three comparisons on a first reading. They show that `TwoHeads` gives the same
# result as two single heads added up, as PyTorch's class with two heads, and as a list of two
# heads.

# %% [markdown]
# <!-- deeper: The same as one head twice, and as PyTorch's two -->
# ### Going deeper: The same as one head twice, and as PyTorch's two
#
# Two heads should amount to using the last chapter's module twice. Give each `OneHead` the matrices
# of one head and that head's rows of $W_O$. The sum of the two outputs must equal the output of
# `TwoHeads`, and the gradients must agree as well. All sizes differ: n = 3, m = 5, e = 8, h = 2,
# d = 4.

# %%
n, m, e = 3, 5, 8
queries = torch.randn(n, e, dtype=torch.float64, requires_grad=True)  # (n, e)
words = torch.randn(m, e, dtype=torch.float64, requires_grad=True)    # (m, e)
two = one.xavier(TwoHeads(embed_dim=e).double())
*into, w_o = two.parameters()

parts = [one.OneHead(embed_dim=e, head_dim=4).double() for _ in range(2)]
with torch.no_grad():
    for i, part in enumerate(parts):
        own = [*into[3 * i : 3 * i + 3], w_o.chunk(2)[i]]
        for target, matrix in zip(part.parameters(), own):
            target.copy_(matrix)

# %%
ours, our_weights = two(queries, words, words)                        # (n, e), (2, n, m)
(out1, map1), (out2, map2) = [part(queries, words, words) for part in parts]
torch.testing.assert_close((ours, our_weights), (out1 + out2, torch.stack([map1, map2])))

mine = one.gradients(ours, [queries, words, *into, w_o])
learned = [matrix for part in parts for matrix in part.parameters()]
found = one.gradients(out1 + out2, [queries, words, *learned])
of_queries, of_words, q1, k1, v1, o1, q2, k2, v2, o2 = found
expected = (of_queries, of_words, q1, k1, v1, q2, k2, v2, torch.cat([o1, o2]))
torch.testing.assert_close(mine, expected)
print(f"one head twice: outputs, {len(mine)} gradients agree")

# %% [markdown]
# `torch.nn.MultiheadAttention` packs six of the seven matrices into one, transposed: first those
# for the queries, head by head, then those for the keys, then those for the values. Lay out our
# matrices in the same way.

# %%
torchs = nn.MultiheadAttention(e, num_heads=2, bias=False, dtype=torch.float64)
order = [into[i] for i in (0, 3, 1, 4, 2, 5)]  # q1 q2, k1 k2, v1 v2
with torch.no_grad():
    torchs.in_proj_weight.copy_(torch.cat(order, dim=1).mT)
    torchs.out_proj.weight.copy_(w_o.mT)

ours, our_weights = two(queries, words, words)                      # (n, e), (2, n, m)
theirs = torchs(queries, words, words, average_attn_weights=False)  # (n, e), (2, n, m)
torch.testing.assert_close((ours, our_weights), theirs)

# %%
mine = one.gradients(ours, [queries, words, *order, w_o])
packed = [torchs.in_proj_weight, torchs.out_proj.weight]
of_queries, of_words, of_in, of_out = one.gradients(theirs[0], [queries, words, *packed])
expected = (of_queries, of_words, *(part.mT for part in of_in.chunk(6)), of_out.mT)
torch.testing.assert_close(mine, expected)
print(f"PyTorch: outputs, {len(mine)} gradients agree")

# %% [markdown]
# Finally, compare with two heads in a list that use the same seven matrices.

# %%
listed = Heads(embed_dim=e, num_heads=2).double()
own_w_o, *own = listed.parameters()  # the module's own come before its parts'
with torch.no_grad():
    for target, matrix in zip([*own, own_w_o], [*into, w_o]):
        target.copy_(matrix)

ours, our_weights = two(queries, words, words)      # (n, e), (2, n, m)
again, its_weights = listed(queries, words, words)  # (n, e), (2, n, m)
torch.testing.assert_close((again, its_weights), (ours, our_weights))
mine = one.gradients(ours, [queries, words, *into, w_o])
torch.testing.assert_close(one.gradients(again, [queries, words, *own, own_w_o]), mine)
print(f"a list: outputs, {len(mine)} gradients agree")

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
from annotated_attention import exercises

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


# %% tags=["solution"] jupyter={"source_hidden": true}
def add_up(mixed: list[Tensor], w_o: Tensor) -> Tensor:
    """Add up what each head contributes to the output.

    Args:
        mixed: (n, d) for each of the h heads.
        w_o: (h * d, e), a block of d rows per head.
    """
    blocks = w_o.split(mixed[0].size(-1))                         # (d, e)
    return sum(own @ block for own, block in zip(mixed, blocks))  # (n, e)


exercises.two_heads.check_add_up(add_up)

# %% [markdown]
# ### Your own heads
#
# *Easy, 10 minutes.* Without looking above, write the module for any number of heads. It holds h
# `Head` modules, each of width e / h, and one more matrix `w_o`, which you initialise. `forward`
# returns the output alone, `(n, e)`, without the weights. If h does not divide e, raise a
# `ValueError` that names both numbers.


# %% tags=["exercise"]
class MyHeads(nn.Module):
    """``num_heads`` heads that share the width ``embed_dim``."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        # your lines here

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attend from each query to every key."""
        return None  # and here


# %%
exercises.two_heads.check_heads(MyHeads)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# PyTorch finds an attribute that is a module, a `Parameter`, or an `nn.ModuleList`. It does not
# look into a Python list.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `[Head(...)] * h` is one head, h times. `[Head(...) for _ in range(h)]` makes h of them.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Each head returns `(mixed, weights)`. Put the mixed values side by side with `torch.cat(...,
# dim=-1)`: the result is as wide as the model, so `w_o` is `(e, e)`.
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
class MyHeads(nn.Module):
    """``num_heads`` heads that share the width ``embed_dim``."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(
                f"embed_dim ({embed_dim}) must be divisible by num_heads ({num_heads})"
            )
        head_dim = embed_dim // num_heads
        self.heads = nn.ModuleList(Head(embed_dim, head_dim) for _ in range(num_heads))
        self.w_o = nn.Parameter(torch.empty(embed_dim, embed_dim))  # (e, e)
        nn.init.xavier_uniform_(self.w_o)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attend from ``query`` to ``key`` and ``value``.

        Args:
            query: (n, e), one row per query.
            key: (m, e), one row per key.
            value: (m, e), one row per key.
        """
        mixed = [head(query, key, value)[0] for head in self.heads]  # (n, d)
        return torch.cat(mixed, dim=-1) @ self.w_o                   # (n, e)


exercises.two_heads.check_heads(MyHeads)

# %% [markdown]
# ## What you have now
#
# You know what a second head is for, and can show it with a pair of scenes. You can write any number
# of heads as a list that trains.
#
# > **In short.** A head has one row of weights per query, so it brings home one average. Several
# > heads attend independently of each other, each with narrow matrices of its own; their results are
# > concatenated and mixed by $W_O$.
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
# > The number of parameters, $4e^2$, does not depend on h. The heads belong in an `nn.ModuleList`,
# > because a module does not look into a Python list.
#
# A list of h heads takes $3h + 1$ matrices and $5h + 1$ products. [The next
# chapter](03_split_and_stack.ipynb) gets the same numbers with four matrices and six products.
