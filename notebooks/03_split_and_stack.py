# %% [markdown]
# # Split and stack
#
# *All heads in one matrix: what keeps them apart?*
#
# *9 minutes and 7 of exercises. Afterwards you can keep all heads in one matrix and compute them
# all at once.*
#
# > the cat drank milk because **it** was thirsty
#
# The chapter [Two heads](02_two_heads.ipynb) ended with a list: eight heads have 25 matrices, and
# run 41 products one after the other. For the same numbers, four matrices and six products do, for
# eight heads or for eighty. Think of a wide sheet of paper with one strip per head. You fill in the
# whole sheet at once, cut it between the strips, and lay the strips in a stack.

# %% tags=["fold-input"]
import torch
from torch import Tensor, nn

from annotated_book import chapters, display

one = chapters.load("01_one_head")  # attend, the words and their features
two = chapters.load("02_two_heads")  # a pair of heads, and a list of any number

# %% [markdown]
# Our example is a pair of heads for the word *it*. Head 1 asks what is said about an animal, head 2 about a
# food. Here are their keys:

# %% tags=["hide-input"]
pair = torch.cat([w_k for _, w_k, _ in two.HEADS], dim=1)  # (e, h * d)
display.sheet_and_stack(one.EMBEDDINGS, pair, one.WORDS, name="sheet-and-stack")

# %% [markdown]
# Multiply once, split, stack. The first step makes every number; the other two only move paper, and look like
# tidying up. Which of the three makes two heads out of one?

# %% [markdown] name="one-matrix-holds-every-head"
# ## One matrix holds every head
#
# Column j of the product $XW$ depends on column j of $W$ and on no other. So put the matrices of all
# heads side by side, multiply once, and find each head's keys in its own columns:
#
# $$X\,[\,W_1 \; W_2 \; \cdots \; W_h\,] = [\,XW_1 \; XW_2 \; \cdots \; XW_h\,]$$

# %%
x, it = one.EMBEDDINGS, one.WORDS.index("it")
(q_1, k_1, v_1), (q_2, k_2, v_2) = two.HEADS
w_q = torch.cat([q_1, q_2], dim=1)  # (e, h * d)
w_k = torch.cat([k_1, k_2], dim=1)  # (e, h * d)
w_v = torch.cat([v_1, v_2], dim=1)  # (e, h * d)
k = x @ w_k                         # (n, e) x (e, h * d) -> (n, h * d)

# %% tags=["proof"]
assert torch.equal(k, torch.cat([x @ head[1] for head in two.HEADS], dim=1))
print("✓ The wide product holds the keys of both heads, number by number.")

# %% [markdown]
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
# One head after the other, *it* receives *quality* under *animal* if the last word is *thirsty*, and under
# *food* if it is *sweet*:

# %% tags=["fold-input"]
said = one.EMBEDDINGS, one.SWEET_EMBEDDINGS  # the sentence with thirsty, and with sweet
rows = torch.stack([two.two_heads(words)[0][it, :2] for words in said])  # (2, 2)
display.show(rows, ["it, thirsty", "it, sweet"], ["animal", "food"])

# %% [markdown]
# Now leave the scissors in the drawer. All queries lie in one sheet, all keys in another: score them as
# they are, one wide row against another. No shape complains. What does *it* receive with *thirsty* as the
# last word, and what with *sweet*?
#
# <details><summary>What do you expect?</summary>
#
# The same. A product of two wide rows adds up over all their columns, so each score is a sum over both heads.
# That leaves one row of weights, and both strips are collected with it.
#
# </details>

# %%
rows = []
for words in said:
    mixed, weights = one.attend(words @ w_q, words @ w_k, words @ w_v)  # (n, h * d), (n, n)
    rows.append(torch.cat([(mixed @ two.W_O)[it, :2], weights[it]]))
columns = ["animal", "food", *one.WORDS[:-1], "last word"]
display.show(torch.stack(rows), ["it, thirsty", "it, sweet"], columns, heat=columns[2:])

