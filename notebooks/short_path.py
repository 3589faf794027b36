# %% [markdown]
# # The short path
#
# *How far is it from a pencil to a model that speaks?*
#
# *23 minutes and 14 of exercises. Afterwards you can write multi-head attention with masks, and
# show that it is right.*
#
# *The cat drank milk because it was thirsty. So the …* Two small [models that tell stories](10_a_little_world.ipynb) go on.
# They have the same trained numbers, but in one of them a line of the attention was exchanged: no error, and every shape
# is what it was. Both say *cat*, and then you hear which one is broken. Let the last word be *sweet*: what will the
# broken one say first?
#
# <details name="broken"><summary><i>Milk</i>. It goes wrong only later.</summary>
#
# Press *sweet*. Model B says *cat ran fox because it was gone*, and never *milk*.
#
# </details>
# <details name="broken"><summary><i>Cat</i>, as before.</summary>
#
# Right. Press *sweet* for the rest of what it says.
#
# </details>

# %% tags=["hide-input"]
from annotated_book import chapters
from annotated_book.display import aloud
from attention_doctor.mistakes.reshapes import MergeWithoutTranspose

GO_ON = "the cat drank milk because it was {} . so the"


def two_models():
    """Load the model that tells stories twice; the second merges by a reshape alone."""
    world = chapters.load("10_a_little_world")
    right, wrong = world.shipped(), world.Storyteller(MergeWithoutTranspose)
    wrong.load_state_dict(right.state_dict())
    return {"model A": right, "model B": wrong}


def speak():
    """Let both go on with the sentences."""
    world, models = chapters.load("10_a_little_world"), two_models()
    return aloud(
        models,
        world.WORDS,
        GO_ON,
        ["thirsty", "sweet", "tired", "fresh"],
        shapes={name: x.shape for name, x in models["model A"].state_dict().items()},
        layers=2,
        heads=[2, 2],
        reshaped=1,
        longest=world.LONGEST,
        edge=world.EDGE,
        name="two-speak",
    )


speak()

# %% [markdown]
# A says *milk was gone*, and has never read of a cat that drinks milk. On this page you build A's attention, from
# a pencil. In step 7 you make B's mistake, and at the end, in a notebook, A speaks with the class that you have written.
# Set aside some minutes: reading and exercises, the first with a pencil, take 37.
#
# How does A know? Only the last word differs, and *it* is the same word with the same numbers in both sentences. To tell
# them apart, *it* has to collect something from the other words. **Attention** is the step in which this happens, and
# one copy of it is a **head**. Here are two, made by hand. Exchange the last word, and watch the bars; press another
# word to let it ask.

# %% tags=["hide-input"]
from annotated_book.display import first_look

first_look(name="short-path-it", merge=False)

# %% [markdown]
# The number says how much of its look a head spends on a word. The curve is as wide as what the word gives back. Head 1
# looks at the cat as much as at *thirsty*, and gets nothing from the cat. So no head finds the cat: head 1 finds that
# something is said of an animal, and that this is the cat is our conclusion, since no other animal is there.
#
# ## 1. One head with a pencil
#
# To a model, a word is a row of numbers. Ours are made by hand: how much of an animal, a food, an
# action or a quality the word is. *Thirsty* is a quality that animals have.

# %% tags=["fold-input"]
import math

import torch
import torch.nn.functional as F
from torch import nn

from annotated_book import display, exercises

words, it = ["the", "cat", "drank", "milk", "because", "it", "was", "thirsty"], 5
features = ["animal", "food", "action", "quality"]
rows = ["0000", "3000", "0020", "0300", "0000", "1101", "0010", "2002"]
first = torch.tensor([[float(digit) for digit in row] for row in rows])  # (m, e)
second = first.clone()
second[-1] = torch.tensor([0.0, 2, 0, 2])  # sweet in place of thirsty
display.show(first, words, features, decimals=0)

# %% [markdown]
# Now let *it* look around, in four moves. Guess before you do the sums: at which will *it* look more, at the
# cat or at the milk?
#
# 1. **Score.** Compare the row of *it* with the row of each word: multiply them number by number and
#    add up. With *thirsty* that makes $1 \cdot 2 + 1 \cdot 0 + 0 \cdot 0 + 1 \cdot 2 = 4$.
# 2. **Exponential.** Divide the score by 2, the root of the row's width of 4 (section 4 says why), and
#    take the exponential. All results are positive, and one more in the divided score makes the result
#    about 2.7<!-- quoted --> times as large.
# 3. **Share.** Divide by the sum of all eight. The shares, called **attention weights**, make one
#    whole. Exponential and division together are the **softmax**.
# 4. **Collect.** Multiply each word's row by its share, and add up the rows.
#
# In the code, `first` and `second` are the two sentences, and `it` is 5, the place of the word. A comment such as
# `(m, e)` is a shape, checked when the page is built: m words that are asked, with e numbers each.

# %%
scores = first @ first[it]      # (m, e) x (e,) -> (m,)
powers = (scores / 2).exp()     # (m,)
shares = powers / powers.sum()  # (m,)
collected = shares @ first      # (m,) x (m, e) -> (e,)
display.show(torch.stack([scores, powers, shares]), ["score", "exp(s/2)", "share"], words)

# %% tags=["hide-input"]
display.show(collected[None], ["it collects"], features)

# %% [markdown]
# At neither: *cat* and *milk* get 0.18 each. What decides is a word that never names the cat. *Thirsty* gets
# 0.30, and brings the animal of its own row along. So *it*, which began with as much animal as food,
# collects 1.32 of animal and 0.72 of food.
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
# ## 2. All words at once
#
# Three roles get names: the word that asks brings a **query**, it is compared with the **keys**, and what is
# collected are the **values**. So far all three are the words' own rows. We write n for the number of words that ask, and
# m for those that are asked: here the same eight. Query and key have d numbers each, so far as many as a word's row,
# which has e. In the code, `mT` swaps the last two axes,
# `softmax(-1)` makes shares along the last one, and `...` stands for axes in front, so far none.


