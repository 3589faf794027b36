"""A row whose keys are all blocked is zeros before ``out_proj``, and every gradient is finite."""

import pytest
import torch

from annotated_attention import MultiheadAttention
from tests.settings import B, D, E, H, M, N

START = torch.tensor([[True, True, False, False, False], [False] * M])  # of sample 0, two padded
QUERY_1 = torch.zeros(N, M, dtype=torch.bool).index_fill(0, torch.tensor([1]), True)
ONE_HEAD = torch.zeros(B, H, N, M, dtype=torch.bool)
ONE_HEAD[0, 2, 1] = True
REST = ~START[0] & QUERY_1  # what the padding leaves to query 1 of sample 0


def floats(blocked):
    return torch.zeros(blocked.shape, dtype=torch.float64).masked_fill(blocked, -torch.inf)


# Each call, and the rows of sample, head and query that are fully masked in it.
KINDS = {
    "attn_mask": ({"attn_mask": QUERY_1}, (slice(None), slice(None), 1)),
    "float attn_mask": ({"attn_mask": floats(QUERY_1)}, (slice(None), slice(None), 1)),
    "attn_mask of one head": ({"attn_mask": ONE_HEAD.flatten(0, 1)}, (0, 2, 1)),
    "padding": ({"key_padding_mask": torch.tensor([[True] * M, [False] * M])}, (0,)),
    "both": ({"attn_mask": REST, "key_padding_mask": START}, (0, slice(None), 1)),
    "of two kinds": ({"attn_mask": floats(REST), "key_padding_mask": START}, (0, slice(None), 1)),
    "causal": ({"key_padding_mask": START, "is_causal": True}, (0, slice(None), slice(0, 2))),
}


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("kind", KINDS)
def test_a_fully_masked_row(kind, dropout, dtype, need_weights):
    torch.manual_seed(0)
    options, where = KINDS[kind]
    module = MultiheadAttention(E, H, dropout, batch_first=True, dtype=dtype)
    query, key = torch.randn(B, N, E, dtype=dtype), torch.randn(B, M, E, dtype=dtype)
    tensors = [x.requires_grad_() for x in (query, key)]
    mixed = []  # what goes into out_proj
    module.out_proj.register_forward_pre_hook(lambda _, x: mixed.append(x[0]))
    output, weights = module(
        query, key, key, **options, need_weights=need_weights, average_attn_weights=False
    )
    heads = mixed[0].unflatten(-1, (H, D)).transpose(1, 2)
    others = torch.ones(B, H, N, dtype=torch.bool)
    others[where] = False
    assert (heads[where] == 0).all()
    assert (heads[others] != 0).any(-1).double().mean() > 0.6  # dropout may empty a row
    if need_weights:
        assert (weights[where] == 0).all()
    output.float().square().sum().backward()
    assert all(x.grad.isfinite().all() for x in (*tensors, *module.parameters()))
    assert output.isfinite().all()
