"""A head set by hand: matrices whose cells the reader presses, and what becomes of each sentence."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle
from torch import Tensor

from annotated_book.display._html import Output
from annotated_book.display._live import live
from annotated_book.display.live_figures.collects import places
from annotated_book.display.plots import COLOURS, FAINT, finish, panels

_PARTS = [("Q", "asks for", "n"), ("K", "found by", "m"), ("V", "hands over", "m")]
_WIDE, _HIGH = 18, 20  # of a cell: on a phone, nine of them are to stand side by side
Head = tuple[Tensor, Tensor, Tensor]


def by_hand(
    settings: Mapping[str, Head],
    sentences: Mapping[str, tuple[Sequence[str], Tensor, bool]],
    features: Sequence[str],
    query: int,
    write: Tensor,
    *,
    name: str,
    won: str,
) -> Output:
    """Show the matrices of a head; alive, the reader sets them, and sees what each sentence gets.

    The answer is yes where the word collects more than it would by looking at all words alike.

    Args:
        settings: matrices under their names: what asks and is found, (e, d), and what is handed
            over, (e, 1). Alive, the figure begins with the first; the picture is of the last.
        sentences: under the name of each its words, their rows, (m, e), and whether yes is right.
        features: e names; the first and the last are what query and key count in the picture.
        query: the place of the word that asks, in every sentence.
        write: (1, e), what the last matrix makes of the value.
        name: the figure's name, see ``finish``.
        won: what is said when all answers are right.
    """
    told = []
    for setting, head in settings.items():
        each = [_answer(head, rows, query, yes) for _, rows, yes in sentences.values()]
        of = "; ".join(
            f"{sentence}: {said}" for sentence, said in zip(sentences, each, strict=True)
        )
        told.append(f"With {setting}, it collects {of}.")
    *_, shown = settings.values()
    static = _picture((*shown, write), features, name, " ".join(told))
    data = {
        "parts": [list(part) for part in _PARTS],
        "features": list(features),
        "settings": [
            [setting, [matrix.int().tolist() for matrix in head]]
            for setting, head in settings.items()
        ],
        "sentences": [
            {
                "name": sentence,
                "words": list(words),
                "places": places(words),
                "rows": rows.int().tolist(),
                "yes": yes,
            }
            for sentence, (words, rows, yes) in sentences.items()
        ],
        "query": query,
        "won": won,
    }
    return live(static, "by_hand", data, room=(470, 700))


def _answer(head: Head, rows: Tensor, query: int, yes: bool) -> str:
    """Say what the word collects, and whether that is more than the average, and right."""
    question, key, value = (rows @ matrix for matrix in head)
    weights = (key @ question[query] / math.sqrt(key.size(-1))).softmax(-1)
    collected = (weights @ value).item()
    says = collected > value.mean().item() + 1e-6
    return f"{collected:.2f}, {'yes' if says else 'no'}, {'right' if says == yes else 'wrong'}"


def _picture(four: tuple[Tensor, ...], features: Sequence[str], name: str, more: str) -> Output:
    """Draw the four matrices of a head, with the names of their rows and columns."""
    drawing, (ax,) = panels(342, 184)
    ax.set(xlim=(0, 342), ylim=(184, 0))
    ax.axis("off")

    def text(left: float, y: float, words: str, **look: Any) -> None:
        ax.text(left, y, words, **{"fontsize": 12, "va": "center", "ha": "center"} | look)

    query, value, said, left, top = [features[0], features[-1]], [features[-1]], [], 52.0, 112
    for i, feature in enumerate(features):
        text(left - 5, top + _HIGH * i, feature, ha="right")
    parts = *_PARTS, ("O", "written as", "h")
    for at, (matrix, (short, role, letter)) in enumerate(zip(four, parts, strict=True)):
        rows, columns = [
            (features, query),
            (features, query),
            (features, value),
            (value, features),
        ][at]
        left += (0, 18, 40, 62)[at]
        middle = left + _WIDE * len(columns) / 2
        text(middle, 9, f"$W_{short}$", fontsize=17.5)
        text(middle, 31, role)
        for j, column in enumerate(columns):
            text(left + _WIDE * (j + 0.5), 98, column, rotation=90, va="bottom")
        for i, row in enumerate(matrix.tolist()):
            for j, number in enumerate(row):
                corner = left + _WIDE * j, top + _HIGH * (i - 0.5)
                fill = to_rgba(COLOURS[letter], 0.25) if number else "none"
                look: Any = {"facecolor": fill, "edgecolor": FAINT, "linewidth": 0.6}
                ax.add_patch(Rectangle(corner, _WIDE, _HIGH, **look))
                ink = "black" if number else FAINT
                text(left + _WIDE * (j + 0.5), top + _HIGH * i, f"{number:.0f}", color=ink)
                if number:
                    said.append(f"W_{short}: {rows[i]} {role} {columns[j]}, {number:.0f}.")
        if rows is value:
            text(left - 5, top, value[0], ha="right")
        left += _WIDE * len(columns)
    return finish(drawing, name=name, alt=" ".join([*said, "All other numbers are 0.", more]))
