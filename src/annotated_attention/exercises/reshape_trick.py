"""Exercises of "The reshape trick": one number, the rows of a wrong merge, a wrong split."""

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
    random,
    require_function,
    require_unchanged,
    whole_numbers,
)

_SIZES = ((4, 3, 6), (3, 5, 2))  # h, n, d
# First the rows that stay within a head, as in the chapter; then some that reach into the next.
_MERGED = ((2, 8, 3), (4, 6, 5), (5, 3, 2))  # h, n, d

Shape = tuple[int, int, int]


# h, n, d as in the figure of the chapter, and the token and feature of the number to place.
_FIGURE, _PLACE = (2, 3, 2), (2, 1)


@check("my_place")
def check_place(answer: object) -> str:
    """Judge where one number stands among the heads, and print the verdict.

    Args:
        answer: the index of x[2, 1] among the heads, for 3 tokens and 2 heads of width 2.
    """
    _, _, d = _FIGURE
    token, feature = _PLACE
    found = whole_numbers("it is", answer, "an index of three", 3)
    right = (feature // d, token, feature % d)
    if found == right:
        return (
            f"right. Token {token} stays token {token}, and its feature {feature} is the last of "
            f"the {d} features of the first head."
        )
    for reason, wrong in _wrong_landings(_FIGURE):
        if found == wrong(token, feature):
            raise Refused(reason)
    if found[1] != token:
        raise Refused(
            "the number in the middle is the token, and a right split keeps every number with its "
            "token."
        )
    raise Refused(
        "the token is right. Which head does the feature belong to, and where in it does it stand?"
    )


@check("mixed_tokens")
def check_mixed_tokens(answer: Callable[..., Any]) -> str:
    """Judge ``mixed_tokens(row, shape)``, and print the verdict.

    Args:
        answer: the reader's function of a row of ``heads.reshape(n, h * d)`` and of the shape of
            the heads (h, n, d). It is to return the token of each of the h pieces in that row.
    """
    require_function(answer)
    for shape in _MERGED:
        h, n, d = shape
        with at_sizes(shape == _MERGED[0], h=h, n=n, d=d):
            _judge_mixed_tokens(answer, shape)
    return (
        "right for every row. The pieces are dealt out head by head, so a row gets h neighbouring "
        "tokens of one head, in place of one token of every head."
    )


def _judge_mixed_tokens(answer: Callable[..., Any], shape: Shape) -> None:
    """Judge the function on every row."""
    h, n, _ = shape
    pieces = f"a list of h, here {h},"
    found = [
        whole_numbers("it returns", call("your code", answer, row, shape), pieces, h)
        for row in range(n)
    ]
    right = _tokens_of_rows(shape)
    if found == right:
        return
    if [sorted(row) for row in found] == [sorted(row) for row in right]:
        raise Refused("these are the right tokens, in another order than from left to right.")
    for reason, wrong in _wrong_tokens(shape):
        if found == [tuple(row) for row in wrong]:
            raise Refused(reason)
    at = next(row for row in range(n) if found[row] != right[row])
    raise Refused(
        f"row {at} is made of tokens {list(right[at])}, counted from 0; you say {list(found[at])}."
    )


def _tokens_of_rows(shape: Shape) -> list[tuple[int, ...]]:
    """Give the tokens in each row of the wrong merge, a token for each piece of d numbers."""
    h, n, _ = shape
    merged = torch.arange(n).expand(h, n).reshape(n, h)  # (n, h)
    return [tuple(row) for row in merged.tolist()]


def _wrong_tokens(shape: Shape) -> Iterator[tuple[str, list[list[int]]]]:
    """Yield reasons, each with the rows that it leads to."""
    h, n, d = shape
    number = torch.arange(n * h).view(n, h)  # (n, h)
    yield (
        "that is the right merge: each row has one token alone. Without the transpose, the first "
        "row takes the first h pieces of the first head.",
        (number // h).tolist(),
    )
    yield "you count the tokens from 1. They count from 0.", (number % n + 1).tolist()
    yield (
        f"you count the pieces through all heads. A head has only n of them, here {n}; then the "
        "next head begins, again with token 0.",
        number.tolist(),
    )
    yield (
        "these are the heads of the pieces, not their tokens: // n counts whole heads, and % n is "
        "the token within one.",
        (number // n).tolist(),
    )
    yield (
        "you count numbers in place of pieces. A row has h * d numbers, but only h pieces.",
        (number * d % n).tolist(),
    )
    yield (
        "a row takes h pieces, one of d numbers each; you begin the next row after d pieces.",
        (number % h + number // h * d).remainder(n).tolist(),
    )
    yield (
        "you begin each row one piece after the row before. A row takes h pieces, so the next one "
        "begins h pieces later.",
        (number % h + number // h).remainder(n).tolist(),
    )


def _wrong_landings(shape: Shape) -> Iterator[tuple[str, Callable[[int, int], tuple[int, ...]]]]:
    """Yield reasons, each with the function that leads to it."""
    h, n, d = shape
    yield (
        "you give (token, head, feature). That is its place in (n, h, d), before the heads move in "
        "front.",
        lambda token, feature: (token, feature // d, feature % d),
    )
    yield (
        "you give (head, feature, token); the axes of the heads are (h, n, d).",
        lambda token, feature: (feature // d, feature % d, token),
    )
    yield (
        "that is where a straight reshape puts it. There, what follows in memory fills up the "
        "first head, whatever token it belongs to; a right split keeps the token.",
        lambda token, feature: (*divmod(token * h + feature // d, n), feature % d),
    )
    yield (
        "you deal the features out to the heads in turn (head = feature % h). A head has "
        "neighbours: the first d features belong to the first head.",
        lambda token, feature: (feature % h, token, feature // h),
    )
    yield (
        "you divide by h. Features are cut into pieces of d, so d tells where a head begins.",
        lambda token, feature: (feature // h, token, feature % h),
    )
    yield (
        "head and feature are in each other's place: feature // d counts whole heads, feature % d "
        "is the rest.",
        lambda token, feature: (feature % d, token, feature // d),
    )
    yield (
        "the last number is still the feature in x. Count it within the head: it is below d.",
        lambda token, feature: (feature // d, token, feature),
    )
    yield (
        "you count the heads from 1. Indices count from 0.",
        lambda token, feature: (feature // d + 1, token, feature % d),
    )
    yield (
        "you count everything from 1. Indices count from 0.",
        lambda token, feature: (feature // d + 1, token + 1, feature % d + 1),
    )


@check("repaired")
def check_repaired(answer: Callable[..., Any]) -> str:
    """Judge ``repaired(x, num_heads)``, and print the verdict.

    Args:
        answer: the reader's function of x (n, h * d) and of h, which is to return the heads,
            (h, n, d).
    """
    require_function(answer)
    for seed, (h, n, d) in enumerate(_SIZES):
        (x,) = random(seed, (n, h * d))
        with at_sizes(not seed, h=h, n=n, d=d):
            _judge_repaired(answer, x, h)
    return (
        "right, and so are the gradients: the same as split and stack. First cut the features, "
        "then move the heads in front."
    )


def _judge_repaired(answer: Callable[..., Any], x: Tensor, h: int) -> None:
    """Judge the function on one input."""
    copy = x.clone()
    output = call("your code", answer, copy, h)
    require_unchanged("x", copy, x)
    compare(output, _split(x, h), "(h, n, d)", _wrong_splits(output, x, h))

    leaf = x.clone().requires_grad_()
    right = _split(leaf, h)
    output = compare(call("your code", answer, leaf, h), right, "(h, n, d)", ())
    compare_gradients(output, right, {"x": leaf})


def _split(x: Tensor, h: int) -> Tensor:
    return torch.stack(x.chunk(h, -1))  # (h, n, d)


def _wrong_splits(output: object, x: Tensor, h: int) -> Iterator[tuple[str, Tensor]]:
    """Yield reasons with the output that each leads to."""
    right = _split(x, h)  # (h, n, d)
    n, d = right.shape[1:]
    yield (
        "the features are cut correctly, but the tokens still come first: (n, h, d). Move the "
        "heads in front.",
        right.transpose(0, 1),
    )
    yield "each head is right but transposed: (h, d, n).", right.mT
    yield (
        "the heads are interleaved: each takes every h-th feature. The first d features belong to "
        "the first head, so cut them into (h, d), not into (d, h).",
        x.view(n, d, h).permute(2, 0, 1),
    )
    if isinstance(output, Tensor) and output.shape == right.shape:
        # Whatever it is, the reader learns where its numbers come from.
        reason = _misplaced(output.detach(), x)
        if reason:
            yield reason, output.detach()


def _misplaced(heads: Tensor, x: Tensor) -> str | None:
    """Say which numbers of x stand in the wrong place; None if there are others than those of x."""
    same = heads[..., None] == x.flatten()
    if not same.any(-1).all():
        return None
    origin = same.int().argmax(-1)  # (h, n, d)
    h, n, d = heads.shape
    token, feature = origin // x.size(1), origin % x.size(1)
    for head, row in ((j, i) for j in range(h) for i in range(n)):
        tokens = token[head, row].unique().tolist()
        if tokens != [row]:
            *others, last = map(str, tokens)
            those = f"tokens {', '.join(others)} and {last}" if others else f"token {last}"
            return (
                f"it mixes tokens: heads[{head}, {row}] holds features of {those}. Row {row} of "
                f"every head belongs to token {row}, all counted from 0."
            )
    for head in range(h):
        if feature[head, 0].tolist() != list(range(head * d, (head + 1) * d)):
            return (
                f"every row keeps its token, but heads[{head}] has its features "
                f"{feature[head, 0].tolist()}; right is {head * d} to {head * d + d - 1}."
            )
    return None
