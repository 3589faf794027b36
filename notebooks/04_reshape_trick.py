# %% [markdown] name="the-reshape-trick"
# # The reshape trick
#
# *One transpose is missing, without an error. What is lost?*
#
# *13 minutes and 6 of exercises. Afterwards you can split and merge heads, know when that copies, and
# spot two mistakes that keep every shape.*
#
# > the cat drank milk because **it** was thirsty
#
# The [two heads](02_two_heads.ipynb#cell-id=two-questions-at-once) have attended, one for animals and one for foods. One
# step is left, the **merge**: what both have found for a word goes side by side into the row of that word. Here
# are two ways to write that, from `(h, n, d)` to `(n, h * d)`. The second has one step less:

# %% tags=["hide-input"]
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention import merge_heads, split_heads  # what this page makes
from annotated_book import chapters, display
from annotated_book.display.memory import landings, walks
from annotated_book.display.verdicts import caught

one = chapters.load("01_one_head")  # attend, the words and their features
two = chapters.load("02_two_heads")  # a pair of heads, and its W_O
three = chapters.load("03_split_and_stack")  # split_and_stack, and the module around it


# %%
def merge(mixed):
    """Bring the words in front, then put what the heads found side by side."""
    return mixed.transpose(0, 1).reshape(mixed.size(1), -1)


def merge_shorter(mixed):
    """Ask for the shape at once."""
    return mixed.reshape(mixed.size(1), -1)


# %% [markdown]
# Both give the same shape, and neither raises an error. What does *it* receive, after $W_O$, when the last word is *thirsty*, and
# when it is *sweet*?

# %% tags=["fold-input"]
WIDE = [torch.cat(matrices, dim=1) for matrices in zip(*two.HEADS)]  # W_Q, W_K and W_V


def layer(split, merge):
    """Build the pair of heads around a way to split and to merge."""

    def attend(x):
        mixed, _ = one.attend(*(split(x @ w, 2) for w in WIDE))
        return merge(mixed) @ two.W_O

    return attend


sentence, it, cat = one.EMBEDDINGS, one.WORDS.index("it"), one.WORDS.index("cat")
endings = {"thirsty": sentence, "sweet": one.SWEET_EMBEDDINGS}
rows = {
    each.__name__: torch.cat(
        [layer(three.split_and_stack, each)(x)[it, :2] for x in endings.values()]
    ).tolist()
    for each in (merge, merge_shorter)
}
asked = [f"{word}: {what}" for word in endings for what in ("animal", "food")]
display.show([*zip(*rows.values())], asked, [*rows], corner="“it” receives")

# %% [markdown]
# With the shorter one, *it* receives 0.38, whatever was asked and whatever the last word. One transpose is missing,
# and both sentences mean the same. Has the answer been erased, or does it stand elsewhere? Press the two cells in which
# you would look for what was found for *it*:

# %% tags=["hide-input"]
places = torch.arange(2 * len(one.WORDS))  # (h * n,), a place for each head and word
ways = {"with the transpose": places.view(2, -1).T, "without": places.view(-1, 2)}
landings(one.WORDS, ways, who=it, width=2, name="wrong-merge-of-it")

# %% [markdown]
# The shorter merge reads head 1 to its end before head 2, and counts off two cells for each row.
# So the row of *it* gets what head 2 has found for *drank* and for *milk*. These two words ask nothing in our heads. So they
# look at all eight words alike, and bring home an eighth of their quality: 1 of *it* and 2 of the last word make 3 ÷ 8 =
# 0.38, twice. Nothing has been erased: the answer stands in the rows of *drank* and *was*.

# %% tags=["proof"]
mixed = one.attend(*(split_heads(sentence @ w, 2) for w in WIDE))[0]  # (2, 8, 2)
assert merge(mixed).equal(merge_heads(mixed))
assert merge(mixed).shape == merge_shorter(mixed).shape
for x in endings.values():
    assert (x @ WIDE[0]).any(1).equal(x[:, 3] > 0)  # only a quality asks
    assert x[:, 3].tolist() == [0, 0, 0, 0, 0, 1, 0, 2]  # quality, which is handed over
