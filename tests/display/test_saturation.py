"""What saturates in a browser is what saturates in Python: the chapter's own measurements."""

import math
from typing import Any

import pytest
import torch

from annotated_attention import chapters, display
from annotated_attention.display.live_figures import saturation as figure

MODULE = "saturation.js"
one = chapters.load("01_one_head")
PRODUCTS = {d: one.products(d).double() for d in (4, 64, 256)}


def assert_same(script: Any, scores: torch.Tensor) -> None:
    """Compare the measurements, and every weight, with torch's."""
    found = script("measure", scores.tolist())
    assert found == pytest.approx(one.measure(scores), rel=1e-9, abs=1e-12)
    for row in scores:
        weights = script("softmax", row.tolist())
        assert weights == pytest.approx(row.softmax(-1).tolist(), rel=1e-9, abs=1e-300)
        jacobian = torch.func.jacrev(lambda s: s.softmax(-1))(row)
        assert script("size", weights) == pytest.approx(jacobian.norm().item(), abs=1e-12)


@pytest.mark.parametrize("step", [0, 3, 8, 16])
@pytest.mark.parametrize("d", PRODUCTS)
def test_every_power_of_the_width(script: Any, d: int, step: int) -> None:
    by = script("divisor", d, step)
    assert by == pytest.approx(d ** (step / 16), rel=1e-15)
    divided = PRODUCTS[d] / by
    assert script("divide", PRODUCTS[d].tolist(), by) == divided.tolist()
    assert_same(script, divided[:5])  # of an odd number, the median is in the middle
    assert script("measure", divided.tolist()) == pytest.approx(one.measure(divided), rel=1e-9)


@pytest.mark.parametrize(
    ("scores", "size", "largest"),
    [
        ([[1e4, 0.0, -1e4], [-1e4, 1e4, 0.0]], 0.0, 1.0),  # one weight is 1, and nothing comes back
        ([[7.0] * 4, [-900.0] * 4], math.sqrt(3) / 4, 0.25),  # all the same
        ([[3.0], [5.0], [-8.0]], 0.0, 1.0),  # one key
        ([[0.0, 0.0, -1e5]] * 3, 0.5, 0.5),  # two keys share: as much as there can be
    ],
)
def test_at_the_extremes(script: Any, scores: Any, size: float, largest: float) -> None:
    assert script("measure", scores)[1:] == pytest.approx([size, largest], abs=1e-12)
    assert_same(script, torch.tensor(scores, dtype=torch.float64))


@pytest.mark.parametrize("by", [1, 7.3, 64])
def test_histogram(script: Any, by: float) -> None:
    scores = PRODUCTS[64] / by
    counts = script("histogram", scores.tolist(), 46.5)
    assert counts == figure.histogram(scores, 46.5)
    assert sum(counts) == scores.numel()
    assert len(counts) == 93
    edges = [-2.5, -1.5, 0.5, 2.4, 2.5, 2.6]  # a score on an edge counts above it, but at the end
    assert script("histogram", [edges], 2.5) == [1, 1, 0, 1, 2]
    assert figure.histogram(torch.tensor(edges), 2.5) == [1, 1, 0, 1, 2]


def test_the_page_is_given_what_is_drawn() -> None:
    figure = display.saturation(PRODUCTS, one.measure, name="try", width=64, query=3)
    products = {d: torch.tensor(rows).double() for d, rows in figure.data["products"]}
    assert list(products) == list(PRODUCTS)
    for d, scores in products.items():
        torch.testing.assert_close(scores, PRODUCTS[d], rtol=0, atol=5.01e-4)
        assert scores.abs().max() <= figure.data["edge"]
    assert (figure.data["width"], figure.data["query"]) == (64, 3)
    assert figure.module == "saturation"
    for by, name in ((1, "Not divided"), (8, "Divided by √d")):
        deviation, size, _ = one.measure(products[64] / by)
        share, key = (products[64][3] / by).softmax(-1).max(-1)
        said = f"{name}, the scores of width 64 deviate by {deviation:.2f}, query 4 gives "
        assert f"{said}{share:.2f} to key {key + 1}, and" in figure.text
        assert f"{size:.3f} at 64" in figure.text


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({"width": 5}, r"width \(5\) must be one of 4, 64, 256"),
        ({"width": 4, "query": 32}, r"query \(32\) must be the index of one of 32"),
        ({"width": 4, "query": -1}, r"query \(-1\)"),
    ],
)
def test_what_does_not_fit_is_named(start: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        display.saturation(PRODUCTS, one.measure, name="try", **start)
