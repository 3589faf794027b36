"""The checks of “Speed” know what was measured, and name what is wrong."""

from typing import Any

import pytest

from annotated_attention import measured
from annotated_attention.exercises.speed import check_mebibytes, check_predictions

CHAPTER = "13_speed"
RIGHT = ["left", "right", "right", "left"]


def peaks(name: str) -> dict[int, float]:
    found = measured.load()
    row = next(row for row in found["memory"] if row["name"] == name)
    return {n: b / 2**20 for n, b in zip(row["lengths"], row["bytes"], strict=True) if b}


LESS, MORE = peaks("final class"), peaks("final class, weights")


def test_predictions_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_predictions")
    assert before == "✗ predictions: not yet, nothing is predicted for 1, 2, 3 and 4. "
    assert after.startswith("✓ predictions: as measured. 1. ")
    assert after.count(" ms left, ") == 4


@pytest.mark.parametrize("wrong", range(4))
def test_predictions_reveal_what_was_measured(verdict: Any, wrong: int) -> None:
    answer = list(RIGHT)
    answer[wrong] = {"left": "right", "right": "left"}[answer[wrong]]
    said = verdict(check_predictions, answer)
    assert said.startswith(f"✗ predictions: not what was measured in {wrong + 1}. 1. ")
    assert f" ms right: {RIGHT[wrong]}. " in said


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (["left", "", "left", ...], "not yet, nothing is predicted for 2 and 4."),
        (["left", "fast path", "left", "left"], "prediction 2 is 'fast path'; \"left\" or"),
        (["right", "left", "left", "right"], "not what was measured in 1, 2, 3 and 4."),
        (["left"], "a list of 4 is asked for"),
    ],
)
def test_predictions_that_are_none(verdict: Any, answer: object, reason: str) -> None:
    assert reason in verdict(check_predictions, answer)


def test_mebibytes_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_mebibytes")
    assert before == "✗ mebibytes: not yet, a number is missing. "
    assert after.startswith(f"✓ mebibytes: close: {LESS[8192]:,.0f} MiB without weights and ")


def test_mebibytes_takes_what_is_near(verdict: Any) -> None:
    for factor in (0.8, 1, 1.2):
        answer = (factor * LESS[8192], factor * MORE[8192])
        assert verdict(check_mebibytes, answer).startswith("✓")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((MORE[8192], LESS[8192]), "the two are swapped"),
        ((LESS[4096], MORE[8192]), "without weights"),
        ((LESS[4096], MORE[8192]), "that is the memory at half the length"),
        ((4 * LESS[4096], MORE[8192]), "nothing of size n² is kept"),
        ((LESS[8192], 2 * MORE[4096]), "there are n² weights"),
        ((LESS[8192], MORE[4096]), "that is the memory at half the length"),
        ((LESS[8192] * 2**20, MORE[8192] * 2**20), "that reads like bytes"),
        ((LESS[8192], MORE[8192] / 1024), "that reads like gibibytes"),
        ((3 * LESS[8192], MORE[8192]), "is too much. Which power of n"),
        ((LESS[8192], 0), "with weights 0 MiB is too little"),
        ((LESS[8192], "8000"), "these are of type float and str"),
        (LESS[8192], "two numbers are asked for"),
        ((LESS[8192], float("nan")), "too much"),
    ],
)
def test_mebibytes_names_the_mistake(verdict: Any, answer: object, reason: str) -> None:
    said = verdict(check_mebibytes, answer)
    assert said.startswith("✗ mebibytes: ")
    assert reason in said
