# %% [markdown]
# # Batches
#
# *Where does the batch go?*
#
# *8 minutes and 2 of exercises. Afterwards you can attend to a whole batch without a loop, and turn
# either axis order into yours.*
#
# A model reads many sentences in one call, as a **batch**. Think of the batch as a house with a room for each sentence.
# Words hear the words in their own room, and never through a wall.
#
# In the house below, the walls stand in the wrong place. A small trained model reads two sentences and goes on with
# both. Twice it says that the *cheese was gone*, and nobody ate.
#
# The framed word, the last *the* of sentence 1, is about to write *cheese*. Green is what it can hear at that moment: no
# word hears a later one. (The `/` is the model's start mark.) Change the drink, or what is said of it in sentence 2. Press
# any word. Then put the walls right.

# %% tags=["hide-input"]
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention import merge_heads, split_heads
from annotated_book import chapters, display
from annotated_book.display.verdicts import caught

one = chapters.load("01_one_head")  # attend, the words and their features
two = chapters.load("02_two_heads")  # W_O of the pair of heads
four = chapters.load("04_reshape_trick")  # its test from outside
world = chapters.load("10_a_little_world")  # the trained model
torch.set_num_threads(1)  # for these small sums, more only wait for each other


# %% tags=["fold-input"]
def cut(sort, k=None):
    """Build a house: lay all words in a row, cut it after every k, and the way back.

    Args:
        sort: whether sentence follows sentence, or word 2 of all follows word 1 of all.
        k: the words of a room; None is as many as a sentence has.
    """

    def row(x):
        return x if sort else x.transpose(0, 1)

    def turn(x):
        return row(x).reshape(-1, k or x.size(1), x.size(-1))

    def back(x, shape):
        b, n = shape[:2]
        return row(x.reshape(*((b, n) if sort else (n, b)), -1))

    return turn, back


TURNS = {"right": cut(True), "across": cut(False)}


# %% tags=["fold-input"]
class Inside(nn.Module):
    """Let a trained layer attend in one of the houses, where no word hears a later one."""

    def __init__(self, theirs, turn, back):
        super().__init__()
        self.theirs, self.turn, self.back = theirs, turn, back

    def forward(self, x, *_, **__):
        theirs = self.theirs
        packed = F.linear(self.turn(x), theirs.in_proj_weight, theirs.in_proj_bias)
        parts = (split_heads(part, 2) for part in packed.chunk(3, -1))
        mixed = F.scaled_dot_product_attention(*parts, is_causal=True)  # (b, h, n, d)
        return theirs.out_proj(self.back(merge_heads(mixed), x.shape)), None


def housed(turns):
    """Load the model, and let it attend in one of the houses."""
    model = world.shipped().eval()
    for layer in model.layers.layers:
        layer.self_attn = Inside(layer.self_attn, *turns)
    return model


@torch.no_grad()
def go_on(turns, texts, most=6):
    """Let the model go on with a batch of texts, each time with the likeliest word."""
    model, batch = housed(turns), [[*text] for text in texts]
    for _ in range(most):
        logits = model(world.as_ids(batch))[:, -1]  # (b, v)
        for words, best in zip(batch, logits.argmax(-1)):
            words.append(world.WORDS[best])
    return [" ".join(words[-most:]).partition(" .")[0] for words in batch]


# %% tags=["hide-input"]
LASTS, found = ["sweet", "fresh"], {}
for j, drink in enumerate(world.DRINKS):
    for k, last in enumerate(LASTS):
        begins = [world.EDGE, *f"the cat drank {drink} because it was".split()]
        texts = [[*begins, end, ".", "so", "the"] for end in ("thirsty", last)]
        alone = [go_on(TURNS["right"], [text])[0] for text in texts]
        for i, turns in enumerate(TURNS.values()):
            found[i, j, k] = [*alone, *go_on(turns, texts)]


