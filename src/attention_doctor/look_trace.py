"""Trace a call: what is computed from its inputs, step by step, and on which lines.

PyTorch hands every operation to a ``TorchFunctionMode``. Tensors are known by identity, or by their
memory where an operation passes unseen; each is kept alive, so that no other takes its place, and
copied at once, since some are changed later.
"""

import functools
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attention_doctor.places import Frame, Where, stack, where

# They take a shape, a dtype or a device from a tensor, and none of its numbers.
_NO_NUMBERS = {
    "zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like", "new_zeros",
    "new_ones", "new_full", "new_empty", "new_tensor", "requires_grad_", "equal", "is_contiguous",
}  # fmt: skip
_FIRST_ALONE = {"type_as", "expand_as", "view_as", "reshape_as", "to"}
_MASKS = frozenset({"mask"})


def tensors(value: Any) -> Iterator[Tensor]:
    """Give all tensors in lists, tuples and dictionaries, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from tensors([*value.values()])
    elif isinstance(value, tuple | list):
        for x in value:
            yield from tensors(x)


@dataclass(frozen=True, eq=False)
class Step:
    """One operation on something that depends on the inputs.

    Attributes:
        name: of the operation, without underscores at its ends: ``"softmax"``, ``"iadd"``.
        given: the steps whose results it takes, in order; None for other tensors.
        value: its result, as it was then; under vmap, with the axes that vmap hides in front.
        tensor: the result itself.
        arguments: its arguments, as they were passed.
        options: its keyword arguments.
        roots: the inputs that it depends on: ``"query"``, ``"key"``, ``"value"``, ``"mask"``.
        frames: the calls under way in the examined code, the innermost first.
        in_place: whether it changes a tensor that was there before.
    """

    name: str
    given: tuple["Step | None", ...]
    value: Tensor
    tensor: Tensor
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    roots: frozenset[str]
    frames: tuple[Frame, ...]
    in_place: bool = False

    @property
    def parents(self) -> tuple["Step", ...]:
        """The steps whose results it takes."""
        return tuple(step for step in self.given if step is not None)

    @property
    def where(self) -> Where | None:
        """Its line: the innermost of the examined code."""
        return where(self.frames[0]) if self.frames else None

    @property
    def from_tokens(self) -> bool:
        """Whether it depends on more than the mask."""
        return bool(self.roots - _MASKS)

    def option(self, name: str, place: int, default: Any = None) -> Any:
        """Give an argument by its name, or by its place among all."""
        if name in self.options:
            return self.options[name]
        return self.arguments[place] if len(self.arguments) > place else default


class Trace(TorchFunctionMode):
    """Records the steps of the calls that are made within it.

    Attributes:
        steps: all steps, in order.
        triangle: the calls around the last triangle that was made, on which causal masks stand.
        failed: the error of the recording itself, after which nothing more is recorded.
    """

    def __init__(self, **roots: Tensor | None) -> None:
        """Begin with the inputs, by name; the same tensor under two names counts as the first."""
        super().__init__()
        self.steps: list[Step] = []
        self.triangle: tuple[Frame, ...] = ()
        self.failed: Exception | None = None
        self._until = sys._getframe(1)
        self._of: dict[int, Step] = {}
        self._in_memory: dict[int, list[Step]] = {}
        for name, x in roots.items():
            if x is not None and id(x) not in self._of:
                kept = Step("input", (), _copied(x), x, (), {}, frozenset({name}), ())
                self._enter(kept)

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any | None = None
    ) -> Any:
        """Run an operation, and record it."""
        kwargs = kwargs or {}
        # What is being compiled is recorded by others, who do not get through here.
        if torch.compiler.is_compiling() or self.failed is not None:
            return func(*args, **kwargs)
        if func is F.multi_head_attention_forward:
            with self:
                return _opened()(*args, **kwargs)
        given = self._guarded(self._given, func, args, kwargs)
        result = func(*args, **kwargs)
        if given:
            self._guarded(self._record, func, args, kwargs, given, result)
        return result

    def _guarded(self, function: Any, *arguments: Any) -> Any:
        """Keep an error of the recording away from the code under examination."""
        try:
            return function(*arguments)
        except Exception as error:
            self.failed = error
            return None

    def _given(self, func: Any, args: Any, kwargs: Any) -> tuple[Step | None, ...] | None:
        """Find the steps behind the arguments; None if the result depends on none."""
        name = _named(func)
        if name in ("triu", "tril"):
            self.triangle = stack(self._until)
        if name in _NO_NUMBERS:
            return None
        taken = args[:1] if name in _FIRST_ALONE else args
        options = [x for key, x in kwargs.items() if key != "out"]
        given = tuple(self._behind(x) for x in tensors([*taken, *options]))
        return given if any(given) else None

    def _behind(self, x: Tensor) -> Step | None:
        """Find the step that made a tensor, or that wrote into its memory."""
        known = self._of.get(id(x))
        if known is not None:
            return known
        shared = self._in_memory.get(_memory(x))
        if not shared:
            return None
        return self._enter(_then("written", shared[-1], x))

    def _record(self, func: Any, args: Any, kwargs: Any, given: Any, result: Any) -> None:
        name = _named(func)
        writes = name == "setitem" or (name[:1] == "i" and name[1:] in _OPERATORS)
        writes = writes or "out" in kwargs or (func.__name__[-1:] == "_" != func.__name__[-2:-1])
        results = [args[0]] if name == "setitem" else list(tensors(result))
        roots = frozenset().union(*(step.roots for step in given if step is not None))
        frames = stack(self._until)
        for x in results:
            step = Step(name, given, _copied(x), x, args, kwargs, roots, frames, writes)
            self._enter(step)
            if writes:
                self._pass_on(step)

    def _pass_on(self, step: Step) -> None:
        """Tell tensors that share memory with one that was written to."""
        others = {id(x.tensor): x.tensor for x in self._in_memory.get(_memory(step.tensor), ())}
        for x in others.values():
            if x is not step.tensor and not torch.equal(self._of[id(x)].value, _copied(x)):
                self._enter(_then("written", step, x, self._of[id(x)]))

    def _enter(self, step: Step) -> Step:
        self.steps.append(step)
        self._of[id(step.tensor)] = step
        if memory := _memory(step.tensor):
            self._in_memory.setdefault(memory, []).append(step)
        return step


_OPERATORS = {"add", "sub", "mul", "truediv", "div", "and", "or", "xor", "pow"}


def _then(name: str, step: Step, x: Tensor, before: Step | None = None) -> Step:
    """Make the step of a tensor that changed, or came about, through another one's memory."""
    given = (step,) if before is None else (before, step)
    roots = frozenset().union(*(parent.roots for parent in given))
    return Step(name, given, _copied(x), x, (), {}, roots, step.frames)


