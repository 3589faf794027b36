# %% [markdown]
# # Two heads
#
# *How can a word look at two things at once?*
#
# > the cat drank milk because **it** was thirsty
#
# *It* has two questions: who am I, and what is said of me? One head gives one set of weights, so
# both answers end up in one sum. Here you give each question a head of its own: seven matrices,
# written out. Then you write any number of heads as a list, fall into the trap that lists set, and
# count what this way costs.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map("project in", "score", "softmax", "mix", "merge", "project out")

# %% [markdown]
# ## One head blends
#
# `chapters.load` imports what [chapter 1](01_one_head.ipynb) defines, and runs none of its
# demonstrations. Make one head ask both questions at once: the $W_Q$ below turns *thing* and
# *alive* into a wish for the same, and *alive* into a wish for *state*, too.

# %%
import torch
from torch import Tensor, nn

from annotated_attention import chapters

one = chapters.load("01_one_head")
x = one.EMBEDDINGS  # (8, 4)
cat, it, thirsty = (one.WORDS.index(word) for word in ("cat", "it", "thirsty"))

w_q = torch.zeros(4, 4)
w_q[:2] = torch.tensor([[2.0, 0, 0, 0], [0, 2, 0, 3]])
blend, weights = one.attend(x @ w_q, x, x)  # (8, 4), (8, 8)
print(f"it looks at cat {weights[it, cat]:.2f}, at thirsty {weights[it, thirsty]:.2f}")
print("it gets thing {:.2f}  alive {:.2f}  deed {:.2f}  state {:.2f}".format(*blend[it]))

# %% [markdown]
# It found both. But each gave less than half of what it has, and the sum does not say what came
# from whom. Sharper weights would drop one of the answers: a head has a single row of weights for
# a word, whatever it is asked.
#
# ## Seven matrices
#
# Two heads, each half as wide as the model: e = 4, h = 2, d = 2. Each has its own $W_Q$, $W_K$ and
# $W_V$ of shape `(e, d)`. The fourth matrix of chapter 1, $W_O$, they will share, which makes
# $3 \cdot 2 + 1 = 7$. The first head looks for who is *thing* and *alive*; the second finds words by
# *deed* and *state*.

# %%
thing, alive, deed, state = torch.eye(4)  # (4,)
nothing = torch.zeros(4)                  # (4,)

who = torch.stack([thing, alive], dim=1)  # (4, 2)
what = torch.stack([deed, state], dim=1)  # (4, 2)

w_q1, w_k1, w_v1 = 2 * who, who, who             # (4, 2)
w_k2, w_v2 = what, what                          # (4, 2)
w_q2 = 4 * torch.stack([nothing, alive], dim=1)  # (4, 2)
print(w_q2)

# %% [markdown]
# Read `w_q2` by rows: who is *alive* (second row) asks for what is in the second column, and since
# the second column of `w_k2` is *state*, that is what is found. The factors 2 and 4 make the weights
# sharp; a trained head finds such sizes by itself. Now each head attends.

# %%
mixed1, weights1 = one.attend(x @ w_q1, x @ w_k1, x @ w_v1)  # (8, 2), (8, 8)
mixed2, weights2 = one.attend(x @ w_q2, x @ w_k2, x @ w_v2)  # (8, 2), (8, 8)

for number, weights in enumerate((weights1, weights2), 1):
    best = weights[it].argmax()
    print(f"head {number}: it looks at {one.WORDS[best]} ({weights[it, best]:.2f})")

# %% [markdown]
# Two questions, two answers. Stacked, the weights are `(h, n, m)`; side by side:

# %% jupyter={"source_hidden": true}
weights = torch.stack([weights1, weights2])  # (2, 8, 8)
display.attention_map(weights, one.WORDS, one.WORDS, name="two-maps")

# %% [markdown]
# Find the row of *it* in both: two rows of weights for one word.
#
# Now word by word. Below you see what *it* asks in the second head. Where scripts run, choose the
# other head, and click other words. *Milk* is a thing, so the first head finds things for it; it is
# not alive, so in the second it asks for nothing, and every word gets the same.

# %% jupyter={"source_hidden": true}
still = display.attention_lines(weights2, one.WORDS, it, name="two-heads-at-work")
display.heads_at_work(still, weights, one.WORDS, one.WORDS, start=(0, 1, it))

# %% [markdown]
# ## Side by side, then one more matrix
#
# Each head hands back d numbers per word. Put them side by side, and the row is as wide as the
# model again. The seventh matrix, $W_O$, may mix what the heads found [[Vaswani et al., section
# 3.2.2](../docs/references.md#vaswani-2017)]:
#
# $$\mathrm{MultiHead}(Q, K, V) = \mathrm{Concat}(\mathrm{head}_1, \ldots, \mathrm{head}_h)\, W_O$$
#
# where $\mathrm{head}_i$ is the attention of chapter 1 with the matrices of head i. Here nothing
# needs mixing, so $W_O$ is the identity.

