"""The command line, and what a project says in its place: read, or refused."""

import argparse
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from attention_doctor.call.roles import KINDS
from attention_doctor.settings import CODES, PLACE, find

_OF_TARGETS = ["kind", "embed_dim", "num_heads", "mask", "layout", "init", "call"]
_OF_TARGETS += ["max_length", "window", "reference"]
_ONE = "a target, and not of --model"
_USAGE = """attention-doctor FILE:NAME --embed-dim E --num-heads H [options]
       attention-doctor --model FILE:FACTORY --attention CLASS [options]
       attention-doctor [options], where pyproject.toml names the targets"""
FORMATS = ("text", "json", "github", "sarif")


class Parser(argparse.ArgumentParser):
    """Reads options; what does not fit is refused with the exit code 2."""

    place = ""  # where the options stand, if not on the command line

    def error(self, message: str) -> NoReturn:
        """Refuse what does not fit; in a file, say where it stands, and what does."""
        if self.place:
            names = ", ".join(x.option_strings[0][2:] for x in self._actions if x.option_strings)
            takes = f"; it takes target, {names}" if "unrecognized" in message else ""
            self.exit(2, f"{self.prog}: error: {self.place}: {message}{takes}\n")
        super().error(message)


def read(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line, and refuse what does not fit together; None means its own.

    Returns:
        Its options, and besides them ``jobs``, the options of each target; ``codes``, with the
        place that names them; and ``folder``, that of the project whose targets these are, or None.
    """
    reader = parser()
    options = reader.parse_args(arguments)
    said = {name for name, x in vars(options).items() if x != reader.get_default(name)}
    options.jobs, options.folder = [options], None
    options.codes = [("", [options.explain])] if options.explain else []
    if options.explain or options.list or options.skill:
        return options  # nothing is examined
    try:
        project = find(Path.cwd())
    except ValueError as error:
        reader.exit(2, f"{reader.prog}: error: {error}\n")
    shared = parser(PLACE).parse_args(project.words)
    placed = [("", options)]
    if project.targets and not said - {*CODES, "python", "format"}:
        options.folder = project.folder
        placed = [(place, parser(place).parse_args(words)) for place, words in project.targets]
        options.jobs = [job for _, job in placed]
    for place, job in placed:
        _check(parser(place), job)
    every = [(PLACE, shared), ("", options), *placed]
    options.codes = [(place, getattr(x, name)) for name in CODES for place, x in every]
    for job, name in itertools.product(options.jobs, CODES):
        whose = [shared, options, job][: 2 + (job is not options)]
        setattr(job, name, [x for one in whose for x in getattr(one, name)])
    return options


def _check(reader: Parser, options: argparse.Namespace) -> None:
    """Refuse what does not fit together."""
    if options.model is None:
        needed = {
            "target": options.target,
            "--embed-dim": options.embed_dim,
            "--num-heads": options.num_heads,
        }
        if missing := [name for name, value in needed.items() if value is None]:
            more = "; or name targets in pyproject.toml"
            if options.target:
                more = ". What is examined is built at sizes that you choose, small ones: "
                more += f"{reader.prog} {options.target} --kind {options.kind} "
                more += "--embed-dim 24 --num-heads 4"
            reader.error(f"the following arguments are required: {', '.join(missing)}{more}")
        e, h = options.embed_dim, options.num_heads
        if e < 1 or h < 1 or e % h:
            reader.error(f"--num-heads {h} must divide --embed-dim {e}")
    elif options.target is not None or not options.attention:
        reader.error("--model has its own file, and needs --attention: the class of its attentions")
    unused = {"attention": "--model"} if options.model is None else dict.fromkeys(_OF_TARGETS, _ONE)
    if options.kind != "memory":
        unused.setdefault("context_dim", "--kind memory")
    for name, of in unused.items():
        if getattr(options, name) != reader.get_default(name):
            reader.error(f"--{name.replace('_', '-')} is of {of}")
    if options.max_length < 2:
        reader.error(f"--max-length {options.max_length} must be at least 2")
    options.context_dim = options.context_dim or options.embed_dim


def parser(place: str = "") -> Parser:
    """Give what reads the options, or with a place those of a target in a file.

    Nothing here needs PyTorch, so that ``--help`` comes at once.
    """
    parser = Parser(
        prog="attention-doctor",
        usage=_USAGE,
        description="Examine an attention, and say what is wrong with it. Without a target, "
        "examine those of [tool.attention-doctor] in pyproject.toml.",
        epilog="The exit code is 0 when nothing is wrong, 1 when something is, and 2 when it could "
        "not be asked: no such file or class, or it cannot be built or called. Then an adapter to "
        "complete is printed.",
        add_help=not place,
        allow_abbrev=not place,
    )
    parser.place = place

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
    add("--embed-dim", type=int, metavar="E", help="model width; every target needs it")
    add("--num-heads", type=int, metavar="H", help="divides E; every target needs it")
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
        "nbe, ben, bhnd where heads are split already, be1n, or others",
    )
    add(
        "--init",
        **pairs,
        help="arguments of the constructor; a value is an expression with names "
        "of the file, torch, e, h, d and n, the longest sequence",
    )
    add(
        "--call",
        **pairs,
        help="further arguments of each call, as those of --init; but n is its number of tokens",
    )
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
    if place:
        return parser
    add("--python", default="", metavar="PATH", help="the Python that examines, or .venv by itself")
    add("--format", choices=FORMATS, default="text", help="how reports are printed")
    add("--json", dest="format", action="store_const", const="json", help="--format json")
    add("--explain", default="", metavar="CODE", help="say what a code means, and examine nothing")
    add("--list", action="store_true", help="list all codes")
    add("--skill", action="store_true", help="print the path of SKILL.md, which is for agents")
    return parser


def _target(text: str) -> str:
    if not all(text.rpartition(":")):
        raise argparse.ArgumentTypeError(f"{text} must be path/to/file.py:Name")
    return text


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text} must be NAME=VALUE")
    return name, value
