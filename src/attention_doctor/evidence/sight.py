"""Every attention among the steps of a call: its softmax, the products around it, the lines."""

import itertools
import math
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from attention_doctor.call.places import Where
from attention_doctor.call.trace import Step, words
from attention_doctor.evidence.steps import (
    LAYERS,
    LOW,
    NORMS,
    PRODUCTS,
    REORDERS,
    SCALES,
    SOFTMAXES,
    Operand,
    Product,
    back,
    before,
    constant,
    is_projection,
    product,
    softmax_axis,
)

_CLOSE = 1e-3
_CHUNKS = {"chunk", "split", "unbind", "tensor_split", "getitem", "unsafe_chunk"}
_REPEATS = {"repeat", "repeat_interleave", "expand", "expand_as", "tile"}
# They put something in the place of some scores, or of each.
_REPLACES = SCALES | {"masked_fill", "where", "setitem", "masked_scatter", "add", "sub"}
# Behind these, a factor on the scores is no number.
_BENDS = words("matmul einsum linear conv2d relu sigmoid exp log pow square sqrt softplus abs")


@dataclass(frozen=True)
class Seen:
    """One attention, as it was computed: the scores, their softmax, and the products around it.

    Axes are counted from the end. Steps stand by their role: ``"product"``, ``"scale"``,
    ``"mask"``, ``"weak mask"``, ``"softmax"``, ``"late mask"``, ``"late scale"``, ``"dropout"``,
    ``"mix"``, ``"split"``, ``"chunk"``, ``"repeat"`` and ``"repeat values"``, ``"merge"``,
    ``"straight split"`` and ``"straight merge"`` where heads and tokens are exchanged by no more
    than a reshape, ``"table"`` where weights go into another product, too, ``"apart"`` where a
    product sums one side on its own, ``"heads mixed"`` where the weights of different heads are
    mixed with each other, ``"undone"`` where what a mask has hidden is finite again.
    """

    query: Operand  # as it entered the first product
    key: Operand
    value: Operand  # as it entered the mix
    mixed: Operand  # the weights as they entered the mix
    scores: Tensor  # as they entered the softmax
    weights: Tensor  # as they left it
    scale: float | None  # the factor on the scores; None where it is no number
    width: int  # d, the number of products in each score
    axis: int  # of the softmax; of the keys where there is none
    normalised: bool  # whether it is a softmax, and no sigmoid
    keys: int | None  # the axis of the scores that counts the keys; None where that is not clear
    steps: Mapping[str, Step]

    @property
    def mask(self) -> Tensor:
        """Boolean, where the scores are so low that no weight is left."""
        return self.scores <= LOW

    @property
    def rows(self) -> dict[str, Tensor]:
        """Queries, keys and values, (..., tokens, features), where their axes are clear."""
        sides = {"queries": self.query, "keys": self.key, "values": self.value}
        rows = {name: x.rows for name, x in sides.items() if x.own is not None}
        return rows | ({"values": rows["values"].mT} if "values" in rows else {})

    def where(self, *roles: str) -> Where | None:
        """Give the line of the first of these steps that there is."""
        for role in roles:
            if role in self.steps and (place := self.steps[role].where) is not None:
                return place._replace(step=role)
        return None


def attentions(steps: list[Step]) -> Iterator[Seen]:
    """Find every attention among the steps of a call."""
    products = {x.step: x for x in map(product, steps) if x is not None}
    weighing = SOFTMAXES if any(step.name in SOFTMAXES for step in steps) else {"sigmoid"}
    for step in steps:
        if step.name in weighing and step.from_tokens and (seen := _seen(step, products, steps)):
            yield seen


def _seen(event: Step, products: dict[Step, Product], steps: list[Step]) -> Seen | None:
    """Put together what leads to a softmax and away from it; None if it is no attention."""
    chain = _through(event.parents[0], products.__contains__)
    if not chain:
        return None
    first = products[chain[0]]
    ways = (
        (mix, i, _through(operand.step, lambda step: step is event, products))
        for mix in products.values()
        if mix is not first
        for i, operand in enumerate(mix.operands)
    )
    mix, side, away = next((x for x in ways if x[2]), (None, 0, []))
    if mix is None:
        return None
    scale, scaled = _scale(first, chain)
    roles = {"product": first.step, "softmax": event, "mix": mix.step}
    roles |= {} if scaled is None else {"scale": scaled}
    if first.apart or mix.apart:
        roles["apart"] = first.step if first.apart else mix.step
    roles |= _on_the_way(chain, away) | _around(first, mix, mix.operands[1 - side], steps)
    roles |= _straight_splits(*first.operands, mix.operands[1 - side])
    for step in steps:
        if is_projection(step) and step.name != "linear":
            operand = next(x for x in step.parents if x.from_tokens)
            if back(operand, lambda x: x is event, stops=PRODUCTS):  # weights go in directly
                roles["table"] = step
    for step in away[1:]:
        if step.name in LAYERS or is_projection(step):
            roles["heads mixed"] = step
    left, right = (operand.step.roots for operand in first.operands)
    query, key = first.operands[:: -1 if "query" not in left and "query" in right else 1]
    moved = any(step.name in REORDERS for step in chain[1:])
    return Seen(
        query=query,
        key=key,
        value=mix.operands[1 - side],
        mixed=mix.operands[side],
        scores=event.parents[0].value,
        weights=event.value.exp() if event.name == "log_softmax" else event.value,
        scale=scale,
        width=first.width,
        axis=softmax_axis(event) if event.name in SOFTMAXES else key.kept or -1,
        normalised=event.name in SOFTMAXES,
        keys=None if moved else key.kept,
        steps=roles,
    )


