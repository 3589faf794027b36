"""Exercises of "One head": two scores, a row of weights, attention from memory."""

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from annotated_book.exercises._exercise import Either, Exercise, normal
from annotated_book.exercises._values import numbers


def _which_score(answer: object, found: Tensor, right: Tensor) -> str:
    """Say which of the two scores is wrong."""
    first = int((found != right).nonzero()[0])
    return (
        f'{found[first]:g} is not the score with "{("cat", "it")[first]}". Multiply the two words '
        "feature by feature, and add up the four products."
    )


check_scores = Exercise(
    name="my_scores",
    right=[6, 4],
    praise=(
        '"thirsty" and "cat" share animal, 2 · 3 = 6. With "it" the score is 2 · 1 + 2 · 1 = 4, '
        'as when "it" asked "thirsty": a dot product is the same in both directions.'
    ),
    wrong={
        "you divided by √4 already. That comes next; the score is the sum before it.": [3, 2],
        'the other way round: first the score with "cat", then the one with "it".': [4, 6],
        'your query is "it". Here "thirsty" asks: take its numbers, (2, 0, 0, 2).': (
            Either([[3, 3], [3, 4]])
        ),
        'you scored each key with itself. The query is "thirsty" both times.': [9, 3],
        'with "it", add up two products: 2 · 1 for animal and 2 · 1 for quality.': [6, 2],
    },
    run=numbers(2),
    why=_which_score,
)

_WORDS = ("cats", "drank", "and", "vanished", "because", "it", "was", "sweet")
_SCORES = (0, 4, 0, 4, 0, 0, 2, 0)


def _of_verbs(drank: float, was: float, other: float) -> list[float]:
    """List eight numbers in the order of the sentence, those of five words the same."""
    return [other, drank, other, drank, other, other, was, other]


def _which_weight(answer: object, found: Tensor, right: Tensor) -> str:
    """Say what the eight add up to, or which of them is furthest off."""
    total = f"{found.sum():.2f}"
    if not 0.97 < found.sum() < 1.03:
        return (
            f"your weights add up to {total}. Divide each exponential by the sum of all eight, and "
            "the weights add up to 1."
        )
    worst = int((found - right).abs().argmax())
    return (
        f'they add up to {total}, but the weight of "{_WORDS[worst]}" is not {found[worst]:.2f}. '
        f"Its score is {_SCORES[worst]}; halve it, take the exponential, divide by the sum."
    )


check_weights = Exercise(
    name="my_weights",
    right=_of_verbs(0.3285, 0.1208, 0.0445),
    praise=(
        'right. "Vanished" looks at "drank" as much as at itself, for their numbers are the same. '
        "The five words that do not fit share 0.22."
    ),
    wrong={
        "these are the scores. They still have to become shares.": _of_verbs(4, 2, 0),
        "these are the scores divided by 2. The exponential comes next.": _of_verbs(2, 1, 0),
        "these are the exponentials. Divide each by the sum of all eight.": (
            Either([_of_verbs(7.389, 2.718, 1), _of_verbs(7.4, 2.7, 1)])
        ),
        "there is no exponential: you divided the scores by their sum.": _of_verbs(0.4, 0.2, 0),
        "you left the division out: halve each score before you take its exponential.": (
            _of_verbs(0.449, 0.0608, 0.0082)
        ),
        "perhaps you divided the scores by 4: divide them by √4 = 2. Or your query is "
        '"was"; here "vanished" asks.': _of_verbs(0.2249, 0.1364, 0.0827),
        "a score of 0 gets a weight, too: exp(0) is 1, not 0. There are five such words, and they "
        "count in the sum.": Either(
            [
                _of_verbs(0.4223, 0.1554, 0),
                _of_verbs(0.3285, 0.1208, 0),
                _of_verbs(0.4223, 0.1554, 0.0571),
            ]
        ),
        '"drank" has the numbers of "vanished", and so the same score, 4.': (
            [0.0621, 0.0621, 0.0621, 0.4587, 0.0621, 0.0621, 0.1688, 0.0621]
        ),
        'your query is "it"; here "vanished" asks.': (
            [0.21, 0.047, 0.047, 0.047, 0.047, 0.21, 0.047, 0.346]
        ),
        'your query is "sweet"; here "vanished" asks.': (
            [0.0147, 0.0147, 0.0147, 0.0147, 0.0147, 0.1085, 0.0147, 0.8028]
        ),
    },
    run=numbers(8),
    why=_which_weight,
    close=0.011,
)


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    divisor: Callable[[Tensor, Tensor, Tensor], float] = lambda q, k, v: math.sqrt(q.size(-1)),
    axis: int = -1,
    mix: Callable[[Tensor, Tensor, Tensor], Tensor] = lambda weights, key, value: weights @ value,
) -> Tensor:
    """Attend, with one mistake or more."""
    scores = query @ key.mT / divisor(query, key, value)  # (n, m)
    return mix(scores.softmax(axis), key, value)


