"""Exercises of "Published code": a projection made wide, a design called your way."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from annotated_attention.exercises._exercise import Exercise, normal
from annotated_attention.published.sequence_first import DESIGN, SequenceFirst


def _tiled(block: Tensor, pattern: Tensor) -> Tensor:
    """Put the block wherever the pattern has a one."""
    return torch.kron(pattern.to(block), block)


check_widen = Exercise(
    name="widen",
    right=lambda block, h: torch.block_diag(*[block] * h),
    praise="right: 144 numbers, 9 of them free, the others zeros or copies. Each of the 4 copies "
    "sends its gradient back to the one block.",
    wrong={
        "it is right but transposed: a linear layer's weight is (out, in), as block is.":
            lambda block, h: _tiled(block, torch.eye(h)).mT,
        "the features are dealt out to the heads in turn. The d features of a head are neighbours, "
        "so each block stands in one piece: the Kronecker product the other way round.":
            lambda block, h: torch.kron(block, torch.eye(h).to(block)),
        "every head sees every slice: the block stands everywhere. Off the diagonal there are "
        "zeros.": lambda block, h: _tiled(block, torch.ones(h, h)),
        "only the first head has its block. All h of them use it.":
            lambda block, h: pad(block, 2 * (0, (h - 1) * len(block))),
        "the blocks stand on the other diagonal: each head gets another head's slice.":
            lambda block, h: _tiled(block, torch.eye(h).flip(0)),
        "the blocks stand below each other; side by side stands a zero.":
            lambda block, h: block.repeat(h, 1),
        "the blocks stand side by side; below each other stands a zero.":
            lambda block, h: block.repeat(1, h),
    },
    sizes=[{"h": 4, "d": 3}, {"h": 2, "d": 5}],
    draw=lambda h, d: {**normal(block=(d, d)), "num_heads": h},
    shape="(h * d, h * d)",
)  # fmt: skip


def _draw(b: int, n: int, m: int, h: int, d: int, masked: int) -> dict[str, Any]:
    e = h * d
    blocked = torch.rand(b, n, m) > 0.5
    blocked[..., 0] = False
    return {
        "module": SequenceFirst(h, e, dropout=0.0).double(),
        **normal(query=(b, n, e), key=(b, m, e), value=(b, m, e)),
        "blocked": blocked if masked else None,
    }


def _with_mask(spoil: Callable[[Tensor], Tensor | None]) -> Callable[..., Any]:
    """Give the answer that passes on another mask, if there is one."""
    return lambda module, q, k, v, blocked: DESIGN.call(
        module, q, k, v, None if blocked is None else spoil(blocked)
    )


check_call_it = Exercise(
    name="call_it",
    right=DESIGN.call,
    praise="right, with a mask and without, and so are the gradients.",
    wrong={
        "the output is still sequence-first, (n, b, e): bring it back.":
            lambda *given: DESIGN.call(*given).transpose(0, 1),
        "key and value are in each other's place.":
            lambda module, q, k, v, blocked: DESIGN.call(module, q, v, k, blocked),
        "you pass key for value, too: the values are another tensor.":
            lambda module, q, k, v, blocked: DESIGN.call(module, q, k, k, blocked),
        "the mask is read the wrong way round: True means allowed to the module, and blocked to "
        "you. Turn it round.": _with_mask(lambda blocked: ~blocked),
        "the mask is not passed on: every query sees everything.": _with_mask(lambda blocked: None),
        "every query gets the mask of the first one: (1, m, b) is for padding, here each query has "
        "its own.": _with_mask(lambda blocked: blocked[:, :1]),
        "every sample gets the mask of the first one.":
            _with_mask(lambda blocked: blocked[:1].expand_as(blocked)),
    },
    sizes=[
        {"b": 2, "n": 3, "m": 5, "h": 4, "d": 6, "masked": 1},
        {"b": 2, "n": 3, "m": 5, "h": 4, "d": 6, "masked": 0},
        {"b": 4, "n": 5, "m": 2, "h": 3, "d": 2, "masked": 1},
    ],
    draw=_draw,
    shape="(b, n, e)",
)  # fmt: skip
