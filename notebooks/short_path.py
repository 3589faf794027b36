# %% [markdown]
# # The short path
#
# *How do you get from a pencil to a class that you can trust, in 35 minutes?*
#
# *25 minutes and 8 of exercises. Afterwards you can write multi-head attention with masks, and
# show that it is right.*
#
# > the cat drank milk because **it** was thirsty
# >
# > the cat drank milk because **it** was sweet
#
# Who was thirsty, and what was sweet? You know at once, although only the last word differs. A model
# starts with the same numbers for *it* in both sentences. To tell the two apart, *it* has to collect
# something from the other words. **Attention** is the step in which it does. Exchange the last word, and
# watch what *it* collects.

# %% tags=["hide-input"]
from annotated_book import display

display.first_look(name="short-path-it")

# %% [markdown]
# On this page you compute attention with a pencil and build it up to multi-head attention with masks.
# You write it as a class of 18 lines, and at the end you test that the class computes what PyTorch's
# does. Every step is asserted equal to the one before. The links lead to the chapters that take
# their time.
#
# ## One head with a pencil
#
# To a model, a word is a row of numbers. Ours are made by hand: how much of an animal, a food, an
# action or a quality the word is. *Thirsty* is a quality that animals have. A comment such as `(n, e)`
# gives a shape, and is checked when the page is built: n words that ask, with e numbers each. The words
# that are asked are counted by m; here they are the same eight.

# %%
import math

import torch
import torch.nn.functional as F
from torch import nn

from annotated_book import chapters, display, exercises

one = chapters.load("01_one_head")  # the numbers of the words, and `show`
words = one.WORDS  # the first sentence
thirsty = one.embed(words)  # (n, e)
one.show(words, one.FEATURES, thirsty, digits=0)

# %% [markdown]
# Let *it* look around, in four steps.
#
# 1. **Score.** Compare the row of *it* with the row of each word: multiply them number by number and
#    add up. With *thirsty* that makes $1 \cdot 2 + 1 \cdot 0 + 0 \cdot 0 + 1 \cdot 2 = 4$.
# 2. **Exponential.** Divide the score by 2, the root of the row's width of 4 (the next section says
#    why), and take the exponential. The results are positive, and each step of one in the divided score
#    becomes a factor of about 2.7<!-- quoted -->.
# 3. **Share.** Divide by the sum of all eight. The shares, called **attention weights**, make one
#    whole. Exponential and division together are the **softmax**.
# 4. **Collect.** Multiply each word's row by its share, and add up the rows.

# %%
it = words.index("it")
scores = thirsty @ thirsty[it]  # (m,)
powers = (scores / 2).exp()     # (m,)
shares = powers / powers.sum()  # (m,)
collected = shares @ thirsty    # (e,)
one.show(words, ["score", "exp(s/2)", "share"], torch.stack([scores, powers, shares], 1))
one.show(["it collects"], one.FEATURES, collected[None])

# %% [markdown]
# *Thirsty* gets the largest share, 0.30, and brings its animal along. So *it*, as much animal as
# food before, collects 1.32 of animal and 0.72 of food. [One head](01_one_head.ipynb) goes through
# these steps slowly.
#
# ### The other sentence
#
# *Easy, 2 minutes.* Now the last word is *sweet*, with the numbers 0, 2, 0, 2. What is its score with
# *it*, what is its share, and how much animal and food does *it* collect? The table above holds every
# exponential that you need. Two decimals are enough.

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
# ## Three lines of PyTorch
#
# Every word looks around like this, and matrix products let all of them do it at once. Three roles get
# names: the word that asks brings a **query**, it is compared with the **keys**, and what is
# collected are the **values**. So far, all three are the same rows, d wide. In the code, `mT` swaps the
# last two axes, and `softmax(-1)` makes shares along the last one, the keys; `...` stands for axes in
# front, of which there are none yet.


# %%
def attend(q, k, v):
    """Let each query collect values, in proportion to how well its keys fit."""
    scores = q @ k.mT / math.sqrt(q.size(-1))  # (..., n, d) x (..., d, m) -> (..., n, m)
    weights = scores.softmax(-1)               # (..., n, m)
    return weights @ v                         # (..., n, m) x (..., m, d) -> (..., n, d)


