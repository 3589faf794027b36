"""The engine of all exercises: run the reader's answer, compare it with a table, say what is wrong.

An exercise is a table: the right answer, and each wrong one with the sentence that it deserves.
Right, wrong and the reader's answer go through the same ``run`` and are compared, so a wrong answer
is written once, the way a reader would write it. A chapter's table reads like this:

    check_attend = Exercise(
        name="my_attend",
        right=attend,
        praise="right, and so are the gradients.",
        wrong={
            "you do not scale.": lambda q, k, v: (q @ k.mT).softmax(-1) @ v,
            "you return the weights.": Either([weights, weights_without_scale]),
        },
        sizes=[{"n": 3, "m": 5, "d": 6}, {"n": 8, "m": 2, "d": 9}],
        draw=lambda n, m, d: normal(query=(n, d), key=(m, d), value=(m, d)),
        easy=[{"n": 4, "m": 4, "d": 4}],
        shape="(n, d)",
    )

``check_attend(answer)`` prints the verdict, returns None and never raises.
"""

import contextlib
import copy
import html
import io
import textwrap
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from annotated_attention._extras import brought_by

_NOT_THE_READERS = (str(Path(torch.__file__).parent), str(Path(__file__).parents[2]))
_LONGEST_MESSAGE = 400

Drawn = Mapping[str, Any]  # what an answer is given, by name


class Refused(Exception):
    """The answer is not right; the text says why, to the reader who wrote it."""


class NotYet(Refused):
    """Nothing is written yet."""

    def __init__(self, what: str) -> None:
        """Take what is missing: "it is None"."""
        super().__init__(f"not yet, {what}.")


class Raised(Refused):
    """The reader's code raised ``error``."""

    def __init__(self, error: Exception, given: Sequence[object]) -> None:
        """Take the error, and what the code was given."""
        shown = f"\nIt was given {', '.join(map(_shown, given))}." if given else ""
        super().__init__(f"your code raises {describe(error)}{shown}")
        self.error = error


@dataclass(frozen=True, repr=False)
class _Folded:
    """A text that a notebook shows behind a click."""

    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        summary = "<summary>The solution's verdict</summary>"
        return f'<details class="aa-said">{summary}<pre>{html.escape(self.text)}</pre></details>'


