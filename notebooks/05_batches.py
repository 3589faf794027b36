# %% [markdown]
# # Batches
#
# *Where does the batch go?*
#
# *10 minutes and 2 of exercises. Afterwards you can attend to a whole batch without a loop, and turn
# either axis order into yours.*
#
# > the cat drank milk because **it** was thirsty
# >
# > the cat drank milk because **it** was sweet
#
# Hardware is fastest on many numbers at once, so a model reads many sentences together. Think of a batch
# as a house with one sentence in each room. Words talk to the other words in their room, never through a
# wall. How much of your code do you have to change to build the walls?

# %% tags=["fold-input"]
import torch
from torch import Tensor, nn

from annotated_attention import merge_heads, split_heads
from annotated_book import chapters, display

one = chapters.load("01_one_head")  # attend, the words and their features
two = chapters.load("02_two_heads")  # the pair of heads, and its W_O
four = chapters.load("04_reshape_trick")  # the wide matrices of the pair, and reacts
WIDE = four.WIDE  # W_Q, W_K and W_V
it = one.WORDS.index("it")
b, n, h, d = 2, 8, 2, 2  # sentences, words, heads, width of a head

# %% [markdown]
# ## Two rooms in one tensor
#
# Put the two sentences into one tensor. An item of a batch is called a **sample**; here a sample is a
# sentence. `WIDE`, from the last chapter, has the wide $W_Q$, $W_K$ and $W_V$ of the pair of heads. They work on
# the last axis alone, so they do not notice the batch.

# %%
x = torch.stack([one.EMBEDDINGS, one.SWEET_EMBEDDINGS])  # (b, n, h * d)
q, k, v = (x @ w for w in WIDE)                          # (b, n, h * d)
print(tuple(q.shape))

# %% [markdown]
# The patient way is a loop: take sentence i, and do with it what you did in the last chapters.


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
# Nothing. You have seen such walls before: the heads do not hear one another either. To attention, a sentence
# is one more axis in front.
#
# </details>


# %%
def four_axes(q: Tensor, k: Tensor, v: Tensor, h: int) -> tuple[Tensor, Tensor]:
    """Attend within each head of each sample; batch-first."""
    parts = (split_heads(each, h) for each in (q, k, v))
    heads, weights = one.attend(*parts)  # (b, h, n, d), (b, h, n, m)
    return merge_heads(heads), weights   # (b, n, h * d), (b, h, n, m)


mixed, weights = four_axes(q, k, v, h)  # (b, n, h * d), (b, h, n, n)
print("the same as the loop:", torch.allclose(mixed, one_by_one(q, k, v, h)))

# %% tags=["hide-input"]
names = [f"{end}, head {head}" for end in ("thirsty", "sweet") for head in (1, 2)]
words = [*one.WORDS[:-1], "last word"]
looks = weights[:, :, it].flatten(0, 1)  # (b * h, n)
display.show(looks, names, words, heat=True, title="where “it” looks, room by room")

# %% [markdown]
# Take away the `[i]`, and the loop is gone. Strips, halves of a shelf and rooms are one thing: an axis in front of
# the last two. Two sentences with two heads each make four rooms, and in each *it* looks around on its own
# account. `attend` works on the last two axes and leaves all others alone. `split_heads` leaves them alone, too, because it counts from
# the end: `x.unflatten(-1, (h, -1)).transpose(-3, -2)`. (The `transpose(0, 1)` of the last chapter would now
# swap sentences with words.)

# %% tags=["proof"] name="equal-to-the-loop-gradients-too"
torch.manual_seed(5)
asking = torch.randn(2, 3, 24, dtype=torch.float64, requires_grad=True)  # (2, 3, 24)
asked = torch.randn(2, 5, 24, dtype=torch.float64, requires_grad=True)   # (2, 5, 24)
handed = torch.randn(2, 5, 24, dtype=torch.float64, requires_grad=True)  # (2, 5, 24)
triple = [asking, asked, handed]
loop, output = one_by_one(*triple, 4), four_axes(*triple, 4)[0]  # (2, 3, 24), (2, 3, 24)
expected = one.gradients(loop, triple)
torch.testing.assert_close(output, loop)
torch.testing.assert_close(one.gradients(output, triple), expected)
print("✓ Each sentence gets what it gets alone: outputs and gradients.")

# %% [markdown]
# Published code often *flattens* the two axes in front into one, which is `(b * h, n, d)`. [The reshape
# trick](04_reshape_trick.ipynb) taught you to fear such a step. Does this one mix the rooms? Does it copy?
#
# <details><summary>What do you expect?</summary>
#
# It mixes nothing: b and h are neighbours, so `flatten` numbers the rooms in the order in which they are. But
# it copies them all. On the shelf of the queries the four rooms begin at places 0, 2, 32 and 34, and no single
# stride walks like that.
#
# </details>

