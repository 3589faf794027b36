# %% [markdown]
# # Batches
#
# *Where does the batch go?*
#
# *7 minutes and 2 of exercises. Afterwards you can attend to a whole batch without a loop, and turn
# either axis order into yours.*
#
# > the cat drank milk because **it** was thirsty
# >
# > the cat drank milk because **it** was sweet
#
# Hardware is fastest on many numbers at once, so a model reads many sentences together. Think of a batch
# as a house with one room for each head of each sentence. Words talk to the other words in their room, never through
# a wall. What must your code do for the walls, and what happens if they stand in the wrong place?

# %% tags=["fold-input"]
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention import merge_heads, split_heads
from annotated_book import chapters, display
from annotated_book.display.verdicts import caught

one = chapters.load("01_one_head")  # attend, the words and their features
two = chapters.load("02_two_heads")  # the pair of heads, and its W_O
four = chapters.load("04_reshape_trick")  # its test from outside
WIDE = four.WIDE  # W_Q, W_K and W_V of the pair, side by side
it = one.WORDS.index("it")

# %% [markdown]
# ## Four rooms in one tensor
#
# Put the two sentences into one tensor, `(b, n, e)`. An item of a batch is called a **sample**; here a sample is a
# sentence. The wide matrices work on the last axis alone, so they do not notice the batch:

# %%
b, n, h, d = 2, 8, 2, 2  # sentences, words, heads, width of a head
x = torch.stack([one.EMBEDDINGS, one.SWEET_EMBEDDINGS])  # (b, n, h * d)
q, k, v = (x @ w for w in WIDE)                          # (b, n, h * d)

# %% [markdown]
# Two sentences with two heads each make four rooms. The patient way into these rooms is a loop over the sentences. (In
# the comments m counts the keys. In self-attention m = n.)


# %%
def one_by_one(q: Tensor, k: Tensor, v: Tensor, h: int) -> Tensor:
    """Attend within each sample of a batch, in a loop."""
    outputs = []
    for i in range(len(q)):
        parts = (split_heads(each[i], h) for each in (q, k, v))
        heads, _ = one.attend(*parts)  # (h, n, d), (h, n, m)
        outputs.append(merge_heads(heads))
    return torch.stack(outputs)  # (b, n, h * d)


# %% [markdown]
# Now get rid of the loop. What has to change in `attend`, which was written for one sentence?
#
# <details><summary>What do you expect?</summary>
#
# Nothing. The heads do not hear one another either. To attention, a sentence is one more axis in front.
#
# </details>


# %%
def four_axes(q: Tensor, k: Tensor, v: Tensor, h: int) -> Tensor:
    """Attend within each head of each sample; batch-first."""
    parts = (split_heads(each, h) for each in (q, k, v))
    heads, _ = one.attend(*parts)  # (b, h, n, d), (b, h, n, m)
    return merge_heads(heads)      # (b, n, h * d)


mixed = four_axes(q, k, v, h)  # (b, n, h * d)
print("the same as the loop:", torch.allclose(mixed, one_by_one(q, k, v, h)))

# %% [markdown]
# Take away the `[i]`, and the loop is gone. `attend` works on the last two axes and leaves all others alone.
# `split_heads` leaves the batch alone, too, because it counts from the end. (The `transpose(0, 1)` of the last chapter
# would now swap sentences with words.)

# %% tags=["proof"] name="equal-to-the-loop-gradients-too"
torch.manual_seed(5)
asking = torch.randn(2, 3, 24, dtype=torch.float64, requires_grad=True)  # (2, 3, 24)
asked = torch.randn(2, 5, 24, dtype=torch.float64, requires_grad=True)   # (2, 5, 24)
handed = torch.randn(2, 5, 24, dtype=torch.float64, requires_grad=True)  # (2, 5, 24)
triple = [asking, asked, handed]
loop, output = one_by_one(*triple, 4), four_axes(*triple, 4)  # (2, 3, 24), (2, 3, 24)
expected = one.gradients(loop, triple)
torch.testing.assert_close(output, loop)
torch.testing.assert_close(one.gradients(output, triple), expected)
print("✓ Each sentence gets what it gets alone: outputs and gradients.")

