"""How a word asks through a matrix, with every number."""

from collections.abc import Sequence
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


def four_matrices(
    four: Sequence[Tensor], features: Sequence[str], asked: Sequence[int], given: int, *, name: str
) -> Output:
    """Draw the four matrices of a head of width 2, with the names of their rows and columns.

    Args:
        four: what asks and is found, (e, 2) each, what is handed over, (e, 1), and what is
            written, (1, e).
        features: e names.
        asked: which two of them query and key count.
        given: which one the value counts.
        name: the figure's name, see ``finish``.
    """
    drawing, (ax,) = panels(342, 184)
    ax.set(xlim=(0, 342), ylim=(184, 0))
    ax.axis("off")
    query, value = [features[i] for i in asked], [features[given]]
    said, left, top = [], 52, 112
    for i, feature in enumerate(features):
        _text(ax, left - 5, top + _HIGH * i, feature, ha="right")
    titles = ("W_Q", "asks for"), ("W_K", "found by"), ("W_V", "hands over"), ("W_O", "written as")
    for at, (matrix, (short, role), letter) in enumerate(zip(four, titles, "nmmh", strict=True)):
        last = at == len(four) - 1
        columns = features if last else value if at == 2 else query
        rows = value if last else features
        left += (0, 18, 40, 62)[at]
        middle = left + _NARROW * len(columns) / 2
        _text(ax, middle, 9, f"$W_{short[-1]}$", size=17.5)
        _text(ax, middle, 31, role)
        for j, column in enumerate(columns):
            _text(ax, left + _NARROW * (j + 0.5), 98, column, rotation=90, va="bottom")
        for i, row in enumerate(matrix.tolist()):
            _cells(ax, left, top + _HIGH * i, row, letter, _NARROW)
            if last:
                _text(ax, left - 5, top + _HIGH * i, rows[i], ha="right")
            said += [
                f"{short}: {rows[i]} {role} {column}, {number:.0f}."
                for column, number in zip(columns, row, strict=True)
                if number
            ]
        left += _NARROW * len(columns)
    return finish(drawing, name=name, alt=" ".join([*said, "All other numbers are 0."]))


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
    ax.text(left, y, text, ha=ha, fontsize=size, **{"va": "center"} | look)


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
