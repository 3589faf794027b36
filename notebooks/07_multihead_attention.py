# %% [markdown]
# # Multi-head attention
#
# *What is inside a class that can take PyTorch's place?*
#
# The first six chapters built the parts. This chapter assembles them into the book's final class,
# which can replace `nn.MultiheadAttention` in a model that somebody else has written. You read the
# package's real source in the order in which the data flows. First come the three lines of the
# formula, which you know already. Then comes `forward`, the method that runs when you call a
# module.
#
# After that you put the class into a PyTorch layer, see what the weights cost, and change the score.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map(
    "project in", "split", "score", "mask", "softmax", "mix", "merge", "project out"
)

# %% [markdown]
# ## The three lines
#
# At the centre of everything is the formula from [One head](01_one_head.ipynb): score, softmax,
# mix. In the package these are three functions, plus a helper that the second one calls. They say
# what is computed; in most calls [quicker forms](#two-ways-through) run instead, equal by test.
#
# The note above each piece of code says what the code does, and often begins with the shape of the
# result. The line numbers come from the source file. Docstrings and comments are left out here, so
# the numbers jump.
#
# Dots in a shape stand for axes that do not matter at that point; in `(..., n, m)` these are
# samples and heads. `d_v` is the width of the values.
#
# Two arguments are new. `bias` is a second kind of mask: numbers that are added to the scores, for
# instance to make distant keys count less. It has nothing to do with the bias of a `Linear`.
# `dropout_p` belongs to [dropout](#dropout), which is off as long as this number is 0.
#
# [Masks](06_masks.ipynb) replaced the scores of blocked keys with −∞. Here `blocked` is also
# turned into numbers, 0 and −∞, so that one addition serves both kinds of masks. For finite scores
# the result is the same, once fully masked rows are fixed. The fix is the one of that chapter, with
# a part before the softmax and one after it. Look for both in `masked_softmax`.

# %%
from annotated_attention import attention, chapters, masks

THREE_LINES = (attention.scaled_scores, attention.masked_softmax, attention.mix)
display.annotated(*THREE_LINES, masks.masks_as_bias, sections=False)

# %% [markdown]
# Run the first three on the sentence, one after the other, and compare the result with what your
# function from the first chapter returns, and with the package's call, which takes a quicker form.

# %%
import torch
from torch import Tensor, nn

one = chapters.load("01_one_head")
it = one.WORDS.index("it")
words = one.EMBEDDINGS  # (8, 4)

scores = attention.scaled_scores(words, words)   # (8, 8)
weights = attention.masked_softmax(scores)       # (8, 8)
output, weights = attention.mix(weights, words)  # (8, 4), (8, 8)
torch.testing.assert_close((output, weights), one.attend(words, words, words))
called = attention.scaled_dot_product_attention(words, words, words)
torch.testing.assert_close(called, (output, weights))
one.show(one.WORDS, ["it looks at"], weights[[it]].mT)

# %% [markdown]
# *It* gives 0.30 to *thirsty*, the number that you worked out on paper.
#
# ### Two ways through
#
# One function chains the three lines. It also offers a shorter way: PyTorch has a **fused kernel**,
# one routine that computes the same output without storing the `(n, m)` weights, as long as dropout
# is off. The kernel is faster and takes less memory, but it leaves no weights to look at. The
# argument `need_weights` chooses between the two ways.
#
# `scaled_dot_product_attention` checks its arguments and leaves the rest to `compute_attention`.

# %%
from annotated_attention import scaled_dot_product_attention

display.annotated(scaled_dot_product_attention, attention.compute_attention)

# %% [markdown]
# `_fused` calls the kernel, and `quick_weights` is the quicker form of lines one and two; both are in
# the fold after the next cell. `check_attention` is in [a fold near the
# end](#going-deeper-what-is-refused). `block_future` is the causal mask from
# [Masks](06_masks.ipynb#merging-the-two), and `merge_masks` does what the operator `|` did there.
# Both are shown [below](#the-steps-that-forward-calls).
#
# Outputs and gradients must be the same with weights and without. The cell asserts this for no
# mask, for a causal mask, and for a mask that hides every key from the word *it*. Each row of the
# table shows what *it* collects.

# %%
x = words.double().requires_grad_()  # (8, 4)
nobody = torch.zeros(8, 8, dtype=torch.bool)
nobody[it] = True  # the word must not look anywhere
masked = {"no mask": {}, "causal": {"is_causal": True}, "'it' masked": {"blocked": nobody}}
rows = []
for mask in masked.values():
    slow = scaled_dot_product_attention(x, x, x, **mask)[0]                      # (8, 4)
    fast = scaled_dot_product_attention(x, x, x, need_weights=False, **mask)[0]  # (8, 4)
    torch.testing.assert_close(fast, slow)
    torch.testing.assert_close(one.gradients(fast, [x]), one.gradients(slow, [x]))
    rows.append(slow[it])
one.show([*masked], one.FEATURES, torch.stack(rows))

# %% [markdown]
# The causal mask hides *thirsty*, so *it* collects 0.27 of *quality* instead of 0.78. Under the last
# mask *it* collects nothing.

# %% [markdown]
# <!-- deeper: The fused kernel, and the same weights in less time -->
# ### Going deeper: The fused kernel, and the same weights in less time
#
# The fused kernel expects four axes, so `_fused` adds the missing ones.

# %%
display.annotated(attention._fused)

# %% [markdown]
# `quick_weights` computes lines one and two. It writes the mask and then the weights over the
# scores, in one piece of memory. In a fully masked row it unmasks one key only, to the same effect.
# Where that cannot be done, for example while PyTorch compiles the call, it returns None, and the
# lines run as you have read them.

# %%
from annotated_attention import quick

display.annotated(quick.quick_weights, quick._Softmax)

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## The class
#
# Now comes the class around the three lines. Read the notes of `forward` from top to bottom. Tokens
# come in as `(n, b, e)`, become `(b, h, n, d)` for the attention, and leave in the layout in which
# they came. `num_kv_heads`, the number of key and value heads, is h here; a subclass in [a later
# chapter](20_fewer_keys.ipynb) has fewer.

# %%
from annotated_attention import MultiheadAttention

