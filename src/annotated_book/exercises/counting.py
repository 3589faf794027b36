"""Exercises of "Counting": the FLOPs of a decoder layer, and how much fits into a cache."""

from collections.abc import Callable

from torch import Tensor

from annotated_attention.counting import attention_flops, cache_bytes, feedforward_flops
from annotated_book.exercises._exercise import Exercise
from annotated_book.exercises._values import number

Formula = Callable[..., float]

_LAYERS = [
    {"b": 2, "n": 3, "m": 5, "e": 24, "f": 7},
    {"b": 3, "n": 11, "m": 4, "e": 10, "f": 36},
    {"b": 1, "n": 6, "m": 6, "e": 8, "f": 32},
]
_CACHES = [
    {"left": 1_000_000, "b": 2, "e": 24, "layers": 3, "width": 4},
    {"left": 987_790, "b": 1, "e": 10, "layers": 7, "width": 2},
    {"left": 100, "b": 5, "e": 6, "layers": 2, "width": 8},
]


def _run(answer: Formula, *sizes: int) -> Tensor:
    return number(answer(*sizes))


def _back(b: int, n: int, m: int, e: int, f: int) -> int:
    return attention_flops(n, n, e, b=b)


def _across(b: int, n: int, m: int, e: int, f: int) -> int:
    return attention_flops(n, m, e, b=b)


def _network(b: int, n: int, m: int, e: int, f: int) -> int:
    return feedforward_flops(n, e, f, b=b)


def _layer(*sizes: int) -> int:
    return _back(*sizes) + _across(*sizes) + _network(*sizes)


def _off(difference: Formula) -> Formula:
    """Give the formula that differs by so much from the right one."""
    return lambda *sizes: _layer(*sizes) + difference(*sizes)


check_decoder_layer = Exercise(
    name="decoder_layer",
    right=_layer,
    praise=f"right: {_layer(*_LAYERS[0].values()):,} FLOPs at "
    f"{', '.join(f'{letter} = {size}' for letter, size in _LAYERS[0].items())}, and PyTorch counts "
    "the same.",
    wrong={
        "you count a multiplication with its addition as one: that is half. A product of (n, d) "
        "and (d, m) has 2nmd FLOPs.": lambda *sizes: _layer(*sizes) // 2,
        "you count the backward pass, too; the forward pass alone is asked for.": lambda *sizes: (
            3 * _layer(*sizes)
        ),
        "you have left out the samples: everything is done b times.": lambda b, *sizes: _layer(
            1, *sizes
        ),
        "masked scores count, too: self-attention has all n × n of them.": _off(
            lambda b, n, m, e, f: -2 * b * n * n * e
        ),
        "self-attention over n tokens is missing.": _off(lambda *sizes: -_back(*sizes)),
        "cross-attention is missing: a decoder layer attends twice.": _off(
            lambda *sizes: -_across(*sizes)
        ),
        "the feed-forward network is missing: two products, of 2bnef each.": _off(
            lambda *sizes: -_network(*sizes)
        ),
        "the feed-forward network has two products, from e to f and back; you count one.": _off(
            lambda b, n, m, e, f: -2 * b * n * e * f
        ),
        "cross-attention is counted as if it were self-attention: its keys and values come from m "
        "tokens.": _off(lambda *sizes: _back(*sizes) - _across(*sizes)),
        "in cross-attention the keys and values are projected for m tokens, not for n.": _off(
            lambda b, n, m, e, f: 4 * b * (n - m) * e * e
        ),
        "the projection of the output, W_O, is missing in both attentions.": _off(
            lambda b, n, m, e, f: -4 * b * n * e * e
        ),
        "scoring is one product, and mixing the values is another; you count one of them.": _off(
            lambda b, n, m, e, f: -2 * b * n * (n + m) * e
        ),
    },
    sizes=_LAYERS,
    run=_run,
    close=0,
)


def _longest(left: int, b: int, e: int, layers: int, width: int) -> int:
    return left // cache_bytes(1, e, b=b, layers=layers, width=width)


def _exactly(left: int, b: int, e: int, layers: int, width: int) -> float:
    return left / cache_bytes(1, e, b=b, layers=layers, width=width)


check_longest = Exercise(
    name="longest",
    right=_longest,
    praise="right. One GiB would hold 29,127 tokens of GPT-2's smallest, in half precision.",
    wrong={
        "you count one number where there are two: each "
        "token has a key and a value.": lambda left, *sizes: _longest(2 * left, *sizes),
        "each layer has a cache of its own: "
        "divide by the layers, too.": lambda left, b, e, layers, width: _longest(
            left, b, e, 1, width
        ),
        "each of the b sequences has a cache of its own.": lambda left, b, *sizes: _longest(
            left, 1, *sizes
        ),
        "a number takes several bytes: "
        "divide by their width, too.": lambda left, b, e, layers, width: _longest(
            left, b, e, layers, 1
        ),
        "what you count is one token more, which fits "
        "in part: round down, with //.": lambda *sizes: _longest(*sizes) + 1,
        "part of a token does not fit: round down, with //.": _exactly,
    },
    sizes=_CACHES,
    run=_run,
    close=1e-9,
)
