"""The milliseconds of one call, as the reader writes it, and which part of it takes them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from annotated_book.display._html import Output, figure, scrolled, table
from annotated_book.display._live import live


class Given(NamedTuple):
    """A mask, and how the class and the function are given it."""

    to_class: str
    to_function: str


# How each is called: whether by the function, without weights, off the fast path, with the flag.
WAYS = {
    "class, weights": (False, False, False, False),
    "class, weights, fast path off": (False, False, True, False),
    "class": (False, True, False, False),
    "class, fast path off": (False, True, True, False),
    "class, fast path off, flag": (False, True, True, True),
    "function": (True, True, True, False),
}
PARTS = {  # orange: writes numbers for each query and key
    "projections": ("projections", "#808080"),
    "products": ("products", "var(--aa-h)"),
    "softmax": ("softmax", "var(--aa-h)"),
    "mask": ("the mask", "var(--aa-h)"),
    "fused": ("fused kernel", "var(--aa-n)"),
    "rest": ("the rest", "#808080"),
}


def call_race(
    masks: Mapping[str, Given],
    took: Mapping[str, Mapping[str, Sequence[float]]],
    parts: Mapping[str, Mapping[str, Mapping[str, float]]],
    *,
    start: str,
    name: str,
    caption: str = "",
) -> Output:
    """Table the milliseconds of each call; alive, the reader writes one and sees what takes them.

    Args:
        masks: to choose from.
        took: under each mask and each of ``WAYS`` that takes it, the quartiles of its milliseconds.
        parts: the same, the milliseconds of each of ``PARTS``.
        start: the mask to begin with, and that of the still figure's parts.
        name: the figure's name, see ``finish``.
        caption: HTML under the figure.
    """
    rows = [["milliseconds", *masks]]
    rows += [
        [way, *(f"{took[mask][way][1]:.0f}" if way in took[mask] else "" for mask in masks)]
        for way in WAYS
    ]
    apart = [[f"mask: {start}", *(said for said, _ in PARTS.values())]]
    apart += [[way, *(f"{x:.0f}" for x in parts[start][way].values())] for way in WAYS]
    tables = "".join(
        scrolled(table(cells, "aa-numbers"), title)
        for cells, title in ((rows, "Milliseconds of each call"), (apart, "Milliseconds of parts"))
    )

    def of_parts(mask: str, way: str) -> list[int] | None:
        return [round(parts[mask][way][x]) for x in PARTS] if way in parts[mask] else None

    data = {
        "masks": [[mask, *given] for mask, given in masks.items()],
        "ways": [
            [
                *flags,
                [[round(x) for x in took[mask].get(way, ())] or None for mask in masks],
                [of_parts(mask, way) for mask in masks],
            ]
            for way, flags in WAYS.items()
        ],
        "parts": list(PARTS.values()),
        "start": [*masks].index(start),
    }
    text = "\n".join(", ".join(row) for row in rows + apart)
    static = figure(name, f"<div>{tables}</div>", text, caption)
    return live(static, "call_race", data, room=(400, 460))
