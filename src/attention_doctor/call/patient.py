"""The implementation under examination: what it is given, calling it, and restoring its state."""

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attention_doctor.adapters import Adapted, module_of, name_of
from attention_doctor.call.forms import output_of
from attention_doctor.call.places import describe
from attention_doctor.call.roles import Sizes
from attention_doctor.call.state import State, give_size, left_as_it_was

# How far two results may be apart that should be the same, relative to their size. Some code
# computes its softmax in float32, whatever it is given.
_TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-4}
_IN_HALF = 0.1


class Failed(Exception):
    """The implementation raised ``error``, or returned something of a wrong kind or shape."""

    def __init__(self, text: str, error: Exception | None = None) -> None:
        """Keep the message and the error."""
        super().__init__(text)
        self.error = error


class NotAsked(Exception):
    """A test does not apply, or cannot run; the message says why."""


@dataclass(frozen=True)
class Inputs:
    """Query, key and value of one call; in self-attention all three are one tensor.

    With kind ``"memory"`` key and value are one.
    """

    query: Tensor
    key: Tensor
    value: Tensor

    def map(self, change: Callable[[Tensor], Tensor]) -> "Inputs":
        """Change each tensor, one that is used twice or thrice only once."""
        if self.query is self.key is self.value:
            return Inputs(*(change(self.query),) * 3)
        value = change(self.value)
        key = value if self.key is self.value else change(self.key)
        return Inputs(change(self.query), key, value)


class Answer(NamedTuple):
    """What one call gave."""

    output: Tensor
    weights: Tensor | None  # the first tensor that was returned besides
    changed: frozenset[str]  # the arguments that are others after the call


