# %% [markdown]
# # Counting
#
# *What does it cost, before I run it?*
#
# How many parameters does a model have, how much arithmetic does a call take, and how many
# numbers does training keep of it?
# All three follow from the sizes alone, as the price of a carpet follows from its length and width. In
# this chapter you derive short formulas from a single matrix product, and check each against PyTorch's
# own count. The two must agree to the last digit.

# %% tags=["hide-input"]
from annotated_attention import display

display.chapter_map("project in", "score", "mix", "project out")

# %% [markdown]
# The four lit steps are matrix products, and this chapter counts the arithmetic of products alone.
#
# ## One product
#
# Multiply `(n, d)` by `(d, m)`. The result has $nm$ numbers, and each is a sum of $d$ products. A
# sum of $d$ numbers takes only $d - 1$ additions. Do it number by number, and count.


# %%
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode


def by_hand(left: Tensor, right: Tensor, bias: list[float]) -> Tensor:
    """Multiply two matrices number by number, and print what it took."""
    results, multiplied, added = [], 0, 0
    for row in left.tolist():
        for column in right.T.tolist():
            # The sum starts with its first term, which costs no addition.
            total, *others = bias + [x * y for x, y in zip(row, column)]
            multiplied += len(row)
            for term in others:
                total, added = total + term, added + 1
            results.append(total)
    print(multiplied, "multiplications and", added, "additions")
    return torch.tensor(results).view(len(left), -1)


# %%
n, m, d = 3, 5, 6
left, right = torch.randn(n, d), torch.randn(d, m)  # (n, d), (d, m)
torch.testing.assert_close(by_hand(left, right, bias=[]), left @ right)
print(n * m * d, "is nmd, and", n * m * (d - 1), "is nm(d - 1)")

# %% [markdown]
# Together that is $nm(2d - 1)$. The usual count is the rounder $2nmd$, one addition for each
# multiplication. That is what PyTorch's own counter says, and what this chapter counts:

# %%
with FlopCounterMode(display=False) as counter:
    left @ right

print("PyTorch counts", counter.get_total_flops(), "and 2nmd is", 2 * n * m * d)

# %% [markdown]
# The difference is one addition for each number of the result. A linear layer starts each sum from a
# bias. That is one more addition, so there $2nmd$ is exact:

# %%
torch.testing.assert_close(by_hand(left, right, bias=[0.1]), left @ right + 0.1)

# %% [markdown]
# Each multiplication or addition is a **FLOP**, a floating-point operation. **FLOPs** are an amount of
# work. **FLOPS**, with a capital S, are FLOPs per second: the speed of a machine at some task. You can
# know the amount in advance, never the speed. Here are three forward passes of self-attention: the
# FLOPs of each, and the speed that one machine reached in this book's measurements, without and with
# the attention weights.

# %% jupyter={"source_hidden": true}
from annotated_attention import counting, measure

print("{cpu}, {threads} threads, {date}".format(**measure.load()["provenance"]))
for row in measure.find("versions", mode="forward"):
    b, n, e, _ = row["size"]
    flops, times = counting.attention_flops(n, n, e, b=b), row["milliseconds"]
    fused, weights = (
        flops / times[f"07 final class{kind}"][1] / 1e6 for kind in ("", ", weights")
    )
    print(f"{b = }, {n = :4}, {e = }: {flops / 1e9:5.2f} GFLOPs", end=" ")
    print(f"at {fused:.0f} GFLOPs per second, {weights:.0f} with weights")

# %% [markdown]
# The same machine runs at different speeds, so time is not proportional to FLOPs. Some people count a
# multiplication with its addition as one, a multiply-accumulate or MAC, and get half as many. Big-O
# notation hides every constant factor, so there it changes nothing.
#
# ## Attention, product by product
#
# There are b samples, n queries, m keys and h heads of width d. Together the heads are as wide as the
# model, $e = hd$. The function lists the products of multi-head attention, each with its FLOPs.


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
for name, flops in listed.items():
    print(f"{name:>16} {flops:6,}")
print(f"{'together':>16} {sum(listed.values()):6,}")

