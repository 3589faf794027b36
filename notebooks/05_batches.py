# %% [markdown]
# # Batches
#
# *Where does the batch go?*
#
# *8 minutes and 2 of exercises. Afterwards you can attend to a whole batch without a loop, and turn
# either axis order into yours.*
#
# > 1: the cat drank milk because **it** was thirsty . so the …
# >
# > 2: the cat drank milk because **it** was sweet . so the …
#
# A small trained model reads both sentences at once, and ends both with *the cheese was gone*. Nobody ate. Inside its
# attention, the walls that keep the sentences from hearing each other stand in the wrong place. Change the drink in both,
# or the last word of sentence 2. Then put the walls right.

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
    "reshaped": (
        lambda x: x.transpose(0, 1).reshape(x.shape),
        lambda x, shape: x.reshape(shape[1], shape[0], -1).transpose(0, 1),
    ),
    "batch as words": (lambda x: x.transpose(0, 1), lambda x, shape: x.transpose(0, 1)),
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


@torch.no_grad()
def go_on(name, texts):
    """Let the model go on with a batch of texts, each time with the likeliest word."""
    model = world.shipped().eval()
    for layer in model.layers.layers:
        layer.self_attn = Inside(layer.self_attn, *TURNS[name])
    batch = [[world.EDGE, *text.split()] for text in texts]
    for _ in range(6):
        logits = model(world.as_ids(batch))[:, -1]  # (b, v)
        for words, best in zip(batch, logits.argmax(-1)):
            words.append(world.WORDS[best])
    return [" ".join(words[-8:]).partition(" .")[0] + "." for words in batch]


# %% tags=["hide-input"]
LASTS, found = ["sweet", "fresh"], {}
for j, drink in enumerate(world.DRINKS):
    for k, last in enumerate(LASTS):
        begins = f"the cat drank {drink} because it was"
        texts = [f"{begins} {quality} . so the" for quality in ("thirsty", last)]
        alone = [go_on("right", [text])[0] for text in texts]
        for i, name in enumerate(TURNS):
            found[i, j, k] = [*alone, *go_on(name, texts)]

# %% tags=["hide-input"]
more = [
    f"{what}: {' / '.join(found[at][2:])}"
    for what, at in {
        "Another drink, tea": (1, 3, 0),
        "Sentence 2 ends in fresh": (1, 0, 1),
        "Walls right": (0, 0, 0),
        "Walls wrong in another way": (2, 0, 0),
    }.items()
]
display.strips(
    [
        display.Choice("walls", ["right", "wrong", "wrong in another way"], 1),
        display.Choice("drink", world.DRINKS, 0),
        display.Choice("last word", LASTS, 0),
    ],
    [["both drank", 1], ["sentence 2 ends in", 2], ["walls:", 0]],
    [
        *(display.Strip(""), display.Strip("")),  # what is right, not drawn
        *(display.Strip(f"sentence {i + 1} goes on", i) for i in range(2)),
    ],
    found,
    split="|",
    room=(228, 392),
    name="who-let-the-cheese-in",
    more=" ".join(more),
)

# %% [markdown]
# With the walls *right*, the cat wanted more and the drink was gone, and *fresh* changes neither. With *wrong* pressed, the drink
# changes nothing. But when sentence 2 ends in *fresh*, sentence 1 changes as well, though *fresh* is not in it. There is
# no error, and no shape is wrong. Who let the cheese in?
#
# Hardware is fastest on many numbers at once, so a model reads many sentences together, as a **batch**. Think of the
# batch as a house with one room for each head of each sentence. Words talk to the words in their room, never through a wall.
#
# ## Four rooms in one tensor
#
# Here is the right house, for the two heads of [chapter 2](02_two_heads.ipynb) and two sentences as far as *thirsty* and
# *sweet*. Shaded is whom the *it* of sentence 1 hears, with the shares.

# %% tags=["hide-input"]
WIDE = four.WIDE  # W_Q, W_K and W_V of the pair, side by side
it = one.WORDS.index("it")


def look(x):
    """Give the weights of the pair of heads, batch-first."""
    return one.attend(*(split_heads(x @ w, 2) for w in WIDE))[1]


x = torch.stack([one.EMBEDDINGS, one.SWEET_EMBEDDINGS])  # (b, n, e)
house_of = (one.WORDS, one.SWEET), x @ WIDE[0], x @ WIDE[1]
layouts = {"right": look(x), "batch as words": look(x.transpose(0, 1))}
display.rooms(*house_of, layouts, (0, it), name="the-right-house", only="right")

# %% [markdown]
# Put both sentences into one tensor `x`, `(b, n, e)`. The patient way into the four rooms is a loop over the sentences.


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
# Heads do not hear one another, and neither do sentences: the batch is one more axis in front. `WIDE` holds $W_Q$, $W_K$
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
# Two large matrix products do the work of the many small ones:


# %% tags=["proof"]
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
print(
    f"✓ For {len(many[0])} sentences: {counted[0]} products in the loop, {counted[1]} here."
)

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
torch.testing.assert_close(mixed, one_by_one(q, k, v, h))
print("✓ Each sentence gets what it gets alone: outputs and gradients.")

