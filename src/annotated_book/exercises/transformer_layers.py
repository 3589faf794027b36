"""Exercises of "Transformer layers": a norm, and what a decoder layer does."""

import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from annotated_attention.transformer import TransformerDecoderLayer
from annotated_book.exercises._exercise import Exercise, normal
from annotated_book.exercises._values import furthest, numbers

check_norm = Exercise(
    name="norm",
    right=[1, -1, -1, 1],
    praise="right. From (2, 0, 0, 2) the norm would make the same: it undoes a scale.",
    wrong={
        "that is the word itself: subtract the mean, then divide by the deviation.": [4, 0, 0, 4],
        "the mean is gone. Now divide by the deviation, the root of the variance.": [2, -2, -2, 2],
        "you divided by the variance; divide by its root.": [0.5, -0.5, -0.5, 0.5],
        "you divided, and the mean is still there: subtract it first.": [2, 0, 0, 2],
        "the variance is the mean of the four squares: divide their sum by 4, not by 3.": [
            0.866,
            -0.866,
            -0.866,
            0.866,
        ],
    },
    run=numbers(4),
    why=lambda answer, found, right: (
        f"number {furthest(found, right) + 1} is not right. The mean is 2, and so is the deviation."
    ),
    close=0.01,
)


class _Layer(TransformerDecoderLayer):
    """A post-LN decoder layer whose feed-forward network is a method, as in the chapter's."""

    def feed_forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.linear2(self.activation(self.linear1(x)))
        return output


def _draw_layer(b: int, n: int, m: int, h: int, d: int) -> dict[str, Any]:
    e = h * d
    layer = _Layer(e, h, 7, 0.0, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=0.5)
    padding = torch.zeros(b, m, dtype=torch.bool)
    padding[0, -1] = True
    return {"layer": layer, **normal(x=(b, n, e), memory=(b, m, e)), "padding": padding}


def _decode(layer: Any, x: Tensor, memory: Tensor, padding: Tensor, **others: Any) -> Tensor:
    """Let the layer decode, with others in the place of some of its parts."""
    layer = copy.deepcopy(layer)
    for name, other in others.items():
        setattr(layer, name, other)
    output: Tensor = layer(x, memory, tgt_is_causal=True, memory_key_padding_mask=padding)
    return output


def _looked_back(layer: Any, x: Tensor) -> Tensor:
    """Compute the sublayer that the stub has already."""
    looked: Tensor = layer.norm1(x + layer.self_attn(x, x, x, is_causal=True)[0])
    return looked


def _norms_in_front(layer: Any, x: Tensor, memory: Tensor, padding: Tensor) -> Tensor:
    x = _looked_back(layer, x)
    x = x + layer.multihead_attn(layer.norm2(x), memory, memory, padding)[0]
    output: Tensor = x + layer.feed_forward(layer.norm3(x))
    return output


def _nothing_added(layer: Any, x: Tensor, memory: Tensor, padding: Tensor) -> Tensor:
    x = _looked_back(layer, x)
    x = layer.norm2(layer.multihead_attn(x, memory, memory, padding)[0])
    output: Tensor = layer.norm3(x + layer.feed_forward(x))
    return output


def _memory_asks(layer: Any, x: Tensor, memory: Tensor, padding: Tensor) -> Tensor:
    x = _looked_back(layer, x)
    x = layer.norm2(x + layer.multihead_attn(memory, x, x)[0])
    output: Tensor = layer.norm3(x + layer.feed_forward(x))
    return output


_NO_NORM = nn.Identity()

check_decode = Exercise(
    name="decode",
    right=_decode,
    praise="right, and so are the gradients: for more keys than queries, and for fewer.",
    wrong={
        "the cross-attention and the feed-forward network are still missing.": (
            lambda layer, x, *_: _looked_back(layer, x)
        ),
        "the look across is missing.": partial(_decode, dropout2=nn.Dropout(1.0), norm2=_NO_NORM),
        "the feed-forward network is missing.": partial(
            _decode, dropout3=nn.Dropout(1.0), norm3=_NO_NORM
        ),
        "the padding mask is missing in the look across: it is the fourth argument.": (
            lambda layer, x, memory, padding: _decode(layer, x, memory, torch.zeros_like(padding))
        ),
        "that is pre-LN. In the picture the norms stand behind the sums.": _norms_in_front,
        "the look across replaces x: add it to x, then normalise the sum.": _nothing_added,
        "the memory asks. The words that are written ask: x, memory, memory.": _memory_asks,
        "norm2 is missing behind the look across.": partial(_decode, norm2=_NO_NORM),
        "norm3 is missing behind the feed-forward network.": partial(_decode, norm3=_NO_NORM),
    },
    sizes=[
        {"b": 2, "n": 3, "m": 5, "h": 4, "d": 6},
        {"b": 3, "n": 4, "m": 2, "h": 1, "d": 5},
    ],
    draw=_draw_layer,
    easy=[{"b": 2, "n": 4, "m": 4, "h": 2, "d": 3}],
    shape="(b, n, e)",
)