def _scores(query: Tensor, key: Tensor) -> Tensor:
    return query @ key.mT / math.sqrt(query.size(-1))  # (n, m)


def _powers(query: Tensor, key: Tensor) -> Tensor:
    return _scores(query, key).exp()  # (n, m)


_ONE: dict[str, dict[str, Any]] = {
    "you do not scale: divide the scores by √d before the softmax.": {"divisor": lambda q, k, v: 1},
    "you divide the scores by d, not by √d (or by √d twice).": {
        "divisor": lambda q, k, v: q.size(-1)
    },
    "you multiply the scores by √d instead of dividing.": {
        "divisor": lambda q, k, v: 1 / math.sqrt(q.size(-1))
    },
    "you divide the scores by √d_v, the root of value's width. A score adds up d products, so take "
    "d from query or key.": {"divisor": lambda q, k, v: math.sqrt(v.size(-1))},
    "you divide by the root of the number of keys, √m, not by √d.": {
        "divisor": lambda q, k, v: math.sqrt(len(k))
    },
    "you divide by 2, which is √d only for the chapter's sentence, where d = 4.": {
        "divisor": lambda q, k, v: 2
    },
    "your softmax runs over the queries: the weights of each key add up to 1, and those of each "
    "query have to. The keys are the last axis of query @ key.mT, (n, m), but the first one of "
    "key @ query.mT, (m, n).": {"axis": -2},
    "you mix the keys: multiply the weights by value.": {
        "mix": lambda weights, key, value: weights @ key
    },
    "you return the weights: multiply them by value.": {"mix": lambda weights, key, value: weights},
}
_SUM = "each exponential has to be divided by the sum of its row: the weights add up to 1."

check_attend = Exercise(
    name="my_attend",
    right=_attend,
    praise=(
        "right, and so are the gradients, for n = 3 queries, m = 5 keys, d = 6 and d_v = 7, and "
        "again for other sizes."
    ),
    wrong={
        "you return the scores; they still need a softmax and a product with value.": (
            lambda q, k, v: _scores(q, k)
        ),
        "there is no softmax: the scores are no shares of one whole yet.": (
            lambda q, k, v: _scores(q, k) @ v
        ),
        "you divide by √d after the softmax. Divide the scores before it: that keeps the softmax "
        "from saturating, and the weights have to add up to 1.": (
            lambda q, k, v: (q @ k.mT).softmax(-1) @ v / math.sqrt(q.size(-1))
        ),
        _SUM: Either([lambda q, k, v: _powers(q, k) @ v, lambda q, k, v: (q @ k.mT).exp() @ v]),
        f"you divide by the sum of all exponentials; {_SUM}": (
            lambda q, k, v: _powers(q, k) / _powers(q, k).sum() @ v
        ),
        "it is right but transposed: one row per query is asked for.": (
            lambda q, k, v: _attend(q, k, v).mT
        ),
        **{sentence: partial(_attend, **mistake) for sentence, mistake in _ONE.items()},
        **{
            f"{first} And {second}": partial(_attend, **one, **other)
            for (first, one), (second, other) in itertools.combinations(_ONE.items(), 2)
            if one.keys() != other.keys()
        },
        # These go through at equal sizes alone.
        "you multiply query by key as it is. A score compares a row of query with a row of key, so "
        "the keys have to become columns: query @ key.mT, (n, d) x (d, m).": Either(
            [
                lambda q, k, v: (q @ k / math.sqrt(q.size(-1))).softmax(-1) @ v,
                lambda q, k, v: (q @ k).softmax(-1) @ v,
            ]
        ),
        "your weights have a row per key, and the output needs a row per query: score with "
        "query @ key.mT.": Either(
            [
                lambda q, k, v: _scores(k, q).softmax(-1) @ v,
                lambda q, k, v: _scores(k, q).softmax(-2) @ v,
            ]
        ),
        "a sum over one axis loses that axis: write sum(-1, keepdim=True).": (
            lambda q, k, v: _powers(q, k) / _powers(q, k).sum(-1) @ v
        ),
    },
    sizes=[{"n": 3, "m": 5, "d": 6, "d_v": 7}, {"n": 8, "m": 2, "d": 9, "d_v": 5}],
    draw=lambda n, m, d, d_v: normal(query=(n, d), key=(m, d), value=(m, d_v)),
    easy=[{"n": 4, "m": 4, "d": 4, "d_v": 4}],
    shape="(n, d_v)",
)
