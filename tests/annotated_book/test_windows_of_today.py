"""What the chapter on windows writes in a few lines is what DeepSeek, Qwen and Kimi compute."""

import pytest
import torch

from annotated_book import chapters

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def chapter():
    """The definitions of the chapter."""
    return chapters.load("24_windows")


def test_keys_are_chosen_as_by_deepseeks_indexer(chapter):
    from transformers.models.deepseek_v32 import modeling_deepseek_v32 as deepseek

    torch.manual_seed(0)
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
    found = chapter.choose_keys(q, k, w, blocked, 5)
    for row in range(n):
        visible = min(row + 1, 5)  # the others are blocked, in any order
        assert {*found[row, :visible].tolist()} == {*expected[row, :visible].tolist()}
    assert len({tuple(sorted(row)) for row in found[5:].tolist()}) > 3, "all chose alike"
    other = chapter.choose_keys(q, k, -w, blocked, 5)
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
