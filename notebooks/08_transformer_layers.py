# %% [markdown]
# # Transformer layers
#
# *Why is the norm not where the paper has it?*
#
# Attention lets words exchange what they know. A Transformer wraps it in three more things: a
# **residual**, a **norm** and a **feed-forward network**. You build a layer from them, measure what
# each is for, and move the norm. Then you build the layer that writes, which looks at two sequences
# and needs two kinds of mask. All of it computes what `torch.nn` does.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map(
    "project in", "split", "score", "mask", "softmax", "mix", "merge", "project out"
)

# %% [markdown]
# The whole strip is lit: from here on it is one box, `MultiheadAttention`, and the question is what
# stands around it.
#
# ## Attention alone forgets
#
# Send the eight words of chapter 1 through one attention module after another. In each row the
# weights are positive and sum to one, so each word becomes an average of all words. How much do the
# words still differ from each other?

# %%
import copy

import torch
from torch import Tensor, nn

from annotated_attention import MultiheadAttention, chapters

one = chapters.load("01_one_head")
torch.manual_seed(8)
EMBED = nn.Linear(4, 24)  # the sentence of chapter 1, in width e = 24
sentence = EMBED(one.EMBEDDINGS)[None].detach()  # (b, n, e)
print(tuple(sentence.shape), "one sentence, eight words, e = 24")


# %%
def apart(x: Tensor) -> float:
    """Tell which part of the numbers differs from word to word; 0 means none."""
    mean = x.mean(1, keepdim=True)  # (b, 1, e)
    return ((x - mean).norm() / x.norm()).item()


plain, kept = sentence, sentence
print("modules   attention   x + attention")
for depth in range(1, 9):
    attention = MultiheadAttention(24, 4, batch_first=True)
    plain = attention(plain, plain, plain)[0]      # (b, n, e)
    kept = kept + attention(kept, kept, kept)[0]   # (b, n, e)
    if depth in (1, 2, 4, 8):
        print(f"{depth:7} {apart(plain):11.6f} {apart(kept):15.6f}")

# %% [markdown]
# In the left column all words are soon the same. The right one differs in two characters, `x +`: a
# word keeps what it was, and attention only adds to it, so the words stay apart. That is a **residual
# connection** [[He et al.](../docs/references.md#he-2016)]; what is inside is called a **sublayer**.
#
# ## The feed-forward network
#
# The second sublayer lets each word think on its own: widen it to four times its width, bend it with
# a ReLU, narrow it again. Change one word, *cat*, and see which rows of the result react.

# %%
feed_forward = nn.Sequential(nn.Linear(24, 96), nn.ReLU(), nn.Linear(96, 24))
attention = MultiheadAttention(24, 4, batch_first=True)
changed = sentence.clone()
changed[0, one.WORDS.index("cat")] += 1

print(" " * 14, "  ".join(one.WORDS))
for name, sublayer in (
    ("attention", lambda x: attention(x, x, x)[0]),
    ("feed-forward", feed_forward),
):
    reacts = (sublayer(changed) - sublayer(sentence)).norm(dim=-1)[0]  # (n,)
    marks = ["x" if size > 1e-6 else "·" for size in reacts]
    print(f"{name:>14}", "  ".join(map(str.center, marks, map(len, one.WORDS))))

# %% [markdown]
# Attention moves information between words; the feed-forward network never does.
#
# ## The norm
#
# Each layer adds to the sum, and sums grow; a section below measures it. A **layer norm**
# [[Ba et al.](../docs/references.md#ba-2016)] brings each word back: subtract the mean of its
# features, divide by their deviation, then scale and shift by learned numbers that start at 1 and 0.

# %%
x = 7 * sentence + 3                                            # (b, n, e)
centred = x - x.mean(-1, keepdim=True)                          # (b, n, e)
variance = centred.square().mean(-1, keepdim=True)              # (b, n, 1)
by_hand = centred / (variance + 1e-5).sqrt()                    # (b, n, e)
torch.testing.assert_close(nn.LayerNorm(24)(x), by_hand)
before, after = (rows[0, 1].std(correction=0) for rows in (x, by_hand))
print(f"deviation of 'cat': {before:.2f}, after the norm {after:.2f}")

