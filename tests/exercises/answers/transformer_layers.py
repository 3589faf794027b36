"""Answers to the exercises of “Transformer layers”."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from annotated_attention import block_future

WORD = torch.tensor([4.0, 0, 0, 4])


def pairs(padding: Tensor) -> Tensor:
    """Say it for each sample, query and key."""
    b, n = padding.shape
    rows = [[[bool(padding[i, k]) or k > q for k in range(n)] for q in range(n)] for i in range(b)]
    return torch.tensor(rows).unsqueeze(1)


def upper(n: int, diagonal: int) -> Tensor:
    return torch.arange(n)[None, :] >= torch.arange(n)[:, None] + diagonal


def decode(*missing: int, options: Any = None, bend: bool = True) -> Callable[..., Tensor]:
    """Write a pre-LN decoder layer, without some of its norms."""

    def answer(layer: Any, tgt: Tensor, memory: Tensor) -> Tensor:
        norms = [getattr(layer, f"norm{i}") for i in (1, 2, 3)]
        norm1, norm2, norm3 = (
            nn.Identity() if i in missing else norm for i, norm in enumerate(norms, 1)
        )
        causal = {"attn_mask": block_future(tgt.size(1))} if options is None else options
        x = norm1(tgt)
        x = tgt + layer.self_attn(x, x, x, need_weights=False, **causal)[0]
        x = x + layer.multihead_attn(query=norm2(x), key=memory, value=memory)[0]
        wide = layer.linear1(norm3(x))
        return x + layer.linear2(wide.clamp(min=0) if bend else wide)

    return answer


def post(layer: Any, tgt: Tensor, memory: Tensor) -> Tensor:
    x = layer.norm1(tgt + layer.self_attn(tgt, tgt, tgt, is_causal=True)[0])
    x = layer.norm2(x + layer.multihead_attn(x, memory, memory)[0])
    return layer.norm3(x + layer.linear2(layer.linear1(x).relu()))


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_norm": [
        ((1, -1, -1, 1), "✓ "),
        (WORD, "that is the word itself"),
        (WORD - WORD.mean(), "the mean is gone. Now divide by the deviation"),
        ((WORD - WORD.mean()) / WORD.var(correction=0), "divided by the variance"),
        (WORD / WORD.std(correction=0), "the mean is still there"),
        ((WORD - WORD.mean()) / WORD.std(), "divide their sum by 4, not by 3"),
        (nn.RMSNorm(4)(WORD).tolist(), "that is an RMSNorm"),
        ((WORD.mean() - WORD) / 2, "the signs are turned round"),
        ([1, -1, 1, 1], "number 3 is not right. The mean is 2"),
    ],
    "check_decoder_mask": [
        (pairs, "✓ "),
        (lambda p: ~pairs(p), "True means blocked here"),
        (lambda p: upper(p.size(1), 1).T | p[:, None, None], "the past instead"),
        (lambda p: upper(p.size(1), 0) | p[:, None, None], "the diagonal, too"),
        (lambda p: upper(p.size(1), 1) | p[:, None, :, None], "queries instead"),
        (lambda p: upper(p.size(1), 1) & p[:, None, None], "only what both masks"),
        (lambda p: block_future(p.size(1)), "and the padding is not"),
        (lambda p: p[:, None, None, :], "and the future is not"),
        (lambda p: pairs(p)[:, 0], "there is no axis for the heads"),
        (lambda p: torch.where(pairs(p), -torch.inf, 0.0), "a mask of booleans is"),
        (lambda p: upper(p.size(1), 2) | p[:, None, None],
         "in sample 0, query 0 and key 1, counted from 0, it says allowed"),
        (lambda p: upper(5, 1) | p[:, None, None], "not with b = 3, n = 3: "),
    ],
    "check_pre_norm_decoder": [
        (decode(), "✓ "),
        (post, "that is post-LN"),
        (decode(options={}), "words see later ones"),
        (decode(1), "norm1 is missing in front of the look back"),
        (decode(2), "norm2 is missing in front of the look across"),
        (decode(3), "norm3 is missing in front of the feed-forward network"),
        (lambda layer, tgt, memory: decode()(layer, tgt, layer.norm2(memory)),
         "the memory goes through norm2, too"),
        (decode(bend=False), "the ReLU between linear1 and linear2 is missing"),
        (lambda layer, tgt, memory: decode()(layer, tgt, memory.detach()),
         "no gradient reaches memory"),
        (lambda *given: decode()(*given) if len(given[1]) == 2 else given[1], "not with b = 3"),
    ],
}  # fmt: skip
