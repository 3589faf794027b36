"""The exercise of "Masks": two masks merged by hand."""

from torch import Tensor

from annotated_book.exercises._exercise import Exercise
from annotated_book.exercises._values import cells

_TEXTS = ("the cat drank milk", "it was _ _")
_PAIRS = [".xxx", "..xx", "x..x", "xx.."]  # a word may look at itself and at the one before it
_MERGED = [".xxx", "..xx", "x.xx", "xxxx"]  # with the padding of the second text


def _both(first: list[str], second: list[str]) -> dict[str, list[str]]:
    return dict(zip(_TEXTS, (first, second), strict=True))


def _first_difference(answer: object, found: Tensor, right: Tensor) -> str:
    """Say which cell is wrong first, and why."""
    sample, query, key = (found != right).nonzero()[0].tolist()
    words = [f"“{word}”" for word in _TEXTS[sample].split()]
    if sample == 1:
        words[2:] = "the first “_”", "the last “_”"
    why = "this pair is blocked" if _PAIRS[query][key] == "x" else "this pair is not blocked"
    if sample == 1:
        why = "it is padding" if key > 1 else f"it is a word, and {why}"
    said = "blocked" if found[sample, query, key] else "may be seen"
    return (
        f"{int((found != right).sum())} of the 32 cells are wrong. The first is in "
        f"“{_TEXTS[sample]}”, in the row of {words[query]} and the column of {words[key]}: you say "
        f"{said}, but {why}."
    )


check_merged = Exercise(
    name="merged_by_hand",
    right=_both(_PAIRS, _MERGED),
    praise=(
        "right: a key is blocked if either mask blocks it. The row of the last “_” is fully "
        "masked: the two keys that it may look at are padding."
    ),
    wrong={
        "it is inverted: x means blocked here.": _both(
            ["x...", "xx..", ".xx.", "..xx"], ["x...", "xx..", ".x..", "...."]
        ),
        "you have merged with “and”: a cell is blocked only if both masks block it. One is "
        "enough.": _both(["...."] * 4, ["..xx", "..xx", "...x", "...."]),
        "that is the mask of pairs alone: the padding of “it was _ _” is seen.": (
            _both(_PAIRS, _PAIRS)
        ),
        "the two samples are in each other's place.": _both(_MERGED, _PAIRS),
        "rows and columns are swapped: a row belongs to a query, a column to a key.": _both(
            ["..xx", "x..x", "xx..", "xxx."], ["..xx", "x..x", "xxxx", "xxxx"]
        ),
    },
    run=cells(_TEXTS, 4, 4),
    why=_first_difference,
)
