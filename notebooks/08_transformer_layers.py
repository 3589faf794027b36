# %% [markdown]
# # Transformer layers
#
# *What goes wrong when words attend to each other again and again?*
#
# *18 minutes and 7 of exercises. Afterwards you can write encoder and decoder layers, and say what each
# part saves you from.*
#
# Eight people sit round a table, and each knows a part of the story. In a round, everyone listens to
# all the others, to some more than to others. That is attention, and you have a class for it. One
# round is not enough: what *it* wants to drink nobody can say before somebody has found out who *it*
# is. So hold a second round, and a third.
#
# Then three things go wrong. The people forget who they are; they never think for themselves; and once
# that is put right, each round is louder than the one before. A **Transformer layer** is attention with a remedy for each: a
# **residual connection**, a **feed-forward network** and **norms**. You get it in a dozen lines. Then comes
# a surprise: with every remedy in its place, a model of such layers can still get every answer wrong.

# %% tags=["fold-input"]
import json
from importlib import resources
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention import (
    MultiheadAttention,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
    block_padding,
)
from annotated_book import chapters, display

one = chapters.load("01_one_head")
torch.manual_seed(8)
sentence = nn.Linear(4, 24)(one.EMBEDDINGS)[None].detach()  # (b, n, e)


def apart(x: Tensor) -> float:
    """Measure which share of the numbers differs from word to word; 0 means none."""
    mean = x.mean(1, keepdim=True)  # (b, 1, e)
    return ((x - mean).norm() / x.norm()).item()


# %% [markdown] name="attention-alone-forgets"
# ## Attention alone forgets
#
# Take the eight words of [One head](01_one_head.ipynb), widened by a random matrix to e = 24 numbers, and 24
# attention modules, their matrices drawn as `torch.nn.Transformer` draws them. In each round every word is *replaced* by what
# it has collected: eight words go in, and eight averages of them come out. (`MultiheadAttention` is the package's
# from here on: your class with PyTorch's names. It takes a padding mask `(b, m)` as it is, and its weights are the mean
# of the heads.) After each round, measure how different the words still are: the size of what differs from the mean of
# the eight words, as a share of the whole. At the start it is 0.74. Slide to two rounds. What is left?
#
# <details name="left"><summary>About half.</summary>
#
# After one round only a tenth of the numbers differs, and the second does far more.
#
# </details>
# <details name="left"><summary>About a tenth.</summary>
#
# So it is after one round. The second does far more.
#
# </details>
# <details name="left"><summary>Nothing.</summary>
#
# Right: eight equal rows.
#
# </details>
#
# And four repairs are at hand, all switched off. **Add**: a word keeps its numbers, and what it collects is added to them.
# **Think**: in each round, a small network works on every word by itself. **Norm after**: then every word's numbers
# are brought to the size 1. **Norm before**: only what a round *reads* is brought to the size 1. Can you keep the words apart
# over eight rounds? And over 24?


# %%
@torch.no_grad()
def hold(
    x: Tensor, sublayers: list, add: bool, think: bool, after: bool, before: bool
) -> list[Tensor]:
    """Let the words hold rounds; give them at the start and after each."""
    found = [x]
    for i, sublayer in enumerate(sublayers):  # attention, network, attention, ...
        if think or i % 2 == 0:
            said = sublayer(F.layer_norm(x, (24,)) if before else x)  # (b, n, e)
            x = x + said if add else said                             # (b, n, e)
            x = F.layer_norm(x, (24,)) if after else x                # (b, n, e)
        found.append(x)
    return found[::2]


# %% tags=["fold-input"]
stacks: list[list] = []
for seed in range(9):
    torch.manual_seed(seed)
    stacks.append([])
    for _ in range(24):
        module = MultiheadAttention(24, 4, batch_first=True)
        network = nn.Sequential(nn.Linear(24, 96), nn.ReLU(), nn.Linear(96, 24))
        for drawn in (*module.parameters(), *network.parameters()):
            if drawn.dim() > 1:
                nn.init.xavier_uniform_(drawn)
        stacks[-1] += [lambda x, module=module: module(x, x, x)[0], network]

