# %% [markdown]
# # The reshape trick
#
# *Can the heads be split without copying a single number?*
#
# > the cat drank milk because **it** was thirsty
#
# [Split and stack](03_split_and_stack.ipynb) copies every number into its stack. You can split into
# the same heads without moving a number: one reshape and one transpose read the same memory in
# another way. Many implementations do this, as [Published code](16_published_code.ipynb) shows. It is easy
# to make two mistakes on the way. Both keep every shape, and both run without an error. You will
# see where each mistake sends the numbers, and learn two questions and a quick test that reveal
# such mistakes.
#
# So far each row stood for a word. Trained models cut text into words and pieces of words, and each
# piece is called a **token**. For attention, a token is a row and nothing more. From here on the
# book says *token* wherever the particular word does not matter.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map("split", "merge")

# %% [markdown]
# ## A tensor is a row of numbers and a rule for stepping through it
#
# Think of a long shelf with one number per place. However many axes a tensor has, its numbers stand
# on one such shelf, in one row. The **strides** are the rule for stepping along the shelf. There is
# one stride per axis, and it says how many places to move for one step along that axis.
#
# Take the eight words of the sentence, each with four features. Follow one number through four
# layouts: the *animal* feature of *cat*, a 3. For each layout the cell prints the shape, the
# strides, the index at which you find the number, and its place on the shelf. The place is the sum
# of each index times its stride.

# %%
import torch
from torch import Tensor, nn

from annotated_attention import chapters

one = chapters.load("01_one_head")
three = chapters.load("03_split_and_stack")
n, h, d = 8, 2, 2


def describe(name: str, x: Tensor, index: tuple[int, ...]) -> None:
    """Print how ``x`` lies in memory, and where the number at ``index`` stands."""
    place = sum(i * stride for i, stride in zip(index, x.stride()))
    order = "contiguous" if x.is_contiguous() else "not contiguous"
    print(f"{name:10} {tuple(x.shape)!s:9} strides {x.stride()!s:9}", end=" ")
    print(f"index {index!s:9} place {place}, number {x[index]:.0f}, {order}")


# %%
x = one.EMBEDDINGS           # (n, h * d)
shelf = x.view(-1)           # (32,)
cut = x.view(n, h, d)        # (n, h, d)
heads = cut.transpose(0, 1)  # (h, n, d)
describe("the shelf", shelf, (4,))
describe("(n, h·d)", x, (1, 0))
describe("(n, h, d)", cut, (1, 0, 0))
describe("(h, n, d)", heads, (0, 1, 0))
print("same memory:", x.data_ptr() == heads.data_ptr())

# %% [markdown]
# The number stays in place 4, and all the other numbers stay where they are, too: the four tensors
# share one memory. `view` cuts the four features into two heads of two. After this cut, a step to
# the next token is four places and a step to the next head is two. `transpose` exchanges these two
# strides, so that heads come first. If you read the last layout in the order of its axes, you no
# longer read the shelf in order. Such a tensor is called *not contiguous*.
#
# ## The trick
#
# Splitting therefore takes two steps. First cut the features, `(n, h * d)` → `(n, h, d)`, then move
# the heads in front, `(n, h, d)` → `(h, n, d)`. Merging takes the same steps backwards. The package
# has both operations, as `split_heads` and `merge_heads`. They count axes from the end, so that
# further axes may stand in front. Comments write such axes as three dots: `(..., h, n, d)`.
#
# PyTorch has several methods that change a shape. `view` never copies, and raises an error where
# the order in memory does not allow a view. `reshape` returns a view where one is possible, and
# copies otherwise. `unflatten(-1, (h, d))` cuts the last axis into two and always returns a view.
# `flatten(-2)` joins the last two axes into one and, like `reshape`, copies only where it must.

# %%
from annotated_attention import merge_heads, split_heads

heads = x.unflatten(-1, (h, d)).transpose(-3, -2)  # (n, h, d) -> (h, n, d)
assert torch.equal(heads, split_heads(x, h))
assert torch.equal(heads, three.split_and_stack(x, h))

merged = heads.transpose(-3, -2).flatten(-2)       # (n, h, d) -> (n, h * d)
assert torch.equal(merged, merge_heads(heads))
assert torch.equal(merged, three.unstack_and_concatenate(heads))
print("split and merged: the same numbers as splitting and stacking")

