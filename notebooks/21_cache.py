# %% [markdown]
# # The cache
#
# *Why is one request slow, and thirty-two together only a quarter slower?*
#
# *19 minutes and 8 of exercises. Afterwards you can size a KV cache, predict tokens per second,
# share pages, and find four mistakes.*
#
# Let one person talk to Llama 3.1 8B on an H100, and the GPU writes at most 221 tokens a second. Let 32 talk at
# once, each with a text of 1,024 tokens, and the limit is 5,556: nobody waits much longer than the one did. (Both are
# computed from what is on paper.) The reason is what a call of the model has to *read*: the weights, once for all who
# wait, and for each of them a **KV cache**, which is what the model has kept of that text.
#
# Reading a prompt into the cache is called **prefill**, and writing with it **decode**. A **sequence** is a text in
# flight, one row of the batch, and a **token** is one piece of it: in small examples, a word.
#
# *Here for one name?* [tokens per second](#cell-id=bytes-over-bandwidth) ·
# [continuous batching](#cell-id=different-lengths) · [KV cache size](#cell-id=kv-cache-size) ·
# [chunked prefill](#cell-id=attention-that-continues) · [static cache](#cell-id=fixed-size) ·
# [prefill and decode](#cell-id=prefill-and-decode) · [quantised cache](#cell-id=fewer-bits) ·
# [PagedAttention, prefix caching](#cell-id=pages) ·
# [speculative decoding](#cell-id=going-back-and-branching) ·
# [names in transformers and vLLM](#cell-id=their-names)

# %% tags=["hide-input"]
import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention import block_future, counting
from annotated_attention.modern import CachedAttention, KVCache, RotaryEmbedding
from annotated_book import chapters, display, measured

# %% [markdown] name="bytes-over-bandwidth"
# ## Tokens per second: bytes over bandwidth
#
# Draw a GPU's memory as a bar, 80 GB long: the weights at its left end, then the caches of all sequences. To write the
# next token of every sequence, the model reads both once, from left to right. So a call takes at least
#
# > **bytes ÷ bandwidth**
#
# and it brings one token for each sequence. It may read a piece of a new prompt beside them. A guess before you look: how
# much longer does a call of 32 sequences take with 256 tokens of a prompt on top, nine times as many tokens in all?

# %% tags=["fold-input"]
WEIGHTS, STORED, OUTPUT = (
    7.5e9,
    8.03e9,
    4096 * 128_256,
)  # weights: read, held, of the vocabulary
H100 = {"weights": 2 * WEIGHTS, "stored": 2 * STORED, "kept": 128 * 2**10}  # bytes
H100 |= {"flops": 2 * WEIGHTS, "output": 2 * OUTPUT, "pair": 4 * 32 * 32 * 128}
H100 |= {"bandwidth": 3.35e12, "arithmetic": 989e12, "memory": 80e9}

# %% tags=["fold-input"]
from annotated_book.display.live_figures.call_bytes import call


def limited(loads: list[tuple]) -> int:
    """Find the first load whose time is that of its arithmetic."""
    found = (call(H100, *load) for load in loads)
    return next(i for i, x in enumerate(found) if x["computing"] > x["reading"])


beside, more = (call(H100, 32, 1024, x)["computing"] for x in (256, 2048))
edge = limited([(32, 1024, x) for x in range(2048)])
long = [call(H100, x, 1024) for x in (1, 512, 10**6)]
assert all(x["reading"] > x["computing"] for x in long)
caption = (
    "Blue: weights. Green: caches. Orange: how far the call would have read by the time "
    f"that its arithmetic takes, in the third bar {beside:.1f} ms; from {edge} tokens of a "
    f"prompt on, that is longer, and with 2,048 it is {more:.1f} ms."
)
loads = [(1, 1024, 0, 16), (32, 1024, 0, 16), (32, 1024, 256, 16), (1, 131_072, 0, 16)]
display.call_bytes(loads, H100, name="ceiling", caption=caption, alive=True)

# %% [markdown]
# Not at all: 5.8 milliseconds, with the prompt and without. A single sequence takes 4.5. **Sequences share the weights,
# but not the caches.** The tokens of the prompt share the weights as well. What they add is arithmetic, and that had
# nothing to do: 4.1 milliseconds of it fit beside 5.8 of reading. From 372 tokens on it no longer fits, and with 2,048
# (move the slider) all who write wait 30.5 milliseconds for their next token.
#
# All this is a limit: reading and arithmetic run side by side, both as fast as on paper [[Shah et al.
# 2024](../docs/references.md#shah-2024)]. ([Below](#cell-id=prefill-and-decode), a call is measured.) Of the
# 8.03<!-- setting --> billion weights, a call reads 7.5<!-- setting -->, since of the input embedding each token needs a
# single row; and 131,072 bytes<!-- setting --> for each kept token. Both have 16 bits. In a mixture of experts, tokens
# share a weight only where they choose the same expert.
#
# Why does arithmetic have so much room? On paper this GPU does 295<!-- setting --> FLOPs in the time of a byte. A weight
# of two bytes takes part in one multiplication and one addition for each token of the call: one FLOP a byte, times the
# tokens (the **arithmetic intensity**). So weights alone would need 295<!-- setting --> tokens until arithmetic becomes
# the limit. Caches add bytes but few FLOPs: where each sequence of this model has kept 1,024 tokens, decode alone never
# gets there, however many write. Decode of long sequences is **memory-bound**.

# %% [markdown] name="different-lengths"
# ## Continuous batching: the token budget
#
# So a server wants many sequences in every call. After any token, a sequence that is finished leaves, and the next prompt
# takes its place: **continuous batching** [[Yu et al.](../docs/references.md#yu-2022)]. A call takes at most so many
# *tokens*, its **token budget**. Each sequence that writes takes one of them, and a chunk of the next prompt the others:
# **chunked prefill** [[Agrawal et al.](../docs/references.md#agrawal-2023)].
#
# Say that B and 31 others write, each behind 1,024 tokens, when C comes with a prompt of 4,096. A budget of 8,192 takes
# it in one call, and meanwhile B gets nothing. A budget of 512 needs nine calls. How much later does C get its first token?
#
# <details name="later"><summary>About nine times as late.</summary>
#
# That would be so if a call took equally long, however many tokens it reads.
#
# </details>
#
# <details name="later"><summary>Later by less than a tenth.</summary>
#
# Right. Most of that time is arithmetic, and it stays the same, however the prompt is cut.
#
# </details>
#
# Each blue line is a token of B; the orange stretch ends with C's first. *Waits* says how long at most. Move the budget:

# %% tags=["fold-input"]
from annotated_book.display.live_figures.budget import served

caption = (
    "Computed as above. Left out is what each call costs besides, such as starting its "
    "kernels, so small budgets look better here than they are."
)
few, some, all_of_it = (served(H100, most, 4096, 32, 1024) for most in (128, 512, 8192))
assert (len(few), len(some), len(all_of_it)) == (43, 9, 1)
assert sum(some) < 1.1 * sum(all_of_it)
assert max(some) < max(all_of_it) / 7
edge = served(H100, 372 + 32, 4096, 32, 1024)
assert max(edge) < max(some)
assert sum(all_of_it) > 5 / 6 * sum(edge)
display.budget(
    (128, 512, 8192),
    H100,
    prompt=4096,
    writers=32,
    tokens=1024,
    name="continuous-batching",
    caption=caption,
)

