"""Match the arguments of a call with the tensors that the doctor gives, by their names."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from attention_doctor.roles import (
    KINDS,
    ROTATIONS,
    input_of,
    named_parameters,
    plain_name,
    required,
    signature,
)

TENSORS = {
    "cross": ("query", "key", "value"), "self": ("x",), "causal": ("x",),
    "memory": ("x", "context"),
}  # fmt: skip


class Plan(NamedTuple):
    """Which argument takes which tensor.

    Attributes:
        tokens: by argument, one of ``TENSORS``; a number for what is passed by position.
        mask: the argument that takes the mask; "" for none.
        needs_mask: whether the mask cannot be left out.
        rotation: the arguments that take cosines and sines, or complex numbers.
        further: other arguments that are said.
        unknown: arguments that must be given, and are none of these.
        complete: whether every tensor has an argument.
    """

    tokens: dict[str, str]
    mask: str
    needs_mask: bool
    rotation: tuple[str, ...]
    further: Mapping[str, Any]
    unknown: tuple[str, ...]
    complete: bool

    @property
    def fits(self) -> bool:
        """Whether it can be called so."""
        return self.complete and not self.unknown

    def __str__(self) -> str:
        """Say how it is called."""
        parts = [x if name.isdigit() else f"{name}={x}" for name, x in self.tokens.items()]
        parts += [f"{name}={value!r}" for name, value in self.further.items()]
        return ", ".join([*parts, *(f"{name}=a rotation" for name in self.rotation)])


def matched(
    function: Any, kind: str, mask: str, further: Mapping[str, Any], by_name: bool = False
) -> Plan:
    """Match arguments with tensors by their names, or by their order where no name says another.

    Args:
        function: what is called.
        kind: as in ``examine``.
        mask: may name the argument that takes the mask.
        further: other arguments that are said.
        by_name: whether their order says nothing.
    """
    parameters = named_parameters(function)
    inputs = {x: input_of(x) for x in parameters if x not in further}
    needed = [x for x in required(parameters) if x in inputs]
    tokens = _tokens(inputs, kind, needed, by_name)
    if not tokens and not parameters and signature(function):  # they have no names
        tokens = {str(i): role for i, role in enumerate(TENSORS[kind])}
    masks = [x for x, role in inputs.items() if role == "mask" and not _is_flag(parameters[x])]
    named = [x for x in masks if x in mask.split()] or sorted(masks, key=lambda x: x not in needed)
    takes_mask = next(iter(named), "")
    rotation = tuple(x for x in inputs if plain_name(x) in ROTATIONS)
    known = {*tokens, takes_mask, *rotation}
    unknown = tuple(x for x in needed if x not in known)
    complete = {*TENSORS[kind]} <= {*tokens.values()}
    return Plan(tokens, takes_mask, takes_mask in needed, rotation, further, unknown, complete)


def _tokens(
    inputs: Mapping[str, str], kind: str, needed: list[str], by_name: bool
) -> dict[str, str]:
    """Say which argument takes which tensor; a self-attention may take one of them thrice."""
    by_role = {role: name for name, role in reversed([*inputs.items()]) if role}
    if {"query", "key", "value"} <= {*by_role}:
        orders = {"cross": TENSORS["cross"], "memory": ("x", "context", "context")}
        order = orders.get(kind, ("x",) * 3)
        return {by_role[x]: y for x, y in zip(("query", "key", "value"), order, strict=True)}
    first = by_role.get("x") or by_role.get("query")
    second = by_role.get("context")
    if kind == "memory" and first and second:
        return {first: "x", second: "context"}
    if kind in ("self", "causal") and first:
        return {first: "x"} | ({second: "x"} if second in needed and second else {})
    if by_name:
        return {}
    # No name says which is which: their order does.
    plain = [x for x in needed if inputs[x] in ("", "x", *TENSORS[kind]) and x not in ROTATIONS]
    wanted = TENSORS[kind]
    return dict(zip(plain, wanted, strict=True)) if len(plain) == len(wanted) else {}


def fitting_kinds(function: Any, further: Mapping[str, Any]) -> list[str]:
    """Name the kinds that an implementation can be called as, by the names of its arguments."""
    return [kind for kind in KINDS if matched(function, kind, "", further, by_name=True).fits]


def _is_flag(parameter: Any) -> bool:
    """Tell whether an argument is a truth value or a number, and no tensor."""
    return parameter.annotation in (bool, "bool") or isinstance(parameter.default, bool | int)
