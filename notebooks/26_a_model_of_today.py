# %% [markdown]
# # A model of today
#
# *What does a chat model of today consist of?*
#
# *25 minutes and 8 of exercises. Afterwards you can run one, notice wrong weights, and name what
# gpt-oss, Qwen3.5, Kimi Linear and DeepSeek have besides.*
#
# You type a question, and an answer appears, word by word. Behind it there are a file of numbers and a few
# hundred lines of code, whose parts are called RoPE, GQA, RMSNorm and SwiGLU. In this chapter you load the file,
# read the lines, and break the model while it runs: what happens without its rotation, or without its attention
# sink? [One table](#cell-id=what-this-class-lacks) says what other models have besides. At the end, you ask the model
# the question from the first page of this book.

# %% [markdown] name="a-file-of-numbers"
# ## A file of numbers
#
# SmolLM2-135M-Instruct is small for a chat model, and made like a Llama [[Allal et
# al.](../docs/references.md#allal-2025)]. Its weights fit into one file of 98 megabytes in the
# format **GGUF**: settings, tokeniser and tensors, one after the other. Most numbers are
# **quantised**: of 32 neighbouring weights, the file stores the smallest and the size of a step, and then for each
# weight a whole number of steps from 0 to 15. `load_gguf` turns them back into floats, a few rows at a time.

# %%
import math

import torch
import torch.nn.functional as F
from torch import Tensor

from annotated_attention import pretrained
from annotated_book import chapters, display

print(pretrained.CHAT_MODEL.files[0])

# %% tags=["needs-weights"]
path = pretrained.find_weights(model=pretrained.CHAT_MODEL)
model, tokenizer = pretrained.load_gguf(path)
for name in (
    "num_layers",
    "embed_dim",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "hidden_dim",
    "vocab_size",
    "rotary_base",
):
    print(f"{name:15} {getattr(model.settings, name):,.0f}")
parameters = sum(x.numel() for x in model.parameters())
size = sum(file.stat().st_size for file in path.glob("*.gguf"))
print(f"{parameters:,} parameters, {8 * size / parameters:.1f} bits each in the file")

# %% [markdown]
# <!-- deeper: How the file is read -->
# ### Going deeper: How the file is read
#
# `load_gguf` reads the settings, makes a model without memory, and fills it. `interleaved_to_half`,
# in its last lines, becomes important below.

# %%
from annotated_attention.pretrained import checkpoint, gguf

display.annotated(gguf.load_gguf, checkpoint.fill, gguf._stored_name)

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# There are 30 blocks. The states are 576 wide, and nine query heads of width 64 share three KV
# heads, three each. The embedding alone has 49,152 · 576 numbers, a fifth of all parameters. It is *tied*: the same
# matrix scores the tokens at the end.
#
# ## Ask
#
# A language model continues a text. What makes it a **chat model** is training on texts that are
# written like conversations. Special tokens say who speaks. So you write down what was said, open the assistant's
# turn, and let the model continue. `generate` takes the likeliest token each time, as in [A cache](21_cache.ipynb), and
# stops at `<|im_end|>`. In the notebook, **ask a question of your own here**.

# %%
QUESTION = "What is the capital of France?"
prompt = pretrained.chat_prompt(QUESTION)
print(prompt, end="")

# %% [markdown]
# The model continues after the last line, one token at a time:

# %%
from annotated_attention.modern import generate

# %% tags=["needs-weights"]
tokens = torch.tensor([tokenizer.encode(prompt).ids])  # (1, n)
stop = tokenizer.token_to_id("<|im_end|>")
for token in generate(model, tokens, 60, stops=[stop]):
    print(tokenizer.decode([int(token)]), end="")  # nothing for the token that stops

# %% [markdown]
# Its logits are those that `transformers` computes with the same weights, as the fold shows. To go on talking, call
# `python -m annotated_attention.chat` in a shell. The model is small: it answers fluently, and is often wrong.

# %% [markdown]
# <!-- deeper: The same numbers -->
# ### Going deeper: The same numbers
#
# Do the parts of this book compute what `transformers` computes? Its class for this family takes
# the same parameters under the same names. `assign` lets both models share their memory. If the
# library is not installed, the comparison is left out.

# %%
try:
    from transformers import LlamaConfig, LlamaForCausalLM

    print("transformers is there to compare with")
except ImportError:
    print("transformers is not installed: the comparison is left out")
    LlamaConfig = None

# %% tags=["needs-weights", "fold-input"]
if LlamaConfig:
    ours = model.settings
    config = LlamaConfig(
        vocab_size=ours.vocab_size,
        hidden_size=ours.embed_dim,
        rms_norm_eps=ours.norm_eps,
        intermediate_size=ours.hidden_dim,
        num_hidden_layers=ours.num_layers,
        num_attention_heads=ours.num_heads,
        num_key_value_heads=ours.num_kv_heads,
        rope_parameters={"rope_type": "default", "rope_theta": ours.rotary_base},
    )
    theirs = LlamaForCausalLM(config).eval()
    state = {f"model.{name}": x for name, x in model.state_dict().items()}
    state["lm_head.weight"] = model.embed_tokens.weight
    theirs.load_state_dict(state, assign=True)
    with torch.no_grad():
        logits, expected = model(tokens), theirs(tokens).logits  # (1, n, v), (1, n, v)
    apart, largest = (logits - expected).abs().max(), expected.abs().max()
    assert apart < 1e-3
    print(f"logits: equal up to rounding, the largest is {largest:.0f}")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="one-class"
# ## A whole Llama
#
# Most open language models of today are decoders with the same plan: a stack of blocks, each with an attention and a
# feed-forward part. A block adds twice to the states of its tokens: what the attention collects, and what the
# feed-forward part makes of it.

# %% tags=["fold-input"]
parts_of_a_block = ["norm", "self-attention", "norm", "feed-forward"]
display.layers({"one of 30 blocks": parts_of_a_block}, name="one-block")

# %% [markdown]
# Here is a whole Llama, in three functions that take their matrices from the model you loaded. First the
# attention: queries, keys and values are made and split into heads. Queries and keys are rotated, and three query heads
# share a KV head.

# %%
from annotated_attention import merge_heads, split_heads
from annotated_attention.modern import decoder, rotate


def llama_attention(part: decoder.DecoderAttention, x: Tensor, cos: Tensor, sin: Tensor):
    """Attend from each token to itself and to those before it."""
    q = split_heads(part.q_proj(x), part.num_heads)     # (b, h, n, d)
    k = split_heads(part.k_proj(x), part.num_kv_heads)  # (b, g, n, d)
    v = split_heads(part.v_proj(x), part.num_kv_heads)  # (b, g, n, d)
    q, k = rotate(q, cos, sin), rotate(k, cos, sin)
    heads = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return part.o_proj(merge_heads(heads))  # (b, n, e)


