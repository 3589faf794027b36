"""Exercises of "One head": attention from memory, and a matrix that asks."""

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

from annotated_attention import chapters
from annotated_attention.attention import scaled_dot_product_attention
from annotated_attention.exercises._verdict import (
    Refused,
    at_sizes,
    call,
    check,
    compare,
    compare_gradients,
    random,
    require_function,
    require_shape,
    require_tensor,
    require_unchanged,
)

_SIZES = ((3, 5, 6, 7), (8, 2, 9, 5))  # n, m, d, d_v


@check("my_attend")
def check_attend(answer: Callable[..., Any]) -> str:
    """Judge ``my_attend(query, key, value)``, and print the verdict.

    Args:
        answer: the reader's function of query (n, d), key (m, d) and value (m, d_v), which is to
            return softmax(query keyᵀ / √d) value, (n, d_v).
    """
    require_function(answer)
    for seed, (n, m, d, d_v) in enumerate(_SIZES):
        with at_sizes(not seed, n=n, m=m, d=d, d_v=d_v):
            _judge_attend(answer, random(seed, (n, d), (m, d), (m, d_v)))
    n, m, d, d_v = _SIZES[0]
    return (
        f"right, and so are the gradients, for n = {n} queries, m = {m} keys, d = {d} and "
        f"d_v = {d_v}, and again for other sizes."
    )


def _judge_attend(answer: Callable[..., Any], inputs: list[Tensor]) -> None:
    """Judge the function on one set of inputs."""
    names = ("query", "key", "value")
    copies = [x.clone() for x in inputs]
    output = call("your code", answer, *copies)
    for name, now, before in zip(names, copies, inputs, strict=True):
        require_unchanged(name, now, before)
    right, _ = scaled_dot_product_attention(*inputs)
    compare(output, right, "(n, d_v)", _wrong_attention(*inputs))

    leaves = [x.clone().requires_grad_() for x in inputs]
    right, _ = scaled_dot_product_attention(*leaves)
    output = compare(call("your code", answer, *leaves), right, "(n, d_v)", ())
    compare_gradients(output, right, dict(zip(names, leaves, strict=True)))