def _named(func: Any) -> str:
    """Name an operation, or the attribute that is read."""
    name = str(getattr(func, "__name__", ""))
    if name in ("__get__", "__set__"):
        name = str(getattr(func.__self__, "__name__", ""))
    return name.strip("_")


def _bare(x: Tensor) -> Tensor:
    """Take a tensor out of what vmap and the like wrap it in, the hidden axes in front."""
    functorch: Any = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(x):
        axis = functorch.maybe_get_bdim(x) if functorch.is_batchedtensor(x) else -1
        x = functorch.get_unwrapped(x)
        x = x.movedim(axis, 0) if axis >= 0 else x
    return x


def _copied(x: Tensor) -> Tensor:
    return _bare(x).detach().clone()


def _memory(x: Tensor) -> int:
    """Give the address of a tensor's memory; 0 if it has none of its own."""
    try:
        return _bare(x).untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):
        return 0


@functools.cache
def _opened() -> Any:
    """Copy the function behind ``nn.MultiheadAttention`` so that its own steps are handed over.

    It hands itself over as a whole, unless a check says that nobody is interested.
    """
    closed = F.multi_head_attention_forward
    space = {**vars(F), "has_torch_function": lambda tensors: False}
    opened = types.FunctionType(
        closed.__code__, space, closed.__name__, closed.__defaults__, closed.__closure__
    )
    opened.__kwdefaults__ = closed.__kwdefaults__
    return opened
