# %% [markdown]
# # Published code
#
# *What does the code that people copy really compute?*
#
# Search for multi-head attention in PyTorch, and you find the same designs again and again. Of the
# seven here, two do not run as printed, one no longer runs, and one computes something else than the
# formula above it. First you run all seven, made correct. Then you break each of them the way it was
# broken, and see what comes out.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map(
    "project in", "split", "score", "mask", "softmax", "mix", "merge", "project out"
)

# %% [markdown]
# ## Seven designs, called alike
#
# The package `annotated_attention.published` has one module for each, in this book's own words and
# made correct: a list of heads and one wide projection, both from a blog post; a small projection
# that all heads share; [a page that annotates its own source](../docs/references.md#annotated-page);
# two from [a collection of paper code](../docs/references.md#paper-code-collection), with weights on
# the scores and without projections; and one that follows PyTorch's own source. Layout, mask and
# order of arguments are as they were.

# %%
import importlib
import math
import textwrap
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention import MultiheadAttention, chapters, published, split_heads
from annotated_attention.published import DESIGNS

one = chapters.load("01_one_head")

print(f"{'design':18} {'layout':10} {'mask':13} {'True':8} arguments")
for name, design in DESIGNS.items():
    about = f"{name:18} {design.layout:10} {design.mask:13} {design.true_means:8}"
    print(about, ", ".join(design.arguments).replace("attention_", "…_"))

# %% [markdown]
# Read the columns downwards. Layout, mask and the meaning of True differ, and in one design the values
# come first. So each design says how to call it: `design.call` takes batch-first tensors and our
# `blocked`, `(b, n, m)` with True for "must not see", whatever is inside.

# %%
torch.manual_seed(0)
words = one.EMBEDDINGS[None]                            # (1, 8, 4)
future = torch.ones(1, 8, 8, dtype=torch.bool).triu(1)  # (1, 8, 8)
for name, design in DESIGNS.items():
    module = design.build(4, 2)
    output = design.call(module, words, words, words, future)
    print(f"{name:18} {type(module).__name__:16} {tuple(output.shape)}")

# %% [markdown]
# ## What each computes
#
# Five of them are multi-head attention: they have `load_from`, which takes the weights of
# [the final class](07_multihead_attention.ipynb). Two are less than that, and have
# `as_multihead`, which builds the attention that they equal. Either way, `design.pair` gives a module
# and its equal. Compare outputs and gradients. The mask leaves one query no key at all; `wide
# projection` knows self-attention alone.

# %%
b, n, m, h, d = 2, 3, 5, 4, 6
query = torch.randn(b, n, h * d, dtype=torch.float64, requires_grad=True)  # (b, n, h * d)
key = torch.randn(b, m, h * d, dtype=torch.float64, requires_grad=True)    # (b, m, h * d)
blocked = torch.rand(b, n, m) < 0.4                                        # (b, n, m)
blocked[..., 0], blocked[1, 2] = False, True

EQUALS: dict[str, str] = {}
for name, design in DESIGNS.items():
    module, reference = (x.double() for x in design.pair(h * d, h))
    given = (query,) * 3 if design.kind == "self" else (query, key, key)
    fitting = blocked[..., : given[1].size(1)]
    output = design.call(module, *given, fitting)  # (b, n, h * d)
    expected, _ = reference(*given, attn_mask=fitting.repeat_interleave(h, 0))
    torch.testing.assert_close(output, expected)
    mine, theirs = (one.gradients(x, {*given}) for x in (output, expected))
    torch.testing.assert_close(mine, theirs)
    way = "load_from" if hasattr(module, "load_from") else "as_multihead"
    EQUALS[name] = {"load_from": "any weights", "as_multihead": "some weights"}[way]
    print(f"{name:18} equal, by {way}")

# %% [markdown]
# Now the two that are less. `shared projection` cuts the embedding into slices first, and projects
# every slice with the same small matrix. As a wide matrix that is one block, h times along the
# diagonal, and zeros everywhere else. `no projection` has ones on the diagonal.

# %%
for small in (published.SharedProjection(6, 3), published.NoProjection(6, 3)):
    wide = small.as_multihead().in_proj_weight.chunk(3)[0]  # (6, 6)
    print(wide.detach().numpy().round(2))


def count(module: nn.Module) -> int:
    """Count a module's parameters."""
    return sum(parameter.numel() for parameter in module.parameters())


