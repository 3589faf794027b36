"""The soft look-up: as books on a shelf, and for one query with all its numbers."""

import math
from collections.abc import Mapping, Sequence
from textwrap import wrap

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle
from torch import Tensor

from annotated_book.display._html import Output, figure, scrolled, table
from annotated_book.display.plots import COLOURS, finish, panels


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
    width, height = 344, 56 + 56 * len(shelf)
    drawing, (ax,) = panels(width, height)
    ax.set(xlim=(0, width), ylim=(height, 0))  # drawn in pixels, y downwards
    ax.axis("off")
    middle = 54 + 28 * len(shelf)
    for x, letter, part, meaning in (
        (36, "n", "query", "your question"),
        (150, "m", "keys", "titles"),
        (230, "m", "values", "pages"),
        (314, "h", "output", "your notes"),
    ):
        ax.text(x, 8, part, ha="center", color=COLOURS[letter], fontsize=12, fontweight="bold")
        ax.text(x, 25, meaning, ha="center", fontsize=11)
    _box(ax, 36, middle, 71, "n", question)
    said = []
    for i, ((title, pages), share) in enumerate(zip(shelf.items(), shares.tolist(), strict=True)):
        y = 82 + 56 * i
        for ends in (((72, 98), (middle, y)), ((258, 290), (y, middle))):
            ax.plot(*ends, color=COLOURS["h"], linewidth=0.6 + 9 * share, alpha=0.6)
        _box(ax, 150, y, 104, "m", title)
        _box(ax, 230, y, 56, "m", pages)
        ax.text(230, y - 19, f"{share:.2f}", ha="center", color=COLOURS["h"], fontsize=12)
        said.append(f"“{title}” gives {share:.2f} of its pages {pages}")
    _box(ax, 314, middle, 48, "h", "a mix")
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
    rows = [["key", "score", f"exp<wbr>(score<wbr>/√{len(query)})", "weight", *features]]
    for i, word in enumerate(words):
        shares = (parts[i].abs() / parts.abs().max()).tolist()
        row = [word, f"{scores[i]:g}", f"{powers[i]:.2f}", f"{weights[i]:.2f}"]
        for value, share in zip(values[i].tolist(), shares, strict=True):
            row.append(f'<span style="--weight: {share:.2f}">{value:g}</span>')
        rows.append(row)
    rows.append(["sum", "", f"{powers.sum():.2f}", f"{weights.sum():.2f}", *sums])
    asks = f"“{who}” asks with ({', '.join(f'{number:g}' for number in query.tolist())})"
    shown = scrolled(table(rows, "aa-table"), "from scores to sums")
    caption = (
        f"{asks}. The values are {', '.join(features)}; in the sums each counts by the weight of "
        "its key. The stronger the colour, the more it adds."
    )
    looks = ", ".join(f"{word} {weight:.2f}" for word, weight in zip(words, weights, strict=True))
    mixed = ", ".join(map(" ".join, zip(features, sums, strict=True)))
    said = f"{asks}. Its weights: {looks}. It collects: {mixed}."
    return figure(name, shown, said, caption)


def _box(ax: Axes, x: float, y: float, width: float, letter: str, text: str) -> None:
    """Write into a frame, in as many lines as it takes, both centred on (x, y)."""
    lines, colour = wrap(text, int(width / 5.5)), COLOURS[letter]
    high = 14 + 14 * len(lines)
    corner = (x - width / 2, y - high / 2)
    ax.add_patch(Rectangle(corner, width, high, facecolor=to_rgba(colour, 0.12), edgecolor=colour))
    for i, line in enumerate(lines):
        ax.text(x, y + 4 + 14 * (i - (len(lines) - 1) / 2), line, ha="center", fontsize=11)
