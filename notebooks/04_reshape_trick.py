# %% [markdown] name="the-reshape-trick"
# # The reshape trick
#
# *Can the heads be split without copying a single number?*
#
# *12 minutes and 7 of exercises. Afterwards you can split and merge heads, know when that copies, and
# spot two mistakes that keep every shape.*
#
# > the cat drank milk because **it** was thirsty
#
# Think of a long shelf with one number in each place. However many axes a tensor has, its numbers stand
# on one such shelf. Our sentence is a shelf of 32: n = 8 words of four features each, for h = 2 heads of
# width d = 2.
#
# To cut the sheet into strips and lay them in a stack, [Split and stack](03_split_and_stack.ipynb) built
# a second shelf, and copied all 32 numbers to it. (It split keys; here we split `x` itself, whose numbers
# you know.) How many of them have to move?
#
# <details><summary>What do you expect?</summary>
#
# None. You can leave the shelf as it is, and walk along it in another way.
#
# </details>

# %% tags=["hide-input"]
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention import merge_heads, split_heads
from annotated_book import chapters, display

one = chapters.load("01_one_head")
two = chapters.load("02_two_heads")
three = chapters.load("03_split_and_stack")

# %%
n, h, d = 8, 2, 2
x = one.EMBEDDINGS           # (n, h * d)
cut = x.view(n, h, d)        # (n, h, d)
heads = cut.transpose(0, 1)  # (h, n, d)
print("the same shelf:", x.data_ptr() == heads.data_ptr())

# %% [markdown]
# That is the whole trick, and it is two words long. `view` reads each row of four as two heads of two. Then
# `transpose` puts the heads in front. No number has moved.

# %% tags=["proof"]
assert torch.equal(heads, split_heads(x, h))
assert torch.equal(heads, three.split_and_stack(x, h))
print("✓ The same numbers as splitting and stacking.")

# %% [markdown]
# The field calls such a row a **token**, since trained models cut a text into words and pieces of words. Here
# every token is a word.

# %% [markdown] name="strides"
# ## How to walk along a shelf
#
# A tensor is a shelf and a rule for walking along it. For each axis, the **stride** says how many places one
# step along that axis moves. So the place of a number is the sum of each index times its stride. Follow the
# *animal* feature of *cat*, a 3, through the three layouts.

# %% tags=["hide-input"]
walked = {}
for name, tensor, index in (
    ("x, (n, h·d)", x, (1, 0)),
    ("cut, (n, h, d)", cut, (1, 0, 0)),
    ("heads, (h, n, d)", heads, (0, 1, 0)),
):
    place = sum(i * stride for i, stride in zip(index, tensor.stride()))
    terms = " + ".join(f"{i}·{stride}" for i, stride in zip(index, tensor.stride()))
    walked[name] = [str(tensor.stride()), str(index), f"{terms} = {place}"]
    assert tensor[index] == x.flatten()[place] == 3
display.show(walked, columns=["strides", "index", "place"])

# %% [markdown]
# The 3 stands at place 4 in all of them. `transpose` exchanges two sizes and their two strides: (4, 2, 1)
# becomes (2, 4, 1). But whoever now reads `heads` from its first number to its last has to jump, and PyTorch
# calls such a tensor *not contiguous*.

# %% tags=["hide-input"]
places = torch.arange(32)  # (32,)
layouts = {
    "x.view(n, h, d).transpose(0, 1)": ("h, n, d", places.view(n, h, d).transpose(0, 1)),
    "x.reshape(h, n, d)": ("h, n, d", places.reshape(h, n, d)),
}
features = [f"{number:.0f}" for number in x.flatten()]
display.shelf(layouts, features, one.WORDS, name="shelf", step=16)

# %% [markdown]
# Half of the numbers have been read: in `(h, n, d)` that is head 1. The first way is the trick: two places, a
# jump over two, two places, a jump. The second way never jumps.
#
# ## The shorter way
#
# Why two steps? `x.reshape(h, n, d)` is one. It raises no error, has the shape (2, 8, 2), and loses no number.
# Give every place its own
# number, so that no two are alike. How many of the 32 stand where the trick puts them: all, half, or hardly
# any?

# %%
numbered = torch.arange(32).view(n, h * d)      # (n, h * d)
right = numbered.view(n, h, d).transpose(0, 1)  # (h, n, d)
short = numbered.reshape(h, n, d)               # (h, n, d)
print("in their place:", (short == right).sum().item(), "of 32")

