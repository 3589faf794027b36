"""How one word asks and others answer, each role through its matrix, with every number."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle
from torch import Tensor

from annotated_book.display._html import Output
from annotated_book.display.plots import COLOURS, FAINT, finish, panels

_WIDE = 22  # of a cell


def through_matrices(
    x: Tensor,
    matrices: Mapping[str, Tensor],
    words: Sequence[str],
    features: Sequence[str],
    asks: str,
    found: Sequence[str],
    *,
    name: str,
) -> Output:
    """Draw a word's query, the keys and values of others, their scores and the output, by numbers.

    Args:
        x: (n, e).
        matrices: W_Q, W_K and W_V, (e, 2), and W_O, (2, e), by their names and in this order.
        words: n words.
        features: e names.
        asks: the word that asks.
        found: the words whose keys and values are drawn.
        name: the figure's name, see ``finish``.
    """
    *into, w_o = matrices.values()
    it, places = words.index(asks), [words.index(word) for word in found]
    q, k, v = (x @ w for w in into)
    scores = k @ q[it]  # (n,)
    weights = (scores / math.sqrt(2)).softmax(-1)
    collected = weights @ v
    drawing, axes = panels(624, 300, columns=2, rows=2)
    for ax in axes:
        ax.set(xlim=(0, 312), ylim=(150, 0))
        ax.axis("off")
    says, said = (f"“{asks}” asks", "words are found", "words hand over"), []
    rows_of = ([it], places, places)
    for ax, by, w, what, letter, which in zip(
        axes, matrices, into, says, "nmm", rows_of, strict=False
    ):
        _text(ax, 0, 8, f"{by}: {what}", ha="left", fontweight="bold")
        for i, row in enumerate(which):
            y = 68 + 18 * (i - (len(which) - 1) / 2)
            _text(ax, 46, y, words[row], ha="right")
            _cells(ax, 50, y, x[row].tolist(), "b")
            _cells(ax, 263, y, (x[row] @ w).tolist(), letter)
            said.append(f"{words[row]} times {by}: {_joined(x[row] @ w)}")
        _text(ax, 146, 68, "×")
        for j, (feature, row) in enumerate(zip(features, w.tolist(), strict=True)):
            _text(ax, 197, 41 + 18 * j, feature, ha="right")
            _cells(ax, 201, 41 + 18 * j, row, letter)
        _text(ax, 254, 68, "=")
    lines = []
    for row in places:
        pairs = zip(q[it].tolist(), k[row].tolist(), strict=True)
        terms = " + ".join(f"{a:g} · {b:g}" for a, b in pairs)
        lines.append(f"{words[row]} scores {terms} = {scores[row]:g}, weight {weights[row]:.2f}")
    given = [f"{weights[row]:.2f} · {v[row, 0]:g}" for row in [*places, it]]
    mixed = f"“{asks}” collects {' + '.join(given)} = {collected[0]:.2f}"
    for ax, told in ((axes[1], lines), (axes[2], [mixed])):
        for i, line in enumerate(told):
            _text(ax, 0, 122 + 18 * i, line, ha="left", color=COLOURS["h"])
    last, gets = axes[3], (collected @ w_o).tolist()
    _text(last, 0, 8, f"W_O: “{asks}” receives", ha="left", fontweight="bold")
    for left, row in ((4, collected.tolist()), (186, gets)):
        _cells(last, left, 68, row, "h", 30, 2)
    for left, sign in ((72, "×"), (177, "=")):
        _text(last, left, 68, sign)
    for j, row in enumerate(w_o.tolist()):
        _cells(last, 80, 59 + 18 * j, row, "h")
    _text(last, 201, 47, features[0])
    alt = (
        f"{'; '.join([*said, *lines])}. {mixed}, and W_O makes of it {_joined(collected @ w_o, 2)}."
    )
    return finish(drawing, name=name, alt=alt)


def _text(ax: Axes, left: float, y: float, text: str, ha: str = "center", **look: Any) -> None:
    ax.text(left, y, text, ha=ha, va="center", fontsize=11, **look)


def _joined(row: Tensor, decimals: int = 0) -> str:
    return " ".join(f"{number:.{decimals}f}" for number in row.tolist())


def _cells(
    ax: Axes,
    left: float,
    y: float,
    row: Sequence[float],
    letter: str,
    wide: float = _WIDE,
    decimals: int = 0,
) -> None:
    """Write a row of numbers into cells, those that are not 0 in a colour."""
    frame: dict[str, Any] = {"edgecolor": FAINT, "linewidth": 0.6}
    ax.add_patch(Rectangle((left, y - 9), wide * len(row), 18, fill=False, **frame))
    for j, number in enumerate(row):
        if number:
            colour = to_rgba(COLOURS[letter], 0.25)
            ax.add_patch(Rectangle((left + wide * j, y - 9), wide, 18, facecolor=colour, **frame))
        text, ink = f"{number:.{decimals}f}" if number else "0", "black" if number else FAINT
        _text(ax, left + wide * (j + 0.5), y, text, color=ink)
