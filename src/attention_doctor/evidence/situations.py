"""The inputs and masks of the tests, with sizes at which mistakes become visible."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from annotated_attention.masks import block_future
from attention_doctor.call.inputs import Inputs, NotAsked
from attention_doctor.call.patient import Patient


@dataclass(frozen=True)
class Situation:
    """One test case: inputs, and a mask, (b, n, m), or None.

    The mask ``varies`` between samples and queries, ``"any"``; queries only, ``"shared"``; samples
    only, ``"padding"``; "" if it is none of these.
    """

    name: str  # for the report
    inputs: Inputs
    blocked: Tensor | None
    varies: str = ""


def only_for(patient: Patient, *kinds: str) -> None:
    """Leave a test out for all other kinds."""
    if patient.kind not in kinds:
        raise NotAsked(f"the test does not apply to kind {patient.called_as}")


def free(patient: Patient, seed: int = 1) -> Situation:
    """Make a case without a mask."""
    return Situation("no mask", patient.draw(seed), None)


def cases(patient: Patient) -> list[Situation]:
    """Make a case without a mask, and one with each kind of mask that it takes."""
    return [free(patient), *masked(patient)]


def masked(patient: Patient, square: bool = False, n: int = 0) -> Iterator[Situation]:
    """Make a case with each kind of mask that the implementation takes.

    A square one has as many samples as queries and keys, so that a wrong axis fits by chance. With
    ``n``, one sequence has this length.
    """
    b, m = patient.b, n or (patient.m if patient.kind != "self" else patient.n)
    n = n or patient.n
    if square:
        b = n = m = min(3, patient.max_length)
    for name, (each, samples, queries, seed) in _MASKS.items():
        if patient.masks in ("any", name) or (patient.masks == "apart" and name != "any"):
            blocked = _random(b if samples else 1, n if queries else 1, m, seed).expand(b, n, m)
            if patient.own_future:  # each token sees one: the first, or itself in a window
                blocked = blocked & (torch.arange(m) > 0)
                blocked &= ~torch.eye(n, m, dtype=torch.bool) | (not queries)
            words = f"a mask {each}{', as many samples as tokens' if square else ''}"
            yield Situation(words, patient.draw(2, b, n, m), blocked, name)


def all_masked(patient: Patient) -> list[Situation]:
    """Make all these cases, and one with the future blocked where it takes such a mask."""
    found, n = [*masked(patient), *masked(patient, square=True)], patient.n
    if not patient.own_future and patient.masks in ("any", "apart", "shared"):
        blocked = block_future(n).expand(patient.b, n, n)
        found.append(Situation("the future blocked", patient.draw(3, n=n, m=n), blocked))
    return found


def judged(patient: Patient, case: Situation) -> Tensor:
    """Leave out the pairs that say nothing, (b, n, m).

    Within one sequence, a token reacts to itself by its query. What padding sees is nobody's
    concern: a mask may hide everything from it. What hides the future by itself, and takes another
    mask, is asked about the past.
    """
    assert case.blocked is not None
    counts = torch.ones_like(case.blocked)
    if patient.kind != "cross":
        counts &= ~torch.eye(case.blocked.size(1), dtype=torch.bool)
        if case.varies == "padding":
            counts &= ~case.blocked[:, 0, :, None]
    if patient.own_future:
        counts = counts.tril()
    return counts


def _random(b: int, n: int, m: int, seed: int) -> Tensor:
    """Block about half of the keys: in each row at least one, and at least one not."""
    score = torch.rand((b, n, m), generator=torch.Generator().manual_seed(seed))
    rank = score.argsort(-1).argsort(-1)
    keep = 1 + torch.arange(b * n).view(b, n, 1) % max(1, m - 1)
    return rank >= keep


# What differs between samples, between queries, or between both; with the seed.
_MASKS = {
    "any": ("for each sample and query", True, True, 5),
    "shared": ("for each query", False, True, 6),
    "padding": ("for each sample", True, False, 8),
}
