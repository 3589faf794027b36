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
# run 41 products one after the other, five for each head and one for $W_O$. Four matrices and six products give the same numbers, for
# eight heads or for eighty. Think of a wide sheet with one strip per head. You fill in the whole sheet at
# once, cut it into its strips, and lay these one behind the other.

# %% tags=["fold-input"]
import torch
from torch import Tensor, nn

from annotated_book import chapters, display

one = chapters.load("01_one_head")  # attend, the words and their features
two = chapters.load("02_two_heads")  # a pair of heads, and a list of any number

# %% [markdown]
# Our example is the pair of heads for the word *it*: head 1 asks whether something is said about an animal, head 2 about
# a food. Here are their keys, n words with d numbers from each of h heads:

# %% tags=["hide-input"]
pair = torch.cat([w_k for _, w_k, _ in two.HEADS], dim=1)  # (e, h * d)
display.sheet_and_stack(
    one.EMBEDDINGS, pair, one.WORDS, name="sheet-and-stack", features=one.FEATURES
)

# %% [markdown]
# The product $XW$ makes every number. Splitting and stacking only move numbers, and look like tidying up. Could you leave
# out the cut? And does it matter how you stack?

# %% [markdown] name="one-matrix-holds-every-head"
# ## One matrix holds every head
#
# Column j of the product $XW$ depends on column j of $W$ and on no other. So put the matrices of all heads side by
# side, and multiply once:
#
# $$X\,[\,W_1 \; W_2 \; \cdots \; W_h\,] = [\,XW_1 \; XW_2 \; \cdots \; XW_h\,]$$

# %%
x, it = one.EMBEDDINGS, one.WORDS.index("it")
(q_1, k_1, v_1), (q_2, k_2, v_2) = two.HEADS
w_q = torch.cat([q_1, q_2], dim=1)  # (e, h * d)
w_k = torch.cat([k_1, k_2], dim=1)  # (e, h * d)
w_v = torch.cat([v_1, v_2], dim=1)  # (e, h * d)
k = x @ w_k                         # (n, h * d)

# %% [markdown]
# Look at K again: does it hold two heads of width 2, four of width 1, or one of width 4? It does not say, and
# neither does `w_k`. The number of heads is no longer visible in the parameters. It has become a setting that says
# where to cut.

# %% [markdown]
# ## Why cut at all?
#
# So leave out the cut, and score wide row against wide row. No shape complains. With two heads, *it* has two sets of
# weights, one in each. How many are there now?
#
# <details><summary>What do you expect?</summary>
#
# One. The product of two wide rows adds up over all their columns, so each key gets a single score: the sum of
# the scores of both heads.
#
# </details>
#
# Press the number of heads, and see where the same wide rows are cut, and which products meet in one sum. The matrices
# stay as they are. Each sum is divided by the root of its width: uncut √4, cut in two √2.

# %% tags=["hide-input"]
three = ["cat", "milk", "thirsty"]
display.two_sums((x @ w_q)[it], k, one.WORDS, name="two-sums", shown=three)

# %% [markdown]
# Cut, head 1 gives *cat* 6 and *milk* 0, and head 2 the reverse. Uncut, both get 6. The softmax makes of them the
# weights of *it*:

# %% tags=["hide-input"]
_, uncut = one.attend(x @ w_q, k, x @ w_v)                     # (n, h * d), (n, n)
shares = torch.cat([uncut[None], two.two_heads(x)[1]])[:, it]  # (3, n)
who = "uncut", "cut, head 1", "cut, head 2"
display.show(dict(zip(who, shares.tolist())), columns=one.WORDS)

# %% [markdown]
# Uncut, *cat* and *milk* get 0.17 each: *it* cannot look for an animal and a food separately.
#
# And what does *it* receive? $W_V$ hands *quality* to each head, in the first column of its strip; the second is all
# zeros, since this pair of heads is asked for nothing else. Each column of V is collected with the weights of its head;
# uncut, all four with the same.

# %% tags=["hide-input"]
ways = {
    "uncut": uncut[it] @ x @ w_v,
    "cut": torch.cat([row @ x @ head[2] for row, head in zip(shares[1:], two.HEADS)]),
}
display.handed_over(x, w_v, one.WORDS, one.FEATURES, ways, name="handed-over")

