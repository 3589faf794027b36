"""The models that close the part on attention today have the parts that ``transformers`` has."""

import importlib
import inspect

import pytest

from annotated_book import chapters

ALL_BUT = [4, 8, 12, 16, 20, 24, 27]  # layers of Kimi Linear that attend, counted from 1
CLASSES = {  # of each model: its configuration, and what its own says beside the default
    "Llama 3.1 8B, 2024": ("LlamaConfig", {"num_key_value_heads": 8}),
    "Gemma 3 27B, 2025": (
        "Gemma3TextConfig",
        {
            "num_hidden_layers": 62,
            "num_attention_heads": 32,
            "num_key_value_heads": 16,
            "sliding_window": 1024,
        },
    ),
    "gpt-oss 120B, 2025": ("GptOssConfig", {}),
    "Qwen3-Next 80B, 2025": ("Qwen3NextConfig", {}),
    "Kimi Linear 48B, 2025": (
        "KimiLinearConfig",
        {
            "linear_attn_config": {
                "full_attn_layers": ALL_BUT,
                "kda_layers": sorted({*range(1, 28)} - {*ALL_BUT}),
            }
        },
    ),
    "DeepSeek-V3.2, 2025": ("DeepseekV32Config", {}),
    "GLM-5, 2026": ("GlmMoeDsaConfig", {}),
    "Qwen3.5 35B, 2026": ("Qwen3_5MoeTextConfig", {}),
    "DeepSeek-V4 Flash, 2026": (
        "DeepseekV4Config",
        {"compress_ratios": [0, 0, 4, *[128, 4] * 20, 0]},  # the last predicts a second token
    ),
}
LETTERS = {
    "full_attention": "a",
    "sliding_attention": "w",
    "linear_attention": "s",
    "indexed_attention": "c",
    "compressed_sparse_attention": "c",
    "heavily_compressed_attention": "x",
}


def of_keys(config) -> str:
    """Say whose keys a query head reads."""
    if getattr(config, "kv_lora_rank", 0):
        return "a latent for all heads (MLA)"
    if config.num_key_value_heads == 1:
        return "one wide KV head"
    return f"GQA, {config.num_attention_heads // config.num_key_value_heads} to 1"


def turned(config, kind) -> str:
    """Say what turns: all of a key, or how much of it."""
    given = getattr(config, "rope_parameters", None)
    if given is None:
        return "no rotation"
    width = getattr(config, "qk_head_dim", None) or config.head_dim
    part = getattr(config, "qk_rope_head_dim", None)
    share = part / width if part else given.get("partial_rotary_factor", 1)
    if kind in given:
        return f"RoPE, base {given[kind]['rope_theta']:,.0f}"
    return "RoPE" if share == 1 else f"RoPE on 1/{1 / share:.0f}"


def seen(config, kind) -> list[str]:
    """Say which keys a query sees."""
    if kind == "full_attention":
        return ["all keys"]
    if kind == "indexed_attention":
        return [f"{config.index_topk:,} chosen keys"]
    found = [f"the last {config.sliding_window:,} keys"]
    if kind != "sliding_attention":
        chosen = {"c": str(config.index_topk) + " chosen", "x": "all"}[LETTERS[kind]]
        found.append(f"{chosen} entries of {config.compress_rates[kind]} keys each")
    return found


def attention(config, kind, code) -> list[str]:
    """List the parts between the first norm and the sum."""
    if kind == "linear_attention":
        assert config.linear_conv_kernel_dim == 4, "the text speaks of the three tokens before"
        assert "use_qk_l2norm_in_kernel=True" in code
        gated = ("self.norm(core_attn_out, z)", "self.o_norm(core_attn_out, gate)")
        assert any(mark in code for mark in gated)
        gate = "feature" if "ForgetGate" in code else "head"
        parts = ["short convolution", "keys of length 1", f"a state, one gate a {gate}"]
        return [*parts, "output gate"]
    parts = [of_keys(config)]
    if "self.q_norm(" in code or "self.q_b_norm(" in code:
        parts.append("QK-norm")
    parts += [turned(config, kind), *seen(config, kind)]
    if "self.sinks" in code:
        parts.append("learned sink")
    if "* torch.sigmoid(gate)" in code:
        parts.append("output gate")
    return parts


def feed_forward(config) -> list[str]:
    """List the parts between the second norm and the sum, in most of the layers."""
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    many = next((getattr(config, x) for x in names if getattr(config, x, 0)), 0)
    if not many:
        return ["feed-forward"]
    for_all = any("shared_expert" in name and value for name, value in config.to_dict().items())
    return [f"{config.num_experts_per_tok} of {many} experts"] + ["1 for all tokens"] * for_all


@pytest.mark.parametrize("name", CLASSES)
def test_a_block_is_the_models(name):
    transformers = pytest.importorskip("transformers")
    kind, given = CLASSES[name]
    config = getattr(transformers, kind)(**given)
    module = importlib.import_module(type(config).__module__.replace("configuration", "modeling"))
    code = inspect.getsource(module)
    model = chapters.load("26_a_model_of_today").MODELS[name]

    kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    kinds = kinds[: config.num_hidden_layers]
    after = ["norm again"] * ("self.post_feedforward_layernorm" in code)
    if streams := getattr(config, "hc_mult", 0):
        after.append(f"{streams} streams, mixed")
    assert model.layers == "".join(LETTERS[each] for each in kinds)
    assert model.attention == {
        LETTERS[each]: "; ".join(attention(config, each, code) + after) for each in {*kinds}
    }
    assert model.feed_forward == "; ".join(feed_forward(config) + after)
    dense = getattr(config, "mlp_layer_types", None) or []
    assert model.plain == dense.count("dense")
    assert "self.input_layernorm(" in code
    assert "feedforward_layernorm(" in code or "self.post_attention_layernorm(" in code


def test_each_model_is_compared():
    assert [*chapters.load("26_a_model_of_today").MODELS] == [*CLASSES]
