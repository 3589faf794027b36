"""The checks of “Trained weights” accept what is right and name what is wrong."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from annotated_attention.exercises.trained_weights import check_my_head, check_my_pool, check_parts

CHAPTER = "11_trained_weights"


def test_stubs_and_solutions(printed: Any) -> None:
    for name in ("my_pool", "my_head"):
        before, after = printed(CHAPTER, f"check_{name}")
        assert before == f"✗ {name}: not yet, it returns None. "
        assert after.startswith(f"✓ {name}: right")


def test_parts_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_parts")
    assert before == "✗ my_parts: not yet, 3 of the 3 numbers are missing. "
    assert after.startswith("✓ my_parts: the query collects most from cat, 0.6")


@pytest.mark.parametrize("answer", [(0.2, 0.6, 0.2), torch.tensor([0.2, 0.6, 0.2])])
def test_parts_accept_other_ways(verdict: Any, answer: object) -> None:
    assert verdict(check_parts, answer).startswith("✓ my_parts")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((0.8, 0.15, 0.05), "these are the weights"),
        ((0.25, 4, 4), "these are the norms"),
        ((0.8 / 0.25, 0.15 / 4, 0.05 / 4), "you divided the weights by the norms"),
        ((0.25 / 0.8, 4 / 0.15, 4 / 0.05), "you divided the norms by the weights"),
        ((1.05, 4.15, 4.05), "you added weight and norm"),
        ((0.2, 0.2, 0.6), "0.2 is not the weight of cat times its norm"),
        ((2, 0.6, 0.2), "2 is not the weight of [CLS] times its norm"),
        ((0.2, 0.6), "a list of 3 numbers is asked for"),
    ],
)
def test_parts_name_the_mistake(verdict: Any, answer: object, reason: str) -> None:
    said = verdict(check_parts, answer)
    assert said.startswith("✗ my_parts: ")
    assert reason in said


def in_a_loop(states: Tensor, blocked: Tensor) -> Tensor:
    return torch.stack([x[~hidden].mean(0) for x, hidden in zip(states, blocked, strict=True)])


def by_product(states: Tensor, blocked: Tensor) -> Tensor:
    real = (~blocked).double()
    return (real / real.sum(1, keepdim=True)).unsqueeze(1).bmm(states).squeeze(1)


def with_nan(states: Tensor, blocked: Tensor) -> Tensor:
    return states.masked_fill(blocked[..., None], float("nan")).nanmean(1)


@pytest.mark.parametrize("answer", [in_a_loop, by_product, with_nan])
def test_pool_accepts_other_ways(verdict: Any, answer: Callable[..., Tensor]) -> None:
    assert verdict(check_my_pool, answer).startswith("✓ my_pool")


def in_place(states: Tensor, blocked: Tensor) -> Tensor:
    states[blocked] = 0
    return states.sum(1) / (~blocked).sum(1, keepdim=True)


WRONG_POOLS: dict[str, tuple[Callable[..., Any], str]] = {
    "all": (lambda s, x: torch.einsum("bne->be", s) / s.shape[1], "the padding is in the mean"),
    "half": (lambda s, x: s.sum(1) / (~x).sum(1)[:, None], "the padding is in the sum"),
    "sum": (lambda s, x: torch.einsum("bne,bn->be", s, (~x).double()), "it is the sum of the real"),
    "n": (lambda s, x: s.masked_fill(x[..., None], 0).mean(1), "divide by n, the padded length"),
    "turned": (
        lambda s, x: torch.einsum("bne,bn->be", s, x.double()) / x.sum(1)[:, None],
        "you average what is padding",
    ),
    "first": (lambda s, x: s.select(1, 0), "it is the first token"),
    "batch": (lambda s, x: s[~x].mean(0).repeat(len(s), 1), "the mean over all sentences' tokens"),
    "normed": (
        lambda s, x: torch.nn.functional.normalize(in_a_loop(s, x), dim=1), "scale to length 1"
    ),
    "in place": (in_place, "changes its argument states in place"),
    "detached": (lambda s, x: in_a_loop(s.detach(), x), "no gradient reaches states"),
    "features": (lambda s, x: s.mean(-1), r"what fits is (b, e)"),
    "max": (
        lambda s, x: s.masked_fill(x[..., None], -9).amax(1), "the shape is right, but"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_POOLS.values(), ids=WRONG_POOLS.keys())
def test_pool_names_the_mistake(verdict: Any, case: tuple[Callable[..., Any], str]) -> None:
    answer, words = case
    said = verdict(check_my_pool, answer)
    assert said.startswith("✗ my_pool")
    assert words in said


def by_loops(weights: Tensor, distance: int) -> tuple[int, int]:
    layers, h, n, _ = weights.shape
    score = {
        (i, j): sum(float(weights[i, j, q, q - distance]) for q in range(distance, n))
        for i in range(layers)
        for j in range(h)
    }
    return max(score, key=lambda pair: score[pair])


def unravelled(weights: Tensor, distance: int) -> tuple[Tensor, ...]:
    mean = weights.mT.diagonal(distance, 2, 3).mean(2)
    return torch.unravel_index(mean.argmax(), mean.shape)


@pytest.mark.parametrize("answer", [by_loops, unravelled, lambda w, k: list(by_loops(w, k))])
def test_head_accepts_other_ways(verdict: Any, answer: Callable[..., Any]) -> None:
    assert verdict(check_my_head, answer).startswith("✓ my_head")


def largest(score: Tensor) -> tuple[int, int]:
    at = int(score.flatten().argmax())
    return at // score.shape[1], at % score.shape[1]


def plus_one(weights: Tensor, distance: int) -> tuple[int, int]:
    layer, head = by_loops(weights, distance)
    return layer + 1, head + 1


def wrapping(weights: Tensor, distance: int) -> tuple[int, int]:
    rows = range(weights.size(-1))
    return largest(torch.stack([weights[..., i, i - distance] for i in rows]).mean(0))


WRONG_HEADS: dict[str, tuple[Callable[..., Any], str]] = {
    "ahead": (lambda w, k: largest(w.diagonal(k, 2, 3).mean(2)), "looks 1 places ahead"),
    "itself": (lambda w, k: largest(w.diagonal(0, 2, 3).mean(2)), "looks at the token itself"),
    "single": (lambda w, k: largest(w.diagonal(-k, 2, 3).amax(2)), "Take the mean, not the max"),
    "wrapping": (wrapping, "i - distance is negative and wraps round"),
    "no axes": (
        lambda w, k: divmod(int(w.diagonal(-k).mean(-1).argmax()), w.size(1)),
        "unless you name the last two, -2 and -1",
    ),
    "always one": (lambda w, k: by_loops(w, 1), "not with layers = 2, h = 5, n = 8, distance = 3"),
    "too far": (lambda w, k: by_loops(w, k + 1), "looks further back"),
    "swapped": (lambda w, k: by_loops(w, k)[::-1], "the layer comes first"),
    "from one": (plus_one, "count layers and heads from 0"),
    "flat": (lambda w, k: int(w.diagonal(-k, 2, 3).mean(2).argmax()), "divmod by the number"),
    "by layers": (
        lambda w, k: divmod(int(w.diagonal(-k, 2, 3).mean(2).argmax()), len(w)),
        "by the number of heads, not of layers",
    ),
    "scores": (lambda w, k: w.diagonal(-k, 2, 3).mean(2), "a layer and a head are asked for"),
    "floats": (lambda w, k: (1.5, "x"), "no integers"),
}


@pytest.mark.parametrize("case", WRONG_HEADS.values(), ids=WRONG_HEADS.keys())
def test_head_names_the_mistake(verdict: Any, case: tuple[Callable[..., Any], str]) -> None:
    answer, words = case
    said = verdict(check_my_head, answer)
    assert said.startswith("✗ my_head")
    assert words in said
