"""Exercises of "Split and stack": whose columns a wrong cut mixes, a silent head."""

from collections.abc import Callable

import torch
from torch import Tensor

from annotated_book.exercises._exercise import Either, Exercise, normal
from annotated_book.exercises._values import whole_numbers


def _which_heads(answer: object, found: Tensor, right: Tensor) -> str:
    """Say which end is wrong."""
    first, last = found.tolist()
    if first == 1:
        return f"the first is right. The last column is 15, and head {last} does not have it."
    return f"the first column is 8, and head {first} does not have it."


check_heads = Exercise(
    name="my_heads",
    right=(1, 2),
    praise=(
        "right. Columns 8 to 15 are the last four of head 1 and the first four of head 2, and from "
        "now on they share one set of weights."
    ),
    wrong={
        "those are the heads in the first of the three; the second begins at column 8.": (0, 1),
        "those are the heads in the third of the three, or you count from 1; the first head is "
        "head 0.": (2, 3),
        "those are columns. Which trained heads do they belong to? Each has 6 of them.": Either(
            [(8, 15), (8, 16), (9, 16)]
        ),
        "you count three heads of width 6. They are wider, since three share 24 columns.": (1, 1),
        "the first is right. A slice ends before its second number; here the last head itself is "
        "asked for.": (1, 3),
    },
    run=whole_numbers(2, "a pair, the first and the last head,"),
    why=_which_heads,
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
