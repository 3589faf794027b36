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
    """What weights do not depend on, as texts."""

    unmixed: str = ""  # neither of the two, or results depend on no other token
    unread: str = ""  # on what is given as keys and values, though queries see each other
    unasked: str = ""  # on queries
    unscored: str = ""  # on keys


def mixing(patient: Patient) -> Mixing:
    """Measure whether tokens are mixed, with weights that depend on queries and on keys."""
    if patient.tolerance > _FINE_ENOUGH:
        raise NotAsked("its numbers are too coarse to show what the weights depend on")
    inputs = patient.draw(41)
    output = patient.ask(inputs)
    judge = _within if inputs.query is inputs.key else _between
    if (found := judge(patient, inputs, output)) is None:
        if inputs.query is not inputs.key:
            first = exchanged(inputs.query, 0, patient.draw(42).query[:, :1])
            after = patient.ask(replace(inputs, query=first))[:, 1:]
            if not patient.same(after, output[:, 1:]):
                return Mixing(unread="another query moves them, and other keys and values do not")
        return Mixing("results depend on no other token")
    asks, scores = found
    if not asks and not scores:
        return Mixing("they depend neither on queries nor on keys")
    unasked = "" if asks else "other queries get the same result"
    return Mixing(unasked=unasked, unscored="" if scores else "other keys, the same weights")


def unused_values(patient: Patient) -> str:
    """Say that results do not depend on the values, where these are given apart."""
    if patient.kind != "cross" or patient.memory:
        raise NotAsked(f"kind {patient.called_as} has no values of its own")
    inputs = patient.draw(41)
    output = patient.ask(inputs)
    moved = [_effect(patient, inputs, output, name) for name in ("key", "value")]
    unused = moved[0] > 0 and moved[1] == 0
    return "another `value` gives the same result, and another `key` does not" * unused


def _effect(patient: Patient, inputs: Inputs, output: Tensor, *names: str) -> float:
    """Measure by how much the output changes when these tensors are replaced."""
    other = patient.draw(42)
    changed = replace(inputs, **{name: getattr(other, name) for name in names})
    return patient.gap(patient.ask(changed), output)


def _between(patient: Patient, inputs: Inputs, output: Tensor) -> tuple[bool, bool] | None:
    """Tell whether weights depend on queries, and on keys, where these are different tensors.

    None where results depend on neither keys nor values.
    """

    def moves(*names: str) -> bool:
        return _effect(patient, inputs, output, *names) > patient.tolerance

    if not moves("key", "value"):
        return None
    asks = moves("query") and not patient.same(output, output[:, :1].expand_as(output))
    if not patient.memory:
        return asks, moves("key")
    # Or it only adds up what it finds there: the output is a linear function of the context.
    end = patient.draw(43).value
    halfway, after = (
        patient.ask(replace(inputs, key=x, value=x)) for x in ((inputs.value + end) / 2, end)
    )
    return asks, patient.gap(2 * (halfway - output), after - output) > patient.tolerance


def _within(patient: Patient, inputs: Inputs, output: Tensor) -> tuple[bool, bool] | None:
    """Tell the same of self-attention: it shows in how another token counts."""
    moved = within(moves(patient, inputs)).amax(0).fill_diagonal_(0)
    if not (moved > patient.tolerance).any():
        return None
    if patient.kind == "causal" and moved[-1].any():
        moved[:-1] = 0  # others may see a single token, and have no choice
    query, place = divmod(int(moved.argmax()), len(moved))  # a token with much influence on it

    def added(inputs: Inputs) -> tuple[Tensor, Tensor]:
        """Give what the query gets when the other token is exchanged, and halfway there."""
        start, end = inputs.query[:, place : place + 1], 2 * patient.draw(43).query[:, :1]

        def asked(token: Tensor) -> Tensor:
            return patient.ask(inputs.map(lambda x: exchanged(x, place, token)))[:, query]

        before = asked(start)
        return asked(end) - before, asked((start + end) / 2) - before

    whole, half = added(inputs)
    if patient.n >= 3 and patient.gap(2 * half, whole) <= patient.tolerance:
        asking = 2 * patient.draw(44).query[:, -1:]
        other = inputs.map(lambda x: exchanged(x, query, asking))
        return not patient.same(added(other)[0], whole), False
    # The last token sees all others, in whatever order they stand.
    order = torch.tensor([patient.n - 1, *range(1, patient.n - 1), 0])
    swapped = patient.ask(inputs.map(lambda x: x[:, order]))
    return not patient.same(swapped[:, -1], output[:, -1]), True
