"""What stands around an attention and takes any arguments: decorators, wrappers, what they hold."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from attention_doctor.call.roles import named_parameters, signature


def takes_any(function: Any) -> bool:
    """Tell whether there are arguments without a name of their own."""
    return len(named_parameters(function)) < len(signature(function))


def within(target: Any, kind: type) -> Any:
    """Give what a decorator was put around, if it is of this kind; None if it is not."""
    if isinstance(target, kind):
        return target
    inner = target.func if isinstance(target, functools.partial) else inspect.unwrap(target)
    holds = inspect.isfunction(target) and (kind is nn.Module or takes_any(target))
    if holds and not isinstance(inner, kind):
        held = inspect.getclosurevars(target).nonlocals.values()
        inner = next((x for x in held if isinstance(x, kind)), None)
    return inner if isinstance(inner, kind) else None


def named(attend: Any) -> tuple[Any, Callable[..., Any]]:
    """Give the function that says which arguments there are, and what to call with these names.

    Where it takes any, what is inside says which, and gets them in the same order.
    """
    function = attend.forward if isinstance(attend, nn.Module) else attend
    inner: Any = None
    if callable(function) and takes_any(function):
        inner = within(function, nn.Module)
        if isinstance(attend, nn.Module):
            around, parts = inspect.unwrap(type(attend)), [*attend.children()]
            inner = around if around is not type(attend) else inner
            inner = parts[0] if inner is None and len(parts) == 1 else inner
    forward = getattr(inner, "forward", None)
    if forward is None or len(named_parameters(forward)) <= len(named_parameters(function)):
        return function, attend
    names = [x for x in signature(forward).values() if x.name != "self"]
    order = inspect.Signature(names)

    def call(**given: Any) -> Any:
        bound = order.bind(**given)
        bound.apply_defaults()
        return attend(*bound.args, **bound.kwargs)

    call.__signature__ = order  # type: ignore[attr-defined]
    return call, call
