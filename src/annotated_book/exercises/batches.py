"""Exercises of "Batches": follow a number, and a bug that equal lengths hide."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from annotated_attention.attention import scaled_dot_product_attention
from annotated_book.exercises._exercise import Either, Exercise, normal
from annotated_book.exercises._values import whole_numbers


def _which_index(answer: object, found: Tensor, right: Tensor) -> str:
    """Name the first axis whose number is wrong."""
    axis = int((found != right).nonzero()[0])
    return (
        "the first number is the sentence, the second of y's three.",
        "the sentence is right. Head 0 has the features 0 to 5: which head has feature 11?",
        "sentence and head are right. The third number is the word, the first of y's three.",
        "all but the last are right. Where in its head, of width 6, does feature 11 stand?",
    )[axis]


check_index = Exercise(
    name="my_index",
    right=(2, 1, 4, 5),
    praise=(
        "right. The sentence comes first, feature 11 is the last of head 1, and the word stays "
        "word 4."
    ),
    wrong={
        "you took the first axis of y for the batch. Sequence-first is (n, b, e).": (4, 1, 2, 5),
        "you cut the features, and moved no axis: that is the place in (n, b, h, d).": (4, 2, 1, 5),
        "the heads stand behind the words: that is the place in (b, n, h, d).": (2, 4, 1, 5),
        "the heads stand in front of the batch: that is the place in (h, b, n, d).": (1, 2, 4, 5),
        "you deal the features out to the heads in turn (head = feature % h). A head has "
        "neighbours: the first d features belong to the first head.": (2, 3, 4, 2),
        "that is where a straight reshape puts it. It mixes words; cut the features first, then "
        "move the axes.": (2, 3, 2, 5),
        "you count the heads from 1. Indices count from 0.": (2, 2, 4, 5),
        "you count everything from 1. Indices count from 0.": (3, 2, 5, 6),
    },
    run=whole_numbers(4, "an index of four"),
    why=_which_index,
)

Split = Callable[[Tensor, int], Tensor]
Merge = Callable[[Tensor, int], Tensor]


def _split(x: Tensor, h: int) -> Tensor:
    return x.unflatten(-1, (h, -1)).transpose(1, 2)


def _split_straight(x: Tensor, h: int) -> Tensor:
    return x.reshape(len(x), h, -1, x.size(-1) // h)


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
        "you mix the keys: the weights belong to value.": _with(given=lambda q, k, v: (q, k, k)),
        "key and value are in each other's place.": _with(given=lambda q, k, v: (q, v, k)),
        "the features are not split into heads.": lambda q, k, v, h: _attend(q, k, v, 1),
        "the folded axis is cut in the wrong order: (h b) and (b h) differ. Heads end up in the "
        "wrong samples.": Either(
            [
                _with(merge=lambda x, h: _merge(x.transpose(0, 1).reshape(x.shape), h)),
                _with(merge=lambda x, h: _merge(x.reshape(h, -1, *x.shape[2:]).transpose(0, 1), h)),
            ]
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