display.annotated(MultiheadAttention.forward)

# %% [markdown]
# The methods that `forward` calls are shown [below](#the-steps-that-forward-calls). By default
# `bias_k` and `bias_v` are None and `_append` does nothing; a
# [fold](#going-deeper-a-place-to-attend-when-nothing-matters) shows what appended keys are for.
#
# Do not take the shapes on trust: let a subclass record them. Three queries look at five keys, in
# two samples, with four heads of width 6. The second sample has two padded positions. A **hook**, a
# function that PyTorch calls after a module has run, records what goes into and out of `out_proj`.
# The figure then shows everything that was recorded.

# %%
b, n, m, h, d = 2, 3, 5, 4, 6
e = h * d
SEEN: dict[str, tuple[int, ...]] = {}


def note(**tensors: Tensor) -> None:
    """Write down shapes."""
    SEEN.update({name: tuple(x.shape) for name, x in tensors.items()})


class Noting(MultiheadAttention):
    """Writes down what its two steps are given, and what they return."""

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        scores = super().score(q, k)  # (b, h, n, m)
        note(q=q, k=k, scores=scores)
        return scores

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **options):
        heads, weights = super().attend(q, k, v, **options)
        note(v=v, blocked=options["blocked"], weights=weights, heads=heads)
        return heads, weights


# %%
torch.manual_seed(7)
query = torch.randn(n, b, e)  # (n, b, e)
key = torch.randn(m, b, e)    # (m, b, e)
padding = masks.block_padding(torch.tensor([5, 3]), m)

noting = Noting(e, h)
noting.out_proj.register_forward_hook(lambda _, x, made: note(merged=x[0], output=made))
output, returned = noting(query, key, key, padding)
note(query=query, key=key, value=key, returned=returned)
print(len(SEEN), "tensors written down; q is", SEEN["q"])

# %% jupyter={"source_hidden": true}
PLACES = {
    "query": (0, 0), "key": (1, 0), "value": (2, 0), "q": (0, 1), "k": (1, 1), "v": (2, 1),
    "blocked": (0, 2), "scores": (1, 2), "weights": (1, 3), "returned": (1, 4),
    "heads": (2, 4), "merged": (2, 5), "output": (2, 6),
}
ARROWS = [
    ("query", "q", "project, split"), ("key", "k", ""), ("value", "v", ""),
    ("q", "scores", ""), ("k", "scores", "score"), ("scores", "weights", "mask, softmax"),
    ("blocked", "weights", ""),
    ("weights", "heads", ""), ("v", "heads", "mix"), ("weights", "returned", "mean"),
    ("heads", "merged", "merge"), ("merged", "output", "project out"),
]
LETTERS = {2: "b", 3: "n", 5: "m", 4: "h", 6: "d", 24: "h·d", 1: "1"}
display.flow(PLACES, ARROWS, SEEN, LETTERS, name="data-flow")

# %% [markdown]
# Blue boxes have the queries' axis n, green ones have the keys' axis m, and grey ones have both.
# You count what the grey ones cost [below](#the-weights-and-what-they-cost). The run used five
# different sizes, so the figure can show a letter in place of each recorded number. The padding
# mask has become `(b, 1, 1, m)`: one row per sample, for all its heads and queries.
#
# ## In PyTorch's place
#
# In a model that somebody else has written, one line replaces the module, and a second one loads
# the old parameters. Take PyTorch's encoder layer: attention followed by some steps that the
# [next chapter](08_transformer_layers.ipynb) explains. Its `state_dict`, which holds the parameters
# by name, still fits:

# %%
torch.manual_seed(4)
x = torch.randn(b, n, e, dtype=torch.float64, requires_grad=True)  # (b, n, e)
layer = nn.TransformerEncoderLayer(e, h, 30, dropout=0, batch_first=True).double()
before = layer(x)  # (b, n, e)
expected = one.gradients(before, [x, *layer.parameters()])
checkpoint = layer.state_dict()

layer.self_attn = MultiheadAttention(e, h, batch_first=True, dtype=torch.float64)
layer.load_state_dict(checkpoint)
after = layer(x)  # (b, n, e)
torch.testing.assert_close(after, before)
torch.testing.assert_close(one.gradients(after, [x, *layer.parameters()]), expected)
print(f"{len(checkpoint)} parameters fit\noutput and {len(expected)} gradients are equal")

# %% [markdown]
# The output has not changed, nor have the gradients of the parameters and the input. Some rare
# cases do behave differently. The appendix lists and runs them: it is [the last *Going
# deeper*](#going-deeper-where-it-differs-from-pytorchs).
#
# Now suppose you forget `batch_first=True` in the line that replaces the module. When do you find
# out: when the checkpoint is loaded, when the layer is called, or not at all?
#
# <details><summary>What do you expect?</summary>
#
# Not at all, unless you compare numbers. A `state_dict` holds parameters but no settings, so
# everything loads. In self-attention the output has the shape of the input in either layout, so
# every shape fits. But samples are mistaken for tokens, so sentences attend to each other.
#
# </details>

# %%
layer.self_attn = MultiheadAttention(e, h, dtype=torch.float64)
print(layer.load_state_dict(checkpoint))
wrong = layer(x)  # (b, n, e)
print("shapes:", tuple(wrong.shape), "and", tuple(before.shape))
print(f"off by up to {(wrong - before).abs().max():.2f}")
assert not wrong.allclose(before)

# %% [markdown]
# > **Pitfall.** A `state_dict` does not know `batch_first`, `num_heads` or `dropout`. In
# > evaluation, compare the outputs for a batch of several sequences: this reveals a wrong
# > `batch_first` or `num_heads`. It cannot reveal a wrong `dropout`, so compare that setting
# > directly.

# %% [markdown]
# <!-- deeper: Equal in four settings -->
# ### Going deeper: Equal in four settings
#
# With the same seed, the class gets the same parameters, under the same names, as PyTorch's class.
# Outputs, weights and the gradients of inputs and parameters must be equal, too. Four settings are
# compared here; the last one appends keys.

# %%
SETTINGS = {
    "defaults": {},
    "no bias": {"bias": False},
    "other widths": {"kdim": 10, "vdim": 14},
    "appended keys": {"add_bias_kv": True, "add_zero_attn": True},
}


