"""Rotation and caches are asked about where the callable says it has them."""

import pytest

from attention_doctor import adapters, examine
from tests.attention_doctor.served import E, H, Served, report


def wrong(found):
    return [finding.code for finding in found.findings if finding.severity == "wrong"]


@pytest.mark.parametrize("window", [None, 2, 4])
@pytest.mark.parametrize("rotary", [True, False])
def test_right_ones_are_right(window, rotary):
    found = report(window=window, rotary=rotary, says=("start", "step"))
    assert wrong(found) == []
    assert found.results["cache"] == "fine"
    assert ("sliding-window" in found.codes) == bool(window)
    assert report(window=window, says=("at_positions",)).results["rotation"] == "fine"


@pytest.mark.parametrize("side", ["queries", "keys"])
def test_the_side_that_stands_still_is_told(side):
    other = {"queries": "keys alone", "keys": "queries alone"}[side]
    (finding,) = report(other, ("at_positions",)).findings
    assert finding.cause == f"the {side} are not rotated"


@pytest.mark.parametrize("flaw", ["position 0", "unrotated keys"])
def test_a_position_that_stands_still_is_found_without_positions_to_ask_for(flaw):
    assert wrong(report(flaw, ("start", "step"))) == ["cache-differs"]


def test_nothing_is_asked_that_nobody_claims():
    module = Served()
    found = examine(lambda x: module(x), embed_dim=E, num_heads=H, kind="causal")
    assert not {"rotation", "cache"} & {*found.results}
    (line,) = (x for x in found.not_examined if "does not say" in x)
    assert line.startswith("rotation, cache: ")


def test_a_cache_that_cannot_be_made_is_a_finding():
    module = Served()
    attend = adapters.Adapted(module, module)
    attend.start, attend.step = (lambda: 1 / 0), module.step
    found = examine(attend, embed_dim=E, num_heads=H, kind="causal")
    assert wrong(found) == ["fails"]
    assert "ZeroDivisionError" in found.findings[0].evidence
