"""The checks of “Batches” accept what is right and name what is wrong."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention.exercises.batches import (
    check_attend_heads,
    check_pattern,
    check_slice,
)

CHAPTER = "05_batches"


def test_slice_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_slice")
    assert before == "✗ my_slice: not yet, a number is missing. "
    assert after.startswith("✓ my_slice: right: 2 · 4 + 1 = 9. A sample keeps")


def test_slice_is_where_the_fold_puts_it(verdict: Any) -> None:
    folded = [(sample, head) for sample in range(3) for head in range(4)]
    assert verdict(check_slice, torch.tensor(folded.index((2, 1)))).startswith("✓ my_slice")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (5, "you count head by head. All heads of sample 0 come first"),
        (7, "a sample takes up as many slices as it has heads: 4, not 3"),
        (10, "you count the slices from 1"),
        (4, "you count samples and heads from 1"),
        (8, "that is where sample 2 begins, with its head 0"),
        (11, "slice 11 is head 3 of sample 2: all heads of a sample come together"),
        (12, "there are 12 slices, 0 to 11"),
        (9.0, "it is of type float; one whole number is asked for"),
        ("9", "it is of type str; one whole number is asked for"),
        ((2, 1), "it is of type tuple; one whole number is asked for"),
        (..., "not yet, a number is missing"),
    ],
)
def test_slice_names_the_mistake(verdict: Any, answer: object, reason: str) -> None:
    said = verdict(check_slice, answer)
    assert said.startswith("✗ my_slice: ")
    assert reason in said


def test_pattern_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_pattern")
    assert before == "✗ pattern: not yet, it is empty. "
    assert after == (
        "✓ pattern: right: it turns (3, 2, 24) into (8, 3, 6). Slice i * h + j is head j of sample "
        "i. "
    )


@pytest.mark.parametrize("answer", ["n b(h d)->(b h)n d", "  (n) b ( h d ) -> (b h) (n) d\n"])
def test_pattern_accepts_other_ways(verdict: Any, answer: str) -> None:
    assert verdict(check_pattern, answer).startswith("✓ pattern")


WRONG_PATTERN: list[tuple[object, str]] = [
    ("n b (h d) -> (h b) n d", "✗ pattern: (h b) puts the heads outside: first head 0 of"),
    ("n b (d h) -> (b h) n d", "(d h) deals the features out to the heads in turn"),
    ("n b (d h) -> (h b) n d", "so h is the outer and d the inner one: (h d). And (h b) puts"),
    ("b n (h d) -> (b h) n d", "sequence and batch are swapped on the left"),
    ("b n (h d) -> (n h) b d", "sequence and batch are swapped on the left"),
    ("n b (h d) -> (n h) b d", "sequence and batch are swapped: every word then meets those"),
    ("n b (h d) -> n (b h) d", "that is the first of two steps"),
    ("n b (h d) -> (b h) d n", "each slice is transposed: tokens come before features"),
    ("n b (h d) -> b h n d", "that is the layout with four axes"),
    ("n b (h d) -> b (n h) d", "you fold tokens and heads into one axis"),
    ("n b (h d) -> (b n) h d", "you fold samples and tokens into one axis"),
    ("n b (h d) -> b n (h d)", "the heads are still side by side"),
    ("n b (h d) -> n b (h d)", "what comes out is what goes in"),
    ("n b (h d) -> d n (b h)", "shape (6, 3, 8); what fits is (b * h, n, d), here (8, 3, 6)"),
    ("n b h d -> (b h) n d", "on the left, heads and their features form one axis"),
    ("(n b) (h d) -> (b h) n d", "its left side means a tensor of shape (6, 24)"),
    ("n b (h d) (b h) n d", "there is no arrow in it"),
    ("n b (h d) → (b h) n d", "write the arrow with two signs, ->, as einops does"),
    ("n b (h d) => (b h) n d", "there is no arrow in it"),
    ("n b (h d) -> n (b h) d -> (b h) n d", "there is more than one arrow"),
    ("n b (h d -> (b h) n d", 'the parentheses in "n b (h d" do not match'),
    ("n b h d) -> (b h) n d", 'the parentheses in "n b h d)" do not match'),
    ("n b ((h d)) -> (b h) n d", 'the parentheses in "n b ((h d))" do not match'),
    ("n b (hd) -> (b h) n d", '"hd" is read as one name. Put spaces between letters: h d.'),
    ("s b (h d) -> (b h) s d", '"s" is no letter of this exercise'),
    ("n b (heads d) -> (b heads) n d", '"heads" is no letter of this exercise'),
    ("N b (h d) -> (b h) N d", '"N" is no letter of this exercise'),
    ("n b (h*d) -> (b*h) n d", '"*" is not read'),
    ("n b (h d) 1 -> (b h) n d", '"1" is not read'),
    ("... (h d) -> ...", '"." is not read'),
    ("n b (h d) -> (b h) n", "d comes in but does not come out"),
    ("n b d -> (b h) n d", "h comes out but does not come in"),
    ("n b (h d) -> (b h) n n d", "n stands 2 times on the same side"),
    ("->", "its left side means a tensor of shape ()"),
    ("  ", "not yet, it is empty"),
    (["n b (h d)", "(b h) n d"], "an object of type list; text in quotes is asked for"),
    (None, "not yet, it is None"),
    (..., "not yet, it is ..."),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "reason"), WRONG_PATTERN, ids=[r for _, r in WRONG_PATTERN])
def test_pattern_names_the_mistake(verdict: Any, answer: object, reason: str) -> None:
    said = verdict(check_pattern, answer)
    assert said.startswith("✗ pattern: ")
    assert reason in said


def test_attend_heads_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_attend_heads")
    assert before.startswith(
        "✗ attend_heads: it is right at first, but not with b = 2, n = 3, m = 5, h = 4, d = 6: key "
        "and value are (2, 5, 24), and reshaped to (2, 3, 4, 10). So your code raises "
    )
    assert after.startswith("✓ attend_heads: right, and so are the gradients")


def cut(x: Tensor, h: int) -> Tensor:
    return x.unflatten(2, (h, -1)).transpose(1, 2)


def merge(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


def right(query: Tensor, key: Tensor, value: Tensor, h: int) -> Tensor:
    return merge(F.scaled_dot_product_attention(cut(query, h), cut(key, h), cut(value, h)))


def attend_folded(outer: str, inner: str) -> Callable[..., Tensor]:
    """Fold samples and heads in one order, and unfold them in another."""

    def answer(query: Tensor, key: Tensor, value: Tensor, h: int) -> Tensor:
        b, n, e = query.shape
        parts = [cut(x, h) for x in (query, key, value)]
        if outer == "h":
            parts = [x.transpose(0, 1) for x in parts]
        mixed = F.scaled_dot_product_attention(*(x.flatten(0, 1) for x in parts))
        if inner == "h":
            return merge(mixed.view(h, b, n, e // h).transpose(0, 1))
        return merge(mixed.view(b, h, n, e // h))

    return answer


def by_name(query: Tensor, key: Tensor, value: Tensor, h: int) -> Tensor:
    q, k, v = (x.view(*x.shape[:2], h, -1) for x in (query, key, value))
    weights = (torch.einsum("bnhd,bmhd->bhnm", q, k) / q.size(3) ** 0.5).softmax(-1)
    return torch.einsum("bhnm,bmhd->bnhd", weights, v).flatten(2)


@pytest.mark.parametrize(
    "answer", [right, by_name, attend_folded("b", "b"), attend_folded("h", "h")]
)
def test_attend_heads_accepts_other_ways(verdict: Any, answer: Callable[..., Tensor]) -> None:
    assert verdict(check_attend_heads, answer).startswith("✓ attend_heads")


def with_lengths(of_key: str, of_value: str) -> Callable[..., Tensor]:
    """Take the number of tokens of key and of value from the query, or from themselves."""

    def answer(query: Tensor, key: Tensor, value: Tensor, h: int) -> Tensor:
        b, n, e = query.shape
        q = query.reshape(b, n, h, -1).transpose(1, 2)
        k = key.reshape(b, n if of_key == "query" else key.size(1), h, -1).transpose(1, 2)
        v = torch.reshape(value, (b, n if of_value == "query" else value.size(1), h, -1))
        weights = (q @ k.mT / q.size(3) ** 0.5).softmax(-1)
        return (weights @ v.transpose(1, 2)).transpose(1, 2).reshape(b, n, e)

    return answer


def padded(mode: str) -> Callable[..., Tensor]:
    """Fill key and value up to the length of query."""

    def answer(query: Tensor, key: Tensor, value: Tensor, h: int) -> Tensor:
        missing = max(query.size(1) - key.size(1), 0)
        return right(query, *(F.pad(x.mT, (0, missing), mode).mT for x in (key, value)), h)

    return answer


def straight(query: Tensor, key: Tensor, value: Tensor, h: int) -> Tensor:
    b, _, e = query.shape
    mixed = F.scaled_dot_product_attention(
        *(x.reshape(b, h, -1, e // h) for x in (query, key, value))
    )
    return merge(mixed)


def merged_straight(query: Tensor, key: Tensor, value: Tensor, h: int) -> Tensor:
    mixed = F.scaled_dot_product_attention(*(cut(x, h) for x in (query, key, value)))
    return mixed.reshape(query.shape)


def not_moved(query: Tensor, key: Tensor, value: Tensor, h: int) -> Tensor:
    parts = (x.unflatten(2, (h, -1)) for x in (query, key, value))
    return F.scaled_dot_product_attention(*parts).flatten(2)


def interleaved(query: Tensor, key: Tensor, value: Tensor, h: int) -> Tensor:
    parts = (x.unflatten(2, (-1, h)).permute(0, 3, 1, 2) for x in (query, key, value))
    return F.scaled_dot_product_attention(*parts).permute(0, 2, 3, 1).flatten(2)


def of_keys_length(query: Tensor, key: Tensor, value: Tensor, h: int) -> Tensor:
    output = right(query, key, value, h)
    return output.repeat(1, 2, 1)[:, : key.size(1)]


def in_place(query: Tensor, key: Tensor, value: Tensor, h: int) -> Tensor:
    query /= (query.size(2) / h) ** 0.5
    q, k, v = (cut(x, h) for x in (query, key, value))
    return merge((q @ k.mT).softmax(-1) @ v)


CROSS = "it is right at first, but not with b = 2, n = 3, m = 5, h = 4, d = 6: "
FEWER = "it is right at first, but not with b = 3, n = 6, m = 2, h = 5, d = 4: "

WRONG_ATTEND: list[tuple[Callable[..., Any], str]] = [
    (with_lengths("query", "query"), f"{CROSS}key and value are (2, 5, 24), and reshaped to (2,"),
    (with_lengths("key", "query"), f"{CROSS}value is (2, 5, 24), and reshaped to (2, 3, 4, 10)"),
    (with_lengths("query", "value"), f"{CROSS}key is (2, 5, 24), and reshaped to (2, 3, 4, 10)"),
    (lambda q, k, v, h: right(q, k[:, : q.size(1)], v[:, : q.size(1)], h),
     f"{CROSS}only the first n keys are used"),
    (lambda q, k, v, h: right(q, k[:, -q.size(1) :], v[:, -q.size(1) :], h),
     f"{CROSS}only the last n keys are used"),
    (padded("constant"), f"{FEWER}you fill key and value up to n tokens"),
    (padded("replicate"), f"{FEWER}you fill key and value up to n tokens"),
    (of_keys_length, f"{CROSS}it returns one row per key, (b, m, e)"),
    (lambda q, k, v, h: right(q, k, v, h).reshape(k.shape),
     f"{CROSS}the output is reshaped to (2, 5, 24), but queries get rows, and not keys. So"),
    (lambda q, k, v, h: right(q, k, v, h).reshape(*k.shape), f"{CROSS}the output is reshaped to"),
    (lambda q, k, v, h: right(q, k, v, h)[:, :3], "shape (3, 3, 20); what fits is (b, n, e), here"),
    (attend_folded("h", "b"), "folded with heads first, (h b), and unfolded with samples first"),
    (attend_folded("b", "h"), "folded with samples first, (b h), and unfolded with heads first"),
    (merged_straight, "the heads are merged by a straight reshape"),
    (straight, "the heads are split by a straight reshape"),
    (lambda q, k, v, h: straight(q, k, v, h).unflatten(2, (h, -1)).transpose(1, 2).reshape(q.shape),
     "the heads are split by a straight reshape"),
    (interleaved, "the heads are interleaved"),
    (not_moved, "the heads stay behind the tokens, (b, n, h, d), so the heads of a token attend"),
    (lambda q, k, v, h: not_moved(q, k, v, h).unflatten(2, (h, -1)).transpose(1, 2)
     .reshape(q.shape), "the heads stay behind the tokens"),
    (lambda q, k, v, h: right(k, q, v, h), "query and key are in each other's place"),
    (lambda q, k, v, h: right(q, q, q, h), "every word attends to query"),
    (lambda q, k, v, h: right(q, k, k, h), "you mix the keys"),
    (lambda q, k, v, h: right(q, v, k, h), "key and value are in each other's place"),
    (lambda q, k, v, h: right(q, k, v, 1), "the features are not split into heads"),
    (lambda q, k, v, h: right(q, k, v, 4), f"{FEWER}the shape is right, but 360 of its 360"),
    (lambda q, k, v, h: cut(q, h), "shape (2, 4, 3, 6); what fits is (b, n, e), here (2, 3, 24)"),
    (lambda q, k, v, h: right(q, k, v, 7), "your code raises RuntimeError: unflatten: "),
    (lambda q, k, v: q, "TypeError: "),
    (lambda q, k, v, h: (right(q, k, v, h), None), "it returns a tuple of 2 things"),
    (lambda q, k, v, h: None, "not yet, it returns None"),
    (in_place, "changes its argument query in place"),
    (lambda q, k, v, h: right(q, k.detach(), v, h), "no gradient reaches key"),
    (lambda q, k, v, h: right(q, k, (v + v.detach()) / 2, h), "the gradient of value is not"),
    (lambda *x: right(*x).float(), "torch.float64 goes in and torch.float32 comes out"),
    (nn.MultiheadAttention(24, 4), "your code raises"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "reason"), WRONG_ATTEND, ids=[r for _, r in WRONG_ATTEND])
def test_attend_heads_names_the_mistake(
    verdict: Any, answer: Callable[..., Any], reason: str
) -> None:
    said = verdict(check_attend_heads, answer)
    assert said.startswith("✗ attend_heads: ")
    assert reason in said
