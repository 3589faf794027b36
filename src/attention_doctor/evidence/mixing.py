"""What weights depend on: queries and keys."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attention_doctor.call.inputs import Inputs, NotAsked
from attention_doctor.call.patient import Patient
from attention_doctor.evidence.influence import exchanged, moves, within

_FINE_ENOUGH = 1e-3  # coarser numbers hide how weights depend on tokens


@dataclass(frozen=True)
class Mixing:
    """What weights depend on."""

    unmixed: str  # how results depend on no token but their own; "" if they do on others
    asks: bool = True  # weights depend on queries
    scores: bool = True  # weights depend on keys


def mixing(patient: Patient) -> Mixing:
    """Measure whether tokens are mixed, with weights that depend on queries and on keys."""
    if patient.tolerance > _FINE_ENOUGH:
        raise NotAsked("its numbers are too coarse to show what the weights depend on")
    inputs = patient.draw(41)
    output = patient.ask(inputs)
    if unmixed := _unmixed(patient, inputs, output):
        return Mixing(unmixed)
    judge = _within if inputs.query is inputs.key else _between
    return Mixing("", *judge(patient, inputs, output))


def value_counts(patient: Patient) -> bool:
    """Tell whether results depend on the values, where these are given apart."""
    if patient.kind != "cross" or patient.memory:
        raise NotAsked(f"kind {patient.called_as} has no values of its own")
    inputs = patient.draw(41)
    output = patient.ask(inputs)
    moved = [_effect(patient, inputs, output, name) for name in ("key", "value")]
    return moved[0] == 0 or moved[1] > 0


def _unmixed(patient: Patient, inputs: Inputs, output: Tensor) -> str:
    """Say how results depend on no other token than their own; "" if they do."""
    if inputs.query is inputs.key:
        others = (within(moves(patient, inputs)).amax(0) > patient.tolerance).fill_diagonal_(False)
        return "" if others.any() else "each result depends on its own token alone"
    moved = _effect(patient, inputs, output, "key", "value") > patient.tolerance
    return "" if moved else "keys and values change nothing"


def _effect(patient: Patient, inputs: Inputs, output: Tensor, *names: str) -> float:
    """Measure by how much the output changes when these tensors are replaced."""
    other = patient.draw(42)
    changed = replace(inputs, **{name: getattr(other, name) for name in names})
    return patient.gap(patient.ask(changed), output)


def _between(patient: Patient, inputs: Inputs, output: Tensor) -> tuple[bool, bool]:
    """Tell whether weights depend on queries, and on keys, where these are different tensors."""
    alike = patient.same(output, output[:, :1].expand_as(output))
    asks = _effect(patient, inputs, output, "query") > patient.tolerance and not alike
    if patient.memory:  # or it only adds up what it finds there
        return asks, not _straight(patient, inputs, output)
    return asks, _effect(patient, inputs, output, "key") > patient.tolerance


def _straight(patient: Patient, inputs: Inputs, output: Tensor) -> bool:
    """Tell whether the output is a linear function of the context."""
    end = patient.draw(43).value
    half = (inputs.value + end) / 2
    halfway, after = (patient.ask(replace(inputs, key=x, value=x)) for x in (half, end))
    return patient.gap(2 * (halfway - output), after - output) <= patient.tolerance


def _within(patient: Patient, inputs: Inputs, output: Tensor) -> tuple[bool, bool]:
    """Tell the same of self-attention: it shows in how another token counts."""
    moved = within(moves(patient, inputs)).amax(0).fill_diagonal_(0)
    if patient.kind == "causal" and moved[-1].any():
        moved[:-1] = 0  # others may see a single token, and have no choice
    query, place = divmod(int(moved.argmax()), len(moved))  # a token with much influence on it
    whole, half = _added(patient, inputs, query, place)
    if patient.n >= 3 and patient.gap(2 * half, whole) <= patient.tolerance:
        asking = 2 * patient.draw(44).query[:, -1:]
        other = inputs.map(lambda x: exchanged(x, query, asking))
        return not patient.same(_added(patient, other, query, place)[0], whole), False
    if patient.kind == "self":
        return not patient.same(output, output[:, :1].expand_as(output)), True
    # The last token sees all others, in whatever order they stand.
    order = torch.tensor([patient.n - 1, *range(1, patient.n - 1), 0])
    swapped = patient.ask(inputs.map(lambda x: x[:, order]))
    return not patient.same(swapped[:, -1], output[:, -1]), True


def _added(patient: Patient, inputs: Inputs, query: int, place: int) -> tuple[Tensor, Tensor]:
    """Give what a query gets when the other token is exchanged, and when it is halfway there."""
    start, end = inputs.query[:, place : place + 1], 2 * patient.draw(43).query[:, :1]

    def asked(token: Tensor) -> Tensor:
        return patient.ask(inputs.map(lambda x: exchanged(x, place, token)))[:, query]

    before = asked(start)
    return asked(end) - before, asked((start + end) / 2) - before
