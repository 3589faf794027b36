"""Answers to the exercises of “Transformer layers”."""

from typing import Any

from torch import Tensor


def decode(layer: Any, x: Tensor, memory: Tensor, padding: Tensor | None) -> Tensor:
    """Write a decoder layer, unlike the solution."""
    x = layer.norm1(x + layer.self_attn(x, x, x, need_weights=False, is_causal=True)[0])
    across, _ = layer.multihead_attn(query=x, key=memory, value=memory, key_padding_mask=padding)
    x = layer.norm2(x + across)
    return layer.norm3(x + layer.linear2(layer.linear1(x).clamp(min=0)))


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_norm": [
        ((1, -1, -1, 1), "✓ "),
        ([4, 0, 0, 4], "that is the word itself"),
        ([1, -1, 1, 1], "number 3 is not right. The mean is 2"),
    ],
    "check_decode": [
        (decode, "✓ "),
        (lambda layer, x, memory, _: decode(layer, x, memory, None), "the padding mask is missing"),
        (
            lambda layer, x, memory, padding: decode(layer, x, memory.detach(), padding),
            "no gradient reaches mem",
        ),
        (lambda *given: decode(*given) if len(given[1]) == 2 else given[1], "not with b = 3"),
    ],
}