# %% [markdown]
# Cut, the animal head hears 0.97 and the food head 0.19: so *it* is the cat. Uncut, both get 1.09: 0.46 · 2 from
# *thirsty* and 0.17 · 1 from *it* itself. That is louder than either answer, and says nothing: both strips of V hold the
# same column, so one set of weights can only bring the same number twice, whatever the last word is.

# %% tags=["proof"]
for word in (*one.WORDS, "sweet"):
    ending = one.embed([*one.WORDS[:-1], word])                      # (n, e)
    mixed, _ = one.attend(ending @ w_q, ending @ w_k, ending @ w_v)  # (n, h * d)
    animal, food, *_ = (mixed @ two.W_O)[it]
    torch.testing.assert_close(animal, food)
print("✓ Uncut, animal and food are the same, whichever of the nine words comes last.")

# %% [markdown]
# ## Split, then stack
#
# So the cut is needed. Is it enough? `split` cuts the sheet into strips of d columns. `torch.stack` lays them along a
# new axis, and you say where: in front with `dim=0`, the default, or in the middle with `dim=1`, so that the pieces of a
# word stay together. Take the default first.


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

# %% tags=["proof"]
assert torch.equal(x @ w_k, torch.cat([x @ head[1] for head in two.HEADS], dim=1))
for head, matrices in enumerate(two.HEADS):
    assert torch.equal(x @ matrices[2][:, 0], x[:, one.FEATURES.index("quality")])
    alone = one.attend(*(x @ matrix for matrix in matrices))  # (8, 2), (8, 8)
    torch.testing.assert_close((mixed[head], weights[head]), alone)
print("✓ In the stack each head gets what it gets alone: weights and what it collects.")

# %% [markdown]
# `attend` has not changed: it counts axes from the end, so the width that it finds is now that of a head, d = 2.

# %% [markdown]
# ## Along the other axis
#
# And does it matter how you stack? The way back must fit the way there: `x.unbind(0)` takes the strips off the axis that
# `torch.stack(pieces)` made, and `torch.cat` lays them side by side again.


# %%
def unstack_and_concatenate(x: Tensor) -> Tensor:
    """Put the heads back side by side.

    Args:
        x: (h, n, d), one slice per head.
    """
    return torch.cat(x.unbind(0), dim=-1)  # (n, h * d)


# %% [markdown]
# Now the tempting other way. The words come first, as they always did, and the middle axis is used both times:
#
# ```diff
# - torch.stack(pieces)                 # (h, n, d)
# + torch.stack(pieces, dim=1)          # (n, h, d)
# - torch.cat(x.unbind(0), dim=-1)      # (n, h * d)
# + torch.cat(x.unbind(1), dim=-1)      # (n, h * d)
# ```
#
# Not a number is lost on the way, there or back. What does *it* receive: an error, the right numbers, or others?

# %% tags=["fold-input"]
endings = {"thirsty": x, "sweet": one.SWEET_EMBEDDINGS}
rows = {"cut, dim=0": [], "uncut": [], "cut, dim=1": []}
for words in endings.values():
    wide = [words @ w for w in (w_q, w_k, w_v)]  # (n, h * d)
    rows["uncut"] += (one.attend(*wide)[0] @ two.W_O)[it, :2].tolist()
    for dim in (0, 1):
        mixed, looks = one.attend(*(torch.stack(y.split(2, dim=-1), dim) for y in wide))
        merged = torch.cat(mixed.unbind(dim), dim=-1)  # (n, h * d)
        rows[f"cut, dim={dim}"] += (merged @ two.W_O)[it, :2].tolist()
columns = [f"{word}: {feature}" for word in endings for feature in one.FEATURES[:2]]
display.show(rows, columns=columns)

# %% [markdown]
# Others, in the usual shape: 1.00, four times, and as deaf to the last word as the uncut sheet. `@` multiplies the last
# two axes, separately for each entry of a batch, and counts all axes before them as batch. With `dim=1` the last two are
# h and d: each word is a batch entry of its own, and its heads attend to each other.

