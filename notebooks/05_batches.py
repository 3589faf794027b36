# %% [markdown]
# # Batches
#
# *Where does the batch go?*
#
# *8 minutes and 2 of exercises. Afterwards you can attend to a whole batch without a loop, and turn
# either axis order into yours.*
#
# Hardware is fastest on many numbers at once, so a model reads many sentences together, as a **batch**. Think of the batch
# as a house. Words hear the words in their own room, and never through a wall.
#
# Below, a small trained model reads two sentences and goes on with both. Twice it says that the *cheese was gone*, and
# nobody ate. The walls of this house stand in the wrong place. Framed is the last *the* of sentence 1, which writes the
# next word. Green is what it can hear; no word hears a later one. (The `/` is the model's start mark.)
#
# Change the drink in both sentences, or the last word of sentence 2. Press any word. Then put the walls right.

# %% tags=["hide-input"]
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from annotated_attention import merge_heads, split_heads
from annotated_book import chapters, display
from annotated_book.display.verdicts import caught

one = chapters.load("01_one_head")  # attend, the words and their features
two = chapters.load("02_two_heads")  # the pair of heads, and its W_O
four = chapters.load("04_reshape_trick")  # its test from outside
world = chapters.load("10_a_little_world")  # the trained model
torch.set_num_threads(1)  # for these small sums, more only wait for each other
TURNS = {  # from batch-first into the attention of a house, and back
    "right": (lambda x: x, lambda x, shape: x),
    "across": (
        lambda x: x.transpose(0, 1).reshape(x.shape),
        lambda x, shape: x.reshape(shape[1], shape[0], -1).transpose(0, 1),
    ),
    "around each pair": (lambda x: x.transpose(0, 1), lambda x, shape: x.transpose(0, 1)),
}


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


def housed(name):
    """Load the model, and let it attend in one of the houses."""
    model = world.shipped().eval()
    for layer in model.layers.layers:
        layer.self_attn = Inside(layer.self_attn, *TURNS[name])
    return model


@torch.no_grad()
def go_on(name, texts):
    """Let the model go on with a batch of texts, each time with the likeliest word."""
    model, batch = housed(name), [[*text] for text in texts]
    for _ in range(6):
        logits = model(world.as_ids(batch))[:, -1]  # (b, v)
        for words, best in zip(batch, logits.argmax(-1)):
            words.append(world.WORDS[best])
    return [" ".join(words[-6:]).partition(" .")[0] + "." for words in batch]


# %% tags=["hide-input"]
LASTS, found = ["sweet", "fresh"], {}
for j, drink in enumerate(world.DRINKS):
    for k, last in enumerate(LASTS):
        begins = [world.EDGE, *f"the cat drank {drink} because it was".split()]
        texts = [[*begins, end, ".", "so", "the"] for end in ("thirsty", last)]
        alone = [go_on("right", [text])[0] for text in texts]
        for i, name in enumerate(TURNS):
            found[i, j, k] = [*alone, *go_on(name, texts)]


def room_of(name, b, n):
    """Number the rooms of b sentences, and give each word its room's number."""
    turn, back = TURNS[name]
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
        "Walls around each pair": (2, 0, 0),
    }.items()
]
choices = [
    display.Choice("walls:", list(TURNS), 1),
    display.Choice("both drank", world.DRINKS, 0),
    display.Choice("sentence 2 ends in", LASTS, 0),
]
shared = [world.EDGE, "the", "cat", "drank", 1, "because", "it", "was"]
texts = [[*shared, end, ".", "so", "the"] for end in ("thirsty", 2)]  # 1, 2: what is chosen
houses = [room_of(name, 2, 12) for name in TURNS]
display.who_hears(
    *(choices, texts, houses, (0, 11), found),
    room=(240, 330),
    name="who-let-the-cheese-in",
    more=" ".join(more),
)

