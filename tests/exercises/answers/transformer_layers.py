"""Answers to the exercises of “Transformer layers”."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

WORD = torch.tensor([4.0, 0, 0, 4])


def decode(*missing: int, bend: bool = True, behind: bool = False) -> Callable[..., Tensor]:
    """Write a pre-LN decoder layer, without some of its norms, or with two of them behind."""

    def answer(layer: Any, tgt: Tensor, memory: Tensor) -> Tensor:
        same = nn.Identity()
        norm2, norm3 = (same if i in missing else getattr(layer, f"norm{i}") for i in (2, 3))
        before, after = (norm2, norm3), (same, same)
        if behind:
            before, after = after, before
        x = layer.norm1(tgt)
        x = tgt + layer.self_attn(x, x, x, need_weights=False, is_causal=True)[0]
        x = after[0](x + layer.multihead_attn(query=before[0](x), key=memory, value=memory)[0])
        wide = layer.linear1(before[1](x))
        return after[1](x + layer.linear2(wide.clamp(min=0) if bend else wide))

    return answer


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_norm": [
        ((1, -1, -1, 1), "✓ "),
        (WORD, "that is the word itself"),
        ((WORD - WORD.mean()) / WORD.var(correction=0), "divided by the variance"),
        ([1, -1, 1, 1], "number 3 is not right. The mean is 2"),
    ],
    "check_pre_norm_decoder": [
        (decode(), "✓ "),
        (decode(behind=True), "that is post-LN"),
        (decode(2), "norm2 is missing in front of the look across"),
        (lambda layer, tgt, memory: decode()(layer, tgt, layer.norm2(memory)),
         "the memory goes through norm2, too"),
        (decode(bend=False), "the ReLU between linear1 and linear2 is missing"),
        (lambda layer, tgt, memory: decode()(layer, tgt, memory.detach()),
         "no gradient reaches memory"),
        (lambda *given: decode()(*given) if len(given[1]) == 2 else given[1], "not with b = 3"),
    ],
}  # fmt: skip
