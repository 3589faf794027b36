"""Where every number goes, on the built page of its chapter: by mouse, by keyboard, by touch."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from playwright.sync_api import expect

from annotated_attention import merge_heads, split_heads
from annotated_attention.mistakes.reshapes import merge_without_transpose, split_without_transpose

PAGE = "/chapters/reshape-trick/"


@pytest.fixture
def visit(browser: Any, served: Any) -> Iterator[Any]:
    """Open the page and give the figure; afterwards, check that no script failed."""
    problems: list[str] = []
    contexts = []

    def visit(**options: Any) -> Any:
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
        page.goto(served[0] + PAGE)
        figure = page.locator("#fig-where-numbers-go")
        figure.scroll_into_view_if_needed()
        expect(figure.locator(".aa-stage")).to_be_visible()
        return figure

    yield visit
    for context in contexts:
        context.close()
    assert problems == []


def shown(figure: Any) -> list[list[str]]:
    """Give what the cells of every step say; those of a step that is left out say nothing."""
    return figure.locator(".aa-slabs").evaluate_all(
        "steps => steps.map((step) => "
        "[...step.querySelectorAll('.aa-lane > span')].map((cell) => cell.textContent))"
    )


def spelled(numbers: torch.Tensor, width: int) -> list[str]:
    return [f"{i // width + 1}{'abcdefghijklmnop'[i % width]}" for i in numbers.flatten().tolist()]


def expected(n: int, h: int, d: int, split: bool, merge: bool) -> tuple[list[list[str]], int]:
    """Give what torch puts into the cells, and how many of them in a wrong place."""
    x = torch.arange(n * h * d).view(n, h * d)  # (n, h * d)
    heads = split_heads(x, h) if split else split_without_transpose(x, h)  # (h, n, d)
    result = merge_heads(heads) if merge else merge_without_transpose(heads)  # (n, h * d)
    steps = [(x, x), (x, x), (heads, split_heads(x, h)), (merge_heads(heads), x), (result, x)]
    made = [True, split, True, merge, True]
    astray = [int((step != right).sum()) for step, right in steps]
    return (
        [
            spelled(s, h * d) if m else [""] * x.numel()
            for (s, _), m in zip(steps, made, strict=True)
        ],
        sum(many for many, m in zip(astray, made, strict=True) if m),
    )


def lit(figure: Any) -> list[str]:
    return figure.locator(".aa-lit").all_text_contents()


def transpose(figure: Any, tick: str) -> Any:
    return figure.get_by_role("checkbox", name=f"transpose in the {tick}")


def set_to(figure: Any, **sizes: int) -> None:
    for name, size in sizes.items():
        figure.get_by_role("slider", name=name).fill(str(size))


def test_begins_with_the_picture_and_shows_each_of_its_ways(visit: Any) -> None:
    figure = visit()
    status = figure.get_by_role("status")
    told = figure.locator("> svg").get_attribute("aria-label")
    ways = {"the right way": [], "wrong split": ["split"], "both wrong": ["merge"]}
    for way, ticks in {**ways, "wrong merge": ["split"]}.items():
        for tick in ticks:
            transpose(figure, tick).click()
        expect(status).to_contain_text(f"Step 5 of 5, {way}. Heads:")
        picture = re.search(
            rf"(?:^|; ){way.removeprefix('the ').removesuffix(' way')}: head 1 holds ([^;]*)", told
        )
        numbers = re.sub(r", head 2|, the result", "", picture[1]).split()
        steps = shown(figure)
        assert [*steps[2], *steps[4]] == numbers
        assert lit(figure) == ["2c"] * (5 - figure.get_by_text("left out").count())


def test_other_sizes(visit: Any) -> None:
    figure = visit()
    for n, h, d, tick in (
        (5, 4, 4, None),
        (2, 3, 1, "split"),
        (5, 1, 3, "merge"),
        (4, 3, 2, "split"),
    ):
        set_to(figure, tokens=n, heads=h, width=d)
        if tick:
            transpose(figure, tick).click()
        split, merge = (transpose(figure, tick).is_checked() for tick in ("split", "merge"))
        labels, astray = expected(n, h, d, split, merge)
        assert shown(figure) == labels
        assert figure.locator(".aa-astray").count() == astray
        names = figure.get_by_role("gridcell").evaluate_all(
            "cells => cells.map((cell) => cell.getAttribute('aria-label'))"
        )
        assert sum(name.endswith(", a wrong place") for name in names) == astray
        assert len(set(lit(figure))) == 1, "the number that is followed stays within the sizes"


def test_pointing_lights_a_number_and_moves_nothing(visit: Any) -> None:
    figure = visit()
    transpose(figure, "merge").uncheck()
    where = (
        "figure => [figure, ...figure.querySelectorAll('.aa-stage, .aa-steps *')].map((e) => "
        "Object.values(e.getBoundingClientRect().toJSON()))"
    )
    before = figure.evaluate(where)
    for name in ("token 3, feature a, now head 1", "token 1, feature d, now row 2, column 4"):
        figure.get_by_role("gridcell", name=name).hover()
        number = f"{name[6]}{name[17]}"
        assert lit(figure) == [number] * 4
        assert figure.evaluate(where) == before
    places = figure.locator(".aa-place").all_text_contents()
    assert places[2:] == ["1d: head 2, row 1, column 2", "\u00a0", "1d: row 2, column 4"]


def test_by_keyboard(visit: Any) -> None:
    figure = visit()
    page = figure.page
    figure.get_by_role("slider", name="width").press("Tab")
    focused = page.locator(":focus")
    expect(focused).to_have_accessible_name("token 2, feature c, now row 2, column 3")
    for key, name in {
        "ArrowDown": "token 3, feature c, now row 3, column 3",
        "Tab": "token 3, feature c, now token 3, row 2, column 1",
        "ArrowUp": "token 3, feature a, now token 3, row 1, column 1",
        "ArrowLeft": "token 2, feature b, now token 2, row 1, column 2",
    }.items():
        page.keyboard.press(key)
        expect(focused).to_have_accessible_name(name)
    assert lit(figure) == ["2b"] * 5
    page.keyboard.press("Tab")
    expect(focused).to_have_accessible_name("transpose in the split")
    page.keyboard.press("Space")
    expect(figure.get_by_role("status")).to_contain_text("wrong split")
    expect(focused).to_have_accessible_name("transpose in the split")
    page.keyboard.press("Tab")
    expect(focused).to_have_accessible_name(
        "token 2, feature b, now head 1, row 3, column 2, a wrong place"
    )
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Shift+Tab")  # past the step that is left out
    expect(focused).to_have_accessible_name("token 2, feature b, now row 2, column 2")


def test_steps(visit: Any) -> None:
    figure = visit()
    height = figure.bounding_box()["height"]
    step = figure.get_by_role("slider", name="step")
    for up_to, said in ((4, "Heads: all in place."), (3, "Heads: all"), (2, ""), (1, "")):
        step.press("ArrowLeft")
        expect(step).to_have_attribute("aria-valuetext", f"{up_to} of 5")
        expect(figure.get_by_role("status")).to_have_text(
            re.compile(f"^Step {up_to} of 5.*{said}", re.DOTALL)
        )
        assert figure.get_by_role("grid").count() == up_to  # the others are not to be seen
        assert figure.bounding_box()["height"] == height


def test_on_a_phone(visit: Any) -> None:
    figure = visit(viewport={"width": 360, "height": 740}, has_touch=True, color_scheme="dark")
    page = figure.page
    cell = figure.get_by_role("gridcell", name="token 3, feature d, now head 2")
    cell.tap()
    assert lit(figure) == ["3d"] * 5
    set_to(figure, tokens=5, heads=4, width=4)
    for tick in ("split", "merge"):
        transpose(figure, tick).tap()
    expect(figure.get_by_role("status")).to_contain_text("both wrong. Heads: 72 of 80 numbers")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert figure.evaluate("figure => figure.scrollWidth <= figure.clientWidth")
