# %% [markdown]
# # The short path
#
# *How do you get from a pencil to a class that you can trust?*
#
# *26 minutes and 8 of exercises. Afterwards you can write multi-head attention with masks, and
# show that it is right.*
#
# > the cat drank milk because **it** was thirsty
# >
# > the cat drank milk because **it** was sweet
#
# Is *it* an animal or a food? You know at once, although only the last word differs. To a model, *it*
# is the same word with the same numbers in both sentences. To tell the two apart, *it* has to collect
# something from the other words. **Attention** is the step in which this happens, and one copy of
# that step is a **head**. Here are two. Exchange the last word, and watch the bars; the slider lets
# another word ask.

# %% tags=["hide-input"]
import math

import torch
import torch.nn.functional as F
from torch import nn

from annotated_book import chapters, display, exercises

one = chapters.load("01_one_head")
display.first_look(name="short-path-it", merge=False)

# %% [markdown]
# The bars trade places: with *thirsty* something is said of an animal, with *sweet* of a food. But
# look at the upper curves. Head 1 gives *cat* as much of its attention as *thirsty*, 0.46, and the
# cat, as you will see, adds nothing to that bar.
#
# On this page you build that picture, with a pencil first, and you end with a class of 18 lines that
# computes what PyTorch's does, gradients too. Each step has to give what the step before gave; a line
# with a ✓ opens to its proof. The links lead to the chapters that take their time.
#
# ## One head with a pencil
#
# To a model, a word is a row of numbers. Ours are made by hand: how much of an animal, a food, an
# action or a quality the word is. *Thirsty* is a quality that animals have.

# %% tags=["hide-input"]
words, it = one.WORDS, one.WORDS.index("it")
first, second = one.EMBEDDINGS, one.SWEET_EMBEDDINGS  # the two sentences
display.show(first, words, one.FEATURES, decimals=0)

# %% [markdown]
# Now let *it* look around, in four steps. Before you do the sums: at which will it look more, at the
# cat or at the milk?
#
# 1. **Score.** Compare the row of *it* with the row of each word: multiply them number by number and
#    add up. With *thirsty* that makes $1 \cdot 2 + 1 \cdot 0 + 0 \cdot 0 + 1 \cdot 2 = 4$.
# 2. **Exponential.** Divide the score by 2, the root of the row's width of 4 (a section below says
#    why), and take the exponential. All results are positive, and one more in the divided score makes
#    the result about 2.7<!-- quoted --> times as large.
# 3. **Share.** Divide by the sum of all eight. The shares, called **attention weights**, make one
#    whole. Exponential and division together are the **softmax**.
# 4. **Collect.** Multiply each word's row by its share, and add up the rows.
#
# A comment such as `(n, e)` gives a shape, and is checked when the page is built: n words that ask,
# with e numbers each. The words that are asked are counted by m; here they are the same eight.
# `first` and `second` are the two sentences as such tables, and `it` is the place of the word, 5.
# (They come from the chapter [One head](01_one_head.ipynb), called `one` here. The imports are in the
# notebook, and `display.show` writes a table.)

# %%
scores = first @ first[it]      # (m, e) x (e,) -> (m,)
powers = (scores / 2).exp()     # (m,)
shares = powers / powers.sum()  # (m,)
collected = shares @ first      # (m,) x (m, e) -> (e,)
display.show(torch.stack([scores, powers, shares]), ["score", "exp(s/2)", "share"], words)

# %% tags=["hide-input"]
display.show(collected[None], ["it collects"], one.FEATURES)

# %% [markdown]
# At neither: *cat* and *milk* get the same share, 0.18. What decides is a word that never names the
# cat. *Thirsty* gets 0.30 and brings the animal of its own row along. So *it*, before as much animal
# as food, collects 1.32 of animal and 0.72 of food.
#
# ### The other sentence
#
# *Easy, 2 minutes.* Now the last word is *sweet*, with the numbers 0, 2, 0, 2. What is its score with
# *it*, what is its share, and how much animal and food does *it* collect? The table above holds
# every exponential that you need. Two decimals are enough.

# %% tags=["exercise"]
my_numbers = [
    None,  # the score of sweet
    None,  # its share
    None,  # animal that it collects
    None,  # food that it collects
]

# %%
exercises.short_path.check_sweet(my_numbers)

# %% [markdown]
# <details><summary>Hint</summary>
#
# The score is 4 again, so every share stays. In the sum, *thirsty* brought two of animal. What does
# *sweet* bring in its place?
#
# </details>

# %% tags=["solution"]
my_numbers = [4, 0.30, 0.72, 1.32]

exercises.short_path.check_sweet.folded(my_numbers)

# %% [markdown]
# ## Eight pencils at once
#
# Every word looks around like this, and matrix products let all of them do it at once. Three roles
# get names: the word that asks brings a **query**, it is compared with the **keys**, and what is
# collected are the **values**. So far, all three are the same rows, d wide. In the code, `mT` swaps
# the last two axes, and `softmax(-1)` makes shares along the last one, the keys; `...` stands for
# axes in front, of which there are none yet.


