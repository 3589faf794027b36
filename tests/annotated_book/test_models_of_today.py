"""The table of models of today says what ``transformers`` has."""

import importlib
import inspect
import math
from itertools import pairwise

import pytest

from annotated_book import chapters

CLASSES = {  # of each model: its configuration, and what a paper says where that has a default
    "Llama 3.1": ("LlamaConfig", {"positions": "RoPE, llama3", "keys": "GQA"}),
    "OLMo 2": ("Olmo2Config", {}),
    "DeepSeek-V3": ("DeepseekV3Config", {"positions": "RoPE on 1/3, YaRN"}),
    "Gemma 3": ("Gemma3TextConfig", {"positions": "RoPE, two bases, linear"}),
    "Qwen3": ("Qwen3Config", {"keys": "GQA"}),
    "SmolLM3": ("SmolLM3Config", {}),
    "gpt-oss": ("GptOssConfig", {}),
    "Qwen3-Next": ("Qwen3NextConfig", {}),
    "Kimi Linear": ("KimiLinearConfig", {}),
    "DeepSeek-V3.2": ("DeepseekV32Config", {"positions": "RoPE on 1/3, YaRN"}),
    "Qwen3.5": ("Qwen3_5TextConfig", {}),
    "DeepSeek-V4": ("DeepseekV4Config", {"positions": "RoPE on 1/8, two bases, YaRN"}),
}


def positions(config) -> str:
    """Say what turns, and how."""
    given = getattr(config, "rope_parameters", None)
    if given is None:
        return "NoPE"
    bases = {part["rope_theta"] for part in given.values() if isinstance(part, dict)}
    if bases:
        share = getattr(config, "partial_rotary_factor", 1)
        said = "RoPE" if share == 1 else f"RoPE on 1/{1 / share:.0f}"
        return said if len(bases) == 1 else f"{said}, two bases"
    share = given.get("partial_rotary_factor", 1)
    if width := getattr(config, "qk_rope_head_dim", None):
        share = width / config.qk_head_dim
    said = "RoPE" if share == 1 else f"RoPE on 1/{1 / share:.0f}"
    said += {"default": "", "yarn": ", YaRN"}[given["rope_type"]]
    turned = getattr(
        config, "no_rope_layers", []
    )  # 1 where there is rotation, in spite of the name
    return f"{said}, NoPE in 1/{len(turned) // turned.count(0)}" if 0 in turned else said


def keys(config) -> str:
    """Say what the cache keeps for the heads."""
    if getattr(config, "kv_lora_rank", None):
        return "MLA"
    if config.num_key_value_heads == 1:
        return "MQA"
    shared = config.num_key_value_heads < config.num_attention_heads
    return "GQA" if shared else "MHA"


def seen(config) -> str:
    """Say what keys a query sees, and how many such layers stand before one that sees all."""
    kinds = getattr(config, "layer_types", None) or ["full_attention"]
    if rates := getattr(config, "compress_rates", None):
        return f"windows, compressed {' or '.join(map(str, rates.values()))} ×"
    (special,) = {*kinds} - {"full_attention"} or {""}
    if special == "indexed_attention":
        return f"sparse, {config.index_topk:,}"
    places = [i for i, kind in enumerate(kinds) if kind == "full_attention"]
    if not special:
        return "all"
    (apart,) = {after - before - 1 for before, after in pairwise(places)}
    name = {"sliding_attention": "windows", "linear_attention": "linear"}[special]
    return f"{name}, {apart} to 1"


def besides(config) -> str:
    """Say what else the code of its attention does."""
    module = importlib.import_module(type(config).__module__.replace("configuration", "modeling"))
    code = inspect.getsource(module)
    code = code.replace("self.q_b_norm(q)", "self.q_norm(q)")  # DeepSeek-V4's name
    marks = {"QK-norm": "self.q_norm(", "gated": "* torch.sigmoid(gate)", "sinks": "self.sinks"}
    return ", ".join(name for name, mark in marks.items() if mark in code) or "–"


def test_each_model_has_a_row():
    rows = chapters.load("20_positions").MODELS
    assert [name.rpartition(",")[0] for name in rows] == [*CLASSES]


