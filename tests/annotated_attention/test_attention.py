"""Both paths of scaled dot-product attention against plain loops, PyTorch's, and each other."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from annotated_attention import block_future, scaled_dot_product_attention
from tests.settings import REPRODUCIBLE, B, D, H, M, N, assert_same, results

D_V = 7
NEED_WEIGHTS = pytest.mark.parametrize("need_weights", [True, False], ids=["plain", "fused"])
SHAPES = [None, (N, M), (B, 1, 1, M), (B, H, N, M)]


def inputs(*batch, seed=0):
    """Make query, key and value."""
    source = torch.Generator().manual_seed(seed)
    sizes = [(*batch, N, D), (*batch, M, D), (*batch, M, D_V)]
    return [torch.randn(x, generator=source, dtype=torch.float64).requires_grad_() for x in sizes]


def random_masks(blocked_shape, bias_shape, fully_masked=False, seed=1):
    """Make both kinds of masks; together they may leave nothing to a query."""
    source, blocked, bias = torch.Generator().manual_seed(seed), None, None
    if blocked_shape is not None:
        blocked = torch.rand(blocked_shape, generator=source) < 0.4
        blocked[..., -1, :] |= fully_masked
    if bias_shape is not None:
        bias = torch.randn(bias_shape, generator=source, dtype=torch.float64)
        bias = bias.masked_fill(torch.rand(bias_shape, generator=source) < 0.4, -math.inf)
        bias.requires_grad_()
    return blocked, bias


def by_hand(query, key, value, blocked, bias, scale):
    """Follow the formula with one query and one key at a time."""
    weights = torch.zeros(*query.shape[:-1], key.size(-2), dtype=query.dtype)
    scale = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    for *index, i in itertools.product(*map(range, query.shape[:-1])):
        powers = {}
        for j in range(key.size(-2)):
            if blocked is None or not blocked.expand(weights.shape)[*index, i, j]:
                score = scale * float(query[*index, i] @ key[*index, j])
                added = 0.0 if bias is None else float(bias.expand(weights.shape)[*index, i, j])
                powers[j] = math.exp(score + added)
        for j, power in powers.items():
            weights[*index, i, j] = power / sum(powers.values()) if power else 0.0
    return weights @ value, weights


@settings(REPRODUCIBLE, max_examples=60)
@given(
    st.sampled_from(SHAPES),
    st.sampled_from(SHAPES),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, 0.7]),
    st.integers(0, 9),
)
def test_follows_the_formula(blocked_shape, bias_shape, is_causal, fully_masked, scale, seed):
    tensors = inputs(B, H, seed=seed)
    blocked, bias = random_masks(blocked_shape, bias_shape, fully_masked, seed)
    options = {"blocked": blocked, "bias": bias, "is_causal": is_causal, "scale": scale}
    future = block_future(N, M) if is_causal else torch.zeros(N, M, dtype=torch.bool)
    hidden = future if blocked is None else future | blocked
    with torch.no_grad():
        expected = by_hand(*tensors, hidden, bias, scale)
    output, weights = scaled_dot_product_attention(*tensors, **options)
    torch.testing.assert_close((output.detach(), weights.detach()), expected)
    fused, none = scaled_dot_product_attention(*tensors, **options, need_weights=False)
    assert none is None
    sources = dict(zip(("query", "key", "value", "bias"), (*tensors, bias), strict=True))
    sources = {name: x for name, x in sources.items() if x is not None}
    assert_same(results([fused], sources), results([output], sources))
    assert all(x.isfinite().all() for x in results([output, weights], sources).values())


@NEED_WEIGHTS
@pytest.mark.parametrize("batch", [(), (B,), (B, H, 2)], ids=str)
def test_any_number_of_leading_axes(batch, need_weights):
    query, key, value = (x.detach() for x in inputs(*batch))
    output, _ = scaled_dot_product_attention(query, key, value, need_weights=need_weights)
    assert output.shape == (*batch, N, D_V)
    torch.testing.assert_close(output, by_hand(query, key, value, None, None, None)[0])
    shared, _ = scaled_dot_product_attention(
        query, key[(0,) * len(batch)], value[(0,) * len(batch)], need_weights=need_weights
    )
    assert shared.shape == output.shape  # keys without the leading axes are those of all


@NEED_WEIGHTS
def test_values_may_have_leading_axes_of_their_own(need_weights):
    query, key, value = (x.detach() for x in inputs())
    values = torch.stack([value, 2 * value])
    blocked, _ = random_masks((N, M), None)
    output, _ = scaled_dot_product_attention(
        query, key, values, blocked=blocked, need_weights=need_weights
    )
    expected, _ = scaled_dot_product_attention(query, key, value, blocked=blocked)
    torch.testing.assert_close(output, torch.stack([expected, 2 * expected]))


@NEED_WEIGHTS
def test_a_causal_hint_of_none_is_none(need_weights):
    tensors = inputs(B, H)
    found, expected = (
        scaled_dot_product_attention(*tensors, is_causal=x, need_weights=need_weights)
        for x in (None, False)
    )
    torch.testing.assert_close(found, expected)


@NEED_WEIGHTS
def test_dropout_zeroes_some_weights_and_scales_the_rest(need_weights):
    query, key, _ = (x.detach() for x in inputs(B, H))
    value = torch.eye(M, dtype=torch.float64).expand(B, H, M, M)  # the output is the weights
    kept, _ = scaled_dot_product_attention(query, key, value, need_weights=need_weights)
    torch.manual_seed(4)
    dropped, weights = scaled_dot_product_attention(
        query, key, value, need_weights=need_weights, dropout_p=0.25
    )
    gone = dropped == 0
    assert 0.1 < gone.double().mean() < 0.4
    torch.testing.assert_close(dropped[~gone], kept[~gone] / 0.75)
    if need_weights:
        torch.testing.assert_close(weights, dropped)  # returned after dropout
    output, _ = scaled_dot_product_attention(
        query, key, value, need_weights=need_weights, dropout_p=1.0
    )
    assert not output.any()  # a probability of 1 leaves nothing, and is allowed
