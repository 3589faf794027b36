"""Biases by distance: by definition, and equal to Bloom's and T5's, with gradients."""

import math

import pytest
import torch

from annotated_attention import MultiheadAttention, block_future
from annotated_attention.modern import (
    AlibiBias,
    BiasedAttention,
    BucketedBias,
    alibi_slopes,
    relative_buckets,
)
from tests.settings import assert_same, results

B, N, M, H, D, LONG = 2, 5, 7, 3, 6, 40
E = H * D


def buckets(heads=H, **options):
    torch.manual_seed(6)
    bias = BucketedBias(heads, 8, 6, **options)
    torch.nn.init.normal_(bias.table)
    return bias


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


def test_slopes_are_blooms():
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    for heads in range(1, 41):
        theirs = build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1]
        torch.testing.assert_close(alibi_slopes(heads), theirs, rtol=1e-5, atol=0)


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


def test_alibi_is_bloom():
    """Bloom adds slope · j; the softmax does not see the slope · i that is missing."""
    from transformers import BloomConfig
    from transformers.models.bloom import modeling_bloom

    ours, x = make(lambda: AlibiBias(H)), inputs(LONG)
    theirs = modeling_bloom.BloomAttention(
        BloomConfig(hidden_size=E, n_head=H, hidden_dropout=0, attention_dropout=0), layer_idx=0
    )

    def by_head(packed):  # q, k and v of all heads -> q, k and v of each head
        return packed.unflatten(0, (3, H, D)).transpose(0, 1).flatten(0, 2)

    with torch.no_grad():
        theirs.query_key_value.weight.copy_(by_head(ours.in_proj_weight))
        theirs.query_key_value.bias.copy_(by_head(ours.in_proj_bias))
        theirs.dense.load_state_dict(ours.out_proj.state_dict())
    alibi = modeling_bloom.build_alibi_tensor(torch.ones(B, LONG), H, torch.float32)
    mask = torch.zeros(LONG, LONG).masked_fill(block_future(LONG), -math.inf)
    expected, weights = theirs(x, torch.zeros_like(x), alibi, mask)
    found, each = ours(x, x, x, is_causal=True, average_attn_weights=False)
    assert_same(results((found, each), {"x": x}), results((expected, weights), {"x": x}))


@pytest.mark.parametrize("causal", [True, False])
def test_buckets_are_t5(causal):
    """T5 does not divide its scores by √d; its W_Q makes up for it."""
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    ours, x = make(lambda: buckets(bidirectional=not causal), bias=False), inputs(LONG)
    config = T5Config(
        d_model=E,
        d_kv=D,
        num_heads=H,
        dropout_rate=0,
        is_decoder=causal,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=6,
    )
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    q, k, v = ours.in_proj_weight.chunk(3)
    with torch.no_grad():
        for part, rows in ((theirs.q, q / math.sqrt(D)), (theirs.k, k), (theirs.v, v)):
            part.weight.copy_(rows)
        theirs.o.weight.copy_(ours.out_proj.weight)
        theirs.relative_attention_bias.weight.copy_(ours.position_bias.table)
    mask = torch.zeros(LONG, LONG).masked_fill(block_future(LONG), -math.inf) if causal else None
    expected = theirs(x, mask)[0]
    found = ours(x, x, x, is_causal=causal)[0]
    table = theirs.relative_attention_bias.weight
    mine = results([found], {"x": x, "table": ours.position_bias.table})
    assert_same(mine, results([expected], {"x": x, "table": table}))


@pytest.mark.parametrize("mask", [None, block_future(N), torch.linspace(-1, 1, N * N).view(N, N)])
@pytest.mark.parametrize("need_weights", [True, False])
def test_the_bias_joins_the_mask_of_the_caller(mask, need_weights):
    """Also in another dtype than its own."""
    ours, x = make(buckets, dtype=torch.float64), inputs().detach().double().requires_grad_()
    final = MultiheadAttention(E, H, batch_first=True, dtype=torch.float64)
    final.load_state_dict(ours.state_dict(), strict=False)
    added = ours.position_bias(torch.arange(N), torch.arange(N)).double()
    if mask is not None:
        hides = mask.dtype == torch.bool
        added = added.masked_fill(mask, -math.inf) if hides else added + mask
    found = ours(x, x, x, attn_mask=mask, need_weights=need_weights)
    expected = final(x, x, x, attn_mask=added.repeat(B, 1, 1), need_weights=need_weights)
    sources = {"x": x, "table": ours.position_bias.table}
    assert_same(results(found, sources), results(expected, sources))