# %% [markdown]
# In self-attention queries and keys come from the same tokens, so $m = n$. The three input projections,
# score, mix and the output projection add up to
#
# $$6bne^2 + 2bn^2e + 2bn^2e + 2bne^2 = 4bne\,(2e + n).$$
#
# The number of heads has dropped out: h products of width d cost as much as one of width e. Now test
# it with [the final class](07_multihead_attention.ipynb), forward and backward.


# %%
from annotated_attention import MultiheadAttention


def count(module: nn.Module, *inputs: Tensor, **options) -> tuple[int, int]:
    """Let PyTorch count the FLOPs of a call, and those of its backward pass."""
    with FlopCounterMode(display=False) as counter:
        output, _ = module(*inputs, **options)
        forward = counter.get_total_flops()
        output.sum().backward()
    return forward, counter.get_total_flops() - forward


# %%
print("               self-attention                 cross-attention")
print("  b,n,m,h,d    forward  4bne(2e+n)  backward  forward  formula  backward")
for b, n, m, h, d in ((2, 3, 5, 4, 6), (3, 7, 2, 5, 4), (1, 9, 4, 2, 8), (4, 1, 6, 1, 3)):
    e = h * d
    module = MultiheadAttention(e, h, batch_first=True)
    x = torch.randn(b, n, e, requires_grad=True)                      # (b, n, e)
    y = torch.randn(b, m, e, requires_grad=True)                      # (b, m, e)
    found, formula = count(module, x, x, x), 4 * b * n * e * (2 * e + n)
    crossed, listed = count(module, x, y, y), sum(products(b, n, m, h, d).values())
    assert (found, crossed) == ((formula, 2 * formula), (listed, 2 * listed))
    sizes = f"{b},{n},{m},{h},{d}"
    print(f"{sizes:>11} {found[0]:10} {formula:11} {found[1]:9}"
          f" {crossed[0]:8} {listed:8} {crossed[1]:9}")

# %% [markdown]
# Equal everywhere, and the backward pass is twice the forward pass. Write $\partial X$ for the gradient
# of the loss with respect to $X$. A product $Y = XW$ has two gradients, $\partial X = \partial Y\, W^\top$
# and $\partial W = X^\top \partial Y$, and each is a product of the same three sizes. The inputs need
# gradients here, as they do wherever something before the layer is trained. Where the inputs are fixed
# data, the backward pass is cheaper.
#
# > **Pitfall.** The counter reads the names of operations. It does not know the CPU's fused kernel,
# > which computes scores, softmax and mix in one operation, and counts nothing for it.

# %%
from torch.nn.attention import SDPBackend, sdpa_kernel

b, n, h, d = 2, 64, 4, 8
x = torch.randn(b, n, h * d)  # (b, n, h * d)
for module in (MultiheadAttention(h * d, h, batch_first=True),
               nn.MultiheadAttention(h * d, h, batch_first=True)):
    step_by_step, _ = count(module, x, x, x)
    fused, _ = count(module, x, x, x, need_weights=False)
    with sdpa_kernel(SDPBackend.MATH):  # the same formula, in separate operations
        opened, _ = count(module, x, x, x, need_weights=False)
    print(f"{step_by_step:9,} step by step, {fused:9,} fused, {opened:9,} kernel off")

# %% [markdown]
# The first line is the final class, the second PyTorch's. The fused count lacks score and mix, which
# are half of the work at this size. The machine still does all of it. So count step by step, or switch
# the kernel off.
#
# ## Where the scores overtake the projections
#
# $4bne(2e + n)$ has two parts: the projections, $8bne^2$, and the scores with the mix, $4bn^2e$. The
# second grows with the square of the length. They are equal where
#
# $$4bn^2e = 8bne^2, \quad\text{that is}\quad n = 2e,$$
#
# whatever the batch and the heads. To see it, let PyTorch count on the device `meta`, where tensors
# have shapes and no numbers: nothing is computed, however long the sequence.
#
# At e = 512 and a length of 512 tokens, which part is larger, the projections or the scores with the
# mix? Is it only a little larger, twice as large, or ten times?
#
# <details><summary>What do you expect?</summary>
#
# The ratio of the two parts is $4bn^2e / 8bne^2 = n / 2e$. At n = e that is one half, so the projections
# are twice as large.
#
# </details>


