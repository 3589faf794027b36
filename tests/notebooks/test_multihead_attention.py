"""Multi-head attention: a row of its table beside PyTorch's class that is wrong is found out."""

import pytest
import torch
from torch import nn

from annotated_book import chapters
from annotated_book.exercises import short_path

# As easily written as the row, and no error where all sizes are equal.
SLIPS = {
    "padding, (b, m)": ("padding", "key_padding_mask=padding"),
    "pairs of all samples, (n, m)": ("pairs", "attn_mask=pairs"),
    "both": ("padding[:, None] | pairs", "key_padding_mask=padding, attn_mask=pairs.mT"),
    "pairs of each sample, (b, n, m)": ("each", "attn_mask=each.repeat(h, 1, 1)"),
    "nothing": ("pairs[None]", "attn_mask=None"),
}


@pytest.fixture(name="called")
def fixture_called():
    torch.manual_seed(0)
    mine = short_path.check_attention.right(24, 4)
    theirs = nn.MultiheadAttention(24, 4, batch_first=True)
    packed = (mine.w_q, mine.w_k, mine.w_v)
    theirs.in_proj_weight.data = torch.cat([layer.weight for layer in packed])
    theirs.in_proj_bias.data = torch.cat([layer.bias for layer in packed])
    theirs.out_proj = mine.w_o
    each = torch.rand(4, 4, 4) < 0.5  # (b, n, m)
    each[..., 0] = False
    padding = torch.arange(4) >= torch.tensor([[4], [2], [3], [1]])  # (b, m)
    given = {"padding": padding, "pairs": each[1], "each": each, "h": 4}
    return (mine, theirs), torch.randn(3, 4, 4, 24), given


def test_each_row_of_the_table_is_right_and_a_slip_in_it_is_not(called):
    seven = chapters.load("07_multihead_attention")
    assert set(SLIPS) == set(seven.MASKS)
    for name, row in seven.MASKS.items():
        assert seven.agree(*row, *called), name
        assert not seven.agree(*SLIPS[name], *called), name
