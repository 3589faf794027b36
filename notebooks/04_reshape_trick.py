# %% [markdown] name="the-reshape-trick"
# # The reshape trick
#
# *One transpose is missing, without an error. What is lost?*
#
# *10 minutes and 5 of exercises. Afterwards you can split and merge heads, know when that copies, and
# spot two mistakes that keep every shape.*
#
# > the cat drank milk because **it** was thirsty
#
# The [two heads](02_two_heads.ipynb#cell-id=two-questions-at-once) have attended, one for animals and one for foods. A
# single step is left, the **merge**: what both have found for a word goes side by side into the row of that word. Here
# are two ways to write that, from `(h, n, d)` to `(n, h * d)`. The second has one step less, and copies nothing:

# %% tags=["fold-input"]
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
# when it is *sweet*? Which would you take?

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
# and both sentences mean the same. Where has the answer gone?

# %% tags=["hide-input"]
places = torch.arange(2 * len(one.WORDS))  # (h * n,), a place for each head and word
ways = {"with the transpose": places.view(2, -1).T, "without": places.view(-1, 2)}
landings(one.WORDS, ways, who=it, name="wrong-merge-of-it")

# %% [markdown]
# In memory all of head 1 stands before head 2, and the shorter merge counts off two cells for each row. So the row of
# *it* gets what head 2 has found for *drank* and *milk*. Both have a query of zeros, and collect the plain average of
# all eight words: 0.38. Nothing has been erased: the answer stands in the rows of *drank* and *was*.

# %% tags=["proof"]
mixed = one.attend(*(split_heads(sentence @ w, 2) for w in WIDE))[0]  # (2, 8, 2)
assert merge(mixed).equal(merge_heads(mixed))
assert merge(mixed).shape == merge_shorter(mixed).shape
assert not (sentence @ WIDE[0])[2:4].any()  # the queries of drank and milk
torch.testing.assert_close(mixed[1, 2], (sentence @ two.HEADS[1][2]).mean(0))
assert merge_shorter(mixed)[it].equal(mixed[1, 2:4].flatten())  # drank and milk
for word, head in (("drank", 0), ("was", 1)):
    assert merge_shorter(mixed)[one.WORDS.index(word), 2:].equal(mixed[head, it])
print("✓ The same shape, and the two answers stand in the rows of drank and was.")


# %% [markdown] name="strides"
# ## How to walk along a shelf
#
# How can a line that leaves every number in its place spoil every row? Think of a long shelf with one number in each
# place. However many axes a tensor has, its numbers stand on one such shelf. The rest is a rule for walking: for each
# axis, the **stride** says how many places one step along that axis moves.
#
# Take three words, *cat drank milk*, with four features each, for h = 2 heads of width d = 2: a shelf of 12. Its third
# number for the second word is called 2c. (Names count from 1, places and indices from 0.)
# [Split and stack](03_split_and_stack.ipynb) cut such a sheet into a strip for each head, and copied all 12 to a
# second shelf. How many does a split *have* to copy?
#
# <details name="copies"><summary>All 12: each head needs a strip of its own.</summary>
#
# That is what [Split and stack](03_split_and_stack.ipynb) did. It need not.
#
# </details>
# <details name="copies"><summary>6: head 1 stays where it is, head 2 moves.</summary>
#
# Head 1 does not stand in one piece, either: its numbers are 1a 1b, 2a 2b, 3a 3b.
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

# %% tags=["hide-input"]
made = {"x": x, "cut": cut, "heads": heads}
about = {
    name: [str(tuple(each.shape)), str(each.stride()), shelf(each) == shelf(x)]
    for name, each in made.items()
}
display.show(about, columns=["shape", "strides", "the shelf of x"])

# %% [markdown]
# Not one. `unflatten` reads each row of four as two heads of two, and `transpose` exchanges the first two strides.
# That is the whole trick. Walk from 1a to 3c, in the sheet and in the heads:


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
# And the way back? `attend` writes its result to a new shelf, all of head 1 before head 2. Ask `view`, which never
# copies, for the rows of the words:

# %%
mixed, _ = one.attend(heads, heads, heads)  # (h, n, d), (h, n, n)
try:
    mixed.transpose(0, 1).view(n, h * d)
except RuntimeError as error:
    print(error)
print("the same shelf:", shelf(merge(mixed)) == shelf(mixed))

