"""Answers to the exercises of “Published code”."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


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


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_widen": [
        (by_slices, "✓ "),
        (lambda block, h: by_slices(block, h).T, "right but transposed"),
        (interleaved, "dealt out to the heads in turn"),
        (lambda block, h: block.tile(h, h), "every head sees every slice"),
        (lambda block, h: torch.cat([block] * h, -1), "stand side by side"),
        (lambda block, h: by_slices(block.detach(), h), "no gradient reaches block"),
        (lambda block, h: by_slices(block, 4), "but not with h = 2, d = 5: "),
        (lambda block, h: by_slices(block, h) * (torch.arange(h * len(block)) < len(block)),
         "only the first head has its block"),
    ],
    "check_call_it": [
        (called(), "✓ "),
        (called(lambda mask: 1 - mask), "the mask is read the wrong way round"),
        (called(lambda mask: None), "the mask is not passed on"),
        (called(lambda mask: mask[:1]), "every query gets the mask of the first one"),
        (called(lambda mask: mask[..., :1]), "every sample gets the mask of the first"),
        (called(order="qvk"), "key and value are in each other's place"),
        (called(back=False), "the output is still sequence-first"),
        (lambda module, *x: module(*x), "was given SequenceFirst, (2, 3, 24), (2, 5, "),
        (always_masked, "with b = 2, n = 3, m = 5, h = 4, d = 6, masked = 0: your code"),
        (lambda *given: called()(*given).detach(), "no gradient reaches "),
    ],
}  # fmt: skip
