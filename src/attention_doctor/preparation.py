"""From the name of a class in a file to something that ``examine`` can call."""

import argparse
import inspect
import math
import re
import shlex
from typing import Any

from attention_doctor.arguments import answered
from attention_doctor.construction import build, is_factory, parts, unguessed
from attention_doctor.matching import unmatched
from attention_doctor.names import Unasked, named_parameters

_GROUPS = r"num_channels \(\d+\) must be divisible by num_groups \((\d+)\)"


def prepare(target: Any, options: argparse.Namespace, notes: list[str]) -> Any:
    """Build and adapt what a file defines; wider where the groups of a norm ask for it.

    Args:
        target: a class, a function or a module.
        options: the command line's; the width may become another one.
        notes: gets a sentence on each thing that was guessed.

    Raises:
        Unasked: it cannot be built or called.
    """
    try:
        return _prepared(target, options, notes)
    except Unasked as error:
        if not (groups := re.search(_GROUPS, str(error))):
            raise
        e, wide = options.embed_dim, math.lcm(options.embed_dim, int(groups[1]))
        notes.append(f"{groups[1]} groups of a norm do not divide {e}: `--embed-dim {wide}`")
        options.context_dim = wide if options.context_dim == e else options.context_dim
        options.embed_dim = wide
        return _prepared(target, options, notes)


def _prepared(target: Any, options: argparse.Namespace, notes: list[str]) -> Any:
    """Build and adapt with these sizes.

    Heads share keys and values in groups of two, where there is a setting for it; if such a module
    does not answer, in groups of one; and then the width of a head is tried as that of all.
    """
    h, d = options.num_heads, options.embed_dim // options.num_heads
    options.groups, options.head_dim, options.rotated = h, d, 0  # until it is built, and says so
    missing = _what_is_missing(target, options)
    if missing is not None and missing.step == "construction":
        raise missing
    kept: tuple[Any, bool, list[str]] | None = None
    failed: Unasked | None = missing
    before: list[str] = []
    for groups, width in ((h // 2, d), (h, d), (h, options.embed_dim)):
        options.groups, options.head_dim = groups, width
        said: list[str] = []
        if not groups or h % groups:
            continue
        try:
            made = build(target, options, said)
            if width != d and said == before:
                break  # there is no setting for the width of a head
            before = [*said]
            adapted, answers = answered(made, options, said)
        except Unasked as error:
            failed = error if failed is None or (groups, width) == (h, d) else failed
            continue
        if kept is None or answers:
            kept = adapted, answers, said
        if answers:
            break
    if kept is None or (missing is not None and not kept[1]):
        assert failed is not None
        raise failed
    notes += kept[2]
    return kept[0]


def _what_is_missing(target: Any, options: argparse.Namespace) -> Unasked | None:
    """Name every argument that cannot be guessed, of the constructor and of the call, at once."""
    call = target
    if inspect.isclass(target):
        call = getattr(target, "forward", vars(target).get("__call__"))
    of_init = unguessed(target, options)
    of_call = [] if call is None or is_factory(target) else unmatched(call, options)
    fitting = {name: [*parts(target, name, options)] for name in of_init}
    said = [f"{x} ({' or '.join(fitting[x])})" if fitting[x] else x for x in of_init]
    asked = {"constructor": said, "call": of_call}
    text = [f"the {what}'s {', '.join(names)}" for what, names in asked.items() if names]
    if not text:
        return None
    line = f"python -m attention_doctor {options.target} --kind {options.kind}"
    line += f" --embed-dim {options.embed_dim} --num-heads {options.num_heads}"
    for option, names, taker in (("init", of_init, target), ("call", of_call, call)):
        given = [shlex.quote(f"{x}={value!r}") for x, value in getattr(options, option)]
        likely = [
            shlex.quote(f"{x}={fitting[x][0]}()")
            if fitting.get(x)
            else _likely(x, taker, option == "call")
            for x in names
        ]
        line += f" --{option} {' '.join([*given, *likely])}" if names else ""
    remedy = f"Give what cannot be guessed: `{line}`."
    step = "construction" if of_init else "call"
    return Unasked(step, f"{' and '.join(text)} cannot be guessed", remedy)


def _likely(name: str, taker: Any, call: bool) -> str:
    """Write an option for an argument, with a module or a tensor where it is likely one."""
    hint = str(named_parameters(taker)[name].annotation)
    try:
        source = inspect.getsource(taker)
    except (OSError, TypeError):
        source = ""
    kept = [rf"self\.{x}" for x in re.findall(rf"self\.(\w+) = {name}\b", source)]
    if re.search("Module|Callable", hint) or re.search(rf"\b({'|'.join([name, *kept])})\(", source):
        return shlex.quote(f"{name}=torch.nn.Identity()")
    computes = rf"\b{name}\s*([@*+/]|\[|\.\w+)|[@*+/]\s*{name}\b|\({name}[,)]"
    if call and ("Tensor" in hint or re.search(computes, source)):
        return shlex.quote(f"{name}=torch.randn(b, n, e)")
    return f"{name}=…"