# %%
def attend(q, k, v):
    """Let each query collect values, in proportion to how well its keys fit."""
    scores = q @ k.mT / math.sqrt(q.size(-1))  # (..., n, d) x (..., d, m) -> (..., n, m)
    weights = scores.softmax(-1)               # (..., n, m)
    return weights @ v                         # (..., n, m) x (..., m, d) -> (..., n, d)


both = [attend(x, x, x)[it] for x in (first, second)]
display.show(torch.stack(both), ["it, thirsty", "it, sweet"], one.FEATURES)

# %% tags=["proof"]
torch.testing.assert_close(attend(first, first, first)[it], collected)
for x in (first, second):
    torch.testing.assert_close(attend(x, x, x), F.scaled_dot_product_attention(x, x, x))
print("✓ The three lines give what the pencil gave, and PyTorch's own function.")

# %% [markdown]
# The last word decides. (That thirst goes with animals is written into our numbers; a trained model
# has to find such things by itself.) But nothing in these lines knows that the word stands last.
# Turn a sentence around:

# %%
tame, wild = (one.embed(text.split()) for text in ("cat drank milk", "milk drank cat"))
both = [attend(x, x, x)[1] for x in (tame, wild)]
display.show(torch.stack(both), ["cat drank milk", "milk drank cat"], one.FEATURES)

# %% [markdown]
# *Drank* collects the same whether the cat drank the milk or the milk drank the cat. Attention is
# blind to order: shuffle the words, and the outputs are shuffled along. A model has to be told
# [positions](20_positions.ipynb) from outside.
#
# ## Why the root
#
# Why did the pencil divide by 2? A score adds up d products. If the numbers of both rows are random,
# with mean 0 and variance 1, the sum has a variance of d, and a typical score has the size $\sqrt d$:
# 32 in a head 1,024 wide. Undivided, one key then takes nearly everything, and a share so close to 1
# hardly moves when the scores do. So the query gets hardly any gradient. Is that so? The table has
# 2,000 random queries with eight keys each, and the size of the gradient that a random loss sends back
# to each query.

# %% tags=["fold-input"]
torch.manual_seed(0)
rows = {}
for name, width, by in (
    ("undivided", 1024, 1),
    ("by d", 1024, 1024),
    ("by √d", 1024, 32),
    ("by √d, d = 64", 64, 8),
):
    queries = torch.randn(2000, 1, width, requires_grad=True)
    keys, values = torch.randn(2000, 8, width), torch.randn(2000, 8, 16)
    most = (queries @ keys.mT / by).softmax(-1)  # (2000, 1, 8)
    loss = (most @ values * torch.randn(2000, 1, 16)).sum()
    (gradient,) = torch.autograd.grad(loss, queries)
    sizes = gradient.norm(dim=-1).flatten().sort(descending=True).values  # (2000,)
    tenth = sizes[:200].sum() / sizes.sum()
    rows[name] = [most.amax(-1).median(), sizes.mean(), sizes.median(), tenth]
title = "Largest share, and size of the gradient, at d = 1,024"
display.show(rows, columns=["share", "mean", "median", "top tenth"], title=title)

# %% [markdown]
# On average the undivided gradient is about three times as large as with the root. But its median is
# 0.00: nine tenths of it go to one query in ten, in jolts, and half of the queries get next to nothing.
# Divided by d, the obvious repair, every query gets something, but only 0.04, and the largest of eight
# shares is hardly more than one eighth. With $\sqrt d$ the mean lies near the median, and both are as large at d = 64
# as at 1,024. [One head](01_one_head.ipynb#cell-id=deeper-why-divide-by-the-root) has sliders for it.
#
# ## Three matrices
#
# With the same numbers in all three roles, a word can only find words like itself. So a head has a
# [matrix for each role](01_one_head.ipynb#cell-id=four-learned-matrices), and training sets it:
# $W_Q$ turns a word into what it asks for, $W_K$ into what it is found by, and $W_V$ into what it
# hands over.
#
# Here the head is two numbers wide, set by hand, and asks: *is something said about an animal?*
# Only words with a quality ask; the others have the query (0, 0) and look at all words evenly. A
# word hands over its quality. The head has room for a second number, which nothing on this page
# reads: a spare, filled with the word's animal.

# %%
W_Q = torch.tensor([[0.0, 0], [0, 0], [0, 0], [2, 1]])  # (e, d), a quality asks: 2, 1
W_K = torch.tensor([[1.0, 0], [0, 0], [0, 0], [0, 1]])  # (e, d), found by animal, quality
W_V = torch.tensor([[0.0, 1], [0, 0], [0, 0], [1, 0]])  # (e, d), gives quality, then animal
q, k, v = first @ W_Q, first @ W_K, first @ W_V         # (n, d)
shares = (k @ q[it] / math.sqrt(2)).softmax(-1)         # (m,)
table = torch.column_stack([k, k @ q[it], shares, v[:, 0]])
names = ["animal", "quality", "score", "share", "gives"]
display.show(table, words, names, decimals=[0, 0, 0, 2, 0], heat=["share"])

