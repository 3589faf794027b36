"""What every check is made of: run the reader's code, compare, and say why it is not right yet."""

import contextlib
import functools
import math
import operator
import textwrap
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from annotated_attention.doctor import Finding, Report

_NOT_THE_READERS = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]))
_LONGEST_MESSAGE = 400


class Refused(Exception):
    """The answer is not right; the text says why, to the reader who wrote it."""


class NotYet(Refused):
    """Nothing is written yet."""


class Raised(Refused):
    """The reader's code raised.

    Attributes:
        error: what it raised.
    """

    def __init__(self, text: str, error: Exception) -> None:
        """Take what to say, and the error that it is about."""
        super().__init__(text)
        self.error = error


def check(name: str) -> Callable[[Callable[[Any], str]], Callable[[object], None]]:
    """Turn a judge into a check that prints a verdict and never raises.

    Args:
        name: what the exercise calls the answer; the verdict begins with it.

    Returns:
        A decorator for a judge: a function of the answer that returns what is right about it, or
        raises ``Refused``.
    """

    def decorate(judge: Callable[[Any], str]) -> Callable[[object], None]:
        @functools.wraps(judge)
        def verdict(answer: object) -> None:
            try:
                # The reader's random numbers, and what they switched off, stay as they are.
                with torch.enable_grad(), torch.random.fork_rng(devices=[]):
                    text = f"✓ {name}: {judge(answer)}"
            except Refused as reason:
                text = f"✗ {name}: {reason}"
            except Exception as error:
                text = f"✗ {name}: this check cannot judge it. It stopped with {describe(error)}"
            print("\n".join(_wrap(line) for line in text.split("\n")))

        return verdict

    return decorate


def _wrap(line: str) -> str:
    """Break a long line of prose; code, which is indented, stays as it is."""
    if line.startswith(" "):
        return line
    return textwrap.fill(
        line, 88, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def describe(error: Exception) -> str:
    """Give an exception's type and message, and the line of the reader's code it came from."""
    try:
        message = " ".join(str(error).split())
    except Exception:  # an exception may be unable to say what it is
        message = ""
    message = textwrap.shorten(message, _LONGEST_MESSAGE, placeholder=" ...")
    text = f"{type(error).__name__}{': ' * bool(message)}{message}"
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(_NOT_THE_READERS)]
    if not theirs:
        return text
    return f"{text}\nin line {theirs[-1].lineno}:\n    {theirs[-1].line or ''}".rstrip()


def call(what: str, function: Callable[..., Any], *arguments: object) -> Any:
    """Run the reader's code, and refuse it where it raises.

    Raises:
        Refused: with the exception, the line, and the shapes of the arguments.
    """
    try:
        return function(*arguments)
    except NotImplementedError as error:
        # Torch raises it, too; a reader's placeholder has little to say.
        raise NotYet(f"not yet, {what} raises {describe(error)}") from None
    except Exception as error:
        given = ", ".join(_shown(argument) for argument in arguments)
        text = f"{what} raises {describe(error)}\nIt was given {given}."
        raise Raised(text, error) from None


def _shown(argument: object) -> str:
    """Say what an argument was: a tensor by its shape, a module by its class."""
    if isinstance(argument, Tensor):
        return str(tuple(argument.shape))
    if isinstance(argument, list):
        return f"[{', '.join(_shown(item) for item in argument)}]"
    if isinstance(argument, nn.Module):
        return type(argument).__name__  # as text, it would take a dozen lines
    return str(argument)


def require_function(value: object) -> None:
    """Refuse what cannot be called; None and ``...`` count as nothing written yet."""
    if value is None or value is ...:
        raise NotYet(f"not yet, it is {value if value is None else '...'}.")
    if not callable(value):
        kind = type(value).__name__
        raise Refused(f"give the function or class itself; this is an object of type {kind}.")


@contextlib.contextmanager
def at_sizes(first: bool, **sizes: int) -> Iterator[None]:
    """Say with a refusal that only these sizes failed, unless they are the first."""
    try:
        yield
    except Refused as reason:
        if first:
            raise
        said = ", ".join(f"{letter} = {size}" for letter, size in sizes.items())
        raise Refused(f"it is right at first, but not with {said}: {reason}") from None


