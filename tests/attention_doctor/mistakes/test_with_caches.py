"""Mistakes of caches, windows, documents and sinks are wrong where the book says, only there."""

import pytest
import torch

from annotated_attention import MultiheadAttention
from annotated_attention.modern import (
    KVCache,
    PagedCache,
    RotaryEmbedding,
    StaticCache,
    WindowCache,
)
from attention_doctor.mistakes import MISTAKES

B, N, H, D = 2, 12, 4, 6
E = H * D
EXACT = {"dtype": torch.float64}
CHUNKS = {
    "at once": [12],
    "one by one": [1] * 12,
    "5 + 4 + 3": [5, 4, 3],
    "11 + 1": [11, 1],
    "1 + 11": [1, 11],
}
LATER = set(CHUNKS) - {"at once"}
SINGLE = {"one by one", "11 + 1", "1 + 11"}


def rotary(kind="default"):
    """Make a rotation that was trained on 8 tokens."""
    scaling = None if kind == "default" else {"rope_type": kind, "factor": 2.0}
    return {"rotary": RotaryEmbedding(D, scaling=scaling, max_length=8)}


# By mistake and way of making it: the arguments, and in which chunks it differs from the right
# version; and which is the first token that does where they come one by one.
CASES = {
    ("causal-at-the-wrong-corner", "unrotated"): (dict, LATER, 1),
    ("causal-at-the-wrong-corner", "rotary"): (rotary, LATER, 1),
    ("positions-restart", "unrotated"): (dict, set(), N),
    ("positions-restart", "rotary"): (rotary, LATER, 1),
    ("keys-cached-unrotated", "unrotated"): (dict, set(), N),
    ("keys-cached-unrotated", "rotary"): (rotary, LATER, 1),
    ("cache-zeros-attended", "unrotated"): (dict, SINGLE, 0),
    ("cache-zeros-attended", "rotary"): (rotary, SINGLE, 0),
    ("cached-keys-not-rescaled", "dynamic"): (lambda: rotary("dynamic"), LATER - {"1 + 11"}, 8),
    ("cached-keys-not-rescaled", "linear"): (lambda: rotary("linear"), set(), N),
}


def pair(code, **options):
    """Make the right version and the wrong one, with the same weights."""
    torch.manual_seed(0)
    kinds = (MISTAKES[code].of, MISTAKES[code].version)
    right, wrong = (kind(E, H, **options, batch_first=True, **EXACT) for kind in kinds)
    for x in right.parameters():
        torch.nn.init.normal_(x, std=0.4)
    wrong.load_state_dict(right.state_dict())
    return right, wrong


CACHES = {
    "grows": KVCache,
    "static": lambda: StaticCache(B, H, 15, D, **EXACT),
    "paged": lambda: PagedCache(9, 4, H, D, **EXACT),
}


def tokens():
    source = torch.Generator().manual_seed(1)
    return torch.randn(B, N, E, generator=source, dtype=torch.float64)


def outputs(module, cache, sizes):
    """Give each token's output in chunks."""
    return torch.cat([module(part, cache)[0] for part in tokens().split(sizes, 1)], 1)


def wholes(module, sizes, known):
    """Give each token's output in the whole text up to the end of its chunk, where not known."""
    ends = torch.tensor(sizes).cumsum(0).tolist()
    for end in {*ends} - known.keys():
        known[end] = module(tokens()[:, :end])[0]
    return torch.cat([known[end][:, end - n :] for end, n in zip(ends, sizes, strict=True)], 1)


