# %% [markdown]
# # Cheat sheet
#
# Two pages to print: multi-head attention, and attention today. What they show has run: numbers and
# masks are measured, and each check has caught its mistake.
#
# ## The formula
#
# $$H_i = \operatorname{softmax}\!\Big(\frac{Q_i K_i^\top}{\sqrt d} + B\Big)\, V_i$$
#
# $$\begin{aligned} Q_i &= X W_{Q,i} \\ K_i &= Y W_{K,i} \qquad V_i = Y W_{V,i} \\
# \text{output} &= [\,H_1 \;\dots\; H_h\,]\; W_O \end{aligned}$$
#
# $B$ is 0 where a query may see a key, and $-\infty$ where it must not. Self-attention: $Y = X$.
#
# <b class="dim dim-b">b</b> samples, <b class="dim dim-n">n</b> queries, <b class="dim dim-m">m</b>
# keys, <b class="dim dim-h">h</b> heads, each <b class="dim dim-d">d</b> wide; e = h · d

# %% tags=["hide-input"]
from math import inf, sqrt

import torch
import torch.nn.functional as F
from IPython.display import Markdown
from torch import Tensor, nn

from annotated_attention import MultiheadAttention, counting, masks, modern
from annotated_book import chapters, display

torch.manual_seed(0)
one = chapters.load("01_one_head")
b, n, m, h, d = 2, 3, 5, 4, 6
e = h * d
ours = MultiheadAttention(e, h, batch_first=True, dtype=torch.float64)
theirs = nn.MultiheadAttention(e, h, batch_first=True, dtype=torch.float64)
_ = theirs.load_state_dict(ours.state_dict())

# %% tags=["hide-input"]
x = torch.randn(b, n, e, dtype=torch.float64, requires_grad=True)  # (b, n, e)
y = torch.randn(b, m, e, dtype=torch.float64, requires_grad=True)  # (b, m, e)
future = masks.block_future(n, m)                                  # (n, m)
B = torch.zeros(n, m).masked_fill(future, -inf)                    # (n, m)
per_head = [matrix.mT.split(d, -1) for matrix in ours.in_proj_weight.chunk(3)]
heads = [
    ((x @ w_q) @ (y @ w_k).mT / sqrt(d) + B).softmax(-1) @ (y @ w_v)
    for w_q, w_k, w_v in zip(*per_head)
]
output = torch.cat(heads, -1) @ ours.out_proj.weight.mT  # (b, n, e)
gradients = one.gradients(output, [x, y])
for module in (ours, theirs):
    assert not torch.cat([module.in_proj_bias, module.out_proj.bias]).any()
    expected, _ = module(x, y, y, attn_mask=future)  # (b, n, e), (b, n, m)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(gradients, one.gradients(expected, [x, y]))

# %% [markdown]
# ## What it costs

# %% tags=["hide-input"]
from torch.utils.flop_counter import FlopCounterMode

flops = chapters.load("14_counting")


def count(call, *inputs: Tensor) -> tuple[int, int, int]:
    """Let PyTorch count FLOPs, forward and backward, and the numbers kept in between."""
    results = []
    with FlopCounterMode(display=False) as counter:
        kept = flops.kept(ours, lambda: results.append(call(*inputs)[0]))
        forward = counter.get_total_flops()
        results[0].sum().backward()
    return forward, counter.get_total_flops() - forward, sum(kept)


itself, across = count(ours, x, x, x), count(ours, x, y, y)
cache = list(torch.randn(2, b, h, m - 1, d, dtype=torch.float64))
g, layers = 2, 3
grouped = modern.CachedAttention(
    e, h, num_kv_heads=g, batch_first=True, dtype=torch.float64
)
caches = [modern.KVCache() for _ in range(layers)]
for kept in caches:
    grouped(y, kept)
token = count(lambda query: [flops.write_next(ours, query, cache)], x[:, :1])
measured = {
    "parameters": sum(p.numel() for p in theirs.parameters()),
    "FLOPs": itself[0],
    "· backward": itself[1],
    "· n to m": across[0],
    "· 1 token": token[0],
    "KV cache": sum(kept.numel() for kept in caches),
    "kept": itself[2],
    "· fused": count(lambda x: ours(x, x, x, need_weights=False), x)[2],
}

