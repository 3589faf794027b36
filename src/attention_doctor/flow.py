"""What is wrong on the way of the numbers: which tokens heads are made of, and where they go."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from attention_doctor.influence import each, number
from attention_doctor.paths import MULTIPLIES, NORMS, back, before, is_projection
from attention_doctor.report import Finding
from attention_doctor.scoring import seen_inside
from attention_doctor.seen import Seen
from attention_doctor.sight import Look
from attention_doctor.traced import Step, tensors

_TURNS = 1e-3  # the sine of an angle that is not 0 by rounding
_HERE = {
    "split-without-transpose": "{line} cuts tokens in pieces; split the last axis into (h, d), "
    "then move the heads in front of the tokens.",
    "batch-mixed-into-sequence": "{line} reads samples as tokens; keep the batch axis in front.",
    "merge-without-transpose": "{line} puts numbers of neighbouring tokens in one row; move the "
    "heads behind the tokens first.",
    "heads-of-other-samples": "{line} gives heads to other samples; unfold (b, h) in the order in "
    "which they were folded.",
}


def letters(found: Sequence[Seen]) -> Iterator[Finding]:
    """Find sums over one operand alone, which no product of attention has."""
    for product in (x for seen in found for x in seen.products):
        operands = zip((product.left, product.right), product.alone, strict=True)
        if any(x.value.size(axis) > 1 for x, axes in operands for axis in axes):
            shapes = " and ".join(str(tuple(x.value.shape)) for x in (product.left, product.right))
            yield seen_inside(
                "summed-apart",
                "an einsum sums one operand on its own before it multiplies",
                f"`{product.step.arguments[0]}` of {shapes} has a letter in one operand alone, and "
                "not in the result",
                "in {line}, let both operands have the letter that is summed over, or keep it.",
                product.step.where,
            )
            return


def same(found: Sequence[Seen], complaints: Sequence[Finding]) -> Iterator[Finding]:
    """Find queries that are scored with themselves, and keys that are mixed."""
    unreached = ("parameters-without-gradient", "rows-without-gradient")
    dead = [x for x in complaints if x.code in unreached]
    for seen in found if dead else ():
        if _alike(seen.query, seen.key) and _by_the_same(seen):
            yield seen_inside(
                "keys-from-queries",
                "queries are scored with themselves",
                "both operands of the product hold the same numbers",
                "in {line}, multiply queries by keys.",
                seen.where("product"),
            )
            return
        if _alike(seen.value, seen.key) and _by_the_same(seen, values=True):
            yield seen_inside(
                "values-from-keys",
                "keys are mixed in the place of the values",
                "the product that mixes takes the numbers of the keys",
                "in {line}, mix the values.",
                seen.where("mix"),
            )
            return


def _by_the_same(seen: Seen, values: bool = False) -> bool:
    """Tell whether both operands of the scores, or values and keys, are made with one weight.

    Weights that are equal, as copies are when they are new, make the same numbers, too.
    """
    if not seen.products:
        return True
    first, mix = seen.products
    pairs = [(first.left, first.right)]
    if values:
        value = next(x for x in (mix.left, mix.right) if x.value is seen.value)
        pairs = [(x, value) for x in pairs[0] if x.value is seen.key]
    made = [[_weights(x) for x in pair] for pair in pairs]
    return any(not (one and other) or one & other for one, other in made)


def _weights(operand: Step) -> set[int]:
    """Give the memory of the weights that an operand is made with."""
    return {
        x.data_ptr()
        for step in before(operand) if is_projection(step)
        for x in tensors([step.arguments, step.options])
        if all(parent is None or parent.tensor is not x for parent in step.parents)
    }  # fmt: skip


def _alike(x: Tensor, y: Tensor) -> bool:
    """Tell whether two tensors hold the same numbers, up to their order and one factor."""
    if x.numel() != y.numel() or not x.numel():
        return False
    x, y = (z.double().flatten().abs().sort().values for z in (x, y))
    return torch.allclose(x / x[-1], y / y[-1], atol=1e-9)


def heads_first(look: Look | None) -> bool:
    """Tell whether heads and samples are folded into one axis with the heads in front."""
    if look is None or not look.output.requires_grad:
        return False
    return bool(_split(look, False)) and not _split(look, True)


def norms(look: Look | None) -> Iterator[Finding]:
    """Find norms, behind the projections, that make a query or a key of the other tokens, too."""
    if look is None:
        return
    for seen in look.found:
        for name, step in _over_tokens(seen, look):
            yield seen_inside(
                "norm-over-tokens",
                f"each feature of the {name} is normalised over the tokens",
                "by the gradients of what is normalised, which reach other tokens, and no other "
                "feature",
                "let {line} normalise over the last axis of (b, h, n, d), the features.",
                step.where,
            )
            return


def _over_tokens(seen: Seen, look: Look) -> Iterator[tuple[str, Step]]:
    """Give the norms of queries, and of keys, whose numbers depend on all tokens."""
    own: tuple[tuple[int, ...], ...] = ((-2,), (-2,))
    sides: tuple[Step | None, ...] = seen.steps["product"].given[:2]
    if seen.products:
        own, sides = seen.products[0].own, (seen.products[0].left, seen.products[0].right)
    for side, axes in zip(sides, own, strict=True):
        if side is None or not axes:
            continue
        name = "keys" if side.value is seen.key else "queries"
        n = (look.leaves.key if name == "keys" else look.leaves.query).size(1)
        if side.value.size(axes[0]) != n:  # as of features against features
            continue
        for step in before(side):
            alone = step.name in NORMS and step.parents[0].value.shape.count(n) == 1
            if alone and _reach(step) == [n]:
                yield name, step


def _reach(step: Step) -> list[int]:
    """Give the sizes of the axes along which one number is made of others."""
    source = step.parents[0].tensor
    try:
        one = step.tensor.flatten()[0]
        (grad,) = torch.autograd.grad(one, source, retain_graph=True, allow_unused=True)
    except RuntimeError:  # what has no gradient, or was written over
        return []
    places = () if grad is None else grad.nonzero().unbind(1)
    return [source.size(i) for i, x in enumerate(places) if (x != x[:1]).any()]


def heads(look: Look | None) -> Iterator[Finding]:
    """Follow tokens into the heads and out of them, by the gradients of a call without a mask."""
    if look is None or not look.output.requires_grad:
        return
    first = heads_first(look)
    split, merge = _split(look, first), _merge(look, first)
    split = "" if any(norms(look)) else split
    if split == "split-without-transpose" and merge == "merge-without-transpose":
        split, merge = "split-and-merge-without-transpose", ""
    if split:
        tokens = "other samples" if split == "batch-mixed-into-sequence" else "other tokens"
        here = _HERE["split-without-transpose" if split.startswith("split") else split]
        yield seen_inside(
            split, f"what stands in a query's place in a head is made of {tokens}",
            "by the gradients of the split queries", here, look.found[0].where("split"),
        )  # fmt: skip
    if merge:
        tokens = "other samples" if merge == "heads-of-other-samples" else "other tokens"
        yield seen_inside(
            merge, f"a row of the merged heads is made of {tokens}",
            "by the gradients of the output with respect to the heads", _HERE[merge],
            look.found[-1].where("merge", "mix"),
        )  # fmt: skip


def turned_values(look: Look | None) -> str:
    """Tell whether equal tokens have values that are turned, and what is mixed is turned back.

    Returns:
        ``"back"``, ``"forward"`` where it is not, or "" where no values are turned.
    """
    if look is None or not look.output.requires_grad or not look.found[0].products:
        return ""
    seen = look.found[0]
    mix, mixed, rows = seen.products[1], seen.steps["mix"].tensor, seen.rows[1]
    right = seen.value is mix.right.value
    keys, features = mix.contracted[0][right], mix.own[right][0]
    lengths = seen.value.norm(dim=features, keepdim=True)
    if rows is None or _is_even(seen.value, keys) or not _is_even(lengths, keys):
        return ""
    ways = [
        torch.autograd.grad(number(token), mixed, retain_graph=True)[0].select(rows, i)
        for i, token in enumerate(look.output[0])
    ]
    return "forward" if _is_even(torch.stack(ways), 0) else "back"


def added_positions(look: Look | None) -> bool:
    """Tell whether values of equal tokens differ by their places, and in all samples alike."""
    if look is None or len(look.output) < 2:
        return False
    seen = look.found[0]
    axis = -2
    if seen.products:
        mix = seen.products[1]
        axis = mix.contracted[0][seen.value is mix.right.value]
    rows = _rows(seen.value, axis, len(look.output), seen.value.size(axis), heads_first(look))
    if rows is None:
        return False
    rows = rows[:, : look.leaves.value.size(1)]  # without padding
    moved = rows - rows[:, :1]
    return not _is_even(rows, 1) and _is_even(moved, 0)


def misplaced(looks: Sequence[Look | None]) -> Iterator[Finding]:
    """Find tokens in the places of others, where results do not move along with tokens.

    Nothing knows a place where equal tokens are all the same, and no token is made of others where
    moved ones leave the same numbers, elsewhere. Groups of a few tokens are by design.

    Args:
        looks: a call with equal tokens, one with any, and the same with these in another order.
    """
    seen = [x.found[0] for x in looks if x is not None and len(x.found) == 1]
    if len(seen) < len(looks) or (rows := seen[0].rows[0]) is None:
        return
    equal, before, after = seen
    n = looks[0].leaves.query.size(1) if looks[0] else 0
    if equal.query.size(rows) != n or equal.scores.size(equal.axis) != n or equal.mask.any():
        return
    even = _is_even(equal.query, rows) and _is_even(equal.scores, equal.axis)
    even &= equal.mixed is None or all(_is_even(equal.mixed, axis) for axis in equal.summed)
    pairs = ((before.query, after.query), (before.key, after.key), (before.value, after.value))
    if even and all(_alike(*pair) for pair in pairs):
        yield seen_inside(
            "query-order-matters",
            "results do not move along with their tokens, and there are no positions",
            "in another order the tokens leave the same numbers in queries, keys and values, and "
            "equal tokens have equal scores",
            "follow one token through every reshape to {line}: `view` and `reshape` keep the order "
            "of the axes, `permute` and `transpose` change it.",
            before.where("product"),
        )


def placed_keys(look: Look | None) -> bool:
    """Tell whether scores of equal tokens differ by the keys' places, each key its own token's."""
    if look is None or not look.found[0].products:
        return False
    seen, (b, m) = look.found[0], look.leaves.key.shape[:2]
    first = seen.products[0]
    side = first.right.value is seen.key
    key, axes = (first.left, first.right)[side], first.own[side]
    rows = _rows(key.tensor, axes[0] if len(axes) == 1 else None, b, m, heads_first(look))
    if rows is None or not rows.requires_grad or _is_even(seen.scores, seen.axis):
        return False
    return not _judged(_reached(rows, look.leaves.key, lambda grad: grad), "tokens", "samples")


def values(look: Look | None) -> Iterator[Finding]:
    """Find values that are rotated by their positions, and mixed as if they were not."""
    if look is not None and turned_values(look) == "forward":
        yield seen_inside(
            "values-rotated",
            "equal tokens have different values",
            "values of equal tokens differ by a turn, and nothing turns back what is mixed",
            "before {line}, rotate queries and keys alone.",
            look.found[0].where("mix"),
        )


def turned(look: Look | None) -> Iterator[Finding]:
    """Find queries or keys that positions inside turn alone, or both in different ways.

    What turns a token leaves its products with the tokens of other samples in the same place.
    """
    if look is None:
        return
    seen, leaves, first = look.found[0], look.leaves, heads_first(look)
    axes: tuple[tuple[int, ...], tuple[int, ...]] = ((-2,), (-2,))
    if seen.products:
        left, right = seen.products[0].own
        axes = (right, left) if seen.products[0].right.value is seen.query else (left, right)
    sides = []
    operands = zip((seen.query, seen.key), axes, (leaves.query, leaves.key), strict=True)
    for x, own, given in operands:
        b, n = given.shape[:2]
        rows = _rows(x, own[0] if len(own) == 1 else None, b, n, first)
        if rows is None:
            return
        sides.append(rows.flatten(2).transpose(0, 1))
    still = [_is_even(x, 0) for x in sides]
    if all(still):
        yield from _turned_alike(seen)
        return
    if not all(_is_even(x @ x.mT, 0) for x in sides):
        return
    if any(still):
        one, other = ("keys", "queries") if still[0] else ("queries", "keys")
        found = seen_inside(
            "rotates-one-side",
            f"positions turn the {one} alone",
            f"with equal tokens, {one} differ by a turn, and {other} are the same",
            "before {line}, turn queries and keys, each by its own position.",
            seen.where("product"),
        )
        yield replace(found, cause=f"the {other} are not rotated")
    elif sides[0].shape == sides[1].shape and not _is_even((sides[0] * sides[1]).sum(-1), 0):
        yield seen_inside(
            "positions-not-relative",
            "the score of a token with itself depends on where it stands",
            "with equal tokens, queries and keys are turned, and not by the same angles",
            "before {line}, turn both by the same function.",
            seen.where("product"),
        )


def _turned_alike(seen: Seen) -> Iterator[Finding]:
    """Find queries that are turned by angles, but by the same in every place."""
    first = seen.products[0].left if seen.products else seen.steps["product"].parents[0]
    steps = [x for x in before(first) if x.name in MULTIPLIES]
    tables = [
        x.detach()
        for step in steps
        for x, made in zip(tensors(step.arguments), step.given, strict=False)
        if made is None or made.given[:1] == (None,)  # as `cos.to(x)` is
    ]
    pairs = [(x.real, x.imag) for x in tables if x.is_complex()]
    pairs += [(x, y) for x in tables for y in tables if x.shape == y.shape and x is not y]
    turns = [(x, y) for x, y in pairs if x.numel() > 1 and min(map(_largest, (x, y))) > _TURNS]
    if any(_close(x**2 + y**2, torch.ones(())) for x, y in turns):
        yield seen_inside(
            "positions-ignored",
            "queries and keys are turned, and every token by the same angles",
            "with equal tokens they are the same in every place, though no angle need be 0",
            "before {line}, turn each token by its position: where x is (b, h, n, d), cosines and "
            "sines are (n, d).",
            seen.where("product"),
        )


def _largest(x: Tensor) -> float:
    return x.abs().max().item()


def _close(x: Tensor, y: Tensor) -> bool:
    return torch.allclose(x.double(), y.double().expand_as(x), atol=1e-4)


def _is_even(x: Tensor, axis: int) -> bool:
    """Tell whether the numbers are the same all along an axis."""
    return torch.allclose(x, x.narrow(axis, 0, 1).expand_as(x), atol=1e-6)


def _split(look: Look, first: bool) -> str:
    """Tell whether the rows of split queries depend on their own tokens alone."""
    seen = look.found[0]
    b, n = look.output.shape[:2]
    rows = _rows(seen.operand, seen.rows[0], b, n, first)
    if rows is None or not rows.requires_grad or _is_mixed(seen):
        return ""
    reached = _reached(rows, look.leaves.query, lambda grad: grad)
    return _judged(reached, "split-without-transpose", "batch-mixed-into-sequence")


def _is_mixed(seen: Seen) -> bool:
    """Tell whether queries or keys come from a convolution or a norm over more than one token."""

    def mixes(step: Step) -> bool:
        wide = step.name.startswith("conv") and step.option("weight", 1).shape[2:].numel() > 1
        return wide or step.name in ("group_norm", "instance_norm")

    return any(back(x, mixes) for first in seen.products[:1] for x in (first.left, first.right))


def _merge(look: Look, first: bool) -> str:
    """Tell whether the rows of the output depend on their own tokens of the heads alone."""
    seen = look.found[-1]
    mixed, axis = seen.steps["mix"].tensor, seen.rows[1]
    b, n = look.output.shape[:2]
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
    for (s, i), (grad,) in zip(itertools.product(range(b), range(n)), grads, strict=True):
        found = None if grad is None else unfold(grad)
        reached[s, i] = False if found is None else found.abs().flatten(2).amax(-1) > 0
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


def _judged(own: Tensor, tokens: str, samples: str) -> str:
    """Name what mixes: (b, n, b, n), which token reaches which."""
    b, n = own.shape[:2]
    itself = torch.eye(b * n, dtype=torch.bool).view(b, n, b, n)
    if not (own & ~itself).any():
        return ""
    apart = ~torch.eye(b, dtype=torch.bool)[:, None, :, None]
    return samples if (own & apart).any() else tokens