shared, full = count(published.SharedProjection(256, 8)), count(MultiheadAttention(256, 8))
print(f"parameters at e = 256, h = 8: {shared:,} of {full:,}, {shared / full:.0%}")

# %% [markdown]
# No head ever sees another head's slice before the output projection. The article that prints this
# code prints the formula of multi-head attention above it. `no projection` comes from the same
# collection as `weighted scores`, and leaves the three projections out:

# %%
display.diff(published.WeightedScores.forward, published.NoProjection.forward)

# %% [markdown]
# `weighted scores` is more, not less. In each head, queries and keys may have any width $d_k$, and
# values any $d_v$. Only with $h d_k = h d_v = e$ is it ordinary attention. At other widths it is this
# formula for head i, where ⊙ multiplies each score by a factor from outside, its entry of A:
#
# $$\mathrm{softmax}\!\left(A_i \odot \frac{Q W^Q_i (K W^K_i)^\top}{\sqrt{d_k}}\right) V W^V_i$$

# %%
h, d_k, d_v, e = 4, 3, 7, 10
module = published.WeightedScores(e, d_k, d_v, h, dropout=0.0).double()
x, y = torch.randn(2, 3, e).double(), torch.randn(2, 5, e).double()
factors = torch.rand(2, h, 3, 5).double()
q = module.to_query(x).unflatten(-1, (h, d_k))
k = module.to_key(y).unflatten(-1, (h, d_k))
v = module.to_value(y).unflatten(-1, (h, d_v))
heads = []
for i in range(h):
    scores = factors[:, i] * (q[:, :, i] @ k[:, :, i].mT) / math.sqrt(d_k)
    heads.append(scores.softmax(-1) @ v[:, :, i])
torch.testing.assert_close(module(x, y, y, factors), module.output(torch.cat(heads, -1)))
print("formula and module agree; parameters at e = 512, h = 8:")
for width in (512, 64):
    print(f"d_k = d_v = {width}: {count(published.WeightedScores(512, width, width, 8)):,}")
print(f"the final class: {count(MultiheadAttention(512, 8)):,}")

# %% [markdown]
# The published example passes 512 as the width of *one* head, eight times what ordinary attention
# takes. It runs, and so do the other two that came with sizes:

# %%
demos = {"shared projection": (10, 20, 50, 256), "weighted scores": (50, 49, 49, 512)}
demos["no projection"] = demos["weighted scores"]
with torch.no_grad():
    for name, (b, n, m, e) in demos.items():
        design = DESIGNS[name]
        x, y = torch.randn(b, n, e), torch.randn(b, m, e)
        print(f"{name:18} {tuple(design.call(design.build(e, 8), x, y, y, None).shape)}")

# %% [markdown]
# ## The same input through all seven
#
# Put the sentence of [One head](01_one_head.ipynb) through all of them, with the same weights where they can take them,
# and the words behind *it* hidden. How strongly does the output for *it* react to each word? The size
# of its derivative tells, as a share of the sum over all words.


# %%
def reaction(design, module: nn.Module, x: Tensor, blocked: Tensor, row: int) -> Tensor:
    """Measure how output ``row`` reacts to each word, as shares that sum to 1.

    Args:
        x: (1, n, e), one sentence.
        blocked: (1, n, n), True = blocked.
        row: which word's output.
    """

    def attend(x: Tensor) -> Tensor:
        return design.call(module, x, x, x, blocked)[0, row]

    jacobian = torch.autograd.functional.jacobian(attend, x)  # (e, 1, n, e)
    sizes = jacobian[:, 0].norm(dim=(0, 2))                   # (n,)
    return sizes / sizes.sum()


# %%
torch.manual_seed(3)
reference = MultiheadAttention(4, 2, batch_first=True)
rows = []
for design in DESIGNS.values():
    module = design.build(4, 2)
    if hasattr(module, "load_from"):
        module.load_from(reference)
    rows.append(reaction(design, module, words, future, one.WORDS.index("it")))
reactions = torch.stack(rows)  # (7, 8)

same = [name for name, row in zip(DESIGNS, rows) if torch.allclose(row, rows[0])]
assert same == [name for name, weights in EQUALS.items() if weights == "any weights"]
print("as the first:", ", ".join(same))
print("of the hidden words, at most", reactions[:, 6:].abs().max().item())
assert not reactions[:, 6:].any()

# %% jupyter={"source_hidden": true}
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle

drawing, (ax,) = display.panels(640, 280)
for i, row in enumerate(reactions.tolist()):
    for j, share in enumerate(row):
        fill = to_rgba(display.COLOURS["n"], 0.8 * share)
        ax.add_patch(Rectangle((j, i), 1, 1, facecolor=fill, edgecolor="#808080"))
        shown = f"{share:.2f}"[1:] if share else "–"
        ax.text(j + 0.5, i + 0.5, shown, ha="center", va="center")
ax.set(xlim=(0, 8), ylim=(7, 0))
ax.set_xticks([j + 0.5 for j in range(8)], one.WORDS, color=display.COLOURS["m"])
ax.set_yticks([i + 0.5 for i in range(7)], DESIGNS)
ax.tick_params(length=0, labeltop=True, labelbottom=False)
ax.spines[:].set_visible(False)
alt = "How the output for it reacts to each word, as shares, a row per design. " + " ".join(
    f"{name}: {', '.join(f'{word} {share:.2f}' for word, share in zip(one.WORDS, row))}."
    for name, row in list(zip(DESIGNS, reactions.tolist()))[:6] if name not in same[1:])
display.finish(drawing, name="all-seven", alt=f"{alt} {', '.join(same[1:])}: as the first.")

# %% [markdown]
# The designs that equal multi-head attention have equal rows, whatever layout and mask they took on
# the way. The other two are functions of their own. None lets the hidden words through.
#
# ## What does not run
#
# From here on you break what was repaired. A helper prints what happens when something runs as it was
# published, and notes it for the table at the end. It insists: if one of these ran one day, or came out
# right, this page would not build.

# %%
BROKE: dict[str, list[str]] = {name: [] for name in DESIGNS}


def raised(run) -> str:
    """Run what was published, and give the error that stops it."""
    try:
        run()
    except Exception as error:
        return f"{type(error).__name__}: {str(error) or '(no message)'}"
    raise AssertionError("it runs")


def broken(design: str, what: str, happened, sure: bool = True) -> None:
    """Print what happens, make sure of it, and note it."""
    happened = raised(happened) if callable(happened) else happened
    assert sure, f"{design}: {what}? {happened}"
    BROKE[design].append(what)
    print(f"{design}: {what}\n    {textwrap.shorten(happened, 84, placeholder=' …')}")


# %%
x = torch.randn(2, 3, 24)    # (2, 3, 24)
q = torch.randn(2, 4, 3, 6)  # (2, 4, 3, 6)
swapped = published.module_per_head.Head  # expects the wider size first

broken("module per head", "torch.ModuleList", lambda: torch.ModuleList([]))
broken("module per head", "swapped arguments", lambda: swapped(6, 24)(x, x, x, None))
broken("wide projection", "import torch.nn.Functional",
       lambda: importlib.import_module("torch.nn.Functional"))
broken("wide projection", "bmm on four axes", lambda: torch.bmm(q, q.mT))
module = published.WideProjection(24, 4)
module.forward = lambda x: module.output(x).view(2, 3, d_model)  # known to __init__ alone
broken("wide projection", "d_model, known to __init__ alone", lambda: module(x))

# %% [markdown]
# Each of these stops at once. Two more stop only in some places or with some settings. One design hands
# its weights to a tracker, from a package that records training runs. Where that package is missing, as
# here, the design cannot even be imported. Where it is installed in its version 0.5.3, the design stops
# in `forward`, since the tracker no longer has the function that is called; this page does not install
# it, so you do not see that error. The other design sets the output's bias to zero, also where there is
# none.

# %%
broken("sequence first", "needs a tracker",
       lambda: importlib.import_module("labml.tracker"))
without = nn.Linear(24, 24, bias=False)
broken("packed projection", "bias=False", lambda: nn.init.zeros_(without.bias))

# %% [markdown]
# > **Pitfall.** A dependency in the middle of `forward`. Ours calls `on_weights`, a function that you
# > hand in, and does not know who listens. You use it below.
#
# ## Settings and masks that nobody tried
#
# Four heads in a width of 10? Without a check in the constructor, four designs stop somewhere further
# down, and speak of shapes. The last lines are ours, which say what is wrong.

# %%
x, e, h = torch.randn(2, 3, 10), 10, 4
d = e // h
slices = [x[..., i * d : (i + 1) * d] for i in range(h)]
prepare = published.PrepareHeads(e, h, d, bias=True)
merge = nn.Linear(e, e)

