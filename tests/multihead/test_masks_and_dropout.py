"""What the weights are, cell by cell. Values are one-hot, so the output shows the weights."""

import pytest
import torch
from torch import nn

from annotated_attention import MultiheadAttention

B, N, M, H, D = 2, 3, 5, 4, 6
E = H * D
NEED_WEIGHTS = pytest.mark.parametrize("need_weights", [True, False], ids=["weights", "fused"])


def glass(**settings):
    """Make a module that shows its weights: W_V and W_O do nothing."""
    torch.manual_seed(0)
    module = MultiheadAttention(E, H, batch_first=True, dtype=torch.float64, **settings)
    with torch.no_grad():
        module.in_proj_weight[2 * E :] = torch.eye(E)
    module.out_proj = nn.Identity()
    return module


def look(module, need_weights=True, b=B, n=N, **options):
    """Return the weights of each head, (b, h, n, m), as they mixed the values."""
    torch.manual_seed(1)
    query, key = (torch.randn(b, size, E, dtype=torch.float64) for size in (n, M))
    one_hot = torch.eye(M, D, dtype=torch.float64).repeat(1, H).expand(b, M, E)
    torch.manual_seed(2)
    output, weights = module(query, key, one_hot, need_weights=need_weights, **options)
    used = output.unflatten(-1, (H, D)).transpose(1, 2)[..., :M]
    return (used, weights) if need_weights else (used, None)


def only(keys, *shape):
    """Block all keys but one."""
    blocked = torch.ones(*shape, M, dtype=torch.bool)
    return blocked.scatter(-1, keys.view(*shape, 1), False)


def form(blocked, kind):
    if kind == "boolean":
        return blocked
    return torch.zeros(blocked.shape, dtype=torch.float64).masked_fill(blocked, -torch.inf)


FORMS = pytest.mark.parametrize("kind", ["boolean", "float"])


@NEED_WEIGHTS
@FORMS
def test_true_blocks_and_what_is_left_gets_all(kind, need_weights):
    keys = torch.tensor([4, 0, 2])
    used, _ = look(glass(), need_weights, attn_mask=form(only(keys, N), kind))
    expected = torch.eye(M, dtype=torch.float64)[keys].expand(B, H, N, M)
    torch.testing.assert_close(used, expected)


@NEED_WEIGHTS
@FORMS
def test_padding_blocks_for_each_sample_its_own_keys(kind, need_weights):
    keys = torch.tensor([3, 1])
    used, _ = look(glass(), need_weights, key_padding_mask=form(only(keys, B), kind))
    expected = torch.eye(M, dtype=torch.float64)[keys][:, None, None].expand(B, H, N, M)
    torch.testing.assert_close(used, expected)


@NEED_WEIGHTS
@FORMS
def test_mask_i_times_h_plus_j_is_for_sample_i_and_head_j(kind, need_weights):
    keys = (torch.arange(B * H * N) * 7 % 11 % M).view(B * H, N)  # no two samples or heads alike
    used, weights = look(
        glass(), need_weights, attn_mask=form(only(keys, B * H, N), kind),
        average_attn_weights=False,
    )  # fmt: skip
    expected = torch.eye(M, dtype=torch.float64)[keys].unflatten(0, (B, H))
    assert len({tuple(rows.flatten().tolist()) for rows in keys}) == B * H
    torch.testing.assert_close(used, expected)
    if need_weights:
        torch.testing.assert_close(weights, expected)


@NEED_WEIGHTS
@FORMS
def test_without_a_batch_mask_j_is_for_head_j(kind, need_weights):
    keys = (torch.arange(H * N) * 7 % 11 % M).view(H, N)
    module = glass()
    torch.manual_seed(1)
    query, key = (torch.randn(size, E, dtype=torch.float64) for size in (N, M))
    one_hot = torch.eye(M, D, dtype=torch.float64).repeat(1, H)
    output, _ = module(
        query, key, one_hot, need_weights=need_weights, attn_mask=form(only(keys, H, N), kind)
    )
    used = output.unflatten(-1, (H, D)).transpose(0, 1)[..., :M]
    torch.testing.assert_close(used, torch.eye(M, dtype=torch.float64)[keys])


