"""The clocks of the sinusoidal code: each pair of its numbers is the hand of a clock."""

from collections.abc import Sequence

from matplotlib.patches import Circle
from torch import Tensor

from annotated_book.display._html import Output
from annotated_book.display._live import live
from annotated_book.display.plots import COLOURS, FAINT, finish, panels

_APART = 1.75  # how far the clocks of a row stand apart; the rows are 1 apart


def clocks(code: Tensor, *, name: str, shown: Sequence[int]) -> Output:
    """Show positions as hands of clocks; alive, at any position, with a second one beside it.

    Args:
        code: (n, e), the code of n positions, sine and cosine of each clock beside each other.
        name: the figure's name, see ``finish``.
        shown: the positions that the picture shows, a row for each.
    """
    n, e = code.shape
    drawing, (ax,) = panels(75 * e + 90, 84 * len(shown) + 30)
    for row, at in enumerate(shown):
        ax.text(-0.6, row, f"position {at}", ha="right", va="center", fontsize=13)
        for i in range(e // 2):
            sine, cosine = code[at, 2 * i : 2 * i + 2].tolist()
            x = _APART * i
            ax.add_patch(Circle((x, row), 0.42, fill=False, edgecolor=FAINT))
            ax.plot([x, x], [row - 0.42, row - 0.34], color=FAINT)
            tip = [x, x + 0.38 * sine], [row, row - 0.38 * cosine]
            ax.plot(*tip, color=COLOURS["n"], linewidth=3.5, solid_capstyle="round")
            for number, y in ((sine, row - 0.14), (cosine, row + 0.14)):
                said = f"{number:.2f}".replace("-", "−")
                ax.text(x + 1.02, y, said, ha="right", va="center", fontsize=12)
    for i in range(e // 2):
        ax.text(_APART * i, -0.58, f"clock {i + 1}", ha="center", fontsize=13)
    right = _APART * (e // 2 - 1) + 1.1
    ax.set(xlim=(-1.6, right), ylim=(len(shown) - 0.5, -0.8), aspect="equal")
    ax.axis("off")
    hands = (
        f"position {at}: {', '.join(f'{number:.2f}' for number in code[at].tolist())}"
        for at in shown
    )
    alt = f"{e // 2} clocks, whose hands show sine and cosine: {'; '.join(hands)}."
    data = {"clocks": e // 2, "base": 10000, "positions": n, "position": 3, "distance": 2}
    static = finish(drawing, name=name, alt=alt)
    return live(static, "clocks", data, room=(346, 536))