broken("module per head", "h need not divide e", lambda: merge(torch.cat(slices, -1)))
broken("wide projection", "h need not divide e", lambda: x.view(2, 3, h, d))
broken("no projection", "h need not divide e", lambda: x.view(2, 3, h, d))
broken("sequence first", "h need not divide e", lambda: merge(prepare(x).flatten(2)))
print("ours:\n   ", raised(lambda: published.SequenceFirst(h, e)))

# %% [markdown]
# Two designs have masks that ought to be optional and are not: in one the mask has no default, and in
# the other a padding mask is asserted to be there. Both are added to ours, which need neither.


# %%
class WithoutDefault(published.ModulePerHead):
    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        return super().forward(query, key, value, mask)


class Asserted(published.PackedProjection):
    def merge_masks(self, key_padding_mask, attn_mask, query, key) -> Tensor:
        assert key_padding_mask is not None
        return super().merge_masks(key_padding_mask, attn_mask, query, key)


x = torch.randn(2, 3, 24)  # (2, 3, 24)
for ours in (published.ModulePerHead, published.PackedProjection):
    ours(24, 4)(x, x, x)
broken("module per head", "no default for the mask", lambda: WithoutDefault(24, 4)(x, x, x))
broken("packed projection", "needs a padding mask", lambda: Asserted(24, 4)(x, x, x))

# %% [markdown]
# And one check refuses what is right. The mask is `(n, m, b)`, where n may be 1. The check compares the
# first size with the *second*, so that the mask of a decoder that looks at its source does not pass.


# %%
def check(mask: Tensor) -> str:
    """Check a mask of sizes n, m and b as it was published."""
    assert mask.shape[0] in (1, mask.shape[1]), f"refused: {tuple(mask.shape)}"
    return "accepted"


print("(3, 3, 2)", check(torch.ones(3, 3, 2)), "and (1, 5, 2)", check(torch.ones(1, 5, 2)))
broken("sequence first", "refuses masks with n ≠ m", lambda: check(torch.ones(3, 5, 2)))

# %% [markdown]
# ## What runs, and loses something
#
# The nearest repair for `torch.ModuleList` is a plain list. It runs, and [Two
# heads](02_two_heads.ipynb) has shown what it loses:

# %%
module = published.ModulePerHead(24, 4)
everything, heads = count(module), list(module.heads)
del module.heads
module.heads = heads
broken("module per head", "heads in a plain list",
       f"{count(module):,} of {everything:,} parameters will be trained and saved",
       count(module) < everything)

# %% [markdown]
# The article of `packed projection` has a class for one head, which declares $W_O$ and never applies it.
# In that of `module per head`, the formula leaves $W_O$ out and the code applies it, so that the two
# are different functions.


# %%
class NeverApplied(one.OneHead):
    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return one.attend(query @ self.w_q, key @ self.w_k, value @ self.w_v)[0]


head, x = one.xavier(NeverApplied(4, 4)), one.EMBEDDINGS
head(x, x, x).sum().backward()
broken("packed projection", "W_O without a gradient (one head)", f"{head.w_o.grad}",
       head.w_o.grad is None)

module = published.ModulePerHead(4, 2)
side_by_side = torch.cat([part(words, words, words, None) for part in module.heads], -1)
equal = torch.allclose(side_by_side, module(words, words, words))
broken("module per head", "a formula without W_O", f"equals the code: {equal}", not equal)

# %% [markdown]
# Now three things that cost nothing until somebody relies on them. One design defines `__call__` where
# a module has `forward`; its own base class repairs that, and on a plain `nn.Module` hooks never run.
# A comment in it says that one token of each sequence becomes `(b, e)`. And the two designs of the
# collection initialise convolutions and normalisations, of which they have none.


# %%
class Called(nn.Module):
    def __call__(self, x: Tensor) -> Tensor:
        return x


module, hooked = Called(), []
module.register_forward_hook(lambda *x: hooked.append(1))
module(torch.zeros(3))
broken("sequence first", "__call__ for forward", f"{len(hooked)} hooks ran", not hooked)

tokens = published.PrepareHeads(24, 4, 6, bias=True)(torch.randn(2, 24))  # (2, 4, 6)
broken("sequence first", "a comment that says (b, e)", str(tuple(tokens.shape)),
       tokens.shape != (2, 24))
for name in ("weighted scores", "no projection"):
    kinds = {type(part).__name__ for part in DESIGNS[name].build(24, 4).modules()}
    never = not kinds & {"Conv2d", "BatchNorm2d"}
    broken(name, "branches that never run", f"it is made of {sorted(kinds)}", never)