# %%
w_o = torch.eye(4)                                  # (4, 4)
output = torch.cat([mixed1, mixed2], dim=-1) @ w_o  # (8, 2 * 2) x (4, 4) -> (8, 4)

print("                   thing  alive  deed  state")
rows = {"it, before": x[it], "one head, both": blend[it], "two heads": output[it]}
for name, row in rows.items():
    print(f"{name:>17}", ("{:6.2f} " * 4).format(*row))

# %% [markdown]
# After two heads *it* is a thing, alive, and in a state: the thirsty cat. The answers stand in
# different columns, so neither is watered down by the other.
#
# ## The module
#
# Seven matrices and no cleverness:


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
        """Attend from each query to every key."""
        mixed1, weights1 = one.attend(query @ self.w_q1, key @ self.w_k1, value @ self.w_v1)
        mixed2, weights2 = one.attend(query @ self.w_q2, key @ self.w_k2, value @ self.w_v2)
        mixed = torch.cat([mixed1, mixed2], dim=-1)                 # (n, 2 * d)
        return mixed @ self.w_o, torch.stack([weights1, weights2])  # (n, e), (2, n, m)


# %%
two = one.xavier(TwoHeads(embed_dim=8).double())
print(sum(1 for _ in two.parameters()), "matrices")

# %% [markdown]
# ## The same as PyTorch
#
# `torch.nn.MultiheadAttention` keeps six of the seven in one matrix: all queries first, head by
# head, then keys, then values, and transposed. Lay ours out like that.

# %%
n, m, e = 3, 5, 8
queries = torch.randn(n, e, dtype=torch.float64, requires_grad=True)  # (n, e)
words = torch.randn(m, e, dtype=torch.float64, requires_grad=True)    # (m, e)
torchs = nn.MultiheadAttention(e, num_heads=2, bias=False, dtype=torch.float64)

*into, w_o = two.parameters()
order = [into[i] for i in (0, 3, 1, 4, 2, 5)]  # q1 q2, k1 k2, v1 v2
with torch.no_grad():
    torchs.in_proj_weight.copy_(torch.cat(order, dim=1).mT)
    torchs.out_proj.weight.copy_(w_o.mT)

# %%
ours, our_weights = two(queries, words, words)                    # (n, e), (2, n, m)
both = torchs(queries, words, words, average_attn_weights=False)  # (n, e), (2, n, m)
torch.testing.assert_close((ours, our_weights), both)

mine = one.gradients(ours, [queries, words, *order, w_o])
packed = [torchs.in_proj_weight, torchs.out_proj.weight]
of_queries, of_words, of_in, of_out = one.gradients(both[0], [queries, words, *packed])
expected = (of_queries, of_words, *(part.mT for part in of_in.chunk(6)), of_out.mT)
torch.testing.assert_close(mine, expected)
print(f"output, both weight maps and {len(mine)} gradients agree")

# %% [markdown]
# ## A list of heads
#
# With eight heads nobody writes 25 matrices by hand. A head becomes a class of its own.


# %%
class Head(nn.Module):
    """One of several heads: projects, attends, and leaves the merging to others."""

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
# It is chapter 1's module without $W_O$, and initialised. What changed, made by the machine from
# the two classes:

# %%
display.diff(one.OneHead, Head)

# %% [markdown]
# Several heads are a list of those.


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
        merged = torch.cat(mixed, dim=-1) @ self.w_o  # (n, e)
        return merged, torch.stack(weights)           # (n, e), (h, n, m)


# %%
trap = HeadsInAList(embed_dim=8, num_heads=4)
output, weights = trap(torch.randn(3, 8), *[torch.randn(5, 8)] * 2)  # (3, 8), (4, 3, 5)
print(output.isfinite().all().item(), "- it runs, and every shape is right")

# %% [markdown]
# Nothing in the output gives it away. Ask the module what it is made of.

# %%
print("state_dict():    ", list(trap.state_dict()))
print("parameters():    ", sum(p.numel() for p in trap.parameters()), "of", 4 * 8 * 8)
trap.double()
print("after .double(): ", trap.w_o.dtype, "- a head's:", trap.heads[0].w_q.dtype)

# %% [markdown]
# One of thirteen matrices. Train it for one step, and see which of them move:

# %%
trap = HeadsInAList(embed_dim=8, num_heads=4)
optimizer = torch.optim.SGD(trap.parameters(), lr=1.0)
before = trap.w_o.clone(), trap.heads[0].w_q.clone()

