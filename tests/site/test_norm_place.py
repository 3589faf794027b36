"""The norm's place on its page: both orders, every depth, and the numbers of the chapter."""

import json
import re
from typing import Any

from playwright.sync_api import expect

PAGE = "/chapters/transformer-layers/#fig-norm-place"
PARTS = {
    "post-LN": ["attention", "norm", "feed-forward", "norm"],
    "pre-LN": ["norm", "attention", "norm", "feed-forward"],
}


def three(number: float) -> str:
    """Write a number with three digits, as the figure does."""
    return f"{number:#.3g}".rstrip(".")


def assert_shown(page: Any, order: str, depth: int) -> None:
    figure = page.locator("#fig-norm-place")
    data = json.loads(figure.locator("..").get_attribute("data-state"))
    at = data["depths"].index(depth)
    status = figure.get_by_role("status")
    expect(status).to_contain_text(f"{order}, {depth} layers.")
    for name, rows in data["measured"]:
        row = rows[order][at]
        assert len(row) == depth
        said = f"{name}: {three(row[0])} in the first layer, {three(row[-1])} in the last."
        expect(status).to_contain_text(said)
    layer = figure.get_by_role("img", name=f"A {order} layer: {', '.join(PARTS[order])}.")
    expect(layer).to_be_visible()
    assert layer.locator("rect + text").all_text_contents() == PARTS[order]
    for other in set(PARTS) - {order}:
        expect(figure.locator(f"svg[aria-label^='A {other} layer']").last).to_be_hidden()
        button = figure.get_by_role("button", name=other)
        expect(button).to_have_attribute("aria-pressed", "false")
    expect(figure.get_by_role("button", name=order)).to_have_attribute("aria-pressed", "true")
    chosen = figure.locator("path[data-chosen=true]")
    assert [
        d.count("L") for d in chosen.evaluate_all("all => all.map((x) => x.getAttribute('d'))")
    ] == [depth - 1] * 2


def test_switches_the_order_and_the_depth(page: Any) -> None:
    figure = page.locator("#fig-norm-place")
    layers = figure.get_by_role("slider", name="layers")
    assert_shown(page, "post-LN", 24)
    heights = {figure.bounding_box()["height"]}
    for order in ("pre-LN", "post-LN"):
        button = figure.get_by_role("button", name=order)
        button.focus()
        page.keyboard.press("Enter")
        assert_shown(page, order, 24)
        for key, depth in (("Home", 6), ("ArrowRight", 12), ("End", 24)):
            layers.press(key)
            assert_shown(page, order, depth)
            heights.add(figure.bounding_box()["height"])
    assert len(heights) == 1
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert figure.evaluate("figure => figure.scrollWidth <= figure.clientWidth")


def test_a_norm_stands_on_the_stream_or_beside_it(page: Any) -> None:
    figure = page.locator("#fig-norm-place")
    for order, parts in PARTS.items():
        figure.get_by_role("button", name=order).click()
        layer = figure.get_by_role("img", name=f"A {order} layer")
        stream = layer.locator("path[stroke='var(--aa-m)']").first.get_attribute("d")
        height, end = re.fullmatch(r"M0 (\d+)H(\d+)", stream).groups()
        middles = layer.locator("rect").evaluate_all(
            "all => all.map((x) => Number(x.getAttribute('y')) + x.getAttribute('height') / 2)"
        )
        on_stream = [middle == float(height) for middle in middles]
        assert on_stream == [part == "norm" and order == "post-LN" for part in parts]
        assert (end == "316") == (order == "pre-LN"), "only there it leads to the end"


def test_the_picture_without_scripts(browser: Any, served: Any) -> None:
    page = browser.new_page(java_script_enabled=False)
    page.goto(served[0] + PAGE)
    picture = page.locator("#fig-norm-place > svg")
    expect(picture).to_be_visible()
    for order, parts in PARTS.items():
        assert f"A {order} layer: {', '.join(parts)}." in picture.get_attribute("aria-label")
    expect(page.locator("#fig-norm-place button")).to_have_count(0)
    page.close()