# %% [markdown]
# ## The layer of the paper
#
# Now put it together as the paper does: add, then normalise. That is called **post-LN**. The names
# of the parts are PyTorch's, so that weights can be exchanged.


# %%
class EncoderLayer(nn.Module):
    """Attention and a feed-forward network, as the paper has them."""

    def __init__(self, embed_dim: int, num_heads: int, wide: int) -> None:
        super().__init__()
        self.self_attn = MultiheadAttention(embed_dim, num_heads, batch_first=True)
        self.linear1, self.linear2 = nn.Linear(embed_dim, wide), nn.Linear(wide, embed_dim)
        self.norm1, self.norm2 = nn.LayerNorm(embed_dim), nn.LayerNorm(embed_dim)

    def feed_forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.linear1(x).relu())

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + self.self_attn(x, x, x)[0])
        return self.norm2(x + self.feed_forward(x))


print(tuple(EncoderLayer(24, 4, 96)(sentence).shape))

# %% [markdown]
# Much code of today moves the norm: it normalises what goes *into* a sublayer, and leaves the sum
# alone. That is **pre-LN**.


# %%
class PreNormLayer(EncoderLayer):
    """The same parts, with the norms in front of the sublayers."""

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm1(x)
        x = x + self.self_attn(normed, normed, normed)[0]
        return x + self.feed_forward(self.norm2(x))


display.diff(EncoderLayer.forward, PreNormLayer.forward)

# %% [markdown]
# > **Pitfall.** Both have the same parameters. The weights of one load into the other, and nothing
# > complains.

# %%
post_layer, pre_layer = EncoderLayer(24, 4, 96), PreNormLayer(24, 4, 96)
print(pre_layer.load_state_dict(post_layer.state_dict()))
difference = (pre_layer(sentence) - post_layer(sentence)).abs().max()
print(f"the outputs differ by up to {difference:.2f}")

# %% [markdown]
# Here are the two, drawn from what a call really does: hooks note which module runs after which.

# %% jupyter={"source_hidden": true}
LABELS = {"self_attn": "attention", "linear1": "feed-forward"} | dict.fromkeys(
    ["norm1", "norm2"], "norm"
)
SHADES = {"attention": "n", "feed-forward": "d", "norm": "h"}


def order(layer: nn.Module) -> list[str]:
    """Note the parts of a layer in the order in which they run."""
    ran = []
    for part, module in layer.named_children():
        if part in LABELS:
            module.register_forward_hook(lambda *_, part=part: ran.append(LABELS[part]))
    layer(torch.randn(2, 3, 24))
    return ran


# %% jupyter={"source_hidden": true}
def draw(ax, ran: list[str]) -> float:
    """Draw one layer upwards: parts on the stream, residuals beside it."""
    y, pre = 0.0, ran[0] == "norm"
    for part in ran:
        edge = display.COLOURS[SHADES[part]]
        box = {"boxstyle": "round,pad=0.35", "edgecolor": edge, "facecolor": "none"}
        ax.text(0, y + 0.5, part, ha="center", va="center", bbox=box)
        ax.plot([0, 0], [y - 0.25, y + 0.25], color=display.COLOURS["b"])
        y += 1
        if part != "norm":
            bottom = y - 1.1 - pre
            side = [[0, 1.2, 1.2, 0.14], [bottom, bottom, y + 0.2, y + 0.2]]
            ax.plot(*side, color=display.COLOURS["m"], lw=2)
            ax.text(0, y + 0.2, "+", ha="center", va="center", fontsize=15)
            ax.plot([0, 0], [y - 0.25, y + 0.05], color=display.COLOURS["b"])
            y += 0.6
    arrow = {"arrowstyle": "->", "color": display.COLOURS["b"], "lw": 2}
    ax.annotate("", (0, y + 0.35), (0, y - 0.25), arrowprops=arrow)
    return y


# %% jupyter={"source_hidden": true}
drawing, columns = display.panels(480, 330, columns=2)
sides = (("post-LN: the paper", EncoderLayer), ("pre-LN: much code", PreNormLayer))
for ax, (title, kind) in zip(columns, sides):
    top = draw(ax, order(kind(24, 4, 96)))
    ax.set(xlim=(-1.4, 1.8), ylim=(-0.5, top + 0.6), title=title)
    ax.axis("off")
