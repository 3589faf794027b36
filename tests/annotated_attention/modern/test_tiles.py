"""Attention in tiles equals the fused kernel, whatever the sizes, the masks and the tiles."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from annotated_attention.masks import block_future, masks_as_bias
from annotated_attention.modern import merge_parts, tiled_attention
from tests.settings import REPRODUCIBLE, assert_same, results

B, H, D, DV = 2, 3, 4, 5
MASKS = ("none", "(n, m)", "(b, 1, 1, m)", "(b, h, n, m)", "(m,)")


def drawn(seed, n, m, dtype=torch.float64):
    source = torch.Generator().manual_seed(seed)
    shapes = {"query": (B, H, n, D), "key": (B, H, m, D), "value": (B, H, m, DV)}
    return {
        name: torch.randn(shape, generator=source, dtype=torch.float64).to(dtype).requires_grad_()
        for name, shape in shapes.items()
    }


def mask(seed, kind, n, m, share=0.4):
    shapes = {"(n, m)": (n, m), "(b, 1, 1, m)": (B, 1, 1, m), "(b, h, n, m)": (B, H, n, m)}
    shape = shapes.get(kind, (m,))
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < share


@settings(REPRODUCIBLE, max_examples=120)
@given(
    seed=st.integers(0, 99),
    n=st.integers(1, 9),
    m=st.integers(1, 9),
    tile=st.integers(1, 10),
    blocked=st.sampled_from(MASKS),
    bias=st.sampled_from(MASKS),
    is_causal=st.booleans(),
    scale=st.sampled_from([None, 0.3]),
)
def test_equals_the_fused_kernel(seed, n, m, tile, blocked, bias, is_causal, scale):
    x = drawn(seed, n, m)
    hidden = None if blocked == "none" else mask(seed, blocked, n, m)
    if bias != "none":
        numbers = torch.randn_like(mask(seed + 1, bias, n, m), dtype=torch.float64)
        x["bias"] = numbers.masked_fill(mask(seed + 2, bias, n, m), -math.inf).requires_grad_()
    output, _ = tiled_attention(**x, blocked=hidden, is_causal=is_causal, scale=scale, tile=tile)
    future = block_future(n, m) if is_causal else torch.zeros(n, m, dtype=torch.bool)
    every = future if hidden is None else future | hidden
    expected = F.scaled_dot_product_attention(
        x["query"],
        x["key"],
        x["value"],
        masks_as_bias(every, x.get("bias"), torch.float64),
        scale=scale,
    )
    assert_same(results([output], x), results([expected], x))


@settings(REPRODUCIBLE, max_examples=30)
@given(seed=st.integers(0, 99), cut=st.integers(0, 7), tile=st.integers(1, 4))
def test_parts_of_the_keys_merge(seed, cut, tile):
    """Also where a part is empty, or a row fully masked in one part or in both."""
    x, hidden = drawn(seed, 3, 7), mask(seed, "(n, m)", 3, 7, share=0.7)
    whole = tiled_attention(**x, blocked=hidden, tile=tile)
    cuts = [slice(0, cut), slice(cut, 7)]
    parts = [
        tiled_attention(
            x["query"],
            x["key"][..., at, :],
            x["value"][..., at, :],
            blocked=hidden[:, at],
            tile=tile,
        )
        for at in cuts
    ]
    merged = merge_parts(*(torch.stack(found) for found in zip(*parts, strict=True)))
    finite = [lse.masked_fill(hidden.all(-1), 0) for lse in (merged[1], whole[1])]
    assert torch.equal(merged[1].isfinite(), whole[1].isfinite())
    assert_same(results([merged[0], finite[0]], x), results([whole[0], finite[1]], x))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_as_good_as_its_inputs(dtype):
    x = drawn(0, 50, 70, dtype)
    exact = F.scaled_dot_product_attention(*(t.double() for t in x.values()))
    output, lse = tiled_attention(**x, tile=16)
    assert (output.dtype, lse.dtype) == (dtype, torch.float32)
    torch.testing.assert_close(output.double(), exact, rtol=torch.finfo(dtype).eps, atol=1e-6)


def test_keeps_what_is_linear_in_n_and_computes_no_tile_that_the_causal_mask_hides():
    kept, made = {}, {}
    for n in (64, 128):
        x, sizes = drawn(0, n, n), []
        hooks = torch.autograd.graph.saved_tensors_hooks(
            lambda t, sizes=sizes: sizes.append(t.numel()) or t, lambda t: t
        )
        with hooks, torch.profiler.profile(record_shapes=True) as profile:
            tiled_attention(**x, is_causal=True, tile=16)
        kept[n] = sum(sizes)
        made[n] = [event.input_shapes for event in profile.events() if event.name == "aten::bmm"]
    assert kept[128] == 2 * kept[64]
    assert len(made[128]) == 2 * 8 * 9 // 2  # two products for each tile on and below the diagonal