# %% [markdown]
# On the new shelf the four numbers of *cat* stand at places 0, 1, 6 and 7: a step of 1, a jump of 5, a step of 1. No
# single stride walks like that, so `view` refuses. `reshape` copies all 12 numbers, and does not say so. This copy is
# what the shorter merge saves, and it is the work that had to be done. (So it is as our `attend` leaves the numbers.
# PyTorch's own, after this split and for a batch on a CPU, leaves them so that nothing is copied.)
#
# The package of this book, `annotated_attention`, counts axes from the end, so that others may stand in front:

# %% tags=["hide-input"]
display.excerpts(split_heads=(split_heads, "return"), merge_heads=(merge_heads, "return"))

# %% tags=["proof"]
assert heads.equal(split_heads(x, h))
assert heads.equal(three.split_and_stack(x, h))
assert merge(mixed).equal(three.unstack_and_concatenate(mixed))
assert torch.arange(12).view(h, n, d)[:, 0].flatten().tolist() == [0, 1, 6, 7]  # cat
assert mixed.is_contiguous()
assert shelf(merge_shorter(mixed)) == shelf(mixed)
batch = heads.expand(2, h, n, d)                              # (2, h, n, d)
theirs = F.scaled_dot_product_attention(batch, batch, batch)  # (2, h, n, d)
assert shelf(theirs.transpose(1, 2).flatten(2)) == shelf(theirs)
print("✓ The same numbers as splitting and stacking, and as concatenating.")

# %% [markdown] name="two-mistakes-that-keep-every-shape"
# ## Two mistakes that keep every shape
#
# The split has a shorter way, too. It raises no error, has the right shape, and loses no number. How many of the 12
# stand where the trick puts them: all, half, or fewer?


# %%
def split_shorter(x, h):
    """Ask for the shape at once."""
    return x.reshape(h, len(x), -1)


print("in their place:", (split_shorter(x, h) == heads).sum().item(), "of 12")

# %% [markdown]
# Four: the first two and the last two. Here is each walk along the shelf, as far as the end of head 1:

# %% tags=["hide-input"]
layouts = {
    "x.unflatten(-1, (h, d)).transpose(0, 1)": ("h, n, d", split_heads(places, h)),
    "x.reshape(h, n, d)": ("h, n, d", places.reshape(h, n, d)),
}
display.shelf(layouts, spell(x), ["cat", "drank", "milk"], name="shelf", step=6)

# %% [markdown]
# The trick takes two numbers of each word and jumps over the other two. The reshape never jumps: it reads from the
# left until head 1 is full, with all of *cat*, half of *drank*, and no *milk*. You wanted to cut every *row*, and you
# have cut the *shelf*.
#
# So there is a **wrong split**, as there is a **wrong merge**. The usual first test is the round trip: split, merge, and
# compare with the input. Each step can be right or wrong, which makes four ways. Which of them give the input back?
#
# <details><summary>What do you expect?</summary>
#
# The right way does, and so does the way with *both* steps wrong. A reshape never changes the reading order, so
# two of them in a row change nothing at all.
#
# </details>
#
# The figure opens at the wrong split. Follow 2c down to the result, then untick the merge's transpose, too. A corner
# marks a number in a wrong place:


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
data |= {"follow": FOLLOW, "split": False, "merge": True}
display.live(static, "where_numbers_go", data, room=(480, 700))


# %% [markdown]
# With both transposes gone, 2c is back in its place, and so is every number. But on the way each head has attended to
# the wrong ones.

# %% [markdown] name="two-tests-from-outside"
# ## Tests from outside
#
# In a model of your own you do not know the right numbers. So look at it from outside. **Shuffle** the words: this
# attention does not know where a word stands, so the rows of the output must be shuffled along. And **change** one
# word: the row of another must react.


# %%
def shuffles(model, x):
    """Say whether the output is shuffled along with the words, up to rounding."""
    order = torch.arange(len(x)).roll(1)  # (n,), the last word comes first
    return torch.allclose(model(x[order]), model(x)[order], atol=1e-5)


def reacts(model, x, row, word):
    """Say whether one row of the output changes with one word."""
    changed = x.clone()
    changed[word] += torch.arange(x.size(-1))  # each feature by another number
    return not torch.allclose(model(changed)[row], model(x)[row])


