"""The checks of “Counting” accept what is right and name what is wrong."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from annotated_attention.exercises.counting import check_decoder_layer, check_longest


@pytest.mark.parametrize("size", check_decoder_layer.sizes, ids=str)
def test_the_right_number_is_pytorchs(size: dict[str, int]) -> None:
    b, n, m, e, f = size.values()
    layer = nn.TransformerDecoderLayer(e, 2, f, 0.0, batch_first=True)
    hidden = nn.Transformer.generate_square_subsequent_mask(n)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        layer(torch.randn(b, n, e), torch.randn(b, m, e), tgt_mask=hidden)
    assert counter.get_total_flops() == check_decoder_layer.right(*size.values())


def products(b: int, n: int, m: int, e: int, f: int) -> list[tuple[int, int, int]]:
    """List the products of a layer: four projections twice, scores and mixing, the network."""
    return [
        *4 * [(b * n, e, e)], (b * n, e, n), (b * n, n, e),
        *2 * [(b * n, e, e)], *2 * [(b * m, e, e)], (b * n, e, m), (b * n, m, e),
        (b * n, e, f), (b * n, f, e),
    ]  # fmt: skip


def listed(*sizes: int, less: int = 0) -> int:
    return sum(rows * columns * (2 * inner - less) for rows, inner, columns in products(*sizes))


def without(first: int, last: int) -> Callable[..., int]:
    """Leave some of the products out."""
    return lambda *sizes: (
        listed(*sizes) - sum(2 * math.prod(size) for size in products(*sizes)[first:last])
    )


def by_trying(left: int, b: int, e: int, layers: int, width: int) -> int:
    tokens = 0
    while left >= 0:
        left -= layers * b * width * (e + e)
        tokens += 1
    return tokens - 1


# Answers, each with words of the verdict.
ANSWERS: list[tuple[Any, Any, str]] = [
    (check_decoder_layer, listed, "✓ "),
    (check_decoder_layer, without(0, 6), "self-attention over n tokens is missing"),
    (check_decoder_layer, without(6, 12), "cross-attention is missing"),
    (check_decoder_layer, without(12, 14), "the feed-forward network is missing"),
    (check_decoder_layer, without(13, 14), "from e to f and back; you count one."),
    (check_decoder_layer, without(4, 5), "the causal mask saves nothing"),
    (check_decoder_layer, lambda b, *sizes: listed(1, *sizes), "you have left out the samples"),
    (check_decoder_layer, lambda *sizes: 3 * listed(*sizes), "you count the backward pass, too"),
    (check_decoder_layer, lambda b, n, m, e, f: listed(b, n, n, e, f), "if it were self-attention"),
    (check_decoder_layer, lambda b, n, m, e, f: listed(b, n, m, e, 4 * e), "f need not be 4e"),
    (check_decoder_layer, lambda *sizes: listed(*sizes) / 2, "that is half"),
    (check_decoder_layer, lambda *sizes: listed(*sizes, less=1), "d - 1 additions"),
    (
        check_decoder_layer,
        lambda *sizes: listed(*sizes) + 1,
        "f = 7 it returns 73,153; right",
    ),
    (check_decoder_layer, lambda b, n, m, e, f: listed(b, n, 5, e, f), "not with b = 3"),
    (check_decoder_layer, lambda b, n, m, e, f: listed(b, n, m, e, f) - 4 * b * n * e * e, "W_O, "),
    (check_decoder_layer, lambda b, n, m, e, f: listed(b, n, m, e, f) + 4 * b * n * (n - m) * e,
     "n × m scores, not n × n"),
    (check_longest, by_trying, "✓ "),
    (
        check_longest,
        lambda left, b, e, layers, width: left // (b * e * layers * width),
        "and a val",
    ),
    (
        check_longest,
        lambda left, b, e, layers, width: left // (2 * b * e * width),
        "the layers, too",
    ),
    (check_longest, lambda left, b, *sizes: by_trying(left, 1, *sizes), "each of the b sequences"),
    (check_longest, lambda left, b, e, layers, width: left // (2 * b * e * layers), "their width"),
    (check_longest, lambda *sizes: by_trying(*sizes) + 1, "one token more, which fits in part"),
    (check_longest, lambda left, b, e, layers, width: left / b / e / layers / width / 2, "part of"),
    (check_longest, lambda *sizes: 0, "width = 4 it returns 0; right is 868."),
]  # fmt: skip


@pytest.mark.parametrize(("check", "answer", "words"), ANSWERS)
def test_verdict(verdict: Any, check: Any, answer: Any, words: str) -> None:
    assert words in verdict(check, answer)
