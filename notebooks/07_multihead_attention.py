# %% [markdown]
# # Multi-head attention
#
# *What is inside a class that can take PyTorch's place?*
#
# *19 minutes and 2 of exercises. Afterwards you can say what a class needs to take PyTorch's
# place, and change how this one scores or attends.*
#
# The first six chapters built the parts. Put together they make a class of 18 lines,
# `PlainAttention`, which is also the class of the [short path](short_path.ipynb). These lines are
# the whole computation. What a class needs besides, to take PyTorch's place, is an interface,
# options and edge cases, not another computation.
#
# You check that first. Then you put both classes into a model that somebody else has written, where
# the small one fails and the final one fits. At the end you see what its weights cost, and give it a
# score of your own.

# %% tags=["hide-input"]
from annotated_book import display

display.chapter_map(
    "project in", "split", "score", "mask", "softmax", "mix", "merge", "project out"
)

# %% [markdown] name="all-of-it-in-18-lines"
# ## All of it in 18 lines
#
# Begin with the constructor, which makes the four matrices, each as an `nn.Linear` with a bias.
# `split` and `merge` are the two moves from [The reshape trick](04_reshape_trick.ipynb). `forward`
# goes through the steps of the map above, and it uses the mask twice, as in
# [Masks](06_masks.ipynb#cell-id=fully-masked-rows): before the softmax and after it.

# %%
import torch
from torch import Tensor, nn

from annotated_attention import MultiheadAttention, masks
from annotated_book import chapters, display

PlainAttention = chapters.load("short_path").PlainAttention
display.source(PlainAttention)

# %% [markdown]
# Now give the same weights to the book's final class, `MultiheadAttention`. It stores them as
# PyTorch's class does: $W_Q$, $W_K$ and $W_V$ lie one below the other in one matrix,
# `in_proj_weight`. Both classes keep each $W$ transposed, so that $xW$ is `x @ weight.mT`, and the
# three can be stacked as they are. `functional_call` lends them to the final class for one call, so
# gradients flow back to the small class.
#
# Three queries look at five keys, in two samples, with four heads of width 6. In the second sample
# two keys are padding. Outputs, weights and all gradients must agree.

# %%
from torch.func import functional_call

b, n, m, h, d = 2, 3, 5, 4, 6
e = h * d
torch.manual_seed(7)
small = PlainAttention(e, h).double()
projections = [small.w_q, small.w_k, small.w_v]
weight = torch.cat([linear.weight for linear in projections])  # (3 * e, e)
bias = torch.cat([linear.bias for linear in projections])      # (3 * e,)
packed = {"in_proj_weight": weight, "in_proj_bias": bias}
packed |= {f"out_proj.{name}": x for name, x in small.w_o.named_parameters()}

# %%
query = torch.randn(b, n, e, dtype=torch.float64, requires_grad=True)  # (b, n, e)
key = torch.randn(b, m, e, dtype=torch.float64, requires_grad=True)    # (b, m, e)
value = torch.randn(b, m, e, dtype=torch.float64, requires_grad=True)  # (b, m, e)
padding = masks.block_padding(torch.tensor([5, 3]), m)                 # (b, m)

final = MultiheadAttention(e, h, batch_first=True, dtype=torch.float64)
by_head = {"average_attn_weights": False}  # the weights of each head, not their mean
of_final = functional_call(final, packed, (query, key, value, padding), by_head)
of_small = small(query, key, value, padding[:, None])  # (b, n, e), (b, h, n, m)
torch.testing.assert_close(of_final, of_small)

one = chapters.load("01_one_head")
inputs = [query, key, value, *small.parameters()]
gradients = one.gradients(of_final[0], inputs)
torch.testing.assert_close(gradients, one.gradients(of_small[0], inputs))
print(f"output, weights and {len(gradients)} gradients are equal")

