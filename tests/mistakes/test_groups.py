"""Tiled groups are wrong where several heads of keys are shared, and nowhere else."""

import pytest
import torch

from annotated_attention import MultiheadAttention
from annotated_attention.mistakes import MISTAKES
from annotated_attention.modern import GroupedQueryAttention

B, N, H, D = 2, 5, 6, 4
E = H * D
CODE = "groups-tiled"
NEED_WEIGHTS = pytest.mark.parametrize("need_weights", [True, False], ids=["weights", "fused"])


def made(version, heads):
    torch.manual_seed(0)
    return version(E, H, heads, batch_first=True, dtype=torch.float64)


def tokens():
    source = torch.Generator().manual_seed(1)
    return torch.randn(B, N, E, generator=source, dtype=torch.float64)


@NEED_WEIGHTS
@pytest.mark.parametrize(("heads", "differs"), [(1, False), (2, True), (3, True), (H, False)])
def test_differs_where_it_should_and_only_there(heads, differs, need_weights):
    entry, x = MISTAKES[CODE], tokens()
    assert entry.of is GroupedQueryAttention
    right, wrong = (made(each, heads) for each in (entry.of, entry.version))
    wrong.load_state_dict(right.state_dict())
    for options in ({}, {"is_causal": True}):
        options["need_weights"] = need_weights
        found, expected = (module(x, x, x, **options)[0] for module in (wrong, right))
        assert found.shape == expected.shape
        assert torch.allclose(found, expected, rtol=0, atol=1e-9) != differs


@pytest.mark.parametrize("heads", [2, 3])
def test_it_is_right_with_the_heads_of_its_queries_in_another_order(heads):
    """Why nobody notices: some other weights make of it what the right version is."""
    right, wrong = (made(each, heads) for each in (GroupedQueryAttention, MISTAKES[CODE].version))
    wrong.load_state_dict(right.state_dict())
    order = torch.arange(H).view(heads, -1).mT.flatten()
    with torch.no_grad():
        rows = right.in_proj_weight[:E].unflatten(0, (H, D))
        wrong.in_proj_weight[:E] = rows[order].flatten(0, 1)
        columns = right.out_proj.weight.unflatten(1, (H, D))
        wrong.out_proj.weight.copy_(columns[:, order].flatten(1))
    x = tokens()
    torch.testing.assert_close(wrong(x, x, x)[0], right(x, x, x)[0])


def test_single_groups_are_the_final_class():
    wrong = made(MISTAKES[CODE].version, H)
    right = MultiheadAttention(E, H, batch_first=True, dtype=torch.float64)
    right.load_state_dict(wrong.state_dict())
    torch.testing.assert_close(wrong(*[tokens()] * 3), right(*[tokens()] * 3))
