"""The figure of heads at work, in a browser: layer, head and token can be chosen."""

import re

import pytest
from playwright.sync_api import expect

from annotated_attention import display
from book.site import SITE

WORDS = ["one", "<b>", "three"]
MAPS = [
    [[[80, 15, 5], [0, 100, 0], [33, 33, 34]], [[1, 2, 97], [60, 0, 40], [0, 0, 100]]],
    [[[10, 20, 70], [5, 5, 90], [100, 0, 0]], [[0, 50, 50], [9, 9, 82], [40, 30, 30]]],
]


def frame(name, maps, keys):
    still = display.finish(display.panels(300, 200)[0], name=name, alt="Still.")
    start = [len(maps) - 1, 1, 0]
    data = {"maps": maps, "queries": WORDS, "keys": keys, "start": start}
    return display.live(still, "heads_at_work", data).html


@pytest.fixture(scope="module")
def page(browser, served):
    address, extra = served
    text = (SITE / "notation" / "index.html").read_text(encoding="utf-8")
    cross = [[[row[:2] for row in head] for head in MAPS[0]]]  # one layer, two keys
    frames = frame("many", MAPS, WORDS) + frame("cross", cross, ["x", "y"])
    extra["/heads/"] = re.sub(r"(<article[^>]*>)", rf"\1{frames}", text, count=1)
    problems = []
    page = browser.new_page(viewport={"width": 1000, "height": 1600})
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
    page.goto(f"{address}/heads/")
    yield page
    page.close()
    del extra["/heads/"]
    assert problems == []


def figure(page, name):
    return page.locator(f"#fig-{name}")


def test_layer_head_and_token(page):
    shown = figure(page, "many")
    status = shown.get_by_role("status")
    expect(status).to_have_text("layer 2, head 2: “one” looks at <b> (0.50), three (0.50)")
    shown.get_by_role("slider", name="layer").press("ArrowLeft")
    expect(status).to_have_text("layer 1, head 2: “one” looks at three (0.97)")
    shown.get_by_role("slider", name="head").press("ArrowLeft")
    expect(status).to_have_text("layer 1, head 1: “one” looks at one (0.80), <b> (0.15)")
    token = shown.get_by_role("slider", name="token")
    token.press("ArrowRight")
    expect(status).to_have_text("layer 1, head 1: “<b>” looks at <b> (1.00)")
    expect(token).to_have_attribute("aria-valuetext", "<b>")
    lines = shown.get_by_role("img", name="layer 1, head 1: <b> looks at <b> (1.00).")
    numbers = [text for text in lines.locator("text").all_text_contents() if "." in text]
    assert numbers == ["0.00", "1.00", "0.00"]
    widths = lines.locator("path[stroke='var(--aa-h)']").evaluate_all(
        "lines => lines.map((line) => Number(line.getAttribute('stroke-width')).toFixed(1))"
    )
    assert sorted(widths) == ["0.4", "0.4", "12.4"]


def test_a_click_on_a_row_chooses_its_token(page):
    shown = figure(page, "many")
    cells = shown.get_by_role("img", name="a row per query").locator(".aa-weight")
    assert cells.count() == 9
    cells.nth(6).click()
    expect(shown.get_by_role("status")).to_contain_text("“three” looks at")
    expect(shown.get_by_role("slider", name="token")).to_have_value("2")


def test_one_layer_and_other_keys_than_queries(page):
    shown = figure(page, "cross")
    expect(shown.get_by_role("slider")).to_have_count(2)
    expect(shown.get_by_role("status")).to_have_text("head 2: “one” looks at y (0.02)")
    assert shown.locator(".aa-stage .aa-weight").count() == 6
