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
# The chapter [Two heads](02_two_heads.ipynb) ended with a list: eight heads have 25 matrices, and
# run 41 products one after the other. For the same numbers, four matrices and six products do, for
# eight heads or for eighty. Think of a wide sheet of paper with one strip per head. You fill in the
# whole sheet at once, cut it between the strips, and lay the strips in a stack. Multiply once, split,
# stack. This is the whole way of *it*:

# %% tags=["hide-input"]
import math

import torch
from torch import Tensor, nn

from annotated_book import chapters, display

one = chapters.load("01_one_head")
two = chapters.load("02_two_heads")
display.whole_way(name="from-row-to-row")

# %% [markdown] name="one-matrix-holds-every-head"
# ## One matrix holds every head
#
# Column j of the product $XW$ depends on column j of $W$ and on no other. So put the matrices of all
# heads side by side, multiply once, and find each head's keys in its own columns:
#
# $$X\,[\,W_1 \; W_2 \; \cdots \; W_h\,] = [\,XW_1 \; XW_2 \; \cdots \; XW_h\,]$$
#
# Take the pair of heads from the last chapter, one for what is said about an animal and one for a
# food.

# %%
x, it = one.EMBEDDINGS, one.WORDS.index("it")
(q_1, k_1, v_1), (q_2, k_2, v_2) = two.HEADS
w_q = torch.cat([q_1, q_2], dim=1)  # (e, h * d)
w_k = torch.cat([k_1, k_2], dim=1)  # (e, h * d)
w_v = torch.cat([v_1, v_2], dim=1)  # (e, h * d)
k = x @ w_k                         # (n, e) x (e, h * d) -> (n, h * d)

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


drawing, axes = display.panels(520, 300, columns=3)
draw_matrix(axes[0], x, "X", one.WORDS, "n")
draw_matrix(axes[1], w_k, "W_K", one.FEATURES, "h")
draw_matrix(axes[2], k, "K = X W_K", one.WORDS, "h")
for ax, rows in zip(axes[1:], (4, 8)):
    ax.add_patch(Rectangle((1.95, -0.3), 0.1, rows + 0.5, color="black", linewidth=0))
    for head in (1, 2):
        ax.text(2 * head - 1, -0.4, f"head {head}", ha="center", color=display.COLOURS["h"])
told = ", ".join(f"{number:.0f}" for number in k[it])
alt = f"X times W_K is K. Two columns are head 1, two are head 2. Row it of K: {told}."
display.finish(drawing, name="columns-by-head", alt=alt)

# %% tags=["proof"]
assert torch.equal(k, torch.cat([x @ head[1] for head in two.HEADS], dim=1))
print("✓ The wide product holds the keys of both heads, number by number.")

# %% [markdown]
# The first two columns of $K$ are the keys for head 1, an animal and a quality; the last two are
# those for head 2, a food and a quality. The dark lines show where the sheet will be cut.
#
# A model of width e gives each of its h heads d = e / h columns, so that the strips side by side are
# as wide as the model. In a model of width 24, what is the shape of the wide $W_Q$ with 2 heads, with
# 4, and with 8?
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
# ## Why cut at all?
#
# All queries lie in one sheet, all keys in another. So score them as they are, one wide row against
# another, and spare yourself the scissors. What does *it* receive?
#
# <details><summary>What do you expect?</summary>
#
# Every shape fits. But a product of wide rows adds up over all their columns, so the scores of the two heads are
# added, and there is one set of weights. Both questions are answered with it, and get the same answer.
#
# </details>

# %%
uncut = []
for words in (one.EMBEDDINGS, one.SWEET_EMBEDDINGS):
    mixed, _ = one.attend(words @ w_q, words @ w_k, words @ w_v)  # (n, h * d), (n, n)
    uncut.append((mixed @ two.W_O)[it])
display.show(torch.stack(uncut), ["it, thirsty", "it, sweet"], one.FEATURES)

# %% tags=["proof"]
for word in (*one.WORDS, "sweet"):
    ending = one.embed([*one.WORDS[:-1], word])                      # (n, e)
    mixed, _ = one.attend(ending @ w_q, ending @ w_k, ending @ w_v)  # (n, h * d), (n, n)
    animal, food, *_ = (mixed @ two.W_O)[it]
    torch.testing.assert_close(animal, food)