# %%
def attend(q, k, v):
    """Let each query collect values, the more of each, the better its key fits."""
    scores = q @ k.mT / math.sqrt(q.size(-1))  # (..., n, d) x (..., d, m) -> (..., n, m)
    weights = scores.softmax(-1)               # (..., n, m)
    return weights @ v                         # (..., n, m) x (..., m, d) -> (..., n, d)


both = [attend(x, x, x)[it] for x in (first, second)]
display.show(torch.stack(both), ["it, thirsty", "it, sweet"], features)

# %% tags=["proof"]
torch.testing.assert_close(attend(first, first, first)[it], collected)
for x in (first, second):
    torch.testing.assert_close(attend(x, x, x), F.scaled_dot_product_attention(x, x, x))
tame, wild = first[[1, 2, 3]], first[[3, 2, 1]]  # cat drank milk, milk drank cat
torch.testing.assert_close(attend(tame, tame, tame)[1], attend(wild, wild, wild)[1])
print("✓ The three lines give what the pencil gave, and PyTorch's own function.")

# %% [markdown]
# The last word decides. But nothing in these lines knows that this word stands last: in *milk drank cat*, the word *drank*
# collects what it collects in *cat drank milk*. Without a mask, attention is blind to order; most models are told
# [positions](20_positions.ipynb) from outside.
#
# ## 3. Three matrices
#
# So far a word finds the words that share its features, and adds up every animal and food in sight. In a sentence with
# [two animals](01_one_head.ipynb#cell-id=ask-for-something-else) and no food, the animals win, whatever the last word says. *It*
# should ask for one thing and collect another. So
# a head has a [matrix for each role](01_one_head.ipynb#cell-id=four-learned-matrices), and training sets it: $W_Q$
# turns a word into what it asks for, $W_K$ into what it is found by, and $W_V$ into what it hands over.
#
# Our head is two numbers wide, set by hand, and asks: *is something said about an animal?* Only words
# with a quality ask; the others have the query (0, 0) and look at all words evenly. The query of *it* is (2, 1):
# an animal counts twice as much as a quality. What a word hands over is its quality, one number, so the second
# column of $W_V$ stays empty.

# %%
W_Q = torch.tensor([[0.0, 0], [0, 0], [0, 0], [2, 1]])  # (e, d), a quality asks: 2, 1
W_K = torch.tensor([[1.0, 0], [0, 0], [0, 0], [0, 1]])  # (e, d), found by animal, quality
W_V = torch.tensor([[0.0, 0], [0, 0], [0, 0], [1, 0]])  # (e, d), gives quality
q, k, v = first @ W_Q, first @ W_K, first @ W_V         # (n, d)
shares = (k @ q[it] / math.sqrt(2)).softmax(-1)         # (m,)
table = torch.column_stack([k, k @ q[it], shares, v[:, 0]])
names = ["key: animal", "key: quality", "score", "share", "gives"]
display.show(table, words, names, decimals=[0, 0, 0, 2, 0], heat=["share"])

# %% [markdown]
# *Cat* and *thirsty* both score 6 and get 0.46 each. But the cat has no quality to give: *it* collects $0.46 \cdot 2$ from *thirsty* and $0.05 \cdot 1$ from itself, 0.97 in all. That is the head's *yes*.
# With *sweet*, which scores 2, it collects 0.19: a *no*.
#
# What is the cat good for, then? Empty its row, in the sentence with *sweet*. What does the head answer?
#
# <details name="no-cat"><summary><i>No</i>, all the more: now there is no animal at all.</summary>
#
# It cannot: shares make one whole, so what the cat had goes to others. Press *gone*.
#
# </details>
# <details name="no-cat"><summary><i>Yes</i>.</summary>
#
# It does, wrongly: what the cat had goes to *it* and *sweet*, and both have a quality to give.
#
# </details>

# %% tags=["hide-input"]
from itertools import product

choices = {
    "it was": ["thirsty", "sweet"],
    "the cat is": ["there", "gone"],
    "“it” asks": ["2, 1", "2, 0", "1, 1"],
}
scenes = {}
for last, cat, asks in product(*choices.values()):
    x, seen = (first if last == "thirsty" else second).clone(), [*words[:-1], last]
    if cat == "gone":
        x[1], seen[1] = 0, "–"
    query = torch.tensor([float(number) for number in asks.split(", ")])  # (d,)
    shares = (x @ W_K @ query / math.sqrt(2)).softmax(-1)                 # (m,)
    scenes[last, cat, asks] = (seen, shares, x @ W_V[:, :1])
line = (0.5, "no", "yes")
display.collects(
    choices, scenes, ["quality"], it, line=line, asks="Of an animal?", name="no-cat"
)

# %% [markdown]
# Without the cat, *sweet* gets 0.90. **To say *no*, the head needs a word that fits and has nothing to give.** The
# last row of buttons shows why it asks with 2 and 1. With (2, 0), the cat outscores *thirsty*, and the *yes* sinks to
# 0.40. With (1, 1), the cat gets too little, and *sweet* rises to 0.57.

# %% tags=["proof"]
for x, yes in ((first, True), (second, False)):
    cats = x.clone()
    cats[3] = cats[1]  # a second cat in place of the milk
    said = attend(cats @ W_Q, cats @ W_K, cats @ W_V)[it, 0]
    assert (said > 0.5).item() is yes
    plain = attend(cats, cats, cats)[it]
    assert plain[0] > plain[1] + 0.2
print("✓ Two cats and no milk: the rows alone say animal both times, the head yes and no.")

# %% [markdown]
# ## 4. Why the root
#
# The pencil divided by 2 and this head by $\sqrt 2$, each time the root of the width. What if you do not divide? Here are random queries, each with eight random keys, none of them meant for it. A dot is the largest of
# the eight shares of a query; at ⅛ all keys would share alike, at 1 one key has it all.

# %% tags=["hide-input"]
torch.manual_seed(0)
drawing, (ax,) = display.panels(560, 300)
names, told = [], []
for divided in (False, True):
    for width in (64, 1024):
        queries, keys = torch.randn(2000, 1, width), torch.randn(2000, 8, width)
        scores = queries @ keys.mT / (math.sqrt(width) if divided else 1)  # (2000, 1, 8)
        largest = scores.softmax(-1).amax(-1).flatten()
        heights = len(names) + 0.5 * (torch.rand(24) - 0.5)
        look = {"color": display.COLOURS["d" if divided else "h"], "alpha": 0.4}
        ax.plot(largest[:24], heights, "o", markersize=4, **look)
        names.append(f"{'by √d' if divided else 'undivided'}\nd = {width:,}")
        middle = f"{largest.median():.2f}"
        ax.text(1.04, len(names) - 1, middle, va="center", fontsize=14)
        told.append(f"{names[-1]}: {middle}".replace("\n", ", "))
ax.set_yticks(range(4), names, fontsize=14)
ax.set(
    xlim=(0, 1.16),
    ylim=(3.5, -0.5),
)
ax.set_xlabel("largest of eight shares", fontsize=14)
ax.set_xticks([0, 0.125, 0.5, 1], ["0", "⅛", "0.5", "1"], fontsize=14)
alt = f"The largest of eight shares, 24 of 2,000 queries each. Medians: {'; '.join(told)}."
display.finish(
    drawing,
    name="largest-share",
    alt=alt,
    caption="24 of 2,000 queries; at the right, the median of all.",
)

# %% [markdown]
# And yet, at a width of 1,024, one key takes nearly everything from most queries. A score
# adds up d products. If the numbers of both rows are independent, with mean 0 and variance 1, so are the products. Their
# sum has variance d, and a typical score the size $\sqrt d$: the wider the head, the larger the scores. Where one key
# has it all, a small change of the query moves hardly anything, so hardly any
# [gradient](01_one_head.ipynb#cell-id=deeper-why-divide-by-the-root) comes back. Divided by the root, both widths
# behave alike.

# %% [markdown] name="two-heads-in-a-loop"
# ## 5. Two heads, in a loop
#
# The head says *no* to *sweet*. What does it say when the last word is missing, an empty row, so that nothing is said
# about anyone yet?
#
# A second head asks about a food: its $W_K$ picks food, not animal. Side by side, h heads of d numbers make h · d for every word, here four, and a fourth matrix, $W_O$, says where each is
# written. Ours writes the first head's quality in the first place, which now means *said of an animal*, and the second head's in the
# second, *said of a food*.

# %%
W_K2 = torch.tensor([[0.0, 0], [1, 0], [0, 0], [0, 1]])  # (e, d), found by food, quality
HEADS = [(W_Q, W_K, W_V), (W_Q, W_K2, W_V)]
W_O = torch.tensor([[1.0, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]])  # (h * d, e)


def two_heads(x):
    """Run one head after the other, and put what they collect side by side."""
    collected = [attend(x @ w_q, x @ w_k, x @ w_v) for w_q, w_k, w_v in HEADS]
    return torch.cat(collected, -1) @ W_O  # (n, h * d) x (h * d, e) -> (n, e)


SAID = ["said of an animal", "said of a food"]
unsaid = torch.cat([first[:-1], torch.zeros(1, 4)])  # (m, e), an empty row stands last
rows = torch.stack([two_heads(x)[it, :2] for x in (first, second, unsaid)])
display.show(rows, ["thirsty", "sweet", "nothing yet"], SAID, corner="“it” gets")

# %% [markdown]
# These are the bars at the top. Read the left column alone: 0.19 with *sweet*, 0.10 with nothing. Both are a *no*, and
# one head leaves open whether it is about a food or about nothing at all. The second head knows: 0.97 and 0.10.
#
# Why not one head that asks both questions? Let it find animals and foods alike, and hand over how much of each a word is.
# That tells our two sentences apart. Now put a dog in the place of *because*, and end with *sweet*. What does this one
# head answer?
#
# <details name="one-head"><summary>Said of a food: <i>sweet</i> brings food.</summary>
#
# It does. But cat and dog, of which nothing is said, are found as well, and bring their own animal.
#
# </details>
# <details name="one-head"><summary>Said of an animal.</summary>
#
# Right: cat and dog fit as well as *sweet*, and bring more.
#
# </details>

# %% tags=["fold-input"]
W_K_OF_BOTH = torch.tensor([[1.0, 0], [1, 0], [0, 0], [0, 1]])  # (e, d)
W_V_OF_BOTH = torch.eye(4)[:, :2]                               # (e, d), gives animal, food
x = second.clone()
x[4] = first[1]  # a dog has the cat's numbers
alone = attend(x @ W_Q, x @ W_K_OF_BOTH, x @ W_V_OF_BOTH)[it]  # (d,)
answers = torch.stack([alone, two_heads(x)[it, :2]])
display.show(answers, ["one head", "two heads"], SAID, corner="dog, sweet")

# %% [markdown]
# The animals win, 1.43 against 1.21. No other $W_V$ mends that, since **one head has one set of shares for all that it
# hands over**: with any, it is wrong about a dog and *thirsty*, a dog and *sweet*, or bread and *thirsty*.
# Two heads keep [two sums](02_two_heads.ipynb) apart: 0.11 and 0.97.

# %% tags=["proof"]
for x in (first, second):
    alone = attend(x @ W_Q, x @ W_K, x @ W_V)  # (n, d)
    torch.testing.assert_close(two_heads(x)[:, 0], alone[:, 0])
assert not two_heads(first)[:, 2:].any()


def mixtures(last, guest):
    """Give the mixtures of rows behind all that one head for both can hand over."""
    x = torch.stack([*last[:4], last[guest], *last[5:]])  # the guest in place of because
    return attend(x @ W_Q, x @ W_K_OF_BOTH, x)  # (n, e)


for last, sign in ((first, 1), (second, -1)):
    animal, food, *_ = mixtures(last, 4)[it]
    assert sign * (animal - food) > 0
# Where one grows, the other shrinks; a head that is always right needs both to grow.
one, other = (
    mixtures(first, 1) - mixtures(second, 1),
    mixtures(first, 3) - mixtures(second, 1),
)
torch.testing.assert_close(one[it], -2 * other[it])
print("✓ One head for both is wrong in one of three sentences, whatever its W_V.")

# %% [markdown]
# ## 6. One matrix for all heads
#
# With h heads the loop begins with 3h products. Three are enough: put the matrices of the heads side by side, as `W_QS`,
# `W_KS` and `W_VS`, multiply once, and cut the result into h pieces, so h must divide its width. `chunk` cuts along the last axis, and `stack` lays
# the pieces on each other, in a new axis in front. A stack of heads goes through the same `attend`, since PyTorch's
# products run over any axes in front, each head for itself.

# %%
W_QS, W_KS, W_VS = (torch.cat(parts, 1) for parts in zip(*HEADS))  # (e, h * d)
wide = [first @ w for w in (W_QS, W_KS, W_VS)]                     # (n, h * d)
q, k, v = (torch.stack(x.chunk(2, -1)) for x in wide)              # (h, n, d)
mixed = attend(q, k, v)                                            # (h, n, d)
output = torch.cat([mixed[0], mixed[1]], -1) @ W_O                 # (n, e)

# %% [markdown]
# Here is the whole way of *it*, with every number; [Split and stack](03_split_and_stack.ipynb) takes its time over the
# cut.

# %% tags=["hide-input"]
display.whole_way(name="whole-way-of-it")

# %% [markdown]
# ## 7. The reshape trick
#
# Two views cut and stack without copying a number: `unflatten` cuts the last axis into (h, d), and `transpose` moves h
# in front of the words. The way back is `transpose`, then `flatten`, which here has to copy. A batch of b sentences has
# one more axis in front: with our two sentences, b is 2.


# %%
def split(x, h=2):
    return x.unflatten(-1, (h, -1)).transpose(1, 2)  # (b, n, h * d) -> (b, h, n, d)


def merge(x):
    return x.transpose(1, 2).flatten(2)  # (b, h, n, d) -> (b, n, h * d)


pair = torch.stack([first, second])                             # (b, n, e)
mixed = attend(*(split(pair @ w) for w in (W_QS, W_KS, W_VS)))  # (b, h, n, d)
right = merge(mixed) @ W_O                                      # (b, n, e)

# %% [markdown]
# Is the second `transpose` needed? A `reshape` goes straight to the shape that is wanted. What does *it* get?

# %%
wrong = mixed.reshape(2, 8, 4)  # (b, n, h * d)
both = [output[:, it, :2] for output in (right, wrong @ W_O)]
names = ["merge, thirsty", "merge, sweet", "reshape, thirsty", "reshape, sweet"]
display.show(torch.cat(both), names, SAID)

# %% [markdown]
# No error. Same shape. Thirsty or sweet, *it* gets 0.38 and 0.38. That is $3 / 8$, the plain average, which a word
# gets that asks nothing: most bars at the top are as high. Where has the answer gone? Each
# cell bears the word for which a head found it; press a word, and follow its two cells.

# %% tags=["hide-input"]
display.wrong_merge(name="short-path-wrong-merge")

# %% [markdown]
# In memory all of head 1 lies before head 2 of the same sentence, and `reshape` counts off two cells for each row. So
# *it* got what head 2 had collected for *drank* and *milk*, which ask nothing, and its own two cells landed in the rows of
# *drank* and *was*. This is the line of model B. [The reshape trick](04_reshape_trick.ipynb) follows it, and
# [Training](12_training.ipynb) trains with it.

# %% tags=["proof"]
torch.testing.assert_close(right, torch.stack([two_heads(first), two_heads(second)]))
torch.testing.assert_close(output, right[0])
assert wrong[:, it].equal(mixed[:, 1, 2:4].flatten(1))
torch.testing.assert_close(wrong[:, it, 0], pair[..., 3].mean(-1))
for word, head in (("drank", 0), ("was", 1)):
    assert wrong[:, words.index(word), 2:].equal(mixed[:, head, it])
assert split(pair).equal(torch.stack(pair.chunk(2, -1), 1))
assert split(pair).data_ptr() == pair.data_ptr()
print("✓ The split copies no number, and the answers are those of the loop.")

# %% [markdown]
# ## Seven lines to take along
#
# That was multi-head attention. As a class, on top of `attend`, `split` and `merge`, it has seven lines. `w_qkv` holds
# the three wide matrices side by side, and the two layers add a bias each.


# %%
class SelfAttention(nn.Module):
    def __init__(self, e, h):
        super().__init__()
        self.h, self.w_qkv, self.w_o = h, nn.Linear(e, 3 * e), nn.Linear(e, e)

    def forward(self, x):
        q, k, v = (split(part, self.h) for part in self.w_qkv(x).chunk(3, -1))
        return self.w_o(merge(attend(q, k, v)))  # (b, n, e)


# %% tags=["proof"]
by_class = SelfAttention(4, 2)
wide = torch.cat([W_QS, W_KS, W_VS], 1)  # (e, 3 * h * d)
for layer, matrix in ((by_class.w_qkv, wide), (by_class.w_o, W_O)):
    layer.weight.data, layer.bias.data = matrix.T, torch.zeros(matrix.size(1))
