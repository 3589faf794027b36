# %% [markdown]
# # A model of today
#
# *Was the cat sweet, or the milk?*
#
# *22 minutes and 8 of exercises. Afterwards you can run a chat model, notice wrong weights, and name what gpt-oss,
# Qwen3.5, Kimi Linear and DeepSeek have besides.*
#
# This book began with two sentences. In *The cat drank milk because it was thirsty*, the word *it* is the cat. End the
# sentence with *sweet*, and *it* is the milk. Two heads made by hand tell the two apart, and so does a
# [storyteller](10_a_little_world.ipynb) of 53,520<!-- quoted --> parameters. Now you ask a chat model that has two and a
# half thousand times as many. Then you read its code, which is built of RoPE, GQA, RMSNorm and SwiGLU, and take out one
# part after another: what does the model still say?

# %% [markdown] name="a-file-of-numbers"
# ## A file of numbers
#
# SmolLM2-135M-Instruct is small for a chat model. It is made like a Llama, and was trained on two trillion tokens [[Allal
# et al.](../docs/references.md#allal-2025)]. Its weights are one file of 98 megabytes in the format **GGUF**: settings,
# tokeniser and tensors, one after the other. `load_gguf` turns the tensors back into floats, a few rows at a time.

# %%
import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from annotated_attention import pretrained
from annotated_book import chapters, display

print(pretrained.CHAT_MODEL.files[0])

# %% tags=["needs-weights"]
path = pretrained.find_weights(model=pretrained.CHAT_MODEL)
model, tokenizer = pretrained.load_gguf(path)

# %% tags=["needs-weights", "fold-input"]
names = ["num_layers", "embed_dim", "num_heads", "num_kv_heads", "head_dim", "hidden_dim"]
names += ["vocab_size", "rotary_base"]
rows = {name: [f"{getattr(model.settings, name):,.0f}"] for name in names}
parameters = sum(x.numel() for x in model.parameters())
size = sum(file.stat().st_size for file in path.glob("*.gguf"))
rows["parameters"] = [f"{parameters:,}"]
rows["bits of each in the file"] = [f"{8 * size / parameters:.1f}"]
display.show(rows, columns=["SmolLM2-135M-Instruct"])

# %% [markdown]
# There are 30 blocks. The states are 576 wide, and nine query heads of width 64 share three KV heads, three each. The
# embedding is *tied*: the same matrix scores the tokens at the end.
#
# Why 5.8 bits, if the name of the file says Q4? The matrices in the blocks are **quantised**. A weight is a whole number
# of steps from 0 to 15: these are the 4 bits. Each 32 weights also share a smallest value and the size of a step, in 16
# bits each, which is 1 bit more for each weight. The embedding is stored with 8 bits a weight and a scale, and the file
# holds the tokeniser, too. All this divided by the number of parameters is 5.8.

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

# %% [markdown] name="the-first-question"
# ## The first question, once more
#
# A language model continues a text. What makes it a **chat model** is training on texts that are written like
# conversations, in which special tokens say who speaks. So you write down what was said, open the assistant's turn, and
# let the model continue.

# %%
QUESTION = "The cat drank milk because it was thirsty. What was thirsty?"
prompt = pretrained.chat_prompt(QUESTION)
print(prompt, end="")

# %% [markdown]
# The model continues after the last line. `generate` takes the likeliest token each time, as in [A
# cache](21_cache.ipynb), and stops at `<|im_end|>`.

# %%
from annotated_attention.modern import generate

# %% tags=["needs-weights"]
tokens = torch.tensor([tokenizer.encode(prompt).ids])  # (1, n)
stop = tokenizer.token_to_id("<|im_end|>")
for token in generate(model, tokens, 60, stops=[stop]):
    print(tokenizer.decode([int(token)]), end="")  # nothing for the token that stops

# %% [markdown]
# The right answer, in a good sentence. You would believe that it has understood. Now change one word, *thirsty*, to
# *sweet*, in the story and in the question. What will the model say was sweet?
#
# <details><summary>What do you expect?</summary>
#
# The milk, if it has understood. Or the cat, if it has only learned that cats are what one talks about. It says neither.
#
# </details>


# %%
def answer(model, tokenizer, question: str, most: int = 40) -> str:
    """Let a model answer a question, in so many tokens at most."""
    asked = torch.tensor([tokenizer.encode(pretrained.chat_prompt(question)).ids])  # (1, n)
    made = generate(model, asked, most, stops=[tokenizer.token_to_id("<|im_end|>")])
    return tokenizer.decode([int(token) for token in made])


# %% tags=["needs-weights"]
print(answer(model, tokenizer, QUESTION.replace("thirsty", "sweet")))

