"""Look inside one call: what an attention computes while it answers, and on which lines."""

import contextlib
import sys
from dataclasses import dataclass

import torch
from torch import Tensor

from attention_doctor.inputs import Inputs, NotAsked
from attention_doctor.look_attention import Seen, attentions
from attention_doctor.look_trace import Trace
from attention_doctor.patient import Patient
from attention_doctor.places import Frame
from attention_doctor.situations import Situation


@dataclass(frozen=True)
class Look:
    """What was seen in one call.

    Attributes:
        case: the call.
        leaves: its inputs.
        output: (b, n, e).
        found: every attention in it, in order.
        triangle: where the last triangle was made, on which causal masks stand.
    """

    case: Situation
    leaves: Inputs
    output: Tensor
    found: tuple[Seen, ...]
    triangle: Frame | None


def look(patient: Patient, case: Situation, gradient: bool = False) -> Look:
    """Watch one call; with ``gradient``, its results can be differentiated.

    Raises:
        Failed: the call failed.
        NotAsked: nothing could be seen, or the call gives another result when it is watched.
    """
    x, blocked = case.inputs, case.blocked
    if gradient:
        x = x.map(lambda tokens: tokens.clone().requires_grad_())
    chance = torch.get_rng_state()
    with _uncompiled(), Trace(query=x.query, key=x.key, value=x.value, mask=blocked) as trace:
        output = patient.ask(x, blocked, gradient)
    if trace.failed is not None:
        raise NotAsked(f"the watching itself failed, with {type(trace.failed).__name__}")
    if not _alike(patient, output, patient.answer(case.inputs, blocked)):
        torch.set_rng_state(chance)  # of what is random there may be another answer
        if not _alike(patient, output, patient.ask(case.inputs, blocked)):
            raise NotAsked("the result is another one when it is watched")
    found = tuple(attentions(trace.steps))
    if not found:
        raise NotAsked("no softmax over a product of queries and keys could be seen")
    return Look(case, x, output, found, trace.triangle)


def _alike(patient: Patient, output: Tensor, expected: Tensor) -> bool:
    """Tell whether results agree, those that are not finite in their places."""
    finite = torch.equal(output.isfinite(), expected.isfinite())
    return finite and patient.same(*(x.nan_to_num(0, 0, 0) for x in (output, expected)))


def _uncompiled() -> contextlib.AbstractContextManager[object]:
    """Let compiled code run line by line: what is compiled hands nothing over."""
    if "torch._dynamo" not in sys.modules:
        return contextlib.nullcontext()
    return torch.compiler.set_stance("force_eager")
