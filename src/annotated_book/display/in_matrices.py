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

_WIDE, _HIGH = 24, 20  # of a cell
_NARROW = 18  # a cell, where a phone is to show four in a row three times


def through_matrix(
    row: Tensor, matrix: Tensor, word: str, features: Sequence[str], asked: str, *, name: str
) -> Output:
    """Draw a word's row, times a matrix, as its query, by numbers.

    Args:
        row: (e,).
        matrix: (e, e), what a feature asks for.
        word: whose row it is.
        features: e names.
        asked: the one feature that is asked for; its columns bear its name.
        name: the figure's name, see ``finish``.
    """
    column = features.index(asked)
    drawing, (ax,) = panels(340, 122)
    ax.set(xlim=(28, 368), ylim=(122, 0))
    ax.axis("off")
    lefts = _through(ax, [word], row[None], matrix, features, "n", _NARROW)
    for left, y in zip(lefts, (22, 52), strict=True):
        _text(ax, left + _NARROW * column, y, asked, ha="left")
    alt = f"“{word}”, {_joined(row)}, times the matrix is its query, {_joined(row @ matrix)}."
    return finish(drawing, name=name, alt=alt)


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
    scores = k @ q[it]                             # (n,)
    weights = (scores / math.sqrt(2)).softmax(-1)  # (n,)
    collected = weights @ v
    heights = (138 + _HIGH * len(places), 118)  # of a row of panels
    drawing, axes = panels(692, sum(heights) + 20, columns=2, rows=2)
    grid: Any = axes[0].get_subplotspec()
    grid.get_gridspec().set_height_ratios(heights)
    for ax, high in zip(axes, (heights[0],) * 2 + (heights[1],) * 2, strict=True):
        ax.set(xlim=(0, 340), ylim=(high, 0))
        ax.axis("off")
    says, said = (f"“{asks}” asks", "words are found", "words hand over"), []
    rows_of = ([it], places, places)
    for ax, by, w, what, letter, which in zip(
        axes, matrices, into, says, "nmm", rows_of, strict=False
    ):
        _text(ax, 0, 10, f"{by}: {what}", ha="left", fontweight="bold")
        _through(ax, [words[row] for row in which], x[which], w, features, letter)
        said += [f"{words[row]} times {by}: {_joined(x[row] @ w)}" for row in which]
    _text(axes[1], 0, 130, f"“{asks}” asks with", ha="left")
    _cells(axes[1], 84, 130, q[it].tolist(), "n")
    for i, row in enumerate(places, 1):
        pairs = zip(q[it].tolist(), k[row].tolist(), strict=True)
        terms = " + ".join(f"{a:g} · {b:g}" for a, b in pairs)
        weight = f"weight {weights[row]:.2f}"
        said.append(f"{words[row]} scores {terms} = {scores[row]:g}, {weight}")
        _text(axes[1], 0, 132 + _HIGH * i, said[-1], ha="left", color=COLOURS["h"])
    last, gets = axes[3], (collected @ w_o).tolist()
    _text(last, 0, 10, f"W_O: what “{asks}” collects, and receives", ha="left", fontweight="bold")
    for left, numbers in ((0, collected.tolist()), (202, gets)):
        _cells(last, left, 68, numbers, "h", 34, 2)
    for left, sign in ((78, "×"), (192, "=")):
        _text(last, left, 68, sign)
    for j, row in enumerate(w_o.tolist()):
        _cells(last, 87, 68 + _HIGH * (j - 0.5), row, "h")
    _text(last, 219, 46, features[0])
    mixed = f"“{asks}” collects {_joined(collected, 2)}"
    alt = f"{'; '.join(said)}. {mixed}, and W_O makes of it {_joined(collected @ w_o, 2)}."
    return finish(drawing, name=name, alt=alt)


def _through(
    ax: Axes,
    words: Sequence[str],
    x: Tensor,
    w: Tensor,
    features: Sequence[str],
    letter: str,
    wide: float = _WIDE,
) -> tuple[float, float]:
    """Write rows of words times a matrix, and what comes out; say where both begin."""
    times = 61 + wide * x.size(1)
    matrix = times + 59
    out = matrix + wide * w.size(1) + 26
    for i, (word, row, made) in enumerate(zip(words, x.tolist(), (x @ w).tolist(), strict=True)):
        y = 70 + _HIGH * (i - (len(words) - 1) / 2)
        _text(ax, 46, y, word, ha="right")
        _cells(ax, 50, y, row, "b", wide)
        _cells(ax, out, y, made, letter, wide)
    _text(ax, times, 70, "×")
    for j, (feature, row) in enumerate(zip(features, w.tolist(), strict=True)):
        y = 70 + _HIGH * (j - (len(features) - 1) / 2)
        _text(ax, matrix - 4, y, feature, ha="right")
        _cells(ax, matrix, y, row, letter, wide)
    _text(ax, out - 13, 70, "=")
    return matrix, out


def _text(ax: Axes, left: float, y: float, text: str, ha: str = "center", **look: Any) -> None:
    ax.text(left, y, text, ha=ha, va="center", fontsize=12, **look)


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
    ax.add_patch(Rectangle((left, y - _HIGH / 2), wide * len(row), _HIGH, fill=False, **frame))
    for j, number in enumerate(row):
        if number:
            colour = to_rgba(COLOURS[letter], 0.25)
            corner = left + wide * j, y - _HIGH / 2
            ax.add_patch(Rectangle(corner, wide, _HIGH, facecolor=colour, **frame))
        text, ink = f"{number:.{decimals}f}" if number else "0", "black" if number else FAINT
        _text(ax, left + wide * (j + 0.5), y, text, color=ink)
