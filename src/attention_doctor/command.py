"""The command line: examine a class in any Python file, or the attentions of a model."""

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attention_doctor.roles import KINDS, Sizes, Unasked

if TYPE_CHECKING:
    from attention_doctor.report import ModelReport, Report


def main(arguments: Sequence[str] | None = None) -> int:
    """Examine what the command line names, print the report, and return the exit code.

    Args:
        arguments: those of the command line; None means its own.

    Returns:
        0 if nothing is wrong, 1 if something is, 2 if the implementation could not be called.

    Examples:
        >>> from annotated_attention import multihead
        >>> from attention_doctor.command import main
        >>> target = f"{multihead.__file__}:MultiheadAttention"
        >>> main([target, "--embed-dim", "24", "--num-heads", "4"])
        ✓ MultiheadAttention: nothing wrong, 1 by convention, 27 tests, 5 not examined
        ...
        0
    """
    options = read(arguments)
    # PyTorch is imported after the options have been read
    from attention_doctor.codes import chosen
    from attention_doctor.report_json import as_data, exit_code

    with contextlib.redirect_stdout(sys.stderr):  # what the file itself prints
        report = chosen(examined(options), options.select, options.ignore, options.wrong)
    text = json.dumps(as_data(report), ensure_ascii=False, indent=2) if options.json else report
    try:
        print(text, flush=True)
    except BrokenPipeError:  # whoever read it has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return exit_code(report)