# %%
rooms = split_heads(q, h)   # (b, h, n, d)
flat = rooms.flatten(0, 1)  # (b * h, n, d)
print("room by room the same:", flat.equal(torch.cat([*rooms])))
print("the same shelf:", flat.data_ptr() == rooms.data_ptr())

# %% [markdown]
# **Merge only axes that are neighbours, in their order.** `@` does the same inside: it makes three axes of four
# before it multiplies. So the copy that the trick saves comes back with the batch. (A merge of b and h needs its mask [merged
# likewise](16_masks_in_the_wild.ipynb#cell-id=heads-folded-into-the-batch).)

# %% [markdown]
# ## The batch comes second
#
# Not everybody puts the batch first. `torch.nn.MultiheadAttention` expects **sequence-first** data, `(n, b,
# e)`, unless it is told `batch_first=True`. Why would anyone? Lay the queries out like that, and look at a row:
# the four numbers of a word of one sentence, and beside them the four of the other. To the trick that is *one*
# sentence with b · h heads.

# %%
second = q.transpose(0, 1).contiguous()           # (n, b, h * d), sequence-first
found = second.view(n, b * h, d).transpose(0, 1)  # (b * h, n, d)
print("the same rooms:", found.equal(flat))
print("the same shelf:", found.data_ptr() == second.data_ptr())

# %% [markdown]
# All four rooms, and nothing copied. Does `@` leave them where they are, too? Count the copies that it makes
# while `attend` runs:

# %% tags=["fold-input"]
from torch.utils._python_dispatch import TorchDispatchMode


class Copies(TorchDispatchMode):
    """Counts the tensors that are copied inside its ``with`` block."""

    count = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.count += operation == torch.ops.aten.clone.default
        return operation(*args, **(kwargs or {}))


counts = {}
layouts = {"one sentence": rooms[0], "batch-first": rooms, "sequence-first": found}
for name, each in layouts.items():
    with Copies() as copies:
        one.attend(each, each, each)
    counts[name] = [str(tuple(each.shape)), copies.count]
display.show(counts, columns=["shape", "tensors copied"])

# %% [markdown]
# Batch-first, all three are copied: queries, keys and values. Sequence-first, none is. PyTorch's class turns
# batch-first data round before it projects them, and then splits as you did here. (In self-attention it
# still copies once, where it takes apart the queries, keys and values that it projects together.)

# %% tags=["proof"]
import inspect

places = split_heads(torch.arange(2 * 8 * 4).view(2, 8, 4), 2)  # (2, 2, 8, 2)
assert places[:, :, 0, 0].flatten().tolist() == [0, 2, 32, 34]
assert rooms.data_ptr() == q.data_ptr()
assert [copied for _, copied in counts.values()] == [0, 3, 0]
source = inspect.getsource(nn.functional.multi_head_attention_forward)
assert "q.view(tgt_len, bsz * num_heads, head_dim).transpose(0, 1)" in source
assert "if self.batch_first and is_batched:" in inspect.getsource(
    nn.MultiheadAttention.forward
)
print("✓ PyTorch's own source splits sequence-first data in the same words.")

# %% [markdown]
# You have batch-first data, (2, 8, 4), and need (8, 2, 4). `x.reshape(8, 2, 4)` has exactly that shape. Of
# the 16 words, how many stand where they should?
#
# <details><summary>What do you expect?</summary>
#
# Two. A reshape walks straight along the shelf, one whole sentence after the other. So each row holds two
# neighbours from *one* sentence instead of one word from *each*. With two sentences of eight words, only the very
# first and the very last word end up right.
#
# </details>

# %%
number = torch.arange(16).view(2, 8)                   # (2, 8), the words of both sentences
transposed, reshaped = number.T, number.reshape(8, 2)  # (8, 2), (8, 2)
print("in their place:", (transposed == reshaped).sum().item(), "of 16")

# %% [markdown]
# Here are the eight rows of both, two words each:

# %% tags=["hide-input"]
sentences = (one.WORDS, one.SWEET)
named = [
    ["/".join(sentences[i // 8][i % 8] for i in row) for row in places.tolist()]
    for places in (transposed, reshaped)
]
display.show([*zip(*named)], range(8), ["transpose", "reshape"], corner="row")

# %% [markdown]
# In the transpose *thirsty* is beside *sweet*, at the same place of the other sentence; in the reshape it is beside
# its neighbour *was*. `x.transpose(0, 1)` leads from either layout to the other.

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

# %% [markdown] name="what-equal-sizes-hide"
# ## A house with the wrong walls
#
# Someone hands sequence-first data, (8, 2, 4), to code that expects batch-first data. The code takes the 8
# words for 8 samples, and the 2 sentences for 2 words. In the figure, press a word, and its rooms light up, one
# for each head. Then put the batch second.

# %% tags=["hide-input"]
through = four_axes(*(each.transpose(0, 1) for each in (q, k, v)), h)[1]  # (n, h, b, b)
layouts = {"batch first": weights, "batch second, unnoticed": through}
display.rooms(sentences, q, k, layouts, (0, it), name="rooms")

# %% [markdown]
# What happens to the output: an error, a wrong shape, or wrong numbers? And what does *it* collect?
#
# <details><summary>What do you expect?</summary>
#
# Wrong numbers in the right shape. Self-attention works for any number of samples and words, so nothing
# can fail. But each room now holds the words at one place of every sentence. The word *it* meets nobody
# but *it* of the other sentence, who is its twin.
#
# </details>


# %%
def attend_batch(x):
    """Attend with the pair of heads, batch-first."""
    return four_axes(*(x @ w for w in WIDE), 2)[0] @ two.W_O


crossed = attend_batch(x.transpose(0, 1))  # (n, b, e)
print(tuple(crossed.shape))
display.show(crossed[it], ["it, thirsty", "it, sweet"], one.FEATURES)

# %% [markdown]
# The shape is what the caller expects. But *it*, which should say yes to one question and no to the other, says
# 1.00 to both, in both sentences. Each head has heard only *it* and its twin, half and half, and hands on their
# *quality*.
#
# Neither an error nor the shape reveals the mistake. The last chapter's `reacts` does: change one word, and see
# whether *it* of the first sentence notices. (A dot means *no*.)


# %%
def unnoticed(x):
    """Do the same with the batch second, and turn the result round again."""
    return attend_batch(x.transpose(0, 1)).transpose(0, 1)


changes = {"“thirsty”": (0, 7), "“it” of the other sentence": (1, it)}
heard = {
    name: [four.reacts(model, x, (0, it), place) for place in changes.values()]
    for name, model in {"batch first": attend_batch, "batch second": unnoticed}.items()
}
display.show(heard, columns=[*changes], corner="reacts to")

# %% tags=["proof"]
every = [(sentence, place) for sentence in range(2) for place in range(8)]
for model, expects in (
    (attend_batch, [(0, place) for place in range(8)]),
    (unnoticed, [(0, it), (1, it)]),
):
    assert [word for word in every if four.reacts(model, x, (0, it), word)] == expects
print("✓ Of all 16 words: “it” reacts to its sentence; with the batch second, to its twin.")

# %% [markdown]
# Does cross-attention complain, at least? Put the batch second, with n = 3 queries and m = 5 keys. Then try a
# single query, and a single key.


# %% tags=["fold-input"]
def put_second(n, m):
    """Say what should come back, what does with the batch second, and if it is right."""
    query, keys = torch.randn(n, 2, 24), torch.randn(m, 2, 24)     # (n, b, 24), (m, b, 24)
    asking, asked = query.transpose(0, 1), keys.transpose(0, 1)    # (b, n, 24), (b, m, 24)
    right = four_axes(asking, asked, asked, 4)[0].transpose(0, 1)  # (n, b, 24)
    try:
        given = four_axes(query, keys, keys, 4)[0]
    except RuntimeError:
        return [str(tuple(right.shape)), "an error", None]
    same = given.shape == right.shape and given.allclose(right)
    return [str(tuple(right.shape)), str(tuple(given.shape)), "right" if same else "wrong"]


tried = {f"n = {n}, m = {m}": put_second(n, m) for n, m in ((3, 5), (1, 5), (3, 1))}
display.show(tried, columns=["should be", "comes back", "numbers"])

# %% [markdown]
# Taken for samples, 3 queries and 5 keys do not match, and the code stops. A size of 1 stops nothing, because it is
# stretched to any other. One query brings back five rows. And one key brings back the right shape, with wrong
# numbers.
#
# > **Pitfall.** The more your sizes agree, the less a test can see. Test with cross-attention, and with
# > sizes that all differ and are not 1.

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
# > - flattened: `split_heads(x, h).flatten(0, 1)`, `(b * h, n, d)`, copies
# > - from sequence-first: `x.view(n, b * h, d).transpose(0, 1)`, `(b * h, n, d)`, copies nothing where `x` lies so in memory
# >
# > To attention, samples and heads are alike: each is a problem of its own. Take batch-first
# > outside and four axes inside; a sequence-first tensor is transposed once, where it comes in.
# > Given data in the wrong layout, self-attention keeps the shape and mixes sentences. So test
# > cross-attention, with sizes that all differ and are not 1.
#
# The walls stand. But inside a room not every word should hear every other: not padding, and not words
# that come later. [Masks](06_masks.ipynb) hide both.
