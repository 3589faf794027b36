"""Ask what weights depend on: queries and keys; which heads share a key; what the output holds."""

import re
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from attention_doctor.compare_parameters import of_role
from attention_doctor.influence import exchanged, moves, number, roles
from attention_doctor.inputs import Inputs, NotAsked
from attention_doctor.patient import Patient
from attention_doctor.report import CONVENTION, WRONG, Finding, convention, wrong

_FINE_ENOUGH = 1e-3  # coarser numbers hide how weights depend on tokens
# The names in checkpoints of grouped heads, which all repeat each key for neighbouring heads.
_CHECKPOINT = r"(^|.*\.)([kv]_proj|w[kv]|in_proj)([._]weight)?"
_FIXED = "the weights depend neither on queries nor on keys"


def attention(patient: Patient) -> Iterator[Finding]:
    """Tokens are mixed, with weights that depend on queries and on keys."""
    if patient.tolerance > _FINE_ENOUGH:
        raise NotAsked("its numbers are too coarse to show what the weights depend on")
    inputs = patient.draw(41)
    output = patient.ask(inputs)
    finding = _unmixed(patient, inputs, output)
    if finding is None:
        within = inputs.query is inputs.key
        finding = _within(patient, inputs, output) if within else _between(patient, inputs, output)
    yield from [] if finding is None else [finding]


def _no_attention(symptom: str, evidence: str) -> Finding:
    remedy = "Mix the values of other tokens, with weights that are made from queries and keys."
    return wrong("no-attention", symptom, evidence, remedy)


def _unmixed(patient: Patient, inputs: Inputs, output: Tensor) -> Finding | None:
    """Find that results depend on no other token than their own."""
    for name, x in roles(inputs).items():
        if x.shape == output.shape and patient.same(output, x):
            return _no_attention("the output is the input", f"it equals the {name}, unchanged")
    if inputs.query is inputs.key:
        moved = moves(patient, inputs).amax(0)  # (n, n)
        if not (moved > patient.tolerance).fill_diagonal_(False).any():
            said = f"{moved.numel() - len(moved)} pairs of tokens, none of which react"
            return _no_attention("each result depends on its own token alone", said)
    elif _effect(patient, inputs, output, "key", "value") <= patient.tolerance:
        said = "other keys and values, the same output: each result depends on its query alone"
        return _no_attention("keys and values change nothing", said)
    return None


def _effect(patient: Patient, inputs: Inputs, output: Tensor, *names: str) -> float:
    """Measure by how much the output changes when these tensors are replaced."""
    other = patient.draw(42)
    changed = replace(inputs, **{name: getattr(other, name) for name in names})
    return patient.gap(patient.ask(changed), output)


def _between(patient: Patient, inputs: Inputs, output: Tensor) -> Finding | None:
    """Judge attention whose queries and keys are different tensors, by replacing each of them."""
    names = ("query",) if patient.memory else ("query", "key", "value")
    without = [x for x in names if _effect(patient, inputs, output, x) <= patient.tolerance]
    if patient.memory and _straight(patient, inputs, output):
        without.append("key")  # it only adds up what it finds there
    if {"query", "key"} <= {*without}:
        return _no_attention(_FIXED, "other queries, other keys, the same weights: they are fixed")
    alike = patient.same(output, output[:, :1].expand_as(output))
    if "query" in without or alike:
        return _queries_ignored(alike)
    remedy = "Score the projected keys, and mix the projected values."
    if "key" in without:
        symptom = "the weights do not depend on keys"
        return wrong("keys-ignored", symptom, "other keys, the same weights", remedy)
    if "value" in without:
        symptom, evidence = "the values do not count", "other values, same output"
        return wrong("values-ignored", symptom, evidence, remedy)
    return None


def _straight(patient: Patient, inputs: Inputs, output: Tensor) -> bool:
    """Tell whether the output is a linear function of the context."""
    end = patient.draw(43).value
    half = (inputs.value + end) / 2
    halfway, after = (patient.ask(replace(inputs, key=x, value=x)) for x in (half, end))
    return patient.gap(2 * (halfway - output), after - output) <= patient.tolerance


def _queries_ignored(alike: bool) -> Finding:
    evidence = "all queries get the same result" if alike else "other queries, the same output"
    remedy = "Compute one row of weights for each query, from that query and the keys."
    return wrong("queries-ignored", "which query asks makes no difference", evidence, remedy)


def _within(patient: Patient, inputs: Inputs, output: Tensor) -> Finding | None:
    """Judge self-attention: what the weights depend on shows in how others' tokens count."""
    moved = moves(patient, inputs).amax(0).fill_diagonal_(0)
    if patient.kind == "causal" and moved[-1].any():
        moved[:-1] = 0  # others may see a single token, and have no choice
    query, place = divmod(int(moved.argmax()), len(moved))  # a token with much influence on it
    whole, half = _added(patient, inputs, query, place)
    if patient.n < 3 or patient.gap(2 * half, whole) > patient.tolerance:
        return _asked(patient, inputs, output)
    asking = 2 * patient.draw(44).query[:, -1:]
    other = inputs.map(lambda x: exchanged(x, query, asking))
    if patient.same(_added(patient, other, query, place)[0], whole):
        said = "what one token adds to another's result depends on that one token alone"
        return _no_attention(_FIXED, said)
    return wrong(
        "keys-ignored",
        "the weights do not depend on the keys",
        "what a token adds to another's result is a linear function of that token",
        "Score each query against each key, and let the softmax run over the keys.",
    )