print("✓ Whichever of the nine words comes last, animal and food are the same.")

# %% [markdown]
# Both sentences say 1.09 to both questions. One set of weights serves both: whatever the last word is, *it* collects
# one amount of quality, and writes that under animal and under food alike. Two sets of weights are what two heads
# are for, and the cut keeps them apart.
#
# ## Split, then stack
#
# Two PyTorch functions do it. `torch.split` cuts the wide rows into pieces of d columns each.
# `torch.stack` lays the pieces on top of each other, along a new first axis.


# %%
def split_and_stack(x: Tensor, num_heads: int) -> Tensor:
    """Cut the features into heads, and stack the heads.

    Args:
        x: (n, h * d), one row per word.
        num_heads: h, the number of heads.
    """
    pieces = x.split(x.size(-1) // num_heads, dim=-1)  # h times (n, d)
    return torch.stack(pieces)                         # (h, n, d)


k_heads = split_and_stack(k, 2)  # (2, 8, 2)
display.show(k_heads[:, 1], ["cat, head 1", "cat, head 2"], ["1st", "2nd"], decimals=0)

# %% [markdown]
# The heads now come first: `k_heads[0]` is the whole first strip.
#
# The operator `@` multiplies the last two axes. Any axes before them count as a batch of
# independent problems. The other steps of `attend` also count from the end: `.mT`, `softmax(-1)`,
# and `size(-1)`, which is now the width of a head, d = 2. So `attend` works unchanged for the whole
# stack, as long as the heads come first.

# %%
q_heads, v_heads = (split_and_stack(x @ w, 2) for w in (w_q, w_v))  # (2, 8, 2)
mixed, weights = one.attend(q_heads, k_heads, v_heads)              # (2, 8, 2), (2, 8, 8)
display.show(weights[:, it], ["it, head 1", "it, head 2"], one.WORDS, heat=True)

# %% tags=["proof"]
for head, matrices in enumerate(two.HEADS):
    alone = one.attend(*(x @ matrix for matrix in matrices))  # (8, 2), (8, 8)
    torch.testing.assert_close((mixed[head], weights[head]), alone)
print("✓ In the stack each head gets what it gets alone: weights and what it collects.")

# %% [markdown]
# ## The other way to stack
#
# `torch.stack(pieces, dim=1)` would put the heads in the middle, `(n, h, d)`: beside each word its
# strips. That looks just as tidy. The figure shows which pieces then attend to one another.

# %% tags=["hide-input"]
display.stacks(
    one.WORDS, 2, ("dim=0: (h, n, d)", "dim=1: (n, h, d)"), name="who-shares-a-frame"
)

# %% [markdown]
# With the heads in the middle, `@` treats each word as a problem of its own, a frame in the lower
# drawing. The two heads of *it* attend to each other, and *it* sees no other word. Would you notice?
# If you merge along the same axis, the output has the right shape. So ask autograd, with three heads
# on eight words of random numbers: how strongly, in shares, does the output row of *it* react to each?


# %% tags=["fold-input"]
def attend_stacked(
    q: Tensor, k: Tensor, v: Tensor, num_heads: int, dim: int
) -> tuple[Tensor, Tensor]:
    """Stack the heads along ``dim``, attend, and merge them along the same axis."""
    width = q.size(-1) // num_heads
    q, k, v = (torch.stack(each.split(width, dim=-1), dim) for each in (q, k, v))
    mixed, weights = one.attend(q, k, v)
    return torch.cat(mixed.unbind(dim), dim=-1), weights


torch.manual_seed(0)
reacts, inputs = [], torch.randn(8, 12, requires_grad=True)
for dim in (0, 1):
    output, _ = attend_stacked(inputs, inputs, inputs, 3, dim)
    (gradient,) = torch.autograd.grad(output[it].sum(), inputs)  # (8, 12)
    sizes = gradient.abs().sum(-1)                               # (8,)
    reacts.append(sizes / sizes.sum())
display.show(torch.stack(reacts), ["dim=0", "dim=1"], one.WORDS, heat=True)

# %% [markdown]
# > **Pitfall.** With `dim=1` seven of the eight numbers are exactly 0: *it* hears nobody but itself.
# > To catch this in any code, change the first word and see whether the other rows move.
#
# (With `dim=0`, *it* hears itself most mainly because here query and key are equal.)

# %% tags=["proof"]
assert reacts[0].all()
assert reacts[1].nonzero().tolist() == [[it]]
same, across = (attend_stacked(inputs, inputs, inputs, 3, dim) for dim in (0, 1))
assert same[0].shape == across[0].shape == inputs.shape
assert (tuple(same[1].shape), tuple(across[1].shape)) == ((3, 8, 8), (8, 3, 3))
print("✓ The outputs have one shape; only the weights, (n, h, h), tell of it.")

# %% [markdown]
# ## Back together, and what W_O is for
#
# After attention the strips go back side by side: take the stack apart along the first axis, and
# concatenate along the features.


# %%
def unstack_and_concatenate(x: Tensor) -> Tensor:
    """Put the heads back side by side.

    Args:
        x: (h, n, d), one slice per head.
    """
    return torch.cat(x.unbind(0), dim=-1)  # (n, h * d)


merged = unstack_and_concatenate(mixed)                        # (8, 4)
spare = merged[it] * torch.tensor([1, math.nan, 1, math.nan])  # (4,), not shown
rows = [[None if x != x else x for x in spare.tolist()], (merged @ two.W_O)[it].tolist()]
display.show(rows, ["it, merged", "it, times W_O"], ["1st", "2nd", "3rd", "4th"])

# %% [markdown]
# In the merged row, the first two numbers come from head 1: the quality that it has collected, 0.97,
# and a spare that nobody reads (left out in the table). The last two come from head 2. If attention ended here, each head
# could write into its own d columns of the output and nowhere else. $W_O$, of shape `(e, e)`, lets
# every head write into every feature. Ours moves the quality of head 2, 0.19, from the third place to
# the second, under *food*; in training, the model finds out what goes where.
#
# ## The module
#
# Four matrices remain, and `forward` needs no loop: it attends once for all heads.


# %%
class SplitAndStack(nn.Module):
    """Several heads at once, by splitting and stacking."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(f"num_heads ({num_heads}) must divide embed_dim ({embed_dim})")
        self.num_heads = num_heads
        matrices = [nn.Parameter(torch.empty(embed_dim, embed_dim)) for _ in range(4)]
        self.w_q, self.w_k, self.w_v, self.w_o = map(nn.init.xavier_uniform_, matrices)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from each query to every key."""
        wide = query @ self.w_q, key @ self.w_k, value @ self.w_v  # (n, e), (m, e), (m, e)
        mixed, weights = one.attend(*(split_and_stack(x, self.num_heads) for x in wide))
        return unstack_and_concatenate(mixed) @ self.w_o, weights  # (n, e), (h, n, m)


# %% tags=["proof"]
module = SplitAndStack(embed_dim=4, num_heads=2)
for parameter, matrix in zip(module.parameters(), (w_q, w_k, w_v, two.W_O)):
    parameter.data = matrix
torch.testing.assert_close(module(x, x, x), two.two_heads(x))
print("✓ With the matrices of the pair, the module returns what two_heads returned.")

# %% [markdown]
# What is saved? Not work: every multiplication is still done. PyTorch can report every operation
# that it runs, so count the matrix products, of the list from the last chapter and of the stack.

# %% tags=["fold-input"]
from torch.utils._python_dispatch import TorchDispatchMode


class Products(TorchDispatchMode):
    """Counts the matrix products that run inside its ``with`` block."""

    calls = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.calls += operation in (torch.ops.aten.mm.default, torch.ops.aten.bmm.default)
        return operation(*args, **(kwargs or {}))


long, counts = torch.randn(64, 32), []
for heads in (1, 2, 8):
    for kind in (two.Heads, SplitAndStack):
        with Products() as products:
            kind(embed_dim=32, num_heads=heads)(long, long, long)
        counts.append(products.calls)
table = torch.tensor(counts).view(3, 2)
display.show(table, ["1 head", "2 heads", "8 heads"], ["a list", "a stack"], decimals=0)

# %% [markdown]
# Six large calls instead of 41 small ones: three to project in, one for all scores, one to mix, and
# one for $W_O$, whatever h is. Each call has a fixed cost, and [Speed](15_speed.ipynb) measures how
# much time that is.
#
# So the stack is the list, as long as both hold the same numbers: one model. What differs is where each begins, as
# the fold below measures.

# %% tags=["proof"]
torch.manual_seed(3)
listed = two.Heads(embed_dim=24, num_heads=4).double()
stacked = SplitAndStack(embed_dim=24, num_heads=4).double()
for name in ("w_q", "w_k", "w_v"):
    side_by_side = torch.cat([getattr(head, name) for head in listed.heads], dim=1)
    getattr(stacked, name).data = side_by_side.detach()
stacked.w_o.data = listed.w_o.detach().clone()
asking = torch.randn(3, 24, dtype=torch.float64, requires_grad=True)  # (3, 24)
asked = torch.randn(5, 24, dtype=torch.float64, requires_grad=True)   # (5, 24)
ours, our_weights = stacked(asking, asked, asked)                     # (3, 24), (4, 3, 5)
theirs, their_weights = listed(asking, asked, asked)                  # (3, 24), (4, 3, 5)
torch.testing.assert_close((ours, our_weights), (theirs, their_weights))
mine = one.gradients(ours, [asking, asked, *stacked.parameters()])
separate = one.gradients(theirs, [asking, asked, *listed.parameters()])
of_asking, of_asked, of_o, *of_heads = separate  # the list has w_o first, then each head
together = [torch.cat(of_heads[part::3], dim=1) for part in range(3)]
torch.testing.assert_close(mine, (of_asking, of_asked, *together, of_o))
print("✓ The stack is the list: the same outputs, weights and gradients.")

# %% tags=["proof"]
torchs = nn.MultiheadAttention(24, 4, bias=False, dtype=torch.float64)
packed = [torchs.in_proj_weight, torchs.out_proj.weight]  # PyTorch stores them transposed
packed[0].data = torch.cat([stacked.w_q, stacked.w_k, stacked.w_v], dim=1).mT.detach()
packed[1].data = stacked.w_o.mT.detach()
both = torchs(asking, asked, asked, average_attn_weights=False)  # (3, 24), (4, 3, 5)
torch.testing.assert_close((ours, our_weights), both)
of_asking, of_asked, of_in, of_out = one.gradients(both[0], [asking, asked, *packed])
expected = (of_asking, of_asked, *(part.mT for part in of_in.chunk(3)), of_out.mT)
torch.testing.assert_close(mine, expected)
print("✓ It is what nn.MultiheadAttention computes, gradients included.")

# %% [markdown]
# <!-- deeper: one model, several starting points -->
# ### Going deeper: one model, several starting points
#
# List and stack both ask `xavier_uniform_` for their first numbers. Are they born alike? (The size is the
# standard deviation; PyTorch keeps its matrix transposed, so it is turned here.)

# %%
born = {
    "one of 8 heads": two.Heads(512, 8).heads[0].w_q,
    "8 heads side by side": SplitAndStack(512, 8).w_q,
    "PyTorch's, with K and V": nn.MultiheadAttention(512, 8).in_proj_weight.mT,
    "a single head": two.Heads(512, 1).heads[0].w_q,
}
sizes = {name: [str(tuple(matrix.shape)), matrix.std()] for name, matrix in born.items()}
display.show(sizes, columns=["shape", "size at birth"], decimals=3)

# %% [markdown]
# With several heads they are not. Xavier looks at the shape of a matrix, and the shape does not say how many heads
# lie in it. The wider the matrix, the smaller its numbers: 0.059 for a head on its own, 0.044 in the wide matrix, and
# 0.031 where PyTorch packs three of these into one. With one head there is one matrix, and list and stack begin alike.

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
my_columns = (None, None)  # its first column, the first after its last

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
# index, so the first head is 0. The other heads contribute as before. `w_o` itself stays as it is,
# and gradients still reach its other rows.


# %% tags=["exercise"]
def silence(w_o: Tensor, head: int, num_heads: int) -> Tensor:
    """Take one head out of the output."""
    return None  # your lines here


# %%
exercises.split_and_stack.check_silence(silence)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The merged heads stand side by side, and their feature i meets row i of $W_O$. Which rows does the
# first head meet?
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
