"""Two arrows that turn with their positions: their dot product depends on the distance alone."""

from collections.abc import Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.patches import Circle
from torch import Tensor

from annotated_attention.modern.rotary import RotaryEmbedding
from annotated_book.display._html import Output
from annotated_book.display._live import live
from annotated_book.display.plots import COLOURS, FAINT, finish, panels


def rotation(
    query: Tensor,
    key: Tensor,
    *,
    name: str,
    words: tuple[str, str],
    shown: Sequence[tuple[int, int]],
) -> Output:
    """Show a query and a key as arrows that turn; alive, at any position and distance.

    Args:
        query: (2,), one pair of its features.
        key: (2,), the same pair.
        name: the figure's name, see ``finish``.
        words: what query and key belong to.
        shown: the positions of query and key that the picture shows, a dial for each; the first
            is where the live figure begins.
    """
    turn = RotaryEmbedding(2)  # a single pair, which turns by 1 radian per position
    arrows = torch.stack([query, key]).double()
    reach = float(arrows.norm(dim=-1).max())
    drawing, axes = panels(165 * len(shown), 205, len(shown))
    said = []
    for ax, at in zip(axes, shown, strict=True):
        turned = turn(arrows, torch.tensor(at))
        number = float(turned[0] @ turned[1])
        _dial(ax, turned.tolist(), reach)
        where = f"{words[0]} at {at[0]}, {words[1]} at {at[1]}"
        ax.set_title(f"{where}\nscore {number:.2f}".replace("-", "−"), fontsize=13)
        said.append(f"{where}: score {number:.2f}")
    alt = f"Two arrows that turn by 1 radian per position. {'; '.join(said)}."
    pairs = [f"({', '.join(f'{x:g}' for x in pair)})" for pair in (query.tolist(), key.tolist())]
    caption = (
        f"Thick and blue: the query's pair, of “{words[0]}”, {pairs[0]} before it turns. "
        f"Thin and green: the key's, of “{words[1]}”, {pairs[1]}."
    )
    data = {
        "query": query.tolist(),
        "key": key.tolist(),
        "words": list(words),
        "speed": 1,
        "positions": 40,
        "key at": shown[0][1],
        "distance": shown[0][0] - shown[0][1],
        "farthest": 20,
    }
    static = finish(drawing, name=name, alt=alt, caption=caption)
    return live(static, "rotation", data, room=(280, 522))


def _dial(ax: Axes, arrows: list[list[float]], reach: float) -> None:
    """Draw two arrows in a circle that the longer one reaches."""
    ax.add_patch(Circle((0, 0), reach, fill=False, edgecolor=FAINT))
    for (x, y), letter, width in zip(arrows, "nm", (4.0, 2.2), strict=True):
        ax.plot([0, x], [0, y], color=COLOURS[letter], linewidth=width)
        ax.plot([x], [y], "o", color=COLOURS[letter], markersize=width + 3)
    ax.set(xlim=(-1.1 * reach, 1.1 * reach), ylim=(-1.1 * reach, 1.1 * reach), aspect="equal")
    ax.axis("off")
