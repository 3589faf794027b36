"""A head set by hand: matrices whose cells are pressed, and what becomes of each sentence."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle
from torch import Tensor

from annotated_book.display._html import Output
from annotated_book.display._live import live
from annotated_book.display.live_figures.collects import places
from annotated_book.display.plots import COLOURS, FAINT, finish, panels

_PARTS = [("Q", "asks for", "n"), ("K", "found by", "m"), ("V", "hands over", "m")]
_CELL, _WIDE = 20, 33
Head = tuple[Tensor, Tensor, Tensor]


def by_hand(
    settings: Mapping[str, Head],
    sentences: Mapping[str, tuple[Sequence[str], Tensor, int]],
    features: Sequence[str],
    columns: Sequence[str],
    sides: Sequence[str],
    query: int,
    *,
    name: str,
    won: str,
) -> Output:
    """Show the matrices of a head; alive, the reader sets them, and sees what each sentence gets.

    At first there is one sentence; the others come when its answer is right. Of the two numbers
    that the word collects, the larger answers.

    Args:
        settings: matrices under their names: what asks and is found, (e, d), and what is handed
            over, (e, 2). Alive, the figure begins with the first; the picture is of the last.
        sentences: under the name of each its words, their rows, (m, e), and which side is right.
        features: e names.
        columns: d names, of the columns of what asks and is found.
        sides: two names, of what is handed over.
        query: the place of the word that asks, in every sentence.
        name: the figure's name, see ``finish``.
        won: what is said when all answers are right.
    """
    told = []
    for setting, head in settings.items():
        each = [_answer(head, rows, query, sides, right) for _, rows, right in sentences.values()]
        of = "; ".join(
            f"{sentence}: {said}" for sentence, said in zip(sentences, each, strict=True)
        )
        told.append(f"With {setting}, it collects {of}.")
    *_, shown = settings.values()
    named = [columns, columns, sides]
    static = _picture(shown, features, named, name, " ".join(told))
    data = {
        "parts": [list(part) for part in _PARTS],
        "features": list(features),
        "columns": [list(each) for each in named],
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
                "answer": right,
            }
            for sentence, (words, rows, right) in sentences.items()
        ],
        "query": query,
        "won": won,
    }
    return live(static, "by_hand", data, room=(358, 526))


def _answer(head: Head, rows: Tensor, query: int, sides: Sequence[str], right: int) -> str:
    """Say what the word collects, which side that is, and whether it is right."""
    question, key, value = (rows @ matrix for matrix in head)
    weights = (key @ question[query] / math.sqrt(key.size(-1))).softmax(-1)
    one, two = (weights @ value).tolist()
    says = int(two > one)
    verdict = "right" if says == right else "wrong"
    return f"{one:.2f} of {sides[0]}, {two:.2f} of {sides[1]}, {sides[says]}, {verdict}"


def _picture(
    head: Head,
    features: Sequence[str],
    columns: Sequence[Sequence[str]],
    name: str,
    more: str,
) -> Output:
    """Draw the matrices of a head, with the names of their rows and columns."""
    drawing, (ax,) = panels(300, 138)
    ax.set(xlim=(0, 300), ylim=(138, 0))
    ax.axis("off")

    def text(x: float, y: float, words: str, **look: Any) -> None:
        middle: dict[str, Any] = {"va": "center", "ha": "center"}
        ax.text(x, y, words, **{"fontsize": 12} | middle | look)

    said = []
    text(52, 48, "a word with", ha="right", fontsize=8)
    for i, feature in enumerate(features):
        text(52, 66 + _CELL * i, feature, ha="right")
    for part, (matrix, (short, role, letter)) in enumerate(zip(head, _PARTS, strict=True)):
        middle = (95, 180, 265)[part]
        text(middle, 10, f"$W_{short}$", fontsize=17.5)
        text(middle, 31, role)
        for (i, j), number in np.ndenumerate(matrix.numpy()):
            x, y = middle + _WIDE * (j - matrix.size(1) / 2), 66 + _CELL * i
            fill = to_rgba(COLOURS[letter], 0.25) if number else "none"
            look: Any = {"facecolor": fill, "edgecolor": FAINT, "linewidth": 0.6}
            ax.add_patch(Rectangle((x, y - _CELL / 2), _WIDE, _CELL, **look))
            text(x + _WIDE / 2, y, f"{number:.0f}", color="black" if number else FAINT)
            column = columns[part][j]
            if not i:
                text(x + _WIDE / 2, 48, column, fontsize=8)
            if number:
                said.append(f"W_{short}, {features[i]}, {column}: {number:.0f}.")
    return finish(drawing, name=name, alt=" ".join([*said, "All other numbers are 0.", more]))
