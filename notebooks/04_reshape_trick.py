# %% [markdown]
# # The reshape trick
#
# *Can the heads be split without copying a number?*
#
# Splitting and stacking copies every number once, piece by piece. The same heads can be had by
# looking at the same memory in another way: one reshape and one transpose, and no copy. There are
# two famous ways to get it wrong, and both keep every shape. You run them, see them train, and
# learn how to catch them.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map("split", "merge")

# %% [markdown]
# ## A tensor is a row of numbers and a way to walk it
#
# However many axes a tensor has, its numbers lie in one row in memory. The **strides** say how far
# to walk for one step along each axis. Take n = 3 tokens, h = 2 heads of width d = 4.

# %%
import torch
from torch import Tensor, nn

from annotated_attention import chapters

one = chapters.load("01_one_head")
three = chapters.load("03_split_and_stack")
n, h, d = 3, 2, 4


def describe(name: str, x: Tensor) -> None:
    """Print how ``x`` lies in memory."""
    print(f"{name:12} {tuple(x.shape)!s:10} strides {x.stride()!s:10}", end="  ")
    print("contiguous" if x.is_contiguous() else "not contiguous")


x = torch.arange(n * h * d)      # (24,)
describe("numbers", x)
rows = x.view(n, h * d)          # (n, h * d)
describe("(n, h·d)", rows)
cut = rows.view(n, h, d)         # (n, h, d)
describe("(n, h, d)", cut)
heads = cut.transpose(0, 1)      # (h, n, d)
describe("(h, n, d)", heads)
print("same memory: ", x.data_ptr() == heads.data_ptr())

# %% [markdown]
# `view` cuts an axis in two: a step to the next head is a walk of d numbers, to the next token one
# of h·d. `transpose` exchanges two strides. Neither moves a number; all four are one memory. In the
# last, walking the axes in order no longer walks the memory in order: it is not *contiguous*.
#
# ## The trick
#
# So `(n, h * d)` → `(n, h, d)` → `(h, n, d)` splits the heads: first cut the features, then move the
# heads in front. Backwards it merges them. The package has both, for any number of axes in front.

# %%
from annotated_attention import merge_heads, split_heads

display.source(split_heads)

# %%
display.source(merge_heads)

# %% [markdown]
# Is it what splitting and stacking gives? Bit for bit, and the gradients, too.

# %%
x = torch.randn(3, 5 * 6, dtype=torch.float64, requires_grad=True)  # (3, 5 * 6)
trick, stacked = split_heads(x, 5), three.split_and_stack(x, 5)     # (5, 3, 6)
assert torch.equal(trick, stacked)
assert torch.equal(*(one.gradients(way, [x])[0] for way in (trick, stacked)))

back, joined = merge_heads(trick), three.unstack_and_concatenate(stacked)  # (3, 5 * 6)
assert torch.equal(back, joined)
assert torch.equal(*(one.gradients(way, [x])[0] for way in (back, joined)))
print("split and merged: the same bits, the same gradients")

# %% [markdown]
# ## Which step copies
#
# Splitting is free. Merging is not, where the heads lie one after the other: no strides can walk
# that memory as rows of `(n, h * d)`. `view` refuses; `reshape`, and so `flatten`, copies into a new
# piece (as `.contiguous().view(...)` does).

# %%
mixed = torch.randn(h, n, d)                  # (h, n, d)
describe("(h, n, d)", mixed)
moved = mixed.transpose(0, 1)                 # (n, h, d)
describe("(n, h, d)", moved)
try:
    moved.view(n, h * d)
except RuntimeError as error:
    print("view:", str(error).split(".")[0])
merged = moved.reshape(n, h * d)              # (n, h * d)
describe("(n, h·d)", merged)
print("same memory: ", merged.data_ptr() == mixed.data_ptr())

# %% [markdown]
# That is the price of merging. Chapter 5 counts what a whole attention copies.
#
# ## The two famous mistakes
#
# A reshape asks for nothing but the right number of numbers: `(h, n, d)` goes to `(n, h * d)` without
# any transpose, and nothing complains. Nor does it when `(n, h * d)` is viewed as `(h, n, d)`. Here
# they have a room of their own, `mistakes`.

