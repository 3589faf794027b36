"""What is answered, and on which way the answer came."""

from collections.abc import Mapping, Sequence
from math import atan2, degrees
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from annotated_book.display._html import Output
from annotated_book.display.plots import COLOURS, FAINT, finish, panels

_KINDS = (("the one meant", "n"), ("the other", "h"), ("a third word", "b"))


def kinds_of_answers(
    shares: Mapping[str, Mapping[str, Sequence[float]]], *, name: str, caption: str = ""
) -> Output:
    """Draw what is answered as a bar of three parts: the one meant, the other, a third word.

    A dashed line marks one half, up to which a coin is right.

    Args:
        shares: for each group's title, the three shares under the name of each bar.
        name: the figure's name, see ``finish``.
        caption: HTML under the figure.
    """
    longest = max(len(bar) for bars in shares.values() for bar in bars)
    left, wide = max(6.5 * longest, 100), 204
    rows = sum(len(bars) + 0.9 * bool(title) for title, bars in shares.items())
    drawing, (ax,) = panels(left + wide + 10, 27 * rows + 46)
    ax.set(xlim=(-left / wide, 1.03), ylim=(rows - 0.1, -1.5))
    ax.axis("off")
    for (kind, letter), (x, ha) in zip(
        _KINDS, ((-0.3, "left"), (0.44, "center"), (1, "right")), strict=True
    ):
        look: dict[str, Any] = {"color": COLOURS[letter], "fontsize": 12, "va": "center"}
        ax.text(x, -1, kind, ha=ha, fontweight="bold", **look)
    told, y = [], 0.0
    for title, bars in shares.items():
        if title:
            ax.text(0, y, title, va="center", fontsize=12)
            y += 0.9
        ax.plot([0.5, 0.5], [y - 0.5, y + len(bars) - 0.5], color=FAINT, ls="--", lw=1)
        for bar, parts in bars.items():
            ax.text(-0.03, y, bar, ha="right", va="center", fontsize=12)
            start = 0.0
            for part, (_, letter) in zip(parts, _KINDS, strict=True):
                look = {"facecolor": COLOURS[letter], "alpha": 0.55, "linewidth": 0}
                ax.add_patch(Rectangle((start, y - 0.36), part, 0.72, **look))
                if part > 0.15:
                    style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 12}
                    x = start + part / 2
                    x += 0.13 * (abs(x - 0.5) < 0.1)  # beside the dashed line
                    ax.text(x, y, f"{part:.2f}", **style)
                start += part
            each = (f"{kind} {part:.2f}" for (kind, _), part in zip(_KINDS, parts, strict=True))
            told.append(f"{f'{title}, ' * bool(title)}{bar}: {', '.join(each)}")
            y += 1
    return finish(drawing, name=name, alt=f"{'; '.join(told)}.", caption=caption)


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
