"""Bars to guess: of each the reader says whether it is longer than the first, and then sees it."""

from collections.abc import Mapping
from typing import Any

from annotated_book.display._html import Output
from annotated_book.display._live import live
from annotated_book.display.plots import COLOURS, finish, panels

WIDE, ROW = 352, 46  # of the drawing, as wide as a phone, and of a bar with what it counts


def more_or_less(
    rows: Mapping[str, int], of: int, *, chance: int, name: str, caption: str = ""
) -> Output:
    """Draw a bar for each count; alive, the reader guesses each before it is shown.

    Args:
        rows: what was counted. The first is open: the others are more than that, or fewer.
        of: what a count can be at most.
        chance: what a coin has; a dashed line.
        name: the figure's name, see ``finish``.
        caption: HTML under the figure.

    Examples:
        >>> from annotated_book import display
        >>> display.more_or_less({"all": 3, "half": 2}, 4, chance=2, name="try")
        Figure: all: 3 of 4; half: 2 of 4.
    """
    drawing, (ax,) = panels(WIDE, ROW * len(rows) + 8)
    for y, (what, count) in enumerate(rows.items()):
        colour = COLOURS["n" if y else "h"]
        ax.barh(y, count, height=0.42, color=colour, alpha=0.5 if y else 0.75)
        ax.text(0, y - 0.42, what, fontsize=12)
        place: dict[str, Any] = {
            "ha": "right",
            "va": "center",
            "fontsize": 12,
            "fontweight": "bold",
        }
        ax.text(count - of / 48, y, str(count), **place)
        at = [y - 0.27, y + 0.27]
        ax.plot([chance] * 2, at, color=COLOURS["b"], linestyle="--", linewidth=1)
    ax.set(xlim=(0, of), ylim=(len(rows) - 0.6, -0.95))
    ax.axis("off")
    alt = "; ".join(f"{what}: {count} of {of}" for what, count in rows.items())
    data = {"rows": [list(row) for row in rows.items()], "of": of, "chance": chance}
    still = finish(drawing, name=name, alt=f"{alt}.", caption=caption)
    return live(still, "more_or_less", data, room=(ROW * len(rows) + 100,) * 2)