# %% [markdown]
# The gradients are those of query, key, value, four weights and four biases. So the 18 lines are the
# whole computation. The final class adds an interface, options such as dropout, and edge cases, but
# no other computation.
#
# > **Pitfall.** The small class adds the axis for the heads itself, so `blocked` must be `(b, n, m)`,
# > or `(b, 1, m)` for padding. A bare causal mask, `(n, m)`, runs without an error when there are as
# > many words as heads. Head i then gets row i of the mask for all its queries, and words see the
# > future.

# %%
four = torch.randn(b, h, e, dtype=torch.float64)  # (b, h, e), as many words as heads
future = masks.block_future(h)                    # (h, h)
for mask in (future[None], future):
    _, weights = small(four, four, four, mask)  # (b, h, e), (b, h, h, h)
    print(f"{tuple(mask.shape)}: up to {weights[..., future].max():.2f} on a future word")
    assert weights[..., future].any() == (mask is future)

# %% [markdown] name="what-pytorchs-layer-asks-for"
# ## What PyTorch's layer asks for
#
# Now use the 18 lines in a model that somebody else has written: PyTorch's encoder layer, which is
# attention, followed by some steps that the [next chapter](08_transformer_layers.ipynb) explains.
# Its `state_dict`, which holds the parameters by name, serves as the checkpoint. Put the small
# class in the place of the layer's attention, load the checkpoint, and call the layer, in training
# and in evaluation.

# %%
torch.manual_seed(4)
x = torch.randn(b, n, e, dtype=torch.float64, requires_grad=True)  # (b, n, e)
width = 30  # of a small network in the layer, see the next chapter
layer = nn.TransformerEncoderLayer(e, h, width, dropout=0, batch_first=True).double()
before = layer(x)  # (b, n, e)
of_before = one.gradients(before, [x, *layer.parameters()])
checkpoint = layer.state_dict()

# %%
import textwrap

layer.self_attn = small
for attempt in (
    lambda: layer.load_state_dict(checkpoint),
    lambda: layer.train()(x),
    lambda: layer.eval()(x),
):
    try:
        attempt()
    except (RuntimeError, TypeError, AttributeError) as error:
        reason = str(error).splitlines()[-1].strip()
        print(textwrap.fill(f"{type(error).__name__}: {reason}", 60))

# %% [markdown]
# All three fail. The checkpoint holds packed matrices under PyTorch's names. In training the layer
# calls its attention with PyTorch's arguments, such as `attn_mask`, and in evaluation it first reads
# attributes. None of this is about the mathematics. A class that is to take PyTorch's place needs
# five things around it:
#
# - **parameters** with PyTorch's names and shapes;
# - **masks** for padding, `(b, m)`, and for pairs: `(n, m)`, or `(b * h, n, m)` with one for each head
#   of each sample. Both may be boolean or made of numbers that are added to the scores;
# - **three layouts**: `(n, b, e)` by default, `(b, n, e)` with `batch_first=True`, and `(n, e)` for a
#   single sequence;
# - **weights** only if they are asked for, and **dropout** in training;
# - **attributes** that the layer reads in evaluation. Where `_qkv_same_embed_dim` is True and no
#   gradients are needed, the layer may take the parameters and attend by itself, without calling
#   `forward`. The final class says False, so its `forward` always runs.
#
# ## The same steps in the final class
#
# The final class has all five. Here are the lines of its `forward` that take the steps of the small
# class: project, split, attend, merge, project out. One more step merges the masks.

# %% tags=["hide-input"]
forward = MultiheadAttention.forward
display.excerpts(
    project=(forward, "= self._project"),
    split=(forward, "q = split_heads", "k = split_heads", "v = split_heads"),
    masks=(forward, "self._prepare_masks"),
    attend=(forward, "self.attend(", "q, k, v, blocked="),
    **{"merge, project out": (forward, "output = ")},
)