@NEED_WEIGHTS
@FORMS
def test_both_masks_and_the_causal_one_block(kind, need_weights):
    attention = torch.zeros(N, M, dtype=torch.bool)
    attention[2, 0] = True
    padding = torch.zeros(B, M, dtype=torch.bool)
    padding[1, 1] = True
    used, _ = look(
        glass(), need_weights, attn_mask=form(attention, kind),
        key_padding_mask=form(padding, kind), is_causal=True,
    )  # fmt: skip
    future = torch.tensor([[j > i for j in range(M)] for i in range(N)])
    blocked = (attention | future | padding[:, None, None]).expand(B, H, N, M)
    assert torch.equal(used == 0, blocked)
    torch.testing.assert_close(used.sum(-1), torch.ones(B, H, N, dtype=torch.float64))


@NEED_WEIGHTS
def test_floats_are_added_to_scaled_scores(need_weights):
    plain, _ = look(glass(), need_weights)
    added = torch.randn(B * H, N, M, dtype=torch.float64)
    padding = torch.randn(B, M, dtype=torch.float64)
    used, _ = look(glass(), need_weights, attn_mask=added, key_padding_mask=padding)
    scores = plain.log() + added.unflatten(0, (B, H)) + padding[:, None, None]
    torch.testing.assert_close(used, scores.softmax(-1))


def test_weights_are_those_that_mixed_the_values_and_average_over_heads():
    used, weights = look(glass(), average_attn_weights=False)
    torch.testing.assert_close(weights, used)
    assert not torch.allclose(used[:, 0], used[:, 1])
    torch.testing.assert_close(look(glass())[1], used.mean(1))


@NEED_WEIGHTS
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("masked", [False, True])
def test_dropout_zeroes_weights_at_its_rate_and_scales_the_rest(masked, p, need_weights):
    options = {"b": 30, "n": 30}
    if masked:
        options["attn_mask"] = only(torch.zeros(30, dtype=torch.long), 30).roll(2, 1)
        options["attn_mask"][:, 3:] = False
    kept, _ = look(glass(dropout=p).eval(), need_weights, **options)
    used, weights = look(glass(dropout=p), need_weights, **options, average_attn_weights=False)
    alive = kept != 0
    dropped = (used == 0) & alive
    assert abs(dropped.sum() / alive.sum() - p) < 0.02
    torch.testing.assert_close(used[~dropped], kept[~dropped] / (1 - p))
    rates = dropped.double().sum((0, 2)) / alive.double().sum((0, 2)).clamp(min=1)
    assert ((rates - p).abs()[alive.any(2).any(0)] < 0.1).all()  # in every head, for every key
    if need_weights:
        torch.testing.assert_close(weights, used)  # after dropout


@NEED_WEIGHTS
def test_each_call_drops_others(need_weights):
    module = glass(dropout=0.5)
    torch.manual_seed(3)
    x = torch.randn(B, N, E, dtype=torch.float64)
    first, second = (module(x, x, x, need_weights=need_weights)[0] for _ in range(2))
    assert not torch.equal(first, second)
    module.eval()
    first, second = (module(x, x, x, need_weights=need_weights)[0] for _ in range(2))
    assert torch.equal(first, second)
    module.train().dropout = 0.0  # read at every call
    torch.testing.assert_close(module(x, x, x, need_weights=need_weights)[0], first)


@NEED_WEIGHTS
def test_dropout_of_one_leaves_nothing(need_weights):
    used, _ = look(glass(dropout=1.0), need_weights)
    assert (used == 0).all()
    used, _ = look(glass(dropout=1.0).eval(), need_weights)
    torch.testing.assert_close(used.sum(-1), torch.ones(B, H, N, dtype=torch.float64))


def test_dropout_makes_rows_not_sum_to_one():
    _, weights = look(glass(dropout=0.5))
    assert ((weights.sum(-1) - 1).abs() > 1e-3).any()


@NEED_WEIGHTS
def test_masks_stay_as_they_are(need_weights):
    masks = [form(only(torch.tensor([4, 0, 2]), N), "float"), only(torch.tensor([3, 1]), B)]
    before = [mask.clone() for mask in masks]
    look(glass(), need_weights, attn_mask=masks[0], key_padding_mask=masks[1], is_causal=True)
    assert all(torch.equal(*both) for both in zip(masks, before, strict=True))
