"""The command line: examine a class in any Python file."""

import argparse
import ast
import contextlib
import json
import os
import pydoc
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from annotated_attention.doctor.names import KINDS, MEANINGS, SHAPES, Unasked

if TYPE_CHECKING:  # PyTorch is imported after the options have been read: `--help` needs none
    from annotated_attention.doctor.model import ModelReport
    from annotated_attention.doctor.report import Report


def main(arguments: Sequence[str] | None = None) -> int:
    """Examine what the command line names, print the report, and return the exit code.

    Args:
        arguments: those of the command line; None means its own.

    Returns:
        0 if nothing is wrong, 1 if something is, 2 if the implementation could not be called.

    Examples:
        >>> from annotated_attention import multihead
        >>> from annotated_attention.doctor.command import main
        >>> target = f"{multihead.__file__}:MultiheadAttention"
        >>> main([target, "--embed-dim", "24", "--num-heads", "4", "--batch-first"])
        ✓ MultiheadAttention: nothing wrong, 1 by convention, 22 tests, 1 not examined
        ...
        0
    """
    options = _options(arguments)
    with contextlib.redirect_stdout(sys.stderr):  # what the file itself prints
        report = _examined(options) if options.model is None else _model(options)
    return _say(report, options)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line, and refuse what does not fit together."""
    reader = parser()
    options = reader.parse_args(arguments)
    if options.model is None:
        needed = {"target": options.target, "--embed-dim": options.embed_dim,
                  "--num-heads": options.num_heads}  # fmt: skip
        if missing := [name for name, value in needed.items() if value is None]:
            reader.error(f"the following arguments are required: {', '.join(missing)}")
        h, e = options.num_heads, options.embed_dim
        if e < 1 or h < 1 or e % h:
            reader.error(f"--num-heads {h} must divide --embed-dim {e}")
    elif options.target is not None:
        reader.error(f"--model has its own file: leave {options.target} away")
    if options.max_length < 2:
        reader.error(f"--max-length {options.max_length} must be at least 2")
    if options.select or options.ignore:
        from annotated_attention.doctor.codes import check

        try:
            check([*options.select, *options.ignore])
        except ValueError as error:
            reader.error(str(error))
    return options


def _say(report: "Report | ModelReport", options: argparse.Namespace) -> int:
    """Print a report as it is asked for, and give the exit code."""
    from annotated_attention.doctor.codes import chosen
    from annotated_attention.doctor.machine import as_data, exit_code

    report = chosen(report, options.select, options.ignore)
    text = json.dumps(as_data(report), ensure_ascii=False, indent=2) if options.json else report
    try:
        print(text, flush=True)
    except BrokenPipeError:  # whoever read it has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return exit_code(report)


def parser() -> argparse.ArgumentParser:
    """Give what reads the options."""
    reader = argparse.ArgumentParser(
        prog="attention-doctor",
        description="Examine an attention, and say what is wrong with it.",
        epilog="The exit code is 0 when nothing is wrong, 1 when something is, and 2 when it could "
        "not be asked: no such file or class, or it cannot be built or called.",
    )
    reader.add_argument("target", type=_target, nargs="?",
                        help="path/to/file.py:Name, a class or a function")  # fmt: skip
    reader.add_argument("--model", type=_target, metavar="FILE:FACTORY",
                        help="examine every attention in a model: a function that returns the "
                        "model and its inputs, a tuple or a dictionary")  # fmt: skip
    reader.add_argument("--kind", choices=KINDS, default="cross", help="what it is called with")
    reader.add_argument("--embed-dim", type=int, metavar="E", help="model width")
    reader.add_argument("--num-heads", type=int, metavar="H", help="divides E")
    reader.add_argument("--max-length", type=int, default=16, metavar="N", help="longest sequence")
    reader.add_argument("--init", nargs="*", default=[], type=_pair, metavar="NAME=VALUE",
                        help="arguments of the constructor that cannot be guessed")  # fmt: skip
    reader.add_argument("--call", nargs="*", default=[], type=_pair, metavar="NAME=VALUE",
                        help="further arguments of each call")  # fmt: skip
    layout = reader.add_mutually_exclusive_group()
    layout.add_argument("--sequence-first", action="store_true", help="it takes (n, b, e)")
    layout.add_argument("--batch-first", action="store_true",
                        help="it takes (b, n, e), whatever its attribute batch_first says"
                        )  # fmt: skip
    reader.add_argument("--mask", choices=("none", *MEANINGS), default="blocked",
                        help="what True in its mask means, or that it takes none")  # fmt: skip
    reader.add_argument("--mask-name", metavar="NAME", help="the argument that takes the mask")
    reader.add_argument("--mask-shape", choices=("auto", *SHAPES), default="auto",
                        help="its axes, a letter or a 1 for each; bhnm is (b * h, n, m)"
                        )  # fmt: skip
    reader.add_argument("--reference", metavar="FILE:NAME",
                        help="compare with a class that is trusted, on the same parameters; or "
                        "torch.nn.MultiheadAttention")  # fmt: skip
    for name, what in (("select", "only these"), ("ignore", "all but these")):
        reader.add_argument(f"--{name}", type=lambda text: text.split(","), action="extend",
                            default=[], metavar="CODES",
                            help=f"let {what} codes count, separated by commas")  # fmt: skip
    reader.add_argument("--json", action="store_true", help="print the report as JSON")
    return reader


def _target(text: str) -> str:
    if not all(text.rpartition(":")):
        raise argparse.ArgumentTypeError("must be path/to/file.py:Name")
    return text


def _pair(text: str) -> tuple[str, Any]:
    """Read name=value, the value as Python where it is."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text} must be NAME=VALUE")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def _examined(options: argparse.Namespace) -> "Report":
    """Load, build, adapt and examine; what fails on the way is a finding."""
    from annotated_attention.doctor.arguments import adapt
    from annotated_attention.doctor.construction import build
    from annotated_attention.doctor.examination import examine
    from annotated_attention.doctor.loading import load

    path, _, name = options.target.rpartition(":")
    try:
        attend = adapt(build(load(path, name), options), options)
        reference = _reference(options) if options.reference else None
        return examine(
            attend,
            embed_dim=options.embed_dim,
            num_heads=options.num_heads,
            kind=options.kind,
            max_length=options.max_length,
            reference=reference,
        )
    except (Exception, SystemExit) as error:
        return _failed(name, error)


