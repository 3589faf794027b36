"""What the chapters on windows and states write in a few lines is what published models compute."""

import inspect
from collections import Counter

import pytest
import torch

from annotated_book import chapters

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def chapter():
    """The definitions of the chapter on states."""
    return chapters.load("25_linear_attention")


def test_keys_are_chosen_as_by_deepseeks_indexer():
    from transformers.models.deepseek_v32 import modeling_deepseek_v32 as deepseek

    torch.manual_seed(0)
    choose_keys = chapters.load("24_windows").choose_keys
    config = transformers.DeepseekV32Config(
        hidden_size=24, q_lora_rank=20, index_n_heads=4, index_head_dim=8, qk_rope_head_dim=4,
        index_topk=5,
    )  # fmt: skip
    indexer = deepseek.DeepseekV32Indexer(config, layer_idx=0).eval()
    n, x, latent = 12, torch.randn(1, 12, 24), torch.randn(1, 12, 20)
    unturned = torch.ones(1, n, 4), torch.zeros(1, n, 4)
    blocked = torch.ones(n, n, dtype=torch.bool).triu(1)
    expected = indexer(x, latent, unturned, ~blocked[None], torch.arange(n)[None])[0]
    q = indexer.wq_b(latent)[0].unflatten(-1, (4, 8)).transpose(0, 1)
    k, w = indexer.k_norm(indexer.wk(x))[0], indexer.weights_proj(x)[0].T[..., None]
    found = choose_keys(q, k, w, blocked, 5)
    for row in range(n):
        visible = min(row + 1, 5)  # the others are blocked, in any order
        assert {*found[row, :visible].tolist()} == {*expected[row, :visible].tolist()}
    assert len({tuple(sorted(row)) for row in found[5:].tolist()}) > 3, "all chose alike"
    other = choose_keys(q, k, -w, blocked, 5)
    assert found[-1].sort().values.tolist() != other[-1].sort().values.tolist()


@pytest.mark.parametrize("model", ["Qwen3-Next", "Kimi Linear"])
def test_the_gated_delta_rule_is_theirs(chapter, model):
    from transformers.models.kimi_linear import modeling_kimi_linear as kimi
    from transformers.models.qwen3_next import modeling_qwen3_next as qwen

    torch.manual_seed(0)
    n, d, x = 9, 6, 4
    q, k, v = torch.randn(n, d), torch.randn(n, d), torch.randn(n, x)
    alpha = torch.rand(n, 1 if model == "Qwen3-Next" else d)
    beta = torch.rand(n)

    def alone(tensor):  # a batch of one, with one head
        return tensor[None, :, None]

    gate = alone(alpha.log())
    if model == "Qwen3-Next":
        rule, gate = qwen.torch_recurrent_gated_delta_rule, gate[..., 0]
    else:
        rule = kimi.recurrent_kimi_delta_attention
    expected, _ = rule(
        *map(alone, (q, k, v)), gate, alone(beta), initial_state=None, output_final_state=False,
        use_qk_l2norm_in_kernel=True,
    )  # fmt: skip
    unit = torch.nn.functional.normalize
    inputs = unit(q) / d**0.5, unit(k), v, alpha, beta
    torch.testing.assert_close(chapter.gated_delta_rule(*inputs), expected[0, :, 0])
    torch.testing.assert_close(chapter.in_chunks(*inputs, 4), expected[0, :, 0])


def test_what_the_layers_of_each_model_keep(chapter):
    kept = chapter.kept_at(chapter.FULL)
    kinds = {
        "gpt-oss-120b": transformers.GptOssConfig(),
        "DeepSeek-V3.2": transformers.DeepseekV32Config(),
        "DeepSeek-V4-Flash": transformers.DeepseekV4Config(
            compress_ratios=[0, 0, 4, *[128, 4] * 20, 0]
        ),
        "Qwen3-Next 80B": transformers.Qwen3NextConfig(),
    }
    for name, config in kinds.items():
        parts = kept[name]
        counted = parts[:1] if name == "DeepSeek-V4-Flash" else parts  # each has the window
        assert sum(count for count, *_ in counted) == config.num_hidden_layers, name
    count = {name: Counter(config.layer_types) for name, config in kinds.items()}
    gpt, v4, qwen = count["gpt-oss-120b"], count["DeepSeek-V4-Flash"], count["Qwen3-Next 80B"]
    assert (gpt["sliding_attention"], gpt["full_attention"]) == (18, 18)
    assert (v4["sliding_attention"], v4["compressed_sparse_attention"]) == (2, 21)
    assert v4["heavily_compressed_attention"] == 20
    assert (qwen["linear_attention"], qwen["full_attention"]) == (36, 12)
    for name in ("gpt-oss-120b", "Qwen3-Next 80B"):
        config = kinds[name]
        size = 2 * 2 * config.num_key_value_heads * config.head_dim
        assert kept[name][-1][2] == size, name
    config = kinds["Qwen3-Next 80B"]
    state = config.linear_num_value_heads * config.linear_key_head_dim
    assert kept["Qwen3-Next 80B"][0][2] == 4 * state * config.linear_value_head_dim
    config = kinds["DeepSeek-V3.2"]
    latent = 2 * (config.kv_lora_rank + config.qk_rope_head_dim)
    indexed = 2 * config.index_head_dim
    assert kept["DeepSeek-V3.2"] == ((61, 131_072, latent + indexed),)
    chosen = (61, config.index_topk, latent)
    assert chapter.read_at(131_072)["DeepSeek-V3.2"] == ((61, 131_072, indexed), chosen)
    config = transformers.KimiLinearConfig()
    states, latents = kept["Kimi Linear 48B"]
    assert latents[2] == latent
    assert states[0] + latents[0] == config.num_hidden_layers
    assert (config.linear_num_heads, config.linear_head_dim) == (32, 128)


def test_an_entry_of_deepseek_v4_by_four_mixes_eight_tokens():
    from transformers.models.deepseek_v4 import modeling_deepseek_v4 as deepseek

    code = inspect.getsource(deepseek.DeepseekV4CSACompressor.forward)
    assert "new_zeros((batch, n_windows, 2 * ratio, self.head_dim))" in code
    assert "2 * " not in inspect.getsource(deepseek.DeepseekV4HCACompressor.forward)
