"""The checks of “Fewer keys” accept what is right and name what is wrong."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from annotated_attention.exercises.fewer_keys import (
    check_groups,
    check_token_bytes,
    check_without_copy,
)


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


# Answers, each with words of the verdict.
ANSWERS: list[tuple[Any, Any, str]] = [
    (check_groups, torch.arange(3).repeat_interleave(2), "✓ "),
    (check_groups, torch.arange(3).repeat(2), "these are tiles"),
    (check_groups, [i // 3 for i in range(6)], "that is two KV heads for groups of three"),
    (check_groups, list(range(6)), "a KV head for each head of queries"),
    (check_groups, [0] * 6, "multi-query attention"),
    (check_groups, [0, 0, 1, 2, 2, 2], "head 3 of the queries belongs to another KV head"),
    (check_token_bytes, token_bytes(), "✓ "),
    (check_token_bytes, token_bytes(each=1), "that is half"),
    (check_token_bytes, token_bytes(each=4), "two bytes, not four"),
    (check_token_bytes, token_bytes(layers=False), "each layer has a cache of its own"),
    (check_token_bytes, token_bytes(shared=False), "a KV head for each head of queries"),
    (check_token_bytes, token_bytes(width="never given"), "`head_dim` where that is given"),
    (check_token_bytes, token_bytes(width="by keys"), "divided by the heads of *queries*"),
    (check_token_bytes, lambda config: 7, "it returns 7; right is 192."),
    (check_without_copy, folded(), "✓ "),
    (check_without_copy, folded(tiled=True), "your groups are tiles: head i reads KV head i % g"),
    (check_without_copy, folded(scaled=False), "not divided by the square root of d"),
    (check_without_copy, folded(apart="queries first"), "queries and heads of a group are mixed"),
    (check_without_copy, folded(apart="heads first"), "right heads, in wrong places"),
    (check_without_copy, folded(axis=-2), "the shape is right, but"),
    (
        check_without_copy,
        stretched,
        "makes a tensor of 4,800 numbers, and the keys have only 1,600",
    ),
    (check_without_copy, lambda q, k, v: folded()(q, k.mT.contiguous().mT, v), "`clone` makes a"),
    (check_without_copy, fused, "PyTorch's function has found them"),
    (check_without_copy, lambda q, k, v: folded()(q.detach(), k, v), "no gradient reaches q"),
]


@pytest.mark.parametrize(("check", "answer", "words"), ANSWERS)
def test_verdict(verdict: Any, check: Any, answer: Any, words: str) -> None:
    assert words in verdict(check, answer)