# %% [markdown]
# Try them on the pair of heads: change *cat*, and watch *it*. Add a mistake of
# [the last chapter](03_split_and_stack.ipynb): cut each row rightly, but leave the heads in the middle, `(n, h, d)`. Is
# there one test that finds all four mistakes? Look for a column without red, *right* aside:

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
# There is none. But shuffle and change together find all four:
#
# - With the *wrong merge* or the *wrong split* alone, the row of *it* hears *cat*, by way of other words. The change
#   cannot know that these are the wrong ones; the shuffle can.
# - With *both wrong*, the first four words fill head 1 and the last four head 2. So *it* never hears *cat*.
# - With the *heads in the middle* no word hears another. That is equally wrong wherever the word stands, so the
#   shuffle sees nothing, and only the change does.
#
# Take more words than heads. With as many words as heads, and both steps wrong, each head swallows one whole word, and
# the shuffle sees nothing.

# %% tags=["proof"]
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
# Both in one block to copy, with guards, for random weights, float32, no mask, positions or dropout:


# %% tags=["fold-input"]
def test_from_outside(model, x, num_heads):
    """Shuffle the words of x, then change the last one; W_O must not be zero."""
    assert len(x) > num_heads > 1, "take two heads or more, and more words than heads"
    before = model(x)
    assert before.shape == x.shape, "return the output alone, a row for each word"
    limit = before.std() / 1000  # far above rounding, however small the output is
    order = torch.arange(len(x)).roll(1)
    gap = (model(x[order]) - before[order]).abs().max()
    assert gap <= limit, "a row holds what was found for other words"
    changed = x.clone()
    changed[-1] = torch.randn_like(x[-1])  # not every pair reveals both steps wrong
    moved = (model(changed)[0] - before[0]).abs().max()
    assert moved > limit, "the first row does not hear the last word"


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
torchs = nn.MultiheadAttention(4, 2, batch_first=True)
test_from_outside(lambda x: torchs(x[None], x[None], x[None])[0][0], sentence, 2)
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
print("✓ It passes the right way and PyTorch's class, and refuses the other four ways.")

# %% [markdown]
# > **Pitfall.** Do not trust shapes, a falling loss, or the round trip. In
# > [Training](12_training.ipynb#cell-id=the-same-training-with-a-mistake-inside) the loss of a model with
# > the wrong merge falls, and left to write on its own, it writes almost nothing that is right.

# %% [markdown]
# <!-- deeper: how many words, and which -->
# ### Going deeper: how many words, and which
#
# With one head both mistakes change nothing. Take both steps wrong, with 4 heads and several numbers of
# words, and try every pair of words. `Reshaped` is a module of its own, with random matrices.


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
    """Let every word attend to every word, and give the output alone."""
    return lambda x: module(x, x, x)[0]


# %%
both = attending(Reshaped(24, 4, *WAYS["both wrong"]).double())
found = {}
for length in (2, 3, 4, 5, 8):
    words = torch.randn(length, 24, dtype=torch.float64)  # (length, 24)
    pairs = [(i, j) for i in range(length) for j in range(length) if i != j]
    react = sum(reacts(both, words, i, j) for i, j in pairs)
    first, finds = reacts(both, words, 0, length - 1), not shuffles(both, words)
    found[length] = [finds, f"{react} of {len(pairs)}", first]
names = ["the shuffle finds it", "pairs that react", "first row to last word"]
display.show(found, columns=names, corner="words")

# %% tags=["proof"]
assert [length for length, (finds, _, _) in found.items() if not finds] == [2, 4]
assert not any(first for _, _, first in found.values())
for heads in range(2, 6):
    for length in range(heads + 1, 10):
        words = torch.randn(length, 2 * heads, dtype=torch.float64)  # (length, ...)
        for way in ("wrong merge", "wrong split", "both wrong"):
            wrong = Reshaped(2 * heads, heads, *WAYS[way]).double()
            assert not shuffles(attending(wrong), words)
print("✓ With more words than heads, up to 9 and 5, one shuffle finds each of the three.")

# %% [markdown]
# With 2 or 4 words, each head is filled from a single word. No word then sees another, and the
# shuffle moves whole heads, so it finds nothing. This happens wherever the number of words divides
# the number of heads, and in none of the cases tried with more words than heads. Some pairs react at the other
# lengths, so one pair taken at random may reveal nothing.

