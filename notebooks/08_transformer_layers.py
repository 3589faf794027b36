# %% [markdown]
# # Transformer layers
#
# *What does attention need around it before it can be repeated?*
#
# *21 minutes and 8 of exercises. Afterwards you can write encoder and decoder layers, and say
# where norms go and when training needs warm-up.*
#
# A single attention module lets each word collect from the others once. A model repeats this many
# times, so that a word can build on what its neighbours have already collected. But attention on
# its own cannot be repeated: after a few rounds all words are the same, as you will soon see. A
# **Transformer layer** puts three things around it.
#
# Think of each word as a page of notes. Attention collects lines from the other pages and *adds*
# them to this one without erasing anything: that is the **residual connection**. Then a small
# network reads each page by itself and adds what follows from it: the **feed-forward network**.
# Each round leaves the numbers on the pages larger, so a **norm** brings them back to one size: on the
# page itself, as in the first Transformer, or in the copy that is read, as in most models today.
#
# In this chapter you write such a layer, and then one that also looks at a second sequence, for a
# model that reads one text and writes another. Then you compare training runs with the norm in two
# places: where the first Transformer had it, and where most models have it today.

# %% tags=["fold-input"]
import copy
import itertools
import json
from importlib import resources

import torch
from torch import Tensor, nn

from annotated_attention import (
    MultiheadAttention,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
    block_padding,
)
from annotated_book import chapters, display

# %% [markdown] name="attention-alone-forgets"
# ## Attention alone forgets
#
# In [One head](01_one_head.ipynb), *it* collected the features of *cat* and *thirsty*. Should these
# numbers replace the word, or be added to it? Replaced, *it* would forget what it was; added to, it
# keeps its own features and gains those of *cat*. Try both on the eight words of the sentence,
# which a random matrix first expands to a width of e = 24. They pass through eight attention
# modules, one after the other, each with random matrices of its own.

# %%
one = chapters.load("01_one_head")
torch.manual_seed(8)
widen = nn.Linear(4, 24)
sentence = widen(one.EMBEDDINGS)[None].detach()  # (b, n, e)
print("one sentence, eight words, e = 24:", tuple(sentence.shape))

# %% [markdown]
# To see whether the words stay distinguishable, split the numbers into two parts: the mean over the
# eight words, which all of them share, and each word's difference from that mean. The function
# measures how large the second part is, as a share of the whole.


# %%
def apart(x: Tensor) -> float:
    """Measure which share of the numbers differs from word to word; 0 means none.

    Args:
        x: (b, n, e), the words.
    """
    mean = x.mean(1, keepdim=True)  # (b, 1, e)
    return ((x - mean).norm() / x.norm()).item()


print(f"at the start: {apart(sentence):.2f}")

# %% [markdown]
# Now replace each word by the attention's output, eight times. How much do the words still differ
# after the last module: as much as at the start, about half as much, or hardly at all?
#
# <details><summary>What do you expect?</summary>
#
# Hardly at all. The weights of a word are positive and add up to one, so what the word collects is
# an average of all words. Averages differ less from each other than the things averaged. The next
# module finds the words nearly alike and gives them nearly equal weights, so that its averages are
# almost the same for every word.
#
# </details>
#
# (From here on, `MultiheadAttention` is the package's: your class with PyTorch's names. Its fourth argument is the
# padding, `(b, n)`, `is_causal=True` makes the staircase, and the weights come averaged over the heads.)

# %%
replaced, added, shares = sentence, sentence, {}
for depth in range(1, 9):
    attention = MultiheadAttention(24, 4, batch_first=True)
    replaced = attention(replaced, replaced, replaced)[0]  # (b, n, e)
    added = added + attention(added, added, added)[0]      # (b, n, e)
    if depth in (1, 2, 4, 8):
        shares[depth] = [apart(replaced), apart(added)]
display.show(shares, columns=["replaced", "added"], decimals=(6, 2), corner="modules")

