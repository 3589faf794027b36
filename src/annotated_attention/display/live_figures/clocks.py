"""The clocks of the sinusoidal code: each pair of its numbers is the hand of a clock."""

from collections.abc import Sequence

from matplotlib.patches import Circle
from torch import Tensor

from annotated_attention.display._live import Live, live
from annotated_attention.display.plots import COLOURS, FAINT, finish, panels


def clocks(
    code: Tensor,
    *,
    name: str,
    shown: Sequence[int],
    position: int = 3,
    distance: int = 2,
    base: int = 10000,
) -> Live:
    """Show positions as hands of clocks; alive, at any position, with a second one beside it.

    Args:
        code: (n, e), the code of n positions, sine and cosine of each clock beside each other.
        name: the figure's name, see ``finish``.
        shown: the positions that the picture shows, a row for each.
        position: the position to begin with.
        distance: how far away the second position is at the start, up to 20.
        base: what the clocks' speeds are made of: clock i turns by base^(-2i / e) per position.

    Raises:
        ValueError: an odd width, or a position that is not in ``code``.
    """
    n, e = code.shape
    if e % 2:
        raise ValueError(f"code must be of an even width, got {e}")
    for at in (*shown, position):
        if not 0 <= at < n:
            raise ValueError(f"position ({at}) must be one of {n}")
    drawing, (ax,) = panels(110 * e // 2 + 110, 112 * len(shown) + 30)
    for row, at in enumerate(shown):
        ax.text(-0.75, row, f"position {at}", ha="right", va="center", fontsize=13)
        for i in range(e // 2):
            sine, cosine = code[at, 2 * i : 2 * i + 2].tolist()
            ax.add_patch(Circle((i, row), 0.36, fill=False, edgecolor=FAINT))
            ax.plot([i, i], [row - 0.36, row - 0.29], color=FAINT)
            tip = [i, i + 0.33 * sine], [row, row - 0.33 * cosine]
            ax.plot(*tip, color=COLOURS["n"], linewidth=3.5, solid_capstyle="round")
            said = f"{sine:.2f}, {cosine:.2f}".replace("-", "−")
            ax.text(i, row + 0.5, said, ha="center", va="center", fontsize=12)
    for i in range(e // 2):
        ax.text(i, -0.55, f"clock {i + 1}", ha="center", fontsize=13)
    ax.set(xlim=(-1.7, e // 2 - 0.45), ylim=(len(shown) - 0.3, -0.75), aspect="equal")
    ax.axis("off")
    hands = (
        f"position {at}: {', '.join(f'{number:.2f}' for number in code[at].tolist())}"
        for at in shown
    )
    alt = f"{e // 2} clocks, whose hands show sine and cosine: {'; '.join(hands)}."
    data = {
        "clocks": e // 2, "base": base, "positions": n, "position": position, "distance": distance,
    }  # fmt: skip
    return live(finish(drawing, name=name, alt=alt), "clocks", data, room=(300, 530))