torch.testing.assert_close(mixed[1, 2], torch.tensor([3 / 8, 0]))
assert merge_shorter(mixed)[it].equal(mixed[1, 2:4].flatten())  # drank and milk
for word, rows_of_w_o, received in (
    (2, two.W_O[:2], [3 / 8, 0]),
    (3, two.W_O[2:], [0, 3 / 8]),
):
    torch.testing.assert_close((mixed[1, word] @ rows_of_w_o)[:2], torch.tensor(received))
for word, head in (("drank", 0), ("was", 1)):
    assert merge_shorter(mixed)[one.WORDS.index(word), 2:].equal(mixed[head, it])
print("✓ The same shape, and the two answers stand in the rows of drank and was.")


# %% [markdown] name="strides"
# ## How to walk along a shelf
#
# How can a line that leaves every number in its place spoil the rows? Think of a long shelf with one number in each
# place. However many axes a tensor has, its numbers stand on one such shelf. The rest is a rule for walking: for each
# axis, the **stride** says how many places one step along that axis moves.
#
# Take three words, *cat drank milk*, with four features each, for h = 2 heads of width d = 2: a shelf of 12. Its third
# number for the second word is called 2c. (Names count from 1, places and indices from 0.) To get a strip for each
# head, [the last chapter](03_split_and_stack.ipynb) copied all 12 to a second shelf. How many *must* a split copy?
#
# <details name="copies"><summary>All 12: each head needs a strip of its own.</summary>
#
# That is how the last chapter did it. But a head needs no strip, only a way to find its numbers.
#
# </details>
# <details name="copies"><summary>6: head 1 stays, head 2 moves.</summary>
#
# Head 1 does not stand in one piece, either: 1a 1b, 2a 2b, 3a 3b.
#
# </details>
# <details name="copies"><summary>None.</summary>
#
# Right. Leave the shelf as it is, and walk along it in another way.
#
# </details>


# %%
def shelf(x):
    """Give where the memory of a tensor begins."""
    return x.untyped_storage().data_ptr()


n, h, d = 3, 2, 2  # words, heads, width of a head
x = torch.arange(12.0).view(n, h * d)  # (n, h * d), each number is its place
cut = x.unflatten(-1, (h, d))          # (n, h, d)
heads = cut.transpose(0, 1)            # (h, n, d)
print("strides:", x.stride(), cut.stride(), heads.stride())
print("on the shelf of x:", shelf(cut) == shelf(x), shelf(heads) == shelf(x))

# %% [markdown]
# `unflatten` reads each row of four as two heads of two, and `transpose` exchanges the first two strides. Both together
# are **the reshape trick**, `split_heads` in the package; `merge` above is its `merge_heads`. Walk from 1a to 3c, in the sheet and in the heads:


# %% tags=["hide-input"]
def spell(numbers: Tensor) -> list[str]:
    """Name each number by its word and its feature, for a width of 4."""
    places = numbers.flatten().int().tolist()
    return [f"{place // 4 + 1}{'abcd'[place % 4]}" for place in places]


places = x.int()  # (n, h * d)
walks(places, split_heads(places, h), spell(x), place=10, name="walks")

# %% [markdown]
# Both walks end at place 10. But whoever now reads `heads` from first to last has to jump, and PyTorch calls such a
# tensor *not contiguous*.
#
# And the way back? `attend` writes its result, `mixed`, to a new shelf, all of head 1 before head 2, as in the first
# figure. Bring the words in front, and merge:

# %%
mixed, _ = one.attend(heads, heads, heads)  # (h, n, d), (h, n, n)
rows = mixed.transpose(0, 1)                # (n, h, d)
print("strides:", rows.stride())
print("reshape stays on the shelf:", shelf(rows.reshape(n, h * d)) == shelf(mixed))

