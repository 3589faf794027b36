"""Exercises of "Masks in the wild": which way round, and a mask made ready for PyTorch."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from annotated_attention.attention import scaled_dot_product_attention
from annotated_attention.exercises._verdict import (
    Refused,
    at_sizes,
    call,
    check,
    random,
    require_function,
    require_tensor,
    require_unchanged,
)
from annotated_attention.masks import block_future, block_padding

Takes = Callable[[Tensor, Tensor], Tensor]  # of the tokens and of the mask

_TEXT = ("it", "was", "·", "·")
_CHOICES = ("mask", "~mask")


@check("turned")
def check_turned(answer: object) -> str:
    """Judge which way round four functions read a mask, and print the verdict.

    Args:
        answer: for each function, by name, ``"mask"`` or ``"~mask"``: what it is to get, where
            ``mask`` is True for a word.
    """
    functions = _functions()
    chosen = _read(answer, list(functions))
    for name, function in functions.items():
        seen = _seen(function, chosen[name])
        if seen != {"it", "was"}:
            raise Refused(
                f"given {chosen[name]}, {name.replace(', ', ' with ')} lets the query “it” in "
                f"“it was · ·” react to {_quoted(seen)} alone. Turn that one round."
            )
    return (
        "right: in all four, “it” in “it was · ·” reacts to “it” and “was”, and to no padding. "
        "Only F.scaled_dot_product_attention reads True as allowed."
    )


def _quoted(words: set[str]) -> str:
    return " and ".join(f"“{word}”" for word in sorted(words)) or "nothing"


def _functions() -> dict[str, Takes]:
    """Give the four functions, each with the mask where it goes."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(6)
        module = nn.MultiheadAttention(8, 2, batch_first=True)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return {
        "nn.MultiheadAttention, key_padding_mask": lambda x, given: module(
            x, x, x, key_padding_mask=given
        )[0],
        "F.scaled_dot_product_attention, attn_mask": lambda x, given: (
            F.scaled_dot_product_attention(x, x, x, given[:, None, :])
        ),
        "nn.TransformerEncoderLayer, src_key_padding_mask": lambda x, given: layer(
            x, src_key_padding_mask=given
        ),
        "this package's function, blocked": lambda x, given: scaled_dot_product_attention(
            x, x, x, blocked=given[:, None, :]
        )[0],
    }


def _seen(function: Takes, choice: str) -> set[str]:
    """Say which keys, by their words, the first word's output reacts to beyond its own path."""
    words = torch.tensor([[word != "·" for word in _TEXT]])  # (1, 4), True for a word
    (x,) = (tensor.float().requires_grad_() for tensor in random(6, (1, 4, 8)))
    output = function(x, words if choice == "mask" else ~words)[0, 0]  # (8,)
    (reaction,) = torch.autograd.grad((output * torch.arange(8)).sum(), x)  # (1, 4, 8)
    moved = reaction[0].abs().amax(-1) > 1e-6  # (4,)
    return {word for word, reacts in zip(_TEXT, moved.tolist(), strict=True) if reacts}


def _read(answer: object, names: list[str]) -> dict[str, str]:
    if answer is None or answer is ...:
        raise Refused(f"not yet, it is {answer if answer is None else '...'}.")
    if not isinstance(answer, Mapping) or set(answer) != set(names):
        raise Refused(f"it must be a dictionary with these keys: {'; '.join(names)}.")
    if "?" in answer.values():
        raise Refused('not yet, some functions still get "?".')
    for name in names:
        if answer[name] not in _CHOICES:
            raise Refused(f'"{answer[name]}" is not read, for {name}: write "mask" or "~mask".')
    return {name: answer[name] for name in names}


# The lengths of the texts, the keys that they are padded to, the heads, the newest words.
_SIZES = (((6, 4), 6, 4, 3), ((4, 5, 3), 5, 2, 5), ((7, 2), 7, 2, 1))


