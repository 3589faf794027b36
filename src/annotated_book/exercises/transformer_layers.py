"""Exercises of "Transformer layers": a norm, and a pre-LN decoder layer."""

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


def _draw_layer(b: int, n: int, m: int, h: int, d: int) -> dict[str, Any]:
    e = h * d
    layer = TransformerDecoderLayer(
        e, h, 7, 0.0, batch_first=True, norm_first=True, dtype=torch.float64
    )
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=0.5)
    return {"layer": layer, **normal(tgt=(b, n, e), memory=(b, m, e))}


def _decode(layer: nn.Module, tgt: Tensor, memory: Tensor, **others: Any) -> Tensor:
    """Let the layer decode, with others in the place of some of its parts."""
    layer = copy.deepcopy(layer)
    for name, other in others.items():
        setattr(layer, name, other)
    output: Tensor = layer(tgt, memory, tgt_is_causal=True)
    return output


def _looked_back(layer: Any, tgt: Tensor) -> Tensor:
    """Compute the sublayer that the stub has already."""
    x = layer.norm1(tgt)
    looked: Tensor = tgt + layer.self_attn(x, x, x, is_causal=True)[0]
    return looked


def _add_to_the_normed(layer: Any, tgt: Tensor, memory: Tensor) -> Tensor:
    x = layer.norm2(_looked_back(layer, tgt))
    x = layer.norm3(x + layer.multihead_attn(x, memory, memory)[0])
    output: Tensor = x + layer.linear2(layer.linear1(x).relu())
    return output


def _post(layer: Any, tgt: Tensor, memory: Tensor) -> Tensor:
    x = _looked_back(layer, tgt)
    x = layer.norm2(x + layer.multihead_attn(x, memory, memory)[0])
    output: Tensor = layer.norm3(x + layer.linear2(layer.linear1(x).relu()))
    return output


_NO_NORM = nn.Identity()

check_pre_norm_decoder = Exercise(
    name="pre_norm_decoder",
    right=lambda layer, tgt, memory: layer(tgt, memory, tgt_is_causal=True),
    praise="right, and so are the gradients: for more keys than queries, and for fewer.",
    wrong={
        "the cross-attention and the feed-forward "
        "network are still missing.": lambda layer, tgt, memory: (
            _looked_back(layer, tgt) + 0 * memory.sum()
        ),
        "that is post-LN: the norm stands behind the sum.": _post,
        "you add to what is normalised. The residual goes past "
        "the norm: x + sublayer(norm(x)).": _add_to_the_normed,
        "norm2 is missing in front of the look across.": partial(_decode, norm2=_NO_NORM),
        "norm3 is missing in front of the feed-forward network.": partial(_decode, norm3=_NO_NORM),
        "the memory goes through norm2, too. It comes out of a stack with a norm of its own; norm2 "
        "is for the queries.": lambda layer, tgt, memory: _decode(layer, tgt, layer.norm2(memory)),
        "the look across is missing.": partial(_decode, dropout2=nn.Dropout(1.0)),
        "the ReLU between linear1 and linear2 is missing.": partial(_decode, activation=_NO_NORM),
    },
    sizes=[
        {"b": 2, "n": 3, "m": 5, "h": 4, "d": 6},
        {"b": 3, "n": 4, "m": 2, "h": 1, "d": 5},
    ],
    draw=_draw_layer,
    shape="(b, n, e)",
)