# %% [markdown]
# On the new shelf the four numbers of *cat* stand at places 0, 1, 6 and 7. No single stride walks like that: after a
# step of 1 comes one of 5. So two neighbouring axes, both longer than 1, join without a copy only if the inner one, walked to its
# end, leads to where the outer one steps: if the outer stride is the inner size times the inner stride. In `cut`,
# `(n, h, d)`, the strides are (4, 2, 1), and the last two axes can join: 2 = 2 · 1. In `rows` they are (2, 6, 1), and
# these two cannot: 6 ≠ 2 · 1. So:
#
# - `view` never copies. It refuses `rows.view(n, h * d)`: *view size is not compatible with input tensor's size and stride*.
# - `reshape` is a view where that is possible, and otherwise a silent copy: here of all 12 numbers.
# - `.contiguous().view(...)` asks for the copy aloud.
#
# Is that copy what the shorter merge lacks? Then it would be right where none is needed. PyTorch has a function for
# attention, `F.scaled_dot_product_attention`. It gives the same numbers as `attend`. But here, where its input lies on the
# shelf word by word, so does its result. (It wants four axes for that.)

# %%
batch = heads[None]                                             # (b, h, n, d)
fused = F.scaled_dot_product_attention(batch, batch, batch)[0]  # (h, n, d)
print("strides:", fused.stride())

# %% [markdown]
# Now the four numbers of a word stand side by side. Is `merge_shorter(fused)` right?
#
# <details name="fused"><summary>Yes: on this shelf, they stand in the right order.</summary>
#
# They do, but a reshape does not ask how they stand. It takes the numbers by their indices, of which the last runs fastest and the
# first slowest. So all of head 1 comes before head 2.
#
# </details>
# <details name="fused"><summary>No, and now it copies.</summary>
#
# Right. A reshape takes the numbers by their indices, of which the last runs fastest and the first slowest. So all of head 1 comes
# before head 2. Here it even copies all 12, to put them wrong. The transpose and then the reshape are right, and copy nothing.
#
# </details>

# %% [markdown]
# **Where a number lies changes no result. The order of the axes does.**

# %% tags=["proof"]
for made in (split_heads(x, h), three.split_and_stack(x, h)):
    assert heads.equal(made)
merged = merge_heads(mixed)
for made in (merge(mixed), three.unstack_and_concatenate(mixed)):
    assert merged.equal(made)
assert (cut.stride(), rows.stride()) == ((4, 2, 1), (2, 6, 1))
assert shelf(cut.view(n, h * d)) == shelf(x)
assert torch.arange(12).view(h, n, d)[:, 0].flatten().tolist() == [0, 1, 6, 7]  # cat
assert mixed.is_contiguous()
try:
    message = str(rows.view(n, h * d))
except RuntimeError as error:
    message = str(error)
assert message.startswith("view size is not compatible with input tensor's size and stride")
assert shelf(merge_shorter(mixed)) == shelf(mixed)
torch.testing.assert_close(fused, mixed)
torch.testing.assert_close(merge(fused), merged)
assert (fused.stride(), shelf(merge(fused))) == ((2, 4, 1), shelf(fused))
assert shelf(merge_shorter(fused)) != shelf(fused)
torch.testing.assert_close(merge_shorter(fused), merge_shorter(mixed))
print("✓ The same numbers as splitting and stacking, and as concatenating.")

# %% [markdown] name="two-mistakes-that-keep-every-shape"
# ## Two mistakes that keep every shape
#
# The split has a shorter way, too. It raises no error, has the right shape, and loses no number:


# %%
def split_shorter(x, h):
    """Ask for the shape at once."""
    return x.reshape(h, len(x), -1)


