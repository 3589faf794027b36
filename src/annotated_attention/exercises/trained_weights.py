"""Exercises of "Trained weights": what is handed over, a mean, and a head that looks back."""

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
from annotated_attention.pretrained import mean_pool

_LENGTHS = ((3, 7, 1, 5), (2, 4))  # of the sentences in a batch
_WIDTH = 6
_HEADS = ((3, 4, 7, 1), (2, 5, 8, 3))  # layers, h, n, distance
_TOKENS, _WEIGHTS, _NORMS = ("[CLS]", "cat", "milk"), (0.80, 0.15, 0.05), (0.25, 4.0, 4.0)
_PARTS, _CLOSE = (0.2, 0.6, 0.2), 5e-3
_WRONG_PARTS = (
    ("these are the weights. Multiply each by its token's norm.", _WEIGHTS),
    ("these are the norms. Multiply each by its token's weight.", _NORMS),
    ("you divided the weights by the norms. Multiply them.", (3.2, 0.0375, 0.0125)),
    ("you divided the norms by the weights. Multiply them.", (0.3125, 80 / 3, 80.0)),
    ("you added weight and norm. Multiply them.", (1.05, 4.15, 4.05)),
)


@check("my_parts")
def check_parts(answer: object) -> str:
    """Judge the weight times norm of three tokens, and print the verdict.

    Args:
        answer: three numbers, of [CLS], *cat* and *milk*.
    """
    found = finite_numbers(answer, len(_PARTS)).tolist()
    for reason, numbers in _WRONG_PARTS:
        if all(abs(x - y) < _CLOSE for x, y in zip(found, numbers, strict=True)):
            raise Refused(reason)
    for token, number, right in zip(_TOKENS, found, _PARTS, strict=True):
        if abs(number - right) > _CLOSE:
            raise Refused(f"{number:g} is not the weight of {token} times its norm.")
    return (
        "the query collects most from cat, 0.6, though it gives [CLS] more than five times the "
        "weight. [CLS] hands over no more than milk."
    )


@check("my_pool")
def check_my_pool(answer: Callable[..., Any]) -> str:
    """Judge ``my_pool(states, blocked)``, and print the verdict.

    Args:
        answer: the reader's function of states (b, n, e) and blocked (b, n), which is to return
            the mean of each sentence's real tokens, (b, e).
    """
    require_function(answer)
    for seed, lengths in enumerate(_LENGTHS):
        blocked = torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None]
        with at_sizes(not seed, b=len(lengths), n=max(lengths), e=_WIDTH):
            _judge_pool(answer, random(seed, (*blocked.shape, _WIDTH))[0], blocked)
    return f"right, and so are the gradients, for sentences of {_LENGTHS[0]} tokens and others."


def _judge_pool(answer: Callable[..., Any], states: Tensor, blocked: Tensor) -> None:
    """Judge the function on one batch, whose padding holds large numbers."""
    states = states.masked_fill(blocked[..., None], 9.0) + 1
    given = states.clone(), blocked.clone()
    output = call("your code", answer, *given)
    require_unchanged("states", given[0], states)
    require_unchanged("blocked", given[1], blocked)
    compare(output, mean_pool(states, blocked), "(b, e)", _wrong_means(states, blocked))
    leaf = states.clone().requires_grad_()
    right = mean_pool(leaf, blocked)
    output = compare(call("your code", answer, leaf, blocked.clone()), right, "(b, e)", ())
    compare_gradients(output, right, {"states": leaf})


