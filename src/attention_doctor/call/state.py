"""The state of a module: put back after each call, and after the examination."""

import contextlib
from collections import deque
from collections.abc import Iterator
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

_OF_TORCH = {*vars(nn.Module()), "training"} - {"_buffers"}
_NO_HOLDERS = (type, FunctionType, MethodType, ModuleType, nn.Module, Tensor, str, int, float)
_LISTS = (list, tuple, dict)
_DEPTH = 3  # an object in an attribute of an object


class State:
    """The attributes and buffers of a module's parts, before a call.

    Tensors are copied once: after each call they are again what they were.
    """

    def __init__(self, module: nn.Module) -> None:
        """Keep the module."""
        self.module = module
        self._copies: dict[int, tuple[Tensor, Tensor]] = {}
        self._before: list[tuple[Any, Any]] = []

    def note(self, apart: bool = False) -> None:
        """Note how everything is; with ``apart``, a call writes into copies, left to its graph."""
        self._before = []
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
            if isinstance(value, Tensor):
                if not (isinstance(value, nn.Parameter) or value.is_inference() or value.is_meta):
                    self._copies.setdefault(id(value), (value, value.detach().clone()))
            elif isinstance(value, dict | list | set | deque):
                self._note(value, dict(value) if isinstance(value, dict) else [*value], depth - 1)
            elif depth and hasattr(value, "__dict__") and not isinstance(value, _NO_HOLDERS):
                self._note(vars(value), dict(vars(value)), depth - 1)

    def put_back(self) -> None:
        """Put everything back as it was noted, in the very same objects."""
        for holder, items in self._before:
            if isinstance(items, dict):
                for name in [x for x in holder if x not in items and x not in _OF_TORCH]:
                    del holder[name]
                holder.update(items)
            elif [*map(id, holder)] != [*map(id, items)]:
                holder.clear()
                (holder.update if isinstance(holder, set) else holder.extend)(items)
        for x, copy in self._copies.values():
            if not torch.equal(x, copy):  # some kernels write, and leave a tensor's version
                x.detach_()
                x.copy_(copy)


@contextlib.contextmanager
def left_as_it_was(module: nn.Module) -> Iterator[None]:
    """Put back parameters, their gradients, buffers, modes, attributes: the very same objects."""
    state = State(module)
    state.note()
    modes = [(part, part.training) for part in (*module.modules(), *held(module))]
    tensors = [(x, x.data, x.grad) for x in module.parameters()]
    for x, _, _ in tensors:
        x.grad = None  # converting a parameter would convert its gradient in place
    try:
        yield
    finally:
        for x, data, grad in tensors:
            x.data, x.grad = data, grad
        for part, mode in modes:
            part.training = mode
        state.put_back()


def give_size(module: nn.Module) -> None:
    """Make weights that are zero or tiny as large as usual, and those of norms different.

    They would hide every effect.

    Runs inside ``left_as_it_was``, on new tensors.
    """
    source = torch.Generator().manual_seed(0)
    norms = [x for x in module.modules() if "norm" in type(x).__name__.lower()]
    scales = {id(x) for part in norms for x in part.parameters(recurse=False)}
    for x in module.parameters():
        if is_lazy(x) or not x.is_floating_point() or not x.numel() or x.is_meta:
            continue
        usual = max(x.shape[1:]) ** -0.5 if x.dim() > 1 else 0.1
        drawn = torch.randn(x.shape, generator=source, dtype=torch.float64).to(x) * usual
        size = x.data.double().square().mean().sqrt().item()
        if size == 0:
            x.data = drawn
        elif x.dim() == 1 and id(x) in scales and bool((x == x[0]).all()):
            x.data = x.data + 3 * drawn
        elif x.dim() > 1 and size < usual / 3:
            x.data = x.data * (usual / size)


def dropouts(module: nn.Module) -> list[tuple[Any, str, float]]:
    """Find every dropout: the part that has it, the name of its attribute, and its value."""
    found = []
    for part in module.modules():
        for name, value in vars(part).items():
            named = "drop" in name.lower() or (name == "p" and "Dropout" in type(part).__name__)
            if named and isinstance(value, float) and 0 <= value < 1:
                found.append((part, name, value))
    return found


def held(module: nn.Module) -> list[nn.Module]:
    """Find the modules in plain lists and dictionaries, whose mode ``eval`` misses."""
    lists = [x for part in module.modules() for x in vars(part).values() if isinstance(x, _LISTS)]
    items = [y for x in lists for y in (x.values() if isinstance(x, dict) else x)]
    known = {*module.modules()}
    lost = [y for y in items if isinstance(y, nn.Module) and y not in known]
    return [x for y in lost for x in y.modules()]
