"""Find the attentions of a model by what they compute, and record what the model gives them."""

import contextlib
import copy
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

_COMPUTES = ("softmax", "scaled_dot_product_attention", "multi_head_attention_forward")
# What belongs to positions and masks is no hidden state, though its shape may be that of one.
_NO_STATE = ("mask", "bias", "pos", "cos", "sin", "rot", "freq", "alibi", "residual")
_BY_LAYER = ("layer_idx", "layer_id", "layer_index", "layer_number", "training")


@dataclass(frozen=True)
class Call:
    """One call of an attention, as the model made it.

    Attributes:
        path: the name of the module within the model; "" for the model itself.
        module: the attention.
        arguments: what it was given, by the names of its ``forward``.
        states: the arguments that are hidden states, (b, n, e), the queries first.
        num_heads: the number of heads that it computes with.
        output: the shape of what it returned first; None if that was no tensor.
    """

    path: str
    module: nn.Module
    arguments: dict[str, Any]
    states: tuple[str, ...]
    num_heads: int
    output: torch.Size | None

    @property
    def likeness(self) -> object:
        """What is the same in two attentions that compute the same with other weights."""
        settings = [
            (type(part), {name: x for name, x in vars(part).items()
                          if isinstance(x, bool | int | float | str) and name not in _BY_LAYER})
            for part in self.module.modules()
        ]  # fmt: skip
        sizes = [x.shape for x in self.module.parameters()]
        return settings, sizes, {name: _likeness(x) for name, x in self.arguments.items()}


def _likeness(value: Any) -> object:
    if isinstance(value, Tensor):
        return value.shape, value.dtype
    if isinstance(value, tuple | list):
        return [_likeness(x) for x in value]
    return value if isinstance(value, bool | int | float | str | None) else type(value)


def record(
    model: nn.Module, inputs: tuple[Any, ...], options: Mapping[str, Any]
) -> tuple[list[Call], list[str]]:
    """Run a model once, and give the first call of each of its attentions, in their order.

    A softmax over keys, or a fused attention, counts for the innermost module around it that has
    parameters and is given hidden states.

    Args:
        model: any module.
        inputs: what it is called with.
        options: what it is called with by name.

    Returns:
        The calls, and the paths of modules that compute a softmax and are given no hidden states.
    """
    recorder = _Recorder({part: path for path, part in model.named_modules()})
    with torch.no_grad(), recorder.watching(), recorder:
        model(*inputs, **options)
    inner = [
        call for call in recorder.calls.values()
        if recorder.calls.keys().isdisjoint([*call.module.modules()][1:])
    ]  # fmt: skip
    return inner, recorder.homeless


@dataclass
class _Running:
    """A module that has been called and has not returned."""

    module: nn.Module
    arguments: dict[str, Any]
    heads: int = 0  # as seen in what it computes; 0 until it has computed an attention


class _Recorder(TorchFunctionMode):
    """Watches which module computes an attention, and keeps what that module was given."""

    def __init__(self, paths: dict[nn.Module, str]) -> None:
        super().__init__()
        self.paths = paths
        self.calls: dict[nn.Module, Call] = {}
        self.homeless: list[str] = []
        self._running: list[_Running] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name in _COMPUTES and self._running:
            self._computes(name, (*args, *(kwargs or {}).values()))
        return result

    def _computes(self, name: str, given: tuple[Any, ...]) -> None:
        """Note that an attention is computed, in the innermost module that it can belong to."""
        scores = given[0].shape
        if name == "softmax" and len(scores) < 3:
            return  # over classes or experts
        for running in reversed(self._running):
            states = _states(running.module, running.arguments)
            if not states or next(running.module.parameters(), None) is None:
                continue
            query = running.arguments[states[0]]
            samples = 0 if samples_first(running.module) else 1
            pairs = _pairs(running.arguments, states, 1 - samples)
            if name == "softmax" and scores[-2:] not in pairs:
                return  # over classes or experts
            running.heads = running.heads or _heads(name, given, query.size(samples))
            return
        if (path := self.paths[self._running[-1].module]) not in self.homeless:
            self.homeless.append(path)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Keep track of which modules run, while the block runs."""
        with contextlib.ExitStack() as hooks:
            for part in self.paths:
                hooks.enter_context(part.register_forward_pre_hook(self._begins, with_kwargs=True))
                hooks.enter_context(part.register_forward_hook(self._ends, always_call=True))
            yield

    def _begins(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._running.append(_Running(module, _named(module, args, kwargs)))

    def _ends(self, module: nn.Module, args: Any, output: Any) -> None:
        running = self._running.pop()
        if not running.heads or module in self.calls:
            return
        first = next(tensors(output), None)
        self.calls[module] = Call(
            self.paths[module],
            module,
            running.arguments,
            _states(module, running.arguments),
            running.heads,
            None if first is None else first.shape,
        )


def _named(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Give arguments their names, and keep caches as they are before the call."""
    signature = inspect.signature(module.forward)
    try:
        bound = signature.bind(*args, **kwargs).arguments
    except TypeError:  # it will say so itself
        return {}
    various = {x.kind: name for name, x in signature.parameters.items()}
    further = bound.pop(various.get(inspect.Parameter.VAR_KEYWORD, ""), {})
    return {name: _kept(x) for name, x in {**bound, **further}.items()}


def _kept(value: Any) -> Any:
    """Keep tensors as they are; copy an object, which may change while the model runs."""
    plain = isinstance(value, Tensor | tuple | list | bool | int | float | str | None)
    try:
        return value if plain else copy.deepcopy(value)
    except Exception:  # not everything can be copied
        return value


def tensors(value: Any) -> Iterator[Tensor]:
    """Give all tensors in lists, tuples and dictionaries, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from tensors([*value.values()])
    elif isinstance(value, tuple | list):
        for x in value:
            yield from tensors(x)


def samples_first(module: nn.Module) -> bool:
    """Tell whether hidden states are (b, n, e), and not (n, b, e), by what the module says."""
    return getattr(module, "batch_first", True) is not False


def _states(module: nn.Module, arguments: dict[str, Any]) -> tuple[str, ...]:
    """Name the arguments that are hidden states, of the same batch."""
    found = [
        name
        for name, x in arguments.items()
        if isinstance(x, Tensor) and x.dim() == 3 and x.is_floating_point()
        and not any(part in name.lower() for part in _NO_STATE)
    ]  # fmt: skip
    axis = 0 if samples_first(module) else 1
    return tuple(x for x in found if arguments[x].size(axis) == arguments[found[0]].size(axis))


def _pairs(arguments: dict[str, Any], states: tuple[str, ...], axis: int) -> list[torch.Size]:
    """Give the shapes that scores may have, (n, m): the keys are hidden states, or in the mask."""
    keys = [arguments[name].size(axis) for name in states]
    masks = [x for name, x in arguments.items() if "mask" in name and isinstance(x, Tensor)]
    keys += [x.size(-1) for x in masks if x.dim() > 1]
    return [torch.Size((keys[0], m)) for m in keys]


def _heads(name: str, given: tuple[Any, ...], samples: int) -> int:
    """Tell the number of heads from the shapes: (b, h, n, m) or (b * h, n, m)."""
    if name == "multi_head_attention_forward":
        return int(given[4])
    shape = given[0].shape
    return int(shape[1]) if len(shape) == 4 else max(1, int(shape[0]) // samples)