def _through(
    start: Step, found: Callable[[Step], bool], not_past: Container[Step] = ()
) -> list[Step]:
    """Go back to a step; through layers only where they mix heads, and leave as many numbers."""
    way = back(start, found, LAYERS, not_past)
    if not way:
        way = back(start, found, not_past=not_past)
        if any(step.value.numel() != start.value.numel() for step in way):
            return []
    return way


def _on_the_way(chain: list[Step], away: list[Step]) -> dict[str, Step]:
    """Find the masks before and behind the softmax, and the dropout."""
    roles: dict[str, Step] = {}
    for old, new in itertools.pairwise(chain):
        if _differ(old, new, lambda x, y: (y <= LOW) & (x > LOW)):
            roles["mask"] = new
        elif new.name in _REPLACES and constant(old, new) is None and _differ(old, new, torch.ne):
            roles["weak mask"] = new
        if _differ(old, new, lambda x, y: (x <= LOW) & (y > LOW)):
            roles.setdefault("undone", new)
    for old, new in itertools.pairwise(away):
        if _differ(old, new, lambda x, y: ((y == 0) & (x != 0)) | (y.isinf() & x.isfinite())):
            roles["late mask"] = new
        if abs((constant(old, new) or 1.0) - 1) > _CLOSE:
            roles["late scale"] = new
    for step in (*chain, *away):
        if step.name.startswith(("dropout", "native_dropout")):
            roles["dropout"] = step
    return roles


def _differ(old: Step, new: Step, how: Callable[[Tensor, Tensor], Tensor]) -> bool:
    """Tell whether two results, number by number, differ in some way."""
    x, y = old.value, new.value
    return x.numel() == y.numel() and bool(how(x.flatten(), y.flatten()).any())


def _around(first: Product, mix: Product, value: Operand, steps: list[Step]) -> dict[str, Step]:
    """Find where heads are split, repeated and merged."""
    sides = (*first.operands, value)
    queries, keys, values = ([x for x in before(side.step) if x.frame] for side in sides)
    places = [("split", queries, REORDERS), ("chunk", queries, _CHUNKS)]
    places += [("repeat", keys, _REPEATS), ("repeat values", values, _REPEATS)]
    roles = {role: step for role, way, names in places for step in way if step.name in names}
    reached = {mix.step}
    for step in steps:
        if not reached.isdisjoint(step.parents):
            if step.name in LAYERS or product(step) is not None:
                break
            reached.add(step)
            if step.name in REORDERS and step.frame:
                roles["merge"] = step
            if _is_straight(step, mix.step) or _is_turned(step, mix.step):
                roles["straight merge"] = step
    return roles


def _straight_splits(*sides: Operand) -> dict[str, Step]:
    """Find heads that are read straight out of the rows of tokens."""
    ways = [before(side.step) for side in sides]
    pairs = (pair for way in ways for pair in itertools.product(way, way))
    found = [heads for rows, heads in pairs if _is_straight(rows, heads)]
    return {"straight split": found[-1]} if found else {}


def _is_straight(rows: Step, heads: Step) -> bool:
    """Tell whether rows of tokens, (b, n, e), are heads, (..., n, d), with no axis moved."""
    x, y = rows.value, heads.value
    if x.dim() != 3 or y.dim() < 3 or x.numel() != y.numel() or x.size(1) != y.size(-2):
        return False
    n, d = y.shape[-2:]
    h, rest = divmod(x.size(2), d)
    if rest or h in (1, n):  # one head, or heads that may be tokens
        return False
    moved = y.reshape(len(x), h, n, d).transpose(1, 2).flatten(2)
    return x.equal(y.reshape(x.shape)) and not x.equal(moved)


def _is_turned(rows: Step, heads: Step) -> bool:
    """Tell whether rows of tokens, (b, n, e), are heads, (..., n, d), with the wrong axes moved."""
    x, y = rows.value, heads.value
    if x.dim() != 3 or y.dim() != 4 or x.numel() != y.numel() or x.size(1) != y.size(2):
        return False
    wrong = ((0, 1, 3, 2), (0, 3, 1, 2), (0, 3, 2, 1))  # axes of heads, the tokens not in front
    right = [y.permute(0, 2, *rest).reshape(x.shape) for rest in ((1, 3), (3, 1))]
    return any(x.equal(y.permute(axes).reshape(x.shape)) for axes in wrong) and not any(
        map(x.equal, right)
    )


def _scale(first: Product, chain: list[Step]) -> tuple[float | None, Step | None]:
    """Multiply the factors on the scores, wherever they come in on the way to the softmax.

    The factor is None if it is no number. The step is the last that has one.
    """
    found = [x for side in first.operands[::-1] for x in _of_side(side.step)]
    found.append((first.factor, first.step))
    known = True
    for old, new in itertools.pairwise(chain):
        factor = constant(old, new) if new.name in SCALES else 1.0
        known &= new.name not in _BENDS and factor is not None
        found.append((1.0 if factor is None else factor, new))
    scaled = next((step for factor, step in reversed(found) if abs(factor - 1) > _CLOSE), None)
    return math.prod(factor for factor, _ in found) if known else None, scaled


def _of_side(side: Step) -> list[tuple[float, Step]]:
    """Collect the factors on queries, or on keys, since their projection."""
    found = []
    for step in reversed(before(side)):
        old = next((x for x in step.parents if x.from_tokens), None)
        if step.name in SCALES and old is not None and not _has_another_way(side, step):
            factor = constant(old, step)
            found += [] if factor is None else [(factor, step)]
    return found


def _has_another_way(side: Step, step: Step) -> bool:
    """Tell whether a projection is reached without going through a step."""
    ends = before(side, without=step)
    stops = {"input"} | (LAYERS - NORMS)
    return side is not step and any(x.name in stops or is_projection(x) for x in ends)