torch.testing.assert_close(by_class(pair), right)
by_class.h = 1  # the same parameters, uncut
assert not by_class(pair).allclose(right, atol=0.1)
print("✓ With our matrices it gives the bars at the top; with another h it does not.")

# %% [markdown]
# What does a head cost? Make the class 512 numbers wide, with one head, with 8 and with 64. How many more parameters
# do 64 heads have than one?

# %% tags=["fold-input"]
counts = {}
for heads in (1, 8, 64):
    parameters = SelfAttention(512, heads).parameters()
    counts[f"h = {heads}"] = [sum(x.numel() for x in parameters)]
display.show(counts, columns=["parameters"])

# %% [markdown]
# None: 1,050,624 each time, and each of the 64 heads is 64 times as narrow. The number of
# heads is no longer visible in the matrices. It has become a setting that says where to cut.
#
# > **Take it along.** Copy `attend`, `split`, `merge` and these seven lines (with `math`, `torch` and `nn`): they
# > are multi-head self-attention without a mask. It is the first half of every [Transformer
# > layer](08_transformer_layers.ipynb): what *it* gets is added to the row of *it*. In the second half, a small network
# > works on each row alone.

# %% [markdown]
# ## Does it speak?
#
# Put the seven lines into model A: a cell of the notebook copies what training left in PyTorch's `in_proj_weight`, three
# wide matrices side by side as well, into `w_qkv`. Does A still answer?


# %% tags=["hide-input"]
class Lent(nn.Module):
    """Lets `kind` attend in a layer, with the matrices of the class that was there."""

    def __init__(self, theirs, kind):
        super().__init__()
        self.ours = ours = kind(theirs.embed_dim, theirs.num_heads)
        self.whole = hasattr(ours, "w_q")  # takes a mask, and has its matrices apart
        layers = (ours.w_q, ours.w_k, ours.w_v) if self.whole else (ours.w_qkv,)
        for name in ("weight", "bias"):
            parts = getattr(theirs, f"in_proj_{name}").data.chunk(len(layers))
            for layer, part in zip(layers, parts):
                getattr(layer, name).data = part
        ours.w_o = theirs.out_proj

    def forward(self, query, key, value, **_):
        if not self.whole:
            return self.ours(query), None
        future = torch.ones(1, query.size(1), key.size(1)).bool().triu(1)  # (1, n, m)
        return self.ours(query, key, value, future)


def storyteller(kind=None):
    """Load model A, and let `kind` attend in its layers."""
    model = chapters.load("10_a_little_world").shipped()
    for layer in model.layers.layers if kind else ():
        layer.self_attn = Lent(layer.self_attn, kind)
    return model


# %% tags=["fold-input"]
from annotated_book.display.live_figures.aloud import go_on
from annotated_book.display.tales import Told


def told(kind=None):
    """Say what A says with `kind`: after two endings, and with the luck of a draw."""
    world, model = chapters.load("10_a_little_world"), storyteller(kind)
    texts = [[world.EDGE, *GO_ON.format(last).split()] for last in ("thirsty", "sweet")]
    said = [go_on(model, x, world.WORDS, longest=world.LONGEST) for x in texts]
    facts = [" ".join(words[: words.index(".")]) for words in said]
    possible = world.possible(world.write(model, 200))
    return Told([*facts, f"{possible:.0%} of 200"], world.write(model, 1)[0][1:-1])


HEARD = ["thirsty, so the", "sweet, so the", "stories possible"]

own, seven = told(), told(SelfAttention)
tellers = {"its own attention": own, "the seven lines": seven}
display.stories(tellers, HEARD, name="seven-lines-speak")

# %% [markdown]
# It answers as before, the cat and the milk. And half of 200 stories cannot happen in its world. Both drew with the same luck, and the red words differ: the horse was hungry, *so the dog ran fast*.
#
# While A learned, no word saw what comes after it. Our seven lines hide nothing. The last word has nothing after it, but
# it reads from the words before it, and these have now looked ahead, as they never did in training. What is missing is
# a mask.
#
# ## 8. A mask goes before the softmax
#
# A model that learns to write predicts the next word, at every place of a text at once: after *the* it has to say
# *cat*, and after *the cat* it has to say *drank*. So *the* must not see *cat*, or the answer could be copied. The
# **causal mask** is True where the key comes later than the query.
#
# What is True must get no share. You can set the share to 0 after the softmax, or the *score* to $-\infty$ before, since
# $e^{-\infty} = 0$. Is there a difference? Add up the shares that *it* gives in the first sentence.

# %%
q, k, v = (split(pair @ w) for w in (W_QS, W_KS, W_VS))    # (b, h, n, d)
scores = q @ k.mT / math.sqrt(2)                           # (b, h, n, m)
future = torch.ones(8, 8, dtype=torch.bool).triu(1)        # (n, m)
late = scores.softmax(-1).masked_fill(future, 0)           # (b, h, n, m)
early = scores.masked_fill(future, -math.inf).softmax(-1)  # (b, h, n, m)
sums = torch.stack([weights[0, :, it].sum(-1) for weights in (late, early)])
display.show(sums, ["zeroed after", "−∞ before"], ["head 1", "head 2"])

# %% [markdown]
# Zeroed afterwards, head 1 has 0.54 left to give: the rest went to *was* and *thirsty*, and is lost. With $-\infty$
# the visible words share the whole. Guess before you press *thirsty* or *sweet* in the sentence itself: who can still
# tell what was meant?

# %% tags=["hide-input"]
first_look(name="short-path-causal", merge=False, causal=True)

# %% [markdown]
# *It* keeps the cat, which gives nothing, and has lost the word that brought the answer: 0.10 and 0.10, whatever comes.
# The answer has moved to the last word, which sees all the others. In a model that writes, what *it* meant is
# known only [later](06_masks.ipynb).
#
# The other mask is for a [batch](05_batches.ipynb), whose sentences differ in length. The shorter one is filled up
# with **padding**, rows of zeros, here in front, as for a model that continues the text. The **padding mask** hides
# them as keys, and `|` merges the two masks, although their shapes are (b, 1, m) and (n, m): where one has an axis of
# size 1, or none at all, its numbers are repeated. That is **broadcasting**.

