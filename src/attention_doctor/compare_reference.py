"""Compare with an implementation that is trusted, on the same parameters."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from annotated_attention.modern.rotary import half_to_interleaved, interleaved_to_half
from annotated_attention.multihead import MultiheadAttention
from attention_doctor.compare_parameters import find, projection_rows
from attention_doctor.compare_versions import questions, state_of
from attention_doctor.influence import number, roles
from attention_doctor.inputs import Failed, NotAsked
from attention_doctor.look_inside import Inside
from attention_doctor.patient import Patient
from attention_doctor.report import Finding, convention, wrong
from attention_doctor.situations import Situation

TRUSTED = "given reference"
_SHOWN = 4  # of the names that differ
_LAYOUTS = half_to_interleaved, interleaved_to_half
State = Mapping[str, Tensor]


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
            return [replace(_parameters(mine, theirs), test=TRUSTED)]
        differing = [_difference(patient, trusted, state) for state in states]
        seen = Inside(trusted).first
        patient.trusted_scale = None if seen is None else seen.found[0].scale
        findings = [] if None in differing else [x for x in differing if x is not None][:1]
        for way, back in (_LAYOUTS, _LAYOUTS[::-1]) if findings else ():
            reordered = _reordered(patient, trusted.module or nn.Module(), states[0], way)
            if _difference(patient, trusted, reordered) is None:
                said = f"{findings[0].evidence}; with W_Q and W_K in another layout's order, none"
                remedy = f"Take the weights' layout, or reorder W_Q and W_K by `{back.__name__}`."
                code = "rotation-layout-mixed"
                findings = [replace(findings[0], code=code, evidence=said, remedy=remedy)]
    if mine.keys() != theirs.keys() and _sizes(mine) == _sizes(theirs):
        pairs = [f"{a} for {b}" for a, b in zip(mine, theirs, strict=True) if a != b]
        symptom = "its parameters have other names than the reference's; their order matches them"
        findings.append(convention("parameters-named-otherwise", symptom, _some(pairs)))
    return [replace(finding, test=TRUSTED) for finding in findings]


def _named(module: nn.Module | None) -> dict[str, Tensor]:
    return {} if module is None else dict(module.named_parameters())


def _sizes(state: State) -> list[torch.Size]:
    return [x.shape for x in state.values()]


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


def _parameters(mine: State, theirs: State) -> Finding:
    """Say that there is no way to give one the parameters of the other."""
    here = [f"{name} {tuple(x.shape)}" for name, x in mine.items()]
    there = [f"{name} {tuple(x.shape)}" for name, x in theirs.items()]
    listed = {
        "only here": [x for x in here if x not in there],
        "only in the reference": [x for x in there if x not in here],
    }
    return wrong(
        "parameters-differ",
        "its parameters are not those of the reference, so that outputs cannot be compared",
        "; ".join(f"{label}: {_some(names)}" for label, names in listed.items() if names),
        "Give both the same parameters: the same names, or the same shapes in the same order.",
    )


def _shared(
    patient: Patient, trusted: nn.Module | None, mine: State, theirs: State
) -> Iterator[dict[str, Tensor]]:
    """Give what the parameters of the reference may be: those of the same name, or in that order.

    PyTorch's class, and ours, are also given projections that are found elsewhere.
    """
    if {x: y.shape for x, y in mine.items()} == {x: y.shape for x, y in theirs.items()}:
        yield dict(mine)
    elif _sizes(mine) == _sizes(theirs):
        yield dict(zip(theirs, mine.values(), strict=True))
    elif patient.module is not None and isinstance(
        trusted, nn.MultiheadAttention | MultiheadAttention
    ):
        for reading in find(patient.module, patient.embed_dim, patient.num_heads):
            state = {} if reading.code else state_of(reading)
            if state and not any(x.any() for name, x in state.items() if name not in theirs):
                yield {name: x for name, x in state.items() if name in theirs}


def _difference(patient: Patient, trusted: Patient, state: State) -> Finding | None:
    """Find the first difference, and count the situations that have one."""
    for name, x in _named(trusted.module).items():
        if name in state:
            x.data = state[name].detach().to(x.dtype).clone()
    gaps = {case.name: _gaps(patient, trusted, case, state) for case in questions(patient)}
    gaps["positions 0, 1, 2, …"] = _gap_of_turned(patient, trusted)
    asked = {name: x for name, x in gaps.items() if x}
    if not asked:
        raise NotAsked("there is no situation in which both the reference and this give an output")
    differ = {
        name: next((what, gap) for what, gap in x.items() if gap > patient.tolerance)
        for name, x in asked.items()
        if max(x.values()) > patient.tolerance
    }
    if not differ:
        return None
    outputs = {name: x for name, x in differ.items() if x[0] == "output"}
    (name, (what, gap)), *_ = (outputs or differ).items()
    same = ", ".join(case for case in asked if case not in differ)
    return wrong(
        "differs-from-reference" if outputs else "gradients-differ-from-reference",
        f"with the same parameters, {'outputs' if outputs else 'outputs agree, but gradients'} "
        f"are not those of {trusted.name}",
        f"first with {name}: the {what} differs by {min(gap, 9.99):.0%} of its size; "
        f"{len(differ)} of {len(asked)} situations differ{same and f', and not: {same}'}",
        "Compare both step by step in that situation: projections, scores, mask, weights, merge.",
    )


def _gap_of_turned(patient: Patient, trusted: Patient) -> dict[str, float]:
    """Say how far outputs are apart where both can be asked at positions that differ."""
    x = patient.draw(51).query
    ways: list[Any] = [getattr(each.attend, "at_positions", None) for each in (patient, trusted)]
    if None in ways or patient.kind == "cross":
        return {}
    outputs = (patient.ask_for(way, x, torch.arange(x.size(1))) for way in ways)
    return {"output": patient.gap(*outputs)}


def _reordered(
    patient: Patient, trusted: nn.Module, state: State, way: Callable[[Tensor, int], Tensor]
) -> State:
    """Bring the rows of W_Q and W_K into another order, within each head."""
    d = patient.embed_dim // patient.num_heads
    reordered = dict(state)
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
                    reordered[part] = moved.movedim(0, of)
    return reordered


def _gaps(patient: Patient, trusted: Patient, case: Situation, state: State) -> dict[str, float]:
    """Say how far outputs and gradients are apart, relative to their size; nothing if it fails."""
    names = {name: key for key, x in _named(patient.module).items()
             for name, y in state.items() if x is y}  # fmt: skip
    try:
        mine = _answers(patient, case, names)
        theirs = _answers(trusted, case, {name: name for name in names})
    except (Failed, NotAsked):
        return {}
    gaps = {"output": patient.gap(mine.pop("output"), theirs.pop("output"))}
    size = max(x.abs().max().item() for x in theirs.values())  # some are zero but for rounding
    for name, x in theirs.items():
        apart = (mine[name] - x).abs().max().item() / max(size, 1e-30)
        gaps[name] = apart if apart == apart else float("inf")
    return gaps


def _answers(patient: Patient, case: Situation, names: Mapping[str, str]) -> dict[str, Tensor]:
    """Give the output, and the gradients of the inputs and of some parameters by other names."""
    inputs, named = case.inputs.map(lambda x: x.clone().requires_grad_()), _named(patient.module)
    for x in named.values():
        x.grad = None
    output = patient.ask(inputs, case.blocked, gradient=True)
    patient.differentiate(number(output))
    leaves = {f"gradient of the {name}": x for name, x in roles(inputs).items()}
    leaves |= {f"gradient of {name}": named[key] for name, key in names.items()}
    return {"output": output.detach()} | {
        name: torch.zeros_like(x) if x.grad is None else x.grad.clone()
        for name, x in leaves.items()
    }