# %% [markdown]
# ## Which step copies
#
# Splitting moved no number. In a batch of two samples or more that only postpones the copy: the
# matrix product in `attend` then copies all of q, k and v. Without a batch, as here, it copies none
# of them, and PyTorch's fused kernel needs no copy in either case.
# [Batches](05_batches.ipynb#going-deeper-what-each-form-copies) counts the copies.
#
# Merging moved no number either, because its transpose undid that of the split. But `attend` runs
# between the split and the merge. It writes its result into new memory, where the whole first head
# stands on the shelf before the second. In the cell below, `.contiguous()` stands in for `attend`:
# it copies the heads into that order. Merging then has to bring together the numbers of each token.
# Can the merge do that without a copy, too?
#
# <details><summary>What do you expect?</summary>
#
# No. The numbers of one token now stand in two groups, far apart on the shelf. `view` refuses.
# `reshape` and `flatten` copy into new memory without asking.
#
# </details>

# %%
mixed = heads.contiguous()     # (h, n, d)
describe("(h, n, d)", mixed, (0, 1, 0))
moved = mixed.transpose(0, 1)  # (n, h, d)
describe("(n, h, d)", moved, (1, 0, 0))
try:
    moved.view(n, h * d)
except RuntimeError as error:
    print("view:", str(error).split(".")[0])
joined = moved.reshape(n, h * d)  # (n, h * d)
describe("(n, h·d)", joined, (1, 0))
print("same memory:", joined.data_ptr() == mixed.data_ptr())

# %% [markdown]
# In the first head, the 3 of *cat* stood in place 2, behind the two zeros of *the*. The merge
# copies it back to place 4. Before this copy, the four numbers of *cat* stand in places 2, 3, 18 and
# 19. A view has one stride for its last axis, and these steps are 1, 15 and 1, hence the error. So
# after `attend`, merging costs one copy.
#
# ## Two mistakes that keep every shape
#
# A reshape reads the numbers in the order of the axes, the last axis fastest, wherever the numbers
# lie in memory. Its only condition is that the count of numbers fits. So the heads `(h, n, d)` can
# be reshaped to `(n, h * d)` without a transpose, and `(n, h * d)` can be reshaped straight to
# `(h, n, d)`. PyTorch reports an error in neither case:
#
# - **wrong merge**: `heads.reshape(n, h * d)`
# - **wrong split**: `x.reshape(h, n, d)`
#
# The usual check is to split, merge, and compare the result with the input. Each step can be right
# or wrong, so there are four ways. Which of these ways give the input back?
#
# <details><summary>What do you expect?</summary>
#
# The right way does, and so does the way with both steps wrong. A straight reshape keeps the order
# in which the numbers are read, so two straight reshapes in a row change nothing at all.
#
# </details>

# %%
from annotated_attention.mistakes.reshapes import merge_without_transpose as merge_wrongly
from annotated_attention.mistakes.reshapes import split_without_transpose as split_wrongly

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
back = [name for name, result in results.items() if torch.equal(result, cells)]
print("gives the input back:", ", ".join(back))
assert back == ["right", "both wrong"]

# %% [markdown]
# Follow single numbers to see why. Take 3 tokens and 2 heads of width 2, and name every number by
# its origin: 2c is the third feature of the second token. The table shows what each of the two
# heads holds, and the first row of the result, which belongs to the first token.


# %%
def spell(numbers: Tensor) -> str:
    """Name each number by its token and its feature, for a width of 4."""
    places = numbers.flatten().tolist()
    return " ".join(f"{place // 4 + 1}{'abcd'[place % 4]}" for place in places)


print(f"{'':11}  {'first head':17}  {'second head':17}  first row")
for name, (split, _) in WAYS.items():
    first, second = split(cells, 2)
    print(f"{name:11}  {spell(first)}  {spell(second)}  {spell(results[name][0])}")

# %% [markdown]
# With the right split, the first head holds the features a and b of every token. With the wrong
# split, the first head is filled with the first half of the input, row by row. That is all of the
# first token, half of the second, and nothing of the third. With the wrong merge, the first row of
# the result holds two numbers of the second token.
#
# With both steps wrong, all numbers come back to where they were, and a comparison with the input
# finds no difference. But attention runs between the split and the merge, and it runs on wrongly
# split heads.

# %% jupyter={"source_hidden": true}
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


# %% jupyter={"source_hidden": true}
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
# The figure follows 2c from the input to the result. A black corner marks a cell that would hold
# another number in the right way. If the figure has sliders, move *step* up to 5, one step at a
# time. Steps 3 and 4, the two transposes, then each have a ticked box. Untick one of the boxes,
# predict where 2c will end up, and look. Point at any number to follow it instead, or go to it with
# the arrow keys.