# %% tags=["proof"]
reshaped, stacked = Reshaped(24, 4).double(), three.SplitAndStack(24, 4).double()
stacked.load_state_dict(reshaped.state_dict())
asking = torch.randn(3, 24, dtype=torch.float64, requires_grad=True)  # (3, 24)
asked = torch.randn(5, 24, dtype=torch.float64, requires_grad=True)   # (5, 24)
ours, theirs = (module(asking, asked, asked) for module in (reshaped, stacked))
torch.testing.assert_close(ours, theirs)
mine = one.gradients(ours[0], [asking, asked, *reshaped.parameters()])
others = one.gradients(theirs[0], [asking, asked, *stacked.parameters()])
torch.testing.assert_close(mine, others)
torchs = nn.MultiheadAttention(24, 4, bias=False, dtype=torch.float64)
packed = [torchs.in_proj_weight, torchs.out_proj.weight]
with torch.no_grad():
    packed[0].copy_(torch.cat([reshaped.w_q, reshaped.w_k, reshaped.w_v], dim=1).mT)
    packed[1].copy_(reshaped.w_o.mT)
theirs = torchs(asking, asked, asked, average_attn_weights=False)
torch.testing.assert_close(ours, theirs)
of_asking, of_asked, of_in, of_out = one.gradients(theirs[0], [asking, asked, *packed])
expected = (of_asking, of_asked, *(part.mT for part in of_in.chunk(3)), of_out.mT)
torch.testing.assert_close(mine, expected)
print("✓ The stack and PyTorch's class give the same outputs, weights and gradients.")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Exercises
#
# ### One number
#
# *Easy, 2 minutes.* With 3 words and 2 heads of width 2, `x` is (3, 4), and its heads, split correctly, `(h, n, d)`,
# are (2, 3, 2). Where among the heads is `x[2, 1]`, which the figure calls 3b? Write its index: three whole numbers,
# counted from 0.

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
# The first head, index 0, has the features a and b of every word. The second has c and d.
#
# </details>

# %% tags=["solution"]
my_place = (0, 2, 1)

exercises.reshape_trick.check_place.folded(my_place)

# %% [markdown]
# ### Repair a merge
#
# *Easy, 3 minutes.* This merge has its transpose, gives the right shape, and raises no error. Yet each row mixes words.
# Repair the function: `mixed` is `(h, n, d)`, and row i of the result, `(n, h * d)`, holds what head 1 has found for
# word i, then what head 2 has, and so on.


# %% tags=["exercise"]
def repaired(mixed: Tensor) -> Tensor:
    """Merge the heads."""
    return mixed.transpose(1, 2).reshape(mixed.size(1), -1)  # repair this


# %%
exercises.reshape_trick.check_repaired(repaired)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# A reshape reads the numbers in the order of the axes, the first axis slowest. Which axis has to be the slowest, so
# that a row is filled from one word?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The words, then the heads, then the features: `(n, h, d)`. Which two axes of `(h, n, d)` change places?
#
# </details>


# %% tags=["solution"]
def repaired(mixed: Tensor) -> Tensor:
    """Merge the heads.

    Args:
        mixed: (h, n, d), what each head has found for each word.
    """
    rows = mixed.transpose(0, 1)            # (n, h, d)
    return rows.reshape(mixed.size(1), -1)  # (n, h * d)


exercises.reshape_trick.check_repaired.folded(repaired)

# %% [markdown]
# ## What you have now
#
# > **In short.** For head i, word p and feature j of the head, all counted from 0:
# >
# > $$\text{heads}_{i,\,p,\,j} = x_{p,\; i \cdot d + j}$$
# >
# > - split: `x.unflatten(-1, (h, d)).transpose(0, 1)`, `(n, h * d)` to `(h, n, d)`, copies nothing
# > - merge: `heads.transpose(0, 1).reshape(n, h * d)`, `(h, n, d)` to `(n, h * d)`, copies what our
# >   `attend` gives
# > - wrong split: `x.reshape(h, n, d)`, the same shape, but a head holds only some of the words
# > - wrong merge: `heads.reshape(n, h * d)`, the same shape, but a row holds several words
# >
# > A reshape keeps the reading order, the last axis fastest; a transpose changes which axis is read first. Together
# > both mistakes survive the round trip. To find them, take more words than heads. Shuffle the words: the rows must
# > move along. Change the last word: the first row must react.
#
# [Batches](05_batches.ipynb) adds the axis that is still missing.
