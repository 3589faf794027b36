"""Attention of today, ours, is right; and each mistake in it is found under its name."""

import pytest
import torch

from annotated_attention.mistakes import MISTAKES
from annotated_attention.modern import (
    CachedAttention,
    GroupedQueryAttention,
    KVCache,
    PagedCache,
    RotaryAttention,
    RotaryEmbedding,
    StaticCache,
)
from attention_doctor import adapters, examine

E, H, B = 24, 4, 2


def cached(version=CachedAttention, make=KVCache, rotary=True):
    """Let a class with a cache say what it can do."""
    torch.manual_seed(0)
    turn = RotaryEmbedding(E // H) if rotary else None
    module = version(E, H, batch_first=True, rotary=turn)
    attend = adapters.Adapted(module, module)

    def at_positions(x, positions):
        q, k, v = (y.unflatten(-1, (H, -1)).transpose(1, 2) for y in module._project(x, x, x))
        q, k = module.rotary(q, positions), module.rotary(k, positions)
        scores = (q @ k.mT / (E // H) ** 0.5).masked_fill(
            torch.ones(len(positions), len(positions)).triu(1) > 0, float("-inf")
        )
        return module.out_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    attend.start, attend.step = make, lambda x, cache: module(x, cache)[0]
    if rotary:
        attend.at_positions = at_positions
    return examine(attend, embed_dim=E, num_heads=H, kind="causal")


def static():
    return StaticCache(B, H, 16, E // H, dtype=torch.float64)


def paged():
    return PagedCache(64, 4, H, E // H, dtype=torch.float64)


@pytest.mark.parametrize("make", [KVCache, static, paged])
@pytest.mark.parametrize("rotary", [True, False])
def test_our_caches_are_right(make, rotary):
    found = cached(make=make, rotary=rotary)
    assert found.ok, str(found)
    assert found.results["cache"] == "fine"
    assert found.results.get("rotation") == ("fine" if rotary else None)


OF_CACHES = [code for code, mistake in MISTAKES.items() if mistake.of is CachedAttention]


@pytest.mark.parametrize("code", OF_CACHES)
def test_mistakes_with_a_cache_are_named(code):
    found = cached(MISTAKES[code].version, static)
    assert [x.code for x in found.findings if x.severity == "wrong"] == [code]
    (finding,) = (x for x in found.findings if x.code == code)
    assert finding.test == "cache"
    assert finding.remedy


def rotated(version):
    torch.manual_seed(0)
    module = version(E, H, batch_first=True)
    attend = adapters.torch_like(module, "causal")
    turn = module.rotary.forward

    def at_positions(x, positions):
        module.rotary.forward = lambda y, _: turn(y, positions)
        try:
            return attend(x)[0]
        finally:
            module.rotary.forward = turn

    attend.at_positions = at_positions
    return examine(attend, embed_dim=E, num_heads=H, kind="causal")


def test_our_rotation_is_right():
    found = rotated(RotaryAttention)
    assert found.ok, str(found)
    assert found.results["rotation"] == "fine"


def test_rotating_one_side_is_named():
    assert "rotates-one-side" in rotated(MISTAKES["rotates-one-side"].version).codes


def test_the_other_layout_is_right_in_itself():
    """Only weights that were trained for one layout make the other one wrong."""
    assert rotated(MISTAKES["rotation-layout-mixed"].version).ok


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("wrong", [True, False])
def test_grouped_heads(groups, wrong):
    torch.manual_seed(0)
    version = MISTAKES["groups-tiled"].version if wrong else GroupedQueryAttention
    module = version(E, H, groups, batch_first=True)
    found = examine(adapters.torch_like(module, "causal"), embed_dim=E, num_heads=H, kind="causal")
    told = ["groups-tiled"] if wrong and groups == 2 else []
    assert [x.code for x in found.findings if x.severity == "wrong"] == told
