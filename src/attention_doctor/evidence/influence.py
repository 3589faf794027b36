"""Which token of the input changes which token of the output."""

import itertools

import torch
from torch import Tensor

from attention_doctor.call.inputs import Inputs
from attention_doctor.call.patient import Patient

_COUNTS = 1e-3  # of the size of the output, where numbers are so coarse that more is tolerated


def moves(patient: Patient, inputs: Inputs, blocked: Tensor | None = None) -> Tensor:
    """Measure how far each output moves when one token is replaced, as key and as value.

    Returns:
        [sample, query, sample, token], relative to the size of the output; what is NaN moves
        without end.
    """
    before = patient.ask(inputs, blocked)
    size = before.nan_to_num(0.0, 0.0, 0.0).abs().max().clamp(min=1e-30)
    times = 3 * inputs.key.square().mean().sqrt()  # larger than those that are there
    (b, m), n = inputs.key.shape[:2], inputs.query.size(1)
    other = patient.draw(11, b, n, m)
    other = other.map(lambda x: times * x)

    def effect(i: slice | int, j: slice | int) -> Tensor:
        after = patient.ask(inputs.replaced(other, i, j), blocked)
        return ((after - before).abs().amax(-1) / size).nan_to_num(torch.inf, torch.inf)

    moved, own = before.new_zeros(b, n, b, m), torch.arange(b)
    whole = torch.stack([effect(i, slice(None)) for i in range(b)], -1)  # (b, n, b)
    if whole.movedim(1, 2)[own[:, None] != own].any():
        for i, j in itertools.product(range(b), range(m)):
            moved[..., i, j] = effect(i, j)
    else:  # each sample for itself: a token of all of them at once
        for j in range(m):
            moved[own, :, own, j] = effect(slice(None), j)
    return moved


def within(moved: Tensor) -> Tensor:
    """Leave out what other samples do: (b, n, m)."""
    own = torch.arange(len(moved))
    return moved[own, :, own]


def influence(
    patient: Patient, inputs: Inputs, blocked: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Tell which keys have influence on a query, by their value or their score.

    Tokens are made small, so that no weight is so close to zero that it is lost in rounding.

    Returns:
        (b, n, m) twice: those that have, more than rounding; and those that have none at all.
    """
    moved = within(moves(patient, inputs.map(_small), blocked))
    return moved > min(patient.tolerance, _COUNTS), moved == 0


def across(patient: Patient, inputs: Inputs, blocked: Tensor | None = None) -> int:
    """Count the pairs of an output and a token of another sample that moves it."""
    moved = moves(patient, inputs.map(_small), blocked)
    others = ~torch.eye(len(moved), dtype=torch.bool)[:, None, :, None]
    return int(((moved > min(patient.tolerance, _COUNTS)) & others).sum())


def _small(tokens: Tensor) -> Tensor:
    return tokens * 0.3


def exchanged(x: Tensor, place: int, tokens: Tensor) -> Tensor:
    """Put other tokens, (b, 1, e), in one place of a sequence."""
    return torch.cat([x[:, :place], tokens, x[:, place + 1 :]], 1)
