"""Stage one, continued: masks hide what they block, and nothing else."""

from collections.abc import Iterator

import torch
from torch import Tensor

from attention_doctor import situations
from attention_doctor.demands import band, sliding
from attention_doctor.influence import counts, influence, reactions
from attention_doctor.patient import Failed, FailedBackward, Inputs, NotAsked, Patient
from attention_doctor.report import CONVENTION, WRONG, Finding
from attention_doctor.situations import Situation
from attention_doctor.symptoms import refuse_positions


def _needs_masks(patient: Patient) -> None:
    if not patient.own_future:
        situations.only_for(patient, "cross", "self")
    if patient.masks == "none":
        raise NotAsked("it takes no mask")


def meaning(patient: Patient) -> Iterator[Finding]:
    """True in a mask means blocked; if it means allowed, all later masks are inverted."""
    _needs_masks(patient)
    with patient.dropping(0.0):
        cases = [*situations.masked(patient)]
        if patient.own_future:
            patient.inverted = any(_leak(patient, case) is not None for case in cases)
            inverted = patient.inverted and all(_leak(patient, case) is None for case in cases)
            patient.inverted = False
        else:
            inverted = all(_is_inverted(patient, case) for case in cases)
    if inverted:
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
    own = torch.arange(len(case.blocked))
    seen = counts(list(reaction.values())[-1][own, :, own])  # (b, n, m)
    judged = situations.judged(patient, case)
    return bool(seen.any()) and bool(((seen == case.blocked) | ~judged).all())


def blocked_keys(patient: Patient) -> Iterator[Finding]:
    """Blocked keys have no influence, and allowed keys have some."""
    _needs_masks(patient)
    failures: list[tuple[str, str]] = []
    cases, extra = [*situations.with_masks(patient)], situations.future(patient)
    for case in cases + ([extra] if extra else []):
        try:
            finding = _leak(patient, case)
        except FailedBackward:
            raise  # not for its mask
        except NotAsked:
            continue  # not of this length
        except Failed as failure:
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
            remedy="Give the mask an axis of size 1 for the heads: (b, 1, n, m); padding "
            "(b, 1, 1, m). If it takes another mask, put an adapter around it.",
        )


def _leak(patient: Patient, case: Situation) -> Finding | None:
    """Compare what has influence with what may have."""
    assert case.blocked is not None
    seen, deaf = influence(patient, case.inputs, case.blocked)
    judged = situations.judged(patient, case)
    leaks, missing = seen & case.blocked & judged, deaf & ~case.blocked & judged
    if missing.any():  # what no mask brings back is not the mask's fault
        missing &= ~influence(patient, case.inputs)[1]
    if not leaks.any() and not missing.any():
        return None
    blocked, allowed = (case.blocked & judged).sum(), (~case.blocked & judged).sum()
    evidence = (
        f"with {case.name}, {int(leaks.sum())} of {int(blocked)} blocked pairs have influence, "
        f"{int(missing.sum())} of {int(allowed)} allowed ones have none"
    )
    return _named_leak(patient, case, seen, judged, evidence)


def _named_leak(
    patient: Patient, case: Situation, seen: Tensor, judged: Tensor, evidence: str
) -> Finding:
    """Say what kind of leak it is."""
    assert case.blocked is not None
    blocked = case.blocked

    def is_mask(*wrong: Tensor) -> bool:
        return any(bool(((seen == ~mask) | ~judged).all()) for mask in wrong)

    symptom = "blocked keys have influence, or allowed ones have none"
    if patient.same(patient.answer(case.inputs, blocked), patient.answer(case.inputs)):
        return Finding("mask-ignored", WRONG, "the mask changes nothing", evidence)
    if is_mask(~blocked):
        return Finding("mask-inverted", WRONG, "exactly the blocked keys have influence", evidence)
    square = blocked.size(1) == blocked.size(2) and case.varies != "padding"
    if square and is_mask(blocked.mT):
        return Finding("mask-transposed", WRONG, symptom, evidence)
    if is_mask(*_read_in_the_wrong_order(blocked, patient.num_heads)):
        return Finding("mask-in-the-wrong-order", WRONG, symptom, evidence)
    if _hides_queries(patient, case):
        return Finding("padding-mask-on-queries", WRONG, symptom, evidence)
    cause = "the mask stands on the wrong axis, is applied too late, or does not block"
    if patient.kind == "cross" and not patient.memory:
        own = torch.arange(len(blocked))
        reaction = reactions(patient, case.inputs, blocked)["value"]
        if not (counts(reaction[own, :, own]) & blocked).any():
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


