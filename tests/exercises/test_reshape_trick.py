"""The checks of “The reshape trick” accept what is right and name what is wrong."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from annotated_attention import split_heads
from annotated_attention.exercises.reshape_trick import (
    check_mixed_tokens,
    check_place,
    check_repaired,
)
from annotated_attention.mistakes.reshapes import merge_without_transpose

CHAPTER = "04_reshape_trick"


def test_place_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_place")
    assert before == "✗ my_place: not yet, a number is missing. "
    assert after.startswith(
        "✓ my_place: right. Token 2 stays token 2, and its feature 1 is the last of the 2 features "
        "of the first head."
    )


def test_place_is_where_the_split_puts_the_number(verdict: Any) -> None:
    x = torch.arange(3 * 4).view(3, 4)
    place = (split_heads(x, 2) == x[2, 1]).nonzero()[0]
    assert verdict(check_place, place).startswith("✓ my_place")
    straight = (x.reshape(2, 3, 2) == x[2, 1]).nonzero()[0]
    assert "that is where a straight reshape puts it" in verdict(check_place, straight)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((2, 0, 1), "you give (token, head, feature)"),
        ((0, 1, 2), "you give (head, feature, token)"),
        ((1, 2, 0), "you deal the features out to the heads in turn"),
        ((1, 2, 1), "you count the heads from 1"),
        ((1, 3, 2), "you count everything from 1"),
        ((0, 0, 1), "the number in the middle is the token"),
        ((0, 2, 0), "the token is right. Which head does the feature belong to"),
        ((0, 2), "it is 2 numbers; an index of three is asked for"),
        ((0, 2, 0.5), "it is (int, int, float); an index of three is made of whole numbers"),
        ("0, 2, 1", "an object of type str; an index of three is asked for"),
        (None, "not yet, it is None"),
    ],
)
def test_place_names_the_mistake(verdict: Any, answer: object, reason: str) -> None:
    said = verdict(check_place, answer)
    assert said.startswith("✗ my_place: ")
    assert reason in said


def test_mixed_tokens_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_mixed_tokens")
    assert before == "✗ mixed_tokens: not yet, it returns None. "
    assert after.startswith("✓ mixed_tokens: right for every row. The pieces are dealt out head by")


def looked_up(row: int, shape: tuple[int, int, int]) -> Any:
    h, n, d = shape
    owners = torch.arange(n)[:, None].expand(h, n, d)
    return merge_without_transpose(owners)[row, ::d]


@pytest.mark.parametrize(
    "answer",
    [
        looked_up,
        lambda row, shape: looked_up(row, shape).tolist(),
        lambda row, shape: tuple(i % shape[1] for i in range(row * shape[0], (row + 1) * shape[0])),
    ],
)
def test_mixed_tokens_accepts_other_ways(verdict: Any, answer: Callable[..., Any]) -> None:
    assert verdict(check_mixed_tokens, answer).startswith("✓ mixed_tokens")


def pieces(of: Callable[[int, int, int, int, int], int]) -> Callable[..., list[int]]:
    """Answer with what ``of`` says of row, piece, h, n and d."""
    return lambda row, shape: [of(row, piece, *shape) for piece in range(shape[0])]


WRONG_TOKENS: list[tuple[Callable[..., Any], str]] = [
    (pieces(lambda r, p, h, n, d: r), "that is the right merge: each row has one token alone"),
    (pieces(lambda r, p, h, n, d: (r * h + p) % n + 1), "you count the tokens from 1"),
    (pieces(lambda r, p, h, n, d: r * h + p), "A head has only n of them, here 8; then the next"),
    (pieces(lambda r, p, h, n, d: (r * h + p) // n), "these are the heads of the pieces, not"),
    (pieces(lambda r, p, h, n, d: (r * h + p) * d % n), "you count numbers in place of pieces"),
    (pieces(lambda r, p, h, n, d: (r * d + p) % n), "you begin the next row after d pieces"),
    (pieces(lambda r, p, h, n, d: (r + p) % n), "you begin each row one piece after the row"),
    (lambda r, s: looked_up(r, s).flip(0), "the right tokens, in another order than from left"),
    (lambda r, s: sorted(looked_up(r, s).tolist()),
     "right at first, but not with h = 4, n = 6, d = 5: these are the right tokens, in another"),
    (pieces(lambda r, p, h, n, d: (r * 2 + p) % n),
     "right at first, but not with h = 4, n = 6, d = 5: row 1 is made of tokens [4, 5, 0, 1], "
     "counted from 0; you say [2, 3, 4, 5]"),
    (pieces(lambda r, p, h, n, d: (r * h + p) / n), "it returns (float, float); a list of h, here"),
    (lambda r, s: set(looked_up(r, s).tolist()), "an object of type set; a list of h, here 2, is"),
    (lambda r, s: list(range(s[0] * s[2])), "it returns 6 numbers; a list of h, here 2, is asked"),
    (lambda r, s: ..., "not yet, it returns ..."),
    (lambda r, s: s[3], "IndexError: tuple index out of range"),
    (lambda r: [r, r], "It was given 0, (2, 8, 3)."),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "reason"), WRONG_TOKENS, ids=[r for _, r in WRONG_TOKENS])
def test_mixed_tokens_names_the_mistake(
    verdict: Any, answer: Callable[..., Any], reason: str
) -> None:
    said = verdict(check_mixed_tokens, answer)
    assert said.startswith("✗ mixed_tokens: ")
    assert reason in said


def test_repaired_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_repaired")
    assert before == (
        "✗ repaired: it mixes tokens: heads[0, 1] holds features of token 0. Row 1 of every head "
        "belongs to token 1, all counted from 0. "
    )
    assert after.startswith("✓ repaired: right, and so are the gradients")


def by_stacking(x: Tensor, num_heads: int) -> Tensor:
    return torch.stack(x.split(x.size(1) // num_heads, dim=1))


def transposed_first(x: Tensor, num_heads: int) -> Tensor:
    return x.T.reshape(num_heads, -1, len(x)).mT


def by_einsum(x: Tensor, num_heads: int) -> Tensor:
    return torch.einsum("nhd->hnd", x.unflatten(1, (num_heads, -1)))


@pytest.mark.parametrize("answer", [by_stacking, transposed_first, by_einsum, split_heads])
def test_repaired_accepts_other_ways(verdict: Any, answer: Callable[..., Tensor]) -> None:
    assert verdict(check_repaired, answer).startswith("✓ repaired")


def in_place(x: Tensor, num_heads: int) -> Tensor:
    heads = by_stacking(x, num_heads)
    x.zero_()
    return heads


WRONG_REPAIRED: list[tuple[Callable[..., Any], str]] = [
    (lambda x, h: x.reshape(h, len(x), -1), "heads[0, 1] holds features of token 0. Row 1"),
    (lambda x, h: x.view(len(x), h, -1).reshape(h, len(x), -1), "it mixes tokens: heads[0, 1]"),
    (lambda x, h: x.view(len(x), -1, h).permute(2, 0, 1), "belong to the first head, so cut them"),
    (lambda x, h: x.view(len(x), h, -1), "cut correctly, but the tokens still come first"),
    (lambda x, h: x.view(h, -1, len(x)).mT, "heads[0, 1] holds features of token 0"),
    (lambda x, h: x.view(h, -1, len(x)).mT.flip(0), "heads[0, 0] holds features of token 2"),
    (lambda x, h: x.T.reshape(h, len(x), -1), "heads[0, 0] holds features of tokens 0, 1 and 2"),
    (lambda x, h: x.T.reshape(h, -1, len(x)), "each head is right but transposed: (h, d, n)"),
    (lambda x, h: by_stacking(x, h).flip(0), "heads[0] has its features [18, 19, 20, 21, 22, 23]; "
     "right is 0 to 5"),
    (lambda x, h: by_stacking(x, h).flip(1), "heads[0, 0] holds features of token 2"),
    (lambda x, h: by_stacking(x, 4) if h == 4 else x.reshape(h, len(x), -1),
     "right at first, but not with h = 3, n = 5, d = 2: it mixes tokens"),
    (lambda x, h: x.chunk(h, 1), "it returns a tuple of 4 things"),
    (lambda x, h: x.view(len(x), -1, h), "shape (3, 6, 4); what fits is (h, n, d), here (4, 3, 6)"),
    (lambda x, h: by_stacking(x, h) * 2, "the shape is right, but 72 of its 72 numbers are not"),
    (lambda x, h: x.view(h, -1, h), "RuntimeError: shape '[4, -1, 4]' is invalid"),
    (in_place, "changes its argument x in place"),
    (lambda x, h: by_stacking(x, h).detach(), "no gradient reaches x"),
    (lambda x, h: by_stacking(2 * x - x.detach(), h), "the gradient of x is not"),
    (lambda x, h: by_stacking(x, h).float(), "torch.float64 goes in and torch.float32 comes out"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "reason"), WRONG_REPAIRED, ids=[r for _, r in WRONG_REPAIRED])
def test_repaired_names_the_mistake(verdict: Any, answer: Callable[..., Any], reason: str) -> None:
    said = verdict(check_repaired, answer)
    assert said.startswith("✗ repaired: ")
    assert reason in said