def read(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line, and refuse what does not fit together; None means its own."""
    reader = parser()
    options = reader.parse_args(arguments)
    if options.model is None:
        needed = {"target": options.target, "--embed-dim": options.embed_dim,
                  "--num-heads": options.num_heads}  # fmt: skip
        if missing := [name for name, value in needed.items() if value is None]:
            reader.error(f"the following arguments are required: {', '.join(missing)}")
        e, h = options.embed_dim, options.num_heads
        if e < 1 or h < 1 or e % h:
            reader.error(f"--num-heads {h} must divide --embed-dim {e}")
    elif options.target is not None:
        reader.error(f"--model has its own file: leave {options.target} away")
    if options.max_length < 2:
        reader.error(f"--max-length {options.max_length} must be at least 2")
    options.context_dim = options.context_dim or options.embed_dim
    if codes := [*options.select, *options.ignore, *options.wrong]:
        from attention_doctor.codes import check

        try:
            check(codes)
        except ValueError as error:
            reader.error(str(error))
    return options


def parser() -> argparse.ArgumentParser:
    """Give what reads the options; nothing here needs PyTorch, so that ``--help`` comes at once."""
    parser = argparse.ArgumentParser(
        prog="attention-doctor",
        description="Examine an attention, and say what is wrong with it.",
        epilog="The exit code is 0 when nothing is wrong, 1 when something is, and 2 when it could "
        "not be asked: no such file or class, or it cannot be built or called. Then an adapter to "
        "complete is printed.",
    )

    def codes(text: str) -> list[str]:
        return text.split(",")

    several: dict[str, Any] = {"action": "extend", "default": [], "type": codes, "metavar": "CODES"}
    pairs: dict[str, Any] = {"nargs": "*", "action": "extend", "default": [], "type": _pair,
                             "metavar": "NAME=VALUE"}  # fmt: skip
    add = parser.add_argument
    add("target", type=_target, nargs="?", help="path/to/file.py:Name: a class, a function without "
        "arguments that makes an attention or an adapter, or an attention")  # fmt: skip
    add("--kind", choices=KINDS, default="cross", help="what it is called with: cross, the default,"
        " (query, key, value); self (x); causal (x), whose future it hides by itself; memory "
        "(x, context)")  # fmt: skip
    add("--embed-dim", type=int, metavar="E", help="model width")
    add("--num-heads", type=int, metavar="H", help="divides E")
    add("--context-dim", type=int, metavar="C", help="width of the context of kind memory, or E")
    add("--mask", default="", metavar="FORM", help="what its mask is, such as 'b1nm allowed': its "
        "axes (b samples, h heads, n queries, m keys, 1), and blocked or allowed for what True "
        "means, or additive; with always where it must be given, with int or float where it is "
        "numbers; with the name of the argument where it has several; or none")  # fmt: skip
    add("--layout", default="", metavar="AXES", help="the axes of its tokens: bne, the usual one, "
        "nbe, ben, bhnd where heads are split already, or others")  # fmt: skip
    add("--init", **pairs, help="arguments of the constructor; a value is an expression with names "
        "of the file, torch, e, h, d and n, the longest sequence")  # fmt: skip
    add("--call", **pairs, help="further arguments of each call, the same in all of them")
    add("--max-length", type=int, default=16, metavar="N", help="longest sequence")
    add("--model", type=_target, metavar="FILE:FACTORY", help="examine the attentions of a model: "
        "a function that returns the model and its inputs, a tuple or a dictionary")  # fmt: skip
    add("--attention", default="", metavar="CLASS", help="with --model, the attentions' class")
    add("--reference", metavar="FILE:NAME", help="compare with a class that is trusted, on the "
        "same parameters; or torch.nn.MultiheadAttention")  # fmt: skip
    add("--select", **several, help="codes that alone count, separated by commas")
    add("--ignore", **several, help="codes that do not count")
    add("--wrong", **several, help="codes of conventions that are to be wrong")
    add("--json", action="store_true", help="print the report as JSON")
    return parser


def _target(text: str) -> str:
    if not all(text.rpartition(":")):
        raise argparse.ArgumentTypeError("must be path/to/file.py:Name")
    return text


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text} must be NAME=VALUE")
    return name, value


def examined(options: argparse.Namespace) -> "Report | ModelReport":
    """Load, build, call and examine; what fails on the way is a finding."""
    import torch

    from attention_doctor.load import load

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
    from attention_doctor.paste import adapter

    init = {key: _written(key, value, names | _letters(options)) for key, value in options.init}
    text = adapter(target, Path(path), name, options.kind, _sizes(options), init)
    return replace(report, adapter=text)


class Verbatim(str):
    """Code, which is shown as it is."""

    __repr__ = str.__str__


def _written(name: str, text: str, names: dict[str, Any]) -> Any:
    """Give what an argument of `--init` comes to, if it can be written down; else its text."""
    from attention_doctor.build import value_of

    with contextlib.suppress(Unasked):
        value = value_of("--init", name, text, names)
        if value is None or isinstance(value, bool | int | float | str):
            return value
    return Verbatim(text)


def _letters(options: argparse.Namespace) -> dict[str, int]:
    """Give what `--init` and `--call` may name besides what is in the file."""
    e, h = options.embed_dim, options.num_heads
    return {"e": e, "h": h, "d": e // h, "n": options.max_length}


def _sizes(options: argparse.Namespace) -> Sizes:
    return Sizes(options.embed_dim, options.num_heads, options.context_dim, options.max_length)


def _report(target: Any, names: dict[str, Any], options: argparse.Namespace) -> "Report":
    """Build and call what was loaded, and examine it."""
    from attention_doctor.examination import examine

    attend, built = _called(target, names, options)
    reference = None
    if options.reference:
        reference = _called(*_reference(options.reference), options, as_it_takes=True)[0].attend
    report = examine(
        attend.attend,
        embed_dim=options.embed_dim,
        num_heads=options.num_heads,
        kind=options.kind,
        max_length=options.max_length,
        context_dim=options.context_dim,
        reference=reference,
    )
    how = [built, f"called with {attend.how}" if attend.how else ""]
    return replace(report, called=tuple(filter(None, how)), inferred=attend.inferred)


def _called(
    target: Any, names: dict[str, Any], options: argparse.Namespace, as_it_takes: bool = False
) -> tuple[Any, str]:
    """Build something, and match its call; a reference gets those options alone that it takes."""
    from attention_doctor.build import build, value_of
    from attention_doctor.calls import called
    from attention_doctor.roles import named_parameters

    sizes = _sizes(options)
    names = names | _letters(options)

    def values(option: str, pairs: list[tuple[str, str]], taker: Any) -> dict[str, Any]:
        known = named_parameters(taker) if as_it_takes else dict(pairs)
        return {name: value_of(option, name, text, names)
                for name, text in pairs if name in known}  # fmt: skip

    made, built = build(target, values("--init", options.init, target), sizes, options.kind)
    further = values("--call", options.call, getattr(made, "forward", made))
    return called(made, options.kind, sizes, options.layout, options.mask, further), built


def _reference(text: str) -> tuple[Any, dict[str, Any]]:
    import pydoc

    from attention_doctor.load import load

    path, _, name = text.rpartition(":")
    if path:
        return load(path, name)
    if (target := pydoc.locate(name)) is None:
        raise Unasked("import", f"there is no {name}", "Name a class: `--reference file.py:Class`.")
    return target, {}


def _model(made: Any, name: str, attention: str) -> "ModelReport":
    from attention_doctor.models import examine_model

    if not isinstance(made, tuple) or len(made) != 2:
        remedy = "Return two things: the model, and its inputs as a tuple or a dictionary."
        raise Unasked("construction", f"{name} returns {type(made).__name__}", remedy)
    model, inputs = made
    if isinstance(inputs, dict):
        return examine_model(model, attention=attention, **inputs)
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    return examine_model(model, *inputs, attention=attention)


def _failed(name: str, error: BaseException) -> "Report":
    """Report that something failed before it could be examined."""
    from attention_doctor.places import describe
    from attention_doctor.report import UNASKED, Finding, Report

    step, text = "call", describe(error)
    remedy = "Give the kind that fits, or complete the adapter."
    if isinstance(error, Unasked):
        step, text, remedy = error.step, str(error), error.remedy
    finding = Finding(f"{step}-fails", UNASKED, f"{step} fails", text, "", remedy, step)
    return Report(name, (finding,), (f"everything behind its {step}",), {step: UNASKED})
