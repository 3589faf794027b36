"""Lines of the code under examination: which they are, and how a report shows them."""

import functools
import linecache
import sys
import sysconfig
import traceback
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import torch

_OURS = str(Path(__file__).parents[1])
_MISTAKES = str(Path(__file__).parents[1] / "mistakes")  # examined like anybody's code
_PYTHONS = sysconfig.get_path("stdlib")
_PYTORCHS = str(Path(torch.__file__).parent)
_PACKAGES = ("site-packages", "dist-packages")
# They only pass calls on: a line of theirs says nothing about the attention.
_PASSING_ON = ("/einops/", "/opt_einsum/", "/jaxtyping/", "/beartype/")
Frame = tuple[str, int, str]  # file, line, and the function's name
_LONGEST = 300  # of the letters of a message


class Where(NamedTuple):
    """One line of the examined code.

    Attributes:
        file: path of the file, or the name that Python gives to code without one.
        line: the line's number, counted from 1.
        text: the line itself, without its indentation; "" where it cannot be read.
        function: name of the function that the line stands in; "" where that is unknown.
        step: what the line does for the attention, such as ``"softmax"`` or ``"mask"``; "" where
            that is unknown.

    Examples:
        >>> from attention_doctor import Where
        >>> where = Where("/home/me/mine.py", 12, "scores = q @ k.mT")
        >>> print(where)
        mine.py, line 12: `scores = q @ k.mT`
        >>> where.shown
        'mine.py'
    """

    file: str
    line: int
    text: str = ""
    function: str = ""
    step: str = ""

    def __str__(self) -> str:
        """Show it with the path below the working directory, or with the file's name alone."""
        place = f"{self.shown}, line {self.line}"
        return f"{place}: `{self.text}`" if self.text else place

    @property
    def shown(self) -> str:
        """The file as a report shows it; a cell of a notebook has none."""
        if "ipykernel_" in self.file or self.file.startswith("<ipython-input"):
            return "in a cell"
        file, here = Path(self.file), Path.cwd()
        return str(file.relative_to(here)) if file.is_relative_to(here) else file.name


def where(frame: Frame) -> Where:
    """Read the line of a frame."""
    file, line, function = frame
    linecache.checkcache(file)
    return Where(file, line, linecache.getline(file, line).strip(), function)


@functools.cache
def theirs(file: str) -> bool:
    """Tell whether a file is the examined code's: not PyTorch's, not Python's, not the doctor's."""
    if file.startswith(_MISTAKES):
        return True
    if file.startswith((_OURS, _PYTORCHS, "<frozen")):
        return False
    if any(name in file for name in _PASSING_ON):
        return False
    return not file.startswith(_PYTHONS) or any(name in file for name in _PACKAGES)


def innermost(until: FrameType) -> Frame | None:
    """Give the innermost call under way in the examined code, up to ``until``."""
    for frame, line in traceback.walk_stack(sys._getframe(1)):
        if frame is until:
            break
        if theirs(frame.f_code.co_filename):
            return frame.f_code.co_filename, line, frame.f_code.co_name
    return None


def describe(error: BaseException) -> str:
    """Give an exception's type, the beginning of its message, and the line that raised it."""
    message = " ".join(str(error).split())
    message = message[:_LONGEST] + " …" * (len(message) > _LONGEST)
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    place = raised_at(error)
    return f"{text} ({place})" if place else text


def raised_at(error: BaseException) -> Where | None:
    """Give the line that raised an exception in the examined code."""
    for x in reversed(traceback.extract_tb(error.__traceback__)):
        if theirs(x.filename):
            return Where(x.filename, x.lineno or 0, x.line or "", x.name)
    return None
