"""The filling cache on its page: what is new and kept at each step, and nothing that jumps."""

from typing import Any

import pytest
from playwright.sync_api import expect

from annotated_attention import chapters

PAGE = "/chapters/cache/#fig-cache-filling"
WORDS = chapters.load("01_one_head").WORDS


def written(figure: Any) -> dict[str, int]:
    """Count what the boxes say."""
    texts = figure.locator("svg[role=img] text").all_text_contents()
    numbers = [text for text in texts if text[:1] in ".1" and text.count(".") == 1]
    return {"new": texts.count("new"), "kept": texts.count("kept"), "weights": len(numbers)}


@pytest.mark.parametrize("cached", [True, False])
def test_follows_the_words_and_keeps_its_height(page: Any, cached: bool) -> None:
    figure = page.locator("#fig-cache-filling")
    words, status = figure.get_by_role("slider", name="words"), figure.get_by_role("status")
    figure.get_by_role("button", name="with a cache" if cached else "without").click()
    heights = set()
    for key, step in (("Home", 1), ("ArrowRight", 2), ("ArrowRight", 3), ("End", 8)):
        words.press(key)
        vectors, kept = (3, 2 * (step - 1)) if cached else (3 * step, 0)
        expect(status).to_contain_text(f"For “{WORDS[step - 1]}”: {vectors} vectors and ")
        expect(status).to_contain_text(f"{kept} vectors kept.")
        rows = 1 if cached else step
        drawn = step if cached else step * (step + 1) // 2  # what is masked has no box
        assert written(figure.locator(".aa-stage")) == {
            "new": vectors, "kept": kept, "weights": drawn
        }  # fmt: skip
        named = figure.locator(".aa-stage svg").get_attribute("aria-label")
        assert named.startswith(" ".join(WORDS[:step]))
        assert named.endswith(f"Rows of weights: {rows}.")
        heights.add(figure.bounding_box()["height"])
    total = (24, 36) if cached else (108, 204)
    expect(status).to_contain_text(f"Since the first word: {total[0]} vectors and {total[1]} wei")
    assert len(heights) == 1
    assert figure.evaluate("figure => figure.scrollWidth <= figure.clientWidth")