def _wrong_attention(query: Tensor, key: Tensor, value: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield reasons with the output that each leads to; one reason alone comes before two."""
    raw = query @ key.mT  # (n, d) x (d, m) -> (n, m)
    d = query.size(-1)
    scores = raw / math.sqrt(d)  # (n, m)
    weights = scores.softmax(-1)  # (n, m)
    yield "you return the scores; they still need a softmax and a product with value.", scores
    yield "there is no softmax: the scores are no shares of one whole yet.", scores @ value
    reason = (
        "you divide by √d after the softmax. Divide the scores before it: that keeps the softmax "
        "from saturating, and the weights have to add up to 1."
    )
    yield reason, raw.softmax(-1) @ value / math.sqrt(d)
    yield "it is right but transposed: one row per query is asked for.", (weights @ value).mT

    choices = itertools.product(_divisors(query, key, value), _AXES, _MIXES)
    for parts in sorted(choices, key=lambda parts: sum(bool(reason) for reason, _ in parts)):
        (_, divisor), (_, axis), (_, mix) = parts
        reasons = [reason for reason, _ in parts if reason]
        if reasons:
            yield " And ".join(reasons), mix((raw / divisor).softmax(axis), key, value)


def _divisors(query: Tensor, key: Tensor, value: Tensor) -> list[tuple[str, float]]:
    """List what people divide the scores by, the right divisor without a reason."""
    (n, d), (m, d_v) = query.shape, value.shape
    return [
        ("", math.sqrt(d)),
        ("you do not scale: divide the scores by √d before the softmax.", 1),
        ("you divide the scores by d, not by √d (or by √d twice).", d),
        ("you multiply the scores by √d instead of dividing.", 1 / math.sqrt(d)),
        (
            "you divide the scores by √d_v, the root of value's width. A score adds up d products, "
            "so take d from query or key.",
            math.sqrt(d_v),
        ),
        ("you divide by the root of the number of keys, √m, not by √d.", math.sqrt(m)),
        ("you divide by the root of the number of queries, √n, not by √d.", math.sqrt(n)),
        ("you divide by 2, which is √d only for the chapter's sentence, where d = 4.", 2),
    ]


_AXES = [
    ("", -1),
    (
        "your softmax runs over the queries (the first axis): each column adds up to 1. Each row "
        "has to, so take it over the keys, softmax(-1).",
        -2,
    ),
]

_MIXES: list[tuple[str, Callable[[Tensor, Tensor, Tensor], Tensor]]] = [
    ("", lambda weights, key, value: weights @ value),
    ("you mix the keys: multiply the weights by value.", lambda weights, key, value: weights @ key),
    ("you return the weights: multiply them by value.", lambda weights, key, value: weights),
]

_WANTED = (("it", "thirsty"), ("thirsty", "cat"))


@check("my_w_q")
def check_w_q(answer: object) -> str:
    """Judge the matrix W_Q for the chapter's sentence, and print the verdict.

    Args:
        answer: (4, 4); with it, *it* is to give more than half of its attention to *thirsty*,
            and *thirsty* more than half of its own to *cat*.
    """
    matrix = require_tensor("it is", answer).detach().double()
    require_shape("it is", matrix, "(e, d)", (4, 4))
    if not matrix.isfinite().all():
        raise Refused("it holds numbers that are NaN or infinite.")
    chapter = chapters.load("01_one_head")
    words, x = chapter.WORDS, chapter.EMBEDDINGS.double()
    weights = _look(x, matrix)
    found = [_sentence(words, weights, *pair) for pair in _WANTED]
    if all(good for good, _ in found):
        return " ".join(text for _, text in found)
    raise Refused(_why_not(words, x, matrix, " ".join(text for _, text in found)))


def _why_not(words: list[str], x: Tensor, matrix: Tensor, found: str) -> str:
    """Say what is wrong with a matrix that does not do what is asked; it does ``found``."""
    weights = _look(x, matrix)  # (n, n)
    if not weights.isfinite().all():
        return "its numbers are so large that the scores overflow."
    it, thirsty = words.index("it"), words.index("thirsty")
    asking = (x @ matrix).abs().sum(-1) > 0  # (n,)
    if asking[it] and (weights[asking].argmax(-1) == thirsty).all():
        return (
            'every word that asks for anything now looks most at "thirsty", "thirsty" itself, too '
            f'({weights[thirsty, thirsty]:.2f}). What does "it" have that "thirsty" has not?'
        )
    if all(_sentence(words, _look(x, matrix.mT), *pair)[0] for pair in _WANTED):
        return (
            "it is a right matrix, but transposed. A row is a feature that the word has, a column "
            f"one that it asks for. As it stands: {found}"
        )
    return f"not yet. {found}"


def _look(x: Tensor, matrix: Tensor) -> Tensor:
    """Compute how much each word attends to each, with ``matrix`` as W_Q."""
    _, weights = scaled_dot_product_attention(x @ matrix, x, x)
    assert weights is not None
    return weights  # (n, n)


def _sentence(words: list[str], weights: Tensor, who: str, whom: str) -> tuple[bool, str]:
    """Tell whether ``who`` gives ``whom`` more than half, and say what it does instead."""
    row = weights[words.index(who)]  # (n,)
    given, most = row[words.index(whom)].item(), int(row.argmax())
    if given > 0.5:
        return True, f'"{who}" gives "{whom}" {given:.2f} of its attention.'
    if (row.amax() - row.amin()).item() < 1e-9:
        return False, f'"{who}" asks for nothing, and gives every word {given:.2f}.'
    if row.amax().item() - given < 1e-6:
        pairs = zip(words, row.tolist(), strict=True)
        rivals = [f'"{word}"' for word, w in pairs if word != whom and given - w < 1e-6]
        shared = f", and {' and '.join(rivals)} as much" if rivals else ""
        return False, f'"{who}" gives "{whom}" {given:.2f}{shared}: not more than half.'
    return False, (
        f'"{who}" looks most at "{words[most]}" ({row[most]:.2f}), and gives "{whom}" only '
        f"{given:.2f}."
    )
