"""Ask what order, samples and lengths change: properties of every attention, whatever its weights.

A straight reshape in place of a transpose shows here.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import torch

from attention_doctor import situations
from attention_doctor.influence import counts, influence, reactions
from attention_doctor.inputs import Inputs, NotAsked
from attention_doctor.patient import Patient
from attention_doctor.report import Finding, convention, wrong
from attention_doctor.situations import Situation

_FOLLOW = "Follow one number through every reshape: it must stay with its token."


def key_order(patient: Patient) -> Iterator[Finding]:
    """Permuting keys together with their values changes nothing."""
    situations.only_for(patient, "cross")
    order = torch.randperm(patient.m, generator=torch.Generator().manual_seed(9))
    for case in situations.cases(patient):
        x, blocked = case.inputs, case.blocked
        moved = Inputs(x.query, x.key[:, order], x.value[:, order])
        after = patient.ask(moved, None if blocked is None else blocked[..., order])
        gap = patient.gap(after, patient.answer(x, blocked))
        if gap > patient.tolerance:
            if blocked is None and _has_positions(patient):
                return  # the order of the queries says so
            yield wrong(
                "key-order-matters",
                "the order of the keys matters, though each moves together with its value",
                f"with {case.name}, moving them changes the output by {gap:.0%} of its size",
                _FOLLOW,
            )
            return


def query_order(patient: Patient) -> Iterator[Finding]:
    """Outputs move with their queries."""
    situations.only_for(patient, "cross", "self")
    order = torch.randperm(patient.n, generator=torch.Generator().manual_seed(10))
    for case in situations.cases(patient):
        x, blocked = case.inputs, case.blocked
        turned = None if blocked is None else blocked[:, order]
        if patient.kind != "self":
            moved = Inputs(x.query[:, order], x.key, x.value)
        else:
            moved = x.map(lambda tokens: tokens[:, order])
            turned = None if turned is None else turned[..., order]
        gap = patient.gap(patient.ask(moved, turned), patient.answer(x, blocked)[:, order])
        if gap > patient.tolerance:
            yield _order_matters(patient, case, gap)
            return


def _order_matters(patient: Patient, case: Situation, gap: float) -> Finding:
    evidence = f"with {case.name}, the results of moved tokens change by {gap:.0%} of their size"
    if case.blocked is None and (
        _same_for_equal_tokens(patient) if patient.kind == "self" else _has_positions(patient)
    ):
        symptom = "results do not move with their tokens, but equal tokens get equal results"
        return convention("order-matters", symptom, evidence)
    symptom = "results do not move along when their queries are moved"
    return wrong("query-order-matters", symptom, evidence, _FOLLOW)


def _has_positions(patient: Patient) -> bool:
    """Tell whether queries may not change places either, but for equal tokens."""
    x = patient.draw(1)
    moved = Inputs(x.query.flip(1), x.key, x.value)
    fixed = patient.same(patient.ask(moved).flip(1), patient.answer(x))
    if fixed or influence(patient, x)[1].any():  # what hides some keys is no position
        return False
    return _same_for_equal_tokens(patient)


def _same_for_equal_tokens(patient: Patient) -> bool:
    output = patient.ask(patient.draw(12).map(lambda tokens: tokens[:, :1].expand_as(tokens)))
    return patient.same(output, output[:, :1].expand_as(output))


def samples_apart(patient: Patient) -> Iterator[Finding]:
    """Samples of a batch do not influence each other."""
    for case in situations.cases(patient):
        x, blocked = case.inputs, case.blocked
        strong = [counts(reaction) for reaction in reactions(patient, x, blocked).values()]
        other = ~torch.eye(len(x.query), dtype=torch.bool)[:, None, :, None]
        pairs = sum(int((reaction & other).sum()) for reaction in strong)
        one = x.map(lambda tokens: tokens[:1])
        single = patient.ask(one, None if blocked is None else blocked[:1])
        gap = patient.gap(patient.answer(x, blocked)[:1], single)
        if pairs or gap > patient.tolerance:
            yield wrong(
                "samples-mixed",
                "samples of a batch influence each other",
                f"with {case.name}, {pairs} pairs of tokens from different samples react, and a "
                f"sample alone differs from the same one in a batch by {gap:.0%}",
                "Keep the batch axis in front; fold and unfold (b, h) in the same order.",
            )
            return


def equal_values(patient: Patient) -> Iterator[Finding]:
    """With equal values, the weights do not matter, because they sum to one over the keys."""

    def flat(length: int, seed: int) -> Inputs:
        one, other = patient.draw(12, n=1, m=1), patient.draw(seed, m=length)
        many = one.map(lambda x: x.expand(-1, length, -1))
        if many.query is many.key:
            return many
        query = one.query.expand(-1, patient.n, -1)
        return Inputs(query, many.value if patient.memory else other.key, many.value)

    short = patient.ask(flat(1, 13))[:, :1]
    for case in situations.cases(patient):
        blocked = case.blocked
        inputs = flat(patient.m if blocked is None else case.inputs.key.size(1), 14)
        output = patient.ask(inputs, blocked)
        expected = short.expand_as(output)
        if blocked is not None and patient.kind == "self" and case.varies == "padding":
            tokens = ~blocked[:, 0]  # what padding gets is nobody's concern
            output, expected = output[tokens], expected[tokens]
        gap = patient.gap(output, expected)
        if gap > patient.tolerance:
            yield _unequal(case, gap)
            return


def _unequal(case: Situation, gap: float) -> Finding:
    symptom = "with equal values the result should not depend on the weights, and it does"
    evidence = f"with {case.name}, it differs by {gap:.0%} from the result of a single key"
    remedy = "Let the softmax run over the last axis of (b, h, n, m), and mix the values."
    if case.blocked is not None:
        symptom += " as soon as there is a mask"
        remedy = "Set blocked scores to minus infinity before the softmax."
    return wrong("weights-do-not-sum-to-one", symptom, evidence, remedy)


def prefix(patient: Patient) -> Iterator[Finding]:
    """A longer sequence leaves the results of its beginning unchanged."""
    case = situations.future(patient)
    if patient.kind == "causal":
        case = Situation("the future hidden", patient.draw(3), None)
    if case is None:
        raise NotAsked("it takes no mask that blocks the future")
    if patient.kind == "cross" and _has_positions(patient):
        raise NotAsked("positions between queries and keys may count from the last key")
    x, n, cases = case.inputs, case.inputs.query.size(1), [case]
    if patient.own_future and patient.masks == "padding":
        cases += [replace(case, blocked=(torch.arange(n) == 1).expand(patient.b, n, n))]
    for case, k in itertools.product(cases, range(1, n)):
        whole = patient.answer(x, case.blocked)
        blocked = None if case.blocked is None else case.blocked[:, :k, :k]
        gap = patient.gap(whole[:, :k], patient.ask(x.cut(0, k), blocked))
        if gap > patient.tolerance:
            yield wrong(
                "prefix-changes",
                "the first results change when the sequence goes on, though its future is hidden",
                f"the first {k} of {n} differ by {gap:.0%} of their size from those of {k} alone",
                "Follow one number through every reshape: it must not land elsewhere by n.",
            )
            return
