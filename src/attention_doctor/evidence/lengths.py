"""Other sizes: the longest text, and what a call did before it failed."""

import contextlib
import re

from attention_doctor.call.fitting import shapes
from attention_doctor.call.inputs import Failed, NotAsked
from attention_doctor.call.patient import Patient
from attention_doctor.call.trace import Step, Trace

_CHUNKS = {"chunk", "split", "tensor_split", "unsafe_chunk", "unsafe_split"}


def longest(patient: Patient) -> str:
    """Name the buffer or parameter that is too short for the longest text; "" where none is."""
    n = 0 if patient.sizes.only[0] else patient.max_length  # 0 means the usual size
    try:
        patient.ask(patient.draw(0, n=n, m=n))
    except (Failed, NotAsked) as failure:
        for name, shape in shapes(patient.module):
            for x in {*shape} - {patient.embed_dim, patient.embed_dim // patient.num_heads}:
                if patient.n <= x < n and re.search(rf"\b{x}\b|index", str(failure)):
                    return f"`{name}` has {shape}, and {n} tokens do not fit: {failure}"
    return ""


def split_before_it_failed(patient: Patient) -> tuple[Step, str] | None:
    """Give the step that splits packed projections along another axis than theirs, in words."""
    x, widths = patient.draw(0), {2 * patient.embed_dim, 3 * patient.embed_dim}
    trace = Trace(query=x.query, key=x.key, value=x.value)
    with contextlib.suppress(Failed, NotAsked), trace:
        patient.ask(x)
    for step in trace.steps:
        old = step.parents[0].value if step.parents else None
        if step.name not in _CHUNKS or old is None or not {*old.shape} & widths:
            continue
        axis = step.option("dim", 2) or 0
        if old.size(axis) not in widths:
            return step, f"a tensor of {tuple(old.shape)} is split along axis {axis}"
    return None
