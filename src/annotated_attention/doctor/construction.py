"""Construct a class whose constructor nobody has described."""

import argparse
import inspect
from types import SimpleNamespace
from typing import Any

from annotated_attention.doctor.names import NAMES, Unasked, named_parameters, refuse, takes_any
from annotated_attention.doctor.patient import describe


def _usual(options: argparse.Namespace) -> dict[str, Any]:
    """Give a value to every argument that constructors usually have."""
    e, h = options.embed_dim, options.num_heads
    values = {
        "width": e, "heads": h, "groups": h, "head width": e // h, "length": options.max_length,
        "none": 0.0, "bias": True, "causal": options.kind == "causal",
    }  # fmt: skip
    usual = {name: value for role, value in values.items() for name in NAMES[role]}
    return {**usual, "batch_first": not options.sequence_first}


def build(target: Any, options: argparse.Namespace) -> Any:
    """Construct a class from the given arguments and the usual names of the others."""
    given = dict(options.init)
    if not inspect.isclass(target):
        refuse("construction", given, [], f"{options.target} is no class and is not constructed")
        return target
    parameters = named_parameters(target)
    arguments = _guessed(parameters, given, options)
    unknown = [x for x, p in parameters.items() if p.default is p.empty and x not in arguments]
    if unknown:
        text = f"the constructor's {', '.join(unknown)} cannot be guessed"
        asked = " ".join(f"{name}=…" for name in unknown)
        raise Unasked("construction", text, f"Give what cannot be guessed: `--init {asked}`.")
    if takes_any(target):
        arguments |= given
    elif not any(name.lower() in NAMES["config"] for name in parameters):
        extra = {name: value for name, value in given.items() if name not in arguments}
        refuse("construction", extra, parameters, "the constructor")
    try:
        return target(**arguments)
    except Exception as error:
        shown = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        remedy = f"It was built with {shown or 'nothing'}. Give what fits: `--init name=value`."
        raise Unasked("construction", describe(error), remedy) from error


def _guessed(
    parameters: dict[str, inspect.Parameter], given: dict[str, Any], options: argparse.Namespace
) -> dict[str, Any]:
    """Guess what a constructor must be given, and those of its defaults that are about sizes."""
    usual = _usual(options)
    required = {name.lower() for name, x in parameters.items() if x.default is x.empty}
    # A width that may be left out is another one than the one that may not.
    sizes = [
        *NAMES["heads"],
        *NAMES["groups"],
        *NAMES["head width"],
        *([] if required & {*NAMES["width"]} else NAMES["width"]),
    ]
    arguments: dict[str, Any] = {}
    for name, parameter in parameters.items():
        common, default = name.lower(), parameter.default
        number = isinstance(default, int) and not isinstance(default, bool) and default > 0
        if name in given:
            arguments[name] = given[name]
        elif common in NAMES["config"] and default is parameter.empty:
            arguments[name] = SimpleNamespace(**{**usual, **given})
        elif common in usual and (
            common in required
            or common in ("batch_first", *NAMES["causal"])
            or (common in sizes and (number or (common in NAMES["heads"] and default is None)))
        ):
            arguments[name] = usual[common]
    return arguments
