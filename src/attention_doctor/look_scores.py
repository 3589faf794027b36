"""What is wrong with scores and weights, seen inside: scale, masks, the axis of the softmax."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from attention_doctor.call.patient import Patient
from attention_doctor.call.places import Where
from attention_doctor.evidence.parameters import role_of
from attention_doctor.evidence.sight import Look, Seen, has_another_way
from attention_doctor.evidence.steps import LOW, NORMS, Operand, before, constant, is_projection
from attention_doctor.evidence.trace import Step, tensors
from attention_doctor.report import CONVENTION, WRONG, Finding

_CLOSE = 1e-3
# The names in checkpoints of grouped heads, which all repeat each key for neighbouring heads.
_CHECKPOINT = r"(^|.*\.)([kv]_proj|w[kv]|in_proj)([._]weight)?"
_BENDS = {"relu", "gelu", "silu", "tanh", "sigmoid", "elu", "softplus"}


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
        if seen.scale is None or other.scale is None or seen.width < 2 or any(_normed(seen)):
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
        symptom = "the scores are scaled by another number than 1/√d"
        evidence = f"the product q kᵀ is multiplied by {text}; with d = {d}, 1/√d is {d**-0.5:.3g}"
        # Some families of models have no scale, or another: what is wrong there, a reference says.
        meant = patient.trusted_scale is None or _is(factor, patient.trusted_scale)
        meant &= code in ("scale-by-convention", "no-scale")
        severity = CONVENTION if meant else WRONG
        yield seen_inside(code, symptom, evidence, seen.where("scale", "product"), severity)
        return


def _code(patient: Patient, seen: Seen, other: Seen) -> str:
    """Name a scale that is not the usual one."""
    factor, d = seen.scale or 0.0, seen.width
    widths = {patient.embed_dim, d * patient.num_heads} - {d}
    if not _is(factor, other.scale or 0.0):
        by_length = [
            all(_is(x.scale or 0.0, x.scores.size(axis) ** -0.5) for x in (seen, other))
            for axis in (seen.axis, -1, -2)
            if seen.scores.dim() > 1
        ]
        return "scale-by-length" if any(by_length) else "scale-by-convention"
    if _is(factor, 1.0):
        return "no-scale"
    if any(_is(factor, width**-0.5) for width in widths):
        return "scale-by-model-width"
    if _is(factor, 1 / d):
        return "scale-twice"
    inverted = [d**0.5, d, *(x for width in widths for x in (width**0.5, width))]
    return "scale-inverted" if any(_is(factor, x) for x in inverted) else "scale-by-convention"


def _is(factor: float, expected: float) -> bool:
    return abs(abs(factor) - abs(expected)) <= _CLOSE * abs(expected)


def _normed(seen: Seen) -> list[bool]:
    """Tell whether a norm makes up for the scale, of the queries and of the keys."""
    return [any(x.name in NORMS for x in before(side.step)) for side in (seen.query, seen.key)]


def slips(first: Look) -> Iterator[Finding]:
    """Find what is done to one side alone, in the wrong place, or to all heads at once."""
    for seen in first.found:
        if (apart := seen.steps.get("apart")) is not None:
            symptom = "an einsum sums one operand on its own before it multiplies"
            evidence = f"`{apart.option('equation', 0)}` has a letter in one operand alone, "
            evidence += "and not in the result"
            yield seen_inside("summed-apart", symptom, evidence, seen.where("apart"))
        if made := [x for x in ("split", "merge") if f"straight {x}" in seen.steps]:  # reshapes
            code = f"{'-and-'.join(made)}-without-transpose"
            symptom = f"the {' and the '.join(made)} of heads: the axis of the tokens is not moved"
            evidence = "the numbers are those of a straight reshape"
            place = seen.where(*(f"straight {x}" for x in made))
            yield seen_inside(code, symptom, evidence, place)
        if "late scale" in seen.steps and not _sums_to_one(*_mixed(seen)):
            symptom = "the weights are multiplied by a number after the softmax"
            yield seen_inside("scaled-after-softmax", symptom, "", seen.where("late scale"))
        if len({*_normed(seen)}) > 1:
            symptom = "either the queries or the keys are normalised, and not both"
            yield seen_inside("one-side-normed", symptom, "", seen.where("product"), CONVENTION)
        bends = [
            [x for x in before(side.step) if x.name in _BENDS and not has_another_way(side.step, x)]
            for side in (seen.value, seen.query, seen.key)
        ]
        for bend in bends[0][:1]:
            symptom = f"the values go through {bend.name} before they are mixed"
            severity = CONVENTION if any(bends[1:]) else WRONG
            place = bend.where and bend.where._replace(step=bend.name)
            yield seen_inside("values-bent", symptom, "", place, severity)


def returned(patient: Patient, first: Look) -> Iterator[Finding]:
    """Find weights that are returned, and are not those that mix the values."""
    patient.ask(first.case.inputs)
    weights, (seen, *more) = patient.weights, first.found
    if more or weights is None or weights.shape != seen.weights.shape:
        return
    if _sums_to_one(weights, seen.axis) and not patient.same(weights, seen.weights):
        symptom = "the weights that are returned are not those that were used"
        evidence = f"they differ by {patient.gap(weights, seen.weights):.0%} of their size"
        yield seen_inside("other-weights-returned", symptom, evidence, seen.where("softmax"))


def repeated(patient: Patient, first: Look) -> Iterator[Finding]:
    """Find heads that share everything, or share a key and are no neighbours."""
    checkpoint = any(re.fullmatch(_CHECKPOINT, name) for name in patient.named)
    for seen in first.found:
        h = patient.num_heads
        alike = [_alike(side, h) for side in (seen.query, seen.key, seen.value)]
        if h > 1 and all(len(heads) == h for heads in alike):
            symptom = "all heads have the same queries, keys and values"
            yield seen_inside("shared-heads", symptom, "", seen.where("split", "product"))
        shared = [heads for heads in alike[1:] if len(heads) < h]
        tiled = next((heads for heads in shared if heads[-1] - heads[0] >= len(heads)), [])
        if tiled:
            mixed = shared[0] != shared[-1]
            symptom = "the heads that share a key and a value are not neighbours"
            symptom = "keys and values are repeated for different heads" if mixed else symptom
            said = f"heads {' and '.join(map(str, tiled))} share the first, counted from 0"
            severity = WRONG if mixed or checkpoint else CONVENTION
            place = seen.where("repeat", "split")
            yield seen_inside("groups-tiled", symptom, said, place, severity)
            return


def _alike(side: Operand, h: int) -> list[int]:
    """Name the heads that have the same numbers as the first; that one alone where none is told."""
    x = side.step.value
    axes = {*range(-x.dim(), 0)} - {side.summed, side.own}
    axis = next((axis for axis in sorted(axes) if x.size(axis) == h), None)
    if axis is None:
        return [0]
    heads = x.movedim(axis, 0).flatten(1)
    return [int(i) for i in (heads == heads[0]).all(1).nonzero().flatten()]


def turned(equal: Look | None) -> Iterator[Finding]:
    """Find values that positions turn, and queries or keys that they turn alone."""
    for seen in () if equal is None else equal.found[:1]:
        if _turns(seen.value.step.value, seen.value.summed, seen.value.own):
            symptom, evidence = "equal tokens have different values", "they differ by a turn"
            yield seen_inside("values-rotated", symptom, evidence, seen.where("mix"))
        sides = {"queries": seen.query, "keys": seen.key}
        turns = {_turns(x.step.value, x.own, x.summed): name for name, x in sides.items()}
        if turns.keys() == {True, False}:
            symptom = f"positions turn the {turns[True]} alone"
            evidence = f"with equal tokens, {turns[True]} differ by a turn, {turns[False]} do not"
            found = seen_inside("rotates-one-side", symptom, evidence, seen.where("product"))
            yield replace(found, cause=f"the {turns[False]} are not rotated")


def _turns(x: Tensor, tokens: int | None, features: int | None) -> bool | None:
    """Tell whether rows of equal tokens differ by a turn; None if they differ otherwise."""
    if tokens is None or features is None:
        return None
    rows = x.movedim((tokens, features), (-2, -1))

    def alike(y: Tensor) -> bool:
        return torch.allclose(y, y[..., :1, :].expand_as(y), atol=1e-6)

    if alike(rows):
        return False
    return True if alike(rows.norm(dim=-1, keepdim=True)) else None


def swapped(patient: Patient, found: Sequence[Seen]) -> Iterator[Finding]:
    """Find what is made by parameters that are named after something else."""
    roles = {x.data_ptr(): role_of(name) for name, x in patient.named.items()}
    if not {"q", "k", "v"} <= {*roles.values()}:
        return  # what is shared by design has no parameters of its own

    def role(made: Step) -> str:
        projections = [step for step in before(made) if is_projection(step)]
        taken = [x for step in projections for x in tensors([step.arguments, step.options])]
        own = {id(x.tensor) for step in projections for x in step.parents}
        names = {roles.get(x.data_ptr(), "") for x in taken if id(x) not in own}
        return names.pop() if len(names) == 1 else ""

    for seen in found:
        query, key, value = made_by = [role(x.step) for x in (seen.query, seen.key, seen.value)]
        code = {"q": "keys-from-queries", "v": "keys-and-values-swapped"}.get(key, "")
        code = code or ("values-from-keys" if value == "k" else "")
        if sorted(made_by) == ["k", "q", "v"] and query != "q":
            code = "chunks-in-the-wrong-order"
        if code:
            symptom = "queries, keys and values are made by projections that are named after "
            yield seen_inside(code, symptom + ", ".join(x or "nothing" for x in made_by), "", None)
            return


def axis(patient: Patient, found: Sequence[Seen]) -> Iterator[Finding]:
    """Tell whether the softmax runs over the axis that is summed over when values are mixed."""
    h, n = patient.num_heads, patient.n
    for seen in found:
        shape, (mixed, summed) = tuple(seen.scores.shape), _mixed(seen)
        if patient.kind != "cross" and shape[-2:] == (h, h) and h != n and n in shape[:-2]:
            symptom = "each token attends over heads, and sees no other token"
            evidence = f"the scores have shape {shape}: {h} heads against {h} heads"
            yield seen_inside("heads-attended-over", symptom, evidence, seen.where("product"))
            return
        if _sums_to_one(mixed, summed) or not _reordered(mixed, seen.weights):
            continue  # or more than their order has changed since the softmax
        if not mixed.isfinite().any():
            continue  # a mask that hides everything leaves nothing to tell the axis by
        over = [axis for axis in range(-mixed.dim(), 0) if _sums_to_one(mixed, axis)]
        sizes = {h: "heads", patient.b: "samples"}
        what = sizes.get(shape[seen.axis], "heads" if over else "queries")
        what = "queries" if seen.mixed.own in over else what
        code, place = f"softmax-over-{what}", seen.where("softmax")
        symptom = f"weights sum to one over the {what}, and not over the keys"
        evidence = f"the softmax runs over axis {seen.axis} of {shape}; the mix sums over another"
        if seen.keys == seen.axis and what == "queries":
            code, place = "mixed-over-queries", seen.where("mix")
            symptom = "each output sums the weights of one key over the queries"
            evidence = f"the softmax runs over the keys, axis {seen.axis} of {shape}"
        yield seen_inside(code, symptom, evidence, place)
        return


def _mixed(seen: Seen) -> tuple[Tensor, int]:
    """Give the weights as they are mixed with values, and the axis that is summed over."""
    return seen.mixed.step.value, seen.mixed.summed


def _reordered(x: Tensor, y: Tensor) -> bool:
    """Tell whether two tensors hold the same numbers in any order."""
    numbers = [z.double().flatten().sort().values for z in (x, y)]
    same = numbers[0].shape == numbers[1].shape
    return same and bool(((numbers[0] - numbers[1]).nan_to_num().abs() < 1e-6).all())


def _sums_to_one(weights: Tensor, axis: int) -> bool:
    sums = weights.double().sum(axis)
    sums = sums[sums.isfinite()]
    return bool(sums.numel()) and bool(((sums - 1).abs() < _CLOSE).all())


def masks(looks: Sequence[Look]) -> Iterator[Finding]:
    """Find how hidden scores keep a weight; which scores are hidden, the tests of masks say."""
    found = [seen for look in looks for seen in look.found]
    low = sum(int(x.mask.sum()) for x in found)
    evidence = f"{low} of {sum(x.mask.numel() for x in found)} scores enter the softmax hidden"
    for seen in found:
        step = seen.steps.get("weak mask") or seen.steps.get("mask")
        if step is not None and step.name == "mul":
            symptom = "scores are multiplied by the mask"
            place = seen.where("weak mask", "mask")
            yield seen_inside("mask-multiplied", symptom, evidence, place)
            return
        if "weak mask" in seen.steps and (number := _put(seen.steps["weak mask"])) is not None:
            symptom = "scores that should be hidden get a number that leaves them a weight"
            evidence = f"the number is {number:g}"
            yield seen_inside("fill-does-not-block", symptom, evidence, seen.where("weak mask"))
            return
    late = next((x for seen in found if (x := seen.where("late mask"))), None)
    if late is not None and not low:
        symptom = "nothing is hidden before the softmax, and weights are set to zero after it"
        yield seen_inside("mask-after-softmax", symptom, evidence, late)


def _put(step: Step) -> float | None:
    """Give the one number that a step puts in the place of scores, or adds to some of them."""
    olds = [x for x in step.parents if x.from_tokens and x.value.shape == step.value.shape]
    if not olds or constant(olds[0], step) is not None:
        return None
    old, new = olds[0].value, step.value
    numbers = (new - old if step.name in ("add", "sub") else new)[old != new]
    alike = numbers.numel() and (numbers - numbers[0]).abs().max() <= 1e-6 * (1 + numbers[0].abs())
    return numbers[0].item() if alike and numbers[0] > LOW else None
