"""The command line: examine a class in any Python file."""

import argparse
import ast
import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from annotated_attention.doctor.arguments import MEANINGS, SHAPES, adapt
from annotated_attention.doctor.construction import build
from annotated_attention.doctor.examination import KINDS, examine
from annotated_attention.doctor.loading import load
from annotated_attention.doctor.names import Unasked
from annotated_attention.doctor.patient import describe
from annotated_attention.doctor.report import UNASKED, Finding, Report


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
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.embed_dim < 1 or options.num_heads < 1 or options.embed_dim % options.num_heads:
        parser.error(f"--num-heads {options.num_heads} must divide --embed-dim {options.embed_dim}")
    if options.max_length < 2:
        parser.error(f"--max-length {options.max_length} must be at least 2")
    path, _, name = options.target.rpartition(":")
    with contextlib.redirect_stdout(sys.stderr):  # what the file itself prints
        report = _examined(path, name, options)
    try:
        print(report, flush=True)
    except BrokenPipeError:  # whoever read it has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 2 if not report.asked else 0 if report.ok else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m annotated_attention.doctor",
        description="Examine an attention, and say what is wrong with it.",
        epilog="The exit code is 0 when nothing is wrong, 1 when something is, and 2 when it could "
        "not be asked: no such file or class, or it cannot be built or called.",
    )
    parser.add_argument("target", type=_target, help="path/to/file.py:Name, a class or a function")
    parser.add_argument("--kind", choices=KINDS, default="cross", help="what it is called with")
    parser.add_argument("--embed-dim", type=int, required=True, metavar="E", help="model width")
    parser.add_argument("--num-heads", type=int, required=True, metavar="H", help="divides E")
    parser.add_argument("--max-length", type=int, default=16, metavar="N", help="longest sequence")
    parser.add_argument("--init", nargs="*", default=[], type=_pair, metavar="NAME=VALUE",
                        help="arguments of the constructor that cannot be guessed")  # fmt: skip
    parser.add_argument("--call", nargs="*", default=[], type=_pair, metavar="NAME=VALUE",
                        help="further arguments of each call")  # fmt: skip
    layout = parser.add_mutually_exclusive_group()
    layout.add_argument("--sequence-first", action="store_true", help="it takes (n, b, e)")
    layout.add_argument("--batch-first", action="store_true",
                        help="it takes (b, n, e), whatever its attribute batch_first says"
                        )  # fmt: skip
    parser.add_argument("--mask", choices=("none", *MEANINGS), default="blocked",
                        help="what True in its mask means, or that it takes none")  # fmt: skip
    parser.add_argument("--mask-name", metavar="NAME", help="the argument that takes the mask")
    parser.add_argument("--mask-shape", choices=("auto", *SHAPES), default="auto",
                        help="its axes, a letter or a 1 for each; bhnm is (b * h, n, m)"
                        )  # fmt: skip
    return parser


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


def _examined(path: str, name: str, options: argparse.Namespace) -> Report:
    """Load, build, adapt and examine; what fails on the way is a finding."""
    try:
        target = load(path, name)
        attend = build(target, options)
        return examine(
            adapt(attend, options),
            embed_dim=options.embed_dim,
            num_heads=options.num_heads,
            kind=options.kind,
            max_length=options.max_length,
        )
    except (Exception, SystemExit) as error:
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
