"""The softmax of attention, as it is written: by PyTorch's functions, or by hand."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from attention_doctor.look_paths import LAYERS, back
from attention_doctor.look_trace import Step

LOW = -500.0  # a score that is lower leaves no weight
_NAMES = {"softmax", "safe_softmax", "log_softmax"}
# Behind these, weights are weights no more.
PRODUCTS = LAYERS | {"matmul", "rmatmul", "bmm", "baddbmm", "einsum"}


@dataclass(frozen=True)
class Softmax:
    """A softmax, in whatever way it is written.

    Attributes:
        step: the operation, or the sum where it is written by hand.
        source: what made its scores.
        after: what its weights are made from: the operation, or the exponential.
        scores: as they came in, up to one number a row.
        weights: as they go out, without dropout.
        axis: counted from the end.
    """

    step: Step
    source: Step
    after: Step
    scores: Tensor
    weights: Tensor
    axis: int


def softmax(step: Step) -> Softmax | None:
    """Read a step as a softmax, if it is one."""
    if not step.from_tokens or not step.parents:
        return None
    source = step.parents[0]
    if step.name in _NAMES:
        axis = _axis(step.option("dim", 1), source.value.dim())
        weights = step.value.exp() if step.name == "log_softmax" else step.value
        return Softmax(step, source, step, source.value, weights, axis)
    if step.name == "sum":
        return _by_hand(step, source)
    if step.name in ("exp", "exp2") and source.name in ("sub", "rsub"):
        total = next((x for x in source.parents if x.name == "logsumexp"), None)
        if total is not None and total.parents:
            scores = total.parents[0]
            axis = _axis(total.option("dim", 1), scores.value.dim())
            return Softmax(step, scores, step, scores.value, step.value, axis)
    return None


def _by_hand(total: Step, source: Step) -> Softmax | None:
    """Read a sum of exponentials as the lower half of a softmax."""
    raised = back(source, lambda step: step.name in ("exp", "exp2"), PRODUCTS)
    axis = total.option("dim", 1, total.options.get("axis"))
    axis = axis[0] if isinstance(axis, tuple | list) and len(axis) == 1 else axis
    if not raised or not isinstance(axis, int) or source.value.dim() < 1:
        return None
    axis = _axis(axis, source.value.dim())
    after, e = raised[0], source.value
    scores = after.parents[0]
    if scores.name == "sub" and _same_along(axis, scores):  # the largest score of each row
        scores = scores.parents[0]
    return Softmax(total, scores, after, e.log(), e / e.sum(axis, keepdim=True), axis)


def _same_along(axis: int, step: Step) -> bool:
    """Tell whether what is subtracted is the same along an axis."""
    old = step.parents[0].value
    if old.shape != step.value.shape:
        return False
    gap = (old - step.value).nan_to_num(0.0, 0.0, 0.0)
    return bool(((gap - gap.amax(axis, keepdim=True)).abs() < 1e-6)[old > LOW].all())


def _axis(dim: Any, dims: int) -> int:
    """Count an axis from the end; without any, PyTorch takes the first or the second."""
    dim = (0 if dims in (0, 1, 3) else 1) if dim is None else int(dim)
    return dim if dim < 0 else dim - dims