# %% tags=["hide-input"]
FORMULAS = {
    "parameters": "4 * e**2 + 4 * e",
    "FLOPs": "4 * b * n * e * (2 * e + n)",
    "· backward": "8 * b * n * e * (2 * e + n)",
    "· n to m": "4 * b * e * (e * n + e * m + n * m)",
    "· 1 token": "8 * b * e**2 + 4 * b * m * e",
    "KV cache": "2 * b * m * g * d * L",
    "kept": "5 * b * n * e + b * h * n**2",
    "· fused": "5 * b * n * e + b * h * n",
}

# %% tags=["hide-input"]
small = {"b": b, "n": n, "m": m, "h": h, "e": e, "g": g, "d": d, "L": layers}
large = {"b": 2, "n": 1024, "m": 1024, "h": 8, "e": 512, "d": 64, "g": 2, "L": 12}
assert measured["FLOPs"] == counting.attention_flops(n, n, e, b=b)
rows = ["| what | how many | here |", "|---|---|--:|"]
for what, formula in FORMULAS.items():
    assert eval(formula, {}, small) == measured[what], what
    written = formula.replace(" * ", "").replace("**", "^")
    rows.append(f"| {what} | ${written}$ | {counting.short(eval(formula, {}, large))} |")
told = ("b", "n", "h", "e", "g", "L")  # as many keys as queries, and e = h d
sizes = ", ".join(f"{letter} = {large[letter]}" for letter in told)
Markdown(
    "\n".join(rows)
    + f"""

Right: {sizes}, n = m; g KV heads, L layers. *1 token*: the next,
with a cache. *Kept*: for the backward pass; *fused*, without weights.
"""
)

# %% [markdown]
# ## The shape of every step

# %% tags=["hide-input"]
W_Q, W_K, W_V, W_O = torch.randn(4, e, e, dtype=torch.float64)
padding = masks.block_padding(torch.tensor([5, 1]), m)  # (b, m)
assert not (padding[:, None] | future).equal(future.expand(b, n, m))

# %%
q, k, v = x @ W_Q, y @ W_K, y @ W_V         # (b, n, e), (b, m, e), (b, m, e)
q = q.unflatten(2, (h, d)).transpose(1, 2)  # (b, n, h, d) -> (b, h, n, d)
k = k.unflatten(2, (h, d)).transpose(1, 2)  # (b, m, h, d) -> (b, h, m, d)
v = v.unflatten(2, (h, d)).transpose(1, 2)  # (b, m, h, d) -> (b, h, m, d)
scores = q @ k.mT / sqrt(d)                 # (b, h, n, d) x (b, h, d, m) -> (b, h, n, m)
blocked = padding[:, None, None] | future   # (b, 1, 1, m) or (n, m) -> (b, 1, n, m)
scores = scores.masked_fill(blocked, -inf)  # (b, h, n, m)
weights = scores.softmax(-1)                # (b, h, n, m), each row sums to 1
mixed = weights @ v                         # (b, h, n, m) x (b, h, m, d) -> (b, h, n, d)
mixed = mixed.transpose(1, 2).flatten(2)    # (b, n, h, d) -> (b, n, h * d)
output = mixed @ W_O                        # (b, n, e)

# %% tags=["hide-input"]
with torch.no_grad():
    ours.in_proj_weight.copy_(torch.cat([W_Q.mT, W_K.mT, W_V.mT]))
    ours.out_proj.weight.copy_(W_O.mT)
expected, _ = ours(x, y, y, padding, attn_mask=future)  # (b, n, e), (b, n, m)
torch.testing.assert_close(output, expected)
torch.testing.assert_close(one.gradients(output, [x, y]), one.gradients(expected, [x, y]))

# %% tags=["hide-input"]
from annotated_attention import attention, merge_heads, split_heads