@check("make_ready")
def check_make_ready(answer: Callable[..., Any]) -> str:
    """Judge ``make_ready(attention_mask, n)``, and print the verdict.

    Args:
        answer: the reader's function of a tokenizer's mask, (b, m), and of the number of queries;
            it returns what ``F.scaled_dot_product_attention`` needs for (b, h, n, d).
    """
    require_function(answer)
    for turn, (lengths, m, h, n) in enumerate(_SIZES):
        words = ~block_padding(torch.tensor(lengths), m).flip(1)  # padded on the left
        given = words.long()
        with at_sizes(turn == 0, b=len(lengths), m=m, h=h, n=n):
            before = given.clone()
            found = require_tensor("it returns", call("your code", answer, given, n))
            require_unchanged("attention_mask", given, before)
            _judge(found, words, h, n)
    return (
        "right: padding is hidden, no query looks ahead, and the newest word sees all words before "
        f"it, at {len(_SIZES)} sizes, with one mask for all heads."
    )


def _judge(found: Tensor, words: Tensor, h: int, n: int) -> None:
    """Refuse a mask that is not right, with the question that it answers wrongly."""
    b, m = words.shape
    right = words[:, None, None, :] & ~block_future(m)[m - n :]  # (b, 1, n, m)
    if found.is_floating_point() and set(found.unique().tolist()) <= {0, -math.inf}:
        raise Refused(
            f"booleans or floats? It returns {found.dtype} with 0 and -inf, an additive mask. The "
            "function takes such masks, but a boolean one is asked for."
        )
    if found.dtype != torch.bool:
        raise Refused(
            f"booleans or floats? It returns {found.dtype}, and a boolean mask is asked for. "
            "Numbers are added to the scores: 1 would hide nothing."
            if found.is_floating_point()
            else f"booleans or floats? It returns {found.dtype}, which the function does not take."
        )
    if found.dim() < 4 and n > 1 and found.shape == (b, n, m):
        raise Refused(
            f"which shape? It returns (b, n, m) = {tuple(found.shape)}. Against the scores, (b, h, "
            "n, m), the samples would stand where the heads are: give the heads an axis of 1."
        )
    try:
        spread = found.expand(b, h, n, m)
    except RuntimeError:
        raise Refused(
            f"which shape? It returns {tuple(found.shape)}, which does not broadcast to (b, h, n, "
            f"m) = {(b, h, n, m)}."
        ) from None
    if spread.equal(right.expand(b, h, n, m)):
        return
    for reason, wrong in _wrong(words, n):
        if spread.equal(wrong.expand(b, h, n, m)):
            raise Refused(reason)
    sample, _, query, key = (spread != right).nonzero()[0].tolist()
    said = "allowed" if spread[sample, 0, query, key] else "hidden"
    what = "padding" if not words[sample, key] else "a word"
    raise Refused(
        f"in sample {sample}, the query at place {m - n + query} finds the key at place {key} "
        f"{said}; that key is {what}. Places are counted from 0."
    )


def _wrong(words: Tensor, n: int) -> list[tuple[str, Tensor]]:
    """List reasons with the mask that each leads to."""
    m = words.size(1)
    keys = words[:, None, None, :]  # (b, 1, 1, m)
    past = ~block_future(m)[m - n :]  # (n, m)
    corner = ~block_future(n, m)  # (n, m)
    return [
        (
            "which way round? It is inverted: this function reads True as allowed.",
            ~(keys & past),
        ),
        (
            "which corner? The diagonal begins at the top left, so the newest words count as the "
            "first ones and do not see what was written before them.",
            keys & corner,
        ),
        ("padding is hidden, but the queries still look ahead.", keys.expand(-1, -1, n, -1)),
        ("no query looks ahead, and padding is seen.", past),
        ("no query looks ahead, padding is seen, and the corner is the top left.", corner),
        (
            "“or” allows a key if one of the two masks allows it. Both must: use “and”.",
            keys | past,
        ),
        (
            "which way round? The padding is turned: True must stand for a word.",
            ~keys & past,
        ),
        (
            "the diagonal is one off: a query may see the key at its own place.",
            keys & ~torch.ones(n, m, dtype=torch.bool).triu(m - n),
        ),
        (
            "the diagonal is one off: each query sees the key after its own place.",
            keys & ~torch.ones(n, m, dtype=torch.bool).triu(m - n + 2),
        ),
    ]
