"""One attention as it was computed, and the steps that play a part in it."""

import itertools
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from attention_doctor.look_paths import LAYERS, REORDERS, REPLACES, before, constant
from attention_doctor.look_products import Product, product
from attention_doctor.look_softmaxes import LOW
from attention_doctor.look_trace import Step
from attention_doctor.places import Where

_CLOSE = 1e-3
_RESHAPES = {"view", "reshape", "unflatten", "flatten", "view_as"}
_CHUNKS = {"chunk", "split", "unbind", "tensor_split", "getitem", "unsafe_chunk"}
_REPEATS = {"repeat", "repeat_interleave", "expand", "expand_as", "tile"}


@dataclass(frozen=True)
class Seen:
    """One attention, as it was computed: the scores, their softmax, and the products around it.

    Axes are counted from the end. Under vmap, the axes that vmap hides stand in front.

    Attributes:
        query: as it entered the product, (..., n, d) where that is a ``matmul``.
        key: as it entered the product.
        value: as it entered the second product.
        scores: as they entered the softmax.
        weights: as they left the softmax.
        mixed: the weights as they entered the second product; None in the fused kernel.
        mask: boolean, where the scores are so low that no weight is left.
        scale: the factor on the scores; None where it is no number.
        width: d, the number of products in each score.
        axis: the axis of the softmax.
        summed: the axes of ``mixed`` that the second product sums over.
        keys: the axis of the scores that counts the keys; None where that is not clear.
        dtype: the dtype that the softmax runs in.
        dropout: the probability that the weights are dropped with, as it was set.
        normalised: whether a norm of queries or keys makes up for the scale.
        products: the two products; empty in the fused kernel.
        operand: the queries that entered the product, to be differentiated.
        rows: the axes that count the queries: of ``operand``, and of what the mix returns; None
            where that is not clear.
        steps: the steps by their role: ``"product"``, ``"scale"``, ``"mask"``, ``"weak mask"``,
            ``"softmax"``, ``"late mask"``, ``"late scale"``, ``"dropout"``, ``"mix"``, ``"split"``,
            ``"chunk"``, ``"repeat"``, ``"merge"``, ``"table"`` where weights go into another
            product, too, ``"heads mixed"`` where the weights of different heads are mixed with
            each other.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    scores: Tensor
    weights: Tensor
    mixed: Tensor | None
    mask: Tensor
    scale: float | None
    width: int
    axis: int
    summed: tuple[int, ...]
    keys: int | None
    dtype: torch.dtype
    dropout: float
    normalised: bool
    products: tuple[Product, ...]
    operand: Tensor
    rows: tuple[int | None, int | None]
    steps: Mapping[str, Step]

    def where(self, *roles: str) -> Where | None:
        """Give the line of the first of these steps that there is."""
        for role in roles:
            step = self.steps.get(role)
            if step is not None and step.where is not None:
                return step.where
        return None


def on_the_way(chain: list[Step], away: list[Step]) -> dict[str, Step]:
    """Find the masks before and behind the softmax, and the dropout."""
    roles: dict[str, Step] = {}
    for old, new in itertools.pairwise(chain):
        if _differ(old, new, lambda x, y: (y <= LOW) & (x > LOW)):
            roles["mask"] = new
        elif new.name in REPLACES and constant(old, new) is None and _differ(old, new, torch.ne):
            roles["weak mask"] = new
    for old, new in itertools.pairwise(away):
        if _differ(old, new, lambda x, y: (y == 0) & (x != 0)):
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


def around(first: Product, mix: Step, steps: list[Step]) -> dict[str, Step]:
    """Find where heads are split, repeated and merged."""
    ahead = [step for step in before(first.left) if step.frames]
    keys = [step for step in before(first.right) if step.frames]
    found = {
        "split": _last(ahead, _RESHAPES) or _last(ahead, REORDERS),
        "chunk": _last(ahead, _CHUNKS) or _last(ahead, REORDERS),
        "repeat": _last(keys[::-1], _REPEATS),
    }
    roles = {role: step for role, step in found.items() if step is not None}
    reached = {mix}
    for step in steps:
        if not reached.isdisjoint(step.parents):
            if step.name in LAYERS or product(step) is not None:
                break
            reached.add(step)
            if step.name in REORDERS and step.frames:
                roles["merge"] = step
    return roles


def _last(steps: list[Step], names: Container[str]) -> Step | None:
    """Give the last of these steps that has one of the names."""
    return next((step for step in reversed(steps) if step.name in names), None)
