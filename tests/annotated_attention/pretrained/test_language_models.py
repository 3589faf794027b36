"""Every family computes here what it computes in ``transformers``."""

import json
import re
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from annotated_attention.modern import (
    KVCache,
    LanguageModel,
    Settings,
    StaticCache,
    WindowCache,
    generate,
)
from annotated_attention.pretrained import (
    attention_weights,
    load_language_model,
    save_language_model,
)
from annotated_attention.pretrained.checkpoint import Config
from annotated_attention.pretrained.llama import read_settings, stored_name
from tests.settings import REPRODUCIBLE, TOLERANCE

SIZES = {
    "vocab_size": 29,
    "hidden_size": 20,
    "intermediate_size": 14,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 8,
    "initializer_range": 0.3,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
FAMILIES = {  # the class, and what it needs besides to be small
    "llama": ("Llama", {"head_dim": 6}),
    "mistral": ("Mistral", {"head_dim": 6, "sliding_window": 3}),
    "qwen2": (
        "Qwen2",
        {"head_dim": 6, "use_sliding_window": True, "max_window_layers": 1, "sliding_window": 2},
    ),
    "qwen3": (
        "Qwen3",
        {"head_dim": 10, "use_sliding_window": True, "max_window_layers": 2, "sliding_window": 3},
    ),  # h * d = 40 where e = 20
    "olmo2": ("Olmo2", {"head_dim": 6}),
    "smollm3": (
        "SmolLM3",
        {
            "head_dim": 6,
            "use_sliding_window": True,
            "sliding_window": 2,
            "no_rope_layers": [1, 0, 1],
        },
    ),
    "gemma3_text": (
        "Gemma3Text",
        {
            "head_dim": 6,
            "sliding_window": 3,
            "query_pre_attn_scalar": 5,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
}
LOCAL = {"rope_type": "default", "rope_theta": 90.0}  # of Gemma's sliding layers
ROTATIONS = [
    {"rope_type": "default", "rope_theta": 500.0},
    {"rope_type": "linear", "rope_theta": 700.0, "factor": 2.0},
    {"rope_type": "dynamic", "rope_theta": 300.0, "factor": 3.0},
    {
        "rope_type": "yarn",
        "rope_theta": 900.0,
        "factor": 4.0,
        "original_max_position_embeddings": 6,
    },
    {
        "rope_type": "llama3",
        "rope_theta": 50.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 7,
    },
]
B, N = 2, 7
# On the left, and once in between: a shift of all positions alone would turn nothing.
PADDING = torch.tensor([[False] * N, [True, True, True, False, True, False, False]])


def made(folder, family, tensors=None, **fields):
    """Save a small random model, and give it: norms and biases are drawn, too."""
    import transformers

    kind, own = FAMILIES[family]
    torch.random.default_generator.manual_seed(5)
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, **own, **fields})
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(1.0 if parameter.dim() == 1 else 0.0, 0.3)
    model.double().eval().save_pretrained(folder, max_shard_size="9KB" if tensors else "1GB")
    return model


def written(folder, change, name="config.json"):
    """Change a JSON file of a folder."""
    path = Path(folder, name)
    fields = json.loads(path.read_text())
    change(fields)
    path.write_text(json.dumps(fields))


def as_long_ago(fields):
    """Write a ``config.json`` as transformers 4 did, and as it did before heads had widths."""
    rope = fields.pop("rope_parameters")
    if fields["model_type"] == "gemma3_text":
        fields["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
        fields["sliding_window_pattern"] = 2
    fields["rope_theta"] = rope.pop("rope_theta")
    kind = rope.pop("rope_type")
    fields["rope_scaling"] = None if kind == "default" else {**rope, "type": kind}
    fields["torch_dtype"] = fields.pop("dtype")
    fields.pop("layer_types", None)
    usual = fields["model_type"] not in ("qwen3", "gemma3_text")  # these have a default
    if usual and fields["head_dim"] * 4 == fields["hidden_size"]:
        del fields["head_dim"]
    if fields["model_type"] == "llama" and fields["num_key_value_heads"] == 4:
        del fields["num_key_value_heads"]


def tokens(n=N):
    return torch.randint(1, 29, (B, n), generator=torch.Generator().manual_seed(n))


def close(found, expected, dtype=torch.float32):
    """Compare; transformers computes angles in float32, whatever the model is in."""
    rtol, atol = TOLERANCE[dtype]
    atol *= max(1.0, float(expected.detach().abs().max()))
    torch.testing.assert_close(found, expected, rtol=rtol, atol=atol, check_dtype=False)


def gradients(logits, model, real, norms="before"):
    """Differentiate a mixture of the logits at real tokens, by each parameter's stored name."""
    mixture = torch.linspace(-1, 2, logits.numel(), dtype=logits.dtype).view_as(logits)
    model.zero_grad()
    (logits * mixture)[real].sum().backward()
    named = {name.removeprefix("model."): x.grad for name, x in model.named_parameters()}
    return {stored_name(name, norms): gradient for name, gradient in named.items()}


CHOICES = st.fixed_dictionaries(
    {
        "family": st.sampled_from([*FAMILIES]),
        "own": st.fixed_dictionaries(
            {},
            optional={
                "num_key_value_heads": st.sampled_from([1, 4]),
                "tie_word_embeddings": st.just(True),
                "attention_bias": st.just(True),
                "mlp_bias": st.just(True),
                "sliding_window": st.sampled_from([None, 2, 4]),
                "use_sliding_window": st.just(False),
                "max_window_layers": st.sampled_from([0, 1, 3]),
                "hidden_act": st.sampled_from(["gelu", "gelu_pytorch_tanh", "relu"]),
                "rms_norm_eps": st.just(0.1),
            },
        ),
        "rotation": st.sampled_from(ROTATIONS),
        "narrow": st.booleans(),  # heads of e / h = 6, which nobody needs to write down
        "types": st.none()
        | st.lists(
            st.sampled_from(["full_attention", "sliding_attention"]), min_size=3, max_size=3
        ),
        "old": st.booleans(),
        "shards": st.booleans(),
        "padded": st.booleans(),
    }
)


def fields_of(choice):
    """Give the fields of a choice; a family reads some of them, and passes over the others."""
    family = choice["family"]
    fields = choice["own"] | {"rope_parameters": dict(choice["rotation"])}
    if family in ("llama", "olmo2"):
        fields.pop("sliding_window", None)  # which is refused
    if family == "gemma3_text":
        fields["rope_parameters"] = {
            "full_attention": fields["rope_parameters"],
            "sliding_attention": LOCAL,
        }
        if fields.get("sliding_window", 1) is None:
            del fields["sliding_window"]
        fields["hidden_activation"] = fields.get("hidden_act", "gelu_pytorch_tanh")
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


@settings(REPRODUCIBLE, max_examples=20)
@given(CHOICES)
def test_logits_states_and_gradients(choice):
    """As transformers 4 and 5 write them, in one file or several, padded on the left or not."""
    padding, options = None, {"output_hidden_states": True}
    if choice["padded"]:
        padding, counted = PADDING, (~PADDING).long()
        positions = (counted.cumsum(1) - 1).clamp(min=0)  # of real tokens alone
        options |= {"attention_mask": counted, "position_ids": positions}
    with tempfile.TemporaryDirectory() as folder:
        model = made(folder, choice["family"], choice["shards"], **fields_of(choice))
        if choice["old"]:
            written(folder, as_long_ago)
        assert Path(folder, "model.safetensors.index.json").exists() == choice["shards"]
        ours = load_language_model(folder, dtype=torch.float64)
    given, real = tokens(), ~PADDING if choice["padded"] else slice(None)
    expected, logits = model(given, **options), ours(given, None, padding)
    close(logits[real], expected.logits[real])
    close(ours.states(given, None, padding)[real], expected.hidden_states[-1][real])
    found = gradients(logits, ours, real, ours.settings.norms)
    right = gradients(expected.logits, model, real)
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


@pytest.mark.parametrize("family", FAMILIES)
def test_chunks_with_a_cache(family, tmp_path):
    """Where the padding ends within a chunk, and where there is none; generating has a KVCache."""
    made(tmp_path, family)
    ours = load_language_model(tmp_path, dtype=torch.float64)
    whole, given = ours(tokens(), None, PADDING), tokens()
    d, g = ours.settings.head_dim, ours.settings.num_kv_heads
    kinds = (
        lambda _: StaticCache(B, g, 11, d, dtype=torch.float64),
        lambda window: WindowCache(window) if window else KVCache(),
    )
    for kind in kinds:
        caches, parts, done = [kind(window) for window in ours.settings.windows], [], 0
        with torch.no_grad():
            for part in given.split([3, 1, 3], 1):
                done += part.size(1)
                parts.append(ours(part, caches, PADDING[:, :done]))
        torch.testing.assert_close(torch.cat(parts, 1)[~PADDING], whole[~PADDING])


@pytest.mark.parametrize("family", ["qwen3", "olmo2", "smollm3", "gemma3_text"])
def test_half_precision(family, tmp_path):
    """In bfloat16, which rounds positions from 256 on, no further off than transformers is."""
    model, given = made(tmp_path, family), tokens(300)
    with torch.no_grad():
        exact = model(given).logits
        ours = load_language_model(tmp_path, dtype=torch.bfloat16)
        assert {x.dtype for x in ours.parameters()} == {torch.bfloat16}
        allowed = 1.2 * (model.bfloat16()(given).logits - exact).abs().mean()
        assert (ours(given) - exact).abs().mean() < allowed


OURS = {
    "vocab_size": 29,
    "embed_dim": 20,
    "num_layers": 3,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 6,
    "hidden_dim": 14,
}
SAVED = [  # with each of the rotations
    {"max_length": 8, "num_kv_heads": 1, "mlp_bias": True},
    {"qkv_bias": True, "out_bias": True, "activation": "gelu"},
    {"max_length": 8, "activation": "gelu_tanh", "tie_embeddings": True},
    {"num_kv_heads": 4, "activation": "relu"},
    {"norm_eps": 0.1, "max_length": 8},
]


@pytest.mark.parametrize(("changes", "rotation"), [*zip(SAVED, ROTATIONS, strict=True)])
def test_what_is_saved_is_read_by_both(changes, rotation, tmp_path):
    from transformers import AutoModelForCausalLM

    scaling = dict(rotation)
    given = OURS | changes | {"rotary_base": scaling.pop("rope_theta")}
    if scaling["rope_type"] != "default":
        given["rotary_scaling"] = scaling
    torch.random.default_generator.manual_seed(2)
    model = LanguageModel(Settings(**given)).double()
    save_language_model(model, tmp_path)
    again = load_language_model(tmp_path, dtype=torch.float64)
    assert again.settings == model.settings
    assert torch.equal(again(tokens()), model(tokens()))
    close(AutoModelForCausalLM.from_pretrained(tmp_path)(tokens()).logits, model(tokens()))


@pytest.mark.parametrize("family", FAMILIES)
def test_fields_that_are_left_out(family, tmp_path):
    """They mean what transformers takes for them; more than 28 layers show the last windows."""
    from transformers import AutoConfig

    fields = {
        "model_type": family,
        "vocab_size": 29,
        "hidden_size": 256,
        "num_hidden_layers": 30,
        "num_attention_heads": 32,
        "intermediate_size": 14,
        "max_position_embeddings": 8,
        "use_sliding_window": True,
        "rope_scaling": {"rope_type": "yarn", "factor": 2.0},
    }
    (tmp_path / "config.json").write_text(json.dumps(fields))
    theirs, ours = AutoConfig.from_pretrained(tmp_path), read_settings(Config(tmp_path, family))
    window = getattr(theirs, "sliding_window", None)
    kinds = getattr(theirs, "layer_types", ["sliding_attention" if window else "full"] * 30)
    assert ours.windows == [window if "sliding" in kind else None for kind in kinds]
    assert ours.head_dim == (getattr(theirs, "head_dim", None) or 8)
    assert ours.num_kv_heads == theirs.num_key_value_heads
    assert ours.norm_eps == theirs.rms_norm_eps
    assert ours.tie_embeddings == theirs.tie_word_embeddings
    rotary = getattr(theirs, "no_rope_layers", [1] * 30)
    assert [i not in ours.nope_layers for i in range(30)] == [x == 1 for x in rotary]
    rotation = {"rope_theta": ours.rotary_base, **ours.rotary_scaling}
    assert rotation == theirs.rope_parameters.get("full_attention", theirs.rope_parameters)


QUERY = "model.layers.1.self_attn.q_proj.weight"
OLDER = {"rope_parameters": None, "rope_theta": 500.0}


@pytest.mark.parametrize("differs", [False, True])
def test_a_head_that_is_stored_counts(differs, tmp_path):
    """Where it should be the embedding, too; and frequencies that are stored do not."""
    from safetensors.torch import load_file, save_file
    from transformers import AutoModelForCausalLM

    made(tmp_path, "llama", tie_word_embeddings=True)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + differs
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(3)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    ours = load_language_model(tmp_path, dtype=torch.float64)
    assert ours.settings.tie_embeddings != differs
    close(ours(tokens()), AutoModelForCausalLM.from_pretrained(tmp_path)(tokens()).logits)


REFUSED = {
    "llama": [
        ({"model_type": "gemma"}, "model_type ('gemma') must be 'llama' or 'mistral' or 'qwen2'"),
        ({"head_dim": 5}, "rotary_dim (5) must be even"),
        ({"hidden_act": ["silu"]}, "hidden_act (['silu']) must be one of swish, silu"),
        ({"attention_bias": 1}, "attention_bias (1) must be true or false"),
        ({"sliding_window": 4}, "sliding_window (4) must be None"),
        ({"quantization_config": {"bits": 4}}, "quantization_config ({'bits': 4}) must be None"),
        ({"rope_interleaved": True}, "rope_interleaved (True) must be False"),
        ({"is_causal": False}, "is_causal (False) must be True"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor (0.5) must be 1.0"),
        ({"rope_parameters": 500.0}, "rope_parameters (500.0) must be an object or null"),
        (OLDER | {"rope_theta": "5"}, "base ('5') must be a number"),
        ({"rope_scaling": {"type": "linear"}}, "must say what rope_parameters say"),
        ({"layer_types": ["sliding_attention"] * 3}, "must be full_attention in every layer"),
        ({"model_type": "qwen2"}, "lacks model.layers.0.self_attn.k_proj.bias"),
    ],
    "gemma3_text": [
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping (30.0) must be None"),
        ({"use_bidirectional_attention": True}, "use_bidirectional_attention (True) must be False"),
        (
            {"rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 2.0}}},
            "must not scale sliding layers",
        ),
    ],
    "smollm3": [({"no_rope_layers": [1]}, "no_rope_layers ([1]) must have a number for each")],
    "mistral": [({"layer_types": ["full_attention"] * 3}, "must be sliding_attention in every")],
    "qwen2": [
        ({"layer_types": "full"}, "layer_types ('full') must be an array"),
    ],
}


@pytest.mark.parametrize("family", REFUSED)
def test_fields_are_refused(family, tmp_path):
    made(tmp_path, family)
    path = tmp_path / "config.json"
    original = json.loads(path.read_text())
    for fields, words in REFUSED[family]:
        path.write_text(json.dumps(original | fields))
        with pytest.raises(ValueError, match=re.escape(words)) as refused:
            load_language_model(tmp_path)
        assert str(tmp_path) in str(refused.value)


def damaged_index(change):
    index = "model.safetensors.index.json"
    return lambda folder: written(folder, lambda fields: change(fields["weight_map"]), index)


def shard(folder):
    return min(folder.glob("model-*.safetensors"))


@pytest.mark.parametrize(
    ("damage", "error", "words"),
    [
        (lambda x: shard(x).unlink(), FileNotFoundError, "there is no model-00001-of"),
        (
            lambda x: shard(x).write_bytes(shard(x).read_bytes()[:-1]),
            ValueError,
            "model-00001-of.* is not a whole safetensors file",
        ),
        (damaged_index(lambda x: x.pop(QUERY)), ValueError, f"{QUERY} is elsewhere"),
        (
            damaged_index(lambda x: x.update({QUERY: "../a.safetensors"})),
            ValueError,
            r"names '../a.safetensors', which is no safetensors file of its folder",
        ),
        (
            lambda x: (x / "model.safetensors.index.json").write_text("{}"),
            ValueError,
            "must be JSON, with a weight_map",
        ),
    ],
)
def test_shards_are_refused(damage, error, words, tmp_path):
    made(tmp_path, "llama", True)
    damage(tmp_path)
    with pytest.raises(error, match=words):
        load_language_model(tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"window": 3}, r"window \(3\) must be None in a Llama checkpoint"),
        ({"qk_norm": True}, r"qk_norm \(True\) must be False"),
        ({"norms": "after"}, r"norms \(after\) must be before"),
        ({"qkv_bias": True}, r"out_bias \(False\) must be True"),
        ({"rotary_dim": 4}, r"rotary_dim \(4\) must be 6"),
        ({"embed_dim": 22}, r"embed_dim \(22\) must be divisible by num_heads \(4\)"),
    ],
)
def test_what_llama_cannot_say_is_not_saved(change, words, tmp_path):
    model = LanguageModel(Settings(**OURS | change))
    with pytest.raises(ValueError, match=words):
        save_language_model(model, tmp_path / "new")
    assert not (tmp_path / "new").exists()