# %% [markdown]
# In the left column, the words are all the same after a few modules. The scores of these untrained
# modules are small, so the weights are nearly equal; and the outputs shrink, which makes the next
# scores smaller still. Larger scores slow this down. [Dong et al.](../docs/references.md#dong-2021)
# showed that with any number of heads the words come together faster with each module. In the right
# column each word keeps what it was, and attention adds to it. The share that the words have in
# common grows here, too, but slowly. Adding to x instead of replacing it is called a **residual
# connection** [[He et al.](../docs/references.md#he-2016)], and the module that computes what is
# added is called a **sublayer**.
#
# The sum that passes from sublayer to sublayer is also called the **residual stream**. A page can
# always take another line. The stream cannot: it has e numbers, and all that is ever added has to
# share them.
#
# ## The feed-forward network
#
# What is left to do, once a word has collected? Attention mixes what stands in the words. It cannot draw a
# conclusion from it: that *it* has found *cat* and *thirsty*, say, and so wants a drink. That is the work of
# the second sublayer, a small network with two linear layers. The first asks each word many questions at
# once, one per row of its matrix. A ReLU, which replaces negative numbers with zero, drops those whose answer
# is no. And each that is left adds a vector of its own to the word.
#
# How many questions? The paper has four times as many as the word has numbers, 2048 for 512 [[Vaswani et
# al., section 3.3<!-- quoted -->](../docs/references.md#vaswani-2017)], and gives no reason. Most models
# kept to something like it. It makes this network the larger part of the layer: 8e² parameters, twice the
# 4e² of attention.

# %%
feed_forward = nn.Sequential(nn.Linear(24, 96), nn.ReLU(), nn.Linear(96, 24))
print(tuple(feed_forward(sentence).shape))

# %% [markdown]
# Which words does each sublayer reach? Change one word of the sentence, *cat*,
# and look at what comes out for all eight. Which rows change after an attention module (the last
# one in the loop above), and which after the feed-forward network: all of them, or only the row of
# *cat*?
#
# <details><summary>What do you expect?</summary>
#
# After attention, all rows have changed, because every word collects a little from *cat*. After
# the feed-forward network, only the row of *cat* has changed. A linear layer multiplies along the
# last axis, the features of one word, and so does everything in this network.
#
# </details>

# %%
changed = sentence.clone()
changed[0, one.WORDS.index("cat")] += 1

rows = {}
for name, sublayer in (
    ("attention", lambda x: attention(x, x, x)[0]),
    ("feed-forward", feed_forward),
):
    reacts = (sublayer(changed) - sublayer(sentence)).norm(dim=-1)[0]  # (n,)
    rows[name] = (reacts > 1e-6).tolist()
display.show(rows, columns=one.WORDS)

# %% [markdown]
# *Yes* stands where a row changed. Attention moves information between words. The feed-forward
# network never does: it works on what each word has collected. Between its two layers stands
# the ReLU. Without the ReLU, two linear layers would be no more than one linear layer.

# %% [markdown] name="the-norm"
# ## The norm
#
# Every sublayer adds to the stream. What does that do to the size of its numbers? Let the sentence pass
# through 24 pairs of attention and feed-forward network that only add, with matrices drawn as
# `torch.nn.Transformer` draws them. Will the standard deviation of the stream be twice as large at the end, ten
# times, or a hundred times?

# %%
stream, sizes = sentence, {"size of the stream": [sentence.std()]}
for depth in range(1, 25):
    attention = MultiheadAttention(24, 4, batch_first=True)
    network = nn.Sequential(nn.Linear(24, 96), nn.ReLU(), nn.Linear(96, 24))
    for linear in (network[0], network[2]):
        nn.init.xavier_uniform_(linear.weight)
    stream = stream + attention(stream, stream, stream)[0]  # (b, n, e)
    stream = stream + network(stream)                       # (b, n, e)
    if depth in (1, 6, 12, 24):
        sizes["size of the stream"].append(stream.std())
display.show(sizes, columns=[0, 1, 6, 12, 24], decimals=1, corner="after pairs")

# %% [markdown]
# More than a hundred times. Each sublayer adds in proportion to what it reads, so the numbers grow faster and
# faster. (How fast depends on how the matrices are drawn.) Large features make large scores. With large
# scores the softmax gives nearly all the weight to one word, and [hardly any gradient passes
# through it](01_one_head.ipynb#cell-id=deeper-why-divide-by-the-root). A **layer norm** [[Ba et
# al.](../docs/references.md#ba-2016)] brings the numbers back to one size. For each word it
# subtracts the mean of the word's features and divides by their standard deviation:
#
# $$\mathrm{LayerNorm}(x) = \frac{x - \mathrm{mean}(x)}{\sqrt{\mathrm{var}(x) + \varepsilon}} \cdot g + s$$
#
# The small number ε protects against a division by zero. Scale $g$ and shift $s$ are learned, one
# number per feature, and start at 1 and 0. Compute the norm by hand and compare it with PyTorch's:

# %%
x = 7 * sentence + 3                                # (b, n, e)
centred = x - x.mean(-1, keepdim=True)              # (b, n, e)
variance = centred.square().mean(-1, keepdim=True)  # (b, n, 1)
by_hand = centred / (variance + 1e-5).sqrt()        # (b, n, e)

