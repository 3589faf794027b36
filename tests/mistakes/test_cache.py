"""Mistakes with a cache stay wrong, and only where the book says: hardly ever at first."""

import functools

import pytest
import torch

from annotated_attention.mistakes import MISTAKES
from annotated_attention.modern import (
    CachedAttention,
    KVCache,
    PagedCache,
    RotaryEmbedding,
    StaticCache,
)

B, N, H, D = 2, 12, 4, 6
E, LONGEST = H * D, 15
CACHES = {
    "grows": KVCache,
    "static": lambda: StaticCache(B, H, LONGEST, D, dtype=torch.float64),
    "paged": lambda: PagedCache(9, 4, H, D, dtype=torch.float64),
}
CHUNKS = {
    "at once": [12], "one by one": [1] * 12, "5 + 4 + 3": [5, 4, 3], "11 + 1": [11, 1],
    "1 + 11": [1, 11],
}  # fmt: skip
LATER = set(CHUNKS) - {"at once"}
WHERE = {  # (how it is kept, whether positions rotate): in which chunks it differs
    "causal-at-the-wrong-corner": {(kind, rotated): LATER for kind in CACHES for rotated in (0, 1)},
    "positions-restart": {(kind, 1): LATER for kind in CACHES},
    "cache-zeros-attended": {
        ("static", rotated): {"one by one", "11 + 1", "1 + 11"} for rotated in (0, 1)
    },
    "keys-cached-unrotated": {(kind, 1): LATER for kind in CACHES},
}


@functools.cache
def output(version, kind, rotated, chunks):
    torch.manual_seed(0)
    rotary = RotaryEmbedding(D) if rotated else None
    module = version(E, H, batch_first=True, rotary=rotary, dtype=torch.float64)
    x, cache = torch.randn(B, N, E, dtype=torch.float64), CACHES[kind]()
    m = LONGEST if kind == "static" else None
    padding, made = torch.zeros(B, LONGEST, dtype=torch.bool), []
    padding[1, :2], end = True, 0
    with torch.no_grad():
        for part in x.split(CHUNKS[chunks], 1):
            end += part.size(1)
            made.append(module(part, cache, padding[:, : m or end])[0])
    return torch.cat(made, 1)


@pytest.mark.parametrize("rotated", [0, 1], ids=["unrotated", "rotary"])
@pytest.mark.parametrize("kind", CACHES)
@pytest.mark.parametrize("code", WHERE)
def test_differs_where_it_should_and_only_there(code, kind, rotated):
    version = MISTAKES[code].version
    found = set()
    for chunks in CHUNKS:
        ours, wrong = (output(x, kind, rotated, chunks) for x in (CachedAttention, version))
        assert wrong.shape == ours.shape
        if not torch.allclose(wrong, ours, rtol=0, atol=1e-9):
            found.add(chunks)
    assert found == WHERE[code].get((kind, rotated), set())


@pytest.mark.parametrize("code", WHERE)
def test_the_first_chunk_is_right_in_an_empty_cache_that_grows(code):
    sizes = {"5 + 4 + 3": 5, "11 + 1": 11}
    for chunks, first in sizes.items():
        for rotated in (0, 1):
            ours, wrong = (
                output(x, "grows", rotated, chunks)[:, :first]
                for x in (CachedAttention, MISTAKES[code].version)
            )
            torch.testing.assert_close(wrong, ours)


def test_they_are_all_here_and_compared_with_the_class_that_keeps():
    listed = {code for code, entry in MISTAKES.items() if entry.of is CachedAttention}
    assert listed == set(WHERE)


def test_at_the_wrong_corner_a_single_query_sees_key_0_alone():
    module = MISTAKES["causal-at-the-wrong-corner"].version(E, H, batch_first=True)
    x, cache = torch.randn(B, N, E), KVCache()
    module(x[:, :-1], cache)
    _, weights = module(x[:, -1:], cache, need_weights=True)
    assert weights[..., 0].eq(1).all()
    assert weights[..., 1:].eq(0).all()


def test_zeros_take_weight():
    module = MISTAKES["cache-zeros-attended"].version(E, H, batch_first=True)
    x, cache = torch.randn(B, 5, E), StaticCache(B, H, LONGEST, D)
    with torch.no_grad():
        module(x[:, :4], cache)
        _, weights = module(x[:, 4:], cache, need_weights=True)
    assert weights[..., 5:].gt(0).all()
