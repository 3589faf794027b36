"""Exercises of "Transformer layers": a norm, the decoder's mask, and a pre-LN decoder layer."""

import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from annotated_attention.exercises._exercise import Either, Exercise, normal
from annotated_attention.exercises._values import furthest, numbers
from annotated_attention.masks import block_future
from annotated_attention.transformer import TransformerDecoderLayer

check_norm = Exercise(
    name="norm",
    right=[1, -1, -1, 1],
    praise="right. From (2, 0, 0, 2) the norm would make the same: it undoes a scale.",
    wrong={
        "that is the word itself: subtract the mean, then divide by the deviation.": [4, 0, 0, 4],
        "the mean is gone. Now divide by the deviation, the root of the variance.": [2, -2, -2, 2],
        "you divided by the variance; divide by its root.": [0.5, -0.5, -0.5, 0.5],
        "you divided, and the mean is still there: subtract it first.": [2, 0, 0, 2],
        "the variance is the mean of the four squares: divide their sum by 4, not by 3.":
            [0.866, -0.866, -0.866, 0.866],
        "that is an RMSNorm, which does not subtract the mean; a layer norm does.":
            [1.414, 0, 0, 1.414],
        "the signs are turned round: subtract the mean from the number.": [-1, 1, 1, -1],
    },
    run=numbers(4),
    why=lambda answer, found, right: (
        f"number {furthest(found, right) + 1} is not right. The mean is 2, and so is the deviation."
    ),
    close=0.01,
)  # fmt: skip


# Padding on both sides: behind the end, the causal mask hides it already from all real tokens.
_PADDED = {5: ["00000", "11001"], 3: ["000", "100", "001"]}


def _draw_padding(b: int, n: int) -> dict[str, Tensor]:
    return {"padding": torch.tensor([[digit == "1" for digit in row] for row in _PADDED[n]])}


def _decoder_mask(padding: Tensor) -> Tensor:
    return block_future(padding.size(1)) | padding[:, None, None, :]


def _upper(padding: Tensor, diagonal: int) -> Tensor:
    n = padding.size(1)
    return torch.ones(n, n, dtype=torch.bool).triu(diagonal)


def _which_pair(answer: object, found: Tensor, right: Tensor, padding: Tensor) -> str | None:
    if found.dtype != torch.bool:
        return f"it returns {found.dtype}; a mask of booleans is asked for, True = blocked."
    if found.shape != right.shape:
        return None
    sample, _, query, key = (found != right).nonzero()[0].tolist()
    says = "blocked" if found[sample, 0, query, key] else "allowed"
    return f"in sample {sample}, query {query} and key {key}, counted from 0, it says {says}."


check_decoder_mask = Exercise(
    name="decoder_mask",
    right=_decoder_mask,
    praise="right: (b, 1, n, n), merged by broadcasting, and no copy for each head.",
    wrong={
        "True means blocked here, and you have True for allowed.":
            lambda padding: ~_decoder_mask(padding),
        "it blocks the past instead of the future: triu, not tril.":
            lambda padding: _upper(padding, 1).mT | padding[:, None, None, :],
        "it blocks the diagonal, too: a token may see itself.":
            lambda padding: _upper(padding, 0) | padding[:, None, None, :],
        "the padding blocks queries instead of keys. Keys are on the last axis.":
            lambda padding: _upper(padding, 1) | padding[:, None, :, None],
        "it blocks only what both masks block; one is enough: |, not &.":
            lambda padding: _upper(padding, 1) & padding[:, None, None, :],
        "padded queries are blocked, too. Then every key is blocked for them; what they "
        "compute is not used anyway.":
            lambda padding: _decoder_mask(padding) | padding[:, None, :, None],
        "the future is blocked, and the padding is not.": Either([
            lambda padding: _upper(padding, 1),
            lambda padding: _upper(padding, 1).expand(len(padding), 1, -1, -1),
        ]),
        "the padding is blocked, and the future is not.": Either([
            lambda padding: padding[:, None, None, :],
            lambda padding: padding[:, None, None, :].expand(-1, -1, padding.size(1), -1),
        ]),
        "there is no axis for the heads: (b, n, n) does not broadcast to (b, h, n, n).":
            lambda padding: _decoder_mask(padding)[:, 0],
    },
    sizes=[{"b": 2, "n": 5}, {"b": 3, "n": 3}],
    draw=_draw_padding,
    shape="(b, 1, n, n)",
    why=_which_pair,
)  # fmt: skip


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


def _add_to_the_normed(layer: Any, tgt: Tensor, memory: Tensor) -> Tensor:
    x = layer.norm1(tgt)
    x = layer.norm2(x + layer.self_attn(x, x, x, is_causal=True)[0])
    x = layer.norm3(x + layer.multihead_attn(x, memory, memory)[0])
    output: Tensor = x + layer.linear2(layer.linear1(x).relu())
    return output


_NO_NORM = nn.Identity()

check_pre_norm_decoder = Exercise(
    name="pre_norm_decoder",
    right=lambda layer, tgt, memory: layer(tgt, memory, tgt_is_causal=True),
    praise="right, and so are the gradients: for more keys than queries, and for fewer.",
    wrong={
        "that is post-LN: the norm stands behind the sum.": partial(_decode, norm_first=False),
        "words see later ones: self_attn needs is_causal=True.":
            lambda layer, tgt, memory: layer(tgt, memory),
        "you add to what is normalised. The residual goes past the norm: x + sublayer(norm(x)).":
            _add_to_the_normed,
        "norm1 is missing in front of the look back.": partial(_decode, norm1=_NO_NORM),
        "norm2 is missing in front of the look across.": partial(_decode, norm2=_NO_NORM),
        "norm3 is missing in front of the feed-forward network.": partial(_decode, norm3=_NO_NORM),
        "there is no norm at all.":
            partial(_decode, norm1=_NO_NORM, norm2=_NO_NORM, norm3=_NO_NORM),
        "the memory goes through norm2, too. It comes out of a stack with a norm of its own; norm2 "
        "is for the queries.":
            lambda layer, tgt, memory: _decode(layer, tgt, layer.norm2(memory)),
        "the look across is missing.": partial(_decode, dropout2=nn.Dropout(1.0)),
        "the ReLU between linear1 and linear2 is missing.": partial(_decode, activation=_NO_NORM),
    },
    sizes=[
        {"b": 2, "n": 3, "m": 5, "h": 4, "d": 6},
        {"b": 3, "n": 4, "m": 2, "h": 1, "d": 5},
    ],
    draw=_draw_layer,
    shape="(b, n, e)",
)  # fmt: skip
