# %% [markdown]
# # Batches
#
# *Where does the batch go?*
#
# *8 minutes and 2 of exercises. Afterwards you can attend to a whole batch without a loop, and turn
# either axis order into yours.*
#
# > the cat drank milk because **it** was thirsty . so the *cat wanted more .*
# >
# > the cat drank milk because **it** was sweet . so the *milk was gone .*
#
# A small trained model went on with these two sentences, and got both right. Turn their batch round in the wrong way
# inside its attention, and it ends both with *cheese was gone*. No error, and no cheese in sight.
#
# Hardware is fastest on many numbers at once, so a model reads many sentences together. Think of such a batch as a house
# with one room for each head of each sentence. Words talk to the other words in their room, never through a wall. Whose
# words met whose, when the cheese came in?

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
WIDE = four.WIDE  # W_Q, W_K and W_V of the pair, side by side
it = one.WORDS.index("it")


# %% tags=["hide-input"]
def look(x):
    """Give the weights of the pair of heads, batch-first."""
    return one.attend(*(split_heads(x @ w, 2) for w in WIDE))[1]


x = torch.stack([one.EMBEDDINGS, one.SWEET_EMBEDDINGS])  # (b, n, e)
house_of = (one.WORDS, one.SWEET), x @ WIDE[0], x @ WIDE[1]
layouts = {
    "right": look(x),
    "batch as words": look(x.transpose(0, 1)),
    "reshaped": look(x.transpose(0, 1).reshape(x.shape)),
}
display.rooms(*house_of, layouts, (0, it), name="the-right-house", only="right")

# %% [markdown]
# Shaded is whom the *it* of sentence 1 hears, with the shares.
#
# ## Four rooms in one tensor
#
# Put the two sentences into one tensor `x`, `(b, n, e)`. The patient way into its four rooms is a loop over the sentences.


# %% tags=["fold-input"]
def one_by_one(q: Tensor, k: Tensor, v: Tensor, h: int) -> Tensor:
    """Attend within each sample of a batch, in a loop."""
    outputs = []
    for i in range(len(q)):
        parts = (split_heads(each[i], h) for each in (q, k, v))
        heads, _ = one.attend(*parts)  # (h, n, d), (h, n, m)
        outputs.append(merge_heads(heads))
    return torch.stack(outputs)  # (b, n, h * d)


# %% [markdown]
# Without the loop, what has to change in `one.attend`, which [chapter 1](01_one_head.ipynb) wrote for one sentence? Nothing.
# Heads do not hear one another, and neither do sentences: a batch is one more axis in front.


# %%
def four_axes(q: Tensor, k: Tensor, v: Tensor, h: int) -> Tensor:
    """Attend within each head of each sample; batch-first."""
    parts = (split_heads(each, h) for each in (q, k, v))
    heads, _ = one.attend(*parts)  # (b, h, n, d), (b, h, n, m)
    return merge_heads(heads)      # (b, n, h * d)


b, n, h, d = 2, 8, 2, 2  # sentences, words, heads, width of a head
q, k, v = (x @ w for w in WIDE)  # (b, n, h * d)
mixed = four_axes(q, k, v, h)    # (b, n, h * d)

# %% [markdown]
# `WIDE` holds $W_Q$, $W_K$ and $W_V$ of [both heads](02_two_heads.ipynb) side by side; `split_heads` and `merge_heads` come
# from [the last chapter](04_reshape_trick.ipynb). All of them count axes from the end, so none touches the batch.
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
rooms = split_heads(q, h)  # (b, h, n, d)
assert rooms.flatten(0, 1).equal(torch.cat([*rooms]))  # as the box says
print("✓ Each sentence gets what it gets alone: outputs and gradients.")

