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
# run 41 products one after the other. Four matrices and six products give the same numbers, for
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
# Multiply once, split, stack. The first step makes every number. The other two only move paper, and look like
# tidying up. Could you leave out the cut? And does it matter how you stack?

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
k = x @ w_k                         # (n, h * d)

# %% tags=["proof"]
assert torch.equal(k, torch.cat([x @ head[1] for head in two.HEADS], dim=1))
print("✓ The wide product holds the keys of both heads, number by number.")

# %% [markdown]
# Usually each of the h heads gets d = e / h columns, so that the strips side by side are as wide as the model.
# (That is a habit and not a law. Some models of today choose d freely, and $W_O$ brings h · d columns back to e.)
# The number of heads is no longer visible in the parameters. It has become a setting that says
# where to cut.
#
# ## Why cut at all?
#
# Leave the scissors in the drawer. All queries lie in one sheet, all keys in another: score them as
# they are, one wide row against another. No shape complains. How many rows of weights does *it* get?
#
# <details><summary>What do you expect?</summary>
#
# One. The product of two wide rows adds up over all their columns, so each key gets a single score: the sum of
# the scores of both heads.
#
# </details>
#
# Here the query of *it* lies over the keys of four words. Uncut, each row of products becomes one sum; cut at the
# dashed line, it becomes two.

# %% tags=["hide-input"]
asked = one.embed(["cat", "milk", "thirsty", "sweet"])  # (4, e)
display.two_sums(
    (x @ w_q)[it], asked @ w_k, "it", ["cat", "milk", "thirsty", "sweet"], name="two-sums"
)

# %% [markdown]
# Cut, head 1 gives *cat* 6 and *milk* 0, and head 2 the reverse. Uncut, both words get 6: the one row of weights
# cannot say for whom *it* looks. And what does *it* receive?

# %% tags=["hide-input"]
said = {"thirsty": one.EMBEDDINGS, "sweet": one.SWEET_EMBEDDINGS}
rows = {f"cut, {word}": two.two_heads(words)[0][it, :2] for word, words in said.items()}
for word, words in said.items():
    mixed, _ = one.attend(words @ w_q, words @ w_k, words @ w_v)  # (n, h * d)
    rows[f"uncut, {word}"] = (mixed @ two.W_O)[it, :2]
display.show(rows, columns=["animal", "food"])

# %% tags=["proof"]
for word in (*one.WORDS, "sweet"):
    ending = one.embed([*one.WORDS[:-1], word])                      # (n, e)
    mixed, _ = one.attend(ending @ w_q, ending @ w_k, ending @ w_v)  # (n, h * d)
    animal, food, *_ = (mixed @ two.W_O)[it]
    torch.testing.assert_close(animal, food)
twice = torch.cat([q_1, 2 * q_2], dim=1)  # (e, h * d)
found = []
for words in said.values():
    mixed, _ = one.attend(words @ twice, words @ w_k, words @ w_v)  # (n, h * d)
    animal, food, *_ = (mixed @ two.W_O)[it]
    torch.testing.assert_close(animal, food)
    found.append(animal)
assert found[1] - found[0] > 0.5  # with such a query, “sweet” gives more than “thirsty”
print("✓ Uncut, animal and food are the same, whichever of the nine words comes last.")

# %% [markdown]
# Uncut, both strips are collected with the same weights. Both hold *quality*, so *animal* and *food* receive the
# same, whatever the last word is. (That *thirsty* and *sweet* give the same 1.09, too, is due to our pair, which is
# symmetric. With a head 2 that asks twice as loudly they differ, and *animal* and *food* are still the same.) In
# short, the uncut sheet is one head of width four, and `attend` treats it as one: it divides by √4 instead of √2.
#
# ## Split, then stack
#
# So the cut is needed. Is it enough? Two PyTorch functions move the paper. `torch.split` cuts the wide rows into
# pieces of d columns. `torch.stack` lays the pieces along a new axis, and you say where that axis goes: in front
# with `dim=0`, in the middle with `dim=1`. Both look tidy. But `@` multiplies the last two axes and takes all axes
# before them for independent problems. So pieces attend to one another only inside a frame:

# %% tags=["hide-input"]
display.stacks(
    one.WORDS, 2, ("dim=0: (h, n, d)", "dim=1: (n, h, d)"), name="who-shares-a-frame"
)

# %% [markdown]
# Who hears whom? Say for both stacks what *it* can hear, and what comes back with `dim=1`: an error, another
# shape, or wrong numbers.
#
# <details><summary>What do you expect?</summary>
#
# With `dim=0`, *it* hears all eight words, once in each head. With `dim=1`, each word is a problem of its own: the
# two strips of *it* attend to each other, and no other word is there. The sheets have the usual shape again after
# they are merged, so these are wrong numbers and no error.
#
# </details>