def made(kind: type[nn.Module], **options) -> nn.Module:
    """Make a module from a fixed seed."""
    torch.manual_seed(3)
    return kind(24, 4, dtype=torch.float64, **options)


def of_width(*shape: int) -> Tensor:
    """Make float64 inputs that need gradients."""
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


# %%
for name, options in SETTINGS.items():
    ours, theirs = (made(x, **options) for x in (MultiheadAttention, nn.MultiheadAttention))
    torch.testing.assert_close(dict(ours.state_dict()), dict(theirs.state_dict()))
    given = [of_width(n, b, e), of_width(m, b, ours.kdim), of_width(m, b, ours.vdim)]
    found, expected = ours(*given), theirs(*given)
    torch.testing.assert_close(found, expected)
    mine = one.gradients(found[0], [*given, *ours.parameters()])
    torch.testing.assert_close(
        mine, one.gradients(expected[0], [*given, *theirs.parameters()])
    )
    print(f"{name:>13}: {len(ours.state_dict())} parameters, {len(mine)} gradients")

# %% [markdown]
# Each line counts three more gradients than parameters: the gradients of the three inputs.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## The steps that forward calls
#
# Each step is a short method or function. They are shown here in four groups, in the order in which
# they are called; `_append` and the checks are in folds below. The first group goes from tokens to
# heads. Look for `query is key is value`, the case of self-attention, where one matrix product
# computes all three.

# %%
from annotated_attention.heads import merge_heads, split_heads

FIRST = (MultiheadAttention._project, MultiheadAttention._batch_first)
display.annotated(*FIRST, split_heads, sections=False)

# %% [markdown]
# The second group gives each mask the axes of the scores. Look for `None, None`, which adds the
# axes for heads and queries that a padding mask lacks. On a first reading, the first and last lines
# of `_merge`'s body are enough. The lines in between deal with appended keys.

# %%
TO_HEADS = (masks.attention_to_heads, masks.padding_to_heads)
display.annotated(MultiheadAttention._merge, *TO_HEADS, sections=False)

# %% [markdown]
# Two more functions in this group were also called by
# [`compute_attention`](#code-compute_attention). See how `merge_masks` keeps
# the two kinds of masks apart: booleans are combined with `|`, numbers with `+`.

# %%
display.annotated(masks.block_future, masks.merge_masks, sections=False)

# %% [markdown]
# The third group does the computing. `attend` calls `compute_attention`, and `score` calls
# `scaled_scores`, the first of the three lines. Both methods are there to be overridden.
# `Noting` overrode them only to look; [below](#a-score-of-your-own) you override them to change the
# result.

# %%
display.annotated(MultiheadAttention.attend, MultiheadAttention.score)

# %% [markdown]
# The last group reverses two of the first steps: `merge_heads` undoes `split_heads`, and
# `_as_given` undoes `_batch_first`.

# %%
display.annotated(merge_heads, MultiheadAttention._as_given, sections=False)

# %% [markdown]
# ## The weights, and what they cost
#
# Back to the sentence, and to the two heads made by hand in [Two heads](02_two_heads.ipynb). The
# first compares words by *animal* and *food*, the second by *action* and *quality*. Put both into
# one module, and each of the four matrices is the identity: head 1 gets the first two features and
# head 2 the others. As in that chapter, the input is each word plus what a first head
# [collected](01_one_head.ipynb#the-mix-collect-the-values) for that word.


# %%
def identities(kind: type = MultiheadAttention, h: int = 2, **options) -> nn.Module:
    """Make a module of width 4 whose four matrices are the identity."""
    module = kind(4, h, bias=False, **options)
    with torch.no_grad():
        module.in_proj_weight.copy_(torch.eye(4).repeat(3, 1))
        module.out_proj.weight.copy_(torch.eye(4))
    return module


once = words + one.attend(words, words, words)[0]                     # (8, 4)
_, mean = identities()(once, once, once)                              # (8, 4), (8, 8)
_, each = identities()(once, once, once, average_attn_weights=False)  # (8, 4), (2, 8, 8)
rows = torch.stack([each[0, it], each[1, it], mean[it]])              # (3, 8)
one.show(one.WORDS, ["head 1", "head 2", "mean"], rows.mT)

# %% [markdown]
# Head 1 gives *cat* 0.82, and head 2 gives *thirsty* 0.78. By default you get the mean over the
# heads, and from the mean alone you cannot tell which head looked where. With
# `average_attn_weights=False` you get the weights of each head. Choose a head in the figure, and
# then another word (without JavaScript the figure shows the mean):

# %% jupyter={"source_hidden": true}
three = torch.cat([each, mean[None]])  # (3, 8, 8)
still = display.attention_lines(mean, one.WORDS, it, name="heads-and-mean")
names = ("head 1", "head 2", "mean")
display.heads_at_work(still, three, one.WORDS, one.WORDS, start=(0, 2, it), heads=names)

# %% [markdown]
# Returning the weights is also the default, and it has a price: the `(n, m)` matrices of all heads
# are kept until the gradient has been computed. Suppose you double the number of tokens. By what
# factor do the kept bytes grow if the weights are returned, and by what factor if they are not:
# two, four, or eight?
#
# <details><summary>What do you expect?</summary>
#
# With weights the growth approaches fourfold: the matrices have n times n entries, and for long
# sequences they outweigh everything else. Without weights the kept bytes nearly double: apart from
# $W_O$, whose size does not depend on n, everything that is kept has one row per token.
#
# </details>
#
# In the cell, PyTorch calls `count` for every tensor that it keeps for the backward pass; each
# piece of memory is counted once.


