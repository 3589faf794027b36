"""Masks, cell by cell."""

import pytest
import torch

from annotated_attention import (
    as_blocked,
    block_future,
    block_others,
    block_padding,
)
from tests.settings import B, M, N

T, X = True, False  # blocked, free


def test_future_is_what_stands_right_of_the_diagonal():
    assert block_future(3).tolist() == [[X, T, T], [X, X, T], [X, X, X]]
    assert block_future(2, 4).tolist() == [[X, T, T, T], [X, X, T, T]]
    assert block_future(4, 2).tolist() == [[X, T], [X, X], [X, X], [X, X]]
    assert block_future(0).shape == (0, 0)


def test_others_are_what_stands_outside_the_own_block():
    assert block_others([]).shape == (0, 0)
    for sizes in ([3, 0, 2], [5], [1, 1, 1, 1, 1]):
        owner = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
        assert torch.equal(block_others(sizes), owner[:, None] != owner)


@pytest.mark.parametrize(
    "make", [block_padding, block_future, block_others], ids=lambda f: f.__name__
)
def test_masks_are_boolean_and_live_where_they_are_wanted(make):
    meta = torch.device("meta")
    arguments = {
        block_padding: (torch.zeros(B, dtype=torch.int64, device=meta), M),
        block_future: (N, M, meta),
        block_others: ([N, M], meta),
    }
    blocked = make(*arguments[make])
    assert blocked.dtype == torch.bool
    assert blocked.is_meta


def test_what_true_means():
    allowed = torch.tensor([[1, 1, 0]])
    assert as_blocked(allowed, true_means="allowed").tolist() == [[X, X, T]]
    assert as_blocked(allowed, true_means="blocked").tolist() == [[T, T, X]]
    assert as_blocked(allowed.bool(), true_means="allowed").tolist() == [[X, X, T]]
