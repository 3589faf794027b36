"""Exercises of "Batches": a slice, the fold in words, a bug that equal lengths hide."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor
from torch.nn.functional import pad
from torch.overrides import TorchFunctionMode

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
    require_unchanged,
    whole_numbers,
)
from annotated_attention.heads import merge_heads, split_heads

Axes = list[list[str]]  # for each axis the letters that it is made of, the outermost first

_LETTERS = ("n", "b", "h", "d")
_FOLD_SIZES = ({"n": 3, "b": 2, "h": 4, "d": 6}, {"n": 4, "b": 5, "h": 3, "d": 2})


# The sizes of the fold, and the sample and head whose slice is asked for.
_FOLDED = {"b": 3, "h": 4}
_SAMPLE, _HEAD = 2, 1


@check("my_slice")
def check_slice(answer: object) -> str:
    """Judge where a head of a sample stands in the folded axis, and print the verdict.

    Args:
        answer: the slice of head 1 of sample 2, for 3 samples with 4 heads each.
    """
    b, h = _FOLDED.values()
    (found,) = whole_numbers("it is", (answer,), "one number", 1)
    right = _SAMPLE * h + _HEAD
    if found == right:
        return f"right: {_SAMPLE} · {h} + {_HEAD} = {right}. A sample keeps its heads together."
    wrong = {
        _HEAD * b + _SAMPLE: "you count head by head. All heads of sample 0 come first.",
        _SAMPLE * b + _HEAD: f"a sample takes up as many slices as it has heads: {h}, not {b}.",
        right + 1: "you count the slices from 1. The first one is slice 0.",
        right - h - 1: "you count samples and heads from 1.",
        _SAMPLE * h: f"that is where sample {_SAMPLE} begins, with its head 0.",
    }
    if found in wrong:
        raise Refused(wrong[found])
    if not 0 <= found < b * h:
        raise Refused(f"there are {b * h} slices, 0 to {b * h - 1}.")
    i, j = divmod(found, h)
    raise Refused(f"slice {found} is head {j} of sample {i}: all heads of a sample come together.")


@check("pattern")
def check_pattern(answer: object) -> str:
    """Judge the fold written as einops writes it, and print the verdict.

    Args:
        answer: text that turns x (n, b, h * d) into (b * h, n, d).
    """
    if answer is None or answer is ...:
        raise Refused(f"not yet, it is {answer if answer is None else '...'}.")
    if isinstance(answer, str) and not answer.strip():
        raise Refused("not yet, it is empty.")
    if not isinstance(answer, str):
        kind = type(answer).__name__
        raise Refused(f"it is an object of type {kind}; text in quotes is asked for.")
    left, right = _read(answer)
    for number, sizes in enumerate(_FOLD_SIZES):
        with at_sizes(not number, **sizes):
            _judge_fold(left, right, sizes)
    n, b, h, d = _FOLD_SIZES[0].values()
    return (
        f"right: it turns {(n, b, h * d)} into {(b * h, n, d)}. Slice i * h + j is head j of "
        "sample i."
    )


def _judge_fold(left: Axes, right: Axes, sizes: dict[str, int]) -> None:
    """Judge a sentence by what it makes of numbers."""
    n, b, h, d = sizes.values()
    (x,) = random(0, (n, b, h * d))
    _require_input(left, sizes)
    expected = x.reshape(n, b * h, d).transpose(0, 1)  # (b * h, n, d)
    wrong = ((reason, _apply(*_read(text), x, sizes)) for reason, text in _wrong_patterns())
    compare(_apply(left, right, x, sizes), expected, "(b * h, n, d)", wrong)


def _read(text: str) -> tuple[Axes, Axes]:
    """Parse a sentence such as "n b (h d) -> (b h) n d", and refuse what is none."""
    if text.count("->") != 1:
        if "→" in text:
            raise Refused("write the arrow with two signs, ->, as einops does. This one is →.")
        how = "no arrow" if "->" not in text else "more than one arrow"
        raise Refused(f"there is {how} in it. Write: what comes in -> what comes out.")
    (names, left), (others, right) = (_read_side(side) for side in text.split("->"))
    for name in _LETTERS:
        if name in names and name not in others:
            raise Refused(f"{name} comes in but does not come out: no axis may get lost.")
        if name in others and name not in names:
            raise Refused(f"{name} comes out but does not come in: no axis comes from nowhere.")
    return left, right


def _read_side(text: str) -> tuple[list[str], Axes]:
    """Give the letters of one side, and the axes that they form."""
    axes: Axes = []
    inside = False
    for token in re.findall(r"\w+|\S", text):
        if token in ("(", ")"):
            if (token == "(") == inside:
                raise _unbalanced(text)
            inside = token == "("
            if inside:
                axes.append([])
        elif token not in _LETTERS:
            raise Refused(_unknown(token))
        elif inside:
            axes[-1].append(token)
        else:
            axes.append([token])
    if inside:
        raise _unbalanced(text)
    names = [name for axis in axes for name in axis]
    for name, times in Counter(names).items():
        if times > 1:
            raise Refused(f"{name} stands {times} times on the same side: once is enough.")
    return names, axes


def _unbalanced(text: str) -> Refused:
    return Refused(
        f'the parentheses in "{text.strip()}" do not match: each ( needs one ), and none goes '
        "inside another."
    )


def _unknown(token: str) -> str:
    """Say what is wrong with something that is no letter."""
    if token.isalnum() and set(token) <= set(_LETTERS):
        return f'"{token}" is read as one name. Put spaces between letters: {" ".join(token)}.'
    if token.isidentifier():
        return f'"{token}" is no letter of this exercise: they are n, b, h and d.'
    return f'"{token}" is not read. There are letters, spaces, parentheses and one ->.'


def _require_input(left: Axes, sizes: dict[str, int]) -> None:
    """Refuse a left side that does not fit x, (n, b, h * d)."""
    found = [sorted(axis) for axis in left]
    if found == [["n"], ["b"], ["d", "h"]]:
        return
    if found == [["b"], ["n"], ["d", "h"]]:
        raise Refused("sequence and batch are swapped on the left: sequence-first means n, then b.")
    if ["h"] in found or ["d"] in found:
        raise Refused(
            "on the left, heads and their features form one axis: put h and d in parentheses."
        )
    shape = tuple(math.prod(sizes[name] for name in axis) for axis in left)
    n, b, h, d = sizes.values()
    raise Refused(
        f"its left side means a tensor of shape {shape}, but what comes in is sequence-first with "
        f"all heads side by side, here {(n, b, h * d)}."
    )


def _apply(left: Axes, right: Axes, x: Tensor, sizes: dict[str, int]) -> Tensor:
    """Do to x what a sentence says."""
    names = [name for axis in left for name in axis]
    order = [names.index(name) for axis in right for name in axis]
    apart = x.reshape([sizes[name] for name in names]).permute(order)
    return apart.reshape([math.prod(sizes[name] for name in axis) for axis in right])


_DEALT = (
    "(d h) deals the features out to the heads in turn. The d features of a head are neighbours, "
    "so h is the outer and d the inner one: (h d)."
)
_COMES_OUT = [
    (
        "(h b) puts the heads outside: first head 0 of every sample. The slices go sample by "
        "sample, so that i * h + j is head j of sample i.",
        "(h b) n d",
    ),
    ("each slice is transposed: tokens come before features.", "(b h) d n"),
    ("each slice is transposed, and (h b) puts the heads outside.", "(h b) d n"),
    (
        "that is the first of two steps: the slices still have to go in front, where @ takes them "
        "for a batch.",
        "n (b h) d",
    ),
    (
        "sequence and batch are swapped: every word then meets those at its place in the other "
        "samples.",
        "(n h) b d",
    ),
    ("you fold tokens and heads into one axis. Fold samples and heads.", "b (n h) d"),
    ("you fold samples and tokens into one axis: different samples then meet.", "(b n) h d"),
    ("that is the layout with four axes. Put samples and heads into one: (b h).", "b h n d"),
    ("that is batch-first, but the heads are still side by side.", "b n (h d)"),
    ("what comes out is what goes in.", "n b (h d)"),
]


def _wrong_patterns() -> Iterator[tuple[str, str]]:
    """Yield reasons, each with the sentence that it explains."""
    yield _DEALT, "n b (d h) -> (b h) n d"
    for reason, right in _COMES_OUT:
        yield reason, f"n b (h d) -> {right}"
        yield f"{_DEALT} And {reason}", f"n b (d h) -> {right}"


# b, n, m, h, d. First self-attention, where n = m; then more keys than queries, then fewer.
_ATTEND_SIZES = ((2, 3, 3, 4, 6), (2, 3, 5, 4, 6), (3, 6, 2, 5, 4))


@check("attend_heads")
def check_attend_heads(answer: Callable[..., Any]) -> str:
    """Judge ``attend_heads(query, key, value, num_heads)``, and print the verdict.

    Args:
        answer: the reader's function of query (b, n, e), key and value (b, m, e) and h, which is to
            return (b, n, e).
    """
    require_function(answer)
    for seed, (b, n, m, h, d) in enumerate(_ATTEND_SIZES):
        inputs = random(seed, (b, n, h * d), (b, m, h * d), (b, m, h * d))
        with at_sizes(not seed, b=b, n=n, m=m, h=h, d=d):
            _judge_attend_heads(answer, inputs, h)
    return "right, and so are the gradients: for n = m, for fewer queries than keys, and for more."


def _judge_attend_heads(answer: Callable[..., Any], inputs: list[Tensor], h: int) -> None:
    """Judge the function on one set of inputs."""
    names = ("query", "key", "value")
    copies = [x.clone() for x in inputs]
    with _Reshapes() as reshapes:
        try:
            output = call("your code", answer, *copies, h)
        except Refused as error:
            reason = reshapes.with_length_of_query(*copies) or reshapes.to_length_of_key(*copies)
            if reason is None:
                raise
            raised, *_ = str(error).split("\n")
            raise Refused(f"{reason} So {raised}") from None
    for name, now, before in zip(names, copies, inputs, strict=True):
        require_unchanged(name, now, before)
    compare(output, _attend(h, *inputs), "(b, n, e)", _wrong_attention(output, h, *inputs))

    leaves = [x.clone().requires_grad_() for x in inputs]
    right = _attend(h, *leaves)
    output = compare(call("your code", answer, *leaves, h), right, "(b, n, e)", ())
    compare_gradients(output, right, dict(zip(names, leaves, strict=True)))


class _Reshapes(TorchFunctionMode):
    """Notes what tensors are reshaped to."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[tuple[Tensor, tuple[int, ...]]] = []
        self.refused: tuple[Any, ...] = ()  # what a reshape could not do

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        reshapes = getattr(func, "__name__", "") in {"reshape", "view"}
        try:
            result = func(*args, **(kwargs or {}))
        except RuntimeError:
            if reshapes:
                sizes = args[1:]
                self.refused = sizes[0] if sizes and isinstance(sizes[0], tuple) else sizes
            raise
        if reshapes and args and isinstance(result, Tensor):
            self.noted.append((args[0], tuple(result.shape)))
        return result

    def with_length_of_query(self, query: Tensor, key: Tensor, value: Tensor) -> str | None:
        """Say whether key or value was given as many tokens as the query has."""
        n, m = query.size(1), key.size(1)
        found = {
            name: shape
            for x, shape in self.noted
            for name, argument in (("key", key), ("value", value))
            if x is argument and n in shape and m not in shape
        }
        if not found:
            return None
        which = " and ".join(found)
        verb = "are" if len(found) > 1 else "is"
        return f"{which} {verb} {tuple(key.shape)}, and reshaped to {next(iter(found.values()))}."

    def to_length_of_key(self, query: Tensor, key: Tensor, value: Tensor) -> str | None:
        """Say whether the output should have become as long as the key."""
        if self.refused != tuple(key.shape) or query.size(1) == key.size(1):
            return None
        return f"the output is reshaped to {tuple(key.shape)}, but queries get rows, and not keys."


