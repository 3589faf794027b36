"""What attention must do: every token that may be seen matters, and so do queries and keys."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from attention_doctor import situations
from attention_doctor.influence import (
    counts,
    exchanged,
    influence,
    moves,
    reactions,
    roles,
)  # fmt: skip
from attention_doctor.patient import Inputs, NotAsked, Patient
from attention_doctor.report import CONVENTION, WRONG, Finding
from attention_doctor.situations import Situation

_FINE_ENOUGH = 1e-3  # coarser numbers hide how weights depend on tokens
_REMEDY = "Mix the values of other tokens, with weights that are made from queries and keys."


def attention(patient: Patient) -> Iterator[Finding]:
    """Tokens are mixed, with weights that depend on queries and on keys."""
    if patient.tolerance > _FINE_ENOUGH:
        raise NotAsked("its numbers are too coarse to show what the weights depend on")
    inputs = patient.draw(41)
    output = patient.ask(inputs)
    found = _unmixed(patient, inputs, output)
    if found is None:
        within = inputs.query is inputs.key
        found = _within(patient, inputs, output) if within else _between(patient, inputs, output)
    if found is not None:
        yield found


def _no_attention(symptom: str, evidence: str) -> Finding:
    return Finding("no-attention", WRONG, symptom, evidence, remedy=_REMEDY)


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
        return _no_attention(
            "keys and values change nothing",
            "other keys and values, the same output: each result depends on its query alone",
        )
    return None


def _effect(patient: Patient, inputs: Inputs, output: Tensor, *names: str) -> float:
    """Measure by how much the output changes when these tensors are replaced."""
    other = patient.draw(42)
    changed = replace(inputs, **{name: getattr(other, name) for name in names})
    return patient.gap(patient.ask(changed), output)


def _between(patient: Patient, inputs: Inputs, output: Tensor) -> Finding | None:
    """Judge attention whose queries and keys are different tensors, by replacing each of them."""
    names = ("query",) if patient.memory else ("query", "key", "value")
    without = [
        name for name in names if _effect(patient, inputs, output, name) <= patient.tolerance
    ]
    if patient.memory and _straight(patient, inputs, output):
        without.append("key")  # it only adds up what it finds there
    if {"query", "key"} <= {*without}:
        said = "other queries, other keys, the same weights: they are fixed"
        return _no_attention("the weights depend neither on queries nor on keys", said)
    alike = patient.same(output, output[:, :1].expand_as(output))
    if "query" in without or alike:
        return _queries_ignored(alike, "query" not in without)
    for name in without:
        return Finding(
            "keys-ignored" if name == "key" else "values-ignored",
            WRONG,
            f"the {name}s do not count" if name == "value" else "the weights do not depend on keys",
            f"other {name}s, the same weights" if name == "key" else "other values, same output",
            "keys and values are one tensor where they should be two" if name == "key" else "",
            "Score the projected keys, and mix the projected values.",
        )
    return None


def _straight(patient: Patient, inputs: Inputs, output: Tensor) -> bool:
    """Tell whether the output is a linear function of the context."""
    end = patient.draw(43).value
    half = (inputs.value + end) / 2
    halfway, after = (patient.ask(replace(inputs, key=x, value=x)) for x in (half, end))
    return patient.gap(2 * (halfway - output), after - output) <= patient.tolerance


def _queries_ignored(alike: bool, averaged: bool) -> Finding:
    how = "all queries get the same result" if alike else "other queries, the same output"
    return Finding(
        "queries-ignored",
        WRONG,
        "which query asks makes no difference",
        f"{how}{', though it depends on the queries' if averaged else ''}",
        remedy="Compute one row of weights for each query, from that query and the keys.",
    )


def _within(patient: Patient, inputs: Inputs, output: Tensor) -> Finding | None:
    """Judge self-attention: what the weights depend on shows in how others' tokens count."""
    pair = _pair(patient, inputs)
    whole, half = _added(patient, inputs, pair)
    if patient.n < 3 or patient.gap(2 * half, whole) > patient.tolerance:
        return _asked(patient, inputs, output)
    asking = 2 * patient.draw(44).query[:, -1:]
    other = inputs.map(lambda x: exchanged(x, pair[0], asking))
    if patient.same(_added(patient, other, pair)[0], whole):
        return _no_attention(
            "the weights depend neither on queries nor on keys",
            "what one token adds to another's result depends on that one token alone",
        )
    return Finding(
        "keys-ignored",
        WRONG,
        "the weights do not depend on the keys",
        "what a token adds to another's result is a linear function of that token",
        remedy="Score each query against each key, and let the softmax run over the keys.",
    )