# %% [markdown] name="what-equal-sizes-hide"
# ## A house with the wrong walls
#
# This code expects the batch first. Now hand it `x.transpose(0, 1)`, with the batch second. The code takes 8 words for 8
# samples, and the batch for the words. Self-attention without a mask takes any sizes, so nothing raises. Who hears whom?
#
# <details><summary>What do you expect?</summary>
#
# Each room holds the two words at one place of both sentences, and *it* meets nobody but the *it* of the other
# sentence, its twin. Neither hears a last word.
#
# </details>
#
# The figure opens at the right house. Shaded is whom *it* of the first sentence hears, with the shares, in a room for
# each head. Press *batch as words*, and then another word:


# %% tags=["hide-input"]
def look(x):
    """Give the weights of the pair of heads, batch-first."""
    return one.attend(*(split_heads(x @ w, 2) for w in WIDE))[1]


house_of = (one.WORDS, one.SWEET), x @ WIDE[0], x @ WIDE[1]
right = look(x)                                          # (b, h, n, n)
taken = look(x.transpose(0, 1))                          # (n, h, b, b)
reshaped = look(x.reshape(n, b, h * d).transpose(0, 1))  # (b, h, n, n)
layouts = {"right": right, "batch as words": taken, "reshaped": reshaped}
display.rooms(*house_of, layouts, (0, it), name="rooms")

# %% [markdown]
# The third button is for the opposite case: a model wants the batch second, and you *reshape* yours instead of
# transposing. The shape fits, but a reshape walks straight on, and *it* shares a room with *cat*, *milk* and the last
# word of *both* sentences. (All dashed rows of a head are one room.)
#
# What does *it* collect in each house? Look for a yes beside a no:


# %% tags=["fold-input"]
def house(turn, back, split=split_heads, merge=merge_heads):
    """Build a model: the pair of heads, between two turns of the batch."""

    def model(query, key=None):
        key = query if key is None else key
        words = zip((query, key, key), WIDE)
        mixed, _ = one.attend(*(split(turn(each) @ w, 2) for each, w in words))
        return back(merge(mixed) @ two.W_O, query.shape)

    return model


STRAIGHT = lambda x: x, lambda x, shape: x
HOUSES = {  # each takes its batch first, and returns it first
    "right": house(*STRAIGHT),
    "batch as words": house(
        lambda x: x.transpose(0, 1), lambda x, shape: x.transpose(0, 1)
    ),
    "reshaped": house(
        lambda x: x.reshape(x.size(1), len(x), -1).transpose(0, 1),
        lambda x, shape: x.transpose(0, 1).reshape(shape),
    ),
}
collects = {name: model(x)[:, it, :2].flatten().tolist() for name, model in HOUSES.items()}
asked = [f"{last}: {what}" for last in ("thirsty", "sweet") for what in ("animal", "food")]
for name, model in HOUSES.items():
    collects[name].append(model(x)[0, one.WORDS.index("cat"), 0].item())
rows = [f"it, {each}" for each in asked] + ["cat, thirsty: animal"]
display.show([*zip(*collects.values())], rows, [*collects], corner="collects")

# %% [markdown]
# Only in the right house. Where the batch is taken for words, *it* hears itself and its twin, and says 1.00 to
# everything. Reshaped, *it* hears both *thirsty* and *sweet*, and says 0.71 to everything. That is no *yes*: in the same
# room *cat*, which asks nothing and gets the average, has 0.75. The shape is what the caller expects. No error, no
# warning, and both sentences mean the same.
#
# ## The batch comes second
#
# `torch.nn.MultiheadAttention` expects batches **sequence-first**, `(n, b, e)`, as recurrent layers do, which walk from
# word to word; `batch_first=True` changes that. Where such a tensor comes in, transpose it once: `x.transpose(0, 1)`.
# Never reshape it, or you stand in the house behind the third button.

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
print("✓ PyTorch's class agrees in both layouts: outputs and gradients.")

# %% [markdown]
# <!-- deeper: what is copied -->
# ### Going deeper: what is copied
#
# Before `@` multiplies, it makes three axes of four. Batch-first, the four rooms begin at places 0, 2, 32 and 34 of the
# memory. No single step leads from each room to the next, so `@` copies. Sequence-first they begin at 0, 2, 4 and 6. To
# the trick of the last chapter that is *one* sentence with b · h heads, `view(n, b * h, d).transpose(0, 1)`. Count the
# tensors that are copied in `attend`, and in PyTorch's own function:

# %% tags=["fold-input"]
from torch.utils._python_dispatch import TorchDispatchMode