LINES = (attention.scaled_scores, attention.masked_softmax, attention.mix)
split, score, softmax, mix, merge = STEPS = (split_heads, *LINES, merge_heads)
queries, keys, values = (split(z @ w, h) for z, w in ((x, W_Q), (y, W_K), (y, W_V)))
attended, _ = mix(softmax(score(queries, keys), blocked), values)
torch.testing.assert_close(merge(attended), mixed)
Markdown("In the package: " + ", ".join(f"`{step.__name__}`" for step in STEPS))

# %% [markdown]
# ## The shortest correct code

# %% tags=["hide-input"]
plain = chapters.load("short_path").PlainAttention
IMPORTS = ("import math", "import torch", "from torch import nn")
text = display.source(plain, docstrings=False).text.replace("\n\n", "\n")
exec("\n".join([*IMPORTS, text]), alone := {})
shortest = alone["PlainAttention"](e, h).double()
layers = (shortest.w_q, shortest.w_k, shortest.w_v)
for layer, matrix, bias in zip(
    layers, *(part.chunk(3) for part in (ours.in_proj_weight, ours.in_proj_bias))
):
    layer.weight.data, layer.bias.data = matrix.data, bias.data
shortest.w_o.load_state_dict(ours.out_proj.state_dict())
_ = theirs.load_state_dict(ours.state_dict())
blocked = padding[:, None, :] | future  # (b, n, m)
both = {"key_padding_mask": padding, "attn_mask": future}
for hidden, kinds in ((blocked, both), (None, {})):
    output, weights = shortest(x, y, y, hidden)  # (b, n, e), (b, h, n, m)
    expected = theirs(x, y, y, average_attn_weights=False, **kinds)
    torch.testing.assert_close((output, weights), expected)
Markdown(f"```python\n{text}\n```")

# %% tags=["hide-input"]
future = eval(LINE := "torch.ones(1, n, n).triu(1).bool()")
assert future.equal(masks.block_future(n)[None])
Markdown(f"With `math`, `torch` and `nn` of `torch`. A causal mask: `blocked = {LINE}`")

# %% [markdown]
# ## What True means in a mask

# %% tags=["hide-input"]
from annotated_attention import scaled_dot_product_attention

b, n, m, h, d = 2, 3, 5, 4, 2
e = h * d
MODULES = {
    kind.__module__.split(".")[0]: kind(e, h, batch_first=True)
    for kind in (MultiheadAttention, nn.MultiheadAttention)
}
FUNCTIONS = {
    "annotated_attention": scaled_dot_product_attention,
    "torch": F.scaled_dot_product_attention,
}


def call(library: str, argument: str, x: Tensor, y: Tensor, given: object) -> Tensor:
    """Attend from x to y with one argument more."""
    if argument.startswith("module: "):
        return MODULES[library](x, y, y, **{argument.removeprefix("module: "): given})[0]
    q, k = split_heads(x, h), split_heads(y, h)
    found = FUNCTIONS[library](q, k, k, **{argument.removeprefix("function: "): given})
    return merge_heads(found[0] if isinstance(found, tuple) else found)


def attempt(*settings) -> Tensor | None:
    """Give the result of a call, or None where it is refused."""
    try:
        return call(*settings)
    except (AssertionError, RuntimeError, TypeError, ValueError):
        return None


# %% tags=["hide-input"]
from functools import partial

wild = chapters.load("16_masks_in_the_wild")
x, y = torch.randn(b, n, e), torch.randn(b, m, e)  # (b, n, e), (b, m, e)
SHAPES = {
    "(n, m)": (n, m),
    "(b, m)": (b, m),
    "(b * h, n, m)": (b * h, n, m),
    "(b, 1, 1, m)": (b, 1, 1, m),
    "(b, h, n, m)": (b, h, n, m),
}


def low(used: Tensor) -> Tensor:
    """Give minus infinity where ``used`` is True, and 0 elsewhere."""
    return torch.zeros(used.shape).masked_fill(used, -inf)


