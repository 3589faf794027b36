"""Lukewarm: scenes as points, and the scenes that a head, or two, cannot tell apart."""

from collections.abc import Mapping, Sequence

import torch

from annotated_book.display._html import Output
from annotated_book.display._live import live
from annotated_book.display.plots import COLOURS, FAINT, finish, panels

_REACH = 4.0


def lukewarm(
    scenes: Mapping[str, tuple[float, float]], share: float, names: Sequence[str], *, name: str
) -> Output:
    """Show the scenes for which a head collects one number; alive, scene and shares move.

    Args:
        scenes: two scenes that the head confuses, by name; the first is where the point begins.
        share: of the first number, in what the head collects.
        names: of the two numbers.
        name: the figure's name, see ``finish``.
    """
    drawing, axes = panels(560, 290, columns=2)
    (x, y), _ = places = [*scenes.values()]
    heads = ((share, "head 1", "h", "-"), (1.0, "head 1", "h", "-"), (0.0, "head 2", "d", "--"))
    for ax, own in zip(axes, (heads[:1], heads[1:]), strict=True):
        for part, who, letter, style in own:
            ends = (x, y), (x - (1 - part), y + part)
            ax.axline(*ends, color=COLOURS[letter], linestyle=style, label=f"{who}: share {part:g}")
        ax.axhline(0, color=FAINT, linewidth=0.6)
        ax.axvline(0, color=FAINT, linewidth=0.6)
        ax.set(xlim=(-_REACH, _REACH), ylim=(-_REACH, _REACH), aspect="equal")
        ax.set(xlabel=names[0], ylabel=names[1], xticks=range(-4, 5, 2), yticks=range(-4, 5, 2))
        ax.legend(loc="upper right", fontsize=11)
    for ax, shown in zip(axes, (2, 1), strict=True):
        ax.scatter(*torch.tensor(places[:shown]).mT.tolist(), color="black", linewidth=0, zorder=3)
        for place, what in [*zip(places, scenes, strict=True)][:shown]:
            ax.annotate(what, place, (7, 5), textcoords="offset points")
    mixes = [share * a + (1 - share) * b for a, b in places]
    alt = (
        f"Scenes as points, {names[0]} to the right, {names[1]} up. Left: one head gives {share:g} "
        f"to the first number; both scenes lie on its line, and it collects {mixes[0]:.2f} and "
        f"{mixes[1]:.2f}. Right: the lines of two heads cross in the first scene alone."
    )
    caption = "A line holds the scenes for which a head brings home the same number. "
    caption += f"The share is that of the {names[0]}."
    other = [[*scenes][1], list(places[1])]
    static = finish(drawing, name=name, alt=alt, caption=caption)
    data = {
        "names": list(names),
        **{"scene": [x, y], "called": next(iter(scenes)), "other": other},
        **{"share": share, "reach": _REACH},
    }
    return live(static, "lukewarm", data, room=(356, 545))
