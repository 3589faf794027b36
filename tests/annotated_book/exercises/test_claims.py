"""What the exercises' tables say of the package, of PyTorch and of their chapters is so."""

import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from annotated_attention import sinusoidal_code
from annotated_book import chapters
from annotated_book.exercises import (
    counting,
    one_head,
    reshape_trick,
    transformer,
)


def test_the_weights_of_the_first_exercises_are_the_chapters(verdict: Any) -> None:
    chapter = chapters.load("01_one_head")
    words = ["cats", "drank", "and", "vanished", "because", "it", "was", "sweet"]
    x = chapter.embed(words)  # (n, e)
    weights = (x @ x.mT / 2).softmax(-1)
    for word, expected in {"vanished": "✓ ", "it": '"it"', "sweet": '"sweet"'}.items():
        assert expected in verdict(one_head.check_weights, weights[words.index(word)])


def test_the_angles_are_the_codes() -> None:
    angles = torch.tensor(transformer.check_angles.right, dtype=torch.float64)
    code = torch.stack([angles.sin(), angles.cos()], -1).flatten()
    torch.testing.assert_close(code, sinusoidal_code(21, 8)[20])


@pytest.mark.parametrize("size", counting.check_decoder_layer.sizes, ids=str)
def test_pytorch_counts_as_many_flops(size: dict[str, int]) -> None:
    b, n, m, e, f = size.values()
    layer = nn.TransformerDecoderLayer(e, 2, f, 0.0, batch_first=True)
    hidden = nn.Transformer.generate_square_subsequent_mask(n)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        layer(torch.randn(b, n, e), torch.randn(b, m, e), tgt_mask=hidden)
    assert counter.get_total_flops() == counting.check_decoder_layer.right(*size.values())


def test_the_test_that_a_forged_layer_passes_is_the_chapters() -> None:
    asked = chapters.load("04_reshape_trick").test_from_outside
    path = Path(__file__).parent / "answers" / "reshape_trick.py"
    seen = set()
    for answer, _ in runpy.run_path(str(path))["ANSWERS"]["check_forged"]:
        torch.manual_seed(0)
        x = torch.randn(5, 6)
        try:
            said = reshape_trick.from_outside(lambda x, answer=answer: answer(x, 3), x)
        except (AttributeError, RuntimeError, TypeError):
            continue  # it gives no tensor
        try:
            message = asked(lambda x, answer=answer: answer(x, 3), x, 3)
        except AssertionError as error:
            message = str(error)
        assert message == said
        seen.add(said)
    assert len(seen) == 4
