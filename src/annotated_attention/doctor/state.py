"""What calls leave behind in a module, besides its parameters: put back after each."""

from collections import deque
from types import FunctionType, MethodType, ModuleType
from typing import Any

from torch import Tensor, nn
from torch.nn.parameter import is_lazy as is_uninitialized

_OF_TORCH = {*vars(nn.Module()), "training"} - {"_buffers"}
_NO_HOLDERS = (type, FunctionType, MethodType, ModuleType, nn.Module, Tensor, str, int, float)
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
        self.module = module
        self._copies: dict[int, tuple[Tensor, int, Tensor]] = {}
        self._before: list[tuple[Any, Any]] = []
        self.changed: set[str] = set()

    def note(self) -> None:
        """Note how everything is."""
        self._before = []
        if is_lazy(self.module):
            return
        for part in self.module.modules():
            own = {name: x for name, x in vars(part).items() if name not in _OF_TORCH}
            self._note(vars(part), own, _DEPTH)

    def _note(self, holder: Any, items: Any, depth: int) -> None:
        self._before.append((holder, items))
        for value in items.values() if isinstance(items, dict) else items:
            if isinstance(value, Tensor):
                self._copy(value)
            elif isinstance(value, dict):
                self._note(value, dict(value), depth - 1)
            elif isinstance(value, list | set | deque):
                self._note(value, list(value), depth - 1)
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
            self.changed.add(str(name))
            del holder[name]
        for name, value in items.items():
            if holder.get(name, _NO_HOLDERS) is not value:
                self.changed.add(str(name))
                holder[name] = value
