# %% [markdown]
# # Split and stack
#
# *Does every head need matrices of its own?*
#
# > the cat drank milk because **it** was thirsty
#
# [Two heads](02_two_heads.ipynb) ended with a list: each head has three small matrices, and the
# heads run one after the other. Eight heads have $3 \cdot 8 + 1 = 25$ matrices and take
# $5 \cdot 8 + 1 = 41$ products. In this chapter they share four matrices and six products.
#
# Think of a wide sheet of paper with one strip per head. You fill in the whole sheet at once, cut
# it between the strips, and lay the strips in a stack. The three steps are: multiply once, split,
# stack. The numbers are exactly the ones that the list of heads gave.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map(
    "project in", "split", "score", "softmax", "mix", "merge", "project out"
)

# %% [markdown]
# ## Two heads that you can read
#
# To follow the numbers, take the two heads of width 2 with which *it* asked two questions in the
# last chapter. The first compares words by `who`, which picks the features *animal* and *food*.
# The second uses `said`, which picks *action* and *quality*. There, each head had one matrix for
# all three roles. Here the second head gets a $W_Q$ of its own, called `asks`, so that you can
# tell $W_Q$ and $W_K$ apart: animals and foods now ask for a *quality*. In the last chapter,
# another head had run before these two. This time they read the plain embeddings, so *cat* and
# *milk* tie again.

# %%
import torch
from torch import Tensor, nn

from annotated_attention import chapters

one = chapters.load("01_one_head")
two = chapters.load("02_two_heads")

x = one.EMBEDDINGS  # (8, 4)
n, h, d = 8, 2, 2
animal, food, action, quality = [one.pick(feature) for feature in one.FEATURES]  # (4, 1)

who = torch.cat([animal, food], dim=1)                                           # (4, 2)
said = torch.cat([action, quality], dim=1)                                       # (4, 2)
asks = torch.cat([action, 2 * (animal + food)], dim=1)                           # (4, 2)
w_q, w_k, w_v = [who, asks], [who, said], [who, said]
one.show(one.FEATURES, ["asks for action", "asks for quality"], asks, digits=0)

# %% [markdown]
# The table shows `asks`. A row is a feature that a word has, and a column is a feature that the
# word then asks for. Actions ask for actions, as before. The 2 doubles the scores for *quality*, so
# that the softmax gives a clearer preference.
#
# `w_q` is a list with one matrix per head, and so are `w_k` and `w_v`. Run both heads, one after
# the other, and look at the row of *it*.

# %%
it = one.WORDS.index("it")
mixed1, weights1 = one.attend(x @ w_q[0], x @ w_k[0], x @ w_v[0])  # (n, d), (n, n)
mixed2, weights2 = one.attend(x @ w_q[1], x @ w_k[1], x @ w_v[1])  # (n, d), (n, n)

rows = torch.cat([weights1[[it]], weights2[[it]]])                 # (2, n)
one.show(["head 1", "head 2"], one.WORDS, rows)

# %% [markdown]
# The first head looks equally at *cat* and *milk* (0.29 each), the two things that the pronoun
# could stand for. The second finds *thirsty* (0.93). That took five products per head. The rest of
# the chapter gets the same numbers with fewer products.
#
# ## One matrix holds every head
#
# Column j of the product $XW$ depends on column j of $W$ and on no other column. You can therefore
# put the matrices of all heads side by side, multiply once, and find each head's queries in its own
# columns:
#
# $$X\,[\,W_1 \; W_2 \; \cdots \; W_h\,] = [\,XW_1 \; XW_2 \; \cdots \; XW_h\,]$$

# %%
wide = torch.cat(w_q, dim=1)  # (4, 2 + 2)
q = x @ wide                  # (n, 4) x (4, h * d) -> (n, h * d)

assert torch.equal(q, torch.cat([x @ w_q[0], x @ w_q[1]], dim=1))
one.show(["query of it"], ["head 1", "head 1", "head 2", "head 2"], q[it, None], digits=0)

# %% [markdown]
# The first two numbers are the query of *it* for the first head, and the last two are its query for
# the second.

# %% jupyter={"source_hidden": true}
from matplotlib.patches import Rectangle


