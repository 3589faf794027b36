"""What is wrong with scores, seen inside: their scale, and the axis of their softmax."""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from attention_doctor.patient import Patient
from attention_doctor.places import Where
from attention_doctor.report import CONVENTION, WRONG, Finding
from attention_doctor.seen import Seen
from attention_doctor.sight import Look

_CLOSE = 1e-3


def seen_inside(
    code: str, symptom: str, evidence: str, place: Where | None, severity: str = WRONG
) -> Finding:
    """Make a finding about a line."""
    return Finding(code, severity, symptom, evidence, "", "", "inside", place)


def scale(patient: Patient, first: Look, short: Look | None) -> Iterator[Finding]:
    """Compare the factor on the scores, in calls of two lengths, with 1/√d, d the keys' width."""
    others = first.found if short is None else short.found
    for i, seen in enumerate(first.found):
        other = others[i] if i < len(others) else seen
        if seen.scale is None or other.scale is None or seen.width < 2 or seen.normalised:
            continue
        right = 1 / math.sqrt(seen.width)
        if not (_is(seen.scale, right) and _is(other.scale, right)):
            yield _other_scale(patient, seen, other)
            return


def _code(patient: Patient, seen: Seen, other: Seen) -> str:
    """Name a scale that is not the usual one."""
    found, d = seen.scale or 0.0, seen.width
    widths = {patient.embed_dim, d * patient.num_heads} - {d}
    if not _is(found, other.scale or 0.0):
        roots = {
            all(_is(x.scale or 0.0, x.scores.size(axis) ** -0.5) for x in (seen, other))
            for axis in (seen.axis, -1, -2) if seen.scores.dim() > 1
        }  # fmt: skip
        return "scale-by-length" if True in roots else "scale-by-convention"
    if _is(found, 1.0):
        return "no-scale"
    if any(_is(found, width**-0.5) for width in widths):
        return "scale-by-model-width"
    if _is(found, 1 / d):
        return "scale-twice"
    return "scale-inverted" if _is(found, d**0.5) or _is(found, d) else "scale-by-convention"


def _other_scale(patient: Patient, seen: Seen, other: Seen) -> Finding:
    code, found, d = _code(patient, seen, other), seen.scale or 0.0, seen.width
    trusted = patient.trusted and patient.trusted.found[0].scale
    text = f"{found:.3g}" + (f" = 1/√{round(found**-2)}" if code == "scale-by-model-width" else "")
    if not _is(found, other.scale or 0.0):
        lengths = [x.scores.size(x.axis) for x in (seen, other)]
        text += f" with {lengths[0]} keys and by {other.scale:.3g} with {lengths[1]}"
    # Some families of models have no scale, or another: what is wrong there, a reference says.
    convention = code == "scale-by-convention"
    convention |= code == "no-scale" and (trusted is None or _is(found, trusted))
    return seen_inside(
        code,
        "the scores are scaled by another number than 1/√d",
        f"the product q kᵀ is multiplied by {text}; with d = {d}, 1/√d is {d**-0.5:.3g}",
        seen.where("scale", "product"),
        severity=CONVENTION if convention else WRONG,
    )


def late(first: Look) -> Iterator[Finding]:
    """Find weights that are scaled, in the place of scores."""
    for seen in first.found:
        if "late scale" in seen.steps and seen.mixed is not None and seen.summed:
            sums = seen.mixed.double().sum(seen.summed[0])
            if (sums - 1).abs().max() < _CLOSE:  # other weights are added
                continue
            yield seen_inside(
                "scaled-after-softmax",
                "the weights are multiplied by a number after the softmax",
                f"a row of weights sums to {sums.median():.3g}",
                seen.where("late scale"),
            )
            return


def heads(patient: Patient, first: Look) -> Iterator[Finding]:
    """Find one matrix of weights for all heads."""
    b, n, m = *first.output.shape[:2], first.leaves.key.size(1)
    (seen, *more), h = first.found, patient.num_heads
    if h > 1 and not more and seen.scores.numel() == b * n * m:
        yield seen_inside(
            "heads-not-split",
            f"there is one matrix of weights for each sample, and not {h}",
            f"the scores have shape {tuple(seen.scores.shape)}, made from keys of {seen.width} "
            "numbers",
            seen.where("product"),
            severity=CONVENTION,
        )


