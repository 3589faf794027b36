"""Ask what masks hide: what they block, and nothing else; in rows that see nothing, too."""

from collections.abc import Iterator

import torch
from torch import Tensor

from attention_doctor.call.patient import Failed, NotAsked, Patient
from attention_doctor.evidence import situations
from attention_doctor.evidence.influence import across, designed, influence
from attention_doctor.evidence.situations import Situation
from attention_doctor.report import Finding, convention, wrong


def _needs_masks(patient: Patient) -> None:
    if not patient.own_future:
        situations.only_for(patient, "cross", "self")
    if patient.masks == "none":
        raise NotAsked("it takes no mask")


def blocked_keys(patient: Patient) -> Iterator[Finding]:
    """Blocked keys have no influence, and allowed keys have some."""
    _needs_masks(patient)
    failures: list[tuple[str, str]] = []
    cases, extra = [*situations.with_masks(patient)], situations.future(patient)
    for case in cases + ([extra] if extra else []):
        try:
            finding = _leak(patient, case)
        except NotAsked:
            continue  # not of this length
        except Failed as failure:
            failures.append((case.name, str(failure)))
            continue
        if finding is not None:
            yield finding
            break
    if failures:
        yield wrong(
            "mask-fails",
            f"it fails with {failures[0][0]}",
            failures[0][1],
            "Give the mask an axis of size 1 for the heads: (b, 1, n, m); padding (b, 1, 1, m). "
            "If it takes another mask, say its form.",
        )


def _leak(patient: Patient, case: Situation) -> Finding | None:
    """Compare what has influence with what may have, and say what kind of leak it is."""
    blocked = case.blocked
    assert blocked is not None
    seen, deaf = influence(patient, case.inputs, blocked)
    judged = situations.judged(patient, case)
    leaks, missing = seen & blocked & judged, deaf & ~blocked & judged
    if missing.any():  # what no mask brings back is not the mask's fault
        missing &= ~influence(patient, case.inputs)[1]
    if not leaks.any() and not missing.any():
        return None
    evidence = (
        f"with {case.name}, {int(leaks.sum())} of {int((blocked & judged).sum())} blocked pairs "
        f"have influence, {int(missing.sum())} of {int((~blocked & judged).sum())} allowed ones "
        "have none"
    )

    def is_mask(*masks: Tensor) -> bool:
        return any(bool(((seen == ~mask) | ~judged).all()) for mask in masks)

    if not patient.ask(case.inputs, blocked)[judged.any(-1)].isfinite().all(-1).any():
        symptom = "results are NaN or infinite with a mask that leaves them keys to see"
        remedy = "Add minus infinity, or fill with it, where a key is hidden; add 0 elsewhere."
        return wrong("mask-makes-nan", symptom, f"every row, with {case.name}", remedy)
    symptom = "blocked keys have influence, or allowed ones have none"
    if patient.same(patient.ask(case.inputs, blocked), patient.ask(case.inputs)):
        return wrong("mask-ignored", "the mask changes nothing", evidence)
    if is_mask(~blocked):
        return wrong("mask-inverted", "exactly the blocked keys have influence", evidence)
    if blocked.size(1) == blocked.size(2) and case.varies != "padding" and is_mask(blocked.mT):
        return wrong("mask-transposed", symptom, evidence)
    if blocked.size(1) == blocked.size(2) and is_mask(torch.ones_like(blocked).triu(1)):
        remedy = "Use the mask; or, where it is only a switch, ask without it: `--mask none`."
        return wrong("mask-taken-for-causal", "any mask hides the future", evidence, remedy)
    mixed = across(patient, case.inputs, blocked)
    if not mixed and is_mask(*_read_in_the_wrong_order(blocked, patient.num_heads)):
        return wrong("mask-in-the-wrong-order", symptom, evidence)
    if _hides_queries(patient, case):
        return wrong("padding-mask-on-queries", symptom, evidence)
    remedy = (
        "Set blocked scores to minus infinity before the softmax, with the mask as (b, 1, n, m)."
    )
    return wrong("blocked-has-influence", symptom, evidence, remedy)


def _read_in_the_wrong_order(blocked: Tensor, h: int) -> Iterator[Tensor]:
    """Give what is hidden from all heads of a sample where each may have another sample's mask."""
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
    output, free = patient.ask(case.inputs, case.blocked), patient.ask(case.inputs)
    return patient.same(output[~padding], free[~padding])