# %% [markdown]
# Four: the first two and the last two. A reshape reads the shelf from the left and fills head 1 until it is
# full. So head 1 is the first half of the shelf, four words with all their features, and *it* is not among
# them. You wanted to cut every *row*, and you have cut the *shelf*.
#
# ## The way back
#
# Each head attends, and then the heads have to go side by side again, all numbers of a word in one row. The
# split copied nothing. How many numbers does the merge copy?
#
# <details><summary>What do you expect?</summary>
#
# All 32. `attend` writes its result to a new shelf, where the whole first head stands before the second. In
# the row of a word they have to stand side by side.
#
# </details>

# %%
mixed, _ = one.attend(heads, heads, heads)  # (h, n, d), (h, n, n)
rows = mixed.transpose(0, 1)                # (n, h, d)
try:
    rows.view(n, h * d)
except RuntimeError as error:
    print(error)
merged = rows.reshape(n, h * d)  # (n, h * d)
print("the same shelf:", merged.data_ptr() == mixed.data_ptr())

# %% [markdown]
# On the new shelf, the four numbers of *cat* stand at places 2, 3, 18 and 19. That is a step of 1, a jump of 15,
# and a step of 1, and no single stride walks like that. So `view` refuses. `reshape` does not: where no walk
# will do, it copies all the numbers, and does not say so.
#
# Here is the shelf that `attend` has laid, head 1 in its first half, head 2 in its second.

# %% tags=["hide-input"]
back = {
    "mixed.transpose(0, 1)": ("n, h, d", places.view(h, n, d).transpose(0, 1)),
    "mixed.reshape(n, h * d)": ("n, h·d", places.reshape(n, h * d)),
}
owners = [*one.WORDS, *one.WORDS]
letters = ["a", "b"] * 8 + ["c", "d"] * 8
display.shelf(back, letters, owners, name="shelf-of-attend", step=4)

# %% [markdown]
# The right merge goes from half to half: a and b of *the*, then c and d of *the*. And there is the
# temptation. Leave out the transpose, and `mixed.reshape(n, h * d)` has the same shape and needs no copy. Its
# first row, which belongs to *the*, holds two numbers of *the* and two of *cat*. From here on `split_heads` and
# `merge_heads`, of the package, are the right split and the right merge.
#
# <details><summary>Does the right merge always copy?</summary>
#
# No. With one token or one head there is nothing to move. And `F.scaled_dot_product_attention`, given a batch of
# heads that the trick has split, lays its result token by token, at least on a CPU and without dropout: the merge
# then copies nothing.
#
# </details>

# %% tags=["proof"]
assert torch.equal(split_heads(x, h), x.unflatten(-1, (h, -1)).transpose(-3, -2))
assert torch.equal(merge_heads(mixed), mixed.transpose(-3, -2).flatten(-2))
assert torch.equal(merged, merge_heads(mixed))
assert torch.arange(32).view(h, n, d)[:, 1].flatten().tolist() == [2, 3, 18, 19]  # cat
assert (short == right).flatten().nonzero().flatten().tolist() == [0, 1, 30, 31]
for few in (torch.randn(1, 5, 3), torch.randn(4, 1, 3)):  # one head, one token
    assert few.transpose(0, 1).reshape(few.size(1), -1).data_ptr() == few.data_ptr()
batch = [split_heads(torch.randn(2, n, h * d), h)] * 3
for dropout in (0.0, 0.1):
    by_torch = F.scaled_dot_product_attention(*batch, dropout_p=dropout)  # (2, h, n, d)
    assert (merge_heads(by_torch).data_ptr() == by_torch.data_ptr()) == (dropout == 0)
assert torch.equal(merged, three.unstack_and_concatenate(mixed))
assert mixed.is_contiguous()
assert mixed.reshape(n, h * d).data_ptr() == mixed.data_ptr()
assert torch.equal(mixed.reshape(n, h * d)[0], mixed[0, :2].flatten())
assert torch.equal(mixed.reshape(n, h * d)[5], mixed[1, 2:4].flatten())  # drank and milk
print("✓ Merged rightly: the same as concatenating. Merged wrongly: the same shelf.")

