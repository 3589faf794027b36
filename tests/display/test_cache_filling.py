"""The figure of the filling cache counts what attention really computes."""

from typing import Any

import pytest
import torch

from annotated_attention import counting, display

MODULE = "cache_filling.js"
WORDS = ["the", "cat", "drank", "milk", "because"]
WEIGHTS = torch.rand(5, 5, generator=torch.Generator().manual_seed(1)).tril()


def figure(**options: Any) -> Any:
    return display.cache_filling(WEIGHTS, WORDS, **{"name": "try", "step": 3} | options)


@pytest.mark.parametrize("cached", [False, True])
def test_script_and_picture_agree_on_every_step(script: Any, cached: bool) -> None:
    # Imported at the top, the package would escape the checks of its shape comments.
    from annotated_attention.display.live_figures import cache_filling

    so_far = {"vectors": 0, "weights": 0}
    for step in range(1, 9):
        assert script("states", step, cached) == cache_filling.states(step, cached)
        assert script("work", step, cached) == cache_filling.work(step, cached)
        so_far = {name: so_far[name] + more for name, more in script("work", step, cached).items()}
        assert script("total", step, cached) == so_far
        assert script("rows", step, cached) == ([step - 1] if cached else list(range(step)))


@pytest.mark.parametrize("step", [1, 4, 9])
def test_the_counts_are_those_of_the_formulas(script: Any, step: int) -> None:
    """A vector is a product with a matrix; a weight costs its score and its part of the mix."""
    e = 24
    for cached, n in ((False, step), (True, 1)):
        made = script("work", step, cached)
        output = n * counting.product_flops(1, e, e)
        flops = made["vectors"] * counting.product_flops(1, e, e) + output
        flops += made["weights"] * 2 * counting.product_flops(1, e, 1)
        expected = 8 * n * e**2 + counting.score_flops(n, step, e)
        assert flops == expected


def test_the_picture_shows_both_ways() -> None:
    made = figure()
    assert made.module == "cache_filling"
    assert made.data["words"] == WORDS
    assert [len(row) for row in made.data["weights"]] == [1, 2, 3, 4, 5]
    assert "Without a cache, the step of “drank” computes 9 vectors and 9 weights" in made.text
    assert "computes 3 vectors and 3 weights, and finds 4 vectors kept." in made.text
    assert made.html.count(">kept<") == 4
    assert made.html.count(">new<") == 9 + 3


@pytest.mark.parametrize(
    ("given", "message"),
    [({"step": 0}, r"step \(0\) must be from 1 to 5"), ({"step": 6}, r"step \(6\)")],
)
def test_what_does_not_fit_is_named(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        figure(**given)
    with pytest.raises(ValueError, match=r"weights \(5, 5\) must be \(n, n\) = \(4, 4\)"):
        display.cache_filling(WEIGHTS, WORDS[:4], name="try", step=2)
