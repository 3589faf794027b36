"""Match the arguments of a call, by their names, with the tensors that the doctor gives."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from attention_doctor.call.forms import MEANINGS
from attention_doctor.call.roles import (
    DOCUMENTS,
    ROTATIONS,
    documented,
    input_of,
    named_parameters,
    required,
)

TENSORS = {
    "cross": ("query", "key", "value"),
    "self": ("x",),
    "causal": ("x",),
    "memory": ("x", "context"),
}


class Plan(NamedTuple):
    """Which argument takes which tensor."""

    # One of ``TENSORS``, by argument; empty where names do not fit the kind.
    tokens: Mapping[str, str] = MappingProxyType({})
    mask: str = "mask"  # the argument that takes the mask; "" for none
    needs_mask: bool = False
    rotation: tuple[str, ...] = ()  # the arguments that take cosines and sines
    documents: str = ""  # the argument that takes the number of each token's document
    further: Mapping[str, Any] = MappingProxyType({})  # what is said
    unknown: tuple[str, ...] = ()  # what must be given, and is none of these
    others: tuple[str, ...] = ()  # further masks, which are left out
    says: str = ""  # what True means in a boolean mask, by the docstring

    @property
    def fits(self) -> bool:
        """Whether it can be called so."""
        return bool(self.tokens) and not self.unknown

    def __str__(self) -> str:
        """Say how it is called."""
        parts = [f"{name}={x}" for name, x in self.tokens.items()]
        parts += [f"{name}={value!r}" for name, value in self.further.items()]
        return ", ".join([*parts, *(f"{name}=a rotation" for name in self.rotation)])


def matched(
    function: Any, kind: str, mask: str, further: Mapping[str, Any], by_order: bool = True
) -> Plan:
    """Match arguments with tensors; ``mask`` may name the argument that takes the mask.

    What names do not say, the order does, which may be left out.
    """
    parameters = named_parameters(function)
    inputs = {name: input_of(name) for name in parameters if name not in further}
    needed = [name for name in required(parameters) if name in inputs]
    optional = [x for x in parameters if x in inputs and parameters[x].default is None][:1]
    places = [*needed, *optional] if by_order else []
    unnamed = [x for x in places if not inputs[x] and x not in (*ROTATIONS, *DOCUMENTS)]
    tokens = _tokens(inputs, kind, unnamed)
    masks = [
        name
        for name, role in inputs.items()
        if role == "mask" and not isinstance(parameters[name].default, int)
    ]
    words = mask.split()
    named = [name for name in parameters if name in words and name not in tokens]
    named.sort(key=MEANINGS.__contains__)  # which may be meant by such a word
    masks.sort(key=lambda x: (x not in needed, x.endswith(("pad", "padding"))))
    takes_mask = next(iter(named or masks), "")
    rotation = tuple(name for name in inputs if name in ROTATIONS)
    documents = next((name for name in inputs if name in DOCUMENTS), "")
    known = {*tokens, takes_mask, documents, *rotation}
    unknown = tuple(name for name in needed if name not in known)
    needs_mask = takes_mask in needed
    others = tuple(name for name in masks if name != takes_mask)
    says = documented(function, takes_mask)
    return Plan(tokens, takes_mask, needs_mask, rotation, documents, further, unknown, others, says)


def _tokens(inputs: dict[str, str], kind: str, unnamed: list[str]) -> dict[str, str]:
    """Say which argument takes which tensor; a self-attention may take one of them thrice."""
    names = {role: name for name, role in reversed([*inputs.items()])}
    if {"query", "key", "value"} <= {*names}:
        given = {"cross": TENSORS["cross"], "memory": ("x", "context", "context")}
        order = given.get(kind, ("x",) * 3)
        return {names[role]: x for role, x in zip(TENSORS["cross"], order, strict=True)}
    names.setdefault("x", names.get("query", ""))
    names.setdefault("context", names.get("key", "") if "value" not in names else "")
    if kind in ("self", "causal") and not names["x"] and len(unnamed) < 2:
        names["x"] = next(iter(unnamed), "") or names["context"]
    elif kind == "memory":
        if names.get("query", names["x"]) != names["x"]:
            names["x"], names["context"] = names["query"], names["context"] or names["x"]
        others = iter(unnamed)
        for role in ("x", "context"):
            names[role] = names[role] or next(others, "")
    fits = all(names.get(role) for role in TENSORS[kind])
    return {names[role]: role for role in TENSORS[kind]} if fits else {}
