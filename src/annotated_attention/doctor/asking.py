"""From the command line to a report: load, build, adapt, examine; what fails is a finding."""

import argparse
import inspect
import pydoc
from dataclasses import replace
from typing import Any

from annotated_attention.doctor.arguments import adapt
from annotated_attention.doctor.construction import build, is_factory, unguessed
from annotated_attention.doctor.examination import examine
from annotated_attention.doctor.loading import load
from annotated_attention.doctor.matching import unmatched
from annotated_attention.doctor.model import ModelReport, examine_model
from annotated_attention.doctor.names import Unasked, named_parameters
from annotated_attention.doctor.patient import describe
from annotated_attention.doctor.report import UNASKED, Finding, Report


def examined(options: argparse.Namespace) -> Report:
    """Load, build, adapt and examine; what fails on the way is a finding."""
    path, _, name = options.target.rpartition(":")
    notes: list[str] = []
    try:
        target = load(path, name)
        _ask_for_what_is_missing(target, options)
        attend = build(target, options, notes)
        report = examine(
            adapt(attend, options, notes),
            embed_dim=options.embed_dim,
            num_heads=options.num_heads,
            kind=options.kind,
            max_length=options.max_length,
            context_dim=options.context_dim,
            reference=_reference(options) if options.reference else None,
        )
        return replace(report, called=tuple(notes))
    except (Exception, SystemExit) as error:
        return _failed(name, error, notes)


def examined_model(options: argparse.Namespace) -> Report | ModelReport:
    """Have a model and its inputs made, and examine every attention in it."""
    path, _, name = options.model.rpartition(":")
    try:
        made = load(path, name)()
        if not isinstance(made, tuple) or len(made) != 2:
            remedy = "Return two things: the model, and its inputs as a tuple or a dictionary."
            raise Unasked("construction", f"{name} returns {type(made).__name__}", remedy)
        model, inputs = made
        if isinstance(inputs, dict):
            return examine_model(model, **inputs)
        return examine_model(model, *(inputs if isinstance(inputs, tuple) else (inputs,)))
    except (Exception, SystemExit) as error:
        return _failed(name, error, [])


def _reference(options: argparse.Namespace) -> Any:
    """Load, build and adapt the trusted implementation, with those options that it takes."""
    path, _, name = options.reference.rpartition(":")
    target = load(path, name) if path else pydoc.locate(name)
    if target is None:
        raise Unasked("import", f"there is no {name}", "Name a class: `--reference file.py:Class`.")
    known = named_parameters(target)
    init = [pair for pair in options.init if pair[0] in known]
    module = build(target, argparse.Namespace(**{**vars(options), "init": init}), [])
    called = named_parameters(getattr(module, "forward", module))
    call = [pair for pair in options.call if pair[0] in called]
    return adapt(module, argparse.Namespace(**{**vars(options), "call": call}), [])


def _failed(name: str, error: BaseException, notes: list[str]) -> Report:
    """Report that something failed before it could be examined."""
    remedy = "Give the kind that fits, or write an adapter and call `examine` from Python."
    reason = error if isinstance(error, Unasked) else Unasked("call", describe(error), remedy)
    finding = Finding(
        f"{reason.step}-fails",
        UNASKED,
        f"{reason.step} fails",
        str(reason),
        remedy=reason.remedy,
        test=reason.step,
    )
    left = (f"everything behind its {reason.step}",)
    return Report(name, (finding,), left, {reason.step: UNASKED}, called=tuple(notes))


def _ask_for_what_is_missing(target: Any, options: argparse.Namespace) -> None:
    """Name every argument that cannot be guessed, of the constructor and of the call, at once.

    Raises:
        Unasked: there are some.
    """
    built = inspect.isclass(target) or is_factory(target)
    call = target
    if inspect.isclass(target):
        call = getattr(target, "forward", vars(target).get("__call__"))
    of_init = unguessed(target, options)
    of_call = [] if call is None or is_factory(target) else unmatched(call, options)
    if not of_init and not of_call:
        return
    text = [f"the constructor's {', '.join(of_init)}"] if of_init else []
    text += [f"the call's {', '.join(of_call)}"] if of_call else []
    line = f"python -m annotated_attention.doctor {options.target} --kind {options.kind}"
    line += f" --embed-dim {options.embed_dim} --num-heads {options.num_heads}"
    for option, names in (("init", of_init), ("call", of_call)):
        given = [f"{x}={value!r}" for x, value in getattr(options, option)]
        line += f" --{option} {' '.join([*given, *(f'{x}=…' for x in names)])}" if names else ""
    step = "construction" if built and of_init else "call"
    remedy = f"Give what cannot be guessed: `{line}`."
    raise Unasked(step, f"{' and '.join(text)} cannot be guessed", remedy)
