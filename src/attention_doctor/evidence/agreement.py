"""Which version, right or wrong, gives the same outputs with the same weights."""

import contextlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from annotated_attention.masks import block_future
from annotated_attention.multihead import MultiheadAttention
from attention_doctor.adapters import torch_like
from attention_doctor.call.inputs import Failed, NotAsked
from attention_doctor.call.patient import Patient
from attention_doctor.evidence import situations
from attention_doctor.evidence.parameters import Projections, find
from attention_doctor.evidence.situations import Situation
from attention_doctor.mistakes import MISTAKES

Answers = Sequence[tuple[Situation, Tensor]]


@dataclass(frozen=True)
class Agreement:
    """The version that gives the same outputs with the same weights."""

    version: str  # "right", or the code of a mistake
    said: str  # with which weights, in how many situations
    code: str = ""  # of a mistake, or of another order of the projections; "" for neither
    packed: bool = False  # that order is one of a packed matrix that no known name has


def agreement(patient: Patient) -> Agreement:
    """Put the weights that can be found into our own versions, and compare outputs.

    Raises:
        NotAsked: no version agrees, or none can be compared.
    """
    if patient.attend.module is None:
        raise NotAsked("no module is given, so that there are no weights to compare with")
    readings = list(find(patient.module, patient.embed_dim, patient.num_heads))
    if not readings:
        raise NotAsked("no projections are found among the parameters, by name or by shape")
    answers = answered(patient)
    usual = [reading for reading in readings if not reading.code]
    # Where masks give NaN, a mistake beside them shows in what is not masked.
    numbers = [(case, answer) for case, answer in answers if answer.isfinite().all()]
    right: type[nn.Module] = MultiheadAttention
    candidates = [("", right, x) for x in usual]
    candidates += [
        (x.code, x.version, reading)
        for reading, x in itertools.product(usual, MISTAKES.values())
        if x.of is right and x.code not in _skipped(patient, reading)
    ]
    candidates += [(x.code, right, x) for x in readings if x.code]
    for code, version, reading in candidates:
        if _agrees(patient, numbers, version, reading):
            if not code and len(numbers) < len(answers):
                raise NotAsked("with some masks, it gives NaN, and nothing else is wrong")
            name = "right" if version is right else code
            said = "the right version" if version is right else f"`{code}`"
            said = f"with {said}, in all of {len(numbers)} situations; parameters: {reading.how}"
            return Agreement(name, said, code, reading.packed)
    raise NotAsked(
        f"put into a right attention, and into each known mistake, its weights ({usual[0].how}) "
        "give other outputs: it does more, has positions inside, or, where something is wrong, "
        "makes two mistakes at once"
    )


def _skipped(patient: Patient, reading: Projections) -> set[str]:
    """Leave out mistakes of order: other readings are about them, and a guess proves none.

    Projections in a plain list cannot be given these weights, and look otherwise anyway.
    """
    order = {"chunks-in-the-wrong-order", "interleaved-per-head", "heads-in-a-plain-list"}
    guessed = reading.packed and patient.kind != "cross"
    return order | ({"keys-and-values-swapped"} if guessed else set())


def answered(patient: Patient) -> list[tuple[Situation, Tensor]]:
    """Ask in situations that tell the versions apart; what fails says nothing here."""
    two = Situation("two tokens", patient.draw(22, n=2, m=2), None)
    found: list[tuple[Situation, Tensor]] = []
    for case in (situations.free(patient, 21), two, *situations.all_masked(patient)):
        with contextlib.suppress(Failed, NotAsked):
            found.append((case, patient.ask(case.inputs, case.blocked)))
    return found


def _agrees(
    patient: Patient, answers: Answers, version: type[nn.Module], reading: Projections
) -> bool:
    """Tell whether a version with these weights gives the same answers."""
    kind = "self" if patient.own_future else patient.called_as
    other = Patient(torch_like(_built(patient, version, reading), kind), patient.sizes, kind)
    for case, answer in answers:
        blocked = case.blocked
        if patient.own_future:
            future = block_future(answer.size(1)).expand(len(answer), -1, -1)
            blocked = future if blocked is None else blocked | future
        try:
            if not patient.same(answer, other.ask(case.inputs, blocked)):
                return False
        except (Failed, NotAsked):  # a version that does not fit these sizes
            return False
    return True


def state_of(reading: Projections) -> dict[str, Tensor]:
    """Give projections the names that PyTorch's class has for them."""
    *qkv, out = reading.matrices
    return {
        "in_proj_weight": torch.cat(qkv)[:, :-1],
        "in_proj_bias": torch.cat(qkv)[:, -1],
        "out_proj.weight": out[:, :-1],
        "out_proj.bias": out[:, -1],
    }


def _built(patient: Patient, version: type[nn.Module], reading: Projections) -> nn.Module:
    """Make a version with these weights."""
    module = version(
        patient.embed_dim,
        patient.num_heads,
        batch_first=True,
        # Without memory of its own: initial values would take longer than all questions together.
        device="meta",
    )
    module.load_state_dict(state_of(reading), strict=False, assign=True)
    return module.to(patient.dtype).eval()
