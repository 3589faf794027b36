"""Exercises of "Counting": the FLOPs of a decoder layer, and how much fits into a cache."""

import math
import numbers
from collections.abc import Callable, Iterator
from typing import Any

from annotated_attention import counting
from annotated_attention.exercises._verdict import Refused, at_sizes, call, check, require_function

Formula = Callable[..., int]

_LAYERS = (
    {"b": 2, "n": 3, "m": 5, "e": 24, "f": 7},
    {"b": 3, "n": 11, "m": 4, "e": 10, "f": 36},
    {"b": 1, "n": 6, "m": 6, "e": 8, "f": 32},
)
_CACHES = (
    {"left": 1_000_000, "b": 2, "e": 24, "layers": 3, "width": 4},
    {"left": 987_790, "b": 1, "e": 10, "layers": 7, "width": 2},
    {"left": 100, "b": 5, "e": 6, "layers": 2, "width": 8},
)


@check("decoder_layer")
def check_decoder_layer(answer: object) -> str:
    """Judge a formula for the FLOPs of a decoder layer, and print the verdict.

    Args:
        answer: a function of b, n, m, e and f.
    """
    _require_formula(answer, _LAYERS, _layer, list(_wrong_layers()), "FLOPs")
    first = ", ".join(f"{letter} = {size}" for letter, size in _LAYERS[0].items())
    return f"right: {_layer(**_LAYERS[0]):,} FLOPs at {first}, and PyTorch counts the same."


@check("longest")
def check_longest(answer: object) -> str:
    """Judge a formula for the tokens that fit into a cache, and print the verdict.

    Args:
        answer: a function of left, b, e, layers and width.
    """
    _require_formula(answer, _CACHES, _longest, list(_wrong_longest()), "tokens")
    gpt2 = counting.PRESETS["gpt2"]
    tokens = _longest(2**30, 1, gpt2.embed_dim, gpt2.layers, 2)
    return f"right. One GiB would hold {tokens:,} tokens of GPT-2's smallest, in half precision."


def _require_formula(
    answer: object,
    sizes: tuple[dict[str, int], ...],
    right: Formula,
    wrong: list[tuple[str, Formula]],
    unit: str,
) -> None:
    """Refuse a function that does not count right, with the reason if it is a known one."""
    require_function(answer)
    function: Any = answer
    found = [_number(call("your code", function, *size.values())) for size in sizes]
    expected = [right(**size) for size in sizes]
    if found != expected:
        for reason, formula in wrong:
            theirs = [formula(**size) for size in sizes]
            if all(map(math.isclose, found, theirs)):
                raise Refused(reason)
    for i, size in enumerate(sizes):
        with at_sizes(not i, **size):
            _compare(found[i], expected[i], size, unit)


def _number(value: object) -> float:
    """Refuse what is no number."""
    if value is None or value is ...:
        raise Refused(f"not yet, it returns {value if value is None else '...'}.")
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        kind = type(value).__name__
        raise Refused(f"it returns an object of type {kind}; a whole number is asked for.")
    return value if isinstance(value, int) else float(value)


def _compare(found: float, right: int, size: dict[str, int], unit: str) -> None:
    """Refuse another number than the right one."""
    at = ", ".join(f"{letter} = {number}" for letter, number in size.items())
    if found != right:
        more = "more" if found > right else "less"
        raise Refused(f"at {at} it gives {found:,}, which is {more} than the {right:,} {unit}.")
    if not isinstance(found, int):
        raise Refused(f"at {at} it gives {found}, a float: large counts get inexact. Use // or *.")


def _self_attention(b: int, n: int, e: int) -> int:
    return counting.attention_flops(n, n, e, b=b)


def _cross_attention(b: int, n: int, m: int, e: int) -> int:
    return counting.attention_flops(n, m, e, b=b)


def _network(b: int, n: int, e: int, f: int) -> int:
    return counting.feedforward_flops(n, e, f, b=b)


def _layer(b: int, n: int, m: int, e: int, f: int) -> int:
    return _self_attention(b, n, e) + _cross_attention(b, n, m, e) + _network(b, n, e, f)