# %% [markdown] name="what-equal-sizes-hide"
# ## A house with the wrong walls
#
# Recurrent layers walk from word to word, so they put the words first: `(n, b, e)`, **sequence-first**.
# `torch.nn.MultiheadAttention` expects that, too, unless you set `batch_first=True`. Suppose that such a tensor `y` comes
# in, and nobody turns it round. Our code takes the 8 words for 8 sentences, and the 2 sentences for 2 words.
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
rows = [f"{house}: {end}" for house in layouts for end in ENDS]
answers = torch.cat([pair(x)[:, it, :2], wrong[it, :, :2]])
display.show(answers, rows, ["animal", "food"], corner="it collects")

# %% [markdown]
# 1.00 under both, in both sentences. Here is the house in which *it* was asked. Press any word:

# %% tags=["hide-input"]
display.rooms(*house_of, layouts, (0, it), name="rooms", opens="batch as words")

# %% [markdown]
# Each of the 16 rooms holds two words, one of each sentence. *It* hears only itself and its twin, and our heads hand over
# *quality* alone.
#
# In the first figure, *wrong in another way* is this house. The last *the* hears only *the*, and never what anybody
# drank. So whatever you choose, the mouse carries the dog.
#
# ## The obvious repair
#
# Our code wants `(b, n, e)`, and `y.reshape(b, n, e)` has that shape. In the first figure, *wrong* does just this. The drink
# changed nothing, and *fresh* changed both sentences. Where do the walls stand?
#
# <details name="cheese"><summary>Between the sentences, where they belong.</summary>
#
# Then *fresh*, in sentence 2, could not change sentence 1.
#
# </details>
# <details name="cheese"><summary>Nowhere: both sentences share one room.</summary>
#
# Then the drink would be in the room, and could change what comes.
#
# </details>
# <details name="cheese"><summary>Across both sentences, somewhere behind the drink.</summary>
#
# Right: between *because* and *it*.
#
# </details>
#
# Here are the rooms of one head, with the words of sentence 2 framed. The `/` is the model's start mark, so each sentence
# has 12 words.

# %% tags=["hide-input"]
texts = [[world.EDGE, *words, ".", "so", "the"] for words in (one.WORDS, one.SWEET)]
both = torch.arange(24).view(12, 2)  # (12, 2), the words of y, numbered as they lie
ways = {
    "y.reshape(b, n, e)": both.reshape(2, 12),
    "y.transpose(0, 1)": both.transpose(0, 1),
}
display.cells(
    {
        f"{way}, room {i + 1}": [(texts[at % 2][at // 2], at % 2 == 1) for at in room]
        for way, rooms in ways.items()
        for i, room in enumerate(rooms.tolist())
    },
    name="words-and-walls",
)

# %% [markdown]
# A reshape keeps the order in which `y` is read: the first word of both sentences, the second of both, and so on. After 12
# words room 1 is full, and there stands the wall. Neither last *the* hears more than *it it was was thirsty sweet . . so so
# the the*.
#
# So the model knows of something sweet, but not that this was milk, nor that it was drunk. In the model's [little
# world](10_a_little_world.ipynb) a food can be sweet, too, and *cheese* is a guess. *Fresh* is said of drinks alone, and
# the guess becomes *water*.
#
# **A reshape keeps the order and lets the wall fall where the count ends; a transpose brings each word into its own room.**
# So transpose a sequence-first tensor where it comes in, `y.transpose(0, 1)`, and once more where it goes out. Never reshape
# it to `(b, n, e)`.

# %% tags=["proof"]
assert world.REASONS["drank"][1] == LASTS
assert world.REASONS["ate"][1] == ["sweet", "warm"]
for drink, k in ((j, k) for j in range(4) for k in range(2)):
    right, wrong_walls, other_walls = (found[i, drink, k] for i in range(3))
    assert (
        right[2:]
        == right[:2]
        == [
            "so the cat wanted more.",
            f"so the {world.DRINKS[drink]} was gone.",
        ]
    )
    assert wrong_walls[2:] == [f"so the {['cheese', 'water'][k]} was gone."] * 2
    assert other_walls[2:] == ["so the mouse carried the dog."] * 2
turned = {
    name: lambda x, turn=turn, back=back: back(pair(turn(x)), x.shape)
    for name, (turn, back) in TURNS.items()
}
heard = {}
for name, model in turned.items():  # the first sentence's it, when one word is another
    places = torch.arange(16).view(2, 8, 1)  # (b, n, 1)
    others = [model(x + 9.0 * (places == place))[0, it] for place in range(16)]
    heard[name] = {i for i, other in enumerate(others) if (other != model(x)[0, it]).any()}
assert heard["right"] == {*range(8)}
assert heard["batch as words"] == {it, 8 + it}
assert heard["reshaped"] == {*range(4, 8), *range(12, 16)}
print("✓ “It” hears its room and no other; under wrong walls no drink changes a word.")

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


# %% tags=["fold-input"]
def passes(test, model):
    """Say whether a test runs to its end."""
    try:
        test(model)
    except (AssertionError, RuntimeError):
        return False
    return True


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
# Last chapter's test misses the reshape because it takes a single sentence, and a batch of one is in order even after a
# reshape. (*Reshaped* is *wrong* in the first figure, *batch as words* is *wrong in another way*.) So run both tests, on random
# numbers, with dropout off.
#
# <details><summary>Why random numbers?</summary>
#
# Our sentences are too much alike to show the mistake *batch as words*. Press *thirsty* in the second house: head 1 hears
# *thirsty*, head 2 hears *sweet*. Both words have 2 of quality, so nothing changes.
#
# </details>
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
torch.testing.assert_close(HOUSES["batch as words"](x), wrong.transpose(0, 1))
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
print("✓ Together, the new test and the old one find all four mistakes.")

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