# %% [markdown]
# C waits 68 milliseconds instead of 63, and the longest wait of B falls from 62.7 to 8.2. But with a budget of 128, C
# waits 252: reading fills the time of each call, and 43 calls read the weights 43 times. So
# on paper, a budget larger than those 372 tokens and the 32 that write makes B wait longer, and C at most a sixth less. A real call has costs
# besides, and wants more. In vLLM the budget is `max_num_batched_tokens`, and its guide
# says 2,048<!-- quoted --> for short waits, and more than 8,192<!-- quoted --> for throughput [[vLLM, *Optimization and
# Tuning*](../docs/references.md#vllm-guides)].
#
# For this, each sequence needs a length of its own, and gets one from [pages](#cell-id=pages). Where all share one length, a
# shorter prompt is **padded on the left**, so that all end together.

# %% [markdown]
# ## The KV cache: what does not change
#
# A small writer has two layers of causal attention with rotary [positions](20_positions.ipynb), and has learned two
# sentences by heart, ours and *because it was sweet the cat drank the milk*. It takes the token with the highest score, adds it, and goes on (**greedy decoding**). How many
# tokens does it have to read to write eight, when it keeps nothing?

# %% [markdown]
# <!-- deeper: The writer, and how it learns -->
# ### Going deeper: The writer, and how it learns
#
# Its attention is `CachedAttention`, the class that this chapter explains. Without a cache it is causal
# self-attention. One sentence is the one you know, the other begins with *because it was sweet*.

# %%
torch.set_num_threads(1)  # more gain nothing here
one = chapters.load("01_one_head")
SENTENCE = [*one.WORDS, "."]
OTHER = ["because", "it", "was", "sweet", "the", "cat", "drank", "the", "milk", "."]
SIGNS = sorted({*SENTENCE, *OTHER})
E, H = 24, 4


def encode(words: list[str]) -> Tensor:
    """Give the number of each word, as a batch of one sequence."""
    return torch.tensor([[SIGNS.index(word) for word in words]])


