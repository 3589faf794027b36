"""What is known of an attention: each measurement is taken once, and never changes afterwards.

A measurement is a function of the patient. None writes what another one reads, so that their order
is of no consequence; one that fails is kept as well, and fails again.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from attention_doctor.call.inputs import Failed, NotAsked
from attention_doctor.call.patient import Patient

Value = TypeVar("Value")


class Evidence:
    """Measurements of a patient, taken when they are first asked for.

    Attributes:
        patient: the implementation under examination.
    """

    def __init__(self, patient: Patient) -> None:
        """Measure nothing yet."""
        self.patient = patient
        self._known: dict[Callable[[Patient], Any], Any] = {}

    def of(self, measurement: Callable[[Patient], Value]) -> Value:
        """Give what a function measures.

        Raises:
            Failed: a call failed on the way.
            NotAsked: it does not apply, or cannot be measured.
        """
        if measurement not in self._known:
            try:
                self._known[measurement] = measurement(self.patient)
            except (Failed, NotAsked) as reason:
                self._known[measurement] = reason
        value = self._known[measurement]
        if isinstance(value, Failed | NotAsked):
            raise value
        return value

    def had(self, measurement: Callable[[Patient], Value]) -> Value | None:
        """Give what a function measures; None where it cannot be measured."""
        try:
            return self.of(measurement)
        except (Failed, NotAsked):
            return None
