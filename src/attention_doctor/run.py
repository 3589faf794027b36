"""Do what the command line asks for: load, build, call, examine; what fails is a finding."""

import argparse
import contextlib
import pydoc
import sys
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from attention_doctor.call.build import build, is_factory, values, without_heads
from attention_doctor.call.load import load
from attention_doctor.call.paste import adapter
from attention_doctor.call.places import describe
from attention_doctor.call.roles import Sizes, Unasked, taken
from attention_doctor.elsewhere import quiet
from attention_doctor.examination import examine_called
from attention_doctor.models import examine_model
from attention_doctor.report import ModelReport, Report, refused


def examined(options: argparse.Namespace) -> Report | ModelReport:
    """Examine what the options of the command line name."""
    path, _, name = (options.model or options.target).rpartition(":")
    target: Any = None
    init: dict[str, Any] = {}
    try:
        # Weights are the same each time, and so is the verdict.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            target, names = load(path, name)
            if options.model:
                return _model(target(), name, options.attention)
            init = values("--init", options.init, names, _sizes(options))
            report = _report(target, names, init, options)
    except (Exception, SystemExit) as error:  # whatever the code of others raises
        report = _failed(name, error)
    if options.model or target is None or report.asked or is_factory(target):
        return report
    finding = report.findings[0]
    raised = finding.code in ("fails", "wrong-result") or finding.test == "construction"
    failed = finding.evidence if raised else ""
    how = (options.kind, _sizes(options), dict(options.init), init, failed)
    return replace(report, adapter=adapter(target, Path(path), name, *how))


def alone(options: argparse.Namespace) -> Report | ModelReport:
    """Examine in a process of its own: no target meets what another imported, or ends with it."""
    name = (options.model or options.target).rpartition(":")[2]
    with ProcessPoolExecutor(1, get_context("spawn"), quiet) as pool:
        try:
            return pool.submit(_quiet, options).result()
        except BrokenProcessPool:
            remedy = "Examine it by itself, and look at what is printed last."
            return _failed(name, Unasked("call", "it ends the whole Python process", remedy))


def _quiet(options: argparse.Namespace) -> Report | ModelReport:
    with contextlib.redirect_stdout(sys.stderr):
        return examined(options)


def _sizes(options: argparse.Namespace) -> Sizes:
    return Sizes(options.embed_dim, options.num_heads, options.context_dim, options.max_length)


def _report(
    target: Any, names: dict[str, Any], init: dict[str, Any], options: argparse.Namespace
) -> Report:
    """Build what was loaded, and examine it."""
    sizes = _sizes(options)
    made, built = build(target, init, sizes, options.kind)
    trusted = None
    if options.reference:
        path, _, name = options.reference.rpartition(":")
        trusted = load(path, name)[0] if path else pydoc.locate(name)
        if trusted is None:
            remedy = "Name a class: `--reference file.py:Class`."
            raise Unasked("import", f"there is no {name}", remedy)
        trusted = build(trusted, taken(trusted, init), sizes, options.kind)[0]
    call = values("--call", options.call, names, sizes)
    how = (sizes, options.kind, options.layout, options.mask, call, options.window, trusted)
    report = examine_called(made, *how)
    unused = without_heads(target, init, sizes, options.kind)
    inferred = ". ".join(filter(None, [unused, report.inferred]))
    return replace(report, called=(*filter(None, [built]), *report.called), inferred=inferred)


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
    texts = (f"{step} fails", text, "", remedy, step)
    return refused(name, f"{step}-fails", texts, f"everything behind its {step}")
