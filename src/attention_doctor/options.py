"""The options of the command line; nothing here needs PyTorch, so that ``--help`` comes at once."""

import argparse
import ast
from collections.abc import Mapping, Sequence
from typing import Any

from attention_doctor.names import KINDS, MEANINGS, SHAPES


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
    """Give what reads the options."""
    parser = argparse.ArgumentParser(
        prog="attention-doctor",
        description="Examine an attention, and say what is wrong with it.",
        epilog="The exit code is 0 when nothing is wrong, 1 when something is, and 2 when it could "
        "not be asked: no such file or class, or it cannot be built or called.",
    )
    parser.add_argument("target", type=_target, nargs="?",
                        help="path/to/file.py:Name, a class or a function")  # fmt: skip
    parser.add_argument("--model", type=_target, metavar="FILE:FACTORY",
                        help="examine every attention in a model: a function that returns the "
                        "model and its inputs, a tuple or a dictionary")  # fmt: skip
    parser.add_argument("--kind", choices=KINDS, default="cross",
                        help="what it is called with: cross, the default, (query, key, value); "
                        "self (x); causal (x), whose future it hides by itself; memory (x, context)"
                        )  # fmt: skip
    parser.add_argument("--embed-dim", type=int, metavar="E", help="model width")
    parser.add_argument("--num-heads", type=int, metavar="H", help="divides E")
    parser.add_argument("--context-dim", type=int, metavar="C",
                        help="width of the context, with kind memory; E where it is not given"
                        )  # fmt: skip
    parser.add_argument("--max-length", type=int, default=16, metavar="N", help="longest sequence")
    parser.add_argument("--timeout", type=float, default=120.0, metavar="S",
                        help="seconds after which it is given up; 0 for never")  # fmt: skip
    parser.add_argument("--init", nargs="*", action="extend", default=[], type=_pair,
                        metavar="NAME=VALUE",
                        help="arguments of the constructor that cannot be guessed; a value is any "
                        "expression with names of the file, torch, e, h, d, and n, the longest "
                        "sequence")  # fmt: skip
    parser.add_argument("--call", nargs="*", action="extend", default=[], type=_pair,
                        metavar="NAME=VALUE",
                        help="further arguments of each call; an expression, such as "
                        "torch.zeros(b, n, e), is computed for the sizes of each: b, n, m, e, h, d"
                        )  # fmt: skip
    layout = parser.add_mutually_exclusive_group()
    layout.add_argument("--sequence-first", action="store_true", help="it takes (n, b, e)")
    layout.add_argument("--batch-first", action="store_true",
                        help="it takes (b, n, e), whatever its attribute batch_first says"
                        )  # fmt: skip
    layout.add_argument(
        "--channel-first", action="store_true", help="it takes (b, e, n), or images"
    )
    parser.add_argument("--mask", choices=("auto", "none", *MEANINGS), default="auto",
                        help="what True in its mask means, or that it takes none")  # fmt: skip
    parser.add_argument("--mask-name", metavar="NAME", help="the argument that takes the mask")
    parser.add_argument("--mask-shape", choices=("auto", *SHAPES), default="auto",
                        help="its axes, a letter or a 1 for each; bhnm is (b, h, n, m) or "
                        "(b * h, n, m)")  # fmt: skip
    _add_verdict(parser)
    return parser


def _add_verdict(parser: argparse.ArgumentParser) -> None:
    """Add what it is compared with, which findings count, and how they are printed."""
    parser.add_argument("--reference", metavar="FILE:NAME",
                        help="compare with a class that is trusted, on the same parameters; or "
                        "torch.nn.MultiheadAttention")  # fmt: skip
    for name, which in {
        "select": "that alone count",
        "ignore": "that do not count",
        "wrong": "of conventions that are to be wrong",
    }.items():
        parser.add_argument(f"--{name}", type=lambda text: text.split(","), action="extend",
                            default=[], metavar="CODES",
                            help=f"codes {which}, separated by commas")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def _target(text: str) -> str:
    if not all(text.rpartition(":")):
        raise argparse.ArgumentTypeError("must be path/to/file.py:Name")
    return text


class Expression(str):
    """A value that is no literal: an expression, or a string without quotes.

    Attributes:
        names: what the examined file defines, once it has been read.
    """

    names: Mapping[str, Any] = {}
    __repr__ = str.__str__


def _pair(text: str) -> tuple[str, Any]:
    """Read name=value, the value as Python where it is a literal."""
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text} must be NAME=VALUE")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, Expression(value)
