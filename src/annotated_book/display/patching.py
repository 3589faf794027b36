"""On which way an answer came."""

from collections.abc import Sequence
from math import atan2, degrees
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from annotated_book.display._html import Output
from annotated_book.display.plots import COLOURS, FAINT, finish, panels


def way_of_an_answer(
    words: Sequence[str],
    hops: Sequence[tuple[int, int, str, str]],
    answer: str,
    *,
    name: str,
    caption: str = "",
) -> Output:
    """Draw which word hands what to the last one, in which of two layers, and what comes out.

    Args:
        words: the question.
        hops: a layer, 0 or 1, the place of a word, what its row hands on, and a letter for the
            colour.
        answer: the word that comes next.
        name: the figure's name, see ``finish``.
        caption: HTML under the figure.
    """
    wide, high, last = 43, 110, len(words) - 1
    drawing, (ax,) = panels(wide * len(words) + 8, 2 * high + 88)
    ax.set(xlim=(0, wide * len(words)), ylim=(-24, 2 * high + 62))
    ax.axis("off")
    middle: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 12}
    taking = {(layer, place) for layer, place, *_ in hops}
    for level in range(3):
        for j in range(len(words)):
            lit = (level, j) in taking or (level and j == last)
            if level < 2 or j == last:
                colour, alpha = (COLOURS["b"], 0.6) if lit else (FAINT, 0.18)
                at = (wide * j + 6, high * level)
                _draw_box(ax, *at, wide - 12, 20, colour, alpha)
    for j, word in enumerate(words):
        weight = "bold" if j == last or any(j == place for _, place in taking) else "normal"
        ax.text(wide * (j + 0.5), -13, word, fontweight=weight, **middle)
    end = wide * (last + 0.5)
    ax.text(end, 2 * high + 36, answer, color=COLOURS["n"], fontweight="bold", **middle)
    for layer in range(2):
        ax.text(4, high * layer + 82, f"layer {layer + 1}", color=COLOURS["b"], fontsize=12)
    way: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 13, "linewidth": 2}
    for layer, place, label, letter in hops:
        x, y = wide * (place + 0.5), high * layer + 21
        goal = (end - 20 * (place < last), high * (layer + 1) - 1)
        ax.add_patch(FancyArrowPatch((x, y), goal, color=COLOURS[letter], **way))
        across, up = goal[0] - x, goal[1] - y
        look: dict[str, Any] = {"color": COLOURS[letter], "fontsize": 12, "va": "bottom"}
        if place < last / 2:  # along the arrow
            turn: dict[str, Any] = {
                "rotation": degrees(atan2(up, across)),
                "rotation_mode": "anchor",
            }
            ax.text(x + 0.42 * across, y + 0.42 * up + 3, label, ha="center", **turn, **look)
        else:
            right = sum(each == layer for each, *_ in hops) > 1  # of another arrow's label
            ax.text(x + (24 if right else -5), y + 4, label, ha=("right", "left")[right], **look)
    said = "; ".join(f"layer {layer + 1}, from {words[j]}: {label}" for layer, j, label, _ in hops)
    alt = f"“{' '.join(words)}”. What reaches the last word: {said}. Then comes {answer}."
    return finish(drawing, name=name, alt=alt, caption=caption)


def _draw_box(
    ax: Axes, x: float, y: float, wide: float, high: float, colour: str, alpha: float
) -> None:
    look: dict[str, Any] = {"facecolor": colour, "alpha": alpha, "linewidth": 0}
    ax.add_patch(FancyBboxPatch((x, y), wide, high, "round,pad=0,rounding_size=3", **look))