# %%
def kept(n: int, need_weights: bool, dropout: float = 0.0) -> int:
    """Count the bytes that a call on n tokens keeps for its gradient."""
    sizes: dict[int, int] = {}

    def count(x: Tensor) -> Tensor:
        sizes[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    module = MultiheadAttention(64, 8, dropout)
    x = torch.randn(n, 1, 64)
    with torch.autograd.graph.saved_tensors_hooks(count, lambda x: x):
        module(x, x, x, need_weights=need_weights)
    return sum(sizes.values())


print("   n   with weights   without")
for length in (64, 128, 256, 512, 1024):
    print(f"{length:4} {kept(length, True):14,} {kept(length, False):9,}")

# %% [markdown]
# From 512 to 1024 tokens the middle column grows almost fourfold, and the last one almost doubles.
#
# What do the weights cost in time? The package comes with measurements of how long a forward and
# backward pass takes with weights and without. Each line gives the time with weights as a multiple
# of the time without, and then the sizes.

# %%
from annotated_attention import measured

for row in measured.find("versions", mode="forward + backward"):
    sizes = ", ".join(f"{letter} = {size}" for letter, size in zip("bneh", row["size"]))
    times = row["milliseconds"]
    slower = times["07 final class, weights"][1] / times["07 final class"][1]  # medians
    print(f"{slower:.2f}x for {sizes}")
origin = measured.load()["provenance"]
print(f"measured with torch {origin['torch']} on\n{origin['cpu']}")

# %% [markdown]
# So pass `need_weights=False` unless you want to look at the weights.
#
# ## Dropout
#
# In training, **dropout** sets each weight to zero with probability p and divides the others by
# 1 − p. Take p = 0.5<!-- setting --> and look at the weights that come back. Do the weights of one
# query still add up to one: always, never, or on average?
#
# <details><summary>What do you expect?</summary>
#
# On average. Each weight becomes 0 or twice as large, with equal probability, so its mean stays the
# same. In a single draw a query may lose its largest weight, or have it doubled.
#
# </details>

# %%
torch.manual_seed(5)
dropping = identities(dropout=0.5)
by_head = {"average_attn_weights": False}
_, dropped = dropping(once, once, once, **by_head)  # (8, 4), (2, 8, 8)
kept_ones = dropped > 0                             # (2, 8, 8)
torch.testing.assert_close(dropped[kept_ones], 2 * each[kept_ones])

many = once[:, None].expand(-1, 4000, -1)                    # (8, 4000, 4)
_, draws = dropping(many, many, many, **by_head)             # (8, 4000, 4), (4000, 2, 8, 8)
_, evaluated = dropping.eval()(once, once, once, **by_head)  # (8, 4), (2, 8, 8)
rows = torch.stack([dropped[0], draws[:, 0].mean(0), evaluated[0]])
one.show(one.WORDS, ["one draw", "mean of 4000", "evaluation"], rows.sum(-1).mT)

# %% [markdown]
# Each number is the sum of a word's weights in head 1. In one draw the sums vary, over many draws
# they average about one, and in evaluation nothing is dropped. The weights that you get back are
# the ones that mixed the values, after dropout. So call `.eval()` before you look at weights.

# %% [markdown]
# <!-- deeper: The same draw as PyTorch's, and its memory -->
# ### Going deeper: The same draw as PyTorch's, and its memory
#
# PyTorch's class also returns the weights after dropout, and with the same seed it drops the same
# ones:

# %%
drawn = []
for kind in (MultiheadAttention, nn.MultiheadAttention):
    module = identities(kind, dropout=0.5)
    torch.manual_seed(5)
    drawn.append(module(once, once, once, average_attn_weights=False)[1])
torch.testing.assert_close(*drawn)
print(f"both drop the same {(drawn[1] == 0).sum()} of {drawn[1].numel()} weights")

# %% [markdown]
# Dropout costs memory, even if nobody asks for the weights. These are the bytes that a call on 1024
# tokens keeps when no weights are returned, first without dropout and then with it. On a CPU,
# dropout stores three `(n, m)` matrices of floats for each of the eight heads: the weights, the
# random factors, and the product of the two.

# %%
for dropout in (0.0, 0.1):
    print(f"dropout {dropout}: {kept(1024, False, dropout):11,}")
assert kept(1024, False, 0.1) > 3 * 8 * 1024**2 * 4  # four bytes a number

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## A score of your own
#
# To change how keys are compared with queries, override `score`. This class scores by distance: the
# closer a key is to the query, the higher its score, $-\lVert q - k \rVert^2 / (2 \sqrt d)$.


# %%
class DistanceAttention(MultiheadAttention):
    """Attends to the keys that are nearest."""

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        squares = (q[..., :, None, :] - k[..., None, :, :]).square().sum(-1)  # (b, h, n, m)
        return -squares / (2 * self.head_dim**0.5)                            # (b, h, n, m)


_, by_product = identities(h=1)(words, words, words)                      # (8, 4), (8, 8)
_, by_distance = identities(DistanceAttention, h=1)(words, words, words)  # (8, 4), (8, 8)
rows = torch.stack([by_product[it], by_distance[it]])                     # (2, 8)
one.show(one.WORDS, ["by product", "by distance"], rows.mT)

# %% [markdown]
# By product, *it* finds *thirsty* with 0.30. By distance, *it* finds itself with 0.29, and the
# weights of *cat* and *milk* fall from 0.18 to 0.07. What exactly has changed? Expand the square:
#
# $$-\frac{\lVert q - k\rVert^2}{2 \sqrt d} = \frac{qk^\top}{\sqrt d} - \frac{\lVert q \rVert^2}{2 \sqrt d}
# - \frac{\lVert k \rVert^2}{2 \sqrt d}$$
#
# The first term is the ordinary score. The second is the same for all keys, so the softmax ignores
# it. That leaves the third term, a handicap for long keys, and *cat* and *milk* are long vectors.
#
# A class that overrides `score` never uses the fused kernel, which would ignore the new score. The
# price is that `need_weights=False` saves such a class no memory.

# %% [markdown]
# <!-- deeper: Distance is the product with a handicap -->
# ### Going deeper: Distance is the product with a handicap
#
# Add the handicap to the scores of the ordinary class, and the two classes must agree. The handicap
# goes in as a mask of numbers. Each head has its own keys and therefore its own mask. As in
# PyTorch's class, `attn_mask` takes one mask for each sample and head as `(b * h, n, m)`. Both
# classes also get a causal mask, so the ordinary class has to merge the two kinds of masks.

# %%
torch.manual_seed(8)
near = DistanceAttention(e, h, batch_first=True, dtype=torch.float64)
plain = MultiheadAttention(e, h, batch_first=True, dtype=torch.float64)
plain.load_state_dict(near.state_dict())

query, key = of_width(b, n, e), of_width(b, m, e)  # (b, n, e), (b, m, e)
w_k, b_k = near.in_proj_weight.chunk(3)[1], near.in_proj_bias.chunk(3)[1]
k = (key @ w_k.mT + b_k).unflatten(-1, (h, d))                 # (b, m, h, d)
handicap = -k.square().sum(-1).mT / (2 * d**0.5)               # (b, h, m)
added = handicap[:, :, None].expand(b, h, n, m).flatten(0, 1)  # (b * h, n, m)

# %%
expected, _ = plain(query, key, key, attn_mask=added, is_causal=True)
expected_gradients = one.gradients(expected, [query, key])
for need_weights in (True, False):
    found, _ = near(query, key, key, is_causal=True, need_weights=need_weights)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(one.gradients(found, [query, key]), expected_gradients)
    print(f"need_weights={need_weights}: equal")

# %% [markdown]
# They agree with weights and without.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# To change more than the score, override `attend`. It gets the queries, keys and values of all
# heads, and returns what each head has collected. This class silences one head, which is how you
# find out what that head was good for.


# %%
class WithoutHead(MultiheadAttention):
    """Silences one head."""

    silent: int

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **options):
        heads, weights = super().attend(q, k, v, **options)
        kept = torch.arange(self.num_heads) != self.silent  # (h,)
        return heads * kept[:, None, None], weights