# %% [markdown] name="what-equal-sizes-hide"
# ## A house with the wrong walls
#
# Recurrent layers walk from word to word, so they put the words first and the batch second: `(n, b, e)`, **sequence-first**.
# `torch.nn.MultiheadAttention` expects that, too, unless you set `batch_first=True`. Suppose that such a tensor `y` comes in,
# and nobody turns it round. The code takes the 8 words for 8 sentences, and the 2 sentences for 2 words. One head asks about an
# animal, the other about a food. What does *it* collect?
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
# <details name="sequence-first"><summary>A yes to both questions.</summary>
#
# Right. Only *thirsty* or *sweet* could say no to one of them, and neither is in the room of *it*.
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
LASTS = ["sentence 1, thirsty", "sentence 2, sweet"]
rows = [f"{house}: {last}" for house in ("right", "batch as words") for last in LASTS]
answers = torch.cat([pair(x)[:, it, :2], wrong[it, :, :2]])
display.show(answers, rows, ["animal", "food"], corner="it collects")

# %% [markdown]
# A yes to both questions, 1.00, in both sentences. This is the house in which *it* was asked. Press any word, and the other houses:

# %% tags=["hide-input"]
display.rooms(*house_of, layouts, (0, it), name="rooms", opens="batch as words")

# %% [markdown]
# Each of the 16 rooms holds the two words at one place of both sentences. *It* hears itself and its twin, 0.50 each. Our
# heads hand over *quality* alone: *thirsty* and *sweet* have 2 of it, *it* has 1, the others none. Half of 1 and half of 1
# is 1.00. Head 1 writes it under *animal*, head 2 under *food*.
#
# ## The obvious repair
#
# The code wants `(b, n, e)`, and a reshape gives it just that: four rooms of eight words. Does *it* hear its own
# sentence now?

# %%
forced = pair(y.reshape(b, n, h * d))  # (b, n, e)
back = forced.reshape(n, b, h * d)     # (n, b, e)

# %% tags=["hide-input"]
display.show(back[it, :, :2], LASTS, ["animal", "food"], corner="it collects")

# %% [markdown]
# 1.74, and still the same in both sentences. This is the house after the reshape:

# %% tags=["hide-input"]
display.rooms(*house_of, layouts, (0, it), name="rooms-after-the-reshape", only="reshaped")

# %% [markdown]
# The small numbers count the words of `y` as one reads it: the first word of both sentences, the second of both, and so on. A
# reshape keeps this order. After eight words, 0 to 7, the first room is full, and the wall runs across both sentences.
#
# In the right house *it* collected 2 · .46 + .05 = .97 about the animal. Now the cat, who took the other .46, is behind
# the wall. So *thirsty* gets .74, and *sweet* and a second *it* have come in: 2 · .74 + 2 · .04 + .09 + .09 = 1.74. In head
# 2, *sweet* gets the .74.
#
# **In reading order, a reshape moves the walls, and a transpose moves the words.**
#
# <details><summary>And in memory?</summary>
#
# On the [shelf](04_reshape_trick.ipynb#cell-id=strides) it is the reverse: this transpose moves nothing, and this reshape
# copies every number, since `y` itself came from a transpose. (A tensor that was laid down words first is reshaped without a
# copy, and just as wrongly.)
#
# </details>

# %% tags=["proof"]
for words, shares, sum_of in (  # head 1 asks about the animal
    (x[0], layouts["right"][0, 0, it], answers[0, 0]),
    (y.reshape(x.shape)[1], layouts["reshaped"][1, 0, 2], back[it, 0, 0]),
):
    torch.testing.assert_close(shares @ words[:, one.FEATURES.index("quality")], sum_of)
assert y.transpose(0, 1).data_ptr() == x.data_ptr() != y.reshape(x.shape).data_ptr()
turned = {
    "right": pair,
    "batch as words": lambda x: pair(x.transpose(0, 1)).transpose(0, 1),
    "reshaped": lambda x: (
        pair(x.transpose(0, 1).reshape(b, n, -1)).reshape(n, b, -1).transpose(0, 1)
    ),
}
heard = {}
for name, model in turned.items():  # the first sentence's it, when one word is another
    places = torch.arange(16).view(2, 8, 1)  # (b, n, 1)
    others = [model(x + 9.0 * (places == place))[0, it] for place in range(16)]
    heard[name] = {i for i, other in enumerate(others) if (other != model(x)[0, it]).any()}
