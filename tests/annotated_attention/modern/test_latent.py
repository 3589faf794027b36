"""Latent attention equals DeepSeek's, in both of its forms; with a cache: test_cached_attention."""

import pytest
import torch

from annotated_attention.modern import LatentAttention, RotaryEmbedding

B, N, H, C, R, D, DV, E, QC = 2, 5, 3, 8, 4, 6, 10, 21, 7
ABSORB = pytest.mark.parametrize("absorb", [False, True], ids=["plain", "absorbed"])
QUERIES = pytest.mark.parametrize("compressed", [None, QC], ids=["queries whole", "compressed"])
IN_FLOAT32 = {"rtol": 1e-4, "atol": 1e-5}  # DeepSeek's softmax and norms are


def made(compressed=None, **options):
    torch.manual_seed(0)
    options = {"batch_first": True, "dtype": torch.float64, **options}
    return LatentAttention(
        E, H, C, R, head_dim=D, value_dim=DV, query_latent_dim=compressed, **options
    )


def tokens():
    source = torch.Generator().manual_seed(1)
    return torch.randn(B, N, E, generator=source, dtype=torch.float64, requires_grad=True)


def gradients(output, tensors):
    target = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    return torch.autograd.grad((output * target).sum(), tensors)


def deepseek(version, compressed, **options):
    """Make DeepSeek's attention, and give it with its own cosines and sines or angles."""
    from transformers.models.deepseek_v2 import modeling_deepseek_v2 as v2
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as v3

    code, name = {2: (v2, "DeepseekV2"), 3: (v3, "DeepseekV3")}[version]
    torch.manual_seed(2)
    config = getattr(code, f"{name}Config")(
        hidden_size=E,
        num_attention_heads=H,
        num_key_value_heads=H,
        kv_lora_rank=C,
        qk_rope_head_dim=R,
        qk_nope_head_dim=D,
        v_head_dim=DV,
        q_lora_rank=compressed,
        attn_implementation="eager",
        max_position_embeddings=64,
        **options,
    )
    module = getattr(code, f"{name}Attention")(config, 0).double().eval()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    rotary = getattr(code, f"{name}RotaryEmbedding")(config)
    future = torch.full((N, N), -torch.inf, dtype=torch.float64).triu(1)[None, None]

    def run(x):
        return module(
            x, attention_mask=future, position_embeddings=rotary(x, torch.arange(N)[None])
        )[0]

    return module, run


def as_ours(state, compressed):
    """Name DeepSeek's parameters as ours."""
    ups = state["kv_b_proj.weight"].unflatten(0, (H, D + DV))
    named = {
        "kv_down.weight": state["kv_a_proj_with_mqa.weight"],
        "kv_norm.weight": state["kv_a_layernorm.weight"],
        "k_up.weight": ups[:, :D].flatten(0, 1),
        "v_up.weight": ups[:, D:].flatten(0, 1),
        "out_proj.weight": state["o_proj.weight"],
    }
    if compressed is None:
        return named | {"q_up.weight": state["q_proj.weight"]}
    return named | {
        "q_down.0.weight": state["q_a_proj.weight"],
        "q_down.1.weight": state["q_a_layernorm.weight"],
        "q_up.weight": state["q_b_proj.weight"],
    }


@ABSORB
@QUERIES
@pytest.mark.parametrize("version", [2, 3])
def test_equals_deepseeks(version, compressed, absorb):
    module, run = deepseek(version, compressed)
    ours = made(compressed)
    ours.load_state_dict(as_ours(dict(module.named_parameters()), compressed))
    x = tokens()
    found, expected = ours(x, absorb=absorb)[0], run(x)
    torch.testing.assert_close(found, expected, **IN_FLOAT32)
    torch.testing.assert_close(gradients(found, [x]), gradients(expected, [x]), **IN_FLOAT32)


def test_equals_deepseeks_with_a_scaled_rotation():
    scaling = {
        "rope_type": "yarn",
        "factor": 4.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 16,
    }
    module, run = deepseek(3, None, rope_parameters=scaling | {"rope_theta": 10000.0})
    assert module.scaling != made().scale
    rotary = RotaryEmbedding(R, layout="interleaved", scaling=scaling, max_length=64)
    ours = made(rotary=rotary, scale=module.scaling)
    ours.load_state_dict(as_ours(dict(module.named_parameters()), None))
    torch.testing.assert_close(ours(tokens())[0], run(tokens()), **IN_FLOAT32)
