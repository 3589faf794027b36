"""The command line: examine a class in any Python file, or the attentions of a model."""

import argparse
import contextlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from attention_doctor.elsewhere import NOBODY, UNFIT, lacking, refuse, rerun
from attention_doctor.options import parser, read


def main(arguments: Sequence[str] | None = None, elsewhere: bool = False) -> int:
    """Examine what the command line names, print the report, and return the exit code.

    Args:
        arguments: those of the command line; None means its own, and then the project's own Python
            examines, if it is another one.
        elsewhere: whether this Python was chosen, which the report then says.

    Returns:
        0 if nothing is wrong, 1 if something is, 2 if the implementation could not be called.

    Examples:
        >>> from annotated_attention import multihead
        >>> from attention_doctor.command import main
        >>> target = f"{multihead.__file__}:MultiheadAttention"
        >>> main([target, "--embed-dim", "24", "--num-heads", "4"])
        ✓ MultiheadAttention: nothing wrong, 18 tests, 3 not examined
        ...
        0
    """
    try:
        return _answer(arguments, elsewhere)
    except Exception:  # or Python would end with 1, as if something were wrong with the attention
        traceback.print_exc()
        return refuse("the doctor itself failed, as it says above: nothing can be concluded")


def _answer(arguments: Sequence[str] | None, elsewhere: bool) -> int:
    options = read(arguments)
    told = options.explain or options.list
    if options.skill:
        _print(str(Path(__file__).with_name("SKILL.md")))
        return 0
    if not told and not elsewhere and (options.python or arguments is None):
        code = rerun(options.python, sys.argv[1:] if arguments is None else arguments)
        if code != NOBODY:
            return code
    if reason := lacking():
        return refuse(f"{sys.executable} {reason}", UNFIT if elsewhere else 2)
    # PyTorch is imported after the options have been read
    from attention_doctor.codes import check, explain, listed

    for place, codes in options.codes:
        try:
            check(codes)
        except ValueError as error:
            parser(place).error(str(error))
    if told:
        _print(explain(options.explain) if options.explain else listed())
        return 0
    return _examine(options, elsewhere)


def _examine(options: argparse.Namespace, elsewhere: bool) -> int:
    """Examine all targets, and print each report as soon as it is there."""
    import torch

    from attention_doctor.formats import WRITE, Run
    from attention_doctor.run import alone, examined

    text = options.format == "text"
    run = Run(options.folder.name if options.folder else "")
    with contextlib.chdir(options.folder or Path.cwd()):
        for job in options.jobs:
            with contextlib.redirect_stdout(sys.stderr):  # what the file itself prints
                target, report = run.add(job, (alone if len(options.jobs) > 1 else examined)(job))
            if text:
                _print(f"{target}\n{report}\n" if run.project else str(report))
        if not text:
            _print(WRITE[options.format](run))
        below = run.below()
    if elsewhere:
        below.append(f"examined by {sys.executable}, with PyTorch {torch.__version__}")
    for line in below:
        _print(line) if text else print(line, file=sys.stderr)
    return run.exit_code


def _print(text: str) -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # not every terminal can write a ✓
    try:
        print(text, flush=True)
    except BrokenPipeError:  # whoever read it has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