def random(seed: int, *shapes: tuple[int, ...]) -> list[Tensor]:
    """Make float64 tensors of these shapes, the same ones for the same seed."""
    source = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=source, dtype=torch.float64) for shape in shapes]


def finite_numbers(answer: object, count: int) -> Tensor:
    """Give the numbers that an answer is made of, as a vector of float64.

    Args:
        answer: a list, a tuple or a tensor.
        count: how many numbers are asked for.

    Raises:
        Refused: with what it is instead; None and ``...`` count as nothing written yet.
    """
    given = answer.detach().tolist() if isinstance(answer, Tensor) else answer
    if given is None or given is ...:
        raise NotYet(f"not yet, it is {given if given is None else '...'}.")
    if not isinstance(given, list | tuple) or len(given) != count:
        what = f"{len(given)} of them" if isinstance(given, list | tuple) else "none"
        raise Refused(f"a list of {count} numbers is asked for, and there are {what}.")
    missing = sum(number is None or number is ... for number in given)
    if missing:
        verb = "is" if missing == 1 else "are"
        raise NotYet(f"not yet, {missing} of the {count} numbers {verb} missing.")
    alone = [x.item() if isinstance(x, Tensor) and x.numel() == 1 else x for x in given]
    if not all(isinstance(x, Real) and math.isfinite(x) for x in alone):
        raise Refused(f"each of the {count} is to be one finite number.")
    return torch.tensor(alone, dtype=torch.float64)


def whole_numbers(what: str, value: object, asked: str, count: int) -> tuple[int, ...]:
    """Give the whole numbers that an answer is made of.

    Args:
        what: what gave the value, followed by a verb: "it returns".
        value: anything.
        asked: what the numbers are together: "an index of three".
        count: how many of them there are.

    Returns:
        The numbers.

    Raises:
        Refused: with what it is instead; None and ``...`` count as nothing written yet.
    """
    if value is None or value is ...:
        raise Refused(f"not yet, {what} {value if value is None else '...'}.")
    numbers = value.tolist() if isinstance(value, Tensor) else value
    if not isinstance(numbers, tuple | list):
        kind = type(value).__name__
        raise Refused(f"{what} an object of type {kind}; {asked} is asked for.")
    if any(number is None or number is ... for number in numbers):
        raise Refused("not yet, a number is missing.")
    if len(numbers) != count:
        raise Refused(f"{what} {len(numbers)} numbers; {asked} is asked for.")
    try:
        return tuple(operator.index(number) for number in numbers)
    except Exception:
        kinds = ", ".join(type(number).__name__ for number in numbers)
        if count == 1:
            raise Refused(f"{what} of type {kinds}; one whole number is asked for.") from None
        raise Refused(
            f"{what} ({kinds}); {asked} is made of whole numbers. // divides and drops the rest."
        ) from None


def require_tensor(what: str, value: object) -> Tensor:
    """Refuse what is not a tensor of real numbers.

    Args:
        what: what gave the value, followed by a verb: "it returns".
        value: anything.

    Returns:
        The value.

    Raises:
        Refused: with what it is instead; None and ``...`` count as nothing written yet.
    """
    if value is None or value is ...:
        raise NotYet(f"not yet, {what} {value if value is None else '...'}.")
    if isinstance(value, tuple | list):
        kind = type(value).__name__
        raise Refused(f"{what} a {kind} of {len(value)} things; one tensor is asked for.")
    if not isinstance(value, Tensor):
        raise Refused(f"{what} an object of type {type(value).__name__}; a tensor is asked for.")
    if value.is_complex():
        raise Refused(f"{what} a tensor of {value.dtype}; real numbers are asked for.")
    return value


def require_shape(what: str, value: Tensor, letters: str, shape: Sequence[int]) -> None:
    """Refuse a tensor of another shape, with both shapes and the letters of the right one."""
    if tuple(value.shape) != tuple(shape):
        raise Refused(
            f"{what} a tensor of shape {tuple(value.shape)}; what fits is {letters}, "
            f"here {tuple(shape)}."
        )


