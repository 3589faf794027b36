"""Ways through the steps of a call: from a softmax back to its product, and what lies between."""

import itertools
import math
from collections import deque
from collections.abc import Callable, Container

from attention_doctor.look_products import Product
from attention_doctor.look_trace import Step

# Behind these begins another part of the model.
LAYERS = frozenset({
    "linear", "addmm", "bilinear", "embedding", "conv1d", "conv2d", "conv3d", "layer_norm",
    "group_norm", "batch_norm", "relu", "gelu", "silu", "softmax", "safe_softmax", "log_softmax",
    "scaled_dot_product_attention",
})  # fmt: skip
# They move numbers, and change none.
REORDERS = frozenset({
    "view", "reshape", "flatten", "unflatten", "transpose", "permute", "movedim", "moveaxis",
    "swapaxes", "swapdims", "mT", "T", "t", "cat", "concat", "concatenate", "stack", "view_as",
    "reshape_as", "hstack",
})  # fmt: skip
MULTIPLIES = frozenset({
    "mul", "rmul", "imul", "multiply", "div", "truediv", "itruediv", "divide", "true_divide",
    "idiv",
})  # fmt: skip
# They put something in the place of some scores, or of each.
REPLACES = MULTIPLIES | {
    "masked_fill", "where", "setitem", "masked_scatter", "add", "radd", "iadd", "sub", "isub",
}  # fmt: skip
NORMS = frozenset({
    "normalize", "layer_norm", "rms_norm", "group_norm", "batch_norm", "rsqrt", "norm",
    "linalg_norm", "linalg_vector_norm", "vector_norm", "std", "var", "var_mean",
})  # fmt: skip
_BENDS = frozenset({
    "matmul", "einsum", "bmm", "linear", "conv2d", "relu", "sigmoid", "exp", "log", "pow",
    "square", "sqrt", "softplus", "abs",
})  # fmt: skip
_PLAIN = 1e-5  # how far factors may be apart that are one, in float32 and float64
_COARSE = 0.03  # in half precision


def back(
    start: Step,
    found: Callable[[Step], bool],
    stops: Container[str] = (),
    not_past: Container[Step] = (),
) -> list[Step]:
    """Go back to the nearest step that fits.

    Args:
        start: where to begin; it may fit itself.
        found: tells whether a step fits.
        stops: names of steps that are not gone through.
        not_past: further steps that are not gone through.

    Returns:
        The way from the step that fits to ``start``, both included; empty if none fits.
    """
    behind: dict[Step, Step | None] = {start: None}
    waiting = deque([start])
    while waiting:
        step = waiting.popleft()
        if found(step):
            way = [step]
            while (here := behind[way[-1]]) is not None:
                way.append(here)
            return way
        if step.name in stops or step in not_past:
            continue
        for parent in step.parents:
            if parent.from_tokens and parent not in behind:
                behind[parent] = step
                waiting.append(parent)
    return []


def before(start: Step, without: Step | None = None) -> list[Step]:
    """Give all steps from a projection, which is the last of its branch, to ``start``."""
    found, known = [start], {start}
    for step in found:
        if step.name in LAYERS - NORMS or is_projection(step):
            continue
        for parent in step.parents:
            if parent is not without and parent.from_tokens and parent not in known:
                known.add(parent)
                found.append(parent)
    return found


def is_projection(step: Step) -> bool:
    """Tell whether a step is a product of tokens with something that does not depend on them."""
    if step.name in ("linear", "addmm", "conv1d"):
        return True
    products = ("matmul", "rmatmul", "bmm", "einsum", "mm", "tensordot")
    return step.name in products and len([x for x in step.parents if x.from_tokens]) == 1


def constant(old: Step, new: Step) -> float | None:
    """Give the factor between a step and the one before it; None if it is not one number."""
    if old.value.shape != new.value.shape or not new.value.is_floating_point():
        return None
    x, y = old.value.double(), new.value.double()
    size = x[x.isfinite()].abs()
    usable = x.isfinite() & y.isfinite() & (x.abs() > 1e-6 * (size.max() if size.numel() else 1))
    ratio = (y / x)[usable]
    if not ratio.numel():
        return None
    middle = ratio.median()
    exact = min(old.value.element_size(), new.value.element_size()) > 2
    near = (ratio - middle).abs().max() <= (_PLAIN if exact else _COARSE) * middle.abs()
    return middle.item() if near else None


def factors(product: Product, chain: list[Step]) -> tuple[float | None, Step | None, bool]:
    """Multiply the factors on the scores, wherever they come in.

    Args:
        product: the product of queries and keys.
        chain: the steps from there to the softmax.

    Returns:
        The factor, or None if it is no number; the last step with a factor; and whether queries or
        keys are normalised.
    """
    found, known, normalised = [(product.factor, product.step)], True, False
    for side in (product.left, product.right):
        of_side, norm = _of_side(side)
        found, normalised = [*reversed(of_side), *found], normalised or norm
    for old, new in itertools.pairwise(chain):
        factor = constant(old, new) if new.name in MULTIPLIES else 1.0
        if new.name in _BENDS or (factor is None and not _some_are_zero(old, new)):
            known = False
        elif factor is not None:
            found.append((factor, new))
    scale = math.prod(factor for factor, _ in found) if known else None
    return scale, _decisive(found), normalised


def _decisive(found: list[tuple[float, Step]]) -> Step | None:
    """Give the last step with a factor that no other one cancels, as a soft cap's do."""
    for i in reversed(range(len(found))):
        others = [factor for factor, _ in found[:i] + found[i + 1 :]]
        here = found[i][0]
        if abs(here - 1) > _PLAIN and all(abs(here * x - 1) > _PLAIN for x in others):
            return found[i][1]
    return None


def _some_are_zero(old: Step, new: Step) -> bool:
    """Tell whether a factor is a mask of zeros and ones."""
    if old.value.shape != new.value.shape:
        return False
    ratio = (new.value / old.value)[old.value != 0]
    return bool((ratio == 0).any())


def _of_side(side: Step) -> tuple[list[tuple[float, Step]], bool]:
    """Collect the factors on queries, or on keys, since their projection; the last comes first."""
    found = []
    steps = before(side)
    for step in steps:
        old = next((x for x in step.parents if x.from_tokens), None)
        if step.name not in MULTIPLIES or old is None:
            continue
        factor = constant(old, step)
        if factor is not None and (side is step or not _has_another_way(side, step)):
            found.append((factor, step))
    return found, any(step.name in NORMS for step in steps)


def _has_another_way(side: Step, step: Step) -> bool:
    """Tell whether a projection is reached without going through a step."""
    ends = before(side, without=step)
    return any(x.name in {"input"} | (LAYERS - NORMS) or is_projection(x) for x in ends)
