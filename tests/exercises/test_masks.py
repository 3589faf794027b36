"""Answers to the exercises of “Masks”, written apart from the table."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from annotated_attention.exercises import masks
from annotated_attention.exercises.masks import check_find_leaks, check_merged, four_models
from annotated_attention.masks import block_padding

Rows = list[str]
Models = dict[str, Callable[[Tensor, Tensor], Tensor]]

TEXTS = ("the cat drank milk", "it was · ·")
RIGHT = [[".xxx", "..xx", "x..x", "xx.."], [".xxx", "..xx", "x.xx", "xxxx"]]


def named(rows: list[Rows]) -> dict[str, Rows]:
    return dict(zip(TEXTS, rows, strict=True))


def flip(rows: Rows) -> Rows:
    return [row.translate(str.maketrans("x.", ".x")) for row in rows]


def turn(rows: Rows) -> Rows:
    return ["".join(column) for column in zip(*rows, strict=True)]


def changed(sample: int, row: int, text: str) -> dict[str, Rows]:
    rows = [[*rows] for rows in RIGHT]
    rows[sample][row] = text
    return named(rows)


MERGED: list[tuple[Any, str]] = [
    (dict(reversed(named(RIGHT).items())), "✓ merged_by_hand: right"),
    (named([flip(rows) for rows in RIGHT]), "it is inverted"),
    (named([["...."] * 4, ["..xx", "..xx", "...x", "...."]]), "merged with “and”"),
    (named([["...."] * 4, ["..xx"] * 4]), "that is the padding alone"),
    (named([RIGHT[0], RIGHT[0]]), "that is the mask of pairs alone"),
    (named(RIGHT[::-1]), "the two samples are in each other's place"),
    (named([RIGHT[0], [".xxx", "..xx", "x..x", "xx.x"]]), "“it was · ·” is one off"),
    (named([RIGHT[0], [".xxx", ".xxx", "xxxx", "xxxx"]]), "“it was · ·” is one off"),
    (named([RIGHT[1], RIGHT[1]]), "“the cat drank milk” has none"),
    (named([turn(rows) for rows in RIGHT]), "rows and columns are swapped"),
    (changed(0, 1, ".xxx"), "1 of the 32 cells are wrong. The first is in “the cat drank milk”, in "
     "the row of “cat” and the column of “cat”: you say blocked, but this pair is not blocked"),
    (changed(0, 2, "...x"), "column of “the”: you say may be seen, but this pair is blocked"),
    (changed(1, 3, "xx.x"), "in “it was · ·”, in the row of the last “·” and the column of the "
     "first “·”: you say may be seen, but it is padding"),
    (changed(1, 1, "..x"), "“it was · ·” has 4 rows, with 4, 3, 4, 4 characters"),
    (changed(0, 0, ".111"), '"1" is not read'),
    (changed(0, 0, "????"), 'not yet, some cells are still "?"'),
    ({"it was": RIGHT[1]}, "its keys must be 'the cat drank milk', 'it was · ·'"),
    (RIGHT, "an object of type list; a dictionary is asked for"),
]  # fmt: skip


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


def by_gradient(models: Models) -> list[str]:
    names = []
    blocked = block_padding(torch.tensor([3, 5]), 5)
    for name, model in models.items():
        x = torch.randn(2, 5, 12, dtype=torch.float64, requires_grad=True)
        output = model(x, blocked)[~blocked]
        (gradient,) = torch.autograd.grad((output * torch.randn_like(output)).sum(), x)
        if gradient[blocked].abs().max() > 1e-9:
            names.append(name)
    return names


FIND_LEAKS: list[tuple[Any, str]] = [
    (probe((2, 5)), "✓ find_leaks: right: it is south."),
    (probe(value=3.0), "✓ find_leaks"),
    (lambda models: {*by_gradient(models)}, "✓ find_leaks"),
    (probe(rows="all"), "Only the rows of words say something"),
    (probe(change="everything"), "change padding, and nothing else"),
    (probe(value=torch.nan), "use finite numbers"),
    (probe((3,)), "you give one sample at a time, or samples of the same length"),
    (probe((4, 4, 4)), "you give one sample at a time, or samples of the same length"),
    (probe((6, 6, 6)), "✗ find_leaks: it names none, though words react to padding in one of them"),
    (probe((2, 4, 3), change="last"), "✗ find_leaks: some of the padding is the same in all your"),
    (lambda models: probe()(models)[:2], "model 5 is not named: it forgets the mask in its first"),
    (lambda models: [x for x in models if x == "south"], "not with models = 6: it names none, th"),
    (lambda models: "south", "it returns an object of type str; return a list"),
    (lambda models: ["up"], "it returns 'up', which is none of the names that it was given"),
    (lambda models: models["north"](torch.zeros(2, 3), torch.zeros(2, 3)), "x must have shape (b,"),
    (lambda models: models["north"](torch.zeros(2, 3, 12), torch.zeros(3, 2).bool()),
     "must be boolean and (b, m) = (2, 3), got torch.bool and (3, 2)"),
    (lambda models: None, "not yet, it returns None"),
]  # fmt: skip

ANSWERS = [(check_merged, *pair) for pair in MERGED]
ANSWERS += [(check_find_leaks, *pair) for pair in FIND_LEAKS]


@pytest.mark.parametrize(("check", "answer", "words"), ANSWERS, ids=[x for *_, x in ANSWERS])
def test_verdict(verdict: Any, check: Any, answer: Any, words: str) -> None:
    assert words in verdict(check, answer)


def test_models_keep_the_dtype_and_are_the_same_each_time() -> None:
    x, blocked = torch.ones(1, 2, 12), torch.tensor([[False, True]])
    for name, model in four_models().items():
        output = model(x, blocked)
        assert output.dtype == x.dtype
        torch.rand(1)  # another state of the generator
        assert output.equal(four_models()[name](x, blocked))


def test_the_new_models_do_what_is_said_of_them() -> None:
    """Told by gradients, apart from what the table's probe does."""
    new = {what: masks._build(*kind) for what, kind in masks._NEW.items()}
    harmless = {what for what in new if "words are untouched" in what or "as it should" in what}
    assert {*by_gradient(new)} == {*new} - harmless
    assert by_gradient(dict(four_models())) == ["south"]
