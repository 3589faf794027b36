"""The calculator on the built page of its chapter: by keyboard, and without scripts."""

from dataclasses import replace
from typing import Any

from playwright.sync_api import expect

from annotated_attention import counting
from annotated_attention.counting import PRESETS

PAGE = "/chapters/counting/"


def cells(figure: Any, within: str) -> list[str]:
    found = figure.locator(f"{within} table :is(th, td)").all_text_contents()
    return [cell for cell in found if cell]


def expected(model: counting.Model, length: int, batch: int, width: int) -> list[str]:
    return [cell for row in counting.rows(model, length, batch, width) for cell in row if cell]


def test_the_table_without_scripts(browser: Any, served: Any) -> None:
    page = browser.new_page(java_script_enabled=False)
    page.goto(served[0] + PAGE)
    figure = page.locator("#fig-calculator")
    expect(figure.locator("table")).to_be_visible()
    assert cells(figure, "") == expected(PRESETS["transformer-base"], 1024, 1, 4)
    page.close()


def test_by_keyboard(browser: Any, served: Any) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 900})
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(served[0] + PAGE)
    figure = page.locator("#fig-calculator")
    figure.scroll_into_view_if_needed()
    status = figure.get_by_role("status")
    expect(status).to_contain_text("63.1 M parameters")
    expect(figure.locator(".aa-still")).to_be_hidden()
    assert cells(figure, ".aa-stage") == expected(PRESETS["transformer-base"], 1024, 1, 4)

    preset = figure.get_by_role("combobox", name="sizes of")
    preset.select_option("gpt2-xl")
    figure.get_by_role("combobox", name="numbers are").select_option("bfloat16")
    slider = figure.get_by_role("slider", name="length n")
    slider.press("ArrowRight")
    expect(slider).to_have_attribute("aria-valuetext", "2,048")
    assert cells(figure, ".aa-stage") == expected(PRESETS["gpt2-xl"], 2048, 1, 2)
    assert preset.input_value() == "gpt2-xl"

    # 25 heads do not fit a width of 2,048: the nearest number that does is taken.
    figure.get_by_role("slider", name="width e").press("ArrowRight")
    heads = figure.get_by_role("slider", name="heads h")
    expect(heads).to_have_attribute("aria-valuetext", "32")
    assert preset.input_value() == ""
    figure.get_by_role("slider", name="decoder layers").press("ArrowRight")
    figure.get_by_role("slider", name="batch b").press("End")
    model = replace(
        PRESETS["gpt2-xl"], embed_dim=2048, feedforward=8192, num_heads=32, decoder_layers=1
    )
    assert cells(figure, ".aa-stage") == expected(model, 2048, 1024, 2)
    assert figure.locator(".aa-stage li").all_text_contents() == counting.notes(
        model, 2048, 1024, 2
    )
    total = cells(figure, ".aa-stage")[-6]
    expect(status).to_contain_text(f"{total} parameters")

    preset.select_option("bert-base")  # every slider follows
    expect(heads).to_have_attribute("aria-valuetext", "12")
    assert cells(figure, ".aa-stage") == expected(PRESETS["bert-base"], 2048, 1024, 2)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert problems == []
    page.close()