class Either(list[Any]):
    """Several wrong answers that deserve the same sentence."""


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """A right answer, wrong ones with their sentences, and how all of them are compared.

    An answer is run once for each of ``sizes``, on tensors drawn anew. Where it differs from the
    right one, the sentence is that of the first wrong answer with the same outputs at all sizes, or
    else at the first sizes where it is wrong. Then follow what ``why`` says, the shape, and the
    place where the numbers differ most. Where the numbers are right, the dtype has to be, and
    the gradients, if the right output has any.

    Attributes:
        name: what the reader calls the answer; the verdict begins with it.
        right: a right answer.
        praise: what the verdict says of a right one, or a function of the answer that tells.
        wrong: sentences, each with its answer or with ``Either`` of several; earlier ones go first.
            They name what is refused. To refuse what is accepted, add sizes, or ``also``.
        run: takes an answer and what was drawn, one by one, and gives a tensor with what counts of
            the answer. Without ``sizes`` the answer is a value, and ``run`` reads it (``_values``).
            By default the answer is called.
        sizes: what ``draw`` is called with, by name. The first ones are those of the exercise.
        draw: what an answer is given, by name: tensors, lists of tensors, modules, or anything
            else. What it is not given itself, such as the matrices of a module that it makes,
            stands in a dictionary by name. By default the sizes themselves are drawn.
        easy: more sizes, at which mistakes that raise elsewhere go through, mostly because all are
            equal: an answer that raises is told from others by what it gives where it does not.
        shape: the right shape in letters, such as "(n, e)".
        why: takes the answer, its output, the right output and what was drawn, one by one, and
            tells what is wrong where no wrong answer fits, or gives None.
        also: takes an answer whose numbers are right, and raises ``Refused`` for what they hide.
        close: how far numbers may be off, relative where they are above 1. The default is far above
            the rounding of float32 constants and far below the effect of any mistake.
    """

    name: str
    right: Any
    praise: str | Callable[[Any], str]
    wrong: Mapping[str, Any]
    run: Callable[..., Any] = lambda answer, *drawn: answer(*drawn)
    sizes: Sequence[Mapping[str, Any]] = ()
    draw: Callable[..., Drawn] = dict
    easy: Sequence[Mapping[str, Any]] = ()
    shape: str = ""
    why: Callable[..., str | None] = lambda answer, found, right, *drawn: None
    also: Callable[[Any], None] = lambda answer: None
    close: float = 1e-5

    def __call__(self, answer: object) -> None:
        """Print the verdict on an answer."""
        try:
            # The reader's random numbers, and what they switched off, stay as they are.
            with torch.enable_grad(), torch.random.fork_rng(devices=[]):
                text = f"✓ {self.name}: {self._judge(answer)}"
        except Refused as reason:
            text = f"✗ {self.name}: {reason}"
        except Exception as error:
            text = f"✗ {self.name}: this check cannot judge it. It stopped with {describe(error)}"
        print("\n".join(map(_wrapped, text.split("\n"))))

    def folded(self, answer: object) -> None:
        """Show the verdict on a chapter's own solution: a notebook folds it, like the solution."""
        with brought_by("book"):
            from IPython.display import display

        with contextlib.redirect_stdout(io.StringIO()) as printed:
            self(answer)
        display(_Folded(printed.getvalue().rstrip()))

    def _judge(self, answer: object) -> str:
        """Give what is right about an answer, or raise ``Refused``."""
        if self.sizes:
            require_function(answer)
        trials = [self._draw(seed, sizes) for seed, sizes in enumerate(self.sizes or [{}])]
        for require in (self._require_output, self._require_gradients):
            for drawn, sizes in zip(trials, self.sizes or [{}], strict=True):
                with _at_sizes(drawn is trials[0], sizes):
                    require(answer, drawn, trials)
        self.also(answer)
        return self.praise if isinstance(self.praise, str) else self.praise(answer)

    def _draw(self, seed: int, sizes: Mapping[str, Any]) -> Drawn:
        """Draw what an answer is given, the same each time."""
        _seed(seed)
        return self.draw(**sizes)

    def _require_output(self, answer: object, drawn: Drawn, trials: Sequence[Drawn]) -> None:
        """Refuse an answer whose output is not right, with the likeliest reason."""
        found = self._outcome(answer, drawn)
        if isinstance(found, Refused) and not isinstance(found, Raised):
            raise found
        right = self._outcome(self.right, drawn)
        assert isinstance(right, Tensor), right
        if isinstance(found, Tensor) and self._agree(found, right):
            _require_dtype(found, right, drawn)
            return
        easy = [self._draw(seed, sizes) for seed, sizes in enumerate(self.easy)]
        others = [*(trial for trial in trials if trial is not drawn), *easy]
        entirely, partly = self._sentences(answer, found, drawn, others)
        if isinstance(found, Raised):
            raise Refused(f"{entirely} So {found}" if entirely else str(found))
        why = entirely or partly or self.why(answer, found, right, *drawn.values())
        raise Refused(why or self._difference(found, right, drawn))

    def _sentences(
        self, answer: object, here: Tensor | Refused, drawn: Drawn, others: Sequence[Drawn]
    ) -> tuple[str | None, str | None]:
        """Find wrong answers that do the same: here and in all other trials, and here alone."""
        mine = [self._outcome(answer, trial) for trial in others]
        partly = None
        if not any(isinstance(outcome, Tensor) for outcome in [here, *mine]):
            return None, None
        for sentence, row in self.rows():
            there = self._outcome(row, drawn)
            if self._alike(there, here) and _error(there) is _error(here):
                theirs = (self._outcome(row, trial) for trial in others)
                if all(map(self._alike, theirs, mine)):
                    return sentence, partly
                partly = partly or sentence
        return None, partly

    def _outcome(self, answer: Any, drawn: Drawn) -> Tensor | Refused:
        """Give what an answer makes of what was drawn, or why it makes nothing."""
        given = copy.deepcopy(drawn)
        _seed(0)
        try:
            output = self._output(answer, given).detach()
            _require_unchanged(given, drawn)
        except Refused as reason:
            return reason
        return output

    def _output(self, answer: Any, given: Drawn) -> Tensor:
        """Run an answer, and refuse what is no tensor."""
        try:
            return _as_tensor(self.run(answer, *given.values()))
        except Refused:
            raise
        except NotImplementedError as error:
            # Torch raises it, too; a reader's placeholder has little to say.
            raise NotYet(f"your code raises {describe(error)}") from None
        except Exception as error:
            raise Raised(error, [x for x in given.values() if not isinstance(x, dict)]) from None

    def rows(self) -> Iterator[tuple[str, Any]]:
        """List every wrong answer with its sentence."""
        for sentence, row in self.wrong.items():
            for answer in row if isinstance(row, Either) else [row]:
                yield sentence, answer

    def _alike(self, a: Tensor | Refused, b: Tensor | Refused) -> bool:
        """Tell whether two outcomes agree; two that raise do."""
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            return self._agree(a, b)
        return isinstance(a, Raised) and isinstance(b, Raised)

    def _agree(self, found: Tensor, right: Tensor) -> bool:
        """Tell whether two tensors have the same shape, and nearly the same numbers."""
        if found.shape != right.shape:
            return False
        found, right = found.double(), right.double()
        near = (found - right).abs() <= self.close * right.abs().clamp(1, 1e300)
        return bool((near | (found == right) | (found.isnan() & right.isnan())).all())

    def _difference(self, found: Tensor, right: Tensor, drawn: Drawn) -> str:
        """Say how an output differs: in its shape, or where most of all."""
        if found.shape != right.shape:
            letters = f"{self.shape}, here " if self.shape else ""
            return (
                f"it returns a tensor of shape {tuple(found.shape)}; what fits is {letters}"
                f"{tuple(right.shape)}."
            )
        bad = ~found.isfinite()
        if bad.any():
            return f"{int(bad.sum())} of its {found.numel()} numbers are NaN or infinite."
        apart = (found.double() - right.double()).abs()
        place = [int(i) for i in torch.unravel_index(apart.argmax(), apart.shape)]
        count = int((apart > self.close * right.double().abs().clamp(min=1)).sum())
        if not place:
            given = ", ".join(f"{name} = {_shown(x)}" for name, x in drawn.items())
            have, wanted = (f"{x.item():,}".removesuffix(".0") for x in (found, right))
            return f"with {given} it returns {have}; right is {wanted}."
        have, wanted = (_number(x[tuple(place)].item()) for x in (found, right))
        return (
            f"the shape is right, but {count} of its {found.numel()} numbers are not. Most of all "
            f"at {place}, counted from 0: you have {have}, right is {wanted}."
        )

    def _require_gradients(self, answer: object, drawn: Drawn, trials: Sequence[Drawn]) -> None:
        """Refuse an output through which other gradients flow than through the right one."""
        right = self._gradients(self.right, drawn)
        if not right:
            return
        found = self._gradients(answer, drawn)
        for name, expected in right.items():
            mine = found.get(name)
            if mine is None and expected.any():
                raise Refused(
                    f"the output is right, but no gradient reaches {name}, so it cannot be "
                    "learned. Something cuts the graph: detach, .data, no_grad, item, numpy, "
                    "torch.tensor or a new nn.Parameter."
                )
            if mine is not None and not self._agree(mine, expected):
                raise Refused(f"the output is right, but the gradient of {name} is not.")

    def _gradients(self, answer: object, drawn: Drawn) -> dict[str, Tensor]:
        """Give the gradients that reach what was drawn, by name; nothing where there is none."""
        given = copy.deepcopy(drawn)
        leaves = {name: x for name, x in _named(given) if x.is_floating_point()}
        for leaf in leaves.values():
            leaf.requires_grad_()
        output = self._output(answer, given)
        if not output.requires_grad:
            return {}
        _seed(99)
        mixture = torch.randn(output.shape, dtype=output.dtype)
        try:
            found = torch.autograd.grad(
                (output * mixture).sum(), [*leaves.values()], allow_unused=True
            )
        except Exception as error:
            raise Refused(f"differentiating its output raises {describe(error)}") from None
        return {name: x for name, x in zip(leaves, found, strict=True) if x is not None}


