"""Exercises of "Positions": arrows turned by hand, slopes of any number, a missing permutation."""

from typing import Any

import torch
from torch import Tensor

from annotated_attention.exercises._verdict import (
    Refused,
    at_sizes,
    call,
    check,
    compare,
    finite_numbers,
    random,
    require_function,
    require_unchanged,
)
from annotated_attention.modern import alibi_slopes, half_to_interleaved, interleaved_to_half

_TURNED = [-1.0, 2.0, -2.0, -1.0, -1.0]


@check("my_turned")
def check_turned(answer: object) -> str:
    """Judge an arrow turned by hand, and print the verdict.

    Args:
        answer: five numbers: the query (2, 1) at position 1, then at position 2, a quarter turn
            each, and its dot product with the key (3, 1) if they stand at 2 and 1.
    """
    found = finite_numbers(answer, 5)
    right = torch.tensor(_TURNED, dtype=torch.float64)
    if torch.allclose(found, right, atol=0.005):
        return (
            "right: a quarter turn makes (a, b) into (−b, a). At 2 and 1 the query is one quarter "
            "turn ahead of the key, so the score is that of the query turned once and the key "
            "not at all."
        )
    for reason, wrong in _WRONG_TURNED:
        if torch.allclose(found, torch.tensor(wrong, dtype=torch.float64), atol=0.005):
            raise Refused(reason)
    names = ("the query at position 1", "the query at position 2", "the score")
    parts = zip(names, found.split([2, 2, 1]), right.split([2, 2, 1]), strict=True)
    for name, mine, expected in parts:
        if not torch.allclose(mine, expected, atol=0.005):
            raise Refused(f"{name} is not right yet.")
    raise Refused("it is not right yet.")


_WRONG_TURNED = [
    (
        "you turn the other way, clockwise. A quarter turn counterclockwise takes the arrow "
        "(1, 0), which points right, to (0, 1), which points up.",
        [1.0, -2.0, -2.0, -1.0, 1.0],
    ),
    (
        "the arrow at position 2 has turned twice, not once: by half a turn.",
        [-1.0, 2.0, -1.0, 2.0, -1.0],
    ),
    (
        "the score is that of the arrows before turning. The query is at 2 and the key at 1, so "
        "the query has turned further.",
        [-1.0, 2.0, -2.0, -1.0, 7.0],
    ),
    (
        "in the score only the query has turned, twice (rotates-one-side). The key stands at "
        "position 1, and has turned, too.",
        [-1.0, 2.0, -2.0, -1.0, -7.0],
    ),
    (
        "in the score the key has turned further than the query. The query stands at 2, the key "
        "at 1.",
        [-1.0, 2.0, -2.0, -1.0, 1.0],
    ),
    (
        "the score is the plain dot product here, not divided by √2.",
        [-1.0, 2.0, -2.0, -1.0, -(2.0**-0.5)],
    ),
]


@check("my_slopes")
def check_slopes(function: object) -> str:
    """Judge slopes for any number of heads, and print the verdict.

    Args:
        function: takes the number of heads, returns a list or a tensor of as many slopes.
    """
    require_function(function)
    for i, heads in enumerate((8, 4, 6, 12, 1, 40)):
        with at_sizes(i == 0, h=heads):
            found = call("my_slopes", function, heads)  # type: ignore[arg-type]
            if isinstance(found, list | tuple):
                found = finite_numbers(found, heads)
            compare(_double(found), alibi_slopes(heads).double(), "(h,)", _wrong_slopes(heads))
    return (
        "right for 1, 4, 6, 8, 12 and 40 heads: a power of two has its own row, and what is "
        "missing comes from between, out of the row of the next larger power."
    )


def _double(x: Any) -> Any:
    return x.double() if isinstance(x, Tensor) and x.is_floating_point() else x


def _wrong_slopes(heads: int) -> list[tuple[str, Tensor]]:
    """List reasons with the slopes that each leads to."""
    power = 2 ** (heads.bit_length() - 1)
    larger = alibi_slopes(power if power == heads else 2 * power).double()
    steps = torch.arange(1, heads + 1, dtype=torch.float64)
    right = alibi_slopes(heads).double()
    return [
        (
            "that is 2^(−8i / h) for every h. Checkpoints have it so only where h is a power of "
            "two; others take the row of the next smaller power first.",
            2 ** (-8 * steps / heads),
        ),
        (
            "i begins at 1: with i = 0 the first slope would be 1, and the last not 2^−8.",
            2 ** (-8 * (steps - 1) / heads),
        ),
        ("these are exponents of 2; the slopes are the powers.", -8 * steps / heads),
        (
            "the slopes are right, but sorted. Each belongs to a head, so their order matters: "
            "first the row of the smaller power, then what comes from between.",
            right.sort(descending=True).values,
        ),
        (
            "these are the first of the next larger power's row. Take the whole row of the smaller "
            "power, and only then from the larger one.",
            larger[:heads],
        ),
        (
            "from the larger power's row take every second one, beginning with the first: the "
            "others are in the smaller power's row already.",
            torch.cat([right[:power], larger[1::2][: heads - power]]),
        ),
        (
            "from the larger power's row take every second one: its neighbours are in the smaller "
            "power's row already.",
            torch.cat([right[:power], larger[: heads - power]]),
        ),
        ("a bias takes something off the score, but the slopes themselves are positive.", -right),
    ]


@check("to_half")
def check_permutation(function: object) -> str:
    """Judge the reordering of the rows of W_Q, and print the verdict.

    Args:
        function: takes W_Q or W_K as ``torch.nn.Linear`` keeps it and the number of heads, made
            for pairs side by side; returns the rows for pairs half a head apart.
    """
    require_function(function)
    for i, (h, d, width) in enumerate(((4, 6, 10), (1, 10, 7), (3, 2, 5))):
        weight = random(i, (h * d, width))[0]
        before = weight.clone()
        with at_sizes(i == 0, h=h, d=d):
            found = call("to_half", function, weight, h)  # type: ignore[arg-type]
            require_unchanged("weight", weight, before)
            compare(found, interleaved_to_half(weight, h), "(h * d, e)", _wrong_orders(weight, h))
    return (
        "right: within each head first the even rows, then the odd ones. W_K needs the same; W_V "
        "and W_O stay, since values do not turn."
    )


def _wrong_orders(weight: Tensor, h: int) -> list[tuple[str, Tensor]]:
    """List reasons with the order that each leads to."""
    by_head = weight.unflatten(0, (h, -1))
    odd_first = torch.cat([by_head[:, 1::2], by_head[:, 0::2]], 1).flatten(0, 1)
    even = torch.arange(0, weight.size(1), 2)
    columns = weight[:, torch.cat([even, even[: weight.size(1) // 2] + 1])]
    return [
        (
            "the rows come back as they were, so pairs are still side by side "
            "(rotation-layout-mixed).",
            weight,
        ),
        (
            "that is the way back, from pairs half a head apart to pairs side by side. Row 1 must "
            "go to the middle of its head.",
            half_to_interleaved(weight, h),
        ),
        (
            "you have reordered across the heads: all even rows, then all odd ones. Each head has "
            "its own pairs, so stay within its d rows.",
            interleaved_to_half(weight, 1),
        ),
        ("the odd rows come first: the first feature of a pair is the even one.", odd_first),
        (
            "the columns are reordered. They belong to the features that come in; the pairs are "
            "among those that come out, the rows.",
            columns,
        ),
    ]