# %% [markdown]
# `_project` multiplies by the three matrices. `_batch_first` brings each layout to `(b, n, e)`, and
# `_as_given` brings the merged heads back to the layout of the query. In `(b, ..., m, d)` read the dots
# as h; only [Fewer keys](20_fewer_keys.ipynb) changes that.
#
# `_prepare_masks` gives the masks the axes of the scores and merges them into two: `blocked` is
# boolean, and `bias` holds numbers to add. `is_causal=True` hides the future as well, so you need
# not make the [causal mask](06_masks.ipynb#cell-id=the-causal-mask) yourself; PyTorch's class wants this
# mask as `attn_mask`, beside the flag. `attend` does what stands between split and merge: score,
# mask, softmax and mix.

# %% [markdown]
# <!-- deeper: The whole of forward -->
# ### Going deeper: The whole of forward
#
# Around these steps, `forward` checks what it is given, adds keys and values if a setting asks for
# it, and returns the weights only on demand. A
# [fold](#cell-id=a-place-to-attend-when-nothing-matters) below shows what the added keys are
# good for. The methods with an underscore are on the page [The final class, line by
# line](../docs/package/line-by-line.md#the-steps-that-forward-calls).

# %% tags=["hide-input"]
display.source(MultiheadAttention.forward, docstrings=False)

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# The figure shows the shapes that were recorded while the class ran on the three queries and five
# keys. The five sizes all differ, so each number stands for one letter.

# %% tags=["fold-input"]
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


# %% tags=["fold-input"]
noting = Noting(e, h, dtype=torch.float64)
noting.out_proj.register_forward_hook(lambda _, x, made: note(merged=x[0], output=made))
given = [x.transpose(0, 1) for x in (query, key, value)]
_, returned = noting(*given, padding)
note(**dict(zip(("query", "key", "value"), given)), returned=returned)

# %% tags=["fold-input"]
PLACES = {
    "query": (0, 0),
    "key": (1, 0),
    "value": (2, 0),
    "q": (0, 1),
    "k": (1, 1),
    "v": (2, 1),
    "blocked": (0, 2),
    "scores": (1, 2),
    "weights": (1, 3),
    "returned": (1, 4),
    "heads": (2, 4),
    "merged": (2, 5),
    "output": (2, 6),
}
ARROWS = [
    ("query", "q", "project, split"),
    ("key", "k", ""),
    ("value", "v", ""),
    ("q", "scores", ""),
    ("k", "scores", "score"),
    ("scores", "weights", "mask, softmax"),
    ("blocked", "weights", ""),
    ("weights", "heads", ""),
    ("v", "heads", "mix"),
    ("weights", "returned", "mean"),
    ("heads", "merged", "merge"),
    ("merged", "output", "project out"),
]
LETTERS = {2: "b", 3: "n", 5: "m", 4: "h", 6: "d", 24: "h·d", 1: "1"}
display.flow(PLACES, ARROWS, SEEN, LETTERS, name="data-flow")

# %% [markdown]
# Blue boxes have the queries' axis n, green ones have the keys' axis m, and grey ones have both. The
# padding mask has become `(b, 1, 1, m)`: one row per sample, for all its heads and queries.

# %% [markdown] name="in-pytorchs-place"
# ## In PyTorch's place
#
# Now repeat the swap with the final class. One line replaces the module, and a second one loads the
# old parameters. Compare in training, and in evaluation without gradients.

# %%
layer.self_attn = MultiheadAttention(e, h, batch_first=True, dtype=torch.float64)
print(layer.load_state_dict(checkpoint))
after = layer.train()(x)  # (b, n, e)
torch.testing.assert_close(after, before)
of_after = one.gradients(after, [x, *layer.parameters()])
torch.testing.assert_close(of_after, of_before)
print(f"training: output and {len(of_after)} gradients are equal")

with torch.no_grad():
    torch.testing.assert_close(layer.eval()(x), before)
print("evaluation: output is equal")

