"""Answers to the exercises of “Split and stack”, written apart from the table."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from annotated_attention import scaled_dot_product_attention
from annotated_attention.exercises.split_and_stack import check_columns, check_pack, check_silence

Heads = list[tuple[Tensor, Tensor, Tensor]]
OWNER = torch.arange(24).view(4, 6)[2]

COLUMNS: list[tuple[Any, str]] = [
    (torch.stack([OWNER[0], OWNER[-1] + 1]), "✓ my_columns: right"),
    ([12, 18], "✓ my_columns: right"),
    ((6, 12), "that slice is the second head; the third begins after it"),
    ((12, 17), "A slice ends before its second number, so this one leaves out column 17"),
    ((13, 19), "you count the columns from 1"),
    ((8, 12), "you take the number of heads (4) for the width of a head"),
    ((2, 3), "that is one column. A head has 6 of them"),
    ((0, 24), "that slice has 24 columns; a head has 6 of them"),
    ((18, 24), "the width is right, but the third head does not begin at column 18"),
    ((12,), "it is 1 numbers; a pair, start and stop of a slice, is asked for"),
    ((12.0, 18.0), "it is (float, float); a pair"),
    ((12, None), "not yet, a number is missing"),
]


def in_pieces(w_o: Tensor, head: int, num_heads: int) -> Tensor:
    blocks = list(w_o.chunk(num_heads))
    blocks[head] = torch.zeros_like(blocks[head])
    return torch.cat(blocks)


def masked(w_o: Tensor, head: int, num_heads: int) -> Tensor:
    owner = torch.arange(len(w_o)) // (len(w_o) // num_heads)
    return w_o.masked_fill((owner == head)[:, None], 0)


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


SILENCE: list[tuple[Any, str]] = [
    (in_pieces, "✓ silence: right"),
    (masked, "✓ silence: right"),
    (zeroing(lambda i, h, d: (slice(None), slice(i * d, (i + 1) * d))), "you zero columns"),
    (zeroing(lambda i, h, d: slice((i - 1) * d, i * d)), "you silence another head"),
    (zeroing(lambda i, h, d: slice((h - 1 - i) * d, (h - i) * d)), "you silence another head"),
    (zeroing(lambda i, h, d: slice(i, None, h)), "you zero every h-th row"),
    (zeroing(lambda i, h, d: slice(i * h, (i + 1) * h)), "num_heads for the height of a block"),
    (zeroing(lambda i, h, d: i * d), "you zero a single row"),
    (in_place, "changes its argument w_o in place"),
    (lambda w_o, head, h: w_o.clone(), "every head still contributes"),
    (lambda w_o, head, h: w_o * 0, "no head contributes any more"),
    (lambda *x: x[0] - in_pieces(*x), "the other way round: you keep this head"),
    (removed, "the rows of the head are gone"),
    (lambda *x: in_pieces(*x).T, "it is right but transposed"),
    (lambda *x: in_pieces(*x) if x[1] else x[0], "not with head = 0, h = 4, d = 6, e = 24: every"),
    (zeroing(lambda i, h, d: slice(i * 6, (i + 1) * 6)), "not with head = 1, h = 3, d = 5, e = 7"),
    (lambda *x: in_pieces(*x).detach(), "no gradient reaches w_o"),
    (lambda *x: in_pieces(*x).float(), "torch.float64 goes in and torch.float32 comes out"),
]


def wide(heads: Heads, order: tuple[int, ...] = (0, 1, 2)) -> Tensor:
    return torch.cat([head[part] for part in order for head in heads], 1)


def row_blocks(heads: Heads) -> Tensor:
    return torch.cat([head[part].T for part in range(3) for head in heads])


def below(heads: Heads) -> Tensor:
    return torch.cat([torch.cat(part, dim=0) for part in zip(*heads, strict=True)], dim=1)


def popping(heads: Heads) -> Tensor:
    packed = row_blocks(heads)
    heads.pop()
    return packed


PACK: list[tuple[Any, str]] = [
    (row_blocks, "✓ pack: right"),
    (wide, "✗ pack: you do not transpose"),
    (lambda heads: torch.cat([w for head in heads for w in head], 1).T, "it goes head by head"),
    (lambda heads: torch.cat([w for head in heads for w in head], 1),
     "first the queries of all heads, then all keys, then all values. And you do not transpose"),
    (lambda heads: wide(heads, (0, 2, 1)).T, "you pack queries, then values, then keys"),
    (lambda heads: row_blocks(heads[::-1]), "the heads are in reversed order"),
    (lambda heads: torch.cat([torch.stack(x, 2).flatten(1) for x in zip(*heads, strict=True)], 1).T,
     "the features of the heads are interleaved"),
    (lambda heads: torch.cat(wide(heads).chunk(3, 1)), "stand below each other without being"),
    (lambda heads: wide(heads).reshape(-1, len(heads[0][0])), "you reshape where a transpose"),
    (lambda heads: torch.cat([h[part] for part in range(3) for h in heads]), "share the columns"),
    (lambda heads: below(heads).T, "heads share the columns of a wide matrix"),
    (lambda heads: torch.cat([h[part].T for part in range(3) for h in heads], 1),
     "once transposed, (d, e) matrices go below each other"),
    (lambda heads: torch.cat(wide(heads).chunk(3, 1)).T, "you put W_Q, W_K and W_V below each"),
    (lambda heads: (row_blocks if len(heads) == 4 else wide)(heads), "not with h = 3, d = 5"),
    (lambda heads: wide(heads[:1]).T, "shape (18, 24); what fits is (3 * e, e), here (72, 24)"),
    (lambda heads: nn.Parameter(row_blocks(heads)), "no gradient reaches heads[0][0], so it"),
    (lambda heads: row_blocks([(q, k.detach(), v) for q, k, v in heads]), "reaches heads[0][1]"),
    (popping, "changes its argument heads in place"),
    (lambda heads: [wide(heads)], "it returns a list of 1 things"),
]  # fmt: skip

ANSWERS = [
    (check, answer, words)
    for check, pairs in ((check_columns, COLUMNS), (check_silence, SILENCE), (check_pack, PACK))
    for answer, words in pairs
]


@pytest.mark.parametrize(("check", "answer", "words"), ANSWERS, ids=[x for *_, x in ANSWERS])
def test_verdict(verdict: Any, check: Any, answer: Any, words: str) -> None:
    assert words in verdict(check, answer)


def test_pytorch_computes_from_the_packed_matrix_what_the_heads_do() -> None:
    x, h, e = torch.randn(3, 24), 4, 24
    heads = [tuple(torch.randn(3, e, 6).unbind()) for _ in range(h)]
    weights = {"in_proj_weight": check_pack.right(heads), "out_proj.weight": torch.eye(e)}
    output, _ = functional_call(nn.MultiheadAttention(e, h, bias=False), weights, (x, x, x))
    apart = [scaled_dot_product_attention(x @ q, x @ k, x @ v)[0] for q, k, v in heads]
    torch.testing.assert_close(output, torch.cat(apart, -1))
