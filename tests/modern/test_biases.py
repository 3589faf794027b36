"""Biases by distance: by definition, and equal to two libraries on outputs and gradients."""

import math
import re

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from annotated_attention import block_future
from annotated_attention.modern import (
    AlibiBias,
    BiasedAttention,
    BucketedBias,
    alibi_slopes,
    relative_buckets,
)

B, N, M, H, D = 2, 5, 7, 3, 6
E = H * D


def buckets(heads=H, **options):
    torch.manual_seed(6)
    bias = BucketedBias(heads, 8, 6, **options)
    torch.nn.init.normal_(bias.table)
    return bias


EACH = pytest.mark.parametrize("bias", [lambda: AlibiBias(H), buckets], ids=["ALiBi", "buckets"])


def make(kind, **options):
    torch.manual_seed(3)
    attention = BiasedAttention(E, H, kind(), batch_first=True, **options)
    for vector in (attention.in_proj_bias, attention.out_proj.bias):
        if vector is not None:
            torch.nn.init.normal_(vector)
    return attention


def inputs(n=N):
    torch.manual_seed(4)
    return torch.randn(B, n, E, requires_grad=True)


def gradients(output: Tensor, *given: Tensor):
    torch.manual_seed(5)
    return torch.autograd.grad((output * torch.randn_like(output)).sum(), given)


# Slopes


@pytest.mark.parametrize("heads", range(1, 81))
def test_slopes_are_blooms(heads):
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    theirs = build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1]
    torch.testing.assert_close(alibi_slopes(heads), theirs, rtol=1e-5, atol=0)


def test_slopes_of_the_paper():
    assert alibi_slopes(8).tolist() == [2.0**-i for i in range(1, 9)]
    assert alibi_slopes(12).unique().numel() == 12


def test_alibi_by_definition():
    found = AlibiBias(H)(torch.arange(4, 4 + N), torch.arange(M))
    for head, slope in enumerate(alibi_slopes(H)):
        for i in range(N):
            for j in range(M):
                assert found[head, i, j] == -slope * abs(4 + i - j)


# Buckets


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("sizes", [(32, 128), (32, 20), (8, 16), (64, 1000), (12, 31), (4, 3)])
def test_buckets_are_t5s(sizes, bidirectional):
    from transformers.models.t5.modeling_t5 import T5Attention

    distance = torch.arange(-2100, 2101)[None]
    num_buckets, max_distance = sizes
    theirs = T5Attention._relative_position_bucket(
        distance, bidirectional=bidirectional, num_buckets=num_buckets, max_distance=max_distance
    )
    found = relative_buckets(
        distance, num_buckets=num_buckets, max_distance=max_distance, bidirectional=bidirectional
    )
    assert found.equal(theirs)
    assert found.max() < num_buckets


# The whole attention


@pytest.mark.parametrize("n", [1, N, 40])
def test_alibi_is_bloom(n):
    """Bloom adds slope · j; the softmax does not see the slope · i that is missing."""
    from transformers import BloomConfig
    from transformers.models.bloom import modeling_bloom

    ours, x = make(lambda: AlibiBias(H)), inputs(n)
    theirs = modeling_bloom.BloomAttention(
        BloomConfig(hidden_size=E, n_head=H, hidden_dropout=0, attention_dropout=0), layer_idx=0
    )

    def by_head(packed):  # q, k and v of all heads -> q, k and v of each head
        return packed.unflatten(0, (3, H, D)).transpose(0, 1).flatten(0, 2)

    with torch.no_grad():
        theirs.query_key_value.weight.copy_(by_head(ours.in_proj_weight))
        theirs.query_key_value.bias.copy_(by_head(ours.in_proj_bias))
        theirs.dense.load_state_dict(ours.out_proj.state_dict())
    alibi = modeling_bloom.build_alibi_tensor(torch.ones(B, n), H, torch.float32)
    mask = torch.zeros(n, n).masked_fill(block_future(n), -math.inf)
    expected, weights = theirs(x, torch.zeros_like(x), alibi, mask)
    found, each = ours(x, x, x, is_causal=True, average_attn_weights=False)
    torch.testing.assert_close((found, each), (expected, weights))
    fused, _ = ours(x, x, x, is_causal=True, need_weights=False)
    torch.testing.assert_close(fused, expected)
    mine = gradients(fused, x, ours.in_proj_weight, ours.out_proj.weight)
    parts = (theirs.query_key_value.weight, theirs.dense.weight)
    of_x, packed, dense = gradients(expected, x, *parts)
    torch.testing.assert_close((mine[0], by_head(mine[1]), mine[2]), (of_x, packed, dense))


@pytest.mark.parametrize("heads", range(4, 41))
def test_alibi_is_x_transformers(x_transformers, heads):
    torch.manual_seed(3)
    e = heads * 2
    ours = BiasedAttention(e, heads, AlibiBias(heads), bias=False, batch_first=True)
    theirs = x_transformers.Attention(e, 2, heads=heads, causal=True)
    parts = [theirs.to_q, theirs.to_k, theirs.to_v]
    with torch.no_grad():
        for part, rows in zip(parts, ours.in_proj_weight.chunk(3), strict=True):
            part.weight.copy_(rows)
        theirs.to_out.load_state_dict(ours.out_proj.state_dict())
    alibi, x = x_transformers.AlibiPositionalBias(heads), torch.randn(B, N, e, requires_grad=True)
    torch.testing.assert_close(AlibiBias(heads)(torch.arange(2, N), torch.arange(N)), alibi(3, N))
    expected, found = theirs(x, rel_pos=alibi), ours(x, x, x, is_causal=True)[0]
    torch.testing.assert_close(found, expected)
    of_x, packed = gradients(found, x, ours.in_proj_weight)
    theirs_x, *rows = gradients(expected, x, *(part.weight for part in parts))
    torch.testing.assert_close((of_x, packed), (theirs_x, torch.cat(rows)))


