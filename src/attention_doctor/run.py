"""Do what the command line asks for: load, build, call, examine; what fails is a finding."""

import argparse
import pydoc
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from attention_doctor.call.build import build, value_of
from attention_doctor.call.calls import called
from attention_doctor.call.load import load
from attention_doctor.call.paste import adapter
from attention_doctor.call.patient import Patient
from attention_doctor.call.places import describe
from attention_doctor.call.roles import Sizes, Unasked, named_parameters
from attention_doctor.examination import examine_patient
from attention_doctor.models import examine_model
from attention_doctor.report import Finding, ModelReport, Report
from attention_doctor.rules.questions import UNASKED


def examined(options: argparse.Namespace) -> Report | ModelReport:
    """Examine what the options of the command line name."""
    path, _, name = (options.model or options.target).rpartition(":")
    target: Any = None
    try:
        # Weights are the same each time, and so is the verdict.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            target, names = load(path, name)
            if options.model:
                return _model(target(), name, options.attention)
            report = _report(target, names, options)
    except (Exception, SystemExit) as error:  # whatever the code of others raises
        report = _failed(name, error)
    if options.model or target is None or report.asked:
        return report
    text = adapter(target, Path(path), name, options.kind, _sizes(options), dict(options.init))
    return replace(report, adapter=text)


def _sizes(options: argparse.Namespace) -> Sizes:
    return Sizes(options.embed_dim, options.num_heads, options.context_dim, options.max_length)


def _report(target: Any, names: dict[str, Any], options: argparse.Namespace) -> Report:
    """Build and call what was loaded, and examine it."""
    asked, built = _called(target, names, options)
    patient = Patient(asked.attend, _sizes(options), options.kind)
    if options.reference:
        path, _, name = options.reference.rpartition(":")
        trusted, known = load(path, name) if path else (pydoc.locate(name), {})
        if trusted is None:
            remedy = "Name a class: `--reference file.py:Class`."
            raise Unasked("import", f"there is no {name}", remedy)
        adapted = _called(trusted, known, options, as_it_takes=True)[0].attend
        patient.reference = Patient(adapted, _sizes(options), options.kind)
    report = examine_patient(patient)
    how = [built, f"called with {asked.how}" if asked.how else ""]
    return replace(report, called=tuple(filter(None, how)), inferred=asked.inferred)


def _called(
    target: Any, names: dict[str, Any], options: argparse.Namespace, as_it_takes: bool = False
) -> tuple[Any, str]:
    """Build something, and match its call; a reference gets those options alone that it takes."""
    sizes = _sizes(options)
    e, h, _, n = sizes
    names = names | {"e": e, "h": h, "d": e // h, "n": n}

    def values(option: str, pairs: list[tuple[str, str]], taker: Any) -> dict[str, Any]:
        known = named_parameters(taker) if as_it_takes else dict(pairs)
        return {name: value_of(option, name, text, names) for name, text in pairs if name in known}

    made, built = build(target, values("--init", options.init, target), sizes, options.kind)
    further = values("--call", options.call, getattr(made, "forward", made))
    asked = called(made, options.kind, sizes, options.layout, options.mask, further)
    asked.attend.window = options.window or asked.attend.window
    return asked, built


def _model(made: Any, name: str, attention: str) -> ModelReport:
    if not isinstance(made, tuple) or len(made) != 2:
        remedy = "Return two things: the model, and its inputs as a tuple or a dictionary."
        raise Unasked("construction", f"{name} returns {type(made).__name__}", remedy)
    model, inputs = made
    if isinstance(inputs, dict):
        return examine_model(model, attention=attention, **inputs)
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    return examine_model(model, *inputs, attention=attention)


def _failed(name: str, error: BaseException) -> Report:
    """Report that something failed before it could be examined."""
    step, text = "call", describe(error)
    remedy = "Give the kind that fits, or complete the adapter."
    if isinstance(error, Unasked):
        step, text, remedy = error.step, str(error), error.remedy
    finding = Finding(f"{step}-fails", UNASKED, f"{step} fails", text, "", remedy, step)
    return Report(name, (finding,), (f"everything behind its {step}",), {step: UNASKED})
