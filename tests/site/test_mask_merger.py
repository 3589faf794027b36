"""The mask merger on the built page of its chapter: by mouse, keyboard and touch, and still."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from playwright.sync_api import expect
from torch import Tensor

from annotated_attention import chapters, masks
from annotated_attention.display.live_figures.mask_merger import written

PAGE = "/chapters/masks/"
WORDS = [["the", "cat", "drank", "the", "milk"], ["it", "was", "sweet", "·", "·"]]


@pytest.fixture(scope="module")
def visit(browser: Any, served: Any) -> Iterator[Any]:
    """Open the chapter's figure; at the end, check that nothing failed."""
    problems: list[str] = []

    def visit(**options: Any) -> Any:
        page = browser.new_page(**{"viewport": {"width": 1280, "height": 900}} | options)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.goto(served[0] + PAGE, wait_until="domcontentloaded")
        figure = page.locator("#fig-mask-merger")
        figure.scroll_into_view_if_needed()
        if options.get("java_script_enabled", True):
            expect(figure.get_by_role("status")).to_have_text(
                "All 10 queries keep at least one key."
            )
        return figure

    yield visit
    assert problems == []


@pytest.fixture(scope="module")
def desktop(visit: Any) -> Any:
    return visit(reduced_motion="reduce")


@pytest.fixture
def figure(desktop: Any) -> Any:
    desktop.get_by_role("button", name="Start again").click()
    return desktop


def expected(lengths: list[int], pairs: Tensor | None = None, fill: float = -math.inf) -> list[str]:
    """Compute the weights of both samples, as they are written."""
    one = chapters.load("01_one_head")
    rows = [one.embed([word for word in words if word != "·"]).double() for words in WORDS]
    x = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    blocked = masks.block_padding(torch.tensor(lengths), 5)[:, None]
    blocked = blocked if pairs is None else blocked | pairs
    weights = (x @ x.mT / 2).masked_fill(blocked, fill).softmax(-1)
    return [written(weight) for weight in weights.flatten().tolist()]


def weights(figure: Any) -> list[str]:
    return figure.locator(".aa-merged td span").all_text_contents()


def marks(figure: Any) -> list[str]:
    return figure.locator(".aa-merged td small").all_text_contents()


def token(figure: Any, word: str, key: int, sample: int) -> Any:
    return figure.get_by_role("button", name=f"{word}, key {key} of sample {sample}")


def cell(figure: Any, query: int, key: int) -> Any:
    return figure.get_by_role("button", name=f"query {query}, key {key}")


def shapes(figure: Any) -> list[str]:
    return figure.locator(".aa-shapes tbody td").all_text_contents()


def height(figure: Any) -> float:
    return figure.bounding_box()["height"]


CAUSAL = masks.block_future(5)


def test_still_without_scripts(visit: Any) -> None:
    figure = visit(java_script_enabled=False)
    expect(figure.get_by_role("img")).to_be_visible()
    texts = figure.locator("svg text").all_text_contents()
    numbers = [text for text in texts if text.startswith((".", "0", "1"))]
    assert numbers == expected([5, 3], CAUSAL)


def test_tokens_are_padded_and_fates_chosen(figure: Any) -> None:
    status = figure.get_by_role("status")
    expect(status).to_have_text("As at the start. All 10 queries keep at least one key.")
    expect(figure.locator(":scope > svg")).to_be_hidden()
    high = height(figure)
    assert weights(figure) == expected([5, 3], CAUSAL)
    padding = masks.block_padding(torch.tensor([5, 3]), 5)[:, None].expand(2, 5, 5)
    both = zip(padding.flatten(), CAUSAL.expand(2, 5, 5).flatten(), strict=True)
    assert marks(figure) == ["p" * int(p) + "a" * int(a) for p, a in both]

    token(figure, "milk", 4, 0).click()
    expect(token(figure, "milk", 4, 0)).to_have_attribute("aria-pressed", "true")
    expect(status).to_contain_text("“milk”, key 4 of sample 0, is padding now. All 10 queries")
    assert weights(figure) == expected([4, 3], CAUSAL)
    for key, word in enumerate(WORDS[0][:4]):
        token(figure, word, key, 0).click()
    expect(status).to_contain_text("5 of 10 queries keep at least one key. Fully masked: ")
    expect(status).to_contain_text("“the” (query 0 of sample 0) and 4 more.")
    expect(figure.locator(".aa-empty")).to_have_count(5)
    assert weights(figure) == expected([0, 3], CAUSAL)
    fate = figure.get_by_role("combobox", name="a fully masked row gets")
    fate.select_option("uniform")
    assert weights(figure) == expected([0, 3], CAUSAL, fill=-1e9)
    fate.select_option("zeros")
    assert weights(figure) == ["0"] * 25 + expected([0, 3], CAUSAL)[25:]
    assert height(figure) == high

    token(figure, "·", 3, 1).click()  # padding becomes a word
    expect(status).to_contain_text("“·”, key 3 of sample 1, is a word now.")
    assert weights(figure)[25:] == expected([0, 4], CAUSAL)[25:]
    figure.get_by_role("button", name="Start again").click()
    expect(fate).to_have_value("NaN")
    assert weights(figure) == expected([5, 3], CAUSAL)


