"""Exercises of "Trained weights": what is handed over, and a head that looks back."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from annotated_book.exercises._exercise import Exercise
from annotated_book.exercises._values import furthest, numbers, whole

check_parts = Exercise(
    name="my_parts",
    right=[0.2, 0.6, 0.2],
    praise="the query collects most from cat, 0.6, though it gives [CLS] more than five times the "
    "weight. [CLS] hands over no more than milk.",
    wrong={
        "these are the weights. Multiply each by its token's norm.": [0.80, 0.15, 0.05],
        "these are the norms. Multiply each by its token's weight.": [0.25, 4, 4],
        "you divided the weights by the norms. Multiply them.": [3.2, 0.0375, 0.0125],
        "you divided the norms by the weights. Multiply them.": [0.3125, 26.667, 80],
        "you added weight and norm. Multiply them.": [1.05, 4.15, 4.05],
    },
    run=numbers(3),
    why=lambda answer, found, right: (
        f"that is not the weight of {['[CLS]', 'cat', 'milk'][furthest(found, right)]} times its "
        "norm."
    ),
    close=0.005,
)


def _draw_heads(layers: int, h: int, n: int, distance: int) -> dict[str, Any]:
    """Draw weights in which each way to choose a head, right or wrong, leads to a head of its own.

    The right one is head 1 of the last layer.
    """
    weights = torch.randn(layers, h, n, n, dtype=torch.float64).softmax(-1)

    def look(layer: int, head: int, back: int, share: float) -> None:
        """Let every token that can look ``back`` places give that place a share of its weight."""
        i = torch.arange(max(back, 0), n + min(back, 0))
        weights[layer, head, i] *= 1 - share
        weights[layer, head, i, i - back] += share

    look(layers - 1, 1, distance, 0.6)
    look(0, 1, -distance, 0.9)
    look(0, h - 1, distance + 1, 0.9)
    look(1, 0, 0, 0.9)
    if distance != 1:
        look(layers - 1, h - 2, 1, 0.9)
    weights[0, 2, distance] = torch.eye(n)[0]  # in one place, entirely, and nowhere else
    look(1, h - 1, distance, 0.5)
    weights[1, h - 1, :distance] = torch.eye(n)[-distance:]  # in the first rows, at the last keys
    return {"weights": weights, "distance": distance}


def _head(score: Tensor) -> tuple[int, int]:
    """Give the layer and head with the highest score."""
    return divmod(int(score.argmax()), score.size(-1))


def _my_head(weights: Tensor, distance: int) -> tuple[int, int]:
    return _head(weights.diagonal(-distance, -2, -1).mean(-1))


def _flat(weights: Tensor, distance: int) -> int:
    return int(weights.diagonal(-distance, -2, -1).mean(-1).argmax())


def _wrapping(weights: Tensor, distance: int) -> tuple[int, int]:
    i = torch.arange(weights.size(-1))
    return _head(weights[..., i, i - distance].mean(-1))


def _read(answer: Callable[..., Any], weights: Tensor, distance: int) -> Tensor:
    return torch.tensor(whole("it returns", answer(weights, distance), 2, "a layer and a head"))


check_my_head = Exercise(
    name="my_head",
    right=_my_head,
    praise="right: the mean along the diagonal of the keys before, for each head, and the largest.",
    wrong={
        "that head looks ahead. A row is a query, and keys before it stand to its left, below the "
        "diagonal.": lambda weights, distance: _my_head(weights, -distance),
        "that head looks further back. Use the distance as it is.": lambda weights, distance: (
            _my_head(weights, distance + 1)
        ),
        "that head looks at the token itself, on the main diagonal.": lambda weights, distance: (
            _my_head(weights, 0)
        ),
        "that head looks one place back. Use the distance.": lambda weights, distance: _my_head(
            weights, 1
        ),
        "that head looks back in one row alone. "
        "Take the mean, not the max.": lambda weights, distance: _head(
            weights.diagonal(-distance, -2, -1).amax(-1)
        ),
        "in its first rows, i - distance is negative and wraps round to the last keys. Leave those "
        "rows out.": _wrapping,
        "diagonal takes the first two axes, unless you "
        "name the last two, -2 and -1.": lambda weights, distance: divmod(
            int(weights.diagonal(-distance).mean(-1).argmax()), weights.size(1)
        ),
        "it is the right head, but the layer comes first.": lambda *given: _my_head(*given)[::-1],
        "it is the right head, but count layers and heads from 0.": lambda *given: [
            i + 1 for i in _my_head(*given)
        ],
        "divide the flat index by the number of heads, not of layers.": lambda weights, distance: (
            divmod(_flat(weights, distance), len(weights))
        ),
    },
    sizes=[
        {"layers": 3, "h": 4, "n": 7, "distance": 1},
        {"layers": 2, "h": 5, "n": 8, "distance": 3},
    ],
    draw=_draw_heads,
    run=_read,
    why=lambda answer, found, *others: (
        f"you have layer {found[0]}, head {found[1]}; another one looks back more, on average."
    ),
)
