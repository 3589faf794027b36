# %% [markdown] name="the-reshape-trick"
# # The reshape trick
#
# *Can the heads be split without copying a single number?*
#
# *12 minutes and 7 of exercises. Afterwards you can split heads without a copy, merge them with
# one, and spot two mistakes that keep every shape.*
#
# > the cat drank milk because **it** was thirsty
#
# Think of a long shelf with one number per place. However many axes a tensor has, its numbers stand on
# one such shelf. Our sentence is a shelf of 32: eight words of four features each.
#
# [Split and stack](03_split_and_stack.ipynb) built a second shelf and copied all 32 numbers to it. How many
# of them have to move?
#
# <details><summary>What do you expect?</summary>
#
# None. You can leave the shelf as it is, and walk along it in another way.
#
# </details>

# %% tags=["hide-input"]
import torch
from torch import Tensor, nn

from annotated_attention import merge_heads, split_heads
from annotated_book import chapters, display

one = chapters.load("01_one_head")
three = chapters.load("03_split_and_stack")
n, h, d = 8, 2, 2

# %%
x = one.EMBEDDINGS           # (n, h * d)
cut = x.view(n, h, d)        # (n, h, d)
heads = cut.transpose(0, 1)  # (h, n, d)
print("the same shelf:", x.data_ptr() == heads.data_ptr())

# %% [markdown]
# That is the whole trick. `view` cuts the four features into two heads of two. It is a reshape that never
# copies. Then `transpose` moves the heads in front. The package calls the two steps `split_heads`, and the
# way back `merge_heads`; both count axes from the end, so that further axes may stand in front (three dots
# in comments: `(..., h, n, d)`).
#
# From here on a row is called a **token**: trained models cut text into words and pieces of words. For
# attention, a token is a row and nothing more.

# %% tags=["proof"]
assert torch.equal(heads, split_heads(x, h))
assert torch.equal(heads, three.split_and_stack(x, h))
merged = heads.transpose(0, 1).reshape(n, h * d)  # (h, n, d) -> (n, h * d)
assert torch.equal(merged, merge_heads(heads))
assert torch.equal(merged, three.unstack_and_concatenate(heads))
print("✓ Split and merged this way: the same numbers as splitting and stacking.")

# %% [markdown] name="strides"
# ## How to walk along a shelf
#
# A tensor is its shelf and a rule for stepping along it. For each axis the **stride** says how many places
# one step along that axis moves. Follow one number through four layouts: the *animal* feature of *cat*, a
# 3. Its place is the sum of each index times its stride.

# %%
layouts = [  # a name, a tensor, and where the number stands in it
    ("the shelf", x.view(-1), (4,)),
    ("(n, h·d)", x, (1, 0)),
    ("(n, h, d)", cut, (1, 0, 0)),
    ("(h, n, d)", heads, (0, 1, 0)),
]

# %% tags=["hide-input"]
walked = {}
for name, tensor, index in layouts:
    place = sum(i * stride for i, stride in zip(index, tensor.stride()))
    kept = "yes" if tensor.is_contiguous() else "no"
    walked[name] = [str(tensor.stride()), str(index), place, int(tensor[index]), kept]
display.show(walked, columns=["strides", "index", "place", "number", "contiguous"])

# %% [markdown]
# Place 4, in all four. In `(n, h, d)` a step to the next token is four places and a step to the next head is
# two. `transpose` exchanges the two sizes and these two strides; no number moves. Read the result axis by axis, and you jump
# along the shelf; a tensor that is read in jumps is called *not contiguous*.

# %% tags=["hide-input"]
places = torch.arange(32).view(n, h * d)  # (n, h * d)
read = {
    "split: view, then transpose": places.view(n, h, d).transpose(0, 1),
    "one reshape to (h, n, d)": places.reshape(h, n, d),
}
display.shelf(read, [f"{number:.0f}" for number in x.flatten()], name="shelf")

