"""Answers to the exercise of “Masks”."""

from typing import Any

Rows = list[str]

RIGHT = [[".xxx", "..xx", "x..x", "xx.."], [".xxx", "..xx", "x.xx", "xxxx"]]


def named(rows: list[Rows]) -> dict[str, Rows]:
    return dict(zip(("the cat drank milk", "it was _ _"), rows, strict=True))


def changed(sample: int, row: int, text: str) -> dict[str, Rows]:
    rows = [[*rows] for rows in RIGHT]
    rows[sample][row] = text
    return named(rows)


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_merged": [
        (dict(reversed(named(RIGHT).items())), "✓ merged_by_hand: right"),
        (named([["...."] * 4, ["..xx", "..xx", "...x", "...."]]), "merged with “and”"),
        (
            changed(0, 1, ".xxx"),
            "1 of the 32 cells are wrong. The first is in “the cat drank milk”"
            ", in the row of “cat” and the column of “cat”: you say blocked, but this pair is not",
        ),
        (
            changed(1, 3, "xx.x"),
            "in “it was _ _”, in the row of the last “_” and the column of the "
            "first “_”: you say may be seen, but it is padding",
        ),
        (changed(1, 1, "..x"), "“it was _ _” has 4 rows, with 4, 3, 4, 4 characters"),
        (changed(0, 0, "????"), 'not yet, some cells are still "?"'),
    ],
}
