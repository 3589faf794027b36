"""Two arrows that turn with their positions: their dot product depends on the distance alone."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Circle
from torch import Tensor

from annotated_attention.display._live import Live, live
from annotated_attention.display.plots import COLOURS, FAINT, finish, panels

_FARTHEST = 20  # the largest distance of the slider


def turned(arrow: Sequence[float], angle: float) -> tuple[float, float]:
    """Turn two numbers, read as an arrow, counterclockwise."""
    x, y = arrow
    return (
        x * math.cos(angle) - y * math.sin(angle),
        y * math.cos(angle) + x * math.sin(angle),
    )


def score(query: Sequence[float], key: Sequence[float], at: tuple[int, int], speed: float) -> float:
    """Give the dot product of a query and a key that stand at these two positions."""
    a, b = (turned(arrow, p * speed) for arrow, p in zip((query, key), at, strict=True))
    return a[0] * b[0] + a[1] * b[1]


def rotation(
    query: Tensor,
    key: Tensor,
    *,
    name: str,
    words: tuple[str, str],
    shown: Sequence[tuple[int, int]],
    speed: float = 1.0,
    positions: int = 40,
) -> Live:
    """Show a query and a key as arrows that turn; alive, at any position and distance.

    Args:
        query: (2,), one pair of its features.
        key: (2,), the same pair.
        name: the figure's name, see ``finish``.
        words: what query and key belong to.
        shown: the positions of query and key that the picture shows, a dial for each; the first
            is where the live figure begins.
        speed: by how many radians the pair turns per position.
        positions: how many positions there are for the key.

    Raises:
        ValueError: an arrow that does not have two numbers, or a query that stands before its key.

    Examples:
        >>> import torch
        >>> from annotated_attention import display
        >>> arrows = torch.tensor([1.0, 1.0]), torch.tensor([3.0, 0.0])
        >>> words, shown = ("it", "cat"), [(5, 1), (6, 2)]
        >>> display.rotation(*arrows, name="arrows", words=words, shown=shown).module
        'rotation'
    """
    arrows: list[list[float]] = [query.tolist(), key.tolist()]
    if [len(arrow) for arrow in arrows] != [2, 2]:
        raise ValueError(f"query and key must be arrows of two numbers, got {arrows}")
    for at in shown:
        if not 0 <= at[0] - at[1] <= _FARTHEST or not 0 <= at[1] < positions:
            raise ValueError(f"shown {at} must have its key in front of its query, and not far")
    drawing, axes = panels(118 * len(shown), 160, len(shown))
    said = []
    for ax, at in zip(axes, shown, strict=True):
        number = score(arrows[0], arrows[1], at, speed)
        _dial(ax, arrows, at, speed)
        where = f"{words[0]} at {at[0]}, {words[1]} at {at[1]}"
        ax.set_title(f"{where}\nscore {number:.2f}".replace("-", "−"), fontsize=11)
        said.append(f"{where}: score {number:.2f}")
    alt = f"Two arrows that turn by {speed:g} radian per position. {'; '.join(said)}."
    caption = "The thick blue arrow is the query's pair, the thin green one the key's."
    data = {
        "query": arrows[0], "key": arrows[1], "words": list(words), "speed": speed,
        "positions": positions, "key at": shown[0][1], "distance": shown[0][0] - shown[0][1],
        "farthest": _FARTHEST,
    }  # fmt: skip
    static = finish(drawing, name=name, alt=alt, caption=caption)
    return live(static, "rotation", data, room=(270, 500))


def _dial(ax: Axes, arrows: list[list[float]], at: tuple[int, int], speed: float) -> None:
    """Draw two arrows in a circle that the longer one reaches."""
    reach = max(math.hypot(*arrow) for arrow in arrows)
    ax.add_patch(Circle((0, 0), reach, fill=False, edgecolor=FAINT))
    looks = (("n", 4.0, "-"), ("m", 2.2, "-"))
    for arrow, position, (letter, width, style) in zip(arrows, at, looks, strict=True):
        x, y = turned(arrow, position * speed)
        ax.plot([0, x], [0, y], style, color=COLOURS[letter], linewidth=width)
        ax.plot([x], [y], "o", color=COLOURS[letter], markersize=width + 3)
    ax.set(xlim=(-1.1 * reach, 1.1 * reach), ylim=(-1.1 * reach, 1.1 * reach), aspect="equal")
    ax.axis("off")
