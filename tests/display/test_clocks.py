"""The clocks that a browser draws are those of the sinusoidal code."""

from typing import Any

import pytest
import torch

from annotated_attention import display, sinusoidal_code

MODULE = "clocks.js"


@pytest.mark.parametrize("e", [2, 8, 10])
def test_the_code_of_every_position(script: Any, e: int) -> None:
    code = sinusoidal_code(100, e)
    for position in range(100):
        found = script("code", position, e // 2, 10000)
        torch.testing.assert_close(torch.tensor(found, dtype=torch.float64), code[position])


@pytest.mark.parametrize(("one", "other"), [(0, 0), (3, 5), (99, 80)])
def test_hands_and_their_dot_product(script: Any, one: int, other: int) -> None:
    assert script("angles", one, 4, 10000) == pytest.approx([one / 10**i for i in range(4)])
    code = sinusoidal_code(100, 8)
    found = script("dot", code[one].tolist(), code[other].tolist())
    assert found == pytest.approx((code[one] @ code[other]).item(), rel=1e-12)


def test_the_picture_shows_the_hands_of_the_positions() -> None:
    code = sinusoidal_code(60, 6)
    figure = display.clocks(code, name="try", shown=(0, 7, 59), position=5, distance=4)
    assert figure.module == "clocks"
    assert figure.data == {
        "clocks": 3, "base": 10000, "positions": 60, "position": 5, "distance": 4,
    }  # fmt: skip
    for at in (0, 7, 59):
        said = ", ".join(f"{number:.2f}" for number in code[at].tolist())
        assert f"position {at}: {said}" in figure.text
        for number in code[at].tolist():
            assert f">{number:.2f}<".replace("-", "−") in figure.html


@pytest.mark.parametrize(
    ("e", "at", "message"),
    [
        (5, {}, "code must be of an even width, got 5"),
        (4, {"shown": (0, 9)}, r"position \(9\) must be one of 9"),
        (4, {"position": -1}, r"position \(-1\)"),
    ],
)
def test_what_does_not_fit_is_named(e: int, at: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        display.clocks(sinusoidal_code(9, e), name="try", **{"shown": (0,)} | at)
