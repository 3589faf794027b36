"""Follow tokens into the heads and out of them: by gradients, and by what equal tokens become."""

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from attention_doctor.compare_parameters import role_of
from attention_doctor.influence import each
from attention_doctor.look_paths import back, before, is_projection
from attention_doctor.look_scores import seen_inside
from attention_doctor.look_seen import Seen
from attention_doctor.look_sight import Look
from attention_doctor.look_trace import Step, tensors
from attention_doctor.patient import Patient
from attention_doctor.report import Finding


def letters(found: Sequence[Seen]) -> Iterator[Finding]:
    """Find sums over one operand alone, which no product of attention has."""
    for product in (x for seen in found for x in seen.products):
        operands = zip((product.left, product.right), product.alone, strict=True)
        if any(x.value.size(axis) > 1 for x, axes in operands for axis in axes):
            yield seen_inside(
                "summed-apart",
                "an einsum sums one operand on its own before it multiplies",
                f"`{product.step.arguments[0]}` has a letter in one operand alone, and not in the "
                "result",
                product.step.where,
            )
            return


def swapped(patient: Patient, found: Sequence[Seen]) -> Iterator[Finding]:
    """Find keys that are made by the parameter that is named after values."""
    named = () if patient.module is None else patient.module.named_parameters()
    roles = {x.data_ptr(): role_of(name) for name, x in named}
    for seen in found:
        if {roles.get(x) for x in _weights(_operand(seen, seen.key))} == {"v"}:
            symptom = "the keys are made by the projection that is named after values"
            yield seen_inside("keys-and-values-swapped", symptom, "", seen.where("product"))
            return


def _operand(seen: Seen, value: Tensor) -> Step:
    """Give the step whose result entered a product; the product itself if it is not known."""
    first, mix = seen.steps["product"], seen.steps["mix"]
    operands = [y for x in seen.products for y in (x.left, x.right)] or [*first.parents]
    return next((x for x in operands if x.value is value), first if value is seen.key else mix)


def projected(patient: Patient, look: Look) -> bool:
    """Tell whether keys and values are products of their tokens' axis with a parameter."""
    parts = () if patient.module is None else patient.module.parameters()
    memory = {x.untyped_storage().data_ptr() for x in parts}
    widths = {patient.embed_dim, patient.context_dim}

    def along(count: int, step: Step) -> bool:
        taken = tensors([step.arguments, step.options]) if is_projection(step) else ()
        if not any(x.untyped_storage().data_ptr() in memory for x in taken):
            return False
        old = Counter(next(x for x in step.parents if x.from_tokens).value.shape)
        new = Counter(step.value.shape)
        return count in new - old and bool(old - new) and widths.isdisjoint(old - new)

    return all(
        back(_operand(seen, x), functools.partial(along, seen.scores.size(seen.axis)))
        for seen in look.found for x in (seen.key, seen.value)
    )  # fmt: skip


def _weights(operand: Step) -> set[int]:
    """Give the memory of the weights that an operand is made with."""
    return {
        x.data_ptr()
        for step in before(operand) if is_projection(step)
        for x in tensors([step.arguments, step.options])
        if all(parent is None or parent.tensor is not x for parent in step.parents)
    }  # fmt: skip


def heads_first(look: Look | None) -> bool:
    """Tell whether heads and samples are folded into one axis with the heads in front."""
    if look is None or not look.output.requires_grad:
        return False
    return bool(_split(look, False)) and not _split(look, True)


def heads(look: Look | None) -> Iterator[Finding]:
    """Find rows of heads, and of what they are merged into, that are made of other tokens."""
    if look is None or not look.output.requires_grad:
        return
    first = heads_first(look)
    split, merge = _split(look, first), _merge(look, first)
    if split == "split-without-transpose" and merge == "merge-without-transpose":
        split, merge = "split-and-merge-without-transpose", ""
    if split:
        yield seen_inside(
            split,
            "what stands in a query's place in a head is made of others",
            "by the gradients of the split queries",
            look.found[0].where("split"),
        )
    if merge:
        yield seen_inside(
            merge,
            "a row of the merged heads is made of others",
            "by the gradients of the output with respect to the heads",
            look.found[-1].where("merge", "mix"),
        )


def _split(look: Look, first: bool) -> str:
    """Tell whether the rows of split queries depend on their own tokens alone."""
    seen, (b, n) = look.found[0], look.output.shape[:2]
    rows = _rows(seen.operand, seen.rows[0], b, n, first)
    if rows is None or not rows.requires_grad or _is_mixed(seen):
        return ""
    reached = _reached(rows, look.leaves.query, lambda grad: grad)
    return _judged(reached, "split-without-transpose", "batch-mixed-into-sequence")


def _is_mixed(seen: Seen) -> bool:
    """Tell whether queries or keys are convolved, or normalised over more than one token."""
    steps = [x for first in seen.products[:1] for y in (first.left, first.right) for x in before(y)]
    named = [x.name for x in steps if x.name.startswith("conv") or x.name.endswith("_norm")]
    return any(name not in ("conv1d", "layer_norm", "rms_norm") for name in named) or any(
        x.name == "conv1d" and x.option("weight", 1).size(-1) > 1 for x in steps
    )


