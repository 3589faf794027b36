"""Ask what order, samples and lengths change: properties of every attention, whatever its weights.

A straight reshape in place of a transpose shows here.
"""

from collections.abc import Iterator

import torch

from attention_doctor.call.patient import Inputs, Patient
from attention_doctor.evidence import situations
from attention_doctor.evidence.influence import across, influence
from attention_doctor.evidence.situations import Situation
from attention_doctor.report import Finding, convention, wrong

_FOLLOW = "Follow one number through every reshape: it must stay with its token."


def order(patient: Patient) -> Iterator[Finding]:
    """Results move with their queries, and stay where keys move together with their values."""
    situations.only_for(patient, "cross", "self")
    source = torch.Generator().manual_seed(10)
    queries, keys = (torch.randperm(size, generator=source) for size in (patient.n, patient.m))
    keys = queries if patient.kind == "self" else keys
    for case in situations.cases(patient):
        x, blocked = case.inputs, case.blocked
        moved = Inputs(x.query[:, queries], x.key[:, keys], x.value[:, keys])
        if patient.kind == "self":
            moved = x.map(lambda tokens: tokens[:, queries])
        turned = None if blocked is None else blocked[:, queries][..., keys]
        gap = patient.gap(patient.ask(moved, turned), patient.ask(x, blocked)[:, queries])
        if gap > patient.tolerance:
            yield _order_matters(patient, case, gap)
            return


def _order_matters(patient: Patient, case: Situation, gap: float) -> Finding:
    evidence = f"with {case.name}, results of moved tokens differ by {gap:.0%} of their size"
    if case.blocked is None and (
        _same_for_equal_tokens(patient) if patient.kind == "self" else _has_positions(patient)
    ):
        symptom = "results do not move with their tokens, but equal tokens get equal results"
        return convention("order-matters", symptom, evidence)
    symptom = "results do not move with their queries, or change when keys and values are moved"
    return wrong("query-order-matters", symptom, evidence, _FOLLOW)


def _has_positions(patient: Patient) -> bool:
    """Tell whether queries may not change places either, but for equal tokens."""
    x = patient.draw(1)
    moved = Inputs(x.query.flip(1), x.key, x.value)
    fixed = patient.same(patient.ask(moved).flip(1), patient.ask(x))
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
        pairs = across(patient, x, blocked)
        one = x.map(lambda tokens: tokens[:1])
        single = patient.ask(one, None if blocked is None else blocked[:1])
        gap = patient.gap(patient.ask(x, blocked)[:1], single)
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
            symptom = "with equal values the result should not depend on the weights, and it does"
            evidence = f"with {case.name}, it differs by {gap:.0%} from the result of a single key"
            remedy = "Let the softmax run over the last axis of (b, h, n, m), and mix the values."
            if case.blocked is not None:
                symptom += " as soon as there is a mask"
                remedy = "Set blocked scores to minus infinity before the softmax."
            yield wrong("weights-do-not-sum-to-one", symptom, evidence, remedy)
            return