def compare(
    value: object,
    right: Tensor,
    letters: str,
    wrong: Iterable[tuple[str, Tensor]],
) -> Tensor:
    """Refuse an output that is not right, with the reason if it is a known wrong one.

    Args:
        value: what the reader's code returned.
        right: the right output.
        letters: its shape in letters, such as "(n, e)".
        wrong: reasons, each with the output that it leads to. Earlier ones go first.

    Returns:
        The value.

    Raises:
        Refused: with the reason, or where the difference is largest.
    """
    found = require_tensor("it returns", value)
    numbers = found.detach().to(right.dtype)
    if not _agree(numbers, right):
        for reason, other in wrong:
            if _agree(numbers, other):
                raise Refused(reason)
        require_shape("it returns", found, letters, right.shape)
        raise Refused(_difference(numbers, right.detach()))
    if found.dtype != right.dtype:
        raise Refused(
            f"the numbers are right, but {right.dtype} goes in and {found.dtype} comes out. Make "
            "new tensors with the dtype of an input: query.new_zeros(...), for example."
        )
    return found


def _agree(a: Tensor, b: Tensor) -> bool:
    # Far above the rounding of float32 constants, far below the effect of any mistake.
    return a.shape == b.shape and torch.allclose(a, b, rtol=1e-5, atol=1e-5, equal_nan=True)


def _difference(found: Tensor, right: Tensor) -> str:
    """Say how an output of the right shape differs."""
    bad = ~found.isfinite()
    if bad.any():
        return f"{int(bad.sum())} of its {found.numel()} numbers are NaN or infinite."
    apart = (found - right).abs()
    place = [int(i) for i in torch.unravel_index(apart.argmax(), apart.shape)]
    index = tuple(place)
    count = int((apart > 1e-5).sum())
    return (
        f"the shape is right, but {count} of its {found.numel()} numbers are not. Most of all at "
        f"{place}, counted from 0: you have {found[index]:.4f}, right is {right[index]:.4f}."
    )


def wrong_in(report: Report) -> list[Finding]:
    """Give what is wrong; another scale, by convention elsewhere, is not what is asked for here."""
    scales = ("no-scale", "scale-by-convention")
    return [x for x in report.findings if x.severity != "convention" or x.code in scales]


def require_unchanged(name: str, now: object, before: object) -> None:
    """Refuse code that has changed an argument in place.

    Args:
        name: of the argument.
        now: the argument after the call, a tensor or a list of tensors.
        before: a copy of it from before the call.
    """
    then, after = ([x] if isinstance(x, Tensor) else x for x in (before, now))
    assert isinstance(then, list)
    assert isinstance(after, list)
    same = len(then) == len(after) and all(map(_same, then, after))
    if not same:
        raise Refused(
            f"it changes its argument {name} in place. Whoever calls it still needs {name}: make "
            f"a new one instead of writing into it (no +=, /=, append or pop on {name})."
        )


def _same(a: object, b: object) -> bool:
    return isinstance(a, Tensor) and isinstance(b, Tensor) and a.equal(b)


def compare_gradients(value: Tensor, right: Tensor, inputs: dict[str, Tensor]) -> None:
    """Refuse an output through which other gradients flow than through the right one.

    Args:
        value: the reader's output, whose numbers are right.
        right: the right output.
        inputs: what both were computed from, by name.

    Raises:
        Refused: with the input whose gradient is missing or differs.
    """
    mixture = random(99, tuple(right.shape))[0]
    names, tensors = list(inputs), list(inputs.values())

    def gradients(output: Tensor) -> Sequence[Tensor | None]:
        if not output.requires_grad:
            return [None] * len(tensors)
        return torch.autograd.grad((output * mixture).sum(), tensors, allow_unused=True)

    mine = call("differentiating its output", gradients, value)
    for name, found, expected in zip(names, mine, gradients(right), strict=True):
        if found is None:
            raise Refused(
                f"the output is right, but no gradient reaches {name}, so it cannot be learned. "
                "Something cuts the graph: detach, .data, no_grad, item, numpy, torch.tensor or "
                "a new nn.Parameter."
            )
        if expected is None or not _agree(found, expected):
            raise Refused(f"the output is right, but the gradient of {name} is not.")