# %% [markdown]
# With the walls *right*, the cat wanted more and the drink was gone. With the walls *across*, no drink changes what
# comes: neither last *the* can hear it. But *fresh*, in sentence 2, changes what sentence 1 says. There is no error, and
# no shape is wrong. First the right house; the builder of the wrong one comes after it.

# %% tags=["proof"]
assert world.REASONS["drank"][1] == LASTS
assert world.REASONS["ate"][1] == ["sweet", "warm"]
for drink, k in ((j, k) for j in range(4) for k in range(2)):
    right, wrong_walls, other_walls = (found[i, drink, k] for i in range(3))
    assert (
        right[2:]
        == right[:2]
        == [
            "cat wanted more.",
            f"{world.DRINKS[drink]} was gone.",
        ]
    )
    assert wrong_walls[2:] == [f"{['cheese', 'water'][k]} was gone."] * 2
    assert other_walls[2:] == ["mouse carried the dog."] * 2
ids = world.as_ids([[*begins, end, ".", "so", "the"] for end in ("thirsty", "sweet")])
order = torch.arange(24).view(12, 2).mT  # (2, 12), as the words lie in y
for name, rooms in zip(TURNS, houses):
    model = housed(name)
    for s, p in ((s, p) for s in range(2) for p in range(12)):
        other = ids.clone()  # (2, 12)
        other[s, p] = (ids[s, p] + 1) % len(world.WORDS)
        with torch.no_grad():
            moved = (model(other) != model(ids)).any(-1)  # (2, 12)
        assert moved.equal((rooms == rooms[s, p]) & (order >= order[s, p]))
print("✓ In the model, every word hears what is green, and nothing else.")

# %% [markdown]
# ## Four rooms in one tensor
#
# In attention with several heads, each head of each sentence has a room of its own. Here is the right house for the two
# heads of [chapter 2](02_two_heads.ipynb), and for two sentences as far as *thirsty* and *sweet*. The framed *it* of
# sentence 1 asks, and under each word of its room stands the weight that the word gets. Of quality, which is all that our
# heads collect, *thirsty* and *sweet* have 2, *it* has 1, the cat and the milk have none.

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
display.rooms(both, room_of("right", 2, 8), (0, it), weights, name="the-right-house")

# %% [markdown]
# Put both sentences into one tensor `x`, `(b, n, e)`: b = 2 sentences of n = 8 words with e = 4 features. The patient way into the four rooms is a loop over the sentences.


# %% tags=["fold-input"]
def one_by_one(q: Tensor, k: Tensor, v: Tensor, h: int) -> Tensor:
    """Attend within each sentence of a batch, in a loop."""
    outputs = []
    for i in range(len(q)):
        parts = (split_heads(each[i], h) for each in (q, k, v))
        heads, _ = one.attend(*parts)  # (h, n, d), (h, n, m)
        outputs.append(merge_heads(heads))
    return torch.stack(outputs)  # (b, n, h * d)


# %% [markdown]
# Without the loop, what has to change in `one.attend`, which [chapter 1](01_one_head.ipynb) wrote for one sentence? Nothing.
# Its `query @ key.mT` and `weights @ value` multiply the last two axes, once for each place of the axes in front, and its `softmax(-1)` looks along
# the last. The heads are such an axis in front; the batch is one more. `WIDE` holds $W_Q$, $W_K$
# and $W_V$ of both heads side by side.


# %%
def four_axes(q: Tensor, k: Tensor, v: Tensor, h: int) -> Tensor:
    """Attend within each head of each sentence; q, k and v are (b, n, h * d)."""
    parts = (split_heads(each, h) for each in (q, k, v))
    heads, _ = one.attend(*parts)  # (b, h, n, d), (b, h, n, m)
    return merge_heads(heads)      # (b, n, h * d)


b, n, h, d = 2, 8, 2, 2  # sentences, words, heads, width of a head
q, k, v = (x @ w for w in WIDE)  # (b, n, h * d)
mixed = four_axes(q, k, v, h)    # (b, n, h * d)