# %% tags=["proof"]
for word in (*one.WORDS, "sweet"):
    ending = one.embed([*one.WORDS[:-1], word])                      # (n, e)
    mixed, _ = one.attend(ending @ w_q, ending @ w_k, ending @ w_v)  # (n, h * d), (n, n)
    animal, food, *_ = (mixed @ two.W_O)[it]
    torch.testing.assert_close(animal, food)
torch.testing.assert_close(rows[0], rows[1])
print("✓ Whichever of the nine words comes last, animal and food are the same.")

# %% [markdown]
# Two equal rows, and 1.09 four times. Uncut, *cat* and *milk* fit equally well, 0.17 each, and the last word
# fits best, 0.46, be it *thirsty* or *sweet*. Uncut, the sheet is one head of width four. It is not the
# multiplication that makes two heads. It is the cut.
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


# %% [markdown]
# The operator `@` multiplies the last two axes. Any axes before them count as a batch of
# independent problems. The other steps of `attend` also count from the end: `.mT`, `softmax(-1)`,
# and `size(-1)`, which is now the width of a head, d = 2. So `attend` works unchanged for the whole
# stack, as long as the heads come first.

# %%
heads = [split_and_stack(x @ w, 2) for w in (w_q, w_k, w_v)]  # (h, n, d)
mixed, weights = one.attend(*heads)                           # (h, n, d), (h, n, n)
display.show(weights[:, it], ["it, head 1", "it, head 2"], one.WORDS, heat=True)

# %% [markdown]
# Two rows of weights again. Head 1 looks at *cat* and *thirsty*, head 2 at *milk*, with 0.80. The scissors
# have computed nothing, and they have made two heads out of one.

# %% tags=["proof"]
for head, matrices in enumerate(two.HEADS):
    alone = one.attend(*(x @ matrix for matrix in matrices))  # (8, 2), (8, 8)
    torch.testing.assert_close((mixed[head], weights[head]), alone)
print("✓ In the stack each head gets what it gets alone: weights and what it collects.")

# %% [markdown]
# ## The other way to stack
#
# Does it matter how the strips are stacked? `torch.stack(pieces, dim=1)` would put the heads in the middle,
# `(n, h, d)`: beside each word its strips. That looks just as tidy. Merge them along the same axis
# afterwards, and what does *it* receive: an error, another shape, or wrong numbers?
#
# <details><summary>What do you expect?</summary>
#
# Wrong numbers in the right shape. The last two axes are now (h, d), so `@` takes each word for a
# problem of its own: the two strips of *it* attend to each other, and no other word is there.
#
# </details>


# %% tags=["fold-input"]
def with_stack(dim, x, matrices):
    """Attend with the pair, its strips stacked along dim and merged along the same axis."""
    parts = (torch.stack((x @ w).split(2, dim=-1), dim) for w in matrices)
    mixed, _ = one.attend(*parts)
    return torch.cat(mixed.unbind(dim), dim=-1) @ two.W_O


wide = w_q, w_k, w_v
rows = [torch.cat([with_stack(dim, x, wide)[it, :2] for x in said]) for dim in (0, 1)]
columns = ["thirsty: animal", "food", "sweet: animal", "food"]
display.show(torch.stack(rows), ["dim=0", "dim=1"], columns)

# %% [markdown]
# The first row is the answer that you know. The second is a loud yes to everything: *it* hears nothing but its
# own *quality*, 1.00, from both strips. The cut makes the strips; the stack decides who hears whom.

# %% tags=["hide-input"]
display.stacks(
    one.WORDS, 2, ("dim=0: (h, n, d)", "dim=1: (n, h, d)"), name="who-shares-a-frame"
)