def slopes(patient: Patient, equal: Look | None) -> Iterator[Finding]:
    """Find slopes of ALiBi that follow the formula, where checkpoints have others.

    Args:
        patient: how many heads there are, and what was seen in a reference.
        equal: a call with equal tokens, whose scores differ by the bias alone.
    """
    h, trusted = patient.num_heads, patient.trusted
    formula = 2.0 ** (-8 * torch.arange(1, h + 1, dtype=torch.float64) / h)
    if not h & (h - 1) or not _falls_by(equal, formula) or _falls_by(trusted, formula):
        return
    assert equal is not None
    yield seen_inside(
        "alibi-slopes-by-formula",
        f"the slopes of {h} heads are not those of checkpoints",
        f"per token, the bias falls by {', '.join(f'{x:.3g}' for x in formula)}",
        equal.found[0].where("weak mask", "softmax"),
        severity=CONVENTION if trusted is None else WRONG,
    )


def _falls_by(equal: Look | None, numbers: Tensor) -> bool:
    """Tell whether the scores of neighbouring keys differ by these numbers, and by no other."""
    if equal is None:
        return False
    rows = [x.scores.masked_fill(x.mask, math.nan).movedim(x.axis, -1) for x in equal.found]
    found = torch.cat([x.double().diff().abs().flatten() for x in rows])
    near = (found[found.isfinite()][:, None] / numbers - 1).abs() < _CLOSE
    return bool(near.any(0).all()) and bool(near.any(1).all())


def _is(found: float, expected: float) -> bool:
    return abs(abs(found) - abs(expected)) <= _CLOSE * abs(expected)


def axis(patient: Patient, found: Sequence[Seen]) -> Iterator[Finding]:
    """Tell whether the softmax runs over the axis that is summed over when values are mixed."""
    for seen in found:
        if (finding := _over_heads(patient, seen) or _axis(patient, seen)) is not None:
            yield finding
            return


def _over_heads(patient: Patient, seen: Seen) -> Finding | None:
    """Find scores of heads against heads, in place of tokens against tokens."""
    h, n = patient.num_heads, patient.n
    rows, columns = seen.scores.shape[-2:] if seen.scores.dim() > 2 else (0, 0)
    if patient.kind == "cross" or not rows == columns == h != n or n not in seen.scores.shape:
        return None
    return seen_inside(
        "heads-attended-over",
        "each token attends over heads, and sees no other token",
        f"the scores have shape {tuple(seen.scores.shape)}: {h} heads against {h} heads",
        seen.where("product"),
    )


_OVER = {
    "queries": "softmax-over-queries",
    "heads": "softmax-over-heads",
    "samples": "softmax-over-samples",
}


def _axis(patient: Patient, seen: Seen) -> Finding | None:
    mixed = seen.mixed
    if (
        mixed is None
        or not seen.products
        or not seen.summed
        or mixed.numel() != seen.weights.numel()
    ):
        return None
    if any(_sums_to_one(mixed, axis) for axis in seen.summed):
        return None
    numbers = [x.double().flatten().sort().values for x in (mixed, seen.weights)]
    if not torch.allclose(numbers[0], numbers[1], atol=1e-6, equal_nan=True):
        return None  # more than their order has changed since the softmax
    what = _ran_over(patient, seen)
    if seen.keys == seen.axis and what == "queries":
        return seen_inside(
            "mixed-over-queries",
            "each output sums the weights of one key over the queries",
            f"the softmax runs over the keys, axis {seen.axis} of {tuple(seen.scores.shape)}, and "
            "the mix sums over the other axis",
            seen.where("mix"),
        )
    return seen_inside(
        _OVER[what],
        f"weights sum to one over the {what}, and not over the keys",
        f"the softmax runs over axis {seen.axis} of {tuple(seen.scores.shape)}; the mix sums over "
        "another",
        seen.where("softmax"),
    )


def _ran_over(patient: Patient, seen: Seen) -> str:
    """Say what the softmax runs over, where it is not what the mix sums over."""
    mixed, size = seen.mixed, seen.scores.size(seen.axis)
    assert mixed is not None
    over = [axis for axis in range(-mixed.dim(), 0) if _sums_to_one(mixed, axis)]
    mix = seen.products[1]
    own = mix.own[0] if mix.contracted[0][0] == seen.summed[0] else mix.own[1]
    if over and over[0] in own:
        return "queries"
    if not over and size not in (patient.b, patient.num_heads):
        return "queries"
    return "samples" if size == patient.b else "heads"


def _sums_to_one(weights: Tensor, axis: int) -> bool:
    sums = weights.double().sum(axis)
    sums = sums[sums.isfinite()]
    return bool(sums.numel()) and bool(((sums - 1).abs() < _CLOSE).all())