# %% [markdown]
# The checkpoint fits, and neither the output nor a gradient has changed. A
# [table](../docs/package/line-by-line.md#where-it-differs-from-pytorchs) lists the corner cases in
# which the two classes differ.
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
# > `batch_first` or `num_heads`. It cannot reveal a wrong `dropout`, so check by hand that `dropout`
# > is the same.

# %% [markdown] name="the-three-lines-and-a-quicker-path"
# ## The three lines, and a quicker path
#
# The rest of the chapter is about the weights, and first about how they are made. Three functions
# of the package define what `attend` must compute, one for each step of $\mathrm{softmax}(q k^\top
# / \sqrt d)\, v$ with masks; `scale` is $1 / \sqrt d$.

# %% tags=["hide-input"]
from annotated_attention.attention import masked_softmax, mix, scaled_scores

display.excerpts(
    score=(scaled_scores, "return"),
    softmax=(masked_softmax, "added = m", "fully_masked =", "scores = ", "* ~fully"),
    mix=(mix, "F.dropout", "return"),
)

# %% [markdown]
# Two things differ from the small class. The scale goes to the queries, before the product. And a
# mask may hold numbers, so blocked keys are turned into $-\infty$, and one addition serves both
# kinds. An added mask needs another cure for fully masked rows: the package leaves them unmasked in
# the softmax, so that no NaN arises, and sets their weights to 0 afterwards. A [fold in
# *Masks*](06_masks.ipynb#cell-id=other-cures) shows why.
#
# Most calls take a quicker path to the same result. Without weights it is PyTorch's **fused kernel**,
# which does not store the `(n, m)` weights as long as dropout is off. With weights, a softmax of the
# package writes its result over the scores. You have checked both: the first comparison asked for
# weights, and PyTorch's layer does not. The package's tests compare them with the three lines,
# gradients included.
#
# ## The weights, and what they cost
#
# Load the animal head and the food head of [Two heads](02_two_heads.ipynb#cell-id=two-questions-at-once) into
# the class. As in PyTorch's class, the matrices of both heads lie side by side, first $W_Q$, then
# $W_K$, then $W_V$, and all of it transposed, which is what `load_pair` does.

# %%
two = chapters.load("02_two_heads")
words = one.EMBEDDINGS  # (8, 4)
it = one.WORDS.index("it")


def load_pair(kind: type = MultiheadAttention, **options) -> nn.Module:
    """Make a module of width 4 with the animal head and the food head."""
    module = kind(4, 2, bias=False, **options)
    wide = torch.cat([w for both in zip(*two.HEADS) for w in both], 1)  # (4, 12)
    module.load_state_dict({"in_proj_weight": wide.mT, "out_proj.weight": two.W_O.mT})
    return module


_, mean = load_pair()(words, words, words)             # (8, 4), (8, 8)
_, each = load_pair()(words, words, words, **by_head)  # (8, 4), (2, 8, 8)
rows = torch.stack([each[0, it], each[1, it], mean[it]])
one.show(one.WORDS, ["animal head", "food head", "mean"], rows.mT)