def draw_matrix(ax, matrix: Tensor, title: str, names: list[str], letter: str) -> None:
    shade = matrix / matrix.max()
    for i, name in enumerate(names):
        ax.text(-0.25, i + 0.5, name, ha="right", va="center")
        for j, number in enumerate(matrix[i].tolist()):
            alpha, colour = 0.06 + 0.6 * shade[i, j].item(), display.COLOURS[letter]
            ax.add_patch(Rectangle((j, i), 1, 1, color=colour, alpha=alpha, linewidth=0))
            ax.text(j + 0.5, i + 0.5, f"{number:.0f}", ha="center", va="center")
    ax.text(2, -1.5, title, ha="center", fontsize=11)
    ax.set(xlim=(-3.2, 4.2), ylim=(8.2, -2.2), aspect="equal")
    ax.axis("off")


# %% [markdown]
# The figure shows the whole product. The larger a number is compared with the others in its matrix,
# the stronger its colour. The dark lines separate the two heads and show where $Q$ will be cut.

# %% jupyter={"source_hidden": true}
drawing, axes = display.panels(430, 250, columns=3)
draw_matrix(axes[0], x, "X", one.WORDS, "n")
draw_matrix(axes[1], wide, "W_Q", one.FEATURES, "h")
draw_matrix(axes[2], q, "Q = X W_Q", one.WORDS, "h")
for ax, rows in zip(axes[1:], (4, 8)):
    ax.add_patch(Rectangle((1.95, -0.3), 0.1, rows + 0.5, color="black", linewidth=0))
    for head in (1, 2):
        place = {"ha": "center", "color": display.COLOURS["h"]}
        ax.text(2 * head - 1, -0.4, f"head {head}", **place)
display.finish(drawing, name="columns-by-head", alt=(
    "Three matrices: X with a row per word, W_Q with a row per feature, and their product "
    "Q with a row per word. The first two columns of W_Q and of Q belong to head 1, the "
    f"others to head 2. Row it of Q: {', '.join(f'{number:.0f}' for number in q[it])}."
))

# %% [markdown]
# Follow one column across the figure: the last column of $W_Q$ goes into the last column of $Q$ and
# into no other.
#
# A model of width e gives each of its h heads d = e / h columns: the more heads, the narrower each
# is. In a model of width e = 24, what is the shape of the wide $W_Q$ with 2 heads, with 4, and with
# 8?
#
# <details><summary>What do you expect?</summary>
#
# It is (24, 24) each time. The h heads of width d = e / h have h · d = e columns in all. The heads
# merely divide the columns among themselves.
#
# </details>

# %%
for heads in (2, 4, 8):
    listed = two.Heads(embed_dim=24, num_heads=heads)
    narrow = [tuple(head.w_q.shape) for head in listed.heads]
    together = torch.cat([head.w_q for head in listed.heads], dim=1)  # (24, 24)
    print(f"{heads} heads: {heads} matrices {narrow[0]}, together {tuple(together.shape)}")

# %% [markdown]
# The number of heads is no longer visible in the parameters. It has become a setting that says
# where to cut.
#
# ## Split, then stack
#
# Two PyTorch functions do this. `torch.split` cuts the wide rows into pieces of d columns
# each. `torch.stack` lays the pieces on top of each other, along a new first axis.


