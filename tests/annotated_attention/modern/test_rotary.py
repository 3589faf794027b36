"""Rotary positions are Llama's and GPT-J's, with gradients."""

import math

import pytest
import torch

from annotated_attention import block_future
from annotated_attention.modern import (
    RotaryAttention,
    RotaryEmbedding,
    half_to_interleaved,
    interleaved_to_half,
    rotate,
)
from tests.settings import assert_same, results

B, N, M, H, D, LONG = 2, 5, 7, 3, 6, 40
E = H * D


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


@pytest.mark.parametrize(
    ("layout", "reorder", "other"),
    [("interleaved", interleaved_to_half, "half"), ("half", half_to_interleaved, "interleaved")],
)
def test_reordered_rows_give_the_other_layout(layout, reorder, other):
    ours, turned = (make(each, dtype=torch.float64) for each in (layout, other))
    turned.load_state_dict(ours.state_dict())  # the rows as they were: every shape fits
    x = inputs(dtype=torch.float64)
    expected = ours(x, x, x, is_causal=True)
    assert not torch.allclose(turned(x, x, x, is_causal=True)[0], expected[0], atol=0.01)
    with torch.no_grad():
        for rows in (turned.in_proj_weight, turned.in_proj_bias):
            for part in rows.chunk(3)[:2]:  # the values do not turn
                part.copy_(reorder(part, H))
    assert_same(results(turned(x, x, x, is_causal=True), {"x": x}), results(expected, {"x": x}))


def test_interleaved_is_a_product_of_complex_numbers():
    """Pair i, features 2i and 2i + 1 as one number, times e to the power of i times its angle."""
    x, angles = inputs(dtype=torch.float64).unflatten(-1, (-1, 2)), torch.randn(N, E // 2).double()
    expected = torch.view_as_complex(x) * torch.polar(torch.ones_like(angles), angles)
    found = rotate(x.flatten(-2), angles.cos(), angles.sin(), layout="interleaved")
    torch.testing.assert_close(found, torch.view_as_real(expected).flatten(-2))


def test_half_is_llama():
    from transformers import LlamaConfig
    from transformers.models.llama import modeling_llama

    config = LlamaConfig(
        hidden_size=E,
        num_attention_heads=H,
        num_key_value_heads=H,
        rope_parameters={"rope_type": "default", "rope_theta": 700.0},
        attn_implementation="eager",
    )
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