cat = one.WORDS.index("cat")
rows = torch.stack([x[0, cat], by_hand[0, cat]])                  # (2, e)
sizes = torch.stack([rows.mean(-1), rows.std(-1, correction=0)])  # (2, 2)
display.show(sizes.T, ["cat, before", "cat, after"], ["mean", "standard deviation"])

# %% tags=["proof"]
torch.testing.assert_close(nn.LayerNorm(24)(x), by_hand)
print("✓ PyTorch's layer norm gives the same numbers, for every word.")

# %% [markdown]
# The mean and the variance are taken over the features of one word, never over words or samples. So
# it makes no difference what stands next to the word, even if it is padding.
#
# ### With a pencil: a norm
#
# *Easy, 2 minutes.* In the first chapter *thirsty* was `(2, 0, 0, 2)`. Suppose that some layers
# have doubled it to `(4, 0, 0, 4)`. Which four numbers does a layer norm turn this into, with
# $g$ = 1, $s$ = 0, and ε too small to matter?

# %% tags=["exercise"]
my_norm = [None, None, None, None]  # animal, food, action, quality

# %%
from annotated_book import exercises

exercises.transformer_layers.check_norm(my_norm)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The mean of the four numbers is 2. Subtract it from each of them.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# The variance is the mean of the four squares of what you have now. Divide by its root.
#
# </details>

# %% tags=["solution"]
mean, deviation = 2, 2  # the squares are 4, 4, 4, 4; their mean is 4, and its root 2
my_norm = [(number - mean) / deviation for number in (4, 0, 0, 4)]

exercises.transformer_layers.check_norm.folded(my_norm)

# %% [markdown] name="the-layer-of-the-paper"
# ## The layer of the paper
#
# Put the parts together as the first Transformer does [[Vaswani et al., section 3.1<!-- quoted
# -->](../docs/references.md#vaswani-2017)]: sublayer, then add, then normalise the sum. Since the
# norm comes after the sum, this order is called **post-LN**. Most models today have the norm in front
# of the sublayer, which is called **pre-LN**. Follow the stream, the thick green line: with post-LN
# it runs through every norm, with pre-LN past all of them.

# %% tags=["fold-input"]
PARTS = {
    "self_attn": "self-attention",
    "multihead_attn": "cross-attention",
    "linear1": "feed-forward",
    **dict.fromkeys(("norm1", "norm2", "norm3"), "norm"),
}
ORDERS = {"post-LN": False, "pre-LN": True}


def ran(layer: nn.Module, *inputs: Tensor) -> list[str]:
    """Note the parts of a layer in the order in which they run."""
    noted: list[str] = []
    for part, module in layer.named_children():
        if part in PARTS:
            module.register_forward_hook(lambda *_, part=part: noted.append(PARTS[part]))
    layer(*inputs)
    return noted


layers = {
    f"encoder layer, {name}": ran(
        TransformerEncoderLayer(24, 4, 96, norm_first=norm_first), sentence
    )
    for name, norm_first in ORDERS.items()
}
display.layers(layers, name="norm-place")

# %% [markdown]
# Here is the first one. The parts are named as in PyTorch, so that weights can be exchanged.
# Dropout, random zeros during training, is left out. `padding` is the padding mask of
# [Masks](06_masks.ipynb), `(b, n)`, for a batch whose sentences differ in length.


# %%
class EncoderLayer(nn.Module):
    """Attention and a feed-forward network, a norm after each sum."""

    def __init__(self, embed_dim: int, num_heads: int, wide: int) -> None:
        super().__init__()
        self.self_attn = MultiheadAttention(embed_dim, num_heads, batch_first=True)
        self.linear1, self.linear2 = nn.Linear(embed_dim, wide), nn.Linear(wide, embed_dim)
        self.norm1, self.norm2 = nn.LayerNorm(embed_dim), nn.LayerNorm(embed_dim)

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.linear1(x).relu())

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        x = self.norm1(x + self.self_attn(x, x, x, padding)[0])
        return self.norm2(x + self.feed_forward(x))


print(tuple(EncoderLayer(24, 4, 96)(sentence).shape))

# %% [markdown]
# The output has the shape of the input, so layers can be stacked. The paper stacks six of them.

# %% [markdown] name="in-front-of-the-sublayer"
# ### In front of the sublayer
#
# The second one has the same parts. Its norm works on the copy that a sublayer reads:


# %%
class PreNormLayer(EncoderLayer):
    """The same parts, with the norms in front of the sublayers."""

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        normed = self.norm1(x)
        x = x + self.self_attn(normed, normed, normed, padding)[0]
        return x + self.feed_forward(self.norm2(x))


display.diff(EncoderLayer.forward, PreNormLayer.forward)

