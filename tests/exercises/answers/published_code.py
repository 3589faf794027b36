"""The checks of “Published code” accept what is right and name what is wrong."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from annotated_attention.exercises.published_code import check_call_it, check_widen


def by_slices(block: Tensor, num_heads: int) -> Tensor:
    d = len(block)
    wide = block.new_zeros(num_heads * d, num_heads * d)
    for i in range(0, num_heads * d, d):
        wide[i : i + d, i : i + d] = block
    return wide


def interleaved(block: Tensor, num_heads: int) -> Tensor:
    wide = block.new_zeros(num_heads * len(block), num_heads * len(block))
    for i in range(num_heads):
        wide[i::num_heads, i::num_heads] = block
    return wide


def called(
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


def always_masked(module: Any, query: Tensor, key: Tensor, value: Tensor, blocked: Any) -> Tensor:
    q, k, v = (x.transpose(0, 1) for x in (query, key, value))
    return module(query=q, key=k, value=v, mask=~blocked.permute(1, 2, 0)).transpose(0, 1)


# Answers, each with words of the verdict.
ANSWERS: list[tuple[Any, Any, str]] = [
    (check_widen, by_slices, "✓ "),
    (check_widen, lambda block, h: by_slices(block, h).T, "right but transposed"),
    (check_widen, interleaved, "dealt out to the heads in turn"),
    (check_widen, lambda block, h: block.tile(h, h), "every head sees every slice"),
    (check_widen, lambda block, h: torch.cat([block] * h, -1), "stand side by side"),
    (check_widen, lambda block, h: by_slices(block.detach(), h), "no gradient reaches block"),
    (check_widen, lambda block, h: by_slices(block, 4), "but not with h = 2, d = 5: "),
    (check_call_it, called(), "✓ "),
    (check_call_it, called(lambda mask: 1 - mask), "the mask is read the wrong way round"),
    (check_call_it, called(lambda mask: None), "the mask is not passed on"),
    (check_call_it, called(lambda mask: mask[:1]), "every query gets the mask of the first one"),
    (check_call_it, called(lambda mask: mask[..., :1]), "every sample gets the mask of the first"),
    (check_call_it, called(order="qvk"), "key and value are in each other's place"),
    (check_call_it, called(back=False), "the output is still sequence-first"),
    (check_call_it, lambda module, *x: module(*x), "was given SequenceFirst, (2, 3, 24), (2, 5, "),
    (check_call_it, always_masked, "with b = 2, n = 3, m = 5, h = 4, d = 6, masked = 0: your code"),
    (check_call_it, lambda *given: called()(*given).detach(), "no gradient reaches "),
]


@pytest.mark.parametrize(("check", "answer", "words"), ANSWERS)
def test_verdict(verdict: Any, check: Any, answer: Any, words: str) -> None:
    assert words in verdict(check, answer)
