"""What the sources' own code does, where no cell of “Published code” shows it."""

import pytest
import torch
from torch import Tensor

from annotated_attention import sinusoidal_code


def positions(length: int, width: int, columns: list[int]) -> Tensor:
    """Compute the article's sinusoidal positions, (length, 1, width), sines in these columns."""
    angles = torch.arange(length)[:, None, None] * 10_000 ** (-torch.tensor(columns) / width)
    table = torch.zeros(length, 1, width)
    table[..., columns], table[..., 1::2] = angles.sin(), angles.cos()
    return table


def test_the_articles_positions() -> None:
    """Right at even widths for sequence-first data, and for nothing else."""
    even = positions(3, 8, [0, 2, 4, 6])
    torch.testing.assert_close(even[:, 0].double(), sinusoidal_code(3, 8), rtol=0, atol=1e-5)
    batch_first = torch.zeros(3, 5, 8) + even  # added by sample, and to all its tokens alike
    assert batch_first.equal(batch_first[:, :1].expand(3, 5, 8))
    assert not batch_first[0].equal(batch_first[1])
    with pytest.raises(RuntimeError, match="size"):
        positions(5, 7, [0, 2, 4, 6])
    with pytest.raises(IndexError):  # j up to the width, as printed, where 2j is meant
        positions(5, 8, [2 * j for j in range(8)])
