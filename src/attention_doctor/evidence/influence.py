"""Which token of the input changes which token of the output."""

import itertools

import torch
from torch import Tensor

from attention_doctor.call.patient import Inputs, Patient
from attention_doctor.report import Finding, convention

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
        chosen = torch.zeros(b, m, 1, dtype=torch.bool)
        chosen[i, j] = True
        key = torch.where(chosen, other.key, inputs.key)
        changed = Inputs(key, key, key)
        if inputs.query is not inputs.key:
            changed = Inputs(inputs.query, key, torch.where(chosen, other.value, inputs.value))
        after = patient.ask(changed, blocked)
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


def local(seen: Tensor, may: Tensor) -> str:
    """Say which design lets queries see some tokens: windows, blocks, steps; "" if none does.

    Of (n, m), ``seen`` has influence, themselves included; ``may`` is what no causal mask hides.
    """
    n, m = seen.shape
    if n != m:
        return ""
    place = torch.arange(n)
    distance = place[:, None] - place
    designs = [
        (
            f"a window of {behind + ahead + 1}, themselves included, and nothing farther away",
            (distance <= behind) & (distance >= -ahead),
        )
        for behind in range(1, n - 1)
        for ahead in range(n)
    ]
    for w in range(1, n - 1):
        blocks = [(place + offset) // (w + 1) for offset in range(w + 1)]
        designs += [(f"blocks of {w + 1}", block[:, None] == block) for block in blocks]
        designs += [
            (f"a window of {w} on each side, and the first {k}", (distance.abs() < w) | (place < k))
            for k in range(1, n - w)
        ]
        words = f"every token that is a multiple of {w + 1} away"
        designs.append((words, distance % (w + 1) == 0))
    return next((words for words, mask in designs if torch.equal(seen & may, mask & may)), "")


def designed(patient: Patient, seen: Tensor, deaf: Tensor, may: Tensor) -> Finding | None:
    """Find that tokens are unseen by design: in windows, or since each query chooses its keys.

    Of (b, n, m), ``seen`` has influence, and ``deaf`` none at all; no causal mask hides what is in
    ``may``, (n, m).
    """
    said = f"{int((deaf.any(0) & may).sum())} of {int(may.sum())} pairs are not seen"
    if (deaf.any(0) & ~deaf.all(0) & may).any():  # others in another sample
        symptom = "each query chooses some keys: by design, not all that it may see matter"
        return convention("keys-selected", symptom, said)
    itself = torch.eye(*may.shape, dtype=torch.bool)
    visible = seen.any(0) | (itself if patient.kind != "cross" else torch.zeros_like(itself))
    if words := local(visible & may, may):
        return convention("sliding-window", f"tokens see {words}", said)
    return None