def test_masks_for_the_pairs_and_their_shapes(figure: Any) -> None:
    kind = figure.get_by_role("combobox", name="attn_mask")
    strip = ["(b, m) = (2, 5)", "(b, 1, 1, m) = (2, 1, 1, 5)"]
    given = ["(n, m) = (5, 5)", "(1, 1, n, m) = (1, 1, 5, 5)"]
    last = ["", "(b, h, n, m) = (2, 1, 5, 5)"]
    assert shapes(figure) == [*strip, *given, "", "(b, 1, n, m) = (2, 1, 5, 5)", *last]
    kind.select_option("None")
    expect(figure.get_by_role("status")).to_contain_text("attn_mask is None now.")
    assert shapes(figure) == [*strip, "None", "None", "", "(b, 1, 1, m) = (2, 1, 1, 5)", *last]
    assert weights(figure) == expected([5, 3])
    cell(figure, 1, 2).click()
    expect(kind).to_have_value("drawn")
    assert shapes(figure)[5] == "(b, 1, n, m) = (2, 1, 5, 5)"
    pairs = torch.zeros(5, 5, dtype=torch.bool)
    pairs[1, 2] = True
    assert weights(figure) == expected([5, 3], pairs)

    mouse = figure.page.mouse  # a stroke from row 3 to row 4 blocks what it passes
    for query, key in ((3, 0), (3, 1), (4, 1)):
        box = cell(figure, query, key).bounding_box()
        mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        if not pairs[3].any():
            mouse.down()
        pairs[query, key] = True
    mouse.up()
    expect(figure.get_by_role("status")).to_contain_text("Query 4 may not see key 1.")
    assert weights(figure) == expected([5, 3], pairs)
    kind.select_option("causal")
    assert weights(figure) == expected([5, 3], CAUSAL)
    kind.select_option("drawn")  # what was drawn is kept
    assert weights(figure) == expected([5, 3], pairs)


def test_by_keyboard(figure: Any) -> None:
    keyboard, status = figure.page.keyboard, figure.get_by_role("status")
    cell(figure, 0, 0).focus()
    keyboard.press("Shift+Tab")
    expect(figure.get_by_role("combobox", name="attn_mask")).to_be_focused()
    keyboard.press("Tab")
    expect(cell(figure, 0, 0)).to_be_focused()
    for key in ("ArrowUp", "ArrowDown", "ArrowRight", "ArrowDown", "ArrowLeft", "ArrowRight"):
        keyboard.press(key)
    expect(cell(figure, 2, 1)).to_be_focused()
    keyboard.press("Space")
    expect(status).to_contain_text("Query 2 may not see key 1.")
    expect(cell(figure, 2, 1)).to_have_attribute("aria-pressed", "true")
    keyboard.press("Enter")
    expect(status).to_contain_text("Query 2 sees key 1.")
    keyboard.press("Tab")
    expect(token(figure, "the", 0, 0)).to_be_focused()
    keyboard.press("Space")
    expect(status).to_contain_text("9 of 10 queries keep at least one key.")
    keyboard.press("Shift+Tab")
    expect(cell(figure, 2, 1)).to_be_focused()


def test_by_touch_on_a_phone(visit: Any) -> None:
    figure = visit(viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    high = height(figure)
    cell(figure, 4, 0).tap()
    expect(figure.get_by_role("status")).to_contain_text("Query 4 may not see key 0.")
    for key, word in enumerate(WORDS[1][:3]):
        token(figure, word, key, 1).tap()
    expect(figure.get_by_role("status")).to_contain_text("and 4 more")
    assert height(figure) == high
    assert figure.evaluate("figure => figure.scrollWidth <= figure.clientWidth")
    assert figure.evaluate("figure => figure.getBoundingClientRect().right <= 360")
