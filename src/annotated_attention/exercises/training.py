"""Exercises of "Training": shares of whole targets, greedy decoding, a decoder that peeks."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from annotated_attention.exercises._verdict import (
    Refused,
    at_sizes,
    call,
    check,
    compare,
    compare_gradients,
    finite_numbers,
    random,
    require_function,
    require_unchanged,
)
from annotated_attention.heads import merge_heads
from annotated_attention.mistakes.reshapes import merge_without_transpose

_PAD, _START, _END, _TOKENS = 0, 1, 2, 7
_RIGHT, _LETTERS = 0.95, (10, 20)


@check("my_shares")
def check_shares(answer: object) -> str:
    """Judge how often whole targets are right, and print the verdict.

    Args:
        answer: the share for ten letters and for twenty, each letter being right in 0.95 of cases.
    """
    found = finite_numbers(answer, len(_LETTERS)).tolist()
    for n, share in zip(_LETTERS, found, strict=True):
        if abs(share - _RIGHT**n) > 0.006:
            raise Refused(_wrong_share(share, n))
    return "right. Rare mistakes in letters spoil many targets, and more of the longer ones."


def _wrong_share(share: float, n: int) -> str:
    """Say why this is not how often ``n`` letters are right."""
    reasons = {
        _RIGHT: "that is the share of right letters. A target needs every one of them to be right.",
        1 - n * (1 - _RIGHT): "shares of mistakes do not add up: some targets have several. "
        "Multiply the shares of right letters.",
        1 - _RIGHT**n: "that is the share of targets with a mistake. Asked are those without.",
        (1 - _RIGHT) ** n: "that is the share in which every letter is wrong.",
        100 * _RIGHT**n: "that is in percent. Write the share, a number between 0 and 1.",
        n * _RIGHT: "that is how many letters are right on average. Asked is a share of targets.",
        _RIGHT ** (n - 1): "that is one factor short: every letter has one.",
        _RIGHT ** (n + 1): "that is one factor too many: every letter has one.",
    }
    for wrong, reason in reasons.items():
        if abs(share - wrong) < 0.006 * max(1, wrong):
            return f"for {n} letters: {reason}"
    return f"for {n} letters it is another number. What share is left after one letter, after two?"


class _Model:
    """Scores tokens by a table: the next follows from the last, its place and the source."""

    def __init__(self, seed: int, m: int) -> None:
        source = torch.Generator().manual_seed(seed)
        self.table = torch.randint(_END, _TOKENS, (_TOKENS, _TOKENS, m), generator=source)
        self.table[:, :, :2][self.table[:, :, :2] == _END] = 3  # nothing ends at once

    def __call__(self, src: Tensor, given: Tensor) -> Tensor:
        n, m = given.size(1), src.size(1)
        place = torch.arange(n) % m
        following = self.table[given, src[:, place], place]  # (b, n)
        return torch.nn.functional.one_hot(following, _TOKENS).double()

    def eval(self) -> "_Model":
        return self

    def greedy(self, *_: object, **__: object) -> Tensor:
        raise Refused("it calls the model's own greedy(). Write it yourself, with model(src, tgt).")


@check("greedy")
def check_greedy(answer: Callable[..., Any]) -> str:
    """Judge ``greedy(model, src, max_new)``, and print the verdict.

    Args:
        answer: the reader's function of a model, src (b, m) and the number of tokens to write at
            most, which is to return (b, 1 + max_new) token ids.
    """
    require_function(answer)
    for seed, (b, m, max_new) in enumerate(((6, 5, 4), (5, 4, 9), (1, 6, 1), (2, 6, 12))):
        model, src = _Model(seed, m), _sources(seed, b, m)
        with at_sizes(not seed, b=b, m=m, max_new=max_new):
            before = src.clone()
            found = call("your code", answer, model, src, max_new)
            require_unchanged("src", src, before)
            right = _greedy(model, src, max_new)
            compare(found, right, "(b, 1 + max_new)", _wrong_greedy(model, src, max_new))
    return "right: it goes on from what it wrote itself, and after the end there is only padding."


def _sources(seed: int, b: int, m: int) -> Tensor:
    return torch.randint(3, _TOKENS, (b, m), generator=torch.Generator().manual_seed(seed + 50))


def _greedy(
    model: _Model, src: Tensor, max_new: int, row: int = -1, last: int | None = None,
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


def _wrong_greedy(model: _Model, src: Tensor, max_new: int) -> Iterator[tuple[str, Tensor]]:
    """Yield reasons, each with what it leads to."""
    right = _greedy(model, src, max_new)
    endless = "it goes on after the end token. A sequence that is complete gets only padding."
    yield endless, _greedy(model, src, max_new, after=None)
    reason = "after the end token it writes the end again. Write padding, PAD."
    yield reason, _greedy(model, src, max_new, after=_END)
    reason = "the end token itself is missing. It stays, and the padding begins after it."
    yield reason, right.masked_fill(right == _END, _PAD)
    reason = (
        "it stops when every sequence has ended. What is returned always has 1 + max_new tokens: "
        "fill up with PAD."
    )
    yield reason, right[:, : int((right != _PAD).sum(1).max())]
    yield "the start token is missing: what is returned begins with it.", right[:, 1:]
    reason = "the start token is missing, and it goes on after the end token."
    yield reason, _greedy(model, src, max_new, after=None)[:, 1:]
    reason = "the first row of the scores is about the first token. The newest is in the last row."
    for after in (_PAD, None):
        yield reason, _greedy(model, src, max_new, row=0, after=after)
    reason = (
        "the model is given only the token that was written last. It needs all that is written: "
        "places count, and so do earlier tokens."
    )
    for after in (_PAD, None):
        yield reason, _greedy(model, src, max_new, last=1, after=after)
    reason = "it begins with padding. The model was trained on targets that begin with START."
    for after in (_PAD, None):
        yield reason, _greedy(model, src, max_new, start=_PAD, after=after)
    longer = _greedy(model, src, max_new + 1)
    yield "it writes one token too many: max_new, and the start before them.", longer
    yield "it writes one token too few: max_new, and the start before them.", right[:, :-1]
    forced = torch.cat([src.new_full((len(src), 1), _START), src], 1)
    scores = model(src, forced).argmax(-1)
    reason = (
        "it reads all tokens off one call. In decoding nobody knows the target: call the model "
        "again for each token, with what is written so far."
    )
    yield reason, torch.cat([forced[:, :1], scores[:, :max_new]], 1)


# b, h, n, d
_SIZES = ((2, 4, 5, 6), (3, 2, 4, 5))


@check("look_back")
def check_look_back(answer: Callable[..., Any]) -> str:
    """Judge ``look_back(q, k, v)``, and print the verdict.

    Args:
        answer: the reader's function of q, k and v, each (b, h, n, d), which is to return the
            merged heads, (b, n, h * d), no token having seen a later one.
    """
    require_function(answer)
    for seed, (b, h, n, d) in enumerate(_SIZES):
        inputs = random(seed, *[(b, h, n, d)] * 3)
        with at_sizes(not seed, b=b, h=h, n=n, d=d):
            _judge_look_back(answer, inputs)
    return "right, and so are the gradients: no row sees a later token."


def _judge_look_back(answer: Callable[..., Any], inputs: list[Tensor]) -> None:
    """Judge the function on one set of inputs."""
    copies = [x.clone() for x in inputs]
    output = call("your code", answer, *copies)
    for name, now, before in zip("qkv", copies, inputs, strict=True):
        require_unchanged(name, now, before)
    compare(output, _look_back(*inputs), "(b, n, h * d)", _wrong_look_back(*inputs))
    leaves = [x.clone().requires_grad_() for x in inputs]
    right = _look_back(*leaves)
    output = compare(call("your code", answer, *leaves), right, "(b, n, h * d)", ())
    compare_gradients(output, right, dict(zip("qkv", leaves, strict=True)))


def _look_back(
    q: Tensor, k: Tensor, v: Tensor, *, offset: int = 1,
    merge: Callable[[Tensor], Tensor] = merge_heads, scale: float | None = None,
) -> Tensor:  # fmt: skip
    """Attend, hiding key j from query i when j - i >= offset."""
    n, d = q.shape[-2:]
    scores = q @ k.mT * (1 / math.sqrt(d) if scale is None else scale)
    hidden = torch.ones(n, n, dtype=torch.bool).triu(offset)
    return merge(scores.masked_fill(hidden, -math.inf).softmax(-1) @ v)


_MERGED = (
    "the heads are merged by a straight reshape, which shows tokens their future. Move the heads "
    "behind the tokens first, as the stub does."
)


def _wrong_look_back(q: Tensor, k: Tensor, v: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield reasons, each with the output that it leads to."""
    n, d = q.shape[-2:]
    reasons = {
        2: "there are rows that see a later token. In training they can copy it; in decoding it is "
        "not there. Print hidden for a few tokens, and ask what each row sees.",
        n: "nothing is hidden now: every row sees the whole target.",
        0: "row i no longer sees itself, and the first row sees nothing at all.",
        -1: "row i no longer sees itself and its neighbour, and the first rows see nothing at all.",
    }
    for offset, reason in reasons.items():
        yield reason, _look_back(q, k, v, offset=offset)
        yield (
            f"{reason} And {_MERGED}",
            _look_back(q, k, v, offset=offset, merge=merge_without_transpose),
        )
    yield _MERGED, _look_back(q, k, v, merge=merge_without_transpose)
    scores = q @ k.mT / math.sqrt(d)
    past = torch.ones(n, n, dtype=torch.bool).tril(-1)
    reason = "the mask is the wrong way round: a row now sees itself and what comes later."
    yield reason, merge_heads(scores.masked_fill(past, -math.inf).softmax(-1) @ v)
    future = past.mT
    reason = (
        "the future is zeroed after the softmax, so it still took its share: the rows no longer "
        "add up to one, and how much is missing tells of the future. Hide it before the softmax."
    )
    yield reason, merge_heads(scores.softmax(-1).masked_fill(future, 0) @ v)
    reason = (
        "hidden scores are set to 0, and exp(0) is 1: they still get a share. Set them to minus "
        "infinity."
    )
    yield reason, merge_heads(scores.masked_fill(future, 0).softmax(-1) @ v)
    reason = "the softmax runs over the queries; the keys compete, so it is axis -1."
    weights = scores.masked_fill(future, -math.inf).softmax(-2)
    yield reason, merge_heads(weights @ v)
    yield "the division by the root of d is gone.", _look_back(q, k, v, scale=1.0)
