"""Answers to the exercises of “Masks”."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from annotated_attention.masks import block_padding

Rows = list[str]
Models = dict[str, Callable[[Tensor, Tensor], Tensor]]

RIGHT = [[".xxx", "..xx", "x..x", "xx.."], [".xxx", "..xx", "x.xx", "xxxx"]]


def named(rows: list[Rows]) -> dict[str, Rows]:
    return dict(zip(("the cat drank milk", "it was · ·"), rows, strict=True))


def turn(rows: Rows) -> Rows:
    return ["".join(column) for column in zip(*rows, strict=True)]


def changed(sample: int, row: int, text: str) -> dict[str, Rows]:
    rows = [[*rows] for rows in RIGHT]
    rows[sample][row] = text
    return named(rows)


def probe(
    lengths: tuple[int, ...] = (2, 6, 4),
    rows: str = "words",
    change: str = "padding",
    value: float | None = None,
) -> Callable[[Models], list[str]]:
    """Make a probe that compares two runs, well or badly."""

    def answer(models: Models) -> list[str]:
        blocked = block_padding(torch.tensor(lengths), 6)
        x, y = torch.randn(2, len(lengths), 6, 12)
        if change == "padding":
            y[~blocked] = x[~blocked]
        elif change == "last":
            y[:, :-1] = x[:, :-1]
        if value is not None:
            y[blocked] = value
        chosen = ~blocked if rows == "words" else torch.ones_like(blocked)
        return [
            name
            for name, model in models.items()
            if not torch.allclose(model(x, blocked)[chosen], model(y, blocked)[chosen])
        ]

    return answer


def by_gradient(models: Models) -> set[str]:
    names = set()
    blocked = block_padding(torch.tensor([3, 5]), 5)
    for name, model in models.items():
        x = torch.randn(2, 5, 12, dtype=torch.float64, requires_grad=True)
        output = model(x, blocked)[~blocked]
        (gradient,) = torch.autograd.grad((output * torch.randn_like(output)).sum(), x)
        if gradient[blocked].abs().max() > 1e-9:
            names.add(name)
    return names


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_merged": [
        (dict(reversed(named(RIGHT).items())), "✓ merged_by_hand: right"),
        (named([["...."] * 4, ["..xx", "..xx", "...x", "...."]]), "merged with “and”"),
        (named([RIGHT[0], RIGHT[0]]), "that is the mask of pairs alone"),
        (named(RIGHT[::-1]), "the two samples are in each other's place"),
        (named([RIGHT[0], [".xxx", ".xxx", "xxxx", "xxxx"]]), "“it was · ·” is one off"),
        (named([turn(rows) for rows in RIGHT]), "rows and columns are swapped"),
        (changed(0, 1, ".xxx"), "1 of the 32 cells are wrong. The first is in “the cat drank milk”"
         ", in the row of “cat” and the column of “cat”: you say blocked, but this pair is not"),
        (changed(1, 3, "xx.x"), "in “it was · ·”, in the row of the last “·” and the column of the "
         "first “·”: you say may be seen, but it is padding"),
        (changed(1, 1, "..x"), "“it was · ·” has 4 rows, with 4, 3, 4, 4 characters"),
        (changed(0, 0, ".111"), '"1" is not read'),
        (changed(0, 0, "????"), 'not yet, some cells are still "?"'),
        ({"it was": RIGHT[1]}, "its keys must be 'the cat drank milk', 'it was · ·'"),
        (RIGHT, "an object of type list; a dictionary is asked for"),
    ],
    "check_find_leaks": [
        (probe((2, 5)), "✓ find_leaks: right: it is south."),
        (by_gradient, "✓ find_leaks"),
        (probe(rows="all"), "Only the rows of words say something"),
        (probe(change="everything"), "change padding, and nothing else"),
        (probe(value=torch.nan), "use finite numbers"),
        (probe((3,)), "you give one sample at a time, or samples of the same length"),
        (probe((6, 6, 6)), "✗ find_leaks: it names none, though words react to padding in one"),
        (probe((2, 4, 3), change="last"), "✗ find_leaks: some of the padding is the same in all"),
        (lambda models: probe()(models)[:2], "model 5 is not named: it forgets the mask in its"),
        (lambda models: ["up"], "it returns 'up', which is none of the names that it was given"),
        (lambda models: models["east"](torch.zeros(2, 3), torch.zeros(2, 3)), "x must have shape"),
        (lambda models: models["east"](torch.zeros(2, 3, 12), torch.zeros(3, 2).bool()),
         "must be boolean and (b, m) = (2, 3), got torch.bool and (3, 2)"),
    ],
}  # fmt: skip