display.finish(drawing, name="post-and-pre", alt=(
    f"Two layers, from below. Post-LN: {', '.join(order(EncoderLayer(24, 4, 96)))}; the "
    f"norms stand on the stream. Pre-LN: {', '.join(order(PreNormLayer(24, 4, 96)))}; the "
    "norms stand inside the residuals, and one line leads past all parts."
))

# %% [markdown]
# The green lines are the residuals. On the right, follow them upwards: they lead from the bottom to
# the top past every part. On the left, each of them ends in a norm.
#
# ## The same as PyTorch's
#
# `torch.nn.TransformerEncoderLayer` has both orders, behind `norm_first`. So does the package's own.
# All three get the same weights; outputs and gradients agree.

# %%
from annotated_attention import TransformerEncoderLayer

b, n, e = 2, 3, 24
x = torch.randn(b, n, e, dtype=torch.float64, requires_grad=True)  # (b, n, e)
for kind, norm_first in ((EncoderLayer, False), (PreNormLayer, True)):
    ours = kind(24, 4, 96).double()
    for others in (nn.TransformerEncoderLayer, TransformerEncoderLayer):
        settings = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first}
        layer = others(24, 4, 96, **settings, dtype=torch.float64)
        layer.load_state_dict(ours.state_dict())
        found, expected = ours(x), layer(x)                        # (b, n, e)
        torch.testing.assert_close(found, expected)
        pairs = [(found, [x, *ours.parameters()]), (expected, [x, *layer.parameters()])]
        torch.testing.assert_close(*(one.gradients(*pair) for pair in pairs))
        print(f"{kind.__name__:>12} = {others.__module__.split('.')[0]}'s, gradients too")

# %% [markdown]
# The package's layer adds dropout, masks, and the choice between the orders, which is one method:

# %%
display.source(TransformerEncoderLayer._residual)

# %% [markdown]
# Dropout stands where the paper has it: on what a sublayer adds, before it is added. And this is all
# that a call does, with its notes on the left. It checks, it says what looking around means, and then
# two lines do the work.

# %%
display.annotated(TransformerEncoderLayer.forward)

# %% [markdown]
# ## Why the norm moved
#
# Stack 6, 12 or 24 layers, before any training, and differentiate a random mixture of the outputs.
# How large a gradient does each layer's feed-forward matrix get? The table shows the first, the sixth
# and the last layer, the figure shows them all. This repeats, in small, a measurement by [[Xiong et
# al.](../docs/references.md#xiong-2020)]. The numbers are averages over ten seeds.

# %%
from annotated_attention import TransformerEncoder

DEPTHS = (6, 12, 24)


def make_stack(norm_first: bool, depth: int, seed: int) -> TransformerEncoder:
    """Make an untrained stack of different layers; a pre-LN one ends in a norm."""
    torch.manual_seed(seed)
    settings = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first}
    layer = TransformerEncoderLayer(32, 4, 128, **settings)
    norm = nn.LayerNorm(32) if norm_first else None
    return TransformerEncoder(layer, depth, norm, reset_parameters=True)


def gradient_by_layer(norm_first: bool, depth: int) -> Tensor:
    """Measure the gradient of ``linear2.weight`` in each layer."""
    sizes = []
    for seed in range(10):
        stack = make_stack(norm_first, depth, seed)
        matrices = [each.linear2.weight for each in stack.layers]
        found = one.gradients(stack(torch.randn(4, 12, 32)), matrices)
        sizes.append(torch.stack([gradient.norm() for gradient in found]))
    return torch.stack(sizes).mean(0)


# %%
post, pre = (
    {depth: gradient_by_layer(first, depth) for depth in DEPTHS} for first in (False, True)
)
print("layers in the stack  ", *(f"{depth:4}" for depth in DEPTHS), "  24 : 6")
for name, measured in (("post-LN", post), ("pre-LN", pre)):
    for where, layer in (("first", 0), ("sixth", 5), ("last", -1)):
        found = [measured[depth][layer].item() for depth in DEPTHS]
        ratio = found[2] / found[0]
        line = f"{name:>7}, {where:5} layer: "
        print(line, *(f"{size:4.0f}" for size in found), f"{ratio:8.2f}")
        if (name, where) == ("pre-LN", "last"):
            assert 0.4 < ratio < 0.6
        elif name == "pre-LN" or where == "last":
            assert 0.85 < ratio < 1.15

