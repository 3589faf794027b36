"""What attention with positions of every kind does in half precision, and compiled."""

import pytest
import torch

from annotated_attention.modern import (
    AlibiBias,
    BiasedAttention,
    BucketedBias,
    RotaryAttention,
    RotaryEmbedding,
)
from tests.settings import assert_same, results

B, N, H, D = 2, 5, 3, 6
DYNAMIC = {"rope_type": "dynamic", "factor": 3.0}
YARN = {"rope_type": "yarn", "factor": 3.0, "original_max_position_embeddings": 3}
KINDS = {  # scaled, each layout does all that it does without
    "dynamic": lambda: {"rotary": turns(DYNAMIC, "interleaved")},
    "YaRN": lambda: {"rotary": turns(YARN, "half")},
    "ALiBi": lambda: {"position_bias": AlibiBias(H)},
    "buckets": lambda: {"position_bias": BucketedBias(H, 8, 6)},
}


def turns(scaling, layout):
    return RotaryEmbedding(D, scaling=scaling, layout=layout, max_length=3)


def made(kind):
    torch.manual_seed(3)
    options, x = KINDS[kind](), torch.randn(B, N, H * D, requires_grad=True)
    module = RotaryAttention if "rotary" in options else BiasedAttention
    ours = module(H * D, H, batch_first=True, **options)
    for parameter in ours.parameters():
        torch.nn.init.normal_(parameter, std=0.3)  # biases and buckets begin at 0
    return ours, x


@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_and_autocast(kind):
    ours, x = made(kind)
    expected = ours(x, x, x)[0]
    with torch.autocast("cpu", torch.bfloat16):
        mixed = ours(x, x, x)[0]
    half = x.bfloat16()
    for found in (mixed, ours.bfloat16()(half, half, half)[0]):
        assert found.dtype == torch.bfloat16
        torch.testing.assert_close(found.float(), expected, rtol=0, atol=0.1)


@pytest.mark.parametrize("kind", ["dynamic", "ALiBi", "buckets"])  # the others do nothing else
def test_compiles_whole(kind):
    torch.compiler.reset()
    ours, x = made(kind)
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    found, expected = compiled(x, x, x, is_causal=True), ours(x, x, x, is_causal=True)
    sources = dict(ours.named_parameters()) | {"x": x}
    assert_same(results(found, sources), results(expected, sources))
