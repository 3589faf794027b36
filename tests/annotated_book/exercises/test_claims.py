"""What the exercises' tables say of the package, of PyTorch and of their chapters is so."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from annotated_attention import sinusoidal_code
from annotated_book import chapters
from annotated_book.exercises import (
    counting,
    masks_in_the_wild,
    one_head,
    transformer,
)


def test_the_weights_of_the_first_exercises_are_the_chapters(verdict: Any) -> None:
    chapter = chapters.load("01_one_head")
    x = chapter.embed(chapter.MILK)  # (n, e)
    weights = (x @ x.mT / 2).softmax(-1)
    for word, expected in {"vanished": "✓ ", "it": '"it"', "thirsty": '"thirsty"'}.items():
        row = weights[chapter.MILK.index(word)]
        assert expected in verdict(one_head.check_weights, row)


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


TURNED = masks_in_the_wild.check_turned.right


@pytest.mark.parametrize("name", TURNED)
def test_a_query_reacts_to_what_the_verdict_says(verdict: Any, name: str) -> None:
    module = nn.MultiheadAttention(8, 2, batch_first=True)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    functions: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "nn.MultiheadAttention": lambda x, given: module(x, x, x, key_padding_mask=given)[0],
        "F.scaled": lambda x, given: F.scaled_dot_product_attention(x, x, x, given[:, None]),
        "nn.Transf": lambda x, given: layer(x, src_key_padding_mask=given),
    }
    function = next(made for start, made in functions.items() if name.startswith(start))
    words = ["it", "was", "·", "·"]
    mask = torch.tensor([[word != "·" for word in words]])

    def seen(choice: str) -> str:
        x = torch.randn(1, 4, 8, requires_grad=True)
        output = function(x, mask if choice == "mask" else ~mask)[0, 0]
        (reaction,) = torch.autograd.grad((output * torch.arange(8)).sum(), x)
        moved = reaction[0].abs().amax(-1) > 1e-6
        reacts = dict.fromkeys(word for word, yes in zip(words, moved.tolist(), strict=True) if yes)
        return " and ".join(f"“{word}”" for word in reacts)

    other = {"mask": "~mask", "~mask": "mask"}[TURNED[name]]
    said = verdict(masks_in_the_wild.check_turned, TURNED | {name: other})
    assert seen(TURNED[name]) == "“it” and “was”"
    assert f"given {other}, {name.replace(', ', ' with ')} lets " in said
    assert f"react to {seen(other)} alone" in said