class Patient:
    """Calls an implementation in a known state."""

    def __init__(
        self,
        attend: Callable[..., Any],
        sizes: Sizes,
        kind: str,
        module: nn.Module | None = None,
    ) -> None:
        """Keep the arguments of ``examine``.

        Kind ``"memory"`` is kind ``"cross"`` with the keys and values in one tensor, ``value``.
        """
        self.sizes = sizes
        self.attend, self.called_as = attend, kind
        self.memory = kind == "memory"
        self.kind = "cross" if self.memory else kind
        self.embed_dim, self.num_heads, self.context_dim, self.max_length = sizes
        self.module = module_of(attend) if module is None else module
        self.name = name_of(attend)
        said = attend.masks if isinstance(attend, Adapted) else ""
        self.masks = said or ("none" if kind == "causal" else "any")
        # It hides the future by itself, and other keys by a mask.
        self.own_future = kind == "causal" and self.masks != "none"
        self.rounding = 0.0  # how coarse its numbers were found to be
        self.reference: Patient | None = None  # which is trusted
        self.given_masks: tuple[str, ...] = ()  # that a model gives in every call, by their names
        self.dtype = torch.float64
        self._state: State | None = None  # put back after each call, once it is examined
        self.n, self.m = (min(x, self.max_length) for x in (5, 7 if self.kind == "cross" else 5))
        # Another size than all others, so that no wrong axis fits by chance.
        self.b = next(b for b in range(2, 6) if b not in (self.num_heads, self.n, self.m))

    def _settle(self) -> None:
        """Call it once, so that layers and parameters are there which a first call makes."""
        if self.module is None:
            return
        before, state = [*map(id, self.module.parameters())], State(self.module)
        state.note()
        self.dtype = next((x.dtype for x in self.module.parameters()), torch.float32)
        with torch.random.fork_rng(devices=[]), contextlib.suppress(Failed, NotAsked):
            torch.default_generator.manual_seed(0)
            self.ask(self.draw(0))
        if [*map(id, self.module.parameters())] == before:
            state.put_back()

    def needed_module(self) -> nn.Module:
        """Give its module; a test that needs one is left out where there is none."""
        if self.module is None:
            raise NotAsked("no module is given")
        return self.module

    @property
    def named(self) -> dict[str, nn.Parameter]:
        """The parameters of its module, by their names."""
        return {} if self.module is None else dict(self.module.named_parameters())

    @property
    def tolerance(self) -> float:
        """How far apart two results may be that should be the same."""
        return max(_TOLERANCES.get(self.dtype, _IN_HALF), self.rounding)

    def draw(self, seed: int, b: int = 0, n: int = 0, m: int = 0) -> Inputs:
        """Draw inputs of standard normal numbers; 0 means the usual size."""
        source = torch.Generator().manual_seed(seed)

        def tokens(length: int, width: int = self.embed_dim) -> Tensor:
            shape = (b or self.b, length, width)
            return torch.randn(shape, generator=source, dtype=torch.float64).to(self.dtype)

        n, m = n or self.n, m or self.m
        if self.memory:
            return Inputs(tokens(n), *(tokens(m, self.context_dim),) * 2)
        if self.kind != "cross":
            return Inputs(*(tokens(n),) * 3)
        return Inputs(tokens(n), tokens(m), tokens(m))

    def ask(self, inputs: Inputs, blocked: Tensor | None = None, gradient: bool = False) -> Tensor:
        """Call the implementation and return its output alone, as ``answer`` does."""
        return self.answer(inputs, blocked, gradient).output

    def answer(
        self, inputs: Inputs, blocked: Tensor | None = None, gradient: bool = False
    ) -> Answer:
        """Call the implementation.

        ``blocked`` is (b, n, m) or None; with ``gradient``, the graph is kept.

        Raises:
            Failed: the implementation raised an error, or returned something else.
            NotAsked: it fails at other sizes than the usual ones.
        """
        with torch.set_grad_enabled(gradient):
            # A leaf that needs a gradient cannot be changed in place; what goes in is a copy of it.
            given = inputs.map(torch.clone)
            hidden = None if blocked is None else blocked.clone()
            before = None if hidden is None else hidden.clone()
            arguments: list[Tensor | None] = [given.query]
            arguments += [given.key] if self.kind == "cross" and not self.memory else []
            arguments += [given.value] if self.kind == "cross" else []
            arguments += [hidden] if self.kind != "causal" or self.own_future else []
            if self._state is not None:
                self._state.note(apart=gradient)
            try:
                result = self.attend(*arguments)
            except Exception as error:
                sizes = (*inputs.query.shape[:2], inputs.key.size(1))
                if sizes != (self.b, self.n, self.m):
                    text = f"it fails with samples, queries and keys in other numbers, as {sizes}"
                    raise NotAsked(f"{text}: {describe(error)}") from error
                raise Failed(describe(error), error) from error
            finally:
                if self._state is not None:
                    self._state.put_back()
        tokens = vars(given) if self.kind == "cross" else {"x": given.query}
        changed = {
            name
            for name, x in tokens.items()
            if not torch.equal(x.detach(), getattr(inputs, name, inputs.query).detach())
        }
        if hidden is not None and before is not None and not torch.equal(hidden, before):
            changed.add("blocked")
        output, weights = self._output(result, inputs)
        return Answer(output, weights, frozenset(changed))

    def ask_for(self, call: Callable[..., Any], x: Tensor, *rest: Any) -> Tensor:
        """Ask in another way than by ``attend``, for an output that has the shape of ``x``."""
        try:
            with torch.no_grad():
                result = call(x.clone(), *rest)
        except Exception as error:
            raise Failed(describe(error), error) from error
        return self._output(result, Inputs(x, x, x))[0]

    def _output(self, result: object, inputs: Inputs) -> tuple[Tensor, Tensor | None]:
        """Take the output, and the first tensor besides, from what was returned."""
        result, rest = output_of(result, inputs.query.shape)
        if not isinstance(result, Tensor):
            raise Failed(f"it returns an object of type {type(result).__name__}, not a tensor")
        if result.shape != inputs.query.shape:
            b, n, e = inputs.query.shape
            text = f"it returns shape {tuple(result.shape)}; (b, n, e) = {b, n, e} is expected"
            usual = (b, n, inputs.key.size(1)) == (self.b, self.n, self.m)
            raise Failed(text) if usual else NotAsked(text)
        return result, rest[0].detach() if rest else None

    def gap(self, found: Tensor, expected: Tensor) -> float:
        """Say how far two results are apart, relative to their size; NaN counts as infinite."""
        found, expected = found.detach().double(), expected.detach().double()
        if not found.numel():
            return 0.0
        sizes = [x.abs().max().item() for x in (found, expected)]
        if not all(map(math.isfinite, sizes)):
            return math.inf
        return (found - expected).abs().max().item() / max(*sizes, 1e-30)

    def same(self, found: Tensor, expected: Tensor) -> bool:
        """Tell whether two results are the same, but for rounding."""
        return self.gap(found, expected) <= self.tolerance

    @contextlib.contextmanager
    def admitted(self) -> Iterator[None]:
        """Ask in evaluation mode, in float64 if it can be; put everything back afterwards."""
        self._settle()
        own = [] if self.module is None else [x.dtype for x in self.module.parameters()]
        dtypes = [*own[:1], torch.float32, torch.bfloat16, torch.float16]
        with torch.random.fork_rng(devices=[]), left_as_it_was(self.module):
            torch.default_generator.manual_seed(0)  # of the one that is put back
            if self.module is not None:
                self._state = State(self.module)
                self.module.eval()
                give_size(self.module)
            takes = (True, False) if self.masks != "none" else (False,)
            for masked, dtype in itertools.product(takes, (torch.float64, *dtypes)):
                with self.converted(dtype):
                    if not self.works(masked):
                        continue
                    yield
                    return
            self.dtype = dtypes[0]
            yield

    def works(self, masked: bool = False) -> bool:
        """Tell whether a call in the current dtype works at all, with a mask that hides nothing."""
        inputs = self.draw(0)
        shape = (*inputs.query.shape[:2], inputs.key.size(1))
        try:
            blocked = torch.zeros(shape, dtype=torch.bool) if masked else None
            return self.ask(inputs, blocked).dtype == self.dtype
        except (Failed, NotAsked):
            return False

    @contextlib.contextmanager
    def converted(self, dtype: torch.dtype) -> Iterator[None]:
        """Run the block in another dtype."""
        before, self.dtype = self.dtype, dtype
        try:
            with left_as_it_was(self.module):
                if self.module is not None:
                    self.module.to(dtype)
                yield
        finally:
            self.dtype = before

    @contextlib.contextmanager
    def trained(self, probability: float) -> Iterator[int]:
        """Ask in training mode with this dropout; what the module counts there is put back."""
        with self.converted(self.dtype), self.dropping(probability) as count:
            if self.module is not None:
                self.module.train()
            yield count

    @contextlib.contextmanager
    def dropping(self, probability: float) -> Iterator[int]:
        """Set every dropout that can be found, and yield how many there are."""
        found: list[tuple[Any, str, float]] = []
        for part in [] if self.module is None else self.module.modules():
            for name, value in vars(part).items():
                named = "drop" in name.lower() or (name == "p" and "Dropout" in type(part).__name__)
                if named and isinstance(value, float) and 0 <= value < 1:
                    found.append((part, name, value))
        try:
            for part, name, _ in found:
                setattr(part, name, probability)
            if found and not self.works():  # what reads it was not built for any dropout
                for part, name, value in found:
                    setattr(part, name, probability if name == "p" else value)
                found = [x for x in found if x[1] == "p"]
            yield len(found)
        finally:
            for part, name, value in found:
                setattr(part, name, value)
