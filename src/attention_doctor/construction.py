"""Construct a class whose constructor nobody has described."""

import argparse
import ast
import contextlib
import dataclasses
import functools
import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from attention_doctor.expressions import computed
from attention_doctor.names import (
    GRID,
    INPUTS,
    Unasked,
    named_parameters,
    plain_name,
    refuse,
    role_of,
    said_by,
    takes_any,
    usual,
)  # fmt: skip
from attention_doctor.patient import describe, raised_in
from attention_doctor.settings import Settings, guess, settled
from attention_doctor.state import fill

_NOT_ABOUT_ONE = ("PreTrainedConfig", "PretrainedConfig", "GenerationConfig")
_WIDE = 64  # the least default that is taken for a width, where no name says what is one
_TRIES = 40  # settings that are read one after the other


def build(target: Any, options: argparse.Namespace, notes: list[str]) -> Any:
    """Construct a class from the given arguments and the usual values of the others.

    Args:
        target: a class; a function that makes an attention; or an attention, which is returned.
        options: the sizes and the arguments that are given.
        notes: gets a sentence on what was guessed.

    Raises:
        Unasked: an argument cannot be guessed, or the constructor raises.
    """
    e, h = options.embed_dim, options.num_heads
    given = computed(options.init, "construction", n=options.max_length, e=e, h=h, d=e // h)
    if not inspect.isclass(target) and not is_factory(target):
        refuse("construction", given, [], f"{options.target} is no class and is not constructed")
        return target
    parameters = named_parameters(target)
    extra: dict[str, Any] = {}
    if takes_any(target):
        extra = {name: value for name, value in given.items() if name not in parameters}
    elif not any(role_of(name) == "config" for name in parameters):
        refuse("construction", given, parameters, "the constructor")
    failed: list[tuple[dict[str, Any], Exception]] = []
    for arguments in _variants(target, given, options):
        try:
            with _unfilled_is_nan():
                made = attempt(functools.partial(target, **arguments, **extra))
        except Exception as error:
            failed.append((arguments, error))
        else:
            guessed = {name: x for name, x in arguments.items() if name not in given}
            off = any("mask" in name and x is False for name, x in guessed.items())
            options.unmasked = off or getattr(options, "unmasked", False)
            if guessed:
                notes.append(f"built with {_shown(guessed)}")
            if isinstance(made, nn.Module) and (names := fill(made)):
                notes.append(
                    f"the constructor leaves {', '.join(names)} as memory was (`torch.empty`); "
                    "drawn numbers are put there, always the same"
                )
            return made
    arguments, reason = failed[0]
    for name, value in _asserted(reason, options):
        if name not in given and (name in parameters or extra or not takes_any(target)):
            notes.append(f"`{name}={value!r}`, which an assertion asks for")
            init = [*given.items(), (name, value)]
            return build(target, argparse.Namespace(**{**vars(options), "init": init}), notes)
    remedy = f"It was built with {_shown(arguments) or 'nothing'}. "
    remedy += "Give what fits: `--init name=value`."
    raise Unasked("construction", describe(reason), remedy) from reason


def _asserted(error: BaseException, options: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """Give an argument with a value that a failed assertion would take, as its line says."""
    frame = raised_in(error)
    line = "" if frame is None else frame.line or ""
    if not isinstance(error, AssertionError):
        return
    if listed := re.match(r"assert (?:\w+\.)*(\w+) in ([(\[{].*?[)\]}])", line):
        with contextlib.suppress(ValueError, SyntaxError):
            yield listed[1], next(iter(ast.literal_eval(listed[2])))
    elif needed := re.match(r"assert (?:\w+\.)*(\w+) is not None", line):
        try:
            yield needed[1], guess(needed[1], options)
        except KeyError:
            yield needed[1], False


def attempt(make: Callable[[], Any]) -> Any:
    """Call, and again as long as it fails for a setting that can be guessed."""
    for _ in range(_TRIES):
        try:
            return make()
        except Exception as error:
            if not settled(error):
                raise
    return make()


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


def unguessed(target: Any, options: argparse.Namespace) -> list[str]:
    """Return the arguments of a constructor that cannot be guessed."""
    if not inspect.isclass(target) and not is_factory(target):
        return []
    guessed = _guessed(target, dict(options.init), options)
    parameters = named_parameters(target).items()
    return [x for x, p in parameters if p.default is p.empty and x not in guessed]


def is_factory(target: Any) -> bool:
    """Tell whether a function makes an attention: none of its arguments is an input of one."""
    if inspect.isclass(target) or isinstance(target, nn.Module) or not inspect.isfunction(target):
        return False
    made = _hint(target, inspect.signature(target).return_annotation)
    if inspect.isclass(made) and issubclass(made, nn.Module):
        return True
    names = [plain_name(x) for x, p in named_parameters(target).items() if p.default is p.empty]
    inputs = {name for names in INPUTS.values() for name in names} - {"h", "data", "features"}
    if not names:  # its inputs may be positional arguments that it does not name
        parameters = inspect.signature(target).parameters.values()
        return all(x.kind is not x.VAR_POSITIONAL for x in parameters)
    return all(role_of(name) and name not in inputs for name in names)


def _shown(arguments: dict[str, Any]) -> str:
    return ", ".join(f"{name}={' '.join(repr(x).split())}" for name, x in arguments.items())


def _variants(
    target: Any, given: dict[str, Any], options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Give arguments to try: the likeliest first, then those that leave more as it is."""
    parameters, first = named_parameters(target), _guessed(target, given, options)
    yield first
    tried = [first]
    required = {x for x, p in parameters.items() if p.default is p.empty}
    small = {name: (2, 2) for name in parameters if re.search(GRID, name)}
    least = dict.fromkeys(small, 2)
    open_ones = {
        name: Settings(options, given)
        for name, x in first.items()
        if role_of(name) == "config" and name not in given and not isinstance(x, Settings)
    }  # where the configuration beside it is another one's
    none = {
        name: nn.Identity
        for name, x in parameters.items()
        if x.default is None and re.search("act|norm", name)
    }
    wide = dict.fromkeys(small, options.embed_dim)
    for change in (open_ones, small, least, {**least, **none}, wide):
        changed = {**first, **{name: x for name, x in change.items() if name not in given}}
        few = {name: x for name, x in changed.items() if name in required | {*given, *change}}
        for arguments in (changed, few):
            if arguments not in tried:
                tried.append(arguments)
                yield _guessed(target, {**given, **arguments}, options) | arguments


def _guessed(target: Any, given: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Guess what a constructor must be given, and those of its defaults that are about sizes."""
    parameters = named_parameters(target)
    required = {name for name, x in parameters.items() if x.default is x.empty}
    # A width that may be left out is another one than the one that may not.
    sizes = {"heads", "groups", "head width", "crossing", "within", "layer"}
    if not any(role_of(name) in ("width", "config") for name in required):
        sizes.add("width")
    if options.kind == "memory" and options.context_dim != options.embed_dim:
        sizes.add("context width")
    unnamed = not any("width" in role_of(x) or role_of(x) == "config" for x in parameters)
    arguments: dict[str, Any] = {}
    for name, parameter in parameters.items():
        role, default = role_of(name), parameter.default
        may = isinstance(default, int) and not isinstance(default, bool) and default > 0
        may = may or (default is None and role in ("heads", "context width", "layer"))
        may = may or (role in ("crossing", "within") and default is False)
        if name in given:
            arguments[name] = given[name]
        elif name == "batch_first":
            arguments[name] = not options.sequence_first
        elif name in required or (role == "config" and default is None):
            value = _value(target, name, parameter, given, options)
            if value is not parameter.empty:
                arguments[name] = value
        elif role == "causal" or (role in sizes and may):
            arguments[name] = usual(role, options)
        elif default is True and re.search("(^|_)cls(_|$)|class_token", name):
            arguments[name] = False  # what is given has no first token apart
        elif plain_name(name) == "mask" and isinstance(default, bool):
            arguments[name] = usual("causal", options)
        elif unnamed and may and not role and default >= _WIDE:
            arguments[name] = options.embed_dim
        elif options.kind == "memory" and default is None:
            # Where the width of a context is left out, it may be self-attention.
            said = re.search("context|ctx|memory|cond|encoder|cross", plain_name(name))
            if said and "context width" in (role_of(name), said_by(name)):
                arguments[name] = options.context_dim
    return arguments


def _value(
    target: Any,
    name: str,
    parameter: inspect.Parameter,
    given: dict[str, Any],
    options: argparse.Namespace,
) -> Any:
    """Guess one argument; ``parameter.empty`` if it cannot be guessed."""
    hint = _hint(target, parameter.annotation)
    if role_of(name) == "config" or plain_name(name).endswith(("config", "cfg", "hparams")):
        return configuration(
            _near(target) if hint in (None, parameter.empty) else hint, given, options
        )
    if hint is bool and role_of(name) not in ("causal", "bias", "crossing", "within"):
        return name == "batch_first"
    if dataclasses.is_dataclass(hint) or (hint is dict and role_of(name) == ""):
        return configuration(hint, given, options)
    if inspect.isclass(hint) and issubclass(nn.Linear, hint) and hint is not object:
        if re.search("drop|act|norm", name):
            return nn.Identity()
        return nn.Linear(options.embed_dim, options.embed_dim)
    try:
        return guess(name, options)
    except KeyError:
        if type(None) in typing.get_args(hint):
            return None
        made = [*parts(target, name, options).values()]
        return made[0] if len(made) == 1 else parameter.empty  # of several the user chooses


def parts(target: Any, name: str, options: argparse.Namespace) -> dict[str, nn.Module]:
    """Build the classes of the same file that are named like an argument of the constructor."""
    bare = argparse.Namespace(**{**vars(options), "init": [], "is_part": True})
    takes = inspect.isclass(target) and issubclass(target, nn.Module)
    made: dict[str, nn.Module] = {}
    if not takes or hasattr(options, "is_part"):
        return made
    for found, kind in vars(sys.modules.get(target.__module__, typing)).items():
        named = plain_name(name) in plain_name(found) and kind is not target
        if named and inspect.isclass(kind) and issubclass(kind, nn.Module):
            with contextlib.suppress(Unasked):
                made[found] = build(kind, bare, [])
    if len(made) == 1:
        options.unmasked = bare.unmasked
    return made


def _hint(target: Any, hint: Any) -> Any:
    """Return an annotation as an object, where it can be found."""
    if isinstance(hint, str):
        names = vars(sys.modules.get(target.__module__, typing))
        try:
            hint = eval(hint, dict(names))
        except Exception:  # names that exist for a type checker only
            return None
    return hint


def _near(target: Any) -> Any:
    """Return the class of a configuration beside a class, such as GPT2Config; None if none is."""
    beside = {
        name: x
        for name, x in vars(sys.modules.get(target.__module__, typing)).items()
        if inspect.isclass(x) and name.endswith(("Config", "Args", "Configuration"))
    }
    stems = {name: re.sub(r"(Config|Args|Configuration)$", "", name) for name in beside}
    like = [name for name, stem in stems.items() if stem and target.__name__.startswith(stem)]
    own = [name for name in beside if name not in _NOT_ABOUT_ONE]
    found = max(like, key=len) if like else own[0] if len(own) == 1 else None
    return None if found is None else beside[found]


def configuration(hint: Any, given: dict[str, Any], options: argparse.Namespace) -> Any:
    """Make a configuration: of the annotated dataclass, or one that answers what it is asked.

    Args:
        hint: the annotation; anything.
        given: settings that are given.
        options: the sizes.
    """
    classes = [x for x in (hint, *typing.get_args(hint)) if inspect.isclass(x)]
    for kind in classes:
        try:
            if dataclasses.is_dataclass(kind) and not hasattr(kind, "from_pretrained"):
                return _filled(kind, given, options)
            if kind.__module__ != "builtins":
                return Settings(options, given, kind())
        except Exception:  # it asks for more than that
            continue
    return Settings(options, given)


def _filled(kind: Any, given: dict[str, Any], options: argparse.Namespace) -> Any:
    """Make a dataclass: sizes by their names, what has no default by guessing."""
    values = dict(given)
    for field in dataclasses.fields(kind):
        required = field.default is field.default_factory is dataclasses.MISSING
        if field.name in given or not field.init:
            continue
        value = usual(role_of(field.name), options)
        if value is None and required:
            value = _value(kind, field.name, named_parameters(kind)[field.name], given, options)
        if value is inspect.Parameter.empty:  # something of its type
            kind_name: Any = getattr(field.type, "__name__", field.type)
            value = {"str": "", "int": 1, "float": 1.0}.get(kind_name)
        if value is not None or required:
            values[field.name] = value
    return kind(**values)