# %% tags=["hide-input"]
def describe(library: str, argument: str) -> list[str]:
    """Find out, by running it, what an argument takes and what it means."""
    use = partial(attempt, library, argument)
    none = {shape: torch.zeros(sizes, dtype=torch.bool) for shape, sizes in SHAPES.items()}
    booleans = [shape for shape, mask in none.items() if use(x, y, mask) is not None]
    floats = [shape for shape, mask in none.items() if use(x, y, mask.float()) is not None]
    takes = booleans or floats
    rows = 1 if "(b, m)" in takes else 4
    means = added = "refused"
    if booleans:
        means = wild.true_means(lambda x, which: use(x, x, which[:rows]))
    if floats:
        assert wild.true_means(lambda x, which: use(x, x, low(which)[:rows])) == "blocked"
        added = "added"
    full = none[takes[0]] == (means != "blocked")
    empty = use(x, y, full if booleans else full.float() - inf)
    left = "NaN" if empty.isnan().all() else "zeros"
    assert left == "NaN" or not empty.any()
    return [" ".join(f"`{shape}`" for shape in takes), f"**{means}**", added, left]


# %% tags=["hide-input"]
INTERFACES = {
    "`MultiheadAttention` of this package": (
        "annotated_attention",
        "module: attn_mask",
        "module: key_padding_mask",
    ),
    "its `scaled_dot_product_attention`": (
        "annotated_attention",
        "function: blocked",
        "function: bias",
    ),
    "`torch.nn.MultiheadAttention`": (
        "torch",
        "module: attn_mask",
        "module: key_padding_mask",
    ),
    "`F.scaled_dot_product_attention`": ("torch", "function: attn_mask"),
}

# %% tags=["hide-input"]
head = ("interface", "argument", "shapes", "True means", "floats", "fully masked")
table = [head, ["---"] * len(head)]
for name, (library, *arguments) in INTERFACES.items():
    for argument in arguments:
        table.append([name, f"`{argument.split()[1]}`", *describe(library, argument)])
        name = ""

# %% tags=["hide-input"]
future = masks.block_future(n)
causal = {library: attempt(library, "module: is_causal", x, x, True) for library in MODULES}
alone = call("torch", "function: is_causal", x, x, True)
torch.testing.assert_close(alone, call("torch", "function: attn_mask", x, x, ~future))
assert causal["torch"] is None
with torch.no_grad():
    MODULES["torch"].eval()
    unmasked = call("torch", "module: is_causal", x, x, False)
    torch.testing.assert_close(call("torch", "module: is_causal", x, x, True), unmasked)
    MODULES["torch"].train()
expected = call("annotated_attention", "module: attn_mask", x, x, future)
torch.testing.assert_close(causal["annotated_attention"], expected)
Markdown(
    "\n".join(f"| {' | '.join(row)} |" for row in table)
    + """

*Fully masked*: what a query gets whose keys are all blocked, by default. `is_causal=True`
hides the future; in `torch.nn.MultiheadAttention` it is only a hint: without `attn_mask` an
error, and in evaluation without gradients nothing at all.
"""
)

# %% [markdown]
# ## Five mistakes that keep every shape
#
# `f(x, blocked)` is your self-attention, `pytorch` is PyTorch's with its weights; `x` is `(b, n, e)`,
# and `other` differs from it in the last token; `same` is `torch.allclose`. `attention-doctor
# file.py:Name --embed-dim 24 --num-heads 4` looks for these and more.

# %% tags=["hide-input"]
from IPython.display import display as show

from attention_doctor.mistakes import MISTAKES

b, n, h, d = 2, 5, 4, 6
e = h * d
x = torch.randn(b, n, e)                                 # (b, n, e)
other = torch.cat([x[:, :-1], torch.randn(b, 1, e)], 1)  # (b, n, e)
future = masks.block_future(n)                           # (n, n)
last = torch.arange(n) == n - 1                          # (n,)
right = MultiheadAttention(e, h, batch_first=True)
nn.init.normal_(right.in_proj_bias)
theirs = nn.MultiheadAttention(e, h, batch_first=True)
_ = theirs.load_state_dict(right.state_dict())


# %% tags=["hide-input"]
def passes(module: nn.Module, check: str) -> bool:
    """Run one line on a module."""

    def f(x: Tensor, blocked: Tensor | None = None) -> Tensor:
        blocked = None if blocked is None else blocked.expand(x.size(1), -1)
        return module(x, x, x, attn_mask=blocked)[0]

    used = {"f": f, "pytorch": lambda x: theirs(x, x, x)[0]}
    return bool(eval(check, globals(), used | {"same": partial(torch.allclose, atol=1e-6)}))