# %% [markdown]
# ## Masks
#
# Mix up the two conventions: hand the same mask, with True for padding, to each design. `design.call`
# would turn it round where True means allowed. The cell turns it round before that, so that it arrives
# as it was. Then it asks what the output for *cat* reacts to.

# %%
padding = torch.zeros(1, 8, 8, dtype=torch.bool)  # (1, 8, 8)
padding[..., 6:] = True
for name, design in DESIGNS.items():
    module = design.build(4, 2)
    literally = padding if design.true_means == "blocked" else ~padding
    shares = reaction(design, module, words, literally, 1)  # (8,)
    cat, share = shares[1], shares[6:].sum()
    mixed_up = share > 0.9 and torch.isclose(cat + share, torch.tensor(1.0))
    assert mixed_up if design.true_means == "allowed" else share == 0
    print(f"{name:18} True = {design.true_means}: padding {share:3.0%}, cat {cat:3.0%}")

# %% [markdown]
# No error, no warning. The designs with the other meaning attend to the padding, and to nothing else;
# the rest of their reaction is *cat* itself, as the query.
#
# Next, a fully masked query. These designs fill blocked scores with a number. What does the
# softmax make of a row in which all three scores are blocked?

# %%
minus_infinity = ["module per head", "wide projection", "weighted scores", "no projection"]
fills = dict.fromkeys(minus_infinity, -math.inf)
fills |= {"shared projection": -1e20, "sequence first": -1e9, "packed projection": -1e28}
row, all_three = torch.tensor([-3.0, 1.0, 2.0]), torch.ones(3, dtype=torch.bool)
for name, fill in fills.items():
    weights = row.masked_fill(all_three, fill).softmax(-1)  # (3,)
    what = "NaN" if weights.isnan().all() else "the mean of what is hidden"
    sure = weights.isnan().all() or (weights == 1 / 3).all()
    shown = [round(weight, 2) for weight in weights.tolist()]
    broken(name, f"fully masked: {what}", f"{fill:.0e}: {shown}", sure)

# %% [markdown]
# NaN spreads through the whole batch once it is trained on. The mean looks healthy, and is made of
# exactly what the mask hides. And a finite number has to fit the type of the scores:

# %%
for name in ("shared projection", "sequence first", "packed projection"):
    broken(name, "overflow in half precision",
           partial(row.half().masked_fill, all_three, fills[name]))

# %% [markdown]
# All seven of ours give such a query weights of zero and finite gradients, like the final class: the
# comparison above had one.
#
# > **Pitfall.** A factor is no mask. `weighted scores` multiplies the scores by weights from outside. A
# > factor of 0 makes a score 0, which may be more than it was:

# %%
scores, factors = torch.tensor([-3.0, 1.0]), torch.tensor([0.0, 1.0])  # (2,)
before, after = scores.softmax(-1)[0], (scores * factors).softmax(-1)[0]
broken("weighted scores", "a factor of 0 does not block", f"{before:.3f} -> {after:.2f}",
       after > before)

# %% [markdown]
# ## Numbers of the wrong size
#
# `shared projection` divided by $\sqrt e$. The sharing is a design, and stays. The divisor is a slip:
# a score adds up $d$ products, and the formula printed beside it says $\sqrt{d_k}$. So ours divides by
# $\sqrt d$. How large are the scores, with queries and keys of variance 1, and with those that its own
# initial weights make?

# %%
torch.manual_seed(0)
e, h, d = 256, 8, 32
module = published.SharedProjection(e, h)
q, k = torch.randn(500, d), torch.randn(500, d)  # (500, d)
own = (module.to_query(q), module.to_key(k))     # (500, d)
for name, (a, c) in {"variance 1": (q, k), "its own": own}.items():
    by_e, by_d = ((a @ c.mT / math.sqrt(width)).std().item() for width in (e, d))
    print(f"{name}: deviation {by_e:.2f} by √e, {by_d:.2f} by √d")
factor = by_d / by_e
broken("shared projection", "√e for √d", f"too small by {factor:.2f}, √h = {h**0.5:.2f}",
       math.isclose(factor, h**0.5, rel_tol=1e-3))
broken("shared projection", "not its formula", f"{shared / full:.0%} of the parameters")

# %% [markdown]
# The softmax is too flat by $\sqrt h$. The collection's designs go further: they start every weight with
# a deviation of 0.001. What is left of inputs of variance 1 at width 512, after one projection? In
# `weighted scores` it makes queries and keys; `no projection` has one at the end alone.

