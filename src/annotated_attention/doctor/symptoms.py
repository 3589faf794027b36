"""Stage one: properties that can be tested from outside, without knowing the weights.

Each function tests a property that every correct attention has, whatever its weights.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from annotated_attention.doctor import situations
from annotated_attention.doctor.influence import counts, moves, reactions
from annotated_attention.doctor.patient import Failed, FailedBackward, Inputs, NotAsked, Patient
from annotated_attention.doctor.report import CONVENTION, WRONG, Finding
from annotated_attention.doctor.situations import Situation


def _only_for(patient: Patient, *kinds: str) -> None:
    if patient.kind not in kinds:
        raise NotAsked(f"the test does not apply to kind {patient.kind}")


def _needs_masks(patient: Patient) -> None:
    _only_for(patient, "cross", "self")
    if patient.masks == "none":
        raise NotAsked("it takes no mask")


def key_order(patient: Patient) -> Iterator[Finding]:
    """Permuting keys together with their values changes nothing."""
    _only_for(patient, "cross")
    order = torch.randperm(patient.m, generator=torch.Generator().manual_seed(9))
    for case in (situations.free(patient), *situations.masked(patient)):
        x, blocked = case.inputs, case.blocked
        moved = Inputs(x.query, x.key[:, order], x.value[:, order])
        after = patient.ask(moved, None if blocked is None else blocked[..., order])
        if not patient.same(after, patient.ask(x, blocked)):
            gap = patient.gap(after, patient.ask(x, blocked))
            yield Finding(
                "key-order-matters",
                WRONG,
                "the order of the keys matters, though each moves together with its value",
                f"with {case.name}, moving them changes the output by {gap:.0%} of its size",
                "heads that are split or merged by a straight reshape, or a softmax or a mask "
                "along the wrong axis",
                "Follow one number through every reshape: it must stay with its token.",
            )
            return


def query_order(patient: Patient) -> Iterator[Finding]:
    """Outputs move with their queries."""
    _only_for(patient, "cross", "self")
    order = torch.randperm(patient.n, generator=torch.Generator().manual_seed(10))
    for case in (situations.free(patient), *situations.masked(patient)):
        x, blocked = case.inputs, case.blocked
        if patient.kind == "cross":
            moved = Inputs(x.query[:, order], x.key, x.value)
            turned = None if blocked is None else blocked[:, order]
        else:
            moved = x.map(lambda tokens: tokens[:, order])
            turned = None if blocked is None else blocked[:, order][..., order]
        gap = patient.gap(patient.ask(moved, turned), patient.ask(x, blocked)[:, order])
        if gap > patient.tolerance:
            yield _order_matters(patient, case, gap)
            return


def _order_matters(patient: Patient, case: Situation, gap: float) -> Finding:
    evidence = f"with {case.name}, the results of moved tokens change by {gap:.0%} of their size"
    if patient.kind == "self" and case.blocked is None and _same_for_equal_tokens(patient):
        return Finding(
            "order-matters",
            CONVENTION,
            "results do not move with their tokens, but equal tokens get equal results",
            evidence,
            "positions inside the attention: rotary, relative, or a learned bias",
        )
    return Finding(
        "query-order-matters",
        WRONG,
        "results do not move along when their queries are moved",
        evidence,
        "heads that are split or merged by a straight reshape, or a softmax or a mask along the "
        "wrong axis",
        "Follow one number through every reshape: it must stay with its token.",
    )


def _same_for_equal_tokens(patient: Patient) -> bool:
    x = patient.draw(12).map(lambda tokens: tokens[:, :1].expand_as(tokens))
    output = patient.ask(x)
    return patient.same(output, output[:, :1].expand_as(output))


def queries_apart(patient: Patient) -> Iterator[Finding]:
    """A query's result depends on no other query."""
    _only_for(patient, "cross")
    for case in (situations.free(patient), *situations.masked(patient)):
        strong = counts(reactions(patient, case.inputs, case.blocked)["query"])
        same = torch.eye(len(strong), dtype=torch.bool)[:, None, :, None]
        itself = torch.eye(patient.n, dtype=torch.bool)[:, None]
        others = strong & same & ~itself
        if others.any():
            pairs = int((same & ~itself).expand_as(strong).sum())
            yield Finding(
                "queries-mixed",
                WRONG,
                "a query's result depends on other queries",
                f"with {case.name}, {int(others.sum())} of {pairs} pairs of queries",
                "heads that are split or merged by a straight reshape, or a softmax over the "
                "queries",
                "Follow one number through every reshape, and let the softmax run over the keys.",
            )
            return


