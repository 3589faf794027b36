"""The verdict: causes come first, each with what follows; designs excuse what they predict.

Each finding is written once, at the end, and not changed.
"""

import re
from collections.abc import Sequence

from attention_doctor.answers import Answers
from attention_doctor.call.places import Where
from attention_doctor.evidence import looks
from attention_doctor.evidence.evidence import Evidence
from attention_doctor.report import Finding
from attention_doctor.rules.catalogue import BY_CODE, RULES
from attention_doctor.rules.questions import CONDUCT, CONVENTION, NAMING, TRUSTED, WRONG
from attention_doctor.rules.rule import Observed, Sign

_CLOSE = 1e-3
_NOTHING = "no property fails; only the outputs are not the right version's"


def findings(evidence: Evidence, answers: Answers) -> list[Finding]:
    """Write the findings, those that are wrong first."""
    observed = [*answers.outside]
    said = {x.sign.evidence for x in observed}
    for message, names in answers.failures.items():
        if message in said:  # as with a mask
            continue
        symptom = f"it raises an error when asked about {', '.join(names)}"
        observed.append(Observed(BY_CODE["fails"], Sign(symptom, message), names[0]))
    grave = [x for x in answers.inside if x.severity == WRONG and x.rule.explains]
    if answers.agreement.version in ("", "right") and not grave:
        observed = excused(evidence, observed)
    written: list[Finding] = []
    meant: list[Observed] = []
    for cause in reversed(_causes(answers, observed)):
        if cause.severity != WRONG:
            meant.append(cause)
            continue
        explained = [x for x in observed if x.rule is cause.rule or _explains(cause, x)]
        observed = [x for x in observed if x not in explained]
        written.insert(0, finding(evidence, cause, explained))
    written += [finding(evidence, x) for x in (*observed, *meant)]
    return sorted(written, key=lambda x: x.severity != WRONG)


def excused(evidence: Evidence, observed: Sequence[Observed]) -> list[Observed]:
    """Put designs in the place of what they predict."""
    kept: list[Observed] = []
    for one in observed:
        said = one if one.severity != WRONG else _design(evidence, one) or one
        if said.severity == WRONG or all(x.rule is not said.rule for x in kept):
            kept.append(said)
    return kept


def _design(evidence: Evidence, one: Observed) -> Observed | None:
    for rule in RULES:
        excuse = rule.excuses.get(one.rule.code)
        if excuse is not None and excuse(evidence, one):
            return Observed(rule, Sign(one.sign.symptom, one.sign.evidence), one.question)
    return None


def _causes(answers: Answers, observed: Sequence[Observed]) -> list[Observed]:
    """Choose what speaks for the rest: a version that agrees, what shows inside, or a mask."""
    halves = {code for x in (*answers.outside, *answers.inside) for code in x.rule.instead_of}
    named = [x for x in answers.reference if x.rule.code not in halves]
    if named:
        return named
    inside = answers.inside if answers.agreement.version in ("", "right", *halves) else []
    if any(x.severity == WRONG for x in inside):
        return inside
    naming = [x for x in observed if x.question in NAMING and x.rule.explains]
    whole = [x for x in naming if x.rule.code not in halves]
    # Where nothing is mixed, that may follow from a mask that hides everything.
    others = [x for x in whole if x.question != "attention"]
    return [
        *(x for x in whole if x in others or not any(_explains(y, x) for y in others)),
        *inside,
    ]


def _explains(cause: Observed, one: Observed) -> bool:
    """Tell whether an observation follows from a cause."""
    if one.rule.excuses and not one.rule.signs:  # a design, which no fault brings about
        return False
    if one.sign.alone:
        return False
    if cause.question == "reference":  # all outputs are the same
        return one.question not in CONDUCT
    return bool(cause.rule.explains & {one.question, one.rule.code})


def finding(evidence: Evidence, one: Observed, explained: Sequence[Observed] = ()) -> Finding:
    """Write a finding, with the codes that follow from it."""
    rule, sign, patient = one.rule, one.sign, evidence.patient
    symptoms = [sign.symptom, *(x.sign.symptom for x in explained if x.severity == WRONG)]
    codes = dict.fromkeys(x.rule.code for x in explained if x.rule is not rule)
    severity, remedy = one.severity, sign.remedy or rule.remedy
    told = f". {rule.explanation}" if rule.explanation and severity == WRONG else ""
    cause = sign.cause or ("" if one.question == TRUSTED else rule.cause + told)
    if rule.hides and patient.given_masks:
        names = ", ".join(f"`{x}`" for x in patient.given_masks)
        cause = f"the model gives it {names}, which may hide tokens"
        severity, remedy = CONVENTION, "Ask again without padding."
    return Finding(
        code=rule.code,
        severity=severity,
        symptom=next(filter(None, symptoms), _NOTHING),
        evidence=sign.evidence,
        cause=cause,
        remedy=remedy,
        test=one.question,
        where=sign.place or (None if sign.nowhere else rule.place(evidence)),
        explains=tuple(codes),
    )


def summary(evidence: Evidence) -> str:
    """Say in a sentence what was seen inside."""
    look = evidence.had(looks.free)
    if look is None:
        return ""
    found, seen = look.found, look.found[-1]
    text = f"softmax over axis {seen.axis} of the scores{_line(seen.where('softmax'))}"
    if seen.scale is not None:
        usual = abs(seen.scale * seen.width**0.5 - 1) < _CLOSE
        factor = f"{seen.scale:.3g}{f' = 1/√{seen.width}' if usual else ''}"
        text = f"scores times {factor}{_line(seen.where('scale', 'product'))}, {text}"
    return f"{f'{len(found)} times ' if len(found) > 1 else ''}{text}"


def _line(place: Where | None) -> str:
    return "" if place is None else f" ({re.sub('.*/', '', place.shown)}:{place.line})"
