"""The arrows that a browser turns are those of the package's rotation."""

from typing import Any

import pytest
import torch

from annotated_attention import display
from annotated_attention.modern import rotate

MODULE = "rotation.js"
QUERY, KEY = torch.tensor([1.0, 1.0]), torch.tensor([3.0, 0.5])
WORDS = ("it", "cat")


def right(arrow: torch.Tensor, position: int, speed: float) -> torch.Tensor:
    angle = torch.tensor([[position * speed]], dtype=torch.float64)
    return rotate(arrow.double()[None], angle.cos(), angle.sin())[0]


@pytest.mark.parametrize("speed", [1.0, 0.1])
@pytest.mark.parametrize(("query_at", "key_at"), [(0, 0), (5, 1), (59, 39), (7, 7)])
def test_arrows_and_scores(script: Any, query_at: int, key_at: int, speed: float) -> None:
    a, b = right(QUERY, query_at, speed), right(KEY, key_at, speed)
    assert script("turn", QUERY.tolist(), query_at * speed) == pytest.approx(a.tolist())
    found = script("score", QUERY.tolist(), KEY.tolist(), query_at, key_at, speed)
    assert found == pytest.approx((a @ b).item())


def test_the_picture_shows_the_scores() -> None:
    shown = [(5, 1), (9, 5), (6, 1)]
    figure = display.rotation(QUERY, KEY, name="try", words=WORDS, shown=shown, speed=0.3)
    assert figure.data["key at"] == 1
    assert figure.data["distance"] == 4
    for query_at, key_at in shown:
        number = right(QUERY, query_at, 0.3) @ right(KEY, key_at, 0.3)
        assert f"it at {query_at}, cat at {key_at}: score {number:.2f}" in figure.text
        assert f">score {number:.2f}<".replace("-", "−") in figure.html


@pytest.mark.parametrize(
    ("query", "shown", "message"),
    [
        (torch.ones(3), [(5, 1)], "arrows of two numbers"),
        (QUERY, [(1, 5)], r"shown \(1, 5\)"),
        (QUERY, [(30, 5)], r"shown \(30, 5\)"),
        (QUERY, [(45, 41)], r"shown \(45, 41\)"),
    ],
)
def test_what_does_not_fit_is_named(query: Any, shown: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        display.rotation(query, KEY, name="try", words=WORDS, shown=shown)