# %% [markdown]
# How many of the 12 numbers have the index that the trick gives them?
#
# <details name="places"><summary>All 12: the shape is right, and no number is lost.</summary>
#
# A shape says how many numbers a head holds, but not whose they are.
#
# </details>
# <details name="places"><summary>Six: head 1 is right, and head 2 is not.</summary>
#
# Head 1 begins with all four numbers of *cat*, and the trick gives it two.
#
# </details>
# <details name="places"><summary>Four.</summary>
#
# Right: the first two and the last two. Both readings begin with 1a 1b and end with 3c 3d.
#
# </details>
#
# Here is each walk along the shelf, as far as the end of head 1. Press the other one, then read on to the end:

# %% tags=["hide-input"]
layouts = {
    "x.unflatten(-1, (h, d)).transpose(0, 1)": ("h, n, d", split_heads(places, h)),
    "x.reshape(h, n, d)": ("h, n, d", places.reshape(h, n, d)),
}
display.shelf(layouts, spell(x), ["cat", "drank", "milk"], name="shelf", step=6)

# %% [markdown]
# The trick takes two numbers of each word and jumps over two. The reshape never jumps: it reads from the left until
# head 1 is full, with all of *cat*, half of *drank*, and no *milk*. You wanted to cut every *row*, and you
# have cut the *shelf*.

# %% tags=["proof"]
kept = (split_shorter(x, h) == heads).flatten().nonzero().flatten().tolist()
assert kept == [0, 1, 10, 11]
print("✓ Only the first two and the last two have the index that the trick gives them.")

# %% [markdown]
# So there is a **wrong split**, as there is the **wrong merge** of the first figure. The usual first test is the round trip: split, merge, and
# compare with the input. Each step can be right or wrong, which makes four ways. Which of them give the input back?
#
# <details name="back"><summary>Only the right way.</summary>
#
# One more does. Untick both boxes.
#
# </details>
# <details name="back"><summary>The right way, and the one with both steps wrong.</summary>
#
# Right. A reshape keeps the reading order, so two in a row change nothing.
#
# </details>
# <details name="back"><summary>All four: no number is ever lost.</summary>
#
# None is lost, but a single transpose changes the order for good.
#
# </details>
#
# Untick one transpose, then the other, then both, and follow 2c. A corner marks a number in a wrong place:


# %% tags=["fold-input"]
WAYS = {  # a split and a merge each
    "right": (split_heads, merge_heads),
    "wrong merge": (split_heads, merge_shorter),
    "wrong split": (split_shorter, merge_heads),
    "both wrong": (split_shorter, merge_shorter),
}
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
    ax.text(x + 0.47, y + 0.5, spell(torch.tensor(number))[0], weight=weight, **place)


# %% tags=["hide-input"]
def draw_grid(ax, left: float, top: float, origin: Tensor, right: Tensor) -> str:
    for place, number in enumerate(origin.flatten().tolist()):
        row, column = divmod(place, origin.size(1))
        moved = number != right[row, column].item()
        draw_cell(ax, left + column, top + row, number, moved)
    return " ".join(spell(origin))


def draw_way(ax, name: str, top: float, x: Tensor) -> str:
    split, merge = WAYS[name]
    wholes = [(x, x), *zip(split(x, 2), split_heads(x, 2)), (merge(split(x, 2)), x)]
    drawn = [draw_grid(ax, left, top, *pair) for left, pair in zip((0, 5, 8, 11), wholes)]
    ax.text(-0.6, top + 1.5, name, ha="right", va="center", weight="bold")
    return "{0}: head 1 holds {2}, head 2 {3}, the result {4}".format(name, *drawn)


drawing, (ax,) = display.panels(450, 388)
told = [draw_way(ax, name, top, places) for name, top in zip(WAYS, (0, 3.8, 7.6, 11.4))]

# %% tags=["hide-input"]
for middle, name in ((2, "input"), (6, "head 1"), (9, "head 2"), (13, "result")):
    ax.text(middle, -0.3, name, ha="center")
