"""Exercises of "The Transformer": four hands, the parameters of the base model, and the shift."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from annotated_attention.exercises._verdict import (
    Refused,
    at_sizes,
    call,
    check,
    compare,
    finite_numbers,
    require_function,
)
from annotated_attention.positions import sinusoidal_code
from annotated_attention.seq2seq import Seq2SeqTransformer

# e, h, wide, layers, words. First the base model of 2017, then sizes that hide nothing.
_BASE = (512, 8, 2048, 6, 37000)
_SIZES = (_BASE, (24, 4, 50, 3, 101), (10, 2, 7, 1, 13))

# What somebody may have computed instead of how far four clocks have turned at position 20.
_ANGLES = (20.0, 2.0, 0.2, 0.02)
_WRONG_ANGLES = (
    ("that is position 0, where no clock has turned.", (0.0, 0.0, 0.0, 0.0)),
    ("that is how far each clock turns per position; here it has turned 20 times that.",
     (1.0, 0.1, 0.01, 0.001)),
    ("the clocks get slower, not faster: divide by 10, do not multiply.",
     (20.0, 200.0, 2000.0, 20000.0)),
    ("these are sines; the angles themselves are asked for.",
     tuple(math.sin(angle) for angle in _ANGLES)),
    ("these are cosines; the angles themselves are asked for.",
     tuple(math.cos(angle) for angle in _ANGLES)),
    ("all clocks turn equally fast; each is to turn ten times more slowly than the one before.",
     (20.0, 20.0, 20.0, 20.0)),
    ("these are degrees; radians are asked for, and no factor is needed.",
     tuple(math.degrees(angle) for angle in _ANGLES)),
    ("you left out full turns; how far each clock has turned in all is asked for.",
     (20.0 % (2 * math.pi), 2.0, 0.2, 0.02)),
)  # fmt: skip


@check("angles")
def check_angles(answer: object) -> str:
    """Judge by which angles four clocks have turned at position 20, and print the verdict.

    Args:
        answer: the four angles, in radians.
    """
    found = finite_numbers(answer, 4)
    for reason, wrong in _WRONG_ANGLES:
        if torch.allclose(found, torch.tensor(wrong, dtype=torch.float64), rtol=0.02, atol=1e-4):
            raise Refused(reason)
    for i, (angle, right) in enumerate(zip(found.tolist(), _ANGLES, strict=True)):
        if not math.isclose(angle, right, rel_tol=0.02):
            raise Refused(f"clock {i + 1} has not turned by {angle:g}. Divide 20 by {10**i}.")
    return "right: the first clock has gone round three times, the last has hardly moved."


@check("count_parameters")
def check_count_parameters(answer: Callable[..., Any]) -> str:
    """Judge ``count_parameters(e, wide, layers, words)``, and print the verdict.

    Args:
        answer: the reader's function, which is to return the number of parameters.
    """
    require_function(answer)
    found = [_count(answer, e, wide, layers, words) for e, _, wide, layers, words in _SIZES]
    right = [_count_class(*sizes) for sizes in _SIZES]
    if found != right:
        raise Refused(_why_not(found, right))
    return (
        f"right: {right[0]:,} for the base model, as the class has. The paper says 65 million, and "
        "not how it counts."
    )


def _count(answer: Callable[..., Any], *sizes: int) -> int | float:
    """Let the reader's code count."""
    found = call("your code", answer, *sizes)
    if found is None or found is ...:
        raise Refused(f"not yet, it returns {found if found is None else '...'}.")
    if isinstance(found, bool) or not isinstance(found, int | float):
        kind = type(found).__name__
        raise Refused(f"it returns an object of type {kind}; a number is asked for.")
    return found


def _count_class(e: int, h: int, wide: int, layers: int, words: int) -> int:
    """Build the class without numbers, and count."""
    with torch.device("meta"):
        model = Seq2SeqTransformer(
            words, words, e, h, layers, layers, wide, share_embeddings=True, final_norm=False
        )
    return sum(parameter.numel() for parameter in model.parameters())


def _why_not(found: list[int | float], right: list[int]) -> str:
    """Give the reason that fits at all sizes, since two may agree where wide is 4 * e."""
    off = [a - b for a, b in zip(found, right, strict=True)]
    reasons = (_wrong_counts(e, wide, layers, words) for e, _, wide, layers, words in _SIZES)
    for same in zip(*reasons, strict=True):
        if off == [difference for _, difference in same]:
            return same[0][0]
    where = next(i for i, difference in enumerate(off) if difference)
    e, _, wide, layers, words = _SIZES[where]
    at = f"{e = }, {wide = }, {layers = }, {words = }"
    return (
        f"with {at} it returns {found[where]:,}; the class has {right[where]:,}, which is "
        f"{-off[where]:+,}."
    )


