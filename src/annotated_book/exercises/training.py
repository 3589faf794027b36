"""Exercises of "Training": shares of whole targets, a decoder that peeks."""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from annotated_attention.heads import merge_heads
from annotated_book.exercises._exercise import Exercise, normal
from annotated_book.exercises._values import furthest, numbers
from attention_doctor.mistakes.reshapes import merge_without_transpose

check_shares = Exercise(
    name="my_shares",
    right=[0.599, 0.358],
    praise="right. Rare mistakes in letters spoil many targets, and more of the longer ones.",
    wrong={
        "that is the share of right letters. A target needs every one of them to be right.": [
            0.95,
            0.95,
        ],
        "shares of mistakes do not add up: some targets have several. Multiply the shares of right "
        "letters.": [0.5, 0],
        "that is the share of targets with a mistake. Asked are those without.": [0.401, 0.642],
        "that is the share in which every letter is wrong.": [0, 0],
        "that is in percent. Write the share, a number between 0 and 1.": [59.9, 35.8],
        "that is one factor short: every letter has one.": [0.630, 0.377],
    },
    run=numbers(2),
    why=lambda answer, found, right: (
        f"for {(10, 20)[furthest(found, right)]} letters it is another number. What share is left "
        "after one letter, after two?"
    ),
    close=0.006,
)


def _look_back(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    offset: int = 1,
    hidden: float = -math.inf,
    merge: Callable[[Tensor], Tensor] = merge_heads,
) -> Tensor:
    """Attend, hiding key j from query i when j - i >= offset."""
    n, d = q.shape[-2:]
    future = torch.ones(n, n, dtype=torch.bool).triu(offset)
    scores = (q @ k.mT / math.sqrt(d)).masked_fill(future, hidden)
    return merge(scores.softmax(-1) @ v)


def _hide_the_past(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (x.flip(-2) for x in (q, k, v))
    return _look_back(q, k, v).flip(-2)


def _hide_after_the_softmax(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return merge_heads((q @ k.mT / q.size(-1) ** 0.5).softmax(-1).tril() @ v)


check_look_back = Exercise(
    name="look_back",
    right=_look_back,
    praise="right, and so are the gradients: no row sees a later token.",
    wrong={
        "there are rows that see a later token. In training they can copy it; in decoding it is "
        "not there. Print hidden for a few tokens, and ask what each row sees.": partial(
            _look_back, offset=2
        ),
        "nothing is hidden now: every row sees the whole target.": partial(_look_back, offset=99),
        "row i no longer sees itself, and the first row sees nothing at all.": partial(
            _look_back, offset=0
        ),
        "the heads are merged by a straight reshape, which shows tokens their future. Move the "
        "heads behind the tokens first, as the stub does.": partial(
            _look_back, merge=merge_without_transpose
        ),
        "the mask is the wrong way round: a row now sees "
        "itself and what comes later.": _hide_the_past,
        "the future is zeroed after the softmax, so it still took its share: the rows no longer "
        "add up to one, and how much is missing tells of the "
        "future. Hide it before the softmax.": _hide_after_the_softmax,
        "hidden scores are set to 0, and exp(0) is 1: they still get a share. Set them to minus "
        "infinity.": partial(_look_back, hidden=0),
    },
    sizes=[{"b": 2, "h": 4, "n": 5, "d": 6}, {"b": 3, "h": 2, "n": 4, "d": 5}],
    draw=lambda b, h, n, d: normal(q=(b, h, n, d), k=(b, h, n, d), v=(b, h, n, d)),
    shape="(b, n, h * d)",
)
