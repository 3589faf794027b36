"""The checks of “Masks in the wild” accept what is right and name what is wrong."""

from collections.abc import Callable
from math import inf
from typing import Any

import pytest
import torch
from torch import Tensor

from annotated_attention.exercises import masks_in_the_wild
from annotated_attention.exercises.masks_in_the_wild import check_make_ready, check_turned

CHAPTER = "14_masks_in_the_wild"
RIGHT = {
    "nn.MultiheadAttention, key_padding_mask": "~mask",
    "F.scaled_dot_product_attention, attn_mask": "mask",
    "nn.TransformerEncoderLayer, src_key_padding_mask": "~mask",
    "this package's function, blocked": "~mask",
}


def test_turned_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_turned")
    assert before == '✗ turned: not yet, some functions still get "?". '
    assert after.startswith("✓ turned: right: in all four, “it” in “it was · ·” reacts to “it”")


@pytest.mark.parametrize("name", RIGHT)
def test_turned_names_the_function(verdict: Any, name: str) -> None:
    """One that is the wrong way round is found by what it reacts to."""
    other = {"mask": "~mask", "~mask": "mask"}[RIGHT[name]]
    said = verdict(check_turned, RIGHT | {name: other})
    assert said.startswith(f"✗ turned: given {other}, {name.replace(', ', ' with ')} lets the ")
    assert "lets the query “it” in “it was · ·” react to " in said
    assert "to “·” alone" in said or "to “it” and “·” alone" in said


WRONG_TURNED: list[tuple[object, str]] = [
    (None, "not yet, it is None"),
    ({}, "it must be a dictionary with these keys: nn.MultiheadAttention, key_padding_mask; F."),
    (["mask"], "it must be a dictionary"),
    (RIGHT | {"this package's function, blocked": "not"}, '"not" is not read, for this package'),
]


@pytest.mark.parametrize(("answer", "reason"), WRONG_TURNED)
def test_turned_says_what_it_cannot_read(verdict: Any, answer: object, reason: str) -> None:
    said = verdict(check_turned, answer)
    assert said.startswith("✗ turned: ")
    assert reason in said


def test_make_ready_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_make_ready")
    assert before.startswith("✗ make_ready: booleans or floats? It returns torch.int64, which the")
    assert after.startswith("✓ make_ready: right: padding is hidden, no query looks ahead")


def parts(given: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Give the keys that are words, and for each of the newest queries the keys up to it."""
    m = given.size(1)
    return given.bool()[:, None, None, :], torch.ones(n, m, dtype=torch.bool).tril(m - n)


def by_places(given: Tensor, n: int) -> Tensor:
    place = torch.arange(given.size(1))
    return (place <= place[-n:, None]) & (given == 1)[:, None, None]


def for_each_head(given: Tensor, n: int) -> Tensor:
    words, past = parts(given, n)
    return (words & past).expand(-1, {6: 4}.get(given.size(1), 2), -1, -1)


@pytest.mark.parametrize("answer", [by_places, for_each_head])
def test_make_ready_accepts_other_ways(verdict: Any, answer: Callable[..., Any]) -> None:
    assert verdict(check_make_ready, answer).startswith("✓ make_ready")


def in_place(given: Tensor, n: int) -> Tensor:
    words, past = parts(given, n)
    given.zero_()
    return words & past


def one_head(given: Tensor, n: int) -> Tensor:
    words, past = parts(given, n)
    return (words & past)[:, 0]


def off(by: int) -> Callable[[Tensor, int], Tensor]:
    def answer(given: Tensor, n: int) -> Tensor:
        return parts(given, n)[0] & torch.ones(n, given.size(1)).bool().tril(given.size(1) - n + by)

    return answer


def top_left(given: Tensor, n: int) -> Tensor:
    return torch.ones(n, given.size(1)).bool().tril()


def newest_of_the_words(given: Tensor, n: int) -> Tensor:
    """Count the diagonal from the other end of the keys."""
    return parts(given, n)[0] & parts(given, n)[1].flip(-1)


WRONG_READY: list[tuple[Callable[..., Any], str]] = [
    (lambda given, n: ~(parts(given, n)[0] & parts(given, n)[1]), "It is inverted"),
    (lambda given, n: parts(given, n)[0] & top_left(given, n), "which corner? The diagonal begins"),
    (lambda given, n: top_left(given, n), "padding is seen, and the corner is the top left"),
    (lambda given, n: parts(given, n)[0], "padding is hidden, but the queries still look ahead"),
    (lambda given, n: parts(given, n)[1], "no query looks ahead, and padding is seen"),
    (lambda given, n: parts(given, n)[0] | parts(given, n)[1], "use “and”"),
    (lambda given, n: ~parts(given, n)[0] & parts(given, n)[1], "The padding is turned"),
    (off(-1), "a query may see the key at its own place"),
    (off(1), "each query sees the key after its own place"),
    (one_head, "give the heads an axis of 1"),
    (lambda given, n: given.bool(), "It returns (2, 6), which does not broadcast"),
    (lambda given, n: (parts(given, n)[0] & parts(given, n)[1]).float(), "1 would hide nothing"),
    (
        lambda given, n: torch.zeros(()).masked_fill(
            ~(parts(given, n)[0] & parts(given, n)[1]), -inf
        ),
        "with 0 and -inf, an additive mask. The function takes such masks, but a boolean one",
    ),
    (newest_of_the_words, "in sample 0, the query at place 3 finds the key at place 0"),
    (in_place, "it changes its argument attention_mask in place"),
    (lambda given: given, "TypeError"),
    (lambda given, n: None, "not yet, it returns None"),
]


@pytest.mark.parametrize(("answer", "reason"), WRONG_READY, ids=[r for _, r in WRONG_READY])
def test_make_ready_names_the_mistake(
    verdict: Any, answer: Callable[..., Any], reason: str
) -> None:
    said = verdict(check_make_ready, answer)
    assert said.startswith("✗ make_ready: ")
    assert reason in said


@pytest.mark.parametrize(("lengths", "m", "h", "n"), masks_in_the_wild._SIZES)
def test_no_wrong_mask_is_the_right_one(lengths: tuple[int, ...], m: int, h: int, n: int) -> None:
    """At the first sizes all differ; later ones may let two mistakes look alike."""
    words = torch.arange(m) >= m - torch.tensor(lengths)[:, None]
    right = by_places(words.long(), n).expand(len(lengths), h, n, m)
    masks = [wrong.expand_as(right) for _, wrong in masks_in_the_wild._wrong(words, n)]
    if n == 3:
        assert not any(wrong.equal(right) for wrong in masks)
        assert len({tuple(wrong.flatten().tolist()) for wrong in masks}) == len(masks)