def _attend(h: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attend with h heads."""
    q, k, v = (split_heads(x, h) for x in (query, key, value))
    return merge_heads(scaled_dot_product_attention(q, k, v)[0])  # (b, n, e)


def _wrong_attention(
    output: object, h: int, query: Tensor, key: Tensor, value: Tensor
) -> Iterator[tuple[str, Tensor]]:
    """Yield reasons with the output that each leads to."""
    n, m = query.size(1), key.size(1)
    if n == m:
        yield "query and key are in each other's place.", _attend(h, key, query, value)
    elif isinstance(output, Tensor) and output.shape == key.shape:
        reason = (
            "it returns one row per key, (b, m, e). Each query gets one: the output has the "
            "query's length."
        )
        yield reason, output.detach().to(query.dtype)
    for reason, k, v in _wrong_lengths(n, key, value):
        yield reason, _attend(h, query, k, v)
    yield "every word attends to query: pass key and value on.", _attend(h, query, query, query)
    yield "you mix the keys: the weights belong to value.", _attend(h, query, key, key)
    yield "key and value are in each other's place.", _attend(h, query, value, key)
    yield "the features are not split into heads.", _attend(1, query, key, value)
    yield from _wrong_merges(h, query, key, value)
    yield from _wrong_splits(h, query, key, value)


def _wrong_lengths(n: int, key: Tensor, value: Tensor) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield reasons with keys and values cut, or filled up, to n of them."""
    m = key.size(1)
    if m > n:
        for which, kept in (("first", slice(None, n)), ("last", slice(m - n, None))):
            yield (
                f"only the {which} n keys are used. The others count as much: there are m of them.",
                key[:, kept],
                value[:, kept],
            )
    for mode in ("constant", "replicate") if m < n else ():
        yield (
            "you fill key and value up to n tokens. What you add is no token, and it takes its "
            "share of the attention.",
            pad(key.mT, (0, n - m), mode).mT,
            pad(value.mT, (0, n - m), mode).mT,
        )


def _wrong_merges(
    h: int, query: Tensor, key: Tensor, value: Tensor
) -> Iterator[tuple[str, Tensor]]:
    """Yield reasons with the output of heads that are merged wrongly."""
    b, n, e = query.shape
    d = e // h
    q, k, v = (split_heads(x, h) for x in (query, key, value))  # (b, h, ..., d)
    mixed, _ = scaled_dot_product_attention(q, k, v)
    yield (
        "the folded axis is cut in the wrong order: folded with heads first, (h b), and unfolded "
        "with samples first, (b h). Heads end up in the wrong samples.",
        merge_heads(mixed.transpose(0, 1).reshape(b, h, n, d)),
    )
    yield (
        "the folded axis is cut in the wrong order: folded with samples first, (b h), and unfolded "
        "with heads first, (h b). Heads end up in the wrong samples.",
        merge_heads(mixed.reshape(h, b, n, d).transpose(0, 1)),
    )
    reason = "the heads are merged by a straight reshape, which mixes tokens. Transpose first."
    yield reason, mixed.reshape(b, n, e)


def _wrong_splits(
    h: int, query: Tensor, key: Tensor, value: Tensor
) -> Iterator[tuple[str, Tensor]]:
    """Yield reasons with the output of heads that are split wrongly."""
    b, n, e = query.shape
    d = e // h
    cut = [x.reshape(b, h, -1, d) for x in (query, key, value)]
    mixed, _ = scaled_dot_product_attention(*cut)
    reason = (
        "the heads are split by a straight reshape to (b, h, m, d), which mixes tokens. Cut the "
        "features first, then move the heads."
    )
    yield reason, merge_heads(mixed)
    yield reason, mixed.reshape(b, n, e)
    if n == key.size(1):  # else the tokens of query and key do not pair up, and nothing comes out
        apart = [x.reshape(b, n, h, d) for x in (query, key, value)]
        mixed, _ = scaled_dot_product_attention(*apart)
        reason = (
            "the heads stay behind the tokens, (b, n, h, d), so the heads of a token attend to "
            "each other. Move them to the front: (b, h, n, d)."
        )
        yield reason, mixed.reshape(b, n, e)
        yield reason, mixed.transpose(1, 2).reshape(b, n, e)
    dealt = [x.reshape(b, -1, d, h).permute(0, 3, 1, 2) for x in (query, key, value)]
    mixed, _ = scaled_dot_product_attention(*dealt)
    reason = "the heads are interleaved: the d features of a head are neighbours, so cut (h, d)."
    yield reason, mixed.permute(0, 2, 3, 1).flatten(2)
    yield reason, merge_heads(mixed)
