"""In 16 bits: large numbers in masks, the same with weights and without, and as in 32 bits."""

import pytest
import torch

from annotated_attention import MultiheadAttention, merge_masks
from annotated_attention.attention import masked_softmax
from tests.settings import B, E, H, M, N

HALVES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
NEED_WEIGHTS = pytest.mark.parametrize("need_weights", [True, False], ids=["weights", "fused"])


def call(dtype, need_weights, **masks):
    """Compute in a dtype, from the same numbers, which all dtypes can hold; queries are far off."""
    torch.manual_seed(0)
    module = MultiheadAttention(E, H, batch_first=True).bfloat16().to(dtype)
    torch.nn.init.ones_(module.out_proj.bias)
    query, key = 8 * torch.randn(B, N, E).bfloat16(), torch.randn(B, M, E).bfloat16()
    query, key = query.to(dtype), key.to(dtype)
    return module(query, key, key, need_weights=need_weights, **masks)[0]


@HALVES
@NEED_WEIGHTS
@pytest.mark.parametrize("where", ["attn_mask", "key_padding_mask"])
@pytest.mark.parametrize("value", [-100.0, -1e4, -1e9, torch.finfo(torch.float32).min])
def test_a_large_number_is_not_minus_infinity(value, where, need_weights, dtype):
    """A row that holds nothing else is not masked: a number added to all scores changes nothing."""
    mask = torch.zeros(N, M) if where == "attn_mask" else torch.zeros(B, M)
    mask[0], mask[1, 2] = value, value
    found = call(dtype, need_weights, **{where: mask})
    assert found.isfinite().all()
    other = call(dtype, not need_weights, **{where: mask})
    torch.testing.assert_close(found, other, rtol=0.02, atol=0.02)
    if value > -1e6:  # a larger one leaves nothing of the scores in 32 bits, either
        expected = call(torch.float32, need_weights, **{where: mask})
        torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=0.05)


@HALVES
def test_the_least_number_over_a_whole_row_is_the_same_with_weights(dtype):
    mask = torch.zeros(N, M, dtype=dtype)
    mask[1] = torch.finfo(dtype).min
    with_weights, without = (call(dtype, x, attn_mask=mask) for x in (True, False))
    assert with_weights.isfinite().all()
    torch.testing.assert_close(with_weights, without, rtol=0.02, atol=0.02)


def test_minus_infinity_stays_what_it_is():
    mask = torch.tensor([-torch.inf, -1e9, 0.0, 1e9])
    _, bias = merge_masks(mask, dtype=torch.float16)
    assert bias.tolist() == [-torch.inf, -65504, 0, 65504]
    assert merge_masks(bias, dtype=torch.float64)[1].tolist() == bias.tolist()


def test_scores_below_the_least_number_give_weights():
    """The sum would be minus infinity in 16 bits, and the softmax of such a row NaN."""
    scores = torch.tensor([[-40.0, -41.0]]).half()
    bias = torch.full((1, 2), torch.finfo(torch.float16).min).half()
    weights = masked_softmax(scores, bias=bias)
    assert weights.dtype == torch.float16
    torch.testing.assert_close(weights, scores.softmax(-1), rtol=0.01, atol=0.01)