class Copies(TorchDispatchMode):
    """Counts the tensors that are copied inside its ``with`` block."""

    count = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.count += operation == torch.ops.aten.clone.default
        return operation(*args, **(kwargs or {}))


rooms = split_heads(q, h)                         # (b, h, n, d)
second = q.transpose(0, 1).contiguous()           # (n, b, h * d), sequence-first
found = second.view(n, b * h, d).transpose(0, 1)  # (b * h, n, d)
function = F.scaled_dot_product_attention
counts = {}
for name, how, each in (
    ("@, batch-first", one.attend, rooms),
    ("@, sequence-first", one.attend, found),
    ("F.scaled_dot_product_attention", function, rooms),
):
    with Copies() as copies:
        how(each, each, each)
    counts[name] = [copies.count, str(tuple(each.shape))]
display.show(counts, columns=["copied", "shape"])

# %% [markdown]
# Sequence-first costs no copy *if yours already lie so*: to turn them round costs one as well. PyTorch's function
# reads each room where it lies, at least here, on a CPU and without mask and dropout, and lays its result so that
# `merge_heads` copies nothing either.

# %% tags=["proof"]
flat = rooms.flatten(0, 1)  # (b * h, n, d)
assert [copied for copied, _ in counts.values()] == [3, 0, 0]
assert [room.storage_offset() for sample in rooms for room in sample] == [0, 2, 32, 34]
assert [room.storage_offset() for room in found] == [0, 2, 4, 6]
assert rooms.data_ptr() == q.data_ptr()
assert found.data_ptr() == second.data_ptr()
assert found.equal(flat)
with Copies() as copies:
    merge_heads(function(rooms, rooms, rooms))
assert copies.count == 0
print("✓ Both layouts hold the same rooms, and neither split copies a number.")

# %% [markdown]
# Published code often *flattens* the two axes in front into one, `(b * h, n, d)`. This mixes nothing, for b and h are
# neighbours. Batch-first it copies all rooms, unless there is only one sentence, one word or one head. **Merge only
# axes that are neighbours, in their order.**

# %% tags=["proof"]
assert flat.equal(torch.cat([*rooms]))
for sizes in ((1, 8, 2), (2, 1, 2), (2, 8, 1), (2, 8, 2)):  # b, n and h
    split = split_heads(torch.randn(*sizes[:2], 4), sizes[2])
    assert (split.flatten(0, 1).data_ptr() == split.data_ptr()) == (1 in sizes)
print("✓ Flattened, the rooms are the same, and copied unless b, n or h is 1.")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="one-test-for-the-walls"
# ## One test for the walls
#
# Neither an error nor the shape reveals such a house. But walls make a promise: a sample gets in the batch what it
# gets alone. Ask for that.


# %%
def test_alone_and_in_the_batch(model, x):
    """Compare what each sample gets in the batch and alone; x is batch-first."""
    assert len(x) > 1, "one sample has no others to hear"
    together, alone = model(x), torch.cat([model(sample) for sample in x.split(1)])
    gap = (together - alone).abs().max()
    assert gap <= together.std() / 1000, "a sample hears the others"


# %% [markdown]
# Hold [the test of the last chapter](04_reshape_trick.ipynb#cell-id=two-tests-from-outside) beside it, on a single
# sentence. The mistakes are the two wrong houses, and the wrong split and the wrong merge within each sentence. Which
# of the two tests finds all four?
#
# <details><summary>What do you expect?</summary>
#
# Neither. The new test does not look into a room. The old one sees a single sentence, with no other to mix it with.
#
# </details>


# %% tags=["fold-input"]
def passes(test, model):
    """Say whether a test runs to its end."""
    try:
        test(model)
    except (AssertionError, RuntimeError):
        return False
    return True


HOUSES["wrong split"] = house(
    *STRAIGHT, split=lambda x, h: x.reshape(len(x), h, x.size(1), -1)
)
HOUSES["wrong merge"] = house(
    *STRAIGHT, merge=lambda mixed: mixed.reshape(len(mixed), mixed.size(2), -1)
)
drawn = torch.randn(2, 5, 4)  # (2, 5, 4)
tests = {
    "alone": lambda model: test_alone_and_in_the_batch(model, drawn),
    "last chapter's": lambda model: four.test_from_outside(
        lambda x: model(x[None])[0], drawn[0], 2
    ),
}
passed = {
    name: [passes(test, way) for test in tests.values()] for name, way in HOUSES.items()
}
caught(passed, [*tests])

