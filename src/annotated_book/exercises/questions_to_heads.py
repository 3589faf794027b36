"""Exercise of "Questions to heads": a row from another run."""

import torch
from torch import Tensor

from annotated_book.exercises._exercise import Exercise, Refused, normal, require_function


def _patched(rows: Tensor, other: Tensor, place: int) -> Tensor:
    return torch.cat([rows[:, :place], other[:, [place]], rows[:, place:][:, 1:]], 1)


def _both_kept(answer: object, rows: Tensor, other: Tensor, place: int) -> Tensor:
    """Run an answer, and refuse one that changes what it is given."""
    require_function(answer)
    before = rows.clone(), other.clone()
    found = answer(rows, other, place)  # type: ignore[operator]
    if not (rows.equal(before[0]) and other.equal(before[1])):
        raise Refused("it changes what it is given. Begin with a clone of rows.")
    return found


check_patched = Exercise(
    name="patched",
    right=_patched,
    praise="right, and neither of the two runs has changed.",
    wrong={
        "the whole of the other run comes back.": lambda rows, other, place: other.clone(),
        "nothing is patched.": lambda rows, other, place: rows.clone(),
        "that is the other run with a row of the first.": lambda rows, other, place: _patched(
            other, rows, place
        ),
        "the row of one text is patched, and those of the others are not.": lambda rows, *x: (
            torch.cat([_patched(rows, *x)[:1], rows[1:]])
        ),
    },
    run=_both_kept,
    sizes=[
        {"b": 2, "n": 5, "e": 3, "place": 1},
        {"b": 3, "n": 4, "e": 6, "place": -2},
    ],
    draw=lambda b, n, e, place: normal(rows=(b, n, e), other=(b, n, e)) | {"place": place},
    shape="(b, n, e)",
)
