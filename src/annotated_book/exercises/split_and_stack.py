"""Exercises of "Split and stack": whose columns, a silent head."""

from collections.abc import Callable

import torch
from torch import Tensor

from annotated_book.exercises._exercise import Either, Exercise, normal
from annotated_book.exercises._values import whole_numbers


def _which_columns(answer: object, found: Tensor, right: Tensor) -> str:
    """Say whether the width or the beginning is wrong."""
    start, stop = found.tolist()
    if stop - start != 6:
        return f"that slice has {stop - start} columns; a head has 6 of them."
    return f"the width is right, but the third head does not begin at column {start}."


check_columns = Exercise(
    name="my_columns",
    right=(12, 18),
    praise=(
        "right. The head with index i has the slice i * d : (i + 1) * d, here 12:18, so each head "
        "has 6 columns."
    ),
    wrong={
        "that slice is the second head; the third begins after it.": (6, 12),
        "that is the head with index 3, the fourth; the third has index 2.": (18, 24),
        "the first column is right. A slice ends before its second number, so this one leaves out "
        "column 17.": (12, 17),
        "you count the columns from 1; the first one is column 0.": Either([(13, 19), (13, 18)]),
        "you take the number of heads (4) for the width of a head. Each has 6 columns.": (8, 12),
        "that is one column. A head has 6 of them.": (2, 3),
    },
    run=whole_numbers(2, "a pair, start and stop of a slice,"),
    why=_which_columns,
)

Where = Callable[[int, int, int], int | slice]  # of the head, how many there are, their width


def _own(head: int, h: int, d: int) -> slice:
    return slice(head * d, (head + 1) * d)


def _silence(where: Where = _own) -> Callable[..., Tensor]:
    """Make a function that zeroes the rows of a head, or others."""

    def silence(w_o: Tensor, head: int, num_heads: int) -> Tensor:
        silent = w_o.clone()
        silent[where(head, num_heads, len(w_o) // num_heads)] = 0
        return silent

    return silence


def _columns(w_o: Tensor, head: int, num_heads: int) -> Tensor:
    silent = w_o.clone()
    silent[:, _own(head, num_heads, len(w_o) // num_heads)] = 0
    return silent


def _removed(w_o: Tensor, head: int, num_heads: int) -> Tensor:
    blocks = w_o.chunk(num_heads)
    return torch.cat([*blocks[:head], *blocks[head + 1 :]])


check_silence = Exercise(
    name="silence",
    right=_silence(),
    praise=(
        "right for every head, and so are the gradients. A head speaks through its own d rows of "
        "W_O and nowhere else."
    ),
    wrong={
        "every head still contributes: it is w_o as it was.": lambda w_o, head, num_heads: w_o,
        "no head contributes any more: only one is to be silent.": (
            lambda w_o, head, num_heads: torch.zeros_like(w_o)
        ),
        "you zero columns. A column of w_o is one feature of the output, to which all heads "
        "contribute; a head meets rows.": _columns,
        "the other way round: you keep this head and silence the others. Its own rows are to be "
        "zero.": lambda w_o, head, num_heads: w_o - _silence()(w_o, head, num_heads),
        "the rows of the head are gone, so the merged heads no longer fit. Leave them where they "
        "are, filled with zeros.": _removed,
        "it is right but transposed.": lambda *given: _silence()(*given).mT,
        "you silence another head. Counted from 0, head i has rows i * d to (i + 1) * d.": Either(
            [
                _silence(lambda head, h, d: _own((head - 1) % h, h, d)),
                _silence(lambda head, h, d: _own((head + 1) % h, h, d)),
                _silence(lambda head, h, d: _own(h - 1 - head, h, d)),
            ]
        ),
        "you zero every h-th row: these are features of all heads. The rows of a head are "
        "neighbours: head i has rows i * d to (i + 1) * d.": (
            _silence(lambda head, h, d: slice(head, None, h))
        ),
        "you zero a single row; a head has d of them.": Either(
            [_silence(lambda head, h, d: head), _silence(lambda head, h, d: head * d)]
        ),
        "you take num_heads for the height of a block. It is d, the rows of w_o divided by h.": (
            Either(
                [
                    _silence(lambda head, h, d: slice(head * h, head * h + h)),
                    _silence(lambda head, h, d: slice(head * h, head * h + d)),
                ]
            )
        ),
    },
    # Head 0 comes later: with it, many wrong answers look alike.
    sizes=[
        {"head": 1, "h": 4, "d": 6, "e": 24},
        {"head": 3, "h": 4, "d": 6, "e": 24},
        {"head": 0, "h": 4, "d": 6, "e": 24},
        {"head": 1, "h": 3, "d": 5, "e": 7},
    ],
    draw=lambda head, h, d, e: {**normal(w_o=(h * d, e)), "head": head, "num_heads": h},
    shape="(h * d, e)",
)