def show_mistake(code: str, why: str, check: str) -> None:
    """Show a mistake with the check that catches it, after it has caught it."""
    wrong = MISTAKES[code].version(e, h, batch_first=True)
    wrong.load_state_dict(right.state_dict())
    assert passes(right, check)
    assert not passes(wrong, check)
    show(
        Markdown(f"**{MISTAKES[code].title}.** {why}."),
        display.diff(MISTAKES[code].wrong, MISTAKES[code].right),
        Markdown(f"catch it: `{check}`"),
    )


# %% tags=["hide-input"]
show_mistake(
    "merge-without-transpose",
    "Write more, and the past must stay",
    "same(f(x, future)[:, :3], f(x[:, :3], future[:3, :3]))",
)

# %% tags=["hide-input"]
show_mistake(
    "batch-mixed-into-sequence",
    "A sample alone must get what it gets in a batch",
    "same(f(x)[:1], f(x[:1]))",
)

# %% tags=["hide-input"]
show_mistake(
    "scale-by-model-width",
    "Compare with PyTorch's, the same weights in both",
    "same(f(x), pytorch(x))",
)

# %% tags=["hide-input"]
show_mistake(
    "mask-inverted",
    "Block the last token, change it, and no other may notice",
    "same(f(x, last)[:, :-1], f(other, last)[:, :-1])",
)

# %% tags=["hide-input"]
show_mistake(
    "nan-row",
    "Block everything once",
    "f(x, torch.ones(n, n, dtype=torch.bool)).isfinite().all()",
)

# %% [markdown]
# ---
#
# ## A layer of today
#
# n new tokens behind a cache: m keys in all, g KV heads, a window of w and the first keys.

# %% tags=["hide-input"]
torch.manual_seed(1)
b, n, m, h, g, d, window, sinks = 2, 3, 9, 4, 2, 6, 5, 1
e, rotary = h * d, modern.RotaryEmbedding(d)
today = modern.WindowAttention(
    e, h, window, sinks=sinks, num_kv_heads=g, rotary=rotary, batch_first=True
)
x, cache, other = torch.randn(b, m, e), modern.KVCache(), modern.KVCache()
with torch.no_grad():
    for each in (cache, other):
        today(x[:, :-n], each)
    packed = F.linear(x[:, -n:], today.in_proj_weight, today.in_proj_bias)
q, k, v = (
    split_heads(part, heads)
    for part, heads in zip(packed.split([e, g * d, g * d], -1), (h, g, g))
)