def room_of(turns, b, n):
    """Number the rooms of b sentences, and give each word its room's number."""
    turn, back = turns
    x = torch.zeros(b, n, 1)
    inside = turn(x)
    rooms = torch.arange(len(inside)).view(-1, 1, 1).expand(inside.shape)
    return back(rooms, x.shape).squeeze(-1)


# %% tags=["hide-input"]
more = [
    f"{what}: {' / '.join(found[at][2:])}"
    for what, at in {
        "Another drink, tea": (1, 3, 0),
        "Sentence 2 ends in fresh": (1, 0, 1),
        "Walls right": (0, 0, 0),
    }.items()
]
choices = [
    display.Choice("walls:", list(TURNS), 1),
    display.Choice("both drank", world.DRINKS, 0),
    display.Choice("sentence 2 ends in", LASTS, 0),
]
shared = [world.EDGE, "the", "cat", "drank", 1, "because", "it", "was"]
texts = [[*shared, end, ".", "so", "the"] for end in ("thirsty", 2)]  # 1, 2: what is chosen
houses = {(i,): room_of(turns, 2, 12) for i, turns in enumerate(TURNS.values())}
display.who_hears(
    *(choices, texts, houses, (0, 11), found),
    room=(240, 330),
    name="who-let-the-cheese-in",
    more=" ".join(more),
)

# %% [markdown]
# With the walls *right*, the cat wanted more and the drink was gone. With the walls *across*, no drink changes what
# comes: neither last *the* can hear it. But sentence 1 hears how sentence 2 ends. In this model's world *sweet*
# is said of food and of drinks, and the guess is *cheese*; *fresh* is said only of drinks, and the guess becomes *water*. There is no error, and no shape is wrong.
# One line of code put the walls there. You will find it below.
#
# ## Why one house
#
# Why not a house for every sentence? Here the same model reads 64 sentences one after the other, and then in one call.

# %%
model = world.shipped().eval()
ids = torch.randint(1, len(world.WORDS), (64, 12))  # any words
with torch.no_grad():
    loop = torch.cat([model(each[None]) for each in ids])
    batch = model(ids)

# %% [markdown]
# The model is small, with 48<!-- setting --> numbers for a word. One sentence takes 0.4<!-- quoted --> ms on a single core. How long do 64 take, in one call?
#
# <details name="one-call"><summary>As long as one: it is one call.</summary>
#
# The sums are still those of 64 sentences, and one core does them all.
#
# </details>
# <details name="one-call"><summary>64 times as long: about 25 ms.</summary>
#
# That is the loop.
#
# </details>
# <details name="one-call"><summary>About five times as long.</summary>
#
# Right: 2 ms. Most of the time of one sentence goes into starting each operation of the model, and a
# batch starts each of them once. (Measured on one core of a Xeon.)
#
# </details>

# %% tags=["proof"]
torch.testing.assert_close(loop, batch)
print("✓ The loop and the one call give the same.")

# %% [markdown]
# ## Four rooms in one tensor
#
# With several heads, each head of each sentence has a room of its own. Here is the right house for the two
# heads of [chapter 2](02_two_heads.ipynb), which have no mask: here a word hears later ones, too. The framed *it* of sentence 1 asks, and under each word of its room stands
# the weight that the word gets.

# %% tags=["hide-input"]
WIDE = four.WIDE  # W_Q, W_K and W_V of the pair, side by side
it = one.WORDS.index("it")


def look(x):
    """Give the weights of the pair of heads, batch-first."""
    return one.attend(*(split_heads(x @ w, 2) for w in WIDE))[1]


x = torch.stack([one.EMBEDDINGS, one.SWEET_EMBEDDINGS])  # (b, n, e)
both = one.WORDS, one.SWEET
weights = torch.zeros(2, 2, 8)  # (h, b, n)
weights[:, 0] = look(x)[0, :, it]
display.rooms(both, room_of(TURNS["right"], 2, 8), (0, it), weights, name="the-right-house")

