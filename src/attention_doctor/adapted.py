"""What a callable says about itself: its module, its masks, what it can do besides."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

MASKS = ("any", "apart", "shared", "padding", "none")
# What a callable may have besides: it is handed on from the inside to the outside.
ABILITIES = ("at_positions", "start", "step", "window", "packed")
_OUTPUTS = (
    "last_hidden_state",
    "attn_output",
    "output",
    "out",
    "hidden_states",
    "result",
    "x",
    "y",
)


class Adapted:
    """A callable that knows its module and which masks it takes.

    Abilities of the callable that it is built around, such as ``at_positions``, are its own, too;
    the doctor's page says what they are.

    Attributes:
        module: holds the parameters, hooks and modes; None if there is no module.
        masks: ``"any"``, a mask for every sample and query; ``"shared"``, the same for all samples;
            ``"padding"``, the same for all queries; ``"apart"``, masks of the last two kinds, and
            none that differs between both; ``"none"``.
        required: whether the callable must be given a mask, so that the adapter makes one.
        length: the only number of tokens that it takes; None if it takes any.

    Examples:
        >>> import torch
        >>> from attention_doctor.adapters import Adapted
        >>> linear = torch.nn.Linear(24, 24)
        >>> adapted = Adapted(lambda x, blocked: linear(x), linear, masks="none")
        >>> adapted.name, adapted.masks, adapted.module is linear
        ('Linear', 'none', True)
    """

    def __init__(
        self,
        attend: Callable[..., Any],
        inner: object,
        masks: str | None = None,
        required: bool = False,
    ) -> None:
        """Take a function; what is not given comes from ``inner``, which it is built around."""
        self.attend = attend
        self.module = module_of(inner)
        self.masks = masks or masks_of(inner)
        self.required = required or needs_mask(inner)
        self.length: int | None = getattr(inner, "length", None)
        # What was found out about causal attention: how it attends step by step, how it takes a
        # mask as well, and whether it is the latter, which hides the future besides.
        self.in_steps: Any = getattr(inner, "in_steps", None)
        self.with_mask: Any = getattr(inner, "with_mask", None)
        self.own_future = getattr(inner, "own_future", None) is True
        self.name = name_of(inner)
        for ability in ABILITIES if isinstance(inner, Adapted) else ():
            if hasattr(inner, ability):
                setattr(self, ability, getattr(inner, ability))

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """Call the adapted function."""
        return self.attend(*inputs, **options)


def module_of(attend: object) -> nn.Module | None:
    """Return the module behind a callable, or None."""
    found = attend if isinstance(attend, nn.Module) else getattr(attend, "module", None)
    found = getattr(attend, "__self__", None) if found is None else found  # a bound method
    return found if isinstance(found, nn.Module) else None


def masks_of(attend: object) -> str:
    """Return which masks a callable takes; ``"any"`` if it does not say."""
    masks = getattr(attend, "masks", None)
    return masks if masks in MASKS else "any"


def needs_mask(attend: object) -> bool:
    """Tell whether a callable must be given a mask."""
    return getattr(attend, "required", False) is True


def name_of(attend: object) -> str:
    """Return the name of a callable for the report."""
    for found in (getattr(attend, "name", None), getattr(attend, "__name__", None)):
        if isinstance(found, str):
            return found
    return type(attend).__name__


def output_of(result: object, shape: torch.Size) -> tuple[object, list[Tensor]]:
    """Find the output in what was returned: a tensor, or the first of this shape among several.

    Args:
        result: a tensor, or a tuple, a list, a dictionary, a named tuple or a dataclass of them.
        shape: that of the output.

    Returns:
        The output, whatever it is, and the tensors that were returned besides.

    Examples:
        >>> import torch
        >>> from attention_doctor.adapted import output_of
        >>> weights, output = torch.randn(2, 4, 5, 5), torch.randn(2, 5, 24)
        >>> found, rest = output_of((weights, output), output.shape)
        >>> found is output, rest[0] is weights
        (True, True)
    """
    if dataclasses.is_dataclass(result) and not isinstance(result, Mapping | type):
        result = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
    if isinstance(result, Mapping):
        first = [result[name] for name in _OUTPUTS if name in result]
        result = [*first, *(x for name, x in result.items() if name not in _OUTPUTS)]
    if not isinstance(result, tuple | list) or not result:
        return result, []
    fits = [x for x in result if isinstance(x, Tensor) and x.shape == shape]
    output = fits[0] if fits else result[0]
    return output, [x for x in result if isinstance(x, Tensor) and x is not output]
