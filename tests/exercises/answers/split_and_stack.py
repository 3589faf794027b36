"""Answers to the exercises of “Split and stack”."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Heads = list[tuple[Tensor, Tensor, Tensor]]


def in_pieces(w_o: Tensor, head: int, num_heads: int) -> Tensor:
    blocks = list(w_o.chunk(num_heads))
    blocks[head] = torch.zeros_like(blocks[head])
    return torch.cat(blocks)


def zeroing(where: Callable[[int, int, int], Any]) -> Callable[..., Tensor]:
    """Zero what ``where`` says of head, h and d."""

    def answer(w_o: Tensor, head: int, num_heads: int) -> Tensor:
        silent = w_o.clone()
        silent[where(head, num_heads, len(w_o) // num_heads)] = 0
        return silent

    return answer


def in_place(w_o: Tensor, head: int, num_heads: int) -> Tensor:
    w_o.chunk(num_heads)[head].zero_()
    return w_o


def removed(w_o: Tensor, head: int, num_heads: int) -> Tensor:
    blocks = list(w_o.chunk(num_heads))
    del blocks[head]
    return torch.cat(blocks)


def wide(heads: Heads, order: tuple[int, ...] = (0, 1, 2)) -> Tensor:
    return torch.cat([head[part] for part in order for head in heads], 1)


def row_blocks(heads: Heads) -> Tensor:
    return torch.cat([head[part].T for part in range(3) for head in heads])


def by_head(heads: Heads) -> Tensor:
    return torch.cat([w for head in heads for w in head], 1)


def interleaved(heads: Heads) -> Tensor:
    return torch.cat([torch.stack(part, 2).flatten(1) for part in zip(*heads, strict=True)], 1)


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_columns": [
        (torch.tensor([12, 18]), "✓ my_columns: right"),
        ((12, 17), "A slice ends before its second number, so this one leaves out column 17"),
        ((8, 12), "you take the number of heads (4) for the width of a head"),
        ((0, 24), "that slice has 24 columns; a head has 6 of them"),
        ((18, 24), "the width is right, but the third head does not begin at column 18"),
        ((12,), "it is 1 numbers; a pair, start and stop of a slice, is asked for"),
        ((12.0, 18.0), "it is (float, float); a pair"),
        ((12, None), "not yet, a number is missing"),
    ],
    "check_silence": [
        (in_pieces, "✓ silence: right"),
        (zeroing(lambda i, h, d: (slice(None), slice(i * d, (i + 1) * d))), "you zero columns"),
        (zeroing(lambda i, h, d: slice((i - 1) * d, i * d)), "you silence another head"),
        (zeroing(lambda i, h, d: slice(i, None, h)), "you zero every h-th row"),
        (zeroing(lambda i, h, d: slice(i * h, (i + 1) * h)), "num_heads for the height of a block"),
        (zeroing(lambda i, h, d: i * d), "you zero a single row"),
        (in_place, "changes its argument w_o in place"),
        (lambda w_o, head, h: w_o * 0, "no head contributes any more"),
        (lambda *x: x[0] - in_pieces(*x), "the other way round: you keep this head"),
        (removed, "the rows of the head are gone"),
        (lambda *x: in_pieces(*x) if x[1] else x[0], "head = 0, h = 4, d = 6, e = 24: every head"),
        (zeroing(lambda i, h, d: slice(i * 6, i * 6 + 6)), "not with head = 1, h = 3, d = 5"),
        (lambda *x: in_pieces(*x).detach(), "no gradient reaches w_o"),
    ],
    "check_pack": [
        (row_blocks, "✓ pack: right"),
        (wide, "✗ pack: you do not transpose"),
        (lambda heads: by_head(heads).T, "it goes head by head"),
        (by_head, "first the queries of all heads, then all keys, then all values. And you do not"),
        (lambda heads: wide(heads, (0, 2, 1)).T, "you pack queries, then values, then keys"),
        (lambda heads: row_blocks(heads[::-1]), "the heads are in reversed order"),
        (lambda heads: interleaved(heads).T, "the features of the heads are interleaved"),
        (lambda heads: torch.cat(wide(heads).chunk(3, 1)), "stand below each other without being"),
        (lambda heads: wide(heads).reshape(-1, len(heads[0][0])), "you reshape where a transpose"),
        (lambda heads: torch.cat([h[i] for i in range(3) for h in heads]), "share the columns"),
        (lambda heads: torch.cat([h[i].T for i in range(3) for h in heads], 1), "below each other"),
        (lambda heads: torch.cat(wide(heads).chunk(3, 1)).T, "you put W_Q, W_K and W_V below each"),
        (lambda heads: (row_blocks if len(heads) == 4 else wide)(heads), "not with h = 3, d = 5"),
        (lambda heads: nn.Parameter(row_blocks(heads)), "no gradient reaches heads[0][0], so it"),
        (lambda heads: [wide(heads)], "it returns a list of 1 things"),
    ],
}  # fmt: skip
