"""Causes and what follows from them: findings of all kinds made into one list."""

from dataclasses import replace

from attention_doctor.codes import CODES
from attention_doctor.compare_reference import TRUSTED
from attention_doctor.compare_versions import Diagnosis
from attention_doctor.mistakes import MISTAKES
from attention_doctor.report import CONVENTION, WRONG, Finding

# What may look different inside, where the outputs are the same.
_SEEN_AS = {"mask-multiplied": "fill-does-not-block"}
OF_SCALES = ("scale-", "no-scale")
_OF_TURNS = ("rotates-one-side", "values-rotated")
_OF_MASKS = ("mask-", "padding-mask", "causal-", "fill-")
_MASKED = (
    "order",
    "samples apart",
    "equal values",
    "blocked",
    "future",
    "fully masked rows",
    "answers",
    "visible",
)
# What a mistake in the computation does not explain.
CONDUCT = (
    "evaluation",
    "precision",
    "dropout",
    "registration",
    "hooks",
    "half precision",
    "inputs",
    "training",
    "rotation",
    "cache",
    TRUSTED,
)
_OF_WHICH = ("blocked", "future", "answers", "training")  # tests that say which mask is wrong
_KNOWN = {*MISTAKES, "mask-taken-for-causal", "mask-makes-nan", "mask-missing-in-evaluation"}
_TURN = (  # the way out, where it is no mistake
    "If its masks are meant so, turn them: `--mask allowed` in place of `--mask blocked`, or "
    'back; in Python, `adapt(attend, mask="bnm allowed")`.'
)


def merged(
    findings: list[Finding], seen: list[Finding], diagnosis: Diagnosis, kind: str
) -> list[Finding]:
    """Put causes first, each with what it explains folded under it, and say what to do.

    ``findings`` are from outside, ``seen`` are those that show inside.
    """
    forgotten = any(x.code == "mask-missing-in-evaluation" for x in findings)
    named = None if forgotten else diagnosis.finding  # that the mask is ignored is half of it
    causes = seen if diagnosis.version in ("", "right") else []
    if named is not None:
        alike = (named.code, _SEEN_AS.get(named.code))
        twin = next((x for x in seen if x.code in alike), None)
        place = None if twin is None else twin.where
        causes = [replace(named, test="reference", where=place)]
        if twin is not None and named.severity == CONVENTION:
            causes = [twin]  # which knows the reference's scale
    if not causes:  # which mask it is, the tests say
        named_masks = [x for x in findings if x.test in _OF_WHICH and x.code in _KNOWN]
        causes = [x for x in named_masks if x.code.startswith(_OF_MASKS)]
    for cause in reversed(causes):
        wrong = cause.severity == WRONG
        findings = _folded(cause, findings) if wrong else [*findings, cause]
    return [_with_remedy(finding, kind) for finding in findings]


def _folded(cause: Finding, findings: list[Finding]) -> list[Finding]:
    """Let a cause speak for the findings that follow from it."""
    explained = [x for x in findings if x.code == cause.code or _explains(cause, x)]
    shown = [cause.symptom, *(x.symptom for x in explained if x.severity == WRONG)]
    other = "no property fails; only the outputs are not the right version's"
    codes = [code for x in explained for code in (x.code, *x.explains) if code != cause.code]
    explains = tuple(dict.fromkeys((*cause.explains, *codes)))
    first = replace(cause, symptom=next(filter(None, shown), other), explains=explains)
    return [first, *(x for x in findings if x not in explained)]


def _explains(cause: Finding, finding: Finding) -> bool:
    """Tell whether a finding follows from a cause that is named."""
    if cause.test == "reference":
        return finding.test not in CONDUCT
    masks = cause.code.startswith(_OF_MASKS)
    if cause.code == "fill-does-not-block" and finding.test == "half precision":
        return True
    if cause.code in _OF_TURNS and finding.test == "rotation":
        return finding.code == "positions-not-relative"
    if finding.test in (*CONDUCT, "inside") or cause.code.startswith(("groups-tiled", *OF_SCALES)):
        return False
    if cause.code == "mask-inverted" and finding.test == "attention":
        return True  # a mask that must be given, and should hide nothing, hides everything
    return finding.test in _MASKED if masks else True


def _with_remedy(finding: Finding, kind: str) -> Finding:
    """Take cause and remedy from the list of mistakes, or the cause from the list of codes."""
    mistake = MISTAKES.get(finding.code)
    if mistake is None:
        listed = "" if finding.test == TRUSTED else CODES.get(finding.code, "")
        return replace(finding, cause=finding.cause or listed)
    explained = f". {mistake.explanation}" if finding.severity == WRONG else ""
    way_out = f" {_TURN}" if finding.code == "mask-inverted" and kind != "causal" else ""
    return replace(
        finding,
        cause=finding.cause or mistake.title + explained,
        remedy=f"{finding.remedy or mistake.remedy}{way_out}",
    )