def _wrong_counts(e: int, wide: int, layers: int, words: int) -> Iterator[tuple[str, int]]:
    """Yield reasons, each with how far it is off."""
    attention, thinking = 4 * e * e + 4 * e, 2 * e * wide + wide + e
    biases = layers * (3 * 4 * e + 2 * (wide + e))
    norms = layers * 5 * 2 * e
    yield "the layers are right, and the table of embeddings is missing.", -words * e
    yield "the table is shared: it counts once, not three times.", 2 * words * e
    yield "the table is shared with the projection: it counts once, not twice.", words * e
    yield "the projection has no bias.", words
    yield "the biases are missing.", -biases
    yield "the biases of the attention are missing.", -layers * 3 * 4 * e
    yield "the biases of the feed-forward networks are missing.", -layers * 2 * (wide + e)
    yield "the norms are missing: each has a scale and a shift.", -norms
    yield "a norm has a shift as well as a scale: 2 * e.", -norms // 2
    yield "biases and norms are missing.", -biases - norms
    yield "a decoder layer has three norms, one for each sublayer.", -layers * 2 * e
    yield "a decoder layer has two attention modules.", -layers * attention
    yield (
        "a decoder layer has two attention modules, each with its norm.",
        -layers * (attention + 2 * e),
    )
    yield (
        "that is the encoder: add as many decoder layers.",
        (-layers * (2 * attention + thinking + 6 * e)),
    )
    yield "there are no final norms in the paper.", 4 * e
    yield "the attention has a fourth matrix, W_O.", -layers * 3 * (e * e + e)
    yield "the feed-forward network has two matrices.", -layers * 2 * e * wide
    yield "positions are computed, not learned: they count nothing.", 5000 * e


@check("shift_matrix")
def check_shift_matrix(answer: Callable[..., Any]) -> str:
    """Judge ``shift_matrix(k, e)``, and print the verdict.

    Args:
        answer: the reader's function, which is to return (e, e) for any k and even e.
    """
    require_function(answer)
    for number, (k, e) in enumerate(((3, 8), (1, 2), (-2, 6), (0, 4))):
        with at_sizes(not number, k=k, e=e):
            found = call("your code", answer, k, e)
            numbers = found.double() if isinstance(found, Tensor) else found
            compare(numbers, _shift(k, e), "(e, e)", _wrong_shifts(k, e))
            if found.dtype != torch.float64:
                raise Refused(
                    f"the numbers are right, but they are {found.dtype}. Make the matrix with "
                    "dtype=torch.float64."
                )
    code = sinusoidal_code(50, 8)
    largest = (code[:-3] @ answer(3, 8) - code[3:]).abs().max()
    return f"right: it moves 47 positions by three, and is off by {largest:.0e} at most."


def _shift(k: int, e: int, turn: int = 1, exponent: int = 2) -> Tensor:
    """Put one rotation for each clock along the diagonal."""
    angles = [k / 10000 ** (exponent * i / e) for i in range(e // 2)]
    blocks = [
        [[math.cos(a), -turn * math.sin(a)], [turn * math.sin(a), math.cos(a)]] for a in angles
    ]
    return torch.block_diag(*torch.tensor(blocks, dtype=torch.float64))


def _wrong_shifts(k: int, e: int) -> Iterator[tuple[str, Tensor]]:
    """Yield reasons, each with the matrix that it leads to."""
    right = _shift(k, e)
    reason = (
        "it moves by -k: the blocks are transposed. A position is a row, and stands on the left of "
        "the matrix."
    )
    yield reason, _shift(k, e, turn=-1)
    order = [*range(0, e, 2), *range(1, e, 2)]
    yield (
        "that is for all sines first, then all cosines. Here each sine has its cosine beside it.",
        right[order][:, order],
    )
    yield (
        "all clocks turn equally fast; clock i goes 10000^(2i/e) times slower.",
        (_shift(k, e, exponent=0)),
    )
    yield (
        "the clocks slow down half as fast as they should: the exponent is 2i/e.",
        (_shift(k, e, exponent=1)),
    )
    yield (
        "the clocks get faster: divide by 10000^(2i/e), do not multiply.",
        (_shift(k, e, exponent=-2)),
    )
    yield (
        "that is a table of positions; the matrix that moves them is asked for.",
        (sinusoidal_code(e, e)),
    )
