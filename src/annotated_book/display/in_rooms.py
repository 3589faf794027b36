"""Words of several heads as a grid, once with a room for each head, once with one for each word."""

from collections.abc import Sequence
from typing import Any

from matplotlib.colors import to_rgba
from matplotlib.patches import FancyBboxPatch

from annotated_book.display._html import Output
from annotated_book.display.plots import COLOURS, FAINT, finish, panels

_HEADS = "hd"  # the letters whose colours the two heads have


def stacks(words: Sequence[str], heads: int, titles: tuple[str, str], *, name: str) -> Output:
    """Draw which pieces attend to one another: those of a head, or those of a word.

    Args:
        words: the sentence.
        heads: how many heads there are.
        titles: of the stack with the heads first, and of the one with the words first.
        name: the figure's name, see ``finish``.
    """
    wide = [6.6 * len(word) + 10 for word in words]
    left = [sum(wide[:j]) + 3 * j for j in range(len(words) + 1)]
    drawing, axes = panels(340, 2 * (36 * heads + 40), rows=2)
    for ax, title, by_head in zip(axes, titles, (True, False), strict=True):
        rooms: list[tuple[tuple[float, float], float, float, str]] = [
            ((0, 36 * i - 14), left[-1] - 3, 28, COLOURS[_HEADS[i % 2]]) for i in range(heads)
        ]
        if not by_head:
            high = 36 * heads - 8
            rooms = [((x, -14), w, high, FAINT) for x, w in zip(left, wide, strict=False)]
        for corner, across, down, colour in rooms:
            look: dict[str, Any] = {"facecolor": to_rgba(colour, 0.1), "edgecolor": colour}
            box = FancyBboxPatch(corner, across, down, "round,pad=0,rounding_size=2", **look)
            ax.add_patch(box)
        for i in range(heads):
            look = {"va": "center", "fontsize": 12, "color": COLOURS[_HEADS[i % 2]]}
            ax.text(-8, 36 * i, f"head {i + 1}", ha="right", **look)
            for word, x, w in zip(words, left, wide, strict=False):
                ax.text(x + w / 2, 36 * i, word, ha="center", **look)
        ax.set(xlim=(-50, left[-1]), ylim=(36 * heads - 18, -18))
        ax.set_title(title, fontsize=12)
        ax.axis("off")
    alt = (
        f"The pieces of {heads} heads and {len(words)} words as a grid. {titles[0]}: all words of "
        f"a head stand in one room. {titles[1]}: the {heads} heads of one word stand in one room."
    )
    caption = "Pieces in the same frame attend to one another."
    return finish(drawing, name=name, alt=alt, caption=caption)