sweet = one.embed([*words[:-1], "sweet"])  # (n, e)
for x in (thirsty, sweet):
    torch.testing.assert_close(attend(x, x, x), F.scaled_dot_product_attention(x, x, x))
torch.testing.assert_close(attend(thirsty, thirsty, thirsty)[it], collected)
both = torch.stack([collected, attend(sweet, sweet, sweet)[it]])
one.show(["it, thirsty", "it, sweet"], one.FEATURES, both)

# %% [markdown]
# The assertions hold: the three lines give what the pencil gave, and what PyTorch's own function
# gives. The last word decides. (That thirst goes with animals is written into our numbers; a trained
# model has to find such things by itself.)
#
# Why divide the scores by $\sqrt d$, the root of the width? A score adds up d products. In random
# rows some are positive and some negative, so that they cancel in part, and the sum grows with $\sqrt d$
# only. Try it: random queries, eight keys each. How large is the largest share?

# %%
torch.manual_seed(0)
print("divided by  nothing    √d     d")
for width in (4, 64, 1024):
    queries, keys = torch.randn(2000, 1, width), torch.randn(2000, 8, width)
    scores = queries @ keys.mT  # (2000, 1, 8)
    by = [(scores / c).softmax(-1).amax(-1).median() for c in (1, math.sqrt(width), width)]
    print(f"d = {width:4} {by[0]:10.2f} {by[1]:5.2f} {by[2]:5.2f}")

# %% [markdown]
# Undivided, one key takes everything as d grows. A share so close to 1 hardly moves when the scores
# do, so hardly any gradient comes back. Divided by d, the shares come close to one eighth each, and the
# head hardly tells keys apart. With $\sqrt d$ the shares keep their size, [whatever the
# width](01_one_head.ipynb#cell-id=why-divide-by-the-root).
#
# ## Four matrices
#
# With the same numbers in all three roles, a word can only find words like itself. So a head has a
# [matrix for each role](01_one_head.ipynb#cell-id=four-learned-matrices), and training sets it: $W_Q$ turns a word into what it asks for, $W_K$ into what
# it is found by, and $W_V$ into what it hands over. Here the head is two numbers wide and set by hand.
# It asks: *is something said about an animal?*

# %%
W_Q = torch.tensor([[0.0, 0], [0, 0], [0, 0], [2, 1]])  # (e, d), quality asks with 2 and 1
W_K = torch.tensor([[1.0, 0], [0, 0], [0, 0], [0, 1]])  # (e, d), found by animal, quality
W_V = torch.tensor([[0.0, 1], [0, 0], [0, 0], [1, 0]])  # (e, d), gives quality, animal
q, k = thirsty @ W_Q, thirsty @ W_K                     # (n, d)
scores = k @ q[it]                                      # (m,)
weights = (scores / math.sqrt(2)).softmax(-1)           # (m,)
table = torch.cat([k, scores[:, None], weights[:, None]], 1)
one.show(words, ["animal", "qual.", "score", "share"], table)

# %% [markdown]
# The first two columns are the keys. The query of *it* is (2, 1): an animal counts twice as much as a
# quality. *Cat* has the key (3, 0), and *thirsty* has (2, 2); both score 6 and get 0.46. Now the head runs on both sentences. Its first
# number is the quality that it collects.

# %%
for x in (thirsty, sweet):
    q, k, v = x @ W_Q, x @ W_K, x @ W_V  # (n, d)
    torch.testing.assert_close(attend(q, k, v), F.scaled_dot_product_attention(q, k, v))
    quality, animal = attend(q, k, v)[it].tolist()
    print(f"the animal head collects {quality:.2f} of quality, {animal:.2f} of animal")

# %% [markdown]
# After *thirsty*, *it* collects 0.97 of quality. After *sweet* it collects only 0.19, since most of the
# attention goes to *cat*, which has no quality. *Sweet* says something, too, but not about an animal.