# %%
from annotated_attention.mistakes.reshapes import merge_without_transpose as merge_wrongly
from annotated_attention.mistakes.reshapes import split_without_transpose as split_wrongly

display.source(merge_wrongly)

# %%
display.source(split_wrongly)

# %% [markdown]
# Each of the two steps can be right or wrong, so there are four ways. The usual check is to split,
# merge, and compare with what you had. Number an input of 3 tokens and 2 heads of width 2, and try:

# %%
WAYS = {
    "right": (split_heads, merge_heads),
    "wrong merge": (split_heads, merge_wrongly),
    "wrong split": (split_wrongly, merge_heads),
    "both wrong": (split_wrongly, merge_wrongly),
}
cells = torch.arange(3 * 4).view(3, 4)  # (3, 4)
for name, (split, merge) in WAYS.items():
    same = torch.equal(merge(split(cells, 2)), cells)
    print(f"{name:>12}: {'gives the input back' if same else 'does not'}")

# %% [markdown]
# The check finds one wrong step and passes two. Follow the numbers to see why. Below, each carries
# its origin through the functions themselves: 2c is feature c of token 2. A cell with a marked
# corner holds another number than the right way puts there.
#
# Where scripts run, the figure is yours. Go from step to step and follow 2c along the right way. Then
# untick a transpose: say first where 2c will be. Point at another number to follow that, or go to it
# with the arrow keys.

# %% jupyter={"source_hidden": true}
from matplotlib.patches import Polygon, Rectangle

FOLLOW = 6  # the number 2c


def spell(number: int) -> str:
    return f"{number // 4 + 1}{'abcd'[number % 4]}"


def draw_cell(ax, x: float, y: float, number: int, moved: bool) -> None:
    square, shade = ((x, y), 0.94, 0.94), 0.08 + 0.18 * (number // 4)
    corner = [(x + 0.66, y), (x + 0.94, y), (x + 0.94, y + 0.28)]
    ax.add_patch(Rectangle(*square, color=display.COLOURS["n"], alpha=shade, lw=0))
    if moved:
        ax.add_patch(Polygon(corner, color="black", lw=0))
    if number == FOLLOW:
        ax.add_patch(Rectangle(*square, fill=False, ec=display.COLOURS["h"], lw=2.5))
    ax.text(x + 0.47, y + 0.5, spell(number), ha="center", va="center", fontsize=9)


# %% jupyter={"source_hidden": true}
def draw_grid(ax, left: float, top: float, origin: Tensor, right: Tensor) -> str:
    for place, number in enumerate(origin.flatten().tolist()):
        row, column = divmod(place, origin.size(1))
        moved = number != right[row, column].item()
        draw_cell(ax, left + column, top + row, number, moved)
    return " ".join(map(spell, origin.flatten().tolist()))


def draw_way(ax, name: str, top: float, x: Tensor) -> str:
    split, merge = WAYS[name]
    wholes = [(x, x), *zip(split(x, 2), split_heads(x, 2)), (merge(split(x, 2)), x)]
    drawn = [draw_grid(ax, left, top, *pair) for left, pair in zip((0, 5, 8, 11), wholes)]
    ax.text(-0.6, top + 1.5, name, ha="right", va="center", weight="bold")
    return "{0}: head 1 holds {2}, head 2 {3}, the result {4}".format(name, *drawn)


drawing, (ax,) = display.panels(450, 375)
told = [draw_way(ax, name, top, cells) for name, top in zip(WAYS, (0, 3.8, 7.6, 11.4))]

# %% jupyter={"source_hidden": true}
for middle, name in ((2, "input"), (6, "head 1"), (9, "head 2"), (13, "result")):
    ax.text(middle, -0.3, name, ha="center")
ax.set(xlim=(-4.2, 15.2), ylim=(14.5, -1), aspect="equal")
ax.axis("off")
static = display.finish(drawing, name="where-numbers-go", alt="; ".join(told))
data = {"n": 3, "h": 2, "d": 2, "follow": divmod(FOLLOW, 4)}
display.live(static, "where_numbers_go", data, room=(560, 1200))

# %% [markdown]
# Split rightly, head 1 has features a and b of every token. Split wrongly, it is filled with what
# comes next in memory: all of token 1, half of token 2, and never the end. Merged wrongly, row 1 of
# the result, which is for token 1, holds two numbers of token 2.
#
# Two wrong steps undo each other, and the check passes: this is the combination to be afraid of. For
# between the two comes the attention, and its heads are the wrong ones. The check also passes where
# there is nothing to mix. Count what a wrong split puts elsewhere:

# %%
for tokens, parts in ((3, 2), (6, 4), (3, 1), (1, 2)):
    x = torch.arange(tokens * parts * 2).view(tokens, -1)
    moved = (split_wrongly(x, parts) != split_heads(x, parts)).sum()
    print(f"tokens: {tokens}, heads: {parts}, in a wrong place: {moved:2} of {x.numel()}")

# %% [markdown]
# With one head or one token, both wrong functions are right. Test with more, and with sizes that all
# differ.
#
# ## They train
#
# Build a module that takes the two steps as settings. Its attention is the package's, which can
# hide from each token all tokens after it: a **causal mask**, `is_causal=True`.


# %%
from annotated_attention import scaled_dot_product_attention


class Reshaped(nn.Module):
    """Self-attention with several heads; how to split and merge them is a setting."""

    def __init__(
        self, embed_dim: int, num_heads: int, split=split_heads, merge=merge_heads
    ) -> None:
        super().__init__()
        self.num_heads, self.split, self.merge = num_heads, split, merge
        for name in ("w_q", "w_k", "w_v", "w_o"):
            self.register_parameter(name, nn.Parameter(torch.empty(embed_dim, embed_dim)))
        one.xavier(self)

    def forward(self, x: Tensor, is_causal: bool = False) -> Tensor:
        """Attend from every token to all; ``is_causal`` hides those that come after."""
        matrices = (self.w_q, self.w_k, self.w_v)
        q, k, v = (self.split(x @ matrix, self.num_heads) for matrix in matrices)
        mixed, _ = scaled_dot_product_attention(q, k, v, is_causal=is_causal)
        return self.merge(mixed) @ self.w_o  # (..., n, h * d)


# %% [markdown]
# Give each the same small task: six random letters, and at each place the letter *before* it is
# wanted. Then one that nobody can do: the letter *after* it, which the mask hides.


# %%
def train(attention: Reshaped, shift: int, steps: int = 150) -> list[float]:
    """Train to name the letter ``shift`` places before; return accuracy by place."""
    torch.manual_seed(4)
    letter, place = nn.Embedding(10, 24), nn.Embedding(6, 24)
    out = nn.Sequential(nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 10))
    parts = nn.ModuleList([letter, place, attention, out])
    optimizer = torch.optim.Adam(parts.parameters(), lr=0.01)
    for _ in range(steps):
        given = torch.randint(10, (64, 6))                 # (64, 6)
        wanted = given.roll(shift, dims=1)                 # (64, 6)
        x = letter(given) + place.weight                   # (64, 6, 24)
        logits = out(x + attention(x, is_causal=True))     # (64, 6, 10)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return (logits.argmax(-1) == wanted).float().mean(0).tolist()


# %%
print("accuracy at places 1 to 6; at the ends the text goes round in a circle")
for task, shift in (("before", 1), ("after", -1)):
    for name, way in WAYS.items():
        torch.manual_seed(4)
        places = train(Reshaped(24, 4, *way), shift)
        print(f"the letter {task:>6}, {name:>11}:", "  ".join(f"{p:.2f}" for p in places))

# %% [markdown]
# Place 1 wants the last letter, which lies in its future: nobody can know it. Elsewhere nothing in
# the first task gives one wrong step away. Two wrong steps learn all places but one, which never gets
# to see the letter before it, and you would blame the task.
#
# The second task cannot be done but at the last place: guessing gives 0.10, and the right version
# guesses. One wrong step does far better. It has seen the answer, and when it has to generate text,
# there will be none to see.
#
# ## How to catch them
#
# **Does the future leak?** Under a causal mask, output i must not react to input j when j > i. The
# Jacobian says how it reacts; take the largest entry for each pair of tokens.


