"""Two runs of a model side by side, and how many answers flip when a part is exchanged."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle
from torch import Tensor

from annotated_book.display._html import Output
from annotated_book.display.plots import COLOURS, FAINT, finish, panels

_WIDE, _LEFT, _APART = 49, 100, 70  # a column, the first run's left edge, from run to run
_LEVELS = (34, 92)  # where the rows that enter the two layers stand
_KINDS = (("the one meant", "n"), ("the other", "h"), ("a third word", "b"))


def two_runs(
    words: tuple[Sequence[str], Sequence[str]],
    answers: tuple[str, str, str],
    differ: Tensor,
    *,
    name: str,
    caption: str,
) -> Output:
    """Draw a question and its twin, and the row that is carried over: the last before layer 2.

    Args:
        words: the last words of the twin, and of the question.
        answers: to the twin, to the question, and to the question after the exchange.
        differ: (2, n) booleans, whether the rows that enter a layer differ between the two.
        name: the figure's name, see ``finish``.
        caption: HTML under the figure.
    """
    n = len(words[0])
    run = n * _WIDE
    starts = (_LEFT, _LEFT + run + _APART)
    drawing, (ax,) = panels(starts[1] + run + 10, 224)
    ax.set(xlim=(0, starts[1] + run), ylim=(-12, 206))
    ax.axis("off")
    middle: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 12}
    for layer, y in enumerate(_LEVELS):
        ax.text(_LEFT - 12, y, f"before layer {layer + 1}", **middle | {"ha": "right"})
    for which, (start, letter) in enumerate(zip(starts, "hn", strict=True)):
        title = ("the twin", "the question")[which]
        ax.text(start + run / 2, 196, title, color=COLOURS[letter], **middle)
        for layer, y in enumerate(_LEVELS):
            _draw_box(ax, start + 2, y + 19, run - 4, 20, FAINT, 0.12)
            ax.text(start + run / 2, y + 29, f"layer {layer + 1}", color=COLOURS["b"], **middle)
            for j in range(n):
                given = which == 1 and layer == 1 and j == n - 1  # comes from the twin
                own = letter if differ[layer, j] else "b"
                colour = COLOURS["h" if given else own]
                _draw_box(ax, start + j * _WIDE + 5, y - 11, _WIDE - 10, 22, colour, 0.55)
        for j, word in enumerate(words[which]):
            own = letter if differ[0, j] else "b"
            ax.text(start + (j + 0.5) * _WIDE, 2, word, color=COLOURS[own], **middle)
    ends = [start + (n - 0.5) * _WIDE for start in starts]
    way: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 13, "linewidth": 2}
    bend = "arc3,rad=-0.28"
    start_at, end_at = (ends[0] + 20, 103), (ends[1] - 14, 105)
    carried = FancyArrowPatch(start_at, end_at, connectionstyle=bend, color=COLOURS["h"], **way)
    ax.add_patch(carried)
    ax.text(ends[0], 154, answers[0], color=COLOURS["h"], fontweight="bold", **middle)
    ax.text(ends[1], 154, answers[1], color=COLOURS["n"], **middle)
    ax.plot([ends[1] - 14, ends[1] + 14], [153, 153], color=COLOURS["n"], linewidth=1.5)
    ax.text(ends[1], 173, answers[2], color=COLOURS["h"], fontweight="bold", **middle)
    apart = [
        ", ".join(word for word, its in zip(words[1], row, strict=True) if its)
        for row in differ.tolist()
    ]
    alt = (
        f"Two runs side by side, “{' '.join(words[0])}” and “{' '.join(words[1])}”. Before layer 1 "
        f"their rows differ at: {apart[0]}; before layer 2 at: {apart[1]}. The row of the last "
        f"word before layer 2 is carried from the first run into the second, whose answer "
        f"flips from {answers[1]} to {answers[2]}."
    )
    return finish(drawing, name=name, alt=alt, caption=caption)


def flips(
    shares: Mapping[str, Mapping[str, Sequence[float]]],
    columns: Sequence[str],
    *,
    name: str,
    caption: str = "",
) -> Output:
    """Draw a map of shares, the stronger the larger: a panel under each title, or a single one.

    Args:
        shares: for each panel's title, a share for each column under the name of each row.
        columns: what stands under the columns.
        name: the figure's name, see ``finish``.
        caption: HTML under the figure.
    """
    rows = max(map(len, shares.values()))
    left = 7.2 * max(len(row) for panel in shares.values() for row in panel)
    titled, wide = any(shares), max(50.0, 6.6 * max(map(len, columns)) + 8)
    high = 26 * rows + 34 + 22 * titled
    drawing, axes = panels((left + wide * len(columns) + 8) * len(shares), high, len(shares))
    told = []
    for ax, (title, panel) in zip(axes, shares.items(), strict=True):
        ax.set(xlim=(-left, wide * len(columns)), ylim=(26 * rows + 24, -4 - 22 * titled))
        ax.axis("off")
        if title:
            ax.text(wide * len(columns) / 2, -14, title, ha="center", va="center", fontsize=12)
        for i, (row, numbers) in enumerate(panel.items()):
            ax.text(-8, 26 * i + 13, row, ha="right", va="center", fontsize=12)
            for j, number in enumerate(numbers):
                ax.add_patch(_cell(wide * j, 26 * i, wide, number))
                style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 12}
                ax.text(wide * (j + 0.5), 26 * i + 13, f"{number:.2f}", **style)
            each = (f"{x} {y:.2f}" for x, y in zip(columns, numbers, strict=True))
            told.append(f"{f'{title}, ' * bool(title)}{row}: {', '.join(each)}")
        for j, column in enumerate(columns):
            ax.text(wide * (j + 0.5), 26 * rows + 13, column, ha="center", va="center", fontsize=12)
    return finish(drawing, name=name, alt=f"{'; '.join(told)}.", caption=caption)


def kinds_of_answers(
    shares: Mapping[str, Mapping[str, Sequence[float]]], *, name: str, caption: str = ""
) -> Output:
    """Draw what is answered as a bar of three parts: the one meant, the other, a third word.

    Args:
        shares: for each panel's title, the three shares under the name of each bar.
        name: the figure's name, see ``finish``.
        caption: HTML under the figure.
    """
    rows = max(map(len, shares.values()))
    drawing, axes = panels(348 * len(shares), 27 * rows + 58, len(shares))
    told = []
    for ax, (title, bars) in zip(axes, shares.items(), strict=True):
        ax.set(xlim=(-0.42, 1.02), ylim=(rows - 0.4, -2.1))
        ax.axis("off")
        ax.text(0.5, -1.75, title, ha="center", va="center", fontsize=12, fontweight="bold")
        for (kind, letter), (x, ha) in zip(
            _KINDS, ((0, "left"), (0.58, "center"), (1, "right")), strict=True
        ):
            look: dict[str, Any] = {"color": COLOURS[letter], "fontsize": 12, "va": "center"}
            ax.text(x, -0.95, kind, ha=ha, **look)
        for i, (bar, parts) in enumerate(bars.items()):
            ax.text(-0.03, i, bar, ha="right", va="center", fontsize=12)
            start = 0.0
            for part, (_, letter) in zip(parts, _KINDS, strict=True):
                look = {"facecolor": COLOURS[letter], "alpha": 0.55, "linewidth": 0}
                ax.add_patch(Rectangle((start, i - 0.36), part, 0.72, **look))
                if part > 0.09:
                    style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 12}
                    ax.text(start + part / 2, i, f"{part:.2f}", **style)
                start += part
            each = (f"{kind} {part:.2f}" for (kind, _), part in zip(_KINDS, parts, strict=True))
            told.append(f"{title}, {bar}: {', '.join(each)}")
    return finish(drawing, name=name, alt=f"{'; '.join(told)}.", caption=caption)


def _draw_box(
    ax: Axes, x: float, y: float, wide: float, high: float, colour: str, alpha: float
) -> None:
    look: dict[str, Any] = {"facecolor": colour, "alpha": alpha, "linewidth": 0}
    ax.add_patch(FancyBboxPatch((x, y), wide, high, "round,pad=0,rounding_size=3", **look))


def _cell(x: float, y: float, wide: float, share: float) -> Rectangle:
    """Give the cell of a map: empty at 0, full at 1, and framed."""
    look: dict[str, Any] = {"edgecolor": FAINT, "linewidth": 0.6}
    fill: dict[str, Any] = {"facecolor": "none"}
    if share >= 0.005:
        fill = {"facecolor": (*_rgb(COLOURS["h"]), 0.62 * share)}
    return Rectangle((x + 1, y + 1), wide - 2, 24, **look, **fill)


def _rgb(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue
