"""What is wrong with scores, seen inside: their scale, and the axis of their softmax."""

from collections.abc import Iterator, Sequence

from torch import Tensor

from attention_doctor.look_paths import NORMS, before
from attention_doctor.look_seen import Seen
from attention_doctor.look_sight import Look
from attention_doctor.patient import Patient
from attention_doctor.places import Where
from attention_doctor.report import CONVENTION, WRONG, Finding

_CLOSE = 1e-3
_BENDS = {"relu", "gelu", "silu", "tanh", "sigmoid", "elu", "softplus"}
_OTHER_SCALE = "the scores are scaled by another number than 1/√d"


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
        d, factor = seen.width, seen.scale
        if _is(factor, d**-0.5) and _is(other.scale, d**-0.5):
            continue
        code = _code(patient, seen, other)
        text = f"{factor:.3g}"
        if code == "scale-by-model-width":
            text += f" = 1/√{round(factor**-2)}"
        if not _is(factor, other.scale):
            lengths = [x.scores.size(x.axis) for x in (seen, other)]
            text += f" with {lengths[0]} keys and by {other.scale:.3g} with {lengths[1]}"
        evidence = f"the product q kᵀ is multiplied by {text}; with d = {d}, 1/√d is {d**-0.5:.3g}"
        # Some families of models have no scale, or another: what is wrong there, a reference says.
        meant = patient.trusted_scale is None or _is(factor, patient.trusted_scale)
        meant &= code in ("scale-by-convention", "no-scale")
        severity = CONVENTION if meant else WRONG
        yield seen_inside(code, _OTHER_SCALE, evidence, seen.where("scale", "product"), severity)
        return


def _code(patient: Patient, seen: Seen, other: Seen) -> str:
    """Name a scale that is not the usual one."""
    factor, d = seen.scale or 0.0, seen.width
    widths = {patient.embed_dim, d * patient.num_heads} - {d}
    if not _is(factor, other.scale or 0.0):
        by_length = [
            all(_is(x.scale or 0.0, x.scores.size(axis) ** -0.5) for x in (seen, other))
            for axis in (seen.axis, -1, -2) if seen.scores.dim() > 1
        ]  # fmt: skip
        return "scale-by-length" if any(by_length) else "scale-by-convention"
    if _is(factor, 1.0):
        return "no-scale"
    if any(_is(factor, width**-0.5) for width in widths):
        return "scale-by-model-width"
    if _is(factor, 1 / d):
        return "scale-twice"
    inverted = [d**0.5, d, *(x for width in widths for x in (width**0.5, width))]
    return "scale-inverted" if any(_is(factor, x) for x in inverted) else "scale-by-convention"


def late(first: Look) -> Iterator[Finding]:
    """Find weights that are scaled, in the place of scores."""
    for seen in first.found:
        if "late scale" in seen.steps and seen.mixed is not None and seen.summed:
            sums = seen.mixed.double().sum(seen.summed[0])
            if (sums - 1).abs().max() < _CLOSE:  # other weights are added
                continue
            symptom = "the weights are multiplied by a number after the softmax"
            evidence = f"a row of weights sums to {sums.median():.3g}"
            yield seen_inside("scaled-after-softmax", symptom, evidence, seen.where("late scale"))
            return


def sides(first: Look) -> Iterator[Finding]:
    """Find queries that are normalised and keys that are not, and an activation on the values."""
    for seen in (x for x in first.found if x.products):
        product, mix = seen.products
        normed = [any(x.name in NORMS for x in before(y)) for y in (product.left, product.right)]
        if normed[0] != normed[1]:
            symptom = "either the queries or the keys are normalised, and not both"
            place = seen.where("product")
            yield seen_inside("one-side-normed", symptom, "", place, CONVENTION)
        value = next(x for x in (mix.left, mix.right) if x.value is seen.value)
        bends = [x for x in before(value) if x.name in _BENDS]
        if bends:
            symptom = f"the values go through {bends[0].name} before they are mixed"
            yield seen_inside("values-bent", symptom, "", bends[0].where, CONVENTION)


def returned(patient: Patient, first: Look) -> Iterator[Finding]:
    """Find weights that are returned, and are not those that mix the values."""
    weights, (seen, *more) = patient.weights, first.found
    if more or weights is None or weights.shape != seen.weights.shape:
        return
    rows = weights.double().sum(seen.axis)
    if (rows - 1).abs().max() < _CLOSE and not patient.same(weights, seen.weights):
        symptom = "the weights that are returned are not those that were used"
        evidence = f"they differ by {patient.gap(weights, seen.weights):.0%} of their size"
        yield seen_inside("other-weights-returned", symptom, evidence, seen.where("softmax"))


def heads(patient: Patient, first: Look) -> Iterator[Finding]:
    """Find one matrix of weights for all heads."""
    b, n, m = *first.output.shape[:2], first.leaves.key.size(1)
    (seen, *more), h = first.found, patient.num_heads
    if h > 1 and not more and seen.scores.numel() == b * n * m:
        symptom = f"there is one matrix of weights for each sample, and not {h}"
        evidence = f"the scores have shape {tuple(seen.scores.shape)}; if one head is meant, ask "
        evidence += "with `--num-heads 1`"
        place = seen.where("product")
        yield seen_inside("heads-not-split", symptom, evidence, place, CONVENTION)


def _is(factor: float, expected: float) -> bool:
    return abs(abs(factor) - abs(expected)) <= _CLOSE * abs(expected)


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
    symptom = "each token attends over heads, and sees no other token"
    evidence = f"the scores have shape {tuple(seen.scores.shape)}: {h} heads against {h} heads"
    return seen_inside("heads-attended-over", symptom, evidence, seen.where("product"))


def _axis(patient: Patient, seen: Seen) -> Finding | None:
    mixed = seen.mixed
    if mixed is None or not seen.products or not seen.summed:
        return None
    if any(_sums_to_one(mixed, axis) for axis in seen.summed):
        return None
    if not _reordered(mixed, seen.weights):
        return None  # more than their order has changed since the softmax
    what = _ran_over(patient, seen, mixed)
    shape = tuple(seen.scores.shape)
    if seen.keys == seen.axis and what == "queries":
        symptom = "each output sums the weights of one key over the queries"
        evidence = f"the softmax runs over the keys, axis {seen.axis} of {shape}; the mix does not"
        return seen_inside("mixed-over-queries", symptom, evidence, seen.where("mix"))
    symptom = f"weights sum to one over the {what}, and not over the keys"
    evidence = f"the softmax runs over axis {seen.axis} of {shape}; the mix sums over another"
    return seen_inside(f"softmax-over-{what}", symptom, evidence, seen.where("softmax"))


def _reordered(x: Tensor, y: Tensor) -> bool:
    """Tell whether two tensors hold the same numbers in any order."""
    numbers = [z.double().flatten().sort().values for z in (x, y)]
    same = numbers[0].shape == numbers[1].shape
    return same and bool(((numbers[0] - numbers[1]).nan_to_num().abs() < 1e-6).all())


def _ran_over(patient: Patient, seen: Seen, mixed: Tensor) -> str:
    """Say what the softmax runs over, where it is not what the mix sums over."""
    size = seen.scores.size(seen.axis)
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
