"""The figure of saturation on its page: every control, every number, nothing that jumps."""

import re
from typing import Any

import torch
from playwright.sync_api import expect

from annotated_attention import chapters

PAGE = "/chapters/one-head/#fig-why-root-d"  # in a fold, which its address opens
TALL = 106  # how far the highest bar reaches

one = chapters.load("01_one_head")


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]


def expected(d: int, by: float, query: int) -> list[float]:
    """Give the numbers of the readout."""
    scores = one.products(d).double().round(decimals=3) / by
    deviation, size, _ = one.measure(scores)
    share, key = scores[query].softmax(-1).max(-1)
    return [round(deviation, 2), round(size, 3), query + 1, round(share.item(), 2), key.item() + 1]


def assert_shown(page: Any, d: int, name: str, by: float, query: int) -> None:
    figure = page.locator("#fig-why-root-d")
    status = figure.get_by_role("status")
    expect(status).to_contain_text(f"Width {d}, scores divided by {name}: they deviate by")
    said = status.text_content().split(": ")[1]
    assert numbers(said) == expected(d, by, query)
    # The panels: the bars are as high as the weights, and the name of each says its numbers.
    weights = (one.products(d).double().round(decimals=3) / by)[query].softmax(-1)
    bars = figure.locator("rect[fill='var(--aa-d)']")
    heights = bars.evaluate_all("bars => bars.map((bar) => Number(bar.getAttribute('height')))")
    torch.testing.assert_close(torch.tensor(heights).double() / TALL, weights, atol=1e-6, rtol=0)
    deviation, size = expected(d, by, query)[:2]
    panels = figure.locator(".aa-panels").get_by_role("img")
    names = [panel.get_attribute("aria-label") for panel in panels.all()]
    assert names[0].startswith(f"Histogram: the scores deviate by {deviation:.2f};")
    assert f"Query {query + 1} gives {weights[0]:.2f} to key 1, " in names[1]
    assert f" {size:.3f} at {d}" in names[2]
    expect(figure.locator("text[font-weight=bold]")).to_have_text(f"{size:.3f}")


def test_begins_as_the_picture_and_follows_the_keyboard(page: Any) -> None:
    figure = page.locator("#fig-why-root-d")
    slider = {name: figure.get_by_role("slider", name=name) for name in ("width d", "divide by")}
    assert_shown(page, 64, "√d = 8", 8, 10)
    still = figure.locator("> svg").get_attribute("aria-label")
    deviation, size, query, share, key = expected(64, 8, 10)
    assert f"deviate by {deviation:.2f}, query {query} gives {share:.2f} to key {key}," in still
    assert f"{size:.3f} at 64" in still

    slider["width d"].press("ArrowRight")
    expect(slider["divide by"]).to_have_attribute("aria-valuetext", "√d = 11.3")
    assert_shown(page, 128, "√d = 11.3", 128**0.5, 10)
    slider["divide by"].press("ArrowLeft")
    assert_shown(page, 128, "8.35", 128 ** (7 / 16), 10)
    slider["width d"].press("End")
    slider["divide by"].press("Home")
    figure.get_by_role("slider", name="query").press("ArrowRight")
    assert_shown(page, 256, "1", 1, 11)
    deviation, size, *_ = expected(256, 1, 11)
    assert deviation > 10, "the scores spread, undivided"
    assert size < 0.01, "and nothing comes back"


def test_marks_are_pressed_and_nothing_jumps(page: Any) -> None:
    figure = page.locator("#fig-why-root-d")
    widths, queries = (figure.get_by_role("slider", name=n) for n in ("width d", "query"))
    widths.press("Home")
    heights = set()
    for name, said, by in (("1", "1", 1), ("d", "d = 4", 4), ("√d", "√d = 2", 2)):
        mark = figure.get_by_role("button", name=f"divide by {name}", exact=True)
        mark.focus()
        page.keyboard.press("Enter")
        expect(mark).to_have_attribute("aria-pressed", "true")
        assert figure.locator("[aria-pressed=true]").count() == 1
        slider = figure.get_by_role("slider", name="divide by")
        expect(slider).to_have_attribute("aria-valuetext", said)
        for end in ("End", "Home"):
            widths.press(end)
            queries.press(end)
            heights.add(figure.locator(".aa-panels").bounding_box()["height"])
        assert_shown(page, 4, said, by, 0)
    assert len(heights) == 1
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert figure.evaluate("figure => figure.scrollWidth <= figure.clientWidth")
