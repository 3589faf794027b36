"""Examine any implementation of attention, and report what is wrong with it.

It tests what every correct attention must do, whatever its parameters are, and watches which
operations are computed. Where it finds the parameters, it also copies them into a correct attention
and into each of the wrong ones in ``attention_doctor.mistakes``: the one that gives the same
outputs names the mistake.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attention_doctor._public import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """Import what is offered when it is first asked for: ``--help`` does not wait for torch."""
    public = {} if name[0] == "_" else vars(import_module("attention_doctor._public"))
    if name not in public:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return public[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *vars(import_module("attention_doctor._public"))})
