"""The checks of “Published code” accept what is right and name what is wrong."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from annotated_attention.exercises.published_code import (
    check_call_it,
    check_severity_of,
    check_widen,
)

CHAPTER = "15_published_code"


RIGHT = {
    "scores / math.sqrt(embed_size)": "computes something else",
    "torch.ModuleList([...])": "crashes",
    "self.attn = weights.detach()": "wastes",
    "class ScaledDotProductAttention, for h heads": "style",
    "(b, n, n) mask on (b, h, n, n) scores, b = h": "computes something else",
}


def test_severities_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_severity_of")
    assert before == '✗ severity_of: not yet, some lines still get "?". '
    assert after.startswith("✓ severity_of: right: two of the five keep every shape")


@pytest.mark.parametrize("line", RIGHT)
def test_each_severity_counts(verdict: Any, line: str) -> None:
    wrong = "wastes" if RIGHT[line] == "style" else "style"
    assert verdict(check_severity_of, RIGHT).startswith("✓")
    said = verdict(check_severity_of, RIGHT | {line: wrong})
    assert said.startswith(f"✗ severity_of: look again at {line!r}: ")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "keep the five lines"),
        ({}, "keep the five lines"),
        (RIGHT | {"another": "style"}, "keep the five lines"),
        (RIGHT | {"torch.ModuleList([...])": "bad"}, "choose one of: computes something else, "),
    ],
)
def test_severities_that_cannot_be_read(verdict: Any, answer: object, reason: str) -> None:
    assert reason in verdict(check_severity_of, answer)


def test_widen_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_widen")
    assert before == "✗ widen: not yet, it returns None. "
    assert after.startswith("✓ widen: right: 144 numbers, 9 of them free")


def by_slices(block: Tensor, num_heads: int) -> Tensor:
    d = len(block)
    wide = block.new_zeros(num_heads * d, num_heads * d)
    for i in range(0, num_heads * d, d):
        wide[i : i + d, i : i + d] = block
    return wide


@pytest.mark.parametrize(
    "answer",
    [by_slices, lambda block, h: torch.kron(torch.eye(h, dtype=block.dtype), block)],
)
def test_widen_accepts_other_ways(verdict: Any, answer: Callable[..., Tensor]) -> None:
    assert verdict(check_widen, answer).startswith("✓ widen")


def in_place(block: Tensor, num_heads: int) -> Tensor:
    wide = by_slices(block, num_heads)
    block.zero_()
    return wide


def interleaved(block: Tensor, num_heads: int) -> Tensor:
    wide = block.new_zeros(num_heads * len(block), num_heads * len(block))
    for i in range(num_heads):
        wide[i::num_heads, i::num_heads] = block
    return wide


WRONG_WIDEN: list[tuple[Callable[..., Any], str]] = [
    (lambda block, h: by_slices(block, h).T, "right but transposed"),
    (interleaved, "dealt out to the heads in turn"),
    (lambda block, h: block.tile(h, h), "every head sees every slice"),
    (lambda block, h: by_slices(block, h) * (torch.arange(len(block) * h) < len(block)),
     "only the first head has its block"),
    (lambda block, h: by_slices(block, h).flip(0).unflatten(0, (h, -1)).flip(1).flatten(0, 1),
     "the other diagonal"),
    (lambda block, h: torch.cat([block] * h), "stand below each other"),
    (lambda block, h: torch.cat([block] * h, -1), "stand side by side"),
    (in_place, "changes its argument block in place"),
    (lambda block, h: by_slices(block.detach(), h), "no gradient reaches block"),
    (lambda block, h: by_slices(block, h).float(), "torch.float32 comes out"),
    (lambda block, h: by_slices(block, 4), "but not with h = 2, d = 5: "),
    (lambda block, h: block, "shape (3, 3); what fits is (h * d, h * d), here (12, 12)"),
    (lambda block: block, "TypeError"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "reason"), WRONG_WIDEN, ids=[r for _, r in WRONG_WIDEN])
def test_widen_names_the_mistake(verdict: Any, answer: Callable[..., Any], reason: str) -> None:
    said = verdict(check_widen, answer)
    assert said.startswith("✗ widen: ")
    assert reason in said


def test_call_it_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_call_it")
    assert before == "✗ call_it: not yet, it returns None. "
    assert after.startswith("✓ call_it: right, with a mask and without")


def answer(
    spoil: Callable[[Tensor], Tensor | None] = lambda mask: mask,
    order: str = "qkv",
    back: bool = True,
) -> Callable[..., Any]:
    """Write an answer: what it does to the right mask, whom it passes for whom."""

    def call_it(module: Any, query: Tensor, key: Tensor, value: Tensor, blocked: Any) -> Tensor:
        given = {"q": query.mT.permute(2, 0, 1), "k": key.swapaxes(0, 1), "v": value.movedim(1, 0)}
        mask = None if blocked is None else spoil((1 - blocked.int()).permute(1, 2, 0))
        q, k, v = (given[letter] for letter in order)
        output = module(query=q, key=k, value=v, mask=mask)
        return output.swapaxes(0, 1) if back else output

    return call_it


def test_call_it_accepts_other_ways(verdict: Any) -> None:
    assert verdict(check_call_it, answer()).startswith("✓ call_it")


def by_position(module: Any, query: Tensor, key: Tensor, value: Tensor, blocked: Any) -> Tensor:
    return module(query, key, value, blocked)


def always_masked(module: Any, query: Tensor, key: Tensor, value: Tensor, blocked: Any) -> Tensor:
    q, k, v = (x.transpose(0, 1) for x in (query, key, value))
    return module(query=q, key=k, value=v, mask=~blocked.permute(1, 2, 0)).transpose(0, 1)


def in_place_mask(module: Any, query: Tensor, key: Tensor, value: Tensor, blocked: Any) -> Any:
    if blocked is not None:
        blocked.logical_not_()
    right = answer(lambda mask: 1 - mask)
    return right(module, query, key, value, blocked)


def without_graph(*given: Any) -> Tensor:
    with torch.no_grad():
        return answer()(*given)


WRONG_CALL: list[tuple[Callable[..., Any], str]] = [
    (answer(lambda mask: 1 - mask), "the mask is read the wrong way round"),
    (answer(lambda mask: None), "the mask is not passed on"),
    (answer(lambda mask: mask[:1]), "every query gets the mask of the first one"),
    (answer(lambda mask: mask[..., :1]), "every sample gets the mask of the first one"),
    (answer(order="qvk"), "key and value are in each other's place"),
    (answer(order="qkk"), "you pass key for value, too"),
    (answer(back=False), "the output is still sequence-first"),
    (answer(lambda mask: mask.permute(2, 0, 1)), "with a mask: your code raises ValueError: mask"),
    (by_position, "without a mask (blocked is None): your code raises TypeError"),
    (by_position, "It was given SequenceFirst, (2, 3, 24), (2, 5, 24), (2, 5, 24), None."),
    (always_masked, "without a mask (blocked is None): your code raises AttributeError"),
    (in_place_mask, "changes its argument blocked in place"),
    (without_graph, "no gradient reaches q"),
    (lambda *given: answer()(*given).float(), "torch.float32 comes out"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "reason"), WRONG_CALL, ids=[r for _, r in WRONG_CALL])
def test_call_it_names_the_mistake(verdict: Any, wrong: Callable[..., Any], reason: str) -> None:
    said = verdict(check_call_it, wrong)
    assert said.startswith("✗ call_it: ")
    assert reason in said