# %%
module, x = published.WeightedScores(512, 64, 64, 8), torch.randn(49, 512)
projections = (module.to_query, module.to_key)
for start in ("Xavier", "0.001"):
    for linear in projections if start == "0.001" else ():
        nn.init.normal_(linear.weight, std=0.001)
    q, k = (linear(x)[:, :64] for linear in projections)  # (49, 64)
    weights = (q @ k.mT / 8).softmax(-1)                  # (49, 49)
    print(f"{start:6} deviation {q.std():.3f}, largest of 49 weights {weights.max():.3f}")
broken("weighted scores", "initial weights too small", f"an even share is {1 / 49:.3f}",
       weights.max() < 1.02 / 49)
module = published.NoProjection(512, 8, dropout=0.0)
nn.init.normal_(module.output.weight, std=0.001)
output = module(x[None], x[None], x[None]).std()
broken("no projection", "initial weights too small", f"output deviation {output:.3f}",
       output < 0.03)

# %% [markdown]
# In `weighted scores` every key gets the same, whatever it says, and both outputs start next to zero.
# The article of `packed projection` also has a shortest version, `published.Shortest` here, and that
# one chose no numbers at all: `torch.empty` holds what the last user left there. PyTorch's
# deterministic mode makes it NaN.


# %%
class NotInitialised(published.Shortest):
    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__(embed_dim, num_heads)
        for name in ("w_q", "w_k", "w_v", "w_o"):
            setattr(self, name, nn.Parameter(torch.empty(embed_dim, embed_dim)))


x = torch.randn(3, 2, 24)
torch.use_deterministic_algorithms(True)
output, _ = NotInitialised(24, 4)(x, x, x)
torch.use_deterministic_algorithms(False)
broken("packed projection", "no initial weights (shortest)", f"{output[0, 0, :3].tolist()}",
       output.isnan().all())
output, _ = published.Shortest(24, 4)(x, x, x)  # (3, 2, 24), (2, 4, 3, 3)
print("ours:\n   ", [round(number, 2) for number in output[0, 0, :3].tolist()])

# %% [markdown]
# ## Weights that are not what they say
#
# `packed projection` promised weights of `(b, h, n, m)`. It returned those of the fold, and took them
# after dropout.

# %%
module = published.PackedProjection(24, 4, dropout=0.5)
folded = torch.randn(2 * 4, 3, 6)
_, of_the_fold = module.attention(folded, folded, folded, None)
_, weights = module(x, x, x)
broken("packed projection", "weights folded", f"{tuple(of_the_fold.shape)}",
       of_the_fold.shape != weights.shape)
sums = F.dropout(weights, 0.5)[0, 0].sum(-1)
broken("packed projection", "weights after dropout",
       f"rows sum to {[round(total, 2) for total in sums.tolist()]}", (sums != 1).all())
sums = weights[0, 0].sum(-1)
print("ours:\n   ", tuple(weights.shape), "and", [round(x, 3) for x in sums.tolist()])

# %% [markdown]
# `sequence first` keeps the last weights on the module. That is a feature with a price: between two
# calls they take more than the output itself. Ours can do without, and still show them to you.

# %%
x = torch.randn(256, 4, 64)
module = published.SequenceFirst(8, 64)
output = module(query=x, key=x, value=x)
broken("sequence first", "weights kept between calls",
       f"{module.last_weights.nbytes:,} bytes; the output has {output.nbytes:,}",
       module.last_weights.nbytes > output.nbytes)
seen: list[Tensor] = []
module = published.SequenceFirst(8, 64, keep_weights=False, on_weights=seen.append)
module(query=x, key=x, value=x)
print("ours:\n   ", module.last_weights, "kept, shown:", tuple(seen[0].shape))

# %% [markdown]
# ## A final norm, or none
#
# The last article goes on to a whole Transformer, which ends its stacks in a norm only with pre-LN.
# `torch.nn.Transformer` always has that norm, and so has ours, where `final_norm` chooses. Which of the
# two designs loses something without it?

# %%
from annotated_attention import Transformer

x = torch.randn(1, 8, 24)
for norm_first in (False, True):
    stacks = []
    for final_norm in (True, False):
        torch.manual_seed(15)
        options = {"norm_first": norm_first, "final_norm": final_norm, "batch_first": True}
        stacks.append(Transformer(24, 4, 6, 1, 48, dropout=0.0, **options).encoder)
    for name, stack in zip(("with", "without"), stacks):
        order = "pre-LN" if norm_first else "post-LN"
        print(f"{order:>7}, {name:>7} final norm: deviation {stack(x).std():.2f}")