# %% [markdown]
# The animal head gives 0.46 each to *cat* and *thirsty*, as it did there, and the food head gives
# *milk* 0.80. By default you get the mean over the heads, which does not tell which head looked
# where, so ask for `average_attn_weights=False`.
#
# Returning the weights is also the default, and it has a price: the `(n, m)` matrices of all heads
# are kept until the gradient has been computed. Suppose you double the number of tokens. By what
# factor do the kept bytes grow with weights, and by what factor without: two, four, or eight?
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
def count_kept(n: int, need_weights: bool) -> int:
    """Count the bytes that a call on n tokens keeps for its gradient."""
    sizes: dict[int, int] = {}

    def count(x: Tensor) -> Tensor:
        sizes[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    module = MultiheadAttention(64, 8)
    x = torch.randn(n, 1, 64)
    with torch.autograd.graph.saved_tensors_hooks(count, lambda x: x):
        module(x, x, x, need_weights=need_weights)
    return sum(sizes.values())


print("   n   with weights   without")
for length in (256, 512, 1024):
    print(f"{length:4} {count_kept(length, True):14,} {count_kept(length, False):9,}")

# %% [markdown]
# From 512 to 1024 tokens the middle column grows almost fourfold, and the last one almost doubles.
# Weights take time, too; [Speed](13_speed.ipynb) measures how much. So pass `need_weights=False`
# unless you want to look at them.

# %% [markdown] name="dropout"
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
dropping = load_pair(dropout=0.5)
dropped = dropping(words, words, words, **by_head)[1]  # (2, 8, 8)
torch.testing.assert_close(dropped[dropped > 0], 2 * each[dropped > 0])

many = words[:, None].expand(-1, 4000, -1)                      # (8, 4000, 4)
draws = dropping(many, many, many, **by_head)[1]                # (4000, 2, 8, 8)
evaluated = dropping.eval()(words, words, words, **by_head)[1]  # (2, 8, 8)
rows = torch.stack([dropped[0], draws[:, 0].mean(0), evaluated[0]])
one.show(one.WORDS, ["one draw", "mean of 4000", "evaluation"], rows.sum(-1).mT)

# %% [markdown]
# Each number is the sum of a word's weights in the animal head. In one draw the sums vary, over many
# draws they average about one, and in evaluation nothing is dropped. The weights that you get back
# are the ones that mixed the values, after dropout, as in PyTorch's class. So call `.eval()` before
# you look at weights.

# %% [markdown] name="a-score-of-your-own"
# ## A score of your own
#
# You can change the class in two places: how a key is compared with a query, or the whole step between
# split and merge.
#
# | method | what it is given | what it returns |
# |---|---|---|
# | `score(q, k)` | queries `(b, h, n, d)` and keys `(b, h, m, d)` | scores `(b, h, n, m)`, before masks and softmax |
# | `attend(q, k, v, **options)` | also the values `v`; in the options: `blocked`, `bias`, `is_causal`, `need_weights` | what the heads collect, `(b, h, n, d)`, and the weights or None |
#
# This class overrides `score`. The closer a key is to the query, the higher its score, $-\lVert q -
# k \rVert^2 / (2 \sqrt d)$. Multiplied out, this is $q \cdot k / \sqrt d$, the usual score, minus
# $\lVert k \rVert^2 / (2 \sqrt d)$, minus a term of the query alone, which the softmax ignores.


# %%
class DistanceAttention(MultiheadAttention):
    """Attends to the keys that are nearest."""

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        squares = (q[..., :, None, :] - k[..., None, :, :]).square().sum(-1)  # (b, h, n, m)
        return -squares / (2 * self.head_dim**0.5)                            # (b, h, n, m)


_, near = load_pair(DistanceAttention)(words, words, words, **by_head)  # (8, 4), (2, 8, 8)
rows = torch.stack([each[0, it], near[0, it]])                          # (2, 8)
one.show(one.WORDS, ["by product", "by distance"], rows.mT)

layer.self_attn = DistanceAttention(e, h, batch_first=True, dtype=torch.float64)
layer.load_state_dict(checkpoint)
own = layer.train()(x)  # (b, n, e)
with torch.no_grad():
    torch.testing.assert_close(layer.eval()(x), own)
assert not own.allclose(before)
print("in PyTorch's layer: the same score in training and in evaluation")

# %% [markdown]
# You can check this with a pencil. In the animal head the query of *it* is (2, 1). The key of
# *thirsty*, (2, 2), and that of *it* itself, (1, 1), are at the squared distance 1, and *cat*, with
# (3, 0), is at 2. So *cat* no longer ties with *thirsty*: a key's own length now counts against it.
#
# A class that overrides `score` never uses the quicker paths, which would ignore the new score, not
# even in PyTorch's layer in evaluation, as the last lines check. The price is that
# `need_weights=False` saves such a class hardly any memory.
#
# To change more than the score, override `attend`. This class silences one head, which is how you
# find out what that head is good for.


# %%
class WithoutHead(MultiheadAttention):
    """Silences one head."""

    silent: int

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **options):
        heads, weights = super().attend(q, k, v, **options)
        kept = torch.arange(self.num_heads, device=q.device) != self.silent  # (h,)
        return heads * kept[:, None, None], weights