# %%
def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs of features i and i + d / 2, the layout "half"."""
    left, right = x.chunk(2, -1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)


positions = cache.length + torch.arange(n)                  # (n,)
speed = 10000 ** -(torch.arange(0, d, 2) / d)               # (r,)
angle = positions[:, None] * speed                          # (n, r)
q, k = (turn(x, angle.cos(), angle.sin()) for x in (q, k))  # (b, h, n, d), (b, g, n, d)
k, v = cache.append(k, v)                                   # (b, g, m, d), (b, g, m, d)
i, j = positions[:, None], torch.arange(m)                  # (n, 1), (m,)
blocked = (j > i) | ((j <= i - window) & (j >= sinks))      # (n, m)
k, v = (x.repeat_interleave(h // g, 1) for x in (k, v))     # (b, h, m, d), (b, h, m, d)
scores = (q @ k.mT / sqrt(d)).masked_fill(blocked, -inf)    # (b, h, n, m)
mixed = scores.softmax(-1) @ v                              # (b, h, n, d)

# %% tags=["hide-input"]
output = today.out_proj(mixed.transpose(1, 2).flatten(2))  # (b, n, e)
torch.testing.assert_close(output, today(x[:, -n:], other)[0])
torch.testing.assert_close(output, today(x)[0][:, -n:])

# %% [markdown]
# ## Other models, a line each

# %% tags=["hide-input"]
W, U, S = torch.randn(e, e), torch.randn(12, d), torch.randn(d, d)
latents, gain, sink = torch.randn(b, 1, m, 12), torch.rand(d), torch.randn(h)
documents, slope = torch.tensor([[0, 0, 1], [0, 1, 1]]), modern.alibi_slopes(h)
K, V, lse = cache.keys, cache.values, scores.logsumexp(-1)
halves = [modern.tiled_attention(q, x, y) for x, y in zip(k.split(5, 2), v.split(5, 2))]
outputs, lses = map(torch.stack, zip(*halves))
new, value = F.normalize(torch.randn(1, d), dim=-1), torch.randn(1, d)
norm = nn.RMSNorm(d)
norm.weight.data = gain
bias = modern.AlibiBias(h)(positions, torch.arange(m))
LINES = {  # and what the package has for it
    "keys not copied": (
        "F.scaled_dot_product_attention(q, K, V, ~blocked, enable_gqa=True)",
        mixed,
    ),
    "QK-norm, before rotation": ("F.rms_norm(q, (d,)) * gain", norm(q)),
    "ALiBi": ("scores - slope[:, None, None] * (i - j)", scores + bias),
    "a learned sink": (
        "mixed * torch.sigmoid(lse - sink[:, None])[..., None]",
        modern.with_sink(mixed, lse, sink),
    ),
}

# %% tags=["hide-input"]
LINES |= {
    "blocked: other documents": (
        "documents[:, None, :, None] != documents[:, None, None]",
        modern.block_other_documents(documents),
    ),
    "W_Q, W_K: pairs of neighbours to half": (
        "W.unflatten(0, (h, -1, 2)).transpose(1, 2).flatten(0, 2)",
        modern.interleaved_to_half(W, h),
    ),
    "parts of the keys, merged": (
        "(lses.softmax(0)[..., None] * outputs).sum(0)",
        modern.merge_parts(outputs, lses)[0],
    ),
    "latents (MLA), absorbed": ("(q @ U.mT) @ latents.mT", q @ (latents @ U).mT),
    "delta rule: the value comes back": (
        "new @ (S + new.mT @ (value - new @ S))",
        value,
    ),
}
rows = ["| what | line |", "|---|---|"]
for what, (line, expected) in LINES.items():
    torch.testing.assert_close(eval(line), expected, msg=what)
    rows.append(f"| {what} | `{line}` |")
Markdown("\n".join(rows))

# %% [markdown]
# ## What a token keeps

# %% tags=["hide-input"]
KEPT = {  # of one token in one layer
    "MHA: each head its own": "2 * h * d",
    "GQA: g KV heads": "2 * g * d",
    "MQA: one KV head": "2 * d",
    "MLA: a latent": "c + r",
}
c, r, wide, tokens = 12, 2, {"batch_first": True}, torch.randn(1, 7, e)
kinds = [modern.CachedAttention(e, h, num_kv_heads=x, **wide) for x in (h, g, 1)]
kinds.append(modern.LatentAttention(e, h, latent_dim=c, rotary_dim=r, **wide))
small, large = (
    {"h": h, "g": g, "d": d, "c": c, "r": r},
    {"h": 32, "g": 8, "d": 128, "c": 512, "r": 64},
)
rows = ["| cache | numbers | here |", "|---|---|--:|"]
for (what, formula), module in zip(KEPT.items(), kinds):
    held = modern.KVCache()
    module(tokens, held)
    assert held.numel() == 7 * eval(formula, {}, small), what
    size = counting.short(2 * 32 * 8192 * eval(formula, {}, large), "B")
    rows.append(f"| {what} | ${formula.replace(' * ', '')}$ | {size} |")
rolling = modern.WindowCache(window, sinks)
today(torch.randn(1, 40, e), rolling)
assert rolling.numel() == 2 * g * d * (window - 1 + sinks)
size = counting.short(2 * 32 * 1023 * 2 * 8 * 128, "B")
rows.append(f"| a window of w: w − 1 tokens | $2gd$ | {size} |")
Markdown(
    "\n".join(rows)
    + """

