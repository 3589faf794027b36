"""Match the arguments of a call with what the examination has: by name where names are known."""

import argparse
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from attention_doctor import extras
from attention_doctor.names import INPUTS, named_parameters, plain_name, role_of

COUNTS = {"cross": 3, "memory": 2, "self": 1, "causal": 1}  # tensors, by kind


@dataclass(frozen=True)
class Plan:
    """One way to call.

    Attributes:
        tokens: which of the tensors each argument gets, ``"x"``, ``"key"``, ``"value"``,
            ``"packed"`` or ``"packed by head"``, by its name; a number is passed by position.
        mask: the name of the argument that takes the mask; None if it takes none.
        further: all other arguments.
        needs_mask: whether the mask cannot be left out.
        listed: whether it is passed as a list of one.
        tried: whether nothing is known about one of these, so that its value was tried.
        width: e.
        heads: h.
    """

    tokens: dict[str, str]
    mask: str | None = None
    further: dict[str, Any] = field(default_factory=dict)
    needs_mask: bool = False
    listed: bool = False
    tried: bool = False
    width: int = 0
    heads: int = 1

    def __str__(self) -> str:
        """Say how it is called."""
        parts = [x if name.isdigit() else f"{name}={x}" for name, x in self.tokens.items()]
        parts += [f"{self.mask}={'[mask]' if self.listed else 'mask'}"] if self.mask else []
        for name, x in self.further.items():
            said = x.says if isinstance(x, extras.Made) else "one that does not turn"
            known = isinstance(x, extras.Made | extras.Unturned)
            parts.append(f"{name}={said if known else repr(x)}")
        return ", ".join(parts)

    def caller(
        self, attend: Callable[..., Any], kind: str, positional: list[str]
    ) -> Callable[..., Any]:
        """Return a function of the tensors and the mask of the kind, and of ``positions``.

        Its first argument are x and the context as (b, n, e), whatever the layout of the others is.
        """
        count = COUNTS[kind]

        def call(
            tokens: tuple[Tensor, Tensor], *given: Any, positions: Tensor | None = None
        ) -> Any:
            x, value = given[0], given[count - 1]
            key = given[1] if count == 3 else value
            at = torch.zeros(tokens[0].size(1), dtype=torch.long)
            at = at if positions is None else positions
            tensors = {"x": x, "key": key, "value": value}
            if any(role.startswith("packed") for role in self.tokens.values()):
                tensors |= self._packed([x, key, value])
            named: dict[str, Any] = {name: tensors[role] for name, role in self.tokens.items()}
            for name, extra in self.further.items():
                named[name] = extra.make(*tokens, at) if isinstance(extra, extras.Made) else extra
            passed = given[count] if len(given) > count else None
            if self.mask and (passed is not None or self.needs_mask):
                named[self.mask] = [passed] if self.listed else passed
            numbers = sorted(name for name in named if name.isdigit())
            first = [named.pop(name) for name in (*positional, *numbers) if name in named]
            return attend(*first, **named)

        return call

    def _packed(self, tensors: list[Tensor]) -> dict[str, Tensor]:
        """Put queries, keys and values into one tensor: one behind the other, or head by head."""
        x = tensors[0]
        if x.dim() == 4:  # heads are split already
            return {"packed": torch.stack(tensors, 2)}
        width = 1 if x.size(1) == self.width else 2
        by_head = [t.unflatten(width, (self.heads, -1)) for t in tensors]
        return {
            "packed": torch.cat(tensors, width),
            "packed by head": torch.cat(by_head, width + 1).flatten(width, width + 1),
        }


def mask_names(parameters: dict[str, inspect.Parameter], kind: str) -> list[str]:
    """Return the arguments that may take the mask over the keys, the likeliest first."""
    roles = ("memory mask", "mask") if kind == "memory" else ("mask", "memory mask")
    parameters = {name: x for name, x in parameters.items() if not is_flag(x)}
    named = [x for role in roles for x in parameters if plain_name(x) in INPUTS[role]]
    other = [x for x in parameters if "mask" in plain_name(x) and "head" not in plain_name(x)]
    added = [x for x, p in parameters.items() if is_bias(x) and p.default is p.empty]
    return [*dict.fromkeys([*named, *other])] or added


def is_flag(parameter: inspect.Parameter) -> bool:
    """Tell whether an argument is a truth value or a number, and no tensor."""
    plain = (bool, int, float, str)
    hints = (*plain, *(x.__name__ for x in plain))
    return isinstance(parameter.default, plain) or parameter.annotation in hints


def is_bias(name: str) -> bool:
    """Tell whether a name says that numbers are added to the scores, which may hide some."""
    return plain_name(name) in INPUTS["bias"]


