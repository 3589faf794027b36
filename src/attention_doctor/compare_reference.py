"""Compare with an implementation that is trusted, on the same parameters."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from annotated_attention.multihead import MultiheadAttention
from attention_doctor.call.patient import Failed, NotAsked, Patient
from attention_doctor.compare_versions import questions, state_of
from attention_doctor.evidence.parameters import find
from attention_doctor.look_inside import Inside
from attention_doctor.report import Finding, wrong

TRUSTED = "given reference"
State = Mapping[str, Tensor]


def compare(patient: Patient, reference: Callable[..., Any]) -> Iterator[Finding]:
    """Give both the same parameters, and compare outputs in every situation.

    The reference is called in the same way as the patient, and is left as it was.
    """
    trusted = Patient(reference, patient.sizes, patient.called_as)
    with trusted.admitted(), trusted.converted(patient.dtype):
        mine, theirs = patient.named, trusted.named
        states = list(_shared(patient, trusted.module, mine, theirs))
        differing = [_difference(patient, trusted, state) for state in states]
        seen = Inside(trusted).first
        patient.trusted_scale = None if seen is None else seen.found[0].scale
    if not states:
        listed = [[f"{x} {tuple(y.shape)}" for x, y in one.items()] for one in (mine, theirs)]
        here, there = ([x for x in a if x not in b] for a, b in (listed, listed[::-1]))
        only = {"only here": here, "only in the reference": there}
        yield wrong(
            "parameters-differ",
            "its parameters are not those of the reference, so that outputs cannot be compared",
            "; ".join(f"{label}: {', '.join(names)}" for label, names in only.items() if names),
            "Give both the same parameters: the same names, or the same shapes in the same order.",
        )
    elif None not in differing:
        yield from [x for x in differing if x is not None][:1]


def _shared(
    patient: Patient, trusted: nn.Module | None, mine: State, theirs: State
) -> Iterator[dict[str, Tensor]]:
    """Give what the parameters of the reference may be: those of the same name, or in that order.

    PyTorch's class, and ours, are also given projections that are found elsewhere.
    """
    if {x: y.shape for x, y in mine.items()} == {x: y.shape for x, y in theirs.items()}:
        yield dict(mine)
    elif [x.shape for x in mine.values()] == [x.shape for x in theirs.values()]:
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
    for name, x in trusted.named.items():
        if name in state:
            x.data = state[name].detach().to(x.dtype).clone()
    asked: dict[str, float] = {}
    for case in questions(patient):
        with contextlib.suppress(Failed, NotAsked):  # what fails says nothing here
            answers = (one.ask(case.inputs, case.blocked) for one in (patient, trusted))
            asked[case.name] = patient.gap(*answers)
    if not asked:
        raise NotAsked("there is no situation in which both the reference and this give an output")
    differ = {name: gap for name, gap in asked.items() if gap > patient.tolerance}
    if not differ:
        return None
    name, gap = next(iter(differ.items()))
    same = ", ".join(case for case in asked if case not in differ)
    return wrong(
        "differs-from-reference",
        f"with the same parameters, outputs are not those of {trusted.name}",
        f"first with {name}: the output differs by {min(gap, 9.99):.0%} of its size; "
        f"{len(differ)} of {len(asked)} situations differ{same and f', and not: {same}'}",
        "Compare both step by step in that situation: projections, positions (which features a "
        "rotation turns together), scores, mask, weights, merge.",
    )
