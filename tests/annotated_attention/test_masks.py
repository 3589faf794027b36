"""Masks, cell by cell."""

import pytest
import torch

from annotated_attention import as_blocked, block_future, block_padding
from tests.settings import B, M, N

T, X = True, False  # blocked, free
META = torch.device("meta")


@pytest.mark.parametrize(
    "make",
    [
        lambda: block_padding(torch.zeros(B, dtype=torch.int64, device="meta"), M),
        lambda: block_future(N, M, META),
    ],
    ids=["padding", "future"],
)
def test_masks_are_boolean_and_live_where_they_are_wanted(make):
    blocked = make()
    assert blocked.dtype == torch.bool
    assert blocked.is_meta


def test_what_true_means():
    allowed = torch.tensor([[1, 1, 0]])
    assert as_blocked(allowed, true_means="allowed").tolist() == [[X, X, T]]
    assert as_blocked(allowed, true_means="blocked").tolist() == [[T, T, X]]
    assert as_blocked(allowed.bool(), true_means="allowed").tolist() == [[X, X, T]]