# %% [markdown]
# It repeats the story, and then lectures. (In the notebook, you can ask `answer` a question of your own.) So let it choose
# between two whole answers, *The cat was sweet.* and *The milk was sweet.* Add up the two probabilities: how large is the cat's
# share of the sum? And how large would it be if the story ended before *because*?


# %%
@torch.no_grad()
def share_of_cat(model, tokenizer, story: str, question: str, quality: str) -> float:
    """Of the chances of two whole answers, give the share of the one with the cat."""
    asked, found = tokenizer.encode(pretrained.chat_prompt(f"{story} {question}")).ids, []
    for noun in ("cat", "milk"):
        said = torch.tensor(tokenizer.encode(f"The {noun} was {quality}.").ids)  # (m,)
        logits = model(torch.cat([torch.tensor(asked), said])[None])[0]          # (n, v)
        chances = logits[len(asked) - 1 : -1].log_softmax(-1)                    # (m, v)
        found.append(chances.gather(-1, said[:, None]).sum())
    return torch.stack(found).softmax(-1)[0].item()


# %% tags=["needs-weights", "fold-input"]
REASONS = {
    "The cat drank milk": "",
    "… because it was": "it",
    "… because the milk was": "the milk",
}
rows = {
    f"What was {quality}?": [
        share_of_cat(
            *(model, tokenizer),
            f"The cat drank milk because {what} was {quality}."
            if what
            else "The cat drank milk.",
            *(f"What was {quality}?", quality),
        )
        for what in REASONS.values()
    ]
    for quality in ("thirsty", "sweet", "fresh")
}
thirsty, sweet, fresh = rows.values()
assert min(thirsty[:2]) > 0.95
assert thirsty[2] > 0.5 > 0.3 > fresh[1]
assert abs(sweet[0] - sweet[1]) < 0.2
assert max(sweet[2], fresh[2]) < 0.1
columns = [each + (" …" if what else ".") for each, what in REASONS.items()]
display.show(rows, columns=columns, corner="the cat's share")

# %% [markdown]
# Look at the first column. Where the story gives no reason, the cat already has 1.00 of *thirsty* and 0.82 of *sweet*. With *because it
# was*, it has 1.00 and 0.77. So the good answer about thirst says nothing about the word *it*: the model would have given it without.
# Ask, and it does:

# %% tags=["needs-weights"]
print(answer(model, tokenizer, "The cat drank milk. What was thirsty?"))

# %% [markdown]
# Told outright that *the milk was sweet*, the model gets it right, and the cat has 0.04. Told outright that the milk was
# thirsty, it still says the cat, with 0.76. Only about *fresh*, which hardly anybody says of a cat, is it the milk in
# every column.
#
# A storyteller of 53,520<!-- quoted --> parameters answers both questions, and this model does not. The mechanism is the
# same, but the storyteller's texts hold little else than this question. Whether this model is too small for it, or its
# weights too coarse, with 4 bits each, I have not measured. ([At the end](#cell-id=what-you-can-do-now) you can ask a
# larger one.)
#
# What, then, makes this model speak? Its logits are those that `transformers` computes with the same weights, as the fold
# shows. The rest of this chapter looks for what they come from.

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
# feed-forward part makes of it. (In a **mixture of experts**, only the feed-forward part is another: there are many, and
# each token is sent to a few.)

# %% [markdown]
# Here is a whole Llama, in five functions that take their matrices from the model you loaded. Two parts come first. The
# [rotation](20_positions.ipynb) turns pairs of features by angles that grow with the position. **RMSNorm** [[Zhang and
# Sennrich](../docs/references.md#zhang-2019)] divides the features of a token by their root mean square and multiplies
# them by learned numbers g:
#
# $$\mathrm{RMSNorm}(x) = \frac{x}{\sqrt{\mathrm{mean}(x^2) + \varepsilon}} \cdot g$$
#
# Unlike the [layer norm](08_transformer_layers.ipynb), it subtracts no mean and adds no shift. Its authors measured that
# the rescaling does the work, and that without the mean it is cheaper.

# %%
from annotated_attention import merge_heads, split_heads
from annotated_attention.modern import decoder


def rms_norm(x: Tensor, g: Tensor, epsilon: float) -> Tensor:
    """Bring the features of each token to size 1, then multiply them by learned numbers."""
    return x / (x.square().mean(-1, keepdim=True) + epsilon).sqrt() * g  # (b, n, e)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn feature i and feature i + d / 2 together, by an angle of their own."""
    a, b = x.chunk(2, -1)  # (b, h, n, r), (b, h, n, r)
    turned = a * cos - b * sin, b * cos + a * sin
    return torch.cat(turned, -1)  # (b, h, n, d)


# %% [markdown]
# Then the attention. Queries, keys and values are made and split into heads. Queries and keys are rotated, and three
# query heads share a KV head.


