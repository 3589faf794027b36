"""Write an adapter for what cannot be called as it is: the user completes it."""

import inspect
from pathlib import Path
from typing import Any

from attention_doctor.call.build import known
from attention_doctor.call.load import dotted
from attention_doctor.call.matching import TENSORS, matched
from attention_doctor.call.roles import Sizes, named_parameters, required, size_of

_OPEN = "..."
_SHAPES = {
    "query": "(b, n, e)",
    "key": "(b, m, e)",
    "value": "(b, m, e)",
    "x": "(b, n, e)",
    "context": "(b, m, c)",
}


def adapter(
    target: Any, file: Path, name: str, kind: str, sizes: Sizes, init: dict[str, str]
) -> str:
    """Write a file that builds what is examined, and calls it with the arguments that it takes.

    ``init`` is what was said for the constructor; what nobody has said is ``...``.
    """
    folder, module = dotted(file.resolve())
    built = inspect.isclass(target)
    made = f"{name}({_arguments(target, kind, sizes, init)})" if built else name
    call = getattr(target, "forward", None) or vars(target).get("__call__", target)
    taken = TENSORS[kind]
    passed, known, always = _passed(call, kind, [*named_parameters(call)][:built])
    hides = "blocked" in " ".join(passed)
    masked = hides or (kind != "causal" and _OPEN in " ".join(passed))
    mask_argument = ["blocked" if hides else "blocked=None"] * masked
    shapes = [f"{x} {_SHAPES[x]}" for x in taken]
    shapes += ["blocked (b, n, m), True = hidden" + ", or None" * (not always)] if masked else []
    option = f" --context-dim {sizes.context_dim}" if kind == "memory" else ""
    said = [", module=module"] if built else []
    if not hides:
        said += [', mask="none"']
    elif known:
        said += [', mask="inferred always"' if always else ', mask="inferred"']
    elif always:
        said += [', mask="bnm blocked always"']
    e, h, n = sizes.embed_dim, sizes.num_heads, sizes.max_length
    first = name.split(".")[0]
    imported = [f"from {module} import {first}"]
    if not all(map(str.isidentifier, module.split("."))):
        loaded = f"{first}, _ = load({str(file.resolve())!r}, {first!r})"
        imported = ["from attention_doctor.call.load import load", "", loaded]
    command = f"examined.py:make_attention --kind {kind}"
    options = f"--embed-dim {sizes.embed_dim} --num-heads {sizes.num_heads}{option}"
    lines = [
        f"# Save this as {folder / 'examined.py'}, complete what stands as ..., and run",
        f"#     python -m attention_doctor {command} \\",
        f"#         {options}",
        "from attention_doctor import adapt",
        *[""] * (len(imported) == 1),
        *imported,
        "",
        "",
        "def make_attention():",
        *[f"    e, h, d, n = {e}, {h}, {e // h}, {n}"] * bool(init),
        f"    module = {made}",
        "",
        f"    def attend({', '.join([*taken, *mask_argument])}):",
        f"        # {'; '.join(shapes)}",
        "        # returns (b, n, e), alone or first among others",
        f"        return module({', '.join(passed)})",
        "",
        f"    return adapt(attend{''.join(said)})",
    ]
    return "\n".join(lines)


def _arguments(target: Any, kind: str, sizes: Sizes, init: dict[str, str]) -> str:
    """Write the arguments of a constructor: what was said, sizes by their names, and ...."""
    needed = required(named_parameters(target))
    left = {name: None for name in needed if size_of(name) == "config"}
    sized = {name: repr(x) for name, x in known(target, left, sizes, kind).items()}
    values = {**dict.fromkeys(needed, _OPEN), **sized, **dict.fromkeys(left, _OPEN), **init}
    return ", ".join(f"{name}={text}" for name, text in values.items())


def _passed(call: Any, kind: str, own: list[str]) -> tuple[list[str], bool, bool]:
    """Write the arguments of the call, ... among them; tell whether a mask is given, and must."""
    plan = matched(call, kind, "", dict.fromkeys(own))
    passed = dict(plan.tokens)
    if plan.mask and kind != "causal":
        passed[plan.mask] = "blocked"
    needed = [name for name in required(named_parameters(call)) if name not in own]
    passed |= {name: _OPEN for name in needed if name not in passed}
    written = [f"{name}={value}" for name, value in passed.items()]
    masked = bool(plan.mask) and kind != "causal"
    return written or [_OPEN], masked, masked and plan.needs_mask
