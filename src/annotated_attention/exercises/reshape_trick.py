"""Exercises of "The reshape trick": where a number lands, a split that mixes tokens."""

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


@check("landing")
def check_landing(answer: Callable[..., Any]) -> str:
    """Judge ``landing(token, feature, shape)``, and print the verdict.

    Args:
        answer: the reader's function of a place in x (n, h * d) and of the shape of its heads. It
            is to return the place of the same number among the heads (h, n, d).
    """
    require_function(answer)
    for shape in _SIZES:
        h, n, d = shape
        with at_sizes(shape == _SIZES[0], h=h, n=n, d=d):
            _judge_landing(answer, shape)
    return (
        "right for every token and feature. A number keeps its token; its feature says which head "
        "it belongs to, and where in it."
    )


def _judge_landing(answer: Callable[..., Any], shape: Shape) -> None:
    """Judge the function on every place there is."""
    h, n, d = shape
    places = [(token, feature) for token in range(n) for feature in range(h * d)]
    found = [
        whole_numbers(
            "it returns", call("your code", answer, *place, shape), "an index of three", 3
        )
        for place in places
    ]
    right = [(feature // d, token, feature % d) for token, feature in places]
    if found == right:
        return
    for reason, wrong in _wrong_landings(shape):
        if found == [wrong(*place) for place in places]:
            raise Refused(reason)
    apart = [i for i, index in enumerate(found) if index != right[i]]
    at = apart[0]
    raise Refused(
        f"{len(apart)} of {len(places)} places are wrong. The first is x{list(places[at])}: you "
        f"say {found[at]}, but it is at {right[at]}."
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
        "the features are cut rightly, but the tokens still come first: (n, h, d). Move the heads "
        "in front.",
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
            those = " and ".join(str(number) for number in tokens)
            return (
                f"it mixes tokens: heads[{head}, {row}] holds features of token {those}. Row {row} "
                f"of every head belongs to token {row}, all counted from 0."
            )
    for head in range(h):
        if feature[head, 0].tolist() != list(range(head * d, (head + 1) * d)):
            return (
                f"every row keeps its token, but heads[{head}] has its features "
                f"{feature[head, 0].tolist()}; right is {head * d} to {head * d + d - 1}."
            )
    return None