# %% [markdown]
# The first two columns are the keys, and *gives* is the quality that is handed over. The query of
# *it* is (2, 1): an animal counts twice as much as a quality. *Cat*, (3, 0), and *thirsty*, (2, 2),
# both score 6 and get 0.46 each. So does the head combine the two, one for *who* and one for *what*?
# Look at the last column. The cat has no quality to give, and 0.46 times 0 is 0. What is the cat
# good for? Exchange the last word, and then do without the cat.

# %%
others = [one.embed(text.split()) for text in ("it was thirsty", "it was sweet")]
both = [(first, it), (second, it), (others[0], 0), (others[1], 0)]
said = [attend(x @ W_Q, x @ W_K, x @ W_V)[place, :1] for x, place in both]
names = ["the cat … thirsty", "the cat … sweet", "it was thirsty", "it was sweet"]
display.show(torch.stack(said), names, ["quality"])

# %% [markdown]
# *Sweet* says something, too, but not about an animal. It scores 2, and most of the attention goes to
# *cat*, which gives nothing. Shares have to go somewhere, and with the cat they do no harm. That is how
# this head says *no*: 0.19. Without a cat its *no* is 1.23, louder than its *yes* in the first row. So
# 0.19 is no property of the head. It takes the head and a cat.

# %% [markdown] name="two-heads-in-a-loop"
# ## Two heads, in a loop
#
# And about the food? One head could hand over all it finds, and answer both questions at once. Try that
# on a harder pair: a warm cat with cold milk, and a cold cat with warm milk. The fourth number is
# warmth now, and the head gives each half of its attention. How will the two answers differ?

# %%
warm_cat = torch.tensor([[3.0, 0, 0, 2], [0, 3, 0, -2]])   # (m, e), warm cat, cold milk
warm_milk = torch.tensor([[3.0, 0, 0, -2], [0, 3, 0, 2]])  # (m, e)
both = torch.stack([torch.tensor([0.5, 0.5]) @ x for x in (warm_cat, warm_milk)])
names = ["warm cat, cold milk", "cold cat, warm milk"]
display.show(both, names, ["animal", "food", "action", "warmth"])

# %% [markdown]
# Not at all. An average keeps the features and forgets their owners, and no matrix behind it can bring
# them back. Lean towards the cat, and these two come apart, but then others become the same. (All this
# as long as the shares are the same in both; [Two heads](02_two_heads.ipynb) has a head that cheats.)
#
# So take two, each with a sum of its own. The second asks the same about food: its $W_K$ and $W_V$ pick
# food where those of the first pick animal. Each head gives two numbers for every word. Side by side
# they make four, and a fourth matrix, $W_O$, says where in the word each of them is written. Ours
# writes the first head's quality under *animal*, the second head's under *food*, and nothing else.

# %%
SWAP = [1, 0, 2, 3]  # animal and food change places
HEADS = [(W_Q, W_K, W_V), (W_Q, W_K[SWAP], W_V[SWAP])]
W_O = torch.tensor([[1.0, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]])  # (h * d, e)


def two_heads(x):
    """Run one head after the other, and put what they collect side by side."""
    collected = [attend(x @ w_q, x @ w_k, x @ w_v) for w_q, w_k, w_v in HEADS]
    return torch.cat(collected, -1) @ W_O  # (n, h * d) x (h * d, e) -> (n, e)


both = torch.stack([two_heads(first)[it], two_heads(second)[it]])
display.show(both, ["it, thirsty", "it, sweet"], one.FEATURES)

# %% [markdown]
# Two answers, and they trade places: these are the bars at the top. Two heads have two sets of shares,
# and keep two sums apart.

# %% tags=["proof"]
for x in (first, second):
    alone = attend(x @ W_Q, x @ W_K, x @ W_V)  # (n, d)
    torch.testing.assert_close(two_heads(x)[:, 0], alone[:, 0])
assert not two_heads(first)[:, 2:].any()
print("✓ Under animal stands what the one head gave, for every word of both sentences.")

# %% [markdown]
# ## One matrix for all heads
#
# With h heads the loop makes 3h products to begin with. Three are enough: put the heads' matrices
# side by side, multiply once, and cut the result into h pieces. A stack of heads then goes through
# the same `attend`, since PyTorch's products run over any axes in front, each head for itself, as
# in the loop.

# %%
W_QS, W_KS, W_VS = (torch.cat(pair, 1) for pair in zip(*HEADS))  # (e, h * d)
wide = [first @ w for w in (W_QS, W_KS, W_VS)]                   # (n, h * d)
q, k, v = (torch.stack(x.chunk(2, -1)) for x in wide)            # (h, n, d)
mixed = attend(q, k, v)                                          # (h, n, d)
output = torch.cat([mixed[0], mixed[1]], -1) @ W_O               # (n, e)
display.show(output[[it]], ["it, stacked"], one.FEATURES)

# %% [markdown]
# Here is the whole way of *it*, once, with every number on it. ($W_O$ drops the second number of each
# head, the spare.)

# %% tags=["hide-input"]
display.whole_way(name="whole-way-of-it")

# %% [markdown]
# The number of heads is no longer visible in the matrices. It has become a setting that says where
# to cut. And must you cut? Without it the scores of both heads add up, and [the two sentences get
# the same answers](03_split_and_stack.ipynb).