# %% [markdown]
# `split_heads` and `merge_heads` are the lines of [the last chapter](04_reshape_trick.ipynb), with axes counted from the end:
# `transpose(-3, -2)` in the place of `transpose(0, 1)`. So they leave the batch alone, as `one.attend` does.
# Two calls of `@`, each with all the small products at once, replace the loop's many:


# %% tags=["proof"] name="equal-to-the-loop-gradients-too"
class Products(TorchFunctionMode):
    """Count the matrix products while it is on."""

    count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.count += "matmul" in func.__name__
        return func(*args, **(kwargs or {}))


counted = []
many = torch.randn(3, 64, 16, 32)  # (3, 64, 16, 32)
for attends in (one_by_one, four_axes):
    with Products() as products:
        attends(*many, 4)
    counted.append(products.count)
assert counted[0] == 64 * counted[1]
torch.manual_seed(5)
sizes = [(2, n, 24) for n in (3, 5, 5)]  # query, key and value
triple = [torch.randn(size, dtype=torch.float64, requires_grad=True) for size in sizes]
loop, output = one_by_one(*triple, 4), four_axes(*triple, 4)  # (2, 3, 24), (2, 3, 24)
expected = one.gradients(loop, triple)
torch.testing.assert_close(output, loop)
torch.testing.assert_close(one.gradients(output, triple), expected)
torch.testing.assert_close(mixed, one_by_one(q, k, v, h))
print(f"✓ For 64 sentences: {counted[0]} calls in the loop, {counted[1]} here, and equal.")

# %% [markdown] name="what-equal-sizes-hide"
# ## A house with the wrong walls
#
# Recurrent layers walk from word to word, so they put the words first: `(n, b, e)`, **sequence-first**.
# `torch.nn.MultiheadAttention` expects that, too, unless you set `batch_first=True`. Suppose that such a tensor `y` comes
# in, and nobody turns it round. Our code takes the 8 words for 8 sentences, and the 2 sentences for 2 words. It builds
# walls *around each pair*.
#
# Head 1 asks about an animal, head 2 about a food. In the right house, the *it* of sentence 1 collects 0.97 under
# *animal* and 0.19 under *food*. And here?
#
# <details name="sequence-first"><summary>Nothing: the code stops with an error.</summary>
#
# Self-attention takes any sizes, and both axes are there.
#
# </details>
# <details name="sequence-first"><summary>The right answer: its own words are all in the tensor.</summary>
#
# They are in the tensor, but in other rooms.
#
# </details>
# <details name="sequence-first"><summary>About 1 under both: animal <em>and</em> food.</summary>
#
# Right. Both words in its room are *it*, each with a quality of 1, and any mixture of 1 and 1 is 1.
#
# </details>


# %%
def pair(x: Tensor) -> Tensor:
    """Let the pair of heads ask about an animal and a food; x is batch-first."""
    q, k, v = (x @ w for w in WIDE)         # (b, n, h * d)
    return four_axes(q, k, v, 2) @ two.W_O  # (b, n, e)


y = x.transpose(0, 1)  # (n, b, e), sequence-first
wrong = pair(y)        # (n, b, e)

# %% tags=["hide-input"]
ENDS = ["sentence 1, thirsty", "sentence 2, sweet"]
rows = [f"{house}: {end}" for house in ("right", "around each pair") for end in ENDS]
answers = torch.cat([pair(x)[:, it, :2], wrong[it, :, :2]])
display.show(answers, rows, ["animal", "food"], corner="it collects")

# %% [markdown]
# Here is the house in which *it* was asked, alike in both heads:

# %% tags=["hide-input"]
heard = look(y)[it, :, 0]  # (h, b)
assert heard[0].equal(heard[1])
weights = torch.zeros(1, 2, 8)  # (1, b, n)
weights[0, :, it] = heard[0]
pairs = room_of("around each pair", 2, 8)
display.rooms(both, pairs, (0, it), weights, name="the-house-of-pairs")

