"""Every code that a finding may have, with its cause in a few words."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from attention_doctor.report import Finding, ModelReport, Report
from attention_doctor.rules.catalogue import RULES
from attention_doctor.rules.questions import CONVENTION, UNASKED, WRONG

CODES = {rule.code: rule.cause for rule in RULES}


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
