"""The checks behind the chapters' exercises: each prints a verdict with its reason.

A check never raises, whatever it is given, and returns None: a cell shows the verdict alone. The
checks of a chapter stand in a module named as the chapter's script. A module needs no entry here:
it is found, and imported when it is used.

Examples:
    >>> from annotated_book import exercises
    >>> exercises.multihead_attention.check_alibi("not a class")
    ✗ AlibiAttention: give the function or class itself; this is an object of type str.
"""

import importlib
import pkgutil
from types import ModuleType

__all__ = [x.name for x in pkgutil.iter_modules(__path__) if not x.name.startswith("_")]


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
