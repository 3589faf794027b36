# %% [markdown]
# # Counting
#
# *What does it cost, before I run it?*
#
# *16 minutes and 8 of exercises. Afterwards you can predict parameters, FLOPs and bytes before
# you run anything.*
#
# How many parameters does a model have? How much arithmetic does a call take? How many numbers must
# training keep for the backward pass? All three follow from the sizes alone, just as the price of a
# carpet follows from its length and width. In this chapter you derive short formulas from a single
# matrix product, and check each one against PyTorch's own count, to the last digit.

# %% tags=["hide-input"]
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from annotated_attention import (
    MultiheadAttention,
    counting,
    merge_heads,
    scaled_dot_product_attention,
    split_heads,
)
from annotated_book import chapters, display

display.chapter_map("project in", "score", "mix", "project out")

# %% [markdown]
# The four highlighted steps are matrix products, the only arithmetic that this chapter counts.

# %% [markdown] name="the-calculator"
# ## Which row explodes?
#
# This calculator has all the answers of the chapter. **Forward** is the work of a forward pass, in
# multiplications and additions. **Kept** is what a training step holds for its backward pass, and **kept,
# fused** the same without the attention weights. It begins with the original Transformer. Double the
# length: which row explodes, and what does not change at all?
#
# <details><summary>What do you expect?</summary>
#
# *Scores and mix*: four times the work, and four times as much is kept. The other rows double, and so does
# *kept, fused* in this one. The parameters do not change. What follows says where each number comes from.
#
# </details>

# %%
display.calculator("transformer-base", length=1024)

# %% tags=["proof"]
base = counting.PRESETS["transformer-base"]
for cost in (base.flops, base.kept):
    short, long = (cost(length=n) for n in (1024, 2048))
    grows = {part: long[part] / short[part] for part in short if short[part]}
    assert {part for part in grows if grows[part] == 4} == {"scores and mix"}
    assert {grows[part] for part in grows if part != "scores and mix"} == {2}
print("✓ Twice the length: four times the scores and mix, twice the rest.")

# %% [markdown]
# <!-- deeper: What the calculator counts -->
# ### Going deeper: What the calculator counts
#
# It counts without dropout and the loss. Queries, keys and values stand under *projections*, including
# those of cross-attention. Source and target have the same length. The original Transformer's embeddings
# and output layer share one matrix, which counts once.
#
# A *decoder layer* is one with cross-attention, and its cache holds the keys and values of both
# attentions. So in one more step its cross-attention projects the query and the output alone, $4be^2$.
# GPT-2 is called a decoder, but its layers have no cross-attention, so they count as plain *layers*.
#
# In a terminal, `python -m annotated_attention.counting --preset gpt2 --length 1024` prints the table.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="one-product"
# ## One product
#
# `(n, d)` times `(d, m)` has $nm$ numbers, and each is a sum of $d$ products: $nmd$ multiplications and, by
# custom, as many additions. That makes $2nmd$ **FLOPs**, floating-point operations, an amount of work.
# (A *multiply-accumulate*, or MAC, is two of them.) **FLOPS**, with a capital S, are FLOPs per second, a
# speed, which has to be [measured](15_speed.ipynb). PyTorch has a counter of its own:

# %%
n, m, d = 3, 5, 6
left, right = torch.randn(n, d), torch.randn(d, m)  # (n, d), (d, m)
with FlopCounterMode(display=False) as counter:
    left @ right
numbers = {"(3, 6) @ (6, 5)": [counter.get_total_flops(), 2 * n * m * d]}
display.show(numbers, columns=["counted", "2nmd"])

# %% [markdown]
# ## Attention, product by product
#
# Take b samples, n queries, m keys and h heads of width d. Together the heads are as wide as the
# model, $e = hd$. The function lists the matrix products of multi-head attention, each with its
# FLOPs. It is called with 3 queries and 5 keys, as in cross-attention.


# %%
def products(b: int, n: int, m: int, h: int, d: int) -> dict[str, int]:
    """Count the FLOPs of attention, product by product."""
    e = h * d
    return {
        "project queries": 2 * (b * n) * e * e,
        "project keys": 2 * (b * m) * e * e,
        "project values": 2 * (b * m) * e * e,
        "score": b * h * 2 * n * d * m,
        "mix": b * h * 2 * n * m * d,
        "project out": 2 * (b * n) * e * e,
    }