# %% tags=["proof"]
for dim in (0, 1):
    moved = []
    for word in range(8):
        changed = x.clone()
        changed[word] += torch.arange(4)
        gap = with_stack(dim, changed, wide)[it] - with_stack(dim, x, wide)[it]
        moved.append(gap.abs().max().item())
    assert all(moved) if dim == 0 else not any(moved[:it] + moved[it + 1 :])
stacked = [torch.stack((x @ w).split(2, dim=-1), 1) for w in wide]
assert one.attend(*stacked)[1].shape == (8, 2, 2)
print("✓ With dim=0 each word moves the row of “it”, with dim=1 no other word does.")

# %% [markdown]
# > **Pitfall.** With `dim=1` no word hears another, and the output has the right shape; only the weights,
# > `(n, h, h)`, would tell. To catch this in any code, change one word and see whether other rows move.
#
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


merged = unstack_and_concatenate(mixed)  # (n, h * d)
rows = torch.stack([merged, merged @ two.W_O])[:, it]
display.show(rows, ["it, merged", "it, times W_O"], ["1st", "2nd", "3rd", "4th"])

# %% [markdown]
# The first strip of the merged row is head 1's: 0.97 of *quality*, and a column that stays empty. The second
# strip is head 2's, with 0.19 of *quality*. If attention ended here, each head could write into its
# own d columns of the output and nowhere else. $W_O$, of shape `(e, e)`, lets every head write into every
# feature. Ours takes the two qualities, and moves the one of head 2 from the third place to the second, under
# *food*; in training, the model finds out what goes where.
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
# Eight heads took 41 products, and take six now. How much of the multiplying does that save? PyTorch can report
# every operation that it runs, so count for the list of the last chapter and for the stack.

# %% tags=["fold-input"]
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode


class Products(TorchDispatchMode):
    """Counts the matrix products that run inside its ``with`` block."""

    calls = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.calls += operation in (torch.ops.aten.mm.default, torch.ops.aten.bmm.default)
        return operation(*args, **(kwargs or {}))


long, counts = torch.randn(64, 32), {}
for heads in (1, 2, 8):
    calls, work = [], set()
    for kind in (two.Heads, SplitAndStack):
        module = kind(embed_dim=32, num_heads=heads)
        with Products() as products, FlopCounterMode(display=False) as counter:
            module(long, long, long)
        calls.append(products.calls)
        work.add(counter.get_total_flops() // 2)  # a product and a sum each
    (each,) = work
    counts[f"h = {heads}"] = [*calls, each]
columns = ["products, list", "products, stack", "multiplications, either"]
display.show(counts, columns=columns)

# %% [markdown]
# Nothing. Six large calls do the multiplying of 41 small ones: three to project in, one for all scores, one to
# mix, and one for $W_O$. What is saved is the calls, and each has a fixed cost; [Speed](15_speed.ipynb) measures
# how much time that is.
#
# So the stack is the list, as long as both hold the same numbers: one model. What differs is where each begins.

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
# List and stack both ask `xavier_uniform_` for their first numbers. Do they have the same standard deviation at
# initialisation? (PyTorch keeps its matrix transposed, so it is turned here.)

# %%
initial = {
    "one of 8 heads": two.Heads(512, 8).heads[0].w_q,
    "8 heads side by side": SplitAndStack(512, 8).w_q,
    "PyTorch's, with K and V": nn.MultiheadAttention(512, 8).in_proj_weight.mT,
    "a single head": two.Heads(512, 1).heads[0].w_q,
}
sizes = {name: [str(tuple(matrix.shape)), matrix.std()] for name, matrix in initial.items()}
display.show(sizes, columns=["shape", "standard deviation"], decimals=3)

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
# > one matrix, and h is a setting that says where to cut. The cut makes the heads: uncut, the sheet is one
# > wide head. In the stack they come first, because `@` multiplies the last two axes. Four matrices and six
# > products serve any number of heads that divides the width.
#
# `torch.stack` and `torch.cat` copy what they are given into new memory, number by number. The
# chapter [The reshape trick](04_reshape_trick.ipynb) splits the heads without such a copy.
