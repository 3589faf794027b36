"""Exercises of "Training": shares of whole targets, greedy decoding, a decoder that peeks."""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from annotated_attention.exercises._exercise import Exercise, Refused, normal
from annotated_attention.exercises._values import furthest, numbers
from annotated_attention.heads import merge_heads
from annotated_attention.mistakes.reshapes import merge_without_transpose

check_shares = Exercise(
    name="my_shares",
    right=[0.599, 0.358],
    praise="right. Rare mistakes in letters spoil many targets, and more of the longer ones.",
    wrong={
        "that is the share of right letters. A target needs every one of them to be right.":
            [0.95, 0.95],
        "shares of mistakes do not add up: some targets have several. Multiply the shares of right "
        "letters.": [0.5, 0],
        "that is the share of targets with a mistake. Asked are those without.": [0.401, 0.642],
        "that is the share in which every letter is wrong.": [0, 0],
        "that is in percent. Write the share, a number between 0 and 1.": [59.9, 35.8],
        "that is how many letters are right on average. Asked is a share of targets.": [9.5, 19],
        "that is one factor short: every letter has one.": [0.630, 0.377],
        "that is one factor too many: every letter has one.": [0.569, 0.341],
    },
    run=numbers(2),
    why=lambda answer, found, right: (
        f"for {(10, 20)[furthest(found, right)]} letters it is another number. What share is left "
        "after one letter, after two?"
    ),
    close=0.006,
)  # fmt: skip

_PAD, _START, _END, _TOKENS = 0, 1, 2, 7


class Model(nn.Module):
    """Scores tokens by a table: the next follows from the last, its place and the source."""

    def __init__(self, m: int) -> None:
        """Draw a table for sources of m tokens."""
        super().__init__()
        self.table = torch.randint(_END, _TOKENS, (_TOKENS, _TOKENS, m))
        self.table[:, :, :2][self.table[:, :, :2] == _END] = 3  # nothing ends at once

    def forward(self, src: Tensor, given: Tensor) -> Tensor:
        """Score what follows each of the given tokens."""
        place = torch.arange(given.size(1)) % src.size(1)  # (n,)
        following = self.table[given, src[:, place], place]  # (b, n)
        return nn.functional.one_hot(following, _TOKENS).double()

    def greedy(self, *_: object, **__: object) -> Tensor:
        """Refuse to do the reader's work."""
        raise Refused("it calls the model's own greedy(). Write it yourself, with model(src, tgt).")


def _greedy(
    model: nn.Module, src: Tensor, max_new: int, row: int = -1, last: int | None = None,
    after: int | None = _PAD, start: int = _START,
) -> Tensor:  # fmt: skip
    """Decode: by a row of the scores, from the last so many tokens, with ``after`` after an end."""
    written = src.new_full((len(src), 1), start)
    complete = torch.zeros_like(written, dtype=torch.bool)
    for _ in range(max_new):
        given = written if last is None else written[:, -last:]
        following = model(src, given)[:, row].argmax(-1, keepdim=True)
        if after is not None:
            following = following.masked_fill(complete, after)
        written = torch.cat([written, following], 1)
        complete = complete | (following == _END)
    return written


def _no_end(model: nn.Module, src: Tensor, max_new: int) -> Tensor:
    written = _greedy(model, src, max_new)
    return written.masked_fill(written == _END, _PAD)


def _stop_early(model: nn.Module, src: Tensor, max_new: int) -> Tensor:
    written = _greedy(model, src, max_new)
    return written[:, : int((written != _PAD).sum(1).max())]


def _forced(model: nn.Module, src: Tensor, max_new: int) -> Tensor:
    given = torch.cat([src.new_full((len(src), 1), _START), src], 1)
    return torch.cat([given[:, :1], model(src, given).argmax(-1)[:, :max_new]], 1)


check_greedy = Exercise(
    name="greedy",
    right=_greedy,
    praise="right: it goes on from what it wrote itself, and after the end there is only padding.",
    wrong={
        "it goes on after the end token. A sequence that is complete gets only padding.":
            partial(_greedy, after=None),
        "after the end token it writes the end again. Write padding, PAD.":
            partial(_greedy, after=_END),
        "the end token itself is missing. It stays, and the padding begins after it.": _no_end,
        "it stops when every sequence has ended. What is returned always has 1 + max_new tokens: "
        "fill up with PAD.": _stop_early,
        "the start token is missing: what is returned begins with it.":
            lambda model, src, max_new: _greedy(model, src, max_new)[:, 1:],
        "the first row of the scores is about the first token. The newest is in the last row.":
            partial(_greedy, row=0),
        "the model is given only the token that was written last. It needs all that is written: "
        "places count, and so do earlier tokens.": partial(_greedy, last=1),
        "it begins with padding. The model was trained on targets that begin with START.":
            partial(_greedy, start=_PAD),
        "it writes one token too many: max_new, and the start before them.":
            lambda model, src, max_new: _greedy(model, src, max_new + 1),
        "it writes one token too few: max_new, and the start before them.":
            lambda model, src, max_new: _greedy(model, src, max_new - 1),
        "it reads all tokens off one call. In decoding nobody knows the target: call the model "
        "again for each token, with what is written so far.": _forced,
    },
    sizes=[
        {"b": 6, "m": 5, "max_new": 4},
        {"b": 5, "m": 4, "max_new": 9},
        {"b": 1, "m": 6, "max_new": 1},
        {"b": 2, "m": 6, "max_new": 12},
    ],
    draw=lambda b, m, max_new: {
        "model": Model(m), "src": torch.randint(3, _TOKENS, (b, m)), "max_new": max_new
    },
    shape="(b, 1 + max_new)",
)  # fmt: skip


def _look_back(
    q: Tensor, k: Tensor, v: Tensor, offset: int = 1, hidden: float = -math.inf,
    merge: Callable[[Tensor], Tensor] = merge_heads,
) -> Tensor:  # fmt: skip
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
        "not there. Print hidden for a few tokens, and ask what each row sees.":
            partial(_look_back, offset=2),
        "nothing is hidden now: every row sees the whole target.": partial(_look_back, offset=99),
        "row i no longer sees itself, and the first row sees nothing at all.":
            partial(_look_back, offset=0),
        "the heads are merged by a straight reshape, which shows tokens their future. Move the "
        "heads behind the tokens first, as the stub does.":
            partial(_look_back, merge=merge_without_transpose),
        "the mask is the wrong way round: a row now sees itself and what comes later.":
            _hide_the_past,
        "the future is zeroed after the softmax, so it still took its share: the rows no longer "
        "add up to one, and how much is missing tells of the future. Hide it before the softmax.":
            _hide_after_the_softmax,
        "hidden scores are set to 0, and exp(0) is 1: they still get a share. Set them to minus "
        "infinity.": partial(_look_back, hidden=0),
    },
    sizes=[{"b": 2, "h": 4, "n": 5, "d": 6}, {"b": 3, "h": 2, "n": 4, "d": 5}],
    draw=lambda b, h, n, d: normal(q=(b, h, n, d), k=(b, h, n, d), v=(b, h, n, d)),
    shape="(b, n, h * d)",
)  # fmt: skip
