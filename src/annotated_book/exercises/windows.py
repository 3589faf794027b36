"""Exercises of "Windows": visible keys by pencil, and a mask for several documents in a row."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from annotated_book.exercises._exercise import Either, Exercise
from annotated_book.exercises._values import furthest, numbers

_ASKED = ("token 0", "token 2", "token 9", "token 9 with 2 sinks", "the three layers")

check_counts = Exercise(
    name="my_counts",
    right=[1, 3, 4, 6, 10],
    praise="right: a token sees at most 4 keys, its own included, and the sinks besides. Each "
    "layer adds 3 tokens.",
    wrong={
        "the window counts the query's own key: 4 are visible in all, and not 4 before it.": Either(
            [[1, 3, 5, 7, 13], [1, 3, 5, 7, 10]]
        ),
        "a query sees its own key, too, and the window counts it.": Either(
            [[0, 2, 3, 5, 9], [0, 2, 3, 5, 10]]
        ),
        "the sinks are outside the window of token 9, so it sees them besides.": [1, 3, 4, 4, 10],
        "each layer adds w - 1 tokens, not w: the query's own key takes one place.": Either(
            [[1, 3, 4, 6, 12], [1, 3, 4, 6, 13]]
        ),
        "the token itself is seen, too: one more than 3 layers of 3.": [1, 3, 4, 6, 9],
        "at the beginning there are fewer keys than the window holds.": [4, 4, 4, 6, 10],
    },
    run=numbers(5),
    why=lambda answer, found, right: (
        f"look at {_ASKED[furthest(found, right)]} again: "
        f"{found[furthest(found, right)]:g} is not right."
    ),
    close=0,
)


def _later(documents: Tensor, diagonal: int = 1) -> Tensor:
    n = len(documents)
    return torch.ones(n, n, dtype=torch.bool).triu(diagonal)


def _other(documents: Tensor) -> Tensor:
    return documents != documents[:, None]


def _why(answer: Callable[..., Any], found: Tensor, right: Tensor, documents: Tensor) -> str | None:
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
    why=_why,
    shape="(n, n)",
)