# %%
class Writer(nn.Module):
    """Scores every word as the next one, after each word of a text."""

    def __init__(self, attention: type = CachedAttention) -> None:
        super().__init__()
        self.words = nn.Embedding(len(SIGNS), E)
        options = {"batch_first": True, "rotary": RotaryEmbedding(E // H)}
        self.layers = nn.ModuleList(attention(E, H, **options) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(E) for _ in range(2))
        self.scores = nn.Linear(E, len(SIGNS))

    def forward(self, ids: Tensor, caches=(None, None), blocked: Tensor | None = None):
        x = self.words(ids)  # (b, n, e)
        for layer, norm, cache in zip(self.layers, self.norms, caches):
            x = x + layer(norm(x), cache, blocked)[0]  # (b, n, e)
        return self.scores(x)                          # (b, n, ...)


# %%
torch.manual_seed(0)
model = Writer()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for _ in range(150):
    texts = map(encode, (SENTENCE, OTHER))
    losses = [F.cross_entropy(model(ids[:, :-1])[0], ids[0, 1:]) for ids in texts]
    optimizer.zero_grad()
    sum(losses).backward()
    optimizer.step()

# %% [markdown]
# <!-- /deeper -->


# %% tags=["fold-input"]
@torch.no_grad()
def write(model: nn.Module, ids: Tensor, steps: int) -> tuple[Tensor, int]:
    """Write ``steps`` more tokens; also count the tokens that the model has read."""
    given, read = ids, 0
    for _ in range(steps):
        read += given.size(1)
        scores = model(given)[:, -1]                        # (b, ...)
        ids = torch.cat([ids, scores.argmax(-1, True)], 1)  # (b, ...)
        given = ids                                         # (b, ...)
    return ids, read


def spell(ids: Tensor) -> str:
    """Write numbers as words."""
    return " ".join(SIGNS[i] for i in ids.tolist())


# %% tags=["fold-input"]
anew, read = write(model, encode(["the"]), 8)
print(f"{read} tokens read to write 8:", spell(anew[0]))

# %% [markdown]
# It reads 36: one, then two, and so on, $n(n + 1)/2$ for n tokens. Is that needed? Give it *the cat drank milk*, and then
# the same words followed by *because*. What changes for the four old tokens: the outputs of the layers, the keys and
# values, or nothing at all?
#
# <details><summary>What do you expect?</summary>
#
# Nothing at all. The mask is causal, so no old token sees the new one, and the outputs of the first layer stay the
# same. The second layer reads these, and the same holds there.
#
# </details>


# %% tags=["proof"]
class Noting(CachedAttention):
    """Writes down queries, keys, values and outputs."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, **options):
        heads, weights = super().attend(q, k, v, **options)
        self.seen = {"query": q, "key": k, "value": v, "output": heads}
        return heads, weights


noting = Writer(Noting)
noting.load_state_dict(model.state_dict())
with torch.no_grad():
    for count in (4, 5):
        noting(encode(SENTENCE[:count]))
        if count == 4:
            before = [layer.seen for layer in noting.layers]
for i, layer in enumerate(noting.layers):
    for name, old in before[i].items():
        torch.testing.assert_close(layer.seen[name][:, :, :4], old)
print("✓ In both layers, query, key, value and output of the four tokens are as before.")

# %% [markdown]
# The new token's query is compared with all keys, and then the values are mixed. The old tokens' queries and outputs
# are not needed again: the next layer has already made its own keys and values from these outputs. So keep the **keys
# and values** of each layer, and nothing else. This is the **KV cache**:

# %%
display.annotated(KVCache.append)

# %% [markdown] name="kv-cache-size"
# ## KV cache size
#
# Each layer keeps a key and a value for each token and each head that has keys of its own. So
#
# > **KV cache size** = 2 · layers · KV heads · d · bytes of a number · tokens · sequences
#
# Here d is the width of a head. In plain multi-head attention every head counts as a KV head; in grouped
# attention only those that the others share. All weights of Llama 3.1 8B take 15 GiB in 16 bits (a GiB is 2³⁰ bytes, a
# GB 10⁹). Can one sequence take more?

# %% tags=["fold-input"]
SHAPES = {  # layers, KV heads, d, the longest sequence
    "SmolLM2-135M": (30, 3, 64, 8192),
    "OLMo 2 7B": (32, 32, 128, 4096),
    "Llama 3.1 8B": (32, 8, 128, 131_072),
    "Llama 3.1 70B": (80, 8, 128, 131_072),
}
rows = {}
for name, (layers, kv_heads, d, tokens) in SHAPES.items():
    token = 2 * layers * kv_heads * d * 2  # bytes, with two for each number
    shape, sizes = f"{layers} · {kv_heads} · {d}", (token / 2**10, token * tokens / 2**30)
    rows[name] = [shape, sizes[0], f"{tokens:,}", sizes[1]]
columns = ["layers · KV heads · d", "KiB a token", "tokens", "GiB"]
display.show(rows, columns=columns, decimals=("<", 1, "<", 1))

# %% tags=["proof"]
for layers, kv_heads, d, _ in SHAPES.values():
    cache, some = KVCache(), torch.zeros(1, kv_heads, 5, d, dtype=torch.bfloat16)
    cache.append(some, some)
    kept = 5 * counting.cache_bytes(1, kv_heads * d, layers=layers)
    assert layers * cache.numel() * some.element_size() == kept
    assert kept == 5 * 2 * layers * kv_heads * d * 2
print("✓ A `KVCache` in each layer takes these bytes.")

# %% [markdown]
# It can: 16 GiB, if it is as long as the model allows. A token takes 128 KiB there, and four times as much in OLMo 2,
# where each of 32 heads has [keys of its own](22_fewer_keys.ipynb). (Llama's sizes are those of [Llama Team,
# table 3](../docs/references.md#llama-2024), the others' of their configuration.) Layers with a
# [window](24_windows.ipynb), latent attention ([MLA](22_fewer_keys.ipynb)) or [linear
# attention](25_linear_attention.ipynb) keep less than the formula says.
#
# ### How many sequences fit
#
# How many sequences can Llama 3.1 8B write at a time on a GPU of 80 GB? vLLM takes a share of the GPU, here
# 0.9<!-- setting --> (`gpu_memory_utilization`), loads the weights, and cuts what is left into pages for caches:

# %% tags=["fold-input"]
left = 0.9 * 80e9 - 2 * 8.03e9  # bytes for caches
token = counting.cache_bytes(1, 8 * 128, layers=32)  # bytes, with two for each number
lengths = (1024, 8192, 32_768, 131_072)
fits = {f"{n:,}": [left // (n * token), left // (n * token / 2)] for n in lengths}
columns = ["in 16 bits", "in 8 bits"]
display.show(fits, columns=columns, corner="tokens of each", decimals=0)

# %% [markdown]
# So 52 users with 8,192<!-- setting --> tokens each, or 3 with as many as the model allows. This is a limit once more: what the layers
# hold for a moment while they compute takes a few GB, too. At its start vLLM logs this number for sequences of
# `max_model_len`, as *Maximum concurrency*, and stops with an error where not even one would fit. Then lower
# `max_model_len`. More sequences than fit may wait: pages are taken [as tokens come](#cell-id=pages).

# %% [markdown] name="attention-that-continues"
# ## Chunked prefill: attention that continues
#
# With a cache, attention receives a **chunk** of n new tokens at a time: first the prompt, whole or in parts, then one
# token after another. Afterwards there are m keys. Four lines stand between the projections and the scores:
#
# ```python
# positions = cache.length + torch.arange(n)         # count on from what is kept
# q, k = rotary(q, positions), rotary(k, positions)  # each key turns once
# k, v = cache.append(k, v)                          # now those of all tokens
# blocked = torch.arange(m) > positions[:, None]     # the mask
# ```

# %% [markdown]
# <!-- deeper: The three methods of the class -->
# ### Going deeper: The three methods of the class
#
# Lines two and three are in the method `rotate_and_append`, and line four is in `block`. The keys have g
# heads, here as many as the queries. `forward` projects, calls the two methods, and attends.
# `_block_if_needed` calls `block`, except when there is a single new token that may see every key.

# %%
display.annotated(
    CachedAttention.rotate_and_append, CachedAttention.block, CachedAttention.forward
)

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# When *sweet the* follow three kept tokens, *sweet* stands at position 3. It
# may see keys 0 to 3, and *the* one more:

# %% tags=["fold-input"]
from annotated_attention.modern import block_by_position

kept, chunk = ["because", "it", "was"], ["sweet", "the"]
blocked = block_by_position(3 + torch.arange(2), 5)  # (2, 5)
assert blocked.equal(block_future(5)[3:])
with torch.no_grad():
    x = model.norms[0](model.words(encode([*kept, *chunk])))
    weights = model.layers[0](x, need_weights=True)[1][0].mean(0)  # (5, 5)
display.masked_map(
    weights[3:],
    blocked,
    chunk,
    [*kept, *chunk],
    name="chunk-mask",
    caption="Hatched: blocked. Numbers: weights of layer 1, averaged over its heads.",
)

# %% [markdown]
# These are the last two rows of the causal mask for five tokens. Its diagonal ends in the **lower right**
# corner, because the newest query and the newest key belong to the same token: for a query at position p, block
# key j if j > p.

# %% [markdown]
# Does it matter how a text is cut? Random tokens, cut in four ways, meet a single call.

# %% tags=["proof"]
b, n, h, d = 2, 12, 4, 6
e = h * d
torch.manual_seed(1)
rotary = RotaryEmbedding(d)
attention = CachedAttention(e, h, batch_first=True, rotary=rotary, dtype=torch.float64)
x = torch.randn(b, n, e, dtype=torch.float64, requires_grad=True)  # (b, n, e)
whole = attention(x)[0]                                            # (b, n, e)
inputs = [x, *attention.parameters()]
expected = one.gradients(whole, inputs)
for sizes in ([12], [5, 4, 3], [11, 1], [1] * 12):
    cache = KVCache()
    parts = [attention(part, cache)[0] for part in x.split(sizes, 1)]
    together = torch.cat(parts, 1)  # (b, n, e)
    torch.testing.assert_close(together, whole)
    torch.testing.assert_close(one.gradients(together, inputs), expected)
print("✓ All at once, in chunks or one by one: the same outputs and gradients.")

# %% [markdown]
# It does not. (These numbers have 64 bits. In 16 each cut rounds in its own way: [How
# close?](../docs/questions.md#how-close-must-two-results-be-in-16-bits)) Now the writer keeps what it has read. Two lines
# of its loop change: the model gets a cache for each layer, and from the second call on only the new token.


# %% tags=["fold-input"]
@torch.no_grad()
def write_on(model: nn.Module, ids: Tensor, steps: int, caches: list) -> tuple[Tensor, int]:
    """Write ``steps`` more tokens; also count the tokens that the model has read."""
    given, read = ids, 0
    for _ in range(steps):
        read += given.size(1)
        scores = model(given, caches)[:, -1]                # (b, ...)
        ids = torch.cat([ids, scores.argmax(-1, True)], 1)  # (b, ...)
        given = ids[:, -1:]                                 # (b, 1)
    return ids, read


# %% tags=["fold-input"]
text, read = write_on(model, encode(["the"]), 8, [KVCache(), KVCache()])
print(f"{read} tokens read to write 8:", spell(text[0]))

# %% tags=["proof"]
assert text.equal(anew)
print("✓ The same text as without a cache.")

# %% [markdown]
# Now 8 tokens are read instead of 36. In the figure, *new* is computed in this step, and *kept* is read from
# the cache. Where there is a slider, move *words* from 1 to 8, with a cache and without.

# %% tags=["fold-input"]
with torch.no_grad():
    embedded = model.norms[0](model.words(encode(one.WORDS)))
    weights = model.layers[0](embedded, need_weights=True)[1][0].mean(0)
display.cache_filling(weights, one.WORDS, name="cache-filling", step=6)

# %% [markdown] name="fixed-size"
# ## Static cache: a cache of fixed size
#
# In a growing cache, `torch.cat` copies everything kept so far in every step. Its shape changes, too: `torch.compile`
# makes three programs instead of one, and a **CUDA graph**, which replays a recorded step, demands the same shapes and addresses each
# time. A `StaticCache` reserves room for the longest sequence once, and writes each new key into its place.
#
# The price is that `append` returns all places, and those not yet written hold zeros. One query has no future to hide,
# so its mask is easily left out. With 5 of 16 places written (random tokens, random weights), how much weight do the 11
# empty ones get: none, a little, or more than half?

# %% tags=["fold-input"]
from annotated_attention.modern import StaticCache
from attention_doctor.mistakes import MISTAKES
from attention_doctor.mistakes.cache import CacheZerosAttended

ROOM = 16


def fixed_size(b: int) -> StaticCache:
    """Make an empty cache with room for 16 tokens of b sequences."""
    return StaticCache(b, H, ROOM, E // H, dtype=torch.float64)


def another(version: type, module: CachedAttention) -> CachedAttention:
    """Make another version of a module, with its parameters."""
    made = version(E, H, batch_first=True, rotary=module.rotary, dtype=torch.float64)
    made.load_state_dict(module.state_dict())
    return made


# %% tags=["fold-input"]
rows = {}
for name, version in (
    ("without the mask", CacheZerosAttended),
    ("with it", CachedAttention),
):
    cache, made = fixed_size(b), another(version, attention)
    with torch.no_grad():
        made(x[:, :4], cache)
        weights = made(x[:, 4:5], cache, need_weights=True)[1]  # (b, h, 1, ...)
    rows[name] = [weights[..., 5:].sum(-1).mean()]
display.show(rows, columns=["weight of the empty places"])

# %% [markdown]
# More than half. A key of zeros [scores 0](06_masks.ipynb#cell-id=padding) with every query, and so does an average key,
# as long as scores spread around 0. But the empty places stand at later positions, so j > p hides them. Apply the mask
# to a single query, too.

# %% [markdown]
# <!-- deeper: The code, and how often it is compiled -->
# ### Going deeper: The code, and how often it is compiled
#
# `length` is a tensor, because a Python number would be a part of the compiled program, and it is changed in
# place: a recorded graph reads the same address again. Cropping changes this number alone: what stands behind it is masked, and overwritten later.

# %%
display.annotated(StaticCache.append, StaticCache.crop)

# %% [markdown]
# Compile the attention for both kinds of cache, write 12 tokens one by one, and count how many
# programs the compiler makes. The backend below does nothing but count.


# %% tags=["fold-input"]
def programs(module: nn.Module, cache: object, tokens: Tensor) -> int:
    """Count the programs compiled while tokens come one by one."""
    made = []

    def backend(graph, _):
        made.append(graph)
        return graph

    torch.compiler.reset()
    compiled = torch.compile(module, backend=backend, fullgraph=True)
    with torch.no_grad():
        steps = [compiled(token, cache)[0] for token in tokens.split(1, 1)]
        torch.testing.assert_close(torch.cat(steps, 1), module(tokens)[0])
    return len(made)


counts = {
    type(cache).__name__: [programs(attention, cache, x)]
    for cache in (KVCache(), fixed_size(b))
}
display.show(counts, columns=["programs compiled"])

# %% [markdown]
# One program serves every step of the `StaticCache`. The growing cache needs three: one for the
# empty cache, one for the first length, and one for any length.
#
# <!-- /deeper -->

# %% [markdown] name="four-mistakes"
# ## Four mistakes
#
# The missing mask is one of four mistakes, all reported, three of them in published code [[Caches that went
# wrong](../docs/references.md#caches-gone-wrong)]. They leave every shape as it is:

# %% tags=["hide-input"]
WRONG = {code: entry for code, entry in MISTAKES.items() if entry.of is CachedAttention}
print(*(f"# {code}\n{entry.wrong}" for code, entry in WRONG.items()), sep="\n\n")

# %% [markdown]
# In the last one, it is no mistake to keep keys unrotated: some do, and turn them by 0, 1, 2 … when they are read. The
# mistake is to begin at `positions[0]`, where the new tokens begin.

# %% [markdown]
# A test feeds in a text of 12 tokens in one call, with an empty cache, and compares the outputs with those without a
# cache. How many of the four does it find?
#
# <details name="found"><summary>All four: each makes wrong numbers.</summary>
#
# It makes none here: no token is kept yet, and none comes alone.
#
# </details>
#
# <details name="found"><summary>Three: only the empty places get their mask.</summary>
#
# They do. But the other three go wrong only where tokens are kept already, and the cache is empty.
#
# </details>
#
# <details name="found"><summary>None.</summary>
#
# The first query really does stand at position 0, and nothing is kept that could be wrong.
#
# </details>
#
# The table cuts the text in three ways, and says by how much the outputs differ at most. The last column counts wrong words
# among seven that the writer adds to *because it*:

# %% tags=["fold-input"]
WAYS = {"at once": [12], "5 + 4 + 3": [5, 4, 3], "one by one": [1] * 12}


def writes(version: type, trained: nn.Module) -> list[str]:
    """Let a trained writer with another attention add seven words to “because it”."""
    writer = Writer(version)
    writer.load_state_dict(trained.state_dict())
    caches = [StaticCache(1, H, ROOM, E // H) for _ in writer.layers]
    return spell(write_on(writer, encode(["because", "it"]), 7, caches)[0][0]).split()


def off(module: nn.Module, x: Tensor, sizes: list[int], cache: object) -> float:
    """Say by how much chunks differ from a single call of the module without a cache."""
    with torch.no_grad():
        chunks = [module(part, cache)[0] for part in x.split(sizes, 1)]
        return (torch.cat(chunks, 1) - module(x)[0]).abs().max().item()


# %% tags=["fold-input"]
rows, expected = {}, writes(CachedAttention, model)
for code, entry in {**WRONG, "right": None}.items():
    version = entry.version if entry else CachedAttention
    made = another(version, attention)
    apart = [off(made, x, sizes, fixed_size(b)) for sizes in WAYS.values()]
    words = sum(a != b for a, b in zip(writes(version, model), expected, strict=True))
    rows[code] = [*apart, words]
    assert apart[0] < 1e-9
    assert (apart[-1] > 0.01) == (code != "right")
assert rows["cache-zeros-attended"][3] == 0
zeros = another(CacheZerosAttended, attention)
assert off(zeros, x, WAYS["one by one"], KVCache()) < 1e-9  # it grows: nothing is empty
display.show(rows, columns=[*WAYS, "wrong words"], corner="off by up to")

# %% [markdown]
# *One by one* finds every mistake in this cache of fixed size; in one that grows there are no zeros to see. Reading along
# is no test: of the seven words, the zeros change none. So **feed in the same text at
# once, in uneven chunks and token by token, with the cache that you will use, and compare the outputs.**

# %% [markdown] name="prefill-and-decode"
# ## Prefill and decode: predicted, then measured
#
# No H100 was at hand, so a processor puts the limit to the test (float32, two threads of an Intel Xeon; how to time a
# call: [Speed](15_speed.ipynb)), with a language model of four layers as wide as SmolLM2-135M's. A call has two limits: bytes ÷
# bandwidth, as above, and FLOPs ÷ what the processor does in a second. Predict: how much longer do 128 tokens at once take than a single one: 128 times, about 30 times, or less than ten?

# %% tags=["fold-input"]
SIZES = {"layers": 4, "e": 576, "h": 9, "g": 3, "d": 64, "hidden": 1536, "words": 4096}


def work(n: int, kept: int) -> tuple[int, int]:
    """Count the FLOPs for n new tokens behind others, and the numbers to read, each once.

    Only the last token is compared with the vocabulary, as when a model writes.
    """
    layers, e, h, g, d, hidden, words = SIZES.values()
    weights = layers * (2 * e * (h + g) * d + 3 * e * hidden)
    pairs = n * kept + n * (n + 1) // 2  # of a query and a key
    flops = 2 * n * weights + 4 * layers * h * d * pairs + 2 * words * e
    return flops, weights + words * e + 2 * layers * g * d * (kept + n)


def bandwidth() -> float:
    """Give the bytes that memory delivered in a second."""
    (reading,) = measured.find("bandwidth", precision="float32")
    return 4 * 2**28 / reading["milliseconds"]["read"][1] * 1000


# %% tags=["fold-input"]
assert "Xeon" in measured.load()["provenance"]["cpu"]
(product,) = measured.find("peak")
peak = 2 * 4096**3 / product["milliseconds"]["multiply"][1]  # FLOPs in a millisecond
drawing, (ax,) = display.panels(380, 200)
said = []
for y, (section, many, name) in enumerate(
    (("decoding", 1, "decode, 1 token"), ("prefill", 128, "prefill, 128 tokens"))
):
    behind = 16 if section == "decoding" else 0
    where = {"size": [1, many, 576, 9], "kept": behind, "precision": "float32"}
    (row,) = measured.find(section, **where)
    flops, numbers = work(many, behind)
    floors = 4 * numbers / bandwidth() * 1000, flops / peak
    took = row["milliseconds"]["language model"][1]
    assert max(floors) < took < 2 * max(floors)
    ax.text(0, 0.2 - y, name, fontsize=12, fontweight="bold")
    for what, below, long, ink in zip(
        ("bytes", "FLOPs", "measured"), (0, 0.22, 0.44), (*floors, took), "nhb"
    ):
        ax.barh(-y - below, long, 0.17, color=display.COLOURS[ink], alpha=0.8)
        ax.text(long + 0.3, -y - below, f"{what}: {long:.2f}", va="center", fontsize=12)
        said.append(f"{name}, {what}: {long:.2f} ms")
ax.set(xlim=(0, 27), ylim=(-1.65, 0.45))
ax.set_yticks([])
ax.spines["left"].set_visible(False)
caption = (
    f"Milliseconds. The processor reads {bandwidth() / 1e9:.0f} GB a second (measured with "
    f"a matrix times a vector), and does {peak / 1e6:.0f} GFLOPs (with two matrices)."
)
display.finish(drawing, name="floors", alt="; ".join(said) + ".", caption=caption)

# %% [markdown]
# Less than five times: 19.61 milliseconds instead of 4.10. A single token needs 2.28 for the bytes, and only 0.09 for
# the arithmetic. That is **decode**, which sets the **time per output token** (TPOT). In **prefill**, which sets the
# **time to first token** (TTFT), 128 tokens share the same bytes, and arithmetic becomes the limit. The limits are no
# forecast: both calls take up to twice as long. They say what can help: fewer bytes in decode, fewer FLOPs in prefill,
# where these take the time. (On this processor starting small operations takes much of it, and bfloat16 is no faster: the
# second fold.) Some services give prefill and decode machines of their own (**disaggregated** serving [[Zhong et
# al.](../docs/references.md#zhong-2024)]).

# %% [markdown]
# <!-- deeper: with a cache and without, in milliseconds -->
# ### Going deeper: with a cache and without, in milliseconds
#
# FLOPs do not tell the time. One sequence and one layer with e = 512, on the same processor: medians. The cache of
# fixed size has room for exactly these tokens.

# %% tags=["fold-input"]
rows = measured.find("cache", memory="kept", size=[1, 1, 512, 8])
ratios = [row["ratios"]["bare minimum"]["without"] for row in rows]
assert ratios[-1][0] > ratios[0][2]  # quartiles that do not touch
table = {}
for row in rows:
    m, spent = row["kept"] + 1, row["milliseconds"]
    saved = counting.attention_flops(m, m, 512)
    saved /= counting.projection_flops(1, 1, 512) + counting.score_flops(1, m, 512)
    longer = spent["without"][1] / spent["fixed size"][1]
    table[f"behind {m - 1:,}"] = [saved, longer]
    assert longer < saved
columns = ["times the FLOPs", "times the time"]
title = "Without a cache, compared with one of fixed size"
display.show(table, columns=columns, decimals=",.0f", title=title)

# %% [markdown]
# A query in a fixed size meets all places, written or not, unless the kernel is told the lengths.
#
# <!-- /deeper -->

# %% [markdown]
# <!-- deeper: Is that limit reached? Measured on a processor -->
# ### Going deeper: Is that limit reached? Measured on a processor
#
# The language model from above, of 9 heads that share three heads of keys. The bandwidth is measured with a matrix of 2²⁶
# numbers in float32 times one vector, which has nothing else to do. How near to the limit do the measured tokens come, and do half the bytes, in bfloat16, bring twice the tokens?


# %% tags=["fold-input"]
def decoded() -> dict[str, list[float]]:
    """Compare the tokens per second that the bytes allow with the measured ones."""
    table = {}
    for precision, wide in (("float32", 4), ("bfloat16", 2)):
        for row in measured.find("decoding", precision=precision):
            read = wide * work(1, row["kept"])[1]  # bytes
            most, found = (
                bandwidth() / read,
                1000 / row["milliseconds"]["language model"][1],
            )
            name = f"{precision}, behind {row['kept']:,}"
            table[name] = [read / 1e6, most, found, found / most]
    return table


columns = ["MB to read", "tokens/s, limit", "measured", "share of it"]
title = f"One more token, with {bandwidth() / 1e9:.0f} GB a second"
display.show(decoded(), columns=columns, decimals=(0, 0, 0, ".0%"), title=title)

# %% tags=["proof"]
from annotated_attention.modern import LanguageModel, Settings

sizes = dict(zip(("num_layers", "embed_dim", "num_heads", "num_kv_heads"), SIZES.values()))
sizes |= dict(zip(("head_dim", "hidden_dim", "vocab_size"), [*SIZES.values()][4:]))
decoder = LanguageModel(Settings(**sizes, tie_embeddings=True))
caches = [KVCache() for _ in decoder.layers]
with torch.no_grad():
    decoder(torch.zeros(1, 17, dtype=torch.long), caches)
matrices = sum(x.numel() for x in decoder.parameters() if x.dim() == 2)
assert work(1, 16)[1] == matrices + sum(cache.numel() for cache in caches)
print("✓ Counted are the numbers of all matrices of this model, and of its cache.")

# %% [markdown]
# In float32 the model reaches about half of its limit. In bfloat16 the limit is twice as high, and the tokens become *fewer*. So what limits this small model on this processor is not memory but the work
# around the reading: many small operations, each of which has to be started, and some of which take longer
# in bfloat16.
#
# <!-- /deeper -->

# %% [markdown] name="fewer-bits"
# ## Quantised cache: fewer bits
#
# Where memory is the limit, a shorter bar takes less time. A **quantised cache** nearly halves its green part (press *8
# bits* in [the figure](#cell-id=bytes-over-bandwidth), where the scales are not counted). What does it cost?
#
# It holds whole numbers, in 8 bits (int8) from −127 to 127, and for each token and head a scale: what one step is worth.
# So a new token needs nothing of the others. Random keys and values, 64 wide, are rounded, and attention is compared. In
# the last column one feature of the keys is 20<!-- invented --> times as large, and that of the queries as much smaller:
# the same scores.


# %%
def quantise(x: Tensor, bits: int, axis: int = -1) -> tuple[Tensor, Tensor]:
    """Round to whole numbers, with a scale for each token and head (axis -1).

    Of 4 bits, two numbers would share a byte; that packing is not shown.
    """
    scale = x.abs().amax(axis, keepdim=True) / (2 ** (bits - 1) - 1)
    return (x / scale).round().to(torch.int8), scale


# %% tags=["fold-input"]
def off_by(bits: int, axis: int, loud: float) -> Tensor:
    """Give how far the outputs are off, as a share of their size."""
    q, k, v = torch.randn(3, 256, 64, generator=torch.Generator().manual_seed(0))
    q[:, 7], k[:, 7] = q[:, 7] / loud, k[:, 7] * loud
    exact = F.scaled_dot_product_attention(q, k, v)
    k, v = (whole * scale for whole, scale in (quantise(k, bits, axis), quantise(v, bits)))
    return (F.scaled_dot_product_attention(q, k, v) - exact).norm() / exact.norm()


rows = {"16 bits": ["128", None, None]}
for bits, axis, of in ((8, -1, "token"), (4, -1, "token"), (4, -2, "feature")):
    taken = 64 * bits / 8 + (2 if axis == -1 else 64 * 2 / 256)  # a scale has 16 bits
    errors = [off_by(bits, axis, loud) for loud in (1, 20)]
    rows[f"{bits} bits, a scale per {of}"] = [f"{taken:g}", *errors]
display.show(rows, columns=["bytes of a key", "off by", "one loud feature"])

# %% [markdown]
# With 8 bits a key takes about half the bytes, and outputs are off by a hundredth of their size. With 4 bits it is 0.16,
# and one loud feature makes it 0.64: the scale must fit that feature, and for the others few steps are left.
# Keys of trained models do have such features. A scale for each *feature* of the keys,
# here over 256 tokens, brings the error back to 0.17. Such a scale has to wait until all its tokens are there. KIVI comes
# down to 2 bits in this way: it takes groups of tokens, and keeps the newest in 16 bits until their group is full [[Liu et
# al. 2024](../docs/references.md#liu-2024)]. [A model of today](26_a_model_of_today.ipynb#cell-id=what-breaks-what) measures
# 8 and 4 bits on a chat model.
#
# No arithmetic is saved here: the keys are multiplied out again when they are read. Some of vLLM's kernels compute in their
# 8 bits, floating-point numbers (FP8) [[vLLM, *Quantized KV Cache*](../docs/references.md#vllm-guides)].

# %% [markdown] name="pages"
# ## PagedAttention and prefix caching: pages
#
# Room that lies empty in the green part is room for a request. With padding, beside a sequence of 4,000 tokens, one of
# 10 takes as much. **PagedAttention** avoids this with a **page table**, an idea from operating systems that vLLM made
# popular [[Kwon et al.](../docs/references.md#kwon-2023)]. Keys and values lie on pages of a few tokens each, and a table
# says which pages a sequence consists of. Where a page holds four tokens, prompts of ten and three take three and one:

# %% tags=["proof"]
from annotated_attention.modern import PagedCache

torch.manual_seed(3)
two, new = torch.randn(2, 10, e), torch.randn(2, 1, e)  # the second has three tokens
layer = CachedAttention(e, h, batch_first=True, rotary=rotary)
lengths, paged = [10, 3], PagedCache(num_pages=9, page_size=4, num_heads=h, head_dim=d)
with torch.no_grad():
    layer(two, paged)
    paged.crop(lengths)
    assert [len(table) for table in paged.tables] == [3, 1]
    together = layer(new, paged)[0]  # (b, 1, e)
    for i, length in enumerate(lengths):
        alone = layer(torch.cat([two[i, :length], new[i]])[None])[0]
        torch.testing.assert_close(together[i, 0], alone[0, -1])
print("✓ Three pages and one; each goes on at its own position, and as it would alone.")

# %% [markdown]
# Sequences that begin alike, with the same instructions, can point to the same pages: **prefix caching**. A new request
# finds them by a hash of each page's tokens and all tokens before them, and computes only from the first page that is
# missing. vLLM keeps hashes of full pages alone [[vLLM, *Automatic Prefix Caching*](../docs/references.md#vllm-guides)].
#
# In the paper, and here, sequences that go on in several ways share the page that they are about to fill, too, until the
# first of them writes: it gets its own copy (**copy-on-write**). In the figure, ten tokens go on in two ways, after one
# more token each. Which page is the copy?

# %% tags=["fold-input"]
shared = PagedCache(num_pages=6, page_size=4, num_heads=h, head_dim=d)
with torch.no_grad():
    layer(two[:1], shared)
    shared.reorder(torch.tensor([0, 0]))  # both go on from the same sequence
    layer(new, shared)
drawing, (ax,) = display.panels(340, 200)
ax.set(xlim=(-0.5, 24), ylim=(-2.2, 7.4))
ax.axis("off")
filled = {page: 4 for table in shared.tables for page in table[:-1]}
filled |= {table[-1]: shared.length % 4 for table in shared.tables}
for page, slot in itertools.product(range(6), range(4)):
    alpha = 0.5 if slot < filled.get(page, 0) else 0.08
    ax.bar(4 * page + 0.8 * slot, 1, 0.7, 3, color=display.COLOURS["m"], alpha=alpha)
for page in range(6):
    ax.text(4 * page + 1.2, 2.1, f"page {page}", ha="center", fontsize=12)
for y, table, name, letter in zip(
    (5.8, -0.8), shared.tables, ("sequence 1", "sequence 2"), "nh"
):
    look = {"color": display.COLOURS[letter], "fontweight": "bold", "fontsize": 12}
    ax.text(-0.3, y + (1.0 if y > 3 else -1.2), name, **look)
    for i, page in enumerate(table):
        ax.text(1.2 + 4 * i, y + 0.15, f"{page}", ha="center", **look)
        ends = (y - 0.2, 4.1) if y > 3 else (y + 0.9, 1.9)
        ax.plot([1.2 + 4 * i, 1.2 + 4 * page], ends, color=look["color"], linewidth=1.4)
told = " and ".join(str(table) for table in shared.tables)
alt = (
    f"A pool of six pages of four tokens. Two sequences share pages; their tables: {told}."
)
display.finish(drawing, name="shared-pages", alt=alt)

# %% [markdown]
# Page 3: sequence 1 wrote first. Pages 0 and 1 stay shared.
#
# When no page is free, a server **preempts** a sequence: it drops the pages, and vLLM reads the text again later
# [[vLLM, *Optimization and Tuning*](../docs/references.md#vllm-guides)]. **Offloading** is a thing of its own there: full
# pages are copied to the CPU's memory, where a later request with that beginning finds them [[vLLM, *KV
# Offloading*](../docs/references.md#vllm-guides)].

# %% [markdown]
# <!-- deeper: How a page is written, and three caches with one result -->
# ### Going deeper: How a page is written, and three caches with one result
#
# This is how a page is written. It is a teaching version: it collects the pages into tensors and
# hands them to the usual kernel. An inference engine has a kernel of its own that reads the pages
# where they are.

# %%
display.annotated(PagedCache.append, PagedCache._own, PagedCache._slots)

# %% [markdown]
# All three caches must give what attention gives without one. The cell tries chunks of three sizes,
# with four tokens of padding in front of the second sequence. Then it goes back: it crops each cache to
# seven tokens and feeds the others again.


# %% tags=["proof"]
def in_chunks(module: nn.Module, cache: object, tokens: Tensor, size: int, blocked: Tensor):
    """Feed tokens to an attention, ``size`` at a time; give all outputs."""
    outputs = []
    for part in tokens.split(size, 1):
        m = ROOM if isinstance(cache, StaticCache) else cache.length + part.size(1)
        outputs.append(module(part, cache, blocked[:, :m])[0])
    return torch.cat(outputs, 1)


blocked = torch.arange(ROOM) < torch.tensor([[0], [4]])  # (b, ...)
with torch.no_grad():
    padded = attention(x, key_padding_mask=blocked[:, :n])[0]  # (b, n, e)
    for size in (12, 5, 1):
        pages = PagedCache(4 * b, 4, h, d, dtype=torch.float64)
        for cache in (KVCache(), fixed_size(b), pages):
            first = in_chunks(attention, cache, x, size, blocked)  # (b, n, e)
            torch.testing.assert_close(first, padded)
            cache.crop(7)
            rest = in_chunks(attention, cache, x[:, 7:], size, blocked)
            torch.testing.assert_close(rest, padded[:, 7:])
print("✓ In chunks of 12, 5 and 1: equal in all three caches, and again after crop.")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="going-back-and-branching"
# ## Speculative decoding: going back
#
# With one user there is no second request to share the blue part with. **Speculative decoding** shares it among
# tokens that the same text may need next [[Leviathan et al.](../docs/references.md#leviathan-2023)]. A cheap *draft*
# proposes some tokens. The large model reads them all in one chunk (the **verification**), keeps those that it would
# have written itself, and adds one of its own. Then `cache.crop` drops the keys and values of the refused ones. Say that
# *the cat drank* stands there (*drank* is written, but not yet read), and that a draft, always three tokens long, proposes
# *milk because sweet*.
#
# | read in one call | drank | milk | because | sweet |
# |---|---|---|---|---|
# | the model's own next token | milk | because | it | … |
# | the guess after it | milk ✓ | because ✓ | sweet ✗ | |
#
# The text becomes *the cat drank milk because it*: two guesses, and one token of the model's own. In the run below, the draft is a
# table: which word followed which in the first sentence. What does a bad draft do to the text?


# %%
@torch.no_grad()
def speculate(model, draft, ids: Tensor, steps: int, caches: list) -> tuple[Tensor, int]:
    """Write what ``write_on`` writes; count the calls of the model."""
    calls, end = 0, ids.size(1) + steps
    while ids.size(1) < end:
        guess = draft(ids)                                              # (1, ...)
        asked = torch.cat([ids, guess], 1)[:, caches[0].length :]       # (1, ...)
        own = model(asked, caches)[0, -guess.size(1) - 1 :].argmax(-1)  # (...,)
        agreed = (own[:-1] == guess[0]).int().cumprod(0).sum()
        ids, calls = torch.cat([ids, own[None, : agreed + 1]], 1), calls + 1
        for cache in caches:
            cache.crop(ids.size(1) - 1)  # the last token has not been read yet
    return ids[:, :end], calls


# %% tags=["fold-input"]
FOLLOWS = dict(itertools.pairwise(SENTENCE))


def by_table(ids: Tensor) -> Tensor:
    """Guess three words by what followed each in the first sentence."""
    words = [SIGNS[ids[0, -1]]]
    for _ in range(3):
        words.append(FOLLOWS.get(words[-1], "the"))
    return encode(words[1:])


drafts = {"the table": by_table, "always “cat”": lambda ids: encode(["cat"] * 3)}
for name, draft in drafts.items():
    text, calls = speculate(model, draft, encode(["the"]), 8, [KVCache(), KVCache()])
    assert text.equal(anew)
    print(f"draft: {name}, {calls} calls:", spell(text[0]))

# %% [markdown]
# Nothing: the text is the same with any draft, up to rounding, and a bad one only needs more calls than a good one. (In 16
# bits a chunk rounds in another way than single tokens do, so a near tie can turn.)
#
# Real drafts are a smaller model, an n-gram that occurred before in the text, or a small head on the large
# model's own features: EAGLE [[Li et al. 2024](../docs/references.md#li-2024-eagle)], and DeepSeek-V3's
# multi-token prediction (MTP) [[DeepSeek-AI 2024, section 2.2](../docs/references.md#deepseek-2024-b)].
#
# Is it faster? Say that each of k guesses is right with probability α, whatever came before, and that one guess costs
# c calls of the large model. Then a call of the large model brings, on average,
#
# $$\text{tokens a call} = \frac{1 - \alpha^{k+1}}{1 - \alpha}$$
#
# and text comes faster by this number divided by kc + 1 (theorem 3.8<!-- quoted --> of the paper). The cell writes 1,200
# tokens, once for each α, with guesses spoiled at random, k = 3, and c = 0.1<!-- invented -->.


# %% tags=["fold-input"]
def right_at_times(alpha: float, right: Tensor):
    """Make a draft that knows the text, and spoils each word with probability 1 − α."""
    source = torch.Generator().manual_seed(5)

    def draft(ids: Tensor) -> Tensor:
        guess = right[:, ids.size(1) : ids.size(1) + 3]
        spoiled = torch.rand(guess.shape, generator=source) > alpha
        return (guess + spoiled) % len(SIGNS)

    return draft


rows, start = {}, encode(["the"])
right, _ = write_on(model, start, 1210, [KVCache(), KVCache()])
for alpha in (0.2, 0.5, 0.8, 0.9):
    caches = [KVCache(), KVCache()]
    text, calls = speculate(model, right_at_times(alpha, right), start, 1200, caches)
    assert text.equal(right[:, :1201])
    rows[alpha] = 1200 / calls / (3 * 0.1 + 1)

# %% tags=["fold-input"]
drawing, (ax,) = display.panels(400, 210)
curve = {i / 50: (1 - (i / 50) ** 4) / (1 - i / 50) / 1.3 for i in range(50)}
assert all(abs(curve[alpha] - times) < 0.1 for alpha, times in rows.items())
ax.plot(curve.keys(), curve.values(), color=display.COLOURS["b"])
ax.plot(rows.keys(), rows.values(), "o", color=display.COLOURS["h"])
ax.axhline(1, color=display.COLOURS["b"], lw=0.8, ls=":")
for alpha, times in rows.items():
    ax.text(alpha - 0.02, times + 0.12, f"{times:.2f}", ha="right", fontsize=12)
ax.set(xlim=(0, 1), ylim=(0.5, 3.1), xlabel="α: a guess is right", ylabel="times as fast")
alt = "; ".join(f"α = {alpha}: {times:.2f} times as fast" for alpha, times in rows.items())
caption = (
    "Dots: counted; chance moves one by up to 0.1, two standard errors. Line: the "
    "formula. Dotted: no draft."
)
display.finish(drawing, name="speculative-speed", alt=alt + ".", caption=caption)

# %% [markdown]
# A draft that is right one time in five makes writing slower. And a call with four tokens costs as much as one with a single
# token only while reading takes the time. Where arithmetic is [the limit](#cell-id=bytes-over-bandwidth), it costs four times as much.

# %% [markdown]
# <!-- deeper: Speculative sampling -->
# ### Going deeper: Speculative sampling
#
# Where tokens are drawn, **speculative
# sampling** keeps the large model's probabilities p, whatever the draft's probabilities q: accept a guess x
# with probability min(1, p(x) / q(x)); at the first one refused, draw from max(0, p − q), divided by its sum,
# and drop the later guesses; if none is refused, draw one more token from p.
#
# <!-- /deeper -->

# %% [markdown] name="their-names"
# ## Their names in transformers and vLLM
#
# What you have met, by the names of `transformers` 5 (classes, and settings of `generate` and of its
# `ContinuousBatchingConfig`) and of vLLM [[vLLM 2026](../docs/references.md#vllm-arguments)], which always
# batches continuously, on pages:

# %% tags=["fold-input"]
NAMES = {
    "KV cache": ("DynamicCache", "always on"),
    "chunked prefill": ("prefill_chunk_size", "enable_chunked_prefill"),
    "static cache": ('cache_implementation="static"', "–"),
    "quantised cache": ('cache_implementation="quantized"', 'kv_cache_dtype="fp8"'),
    "continuous batching": ("generate_batch", "always on"),
    "sequences in a call": ("max_requests_per_batch", "max_num_seqs"),
    "token budget of a call": ("max_batch_tokens", "max_num_batched_tokens"),
    "share of the memory": ("max_memory_percent", "gpu_memory_utilization"),
    "pages": ("page_size", "block_size"),
    "prefix caching": ("allow_block_sharing", "enable_prefix_caching"),
    "offloading": ("cpu_offload_space", "kv_transfer_config"),
    "speculative decoding": ("assistant_model", "speculative_config"),
    "guesses from the text": ("prompt_lookup_num_tokens", 'method: "ngram"'),
    "CUDA graphs": ("use_cuda_graph", "enforce_eager=False"),
}
display.show(NAMES, columns=["transformers", "vLLM"], corner="here", decimals="<")

# %% [markdown]
# ## Exercises
#
# ### The mask of a chunk
#
# *Easy, 2 minutes.* A cache has room for seven tokens and has kept *the cat drank*. Now the chunk
# *milk because* arrives. Write down the mask for the two queries, seven characters each: `x` means
# blocked, `.` means that the key may be seen.

# %% tags=["exercise"]
chunk_by_hand = {
    "milk": "???????",
    "because": "???????",
}

# %%
from annotated_book import exercises

exercises.cache.check_chunk(chunk_by_hand)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# The three kept words stand at positions 0 to 2. At which position does *milk* stand?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A query at position p sees the keys 0 to p. The last two places are not written yet.
#
# </details>

# %% tags=["solution"]
chunk_by_hand = {
    "milk": "....xxx",
    "because": ".....xx",
}

exercises.cache.check_chunk.folded(chunk_by_hand)

# %% [markdown]
# ### Write the decode step
#
# *Medium, 6 minutes.* What happens between the projections, for n new tokens? Their
# queries, keys and values are `(b, h, n, d)`, not yet rotated. `cache.length` says how many tokens are kept,
# `cache.append(k, v)` keeps the new ones and returns all, and `rotary(x, positions)` turns x. Seven lines are enough,
# scores and softmax included. The check cuts a text in several ways and tries both kinds of cache.


# %% tags=["exercise"]
def step(q: Tensor, k: Tensor, v: Tensor, cache, rotary) -> Tensor:
    """Give the outputs of the heads for the new tokens."""
    return None  # your lines here


# %%
exercises.cache.check_step(step)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Where does the first new token stand? Read `cache.length` before you append.
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# There are as many keys as `append` returns, at positions 0, 1, 2 …; compare them with those of the queries
# so that the mask has a row for each query. Where it is True, `masked_fill` writes −∞ into the scores.
#
# </details>


# %% tags=["solution"]
def step(q: Tensor, k: Tensor, v: Tensor, cache, rotary) -> Tensor:
    """Give the outputs of the heads for the new tokens."""
    positions = cache.length + torch.arange(q.size(-2))      # (n,)
    q, k = rotary(q, positions), rotary(k, positions)        # (b, h, n, d), (b, h, n, d)
    k, v = cache.append(k, v)                                # (b, h, m, d), (b, h, m, d)
    blocked = torch.arange(k.size(-2)) > positions[:, None]  # (n, m)
    scores = q @ k.mT / math.sqrt(q.size(-1))                # (b, h, n, m)
    scores = scores.masked_fill(blocked, -math.inf)          # (b, h, n, m)
    return scores.softmax(-1) @ v                            # (b, h, n, d)


exercises.cache.check_step.folded(step)

# %% [markdown]
# ## What you have now
#
# > **In short.** Under a causal mask nothing about the old tokens changes, so keep their keys and
# > values: 2 · layers · KV heads · d · bytes · tokens · sequences. A decode call takes at least (weights +
# > caches) ÷ bandwidth, and sequences share only the weights.
# >
# > New tokens `(b, h, n, d)`, keys and values of all tokens `(b, h, m, d)`, mask `(n, m)`.
# >
# > ```python
# > positions = cache.length + torch.arange(n)
# > q, k = rotary(q, positions), rotary(k, positions)
# > k, v = cache.append(k, v)
# > blocked = torch.arange(m) > positions[:, None]
# > ```
# >
# > Positions count on, keys are rotated before they are kept, and j > p hides the future and the
# > empty places alike. Test it in chunks.
#
# The [next chapter](22_fewer_keys.ipynb) makes the cache smaller, with heads that share their keys.