collected = {"both": load_pair()(words, words, words)[0][it]}
for silent, name in enumerate(("animal", "food")):
    module = load_pair(WithoutHead)
    module.silent = silent
    collected[f"without {name} head"] = module(words, words, words)[0][it]
one.show([*collected], one.FEATURES, torch.stack([*collected.values()]))

# %% [markdown]
# This $W_O$ writes what the animal head has collected under *animal*, and what the food head has
# collected under *food*. So each number disappears with its own head.

# %% [markdown] name="a-place-to-attend-when-nothing-matters"
# <!-- deeper: A place to attend when nothing matters -->
# ### Going deeper: A place to attend when nothing matters
#
# Weights add up to one, so a query must take something from some key, whether or not any key has
# what the query wants. `add_zero_attn` appends a key and a value of zeros to every sequence, and
# `add_bias_kv` appends a learned pair. Both give the query somewhere to look when there is nothing
# to see.
#
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
from annotated_book import exercises

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
# The comments in `forward` and the figure below it show the shapes. By default the weights are a
# mean over the heads.
#
# </details>

# %% tags=["solution"]
my_shapes = {
    "the queries of the heads": (2, 3, 7, 4),
    "the mask, merged": (2, 1, 1, 9),
    "the output": (7, 2, 12),
    "the weights": (2, 7, 9),
}

exercises.multihead_attention.check_shapes.folded(my_shapes)

# %% [markdown]
# ## More exercises
#
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


# %% tags=["solution"]
class AlibiAttention(MultiheadAttention):
    """Attends less to what is further away, each head by a slope of its own."""

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        h, n, m = self.num_heads, q.size(-2), k.size(-2)
        heads = torch.arange(1, h + 1, dtype=q.dtype, device=q.device)      # (h,)
        slopes = 2.0 ** (-8 / h * heads)                                    # (h,)
        i = torch.arange(n, device=q.device)[:, None]                       # (n, 1)
        j = torch.arange(m, device=q.device)                                # (m,)
        return super().score(q, k) - slopes[:, None, None] * (i - j).abs()  # (b, h, n, m)


exercises.multihead_attention.check_alibi.folded(AlibiAttention)

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


# %% tags=["solution"]
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


exercises.multihead_attention.check_take_over.folded(take_over)

# %% [markdown]
# ## What you have now
#
# > **In short.** $\mathrm{MultiHead}(Q, K, V) = \mathrm{Concat}(\mathrm{head}_1, \ldots,
# > \mathrm{head}_h)\, W_O$, where $\mathrm{head}_i$ is
# > $\mathrm{Attention}(Q W_Q^i, K W_K^i, V W_V^i)$.
# >
# > The tokens are `(n, b, e)` by default and become heads `(b, h, n, d)`. A mask is broadcast to
# > `(b, h, n, m)`. The weights come back as a mean over the heads, `(b, n, m)`.
# >
# > ```python
# > attention = MultiheadAttention(embed_dim, num_heads, batch_first=True)
# > output, _ = attention(x, x, x, padding, need_weights=False, is_causal=True)
# > ```
# >
# > A `state_dict` holds parameters but no settings. So after every swap, compare the outputs for a
# > batch of several sequences in evaluation, and check by hand that `dropout` is the same. Weights
# > cost memory and time, so ask for them only when you want to look at them.
#
# Attention alone is not yet a model. [The next chapter](08_transformer_layers.ipynb) wraps it in
# layers, with norms, residual connections, and a small network for each token.
