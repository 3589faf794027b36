"""Exercises of "One head": two scores, a row of weights, attention from memory, W_Q."""

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
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
    finite_numbers,
    random,
    require_function,
    require_shape,
    require_tensor,
    require_unchanged,
)

_SIZES = ((3, 5, 6, 7), (8, 2, 9, 5))  # n, m, d, d_v


@check("my_scores")
def check_scores(answer: object) -> str:
    """Judge two scores of the query *thirsty*, and print the verdict.

    Args:
        answer: two numbers, the score with the key of *cat* and with the key of *it*.
    """
    found = finite_numbers(answer, 2)
    for reason, numbers in _WRONG_SCORES:
        if found.tolist() == numbers:
            raise Refused(reason)
    for word, number, right in zip(("cat", "it"), found.tolist(), (6, 4), strict=True):
        if number != right:
            raise Refused(
                f'{number:g} is not the score with "{word}". Multiply the two words feature by '
                "feature, first with first and so on, and add up the four products."
            )
    return (
        '"thirsty" and "cat" share animal, 2 · 3 = 6. With "it" the score is 2 · 1 + 2 · 1 = 4, '
        'as when "it" asked "thirsty": a dot product is the same in both directions.'
    )


_WRONG_SCORES = [
    ("you divided by √4 already. That comes next; the score is the sum before it.", [3, 2]),
    ('the other way round: first the score with "cat", then the one with "it".', [4, 6]),
    ('your query is "it". Here "thirsty" asks: take its numbers, (2, 0, 0, 2).', [3, 3]),
    ('your query is "it". Here "thirsty" asks: take its numbers, (2, 0, 0, 2).', [3, 4]),
    ('you scored each key with itself. The query is "thirsty" both times.', [9, 3]),
    ("you added the numbers of the two words. Multiply them, feature by feature.", [7, 7]),
    ("you multiplied the sums of the words' numbers. Multiply feature by feature.", [12, 12]),
    ('with "it", add up two products: 2 · 1 for animal and 2 · 1 for quality.', [6, 2]),
]


@check("my_weights")
def check_weights(answer: object) -> str:
    """Judge the attention weights of the query *drank*, and print the verdict.

    Args:
        answer: eight numbers, one per word of the chapter's sentence, to two digits.
    """
    found = finite_numbers(answer, 8)
    chapter = chapters.load("01_one_head")
    x = chapter.EMBEDDINGS.double()
    drank = chapter.WORDS.index("drank")
    scores = x @ x[drank]  # (m, d) x (d,) -> (m,)
    right = (scores / 2).softmax(-1)  # (m,)
    if _close(found, right):
        return (
            "right. Before rounding, the eight weights add up to 1, and the six words that do not "
            "fit share 0.37 of it."
        )
    for reason, weights in [*_wrong_weights(scores), *_of_others(chapter.WORDS, x, drank)]:
        if _close(found, weights):
            raise Refused(reason)
    if not 0.97 < found.sum() < 1.03:
        raise Refused(
            f"your weights add up to {found.sum():.2f}. Divide each exponential by the sum of all "
            "eight, and the weights add up to 1."
        )
    worst = int((found - right).abs().argmax())
    raise Refused(
        f'they add up to {found.sum():.2f}, but the weight of "{chapter.WORDS[worst]}" is not '
        f"{found[worst]:.2f}. Its score is {scores[worst]:g}; halve it, take the exponential, "
        "divide by the sum."
    )