# %%
post_layer, pre_layer = EncoderLayer(24, 4, 96), PreNormLayer(24, 4, 96)
print(pre_layer.load_state_dict(post_layer.state_dict()))
post, pre = post_layer(sentence), pre_layer(sentence)
print(f"outputs of size {post.std():.2f} differ by up to {(pre - post).abs().max():.2f}")

# %% [markdown]
# > **Pitfall.** The weights of a post-LN layer load into a pre-LN layer, and nothing complains. The
# > outputs are wrong.

# %% [markdown] name="deeper-the-same-as-pytorchs"
# <!-- deeper: The same as PyTorch's -->
# ### Going deeper: The same as PyTorch's
#
# `torch.nn.TransformerEncoderLayer` offers both orders through `norm_first`, and so does the
# package's layer. Give these two and yours the same weights: outputs and gradients agree.

# %% tags=["proof"]
b, n, e = 2, 3, 24
x = torch.randn(b, n, e, dtype=torch.float64, requires_grad=True)  # (b, n, e)
for kind, norm_first in ((EncoderLayer, False), (PreNormLayer, True)):
    ours = kind(24, 4, 96).double()
    for others in (nn.TransformerEncoderLayer, TransformerEncoderLayer):
        settings = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first}
        layer = others(24, 4, 96, **settings, dtype=torch.float64)
        layer.load_state_dict(ours.state_dict())
        found, expected = ours(x), layer(x)  # (b, n, e)
        torch.testing.assert_close(found, expected)
        pairs = [(found, [x, *ours.parameters()]), (expected, [x, *layer.parameters()])]
        torch.testing.assert_close(*(one.gradients(*pair) for pair in pairs))
assert [ran(each, sentence) for each in (post_layer, pre_layer)] == [*layers.values()]
print("✓ Both layers give what PyTorch's and the package's give: outputs and gradients.")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# <!-- deeper: Copies are equal -->
# ### Going deeper: Copies are equal
#
# PyTorch makes a stack by copying one layer, and so does the package. Are the layers different when
# training starts?

# %% tags=["fold-input"]
pattern = nn.TransformerEncoderLayer(24, 4, 48, batch_first=True)
ours = TransformerEncoderLayer(24, 4, 48)
stacks = {
    "copied by hand": [copy.deepcopy(pattern) for _ in range(3)],
    "torch.nn.TransformerEncoder": nn.TransformerEncoder(pattern, 3).layers,
    "torch.nn.Transformer": nn.Transformer(
        24, 4, 3, 3, 48, batch_first=True
    ).encoder.layers,
    "ours": TransformerEncoder(ours, 3).layers,
    "ours, reset": TransformerEncoder(ours, 3, reset_parameters=True).layers,
}
first, second = zip(*([layer.linear1.weight for layer in x[:2]] for x in stacks.values()))
apart_by = (torch.stack(first) - torch.stack(second)).abs().amax((1, 2))  # (5,)
display.show(apart_by[:, None], [*stacks], ["layers 1 and 2 differ by"])

# %% [markdown]
# > **Pitfall.** `copy.deepcopy` copies numbers and draws no new ones. The layers of a stack made by
# > copying start with equal weights, in PyTorch's `TransformerEncoder` and in ours.
#
# The whole `Transformer` draws every matrix anew after copying. A stack on its own keeps the
# numbers, since the layer may already be trained, unless you pass `reset_parameters=True`.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="the-decoder-layer"
# ## The decoder layer
#
# So far one sequence has attended to itself: an **encoder** reads a sentence. A **decoder** writes
# one, for instance a translation, word by word. What is read is called the **source**, `src`, and
# what is written the **target**, `tgt`. The layer has two attention modules. The first is
# self-attention over what is written so far, under a causal mask. The second is **cross-attention**:
# it looks at what the encoder has read. The encoder's output is called the **memory**, one row per
# word that was read. Together with the feed-forward network, that makes three sublayers.
#
# In cross-attention, who asks and who answers? The words written so far ask, so **the queries
# come from the decoder**. The words that were read answer, so **keys and values come from the
# memory**. In the drawing, the memory enters from the side:

# %% tags=["fold-input"]
drawn = ran(TransformerDecoderLayer(24, 4, 96), sentence, sentence)
display.layers({"decoder layer, post-LN": drawn}, name="decoder-layer")

# %% [markdown]
# Your encoder layer has most of this already. Add an attention and a norm, and read `forward` beside the
# drawing, a line for each sublayer. PyTorch's name for the cross-attention is `multihead_attn`.