# %% jupyter={"source_hidden": true}
for middle, name in ((2, "input"), (6, "head 1"), (9, "head 2"), (13, "result")):
    ax.text(middle, -0.3, name, ha="center")
ax.set(xlim=(-4.2, 15.2), ylim=(14.5, -1), aspect="equal")
ax.axis("off")
static = display.finish(drawing, name="where-numbers-go", alt="; ".join(told))
data = {"n": 3, "h": 2, "d": 2, "follow": divmod(FOLLOW, 4)}
display.live(static, "where_numbers_go", data, room=(560, 1200))

# %% [markdown]
# <!-- deeper: when nobody can see the mistakes -->
# ### Going deeper: when nobody can see the mistakes
#
# For several sizes, count the numbers that a wrong split and a wrong merge put into a wrong place.

# %%
for tokens, parts in ((3, 2), (6, 4), (3, 1), (1, 2)):
    numbers = torch.arange(tokens * parts * 2).view(tokens, -1)
    right = split_heads(numbers, parts)
    split = (split_wrongly(numbers, parts) != right).sum()
    merged = (merge_wrongly(right) != numbers).sum()
    print(f"tokens: {tokens}, heads: {parts}, numbers: {numbers.numel():2},", end=" ")
    print(f"misplaced by the split: {split:2}, by the merge: {merged:2}")

# %% [markdown]
# With one head, or with one token, there is nothing to mix, and both wrong functions give the right
# result.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## What does this output react to?
#
# Shapes do not reveal these mistakes, and neither does the round trip of splitting and merging. So
# examine the module as a whole, with attention in the middle. Build a module that takes the split
# and the merge as settings. It inherits the four matrices of the module in [Split and
# stack](03_split_and_stack.ipynb). In `forward`, splitting and merging are the only steps that
# differ.


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
# In attention, each output row should do two things. It should answer the query of *one* token, its
# own, and it should collect from the keys and values of *all* tokens. To measure both, hand the
# tokens to the module twice, once as `query` and once as `key` and `value`. Change one token a
# little in the first copy, and see which output rows react; then do the same in the second copy.
#
# The derivative measures this reaction exactly. PyTorch gives the **Jacobian**, the derivative of
# every number of the output with respect to every number of the input. Its shape is `(n, e, n, e)`:
# output row, output feature, token, feature of the token. Take the largest absolute derivative over
# the two feature axes, and one number is left for each output row and each token. This number is
# zero if the row does not react to the token.


