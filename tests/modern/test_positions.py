"""What attention with positions of every kind does in other dtypes, and compiled."""

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
E = H * D


def rotary(**options):
    turns = RotaryEmbedding(D, max_length=3, **options)
    return RotaryAttention(E, H, batch_first=True, rotary=turns)


def buckets():
    attention = BiasedAttention(E, H, BucketedBias(H, 8, 6), batch_first=True)
    torch.nn.init.normal_(attention.position_bias.table)
    return attention


KINDS = {
    "half": rotary,
    "interleaved": lambda: rotary(layout="interleaved"),
    "ALiBi": lambda: BiasedAttention(E, H, AlibiBias(H), batch_first=True),
    "buckets": buckets,
}
SCALED = {
    "dynamic": lambda: rotary(
        layout="interleaved", scaling={"rope_type": "dynamic", "factor": 3.0}
    ),
    "YaRN": lambda: rotary(
        scaling={"rope_type": "yarn", "factor": 3.0, "original_max_position_embeddings": 3}
    ),
}


def made(build):
    """Build an attention whose biases are not zero, and an input for it."""
    torch.manual_seed(3)
    attention = build()
    for vector in (attention.in_proj_bias, attention.out_proj.bias):
        torch.nn.init.normal_(vector)
    return attention, torch.randn(B, N, E, requires_grad=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("build", KINDS.values(), ids=KINDS.keys())
def test_half_precision_and_autocast(build, dtype):
    ours, x = made(build)
    expected = ours(x, x, x)[0]
    with torch.autocast("cpu", dtype):
        mixed = ours(x, x, x)[0]
    half = x.to(dtype)
    low = ours.to(dtype)(half, half, half)[0]
    assert low.dtype == mixed.dtype == dtype
    for found in (low, mixed):
        torch.testing.assert_close(found.float(), expected, rtol=0, atol=0.05)


@pytest.mark.parametrize("kind", ["dynamic", "YaRN", "ALiBi", "buckets"])
def test_compiles_whole(kind):
    """Scaled, each rotary layout does all that it does without."""
    torch.compiler.reset()
    ours, x = made((KINDS | SCALED)[kind])
    backend = "aot_eager" if kind in ("dynamic", "buckets") else "eager"  # a state; a table
    compiled = torch.compile(ours, backend=backend, fullgraph=True)
    found, expected = compiled(x, x, x, is_causal=True), ours(x, x, x, is_causal=True)
    sources = dict(ours.named_parameters()) | {"x": x}
    assert_same(results(found, sources), results(expected, sources))
