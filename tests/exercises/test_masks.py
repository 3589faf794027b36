"""The checks of “Masks” accept what is right and name what is wrong."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from annotated_attention.exercises import masks
from annotated_attention.exercises.masks import check_find_leaks, check_merged, four_models
from annotated_attention.masks import block_padding

CHAPTER = "06_masks"
TEXTS = ("the cat drank milk", "it was · ·")
RIGHT = [[".xxx", "..xx", "x..x", "xx.."], [".xxx", "..xx", "x.xx", "xxxx"]]


def test_merged_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_merged")
    assert before == '✗ merged_by_hand: not yet, some cells are still "?". '
    assert after.startswith("✓ merged_by_hand: right: a key is blocked if either mask blocks it.")
    assert "The row of the last “·” is fully masked" in after


def named(rows: Sequence[Sequence[str]]) -> dict[str, Sequence[str]]:
    return dict(zip(TEXTS, rows, strict=True))


def test_merged_accepts_tuples_in_any_order(verdict: Any) -> None:
    answer = dict(reversed(named([tuple(rows) for rows in RIGHT]).items()))
    assert verdict(check_merged, answer).startswith("✓")


def flip(rows: list[str]) -> list[str]:
    return [row.translate(str.maketrans("x.", ".x")) for row in rows]


def turn(rows: list[str]) -> list[str]:
    return ["".join(column) for column in zip(*rows, strict=True)]


def changed(sample: int, row: int, text: str) -> dict[str, Sequence[str]]:
    rows = [[*rows] for rows in RIGHT]
    rows[sample][row] = text
    return named(rows)


PADDING = [["...."] * 4, ["..xx"] * 4]
WRONG_MERGED: list[tuple[object, str]] = [
    (named([flip(rows) for rows in RIGHT]), "it is inverted"),
    (named([["...."] * 4, ["..xx", "..xx", "...x", "...."]]), "merged with “and”"),
    (named(PADDING), "that is the padding alone"),
    (named([RIGHT[0], RIGHT[0]]), "that is the mask of pairs alone"),
    (named(RIGHT[::-1]), "the two samples are in each other's place"),
    (named([RIGHT[0], [".xxx", "..xx", "x..x", "xx.x"]]), "“it was · ·” is one off"),
    (named([RIGHT[0], [".xxx", ".xxx", "xxxx", "xxxx"]]), "“it was · ·” is one off"),
    (named([[".xxx", "..xx", "x..x", "xx.x"], [".xxx", ".xxx", "xxxx", "xxxx"]]), "is one off"),
    (named([RIGHT[1], RIGHT[1]]), "“the cat drank milk” has none"),
    (named([turn(rows) for rows in RIGHT]), "rows and columns are swapped"),
    (changed(0, 1, ".xxx"), "1 of the 32 cells are wrong. The first is in “the cat drank milk”, in "
     "the row of “cat” and the column of “cat”: you say blocked, but it is a word, and"),
    (changed(0, 2, "...x"), "column of “the”: you say may be seen, but this pair is blocked"),
    (changed(1, 3, "xx.x"), "in “it was · ·”, in the row of the last “·” and the column of the "
     "first “·”: you say may be seen, but it is padding"),
    (changed(1, 1, "..x"), "“it was · ·” has 4 rows, with 4, 3, 4, 4 characters"),
    (named([RIGHT[0][:2], RIGHT[1]]), "“the cat drank milk” has 2 rows"),
    (changed(0, 0, ".111"), '"1" is not read'),
    ({"it was": RIGHT[1]}, "its keys must be the two texts 'the cat drank milk' and 'it was · ·'"),
    (named([torch.zeros(4, 4), torch.zeros(4, 4)]), "must have a list of texts"),  # type: ignore[list-item]
    (RIGHT, "an object of type list; a dictionary with two texts"),
    (None, "not yet, it is None"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "reason"), WRONG_MERGED)
def test_merged_names_the_mistake(verdict: Any, answer: object, reason: str) -> None:
    said = verdict(check_merged, answer)
    assert said.startswith("✗ merged_by_hand: ")
    assert reason in said


def test_find_leaks_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_find_leaks")
    assert before == "✗ find_leaks: not yet: it names none, and has not called any model. "
    assert after.startswith("✓ find_leaks: right: it is south.")


Models = dict[str, Callable[[Tensor, Tensor], Tensor]]


def probe(
    lengths: tuple[int, ...] = (2, 6, 4),
    m: int = 6,
    rows: str = "words",
    change: str = "padding",
    value: float | None = None,
) -> Callable[[Models], list[str]]:
    """Make a probe that compares two runs, well or badly."""

    def answer(models: Models) -> list[str]:
        source = torch.Generator().manual_seed(4)
        blocked = block_padding(torch.tensor(lengths), m)
        x = torch.randn(len(lengths), m, 12, generator=source)
        y = x.clone()
        if change == "padding":
            y[blocked] = torch.randn(y[blocked].shape, generator=source)
        elif change == "last":
            y[blocked[:, -1], -1] = torch.randn(12, generator=source)
        else:
            y = torch.randn(x.shape, generator=source)
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


def against_alone(models: Models) -> set[str]:
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    lengths = torch.tensor([7, 4])
    blocked = block_padding(lengths, 7)
    names = set()
    for name, model in models.items():
        padded = model(x, blocked)
        for i, length in enumerate(lengths.tolist()):
            alone = model(x[i : i + 1, :length], blocked[i : i + 1, :length])
            if not torch.allclose(padded[i, :length], alone[0]):
                names.add(name)
    return names


@pytest.mark.parametrize(
    "answer", [probe(), probe((2, 5), 5), probe(value=3.0), by_gradient, against_alone]
)
def test_find_leaks_accepts_other_ways(verdict: Any, answer: Callable[..., Any]) -> None:
    assert verdict(check_find_leaks, answer).startswith("✓ find_leaks")


def at_most_two(models: Models) -> list[str]:
    return probe()(models)[:2]


FOUR = "of the four it names the right one, but of 10 new ones, "

WRONG_PROBES: list[tuple[Callable[..., Any], str]] = [
    (probe(rows="all"), "Only the rows of words say something"),
    (probe(change="everything"), "change padding, and nothing else"),
    (probe(value=torch.nan), "You put NaN or infinity into the padding"),
    (probe((3,)), "names none of the four, but one attends to padding. You give one sample"),
    (probe((4, 4)), "All your samples have the same length"),
    (probe((6, 6, 6)), "Nothing was blocked in any of your calls"),
    (probe((2, 4, 6), change="last"), f"{FOUR}model 3 is not named: it lets the first padded key"),
    (probe((2, 4, 3), change="last"), "Some of the padding is the same in all your calls"),
    (lambda models: ["south"],
     "it returns \"south\", which is none of the 10 names that it was given, model 1 to model 10"),
    (lambda models: [name for name in models if name == "south"],
     f"{FOUR}model 1 is not named: it masks after the softmax, so padding counts in the sum. Your "
     "function has not called any of them."),
    (lambda models: list(models), "it names east and north and south and west, and has not called"),
    (at_most_two, f"{FOUR}model 4 is not named: it reads the mask the wrong way round"),
    (lambda models: "south", "it returns an object of type str; return a list"),
    (lambda models: [3],
     "it returns a int, which is none of the 4 names that it was given, north to west"),
    (lambda models: models["north"](torch.zeros(2, 3), torch.zeros(2, 3)), "x must have shape (b,"),
    (lambda models: models["north"](torch.zeros(2, 3, 12), torch.zeros(2, 3)), "must be boolean"),
    (lambda models: models["north"](torch.zeros(2, 3, 12), torch.zeros(3, 2).bool()),
     "must be boolean and (b, m) = (2, 3), got torch.bool and (3, 2)"),
    (lambda models: None, "not yet, it returns None"),
    (lambda: [], "TypeError: "),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "reason"), WRONG_PROBES, ids=[r for _, r in WRONG_PROBES])
def test_find_leaks_names_the_mistake(
    verdict: Any, answer: Callable[..., Any], reason: str
) -> None:
    said = verdict(check_find_leaks, answer)
    assert said.startswith("✗ find_leaks: ")
    assert reason in said


def test_models_keep_the_dtype_and_are_the_same_each_time() -> None:
    x, blocked = torch.ones(1, 2, 12), torch.tensor([[False, True]])
    for name, model in four_models().items():
        output = model(x, blocked)
        assert output.dtype == x.dtype
        torch.rand(1)  # another state of the generator
        assert output.equal(four_models()[name](x, blocked))


def test_what_the_check_says_of_its_candidates_is_true() -> None:
    """By gradients, apart from what any probe here does."""
    for *kind, leaks, what in masks._CANDIDATES:
        assert bool(by_gradient({"it": masks._build(*kind)})) == leaks, what
    assert by_gradient(dict(four_models())) == ["south"]
