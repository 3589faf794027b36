"""Answers to the exercises of “Transformer layers”."""

from typing import Any

from torch import Tensor


def decode(layer: Any, tgt: Tensor, memory: Tensor) -> Tensor:
    """Write a pre-LN decoder layer, unlike the solution."""
    x = layer.norm1(tgt)
    x = tgt + layer.self_attn(x, x, x, need_weights=False, is_causal=True)[0]
    x = x + layer.multihead_attn(query=layer.norm2(x), key=memory, value=memory)[0]
    return x + layer.linear2(layer.linear1(layer.norm3(x)).clamp(min=0))


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_norm": [
        ((1, -1, -1, 1), "✓ "),
        ([4, 0, 0, 4], "that is the word itself"),
        ([1, -1, 1, 1], "number 3 is not right. The mean is 2"),
    ],
    "check_pre_norm_decoder": [
        (decode, "✓ "),
        (
            lambda layer, tgt, memory: decode(layer, tgt, layer.norm2(memory)),
            "the memory goes through norm2, too",
        ),
        (lambda layer, tgt, memory: decode(layer, tgt, memory.detach()), "no gradient reaches mem"),
        (lambda *given: decode(*given) if len(given[1]) == 2 else given[1], "not with b = 3"),
    ],
}