# %%
short = second[[0, 3, 6, 7]]  # the milk was sweet
texts = nn.utils.rnn.pad_sequence([first, short], batch_first=True, padding_side="left")
padding = torch.arange(8) < torch.tensor([[0], [4]])  # (b, m), four places
blocked = padding[:, None, :] | future                # (b, n, m)

# %% tags=["hide-input"]
display.merged_masks(
    padding,
    future,
    name="short-path-masks",
    caption="The first sentence, and the second. Filled: True, blocked. Pale: repeated.",
)


# %% tags=["proof"]
def filled_once(x, blocked):
    q, k, v = (split(x @ w) for w in (W_QS, W_KS, W_VS))
    scores = (q @ k.mT / math.sqrt(2)).masked_fill(blocked[:, None], -math.inf)
    return merge(scores.softmax(-1) @ v) @ W_O


output = filled_once(texts, blocked)
torch.testing.assert_close(output[0], (merge(early @ v) @ W_O)[0])
torch.testing.assert_close(filled_once(short[None], future[None, :4, :4])[0], output[1, 4:])
changed = texts.masked_fill(padding[..., None], 100)
torch.testing.assert_close(filled_once(changed, blocked)[1, 4:], output[1, 4:])
for length in range(1, 9):
    nothing = torch.zeros(1, length, length).bool()
    prefix = filled_once(first[None, :length], nothing)[0, -1]
    torch.testing.assert_close(prefix, output[0, length - 1])
    torch.testing.assert_close(prefix, two_heads(first[:length])[-1])
print("✓ Sentences, and each of their beginnings, get what they would get alone.")

# %% [markdown]
# ## 9. A row that sees nothing
#
# Look at the last square: its first four rows are blocked from end to end. They are rows of padding, with only padding
# before them. In such a **fully masked row** the softmax divides 0 by 0, which gives NaN.
# Nobody reads these rows, so are they harmless? Take a loss that reads the *first* sentence alone, which has no padding,
# and ask for the gradient of `W_VS`: as it is, and with the shares of what is blocked set to 0 after the softmax, too.

# %%
hidden = blocked[:, None]                                             # (b, 1, n, m)
scores = split(texts @ W_QS) @ split(texts @ W_KS).mT / math.sqrt(2)  # (b, h, n, m)
once = scores.masked_fill(hidden, -math.inf).softmax(-1)              # (b, h, n, m)
twice, wide = once.masked_fill(hidden, 0), W_VS.clone().requires_grad_()
outputs = [merge(weights @ split(texts @ wide)) @ W_O for weights in (once, twice)]
found = [torch.autograd.grad(x[0].sum(), wide)[0] for x in outputs]
display.show([[x.isnan().sum().item() for x in found]], ["NaN of 16"], ["once", "twice"])

# %% [markdown]
# All 16 are NaN, although the loss never read those rows. A value gets its gradient from every row of the output: the
# gradient of the row, times the share that the row gave to the value. For rows of padding the first is 0 and the second
# NaN, and $0 \cdot \mathrm{NaN}$ is NaN. So the values of the second sentence get NaN. `W_VS` serves both sentences, and
# adds up what comes from each: one NaN spoils the sum.
#
# So fill twice, the scores before the softmax and the shares after. [Masks](06_masks.ipynb#cell-id=fully-masked-rows)
# follows the NaN on its way, and finds it in PyTorch's own class.

# %% tags=["proof"]
assert found[0].isnan().all()
assert found[1].isfinite().all()
three = [matrix.clone().requires_grad_() for matrix in (W_QS, W_KS, W_VS)]
q, k, v = (split(texts @ matrix) for matrix in three)
raw = (q @ k.mT / math.sqrt(2)).masked_fill(hidden, -math.inf).softmax(-1)
spoilt = torch.autograd.grad((merge(raw @ v) @ W_O)[0].sum(), three)
assert [x.isnan().sum().item() for x in spoilt] == [0, 0, 16]
print("✓ Filled twice, no NaN is left; once, W_VS has all, and W_QS and W_KS have none.")

# %% [markdown]
# ## The class
#
# With both masks the class has 18 lines. The `query` may come from another text than `key` and `value`: that is
# **cross-attention**, in which the translation asks, and the original is asked. In the margin stand the steps that made
# the lines.


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
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # (b, h, n, d)

    def merge(self, x):
        return x.transpose(1, 2).flatten(2)  # (b, h, n, d) -> (b, n, h * d)

    def forward(self, query, key, value, blocked=None):
        q, k, v = map(self.split, (self.w_q(query), self.w_k(key), self.w_v(value)))
        scores = q @ k.mT / math.sqrt(q.size(-1))  # (b, h, n, m)
        blocked = torch.zeros_like(scores).bool() if blocked is None else blocked[:, None]
        weights = scores.masked_fill(blocked, -math.inf).softmax(-1).masked_fill(blocked, 0)
        return self.w_o(self.merge(weights @ v)), weights  # (b, n, e), (b, h, n, m)


# %% tags=["hide-input"]
display.margin(
    PlainAttention,
    {
        "if embed_dim": "6",
        "raise ValueError": "6",
        "self.num_heads": "6",
        "layers": "3 5",
        "self.w_q": "3 5",
        "def split": "7",
        "return x.unflatten": "7",
        "def merge": "7",
        "return x.transpose": "7",
        "q, k, v": "3 6",
        "scores": "1 4",
        "blocked": "8",
        "weights": "1 8 9",
        "return self.w_o": "1 5",
    },
)

