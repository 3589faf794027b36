"""Every code that a finding may have: what it means, and which of them count."""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from attention_doctor.mistakes import MISTAKES
from attention_doctor.report import Finding, ModelReport, Report
from attention_doctor.rules.catalogue import BY_CODE
from attention_doctor.rules.questions import CONVENTION, UNASKED, WRONG

CODES = {code: rule.cause for code, rule in BY_CODE.items()}
_WIDTH = 92


def check(codes: Iterable[str]) -> None:
    """Refuse codes that do not exist, with a ValueError."""
    if unknown := [code for code in codes if code not in CODES]:
        raise ValueError(
            f"there is no code {', '.join(unknown)}; codes: {', '.join(sorted(CODES))}"
        )


def chosen(
    report: Report | ModelReport,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    wrong: Sequence[str] = (),
) -> Report | ModelReport:
    """Leave findings out of a report; what could not be asked stays.

    Codes in ``select`` count, none means all; those in ``ignore`` do not. Conventions in ``wrong``
    are wrong.
    """
    check([*select, *ignore, *wrong])
    if isinstance(report, ModelReport):
        once: dict[int, Any] = {id(x): chosen(x, select, ignore, wrong) for x in report.examined}
        reports = {path: once[id(x)] for path, x in report.items()}
        return ModelReport(report.name, reports, report.not_examined)
    kept: list[Finding] = []
    left: dict[str, None] = {}  # each once, in their order
    for finding in report.findings:
        worse = finding.severity == CONVENTION and finding.code in wrong
        counts = finding.code in (select or [finding.code]) and finding.code not in ignore
        if counts or finding.severity == UNASKED:
            kept.append(replace(finding, severity=WRONG) if worse else finding)
        else:
            left[finding.code] = None
    kept.sort(key=lambda x: x.severity != WRONG)
    said = [f"left out as asked for: {', '.join(left)}"] if left else []
    return replace(report, findings=tuple(kept), not_examined=(*report.not_examined, *said))


def explain(code: str) -> str:
    """Say what a code means: the cause, what follows, the lines, and what it is not.

    Raises:
        ValueError: there is no such code.

    Examples:
        >>> from attention_doctor.codes import explain
        >>> print(explain("no-scale"))
        no-scale (wrong)
        ...
        - scores = q @ k.mT
        + scores = q @ k.mT / math.sqrt(d)
    """
    check([code])
    rule = BY_CODE[code]
    parts = [f"{code} ({rule.severity})", *_filled(f"{rule.cause}. {rule.explanation}")]
    if code in MISTAKES:
        parts += [f"- {MISTAKES[code].wrong}\n+ {MISTAKES[code].right}"]
    elif rule.remedy:
        parts += _filled(rule.remedy)
    if rule.neighbours:
        parts += _filled(f"Not to be confused with: {', '.join(rule.neighbours)}.")
    if rule.excuses:
        parts += _filled(f"Where it holds, it accounts for {', '.join(rule.excuses)}.")
    return "\n\n".join(parts)


def _filled(text: str) -> list[str]:
    text = text.strip()
    return [textwrap.fill(text[:1].upper() + text[1:], _WIDTH)]
