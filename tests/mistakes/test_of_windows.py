"""Mistakes of windows, documents and sinks are wrong where the book says, and nowhere else."""

import pytest
import torch

from annotated_attention import MultiheadAttention
from annotated_attention.mistakes import MISTAKES
from annotated_attention.modern import (
    KVCache,
    RotaryEmbedding,
    WindowCache,
)

B, N, H, D, W = 2, 9, 4, 6, 4
E = H * D
EXACT = {"batch_first": True, "dtype": torch.float64}


def pair(code, *given, **options):
    """Make the right version and the wrong one, with the same weights."""
    torch.manual_seed(0)
    versions = (MISTAKES[code].of, MISTAKES[code].version)
    right, wrong = (version(E, H, *given, **options, **EXACT) for version in versions)
    wrong.load_state_dict(right.state_dict())
    return right, wrong


def tokens(n=N):
    return torch.randn(B, n, E, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@torch.no_grad()
@pytest.mark.parametrize("sinks", [0, 1])
@pytest.mark.parametrize("chunks", [[N], [1] * N, [4, 3, 2]], ids=str)
def test_a_window_off_by_one_is_wrong_behind_the_first_window(chunks, sinks):
    right, wrong = pair("window-off-by-one", W, sinks=sinks, rotary=RotaryEmbedding(D))
    cache = KVCache()
    found = torch.cat([wrong(part, cache)[0] for part in tokens().split(chunks, 1)], 1)
    off = (found - right(tokens())[0]).abs().amax((0, 2)) > 1e-9
    assert off.tolist() == [i >= W + sinks for i in range(N)]
    _, weights = wrong(tokens(), need_weights=True)
    seen = (weights[0, 0] > 0).sum(-1)
    assert seen.tolist() == [min(i + 1, W + 1 + sinks) for i in range(N)]


@torch.no_grad()
def test_a_rolling_cache_hides_it_from_tokens_that_come_one_by_one():
    """The key too many was dropped before; in a chunk it is still there."""
    right, wrong = pair("window-off-by-one", W)
    for chunks, first in (([1] * N, N), ([N], W)):
        cache = WindowCache(W)
        found = torch.cat([wrong(part, cache)[0] for part in tokens().split(chunks, 1)], 1)
        off = (found - right(tokens())[0]).abs().amax((0, 2)) > 1e-9
        assert off.tolist() == [i >= first for i in range(N)]


DOCUMENTS = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 2, 2], [4] * 9])


@torch.no_grad()
def test_documents_leak_behind_the_first_of_a_row():
    right, wrong = pair("documents-leak")
    found, expected = (module(tokens(), DOCUMENTS)[0] for module in (wrong, right))
    off = (found - expected).abs().amax(-1) > 1e-9
    assert off.tolist() == [[i >= 4 for i in range(N)], [False] * N]


def test_a_sink_added_to_the_scores_does_nothing():
    right, wrong = pair("sink-added-to-scores")
    plain = MultiheadAttention(E, H, **EXACT)
    plain.load_state_dict({x: y for x, y in right.state_dict().items() if x != "sinks"})
    x = tokens()
    expected, weights = plain(x, x, x)
    for module, does_nothing in ((wrong, True), (right, False)):
        found, shares = module(x, x, x)
        assert torch.allclose(found, expected) == does_nothing
        assert torch.allclose(shares.sum(-1), weights.sum(-1)) == does_nothing
        found.square().sum().backward()
        assert (module.sinks.grad.abs().max() < 1e-12) == does_nothing
