"""Exercises of "Published code": severities, a projection made wide, a design called your way."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from annotated_attention.exercises._verdict import (
    Refused,
    at_sizes,
    call,
    check,
    compare,
    compare_gradients,
    random,
    require_function,
    require_unchanged,
)
from annotated_attention.published.sequence_first import DESIGN, SequenceFirst

_SEVERITIES = ("computes something else", "crashes", "wastes", "style")
_LINES = {
    "scores / math.sqrt(embed_size)": (
        "computes something else",
        "it runs, and every score is smaller than in the formula, by √h",
    ),
    "torch.ModuleList([...])": ("crashes", "torch has no ModuleList: torch.nn has"),
    "self.attn = weights.detach()": (
        "wastes",
        "the output is right, and a tensor of n * m numbers per head stays alive between calls",
    ),
    "class ScaledDotProductAttention, for h heads": (
        "style",
        "the numbers are right, and only the name misleads",
    ),
    "(b, n, n) mask on (b, h, n, n) scores, b = h": (
        "computes something else",
        "the shapes broadcast, and head i of every sample gets the mask of sample i",
    ),
}
_BLOCK_SIZES = ((4, 3), (2, 5))  # h, d
_CALL_SIZES = ((2, 3, 5, 4, 6), (4, 5, 2, 3, 2))  # b, n, m, h, d


@check("severity_of")
def check_severity_of(answer: object) -> str:
    """Judge the severity that each of five lines gets, and print the verdict.

    Args:
        answer: for each line, as the chapter writes it, one of the four severities.
    """
    if not isinstance(answer, Mapping) or set(answer) != set(_LINES):
        raise Refused("keep the five lines as they are, and replace each question mark.")
    if "?" in answer.values():
        raise Refused('not yet, some lines still get "?".')
    for line, (right, reason) in _LINES.items():
        if answer[line] not in _SEVERITIES:
            raise Refused(
                f"{line!r} gets {answer[line]!r}; choose one of: {', '.join(_SEVERITIES)}."
            )
        if answer[line] != right:
            raise Refused(f"look again at {line!r}: {reason}.")
    return (
        "right: two of the five keep every shape and change the numbers. Those are the grave ones."
    )


@check("widen")
def check_widen(answer: Callable[..., Any]) -> str:
    """Judge ``widen(block, num_heads)``, and print the verdict.

    Args:
        answer: the reader's function of a block (d, d) and h, which is to return the (h * d, h * d)
            weight of a linear layer that gives every head its own slice, projected by the block.
    """
    require_function(answer)
    for seed, (h, d) in enumerate(_BLOCK_SIZES):
        with at_sizes(not seed, h=h, d=d):
            (block,) = random(seed, (d, d))
            given = block.clone()
            output = call("your code", answer, given, h)
            require_unchanged("block", given, block)
            right = torch.block_diag(*[block] * h)
            compare(output, right, "(h * d, h * d)", _wrong_wide(block, h))
            leaf = block.clone().requires_grad_()
            output = call("your code", answer, leaf, h)
            compare_gradients(output, torch.block_diag(*[leaf] * h), {"block": leaf})
    h, d = _BLOCK_SIZES[0]
    return (
        f"right: {h * d * h * d} numbers, {d * d} of them free, the others zeros or copies. Each "
        f"of the {h} copies sends its gradient back to the one block."
    )


def _wrong_wide(block: Tensor, h: int) -> Iterator[tuple[str, Tensor]]:
    """Yield reasons, each with the matrix that it leads to."""
    d = len(block)
    eye, ones = torch.eye(h, dtype=block.dtype), torch.ones(h, h, dtype=block.dtype)
    right = torch.kron(eye, block)
    yield "it is right but transposed: a linear layer's weight is (out, in), as block is.", right.mT
    yield (
        "the features are dealt out to the heads in turn. The d features of a head are neighbours, "
        "so each block stands in one piece: the Kronecker product the other way round.",
        torch.kron(block, eye),
    )
    yield (
        "every head sees every slice: the block stands everywhere. Off the diagonal there are "
        "zeros.",
        torch.kron(ones, block),
    )
    yield (
        "only the first head has its block. All h of them use it.",
        pad(block, (0, (h - 1) * d, 0, (h - 1) * d)),
    )
    yield (
        "the blocks stand on the other diagonal: each head gets another head's slice.",
        torch.kron(eye.flip(0), block),
    )
    yield "the blocks stand below each other; side by side stands a zero.", block.repeat(h, 1)
    yield "the blocks stand side by side; below each other stands a zero.", block.repeat(1, h)


@check("call_it")
def check_call_it(answer: Callable[..., Any]) -> str:
    """Judge ``call_it(module, query, key, value, blocked)``, and print the verdict.

    Args:
        answer: the reader's function of a ``SequenceFirst``, batch-first tensors and ``blocked``,
            (b, n, m) with True = blocked, or None, which is to return (b, n, e).
    """
    require_function(answer)
    for seed, (b, n, m, h, d) in enumerate(_CALL_SIZES):
        with at_sizes(not seed, b=b, n=n, m=m, h=h, d=d):
            module = SequenceFirst(h, h * d, dropout=0.0).double()
            inputs = random(seed, (b, n, h * d), (b, m, h * d), (b, m, h * d))
            (chance,) = random(seed + 9, (b, n, m))
            blocked = chance > 0.5
            blocked[..., 0] = False
            _judge_call(answer, module, inputs, None)
            _judge_call(answer, module, inputs, blocked)
    return "right, with a mask and without, and so are the gradients."


def _judge_call(
    answer: Callable[..., Any], module: SequenceFirst, inputs: list[Tensor], blocked: Tensor | None
) -> None:
    """Judge the function on one set of inputs."""
    leaves = [x.clone().requires_grad_() for x in inputs]
    query, key, value = leaves
    right = DESIGN.call(module, query, key, value, blocked)
    given = None if blocked is None else blocked.clone()
    try:
        output = call("your code", answer, module, *leaves, given)
    except Refused as reason:
        which = "without a mask (blocked is None)" if blocked is None else "with a mask"
        raise Refused(f"{which}: {reason}") from None
    if blocked is not None:
        require_unchanged("blocked", given, blocked)
    wrong = _wrong_calls(module, leaves, blocked)
    compare_gradients(
        compare(output, right, "(b, n, e)", wrong), right, dict(zip("qkv", leaves, strict=True))
    )


def _wrong_calls(
    module: SequenceFirst, inputs: list[Tensor], blocked: Tensor | None
) -> Iterator[tuple[str, Tensor]]:
    """Yield reasons, each with the output that it leads to."""
    query, key, value = (x.detach() for x in inputs)

    def attend(*given: Any) -> Tensor:
        return DESIGN.call(module, *given).detach()

    yield (
        "the output is still sequence-first, (n, b, e): bring it back.",
        attend(query, key, value, blocked).transpose(0, 1),
    )
    yield "key and value are in each other's place.", attend(query, value, key, blocked)
    yield (
        "you pass key for value, too: the values are another tensor.",
        attend(query, key, key, blocked),
    )
    if blocked is None:
        return
    yield (
        "the mask is read the wrong way round: True means allowed to the module, and blocked to "
        "you. Turn it round.",
        attend(query, key, value, ~blocked),
    )
    yield "the mask is not passed on: every query sees everything.", attend(query, key, value, None)
    yield (
        "every query gets the mask of the first one: (1, m, b) is for padding, here each query has "
        "its own.",
        attend(query, key, value, blocked[:, :1]),
    )
    yield (
        "every sample gets the mask of the first one.",
        attend(query, key, value, blocked[:1].expand_as(blocked)),
    )