# %%
class DecoderLayer(EncoderLayer):
    """The parts of an encoder layer, and an attention that looks at what was read."""

    def __init__(self, embed_dim: int, num_heads: int, wide: int) -> None:
        super().__init__(embed_dim, num_heads, wide)
        self.multihead_attn = MultiheadAttention(embed_dim, num_heads, batch_first=True)
        self.norm3 = nn.LayerNorm(embed_dim)

    def forward(self, x: Tensor, memory: Tensor, padding: Tensor | None = None) -> Tensor:
        x = self.norm1(x + self.self_attn(x, x, x, is_causal=True)[0])
        x = self.norm2(x + self.multihead_attn(x, memory, memory, padding)[0])
        return self.norm3(x + self.feed_forward(x))


# %% [markdown]
# For example, suppose a decoder shortens our sentence to *the cat was thirsty* and has
# written *the cat was* so far: n = 3. The sentence itself and two rows of padding stand in for the
# encoder's output: m = 10. Run the layer, then its two attentions alone, and look at the shapes of
# the weights.

# %%
torch.manual_seed(8)
b, n, m, e = 1, 3, 10, 24
written = sentence[:, [0, 1, 6]]                          # (b, n, e)
memory = torch.cat([sentence, torch.randn(1, 2, 24)], 1)  # (b, m, e)
layer = DecoderLayer(24, 4, 96)
back = layer.self_attn(written, written, written, is_causal=True)[1]  # (b, n, n)
across = layer.multihead_attn(written, memory, memory)[1]             # (b, n, m)
print("output", tuple(layer(written, memory).shape))
print("weights", tuple(back.shape), "and", tuple(across.shape))

# %% [markdown]
# The output is as long as the target. In the self-attention the three words look at each
# other; in the cross-attention they look at the ten rows of the memory.

# %% [markdown]
# <!-- deeper: The same as PyTorch's decoder -->
# ### Going deeper: The same as PyTorch's decoder
#
# The package's layer has the choice between the orders, dropout and more masks. A call checks its arguments;
# then each sublayer goes through `_residual`, which adds and normalises in one of the two orders. In training,
# dropout zeroes some of the numbers that a sublayer adds, as in the paper; as in PyTorch's layer, it also zeroes
# attention weights and numbers inside the feed-forward network.

# %%
display.source(TransformerDecoderLayer._residual)

# %%
display.annotated(TransformerDecoderLayer.forward)

# %% [markdown]
# Compare outputs and gradients: yours, the package's and PyTorch's, with both masks and with sizes that all differ.

# %% tags=["proof"]
b, n, m, e = 2, 3, 5, 24
tgt = torch.randn(b, n, e, dtype=torch.float64, requires_grad=True)     # (b, n, e)
memory = torch.randn(b, m, e, dtype=torch.float64, requires_grad=True)  # (b, m, e)
blocked = block_padding(torch.tensor([2, 5]), m)                        # (b, m)
causal = nn.Transformer.generate_square_subsequent_mask(n, dtype=torch.float64)
masks = {"tgt_mask": causal, "memory_key_padding_mask": blocked}
own = DecoderLayer(e, 4, 48).double()
for norm_first in (False, True):
    settings = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first}
    theirs = nn.TransformerDecoderLayer(e, 4, 48, **settings, dtype=torch.float64)
    ours = TransformerDecoderLayer(e, 4, 48, **settings, dtype=torch.float64)
    calls = [(theirs, masks), (ours, masks)]
    calls += [] if norm_first else [(own, {"padding": blocked})]
    found = []
    for each, given in calls:
        each.load_state_dict(theirs.state_dict())
        output = each(tgt, memory, **given)  # (b, n, e)
        parts = [part for _, part in sorted(each.named_parameters())]
        found.append((output, *one.gradients(output, [tgt, memory, *parts])))
    for other in found[1:]:
        torch.testing.assert_close(other, found[0])
assert ran(own.float(), sentence, sentence) == drawn
print(f"✓ Outputs and gradients are the same: {len(found[0])} tensors each.")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="which-mask-goes-where"
# ## Which mask goes where
#
# Each attention has its own masks. The causal mask belongs to the self-attention: when *cat* is
# written, *was* does not exist yet. The cross-attention needs no causal mask, since the whole
# source is there from the beginning. It gets the padding mask of the source instead. The table has
# the names in PyTorch's classes and in the package's:
#
# | mask | shape | argument | why |
# |---|---|---|---|
# | causal | `(n, n)` | `tgt_mask`; in this package `tgt_is_causal=True` alone is enough; PyTorch wants the mask as well | hides words that are not written yet |
# | padding of the target | `(b, n)` | `tgt_key_padding_mask` | hides padding on the left from the self-attention; padding on the right is already hidden by the causal mask |
# | padding of the source | `(b, m)` | `src_key_padding_mask` in the encoder | hides padding from the encoder |
# | padding of the source, again | `(b, m)` | `memory_key_padding_mask` in the decoder | hides it from the cross-attention |
# | any pairs | `(n, m)` | `memory_mask` | hides words of the source from some words of the target; seldom needed |
#
# The padding mask of the source is needed twice. What happens if you forget it in the decoder?
# Differentiate the output: how strongly does it react to each row of the memory, with the mask and
# without it?