# %% tags=["proof"]
torch.testing.assert_close(output, two_heads(first))
for head in range(2):
    torch.testing.assert_close((q @ k.mT)[head], q[head] @ k[head].mT)
uncut = [attend(*(x @ w for w in (W_QS, W_KS, W_VS))) @ W_O for x in (first, second)]
torch.testing.assert_close(uncut[0][it], uncut[1][it])
print("✓ The stack gives what the loop gave; uncut, both sentences get the same.")

# %% [markdown]
# ## The reshape trick
#
# In practice, two views do the cutting and stacking. `unflatten` cuts the last axis into (h, d), and
# `transpose` moves h in front of the words, without copying a number. The way back is `transpose`,
# then `flatten`. A batch of b sentences is one more axis in front: here are both at once.


# %%
def split(x):
    return x.unflatten(-1, (2, -1)).transpose(1, 2)  # (b, n, h * d) -> (b, h, n, d)


def merge(x):
    return x.transpose(1, 2).flatten(2)  # (b, h, n, d) -> (b, n, h * d)


pair = torch.stack([first, second])                             # (b, n, e)
mixed = attend(*(split(pair @ w) for w in (W_QS, W_KS, W_VS)))  # (b, h, n, d)
right = merge(mixed) @ W_O                                      # (b, n, e)
display.show(right[:, it], ["it, thirsty", "it, sweet"], one.FEATURES)

# %% [markdown]
# Is the second `transpose` needed? A `reshape` goes straight to the shape that is wanted. Guess what
# the two sentences get from it.

# %%
wrong = mixed.reshape(2, 8, 4)  # (b, n, h * d)
display.show((wrong @ W_O)[:, it], ["it, thirsty", "it, sweet"], one.FEATURES)

# %% [markdown]
# No error, the same shape, and both sentences now mean the same: 0.38 and 0.38. To see why, look at
# whose numbers a row gets. Each cell stands for what a head has collected for the word in it.

# %% tags=["hide-input"]
display.wrong_merge(name="short-path-wrong-merge")

# %% [markdown]
# In memory all of head 1 lies before head 2, and `reshape` only counts off as many numbers as a row
# needs. So *it* got what head 2 had collected for *drank* and *milk*, which ask nothing and had
# collected an even average, 0.38. No shape complains, and a model with this mistake even seems to
# learn, as you see in [Training](12_training.ipynb). [The reshape trick](04_reshape_trick.ipynb) shows
# the same slip in `split`.

# %% tags=["proof"]
torch.testing.assert_close(right, torch.stack([two_heads(first), two_heads(second)]))
assert wrong[:, it].equal(mixed[:, 1, 2:4].flatten(1))
torch.testing.assert_close(wrong[:, it, 0], pair[..., 3].mean(-1))
assert split(pair).equal(torch.stack(pair.chunk(2, -1), 1))
assert split(pair).data_ptr() == pair.data_ptr()
print("✓ The split copies no number, and the answers are those of the loop.")

# %% [markdown]
# ## What to rub out, and when
#
# Sentences of a [batch](05_batches.ipynb) differ in length. The shorter one is filled up with
# **padding**, here with rows of zeros. The padding comes first, as in a model that is to continue each
# text. Nobody may look at padding.
#
# And a model that learns to write must not look at words to come. Why handicap it? Because then the
# row of each word is what you would get if the text ended there. One pass over eight words is eight
# lessons, and in none of them can a word copy the answer.

# %%
short = one.embed(["the", "milk", "was", "sweet"])  # (4, e)
texts = nn.utils.rnn.pad_sequence([first, short], batch_first=True, padding_side="left")
padding = torch.arange(8) < torch.tensor([[0], [4]])  # (b, m), four places of it
future = torch.ones(8, 8, dtype=torch.bool).triu(1)   # (n, m)
blocked = padding[:, None, None, :] | future          # (b, 1, n, m)

# %% [markdown]
# Where `blocked` is True, the query may not see the key. The **padding mask** says so for the keys
# of each sentence, the **causal mask** for all pairs in which the key comes later, and `|` merges
# them. Axes of size 1 are stretched, one over the heads, the other over the queries.
#
# How do you rub out a key? The pencil can set its share to 0 after the softmax, or its *score* to
# $-\infty$ before, since $e^{-\infty} = 0$. Add up what *it* gives away in the first sentence.

# %%
q, k, v = (split(texts @ w) for w in (W_QS, W_KS, W_VS))    # (b, h, n, d)
scores = q @ k.mT / math.sqrt(2)                            # (b, h, n, m)
late = scores.softmax(-1).masked_fill(blocked, 0)           # (b, h, n, m)
early = scores.masked_fill(blocked, -math.inf).softmax(-1)  # (b, h, n, m)
sums = torch.stack([weights[0, :, it].sum(-1) for weights in (late, early)])
display.show(sums, ["zeroed after", "−∞ before"], ["head 1", "head 2"])

# %% [markdown]
# Zeroed afterwards, the share of the blocked words is lost: head 1 keeps 0.54, for the rest had gone
# to what comes later, nearly all of it to *thirsty*, which *it* must not know. With $-\infty$ the
# visible words share the whole.


