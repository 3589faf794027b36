"""Answers to the exercises of “Split and stack”."""

from typing import Any

import torch
from torch import Tensor


def in_pieces(w_o: Tensor, head: int, num_heads: int) -> Tensor:
    blocks = list(w_o.chunk(num_heads))
    blocks[head] = torch.zeros_like(blocks[head])
    return torch.cat(blocks)


def in_place(w_o: Tensor, head: int, num_heads: int) -> Tensor:
    w_o.chunk(num_heads)[head].zero_()
    return w_o


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_heads": [
        (torch.tensor([1, 2]), "✓ my_heads: right"),
        ((2, 3), "or you count from 1"),
        ((1, 0), "The last column is 15, and head 0 does not have it"),
        ((3, 2), "the first column is 8, and head 3 does not have it"),
        ((1,), "it is 1 numbers; a pair, the first and the last head, is asked for"),
        ((1.0, 2.0), "it is (float, float); a pair"),
    ],
    "check_silence": [
        (in_pieces, "✓ silence: right"),
        (lambda w_o, *x: in_pieces(w_o.mT, *x).mT, "you zero columns"),
        (in_place, "changes its argument w_o in place"),
        (lambda *x: in_pieces(*x) if x[1] else x[0], "head = 0, h = 4, d = 6, e = 24: every head"),
        (lambda *x: in_pieces(*x) * (1 + (x[2] == 3)), "not with head = 1, h = 3, d = 5"),
        (lambda *x: in_pieces(*x).detach(), "no gradient reaches w_o"),
    ],
}
