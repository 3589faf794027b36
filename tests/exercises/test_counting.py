"""The checks of “Counting” accept what is right and name what is wrong."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from annotated_attention.exercises import counting
from annotated_attention.exercises.counting import check_decoder_layer, check_longest

CHAPTER = "12_counting"


def test_decoder_layer_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_decoder_layer")
    assert before == "✗ decoder_layer: not yet, it returns None. "
    assert after.startswith("✓ decoder_layer: right: ")
    assert after.endswith(", and PyTorch counts the same. ")


def test_longest_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_longest")
    assert before == "✗ longest: not yet, it returns None. "
    assert after.startswith("✓ longest: right. ")


@pytest.mark.parametrize("size", counting._LAYERS, ids=str)
def test_the_right_number_is_pytorchs(size: dict[str, int]) -> None:
    b, n, m, e, f = size.values()
    layer = nn.TransformerDecoderLayer(e, 2, f, 0.0, batch_first=True)
    hidden = nn.Transformer.generate_square_subsequent_mask(n)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        layer(torch.randn(b, n, e), torch.randn(b, m, e), tgt_mask=hidden)
    assert counter.get_total_flops() == counting._layer(**size)


def listed(b: int, n: int, m: int, e: int, f: int) -> int:
    """Add up every product, one by one."""
    sizes = 4 * [(b * n, e, e)] + 2 * [(b * n, e, n)]
    sizes += 2 * [(b * n, e, e)] + 2 * [(b * m, e, e)] + 2 * [(b * n, e, m)]
    sizes += [(b * n, e, f), (b * n, f, e)]
    return sum(2 * math.prod(size) for size in sizes)


def wrong(**changed: Any) -> Callable[..., Any]:
    """Add up the parts of a layer, some of them replaced."""

    def formula(b: int, n: int, m: int, e: int, f: int) -> Any:
        parts: dict[str, Any] = {
            "own": 8 * b * n * e * e,
            "scores": 4 * b * n * n * e,
            "across": 4 * b * n * e * e + 4 * b * m * e * e,
            "cross_scores": 4 * b * n * m * e,
            "network": 4 * b * n * e * f,
        }
        parts |= {name: change(b, n, m, e, f) for name, change in changed.items()}
        return sum(parts.values())

    return formula


def nothing(*sizes: int) -> int:
    return 0


WRONG_LAYERS: list[tuple[Callable[..., Any], str]] = [
    (wrong(own=nothing, scores=nothing), "self-attention over n tokens is missing"),
    (wrong(across=nothing, cross_scores=nothing), "cross-attention is missing"),
    (wrong(network=nothing), "the feed-forward network is missing"),
    (wrong(network=lambda b, n, m, e, f: 16 * b * n * e * e), "f need not be 4e"),
    (wrong(network=lambda b, n, m, e, f: 2 * b * n * e * f), "you count one."),
    (wrong(scores=lambda b, n, m, e, f: 2 * b * n * n * e), "the causal mask saves nothing"),
    (wrong(across=lambda b, n, m, e, f: 8 * b * n * e * e), "projected for m tokens, not for n"),
    (wrong(across=lambda b, n, m, e, f: 8 * b * m * e * e), "all four projections are counted"),
    (wrong(across=lambda b, n, m, e, f: 2 * b * n * e * e + 6 * b * m * e * e),
     "the output is projected for n tokens"),
    (wrong(cross_scores=lambda b, n, m, e, f: 4 * b * m * m * e), "n × m scores, not m × m"),
    (wrong(cross_scores=lambda b, n, m, e, f: 4 * b * n * n * e), "n × m scores, not n × n"),
    (wrong(across=lambda b, n, m, e, f: 8 * b * n * e * e,
           cross_scores=lambda b, n, m, e, f: 4 * b * n * n * e), "as if it were self-attention"),
    (wrong(own=lambda b, n, m, e, f: 6 * b * n * e * e,
           across=lambda b, n, m, e, f: 2 * b * n * e * e + 4 * b * m * e * e), "W_O, is missing"),
    (wrong(scores=lambda b, n, m, e, f: 2 * b * n * n * e,
           cross_scores=lambda b, n, m, e, f: 2 * b * n * m * e), "you count one of them"),
    (lambda b, n, m, e, f: listed(1, n, m, e, f), "you have left out the samples"),
    (lambda *sizes: listed(*sizes) / 2, "that is half"),
    (lambda *sizes: 3 * listed(*sizes), "you count the backward pass, too"),
    (lambda *sizes: listed(*sizes) + 1, "at b = 2, n = 3, m = 5, e = 24, f = 7 it gives 73,153"),
    (lambda b, n, m, e, f: 4 * b * n * e * (2 * e + n + f), "cross-attention is missing"),
    (lambda *sizes: float(listed(*sizes)), "a float: large counts get inexact"),
    (lambda b, n, m, e, f: listed(b, n, 5, e, f), "it is right at first, but not with b = 3"),
    (lambda *sizes: torch.tensor(3), "it returns an object of type Tensor"),
    (lambda *sizes: str(listed(*sizes)), "it returns an object of type str"),
    (lambda b, n, m, e: 1, "TypeError"),
]  # fmt: skip


def strict(b: int, n: int, m: int, e: int, f: int) -> int:
    """With d - 1 additions for a sum of d numbers; heads as one product of width e."""
    sizes = 4 * [(b * n, e, e)] + [(b * n, e, n), (b * n, n, e)]
    sizes += 2 * [(b * n, e, e)] + 2 * [(b * m, e, e)] + [(b * n, e, m), (b * n, m, e)]
    sizes += [(b * n, e, f), (b * n, f, e)]
    return sum(rows * columns * (2 * inner - 1) for rows, inner, columns in sizes)


@pytest.mark.parametrize(("answer", "reason"), [*WRONG_LAYERS, (strict, "d - 1 additions")])
def test_decoder_layer_names_the_mistake(verdict: Any, answer: Any, reason: str) -> None:
    said = verdict(check_decoder_layer, answer)
    assert said.startswith("✗ decoder_layer: ")
    assert reason in said


def test_decoder_layer_accepts_other_ways(verdict: Any) -> None:
    assert verdict(check_decoder_layer, listed).startswith("✓ decoder_layer")
    assert verdict(check_decoder_layer, wrong()).startswith("✓ decoder_layer")


def by_trying(left: int, b: int, e: int, layers: int, width: int) -> int:
    tokens = 0
    while left >= 0:
        left -= layers * b * width * (e + e)
        tokens += 1
    return tokens - 1


WRONG_LONGEST: list[tuple[Callable[..., Any], str]] = [
    (lambda left, b, e, layers, width: left // (b * e * layers * width), "a key and a value"),
    (lambda left, b, e, layers, width: left // (2 * b * e * width), "divide by the layers, too"),
    (lambda left, b, e, layers, width: left // (2 * e * layers * width), "each of the b sequences"),
    (lambda left, b, e, layers, width: left // (2 * b * e * layers), "divide by their width"),
    (lambda *sizes: by_trying(*sizes) + 1, "one token more, which fits in part"),
    (lambda left, b, e, layers, width: left / b / e / layers / width / 2, "part of a token"),
    (lambda left, b, e, layers, width: round(left / (2 * b * e * layers * width)), "rounding to"),
    (lambda *sizes: True, "it returns an object of type bool"),
    (lambda *sizes: float(by_trying(*sizes)), "a float: large counts get inexact"),
    (lambda left, b, e, layers, width: left, "which is more than the 868 tokens"),
    (lambda *sizes: 0, "which is less than the 868 tokens"),
]


@pytest.mark.parametrize(("answer", "reason"), WRONG_LONGEST)
def test_longest_names_the_mistake(verdict: Any, answer: Any, reason: str) -> None:
    said = verdict(check_longest, answer)
    assert said.startswith("✗ longest: ")
    assert reason in said


def test_longest_accepts_other_ways(verdict: Any) -> None:
    assert verdict(check_longest, by_trying).startswith("✓ longest")