# %%
def measure_parts(n: int, e: int) -> tuple[int, int]:
    """Let PyTorch count the projections, which have a bias, and the heads' products."""
    module = MultiheadAttention(e, 8, batch_first=True, device="meta")
    x = torch.empty(1, n, e, device="meta")  # (1, n, e)
    with FlopCounterMode(display=False) as counter:
        module(x, x, x)
    counts = counter.get_flop_counts()["Global"]  # of all modules together
    # PyTorch's names: addmm is a product with a bias, bmm makes many products at once.
    return counts[torch.ops.aten.addmm], counts[torch.ops.aten.bmm]


e = 512
print("     n     projections  of all  scores and mix   ratio")
for n in (64, e, 2 * e - 1, 2 * e, 2 * e + 1, 16384):
    projections, scores = measure_parts(n, e)
    share = projections / (projections + scores)
    print(f"{n:6} {projections:15,} {share:7.0%} {scores:15,} {scores / projections:7.3f}")

# %% [markdown]
# Divided by n, the projections are flat and the scores with the mix grow in proportion to n. Both axes
# of the figure are logarithmic.

# %% jupyter={"source_hidden": true}
lengths = [2**power for power in range(5, 15)]
parts = {n: measure_parts(n, e) for n in lengths}
drawing, (ax,) = display.panels(460, 260)
lines = (("projections", "--", "d"), ("scores and mix", "-", "n"))
for i, (name, style, letter) in enumerate(lines):
    counts = [parts[n][i] / n for n in lengths]
    ax.plot(lengths, counts, style, color=display.COLOURS[letter])
    ax.text(lengths[-1] * 1.15, counts[-1], name, va="center")
ax.set_xscale("log", base=2)
ax.axvline(2 * e, color=display.COLOURS["b"], linewidth=0.8)
ax.text(2 * e * 0.9, parts[32][1] / 32, "n = 2e", ha="right")
ax.set(yscale="log", xlabel=f"length n, at e = {e}", title="FLOPs for each token")
display.finish(drawing, name="crossover", alt=(
    "FLOPs for each token against the length n, on logarithmic axes. The projections are "
    f"a flat line, scores and mix a rising one; they cross at n = {2 * e}."
))

# %% [markdown]
# So what is the complexity of attention? $4bne(2e + n)$ is $O(bne^2 + bn^2e)$. For one sample, and
# e much smaller than n, the second term is all that counts: $O(n^2e)$. That is also the entry for
# self-attention in the table that compares layers in [[Vaswani et al., table
# 1](../docs/references.md#vaswani-2017)]. The paper's entry leaves out the projections. They are the
# larger part up to $n = 2e$; at n = 64, in the first row of our table, they are 94% of the FLOPs.
#
# ## Parameters
#
# Four matrices of $(e, e)$ and four biases of e numbers make $4e^2 + 4e$ parameters. Where the keys have
# another width, `kdim`, their matrix has e · `kdim` numbers instead of $e^2$; the same holds for the
# values and `vdim`. With `add_bias_kv`, the appended key and value add another 2e. The module
# `annotated_attention.counting` holds this chapter's formulas.

# %%
e = 24
cases = [{}, {"bias": False}, {"kdim": 7}, {"kdim": 7, "vdim": 5}, {"add_bias_kv": True}]
for options in cases:
    formula = counting.attention_parameters(e, **options)
    for heads in (1, 4, 24):
        module = MultiheadAttention(e, heads, **options)
        assert sum(p.numel() for p in module.parameters()) == formula
    print(f"{formula}  {options or 'as usual'}")
print("4e² + 4e =", 4 * e**2 + 4 * e)

# %% [markdown]
# Modules of 1, 4 and 24 heads all have the number that the formula gives.
#
# ## What heads do change
#
# Neither parameters nor FLOPs depend on h, because h heads share the width e. The number of weights
# does, and so does the rank of each head's scores. The **rank** of a matrix is the smallest number of
# its rows from which all its rows can be built by scaling and adding. Here are both at $n = 48$ and
# $e = 64$.

