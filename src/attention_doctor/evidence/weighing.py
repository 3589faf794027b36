"""Attention without a softmax: which neighbours its steps mix, and what they divide by."""

from typing import NamedTuple

import torch

from attention_doctor.call.inputs import NotAsked
from attention_doctor.call.patient import Patient
from attention_doctor.call.trace import Step
from attention_doctor.evidence import situations
from attention_doctor.evidence.inner import MOVED, by_distance
from attention_doctor.evidence.looks import in_sight, watched
from attention_doctor.evidence.situations import Situation
from attention_doctor.evidence.steps import NORMS, PRODUCTS, back, constant, is_projection, product

_NO_SUMS = NORMS | {"sqrt", "abs"}  # a norm, or the size of a sum, which is a bound


class Neighbours(NamedTuple):
    """What a convolution or a shift mixes, besides what is mixed of all tokens."""

    near: set[int]  # how far away these tokens are, and 0
    late: bool  # whether some are mixed behind a projection


@in_sight()
def neighbours(patient: Patient) -> Neighbours:
    """Replace one token after the other, and see which rows of each step move.

    Raises:
        NotAsked: rows of some step are mixed in another way, as by a reshape.
    """
    x, n = patient.draw(1), patient.n
    other = patient.draw(11)
    texts = [x, *(x.replaced(other, slice(None), j) for j in range(n))]
    calls = [watched(patient, Situation("another token", text, None))[0] for text in texts]
    known: dict[Step, set[int]] = {}  # how far away the tokens are that were mixed so far
    near, late = {0}, False
    for step, *others in zip(*calls, strict=True):
        known[step] = set().union({0}, *(known[y] for y in step.parents))
        axes = [axis for axis, size in enumerate(step.value.shape) if size == n]
        if len(axes) != 1:
            continue
        rows, *changed = (y.value.movedim(axes[0], 0).flatten(1) for y in (step, *others))
        moved = torch.stack([((y - rows).abs() > MOVED).any(1) for y in changed], -1)
        if (distances := by_distance(moved)) is None:
            raise NotAsked("rows are no tokens")
        if max(map(abs, distances), default=0) < n - 1:
            near |= distances
            new = distances - known[step]
            late |= bool(new) and any(back(y, is_projection) for y in step.parents)
        known[step] |= distances
    return Neighbours(near, late)


def divides(patient: Patient) -> bool:
    """Tell whether weights are divided by a sum of them, or that cannot be told.

    That of a softmax is missing where its exponentials are seen.
    """
    steps, output = watched(patient, situations.free(patient))
    if not any(x.tensor is output for x in steps):
        return True
    exponentials = [x for x in steps if x.name == "exp"]
    if any(back(x, lambda y: product(y) is not None) for x in exponentials):
        return True
    divisors = [x for x in map(_divisor, steps) if x is not None]
    stops = PRODUCTS | {"mul"}
    return any(not back(x, lambda y: y.name in _NO_SUMS, stops) for x in divisors)


def _divisor(step: Step) -> Step | None:
    """Give what a step divides by, if tokens have made it."""
    if step.name in ("reciprocal", "logsumexp"):
        return step.given[0]
    if step.name != "div":
        return None
    if len(step.given) > 1:
        return step.given[1]
    return step.given[0] if constant(step.parents[0], step) is None else None  # a number / x
