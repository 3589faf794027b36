# %% [markdown]
# # Split and stack
#
# *Does every head need matrices of its own?*
#
# *9 minutes and 7 of exercises. Afterwards you can keep all heads in one matrix and compute them
# all at once.*
#
# > the cat drank milk because **it** was thirsty
#
# The chapter [Two heads](02_two_heads.ipynb) ended with a list: each head has three small matrices,
# and the heads run one after the other. Eight heads have $3 \cdot 8 + 1 = 25$ matrices and take
# $5 \cdot 8 + 1 = 41$ products. In this chapter they share four matrices and six products.
#
# Think of a wide sheet of paper with one strip per head. You fill in the whole sheet at once, cut
# it between the strips, and lay the strips in a stack. The three steps are: multiply once, split,
# stack. The numbers are exactly the ones that the list of heads gave.

# %% tags=["hide-input"]
from annotated_book import display

display.chapter_map(
    "project in", "split", "score", "softmax", "mix", "merge", "project out"
)

# %% [markdown]
# In the strip, compare *project in* with *split*: this cut is the idea of the chapter.
#
# ## The two heads again
#
# Take the pair of heads from the last chapter. One asks whether something is said about an animal,
# the other asks the same about food. Run them one after the other, and look at the row of *it*.

# %%
import torch
from torch import Tensor, nn

from annotated_book import chapters

one = chapters.load("01_one_head")
two = chapters.load("02_two_heads")

x, it = one.EMBEDDINGS, one.WORDS.index("it")
by_turns = [one.attend(x @ w_q, x @ w_k, x @ w_v) for w_q, w_k, w_v in two.HEADS]
rows = torch.stack([weights[it] for _, weights in by_turns])  # (h, n)
one.show(["head 1", "head 2"], one.WORDS, rows)

# %% [markdown] name="one-matrix-holds-every-head"
# ## One matrix holds every head
#
# Column j of the product $XW$ depends on column j of $W$ and on no other column. You can therefore
# put the matrices of all heads side by side, multiply once, and find each head's keys in its own
# columns:
#
# $$X\,[\,W_1 \; W_2 \; \cdots \; W_h\,] = [\,XW_1 \; XW_2 \; \cdots \; XW_h\,]$$

# %%
# zip gives all W_Q, then all W_K, then all W_V.
w_q, w_k, w_v = (torch.cat(matrices, dim=1) for matrices in zip(*two.HEADS))
k = x @ w_k  # (n, e) x (e, h * d) -> (n, h * d)

assert torch.equal(k, torch.cat([x @ head[1] for head in two.HEADS], dim=1))
print(tuple(x.shape), "x", tuple(w_k.shape), "->", tuple(k.shape))

# %% tags=["fold-input"]
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
# The figure shows the whole product. The first two columns of $K$ are the keys for head 1, an
# animal and a quality; the last two are those for head 2, a food and a quality. The dark lines show
# where $K$ will be cut. Follow one column: the last column of $W_K$ goes into the last column of
# $K$ and into no other.

# %% tags=["fold-input"]
drawing, axes = display.panels(430, 250, columns=3)
draw_matrix(axes[0], x, "X", one.WORDS, "n")
draw_matrix(axes[1], w_k, "W_K", one.FEATURES, "h")
draw_matrix(axes[2], k, "K = X W_K", one.WORDS, "h")
for ax, rows in zip(axes[1:], (4, 8)):
    ax.add_patch(Rectangle((1.95, -0.3), 0.1, rows + 0.5, color="black", linewidth=0))
    for head in (1, 2):
        place = {"ha": "center", "color": display.COLOURS["h"]}
        ax.text(2 * head - 1, -0.4, f"head {head}", **place)
display.finish(
    drawing,
    name="columns-by-head",
    alt=(
        "Three matrices: X with a row per word, W_K with a "
        "row per feature, and their product "
        "K with a row per word. The first two columns of "
        "W_K and of K belong to head 1, the "
        f"others to head 2. Row it of K: {', '.join(f'{number:.0f}' for number in k[it])}."
    ),
)

# %% [markdown]
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
#
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


