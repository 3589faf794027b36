"""Trace a call: what is computed from its inputs, step by step, and on which lines.

PyTorch hands every operation to a ``TorchFunctionMode``. Tensors are known by identity; each is
kept alive, so that no other takes its place, and copied at once, since some are changed later.
PyTorch's kernel that computes a whole attention is taken apart, so that its steps are seen.
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attention_doctor.call.places import Frame, Where, innermost, where


def words(text: str) -> frozenset[str]:
    """Give the names that a text lists."""
    return frozenset(text.split())


# They take a shape, a dtype or a device from a tensor, and none of its numbers.
_NO_NUMBERS = words(
    "zeros_like ones_like full_like empty_like rand_like randn_like new_zeros new_ones "
    "new_full new_empty new_tensor requires_grad_ equal is_contiguous"
)
_FIRST_ALONE = {"type_as", "expand_as", "view_as", "reshape_as", "to"}
# Other names, and those of operators: ``x += 1`` is an addition.
_SAME = dict.fromkeys(("truediv", "divide", "true_divide"), "div")
_SAME |= dict.fromkeys(("mm", "bmm"), "matmul") | dict.fromkeys(("concat", "concatenate"), "cat")
_SAME |= {"multiply": "mul", "subtract": "sub"}
_OPERATORS = {"add", "sub", "mul", "truediv", "div", "pow"}


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
    """One operation on something that depends on the inputs, with its arguments and options."""

    name: str  # of the operation: "softmax", "add"
    given: tuple["Step | None", ...]  # whose results it takes, in order; None for other tensors
    value: Tensor  # its result, as it was then
    tensor: Tensor  # the result itself
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    roots: frozenset[str]  # the inputs that it depends on: "query", "key", "value", "mask"
    frame: Frame | None  # the innermost call under way in the examined code

    @property
    def parents(self) -> tuple["Step", ...]:
        """The steps whose results it takes."""
        return tuple(step for step in self.given if step is not None)

    @property
    def where(self) -> Where | None:
        """Its line in the examined code."""
        return where(self.frame) if self.frame else None

    @property
    def from_tokens(self) -> bool:
        """Whether it depends on more than the mask."""
        return bool(self.roots - {"mask"})

    def option(self, name: str, place: int) -> Any:
        """Give an argument by its name, or by its place among all."""
        if name in self.options:
            return self.options[name]
        return self.arguments[place] if len(self.arguments) > place else None


class Trace(TorchFunctionMode):
    """Records the steps of the calls that are made within it, in order."""

    def __init__(self, **roots: Tensor | None) -> None:
        """Begin with the inputs, by name; the same tensor under two names counts as the first."""
        super().__init__()
        self.steps: list[Step] = []
        self._until = sys._getframe(1)
        self._of: dict[int, Step] = {}
        for name, x in roots.items():
            if x is not None and id(x) not in self._of:
                self._enter(Step("input", (), _copied(x), x, (), {}, frozenset({name}), None))

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any | None = None
    ) -> Any:
        """Run an operation, and record it."""
        kwargs = kwargs or {}
        # What is being compiled is recorded by others, who do not get through here.
        if torch.compiler.is_compiling():
            return func(*args, **kwargs)
        if func is F.scaled_dot_product_attention:
            with self:
                return _in_steps(*args, **kwargs)
        given = self._given(func, args, kwargs)
        result = func(*args, **kwargs)
        if given:
            name, frame = _named(func), innermost(self._until)
            roots = frozenset().union(*(step.roots for step in given if step is not None))
            for x in [args[0]] if name == "setitem" else tensors(result):
                self._enter(Step(name, given, _copied(x), x, args, kwargs, roots, frame))
        return result

    def _given(self, func: Any, args: Any, kwargs: Any) -> tuple[Step | None, ...] | None:
        """Find the steps behind the arguments; None if the result depends on none."""
        name = _named(func)
        if name in _NO_NUMBERS:
            return None
        taken = args[:1] if name in _FIRST_ALONE else args
        options = [x for key, x in kwargs.items() if key != "out"]
        given = tuple(self._of.get(id(x)) for x in tensors([*taken, *options]))
        return given if any(given) else None

    def _enter(self, step: Step) -> None:
        self.steps.append(step)
        self._of[id(step.tensor)] = step


def _named(func: Any) -> str:
    """Name an operation, or the attribute that is read, by one name for all its spellings."""
    name = str(getattr(func, "__name__", ""))
    if name in ("__get__", "__set__"):
        name = str(getattr(func.__self__, "__name__", ""))
    name = name.strip("_")
    name = name[1:] if name[:1] in ("i", "r") and name[1:] in _OPERATORS else name
    return _SAME.get(name, name)


def _copied(x: Tensor) -> Tensor:
    return x.detach().clone()


def _in_steps(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Compute what the fused kernel computes."""
    if enable_gqa:
        h = query.size(-3)
        key, value = (x.repeat_interleave(h // x.size(-3), -3) for x in (key, value))
    scores = query @ key.mT * (1 / math.sqrt(query.size(-1)) if scale is None else scale)
    if is_causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(future, -math.inf)
    if attn_mask is not None:
        boolean = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -math.inf) if boolean else scores + attn_mask
    weights = torch._safe_softmax(scores, -1)
    return F.dropout(weights, dropout_p) @ value
