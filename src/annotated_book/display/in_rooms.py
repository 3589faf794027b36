"""Words of several heads as a grid, once with a room for each head, once with one for each word."""

from collections.abc import Sequence

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
    n = len(words)
    drawing, axes = panels(620, 2 * (40 * heads + 84), rows=2)
    for ax, title, by_head in zip(axes, titles, (True, False), strict=True):
        rooms = range(heads) if by_head else range(n)
        for room in rooms:
            corner, size = ((-0.42, room - 0.36), (n - 0.16, 0.72))
            colour = COLOURS[_HEADS[room % 2]] if by_head else FAINT
            if not by_head:
                corner, size = ((room - 0.42, -0.36), (0.84, heads - 0.28))
            ax.add_patch(
                FancyBboxPatch(
                    corner,
                    *size,
                    "round,pad=0.02",
                    facecolor=to_rgba(colour, 0.1),
                    edgecolor=colour,
                    linewidth=1.6,
                )
            )
        for i in range(heads):
            colour = COLOURS[_HEADS[i % 2]]
            ax.text(-0.7, i, f"head {i + 1}", ha="right", va="center", fontsize=12, color=colour)
            for j, word in enumerate(words):
                ax.text(j, i, word, ha="center", va="center", fontsize=12, color=colour)
        ax.set(xlim=(-1.7, n - 0.4), ylim=(heads - 0.4, -0.6))
        ax.set_title(title, fontsize=12)
        ax.axis("off")
    alt = (
        f"The pieces of {heads} heads and {n} words as a grid. {titles[0]}: all words of a head "
        f"stand in one room. {titles[1]}: the {heads} heads of one word stand in one room."
    )
    caption = "Pieces in the same frame attend to one another."
    return finish(drawing, name=name, alt=alt, caption=caption)
