"""Compare with an implementation that is trusted, on the same parameters."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from annotated_attention.modern.rotary import half_to_interleaved, interleaved_to_half
from annotated_attention.multihead import MultiheadAttention
from attention_doctor.diagnosis import questions, state_of
from attention_doctor.influence import number
from attention_doctor.inside import Inside
from attention_doctor.parameters import find, projection_rows
from attention_doctor.patient import Failed, NotAsked, Patient
from attention_doctor.report import CONVENTION, WRONG, Finding
from attention_doctor.situations import Situation

TRUSTED = "given reference"
_SHOWN = 4  # of the names that differ
_LAYOUTS = half_to_interleaved, interleaved_to_half
State = Mapping[str, Tensor]
Turned = Callable[[Tensor, int], Tensor]


def compare(patient: Patient, reference: Callable[..., Any]) -> list[Finding]:
    """Give both the same parameters, and compare outputs and gradients in every situation.

    Args:
        patient: the implementation under examination, admitted.
        reference: the trusted implementation, called in the same way; it is left as it was.

    Returns:
        What differs, the most serious first.

    Raises:
        NotAsked: the reference cannot be called.
    """
    trusted = patient.like(reference)
    with trusted.admitted(), trusted.converted(patient.dtype):
        mine, theirs = _named(patient.module), _named(trusted.module)
        states = list(_shared(patient, trusted.module, mine, theirs))
        if not states:
            return [_parameters(mine, theirs)]
        differing = [_difference(patient, trusted, state) for state in states]
        seen = Inside(trusted).first
        patient.trusted_scale = None if seen is None else seen.found[0].scale
        found = [] if None in differing else [x for x in differing if x is not None][:1]
        for way, back in (_LAYOUTS, _LAYOUTS[::-1]) if found else ():
            reordered = _reordered(patient, trusted.module or nn.Module(), states[0], way)
            if _difference(patient, trusted, reordered) is None:
                said = f"{found[0].evidence}; with W_Q and W_K in another layout's order, none"
                remedy = f"Take the weights' layout, or reorder W_Q and W_K by `{back.__name__}`."
                code = "rotation-layout-mixed"
                found = [replace(found[0], code=code, evidence=said, remedy=remedy)]
    if mine.keys() != theirs.keys() and _sizes(mine) == _sizes(theirs):
        found.append(_names(mine, theirs))
    return found


def _named(module: nn.Module | None) -> dict[str, Tensor]:
    return {} if module is None else dict(module.named_parameters())


def _sizes(state: State) -> list[torch.Size]:
    return [x.shape for x in state.values()]


def _shared(
    patient: Patient, trusted: nn.Module | None, mine: State, theirs: State
) -> Iterator[dict[str, Tensor]]:
    """Give what the parameters of the reference may be: those of the same name, or in that order.

    PyTorch's class, and ours, are also given projections that are found elsewhere.
    """
    by_name = {name: x.shape for name, x in mine.items()}
    if by_name == {name: x.shape for name, x in theirs.items()}:
        yield dict(mine)
    elif _sizes(mine) == _sizes(theirs):
        yield dict(zip(theirs, mine.values(), strict=True))
    elif patient.module is not None and isinstance(
        trusted, nn.MultiheadAttention | MultiheadAttention
    ):
        for reading in find(patient.module, patient.embed_dim, patient.num_heads):
            if not reading.code:
                state = state_of(reading)
                if not any(x.any() for name, x in state.items() if name not in theirs):
                    yield {name: x for name, x in state.items() if name in theirs}


def _difference(patient: Patient, trusted: Patient, state: State) -> Finding | None:
    """Find the first difference, and count the situations that have one."""
    for name, x in _named(trusted.module).items():
        if name in state:
            x.data = state[name].detach().to(x.dtype).clone()
    found = {case.name: _gaps(patient, trusted, case, state) for case in questions(patient)}
    if (gap := _gap_of_turned(patient, trusted)) is not None:
        found["positions 0, 1, 2, …"] = {"output": gap}
    asked = {name: gaps for name, gaps in found.items() if gaps}
    if not asked:
        raise NotAsked("there is no situation in which both the reference and this give an output")
    differ = {
        name: next((what, gap) for what, gap in gaps.items() if gap > patient.tolerance)
        for name, gaps in asked.items()
        if max(gaps.values()) > patient.tolerance
    }
    if not differ:
        return None
    outputs = {name: x for name, x in differ.items() if x[0] == "output"}
    (name, (what, gap)), *_ = (outputs or differ).items()
    same = [case for case in asked if case not in differ]
    evidence = (
        f"first with {name}: the {what} differs by {min(gap, 9.99):.0%} of its size; "
        f"{len(differ)} of {len(asked)} situations differ"
        + (f", and not: {', '.join(same)}" if same else "")
    )
    return Finding(
        "differs-from-reference" if outputs else "gradients-differ-from-reference",
        WRONG,
        f"with the same parameters, {'outputs' if outputs else 'outputs agree, but gradients'} "
        f"are not those of {trusted.name}",
        evidence,
        "",
        "Compare both step by step in that situation: projections, scores, mask, weights, merge.",
        TRUSTED,
    )


def _gap_of_turned(patient: Patient, trusted: Patient) -> float | None:
    """Say how far outputs are apart where both can be asked at positions that differ."""
    x = patient.draw(51).query
    ways: list[Any] = [getattr(each.attend, "at_positions", None) for each in (patient, trusted)]
    if None in ways or patient.kind == "cross":
        return None
    return patient.gap(*(patient.ask_for(way, x, torch.arange(x.size(1))) for way in ways))


def _reordered(patient: Patient, trusted: nn.Module, state: State, way: Turned) -> State:
    """Bring the rows of W_Q and W_K into another order, within each head."""
    d = patient.embed_dim // patient.num_heads
    found = dict(state)
    for role in ("q", "k", "kv", "qkv") if d % 2 == 0 else ():
        for name, (x, axis) in projection_rows(trusted, role, d).items():
            # Of packed rows, those of the values stay; there may be fewer keys than queries.
            queries = patient.embed_dim if role == "qkv" else 0
            still = (x.size(axis) - queries) // 2 if "v" in role else 0
            bias = re.sub(r"weight(?!.*weight)", "bias", name)
            for part, of in {bias: 0, name: axis}.items():
                if part in state:
                    rows = state[part].detach().movedim(of, 0)
                    turning, rest = rows.split([len(rows) - still, still])
                    moved = torch.cat([way(turning, len(turning) // d), rest])
                    found[part] = moved.movedim(0, of)
    return found


def _gaps(patient: Patient, trusted: Patient, case: Situation, state: State) -> dict[str, float]:
    """Say how far outputs and gradients are apart, relative to their size; nothing if it fails."""
    own = {name: key for key, x in _named(patient.module).items()
           for name, y in state.items() if x is y}  # fmt: skip
    try:
        found = _answers(patient, case, own)
        expected = _answers(trusted, case, {name: name for name in own})
    except Failed:
        return {}
    gaps = {"output": patient.gap(found.pop("output"), expected.pop("output"))}
    size = max(x.abs().max().item() for x in expected.values())  # some are zero but for rounding
    for name, x in expected.items():
        apart = (found[name] - x).abs().max().item() / max(size, 1e-30)
        gaps[name] = apart if apart == apart else float("inf")
    return gaps


def _answers(patient: Patient, case: Situation, names: Mapping[str, str]) -> dict[str, Tensor]:
    """Give the output, and the gradients of the inputs and of some parameters by other names."""
    inputs = case.inputs.map(lambda x: x.clone().requires_grad_())
    named = _named(patient.module)
    for x in named.values():
        x.grad = None
    output = patient.ask(inputs, case.blocked, gradient=True)
    patient.differentiate(number(output))
    found = {"output": output.detach()}
    kinds = ["query"]
    if patient.kind == "cross":
        kinds += ["value"] if patient.memory else ["key", "value"]
    leaves = {f"gradient of the {kind}": getattr(inputs, kind) for kind in kinds}
    leaves |= {f"gradient of {name}": named[key] for name, key in names.items()}
    return found | {name: x.new_zeros(x.shape) if x.grad is None else x.grad.clone()
                    for name, x in leaves.items()}  # fmt: skip


def _parameters(mine: State, theirs: State) -> Finding:
    """Say that there is no way to give one the parameters of the other."""
    here = [f"{name} {tuple(x.shape)}" for name, x in mine.items() if name not in theirs]
    there = [f"{name} {tuple(x.shape)}" for name, x in theirs.items() if name not in mine]
    shapes = [
        f"{name} {tuple(x.shape)} for {tuple(theirs[name].shape)}"
        for name, x in mine.items()
        if name in theirs and x.shape != theirs[name].shape
    ]
    listed = {"only here": here, "only in the reference": there, "of another shape": shapes}
    return Finding(
        "parameters-differ",
        WRONG,
        "its parameters are not those of the reference, so that outputs cannot be compared",
        "; ".join(f"{label}: {_some(names)}" for label, names in listed.items() if names),
        "",
        "Give both the same parameters: the same names, or the same shapes in the same order.",
        TRUSTED,
    )


def _names(mine: State, theirs: State) -> Finding:
    """Say that names differ, where shapes and order do not."""
    pairs = [f"{a} for {b}" for a, b in zip(mine, theirs, strict=True) if a != b]
    return Finding(
        "parameters-named-otherwise",
        CONVENTION,
        "its parameters have other names than the reference's; they are matched by their order",
        _some(pairs),
        "",
        "",
        TRUSTED,
    )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"