# %% [markdown]
# A post-LN stack loses nothing: its last layer ends in a norm already, so the article's choice is that
# of the 2017 paper. A pre-LN stack ends in a sum, which has grown with every layer. `final_norm=norm_first`
# is the article's design in our class.
#
# ## Positions, and one excuse
#
# The positional encoding of the same article gives the even features a sine and the odd ones a cosine.
# The index j of the pairs runs to j < d in the text, where 2j < d is meant; odd widths were never tried;
# and it takes sequence-first input without saying so.


# %%
def encode(length: int, width: int, pairs: int) -> Tensor:
    """Make a sine and a cosine for each pair of features."""
    angles = torch.arange(length)[:, None] / 10000 ** (2 * torch.arange(pairs) / width)
    table = torch.zeros(length, width)
    table[:, 0::2], table[:, 1::2] = angles.sin(), angles.cos()
    return table


print("right:", tuple(encode(5, 6, 3).shape))
broken("packed projection", "positions: j < d", lambda: encode(5, 6, 6))
broken("packed projection", "positions: odd widths", lambda: encode(5, 7, 4))
x = torch.zeros(2, 3, 6)                     # batch-first
added = x + encode(5, 6, 3)[: len(x), None]  # (2, 3, 6)
apart = (added[0] - added[0, 0]).abs().max()
broken("packed projection", "positions: batch-first", f"words differ by {apart:.0f}",
       apart == 0)

# %% [markdown]
# Batch-first, all words of a sentence get the same position. The excuse is about [the
# reshape trick](04_reshape_trick.ipynb): reshaping is said to be allowed "since the weights are random anyway". It
# needs no excuse, because splitting and stacking gives the same numbers, bit for bit.

# %%
q = torch.randn(3, 24)
stacked = torch.stack(q.split(6, -1))  # (4, 3, 6)
reshaped = split_heads(q, 4)           # (4, 3, 6)
broken("packed projection", "a needless excuse", f"equal: {stacked.equal(reshaped)}",
       stacked.equal(reshaped))

# %% [markdown]
# And what the same article counts is right: $4e^2 + 4e$ parameters, and $4lbe(2e + l)$ operations for
# self-attention over l tokens.

# %%
from torch.utils.flop_counter import FlopCounterMode

length, b, e = 64, 2, 32
module, x = published.PackedProjection(e, 4), torch.randn(length, b, e)
with FlopCounterMode(display=False) as counter:
    module(x, x, x)
print("operations:", counter.get_total_flops(), "=", 4 * length * b * e * (2 * e + length))
print("parameters:", count(module), "=", 4 * e * e + 4 * e)

# %% [markdown]
# ## The table
#
# Each design in two lines or more: layout, mask, what True means, parameters at e = 24 and h = 4, and
# with which weights it equals the final class; then what the cells above have noted. Read it as a
# list of what to look for. Masks, sizes and numbers that nobody tried come up again and again, and the
# formula of attention hardly ever.

# %%
for name, design in DESIGNS.items():
    module = design.build(24, 4)
    about = f"{name:18} {design.layout}  {design.mask:13}  True = {design.true_means}"
    print(f"{about}  {count(module):4}  {EQUALS[name]}")
    broke = " · ".join(dict.fromkeys(BROKE[name]))
    print(textwrap.fill(broke, 84, initial_indent="    ", subsequent_indent="    "))

# %% [markdown]
# ## Examined by the doctor
#
# The next chapter builds a doctor that examines attention from outside, knowing nothing of it. What does
# it say of the seven, as they are now?

# %%
from annotated_attention import mistakes
from annotated_attention.doctor import adapters, examine


def patient(design, module: nn.Module):
    """Call a design as the doctor does, by its kind."""
    if design.kind == "cross":
        return partial(design.call, module)
    return lambda x, blocked: design.call(module, x, x, x, blocked)


for name, design in DESIGNS.items():
    module = design.build(24, 4)
    attend = patient(design, module)
    report = examine(attend, embed_dim=24, num_heads=4, kind=design.kind, module=module)
    assert report.ok, report
    print(f"{name:18} nothing wrong, not examined: {len(report.not_examined)}")
print("the last one:", *report.not_examined, sep="\n    ")

# %% [markdown]
# Nothing, and it says what it could not ask. Would it have found what was wrong? `mistakes` has versions
# of attention with one defect each, eight of them from this chapter. Behind each defect stands the
# doctor's worst finding.

