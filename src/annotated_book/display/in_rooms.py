"""The words of two heads as a grid, once with a room for each head, once with one for each word."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from torch import Tensor

from annotated_book.display._html import Output
from annotated_book.display.plots import COLOURS, FAINT, finish, panels

_HEADS = "hd"  # the letters whose colours the two heads have
_APART = 72  # from one head's words to the next head's


def stacks(
    words: Sequence[str],
    query: int,
    by_head: Tensor,
    by_word: Tensor,
    titles: tuple[str, str],
    *,
    name: str,
) -> Output:
    """Draw to whom one word listens: to the words of a head, or to the heads of a word.

    Args:
        words: n of them.
        query: the index of the word that listens.
        by_head: (h, n), its weights in the stack with the heads first.
        by_word: (h, h), its weights in the stack with the words first.
        titles: of the two stacks.
        name: the figure's name, see ``finish``.
    """
    wide = [6.6 * len(word) + 12 for word in words]
    left = [sum(wide[:j]) + 4 * j for j in range(len(words) + 1)]
    middle = [x + w / 2 for x, w in zip(left, wide, strict=False)]
    tops, feet = (-46, -32), (34, 48)
    drawing, (heads_first, words_first) = panels(688, 184, columns=2)
    axes = heads_first, words_first
    for ax, title, top, foot in zip(axes, titles, tops, feet, strict=True):
        ax.set(xlim=(-50, left[-1]), ylim=(_APART + foot, top))
        ax.set_title(title, fontsize=12)
        ax.axis("off")
        for i, letter in enumerate(_HEADS):
            look: dict[str, Any] = {"va": "center", "fontsize": 12, "color": COLOURS[letter]}
            ax.text(-8, _APART * i, f"head {i + 1}", ha="right", **look)
            for j, (word, x) in enumerate(zip(words, middle, strict=True)):
                bold = "bold" if j == query else "normal"
                ax.text(x, _APART * i, word, ha="center", fontweight=bold, **look)
    for i, weights in enumerate(by_head.tolist()):
        colour = COLOURS[_HEADS[i]]
        _room(heads_first, 0, _APART * i - 44, left[-1] - 4, 68, colour)
        for x, weight in zip(middle, weights, strict=True):
            start, end = (middle[query], _APART * i - 9), (x, _APART * i - 9)
            bend = 0.35 if x < middle[query] else -0.35
            _listen(heads_first, start, end, bend, weight, colour)
            if weight > 0.2:
                place = (x, _APART * i + 16)
                heads_first.text(*place, f"{weight:.2f}", ha="center", va="center", fontsize=12)
    for j, (x, w) in enumerate(zip(left, wide, strict=False)):
        here = j == query
        _room(words_first, x, -28, w, _APART + 56, "black" if here else FAINT)
        for i in range(2):  # each head of the word listens to the other, and to itself
            weight, colour = by_word[i, 1 - i].item(), COLOURS[_HEADS[i]]
            start, end = ((middle[j] + 5 * (2 * i - 1), y) for y in (9, _APART - 9))
            ends = (end, start) if i else (start, end)
            _listen(words_first, *ends, 0.0, weight if here else 0.1, colour if here else FAINT)
            if here:
                y, bend = (_APART + 9, 2.8) if i else (-9, -2.8)
                home = (middle[j] - 5, y), (middle[j] + 5, y)
                _listen(words_first, *home, bend, by_word[i, i].item(), colour)
    each = f"{by_word[0, 1]:.2f} across, {by_word[0, 0]:.2f} at home"
    words_first.text(middle[query], _APART + 40, each, ha="center", va="center", fontsize=12)
    told = [
        f"head {i + 1} " + ", ".join(f"{a} {w:.2f}" for a, w in zip(words, row, strict=True))
        for i, row in enumerate(by_head.tolist())
    ]
    between = "; ".join(" and ".join(f"{x:.2f}" for x in row) for row in by_word.tolist())
    alt = (
        f"Pieces of two heads and {len(words)} words as a grid. {titles[0]}: all words of a head "
        f"stand in one frame; “{words[query]}” gives {'; '.join(told)}. {titles[1]}: the heads of "
        f"one word stand in one frame; those of “{words[query]}” give themselves {between}."
    )
    return finish(drawing, name=name, alt=alt, caption="Each frame is a problem of its own.")


def _room(ax: Axes, x: float, y: float, wide: float, high: float, colour: str) -> None:
    look: dict[str, Any] = {"facecolor": to_rgba(colour, 0.08), "edgecolor": colour}
    ax.add_patch(FancyBboxPatch((x, y), wide, high, "round,pad=0,rounding_size=2", **look))


def _listen(
    ax: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    bend: float,
    weight: float,
    colour: str,
) -> None:
    """Draw who listens to whom, as thick as the weight; no line where it starts."""
    if start != end:
        way = FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>" if weight > 0.2 else "-",
            connectionstyle=f"arc3,rad={bend}",
            mutation_scale=9,
            linewidth=0.4 + 4 * weight,
            color=colour,
            shrinkA=0,
            shrinkB=0,
        )
        ax.add_patch(way)
