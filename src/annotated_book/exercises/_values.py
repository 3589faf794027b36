"""Readers of values: what is written down becomes a tensor, or a word on what is missing."""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from annotated_book.exercises._exercise import NotYet, Refused


def numbers(count: int) -> Callable[[object], Tensor]:
    """Read ``count`` finite numbers, in a list, a tuple or a tensor."""

    def read(answer: object) -> Tensor:
        given = answer.detach().tolist() if isinstance(answer, Tensor) else answer
        _require_begun("it is", given)
        if not isinstance(given, list | tuple) or len(given) != count:
            what = f"{len(given)} of them" if isinstance(given, list | tuple) else "none"
            raise Refused(f"a list of {count} numbers is asked for, and there are {what}.")
        missing = sum(number is None or number is ... for number in given)
        if missing:
            verb = "is" if missing == 1 else "are"
            raise NotYet(f"{missing} of the {count} numbers {verb} missing")
        alone = [x.item() if isinstance(x, Tensor) and x.numel() == 1 else x for x in given]
        if not all(isinstance(x, Real) and math.isfinite(x) for x in alone):
            raise Refused(f"each of the {count} is to be one finite number.")
        return torch.tensor(alone, dtype=torch.float64)

    return read


def number(value: object) -> Tensor:
    """Read the number that a function returned, as float64."""
    _require_begun("it returns", value)
    if isinstance(value, bool) or not isinstance(value, Real):
        kind = type(value).__name__
        raise Refused(f"it returns an object of type {kind}; a number is asked for.")
    return torch.tensor(float(value), dtype=torch.float64)


def whole_numbers(count: int, asked: str) -> Callable[[object], Tensor]:
    """Read ``count`` whole numbers, which together are what is ``asked``: "an index of three"."""

    def read(answer: object) -> Tensor:
        return torch.tensor(whole("it is", answer, count, asked))

    return read


def whole(what: str, value: Any, count: int, asked: str) -> list[int]:
    """Give the whole numbers in a list, a tuple or a tensor; one alone counts as a list.

    Args:
        what: what gave the value, followed by a verb: "it returns".
        value: anything.
        count: how many numbers there are to be.
        asked: what the numbers are together.
    """
    _require_begun(what, value)
    given = value.tolist() if isinstance(value, Tensor) else value
    given = [given] if count == 1 and not isinstance(given, list | tuple) else given
    if not isinstance(given, tuple | list):
        raise Refused(f"{what} an object of type {type(value).__name__}; {asked} is asked for.")
    if any(number is None or number is ... for number in given):
        raise NotYet("a number is missing")
    if len(given) != count:
        raise Refused(f"{what} {len(given)} numbers; {asked} is asked for.")
    try:
        return [operator.index(number) for number in given]
    except Exception:
        kinds = ", ".join(type(number).__name__ for number in given)
        if count == 1:
            raise Refused(f"{what} of type {kinds}; {asked} is asked for.") from None
        raise Refused(
            f"{what} ({kinds}); {asked} is made of whole numbers. // divides and drops the rest."
        ) from None


def cells(names: Sequence[str], rows: int, columns: int) -> Callable[[object], Tensor]:
    """Read masks written as text: for each name ``rows`` texts of x and . with ``columns`` of them.

    The function gives a boolean tensor (names, rows, columns), True for "x"; with one row, a text
    alone counts as a list.
    """

    def read(answer: object) -> Tensor:
        texts = entries(answer, names)
        for name, lines in texts.items():
            lines = texts[name] = [lines] if rows == 1 and isinstance(lines, str) else lines
            if not isinstance(lines, list | tuple) or not all(isinstance(x, str) for x in lines):
                raise Refused(f"“{name}” must have a list of texts, one for each query.")
            if len(lines) != rows or any(len(line) != columns for line in lines):
                widths = ", ".join(str(len(line)) for line in lines)
                raise Refused(
                    f"“{name}” has {len(lines)} rows, with {widths} characters. A row belongs to a "
                    f"query and a column to a key: {rows} of {columns} characters are asked for."
                )
        strange = sorted({x for lines in texts.values() for line in lines for x in line} - {*"x."})
        if "?" in strange:
            raise NotYet('some cells are still "?"')
        if strange:
            raise Refused(f'"{strange[0]}" is not read. Write x for blocked and . for may be seen.')
        return torch.tensor([[[x == "x" for x in line] for line in texts[n]] for n in names])

    return read


def entries(answer: object, names: Sequence[str]) -> dict[str, Any]:
    """Give a dictionary with these keys, and refuse what is none."""
    _require_begun("it is", answer)
    if not isinstance(answer, Mapping):
        kind = type(answer).__name__
        raise Refused(f"it is an object of type {kind}; a dictionary is asked for.")
    if set(answer) != set(names):
        raise Refused(f"its keys must be {', '.join(map(repr, names))}.")
    return dict(answer)


def _require_begun(what: str, value: object) -> None:
    """Refuse None and ``...``, which count as nothing written yet."""
    if value is None or value is ...:
        raise NotYet(f"{what} {'...' if value is ... else None}")


def tensor(letters: str, shape: Sequence[int]) -> Callable[[object], Tensor]:
    """Read a finite tensor of real numbers, as float64, of this shape and its letters."""

    def read(answer: object) -> Tensor:
        _require_begun("it is", answer)
        if not isinstance(answer, Tensor):
            kind = type(answer).__name__
            raise Refused(f"it is an object of type {kind}; a tensor is asked for.")
        if answer.is_complex() or not answer.isfinite().all():
            raise Refused("it holds numbers that are NaN, infinite or complex.")
        if tuple(answer.shape) != tuple(shape):
            raise Refused(
                f"it is a tensor of shape {tuple(answer.shape)}; what fits is {letters}, here "
                f"{tuple(shape)}."
            )
        return answer.detach().double()

    return read


def furthest(found: Tensor, right: Tensor) -> int:
    """Give the place of the number that is furthest off, relative where it is above 1."""
    return int(((found - right).abs() / right.abs().clamp(min=1)).argmax())