def visible(patient: Patient) -> Iterator[Finding]:
    """Without a mask, every key matters to every query, but for windows, which are reported."""
    situations.only_for(patient, "cross", "self")
    both = influence(patient, patient.draw(1))
    seen, deaf = (x.any(0) for x in both)
    if patient.kind == "self":
        seen |= torch.eye(len(seen), dtype=torch.bool)
    if not deaf.any() or not (seen & ~torch.eye(*seen.shape, dtype=torch.bool)).any():
        return  # where no other token is seen, it is no attention
    said = f"{int(deaf.sum())} of {deaf.numel()} pairs of a query and a key"
    if torch.equal(seen, torch.ones_like(seen).tril()):
        yield wrong("causal-unasked", "without a mask, the future is hidden", said)
    elif design := designed(patient, *both, torch.ones_like(seen)):
        yield design
    else:
        symptom = "keys that nothing hides have no influence"
        remedy = "Let each query see every key that its mask allows."
        yield wrong("visible-unseen", symptom, said, remedy)


def future(patient: Patient) -> Iterator[Finding]:
    """Under a causal mask, a token sees itself and what came before."""
    situations.only_for(patient, "causal")
    seen, deaf = influence(patient, patient.draw(1))
    n = patient.n
    ahead = torch.ones(n, n, dtype=torch.bool).triu(1)
    for case in situations.masked(patient) if patient.masks == "padding" else ():
        with_padding = influence(patient, case.inputs, case.blocked)[0] & ~seen
        if (with_padding & ahead).any():
            evidence = f"{int((with_padding & ahead).any(0).sum())} of {int(ahead.sum())} pairs"
            symptom = "with a mask that blocks padding, tokens see some of their future"
            remedy = "Join the two masks: neither stands in for the other."
            yield wrong("future-leaks", symptom, f"{evidence} with a later token", remedy)
            return
    leaks, behind = (seen & ahead).any(0), (deaf & ~ahead).any(0)
    others = torch.ones(n, n, dtype=torch.bool).tril(-1)
    if behind.diagonal().any() and not leaks[1:].any():
        leaks[0] = False  # with nothing left to see, it sees everything alike
    if leaks.equal(ahead) and behind.equal(others):
        said = "with an earlier token no pair reacts, with a later one every pair"
        yield wrong("mask-transposed", "the past is hidden, and not the future", said)
        return
    if leaks.any():
        i, j = leaks.nonzero()[0].tolist()
        off = torch.equal(leaks, ahead & ~ahead.roll(1, 1).triu(2))
        yield wrong(
            "causal-off-by-one" if off else "future-leaks",
            "each token sees the one after it" if off else "tokens see some of their future",
            f"{int(leaks.sum())} of {int(ahead.sum())} pairs with a later token react, the first "
            f"is output {i} to input {j}, counted from 0",
            ""
            if off
            else "Block with `triu(diagonal=1)`, and follow one number through every reshape.",
        )
    pairs = f"{int(behind.sum())} of {int((~ahead).sum())} pairs"
    if not behind.any() or behind.equal(others):  # where nothing else is seen: `attention`
        return
    if not leaks.any() and (design := designed(patient, seen, deaf, ~ahead)):
        yield design
    else:
        itself = bool(behind.diagonal().any())
        yield wrong(
            "causal-hides-itself" if itself else "past-unseen",
            "tokens do not react to what they may see",
            f"{pairs} with itself or an earlier token",
            "" if itself else "Block with `triu(diagonal=1)`.",
        )


def fully_masked_rows(patient: Patient) -> Iterator[Finding]:
    """A fully masked row has no agreed result, but it must not change other rows."""
    situations.only_for(patient, "cross", "self")
    _needs_masks(patient)
    without = None
    for case in situations.masked(patient):
        assert case.blocked is not None
        blocked, padding = case.blocked.clone(), case.varies == "padding"
        blocked[: 1 if padding else None, : None if padding else 1] = True
        rows = blocked.all(-1)  # (b, n)
        bad = ~patient.ask(case.inputs, blocked).isfinite().all(-1)
        if (others := bad & ~rows).any():
            evidence = f"{int(others.sum())} of {int((~rows).sum())} other rows, with {case.name}"
            yield wrong("nan-spreads", "a fully masked query makes others NaN", evidence)
            return
        if bad.any() and without is None:
            evidence = f"{int(bad.sum())} of {int(rows.sum())} such rows, with {case.name}"
            without = convention("nan-row", "a fully masked query gets NaN", evidence)
    if without is not None:
        yield without
