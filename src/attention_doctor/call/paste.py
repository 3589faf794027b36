"""Write an adapter for what cannot be called as it is: the user completes it."""

import contextlib
import itertools
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from attention_doctor.call.build import Config, behind, is_built, known
from attention_doctor.call.load import dotted
from attention_doctor.call.matching import TENSORS, matched
from attention_doctor.call.roles import Sizes, named_parameters, required, taken

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
    init: Mapping[str, str],
    given: Mapping[str, Any],
    failed: str = "",
) -> str:
    """Write a file that builds what is examined, and calls it with the arguments that it takes.

    ``init`` is what was said for the constructor, and ``given`` what it comes to; what nobody has
    said is ``...``. Where nothing is, ``failed`` is what it raises.
    """
    folder, module = dotted(file.resolve())
    built, first = is_built(target), name.split(".")[0]
    made = f"{name}({_arguments(target, kind, sizes, init, given)})" if built else name
    inner = behind(target)
    call = getattr(inner, "forward", None) or vars(inner).get("__call__", inner)
    passed, mask = _passed(call, kind, [*named_parameters(call)][:built])
    inputs, shapes = [*TENSORS[kind]], [f"{x} {_SHAPES[x]}" for x in TENSORS[kind]]
    if mask or (kind != "causal" and _OPEN in passed):
        inputs.append("blocked" if mask else "blocked=None")
        shapes.append("blocked (b, n, m), True = hidden" + ", or None" * ("always" not in mask))
    imported, letters, notes = f"\nfrom {module} import {first}", "", ""
    if not all(map(str.isidentifier, module.split("."))):
        imported = "from attention_doctor.call.load import load\n\n"
        imported += f"{first}, _ = load({str(file.resolve())!r}, {first!r})"
    e, h, n = sizes.embed_dim, sizes.num_heads, sizes.max_length
    if init:
        letters = f"    e, h, d, n = {e}, {h}, {e // h}, {n}\n"
    to_do = "complete what stands as ..."
    if failed and _OPEN not in made + passed:
        to_do = "change the line that fails, and others"
        notes = textwrap.fill(f"fails so far: {failed}", 88, break_on_hyphens=False) + "\n"
        notes = textwrap.indent(notes, "# ")
    if "SimpleNamespace(" in made:
        notes += "from types import SimpleNamespace\n\n"
    options = f"--embed-dim {e} --num-heads {h}"
    options += f" --context-dim {sizes.context_dim}" * (kind == "memory")
    said = ["attend", *["module=module"] * built, f'mask="{mask or "none"}"']
    return f"""\
# Save this as {folder / "examined.py"}, {to_do}, and run
#     python -m attention_doctor examined.py:make_attention --kind {kind} \\
#         {options}
{notes}from attention_doctor import adapt
{imported}


def make_attention():
{letters}    module = {made}

    def attend({", ".join(inputs)}):
        # {"; ".join(shapes)}
        # returns (b, n, e), alone or first among others
        return module({passed})

    return adapt({", ".join(said)})"""


def _arguments(
    target: Any, kind: str, sizes: Sizes, init: Mapping[str, str], given: Mapping[str, Any]
) -> str:
    """Write the arguments of a constructor: what was said, sizes by their names, and ....

    Which fields of a configuration it reads, trying it tells; one that is missing is ..., too.
    """
    arguments = known(target, given, sizes, kind)
    with torch.random.fork_rng(devices=[]), contextlib.suppress(Exception, SystemExit):
        try:
            target(**arguments)
        except AttributeError as error:
            if isinstance(error.obj, Config) and error.name:
                setattr(error.obj, error.name, ...)
    written = dict.fromkeys(required(named_parameters(behind(target))), _OPEN)
    for name, x in arguments.items():
        read = x.read if isinstance(x, Config) else {}
        fields = {x: init.get(x, _OPEN if y is ... else repr(y)) for x, y in read.items()}
        usual = f"SimpleNamespace({_listed(fields)})" if fields else _OPEN
        written[name] = init.get(name, usual if isinstance(x, Config) else repr(x))
    return _listed(written | taken(behind(target), init))


def _listed(arguments: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={text}" for name, text in arguments.items())


def _passed(call: Any, kind: str, own: list[str]) -> tuple[str, str]:
    """Write the arguments of the call, ... among them; and what to say of its mask, or ""."""
    plan, parameters = matched(call, kind, "", dict.fromkeys(own)), named_parameters(call)
    mask = plan.mask if kind != "causal" else ""
    passed = {**plan.tokens, **({mask: "blocked"} if mask else {})}
    open_ones = [x for x in required(parameters) if x not in own and x not in passed]
    if not plan.tokens:  # a context may have a default, and stands behind what has none
        others = (x for x in parameters if x not in (*own, *passed, *open_ones))
        open_ones += itertools.islice(others, max(0, len(TENSORS[kind]) - len(open_ones)))
    written = _listed(passed | dict.fromkeys(open_ones, _OPEN)) or _OPEN
    if mask and not plan.needs_mask and parameters[mask].default is not None:
        without = f'**({{}} if blocked is None else {{"{mask}": blocked}})'
        written = written.replace(f"{mask}=blocked", without)
    return written, ("inferred" + " always" * plan.needs_mask) * bool(mask)
