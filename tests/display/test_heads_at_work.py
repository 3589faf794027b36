"""Heads at work: what the figure is given, and what does not fit."""

import pytest
import torch

from annotated_attention import display

WEIGHTS = torch.tensor([[[0.126, 0.874, 0.0], [0.5, 0.25, 0.25]]], requires_grad=True)


def still():
    return display.finish(display.panels(60, 40)[0], name="still", alt="A still picture.")


def shown(weights=WEIGHTS, queries="ab", keys="xyz", start=(0, 0, 1), heads=()):
    return display.heads_at_work(still(), weights, queries, keys, start=start, heads=heads)


def test_weights_in_hundredths():
    assert shown().data == {
        "maps": [[[[13, 87, 0], [50, 25, 25]]]],
        "heads": ["head 1"],
        "queries": ["a", "b"],
        "keys": ["x", "y", "z"],
        "start": [0, 0, 1],
    }
    layers = WEIGHTS.expand(5, 4, 2, 3)
    assert shown(layers, heads="pqrs", start=(4, 3, 1)).data["heads"] == list("pqrs")
    assert shown(layers).data["heads"][-1] == "head 4"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keys": "xy"}, r"weights \(1, 2, 3\) do not fit h, n, m = \(1, 2, 2\)"),
        ({"heads": "pq"}, r"do not fit h, n, m = \(2, 2, 3\)"),
        ({"weights": WEIGHTS[0]}, r"weights must be .* got \(2, 3\)"),
        ({"start": (0, 1, 0)}, r"start \(0, 1, 0\) is not in weights \(1, 1, 2, 3\)"),
        ({"start": (0, 0, -1)}, "is not in weights"),
    ],
)
def test_what_does_not_fit_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        shown(**options)