collected = {"both": identities()(once, once, once)[0][it]}
for silent in (0, 1):
    module = identities(WithoutHead)
    module.silent = silent
    collected[f"without {silent + 1}"] = module(once, once, once)[0][it]
one.show([*collected], one.FEATURES, torch.stack([*collected.values()]))

# %% [markdown]
# Without head 1, *it* collects no *animal* and no *food*; without head 2, no *action* and no
# *quality*. The heads meet only in $W_O$, which is the identity here, so nothing else changes.
#
# ## Parameters, layouts and PyTorch's names
#
# One part of the class is left: its constructor. PyTorch's `state_dict` fits because the
# parameters have PyTorch's names and shapes. Where queries, keys and values have the same width e,
# the three matrices are packed into one, `in_proj_weight`. Its rows are $W_Q$, then $W_K$, then
# $W_V$, each transposed. Keys or values of another width need three separate matrices, as shown in
# [a fold](#going-deeper-one-matrix-or-three).

# %%
display.annotated(MultiheadAttention.__init__, MultiheadAttention._reset_parameters)

# %% [markdown]
# `check_settings`, shown in [a fold below](#going-deeper-what-is-refused), refuses settings that do
# not fit. There are three layouts: `(n, b, e)` by default, `(b, n, e)` with `batch_first=True`, and
# `(n, e)` for a single sequence. The sentence went in as `(n, e)`.

# %% [markdown]
# <!-- deeper: One matrix or three -->
# ### Going deeper: One matrix or three
#
# In cross-attention, keys and values may come from elsewhere and have other widths: `kdim` for keys,
# `vdim` for values. In that case the class has three separate matrices. The output keeps the width
# of the queries. Here eight words look at five patches of a picture.

# %%
torch.manual_seed(6)
looking = MultiheadAttention(4, 2, kdim=7, vdim=3)
where, what = torch.randn(5, 7), torch.randn(5, 3)  # (5, 7), (5, 3)
output, weights = looking(words, where, what)       # (8, 4), (8, 5)
print("output", tuple(output.shape), "weights", tuple(weights.shape))
for name, matrix in looking.state_dict().items():
    print(f"{name:>15} {tuple(matrix.shape)}")

# %% [markdown]
# Packing three matrices into one changes the initial values. PyTorch draws them by Xavier's rule:
# the more rows and columns a matrix has, the smaller its values are. A packed matrix has three
# times as many rows. These are the standard deviations for e = 512:

# %%
packed = MultiheadAttention(512, 8).in_proj_weight
apart = MultiheadAttention(512, 8, kdim=500).q_proj_weight
print(f"packed {packed.std():.4f}, apart {apart.std():.4f}")

# %% [markdown]
# The packed matrix starts with smaller values, in PyTorch's class as in ours.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# <!-- deeper: A place to attend when nothing matters -->
# ### Going deeper: A place to attend when nothing matters
#
# Weights add up to one, so a query must take something from some key, whether or not any key has
# what the query wants. `add_zero_attn` appends a key and a value of zeros to every sequence, and
# `add_bias_kv` appends a learned pair. Both give the query somewhere to look when there is nothing
# to see. `_append` does this for keys and values, and the dots in `(b, h, ..., d)` are m plus what
# has been appended. `_merge` gives the masks the same number of extra columns, which block nothing.

# %%
display.annotated(MultiheadAttention._append, sections=False)

# %% [markdown]
# Here is a task that needs an appended key. Each sequence has five tokens, each with a number, and
# in half of the sequences one token is marked. The answer is the number of the marked token, or
# zero if none is marked.


# %%
def draw_task() -> tuple[Tensor, Tensor]:
    """Draw sequences and answers; feature 0 is the mark, feature 1 the number."""
    x = torch.zeros(256, 5, 8)  # (256, 5, 8)
    x[..., 1] = torch.randn(256, 5)
    x[::2, :, 0] = torch.eye(5)[torch.randint(5, (128,))]
    return x, (x[..., 0] * x[..., 1]).sum(1)  # (256, 5, 8), (256,)


def learn(steps: int = 300, **options) -> tuple[Tensor, ...]:
    """Train one head; return what it answers at last, what is right, and its weights."""
    torch.manual_seed(0)
    module = MultiheadAttention(8, 1, batch_first=True, **options)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.02)
    for _ in range(steps):
        x, right = draw_task()
        output, weights = module(torch.ones(256, 1, 8), x, x)  # (256, 1, 8), (256, 1, ...)
        answers = output[:, 0, 0]                              # (256,)
        optimizer.zero_grad()
        (answers - right).square().mean().backward()
        optimizer.step()
    return answers.detach(), right, weights.detach()