# %%
b, n, m, e = 1, 3, 10, 24
memory = torch.cat([sentence, torch.randn(1, 2, 24)], 1).requires_grad_()  # (b, m, e)
padding = block_padding(torch.tensor([8]), m)                              # (b, m)
reacts = {}
for name, given in (("given", padding), ("forgotten", None)):
    output = layer(written, memory, given)                             # (b, n, e)
    reacts[name] = one.gradients(output, [memory])[0].norm(dim=-1)[0]  # (m,)
rows = {name: [sizes[:8].mean(), sizes[8:].mean()] for name, sizes in reacts.items()}
display.show(rows, columns=["reacts to words", "to padding"], corner="the mask is")

# %% tags=["proof"]
assert reacts["given"][8:].eq(0).all()
assert reacts["forgotten"][8:].gt(0).all()
print("✓ With the mask the output reacts to no row of padding, without it to both.")

# %% [markdown]
# > **Pitfall.** If you forget `memory_key_padding_mask`, nothing fails, but the output depends on
# > padding: here more on a row of padding (random numbers) than on the row of a word.

# %% [markdown] name="why-the-norm-moved"
# ## Why the norm moved
#
# Does it matter where the norm stands? Ask training runs. The paper begins with small steps: it raises its
# learning rate over the first 4000 steps [[Vaswani et al., section 5.3<!-- quoted
# -->](../docs/references.md#vaswani-2017)], which is called learning-rate **warm-up**.
#
# The models are whole Transformers, with as many encoder layers as decoder layers. They learn to write a row of
# letters backwards, in 200 steps with Adam. The learning rate begins at 0.008<!-- setting -->, which is high, and
# falls to a tenth of it. With warm-up, it begins near zero, reaches the high rate after 60 steps, and then falls in
# the same way. The measure is the **exact match**: the share of sequences that the model writes without a
# single mistake. A script in the repository (`make seeds`) has trained each with five seeds.
#
# Compare the first three rows: post-LN without warm-up, post-LN with warm-up, and pre-LN without. How many of the
# three learn the task?

# %% tags=["fold-input"]
DATA = resources.files("annotated_book").joinpath("data/warm_up.json")
runs: dict[tuple, list[float]] = {}
for run in json.loads(DATA.read_text())["runs"]:
    setup = tuple(run[name] for name in ("order", "layers", "warm-up", "learning rate"))
    runs.setdefault(setup, []).append(run["exact match"])
rows = [[f"{n}+{n}", *setting, *found] for (_, n, *setting), found in runs.items()]
settings = ["layers", "warm-up steps", "rate"]
display.show(
    rows,
    [order for order, *_ in runs],
    [*settings, *(f"seed {seed}" for seed in range(5))],
    decimals=(0, 0, 3, 3, 3, 3, 3, 3),
    title="Exact match",
    corner="norm",
)

# %% [markdown]
# Two of the three. Post-LN without warm-up fails: with four of the five seeds, the model does not get a single
# sequence right, and with the other one less than a quarter. Sixty small steps at the beginning save the same
# model, and so does moving the norm. The last two rows change one thing each in the first: at half the rate, or
# with one layer on each side, post-LN gets somewhere without warm-up. So it is the depth and the high rate
# together that make it fail. The chapter on [training](12_training.ipynb) uses the small model of the last
# row, and trains it for 400 steps.
#
# Pre-LN does not end better: with warm-up, post-LN ends on average no worse. (Pre-LN with warm-up was not trained.)
# But pre-LN needs no warm-up, and one setting less that decides whether training works at all is worth much when a
# run is long. Why does the order matter? The two folds below look at a single step, and at the gradient.

# %% [markdown] name="what-a-first-step-does"
# <!-- deeper: What a first step does -->
# ### Going deeper: What a first step does
#
# Why does post-LN fail? The usual suspect is the gradient: with post-LN it is [large in the last
# layer](#cell-id=deeper-the-gradient), however deep the stack. But Adam divides the size of the gradient out: its first step moves nearly
# every parameter by the same amount, the learning rate. So look at what such a step gains. Take one, at a rate of
# 0.001<!-- setting -->, towards random targets, in untrained stacks of one and of eight layers. *Moved* is how far the output
# went, as a share of its size, and *error* is how the squared error changed.