# %% [markdown]
# The first row is the trick: two places, a jump over two, two places, a jump. The second row is what people
# try first, because it is shorter, and because it gives the same shape.
#
# ## The shorter way
#
# `x.reshape(h, n, d)`, without a transpose: no error, the shape (2, 8, 2), all 32 numbers there. How many of
# them stand in the right place among the heads?

# %%
straight = places.reshape(h, n, d)  # (h, n, d)
print(
    "in their place:", int((straight == split_heads(places, h)).sum()), "of", places.numel()
)

# %% [markdown]
# Four. Look at the shelf again: a reshape never jumps. Head 1 is the first half of the shelf, orange, so it
# holds the first four words with all their features, and *it* is not among them.
#
# The way back can be shortened as well. So there are two mistakes:
#
# - **wrong split**: `x.reshape(h, n, d)`
# - **wrong merge**: `heads.reshape(n, h * d)`
#
# The usual check is the round trip: split, merge, and compare with the input. Each step can be right or
# wrong, so there are four ways. Which of them give the input back?
#
# <details><summary>What do you expect?</summary>
#
# The right way does, and so does the way with both steps wrong. A reshape without a transpose never changes
# the reading order, so two of them in a row change nothing at all.
#
# </details>

# %% tags=["hide-input"]
from attention_doctor.mistakes.reshapes import merge_without_transpose as merge_wrongly
from attention_doctor.mistakes.reshapes import split_without_transpose as split_wrongly

assert torch.equal(merge_wrongly(heads), heads.reshape(n, h * d))
assert torch.equal(split_wrongly(x, h), x.reshape(h, n, d))
WAYS = {
    "right": (split_heads, merge_heads),
    "wrong merge": (split_heads, merge_wrongly),
    "wrong split": (split_wrongly, merge_heads),
    "both wrong": (split_wrongly, merge_wrongly),
}
cells = torch.arange(3 * 4).view(3, 4)  # (3, 4)
results = {name: merge(split(cells, 2)) for name, (split, merge) in WAYS.items()}
back = {name: [str(torch.equal(result, cells))] for name, result in results.items()}
display.show(back, columns=["gives the input back"])

# %% [markdown] name="two-mistakes-that-keep-every-shape"
# ## Two mistakes that keep every shape
#
# Follow single numbers to see why. Take 3 tokens and 2 heads of width 2, and name every number by
# its origin: 2c is the third feature of the second token. The table shows what each head holds, and
# the first row of the result, which belongs to the first token.


# %%
def spell(numbers: Tensor) -> str:
    """Name each number by its token and its feature, for a width of 4."""
    places = numbers.flatten().tolist()
    return " ".join(f"{place // 4 + 1}{'abcd'[place % 4]}" for place in places)


spelled = {}
for name, (split, _) in WAYS.items():
    spelled[name] = [*map(spell, split(cells, 2)), spell(results[name][0])]
display.show(spelled, columns=["first head", "second head", "first row"])

# %% [markdown]
# With the right split, the first head holds the features a and b of every token. With the wrong
# split, the first head is filled with the first half of the input, row by row: all of the first
# token, half of the second, and nothing of the third. With the wrong merge, the first row of the
# result holds two numbers of the second token.
#
# With both steps wrong, all numbers come back to where they were, so the round trip finds nothing.
# But attention runs between the split and the merge, and it runs on wrongly split heads.

# %% tags=["hide-input"]
from matplotlib.patches import Polygon, Rectangle

FOLLOW = 6  # the number 2c


