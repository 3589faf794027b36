"""The products of attention, as they are written: matmul, bmm, baddbmm, linear, einsum."""

import math
import re
from dataclasses import dataclass

from attention_doctor.look_trace import Step

_MATMUL = {"matmul", "bmm", "mm"}
_ADDED = {"baddbmm", "addmm"}  # what they add comes first
_OPERANDS = 2


@dataclass(frozen=True)
class Product:
    """A product of two tensors that both depend on the tokens.

    Attributes:
        step: the operation.
        left: what made its first operand.
        right: what made its second operand.
        contracted: the axes that are summed over together, one pair for each, counted from the end.
        alone: the axes of the left, and of the right operand that are summed over on their own.
        rows: the axes of the result that are the left operand's alone, counted from the end.
        columns: those that are the right operand's alone.
        own: the axes of the left, and of the right operand that go into the result as its own.
        factor: what the product is multiplied by.
    """

    step: Step
    left: Step
    right: Step
    contracted: tuple[tuple[int, int], ...]
    alone: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    rows: tuple[int, ...] = (-2,)
    columns: tuple[int, ...] = (-1,)
    own: tuple[tuple[int, ...], tuple[int, ...]] = ((-2,), (-1,))
    factor: float = 1.0

    @property
    def width(self) -> int:
        """The number of products in each sum."""
        return math.prod(self.left.value.size(axis) for axis, _ in self.contracted)


def product(step: Step) -> Product | None:
    """Read an operation as a product; None if it is none, or of something else than tokens."""
    name = step.name
    if name == "einsum":
        return _einsum(step)
    given = step.given[1:] if name in _ADDED else step.given
    if name == "rmatmul":
        given = given[::-1]
    if name not in _MATMUL | _ADDED | {"rmatmul", "linear"} or len(given) < _OPERANDS:
        return None
    left, right = given[:_OPERANDS]
    if left is None or right is None or not (left.from_tokens and right.from_tokens):
        return None
    if min(left.value.dim(), right.value.dim()) < _OPERANDS:
        return None
    factor = float(step.options.get("alpha", 1)) if name in _ADDED else 1.0
    over, kept = (-1, -2) if name == "linear" else (-2, -1)
    return Product(step, left, right, ((-1, over),), own=((-2,), (kept,)), factor=factor)


def _einsum(step: Step) -> Product | None:
    equation = step.arguments[0] if step.arguments else step.options.get("equation")
    if not isinstance(equation, str) or not len(step.parents) == len(step.given) == _OPERANDS:
        return None
    left, right = step.parents
    if not (left.from_tokens and right.from_tokens):
        return None
    inputs, arrow, output = re.sub(r"\s", "", equation).partition("->")
    names = [
        _letters(part, x.value.dim())
        for part, x in zip(inputs.split(","), (left, right), strict=True)
    ]
    if not arrow:
        output = "".join(x for x in inputs if inputs.count(x) == 1)
    if "..." in output:
        output = _letters(output, step.value.dim())
    shared = [x for x in names[0] if x in names[1] and x not in output and x.isalpha()]
    pairs = tuple((names[0].index(x) - len(names[0]), names[1].index(x) - len(names[1]))
                  for x in shared)  # fmt: skip
    kept, alone, own = [], [], []
    for mine, other in (names, names[::-1]):
        single = [x for x in mine if x.isalpha() and x not in other]
        kept.append(tuple(output.index(x) - len(output) for x in single if x in output))
        own.append(tuple(mine.index(x) - len(mine) for x in single if x in output))
        alone.append(tuple(mine.index(x) - len(mine) for x in single if x not in output))
    return Product(
        step, left, right, pairs, (alone[0], alone[1]), kept[0], kept[1], (own[0], own[1])
    )


def _letters(part: str, dim: int) -> str:
    """Give a letter for each axis; those of an ellipsis are digits."""
    before, dots, behind = part.partition("...")
    hidden = dim - len(before) - len(behind) if dots else 0
    return before + "".join(map(str, range(hidden))) + behind
