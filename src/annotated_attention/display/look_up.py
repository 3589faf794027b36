"""The soft look-up: as books on a shelf, and for one query with all its numbers."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from annotated_attention.display._html import Output
from annotated_attention.display.plots import COLOURS, FAINT, finish, panels

_ROW = 21  # pixels from one key to the next
_COLUMNS = (84, 160, 208)  # where score, exponential and weight end
_BAR, _VALUE, _FEATURE = 213, 272, 44  # where bars begin, the first value, from each to the next


def soft_look_up(
    question: str, shelf: Mapping[str, str], shares: Tensor, *, name: str, caption: str
) -> Output:
    """Draw a question, the titles that it is compared with, and what each book contributes.

    Args:
        question: the query.
        shelf: for each book its title, the key, and the subject of its pages, the value.
        shares: (m,), how much of its pages each book gives.
        name: the figure's name, see ``finish``.
        caption: HTML under the figure.
    """
    drawing, ax = _canvas(418, 50 + 52 * len(shelf))
    middle = 50 + 26 * len(shelf) - 5
    for x, letter, part, meaning in (
        (60, "n", "query", "your question"),
        (200, "m", "keys", "titles"),
        (286, "m", "values", "pages"),
        (386, "h", "output", "your notes"),
    ):
        ax.text(x, 8, part, ha="center", color=COLOURS[letter], fontsize=12, fontweight="bold")
        ax.text(x, 25, meaning, ha="center", fontsize=11)
    _box(ax, 60, middle, 118, "n", question)
    said = []
    for i, ((title, pages), share) in enumerate(zip(shelf.items(), shares.tolist(), strict=True)):
        y = 68 + 52 * i
        for ends in (((120, 150), (middle, y)), ((318, 362), (y, middle))):
            ax.plot(*ends, color=COLOURS["h"], linewidth=0.6 + 9 * share, alpha=0.6)
        _box(ax, 200, y, 100, "m", title)
        _box(ax, 286, y, 64, "m", pages)
        ax.text(322, y + (15 if y > middle else -6), f"{share:.2f}", fontsize=11)
        said.append(f"“{title}” gives {share:.2f} of its pages {pages}")
    _box(ax, 387, middle, 50, "h", "a mix")
    alt = f"The question “{question}” is compared with the titles of all books. {'; '.join(said)}."
    return finish(drawing, name=name, alt=alt, caption=caption)


def one_query(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    words: Sequence[str],
    features: Sequence[str],
    *,
    who: str,
    name: str,
) -> Output:
    """Draw attention for one query as a table: score, exponential and weight of each key, the mix.

    Args:
        query: (d,).
        keys: (m, d).
        values: (m, d_v).
        words: m words, one per key.
        features: d_v names, one per number of a value.
        who: the word that the query belongs to.
        name: the figure's name, see ``finish``.
    """
    scores, root = keys @ query, math.sqrt(len(query))
    powers = (scores / root).exp()
    weights = powers / powers.sum()
    parts = weights[:, None] * values
    sums = [f"{total:.2f}" for total in parts.sum(0)]
    places = [_VALUE + _FEATURE * j for j in range(len(features))]
    drawing, ax = _canvas(places[-1] + 23, _ROW * (len(words) + 3.4))
    asks = f"“{who}” asks with ({', '.join(f'{number:g}' for number in query.tolist())})"
    ax.text(0, _ROW * 0.7, asks, color=COLOURS["n"], fontsize=11, fontweight="bold")
    _row(ax, _ROW * 1.9, "key", "score", f"exp(score/{root:.3g})", "weight", color="black")
    middle: Any = {"ha": "center", "fontsize": 11}
    for x, feature in zip(places, features, strict=True):
        ax.text(x, _ROW * 1.9, feature, **middle)
    ax.text(sum(places) / len(places), _ROW * 0.9, "value", color=COLOURS["m"], **middle)
    for i, word in enumerate(words):
        y = _ROW * (i + 3)
        _row(ax, y, word, f"{scores[i]:g}", f"{powers[i]:.2f}", f"{weights[i]:.2f}")
        _bar(ax, _BAR, y, 32 * float(weights[i] / weights.max()), 0.6, "h")
        for x, value, part in zip(places, values[i].tolist(), parts[i].tolist(), strict=True):
            _bar(ax, x - 21, y, 42, 0.6 * abs(part) / float(parts.abs().max()), "m")
            ax.text(x, y, f"{value:g}", **middle)
    last = _ROW * (len(words) + 3.15)
    ax.plot([0, places[-1] + 23], [last - 15, last - 15], color=FAINT, linewidth=1)
    _row(ax, last, "sum", "", f"{powers.sum():.2f}", f"{weights.sum():.2f}", fontweight="bold")
    for x, total in zip(places, sums, strict=True):
        ax.text(x, last, total, color=COLOURS["h"], fontweight="bold", **middle)
    looks = ", ".join(f"{word} {weight:.2f}" for word, weight in zip(words, weights, strict=True))
    mixed = ", ".join(map(" ".join, zip(features, sums, strict=True)))
    alt = f"{asks}. Its weights: {looks}. It collects: {mixed}."
    return finish(drawing, name=name, alt=alt)


def _canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """Start a figure that is drawn in pixels, y downwards."""
    drawing, (ax,) = panels(width, height)
    ax.set(xlim=(0, width), ylim=(height, 0))
    ax.axis("off")
    return drawing, ax


def _box(ax: Axes, x: float, y: float, width: float, letter: str, text: str) -> None:
    """Draw a word in a frame, both centred on (x, y)."""
    corner, colour = (x - width / 2, y - 14), COLOURS[letter]
    ax.add_patch(Rectangle(corner, width, 28, facecolor=to_rgba(colour, 0.12), edgecolor=colour))
    ax.text(x, y + 4, text, ha="center", fontsize=11)


def _row(ax: Axes, y: float, word: str, *numbers: str, **style: Any) -> None:
    ax.text(0, y, word, **{"color": COLOURS["m"], "fontsize": 11, **style})
    for x, number in zip(_COLUMNS, numbers, strict=True):
        ax.text(x, y, number, ha="right", fontsize=11, **style)


def _bar(ax: Axes, x: float, y: float, width: float, alpha: float, letter: str) -> None:
    fill = to_rgba(COLOURS[letter], alpha)
    ax.add_patch(Rectangle((x, y - 13), width, _ROW - 3, facecolor=fill))
