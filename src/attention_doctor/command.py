"""The command line: examine a class in any Python file, or every attention in a model."""

import contextlib
import json
import os
import sys
from collections.abc import Sequence

from attention_doctor import options


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
        >>> main([target, "--embed-dim", "24", "--num-heads", "4", "--batch-first"])
        ✓ MultiheadAttention: nothing wrong, 1 by convention, 27 tests, 5 not examined
        ...
        0
    """
    given = options.read(arguments)
    # PyTorch is imported after the options have been read
    from attention_doctor import asking
    from attention_doctor.codes import chosen
    from attention_doctor.machine import as_data, exit_code

    with contextlib.redirect_stdout(sys.stderr):  # what the file itself prints
        report = chosen(asking.examined(given), given.select, given.ignore, given.wrong)
    text = json.dumps(as_data(report), ensure_ascii=False, indent=2) if given.json else report
    try:
        print(text, flush=True)
    except BrokenPipeError:  # whoever read it has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return exit_code(report)
