"""Look inside: what an attention computes while it answers, and on which lines."""

import contextlib
import itertools
import sys
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from attention_doctor.inputs import Inputs, NotAsked
from attention_doctor.look_fused import NAME as FUSED
from attention_doctor.look_fused import fused
from attention_doctor.look_paths import LAYERS, REORDERS, back, factors, is_projection
from attention_doctor.look_products import Product, product
from attention_doctor.look_seen import Seen, around, on_the_way
from attention_doctor.look_softmaxes import LOW, PRODUCTS, Softmax, softmax
from attention_doctor.look_trace import Step, Trace
from attention_doctor.patient import Patient
from attention_doctor.places import Frame
from attention_doctor.situations import Situation


@dataclass(frozen=True)
class Look:
    """What was seen in one call.

    Attributes:
        case: the call.
        leaves: its inputs.
        output: (b, n, e).
        found: every attention in it, in order.
        written: the first step that changed an input in place; None if there was none.
        triangle: the calls around the last triangle that was made, on which causal masks stand.
    """

    case: Situation
    leaves: Inputs
    output: Tensor
    found: tuple[Seen, ...]
    written: Step | None
    triangle: tuple[Frame, ...]


def look(patient: Patient, case: Situation, gradient: bool = False) -> Look:
    """Watch one call; with ``gradient``, its results can be differentiated.

    Raises:
        Failed: the call failed.
        NotAsked: nothing could be seen, or the call gives another result when it is watched.
    """
    x, blocked = case.inputs, case.blocked
    if gradient:
        x = x.map(lambda tokens: tokens.clone().requires_grad_())
    chance = torch.get_rng_state()
    with _uncompiled(), Trace(query=x.query, key=x.key, value=x.value, mask=blocked) as trace:
        output = patient.ask(x, blocked, gradient)
    if trace.failed is not None:
        raise NotAsked(f"the watching itself failed, with {type(trace.failed).__name__}")
    if not _alike(patient, output, patient.answer(case.inputs, blocked)):
        torch.set_rng_state(chance)  # of what is random there may be another answer
        if not _alike(patient, output, patient.ask(case.inputs, blocked)):
            raise NotAsked("the result is another one when it is watched")
    found = tuple(attentions(trace.steps))
    if not found:
        raise NotAsked("no softmax over a product of queries and keys could be seen")
    return Look(case, x, output, found, _written(trace.steps), trace.triangle)


def _alike(patient: Patient, output: Tensor, expected: Tensor) -> bool:
    """Tell whether results agree, those that are not finite in their places."""
    finite = torch.equal(output.isfinite(), expected.isfinite())
    return finite and patient.same(*(x.nan_to_num(0, 0, 0) for x in (output, expected)))


def _uncompiled() -> contextlib.AbstractContextManager[object]:
    """Let compiled code run line by line: what is compiled hands nothing over."""
    if "torch._dynamo" not in sys.modules:
        return contextlib.nullcontext()
    return torch.compiler.set_stance("force_eager")


def _written(steps: list[Step]) -> Step | None:
    """Find a change of an argument in place."""
    for step in steps:
        if step.in_place and step.frames:
            old = step.parents[0]
            if old.name in ("clone", "input") and old.tensor is step.tensor and not old.frames:
                return step
    return None


def attentions(steps: list[Step]) -> Iterator[Seen]:
    """Find every attention among the steps of a call."""
    products = [found for found in map(product, steps) if found is not None]
    for step in steps:
        if step.name == FUSED:
            yield fused(step, steps)
        elif (event := softmax(step)) and (seen := _seen(event, products, steps)):
            yield seen


def _seen(event: Softmax, products: list[Product], steps: list[Step]) -> Seen | None:
    """Put together what leads to a softmax and away from it; None if it is no attention."""
    by_step = {found.step: found for found in products}
    chain = _through(event.source, by_step.__contains__)
    if not chain:
        return None
    first = by_step[chain[0]]
    found = _mixed(event, [x for x in products if x is not first], by_step)
    if found is None:
        return None
    mix, side, away = found
    scale, scaled, normalised = factors(first, chain)
    roles = {"product": first.step, "softmax": event.step, "mix": mix.step}
    roles |= {} if scaled is None else {"scale": scaled}
    roles |= on_the_way(chain, away) | around(first, mix.step, steps)
    for step in steps:
        if is_projection(step) and step.name != "linear" and _leads(event.after, step):
            roles["table"] = step
    for step in away[1:]:
        if step.name in LAYERS or is_projection(step):
            roles["heads mixed"] = step
    dropped = roles.get("dropout")
    second = "query" not in first.left.roots and "query" in first.right.roots
    query, key = (first.right, first.left) if second else (first.left, first.right)
    return Seen(
        query=query.value,
        key=key.value,
        value=(mix.right, mix.left)[side].value,
        scores=event.scores,
        weights=event.weights,
        mixed=away[-1].value,
        mask=event.scores <= LOW,
        scale=scale,
        width=first.width + sum(x.width for x in _added(chain, by_step)),
        axis=event.axis,
        summed=tuple(pair[side] for pair in mix.contracted),
        keys=_keys(first, chain),
        dtype=event.step.value.dtype,
        dropout=float(dropped.option("p", 1, 0.5)) if dropped is not None else 0.0,
        normalised=normalised,
        products=(first, mix),
        operand=query.tensor,
        rows=(_only(first.own[second]), _only((mix.rows, mix.columns)[side])),
        steps=roles,
    )


def _added(chain: list[Step], by_step: dict[Step, Product]) -> Iterator[Product]:
    """Give the products that are added to the first, as of features that are not rotated."""
    for old, new in itertools.pairwise(chain):
        for parent in new.parents if new.name in ("add", "radd", "iadd") else ():
            if parent is not old and (way := back(parent, by_step.__contains__, LAYERS)):
                yield by_step[way[0]]


def _mixed(
    event: Softmax, products: list[Product], not_past: Container[Step]
) -> tuple[Product, int, list[Step]] | None:
    """Find the product that mixes values, which of its operands are weights, and the way there."""
    for mix in products:
        for side, operand in enumerate((mix.left, mix.right)):
            away = _through(operand, lambda step: step is event.after, not_past)
            if away:
                return mix, side, away
    return None


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


def _leads(after: Step, step: Step) -> bool:
    """Tell whether weights go into a step directly."""
    operand = next(x for x in step.parents if x.from_tokens)
    return bool(back(operand, lambda x: x is after, stops=PRODUCTS))


def _only(axes: tuple[int, ...]) -> int | None:
    return axes[0] if len(axes) == 1 else None


def _keys(first: Product, chain: list[Step]) -> int | None:
    """Give the axis of the keys: the one that comes from the operand that depends on them."""
    theirs = first.columns
    if "key" in first.left.roots and "key" not in first.right.roots:
        theirs = first.rows
    moved = any(step.name in REORDERS for step in chain[1:])
    return None if moved or len(theirs) != 1 else theirs[0]