# %% tags=["proof"]
def filled_once(x, blocked):
    q, k, v = (split(x @ w) for w in (W_QS, W_KS, W_VS))
    scores = (q @ k.mT / math.sqrt(2)).masked_fill(blocked, -math.inf)
    return merge(scores.softmax(-1) @ v) @ W_O


output = filled_once(texts, blocked)
torch.testing.assert_close(output, merge(early @ v) @ W_O, equal_nan=True)
torch.testing.assert_close(filled_once(short[None], future[:4, :4])[0], output[1, 4:])
changed = texts.masked_fill(padding[..., None], 100)
torch.testing.assert_close(filled_once(changed, blocked)[1, 4:], output[1, 4:])
for length in range(1, 9):
    nothing = torch.zeros(length, length).bool()
    prefix = filled_once(first[None, :length], nothing)[0, -1]
    torch.testing.assert_close(prefix, output[0, length - 1])
    torch.testing.assert_close(prefix, two_heads(first[:length])[-1])
print("✓ Sentences, and each of their beginnings, get what they would get alone.")

# %% [markdown]
# ## A row with nothing left
#
# The rows of padding ask, too, and before them there is only padding. Such a row is **fully
# masked**: its softmax divides 0 by 0, which gives NaN. Nobody reads these rows, so are they
# harmless? Let a loss read only the *first* sentence, which has no padding, and ask for the gradient
# of $W_V$: how many of its 16 numbers are NaN?

# %%
W_VS.requires_grad_()
twice, found = early.masked_fill(blocked, 0), {}
for name, weights in (("filled once", early), ("filled twice", twice)):
    output = merge(weights @ split(texts @ W_VS)) @ W_O  # (b, n, e)
    (gradient,) = torch.autograd.grad(output[0].sum(), W_VS)
    found[name] = gradient.isnan().sum(), gradient.numel()
display.show(found, columns=["NaN in the gradient of W_V", "of"])

# %% [markdown]
# All of them. The loss sends a gradient of 0 into those rows, but on its way back it is multiplied by
# their weights, and $0 \cdot \mathrm{NaN}$ is NaN. $W_V$ is shared by all sentences, so one empty row
# spoils it for all.
#
# A second fill cures it, of the weights and with 0. A fully masked row now collects nothing, and on
# the way back $0 \cdot 0$ is 0. So rub out twice, before the softmax and after.
# [Masks](06_masks.ipynb) shows which other cures fail. Here is the second sentence under both masks;
# what is hatched is blocked.

# %% tags=["hide-input"]
padded = [*"····", "the", "milk", "was", "sweet"]
display.masked_map(
    twice[1, 1],
    blocked[1, 0],
    padded,
    padded,
    name="short-path-masks",
    caption="The food head on the second sentence. Padding (·) sees nothing.",
)

# %% tags=["proof"]
three = [matrix.detach().clone().requires_grad_() for matrix in (W_QS, W_KS, W_VS)]
q, k, v = (split(texts @ matrix) for matrix in three)
once = (q @ k.mT / math.sqrt(2)).masked_fill(blocked, -math.inf).softmax(-1)
for weights, lost in ((once, [0, 0, 16]), (once.masked_fill(blocked, 0), [0, 0, 0])):
    loss = (merge(weights @ v) @ W_O)[0].sum()
    gradients = torch.autograd.grad(loss, three, retain_graph=True)
    assert [int(gradient.isnan().sum()) for gradient in gradients] == lost
print("✓ W_Q and W_K are safe already: no gradient passes through a filled score.")

# %% [markdown]
# ### One mask by hand
#
# *Easy, 2 minutes.* Three places in a model that writes: padding, *the*, *milk*. Write down the
# merged mask, a row for each query: 1 where it may not see the key, and 0 where it may.

# %% tags=["exercise"]
my_mask = [
    [None, None, None],  # padding → padding, padding → the, padding → milk
    [None, None, None],  # the → padding, the → the, the → milk
    [None, None, None],  # milk → padding, milk → the, milk → milk
]

# %%
exercises.short_path.check_mask(my_mask)

# %% [markdown]
# <details><summary>Hint</summary>
#
# The first column is padding: nobody sees it. Then block what comes later than the word that asks.
#
# </details>

# %% tags=["solution"]
my_mask = [
    [1, 1, 1],
    [1, 0, 1],
    [1, 0, 0],
]

exercises.short_path.check_mask.folded(my_mask)

# %% [markdown]
# ## The class
#
# Everything is there; put it into a class. In training the four matrices are learned, so each
# becomes an `nn.Linear`, which also adds a bias. A head is e / h wide, so that h of them side by
# side are e wide again. Queries may come from another text than keys and values, so `forward` takes
# three inputs. `blocked` has three axes, (b, n, m), and `[:, None]` adds that of the heads. A mask that
# is the same for all sentences needs an axis of size 1 in front: of a bare (n, m) with n = h, each head
# would take one row, without an error. Without a mask, nothing is blocked: False everywhere.