wide = torch.randn(5, 24)  # (5, 24)
print("4 heads of width 6:", tuple(wide.shape), "->", tuple(split_and_stack(wide, 4).shape))
k_heads = split_and_stack(k, 2)  # (2, 8, 2)
one.show(["cat, head 1", "cat, head 2"], ["1st", "2nd"], k_heads[:, 1], digits=0)

# %% [markdown]
# The heads now come first: `k_heads[0]` is the whole first head, eight words with two numbers each.
#
# ## One product for all heads
#
# The operator `@` multiplies the last two axes. Any axes before them count as a batch of
# independent problems. The other steps of `attend` from [One head](01_one_head.ipynb) also count
# from the end: `.mT`, `softmax(-1)`, and `size(-1)`, which is now the width of a head, d = 2. So
# `attend` works unchanged for all heads together, as long as the heads come first.

# %%
q_heads, v_heads = (split_and_stack(x @ w, 2) for w in (w_q, w_v))  # (2, 8, 2)
mixed, weights = one.attend(q_heads, k_heads, v_heads)              # (2, 8, 2), (2, 8, 8)
for head, (of_head, its_weights) in enumerate(by_turns):
    torch.testing.assert_close((mixed[head], weights[head]), (of_head, its_weights))
print("the same: collected", tuple(mixed.shape), "and weights", tuple(weights.shape))

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


merged = unstack_and_concatenate(mixed)  # (8, 4)
assert torch.equal(unstack_and_concatenate(split_and_stack(wide, 4)), wide)
print(tuple(mixed.shape), "->", tuple(merged.shape))
columns = ["quality", "animal", "quality", "food"]
one.show(["it, merged"], columns, merged[[it]])
one.show(["it, times W_O"], one.FEATURES, (merged @ two.W_O)[[it]])

# %% [markdown]
# In the merged row, the first two numbers come from head 1 and the last two from head 2. If
# attention ended here, each head could write into its own d columns of the output and nowhere else.
# $W_O$, of shape `(e, e)`, lets every head write into every feature. Ours writes the second head's
# quality, the third number, under *food*; in training, the model finds out what goes where.

# %% [markdown]
# > **Pitfall.** `torch.stack(pieces, dim=1)` puts the heads in the middle, `(n, h, d)`. If you
# > stack *and* merge along this axis, with as many queries as keys, the output has the right shape.
# > Yet `@` then treats each word as a separate problem: the heads of one word attend to each other,
# > and no word sees another word. To catch it, change one word and see whether the other rows
# > change.

# %% [markdown]
# <!-- deeper: What the wrong axis reacts to -->
# ### Going deeper: What the wrong axis reacts to
#
# Stack and merge along the same axis, once `dim=0` and once `dim=1`, and ask autograd, with eight
# words and three heads of width 4. The table shows the size of the gradient of the row of *it* with
# respect to each word; 0 means no influence.


# %%
def attend_stacked(
    q: Tensor, k: Tensor, v: Tensor, num_heads: int, dim: int
) -> tuple[Tensor, Tensor]:
    """Stack the heads along ``dim``, attend, and merge them along the same axis."""
    width = q.size(-1) // num_heads
    q, k, v = (torch.stack(each.split(width, dim=-1), dim) for each in (q, k, v))
    mixed, weights = one.attend(q, k, v)
    return torch.cat(mixed.unbind(dim), dim=-1), weights


torch.manual_seed(0)
rows, words = [], torch.randn(8, 12, requires_grad=True)
for dim in (0, 1):
    output, weights = attend_stacked(words, words, words, 3, dim)
    (gradient,) = torch.autograd.grad(output[it].sum(), words)  # (8, 12)
    rows.append(gradient.abs().sum(-1))
    print(f"dim={dim}: output {tuple(output.shape)}, weights {tuple(weights.shape)}")
one.show(["it reacts to, dim=0", "it reacts to, dim=1"], one.WORDS, torch.stack(rows))
assert rows[0].all()
assert rows[1].nonzero().tolist() == [[it]]

