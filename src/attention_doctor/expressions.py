"""Values of ``--init`` and ``--call`` that are expressions: computed where they are needed."""

from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from attention_doctor.names import Unasked
from attention_doctor.options import Expression
from attention_doctor.recording import tensors


def computed(given: Iterable[tuple[str, Any]], step: str, **letters: int) -> dict[str, Any]:
    """Compute those values of an option that are expressions.

    Args:
        given: names and values.
        step: ``"construction"`` or ``"call"``.
        **letters: the sizes, by the letters of the book.

    Raises:
        Unasked: an expression fails, or holds a name that is not known.
    """
    found = dict(given)
    for name, value in found.items():
        try:
            found[name] = _run(value, letters)[0] if isinstance(value, Expression) else value
        except Exception as error:
            option = "--init" if step == "construction" else "--call"
            text = f"`{option} {name}={value}`: {type(error).__name__}: {error}"
            remedy = f"It may use the names of the file, `torch`, and {', '.join(letters)}. "
            remedy += f"""A string stands in quotes: `{option} {name}='"{name}"'`."""
            raise Unasked(step, text, remedy) from error
    return found


def for_call(text: Expression, letters: dict[str, int], longest: int, dtype: torch.dtype) -> Any:
    """Compute an expression for one call, in its dtype, so that calls of other sizes agree.

    What is drawn at random is drawn for one sample, whatever b is: every sample gets the same
    numbers. If more is drawn for longer texts, a shorter one gets those of the tokens that it has.

    Args:
        text: the expression.
        letters: the sizes of the call.
        longest: the largest number of tokens.
        dtype: that of the tokens.
    """
    value, drawn = _run(text, letters)
    found = [*tensors(value)]
    if drawn is not None:
        alone, drawn = _run(text, letters | {"b": 1})
        whole, more = _run(text, letters | {"b": 1, "n": longest, "m": longest})
        spare = {longest - letters["n"], longest - letters["m"]}
        found = [
            _repeated(one if torch.equal(drawn, more) else _cut(wide, one, spare), x)
            for x, one, wide in zip(found, tensors(alone), tensors(whole), strict=True)
        ]
    return _put(value, iter(found), dtype)


def at_positions(
    text: Expression, letters: dict[str, int], positions: Tensor, dtype: torch.dtype
) -> Any:
    """Compute an expression for a text that is long enough, and take the rows of these positions.

    Raises:
        ValueError: its size does not grow with n, or in more axes than one.
    """
    n = int(positions.max()) + 1
    whole, longer = (_run(text, letters | {"n": x, "m": x})[0] for x in (n, n + 1))
    found = []
    for x, y in zip(tensors(whole), tensors(longer), strict=True):
        (axis,) = (i for i, size in enumerate(x.shape) if size != y.size(i))
        found.append(x.index_select(axis, positions))
    return _put(whole, iter(found), dtype)


def _put(value: Any, found: Iterator[Tensor], dtype: torch.dtype) -> Any:
    """Put tensors, in order, into lists, tuples and dictionaries, with numbers of this dtype."""
    if isinstance(value, dict):
        return {name: _put(x, found, dtype) for name, x in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_put(x, found, dtype) for x in value)
    if isinstance(value, Tensor):
        value, wide = next(found), dtype == torch.float64
        if value.is_complex():
            return value.to(torch.complex128 if wide else torch.complex64)
        return value.to(dtype) if value.is_floating_point() else value
    return value.to(dtype) if isinstance(value, nn.Module) else value


def _cut(whole: Tensor, like: Tensor, spare: set[int]) -> Tensor:
    """Take what a shorter text needs; ``like`` itself where its axes do not tell how."""
    for axis, size in enumerate(like.shape):
        over = whole.size(axis) - size
        if over and over not in spare | {2 * x for x in spare}:
            return like
        # Of distances, those in the middle.
        whole = whole.narrow(axis, 0 if over in spare else over // 2, size)
    return whole


def _repeated(alone: Tensor, like: Tensor) -> Tensor:
    """Give each sample what is there for one; ``like`` itself where no axis is the samples'."""
    if alone.dim() != like.dim():
        return like
    times = [x // max(y, 1) for x, y in zip(like.shape, alone.shape, strict=True)]
    found = alone.repeat(times)
    return found if found.shape == like.shape else like


def _computed(text: Expression, letters: dict[str, int]) -> Any:
    names = {**text.names, "torch": torch, **letters}
    if text.isidentifier():  # a word: what the file calls so, or a string
        found = names.get(text, text)
        return str(text) if found is text or isinstance(found, ModuleType) else found
    try:
        return eval(text, names)
    except SyntaxError:
        if "(" in text:
            raise
        return str(text)


def _run(text: Expression, letters: dict[str, int]) -> tuple[Any, Any]:
    """Compute with a generator of its own; gives its state behind what was drawn, else None."""
    with torch.random.fork_rng(devices=[]):
        before = torch.default_generator.manual_seed(0).get_state()
        value = _computed(text, letters)
        after = torch.get_rng_state()
    return value, None if torch.equal(before, after) else after
