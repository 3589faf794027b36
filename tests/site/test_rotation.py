"""The turning arrows on their page: the score follows the distance, and nothing else."""

from typing import Any

import torch
from playwright.sync_api import expect

from annotated_attention.modern import RotaryEmbedding

PAGE = "/chapters/positions/#fig-turning"
QUERY, KEY = torch.tensor([[1.0, 1.0]]).double(), torch.tensor([[3.0, 0.0]]).double()


def assert_shown(page: Any, key_at: int, distance: int) -> str:
    figure, rotary = page.locator("#fig-turning"), RotaryEmbedding(2)
    at = key_at + distance
    query, key = (rotary(x, torch.tensor([p])) for x, p in ((QUERY, at), (KEY, key_at)))
    number = f"{(query @ key.mT).item():.2f}".replace("-", "−")
    status = figure.get_by_role("status")
    expect(status).to_contain_text(f"it stands at {at}, cat at {key_at}: turned by {at}.00")
    expect(status).to_contain_text(f"At distance {distance} the score is {number}.")
    dial = figure.get_by_role("img").first
    said = ", ".join(f"{x:.2f}" for x in query[0].tolist())
    assert f"it at {at}: {said};" in dial.get_attribute("aria-label")
    return number


def test_follows_both_sliders_and_keeps_its_height(page: Any) -> None:
    figure = page.locator("#fig-turning")
    place, distance = (figure.get_by_role("slider", name=n) for n in ("cat at", "distance"))
    number = assert_shown(page, 1, 4)
    heights = {figure.bounding_box()["height"]}
    for key, at in (("ArrowRight", 2), ("Home", 0), ("End", 39)):
        place.press(key)
        assert assert_shown(page, at, 4) == number
        heights.add(figure.bounding_box()["height"])
    for key, away in (("ArrowRight", 5), ("End", 20), ("Home", 0)):
        distance.press(key)
        assert assert_shown(page, 39, away) != number
        heights.add(figure.bounding_box()["height"])
    assert len(heights) == 1
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert figure.evaluate("figure => figure.scrollWidth <= figure.clientWidth")
