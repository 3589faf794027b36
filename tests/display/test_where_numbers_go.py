"""Where every number goes: the figure moves numbers in a browser as torch moves them."""

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from annotated_attention import merge_heads, split_heads
from annotated_attention.mistakes.reshapes import merge_without_transpose, split_without_transpose

MODULE = "where_numbers_go.js"
SIZES = [{"n": n, "h": h, "d": d} for n, h, d in product(range(1, 6), range(1, 5), range(1, 5))]
WAYS = list(product([True, False], repeat=2))


def torchs(n: int, h: int, d: int, split: bool, merge: bool) -> list[Tensor | None]:
    """Give every step as torch makes it; a step that the way leaves out is None."""
    x = torch.arange(n * h * d).view(n, h * d)  # (n, h * d)
    heads = split_heads(x, h) if split else split_without_transpose(x, h)  # (h, n, d)
    result = merge_heads(heads) if merge else merge_without_transpose(heads)  # (n, h * d)
    cut, joined = x.view(n, h, d), heads.transpose(0, 1)  # (n, h, d)
    return [x, cut if split else None, heads, joined if merge else None, result]


@pytest.mark.parametrize(("split", "merge"), WAYS)
def test_every_step_at_every_size(script: Any, split: bool, merge: bool) -> None:
    for sizes in SIZES:
        expected = [
            {"shape": list(step.shape), "numbers": step.flatten().tolist()}
            if step is not None
            else None
            for step in torchs(**sizes, split=split, merge=merge)
        ]
        assert script("steps", sizes, split, merge) == expected, sizes


@pytest.mark.parametrize(("split", "merge"), WAYS)
def test_what_is_in_a_wrong_place(script: Any, split: bool, merge: bool) -> None:
    for sizes in SIZES:
        n, h, d = sizes.values()
        x = torch.arange(n * h * d).view(n, h * d)  # (n, h * d)
        _, _, heads, _, result = torchs(n, h, d, split, merge)
        assert heads is not None
        assert result is not None
        tokens = result // (h * d)  # (n, h * d)
        assert script("count", sizes, split, merge) == {
            "heads": int((heads != split_heads(x, h)).sum()),
            "first": (heads[0].flatten() // (h * d) + 1).unique().tolist(),
            "result": int((result != x).sum()),
            "mixed": int((tokens != tokens[:, :1]).any(1).sum()),
        }, sizes


def test_what_is_said(script: Any) -> None:
    sizes = {"n": 3, "h": 2, "d": 2}
    said = {way: script("say", sizes, *way).split("\n") for way in WAYS}
    assert said == {
        (True, True): [
            "Step 5 of 5, the right way.",
            "Heads: all in place.",
            "Result: all in place.",
        ],
        (True, False): [
            "Step 5 of 5, wrong merge.",
            "Heads: all in place.",
            "Result: 8 of 12 numbers in a wrong place; 3 of 3 rows mix tokens.",
        ],
        (False, True): [
            "Step 5 of 5, wrong split.",
            "Heads: 8 of 12 numbers in a wrong place; head 1 has only tokens 1 and 2.",
            "Result: 8 of 12 numbers in a wrong place; 3 of 3 rows mix tokens.",
        ],
        (False, False): [
            "Step 5 of 5, both wrong.",
            "Heads: 8 of 12 numbers in a wrong place; head 1 has only tokens 1 and 2.",
            "Result: all in place, as one mistake undoes the other.",
        ],
    }
    assert script("say", sizes, False, True, 2) == "Step 2 of 5, wrong split."
    assert script("say", sizes, False, True, 4) == "\n".join(
        ["Step 4 of 5, wrong split.", said[False, True][1]]
    )
    assert "has only token 1." in script("say", {"n": 2, "h": 4, "d": 1}, False, True)
    assert "has only tokens 1, 2 and 3." in script("say", {"n": 5, "h": 2, "d": 1}, False, True)


def test_words_fit_at_every_size(script: Any) -> None:
    """A head is said to have only some tokens, and rows to mix some, where that is so."""
    for sizes, (split, merge) in product(SIZES, WAYS):
        found = script("count", sizes, split, merge)
        assert not found["heads"] or len(found["first"]) < sizes["n"]
        assert bool(found["result"]) == bool(found["mixed"])


def test_arrows_reach_every_cell(script: Any) -> None:
    for shape in ([1, 3, 4], [2, 3, 2], [4, 1, 3], [1, 1, 1]):
        a, b, c = shape
        keys, reached, frontier = ["ArrowRight", "ArrowDown"], {0}, [0]
        while frontier:
            at = frontier.pop()
            for key, back in zip(keys, ["ArrowLeft", "ArrowUp"], strict=True):
                to = script("next", key, at, shape)
                assert to == at or script("next", back, to, shape) == at
                frontier += [to] if to not in reached else []
                reached.add(to)
        assert reached == set(range(a * b * c))
    assert script("next", "ArrowRight", 1, [2, 3, 2]) == 6  # the same row of the next slice
    assert script("next", "ArrowLeft", 0, [2, 3, 2]) == 0
    assert script("next", "Enter", 0, [2, 3, 2]) is None
