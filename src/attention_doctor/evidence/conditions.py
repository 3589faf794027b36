"""How an attention has to be asked: whether its results are numbers, and how exact they are."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from attention_doctor.call.inputs import Failed, Inputs, NotAsked
from attention_doctor.call.patient import Patient

DROPOUT = 0.5
STEP = 1e-4  # by which inputs grow
TRIES = 6
_SMOOTH = 1e-4  # a fourth difference that the rounding of float32 does not explain
_COARSE = 0.02  # what one step in bfloat16 may be off by


@dataclass(frozen=True)
class Conditions:
    """What was measured before all else; a failure stands in the place of what it prevented."""

    finite: Tensor  # rows of the first answer
    varies: float | Failed | NotAsked = 0.0  # with dropout, in evaluation mode; 0 where it does not
    calm: bool = False  # whether one question has one answer, if need be without dropout
    steps: float | Failed | NotAsked = 0.0  # in which coarse results move; 0 where they are exact

    @property
    def reason(self) -> str:
        """Why there is nothing to compare; "" where there is."""
        if not self.finite.all():
            return "there are no numbers to compare"
        return "" if self.calm else "the same input gives a different result each time"


@contextlib.contextmanager
def settled(patient: Patient) -> Iterator[Conditions]:
    """Measure the conditions, and keep them for all that is asked within.

    Raises:
        Failed: it cannot be called.
    """
    finite = patient.ask(patient.draw(0)).isfinite().all(-1)
    if not finite.all():
        yield Conditions(finite)
        return
    inputs = patient.draw(1)

    def with_dropout() -> float:
        with patient.dropping(DROPOUT):
            return variation(patient, inputs)

    varies = _attempt(with_dropout)
    with contextlib.ExitStack() as until:
        calm = True
        if isinstance(varies, float) and varies > patient.tolerance:
            if variation(patient, inputs) > patient.tolerance:
                until.enter_context(patient.dropping(0.0))
            calm = variation(patient, inputs) <= patient.tolerance
        elif isinstance(varies, float):
            varies = 0.0
        steps = _attempt(lambda: _steps(patient)) if calm else 0.0
        patient.rounding = _COARSE if isinstance(steps, float) and steps else 0.0
        yield Conditions(finite, varies, calm, steps)


def _attempt(measure: Callable[[], float]) -> float | Failed | NotAsked:
    try:
        return measure()
    except (Failed, NotAsked) as reason:
        return reason


def needs_full_precision(patient: Patient) -> None:
    """Leave a measurement out where half precision is all that there is."""
    if patient.dtype not in (torch.float32, torch.float64):
        raise NotAsked(f"it computes in {patient.dtype}")


def variation(patient: Patient, inputs: Inputs) -> float:
    """Measure how far the answers to one question are apart, relative to their size."""
    first, *more = (patient.ask(inputs) for _ in range(TRIES))
    return max(patient.gap(x, first) for x in more)


def _steps(patient: Patient) -> float:
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
