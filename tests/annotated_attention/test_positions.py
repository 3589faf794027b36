"""Positional encodings: the formula, layouts and widths, and what is kept in a checkpoint."""

import math

import pytest
import torch

from annotated_attention import LearnedPositionalEncoding, PositionalEncoding, sinusoidal_code

B, N, E = 2, 3, 6
KINDS = pytest.mark.parametrize("kind", [PositionalEncoding, LearnedPositionalEncoding])


@pytest.mark.parametrize("e", [1, 2, 6, 7])
def test_code_is_the_formula_of_the_paper(e):
    found = sinusoidal_code(11, e)
    assert found.shape == (11, e)
    for position in range(11):
        for i in range(e):
            angle = position / 10000 ** (2 * (i // 2) / e)
            expected = math.cos(angle) if i % 2 else math.sin(angle)
            assert found[position, i].item() == pytest.approx(expected, abs=1e-12)


@KINDS
@pytest.mark.parametrize("e", [E, E + 1], ids=["even", "odd"])
def test_adds_row_i_to_token_i_in_every_layout(kind, e):
    torch.manual_seed(0)
    x = torch.randn(B, N, e)
    first, last = (kind(e, 0.0, 10, batch_first) for batch_first in (True, False))
    first.table = last.table
    expected = x + last.table[:N]
    torch.testing.assert_close(first(x), expected)
    torch.testing.assert_close(last(x.transpose(0, 1)).transpose(0, 1), expected)
    for module in (first, last):
        torch.testing.assert_close(module(x[0]), expected[0])


@KINDS
def test_drops_from_the_sum_in_training_only(kind):
    torch.manual_seed(0)
    module, x = kind(E, 0.5, 10, True), torch.randn(B, N, E)
    assert module(x).eq(0).any()
    assert not module.eval()(x).eq(0).any()


def test_sines_are_no_parameter_and_fit_any_checkpoint():
    short, long = PositionalEncoding(E, max_len=5), PositionalEncoding(E, max_len=50)
    assert not list(short.parameters())
    assert not short.state_dict()
    long.load_state_dict(short.state_dict())
    torch.testing.assert_close(long.table[:5], short.table)
    assert short.to(torch.float64).table.dtype == torch.float64  # it moves with the module
    assert PositionalEncoding(E, dtype=torch.float64).table.dtype == torch.float64
    assert PositionalEncoding(E, device="meta").table.device.type == "meta"


def test_sines_are_exact_far_out():
    found = PositionalEncoding(E, max_len=100_001).table[100_000, 0].item()
    assert found == pytest.approx(math.sin(100_000), abs=1e-7)  # float32 angles are off by 1e-3


def test_learned_positions_learn_and_start_as_large_as_sines():
    torch.manual_seed(0)
    module = LearnedPositionalEncoding(64, 0.0, 200, batch_first=True)
    assert list(module.state_dict()) == ["table"]
    size = PositionalEncoding(64, max_len=200).table.square().mean().item()
    assert module.table.square().mean().item() == pytest.approx(size, rel=0.05)
    module(torch.zeros(B, N, 64)).sum().backward()
    assert module.table.grad[:N].eq(B).all()
    assert not module.table.grad[N:].any()