def _asked(patient: Patient, inputs: Inputs, output: Tensor) -> Finding | None:
    """Find that it makes no difference which token asks."""
    if patient.kind == "self":
        alike = patient.same(output, output[:, :1].expand_as(output))
    else:  # the last token sees all others, in whatever order they stand
        order = torch.tensor([patient.n - 1, *range(1, patient.n - 1), 0])
        swapped = patient.ask(inputs.map(lambda x: x[:, order]))
        alike = patient.same(swapped[:, -1], output[:, -1])
    return _queries_ignored(True, False) if alike else None


def _pair(patient: Patient, inputs: Inputs) -> tuple[int, int]:
    """Choose a query and another token that has much influence on it."""
    moved = moves(patient, inputs).amax(0).fill_diagonal_(0)
    if patient.kind == "causal" and moved[-1].any():
        moved[:-1] = 0  # others may see a single token, and have no choice
    return divmod(int(moved.argmax()), len(moved))


def _added(patient: Patient, inputs: Inputs, pair: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Give what a query gets when the other token is exchanged, and when it is halfway there."""
    query, place = pair
    start, end = inputs.query[:, place : place + 1], 2 * patient.draw(43).query[:, :1]

    def asked(tokens: Tensor) -> Tensor:
        return patient.ask(inputs.map(lambda x: exchanged(x, place, tokens)))[:, query]

    before = asked(start)
    return asked(end) - before, asked((start + end) / 2) - before


def visible(patient: Patient) -> Iterator[Finding]:
    """Without a mask, every key matters to every query, but for windows, which are reported."""
    situations.only_for(patient, "cross", "self")
    seen, deaf = (x.any(0) for x in influence(patient, patient.draw(1)))
    if patient.kind == "self":
        seen |= torch.eye(len(seen), dtype=torch.bool)
    if not deaf.any() or not (seen & ~torch.eye(*seen.shape, dtype=torch.bool)).any():
        return  # where no other token is seen, it is no attention
    said = f"{int(deaf.sum())} of {deaf.numel()} pairs of a query and a key"
    if torch.equal(seen, torch.ones_like(seen).tril()):
        yield Finding("causal-unasked", WRONG, "without a mask, the future is hidden", said)
    elif window := band(seen):
        yield sliding(window, said)
    else:
        yield Finding(
            "visible-unseen",
            WRONG,
            "keys that nothing hides have no influence",
            said,
            remedy="Let each query see every key that its mask allows.",
        )


def band(seen: Tensor) -> int:
    """Give the width of the window that queries see, themselves included; 0 if it is none.

    Args:
        seen: (n, m), which key has influence on which query.
    """
    n, m = seen.shape
    if n != m:
        return 0
    distance = torch.arange(n)[:, None] - torch.arange(m)
    behind, ahead = int(distance[seen].max()), int((-distance[seen]).max())
    window = (distance <= behind) & (distance >= -ahead)
    narrow = ahead >= 0 and 0 < behind < n - 1
    return behind + ahead + 1 if narrow and torch.equal(seen, window) else 0


def sliding(width: int, evidence: str) -> Finding:
    """Report a window."""
    return Finding(
        "sliding-window",
        CONVENTION,
        f"tokens see a window of {width}, themselves included, and nothing farther away",
        evidence,
    )


def training(patient: Patient) -> Iterator[Finding]:
    """Training hides what evaluation hides."""
    patient.needed_module()
    for case in situations.cases(patient):
        calm = patient.answer(case.inputs, case.blocked)
        with patient.trained(0.0):
            output = patient.ask(case.inputs, case.blocked)
            if not output.isfinite().all() or patient.same(output, calm):
                continue
            if not patient.same(output, patient.ask(case.inputs, case.blocked)):
                raise NotAsked("in training mode, and without dropout, it is still random")
        yield _trained_otherwise(patient, case, patient.gap(output, calm))
        return


def _trained_otherwise(patient: Patient, case: Situation, gap: float) -> Finding:
    seen, _ = influence(patient, case.inputs, case.blocked)
    hidden = ~seen
    with patient.trained(0.0):
        shown = influence(patient, case.inputs, case.blocked)[0] & hidden
        reaction = reactions(patient, case.inputs, case.blocked)["query"]
    own = torch.eye(len(reaction), dtype=torch.bool)[:, None, :, None]
    if not shown.any() or (counts(reaction) & ~own).any():  # the whole batch is normalised
        return Finding(
            "training-differs",
            CONVENTION,
            "without dropout, training mode gives other results than evaluation mode",
            f"with {case.name}, they differ by {gap:.0%} of their size",
        )
    return Finding(
        "mask-missing-in-training",
        WRONG,
        "in training mode tokens see what is hidden in evaluation",
        f"with {case.name} and without dropout, {int(shown.sum())} of {int(hidden.sum())} hidden "
        "pairs have influence",
        remedy="Apply the mask in both modes.",
    )