def _wrong_means(states: Tensor, blocked: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield reasons with the output that each leads to."""
    real, padding = ((x[..., None]).to(states.dtype) for x in (~blocked, blocked))
    sums = (states * real).sum(1)  # (b, e)
    yield "the padding is in the mean: it is the mean of all places.", states.mean(1)
    yield (
        "the padding is in the sum, though you divide by the real tokens.",
        (states.sum(1) / real.sum(1)),
    )
    yield "it is the sum of the real tokens; divide by how many they are.", sums
    yield (
        (
            "you add up the real tokens, but divide by n, the padded length. A short sentence "
            "comes out too small."
        ),
        sums / states.size(1),
    )
    yield "you divide by the number of padded places, not of real ones.", sums / padding.sum(1)
    yield (
        ("you average what is padding: blocked is True there, so turn it round."),
        (states * padding).sum(1) / padding.sum(1),
    )
    yield "it is the first token of each sentence, not the mean of all.", states[:, 0]
    yield (
        "it is the mean over all sentences' tokens, the same for each.",
        (sums.sum(0) / real.sum()).expand_as(sums),
    )
    normal = sums / real.sum(1)
    yield (
        ("the direction is right, but you scale to length 1. The mean itself is asked for."),
        normal / normal.norm(dim=-1, keepdim=True),
    )


@check("my_head")
def check_my_head(answer: Callable[..., Any]) -> str:
    """Judge ``my_head(weights, distance)``, and print the verdict.

    Args:
        answer: the reader's function of weights (l, h, n, n) and a distance, which is to return
            the layer and head, counted from 0, that look most at the token so far before.
    """
    require_function(answer)
    for seed, (layers, h, n, distance) in enumerate(_HEADS):
        with at_sizes(not seed, layers=layers, h=h, n=n, distance=distance):
            _judge_head(answer, seed, (layers, h, n), distance)
    return "right: the mean along the diagonal of the keys before, for each head, and the largest."


def _judge_head(
    answer: Callable[..., Any], seed: int, sizes: tuple[int, int, int], distance: int
) -> None:
    """Judge the function on weights in which each head has a habit of its own."""
    layers, h, n = sizes
    right = (layers - 1, 1)
    ahead = (
        f"that head looks {distance} places ahead. A row is a query, and keys before it stand to "
        "its left, below the diagonal."
    )
    decoys = {
        (0, 1): (ahead, -distance),
        (0, h - 1): ("that head looks further back. Use the distance as it is.", distance + 1),
        (1, 0): ("that head looks at the token itself, on the main diagonal.", 0),
    }
    if distance != 1:
        decoys[right[0], h - 2] = ("that head looks one place back. Use the distance.", 1)
    weights = random(seed, (layers, h, n, n))[0].softmax(-1)
    for (layer, head), (_, back) in decoys.items():
        _look(weights[layer, head], back, 0.9)
    _look(weights[right], distance, 0.6)
    once = (0, 2)  # looks back in one place, entirely, and nowhere else
    weights[once][distance] = torch.eye(n, dtype=weights.dtype)[0]
    wraps = (1, h - 1)  # looks at the last keys where no key is so far before
    _look(weights[wraps], distance, 0.5)
    weights[wraps][:distance] = torch.eye(n, dtype=weights.dtype)[-distance:]
    given = weights.clone()
    found = _pair(call("your code", answer, given, distance))
    require_unchanged("weights", given, weights)
    reasons = {place: reason for place, (reason, _) in decoys.items()}
    reasons[once] = "that head looks back in one row alone. Take the mean, not the max."
    reasons[wraps] = (
        "in its first rows, i - distance is negative and wraps round to the last keys. Leave those "
        "rows out."
    )
    if distance < layers:
        first = int(weights.diagonal(-distance).mean(-1).argmax())
        why = "diagonal takes the first two axes, unless you name the last two, -2 and -1."
        reasons.setdefault(divmod(first, h), why)
    if found != right:
        raise Refused(_why(found, right, reasons, (layers, h)))


def _look(weights: Tensor, back: int, share: float) -> None:
    """Let every token that can look ``back`` places give that place a share of its weight."""
    n = len(weights)
    for i in range(n):
        if 0 <= i - back < n:
            weights[i] *= 1 - share
            weights[i, i - back] += share


def _pair(value: Any) -> tuple[int, int]:
    """Read a layer and a head off what was returned."""
    if value is None or value is ...:
        raise Refused(f"not yet, it returns {value if value is None else '...'}.")
    items = value.tolist() if isinstance(value, Tensor) and value.numel() < 9 else value
    if not isinstance(items, tuple | list) or len(items) != 2:
        shown = f"one number, {items}" if isinstance(items, int) else f"a {type(value).__name__}"
        also = " divmod by the number of heads makes two of it." if isinstance(items, int) else ""
        raise Refused(f"it returns {shown}; a layer and a head are asked for.{also}")
    if not all(isinstance(item, int | Tensor) for item in items):
        raise Refused("it returns two things that are no integers; a layer and a head are wanted.")
    layer, head = (int(item) for item in items)
    return layer, head


def _why(
    found: tuple[int, int],
    right: tuple[int, int],
    reasons: dict[tuple[int, int], str],
    sizes: tuple[int, int],
) -> str:
    """Say what is wrong with a pair."""
    layer, head = found
    if found in reasons:
        return f"you have layer {layer}, head {head}: {reasons[found]}"
    if found == (right[1], right[0]):
        return "it is the right head, but the layer comes first."
    if found == (right[0] + 1, right[1] + 1):
        return "it is the right head, but count layers and heads from 0."
    flat = right[0] * sizes[1] + right[1]
    if found == divmod(flat, sizes[0]) and sizes[0] != sizes[1]:
        return "divide the flat index by the number of heads, not of layers."
    return f"you have layer {layer}, head {head}; another one looks back more, on average."