# %% tags=["hide-input"]
SWITCHES = ["add", "think", "norm after", "norm before"]
every = [on for on in product((False, True), repeat=4) if not (on[2] and on[3])]
runs = {on: hold(sentence, stacks[8], *on) for on in every}
OFF, ADD = (False, False, False, False), (True, False, False, False)
display.rounds(
    {on: [(x[0], apart(x)) for x in run] for on, run in runs.items()},
    one.WORDS,
    SWITCHES,
    stops=[0, 1, 2, 3, 4, 6, 8, 12, 16, 24],
    shown={
        "at the start": (OFF, 0),
        "replaced, twice": (OFF, 2),
        "added, 24 times": (ADD, 24),
    },
    name="eight-words",
)

# %% [markdown]
# Without *add* nothing is left, whatever else you press. (Blue is above zero, orange
# below; each picture has its own scale.) The weights of a word are positive and add up to one, so what it collects is an
# average of all words, and averages differ less than the things averaged. The second round
# does far more than the first. What two words collect differs only if their weights differ *and* the values do, and by now both
# hardly do. From then on, the network and the norm work on eight equal rows, each by itself, and what goes in equal
# comes out equal. [Dong et al.](../docs/references.md#dong-2021) showed that attention alone draws the words together
# ever faster, with any number of heads, unless the matrices are large.
#
# Adding instead of replacing is called a **residual connection** [[He et al.](../docs/references.md#he-2016)], and the
# module that computes what is added is a **sublayer**. What passes from sublayer to sublayer, collecting one addition
# after another, is the **residual stream**. Here the picture of the table limps: people can always note down one thing
# more, but the stream has e numbers, and all that is ever added has to share them.
#
# With *add*, the words still differ after eight rounds, but slide on: after 24, hardly anything is left, and the numbers
# have grown. One more switch keeps them apart, and you may have found it. *Think* is not the one: it is for something else.

# %% tags=["proof"]
for stack in stacks:
    for on in every:
        left = [apart(x) for x in hold(sentence, stack, *on)]
        assert left[8] > 0.05 if on[0] else left[2] < 0.002
        assert on[0] or left[8] < 1e-5
        assert on[3] or left[24] < 0.04
        assert on[0] * on[3] == (left[24] > 0.1)
    assert 0.03 < apart(hold(sentence, stack, *OFF)[1]) < 0.13
print("✓ Nine draws: after 24 rounds, only add with norm before has kept the words apart.")

# %% [markdown]
# ## The feed-forward network: time to think
#
# After a few rounds *it* has collected two things: whether it is an animal, and whether it is thirsty. Does it want
# a drink? Only if both are true. Nobody else has to be asked for that; it is a conclusion, for the word to draw by
# itself. Attention is made for moving and mixing: as long as its weights stay the same, it makes sums of numbers, and no *only if*.
#
# Let a matrix draw the conclusion. Below are four answers to learn, and the best that any linear layer with a bias
# can do (least squares). Would ten linear layers, one behind the other, come closer?

# %%
known = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])  # (4, 2)
wants = torch.tensor([[0.0], [0.0], [0.0], [1.0]])                      # (4, 1)

with_bias = torch.cat([known, torch.ones(4, 1)], 1)                 # (4, 3)
linear = with_bias @ torch.linalg.lstsq(with_bias, wants).solution  # (4, 1)
relu = (known[:, :1] + known[:, 1:] - 1).relu()                     # (4, 1)
scenes = ["sweet milk", "sweet cat", "thirsty milk", "thirsty cat"]
columns = ["wants a drink", "linear layer", "one ReLU"]
display.show(torch.cat([wants, linear, relu], 1), scenes, columns)

# %% [markdown]
# The thirsty milk gets a quarter of a drink, and so does the sweet cat. No training helps, and nor do ten layers,
# because ten matrices in a row are one matrix. Whatever the numbers in it, the first row and the last add up to the
# same as the two between: $f(0, 0) + f(1, 1) = f(1, 0) + f(0, 1)$. So if a thirsty cat is to get 1 and sweet milk 0, the other two have to share a 1 between
# them. (A cut at one half would put all four right. But a cut is just what a matrix cannot make.)
#
# A **ReLU** can: it replaces negative numbers with zero. `relu(animal + thirsty − 1)`, and every answer is right. So a
# layer has a second sublayer: a matrix that asks each word many such questions at once, a ReLU that silences those
# whose answer is no, and a second matrix by which each of the others adds a vector of its own to the word. The
# paper asks 2048 questions of a word of 512 numbers, four for each [[Vaswani et al., section 3.3<!-- quoted
# -->](../docs/references.md#vaswani-2017)], and gives no reason; most models kept to something like it. So this network
# is the larger part of the layer: 8e² parameters, twice the 4e² of attention.