ax.add_patch(Rectangle((4.7, -1.7), 5.5, 16.3, fill=False, ec="#808080", ls="--"))
ax.text(7.5, -1.1, "attention happens here", ha="center", fontsize=9)
ax.set(xlim=(-4.2, 15.2), ylim=(14.8, -1.9), aspect="equal")
ax.axis("off")
static = display.finish(drawing, name="where-numbers-go", alt="; ".join(told))
data = {"words": ["cat", "drank", "milk"], "h": 2, "d": 2}
data |= {"follow": FOLLOW, "split": True, "merge": True}
display.live(static, "where_numbers_go", data, room=(480, 700))


# %% [markdown] name="two-tests-from-outside"
# ## Tests from outside
#
# In a model of your own you do not know the right numbers. So look at it from outside. **Shuffle** the words: this
# attention does not know where a word stands, so the rows of the output must be shuffled along. And **change** one
# word, here *cat*: the row of another, here *it*, must react.
#
# You know three mistakes: the wrong split, the wrong merge, and both together. A fourth is from [the last
# chapter](03_split_and_stack.ipynb): cut each row, but leave the heads in the middle, `(n, h, d)`. Which single test
# finds most of the four?
#
# <details name="test"><summary>The round trip.</summary>
#
# It finds two. It looks only at the numbers, never at who has attended to whom.
#
# </details>
# <details name="test"><summary>The shuffle.</summary>
#
# Right: it finds three.
#
# </details>
# <details name="test"><summary>The change.</summary>
#
# It finds two. That *it* has heard of *cat* does not say which way the news came.
#
# </details>

# %% [markdown]
# A red cell is a mistake that slips through:


# %% tags=["fold-input"]
def shuffles(model, x):
    """Say whether the output is shuffled along with the words, up to rounding."""
    order = torch.arange(len(x)).roll(1)  # (n,), the last word comes first
    return torch.allclose(model(x[order]), model(x)[order], atol=1e-5)


def reacts(model, x, row, word):
    """Say whether one row of the output changes with one word."""
    changed = x.clone()
    changed[word] += torch.arange(x.size(-1))  # each feature by another number
    return not torch.allclose(model(changed)[row], model(x)[row])


# %% tags=["fold-input"]
WAYS["heads in the middle"] = (  # cut each row, and leave the heads where they are
    lambda x, h: x.unflatten(-1, (h, -1)),
    lambda mixed: mixed.flatten(-2),
)
tests = {
    "round trip": lambda split, merge: merge(split(x, h)).equal(x),
    "shuffle": lambda split, merge: shuffles(layer(split, merge), sentence),
    "change": lambda split, merge: reacts(layer(split, merge), sentence, it, cat),
}
tried = {name: [test(*way) for test in tests.values()] for name, way in WAYS.items()}
caught(tried, [*tests])

# %% [markdown]
# No test finds all four, but shuffle and change together do:
#
# - With the *wrong merge* or the *wrong split* alone, the row of *it* does react to *cat*, but what stands in it was found for other
#   words. So it does not move with its word, and the shuffle sees that.
# - With *both wrong*, the first four words fill head 1 and the last four head 2. So *it* never hears *cat*. Rolling the
#   words on by one puts other words into each head, so the shuffle sees it, too.
# - With the *heads in the middle* no word hears another. That is equally wrong wherever the word stands, so the shuffle
#   sees nothing.


# %% tags=["proof"]
def at_random(e, h, split, merge):
    """Draw four matrices, and attend with h heads."""
    *inward, outward = torch.randn(4, e, e, dtype=torch.float64) / e**0.5
    return lambda x: merge(one.attend(*(split(x @ w, h) for w in inward))[0]) @ outward


for count in range(2, 6):
    for length in range(2, 10):
        words = torch.randn(length, 2 * count, dtype=torch.float64)  # (length, ...)
        for way in ("wrong merge", "wrong split", "both wrong"):
            model = at_random(2 * count, count, *WAYS[way])
            assert not shuffles(model, words) or length <= count
        assert not reacts(model, words, 0, length - 1) or length < count  # both wrong
        if length == count:
            assert (
                split_shorter(words, count).flatten(1).equal(words)
            )  # a word for each head
        assert shuffles(model, words) == (count % length == 0)
