"""Exercises of "The reshape trick": one number, and a layer that passes a test though wrong."""

import functools
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from annotated_attention import merge_heads, split_heads
from annotated_book.exercises._exercise import Exercise, NotYet, Refused, require_function
from annotated_book.exercises._values import whole_numbers


def _which_index(answer: object, found: Tensor, right: Tensor) -> str:
    if found[1] != right[1]:
        return (
            "the number in the middle is the word, and a right split keeps every number with its "
            "word."
        )
    return (
        "the word is right. Which head does the feature belong to, and where does it stand there?"
    )


check_place = Exercise(
    name="my_place",
    right=(1, 3, 1),
    praise=(
        "right. Word 3 stays word 3, and its feature 3 is the last of the 2 features of the "
        "second head."
    ),
    wrong={
        "you give (word, head, feature). That is its place in (n, h, d), before the heads move in "
        "front.": (3, 1, 1),
        "you give (head, feature, word); the axes of the heads are (h, n, d).": (1, 1, 3),
        "that is where a straight reshape puts it. There, what follows in memory fills up one head "
        "after the other, whatever word it belongs to; a right split keeps the word.": (2, 0, 1),
        "you deal the features out to the heads in turn (head = feature % h). A head has "
        "neighbours: the first d features belong to the first head.": (0, 3, 1),
        "you count everything from 1. Indices count from 0.": (2, 4, 2),
    },
    run=whole_numbers(3, "an index of three"),
    why=_which_index,
)


Layer = Callable[[Tensor, int], Tensor]
_SIZES = ((5, 3, 2), (7, 2, 4), (6, 4, 3))  # n, h, d


def _cut(
    split: Layer = split_heads,
    merge: Callable[[Tensor], Tensor] = merge_heads,
    scale: Callable[[int, int], float] | None = None,
) -> Layer:
    """Build an attention around a way to split, a way to merge, and a scale for e and h."""

    def attend(x: Tensor, h: int) -> Tensor:
        heads, by = split(x, h), scale and scale(x.size(1), h)
        return merge(F.scaled_dot_product_attention(heads, heads, heads, scale=by))

    return attend


def _over_queries(x: Tensor, h: int) -> Tensor:
    heads = split_heads(x, h)
    scores = heads @ heads.mT / heads.size(-1) ** 0.5
    return merge_heads(scores.softmax(-2) @ heads)


def _dealt(x: Tensor, h: int) -> Tensor:
    return x.unflatten(-1, (-1, h)).permute(2, 0, 1)


_RIGHT = _cut()
_KNOWN = " (The page knew that one. Is there a third?)"
_SCALED = "Its scores have another scale, and from outside nobody sees which one is right."
_KINDS = (  # wrong layers, each with what is to be said of it
    (_cut(lambda x, h: x[None]), f"It is a single head, as wide as the whole row.{_KNOWN}"),
    (_cut(_dealt), "Each head takes every h-th feature."),
    (
        _cut(_dealt, lambda mixed: mixed.permute(1, 2, 0).flatten(1)),
        "Each head takes every h-th feature.",
    ),
    (_over_queries, "The softmax runs over the queries: a word's weights do not even add up to 1."),
    (_cut(scale=lambda e, h: 1.0), _SCALED),
    (_cut(scale=lambda e, h: h / e), _SCALED),
    (_cut(scale=lambda e, h: e**-0.5), _SCALED),
)


def from_outside(model: Callable[[Tensor], Tensor], x: Tensor) -> str | None:
    """Give what the chapter's ``test_from_outside`` says of a layer, None where it lets it pass."""
    before = model(x)
    if before.shape != x.shape:
        return "return the output alone, a row for each word"
    small = before.std() / 1000
    if not (model(x.roll(1, 0)) - before.roll(1, 0)).abs().max() <= small:
        return "a row holds what was found for other words"
    changed = torch.cat([x[:-1], torch.randn_like(x[-1:])])
    if not (model(changed)[0] - before[0]).abs().max() > small:
        return "the first row does not hear the last word"
    return None


def _near(found: Tensor, expected: Tensor) -> bool:
    return bool((found - expected).abs().max() <= expected.std() / 1000)


def _trials() -> Iterator[tuple[Tensor, int]]:
    for n, h, d in _SIZES:
        yield torch.randn(n, h * d), h


def _kept(answer: Layer, h: int, x: Tensor) -> Tensor:
    """Run a layer on a copy, which it may change."""
    return answer(x.clone(), h)


def _passes_though_wrong(answer: Layer) -> Tensor:
    """Refuse a layer that the test catches, and one that is right."""
    require_function(answer)
    wrong = False
    for x, h in _trials():
        found: object = answer(x.clone(), h)
        if found is None or found is ...:
            raise NotYet(f"it returns {'...' if found is ... else None}")
        if not isinstance(found, Tensor):
            raise Refused(f"it returns an object of type {type(found).__name__}, and no tensor.")
        said = from_outside(functools.partial(_kept, answer, h), x)
        if said:
            n, e = x.shape
            raise Refused(f"caught, with {n} words and {h} heads of width {e // h}: {said}.")
        wrong |= not _near(found, _RIGHT(x, h))
    if not wrong:
        raise Refused(
            "the test lets it pass, but it is right. Spoil something that the test does not look "
            "at, by more than rounding."
        )
    return torch.tensor(wrong)


def _kind(answer: Layer) -> str:
    """Say what is wrong with a layer that passes."""
    trials = [(x, h, answer(x, h), _RIGHT(x, h)) for x, h in _trials()]
    for other, said in _KINDS:
        if all(_near(found, other(x, h)) for x, h, found, _ in trials):
            return said
    if all(_near(answer(2 * x, h), 2 * found) for x, h, found, _ in trials) and all(
        _near(answer(x + x.flip(1), h), found + answer(x.flip(1), h)) for x, h, found, _ in trials
    ):
        return f"There is no attention in it: twice the input, twice the output.{_KNOWN}"
    if all(_near(answer(2 * x, h), 8 * found) for x, h, found, _ in trials):
        return "There is no softmax in it."
    if all(
        any(_near(column, own) for own in right.mT)
        for _, _, found, right in trials
        for column in found.mT
    ):
        return "All the right numbers are there, in the wrong columns."
    return "This one is not on the list of the check: well forged."


def _praise(answer: Layer) -> str:
    pairs = [(answer(x, h), _RIGHT(x, h)) for x, h in _trials()]
    count = sum(int(((a - b).abs() > b.std() / 1000).sum()) for a, b in pairs)
    of = sum(right.numel() for _, right in pairs)
    return f"it passes at {len(_SIZES)} sizes, and {count} of its {of} numbers are wrong. " + _kind(
        answer
    )


check_forged = Exercise(
    name="forged",
    right=lambda x, h: x + x.mean(0),
    praise=_praise,
    wrong={},
    run=_passes_though_wrong,
)
