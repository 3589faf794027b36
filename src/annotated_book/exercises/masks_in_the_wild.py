"""Exercises of "Masks in the wild": a mask made ready, and packed documents."""

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from annotated_attention.masks import block_future, block_padding
from annotated_book.exercises._exercise import Either, Exercise, Refused


def _draw(h: int, m: int, n: int, **lengths: int) -> dict[str, Any]:
    """Draw a tokenizer's mask of texts that are padded to m on the left."""
    words = ~block_padding(torch.tensor([*lengths.values()]), m).flip(1)
    return {"attention_mask": words.long(), "n": n, "h": h}


def _spread(answer: Callable[..., Any], attention_mask: Tensor, n: int, h: int) -> Any:
    """Give the reader's mask for every head, (b, h, n, m), if it broadcasts to that."""
    found = answer(attention_mask, n)
    if not isinstance(found, Tensor):
        return found
    if found.dtype != torch.bool:
        raise Refused(
            f"booleans or floats? It returns {found.dtype}, and a boolean mask is asked for. The "
            "function adds floats to the scores: -inf would hide a key, and 1 hides nothing."
        )
    b, m = attention_mask.shape
    with contextlib.suppress(RuntimeError):
        return found.expand(b, h, n, m)
    return found


def _words(given: Tensor) -> Tensor:
    return given.bool()[:, None, None, :]  # (b, 1, 1, m)


def _past(given: Tensor, n: int, shift: int = 0) -> Tensor:
    m = given.size(1)
    return torch.ones(n, m, dtype=torch.bool).tril(m - n + shift)  # (n, m)


def _corner(given: Tensor, n: int) -> Tensor:
    return ~block_future(n, given.size(1))  # (n, m)


def _which_key(
    answer: object, found: Tensor, right: Tensor, attention_mask: Tensor, n: int, h: int
) -> str | None:
    if found.shape != right.shape:
        return None
    sample, _, query, key = (found != right).nonzero()[0].tolist()
    said = "allowed" if found[sample, 0, query, key] else "hidden"
    what = "a word" if attention_mask[sample, key] else "padding"
    place = attention_mask.size(1) - n + query
    return (
        f"in sample {sample}, the query at place {place} finds the key at place {key} {said}; that "
        f"key is {what}. Places are counted from 0."
    )


check_make_ready = Exercise(
    name="make_ready",
    right=lambda given, n: _words(given) & _past(given, n),
    praise="right: padding is hidden, no query looks ahead, and the newest word sees all words "
    "before it, at 3 sizes, with one mask for all heads.",
    wrong={
        "which way round? It is inverted: this function reads True as allowed.": lambda given, n: (
            ~(_words(given) & _past(given, n))
        ),
        "which corner? The diagonal begins at the top left, so the newest words count as the first "
        "ones and do not see what was written before them.": lambda given, n: (
            _words(given) & _corner(given, n)
        ),
        "padding is hidden, but the queries still look ahead.": lambda given, n: _words(given),
        "no query looks ahead, and padding is seen.": _past,
        "“or” allows a key if one of the two masks "
        "allows it. Both must: use “and”.": lambda given, n: _words(given) | _past(given, n),
        "which way round? The padding is turned: True must stand for a word.": lambda given, n: (
            ~_words(given) & _past(given, n)
        ),
        "there is no axis for the heads: against the scores, (b, h, n, m), samples stand where the "
        "heads are. Give the heads an axis of 1.": lambda given, n: (
            _words(given)[:, 0] & _past(given, n)
        ),
        "the diagonal is one off: a query may see the key at its own place.": lambda given, n: (
            _words(given) & _past(given, n, -1)
        ),
        "the diagonal is one off: each query sees the key after its own place.": lambda given, n: (
            _words(given) & _past(given, n, 1)
        ),
    },
    sizes=[
        {"h": 4, "m": 6, "n": 3, "first": 6, "second": 4},
        {"h": 2, "m": 5, "n": 5, "first": 4, "second": 5, "third": 3},
        {"h": 2, "m": 7, "n": 1, "first": 7, "second": 2},
    ],
    draw=_draw,
    run=_spread,
    shape="(b, h, n, m), or broadcasts to it",
    why=_which_key,
)


def _later(documents: Tensor, diagonal: int = 1) -> Tensor:
    n = len(documents)
    return torch.ones(n, n, dtype=torch.bool).triu(diagonal)


def _other(documents: Tensor) -> Tensor:
    return documents != documents[:, None]


def _which_pair(
    answer: Callable[..., Any], found: Tensor, right: Tensor, documents: Tensor
) -> str | None:
    if found.shape != right.shape or found.dtype != torch.bool:
        return None
    query, key = (found != right).nonzero()[0].tolist()
    said = "blocked" if found[query, key] else "visible"
    belongs = "the same document" if not _other(documents)[query, key] else "another document"
    return (
        f"with documents = {documents.tolist()}, key {key} is {said} for query {query}, counted "
        f"from 0. It is in {belongs}, and stands {'later' if key > query else 'not later'}."
    )


check_block = Exercise(
    name="block",
    right=lambda documents: _later(documents) | _other(documents),
    praise="right, also where the numbers are not in order.",
    wrong={
        "that is the causal mask alone: each document sees those before it.": _later,
        "within a document, each token sees those that come later. The model is causal.": _other,
        "it is inverted: True means blocked here.": lambda documents: (
            ~(_later(documents) | _other(documents))
        ),
        "you have joined with “and”: a key is blocked only if it stands later *and* belongs to "
        "another document. One is enough.": lambda documents: _later(documents) & _other(documents),
        "tokens do not see themselves. The diagonal is visible.": lambda documents: (
            _later(documents, 0) | _other(documents)
        ),
        "it hides the past, and shows what comes later: rows are queries, columns are keys.": (
            lambda documents: _later(documents).mT | _other(documents)
        ),
        "you hide documents with a greater number or a smaller one alone. Which numbers they are "
        "does not matter.": Either(
            [
                lambda documents: _later(documents) | (documents > documents[:, None]),
                lambda documents: _later(documents) | (documents < documents[:, None]),
            ]
        ),
    },
    sizes=[
        {"numbers": [0, 0, 0, 1, 1]},
        {"numbers": [5, 5, 3, 3, 3, 5, 4]},
        {"numbers": [2, 2, 2]},
    ],
    draw=lambda numbers: {"documents": torch.tensor(numbers)},
    why=_which_pair,
    shape="(n, n)",
)