one_wrong = [False, False, True]
assert tried == {
    "right": [True, True, True],
    "wrong merge": one_wrong,
    "wrong split": one_wrong,
    "both wrong": [True, False, False],
    "heads in the middle": [True, True, False],
}
assert split_shorter(sentence, 2)[0].flatten().equal(sentence[:4].flatten())
assert shuffles(layer(*WAYS["both wrong"]), sentence[:2])  # two words, two heads
print(
    "✓ Only the right way passes all three; with two words, both wrong passes the shuffle."
)

# %% [markdown]
# Here are both in one block to copy. `model` takes the words of one sentence, `(n, e)`, and returns a row for each. Test
# your attention alone, with random weights in float32, and without causal mask, positions and dropout. Under a causal mask the
# first row must not hear the last word, positions give a shuffled word another row, and dropout draws anew for each call. So with
# any of the three, even the right way fails.


# %%
def test_from_outside(model, x, num_heads):
    """Shuffle the words of x, then change the last one; W_O must not be zero."""
    assert len(x) > num_heads > 1, "take two heads or more, and more words than heads"
    before = model(x)
    assert before.shape == x.shape, "return the output alone, a row for each word"
    small = before.std() / 1000  # far above rounding, however small the output is
    gap = (model(x.roll(1, 0)) - before.roll(1, 0)).abs().max()
    assert gap <= small, "a row holds what was found for other words"
    changed = torch.cat([x[:-1], torch.randn_like(x[-1:])])
    moved = (model(changed)[0] - before[0]).abs().max()
    assert moved > small, "the first row does not hear the last word"


# %% [markdown]
# PyTorch's class returns two tensors, so a `lambda` takes the first. Without an error, none of the four mistakes is there:

# %%
mha = nn.MultiheadAttention(24, 4, batch_first=True)
test_from_outside(lambda x: mha(x, x, x)[0], torch.randn(7, 24), 4)

# %% [markdown]
# Now two layers that nobody would want: a single head, as wide as the whole row, and `x + x.mean(0)`, which does not attend
# at all. Which of them gets past the test?
#
# <details name="fools"><summary>Neither.</summary>
#
# Both are wrong, but in neither does a row hold what belongs to another word.
#
# </details>
# <details name="fools"><summary>The single head: at least it attends.</summary>
#
# It passes. But who asked for attention?
#
# </details>
# <details name="fools"><summary>Both.</summary>
#
# Right. Both treat all words alike, and in both, every word hears every other. The test asks no more.
#
# </details>

# %% [markdown]
# Only the numbers of a layer that you trust show the rest, with the same weights: [Testing
# attention](17_testing_attention.ipynb#cell-id=parity-the-same-parameters-the-same-result) does that. How far can you go?
# [Fool the test](#cell-id=fool-the-test) yourself.


# %% tags=["proof"]
said = {}
for name, way in WAYS.items():
    try:
        test_from_outside(layer(*way), sentence, 2)
    except AssertionError as error:
        said[name] = str(error)
mixes = "a row holds what was found for other words"
deaf = "the first row does not hear the last word"
ways = ("wrong merge", "wrong split", "both wrong", "heads in the middle")
assert said == dict(zip(ways, (mixes, mixes, mixes, deaf)))
for scale in (1e-6, 1e6):  # however small or large the output is
    test_from_outside(lambda x, by=scale: by * layer(*WAYS["right"])(x), sentence, 2)
refused = []
for wrong, length in (
    (lambda x: x[None], 8),
    (layer(*WAYS["right"]), 2),
    (lambda x: 1e-6 * layer(*WAYS["wrong merge"])(x), 8),
):
    try:
        test_from_outside(wrong, sentence[:length], 2)
    except AssertionError as error:
        refused.append(str(error))