# %%
feed_forward = nn.Sequential(nn.Linear(24, 96), nn.ReLU(), nn.Linear(96, 24))

# %% tags=["proof"]
attention, changed, cat = stacks[0][0], sentence.clone(), one.WORDS.index("cat")
changed[0, cat] += 1
for sublayer, reached in (
    (attention, [*range(8)]),
    (feed_forward, [cat]),
):
    reacts = (sublayer(changed) - sublayer(sentence)).norm(dim=-1)[0]  # (n,)
    assert reacts.gt(1e-6).nonzero().flatten().tolist() == reached
print("✓ Change only “cat”: attention changes all eight words, this network “cat” alone.")

# %% [markdown] name="the-norm"
# ## The norm: louder every round
#
# Back to the eight words, with *add* and *think*: each of the 48 sublayers adds a little. The numbers begin with the size 0.65 (their
# standard deviation). How large are they after 24 rounds?
#
# <details name="loud"><summary>Ten times as large.</summary>
#
# So it would be if each sublayer added about as much as the others.
#
# </details>
# <details name="loud"><summary>A hundred times.</summary>
#
# Larger still: what is added grows with what is there.
#
# </details>
# <details name="loud"><summary>A thousand times.</summary>
#
# Right, and more. Luck has a say in it, so here are nine draws of the matrices.
#
# </details>

# %% tags=["hide-input"]
loud = [hold(sentence, stack, True, True, False, False)[-1] for stack in stacks]
start, ends = sentence.std(), sorted(x.std().item() for x in loud)
print(f"{start:.2f} becomes {ends[4]:.0f} (between {ends[0]:.0f} and {ends[8]:.0f})")

# %% [markdown]
# A sublayer adds in proportion to what it reads, so growth feeds on growth. Large numbers
# make large scores, and where those give nearly all the weight to one word, [hardly any gradient reaches its query and
# its keys](01_one_head.ipynb#cell-id=deeper-why-divide-by-the-root).
#
# A **layer norm** [[Ba et al.](../docs/references.md#ba-2016)] turns the volume back. From each number of a word it
# subtracts the mean of the word's e numbers, and divides by their standard deviation:
#
# $$\mathrm{LayerNorm}(x) = \frac{x - \mathrm{mean}(x)}{\sqrt{\mathrm{var}(x) + \varepsilon}} \cdot g + s$$
#
# The small ε protects against a division by zero. Scale $g$ and shift $s$ are learned, one number per feature,
# and start at 1 and 0. Each word is normalised by itself, so it makes no difference what stands beside it, even if
# it is padding.

# %% tags=["proof"]
x = 7 * sentence + 3                                # (b, n, e)
centred = x - x.mean(-1, keepdim=True)              # (b, n, e)
variance = centred.square().mean(-1, keepdim=True)  # (b, n, 1)
by_hand = centred / (variance + 1e-5).sqrt()        # (b, n, e)
torch.testing.assert_close(nn.LayerNorm(24)(x), by_hand)
print("✓ These operations, written out, give the numbers of PyTorch's layer norm.")

# %% [markdown]
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
# ## Where does the norm go?
#
# There are two places. The first Transformer normalises the *sum*, after each sublayer, which is called **post-LN**
# [[Vaswani et al., section 3.1<!-- quoted -->](../docs/references.md#vaswani-2017)]. Most models today normalise the
# *copy* that a sublayer reads, and leave the stream alone: **pre-LN**. Follow the stream, the thick line: with
# post-LN it runs through every norm, with pre-LN past all of them.

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
# In the eight words' figure, these are *norm after* and *norm before*, with *add* and *think*. Both keep the volume down, but only one
# keeps the words apart. Here are all nine draws, after 24 rounds:

# %% tags=["hide-input"]
ORDER = {"no norm": (False, False), "post-LN": (True, False), "pre-LN": (False, True)}
ends = {}
for name, norms in ORDER.items():
    last = [hold(sentence, stack, True, True, *norms)[-1] for stack in stacks]
    size, left = (torch.tensor([*map(x, last)]).median() for x in (torch.std, apart))
    ends[name] = [f"{size:.{int(name != 'no norm')}f}", f"{left:.3f}"]
display.show(ends, columns=["size of the numbers", "what differs"], corner="middle of nine")

