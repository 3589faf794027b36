"""Construct what is examined, where the names of its arguments say which sizes they are."""

import contextlib
import functools
import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy as is_uninitialized

from attention_doctor.call.places import describe
from attention_doctor.call.roles import (
    Sizes,
    Unasked,
    named_parameters,
    required,
    signature,
    size_of,
    taken,
)


def build(target: Any, given: Mapping[str, Any], sizes: Sizes, kind: str) -> tuple[Any, str]:
    """Construct a class, or call a function that makes an attention.

    Anything else is an attention already, and is returned. Gives what was built, and with which
    arguments that nobody has said, as a text.

    Raises:
        Unasked: an argument is not known, or the constructor raises.
    """
    if not is_built(target):
        if given:
            text = f"{getattr(target, '__name__', target)} is no class and is not constructed"
            raise Unasked("construction", text, "Leave `--init` away.")
        return target, ""
    parameters, arguments = named_parameters(behind(target)), known(target, given, sizes, kind)
    extra = [name for name in given if name not in arguments]
    if extra and not any(isinstance(x, Config) for x in arguments.values()):
        text = f"the constructor has no {', '.join(extra)} (`--init`)"
        raise Unasked("construction", text, f"It has: {', '.join(parameters)}.")
    if missing := [name for name in required(parameters) if name not in arguments]:
        text = f"the constructor's {', '.join(missing)} cannot be filled in"
        values = " ".join(f"{name}=…" for name in missing)
        raise Unasked("construction", text, f"Say it: `--init {values}`, or complete the adapter.")
    guessed = {name: x for name, x in arguments.items() if name not in given}
    try:
        with _unfilled_is_nan():
            made = target(**arguments)
    except Exception as error:
        built = said(guessed) or "nothing"
        remedy = f"It was built with {built}. Say what fits: `--init name=value`."
        raise Unasked("construction", describe(error), remedy) from error
    for x in made.parameters() if isinstance(made, nn.Module) else ():
        if not is_uninitialized(x) and x.is_floating_point():
            drawn = torch.randn(x.shape, generator=torch.Generator().manual_seed(0)) * 0.1
            x.data = torch.where(x.data.isnan(), drawn.to(x), x.data)
    return made, f"built with {said(guessed)}" if guessed else ""


def without_heads(target: Any, given: Mapping[str, Any], sizes: Sizes, kind: str) -> str:
    """Say that a constructor has no number of heads; "" where it has, or may have."""
    a_class = inspect.isclass(behind(target))
    arguments = known(target, given, sizes, kind) if a_class else {"config": 0}
    roles = {size_of(name) for name in arguments} | {*map(size_of, given)}
    heads = f"`--num-heads {sizes.num_heads}` is not used: no argument of its constructor is one"
    return heads * roles.isdisjoint({"heads", "head width", "config"})


def said(arguments: Mapping[str, Any]) -> str:
    """Write arguments as in a call."""
    return ", ".join(f"{name}={x!r}" for name, x in arguments.items())


def behind(target: Any) -> Any:
    """Give the class that a decorator or a partial was put around, or the target itself."""
    inner = target.func if isinstance(target, functools.partial) else inspect.unwrap(target)
    return inner if inspect.isclass(inner) and not inspect.isclass(target) else target


def is_built(target: Any) -> bool:
    """Tell whether a target has to be called first: a class, or a function of sizes alone."""
    if inspect.isclass(behind(target)):
        return True
    if isinstance(target, nn.Module) or not inspect.isfunction(target):
        return False
    parameters = signature(target)
    positional = any(x.kind is x.VAR_POSITIONAL for x in parameters.values())
    return not positional and all(size_of(x) for x in required(named_parameters(target)))


def is_factory(target: Any) -> bool:
    """Tell whether a target is a function that makes an attention, such as an adapter."""
    return is_built(target) and not inspect.isclass(behind(target))


