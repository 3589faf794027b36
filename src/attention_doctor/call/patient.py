"""The implementation under examination: what it is given, calling it, and restoring its state."""

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from attention_doctor.adapters import Adapted
from attention_doctor.call.forms import output_of
from attention_doctor.call.inputs import Answer, Failed, Inputs, NotAsked
from attention_doctor.call.places import describe
from attention_doctor.call.roles import Sizes
from attention_doctor.call.state import State, dropouts, give_size, held, left_as_it_was

# How far two results may be apart that should be the same, relative to their size. Some code
# computes its softmax in float32, whatever it is given.
_TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-4}
_IN_HALF = 0.1


class Patient:
    """Calls an implementation in a known state."""

    def __init__(self, attend: Callable[..., Any], sizes: Sizes, kind: str) -> None:
        """Keep the arguments of ``examine``.

        Kind ``"memory"`` is kind ``"cross"`` with the keys and values in one tensor, ``value``.
        """
        self.sizes = sizes
        self.attend = attend if isinstance(attend, Adapted) else Adapted(attend, attend)
        self.called_as = kind
        self.memory = kind == "memory"
        self.kind = "cross" if self.memory else kind
        self.embed_dim, self.num_heads, self.context_dim, self.max_length, fixed, _ = sizes
        given = self.attend.module
        self.module, self.name = nn.Module() if given is None else given, self.attend.name
        self.masks = self.attend.masks or ("none" if kind == "causal" else "any")
        # It hides the future by itself, and other keys by a mask.
        self.own_future = kind == "causal" and self.masks != "none"
        self.mask_error, self.window = self.attend.mask_error, self.attend.window
        self.rounding = 0.0  # how coarse its numbers were found to be
        self.reference: Patient | None = None  # which is trusted
        self.given_masks: tuple[str, ...] = ()  # that a model gives in every call, by their names
        self.guessed = ""  # the mask that must be given, if nothing tells its meaning
        self.dtype = torch.float64
        self._state: State | None = None  # put back after each call, once it is examined
        usual = 5, 7 if self.kind == "cross" else 5
        self.n, self.m = (fixed or min(x, self.max_length) for x in usual)
        # Another size than all others, so that no wrong axis fits by chance.
        self.b = next(b for b in range(2, 6) if b not in (self.num_heads, self.n, self.m))

    def _settle(self) -> None:
        """Call it once, so that layers and parameters are there which a first call makes."""
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
        if self.attend.module is None:
            raise NotAsked("no module is given")
        return self.module

    @property
    def named(self) -> dict[str, nn.Parameter]:
        """The parameters of its module, by their names."""
        return dict(self.module.named_parameters())

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
                if gradient and isinstance(error, NotImplementedError):
                    raise NotAsked(f"with gradients: {describe(error)}") from error
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
        output, rest = self._output(result, inputs)
        return Answer(output, rest, frozenset(changed))

    def ask_for(self, call: Callable[..., Any], x: Tensor, *rest: Any) -> Tensor:
        """Ask in another way than by ``attend``, for an output that has the shape of ``x``."""
        try:
            with torch.no_grad():
                result = call(x.clone(), *rest)
        except Exception as error:
            raise Failed(describe(error), error) from error
        return self._output(result, Inputs(x, x, x))[0]

    def _output(self, result: object, inputs: Inputs) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Take the output, and the tensors besides, from what was returned."""
        result, rest = output_of(result, inputs.query.shape)
        if not isinstance(result, Tensor):
            raise Failed(f"it returns an object of type {type(result).__name__}, not a tensor")
        if result.shape != inputs.query.shape:
            b, n, e = inputs.query.shape
            text = f"it returns shape {tuple(result.shape)}; (b, n, e) = {b, n, e} is expected"
            usual = (b, n, inputs.key.size(1)) == (self.b, self.n, self.m)
            if result.shape == (b, inputs.key.size(1), e):
                text += ". As many tokens as keys: are both inputs swapped, in it or here?"
            raise Failed(text) if usual else NotAsked(text)
        return result, tuple(rest)

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
        own = [x.dtype for x in self.module.parameters()]
        dtypes = [*own[:1], torch.float32, torch.bfloat16, torch.float16]
        with contextlib.ExitStack() as until:
            until.enter_context(torch.random.fork_rng(devices=[]))
            until.enter_context(left_as_it_was(self.module))
            torch.default_generator.manual_seed(0)  # of the one that is put back
            self._state = State(self.module)
            self.module.eval()
            for part in held(self.module):
                part.training = False
            give_size(self.module)
            until.enter_context(self.converted(self._dtype((torch.float64, *dtypes)) or dtypes[0]))
            yield

    def _dtype(self, dtypes: Sequence[torch.dtype]) -> torch.dtype | None:
        """Choose the first dtype that works with a mask, or without one; None if there is none.

        A mask that is made for one dtype may give NaN in another.
        """
        usable = None
        for masked, dtype in itertools.product((True, False)[self.masks == "none" :], dtypes):
            with self.converted(dtype):
                if self.works(masked):
                    if not masked or self.works(masked, hidden=1):
                        return dtype if masked else usable or dtype
                    usable = usable or dtype
        return usable

    def works(self, masked: bool = False, hidden: int = 0) -> bool:
        """Tell whether a call in the current dtype works at all, with a mask or without one.

        Where the last keys are hidden, the first token's results must be finite, too.
        """
        inputs = self.draw(0)
        blocked = torch.arange(self.m).expand(self.b, self.n, self.m) >= self.m - hidden
        try:
            output = self.ask(inputs, blocked if masked else None)
        except (Failed, NotAsked):
            return False
        return output.dtype == self.dtype and (not hidden or bool(output[:, 0].isfinite().all()))

    @contextlib.contextmanager
    def converted(self, dtype: torch.dtype) -> Iterator[None]:
        """Run the block in another dtype."""
        before, self.dtype = self.dtype, dtype
        try:
            with left_as_it_was(self.module):
                self.module.to(dtype)
                yield
        finally:
            self.dtype = before

    @contextlib.contextmanager
    def trained(self, probability: float, which: int | None = None) -> Iterator[int]:
        """Ask in training mode with this dropout; what the module counts there is put back."""
        with self.converted(self.dtype), self.dropping(probability, which) as count:
            self.module.train()
            yield count

    @contextlib.contextmanager
    def dropping(self, probability: float, which: int | None = None) -> Iterator[int]:
        """Set every dropout that can be found, and yield how many there are.

        With ``which``, all but that one are 0.
        """
        found = dropouts(self.module)
        try:
            _set(found, probability, which)
            if found and not self.works():  # what reads it was not built for any dropout
                for part, name, value in found:
                    setattr(part, name, value)
                found = [x for x in found if x[1] == "p"]
                _set(found, probability, which)
            yield len(found)
        finally:
            for part, name, value in found:
                setattr(part, name, value)


def _set(found: list[tuple[Any, str, float]], probability: float, which: int | None) -> None:
    for i, (part, name, _) in enumerate(found):
        setattr(part, name, probability if which in (None, i) else 0.0)