def _seed(seed: int) -> None:
    """Start the processor's random numbers anew; ``torch.manual_seed`` takes as long as a run."""
    torch.default_generator.manual_seed(seed)


def normal(**shapes: tuple[int, ...]) -> dict[str, Tensor]:
    """Draw float64 tensors of these shapes."""
    return {name: torch.randn(shape, dtype=torch.float64) for name, shape in shapes.items()}


def require_function(answer: object) -> None:
    """Refuse what cannot be called; None and ``...`` count as nothing written yet."""
    if answer is None or answer is ...:
        raise NotYet(f"it is {'...' if answer is ... else None}")
    if not callable(answer):
        kind = type(answer).__name__
        raise Refused(f"give the function or class itself; this is an object of type {kind}.")


def require_class(answer: object, base: type = nn.Module) -> None:
    """Refuse what is no class made from ``base``."""
    if not (isinstance(answer, type) and issubclass(answer, base)):
        name = "nn.Module" if base is nn.Module else base.__name__
        raise Refused(f"give the class itself, a subclass of {name}.")


@contextlib.contextmanager
def _at_sizes(first: bool, sizes: Mapping[str, Any]) -> Iterator[None]:
    """Say with a refusal that only these sizes failed, unless they are the first."""
    try:
        yield
    except Refused as reason:
        if first:
            raise
        said = ", ".join(f"{letter} = {size}" for letter, size in sizes.items())
        raise Refused(f"it is right at first, but not with {said}: {reason}") from None


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


