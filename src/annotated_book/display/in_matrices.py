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
_TOP, _ROWS = 36, 158  # of the first row of a matrix over a column, and of the first word
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

    A matrix stands over what it makes, in the rows of the words.

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
    rows = [_ROWS + 24 * i for i in range(len(places))]
    drawing, axes = panels(692, rows[-1] + 96, columns=2)
    for ax in axes:
        ax.set(xlim=(0, 344), ylim=(rows[-1] + 96, 0))
        ax.axis("off")
    (first, then), (w_q, w_k, w_v), said = axes, into, []
    _over(first, 164, w_q, "W_Q", "asks", "n")
    _over(first, 240, w_k, "W_K", "found by", "m")
    _over(then, 222, w_v, "W_V", "hands over", "m", 34)
    for j, feature in enumerate(features):
        _text(first, 158, _TOP + _HIGH * j, feature, ha="right")
        _text(then, 216, _TOP + _HIGH * j, feature, ha="right")
    _text(then, 108, rows[0] - 26, "score")
    _text(then, 188, rows[0] - 26, "weight")
    said += [f"{asks} times W_Q: {_joined(q[it])}"]
    for by, made in (("W_K", k), ("W_V", v)):
        said += [f"{words[row]} times {by}: {_joined(made[row])}" for row in places]
    for y, row in zip(rows, places, strict=True):
        bold: dict[str, Any] = {"fontweight": "bold"} if row == it else {}
        for ax in (first, then):
            _text(ax, 54, y, words[row], ha="right", size=14, **bold)
        _cells(first, 60, y, x[row].tolist(), "b", _NARROW, size=14)
        if row == it:
            _cells(first, 164, y, q[row].tolist(), "n", size=14)
        _cells(first, 240, y, k[row].tolist(), "m", size=14)
        pairs = list(zip(q[it].tolist(), k[row].tolist(), strict=True))
        terms, score = " + ".join(f"{a:g}·{b:g}" for a, b in pairs), f"{scores[row]:g}"
        weight = f"{weights[row]:.2f}"
        _text(then, 64, y, f"{terms} = {score}", ha="left", size=13)
        _text(then, 188, y, weight, size=15, color=COLOURS["h"], fontweight="bold")
        _cells(then, 222, y, v[row].tolist(), "m", 34, size=14)
        said.append(f"{words[row]} scores {terms} = {score}, weight {weight}")
    low, gets = rows[-1] + 64, (collected @ w_o).tolist()
    _text(then, 2, low - 28, f"“{asks}” collects", ha="left")
    _cells(then, 4, low, collected.tolist(), "h", 36, 2, 14)
    _text(then, 86, low, "×", size=14)
    for j, row_of_w in enumerate(w_o.tolist()):
        _cells(then, 98, low + _HIGH * (j - 0.5), row_of_w, "h", size=14)
    right = 98 + _WIDE * w_o.size(1)
    _text(then, right / 2 + 49, low - 28, "W_O", fontweight="bold")
    _text(then, right + 12, low, "=", size=14)
    _text(then, right + 24, low - 28, f"receives: {features[0]}", ha="left")
    _cells(then, right + 24, low, gets, "h", 30, 2, 13)
    mixed = f"“{asks}” collects {_joined(collected, 2)}"
    alt = f"{'; '.join(said)}. {mixed}, and W_O makes of it {_joined(collected @ w_o, 2)}."
    return finish(drawing, name=name, alt=alt)


def _over(
    ax: Axes, left: float, w: Tensor, by: str, what: str, letter: str, wide: float = _WIDE
) -> None:
    """Write a matrix over the column of what it makes, with its name and its role."""
    middle = left + wide * w.size(1) / 2
    _text(ax, middle, _TOP - 24, by, fontweight="bold")
    for j, row in enumerate(w.tolist()):
        _cells(ax, left, _TOP + _HIGH * j, row, letter, wide, size=14)
    _text(ax, middle, _ROWS - 26, what)


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


def _text(
    ax: Axes, left: float, y: float, text: str, ha: str = "center", size: float = 12, **look: Any
) -> None:
    ax.text(left, y, text, ha=ha, va="center", fontsize=size, **look)


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
    size: float = 12,
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
        _text(ax, left + wide * (j + 0.5), y, text, size=size, color=ink)
