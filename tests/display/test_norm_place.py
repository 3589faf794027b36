"""The layer that a browser draws is the one that Python draws, with what was measured."""

from typing import Any

import pytest

from annotated_attention import display
from annotated_attention.display.live_figures import norm_place as figure

MODULE = "norm_place.js"
POST = ["attention", "norm", "feed-forward", "norm"]
PRE = ["norm", "attention", "norm", "feed-forward"]
DECODER = ["norm", "attention", "norm", "attention", "norm", "feed-forward"]
MEASURED = {
    "Gradient": {"post": {2: [3.0, 2.0], 3: [7.0, 5.0, 1.23412]}, "pre": {2: [1, 2], 3: [1, 2, 3]}},
    "Size": {order: {2: [1.0, 1.0], 3: [1.0, 1.0, 1.0]} for order in ("post", "pre")},
}


@pytest.mark.parametrize("parts", [POST, PRE, DECODER, ["attention"], ["norm", "feed-forward"]])
def test_parts_stand_where_python_draws_them(script: Any, parts: list[str]) -> None:
    boxes, branches = script("place", parts)
    expected = figure.place(parts)
    assert [tuple(box) for box in boxes] == expected[0]
    assert [tuple(branch) for branch in branches] == expected[1]


@pytest.mark.parametrize("parts", [POST, PRE])
def test_norms_stand_behind_the_sum_or_in_front_of_the_sublayer(parts: list[str]) -> None:
    boxes, branches = figure.place(parts)
    assert [part for part, *_ in boxes] == parts
    for (fork, join), sublayer in zip(branches, ("attention", "feed-forward"), strict=True):
        inside = [part for part, left, right, _ in boxes if fork < left < right < join]
        assert inside == ([sublayer] if parts is POST else ["norm", sublayer])
    behind = [part for part, *_, on_stream in boxes if on_stream]
    assert behind == (["norm", "norm"] if parts is POST else [])
    ends = [x for _, left, right, _ in boxes for x in (left, right)]
    assert ends == sorted(ends), "no box lies over another"
    assert ends[-1] < 318, "and none beyond the drawing"


def test_what_is_said_of_a_row(script: Any) -> None:
    assert script("run", [139.26, 3, 60.31]) == "139 in the first layer, 60.3 in the last"


def test_the_page_is_given_what_was_measured() -> None:
    orders = {"post": POST, "pre": PRE}
    live = display.norm_place(orders, MEASURED, name="try", depth=3)
    assert live.module == "norm_place"
    assert live.data["orders"] == [["post", POST], ["pre", PRE]]
    assert live.data["depths"] == [2, 3]
    rows = {"post": [[3.0, 2.0], [7.0, 5.0, 1.234]], "pre": [[1, 2], [1, 2, 3]]}
    assert live.data["measured"][0] == ["Gradient", rows]
    assert [what for what, _ in live.data["measured"]] == ["Gradient", "Size"]
    assert (live.data["order"], live.data["depth"]) == ("post", 3)
    assert "A pre layer: norm, attention, norm, feed-forward." in live.text
    assert "in the first and the last of 3 layers: post 7 and 1.23; pre 1 and 3." in live.text
    assert "Solid lines: 3 layers; dashed lines: 2 layers." in live.html


@pytest.mark.parametrize(
    ("parts", "depth", "message"),
    [
        (["norm", "think"], 3, r"part \('think'\) must be one of attention, feed-forward, norm"),
        (PRE, 4, r"depth \(4\) must be one of 2, 3"),
    ],
)
def test_what_does_not_fit_is_named(parts: list[str], depth: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        display.norm_place({"pre": parts}, MEASURED, name="try", depth=depth)


def test_three_depths_at_most() -> None:
    many = {"Size": {"post": {d: [1.0] * d for d in range(1, 5)}}}
    with pytest.raises(ValueError, match="at most three depths can be told apart, got 4"):
        display.norm_place({"post": POST}, many, name="try", depth=1)