# %% [markdown]
# The outputs have the same shape. Only the shape of the weights, `(n, h, h)` instead of `(h, n,
# n)`, gives the mistake away, and most code throws the weights away.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
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
        self.num_heads = num_heads
        self.w_q = nn.Parameter(torch.empty(embed_dim, embed_dim))  # (e, e)
        self.w_k = nn.Parameter(torch.empty(embed_dim, embed_dim))  # (e, e)
        self.w_v = nn.Parameter(torch.empty(embed_dim, embed_dim))  # (e, e)
        self.w_o = nn.Parameter(torch.empty(embed_dim, embed_dim))  # (e, e)
        for matrix in self.parameters():
            nn.init.xavier_uniform_(matrix)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from each query to every key."""
        q = split_and_stack(query @ self.w_q, self.num_heads)      # (h, n, d)
        k = split_and_stack(key @ self.w_k, self.num_heads)        # (h, m, d)
        v = split_and_stack(value @ self.w_v, self.num_heads)      # (h, m, d)
        mixed, weights = one.attend(q, k, v)                       # (h, n, d), (h, n, m)
        return unstack_and_concatenate(mixed) @ self.w_o, weights  # (n, e), (h, n, m)


# %% [markdown]
# Give the module the matrices of the pair, and it returns what `two_heads` returned.

# %%
module = SplitAndStack(embed_dim=4, num_heads=2)
with torch.no_grad():
    for parameter, matrix in zip(module.parameters(), (w_q, w_k, w_v, two.W_O)):
        parameter.copy_(matrix)

output, weights = module(x, x, x)  # (8, 4), (2, 8, 8)
torch.testing.assert_close((output, weights), two.two_heads(x))
print("the same: output", tuple(output.shape), "and weights", tuple(weights.shape))

# %% [markdown]
# ## What it saves
#
# A list of heads takes $3h + 1$ matrices and $5h + 1$ products. Now there are four matrices and six
# products, whatever h is: three to project in, one for all scores, one to mix, and one for $W_O$.
# With eight heads, the same multiplications are done in six large calls instead of 41 small ones,
# and each call has a fixed cost. The chapter [Speed](13_speed.ipynb) measures how much time this
# saves.

# %% [markdown]
# <!-- deeper: Counted -->
# ### Going deeper: Counted
#
# PyTorch can report every operation that it runs. A product of stacks is one call that does the
# work of h products.

# %%
from torch.utils._python_dispatch import TorchDispatchMode


class Products(TorchDispatchMode):
    """Counts the matrix products that run inside its ``with`` block."""

    calls = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.calls += operation in (torch.ops.aten.mm.default, torch.ops.aten.bmm.default)
        return operation(*args, **(kwargs or {}))


long = torch.randn(64, 32)  # (64, 32)
for h in (1, 2, 8):
    for kind, expected in ((SplitAndStack, 6), (two.Heads, 5 * h + 1)):
        with Products() as products:
            kind(embed_dim=32, num_heads=h)(long, long, long)
        assert products.calls == expected
        print(f"{h} heads, {kind.__name__}: {products.calls} products")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# <!-- deeper: the same as the list, the same as PyTorch -->
# ### Going deeper: the same as the list, the same as PyTorch
#
# The comparison uses sizes that all differ: 3 queries, 5 keys, 4 heads of width 6. Load the
# matrices of a list of heads side by side, and compare outputs, weights and gradients.

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

# %%
mine = one.gradients(ours, [asking, asked, *stacked.parameters()])
separate = one.gradients(theirs, [asking, asked, *listed.parameters()])
of_asking, of_asked, of_o, *of_heads = separate  # the list has w_o first, then each head
side_by_side = [torch.cat(of_heads[part::3], dim=1) for part in range(3)]
torch.testing.assert_close(mine, (of_asking, of_asked, *side_by_side, of_o))
print(f"the list: the same outputs, weights and {len(mine)} gradients")

# %% [markdown]
# PyTorch's class stores $W_Q$, $W_K$ and $W_V$ in one matrix, after transposing each one.

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
from annotated_book import exercises

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

# %% tags=["solution"]
my_columns = (2 * 6, 3 * 6)

exercises.split_and_stack.check_columns.folded(my_columns)

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


# %% tags=["solution"]
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


exercises.split_and_stack.check_silence.folded(silence)

# %% [markdown]
# ## What you have now
#
# > **In short.** Project once for all heads, cut the wide rows into pieces, and attend to the whole
# > stack of pieces at once:
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
# `torch.stack` and `torch.cat` copy what they are given into new memory, number by number. The
# chapter [The reshape trick](04_reshape_trick.ipynb) splits the heads without such a copy.
