"""Exercise of "Published code": a projection made wide."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from annotated_book.exercises._exercise import Exercise, normal


def _tiled(block: Tensor, pattern: Tensor) -> Tensor:
    """Put the block wherever the pattern has a one."""
    return torch.kron(pattern.to(block), block)


check_widen = Exercise(
    name="widen",
    right=lambda block, h: torch.block_diag(*[block] * h),
    praise="right: 144 numbers, 9 of them free, the others zeros or copies. Each of the 4 copies "
    "sends its gradient back to the one block.",
    wrong={
        "it is right but transposed: a linear layer's "
        "weight is (out, in), as block is.": lambda block, h: _tiled(block, torch.eye(h)).mT,
        "the features are dealt out to the heads in turn. The d features of a head are neighbours, "
        "so each block stands in one piece: the "
        "Kronecker product the other way round.": lambda block, h: torch.kron(
            block, torch.eye(h).to(block)
        ),
        "every head sees every slice: the block stands everywhere. Off the diagonal there are "
        "zeros.": lambda block, h: _tiled(block, torch.ones(h, h)),
        "only the first head has its block. All h of them use it.": lambda block, h: pad(
            block, 2 * (0, (h - 1) * len(block))
        ),
        "the blocks stand side by side; below each other stands a zero.": lambda block, h: (
            block.repeat(1, h)
        ),
    },
    sizes=[{"h": 4, "d": 3}, {"h": 2, "d": 5}],
    draw=lambda h, d: {**normal(block=(d, d)), "num_heads": h},
    shape="(h * d, h * d)",
)