def _merge(look: Look, first: bool) -> str:
    """Tell whether the rows of the output depend on their own tokens of the heads alone."""
    seen, (b, n) = look.found[-1], look.output.shape[:2]
    mixed, axis = seen.steps["mix"].tensor, seen.rows[1]
    if _rows(mixed, axis, b, n, first) is None or not mixed.requires_grad:
        return ""
    reached = _reached(look.output, mixed, lambda grad: _rows(grad, axis, b, n, first))
    return _judged(reached, "merge-without-transpose", "heads-of-other-samples")


def _reached(rows: Tensor, source: Tensor, unfold: Callable[[Tensor], Tensor | None]) -> Tensor:
    """Tell which rows depend on which tokens of what they are made from, (b, n, b, n)."""
    b, n = rows.shape[:2]
    reached = torch.zeros(b, n, b, n, dtype=torch.bool)
    weights = torch.randn(rows.shape[2:], generator=torch.Generator().manual_seed(19)).to(rows)
    try:
        grads = each((rows * weights).flatten(2).sum(-1).flatten(), [source])
    except Exception:  # what the way back needs was written over
        return reached
    for (sample, i), (grad,) in zip(itertools.product(range(b), range(n)), grads, strict=True):
        tokens = None if grad is None else unfold(grad)
        if tokens is not None:
            reached[sample, i] = tokens.abs().flatten(2).amax(-1) > 0
    return reached


def _rows(x: Tensor, axis: int | None, b: int, n: int, first: bool) -> Tensor | None:
    """Turn a tensor of heads into (b, n, ...), if its axes can be told; ``axis`` counts tokens."""
    if axis is None or x.dim() < 3 or x.size(axis) != n:
        return None
    x = x.movedim(axis, 0)
    if x.size(1) == b:
        return x.transpose(0, 1)
    if x.size(1) % b == 0:
        x = x.unflatten(1, (-1, b) if first else (b, -1))
        return (x.transpose(1, 2) if first else x).transpose(0, 1)
    return x.movedim(2, 0) if x.size(2) == b else None


def _judged(reached: Tensor, tokens: str, samples: str) -> str:
    """Name what mixes: (b, n, b, n), which token reaches which."""
    b, n = reached.shape[:2]
    itself = torch.eye(b * n, dtype=torch.bool).view(b, n, b, n)
    if not (reached & ~itself).any():
        return ""
    apart = ~torch.eye(b, dtype=torch.bool)[:, None, :, None]
    return samples if (reached & apart).any() else tokens


def placed_values(look: Look | None) -> str:
    """Tell whether values of equal tokens differ by their places: "added" or "turned"; "" if not.

    What is added is the same in all samples; what turns a token leaves its products with the tokens
    of other samples in the same place.
    """
    if look is None or len(look.output) < 2:
        return ""
    seen, axis = look.found[0], -2
    if seen.products:
        mix = seen.products[1]
        axis = mix.contracted[0][seen.value is mix.right.value]
    rows = _rows(seen.value, axis, len(look.output), seen.value.size(axis), heads_first(look))
    if rows is None:
        return ""
    rows = rows[:, : look.leaves.value.size(1)]  # without padding
    if _is_even(rows, 1):
        return ""
    if _is_even(rows - rows[:, :1], 0):
        return "added"
    flat = rows.flatten(2).transpose(0, 1)
    return "turned" if _is_even(flat @ flat.mT, 0) else ""


def turned(look: Look | None) -> Iterator[Finding]:
    """Find queries or keys that positions inside turn alone, or both in different ways.

    What turns a token leaves its products with the tokens of other samples in the same place.
    """
    if look is None:
        return
    seen, first = look.found[0], heads_first(look)
    if placed_values(look) == "turned":
        evidence = "values of equal tokens differ by a turn"
        symptom = "equal tokens have different values"
        yield seen_inside("values-rotated", symptom, evidence, seen.where("mix"))
    axes: tuple[tuple[int, ...], tuple[int, ...]] = ((-2,), (-2,))
    if seen.products:
        left, right = seen.products[0].own
        axes = (right, left) if seen.products[0].right.value is seen.query else (left, right)
    sides = []
    leaves = look.leaves.query, look.leaves.key
    for x, own, leaf in zip((seen.query, seen.key), axes, leaves, strict=True):
        b, n = leaf.shape[:2]
        rows = _rows(x, own[0] if len(own) == 1 else None, b, n, first)
        if rows is None:
            return
        sides.append(rows.flatten(2).transpose(0, 1))
    still = [_is_even(x, 0) for x in sides]
    if all(still) or not all(_is_even(x @ x.mT, 0) for x in sides):
        return
    if any(still):
        one, other = ("keys", "queries") if still[0] else ("queries", "keys")
        symptom = f"positions turn the {one} alone"
        evidence = f"with equal tokens, {one} differ by a turn, and {other} are the same"
        found = seen_inside("rotates-one-side", symptom, evidence, seen.where("product"))
        yield replace(found, cause=f"the {other} are not rotated")
    elif sides[0].shape == sides[1].shape and not _is_even((sides[0] * sides[1]).sum(-1), 0):
        symptom = "the score of a token with itself depends on where it stands"
        evidence = "with equal tokens, queries and keys are turned, and not by the same angles"
        yield seen_inside("positions-not-relative", symptom, evidence, seen.where("product"))


def _is_even(x: Tensor, axis: int) -> bool:
    """Tell whether the numbers are the same all along an axis."""
    return torch.allclose(x, x.narrow(axis, 0, 1).expand_as(x), atol=1e-6)
