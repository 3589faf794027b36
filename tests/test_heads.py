"""Splitting and merging heads, cell by cell."""

import pytest
import torch

from annotated_attention import merge_heads, split_heads
from tests.settings import B, D, H, N


@pytest.mark.parametrize("batch", [(), (B,), (B, 5)], ids=str)
def test_split_puts_every_feature_where_it_belongs(batch):
    x = torch.arange(torch.Size((*batch, N, H * D)).numel()).view(*batch, N, H * D)
    heads = split_heads(x, H)
    assert heads.shape == (*batch, H, N, D)
    for head in range(H):
        assert torch.equal(heads[..., head, :, :], x[..., head * D : (head + 1) * D])


def test_merge_lines_the_heads_up_in_order():
    heads = torch.randn(B, H, N, D)
    assert torch.equal(merge_heads(heads), torch.cat(heads.unbind(1), dim=-1))


def test_split_is_a_view():
    x = torch.randn(N, H * D)
    assert split_heads(x, H).data_ptr() == x.data_ptr()
