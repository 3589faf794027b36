"""From the name of a class in a file to something that ``examine`` can call."""

import argparse
import inspect
from typing import Any

from annotated_attention.doctor.arguments import answered
from annotated_attention.doctor.construction import build, is_factory, unguessed
from annotated_attention.doctor.matching import unmatched
from annotated_attention.doctor.names import Unasked


def prepare(target: Any, options: argparse.Namespace, notes: list[str]) -> Any:
    """Build and adapt what a file defines.

    Heads share keys and values in groups of two, where there is a setting for it; if such a module
    does not answer, in groups of one.

    Args:
        target: a class, a function or a module.
        options: the command line's.
        notes: gets a sentence on each thing that was guessed.

    Raises:
        Unasked: it cannot be built or called.
    """
    h = options.num_heads
    options.groups, options.rotated = h, 0  # until it is built, and says so
    _ask_for_what_is_missing(target, options)
    kept: tuple[Any, list[str]] | None = None
    for groups in (h // 2, h) if h > 2 and h % 2 == 0 else (h,):
        options.groups = groups
        said: list[str] = []
        try:
            attend = build(target, options, said)
            built = list(said)
            adapted, answers = answered(attend, options, said)
        except Unasked:
            if groups == h and kept is None:
                raise
            continue
        if kept is None or answers:
            kept = adapted, said
        if answers or not any("group" in x or "kv" in x or "key_value" in x for x in built):
            break
    assert kept is not None
    notes += kept[1]
    return kept[0]


def _ask_for_what_is_missing(target: Any, options: argparse.Namespace) -> None:
    """Name every argument that cannot be guessed, of the constructor and of the call, at once.

    Raises:
        Unasked: there are some.
    """
    call = target
    if inspect.isclass(target):
        call = getattr(target, "forward", vars(target).get("__call__"))
    of_init = unguessed(target, options)
    of_call = [] if call is None or is_factory(target) else unmatched(call, options)
    asked = {"constructor": of_init, "call": of_call}
    text = [f"the {what}'s {', '.join(names)}" for what, names in asked.items() if names]
    if not text:
        return
    line = f"python -m annotated_attention.doctor {options.target} --kind {options.kind}"
    line += f" --embed-dim {options.embed_dim} --num-heads {options.num_heads}"
    for option, names in (("init", of_init), ("call", of_call)):
        given = [f"{x}={value!r}" for x, value in getattr(options, option)]
        line += f" --{option} {' '.join([*given, *(f'{x}=…' for x in names)])}" if names else ""
    step = "construction" if of_init else "call"
    remedy = f"Give what cannot be guessed: `{line}`."
    raise Unasked(step, f"{' and '.join(text)} cannot be guessed", remedy)
