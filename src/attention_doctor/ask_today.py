"""Ask what attention of today can do besides, where an adapter says so: ``adapt`` lists it."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from attention_doctor import situations
from attention_doctor.influence import exchanged, influence
from attention_doctor.inputs import Inputs, NotAsked
from attention_doctor.patient import Patient
from attention_doctor.report import Finding, wrong

_SHIFT = 7


def claim(patient: Patient, *names: str) -> list[Any]:
    """Give what the callable says that it can do besides, by the names of its attributes.

    Raises:
        NotAsked: it does not say so.
    """
    abilities = [getattr(patient.attend, name, None) for name in names]
    # A module may have an attribute of this name that means something else.
    number = not isinstance(patient.attend, nn.Module)
    if not all(callable(x) or (number and type(x) is int) for x in abilities):
        raise NotAsked("the callable does not say that it has them")
    return abilities


def rotation(patient: Patient) -> Iterator[Finding]:
    """Rotary positions count by their differences alone, in queries and in keys."""
    (at_positions,) = claim(patient, "at_positions")
    situations.only_for(patient, "self", "causal")
    x = patient.draw(51).query
    places = [*range(x.size(1))]

    def at(*positions: int, tokens: Tensor = x) -> Tensor:
        return patient.ask_for(at_positions, tokens, torch.tensor(positions))

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
        single = patient.gap(at(_SHIFT, tokens=x[:, :1]), at(0, tokens=x[:, :1]))
        said = f"moved by {_SHIFT} together, positions change the output by {shifted:.0%}"
        yield _not_relative(patient, at, x, said, single > patient.tolerance)


def _not_relative(
    patient: Patient, at: Callable[..., Tensor], x: Tensor, evidence: str, values: bool
) -> Finding:
    """Name what makes positions count by more than their differences."""
    symptom = "the result depends on more than the differences of positions"
    if values:
        evidence += "; so does the result of a single token, whose only weight is 1"
        return wrong("values-rotated", symptom, evidence, "Rotate queries and keys alone.")
    if still := _still(patient, at, x):
        evidence += f"; where the {still} stand has no effect"
        cause = f"the {still} are not rotated"
        remedy = "Rotate queries and keys, each by its own position."
        return Finding("rotates-one-side", "wrong", symptom, evidence, cause, remedy)
    remedy = "Turn both by the same function, with angles laid out as it pairs the features."
    return wrong("positions-not-relative", symptom, evidence, remedy)


def _still(patient: Patient, at: Callable[..., Tensor], x: Tensor) -> str:
    """Say whose positions have no effect: "keys", "queries", or "" where both have one.

    Two equal tokens stand last. Exchanged, they ask from another place; the keys are the same.
    """
    twins = torch.cat([x[:, :-1], x[:, -2:-1]], 1)
    *rest, one, two = range(x.size(1))
    before = at(*rest, one, two, tokens=twins)[:, -1]
    if patient.same(at(*rest, two, one, tokens=twins)[:, -1], before):
        return "queries"
    others = [place + 3 * i for i, place in enumerate((*rest, one))]
    return "keys" if patient.same(at(*others, two, tokens=twins)[:, -1], before) else ""


def window(patient: Patient) -> Iterator[Finding]:
    """A window has the width that it claims."""
    (width,) = claim(patient, "window")
    situations.only_for(patient, "self", "causal")
    n = width + 2
    if n > patient.max_length:
        raise NotAsked(f"a window of {width} takes more tokens than {patient.max_length}")
    seen = influence(patient, patient.draw(54, n=n))[0].any(0) | torch.eye(n, dtype=torch.bool)
    wide = int(seen[-1 if patient.kind == "causal" else n // 2].sum())
    if wide != width:
        yield wrong(
            "window-off-by-one" if abs(wide - width) == 1 else "window-of-another-width",
            f"the window is {wide} wide, itself included, and it is said to be {width}",
            f"of {n} tokens, {wide} have influence",
            "Let query i see the keys j with 0 <= i - j < window.",
        )


def packing(patient: Patient) -> Iterator[Finding]:
    """Packed documents do not see each other."""
    (packed,) = claim(patient, "packed")
    situations.only_for(patient, "self", "causal")
    n = min(7, patient.max_length)
    lengths = [n - n // 2, n // 2]
    x = patient.draw(55, n=n).query
    together = patient.ask_for(packed, x, lengths)
    single = torch.cat([patient.ask(Inputs(one, one, one)) for one in x.split(lengths, 1)], 1)
    gap = patient.gap(together, single)
    if gap <= patient.tolerance:
        return
    other = exchanged(x, 0, 3 * patient.draw(56).query[:, :1])
    after = patient.ask_for(packed, other, lengths)
    leaks = patient.gap(after[:, lengths[0] :], together[:, lengths[0] :]) > patient.tolerance
    yield wrong(
        "documents-see-each-other" if leaks else "packed-differs",
        "packed documents see each other" if leaks else "a packed document differs from it alone",
        f"documents of {lengths[0]} and {lengths[1]} tokens: results differ by {gap:.0%} from "
        "those of each alone",
        "Block every key of another document; positions that begin anew do not hide it.",
    )
