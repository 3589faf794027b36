"""The table that closes the part on attention today says what ``transformers`` has."""

import importlib
import inspect
import re

import pytest

from press.run import scripts

CLASSES = {
    "Gemma 3, 2025": "Gemma3TextConfig",
    "gpt-oss, 2025": "GptOssConfig",
    "Qwen3-Next, 2025": "Qwen3NextConfig",
    "Kimi Linear, 2025": "KimiLinearConfig",
    "DeepSeek-V3.2, 2025": "DeepseekV32Config",
    "GLM-5, 2026": "GlmMoeDsaConfig",
    "Qwen3.5 35B, 2026": "Qwen3_5MoeTextConfig",
    "DeepSeek-V4 Flash, 2026": "DeepseekV4Config",
}
COLUMNS = ["window", "learned sink", "output gate", "state", "indexer", "MLA", "experts"]
GATED = {  # a line of code that multiplies what a layer has collected
    "yes": ["* torch.sigmoid(gate)", "self.norm(core_attn_out, z)"],
    "state only": ["self.o_norm(core_attn_out, gate)"],
}


def table():
    """Read the rows of the chapter's table, by their first cell."""
    cells = scripts.notebook(scripts.CHAPTERS / "26_a_model_of_today.py").cells
    (text,) = (x.source for x in cells if x.source.startswith("## What this class lacks"))
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines]
    heading, _, *rows = [[re.sub(r"\[(.*?)\]\(.*?\)", r"\1", x) for x in row] for row in rows]
    assert heading[1:] == COLUMNS
    return {name: row for name, *row in rows}


def expected(config):
    """Say the same of a model by its configuration and its code."""
    module = importlib.import_module(type(config).__module__.replace("configuration", "modeling"))
    code = inspect.getsource(module)
    kinds = config.layer_types
    full = kinds.count("full_attention")
    local, linear = (kinds.count(f"{kind}_attention") for kind in ("sliding", "linear"))
    period = round(len(kinds) / full) if full else 0
    row = dict.fromkeys(COLUMNS, "–")
    if local:
        window = {"Gemma3TextConfig": 1024}.get(type(config).__name__, config.sliding_window)
        row["window"] = f"{window:,}, {period - 1} in {period}"
    if getattr(config, "compress_rates", None):
        assert not full
        row["window"] = f"{config.sliding_window}, in all"
    if linear:
        gate = "feature" if "ForgetGate" in code else "head"
        row["state"] = f"{period - 1} in {period}, per {gate}"
        assert config.linear_conv_kernel_dim == 4, "the text speaks of the three tokens before"
    if "self.sinks" in code:
        row["learned sink"] = "yes"
    for said, marks in GATED.items():
        if all(mark in code for mark in marks):
            row["output gate"] = said
    if getattr(config, "index_topk", 0):
        row["indexer"] = f"{config.index_topk:,}"
        row["indexer"] += " compressed" if getattr(config, "compress_rates", None) else ""
    if getattr(config, "kv_lora_rank", 0):
        row["MLA"] = "yes"
    elif config.num_key_value_heads == 1:
        row["MLA"] = "one wide head"
    names = ("num_experts", "num_local_experts", "n_routed_experts")
    if many := next((getattr(config, x) for x in names if getattr(config, x, 0)), 0):
        row["experts"] = f"{config.num_experts_per_tok} of {many}"
    return [*row.values()]


@pytest.mark.parametrize("name", CLASSES)
def test_a_row_is_the_models(name):
    transformers = pytest.importorskip("transformers")
    assert table()[name] == expected(getattr(transformers, CLASSES[name])())


def test_this_class_has_windows_and_no_more():
    assert table()["this class"] == ["yes"] + ["–"] * 6
    assert [*table()] == [*CLASSES, "this class"]
