"""Watched calls: which attentions were seen in each."""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from attention_doctor.call.inputs import Failed, NotAsked
from attention_doctor.call.patient import Patient
from attention_doctor.call.trace import Step, Trace
from attention_doctor.evidence import situations
from attention_doctor.evidence.sight import Seen, attentions
from attention_doctor.evidence.situations import Situation


@dataclass(frozen=True)
class Look:
    """One call, and every attention that was seen in it, in order."""

    case: Situation
    found: tuple[Seen, ...]


@contextlib.contextmanager
def in_sight() -> Iterator[None]:
    """Leave out what cannot be seen, for a reason that is given."""
    try:
        yield
    except Failed as failure:  # which other measurements say
        raise NotAsked("the call fails") from failure
    except NotAsked:
        raise
    except Exception as error:  # what the sight stumbles over is no fault of the patient
        raise NotAsked(f"the sight fails, with {type(error).__name__}") from error


@in_sight()
def watched(patient: Patient, case: Situation) -> tuple[list[Step], Tensor]:
    """Give the steps of a call, and its output."""
    x, blocked = case.inputs, case.blocked
    with _uncompiled(), Trace(query=x.query, key=x.key, value=x.value, mask=blocked) as trace:
        output = patient.ask(x, blocked)
    return trace.steps, output


@in_sight()
def look(patient: Patient, case: Situation) -> Look:
    """Watch one call.

    Raises:
        NotAsked: nothing can be seen, for a reason that is given.
    """
    found = tuple(attentions(watched(patient, case)[0]))
    if not found:
        raise NotAsked("no softmax over a product of queries and keys could be seen")
    return Look(case, found)


def _uncompiled() -> contextlib.AbstractContextManager[object]:
    """Let compiled code run line by line: what is compiled hands nothing over."""
    if "torch._dynamo" not in sys.modules:
        return contextlib.nullcontext()
    return torch.compiler.set_stance("force_eager")


def free(patient: Patient) -> Look:
    """Watch a call without a mask."""
    return look(patient, situations.free(patient))


def short(patient: Patient) -> Look:
    """Watch a call of another length."""
    return look(patient, Situation("short", patient.draw(22, n=2, m=2), None))


def equal(patient: Patient) -> Look:
    """Watch a call with equal tokens."""
    inputs = patient.draw(12).map(lambda tokens: tokens[:, :1].expand_as(tokens))
    return look(patient, Situation("equal tokens", inputs, None))


def zeros(patient: Patient) -> Look:
    """Watch a call with tokens of zeros."""
    return look(patient, Situation("zeros", patient.draw(12).map(torch.zeros_like), None))


def masked(patient: Patient) -> list[Look]:
    """Watch a call with each kind of mask, as far as they show something."""
    found: list[Look] = []
    for case in situations.all_masked(patient):
        with contextlib.suppress(NotAsked):
            found.append(look(patient, case))
    return found
