"""The state of a module: put back after each call, and after the examination."""

import contextlib
import re
from collections import deque
from collections.abc import Iterator
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy as is_uninitialized

_OF_TORCH = {*vars(nn.Module()), "training"} - {"_buffers"}
_PLAIN = {type(None), bool, int, float, str}
_NO_HOLDERS = (type, FunctionType, MethodType, ModuleType, nn.Module, Tensor, str, int, float)
_TINIEST = 1e-30
_DEPTH = 3  # an object in an attribute of an object


def is_lazy(module: nn.Module) -> bool:
    """Tell whether a module has parameters that get their shapes with the first call."""
    return any(is_uninitialized(x) for x in module.parameters())


class State:
    """The attributes and buffers of a module's parts, before a call.

    Copies of tensors are kept from call to call, as long as nobody has written to them.
    """

    def __init__(self, module: nn.Module) -> None:
        """Keep the module."""
        self.module, self._lazy = module, True
        self._copies: dict[int, tuple[Tensor, int, Tensor]] = {}
        self._before: list[tuple[Any, Any]] = []

    def note(self, apart: bool = False) -> None:
        """Note how everything is; with ``apart``, a call writes into copies, left to its graph."""
        self._before = []
        self._lazy = self._lazy and is_lazy(self.module)
        if self._lazy:
            return
        for part in self.module.modules():
            own = {name: x for name, x in vars(part).items() if name not in _OF_TORCH}
            self._note(vars(part), own, _DEPTH)
        for holder, items in self._before if apart else ():
            for name, x in items.items() if isinstance(items, dict) else ():
                if isinstance(x, Tensor) and not (x.requires_grad or x.is_inference()):
                    holder[name] = x.clone()

    def _note(self, holder: Any, items: Any, depth: int) -> None:
        self._before.append((holder, items))
        for value in items.values() if isinstance(items, dict) else items:
            if type(value) in _PLAIN:
                continue
            if isinstance(value, Tensor):
                self._copy(value)
            elif isinstance(value, dict | list | set | deque):
                self._note(value, dict(value) if isinstance(value, dict) else [*value], depth - 1)
            elif depth and hasattr(value, "__dict__") and not isinstance(value, _NO_HOLDERS):
                self._note(vars(value), dict(vars(value)), depth - 1)

    def _copy(self, x: Tensor) -> None:
        known = self._copies.get(id(x))
        if isinstance(x, nn.Parameter) or x.is_inference() or x.is_meta:
            return
        if known is None or known[0] is not x or known[1] != x._version:
            self._copies[id(x)] = (x, x._version, x.detach().clone())

    def put_back(self) -> None:
        """Put everything back as it was noted, in the very same objects."""
        for holder, items in self._before:
            if isinstance(items, dict):
                self._put_back(holder, items)
            elif len(holder) != len(items) or any(
                x is not y for x, y in zip(holder, items, strict=True)
            ):
                holder.clear()
                (holder.update if isinstance(holder, set) else holder.extend)(items)
        for key, (x, version, copy) in self._copies.items():
            if x._version != version:
                x.detach_()
                x.copy_(copy)
                self._copies[key] = (x, x._version, copy)

    def _put_back(self, holder: dict[Any, Any], items: dict[Any, Any]) -> None:
        for name in [x for x in holder if x not in items and x not in _OF_TORCH]:
            del holder[name]
        for name, value in items.items():
            if holder.get(name, _NO_HOLDERS) is not value:
                holder[name] = value


def settable(module: nn.Module | None) -> list[Any]:
    """Return the parts of a module, and the configurations that they keep."""
    parts: list[Any] = [] if module is None else [*module.modules()]
    kept = [x for part in parts for name, x in vars(part).items() if _is_configuration(name, x)]
    return [*parts, *{id(x): x for x in kept}.values()]


def _is_configuration(name: str, value: object) -> bool:
    named = re.search(r"config|cfg|args|params|opt", name) is not None
    return named and hasattr(value, "__dict__") and not isinstance(value, nn.Module | type)


@contextlib.contextmanager
def left_as_it_was(module: nn.Module | None) -> Iterator[None]:
    """Put back parameters, their gradients, buffers, modes, attributes: the very same objects."""
    if module is None or is_lazy(module):
        yield
        return
    state = State(module)
    state.note()
    parts = list(module.modules())
    modes = [part.training for part in parts]
    tensors = [(x, x.data, x.grad) for x in module.parameters()]
    buffers = [(part, name, x) for part in parts for name, x in part._buffers.items()]
    values = [None if x is None else x.clone() for _, _, x in buffers]
    for x, _, _ in tensors:
        x.grad = None  # converting a parameter would convert its gradient in place
    try:
        yield
    finally:
        for x, data, grad in tensors:
            x.data = data
            x.grad = grad
        for (part, name, buffer), value in zip(buffers, values, strict=True):
            part._buffers[name] = buffer
            if buffer is not None and value is not None:
                buffer.data.copy_(value)
        for part, mode in zip(parts, modes, strict=True):
            part.training = mode
        state.put_back()


def give_size(module: nn.Module) -> None:
    """Make weights that are zero or tiny as large as usual: an effect that is zero shows nothing.

    Runs inside ``left_as_it_was``, on new tensors.
    """
    source = torch.Generator().manual_seed(0)
    for x in () if is_lazy(module) else module.parameters():
        if not x.is_floating_point() or not x.numel():
            continue
        usual = max(x.shape[1:]) ** -0.5 if x.dim() > 1 else 0.1
        size = x.data.double().square().mean().sqrt().item()
        if size == 0 or (not x.requires_grad and _is_garbage(x.data)):
            drawn = torch.randn(x.shape, generator=source, dtype=torch.float64)
            x.data = (drawn * usual).to(x)
        elif x.dim() > 1 and size < usual / 3:
            x.data = x.data * (usual / size)


def fill(module: nn.Module) -> list[str]:
    """Draw the numbers of parameters that are NaN, and put zeros into all other such tensors.

    Returns:
        The names of the parameters.
    """
    source = torch.Generator().manual_seed(0)
    found = []
    for name, x in () if is_lazy(module) else module.named_parameters():
        if x.is_floating_point() and not x.is_meta and x.isnan().any():
            usual = max(x.shape[1:]) ** -0.5 if x.dim() > 1 else 0.1
            drawn = torch.randn(x.shape, generator=source) * usual
            x.data = torch.where(x.data.isnan(), drawn.to(x), x.data)
            found.append(name)
    others = [value for part in module.modules() for value in vars(part).values()]
    for x in (*module.buffers(), *others):
        if isinstance(x, Tensor) and x.is_floating_point() and not x.is_meta:
            x.detach().nan_to_num_(0.0, torch.inf, -torch.inf)
    return found


def _is_garbage(x: Tensor) -> bool:
    """Tell whether numbers were in memory before: none so tiny is drawn, or trained."""
    return not x.isfinite().all() or bool(((x != 0) & (x.abs() < _TINIEST)).any())