A token in a layer. Right: 8,192 tokens, 32 layers, 16 bits; h = 32, g = 8, d = 128,
c = 512, r = 64, w = 1,024. In 8 bits half, and a scale.
Linear attention: d · d numbers a head.
"""
)

# %% [markdown]
# ## What a token takes

# %% tags=["hide-input"]
sizes = {"num_layers": 3, "embed_dim": 24, "num_heads": 4, "num_kv_heads": 2, "head_dim": 6}
language = modern.LanguageModel(
    modern.Settings(vocab_size=11, hidden_dim=40, tie_embeddings=True, **sizes)
)
N = sum(x.numel() for x in language.parameters() if x.dim() == 2)
with FlopCounterMode(display=False) as counter, torch.no_grad():
    language(torch.zeros(1, 1, dtype=torch.long))
found = counter.get_flop_counts()["Global"]
assert found[torch.ops.aten.mm] + found.get(torch.ops.aten.addmm, 0) == 2 * N
Markdown("""\
**Prefill**, the prompt: $2N$ FLOPs a token for $N$ weights,
and $4hdm$ in each layer behind $m$ tokens.
Bound by arithmetic: at most FLOPs a second ÷ $2N$ tokens a second.

**Decode**, one token: reads $N$ weights and the cache.
Bound by memory: at most bytes a second ÷ bytes of both.
A batch shares the weights, not the caches.
""")

# %% [markdown]
# ## Five mistakes of today
#
# `whole(x)` is the layer on a whole text, `by_one(x)` token by token with a cache of fixed size, `reference(x)`
# code that you trust, with the same weights; `seen(x)` counts the keys with a weight, for each token.


# %% tags=["hide-input"]
def built(code: str, kind: type[nn.Module]) -> nn.Module:
    """Make the right or the wrong version, with the same parameters."""
    torch.manual_seed(2)
    given = {"groups-tiled": (g,), "window-off-by-one": (window,)}.get(code, ())
    turning = {} if code == "groups-tiled" else {"rotary": modern.RotaryEmbedding(d)}
    return kind(e, h, *given, batch_first=True, **turning)


def holds(module: nn.Module, right: nn.Module, check: str) -> bool:
    """Run one line on a module."""
    alone = isinstance(module, modern.CachedAttention)

    def whole(x: Tensor, module: nn.Module = module) -> Tensor:
        return module(*[x] * (1 if alone else 3))[0]

    def by_one(x: Tensor) -> Tensor:
        kept = modern.StaticCache(len(x), h, 16, d)
        return torch.cat([module(token, kept)[0] for token in x.split(1, 1)], 1)

    used = {"whole": whole, "by_one": by_one, "reference": partial(whole, module=right)}
    used["seen"] = lambda x: (module(x, need_weights=True)[1][0, 0] > 0).sum(-1)
    used["same"] = partial(torch.allclose, atol=1e-5)
    with torch.no_grad():
        return bool(eval(check, globals(), used))


# %% tags=["hide-input"]
def show_today(code: str, why: str, check: str) -> None:
    """Show a mistake with the check that catches it, after it has caught it."""
    entry = MISTAKES[code]
    right, wrong = built(code, entry.of), built(code, entry.version)
    wrong.load_state_dict(right.state_dict())
    assert holds(right, right, check)
    assert not holds(wrong, right, check)
    show(
        Markdown(f"**{entry.title}.** {why}."),
        display.diff(entry.wrong, entry.right),
        Markdown(f"catch it: `{check}`"),
    )


# %% tags=["hide-input"]
show_today(
    "groups-tiled",
    "Compare with code that the weights were made for",
    "same(whole(x), reference(x))",
)

# %% tags=["hide-input"]
show_today(
    "rotation-layout-mixed",
    "Compare more than the first tokens",
    "same(whole(x)[:, -1], reference(x)[:, -1])",
)

# %% tags=["hide-input"]
show_today(
    "positions-restart",
    "However a text is cut, the outputs must stay",
    "same(by_one(x), whole(x))",
)

# %% tags=["hide-input"]
show_today(
    "cache-zeros-attended",
    "Use the cache that you will use, with room to spare",
    "same(by_one(x), whole(x))",
)

# %% tags=["hide-input"]
show_today(
    "window-off-by-one",
    "Count keys in a text that is longer than the window",
    "seen(x)[-1] == window",
)