# %% [markdown]
# Each of its 16 rooms, 8 in each head, holds two words, one of each sentence. *It* hears only itself and its twin. Both
# have a quality of 1, and any mixture of 1 and 1 is 1. In the first figure it is worse still: that model hears nothing that comes later,
# so the last *the* of sentence 1 hears only itself, and whatever you choose, the mouse carries the dog.
#
# ## The obvious repair
#
# Our code wants `(b, n, e)`, and `y.reshape(b, n, e)` has that shape. This line, and a reshape back at the
# end, build the house of the cheese, with walls *across*. Under each word stands its place in `y`, which begins with the first word of both sentences.

# %% tags=["hide-input"]
texts = [[world.EDGE, *words, ".", "so", "the"] for words in both]
display.in_order(texts, room_of("across", 2, 12), name="words-and-walls")

# %% [markdown]
# A reshape keeps this order, and counts. Each sentence has 12 words here, so room 2 begins with place 12: in the middle of
# both sentences. (With each word that the model adds, the wall moves on by half a word.)
#
# Behind the wall the model hears of something sweet, but not that this was milk, nor that it was drunk. In the model's [little
# world](10_a_little_world.ipynb) something to eat can be sweet, too, and *cheese* is a guess. *Fresh* is said of drinks alone, and
# the guess becomes *water*.
#
# **A reshape keeps the order and lets the wall fall where the count ends; a transpose brings each word into the room of
# its sentence.** So transpose a sequence-first tensor where it comes in, `y.transpose(0, 1)`, and once more where it goes
# out. Never reshape it to `(b, n, e)`.

# %% tags=["proof"]
assert pair(y.transpose(0, 1)).equal(pair(x))
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
print("✓ Transposed, all is right; PyTorch's class agrees in both layouts, gradients too.")

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
    small = together.std() / 1000  # far above rounding, far below a mistake
    assert gap <= small, "a sample hears the others"


# %% [markdown]
# PyTorch's class takes three tensors and returns two. So if `mha` is one, batch-first, test `lambda x: mha(x, x, x)[0]`.
#
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
# Right. They spoil what happens inside a sentence.
#
# </details>


# %% tags=["fold-input"]
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
# Last chapter's test misses *across* because it asks a single sentence, and a reshape leaves one sentence in order. So run
# both tests, with dropout off, and on random numbers, as here. On our two sentences, *around each pair* would pass: both words of a
# room have the same quality there.
#
# <details><summary>And in cross-attention?</summary>
#
# With n queries and m keys, a batch taken for words stops with an error only where n and m differ and neither is 1: `@`
# and `F.scaled_dot_product_attention` stretch a size of 1. (PyTorch's class does not, and stops.) So test with n ≠ m, both
# above 1.
#
# </details>

# %% tags=["proof"]
assert passed == {
    "right": [True, True],
    "around each pair": [False, False],
    "across": [False, True],
    "wrong split": [True, False],
    "wrong merge": [True, False],
}
for name, model in HOUSES.items():  # 3 queries and 5 keys: who stops with an error?
    assert passes(lambda model: model(drawn[:, :3], drawn), model) == (
        name != "around each pair"
    )
test_alone_and_in_the_batch(
    HOUSES["around each pair"], x
)  # our sentences are too much alike
torch.testing.assert_close(HOUSES["around each pair"](x), wrong.transpose(0, 1))
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
print("✓ Together, the new test and the old one find all four mistakes of the table.")

# %% [markdown]
# ## Exercises
#
# ### Follow a number
#
# *Easy, 2 minutes.* A recurrent network hands you `y`, sequence-first, with 5 words in each of 3
# sentences and 24 features: (5, 3, 24). You bring `y` into four axes, `(b, h, n, d)`, with 4 heads
# of width 6. Where does the number `y[4, 2, 11]` stand now? Write its index: four whole numbers,
# all counted from 0.