# %%
def split_and_stack(x: Tensor, num_heads: int) -> Tensor:
    """Cut the features into heads, and stack the heads.

    Args:
        x: (n, h * d), one row per word.
        num_heads: h, the number of heads.
    """
    pieces = x.split(x.size(-1) // num_heads, dim=-1)  # h times (n, d)
    return torch.stack(pieces)                         # (h, n, d)


k = x @ torch.cat(w_k, dim=1)  # (n, h * d)
v = x @ torch.cat(w_v, dim=1)  # (n, h * d)
q_heads, k_heads, v_heads = (split_and_stack(each, h) for each in (q, k, v))
print("Q", tuple(q.shape), "-> stacked", tuple(q_heads.shape))
names = ["query of it, head 1", "query of it, head 2"]
one.show(names, ["1st", "2nd"], q_heads[:, it], digits=0)

# %% [markdown]
# In (2, 8, 2) the first 2 counts the heads, and the last 2 is the width of a head. With the heads in
# front, `q_heads[0]` is the whole first head: eight words, each with its two numbers.
#
# ## One product for all heads
#
# The operator `@` multiplies the last two axes. Any axes before them count as a batch of
# independent problems. The other steps of `attend` from [One head](01_one_head.ipynb) also count
# from the end: `.mT`, `size(-1)` and `softmax(-1)`. So `attend` works unchanged for all heads
# together, as long as the heads come first.

# %%
scores = q_heads @ k_heads.mT                           # (h, n, d) x (h, d, n) -> (h, n, n)
mixed, weights = one.attend(q_heads, k_heads, v_heads)  # (h, n, d), (h, n, n)
torch.testing.assert_close((mixed[0], weights[0]), (mixed1, weights1))
torch.testing.assert_close((mixed[1], weights[1]), (mixed2, weights2))

one.show(["head 1", "head 2"], one.WORDS, weights[:, it])

# %% [markdown]
# These are the weights from the beginning of the chapter. The cell asserts that the heads also
# collect the same numbers.
#
# Suppose you stack along the wrong axis, `torch.stack(pieces, dim=1)`. The heads then have the
# shape `(n, h, d)` instead of `(h, n, d)`, and in self-attention `attend` takes them without an
# error. What can the row of *it* still react to: to all eight words, to some of them, or to *it*
# alone?
#
# <details><summary>What do you expect?</summary>
#
# To *it* alone. `@` treats the first axis as the batch, so every word becomes a problem of its own.
# In each problem, the h heads of that one word attend to each other. No word sees any other word.
#
# </details>
#
# Ask autograd. The table shows the size of the gradient of the row of *it* with respect to each
# word, and 0 means no influence.


# %%
def attend_stacked(
    q: Tensor, k: Tensor, v: Tensor, num_heads: int, dim: int
) -> tuple[Tensor, Tensor]:
    """Stack the heads along ``dim``, attend, and put the heads back side by side."""
    width = q.size(-1) // num_heads
    q, k, v = (torch.stack(each.split(width, dim=-1), dim) for each in (q, k, v))
    mixed, weights = one.attend(q, k, v)
    return torch.cat(mixed.unbind(dim), dim=-1), weights


# %%
words = x.clone().requires_grad_()                              # (n, e)
wide_q, wide_k, wide_v = (torch.cat(part, dim=1) for part in (w_q, w_k, w_v))
rows = []
for dim in (0, 1):
    parts = words @ wide_q, words @ wide_k, words @ wide_v      # (n, h * d)
    output, weights = attend_stacked(*parts, h, dim)
    (gradient,) = torch.autograd.grad(output[it].sum(), words)  # (n, e)
    rows.append(gradient.abs().sum(-1))
    print(f"dim={dim}: output {tuple(output.shape)}, weights {tuple(weights.shape)}")
one.show(["it reacts to, dim=0", "it reacts to, dim=1"], one.WORDS, torch.stack(rows))
assert rows[0].all()
assert rows[1].nonzero().tolist() == [[it]]

# %% [markdown]
# > **Pitfall.** The wrong axis keeps the shape of the output. The shape of the weights, `(n, h, h)`
# > instead of `(h, n, n)`, reveals the mistake, but most code throws the weights away. With `dim=0`
# > the row reacts to all eight words; with `dim=1` it reacts to its own word alone, and strongly
# > (4.40), because the whole row is made from this one word. Ask your own attention the same
# > question: *does the output react to the other words?*

# %% [markdown]
# <!-- deeper: could the heads stay in the middle? -->
# ### Going deeper: could the heads stay in the middle?
#
# The shape `(n, h, d)` is not wrong in itself. But `@` cannot work with it, because `@` always
# multiplies the last two axes. With `einsum` you name each axis, so h may stand anywhere. It gives
# the same scores:

# %%
q_middle = torch.stack(q.split(d, dim=-1), dim=1)           # (n, h, d)
k_middle = torch.stack(k.split(d, dim=-1), dim=1)           # (n, h, d)
by_name = torch.einsum("nhd,mhd->hnm", q_middle, k_middle)  # (h, n, n)
torch.testing.assert_close(by_name, scores)
print("einsum on (n, h, d) gives the same scores")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Back together, and what W_O is for
#
# After attention, the pieces go back side by side: take the heads apart along the first axis, and
# concatenate them along the features.


# %%
def unstack_and_concatenate(x: Tensor) -> Tensor:
    """Put the heads back side by side.

    Args:
        x: (h, n, d), one slice per head.
    """
    return torch.cat(x.unbind(0), dim=-1)  # (n, h * d)


merged = unstack_and_concatenate(mixed)  # (n, h * d)
assert torch.equal(unstack_and_concatenate(split_and_stack(x, h)), x)
print(tuple(mixed.shape), "->", tuple(merged.shape))
one.show(["the row of it"], one.FEATURES, merged[it, None])

# %% [markdown]
# In the row of *it*, the first two numbers come from the first head: *animal*, mostly from *cat*
# and *thirsty*, and *food*, mostly from *milk*. The last two come from the second head, which
# collects *quality*. If attention ended here, each head could write into its own d columns of the
# output and nowhere else. $W_O$ lifts this limit. Change what the second head has collected, and
# see which features of the output change: first with the identity matrix as $W_O$, then with a
# random one.

# %%
torch.manual_seed(3)
changed = mixed.clone()
changed[1] += 1
after = unstack_and_concatenate(changed)  # (n, h * d)
for name, w_o in (("identity", torch.eye(4)), ("random", torch.randn(4, 4))):
    difference = after @ w_o - merged @ w_o
    moved = difference.abs().amax(0) > 1e-6
    names = [feature for feature, change in zip(one.FEATURES, moved) if change]
    print(f"{name:>8} W_O, features that change:", ", ".join(names))

# %% [markdown]
# With $W_O$, of shape `(e, e)`, every head can write into every feature, and training decides where.
#
# ## The module
#
# Four matrices remain, and `forward` needs no loop: it attends once for all heads. As before, h has
# to divide the width e.


# %%
class SplitAndStack(nn.Module):
    """Several heads at once, by splitting and stacking."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(f"num_heads ({num_heads}) must divide embed_dim ({embed_dim})")
        self.num_heads, e = num_heads, embed_dim
        self.w_q = nn.Parameter(torch.empty(e, e))             # (e, e)
        self.w_k = nn.Parameter(torch.empty(e, e))             # (e, e)
        self.w_v = nn.Parameter(torch.empty(e, e))             # (e, e)
        self.w_o = nn.Parameter(torch.empty(e, e))             # (e, e)
        one.xavier(self)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from each query to every key."""
        q = split_and_stack(query @ self.w_q, self.num_heads)  # (h, n, d)
        k = split_and_stack(key @ self.w_k, self.num_heads)    # (h, m, d)
        v = split_and_stack(value @ self.w_v, self.num_heads)  # (h, m, d)
        mixed, weights = one.attend(q, k, v)                   # (h, n, d), (h, n, m)
        output = unstack_and_concatenate(mixed) @ self.w_o     # (n, e)
        return output, weights                                 # (n, e), (h, n, m)


# %% [markdown]
# Give the module the two heads from above, and the identity matrix as $W_O$. The module returns the
# same row for *it*.

# %%
module = SplitAndStack(embed_dim=4, num_heads=2)
with torch.no_grad():
    for name, parts in (("w_q", w_q), ("w_k", w_k), ("w_v", w_v)):
        getattr(module, name).copy_(torch.cat(parts, dim=1))
    module.w_o.copy_(torch.eye(4))

output, weights = module(x, x, x)  # (n, e), (h, n, n)
torch.testing.assert_close(output, merged)
one.show(["the row of it"], one.FEATURES, output[it, None])

# %% [markdown]
# ## What it saves
#
# Count matrices and products again, with the counter of [Two heads](02_two_heads.ipynb). A batched
# product is one call that does the work of h products.

# %%
long = torch.randn(64, 32)  # (64, 32)
print("       split and stack       a list of heads")
print("heads  matrices  products    matrices  products")
for count in (1, 2, 4, 8, 16):
    row = [count]
    for kind in (SplitAndStack, two.Heads):
        model = kind(embed_dim=32, num_heads=count)
        with two.Products() as products:
            model(long, long, long)
        row += [sum(1 for _ in model.parameters()), products.calls]
    print("{:5} {:9} {:9} {:11} {:9}".format(*row))
    assert row[1:] == [4, 6, 3 * count + 1, 5 * count + 1]

# %% [markdown]
# Four matrices and six products, whatever the number of heads: three products to project in, one
# for all scores, one to mix, and one for $W_O$. The arithmetic in them is the same as before. What
# you save is having to start many small pieces of work, one after the other.
# [Speed](13_speed.ipynb) measures how much time this saves.

# %% [markdown]
# <!-- deeper: the same as the list, the same as PyTorch -->
# ### Going deeper: the same as the list, the same as PyTorch
#
# Our example has as many queries as keys, and as many heads as each head has features. A swapped
# axis could hide behind such equal numbers. The comparison here uses sizes that all differ: 3
# queries, 5 keys, 4 heads of width 6. Load the matrices of a list of heads side by side, and
# compare outputs and weights.

# %%
torch.manual_seed(3)
listed = two.Heads(embed_dim=24, num_heads=4).double()
stacked = SplitAndStack(embed_dim=24, num_heads=4).double()
with torch.no_grad():
    for name in ("w_q", "w_k", "w_v"):
        parts = [getattr(head, name) for head in listed.heads]
        getattr(stacked, name).copy_(torch.cat(parts, dim=1))
    stacked.w_o.copy_(listed.w_o)

asking = torch.randn(3, 24, dtype=torch.float64, requires_grad=True)  # (3, 24)
asked = torch.randn(5, 24, dtype=torch.float64, requires_grad=True)   # (5, 24)
ours, our_weights = stacked(asking, asked, asked)                     # (3, 24), (4, 3, 5)
theirs, their_weights = listed(asking, asked, asked)                  # (3, 24), (4, 3, 5)
torch.testing.assert_close((ours, our_weights), (theirs, their_weights))
print("the same outputs and the same weights as the list of heads")

# %% [markdown]
# Next, compare the gradients of both inputs and of every matrix. A list of heads has a separate
# gradient for each small matrix, so put these side by side first.

# %%
mine = one.gradients(ours, [asking, asked, *stacked.parameters()])
separate = one.gradients(theirs, [asking, asked, *listed.parameters()])
of_asking, of_asked, of_o, *of_heads = separate  # the list has w_o first, then each head
side_by_side = [torch.cat(of_heads[part::3], dim=1) for part in range(3)]
torch.testing.assert_close(mine, (of_asking, of_asked, *side_by_side, of_o))
print(f"the same {len(mine)} gradients")

# %% [markdown]
# PyTorch's class stores $W_Q$, $W_K$ and $W_V$ in one matrix. Each of the three holds all heads
# side by side and is transposed. In [Two heads](02_two_heads.ipynb) the matrices had to be put into
# this order one by one. Now there are only three to put together.

# %%
torchs = nn.MultiheadAttention(24, 4, bias=False, dtype=torch.float64)
packed = [torchs.in_proj_weight, torchs.out_proj.weight]
with torch.no_grad():
    packed[0].copy_(torch.cat([stacked.w_q, stacked.w_k, stacked.w_v], dim=1).mT)
    packed[1].copy_(stacked.w_o.mT)

both = torchs(asking, asked, asked, average_attn_weights=False)  # (3, 24), (4, 3, 5)
ours, our_weights = stacked(asking, asked, asked)                # (3, 24), (4, 3, 5)
torch.testing.assert_close((ours, our_weights), both)
of_asking, of_asked, of_in, of_out = one.gradients(both[0], [asking, asked, *packed])
expected = (of_asking, of_asked, *(part.mT for part in of_in.chunk(3)), of_out.mT)
mine = one.gradients(ours, [asking, asked, *stacked.parameters()])
torch.testing.assert_close(mine, expected)
print(f"PyTorch: the same outputs, weights and {len(mine)} gradients")

# %% [markdown]
# One thing does change: how a fresh module starts. Xavier's choice depends on how many rows and
# columns a matrix has. It now sees one `(e, e)` matrix where it used to see h narrow ones, and
# draws smaller numbers. The scores at the start are therefore smaller, too:

# %%
fresh, old = SplitAndStack(512, 8), two.Heads(512, 8)
print(f"standard deviation of W_Q, all heads in one: {fresh.w_q.std():.3f}")
print(f"standard deviation of W_Q, head by head:     {old.heads[0].w_q.std():.3f}")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Exercises
#
# ### Whose columns?
#
# *Easy, 2 minutes.* A wide $W_Q$ is (24, 24) and holds h = 4 heads of width d = 6. Which columns
# belong to the third head? Write them as the two numbers of a slice: the head's first column,
# counted from 0, and the first column after its last.

# %% tags=["exercise"]
my_columns = (None, None)  # your two numbers here

# %%
from annotated_attention import exercises

exercises.split_and_stack.check_columns(my_columns)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Each head has d columns of its own, side by side. How many columns do the first two heads take up
# together?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The first head has the columns 0 to 5, which is the slice `0:6`.
#
# </details>

# %% tags=["solution"] jupyter={"source_hidden": true}
my_columns = (2 * 6, 3 * 6)

exercises.split_and_stack.check_columns(my_columns)

# %% [markdown]
# ### Silence a head
#
# *Easy, 5 minutes.* To find out what a head is good for, people switch it off. Return a copy of
# `w_o`, `(h * d, e)`, that keeps one head from contributing anything to the output. `head` is its
# index, so the first head is 0. The other heads contribute as before. `w_o` itself stays as it
# is, and gradients still reach its other rows.


# %% tags=["exercise"]
def silence(w_o: Tensor, head: int, num_heads: int) -> Tensor:
    """Take one head out of the output."""
    return None  # your lines here


# %%
exercises.split_and_stack.check_silence(silence)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The merged heads stand side by side, and their feature i meets row i of $W_O$. Which rows does
# the first head meet?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Each head meets d rows. $W_O$ has $h \cdot d$ rows, so `num_heads` tells you d.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `w_o.clone()` is a copy that gradients flow through. Write zeros into the head's block of rows in
# this copy.
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
def silence(w_o: Tensor, head: int, num_heads: int) -> Tensor:
    """Take one head out of the output.

    Args:
        w_o: (h * d, e), a block of d rows per head.
        head: its index, from 0.
        num_heads: how many there are.
    """
    d = w_o.size(0) // num_heads
    silent = w_o.clone()  # (h * d, e)
    silent[head * d : (head + 1) * d] = 0
    return silent


exercises.split_and_stack.check_silence(silence)

# %% [markdown]
# ### Pack for PyTorch
#
# *Medium, 10 minutes.* `heads` is a list of h triples `(w_q, w_k, w_v)`, all `(e, d)`, as in [Two
# heads](02_two_heads.ipynb). Pack them into one matrix as `nn.MultiheadAttention` stores them in
# `in_proj_weight`, `(3 * e, e)`: the queries of all heads, head by head, then the keys, then the
# values. PyTorch computes $XW^\top$ where we compute $XW$. Return a tensor through which gradients
# flow, without `nn.Parameter`.


# %% tags=["exercise"]
def pack(heads: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """Pack the matrices of all heads into one."""
    return None  # your lines here


# %%
exercises.split_and_stack.check_pack(pack)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Go by part, not by head: first collect the h matrices that make queries. `zip(*heads)` gives three
# tuples of h matrices.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Heads share the columns of a wide matrix, so concatenate along axis 1. That gives $W_Q$, `(e, e)`.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# $[W_Q\;W_K\;W_V]$ is `(e, 3 * e)`. `.mT` transposes it. A reshape only changes the shape.
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
def pack(heads: list[tuple[Tensor, Tensor, Tensor]]) -> Tensor:
    """Pack the matrices of all heads into one.

    Args:
        heads: the three matrices of each head, for queries, keys and values.
    """
    wide = [torch.cat(part, dim=1) for part in zip(*heads)]  # (e, e)
    return torch.cat(wide, dim=1).mT                         # (3 * e, e)


exercises.split_and_stack.check_pack(pack)

# %% [markdown]
# ## What you have now
#
# > **In short.**
# >
# > - project, all heads at once: `q = x @ w_q`, `(n, h * d)`
# > - split: `pieces = q.split(d, dim=-1)`, h pieces of `(n, d)`
# > - stack: `torch.stack(pieces)`, `(h, n, d)`
# > - attend, all heads at once: `attend(q, k, v)`, `(h, n, d)`
# > - merge: `torch.cat(mixed.unbind(0), dim=-1)`, `(n, h * d)`
# > - project out: `merged @ w_o`, `(n, e)`
# >
# > $X\,[\,W_1 \; \cdots \; W_h\,] = [\,XW_1 \; \cdots \; XW_h\,]$: the heads share the columns of
# > one matrix, so h is a setting and no longer visible in the parameters. The heads come first,
# > because `@` multiplies the last two axes. Four matrices and six products serve any number of
# > heads that divides the width.
#
# `torch.stack` and `torch.cat` copy what they are given into new memory, number by number. [The
# reshape trick](04_reshape_trick.ipynb) splits the heads without such a copy.