def _reference(options: argparse.Namespace) -> Any:
    """Load, build and adapt the trusted implementation, with those options that it takes."""
    from annotated_attention.doctor.arguments import adapt
    from annotated_attention.doctor.construction import build
    from annotated_attention.doctor.loading import load
    from annotated_attention.doctor.names import named_parameters

    path, _, name = options.reference.rpartition(":")
    target = load(path, name) if path else pydoc.locate(name)
    if target is None:
        raise Unasked("import", f"there is no {name}", "Name a class: `--reference file.py:Class`.")
    known = named_parameters(target)
    init = [pair for pair in options.init if pair[0] in known]
    module = build(target, argparse.Namespace(**{**vars(options), "init": init}))
    called = named_parameters(getattr(module, "forward", module))
    call = [pair for pair in options.call if pair[0] in called]
    return adapt(module, argparse.Namespace(**{**vars(options), "call": call}))


def _model(options: argparse.Namespace) -> "Report | ModelReport":
    """Have a model and its inputs made, and examine every attention in it."""
    from annotated_attention.doctor.loading import load
    from annotated_attention.doctor.model import examine_model

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
        return _failed(name, error)


def _failed(name: str, error: BaseException) -> "Report":
    """Report that something failed before it could be examined."""
    from annotated_attention.doctor.patient import describe
    from annotated_attention.doctor.report import UNASKED, Finding, Report

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
    return Report(name, (finding,), left, {reason.step: UNASKED})