# %% tags=["proof"]
assert passed == {
    "right": [True, True],
    "batch as words": [False, False],
    "reshaped": [False, True],
    "wrong split": [True, False],
    "wrong merge": [True, False],
}
for name, model in HOUSES.items():  # 3 queries and 5 keys: who stops with an error?
    assert passes(lambda model: model(drawn[:, :3], drawn), model) == (
        name != "batch as words"
    )
test_alone_and_in_the_batch(HOUSES["batch as words"], x)  # our sentences are too much alike
print("✓ Together, the new test and the old one find all four mistakes.")

# %% [markdown]
# The new test sees the walls between sentences, and the old one what happens inside them. The old one even notices the
# batch that is taken for words: each word of its sentence becomes a sample of its own, and nobody hears anybody.
#
# > **Pitfall.** Hand both tests random numbers, and switch dropout off. Our two sentences, alike but for one word,
# > would hide from the new test that the batch is taken for words. In cross-attention that mistake stops with an error
# > where n and m differ and neither is 1: `@` and `F.scaled_dot_product_attention` stretch a size of 1 to any other. So
# > test cross-attention with such sizes, too.

# %% tags=["proof"]
for queries, keys in ((1, 5), (3, 1)):  # the batch second, n or m of 1
    query, key = torch.randn(queries, 2, 24), torch.randn(keys, 2, 24)
    assert four_axes(query, key, key, 4).shape[0] == max(queries, keys)
    parts = (split_heads(each, 4) for each in (query, key, key))
    assert len(F.scaled_dot_product_attention(*parts)) == max(queries, keys)
    try:
        nn.MultiheadAttention(24, 4, batch_first=True)(query, key, key)
        stops = False
    except RuntimeError:
        stops = True
    assert stops
heard = {
    name: {
        place
        for place in range(16)
        if (model(x) != model(x + 9.0 * (torch.arange(16).view(2, 8, 1) == place)))[
            0, it
        ].any()
    }
    for name, model in [*HOUSES.items()][:3]
}
assert heard["right"] == {*range(8)}
assert heard["batch as words"] == {it, 8 + it}
assert heard["reshaped"] == {*range(1, 16, 2)}
print("✓ “it” hears whom the figure says; PyTorch's class refuses a size of 1.")

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
# *Medium, 15 minutes.* (Not counted above.) This function is batch-first and has no projections: query is `(b, n, e)`,
# key and value are `(b, m, e)`. The function passes every test of self-attention, and stops with an
# error as soon as there are more keys than queries, or fewer. Repair it, so that it returns
# `(b, n, e)` for any n and m.


# %% tags=["exercise"]
def attend_heads(query: Tensor, key: Tensor, value: Tensor, num_heads: int) -> Tensor:
    """Attend with several heads, without projections."""
    b, n, e = query.shape
    q, k, v = (x.reshape(b, n, num_heads, -1).transpose(1, 2) for x in (query, key, value))
    mixed, _ = one.attend(q, k, v)
    return mixed.transpose(1, 2).reshape(b, n, e)  # repair this, or a line above


# %%
exercises.batches.check_attend_heads(attend_heads)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# In self-attention n = m. Call the function with 3 queries and 5 keys, and print the shapes of `q`,
# `k` and `v`. (The 8 in the error is b · h = 2 · 4: the matrix product joins the two axes.)
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
# > **In short.** For each sample i and each head j, separately:
# >
# > $$\text{mixed}_{i,j} = \mathrm{softmax}\bigl(Q_{i,j} K_{i,j}^\top / \sqrt d\bigr)\, V_{i,j}$$
# >
# > - batch-first: `(b, n, h * d)`
# > - sequence-first: `x.transpose(0, 1)`, `(n, b, h * d)`
# > - four axes: `split_heads(x, h)`, `(b, h, n, d)`
# > - flattened: `split_heads(x, h).flatten(0, 1)`, `(b * h, n, d)`, copies, unless b, n or h is 1
# >
# > To attention, samples and heads are alike: each is a problem of its own. Take batch-first
# > outside and four axes inside; a sequence-first tensor is transposed once, where it comes in, and never
# > reshaped. In the wrong layout, self-attention without a mask keeps the shape and mixes sentences. So test
# > that each `model(x)[i : i + 1]` equals `model(x[i : i + 1])` up to rounding, and test one sentence by itself.
#
# The walls stand. But inside a room not every word should hear every other: not padding, and not words
# that come later. [Masks](06_masks.ipynb) hide both.
