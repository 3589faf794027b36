"""The checks of “Transformer layers” accept what is right and name what is wrong."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from annotated_attention import block_future, merge_masks
from annotated_attention.exercises.transformer_layers import (
    check_decoder_mask,
    check_norm,
    check_pre_norm_decoder,
)

CHAPTER = "08_transformer_layers"


def test_norm_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_norm")
    assert before == "✗ norm: not yet, 4 of the 4 numbers are missing. "
    assert after.startswith("✓ norm: right. From (2, 0, 0, 2)")


@pytest.mark.parametrize("answer", [(1, -1, -1, 1), torch.tensor([1.0, -1.0, -1.0, 1.0])])
def test_norm_accepts_what_torch_makes(verdict: Any, answer: Any) -> None:
    torchs = torch.nn.LayerNorm(4)(torch.tensor([4.0, 0, 0, 4]))
    for right in (answer, torchs, torchs.tolist()):
        assert verdict(check_norm, right).startswith("✓ norm")


WORD = torch.tensor([4.0, 0, 0, 4])
WRONG_NORM = [
    (WORD, "that is the word itself"),
    (WORD - WORD.mean(), "the mean is gone. Now divide by the deviation"),
    ((WORD - WORD.mean()) / WORD.var(correction=0), "divided by the variance"),
    (WORD / WORD.std(correction=0), "the mean is still there"),
    ((WORD - WORD.mean()) / WORD.std(), "divide their sum by 4, not by 3"),
    (torch.nn.RMSNorm(4)(WORD).tolist(), "that is an RMSNorm"),
    ((WORD.mean() - WORD) / 2, "the signs are turned round"),
    ([1, -1, 1, 1], "number 3 is not 1. The mean is 2"),
    ([1, -1, None, 1], "not yet, 1 of the 4 numbers is missing"),
    ([1, -1], "a list of 4 numbers is asked for, and there are 2 of them"),
]


@pytest.mark.parametrize(("answer", "reason"), WRONG_NORM, ids=[r for _, r in WRONG_NORM])
def test_norm_names_the_mistake(verdict: Any, answer: Any, reason: str) -> None:
    said = verdict(check_norm, answer)
    assert said.startswith("✗ norm: ")
    assert reason in said


def test_decoder_mask_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_decoder_mask")
    assert before == "✗ decoder_mask: not yet, it returns None. "
    assert after.startswith("✓ decoder_mask: right: (b, 1, n, n)")


def pairs(padding: Tensor) -> Tensor:
    """Say it for each sample, query and key."""
    b, n = padding.shape
    rows = [[[bool(padding[i, k]) or k > q for k in range(n)] for q in range(n)] for i in range(b)]
    return torch.tensor(rows).unsqueeze(1)


def merged(padding: Tensor) -> Tensor:
    return merge_masks(block_future(padding.size(1)), padding[:, None, None])[0]


@pytest.mark.parametrize("answer", [pairs, merged])
def test_decoder_mask_accepts_other_ways(verdict: Any, answer: Callable[..., Tensor]) -> None:
    assert verdict(check_decoder_mask, answer).startswith("✓ decoder_mask")


def upper(n: int, diagonal: int) -> Tensor:
    return torch.arange(n)[None, :] >= torch.arange(n)[:, None] + diagonal


WRONG_MASK: list[tuple[Callable[..., Any], str]] = [
    (lambda p: ~merged(p), "True means blocked here, and you have True for allowed"),
    (lambda p: upper(p.size(1), 1).T | p[:, None, None], "it blocks the past instead of the futu"),
    (lambda p: upper(p.size(1), 0) | p[:, None, None], "it blocks the diagonal, too"),
    (lambda p: upper(p.size(1), 1) | p[:, None, :, None], "the padding blocks queries instead"),
    (lambda p: upper(p.size(1), 1) & p[:, None, None], "it blocks only what both masks block"),
    (lambda p: merged(p) | p[:, None, :, None], "padded queries are blocked, too"),
    (lambda p: block_future(p.size(1)), "the future is blocked, and the padding is not"),
    (lambda p: p[:, None, None, :], "the padding is blocked, and the future is not"),
    (lambda p: merged(p)[:, 0], "there is no axis for the heads"),
    (lambda p: merged(p).repeat(1, 4, 1, 1),
     "shape (2, 4, 5, 5); what fits is (b, 1, n, n), here (2, 1, 5, 5)"),
    (lambda p: torch.where(merged(p), -torch.inf, 0.0), "it returns torch.float32; a mask of bool"),
    (lambda p: upper(p.size(1), 2) | p[:, None, None],
     "in sample 0, query 0 and key 1, counted from 0, it says allowed"),
    (lambda p: p.fill_(True), "changes its argument padding"),
    (lambda p: merged(p[:1]).expand(p.size(0), -1, -1, -1),
     "the future is blocked, and the padding is not"),
    (lambda p: torch.cat([merged(p)[:1], merged(p)[1:] & ~p[1, None, None]]),
     "in sample 1, query 0 and key 0, counted from 0, it says allowed"),
    (lambda p: upper(5, 1) | p[:, None, None], "it is right at first, but not with b = 3, n = 3"),
    (lambda p: (p, p), "it returns a tuple of 2 things"),
    (lambda: None, "TypeError"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "reason"), WRONG_MASK, ids=[r for _, r in WRONG_MASK])
def test_decoder_mask_names_the_mistake(
    verdict: Any, answer: Callable[..., Any], reason: str
) -> None:
    said = verdict(check_decoder_mask, answer)
    assert said.startswith("✗ decoder_mask: ")
    assert reason in said


def test_pre_norm_decoder_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_pre_norm_decoder")
    assert before == "✗ pre_norm_decoder: not yet, it returns None. "
    assert after.startswith("✓ pre_norm_decoder: right, and so are the gradients")


def back(layer: Any, x: Tensor, **options: Any) -> Tensor:
    return layer.self_attn(x, x, x, need_weights=False, **options)[0]


def across(layer: Any, x: Tensor, memory: Tensor) -> Tensor:
    return layer.multihead_attn(query=x, key=memory, value=memory, need_weights=False)[0]


def think(layer: Any, x: Tensor) -> Tensor:
    return layer.linear2(layer.linear1(x).clamp(min=0))


def right(layer: Any, tgt: Tensor, memory: Tensor) -> Tensor:
    x = tgt + back(layer, layer.norm1(tgt), attn_mask=block_future(tgt.size(1)))
    x = x + across(layer, layer.norm2(x), memory)
    return x + think(layer, layer.norm3(x))


def itself(layer: Any, tgt: Tensor, memory: Tensor) -> Tensor:
    return layer(tgt, memory, tgt_is_causal=True)


@pytest.mark.parametrize("answer", [right, itself])
def test_pre_norm_decoder_accepts_other_ways(verdict: Any, answer: Callable[..., Tensor]) -> None:
    assert verdict(check_pre_norm_decoder, answer).startswith("✓ pre_norm_decoder")


def post(layer: Any, tgt: Tensor, memory: Tensor) -> Tensor:
    x = layer.norm1(tgt + back(layer, tgt, is_causal=True))
    x = layer.norm2(x + across(layer, x, memory))
    return layer.norm3(x + think(layer, x))


def seeing(layer: Any, tgt: Tensor, memory: Tensor) -> Tensor:
    return layer(tgt, memory)


def from_normed(layer: Any, tgt: Tensor, memory: Tensor) -> Tensor:
    x = layer.norm1(tgt)
    x = x + back(layer, x, is_causal=True)
    x = layer.norm2(x)
    x = x + across(layer, x, memory)
    x = layer.norm3(x)
    return x + think(layer, x)


def without(number: int) -> Callable[..., Tensor]:
    def answer(layer: Any, tgt: Tensor, memory: Tensor) -> Tensor:
        norms = [getattr(layer, f"norm{i}") for i in (1, 2, 3)]
        if number:
            norms[number - 1] = torch.nn.Identity()
        else:
            norms = [torch.nn.Identity()] * 3
        x = tgt + back(layer, norms[0](tgt), is_causal=True)
        x = x + across(layer, norms[1](x), memory)
        return x + think(layer, norms[2](x))

    return answer


def normed_memory(layer: Any, tgt: Tensor, memory: Tensor) -> Tensor:
    return right(layer, tgt, layer.norm2(memory))


def no_across(layer: Any, tgt: Tensor, memory: Tensor) -> Tensor:
    x = tgt + back(layer, layer.norm1(tgt), is_causal=True)
    return x + think(layer, layer.norm3(x))


def linear(layer: Any, tgt: Tensor, memory: Tensor) -> Tensor:
    x = tgt + back(layer, layer.norm1(tgt), is_causal=True)
    x = x + across(layer, layer.norm2(x), memory)
    return x + layer.linear2(layer.linear1(layer.norm3(x)))


def swapped(layer: Any, tgt: Tensor, memory: Tensor) -> Tensor:
    x = tgt + back(layer, layer.norm1(tgt), is_causal=True)
    x = x + across(layer, memory, layer.norm2(x))
    return x + think(layer, layer.norm3(x))


def no_residual(layer: Any, tgt: Tensor, memory: Tensor) -> Tensor:
    x = back(layer, layer.norm1(tgt), is_causal=True)
    x = across(layer, layer.norm2(x), memory)
    return think(layer, layer.norm3(x))


def in_place(layer: Any, tgt: Tensor, memory: Tensor) -> Tensor:
    tgt += back(layer, layer.norm1(tgt), is_causal=True)
    x = tgt + across(layer, layer.norm2(tgt), memory)
    return x + think(layer, layer.norm3(x))


WRONG_LAYER: list[tuple[Callable[..., Any], str]] = [
    (post, "that is post-LN"),
    (seeing, "words see later ones"),
    (from_normed, "you add to what is normalised"),
    (without(1), "norm1 is missing in front of the look back"),
    (without(2), "norm2 is missing in front of the look across"),
    (without(3), "norm3 is missing in front of the feed-forward network"),
    (without(0), "there is no norm at all"),
    (normed_memory, "the memory goes through norm2, too"),
    (no_across, "the look across is missing"),
    (linear, "the ReLU between linear1 and linear2 is missing"),
    (swapped, "your code raises RuntimeError: The size of tensor a (3)"),
    (no_residual, "the shape is right, but 144 of its 144 numbers are not"),
    (in_place, "changes its argument tgt in place"),
    (lambda *x: right(*x).detach(), "no gradient reaches tgt"),
    (lambda layer, tgt, memory: right(layer, tgt, memory.detach()), "no gradient reaches memory"),
    (lambda layer, tgt, memory: layer.self_attn(tgt, tgt, tgt), "it returns a tuple of 2 things"),
    (lambda layer, tgt: tgt, "TypeError"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "reason"), WRONG_LAYER, ids=[r for _, r in WRONG_LAYER])
def test_pre_norm_decoder_names_the_mistake(
    verdict: Any, answer: Callable[..., Any], reason: str
) -> None:
    said = verdict(check_pre_norm_decoder, answer)
    assert said.startswith("✗ pre_norm_decoder: ")
    assert reason in said
