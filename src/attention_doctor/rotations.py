"""The rotation that a model gives to its attention, continued to any positions."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_CLOSE = 1e-3  # of a radian: the model's own cosines are rounded
Turn = Callable[[Tensor, torch.dtype], dict[str, Any]]


def continued(arguments: dict[str, Any], length: int) -> Turn | None:
    """Find a rotation among the arguments, as a function of positions.

    Args:
        arguments: cosines and sines, in a pair or as two, or complex numbers, of these names.
        length: n, the number of tokens that they are for.

    Returns:
        Takes whole positions (k,) and a dtype, and gives these arguments anew, for k tokens. None
        if there is no rotation, or one whose angles do not grow with the position.
    """
    for name, value in arguments.items():
        if isinstance(value, Tensor) and value.is_complex() and value.dim() > 1:
            return _given(value, length, lambda x, dtype, name=name: {name: x.to(_complex(dtype))})
        if isinstance(value, tuple | list) and len(value) == 2 and _alike(*value):
            return _given(_joined(*value), length, lambda x, dtype, name=name: {
                name: (x.real.to(dtype), x.imag.to(dtype))})  # fmt: skip
    cos, sin = (next((x for x in arguments if part in x), "") for part in ("cos", "sin"))
    if not _alike(arguments.get(cos), arguments.get(sin)):
        return None
    return _given(_joined(arguments[cos], arguments[sin]), length, lambda x, dtype: {
        cos: x.real.to(dtype), sin: x.imag.to(dtype)})  # fmt: skip


def _given(rotation: Tensor, length: int, name: Callable[..., dict[str, Any]]) -> Turn | None:
    """Give a rotation the form of the arguments that it was found in."""
    turn = _turn(rotation, length)
    return None if turn is None else lambda positions, dtype: name(turn(positions), dtype)


def _joined(cos: Tensor, sin: Tensor) -> Tensor:
    return torch.complex(cos.double(), sin.double())


def _alike(one: Any, two: Any) -> bool:
    """Tell whether two arguments are tensors of one shape that may be cosines and sines."""
    tensors = isinstance(one, Tensor) and isinstance(two, Tensor) and one.shape == two.shape
    return bool(tensors and one.is_floating_point() and one.dim() > 1)


def _complex(dtype: torch.dtype) -> torch.dtype:
    return torch.complex128 if dtype == torch.float64 else torch.complex64


def _turn(rotation: Tensor, length: int) -> Callable[[Tensor], Tensor] | None:
    """Continue a rotation, (..., n, ..., d), whose angles grow with the position."""
    rotation = rotation.to(torch.complex128)
    axis = next((i for i in reversed(range(rotation.dim() - 1)) if rotation.size(i) == length), -1)
    if axis < 0 or length < 2:
        return None
    first, second = (rotation.narrow(axis, i, 1) for i in (0, 1))
    steps = (second / first).angle()

    def turn(positions: Tensor) -> Tensor:
        shape = [1] * rotation.dim()
        shape[axis] = len(positions)
        return first * torch.exp(1j * steps * positions.view(shape))

    whole = turn(torch.arange(length))
    known = bool((first.abs() > 0).all()) and bool(steps.any())
    return turn if known and bool(((whole - rotation).abs() < _CLOSE).all()) else None