def known(target: Any, given: Mapping[str, Any], sizes: Sizes, kind: str) -> dict[str, Any]:
    """Give the arguments of a constructor that are said, or that are sizes by their names."""
    parameters = named_parameters(behind(target))
    arguments = taken(behind(target), given)
    needed = required(parameters)
    for name, parameter in parameters.items():
        role, default = size_of(name), parameter.default
        if name == "mask" and isinstance(default, bool):  # whether it hides the future
            role = "causal"
        if name in given or not role:
            continue
        number = isinstance(default, int) and not isinstance(default, bool) and default > 0
        flag = role == "causal" and isinstance(default, bool)
        if role == "config" and name in needed:
            arguments[name] = Config(given, sizes, kind)
        elif name in needed or flag or (number and role in ("heads", "width", "length")):
            arguments[name] = value_of(name, sizes, kind)
        elif kind == "memory" and role == "context width":
            arguments[name] = sizes.context_dim
    return arguments


def value_of(name: str, sizes: Sizes, kind: str) -> Any:
    """Give what an argument of this name is; None if its name does not say."""
    role = "causal" if name == "mask" else size_of(name)
    return torch.float32 if role == "dtype" else sizes.of(role, kind)


class Config:
    """Stands in for a configuration: answers what is said, and what is a size by its name."""

    def __init__(self, given: Mapping[str, Any], sizes: Sizes, kind: str) -> None:
        """Hold nothing but how to answer."""
        self._given, self._of = given, lambda name: value_of(name, sizes, kind)

    def __getattr__(self, name: str) -> Any:
        """Answer, and keep what was read; all other names are missing."""
        value = None if name.startswith("_") else self._given.get(name, self._of(name))
        if value is None and (name.startswith("_") or name not in self._given):
            text = f"the stand-in for a configuration has no {name}"
            raise AttributeError(text, name=name, obj=self)
        setattr(self, name, value)
        return value

    def __repr__(self) -> str:
        """Show what was read."""
        return f"Config({said(self.read)})"

    @property
    def read(self) -> dict[str, Any]:
        """What was read, by its name."""
        return {x: y for x, y in vars(self).items() if not x.startswith("_")}


@contextlib.contextmanager
def _unfilled_is_nan() -> Iterator[None]:
    """Let PyTorch put NaN where a tensor is made and nothing is put into it."""
    before = torch.get_deterministic_debug_mode()
    # `use_deterministic_algorithms` does the same, and first imports PyTorch's compiler.
    torch.set_deterministic_debug_mode("warn")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)


class PerCall:
    """A value of ``--call`` with the number of tokens, which each call has its own of."""

    def __init__(self, text: str, names: Mapping[str, Any]) -> None:
        """Keep what is to be computed."""
        self._text, self._names = text, names

    def __repr__(self) -> str:
        """Show it as it was said."""
        return self._text

    def of(self, n: int) -> Any:
        """Compute it for as many tokens."""
        return eval(self._text, {**self._names, "n": n})


def values(
    option: str, pairs: Iterable[tuple[str, str]], names: Mapping[str, Any], sizes: Sizes
) -> dict[str, Any]:
    """Compute the values of ``--init`` or ``--call``."""
    e, h, n = sizes.embed_dim, sizes.num_heads, sizes.max_length
    known = {"torch": torch, **names, "e": e, "h": h, "d": e // h, "n": n}
    step, meant = "construction", "the longest sequence"
    if option == "--call":
        step, meant = "call", "the number of its tokens"
    found = {}
    for name, text in pairs:
        try:
            found[name] = eval(text, known)
            if step == "call" and "n" in compile(text, option, "eval").co_names:
                found[name] = PerCall(text, known)
        except Exception as error:
            remedy = f"It may use the names of the file, `torch`, e, h, d and n, {meant}; "
            remedy += "a word stands in quotes of its own."
            raise Unasked(step, f"`{option} {name}={text}`: {describe(error)}", remedy) from error
    return found