# %%
AS_PUBLISHED = {
    "heads in a plain list": mistakes.HeadsInAPlainList,
    "W_O never applied": mistakes.OutputProjectionMissing,
    "__call__ for forward": mistakes.CallInsteadOfForward,
    "√e for √d": mistakes.ScaleByModelWidth,
    "True taken for allowed": mistakes.MaskInverted,
    "a factor of 0 as a mask": mistakes.MaskMultiplied,
    "filled with -1e9": mistakes.FiniteFillInHalf,
    "filled with -inf": mistakes.NanRow,
}
for what, version in AS_PUBLISHED.items():
    report = examine(adapters.torch_like(version(24, 4)), embed_dim=24, num_heads=4)
    print(f"{what:24} {report.findings[0].severity}: {report.findings[0].code}")

# %% [markdown]
# Each is found. NaN for a fully masked row it calls a convention, since careful code does that, too:
# `torch.nn.MultiheadAttention`, for one.
#
# ## What they teach
#
# - **Run it.** What was never run does not run.
# - **Choose sizes that all differ.** The check that refuses n ≠ m, and swapped arguments, hide behind
#   equal sizes.
# - **Say what True means,** in the name: `blocked` or `allowed`. Nothing else will tell.
# - **Give a fully masked row a meaning,** and test it, in half precision, too.
# - **Compare with the formula.** Shared projections and $\sqrt e$ keep every shape.
# - **Ask where the numbers start.** Nothing, or next to nothing, is a choice as well.
# - **Look at gradients and parameters, not only at outputs.** With its heads in a plain list, a module
#   gives the right outputs, and the heads never learn.
#
# ## Exercises
#
# ### The small projection, made wide
#
# *Easy, 5 minutes.* Write what `as_multihead` needs: from the block of a shared projection, `(d, d)`, make
# the weight of one linear layer, `(h · d, h · d)`, that does the same to all heads at once. Gradients are
# to reach the block.


# %% tags=["exercise"]
def widen(block: Tensor, num_heads: int) -> Tensor:
    """Make one wide weight of a block that all heads share."""
    return None  # your lines here


# %%
from annotated_attention import exercises

exercises.published_code.check_widen(widen)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Look at the matrix printed in *What each computes*. What stands outside the blocks?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `torch.block_diag` takes any number of matrices, and copies keep their connection to the block.
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
def widen(block: Tensor, num_heads: int) -> Tensor:
    """Make one wide weight of a block that all heads share.

    Args:
        block: (d, d), as in a linear layer.
        num_heads: how many share it.
    """
    return torch.block_diag(*[block] * num_heads)  # (num_heads * d, num_heads * d)


exercises.published_code.check_widen(widen)

# %% [markdown]
# ### Call it your way
#
# *Medium, 10 minutes.* `module` is a `SequenceFirst`: keywords only, `(n, b, e)`, and a mask of `(n, m, b)`
# in which True means allowed. Your tensors are batch-first, and `blocked` is `(b, n, m)` with True for
# blocked, or None. Call it, and return `(b, n, e)`.


# %% tags=["exercise"]
def call_it(module, query: Tensor, key: Tensor, value: Tensor, blocked) -> Tensor:
    """Call a sequence-first module with batch-first tensors."""
    return None  # your lines here


# %%
exercises.published_code.check_call_it(call_it)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Five things have to turn: three inputs, the mask, and the output. The mask has to turn twice.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `~` exchanges True and False, and fails on None. `permute` takes the old axes in their new order.
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
def call_it(module, query: Tensor, key: Tensor, value: Tensor, blocked) -> Tensor:
    """Call a sequence-first module with batch-first tensors.

    Args:
        query: (b, n, e), batch-first.
        key: (b, m, e), batch-first.
        value: (b, m, e), batch-first.
    """
    q, k, v = (x.transpose(0, 1) for x in (query, key, value))
    allowed = None if blocked is None else ~blocked.permute(1, 2, 0)
    return module(query=q, key=k, value=v, mask=allowed).transpose(0, 1)  # (b, n, e)


exercises.published_code.check_call_it(call_it)

# %% [markdown]
# ## What you have now
#
# Seven designs, five of them one function in different clothes. What differs is where the axes stand,
# what True means, and what was ever tried. A few lines showed each defect, because you knew where to
# look. [The next chapter](16_testing_attention.ipynb) finds such defects in code that you cannot see
# into.