# %%
def split_and_stack(x: Tensor, num_heads: int) -> Tensor:
    """Cut the features into heads, and stack the heads.

    Args:
        x: (n, h * d), one row per word.
        num_heads: h, the number of heads.
    """
    pieces = x.split(x.size(-1) // num_heads, dim=-1)  # h times (n, d)
    return torch.stack(pieces)                         # (h, n, d)


q, k, v = (split_and_stack(x @ w, 2) for w in (w_q, w_k, w_v))  # (h, n, d)
mixed, weights = one.attend(q, k, v)                            # (h, n, d), (h, n, n)
display.show(weights[:, it], ["it, head 1", "it, head 2"], one.WORDS, heat=True)

# %% tags=["proof"]
for head, matrices in enumerate(two.HEADS):
    alone = one.attend(*(x @ matrix for matrix in matrices))  # (8, 2), (8, 8)
    torch.testing.assert_close((mixed[head], weights[head]), alone)
print("✓ In the stack each head gets what it gets alone: weights and what it collects.")

# %% [markdown]
# That is `dim=0`, which `torch.stack` does by itself. There are two rows of weights again: head 1 looks at *cat*
# and *thirsty*, head 2 at *milk*, with 0.80. `attend` has not changed. It counts its axes from the end, so the
# width that it finds is now that of a head, d = 2. And here is `dim=1` beside it:


# %% tags=["fold-input"]
def with_stack(dim: int, x: Tensor, keys: Tensor, matrices: tuple[Tensor, ...]) -> Tensor:
    """Attend with the pair, its strips stacked along dim and merged along the same axis."""
    wide = (words @ w for words, w in zip((x, keys, keys), matrices))
    mixed, _ = one.attend(*(torch.stack(each.split(2, dim=-1), dim) for each in wide))
    return torch.cat(mixed.unbind(dim), dim=-1) @ two.W_O


all_three = w_q, w_k, w_v
rows = {
    f"dim={dim}, {word}": with_stack(dim, words, words, all_three)[it, :2]
    for dim in (0, 1)
    for word, words in said.items()
}
display.show(rows, columns=["animal", "food"])

# %% [markdown]
# With `dim=1` the word *it* hears only itself. Both strips bring back its own *quality*, 1.00, a loud yes to
# everything. So two heads take two things: **cut between the strips, then bring all words of a strip into one
# frame.**

# %% tags=["proof"]
for dim in (0, 1):
    moved = []
    for word in range(8):
        changed = x.clone()
        changed[word] += torch.arange(4)
        gap = (
            with_stack(dim, changed, changed, all_three) - with_stack(dim, x, x, all_three)
        )[it]
        moved.append(gap.abs().max().item())
    assert all(moved) if dim == 0 else not any(moved[:it] + moved[it + 1 :])
assert with_stack(0, x[:3], x, all_three).shape == (3, 4)
refused = ""
try:
    with_stack(1, x[:3], x, all_three)
except RuntimeError as error:
    refused = str(error)
assert "must match the size" in refused
print("✓ With dim=1 “it” hears no other word, and 3 queries with 8 keys are an error.")

# %% [markdown]
# > **Pitfall.** In self-attention, `dim=1` gives the right shape, and no word hears another. Cross-attention finds
# > this bug for free: given 3 queries and 8 keys, PyTorch refuses to pair 3 problems with 8. (A single query it
# > would stretch to all of them.) Where you have only
# > self-attention, change one word and see whether the rows of other words move.
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
        made = [nn.init.xavier_uniform_(torch.empty(embed_dim, embed_dim)) for _ in "qkvo"]
        self.w_q, self.w_k, self.w_v, self.w_o = [nn.Parameter(matrix) for matrix in made]

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
columns = ["products: list", "stack", "multiplications"]
display.show(counts, columns=columns)

# %% [markdown]
# Nothing. Six large calls do the multiplying of 41 small ones: three to project in, one for all scores, one to
# mix, and one for $W_O$. What you save is calls. Each costs a fixed time, which you notice where little is
# multiplied in it: in short texts with many narrow heads. Stacking and merging even cost something, since both
# copy every number. So do not expect eight heads to be eight times as fast; [Speed](15_speed.ipynb) has measured
# them.
#
# As long as both hold the same numbers, list and stack are one model. Only the random numbers with which each
# begins its training differ.

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
ours = stacked(asking, asked, asked)                                  # (3, 24), (4, 3, 5)
mine = one.gradients(ours[0], [asking, asked, *stacked.parameters()])

theirs = listed(asking, asked, asked)  # (3, 24), (4, 3, 5)
torch.testing.assert_close(ours, theirs)
of_asking, of_asked, of_o, *of_heads = one.gradients(
    theirs[0], [asking, asked, *listed.parameters()]
)
together = [torch.cat(of_heads[part::3], dim=1) for part in range(3)]
torch.testing.assert_close(mine, (of_asking, of_asked, *together, of_o))

torchs = nn.MultiheadAttention(24, 4, bias=False, dtype=torch.float64)
packed = [torchs.in_proj_weight, torchs.out_proj.weight]  # PyTorch stores them transposed
packed[0].data = torch.cat([stacked.w_q, stacked.w_k, stacked.w_v], dim=1).mT.detach()
packed[1].data = stacked.w_o.mT.detach()
theirs = torchs(asking, asked, asked, average_attn_weights=False)  # (3, 24), (4, 3, 5)
torch.testing.assert_close(ours, theirs)
of_asking, of_asked, of_in, of_out = one.gradients(theirs[0], [asking, asked, *packed])
expected = (of_asking, of_asked, *(part.mT for part in of_in.chunk(3)), of_out.mT)
torch.testing.assert_close(mine, expected)
print("✓ The list and PyTorch's class give the same outputs, weights and gradients.")

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
# With several heads they do not. Xavier looks at the shape of a matrix, and the shape does not say how many heads
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
# > one matrix, and h is a setting that says where to cut. Two heads take two things: cut between the
# > strips (uncut, the sheet is one wide head), then bring all words of a strip into one frame (heads first, because
# > `@` multiplies the last two axes). Four matrices and six products serve any number of heads.
#
# `torch.stack` and `torch.cat` copy what they are given into new memory, number by number. The
# chapter [The reshape trick](04_reshape_trick.ipynb) splits the heads without such a copy.
