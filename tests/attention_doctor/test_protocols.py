"""Caches are asked about where the callable says it has one."""

import pytest

from attention_doctor import examine
from tests.attention_doctor.mistakes_today import E, H, adapted, report


def wrong(found):
    return [finding.code for finding in found.findings if finding.severity == "wrong"]


# What the window is said to be, from where it hides, and what is wrong with it.
WINDOWS = [
    (0, "start - 2", []),
    (4, "start - 4", []),
    (9, "start - 9", []),
    (4, "start - 5", ["window-off-by-one"]),
    (9, "start - 10", ["window-off-by-one"]),
    (4, "start - 3", ["window-differs"]),
    (4, "-99", ["window-differs"]),
    (4, "-4", ["window-differs"]),  # by places in the chunk
]


@pytest.mark.parametrize(("window", "hides", "codes"), WINDOWS)
def test_a_window_is_no_mistake_but_of_another_width(window, hides, codes):
    attend = adapted("Rotary", [("triu(1 + start)", f"triu(1 + start) | pairs.tril({hides})")])
    attend.window = window
    found = examine(attend, embed_dim=E, num_heads=H, kind="causal")
    assert wrong(found) == codes
    assert found.results["cache"] == ("wrong" if hides == "-4" else "fine")


@pytest.mark.parametrize("side", ["queries", "keys"])
def test_the_side_that_stands_still_is_told(side):
    other = {"queries": "keys alone", "keys": "queries alone"}[side]
    (finding,) = report(other, says=()).findings
    assert finding.cause == f"the {side} are not rotated"


def test_nothing_is_asked_that_nobody_claims():
    found = report(name="Rotary", says=())
    assert "cache" not in found.results
    (line,) = (x for x in found.not_examined if "does not say" in x)
    assert line.startswith("cache: ")


def test_a_cache_that_cannot_be_made_is_a_finding():
    attend = adapted("Rotary")
    attend.start = lambda: 1 / 0
    found = examine(attend, embed_dim=E, num_heads=H, kind="causal")
    assert wrong(found) == ["fails"]
    assert "ZeroDivisionError" in found.findings[0].evidence