# %% tags=["exercise"]
my_index = (None, None, None, None)  # place in b, place in h, place in n, place in d

# %%
from annotated_book import exercises

exercises.batches.check_index(my_index)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Which number of `[4, 2, 11]` is the sentence, and which is the word?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The first head has the features 0 to 5. Which head has feature 11, and where in that head?
#
# </details>

# %% tags=["solution"]
my_index = (2, 1, 4, 5)

exercises.batches.check_index.folded(my_index)

# %% [markdown]
# ## More exercises
#
# ### What self-attention does not tell
#
# *Easy, 3 minutes.* (Not counted above.) This function is batch-first and has no projections: query is `(b, n, e)`,
# key and value are `(b, m, e)`. The function passes every test of self-attention, and stops with an
# error as soon as there are more keys than queries, or fewer. Repair it, so that it returns
# `(b, n, e)` for any n and m.


# %% tags=["exercise"]
def attend_heads(query: Tensor, key: Tensor, value: Tensor, num_heads: int) -> Tensor:
    """Attend with several heads, without projections; one line is to be repaired."""
    b, n, e = query.shape
    q, k, v = (x.reshape(b, n, num_heads, -1).transpose(1, 2) for x in (query, key, value))
    mixed, _ = one.attend(q, k, v)
    return mixed.transpose(1, 2).reshape(b, n, e)


# %%
exercises.batches.check_attend_heads(attend_heads)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Call the function with 3 queries and 5 keys, and print the shape of `k`. Which number in it is not what it should be?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A reshape with -1 fits almost anything. Which number is wrong for the key, and which size does -1
# become as a result?
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# The width of a head is e / h for query, key and value. Pass this width to the reshape, and let
# each tensor keep its own number of tokens. The output has a row for each query.
#
# </details>


# %% tags=["solution"]
def attend_heads(query: Tensor, key: Tensor, value: Tensor, num_heads: int) -> Tensor:
    """Attend with several heads, without projections.

    Args:
        query: (b, n, e), batch-first.
        key: (b, m, e), batch-first.
        value: (b, m, e), batch-first.
        num_heads: how many.
    """
    b, n, e = query.shape
    d = e // num_heads
    q = query.reshape(b, -1, num_heads, d).transpose(1, 2)  # (b, h, n, d)
    k = key.reshape(b, -1, num_heads, d).transpose(1, 2)    # (b, h, m, d)
    v = value.reshape(b, -1, num_heads, d).transpose(1, 2)  # (b, h, m, d)
    mixed, _ = one.attend(q, k, v)                          # (b, h, n, d), (b, h, n, m)
    return mixed.transpose(1, 2).reshape(b, n, e)           # (b, n, e)


exercises.batches.check_attend_heads.folded(attend_heads)

# %% [markdown]
# ## What you have now
#
# > **In short.** For each sample s and each head i, separately:
# >
# > $$\text{mixed}_{s,i} = \mathrm{softmax}\bigl(Q_{s,i} K_{s,i}^\top / \sqrt d\bigr)\, V_{s,i}$$
# >
# > - batch-first: `(b, n, h * d)`
# > - sequence-first: `x.transpose(0, 1)`, `(n, b, h * d)`
# > - four axes: `split_heads(x, h)`, `(b, h, n, d)`
# >
# > A sequence-first tensor is transposed where it comes in, and never reshaped to `(b, n, e)`. In the wrong layout self-attention keeps
# > the shape and mixes sentences. So test that each `model(x)[i : i + 1]` equals `model(x[i : i + 1])` up to
# > rounding, and run the test of the last chapter, on one sentence.
#
# The walls stand. But inside a room not every word should hear every other: not padding, and not words
# that come later. [Masks](06_masks.ipynb) hide both.