@torch.no_grad()
@pytest.mark.parametrize(("code", "way"), CASES)
def test_differs_where_it_should_and_only_there(code, way):
    arguments, expected, first = CASES[code, way]
    right, wrong = pair(code, **arguments())
    known = {}, {}
    for kind, empty in CACHES.items():
        found = set()
        for chunks, sizes in CHUNKS.items():
            ours, theirs = (outputs(module, empty(), sizes) for module in (right, wrong))
            for module, texts in zip((right, wrong), known, strict=True):
                torch.testing.assert_close(wholes(module, sizes, texts), ours)
            off = (theirs - ours).abs().amax((0, 2)) > 1e-9
            if off.any():
                found.add(chunks)
            if chunks == "one by one" and found:
                assert off.tolist() == [i >= first for i in range(N)]
        shows = code != "cache-zeros-attended" or kind == "static"
        assert found == (expected if shows else set()), kind


@torch.no_grad()
@pytest.mark.parametrize("kind", ["dynamic", "linear"])
def test_keys_rotated_anew_cannot_mend_what_came_out_at_older_speeds(kind):
    """The chapter says so: with speeds that change, chunks differ from a single call."""
    layers = [pair("cached-keys-not-rescaled", **rotary(kind))[0] for _ in range(2)]
    kept, whole, last = [KVCache(), KVCache()], tokens(), tokens()[:, :-1]
    for layer, cache in zip(layers, kept, strict=True):
        last = layer(last, cache)[0]
        whole = layer(whole)[0]
    last = tokens()[:, -1:]
    for layer, cache in zip(layers, kept, strict=True):
        last = layer(last, cache)[0]
    off = (last - whole[:, -1:]).abs().max()
    assert (off > 1e-6) == (kind == "dynamic")


W = 4


@torch.no_grad()
@pytest.mark.parametrize("sinks", [0, 1])
@pytest.mark.parametrize("chunks", CHUNKS.values(), ids=CHUNKS)
def test_a_window_off_by_one_is_wrong_behind_the_first_window(chunks, sinks):
    right, wrong = pair("window-off-by-one", window=W, sinks=sinks, **rotary())
    found = outputs(wrong, KVCache(), chunks)
    off = (found - right(tokens())[0]).abs().amax((0, 2)) > 1e-9
    assert off.tolist() == [i >= W + sinks for i in range(N)]
    _, weights = wrong(tokens(), need_weights=True)
    seen = (weights[0, 0] > 0).sum(-1)
    assert seen.tolist() == [min(i + 1, W + 1 + sinks) for i in range(N)]


@torch.no_grad()
def test_a_rolling_cache_hides_it_from_tokens_that_come_one_by_one():
    """The key too many was dropped before; in a chunk it is still there."""
    right, wrong = pair("window-off-by-one", window=W)
    for chunks, first in (([1] * N, N), ([N], W)):
        found = outputs(wrong, WindowCache(W), chunks)
        off = (found - right(tokens())[0]).abs().amax((0, 2)) > 1e-9
        assert off.tolist() == [i >= first for i in range(N)]


DOCUMENTS = torch.tensor([[0] * 4 + [1] * 3 + [2] * 5, [4] * N])


@torch.no_grad()
def test_documents_leak_behind_the_first_of_a_row():
    right, wrong = pair("documents-leak")
    found, expected = (module(tokens(), DOCUMENTS)[0] for module in (wrong, right))
    off = (found - expected).abs().amax(-1) > 1e-9
    assert off.tolist() == [[i >= 4 for i in range(N)], [False] * N]


def test_a_sink_added_to_the_scores_does_nothing():
    right, wrong = pair("sink-added-to-scores")
    plain = MultiheadAttention(E, H, batch_first=True, **EXACT)
    plain.load_state_dict({x: y for x, y in right.state_dict().items() if x != "sinks"})
    x = tokens()
    expected, weights = plain(x, x, x)
    for module, does_nothing in ((wrong, True), (right, False)):
        found, shares = module(x, x, x)
        assert torch.allclose(found, expected) == does_nothing
        assert torch.allclose(shares.sum(-1), weights.sum(-1)) == does_nothing
        found.square().sum().backward()
        assert (module.sinks.grad.abs().max() < 1e-12) == does_nothing