# %% [markdown]
# With post-LN the stream has size 1 from the first norm on. With pre-LN it
# still grows, but only to 4.2, because each sublayer reads a copy of size 1 and adds no more than that gives. What the last sublayer
# adds has no norm after it, so a pre-LN stack ends in one more, the **final norm**.
#
# And forgetting? What attention adds is much the same for all words, and where it is large it buries what tells them
# apart. Post-LN divides both by the same number, so that is no help. With pre-LN, what is added stays small beside a
# stream that has grown, and 0.182 of the whole still differs, where it was 0.74. [Noci et
# al.](../docs/references.md#noci-2022) found such forgetting in post-LN stacks before training, and prevent it: the
# deeper the stack, the smaller they make what is added.
#
# Here is the layer of the paper. Its parts are named as in PyTorch, so that weights can be exchanged. Left out is
# **dropout**: in training, PyTorch's layer sets a tenth of what each sublayer returns to zero, at random, so that no feature can
# rely on another one being there. `padding`, `(b, n)`, is the padding mask of [Masks](06_masks.ipynb).


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


# %% [markdown] name="in-front-of-the-sublayer"
# Pre-LN has the same parts, and another `forward`:


# %%
class PreNormLayer(EncoderLayer):
    """The same parts, with the norms in front of the sublayers."""

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        normed = self.norm1(x)
        x = x + self.self_attn(normed, normed, normed, padding)[0]
        return x + self.feed_forward(self.norm2(x))


post_layer, pre_layer = EncoderLayer(24, 4, 96), PreNormLayer(24, 4, 96)
print(pre_layer.load_state_dict(post_layer.state_dict()))
post, pre = post_layer(sentence), pre_layer(sentence)
print(f"outputs of size {post.std():.2f} differ by up to {(pre - post).abs().max():.2f}")

# %% [markdown]
# > **Pitfall.** The weights of a post-LN layer load into a pre-LN layer, and nothing complains. The
# > outputs are wrong.

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

# %% [markdown] name="why-the-norm-moved"
# ## Does the order matter?
#
# A script in the repository (`make seeds`) has trained whole Transformers, with four layers that read and four that write, to write a
# row of letters backwards: 200 steps with Adam, at a learning rate that begins at 0.008<!-- setting --> and falls
# to a tenth of it. That is high: the paper's, for a far larger model, never passes 0.0007<!-- quoted -->. Each dot is one of five seeds, and shows the **exact match**, the share of
# sequences that the model writes without a single mistake. Who learns?
#
# <details name="order"><summary>Both orders: the numbers stay in bounds either way.</summary>
#
# They do, and yet one of the two gets next to nothing right.
#
# </details>
# <details name="order"><summary>Post-LN alone: it is the paper's.</summary>
#
# The paper's had help, which is the third row.
#
# </details>
# <details name="order"><summary>Pre-LN alone.</summary>
#
# Right, at this rate, with this depth, and without help.
#
# </details>

# %% tags=["hide-input"]
DATA = resources.files("annotated_book").joinpath("data/warm_up.json")
NAMES = {
    (4, "post-LN", 0, 0.008): "post-LN",
    (4, "pre-LN", 0, 0.008): "pre-LN",
    (4, "post-LN", 60, 0.008): "post-LN, warm-up",
    (4, "post-LN", 0, 0.004): "post-LN, half the rate",
    (1, "post-LN", 0, 0.008): "post-LN, one layer each",
}
RUNS: dict[str, list[float]] = {name: [] for name in NAMES.values()}
for run in json.loads(DATA.read_text())["runs"]:
    setup = tuple(run[name] for name in ("layers", "order", "warm-up", "learning rate"))
    RUNS[NAMES[setup]].append(run["exact match"])
drawing, (ax,) = display.panels(350, 250)
for i, (name, found) in enumerate(RUNS.items()):
    colour = display.COLOURS["hnnbb"[i]]
    ax.plot([0, 1], [i, i], color=display.COLOURS["b"], linewidth=0.5)
    at = [i + 0.13 * found[:k].count(share) for k, share in enumerate(found)]
    ax.scatter(found, at, s=60, color=colour, alpha=0.65, linewidths=0)
    ax.text(0, i - 0.2, name, color=colour, fontsize=12)
