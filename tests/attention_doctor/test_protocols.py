"""Rotation, caches, windows and packing are asked about where the callable says it has them."""

import pytest

from attention_doctor import adapters, examine
from tests.attention_doctor.served import E, H, Served, report


def wrong(found):
    return [finding.code for finding in found.findings if finding.severity == "wrong"]


@pytest.mark.parametrize("window", [None, 2, 4])
@pytest.mark.parametrize("rotary", [True, False])
def test_right_ones_are_right(window, rotary):
    found = report(window=window, rotary=rotary, says=("start", "step", "packed"))
    assert wrong(found) == []
    asked = ["cache", "packing"] + ["window"] * bool(window)
    assert [found.results[name] for name in asked] == ["fine"] * len(asked)
    assert ("sliding-window" in found.codes) == bool(window)
    assert report(window=window, says=("at_positions",)).results["rotation"] == "fine"


@pytest.mark.parametrize("side", ["queries", "keys"])
def test_the_side_that_stands_still_is_told(side):
    other = {"queries": "keys alone", "keys": "queries alone"}[side]
    (finding,) = report(other, ("at_positions",)).findings
    assert finding.cause == f"the {side} are not rotated"


@pytest.mark.parametrize("flaw", ["position 0", "unrotated keys"])
def test_a_position_that_stands_still_is_found_without_positions_to_ask_for(flaw):
    assert "positions-restart" in wrong(report(flaw, ("start", "step")))


@pytest.mark.parametrize(("flaw", "said"), [("one too many", 4), ("one too few", 2)])
def test_a_window_has_the_width_that_it_claims(flaw, said):
    found = report(flaw, (), window=3)
    assert wrong(found) == ["window-off-by-one"]
    assert f"{said} wide" in found.findings[0].symptom


def test_a_window_of_another_width_is_no_matter_of_counting():
    module = Served(window=2)
    attend = adapters.Adapted(module, module)
    attend.window = 5
    found = examine(attend, embed_dim=E, num_heads=H, kind="causal")
    assert wrong(found) == ["window-of-another-width"]


def test_nothing_is_asked_that_nobody_claims():
    module = Served()
    module.window = 4  # means something else in a module
    found = examine(lambda x: module(x), embed_dim=E, num_heads=H, kind="causal")
    assert not {"rotation", "cache", "window", "packing"} & {*found.results}
    (line,) = (x for x in found.not_examined if "does not say" in x)
    assert line.startswith("rotation, cache, window, packing: ")
    assert "window" not in examine(module, embed_dim=E, num_heads=H, kind="causal").results


def test_a_cache_that_cannot_be_made_is_a_finding():
    module = Served()
    attend = adapters.Adapted(module, module)
    attend.start, attend.step = (lambda: 1 / 0), module.step
    found = examine(attend, embed_dim=E, num_heads=H, kind="causal")
    assert wrong(found) == ["fails"]
    assert "ZeroDivisionError" in found.findings[0].evidence