# %%
class PlainAttention(nn.Module):
    """Multi-head attention; where `blocked` is True, a query does not see a key."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(f"{num_heads} heads do not divide {embed_dim}")
        self.num_heads = num_heads
        layers = (nn.Linear(embed_dim, embed_dim) for _ in range(4))
        self.w_q, self.w_k, self.w_v, self.w_o = layers

    def split(self, x):
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (b, h, ..., d)

    def merge(self, x):
        return x.transpose(1, 2).flatten(2)  # (b, h, n, d) -> (b, n, h * d)

    def forward(self, query, key, value, blocked=None):
        q, k, v = map(self.split, (self.w_q(query), self.w_k(key), self.w_v(value)))
        scores = q @ k.mT / math.sqrt(q.size(-1))  # (b, h, n, m)
        blocked = torch.zeros_like(scores).bool() if blocked is None else blocked[:, None]
        weights = scores.masked_fill(blocked, -math.inf).softmax(-1).masked_fill(blocked, 0)
        return self.w_o(self.merge(weights @ v)), weights  # (b, n, e), (b, h, n, m)


# %% tags=["proof"]
by_class = PlainAttention(4, 2)
layers = (by_class.w_q, by_class.w_k, by_class.w_v, by_class.w_o)
for layer, matrix in zip(layers, (W_QS, W_KS, W_VS, W_O)):
    layer.weight.data, layer.bias.data = matrix.detach().T, torch.zeros(4)
torch.testing.assert_close(
    by_class(texts, texts, texts, blocked[:, 0]), (merge(twice @ v) @ W_O, twice)
)
four, bare = torch.randn(3, 2, 4), torch.ones(2, 2).bool().triu(1)  # n = h = 2
for head, row in enumerate(bare):
    taken = [
        by_class(four, four, four, given)[1][:, head]
        for given in (bare, row.expand(1, 2, 2))
    ]
    torch.testing.assert_close(*taken)
print("✓ With the matrices made by hand, the class gives what this page has built.")

# %% [markdown]
# Give the class our matrices. What does *it* get from whole sentences, and under the causal mask?

# %% tags=["hide-input"]
whole, seen = (by_class(pair, pair, pair, mask)[0][:, it] for mask in (None, future[None]))
names = ["it, thirsty", "it, sweet", "it, causal mask"]
display.show(torch.cat([whole, seen[:1]]).detach(), names, one.FEATURES)

# %% [markdown]
# The first two rows are the bars at the top. The last is, rounded, what the button *nothing yet* shows:
# before the word that decides, 0.10 and 0.10.

# %% [markdown]
# ## The red pencil
#
# `nn.MultiheadAttention` is the judge: the same parameters, both masks at once, and the outputs, the
# weights and the gradients have to agree. Sizes and masks are new, and three rules make them sharp.
# All sizes differ, and none is 1. Query, key and value are three different tensors, or a value
# projected from the key would pass. And the second sentence has a single key: the rest is padding,
# and the next table shows why so much. PyTorch keeps its three matrices in one, below each other.

# %%
torch.manual_seed(0)
b, n, m, h, d = 2, 3, 5, 4, 6
ours = PlainAttention(h * d, h).double()
theirs = nn.MultiheadAttention(h * d, h, batch_first=True).double()
layers = (ours.w_q, ours.w_k, ours.w_v)
theirs.in_proj_weight.data = torch.cat([layer.weight for layer in layers]).detach()
theirs.in_proj_bias.data = torch.cat([layer.bias for layer in layers]).detach()
theirs.out_proj = ours.w_o

# %%
inputs = [torch.randn(b, length, h * d).double().requires_grad_() for length in (n, m, m)]
padding = torch.arange(m) >= torch.tensor([[5], [1]])  # (b, m)
future = torch.ones(n, m, dtype=torch.bool).triu(1)    # (n, m)
mine = ours(*inputs, padding[:, None, :] | future)
masks = {"key_padding_mask": padding, "attn_mask": future}
right = theirs(*inputs, **masks, average_attn_weights=False)

# %% tags=["proof"]
mixture = torch.arange(mine[0].numel()).cos().view_as(mine[0])  # each output counts
own = [[getattr(x, kind) for x in layers] for kind in ("weight", "bias")]
stacked = [theirs.in_proj_weight, theirs.in_proj_bias]
after = [ours.w_o.weight, ours.w_o.bias]
found = torch.autograd.grad((mine[0] * mixture).sum(), [*inputs, *after, *own[0], *own[1]])
slopes = [[*found[:5], torch.cat(found[5:8]), torch.cat(found[8:])]]
slopes.append(torch.autograd.grad((right[0] * mixture).sum(), [*inputs, *after, *stacked]))
torch.testing.assert_close(mine, right)
torch.testing.assert_close(slopes[0], [*slopes[1]])
print("✓ Outputs, weights, and the gradients of all inputs and parameters agree.")

# %% [markdown]
# ## Would it have noticed?
#
# A judge who has never said no proves little, so break the class. Override `merge`, then `split` as
# well, with reshapes that keep every shape. Then ignore the padding, and forget the axis of heads in the
# mask. Beside the comparison runs a test that needs no class to compare with: under a causal mask, how
# far do the earlier outputs move when the last word changes?


# %%
class WrongMerge(PlainAttention):
    def merge(self, x):
        return x.reshape(x.size(0), x.size(2), -1)  # (b, n, h * d)


class WrongSplitToo(WrongMerge):
    def split(self, x):
        return x.reshape(x.size(0), self.num_heads, x.size(1), -1)  # (b, h, ..., d)


# %% tags=["fold-input"]
class NoPadding(PlainAttention):
    def forward(self, query, key, value, blocked):
        no_padding = blocked[:1]  # the first sentence has none
        return super().forward(query, key, value, no_padding)


class NoAxis(PlainAttention):
    def forward(self, query, key, value, blocked):
        q, k, v = map(self.split, (self.w_q(query), self.w_k(key), self.w_v(value)))
        scores = q @ k.mT / math.sqrt(q.size(-1))  # (b, h, n, m)
        weights = scores.masked_fill(blocked, -math.inf).softmax(-1).masked_fill(blocked, 0)
        return self.w_o(self.merge(weights @ v)), weights  # (b, n, e), (b, h, n, m)


def differ(module, theirs, inputs, padding):
    """Say how far output and gradients are from PyTorch's."""
    future = torch.ones(inputs[0].size(1), padding.size(1), dtype=torch.bool).triu(
        1
    )  # (n, m)
    masks = {"key_padding_mask": padding, "attn_mask": future}
    found = module(*inputs, padding[:, None, :] | future)[0], theirs(*inputs, **masks)[0]
    mixture = torch.arange(found[0].numel()).cos().view_as(found[0])
    ours, right = (torch.autograd.grad((y * mixture).sum(), inputs) for y in found)
    far = [
        (a - b).abs().max().item() for a, b in zip((found[0], *ours), (found[1], *right))
    ]
    return [far[0], max(far[1:])]


