"""Ask what attention of today can do besides, where an adapter says so: ``adapt`` lists it."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from attention_doctor import situations
from attention_doctor.inputs import NotAsked
from attention_doctor.patient import Patient
from attention_doctor.report import Finding, wrong

_SHIFT = 7


def claim(patient: Patient, *names: str) -> list[Any]:
    """Give what the callable says that it can do besides, by the names of its attributes.

    Raises:
        NotAsked: it does not say so.
    """
    abilities = [getattr(patient.attend, name, None) for name in names]
    if not all(map(callable, abilities)):
        raise NotAsked("the callable does not say that it has them")
    return abilities


def rotation(patient: Patient) -> Iterator[Finding]:
    """Rotary positions count by their differences alone, in queries and in keys."""
    (at_positions,) = claim(patient, "at_positions")
    situations.only_for(patient, "self", "causal")
    x = patient.draw(51).query
    places = [*range(x.size(1))]

    def at(*positions: int) -> Tensor:
        return patient.ask_for(at_positions, x, torch.tensor(positions))

    here = at(*places)
    shifted = patient.gap(at(*(place + _SHIFT for place in places)), here)
    if patient.same(at(*(3 * place for place in places)), here):
        yield wrong(
            "positions-ignored",
            "positions change nothing",
            "three times as far apart, the same output",
            "Rotate queries and keys by their positions before the scores.",
        )
    elif shifted > patient.tolerance:
        yield wrong(
            "positions-not-relative",
            "the result depends on more than the differences of positions",
            f"moved by {_SHIFT} together, positions change the output by {shifted:.0%}",
            "Turn both by the same function, with angles laid out as it pairs the features.",
        )