# %% tags=["hide-input"]
titles = "dim=0: (h, n, d)", "dim=1: (n, h, d)"
display.stacks(one.WORDS, it, weights[:, it], looks[it], titles, name="who-hears-whom")

# %% [markdown]
# In its frame *it* is alone with itself. Both pieces have the key (1, 1), so they tie, 0.50 each, and both hold the
# *quality* of *it*, 1: hence the 1.00, whatever the sentence says. So two heads take two things: **cut between the
# strips, and keep all words of a strip together.**

# %% tags=["proof"]
all_three = w_q, w_k, w_v
for word in range(8):
    changed = x.clone()  # (n, e)
    changed[word] += torch.arange(4)
    for dim in (0, 1):
        before, after = (
            one.attend(*[torch.stack((y @ w).split(2, -1), dim) for w in all_three])[0]
            for y in (x, changed)
        )
        moved = (after - before).select(1 - dim, it).abs().max().item()
        assert bool(moved) == (dim == 0 or word == it)
print("✓ With dim=1, no change of another word reaches “it”; with dim=0, each does.")

# %% [markdown]
# > **Pitfall.** In self-attention, `dim=1` on the way there and back gives the right shape, and no word hears another:
# > change one word, and see whether the rows of other words move.

# %% [markdown]
# ## Back together, and what W_O is for
#
# After attention the strips go back side by side, as wide as a word. With *sweet* as the last word, *it* has heard about
# a food, 0.97. Under which feature does that number stand, before $W_O$ and after?

# %%
q, k, v = (
    split_and_stack(one.SWEET_EMBEDDINGS @ w, 2) for w in (w_q, w_k, w_v)
)                                        # (h, n, d)
mixed = one.attend(q, k, v)[0]           # (h, n, d)
merged = unstack_and_concatenate(mixed)  # (n, h * d)
output = merged @ two.W_O                # (n, e)

# %% tags=["hide-input"]
display.back_together(
    mixed, merged, output, one.SWEET, it, one.FEATURES, name="back-together"
)

# %% [markdown]
# Side by side, the food head's 0.97 has landed under *action*: head 2 has the third and the fourth column. Without
# $W_O$ each head could write into its own d columns and nowhere else. $W_O$, here `(e, e)`, lets every head write into
# every feature. Ours moves the 0.97 under *food*; in training, the model finds out what goes where.
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
        raw = [nn.init.xavier_uniform_(torch.empty(embed_dim, embed_dim)) for _ in range(4)]
        self.w_q, self.w_k, self.w_v, self.w_o = [nn.Parameter(matrix) for matrix in raw]

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
# Eight heads took 41 products, and take six now. How much of the multiplying does that save? Count for the list of
# the last chapter and for the stack, with 64 words, 32 numbers wide.

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
columns = ["list", "stack", "multiplications"]
display.show(counts, columns=columns, title="Products, and what is multiplied in them")

# %% [markdown]
# Nothing. Six large calls do the multiplying of 41 small ones. What you save is calls. Each costs a fixed time, which weighs most where little is multiplied
# in a call.

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
# With the same numbers, list and stack are one model. Both ask `xavier_uniform_` for their first ones. Do these have
# the same standard deviation? (PyTorch keeps its matrix transposed, so it is turned here.)

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
# <!-- deeper: heads wider than the model -->
# ### Going deeper: heads wider than the model
#
# The class refuses a number of heads that does not divide the width, since it takes d to be e / h. That is a habit and no
# law. The larger gpt-oss of OpenAI is 2,880<!-- quoted
# --> numbers wide and has 64<!-- quoted --> heads, which would make 45<!-- quoted --> for each. Its heads are 64<!--
# quoted --> wide, so together they are wider than the model, and $W_O$ brings 4,096<!-- quoted --> columns back to
# 2,880<!-- quoted -->.
# (These are the defaults of `GptOssConfig` in `transformers`.)

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
# > The columns of one matrix are divided among the heads, and h is a setting that says where to cut. Cut between the strips
# > (uncut, the sheet is one wide head), and keep all words of a strip together: heads first, because `@` multiplies the
# > last two axes.
#
# `torch.stack` and `torch.cat` copy every number into new memory. The chapter
# [The reshape trick](04_reshape_trick.ipynb) splits the heads without such a copy.
