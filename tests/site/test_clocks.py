"""The clocks on their page: every hand where the code has it, and nothing that jumps."""

import re
from typing import Any

import pytest
import torch
from playwright.sync_api import expect

from annotated_attention import sinusoidal_code

PAGE = "/chapters/transformer/#fig-clocks"
CODE = sinusoidal_code(120, 8)
REACH = 0.92 * 48  # how long a hand is


def hands(figure: Any, colour: str) -> torch.Tensor:
    """Give where the hands of one colour point, as sine and cosine."""
    ends = figure.locator(f"line[stroke='var(--aa-{colour})']").evaluate_all(
        "lines => lines.map((x) => ['x1', 'x2', 'y1', 'y2'].map((n) => Number(x.getAttribute(n))))"
    )
    lines = torch.tensor(ends, dtype=torch.float64)
    return torch.stack([lines[:, 1] - lines[:, 0], lines[:, 2] - lines[:, 3]], 1).flatten() / REACH


def assert_shown(page: Any, position: int, distance: int) -> None:
    figure = page.locator("#fig-clocks")
    other = position + distance
    turned = ", ".join(f"{position / 10**i:.2f}" for i in range(4))
    status = figure.get_by_role("status")
    expect(status).to_contain_text(f"Position {position}: turned by {turned}.")
    product = (CODE[position] @ CODE[other]).item()
    expect(status).to_contain_text(f"Its dot product with position {other} is {product:.2f}.")
    torch.testing.assert_close(hands(figure, "n"), CODE[position], atol=1e-9, rtol=0)
    torch.testing.assert_close(hands(figure, "h"), CODE[other], atol=1e-9, rtol=0)
    names = [clock.get_attribute("aria-label") for clock in figure.get_by_role("img").all()]
    said = [re.findall(r"-?\d\.\d\d", name) for name in names if name.startswith("Clock")]
    assert [float(x) for pair in said for x in pair] == pytest.approx(CODE[position], abs=5.1e-3)


def test_follows_both_sliders_and_keeps_its_height(page: Any) -> None:
    figure = page.locator("#fig-clocks")
    position, distance = (figure.get_by_role("slider", name=n) for n in ("position", "distance"))
    assert_shown(page, 3, 2)
    heights = {figure.bounding_box()["height"]}
    product = figure.get_by_role("status").text_content().split(" is ")[1]
    for key, at in (("ArrowRight", 4), ("Home", 0), ("End", 99)):
        position.press(key)
        assert_shown(page, at, 2)
        assert figure.get_by_role("status").text_content().endswith(f" is {product}")
        heights.add(figure.bounding_box()["height"])
    distance.press("End")
    assert_shown(page, 99, 20)
    heights.add(figure.bounding_box()["height"])
    distance.press("Home")
    assert_shown(page, 99, 0)
    assert len(heights) == 1
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert figure.evaluate("figure => figure.scrollWidth <= figure.clientWidth")
