# %% [markdown]
# # Split and stack
#
# *Does every head need matrices of its own?*
#
# Chapter 2 ended with $3h + 1$ matrices and $5h + 1$ products. You now put the matrices of all heads
# side by side into one, multiply once, cut the result into heads, and let one batched product
# score all of them. The arithmetic stays; it is done in four matrices and six calls, whatever h is,
# and with the matrices of chapter 2 it gives the numbers of chapter 2.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map("project in", "split", "score", "mix", "merge", "project out")

# %% [markdown]
# ## One matrix holds every head
#
# A matrix product works column by column: column j of $XW$ needs column j of $W$ and no other. So
# the queries of all heads can be computed side by side:
#
# $$[\,q_1 \; q_2 \; \cdots \; q_h\,] = X\,[\,W_1 \; W_2 \; \cdots \; W_h\,]$$
#
# Take the four heads of a module of chapter 2 and try it. From here on, all sizes differ: n = 3
# queries, m = 5 keys, h = 4 heads of width d = 6, so e = 24.

# %%
import torch
from torch import Tensor, nn

from annotated_attention import chapters

one = chapters.load("01_one_head")
two = chapters.load("02_two_heads")

# %%
torch.manual_seed(3)
n, m, h, d = 3, 5, 4, 6
listed = two.Heads(embed_dim=h * d, num_heads=h).double()
x = torch.randn(n, h * d, dtype=torch.float64, requires_grad=True)      # (n, h * d)
words = torch.randn(m, h * d, dtype=torch.float64, requires_grad=True)  # (m, h * d)

wide = torch.cat([head.w_q for head in listed.heads], dim=1)       # (h * d, h * d)
q = x @ wide                                                       # (n, h * d)
apart = torch.cat([x @ head.w_q for head in listed.heads], dim=1)  # (n, h * d)
torch.testing.assert_close(q, apart)
narrow = tuple(listed.heads[0].w_q.shape)
print(h, "matrices of", narrow, "became one of", tuple(wide.shape))

# %% [markdown]
# The wide matrix is `(e, e)` for any number of heads, since $h \cdot d = e$: the heads share its
# columns out among themselves. In the picture, the stronger the colour, the larger the number, and
# the columns of a head keep their place from $W_Q$ to $Q$.

# %% jupyter={"source_hidden": true}
from matplotlib.patches import Rectangle


