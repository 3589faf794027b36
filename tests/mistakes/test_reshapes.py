"""Mistakes that keep every shape stay wrong, and wrong in the way that the book says."""

import pytest
import torch

from annotated_attention import merge_heads, scaled_dot_product_attention, split_heads
from annotated_attention.mistakes.reshapes import (
    MergeWithoutTranspose,
    SplitWithoutTranspose,
    merge_without_transpose,
    split_without_transpose,
)

B, H, N, D = 2, 4, 6, 5
WAYS = {
    "right": (split_heads, merge_heads),
    "wrong merge": (split_heads, merge_without_transpose),
    "wrong split": (split_without_transpose, merge_without_transpose),
}


def attention(way, is_causal):
    """Self-attention with random projections, split and merged in this way."""
    split, merge = WAYS[way]
    source = torch.Generator().manual_seed(1)
    matrices = torch.randn(4, H * D, H * D, generator=source, dtype=torch.float64) / (H * D) ** 0.5

    def attend(x):
        q, k, v = (split(x @ matrix, H) for matrix in matrices[:3])
        heads, _ = scaled_dot_product_attention(q, k, v, is_causal=is_causal)
        return merge(heads) @ matrices[3]

    return attend


def tokens(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


@pytest.mark.parametrize("batch", [(), (B,), (B, 3)], ids=str)
def test_shapes_and_numbers_are_those_of_the_right_version(batch):
    x = tokens(*batch, N, H * D)
    right, wrong = split_heads(x, H), split_without_transpose(x, H)
    assert right.shape == wrong.shape
    assert torch.equal(right.flatten().sort().values, wrong.flatten().sort().values)
    assert not torch.equal(right, wrong)
    merged, mixed_up = merge_heads(right), merge_without_transpose(right)
    assert merged.shape == mixed_up.shape
    assert torch.equal(merged.flatten().sort().values, mixed_up.flatten().sort().values)
    assert not torch.equal(merged, mixed_up)


def test_samples_of_a_batch_stay_apart():
    x = tokens(B, N, H * D)
    for function in (
        lambda x: split_without_transpose(x, H),
        lambda x: merge_without_transpose(split_heads(x, H)),
    ):
        assert torch.equal(function(x)[1], function(x[1]))


def test_wrong_there_and_wrong_back_is_nothing():
    x = tokens(N, H * D)
    there = split_without_transpose(x, H)
    assert torch.equal(merge_without_transpose(there), x)


@pytest.mark.parametrize(("way", "leaks"), [("right", 0), ("wrong merge", 11), ("wrong split", 0)])
def test_leaks_of_the_future(way, leaks):
    jacobian = torch.autograd.functional.jacobian(attention(way, True), tokens(N, H * D))
    assert (jacobian.abs().amax((1, 3)).triu(1) > 1e-12).sum() == leaks


@pytest.mark.parametrize("way", WAYS)
def test_prefix_and_permutation(way):
    x, order = tokens(N, H * D), torch.tensor([3, 0, 5, 1, 4, 2])
    causal, free = attention(way, True), attention(way, False)
    prefix = (causal(x)[:4] - causal(x[:4])).abs().max()
    moved = (free(x[order]) - free(x)[order]).abs().max()
    if way == "right":
        assert max(prefix, moved) < 1e-12
    else:
        assert min(prefix, moved) > 0.1


@pytest.mark.parametrize(
    ("wrong", "way"),
    [(MergeWithoutTranspose, "wrong merge"), (SplitWithoutTranspose, "wrong split")],
)
def test_classes_make_the_mistake_of_the_functions(wrong, way):
    torch.manual_seed(3)
    module = wrong(H * D, H, bias=False, batch_first=True, dtype=torch.float64)
    split, merge = (split_without_transpose, merge_heads) if way == "wrong split" else WAYS[way]
    x = tokens(B, N, H * D)
    q, k, v = (split(x @ matrix.mT, H) for matrix in module.in_proj_weight.chunk(3))
    heads, _ = scaled_dot_product_attention(q, k, v, is_causal=True)
    found, _ = module(x, x, x, is_causal=True)
    torch.testing.assert_close(found, merge(heads) @ module.out_proj.weight.mT)