def plans(
    function: Any, kind: str, mask: str | None, given: dict[str, Any], options: argparse.Namespace
) -> Iterator[Plan]:
    """Give ways to call, the likeliest first.

    Args:
        function: what is called.
        kind: as in ``examine``.
        mask: the argument that takes the mask, or None.
        given: arguments that are given.
        options: the sizes.
    """
    parameters = named_parameters(function)
    masks = {x for x in mask_names(parameters, kind) if not is_bias(x)} | {mask}
    for tokens in _tokens(parameters, kind, masks | {*given}):
        rest = {x: p for x, p in parameters.items() if x not in tokens and x not in given}
        required = {name: p for name, p in rest.items() if p.default is p.empty and name != mask}
        needs = mask is not None and parameters[mask].default is inspect.Parameter.empty
        listed = mask is not None and re.search(r"\b[Ll]ist\[", str(parameters[mask].annotation))
        turning = {name: p for name, p in rest.items() if extras.rotating(name)}
        chosen = [required] if turning.keys() <= required.keys() else [required, required | turning]
        for wanted in chosen:
            found = {
                name: [None] if name in masks else extras.candidates(name, p, options, parameters)
                for name, p in wanted.items()
            }
            tried = not all(found.values()) or [*tokens.values()].count("x") > 1
            found = {name: x or extras.tried(options) for name, x in found.items()}
            for further in extras.combinations(found):
                sizes = options.embed_dim, options.num_heads
                made = {**further, **given}
                yield Plan(tokens, mask, made, needs, bool(listed), tried, *sizes)


def unmatched(function: Any, options: argparse.Namespace) -> list[str]:
    """Return the required arguments of a call for which nothing can be guessed.

    Args:
        function: what is called, or the method that a class has for it.
        options: the sizes and the arguments that are given.
    """
    parameters, given = named_parameters(function), dict(options.call)
    parameters.pop("self", None)
    masks = {*mask_names(parameters, options.kind), options.mask_name}
    tokens = next(_tokens(parameters, options.kind, masks | {*given}), {})
    return [
        name
        for name, p in parameters.items()
        if p.default is p.empty
        and name not in {*tokens, *given, *masks}
        and not extras.candidates(name, p, options, parameters)
    ]


def _tokens(
    parameters: dict[str, inspect.Parameter], kind: str, taken: set[Any]
) -> Iterator[dict[str, str]]:
    """Give the ways in which the arguments may take the tensors."""
    names = [x for x in parameters if x not in taken]
    q, k, v, memory, first = (
        next((x for x in names if plain_name(x) in INPUTS[role]), "")
        for role in ("query", "key", "value", "memory", "x")
    )
    first = q if q and (not first or names.index(q) < names.index(first)) else first
    first = first or next((x for x in names if x != memory and not _is_extra(x)), memory)
    required = [x for x in names if parameters[x].default is inspect.Parameter.empty]
    open_ones = [x for x in required if not _is_extra(x)]
    packed = next(filter(is_packed, names), "")
    if packed:
        yield from ({packed: "packed"}, {packed: "packed by head"})
    if kind == "memory":
        source = memory or k or next((x for x in names if x != first and not _is_extra(x)), "")
        if q and k and v:
            yield {q: "x", k: "key", v: "value"}
        if first and source:
            yield {first: "x", source: "value"}
    elif q and k and v:
        yield {q: "x", k: "key", v: "value"}
    elif kind == "cross":
        open_ones = open_ones if len(open_ones) >= 3 else [x for x in names if not _is_extra(x)]
        if len(open_ones) >= 3:
            yield dict(zip(open_ones[:3], ("x", "key", "value"), strict=True))
    else:
        others = [x for x in (memory, k, v) if x and x != first and x in required]
        if first:
            yield {first: "x", **dict.fromkeys(others, "value")}
        if first and memory and memory not in others:
            yield {first: "x", memory: "value"}
        if open_ones and open_ones[0] != first:
            yield {open_ones[0]: "x"}
        if len(open_ones) in (2, 3):
            yield dict.fromkeys(open_ones, "x")
    if not names:
        yield {str(i): role for i, role in enumerate(("x", "key", "value")[: COUNTS[kind]])}


def is_packed(name: str) -> bool:
    """Tell whether an argument takes queries, keys and values in one tensor."""
    return plain_name(name) in ("qkv", "packed", "query_key_value")


def _is_extra(name: str) -> bool:
    """Tell whether an argument is known not to be a tensor of tokens."""
    plain = plain_name(name)
    tokens = {x for role in ("query", "key", "value", "memory", "x") for x in INPUTS[role]}
    # A single letter is a size in a constructor, and most often tokens in a call.
    return plain not in tokens and bool(extras.known(plain) or (plain[1:] and role_of(plain)))
