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

CHAPTER = "20_fewer_keys"


def test_groups_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_groups")
    assert before == "✗ my_groups: not yet, 6 of the 6 numbers are missing. "
    assert after.startswith("✓ my_groups: right: head i of the queries has KV head i // (h / g)")


def test_groups_may_be_a_tensor(verdict: Any) -> None:
    assert verdict(check_groups, torch.arange(3).repeat_interleave(2)).startswith("✓")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (torch.arange(3).repeat(2), "these are tiles"),
        ([i // 3 for i in range(6)], "that is two KV heads for groups of three"),
        ([1, 1, 2, 2, 3, 3], "counted from 0"),
        (list(range(6)), "a KV head for each head of queries"),
        ([0] * 6, "multi-query attention"),
        ([0, 0, 1, 2, 2, 1], "head 3 of the queries belongs to another KV head"),
        ([0, 0, 1], "a list of 6 numbers is asked for, and there are 3 of them"),
        ("001122", "a list of 6 numbers is asked for, and there are none"),
        (None, "not yet"),
    ],
)
def test_groups_names_the_mistake(verdict: Any, answer: object, reason: str) -> None:
    said = verdict(check_groups, answer)
    assert said.startswith("✗ my_groups: ")
    assert reason in said


def test_token_bytes_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_token_bytes")
    assert before == "✗ token_bytes: not yet, it returns None. "
    assert after == "✓ token_bytes: right. A token of Llama 2 70B takes 327,680 bytes. "


def token_bytes(
    each: int = 2, pair: int = 2, layers: bool = True, shared: bool = True, width: str = "right"
) -> Callable[[dict[str, int]], float]:
    """Write the formula, well or badly."""

    def answer(config: dict[str, int]) -> float:
        h = config["num_attention_heads"]
        g = config.get("num_key_value_heads", h)
        wide = config["hidden_size"] // (g if width == "by keys" else h)
        if width != "never given":
            wide = config.get("head_dim", wide)
        return each * pair * (config["num_hidden_layers"] if layers else 1) * wide * (
            g if shared else h
        )  # fmt: skip

    return answer


def test_token_bytes_accepts_other_ways(verdict: Any) -> None:
    assert verdict(check_token_bytes, token_bytes()).startswith("✓")

    def by_memory(config: dict[str, int]) -> int:
        h = config["num_attention_heads"]
        d = config.get("head_dim") or config["hidden_size"] // h
        heads = config.get("num_key_value_heads") or h
        kept = torch.empty(config["num_hidden_layers"], 2, heads, d, dtype=torch.half)
        return kept.untyped_storage().nbytes()

    assert verdict(check_token_bytes, by_memory).startswith("✓")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (token_bytes(pair=1), "that is half"),
        (token_bytes(each=1), "two times two"),
        (token_bytes(each=16), "which is 16 bits"),
        (token_bytes(each=4), "two bytes, not four"),
        (token_bytes(layers=False), "each layer has a cache of its own"),
        (token_bytes(shared=False), "a KV head for each head of queries"),
        (token_bytes(width="never given"), "`head_dim` where that is given"),
        (token_bytes(width="by keys"), "divided by the heads of *queries*"),
        (lambda config: config["num_key_value_heads"], "KeyError: 'num_key_value_heads'"),
        (lambda config: 7, "it makes 7 bytes, less than 192"),
        (lambda config: "many", "an object of type str; a whole number is asked for"),
        (192, "give the function or class itself"),
    ],
)
def test_token_bytes_names_the_mistake(verdict: Any, answer: Any, reason: str) -> None:
    said = verdict(check_token_bytes, answer)
    assert said.startswith("✗ token_bytes: ")
    assert reason in said


def test_without_copy_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_without_copy")
    assert before.startswith("✗ without_copy: the numbers are right, but `clone` makes a tensor of")
    assert after.startswith("✓ without_copy: right, and nothing as large as the keys is made")


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


def with_einsum(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q = q.unflatten(1, (k.size(1), -1))
    weights = (torch.einsum("bgrnd,bgmd->bgrnm", q, k) / q.size(-1) ** 0.5).softmax(-1)
    return torch.einsum("bgrnm,bgmd->bgrnd", weights, v).flatten(1, 2)


def one_by_one(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    r = q.size(1) // k.size(1)
    heads = [
        F.softmax(q[:, i] @ k[:, i // r].mT / q.size(-1) ** 0.5, -1) @ v[:, i // r]
        for i in range(q.size(1))
    ]
    return torch.stack(heads, 1)


@pytest.mark.parametrize("answer", [folded(), with_einsum, one_by_one])
def test_without_copy_accepts_other_ways(verdict: Any, answer: Any) -> None:
    assert verdict(check_without_copy, answer).startswith("✓ without_copy: right")


def stretched(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q = q.unflatten(1, (k.size(1), -1))
    weights = (q @ k[:, :, None].mT / q.size(-1) ** 0.5).softmax(-1)
    return (weights @ v[:, :, None]).flatten(1, 2)


def contiguous(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return folded()(q, k.mT.contiguous().mT, v)


def in_place(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with torch.no_grad():
        q /= 2
    return folded()(q, k, v)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (folded(tiled=True), "your groups are tiles: head i reads KV head i % g"),
        (folded(scaled=False), "not divided by the square root of d"),
        (folded(apart="queries first"), "queries and heads of a group are mixed up"),
        (folded(apart="heads first"), "right heads, in wrong places"),
        (folded(axis=-2), "the shape is right, but"),
        (stretched, "`clone` makes a tensor of 4,800 numbers, and the keys have only 1,600"),
        (contiguous, "`clone` makes a tensor of 1,600 numbers"),
        (in_place, "it changes its argument q in place"),
        (lambda q, k, v: folded()(q.detach(), k, v), "no gradient reaches q"),
        (lambda q, k, v: q @ k.mT, "RuntimeError"),
        (lambda q, k, v: None, "not yet"),
    ],
)
def test_without_copy_names_the_mistake(verdict: Any, answer: Any, reason: str) -> None:
    said = verdict(check_without_copy, answer)
    assert said.startswith("✗ without_copy: ")
    assert reason in said