# %% [markdown]
# `w_q`, `w_k` and `w_v` are apart now, the weights come back, too, each head's for itself, and `blocked[:, None]` gives the
# mask (b, n, m) the axis of the heads.
#
# > **Pitfall.** A mask for all sentences is `future[None]`: (n, m) → (1, n, m). One for all queries is
# > `padding[:, None]`: (b, m) → (b, 1, m), all that a model needs that only reads, such as BERT. Without the new axis,
# > most sizes raise an error. With as many words as heads (`future`), or as many sentences (`padding`), none does, and
# > each head hides something else.

# %% tags=["proof"]
by_class, mha = PlainAttention(4, 2), PlainAttention(24, 3)
layers = (by_class.w_q, by_class.w_k, by_class.w_v, by_class.w_o)
for layer, matrix in zip(layers, (W_QS, W_KS, W_VS, W_O)):
    layer.weight.data, layer.bias.data = matrix.T, torch.zeros(4)
torch.testing.assert_close(by_class(pair, pair, pair)[0], right)
filled = (outputs[1].detach(), twice)
torch.testing.assert_close(by_class(texts, texts, texts, blocked), filled)
x, later = torch.randn(3, 3, 24), future[:3, :3]           # (3, 3, 24), (3, 3)
padded = torch.arange(3) >= torch.tensor([[3], [2], [1]])  # (3, 3)
raised = []
for bare in (later, padded):  # as many heads as words and as sentences
    for head, rows in enumerate(mha(x, x, x, bare)[1].unbind(1)):
        assert rows.eq(0).equal(bare[head].expand(3, 3, 3))
    try:
        PlainAttention(24, 4)(x, x, x, bare)
    except RuntimeError as error:
        raised.append("must match" in str(error))
assert raised == [True, True]
print(
    "✓ With our matrices it gives the bars at the top. Bare, each head hides another row."
)


# %% [markdown] name="compared-with-pytorch"
# Is it right? `lend` puts its parameters into `nn.MultiheadAttention`, and `compare` holds the two side by side:
# outputs, weights and all gradients, without a mask and with both, with queries from another text, and with a sentence
# that has no word at all.


# %% tags=["fold-input"]
def lend(ours, num_heads):
    """Let nn.MultiheadAttention compute with the parameters of ``ours``."""
    theirs = nn.MultiheadAttention(ours.w_o.in_features, num_heads, batch_first=True)
    shared = {f"out_proj.{name}": x for name, x in ours.w_o.named_parameters()}
    for name in ("weight", "bias"):
        into = [getattr(layer, name) for layer in (ours.w_q, ours.w_k, ours.w_v)]
        shared[f"in_proj_{name}"] = torch.cat(into)
    return lambda *inputs, **how: torch.func.functional_call(theirs, shared, inputs, how)


def compare(kind, lengths=(5, 1, 0), n=4, m=5, h=2, d=6, same=False):
    """Raise where outputs, weights or gradients are not those of nn.MultiheadAttention.

    `kind`: a class with the layers `w_q`, `w_k`, `w_v`, `w_o`, called as the one above.
    """
    ours = kind(h * d, h)
    theirs = lend(ours, h)  # the same parameters
    query, key, value = (torch.randn(len(lengths), rows, h * d) for rows in (n, m, m))
    inputs = [x.requires_grad_() for x in (query, key, key if same else value)]
    padding = torch.arange(m) >= torch.tensor(lengths)[:, None]  # (b, m)
    future = torch.ones(n, m).bool().triu(1)                     # (n, m)
    both = {"key_padding_mask": padding, "attn_mask": future}  # our two masks, as PyTorch's
    for blocked, masks in ((None, {}), (padding[:, None, :] | future, both)):
        found, weights = ours(*inputs, blocked)
        right, _ = theirs(*inputs, need_weights=False, **masks)
        _, shares = theirs(*inputs, average_attn_weights=False, **masks)  # NaN if empty
        torch.testing.assert_close((found, weights), (right, shares.nan_to_num()))
        leaves = [*inputs, *ours.parameters()]
        factors = torch.randn_like(right)  # gradients of one random sum of the outputs
        slopes = [torch.autograd.grad((x * factors).sum(), leaves) for x in (found, right)]
        torch.testing.assert_close(*slopes, atol=1e-4, rtol=1e-4)


# %%
compare(PlainAttention)
print("✓ The class has the outputs, weights and gradients of PyTorch's.")

# %% [markdown]
# <!-- deeper: A test that has said no -->
# ### Going deeper: A test that has said no
#
# A test that has never said *no* proves little. So put five slips into the class, one at a time. Each of them
# passes an easier test, and none passes this one:
#
# | slip | passes a test with | `compare` has |
# |---|---|---|
# | heads merged by `reshape` alone | one query | several |
# | `w_v(key)` | keys that are the values, too | other values |
# | the first sentence's mask for all | lengths 5 and 4: four queries never see the fifth word anyway | lengths 5, 1, 0 |
# | `blocked` for `blocked[:, None]` | one sentence | several, and not as many as heads |
# | no second fill | a word in each sentence | an empty one |
#
# In the empty sentence PyTorch's class gives NaN as soon as it returns weights. So outputs are compared without them,
# and a NaN weight counts as 0.

# %% tags=["proof"]
SOURCE = display.source(PlainAttention).text


def verdict(old, new, **easier):
    """Say whether the class passes the comparison with one part exchanged."""
    assert SOURCE.count(old) == 1
    exec(SOURCE.replace(old, new), changed := {"math": math, "torch": torch, "nn": nn})
    try:
        compare(changed["PlainAttention"], **easier)
    except (AssertionError, RuntimeError):
        return "caught"
    return "passes"


