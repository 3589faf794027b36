"""Two runs of a model side by side, what is answered then, and on which way it came."""

from collections.abc import Mapping, Sequence
from math import atan2, degrees
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