# %%
def reactions(model: nn.Module, length: int) -> Tensor:
    """Measure how strongly output i reacts to input j under a causal mask."""
    source = torch.Generator().manual_seed(4)
    x = torch.randn(length, 24, generator=source, dtype=torch.float64)  # (length, 24)
    jacobian = torch.autograd.functional.jacobian(lambda x: model(x, is_causal=True), x)
    return jacobian.abs().amax((1, 3))                                  # (length, length)


LENGTH = 6
torch.manual_seed(4)
models = {name: Reshaped(24, 4, *way).double() for name, way in WAYS.items()}
for name, model in models.items():
    leaks = reactions(model, LENGTH).triu(1) > 0  # (6, 6)
    print(f"{name:>12}: {leaks.sum():2} of {6 * 5 // 2} future cells react")

# %% jupyter={"source_hidden": true}
drawing, axes = display.panels(800, 230, columns=4)
for ax, (name, model) in zip(axes, models.items()):
    strength = reactions(model, LENGTH)  # (6, 6)
    for i in range(LENGTH):
        for j in range(LENGTH):
            alpha = 0.15 + 0.7 * (strength[i, j] / strength.max()).item()
            colour = display.COLOURS["h" if j > i else "n"]
            if strength[i, j] > 0:
                ax.add_patch(Rectangle((j, i), 1, 1, color=colour, alpha=alpha))
                text = "leak" if j > i else ""
                ax.text(j + 0.5, i + 0.5, text, ha="center", va="center")
    ax.set(xlim=(0, LENGTH), ylim=(LENGTH, 0), aspect="equal", title=name)
    ax.set(xlabel="input token", ylabel="output token", xticks=[], yticks=[])
display.finish(drawing, name="leak-matrix", alt="; ".join(
    f"{name}: {(reactions(model, LENGTH).triu(1) > 0).sum()} future cells react"
    for name, model in models.items()
))

# %% [markdown]
# One wrong step leaks, two do not. Ask two other things, which catch them all.
#
# **Does the beginning stay the same when the text goes on?** Under a causal mask it must. **Do the
# results move with the tokens?** Without a mask, and with nothing that says where a token stands,
# they must.


# %%
def prefix_gap(model: nn.Module) -> float:
    """Compare the first four outputs of six tokens with those of the four alone."""
    x = torch.randn(6, 24, generator=torch.Generator().manual_seed(5)).double()  # (6, 24)
    longer, alone = model(x, is_causal=True)[:4], model(x[:4], is_causal=True)   # (4, 24)
    return (longer - alone).abs().max().item()


def permutation_gap(model: nn.Module) -> float:
    """Compare the outputs of shuffled tokens with the shuffled outputs."""
    x = torch.randn(6, 24, generator=torch.Generator().manual_seed(6)).double()  # (6, 24)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    return (model(x[order]) - model(x)[order]).abs().max().item()


print("              leaks   prefix gap   permutation gap")
for name, model in models.items():
    leaks = (reactions(model, LENGTH).triu(1) > 0).any().item()
    gaps = prefix_gap(model), permutation_gap(model)
    print(f"{name:>12} {leaks!s:>6}", "{:12.0e} {:17.0e}".format(*gaps))

# %% [markdown]
# > **Pitfall.** Trusting shapes, a falling loss, or the way there and back. The first two pass with
# > any of the mistakes, the third with both at once. The questions above look at nothing but inputs
# > and outputs, so you can ask them of any attention, your own included.
#
# ## The same as before
#
# The module is that of chapter 3, with the trick in place of splitting and stacking:

# %%
display.diff(three.SplitAndStack, Reshaped)

# %% [markdown]
# Compare them with the same matrices: outputs, and the gradients of the input and of all four.

# %%
reshaped, stacked = models["right"], three.SplitAndStack(24, 4).double()
stacked.load_state_dict(reshaped.state_dict())
x = torch.randn(6, 24, dtype=torch.float64, requires_grad=True)  # (6, 24)