ax.set(ylim=(4.6, -0.6), xlim=(-0.04, 1.04), yticks=[], xlabel="exact match")
ax.spines["left"].set_visible(False)
said = "; ".join(f"{name}: {', '.join(map(str, x))}" for name, x in RUNS.items())
display.finish(drawing, name="five-seeds", alt=f"Exact match of five seeds. {said}.")

# %% [markdown]
# Post-LN, the order of the paper, fails. With four of the five seeds it does not get a single sequence right, and with
# the fifth less than a quarter. Move the norm, and all five learn. Or leave it where it was, and let the learning rate
# rise from near zero during the first 60 steps: all five learn as well. That is learning-rate **warm-up**, and the paper
# has it, over 4000 steps [[Vaswani et al., section 5.3<!-- quoted -->](../docs/references.md#vaswani-2017)]. The grey
# lines are post-LN without warm-up again, one at half the rate and one with a single layer on each side. Both learn
# something with every seed, so it takes a high rate *and* depth to fail.
#
# Why? [Xiong et al.](../docs/references.md#xiong-2020) prove that in an untrained post-LN stack the gradient of the last
# layers is large, however deep the stack; but Adam makes steps of the same size from large gradients and from small ones. [Liu et
# al.](../docs/references.md#liu-2020) look at what a step does to the output: in a post-LN stack, a small change of all
# weights moves it the more, the deeper the stack is; warm-up keeps the first changes small. And [Noci et
# al.](../docs/references.md#noci-2022) prove that where words have become equal, queries and keys get no gradient. Which of
# the three it was here we have not measured.
#
# Pre-LN does not end better here than post-LN with warm-up, and large pre-LN models such as
# LLaMA warm up all the same [[Touvron et al.](../docs/references.md#touvron-2023)]. But pre-LN
# learned without it, too, where post-LN failed: one way less for a run of months to come to nothing. So the norm moved.

# %% [markdown] name="the-decoder-layer"
# ## The decoder layer: a second table
#
# So far one sentence has attended to itself. An **encoder** does that, and reads. A **decoder** writes, for instance a
# translation, one word after the other. What is read is the **source**, `src`, what is written the **target**, `tgt`.
# The people who write sit at a table of their own, and before them lie the notes of the first: the encoder's
# output, the **memory**, one row per word that was read.
#
# So a decoder layer has three sublayers. The first is self-attention over what is written so far, under a causal mask.
# Then comes **cross-attention**, for which the memory enters from the side: the words that are written ask, so **the
# queries come from the decoder**; the words that were read answer, so **keys and values come from the memory**. The
# third is the feed-forward network.
#
# A model that only writes, such as GPT or the little storyteller of the last chapter, has no source and needs no second sublayer. Its layers
# are encoder layers under a causal mask, though such a model is called *decoder-only*.

# %% tags=["hide-input"]
drawn = ran(TransformerDecoderLayer(24, 4, 96), sentence, sentence)
display.layers({"decoder layer, post-LN": drawn}, name="decoder-layer")

# %% [markdown]
# ### Three lines from a picture
#
# *Medium, 5 minutes.* Write the decoder layer's `forward` from this picture, one line for each sublayer. You get a
# layer with the parts of your encoder layer (`self_attn`, `norm1`, `norm2` and `feed_forward`), a second attention,
# which PyTorch calls `multihead_attn`, and `norm3`; the target `x`, `(b, n, e)`; the memory, `(b, m, e)`; and the
# source's padding mask, `(b, m)`. The first line is written; in this package, `is_causal=True` makes
# the causal mask (PyTorch's class wants the mask as well).


# %% tags=["exercise"]
def decode(layer: nn.Module, x: Tensor, memory: Tensor, padding: Tensor | None) -> Tensor:
    """Look back at what is written, look across at what was read, think."""
    x = layer.norm1(x + layer.self_attn(x, x, x, is_causal=True)[0])
    ...  # two more lines: your code here
    return x


# %%
exercises.transformer_layers.check_decode(decode)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The pattern is `x = norm(x + sublayer(x))`, as in the encoder layer.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# An attention takes queries, keys, values and the padding mask of the keys. It returns two things,
# `(output, weights)`, so take `[0]`.
#
# </details>


# %% tags=["solution"]
def decode(layer: nn.Module, x: Tensor, memory: Tensor, padding: Tensor | None) -> Tensor:
    """Look back at what is written, look across at what was read, think."""
    x = layer.norm1(x + layer.self_attn(x, x, x, is_causal=True)[0])
    x = layer.norm2(x + layer.multihead_attn(x, memory, memory, padding)[0])
    return layer.norm3(x + layer.feed_forward(x))


