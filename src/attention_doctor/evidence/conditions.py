"""How an attention has to be asked: whether its results are numbers, and how exact they are."""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from attention_doctor.call.inputs import Inputs, NotAsked
from attention_doctor.call.patient import Patient
from attention_doctor.call.places import Where
from attention_doctor.call.trace import Step, tensors
from attention_doctor.evidence import situations
from attention_doctor.evidence.evidence import Evidence
from attention_doctor.evidence.looks import watched

DROPOUT = 0.5
TRIES = 6
HALVES = (torch.float16, torch.bfloat16)
_COARSE = 0.02  # what one step in bfloat16 may be off by


def finite(patient: Patient) -> Tensor:
    """Tell which rows of the first answer are numbers, (b, n)."""
    return patient.ask(patient.draw(0)).isfinite().all(-1)


def unfilled(patient: Patient) -> str:
    """Name the parameters that are NaN, infinite or huge."""
    named = patient.named.items()
    return ", ".join(name for name, x in named if not (x.abs() <= 1e6).all())


def not_finite(patient: Patient) -> str:
    """Say what may make answers NaN or infinite; "" where none is."""
    if finite(patient).all():
        return ""
    return f"parameters that are NaN, infinite or huge: {unfilled(patient) or 'none'}"


def varies(patient: Patient) -> str:
    """Say how far answers are apart in evaluation mode, with dropout."""
    with patient.dropping(DROPOUT):
        gap = variation(patient, patient.draw(1))
    said = f"{TRIES} calls differ by up to {gap:.0%} of their size, with dropout at {DROPOUT}"
    return said * (gap > patient.tolerance)


def made_within(patient: Patient) -> Where | None:
    """Give the line that uses parameters which are others in each call; None if there is none.

    Those that are not registered are the same each time.
    """
    known = {id(x) for x in patient.named.values()}
    used: list[dict[int, Step]] = []
    for _ in range(2):
        steps = watched(patient, situations.free(patient))[0]
        given = ((x, y) for x in steps for y in tensors([x.arguments, x.options]))
        used.append({id(y): x for x, y in given if isinstance(y, nn.Parameter)})
    anew = [step for key, step in used[0].items() if key not in known and key not in used[1]]
    return anew[0].where if anew else None


@contextlib.contextmanager
def settled(evidence: Evidence) -> Iterator[str]:
    """Ask without chance, and as coarsely as results are; give what prevents that, or ""."""
    patient = evidence.patient
    if not evidence.of(finite).all():
        yield "there are no numbers to compare"
        return
    with contextlib.ExitStack() as until:
        if evidence.had(varies):
            if variation(patient, patient.draw(1)) > patient.tolerance:
                until.enter_context(patient.dropping(0.0))
            if variation(patient, patient.draw(1)) > patient.tolerance:
                yield "the same input gives a different result each time"
                return
        patient.rounding = _COARSE if evidence.had(coarse) is not None else 0.0
        yield ""


def needs_full_precision(patient: Patient) -> None:
    """Leave a measurement out where half precision is all that there is."""
    if patient.dtype in HALVES:
        raise NotAsked(f"it computes in {patient.dtype}")


def variation(patient: Patient, inputs: Inputs) -> float:
    """Measure how far the answers to one question are apart, relative to their size."""
    first, *more = (patient.ask(inputs) for _ in range(TRIES))
    return max(patient.gap(x, first) for x in more)


def coarse(patient: Patient) -> Step | None:
    """Give the first step that makes numbers of half precision from finer ones."""
    needs_full_precision(patient)
    steps = watched(patient, situations.free(patient))[0]
    return next((x for x in steps if x.from_tokens and x.value.dtype in HALVES), None)