listed = products(b=2, n=3, m=5, h=4, d=6)
rows = {name: [flops] for name, flops in listed.items()}
display.show(rows | {"together": [sum(listed.values())]}, columns=["FLOPs"])

# %% [markdown]
# In self-attention, queries and keys come from the same tokens, so $m = n$. The three input
# projections, the score, the mix and the output projection add up to
#
# $$6bne^2 + 2bn^2e + 2bn^2e + 2bne^2 = 4bne\,(2e + n).$$
#
# The number of heads has dropped out: h products of width d cost as much as one of width e. Now
# test the formula with [the final class](07_multihead_attention.ipynb), forward and backward.


# %%
def count(module: nn.Module, *inputs: Tensor, **options) -> tuple[int, int]:
    """Let PyTorch count the FLOPs of a call, and those of its backward pass."""
    with FlopCounterMode(display=False) as counter:
        output, _ = module(*inputs, **options)
        forward = counter.get_total_flops()
        output.sum().backward()
    return forward, counter.get_total_flops() - forward


# %% tags=["fold-input"]
rows = {}
for b, n, m, h, d in ((2, 3, 5, 4, 6), (3, 7, 2, 5, 4), (1, 9, 4, 2, 8), (4, 1, 6, 1, 3)):
    e = h * d
    module = MultiheadAttention(e, h, batch_first=True)
    x = torch.randn(b, n, e, requires_grad=True)  # (b, n, e)
    y = torch.randn(b, m, e, requires_grad=True)  # (b, m, e)
    found, formula = count(module, x, x, x), 4 * b * n * e * (2 * e + n)
    crossed, together = count(module, x, y, y), sum(products(b, n, m, h, d).values())
    rows[f"{b}, {n}, {m}, {h}, {d}"] = [
        found[0],
        formula,
        found[1],
        crossed[0],
        together,
        crossed[1],
    ]
columns = ["self", "4bne(2e+n)", "backward", "cross", "formula", "backward"]
display.show(rows, columns=columns, corner="b, n, m, h, d")

# %% tags=["proof"]
for found, formula, backward, crossed, together, back in rows.values():
    assert (found, backward) == (formula, 2 * formula)
    assert (crossed, back) == (together, 2 * together)
print("✓ Forward, the formulas; backward, twice as much: to the last operation.")

# %% [markdown]
# Formula and count agree in every row, and the backward pass costs twice as much as the forward
# pass. The reason is that each product has two gradients. Write $\partial X$ for the gradient of
# the loss with respect to $X$. For $Y = XW$, the two are $\partial X = \partial Y\, W^\top$ and
# $\partial W = X^\top \partial Y$. Each is again a matrix product, with the same three sizes. If
# the inputs need no gradient, the backward pass is cheaper.
#
# > **Pitfall.** If you do not ask for the weights (`need_weights=False`), the class calls the CPU's
# > fused kernel, which computes scores, softmax and mix in one operation. PyTorch's counter does
# > not know this operation and counts nothing for it. On a GPU it does count them: it knows CUDA's fused
# > kernels (FlashAttention, memory-efficient, cuDNN), with a backward pass of five products instead of
# > four, because the scores are computed again.

# %%
b, n, h, d = 2, 64, 4, 8
module = MultiheadAttention(h * d, h, batch_first=True)
x = torch.randn(b, n, h * d)  # (b, n, h * d)
step_by_step, _ = count(module, x, x, x)
fused, _ = count(module, x, x, x, need_weights=False)
with sdpa_kernel(SDPBackend.MATH):  # the same formula, in separate operations
    opened, _ = count(module, x, x, x, need_weights=False)
rows = {"with weights": [step_by_step], "fused": [fused], "kernel off": [opened]}
display.show(rows, columns=["FLOPs counted"])

# %% tags=["proof"]
from torch.utils.flop_counter import flop_registry

known = {
    str(operation).partition("aten._scaled_dot_product_")[2] for operation in flop_registry
}
assert known >= {"flash_attention", "efficient_attention", "cudnn_attention"}
assert "flash_attention_for_cpu" not in known
print("✓ The counter knows the fused kernels of CUDA, and not that of the CPU.")

# %% [markdown]
# The fused count leaves out score and mix, which are half of the work at this size. The machine
# still does that work. To count it, ask for the attention weights or switch the fused kernel off.