# %% [markdown]
# Then the block, with two parts that are new. **RMSNorm** [[Zhang and
# Sennrich](../docs/references.md#zhang-2019)] divides the features of a token by their root mean square and
# multiplies them by learned numbers g. Unlike the layer norm, it subtracts no mean and adds no shift.
#
# $$\mathrm{RMSNorm}(x) = \frac{x}{\sqrt{\mathrm{mean}(x^2) + \varepsilon}} \cdot g$$
#
# The feed-forward part has a **gate** [[Shazeer](../docs/references.md#shazeer-2020)]. A second matrix makes a factor
# for each feature, which goes through SiLU, a smooth relative of ReLU. The factor decides how much of its feature
# passes. Together this is called **SwiGLU**.


# %%
def llama_block(layer: decoder.DecoderBlock, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Add to the states what the attention collects, then what the gated features make."""
    x = x + llama_attention(layer.self_attn, layer.input_layernorm(x), cos, sin)
    y = layer.post_attention_layernorm(x)  # (b, n, e)
    gate = F.silu(layer.mlp.gate_proj(y))  # (b, n, ...)
    made = gate * layer.mlp.up_proj(y)     # (b, n, ...)
    return x + layer.mlp.down_proj(made)   # (b, n, e)


@torch.no_grad()
def llama(model: decoder.LanguageModel, tokens: Tensor) -> Tensor:
    """Score every token of the vocabulary as the next one, at each place."""
    x = model.embed_tokens(tokens)  # (b, n, e)
    cos, sin = model.rotary.angles(torch.arange(tokens.size(1)))
    for layer in model.layers:
        x = llama_block(layer, x, cos, sin)             # (b, n, e)
    return model.norm(x) @ model.embed_tokens.weight.T  # (b, n, v)


# %% [markdown]
# Is that all? Give it your question, and compare with the model of the package.

# %% tags=["needs-weights"]
with torch.no_grad():
    torch.testing.assert_close(llama(model, tokens), model(tokens), atol=1e-3, rtol=0)
likeliest = llama(model, tokens)[0, -1].argmax()
print("the same logits; the answer begins with", repr(tokenizer.decode([int(likeliest)])))

# %% [markdown]
# It is all, for a Llama with tied embeddings. The package has **one class** for many models, in the fold below. It also
# has a cache, windows and padding, and settings for what other models do differently. Qwen3, for one, norms the queries
# and keys of each head before they are rotated (**QK-norm**) [[Yang et al. 2025](../docs/references.md#yang-2025)]. A
# normed query has length $\sqrt d$, and so has a key. However large the states become, no score is then larger than
# $\sqrt d$, as long as the learned numbers of the norms are 1.

# %% tags=["proof"]
q, k = F.rms_norm(1000 * torch.randn(2, 50, 64), (64,))  # (50, 64), (50, 64)
assert (q @ k.mT / 8).abs().max() <= 8
print("✓ Normed, no score is larger than √d = 8, whatever the size before.")

# %% [markdown]
# <!-- deeper: The class of the package -->
# ### Going deeper: The class of the package
#
# This is where its parts come from:
#
# | part | chapter |
# |---|---|
# | `split_heads`, `merge_heads`: all heads in one matrix | [3](03_split_and_stack.ipynb), [4](04_reshape_trick.ipynb) |
# | the mask of the future, with padding and windows | [6](06_masks.ipynb), [24](24_windows.ipynb) |
# | `compute_attention`, which calls the fused kernel | [7](07_multihead_attention.ipynb), [23](23_tiles.ipynb) |
# | residual connections, with the norm before each part | [8](08_transformer_layers.ipynb) |
# | embeddings, and the same matrix again for the scores of tokens | [9](09_transformer.ipynb) |
# | `rotate_part`: positions by rotation | [20](20_positions.ipynb) |
# | `cache`: keys and values are kept | [21](21_cache.ipynb) |
# | `repeat_heads`: several query heads share a KV head | [22](22_fewer_keys.ipynb) |
#
# Read them in the order in which a token passes through. The names are those that `transformers` uses,
# because checkpoints are saved under them. (The two norms *after* a part do nothing in a Llama; Gemma 3 has
# them.)

# %%
display.annotated(decoder.DecoderBlock.forward, decoder.GatedFeedForward.forward)

# %% [markdown]
# In the attention, the cache puts the kept keys before the new ones, and `parts` is the mask: it says which keys
# the layer's queries may see. `attend_in_parts` calls `attend`, and `attend` calls `compute_attention` with the
# fused kernel.

# %%
display.annotated(
    decoder.DecoderAttention.forward,
    decoder.DecoderAttention.attend_in_parts,
    decoder.DecoderAttention.attend,
)

# %% [markdown]
# Around the blocks there is little left. `states` calls two functions once for all layers. `rotations` gives each
# layer its cosines and sines, or none. `parts_by_kind` says which keys the queries of a layer see.

# %%
from annotated_attention.modern import generation

display.annotated(
    decoder.LanguageModel.states,
    decoder.LanguageModel.logits,
    decoder.LanguageModel.rotations,
    decoder.rotate_part,
    decoder.parts_by_kind,
)

# %% [markdown]
# `generate` checks its arguments and calls `_continue`, the loop of [The cache](21_cache.ipynb),
# with a cache for each layer. `choose` takes the likeliest token, or draws one.

# %%
display.annotated(generation._continue, generation.choose)

# %% [markdown]
# What the parts are made of, and the call:

# %%
display.annotated(
    decoder.LanguageModel.__init__,
    decoder.DecoderBlock.__init__,
    decoder.DecoderAttention.__init__,
    decoder.GatedFeedForward.__init__,
    decoder.LanguageModel.forward,
)

# %% [markdown]
# <!-- /deeper -->

# %% [markdown] name="one-number-for-a-model"
# ## One number for a model
#
# Before you break the model, you need a number that tells how good it is. Let it read a text that it has never seen,
# and ask at each position how likely it found the token that came next. The mean of the negative logarithms is the loss
# that you know from [Training](12_training.ipynb). Its exponential is the **perplexity**: from how many equally likely
# tokens the model seems to choose. This text was written for this chapter:

# %%
TEXT = """\
The ferry to the island leaves at seven. On most mornings it carries the teacher, two
fishermen, and a box of letters. In winter the sea is rough, and then the ferry stays in the
harbour, so the school stays closed and the letters have to wait. One day in February the
teacher had an idea. She asked the fishermen to take her across in their own boat. They
looked at the sky, they looked at each other, and they shook their heads. The wind was too
strong, they said, and their boat was too small. But the children were waiting, and so she
sat down in the harbour office and wrote a lesson by hand, one page for each child. Then she
put the pages into the box with the letters. When the ferry left at last, three days later,
the lesson went with it. The children read it in an afternoon, and wrote answers on the back
of each page. Since then, the box has carried more than letters. When the sea is rough, the
teacher writes; when it is calm, the children do.
"""
print(len(TEXT.split()), "words")


# %%
@torch.no_grad()
def perplexity(model: decoder.LanguageModel, tokens: Tensor) -> float:
    """Say from how many equally likely tokens a model seems to choose."""
    logits = model(tokens)[0, :-1]  # (n - 1, v)
    return F.cross_entropy(logits, tokens[0, 1:]).exp().item()


# %% tags=["needs-weights"]
text = torch.tensor([tokenizer.encode(" ".join(TEXT.split())).ids])  # (1, n)
as_it_is = perplexity(model, text)
print(f"{text.size(1)} tokens, perplexity {as_it_is:.1f}")

# %% [markdown]
# Out of 49,152 tokens, the model hesitates between about two dozen. A model that knows nothing
# would reach 49,152.
#
# ## The right weights in the wrong order
#
# Suppose that you write `load_gguf` yourself. All names fit, and all shapes. But the file stores the rows of
# W_Q and W_K in another order, for the *interleaved* layout of
# [Positions](20_positions.ipynb#cell-id=two-layouts-one-permutation), in which neighbours form a pair.
# `load_gguf` calls `interleaved_to_half` on both. What do you get without this call: an error, gibberish, or answers
# that look fine?
#
# <details><summary>What do you expect?</summary>
#
# No error, since the shapes are the same. And the text begins well. Queries and keys are reordered alike, so their
# products stay; only the rotation turns the wrong features together.
#
# </details>

# %%
from annotated_attention.modern import half_to_interleaved, interleaved_to_half


def reorder(model: decoder.LanguageModel, change) -> None:
    """Reorder the rows of every W_Q and W_K by ``change``."""
    for layer in model.layers:
        attention = layer.self_attn
        for linear, heads in (
            (attention.q_proj, attention.num_heads),
            (attention.k_proj, attention.num_kv_heads),
        ):
            linear.weight.data = change(linear.weight.data, heads)


# %% tags=["needs-weights", "fold-input"]
ORDERS = {"as stored": half_to_interleaved, "reordered": interleaved_to_half}
BEGINNING = "The capital of France is"
measured = {}
for name, change in ORDERS.items():
    reorder(model, change)
    measured[name] = perplexity(model, text)
    print(f"{name}: perplexity {measured[name]:.1f}")
    tokens = torch.tensor([tokenizer.encode(BEGINNING).ids])  # (1, ...)
    added = tokenizer.decode([int(token) for token in generate(model, tokens, 40)])
    print("    the text goes on:", repr(BEGINNING + added).replace("\\n", "↵"))
    tokens = torch.tensor([tokenizer.encode(prompt).ids])  # (1, ...)
    answer = [int(token) for token in generate(model, tokens, 40, stops=[stop])]
    print("    the chat answers:", repr(tokenizer.decode(answer)))
assert measured["reordered"] == as_it_is
assert measured["as stored"] > 4 * as_it_is  # somewhat more or less on another processor

# %% [markdown]
# With the wrong order, the model knows the capital, and says so twice. Then nothing comes but new lines, and asked as a
# chat model, it ends its answer before the first word. (The right order strays, too, but not in the chat.) Judging by the
# first line, you would keep the wrong weights.
#
# The perplexity is not fooled: the wrong order hesitates between more than five times as many tokens. People really made
# this mistake ([llama2.c 286](https://github.com/karpathy/llama2.c/pull/286)), and reordered with a wrong number of heads
# ([transformers 31766](https://github.com/huggingface/transformers/issues/31766)).
#
# > **Pitfall.** One sentence that reads well proves nothing about weights. When you load some, measure a loss, and compare
# > the logits with an implementation that you trust.

# %% [markdown] name="what-breaks-what"
# ## What breaks what
#
# Now break one part at a time, and measure. The model was trained with a rotary base of 100,000, with SiLU in its
# gates, and with all keys in sight. Which is worse: no attention, or no feed-forward parts? And which costs more:
# that a query sees only the 64 nearest keys, or only 16 that it chooses?
#
# <details><summary>What do you expect?</summary>
#
# No feed-forward parts, by far. And the 64 nearest cost more, since the first key of the text is often not among them.
# You would not notice a cache in 8 bits at all.
#
# </details>

# %% [markdown]
# <!-- deeper: How a part is exchanged -->
# ### Going deeper: How a part is exchanged
#
# A context manager gives an attribute of some modules another value while its block runs. For the attention, a
# function takes the place of `attend`, which gets the queries, keys and values of one layer. One collects nothing.
# One sees a [window](24_windows.ipynb#cell-id=the-key-that-must-stay) of 64 keys, beside which the first keys of
# the text may stay. And one lets each query choose the keys with the best scores, each head its own.

# %%
from annotated_attention.modern import RotaryEmbedding, block_by_position, repeat_heads


def nothing(q: Tensor, *others):
    """Collect nothing in any head."""
    return torch.zeros_like(q), None


def windowed(sinks: int, attend, q: Tensor, k: Tensor, v: Tensor, *others):
    """Attend to the last 64 keys, and to the first ones."""
    blocked = block_by_position(torch.arange(q.size(-2)), k.size(-2), 64, sinks=sinks)
    return attend(q, k, v, blocked, False)


def choosing(count: int, attend, q: Tensor, k: Tensor, v: Tensor, *others):
    """Attend to the ``count`` keys with the best scores, each head to its own."""
    future = block_by_position(torch.arange(q.size(-2)), k.size(-2))
    scores = (q @ repeat_heads(k, q.size(1)).mT).masked_fill(future, -math.inf)
    least = scores.topk(min(count, k.size(-2))).values[..., -1:]
    return attend(q, k, v, future | (scores < least), False)


# %% [markdown]
# Two more give each group of query heads the KV head of the group before it, and round keys and values to some
# [bits](21_cache.ipynb#cell-id=fewer-bits), with one scale for each token and head, after the rotation.

# %% tags=["fold-input"]
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

cache = chapters.load("21_cache")


@contextmanager
def exchanged(parts: Sequence, name: str, values: Sequence) -> Iterator[None]:
    """Give an attribute of each part a value of its own, while the block runs."""
    kept = [getattr(part, name) for part in parts]
    for part, value in zip(parts, values):
        setattr(part, name, value)
    try:
        yield
    finally:
        for part, value in zip(parts, kept):
            setattr(part, name, value)


def shifted(attend, q: Tensor, k: Tensor, v: Tensor, *others):
    """Give each group of query heads the KV head of the group before it."""
    return attend(q, k.roll(1, 1), v.roll(1, 1), *others)


def rounded(bits: int, attend, q: Tensor, k: Tensor, v: Tensor, *others):
    """Attend to keys and values that were kept in fewer bits."""
    k, v = (whole * scale for whole, scale in (cache.quantise(x, bits) for x in (k, v)))
    return attend(q, k, v, *others)


# %% tags=["needs-weights"]
layers = model.layers
attentions, gates = [x.self_attn for x in layers], [x.mlp for x in layers]
identities = [torch.nn.Identity()] * 30


def instead(parts: Sequence, function, *given) -> tuple:
    """Let every attention attend through a function."""
    return parts, "attend", [partial(function, *given, x.attend) for x in parts]


# %% tags=["needs-weights"]
cases = {
    "cache in 8 bits": instead(attentions, rounded, 8),
    "cache in 4 bits": instead(attentions, rounded, 4),
    "16 keys, chosen": instead(attentions, choosing, 16),
    "window of 64": instead(attentions, windowed, 0),
    "window of 64 and the first key": instead(attentions, windowed, 1),
    "rotary base 10,000": ([model], "rotary", [RotaryEmbedding(64, base=10_000)]),
    "GELU in the gates": (gates, "activation", [F.gelu] * 30),
    "no rotation": ([model], "rotary", [None]),
    "no attention": (attentions, "attend", [nothing] * 30),
    "groups shifted": instead(attentions, shifted),
    "no feed-forward": (gates, "activation", [torch.zeros_like] * 30),
    "no norm before attention": (layers, "input_layernorm", identities),
}

# %% [markdown]
# <!-- /deeper -->

# %% tags=["needs-weights", "fold-input"]
worse = {}
for name, case in cases.items():
    with exchanged(*case):
        worse[name] = perplexity(model, text)
assert perplexity(model, text) == as_it_is
assert as_it_is < worse["rotary base 10,000"] < worse["GELU in the gates"]
assert max(worse["no attention"], worse["groups shifted"]) < worse["no feed-forward"]
assert worse["cache in 8 bits"] < 1.01 * as_it_is < worse["window of 64 and the first key"]
assert worse["window of 64 and the first key"] < 0.8 * worse["window of 64"]
assert worse["16 keys, chosen"] < 0.8 * worse["window of 64"]

# %% tags=["needs-weights", "fold-input"]
NOTHING = 49_152  # the perplexity of a model that knows nothing
bars = {"as it is": as_it_is, "W_Q and W_K as stored": measured["as stored"], **worse}
told = {name: "NaN" if math.isnan(x) else f"{x:,.0f}" for name, x in bars.items()}
# As the labels have it: what they cannot tell apart keeps its order on every processor.
quiet = sorted((x for x in bars if bars[x] < 1000), key=lambda x: round(bars[x]))[::-1]
drawing, (ax,) = display.panels(345, 38 * len(quiet) + 40)
for row, name in enumerate(quiet):
    letter = "b" if name == "as it is" else "n"
    ax.barh(row, bars[name], color=display.COLOURS[letter], height=0.4)
    ax.text(1, row + 0.27, f"{name}: {told[name]}", va="bottom", fontsize=12)
ax.axvline(as_it_is, color=display.COLOURS["b"], linestyle="--", linewidth=1)
ax.set(xlim=(0, 155), ylim=(-0.5, len(quiet) - 0.1), xlabel="perplexity", yticks=[])
said = "; ".join(f"{name} {told[name]}" for name in reversed(quiet))
alt = f"Bars of the perplexity of a model with one part changed, from the best: {said}."
display.finish(drawing, name="what-breaks-what", alt=alt)

# %% [markdown]
# The mistakes among these are dangerous, because they fail quietly. A rotary base of 10,000 is the default of many
# programs, and the wrong activation is one word in a file of settings.
#
# A window of 64 keys lifts the perplexity to 42. Add a single key, the very first of the text, and it is 28: most of the
# damage was the missing sink. Sixteen *chosen* keys do about as well as 64 neighbours and a sink. That is the promise of
# sparse attention. (Here each head chooses by its true scores. DeepSeek's
# [indexer](24_windows.ipynb#cell-id=sparse-attention) makes one choice for all heads of a layer, from cheaper scores.)
#
# Four other mistakes are loud. A model that knows nothing has a perplexity of 49,152:

# %% tags=["needs-weights", "fold-input"]
loud = {name: [told[name]] for name in bars if name not in quiet}
display.show(loud, columns=["perplexity"])

# %% [markdown]
# Without feed-forward parts, the model is worse than one that knows nothing: it is sure, and wrong. Without the
# norm before the attention, it gives no number at all. All this is one model and one text of 216 tokens; with another text,
# neighbouring bars may change places.

# %% [markdown]
# <!-- deeper: Which number is too large -->
# ### Going deeper: Which number is too large
#
# Are the states without a norm too large for a float? Look at the first layer with a score that is infinite.


# %% tags=["needs-weights"]
def noting(sizes: list, attend, q: Tensor, k: Tensor, *others):
    """Attend, and note the largest query, key and score."""
    scores = q @ k.repeat_interleave(q.size(1) // k.size(1), 1).mT  # (b, h, n, m)
    sizes.append([x.abs().max().item() for x in (q, k, scores)])
    return attend(q, k, *others)


largest = []
with (
    exchanged(*cases["no norm before attention"]),
    exchanged(*instead(attentions, noting, largest)),
):
    perplexity(model, text)
q, k, score = next(each for each in largest if math.isinf(each[-1]))
limit = torch.finfo(torch.float32).max
assert max(q, k) < 1e-10 * limit
print(f"query {q:.0e}, key {k:.0e}, score {score}; float32 ends at {limit:.0e}")

# %% [markdown]
# Queries and keys have grown a lot, but they would fit. A score adds up *products* of two such numbers: the
# **scores** overflow, and the softmax makes NaN of them.
#
# <!-- /deeper -->

# %% [markdown] name="heads-that-continue-what-came-before"
# ## Heads that continue what came before
#
# An **induction head** finds an earlier copy of the current token, looks at what followed there, and predicts
# it again. Does a model that was trained on ordinary text have such heads? Let it read 40 random tokens, and then the same
# 40 again [[Olsson et al.](../docs/references.md#olsson-2022)]. The score of a head is the weight that a token of the
# second half gives, on average, to the token that followed its copy. As a control, the second half is drawn anew.

# %%
HALF = 40  # tokens


def draw(seed: int, again: bool = True) -> Tensor:
    """Draw four rows of random tokens; the second half repeats the first, or does not."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(1000, 20_000, (4, 2 * HALF), generator=generator)  # (b, n)
    if again:
        tokens[:, HALF:] = tokens[:, :HALF]
    return tokens


@torch.no_grad()
def follows_copy(model: decoder.LanguageModel, tokens: Tensor) -> Tensor:
    """Score each head by its weight on the token after the earlier copy."""
    with pretrained.attention_weights(model) as layers:
        model.states(tokens)
    weights = torch.stack(layers, 1)                          # (b, l, h, n, n)
    after_copy = weights.diagonal(1 - HALF, -2, -1)[..., 1:]  # (b, l, h, ...)
    return after_copy.mean((0, -1))                           # (l, h)


# %% tags=["needs-weights"]
induction, control = follows_copy(model, draw(1)), follows_copy(model, draw(2, again=False))
others = follows_copy(model, draw(3))
print("layer  head    score  control  other tokens")
for place in induction.flatten().argsort(descending=True)[:6].tolist():
    at = divmod(place, 9)
    row = f"{induction[at]:8.2f} {control[at]:8.2f} {others[at]:13.2f}"
    print(f"{at[0] + 1:5} {at[1] + 1:5} {row}")
print(f"the largest control of all heads: {control.max():.2f}")
assert control.max() < 0.1 < 0.5 < induction.flatten().topk(5).values.min()

# %% [markdown]
# The best head gives nine tenths of its weight to a single token, out of forty to eighty. With other tokens it does so
# again, and the control is near 0 for all 270 heads. In which layers are the heads that score high?

# %% tags=["needs-weights", "fold-input"]
drawing, (ax,) = display.panels(345, 165)
squares = {"marker": "s", "markersize": 7.5, "linewidth": 0, "markeredgewidth": 0}
squares["color"] = display.COLOURS["h"]
quiet = (induction <= 0.05).nonzero() + 1
ax.plot(quiet[:, 0], quiet[:, 1], alpha=0.05, **squares)
for layer, head in (induction > 0.05).nonzero().tolist():
    ax.plot(layer + 1, head + 1, alpha=induction[layer, head].item(), **squares)
ax.set(xlim=(0.4, 30.6), ylim=(9.6, 0.4), xlabel="layer", ylabel="head")
ax.set_xticks([1, 5, 10, 15, 20, 25, 30])
ax.set_yticks([1, 3, 5, 7, 9])
ax.tick_params(length=0)
found = (induction > 0.3).nonzero() + 1
alt = "270 squares, 30 layers by 9 heads, the stronger the higher the score. "
first, last = found[:, 0].aminmax()
alt += f"{len(found)} heads score above 0.3, in layers {first} to {last}."
display.finish(drawing, name="induction-heads", alt=alt)

# %% [markdown]
# All of them stand in the second half of the model. An induction head needs others before it that
# tell each token which one it followed [[Elhage et al.](../docs/references.md#elhage-2021)].
#
# Does the model need its induction heads? Silence those with a score above 0.3<!-- setting -->, and measure the loss of
# each token, for new random tokens. As a control, silence as many other heads, drawn at random, three times.


# %% tags=["fold-input"]
def mute(attend, silent: Tensor, *inputs):
    """Let the heads for which ``silent`` is True collect nothing."""
    heads, weights = attend(*inputs)
    return heads.masked_fill(silent[:, None, None], 0), weights


@torch.no_grad()
def losses(model: decoder.LanguageModel, tokens: Tensor, silent: Tensor) -> Tensor:
    """Give the mean loss at each position, while some heads are silent."""
    modules = [layer.self_attn for layer in model.layers]
    muted = [partial(mute, x.attend, row) for x, row in zip(modules, silent)]
    with exchanged(modules, "attend", muted):
        logits = model(tokens)[:, :-1]  # (b, ..., v)
    return F.cross_entropy(logits.mT, tokens[:, 1:], reduction="none").mean(0)


def as_many_others(chosen: Tensor, seed: int) -> Tensor:
    """Draw as many of the heads that were not chosen."""
    order = torch.rand(chosen.shape, generator=torch.Generator().manual_seed(seed))
    order[chosen] = 1
    return order < order.flatten().sort().values[chosen.sum()]


# %% tags=["needs-weights"]
chosen, tokens = induction > 0.3, draw(5)
silent = {
    "no head silent": [chosen & False],
    "induction heads silent": [chosen],
    "others silent": [as_many_others(chosen, seed) for seed in range(3)],
}
curves = {name: [losses(model, tokens, x) for x in some] for name, some in silent.items()}
print(f"loss, {int(chosen.sum())} heads silent     first time    again")
for name, some in curves.items():
    for curve in some:
        print(f"{name:24} {curve[: HALF - 1].mean():12.1f} {curve[HALF:].mean():8.1f}")
print(f"a model that knows nothing {math.log(NOTHING):10.1f} {math.log(NOTHING):8.1f}")
second = {name: [float(x[HALF:].mean()) for x in some] for name, some in curves.items()}
assert second["induction heads silent"][0] > 1.5 * max(second["others silent"])

# %% tags=["needs-weights", "fold-input"]
drawing, (ax,) = display.panels(345, 240)
letters = {"no head silent": "n", "others silent": "b", "induction heads silent": "h"}
for (name, letter), line in zip(letters.items(), ("-", ":", "--")):
    curve = torch.stack(curves[name]).mean(0)
    style = {"color": display.COLOURS[letter], "linestyle": line, "label": name}
    ax.plot(range(2, 2 * HALF + 1), curve, **style)
ax.axvline(HALF + 0.5, color=display.COLOURS["b"], linewidth=1)
ax.text(HALF + 2, 16.5, "the tokens repeat", fontsize=12)
ax.set(xlim=(1, 2 * HALF), ylim=(0, 18), xlabel="token", ylabel="loss")
ax.legend(loc="lower left", fontsize=12, frameon=False)
alt = "The loss of each token. It falls steeply where the tokens repeat, also with other "
alt += "heads silent, and stays high with the induction heads silent."
display.finish(drawing, name="loss-of-repeated-tokens", alt=alt)

# %% [markdown]
# In the first half there is nothing to copy, and silencing the ten heads changes nothing. (The loss of 13.5 is above that
# of a model that knows nothing, ln 49,152 = 10.8: this one expects language.) In the second half the loss falls steeply,
# and without the ten it falls little. Ten others cost far less.
#
# Does ordinary text need these heads, too? Take the story of the ferry once more, and part its tokens in
# two: those that followed the same token before, and all others.

# %% tags=["needs-weights"]
import itertools

ids = text[0].tolist()
pairs = list(itertools.pairwise(ids))
again = torch.tensor([pair in pairs[:i] for i, pair in enumerate(pairs)])
whole, table = losses(model, text, chosen & False), {}
for name, some in list(silent.items())[1:]:
    more = torch.stack([losses(model, text, x) for x in some]).mean(0) - whole
    table[name] = [more[again].mean(), more[~again].mean()]
assert table["induction heads silent"][0] > 2 * table["others silent"][0]
columns = [f"{again.sum()} tokens: the pair again", f"{(~again).sum()} other tokens"]
display.show(table, columns=columns, title="How much the loss grows")

# %% tags=["needs-weights", "fold-input"]
more, table = losses(model, text, chosen) - whole, {}
for place in more.topk(6).indices.tolist():
    before, word = ids[max(0, place - 4) : place + 1], ids[place + 1 : place + 2]
    table[f"… {tokenizer.decode(before).strip()}"] = [tokenizer.decode(word), more[place]]
display.show(table, columns=["next", "grows by"], corner="behind", decimals=1)

# %% [markdown]
# It does. Where a pair comes a second time, the loss grows by about half a nat without these heads, and elsewhere, on
# average, by next to nothing. The second table has the tokens that lose most. *Teacher*, *rough* and *letters* were in
# the story before. *School*, the largest, was not: these heads do other things, too. (A perplexity of the whole text would
# hide all this: ten other heads raise it even more.)

# %% [markdown]
# <!-- deeper: What its cache takes -->
# ### Going deeper: What its cache takes
#
# The memory of its cache is given by the formula of [Fewer
# keys](22_fewer_keys.ipynb#cell-id=the-bill): keys and values, of three heads of width 64, in 30 layers.
# For comparison, the second line gives each query head a KV head of its own.

# %%
from annotated_attention.counting import cache_bytes, short

print("            a token     8,192")
for heads in (3, 9):
    sizes = (cache_bytes(m, heads * 64, layers=30) for m in (1, 8192))
    print(f"{heads} KV heads", *(f"{short(size, 'B'):>9}" for size in sizes))

# %% [markdown]
# In half precision, a token takes 23.0 kB. The longest text that the model was trained for, 8,192
# tokens, takes 189 MB: about twice as much as the file of the model.
#
# <!-- /deeper -->

# %% [markdown]
# ## Families
#
# With other settings, the same class is another model
# [[Touvron et al.](../docs/references.md#touvron-2023-b); [Llama Team](../docs/references.md#llama-2024); [Jiang et
# al.](../docs/references.md#jiang-2023); [Yang et al. 2024](../docs/references.md#yang-2024); [Yang et al.
# 2025](../docs/references.md#yang-2025)]:
#
# - **Llama 2** at 7 billion parameters gives each query head a KV head of its own.
# - **Llama 3** shares each among four, and has a rotary base of 500,000<!-- setting -->.
# - **Mistral** 7B, in its first version, adds a window of 4,096<!-- setting --> keys.
# - **Qwen2** adds biases to queries, keys and values.
# - **Qwen3** takes them away and norms queries and keys; the width of its heads is a setting of its own.
# - **SmolLM2** is a Llama, and small.
#
# Qwen3 0.6B has a thirteenth of the parameters of Llama 3 8B. How much less does it keep of each token? On PyTorch's
# device `meta`, a model has shapes and no numbers, so that you can count without the memory:

# %% tags=["fold-input"]
from annotated_attention.counting import cache_bytes, short
from annotated_attention.modern import LanguageModel, Settings

FAMILIES = {  # vocabulary, e, layers, h, g, d, hidden width; and what is not the default
    "Llama 2 7B": ((32000, 4096, 32, 32, 32, 128, 11008), {}),
    "Llama 3 8B": ((128256, 4096, 32, 32, 8, 128, 14336), {"rotary_base": 5e5}),
    "Mistral 7B": ((32000, 4096, 32, 32, 8, 128, 14336), {"window": 4096}),
    "Qwen2 0.5B": (
        (151936, 896, 24, 14, 2, 64, 4864),
        {"qkv_bias": True, "rotary_base": 1e6},
    ),
    "Qwen3 0.6B": (
        (151936, 1024, 28, 16, 8, 128, 3072),
        {"qk_norm": True, "rotary_base": 1e6},
    ),
    "SmolLM2 135M": ((49152, 576, 30, 9, 3, 64, 1536), {"rotary_base": 1e5}),
}

# %% tags=["fold-input"]
NAMES = [
    "vocab_size",
    "embed_dim",
    "num_layers",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "hidden_dim",
]
rows = {}
for name, (sizes, others) in FAMILIES.items():
    tied = name.startswith(("Qwen", "Smol"))
    settings = Settings(**dict(zip(NAMES, sizes)), tie_embeddings=tied, **others)
    with torch.device("meta"):
        count = sum(x.numel() for x in LanguageModel(settings).parameters())
    kept = short(cache_bytes(1, math.prod(sizes[4:6]), layers=sizes[2]), "B")
    rows[name] = [f"{count / 1e9:.2f} B", kept]
display.show(rows, columns=["parameters", "cache, a token"])

# %% [markdown]
# It keeps nearly as much. Its 8 KV heads are as wide as Llama's, and it has almost as many layers. What a model costs
# while it writes is not written on its label.

# %% [markdown] name="a-second-model"
# ## A second model, with windows
#
# Gemma 3 has what SmolLM2 lacks: windows, a second rotary base and QK-norm. It is the same class again. Here is a small
# one, with random weights: five layers with a window and the base 10,000, then one that sees all keys, with the base
# 1,000,000. It reads 40 tokens. The windows have [rolling caches](24_windows.ipynb).

# %%
from annotated_attention.modern import KVCache, WindowCache

GEMMA = {
    "layer_types": (*["sliding_attention"] * 5, "full_attention"),
    "window": 8,
    "local_base": 1e4,
    "rotary_base": 1e6,
    "qk_norm": True,
    "norms": "both",
    "scale_embeddings": True,
    "tie_embeddings": True,
    "activation": "gelu_tanh",
}

# %%
SIZES = dict(zip(NAMES, (50, 24, 6, 4, 2, 8, 40)))
torch.manual_seed(0)
second = LanguageModel(Settings(**SIZES, **GEMMA)).double()
forty = torch.randint(50, (1, 40))  # (1, 40)
caches = [WindowCache(w) if w else KVCache() for w in second.settings.windows]
with torch.no_grad():
    expected = second(forty, caches)
print("tokens kept:", *(cache.keys.size(-2) for cache in caches))

# %% tags=["proof"]
caches = [WindowCache(w) if w else KVCache() for w in second.settings.windows]
with torch.no_grad():
    parts = [second(part, caches) for part in forty.split((20, 15, 1, 4), 1)]
    torch.testing.assert_close(torch.cat(parts, 1), expected)
    torch.testing.assert_close(second(forty), expected)
print("✓ At once, in chunks with these caches, or without any: the same logits.")

# %% [markdown]
# The windows keep seven tokens each, the last layer all 40. Now let one setting be wrong, with the same weights. Which
# tokens get wrong logits?

# %% tags=["fold-input"]
wrong = {
    "window of 9": {"window": 9},
    "bases exchanged": {"local_base": 1e6, "rotary_base": 1e4},
    "no QK-norm": {"qk_norm": False},
    "last layer first": {"layer_types": GEMMA["layer_types"][::-1]},
}
rows = {}
for name, change in wrong.items():
    other = LanguageModel(Settings(**SIZES, **{**GEMMA, **change})).double()
    other.load_state_dict(second.state_dict(), strict=change != {"qk_norm": False})
    with torch.no_grad():
        apart = (other(forty) - expected)[0].abs().amax(-1)  # (40,)
    rows[name] = [(apart < 1e-9).sum(), apart[1], apart.max()]
columns = ["tokens that are right", "the second off by", "any off by up to"]
display.show(rows, columns=columns)

# %% [markdown]
# The first token is right in all four: it sees only itself, and a softmax over one key gives 1, whatever the score. The
# second tests the rotation, but little: with the bases exchanged its logits are off by only 0.13, later by up to 2.38. A
# window that is one too wide stays right for eight tokens. So compare logits on a text that is longer than the window.

# %% [markdown]
# <!-- deeper: The same numbers as Gemma 3 -->
# ### Going deeper: The same numbers as Gemma 3
#
# `transformers` makes such a model, with random weights also in its norms, and saves it;
# `load_language_model` reads the folder. Gemma stores the weights of its norms less one.

# %% tags=["fold-input"]
import tempfile

if LlamaConfig:
    import transformers

    transformers.utils.logging.disable_progress_bar()
    config = transformers.Gemma3TextConfig(
        vocab_size=50,
        hidden_size=24,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        intermediate_size=40,
        sliding_window=8,
        query_pre_attn_scalar=8,
        max_position_embeddings=64,
    )
    theirs = transformers.Gemma3ForCausalLM(config).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        read = pretrained.load_language_model(folder)
    assert all(getattr(read.settings, name) == x for name, x in GEMMA.items())
    with torch.no_grad():
        torch.testing.assert_close(read(forty), theirs(forty).logits, atol=1e-4, rtol=0)
print("equal up to rounding" if LlamaConfig else "not installed: left out")

# %% [markdown]
# <!-- /deeper -->

# %% [markdown]
# <!-- deeper: When one machine is not enough -->
# ### Going deeper: When one machine is not enough
#
# A large model does not fit on one device. Heads do not need each other, so they can be shared out:
# each process gets some heads, with their rows of W_Q, W_K and W_V and their columns of W_O, and
# likewise some features of each feed-forward part [[Shoeybi et
# al.](../docs/references.md#shoeybi-2019)]. What leaves W_O in each process is one summand of the
# whole, and an *all-reduce* sums them up. PyTorch has this built in:

# %%
from annotated_book import sharded

display.annotated(sharded.shard)

# %% [markdown]
# `torchrun` starts the same program in two processes on this machine. Each builds the same small
# model, with 4 heads on 2 and with biases, keeps its half of it, and compares what comes out with the
# whole.

# %%
import json
import subprocess
import sys

torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
command = [*torchrun, "--nproc-per-node", "2", "-m", sharded.__name__]
run = subprocess.run(command, capture_output=True, text=True, check=True)
found = json.loads(run.stdout)
print("half of the down projection:", tuple(found["shape here"]))
assert max(found["logits apart"], found["gradients apart"]) < 1e-12
print(f"logits and gradients of {sharded.SMALL.num_layers} layers are equal")
print("exchanged:", found["exchanges"])

# %% [markdown]
# Two exchanges a layer are all that travels, one behind the attention and one behind the
# feed-forward part. Each carries b · n · e numbers. That is why processes that share heads need
# fast connections.
#
# The mistake here concerns the bias of W_O. In the sum over the processes it must be counted once.
# If each process adds it to its summand, it arrives as often as there are processes:

# %%
display.annotated(sharded.with_bias_in_each)

# %%
error, bias = found["bias in each, apart"], found["largest bias"]
print(f"off by {error:.3f}; the largest number in the bias is {bias:.3f}")
assert abs(error - bias) < 1e-12

# %% [markdown]
# With zeros as its biases, as many models start training, the mistake is invisible ([vLLM
# 39707](https://github.com/vllm-project/vllm/issues/39707)). How far can you go? Each process needs
# whole KV heads, so their number sets the limit:

# %%
for name, (sizes, _) in FAMILIES.items():
    g = sizes[4]
    fits = ", ".join(str(n) for n in range(1, g + 1) if g % n == 0)
    print(f"{name:13} {fits} processes")

# %% [markdown]
# SmolLM2's heads, nine and three, do not go into two. Where only the KV heads are too few, programs that
# serve models copy them to more processes, and pay with memory what sharing had saved.
#
# <!-- /deeper -->

# %% [markdown] name="what-this-class-lacks"
# ## What this class lacks
#
# What do well-known open models have besides? Each heading leads to its chapter. *3 in 4* counts layers; a state
# fades by one gate *per head* or one *per feature*.
#
# | | [window](24_windows.ipynb#cell-id=three-keys-each) | [sink](24_windows.ipynb#cell-id=the-key-that-must-stay) | [output gate](24_windows.ipynb#cell-id=the-key-that-must-stay) | [state](25_linear_attention.ipynb#cell-id=the-delta-rule) | [indexer](24_windows.ipynb#cell-id=sparse-attention) | [MLA](22_fewer_keys.ipynb#cell-id=a-summary-instead-of-a-catalogue) | experts |
# |---|---|---|---|---|---|---|---|
# | Gemma 3, 2025 | 1,024, 5 in 6 | – | – | – | – | – | – |
# | gpt-oss, 2025 | 128, 1 in 2 | yes | – | – | – | – | 4 of 128 |
# | Qwen3-Next, 2025 | – | – | yes | 3 in 4, per head | – | – | 10 of 512 |
# | Kimi Linear, 2025 | – | – | state only | 3 in 4, per feature | – | yes | 8 of 256 |
# | DeepSeek-V3.2, 2025 | – | – | – | – | 2,048 | yes | 8 of 256 |
# | GLM-5, 2026 | – | – | – | – | 2,048 | yes | 8 of 256 |
# | Qwen3.5 35B, 2026 | – | – | yes | 3 in 4, per head | – | – | 8 of 256 |
# | DeepSeek-V4 Flash, 2026 | 128, in all | yes | – | – | 512 | [one wide head](22_fewer_keys.ipynb#cell-id=one-wide-head) | 6 of 256 |
# | **this class** | **yes** | – | – | – | – | – | – |
#
# Two things have no chapter in this book. **Experts** are many feed-forward parts, of which each token is sent to a few
# (and mostly to one more that serves all tokens). And layers with a state first mix each token with the three before it,
# by a short convolution. (The book's tests compare the rows with the configurations in `transformers`. The rows of Gemma 3
# and gpt-oss are their largest models.)

# %% [markdown] name="the-first-question"
# ## The first question, once more
#
# This book began with two sentences, and two heads made by hand that tell them apart. Then a
# [storyteller](10_a_little_world.ipynb) of 53,520<!-- quoted --> parameters learned to do so. Now ask a model that has two
# and a half thousand times as many, and was trained on two trillion tokens [[Allal et
# al.](../docs/references.md#allal-2025)]: *The cat drank milk because it was sweet. What was sweet?* Let its answer
# begin with *The*, and compare the words *cat* and *milk* as the next one. How sure will it be of *milk*?


# %%
@torch.no_grad()
def share_of_cat(
    model: decoder.LanguageModel, tokenizer, story: str, question: str
) -> float:
    """Of the chances of *cat* and *milk* after *The*, give the cat's share."""
    asked = pretrained.chat_prompt(f"{story} {question}") + "The"
    logits = model(torch.tensor([tokenizer.encode(asked).ids]))[0, -1]  # (v,)
    both = [tokenizer.encode(word).ids[0] for word in (" cat", " milk")]
    return logits[both].softmax(-1)[0].item()


# %% tags=["needs-weights"]
says_cat = partial(share_of_cat, model, tokenizer)


# %% tags=["needs-weights"]
STORIES = {
    "it was thirsty": ("The cat drank milk because it was thirsty.", "thirsty"),
    "it was sweet": ("The cat drank milk because it was sweet.", "sweet"),
    "the milk was sweet": ("The cat drank milk because the milk was sweet.", "sweet"),
    "the milk, no cat": ("The milk was sweet.", "sweet"),
}
rows = {}
for name, (story, quality) in STORIES.items():
    rows[name] = [says_cat(story, f"What was {quality}?")]
display.show(rows, columns=["the cat"], corner="… because", decimals=3)

# %% [markdown]
# It is as sure of the cat as with *thirsty*. It stays with the cat even if you say outright *because the milk was sweet*.
# Yet it can say *milk*: told of milk alone, it says nothing else. But where somebody acts, this model names who acted, and
# one word at the end does not change its mind. Perhaps I asked in the wrong way?

# %% tags=["needs-weights", "proof"]
for story, quality in list(STORIES.values())[:3]:
    for named in ("the cat or the milk", "the milk or the cat"):
        assert says_cat(story, f"What was {quality}, {named}?") > 0.7
print("✓ With both named in the question, in either order, it is the cat again, each time.")

# %% [markdown]
# The model that writes good English about France fails where one of 53,520<!-- quoted --> parameters answers both
# questions. The mechanism is the same. But the storyteller's texts hold little else than this question: to predict their
# next word, one has to answer it. In ordinary text that pays now and then, and a model this small has probably spent its
# numbers on something else. Heads look for what lowers the loss. (This is one small model: a larger one may well be right.
# How to ask it is said [at the end](#cell-id=what-you-can-do-now).)

# %% [markdown]
# ## Exercises
#
# ### Read a configuration
#
# *Easy, 2 minutes.* This is part of the `config.json` of Qwen3-4B:
#
#     {"hidden_size": 2560, "num_hidden_layers": 36, "num_attention_heads": 32,
#      "num_key_value_heads": 8, "head_dim": 128, "torch_dtype": "bfloat16"}
#
# How many numbers does W_Q make of each token? How many query heads share a KV head? How many bytes
# does a token take in the cache? Write products if you like: `2 * 36`.

# %% tags=["exercise"]
my_numbers = [
    None,  # numbers that W_Q makes
    None,  # query heads for each KV head
    None,  # bytes of a token
]

# %%
from annotated_book import exercises

exercises.a_model_of_today.check_config(my_numbers)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# W_Q makes the queries of all heads. Is their number times their width 2,560?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# A token keeps a key and a value, in each layer, for each KV head. A number in bfloat16 takes two
# bytes.
#
# </details>

# %% tags=["solution"]
my_numbers = [
    32 * 128,  # numbers that W_Q makes
    32 // 8,  # query heads for each KV head
    2 * 36 * 8 * 128 * 2,  # bytes of a token
]

exercises.a_model_of_today.check_config.folded(my_numbers)

# %% [markdown]
# ### Why do their logits differ?
#
# Four small models have the weights of a fifth, and one mistake each. All read ten tokens in chunks
# of three, with a cache; the window holds five tokens. The table marks the positions at which a
# model's logits differ from those of the fifth.

# %% tags=["fold-input"]
torch.manual_seed(7)
small = LanguageModel(
    Settings(
        vocab_size=50,
        embed_dim=24,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        hidden_dim=40,
        window=5,
    )
).double()
ten, heads = torch.randint(50, (1, 10)), [layer.self_attn for layer in small.layers]
rotations = small.rotations


def in_chunks(model: LanguageModel, tokens: Tensor) -> Tensor:
    """Read tokens three at a time; the logits are (n, v)."""
    caches = [KVCache() for _ in model.layers]
    return torch.cat([model(part, caches)[0] for part in tokens.split(3, 1)])


# %% tags=["fold-input"]
mistakes = {
    "A": (heads, "attend", [partial(shifted, x.attend) for x in heads]),
    "B": ([small], "rotations", [lambda at, *given: rotations(at % 3, *given)]),
    "C": ([small], "rotary", [RotaryEmbedding(8, base=100)]),
    "D": (heads, "window", [4, 4]),
}
expected = in_chunks(small, ten)
print("position ", *range(10))
for name, mistake in mistakes.items():
    with exchanged(*mistake):
        apart = (in_chunks(small, ten) - expected).abs().amax(1) > 1e-9
    print(f"{name:9}", *("x" if x else "·" for x in apart))

# %% [markdown]
# *Medium, 3 minutes.* Which model has which mistake? Write the number of the cause.
#
# 1. The **rotation** has another base.
# 2. The **window** holds one token too few.
# 3. The **groups** are in the wrong order: query heads read the KV head of another group.
# 4. With the **cache**, the positions of each chunk start at 0 again.

# %% tags=["exercise"]
my_reasons = [
    None,  # A
    None,  # B
    None,  # C
    None,  # D
]

# %%
exercises.a_model_of_today.check_reasons(my_reasons)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# For each cause, ask what the first token notices of it, which sees only itself. What is its weight
# on itself, whatever its score?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# When does a window of four hide the first token that one of five does not? And at which position
# does the second chunk begin?
#
# </details>

# %% tags=["solution"]
my_reasons = [
    3,  # A: even the first token gets wrong values
    4,  # B: right until the second chunk begins
    1,  # C: a rotation leaves the first position as it is
    2,  # D: the fifth token is the first that loses one
]

exercises.a_model_of_today.check_reasons.folded(my_reasons)

# %% [markdown]
# ### Mislead the induction heads
#
# *Medium, 3 minutes.* An induction head predicts that a token will be followed by what followed it
# before. Write twelve tokens, each of 0, 1, 2 and 3 three times, for which that is **never** right:
# wherever a token comes again, something new follows.

# %% tags=["exercise"]
my_tokens = [None, None, None, None, None, None, None, None, None, None, None, None]

# %%
exercises.a_model_of_today.check_tokens(my_tokens)

# %% [markdown]
# <details><summary>Hint 1</summary>
#
# Look at pairs of neighbours. May the same pair come twice?
#
# </details>
#
# <details><summary>Hint 2</summary>
#
# Begin with 0, 1, 2, 3. Then go back to 0, and choose a second token that has not followed it yet.
# A token may also follow itself.
#
# </details>

# %% tags=["solution"]
my_tokens = [0, 1, 2, 3, 0, 2, 1, 3, 1, 0, 3, 2]

exercises.a_model_of_today.check_tokens.folded(my_tokens)

# %% [markdown] name="what-you-can-do-now"
# ## What you have now, and can do with it
#
# On the first page, somebody else's heads told a cat from its milk. Now you can make such heads, train them, load
# them, take them apart, and say when not to believe them. Four things to do next:
#
# - **Ask a larger model.** `pretrained.load_language_model(folder)` reads what `transformers` saves of a Llama, Mistral,
#   Qwen2, Qwen3, OLMo 2, SmolLM3 or Gemma 3. `python -m annotated_attention.chat folder` talks with it. Ask it what was sweet.
# - **Look into it.** [Fool a head](#cell-id=heads-that-continue-what-came-before), [silence
#   it](11_questions_to_heads.ipynb#cell-id=take-it-away), and tell a bright line from a reason.
# - **Examine your own attention**: `python -m attention_doctor file.py:ClassName --kind causal --embed-dim 24 --num-heads 4`.
#   What it says is explained in [Symptoms](../docs/symptoms.md).
# - **Write the class** [from memory](19_from_memory.ipynb), and have it tested.
#
# > **In short.** A block of today: $x \leftarrow x + \mathrm{attention}(\mathrm{norm}(x))$, then
# > $x \leftarrow x + W_{\text{down}}\,(\mathrm{SiLU}(W_{\text{gate}}\,y) \odot W_{\text{up}}\,y)$
# > with $y = \mathrm{norm}(x)$;
# > $\mathrm{norm}(x) = g \odot x / \sqrt{\mathrm{mean}(x^2) + \varepsilon}$. The attention is
# > causal, grouped, and rotates queries and keys.
# >
# > States `(b, n, e)`, queries `(b, h, n, d)`, keys and values `(b, g, m, d)`, logits `(b, n, v)`;
# > h · d need not be e.
# >
# > ```python
# > model, tokenizer = pretrained.load_gguf(path)
# > for token in generate(model, tokens, 60, stops=[stop]):
# >     print(tokenizer.decode([int(token)]), end="")
# > ```
# >
# > A sentence that reads well proves nothing about weights: compare logits, and measure a perplexity.
#
# This is the last chapter. The [cheat sheet](cheat_sheet.ipynb) has multi-head attention on one page
# and attention today on another, and the [package](../docs/package/index.md) has the classes to use. *It* was thirsty,
# and now you know how one would find out.