def _read_in_the_wrong_order(blocked: Tensor, h: int) -> Iterator[Tensor]:
    """Give what is hidden from all heads of a sample where each may have another sample's mask.

    Args:
        blocked: (b, n, m), the mask of each sample.
        h: the number of heads.
    """
    b = len(blocked)
    sample, head = torch.arange(b)[:, None], torch.arange(h)
    for whose in ((sample * h + head) % b, (head * b + sample) // h):
        hidden = blocked[whose].all(1)
        if not torch.equal(hidden, blocked):
            yield hidden


def _hides_queries(patient: Patient, case: Situation) -> bool:
    """Tell whether a padding mask changes the padding's own results, and no others."""
    assert case.blocked is not None
    padding = case.blocked[:, 0]
    if case.varies != "padding" or padding.shape != case.inputs.query.shape[:2]:
        return False
    output, free = patient.answer(case.inputs, case.blocked), patient.answer(case.inputs)
    return patient.same(output[~padding], free[~padding])


def future(patient: Patient) -> Iterator[Finding]:
    """Under a causal mask, a token sees itself and what came before."""
    situations.only_for(patient, "causal")
    seen, deaf = influence(patient, patient.draw(1))
    n = patient.n
    ahead = torch.ones(n, n, dtype=torch.bool).triu(1)
    leaks = (seen & ahead).any(0)
    behind = (deaf & ~ahead).any(0)
    if behind.diagonal().any() and not leaks[1:].any():
        leaks[0] = False  # with nothing left to see, it sees everything alike
    if leaks.any():
        i, j = leaks.nonzero()[0].tolist()
        off = torch.equal(leaks, ahead & ~ahead.roll(1, 1).triu(2))
        yield Finding(
            "causal-off-by-one" if off else "future-leaks",
            WRONG,
            "each token sees the one after it" if off else "tokens see some of their future",
            f"{int(leaks.sum())} of {int(ahead.sum())} pairs with a later token react, the first "
            f"is output {i} to input {j}, counted from 0",
            remedy=""
            if off
            else "Block with `triu(diagonal=1)`, and follow one number through every reshape.",
        )
    others = torch.ones(n, n, dtype=torch.bool).tril(-1)  # where nothing else is seen: `attention`
    if (window := band(~behind & ~ahead)) and not leaks.any():
        yield sliding(window, f"{int(behind.sum())} of {int((~ahead).sum())} pairs are not seen")
    elif behind.any() and not behind.equal(others):
        yield Finding(
            "causal-hides-itself" if behind.diagonal().any() else "past-unseen",
            WRONG,
            "tokens do not react to what they may see",
            f"{int(behind.sum())} of {int((~ahead).sum())} pairs with itself or an earlier token",
            remedy="" if behind.diagonal().any() else "Block with `triu(diagonal=1)`.",
        )


def padding(patient: Patient) -> Iterator[Finding]:
    """Padding that is blocked changes nothing."""
    situations.only_for(patient, "cross", "self")
    if patient.masks in ("shared", "none"):
        raise NotAsked("it takes no mask that blocks padding")
    k = min(patient.n, patient.m) - 1
    if k < 1:
        raise NotAsked("the longest sequence leaves no room for padding")
    x = patient.draw(15)
    blocked = torch.zeros(patient.b, x.query.size(1), x.key.size(1), dtype=torch.bool)
    blocked[..., k:] = True
    refuse_positions(patient)
    within = patient.kind == "self"
    short = x.cut(0, k) if within else Inputs(x.query, x.key[:, :k], x.value[:, :k])
    found, expected = patient.ask(x, blocked), patient.ask(short)
    gap = patient.gap(found[:, : expected.size(1)], expected)
    if gap > patient.tolerance:
        yield Finding(
            "padding-matters",
            WRONG,
            "keys that are appended and blocked change the results",
            f"they differ by {gap:.0%} of their size from those without padding",
            remedy="Broadcast padding to the scores as (b, 1, 1, m).",
        )


def alone(patient: Patient) -> Iterator[Finding]:
    """A token that may see only itself depends on no other."""
    situations.only_for(patient, "cross", "self")
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
            remedy="Follow one number through every reshape: it must stay with its token.",
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
        other = patient.draw(16, *blocked.shape)
        changed = Inputs(case.inputs.query, other.key, other.value)
        if patient.kind == "self":
            changed = case.inputs.map(lambda x: torch.where(rows[..., None], x, other.query))
        gap = patient.gap(patient.ask(changed, blocked)[rows], output[rows])
        if gap > patient.tolerance:
            yield Finding(
                "finite-fill",
                CONVENTION,
                "a fully masked query gets a mean of blocked values",
                f"its result moves by {gap:.0%} with the blocked keys and values",
            )