def samples_apart(patient: Patient) -> Iterator[Finding]:
    """Samples of a batch do not influence each other."""
    for case in (situations.free(patient), *situations.masked(patient)):
        x, blocked = case.inputs, case.blocked
        strong = [counts(reaction) for reaction in reactions(patient, x, blocked).values()]
        other = ~torch.eye(len(x.query), dtype=torch.bool)[:, None, :, None]
        pairs = sum(int((reaction & other).sum()) for reaction in strong)
        one = x.map(lambda tokens: tokens[:1])
        alone = patient.ask(one, None if blocked is None else blocked[:1])
        gap = patient.gap(patient.ask(x, blocked)[:1], alone)
        if pairs or gap > patient.tolerance:
            yield Finding(
                "samples-mixed",
                WRONG,
                "samples of a batch influence each other",
                f"with {case.name}, {pairs} pairs of tokens from different samples react, and a "
                f"sample alone differs from the same one in a batch by {gap:.0%}",
                "a reshape that mixes the batch with tokens or heads, or a mask whose batch axis "
                "stands in another axis's place",
                "Keep the batch axis in front, and fold and unfold (b, h) in the same order.",
            )
            return


def equal_values(patient: Patient) -> Iterator[Finding]:
    """With equal values, the weights do not matter, because they sum to one over the keys."""

    def flat(length: int, seed: int) -> Inputs:
        one, other = patient.draw(12, n=1, m=1), patient.draw(seed, m=length)
        if patient.kind != "cross":
            return one.map(lambda x: x.expand(-1, length, -1))
        query = one.query.expand(-1, patient.n, -1)
        return Inputs(query, other.key, one.value.expand(-1, length, -1))

    short = patient.ask(flat(1, 13))[:, :1]
    cases: list[tuple[str, Inputs, Tensor | None]] = [("no mask", flat(patient.m, 14), None)]
    for case in situations.masked(patient):
        cases.append((case.name, flat(case.inputs.key.size(1), 14), case.blocked))
    for name, inputs, blocked in cases:
        output = patient.ask(inputs, blocked)
        gap = patient.gap(output, short.expand_as(output))
        if gap > patient.tolerance:
            later = blocked is not None
            yield Finding(
                "weights-do-not-sum-to-one",
                WRONG,
                "with equal values the result should not depend on the weights, and it does"
                + (" as soon as there is a mask" if later else ""),
                f"with {name}, it differs by {gap:.0%} from the result of a single key",
                "a mask that is applied after the softmax"
                if later
                else "a softmax over another axis than the keys, keys mixed in place of values, or "
                "features that end up in another head's place",
                "Set blocked scores to minus infinity before the softmax."
                if later
                else "Let the softmax run over the last axis of (b, h, n, m), and mix the values.",
            )
            return


def meaning(patient: Patient) -> Iterator[Finding]:
    """True in a mask means blocked; if it means allowed, all later masks are inverted."""
    _needs_masks(patient)
    with patient.dropping(0.0):
        cases = [*situations.masked(patient)]
        if not all(_is_inverted(patient, case) for case in cases):
            return
    patient.inverted = True
    yield Finding(
        "mask-inverted",
        WRONG,
        "exactly the blocked keys have influence",
        f"with {' and with '.join(case.name for case in cases)}; all other tests use the "
        "inverted mask",
    )