assert heard["right"] == {*range(8)}
assert heard["batch as words"] == {it, 8 + it}
assert heard["reshaped"] == {*range(4, 8), *range(12, 16)}
print("✓ In each of the three houses “it” hears the words in its room, and no other.")

# %% [markdown]
# ## Who let the cheese in
#
# Would a trained model notice? Take the [storyteller](10_a_little_world.ipynb), and let it attend in each of the three
# houses. With its start mark, `/`, each sentence has 12 words up to *so the*, and no word hears a later one. Reshaped, both
# sentences go on with *cheese*. What has the last *the* heard?
#
# <details name="cheese"><summary>Both whole sentences, mixed up.</summary>
#
# A room has 12 words, and there are 24. Count the first 12 in reading order.
#
# </details>
# <details name="cheese"><summary>Nothing but the other <em>the</em>.</summary>
#
# That is its room when the batch is taken for words.
#
# </details>
# <details name="cheese"><summary><em>Thirsty</em> and <em>sweet</em>, but neither cat nor milk.</summary>
#
# Right. The wall stands between *because* and *it*.
#
# </details>

# %% tags=["fold-input"]
torch.set_num_threads(1)  # for these small sums, more only wait for each other
TURNS = {  # from batch-first into the attention of a house, and back
    "right": (lambda x: x, lambda x, shape: x),
    "batch as words": (lambda x: x.transpose(0, 1), lambda x, shape: x.transpose(0, 1)),
    "reshaped": (
        lambda x: x.transpose(0, 1).reshape(x.shape),
        lambda x, shape: x.reshape(shape[1], shape[0], -1).transpose(0, 1),
    ),
}


class Inside(nn.Module):
    """Let a trained layer attend in one of the houses, where no word hears a later one."""

    def __init__(self, theirs, turn, back):
        super().__init__()
        self.theirs, self.turn, self.back = theirs, turn, back

    def forward(self, x, *_, **__):
        packed = F.linear(
            self.turn(x), self.theirs.in_proj_weight, self.theirs.in_proj_bias
        )
        q, k, v = (split_heads(part, 2) for part in packed.chunk(3, -1))   # (b, h, n, d)
        may = torch.ones(q.size(-2), q.size(-2), dtype=torch.bool).tril()  # (n, n)
        scores = q @ k.mT / q.size(-1) ** 0.5                              # (b, h, n, n)
        self.weights = scores.masked_fill(~may, -torch.inf).softmax(-1)    # (b, h, n, n)
        mixed = merge_heads(self.weights @ v)                              # (b, n, h * d)
        return self.theirs.out_proj(self.back(mixed, x.shape)), None


# %% tags=["fold-input"]
@torch.no_grad()
def go_on(name, texts):
    """Let the model go on with a batch of texts, each time with the likeliest word.

    Gives the words, the chances of the first of them, and the weights of the first layer.
    """
    model = world.shipped().eval()
    for layer in model.layers.layers:
        layer.self_attn = Inside(layer.self_attn, *TURNS[name])
    batch = [[world.EDGE, *text.split()] for text in texts]
    kinds = [[world.NUMBER[word] for word in kind] for kind in KINDS.values()]
    for step in range(6):
        logits = model(world.as_ids(batch))[:, -1]  # (b, v)
        if step == 0:
            chances = [
                [row[kind].sum().item() for kind in kinds] for row in logits.softmax(-1)
            ]
            weights = model.layers.layers[0].self_attn.weights
        for words, best in zip(batch, logits.argmax(-1)):
            words.append(world.WORDS[best])
    added = (" ".join(words[-6:]).partition(" .")[0] + " ." for words in batch)
    return [[words, *row] for words, row in zip(added, chances)], weights


# %% tags=["hide-input"]
world = chapters.load("10_a_little_world")
KINDS = {"animal": world.ANIMALS, "drink": world.DRINKS, "food": world.FOODS}
KINDS |= {"milk": ["milk"]}
BOTH = [" ".join(words) + " . so the" for words in (one.WORDS, one.SWEET)]
goes_on = {name: go_on(name, BOTH) for name in TURNS}
texts = [[world.EDGE, *text.split()] for text in BOTH]
told = {name: weights[:, :1] for name, (_, weights) in goes_on.items()}
display.rooms(texts, x, x, told, (1, 11), name="rooms-of-the-storyteller", only="reshaped")