assert [text.split()[0] for text in refused] == ["return", "take", "a"]
uncut = layer(lambda x, h: x[None], merge_heads)
for passes in uncut, lambda x: x + x.mean(0):
    test_from_outside(passes, sentence, 2)
    assert not torch.allclose(passes(sentence), layer(*WAYS["right"])(sentence))
print("✓ It refuses the four, however small the numbers are, and lets those two pass.")


# %% [markdown]
# > **Pitfall.** Do not trust shapes, a falling loss, or the round trip. In
# > [Training](12_training.ipynb#cell-id=deeper-other-seeds) the loss of a model with
# > the wrong merge falls, yet almost nothing that the model then writes on its own is right.

# %% [markdown]
# ## Exercises
#
# ### One number
#
# *Easy, 2 minutes.* With 5 words and 3 heads of width 2, `x` is (5, 6), and its heads, split correctly, `(h, n, d)`,
# are (3, 5, 2). Where among the heads is `x[3, 3]`? Write its index: three whole numbers, counted from 0.

# %% tags=["exercise"]
my_place = (None, None, None)  # place in h, place in n, place in d

# %%
from annotated_book import exercises

exercises.reshape_trick.check_place(my_place)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A right split keeps every number with its word. So the index of the word is one of your three
# numbers.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The first head, index 0, has the features 0 and 1 of every word. The second has 2 and 3.
#
# </details>

# %% tags=["solution"]
my_place = (1, 3, 1)

exercises.reshape_trick.check_place.folded(my_place)

# %% [markdown] name="fool-the-test"
# ### Fool the test
#
# *Medium, 4 minutes.* This attention is right; queries, keys and values are `x` itself. Spoil it in a third way,
# so that `test_from_outside` lets it pass. The check runs that test, and says what you got past it.


# %% tags=["exercise"]
def forged(x: Tensor, h: int) -> Tensor:
    """Attend wrongly; x is (n, h * d), and so is what it returns."""
    heads = split_heads(x, h)
    mixed, _ = one.attend(heads, heads, heads)
    return merge_heads(mixed)


# %%
exercises.reshape_trick.check_forged(forged)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The test sees whether all words are treated alike, and whether they hear each other. So treat all of them badly.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Nothing looks at the order of the heads, at which features a head takes, at the scale, or at the axis of the softmax.
#
# </details>


# %% tags=["solution"]
def forged(x: Tensor, h: int) -> Tensor:
    """Attend rightly, and put the heads back in the wrong order."""
    heads = split_heads(x, h)                   # (h, n, d)
    mixed, _ = one.attend(heads, heads, heads)  # (h, n, d), (h, n, n)
    return merge_heads(mixed.flip(0))           # (n, h * d)


exercises.reshape_trick.check_forged.folded(forged)

# %% [markdown]
# ## What you have now
#
# > **In short.** For head i, word p and feature j of the head, all counted from 0:
# >
# > $$\text{heads}_{i,\,p,\,j} = x_{p,\; i \cdot d + j}$$
# >
# > - split: `x.unflatten(-1, (h, d)).transpose(0, 1)`, `(n, h * d)` to `(h, n, d)`, copies nothing; `split_heads` in
# >   this book's package
# > - merge: `mixed.transpose(0, 1).reshape(n, h * d)`, `(h, n, d)` to `(n, h * d)`, copies, for `attend` leaves one
# >   head after the other; `merge_heads`
# > - wrong split: `x.reshape(h, n, d)`, the same shape, but a head holds only some of the words
# > - wrong merge: `mixed.reshape(n, h * d)`, the same shape, but a row holds several words
# >
# > To find the mistakes, take more words than heads. Roll the words on by one: the rows must roll along. Change the
# > last word: the first row must react. Or write the axes by name, `einops.rearrange(mixed, "h n d -> n (h d)")`, and make neither.
#
# [Batches](05_batches.ipynb) adds the axis that is still missing.