# %% [markdown]
# Both sentences lie in one tensor, `(b, n, e)`: b sentences of n words with e features (how shorter ones are filled up comes in
# [chapter 6](06_masks.ipynb#cell-id=padding)). What has to change in
# `one.attend`, which [chapter 1](01_one_head.ipynb) wrote for one sentence? Nothing. It multiplies along the last two
# axes, once for each place of the axes in front. The heads are such an axis; the batch is one more.


# %%
def four_axes(q, k, v, h):
    """Attend in each head of each sentence."""
    parts = [split_heads(x, h) for x in (q, k, v)]
    z = one.attend(*parts)[0]  # (b, h, n, d)
    return merge_heads(z)      # (b, n, h * d)


# %% [markdown]
# `split_heads` and `merge_heads` are the lines of [the last chapter](04_reshape_trick.ipynb), with axes counted from the end,
# so that they leave the batch alone:
#
# | | one sentence | and a batch |
# |---|---|---|
# | split | `x.unflatten(-1, (h, d)).transpose(0, 1)` | `x.unflatten(-1, (h, d)).transpose(-2, -3)` |
# | merge | `mixed.transpose(0, 1).flatten(-2)` | `mixed.transpose(-2, -3).flatten(-2)` |


# %% tags=["proof"] name="equal-to-the-loop-gradients-too"
def one_by_one(q: Tensor, k: Tensor, v: Tensor, h: int) -> Tensor:
    """Attend within each sentence of a batch, in a loop."""
    outputs = []
    for i in range(len(q)):
        parts = (split_heads(each[i], h) for each in (q, k, v))
        heads, _ = one.attend(*parts)  # (h, n, d), (h, n, m)
        outputs.append(merge_heads(heads))
    return torch.stack(outputs)  # (b, n, h * d)


torch.manual_seed(5)
sizes = [(2, n, 24) for n in (3, 5, 5)]  # query, key and value
triple = [torch.randn(size, dtype=torch.float64, requires_grad=True) for size in sizes]
loop, output = one_by_one(*triple, 4), four_axes(*triple, 4)  # (2, 3, 24), (2, 3, 24)
expected = one.gradients(loop, triple)
torch.testing.assert_close(output, loop)
torch.testing.assert_close(one.gradients(output, triple), expected)
print("✓ It gives what a loop over the sentences gives: outputs and gradients.")

# %% [markdown] name="what-equal-sizes-hide"
# ## Build the house yourself
#
# A recurrent layer walks from word to word, so it puts the words first: `(n, b, e)`, **sequence-first**.
# `torch.nn.MultiheadAttention` expects that, too, unless you set `batch_first=True`. Read from first to last, such a tensor `y` is one
# long row: the first word of both sentences, then the second word of both, and so on.
#
# `y.reshape(-1, k, e)` cuts this row after every k words, and each piece becomes a room. Both sentences have 12 words
# (with `/` and the full stop). After how many words do you cut?
#
# <details name="sequence-first"><summary>After 2, as there are 2 sentences.</summary>
#
# Then every word shares its room with its twin alone.
#
# </details>
# <details name="sequence-first"><summary>After 12, as a sentence has 12 words.</summary>
#
# The first 12 words of the row are the first 6 of both sentences.
#
# </details>
# <details name="sequence-first"><summary>No cut is right.</summary>
#
# Right. In this row, neighbours always belong to two sentences, so any room of two words or more mixes both.
#
# </details>
#
# Try it: choose a cut, and see which word the model writes next in each sentence. Under each word stands the number
# of its sentence.