# %% [markdown]
# The last *the* of sentence 2 is number 23. In this head of the first layer it hears mostly *sweet*, .86. Its twin in sentence 1,
# number 22, has the same room. No word in this room names a drink. What does the model expect next?

# %% tags=["hide-input"]
(right, _), (as_words, _), (reshaped, _) = goes_on.values()
expects = {
    "right: … thirsty": right[0],
    "right: … sweet": right[1],
    "batch as words: … sweet": as_words[1],
    "reshaped: … sweet": reshaped[1],
}
display.show(
    {name: [words.split()[0], *row] for name, (words, *row) in expects.items()},
    columns=["says", *KINDS],
    corner="house: sentence",
)

# %% [markdown]
# In the storyteller's world, what is *sweet* is a drink or a food, and either can be *gone*. Reshaped, the model expects a
# food, 0.41, or a drink, 0.32, but not *milk*, 0.00: milk is behind the wall. So *cheese* is a guess. With the batch taken
# for words, *the* hears nothing but *the*, and *mouse* is a guess, too.
#
# So a wrong wall let the cheese in, and no shape shows it. **Transpose** a sequence-first tensor where it comes in,
# `y.transpose(0, 1)`, and once more where it goes out. Never reshape it.

# %% tags=["proof"]
assert pair(y.transpose(0, 1)).equal(pair(x))
said = {name: [row[0] for row in rows] for name, (rows, _) in goes_on.items()}
assert said == {
    "right": ["cat wanted more .", "milk was gone ."],
    "batch as words": ["mouse carried the dog ."] * 2,
    "reshaped": ["cheese was gone ."] * 2,
}
for rows in (as_words, reshaped):  # both sentences get the same chances, nearly
    torch.testing.assert_close(*torch.tensor([r[1:] for r in rows]), atol=0.01, rtol=0)
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
# A wall promises that a sentence, or **sample**, gets in the batch what it gets alone. So ask it alone:


# %%
def test_alone_and_in_the_batch(model, x):
    """Compare what each sample gets in the batch and alone; x is batch-first."""
    assert len(x) > 1, "one sample has no others to hear"
    together, alone = model(x), torch.cat([model(sample) for sample in x.split(1)])
    gap = (together - alone).abs().max()
    small = together.std() / 1000  # far above rounding, far below a mistake
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
# Right. They spoil what happens inside a room.
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
# reshape. So run both tests, on random numbers, with dropout off.
#
# <details><summary>Why random numbers?</summary>
#
# Our sentences are too much alike to show the mistake *batch as words*. Alone, *thirsty* collects its own 2 of quality. In
# the batch it collects half of that and half of the 2 of *sweet*, which is 2 again.
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
torch.testing.assert_close(HOUSES["reshaped"](x), back.transpose(0, 1))
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
# > **In short.** For each sample i and each head j, separately:
# >
# > $$\text{mixed}_{i,j} = \mathrm{softmax}\bigl(Q_{i,j} K_{i,j}^\top / \sqrt d\bigr)\, V_{i,j}$$
# >
# > - batch-first: `(b, n, h * d)`
# > - sequence-first: `x.transpose(0, 1)`, `(n, b, h * d)`
# > - four axes: `split_heads(x, h)`, `(b, h, n, d)`
# > - flattened: `split_heads(x, h).flatten(0, 1)`, `(b * h, n, d)`
# >
# > A sequence-first tensor is transposed
# > where it comes in, and never reshaped: in the wrong layout self-attention keeps the shape and mixes sentences, and a
# > causal mask need not stop it. So test that each `model(x)[i : i + 1]` equals `model(x[i : i + 1])` up to rounding, and run the test of
# > the last chapter, on one sentence.
#
# The walls stand. But inside a room not every word should hear every other: not padding, and not words
# that come later. [Masks](06_masks.ipynb) hide both.