# %% [markdown] name="two-heads-in-a-loop"
# ## Two heads, in a loop
#
# A second head asks the same about food: its $W_K$ and $W_V$ pick food where those of the first pick
# animal. Each head gives two numbers for every word. Put side by side, they make four, and the fourth
# matrix, $W_O$, says where in the word each of them is written. Ours writes the first head's quality
# under *animal*, the second head's under *food*, and nothing else.

# %%
SWAP = [1, 0, 2, 3]  # animal and food change places
HEADS = [(W_Q, W_K, W_V), (W_Q, W_K[SWAP], W_V[SWAP])]
W_O = torch.tensor([[1.0, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]])  # (h * d, e)


def two_heads(x):
    """Run one head after the other, and put what they collect side by side."""
    collected = [attend(x @ w_q, x @ w_k, x @ w_v) for w_q, w_k, w_v in HEADS]
    return torch.cat(collected, -1) @ W_O  # (n, h * d) x (h * d, e) -> (n, e)


both = torch.stack([two_heads(thirsty)[it], two_heads(sweet)[it]])
one.show(["it, thirsty", "it, sweet"], one.FEATURES, both)

# %% [markdown]
# Read it as two answers: in the first sentence a quality is said of an animal, in the second of a food.
#
# Each head answers one question: it has one set of shares, so for each feature it collects one sum. See
# what becomes of the two answers in a single head, whose keys count animal and food alike and which hands
# over all three features. How will the *quality* that it collects differ between the sentences?
#
# <details><summary>What do you expect?</summary>
#
# Not at all. *Cat*, *milk* and the last word get the same shares in both sentences, and the last word
# brings 2 of quality either way. Animal and food change places; quality does not move.
#
# </details>

# %%
alike = torch.tensor([[1.0, 0], [1, 0], [0, 0], [0, 1]])  # (e, d)
hands_over = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1]])
rows = [attend(x @ W_Q, x @ alike, x @ hands_over)[it] for x in (thirsty, sweet)]
one.show(["it, thirsty", "it, sweet"], ["animal", "food", "quality"], torch.stack(rows))

# %% [markdown]
# It is 0.70 both times: what is said about animals and what is said about foods has gone into one sum.
# (Animal and food do change places, as they did with the pencil, because *thirsty* and *sweet* have some
# of it themselves. They tell which words are there, and not what is said of what.) Two heads have two
# sets of shares, and keep two sums apart. [Two heads](02_two_heads.ipynb) tells what they cost.
#
# ## One matrix for all heads
#
# With h heads the loop makes 3h products. Three are enough: put the heads' matrices side by side,
# multiply once, and cut the result into h pieces. A stack of heads then goes through the same `attend`,
# since PyTorch's products run over any axes in front.

# %%
W_QS, W_KS, W_VS = (torch.cat(matrices, 1) for matrices in zip(*HEADS))  # (e, h * d)
cut = [(thirsty @ w).chunk(len(HEADS), -1) for w in (W_QS, W_KS, W_VS)]
q, k, v = (torch.stack(parts) for parts in cut)  # (h, n, d)
mixed = attend(q, k, v)                          # (h, n, d)
output = torch.cat(list(mixed), -1) @ W_O        # (n, e)
torch.testing.assert_close(output, two_heads(thirsty))
print(tuple((thirsty @ W_QS).shape), "->", tuple(q.shape), "->", tuple(output.shape))

# %% [markdown]
# The number of heads is no longer visible in the matrices. It has become a setting that says where to
# cut; [Split and stack](03_split_and_stack.ipynb) shows what follows from that.
#
# ## The reshape trick
#
# Nobody cuts and stacks. Cutting the last axis into (h, d) and moving h to the front does the same,
# and copies nothing. Take three words of six numbers, two heads of three; the first digit says which
# word a number belongs to. The last column shows the shortcut that many have tried: reshape straight
# to the shape you want.

