"""Compare with an implementation that is trusted, on the same parameters."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from annotated_attention.multihead import MultiheadAttention
from attention_doctor.call.inputs import Failed, NotAsked
from attention_doctor.call.patient import Patient
from attention_doctor.evidence.agreement import answered, state_of
from attention_doctor.evidence.parameters import find

State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Compared:
    """How outputs differ from those of the reference, on the same parameters; each a text."""

    parameters: str = ""  # how its parameters are others
    difference: str = ""


def compare(patient: Patient) -> Compared:
    """Give both the same parameters, and compare outputs in every situation.

    The reference is called in the same way as the patient, and is left as it was.
    """
    trusted = patient.reference
    if trusted is None:
        raise NotAsked("no reference is given")
    with trusted.admitted(), trusted.converted(patient.dtype):
        mine, theirs = patient.named, trusted.named
        states = list(_shared(patient, trusted.module, mine, theirs))
        differing = [_difference(patient, trusted, state) for state in states]
    if not states:
        listed = [[f"{x} {tuple(y.shape)}" for x, y in one.items()] for one in (mine, theirs)]
        here, there = ([x for x in a if x not in b] for a, b in (listed, listed[::-1]))
        only = {"only here": here, "only in the reference": there}
        text = "; ".join(f"{label}: {', '.join(names)}" for label, names in only.items() if names)
        return Compared(parameters=text)
    return Compared(difference="" if "" in differing else differing[0])


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
    elif isinstance(trusted, nn.MultiheadAttention | MultiheadAttention):
        for reading in find(patient.module, patient.embed_dim, patient.num_heads):
            state = {} if reading.code else state_of(reading)
            if state and not any(x.any() for name, x in state.items() if name not in theirs):
                yield {name: x for name, x in state.items() if name in theirs}


def _difference(patient: Patient, trusted: Patient, state: State) -> str:
    """Say where the first difference is, and in how many situations there is one; "" for none."""
    for name, x in trusted.named.items():
        if name in state:
            x.data = state[name].detach().to(x.dtype).clone()
    asked: dict[str, float] = {}
    for case, answer in answered(patient):
        with contextlib.suppress(Failed, NotAsked):
            asked[case.name] = patient.gap(answer, trusted.ask(case.inputs, case.blocked))
    if not asked:
        raise NotAsked("there is no situation in which both the reference and this give an output")
    differ = {name: gap for name, gap in asked.items() if gap > patient.tolerance}
    if not differ:
        return ""
    name, gap = next(iter(differ.items()))
    same = ", ".join(case for case in asked if case not in differ)
    return (
        f"first with {name}: the output differs by {min(gap, 9.99):.0%} of its size; "
        f"{len(differ)} of {len(asked)} situations differ{same and f', and not: {same}'}"
    )