# %% tags=["fold-input"]
def make_stack(norm_first: bool, depth: int, seed: int) -> TransformerEncoder:
    """Make an untrained stack of different layers; a pre-LN one ends in a norm."""
    torch.manual_seed(seed)
    settings = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first}
    layer = TransformerEncoderLayer(32, 4, 128, **settings)
    norm = nn.LayerNorm(32) if norm_first else None
    # without reset_parameters, all layers would be copies with equal weights
    return TransformerEncoder(layer, depth, norm, reset_parameters=True)


def first_step(norm_first: bool, depth: int, rate: float) -> Tensor:
    """Measure how far one step moves the output, and how it changes the error."""
    results = []
    for seed in range(5):
        stack = make_stack(norm_first, depth, seed)
        x, target = torch.randn(2, 4, 12, 32)  # (4, 12, 32)
        before = stack(x)                      # (4, 12, 32)
        error = (before - target).square().mean()
        error.backward()
        torch.optim.Adam(stack.parameters(), rate).step()
        after = stack(x)  # (4, 12, 32)
        moved = (after - before).norm() / before.norm()
        change = (after - target).square().mean() / error - 1
        results.append(torch.stack([moved, change]).detach())
    return torch.stack(results)  # (5, 2)


# %% tags=["fold-input"]
rows, labels = [], []
for depth, (name, norm_first) in itertools.product((1, 8), ORDERS.items()):
    found = first_step(norm_first, depth, rate=0.001)
    (moved, error), (_, low), (_, high) = found.mean(0), found.amin(0), found.amax(0)
    rows.append([depth, moved, error, f"{low:.0%} to {high:.0%}".replace("-", "−")])
    labels.append(name)
columns = ["layers", "moved", "error", "of five seeds"]
display.show(rows, labels, columns, decimals=(0, ".0%", ".0%", 0), corner="norm")

# %% [markdown]
# In one layer the order makes hardly any difference. In eight, the step with post-LN moves the output nearly twice as
# far, and gains no more. [Liu et al.](../docs/references.md#liu-2020) explain it: with post-LN the stream has size one
# before every sublayer, so a change in what a sublayer adds is a large share of it, even in the last layer. With
# pre-LN the stream grows, and the same change weighs less. Warm-up makes these first steps small instead. (Whether this
# is all that fails at the high rate of the table, one step cannot tell.)

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="deeper-the-gradient"
# <!-- deeper: The gradient, layer by layer -->
# ### Going deeper: The gradient, layer by layer
#
# [Xiong et al.](../docs/references.md#xiong-2020) prove for untrained stacks that with post-LN the last
# layer's gradient is large, however deep the stack, and that with pre-LN it shrinks with the depth. The figure
# shows two measurements in each layer of untrained stacks, averaged over five seeds: the norm of the gradient with
# respect to `linear2` of the feed-forward network (there is no task yet, so it is the gradient of a randomly
# weighted sum of the outputs), and the standard deviation of the stream.


# %% tags=["fold-input"]
def by_layer(norm_first: bool, depth: int) -> tuple[Tensor, Tensor]:
    """Measure ``linear2``'s gradient and the stream after each layer, over five seeds."""
    sizes, gradients = [], []
    for seed in range(5):
        stack = make_stack(norm_first, depth, seed)
        streams = [torch.randn(4, 12, 32)]
        for layer in stack.layers:
            streams.append(layer(streams[-1]))
        output = stack.norm(streams[-1]) if norm_first else streams[-1]  # (4, 12, 32)
        matrices = [layer.linear2.weight for layer in stack.layers]
        norms = [gradient.norm() for gradient in one.gradients(output, matrices)]
        sizes.append(torch.stack([stream.std() for stream in streams[1:]]))
        gradients.append(torch.stack(norms))
    return torch.stack(gradients).mean(0), torch.stack(sizes).detach().mean(0)


# %% tags=["fold-input"]
drawing, columns = display.panels(600, 240, columns=2)
said, found = [], {}
for (name, norm_first), letter in zip(ORDERS.items(), "hn"):
    for depth, style in ((6, "--"), (24, "-")):
        found[name, depth] = by_layer(norm_first, depth)
        for ax, numbers in zip(columns, found[name, depth]):
            look = {"color": display.COLOURS[letter], "label": f"{name}, {depth} layers"}
            ax.plot(range(1, depth + 1), numbers, style, **look)
    (first, *_, last), (*_, end) = (x.tolist() for x in found[name, 24])
    said.append(
        f"{name}: the gradient is {first:.0f} in the first of 24 layers and {last:.0f} in "
        f"the last, where the stream has size {end:.1f}"
    )