def _wrapped(line: str) -> str:
    """Break a long line of prose; code, which is indented, stays as it is."""
    if line.startswith(" "):
        return line
    return textwrap.fill(
        line, 88, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def _error(outcome: Tensor | Refused) -> type[Exception] | None:
    """Give the type of what was raised, if something was."""
    return type(outcome.error) if isinstance(outcome, Raised) else None


def _shown(given: object) -> str:
    """Say what an argument was: a tensor by its shape, a module by its class."""
    if isinstance(given, Tensor):
        return str(tuple(given.shape))
    if isinstance(given, list):
        return f"[{', '.join(map(_shown, given))}]"
    if isinstance(given, nn.Module):
        return type(given).__name__  # as text, it would take a dozen lines
    return str(given)


def _number(value: float) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _as_tensor(found: Any) -> Tensor:
    """Refuse what is no tensor of real numbers."""
    if found is None or found is ...:
        raise NotYet(f"it returns {'...' if found is ... else None}")
    if isinstance(found, tuple | list):
        kind = type(found).__name__
        raise Refused(f"it returns a {kind} of {len(found)} things; one tensor is asked for.")
    if not isinstance(found, Tensor):
        kind = type(found).__name__
        raise Refused(f"it returns an object of type {kind}; a tensor is asked for.")
    if found.is_complex():
        raise Refused(f"it returns a tensor of {found.dtype}; real numbers are asked for.")
    return found


def _require_dtype(found: Tensor, right: Tensor, drawn: Drawn) -> None:
    """Refuse right numbers of another dtype."""
    if found.dtype == right.dtype:
        return
    if right.is_floating_point() and any(x.dtype == right.dtype for _, x in _named(drawn)):
        raise Refused(
            f"the numbers are right, but {right.dtype} goes in and {found.dtype} comes out. Make "
            "new tensors with the dtype of an input: query.new_zeros(...), for example."
        )
    raise Refused(f"the numbers are right, but they are {found.dtype}, and not {right.dtype}.")


def _require_unchanged(given: Drawn, drawn: Drawn) -> None:
    """Refuse code that has changed an argument in place."""
    for name in drawn:
        now, before = (dict(_named({name: x[name]})) for x in (given, drawn))
        if now.keys() != before.keys() or not all(x.equal(now[at]) for at, x in before.items()):
            raise Refused(
                f"it changes its argument {name} in place. Whoever calls it still needs {name}: "
                "make a new one instead of writing into it (no +=, /=, append or pop)."
            )


def _named(values: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    """List the tensors in what was drawn, each by the name that a reader would give it."""
    for name, value in values.items():
        if isinstance(value, Tensor):
            yield name, value
        elif isinstance(value, nn.Module):
            yield from value.named_parameters()
        elif isinstance(value, dict):
            yield from _named(value)
        elif isinstance(value, list | tuple):
            yield from _named({f"{name}[{i}]": item for i, item in enumerate(value)})