# %%
tokens = torch.arange(10, 40, 10)[:, None] + torch.arange(1, 7)  # (3, 6)
right = tokens.unflatten(-1, (2, 3)).transpose(0, 1)             # (2, 3, 3)
wrong = tokens.reshape(2, 3, 3)                                  # (2, 3, 3)
assert right.equal(torch.stack(tokens.split(3, -1)))
print("same memory:", right.data_ptr() == tokens.data_ptr())
print("head 1      cut and moved     reshaped")
for i in range(3):
    print(f"of word {i + 1}   {right[0, i].tolist()}      {wrong[0, i].tolist()}")

# %% [markdown]
# After the reshape, head 1 of word 2 holds the second half of word 1. No shape complains, and
# a model with this mistake even seems to learn, as you see in [Training](10_training.ipynb). The way back
# has the same trap: transpose first, then flatten. [The reshape trick](04_reshape_trick.ipynb) draws it.
#
# ## A batch, and two masks
#
# Sentences come in [batches](05_batches.ipynb) of b. A shorter one is filled up with **padding**, here with rows of zeros.
# They stand in front, as they do where a model is to continue each text.

# %%
short = one.embed(["the", "milk", "was", "sweet"])  # (4, e)
texts = [thirsty, short]
x = nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_side="left")
in_front = torch.tensor([[0], [4]])                  # (b, 1), words of padding
padding = torch.arange(8) < in_front                 # (b, m)
future = torch.ones(8, 8, dtype=torch.bool).triu(1)  # (n, m)
blocked = padding[:, None, :] | future               # (b, 1, m) | (n, m) -> (b, n, m)
print(blocked[1].int())

# %% [markdown]
# Nobody may look at padding, and a model that learns to write must not look at words to come. Where
# `blocked` is True, the query may not see the key. The **padding mask** says so for the keys of each
# sentence, the **causal mask** for all pairs in which the key comes later, and `|` merges them: the
# padding mask's axis of size 1 is stretched over all queries. Printed is the mask of the second sentence, a row per query.
#
# What shall happen to a blocked key? First idea: set its weight to 0 after the softmax. The idea that
# works: set its *score* to $-\infty$ before, since $e^{-\infty} = 0$.


# %%
def multi_head(x, blocked, fill_again=False):
    """Attend with both heads, from each word to those that are not blocked."""
    blocked = blocked[:, None]  # (b, 1, n, m), for all heads
    cut = (len(HEADS), -1)
    q, k, v = ((x @ w).unflatten(-1, cut).transpose(1, 2) for w in (W_QS, W_KS, W_VS))
    scores = q @ k.mT / math.sqrt(q.size(-1))                     # (b, h, n, m)
    weights = scores.masked_fill(blocked, -math.inf).softmax(-1)  # (b, h, n, m)
    if fill_again:
        weights = weights.masked_fill(blocked, 0)           # (b, h, n, m)
    mixed = weights @ v                                     # (b, h, n, d)
    return mixed.transpose(1, 2).flatten(2) @ W_O, weights  # (b, n, e), (b, h, n, m)


output, weights = multi_head(x, blocked)
all_seen, unmasked = multi_head(x, torch.zeros_like(blocked))
torch.testing.assert_close(all_seen[0], two_heads(thirsty))
zeroed = unmasked.masked_fill(blocked[:, None], 0)  # (b, h, n, m)
print(
    "sum of the shares of “it”: zeroed",
    f"{zeroed[0, 0, it].sum():.2f},",
    f"−∞ {weights[0, 0, it].sum():.2f}",
)

# %% [markdown]
# If you zero afterwards, the share of the blocked words is lost. With $-\infty$ the visible words share
# the whole. Three properties say that the masks work. Each sentence gets what it would get alone;
# whatever stands in the padding has no influence; and without its last word, a text keeps what came
# before.

# %%
alone, _ = multi_head(short[None], future[None, :4, :4])
torch.testing.assert_close(output[1, 4:], alone[0])
changed = x.masked_fill(padding[..., None], 100)
torch.testing.assert_close(multi_head(changed, blocked)[0][1, 4:], output[1, 4:])
cut_off, _ = multi_head(thirsty[None, :-1], future[None, :-1, :-1])
torch.testing.assert_close(cut_off[0], output[0, :-1])
print("as alone, no influence of padding, the past unchanged")
print("the first row of padding:", output[1, 0].tolist())