flat = ".reshape(x.size(0), x.size(2), -1)"
slips = [  # what is exchanged, and an easier test
    (".transpose(1, 2).flatten(2)", flat, {"lengths": (5, 3), "n": 1}),
    ("w_v(value)", "w_v(key)", {"lengths": (5, 3), "same": True}),
    ("blocked[:, None]", "blocked[:1, None]", {"lengths": (5, 4)}),  # out of sight for all
    ("blocked[:, None]", "blocked", {"lengths": (3,)}),
    (".masked_fill(blocked, 0)", "", {"lengths": (5, 3)}),
]
for old, slip, easier in slips:
    assert verdict(old, slip, **easier) == "passes"
    assert verdict(old, slip) == "caught"
assert verdict("zeros_like", "ones_like") == "caught"
assert verdict(", weights  #", ", weights.mean(1)  #") == "caught"
print("✓ Each of five slips passes an easier test, and none passes this one.")

# %% [markdown]
# `compare` says *no*, and not why. The check of the exercise below says more. Here is what it answers where the root is
# taken of the whole width e:

# %% tags=["hide-input"]
slipped = SOURCE.replace("math.sqrt(q.size(-1))", "math.sqrt(query.size(-1))")
exec(slipped, by_root := {"math": math, "torch": torch, "nn": nn})
exercises.short_path.check_attention(by_root["PlainAttention"])

# %% [markdown]
# Where there is nothing to compare with, [Testing attention](17_testing_attention.ipynb) helps.
#
# > **Pitfall.** In the `attn_mask` of PyTorch's *function*, `F.scaled_dot_product_attention`, True means *may
# > look*. In its class, and here, True means *may not*. Hand the function `~blocked`.

# %% tags=["proof"]
query, key, value = (torch.randn(3, 2, length, 6) for length in (4, 5, 5))
some = torch.rand(3, 1, 4, 5) < 0.5
some[..., 0] = False
plain = (query @ key.mT / math.sqrt(6)).masked_fill(some, -math.inf).softmax(-1) @ value
fused = F.scaled_dot_product_attention(query, key, value, attn_mask=~some)
torch.testing.assert_close(fused, plain)
print("✓ The function, given ~blocked, gives what our lines give.")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Exercises
#
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
# ### Write it
#
# *Medium, 10 minutes.* The constructor is given. Write `split`, `merge` and `forward` without looking
# up. `blocked` is `(b, n, m)`, or None, and then nothing is blocked: `torch.zeros_like(scores).bool()` will do.
# Return the output and the weights of each head. The check says what is wrong. Without this book's package,
# `compare(MyAttention)` says whether something is.


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
mine = MyAttention  # it speaks below; the solution takes its name
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

# %% [markdown] name="it-speaks"
# ## It speaks
#
# In a notebook, A now attends with what you have written. Where nothing is written yet, as on this page, the class above
# stands in for it: this is what you will hear.

# %% tags=["fold-input"]
try:
    whose, yours = "your class", told(mine)
except Exception:  # it does not run yet
    whose, yours = "the class above", told(PlainAttention)
display.stories({"its own attention": own, whose: yours}, HEARD, name="it-speaks")

# %% [markdown]
# *The cat wanted more*, *the milk was gone*, and the one who is hungry runs: word for word what A says with its own
# attention. (Now and then a draw hits an unlikely word, so even A tells stories that cannot happen.) Nobody set these heads by
# hand. [Questions to heads](11_questions_to_heads.ipynb) finds out what each of them does.

# %% tags=["proof"]
# Not what a page defines: whoever loads this one does not load that one.
(ten,) = [chapters.load("10_a_little_world")]
models = two_models()
ids = ten.TESTED[:, :-1]  # (1000, ...)
with torch.no_grad():
    logits = [teller(ids) for teller in (storyteller(PlainAttention), models["model A"])]
    torch.testing.assert_close(*logits, atol=1e-4, rtol=1e-4)
for last, meant in zip(("thirsty", "sweet", "tired", "fresh"), ("cat", "milk") * 2):
    ids = ten.as_ids([[ten.EDGE, *GO_ON.format(last).split()]])
    best = [ten.WORDS[model(ids)[0, -1].argmax()] for model in models.values()]
    assert best == [meant, "cat"]
    assert ten.WORDS[storyteller(SelfAttention)(ids)[0, -1].argmax()] == meant
assert "milk" not in ten.world.chances(ten.grammar, [ten.EDGE, *GO_ON.split()[:3]])
assert told(PlainAttention) == own
assert seven.facts[:2] == own.facts[:2] == ["cat wanted more", "milk was gone"]
assert 40 < int(seven.facts[2].partition("%")[0]) < 60
assert [x for x, y in zip(seven.words, own.words) if x != y] == ["dog", "dog"]
print("✓ With the class above, A gives every next word of 1,000 stories the same score.")

# %% [markdown]
# ## In your own model
#
# The first line goes into the constructor, the last two into `forward`, where `randn` stands for your text.

# %%
attention = PlainAttention(512, 8)
x = torch.randn(2, 10, 512)                    # (b, n, e)
future = torch.ones(1, 10, 10).bool().triu(1)  # (1, n, m), if the model writes
x = x + attention(x, x, x, future)[0]          # (b, n, e)

# %% [markdown]
# Since GPT-2, most models put a norm in front: with `y = norm(x)`, a LayerNorm in GPT-2 and an RMSNorm in Llama, the last
# line is `x + attention(y, y, y, future)[0]`. In cross-attention it is `x + attention(y, text, text)[0]`, with the
# text that is read as `text`.
#
# From here, the book takes each step slowly, from [One head](01_one_head.ipynb); [From memory](19_from_memory.ipynb) lets
# you write the class against the clock; the [package](../docs/package/index.md) has one to take the place of PyTorch's.
#
# > **In short.** For every head, $\mathrm{softmax}(Q K^\top / \sqrt d)\, V$, with $-\infty$ where a key is
# > blocked; the heads side by side, times $W_O$.
# >
# > Queries `(b, h, n, d)`, keys and values `(b, h, m, d)`, scores and weights `(b, h, n, m)`. Split by cutting the
# > last axis, merge by transposing first. Fill twice.