# %% tags=["hide-input"]
SORTED, CUTS = (False, True), (2, 3, 4, 6, 8, 12, 24)
text = "/ the cat drank milk because it was thirsty . so the"
texts = [text.split(), text.replace("thirsty", "sweet").split()]
built = {(i, j): cut(sort, k) for i, sort in enumerate(SORTED) for j, k in enumerate(CUTS)}
drawn_rooms = {at: room_of(turns, 2, 12) for at, turns in built.items()}
alone = [go_on(TURNS["right"], [text], 1)[0] for text in texts]
written = {at: [*alone, *go_on(turns, texts, 1)] for at, turns in built.items()}
places = torch.arange(24).view(2, 12)  # (2, 12)
rows = {"y": places.mT.flatten(), "y.transpose(0, 1)": places.flatten()}
choices = [
    display.Choice("the row:", ["as y lies", "transposed first"], 0),
    display.Choice("cut after", [str(k) for k in CUTS], 0),
]
display.who_hears(
    *(choices, texts, drawn_rooms, (0, 11), written),
    rows=rows,
    room=(372, 557),
    name="words-and-walls",
    more="; ".join(
        f"{choices[0].options[i]}, cut after {CUTS[j]}: {' / '.join(written[i, j][2:])}"
        for i, j in ((0, 5), (0, 6), (1, 5), (1, 6))
    ),
)

# %% [markdown]
# Two ways write both words as they should: *transposed first*, and cut after 12 or after 24. But press the last *the* of sentence 2 in the
# cut after 24: it hears all of sentence 1. A right word proves no wall.
#
# A cut after 2 is what you get when nobody turns `y` round: the code takes the 12 words for 12 sentences. A cut after 12
# looks like the repair, and is the house of the cheese. This is the line that let it in: `y.reshape(b, n, e)`. No error tells you of either.
#
# **A reshape only cuts the row. A transpose changes the order in which it is read.** So transpose a sequence-first tensor where it comes in,
# and once more where it goes out. [Try it](#cell-id=put-the-walls-right) on the house of the cheese.

# %% tags=["proof"]
assert world.REASONS["drank"][1] == LASTS
assert {*LASTS} & {*world.REASONS["ate"][1]} == {"sweet"}
for i, drink, k in found:
    said = [[f"{['cheese', 'water'][k]} was gone"] * 2, found[i, drink, k][:2]]
    assert found[i, drink, k][2:] == said[i == 0]
    assert found[i, drink, k][:2] == ["cat wanted more", f"{world.DRINKS[drink]} was gone"]
right = [at for at, words in written.items() if words[2:] == words[:2] == ["cat", "milk"]]
assert right == [(1, 5), (1, 6)]
ids = world.as_ids(texts)  # (2, 12)
for at, turns in built.items():
    model, rooms = housed(turns), drawn_rooms[at]
    order = torch.stack([*rows.values()])[at[0]].argsort().view(2, 12)  # (2, 12)
    for s, p in ((s, p) for s in range(2) for p in range(12)):
        other = ids.clone()  # (2, 12)
        other[s, p] = (ids[s, p] + 1) % len(world.WORDS)
        with torch.no_grad():
            moved = (model(other) != model(ids)).any(-1)  # (2, 12)
        assert moved.equal((rooms == rooms[s, p]) & (order >= order[s, p]))
print(
    "✓ In all these houses, every word of the model hears what is green, and nothing else."
)

# %% tags=["proof"]
for batch_first in (True, False):
    torchs = nn.MultiheadAttention(24, 4, bias=False, batch_first=batch_first).double()
    with torch.no_grad():  # identity matrices in the place of its projections
        torchs.in_proj_weight.copy_(torch.eye(24).repeat(3, 1))
        torchs.out_proj.weight.copy_(torch.eye(24))
    given = [each if batch_first else each.transpose(0, 1) for each in triple]
    theirs, _ = torchs(*given)
    theirs = theirs if batch_first else theirs.transpose(0, 1)  # (2, 3, 24)
    torch.testing.assert_close(theirs, loop)
    torch.testing.assert_close(one.gradients(theirs, triple), expected)
print("✓ PyTorch's class gives the same in both layouts: outputs and gradients.")

# %% [markdown] name="one-test-for-the-walls"
# ## Ask each sentence alone
#
# Walls promise that each sentence, or **sample**, gets in the batch what it gets alone. So ask it alone:


# %%
def test_alone_and_in_the_batch(model, x):
    """Compare what each sample gets in the batch and alone; x is batch-first."""
    assert len(x) > 1, "one sample has no others to hear"
    together, alone = model(x), torch.cat([model(sample) for sample in x.split(1)])
    gap = (together - alone).abs().max()
    small = together.std() / 1000  # far above rounding
    assert gap <= small, "a sample hears the others"


# %% [markdown]
# [The last chapter](04_reshape_trick.ipynb#cell-id=two-tests-from-outside) had two mistakes that keep every shape: a
# transpose missing in the split, or in the merge. Does this test find them?
#
# <details name="both-tests"><summary>Yes: what they give is wrong, so it differs.</summary>
#
# It is wrong alone and in the batch, in the same way.
#
# </details>
# <details name="both-tests"><summary>No: they leave these walls alone.</summary>
#
# Right. They spoil what happens inside a sentence. And last chapter's test misses the walls *across*: it asks a single
# sentence, which a reshape leaves in order.
#
# </details>
#
# So run both tests, this one on a batch, last chapter's on one sentence, with `lambda x: model(x[None])[0]`. A red cell is
# a mistake that slips through (*around each pair* is the cut after 2):


# %% tags=["hide-input"]
def house(turn, back, split=split_heads, merge=merge_heads):
    """Build a model: the pair of heads, between two turns of the batch."""

    def model(query, key=None):
        key = query if key is None else key
        words = zip((query, key, key), WIDE)
        mixed, _ = one.attend(*(split(turn(each) @ w, 2) for each, w in words))
        return back(merge(mixed) @ two.W_O, query.shape)

    return model


STRAIGHT = TURNS["right"]
HOUSES = {  # each takes its batch first, and returns it first
    **{name: house(*turns) for name, turns in TURNS.items()},
    "around each pair": house(lambda x: x.transpose(0, 1), lambda x, _: x.transpose(0, 1)),
    "wrong split": house(*STRAIGHT, lambda x, h: x.reshape(len(x), h, x.size(1), -1)),
    "wrong merge": house(
        *STRAIGHT, merge=lambda mixed: mixed.reshape(len(mixed), mixed.size(2), -1)
    ),
}


def passes(test, model):
    """Say whether a test runs to its end."""
    try:
        test(model)
    except (AssertionError, RuntimeError):
        return False
    return True


# %% tags=["hide-input"]
drawn = torch.randn(2, 5, 4)  # (2, 5, 4)
tests = {
    "alone and in the batch": lambda model: test_alone_and_in_the_batch(model, drawn),
    "last chapter's": lambda model: four.test_from_outside(
        lambda x: model(x[None])[0], drawn[0], 2
    ),
}
passed = {
    name: [passes(test, way) for test in tests.values()] for name, way in HOUSES.items()
}
caught(passed, [*tests])

# %% [markdown]
# *Around each pair* fails both tests: in the batch a word hears its twin, and alone only itself, so the first word does not
# hear the last.

# %% tags=["proof"]
reasons = []
for test in tests.values():
    try:
        test(HOUSES["around each pair"])
    except AssertionError as error:
        reasons.append(str(error))
assert reasons == ["a sample hears the others", "the first row does not hear the last word"]
print(
    "✓ The tests name it: a sample hears the others, and the first row hears no last word."
)

# %% tags=["proof"]
assert passed == {
    "right": [True, True],
    "around each pair": [False, False],
    "across": [False, True],
    "wrong split": [True, False],
    "wrong merge": [True, False],
}
flat, apart = (lambda x: x.reshape(1, -1, x.size(-1))), (lambda x, s: x.reshape(*s[:2], -1))
one_room = house(flat, apart)  # for the words of all sentences
assert not passes(tests["alone and in the batch"], one_room)
faint = HOUSES["across"]
assert passes(tests["alone and in the batch"], lambda x: x + 1e-4 * faint(x))
for name, model in HOUSES.items():  # 3 queries and 5 keys: who stops with an error?
    assert passes(lambda model: model(drawn[:, :3], drawn), model) == (
        name != "around each pair"
    )
