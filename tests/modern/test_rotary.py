"""Rotary positions: by definition, and equal to Llama's and GPT-J's, with gradients."""

import math

import pytest
import torch

from annotated_attention import block_future
from annotated_attention.modern import (
    RotaryAttention,
    RotaryEmbedding,
    half_to_interleaved,
    interleaved_to_half,
)
from tests.settings import assert_same, results

B, N, M, H, D, LONG = 2, 5, 7, 3, 6, 40
E = H * D
LAYOUTS = pytest.mark.parametrize("layout", ["half", "interleaved"])


def make(layout="half", base=None, **options):
    torch.manual_seed(3)
    rotary = RotaryEmbedding(D, base=base, layout=layout)
    attention = RotaryAttention(E, H, batch_first=True, rotary=rotary, **options)
    for bias in (attention.in_proj_bias, attention.out_proj.bias):
        if bias is not None:
            torch.nn.init.normal_(bias)
    return attention


def inputs(n=N, dtype=None):
    torch.manual_seed(4)
    return torch.randn(B, n, E, dtype=dtype, requires_grad=True)


@LAYOUTS
def test_each_pair_turns_by_its_own_angle(layout):
    torch.manual_seed(0)
    x = torch.randn(B, H, N, D, dtype=torch.float64)
    positions = torch.tensor([0, 1, 4, 9, 400])
    found = RotaryEmbedding(D, base=50.0, layout=layout)(x, positions)
    for i in range(D // 2):
        pair = [i, i + D // 2] if layout == "half" else [2 * i, 2 * i + 1]
        for j, position in enumerate(positions.tolist()):
            angle = position * 50.0 ** (-2 * i / D)
            turn = torch.tensor(
                [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
            ).double()
            torch.testing.assert_close(
                found[..., j, pair], x[..., j, pair] @ turn.mT, rtol=0, atol=1e-6
            )


def swapped(attention: RotaryAttention, layout: str) -> RotaryAttention:
    """Build the same attention in the other layout."""
    other = make(layout, dtype=torch.float64)
    reorder = interleaved_to_half if layout == "half" else half_to_interleaved
    with torch.no_grad():
        for name in ("in_proj_weight", "in_proj_bias"):
            q, k, v = getattr(attention, name).chunk(3)
            getattr(other, name).copy_(torch.cat([reorder(q, H), reorder(k, H), v]))
        other.out_proj.load_state_dict(attention.out_proj.state_dict())
    return other


@pytest.mark.parametrize("layouts", [("half", "interleaved"), ("interleaved", "half")])
def test_reordered_rows_give_the_other_layout(layouts):
    ours = make(layouts[0], dtype=torch.float64)
    other = swapped(ours, layouts[1])
    x = inputs(dtype=torch.float64)
    found, expected = other(x, x, x, is_causal=True), ours(x, x, x, is_causal=True)
    assert_same(results(found, {"x": x}), results(expected, {"x": x}))
    other.load_state_dict(ours.state_dict())  # the rows as they were: every shape fits
    assert not torch.allclose(other(x, x, x)[0], ours(x, x, x)[0], atol=0.01)


def test_half_is_llama():
    from transformers import LlamaConfig
    from transformers.models.llama import modeling_llama

    config = LlamaConfig(
        hidden_size=E, num_attention_heads=H, num_key_value_heads=H,
        rope_parameters={"rope_type": "default", "rope_theta": 700.0}, attn_implementation="eager",
    )  # fmt: skip
    ours, x = make(bias=False, base=700.0), inputs(LONG)
    theirs = modeling_llama.LlamaAttention(config, layer_idx=0)
    fill(theirs, theirs.o_proj, ours)
    angles = modeling_llama.LlamaRotaryEmbedding(config)(x, torch.arange(LONG)[None])
    mask = torch.zeros(LONG, LONG).masked_fill(block_future(LONG), -math.inf)
    expected, weights = theirs(x, angles, mask)
    agree(ours, x, expected, weights)


def test_interleaved_is_gptj():
    from transformers import GPTJConfig
    from transformers.models.gptj.modeling_gptj import GPTJAttention

    config = GPTJConfig(n_embd=E, n_head=H, rotary_dim=D, attn_pdrop=0, resid_pdrop=0)
    ours, x = make("interleaved", bias=False), inputs(LONG)
    theirs = GPTJAttention(config, layer_idx=0)
    fill(theirs, theirs.out_proj, ours)
    mask = torch.zeros(LONG, LONG).masked_fill(block_future(LONG), -math.inf)
    positions = torch.arange(LONG).expand(B, LONG)
    expected, weights = theirs(x, attention_mask=mask, position_ids=positions)
    agree(ours, x, expected, weights)


def agree(ours, x, expected, weights):
    """Compare outputs, the weights of each head and the gradients of the input."""
    found, each = ours(x, x, x, is_causal=True, average_attn_weights=False)
    assert_same(results((found, each), {"x": x}), results((expected, weights), {"x": x}))


def fill(theirs, last, ours):
    """Give the reference our parameters."""
    with torch.no_grad():
        rows = zip(
            (theirs.q_proj, theirs.k_proj, theirs.v_proj), ours.in_proj_weight.chunk(3), strict=True
        )
        for part, weight in rows:
            part.weight.copy_(weight)
        last.weight.copy_(ours.out_proj.weight)


def test_angles_are_exact_in_half_precision():
    """In bfloat16 256 and 257 are one number; the angle must not be computed in it."""
    rotary = RotaryEmbedding(D).bfloat16()
    q, k = torch.randn(1, D).bfloat16(), torch.randn(1, D).bfloat16()
    at = [rotary(k, torch.tensor([position])) for position in (256, 257)]
    assert not at[0].equal(at[1])
    for position in (3, 257, 4001):
        found = rotary(q, torch.tensor([position]))
        expected = rotary(q.float(), torch.tensor([position]))
        assert found.dtype == torch.bfloat16
        torch.testing.assert_close(found.float(), expected, rtol=0, atol=0.03)