def _asked(patient: Patient, inputs: Inputs, output: Tensor) -> Finding | None:
    """Find that it makes no difference which token asks."""
    if patient.kind == "self":
        alike = patient.same(output, output[:, :1].expand_as(output))
    else:  # the last token sees all others, in whatever order they stand
        order = torch.tensor([patient.n - 1, *range(1, patient.n - 1), 0])
        swapped = patient.ask(inputs.map(lambda x: x[:, order]))
        alike = patient.same(swapped[:, -1], output[:, -1])
    return _queries_ignored(True) if alike else None


def _added(patient: Patient, inputs: Inputs, query: int, place: int) -> tuple[Tensor, Tensor]:
    """Give what a query gets when the other token is exchanged, and when it is halfway there."""
    start, end = inputs.query[:, place : place + 1], 2 * patient.draw(43).query[:, :1]

    def asked(token: Tensor) -> Tensor:
        return patient.ask(inputs.map(lambda x: exchanged(x, place, token)))[:, query]

    before = asked(start)
    return asked(end) - before, asked((start + end) / 2) - before


def groups(patient: Patient) -> Iterator[Finding]:
    """Heads that share a key and a value are neighbours."""
    module = patient.needed_module()
    h, d = patient.num_heads, patient.embed_dim // patient.num_heads
    last = _last(module, patient.embed_dim)
    if last is not None and last[0].size(last[1]) != h * d:
        raise NotAsked("its heads together are of another width than the model")
    shared = {name: _groups(blocks, h) for name, blocks in _moved(patient, module, d).items()}
    orders = {name: {_order(heads, h) for heads in sets} for name, sets in shared.items()}
    every = set().union(*orders.values())
    if "" in every:
        raise NotAsked("which heads share keys and values cannot be told apart")
    for name in [name for name, order in orders.items() if "tiled" in order][:1]:
        heads = next(x for x in shared[name] if _order(x, h) == "tiled")
        mixed = len(every) > 1
        severity = WRONG if mixed or re.fullmatch(_CHECKPOINT, name) else CONVENTION
        symptom = "the heads that share a key and a value are not neighbours"
        symptom = "keys and values are repeated for different heads" if mixed else symptom
        evidence = f"{name}: heads {' and '.join(map(str, heads))} share the first, counted from 0"
        yield Finding("groups-tiled", severity, symptom, evidence)


def _last(module: nn.Module, embed_dim: int) -> tuple[Tensor, int] | None:
    """Find the output projection: the parameter, and the axis of its inputs; None if none is."""
    found = of_role(module, "o").values()
    return next(((x, 1 - axis) for x, axis in found if x.size(axis) == embed_dim), None)


def _order(heads: list[int], h: int) -> str:
    """Say in which order a key is repeated for these heads; "" if in none."""
    first, size = heads[0], len(heads)
    if heads == [*range(first, first + size)]:
        return "neighbours"
    return "tiled" if heads == [*range(first, h, h // size)] else ""


def _groups(moved: Tensor, h: int) -> list[list[int]]:
    """Give the heads that each block of rows moves, where it moves some but not one or all.

    Args:
        moved: (h, blocks), whether a block of rows moves a head.
        h: the number of heads.
    """
    count = moved.sum(0)
    heads = [x.nonzero().flatten().tolist() for x in moved[:, (count > 1) & (count < h)].mT]
    sizes = {len(x) for x in heads}
    return heads if len(sizes) == 1 and not h % next(iter(sizes)) else []


def _moved(patient: Patient, module: nn.Module, d: int) -> dict[str, Tensor]:
    """Find which rows of the projections of keys and values move which head's output.

    Returns:
        By name, (h, blocks): whether a block of d rows has influence on what a head gives.
    """
    rows = {
        name: (x, axis)
        for role, kinds in {"k": 1, "v": 1, "kv": 2, "qkv": 3}.items()
        for name, (x, axis) in of_role(module, role).items()
        if x.size(axis) % d == 0
        and x.size(axis) < kinds * patient.num_heads * d  # else every head has rows of its own
    }
    last, inputs = _last(module, patient.embed_dim), patient.draw(1)
    moved: dict[str, list[Tensor]] = {name: [] for name in rows}
    with patient.converted(patient.dtype):
        weight = None if last is None else last[0].detach().clone()
        for head in range(patient.num_heads if rows else 0):
            if last is not None and weight is not None:
                kept = torch.zeros_like(weight)
                kept.narrow(last[1], head * d, d).copy_(weight.narrow(last[1], head * d, d))
                last[0].data = kept
            output = patient.ask(inputs, gradient=True)
            if not output.requires_grad:
                return {}
            output = output[..., head * d : head * d + d] if last is None else output
            for x, _ in rows.values():
                x.grad = None
            patient.differentiate(number(output))
            for name, (x, axis) in rows.items():
                grad = torch.zeros_like(x) if x.grad is None else x.grad
                blocks = grad.movedim(axis, 0).unflatten(0, (-1, d)).flatten(1)
                moved[name].append((blocks != 0).any(1))
    return {name: torch.stack(heads) for name, heads in moved.items()}


def residual(patient: Patient) -> Iterator[Finding]:
    """The output holds what the heads give; an input that is added to it is reported."""
    last = _last(patient.needed_module(), patient.embed_dim)
    if last is None:
        raise NotAsked("no output projection is found")
    inputs = patient.draw(1)
    with patient.converted(patient.dtype):
        last[0].data = torch.zeros_like(last[0].data)
        output = patient.ask(inputs)
    rest = output - inputs.query
    if patient.same(rest, rest[:1, :1].expand_as(rest)):
        symptom = "the input is added to the output"
        evidence = "with an output projection of zeros, the output is the input"
        yield convention("residual-inside", symptom, evidence)