for ax, title in zip(columns, ("Gradient by layer", "Size of the stream by layer")):
    ax.set(title=title, xlabel="layer, from input to output", ylim=(0, None))
columns[1].legend(frameon=False)
display.finish(drawing, name="by-layer", alt=f"{'; '.join(said)}.")

# %% [markdown]
# Compare the last layers. With pre-LN, the deeper the stack, the lower the line ends, as Xiong et al. prove. With
# post-LN, it ends about as high at every depth. But pre-LN does not even the layers out: its first gradients are
# the largest. [Shleifer et al.](../docs/references.md#shleifer-2021) report this mismatch from pretraining, too.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="the-final-norm"
# ## The final norm
#
# Pre-LN has a price. Send a random sequence through untrained stacks of both kinds:

# %%
rows = {}
for name, norm_first in ORDERS.items():
    stack = make_stack(norm_first, 24, seed=8)
    streams = [torch.randn(4, 12, 32)]
    for layer in stack.layers:
        streams.append(layer(streams[-1]))
    rows[name] = [streams[depth].std() for depth in (0, 1, 6, 12, 24)]
display.show(rows, columns=[0, 1, 6, 12, 24], decimals=1, corner="after layers")

# %% [markdown]
# With post-LN the stream keeps its size. With pre-LN it grows, far more slowly than without any norm, since
# every sublayer reads numbers of one size. But no norm follows what the last layer adds, so a pre-LN stack ends in
# one more, the **final norm**. The paper's post-LN layers each end in a norm already, and the paper has no other.
# `torch.nn.Transformer` adds a final norm in both cases, and so does the package, unless you pass
# `final_norm=False`.

# %% [markdown]
# ## Exercises
#
# ### A pre-LN decoder layer
#
# *Medium, 6 minutes.* The first sublayer of a pre-LN decoder layer is written. Add the other two.
# You get a decoder layer for its parts, which are named as in yours (`multihead_attn`, `linear1`,
# `linear2`, `norm2`, `norm3`), the target `(b, n, e)` and the memory `(b, m, e)`, which is already
# normalised. The activation is a ReLU, and there is no dropout.


# %% tags=["exercise"]
def pre_norm_decoder(layer: nn.Module, tgt: Tensor, memory: Tensor) -> Tensor:
    """Add self-attention, cross-attention and the feed-forward network, pre-LN."""
    y = layer.norm1(tgt)
    x = tgt + layer.self_attn(y, y, y, is_causal=True)[0]
    ...  # x = x + ..., twice: your code here
    return x


# %%
exercises.transformer_layers.check_pre_norm_decoder(pre_norm_decoder)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The pattern is `x = x + sublayer(norm(x))`. The summand in front stays as it is.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# An attention returns two things, `(output, weights)`, so take `[0]`.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `norm2` is for the queries of the cross-attention. The memory comes from a stack that ends in a
# norm of its own.
#
# </details>


# %% tags=["solution"]
def pre_norm_decoder(layer: nn.Module, tgt: Tensor, memory: Tensor) -> Tensor:
    """Add self-attention, cross-attention and the feed-forward network, pre-LN."""
    y = layer.norm1(tgt)
    x = tgt + layer.self_attn(y, y, y, is_causal=True)[0]
    x = x + layer.multihead_attn(layer.norm2(x), memory, memory)[0]
    return x + layer.linear2(layer.linear1(layer.norm3(x)).relu())


exercises.transformer_layers.check_pre_norm_decoder.folded(pre_norm_decoder)

# %% [markdown]
# ## What you have now
#
# You have written encoder and decoder layers that compute what PyTorch's do, and you know a reason for
# each norm and each mask.
#
# > **In short.** A layer adds to each word what its sublayers compute. Post-LN normalises the sum,
# > pre-LN what a sublayer reads:
# >
# > ```python
# > # post-LN
# > x = norm1(x + attention(x))
# > x = norm2(x + feed_forward(x))
# > # pre-LN
# > x = x + attention(norm1(x))
# > x = x + feed_forward(norm2(x))
# > ```
# >
# > Words `(b, n, e)` go in and come out; the feed-forward network is wider inside. In a decoder layer
# > the target attends to itself under a causal mask, then to the memory `(b, m, e)` under the padding
# > mask of the source: queries come from the target, keys and values from the memory.
# >
# > The residual connection keeps words apart; the norm gives every sublayer (pre-LN) or the stream
# > itself (post-LN) numbers of one size. A pre-LN stack needs a final norm. At a high learning
# > rate, post-LN with 4+4 layers failed without warm-up; pre-LN learned.
#
# Still missing are the two ends of a model: how words become vectors, how vectors become
# words, and how a layer is told the order of the words. [The next chapter](09_transformer.ipynb)
# adds them.
