"""The checks of “Split and stack” accept what is right and name what is wrong."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from annotated_attention.exercises.split_and_stack import check_columns, check_pack, check_silence

CHAPTER = "03_split_and_stack"
Heads = list[tuple[Tensor, Tensor, Tensor]]


def test_columns_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_columns")
    assert before == "✗ my_columns: not yet, a number is missing. "
    assert after.startswith(
        "✓ my_columns: right. The head with index i has the slice i * d : (i + 1) * d, here 12:18"
    )


def test_columns_accepts_other_ways(verdict: Any) -> None:
    owner = torch.arange(24).view(4, 6)[2]
    for answer in ([12, 18], torch.stack([owner[0], owner[-1] + 1])):
        assert verdict(check_columns, answer).startswith("✓ my_columns")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((6, 12), "that slice is the second head; the third begins after it"),
        ((12, 17), "A slice ends before its second number, so this one leaves out column 17"),
        ((13, 19), "you count the columns from 1"),
        ((13, 18), "you count the columns from 1; the first one is column 0"),
        ((8, 12), "you take the number of heads (4) for the width of a head"),
        ((2, 3), "that is one column. A head has 6 of them"),
        ((0, 24), "that slice has 24 columns; a head has 6 of them"),
        ((18, 24), "the width is right, but the third head does not begin at column 18"),
        ((12,), "it is 1 numbers; a pair, start and stop of a slice, is asked for"),
        (12, "it is an object of type int; a pair, start and stop of a slice, is asked for"),
        (slice(12, 18), "an object of type slice"),
        ((12.0, 18.0), "it is (float, float); a pair"),
        (..., "not yet, it is ..."),
    ],
)
def test_columns_names_the_mistake(verdict: Any, answer: object, reason: str) -> None:
    said = verdict(check_columns, answer)
    assert said.startswith("✗ my_columns: ")
    assert reason in said


def test_silence_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_silence")
    assert before == "✗ silence: not yet, it returns None. "
    assert after.startswith("✓ silence: right for every head, and so are the gradients")


def in_pieces(w_o: Tensor, head: int, num_heads: int) -> Tensor:
    blocks = list(w_o.chunk(num_heads))
    blocks[head] = torch.zeros_like(blocks[head])
    return torch.cat(blocks)


def masked(w_o: Tensor, head: int, num_heads: int) -> Tensor:
    owner = torch.arange(len(w_o)) // (len(w_o) // num_heads)
    return w_o.masked_fill((owner == head)[:, None], 0)


def viewed(w_o: Tensor, head: int, num_heads: int) -> Tensor:
    blocks = w_o.clone().view(num_heads, -1, w_o.size(1))
    blocks[head] = 0
    return blocks.flatten(0, 1)


@pytest.mark.parametrize("answer", [in_pieces, masked, viewed])
def test_silence_accepts_other_ways(verdict: Any, answer: Callable[..., Tensor]) -> None:
    assert verdict(check_silence, answer).startswith("✓ silence")


def zeroing(where: Callable[[int, int, int], Any]) -> Callable[..., Tensor]:
    """Zero what ``where`` says of head, h and d."""

    def answer(w_o: Tensor, head: int, num_heads: int) -> Tensor:
        silent = w_o.clone()
        silent[where(head, num_heads, len(w_o) // num_heads)] = 0
        return silent

    return answer


def in_place(w_o: Tensor, head: int, num_heads: int) -> Tensor:
    d = len(w_o) // num_heads
    w_o[head * d : (head + 1) * d] = 0
    return w_o


def removed(w_o: Tensor, head: int, num_heads: int) -> Tensor:
    blocks = list(w_o.chunk(num_heads))
    del blocks[head]
    return torch.cat(blocks)


def kept(w_o: Tensor, head: int, num_heads: int) -> Tensor:
    return w_o - in_pieces(w_o, head, num_heads)


def without_first(w_o: Tensor, head: int, num_heads: int) -> Tensor:
    """Take counting from the end for head 0, as a slice that ends at -0 does."""
    return in_pieces(w_o, head, num_heads) if head else w_o.clone()


WRONG_SILENCE: list[tuple[Callable[..., Any], str]] = [
    (zeroing(lambda i, h, d: (slice(None), slice(i * d, (i + 1) * d))), "you zero columns"),
    (zeroing(lambda i, h, d: slice((i - 1) * d, i * d)), "you silence head 0 in place of head 1"),
    (zeroing(lambda i, h, d: slice((h - 1 - i) * d, (h - i) * d)), "silence head 2 in place of"),
    (zeroing(lambda i, h, d: slice(i, None, h)), "you zero every h-th row: these are"),
    (zeroing(lambda i, h, d: slice(i * h, (i + 1) * h)), "num_heads for the height of a block"),
    (zeroing(lambda i, h, d: slice(i * h, i * h + d)), "num_heads for the height of a block"),
    (zeroing(lambda i, h, d: i), "you zero a single row"),
    (zeroing(lambda i, h, d: i * d), "you zero a single row"),
    (in_place, "changes its argument w_o in place"),
    (lambda w_o, head, num_heads: torch.zeros_like(w_o), "no head contributes any more"),
    (lambda w_o, head, num_heads: w_o.clone(), "every head still contributes"),
    (kept, "the other way round: you keep this head"),
    (removed, "the rows of the head are gone"),
    (lambda *x: in_pieces(*x).T, "it is right but transposed"),
    (without_first, "not with head = 0, h = 4, d = 6, e = 24: every head still contributes"),
    (zeroing(lambda i, h, d: slice(i * 6, (i + 1) * 6)),
     "right at first, but not with head = 1, h = 3, d = 5, e = 7: "),
    (lambda *x: in_pieces(*x).detach(), "no gradient reaches w_o"),
    (lambda w_o, *x: in_pieces(w_o, *x) / 2 + in_pieces(w_o, *x).detach() / 2,
     "the gradient of w_o is not"),
    (lambda *x: in_pieces(*x).float(), "torch.float64 goes in and torch.float32 comes out"),
    (lambda *x: in_pieces(*x) + 1, "576 of its 576 numbers are not"),
    (lambda w_o, head, h: w_o.chunk(h), "it returns a tuple of 4 things"),
    (lambda w_o, head, h: w_o.chunk(h)[head], "(6, 24); what fits is (h * d, e), here (24, 24)"),
    (lambda w_o, head: w_o, "TypeError: "),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "reason"), WRONG_SILENCE, ids=[r for _, r in WRONG_SILENCE])
def test_silence_names_the_mistake(verdict: Any, answer: Callable[..., Any], reason: str) -> None:
    said = verdict(check_silence, answer)
    assert said.startswith("✗ silence: ")
    assert reason in said


def test_pack_stub_and_solution(printed: Any) -> None:
    before, after = printed(CHAPTER, "check_pack")
    assert before == "✗ pack: not yet, it returns None. "
    assert after.startswith("✓ pack: right. Loaded into nn.MultiheadAttention, it gives")


def wide(heads: Heads, order: tuple[int, ...] = (0, 1, 2)) -> Tensor:
    """Put all queries side by side, then all keys, then all values, or in another order."""
    return torch.cat([head[part] for part in order for head in heads], 1)


def by_head(heads: Heads) -> Tensor:
    return torch.cat([w for head in heads for w in head], 1)


def interleaved(heads: Heads) -> Tensor:
    parts = [torch.stack([head[part] for head in heads], 2) for part in range(3)]
    return torch.cat([part.flatten(1) for part in parts], 1)


def row_blocks(heads: Heads) -> Tensor:
    return torch.cat([head[part].T for part in range(3) for head in heads])


def below(heads: Heads) -> Tensor:
    return torch.cat([torch.cat(part, dim=0) for part in zip(*heads, strict=True)], dim=1)


def stacked(heads: Heads) -> Tensor:
    matrices = torch.stack([torch.stack(head) for head in heads])
    return matrices.permute(1, 0, 3, 2).reshape(-1, matrices.size(2))


def filled(heads: Heads) -> Tensor:
    e, d = heads[0][0].shape
    packed = torch.empty(3 * e, e, dtype=torch.float64)
    for i, head in enumerate(heads):
        for part, w in enumerate(head):
            packed[part * e + i * d : part * e + (i + 1) * d] = w.T
    return packed


@pytest.mark.parametrize("answer", [row_blocks, stacked, filled])
def test_pack_accepts_other_ways(verdict: Any, answer: Callable[..., Tensor]) -> None:
    assert verdict(check_pack, answer).startswith("✓ pack")


def popping(heads: Heads) -> Tensor:
    packed = row_blocks(heads)
    heads.pop()
    return packed


def appending(heads: Heads) -> Tensor:
    packed = row_blocks(heads)
    heads.append(None)  # type: ignore[arg-type]
    return packed


def scaling(heads: Heads) -> Tensor:
    for head in heads:
        head[0].mul_(2)
    return row_blocks(heads)


WRONG_PACK: list[tuple[Callable[..., Any], str]] = [
    (wide, "✗ pack: you do not transpose"),
    (lambda heads: by_head(heads).T, "✗ pack: it goes head by head"),
    (by_head, "it goes head by head (q, k and v of the first, then of the second), but PyTorch "
     "cuts it into thirds: first the queries of all heads, then all keys, then all values. And "
     "you do not transpose"),
    (lambda heads: wide(heads, (0, 2, 1)).T, "you pack queries, then values, then keys"),
    (lambda heads: wide(heads, (2, 1, 0)).T, "you pack values, then keys, then queries"),
    (lambda heads: row_blocks(heads[::-1]), "the heads are in reversed order"),
    (lambda heads: interleaved(heads).T, "the features of the heads are interleaved"),
    (lambda heads: torch.cat(wide(heads).chunk(3, 1)), "stand below each other without being"),
    (lambda heads: wide(heads).reshape(-1, len(heads[0][0])), "you reshape where a transpose"),
    (lambda heads: torch.cat([h[part] for part in range(3) for h in heads]),
     "heads share the columns of a wide matrix"),
    (lambda heads: torch.cat([h[part].T for part in range(3) for h in heads], 1),
     "once transposed, (d, e) matrices go below each other"),
    (lambda heads: below(heads), "heads share the columns of a wide matrix"),
    (lambda heads: below(heads).T, "heads share the columns of a wide matrix"),
    (lambda heads: torch.cat(wide(heads).chunk(3, 1)).T, "you put W_Q, W_K and W_V below each"),
    (lambda heads: wide(heads[:1]).T, "shape (18, 24); what fits is (3 * e, e), here (72, 24)"),
    (lambda heads: row_blocks(heads) if len(heads) == 4 else wide(heads),
     "right at first, but not with h = 3, d = 5, e = 15: you do not transpose"),
    (lambda heads: nn.Parameter(row_blocks(heads)), "no gradient reaches heads[0][0], so it cannot "
     "be learned. Something cuts the graph: detach, .data, no_grad, item, numpy, torch.tensor or a "
     "new nn.Parameter"),
    (lambda heads: row_blocks(heads).data, "no gradient reaches heads[0][0]"),
    (lambda heads: row_blocks([(q, k.detach(), v) for q, k, v in heads]),
     "no gradient reaches heads[0][1]"),
    (lambda heads: row_blocks(heads) * 2 - row_blocks(heads).detach(), "gradient of heads[0][0]"),
    (lambda heads: row_blocks(heads).float(), "torch.float64 goes in and torch.float32 comes"),
    (popping, "changes its argument heads in place"),
    (appending, "changes its argument heads in place"),
    (scaling, "changes its argument heads in place"),
    (lambda heads: [wide(heads)], "it returns a list of 1 things"),
    (lambda heads: heads[0] @ heads[1], "TypeError: "),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "reason"), WRONG_PACK, ids=[r for _, r in WRONG_PACK])
def test_pack_names_the_mistake(verdict: Any, answer: Callable[..., Any], reason: str) -> None:
    said = verdict(check_pack, answer)
    assert said.startswith("✗ pack: ")
    assert reason in said