output, _ = trap(torch.randn(3, 8), *[torch.randn(5, 8)] * 2)  # (3, 8), (4, 3, 5)
output.square().sum().backward()
optimizer.step()
print("w_o moved:     ", not torch.equal(trap.w_o, before[0]))
print("a head's w_q:  ", not torch.equal(trap.heads[0].w_q, before[1]))

# %% [markdown]
# > **Pitfall.** A module finds its parts among its attributes, and does not look into a Python
# > list. The twelve matrices of the heads are not trained, not saved, and stay behind when the
# > module moves to another dtype or device. `nn.ModuleList` is a list that a module looks into.

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
        merged = torch.cat(mixed, dim=-1) @ self.w_o  # (n, e)
        return merged, torch.stack(weights)           # (n, e), (h, n, m)


display.diff(HeadsInAList, Heads)

# %% [markdown]
# One line has changed. Ask the same questions again.

# %%
heads = Heads(embed_dim=8, num_heads=4)
print("state_dict():    ", len(heads.state_dict()), "matrices")
print("parameters():    ", sum(p.numel() for p in heads.parameters()), "of", 4 * 8 * 8)
heads.double()
print("after .double(): ", heads.w_o.dtype, "- a head's:", heads.heads[0].w_q.dtype)

# %% [markdown]
# And two heads in a list, given the seven matrices, are `TwoHeads`:

# %%
listed = Heads(embed_dim=8, num_heads=2).double()
w_o_again, *into_again = listed.parameters()  # the module's own come before its parts'
with torch.no_grad():
    for target, source in zip([*into_again, w_o_again], [*into, w_o]):
        target.copy_(source)

again, again_weights = listed(queries, words, words)  # (n, e), (2, n, m)
torch.testing.assert_close((again, again_weights), (ours, our_weights))
theirs = one.gradients(again, [queries, words, *into_again, w_o_again])
ours, _ = two(queries, words, words)                  # (n, e), (2, n, m)
torch.testing.assert_close(one.gradients(ours, [queries, words, *into, w_o]), theirs)
print(f"outputs, weights and {len(theirs)} gradients agree")

# %% [markdown]
# ## What more heads cost
#
# Eight heads instead of one, at the same model width: what does that cost? First something that
# counts the matrix products of a call; PyTorch shows it every operation that runs.

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
x = torch.randn(64, 32)  # (64, 32)
print("heads  parameters  matrices  products  their FLOPs  weights")
for count in (1, 2, 4, 8, 16):
    model = Heads(embed_dim=32, num_heads=count)
    sizes = [matrix.numel() for matrix in model.parameters()]
    with Products() as products, FlopCounterMode(display=False) as flops:
        _, weights = model(x, x, x)  # (64, 32), (..., 64, 64)
    counted = (products.calls, flops.get_total_flops(), weights.numel())
    row = (count, sum(sizes), len(sizes), *counted)
    print("{:5} {:11} {:9} {:9} {:12} {:8}".format(*row))

# %% [markdown]
# The parameters stay: h heads of width e / h have $3 \cdot h \cdot e \cdot \frac{e}{h} = 3e^2$, and
# $W_O$ has $e^2$ more, so $4e^2$ whatever h. The arithmetic in the products (FLOPs, floating-point
# operations) stays, too. What grows is the number of attention weights, and the number of pieces:
# $3h + 1$ matrices and $5h + 1$ products, ever smaller and one after the other.

# %% [markdown]
# ## Exercises
#
# ### Add up the heads
#
# *Easy, 5 minutes.* Concatenating the heads and multiplying by $W_O$ can be done head by head.
# `mixed` is a list of h tensors `(n, d)`, one per head; `w_o` is `(h * d, e)`. Compute
# `torch.cat(mixed, dim=-1) @ w_o`, `(n, e)`, without concatenating.


# %% tags=["exercise"]
def add_up(mixed: list[Tensor], w_o: Tensor) -> Tensor:
    """Add up what each head contributes to the output."""
    return None  # your lines here


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
#
# <details><summary>Hint 3</summary>
#
# `w_o.split(d)` cuts the rows into blocks of d, in order.
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
# *Medium, 10 minutes.* Write the module again, for any number of heads. Use `Head` from above: h
# of them, each of width e / h, and one more matrix `w_o`. The output is `(n, e)`. If h does not
# divide e, raise a `ValueError` that names both numbers.


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
# PyTorch finds what is an attribute and a module, a `Parameter`, or an `nn.ModuleList`. It does not
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
# dim=-1)`: that is as wide as the model, so `w_o` is `(e, e)`.
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
# Several heads are several attentions over narrow projections of the same words, put side by side
# and mixed by $W_O$. They need no more parameters than one head, but five more products for each.
# [The next chapter](03_split_and_stack.ipynb) finds the matrices of all heads inside one.
