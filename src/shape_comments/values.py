"""What shape a value has, and which letters are integer variables."""

from collections.abc import Iterable
from types import FrameType
from typing import Any, NamedTuple

Sizes = tuple[int, ...]


class Several(NamedTuple):
    """The shapes of the values in a tuple or a list."""

    each: tuple[Sizes | str, ...]


Found = Sizes | str | Several  # a string names the type of a value without shape
MANY = 100  # a longer list is data, not a list of tensors


def find_shape(value: object, inside: bool = False) -> Any:
    """Return the sizes of a value's axes; for a tuple or a list, those of each item."""
    if hasattr(type(value), "shape"):  # asked of the instance, a torch.fx.Proxy would record it
        shape = value.shape  # type: ignore[attr-defined]
        if isinstance(shape, tuple) and all(type(x) is int for x in shape):
            return tuple(shape)
    if isinstance(value, tuple) and type(value).__name__ == "Size":  # torch's x.shape
        return tuple(value)
    if isinstance(value, (tuple, list)) and not inside and len(value) <= MANY:
        return Several(tuple(find_shape(item, inside=True) for item in value))
    return type(value).__name__


def find_variables(letters: Iterable[str], frame: FrameType) -> tuple[tuple[str, int], ...]:
    """Return the letters that are integer variables in the frame, with their values."""
    if not letters:
        return ()
    near, far, code = frame.f_locals, frame.f_globals, frame.f_code
    # Names that never mean a global here, even before they have a value.
    own = (*code.co_varnames, *code.co_cellvars, *code.co_freevars)
    values = [(x, (near if x in near or x in own else far).get(x)) for x in letters]
    return tuple((letter, x) for letter, x in values if type(x) is int)
