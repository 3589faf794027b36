"""The strip at the top of each chapter."""

import pytest
from bs4 import BeautifulSoup

from annotated_attention import display


def test_lights_up_what_is_named():
    strip = display.chapter_map("score", "mix")
    steps = BeautifulSoup(strip.html, "html.parser").select("li")
    assert len(steps) == 8
    lit = [step.select_one(".aa-step > b").text for step in steps if step.get("aria-current")]
    assert lit == ["score", "mix"]
    assert "[score]" in strip.text
    assert " mask " in strip.text


def test_shapes_are_coloured():
    steps = BeautifulSoup(display.chapter_map().html, "html.parser").select("li code")
    assert all(step.select(".dim") for step in steps)


def test_unknown_step_is_refused():
    with pytest.raises(ValueError, match="step \\('scor'\\) must be one of project in, split"):
        display.chapter_map("scor")
