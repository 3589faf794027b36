#!/usr/bin/env python3
"""The doctor in a Python where it is not installed: `python path/to/elsewhere.py ...`.

It looks for the project's own, and puts these two packages on its path, without what is installed
beside them. Python 3.6 reads this file, so that one which is too old says so.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import warnings
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, Sequence  # noqa: UP035

PYTHON, TORCH = (3, 11, 2), (2, 6)  # the bounds of the package
NOBODY = -1
UNFIT = 3  # to examine
_OURS = ("annotated_attention", "attention_doctor")
_FILE = Path(__file__).resolve()
_CHOSEN = "--by-this-python"  # the first argument of one that was chosen


class _Source:
    """Finds the packages of the doctor, and leaves all others to those behind it."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        """Find one of ours in this checkout."""
        return PathFinder.find_spec(name, [str(_FILE.parents[1])]) if name in _OURS else None


if __name__ in ("__main__", "__mp_main__"):  # each of several targets has a process of its own
    sys.path = [x for x in sys.path if Path(x).resolve() != _FILE.parent]
    sys.meta_path.insert(0, _Source)


def rerun(named: str, arguments: Sequence[str]) -> int:
    """Let the Python that is named, or else the project's own, do it, and give its exit code.

    It is ``NOBODY`` where this one is to do it: no other is named or found, or that one cannot.
    """
    python = _in(named) if named else _own()
    if not python:
        return refuse(f"--python {named}: there is no such Python") if named else NOBODY
    try:
        code = subprocess.run([python, str(_FILE), _CHOSEN, *arguments]).returncode
    except OSError as error:
        return refuse(f"{python} cannot be run: {error}")
    if code == UNFIT and not named:
        refuse(f"so {sys.executable} does it")
        return NOBODY
    if code < 0:
        refuse(f"{python} was ended by signal {-code}")
    return code if code in (0, 1, 2) else 2


def _in(place: str) -> str:
    """Find a Python by its path or name, or by the folder of its environment; "" for none."""
    inside = (os.path.join("bin", "python"), os.path.join("Scripts", "python.exe"))
    paths = [place, *(os.path.join(place, x) for x in inside)]
    return next(filter(None, map(shutil.which, paths)), "")


def _own() -> str:
    """Find the environment `.venv` here or in a folder above; "" where this one is of it."""
    folders = [folder / ".venv" for folder in (Path.cwd(), *Path.cwd().parents)]
    found = next(filter(_in, map(str, folders)), "")
    return _in(found) if found and Path(found).resolve() != Path(sys.prefix).resolve() else ""


def lacking() -> str:
    """Say which PyTorch this Python lacks; "" where it can examine."""
    quiet()
    try:
        import torch
    except Exception as error:  # or what it needs itself
        return f"cannot import PyTorch ({error}); {_needs('PyTorch', TORCH)}"
    if tuple(map(int, re.findall(r"\d+", torch.__version__)[:2])) < TORCH:
        return f"has PyTorch {torch.__version__}; {_needs('PyTorch', TORCH)}"
    return ""


def quiet() -> None:
    """Leave out that PyTorch finds no NumPy, which is not needed."""
    warnings.filterwarnings("ignore", "Failed to initialize NumPy")


def _needs(name: str, bound: Sequence[int]) -> str:
    return f"the doctor needs {name} {'.'.join(map(str, bound))} or later"


def refuse(text: str, code: int = 2) -> int:
    """Say why there is no report, and give the exit code."""
    print("attention-doctor:", text, file=sys.stderr, flush=True)
    return code


def _main() -> int:
    chosen = sys.argv[1:2] == [_CHOSEN]
    arguments = sys.argv[1 + chosen :]
    if not chosen:
        reader = argparse.ArgumentParser(add_help=False)
        reader.add_argument("--python", default="")
        code = rerun(reader.parse_known_args(arguments)[0].python, arguments)
        if code != NOBODY:
            return code
    code = _examine(arguments)
    return code if chosen else min(code, 2)


def _examine(arguments: Sequence[str]) -> int:
    if sys.version_info[:3] < PYTHON:
        version = ".".join(map(str, sys.version_info[:3]))
        text = f"{sys.executable} is Python {version}; {_needs('Python', PYTHON)}"
        return refuse(text, UNFIT)
    from attention_doctor.command import main

    return main(arguments, elsewhere=True)


if __name__ == "__main__":
    sys.exit(_main())
