"""The caches keep what those of ``transformers`` keep, and attention makes the same of it."""

import pytest
import torch

from annotated_attention.modern import CachedAttention, KVCache, RotaryEmbedding, StaticCache

B, N, H, D = 2, 12, 4, 6
E, LONGEST = H * D, 15
LEFT = torch.arange(N) < torch.tensor([[0], [5]])  # the second sentence is padded on the left


@pytest.fixture(scope="module")
def llama():
    """Give a Llama with one layer, and our attention with the parameters of its own."""
    from transformers import LlamaConfig, LlamaModel

    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=9, hidden_size=E, num_hidden_layers=1, num_attention_heads=H,
        num_key_value_heads=H, intermediate_size=10, max_position_embeddings=LONGEST,
    )  # fmt: skip
    model = LlamaModel(config).double().eval()
    theirs = model.layers[0].self_attn
    rotary = RotaryEmbedding(D)
    ours = CachedAttention(E, H, bias=False, batch_first=True, rotary=rotary, dtype=torch.float64)
    parts = (theirs.q_proj, theirs.k_proj, theirs.v_proj)
    with torch.no_grad():
        ours.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        ours.out_proj.weight.copy_(theirs.o_proj.weight)
    return model, ours


def caches(kind, model):
    """Give a cache of theirs and one of ours."""
    import transformers

    if kind == "dynamic":
        return transformers.DynamicCache(config=model.config), KVCache()
    fixed = transformers.StaticCache(config=model.config, max_cache_len=LONGEST)
    return fixed, StaticCache(B, H, LONGEST, D, dtype=torch.float64)


def run(model, x, cache, **options):
    """Run their model; give what its attention was given, and what it made of that."""
    seen = {}

    def note(module, args, kwargs, output):
        seen["given"], seen["made"] = kwargs["hidden_states"], output[0]

    hook = model.layers[0].self_attn.register_forward_hook(note, with_kwargs=True)
    model(inputs_embeds=x, past_key_values=cache, **options)
    hook.remove()
    return seen["given"], seen["made"]


@pytest.mark.parametrize("kind", ["dynamic", "static"])
@torch.no_grad()
def test_the_same_attention_and_the_same_cache(llama, kind):
    model, attention = llama
    theirs, ours = caches(kind, model)
    x, kept = torch.randn(B, N, E, dtype=torch.float64), 0
    for part in x.split([5, 4, 1, 2], 1):
        start, kept = kept, kept + part.size(1)
        given, expected = run(model, part, theirs, attention_mask=(~LEFT[:, :kept]).long())
        padding = torch.zeros(B, LONGEST if kind == "static" else kept, dtype=torch.bool)
        padding[:, :kept] = LEFT[:, :kept]
        found = attention(given, ours, padding)[0]
        words = ~LEFT[:, start:kept]
        torch.testing.assert_close(found[words], expected[words])
    layer = theirs.layers[0]
    torch.testing.assert_close(ours.keys, layer.keys)
    torch.testing.assert_close(ours.values, layer.values)
    assert int(theirs.get_seq_length()) == int(ours.length) == N