def draw_matrix(ax, matrix: Tensor, title: str, heads: int) -> None:
    rows, columns = matrix.shape
    shade = matrix.detach().abs() / matrix.detach().abs().max()
    for i in range(rows):
        for j in range(columns):
            letter = "nh"[j * heads // columns % 2] if heads else "b"
            colour, alpha = display.COLOURS[letter], 0.1 + 0.8 * shade[i, j].item()
            ax.add_patch(Rectangle((j, i), 1, 1, color=colour, alpha=alpha, linewidth=0))
    for head in range(heads):
        width = columns / heads
        ax.text((head + 0.5) * width, -0.4, f"head {head + 1}", ha="center", fontsize=9)
    ax.set(xlim=(0, columns), ylim=(rows, -1.6), aspect="equal")
    ax.set_title(title)
    ax.axis("off")


# %% jupyter={"source_hidden": true}
drawing, axes = display.panels(720, 250, columns=3)
shown = (("X", x, 0), ("W_Q", wide, h), ("Q = X W_Q", q, h))
for ax, (title, matrix, heads) in zip(axes, shown):
    draw_matrix(ax, matrix, f"{title}, {matrix.size(0)} × {matrix.size(1)}", heads)
display.finish(drawing, name="columns-by-head", alt=(
    f"Three matrices: X, W_Q and their product Q. The {h * d} columns of W_Q are cut "
    f"into {h} blocks of {d}, one per head, and Q has the same blocks."
))

# %% [markdown]
# ## Split, then stack
#
# `torch.split` cuts the wide rows into pieces of d columns, `torch.stack` puts the pieces on top of
# each other along a new first axis.


# %%
def split_and_stack(x: Tensor, num_heads: int) -> Tensor:
    """Cut the features into heads, and stack the heads.

    Args:
        x: (n, h * d), one row per token.
        num_heads: how many.
    """
    pieces = x.split(x.size(-1) // num_heads, dim=-1)  # (n, d)
    return torch.stack(pieces)                         # (h, n, d)


k = words @ torch.cat([head.w_k for head in listed.heads], dim=1)  # (m, h * d)
v = words @ torch.cat([head.w_v for head in listed.heads], dim=1)  # (m, h * d)
q_heads = split_and_stack(q, h)                                    # (h, n, d)
k_heads, v_heads = split_and_stack(k, h), split_and_stack(v, h)    # (h, m, d)
print(tuple(q.shape), "->", tuple(q_heads.shape))

# %% [markdown]
# ## One product for all heads
#
# `@` multiplies the last two axes and treats those before them as a batch: the same as `torch.bmm`
# for three axes. With h in front, one `@` scores every head, and `attend` of chapter 1, written for
# one head, works for all of them without a change.

# %%
scores = q_heads @ k_heads.mT  # (h, n, d) x (h, d, m) -> (h, n, m)
assert torch.equal(scores, torch.bmm(q_heads, k_heads.mT))

mixed, weights = one.attend(q_heads, k_heads, v_heads)  # (h, n, d), (h, n, m)
for i, head in enumerate(listed.heads):
    alone, its_weights = head(x, words, words)  # (n, d), (n, m)
    torch.testing.assert_close((mixed[i], weights[i]), (alone, its_weights))
print(f"{h} heads at once give what each gives alone")

# %% [markdown]
# Could h stay in the middle, as `(n, h, d)`? The numbers are the same, and `einsum`, which is told
# what each axis is, does it. But `@` needs the axes that it multiplies at the end, and `q_heads[0]`
# being head 1 is handy. So h goes first.

# %%
q_middle = torch.stack(q.split(d, dim=-1), dim=1)           # (n, h, d)
k_middle = torch.stack(k.split(d, dim=-1), dim=1)           # (m, h, d)
by_name = torch.einsum("nhd,mhd->hnm", q_middle, k_middle)  # (h, n, m)
torch.testing.assert_close(by_name, scores)
print("einsum on (n, h, d) agrees")

# %% [markdown]
# > **Pitfall.** Stacked along the wrong axis, `(n, h, d)`, self-attention still runs: `@` then
# > multiplies the heads of one token with each other. The output even has the right shape.


# %%
def stacked_wrongly(x: Tensor, num_heads: int) -> tuple[Tensor, Tensor]:
    """Let x attend to itself, with the heads on the wrong axis."""
    pieces = x.split(x.size(-1) // num_heads, dim=-1)  # (n, d)
    own = torch.stack(pieces, dim=1)                   # (n, h, d)
    mixed, weights = one.attend(own, own, own)         # (n, h, d), (n, h, h)
    return mixed.flatten(1), weights                   # (n, h * d), (n, h, h)


output, weights = stacked_wrongly(x, h)  # (n, h * d), (n, h, h)
print("output", tuple(output.shape), "- weights", tuple(weights.shape), "for", (h, n, n))
reach = torch.autograd.grad(output[0].sum(), x)[0].abs().sum(-1)  # (n,)
print("how much each token matters to token 1:", [round(r, 2) for r in reach.tolist()])

# %% [markdown]
# No token looks at any other: the reaction to tokens 2 and 3 is exactly zero. That is the check to
# remember: *does the output react to other tokens?*
#
# ## Back together, and what W_O is for
#
# The way back undoes the two steps: take the heads apart along axis 0, and concatenate them along
# the features.


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

# %% [markdown]
# Then comes $W_O$. Without it, a head could write into its own d columns of the output and nowhere
# else. Disturb one head, and count the columns that change:

# %%
disturbed = mixed.clone()
disturbed[1] += 1
other = unstack_and_concatenate(disturbed)  # (n, h * d)
for name, w_o in (("without", torch.eye(h * d).double()), ("with", listed.w_o)):
    changed = ((merged - other) @ w_o).abs().amax(0) > 1e-9  # (h * d,)
    print(f"{name} W_O: {changed.sum()} of {h * d} columns")

# %% [markdown]
# With $W_O$, `(e, e)` like the others, every head can write everywhere, and training decides where.
#
# ## The module
#
# Four matrices. The number of heads is now a setting: it appears in no shape of a parameter.


# %%
class SplitAndStack(nn.Module):
    """Several heads at once, by splitting and stacking."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(
                f"embed_dim ({embed_dim}) must be divisible by num_heads ({num_heads})"
            )
        self.num_heads = num_heads
        for name in ("w_q", "w_k", "w_v", "w_o"):
            self.register_parameter(name, nn.Parameter(torch.empty(embed_dim, embed_dim)))
        one.xavier(self)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from each query to every key."""
        q = split_and_stack(query @ self.w_q, self.num_heads)  # (h, n, d)
        k = split_and_stack(key @ self.w_k, self.num_heads)    # (h, m, d)
        v = split_and_stack(value @ self.w_v, self.num_heads)  # (h, m, d)
        mixed, weights = one.attend(q, k, v)                   # (h, n, d), (h, n, m)
        output = unstack_and_concatenate(mixed) @ self.w_o     # (n, h * d)
        return output, weights                                 # (n, h * d), (h, n, m)


# %% [markdown]
# What changed since chapter 2:

# %%
display.diff(two.Heads, SplitAndStack)

# %% [markdown]
# ## The same as chapter 2, the same as PyTorch
#
# Load the matrices of chapter 2's module, side by side, and compare everything: outputs, weights,
# and the gradients of both inputs and of every matrix.

# %%
stacked = SplitAndStack(embed_dim=h * d, num_heads=h).double()
with torch.no_grad():
    for name in ("w_q", "w_k", "w_v"):
        parts = [getattr(head, name) for head in listed.heads]
        getattr(stacked, name).copy_(torch.cat(parts, dim=1))
    stacked.w_o.copy_(listed.w_o)

ours, our_weights = stacked(x, words, words)     # (n, h * d), (h, n, m)
theirs, their_weights = listed(x, words, words)  # (n, h * d), (h, n, m)
torch.testing.assert_close((ours, our_weights), (theirs, their_weights))

# %%
mine = one.gradients(ours, [x, words, *stacked.parameters()])
apart = one.gradients(theirs, [x, words, *listed.parameters()])
of_x, of_words, of_o, *of_heads = apart  # chapter 2 lists w_o, then q, k, v of each head
wide = [torch.cat(of_heads[part::3], dim=1) for part in range(3)]
torch.testing.assert_close(mine, (of_x, of_words, *wide, of_o))
print(f"chapter 2: outputs, weights and {len(mine)} gradients agree")

# %%
torchs = nn.MultiheadAttention(h * d, h, bias=False, dtype=torch.float64)
packed = [torchs.in_proj_weight, torchs.out_proj.weight]
with torch.no_grad():
    packed[0].copy_(torch.cat([stacked.w_q, stacked.w_k, stacked.w_v], dim=1).mT)
    packed[1].copy_(stacked.w_o.mT)

both = torchs(x, words, words, average_attn_weights=False)  # (n, h * d), (h, n, m)
torch.testing.assert_close((ours, our_weights), both)
of_x, of_words, of_in, of_out = one.gradients(both[0], [x, words, *packed])
expected = (of_x, of_words, *(part.mT for part in of_in.chunk(3)), of_out.mT)
ours, _ = stacked(x, words, words)                          # (n, h * d), (h, n, m)
mine = one.gradients(ours, [x, words, *stacked.parameters()])
torch.testing.assert_close(mine, expected)
print(f"PyTorch: outputs, weights and {len(mine)} gradients agree")

# %% [markdown]
# The heads need no sorting for PyTorch any more: its one matrix is our $W_Q$, $W_K$ and $W_V$, each
# holding all heads side by side, transposed.
#
# ## What is left
#
# Count again, with the counter of chapter 2. A batched product is one call that does the work of h.

# %%
long = torch.randn(64, 32)  # (64, 32)
print("heads  matrices  products  (chapter 2: matrices  products)")
for count in (1, 2, 4, 8, 16):
    row = [count]
    for kind in (SplitAndStack, two.Heads):
        model = kind(embed_dim=32, num_heads=count)
        with two.Products() as products:
            model(long, long, long)
        row += [sum(1 for _ in model.parameters()), products.calls]
    print("{:5} {:9} {:9} {:21} {:9}".format(*row))

# %% [markdown]
# One thing does change. Xavier's choice looks at rows and columns, and sees one `(e, e)` matrix where
# it saw h narrow ones. So a fresh module starts with smaller numbers:

# %%
fresh, old = SplitAndStack(512, 8), two.Heads(512, 8)
print(f"deviation of W_Q, all heads in one: {fresh.w_q.std():.3f}")
print(f"deviation of W_Q, head by head:     {old.heads[0].w_q.std():.3f}")

# %% [markdown]
# ## Exercises
#
# ### Silence a head
#
# *Easy, 5 minutes.* To find out what a head is good for, people switch it off. Return a copy of
# `w_o`, `(h * d, e)`, with which `head`, counted from 0, contributes nothing to the output. The
# other heads contribute what they did. `w_o` itself stays as it is, and gradients still reach its
# other rows.


# %% tags=["exercise"]
def silence(w_o: Tensor, head: int, num_heads: int) -> Tensor:
    """Take one head out of the output."""
    return None  # your lines here


# %%
from annotated_attention import exercises

exercises.split_and_stack.check_silence(silence)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The merged heads stand side by side, and feature i of them meets row i of $W_O$. Which rows does
# head 0 meet?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A head is d rows high. $W_O$ has $h \cdot d$ rows, so `num_heads` tells you d.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `w_o.clone()` is a copy that gradients flow through. Write zeros into the block of rows there.
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
def silence(w_o: Tensor, head: int, num_heads: int) -> Tensor:
    """Take one head out of the output.

    Args:
        w_o: (h * d, e), a block of d rows per head.
        head: which one, counted from 0.
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
# *Medium, 10 minutes.* `heads` is a list of h triples `(w_q, w_k, w_v)`, all `(e, d)`, as in
# chapter 2. Pack them into one matrix as `nn.MultiheadAttention` stores them in `in_proj_weight`,
# `(3 * e, e)`: the queries of all heads, head by head, then the keys, then the values. PyTorch
# computes $XW^\top$ where we compute $XW$. Return a tensor through which gradients flow, without
# `nn.Parameter`.


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
# $[W_Q\;W_K\;W_V]$ is `(e, 3 * e)`. `.mT` transposes it. A reshape to the right shape does not.
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
# The heads are columns of one matrix. Splitting and stacking gives each its slice, one batched
# product scores them all, and concatenating undoes it. Only the splitting itself is clumsy: it
# copies everything, piece by piece. [The next chapter](04_reshape_trick.ipynb) does the same without
# touching a number.