exercises.transformer_layers.check_decode.folded(decode)

# %% [markdown]
# With these three lines as its `forward` the class is whole. It is folded here, so as not to answer before you do.
# The next chapter builds the Transformer from it.


# %% tags=["fold-input"]
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


# %% tags=["proof"]
b, n, m, e = 2, 3, 5, 24
tgt = torch.randn(b, n, e, dtype=torch.float64, requires_grad=True)     # (b, n, e)
memory = torch.randn(b, m, e, dtype=torch.float64, requires_grad=True)  # (b, m, e)
blocked = block_padding(torch.tensor([2, 5]), m)                        # (b, m)
causal = nn.Transformer.generate_square_subsequent_mask(n, dtype=torch.float64)
masks = {"tgt_mask": causal, "memory_key_padding_mask": blocked}
settings = {"dropout": 0.0, "batch_first": True, "dtype": torch.float64}
theirs = nn.TransformerDecoderLayer(e, 4, 48, **settings)
packages, own = TransformerDecoderLayer(e, 4, 48, **settings), DecoderLayer(e, 4, 48)
calls = [(theirs, masks), (packages, masks), (own.double(), {"padding": blocked})]
found = []
for each, given in calls:
    each.load_state_dict(theirs.state_dict())
    output = each(tgt, memory, **given)  # (b, n, e)
    parts = [part for _, part in sorted(each.named_parameters())]
    found.append((output, *one.gradients(output, [tgt, memory, *parts])))
for other in found[1:]:
    torch.testing.assert_close(other, found[0])
assert ran(own.float(), sentence, sentence) == drawn
print("✓ This layer, the package's and PyTorch's agree: outputs and all gradients.")

# %% [markdown] name="which-mask-goes-where"
# ## Which mask goes where
#
# Each attention has masks of its own. The causal mask belongs to the decoder's self-attention alone: the whole source is
# there from the beginning. The source's padding mask is needed twice. The names are those of PyTorch's classes and the
# package's:
#
# | mask | shape | argument | what nobody looks at |
# |---|---|---|---|
# | causal | `(n, n)` | `tgt_mask` | words not yet written, in the decoder |
# | padding of the source | `(b, m)` | `src_key_padding_mask` | padding, in the encoder's self-attention |
# | the same again | `(b, m)` | `memory_key_padding_mask` | padding, in the cross-attention |
# | padding of the target | `(b, n)` | `tgt_key_padding_mask` | padding, in the decoder's self-attention |
#
# For the first, this package is content with `tgt_is_causal=True`, and PyTorch wants the mask as well. The last may be left out where
# padding stands on the right: the causal mask hides it already. The third is easily forgotten. Let a decoder write *the cat was*, from a memory of *it was thirsty* and two rows of
# padding (random numbers stand for what the encoder makes of it). Where does *was* look, with the mask and without?

# %%
b, n, m, e = 1, 3, 5, 24
written = sentence[:, [0, 1, 6]]                                 # (b, n, e)
memory = torch.cat([sentence[:, 5:], torch.randn(1, 2, 24)], 1)  # (b, m, e)
padding = block_padding(torch.tensor([3]), m)                    # (b, m)
cross, rows = MultiheadAttention(24, 4, batch_first=True), {}
for name, mask in (("given", padding), ("forgotten", None)):
    weights = cross(written, memory, memory, mask)[1]  # (b, n, m)
    rows[name] = weights[0, 2]                         # (m,)
display.show(rows, columns=[*one.WORDS[5:], "·", "·"], corner="the mask is")

# %% [markdown]
# > **Pitfall.** If you forget `memory_key_padding_mask`, nothing fails, but each word that is written
# > collects padding, too: here *was* spends nearly half of its weight on it.

# %% [markdown]
# ## What you have now
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
# > The residual connection lets each word keep its own numbers, the feed-forward network draws conclusions from what was
# > collected, and the norm keeps the numbers in bounds. A pre-LN stack needs a final norm. At a high learning rate,
# > post-LN with 4+4 layers failed without warm-up; pre-LN learned.
#
# The people at the table remember, think, and keep their voices down. But those who read still do not know who sits where: shuffle
# their chairs, and nobody would notice. [The next chapter](09_transformer.ipynb) gives each a clock.