# %%
b, n, e = 1, 48, 64
x = torch.randn(b, n, e, dtype=torch.float64)  # (b, n, e)


class Scores(MultiheadAttention):
    """Remembers the rank of the first head's scores."""

    def score(self, q: Tensor, k: Tensor) -> Tensor:
        scores = super().score(q, k)
        self.rank = int(torch.linalg.matrix_rank(scores[0, 0]))
        return scores


print(" h   d   parameters     FLOPs   weights   rank of the scores")
for h in (1, 2, 4, 8, 16, 64):
    module = Scores(e, h, batch_first=True, dtype=torch.float64)
    flops, _ = count(module, x, x, x)
    _, weights = module(x, x, x, average_attn_weights=False)  # (b, n, e), (b, h, n, n)
    size = sum(p.numel() for p in module.parameters())
    print(f"{h:2} {e // h:3} {size:12,} {flops:9,} {weights.numel():9,} {module.rank:8}")

# %% [markdown]
# Each head has its own n × m matrix of weights. Each weight takes memory and costs one exponential in
# the softmax, and the FLOPs above include neither.
#
# A head's scores are a product of `(n, d)` and `(d, m)`, so their rank is at most d, and at most n and m.
# So many narrow heads give many score matrices of low rank, and few wide heads give few of high rank.
# What the softmax makes of them can have a higher rank.
#
# ## What the backward pass needs
#
# Training keeps results of the forward pass until the backward pass has used them. PyTorch lets you
# watch what it saves: it calls one function whenever it saves a tensor and another when it reads the
# tensor back. Several saved tensors can be views of one **storage**, the memory itself, so count each
# storage once. Leave out the parameters, which exist anyway, and whatever holds no floats, such as
# boolean masks and indices.


