"""Exercises of "A little world": the floor of a smaller one, the likeliest words."""

import math
from functools import partial

from torch import Tensor

from annotated_book.exercises._exercise import Exercise, normal
from annotated_book.exercises._values import furthest, numbers

check_floor = Exercise(
    name="my_floor",
    right=[math.log(8), math.log(8) / 4],
    praise="right. The words that have to come are free, and they still count in the average.",
    wrong={
        "the average is over all four words, the free ones too.": [math.log(8), math.log(8) / 2],
        "chances multiply, so surprises add up: log 2 and log 4.": [math.log(6), math.log(6) / 4],
        "that is in bits. Nats take the natural logarithm.": [3, 0.75],
        "that is the chance of a story. Asked is the surprise, minus its logarithm.": [
            0.125,
            0.03125,
        ],
    },
    run=numbers(2),
    why=lambda answer, found, right: (
        f"the {('story', 'word')[furthest(found, right)]} costs another number. How surprising is "
        "one of two animals? And one of four verbs?"
    ),
    close=0.006,
)


def _top(
    logits: Tensor, k: int, fill: float = -math.inf, largest: bool = True, more: int = 0
) -> Tensor:
    """Leave the chances of the k best."""
    best = logits.topk(min(k + more, logits.size(-1)), largest=largest).indices
    kept = logits.new_full(logits.shape, fill).scatter(-1, best, logits.gather(-1, best))
    return kept.softmax(-1)


def _cut_late(logits: Tensor, k: int) -> Tensor:
    shares = logits.softmax(-1)
    return shares.masked_fill(shares < shares.topk(k).values[..., -1:], 0)


def _equally(logits: Tensor, k: int) -> Tensor:
    return (_top(logits, k) > 0).to(logits.dtype) / k


check_top = Exercise(
    name="top",
    right=_top,
    praise="right: k words share all of the chance, and in their old proportions.",
    wrong={
        "the chances do not add up to one. Cut the logits before the softmax, or divide again "
        "after it.": _cut_late,
        "a logit of 0 is no chance of 0: exp(0) is 1. Cut with minus infinity.": partial(
            _top, fill=0.0
        ),
        "you keep the k unlikeliest words.": partial(_top, largest=False),
        "you keep one word too many.": partial(_top, more=1),
        "nothing is cut.": lambda logits, k: logits.softmax(-1),
        "the k words are equally likely now. They are to keep their proportions.": _equally,
    },
    sizes=[{"b": 2, "v": 7, "k": 3}, {"b": 3, "v": 5, "k": 1}, {"b": 1, "v": 6, "k": 4}],
    draw=lambda b, v, k: normal(logits=(b, v)) | {"k": k},
    shape="(b, v)",
)
