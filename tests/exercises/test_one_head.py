"""The checks of “One head” accept what is right and name what is wrong."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention.exercises.one_head import (
    check_attend,
    check_scores,
    check_w_q,
    check_weights,
)

CHAPTER = "01_one_head"


def test_scores_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_scores")
    assert before == "✗ my_scores: not yet, 2 of the 2 numbers are missing. "
    assert after.startswith('✓ my_scores: "thirsty" and "cat" share animal')
    assert 'as when "it" asked "thirsty"' in " ".join(after.split())


@pytest.mark.parametrize("answer", [(6, 4), [6.0, torch.tensor(4)], torch.tensor([6, 4])])
def test_scores_accept_other_ways(verdict: Any, answer: object) -> None:
    assert verdict(check_scores, answer).startswith("✓ my_scores")


WRONG_SCORES: list[tuple[object, str]] = [
    ([3, 2], "you divided by √4 already"),
    ([4, 6], "the other way round"),
    ([3, 3], 'your query is "it"'),
    ([3, 4], 'your query is "it"'),
    ([9, 3], "you scored each key with itself"),
    ([7, 7], "you added the numbers of the two words"),
    ([12, 12], "you multiplied the sums"),
    ([6, 2], "add up two products"),
    ([5, 4], '5 is not the score with "cat"'),
    ([6, 3], '3 is not the score with "it"'),
    ([6, None], "not yet, 1 of the 2 numbers is missing"),
    ([6], "a list of 2 numbers is asked for, and there are 1 of them"),
    (6, "a list of 2 numbers is asked for, and there are none"),
    (torch.eye(2), "each of the 2 is to be one finite number"),
    ([6, "4"], "each of the 2 is to be one finite number"),
    ([6, math.nan], "each of the 2 is to be one finite number"),
    (None, "not yet, it is None"),
]


@pytest.mark.parametrize(("answer", "reason"), WRONG_SCORES)
def test_scores_name_the_mistake(verdict: Any, answer: object, reason: str) -> None:
    said = verdict(check_scores, answer)
    assert said.startswith("✗ my_scores: ")
    assert reason in said


def test_weights_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_weights")
    assert before == "✗ my_weights: not yet, 8 of the 8 numbers are missing. "
    assert after.startswith("✓ my_weights: right. Before rounding, the eight weights add up to 1")


def of_drank(drank: float, was: float, other: float) -> list[float]:
    """List eight numbers in the order of the sentence."""
    return [other, other, drank, other, other, other, was, other]


@pytest.mark.parametrize(
    "answer", [of_drank(0.46, 0.17, 0.06), torch.tensor(of_drank(0.459, 0.169, 0.062))]
)
def test_weights_accept_what_was_rounded(verdict: Any, answer: object) -> None:
    assert verdict(check_weights, answer).startswith("✓ my_weights")


WRONG_WEIGHTS: list[tuple[list[float], str]] = [
    (of_drank(4, 2, 0), "these are the scores."),
    (of_drank(2, 1, 0), "these are the scores divided by 2"),
    (of_drank(7.4, 2.7, 1), "these are the exponentials"),
    (of_drank(0.67, 0.33, 0), "there is no exponential"),
    (of_drank(0.80, 0.11, 0.01), "you left the division out"),
    (of_drank(0.73, 0.27, 0), "exp(0) is 1, not 0"),
    (of_drank(0.46, 0.17, 0), "exp(0) is 1, not 0"),
    (of_drank(0.73, 0.27, 0.1), "exp(0) is 1, not 0"),
    (of_drank(45.9, 16.9, 6.2), "these are percentages"),
    (of_drank(0.9, 0.3, 0.1), "your weights add up to 1.80"),
    (of_drank(0.34, 0.3, 0.06), 'they add up to 1.00, but the weight of "was" is not 0.30'),
    (of_drank(0.45, 0.12, 0.07), 'they add up to 0.99, but the weight of "was" is not 0.12'),
    (of_drank(0.26, 0.16, 0.10), 'by √4 = 2. Or your query is "was"; here "drank" asks.'),
    ([0.04, 0.18, 0.04, 0.18, 0.04, 0.18, 0.04, 0.30], 'your query is "it"; here "drank" asks.'),
    ([0.01, 0.23, 0.01, 0.01, 0.01, 0.08, 0.01, 0.63], 'your query is "thirsty"; here "drank"'),
    ([0.125] * 8, 'your query is "the" or "because"; here "drank" asks.'),
]


@pytest.mark.parametrize(("answer", "reason"), WRONG_WEIGHTS, ids=[r for _, r in WRONG_WEIGHTS])
def test_weights_name_the_mistake(verdict: Any, answer: list[float], reason: str) -> None:
    said = verdict(check_weights, answer)
    assert said.startswith("✗ my_weights: ")
    assert reason in said


def test_attend_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_attend")
    assert before == "✗ my_attend: not yet, it returns None. "
    assert after.startswith("✓ my_attend: right, and so are the gradients")


def in_two_lines(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    query = query * query.shape[1] ** -0.5
    return torch.softmax(torch.einsum("nd,md->nm", query, key), dim=1).mm(value)


def with_powers(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    # A float32 root in float64 numbers: less exact, and no mistake.
    powers = (query @ key.T / torch.sqrt(torch.tensor(query.size(1)))).exp()
    return powers / powers.sum(dim=1, keepdim=True) @ value


def in_loops(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    rows = []
    for q in query:
        weights = torch.stack([q @ k for k in key]).div(len(q) ** 0.5).softmax(0)
        rows.append(sum(w * v for w, v in zip(weights, value, strict=True)))
    return torch.stack(rows)


@pytest.mark.parametrize(
    "answer", [in_two_lines, with_powers, in_loops, F.scaled_dot_product_attention]
)
def test_attend_accepts_other_ways(verdict: Any, answer: Callable[..., Tensor]) -> None:
    assert verdict(check_attend, answer).startswith("✓ my_attend")


def divided_by(divisor: Callable[[Tensor, Tensor, Tensor], float]) -> Callable[..., Tensor]:
    """Write attention with another divisor."""
    return lambda q, k, v: torch.softmax(q @ k.T / divisor(q, k, v), dim=1) @ v


def in_place(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    query /= math.sqrt(query.size(-1))
    return (query @ key.T).softmax(1) @ value


def detached(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    weights = (query @ key.T / math.sqrt(query.size(1))).softmax(1)
    return weights.detach() @ value


def through_numpy(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    right = F.scaled_dot_product_attention(query, key, value)
    return torch.tensor(right.tolist(), dtype=torch.float64)


def half_gradient(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    value = value / 2 + (value / 2).detach()
    return F.scaled_dot_product_attention(query, key, value)


def in_float32(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    output = torch.zeros(query.size(0), value.size(1), dtype=torch.float32)
    output += F.scaled_dot_product_attention(query, key, value)
    return output


def root_d(query: Tensor) -> float:
    return math.sqrt(query.size(1))


def normal(numbers: Tensor) -> Tensor:
    return numbers / numbers.sum(-1, keepdim=True)


def powers(query: Tensor, key: Tensor) -> Tensor:
    return (query @ key.T / root_d(query)).exp()


WRONG_ATTEND: list[tuple[Callable[..., Any], str]] = [
    (divided_by(lambda q, k, v: 1), "you do not scale"),
    (divided_by(lambda q, k, v: q.size(1)), "you divide the scores by d, not by √d"),
    (divided_by(lambda q, k, v: 1 / root_d(q)), "you multiply the scores by √d instead"),
    (divided_by(lambda q, k, v: v.size(-1) ** 0.5), "√d_v, the root of value's width"),
    (divided_by(lambda q, k, v: len(k) ** 0.5), "the number of keys, √m"),
    (divided_by(lambda q, k, v: len(q) ** 0.5), "the number of queries, √n"),
    (divided_by(lambda q, k, v: 2), "√d only for the chapter's sentence"),
    (lambda q, k, v: (q @ k.T / root_d(q)).softmax(0) @ v, "softmax runs over the queries"),
    (lambda q, k, v: (k @ q.T / root_d(q)).softmax(-1).T @ v, "the first one of key @ query.mT"),
    (lambda q, k, v: normal(q @ k.T / root_d(q)) @ v, "without an exponential"),
    (lambda q, k, v: normal(q @ k.T) @ v, "without an exponential"),
    (lambda q, k, v: (q @ k.T / root_d(q)).exp() @ v, "divided by the sum of its row"),
    (lambda q, k, v: (q @ k.T).exp() @ v, "divided by the sum of its row"),
    (lambda q, k, v: (q @ k.T / root_d(q)).flatten().softmax(0).view(len(q), -1) @ v,
     "you divide by the sum of all exponentials"),
    (lambda q, k, v: (q @ k.T / root_d(q)).softmax(1) @ k, "you mix the keys"),
    (lambda q, k, v: (q @ k.T / root_d(q)).softmax(1), "you return the weights"),
    (lambda q, k, v: q @ k.T / root_d(q), "you return the scores"),
    (lambda q, k, v: q @ k.T / root_d(q) @ v, "there is no softmax"),
    (lambda q, k, v: (q @ k.T).softmax(1) / root_d(q) @ v, "you divide by √d after the softmax"),
    (lambda q, k, v: ((q @ k.T / root_d(q)).softmax(1) @ v).T, "transposed"),
    (lambda q, k, v: (q @ k.T).softmax(0) @ v, "you do not scale: divide the scores by √d before "
     "the softmax. And your softmax runs over the queries"),
    (in_place, "changes its argument query in place"),
    (detached, "no gradient reaches query"),
    (through_numpy, "no gradient reaches query"),
    (half_gradient, "the gradient of value is not"),
    (in_float32, "torch.float64 goes in and torch.float32 comes out"),
    (lambda q, k, v: (v, k), "it returns a tuple of 2 things"),
    (lambda q, k, v: q @ k.T, "shape (3, 5); what fits is (n, d_v), here (3, 7)"),
    (lambda q, k, v: q.new_full((len(q), v.size(1)), math.nan), "21 of its 21 numbers are NaN"),
    (lambda q, k, v: q.new_zeros(len(q), v.size(1)), "21 of its 21 numbers are not. Most"),
    (divided_by(lambda q, k, v: math.sqrt(6)), "but not with n = 8, m = 2, d = 9, d_v = 5: "),
    (lambda q, k, v: (q @ k / root_d(q)).softmax(-1) @ v, "you multiply query by key as it is"),
    (lambda q, k, v: (q @ k).softmax(-1) @ v, "the keys have to become columns: query @ key.mT"),
    (lambda q, k, v: (q @ k).softmax(-1) @ v, "So your code raises RuntimeError: mat1 and mat2"),
    (lambda q, k, v: (q.T @ k / root_d(q)).softmax(-1) @ v, "you transpose query where key has to"),
    (lambda q, k, v: (k @ q.T / root_d(q)).softmax(-1) @ v, "your weights have a row per key"),
    (lambda q, k, v: (k @ q.T / root_d(q)).softmax(0) @ v, "your weights have a row per key"),
    (lambda q, k, v: powers(q, k) / powers(q, k).sum(-1) @ v, "write sum(-1, keepdim=True)"),
    (lambda q, k, v: q @ v, "your code raises RuntimeError: mat1 and mat2"),
    (lambda q: q, "TypeError: "),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "reason"), WRONG_ATTEND, ids=[r for _, r in WRONG_ATTEND])
def test_attend_names_the_mistake(verdict: Any, answer: Callable[..., Any], reason: str) -> None:
    said = verdict(check_attend, answer)
    assert said.startswith("✗ my_attend: ")
    assert reason in said.partition(" in line ")[0]  # that line stands above, beside its reason


def test_w_q_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_w_q")
    assert before == (
        '✗ my_w_q: not yet. "it" looks most at "cat" (0.57), and gives "thirsty" only 0.21. '
        '"thirsty" gives "cat" 0.86 of its attention. As it stands, "it" asks with (2, 0, 0, 0) '
        'and "thirsty" asks with (4, 0, 0, 0). '
    )
    assert after.startswith('✓ my_w_q: "it" gives "thirsty" 0.80 of its attention. "thirsty" gives')


def matrix(**entries: float) -> Tensor:
    """Make a matrix from entries such as ``r3c0=2.0``."""
    made = torch.zeros(4, 4)
    for place, number in entries.items():
        made[int(place[1]), int(place[3])] = number
    return made


@pytest.mark.parametrize(
    "answer",
    [
        matrix(r3c0=2, r1c3=4).requires_grad_(),
        nn.Parameter(matrix(r3c0=3, r1c3=4)),
        matrix(r3c0=2, r1c3=3).to(torch.int64),
        matrix(r3c0=4, r1c3=9),
    ],
)
def test_w_q_accepts_other_ways(verdict: Any, answer: Tensor) -> None:
    assert verdict(check_w_q, answer).startswith("✓ my_w_q")


WRONG_W_Q: list[tuple[object, str]] = [
    (torch.eye(4), "quality asks for quality"),
    (torch.zeros(4, 4), '"thirsty" asks for nothing, and gives every word 0.12.'),
    (matrix(r3c0=2, r1c3=3).T, "a row and a column are swapped"),
    (matrix(r3c0=2, r3c1=3), "a row and a column are swapped"),
    (matrix(r3c0=2, r1c3=1), "the right place, but too small a number"),
    (matrix(r3c0=2, r0c3=3), "in your matrix, animal asks for quality"),
    (matrix(r3c0=2, r3c3=3), "in your matrix, quality asks for quality"),
    (matrix(r3c0=2, r0c3=3, r3c3=3), "animal and quality ask for quality"),
    (matrix(r3c0=2, r1c3=-3), 'As it stands, "it" asks with (2, 0, 0, -3)'),
    (matrix(r3c0=2, r1c0=3), '"it" looks most at "cat" (0.92), and gives "thirsty" only 0.08.'),
    (torch.zeros(4, 3), "shape (4, 3); what fits is (e, d), here (4, 4)"),
    (torch.zeros(16), "shape (16,); what fits is (e, d), here (4, 4)"),
    (matrix(r3c0=2, r1c3=math.nan), "NaN or infinite"),
    (matrix(r3c0=2, r1c3=math.inf), "NaN or infinite"),
    (matrix(r3c0=2, r1c3=3).double() * 5e307, "so large that the scores overflow"),
    ([[0.0] * 4] * 4, "it is a list of 4 things; one tensor is asked for"),
    (torch.zeros(4, 4).numpy(), "an object of type ndarray; a tensor is asked for"),
    (torch.zeros(4, 4, dtype=torch.complex64), "torch.complex64; real numbers are asked for"),
    (None, "not yet, it is None"),
    (..., "not yet, it is ..."),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "reason"), WRONG_W_Q, ids=[r for _, r in WRONG_W_Q])
def test_w_q_names_the_mistake(verdict: Any, answer: object, reason: str) -> None:
    said = verdict(check_w_q, answer)
    assert said.startswith("✗ my_w_q: ")
    assert reason in said