# %% [markdown] name="where-the-scores-overtake-the-projections"
# ## Where the scores overtake the projections
#
# $4bne(2e + n)$ has two parts: the projections, $8bne^2$, and the scores with the mix, $4bn^2e$.
# The second part grows with the square of the length. The parts are equal where
#
# $$4bn^2e = 8bne^2, \quad\text{that is}\quad n = 2e,$$
#
# for any batch size and any number of heads. To see this, let PyTorch count on the device `meta`. Tensors
# there have shapes but no numbers, so nothing is computed, however long the sequence.
#
# At e = 512 and a length of 512 tokens, which part is larger, the projections or the scores with
# the mix? Is it only a little larger, twice as large, or ten times as large?
#
# <details><summary>What do you expect?</summary>
#
# The ratio of the two parts is $4bn^2e / 8bne^2 = n / 2e$. At n = e that is one half, so the
# projections are twice as large.
#
# </details>


# %% tags=["fold-input"]
def measure_parts(n: int, e: int) -> tuple[int, int]:
    """Let PyTorch count the projections, which have a bias, and the heads' products."""
    module = MultiheadAttention(e, 8, batch_first=True, device="meta")
    x = torch.empty(1, n, e, device="meta")  # (1, n, e)
    with FlopCounterMode(display=False) as counter:
        module(x, x, x)
    counts = counter.get_flop_counts()["Global"]  # of all modules together
    # PyTorch's names: addmm is a product with a bias, bmm makes many products at once.
    return counts[torch.ops.aten.addmm], counts[torch.ops.aten.bmm]


e, lengths = 512, (64, 512, 1024, 4096, 16384)
counted = [measure_parts(n, e) for n in lengths]
for n, (projections, scores) in zip(lengths, counted):
    assert scores / projections == n / (2 * e)
share = counted[0][0] / sum(counted[0])

# %% tags=["hide-input"]
drawing, (ax,) = display.panels(340, 260)
for part, name in enumerate(("projections", "scores and mix")):
    work = [count[part] / 1e9 for count in counted]
    hue = display.COLOURS["nh"[part]]
    ax.loglog(lengths, work, color=hue, marker="o")
    below = (0, -34) if part == 0 else (0, 12)
    spot = {"xytext": below, "textcoords": "offset points", "ha": "right", "color": hue}
    ax.annotate(name, (16384, work[-1]), fontsize=12, **spot)
ax.axvline(2 * e, color=display.COLOURS["b"], linestyle=":")
ax.annotate("n = 2e", (2 * e, 0.02), (6, 0), textcoords="offset points", fontsize=12)
ax.set(xlabel="tokens n, at e = 512", ylabel="GFLOP")
ax.set_xticks(
    [64, 512, 1024, 4096, 16384], ["64", "512", "", "4,096", "16,384"], minor=False
)
ax.set_yticks([0.01, 0.1, 1, 10, 100], ["0.01", "0.1", "1", "10", "100"])
ax.minorticks_off()
caption = f"Counted by PyTorch. At n = 64 the projections are {share:.0%} of the work."
alt = (
    "Two lines cross at n = 1,024: projections grow with n, scores and mix with its square."
)
display.finish(drawing, name="crossing", alt=alt, caption=caption)

# %% [markdown]
# Both axes are logarithmic, so the line of the scores, which grow with the square, is twice as steep. The
# lines cross at n = 2e.
#
# So what is the complexity of attention? $4bne(2e + n)$ is $O(bne^2 + bn^2e)$. For one sample, and
# with e much smaller than n, only the second term matters: $O(n^2e)$. [[Vaswani et al., table
# 1](../docs/references.md#vaswani-2017)] gives this for self-attention and leaves out the
# projections. Yet these are the larger part up to $n = 2e$: at e = 512 and n = 64, they make up 94%
# of the FLOPs.
#
# ## Parameters and heads
#
# Four matrices of shape $(e, e)$ and four biases of e numbers make $4e^2 + 4e$ parameters. Neither
# the parameters nor the FLOPs depend on h, because the h heads share the width e. The number of
# attention weights does: each head has its own n × m matrix of them. Compare all three for
# different numbers of heads, at $n = 48$ and $e = 64$. The module `annotated_attention.counting`
# holds this chapter's formulas.