def _is_inverted(patient: Patient, case: Situation) -> bool:
    """Tell whether the values that mix into a result are those that are blocked."""
    assert case.blocked is not None
    try:
        reaction = reactions(patient, case.inputs, case.blocked)
    except Failed:
        return False  # `blocked_keys` says so
    strength = reaction["value" if patient.kind == "cross" else "query"]
    own = torch.arange(len(case.blocked))
    seen = counts(strength[own, :, own])  # (b, n, m)
    judged = _judged(patient, case.blocked)
    return bool(seen.any()) and bool(((seen == case.blocked) | ~judged).all())


def _judged(patient: Patient, blocked: Tensor) -> Tensor:
    """Leave out what says nothing: within one sequence, a token reacts to itself by its query."""
    judged = torch.ones_like(blocked)
    if patient.kind != "cross":
        judged &= ~torch.eye(blocked.size(1), dtype=torch.bool)
    return judged


def blocked_keys(patient: Patient) -> Iterator[Finding]:
    """Blocked keys have no influence, and allowed keys have some."""
    _needs_masks(patient)
    failures: list[tuple[str, str]] = []
    cases = [*situations.masked(patient), *situations.masked(patient, square=True)]
    extra = situations.future(patient)
    for case in cases + ([extra] if extra else []):
        try:
            finding = _leak(patient, case)
        except FailedBackward:
            raise  # not for its mask
        except Failed as failure:
            if not isinstance(failure, NotAsked):
                failures.append((case.name, str(failure)))
            continue
        if finding is not None:
            yield finding
            break
    if failures:
        yield Finding(
            "mask-fails",
            WRONG,
            f"it fails with {failures[0][0]}",
            failures[0][1],
            "the axes of the mask do not broadcast to those of the scores, (b, h, n, m)",
            "Give the mask an axis of size 1 for the heads: (b, 1, n, m); padding (b, 1, 1, m). If "
            "it takes another mask, put an adapter around it.",
        )


def _leak(patient: Patient, case: Situation) -> Finding | None:
    """Compare what has influence with what may have."""
    assert case.blocked is not None
    reaction = reactions(patient, case.inputs, case.blocked)
    values = ["key", "value"] if patient.kind == "cross" else ["query"]
    own = torch.arange(len(case.blocked))
    strength = sum(reaction[name][own, :, own] for name in values)  # (b, n, m)
    assert isinstance(strength, Tensor)
    moved = moves(patient, case.inputs, case.blocked)
    seen = counts(strength) | (moved > 100 * patient.tolerance)
    deaf = (strength == 0) & (moved == 0)
    judged = _judged(patient, case.blocked)
    leaks, missing = seen & case.blocked & judged, deaf & ~case.blocked & judged
    if not leaks.any() and not missing.any():
        return None
    blocked, allowed = (case.blocked & judged).sum(), (~case.blocked & judged).sum()
    evidence = (
        f"with {case.name}, {int(leaks.sum())} of {int(blocked)} blocked pairs have influence, "
        f"{int(missing.sum())} of {int(allowed)} allowed ones have none"
    )
    return _named_leak(patient, case, seen, judged, reaction, evidence)