# %% [markdown] name="two-mistakes-that-keep-every-shape"
# ## Two mistakes that keep every shape
#
# So there are two mistakes, each one transpose short: a **wrong split** and a **wrong merge**.


# %%
def split_wrongly(x, h):
    """Fill the heads, one after the other, in the order of the shelf."""
    return x.reshape(h, len(x), -1)


def merge_wrongly(mixed):
    """Fill the rows, one after the other, in the order of the shelf."""
    return mixed.reshape(mixed.size(1), -1)


# %% [markdown]
# Which test finds them? Start a table: a row for each way, a column for each test. The usual first test is the
# round trip: split, merge, and compare with the input. Each step can be right or wrong, which makes four ways.
# Which of them give the input back?
#
# <details><summary>What do you expect?</summary>
#
# The right way does, and so does the way with *both* steps wrong. A reshape without a transpose never changes
# the reading order, so two of them in a row change nothing at all.
#
# </details>


# %%
def round_trip(split, merge, x, h):
    """Say whether split and merge give the input back."""
    return merge(split(x, h)).equal(x)


# %% tags=["hide-input"]
WAYS = {
    "right": (split_heads, merge_heads),
    "wrong merge": (split_heads, merge_wrongly),
    "wrong split": (split_wrongly, merge_heads),
    "both wrong": (split_wrongly, merge_wrongly),
}
tests = {"round trip": lambda split, merge: round_trip(split, merge, numbered, h)}


def tried(tests):
    """Put every way to every test."""
    return {name: [test(*way) for test in tests.values()] for name, way in WAYS.items()}


display.show(tried(tests), columns=[*tests])

# %% [markdown]
# A dot means *no*. The round trip approves of two mistakes at once. But between the split and the merge comes
# attention, and it runs on heads that were split wrongly. Follow one number: 2c is the third feature of the second
# of three tokens. Untick a transpose, predict where 2c will end up, and only then move the step; a black corner
# marks each number that stands in a wrong place.


# %% tags=["hide-input"]
def spell(numbers: Tensor) -> str:
    """Name each number by its token and its feature, for a width of 4."""
    places = numbers.flatten().tolist()
    return " ".join(f"{place // 4 + 1}{'abcd'[place % 4]}" for place in places)


cells = torch.arange(3 * 4).view(3, 4)  # (3, 4)


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

# %% tags=["hide-input"]
for middle, name in ((2, "input"), (6, "head 1"), (9, "head 2"), (13, "result")):
    ax.text(middle, -0.3, name, ha="center")
ax.set(xlim=(-4.2, 15.2), ylim=(14.5, -1), aspect="equal")
ax.axis("off")
static = display.finish(drawing, name="where-numbers-go", alt="; ".join(told))
data = {"n": 3, "h": 2, "d": 2, "follow": divmod(FOLLOW, 4)}
display.live(static, "where_numbers_go", data, room=(585, 480))


# %% [markdown]
# What does that do to a sentence? Put the two heads of [Two heads](02_two_heads.ipynb) between split and
# merge, and ask what *it* collects, once with *thirsty* and once with *sweet*.

# %% tags=["fold-input"]
WIDE = [torch.cat(matrices, dim=1) for matrices in zip(*two.HEADS)]  # W_Q, W_K and W_V


def layer(split, merge):
    """Build the pair of heads around a way to split and to merge."""

    def attend(x):
        mixed, _ = one.attend(*(split(x @ w, 2) for w in WIDE))
        return merge(mixed) @ two.W_O

    return attend


# %% tags=["hide-input"]
it, cat = one.WORDS.index("it"), one.WORDS.index("cat")
said = {"thirsty": one.EMBEDDINGS, "sweet": one.SWEET_EMBEDDINGS}
asked = [f"{word}: {what}" for word in said for what in ("animal", "food")]


def collected(way, sentences) -> list[float]:
    """Give what *it* collects of animal and food, in each sentence."""
    place = one.WORDS.index("it")
    return [y for words in sentences for y in layer(*way)(words)[place, :2].tolist()]


found = {name: collected(way, said.values()) for name, way in WAYS.items()}
display.show(found, columns=asked)

# %% [markdown]
# The right way says yes and no, and then no and yes. Each wrong way gives the same numbers for *thirsty* and for
# *sweet*. With the wrong merge, the row of *it* is `mixed[1, 2:4]`, laid side by side: what head 2 has found for
# *drank* and *milk*.