# %% jupyter={"source_hidden": true}
drawing, columns = display.panels(560, 250, columns=2)
for ax, measured, title in zip(columns, (post, pre), ("post-LN", "pre-LN")):
    for depth, style, letter in zip(DEPTHS, (":", "--", "-"), "bmh"):
        layers, colour = range(1, depth + 1), display.COLOURS[letter]
        ax.plot(layers, measured[depth], style, color=colour, label=f"{depth} layers")
    ax.set(xlabel="layer, from input to output", title=title, ylim=(0, 260))
columns[0].set(ylabel="size of the gradient")
columns[1].legend(frameon=False)
last = {title: [f"{measured[depth][-1]:.0f}" for depth in DEPTHS]
        for title, measured in (("post-LN", post), ("pre-LN", pre))}
display.finish(drawing, name="gradient-by-depth", alt=(
    "Gradient of each layer's feed-forward matrix in stacks of 6, 12 and 24 layers. At the "
    f"last layer: post-LN {', '.join(last['post-LN'])}; pre-LN {', '.join(last['pre-LN'])}."
))

# %% [markdown]
# Look at the right end of each line. With post-LN the last layer gets nearly the same gradient however
# many layers lie below. With pre-LN the gradient depends on where a layer stands: the first layer and
# the sixth get as much in a stack of 24 as in a stack of 6. From layer to layer it falls, so the last
# layer gets less in a deeper stack: roughly $1 / \sqrt{\text{layers}}$, half of it for four times as
# many.
#
# Does it matter? Take the first step of training, toward random targets. The optimiser is Adam: its
# first step moves every parameter equally far, so that a large gradient alone does no harm. Does the
# order of the norms still show?


# %%
def first_step(norm_first: bool, depth: int, rate: float) -> tuple[float, float]:
    """Measure how far one step moves the output, and how much it lowers the error."""
    results = []
    for seed in range(3):
        stack = make_stack(norm_first, depth, seed)
        x, target = torch.randn(2, 4, 12, 32)               # (4, 12, 32)
        before = stack(x)                                   # (4, 12, 32)
        (before - target).square().mean().backward()
        torch.optim.Adam(stack.parameters(), rate).step()
        after = stack(x)                                    # (4, 12, 32)
        moved = (after - before).norm() / before.norm()
        lower = 1 - (after - target).square().mean() / (before - target).square().mean()
        results.append(torch.stack([moved, lower]).detach())
    return tuple(torch.stack(results).mean(0).tolist())


# %%
print("layers  rate  post-LN: moved  error  pre-LN: moved  error")
for depth, rate in (*((depth, 1e-3) for depth in DEPTHS), (24, 1e-4)):
    post_step, pre_step = (first_step(first, depth, rate) for first in (False, True))
    signed = [post_step[0], -post_step[1], pre_step[0], -pre_step[1]]
    print("{:6} {:6} {:13.0%} {:6.1%} {:13.0%} {:6.1%}".format(depth, rate, *signed))
    assert post_step[0] > pre_step[0]
    assert (pre_step[1] > 2 * post_step[1]) == ((depth, rate) == (24, 1e-3))

# %% [markdown]
# *Moved* says how far the output went, *error* what that was good for. The deepest post-LN stack is
# thrown furthest and gains least; with a tenth of the step it loses nothing to the other. So a deep
# post-LN stack is better started with small steps: the paper raises its learning rate over the first
# 4000 steps, which is called **warm-up** [[Vaswani et al., section
# 5.3<!-- quoted -->](../docs/references.md#vaswani-2017)]. Pre-LN can do without [[Xiong et
# al.](../docs/references.md#xiong-2020)], and that is why the norm is not where the paper has it.
# A shallow post-LN model can do without, too: the model of [the chapter on
# training](10_training.ipynb) has one layer on each side, and learns without any warm-up.
#
# ## The final norm
#
# Pre-LN has a price. Nothing brings the sum back on its way up, so it grows.

