"""The tune of attention: its words, each over the shape that it leaves, to press from memory."""

from typing import Any

from matplotlib.patches import Rectangle

from annotated_book.display._html import Output
from annotated_book.display._live import live
from annotated_book.display.plots import COLOURS, finish, panels

_TOKENS, _HEADS, _WEIGHTS = (
    {"shape": "(b, n, e)", "cards": 1, "wide": 0.76, "high": 0.5, "heads": False},
    {"shape": "(b, h, n, d)", "cards": 3, "wide": 0.3, "high": 0.5, "heads": True},
    {"shape": "(b, h, n, m)", "cards": 3, "wide": 0.5, "high": 0.5, "heads": True},
)
_TUNE: list[tuple[str, dict[str, Any], list[int], str]] = [
    ("project", _TOKENS, [], ""),
    ("split", _HEADS, [0], "there is nothing projected to split"),
    ("score", _WEIGHTS, [1], "scores compare the heads' queries and keys, so split first"),
    ("scale", _WEIGHTS, [2], "there are no scores to scale"),
    ("mask", _WEIGHTS, [2], "there are no scores to mask"),
    ("softmax", _WEIGHTS, [3, 4], "scale and mask work on scores, before the softmax"),
    ("mix", _HEADS, [5], "to mix, you need weights, and they come out of the softmax"),
    ("merge", _TOKENS, [6], "nothing is mixed that could be merged"),
    ("project", _TOKENS, [7], "merge the heads first"),
]


def tune(*, name: str) -> Output:
    """Draw the words of attention in order; alive, they can be hidden and pressed from memory.

    Args:
        name: the figure's name, see ``finish``.

    Examples:
        >>> from annotated_book import display
        >>> display.tune(name="try")
        Figure: project (b, n, e), split (b, h, n, d), score (b, h, n, m), ...
    """
    drawing, (ax,) = panels(720, 130)
    for i, (word, shape, _, _) in enumerate(_TUNE):
        hue = COLOURS["h" if shape["heads"] else "n"]
        for head in reversed(range(shape["cards"])):
            corner = (i - shape["wide"] / 2 + 0.07 * (head - 1), 0.25 + 0.1 * head)
            size = shape["wide"], shape["high"]
            for fill, opacity in (("white", 1), (hue, 0.35)):
                look: dict[str, Any] = {"facecolor": fill, "alpha": opacity, "edgecolor": hue}
                ax.add_patch(Rectangle(corner, *size, **look, zorder=3 - head))
        ax.text(i, 1.15, word, ha="center", fontsize=13)
        ax.text(i, -0.1, shape["shape"], ha="center", fontsize=11)
    ax.set(xlim=(-0.5, len(_TUNE) - 0.5), ylim=(-0.2, 1.4))
    ax.axis("off")
    alt = ", ".join(f"{word} {shape['shape']}" for word, shape, *_ in _TUNE) + "."
    words = [
        {"word": word, **shape, "needs": needs, "why": why} for word, shape, needs, why in _TUNE
    ]
    static = finish(drawing, name=name, alt=alt)
    return live(static, "tune", {"words": words}, room=(236, 420))