def _named_leak(
    patient: Patient,
    case: Situation,
    seen: Tensor,
    judged: Tensor,
    reaction: dict[str, Tensor],
    evidence: str,
) -> Finding:
    """Say what kind of leak it is."""
    assert case.blocked is not None
    blocked = case.blocked

    def is_mask(wrong: Tensor) -> bool:
        return bool(((seen == ~wrong) | ~judged).all())

    symptom = "blocked keys have influence, or allowed ones have none"
    if patient.same(patient.ask(case.inputs, blocked), patient.ask(case.inputs)):
        return Finding("mask-ignored", WRONG, "the mask changes nothing", evidence)
    if is_mask(~blocked):
        return Finding("mask-inverted", WRONG, "exactly the blocked keys have influence", evidence)
    if blocked.size(1) == blocked.size(2) and is_mask(blocked.mT):
        return Finding("mask-transposed", WRONG, symptom, evidence)
    cause = "the mask stands on the wrong axis, is applied too late, or does not block"
    if patient.kind == "cross":
        own = torch.arange(len(blocked))
        if not (counts(reaction["value"][own, :, own]) & blocked).any():
            symptom = "blocked values have no influence, but their keys have"
            cause = "a mask that is applied after the softmax"
    return Finding(
        "blocked-has-influence",
        WRONG,
        symptom,
        evidence,
        cause,
        "Set blocked scores to minus infinity before the softmax, with the mask as (b, 1, n, m).",
    )


def future(patient: Patient) -> Iterator[Finding]:
    """Under a causal mask, a token sees itself and what came before."""
    _only_for(patient, "causal")
    inputs = patient.draw(1)
    own = torch.arange(len(inputs.query))
    strength = reactions(patient, inputs)["query"][own, :, own]  # (b, n, n)
    moved = moves(patient, inputs)
    seen = counts(strength) | (moved > 100 * patient.tolerance)
    n = patient.n
    ahead = torch.ones(n, n, dtype=torch.bool).triu(1)
    leaks = (seen & ahead).any(0)
    behind = ((strength == 0) & (moved == 0) & ~ahead).any(0)
    if behind.diagonal().any() and not leaks[1:].any():
        leaks[0] = False  # with nothing left to see, it sees everything alike
    if leaks.any():
        off = torch.equal(leaks, ahead & ~ahead.roll(1, 1).triu(2))
        yield Finding(
            "causal-off-by-one" if off else "future-leaks",
            WRONG,
            "each token sees the one after it" if off else "tokens see some of their future",
            f"{int(leaks.sum())} of {int(ahead.sum())} pairs with a later token react, the first "
            f"is output {int(leaks.any(1).int().argmax())} to input "
            f"{int(leaks[int(leaks.any(1).int().argmax())].int().argmax())}, counted from 0",
            "" if off else "no causal mask, or heads merged by a straight reshape",
            ""
            if off
            else "Block with `triu(diagonal=1)`, and follow one number through every reshape.",
        )
    if behind.any():
        yield Finding(
            "causal-hides-itself" if behind.diagonal().any() else "past-unseen",
            WRONG,
            "tokens do not react to what they may see",
            f"{int(behind.sum())} of {int((~ahead).sum())} pairs with itself or an earlier token",
            "" if behind.diagonal().any() else "a mask that blocks too much, or is inverted",
            "" if behind.diagonal().any() else "Block with `triu(diagonal=1)`.",
        )


def prefix(patient: Patient) -> Iterator[Finding]:
    """A longer sequence leaves the results of its beginning unchanged."""
    case = situations.future(patient)
    if patient.kind == "causal":
        case = Situation("the future hidden", patient.draw(3), None)
    if case is None:
        raise NotAsked("it takes no mask that blocks the future")
    x, n = case.inputs, case.inputs.query.size(1)
    whole = patient.ask(x, case.blocked)
    for k in range(1, n):
        blocked = None if case.blocked is None else case.blocked[:, :k, :k]
        gap = patient.gap(whole[:, :k], patient.ask(x.cut(0, k), blocked))
        if gap > patient.tolerance:
            yield Finding(
                "prefix-changes",
                WRONG,
                "the first results change when the sequence goes on, though its future is hidden",
                f"the first {k} of {n} differ by {gap:.0%} of their size from those of {k} alone",
                "heads that are split or merged by a straight reshape, a mask that hides the wrong "
                "side, or a softmax over the queries",
                "Follow one number through every reshape: where it lands must not depend on n.",
            )
            return


