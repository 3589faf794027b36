"""Rotation and caches are asked about where the callable says it has them."""

import pytest

from attention_doctor import examine
from tests.attention_doctor.mistakes_today import E, H, adapted, report


def wrong(found):
    return [finding.code for finding in found.findings if finding.severity == "wrong"]


@pytest.mark.parametrize("window", [2, 4])
def test_a_window_is_no_mistake_of_a_cache(window):
    hidden = f"triu(1 + start) | pairs.tril(start - {window})"
    attend = adapted("Rotary", [("triu(1 + start)", hidden)])
    found = examine(attend, embed_dim=E, num_heads=H, kind="causal")
    assert wrong(found) == []
    assert found.results["cache"] == found.results["rotation"] == "fine"
    assert "sliding-window" in found.codes


@pytest.mark.parametrize("side", ["queries", "keys"])
def test_the_side_that_stands_still_is_told(side):
    other = {"queries": "keys alone", "keys": "queries alone"}[side]
    (finding,) = report(other, says=("at_positions",)).findings
    assert finding.cause == f"the {side} are not rotated"


@pytest.mark.parametrize("flaw", ["positions-restart", "unrotated keys"])
def test_a_position_that_stands_still_is_found_without_positions_to_ask_for(flaw):
    assert wrong(report(flaw, says=("start", "step"))) == ["cache-differs"]


def test_nothing_is_asked_that_nobody_claims():
    found = report(name="Rotary", says=())
    assert not {"rotation", "cache"} & {*found.results}
    (line,) = (x for x in found.not_examined if "does not say" in x)
    assert line.startswith("rotation, cache: ")


def test_a_cache_that_cannot_be_made_is_a_finding():
    attend = adapted("Rotary")
    attend.start = lambda: 1 / 0
    found = examine(attend, embed_dim=E, num_heads=H, kind="causal")
    assert wrong(found) == ["fails"]
    assert "ZeroDivisionError" in found.findings[0].evidence
