"""Answers to the exercises of “Fewer keys”."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def token_bytes(
    each: int = 2, layers: bool = True, shared: bool = True, width: str = "right"
) -> Callable[[dict[str, int]], float]:
    """Write the formula, well or badly."""

    def answer(config: dict[str, int]) -> float:
        h = config["num_attention_heads"]
        g = config.get("num_key_value_heads", h)
        wide = config["hidden_size"] // (g if width == "by keys" else h)
        if width != "never given":
            wide = config.get("head_dim", wide)
        kept = (config["num_hidden_layers"] if layers else 1, 2, g if shared else h, wide)
        return each * torch.empty(kept, dtype=torch.int8).untyped_storage().nbytes()

    return answer


def folded(
    tiled: bool = False, scaled: bool = True, apart: str = "right", axis: int = -1
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Make the heads of a group queries of one head, well or badly."""

    def answer(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        (_, h, n, d), g = q.shape, k.size(1)
        split = q.unflatten(1, (-1, g)).transpose(1, 2) if tiled else q.unflatten(1, (g, -1))
        scores = split.flatten(2, 3) @ k.mT / (d**0.5 if scaled else 1)
        mixed = scores.softmax(axis) @ v
        if apart == "queries first":
            mixed = mixed.unflatten(2, (n, h // g)).transpose(2, 3)
        else:
            mixed = mixed.unflatten(2, (h // g, n))
        return (mixed.transpose(1, 2) if tiled or apart == "heads first" else mixed).flatten(1, 2)

    return answer


def stretched(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q = q.unflatten(1, (k.size(1), -1))
    weights = (q @ k[:, :, None].mT / q.size(-1) ** 0.5).softmax(-1)
    return (weights @ v[:, :, None]).flatten(1, 2)


def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


ANSWERS: dict[str, list[tuple[Any, str]]] = {
    "check_groups": [
        (torch.arange(3).repeat_interleave(2), "✓ "),
        (torch.arange(3).repeat(2), "these are tiles"),
        ([i // 3 for i in range(6)], "that is two KV heads for groups of three"),
        ([0] * 6, "multi-query attention"),
        ([0, 0, 1, 2, 2, 2], "head 3 of the queries belongs to another KV head"),
    ],
    "check_token_bytes": [
        (token_bytes(), "✓ "),
        (token_bytes(each=1), "that is half"),
        (token_bytes(each=4), "two bytes, not four"),
        (token_bytes(layers=False), "each layer has a cache of its own"),
        (token_bytes(shared=False), "a KV head for each head of queries"),
        (token_bytes(width="never given"), "`head_dim` where that is given"),
        (token_bytes(width="by keys"), "divided by the heads of *queries*"),
        (lambda config: 7, "it returns 7; right is 192."),
    ],
    "check_without_copy": [
        (folded(), "✓ "),
        (folded(tiled=True), "your groups are tiles: head i reads KV head i % g"),
        (folded(scaled=False), "not divided by the square root of d"),
        (folded(apart="queries first"), "queries and heads of a group are mixed"),
        (folded(apart="heads first"), "right heads, in wrong places"),
        (folded(axis=-2), "the shape is right, but"),
        (lambda q, k, v: folded()(q, k.mT.contiguous().mT, v), "`clone` makes a"),
        (stretched, "makes a tensor of 4,800 numbers, and the keys have only 1,600"),
        (fused, "PyTorch's function has found them"),
        (lambda q, k, v: folded()(q.detach(), k, v), "no gradient reaches q"),
        (lambda q, k, v: folded()(q, k, v) if len(k) == 2 else q, "not with b = 3, h = 8, g = 4"),
    ],
}  # fmt: skip
