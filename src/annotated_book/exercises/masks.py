"""The exercise of "Masks": whom each query sees behind dots, and how far a change is felt."""

import torch
from torch import Tensor

from annotated_book.exercises._exercise import Either, Exercise, Refused
from annotated_book.exercises._values import whole

_QUERIES = ("the", "cat", "drank", "milk", "the first ·", "the second ·", "it", "was")
_FIRST, _SECOND, _MOVED = (1, 2, 3, 4), (0, 0, 1, 2), (2,)


def _read(answer: object) -> Tensor:
    """Read three rows of whole numbers as one, (9,)."""
    rows = list(answer) if isinstance(answer, list | tuple) else []
    if any(isinstance(row, list | tuple) for row in rows):
        widths = [len(row) if isinstance(row, list | tuple) else 0 for row in rows]
        if widths != [4, 4, 1]:
            raise Refused("three rows are asked for, of four, four and one numbers.")
        answer = [number for row in rows for number in row]
    return torch.tensor(whole("it is", answer, 9, "a row of nine numbers"))


def _first_difference(answer: object, found: Tensor, right: Tensor) -> str:
    """Say which number is wrong first, and where to look."""
    place = int((found != right).nonzero()[0])
    if place == 8:
        return "the keys are right. Which queries see “drank”? No other row can notice."
    seen = "A dot is blocked for everybody, and so is whatever comes after the query."
    return f"the number of {_QUERIES[place]} is the first that is wrong. {seen}"


check_seen = Exercise(
    name="keys_seen",
    right=(_FIRST, _SECOND, _MOVED),
    praise=(
        "right. The rows of the dots are fully masked, and only “drank” and “milk” see “drank”."
    ),
    wrong={
        "you count what is blocked. Count what is left to see.": (
            (3, 2, 1, 0),
            (4, 4, 3, 2),
            _MOVED,
        ),
        "that is the staircase alone: the dots are covered, too.": (_FIRST, _FIRST, _MOVED),
        "that is the padding mask alone: the staircase hides what comes later.": Either(
            [((4,) * 4, (2,) * 4, (4,)), ((4,) * 4, (2,) * 4, _MOVED)]
        ),
        "you let a dot see itself. Padding is covered for everybody, for dots as well.": Either(
            [(_FIRST, (1, 1, 1, 2), _MOVED), (_FIRST, (1, 2, 1, 2), _MOVED)]
        ),
        "you have the dots behind. Here they stand in front.": (_FIRST, (1, 2, 2, 2), _MOVED),
        "no word of yours sees itself. The diagonal is open.": Either(
            [((0, 1, 2, 3), (0, 0, 0, 1), (1,)), ((0, 1, 2, 3), (0, 0, 0, 1), _MOVED)]
        ),
        "the keys are right, and so is the row of “drank”. “milk” comes later and sees it.": (
            _FIRST,
            _SECOND,
            (1,),
        ),
        "the keys are right. You let every row of the sentence notice: “the” and “cat” do not "
        "see “drank”.": (_FIRST, _SECOND, (4,)),
    },
    run=_read,
    why=_first_difference,
)
