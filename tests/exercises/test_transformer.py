"""The checks of “The Transformer” accept what is right and name what is wrong."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from annotated_attention import sinusoidal_code
from annotated_attention.exercises.transformer import (
    check_angles,
    check_count_parameters,
    check_shift_matrix,
)

CHAPTER = "09_transformer"


def test_angles_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_angles")
    assert before == "✗ angles: not yet, 4 of the 4 numbers are missing. "
    assert after.startswith("✓ angles: right: the first clock has gone round three times")


def test_angles_accepts_those_whose_sines_and_cosines_are_the_code(verdict: Any) -> None:
    answer = [20.0, 2.0, 0.2, 0.02]
    pairs = torch.tensor(answer, dtype=torch.float64)
    torch.testing.assert_close(
        torch.stack([pairs.sin(), pairs.cos()], -1).flatten(), sinusoidal_code(21, 8)[20]
    )
    assert verdict(check_angles, answer).startswith("✓ angles")
    assert verdict(check_angles, pairs).startswith("✓ angles")


TURNS = torch.tensor([20.0, 2.0, 0.2, 0.02])
WRONG_ANGLES = [
    ([0, 0, 0, 0], "that is position 0"),
    (TURNS / 20, "per position"),
    ([20, 200, 2000, 20000], "the clocks get slower"),
    (TURNS.sin(), "these are sines"),
    (TURNS.cos(), "these are cosines"),
    ([20] * 4, "all clocks turn equally fast"),
    (torch.rad2deg(TURNS), "these are degrees"),
    (TURNS % (2 * math.pi), "you left out full turns"),
    ([20, 2, 2, 0.02], "clock 3 has not turned by 2. Divide 20 by 100"),
    ([20, 2, 0.2], "a list of 4 numbers is asked for"),
]


@pytest.mark.parametrize(("answer", "reason"), WRONG_ANGLES, ids=[r for _, r in WRONG_ANGLES])
def test_angles_names_the_mistake(verdict: Any, answer: Any, reason: str) -> None:
    said = verdict(check_angles, answer)
    assert said.startswith("✗ angles: ")
    assert reason in said


def test_count_parameters_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_count_parameters")
    assert before == "✗ count_parameters: not yet, it returns None. "
    assert after.startswith("✓ count_parameters: right: 63,082,496 for the base model")


def by_pytorch(e: int, wide: int, layers: int, words: int) -> int:
    """Let PyTorch count its own class, less the final norms that the paper does not have."""
    with torch.device("meta"):
        model = nn.Transformer(e, 2, layers, layers, wide, batch_first=True)
    return sum(p.numel() for p in model.parameters()) - 4 * e + words * e


def closed(e: int, wide: int, layers: int, words: int) -> float:
    return layers * (12 * e**2 + 4 * e * wide + 24 * e + 2 * wide) + words * e


@pytest.mark.parametrize("answer", [by_pytorch, closed, lambda *x: float(closed(*x))])
def test_count_parameters_accepts_other_ways(verdict: Any, answer: Callable[..., int]) -> None:
    assert verdict(check_count_parameters, answer).startswith("✓ count_parameters")


def off(amount: Callable[[int, int, int, int], int]) -> Callable[..., Any]:
    return lambda *x: closed(*x) + amount(*x)


def no_bias(e: int, wide: int, layers: int, words: int) -> int:
    return layers * (12 * e * e + 4 * e * wide + 10 * e) + words * e


def matrices_only(e: int, wide: int, layers: int, words: int) -> int:
    return layers * (4 * e * e + 8 * e * e + 4 * e * wide) + words * e


WRONG_COUNT: list[tuple[Callable[..., Any], str]] = [
    (off(lambda e, w, n, v: -v * e), "the table of embeddings is missing"),
    (off(lambda e, w, n, v: 2 * v * e), "it counts once, not three times"),
    (off(lambda e, w, n, v: v * e), "it counts once, not twice"),
    (off(lambda e, w, n, v: v), "the projection has no bias"),
    (off(lambda e, w, n, v: 4 * e), "there are no final norms in the paper"),
    (off(lambda e, w, n, v: 5000 * e), "positions are computed, not learned"),
    (no_bias, "the biases are missing"),
    (matrices_only, "biases and norms are missing"),
    (off(lambda e, w, n, v: -12 * n * e), "the biases of the attention are missing"),
    (off(lambda e, w, n, v: -2 * n * (w + e)), "the biases of the feed-forward networks are miss"),
    (off(lambda e, w, n, v: -10 * n * e), "the norms are missing"),
    (off(lambda e, w, n, v: -5 * n * e), "a norm has a shift as well as a scale"),
    (off(lambda e, w, n, v: -2 * n * e), "a decoder layer has three norms"),
    (off(lambda e, w, n, v: -4 * n * e * (e + 1)), "a decoder layer has two attention modules."),
    (off(lambda e, w, n, v: -n * (4 * e * e + 6 * e)), "two attention modules, each with its norm"),
    (lambda e, w, n, v: n * (4 * e * e + 4 * e + 2 * e * w + w + e + 4 * e) + v * e,
     "that is the encoder"),
    (off(lambda e, w, n, v: -3 * n * e * (e + 1)), "the attention has a fourth matrix, W_O"),
    (off(lambda e, w, n, v: -2 * n * e * w), "the feed-forward network has two matrices"),
    (lambda e, w, n, v: 63_082_496,
     "with e = 24, wide = 50, layers = 3, words = 101 it returns 63,082,496; the class has"),
    (off(lambda e, w, n, v: 7),
     "words = 37000 it returns 63,082,503; the class has 63,082,496, which is -7."),
    (lambda e, w, n, v: "63 M", "an object of type str; a number is asked for"),
    (lambda e, w, n: 1, "TypeError"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "reason"), WRONG_COUNT, ids=[r for _, r in WRONG_COUNT])
def test_count_parameters_names_the_mistake(
    verdict: Any, answer: Callable[..., Any], reason: str
) -> None:
    said = verdict(check_count_parameters, answer)
    assert said.startswith("✗ count_parameters: ")
    assert reason in said


def test_shift_matrix_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_shift_matrix")
    assert before == "✗ shift_matrix: not yet, it returns None. "
    assert after.startswith("✓ shift_matrix: right: it moves 47 positions by three")


def entries(k: int, e: int, *, sign: int = 1, speed: float = 2.0) -> Tensor:
    """Write the entries one by one."""
    matrix = torch.zeros(e, e, dtype=torch.float64)
    for i in range(0, e, 2):
        angle = sign * k * 10000 ** (-speed * (i // 2) / e)
        matrix[i, i] = matrix[i + 1, i + 1] = math.cos(angle)
        matrix[i, i + 1], matrix[i + 1, i] = -math.sin(angle), math.sin(angle)
    return matrix


def from_the_code(k: int, e: int) -> Tensor:
    """Take sines and cosines from the code itself."""
    row = sinusoidal_code(abs(k) + 1, e)[-1] * torch.tensor([1.0 if k > 0 else -1.0, 1.0]).repeat(
        e // 2
    )
    blocks = [torch.stack([torch.stack([c, -s]), torch.stack([s, c])]) for s, c in row.view(-1, 2)]
    return torch.block_diag(*blocks)


def power(k: int, e: int) -> Tensor:
    return torch.linalg.matrix_power(entries(1, e), k)


@pytest.mark.parametrize("answer", [entries, from_the_code, power])
def test_shift_matrix_accepts_other_ways(verdict: Any, answer: Callable[..., Tensor]) -> None:
    assert verdict(check_shift_matrix, answer).startswith("✓ shift_matrix")


def halves(k: int, e: int) -> Tensor:
    angle = k / 10000 ** (torch.arange(0, e, 2, dtype=torch.float64) / e)
    sine, cosine = angle.sin().diag(), angle.cos().diag()
    return torch.cat([torch.cat([cosine, -sine], 1), torch.cat([sine, cosine], 1)])


WRONG_SHIFT: list[tuple[Callable[..., Any], str]] = [
    (lambda k, e: entries(k, e).T, "it moves by -k: the blocks are transposed"),
    (lambda k, e: entries(k, e, sign=-1), "it moves by -k: the blocks are transposed"),
    (halves, "that is for all sines first, then all cosines"),
    (lambda k, e: entries(k, e, speed=0), "all clocks turn equally fast"),
    (lambda k, e: entries(k, e, speed=1), "the clocks slow down half as fast"),
    (lambda k, e: entries(k, e, speed=-2), "the clocks get faster"),
    (lambda k, e: sinusoidal_code(e, e), "that is a table of positions"),
    (lambda k, e: entries(abs(k), e), "not with k = -2, e = 6: it moves by -k"),
    (lambda k, e: entries(3, 8), "not with k = 1, e = 2: it returns a tensor of shape (8, 8)"),
    (lambda k, e: entries(k, e).float(), "they are torch.float32. Make the matrix with"),
    (lambda k, e: sinusoidal_code(k + 1, e)[k], "shape (8,); what fits is (e, e), here (8, 8)"),
    (lambda k, e: torch.eye(e).double(), "the shape is right, but 14 of its 64 numbers are not"),
    (lambda k, e: entries(k, e).tolist(), "it returns a list of 8 things"),
    (lambda k: k, "TypeError"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "reason"), WRONG_SHIFT, ids=[r for _, r in WRONG_SHIFT])
def test_shift_matrix_names_the_mistake(
    verdict: Any, answer: Callable[..., Any], reason: str
) -> None:
    said = verdict(check_shift_matrix, answer)
    assert said.startswith("✗ shift_matrix: ")
    assert reason in said