# %%
class Kept(torch.autograd.graph.saved_tensors_hooks):
    """Counts the numbers that are kept for the backward pass, each storage once."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(self.save, lambda x: x)  # to save a tensor, to read it back
        self.known = {p.untyped_storage().data_ptr() for p in module.parameters()}
        self.saved: list[Tensor] = []

    def __enter__(self) -> "Kept":
        super().__enter__()
        return self

    def save(self, x: Tensor) -> Tensor:
        storage = x.untyped_storage().data_ptr()
        if storage not in self.known and x.is_floating_point():
            self.known.add(storage)
            self.saved.append(x)
        return x

    def sizes(self) -> list[int]:
        """Give the size of each storage, in numbers."""
        return [x.untyped_storage().nbytes() // x.element_size() for x in self.saved]


# %%
b, n, m, h, d = 2, 7, 5, 4, 6
module = MultiheadAttention(h * d, h, batch_first=True)
x = torch.randn(b, n, h * d, requires_grad=True)  # (b, n, h * d)
for need_weights in (True, False):
    with Kept(module) as kept:
        module(x, x, x, need_weights=need_weights)
    sizes = kept.sizes()
    print(f"need_weights={need_weights}: {sum(sizes)} =", " + ".join(map(str, sizes)))
print("bne =", b * n * h * d, " bhn² =", b * h * n * n, " bhn =", b * h * n)

# %% [markdown]
# Step by step, six tensors are kept: the input, keys, queries, the weights, values, and the merged
# heads that go into $W_O$. The scores are not, because the softmax can be differentiated from its
# result alone. Five are as large as the input, $5bne$ together; the weights are $bhn^2$.
#
# The fused kernel keeps no weights. Input and merged heads are kept as before; queries, keys and values
# are kept in a single storage. In its backward pass the kernel computes the scores anew, and
# turns them into weights with one kept number for each query and head: the logarithm of the sum of
# exponentials by which the softmax divides.
#
# In cross-attention, three tensors of n rows and three of m rows are kept, $3be(n + m)$ numbers, and
# $bhnm$ weights. All of this is asserted below at several sizes.

# %%
print("b,n,m,h,d")
for b, n, m, h, d in ((2, 7, 5, 4, 6), (3, 4, 9, 2, 5), (1, 6, 8, 3, 4)):
    e = h * d
    module = MultiheadAttention(e, h, batch_first=True)
    x = torch.randn(b, n, e, requires_grad=True)  # (b, n, e)
    y = torch.randn(b, m, e, requires_grad=True)  # (b, m, e)
    for need_weights in (True, False):
        with Kept(module) as itself:
            module(x, x, x, need_weights=need_weights)
        with Kept(module) as across:
            module(x, y, y, need_weights=need_weights)
        each = (n, m) if need_weights else (1, 1)
        assert sum(itself.sizes()) == 5 * b * n * e + b * h * n * each[0]
        assert sum(across.sizes()) == 3 * b * e * (n + m) + b * h * n * each[1]
        kind = "with weights" if need_weights else "fused"
        print(f"{b},{n},{m},{h},{d} {kind:>12}: {sum(itself.sizes()):5} in self-attention,",
              f"{sum(across.sizes()):5} in cross-attention")

# %% [markdown]
# > **Pitfall.** A view keeps its whole storage. The packed projection gives queries, keys and values in
# > one storage, and the fused kernel needs all of it. Step by step, of the queries only a copy divided by
# > √d is needed later, but a view of the keys would keep the undivided ones, too. So there the class
# > first copies each of the three out of that storage.

# %%
module = MultiheadAttention(24, 4, batch_first=True)
x = torch.randn(1, 7, 24, requires_grad=True)  # (1, 7, 24)
packed = nn.functional.linear(x, module.in_proj_weight, module.in_proj_bias)
_, view, _ = packed.chunk(3, -1)  # (1, 7, 24)
for keys in (view, view.contiguous()):
    storage = keys.untyped_storage().nbytes() // keys.element_size()
    print(f"{keys.numel()} numbers keep {storage}")

# %% [markdown]
# Without the weights, what is kept grows linearly with n; with them, it grows with $n^2$. Take one
# attention layer of the original model, with two samples in float32. At a length of 16,384 tokens,
# how many times as much does it keep with the weights: twice, ten times, or about fifty times?
#
# <details><summary>What do you expect?</summary>
#
# Compare $bhn^2$ with $5bne$: the ratio is $hn / 5e$. With 8 heads, e = 512 and n = 16,384 there are
# about 50 times as many weights as other numbers.
#
# </details>

# %%
e, h = 512, 8
for n in (256, 1024, 4096, 16384):
    stored = counting.attention_kept(n, n, e, h, b=2)
    fused = counting.attention_kept(n, n, e, h, b=2, fused=True)
    stored, fused = (counting.short(4 * numbers, "B") for numbers in (stored, fused))
    print(f"n = {n:5}: {stored:>7} with weights, {fused:>7} without")

# %% [markdown]
# These counts are the same in every run. The peak memory of a process is a measurement: it includes
# what exists only for a moment, and two runs differ.
# [Speed](13_speed.ipynb#the-price-of-the-weights) measures such peaks.
#
# ## One token at a time
#
# A model that writes computes one token, then the next. Each new query looks at all keys and values
# so far, and these do not change any more, since under a causal mask no token sees what comes after
# it. So keep them: that is the **KV cache**. First attention as you know it, then the same for the
# last token alone.


# %%
import torch.nn.functional as F

from annotated_attention import merge_heads, scaled_dot_product_attention, split_heads


def write_all(module: MultiheadAttention, x: Tensor) -> Tensor:
    """Attend from every token to itself and those before it.

    Args:
        module: batch-first, with biases.
        x: (b, n, e), all tokens.
    """
    q, k, v = F.linear(x, module.in_proj_weight, module.in_proj_bias).chunk(3, -1)
    q, k, v = (split_heads(part, module.num_heads) for part in (q, k, v))
    heads = scaled_dot_product_attention(q, k, v, is_causal=True)[0]  # (b, h, n, d)
    return module.out_proj(merge_heads(heads))                        # (b, n, e)


# %% jupyter={"source_hidden": true}
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


display.diff(write_all, write_next)

# %% [markdown]
# No mask is needed any more, because later tokens do not exist yet. Written token by token, the output
# is the same as all at once. So are the gradients: they flow back through the cached keys and values.

# %%
from annotated_attention import chapters

one = chapters.load("01_one_head")  # for its helper, gradients

b, n, h, d = 2, 7, 4, 6
module = MultiheadAttention(h * d, h, batch_first=True, dtype=torch.float64)
x = torch.randn(b, n, h * d, dtype=torch.float64, requires_grad=True)  # (b, n, h * d)
cache: list[Tensor] = []
written = [write_next(module, x[:, [i]], cache) for i in range(n)]
steps = torch.cat(written, 1)               # (b, n, h * d)
whole = module(x, x, x, is_causal=True)[0]  # (b, n, h * d)
torch.testing.assert_close(steps, whole)
torch.testing.assert_close(write_all(module, x), whole)
inputs = [x, *module.parameters()]
torch.testing.assert_close(one.gradients(steps, inputs), one.gradients(whole, inputs))
print(f"{n} steps: same output, same gradients of x and {len(inputs) - 1} parameters")

# %% [markdown]
# A step with m keys costs the projections of one token, $8be^2$, and the scores and mix of one query,
# $4bme$. The cache holds $2bme$ numbers in each layer.

# %%
e, cache, total = h * d, [], 0
for m in range(1, n + 1):
    with FlopCounterMode(display=False) as counter:
        write_next(module, x[:, [m - 1]], cache)
    assert counter.get_total_flops() == 8 * b * e**2 + 4 * b * m * e
    assert sum(part.numel() for part in cache) == counting.cache_numbers(m, e, b=b)
    total += counter.get_total_flops()

anew = sum(counting.attention_flops(m, m, e, b=b) for m in range(1, n + 1))
at_once = counting.attention_flops(n, n, e, b=b)
print(f"{n} tokens, FLOPs: {total:7,} one by one, with a cache")
print(f"{anew:24,} one by one, all computed anew each time")
print(f"{at_once:24,} all at once with a mask, as in training")

# %% [markdown]
# Counted in FLOPs, writing with a cache is even cheaper than computing all tokens at once. A mask
# hides scores that were computed; a step computes no score that it will not use.
#
# ## Whole models
#
# The rest of a Transformer is as easy to count. Let f be the width inside the feed-forward network,
# which has a ReLU, and v the size of the vocabulary.
#
# | part | parameters | FLOPs, forward | kept |
# |---|---|---|---|
# | feed-forward network | $2ef + f + e$ | $4bnef$ | $bn(e + f)$ |
# | norm | $2e$ | 0 | $bn(e + 2)$ |
# | output layer | $ev$ | $2bnev$ | $bne$ |
#
# Each part keeps its input. The network also keeps its hidden numbers, and a norm the mean and the
# inverse standard deviation of each token. All cross-attentions read the same encoder output, which is
# kept once. So the first keeps $6bne$ numbers beside its weights and each later one $5bne$, where source
# and target are of equal length.
#
# `counting.Model` adds up layers, embeddings and output. Below are published sizes, and in the last
# column what their authors say. The original model is counted with a vocabulary of 37,000; its paper
# says *about* 37,000. One matrix serves both its embeddings and the output. BERT has a further layer,
# `pooling`, of $e^2 + e$ parameters for one of its training tasks.

# %%
SAID = {
    "transformer-base": 65, "transformer-big": 213, "bert-base": 110, "bert-large": 340,
    "gpt2": 117, "gpt2-xl": 1542,
}
print("model               counted  published")
for name, model in counting.PRESETS.items():
    pooling = model.embed_dim**2 + model.embed_dim if name.startswith("bert") else 0
    counted = sum(model.parameters().values()) + pooling
    print(f"{name:16} {counted:13,} {SAID[name]:6} million")

# %% [markdown]
# BERT's figures [[Devlin et al., section 3](../docs/references.md#devlin-2019)] are rounded. GPT-2's
# [[Radford et al., table 2](../docs/references.md#radford-2019)] were wrong, as its authors' [code
# repository](https://github.com/openai/gpt-2) admits. No single vocabulary size explains both totals of
# the original model [[Vaswani et al., table 3](../docs/references.md#vaswani-2017)], as the fold shows.

# %% [markdown]
# <!-- deeper: Which vocabulary? -->
# ### Going deeper: Which vocabulary?
#
# With exactly 37,000 rows in the one matrix (sections 3.4<!-- quoted --> and 5.1<!-- quoted -->), base
# comes out below its published total and big above. Which numbers of rows would give the two totals,
# which are rounded to millions?

# %%
BASE, BIG = (counting.PRESETS[name] for name in ("transformer-base", "transformer-big"))


def without_rows(model: counting.Model) -> int:
    """Count all parameters but the embeddings."""
    return sum(model.parameters().values()) - model.vocabulary * model.embed_dim


for model, said in ((BASE, 65), (BIG, 213)):
    missing = said * 10**6 - without_rows(model)
    low, high = ((missing + off) // model.embed_dim for off in (-500_000, 500_000))
    print(f"e = {model.embed_dim:4}: {without_rows(model):11,} + e × rows,", end=" ")
    print(f"so {low:,} to {high:,} rows")

# %% [markdown]
# The two ranges do not overlap, so no single vocabulary explains both totals. Could the authors have
# counted a part that we leave out? Subtract base from big: whatever has the same size in both models
# drops out. Then subtract the difference of everything but the embeddings. What remains must be the
# embeddings, and each of their rows has 512 more numbers in big than in base.

# %%
apart = (213 - 65) * 10**6 - (without_rows(BIG) - without_rows(BASE))
low, high = ((apart + off) // 512 for off in (-1_000_000, 1_000_000))
print(f"the difference asks for {low:,} to {high:,} rows")
assert low <= 32_000 <= high < 37_000
for model, said in ((BASE, 65), (BIG, 213)):
    rest = said * 10**6 - without_rows(model) - 32_000 * model.embed_dim
    low, high = ((rest + off) / 10**6 for off in (-500_000, 500_000))
    print(f"e = {model.embed_dim:4}, 32,000 rows: {low:.1f} to {high:.1f} million are left")

# %% [markdown]
# So 37,000 rows cannot be the whole story, whatever else of a fixed size was counted. With 32,000 rows,
# which is the vocabulary of the paper's English-French model (section 5.1<!-- quoted -->), the difference
# fits, and the two ranges of what is left overlap: between 4.0 and 4.4 million numbers in both models
# would make the totals add up. The paper names no such part, and table 3 is about English-German.

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# The formulas agree with PyTorch's count exactly. First, build the model of [The
# Transformer](09_transformer.ipynb) at the size of transformer-base, on the device `meta`. It has
# `final_norm=False`, since the paper has no final norms. Then run a small one, with its two final norms:

# %%
from annotated_attention import Seq2SeqTransformer

base = sum(counting.PRESETS["transformer-base"].parameters().values())
options = {"share_embeddings": True, "final_norm": False, "device": "meta"}
built = Seq2SeqTransformer(37000, 37000, **options)
print(f"{base:,} parameters counted, {sum(p.numel() for p in built.parameters()):,} built")

# %%
small = counting.Model(
    embed_dim=24, num_heads=4, feedforward=7, layers=2, decoder_layers=3, vocabulary=11,
    norms=2,  # the final norms of the two stacks
)
built = Seq2SeqTransformer(
    src_vocab=11, tgt_vocab=11, d_model=24, nhead=4, num_encoder_layers=2,
    num_decoder_layers=3, dim_feedforward=7, dropout=0.0, share_embeddings=True,
)
source, target = torch.randint(11, (2, 2, 5))  # (2, 5), (2, 5)
with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
    built(source, target)
with Kept(built) as kept:
    built(source, target)

flops, numbers = small.flops(length=5, batch=2), small.kept(length=5, batch=2, fused=True)
print(f"FLOPs {sum(flops.values()):8,} counted {counter.get_total_flops():8,} by PyTorch")
print(f"kept  {sum(numbers.values()):8,} counted {sum(kept.sizes()):8,} by PyTorch")

# %% [markdown]
# ## The calculator
#
# Here is all of this for sizes of your choice. **Forward** is a forward pass; **kept** is what a
# training step holds for its backward pass, without dropout and the loss; **fused** is the same without
# weights. *Layers* have self-attention alone: those of an encoder, or of GPT-2. *Decoder layers* have
# cross-attention, too, and also cache its keys and values; a model without cross-attention has 0 of
# them. Source and target are of the same length.

# %%
display.calculator("transformer-base", length=1024)

# %% [markdown]
# A terminal prints the same table:
#
# ```
# python -m annotated_attention.counting --preset transformer-base --length 1024
# python -m annotated_attention.counting --embed-dim 768 --num-heads 12 --layers 12 --length 4096
# ```
#
# ## Exercises
#
# ### How long can it get?
#
# *Easy, 2 minutes.* A machine has some bytes left for the KV cache. How many tokens fit, for each of
# b sequences, in a model that is `layers` deep and e wide? Its numbers are `width` bytes each. The
# layers have self-attention only.


# %% tags=["exercise"]
def longest(left: int, b: int, e: int, layers: int, width: int) -> int:
    """Count the tokens whose keys and values fit into ``left`` bytes."""
    return None  # your formula here


# %%
from annotated_attention import exercises

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
# A part of a token does not fit: divide with `//`.
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
def longest(left: int, b: int, e: int, layers: int, width: int) -> int:
    """Count the tokens whose keys and values fit into ``left`` bytes."""
    return left // (2 * b * e * layers * width)


exercises.counting.check_longest(longest)

# %% [markdown]
# ### One decoder layer
#
# *Medium, 10 minutes.* Derive the FLOPs of one decoder layer, forward, in matrix products. It has
# causal self-attention over n tokens, cross-attention from these n to m others, and a feed-forward
# network from e to f and back. Everything is for b samples, and masked scores are computed, too.


# %% tags=["exercise"]
def decoder_layer(b: int, n: int, m: int, e: int, f: int) -> int:
    """Count the FLOPs of one decoder layer."""
    return None  # your formula here


# %%
exercises.counting.check_decoder_layer(decoder_layer)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Four parts: self-attention is $4bne(2e + n)$. What of cross-attention depends on n, what on m?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# In cross-attention, queries and output have n rows, keys and values have m. There are n × m scores.
#
# </details>
#
# <details><summary>Hint 3</summary>
#
# The feed-forward network is two products, $(bn, e)(e, f)$ and $(bn, f)(f, e)$.
#
# </details>


# %% tags=["solution"] jupyter={"source_hidden": true}
def decoder_layer(b: int, n: int, m: int, e: int, f: int) -> int:
    """Count the FLOPs of one decoder layer."""
    looks_back = 4 * b * n * e * (2 * e + n)
    looks_across = 4 * b * n * e * e + 4 * b * m * e * e + 4 * b * n * m * e
    network = 4 * b * n * e * f
    return looks_back + looks_across + network


exercises.counting.check_decoder_layer(decoder_layer)

# %% [markdown]
# ## What you have now
#
# You can write down what attention costs before you run it, and you have seen PyTorch count the same.
#
# > **In short.** Attention has $4e^2 + 4e$ parameters. Self-attention takes $4bne\,(2e + n)$ FLOPs forward
# > and twice that backward. It keeps $5bne$ numbers for the backward pass, and $bhn^2$ more where the
# > weights are stored. A KV cache holds $2bme$ numbers in each layer.
# >
# > ```python
# > with FlopCounterMode(display=False) as counter:
# >     module(x, x, x)  # with weights: the counter does not see the CPU's fused kernel
# > counter.get_total_flops() == 4 * b * n * e * (2 * e + n)
# > ```
# >
# > Heads change neither parameters nor FLOPs. They do change the number of weights and the rank of the
# > scores. Up to $n = 2e$ most FLOPs are in the projections; beyond that, most are in the scores and the
# > mix, which grow with the square of the length.
#
# None of this tells you how long a call takes. The [next chapter](13_speed.ipynb) measures that.
