"""How an attention has to be asked: whether its results are numbers, and how exact they are."""

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from attention_doctor.call.inputs import Failed, Inputs, NotAsked
from attention_doctor.call.patient import Patient
from attention_doctor.evidence.evidence import Evidence

DROPOUT = 0.5
STEP = 1e-4  # by which inputs grow
TRIES = 6
_SMOOTH = 1e-4  # a fourth difference that the rounding of float32 does not explain
_COARSE = 0.02  # what one step in bfloat16 may be off by


def finite(patient: Patient) -> Tensor:
    """Tell which rows of the first answer are numbers, (b, n)."""
    return patient.ask(patient.draw(0)).isfinite().all(-1)


def varies(patient: Patient) -> float:
    """Measure how far answers are apart in evaluation mode, with dropout; 0 where they are not."""
    with patient.dropping(DROPOUT):
        gap = variation(patient, patient.draw(1))
    return gap if gap > patient.tolerance else 0.0


@contextlib.contextmanager
def settled(evidence: Evidence) -> Iterator[str]:
    """Ask without chance, and as coarsely as results are; give what prevents that, or ""."""
    patient = evidence.patient
    if not evidence.of(finite).all():
        yield "there are no numbers to compare"
        return
    with contextlib.ExitStack() as until:
        if _had(evidence, varies):
            if variation(patient, patient.draw(1)) > patient.tolerance:
                until.enter_context(patient.dropping(0.0))
            if variation(patient, patient.draw(1)) > patient.tolerance:
                yield "the same input gives a different result each time"
                return
        patient.rounding = _COARSE if _had(evidence, steps) else 0.0
        yield ""


def _had(evidence: Evidence, measurement: Callable[[Patient], float]) -> float:
    """Give a measurement, and 0 where it fails: a rule says so."""
    try:
        return evidence.of(measurement)
    except (Failed, NotAsked):
        return 0.0


def needs_full_precision(patient: Patient) -> None:
    """Leave a measurement out where half precision is all that there is."""
    if patient.dtype not in (torch.float32, torch.float64):
        raise NotAsked(f"it computes in {patient.dtype}")


def variation(patient: Patient, inputs: Inputs) -> float:
    """Measure how far the answers to one question are apart, relative to their size."""
    first, *more = (patient.ask(inputs) for _ in range(TRIES))
    return max(patient.gap(x, first) for x in more)


def steps(patient: Patient) -> float:
    """Measure the steps in which results move as inputs grow; 0 where they are smooth."""
    needs_full_precision(patient)
    limit = max(_SMOOTH, 3 * patient.tolerance)
    rough = []
    for seed in range(31, 34):
        rough.append(_roughness(patient, seed))
        if not rough[-1] > limit:
            return 0.0
    return min(rough)


def _roughness(patient: Patient, seed: int) -> float:
    """Measure by how much the output is not smooth: its fourth difference as inputs grow."""
    start = patient.draw(seed)

    def at(step: int) -> Tensor:
        return patient.ask(start.map(lambda x: x * (1 + STEP * step))).double()

    outputs = torch.stack([at(step) for step in range(5)])
    return float(outputs.diff(4, 0).abs().max() / outputs[0].abs().max().clamp(min=1e-30))