# %% [markdown] name="two-tests-from-outside"
# ## Two tests from outside
#
# You saw this because you knew the right numbers. In a model of your own you do not, so test it from outside.
# This attention does not know where a word stands. **Shuffle** the words, and the rows of the output must be
# shuffled along, and hold the same numbers up to rounding. The table's second column is the largest difference.


# %%
def output(model, x):
    """Give what a model returns, if that is a row for each word."""
    rows = model(x)
    if not isinstance(rows, Tensor) or rows.shape != x.shape:
        raise ValueError(f"the model must return {tuple(x.shape)}, the output alone")
    return rows


def shuffle_gap(model, x):
    """Compare the output of shuffled words with the shuffled output."""
    order = torch.arange(len(x)).roll(1)  # (n,), the last word comes first
    return (output(model, x[order]) - output(model, x)[order]).abs().max().item()


# %% tags=["hide-input"]
tests["shuffle gap"] = lambda split, merge: shuffle_gap(layer(split, merge), x)
display.show(tried(tests), columns=[*tests])

# %% [markdown]
# All three mistakes show, so this one test seems to be enough. Add a fifth way, which you know from [the last
# chapter](03_split_and_stack.ipynb): cut each row rightly, but leave the heads in the middle, `(n, h, d)`. Which of
# the two tests finds it?
#
# <details><summary>What do you expect?</summary>
#
# Neither. No number leaves its row, so the round trip is content. The heads of one word attend to each other,
# and no word sees another: that is wrong in the same way wherever the word stands, so the shuffle is content, too.
#
# </details>
#
# It takes a third test: **change** one word, here *cat*, and see whether the row of another reacts, here *it*.


# %%
def reacts(model, x, row, word):
    """Say whether one row of the output changes with one word."""
    changed = x.clone()
    changed[word] += torch.arange(x.size(-1))  # a norm would undo one number for all
    return not torch.allclose(output(model, changed)[row], output(model, x)[row])


# %% tags=["hide-input"]
WAYS["no transpose"] = (
    lambda x, h: x.unflatten(-1, (h, -1)),
    lambda mixed: mixed.flatten(-2),
)
tests["reacts"] = lambda split, merge: reacts(layer(split, merge), x, it, cat)
display.show(tried(tests), columns=[*tests])

# %% tags=["proof"]
passed = [(back, gap < 1e-5, reaction) for back, gap, reaction in tried(tests).values()]
one_wrong = (False, False, True)
found = [
    (True, True, True),
    one_wrong,
    one_wrong,
    (True, False, False),
    (True, True, False),
]
assert passed == found
for name, way in WAYS.items():
    sentences = torch.tensor(collected(way, said.values())).view(2, 2)  # (2, 2)
    assert torch.allclose(sentences[0], sentences[1]) == (name != "right"), name
mixed = one.attend(*(split_heads(x @ w, h) for w in WIDE))[0]  # (h, n, d)
merged = merge_wrongly(mixed)                                  # (n, h * d)
assert torch.equal(merged[it], mixed[1, 2:4].flatten())  # drank and milk
print("✓ Only the right way passes, and only the right way tells the sentences apart.")

# %% tags=["proof"]
torchs = nn.MultiheadAttention(4, 2, batch_first=True)
bare = lambda x: torchs(x, x, x)[0]  # noqa: E731
for model in (lambda x: bare(x[None])[0], lambda x: torchs(*[x[None]] * 3)[0][0]):
    assert shuffle_gap(model, x) < 1e-5
    assert reacts(model, x, 0, 7)
pair = lambda x: (x, None)  # noqa: E731, a model in which no word hears another
assert not reacts(lambda x: pair(x[None])[0][0], x, 0, 7)
for wrong in (lambda x: pair(x[None])[0], lambda x: pair(x[None])):
    for test in (lambda model: reacts(model, x, 0, 7), lambda model: shuffle_gap(model, x)):
        try:
            test(wrong)
        except ValueError:
            continue
        raise AssertionError("an output of another shape was compared")
print("✓ Both tests refuse an output whose shape is not the input's.")