# %%
print("layer     " + "".join(f"{i:6}" for i in range(1, 13)))
for norm_first in (False, True):
    x = torch.randn(4, 12, 32)  # (4, 12, 32)
    sizes = []
    for each in make_stack(norm_first, 12, seed=0).layers:
        x = each(x)             # (4, 12, 32)
        sizes.append(x.std().item())
    print("pre-LN:   " if norm_first else "post-LN:  ", *(f"{size:5.2f}" for size in sizes))

# %% [markdown]
# So a pre-LN stack ends with one more norm, behind the last layer. The paper's layers are post-LN:
# each ends in a norm already, and the paper has no other. `torch.nn.Transformer` adds a final norm to
# its stacks in both cases, and so does ours: from one seed, both start with the same numbers. Behind
# a post-LN layer that norm has nothing to do, at least until it is trained. For the model of the
# paper, leave it out with `final_norm=False`:

# %%
from annotated_attention import Transformer

SIZES = (24, 4, 2, 1, 48, 0.0)  # e, h, layers of each stack, feed-forward width, dropout


def start(kind: type[nn.Module] = Transformer, **options: bool) -> nn.Module:
    """Build a model from the same seed as the others."""
    torch.manual_seed(8)
    return kind(*SIZES, batch_first=True, **options)


theirs, ours = (start(kind).state_dict() for kind in (nn.Transformer, Transformer))
torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
for norm_first in (False, True):
    models = (start(norm_first=norm_first, final_norm=x) for x in (True, False))
    x, y = (model.encoder(sentence) for model in models)  # (1, 8, 24), (1, 8, 24)
    print(f"{norm_first=}: leaving it out changes the result by {(x - y).abs().max():.4f}")

# %% [markdown]
# Without the norm, the post-LN result is the same, and the pre-LN result is not.
#
# ## Copies are equal
#
# > **Pitfall.** A stack is made by copying one layer. The copies have equal weights, unless somebody
# > draws them again. Neither `torch.nn.TransformerEncoder` nor ours does so on its own.

# %%
pattern = nn.TransformerEncoderLayer(24, 4, 48, batch_first=True)
whole = nn.Transformer(24, 4, 3, 3, 48, batch_first=True)
stacks = {
    "copied by hand": [copy.deepcopy(pattern) for _ in range(3)],
    "torch.nn.TransformerEncoder": nn.TransformerEncoder(pattern, 3).layers,
    "ours": TransformerEncoder(TransformerEncoderLayer(24, 4, 48), 3).layers,
    "torch.nn.Transformer": whole.encoder.layers,
}
for name, layers in stacks.items():
    apart_by = (layers[0].linear1.weight - layers[1].linear1.weight).abs().max()
    print(f"{name:>27}: layers 1 and 2 differ by up to {apart_by:.2f}")

# %% [markdown]
# `copy.deepcopy` copies numbers, it does not draw any. The whole `Transformer` draws every matrix anew
# after copying, with Xavier's rule from chapter 1. A stack on its own cannot know what you want. For a
# layer that is already trained, you want its numbers in every copy, and that is the default. For a new
# stack, you want layers that start different: ask for `reset_parameters=True`, as the stacks of the
# measurement above did.

# %%
pattern = TransformerEncoderLayer(24, 4, 48)
for reset in (False, True):
    first, second = TransformerEncoder(pattern, 2, reset_parameters=reset).layers
    for name, other in (("the pattern", pattern), ("the second copy", second)):
        same = torch.equal(first.linear1.weight, other.linear1.weight)
        print(f"reset_parameters={reset}: the first copy has the numbers of {name}: {same}")

# %% [markdown]
# ## The decoder layer
#
# So far one sequence looks at itself. A layer that writes, a **decoder layer**, looks twice: at what
# is written so far, and at what was read. What was read is the **memory**: the result of the encoder,
# one row per word. Three sublayers, then, each with its residual and its norm:

# %%
from annotated_attention import TransformerDecoderLayer

display.annotated(TransformerDecoderLayer.forward)

# %% [markdown]
# In `cross_attention`, who is query, and who is key? The word being written asks, so **the queries come
# from the decoder**. What was read answers: **keys and values come from the memory**. The words *the
# cat was* are written, n = 3; the memory is the sentence and two words of padding, m = 10. The layer
# does not ask for weights. A hook can:


# %%
def weights_of(attention: nn.Module, call) -> Tensor:
    """Run ``call``, and return the weights of ``attention``, averaged over heads."""
    seen = []

    def ask(module, args, options):
        return args, options | {"need_weights": True}

    asks = attention.register_forward_pre_hook(ask, with_kwargs=True)
    keep = attention.register_forward_hook(lambda module, args, out: seen.append(out[1]))
    call()
    asks.remove()
    keep.remove()
    return seen[0][0].detach()


# %%
torch.manual_seed(8)
b, n, m, e = 1, 3, 10, 24
WRITTEN, READ = ["the", "cat", "was"], [*one.WORDS, "·", "· "]
written = sentence[:, [0, 1, 6]]                               # (b, n, e)
memory = torch.cat([sentence, torch.randn(1, 2, 24)], 1)       # (b, m, e)
layer = TransformerDecoderLayer(24, 4, 48, 0.0, batch_first=True)

print("output", tuple(layer(written, memory).shape), "- as long as what is written")
for name in ("self_attn", "multihead_attn"):
    weights = weights_of(getattr(layer, name), lambda: layer(written, memory))
    print(f"{name:>14}: weights", tuple(weights.shape))

# %% [markdown]
# ## Which mask goes where
#
# Each attention has its own masks, and they do not mix. The causal mask of chapter 6 is for the look
# back: when *cat* is written, *was* does not exist yet. The look across gets none, since the whole
# source is there from the beginning; it gets the padding of the source.
#
# | mask | shape | where it goes | why |
# |---|---|---|---|
# | causal | `(n, n)` | `tgt_is_causal`, or `tgt_mask` | no look at what is not written yet |
# | padding of the target | `(b, n)` | `tgt_key_padding_mask` | no look at filling, see below |
# | padding of the source | `(b, m)` | `src_key_padding_mask` in the encoder | no look at filling |
# | ... the same once more | `(b, m)` | `memory_key_padding_mask` in the decoder | nor here |

# %%
from annotated_attention import block_padding

padding = block_padding(torch.tensor([8]), m)  # (b, m)
masks = {"tgt_is_causal": True, "memory_key_padding_mask": padding}
back, across = (
    weights_of(attention, lambda: layer(written, memory, **masks))
    for attention in (layer.self_attn, layer.multihead_attn)
)
display.attention_map(back, WRITTEN, WRITTEN, name="look-back")

# %%
display.attention_map(across, WRITTEN, READ, name="look-across")

# %% [markdown]
# Row by row: *the* sees only itself, *was* sees all three. Everybody sees all eight words of the
# source, and nobody sees the padding.
#
# > **Pitfall.** The mask of the source is needed twice. Forget it in the decoder, and nothing fails.
#
# What does the output then react to?

# %%
memory = memory.clone().requires_grad_()  # (b, m, e)
for name, given in (("both masks", masks), ("forgotten", {"tgt_is_causal": True})):
    output = layer(written, memory, **given)                              # (b, n, e)
    reacts = one.gradients(output, [memory])[0].norm(dim=-1)[0]           # (m,)
    words, filling = reacts[:8].mean(), reacts[8:].mean()
    print(f"{name:>10}: reacts to words {words:.2f}, to padding {filling:.2f}")
    assert reacts[8:].eq(0).all() == (given is masks)

# %% [markdown]
# Forgotten, padding counts as much as a word, and what stands there is whatever the encoder made of
# nothing.
#
# And the padding of the target? Behind its end, the causal mask hides it already from every real
# word. Only padding in front needs a mask of its own.

# %%
short = block_padding(torch.tensor([2]), n)  # (b, n)
for name, filling in (("behind", short), ("in front", short.flip(1))):
    given = {"tgt_is_causal": True, "tgt_key_padding_mask": filling}
    plain = layer(written, memory, tgt_is_causal=True)  # (b, n, e)
    masked = layer(written, memory, **given)            # (b, n, e)
    difference = (plain - masked)[~filling].abs().max()
    print(f"padding {name}: the mask changes the real words by up to {difference:.2f}")

# %% [markdown]
# ## The same as PyTorch's decoder
#
# Both orders, both masks, all sizes different; outputs and gradients.