@pytest.mark.parametrize("n", [1, N, 40])
@pytest.mark.parametrize("causal", [True, False])
def test_buckets_are_t5(causal, n):
    """T5 does not divide its scores by √d; its W_Q makes up for it."""
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    ours, x = make(lambda: buckets(bidirectional=not causal), bias=False), inputs(n)
    config = T5Config(
        d_model=E, d_kv=D, num_heads=H, dropout_rate=0, is_decoder=causal,
        relative_attention_num_buckets=8, relative_attention_max_distance=6,
    )  # fmt: skip
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    q, k, v = ours.in_proj_weight.chunk(3)
    with torch.no_grad():
        for part, rows in ((theirs.q, q / math.sqrt(D)), (theirs.k, k), (theirs.v, v)):
            part.weight.copy_(rows)
        theirs.o.weight.copy_(ours.out_proj.weight)
        theirs.relative_attention_bias.weight.copy_(ours.position_bias.table)
    mask = torch.zeros(n, n).masked_fill(block_future(n), -math.inf) if causal else None
    expected = theirs(x, mask)[0]
    found, _ = ours(x, x, x, is_causal=causal, need_weights=False)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(ours(x, x, x, is_causal=causal)[0], expected)
    mine = gradients(found, x, ours.position_bias.table, ours.in_proj_weight)
    parts = [theirs.relative_attention_bias.weight, theirs.q.weight, theirs.k.weight]
    of_x, table, *rows = gradients(expected, x, *parts, theirs.v.weight)
    packed = torch.cat([rows[0] / math.sqrt(D), *rows[1:]])
    torch.testing.assert_close(mine, (of_x, table, packed), rtol=1e-4, atol=1e-4)


MASKS = {
    "padding": {"key_padding_mask": torch.arange(N) >= torch.tensor([[N], [2]])},
    "float": {"attn_mask": torch.linspace(-1, 1, N * N).view(N, N)},
    "each head its own": {"attn_mask": torch.linspace(-1, 1, B * H * N * N).view(-1, N, N)},
    "a fully masked row": {"attn_mask": torch.eye(N, dtype=torch.bool)[2][:, None].expand(N, N)},
}


@pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS.keys())
@EACH
def test_masks_still_apply(bias, masks):
    """As PyTorch's class with the bias in its mask, and with and without weights."""
    ours, x = make(bias), inputs()
    theirs = torch.nn.MultiheadAttention(E, H, batch_first=True)
    theirs.load_state_dict(ours.state_dict(), strict=False)
    added = ours.position_bias(torch.arange(N), torch.arange(N)).repeat(B, 1, 1)
    for mask in masks.values():
        if mask.dtype == torch.bool:
            mask = torch.zeros(mask.shape).masked_fill(mask, -math.inf)
        added = added + (mask if mask.dim() == 3 or len(mask) == N else spread(mask))
    expected = theirs(x, x, x, attn_mask=added, average_attn_weights=False)
    rows = torch.ones(N, dtype=torch.bool)
    if masks is MASKS["a fully masked row"]:
        rows[2] = False  # zeros here, NaN there
    for need_weights in (True, False):
        output, _ = ours(x, x, x, **masks, need_weights=need_weights)
        torch.testing.assert_close(output[:, rows], expected[0][:, rows])
        assert all(grad.isfinite().all() for grad in gradients(output, x, *ours.parameters()))


def spread(padding):
    return padding[:, None, None].expand(B, H, N, N).flatten(0, 1)


def test_without_weights_it_keeps_the_fused_kernel(monkeypatch):
    calls, fused = [], F.scaled_dot_product_attention
    monkeypatch.setattr(
        F, "scaled_dot_product_attention", lambda *a, **k: calls.append(1) or fused(*a, **k)
    )
    x = inputs()
    make(buckets)(x, x, x, need_weights=False)
    assert calls


# Errors


REFUSED = {
    "num_heads (0) must be at least 1": lambda: alibi_slopes(0),
    "num_buckets (7) must be even and at least 4": lambda: BucketedBias(3, 7),
    "num_buckets (2) must be even and at least 4": lambda: BucketedBias(3, 2),
    "num_buckets (1) must be at least 2": lambda: BucketedBias(3, 1, bidirectional=False),
    "max_distance (8) must be above 8": lambda: relative_buckets(torch.ones(1, 1), max_distance=8),
    "position_bias is for 4 heads; num_heads is 3": lambda: BiasedAttention(E, H, AlibiBias(4)),
    "add_bias_kv must be False": lambda: BiasedAttention(E, H, AlibiBias(H), add_bias_kv=True),
}


@pytest.mark.parametrize(("message", "call"), REFUSED.items(), ids=REFUSED.keys())
def test_refused_by_name(message, call):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


def test_types_that_do_not_fit():
    for call in (alibi_slopes, AlibiBias, BucketedBias):
        with pytest.raises(TypeError, match=r"num_heads \(4\.0\) must be an integer"):
            call(4.0)
