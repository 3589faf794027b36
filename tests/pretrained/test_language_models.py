"""Llama, Mistral, Qwen2 and Qwen3 compute here what they compute in ``transformers``."""

import json
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from annotated_attention.modern import KVCache, LanguageModel, Settings, StaticCache, generate
from annotated_attention.pretrained import (
    attention_weights,
    load_language_model,
    save_language_model,
)
from tests.settings import REPRODUCIBLE, TOLERANCE

SIZES = {
    "vocab_size": 29, "hidden_size": 20, "intermediate_size": 14, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 8,
    "initializer_range": 0.3, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
FAMILIES = {  # the class, and what it needs besides to be small
    "llama": ("Llama", {"head_dim": 6}),
    "mistral": ("Mistral", {"head_dim": 6, "sliding_window": 3}),
    "qwen2": ("Qwen2", {"head_dim": 6, "use_sliding_window": True, "max_window_layers": 1,
                        "sliding_window": 2}),
    "qwen3": ("Qwen3", {"head_dim": 10, "use_sliding_window": True, "max_window_layers": 2,
                        "sliding_window": 3}),  # h * d = 40 where e = 20
}  # fmt: skip
ROTATIONS = [
    {"rope_type": "default", "rope_theta": 500.0},
    {"rope_type": "linear", "rope_theta": 700.0, "factor": 2.0},
    {"rope_type": "dynamic", "rope_theta": 300.0, "factor": 3.0},
    {"rope_type": "yarn", "rope_theta": 900.0, "factor": 4.0,
     "original_max_position_embeddings": 6},
    {"rope_type": "llama3", "rope_theta": 50.0, "factor": 8.0, "low_freq_factor": 1.0,
     "high_freq_factor": 4.0, "original_max_position_embeddings": 7},
]  # fmt: skip
B, N = 2, 7
PADDING = torch.tensor([[False] * N, [True] * 3 + [False] * (N - 3)])


def made(folder, family, tensors=None, **fields):
    """Save a small random model, and give it: norms and biases are drawn, too."""
    import transformers

    kind, own = FAMILIES[family]
    torch.random.default_generator.manual_seed(5)
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, **own, **fields})
    model = getattr(transformers, f"{kind}ForCausalLM")(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(1.0 if parameter.dim() == 1 else 0.0, 0.3)
    model.double().eval().save_pretrained(folder, max_shard_size="9KB" if tensors else "1GB")
    return model


def written(folder, change):
    """Change a folder's ``config.json``."""
    path = Path(folder, "config.json")
    fields = json.loads(path.read_text())
    change(fields)
    path.write_text(json.dumps(fields))


def as_long_ago(fields):
    """Write a ``config.json`` as transformers 4 did, and as it did before heads had widths."""
    rope = fields.pop("rope_parameters")
    fields["rope_theta"] = rope.pop("rope_theta")
    kind = rope.pop("rope_type")
    fields["rope_scaling"] = None if kind == "default" else {**rope, "type": kind}
    fields["torch_dtype"] = fields.pop("dtype")
    fields.pop("layer_types", None)
    if fields["model_type"] != "qwen3" and fields["head_dim"] * 4 == fields["hidden_size"]:
        del fields["head_dim"]
    if fields["model_type"] == "llama" and fields["num_key_value_heads"] == 4:
        del fields["num_key_value_heads"]


def tokens(n=N):
    return torch.randint(1, 29, (B, n), generator=torch.Generator().manual_seed(n))


def theirs(model, given, padding=None):
    """Call transformers with positions that count real tokens."""
    if padding is None:
        return model(given, output_hidden_states=True)
    real = (~padding).long()
    positions = (real.cumsum(1) - 1).clamp(min=0)
    return model(given, attention_mask=real, position_ids=positions, output_hidden_states=True)


def close(found, expected, dtype=torch.float32):
    """Compare; transformers computes angles in float32, whatever the model is in."""
    rtol, atol = TOLERANCE[dtype]
    atol *= max(1.0, float(expected.detach().abs().max()))
    torch.testing.assert_close(found, expected, rtol=rtol, atol=atol, check_dtype=False)


def gradients(logits, model, real):
    """Differentiate a mixture of the logits at real tokens, by each parameter's stored name."""
    mixture = torch.linspace(-1, 2, logits.numel(), dtype=logits.dtype).view_as(logits)
    model.zero_grad()
    (logits * mixture)[real].sum().backward()
    return {name.removeprefix("model."): x.grad for name, x in model.named_parameters()}


CHOICES = st.fixed_dictionaries({
    "family": st.sampled_from([*FAMILIES]),
    "own": st.fixed_dictionaries({}, optional={
        "num_key_value_heads": st.sampled_from([1, 4]),
        "tie_word_embeddings": st.just(True),
        "attention_bias": st.just(True),
        "mlp_bias": st.just(True),
        "sliding_window": st.sampled_from([None, 2, 4]),
        "use_sliding_window": st.just(False),
        "max_window_layers": st.sampled_from([0, 1, 3]),
        "hidden_act": st.sampled_from(["gelu", "gelu_pytorch_tanh", "relu"]),
        "rms_norm_eps": st.just(0.1),
    }),
    "rotation": st.sampled_from(ROTATIONS),
    "narrow": st.booleans(),  # heads of e / h = 6, which nobody needs to write down
    "types": st.none() | st.lists(
        st.sampled_from(["full_attention", "sliding_attention"]), min_size=3, max_size=3),
    "old": st.booleans(),
    "shards": st.booleans(),
    "padded": st.booleans(),
})  # fmt: skip
READS = {
    "llama": {"attention_bias", "mlp_bias"},
    "mistral": {"sliding_window"},
    "qwen2": {"sliding_window", "use_sliding_window", "max_window_layers"},
    "qwen3": {"attention_bias", "sliding_window", "use_sliding_window", "max_window_layers"},
}
COMMON = {"num_key_value_heads", "tie_word_embeddings", "hidden_act", "rms_norm_eps"}


def fields_of(choice):
    """Give the fields of a choice that its family reads."""
    family, own = choice["family"], choice["own"]
    fields = {name: x for name, x in own.items() if name in COMMON | READS[family]}
    fields["rope_parameters"] = dict(choice["rotation"])
    if choice["narrow"]:
        fields |= {"hidden_size": 24, "head_dim": 6}
    whole = FAMILIES[family][1] | fields
    if (
        whole.get("use_sliding_window")
        and whole["sliding_window"]
        and choice["types"]
        and not choice["old"]
    ):
        fields["layer_types"] = choice["types"]
    return fields


@settings(REPRODUCIBLE, max_examples=30)
@given(CHOICES)
def test_logits_states_and_gradients(choice):
    """As transformers 4 and 5 write them, in one file or several, padded on the left or not."""
    padding = PADDING if choice["padded"] else None
    with tempfile.TemporaryDirectory() as folder:
        model = made(folder, choice["family"], choice["shards"], **fields_of(choice))
        if choice["old"]:
            written(folder, as_long_ago)
        assert Path(folder, "model.safetensors.index.json").exists() == choice["shards"]
        ours = load_language_model(folder, dtype=torch.float64)
    given, real = tokens(), ~PADDING if choice["padded"] else slice(None)
    expected, logits = theirs(model, given, padding), ours(given, None, padding)
    close(logits[real], expected.logits[real])
    close(ours.states(given, None, padding)[real], expected.hidden_states[-1][real])
    found, right = gradients(logits, ours, real), gradients(expected.logits, model, real)
    assert found.keys() == right.keys()
    for name, gradient in right.items():
        close(found[name], gradient)


@pytest.mark.parametrize("family", FAMILIES)
def test_generation_is_theirs(family, tmp_path):
    """Greedy, with padding on the left, with a cache and without; every head's weights, too."""
    model = made(tmp_path, family, max_position_embeddings=40)
    ours = load_language_model(tmp_path, dtype=torch.float64)
    given, real = tokens(), (~PADDING).long()
    expected = model.generate(
        given, attention_mask=real, max_new_tokens=12, do_sample=False, pad_token_id=0
    )[:, N:]
    for use_cache in (True, False):
        drawn = generate(ours, given, 12, key_padding_mask=PADDING, use_cache=use_cache)
        assert torch.stack([*drawn], 1).equal(expected)
    model.set_attn_implementation("eager")
    with attention_weights(ours) as weights:
        ours(given)
    for found, right in zip(weights, model(given, output_attentions=True).attentions, strict=True):
        close(found, right)


@pytest.mark.parametrize("padding", [None, PADDING], ids=["whole", "padded"])
@pytest.mark.parametrize("family", FAMILIES)
def test_chunks_with_a_cache(family, padding, tmp_path):
    made(tmp_path, family, max_position_embeddings=40)
    ours = load_language_model(tmp_path, dtype=torch.float64)
    whole, given = ours(tokens(), None, padding), tokens()
    d, g = ours.settings.head_dim, ours.settings.num_kv_heads
    for make in (KVCache, lambda: StaticCache(B, g, 11, d, dtype=torch.float64)):
        caches, parts, done = [make() for _ in ours.layers], [], 0
        with torch.no_grad():
            for part in given.split([3, 1, 3], 1):
                done += part.size(1)
                seen = None if padding is None else padding[:, :done]
                parts.append(ours(part, caches, seen))
        real = slice(None) if padding is None else ~padding
        torch.testing.assert_close(torch.cat(parts, 1)[real], whole[real])


@pytest.mark.parametrize("family", FAMILIES)
def test_half_precision(family, tmp_path):
    """In bfloat16 it is as far from the exact logits as transformers is, or nearer."""
    model = made(tmp_path, family)
    exact = model(tokens()).logits
    ours = load_language_model(tmp_path, dtype=torch.bfloat16)
    assert {x.dtype for x in ours.parameters()} == {torch.bfloat16}
    theirs_off = (model.bfloat16()(tokens()).logits - exact).abs().mean()
    assert (ours(tokens()) - exact).abs().mean() < 1.5 * theirs_off


@settings(REPRODUCIBLE, max_examples=15)
@given(
    st.fixed_dictionaries({
        "rotary_scaling": st.none() | st.sampled_from(ROTATIONS[1:]),
        "biased": st.booleans(), "mlp_bias": st.booleans(), "tie_embeddings": st.booleans(),
        "activation": st.sampled_from(["silu", "gelu", "gelu_tanh", "relu"]),
        "num_kv_heads": st.sampled_from([1, 2, 4]),
    })
)  # fmt: skip
def test_what_is_saved_is_read_by_both(drawn):
    from transformers import AutoModelForCausalLM

    given, scaling = dict(drawn), drawn["rotary_scaling"]
    given["qkv_bias"] = given["out_bias"] = given.pop("biased")
    if scaling:
        scaling = dict(scaling)
        given |= {"rotary_base": scaling.pop("rope_theta"), "rotary_scaling": scaling}
    torch.random.default_generator.manual_seed(2)
    model = LanguageModel(Settings(
        vocab_size=29, embed_dim=20, num_layers=3, num_heads=4, head_dim=6, hidden_dim=14,
        max_length=8, **given,
    )).double()  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        save_language_model(model, folder)
        again = load_language_model(folder, dtype=torch.float64)
        other = AutoModelForCausalLM.from_pretrained(folder)
    assert again.settings == model.settings
    assert torch.equal(again(tokens()), model(tokens()))
    close(other(tokens()).logits, model(tokens()))