# %%
for options in ({}, {"add_zero_attn": True}, {"add_bias_kv": True}):
    answers, right, weights = learn(**options)
    loss = (answers - right).square().mean()
    size = answers[::2] @ right[::2] / right[::2].square().sum()
    wrong = answers[1::2].square().mean().sqrt()
    print(f"{next(iter(options), 'nothing')}: loss {loss:.6f}")
    print(f"  marked: {size:.2f} of its size")
    print(f"  unmarked: {wrong:.2f} in the place of 0; weights:")
    print("   ", *(f"{weight:.2f}" for weight in weights[1::2].mean((0, 1))))

# %% [markdown]
# Without an appended key, each token of an unmarked sequence gets a fifth of the weight on average.
# The output is close to the mean of five numbers that should not count. To keep this mean small,
# the head also shrinks the marked answers, to 0.83 of their size, since one $W_V$ serves both.
#
# The best compromise can be computed. The mean of five independent numbers has a fifth of their
# variance. So the best factor $c$ minimises $(1 - c)^2 + c^2 / 5$, which gives $5/6$.
#
# With an appended key, the last weight takes nearly everything in an unmarked sequence. Marked
# answers keep their size, and the loss all but vanishes.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# <!-- deeper: What is refused -->
# ### Going deeper: What is refused
#
# A bad argument raises an error that names the argument, says what was given, and says what would
# fit. Only shapes, dtypes, devices and settings are checked, never values.

# %%
import textwrap

default = made(MultiheadAttention)
tokens = of_width(n, b, e)  # (n, b, e)
for bad in (
    lambda: MultiheadAttention(10, 4),
    lambda: default(of_width(n, b, 23), tokens, tokens),
    lambda: default(tokens, tokens, tokens, padding),
):
    try:
        bad()
    except (TypeError, ValueError) as error:
        print(textwrap.fill(f"{type(error).__name__}: {error}", 42))

# %%
from annotated_attention import checks

display.annotated(checks, sections=False)

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# <!-- deeper: Where it differs from PyTorch's -->
# ### Going deeper: Where it differs from PyTorch's
#
# You can read this appendix without the rest of the chapter. In some situations PyTorch's class
# does one thing with weights and another without, or one thing in training and another in
# inference. The book's class then does the same thing every time. Here is the part of the class
# that no method holds; the rest of this appendix runs each situation.
#
# In both classes two settings append keys, `add_bias_kv` and `add_zero_attn`: each adds one key and
# one value to every sequence. A hook is a function that PyTorch calls after a module has run.

# %%
display.annotated(MultiheadAttention, methods=False)

# %% [markdown]
# Each situation is run with PyTorch's class and with ours. `made` gives both the same parameters:
# width 24, four heads, one seed. Each output is compared with named reference outputs, so that the
# tables can say in words what came out. PyTorch's class computes these references first.

# %%
import warnings

from IPython.display import Markdown

torch.manual_seed(9)
QUERY = torch.randn(2, 4, 24, dtype=torch.float64)  # (2, 4, 24)
KEY = torch.randn(2, 3, 24, dtype=torch.float64)    # (2, 3, 24)
CROSS, SELF = (QUERY, KEY, KEY), (QUERY, QUERY, QUERY)
FUTURE, SQUARE = masks.block_future(4, 3), masks.block_future(4)  # (4, 3), (4, 4)
OTHER = torch.arange(12).view(4, 3) == 9                          # (4, 3)
PADDING = torch.tensor([[0, -torch.inf, 0], [0, 0, 0]]).double()  # (2, 3)
FLOATS = torch.linspace(-1, 1, 12).view(4, 3).half()              # (4, 3)

ZEROS, CAUSAL = "zeros go into `out_proj`", "the causal mask alone"
ALONE, SEEN_BY_ALL = "`attn_mask` alone", "nobody is kept from the appended key"
KEPT_AWAY = "three queries are kept from the appended key"


def ready(kind: type[nn.Module], **options) -> nn.Module:
    """Make a module from a fixed seed, with a bias that shows where zeros went in."""
    module = made(kind, batch_first=True, **options)
    nn.init.ones_(module.out_proj.bias)
    return module


# %%
def references() -> list[tuple[str, Tensor]]:
    """Compute outputs that are known, each with what it is called."""
    plain, zero = (ready(nn.MultiheadAttention, add_zero_attn=x) for x in (False, True))
    hidden = [None, FUTURE, OTHER, OTHER | FUTURE, FLOATS.double()]
    outputs = [plain(*CROSS, attn_mask=mask)[0] for mask in hidden]
    added = torch.zeros(4, 3).double().masked_fill(OTHER, -torch.inf)  # (4, 3)
    seen = zero(*CROSS, attn_mask=FUTURE)[0]                           # (2, 4, 24)
    return [
        *zip(("no mask", CAUSAL, ALONE, "both masks", "the mask, cast"), outputs),
        ("both masks", plain(*CROSS, PADDING, attn_mask=added)[0]),
        ("no mask", plain(*SELF)[0]),
        (CAUSAL, plain(*SELF, attn_mask=SQUARE)[0]),
        (SEEN_BY_ALL, seen),
        (KEPT_AWAY, torch.cat([outputs[1][:, :3], seen[:, 3:]], 1)),
        (ZEROS, torch.ones(2, 4, 24).double()),
        ("NaN", torch.full((2, 4, 24), torch.nan).double()),
    ]


REFERENCES = references()

# %% [markdown]
# The argument `how` says in words how a call is made: with weights or without, in training, in
# evaluation, or in inference, which is evaluation without gradients.


# %%
def outcome(kind: type[nn.Module], how: str, inputs, zero: bool = False, **options) -> str:
    """Call a module, and say what came out."""
    module = ready(kind, add_zero_attn=zero)
    module.train("evaluation" not in how and "inference" not in how)
    options["need_weights"] = "without weights" not in how
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            with torch.set_grad_enabled("inference" not in how):
                output, _ = module(*inputs, **options)
        except Exception as error:
            return f"`{type(error).__name__}`"
    if output.is_nested:
        return "it runs"
    same = (name for name, x in REFERENCES if output.allclose(x, equal_nan=True))
    return next(same, "something else") + ", with a warning" * bool(warned)


