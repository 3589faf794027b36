"""Which token of the input changes which token of the output."""

import torch
from torch import Tensor

from attention_doctor.inputs import Inputs
from attention_doctor.patient import Patient
from attention_doctor.report import Finding, convention

_COUNTS = 1e-6  # of the largest reaction; a smaller one is rounding


def reactions(patient: Patient, inputs: Inputs, blocked: Tensor | None = None) -> dict[str, Tensor]:
    """Measure how strongly each output token reacts to each input token, by the Jacobian.

    Returns:
        For ``query``, ``key`` and ``value``, for those that are one tensor once: the largest
        reaction, [sample, query, sample, token]. Zeros where no gradient flows.
    """
    return patient.once("reactions", inputs, blocked, lambda: _react(patient, inputs, blocked))


def _react(patient: Patient, inputs: Inputs, blocked: Tensor | None) -> dict[str, Tensor]:
    leaves = inputs.map(lambda x: x.clone().requires_grad_())
    tensors = roles(leaves)
    output = patient.ask(leaves, blocked, gradient=True)
    b, n, _ = output.shape
    found = {name: x.new_zeros(b, n, b, x.size(1)) for name, x in tensors.items()}
    source = torch.Generator().manual_seed(7)
    direction = torch.randn(output.size(-1), generator=source, dtype=torch.float64).to(output)
    for i, one in enumerate((output @ direction).flatten() if output.requires_grad else ()):
        for x in tensors.values():
            x.grad = None
        patient.differentiate(one)
        for name, x in tensors.items():
            if x.grad is not None:
                found[name][i // n, i % n] = x.grad.abs().amax(-1)
    return found


def roles(inputs: Inputs) -> dict[str, Tensor]:
    """Give the tensors by name, each once: ``query`` alone where all three are one."""
    names = {id(x): name for name, x in reversed(vars(inputs).items())}
    return {names[id(x)]: x for x in vars(inputs).values()}


def moves(patient: Patient, inputs: Inputs, blocked: Tensor | None = None) -> Tensor:
    """Measure how far each output moves when a key and its value are replaced.

    Returns:
        (b, n, m), by how much, relative to the size of the output.
    """
    return patient.once("moves", inputs, blocked, lambda: _move(patient, inputs, blocked))


def _move(patient: Patient, inputs: Inputs, blocked: Tensor | None) -> Tensor:
    before = patient.answer(inputs, blocked)
    size = before.nan_to_num(0.0, 0.0, 0.0).abs().max().clamp(min=1e-30)
    other = patient.draw(11, len(before), inputs.query.size(1), inputs.key.size(1))
    columns = []
    for j in range(inputs.key.size(1)):
        after = patient.ask(_replaced(inputs, other, j), blocked)
        columns.append((after - before).abs().amax(-1) / size)
    return torch.stack(columns, -1)


def influence(
    patient: Patient, inputs: Inputs, blocked: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Tell which keys have influence on a query, by their value or their score.

    Returns:
        (b, n, m) twice: those that have, more than rounding; and those that have none at all.
    """
    reaction = reactions(patient, inputs, blocked)
    names = [name for name in reaction if name != "query"] or ["query"]
    own = torch.arange(len(inputs.query))
    strength = torch.stack([reaction[name][own, :, own] for name in names]).sum(0)
    moved = moves(patient, inputs, blocked)
    seen = counts(strength) | (moved > 100 * patient.tolerance)
    return seen, (strength == 0) & (moved == 0)


def exchanged(x: Tensor, place: int, tokens: Tensor) -> Tensor:
    """Put other tokens, (b, 1, e), in one place of a sequence."""
    return torch.cat([x[:, :place], tokens, x[:, place + 1 :]], 1)


def _replaced(inputs: Inputs, other: Inputs, j: int) -> Inputs:
    key = exchanged(inputs.key, j, 3 * other.key[:, j : j + 1])
    if inputs.query is inputs.key:
        return Inputs(key, key, key)
    return Inputs(inputs.query, key, exchanged(inputs.value, j, 3 * other.value[:, j : j + 1]))


def number(x: Tensor) -> Tensor:
    """Give one number with a gradient for every number of a tensor."""
    source = torch.Generator().manual_seed(19)
    return (x * torch.randn(x.shape, generator=source).to(x)).sum()


def counts(reaction: Tensor) -> Tensor:
    """Tell which reactions are more than rounding."""
    reaction = reaction.nan_to_num(nan=torch.inf)
    largest = reaction[reaction.isfinite()]
    return reaction > _COUNTS * (largest.max() if largest.numel() else 0)


def local(seen: Tensor, may: Tensor) -> str:
    """Say which design lets queries see some tokens: windows, blocks, steps; "" if none does.

    Args:
        seen: (n, m), which key has influence on which query; themselves included.
        may: (n, m), what no causal mask hides.
    """
    n, m = seen.shape
    if n != m:
        return ""
    place = torch.arange(n)
    distance = place[:, None] - place
    designs = [
        (f"a window of {behind + ahead + 1}, themselves included, and nothing farther away",
         (distance <= behind) & (distance >= -ahead))
        for behind in range(1, n - 1) for ahead in range(n)
    ]  # fmt: skip
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

    Args:
        patient: the implementation under examination.
        seen: (b, n, m), which keys have influence.
        deaf: (b, n, m), which have none at all.
        may: (n, m), what no causal mask hides.
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