# %% [markdown]
# One thing is left. The rows of padding ask, too, and see nothing: before them there is only padding.
# Such a row is **fully masked**. Its softmax divides 0 by 0. Nobody reads these rows, so are they
# harmless? Let a loss read only the *first* sentence, which has no padding, and ask for the gradient
# of $W_V$.
#
# <details><summary>What do you expect?</summary>
#
# NaN everywhere. The loss sends a gradient of 0 into those rows, but on its way back it is multiplied
# by their weights, and $0 \cdot \mathrm{NaN}$ is NaN. $W_V$ is shared by all sentences, so one empty
# row spoils it for all.
#
# </details>

# %%
W_VS.requires_grad_()
for fill_again in (False, True):
    output, _ = multi_head(x, blocked, fill_again)
    (gradient,) = torch.autograd.grad(output[0].sum(), W_VS)
    print(
        "filled again:",
        fill_again,
        "· NaN in the output:",
        output.isnan().any().item(),
        "· NaN in the gradient:",
        gradient.isnan().sum().item(),
        "of",
        gradient.numel(),
    )

# %% [markdown]
# A second fill, of the weights with 0, cures both. An empty row now collects nothing. On the way back,
# the softmax of an empty row still turns a gradient of 0 into NaN, but the first fill stops it there: no
# gradient passes through a filled score. So the mask is used twice, before the softmax and after.
# [Masks](06_masks.ipynb) shows which other cures fail.

# %% tags=["fold-input"]
_, weights = multi_head(x, blocked, fill_again=True)  # (b, n, e), (b, h, n, m)
padded = ["·"] * 4 + ["the", "milk", "was", "sweet"]
display.attention_map(
    weights[1, 1],
    padded,
    padded,
    name="short-path-masks",
    caption="The food head on the second sentence. Padding (·) sees nothing.",
)

# %% [markdown]
# ### One mask by hand
#
# *Easy, 2 minutes.* Three words, of which the first is padding, in a model that writes. Write down the
# merged mask, a row for each query: 1 where it may not see the key, and 0 where it may.