def padding(patient: Patient) -> Iterator[Finding]:
    """Padding that is blocked changes nothing."""
    _needs_masks(patient)
    if patient.masks == "shared":
        raise NotAsked("it takes no mask that blocks padding")
    k = min(patient.n, patient.m) - 1
    if k < 1:
        raise NotAsked("the longest sequence leaves no room for padding")
    x = patient.draw(15)
    blocked = torch.zeros(patient.b, x.query.size(1), x.key.size(1), dtype=torch.bool)
    blocked[..., k:] = True
    if patient.kind == "cross":
        short = Inputs(x.query, x.key[:, :k], x.value[:, :k])
        found, expected = patient.ask(x, blocked), patient.ask(short)
    else:
        found = patient.ask(x, blocked)[:, :k]
        expected = patient.ask(x.cut(0, k))
    gap = patient.gap(found, expected)
    if gap > patient.tolerance:
        yield Finding(
            "padding-matters",
            WRONG,
            "keys that are appended and blocked change the results",
            f"they differ by {gap:.0%} of their size from those without padding",
            "the padding mask is ignored, inverted, or stands on the wrong axis",
            "Broadcast padding to the scores as (b, 1, 1, m).",
        )


def alone(patient: Patient) -> Iterator[Finding]:
    """A token that may see only itself depends on no other."""
    _only_for(patient, "cross", "self")
    case = situations.only_itself(patient)
    if case is None:
        raise NotAsked("it takes no mask that leaves each token only itself")
    together = patient.ask(case.inputs, case.blocked)
    single = [patient.ask(case.inputs.cut(i, i + 1)) for i in range(patient.n)]
    gap = patient.gap(together, torch.cat(single, 1))
    if gap > patient.tolerance:
        yield Finding(
            "not-alone",
            WRONG,
            "tokens that may see only themselves depend on others",
            f"the results differ by {gap:.0%} of their size from those of each token alone",
            "the mask does not block, or heads are split or merged by a straight reshape",
            "Follow one number through every reshape: it must stay with its token.",
        )


def fully_masked_rows(patient: Patient) -> Iterator[Finding]:
    """A fully masked row has no agreed result, but it must not change other rows."""
    _needs_masks(patient)
    seen: set[str] = set()
    for case, rows in situations.fully_masked_rows(patient):
        for finding in _empty_rows(patient, case, rows):
            if finding.code not in seen:
                seen.add(finding.code)
                yield finding


def _empty_rows(patient: Patient, case: Situation, rows: Tensor) -> Iterator[Finding]:
    blocked = case.blocked
    assert blocked is not None
    output = patient.ask(case.inputs, blocked)
    bad = ~output.isfinite().all(-1)
    if (bad & ~rows).any():
        yield Finding(
            "nan-spreads",
            WRONG,
            "a fully masked query makes others NaN",
            f"{int((bad & ~rows).sum())} of {int((~rows).sum())} other rows, with {case.name}",
        )
    elif bad.any():
        yield Finding(
            "nan-row",
            CONVENTION,
            "a fully masked query gets NaN",
            f"{int(bad.sum())} of {int(rows.sum())} such rows, with {case.name}",
        )
    else:
        other = patient.draw(16, *_sizes(case.inputs))
        changed = Inputs(case.inputs.query, other.key, other.value)
        if patient.kind != "cross":
            keep = rows.unsqueeze(-1)
            mixed = torch.where(keep, case.inputs.query, other.query)
            changed = Inputs(mixed, mixed, mixed)
        gap = patient.gap(patient.ask(changed, blocked)[rows], output[rows])
        if gap > patient.tolerance:
            yield Finding(
                "finite-fill",
                CONVENTION,
                "a fully masked query gets a mean of blocked values",
                f"its result moves by {gap:.0%} with the blocked keys and values",
                "blocked scores are filled with a finite number, all with the same",
            )


def _sizes(inputs: Inputs) -> tuple[int, int, int]:
    return inputs.query.size(0), inputs.query.size(1), inputs.key.size(1)