def given(*inputs, **options):
    """Make a call of both classes with the same inputs."""
    return lambda kind, how: outcome(kind, how, inputs, **options)


# %%
def table(*rows: tuple) -> Markdown:
    """Run each row with both classes, and stop if one does not do what the row says."""
    lines = ["| what is given | how | PyTorch's | ours |", "|---|---|---|---|"]
    for what, how, call, *said in rows:
        found = [call(kind, how) for kind in (nn.MultiheadAttention, MultiheadAttention)]
        assert found == said, (what, how, found)
        lines.append(f"| {what} | {how} | {found[0]} | {found[1]} |")
    return Markdown("\n".join(lines))


# %%
ALL, HINT = torch.ones(4, 3, dtype=torch.bool), {"is_causal": True}
given_all, given_hint = given(*CROSS, attn_mask=ALL), given(*SELF, **HINT)
masked = given(*SELF, attn_mask=torch.ones(4, 4, dtype=torch.bool))
FULLY, LONE, ERROR = "a fully masked row", "`is_causal` without a mask", "`RuntimeError`"
table(
    (FULLY, "with weights", given_all, "NaN", ZEROS),
    (FULLY, "without weights", given_all, ZEROS, ZEROS),
    (FULLY, "without weights, in inference", masked, "NaN", ZEROS),
    (LONE, "in training", given_hint, ERROR, CAUSAL),
    (LONE, "in evaluation", given_hint, ERROR, CAUSAL),
    (LONE, "in inference", given_hint, "no mask", CAUSAL),
)

# %% [markdown]
# With gradients, PyTorch's class refuses `is_causal=True` without a mask, in training and in
# evaluation. In inference the same call goes through, and every token sees the future. Next come
# two masks at once, and appended keys. *The causal mask alone* means that the other mask had no
# effect.

# %%
both = given(*CROSS, attn_mask=OTHER, **HINT)
wrong = given(*CROSS, attn_mask=OTHER[:, :2], **HINT)
appended = given(*CROSS, attn_mask=FUTURE, zero=True, **HINT)
ANOTHER, SHAPE = "`is_causal` with another mask", "`is_causal`, mask of bad shape"
MORE = "`is_causal` with appended keys"
table(
    (ANOTHER, "with weights", both, ALONE, "both masks"),
    (ANOTHER, "without weights", both, CAUSAL, "both masks"),
    (SHAPE, "with weights", wrong, ERROR, "`ValueError`"),
    (SHAPE, "without weights", wrong, CAUSAL, "`ValueError`"),
    (MORE, "with weights", appended, SEEN_BY_ALL, SEEN_BY_ALL),
    (MORE, "without weights", appended, KEPT_AWAY, SEEN_BY_ALL),
)

# %% [markdown]
# With `is_causal=True` and without weights, a mask of the wrong shape goes unnoticed, because
# PyTorch's class does not look at it. The last masks differ in kind or in dtype:

# %%
kinds = given(*CROSS, PADDING, attn_mask=OTHER)
halves = given(*CROSS, attn_mask=FLOATS)
KINDS, DTYPE = "masks of two kinds", "a float mask of another dtype"
warned, cast = "both masks, with a warning", "the mask, cast"
table(
    (KINDS, "with weights", kinds, warned, "both masks"),
    (KINDS, "without weights", kinds, warned, "both masks"),
    (DTYPE, "with weights", halves, ERROR, cast),
    (DTYPE, "without weights", halves, ERROR, cast),
)

# %% [markdown]
# The remaining rows concern the module as part of a model: whether hooks on `out_proj` fire,
# whether PyTorch's encoder layer calls the module at all, and what the module accepts.


# %%
def fired(kind: type[nn.Module], how: str) -> str:
    """Say whether a hook on ``out_proj`` fires."""
    module, calls = ready(kind), []
    module.out_proj.register_forward_hook(lambda *_: calls.append(1))
    module(*CROSS)
    return "it fires" if calls else "it does not fire"


def called(kind: type[nn.Module], how: str) -> str:
    """Say whether PyTorch's encoder layer calls the module in inference."""
    layer = nn.TransformerEncoderLayer(24, 4, 30, batch_first=True).double().eval()
    calls: list[int] = []
    layer.self_attn = module = ready(kind).eval()
    forward = module.forward
    module.forward = lambda *args, **options: calls.append(1) or forward(*args, **options)
    with torch.no_grad():
        layer(QUERY)
    return f"{module._qkv_same_embed_dim}: " + ("called" if calls else "not called")


