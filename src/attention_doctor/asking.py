"""From the command line to a report: load, build, adapt, examine; what fails is a finding."""

import argparse
import pydoc
from dataclasses import replace
from typing import Any

from attention_doctor.arguments import answered
from attention_doctor.construction import build
from attention_doctor.examination import examine
from attention_doctor.loading import Expired, contained, load
from attention_doctor.model import ModelReport, examine_model
from attention_doctor.names import Unasked, named_parameters
from attention_doctor.options import Expression
from attention_doctor.patient import describe
from attention_doctor.preparation import prepare
from attention_doctor.report import UNASKED, Finding, Report


def examined(options: argparse.Namespace) -> Report | ModelReport:
    """Examine one attention, or every one in a model; what fails on the way is a finding."""
    path, _, name = (options.model or options.target).rpartition(":")
    notes: list[str] = []
    try:
        with contained(options.timeout):
            target, names = load(path, name)
            for _, value in (*options.init, *options.call):
                if isinstance(value, Expression):
                    value.names = names
            if options.model:
                return _examined_model(target(), name)
            report = examine(
                prepare(target, options, notes),
                embed_dim=options.embed_dim,
                num_heads=options.num_heads,
                kind=options.kind,
                max_length=options.max_length,
                context_dim=options.context_dim,
                reference=_reference(options) if options.reference else None,
            )
        return replace(report, called=tuple(notes))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever the code of others raises
        return _failed(name, error, notes)


def _examined_model(made: Any, name: str) -> ModelReport:
    if not isinstance(made, tuple) or len(made) != 2:
        remedy = "Return two things: the model, and its inputs as a tuple or a dictionary."
        raise Unasked("construction", f"{name} returns {type(made).__name__}", remedy)
    model, inputs = made
    if isinstance(inputs, dict):
        return examine_model(model, **inputs)
    return examine_model(model, *(inputs if isinstance(inputs, tuple) else (inputs,)))


def _reference(options: argparse.Namespace) -> Any:
    """Load, build and adapt the trusted implementation, with those options that it takes."""
    path, _, name = options.reference.rpartition(":")
    target = load(path, name)[0] if path else pydoc.locate(name)
    if target is None:
        raise Unasked("import", f"there is no {name}", "Name a class: `--reference file.py:Class`.")
    known = named_parameters(target)
    init = [pair for pair in options.init if pair[0] in known]
    module = build(target, argparse.Namespace(**{**vars(options), "init": init}), [])
    called = named_parameters(getattr(module, "forward", module))
    call = [pair for pair in options.call if pair[0] in called]
    return answered(module, argparse.Namespace(**{**vars(options), "call": call}), [])[0]


def _failed(name: str, error: BaseException, notes: list[str]) -> Report:
    """Report that something failed before it could be examined."""
    step, text = "call", describe(error)
    remedy = "Give the kind that fits, or write an adapter and call `examine` from Python."
    if isinstance(error, Unasked):
        step, text, remedy = error.step, str(error), error.remedy
    elif isinstance(error, Expired):
        text = f"it did not come to an end in time: {text}"
        remedy = "Give it more time, as in `--timeout 600`, if it needs it."
    finding = Finding(f"{step}-fails", UNASKED, f"{step} fails", text, "", remedy, step)
    left = (f"everything behind its {step}",)
    return Report(name, (finding,), left, {step: UNASKED}, called=tuple(notes))
