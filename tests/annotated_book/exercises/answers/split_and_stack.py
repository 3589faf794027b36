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
    "check_columns": [
        (torch.tensor([12, 18]), "✓ my_columns: right"),
        ((12, 17), "A slice ends before its second number, so this one leaves out column 17"),
        ((12,), "it is 1 numbers; a pair, start and stop of a slice, is asked for"),
        ((12.0, 18.0), "it is (float, float); a pair"),
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
