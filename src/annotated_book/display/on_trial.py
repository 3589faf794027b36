"""Heads on trial: the map of each, how often it hits, how often its control does, the verdict."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path
from torch import Tensor

from annotated_book.display._html import Output
from annotated_book.display.plots import COLOURS, FAINT, finish, panels

_HIGH, _MAP, _WORDS, _BAR = 46, 36, 48, 198  # a row; where its map ends, its words and bar begin
_SHADES = ((0.1, 0.3, 0.25), (0.3, 0.6, 0.55), (0.6, 2.0, 0.95))  # from, below, opacity


class Trial(NamedTuple):
    """What came out when one head was tested."""

    head: str
    weights: Tensor  # its map, a row per query
    hits: tuple[float, float, float]  # the share, and the ends of its interval
    control: tuple[float, float, float]  # the same of the control
    counts: str
    passed: bool


def trials(found: Mapping[str, Trial], *, name: str, caption: str = "") -> Output:
    """Draw a row for each test: the head's map, a tick or a cross, two shares as intervals.

    Args:
        found: what came out, under what each test asks.
        name: the figure's name, see ``finish``.
        caption: HTML under the figure.
    """
    rows, wide = len(found), 352
    drawing, (ax,) = panels(wide, _HIGH * rows + 26)
    ax.set(xlim=(0, wide), ylim=(_HIGH * rows + 20, -6))
    ax.axis("off")
    told = []
    end, foot = wide - 8, _HIGH * rows
    ax.plot([(_BAR + end) / 2] * 2, [0, foot], color=FAINT, linestyle=(0, (3, 3)), linewidth=1)
    for share, ha in ((0.0, "left"), (0.5, "center"), (1.0, "right")):
        x = _BAR + share * (end - _BAR)
        ax.text(x, foot + 10, f"{share:g}", ha=ha, va="center", fontsize=12, color=COLOURS["b"])
    for i, (asked, trial) in enumerate(found.items()):
        top = _HIGH * i
        _draw_map(ax, 2, top + 4, trial.weights)
        mark, letter = ("✓", "m") if trial.passed else ("✗", "h")
        line: dict[str, Any] = {"va": "center", "fontsize": 12}
        ax.text(_WORDS, top + 13, mark, color=COLOURS[letter], fontweight="bold", **line)
        ax.text(_WORDS + 15, top + 13, asked, **line)
        ax.text(_WORDS + 15, top + 30, trial.head, color=COLOURS["b"], **line)
        for shares, y, colour, filled in (
            (trial.hits, top + 14, COLOURS["n"], True),
            (trial.control, top + 29, COLOURS["b"], False),
        ):
            share, *ends = (_BAR + x * (end - _BAR) for x in shares)
            ax.plot(ends, [y, y], color=colour, linewidth=5, alpha=0.4, solid_capstyle="butt")
            style: dict[str, Any] = {"markersize": 7, "markeredgecolor": colour}
            inside = colour if filled else "none"
            ax.plot([share], [y], marker="o", markerfacecolor=inside, **style)
        verdict = "passes" if trial.passed else "does not pass"
        told.append(f"{asked} ({trial.head}): {trial.counts}; it {verdict}")
    return finish(drawing, name=name, alt=f"{'. '.join(told)}.", caption=caption)


def torn(
    rows: Sequence[tuple[str, str, Sequence[tuple[str, int]]]], *, name: str, caption: str = ""
) -> Output:
    """Draw two nouns in each row, and between them each pronoun on the side that it looks at.

    Args:
        rows: of each the two nouns, and the pronouns in order, with the noun that each looks at: 0
            or 1, or -1 for neither. A row is bold where one pronoun goes left and the other right.
        name: the figure's name, see ``finish``.
        caption: HTML under the figure.

    Examples:
        >>> from annotated_book import display
        >>> rows = [("king", "queen", [("he", 0), ("she", 1)]), ("cat", "milk", [("it", -1)])]
        >>> display.torn(rows, name="try")
        Figure: king: he; queen: she. cat: none; milk: none; neither: it.
    """
    wide, high, letter, gap = 352, 20, 6.9, 4
    drawing, (ax,) = panels(wide, high * len(rows) + 4)
    ax.set(xlim=(0, wide), ylim=(high * len(rows), -4))
    ax.axis("off")
    told = []
    for i, (*nouns, looks) in enumerate(rows):
        y = high * (i + 0.5)
        sides = [[who for who, at in looks if at == side] for side in (0, 1, -1)]
        clean = all(sides[:2]) and not sides[2] and not set(sides[0]) & set(sides[1])
        line: dict[str, Any] = {"va": "center", "fontsize": 12}
        for noun, x, ha in zip(nouns, (84, 268), ("right", "left"), strict=True):
            ax.text(x, y, noun, ha=ha, fontweight="bold" if clean else "normal", **line)
        for side, share in zip(sides, (0, 1, 0.5), strict=True):
            total = sum(letter * len(who) + gap for who in side) - gap
            left = 92 + share * (168 - total)
            for who in side:
                colour = COLOURS["n" if who == looks[0][0] else "h"]
                ax.text(left, y, who, color=colour, fontweight="bold", **line)
                left += letter * len(who) + gap
        said = [f"{noun}: {', '.join(x) or 'none'}" for noun, x in zip(nouns, sides, strict=False)]
        told.append("; ".join(said + [f"neither: {', '.join(sides[2])}"] * bool(sides[2])))
        ax.plot([92, 260], [high * (i + 1)] * 2, color=FAINT, linewidth=0.4)
    return finish(drawing, name=name, alt=f"{'. '.join(told)}.", caption=caption)


def _draw_map(ax: Axes, x: float, y: float, weights: Tensor) -> None:
    """Draw a head's weights small, strong ones in strong colour, as in the map of all heads."""
    n, m = weights.shape
    size = _MAP - 2
    for low, below, opacity in _SHADES:
        places = ((weights >= low) & (weights < below)).nonzero().tolist()
        if places:
            cells = [
                Path([(a, b), (a + size / m, b), (a + size / m, b + size / n), (a, b + size / n)])
                for a, b in ((x + j * size / m, y + i * size / n) for i, j in places)
            ]
            path = Path.make_compound_path(*cells)
            look: dict[str, Any] = {"facecolor": COLOURS["n"], "alpha": opacity, "linewidth": 0}
            ax.add_patch(PathPatch(path, **look))
    frame: dict[str, Any] = {"facecolor": "none", "edgecolor": FAINT, "linewidth": 0.7}
    ax.add_patch(Rectangle((x, y), size, size, **frame))