# %%
def llama_attention(part: decoder.DecoderAttention, x: Tensor, cos: Tensor, sin: Tensor):
    """Attend from each token to itself and to those before it."""
    q = split_heads(part.q_proj(x), part.num_heads)     # (b, h, n, d)
    k = split_heads(part.k_proj(x), part.num_kv_heads)  # (b, g, n, d)
    v = split_heads(part.v_proj(x), part.num_kv_heads)  # (b, g, n, d)
    q, k = rotate(q, cos, sin), rotate(k, cos, sin)
    heads = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    return part.o_proj(merge_heads(heads))  # (b, n, e)


# %% [markdown]
# Last the block, and the loop over blocks. The feed-forward part has a **gate**
# [[Shazeer](../docs/references.md#shazeer-2020)]. A second matrix makes a factor for each hidden feature, which goes through
# SiLU, a smooth relative of ReLU. The factor decides how much of its feature passes. Together this is called **SwiGLU**.
# Three matrices in place of two would cost half as much again, so the hidden width is not four times the 576 but 8/3 times:
# 1,536<!-- quoted -->. Why does a gate help? The paper offers no explanation, and attributes its success "to divine benevolence".


# %%
def llama_block(layer: decoder.DecoderBlock, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Add to the states what the attention collects, then what the gated features make."""
    first, second = layer.input_layernorm, layer.post_attention_layernorm
    y = rms_norm(x, first.weight, first.eps)               # (b, n, e)
    x = x + llama_attention(layer.self_attn, y, cos, sin)  # (b, n, e)
    y = rms_norm(x, second.weight, second.eps)             # (b, n, e)
    gate = F.silu(layer.mlp.gate_proj(y))                  # (b, n, ...)
    made = gate * layer.mlp.up_proj(y)                     # (b, n, ...)
    return x + layer.mlp.down_proj(made)                   # (b, n, e)


@torch.no_grad()
def llama(model: decoder.LanguageModel, tokens: Tensor) -> Tensor:
    """Score every token of the vocabulary as the next one, at each place."""
    x = model.embed_tokens(tokens)  # (b, n, e)
    cos, sin = model.rotary.angles(torch.arange(tokens.size(1)))
    for layer in model.layers:
        x = llama_block(layer, x, cos, sin)  # (b, n, e)
    x = rms_norm(x, model.norm.weight, model.norm.eps)
    return x @ model.embed_tokens.weight.T  # (b, n, v)


# %% [markdown]
# Is that all? Give it your question, and compare with the model of the package.

# %% tags=["needs-weights"]
with torch.no_grad():
    torch.testing.assert_close(llama(model, tokens), model(tokens), atol=1e-3, rtol=0)
likeliest = llama(model, tokens)[0, -1].argmax()
print("the same logits; the answer begins with", repr(tokenizer.decode([int(likeliest)])))

# %% [markdown]
# It is all, for a Llama with tied embeddings. The package has **one class** for many models, in the fold below: it also
# has a cache, windows and padding, and settings for what other models do differently.

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
# With other settings, the class is another model:
#
# | model | what differs in the attention, besides sizes and rotary bases |
# |---|---|
# | Llama 2, 7 billion [[Touvron et al.](../docs/references.md#touvron-2023-b)] | a KV head for each query head |
# | Llama 3 [[Llama Team](../docs/references.md#llama-2024)] | nothing (the base is 500,000<!-- setting -->) |
# | Mistral 7B, first version [[Jiang et al.](../docs/references.md#jiang-2023)] | a window of 4,096<!-- setting --> keys |
# | Qwen2 [[Yang et al. 2024](../docs/references.md#yang-2024)] | biases on queries, keys and values |
# | Qwen3 [[Yang et al. 2025](../docs/references.md#yang-2025)] | QK-norm; a width of heads of its own |
# | Gemma 3 | windows, QK-norm (and norms after each part, GELU in the gates, scaled embeddings) |
#
# Read its lines in the order in which a token passes through. The names are those that `transformers` uses,
# because checkpoints are saved under them.

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
# and ask at each token how likely it found the one that came next. The mean of the negative logarithms is the loss
# that you know from [Training](12_training.ipynb). Its exponential is the **perplexity**: from how many equally likely
# tokens the model seems to choose. The text, a story of a ferry, was written for this chapter.

# %% tags=["fold-input"]
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
# Out of 49,152 tokens, the model hesitates between about two dozen. A model that knows nothing would reach 49,152.

# %% [markdown] name="what-breaks-what"
# ## What breaks what
#
# Now change one part at a time. Measure the perplexity, and ask again what was *thirsty*. Will the answer tell you that
# something is wrong? You can take out the attention, the feed-forward parts, the norms or the rotation. You can keep the
# keys and values in 8 or 4 bits. And you can let a query see only its 32 nearest keys, or only 16 that it chooses.
#
# Besides, there are mistakes that people make. The rotary base is 100,000 here, but 10,000 is the default of many
# programs. A program may give each group of query heads the KV head of another group. The gates have SiLU, but GELU is one word away in a file of settings. And GGUF stores the rows of W_Q and W_K
# in the order of the [interleaved layout](20_positions.ipynb#cell-id=two-layouts-one-permutation). A loader that forgets
# to reorder them gets no error, since the shapes are the same.
#
# <details><summary>What do you expect?</summary>
#
# Some changes leave the answer as it is, word for word, although the perplexity is three times as large. And no
# attention at all is better than no feed-forward parts, or no norm.
#
# </details>

# %% [markdown]
# <!-- deeper: How a part is exchanged -->
# ### Going deeper: How a part is exchanged
#
# A context manager gives an attribute of some modules another value while its block runs. For the attention, a
# function takes the place of `attend`, which gets the queries, keys and values of one layer. One collects nothing.
# One sees a [window](24_windows.ipynb#cell-id=the-key-that-must-stay) of 32 keys, beside which the first keys of
# the text may stay. And one lets each query choose the keys with the best scores, each head its own.

# %%
from annotated_attention.modern import RotaryEmbedding, block_by_position, repeat_heads


def nothing(q: Tensor, *others):
    """Collect nothing in any head."""
    return torch.zeros_like(q), None


def windowed(sinks: int, attend, q: Tensor, k: Tensor, v: Tensor, *others):
    """Attend to the last 32 keys, and to the first ones."""
    n, m = q.size(-2), k.size(-2)
    blocked = block_by_position(torch.arange(m - n, m), m, 32, sinks=sinks)
    return attend(q, k, v, blocked, False)


def choosing(count: int, attend, q: Tensor, k: Tensor, v: Tensor, *others):
    """Attend to the ``count`` keys with the best scores, each head to its own."""
    n, m = q.size(-2), k.size(-2)
    future = block_by_position(torch.arange(m - n, m), m)
    scores = (q @ repeat_heads(k, q.size(1)).mT).masked_fill(future, -math.inf)
    least = scores.topk(min(count, m)).values[..., -1:]
    return attend(q, k, v, future | (scores < least), False)


# %% [markdown]
# Two more give each group of query heads the KV head of the group before it, and round keys and values to some
# [bits](21_cache.ipynb#cell-id=fewer-bits), with one scale for each token and head, after the rotation.

# %% tags=["fold-input"]
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

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


# %% [markdown]
# And the rows of W_Q and W_K go back into the order in which the file stores them.

# %%
from annotated_attention.modern import half_to_interleaved


def as_stored(attention: decoder.DecoderAttention) -> list[Tensor]:
    """Give W_Q and W_K with their rows in the order of the file."""
    kinds = {
        attention.q_proj: attention.num_heads,
        attention.k_proj: attention.num_kv_heads,
    }
    return [half_to_interleaved(x.weight.data, heads) for x, heads in kinds.items()]


# %% tags=["needs-weights"]
layers = model.layers
attentions, gates = [x.self_attn for x in layers], [x.mlp for x in layers]
identities = [torch.nn.Identity()] * 30


def instead(parts: Sequence, function, *given) -> tuple:
    """Let every attention attend through a function."""
    return parts, "attend", [partial(function, *given, x.attend) for x in parts]


# %% tags=["needs-weights"]
projections = [y for x in attentions for y in (x.q_proj, x.k_proj)]
stored = [torch.nn.Parameter(y) for x in attentions for y in as_stored(x)]
cases = {
    "cache in 8 bits": instead(attentions, rounded, 8),
    "cache in 4 bits": instead(attentions, rounded, 4),
    "16 keys, chosen": instead(attentions, choosing, 16),
    "window of 32": instead(attentions, windowed, 0),
    "window of 32 and the first key": instead(attentions, windowed, 1),
    "rotary base 10,000": ([model], "rotary", [RotaryEmbedding(64, base=10_000)]),
    "GELU in the gates": (gates, "activation", [F.gelu] * 30),
    "W_Q and W_K as stored": (projections, "weight", stored),
    "no rotation": ([model], "rotary", [None]),
    "no attention": (attentions, "attend", [nothing] * 30),
    "groups shifted": instead(attentions, shifted),
    "no feed-forward": (gates, "activation", [torch.zeros_like] * 30),
    "no norm before attention": (layers, "input_layernorm", identities),
}

# %% [markdown]
# <!-- /deeper -->

# %% tags=["needs-weights", "fold-input"]
worse, said = {"as it is": as_it_is}, {"as it is": answer(model, tokenizer, QUESTION, 9)}
for name, case in cases.items():
    with exchanged(*case):
        worse[name], said[name] = (
            perplexity(model, text),
            answer(model, tokenizer, QUESTION, 9),
        )
assert perplexity(model, text) == as_it_is
assert as_it_is < worse["rotary base 10,000"] < worse["GELU in the gates"]
assert max(worse["no attention"], worse["groups shifted"]) < worse["no feed-forward"]
assert worse["no feed-forward"] > 1e6
assert worse["cache in 8 bits"] < 1.01 * as_it_is < worse["window of 32 and the first key"]
assert worse["window of 32 and the first key"] < 0.8 * worse["window of 32"]
assert worse["16 keys, chosen"] < 0.8 * worse["window of 32"]
assert worse["W_Q and W_K as stored"] > 4 * as_it_is  # somewhat more or less elsewhere

# %% tags=["needs-weights", "fold-input"]
NOTHING = 49_152  # the perplexity of a model that knows nothing
told = {name: "NaN" if math.isnan(x) else f"{x:,.0f}" for name, x in worse.items()}
told["no feed-forward"] = "more than a million"
# As the labels have it: what they cannot tell apart keeps its order on every processor.
best = sorted(worse, key=lambda x: math.inf if math.isnan(worse[x]) else round(worse[x]))
drawing, (ax,) = display.panels(345, 50 * len(best) + 40)
for row, name in enumerate(reversed(best)):
    letter = "b" if name == "as it is" else "n"
    if not math.isnan(worse[name]):
        ax.barh(row, worse[name] - 10, left=10, color=display.COLOURS[letter], height=0.16)
    words = said[name].replace("\n", "↵").strip()
    said[name] = words if len(words) < 42 else words[:40] + "…"
    ax.text(10.5, row + 0.09, f"{name}: {told[name]}", va="bottom", fontsize=12)
    ax.text(10.5, row - 0.11, f"“{said[name]}”", va="top", fontsize=12, style="italic")
ax.axvline(NOTHING, color=display.COLOURS["b"], linestyle="--", linewidth=1)
ax.set(xscale="log", xlim=(10, 1e5), ylim=(-0.7, len(best) - 0.3), yticks=[])
ax.set_xticks([10, 1000, 100_000], ["10", "1,000", "100,000"])
ax.set_xticks([], minor=True)
ax.set_xlabel("perplexity; dashed: a model that knows nothing")
alt = "The perplexity of a model with one part changed, and its answer, from the best: "
alt += "; ".join(f"{name} {told[name]}, “{said[name]}”" for name in best)
same = [name for name in best if said[name] == said["as it is"]]
print(f"{len(same) - 1} of {len(cases)} changes leave the answer as it is")
display.finish(drawing, name="what-breaks-what", alt=alt + ".")

# %% [markdown]
# (The first nine tokens of each answer are shown; “” is a model that stops at once.) Look at GELU. The answer is the same,
# word for word, and the perplexity is 69, three times as large: the one of the four mistakes that hurts this text and that
# no answer shows. Shifted groups, and W_Q and W_K in the order of the file, you hear at once. And the wrong rotary base
# costs next to nothing, 27 in place of 23. Is it harmless? Let both bases read a longer text, from Python's own
# documentation, and take the perplexity of each 512 tokens:

# %% tags=["needs-weights", "fold-input"]
from pydoc_data.topics import topics


@torch.no_grad()
def along(model: decoder.LanguageModel, tokens: Tensor, step: int) -> list[float]:
    """Give the perplexity of each stretch of a text, behind all that comes before."""
    logits, following = model(tokens)[0, :-1], tokens[0, 1:]  # (n - 1, v), (n - 1,)
    pairs = zip(logits.split(step), following.split(step))
    return [F.cross_entropy(*pair).exp().item() for pair in pairs]


long = tokenizer.encode(" ".join(topics["specialnames"].split())).ids[:3072]
stretches = {"rotary base 100,000": along(model, torch.tensor([long]), 512)}
with exchanged(*cases["rotary base 10,000"]):
    stretches["rotary base 10,000"] = along(model, torch.tensor([long]), 512)
right, wrong = stretches.values()
assert all(bad < 1.5 * good for good, bad in zip(right[:4], wrong))
assert wrong[5] > 10 * right[5]
columns = [f"to {512 * (i + 1):,}" for i in range(6)]
display.show(stretches, columns=columns, corner="tokens", decimals=0)

# %% [markdown]
# Up to 2,048 tokens you would hardly notice. Then the model falls apart. (The slowest pair of features
# turns nine times as fast as in training; what such [angles](20_positions.ipynb#cell-id=turning-more-slowly) do is a chapter of its own.) So not even the loss is a proof, if the text is short.
#
# Now the window of 32. It lifts the perplexity to 73. Add a single key, the very first of the text, and it is 34. Many
# heads put on this key the weight that they need nowhere else: it is their
# [sink](24_windows.ipynb#cell-id=the-key-that-must-stay), and most of the damage was that it was missing. Sixteen *chosen*
# keys do better still. That is the promise of sparse attention. (Here each head chooses by its true scores. DeepSeek's
# [indexer](24_windows.ipynb#cell-id=sparse-attention) makes one choice for all heads of a layer, from cheaper scores.)
#
# Without feed-forward parts, the model is far worse than one that knows nothing: it is sure, and wrong. Without the norm
# before the attention, numbers grow until float32 no longer holds them.

# %% [markdown]
# All this is one model, and one text. On the first 216 tokens of Python's text, the numbers are others, and the first key counts for far more:

# %% tags=["needs-weights", "fold-input"]
again = {"as it is": perplexity(model, torch.tensor([long[:216]]))}
for name in ("window of 32", "window of 32 and the first key"):
    with exchanged(*cases[name]):
        again[name] = perplexity(model, torch.tensor([long[:216]]))
assert again["window of 32 and the first key"] < 0.1 * again["window of 32"]
both = {name: [worse[name], found] for name, found in again.items()}
display.show(both, columns=["the ferry", "Python's text"], corner="perplexity", decimals=0)

# %% [markdown]
# > **Pitfall.** One answer that reads well proves nothing about weights. When you load some, measure a loss, on texts as long as
# > those that you will use, and compare the logits with an implementation that you trust.

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
assert max(q, k) < 1e-10 * torch.finfo(torch.float32).max
print("✓ The largest query and key are far from where float32 ends; a score is infinite.")

# %% [markdown]
# Queries and keys have grown a lot, but they would fit. A score adds up *products* of two such numbers: the
# **scores** overflow, and the softmax makes NaN of them.
#
# <!-- /deeper -->

# %% [markdown] name="heads-that-continue-what-came-before"
# ## Heads that continue what came before
#
# In the story, *The* was followed by *cat*. So perhaps the model says *The cat* because it has heads that copy. An
# **induction head** finds an earlier copy of the current token, looks at what followed there, and predicts it again. (It
# needs heads before it that tell each token which one it followed [[Elhage et
# al.](../docs/references.md#elhage-2021)].) Does this model have any? Let it read 40 random tokens, and then the same 40
# again [[Olsson et al.](../docs/references.md#olsson-2022)]. The score of a head is the weight that a token of the second
# half gives, on average, to the token that followed its copy. As a control, the second half is drawn anew.

# %% tags=["fold-input"]
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


# %% tags=["needs-weights", "fold-input"]
induction, control = follows_copy(model, draw(1)), follows_copy(model, draw(2, again=False))
rows = {}
for place in induction.flatten().argsort(descending=True)[:4].tolist():
    at = divmod(place, 9)
    rows[f"layer {at[0] + 1}, head {at[1] + 1}"] = [induction[at], control[at]]
rows["the largest of all 270"] = [induction.max(), control.max()]
chosen = induction > 0.3
assert control.max() < 0.1 < 0.5 < induction.flatten().topk(5).values.min()
print(f"{chosen.sum()} heads score above 0.3")
display.show(rows, columns=["repeated", "drawn anew"], corner="score")

# %% [markdown]
# The best head gives nine tenths of its weight to a single token, out of forty to eighty, and the control is near 0 for
# all heads. Now silence the ten that score above 0.3, and measure the loss of each token, for new random tokens. As a
# control, silence ten other heads, drawn at random, three times.


# %% tags=["fold-input"]
def mute(attend, silent: Tensor, *inputs):
    """Let the heads for which ``silent`` is True collect nothing."""
    heads, weights = attend(*inputs)
    return heads.masked_fill(silent[:, None, None], 0), weights


def silenced(model: decoder.LanguageModel, silent: Tensor):
    """Let some heads of a model be silent, until this is closed."""
    modules = [layer.self_attn for layer in model.layers]
    muted = [partial(mute, x.attend, row) for x, row in zip(modules, silent)]
    return exchanged(modules, "attend", muted)


@torch.no_grad()
def losses(model: decoder.LanguageModel, tokens: Tensor, silent: Tensor) -> Tensor:
    """Give the mean loss at each position, while some heads are silent."""
    with silenced(model, silent):
        logits = model(tokens)[:, :-1]  # (b, ..., v)
    return F.cross_entropy(logits.mT, tokens[:, 1:], reduction="none").mean(0)


def as_many_others(chosen: Tensor, seed: int) -> Tensor:
    """Draw as many of the heads that were not chosen."""
    order = torch.rand(chosen.shape, generator=torch.Generator().manual_seed(seed))
    order[chosen] = 1
    return order < order.flatten().sort().values[chosen.sum()]


# %% tags=["needs-weights"]
tokens = draw(5)
silent = {
    "no head silent": [chosen & False],
    "induction heads silent": [chosen],
    "others silent": [as_many_others(chosen, seed) for seed in range(3)],
}
curves = {name: [losses(model, tokens, x) for x in some] for name, some in silent.items()}
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
ax.set(xlim=(1, 2 * HALF), ylim=(-1.5, 18), xlabel="token", ylabel="loss")
for name, where in {"no head silent": -1, "induction heads silent": 13.8}.items():
    ax.text(2 * HALF - 1, where, name, ha="right", fontsize=12)
ax.text(2 * HALF - 1, 5.4, "ten others silent", ha="right", fontsize=12)
alt = "The loss of each token. It falls steeply where the tokens repeat, also with other "
alt += "heads silent, and stays high with the induction heads silent."
display.finish(drawing, name="loss-of-repeated-tokens", alt=alt)

# %% [markdown]
# In the first half there is nothing to copy, and silencing the ten changes nothing. (Random tokens are no text: on them the model does worse than one that knows nothing.) In the second half the loss falls
# steeply, and without the ten it falls little. Ten others cost far less. So these heads copy, and the model needs them
# for it. And *The cat*? Ask once more, with the ten silent:

# %% tags=["needs-weights"]
with silenced(model, chosen):
    print(answer(model, tokenizer, QUESTION))

# %% [markdown]
# Still the cat. But *cat* is a word that the model knows, and expects beside milk. Can it even repeat an animal that it has never read of?
# Ask about six animals, of which four are invented, with all heads, with the ten silent, and with the three draws of ten others:

# %% tags=["needs-weights", "fold-input"]
ANIMALS = ("cat", "otter", "wug", "dax", "blick", "zorb")


def says(model, tokenizer, animal: str, silent: Tensor) -> tuple[str, bool]:
    """Ask what an animal drank for, with some heads silent; say whether it is named."""
    with silenced(model, silent):
        words = answer(model, tokenizer, QUESTION.replace("cat", animal), 12)
    return words.split(".")[0].replace("\n", " "), animal in words.lower()


rows = {}
for animal in ANIMALS:
    heard = [says(model, tokenizer, animal, x) for x in silent["others silent"]]
    found = [says(model, tokenizer, animal, x)[0] for x in (chosen & False, chosen)]
    rows[animal] = [*found, f"{sum(named for _, named in heard)} of 3"]
columns = ["all heads", "the ten silent", "others: named"]
assert all(animal in rows[animal][0] for animal in ANIMALS)
assert not any(animal in rows[animal][1] for animal in ANIMALS[2:])
assert sum(int(rows[animal][2][0]) for animal in ANIMALS[2:]) > 6
display.show(rows, columns=columns, corner="animal")

# %% [markdown]
# Now you hear it. Without the ten, the model makes a wizard of the wug and a zipper of the zorb: of a word that it has never
# read, it keeps the first letter and finds one that it knows. Ten others cost it far less. To say *cat*, it needs no copy.
# What makes the model say *cat*, with a reason or without, I have not found out. But you know now what an answer is worth. *The
# cat was thirsty* read like understanding, and it survived GELU in the gates. It took a story without *it*, and a second
# number, to see what was wrong.

# %% [markdown] name="what-this-class-lacks"
# ## What models have made of this block
#
# Eight well-known open models have come since. Which part of a Llama does each of their blocks still have?
#
# <details name="still"><summary>The rotation of queries and keys</summary>
#
# Kimi Linear rotates nothing, and layers with a state have no rotation, either.
#
# </details>
# <details name="still"><summary>Attention to all keys before</summary>
#
# In DeepSeek-V3.2, GLM-5 and DeepSeek-V4, no layer has it.
#
# </details>
# <details name="still"><summary>A norm before each of its two parts</summary>
#
# Right. All else has been exchanged somewhere, the plain sum included: V4 keeps four streams, and mixes them.
#
# </details>

# %% [markdown]
# Press a model. Its strip has a piece for each layer: press one, or move the slider. Of the parts that are drawn, those that Llama lacks are orange:

# %% tags=["fold-input"]
DELTA = "short convolution; keys of length 1; a state, one gate a head; output gate"
GATED = "GQA, 8 to 1; QK-norm; RoPE on 1/4; all keys; output gate"
WIDE = "one wide KV head; QK-norm; RoPE on 1/8; the last 128 keys; "
ENDS = "learned sink; 4 streams, mixed"
OF_256 = "8 of 256 experts; 1 for all tokens"
MODELS = {
    "Llama 3.1 8B, 2024": display.Model(
        "a" * 32, {"a": "GQA, 4 to 1; RoPE; all keys"}, "feed-forward"
    ),
    "Gemma 3 27B, 2025": display.Model(
        ("wwwwwa" * 11)[:62],
        {
            "w": "GQA, 2 to 1; QK-norm; RoPE, base 10,000; the last 1,024 keys; norm again",
            "a": "GQA, 2 to 1; QK-norm; RoPE, base 1,000,000; all keys; norm again",
        },
        "feed-forward; norm again",
    ),
    "gpt-oss 120B, 2025": display.Model(
        "wa" * 18,
        {
            "w": "GQA, 8 to 1; RoPE; the last 128 keys; learned sink",
            "a": "GQA, 8 to 1; RoPE; all keys; learned sink",
        },
        "4 of 128 experts",
    ),
    "Qwen3-Next 80B, 2025": display.Model(
        "sssa" * 12, {"s": DELTA, "a": GATED}, "10 of 512 experts; 1 for all tokens"
    ),
}

# %% tags=["fold-input"]
MLA, CHOSEN = "a latent for all heads (MLA); ", "; 2,048 chosen keys"
MODELS |= {
    "Kimi Linear 48B, 2025": display.Model(
        "sssa" * 6 + "ssa",
        {"s": DELTA.replace("a head", "a feature"), "a": MLA + "no rotation; all keys"},
        OF_256,
        plain=1,
    ),
    "DeepSeek-V3.2, 2025": display.Model(
        "c" * 61, {"c": MLA + "RoPE on 1/3" + CHOSEN}, OF_256, plain=3
    ),
    "GLM-5, 2026": display.Model(
        "c" * 78, {"c": MLA + "RoPE on 1/4" + CHOSEN}, OF_256, plain=3
    ),
    "Qwen3.5 35B, 2026": display.Model("sssa" * 10, {"s": DELTA, "a": GATED}, OF_256),
    "DeepSeek-V4 Flash, 2026": display.Model(
        "ww" + "c" + "xc" * 20,
        {
            "w": WIDE + ENDS,
            "c": WIDE + "512 chosen entries of 4 keys each; " + ENDS,
            "x": WIDE + "all entries of 128 keys each; " + ENDS,
        },
        "6 of 256 experts; 1 for all tokens; 4 streams, mixed",
    ),
}
# %% tags=["hide-input"]
display.blocks(MODELS, name="blocks-of-today")

# %% [markdown]
# (Not drawn are biases, the activation in the feed-forward part, and how a rotation is stretched for longer texts, as by YaRN.) Most parts have their chapters: the [window](24_windows.ipynb#cell-id=three-keys-each), the
# [learned sink and the output gate](24_windows.ipynb#cell-id=the-key-that-must-stay), [chosen
# keys](24_windows.ipynb#cell-id=sparse-attention), the [state](25_linear_attention.ipynb#cell-id=the-delta-rule), the [latent](22_fewer_keys.ipynb#cell-id=a-summary-instead-of-a-catalogue)
# and the [one wide head](22_fewer_keys.ipynb#cell-id=one-wide-head). (A *learned sink* is a number in the softmax of each head; the sink that you kept above was a key of the text.)
# Three have none: in a mixture of **experts**, each token is sent to a few of many feed-forward parts, and in most of these
# models to one more that serves all tokens;
# a **short convolution** mixes each token with the three before it; **streams** are several states
# for each token. The package's class has windows, QK-norm and two rotary bases, and loads none of the other parts. (The book's tests
# compare all this with the configurations and the code in `transformers`.)
#
# And **QK-norm**, which three of these families have [[Yang et al. 2025](../docs/references.md#yang-2025)], norms the queries and keys of each head
# before they are rotated. A normed query has length $\sqrt d$, and so has a key. However large the states become, no score
# is then larger than $\sqrt d$, as long as the learned numbers of the norms are 1.

# %% tags=["proof"]
q, k = F.rms_norm(1000 * torch.randn(2, 50, 64), (64,))  # (50, 64), (50, 64)
assert (q @ k.mT / 8).abs().max() <= 8
print("✓ Normed, no score is larger than √d = 8, whatever the size before.")

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
from annotated_attention.modern import KVCache, LanguageModel, Settings

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
expected, rows = in_chunks(small, ten), {}
for name, mistake in mistakes.items():
    with exchanged(*mistake):
        apart = (in_chunks(small, ten) - expected).abs().amax(1) > 1e-9
    rows[name] = ["x" if x else "·" for x in apart]
display.show(rows, columns=[str(place) for place in range(10)], corner="position")

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
# > To check loaded weights, compare logits, and measure a perplexity.
#
# This is the last chapter. The [cheat sheet](cheat_sheet.ipynb) has multi-head attention on one page
# and attention today on another, and the [package](../docs/package/index.md) has the classes to use. *It* was thirsty,
# and now you know how one would find out.