def _wrong_weights(scores: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield reasons with the weights that each leads to."""
    powers = (scores / 2).exp()  # (m,)
    yield "these are the scores. They still have to become shares.", scores
    yield "these are the scores divided by 2. The exponential comes next.", scores / 2
    yield "these are the exponentials. Divide each by the sum of all eight.", powers
    reason = "there is no exponential: you divided the scores by their sum."
    yield reason, scores / scores.sum()
    reason = "you left the division out: halve each score before you take its exponential."
    yield reason, scores.softmax(-1)
    reason = (
        "perhaps you divided the scores by 4: divide them by √4 = 2. Or your query is "
        '"was"; here "drank" asks.'
    )
    yield reason, (scores / 4).softmax(-1)
    left_out = powers * (scores > 0)  # (m,)
    reason = (
        "a score of 0 gets a weight, too: exp(0) is 1, not 0. There are six such words, and they "
        "count in the sum."
    )
    yield reason, left_out / left_out.sum()
    yield reason, left_out / powers.sum()
    yield reason, powers / left_out.sum()
    yield (
        "these are percentages. Divide by 100: the weights add up to 1.",
        100 * powers / powers.sum(),
    )


def _of_others(words: list[str], x: Tensor, right: int) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights of the other queries, with the words that have them."""
    weights = _look(x, torch.eye(4, dtype=x.dtype))  # (n, m)
    for row in weights.unique(dim=0):
        same = [i for i, other in enumerate(weights) if torch.allclose(other, row)]
        if right not in same:
            names = " or ".join(f'"{words[i]}"' for i in same)
            yield f'your query is {names}; here "drank" asks.', row


def _close(found: Tensor, expected: Tensor) -> bool:
    """Tell whether numbers that were rounded on paper are these."""
    return bool(((found - expected).abs() <= 0.011 * expected.abs().clamp(min=1)).all())


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
    try:
        output = call("your code", answer, *copies)
    except Refused as raised:
        raise Refused(_why_it_raises(answer, str(raised))) from None
    for name, now, before in zip(names, copies, inputs, strict=True):
        require_unchanged(name, now, before)
    right, _ = scaled_dot_product_attention(*inputs)
    compare(output, right, "(n, d_v)", _wrong_attention(*inputs))

    leaves = [x.clone().requires_grad_() for x in inputs]
    right, _ = scaled_dot_product_attention(*leaves)
    output = compare(call("your code", answer, *leaves), right, "(n, d_v)", ())
    compare_gradients(output, right, dict(zip(names, leaves, strict=True)))


def _why_it_raises(answer: Callable[..., Any], raised: str) -> str:
    """Say which product does not fit, if the answer runs where n, m, d and d_v are all equal."""
    query, key, value = random(2, (4, 4), (4, 4), (4, 4))
    output = None
    with contextlib.suppress(Exception):
        output = answer(query.clone(), key.clone(), value.clone())
    if isinstance(output, Tensor):
        for reason, wrong in _misfits(query, key, value):
            with contextlib.suppress(Refused):
                compare(output, wrong, "(n, d_v)", ())
                return f"{reason} So {raised}"
    return raised


def _misfits(query: Tensor, key: Tensor, value: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield reasons with outputs that exist for equal sizes alone."""
    as_it_is = (
        "you multiply query by key as it is. A score compares a row of query with a row of key, so "
        "the keys have to become columns: query @ key.mT, (n, d) x (d, m)."
    )
    by_key = (
        "your weights have a row per key, and the output needs a row per query: score with "
        "query @ key.mT."
    )
    for divisor, axis in itertools.product((2, 1, 4, 0.5), (-1, -2)):
        yield as_it_is, (query @ key / divisor).softmax(axis) @ value
        reason = "you transpose query where key has to be transposed: query @ key.mT."
        yield reason, (query.mT @ key / divisor).softmax(axis) @ value
        yield by_key, (key @ query.mT / divisor).softmax(axis) @ value
        powers = (query @ key.mT / divisor).exp()  # (n, m)
        reason = "a sum over one axis loses that axis: write sum(-1, keepdim=True)."
        yield reason, powers / powers.sum(axis) @ value


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
    reason = "you divide the scores by their sum, without an exponential: weights can be negative."
    yield reason, scores / scores.sum(-1, keepdim=True) @ value
    powers = scores.exp()  # (n, m)
    reason = "each exponential has to be divided by the sum of its row: the weights add up to 1."
    yield reason, powers @ value
    yield reason, raw.exp() @ value
    yield f"you divide by the sum of all exponentials; {reason}", powers / powers.sum() @ value
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
        "your softmax runs over the queries: the weights of each key add up to 1, and those of "
        "each query have to. The keys are the last axis of query @ key.mT, (n, m), but the first "
        "one of key @ query.mT, (m, n).",
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
    queries, weights = x @ matrix, _look(x, matrix)  # (n, d), (n, m)
    if not weights.isfinite().all():
        return "its numbers are so large that the scores overflow."
    given = torch.zeros_like(matrix)  # (4, 4)
    given[3, 0] = 2
    added = matrix - given  # (4, 4)
    if any(_works(words, x, other) for other in (matrix.mT, given + added.mT)):
        return (
            "a row and a column are swapped. A row is a feature that the word has, a column one "
            f"that it asks for. As it stands: {found}"
        )
    if _works(words, x, given + 4 * added):
        return f"the right place, but too small a number. {found}"
    features = chapters.load("01_one_head").FEATURES
    thirsty = words.index("thirsty")
    shared = [
        name
        for name, has, asks in zip(features, x[thirsty], matrix[:, 3], strict=True)
        if has * asks > 0
    ]
    if shared and weights[thirsty].argmax() == thirsty:
        return (
            f"in your matrix, {' and '.join(shared)} {'ask' if shared[1:] else 'asks'} for "
            f'quality. "thirsty" has {shared[0]}, too, so it asks for quality and finds itself. '
            f'Which feature does "it" have that "thirsty" has not? {found}'
        )
    asked = " and ".join(
        f'"{word}" asks with ({", ".join(f"{n:g}" for n in queries[words.index(word)].tolist())})'
        for word, _ in _WANTED
    )
    return f"not yet. {found} As it stands, {asked}."


def _works(words: list[str], x: Tensor, matrix: Tensor) -> bool:
    """Tell whether ``matrix`` as W_Q does what is asked."""
    return all(_sentence(words, _look(x, matrix), *pair)[0] for pair in _WANTED)


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
