"""Exercises of "Batches": a slice, the fold in words, a bug that equal lengths hide."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from annotated_attention.attention import scaled_dot_product_attention
from annotated_attention.exercises._exercise import Either, Exercise, NotYet, Refused, normal
from annotated_attention.exercises._values import whole_numbers


def _whose_slice(answer: object, found: Tensor, right: Tensor) -> str:
    """Say which head of which sample it is."""
    if not 0 <= found < 12:
        return "there are 12 slices, 0 to 11."
    i, j = divmod(int(found), 4)
    return f"slice {int(found)} is head {j} of sample {i}: all heads of a sample come together."


check_slice = Exercise(
    name="my_slice",
    right=9,
    praise="right: 2 · 4 + 1 = 9. A sample keeps its heads together.",
    wrong={
        "you count head by head. All heads of sample 0 come first.": 5,
        "a sample takes up as many slices as it has heads: 4, not 3.": 7,
        "you count the slices from 1. The first one is slice 0.": 10,
        "you count samples and heads from 1.": 4,
        "that is where sample 2 begins, with its head 0.": 8,
    },
    run=whole_numbers(1, "one whole number"),
    why=_whose_slice,
)


_SIGNS = ("n", "b", "h", "d", "(", ")", "->")


def _signs(answer: object) -> Tensor:
    """Read a sentence of einops sign by sign."""
    if answer is None or answer is ... or (isinstance(answer, str) and not answer.strip()):
        raise NotYet("it is empty")
    if not isinstance(answer, str):
        kind = type(answer).__name__
        raise Refused(f"it is an object of type {kind}; text in quotes is asked for.")
    plain = re.sub(r"\(\s*(\w+)\s*\)", r"\1", answer)  # one letter alone needs no parentheses
    signs = re.findall(r"->|\w+|\S", plain)
    for sign in signs:
        if sign not in _SIGNS:
            raise Refused(
                f'"{sign}" is not read. Write the letters n, b, h and d with spaces between them, '
                "parentheses, and one arrow, ->."
            )
    return torch.tensor([_SIGNS.index(sign) for sign in signs])


def _which_side(answer: object, found: Tensor, right: Tensor) -> str:
    """Say which side of the arrow is wrong."""
    left = right[: right.tolist().index(_SIGNS.index("->")) + 1]
    if not found[: len(left)].equal(left):
        return (
            "left of the one arrow, ->, stands what comes in, sequence-first, with all heads side "
            "by side: three axes, the last one made of h and d in parentheses."
        )
    return (
        "right of the arrow stand three axes, too: slices, made of two letters in parentheses, "
        "then tokens, then features. Each letter comes out once."
    )


_DEALT = (
    "(d h) deals the features out to the heads in turn. The d features of a head are neighbours, "
    "so h is the outer and d the inner one: (h d)."
)
_COMES_OUT = {
    "(h b) puts the heads outside: first head 0 of every sample. The slices go sample by sample, "
    "so that i * h + j is head j of sample i.": "(h b) n d",
    "each slice is transposed: tokens come before features.": "(b h) d n",
    "each slice is transposed, and (h b) puts the heads outside.": "(h b) d n",
    "that is the first of two steps: the slices still have to go in front, where @ takes them for "
    "a batch.": "n (b h) d",
    "sequence and batch are swapped: every word then meets those at its place in the other "
    "samples.": "(n h) b d",
    "you fold tokens and heads into one axis. Fold samples and heads.": "b (n h) d",
    "you fold samples and tokens into one axis: different samples then meet.": "(b n) h d",
    "that is the layout with four axes. Put samples and heads into one: (b h).": "b h n d",
    "that is batch-first, but the heads are still side by side.": "b n (h d)",
    "what comes out is what goes in.": "n b (h d)",
}

check_pattern = Exercise(
    name="pattern",
    right="n b (h d) -> (b h) n d",
    praise=("right: it turns (3, 2, 24) into (8, 3, 6). Slice i * h + j is head j of sample i."),
    wrong={
        "sequence and batch are swapped on the left: sequence-first means n, then b.": (
            "b n (h d) -> (b h) n d"
        ),
        _DEALT: "n b (d h) -> (b h) n d",
        **{sentence: f"n b (h d) -> {out}" for sentence, out in _COMES_OUT.items()},
        **{f"{_DEALT} And {also}": f"n b (d h) -> {out}" for also, out in _COMES_OUT.items()},
    },
    run=_signs,
    why=_which_side,
)

Split = Callable[[Tensor, int], Tensor]
Merge = Callable[[Tensor, int], Tensor]


def _split(x: Tensor, h: int) -> Tensor:
    return x.unflatten(-1, (h, -1)).transpose(1, 2)


def _split_straight(x: Tensor, h: int) -> Tensor:
    return x.reshape(len(x), h, -1, x.size(-1) // h)


def _dealt(x: Tensor, h: int) -> Tensor:
    return x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2)


def _merge(mixed: Tensor, h: int) -> Tensor:
    return mixed.transpose(1, 2).flatten(2)


def _merge_straight(mixed: Tensor, h: int) -> Tensor:
    b, _, n, d = mixed.shape
    return mixed.reshape(b, n, h * d)


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    h: int,
    split: Split = _split,
    merge: Merge = _merge,
    given: Callable[..., Any] = lambda query, key, value: (query, key, value),
) -> Tensor:
    """Attend with h heads, with a mistake or without."""
    mixed, _ = scaled_dot_product_attention(*(split(x, h) for x in given(query, key, value)))
    return merge(mixed, h)


def _with(**mistake: Any) -> Callable[..., Tensor]:
    return partial(_attend, **mistake)


def _stub(query: Tensor, key: Tensor, value: Tensor, h: int) -> Tensor:
    """Cut key and value into as many tokens as the query has."""
    n = query.size(1)
    return _attend(query, key, value, h, lambda x, h: x.reshape(len(x), n, h, -1).transpose(1, 2))


def _as_long_as_key(query: Tensor, key: Tensor, value: Tensor, h: int) -> Tensor:
    return _attend(query, key, value, h).reshape(key.shape)


def _a_row_per_key(
    answer: object, found: Tensor, right: Tensor, query: Tensor, key: Tensor, *others: Any
) -> str | None:
    if found.shape == key.shape != query.shape:
        return (
            "it returns one row per key, (b, m, e). Each query gets one: the output has the "
            "query's length."
        )
    return None


check_attend_heads = Exercise(
    name="attend_heads",
    right=_attend,
    praise="right, and so are the gradients: for n = m, for fewer queries than keys, and for more.",
    wrong={
        "query and key are in each other's place.": _with(given=lambda q, k, v: (k, q, v)),
        "only the first n keys are used. The others count as much: there are m of them.": (
            _with(given=lambda q, k, v: (q, k[:, : q.size(1)], v[:, : q.size(1)]))
        ),
        "every word attends to query: pass key and value on.": (
            _with(given=lambda q, k, v: (q, q, q))
        ),
        "you mix the keys: the weights belong to value.": _with(given=lambda q, k, v: (q, k, k)),
        "key and value are in each other's place.": _with(given=lambda q, k, v: (q, v, k)),
        "the features are not split into heads.": lambda q, k, v, h: _attend(q, k, v, 1),
        "the folded axis is cut in the wrong order: folded with heads first, (h b), and unfolded "
        "with samples first, (b h). Heads end up in the wrong samples.": _with(
            merge=lambda x, h: _merge(x.transpose(0, 1).reshape(x.shape), h)
        ),
        "the folded axis is cut in the wrong order: folded with samples first, (b h), and unfolded "
        "with heads first, (h b). Heads end up in the wrong samples.": _with(
            merge=lambda x, h: _merge(x.reshape(h, -1, *x.shape[2:]).transpose(0, 1), h)
        ),
        "the heads are merged by a straight reshape, which mixes tokens. Transpose first.": (
            _with(merge=_merge_straight)
        ),
        "the heads are split by a straight reshape to (b, h, m, d), which mixes tokens. Cut the "
        "features first, then move the heads.": Either(
            [_with(split=_split_straight), _with(split=_split_straight, merge=_merge_straight)]
        ),
        "the heads stay behind the tokens, (b, n, h, d), so the heads of a token attend to each "
        "other. Move them to the front: (b, h, n, d).": Either(
            [
                _with(split=lambda x, h: x.unflatten(-1, (h, -1)), merge=lambda x, h: x.flatten(2)),
                _with(
                    split=lambda x, h: x.unflatten(-1, (h, -1)),
                    merge=lambda x, h: x.transpose(1, 2).reshape(*x.shape[:2], -1),
                ),
            ]
        ),
        "the heads are interleaved: the d features of a head are neighbours, so cut (h, d).": (
            _with(split=_dealt, merge=lambda x, h: x.permute(0, 2, 3, 1).flatten(2))
        ),
        # These go through in self-attention alone.
        "the query has n tokens, key and value have m, and the output has n: a reshape here takes "
        "one number for the other.": Either([_stub, _as_long_as_key]),
    },
    # First self-attention, where n = m; then more keys than queries, then fewer.
    sizes=[
        {"b": 2, "n": 3, "m": 3, "h": 4, "d": 6},
        {"b": 2, "n": 3, "m": 5, "h": 4, "d": 6},
        {"b": 3, "n": 6, "m": 2, "h": 5, "d": 4},
    ],
    draw=lambda b, n, m, h, d: {
        **normal(query=(b, n, h * d), key=(b, m, h * d), value=(b, m, h * d)),
        "num_heads": h,
    },
    shape="(b, n, e)",
    why=_a_row_per_key,
)
