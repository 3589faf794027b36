"""Lukewarm: scenes as points, and the scenes that a head, or two, cannot tell apart."""

from collections.abc import Mapping, Sequence

import torch

from annotated_book.display._html import Output
from annotated_book.display._live import live
from annotated_book.display.plots import COLOURS, FAINT, finish, panels

_REACH = 4.0


def lukewarm(
    scenes: Mapping[str, tuple[float, float]],
    share: float,
    names: Sequence[str],
    *,
    name: str,
    start: float = 0.5,
) -> Output:
    """Show the scenes for which a head collects one number; alive, the reader leans the head.

    Args:
        scenes: by name, two that the head tells apart, and one that it confuses with the first.
        share: of the first number, in what the head collects in the picture.
        names: of the two numbers.
        name: the figure's name, see ``finish``.
        start: the share at which the live figure begins.
    """
    drawing, axes = panels(600, 310, columns=2)
    (x, y), *_ = places = [*scenes.values()]
    heads = ((share, "head 1", "h", "-"), (1 - share, "head 2", "d", "--"))
    mixes = [[part * a + (1 - part) * b for part, *_ in heads] for a, b in places]
    for ax, many in zip(axes, (1, 2), strict=True):
        for part, who, letter, style in heads[:many]:
            ends = (x, y), (x - (1 - part), y + part)
            told = f"{who}: {names[0]}'s share {part:g}"
            ax.axline(*ends, color=COLOURS[letter], linestyle=style, label=told)
        ax.axhline(0, color=FAINT, linewidth=0.6)
        ax.axvline(0, color=FAINT, linewidth=0.6)
        ax.set(xlim=(-_REACH, _REACH), ylim=(-_REACH, _REACH + 0.8), aspect="equal")
        ax.set(xlabel=names[0], ylabel=names[1], xticks=range(-4, 5, 2), yticks=range(-4, 5, 2))
        ax.legend(loc="lower left", fontsize=10)
        ax.scatter(*torch.tensor(places).mT.tolist(), color="black", linewidth=0, zorder=3)
        for (a, b), what, homes in zip(places, scenes, mixes, strict=True):
            text = f"{what}: {', '.join(written(home) for home in homes[:many])}"
            side = "center" if a < 0 else "right"
            ax.annotate(text, (a, b), (-4, -14), textcoords="offset points", ha=side, fontsize=10)
    both = [" and ".join(map(written, each)) for each in mixes]
    alt = (
        f"Scenes as points, {names[0]} to the right, {names[1]} up. Left: a head that takes "
        f"{share:g} from the {names[0]}; the first scene and the last lie on its line. Right: "
        f"a second head with the shares exchanged. The two bring home "
        + "; ".join(f"{told} from {what}" for told, what in zip(both, scenes, strict=True))
        + "."
    )
    caption = "A line holds the scenes from which a head brings home the same number. "
    caption += "Beside each scene stands what comes home."
    static = finish(drawing, name=name, alt=alt, caption=caption)
    data = {
        "names": list(names),
        "scenes": [[what, list(place)] for what, place in scenes.items()],
        **{"share": start, "reach": _REACH},
    }
    return live(static, "lukewarm", data, room=(356, 620))


def written(number: float) -> str:
    """Write a number as the live figure does."""
    return f"{number:.2f}".replace("-", "−")
