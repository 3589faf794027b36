"""Write an adapter for what cannot be called as it is: the user completes it."""

import inspect
import textwrap
from pathlib import Path
from typing import Any

from attention_doctor.call.build import fields, is_config, known
from attention_doctor.call.load import dotted
from attention_doctor.call.matching import TENSORS, matched
from attention_doctor.call.roles import Sizes, named_parameters, required, signature

_OPEN = "..."
_SHAPES = {
    "query": "(b, n, e)",
    "key": "(b, m, e)",
    "value": "(b, m, e)",
    "x": "(b, n, e)",
    "context": "(b, m, c)",
}


def adapter(
    target: Any,
    file: Path,
    name: str,
    kind: str,
    sizes: Sizes,
    init: dict[str, str],
    given: dict[str, Any],
    failed: str = "",
) -> str:
    """Write a file that builds what is examined, and calls it with the arguments that it takes.

    ``init`` is what was said for the constructor, and ``given`` what it comes to; what nobody has
    said is ``...``. Where nothing is, ``failed`` is what it raises.
    """
    folder, module = dotted(file.resolve())
    built = inspect.isclass(target)
    made = f"{name}({_arguments(target, kind, sizes, init, given)})" if built else name
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
    types = ["from types import SimpleNamespace", ""] * ("SimpleNamespace(" in made)
    to_do, note = "complete what stands as ...", []
    if _OPEN not in f"{made} {passed}" and failed:
        to_do = "change the line that fails, and others"
        note = textwrap.wrap(f"fails so far: {failed}", 88, break_on_hyphens=False)
    lines = [
        f"# Save this as {folder / 'examined.py'}, {to_do}, and run",
        f"#     python -m attention_doctor {command} \\",
        f"#         {options}",
        *(f"# {text}" for text in note),
        *types,
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


def _arguments(
    target: Any, kind: str, sizes: Sizes, init: dict[str, str], given: dict[str, Any]
) -> str:
    """Write the arguments of a constructor: what was said, sizes by their names, and ...."""
    parameters = named_parameters(target)
    values = dict.fromkeys(required(parameters), _OPEN)
    sized = {name: x for name, x in known(target, {}, sizes, kind).items() if not is_config(x)}
    values |= {name: repr(x) for name, x in sized.items()}
    for name, read in fields(target, given, sizes, kind).items():
        written = {x: init.get(x, _OPEN if y is ... else repr(y)) for x, y in read.items()}
        values[name] = f"SimpleNamespace({_listed(written)})" if written else _OPEN
    taken = {x: y for x, y in init.items() if x in parameters or _takes_any(target)}
    return _listed(values | taken)


def _takes_any(target: Any) -> bool:
    return any(x.kind is x.VAR_KEYWORD for x in signature(target).values())


def _listed(values: dict[str, str]) -> str:
    return ", ".join(f"{name}={text}" for name, text in values.items())


def _passed(call: Any, kind: str, own: list[str]) -> tuple[list[str], bool, bool]:
    """Write the arguments of the call, ... among them; tell whether a mask is given, and must."""
    plan = matched(call, kind, "", dict.fromkeys(own))
    passed = dict(plan.tokens)
    if plan.mask and kind != "causal":
        passed[plan.mask] = "blocked"
    parameters = named_parameters(call)
    needed = [name for name in required(parameters) if name not in own]
    passed |= {name: _OPEN for name in needed if name not in passed}
    masked = bool(plan.mask) and kind != "causal"
    written = [f"{name}={value}" for name, value in passed.items()]
    if masked and not plan.needs_mask and parameters[plan.mask].default is not None:
        without = f'**({{}} if blocked is None else {{"{plan.mask}": blocked}})'
        written = [without if x == f"{plan.mask}=blocked" else x for x in written]
    return written or [_OPEN], masked, masked and plan.needs_mask