# %%
b, n, e = 1, 48, 64
x = torch.randn(b, n, e)  # (b, n, e)
rows = {}
for h in (1, 8, 64):
    module = MultiheadAttention(e, h, batch_first=True)
    flops, _ = count(module, x, x, x)
    _, weights = module(x, x, x, average_attn_weights=False)  # (b, n, e), (b, h, n, n)
    size = sum(p.numel() for p in module.parameters())
    rows[h] = [e // h, size, flops, weights.numel()]
display.show(rows, columns=["d", "parameters", "FLOPs", "attention weights"], corner="h")

# %% tags=["proof"]
assert {row[1] for row in rows.values()} == {4 * e**2 + 4 * e}
assert counting.attention_parameters(e) == 4 * e**2 + 4 * e
print(
    f"✓ The parameters are 4e² + 4e = {4 * e**2 + 4 * e:,}, whatever the number of heads."
)

# %% [markdown]
# Eight times the heads make eight times the attention weights, while parameters and FLOPs stay the same.
# Each of these weights takes up memory and costs one exponential in the softmax, which the FLOPs leave out.

# %% [markdown]
# <!-- deeper: What a narrow head cannot do -->
# ### Going deeper: What a narrow head cannot do
#
# Many narrow heads are not better than a few wide ones in every respect. One head multiplies its
# queries, `(n, d)`, by its keys, `(d, m)`. Every row of its scores is therefore built from the d
# rows of the second matrix, by scaling and adding. The **rank** of a matrix is the smallest number
# of rows from which all its rows can be built in this way. So the rank of a head's scores is at
# most d.
#
# Print the rank of the first head's scores, and the number of different orders in which its 48
# queries put the keys.


# %%
class Scores(MultiheadAttention):
    """Remembers the first head's scores."""

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        scores = super().score(q, k)
        self.first = scores[0, 0]
        return scores


x = x.double()  # (b, n, e)
rows = {}
for h in (1, 2, 4, 8, 16, 64):
    module = Scores(e, h, batch_first=True, dtype=torch.float64)
    module(x, x, x)
    orders = {tuple(row) for row in module.first.argsort(-1).tolist()}
    rank = torch.linalg.matrix_rank(module.first).item()
    assert rank == min(e // h, n)
    rows[h] = [e // h, rank, len(orders)]
display.show(rows, columns=["d", "rank", "orders of the keys"], corner="h")

# %% [markdown]
# The rank is d, or n where d is larger than n. At d = 1, query and key are one number each, and the
# score is their product. So every query puts the keys in the same order or in its reverse: two
# orders in all. The softmax preserves the order, so the weights, too, come in only two orders.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# ## What the backward pass needs
#
# Training keeps results of the forward pass until the backward pass has used them. PyTorch calls a
# function of yours whenever it saves one, so you can count them. Several saved tensors can be views of
# one **storage**, the memory that holds their numbers, which counts once. The parameters exist anyway,
# and do not count.
#
# Run one layer with and without the attention weights, and list the sizes of what is kept:


# %% tags=["fold-input"]
def kept(module: nn.Module, call) -> list[int]:
    """List how many numbers a call keeps for its backward pass, each storage once."""
    sizes = {}

    def save(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if x.is_floating_point():
            sizes[storage.data_ptr()] = storage.nbytes() // x.element_size()
        return x

    with torch.autograd.graph.saved_tensors_hooks(save, lambda x: x):
        output = call()  # as long as this lives, no storage is used twice
    for parameter in module.parameters():
        sizes.pop(parameter.untyped_storage().data_ptr(), None)
    del output
    return [*sizes.values()]


# %%
b, n, h, d = 2, 7, 4, 6
module = MultiheadAttention(h * d, h, batch_first=True)
x = torch.randn(b, n, h * d, requires_grad=True)  # (b, n, h * d)
stored = kept(module, lambda: module(x, x, x))
fused = kept(module, lambda: module(x, x, x, need_weights=False))
rows = {"with weights": [sum(stored), " + ".join(map(str, stored))]}
rows["without"] = [sum(fused), " + ".join(map(str, fused))]
display.show(rows, columns=["numbers", "in storages of"])

# %% tags=["proof"]
bne, weights, sums = b * n * h * d, b * h * n * n, b * h * n
assert sorted(stored) == sorted([bne] * 5 + [weights])
assert sorted(fused) == sorted([3 * bne, bne, bne, sums])
print(f"✓ bne is {bne}, bhn² is {weights}, and bhn is {sums}.")

# %% [markdown]
# With the attention weights, six tensors are kept: the input, keys, queries, these weights, values, and the
# merged heads that go into $W_O$. The scores are not, because the softmax can be differentiated
# from its result alone. Five of the six are as large as the input, which makes $5bne$ numbers
# together. The weights add $bhn^2$. (PyTorch's class keeps $bne$ more: the scaled
# queries, and the unscaled ones, too, which lie in one storage with the keys and values.)
#
# The fused kernel keeps no attention weights. It keeps the input and the merged heads as before, and
# queries, keys and values in a single storage. It also keeps one number for each query and head:
# the logarithm of the sum of exponentials in the softmax. In the backward pass, it computes the
# scores a second time. That is one more product, which the count of twice the forward pass leaves
# out. From each score it then computes the weight:
#
# $$\text{weight} = \exp(\text{score} - \text{kept number}).$$

# %% [markdown]
# Without the attention weights, the amount kept grows linearly with n; with them, it grows with $n^2$. Take
# one attention layer of the original model, with 8 heads and e = 512. At a length of 16,384 tokens,
# how much does it keep with the weights: twice as much as without them, ten times, or about fifty
# times?
#
# <details><summary>What do you expect?</summary>
#
# Compare $bhn^2$ with $5bne$: the ratio is $hn / 5e$. At this length there are about 50 times as
# many weights as other numbers.
#
# </details>
#
# Here is how many bytes the layer keeps, for two samples in float32:

# %%
e, h = 512, 8
rows = {}
for n in (256, 1024, 4096, 16384):
    stored = counting.attention_kept(n, n, e, h, b=2)
    fused = counting.attention_kept(n, n, e, h, b=2, fused=True)
    rows[n] = [counting.short(4 * numbers, "B") for numbers in (stored, fused)]
display.show(rows, columns=["with weights", "without"], corner="n")

# %% [markdown]
# At the last length, it is 17.5 GB against 337 MB, about fifty times as much. These are the numbers
# kept for the backward pass. The peak memory of a process also includes gradients and whatever
# exists only for a moment, so it has to be measured; [the next
# chapter](15_speed.ipynb#cell-id=the-price-of-the-weights) does so.

# %% [markdown] name="one-token-at-a-time"
# ## One token at a time
#
# A model that writes text computes one token, then the next. Each new query looks at all keys and
# values so far. These no longer change, because under a causal mask no token sees later ones. So
# you can keep them, in what is called the **KV cache**:


# %%
def write_next(module: MultiheadAttention, x: Tensor, cache: list[Tensor]) -> Tensor:
    """Attend from one more token to itself and those before it.

    Args:
        module: batch-first, with biases.
        x: (b, 1, e), the new token.
        cache: keys and values so far; those of the new token are appended.
    """
    q, k, v = F.linear(x, module.in_proj_weight, module.in_proj_bias).chunk(3, -1)
    q, k, v = (split_heads(part, module.num_heads) for part in (q, k, v))
    if cache:
        k, v = torch.cat([cache[0], k], -2), torch.cat([cache[1], v], -2)
    cache[:] = k, v
    heads = scaled_dot_product_attention(q, k, v)[0]  # (b, h, 1, d)
    return module.out_proj(merge_heads(heads))        # (b, 1, e)


# %% [markdown]
# No mask is needed, because later tokens do not exist yet. A step with m keys costs the projections
# of one token, $8be^2$, and the scores and mix of one query, $4bme$. The cache holds $2bme$ numbers
# for each attention module. Check both counts, and that writing token by token gives the same output
# and gradients as computing all tokens at once:

# %% tags=["proof"]
one = chapters.load("01_one_head")  # for its helper, gradients

b, n, h, d = 2, 7, 4, 6
e = h * d
module = MultiheadAttention(e, h, batch_first=True, dtype=torch.float64)
x = torch.randn(b, n, e, dtype=torch.float64, requires_grad=True)  # (b, n, e)
cache, written = [], []
for m in range(1, n + 1):
    with FlopCounterMode(display=False) as counter:
        written.append(write_next(module, x[:, [m - 1]], cache))
    assert counter.get_total_flops() == 8 * b * e**2 + 4 * b * m * e
    assert sum(part.numel() for part in cache) == 2 * b * m * e
steps = torch.cat(written, 1)               # (b, n, e)
whole = module(x, x, x, is_causal=True)[0]  # (b, n, e)
torch.testing.assert_close(steps, whole)
inputs = [x, *module.parameters()]
torch.testing.assert_close(one.gradients(steps, inputs), one.gradients(whole, inputs))
print("✓ One by one, the same outputs and gradients, and 8be² + 4bme FLOPs at each step.")

# %% [markdown]
# ## Whole models
#
# The rest of a Transformer is just as easy to count. Let f be the width inside the feed-forward
# network, which has a ReLU, and w the number of words in the vocabulary.
#
# | part | parameters | FLOPs, forward | kept |
# |---|---|---|---|
# | embeddings | $ew$ | 0 | 0 |
# | feed-forward network | $2ef + f + e$ | $4bnef$ | $bn(e + f)$ |
# | norm | $2e$ | 0 | $bn(e + 2)$ |
# | output layer | $ew$ | $2bnew$ | $bne$ |
#
# The FLOPs are those of matrix products alone. The last three parts keep their input. The
# feed-forward network also keeps its hidden numbers (once, after the ReLU; a GELU would keep its
# input as well). A norm also keeps the mean and the inverse standard deviation of each token.
#
# `counting.Model` adds up all parts of a model, and [the calculator](#cell-id=the-calculator) shows the
# result.

# %% [markdown]
# <!-- deeper: Published models -->
# ### Going deeper: Published models
#
# Published models differ from the table in a few ways:
#
# - In the original model and GPT-2, the embeddings and the output share one matrix.
# - BERT and GPT-2 learn a vector of e numbers for each position. BERT also learns one for each of
#   two kinds of segments. Both models have one norm outside their layers.
# - BERT is counted without an output layer, but with `pooling`, a layer of $e^2 + e$ parameters for
#   one of its training tasks.
#
# Compare the counts of published models with what their authors say. The table gives e, f, and
# the layers of encoder and decoder (a model with one stack has 0 decoder layers). The original
# model is counted with a vocabulary of 37,000; its paper says *about* 37,000.

# %% tags=["fold-input"]
SAID = {
    "transformer-base": 65,
    "transformer-big": 213,
    "bert-base": 110,
    "bert-large": 340,
    "gpt2": 117,
    "gpt2-xl": 1542,
}
rows = {}
for name, model in counting.PRESETS.items():
    pooling = model.embed_dim**2 + model.embed_dim if name.startswith("bert") else 0
    counted = sum(model.parameters().values()) + pooling
    layers = f"{model.layers}+{model.decoder_layers}"
    rows[name] = [f"{model.embed_dim}", f"{model.feedforward}", layers, counted, SAID[name]]
columns = ["e", "f", "layers", "counted", "published, million"]
display.show(rows, columns=columns, corner="model")

# %% [markdown]
# BERT's figures [[Devlin et al., section 3](../docs/references.md#devlin-2019)] are rounded.
# GPT-2's [[Radford et al., table 2](../docs/references.md#radford-2019)] were wrong, as its
# authors' [code repository](https://github.com/openai/gpt-2) admits. For the original model
# [[Vaswani et al., table 3](../docs/references.md#vaswani-2017)], base comes out below its
# published total and big above; we do not know why.
#
# With PyTorch the formula agrees exactly. Build the model from [The
# Transformer](09_transformer.ipynb) at the size of transformer-base, on the device `meta`:

# %%
from annotated_attention import Seq2SeqTransformer

base = sum(counting.PRESETS["transformer-base"].parameters().values())
options = {"share_embeddings": True, "final_norm": False, "device": "meta"}
built = Seq2SeqTransformer(37000, 37000, **options)
print(f"{base:,} parameters counted, {sum(p.numel() for p in built.parameters()):,} built")

# %% [markdown]
# Now run a small model, to compare FLOPs and kept numbers as well. Each of its two stacks has a
# final norm. All its cross-attentions read the same encoder output, which is kept only once.

# %% tags=["proof"]
small = counting.Model(
    embed_dim=24,
    num_heads=4,
    feedforward=7,
    layers=2,
    decoder_layers=3,
    vocabulary=11,
    norms=2,  # the final norms of the two stacks
)
built = Seq2SeqTransformer(
    src_vocab=11,
    tgt_vocab=11,
    d_model=24,
    nhead=4,
    num_encoder_layers=2,
    num_decoder_layers=3,
    dim_feedforward=7,
    dropout=0.0,
    share_embeddings=True,
)
source, target = torch.randint(11, (2, 2, 5))  # (2, 5), (2, 5)
with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
    built(source, target)
numbers_kept = kept(built, lambda: built(source, target))

flops, numbers = small.flops(length=5, batch=2), small.kept(length=5, batch=2, fused=True)
assert sum(flops.values()) == counter.get_total_flops()
assert sum(numbers.values()) == sum(numbers_kept)
print("✓ For a small model, too: FLOPs and numbers kept are what PyTorch counts.")

# %% [markdown]
# Both counts agree to the last digit.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="six-operations"
# ## Six operations for each parameter and token
#
# Nobody adds up a table to say what training costs. In a linear layer each parameter meets each token in
# one multiplication and one addition, which makes 2, and the backward pass costs twice that. So training
# a model of N parameters on D tokens takes about $6ND$ FLOPs [[Kaplan et
# al.](../docs/references.md#kaplan-2020), section 2.1]. The rule knows no scores at all. How far off is it
# for GPT-2, at its longest text and at sixteen times that length?

# %%
rows = {}
for name in ("gpt2", "gpt2-xl"):
    model = counting.PRESETS[name]
    parts, size = model.parameters(), sum(model.parameters().values())
    both = size, size - parts["embeddings, output"]
    for n in (1024, 16384):
        step = 3 * sum(model.flops(length=n).values())
        cells = [cell for N in both for cell in (N / 1e6, step / (6 * N * n))]
        rows[f"{name}, n = {n:,}"] = [round(step / 1e9), *cells]
columns = ["GFLOP a step", "N, million", "÷ 6ND", "N without embeddings", "÷ 6ND"]
display.show(rows, columns=columns, corner="one text", decimals=(0, 1, 2, 1, 2))

# %% tags=["proof"]
beside = {}
for name in ("gpt2", "gpt2-xl"):
    model = counting.PRESETS[name]
    size, n = sum(model.parameters().values()), 16384
    beside[name] = model.flops(length=n)["scores and mix"] / (2 * size * n)
assert min(beside.values()) > 1
assert beside["gpt2"] / 2 > 1 > beside["gpt2-xl"] / 2 > 0.75
print(
    "✓ All scores cost more than the rule counts; half of them, in the small model alone."
)

# %% [markdown]
# At 1,024 tokens the truth is 1.14 and 1.10 times the rule. At 16,384 the scores and the mix, which the rule
# leaves out, cost more than all that it counts, as long as masked scores count, as they do here. A causal
# kernel skips those, about half of all: then they still cost more in the small model, and a little less in
# the large one.
#
# The last two columns use the N of the paper, which leaves the embeddings out. With it the small model is
# at 1.67, because GPT-2's embeddings are its output layer, too: looking a word up costs nothing, but as the
# output layer the same matrix is multiplied with every token. So count a tied matrix once, and count it.
# In the larger model it hardly matters.

# %% [markdown] name="why-decoding-waits"
# ## Why decoding waits for memory
#
# Reading a prompt, the **prefill**, and writing an answer, the **decode**, cost the same 2 FLOPs for each
# parameter and token (the scores and the mix come on top, and are left out here). Yet the answer comes far more slowly. What differs is what has to be read: for a
# whole prompt the parameters once; for an answer the parameters again for *every* token, and with them the
# keys and values of all tokens before. Writing for 64 people at once, the parameters are read for all
# together. Does each byte then buy 64 times as many FLOPs?
#
# <details><summary>What do you expect?</summary>
#
# No: 8.6 FLOPs instead of 0.9. The parameters are shared, but each text has a cache of its own, and 64 caches are
# soon larger than the model.
#
# </details>
#
# Here is GPT-2 XL in 16 bits. The last column divides the bytes by the 3.35<!-- quoted --> TB that the memory of an
# H100 delivers in a second [[Shah et al. 2024](../docs/references.md#shah-2024), section 2]:

# %%
model = counting.PRESETS["gpt2-xl"]
size, rows = sum(model.parameters().values()), {}
for name, tokens, texts, past in (
    ("prefill, 1,024 tokens", 1024, 1, 0),
    ("decode, its first token", 1, 1, 0),
    ("decode, after 1,024", 1, 1, 1024),
    ("64 texts, after 1,024", 64, 64, 1024),
):
    cache = texts * model.layers * 2 * past * model.embed_dim * 2  # bytes
    flops, read = 2 * size * tokens, 2 * size + cache
    rows[name] = [2 * size / 1e9, cache / 1e9, flops / read, read / 3.35e12 * 1e3]
columns = ["GB of parameters", "GB of cache", "FLOPs a byte", "ms to read"]
display.show(rows, columns=columns, decimals=(2, 2, 1, 2))

# %% [markdown]
# A GPU can do hundreds of FLOPs in the time in which it reads one byte, and decoding one text gives it one.
# So the time for a token is about bytes divided by bandwidth. That is a prediction that you can test: on an
# H100, GPT-2 XL needs at least 0.93 ms for a token, however fast its arithmetic. A step of
# 64 texts takes 6.94 ms, because their caches have grown to 20.13 GB beside the 3.12 of the parameters; but
# it writes 64 tokens. [The cache](21_cache.ipynb) goes on from here.

# %% [markdown]
# ## Exercises
#
# ### How long can it get?
#
# *Easy, 2 minutes.* A machine has `left` bytes free for the KV cache of b sequences. How many
# tokens of each sequence fit? The model has width e and `layers` layers, with self-attention only.
# Each number takes `bytes_each` bytes.


# %% tags=["exercise"]
def longest(left: int, b: int, e: int, layers: int, bytes_each: int) -> int:
    """Count the tokens whose keys and values fit into ``left`` bytes."""
    return None  # your formula here


# %%
from annotated_book import exercises

exercises.counting.check_longest(longest)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# How many bytes does one token take, in one layer of one sequence? It has a key and a value.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Only whole tokens count, so divide with `//`.
#
# </details>


# %% tags=["solution"]
def longest(left: int, b: int, e: int, layers: int, bytes_each: int) -> int:
    """Count the tokens whose keys and values fit into ``left`` bytes."""
    return left // (2 * b * e * layers * bytes_each)


exercises.counting.check_longest.folded(longest)

# %% [markdown]
# ### One decoder layer
#
# *Medium, 6 minutes.* Derive the FLOPs of the matrix products in one decoder layer's forward pass.
# The layer has causal self-attention over n tokens, cross-attention from these n to m others, and a
# feed-forward network from e to f and back. All of this is done for b samples. Masked scores count,
# too, as they do for PyTorch's counter.


# %% tags=["exercise"]
def decoder_layer(b: int, n: int, m: int, e: int, f: int) -> int:
    """Count the FLOPs of one decoder layer."""
    return None  # your formula here


# %%
exercises.counting.check_decoder_layer(decoder_layer)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Take the parts one at a time. Self-attention is $4bne(2e + n)$. In cross-attention, what depends
# on n, and what on m?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# In cross-attention, queries and output have n rows, keys and values have m. There are n × m
# scores.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# The feed-forward network is two products, $(bn, e)(e, f)$ and $(bn, f)(f, e)$.
#
# </details>


# %% tags=["solution"]
def decoder_layer(b: int, n: int, m: int, e: int, f: int) -> int:
    """Count the FLOPs of one decoder layer."""
    looks_back = 4 * b * n * e * (2 * e + n)
    looks_across = 4 * b * n * e * e + 4 * b * m * e * e + 4 * b * n * m * e
    network = 4 * b * n * e * f
    return looks_back + looks_across + network


exercises.counting.check_decoder_layer.folded(decoder_layer)

# %% [markdown]
# ## What you have now
#
# You can write down what attention costs before you run it, and you have seen PyTorch arrive at the
# same counts.
#
# > **In short.** Attention has $4e^2 + 4e$ parameters. Self-attention takes $4bne\,(2e + n)$ FLOPs
# > forward and twice that backward. This book's class keeps $5bne$ numbers for the backward pass,
# > and $bhn^2$ more if the attention weights are stored, $bhn$ if not. A KV cache holds $2bme$ numbers for
# > each attention module.
# >
# > ```python
# > with FlopCounterMode(display=False) as counter:
# >     module(x, x, x)  # with weights: the counter does not see the CPU's fused kernel
# > counter.get_total_flops() == 4 * b * n * e * (2 * e + n)
# > ```
# >
# > Training takes about $6ND$ FLOPs; decoding takes about as long as reading all parameters and the cache.
# >
# > The number of heads affects neither parameters nor FLOPs, only the number of attention weights. Up to
# > $n = 2e$, most of attention's FLOPs are in the projections. Beyond that, most are in the scores
# > and the mix, which grow with the square of the length.
#
# None of this tells you how long a call takes. The [next chapter](15_speed.ipynb) measures that.