# %% [markdown]
# Only the right way passes all three. With both steps wrong, each head holds half of the sentence: *it* stands in
# the second half and can never find *cat*, whatever the matrices are.
#
# > **Pitfall.** Do not trust shapes, a falling loss, or the round trip. A wrong version can still
# > learn: in [Training](12_training.ipynb#cell-id=the-same-training-with-a-mistake-inside) the loss of two
# > wrong versions falls, and almost everything they write is wrong.
#
# The last two tests look only at inputs and outputs, so you can use them on your own attention. If it wants a
# batch, hand over `lambda x: model(x[None])[0]`; if it also returns weights, `lambda x: model(x[None])[0][0]`.
# Switch off its mask, its positions and its dropout. Run both, with at least two heads and **more tokens than
# heads**. Change the last word and watch the first row, because not every pair of words reveals two wrong steps.
# [Testing attention](17_testing_attention.ipynb) has more tests.

# %% [markdown]
# <!-- deeper: how many tokens, and which words -->
# ### Going deeper: how many tokens, and which words
#
# With one head both mistakes change nothing. Take both steps wrong, with 4 heads and several numbers of
# tokens, and try every pair of words. `Reshaped` is a module of its own, with random matrices.


# %%
class Reshaped(three.SplitAndStack):
    """Several heads at once; how to split and merge them is a setting."""

    def __init__(self, embed_dim, num_heads, split=split_heads, merge=merge_heads):
        super().__init__(embed_dim, num_heads)
        self.split, self.merge = split, merge

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Attend from each query to every key."""
        q = self.split(query @ self.w_q, self.num_heads)  # (..., h, n, d)
        k = self.split(key @ self.w_k, self.num_heads)    # (..., h, m, d)
        v = self.split(value @ self.w_v, self.num_heads)  # (..., h, m, d)
        mixed, weights = one.attend(q, k, v)              # (..., h, n, d), (..., h, n, m)
        return self.merge(mixed) @ self.w_o, weights      # (..., n, e), (..., h, n, m)


def attending(module: nn.Module):
    """Let every token attend to every token, and give the output alone."""
    return lambda x: module(x, x, x)[0]


# %%
both = attending(Reshaped(24, 4, *WAYS["both wrong"]).double())
found = {}
for length in (2, 3, 4, 5, 8):
    tokens = torch.randn(length, 24, dtype=torch.float64)  # (length, 24)
    pairs = [(i, j) for i in range(length) for j in range(length) if i != j]
    react = sum(reacts(both, tokens, i, j) for i, j in pairs)
    first, caught = reacts(both, tokens, 0, length - 1), shuffle_gap(both, tokens) > 1e-12
    found[length] = [caught, f"{react} of {len(pairs)}", first]
names = ["the shuffle finds it", "pairs that react", "first row to last word"]
display.show(found, columns=names, corner="tokens")

# %% tags=["proof"]
assert [length for length, (caught, _, _) in found.items() if not caught] == [2, 4]
assert not any(first for _, _, first in found.values())
print("✓ The shuffle misses 2 and 4 tokens; the first row never hears the last word.")

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
shown = {}
for way in ("wrong merge", "wrong split", "both wrong"):
    gaps = []
    for heads, length in sizes:
        tokens = torch.randn(length, 2 * heads, dtype=torch.float64)  # (length, ...)
        wrong = Reshaped(2 * heads, heads, *WAYS[way]).double()
        gaps.append(shuffle_gap(attending(wrong), tokens))
    assert min(gaps) > 1e-12
    shown[way] = [f"at {len(gaps)} of {len(sizes)} sizes"]
display.show(shown, columns=["found"])

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
my_place = (None, None, None)  # place in h, place in n, place in d

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
# > - merge: `heads.transpose(0, 1).reshape(n, h * d)`, `(h, n, d)` to `(n, h * d)`, copies all
# >   numbers where head 1 lies before head 2 in memory, as `attend` leaves them
# > - with einops: `rearrange(x, "n (h d) -> h n d", h=h)` and `rearrange(heads, "h n d -> n (h d)")`
# > - wrong split: `x.reshape(h, n, d)`, the same shape, but a head holds only some of the tokens
# > - wrong merge: `heads.reshape(n, h * d)`, the same shape, but a row holds several tokens
# >
# > A reshape reads the axes in order, the last one fastest; only a transpose changes which axis is
# > read first. Both mistakes keep every shape, and together they survive the round trip. So shuffle
# > the tokens, more of them than heads, and change one word.
#
# [Batches](05_batches.ipynb) adds the axis that is still missing.