for batch_first in (True, False):
    mha = nn.MultiheadAttention(4, 2, batch_first=batch_first)
    assert (
        passes(tests["alone and in the batch"], lambda x, mha=mha: mha(x, x, x)[0])
        == batch_first
    )
for queries, keys in ((1, 5), (3, 1)):  # the batch second, n or m of 1
    query, key = torch.randn(queries, 2, 24), torch.randn(keys, 2, 24)
    assert four_axes(query, key, key, 4).shape[0] == max(queries, keys)
    parts = (split_heads(each, 4) for each in (query, key, key))
    assert len(F.scaled_dot_product_attention(*parts)) == max(queries, keys)
    torchs = nn.MultiheadAttention(24, 4, batch_first=True)
    assert not passes(lambda given, torchs=torchs: torchs(*given), (query, key, key))
print("✓ The new test finds walls across; both find wrong splits, merges and walls.")

# %% [markdown]
# Feed both tests random numbers, switch dropout off, and test the attention alone: in a whole layer, what attention adds to its input can be so
# small that a sample hears the others and the test passes.
#
# <details><summary>With PyTorch's class, and in cross-attention</summary>
#
# PyTorch's class takes three tensors and returns two: if `mha` is one, batch-first, test `lambda x: mha(x, x, x)[0]`.
#
# With n queries and m keys, a batch taken for words stops with an error only where n and m differ and neither is 1: `@`
# and `F.scaled_dot_product_attention` stretch a size of 1. (PyTorch's class does not, and stops.) So test with n ≠ m, both
# above 1.
#
# </details>

# %% [markdown]
# ## Exercises

# %% [markdown] name="put-the-walls-right"
# ### Put the walls right
#
# *Easy, 2 minutes.* Here is the house of the cheese, as you would meet it in a code review: `y` is sequence-first, and every shape
# is right. Mend it.


# %% tags=["exercise"]
def mended(y: Tensor, h: int) -> Tensor:
    """Attend within each sentence; y is (n, b, h * d), and so is what it returns."""
    n, b, e = y.shape
    x = y.reshape(b, n, e)
    z = four_axes(x, x, x, h)
    return z.reshape(n, b, e)


# %%
from annotated_book import exercises

exercises.batches.check_mended(mended)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Two of the lines only cut a row. What changes the order in which it is read?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# One on the way in, and one on the way out.
#
# </details>


# %% tags=["solution"]
def mended(y: Tensor, h: int) -> Tensor:
    """Attend within each sentence; y is (n, b, h * d), and so is what it returns."""
    x = y.transpose(0, 1)      # (n, b, h * d) -> (b, n, h * d)
    z = four_axes(x, x, x, h)  # (b, n, h * d)
    return z.transpose(0, 1)   # (n, b, h * d)


exercises.batches.check_mended.folded(mended)

# %% [markdown]
# ## What you have now
#
# > **In short.** For each sample s and each head i, separately:
# >
# > $$\text{mixed}_{s,i} = \mathrm{softmax}\bigl(Q_{s,i} K_{s,i}^\top / \sqrt d\bigr)\, V_{s,i}$$
# >
# > - batch-first: `(b, n, h * d)`
# > - sequence-first: `y`, `(n, b, h * d)`; `y.transpose(0, 1)` is batch-first
# > - four axes: `split_heads(x, h)`, `(b, h, n, d)`
# >
# > A sequence-first tensor is transposed where it comes in, and never reshaped to `(b, n, e)`: that keeps the shape
# > and mixes sentences. So test that each `model(x)[i : i + 1]` equals `model(x[i : i + 1])` up to rounding.
#
# The walls stand. But inside a room not every word should hear every other: not padding, and not words
# that come later. [Masks](06_masks.ipynb) hide both.