# %%
def reactions(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Measure how each output row reacts to each token's query, and to its key and value.

    Args:
        model: called with queries, keys and values.
        x: (n, e), one row per token.
    """
    by_role = torch.autograd.functional.jacobian(
        lambda asking, asked: model(asking, asked, asked)[0], (x, x)
    )
    of_query, of_key = (part.abs().amax((1, 3)) for part in by_role)  # (n, n)
    return of_query, of_key


# %% [markdown]
# Look at the row of *it*. In one of the three wrong ways, this row still answers the query of *it*
# and no other query. Which way is that: the wrong merge, the wrong split, or both together? Does
# the row still collect from *cat* in that way?
#
# <details><summary>What do you expect?</summary>
#
# Both together: with two wrong steps, the pieces of *it* come back to their place. But each of the
# two heads then holds only half of the sentence, and *it* collects from the second half, without
# *cat*. With one wrong step, the row of *it* holds pieces that were computed for other words, and
# so answers the queries of those words.
#
# </details>

# %%
torch.manual_seed(4)
models = {name: Reshaped(4, 2, *way).double() for name, way in WAYS.items()}
tables = {name: reactions(model, x.double()) for name, model in models.items()}
it = one.WORDS.index("it")


def words(row: Tensor) -> str:
    """Name the words that an output row reacts to."""
    return " ".join(word for word, size in zip(one.WORDS, row) if size > 0)


# %%
for name, (of_query, of_key) in tables.items():
    print(f"{name}: the row of it")
    print(f"    answers the query of: {words(of_query[it])}")
    print(f"           collects from: {words(of_key[it])}")

answered = [words(of_query[it]) for of_query, _ in tables.values()]
assert answered == ["it", "drank milk", "drank was", "it"]
assert words(tables["both wrong"][1][it]) == "because it was thirsty"

# %% [markdown]
# Why these words? Replace every number of `x` by its word, and see in which rows the words end up.
# After the wrong split, head 1 becomes the left half of a row and head 2 the right half.

# %%
owners = torch.arange(n)[:, None].expand(n, h * d)  # (n, h * d)
result = merge_wrongly(split_heads(owners, h))      # (n, h * d)
head1, head2 = split_wrongly(owners, h)             # (n, d)
print(f"{'row of':25}", *(f"{word:7}" for word in one.WORDS))
for place, owner in (
    ("wrong merge, left half", result[:, 0]),
    ("wrong merge, right half", result[:, 2]),
    ("wrong split, left half", head1[:, 0]),
    ("wrong split, right half", head2[:, 0]),
):
    print(f"{place:25}", *(f"{one.WORDS[i]:7}" for i in owner))

# %% [markdown]
# Read down the column of *it*.
#
# - **wrong merge**: The heads are right, but a row of the result takes two rows of one head. The
#   first head fills the rows from *the* to *milk*, and the second head fills the other four. *It*
#   is the second of these four, so it gets the third and fourth word, *drank* and *milk*.
# - **wrong split**: The first head is filled with the first four words, half a word in each row,
#   and the second head with the last four. The right merge puts the rows of the two heads side by
#   side, so *it* gets *drank* and *was*.
# - **both wrong**: A row of the result takes two rows of one head, and now these rows are the two
#   halves of one word. So *it* answers its own query. But both halves stood in the second head,
#   with only *because*, *was* and *thirsty* beside them. In that head *it* can never find *cat*,
#   whatever the matrices are.

# %% jupyter={"source_hidden": true}
def draw_reactions(ax, left, top, table: Tensor, right: Tensor, letter: str) -> int:
    strength, wrong = (table / table.max()).sqrt(), (table > 0) != (right > 0)
    ax.add_patch(Rectangle((left, top), *table.shape, fill=False, ec="#808080", lw=0.8))
    for i, j in (table > 0).nonzero().tolist():
        look = {"fc": display.COLOURS[letter], "alpha": 0.2 + 0.6 * strength[i, j].item()}
        ax.add_patch(Rectangle((left + j, top + i), 1, 1, lw=0, **look))
    for i, j in wrong.nonzero().tolist():
        ax.plot(left + j + 0.5, top + i + 0.5, "o", color="black", markersize=3)
    return int(wrong.sum())


# %% [markdown]
# The figure shows all rows. A row of a square is an output row, and a column is a word of the
# input. A coloured cell means that the output row reacts to the word: on the left (blue) to the
# word's query, on the right (green) to its key and value. The stronger the colour, the larger the
# derivative, compared with the other derivatives in the same square. A dot marks a wrong cell: a
# reaction that should not be there, or one that is missing.

# %% jupyter={"source_hidden": true}
drawing, (ax,) = display.panels(360, 650)
told = []
for number, (name, (of_query, of_key)) in enumerate(tables.items()):
    top, (right_query, right_key) = 10 * number, tables["right"]
    queries = draw_reactions(ax, 0, top, of_query, right_query, "n")
    keys = draw_reactions(ax, 9.5, top, of_key, right_key, "m")
    told.append(f"{name}: wrong are {queries} cells of queries, {keys} of keys and values")
    ax.text(8.75, top - 0.4, name, ha="center", weight="bold")
    for i, word in enumerate(one.WORDS):
        ax.text(-0.4, top + i + 0.55, word, ha="right", va="center", fontsize=9)
for left, letter, what in ((0, "n", "query"), (9.5, "m", "key and value")):
    ax.text(left + 4, -4.9, what, ha="center", color=display.COLOURS[letter])
    for j, word in enumerate(one.WORDS):
        place = {"rotation": 90, "ha": "center", "va": "bottom", "fontsize": 9}
        ax.text(left + j + 0.5, -1.2, word, **place)
ax.set(xlim=(-4.5, 17.6), ylim=(38.2, -5.6), aspect="equal")
ax.axis("off")
display.finish(drawing, name="leak-matrix", alt=f"What rows react to. {'; '.join(told)}.")

# %% [markdown]
# The squares on the left reveal a single mistake, in the merge or in the split. Those on the right
# reveal the two mistakes together. Neither side alone catches all three wrong ways, so ask both
# questions: whose query does a row answer, and from whose keys and values does the row collect?
#
# A quicker check needs no derivative. This attention does not know where a token stands. If you
# shuffle the tokens, the output rows must therefore be shuffled in the same way. Try this check on
# the four ways, and on one more mistake: the wrong axis of [Split and
# stack](03_split_and_stack.ipynb#one-product-for-all-heads). There each word's heads attend to one
# another, and no word sees another word.


# %%
def shuffle_gap(model: nn.Module, x: Tensor) -> float:
    """Compare the outputs of shuffled tokens with the shuffled outputs."""
    order = torch.tensor([3, 0, 5, 7, 1, 4, 2, 6])
    moved = x[order]  # (n, e)
    gap = model(moved, moved, moved)[0] - model(x, x, x)[0][order]
    return gap.abs().max().item()


class WrongAxis(three.SplitAndStack):
    """The heads are stacked along the wrong axis."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Attend within each token."""
        parts = query @ self.w_q, key @ self.w_k, value @ self.w_v
        output, weights = three.attend_stacked(*parts, self.num_heads, dim=1)
        return output @ self.w_o, weights


# %%
models["wrong axis"] = WrongAxis(4, 2).double()
gaps = {name: shuffle_gap(model, x.double()) for name, model in models.items()}
for name, gap in gaps.items():
    print(f"{name:>12}: {gap:.0e}")
_, of_key = reactions(models["wrong axis"], x.double())  # (n, n), (n, n)
print("wrong axis: it collects from", words(of_key[it]))

assert max(gaps["right"], gaps["wrong axis"]) < 1e-12
assert min(gaps[name] for name in ("wrong merge", "wrong split", "both wrong")) > 0.1

# %% [markdown]
# With the right way the gap is only a rounding error; with the three wrong ways the gap is far
# larger. But the wrong axis passes the check, because it treats each word alike wherever the word
# stands. The question about keys and values reveals this mistake, since *it* collects from no word
# but itself.
#
# > **Pitfall.** Do not trust shapes, a falling loss, or the round trip. A wrong version can still
# > learn. [Training](10_training.ipynb#the-same-training-with-a-mistake-inside) trains two wrong
# > versions: their loss falls, and almost everything they write is wrong. The questions and
# > the shuffle look at inputs and outputs only, so you can use them on your own attention. Use
# > several heads and several tokens: with one head or one token, both mistakes change nothing.

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
from annotated_attention import exercises

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

# %% tags=["solution"] jupyter={"source_hidden": true}
my_place = (0, 2, 1)

exercises.reshape_trick.check_place(my_place)

# %% [markdown]
# ### Who is in the row?
#
# *Medium, 5 minutes.* Now take the wrong merge, `heads.reshape(n, h * d)`, for any sizes. Each row
# of its result is made of h pieces, and a piece is the d numbers that one token has in one head.
# Return the token of each piece in the row with the index `row`: a list of h numbers, counted from
# 0. With `row` 5 and heads of the `shape` (2, 8, 2) the answer is `[2, 3]`, *drank* and *milk*.


# %% tags=["exercise"]
def mixed_tokens(row: int, shape: tuple[int, int, int]) -> list[int]:
    """Name the tokens in a row of the wrong merge."""
    return None  # your lines here


# %%
exercises.reshape_trick.check_mixed_tokens(mixed_tokens)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A reshape reads all n pieces of the first head, then all n pieces of the second. Count the pieces
# in this order, from 0. Which piece does row 0 begin with, and which does row 1?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Each row takes h pieces, so the row with the index `row` begins with piece `row * h`.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# After n pieces, the tokens begin again with token 0. In Python, `%` gives the remainder.
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
def mixed_tokens(row: int, shape: tuple[int, int, int]) -> list[int]:
    """Name the tokens in a row of the wrong merge.

    Args:
        row: its index, from 0.
        shape: that of the heads: how many, how many tokens, how wide.
    """
    h, n, _ = shape
    return [(row * h + piece) % n for piece in range(h)]


exercises.reshape_trick.check_mixed_tokens(mixed_tokens)

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
# > **In short.** For head i, token p and feature j of the head, all counted from 0:
# >
# > $$\text{heads}_{i,\,p,\,j} = x_{p,\; i d + j}$$
# >
# > - split: `x.view(n, h, d).transpose(0, 1)`, `(n, h * d)` to `(h, n, d)`, copies nothing itself;
# >   in a batch, the matrix product after it copies every number, and the fused kernel none
# > - merge: `heads.transpose(0, 1).reshape(n, h * d)`, `(h, n, d)` to `(n, h * d)`, copies every
# >   number once if the heads stand one after the other in memory
# > - wrong split: `x.reshape(h, n, d)`, the same shape, but a head holds only some of the tokens
# > - wrong merge: `heads.reshape(n, h * d)`, the same shape, but a row holds several tokens
# >
# > A reshape reads the axes in order, the last one fastest, and copies if memory has another order;
# > only a transpose changes which axis is read first. Both mistakes keep every shape, and together
# > they survive the round trip. So ask what an output row reacts to. It should react to the query
# > of its own token alone, and to the keys and values of all tokens.
#
# [Batches](05_batches.ipynb) adds the axis that is still missing.
