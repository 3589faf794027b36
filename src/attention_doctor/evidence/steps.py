"""Read steps: which are products, which a softmax, what only scales, and ways back through them."""

import math
import re
from collections import deque
from collections.abc import Callable, Container
from dataclasses import dataclass

from torch import Tensor

from attention_doctor.call.trace import Step, words

LOW = -500.0  # a score that is lower leaves no weight
# They move numbers, and change none.
REORDERS = words(
    "view reshape flatten unflatten transpose permute movedim moveaxis swapaxes swapdims mT T "
    "t cat stack view_as reshape_as hstack"
)
NORMS = words(
    "normalize layer_norm rms_norm group_norm batch_norm rsqrt norm linalg_norm "
    "linalg_vector_norm vector_norm std var var_mean"
)
SOFTMAXES = frozenset({"softmax", "safe_softmax", "log_softmax"})
# Behind these begins another part of the model.
LAYERS = SOFTMAXES | words(
    "linear addmm bilinear embedding conv1d conv2d conv3d layer_norm group_norm batch_norm "
    "relu gelu silu"
)
# Behind these, weights are weights no more.
PRODUCTS = LAYERS | {"matmul", "baddbmm", "einsum"}
SCALES = frozenset({"mul", "div"})
_CLOSE = 1e-5  # how far factors may be apart that are one


def back(
    start: Step,
    found: Callable[[Step], bool],
    stops: Container[str] = (),
    not_past: Container[Step] = (),
) -> list[Step]:
    """Go back from ``start``, which may fit itself, to the nearest step that fits.

    Steps of a name in ``stops``, or that are in ``not_past``, are not gone through. Gives the way
    from the step that fits to ``start``, both included; empty if none fits.
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
    products = ("matmul", "einsum", "tensordot")
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
    return middle.item() if (ratio - middle).abs().max() <= _CLOSE * middle.abs() else None


@dataclass(frozen=True)
class Operand:
    """One of the two tensors of a product; axes are counted from the end."""

    step: Step  # what made it
    summed: int  # its axis that the product sums over
    own: int | None  # that the other operand has not, and the result has; None if not just one
    kept: int | None  # the same axis of the result

    @property
    def rows(self) -> Tensor:
        """Its rows, (..., own, summed)."""
        assert self.own is not None
        return self.step.value.movedim((self.own, self.summed), (-2, -1))


@dataclass(frozen=True)
class Product:
    """A product of two tensors that both depend on the tokens."""

    step: Step
    operands: tuple[Operand, Operand]
    width: int  # the number of products in each sum
    factor: float = 1.0  # what the product is multiplied by
    apart: bool = False  # an operand is summed on its own before


def product(step: Step) -> Product | None:
    """Read an operation as a product; None if it is none, or of something else than tokens."""
    if step.name not in ("matmul", "linear", "baddbmm", "einsum"):
        return None
    given = step.given[1:] if step.name == "baddbmm" else step.given  # what it adds comes first
    taken = [x for x in given if x is not None and x.from_tokens]
    if len(given) != 2 or len(taken) != 2 or min(x.value.dim() for x in taken) < 2:
        return None
    if step.name == "einsum":
        return _einsum(step, *taken)
    factor = float(step.options.get("alpha", 1)) if step.name == "baddbmm" else 1.0
    over, own = (-1, -2) if step.name == "linear" else (-2, -1)
    operands = Operand(taken[0], -1, -2, -2), Operand(taken[1], over, own, -1)
    return Product(step, operands, taken[0].value.size(-1), factor)


def _einsum(step: Step, left: Step, right: Step) -> Product | None:
    """Read an equation, whose ellipses stand in front, if anywhere."""
    equation = step.option("equation", 0)
    if not isinstance(equation, str):
        return None
    inputs, _, output = re.sub(r"\s|\.\.\.", "", equation).partition("->")
    parts = inputs.split(",")
    output = output or "".join(x for x in inputs if inputs.count(x) == 1)
    shared = [x for x in parts[0] if x in parts[1] and x not in output]

    def operand(made: Step, mine: str, other: str) -> Operand:
        single = [x for x in mine if x not in other and x in output]
        summed = mine.index(shared[0]) - len(mine) if shared else -1
        if len(single) != 1:
            return Operand(made, summed, None, None)
        places = [part.index(single[0]) - len(part) for part in (mine, output)]
        return Operand(made, summed, *places)

    operands = operand(left, *parts), operand(right, *parts[::-1])
    width = math.prod(left.value.size(parts[0].index(x) - len(parts[0])) for x in shared)
    apart = any(x not in [*output, *shared] for part in parts for x in part)
    return Product(step, operands, width, apart=apart)


def softmax_axis(step: Step) -> int:
    """Give the axis of a softmax, counted from the end."""
    dims, axis = step.value.dim(), step.option("dim", 1)
    if axis is None:  # PyTorch takes the first axis, or the second
        axis = 0 if dims in (0, 1, 3) else 1
    return int(axis if axis < 0 else axis - dims)