def draw_cell(ax, x: float, y: float, number: int, moved: bool) -> None:
    square, shade = ((x, y), 0.94, 0.94), 0.08 + 0.18 * (number // 4)
    corner = [(x + 0.66, y), (x + 0.94, y), (x + 0.94, y + 0.28)]
    ax.add_patch(Rectangle(*square, color=display.COLOURS["n"], alpha=shade, lw=0))
    if moved:
        ax.add_patch(Polygon(corner, color="black", lw=0))
    if number == FOLLOW:
        ax.add_patch(Rectangle(*square, fill=False, ec="#808080", lw=2.5))
    weight = "bold" if number == FOLLOW else "normal"
    place = {"ha": "center", "va": "center", "fontsize": 9}
    ax.text(x + 0.47, y + 0.5, spell(torch.tensor(number)), weight=weight, **place)


# %% tags=["hide-input"]
def draw_grid(ax, left: float, top: float, origin: Tensor, right: Tensor) -> str:
    for place, number in enumerate(origin.flatten().tolist()):
        row, column = divmod(place, origin.size(1))
        moved = number != right[row, column].item()
        draw_cell(ax, left + column, top + row, number, moved)
    return spell(origin)


def draw_way(ax, name: str, top: float, x: Tensor) -> str:
    split, merge = WAYS[name]
    wholes = [(x, x), *zip(split(x, 2), split_heads(x, 2)), (merge(split(x, 2)), x)]
    drawn = [draw_grid(ax, left, top, *pair) for left, pair in zip((0, 5, 8, 11), wholes)]
    ax.text(-0.6, top + 1.5, name, ha="right", va="center", weight="bold")
    return "{0}: head 1 holds {2}, head 2 {3}, the result {4}".format(name, *drawn)


drawing, (ax,) = display.panels(450, 375)
told = [draw_way(ax, name, top, cells) for name, top in zip(WAYS, (0, 3.8, 7.6, 11.4))]

# %% [markdown]
# The figure follows 2c from the input to the result. Where JavaScript runs, two transposes have a ticked
# box. Untick one, predict where 2c will end up, and look: a black corner marks each number that now stands
# in a wrong place. Point at another number to follow that one.

# %% tags=["hide-input"]
for middle, name in ((2, "input"), (6, "head 1"), (9, "head 2"), (13, "result")):
    ax.text(middle, -0.3, name, ha="center")
ax.set(xlim=(-4.2, 15.2), ylim=(14.5, -1), aspect="equal")
ax.axis("off")
static = display.finish(drawing, name="where-numbers-go", alt="; ".join(told))
data = {"n": 3, "h": 2, "d": 2, "follow": divmod(FOLLOW, 4)}
display.live(static, "where_numbers_go", data, room=(490, 420))

# %% [markdown]
# ## Two tests from outside
#
# Shapes do not reveal these mistakes, and neither does the round trip. So test the module as a
# whole, with attention in the middle. `Reshaped` inherits the four matrices of the module in [Split
# and stack](03_split_and_stack.ipynb), and takes its split and its merge as settings.


# %%
class Reshaped(three.SplitAndStack):
    """Several heads at once; how to split and merge them is a setting."""

    def __init__(
        self, embed_dim: int, num_heads: int, split=split_heads, merge=merge_heads
    ) -> None:
        super().__init__(embed_dim, num_heads)
        self.split, self.merge = split, merge

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from each query to every key."""
        q = self.split(query @ self.w_q, self.num_heads)  # (..., h, n, d)
        k = self.split(key @ self.w_k, self.num_heads)    # (..., h, m, d)
        v = self.split(value @ self.w_v, self.num_heads)  # (..., h, m, d)
        mixed, weights = one.attend(q, k, v)              # (..., h, n, d), (..., h, n, m)
        output = self.merge(mixed) @ self.w_o             # (..., n, e)
        return output, weights                            # (..., n, e), (..., h, n, m)


# %% [markdown]
# The first test **shuffles** the tokens: the last one comes to the front. This attention does not
# know where a token stands, so the output rows must be shuffled in the same way, and hold the same
# numbers as before. The second test **changes** one word, *cat*. Every word may look at every other,
# so the row of *it* must change, too.
#
# Run both on the four ways, and on a fifth, `Untransposed`. It keeps the cut `(n, h, d)` and attends
# there, where the wrong ways reshape to `(h, n, d)`. Which of the five pass the shuffle?
#
# <details><summary>What do you expect?</summary>
#
# The right way and the fifth. A wrong split or merge sends numbers to rows by their place, so the
# same word gets something else after the shuffle. Without any transpose each word's heads attend to
# one another, and no word sees another word. That is wrong, too, but the same wherever a word
# stands.
#
# </details>


# %%
class Untransposed(three.SplitAndStack):
    """The features are cut into heads, and the heads stay where they are."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Attend within each token."""
        wide = query @ self.w_q, key @ self.w_k, value @ self.w_v
        parts = (each.unflatten(-1, (self.num_heads, -1)) for each in wide)
        mixed, weights = one.attend(*parts)           # (n, h, d), (n, h, h)
        return mixed.flatten(-2) @ self.w_o, weights  # (n, e), (n, h, h)


# %%
def shuffle_gap(model: nn.Module, x: Tensor) -> float:
    """Compare the outputs of shuffled tokens with the shuffled outputs."""
    order = torch.arange(len(x)).roll(1)  # (n,), never the order as it was
    moved = x[order]                      # (n, e)
    gap = model(moved, moved, moved)[0] - model(x, x, x)[0][order]
    return gap.abs().max().item()


def reacts(model: nn.Module, x: Tensor, row: int, word: int) -> bool:
    """Change one word, and see whether one output row changes."""
    changed = x.clone()
    changed[word] += 1
    gap = model(changed, changed, changed)[0][row] - model(x, x, x)[0][row]
    return gap.abs().max().item() > 1e-9


# %%
torch.manual_seed(4)
models = {name: Reshaped(4, 2, *way).double() for name, way in WAYS.items()}
models["untransposed"] = Untransposed(4, 2).double()
it, cat, wide = one.WORDS.index("it"), one.WORDS.index("cat"), x.double()
found = {
    name: (shuffle_gap(model, wide), reacts(model, wide, it, cat))
    for name, model in models.items()
}
told = {name: [gap, "yes" if reaction else "no"] for name, (gap, reaction) in found.items()}
display.show(told, columns=["shuffle gap", "“it” reacts to “cat”"])

# %% tags=["proof"]
passed = [(gap < 1e-12, reaction) for gap, reaction in found.values()]
one_wrong = (False, True)
assert passed == [(True, True), one_wrong, one_wrong, (False, False), (True, False)]
print("✓ Only the right way passes both tests.")

# %% [markdown]
# In the right way the shuffle gap is zero, up to rounding, and in the three ways with a reshape
# that lacks its transpose it is large. Without any transpose the gap is zero as well, and only the
# second test finds the mistake. With both steps wrong, each head holds half of the sentence. *It*
# stands in the second half, so it can never find *cat*, whatever the matrices are.
#
# > **Pitfall.** Do not trust shapes, a falling loss, or the round trip. A wrong version can still
# > learn: in [Training](12_training.ipynb#cell-id=the-same-training-with-a-mistake-inside) the loss of two
# > wrong versions falls, and almost everything they write is wrong.
#
# Both tests look only at inputs and outputs, so you can use them on your own attention, as long as
# it has no mask, no positions and no dropout. Always run both, with at least two heads and **more
# tokens than heads**. With one head both mistakes change nothing, and with 4 tokens and 4 heads the
# shuffle misses them together. Change the last word and watch the first row, because not every pair
# of words reveals two wrong steps. [Testing attention](17_testing_attention.ipynb) has more tests.

# %% [markdown]
# <!-- deeper: why the merge copies -->
# ### Going deeper: why the merge copies
#
# The merge above moved no number, because its transpose undid that of the split. But `attend` runs
# in between, and writes its result into new memory: the whole first head stands on the shelf before
# the second. In the cell, `.contiguous()` stands in for `attend`: it copies the heads into that
# order.

# %%
mixed = heads.contiguous()     # (h, n, d)
moved = mixed.transpose(0, 1)  # (n, h, d)
try:
    moved.view(n, h * d)
except RuntimeError as error:
    print("view:", str(error).split(".")[0])
joined = moved.reshape(n, h * d)  # (n, h * d)
print("strides:", mixed.stride(), moved.stride(), joined.stride())
print("the same shelf:", joined.data_ptr() == mixed.data_ptr())

# %% [markdown]
# Before the merge, the four numbers of *cat* stand in places 2, 3, 18 and 19. A view has one stride
# for its last axis, and the steps here are 1, 15 and 1. So `view` refuses, and `reshape` copies the
# 3 back to place 4, without asking.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# <!-- deeper: how many tokens, and which words -->
# ### Going deeper: how many tokens, and which words
#
# Take both steps wrong, with 4 heads and several numbers of tokens, and try every pair of words.

# %%
both = Reshaped(24, 4, *WAYS["both wrong"]).double()
found = {}
for length in (2, 3, 4, 5, 8):
    tokens = torch.randn(length, 24, dtype=torch.float64)  # (length, 24)
    pairs = [(i, j) for i in range(length) for j in range(length) if i != j]
    react = sum(reacts(both, tokens, i, j) for i, j in pairs)
    first, caught = reacts(both, tokens, 0, length - 1), shuffle_gap(both, tokens) > 1e-12
    found[length] = caught, first
    print(f"{length} tokens: the shuffle finds it: {caught!s:5}", end=" ")
    print(f"{react:2} of {len(pairs):2} pairs react, first row to last word: {first}")
assert [length for length, (caught, _) in found.items() if not caught] == [2, 4]
assert not any(first for _, first in found.values())

# %% [markdown]
# With 2 or 4 tokens, each head is filled by a single token. No token then sees another, and the
# shuffle moves whole heads, so it finds nothing. This happens wherever the number of tokens divides
# the number of heads, and never with more tokens than heads. Some pairs react at the other lengths,
# so one pair taken at random may reveal nothing.
#
# Does one shuffle find every wrong way, if there are more tokens than heads? (A random order would
# not do: with 3 tokens, one in six is the order as it was.)

# %%
sizes = [(heads, length) for heads in range(2, 6) for length in range(heads + 1, 10)]
for way in ("wrong merge", "wrong split", "both wrong"):
    for heads, length in sizes:
        tokens = torch.randn(length, 2 * heads, dtype=torch.float64)  # (length, ...)
        wrong = Reshaped(2 * heads, heads, *WAYS[way]).double()
        assert shuffle_gap(wrong, tokens) > 1e-12
    print(f"{way}: found at all {len(sizes)} sizes")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# <!-- deeper: the same as before, the same as PyTorch -->
# ### Going deeper: the same as before, the same as PyTorch
#
# Compare the trick with splitting and stacking, and with PyTorch's class, on sizes that all differ:
# 3 queries, 5 keys, 4 heads of width 6. All three get the same matrices. Outputs, weights and the
# gradients of both inputs and of all matrices have to agree.

# %%
reshaped, stacked = Reshaped(24, 4).double(), three.SplitAndStack(24, 4).double()
stacked.load_state_dict(reshaped.state_dict())
asking = torch.randn(3, 24, dtype=torch.float64, requires_grad=True)  # (3, 24)
asked = torch.randn(5, 24, dtype=torch.float64, requires_grad=True)   # (5, 24)

ours, theirs = (module(asking, asked, asked) for module in (reshaped, stacked))
torch.testing.assert_close(ours, theirs)
mine = one.gradients(ours[0], [asking, asked, *reshaped.parameters()])
others = one.gradients(theirs[0], [asking, asked, *stacked.parameters()])
torch.testing.assert_close(mine, others)
print(f"split and stack: output, weights and {len(mine)} gradients agree")

# %%
torchs = nn.MultiheadAttention(24, 4, bias=False, dtype=torch.float64)
packed = [torchs.in_proj_weight, torchs.out_proj.weight]
with torch.no_grad():
    packed[0].copy_(torch.cat([reshaped.w_q, reshaped.w_k, reshaped.w_v], dim=1).mT)
    packed[1].copy_(reshaped.w_o.mT)

theirs = torchs(asking, asked, asked, average_attn_weights=False)
torch.testing.assert_close(reshaped(asking, asked, asked), theirs)
of_asking, of_asked, of_in, of_out = one.gradients(theirs[0], [asking, asked, *packed])
expected = (of_asking, of_asked, *(part.mT for part in of_in.chunk(3)), of_out.mT)
torch.testing.assert_close(mine, expected)
print(f"PyTorch: output, weights and {len(mine)} gradients agree")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Exercises
#
# ### One number
#
# *Easy, 2 minutes.* Take the sizes of the figure: 3 tokens and 2 heads of width 2, so `x` is (3,
# 4). Its heads, split correctly, are `(h, n, d)`, which is (2, 3, 2). Where among the heads is
# `x[2, 1]`, which the figure calls 3b? Write its index among the heads: three whole numbers, all
# counted from 0.

# %% tags=["exercise"]
my_place = (None, None, None)  # your three numbers here

# %%
from annotated_book import exercises

exercises.reshape_trick.check_place(my_place)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A right split keeps every number with its token. So the index of the token is one of your three
# numbers.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The first head, index 0, has the features a and b of every token. The second has c and d.
#
# </details>

# %% tags=["solution"]
my_place = (0, 2, 1)

exercises.reshape_trick.check_place.folded(my_place)

# %% [markdown]
# ### Repair a split
#
# *Easy, 5 minutes.* This function returns the right shape and all numbers of `x`, but puts the
# numbers in wrong places. Repair the function: `x` is `(n, h * d)`, and in the result, `(h, n, d)`,
# every head has its own features of every token.


# %% tags=["exercise"]
def repaired(x: Tensor, num_heads: int) -> Tensor:
    """Split the features into heads."""
    return x.reshape(num_heads, -1, x.size(-1) // num_heads)  # repair this


# %%
exercises.reshape_trick.check_repaired(repaired)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A reshape reads the numbers in the order of the axes: token by token. The first head fills up with
# the first tokens.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Cut only the features, and leave the tokens where they are: `(n, h, d)`. Which of the two new axes
# comes first, `h` or `d`?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Then change the order of the axes. That takes `transpose` or `permute`, not another reshape.
#
# </details>


# %% tags=["solution"]
def repaired(x: Tensor, num_heads: int) -> Tensor:
    """Split the features into heads.

    Args:
        x: (n, h * d), one row per token.
        num_heads: how many.
    """
    cut = x.view(x.size(0), num_heads, -1)  # (n, h, d)
    return cut.transpose(0, 1)              # (h, n, d)


exercises.reshape_trick.check_repaired.folded(repaired)

# %% [markdown]
# ## What you have now
#
# > **In short.** For head i, token p and feature j of the head, all counted from 0:
# >
# > $$\text{heads}_{i,\,p,\,j} = x_{p,\; i d + j}$$
# >
# > - split: `x.view(n, h, d).transpose(0, 1)`, `(n, h * d)` to `(h, n, d)`, copies nothing
# > - merge: `heads.transpose(0, 1).reshape(n, h * d)`, `(h, n, d)` to `(n, h * d)`, copies every
# >   number once if the heads stand one after the other in memory
# > - wrong split: `x.reshape(h, n, d)`, the same shape, but a head holds only some of the tokens
# > - wrong merge: `heads.reshape(n, h * d)`, the same shape, but a row holds several tokens
# >
# > A reshape reads the axes in order, the last one fastest; only a transpose changes which axis is
# > read first. Both mistakes keep every shape, and together they survive the round trip. So shuffle
# > the tokens, more of them than heads, and change one word.
#
# [Batches](05_batches.ipynb) adds the axis that is still missing.
