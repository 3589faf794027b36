"""The command line: examine a class in any Python file, or the attentions of a model."""

import argparse
import contextlib
import io
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from attention_doctor.call.roles import KINDS


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
        ✓ MultiheadAttention: nothing wrong, 1 by convention, 19 tests, 4 not examined
        ...
        0
    """
    options = read(arguments)
    # PyTorch is imported after the options have been read
    from attention_doctor.codes import chosen, explain

    if options.explain:
        _print(explain(options.explain))
        return 0
    from attention_doctor.report import as_data, exit_code
    from attention_doctor.run import examined

    with contextlib.redirect_stdout(sys.stderr):  # what the file itself prints
        report = chosen(examined(options), options.select, options.ignore, options.wrong)
    _print(json.dumps(as_data(report), indent=2) if options.json else str(report))
    return exit_code(report)


def _print(text: str) -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # not every terminal can write a ✓
    try:
        print(text, flush=True)
    except BrokenPipeError:  # whoever read it has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def read(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line, and refuse what does not fit together; None means its own."""
    reader = parser()
    options = reader.parse_args(arguments)
    if options.explain:
        pass  # nothing is examined
    elif options.model is None:
        needed = {
            "target": options.target,
            "--embed-dim": options.embed_dim,
            "--num-heads": options.num_heads,
        }
        if missing := [name for name, value in needed.items() if value is None]:
            reader.error(f"the following arguments are required: {', '.join(missing)}")
        e, h = options.embed_dim, options.num_heads
        if e < 1 or h < 1 or e % h:
            reader.error(f"--num-heads {h} must divide --embed-dim {e}")
    elif options.target is not None or not options.attention:
        reader.error("--model has its own file, and needs --attention: the class of its attentions")
    if options.max_length < 2:
        reader.error(f"--max-length {options.max_length} must be at least 2")
    options.context_dim = options.context_dim or options.embed_dim
    asked = [options.explain] if options.explain else []
    if codes := [*options.select, *options.ignore, *options.wrong, *asked]:
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
    pairs: dict[str, Any] = {
        "nargs": "*",
        "action": "extend",
        "default": [],
        "type": _pair,
        "metavar": "NAME=VALUE",
    }
    add = parser.add_argument
    add(
        "target",
        type=_target,
        nargs="?",
        help="path/to/file.py:Name: a class, a function without "
        "arguments that makes an attention or an adapter, or an attention",
    )
    add(
        "--kind",
        choices=KINDS,
        default="cross",
        help="what it is called with: cross, the default,"
        " (query, key, value); self (x); causal (x), whose future it hides by itself; memory "
        "(x, context)",
    )
    add("--embed-dim", type=int, metavar="E", help="model width")
    add("--num-heads", type=int, metavar="H", help="divides E")
    add("--context-dim", type=int, metavar="C", help="width of the context of kind memory, or E")
    add(
        "--mask",
        default="",
        metavar="FORM",
        help="what its mask is, such as 'b1nm allowed': its "
        "axes (b samples, h heads, n queries, m keys, 1), and blocked or allowed for what True "
        "means, or additive; with always where it must be given, with int or float where it is "
        "numbers; with the name of the argument where it has several; or none",
    )
    add(
        "--layout",
        default="",
        metavar="AXES",
        help="the axes of its tokens: bne, the usual one, "
        "nbe, ben, bhnd where heads are split already, or others",
    )
    add(
        "--init",
        **pairs,
        help="arguments of the constructor; a value is an expression with names "
        "of the file, torch, e, h, d and n, the longest sequence",
    )
    add("--call", **pairs, help="further arguments of each call, the same in all of them")
    add("--max-length", type=int, default=16, metavar="N", help="longest sequence")
    add(
        "--window",
        type=int,
        default=0,
        metavar="W",
        help="how many tokens each sees under a causal mask, itself among them",
    )
    add(
        "--model",
        type=_target,
        metavar="FILE:FACTORY",
        help="examine the attentions of a model: "
        "a function that returns the model and its inputs, a tuple or a dictionary",
    )
    add("--attention", default="", metavar="CLASS", help="of --model, the attentions' class")
    add(
        "--reference",
        metavar="FILE:NAME",
        help="compare with a class that is trusted, on the "
        "same parameters; or torch.nn.MultiheadAttention",
    )
    add("--select", **several, help="codes that alone count, separated by commas")
    add("--ignore", **several, help="codes that do not count")
    add("--wrong", **several, help="codes of conventions that are to be wrong")
    add("--explain", default="", metavar="CODE", help="say what a code means, and examine nothing")
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
