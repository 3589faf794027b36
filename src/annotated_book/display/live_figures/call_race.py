"""The milliseconds of one call, as the reader writes it."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from annotated_book.display._html import Output, figure, scrolled, table
from annotated_book.display._live import live


class Given(NamedTuple):
    """A mask, and how the class and the function are given it."""

    to_class: str
    to_function: str


WAYS = {  # how each is called: whether by the function, without weights, off the fast path
    "class, weights": (False, False, False),
    "class, weights, fast path off": (False, False, True),
    "class": (False, True, False),
    "class, fast path off": (False, True, True),
    "function": (True, True, True),
}


def call_race(
    masks: Mapping[str, Given],
    took: Mapping[str, Mapping[str, Sequence[float]]],
    fused: Mapping[str, Sequence[str]],
    *,
    start: str,
    name: str,
    caption: str = "",
) -> Output:
    """Table the milliseconds of each call; alive, the reader writes one and sees what it takes.

    Args:
        masks: to choose from.
        took: under each mask and each of ``WAYS``, the quartiles of its milliseconds.
        fused: under each mask, the ways on which PyTorch's fused kernel runs.
        start: the mask to begin with.
        name: the figure's name, see ``finish``.
        caption: HTML under the figure.
    """
    rows = [["milliseconds", *masks]]
    rows += [[way, *(f"{took[mask][way][1]:.0f}" for mask in masks)] for way in WAYS]
    still = scrolled(table(rows, "aa-numbers"), "Milliseconds of each call")
    data = {
        "masks": [[mask, *given] for mask, given in masks.items()],
        "ways": [
            [
                *flags,
                [[round(x) for x in took[mask][way]] for mask in masks],
                [way in fused[mask] for mask in masks],
            ]
            for way, flags in WAYS.items()
        ],
        "start": [*masks].index(start),
    }
    text = "\n".join(", ".join(row) for row in rows)
    static = figure(name, still, text, caption)
    return live(static, "call_race", data, room=(270, 345))