# %%
b, n, m, e = 2, 3, 5, 24
tgt = torch.randn(b, n, e, dtype=torch.float64, requires_grad=True)     # (b, n, e)
memory = torch.randn(b, m, e, dtype=torch.float64, requires_grad=True)  # (b, m, e)
masks = {
    "tgt_mask": nn.Transformer.generate_square_subsequent_mask(n, dtype=torch.float64),
    "memory_key_padding_mask": block_padding(torch.tensor([2, 5]), m),
}
for norm_first in (False, True):
    found = []
    settings = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first}
    theirs = nn.TransformerDecoderLayer(e, 4, 48, **settings, dtype=torch.float64)
    ours = TransformerDecoderLayer(e, 4, 48, **settings, dtype=torch.float64)
    ours.load_state_dict(theirs.state_dict())
    for each in (ours, theirs):
        output = each(tgt, memory, **masks)                             # (b, n, e)
        found.append((output, *one.gradients(output, [tgt, memory, *each.parameters()])))
    torch.testing.assert_close(*found)
    print(f"norm_first={norm_first}: {len(found[0])} tensors equal")

# %% [markdown]
# ## Exercises
#
# ### The decoder's mask
#
# *Medium, 10 minutes.* Merge the two masks that the look back may need into one. Given `padding`,
# `(b, n)`, True where the target is filling, be it in front or behind, return what no query may see,
# True = blocked, in the smallest shape that fits the scores `(b, h, n, n)`: `(b, 1, n, n)`.


# %% tags=["exercise"]
def decoder_mask(padding: Tensor) -> Tensor:
    """Block the future and the padding."""
    ...  # your code here


# %%
from annotated_attention import exercises

exercises.transformer_layers.check_decoder_mask(decoder_mask)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# `block_future(n)` is `(n, n)`, and True above the diagonal. Blocked is what one of the two blocks.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Padding is about keys, and keys stand on the last axis: `padding[:, None, None, :]`.
#
# </details>

# %% tags=["solution"] jupyter={"source_hidden": true}
from annotated_attention import block_future


def decoder_mask(padding: Tensor) -> Tensor:
    """Block the future and the padding."""
    future = block_future(padding.size(1), device=padding.device)
    return future | padding[:, None, None, :]


exercises.transformer_layers.check_decoder_mask(decoder_mask)

# %% [markdown]
# ### A pre-LN decoder layer
#
# *Medium, 15 minutes.* Write what a pre-LN decoder layer computes. You get a layer for its parts
# (`self_attn`, `multihead_attn`, `linear1`, `linear2`, `norm1`, `norm2`, `norm3`), the target
# `(b, n, e)` and the memory `(b, m, e)`. The activation is a ReLU, there is no dropout, and no word
# sees a later one.


# %% tags=["exercise"]
def pre_norm_decoder(layer: nn.Module, tgt: Tensor, memory: Tensor) -> Tensor:
    """Look back, look across, think; normalise what goes in."""
    ...  # your code here


# %%
exercises.transformer_layers.check_pre_norm_decoder(pre_norm_decoder)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The pattern, three times: `x = x + sublayer(norm(x))`. What is added to is never normalised.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# An attention returns two things, `(output, weights)`. `self_attn(y, y, y, is_causal=True)[0]`.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# `norm2` is for the queries of the look across. The memory comes from a stack that ends in a norm
# of its own.
#
# </details>

# %% tags=["solution"] jupyter={"source_hidden": true}
def pre_norm_decoder(layer: nn.Module, tgt: Tensor, memory: Tensor) -> Tensor:
    """Look back, look across, think; normalise what goes in."""
    y = layer.norm1(tgt)
    x = tgt + layer.self_attn(y, y, y, is_causal=True)[0]
    x = x + layer.multihead_attn(layer.norm2(x), memory, memory)[0]
    return x + layer.linear2(layer.linear1(layer.norm3(x)).relu())


exercises.transformer_layers.check_pre_norm_decoder(pre_norm_decoder)

# %% [markdown]
# ## What you have now
#
# An encoder layer and a decoder layer that compute what PyTorch's do, stacks that start as PyTorch's
# do or different, and a reason for each norm and each mask. What is missing are the ends: how a word gets
# in, how one comes out, and how a layer knows which word comes first.
# [Chapter 9](09_transformer.ipynb) adds them.