@pytest.mark.parametrize("name", CLASSES)
def test_a_row_is_the_models(name):
    transformers = pytest.importorskip("transformers")
    kind, from_paper = CLASSES[name]
    config = getattr(transformers, kind)()
    found = {
        "positions": positions(config),
        "keys": keys(config),
        "seen": seen(config),
        "besides": besides(config),
    }
    differs = {what for what, said in from_paper.items() if found[what] != said}
    assert differs == {*from_paper}, "the configuration says it itself: no paper is needed"
    rows = chapters.load("20_positions").MODELS
    (row,) = (row for model, row in rows.items() if model.rpartition(",")[0] == name)
    assert row == tuple({**found, **from_paper}.values())


def test_the_cache_is_sized_for_published_shapes():
    """OLMo 2's is the default of its configuration; the package's example has SmolLM2's."""
    config = pytest.importorskip("transformers").Olmo2Config()
    shapes = chapters.load("21_cache").SHAPES
    width = config.hidden_size // config.num_attention_heads
    assert shapes["OLMo 2 7B"][:3] == (config.num_hidden_layers, config.num_key_value_heads, width)
    assert 2 * math.prod(shapes["SmolLM2-135M"][:3]) == 11520


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("DeepSeek-V3 671B, 2024", "DeepseekV3Config"),
        ("Mistral Small 4 119B, 2026", "Mistral4Config"),
    ],
)
def test_latents_are_as_wide_as_in_the_configuration(model, kind):
    config = getattr(pytest.importorskip("transformers"), kind)()
    widths = config.kv_lora_rank, config.qk_rope_head_dim
    found = config.num_hidden_layers, config.num_attention_heads, "a latent", widths
    keys = chapters.load("22_fewer_keys")
    assert keys.MODELS[model] == found
    if kind == "DeepseekV3Config":
        assert keys.WAYS["MLA, absorbed"] == (found[1], sum(widths) + widths[0], 1, sum(widths))
        assert (widths, config.q_lora_rank) == ((512, 64), 1536), "the table of names says so"


def test_deepseek_v4_has_one_wide_head():
    """What *Fewer keys* and *Windows* say of it."""
    config = pytest.importorskip("transformers").DeepseekV4Config()
    assert (config.num_attention_heads, config.num_key_value_heads, config.head_dim) == (64, 1, 512)
    assert config.qk_rope_head_dim == 64
    assert config.compress_rates == {
        "compressed_sparse_attention": 4, "heavily_compressed_attention": 128,
    }  # fmt: skip
    assert (config.sliding_window, config.index_topk, config.index_head_dim) == (128, 512, 128)
    module = importlib.import_module(type(config).__module__.replace("configuration", "modeling"))
    code = " ".join(inspect.getsource(module.DeepseekV4Attention).split())
    assert "q, kv, kv, attention_mask" in code, "what is kept is both key and value"
    assert "apply_rotary_pos_emb(attn_output.transpose(1, 2), cos, -sin)" in code
    assert "s_aux=self.sinks" in code


def test_deepseek_v4_slows_down_without_larger_scores():
    given = {"rope_type": "yarn", "factor": 16, "original_max_position_embeddings": 65536}
    config = pytest.importorskip("transformers").DeepseekV4Config(rope_parameters=given)
    assert config.rope_parameters["main"]["rope_type"] == "default"
    assert config.rope_parameters["compress"]["rope_type"] == "yarn"
    assert config.rope_parameters["compress"]["attention_factor"] == 1.0
    said = inspect.getsource(inspect.getmodule(type(config))).replace("\n        # ", " ")
    assert "Compress layers use `theta=compress_rope_theta` (160000) with yarn factor=16" in said


def test_heads_of_gpt_oss_are_together_wider_than_the_model():
    """What *Split and stack* says of the larger one, whose shapes are the defaults."""
    config = pytest.importorskip("transformers").GptOssConfig()
    assert (config.hidden_size, config.num_attention_heads, config.head_dim) == (2880, 64, 64)
    assert 64 * 45 == 2880
    assert 64 * 64 == 4096


def test_the_caches_have_the_names_of_transformers():
    transformers = pytest.importorskip("transformers")
    from transformers.generation import configuration_utils as settings
    from transformers.generation.continuous_batching import ContinuousMixin

    generate = inspect.signature(transformers.GenerationMixin.generate).parameters
    batching = inspect.signature(settings.ContinuousBatchingConfig).parameters
    known = {*dir(transformers), *dir(transformers.GenerationConfig()), *dir(ContinuousMixin)}
    for name, _ in chapters.load("21_cache").NAMES.values():
        setting, _, value = name.partition("=")
        assert setting in known | {*generate, *batching} or name == "–", name
        assert not value or value.strip('"') in settings.ALL_CACHE_IMPLEMENTATIONS