# %%
def scripted(kind: type[nn.Module], how: str) -> str:
    """Say whether TorchScript takes the module."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.jit.script(ready(kind))
        except Exception as error:
            return f"`{type(error).__name__}`"
    return "it runs"


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    ragged = torch.nested.nested_tensor([QUERY[0], QUERY[1, :2]])  # of lengths 4 and 2

# %%
nest = given(ragged, ragged, ragged)
narrow, single = given(QUERY[..., 1:], KEY, KEY), given(QUERY.float(), KEY, KEY)
FLAG, OLD, BAD = "`_qkv_same_embed_dim`", "nested tensors, TorchScript", "a bad argument"
FAILED, TYPE = "`AssertionError`", "`TypeError`"
table(
    ("`out_proj`", "a hook on it", fired, "it does not fire", "it fires"),
    (FLAG, "in an encoder layer", called, "True: not called", "False: called"),
    (OLD, "nested, without weights", nest, FAILED, TYPE),
    (OLD, "nested, without weights, in inference", nest, "it runs", TYPE),
    (OLD, "scripted", scripted, "it runs", ERROR),
    (BAD, "too narrow", narrow, FAILED, "`ValueError`"),
    (BAD, "float32", single, ERROR, TYPE),
)

# %% [markdown]
# `nn.TransformerEncoderLayer` reads `_qkv_same_embed_dim`. Where it is True, in inference the layer
# takes the module's parameters and computes without calling the module, so ours says False.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## Exercises
#
# ### Four shapes
#
# *Easy, 2 minutes.* Someone calls a module with 12 features and 3 heads, and leaves all other
# settings at their defaults:
#
#     attention = MultiheadAttention(12, 3)
#     output, weights = attention(query, key, key, padding)
#
# The query is `(7, 2, 12)`, the key `(9, 2, 12)`, and the padding mask `(2, 9)`. Write down four
# shapes.

# %% tags=["exercise"]
my_shapes = {
    "the queries of the heads": None,
    "the mask, merged": None,
    "the output": None,
    "the weights": None,
}

# %%
from annotated_attention import exercises

exercises.multihead_attention.check_shapes(my_shapes)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The default layout is `(n, b, e)`. Which of the three numbers is the batch?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The notes of [`forward`](#code-MultiheadAttention-forward) begin with the shapes. By default the
# weights are a mean over the heads.
#
# </details>

# %% tags=["solution"] jupyter={"source_hidden": true}
my_shapes = {
    "the queries of the heads": (2, 3, 7, 4),
    "the mask, merged": (2, 1, 1, 9),
    "the output": (7, 2, 12),
    "the weights": (2, 7, 9),
}

exercises.multihead_attention.check_shapes(my_shapes)

# %% [markdown]
# ### ALiBi
#
# *Medium, 15 minutes.* Attention does not know the positions of the words. ALiBi makes up for this
# by taking a little off each score for each step of distance [[Press et
# al.](../docs/references.md#press-2022)]. Query i and key j get their scaled score **minus** $s
# \cdot |i - j|$, and each head has its own slope $s$. With h heads, where h is a power of two,
# the first has the slope $2^{-8/h}$, the second $2^{-16/h}$, and so on; the last has $2^{-8}$. The
# slopes are not learned. Write ALiBi as a class that overrides `score`.


# %% tags=["exercise"]
class AlibiAttention(MultiheadAttention):
    """Attends less to what is further away, each head by a slope of its own."""

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        return super().score(q, k)  # change this


# %%
exercises.multihead_attention.check_alibi(AlibiAttention)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The distances form a matrix of shape `(n, m)`: `torch.arange(n)[:, None] - torch.arange(m)`,
# without the sign. Here n and m are the lengths of q and k, on axis -2. Pass `device=q.device` to
# each `arange`, or the class works only on the CPU.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The scores are `(b, h, n, m)`. Slopes of shape `(h, 1, 1)` broadcast, one to each head. For h = 4
# they are 1/4, 1/16, 1/64, 1/256.
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
class AlibiAttention(MultiheadAttention):
    """Attends less to what is further away, each head by a slope of its own."""

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        h, n, m = self.num_heads, q.size(-2), k.size(-2)
        heads = torch.arange(1, h + 1, dtype=q.dtype, device=q.device)      # (h,)
        slopes = 2.0 ** (-8 / h * heads)                                    # (h,)
        i = torch.arange(n, device=q.device)[:, None]                       # (n, 1)
        j = torch.arange(m, device=q.device)                                # (m,)
        return super().score(q, k) - slopes[:, None, None] * (i - j).abs()  # (b, h, n, m)


exercises.multihead_attention.check_alibi(AlibiAttention)

# %% [markdown]
# ### What a state_dict does not know
#
# *Medium, 10 minutes.* Write a function that takes any `nn.MultiheadAttention` and returns a module
# of our class with the same parameters and the same settings. The function below copies the
# parameters of a module that has default settings. What else does the new module have to know?


# %% tags=["exercise"]
def take_over(theirs: nn.MultiheadAttention) -> MultiheadAttention:
    """Make our module from PyTorch's."""
    ours = MultiheadAttention(theirs.embed_dim, theirs.num_heads)  # and what else?
    ours.load_state_dict(theirs.state_dict())
    return ours


# %%
exercises.multihead_attention.check_take_over(take_over)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Look at the arguments of `__init__`, and for each setting ask: would loading fail if this setting
# were wrong? If not, the setting is a dangerous one.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# PyTorch's module keeps most settings under their own names: `theirs.batch_first`, for example. It
# keeps no setting named `bias`: check whether `in_proj_bias` is None. Do the same with `bias_k`.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# Two things are easily missed: the dtype, which the module does not keep (look at a parameter), and
# whether the module is training, `theirs.training`.
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
def take_over(theirs: nn.MultiheadAttention) -> MultiheadAttention:
    """Make our module from PyTorch's."""
    weight = theirs.out_proj.weight
    ours = MultiheadAttention(
        theirs.embed_dim,
        theirs.num_heads,
        dropout=theirs.dropout,
        bias=theirs.in_proj_bias is not None,
        add_bias_kv=theirs.bias_k is not None,
        add_zero_attn=theirs.add_zero_attn,
        kdim=theirs.kdim,
        vdim=theirs.vdim,
        batch_first=theirs.batch_first,
        device=weight.device,
        dtype=weight.dtype,
    )
    ours.load_state_dict(theirs.state_dict())
    return ours.train(theirs.training)


exercises.multihead_attention.check_take_over(take_over)

# %% [markdown]
# ## What you have now
#
# Every line of the class is on this page, some of them in folds. You have put the class in place of
# PyTorch's, and you can change its score or the whole attention step.
#
# > **In short.** $\mathrm{MultiHead}(Q, K, V) = \mathrm{Concat}(\mathrm{head}_1, \ldots,
# > \mathrm{head}_h)\, W_O$, where $\mathrm{head}_i$ is
# > $\mathrm{Attention}(Q W_Q^i, K W_K^i, V W_V^i)$.
# >
# > Tokens `(n, b, e)`, heads `(b, h, n, d)`, masks at most `(b, h, n, m)`, weights `(b, n, m)` as a
# > mean over the heads.
# >
# > ```python
# > attention = MultiheadAttention(embed_dim, num_heads, batch_first=True)
# > output, _ = attention(x, x, x, padding, need_weights=False, is_causal=True)
# > ```
# >
# > The class projects, splits, attends, merges and projects again. A `state_dict` holds parameters
# > but no settings. So after every swap, compare the outputs for a batch of several sequences in
# > evaluation, and compare the setting `dropout` directly. Weights cost memory and time, so ask for
# > them only when you want to look at them. In training you get them after dropout.
#
# Attention alone is not yet a model. [The next chapter](08_transformer_layers.ipynb) wraps it in
# layers, with norms, residual connections, and a small network for each token.