def past_moves(module, b, n):
    """Say how far earlier outputs move when the last word changes."""
    width = module.w_o.out_features
    x, last = torch.randn(b, n, width).double(), torch.randn(b, 1, width).double()
    causal = torch.ones(1, n, n, dtype=torch.bool).triu(1)
    both = (x, torch.cat([x[:, :-1], last], 1))
    before, after = (module(z, z, z, causal)[0][:, :-1] for z in both)
    return (before - after).abs().max().item()


# %% tags=["fold-input"]
trials = {
    "the class": (PlainAttention, [5, 1]),
    "wrong merge": (WrongMerge, [5, 1]),
    "wrong split, too": (WrongSplitToo, [5, 1]),
    "padding ignored, 5 and 1 keys": (NoPadding, [5, 1]),
    "padding ignored, 5 and 3 keys": (NoPadding, [5, 3]),
    "no axis of heads, b = 2": (NoAxis, [5, 1]),
    "no axis of heads, b = 4": (NoAxis, [5, 1, 2, 3]),
    "no axis of heads, b = 1": (NoAxis, [1]),
}
rows = {}
for name, (kind, lengths) in trials.items():
    module = kind(h * d, h).double()
    module.load_state_dict(ours.state_dict())
    drawn = [torch.randn(len(lengths), length, h * d) for length in (n, m, m)]
    drawn = [x.double().requires_grad_() for x in drawn]
    try:
        far = differ(
            module, theirs, drawn, torch.arange(m) >= torch.tensor(lengths)[:, None]
        )
    except RuntimeError:
        far = ["error", "error"]
    rows[name] = [*far, past_moves(module, len(lengths), n)]
names = ["output", "gradient", "the past moves"]
display.show(rows, columns=names, title="At most off by")

# %% [markdown]
# The comparison sees both wrong reshapes. The other test sees only one. With the wrong merge, words
# to come leak into the past. With both reshapes together, each head gets a stretch of the text
# instead of its part of every word, and the wrong merge puts the stretches back in their places:
# nothing leaks, and almost nothing is right. So compare values wherever you can; [Testing
# attention](17_testing_attention.ipynb) is for where you cannot.
#
# Ignored padding is off by 0.48. But leave the second sentence three of its keys, and the same slip is
# off by 0.00: three queries under a causal mask never get to the fourth key, so that padding was
# hidden anyway. The last three rows are one slip, too. Two sentences make it an error. With four,
# as many as heads, nothing complains, each *head* gets the mask of one *sentence*, and only the values
# tell. With one sentence it does no harm, so no test of a single sentence can see it.
#
# ## An empty sentence
#
# Last, the fully masked row. Let the second sentence be all padding, and let the loss read the first
# one alone.

# %% tags=["fold-input"]
empty, rows = torch.tensor([[False] * 5, [True] * 5]), []
three = [layer.weight for layer in layers]
for needed in (True, False):
    output, _ = theirs(*inputs, key_padding_mask=empty, need_weights=needed)
    (gradient,) = torch.autograd.grad(output[0].sum(), theirs.in_proj_weight)
    rows.append([output[1].isnan().sum(), gradient.isnan().sum()])
mine, _ = ours(*inputs, empty[:, None, :])
gradients = torch.cat(torch.autograd.grad(mine[0].sum(), three))  # (3 * e, e)
rows.append([mine[1].isnan().sum(), gradients.isnan().sum()])
names = ["PyTorch's, with weights", "PyTorch's, need_weights=False", "the class"]
columns = ["NaN in output", "NaN in gradient"]
title = f"PyTorch {torch.__version__.split('+')[0]}"
display.show(torch.tensor(rows), names, columns, title=title, decimals=0)