# %% tags=["exercise"]
my_mask = [
    [None, None, None],  # the padding asks
    [None, None, None],  # the first word asks
    [None, None, None],  # the second word asks
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
# Everything is there; put it into a class. ([Multi-head attention](07_multihead_attention.ipynb) makes one
# that takes the place of PyTorch's.) In training the four matrices are learned, so each becomes an
# `nn.Linear`, which also adds a bias. A head is e / h wide, so that h of them side by side are e wide
# again. Queries may come from another text than keys and values, so `forward` takes three inputs.


# %% tags=["hide-input"]
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


# %% [markdown]
# ### Write it
#
# *Medium, 4 minutes.* The constructor is given. Write `split`, `merge` and `forward`, from the lines of
# `multi_head` above. `blocked` is `(b, n, m)`; an axis of 1 holds for all. Where it is None, nothing is
# blocked: `torch.zeros_like(scores).bool()` says so, without a new axis. Return the output and
# the weights of each head.


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
display.source(PlainAttention)

# %% [markdown]
# The solution calls its class `PlainAttention`, and so do the tests from here on; it stands in full in the
# box at the end. In the notebook, put your own in its place. First: does the class compute what the page
# has built? Its layers get the hand-made matrices, transposed, as `nn.Linear` keeps them, and no bias.

# %%
by_class = PlainAttention(4, 2)
for layer, matrix in zip(
    (by_class.w_q, by_class.w_k, by_class.w_v, by_class.w_o), (W_QS, W_KS, W_VS, W_O)
):
    layer.weight.data, layer.bias.data = matrix.detach().T, torch.zeros(4)
by_hand = multi_head(x, blocked, fill_again=True)
torch.testing.assert_close(by_class(x, x, x, blocked), by_hand)
print("equal to what was built by hand")

# %% [markdown]
# ## Is it right?
#
# Compare it with `nn.MultiheadAttention`: the same parameters, both masks at once; outputs, attention
# weights and gradients of the inputs have to agree. Two rules make such a test sharp. All sizes differ,
# so that no two can be exchanged. And query, key and value are three different tensors, or a value
# projected from the key would pass. The queries are the last three of five words, so the causal mask starts
# m − n = 2 columns further right. Every row sees something; the empty row comes at the end.

# %%
torch.manual_seed(0)
b, n, m, h, d = 2, 3, 5, 4, 6
e = h * d
ours = PlainAttention(e, h).double()
theirs = nn.MultiheadAttention(e, h, batch_first=True).double()
layers = (ours.w_q, ours.w_k, ours.w_v)
theirs.load_state_dict(
    {
        "in_proj_weight": torch.cat([layer.weight for layer in layers]),  # three in one
        "in_proj_bias": torch.cat([layer.bias for layer in layers]),
        "out_proj.weight": ours.w_o.weight,
        "out_proj.bias": ours.w_o.bias,
    }
)
inputs = [torch.randn(b, length, e).double().requires_grad_() for length in (n, m, m)]
padding = torch.tensor([[False] * 5, [True] * 2 + [False] * 3])  # (b, m)
future = torch.ones(n, m, dtype=torch.bool).triu(1 + m - n)      # (n, m)


# %%
def off_by(module, theirs, inputs, padding, future):
    """Give the largest differences of outputs, weights and gradients from PyTorch's."""
    output, weights = module(*inputs, padding[:, None, :] | future)
    expected, expected_weights = theirs(
        *inputs, key_padding_mask=padding, attn_mask=future, average_attn_weights=False
    )
    # of the same random mixture of all outputs, so that each of them counts
    gradients = zip(one.gradients(output, inputs), one.gradients(expected, inputs))
    pairs = [(output, expected), (weights, expected_weights), *gradients]
    outputs, weights, *gradients = [(a - b).abs().max().item() for a, b in pairs]
    return outputs, weights, max(gradients)


test = (theirs, inputs, padding, future)
assert max(off_by(ours, *test)) < 1e-12
print("outputs, weights and gradients agree, up to rounding")

# %% [markdown]
# Only rounding is left. Would the test have seen a mistake? Override `merge`, then `split` as well, with
# the reshapes that keep every shape. Beside it runs the other test, the past unchanged: how far do
# earlier outputs move when the last word changes?


# %%
class WrongMerge(PlainAttention):
    def merge(self, x):
        return x.reshape(x.size(0), x.size(2), -1)  # (b, n, h * d)


class WrongSplitToo(WrongMerge):
    def split(self, x):
        return x.reshape(x.size(0), self.num_heads, x.size(1), -1)  # (b, h, ..., d)


# %%
x = torch.randn(b, n, e, dtype=torch.float64)                                 # (b, n, e)
other = torch.cat([x[:, :-1], torch.randn(b, 1, e, dtype=torch.float64)], 1)  # (b, n, e)
causal = torch.ones(n, n, dtype=torch.bool).triu(1)                           # (n, n)
print(f"{'off by':14}   out  shares  grad  past")
for kind in (PlainAttention, WrongMerge, WrongSplitToo):
    module = kind(e, h).double()
    module.load_state_dict(ours.state_dict())
    before, after = (module(z, z, z, causal[None])[0][:, :-1] for z in (x, other))
    numbers = (*off_by(module, *test), (before - after).abs().max())
    print(f"{kind.__name__:14}" + "".join(f"{number:6.2f}" for number in numbers))

# %% [markdown]
# The comparison sees both mistakes. The past-unchanged test, which needs no class to compare with, sees
# the wrong merge: words to come leak into the past. It misses the two reshapes together: each head gets
# a stretch of the text, in order, instead of its part of every word, and the wrong merge puts the stretches
# back in their places. Nothing leaks, and almost nothing is right. So compare values wherever you can;
# [Testing attention](15_testing_attention.ipynb) is for where you cannot.
#
# And must all sizes differ? This split exchanges the number of heads and their width.


# %%
class WrongCut(PlainAttention):
    def split(self, x):
        return x.unflatten(-1, (-1, self.num_heads)).transpose(1, 2)  # (b, d, ..., h)


for heads, width in ((4, 6), (5, 5)):
    right, wrong = PlainAttention(heads * width, heads), WrongCut(heads * width, heads)
    wrong.load_state_dict(right.state_dict())
    x = torch.randn(b, n, heads * width)
    apart = (right(x, x, x)[0] - wrong(x, x, x)[0]).abs().max()
    print(f"{heads} heads, {width} wide: off by {apart:.2f}")

# %% [markdown]
# With five heads of width five the mistake cannot be seen.
#
# Last, the fully masked row. Let the second sentence be empty, all padding, and let the loss read the
# first sentence alone.

# %%
empty = torch.tensor([[False] * 5, [True] * 5])       # (b, m)
mine, _ = ours(*inputs, empty[:, None, :])            # (b, n, e), (b, h, n, m)
pytorch, _ = theirs(*inputs, key_padding_mask=empty)  # (b, n, e), (b, n, m)
packed, three = [theirs.in_proj_weight], [layer.weight for layer in layers]
for name, output, matrices in (("PyTorch", pytorch, packed), ("ours", mine, three)):
    gradients = torch.cat(torch.autograd.grad(output[0].sum(), matrices))  # (3 * e, e)
    print(
        f"{name:7} the empty sentence is NaN: {output[1].isnan().all().item()};",
        f"NaN in the gradients: {gradients.isnan().sum()} of {gradients.numel()}",
    )
torch.testing.assert_close(mine[1], ours.w_o.bias.expand(n, -1))

# %% [markdown]
# PyTorch's class spoils the gradients of $W_Q$, $W_K$ and $W_V$, 1,728 of 1,728 numbers. Ours spoils
# none. An empty row collects nothing, so the last layer writes its bias alone.
#
# ## What you have now
#
# You have computed attention by hand, and you have a class that you could write again and know to be
# right. From here, three ways lead on: the book takes each of these steps slowly, beginning with [One
# head](01_one_head.ipynb); [From memory](17_from_memory.ipynb) lets you write the class against the
# clock; and the [package](../docs/package/index.md) has one that takes the place of PyTorch's.
#
# > **In short.** For every head, $\mathrm{softmax}(Q K^\top / \sqrt d)\, V$, with $-\infty$ where a key is
# > blocked; the heads side by side, times $W_O$.
# >
# > ```python
# > class PlainAttention(nn.Module):
# >     """Multi-head attention; where `blocked` is True, a query does not see a key."""
# >
# >     def __init__(self, embed_dim, num_heads):
# >         super().__init__()
# >         if embed_dim % num_heads:
# >             raise ValueError(f"{num_heads} heads do not divide {embed_dim}")
# >         self.num_heads = num_heads
# >         layers = (nn.Linear(embed_dim, embed_dim) for _ in range(4))
# >         self.w_q, self.w_k, self.w_v, self.w_o = layers
# >
# >     def split(self, x):
# >         return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (b, h, ..., d)
# >
# >     def merge(self, x):
# >         return x.transpose(1, 2).flatten(2)  # (b, h, n, d) -> (b, n, h * d)
# >
# >     def forward(self, query, key, value, blocked=None):
# >         q, k, v = map(self.split, (self.w_q(query), self.w_k(key), self.w_v(value)))
# >         scores = q @ k.mT / math.sqrt(q.size(-1))  # (b, h, n, m)
# >         blocked = torch.zeros_like(scores).bool() if blocked is None else blocked[:, None]
# >         weights = scores.masked_fill(blocked, -math.inf).softmax(-1).masked_fill(blocked, 0)
# >         return self.w_o(self.merge(weights @ v)), weights  # (b, n, e), (b, h, n, m)
# > ```
# >
# > Split by cutting the last axis, merge by transposing first. Fill twice. Compare with PyTorch, all sizes
# > different, and test an empty row as well.