def _wrong_layers() -> Iterator[tuple[str, Formula]]:
    """Yield reasons, each with the formula that it leads to."""

    def but(change: Formula) -> Formula:
        return lambda b, n, m, e, f: _layer(b, n, m, e, f) + change(b, n, m, e, f)

    yield (
        "you count a multiplication with its addition as one: that is half. A product of (n, d) "
        "and (d, m) has 2nmd FLOPs.",
        lambda **size: _layer(**size) // 2,
    )
    yield (
        "you count the backward pass, too; the forward pass alone is asked for.",
        lambda **size: 3 * _layer(**size),
    )
    yield (
        "you have left out the samples: everything is done b times.",
        lambda b, **size: _layer(1, **size),
    )
    yield (
        "you count d - 1 additions for a sum of d numbers. That is strict, but the usual count, "
        "and PyTorch's, is d: 2nmd for a product.",
        but(lambda b, n, m, e, f: -b * (e * (9 * n + 2 * m) + n * (n + m + f))),
    )
    yield (
        "the causal mask saves nothing: scores are computed, then hidden. Self-attention has all "
        "n × n of them.",
        but(lambda b, n, m, e, f: -2 * b * n * n * e),
    )
    yield (
        "self-attention over n tokens is missing.",
        but(lambda b, n, m, e, f: -_self_attention(b, n, e)),
    )
    yield (
        "cross-attention is missing: a decoder layer attends twice.",
        but(lambda b, n, m, e, f: -_cross_attention(b, n, m, e)),
    )
    yield (
        "the feed-forward network is missing: two products, of 2bnef each.",
        but(lambda b, n, m, e, f: -_network(b, n, e, f)),
    )
    yield (
        "the feed-forward network has two products, from e to f and back; you count one.",
        but(lambda b, n, m, e, f: -2 * b * n * e * f),
    )
    yield (
        "f need not be 4e: the feed-forward network has 4bnef FLOPs.",
        but(lambda b, n, m, e, f: 4 * b * n * e * (4 * e - f)),
    )
    yield (
        "cross-attention is counted as if it were self-attention: its keys and values come from m "
        "tokens.",
        but(lambda b, n, m, e, f: _self_attention(b, n, e) - _cross_attention(b, n, m, e)),
    )
    yield (
        "in cross-attention the keys and values are projected for m tokens, not for n.",
        but(lambda b, n, m, e, f: 4 * b * (n - m) * e * e),
    )
    yield (
        "in cross-attention all four projections are counted for m tokens. Queries and output have "
        "n rows.",
        but(lambda b, n, m, e, f: 4 * b * (m - n) * e * e),
    )
    yield (
        "in cross-attention the output is projected for n tokens, as many as there are queries.",
        but(lambda b, n, m, e, f: 2 * b * (m - n) * e * e),
    )
    yield (
        "in cross-attention there are n × m scores, not m × m.",
        but(lambda b, n, m, e, f: 4 * b * (m - n) * m * e),
    )
    yield (
        "in cross-attention there are n × m scores, not n × n.",
        but(lambda b, n, m, e, f: 4 * b * n * (n - m) * e),
    )
    yield (
        "the projection of the output, W_O, is missing in both attentions.",
        but(lambda b, n, m, e, f: -4 * b * n * e * e),
    )
    yield (
        "scoring is one product, and mixing the values is another; you count one of them.",
        but(lambda b, n, m, e, f: -2 * b * n * (n + m) * e),
    )


def _longest(left: int, b: int, e: int, layers: int, width: int) -> int:
    return left // counting.cache_bytes(1, e, b=b, layers=layers, width=width)


def _wrong_longest() -> Iterator[tuple[str, Formula]]:
    """Yield reasons, each with the formula that it leads to."""

    def without(name: str) -> Formula:
        return lambda **size: _longest(**size | {name: 1})

    yield (
        "you count one number where there are two: each token has a key and a value.",
        lambda left, **size: _longest(2 * left, **size),
    )
    yield "each layer has a cache of its own: divide by the layers, too.", without("layers")
    yield "each of the b sequences has a cache of its own.", without("b")
    yield "a number takes several bytes: divide by their width, too.", without("width")
    yield (
        "what you count is one token more, which fits in part: round down, with //.",
        lambda **size: _longest(**size) + 1,
    )

    def exact(left: int, b: int, e: int, layers: int, width: int) -> Any:
        return left / (2 * b * e * layers * width)

    yield "part of a token does not fit: round down, with //.", exact
    yield (
        "rounding to the nearest number counts a token that fits in part: round down, with //.",
        lambda **size: round(exact(**size)),
    )