# %% tags=["proof"]
wild, alone = (
    torch.randn(2, 5, h * d).double(),
    {"key_padding_mask": empty, "need_weights": False},
)
with torch.no_grad():
    quick = theirs.eval()(wild, wild, wild, **alone)[0]
theirs.train()
assert quick[1].isnan().all()
assert not theirs(wild, wild, wild, **alone)[0].isnan().any()
print(
    "✓ Self-attention in evaluation, without gradients and without weights: NaN once more."
)

# %% [markdown]
# PyTorch's class has more than one path inside. By default it returns its weights, and then one empty sentence
# gives 72 NaN in its output and spoils the gradients of $W_Q$, $W_K$ and $W_V$, all 1,728 numbers.
# With `need_weights=False` it takes another, and nothing is spoiled. (Self-attention in evaluation takes
# a third, its fast path, and there the NaN come back.) A flag that says
# what you want to *see* decides whether you can train. The class of this page returns its weights
# always, and loses no number: an empty row collects nothing, so the last layer writes its bias alone.
#
# > **Pitfall.** PyTorch's *function*, `F.scaled_dot_product_attention`, gives an empty row zeros in this
# > version. It has another trap: in its `attn_mask`, True means *may look*. In its class, and here, True
# > means *may not*. Hand it `~blocked`.

# %% tags=["proof"]
torch.testing.assert_close(mine[1], ours.w_o.bias.expand(n, -1))
q, k, v = (torch.randn(2, 4, length, 6).double() for length in (n, m, m))
hidden = padding[:, None, None] | future  # (2, 1, n, m)
weights = (q @ k.mT / math.sqrt(6)).masked_fill(hidden, -math.inf).softmax(-1)
fused = F.scaled_dot_product_attention(q, k, v, attn_mask=~hidden)  # (2, 4, n, 6)
torch.testing.assert_close(weights @ v, fused)
hidden = hidden | empty[:, None, None]  # (2, 1, n, m)
fused = F.scaled_dot_product_attention(q.requires_grad_(), k, v, attn_mask=~hidden)
(gradient,) = torch.autograd.grad(fused[0].sum(), q)
assert fused.isfinite().all()
assert gradient.isfinite().all()
print("✓ The empty sentence gets the bias; given ~blocked, PyTorch's function agrees.")

# %% [markdown]
# ## Exercises
#
# ### Write it
#
# *Medium, 4 minutes.* The constructor is given. Write `split`, `merge` and `forward` without looking
# up. `blocked` is `(b, n, m)`; an axis of size 1 is stretched. If it is None, nothing is blocked, and
# a mask of False in the shape of the scores will do: `torch.zeros_like(scores).bool()`. Return the
# output and the weights of each head.


# %% tags=["exercise"]
class MyAttention(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(f"{num_heads} heads do not divide {embed_dim}")
        self.num_heads = num_heads
        layers = (nn.Linear(embed_dim, embed_dim) for _ in range(4))
        self.w_q, self.w_k, self.w_v, self.w_o = layers

    def split(self, x): ...  # (b, n, e) -> (b, h, n, d)

    def merge(self, x): ...  # (b, h, n, d) -> (b, n, e)

    def forward(self, query, key, value, blocked=None): ...  # (b, n, e), (b, h, n, m)


# %%
exercises.short_path.check_attention(MyAttention)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Project, split, score, scale, fill, softmax, fill, mix, merge, project.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# `split` is `unflatten(-1, (self.num_heads, -1))`, then `transpose(1, 2)`. `merge` undoes it:
# `transpose(1, 2)`, then `flatten(2)`.
#
# </details>

# %% tags=["solution"]
MyAttention = PlainAttention

exercises.short_path.check_attention.folded(MyAttention)

# %% [markdown]
# ## What you have now
#
# You began with a pencil, and you have a class that you could write again and know to be right. From
# here, three ways lead on: the book takes each of these steps slowly, beginning with [One
# head](01_one_head.ipynb); [From memory](19_from_memory.ipynb) lets you write the class against the
# clock; and the [package](../docs/package/index.md) has one that takes the place of PyTorch's.
#
# > **In short.** For every head, $\mathrm{softmax}(Q K^\top / \sqrt d)\, V$, with $-\infty$ where a key is
# > blocked; the heads side by side, times $W_O$.
# >
# > ```python
# > q, k, v = split(x @ w_q), split(x @ w_k), split(x @ w_v)         # (b, h, n, d)
# > scores = (q @ k.mT / d**0.5).masked_fill(blocked, -math.inf)     # (b, h, n, m)
# > weights = scores.softmax(-1).masked_fill(blocked, 0)             # (b, h, n, m)
# > output = merge(weights @ v) @ w_o                                # (b, n, e)
# > ```
# >
# > Split by cutting the last axis, merge by transposing first. Fill twice. Compare with PyTorch: all sizes
# > different and none 1, padding that the causal mask does not hide, and an empty row as well.