ours, theirs = reshaped(x), stacked(x, x, x)[0]                  # (6, 24)
torch.testing.assert_close(ours, theirs)
mine = one.gradients(ours, [x, *reshaped.parameters()])
torch.testing.assert_close(mine, one.gradients(theirs, [x, *stacked.parameters()]))
print(f"chapter 3: the output and {len(mine)} gradients agree")

# %%
torchs = nn.MultiheadAttention(24, 4, bias=False, dtype=torch.float64)
packed = [torchs.in_proj_weight, torchs.out_proj.weight]
with torch.no_grad():
    packed[0].copy_(torch.cat([reshaped.w_q, reshaped.w_k, reshaped.w_v], dim=1).mT)
    packed[1].copy_(reshaped.w_o.mT)

ours, (theirs, _) = reshaped(x), torchs(x, x, x)
torch.testing.assert_close(ours, theirs)
of_x, of_in, of_out = one.gradients(theirs, [x, *packed])
expected = (of_x, *(part.mT for part in of_in.chunk(3)), of_out.mT)
mine = one.gradients(ours, [x, *reshaped.parameters()])
torch.testing.assert_close(mine, expected)
print(f"PyTorch: the output and {len(mine)} gradients agree")

# %% [markdown]
# ## Exercises
#
# ### Where does it land?
#
# *Easy, 5 minutes.* Predict before you run. `x` is `(n, h * d)`, and its heads, split rightly, have
# the `shape` (h, n, d). Where among the heads is `x[token, feature]`? Return its index, three whole
# numbers, all counted from 0.


# %% tags=["exercise"]
def landing(token: int, feature: int, shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """Say where a cell of the input stands among the heads."""
    return None  # your lines here


# %%
from annotated_attention import exercises

exercises.reshape_trick.check_landing(landing)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A split keeps every number with its token. What it decides is the head, and the place in it.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The first d features are head 0, the next d are head 1. With d = 6, feature 8 is the one at 2 in
# head 1.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `feature // d` counts whole heads, `feature % d` is the rest. The index goes in the order of the
# axes.
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
def landing(token: int, feature: int, shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """Say where a cell of the input stands among the heads.

    Args:
        token: its row, counted from 0.
        feature: its column, counted from 0.
        shape: that of the heads: how many, how many tokens, how wide.
    """
    *_, d = shape
    return feature // d, token, feature % d


exercises.reshape_trick.check_landing(landing)

# %% [markdown]
# ### Repair a split
#
# *Medium, 10 minutes.* The shape that this function gives is right, and its numbers are those of
# `x`. What does row 1 of head 0 hold, counted from 0? Repair it: `x` is `(n, h * d)`, and in the
# result, `(h, n, d)`, every head has its own features of every token.


# %% tags=["exercise"]
def repaired(x: Tensor, num_heads: int) -> Tensor:
    """Split the features into heads."""
    return x.reshape(num_heads, -1, x.size(-1) // num_heads)  # repair this


# %%
exercises.reshape_trick.check_repaired(repaired)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A reshape reads the numbers in the order of memory: token by token. The first head fills up with
# the first tokens.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Cut the features only, and leave the tokens where they are: `(n, h, d)`. Which of the two parts of
# the features comes first?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Then change the order of the axes. That takes `transpose` or `permute`, not another reshape.
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
def repaired(x: Tensor, num_heads: int) -> Tensor:
    """Split the features into heads.

    Args:
        x: (n, h * d), one row per token.
        num_heads: how many.
    """
    cut = x.view(x.size(0), num_heads, -1)  # (n, h, d)
    return cut.transpose(0, 1)              # (h, n, d)


exercises.reshape_trick.check_repaired(repaired)

# %% [markdown]
# ## What you have now
#
# Splitting is `view` and `transpose` and free; merging is the same backwards, and copies where the
# memory does not fit. Leave out a transpose and every shape stays and the loss falls; leave out both
# and even the way there and back works. What catches it is asking what the outputs depend on. [The
# next chapter](05_batches.ipynb) adds the axis that is still missing: the batch.
